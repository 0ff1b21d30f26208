//! A gated delta-net between its projections (spec 2.5): one key head and its value heads a job, tokens in order.
//!
//! `step.rs` is the recurrence of one token, `chunk.rs` the matrix form of several tokens, `tile.rs` its products.
//! What a job needs of a chunk stays in the first two levels of cache: the convolution is computed where it is used,
//! and the state, the largest part, is read and written once a piece.

mod chunk;
mod step;
mod tile;

use std::cell::RefCell;
use std::ops::Range;

use self::chunk::{Chunk, Keys, PANEL};
use self::step::{Step, load_row, store_row};
use super::isa::Token;
use super::pointwise::rms_scale;
use super::pool::Pool;
use super::share::Share;
use super::simd::{Kernel, LANES, Lanes, Simd, dot, exp, load_at, sigmoid, silu, store_at};
use crate::{DELTA_CHUNK, DeltaInputs, DeltaShape, DeltaWeights, Rows};

/// Under the root of the l2 norms (spec 2.5 step 4).
const L2_EPS: f32 = 1e-6;
/// Vectors of channels that are convolved together: as many chains hide the latency of the SiLU.
const CHANNELS: usize = 4;

thread_local! {
    /// What [`Buffers`] divides.
    static SCRATCH: RefCell<Vec<Lanes>> = const { RefCell::new(Vec::new()) };
}

/// See [`crate::Backend::delta_net`].
pub(super) fn delta_net(
    (isa, pool): (Token, &Pool),
    shape: DeltaShape,
    weights: &DeltaWeights<'_, Vec<f32>>,
    inputs: &DeltaInputs<'_, Vec<f32>>,
    (conv, state): (&mut [f32], &mut [f32]),
    rows: Rows,
    out: &mut [f32],
) {
    let pos = rows.positions();
    if pos.is_empty() {
        return;
    }
    let (wide, gates) = (rows.floats(shape.d_v()), rows.floats(shape.n_head_v));
    let out = Share::new(&mut out[wide.clone()]);
    let qkv = &inputs.qkv[rows.floats(shape.n_channel())];
    let inputs = DeltaInputs { qkv, b: &inputs.b[gates.clone()], a: &inputs.a[gates], z: &inputs.z[wide] };
    let conv = Share::new(&mut conv[..(shape.n_conv - 1) * shape.n_channel()]);
    let state = Share::new(&mut state[..shape.state_len()]);
    let call = Call { shape, weights, inputs, pos, conv, state, out };
    let n_value = shape.n_head_v / shape.n_head_k;
    // More threads than key heads: several jobs compute the same keys, each for some of the value heads.
    let n_part = pool.n_thread().div_ceil(shape.n_head_k).min(n_value);
    pool.run(shape.n_head_k * n_part, &|job| {
        let (key, part) = (job / n_part, job % n_part);
        let heads = key * n_value + part * n_value / n_part..key * n_value + (part + 1) * n_value / n_part;
        // Jobs are taken in order, so this is what this thread will probably do next.
        let next = (job + pool.n_thread()) / n_part * n_value;
        SCRATCH.with_borrow_mut(|scratch| {
            isa.run(Job { call: &call, key, heads, next, scratch });
        });
        if n_part == 1 {
            call.shift(key);
        }
    });
    if n_part > 1 {
        pool.run(shape.n_head_k, &|key| call.shift(key));
    }
}

/// What all jobs read, and what each writes parts of.
struct Call<'a> {
    shape: DeltaShape,
    weights: &'a DeltaWeights<'a, Vec<f32>>,
    inputs: DeltaInputs<'a, [f32]>,
    pos: Range<usize>,
    /// `[n_conv - 1, n_channel]`
    conv: Share<'a, f32>,
    /// `[n_head_v, head_dim_k, head_dim_v]`
    state: Share<'a, f32>,
    /// `[n_token, n_head_v, head_dim_v]`, heads in the order of the output
    out: Share<'a, f32>,
}

impl Call<'_> {
    /// Channels of q of a key head.
    fn q(&self, key: usize) -> Range<usize> {
        let dk = self.shape.head_dim_k;
        key * dk..(key + 1) * dk
    }

    /// Channels of k of a key head.
    fn k(&self, key: usize) -> Range<usize> {
        self.q(self.shape.n_head_k + key)
    }

    /// Channels of v of some value heads.
    fn v(&self, heads: Range<usize>) -> Range<usize> {
        let DeltaShape { n_head_k, head_dim_k, head_dim_v: dv, .. } = self.shape;
        let first = 2 * n_head_k * head_dim_k;
        first + heads.start * dv..first + heads.end * dv
    }

    /// Some channels of row `r` of what the taps see: the rows of the convolution's state, then the tokens.
    #[inline(always)]
    fn seen(&self, r: usize, channels: &Range<usize>) -> &[f32] {
        let n_channel = self.shape.n_channel();
        match r.checked_sub(self.shape.n_conv - 1) {
            // SAFETY: only `shift` writes, after all reads of these channels.
            None => unsafe { self.conv.read(r * n_channel + channels.start, channels.len()) },
            Some(t) => &self.inputs.qkv[t * n_channel..][channels.clone()],
        }
    }

    /// Makes the convolution's state of a key head's channels that behind the last token.
    fn shift(&self, key: usize) {
        let DeltaShape { n_head_k, n_head_v, n_conv, .. } = self.shape;
        let n_value = n_head_v / n_head_k;
        for channels in [self.q(key), self.k(key), self.v(key * n_value..(key + 1) * n_value)] {
            for r in 0..n_conv - 1 {
                // SAFETY: each job has its own channels; the row that is read lies behind the one that is written.
                let to =
                    unsafe { self.conv.part(r * self.shape.n_channel() + channels.start, channels.len()) };
                to.copy_from_slice(self.seen(r + self.pos.len(), &channels));
            }
        }
    }

    /// The convolution with SiLU of token `t`; `out` is filled up with zeros.
    #[inline(always)]
    fn conv_silu<S: Simd>(&self, s: S, t: usize, channels: &Range<usize>, out: &mut [f32]) {
        for at in (0..channels.len()).step_by(CHANNELS * LANES) {
            if at + CHANNELS * LANES <= channels.len() {
                self.convolve::<S, true>(s, t, channels, at, out);
            } else {
                self.convolve::<S, false>(s, t, channels, at, out);
            }
        }
    }

    /// Some vectors of channels, `at` and behind, `WHOLE` if there are as many.
    #[inline(always)]
    fn convolve<S: Simd, const WHOLE: bool>(
        &self,
        s: S,
        t: usize,
        channels: &Range<usize>,
        at: usize,
        out: &mut [f32],
    ) {
        let n_channel = self.shape.n_channel();
        let mut sums = [s.splat(0.0); CHANNELS];
        for j in 0..self.shape.n_conv {
            let tap = &self.weights.conv[j * n_channel..][channels.clone()];
            let tap = load_row::<S, CHANNELS, WHOLE>(s, tap, at);
            let row = load_row::<S, CHANNELS, WHOLE>(s, self.seen(t + j, channels), at);
            for c in 0..CHANNELS {
                sums[c] = s.fma(tap[c], row[c], sums[c]);
            }
        }
        for sum in &mut sums {
            *sum = silu(s, *sum);
        }
        store_row::<S, CHANNELS, WHOLE>(s, sums, out, at);
    }

    /// Asks for what the convolution of one token of a key head and its value heads reads.
    #[inline(always)]
    fn ask<S: Simd>(&self, s: S, key: usize) {
        let n_channel = self.shape.n_channel();
        let n_value = self.shape.n_head_v / self.shape.n_head_k;
        for channels in [self.q(key), self.k(key), self.v(key * n_value..(key + 1) * n_value)] {
            for at in channels.step_by(LANES) {
                for j in 0..self.shape.n_conv {
                    s.prefetch(self.weights.conv.as_ptr().wrapping_add(j * n_channel + at).cast());
                    s.prefetch(self.conv.address(j * n_channel + at).cast());
                }
            }
        }
    }

    /// Learning rates and log-decays (step 6) of up to [`DELTA_CHUNK`] values of `b` and `a` that lie `stride` apart
    /// from `first` on, each for the value head of its place in the row.
    #[inline(always)]
    fn gates<S: Simd>(&self, s: S, first: usize, stride: usize, n: usize) -> Gates {
        let mut gates = Gates { beta: [0.0; DELTA_CHUNK], log_decay: [0.0; DELTA_CHUNK] };
        let mut decay = [0.0; DELTA_CHUNK];
        for i in 0..n {
            let at = first + i * stride;
            let head = at % self.shape.n_head_v;
            gates.beta[i] = self.inputs.b[at];
            gates.log_decay[i] = self.inputs.a[at] + self.weights.dt_bias[head];
            decay[i] = -self.weights.decay[head];
        }
        for at in (0..n).step_by(LANES) {
            let beta = sigmoid(s, load_at(s, &gates.beta, at));
            store_at(s, beta, &mut gates.beta, at);
            let softplus = softplus(s, load_at(s, &gates.log_decay, at));
            store_at(s, s.mul(load_at(s, &decay, at), softplus), &mut gates.log_decay, at);
        }
        gates
    }

    /// The gated norm of one head of token `t` (step 8).
    #[inline(always)]
    fn gated_norm<S: Simd>(&self, s: S, x: &[f32], t: usize, head: usize) {
        let dv = self.shape.head_dim_v;
        let (x, row) = (&x[..dv], t * self.shape.n_head_v + head);
        // SAFETY: each job has its own heads (their order is a permutation), and keeps no two parts of one token.
        let out = unsafe { self.out.part(self.shape.out_row(row) * dv, dv) };
        let (z, weight) = (&self.inputs.z[row * dv..][..dv], &self.weights.norm[..dv]);
        let scale = s.splat(rms_scale(s, x, self.weights.eps));
        for at in (0..dv).step_by(LANES) {
            let y = s.mul(s.mul(load_at(s, x, at), scale), load_at(s, weight, at));
            store_at(s, s.mul(y, silu(s, load_at(s, z, at))), out, at);
        }
    }
}

/// Tokens of one chunk: the first one's number in the call, and how many.
#[derive(Clone, Copy)]
struct Piece {
    first: usize,
    n: usize,
}

/// How tokens change a state.
struct Gates {
    /// How much of the error is learnt, in 0..=1.
    beta: [f32; DELTA_CHUNK],
    /// Logarithm of the decay, at most 0.
    log_decay: [f32; DELTA_CHUNK],
}

/// All tokens of a call for one key head and some of its value heads.
struct Job<'a, 'b> {
    call: &'a Call<'b>,
    key: usize,
    heads: Range<usize>,
    /// The value head that will be wanted after these, if there is one.
    next: usize,
    scratch: &'a mut Vec<Lanes>,
}

impl Kernel for Job<'_, '_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(mut self, s: S) {
        let pos = self.call.pos.clone();
        let mut start = pos.start;
        while start < pos.end {
            let end = pos.end.min((start / DELTA_CHUNK + 1) * DELTA_CHUNK);
            let piece = Piece { first: start - pos.start, n: end - start };
            if piece.n == 1 {
                self.step(s, piece);
            } else {
                self.chunk(s, piece);
            }
            start = end;
        }
    }
}

impl Job<'_, '_> {
    /// The value heads that read our key head lie side by side.
    fn value_heads(&self) -> impl Iterator<Item = usize> + use<> {
        self.heads.clone()
    }

    /// One token.
    #[inline(always)]
    fn step<S: Simd>(&mut self, s: S, piece: Piece) {
        let (call, t) = (self.call, piece.first);
        let DeltaShape { n_head_v, head_dim_k, head_dim_v: dv, .. } = call.shape;
        let state_len = head_dim_k * dv;
        let mut buffers = Buffers::new(self.scratch, call.shape, 1, self.heads.len().min(DELTA_CHUNK));
        Self::queries_and_keys(s, call, self.key, piece, &mut buffers);
        if self.next < n_head_v {
            call.ask(s, self.next * call.shape.n_head_k / n_head_v);
        }
        for first in self.heads.clone().step_by(DELTA_CHUNK) {
            let heads = first..self.heads.end.min(first + DELTA_CHUNK);
            call.conv_silu(s, t, &call.v(heads.clone()), buffers.v);
            let Gates { beta, log_decay: mut decay } = call.gates(s, t * n_head_v + first, 1, heads.len());
            for at in (0..heads.len()).step_by(LANES) {
                store_at(s, exp(s, load_at(s, &decay, at)), &mut decay, at);
            }
            // SAFETY: each job has its own heads.
            let states = unsafe { call.state.part(first * state_len, heads.len() * state_len) };
            // What is here already costs least to ask for.
            let next = if self.next < n_head_v { self.next } else { first };
            let step = Step {
                q: buffers.q,
                k: buffers.k,
                v: buffers.v,
                beta: &beta[..heads.len()],
                decay: &decay[..heads.len()],
                state_len,
                dv,
                next: call.state.address(next * state_len),
            };
            step.run(s, states, buffers.o);
            for (head, o) in heads.zip(buffers.o.chunks_exact(dv)) {
                call.gated_norm(s, o, t, head);
            }
        }
    }

    /// Several tokens of one chunk.
    #[inline(always)]
    fn chunk<S: Simd>(&mut self, s: S, piece: Piece) {
        let (call, heads) = (self.call, self.value_heads());
        let mut buffers = Buffers::new(self.scratch, call.shape, DELTA_CHUNK, DELTA_CHUNK);
        Self::queries_and_keys(s, call, self.key, piece, &mut buffers);
        let dk = Buffers::dk(call.shape);
        let keys = Keys::new(s, (buffers.q, buffers.k), (piece.n, dk), buffers.keys, buffers.products);
        let (state_len, dv) = (call.shape.head_dim_k * call.shape.head_dim_v, Buffers::dv(call.shape));
        for head in heads {
            let channels = call.v(head..head + 1);
            for (i, v) in buffers.v.chunks_exact_mut(dv).take(piece.n).enumerate() {
                call.conv_silu(s, piece.first + i, &channels, v);
            }
            // SAFETY: each job has its own heads.
            let state = unsafe { call.state.part(head * state_len, state_len) };
            let n_head_v = call.shape.n_head_v;
            let gates = call.gates(s, piece.first * n_head_v + head, n_head_v, piece.n);
            let chunk = Chunk::new(s, &keys, &gates, buffers.mix);
            chunk.run(s, state, call.shape.head_dim_v, buffers.panel, (buffers.v, buffers.o));
            for (i, o) in buffers.o.chunks_exact(dv).take(piece.n).enumerate() {
                call.gated_norm(s, o, piece.first + i, head);
            }
        }
    }

    /// The normed queries and keys of the piece's tokens (steps 2 to 4).
    #[inline(always)]
    fn queries_and_keys<S: Simd>(s: S, call: &Call<'_>, key: usize, piece: Piece, buffers: &mut Buffers<'_>) {
        let dk = Buffers::dk(call.shape);
        let q_scale = 1.0 / (call.shape.head_dim_k as f32).sqrt();
        for i in 0..piece.n {
            let row = i * dk..(i + 1) * dk;
            call.conv_silu(s, piece.first + i, &call.q(key), &mut buffers.q[row.clone()]);
            l2_norm(s, &mut buffers.q[row.clone()], q_scale);
            call.conv_silu(s, piece.first + i, &call.k(key), &mut buffers.k[row.clone()]);
            l2_norm(s, &mut buffers.k[row], 1.0);
        }
    }
}

/// `x / sqrt(Σx² + ε) · scale`, whole vectors.
#[inline(always)]
fn l2_norm<S: Simd>(s: S, x: &mut [f32], scale: f32) {
    let scale = s.splat(scale / (dot(s, x, x) + L2_EPS).sqrt());
    for at in (0..x.len()).step_by(LANES) {
        store_at(s, s.mul(load_at(s, x, at), scale), x, at);
    }
}

/// `ln(1 + eˣ)` without overflow: `max(x, 0) + 2 atanh(y / (2 + y))` with `y = e^(-|x|)`, by the series of the inverse
/// hyperbolic tangent, whose argument is at most 1/3.
#[inline(always)]
fn softplus<S: Simd>(s: S, x: S::V) -> S::V {
    let zero = s.splat(0.0);
    let y = exp(s, s.min(x, s.sub(zero, x)));
    let z = s.div(y, s.add(s.splat(2.0), y));
    let square = s.mul(z, z);
    let mut series = s.splat(1.0 / 15.0);
    for n in [13.0, 11.0, 9.0, 7.0, 5.0, 3.0, 1.0] {
        series = s.fma(series, square, s.splat(1.0 / n));
    }
    s.fma(s.mul(s.splat(2.0), z), series, s.max(x, zero))
}

/// A thread's scratch, divided; rows are whole vectors on cache lines of their own.
struct Buffers<'a> {
    /// Normed queries and keys, `[n, dk]`.
    q: &'a mut [f32],
    k: &'a mut [f32],
    /// Values, `[n_v, dv]`.
    v: &'a mut [f32],
    /// What the state answers, `[n_v, dv]`.
    o: &'a mut [f32],
    /// Keys by column, `[dk, DELTA_CHUNK]`.
    keys: &'a mut [f32],
    /// `K Kᵀ` and `Q Kᵀ`, `[2, DELTA_CHUNK, DELTA_CHUNK]`.
    products: &'a mut [f32],
    /// These with one head's gates, `[2, DELTA_CHUNK, DELTA_CHUNK]`.
    mix: &'a mut [f32],
    /// Some columns of the state and of the corrections, `[dk + DELTA_CHUNK, PANEL]`.
    panel: &'a mut [f32],
}

impl<'a> Buffers<'a> {
    /// Width of a row of q or k.
    fn dk(shape: DeltaShape) -> usize {
        shape.head_dim_k.next_multiple_of(LANES)
    }

    /// Width of a row of v or of the output.
    fn dv(shape: DeltaShape) -> usize {
        shape.head_dim_v.next_multiple_of(PANEL)
    }

    /// For pieces of `n` tokens, 1 or [`DELTA_CHUNK`], with `n_v` rows of v and of the output. One token needs no more.
    fn new(scratch: &'a mut Vec<Lanes>, shape: DeltaShape, n: usize, n_v: usize) -> Self {
        let (dk, dv) = (Self::dk(shape), Self::dv(shape));
        let square = 2 * DELTA_CHUNK * DELTA_CHUNK;
        let chunk = [DELTA_CHUNK * dk, square, square, (dk + DELTA_CHUNK) * PANEL];
        let chunk = if n == 1 { [0; 4] } else { chunk };
        let sizes = [n * dk, n * dk, n_v * dv, n_v * dv, chunk[0], chunk[1], chunk[2], chunk[3]];
        let n_vector = sizes.iter().sum::<usize>() / LANES;
        scratch.resize(scratch.len().max(n_vector), Lanes::default());
        let mut rest = floats(scratch);
        let [q, k, v, o, keys, products, mix, panel] = sizes.map(|n| {
            let (part, behind) = std::mem::take(&mut rest).split_at_mut(n);
            rest = behind;
            part
        });
        Self { q, k, v, o, keys, products, mix, panel }
    }
}

/// The numbers of vectors.
fn floats(vectors: &mut [Lanes]) -> &mut [f32] {
    // SAFETY: `Lanes` is 16 f32 without padding.
    unsafe { std::slice::from_raw_parts_mut(vectors.as_mut_ptr().cast(), vectors.len() * LANES) }
}
