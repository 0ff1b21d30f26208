//! The operations that the models use. Coarse on purpose: this is no tensor library.
//!
//! Tensors are flat f32 buffers that live where the backend computes; shapes travel as arguments, row-major.
//! Two promises hold for every operation on one backend, whatever the number of threads:
//! the result has the same bits from run to run, and a token's result does not depend on how many other tokens
//! are in the batch (exception: [`Backend::delta_net`], which says how it cuts).

use quant::{Matrix, MatrixRef};

use crate::KvFormat;

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

/// Shapes of the convolution in front of the delta rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConvShape {
    /// Channels.
    pub n_channel: usize,
    /// Taps, the last is the current token.
    pub n_conv: usize,
}

/// Shapes of the gated delta rule.
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

    /// `out[t] = w · x[first + t]`: `w` is `[rows, cols]`, `x` `[_, cols]`, `out` `[n_token, rows]`.
    fn matmul(
        &self,
        w: &Self::Weights,
        x: &Self::Tensor,
        first: usize,
        n_token: usize,
        out: &mut Self::Tensor,
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

    /// No keys and values yet. Takes memory for the table of the pages of `n_ctx` positions, and for each page when
    /// its first position is appended.
    fn kv(&self, shape: AttentionShape, format: KvFormat, n_ctx: usize) -> Self::Kv;
    /// Copies positions `pos ..` as they are stored to `out`, [`KvFormat::position_bytes`] each.
    fn read_kv(&self, kv: &Self::Kv, pos: usize, out: &mut [u8]);
    /// Replaces or appends positions `pos ..`, stored as [`Self::read_kv`] gives them. There are positions up to `pos`.
    fn write_kv(&self, kv: &mut Self::Kv, pos: usize, bytes: &[u8]);

    /// Norms and rotates queries and keys and appends keys and values to the cache (spec 2.4 steps 1 and 2).
    ///
    /// `norms` are q weight, k weight and ε; `qkv` are q, k, v. `q` is `[n_token, n_head, head_dim (·2 if gated)]` and
    /// is changed in place (its gate halves stay raw); `k`, `v` are `[n_token, n_head_kv, head_dim]`, `k` is changed in
    /// place. Positions `pos .. pos + n_token` of the cache become theirs; there are positions up to `pos`.
    fn attention_prepare(
        &self,
        shape: AttentionShape,
        rope: &Rope,
        norms: (&Self::Tensor, &Self::Tensor, f32),
        qkv: (&mut Self::Tensor, &mut Self::Tensor, &Self::Tensor),
        kv: &mut Self::Kv,
        pos: usize,
        n_token: usize,
    );

    /// Causal softmax attention of prepared queries over the cache, then the sigmoid gate (steps 3 and 4 before
    /// `o_proj`). Token `t` sees positions `0 ..= pos + t`. `out` is `[n_token, n_head·head_dim]`.
    fn attention(
        &self,
        shape: AttentionShape,
        q: &Self::Tensor,
        kv: &Self::Kv,
        pos: usize,
        n_token: usize,
        out: &mut Self::Tensor,
    );

    /// Depthwise causal convolution with SiLU (spec 2.5 step 2). `x` and `out` are `[n_token, n_channel]`,
    /// `weight` `[n_channel, n_conv]`, `state` `[n_conv - 1, n_channel]`: the last rows of `x` before the call,
    /// oldest first, replaced by the last rows after it.
    fn conv_silu(
        &self,
        shape: ConvShape,
        weight: &Self::Tensor,
        x: &Self::Tensor,
        state: &mut Self::Tensor,
        n_token: usize,
        out: &mut Self::Tensor,
    );

    /// The gated delta rule (spec 2.5 steps 3 to 7).
    ///
    /// `qkv` is the convolution's output `[n_token, q | k | v]`; q and k are l2-normed here. `b`, `a` are
    /// `[n_token, n_head_v]` raw projections (`ba`); `decay_dt` are `exp(A_log)` and `dt_bias`, both `[n_head_v]`;
    /// `state` `[n_head_v, head_dim_k, head_dim_v]`; `out` `[n_token, n_head_v · head_dim_v]`.
    ///
    /// Tokens are cut at absolute multiples of [`DELTA_CHUNK`] positions; a piece of one token takes
    /// the recurrence, a longer piece the chunked form. So the result depends on where a call starts and ends
    /// inside a chunk (in the last bits), and on nothing else.
    fn delta_net(
        &self,
        shape: DeltaShape,
        qkv: &Self::Tensor,
        ba: (&Self::Tensor, &Self::Tensor),
        decay_dt: (&Self::Tensor, &Self::Tensor),
        state: &mut Self::Tensor,
        pos: usize,
        n_token: usize,
        out: &mut Self::Tensor,
    );

    /// `x = (x / sqrt(mean(x²) + eps) ⊙ weight) ⊙ silu(z)` per head: `x`, `z` `[n_token, n_head, d]`, `weight` `[d]`
    /// (spec 2.5 step 8), `n_row = n_token · n_head`.
    fn gated_rms_norm(
        &self,
        x: &mut Self::Tensor,
        z: &Self::Tensor,
        weight: &Self::Tensor,
        eps: f32,
        n_row: usize,
    );

    /// `out[row_out] = down · (silu(gate · x[row_in]) ⊙ (up · x[row_in]))` for every job and row, unweighted.
    /// `x` is `[_, d_model]`, `out` `[_, d_model]`. Jobs can come in any order and in several calls.
    fn experts(&self, jobs: &[ExpertJob<'_>], x: &Self::Tensor, out: &mut Self::Tensor);

    /// The shared expert: `out[t] = sigmoid(expert_gate · x[t]) · down(silu(gate x[t]) ⊙ (up x[t]))`,
    /// `ffn` is gate, up, down; `expert_gate` `[1, d_model]`.
    fn shared_expert(
        &self,
        ffn: (&Self::Weights, &Self::Weights, &Self::Weights),
        expert_gate: &Self::Weights,
        x: &Self::Tensor,
        n_token: usize,
        out: &mut Self::Tensor,
    );

    /// `x[t] += Σ_j weights[t·k + j] · routed[t·k + j]  (+ shared[t])`: j ascending, then the shared expert.
    /// `dims` is `n_token, k, d`. `x` is `[n_token, d]`, `routed` `[n_token · k, d]`, `weights` `[n_token · k]` on the
    /// host.
    fn combine(
        &self,
        x: &mut Self::Tensor,
        routed: &Self::Tensor,
        weights: &[f32],
        shared: Option<&Self::Tensor>,
        dims: (usize, usize, usize),
    );
}
