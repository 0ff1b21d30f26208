//! The recurrence of one token in one sweep over a head's state: with `p = Sᵀk` and `u = Sᵀq` of the old state,
//! `d = β(v − e^g p)`, `o = e^g u + (k·q) d`, `S ← e^g S + k dᵀ` (spec 2.5 step 7).
//!
//! The sums over all rows must be known before the first row can change, so the state is read twice, the second time
//! from the nearest cache. Meanwhile the next head's state is asked for, a line for each two lines read or written,
//! so that the memory behind the caches never waits for arithmetic.

use super::super::simd::{LANES, Simd, dot, load_at, store_at};

/// Bytes of a cache line.
const LINE_BYTES: usize = 64;

/// One token of one value head.
pub(super) struct Step<'a> {
    /// Normed, at least `[head_dim_k]`; the same length.
    pub(super) q: &'a [f32],
    pub(super) k: &'a [f32],
    /// `[head_dim_v]` at least.
    pub(super) v: &'a [f32],
    pub(super) beta: f32,
    pub(super) log_decay: f32,
    /// The state that will be wanted next.
    pub(super) next: *const f32,
}

impl Step<'_> {
    /// Changes `state`, `[head_dim_k, dv]`, and writes `out`, at least `[dv]`.
    #[inline(always)]
    pub(super) fn run<S: Simd>(&self, s: S, state: &mut [f32], dv: usize, out: &mut [f32]) {
        // Two sums for each vector of columns, and registers for what is loaded.
        if S::TILE >= 8 {
            self.sweep::<S, 8>(s, state, dv, out)
        } else {
            self.sweep::<S, 2>(s, state, dv, out)
        }
    }

    /// `W` vectors of columns at a time.
    #[inline(always)]
    fn sweep<S: Simd, const W: usize>(&self, s: S, state: &mut [f32], dv: usize, out: &mut [f32]) {
        let (beta, decay) = (s.splat(self.beta), s.splat(self.log_decay.exp()));
        let kq = s.splat(dot(s, self.k, self.q));
        let mut next = self.next.cast::<u8>();
        for at in (0..dv).step_by(W * LANES) {
            let mut sums = [[s.splat(0.0); W]; 2];
            for (row, (&k, &q)) in state.chunks_exact(dv).zip(self.k.iter().zip(self.q)) {
                next = ask::<S, W>(s, next);
                let (row, k, q) = (load_row::<S, W>(s, row, at), s.splat(k), s.splat(q));
                for w in 0..W {
                    sums[0][w] = s.fma(k, row[w], sums[0][w]);
                    sums[1][w] = s.fma(q, row[w], sums[1][w]);
                }
            }
            let [mut d, u] = sums;
            for w in 0..W {
                let at = at + w * LANES;
                let predicted = s.mul(decay, d[w]);
                d[w] = s.mul(beta, s.sub(load_at(s, self.v, at), predicted));
                store_at(s, s.fma(kq, d[w], s.mul(decay, u[w])), out, at);
            }
            for (row, &k) in state.chunks_exact_mut(dv).zip(self.k) {
                next = ask::<S, W>(s, next);
                let (mut new, k) = (load_row::<S, W>(s, row, at), s.splat(k));
                for w in 0..W {
                    new[w] = s.fma(k, d[w], s.mul(decay, new[w]));
                }
                store_row(s, new, row, at);
            }
        }
    }
}

/// Asks for half as many lines as there are vectors; returns what follows them.
#[inline(always)]
fn ask<S: Simd, const W: usize>(s: S, at: *const u8) -> *const u8 {
    for line in 0..W / 2 {
        s.prefetch(at.wrapping_add(line * LINE_BYTES));
    }
    at.wrapping_add(W / 2 * LINE_BYTES)
}

/// `W` vectors at `row[at..]`, zeros behind the end.
#[inline(always)]
pub(super) fn load_row<S: Simd, const W: usize>(s: S, row: &[f32], at: usize) -> [S::V; W] {
    let mut vectors = [s.splat(0.0); W];
    match row.get(at..at + W * LANES) {
        Some(full) => {
            for (v, x) in vectors.iter_mut().zip(full.as_chunks::<LANES>().0) {
                *v = s.load(x);
            }
        }
        None => {
            for (w, v) in vectors.iter_mut().enumerate() {
                *v = load_at(s, row, at + w * LANES);
            }
        }
    }
    vectors
}

/// Stores what lies inside `row[at..]`.
#[inline(always)]
pub(super) fn store_row<S: Simd, const W: usize>(s: S, vectors: [S::V; W], row: &mut [f32], at: usize) {
    match row.get_mut(at..at + W * LANES) {
        Some(full) => {
            for (v, x) in vectors.into_iter().zip(full.as_chunks_mut::<LANES>().0) {
                s.store(v, x);
            }
        }
        None => {
            for (w, v) in vectors.into_iter().enumerate() {
                store_at(s, v, row, at + w * LANES);
            }
        }
    }
}
