//! What the forward pass needs to know about a model: shapes and switches, no tensor names.
//!
//! Also the one table of which dense tensors a configuration calls for, and the limits that keep sizes computed from
//! a hostile configuration inside 64 bits.

use serde::{Deserialize, Serialize};

use crate::Role;

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
    /// Columns of [`Role::LinearOut`] are in the order of GGUF files: value head `g·r + i`, the `i`-th of the `r` of
    /// key head `g`, has columns from `(i·n_head_k + g)·head_dim_v` on. Rows of all other tensors have head `j` at
    /// place `j`.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub out_heads_tiled: bool,
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

/// A dense tensor that a configuration calls for: `[rows, cols]`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DenseShape {
    /// What it is for.
    pub role: Role,
    /// Its layer; `None` for embedding, head and final norm.
    pub layer: Option<usize>,
    /// Outputs.
    pub rows: usize,
    /// Inputs.
    pub cols: usize,
}

// Bounds of a configuration: ten times the largest known model and more, small enough that no product of two widths,
// of a matrix's bytes and a number of experts, or of heads and head width overflows 64 bits.
const N_LAYER_MAX: usize = 4096;
const N_EXPERT_MAX: usize = 1 << 16;
const WIDTH_MAX: usize = 1 << 20;
const N_VOCAB_MAX: usize = 1 << 24;
const N_CTX_MAX: usize = 1 << 32;
const N_CONV_MAX: usize = 1 << 10;

impl ModelConfig {
    /// Layers.
    pub fn n_layer(&self) -> usize {
        self.layers.len()
    }

    /// Layers of a kind.
    pub fn n_layer_of(&self, kind: LayerKind) -> usize {
        self.layers.iter().filter(|&&k| k == kind).count()
    }

    /// The dense tensors that this model has, each once: embedding, head and final norm, then layer by layer.
    pub fn dense_shapes(&self) -> Vec<DenseShape> {
        let d = self.d_model;
        let mut shapes = Vec::new();
        let mut add = |role, layer, rows, cols| shapes.push(DenseShape { role, layer, rows, cols });
        add(Role::Embed, None, self.n_vocab, d);
        if !self.tie_word_embeddings {
            add(Role::LmHead, None, self.n_vocab, d);
        }
        add(Role::FinalNorm, None, 1, d);
        for (layer, kind) in self.layers.iter().enumerate() {
            let mut add = |role, rows, cols| add(role, Some(layer), rows, cols);
            add(Role::InputNorm, 1, d);
            add(Role::PostAttentionNorm, 1, d);
            match kind {
                LayerKind::FullAttention => self.add_full_attention(&mut add),
                LayerKind::LinearAttention => self.add_linear_attention(&mut add),
            }
            add(Role::Router, self.n_expert, d);
            if self.d_ff_shared > 0 {
                add(Role::SharedGate, self.d_ff_shared, d);
                add(Role::SharedUp, self.d_ff_shared, d);
                add(Role::SharedDown, d, self.d_ff_shared);
                add(Role::SharedExpertGate, 1, d);
            }
        }
        shapes
    }

    fn add_full_attention(&self, add: &mut impl FnMut(Role, usize, usize)) {
        let (d, d_q, d_kv) = (self.d_model, self.n_head * self.head_dim, self.n_head_kv * self.head_dim);
        add(Role::AttnQ, if self.attention_gate { 2 * d_q } else { d_q }, d);
        add(Role::AttnK, d_kv, d);
        add(Role::AttnV, d_kv, d);
        add(Role::AttnO, d, d_q);
        add(Role::AttnQNorm, 1, self.head_dim);
        add(Role::AttnKNorm, 1, self.head_dim);
    }

    /// Adds nothing if the shapes are absent, which [`ModelConfig::check`] refuses.
    fn add_linear_attention(&self, add: &mut impl FnMut(Role, usize, usize)) {
        let Some(linear) = &self.linear else { return };
        let d = self.d_model;
        add(Role::LinearQkv, linear.n_channel(), d);
        add(Role::LinearZ, linear.d_v(), d);
        add(Role::LinearB, linear.n_head_v, d);
        add(Role::LinearA, linear.n_head_v, d);
        add(Role::LinearConv, linear.n_channel(), linear.n_conv);
        add(Role::LinearALog, 1, linear.n_head_v);
        add(Role::LinearDtBias, 1, linear.n_head_v);
        add(Role::LinearNorm, 1, linear.head_dim_v);
        add(Role::LinearOut, d, linear.d_v());
    }

    /// Checks that the numbers are within bounds and fit each other.
    ///
    /// # Errors
    /// What is wrong, naming the field and its value.
    pub fn check(&self) -> Result<(), String> {
        within("layers", self.n_layer(), 1, N_LAYER_MAX)?;
        within("n_vocab", self.n_vocab, 1, N_VOCAB_MAX)?;
        within("n_ctx_train", self.n_ctx_train, 1, N_CTX_MAX)?;
        within("d_model", self.d_model, 1, WIDTH_MAX)?;
        within("n_expert", self.n_expert, 1, N_EXPERT_MAX)?;
        within("n_expert_used", self.n_expert_used, 1, self.n_expert)?;
        within("d_ff_expert", self.d_ff_expert, 1, WIDTH_MAX)?;
        within("d_ff_shared", self.d_ff_shared, 0, WIDTH_MAX)?;
        self.check_full_attention()?;
        match &self.linear {
            Some(linear) => linear.check()?,
            None if self.n_layer_of(LayerKind::LinearAttention) > 0 => {
                return Err("layers has linear_attention but linear, their shapes, is absent".into());
            }
            None => {}
        }
        positive("rms_norm_eps", self.rms_norm_eps)?;
        positive("rope_theta", self.rope_theta)?;
        if let Some(scaling) = &self.rope_scaling {
            positive("rope_scaling.factor", scaling.factor)?;
            within("rope_scaling.n_ctx_original", scaling.n_ctx_original, 1, N_CTX_MAX)?;
        }
        Ok(())
    }

    fn check_full_attention(&self) -> Result<(), String> {
        within("n_head", self.n_head, 1, WIDTH_MAX)?;
        within("n_head_kv", self.n_head_kv, 1, WIDTH_MAX)?;
        within("head_dim", self.head_dim, 1, WIDTH_MAX)?;
        within("n_head·head_dim", self.n_head * self.head_dim, 1, WIDTH_MAX)?;
        multiple("n_head", self.n_head, "n_head_kv", self.n_head_kv)?;
        within("n_rot", self.n_rot, 2, self.head_dim)?;
        multiple("n_rot", self.n_rot, "the size of a pair", 2)
    }
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

    fn check(&self) -> Result<(), String> {
        within("linear.n_head_k", self.n_head_k, 1, WIDTH_MAX)?;
        within("linear.n_head_v", self.n_head_v, 1, WIDTH_MAX)?;
        within("linear.head_dim_k", self.head_dim_k, 1, WIDTH_MAX)?;
        within("linear.head_dim_v", self.head_dim_v, 1, WIDTH_MAX)?;
        within("linear.n_head_k·head_dim_k", self.n_head_k * self.head_dim_k, 1, WIDTH_MAX)?;
        within("linear.n_head_v·head_dim_v", self.d_v(), 1, WIDTH_MAX)?;
        within("linear.n_conv", self.n_conv, 1, N_CONV_MAX)?;
        multiple("linear.n_head_v", self.n_head_v, "linear.n_head_k", self.n_head_k)
    }
}

fn within(name: &str, value: usize, min: usize, max: usize) -> Result<(), String> {
    if (min..=max).contains(&value) {
        Ok(())
    } else {
        Err(format!("{name} is {value}, allowed is {min} to {max}"))
    }
}

fn multiple(name: &str, value: usize, of_name: &str, of: usize) -> Result<(), String> {
    if value.is_multiple_of(of) {
        Ok(())
    } else {
        Err(format!("{name} is {value}, not a multiple of {of_name}, {of}"))
    }
}

fn positive(name: &str, value: f64) -> Result<(), String> {
    if value.is_finite() && value > 0.0 {
        Ok(())
    } else {
        Err(format!("{name} is {value}, must be above zero"))
    }
}
