//! Means with 95 % confidence intervals.
//!
//! Neighbouring tokens are alike, so that an interval from single tokens would be too narrow. Tokens are taken
//! together in blocks of one document, and the spread of the blocks gives the standard error: that of a ratio of two
//! sums over blocks, to first order.

use serde::{Deserialize, Serialize};

/// Standard errors on each side of an interval of 95 %.
const Z_95: f64 = 1.959_964;
/// Tokens of a block: topics change more slowly than words, and intervals hardly widen beyond this.
const BLOCK_TOKENS: usize = 256;
/// A short text has shorter blocks, so that there are as many as this.
const N_BLOCK_MIN: usize = 20;

/// A value, and between which two it would be for other text of the same kind.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Estimate {
    pub(super) value: f64,
    /// 95 % confidence interval; `None` if there is too little to tell.
    pub(super) ci95: Option<[f64; 2]>,
}

/// Where blocks of counted tokens end.
pub(super) struct Blocks {
    ends: Vec<usize>,
}

impl Blocks {
    /// Of documents with so many counted tokens.
    pub(super) fn of(n_counted: &[usize]) -> Self {
        let n_all: usize = n_counted.iter().sum();
        let len = (n_all / N_BLOCK_MIN).clamp(1, BLOCK_TOKENS);
        let (mut ends, mut start) = (Vec::new(), 0);
        for &n in n_counted {
            ends.extend((len..n).step_by(len).map(|end| start + end));
            start += n;
            ends.extend((n > 0).then_some(start));
        }
        Self { ends }
    }

    /// `Σ numerators / Σ denominators`, one each a counted token.
    pub(super) fn ratio(&self, numerators: &[f64], denominators: &[f64]) -> Estimate {
        let (sum, of) = (numerators.iter().sum::<f64>(), denominators.iter().sum::<f64>());
        let value = sum / of;
        let n_block = self.ends.len();
        if n_block < 2 {
            return Estimate { value, ci95: None };
        }
        let starts = std::iter::once(&0).chain(&self.ends);
        let residuals = starts.zip(&self.ends).map(|(&start, &end)| {
            let sum = |x: &[f64]| x[start..end].iter().sum::<f64>();
            sum(numerators) - value * sum(denominators)
        });
        let squares: f64 = residuals.map(|r| r * r).sum();
        let error = (squares * n_block as f64 / (n_block - 1) as f64).sqrt() / of;
        Estimate::around(value, error)
    }

    /// Mean over counted tokens.
    pub(super) fn mean(&self, values: &[f64]) -> Estimate {
        self.ratio(values, &vec![1.0; values.len()])
    }
}

impl Estimate {
    /// From a standard error.
    pub(super) fn around(value: f64, error: f64) -> Self {
        Self { value, ci95: Some([value - Z_95 * error, value + Z_95 * error]) }
    }

    /// The share of `n` independent cases that `n_hit` are (Wilson's interval); `None` without cases.
    pub(super) fn share(n_hit: usize, n: usize) -> Option<Self> {
        if n == 0 {
            return None;
        }
        let (p, n, z2) = (n_hit as f64 / n as f64, n as f64, Z_95 * Z_95);
        let middle = (p + z2 / (2.0 * n)) / (1.0 + z2 / n);
        let half = Z_95 / (1.0 + z2 / n) * (p * (1.0 - p) / n + z2 / (4.0 * n * n)).sqrt();
        Some(Self { value: p, ci95: Some([(middle - half).max(0.0), (middle + half).min(1.0)]) })
    }

    /// Of a rising function of the value.
    pub(super) fn map(self, f: impl Fn(f64) -> f64) -> Self {
        Self { value: f(self.value), ci95: self.ci95.map(|ends| ends.map(&f)) }
    }

    /// Half the interval's width, and nothing without one.
    pub(super) fn half_width(&self) -> Option<f64> {
        self.ci95.map(|[low, high]| (high - low) / 2.0)
    }

    /// `1.234 (95 %: 1.230 to 1.240)`, for intervals that are not even.
    pub(super) fn show_ends(&self, digits: usize) -> String {
        let ends = self.ci95.map(|[low, high]| format!(" (95 %: {low:.digits$} to {high:.digits$})"));
        format!("{:.digits$}{}", self.value, ends.unwrap_or_default())
    }

    /// `1.234 ±0.005`, with so many digits.
    pub(super) fn show(&self, digits: usize) -> String {
        let half = self.half_width().map(|half| format!(" ±{half:.digits$}"));
        format!("{:.digits$}{}", self.value, half.unwrap_or_default())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn near(a: f64, b: f64) -> bool {
        (a - b).abs() < 1e-9
    }

    /// Blocks would span documents, or leave tokens out.
    #[test]
    fn blocks_end_where_documents_do() {
        assert_eq!(Blocks::of(&[3, 0, 2]).ends, [1, 2, 3, 4, 5]);
        assert_eq!(Blocks::of(&[45, 15]).ends, (1..=20).map(|i| 3 * i).collect::<Vec<_>>());
        assert_eq!(Blocks::of(&[4, 37]).ends.len(), 2 + 19);
        assert_eq!(Blocks::of(&[300, 9000]).ends[..3], [256, 300, 556]);
        assert!(Blocks::of(&[]).ends.is_empty());
    }

    /// An interval would be of another quantity, or as narrow as if neighbours told nothing of each other.
    #[test]
    fn intervals_are_those_of_the_block_means() {
        // 40 tokens in blocks of 2 that are alike: 20 numbers 0 and 1 in turn, not 40.
        let values: Vec<f64> = (0..40).map(|i| f64::from(i / 2 % 2)).collect();
        let blocks = Blocks::of(&[40]);
        let mean = blocks.mean(&values);
        let error = (0.25f64 * 20.0 / 19.0 / 20.0).sqrt();
        assert!(near(mean.value, 0.5) && near(mean.half_width().unwrap(), Z_95 * error), "{mean:?}");
        // A ratio that is the same everywhere is known exactly.
        let denominators: Vec<f64> = (0..40).map(|i| f64::from(i % 7 + 1)).collect();
        let numerators: Vec<f64> = denominators.iter().map(|d| 3.0 * d).collect();
        let ratio = blocks.ratio(&numerators, &denominators);
        assert!(near(ratio.value, 3.0) && near(ratio.half_width().unwrap(), 0.0), "{ratio:?}");
        assert_eq!(Blocks::of(&[1]).mean(&[2.0]), Estimate { value: 2.0, ci95: None });
    }

    /// A share of few cases would come out as certain.
    #[test]
    fn shares_have_wilsons_interval() {
        // Newcombe, Statistics in Medicine 17 (1998), table I: Wilson's score interval without correction.
        for (n_hit, n, low, high) in [
            (81, 263, 0.2553, 0.3662),
            (15, 148, 0.0624, 0.1605),
            (0, 20, 0.0, 0.1611),
            (1, 29, 0.0061, 0.1718),
        ] {
            let [l, h] = Estimate::share(n_hit, n).unwrap().ci95.unwrap();
            assert!((l - low).abs() < 5e-5 && (h - high).abs() < 5e-5, "{n_hit} of {n}: {l} {h}");
        }
        assert_eq!(Estimate::share(0, 0), None);
    }
}
