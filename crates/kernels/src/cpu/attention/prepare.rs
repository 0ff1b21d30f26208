//! Norms and rotation of queries and keys, and the way of keys and values into the cache.

use super::super::isa::Token;
use super::super::pointwise::rms_scale;
use super::super::pool::Pool;
use super::super::share::Share;
use super::super::simd::{Kernel, LANES, Simd, load_at, store_at};
use super::kv::CpuKv;
use crate::{AttentionShape, Rope, Rows};

/// See [`crate::Backend::attention_prepare`]. `angles` is scratch.
pub(in super::super) fn prepare(
    (isa, pool): (Token, &Pool),
    shape: AttentionShape,
    rope: &Rope,
    norms: (&Vec<f32>, &Vec<f32>, f32),
    (q, k, v): (&mut Vec<f32>, &mut Vec<f32>, &Vec<f32>),
    kv: &mut CpuKv,
    rows: Rows,
    angles: &mut Vec<f32>,
) {
    let AttentionShape { n_head, n_head_kv, head_dim, gated } = shape;
    let (q_dim, kv_dim, n_rot) =
        (n_head * head_dim * (1 + gated as usize), n_head_kv * head_dim, 2 * rope.inv_freq.len());
    assert!(n_rot <= head_dim, "{n_rot} rotated dims of {head_dim}");
    let (q, kv_rows) = (&mut q[rows.floats(q_dim)], rows.floats(kv_dim));
    let (k, v) = (&mut k[kv_rows.clone()], &v[kv_rows]);
    angles.resize(angles.len().max(rows.n_token * n_rot), 0.0);
    let (shared_q, shared_k, angles) = (Share::new(q), Share::new(k), Share::new(angles));
    pool.run(rows.n_token, &|t| {
        // SAFETY: each job has its own token.
        let (q, k, angles) = unsafe {
            let k = shared_k.part(t * kv_dim, kv_dim);
            (shared_q.part(t * q_dim, q_dim), k, angles.part(t * n_rot, n_rot))
        };
        write_angles(rope, rows.pos + t, angles);
        isa.run(PrepareHeads { heads: q, stride: q_dim / n_head, weight: norms.0, eps: norms.2, angles });
        isa.run(PrepareHeads { heads: k, stride: head_dim, weight: norms.1, eps: norms.2, angles });
    });
    kv.append(pool, k, v, rows.positions());
}

/// All cosines, then all sines. Angles in f64: at position 262143 an f32 angle is off by 0.008.
fn write_angles(rope: &Rope, pos: usize, angles: &mut [f32]) {
    let (cos, sin) = angles.split_at_mut(rope.inv_freq.len());
    for (j, inv_freq) in rope.inv_freq.iter().enumerate() {
        let (s, c) = (pos as f64 * inv_freq).sin_cos();
        (cos[j], sin[j]) = (c as f32 * rope.scale, s as f32 * rope.scale);
    }
}

/// Norms and rotates the heads of one token in place.
struct PrepareHeads<'a> {
    heads: &'a mut [f32],
    /// From one head to the next: the head, and its gate if there is one.
    stride: usize,
    /// `[head_dim]`
    weight: &'a [f32],
    eps: f32,
    /// Cosines, then sines, of the pairs.
    angles: &'a [f32],
}

impl Kernel for PrepareHeads<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let head_dim = self.weight.len();
        let half = self.angles.len() / 2;
        let (cos, sin) = self.angles.split_at(half);
        for head in self.heads.chunks_exact_mut(self.stride) {
            let u = &mut head[..head_dim];
            let scale = s.splat(rms_scale(s, u, self.eps));
            for at in (0..head_dim).step_by(LANES) {
                let y = s.mul(s.mul(load_at(s, u, at), scale), load_at(s, self.weight, at));
                store_at(s, y, u, at);
            }
            let (a, rest) = u.split_at_mut(half);
            let b = &mut rest[..half];
            for at in (0..half).step_by(LANES) {
                let (x, y) = (load_at(s, a, at), load_at(s, b, at));
                let (cos, sin) = (load_at(s, cos, at), load_at(s, sin, at));
                store_at(s, s.sub(s.mul(x, cos), s.mul(y, sin)), a, at);
                store_at(s, s.add(s.mul(y, cos), s.mul(x, sin)), b, at);
            }
        }
    }
}
