//! Several tokens of one chunk in matrix form, which reads and writes the state once for all of them:
//!
//! ```text
//! R_i  = β_i (v_i − e^(G_i) Sᵀ k_i) − Σ_{j<i} β_i (k_i·k_j) e^(G_i−G_j) R_j      forward substitution
//! o_i  = e^(G_i) Sᵀ q_i + Σ_{j≤i} (q_i·k_j) e^(G_i−G_j) R_j
//! S   ← e^(G_n) S + Σ_i e^(G_n−G_i) k_i R_iᵀ
//! ```
//! with `G` the sums of the log-decays from the piece's start. Exponents with j > i may overflow and are never used.
//!
//! Columns of the state do not meet, so it is worked on by panels that stay in the first-level cache: all tokens, four
//! at a time, then the panel's new state. Of each four tokens, the earlier fours are a product, and these four solve
//! their own triangle in registers.

use super::super::simd::{LANES, Simd, exp, load_at, store_at};
use super::Gates;
use super::tile::{ROWS, Tile, rows};
use crate::DELTA_CHUNK;

/// Columns of a panel: of a state of 128 rows, 32 KiB.
pub(super) const PANEL: usize = 64;

const _: () = assert!(DELTA_CHUNK == PANEL && DELTA_CHUNK.is_multiple_of(ROWS));

/// What the value heads of a key head share.
pub(super) struct Keys<'a> {
    /// Tokens.
    n: usize,
    /// Width of a row of `q` and `k`, whole vectors.
    dk: usize,
    /// Normed, `[DELTA_CHUNK, dk]`.
    q: &'a [f32],
    k: &'a [f32],
    /// `K Kᵀ` and `Q Kᵀ`, `[DELTA_CHUNK, DELTA_CHUNK]`; right on and below the diagonal.
    kk: &'a [[f32; PANEL]],
    qk: &'a [[f32; PANEL]],
}

impl<'a> Keys<'a> {
    /// `transposed` is `[dk, DELTA_CHUNK]`, `products` `[2, DELTA_CHUNK, DELTA_CHUNK]`: room.
    #[inline(always)]
    pub(super) fn new<S: Simd>(
        s: S,
        (q, k): (&'a [f32], &'a [f32]),
        (n, dk): (usize, usize),
        transposed: &mut [f32],
        products: &'a mut [f32],
    ) -> Self {
        let columns = transposed.as_chunks_mut::<PANEL>().0;
        for first in (0..n).step_by(ROWS) {
            let [a, b, c, d] = four_rows(k, dk, first, dk);
            for (i, column) in columns.iter_mut().enumerate() {
                column[first..first + ROWS].copy_from_slice(&[a[i], b[i], c[i], d[i]]);
            }
        }
        let (kk, qk) = products.split_at_mut(DELTA_CHUNK * PANEL);
        for first in (0..n).step_by(ROWS) {
            if S::TILE >= 8 {
                product::<S, 4>(s, k, columns, first, kk);
                product::<S, 4>(s, q, columns, first, qk);
            } else {
                product::<S, 1>(s, k, columns, first, kk);
                product::<S, 1>(s, q, columns, first, qk);
            }
        }
        Self { n, dk, q, k, kk: kk.as_chunks().0, qk: qk.as_chunks().0 }
    }
}

/// Rows `first ..` of `a · b` on and below the diagonal, in steps of `W` vectors.
#[inline(always)]
fn product<S: Simd, const W: usize>(s: S, a: &[f32], b: &[[f32; PANEL]], first: usize, out: &mut [f32]) {
    for at in (0..first + ROWS).step_by(W * LANES) {
        let mut tile = Tile::<S, W>::zero(s);
        tile.add_product(s, four_rows(a, b.len(), first, b.len()), b, at);
        tile.store(s, out, PANEL, first, at);
    }
}

/// The first `n` columns of rows `first .. first + 4` of a matrix whose rows are `width` long.
#[inline(always)]
fn four_rows(a: &[f32], width: usize, first: usize, n: usize) -> [&[f32]; ROWS] {
    let (a, b) = a[first * width..(first + ROWS) * width].split_at(2 * width);
    let ((a0, a1), (a2, a3)) = (a.split_at(width), b.split_at(width));
    [&a0[..n], &a1[..n], &a2[..n], &a3[..n]]
}

/// One value head.
pub(super) struct Chunk<'a> {
    keys: &'a Keys<'a>,
    beta: [f32; DELTA_CHUNK],
    /// `e^(G_i)`
    decay: [f32; DELTA_CHUNK],
    /// `e^(G_n − G_i)`
    rest: [f32; DELTA_CHUNK],
    /// `−β_i (k_i·k_j) e^(G_i−G_j)`, `[DELTA_CHUNK, DELTA_CHUNK]`
    learnt: &'a [f32],
    /// `(q_i·k_j) e^(G_i−G_j)`, `[DELTA_CHUNK, DELTA_CHUNK]`
    read: &'a [f32],
}

impl<'a> Chunk<'a> {
    /// `mix` is `[2, DELTA_CHUNK, DELTA_CHUNK]`: room.
    #[inline(always)]
    pub(super) fn new<S: Simd>(s: S, keys: &'a Keys<'a>, gates: &Gates, mix: &'a mut [f32]) -> Self {
        let n = keys.n;
        // In f64: the differences are what counts, and they are small beside the sums where decay is strong.
        let (mut sums, mut sum) = ([0.0; DELTA_CHUNK], 0.0);
        for (to, &g) in sums.iter_mut().zip(&gates.log_decay[..n]) {
            sum += f64::from(g);
            *to = sum;
        }
        let (mut decay, mut rest) = ([0.0; DELTA_CHUNK], [0.0; DELTA_CHUNK]);
        for i in 0..n {
            (decay[i], rest[i]) = (sums[i] as f32, (sum - sums[i]) as f32);
        }
        for at in (0..n).step_by(LANES) {
            store_at(s, exp(s, load_at(s, &decay, at)), &mut decay, at);
            store_at(s, exp(s, load_at(s, &rest, at)), &mut rest, at);
        }
        let (learnt, read) = mix.split_at_mut(DELTA_CHUNK * DELTA_CHUNK);
        let both = learnt.chunks_exact_mut(DELTA_CHUNK).zip(read.chunks_exact_mut(DELTA_CHUNK));
        for (i, (learnt, read)) in both.take(n).enumerate() {
            let mut between = [0.0; DELTA_CHUNK];
            for j in 0..=i {
                between[j] = (sums[i] - sums[j]) as f32;
            }
            let beta = s.splat(-gates.beta[i]);
            for at in (0..=i).step_by(LANES) {
                let between = exp(s, load_at(s, &between, at));
                let kk = s.mul(beta, load_at(s, &keys.kk[i], at));
                store_at(s, s.mul(kk, between), learnt, at);
                store_at(s, s.mul(load_at(s, &keys.qk[i], at), between), read, at);
            }
        }
        Self { keys, beta: gates.beta, decay, rest, learnt, read }
    }

    /// Changes `state`, `[head_dim_k, dv]`. `v` and `out` are `[DELTA_CHUNK, _]` with rows of whole panels, `room` is
    /// `[dk + DELTA_CHUNK, PANEL]`.
    #[inline(always)]
    pub(super) fn run<S: Simd>(
        &self,
        s: S,
        state: &mut [f32],
        dv: usize,
        room: &mut [f32],
        (v, out): (&[f32], &mut [f32]),
    ) {
        for at in (0..dv).step_by(PANEL) {
            let panel = room.as_chunks_mut::<PANEL>().0.split_at_mut(self.keys.dk);
            if S::TILE >= 8 {
                self.panel::<S, 4>(s, state, (dv, at), panel, (v, out));
            } else {
                self.panel::<S, 1>(s, state, (dv, at), panel, (v, out));
            }
        }
    }

    /// Columns `at ..` of the state, `W` vectors at a time.
    #[inline(always)]
    fn panel<S: Simd, const W: usize>(
        &self,
        s: S,
        state: &mut [f32],
        (dv, at): (usize, usize),
        (old, r): (&mut [[f32; PANEL]], &mut [[f32; PANEL]]),
        (v, out): (&[f32], &mut [f32]),
    ) {
        for (d, to) in old.iter_mut().enumerate() {
            let row = rows(state, dv, d, 1);
            for w in (0..PANEL).step_by(LANES) {
                store_at(s, load_at(s, row, at + w), to, w);
            }
        }
        let width = dv.next_multiple_of(PANEL);
        for first in (0..self.keys.n).step_by(ROWS) {
            for w in (0..PANEL).step_by(W * LANES) {
                let v = Tile::<S, W>::load(s, v, width, first, at + w);
                let o = self.tokens(s, first, v, old, r, w);
                o.store(s, out, width, first, at + w);
            }
        }
        for (row, &rest) in r.iter_mut().zip(&self.rest[..self.keys.n]) {
            for w in (0..PANEL).step_by(LANES) {
                store_at(s, s.mul(s.splat(rest), load_at(s, row, w)), row, w);
            }
        }
        let whole = [self.decay[self.keys.n - 1]; ROWS];
        for d in (0..state.len() / dv).step_by(ROWS) {
            for w in (0..PANEL).step_by(W * LANES) {
                let mut new = Tile::<S, W>::load(s, old.as_flattened(), PANEL, d, w);
                new.scale(s, &whole);
                new.add_transposed(s, self.keys.k, self.keys.dk, d, &r[..self.keys.n], w);
                new.store(s, state, dv, d, at + w);
            }
        }
    }

    /// The corrections `R` of four tokens, columns `at ..` of the panel, from their values `v`; returns what they read.
    #[inline(always)]
    fn tokens<S: Simd, const W: usize>(
        &self,
        s: S,
        first: usize,
        v: Tile<S, W>,
        old: &[[f32; PANEL]],
        r: &mut [[f32; PANEL]],
        at: usize,
    ) -> Tile<S, W> {
        let Keys { q, k, dk, .. } = *self.keys;
        let mut error = Tile::<S, W>::zero(s);
        error.add_product(s, four_rows(k, dk, first, dk), old, at);
        for m in 0..ROWS {
            let (beta, decay) = (s.splat(self.beta[first + m]), s.splat(self.decay[first + m]));
            for w in 0..W {
                let predicted = s.mul(decay, error.0[m][w]);
                error.0[m][w] = s.mul(beta, s.sub(v.0[m][w], predicted));
            }
        }
        let learnt = four_rows(self.learnt, DELTA_CHUNK, first, first + ROWS);
        error.add_product(s, learnt.map(|row| &row[..first]), &r[..first], at);
        for j in 0..ROWS - 1 {
            error.add_scaled(s, j + 1, learnt.map(|row| row[first + j]), error.0[j]);
        }
        error.store(s, r.as_flattened_mut(), PANEL, first, at);

        let mut read = Tile::<S, W>::zero(s);
        read.add_product(s, four_rows(q, dk, first, dk), old, at);
        read.scale(s, &self.decay[first..first + ROWS]);
        let answers = four_rows(self.read, DELTA_CHUNK, first, first + ROWS);
        read.add_product(s, answers.map(|row| &row[..first]), &r[..first], at);
        for j in 0..ROWS {
            read.add_scaled(s, j, answers.map(|row| row[first + j]), error.0[j]);
        }
        read
    }
}
