//! `out[t] = w · x[t]`: one matrix, any number of tokens.

use std::ops::Range;

use quant::MatrixRef;

use super::isa::Token;
use super::pool::Pool;
use super::prepare::{Layout, Prepare, TILE_MAX, Tile, prepared, tiles};
use super::product::{PAIR, Product};
use super::share::Share;
use super::simd::{Kernel, Lanes, Simd};

/// Rows of one job: enough that taking a job costs nothing, few enough that threads end together.
pub(super) const JOB_ROWS: Range<usize> = 8..64;

/// Makes room for `n` vectors in a scratch buffer that only grows.
pub(super) fn room(buffer: &mut Vec<Lanes>, n: usize) -> &mut [Lanes] {
    if buffer.len() < n {
        buffer.resize(n, Lanes::default());
    }
    &mut buffer[..n]
}

/// Rows that one job takes of `rows`, for `n_thread` threads.
pub(super) fn rows_per_job(rows: usize, n_thread: usize) -> usize {
    (rows / (8 * n_thread)).next_multiple_of(2).clamp(JOB_ROWS.start, JOB_ROWS.end)
}

/// `x` is `[n_token, cols]`, `out` `[n_token, rows]`, `scratch` any buffer.
pub(super) fn matmul(
    (isa, pool): (Token, &Pool),
    w: MatrixRef<'_>,
    x: &[f32],
    n_token: usize,
    out: &mut [f32],
    scratch: &mut Vec<Lanes>,
) {
    let layout = Layout::new(w.format, w.cols);
    let max = isa.run(TileMax);
    let buffer = room(scratch, n_token * layout.n_lanes());
    let shared = Share::new(buffer);
    pool.run(n_token.div_ceil(max), &|job| {
        let n_token = max.min(n_token - job * max);
        for tile in tiles(n_token, max) {
            let tile = Tile { first: job * max + tile.first, ..tile };
            let row = |t: usize| &x[t * w.cols..(t + 1) * w.cols];
            isa.run(Prepare { layout, tile, row, buffer: &shared, base: 0 });
        }
    });
    let (buffer, out) = (&*buffer, &Share::new(&mut out[..n_token * w.rows]));
    let n_row = rows_per_job(w.rows, pool.n_thread());
    pool.run(w.rows.div_ceil(n_row), &|job| {
        let rows = job * n_row..w.rows.min((job + 1) * n_row);
        let mut y = [0.0; TILE_MAX * JOB_ROWS.end];
        for tile in tiles(n_token, max) {
            Product::rows(w, &rows, prepared(&layout, buffer, tile), &mut y).run(isa);
            for (t, y) in
                (tile.first..).zip(y.chunks_exact(rows.len().next_multiple_of(PAIR))).take(tile.n_token)
            {
                // SAFETY: each job has its own rows.
                unsafe { out.part(t * w.rows + rows.start, rows.len()) }.copy_from_slice(&y[..rows.len()]);
            }
        }
    });
}

/// The largest tile of the instruction set.
pub(super) struct TileMax;

impl Kernel for TileMax {
    type Output = usize;

    #[inline(always)]
    fn run<S: Simd>(self, _: S) -> usize {
        S::TILE
    }
}
