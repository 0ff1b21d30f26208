//! Activations of one batch, allocated once. Attention and delta-net layers share what they can.

use kernels::Backend;
use store::{LinearAttention, ModelConfig};

/// Tokens whose logits are computed at a time when all are wanted.
pub(crate) const N_LOGITS: usize = 8;

/// Activations of up to `n_batch` tokens.
pub(crate) struct Scratch<B: Backend> {
    /// Residual stream, `[n_token, d_model]`.
    pub(crate) x: B::Tensor,
    /// Normed input of a block, `[n_token, d_model]`.
    pub(crate) h: B::Tensor,
    /// Output of a block, `[n_token, d_model]`.
    pub(crate) y: B::Tensor,
    /// What the next layer's router would see now, `[n_token, d_model]`.
    pub(crate) guess: B::Tensor,
    /// First projection: q with its gates, or delta-net qkv.
    pub(crate) proj: B::Tensor,
    /// k `[n_token, n_head_kv · head_dim]`, or b `[n_token, n_head_v]`.
    pub(crate) k: B::Tensor,
    /// v `[n_token, n_head_kv · head_dim]`, or a `[n_token, n_head_v]`.
    pub(crate) v: B::Tensor,
    /// z `[n_token, d_v]`.
    pub(crate) z: B::Tensor,
    /// Mixed heads, `[n_token, n_head · head_dim]` or `[n_token, d_v]`.
    pub(crate) mixed: B::Tensor,
    /// `[n_token, n_expert]`
    pub(crate) router: B::Tensor,
    /// The shared expert's gate, `[n_token]`.
    pub(crate) shared_gate: B::Tensor,
    /// `[n_token · (n_expert_used + 1), d_model]`: routed experts, then the shared one.
    pub(crate) routed: B::Tensor,
    /// `[N_LOGITS, n_vocab]`
    pub(crate) logits: B::Tensor,
}

/// Widths of the buffers, in floats a token.
struct Widths {
    proj: usize,
    kv: usize,
    z: usize,
    mixed: usize,
}

impl Widths {
    fn of(config: &ModelConfig) -> Self {
        let heads = config.n_head * config.head_dim;
        let q = heads * if config.attention_gate { 2 } else { 1 };
        let linear = |f: fn(&LinearAttention) -> usize| config.linear.as_ref().map_or(0, f);
        Self {
            proj: q.max(linear(|l| l.n_channel())),
            kv: (config.n_head_kv * config.head_dim).max(linear(|l| l.n_head_v)),
            z: linear(|l| l.d_v()),
            mixed: heads.max(linear(|l| l.d_v())),
        }
    }
}

/// Floats that one more token in a batch costs, the backend's hidden rows of the experts included.
pub(crate) fn floats_per_token(config: &ModelConfig) -> usize {
    let w = Widths::of(config);
    let d_ff = config.d_ff_expert.max(config.d_ff_shared);
    let experts = (config.n_expert_used + 1) * (config.d_model + d_ff) + 1;
    4 * config.d_model + w.proj + 2 * w.kv + w.z + w.mixed + config.n_expert + experts
}

impl<B: Backend> Scratch<B> {
    pub(crate) fn new(backend: &B, config: &ModelConfig, n_batch: usize, n_expert_used: usize) -> Self {
        let w = Widths::of(config);
        let rows = |width: usize| backend.zeros(n_batch * width);
        Self {
            x: rows(config.d_model),
            h: rows(config.d_model),
            y: rows(config.d_model),
            guess: rows(config.d_model),
            proj: rows(w.proj),
            k: rows(w.kv),
            v: rows(w.kv),
            z: rows(w.z),
            mixed: rows(w.mixed),
            router: rows(config.n_expert),
            shared_gate: rows(1),
            routed: rows((n_expert_used + 1) * config.d_model),
            logits: backend.zeros(N_LOGITS * config.n_vocab),
        }
    }
}
