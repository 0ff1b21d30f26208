//! Gated feed-forward networks: routed experts and the shared one.
//!
//! `down · (silu(gate · x) ⊙ (up · x))` for many (expert, token) pairs at once. All experts' rows are one list of
//! jobs, so threads stay busy whether one token asks for ten experts or a prompt asks for hundreds.

use quant::MatrixRef;

use super::isa::Token;
use super::matmul::room;
use super::pool::Pool;
use super::product::{BLOCK_ROWS, Blocks, Inputs, Layout, PAIR_ROWS, Span, TOKENS_MAX, tiles};
use super::share::Share;
use super::simd::{Kernel, LANES, Lanes, Simd, load_at, silu, store_at};
use crate::ExpertJob;

/// Scratch of one call, kept from call to call.
#[derive(Default)]
pub(super) struct Scratch {
    /// Prepared inputs, then prepared hidden vectors.
    prepared: Vec<Lanes<i32>>,
    /// Inputs prepared for `up` where its layout is not that of `gate`.
    prepared_up: Vec<Lanes<i32>>,
    /// `[n_pair, d_ff]`, `d_ff` the largest of any expert.
    hidden: Vec<f32>,
    /// The first (expert, token) pair of each job.
    first_pair: Vec<usize>,
    /// Job and tile of its tokens.
    tiles: Vec<(usize, Span)>,
    /// Job and first row of the rows computed together.
    rows: Vec<(usize, usize)>,
    rows_out: Vec<u32>,
}

/// Routed experts and the shared one.
#[derive(Clone, Copy)]
pub(super) struct Jobs<'a> {
    pub(super) jobs: &'a [ExpertJob<'a>],
    pub(super) shared: Option<ExpertJob<'a>>,
}

impl<'a> Jobs<'a> {
    /// The shared one is the last.
    fn get(&self, j: usize) -> &ExpertJob<'a> {
        self.jobs.get(j).or(self.shared.as_ref()).expect("a job of this call")
    }

    fn iter(&self) -> impl Iterator<Item = &ExpertJob<'a>> {
        self.jobs.iter().chain(&self.shared)
    }
}

/// `out[row_out] = ffn(x[row_in])` for all rows of all jobs. `planes` as in `fixed.rs`.
pub(super) fn experts(
    compute: (Token, &Pool),
    jobs: Jobs<'_>,
    x: &[f32],
    planes: usize,
    out: &mut [f32],
    scratch: &mut Scratch,
) {
    let Some(d_model) = jobs.iter().next().map(|job| job.gate.cols) else { return };
    for job in jobs.iter() {
        let (shapes, d_ff) = ([job.gate, job.up, job.down].map(|w| (w.rows, w.cols)), job.gate.rows);
        assert_eq!(shapes, [(d_ff, d_model), (d_ff, d_model), (d_model, d_ff)], "shapes of an expert");
    }
    assert_rows_differ(jobs, &mut scratch.rows_out);
    let (isa, pool) = compute;
    let n_pair = list_pairs(jobs, &mut scratch.first_pair);
    let d_ff = jobs.iter().map(|job| job.gate.rows).max().unwrap_or(0);
    scratch.hidden.resize(scratch.hidden.len().max(n_pair * d_ff), 0.0);
    let Scratch { prepared, prepared_up, hidden, first_pair, tiles, rows, .. } = scratch;
    let batch = Batch { jobs, first_pair, n_pair, d_ff, planes };

    let input = |j: usize, t: usize| {
        let row = jobs.get(j).rows[t].0 as usize;
        &x[row * d_model..(row + 1) * d_model]
    };
    let gate =
        batch.prepare(compute, |job| job.gate, input, batch.is_one_input(|job| job.gate), prepared, tiles);
    let one_layout = |job: &ExpertJob<'_>| batch.layout(job.gate) == batch.layout(job.up);
    let up = if jobs.iter().all(one_layout) {
        gate
    } else {
        batch.prepare(compute, |job| job.up, input, batch.is_one_input(|job| job.up), prepared_up, tiles)
    };
    batch.list_rows(|job| job.gate, BLOCK_ROWS, rows);
    let shared = Share::new(&mut hidden[..n_pair * d_ff]);
    pool.run(rows.len(), &|i| {
        let next = rows.get(i + 1).map(|&next| batch.hidden_blocks(next));
        hidden_rows(isa, &batch, rows[i], (gate, up), next, &shared);
    });

    let hidden = |j: usize, t: usize| &hidden[batch.hidden_at(j, t)..][..jobs.get(j).gate.rows];
    let hidden = batch.prepare(compute, |job| job.down, hidden, false, prepared, tiles);
    batch.list_rows(|job| job.down, PAIR_ROWS, rows);
    let shared = Share::new(out);
    pool.run(rows.len(), &|i| {
        let next = rows.get(i + 1).map(|&next| batch.down_blocks(next));
        down_rows(isa, &batch, rows[i], hidden, next, &shared);
    });
}

/// Two pairs that write one row would race.
fn assert_rows_differ(jobs: Jobs<'_>, rows_out: &mut Vec<u32>) {
    rows_out.clear();
    rows_out.extend(jobs.iter().flat_map(|job| job.rows).map(|&(_, row_out)| row_out));
    rows_out.sort_unstable();
    assert!(rows_out.windows(2).all(|w| w[0] != w[1]), "two results for one output row");
}

/// Fills `first_pair`; the number of pairs.
fn list_pairs(jobs: Jobs<'_>, first_pair: &mut Vec<usize>) -> usize {
    first_pair.clear();
    let mut n_pair = 0;
    for job in jobs.iter() {
        first_pair.push(n_pair);
        n_pair += job.rows.len();
    }
    n_pair
}

/// One call.
struct Batch<'a> {
    jobs: Jobs<'a>,
    first_pair: &'a [usize],
    n_pair: usize,
    /// Numbers of a row of hidden ones.
    d_ff: usize,
    planes: usize,
}

/// Vectors of all pairs, laid out for the matrices that read them.
#[derive(Clone, Copy)]
struct Prepared<'a> {
    lanes: &'a [Lanes<i32>],
    /// Vectors from one pair to the next: room for the widest layout of the call, or 0 if all are one.
    stride: usize,
}

impl<'a> Batch<'a> {
    /// 16 rows of gate and up of a job, or 32 of gate where up has another format.
    fn hidden_blocks(&self, (j, row): (usize, usize)) -> Blocks<'a> {
        let ExpertJob { gate, up, .. } = *self.jobs.get(j);
        if gate.format == up.format { Blocks::both([gate, up], row) } else { Blocks::neighbours(gate, row) }
    }

    /// 32 rows of down of a job.
    fn down_blocks(&self, (j, row): (usize, usize)) -> Blocks<'a> {
        Blocks::neighbours(self.jobs.get(j).down, row)
    }

    fn layout(&self, w: MatrixRef<'_>) -> Layout {
        Layout::new(w.format, w.cols, self.planes)
    }

    /// Whether all jobs apply their matrix `w` to one row, in one layout.
    fn is_one_input(&self, w: impl for<'j> Fn(&ExpertJob<'j>) -> MatrixRef<'j>) -> bool {
        let mut inputs = self
            .jobs
            .iter()
            .map(|job| (job.rows.len(), job.rows.first().map(|row| row.0), self.layout(w(job))));
        let first = inputs.next();
        first.is_some_and(|first| first.0 == 1 && inputs.all(|input| input == first))
    }

    /// Where the hidden numbers of token `t` of job `j` are.
    fn hidden_at(&self, j: usize, t: usize) -> usize {
        (self.first_pair[j] + t) * self.d_ff
    }

    /// Fills `rows` with all rows of one matrix of each job, `step` at a time.
    fn list_rows(
        &self,
        w: impl for<'j> Fn(&ExpertJob<'j>) -> MatrixRef<'j>,
        step: usize,
        rows: &mut Vec<(usize, usize)>,
    ) {
        rows.clear();
        for (j, job) in self.jobs.iter().enumerate() {
            rows.extend((0..w(job).rows).step_by(step).map(|row| (j, row)));
        }
    }

    /// Lays out `row(job, t)` for token `t` of each job, for the matrix `w` of it. `is_one`: that is the same for all.
    fn prepare<'x, 'p>(
        &self,
        (isa, pool): (Token, &Pool),
        w: impl for<'j> Fn(&ExpertJob<'j>) -> MatrixRef<'j> + Sync,
        row: impl Fn(usize, usize) -> &'x [f32] + Sync,
        is_one: bool,
        lanes: &'p mut Vec<Lanes<i32>>,
        list: &mut Vec<(usize, Span)>,
    ) -> Prepared<'p> {
        list.clear();
        // All experts of one token see one input; hidden rows differ.
        let n_job = if is_one { 1 } else { usize::MAX };
        for (j, job) in self.jobs.iter().enumerate().take(n_job) {
            let max = self.layout(w(job)).tile_max(isa);
            list.extend(tiles(job.rows.len(), max).map(|tile| (j, tile)));
        }
        let widest = self.jobs.iter().map(|job| self.layout(w(job)).n_lanes()).max().unwrap_or(0);
        let stride = if is_one { 0 } else { widest };
        let lanes = room(lanes, self.n_pair * widest);
        let shared = Share::new(lanes);
        pool.run(list.len(), &|i| {
            let (j, Span { first, n_token }) = list[i];
            let layout = self.layout(w(self.jobs.get(j)));
            let at = self.first_pair[j] * stride + first * layout.n_lanes();
            // SAFETY: tiles of one step do not overlap.
            let to = unsafe { shared.part(at, n_token * layout.n_lanes()) };
            layout.prepare(isa, n_token, |t| row(j, first + t), to);
        });
        Prepared { lanes, stride }
    }

    /// The inputs of job `j` for its matrix `w`.
    fn inputs<'p>(&self, prepared: Prepared<'p>, j: usize, w: MatrixRef<'_>) -> Inputs<'p> {
        let lanes = &prepared.lanes[self.first_pair[j] * prepared.stride..];
        Inputs { layout: self.layout(w), n_token: self.jobs.get(j).rows.len(), lanes }
    }
}

/// The tokens of a job, in cuts that [`Blocks::multiply`] takes.
fn cuts(n_token: usize) -> impl Iterator<Item = Span> {
    let cut = move |first| Span { first, n_token: TOKENS_MAX.min(n_token - first) };
    (0..n_token).step_by(TOKENS_MAX).map(cut)
}

/// 16 rows of `silu(gate · x) ⊙ (up · x)` of one job, from `row` on, into its pairs' rows of `hidden`.
fn hidden_rows(
    isa: Token,
    batch: &Batch<'_>,
    (j, row): (usize, usize),
    (gate_inputs, up_inputs): (Prepared<'_>, Prepared<'_>),
    next: Option<Blocks<'_>>,
    hidden: &Share<'_, f32>,
) {
    let ExpertJob { gate, up, rows: tokens, .. } = *batch.jobs.get(j);
    let n_row = BLOCK_ROWS.min(gate.rows - row);
    let finish = |t: usize, sums: &[Lanes; 2]| {
        // SAFETY: each job of the step has its own rows of its own pairs.
        let to = unsafe { hidden.part(batch.hidden_at(j, t) + row, n_row) };
        isa.run(SiluMul { gate: &sums[0].0, up: &sums[1].0, to });
    };
    for cut in cuts(tokens.len()) {
        let x = batch.inputs(gate_inputs, j, gate);
        if gate.format == up.format {
            batch.hidden_blocks((j, row)).multiply(isa, x, cut, next, finish);
            continue;
        }
        // Rare: each matrix apart.
        let mut gates = [Lanes::default(); TOKENS_MAX];
        Blocks::neighbours(gate, row).multiply(isa, x, cut, next, |t, sums| gates[t - cut.first] = sums[0]);
        let x = batch.inputs(up_inputs, j, up);
        Blocks::neighbours(up, row).multiply(isa, x, cut, None, |t, sums| {
            finish(t, &[gates[t - cut.first], sums[0]]);
        });
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

/// 32 rows of `down · hidden` of one job, from `row` on, into its tokens' rows of `out`.
fn down_rows(
    isa: Token,
    batch: &Batch<'_>,
    (j, row): (usize, usize),
    hidden: Prepared<'_>,
    next: Option<Blocks<'_>>,
    out: &Share<'_, f32>,
) {
    let ExpertJob { down, rows: tokens, .. } = *batch.jobs.get(j);
    let n_row = PAIR_ROWS.min(down.rows - row);
    for cut in cuts(tokens.len()) {
        batch.down_blocks((j, row)).multiply(isa, batch.inputs(hidden, j, down), cut, next, |t, sums| {
            // SAFETY: each job of the step has its own rows, and no two pairs have one output row.
            let to = unsafe { out.part(tokens[t].1 as usize * down.rows + row, n_row) };
            for (to, sums) in to.chunks_mut(BLOCK_ROWS).zip(sums) {
                to.copy_from_slice(&sums.0[..to.len()]);
            }
        });
    }
}
