//! One timeline of tokens: keys and values of the full-attention layers, recurrent state of the others.

use kernels::{AttentionShape, Backend, DeltaShape, HeadOrder, KvFormat};
use store::{LayerKind, ModelConfig};

use crate::ModelError;
use crate::state::Waypoints;

/// What the model remembers of the tokens fed so far.
pub struct Session<B: Backend> {
    pub(crate) layers: Vec<LayerState<B>>,
    /// All tokens fed, in order.
    pub(crate) ids: Vec<u32>,
    /// `[n_vocab]` after the last token.
    pub(crate) logits: Vec<f32>,
    pub(crate) n_ctx: usize,
    pub(crate) kv_format: KvFormat,
    /// Why this session cannot go on.
    pub(crate) poison: Option<String>,
    /// States that are remembered on the way.
    pub(crate) way: Waypoints,
    /// While it is taken up: keys and values of so many positions are there, whatever the ids. Else 0.
    pub(crate) n_written: usize,
}

/// Memory of one layer.
pub(crate) enum LayerState<B: Backend> {
    /// Keys (rotated) and values.
    Attention(B::Kv),
    DeltaNet(DeltaState<B>),
}

/// State of a delta-net layer.
pub(crate) struct DeltaState<B: Backend> {
    /// The last rows of qkv before the convolution, `[n_conv - 1, n_channel]`.
    pub(crate) conv: B::Tensor,
    /// `[n_head_v, head_dim_k, head_dim_v]`
    pub(crate) s: B::Tensor,
}

impl<B: Backend> Session<B> {
    pub(crate) fn new(backend: &B, config: &ModelConfig, kv_format: KvFormat, n_ctx: usize) -> Self {
        let layer = |kind: &LayerKind| match kind {
            LayerKind::FullAttention => {
                LayerState::Attention(backend.kv(attention_shape(config), kv_format, n_ctx))
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
            kv_format,
            poison: None,
            way: Waypoints::default(),
            n_written: 0,
        }
    }

    /// Positions that have keys and values.
    pub(crate) fn n_held(&self) -> usize {
        self.ids.len().max(self.n_written)
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

    /// How its keys and values are stored.
    pub fn kv_format(&self) -> KvFormat {
        self.kv_format
    }

    /// Logits after the last token, `[n_vocab]`.
    pub fn logits(&self) -> &[f32] {
        &self.logits
    }

    /// Why it cannot go on, if an error has left its state undefined.
    pub fn failure(&self) -> Option<&str> {
        self.poison.as_deref()
    }

    /// Refuses to go on after an error that left the state undefined.
    pub(crate) fn check_usable(&self) -> Result<(), ModelError> {
        match &self.poison {
            Some(why) => Err(ModelError::Poisoned { why: why.clone() }),
            None => Ok(()),
        }
    }
}

/// The sessions of a batch that are still well, in order. A batch has as many tokens of each.
pub(crate) fn well<'a, 's, B: Backend>(
    sessions: &'a mut [&'s mut Session<B>],
) -> impl Iterator<Item = &'a mut Session<B>> + use<'a, 's, B> {
    sessions.iter_mut().map(|session| &mut **session).filter(|session| session.poison.is_none())
}

/// Shapes of the full-attention layers.
pub(crate) fn attention_shape(config: &ModelConfig) -> AttentionShape {
    AttentionShape {
        n_head: config.n_head,
        n_head_kv: config.n_head_kv,
        head_dim: config.head_dim,
        gated: config.attention_gate,
    }
}

/// Shapes of the delta-net layers, if there are any.
pub(crate) fn delta_shape(config: &ModelConfig) -> Option<DeltaShape> {
    config.linear.map(|l| DeltaShape {
        n_head_k: l.n_head_k,
        n_head_v: l.n_head_v,
        head_dim_k: l.head_dim_k,
        head_dim_v: l.head_dim_v,
        n_conv: l.n_conv,
        out_order: if l.out_heads_tiled { HeadOrder::Tiled } else { HeadOrder::Grouped },
    })
}

/// Floats of `conv` and `s` of one delta-net layer.
pub(crate) fn state_lens(config: &ModelConfig) -> (usize, usize) {
    let l = config.linear.expect("checked when the store was opened");
    ((l.n_conv - 1) * l.n_channel(), l.n_head_v * l.head_dim_k * l.head_dim_v)
}
