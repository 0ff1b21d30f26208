//! Full attention, one query at a time (spec 2.3 and 2.4).

use super::{dot, rms_norm_row, sigmoid};
use crate::{AttentionShape, KvFormat, Rope, Rows};

/// Keys and values of one layer, one position after the other as [`KvFormat::position_bytes`] says.
#[derive(Debug)]
pub struct ReferenceKv {
    shape: AttentionShape,
    format: KvFormat,
    bytes: Vec<u8>,
}

impl ReferenceKv {
    pub(super) fn new(shape: AttentionShape, format: KvFormat) -> Self {
        Self { shape, format, bytes: Vec::new() }
    }

    pub(super) fn read(&self, pos: usize, out: &mut [u8]) {
        let at = pos * self.format.position_bytes(self.shape);
        out.copy_from_slice(&self.bytes[at..at + out.len()]);
    }

    pub(super) fn write(&mut self, pos: usize, bytes: &[u8]) {
        let at = pos * self.format.position_bytes(self.shape);
        assert!(at <= self.bytes.len(), "there are positions up to {pos}");
        self.bytes.resize(self.bytes.len().max(at + bytes.len()), 0);
        self.bytes[at..at + bytes.len()].copy_from_slice(bytes);
    }

    /// Keys, then values, of a head at positions `0..n_pos`, each `[n_pos][head_dim]`.
    fn rows(&self, head_kv: usize, n_pos: usize) -> [Vec<Vec<f32>>; 2] {
        let (head_dim, n_row) = (self.shape.head_dim, self.format.row_bytes(self.shape.head_dim));
        [0, 1].map(|part| {
            let decode = |pos: usize| {
                let at = pos * self.format.position_bytes(self.shape) + (2 * head_kv + part) * n_row;
                let mut row = vec![0.0; head_dim];
                self.format.decode_row(&self.bytes[at..at + n_row], &mut row);
                row
            };
            (0..n_pos).map(decode).collect()
        })
    }
}

/// See [`crate::Backend::attention_prepare`].
pub(super) fn prepare(
    shape: AttentionShape,
    rope: &Rope,
    (q_weight, k_weight, eps): (&Vec<f32>, &Vec<f32>, f32),
    (q, k, v): (&mut Vec<f32>, &mut Vec<f32>, &Vec<f32>),
    kv: &mut ReferenceKv,
    Rows { first, pos, n_token }: Rows,
) {
    let AttentionShape { n_head, n_head_kv, head_dim, gated } = shape;
    let q_stride = if gated { 2 * head_dim } else { head_dim };
    let n_row = kv.format.row_bytes(head_dim);
    for t in 0..n_token {
        for head in 0..n_head {
            let at = ((first + t) * n_head + head) * q_stride;
            let q = &mut q[at..at + head_dim];
            rms_norm_row(q, q_weight, eps);
            rotate(q, rope, pos + t);
        }
        let mut stored = vec![0; kv.format.position_bytes(shape)];
        for (head, stored) in stored.chunks_exact_mut(2 * n_row).enumerate() {
            let at = ((first + t) * n_head_kv + head) * head_dim;
            let k = &mut k[at..at + head_dim];
            rms_norm_row(k, k_weight, eps);
            rotate(k, rope, pos + t);
            let (k_to, v_to) = stored.split_at_mut(n_row);
            kv.format.encode_row(k, k_to);
            kv.format.encode_row(&v[at..at + head_dim], v_to);
        }
        kv.write(pos + t, &stored);
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
    kv: &ReferenceKv,
    Rows { first, pos, n_token }: Rows,
    out: &mut [f32],
) {
    let AttentionShape { n_head, n_head_kv, head_dim, gated } = shape;
    let q_stride = if gated { 2 * head_dim } else { head_dim };
    let scale = 1.0 / (head_dim as f32).sqrt();
    for head in 0..n_head {
        let [keys, values] = kv.rows(head / (n_head / n_head_kv), pos + n_token);
        for t in 0..n_token {
            let row = (first + t) * n_head + head;
            let q = &q[row * q_stride..][..q_stride];
            let seen = ..pos + t + 1;
            let scores: Vec<f32> = keys[seen].iter().map(|k| dot(&q[..head_dim], k) * scale).collect();
            let max = scores.iter().copied().fold(f32::NEG_INFINITY, f32::max);
            let exp: Vec<f32> = scores.iter().map(|s| (s - max).exp()).collect();
            let total: f64 = exp.iter().map(|&e| e as f64).sum();

            for i in 0..head_dim {
                let sum: f64 = exp.iter().zip(&values[seen]).map(|(&e, v)| e as f64 * v[i] as f64).sum();
                let gate = if gated { sigmoid(q[head_dim + i]) } else { 1.0 };
                out[row * head_dim + i] = (sum / total) as f32 * gate;
            }
        }
    }
}
