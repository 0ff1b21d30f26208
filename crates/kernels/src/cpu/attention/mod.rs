//! Full attention: norms and rotation into the cache (`prepare.rs`), and the softmax over the cache in one pass.
//!
//! Bits of a token depend on its own position only. The context is cut at absolute multiples of [`SPLIT`] positions;
//! within a split a running maximum goes over blocks in order (`block.rs`), and the splits are merged in order. A few
//! tokens share out the splits over the threads, many tokens themselves; all query heads of a key/value head go
//! together in either case, so that they share what is read.

mod block;
mod kv;
mod prepare;

use std::ops::Range;
use std::sync::{Mutex, PoisonError};

use super::isa::Token;
use super::pool::Pool;
use super::share::Share;
use super::simd::{Kernel, LANES, Simd, load_at, sigmoid, store_at};
use crate::{AttentionShape, KvFormat, Rows};
use block::{
    Block, CHUNK, Convert, Converted, F32Block, HalfBlock, Merge, Q8Block, Row, Softmax, Step, Stored,
    TILE_MAX, Weights, n_converted, with_stored,
};
use kv::{BLOCK, WIDTH};

pub use kv::CpuKv;
pub(super) use prepare::prepare;

/// Positions that one job takes of a long context.
const SPLIT: usize = 1024;
/// Up to so many tokens share out the context over the threads.
const N_TOKEN_FEW: usize = 4;
/// Most splits of a token that are unmerged at a time, over all tokens.
const N_PARTIAL_MAX: usize = 256;
/// Query rows of a job with many tokens: what they need beside a converted block stays in the second-level cache.
const N_QUERY: usize = 128;
/// A block that more steps than this read is converted to f32 before.
const N_STEP_STORED: usize = 2;

/// What the threads work in. It grows when a longer context or a larger batch needs more.
#[derive(Default)]
pub(super) struct Scratch {
    /// One for each thread.
    workers: Mutex<Vec<Worker>>,
    /// `[split][head]` of a few tokens.
    partial: Seen,
    /// `[token][head]` of a few tokens.
    merged: Seen,
}

/// See [`super::Cpu::attention_scratch_bytes`].
pub(super) fn scratch_bytes(shape: AttentionShape, n_ctx: usize) -> usize {
    let row = size_of::<Softmax>() + size_of::<f32>() * shape.head_dim.next_multiple_of(WIDTH);
    // What was merged of a few tokens, and what is not merged yet.
    (N_TOKEN_FEW + n_ctx.div_ceil(SPLIT).min(N_PARTIAL_MAX)) * shape.n_head * row
}

/// What some query heads saw of some positions.
#[derive(Default)]
struct Seen {
    softmax: Vec<Softmax>,
    /// Rows of `head_dim`, rounded up to panels.
    out: Vec<f32>,
}

#[derive(Default)]
struct Worker {
    tools: Tools,
    /// Of one split.
    seen: Seen,
    /// Of all splits before.
    merged: Seen,
}

#[derive(Default)]
struct Tools {
    /// Queries of a job, as [`Step`] reads them.
    q: Vec<f32>,
    /// A converted block.
    rows: Vec<Row>,
    /// Of one block, for each token.
    weights: Vec<Weights>,
}

impl Seen {
    /// Room for `n` heads; never shrinks.
    fn reserve(&mut self, n: usize, n_padded: usize) {
        self.softmax.resize(self.softmax.len().max(n), Softmax::NONE);
        self.out.resize(self.out.len().max(n * n_padded), 0.0);
    }

    fn clear(&mut self) {
        self.softmax.fill(Softmax::NONE);
        self.out.fill(0.0);
    }
}

/// Some query heads of one key/value head.
#[derive(Clone)]
struct Heads {
    head_kv: usize,
    /// Numbers among all query heads.
    range: Range<usize>,
}

/// One call.
struct Attend<'a> {
    isa: Token,
    shape: AttentionShape,
    /// Most heads of a step.
    tile: usize,
    /// `[n_token][n_head][head_dim (·2 if gated)]`
    q: &'a [f32],
    kv: &'a CpuKv,
    pos: Range<usize>,
}

/// See [`crate::Backend::attention`].
pub(super) fn attend(
    (isa, pool): (Token, &Pool),
    shape: AttentionShape,
    q: &[f32],
    kv: &CpuKv,
    rows: Rows,
    scratch: &mut Scratch,
    out: &mut [f32],
) {
    let width = shape.n_head * shape.head_dim;
    let q = &q[rows.floats(width * (1 + shape.gated as usize))];
    let call = Attend { isa, shape, tile: isa.run(TileOf), q, kv, pos: rows.positions() };
    let out = &mut out[rows.floats(width)];
    match call.pos.len() {
        0 => {}
        1..=N_TOKEN_FEW => call.few_tokens(pool, scratch, out),
        _ => call.many_tokens(pool, scratch, out),
    }
}

impl Attend<'_> {
    fn n_group(&self) -> usize {
        self.shape.n_head / self.shape.n_head_kv
    }

    /// Numbers of a head, rounded up to panels.
    fn n_padded(&self) -> usize {
        self.shape.head_dim.next_multiple_of(WIDTH)
    }

    /// Numbers of a query as [`Step`] reads it.
    fn n_packed(&self) -> usize {
        self.shape.head_dim.next_multiple_of(CHUNK)
    }

    /// Each job takes a split of the context. Bits do not depend on how many are merged at a time.
    fn few_tokens(&self, pool: &Pool, scratch: &mut Scratch, out: &mut [f32]) {
        let (n_token, n_head, n_padded) = (self.pos.len(), self.shape.n_head, self.n_padded());
        let n_split = self.pos.end.div_ceil(SPLIT);
        let n_wave = (N_PARTIAL_MAX / n_token).min(n_split);
        // A short context has too few splits for all threads: the heads are shared out as well.
        let is_short =
            n_split * self.shape.n_head_kv < pool.n_thread() && self.n_group().is_multiple_of(self.tile);
        let n_per_job = if is_short { self.tile } else { self.n_group() };
        let n_part = n_head / n_per_job;
        self.reserve_workers(pool, scratch, n_token, n_per_job);
        scratch.partial.reserve(n_wave * n_token * n_head, n_padded);
        scratch.merged.reserve(n_token * n_head, n_padded);
        scratch.merged.clear();
        let Scratch { workers, partial, merged } = scratch;
        let out = Share::new(out);
        for first in (0..n_split).step_by(n_wave) {
            let n = n_wave.min(n_split - first);
            let seen = (Share::new(&mut partial.softmax), Share::new(&mut partial.out));
            pool.run(n * n_part, &|job| {
                let n_row = n_token * n_per_job;
                // SAFETY: each job has its own split and heads.
                let seen = unsafe {
                    (seen.0.part(job * n_row, n_row), seen.1.part(job * n_row * n_padded, n_row * n_padded))
                };
                let start = job % n_part * n_per_job;
                let heads = Heads { head_kv: start / self.n_group(), range: start..start + n_per_job };
                with_worker(workers, |worker| {
                    self.pack(&heads, 0..n_token, &mut worker.tools.q);
                    self.see(&heads, 0..n_token, first + job / n_part, &mut worker.tools, seen);
                });
            });
            let total = (Share::new(&mut merged.softmax), Share::new(&mut merged.out));
            pool.run(n_token * n_head, &|row| {
                let (t, head) = (row / n_head, row % n_head);
                // SAFETY: each job has its own token and head.
                let (softmax, sum, out) = unsafe {
                    let out = out.part(row * self.shape.head_dim, self.shape.head_dim);
                    (&mut total.0.part(row, 1)[0], total.1.part(row * n_padded, n_padded), out)
                };
                for i in (0..n).filter(|i| (first + i) * SPLIT <= self.pos.start + t) {
                    let part = i * n_part + head / n_per_job;
                    let at = (part * n_token + t) * n_per_job + head % n_per_job;
                    let other = (partial.softmax[at], &partial.out[at * n_padded..][..n_padded]);
                    self.isa.run(Merge { softmax, out: sum, other });
                }
                if first + n == n_split {
                    self.finish(t, head, softmax.total, sum, out);
                }
            });
        }
    }

    /// Each job takes some tokens and all they see.
    fn many_tokens(&self, pool: &Pool, scratch: &mut Scratch, out: &mut [f32]) {
        let AttentionShape { n_head, n_head_kv, head_dim, .. } = self.shape;
        let (n_token, n_group, n_padded) = (self.pos.len(), self.n_group(), self.n_padded());
        let n_set_busy = (2 * pool.n_thread()).div_ceil(n_head_kv).min(n_token);
        let n_set = n_token.div_ceil((N_QUERY / n_group).max(1)).max(n_set_busy);
        let n_per_set = n_token.div_ceil(n_set);
        let n_set = n_token.div_ceil(n_per_set);
        self.reserve_workers(pool, scratch, n_per_set, n_group);
        let out = Share::new(out);
        pool.run(n_set * n_head_kv, &|job| {
            // The longest rows of the batch first, so that threads end together.
            let (set, head_kv) = (n_set - 1 - job / n_head_kv, job % n_head_kv);
            let tokens = set * n_per_set..n_token.min((set + 1) * n_per_set);
            let heads = Heads { head_kv, range: head_kv * n_group..(head_kv + 1) * n_group };
            with_worker(&scratch.workers, |worker| {
                let Worker { tools, seen, merged } = worker;
                self.pack(&heads, tokens.clone(), &mut tools.q);
                merged.clear();
                for split in 0..(self.pos.start + tokens.end).div_ceil(SPLIT) {
                    let n_row = tokens.len() * n_group;
                    let parts = (&mut seen.softmax[..n_row], &mut seen.out[..n_row * n_padded]);
                    self.see(&heads, tokens.clone(), split, tools, parts);
                    let first =
                        tokens.start.max((split * SPLIT).saturating_sub(self.pos.start)) - tokens.start;
                    for row in first * n_group..tokens.len() * n_group {
                        let at = row * n_padded..(row + 1) * n_padded;
                        let other = (seen.softmax[row], &seen.out[at.clone()]);
                        let (softmax, out) = (&mut merged.softmax[row], &mut merged.out[at]);
                        self.isa.run(Merge { softmax, out, other });
                    }
                }
                for row in 0..tokens.len() * n_group {
                    let (t, head) = (tokens.start + row / n_group, heads.range.start + row % n_group);
                    // SAFETY: each job has its own tokens and heads.
                    let out = unsafe { out.part((t * n_head + head) * head_dim, head_dim) };
                    let sum = &merged.out[row * n_padded..][..n_padded];
                    self.finish(t, head, merged.softmax[row].total, sum, out);
                }
            });
        });
    }

    /// A worker for each thread, with room for `n_head` queries of each of `n_token` tokens.
    fn reserve_workers(&self, pool: &Pool, scratch: &mut Scratch, n_token: usize, n_head: usize) {
        let n_row = n_token * n_head;
        let workers = scratch.workers.get_mut().unwrap_or_else(PoisonError::into_inner);
        workers.resize_with(workers.len().max(pool.n_thread()), Worker::default);
        for worker in workers {
            let Tools { q, rows, weights } = &mut worker.tools;
            q.resize(q.len().max(n_row * self.n_packed()), 0.0);
            rows.resize(rows.len().max(n_converted(self.kv.layout())), [0.0; WIDTH]);
            weights.resize(weights.len().max(n_token), Weights::NONE);
            worker.seen.reserve(n_row, self.n_padded());
            worker.merged.reserve(n_row, self.n_padded());
        }
    }

    /// Copies queries, scaled by `1 / sqrt(head_dim)`, to where [`Step`] reads them.
    fn pack(&self, heads: &Heads, tokens: Range<usize>, to: &mut [f32]) {
        let AttentionShape { n_head, head_dim, gated, .. } = self.shape;
        let (stride, scale) = (head_dim * (1 + gated as usize), 1.0 / (head_dim as f32).sqrt());
        let mut at = 0;
        for t in tokens {
            for (first, n) in tiles(heads.range.len(), self.tile) {
                let to = &mut to[at..at + n * self.n_packed()];
                at += to.len();
                for h in 0..n {
                    let q = &self.q[(t * n_head + heads.range.start + first + h) * stride..][..head_dim];
                    for (c, q) in q.chunks(CHUNK).enumerate() {
                        for (to, q) in to[(c * n + h) * CHUNK..].iter_mut().zip(q) {
                            *to = q * scale;
                        }
                    }
                }
            }
        }
    }

    /// What the packed queries of `tokens` see of a split: `[token][head]` of `seen`.
    fn see(
        &self,
        heads: &Heads,
        tokens: Range<usize>,
        split: usize,
        tools: &mut Tools,
        (softmax, out): (&mut [Softmax], &mut [f32]),
    ) {
        softmax.fill(Softmax::NONE);
        out.fill(0.0);
        let (layout, n_head) = (self.kv.layout(), heads.range.len());
        for start in (split * SPLIT..(split + 1) * SPLIT).step_by(BLOCK) {
            let first = tokens.start.max(start.saturating_sub(self.pos.start));
            if tokens.end <= first {
                break;
            }
            let stored = Stored { layout, bytes: self.kv.block(heads.head_kv, start) };
            let row = (first - tokens.start) * n_head;
            let steps = Steps {
                n_pos: self.pos.start + first + 1 - start,
                n_token: tokens.end - first,
                n_head,
                q: &tools.q[row * self.n_packed()..],
                softmax: &mut softmax[row..],
                out: &mut out[row * self.n_padded()..],
                weights: &mut tools.weights[..tokens.end - first],
            };
            let n_step = steps.n_token * tiles(n_head, self.tile).count();
            if n_step <= N_STEP_STORED || layout.format == KvFormat::F32 {
                with_stored!(stored, block => self.steps(block, steps));
            } else {
                let n_pos = BLOCK.min(self.pos.start + tokens.end - start);
                let rows = &mut tools.rows[..n_converted(layout)];
                let head_dim = layout.head_dim;
                with_stored!(stored, block => self.isa.run(Convert { block, head_dim, n_pos, rows }));
                self.steps(Converted { head_dim, rows }, steps);
            }
        }
    }

    /// One block for all tokens that see it.
    fn steps(&self, block: impl Block, steps: Steps<'_>) {
        let Steps { n_pos, n_token, n_head, q, softmax, out, weights } = steps;
        let (n_packed, n_padded, head_dim) = (self.n_packed(), self.n_padded(), self.shape.head_dim);
        let n_row = n_token * n_head;
        let (q, softmax, out) = (&q[..n_row * n_packed], &mut softmax[..n_row], &mut out[..n_row * n_padded]);
        for (first, n) in tiles(n_head, self.tile) {
            let q = &q[first * n_packed..];
            let (softmax, out) = (&mut softmax[first..], &mut out[first * n_padded..]);
            let weights = &mut *weights;
            macro_rules! step {
                ($n:literal) => {
                    self.isa.run(Step::<_, $n> { block, head_dim, n_pos, n_head, q, softmax, out, weights })
                };
            }
            match n {
                8 => step!(8),
                4 => step!(4),
                2 => step!(2),
                _ => step!(1),
            }
        }
    }

    /// Divides by the total and applies the gate.
    fn finish(&self, t: usize, head: usize, total: f32, sum: &[f32], out: &mut [f32]) {
        let AttentionShape { n_head, head_dim, gated, .. } = self.shape;
        let row = (t * n_head + head) * head_dim * (1 + gated as usize);
        let gate = if gated { &self.q[row + head_dim..row + 2 * head_dim] } else { &[] };
        self.isa.run(Finish { total, sum: &sum[..head_dim], gate, out });
    }
}

/// Queries that see a block, from the first token that does.
struct Steps<'a> {
    /// Positions of the block that the first token sees.
    n_pos: usize,
    n_token: usize,
    /// Heads of each.
    n_head: usize,
    q: &'a [f32],
    softmax: &'a mut [Softmax],
    out: &'a mut [f32],
    /// One for each token.
    weights: &'a mut [Weights],
}

/// Cuts `n` heads into steps of 8, 4, 2 and 1, at most `max`: the first head of each and their number.
fn tiles(n: usize, max: usize) -> impl Iterator<Item = (usize, usize)> {
    let mut first = 0;
    std::iter::from_fn(move || {
        let size = [8, 4, 2, 1].into_iter().find(|&size| size <= max.min(n - first))?;
        first += size;
        Some((first - size, size))
    })
}

/// Lends a worker that no other job has.
fn with_worker(workers: &Mutex<Vec<Worker>>, job: impl FnOnce(&mut Worker)) {
    let lock = || workers.lock().unwrap_or_else(PoisonError::into_inner);
    let mut worker = lock().pop().expect("a worker for each thread");
    job(&mut worker);
    lock().push(worker);
}

/// Most heads of a step.
struct TileOf;

impl Kernel for TileOf {
    type Output = usize;

    #[inline(always)]
    fn run<S: Simd>(self, _s: S) -> usize {
        S::TILE.min(TILE_MAX)
    }
}

struct Finish<'a> {
    total: f32,
    /// `[head_dim]`
    sum: &'a [f32],
    /// `[head_dim]`, or nothing.
    gate: &'a [f32],
    out: &'a mut [f32],
}

impl Kernel for Finish<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let scale = s.splat(1.0 / self.total);
        for at in (0..self.out.len()).step_by(LANES) {
            let mut y = s.mul(load_at(s, self.sum, at), scale);
            if !self.gate.is_empty() {
                y = s.mul(y, sigmoid(s, load_at(s, self.gate, at)));
            }
            store_at(s, y, self.out, at);
        }
    }
}
