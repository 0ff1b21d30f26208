//! The gated delta rule (spec 2.5): one value head a job, tokens in order.
//!
//! A piece of one token sweeps the state once; a longer piece takes the chunked form, which reads the state once for
//! all its tokens:
//!
//! ```text
//! R_i  = β_i (v_i − e^(G_i) Sᵀ k_i) − Σ_{j<i} β_i (k_i·k_j) e^(G_i−G_j) R_j      forward substitution
//! o_i  = e^(G_i) Sᵀ q_i + Σ_{j≤i} (q_i·k_j) e^(G_i−G_j) R_j
//! S   ← e^(G_n) S + Σ_i e^(G_n−G_i) k_i R_iᵀ
//! ```
//! with `G` the sums of the log-decays from the piece's start. Exponents with j > i may overflow and are never used.

use std::cell::RefCell;
use std::ops::Range;

use super::isa::Token;
use super::pool::Pool;
use super::share::Share;
use super::simd::{Kernel, LANES, Simd, dot, exp, load_at, store_at};
use crate::{DELTA_CHUNK, DeltaShape};

/// Under the root of the l2 norms (spec 2.5 step 4).
const L2_EPS: f32 = 1e-6;
/// Vectors of columns that are worked on together: two accumulators each, and their part of the state
/// (128 rows of 256 bytes) stays in the first-level cache.
const WIDE: usize = 4;

thread_local! {
    /// The normed keys and queries and the corrections of one piece.
    static SCRATCH: RefCell<Vec<f32>> = const { RefCell::new(Vec::new()) };
}

/// See [`crate::Backend::delta_net`].
pub(super) fn delta_net(
    (isa, pool): (Token, &Pool),
    shape: DeltaShape,
    qkv: &[f32],
    ba: (&[f32], &[f32]),
    decay_dt: (&[f32], &[f32]),
    state: &mut [f32],
    pos: Range<usize>,
    out: &mut [f32],
) {
    let DeltaShape { n_head_v, head_dim_k, head_dim_v, .. } = shape;
    let state_len = head_dim_k * head_dim_v;
    let state = Share::new(&mut state[..n_head_v * state_len]);
    let out = Share::new(&mut out[..pos.len() * n_head_v * head_dim_v]);
    pool.run(n_head_v, &|head| {
        SCRATCH.with_borrow_mut(|scratch| {
            let n = DELTA_CHUNK.min(pos.len()) * (2 * head_dim_k + head_dim_v);
            scratch.resize(scratch.len().max(n), 0.0);
            let token = Tokens { shape, qkv, ba, decay_dt, head, out: &out };
            // SAFETY: each job has its own head.
            let state = unsafe { state.part(head * state_len, state_len) };
            isa.run(Head { token, pos: pos.clone(), state, scratch });
        });
    });
}

/// What one value head reads and writes per token.
struct Tokens<'a, 'b> {
    shape: DeltaShape,
    /// `[n_token, q | k | v]`
    qkv: &'a [f32],
    ba: (&'a [f32], &'a [f32]),
    decay_dt: (&'a [f32], &'a [f32]),
    head: usize,
    /// `[n_token, n_head_v, head_dim_v]`
    out: &'a Share<'b, f32>,
}

impl<'a> Tokens<'a, '_> {
    fn qkv(&self, t: usize, at: usize, n: usize) -> &'a [f32] {
        let DeltaShape { n_head_k, n_head_v, head_dim_k, head_dim_v } = self.shape;
        let width = 2 * n_head_k * head_dim_k + n_head_v * head_dim_v;
        &self.qkv[t * width..(t + 1) * width][at..at + n]
    }

    fn key_head(&self) -> usize {
        self.head / (self.shape.n_head_v / self.shape.n_head_k)
    }

    fn q(&self, t: usize) -> &'a [f32] {
        let dk = self.shape.head_dim_k;
        self.qkv(t, self.key_head() * dk, dk)
    }

    fn k(&self, t: usize) -> &'a [f32] {
        let dk = self.shape.head_dim_k;
        self.qkv(t, (self.shape.n_head_k + self.key_head()) * dk, dk)
    }

    fn v(&self, t: usize) -> &'a [f32] {
        let DeltaShape { n_head_k, head_dim_k, head_dim_v, .. } = self.shape;
        self.qkv(t, 2 * n_head_k * head_dim_k + self.head * head_dim_v, head_dim_v)
    }

    /// How much of the error is learnt, in 0..=1.
    fn beta(&self, t: usize) -> f32 {
        1.0 / (1.0 + (-self.ba.0[t * self.shape.n_head_v + self.head]).exp())
    }

    /// Logarithm of the decay, at most 0.
    fn log_decay(&self, t: usize) -> f32 {
        let x = self.ba.1[t * self.shape.n_head_v + self.head] + self.decay_dt.1[self.head];
        let softplus = x.max(0.0) + (-x.abs()).exp().ln_1p();
        -self.decay_dt.0[self.head] * softplus
    }

    #[allow(clippy::mut_from_ref)]
    fn out(&self, t: usize) -> &mut [f32] {
        let DeltaShape { n_head_v, head_dim_v, .. } = self.shape;
        // SAFETY: each job has its own head, and keeps no two parts of one token.
        unsafe { self.out.part((t * n_head_v + self.head) * head_dim_v, head_dim_v) }
    }
}

/// All tokens of a call for one value head.
struct Head<'a, 'b> {
    token: Tokens<'a, 'b>,
    pos: Range<usize>,
    /// `[head_dim_k, head_dim_v]`
    state: &'a mut [f32],
    scratch: &'a mut [f32],
}

impl Kernel for Head<'_, '_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let Self { token, pos, state, scratch } = self;
        let DeltaShape { head_dim_k: dk, head_dim_v: dv, .. } = token.shape;
        let q_scale = 1.0 / (dk as f32).sqrt();
        let mut start = pos.start;
        while start < pos.end {
            let end = pos.end.min((start / DELTA_CHUNK + 1) * DELTA_CHUNK);
            let (first, n) = (start - pos.start, end - start);
            let (q, rest) = scratch.split_at_mut(n * dk);
            let (k, r) = rest.split_at_mut(n * dk);
            for i in 0..n {
                l2_norm(s, token.q(first + i), q_scale, &mut q[i * dk..(i + 1) * dk]);
                l2_norm(s, token.k(first + i), 1.0, &mut k[i * dk..(i + 1) * dk]);
            }
            if n == 1 {
                step(s, &token, first, q, k, state);
            } else {
                let piece = Piece { token: &token, first, n, q, k, log_decay: log_decays(&token, first, n) };
                piece.run(s, state, &mut r[..n * dv]);
            }
            start = end;
        }
    }
}

/// `x / sqrt(Σx² + ε) · scale`
#[inline(always)]
fn l2_norm<S: Simd>(s: S, x: &[f32], scale: f32, out: &mut [f32]) {
    let scale = s.splat(scale / (dot(s, x, x) + L2_EPS).sqrt());
    for at in (0..x.len()).step_by(LANES) {
        store_at(s, s.mul(load_at(s, x, at), scale), out, at);
    }
}

/// Token `t`, by the recurrence in one sweep: with `p = Sᵀk` and `u = Sᵀq` of the old state,
/// `d = β(v − e^g p)`, `o = e^g u + (k·q) d`, `S ← e^g S + k dᵀ`.
#[inline(always)]
fn step<S: Simd>(s: S, token: &Tokens<'_, '_>, t: usize, q: &[f32], k: &[f32], state: &mut [f32]) {
    let dv = token.shape.head_dim_v;
    let (beta, decay) = (s.splat(token.beta(t)), s.splat(token.log_decay(t).exp()));
    let kq = s.splat(dot(s, k, q));
    let (v, out) = (token.v(t), token.out(t));
    for at in (0..dv).step_by(WIDE * LANES) {
        let [mut d, u] = read_state(s, state, dv, at, k, q);
        for w in 0..WIDE {
            let at = at + w * LANES;
            let predicted = s.mul(decay, d[w]);
            d[w] = s.mul(beta, s.sub(load_at(s, v, at), predicted));
            store_at(s, s.fma(kq, d[w], s.mul(decay, u[w])), out, at);
        }
        for (row, &k) in state.chunks_exact_mut(dv).zip(k) {
            let k = s.splat(k);
            for w in 0..WIDE {
                let at = at + w * LANES;
                store_at(s, s.fma(k, d[w], s.mul(decay, load_at(s, row, at))), row, at);
            }
        }
    }
}

/// Columns `at ..` of `Sᵀk` and `Sᵀq`.
#[inline(always)]
fn read_state<S: Simd>(s: S, state: &[f32], dv: usize, at: usize, k: &[f32], q: &[f32]) -> [[S::V; WIDE]; 2] {
    let mut sums = [[s.splat(0.0); WIDE]; 2];
    for (row, (&k, &q)) in state.chunks_exact(dv).zip(k.iter().zip(q)) {
        let (k, q) = (s.splat(k), s.splat(q));
        for w in 0..WIDE {
            let row = load_at(s, row, at + w * LANES);
            sums[0][w] = s.fma(k, row, sums[0][w]);
            sums[1][w] = s.fma(q, row, sums[1][w]);
        }
    }
    sums
}

/// `G_i`: the log-decays from the piece's start up to token `i`.
fn log_decays(token: &Tokens<'_, '_>, first: usize, n: usize) -> [f64; DELTA_CHUNK] {
    let (mut sums, mut sum) = ([0.0; DELTA_CHUNK], 0.0);
    for (i, to) in sums[..n].iter_mut().enumerate() {
        sum += f64::from(token.log_decay(first + i));
        *to = sum;
    }
    sums
}

/// Several tokens of one chunk.
struct Piece<'a, 'b> {
    token: &'a Tokens<'a, 'b>,
    /// The first token.
    first: usize,
    n: usize,
    /// Normed, `[n, head_dim_k]`.
    q: &'a [f32],
    k: &'a [f32],
    /// `G`, in f64: its differences are what counts, and they are small beside its values where decay is strong.
    log_decay: [f64; DELTA_CHUNK],
}

impl Piece<'_, '_> {
    /// `r` becomes the corrections `R`, `[n, head_dim_v]`.
    #[inline(always)]
    fn run<S: Simd>(&self, s: S, state: &mut [f32], r: &mut [f32]) {
        let dv = self.token.shape.head_dim_v;
        self.read(s, state, r);
        for i in 0..self.n {
            let (before, rest) = r.split_at_mut(i * dv);
            let (learnt, read) = self.mix(s, i);
            add_rows(s, &learnt[..i], before, &mut rest[..dv]);
            add_rows(s, &read[..=i], &r[..(i + 1) * dv], self.token.out(self.first + i));
        }
        self.update(s, state, r);
    }

    fn q(&self, i: usize) -> &[f32] {
        let dk = self.token.shape.head_dim_k;
        &self.q[i * dk..(i + 1) * dk]
    }

    fn k(&self, i: usize) -> &[f32] {
        let dk = self.token.shape.head_dim_k;
        &self.k[i * dk..(i + 1) * dk]
    }

    /// The parts of `R` and of the output that come from the state before the piece.
    #[inline(always)]
    fn read<S: Simd>(&self, s: S, state: &[f32], r: &mut [f32]) {
        let dv = self.token.shape.head_dim_v;
        for at in (0..dv).step_by(WIDE * LANES) {
            for (i, r) in r.chunks_exact_mut(dv).enumerate() {
                let t = self.first + i;
                let (beta, decay) = (s.splat(self.token.beta(t)), s.splat((self.log_decay[i] as f32).exp()));
                let [p, u] = read_state(s, state, dv, at, self.k(i), self.q(i));
                let (v, out) = (self.token.v(t), self.token.out(t));
                for w in 0..WIDE {
                    let at = at + w * LANES;
                    let error = s.sub(load_at(s, v, at), s.mul(decay, p[w]));
                    store_at(s, s.mul(beta, error), r, at);
                    store_at(s, s.mul(decay, u[w]), out, at);
                }
            }
        }
    }

    /// Row `i` of `−A` and of `(Q Kᵀ) ⊙ D`.
    #[inline(always)]
    fn mix<S: Simd>(&self, s: S, i: usize) -> ([f32; DELTA_CHUNK], [f32; DELTA_CHUNK]) {
        let mut decay = [0.0; DELTA_CHUNK];
        for j in 0..=i {
            decay[j] = (self.log_decay[i] - self.log_decay[j]) as f32;
        }
        for at in (0..=i).step_by(LANES) {
            let exponent = load_at(s, &decay, at);
            store_at(s, exp(s, exponent), &mut decay, at);
        }
        let beta = self.token.beta(self.first + i);
        let (mut learnt, mut read) = ([0.0; DELTA_CHUNK], [0.0; DELTA_CHUNK]);
        for j in 0..=i {
            learnt[j] = -beta * dot(s, self.k(i), self.k(j)) * decay[j];
            read[j] = dot(s, self.q(i), self.k(j)) * decay[j];
        }
        (learnt, read)
    }

    /// The state behind the piece.
    #[inline(always)]
    fn update<S: Simd>(&self, s: S, state: &mut [f32], r: &[f32]) {
        let DeltaShape { head_dim_k: dk, head_dim_v: dv, .. } = self.token.shape;
        let whole = self.log_decay[self.n - 1];
        let mut decay = [0.0; DELTA_CHUNK];
        for i in 0..self.n {
            decay[i] = ((whole - self.log_decay[i]) as f32).exp();
        }
        let old = s.splat((whole as f32).exp());
        for (row, state) in state.chunks_exact_mut(dv).enumerate() {
            for at in (0..dv).step_by(LANES) {
                store_at(s, s.mul(old, load_at(s, state, at)), state, at);
            }
            let mut weights = [0.0; DELTA_CHUNK];
            for i in 0..self.n {
                weights[i] = decay[i] * self.k[i * dk + row];
            }
            add_rows(s, &weights[..self.n], r, state);
        }
    }
}

/// `to += Σ_i weights[i] · rows[i]`
#[inline(always)]
fn add_rows<S: Simd>(s: S, weights: &[f32], rows: &[f32], to: &mut [f32]) {
    let n = to.len();
    for at in (0..n).step_by(WIDE * LANES) {
        let mut sums = [s.splat(0.0); WIDE];
        for w in 0..WIDE {
            sums[w] = load_at(s, to, at + w * LANES);
        }
        for (&weight, row) in weights.iter().zip(rows.chunks_exact(n)) {
            let weight = s.splat(weight);
            for w in 0..WIDE {
                sums[w] = s.fma(weight, load_at(s, row, at + w * LANES), sums[w]);
            }
        }
        for w in 0..WIDE {
            store_at(s, sums[w], to, at + w * LANES);
        }
    }
}
