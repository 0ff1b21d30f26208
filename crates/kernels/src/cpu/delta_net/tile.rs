//! Products of small matrices, four rows and as many columns as fit in registers at a time.
//!
//! A number is one sum from the first term to the last, whatever the width of the tile.

use super::super::simd::{LANES, Simd};
use super::chunk::PANEL;
use super::step::{load_row, store_row};

/// Rows of a tile: with four vectors of columns 16 sums, and each number loaded is used four times.
pub(super) const ROWS: usize = 4;

/// Four rows of `W` vectors.
#[derive(Clone, Copy)]
pub(super) struct Tile<S: Simd, const W: usize>(pub(super) [[S::V; W]; ROWS]);

impl<S: Simd, const W: usize> Tile<S, W> {
    #[inline(always)]
    pub(super) fn zero(s: S) -> Self {
        Self([[s.splat(0.0); W]; ROWS])
    }

    /// Rows `first ..` of `a`, whose rows are `width` long, from column `at` on; zeros behind its end.
    #[inline(always)]
    pub(super) fn load(s: S, a: &[f32], width: usize, first: usize, at: usize) -> Self {
        let mut tile = Self::zero(s);
        for (m, row) in tile.0.iter_mut().enumerate() {
            *row = load_row::<S, W, false>(s, rows(a, width, first + m, 1), at);
        }
        tile
    }

    /// Stores what lies inside of `a`.
    #[inline(always)]
    pub(super) fn store(self, s: S, a: &mut [f32], width: usize, first: usize, at: usize) {
        for (row, a) in self.0.into_iter().zip(a.chunks_exact_mut(width).skip(first)) {
            store_row::<S, W, false>(s, row, a, at);
        }
    }

    /// Adds `a · b`: row `m` of `a` from its start, columns `at ..` of `b`.
    #[inline(always)]
    pub(super) fn add_product(&mut self, s: S, a: [&[f32]; ROWS], b: &[[f32; PANEL]], at: usize) {
        let [a0, a1, a2, a3] = a;
        let n = b.len();
        let (a0, a1, a2, a3) = (&a0[..n], &a1[..n], &a2[..n], &a3[..n]);
        for p in 0..n {
            self.add_row(s, [a0[p], a1[p], a2[p], a3[p]], &b[p], at);
        }
    }

    /// Adds `aᵀ · b`: columns `first ..` of `a`, whose rows are `width` long, columns `at ..` of `b`.
    #[inline(always)]
    pub(super) fn add_transposed(
        &mut self,
        s: S,
        a: &[f32],
        width: usize,
        first: usize,
        b: &[[f32; PANEL]],
        at: usize,
    ) {
        for (a, b) in a.chunks_exact(width).zip(b) {
            let a: [f32; ROWS] = a[first..first + ROWS].try_into().expect("four columns");
            self.add_row(s, a, b, at);
        }
    }

    #[inline(always)]
    fn add_row(&mut self, s: S, a: [f32; ROWS], b: &[f32; PANEL], at: usize) {
        let b = load_row::<S, W, true>(s, b, at);
        for m in 0..ROWS {
            let a = s.splat(a[m]);
            for w in 0..W {
                self.0[m][w] = s.fma(a, b[w], self.0[m][w]);
            }
        }
    }

    /// Row `m` times `factors[m]`.
    #[inline(always)]
    pub(super) fn scale(&mut self, s: S, factors: &[f32]) {
        for (row, &factor) in self.0.iter_mut().zip(factors) {
            let factor = s.splat(factor);
            for x in row {
                *x = s.mul(factor, *x);
            }
        }
    }

    /// Adds `factors[m] · row` to row `m`, from row `from` on.
    #[inline(always)]
    pub(super) fn add_scaled(&mut self, s: S, from: usize, factors: [f32; ROWS], row: [S::V; W]) {
        for m in from..ROWS {
            let factor = s.splat(factors[m]);
            for w in 0..W {
                self.0[m][w] = s.fma(factor, row[w], self.0[m][w]);
            }
        }
    }
}

/// Rows `first .. first + n` of a matrix whose rows are `width` long.
#[inline(always)]
pub(super) fn rows(a: &[f32], width: usize, first: usize, n: usize) -> &[f32] {
    a.get(first * width..(first + n) * width).unwrap_or(&[])
}

const _: () = assert!(PANEL.is_multiple_of(4 * LANES));
