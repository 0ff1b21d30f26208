//! One timeline of tokens: keys and values of the full-attention layers, recurrent state of the others.

use kernels::Backend;
use store::{LayerKind, ModelConfig};

use crate::ModelError;

/// What the model remembers of the tokens fed so far.
pub struct Session<B: Backend> {
    pub(crate) layers: Vec<LayerState<B>>,
    /// All tokens fed, in order.
    pub(crate) ids: Vec<u32>,
    /// `[n_vocab]` after the last token.
    pub(crate) logits: Vec<f32>,
    pub(crate) n_ctx: usize,
    /// Why this session cannot go on.
    pub(crate) poison: Option<String>,
}

/// Memory of one layer.
pub(crate) enum LayerState<B: Backend> {
    Attention(KvCache<B>),
    DeltaNet(DeltaState<B>),
}

/// Keys (rotated) and values.
pub(crate) struct KvCache<B: Backend> {
    /// `[n_ctx, n_head_kv, head_dim]`
    pub(crate) k: B::Tensor,
    /// `[n_ctx, n_head_kv, head_dim]`
    pub(crate) v: B::Tensor,
}

/// State of a delta-net layer.
pub(crate) struct DeltaState<B: Backend> {
    /// The last rows of qkv before the convolution, `[n_conv - 1, n_channel]`.
    pub(crate) conv: B::Tensor,
    /// `[n_head_v, head_dim_k, head_dim_v]`
    pub(crate) s: B::Tensor,
}

impl<B: Backend> Session<B> {
    pub(crate) fn new(backend: &B, config: &ModelConfig, n_ctx: usize) -> Self {
        let layer = |kind: &LayerKind| match kind {
            LayerKind::FullAttention => {
                let n = n_ctx * config.n_head_kv * config.head_dim;
                LayerState::Attention(KvCache { k: backend.zeros(n), v: backend.zeros(n) })
            }
            LayerKind::LinearAttention => {
                let (n_conv, n_state) = state_lens(config);
                LayerState::DeltaNet(DeltaState { conv: backend.zeros(n_conv), s: backend.zeros(n_state) })
            }
        };
        Self {
            layers: config.layers.iter().map(layer).collect(),
            ids: Vec::with_capacity(n_ctx),
            logits: vec![0.0; config.n_vocab],
            n_ctx,
            poison: None,
        }
    }

    /// Tokens fed so far.
    pub fn pos(&self) -> usize {
        self.ids.len()
    }

    /// The tokens fed so far.
    pub fn ids(&self) -> &[u32] {
        &self.ids
    }

    /// Most tokens it can hold.
    pub fn n_ctx(&self) -> usize {
        self.n_ctx
    }

    /// Logits after the last token, `[n_vocab]`.
    pub fn logits(&self) -> &[f32] {
        &self.logits
    }

    /// Refuses to go on after an error that left the state undefined.
    pub(crate) fn check_usable(&self) -> Result<(), ModelError> {
        match &self.poison {
            Some(why) => Err(ModelError::Poisoned { why: why.clone() }),
            None => Ok(()),
        }
    }
}

/// Floats of `conv` and `s` of one delta-net layer.
pub(crate) fn state_lens(config: &ModelConfig) -> (usize, usize) {
    let l = config.linear.expect("checked when the store was opened");
    ((l.n_conv - 1) * l.n_channel(), l.n_head_v * l.head_dim_k * l.head_dim_v)
}
