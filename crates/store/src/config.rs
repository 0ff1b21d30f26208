//! What the forward pass needs to know about a model: shapes and switches, no tensor names.

use serde::{Deserialize, Serialize};

/// The families that share this engine. Serialised by the name that checkpoints use as `model_type`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Architecture {
    /// Qwen3.5 / Qwen3.6 / Qwen3.8 MoE: Gated DeltaNet and gated full attention, shared expert.
    #[serde(rename = "qwen3_5_moe")]
    Qwen35Moe,
    /// Qwen3-Next: the same blocks.
    #[serde(rename = "qwen3_next")]
    Qwen3Next,
    /// Qwen3-MoE: plain full attention everywhere, no shared expert.
    #[serde(rename = "qwen3_moe")]
    Qwen3Moe,
}

/// How a layer mixes tokens.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LayerKind {
    /// Gated DeltaNet.
    LinearAttention,
    /// Softmax attention over the whole context.
    FullAttention,
}

/// Shapes of the Gated DeltaNet layers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LinearAttention {
    /// Heads of q and k.
    pub n_head_k: usize,
    /// Heads of v, z, b and a; a multiple of `n_head_k`.
    pub n_head_v: usize,
    /// Width of a q or k head.
    pub head_dim_k: usize,
    /// Width of a v head.
    pub head_dim_v: usize,
    /// Taps of the causal convolution.
    pub n_conv: usize,
}

impl LinearAttention {
    /// Channels that the convolution covers: q, k and v.
    pub fn n_channel(&self) -> usize {
        2 * self.n_head_k * self.head_dim_k + self.d_v()
    }

    /// Width of v, z and the mixed output.
    pub fn d_v(&self) -> usize {
        self.n_head_v * self.head_dim_v
    }
}

/// YaRN context extension.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RopeScaling {
    /// How many times longer than `n_ctx_original`.
    pub factor: f64,
    /// Context the model was trained with.
    pub n_ctx_original: usize,
}

/// A model's shapes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ModelConfig {
    /// Family.
    pub architecture: Architecture,
    /// Width of the residual stream.
    pub d_model: usize,
    /// Rows of the embedding and of the head.
    pub n_vocab: usize,
    /// Longest context the model is meant for.
    pub n_ctx_train: usize,
    /// ε of every norm.
    pub rms_norm_eps: f64,
    /// One entry a layer.
    pub layers: Vec<LayerKind>,
    /// Query heads of full attention.
    pub n_head: usize,
    /// Key/value heads of full attention.
    pub n_head_kv: usize,
    /// Width of a head of full attention.
    pub head_dim: usize,
    /// Full attention has an output gate interleaved with q, per head `[q | gate]`.
    pub attention_gate: bool,
    /// Leading dims of a head that are rotated.
    pub n_rot: usize,
    /// Base of the rotary frequencies.
    pub rope_theta: f64,
    /// YaRN, if the checkpoint asks for it.
    pub rope_scaling: Option<RopeScaling>,
    /// Shapes of the linear-attention layers; absent if there are none.
    pub linear: Option<LinearAttention>,
    /// Routed experts a layer.
    pub n_expert: usize,
    /// Experts a token uses.
    pub n_expert_used: usize,
    /// The weights of the selected experts sum to one.
    pub norm_topk_prob: bool,
    /// Width of a routed expert.
    pub d_ff_expert: usize,
    /// Width of the shared expert; 0 if there is none.
    pub d_ff_shared: usize,
    /// The head is the embedding matrix.
    pub tie_word_embeddings: bool,
}

impl ModelConfig {
    /// Layers.
    pub fn n_layer(&self) -> usize {
        self.layers.len()
    }

    /// Layers of a kind.
    pub fn n_layer_of(&self, kind: LayerKind) -> usize {
        self.layers.iter().filter(|&&k| k == kind).count()
    }
}
