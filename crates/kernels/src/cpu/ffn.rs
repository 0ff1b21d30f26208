//! Gated feed-forward networks: routed experts and the shared one.
//!
//! `down · (silu(gate · x) ⊙ (up · x))` for many (expert, token) pairs at once. All experts' rows are one list of
//! jobs, so threads stay busy whether one token asks for ten experts or a prompt asks for hundreds.

use std::ops::Range;

use quant::MatrixRef;

use super::isa::Token;
use super::matmul::{TileMax, room, rows_per_job};
use super::pool::Pool;
use super::prepare::{Layout, Prepare, PreparedTile, Tile, prepared, tiles};
use super::product;
use super::share::Share;
use super::simd::{Kernel, LANES, Lanes, Simd, load_at, silu, store_at};
use crate::ExpertJob;

/// Rows of gate and up whose products wait in registers' reach for the SiLU.
const HIDDEN_ROWS: usize = 2 * LANES;
/// The largest tile of any instruction set.
const TILE_MAX: usize = 8;

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
        isa.run(Hidden { batch: &batch, job, first_row, gate, up, hidden: &shared });
    });

    let hidden = |job: usize, t: usize| &hidden[(batch.first_pair[job] + t) * d_ff..][..d_ff];
    let hidden = batch.prepare(compute, |job| Layout::new(job.down.format, d_ff), hidden, prepared);
    let n_row = rows_per_job(d_model * jobs.len(), pool.n_thread());
    list_rows(jobs.len(), d_model, n_row, rows);
    let shared = Share::new(out);
    pool.run(rows.len(), &|i| {
        let (job, first_row) = rows[i];
        let range = first_row..d_model.min(first_row + n_row);
        isa.run(Down { batch: &batch, job, range, hidden, out: &shared });
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

/// Some rows of `silu(gate · x) ⊙ (up · x)` of one job.
struct Hidden<'a, 'b> {
    batch: &'a Batch<'a>,
    job: usize,
    first_row: usize,
    gate: Inputs<'a>,
    up: Inputs<'a>,
    /// `[n_pair, d_ff]`
    hidden: &'a Share<'b, f32>,
}

impl Kernel for Hidden<'_, '_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let Self { batch, first_row, .. } = self;
        let ExpertJob { gate, up, rows, .. } = batch.jobs[self.job];
        let n_row = HIDDEN_ROWS.min(gate.rows - first_row);
        for tile in tiles(rows.len(), S::TILE) {
            let (x_gate, x_up) =
                (batch.tile(self.gate, gate, self.job, tile), batch.tile(self.up, up, self.job, tile));
            let mut y = [[[0.0; HIDDEN_ROWS]; TILE_MAX]; 2];
            if gate.format == up.format {
                product::pairs(
                    s,
                    [gate, up],
                    n_row,
                    |i| [first_row + i; 2],
                    x_gate,
                    |i, t, [g, u]| {
                        (y[0][t][i], y[1][t][i]) = (g, u);
                    },
                );
            } else {
                let range = first_row..first_row + n_row;
                product::rows(s, gate, range.clone(), x_gate, |row, t, g| y[0][t][row - first_row] = g);
                product::rows(s, up, range, x_up, |row, t, u| y[1][t][row - first_row] = u);
            }
            for t in 0..tile.n_token {
                let pair = batch.first_pair[self.job] + tile.first + t;
                // SAFETY: each job of the step has its own rows of its own pairs.
                let to = unsafe { self.hidden.part(pair * gate.rows + first_row, n_row) };
                for at in (0..n_row).step_by(LANES) {
                    let (g, u) = (load_at(s, &y[0][t], at), load_at(s, &y[1][t], at));
                    store_at(s, s.mul(silu(s, g), u), to, at);
                }
            }
        }
    }
}

/// Some rows of `down · hidden` of one job.
struct Down<'a, 'b> {
    batch: &'a Batch<'a>,
    job: usize,
    range: Range<usize>,
    hidden: Inputs<'a>,
    /// `[_, d_model]`
    out: &'a Share<'b, f32>,
}

impl Kernel for Down<'_, '_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let ExpertJob { down, rows, .. } = self.batch.jobs[self.job];
        for tile in tiles(rows.len(), S::TILE) {
            let x = self.batch.tile(self.hidden, down, self.job, tile);
            product::rows(s, down, self.range.clone(), x, |row, t, y| {
                let row_out = rows[tile.first + t].1 as usize;
                // SAFETY: each job of the step has its own rows, and no two pairs have one output row.
                unsafe { self.out.set(row_out * down.rows + row, y) };
            });
        }
    }
}
