//! Metadata of a GGUF file -> [`ModelConfig`]. Nothing that shapes or arithmetic depend on has a default.

use store::{Architecture, LayerKind, LinearAttention, ModelConfig, RopeScaling};

use super::metadata::Metadata;
use crate::ConvertError;
use crate::config::N_EXPERT_TOTAL_MAX;

const SUPPORTED: &str = "supported: qwen35moe, qwen3next, qwen3moe";

/// What only the tensors tell.
pub(super) struct FromTensors {
    /// Rows of the embedding, if there is one.
    pub(super) n_vocab: Option<u64>,
    /// There is no `output.weight`.
    pub(super) tie_word_embeddings: bool,
}

/// The configuration, and how many blocks the file has with those for multi-token prediction.
pub(super) fn read(metadata: &Metadata, tensors: &FromTensors) -> Result<(ModelConfig, usize), ConvertError> {
    let architecture = architecture(metadata)?;
    refuse_unimplemented(metadata)?;
    let Some(n_vocab) = tensors.n_vocab.and_then(|n| usize::try_from(n).ok()) else {
        return Err(metadata.invalid("tensor token_embd.weight is missing".into()));
    };
    let n_block = metadata.size("block_count")?;
    let n_mtp = metadata.integer(&metadata.key("nextn_predict_layers"))?.unwrap_or(0) as usize;
    let Some(n_layer) = n_block.checked_sub(n_mtp).filter(|&n| n > 0) else {
        let why = format!("block_count is {n_block}, nextn_predict_layers {n_mtp}: no layer is left");
        return Err(metadata.invalid(why));
    };
    let is_hybrid = architecture != Architecture::Qwen3Moe;
    let layers = layers(metadata, n_layer, is_hybrid)?;
    let head_dim = head_dim(metadata)?;
    let has_linear = layers.contains(&LayerKind::LinearAttention);
    let config = ModelConfig {
        architecture,
        d_model: metadata.size("embedding_length")?,
        n_vocab,
        n_ctx_train: metadata.size("context_length")?,
        rms_norm_eps: metadata.positive("attention.layer_norm_rms_epsilon")?,
        linear: if has_linear { Some(linear(metadata, architecture)?) } else { None },
        layers,
        n_head: metadata.size_of_layers("attention.head_count")?,
        n_head_kv: metadata.size_of_layers("attention.head_count_kv")?,
        head_dim,
        attention_gate: is_hybrid,
        n_rot: n_rot(metadata, head_dim, is_hybrid)?,
        rope_theta: metadata.positive("rope.freq_base")?,
        rope_scaling: rope_scaling(metadata)?,
        n_expert: metadata.size("expert_count")?,
        n_expert_used: metadata.size("expert_used_count")?,
        norm_topk_prob: metadata.bool(&metadata.key("expert_weights_norm"))?.unwrap_or(true),
        d_ff_expert: metadata.size("expert_feed_forward_length")?,
        d_ff_shared: if is_hybrid { metadata.size("expert_shared_feed_forward_length")? } else { 0 },
        tie_word_embeddings: tensors.tie_word_embeddings,
    };
    config.check().map_err(|why| metadata.invalid(why))?;
    if config.n_layer() * config.n_expert > N_EXPERT_TOTAL_MAX {
        let why = format!("{} layers of {} experts are not believable", config.n_layer(), config.n_expert);
        return Err(metadata.invalid(why));
    }
    Ok((config, n_block))
}

fn architecture(metadata: &Metadata) -> Result<Architecture, ConvertError> {
    let what = match metadata.architecture()? {
        "qwen35moe" => return Ok(Architecture::Qwen35Moe),
        "qwen3next" => return Ok(Architecture::Qwen3Next),
        "qwen3moe" => return Ok(Architecture::Qwen3Moe),
        "clip" => "this file is a vision encoder (mmproj), not a language model".to_owned(),
        other => format!("architecture {other:?} is not supported"),
    };
    Err(metadata.unsupported(format!("{what}; {SUPPORTED}")))
}

/// Keys that would change the arithmetic, and the values that do not.
fn refuse_unimplemented(metadata: &Metadata) -> Result<(), ConvertError> {
    let accepted: [(&str, &[f64]); 10] = [
        ("expert_weights_scale", &[0.0, 1.0]), // 0 is "not set"
        ("expert_gating_func", &[0.0, 1.0]),   // not set, softmax
        ("expert_group_count", &[0.0, 1.0]),
        ("leading_dense_block_count", &[0.0]),
        ("attention.sliding_window", &[0.0]),
        ("attention.max_alibi_bias", &[0.0]),
        ("attention.clamp_kqv", &[0.0]),
        ("attn_logit_softcapping", &[0.0]),
        ("final_logit_softcapping", &[0.0]),
        ("logit_scale", &[0.0, 1.0]),
    ];
    for (name, values) in accepted {
        let key = metadata.key(name);
        if let Some(value) = metadata.float(&key)?.filter(|value| !values.contains(value)) {
            return Err(metadata.unsupported(format!("{key} {value} is not supported")));
        }
    }
    Ok(())
}

/// Full attention at every `full_attention_interval`-th layer, everywhere in models without linear attention.
fn layers(metadata: &Metadata, n_layer: usize, is_hybrid: bool) -> Result<Vec<LayerKind>, ConvertError> {
    if !is_hybrid {
        return Ok(vec![LayerKind::FullAttention; n_layer]);
    }
    // The first converters left it out for Qwen3-Next, whose configurations do so too; shapes tell if it is wrong.
    let interval = metadata.optional_size("full_attention_interval")?.unwrap_or(4);
    let kind = |i: usize| match (i + 1).is_multiple_of(interval) {
        true => LayerKind::FullAttention,
        false => LayerKind::LinearAttention,
    };
    Ok((0..n_layer).map(kind).collect())
}

fn head_dim(metadata: &Metadata) -> Result<usize, ConvertError> {
    let [key, value] = ["attention.key_length", "attention.value_length"].map(|name| metadata.size(name));
    let (key, value) = (key?, value?);
    if key == value {
        return Ok(key);
    }
    Err(metadata.unsupported(format!("heads of keys have {key} dims and of values {value}: not supported")))
}

/// Rotated dims. Models that rotate whole heads may not say it.
fn n_rot(metadata: &Metadata, head_dim: usize, is_hybrid: bool) -> Result<usize, ConvertError> {
    match metadata.optional_size("rope.dimension_count")? {
        Some(n_rot) => Ok(n_rot),
        None if is_hybrid => Err(metadata.missing(&metadata.key("rope.dimension_count"))),
        None => Ok(head_dim),
    }
}

fn linear(metadata: &Metadata, architecture: Architecture) -> Result<LinearAttention, ConvertError> {
    let (n_head_k, n_head_v) = (metadata.size("ssm.group_count")?, metadata.size("ssm.time_step_rank")?);
    let d_v = metadata.size("ssm.inner_size")?;
    if !d_v.is_multiple_of(n_head_v) {
        let why = format!("ssm.inner_size is {d_v}, no multiple of ssm.time_step_rank, {n_head_v}");
        return Err(metadata.invalid(why));
    }
    Ok(LinearAttention {
        n_head_k,
        n_head_v,
        head_dim_k: metadata.size("ssm.state_size")?,
        head_dim_v: d_v / n_head_v,
        n_conv: metadata.size("ssm.conv_kernel")?,
        // With one value head a key head, or one key head, both orders are the same.
        out_heads_tiled: architecture == Architecture::Qwen35Moe && n_head_k > 1 && n_head_v > n_head_k,
    })
}

fn rope_scaling(metadata: &Metadata) -> Result<Option<RopeScaling>, ConvertError> {
    let key = |name: &str| metadata.key(&format!("rope.scaling.{name}"));
    match metadata.text(&key("type"))? {
        None | Some("none") => return Ok(None),
        Some("yarn") => {}
        Some(other) => {
            let what = format!("{} {other} is not supported (none and yarn are)", key("type"));
            return Err(metadata.unsupported(what));
        }
    }
    let defaults = [
        ("attn_factor", 1.0),
        ("yarn_attn_factor", 1.0),
        ("yarn_ext_factor", 1.0),
        ("yarn_beta_fast", 32.0),
        ("yarn_beta_slow", 1.0),
        ("yarn_log_multiplier", 0.0),
    ];
    for (name, default) in defaults {
        if let Some(value) = metadata.float(&key(name))?.filter(|value| *value != default) {
            return Err(metadata.unsupported(format!("yarn with {} {value} is not supported", key(name))));
        }
    }
    Ok(Some(RopeScaling {
        factor: metadata.positive("rope.scaling.factor")?,
        n_ctx_original: metadata.size("rope.scaling.original_context_length")?,
    }))
}
