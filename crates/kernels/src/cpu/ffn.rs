//! Gated feed-forward networks: routed experts and the shared one.
//!
//! `down · (silu(gate · x) ⊙ (up · x))` for many (expert, token) pairs at once. All experts' rows are one list of
//! jobs, so threads stay busy whether one token asks for ten experts or a prompt asks for hundreds.

use std::ops::Range;

use quant::MatrixRef;

use super::isa::Token;
use super::matmul::{JOB_ROWS, TileMax, room, rows_per_job};
use super::pool::Pool;
use super::prepare::{Layout, Prepare, PreparedTile, TILE_MAX, Tile, prepared, tiles};
use super::product::{PAIR, Product};
use super::share::Share;
use super::simd::{Kernel, LANES, Lanes, Simd, load_at, silu, store_at};
use crate::ExpertJob;

/// Rows of gate and up whose products wait in registers' reach for the SiLU.
const HIDDEN_ROWS: usize = 2 * LANES;
/// Scratch of one call, kept from call to call.
#[derive(Default)]
pub(super) struct Scratch {
    /// Prepared inputs, then prepared hidden vectors.
    prepared: Vec<Lanes>,
    /// Inputs prepared for `up` where its layout is not that of `gate`.
    prepared_up: Vec<Lanes>,
    /// `[n_pair, d_ff]`
    hidden: Vec<f32>,
    /// The first (expert, token) pair of each job.
    first_pair: Vec<usize>,
    /// Job and tile of its tokens.
    tiles: Vec<(usize, Tile)>,
    /// Job and first row of the rows computed together.
    rows: Vec<(usize, usize)>,
    rows_out: Vec<u32>,
}

/// `out[row_out] = ffn(x[row_in])` for all rows of all jobs; all experts have one shape.
pub(super) fn experts(
    compute: (Token, &Pool),
    jobs: &[ExpertJob<'_>],
    x: &[f32],
    out: &mut [f32],
    scratch: &mut Scratch,
) {
    let Some(shape) = jobs.first().map(|job| job.gate) else { return };
    let (d_ff, d_model) = (shape.rows, shape.cols);
    for job in jobs {
        let shapes = [job.gate, job.up, job.down].map(|w| (w.rows, w.cols));
        assert_eq!(shapes, [(d_ff, d_model), (d_ff, d_model), (d_model, d_ff)], "shapes of an expert");
    }
    assert_rows_differ(jobs, &mut scratch.rows_out);
    let (isa, pool) = compute;
    let n_pair = list_tiles(jobs, isa.run(TileMax), scratch);
    scratch.hidden.resize(scratch.hidden.len().max(n_pair * d_ff), 0.0);
    let Scratch { prepared, prepared_up, hidden, first_pair, tiles, rows, .. } = scratch;
    let batch = Batch { jobs, first_pair, tiles, n_pair };

    let input = |job: usize, t: usize| {
        let row = jobs[job].rows[t].0 as usize;
        &x[row * d_model..(row + 1) * d_model]
    };
    let gate = batch.prepare(compute, |job| Layout::new(job.gate.format, d_model), input, prepared);
    let one_layout =
        |job: &ExpertJob<'_>| Layout::new(job.gate.format, d_model) == Layout::new(job.up.format, d_model);
    let up = if jobs.iter().all(one_layout) {
        gate
    } else {
        batch.prepare(compute, |job| Layout::new(job.up.format, d_model), input, prepared_up)
    };
    list_rows(jobs.len(), d_ff, HIDDEN_ROWS, rows);
    let shared = Share::new(&mut hidden[..n_pair * d_ff]);
    pool.run(rows.len(), &|i| {
        let (job, first_row) = rows[i];
        let range = first_row..d_ff.min(first_row + HIDDEN_ROWS);
        hidden_rows(isa, &batch, (job, range), (gate, up), &shared);
    });

    let hidden = |job: usize, t: usize| &hidden[(batch.first_pair[job] + t) * d_ff..][..d_ff];
    let hidden = batch.prepare(compute, |job| Layout::new(job.down.format, d_ff), hidden, prepared);
    let n_row = rows_per_job(d_model * jobs.len(), pool.n_thread());
    list_rows(jobs.len(), d_model, n_row, rows);
    let shared = Share::new(out);
    pool.run(rows.len(), &|i| {
        let (job, first_row) = rows[i];
        let range = first_row..d_model.min(first_row + n_row);
        down_rows(isa, &batch, (job, range), hidden, &shared);
    });
}

/// Two pairs that write one row would race.
fn assert_rows_differ(jobs: &[ExpertJob<'_>], rows_out: &mut Vec<u32>) {
    rows_out.clear();
    rows_out.extend(jobs.iter().flat_map(|job| job.rows).map(|&(_, row_out)| row_out));
    rows_out.sort_unstable();
    assert!(rows_out.windows(2).all(|w| w[0] != w[1]), "two results for one output row");
}

/// Fills `tiles` and `first_pair`; the number of pairs.
fn list_tiles(jobs: &[ExpertJob<'_>], max: usize, scratch: &mut Scratch) -> usize {
    scratch.tiles.clear();
    scratch.first_pair.clear();
    let mut n_pair = 0;
    for (j, job) in jobs.iter().enumerate() {
        scratch.first_pair.push(n_pair);
        scratch.tiles.extend(tiles(job.rows.len(), max).map(|tile| (j, tile)));
        n_pair += job.rows.len();
    }
    n_pair
}

fn list_rows(n_job: usize, n_row: usize, step: usize, rows: &mut Vec<(usize, usize)>) {
    rows.clear();
    rows.extend((0..n_job).flat_map(|job| (0..n_row).step_by(step).map(move |row| (job, row))));
}

/// The jobs of one call and how their tokens are cut.
struct Batch<'a> {
    jobs: &'a [ExpertJob<'a>],
    first_pair: &'a [usize],
    tiles: &'a [(usize, Tile)],
    n_pair: usize,
}

/// Vectors of all pairs, laid out for the matrices that read them.
#[derive(Clone, Copy)]
struct Inputs<'a> {
    buffer: &'a [Lanes],
    /// Vectors from one pair to the next: room for the widest layout of the call.
    stride: usize,
}

impl Batch<'_> {
    /// Lays out `row(job, t)` for token `t` of each job.
    fn prepare<'x, 'p>(
        &self,
        (isa, pool): (Token, &Pool),
        layout: impl Fn(&ExpertJob<'_>) -> Layout + Sync,
        row: impl Fn(usize, usize) -> &'x [f32] + Sync,
        buffer: &'p mut Vec<Lanes>,
    ) -> Inputs<'p> {
        let stride = self.jobs.iter().map(|job| layout(job).n_lanes()).max().unwrap_or(0);
        let buffer = room(buffer, self.n_pair * stride);
        let shared = Share::new(buffer);
        pool.run(self.tiles.len(), &|i| {
            let (job, tile) = self.tiles[i];
            let (layout, base) = (layout(&self.jobs[job]), self.first_pair[job] * stride);
            isa.run(Prepare { layout, tile, row: |t| row(job, t), buffer: &shared, base });
        });
        Inputs { buffer, stride }
    }

    /// The inputs of a tile of a job, for the matrix `w`.
    fn tile<'p>(&self, inputs: Inputs<'p>, w: MatrixRef<'_>, job: usize, tile: Tile) -> PreparedTile<'p> {
        prepared(&Layout::new(w.format, w.cols), &inputs.buffer[self.first_pair[job] * inputs.stride..], tile)
    }
}

/// Rows `rows` of `silu(gate · x) ⊙ (up · x)` of one job, into its pairs' rows of `hidden`.
fn hidden_rows(
    isa: Token,
    batch: &Batch<'_>,
    (j, rows): (usize, Range<usize>),
    (gate_inputs, up_inputs): (Inputs<'_>, Inputs<'_>),
    hidden: &Share<'_, f32>,
) {
    let ExpertJob { gate, up, rows: tokens, .. } = batch.jobs[j];
    let mut y = [0.0; 2 * TILE_MAX * HIDDEN_ROWS];
    for tile in tiles(tokens.len(), isa.run(TileMax)) {
        let x = batch.tile(gate_inputs, gate, j, tile);
        let (mut g, mut u) = ([[0.0; HIDDEN_ROWS]; TILE_MAX], [[0.0; HIDDEN_ROWS]; TILE_MAX]);
        if gate.format == up.format {
            Product::both([gate, up], &rows, x, &mut y).run(isa);
            for (t, y) in y.chunks_exact(2 * rows.len()).take(tile.n_token).enumerate() {
                for (i, &[g_i, u_i]) in y.as_chunks::<2>().0.iter().enumerate() {
                    (g[t][i], u[t][i]) = (g_i, u_i);
                }
            }
        } else {
            let n = rows.len().next_multiple_of(PAIR);
            for (w, x, to) in [(gate, x, &mut g), (up, batch.tile(up_inputs, up, j, tile), &mut u)] {
                Product::rows(w, &rows, x, &mut y).run(isa);
                to.iter_mut().zip(y.chunks_exact(n)).for_each(|(to, y)| to[..n].copy_from_slice(y));
            }
        }
        for t in 0..tile.n_token {
            let pair = batch.first_pair[j] + tile.first + t;
            // SAFETY: each job of the step has its own rows of its own pairs.
            let to = unsafe { hidden.part(pair * gate.rows + rows.start, rows.len()) };
            isa.run(SiluMul { gate: &g[t], up: &u[t], to });
        }
    }
}

/// `to = silu(gate) ⊙ up`
struct SiluMul<'a> {
    gate: &'a [f32],
    up: &'a [f32],
    to: &'a mut [f32],
}

impl Kernel for SiluMul<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        for at in (0..self.to.len()).step_by(LANES) {
            let y = s.mul(silu(s, load_at(s, self.gate, at)), load_at(s, self.up, at));
            store_at(s, y, self.to, at);
        }
    }
}

/// Rows `rows` of `down · hidden` of one job, into its tokens' rows of `out`.
fn down_rows(
    isa: Token,
    batch: &Batch<'_>,
    (j, rows): (usize, Range<usize>),
    hidden: Inputs<'_>,
    out: &Share<'_, f32>,
) {
    let ExpertJob { down, rows: tokens, .. } = batch.jobs[j];
    let mut y = [0.0; TILE_MAX * JOB_ROWS.end];
    for tile in tiles(tokens.len(), isa.run(TileMax)) {
        Product::rows(down, &rows, batch.tile(hidden, down, j, tile), &mut y).run(isa);
        let y = y.chunks_exact(rows.len().next_multiple_of(PAIR));
        for (token, y) in tokens[tile.first..tile.first + tile.n_token].iter().zip(y) {
            // SAFETY: each job of the step has its own rows, and no two pairs have one output row.
            let to = unsafe { out.part(token.1 as usize * down.rows + rows.start, rows.len()) };
            to.copy_from_slice(&y[..rows.len()]);
        }
    }
}
