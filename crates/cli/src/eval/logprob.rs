//! Probabilities of tokens, from logits: sums in f64.

/// `ln Σ eˣ`
pub(super) fn log_sum_exp(x: &[f32]) -> f64 {
    let max = x.iter().copied().fold(f32::NEG_INFINITY, f32::max) as f64;
    max + x.iter().map(|&x| (x as f64 - max).exp()).sum::<f64>().ln()
}

/// The first of the largest.
pub(super) fn top(x: &[f32]) -> usize {
    (0..x.len()).fold(0, |best, i| if x[best] < x[i] { i } else { best })
}
