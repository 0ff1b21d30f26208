//! The operations that the models use. Coarse on purpose: this is no tensor library.
//!
//! Tensors are flat f32 buffers that live where the backend computes; shapes travel as arguments, row-major.
//! Two promises hold for every operation on one backend, whatever the number of threads:
//! the result has the same bits from run to run, and a token's result does not depend on how many other tokens
//! are in the batch (exception: [`Backend::delta_net`], which says how it cuts).

use std::ops::{DerefMut, Range};
use std::time::Duration;

use quant::{Format, Matrix, MatrixRef};

use crate::{KvFormat, NonFinite, RouteShape, Routes};

/// Positions of a delta-net chunk: calls are cut at its absolute multiples, so that a prompt's result does not
/// depend on how it was split.
pub const DELTA_CHUNK: usize = 64;

/// Rotary embedding of the leading dims of each head, pairs `(j, j + n_rot/2)`.
#[derive(Clone, Debug, PartialEq)]
pub struct Rope {
    /// Angle per position of each pair, `[n_rot / 2]`.
    pub inv_freq: Vec<f64>,
    /// Factor on cos and sin (1 without YaRN).
    pub scale: f32,
}

/// Shapes of full attention.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AttentionShape {
    /// Query heads.
    pub n_head: usize,
    /// Key/value heads.
    pub n_head_kv: usize,
    /// Width of a head.
    pub head_dim: usize,
    /// Each head of the q projection is `[q head_dim | gate head_dim]`, the gate a sigmoid on the output.
    pub gated: bool,
}

/// In which order a tensor has the value heads of a delta-net, `r` of them a key head.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum HeadOrder {
    /// Those of one key head lie side by side: head `j` reads key head `j / r`.
    #[default]
    Grouped,
    /// The first one of each key head, then the second ones, and so on: head `j` of the other order lies at place
    /// `(j mod r) · n_head_k + j / r`.
    Tiled,
}

/// Shapes of a gated delta-net.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeltaShape {
    /// Heads of q and k.
    pub n_head_k: usize,
    /// Heads of v; value head `j` reads key head `j / (n_head_v / n_head_k)`.
    pub n_head_v: usize,
    /// Width of a q or k head.
    pub head_dim_k: usize,
    /// Width of a v head.
    pub head_dim_v: usize,
    /// Taps of the convolution, the last is the current token.
    pub n_conv: usize,
    /// Order of the heads in the output; in all else they are grouped.
    pub out_order: HeadOrder,
}

impl DeltaShape {
    /// Width of q, k and v together: the channels of the convolution.
    pub fn n_channel(&self) -> usize {
        2 * self.n_head_k * self.head_dim_k + self.d_v()
    }

    /// Width of all v heads: of z and of the output.
    pub fn d_v(&self) -> usize {
        self.n_head_v * self.head_dim_v
    }

    /// Neighbouring heads that the output's order deals out: head `j` lies at place
    /// `(j mod out_tile) · (n_head_v / out_tile) + j / out_tile` ([`Self::out_row`]).
    pub fn out_tile(&self) -> usize {
        match self.out_order {
            HeadOrder::Grouped => 1,
            HeadOrder::Tiled => self.n_head_v / self.n_head_k,
        }
    }

    /// The row of the output, `[n_token · n_head_v, head_dim_v]`, of row `row` of z.
    pub fn out_row(&self, row: usize) -> usize {
        let (n_tile, head) = (self.out_tile(), row % self.n_head_v);
        row - head + head % n_tile * (self.n_head_v / n_tile) + head / n_tile
    }

    /// Floats of the recurrent state.
    pub fn state_len(&self) -> usize {
        self.n_head_v * self.head_dim_k * self.head_dim_v
    }
}

/// Tokens of one sequence, in neighbouring rows of a call's tensors.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rows {
    /// Row of the first token.
    pub first: usize,
    /// Its position in the sequence.
    pub pos: usize,
    /// How many there are.
    pub n_token: usize,
}

impl Rows {
    /// Tokens from position `pos` on that are all of the rows.
    pub fn at(pos: usize, n_token: usize) -> Self {
        Self { first: 0, pos, n_token }
    }

    /// Their positions.
    pub fn positions(self) -> Range<usize> {
        self.pos..self.pos + self.n_token
    }

    /// Where they are in a tensor of rows of so many numbers.
    pub fn floats(self, width: usize) -> Range<usize> {
        self.first * width..(self.first + self.n_token) * width
    }
}

/// Weights of a gated delta-net between its projections, `T` a tensor.
#[derive(Clone, Copy, Debug)]
pub struct DeltaWeights<'a, T> {
    /// The convolution, `[n_conv, n_channel]`: tap by tap.
    pub conv: &'a T,
    /// exp(A_log), `[n_head_v]`
    pub decay: &'a T,
    /// `[n_head_v]`
    pub dt_bias: &'a T,
    /// Of the gated norm, `[head_dim_v]`, the same for every head.
    pub norm: &'a T,
    /// ε of the gated norm.
    pub eps: f32,
}

/// Projections of the tokens, `T` a tensor.
#[derive(Clone, Copy, Debug)]
pub struct DeltaInputs<'a, T: ?Sized> {
    /// q, k and v before the convolution, `[_, q | k | v]`.
    pub qkv: &'a T,
    /// How much of an error is learnt, before its sigmoid, `[_, n_head_v]`.
    pub b: &'a T,
    /// How much is forgotten, before its softplus, `[_, n_head_v]`.
    pub a: &'a T,
    /// The output gate, before its SiLU, `[_, n_head_v, head_dim_v]`.
    pub z: &'a T,
}

/// A norm that follows at once, `T` a tensor.
#[derive(Debug)]
pub struct Norm<'a, T> {
    /// `[d]`
    pub weight: &'a T,
    /// Width of a row.
    pub d: usize,
    /// Added to the mean square.
    pub eps: f32,
    /// `[n_token, d]`
    pub out: &'a mut T,
}

/// How precise a product must be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Precision {
    /// As f32: for what decides between alternatives.
    Full,
    /// What the backend was set to: as f32 unless the user asked for less.
    Setting,
}

/// One expert and the tokens that chose it.
#[derive(Clone, Copy, Debug)]
pub struct ExpertJob<'a> {
    /// `[d_ff, d_model]`
    pub gate: MatrixRef<'a>,
    /// `[d_ff, d_model]`
    pub up: MatrixRef<'a>,
    /// `[d_model, d_ff]`
    pub down: MatrixRef<'a>,
    /// For each token: its row in the input and the row of the output that gets the result.
    pub rows: &'a [(u32, u32)],
}

/// The expert that all tokens use, among the dense weights.
#[derive(Debug)]
pub struct SharedJob<'a, W> {
    /// `[d_ff, d_model]`
    pub gate: &'a W,
    /// `[d_ff, d_model]`
    pub up: &'a W,
    /// `[d_model, d_ff]`
    pub down: &'a W,
    /// As those of [`ExpertJob`].
    pub rows: &'a [(u32, u32)],
}

/// An expert that the backend holds, and the tokens that chose it.
#[derive(Clone, Copy, Debug)]
pub struct HeldJob<'a> {
    /// Its number in the layer.
    pub expert: usize,
    /// As those of [`ExpertJob`].
    pub rows: &'a [(u32, u32)],
}

/// What a backend that holds experts must know of a layer's records.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HeldShape {
    /// Experts of the layer.
    pub n_expert: usize,
    /// Width of the residual stream.
    pub d_model: usize,
    /// Width of an expert.
    pub d_ff: usize,
    /// Formats of gate, up and down.
    pub formats: [Format; 3],
    /// Where they start in a record.
    pub offsets: [usize; 3],
    /// Size of a record.
    pub record_bytes: usize,
}

/// The mixture of experts of one token, `T` a tensor and `W` a matrix.
#[derive(Debug)]
pub struct Mixture<'a, T, W> {
    /// The layer.
    pub layer: usize,
    /// How experts are chosen.
    pub shape: RouteShape,
    /// The router's logits, `[n_expert]`.
    pub logits: &'a T,
    /// The expert that all tokens use, and its gate before the sigmoid, `[1]`.
    pub shared: Option<(SharedJob<'a, W>, &'a T)>,
    /// The input, `[d_model]`; afterwards the norm of `x`, if there is one.
    pub h: &'a mut T,
    /// Room for the experts' outputs, `[k + 1, d_model]`.
    pub routed: &'a mut T,
    /// The residual stream, `[d_model]`, to which the sum is added.
    pub x: &'a mut T,
    /// Weight and ε of the norm that follows at once.
    pub norm: Option<(&'a T, f32)>,
}

/// A piece of memory, aligned to pages, that a backend's operations can read in place.
pub type RecordMemory = Box<dyn DerefMut<Target = [u8]> + Send + Sync>;

/// Where and how the operations are computed.
pub trait Backend: Send + Sync {
    /// A flat f32 buffer that belongs to the backend.
    type Tensor: Send;
    /// A weight matrix where the backend computes.
    type Weights: Send + Sync;
    /// Keys and values of one layer: rows of positions, in a [`KvFormat`]. Grows page by page of
    /// [`crate::KV_PAGE`] positions as they are appended; what is there never moves.
    type Kv: Send;

    /// What it is, for people: instruction set and threads, or the adapter.
    fn describe(&self) -> String;

    /// `n` zeros.
    fn zeros(&self, n: usize) -> Self::Tensor;
    /// Copies `values` to `t[at..]`.
    fn write(&self, t: &mut Self::Tensor, at: usize, values: &[f32]);
    /// Copies `t[at..]` to `out`.
    fn read(&self, t: &Self::Tensor, at: usize, out: &mut [f32]);
    /// Makes a stored matrix usable. On a CPU nothing is copied.
    fn weights(&self, matrix: Matrix) -> Self::Weights;

    /// `out[t] = w[ids[t]]`, `w` is `[n_vocab, d]`, `out` `[n_token, d]`. Ids are below `n_vocab`.
    fn embed(&self, w: &Self::Weights, ids: &[u32], out: &mut Self::Tensor);

    /// `out[t] = w · x[first + t]` for each of at most 8 matrices and its output: `w` is `[rows, cols]`, `x`
    /// `[_, cols]`, `out` `[n_token, rows]`.
    fn matmul(
        &self,
        products: &mut [(&Self::Weights, &mut Self::Tensor)],
        x: &Self::Tensor,
        first: usize,
        n_token: usize,
        precision: Precision,
    );

    /// `out[t] = x[t] / sqrt(mean(x[t]²) + eps) ⊙ weight`, `x` and `out` `[n_token, d]`, `weight` `[d]`.
    fn rms_norm(
        &self,
        x: &Self::Tensor,
        weight: &Self::Tensor,
        eps: f32,
        n_token: usize,
        out: &mut Self::Tensor,
    );

    /// `x[i] += y[i]` for the first `n` numbers.
    fn add(&self, x: &mut Self::Tensor, y: &Self::Tensor, n: usize);

    /// [`Self::add`] of `n_token` rows, then [`Self::rms_norm`] of `x`.
    fn add_norm(
        &self,
        (x, y): (&mut Self::Tensor, &Self::Tensor),
        norm: Norm<'_, Self::Tensor>,
        n_token: usize,
    ) {
        self.add(x, y, n_token * norm.d);
        self.rms_norm(x, norm.weight, norm.eps, n_token, norm.out);
    }

    /// No keys and values yet. Takes memory for the table of the pages of `n_ctx` positions, and for each page when
    /// its first position is appended.
    fn kv(&self, shape: AttentionShape, format: KvFormat, n_ctx: usize) -> Self::Kv;
    /// Copies positions `pos ..` as they are stored to `out`, [`KvFormat::position_bytes`] each.
    fn read_kv(&self, kv: &Self::Kv, pos: usize, out: &mut [u8]);
    /// Replaces or appends positions `pos ..`, stored as [`Self::read_kv`] gives them. There are positions up to `pos`.
    fn write_kv(&self, kv: &mut Self::Kv, pos: usize, bytes: &[u8]);

    /// Norms and rotates queries and keys and appends keys and values to the cache (spec 2.4 steps 1 and 2).
    ///
    /// `norms` are q weight, k weight and ε; `qkv` are q, k, v. `q` is `[_, n_head, head_dim (·2 if gated)]` and is
    /// changed in place (its gate halves stay raw); `k`, `v` are `[_, n_head_kv, head_dim]`, `k` is changed in place.
    /// The tokens' positions of the cache become theirs; there are positions up to the first of them.
    fn attention_prepare(
        &self,
        shape: AttentionShape,
        rope: &Rope,
        norms: (&Self::Tensor, &Self::Tensor, f32),
        qkv: (&mut Self::Tensor, &mut Self::Tensor, &Self::Tensor),
        kv: &mut Self::Kv,
        rows: Rows,
    );

    /// Causal softmax attention of prepared queries over the cache, then the sigmoid gate (steps 3 and 4 before
    /// `o_proj`). A token sees its own position and all before it. `out` is `[_, n_head·head_dim]`.
    fn attention(
        &self,
        shape: AttentionShape,
        q: &Self::Tensor,
        kv: &Self::Kv,
        rows: Rows,
        out: &mut Self::Tensor,
    );

    /// A gated delta-net between its projections (spec 2.5 steps 2 to 8): convolution with SiLU, l2 norms of q and k,
    /// the gated delta rule, the gated norm.
    ///
    /// `states` are the convolution's, `[n_conv - 1, n_channel]`, the sequence's last rows of `qkv` before the call,
    /// oldest first, and the rule's, `[n_head_v, head_dim_k, head_dim_v]`; both become those behind the last token.
    /// `out` is `[_, n_head_v · head_dim_v]`.
    ///
    /// Tokens are cut at absolute multiples of [`DELTA_CHUNK`] positions; a piece of one token takes
    /// the recurrence, a longer piece the chunked form. So the result depends on where a call starts and ends
    /// inside a chunk (in the last bits), and on nothing else.
    fn delta_net(
        &self,
        shape: DeltaShape,
        weights: &DeltaWeights<'_, Self::Tensor>,
        inputs: &DeltaInputs<'_, Self::Tensor>,
        states: (&mut Self::Tensor, &mut Self::Tensor),
        rows: Rows,
        out: &mut Self::Tensor,
    );

    /// `out[row_out] = down · (silu(gate · x[row_in]) ⊙ (up · x[row_in]))` for every job and row, unweighted, and the
    /// same for the shared expert. `x` is `[_, d_model]`, `out` `[_, d_model]`. Jobs can come in any order and in
    /// several calls.
    fn experts(
        &self,
        jobs: &[ExpertJob<'_>],
        shared: Option<SharedJob<'_, Self::Weights>>,
        x: &Self::Tensor,
        out: &mut Self::Tensor,
    );

    /// `x[t] += Σ_j weights[t·k + j] · routed[t·k + j]  (+ sigmoid(shared[t]) · routed[n_token·k + t])`: j
    /// ascending, then the shared expert, if there is a `shared` gate, `[n_token]`. `dims` is `n_token, k, d`. `x` is
    /// `[n_token, d]`, `routed` `[n_token · (k or k + 1), d]`, `weights` `[n_token · k]` on the host.
    fn combine(
        &self,
        x: &mut Self::Tensor,
        routed: &Self::Tensor,
        weights: &[f32],
        shared: Option<&Self::Tensor>,
        dims: (usize, usize, usize),
    );

    /// [`Self::combine`], then [`Self::rms_norm`] of `x`, if there is a `norm`.
    fn combine_norm(
        &self,
        x: &mut Self::Tensor,
        routed: &Self::Tensor,
        weights: &[f32],
        shared: Option<&Self::Tensor>,
        dims: (usize, usize, usize),
        norm: Option<Norm<'_, Self::Tensor>>,
    ) {
        self.combine(x, routed, weights, shared, dims);
        if let Some(norm) = norm {
            self.rms_norm(x, norm.weight, norm.eps, dims.0, norm.out);
        }
    }

    /// Chooses experts for `n_token` rows of router logits, `[n_token, n_expert]`; `forced` are those to take instead,
    /// `[n_token · k]`.
    ///
    /// # Errors
    /// A logit is not finite.
    fn choose(
        &self,
        logits: &Self::Tensor,
        shape: RouteShape,
        n_token: usize,
        forced: Option<&[u32]>,
        routes: &mut Routes,
    ) -> Result<(), NonFinite> {
        let mut host = std::mem::take(&mut routes.logits);
        host.resize(n_token * shape.n_expert, 0.0);
        self.read(logits, 0, &mut host);
        let chosen = routes.choose(&host, shape, forced);
        routes.logits = host;
        chosen
    }

    /// The calls that follow belong to the feeding of `n_token` tokens of each sequence, in however many batches. A
    /// backend may compute one token in another way than many, so results may differ in the last bits between the two;
    /// they do not depend on the batches.
    fn begin(&self, _n_token: usize) {}

    /// What went wrong since the backend was made, if anything: what was read since then may be wrong.
    fn failure(&self) -> Option<String> {
        None
    }

    /// Memory for `n` records of `bytes` each, if the operations need a special one.
    ///
    /// # Errors
    /// There is not so much.
    fn record_memory(&self, _n: usize, _bytes: usize) -> std::io::Result<Option<Vec<RecordMemory>>> {
        Ok(None)
    }

    /// Do [`Self::experts`] read their records after they have returned?
    fn borrows_records(&self) -> bool {
        false
    }

    /// Waits until all that was asked for is done, and records may change again.
    fn finish(&self) {}

    /// Asks the backend to hold experts in memory of its own, in layers like these; how many in each.
    fn hold_layers(&mut self, _layers: &[HeldShape]) -> usize {
        0
    }

    /// Copies an expert's record to place `place` of its layer, in the stead of `instead`.
    fn hold(&self, _layer: usize, _expert: usize, _record: &[u8], _place: usize, _instead: Option<usize>) {}

    /// As [`Self::experts`], for experts that the backend holds.
    fn experts_held(&self, _layer: usize, _jobs: &[HeldJob<'_>], _x: &Self::Tensor, _out: &mut Self::Tensor) {
    }

    /// Routes a token and computes its mixture without asking the host, if it can. Should an expert be missing then,
    /// nothing that is asked for from there on has an effect, until [`Self::stopped`] has told.
    fn mixture(&self, _: Mixture<'_, Self::Tensor, Self::Weights>) -> bool {
        false
    }

    /// What was asked for since the last call belongs to this phase of this layer: for a device that measures its own
    /// time.
    fn mark(&self, _layer: usize, _phase: usize) {}

    /// From now on the time that a device takes for each phase is measured, which costs some.
    fn measure(&self) {}

    /// After a read: what was measured since the last call, layer and phase by layer and phase; nothing from a backend
    /// that has computed when an operation returns.
    fn measured(&self) -> Vec<(usize, usize, Duration)> {
        Vec::new()
    }

    /// After a read: the first layer since the last call whose [`Self::mixture`] had no effect. If there is none, the
    /// experts that were chosen since then are appended to `chosen`, layer by layer.
    fn stopped(&self, _chosen: &mut Vec<u32>) -> Option<usize> {
        None
    }
}
