//! Full attention, one query at a time (spec 2.3 and 2.4).

use super::{dot, rms_norm_row, sigmoid};
use crate::{AttentionShape, Rope};

/// See [`crate::Backend::attention_prepare`].
pub(super) fn prepare(
    shape: AttentionShape,
    rope: &Rope,
    (q_weight, k_weight, eps): (&Vec<f32>, &Vec<f32>, f32),
    (q, k, v): (&mut Vec<f32>, &Vec<f32>, &Vec<f32>),
    (k_cache, v_cache): (&mut Vec<f32>, &mut Vec<f32>),
    pos: usize,
    n_token: usize,
) {
    let AttentionShape { n_head, n_head_kv, head_dim, gated } = shape;
    let q_stride = if gated { 2 * head_dim } else { head_dim };
    let kv_dim = n_head_kv * head_dim;
    for t in 0..n_token {
        for head in 0..n_head {
            let at = (t * n_head + head) * q_stride;
            let q = &mut q[at..at + head_dim];
            rms_norm_row(q, q_weight, eps);
            rotate(q, rope, pos + t);
        }
        let (from, to) = (t * kv_dim..(t + 1) * kv_dim, (pos + t) * kv_dim..(pos + t + 1) * kv_dim);
        v_cache[to.clone()].copy_from_slice(&v[from.clone()]);
        k_cache[to.clone()].copy_from_slice(&k[from]);
        for k in k_cache[to].chunks_exact_mut(head_dim) {
            rms_norm_row(k, k_weight, eps);
            rotate(k, rope, pos + t);
        }
    }
}

/// Rotates the leading dims of one head, pairs `(j, j + half)`. Angles in f64: positions reach 262143.
fn rotate(u: &mut [f32], rope: &Rope, pos: usize) {
    let half = rope.inv_freq.len();
    for j in 0..half {
        let angle = pos as f64 * rope.inv_freq[j];
        let (sin, cos) = (angle.sin() as f32 * rope.scale, angle.cos() as f32 * rope.scale);
        let (a, b) = (u[j], u[j + half]);
        u[j] = a * cos - b * sin;
        u[j + half] = b * cos + a * sin;
    }
}

/// See [`crate::Backend::attention`].
pub(super) fn attend(
    shape: AttentionShape,
    q: &[f32],
    (k_cache, v_cache): (&Vec<f32>, &Vec<f32>),
    pos: usize,
    n_token: usize,
    out: &mut [f32],
) {
    let AttentionShape { n_head, n_head_kv, head_dim, gated } = shape;
    let q_stride = if gated { 2 * head_dim } else { head_dim };
    let scale = 1.0 / (head_dim as f32).sqrt();
    for t in 0..n_token {
        for head in 0..n_head {
            let q = &q[(t * n_head + head) * q_stride..][..q_stride];
            let head_kv = head / (n_head / n_head_kv);
            let row =
                |p: usize| (p * n_head_kv + head_kv) * head_dim..(p * n_head_kv + head_kv + 1) * head_dim;

            let scores: Vec<f32> =
                (0..=pos + t).map(|p| dot(&q[..head_dim], &k_cache[row(p)]) * scale).collect();
            let max = scores.iter().copied().fold(f32::NEG_INFINITY, f32::max);
            let exp: Vec<f32> = scores.iter().map(|s| (s - max).exp()).collect();
            let total: f64 = exp.iter().map(|&e| e as f64).sum();

            for i in 0..head_dim {
                let sum: f64 =
                    exp.iter().enumerate().map(|(p, &e)| e as f64 * v_cache[row(p)][i] as f64).sum();
                let gate = if gated { sigmoid(q[head_dim + i]) } else { 1.0 };
                out[(t * n_head + head) * head_dim + i] = (sum / total) as f32 * gate;
            }
        }
    }
}
