//! The inner loops of every matrix product: two rows of weights times a tile of tokens.
//!
//! `w·x = Σ_groups scale·Σ (q − c)·x + (bias + c·scale)·Σ x`, `c` the middle code. Per output, in this order whatever
//! the tile: the bias part, 16 groups a step; then block by block the codes' sum, scaled lane by lane; at the end the
//! sum of the lanes. So a token's result does not depend on its neighbours. Two rows at once share the loads of the
//! activations.

use std::marker::PhantomData;
use std::ops::Range;

use quant::MatrixRef;

use super::codes::{Codes, with_codes};
use super::isa::Token;
use super::prepare::PreparedTile;
use super::simd::{Kernel, LANES, Lanes, Simd};

/// Rows that are computed together.
pub(super) const PAIR: usize = 2;
/// How far ahead of the codes in use memory is asked for. The CPU's own prefetching stops at each 4 KiB page, where
/// every other pair of rows begins.
const PREFETCH_BYTES: usize = 4096;
/// The largest [`Codes::BYTES`].
const BLOCK_BYTES_MAX: usize = 512;

/// One row of a matrix.
#[derive(Clone, Copy)]
struct Row<'a> {
    codes: &'a [u8],
    /// bf16 of each group
    scales: &'a [u8],
    biases: &'a [u8],
}

impl<'a> Row<'a> {
    fn new(w: MatrixRef<'a>, row: usize) -> Self {
        let (codes, groups) = (w.format.row_bytes(w.cols), w.format.row_groups(w.cols) * 2);
        let slice = |plane: &'a [u8], n: usize| &plane[row * n..(row + 1) * n];
        Self {
            codes: slice(w.codes, codes),
            scales: slice(w.scales, groups),
            biases: slice(w.biases, groups),
        }
    }
}

/// Pairs of rows times one tile of tokens. This is the one place where the inner loops are compiled: for every
/// instruction set, format and size of tile.
pub(super) struct Product<'a> {
    /// One matrix twice, or two of one format and number of columns.
    w: [MatrixRef<'a>; PAIR],
    /// Rows of the first pair.
    first: [usize; PAIR],
    /// From one pair to the next.
    step: usize,
    n_pair: usize,
    x: PreparedTile<'a>,
    /// `[n_token, n_pair, 2]`
    out: &'a mut [f32],
}

impl<'a> Product<'a> {
    /// Neighbouring rows of one matrix: `out` is `[n_token, rows.len() rounded up to pairs]`. An odd last row is
    /// computed twice: rare, and one inner loop less.
    pub(super) fn rows(
        w: MatrixRef<'a>,
        rows: &Range<usize>,
        x: PreparedTile<'a>,
        out: &'a mut [f32],
    ) -> Self {
        let first = [rows.start, (rows.start + 1).min(w.rows - 1)];
        Self { w: [w, w], first, step: PAIR, n_pair: rows.len().div_ceil(PAIR), x, out }
    }

    /// The same rows of two matrices, alternating: `out` is `[n_token, rows.len(), 2]`.
    pub(super) fn both(
        w: [MatrixRef<'a>; PAIR],
        rows: &Range<usize>,
        x: PreparedTile<'a>,
        out: &'a mut [f32],
    ) -> Self {
        assert!(w[0].format == w[1].format && w[0].cols == w[1].cols, "the rows of a pair are alike");
        Self { w, first: [rows.start; PAIR], step: 1, n_pair: rows.len(), x, out }
    }
}

impl Product<'_> {
    /// Computes it. Every format and size of tile is a function of its own: one large one takes minutes to compile.
    pub(super) fn run(self, isa: Token) {
        with_codes!(self.w[0].format, C => match self.x.n_token {
            1 => isa.run(Tiled::<C, 1>::new(self)),
            2 => isa.run(Tiled::<C, 2>::new(self)),
            4 => isa.run(Tiled::<C, 4>::new(self)),
            8 => isa.run(Tiled::<C, 8>::new(self)),
            n => unreachable!("a tile of {n} tokens"),
        })
    }
}

/// A product with the codes `C` and `T` tokens.
struct Tiled<'a, C, const T: usize> {
    product: Product<'a>,
    codes: PhantomData<C>,
}

impl<'a, C, const T: usize> Tiled<'a, C, T> {
    fn new(product: Product<'a>) -> Self {
        Self { product, codes: PhantomData }
    }
}

impl<C: Codes, const T: usize> Kernel for Tiled<'_, C, T> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        // Known when compiled: no code is made for tiles that the set never gets.
        assert!(T <= S::TILE, "a tile of {T} tokens");
        let Product { w, first, step, n_pair, x, out } = self.product;
        let group = w[0].cols.checked_div(w[0].format.row_groups(w[0].cols)).unwrap_or(0);
        for i in 0..n_pair {
            let row = |r: usize| Row::new(w[r], (first[r] + i * step).min(w[r].rows - 1));
            let y = pair_dot::<S, C, T>(s, [row(0), row(1)], group, x);
            for t in 0..T {
                out[(t * n_pair + i) * PAIR..][..PAIR].copy_from_slice(&[y[0][t], y[1][t]]);
            }
        }
    }
}

#[inline(always)]
fn pair_dot<S: Simd, C: Codes, const T: usize>(
    s: S,
    rows: [Row<'_>; PAIR],
    group: usize,
    tile: PreparedTile<'_>,
) -> [[f32; T]; PAIR] {
    let (x, _) = tile.x.as_chunks::<T>();
    let mut totals = [[s.splat(0.0); T]; PAIR];
    add_biases::<S, C, T>(s, rows, tile.sums.as_chunks::<T>().0, &mut totals);

    // Groups that a block spans: at least 1, at most 8 (2 bits, groups of 32).
    let n_group = C::COLS.checked_div(group).unwrap_or(0).max(1);
    let group_of = |block: usize| (block * C::COLS).checked_div(group).unwrap_or(0);
    let n_block = rows[0].codes.len() / C::BYTES;
    for block in 0..n_block {
        let codes = rows.map(|row| &row.codes[block * C::BYTES..]);
        let x = &x[block * C::VECTORS..][..C::VECTORS];
        let scales = rows.map(|row| row.scales.get(2 * group_of(block)..).unwrap_or(&[]));
        add_block::<S, C, T>(s, codes, (group != 0).then_some((scales, n_group)), x, &mut totals);
    }

    let rest = rows.map(|row| &row.codes[n_block * C::BYTES..]);
    if !rest[0].is_empty() {
        // Zeros behind the end of the row, so that the last block is a whole one.
        let (mut codes, mut scales) = ([[0; BLOCK_BYTES_MAX]; PAIR], [[0; 16]; PAIR]);
        for r in 0..PAIR {
            codes[r][..rest[r].len()].copy_from_slice(rest[r]);
            let rest = &rows[r].scales[2 * group_of(n_block)..];
            scales[r][..rest.len()].copy_from_slice(rest);
        }
        let (codes, scales) = ([&codes[0][..], &codes[1][..]], [&scales[0][..], &scales[1][..]]);
        let x = &x[n_block * C::VECTORS..][..C::VECTORS];
        add_block::<S, C, T>(s, codes, (group != 0).then_some((scales, n_group)), x, &mut totals);
    }

    let mut y = [[0.0; T]; PAIR];
    for r in 0..PAIR {
        for t in 0..T {
            y[r][t] = s.sum(totals[r][t]);
        }
    }
    y
}

/// `totals += (bias + scale · centre) · Σ x` of 16 groups a step. `sums` is `[n_sum_vector][T]`, empty for plain
/// floats.
#[inline(always)]
fn add_biases<S: Simd, C: Codes, const T: usize>(
    s: S,
    rows: [Row<'_>; PAIR],
    sums: &[[Lanes; T]],
    totals: &mut [[S::V; T]; PAIR],
) {
    for (i, sums) in sums.iter().enumerate() {
        for r in 0..PAIR {
            let scale = load_groups(s, rows[r].scales, i);
            let bias = load_groups(s, rows[r].biases, i);
            let bias = s.fma(scale, s.splat(C::CENTRE), bias);
            for t in 0..T {
                totals[r][t] = s.fma(bias, s.load(&sums[t].0), totals[r][t]);
            }
        }
    }
}

/// Groups `16 i ..` of a plane, zeros behind the end.
#[inline(always)]
fn load_groups<S: Simd>(s: S, plane: &[u8], i: usize) -> S::V {
    let rest = &plane[2 * LANES * i..];
    match rest.first_chunk() {
        Some(full) => s.load_bf16(full),
        None => {
            let mut padded = [0; 2 * LANES];
            padded[..rest.len()].copy_from_slice(rest);
            s.load_bf16(&padded)
        }
    }
}

/// `totals += scale ⊙ Σ_j codes_j ⊙ x_j` of one block. `codes` and `scales` begin with those of the block;
/// `scales` comes with the number of groups in the block, or is absent for plain floats.
#[inline(always)]
fn add_block<S: Simd, C: Codes, const T: usize>(
    s: S,
    codes: [&[u8]; PAIR],
    scales: Option<([&[u8]; PAIR], usize)>,
    x: &[[Lanes; T]],
    totals: &mut [[S::V; T]; PAIR],
) {
    for codes in codes {
        for line in (0..C::BYTES).step_by(64) {
            s.prefetch(codes.as_ptr().wrapping_add(PREFETCH_BYTES + line));
        }
    }
    let mut partial = [[s.splat(0.0); T]; PAIR];
    for j in 0..C::VECTORS {
        let q = [C::vector(s, codes[0], j), C::vector(s, codes[1], j)];
        for t in 0..T {
            let x = s.load(&x[j][t].0);
            for r in 0..PAIR {
                partial[r][t] = s.fma(q[r], x, partial[r][t]);
            }
        }
    }
    for r in 0..PAIR {
        match scales {
            Some((scales, n_group)) => {
                let scale = s.spread_bf16(scales[r], n_group);
                for t in 0..T {
                    totals[r][t] = s.fma(partial[r][t], scale, totals[r][t]);
                }
            }
            None => {
                for t in 0..T {
                    totals[r][t] = s.add(totals[r][t], partial[r][t]);
                }
            }
        }
    }
}
