//! The recurrence of one token in one sweep over the states of a key head's value heads: with `p = Sᵀk` and `u = Sᵀq`
//! of an old state, `d = β(v − e^g p)`, `o = e^g u + (k·q) d`, `S ← e^g S + k dᵀ` (spec 2.5 step 7).
//!
//! The sums over all rows must be known before the first row can change, so a state is read twice, the second time
//! from a near cache. One head's rows change while the next head's rows are read for the first time, and the head
//! behind it is asked for: the stream from the memory behind the caches does not stop for arithmetic. (On a Zen 5 core
//! 93 µs became 101 µs by asking where 4 MiB of states stay in the third-level cache, and 234 µs became 218 µs where
//! they come from memory, which is where a model's states come from.)

use super::super::simd::{LANES, Simd, dot, load_at, store_at};

/// One token of the value heads that read one key head.
pub(super) struct Step<'a> {
    /// Normed, at least `[head_dim_k]`; the same length.
    pub(super) q: &'a [f32],
    pub(super) k: &'a [f32],
    /// `[n_head, dv]`
    pub(super) v: &'a [f32],
    /// How much of the error is learnt, `[n_head]`.
    pub(super) beta: &'a [f32],
    /// `e^g`, `[n_head]`
    pub(super) decay: &'a [f32],
    /// Lengths of a head's state and of its rows.
    pub(super) state_len: usize,
    pub(super) dv: usize,
    /// The state that will be wanted next.
    pub(super) next: *const f32,
}

impl Step<'_> {
    /// Changes `states`, `[n_head, head_dim_k, dv]`, and writes `out`, `[n_head, dv]`.
    #[inline(always)]
    pub(super) fn run<S: Simd>(&self, s: S, states: &mut [f32], out: &mut [f32]) {
        // Three registers for each vector of columns, and some for what is loaded.
        if S::TILE >= 8 { self.sweep::<S, 8>(s, states, out) } else { self.sweep::<S, 2>(s, states, out) }
    }

    /// `W` vectors of columns at a time.
    #[inline(always)]
    fn sweep<S: Simd, const W: usize>(&self, s: S, states: &mut [f32], out: &mut [f32]) {
        for at in (0..self.dv).step_by(W * LANES) {
            // Apart, so that the loops over whole vectors keep all sums in registers.
            if at + W * LANES <= self.dv {
                self.columns::<S, W, true>(s, states, at, out);
            } else {
                self.columns::<S, W, false>(s, states, at, out);
            }
        }
    }

    /// Columns `at ..` of the states, `WHOLE` if all are inside them.
    #[inline(always)]
    fn columns<S: Simd, const W: usize, const WHOLE: bool>(
        &self,
        s: S,
        states: &mut [f32],
        at: usize,
        out: &mut [f32],
    ) {
        let kq = s.splat(dot(s, self.k, self.q));
        let mut sums = self.read::<S, W, WHOLE>(s, &states[..self.state_len], at);
        for head in 0..self.beta.len() {
            let (beta, decay) = (s.splat(self.beta[head]), s.splat(self.decay[head]));
            let row = head * self.dv..(head + 1) * self.dv;
            let (v, out) = (&self.v[row.clone()], &mut out[row]);
            let [mut d, u] = sums;
            for w in 0..W {
                let at = at + w * LANES;
                let predicted = s.mul(decay, d[w]);
                d[w] = s.mul(beta, s.sub(load_at(s, v, at), predicted));
                store_at(s, s.fma(kq, d[w], s.mul(decay, u[w])), out, at);
            }
            let (state, behind) = states[head * self.state_len..].split_at_mut(self.state_len);
            match behind.get(..self.state_len) {
                Some(next) => sums = self.update_and_read::<S, W, WHOLE>(s, state, next, at, decay, d),
                None => self.update::<S, W, WHOLE>(s, state, at, decay, d),
            }
        }
    }

    /// `Sᵀk` and `Sᵀq`.
    #[inline(always)]
    fn read<S: Simd, const W: usize, const WHOLE: bool>(
        &self,
        s: S,
        state: &[f32],
        at: usize,
    ) -> [[S::V; W]; 2] {
        let mut sums = [[s.splat(0.0); W]; 2];
        for (row, (&k, &q)) in state.chunks_exact(self.dv).zip(self.k.iter().zip(self.q)) {
            let (row, k, q) = (load_row::<S, W, WHOLE>(s, row, at), s.splat(k), s.splat(q));
            for w in 0..W {
                sums[0][w] = s.fma(k, row[w], sums[0][w]);
                sums[1][w] = s.fma(q, row[w], sums[1][w]);
            }
        }
        sums
    }

    /// The new state of one head, and `Sᵀk` and `Sᵀq` of the next, while the one behind that is asked for.
    #[inline(always)]
    fn update_and_read<S: Simd, const W: usize, const WHOLE: bool>(
        &self,
        s: S,
        state: &mut [f32],
        next: &[f32],
        at: usize,
        decay: S::V,
        d: [S::V; W],
    ) -> [[S::V; W]; 2] {
        let mut sums = [[s.splat(0.0); W]; 2];
        let rows = state.chunks_exact_mut(self.dv).zip(next.chunks_exact(self.dv));
        for ((row, next), (&k, &q)) in rows.zip(self.k.iter().zip(self.q)) {
            let (k, q) = (s.splat(k), s.splat(q));
            ask::<S, W>(s, next.as_ptr().wrapping_add(at + self.state_len));
            let next = load_row::<S, W, WHOLE>(s, next, at);
            for w in 0..W {
                sums[0][w] = s.fma(k, next[w], sums[0][w]);
                sums[1][w] = s.fma(q, next[w], sums[1][w]);
            }
            let mut new = load_row::<S, W, WHOLE>(s, row, at);
            for w in 0..W {
                new[w] = s.fma(k, d[w], s.mul(decay, new[w]));
            }
            store_row::<S, W, WHOLE>(s, new, row, at);
        }
        sums
    }

    /// The new state of the last head, while the state that is wanted next is asked for.
    #[inline(always)]
    fn update<S: Simd, const W: usize, const WHOLE: bool>(
        &self,
        s: S,
        state: &mut [f32],
        at: usize,
        decay: S::V,
        d: [S::V; W],
    ) {
        let mut next = self.next.wrapping_add(at);
        for (row, &k) in state.chunks_exact_mut(self.dv).zip(self.k) {
            ask::<S, W>(s, next);
            next = next.wrapping_add(self.dv);
            let (mut new, k) = (load_row::<S, W, WHOLE>(s, row, at), s.splat(k));
            for w in 0..W {
                new[w] = s.fma(k, d[w], s.mul(decay, new[w]));
            }
            store_row::<S, W, WHOLE>(s, new, row, at);
        }
    }
}

/// Asks for `W` vectors, each about a cache line.
#[inline(always)]
fn ask<S: Simd, const W: usize>(s: S, at: *const f32) {
    for w in 0..W {
        s.prefetch(at.wrapping_add(w * LANES).cast());
    }
}

/// `W` vectors at `row[at..]`; where they are not `WHOLE`, zeros behind the end.
#[inline(always)]
pub(super) fn load_row<S: Simd, const W: usize, const WHOLE: bool>(
    s: S,
    row: &[f32],
    at: usize,
) -> [S::V; W] {
    let mut vectors = [s.splat(0.0); W];
    if WHOLE {
        for (v, x) in vectors.iter_mut().zip(row[at..at + W * LANES].as_chunks::<LANES>().0) {
            *v = s.load(x);
        }
    } else {
        for (w, v) in vectors.iter_mut().enumerate() {
            *v = load_at(s, row, at + w * LANES);
        }
    }
    vectors
}

/// Stores `W` vectors at `row[at..]`; where they are not `WHOLE`, what lies inside it.
#[inline(always)]
pub(super) fn store_row<S: Simd, const W: usize, const WHOLE: bool>(
    s: S,
    vectors: [S::V; W],
    row: &mut [f32],
    at: usize,
) {
    if WHOLE {
        for (v, x) in vectors.into_iter().zip(row[at..at + W * LANES].as_chunks_mut::<LANES>().0) {
            s.store(v, x);
        }
    } else {
        for (w, v) in vectors.into_iter().enumerate() {
            store_at(s, v, row, at + w * LANES);
        }
    }
}
