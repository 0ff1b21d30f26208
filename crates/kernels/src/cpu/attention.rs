//! Full attention: norms and rotation into the cache, and the softmax over it in one pass.
//!
//! The pass goes over the cache in blocks of 64 positions counted from 0, with a running maximum; a query's result
//! depends on its own position only. A job is one token and a few query heads that share a key/value head.

use std::ops::Range;

use super::isa::Token;
use super::pointwise::rms_scale;
use super::pool::Pool;
use super::share::Share;
use super::simd::{Kernel, LANES, Simd, exp, load_at, sigmoid, store_at};
use crate::{AttentionShape, Rope};

/// Positions of one step of the softmax.
const BLOCK: usize = 64;

/// See [`crate::Backend::attention_prepare`]. `angles` is scratch.
pub(super) fn prepare(
    (isa, pool): (Token, &Pool),
    shape: AttentionShape,
    rope: &Rope,
    norms: (&Vec<f32>, &Vec<f32>, f32),
    (q, k, v): (&mut Vec<f32>, &Vec<f32>, &Vec<f32>),
    (k_cache, v_cache): (&mut Vec<f32>, &mut Vec<f32>),
    pos: Range<usize>,
    angles: &mut Vec<f32>,
) {
    let AttentionShape { n_head, n_head_kv, head_dim, gated } = shape;
    let (q_dim, kv_dim, n_rot) =
        (n_head * head_dim * (1 + gated as usize), n_head_kv * head_dim, 2 * rope.inv_freq.len());
    assert!(n_rot <= head_dim, "{n_rot} rotated dims of {head_dim}");
    angles.resize(angles.len().max(pos.len() * n_rot), 0.0);
    let (q, angles) = (Share::new(q), Share::new(angles));
    let (k_cache, v_cache) = (Share::new(k_cache), Share::new(v_cache));
    pool.run(pos.len(), &|t| {
        let at = (pos.start + t) * kv_dim;
        // SAFETY: each job has its own token, and so its own position.
        let (q, angles, k_to, v_to) = unsafe {
            let (k_to, v_to) = (k_cache.part(at, kv_dim), v_cache.part(at, kv_dim));
            (q.part(t * q_dim, q_dim), angles.part(t * n_rot, n_rot), k_to, v_to)
        };
        write_angles(rope, pos.start + t, angles);
        v_to.copy_from_slice(&v[t * kv_dim..(t + 1) * kv_dim]);
        k_to.copy_from_slice(&k[t * kv_dim..(t + 1) * kv_dim]);
        isa.run(PrepareHeads { heads: q, stride: q_dim / n_head, weight: norms.0, eps: norms.2, angles });
        isa.run(PrepareHeads { heads: k_to, stride: head_dim, weight: norms.1, eps: norms.2, angles });
    });
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

/// See [`crate::Backend::attention`].
pub(super) fn attend(
    (isa, pool): (Token, &Pool),
    shape: AttentionShape,
    q: &[f32],
    (k, v): (&Vec<f32>, &Vec<f32>),
    pos: Range<usize>,
    out: &mut [f32],
) {
    let AttentionShape { n_head, n_head_kv, head_dim, gated } = shape;
    let q_dim = n_head * head_dim * (1 + gated as usize);
    let n_group = n_head / n_head_kv;
    // Query heads of a job share the loads of keys and values.
    let n = [4, 2, 1].into_iter().find(|n| n_group % n == 0).expect("1 divides all");
    let per_token = n_head / n;
    let out = Share::new(&mut out[..pos.len() * n_head * head_dim]);
    pool.run(pos.len() * per_token, &|job| {
        // The longest rows of the batch first, so that threads end together.
        let (t, first) = (pos.len() - 1 - job / per_token, job % per_token * n);
        // SAFETY: each job has its own heads of its own token.
        let out = unsafe { out.part((t * n_head + first) * head_dim, n * head_dim) };
        let n_pos = pos.start + t + 1;
        let heads = Heads { shape, q: &q[t * q_dim..(t + 1) * q_dim], first, n_pos, k, v, out };
        match n {
            4 => isa.run(Attend::<4>(heads)),
            2 => isa.run(Attend::<2>(heads)),
            _ => isa.run(Attend::<1>(heads)),
        }
    });
}

/// Some query heads of one token that read one key/value head.
struct Heads<'a> {
    shape: AttentionShape,
    /// The token's queries and gates.
    q: &'a [f32],
    /// The first of the heads.
    first: usize,
    /// Positions that the token sees.
    n_pos: usize,
    /// `[n_ctx, n_head_kv, head_dim]`
    k: &'a [f32],
    v: &'a [f32],
    /// `[N, head_dim]`
    out: &'a mut [f32],
}

impl<'a> Heads<'a> {
    fn stride(&self) -> usize {
        self.shape.head_dim * (1 + self.shape.gated as usize)
    }

    fn query(&self, h: usize) -> &'a [f32] {
        &self.q[(self.first + h) * self.stride()..][..self.shape.head_dim]
    }

    fn gate(&self, h: usize) -> &'a [f32] {
        &self.q[(self.first + h) * self.stride() + self.shape.head_dim..][..self.shape.head_dim]
    }

    /// Row `pos` of the keys or values of our key/value head.
    fn row(&self, cache: &'a [f32], pos: usize) -> &'a [f32] {
        let AttentionShape { n_head, n_head_kv, head_dim, .. } = self.shape;
        let head_kv = self.first / (n_head / n_head_kv);
        &cache[(pos * n_head_kv + head_kv) * head_dim..][..head_dim]
    }
}

struct Attend<'a, const N: usize>(Heads<'a>);

impl<const N: usize> Kernel for Attend<'_, N> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let Attend(mut heads) = self;
        heads.out.fill(0.0);
        let (mut max, mut total) = ([f32::NEG_INFINITY; N], [0.0; N]);
        for first in (0..heads.n_pos).step_by(BLOCK) {
            let rows = first..heads.n_pos.min(first + BLOCK);
            // Scores, then weights; positions behind the end weigh e^-∞.
            let mut p = [[f32::NEG_INFINITY; BLOCK]; N];
            scores(s, &heads, rows.clone(), &mut p);
            let mut fade = [0.0; N];
            for h in 0..N {
                fade[h] = softmax_block(s, &mut p[h], &mut max[h], &mut total[h]);
            }
            add_values(s, &mut heads, rows, &p, &fade);
        }
        finish(s, &mut heads, &total);
    }
}

/// `p[h][i] = q[h] · k[rows[i]] / sqrt(head_dim)`
#[inline(always)]
fn scores<S: Simd, const N: usize>(s: S, heads: &Heads<'_>, rows: Range<usize>, p: &mut [[f32; BLOCK]; N]) {
    let head_dim = heads.shape.head_dim;
    let scale = 1.0 / (head_dim as f32).sqrt();
    let mut q = [&[][..]; N];
    for h in 0..N {
        q[h] = heads.query(h);
    }
    for (i, pos) in rows.enumerate() {
        let k = heads.row(heads.k, pos);
        let mut sums = [s.splat(0.0); N];
        for at in (0..head_dim).step_by(LANES) {
            let k = load_at(s, k, at);
            for h in 0..N {
                sums[h] = s.fma(load_at(s, q[h], at), k, sums[h]);
            }
        }
        for h in 0..N {
            p[h][i] = s.sum(sums[h]) * scale;
        }
    }
}

/// Turns one head's scores into weights relative to the new maximum, and adds them to the total.
/// Returns the factor by which all before now weighs less.
#[inline(always)]
fn softmax_block<S: Simd>(s: S, p: &mut [f32; BLOCK], max: &mut f32, total: &mut f32) -> f32 {
    let before = *max;
    *max = p.iter().copied().fold(before, f32::max);
    let mut sum = s.splat(0.0);
    for p in p.as_chunks_mut::<LANES>().0 {
        let e = exp(s, s.sub(s.load(p), s.splat(*max)));
        s.store(e, p);
        sum = s.add(sum, e);
    }
    let fade = (before - *max).exp();
    *total = *total * fade + s.sum(sum);
    fade
}

/// `out[h] = out[h] · fade[h] + Σ_i p[h][i] · v[rows[i]]`
#[inline(always)]
fn add_values<S: Simd, const N: usize>(
    s: S,
    heads: &mut Heads<'_>,
    rows: Range<usize>,
    p: &[[f32; BLOCK]; N],
    fade: &[f32; N],
) {
    let head_dim = heads.shape.head_dim;
    for at in (0..head_dim).step_by(2 * LANES) {
        let mut sums = [[s.splat(0.0); 2]; N];
        for h in 0..N {
            let (out, fade) = (&heads.out[h * head_dim..(h + 1) * head_dim], s.splat(fade[h]));
            sums[h] = [s.mul(load_at(s, out, at), fade), s.mul(load_at(s, out, at + LANES), fade)];
        }
        for (i, pos) in rows.clone().enumerate() {
            let v = heads.row(heads.v, pos);
            let v = [load_at(s, v, at), load_at(s, v, at + LANES)];
            for h in 0..N {
                let p = s.splat(p[h][i]);
                sums[h] = [s.fma(p, v[0], sums[h][0]), s.fma(p, v[1], sums[h][1])];
            }
        }
        for h in 0..N {
            let out = &mut heads.out[h * head_dim..(h + 1) * head_dim];
            store_at(s, sums[h][0], out, at);
            store_at(s, sums[h][1], out, at + LANES);
        }
    }
}

/// Divides by the totals and applies the gates.
#[inline(always)]
fn finish<S: Simd, const N: usize>(s: S, heads: &mut Heads<'_>, total: &[f32; N]) {
    let head_dim = heads.shape.head_dim;
    for h in 0..N {
        let scale = s.splat(1.0 / total[h]);
        for at in (0..head_dim).step_by(LANES) {
            let mut y = s.mul(load_at(s, &heads.out[h * head_dim..(h + 1) * head_dim], at), scale);
            if heads.shape.gated {
                y = s.mul(y, sigmoid(s, load_at(s, heads.gate(h), at)));
            }
            store_at(s, y, &mut heads.out[h * head_dim..(h + 1) * head_dim], at);
        }
    }
}
