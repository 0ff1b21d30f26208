//! `config.json` -> [`ModelConfig`].
//!
//! Shape fields have no defaults: a library that fell back to class defaults broke conversions. Whatever would
//! change the arithmetic and is not implemented is refused by name.

use std::path::{Path, PathBuf};

use serde_json::Value;
use store::{Architecture, LayerKind, LinearAttention, ModelConfig, RopeScaling};

use crate::ConvertError;

/// Larger fields are a damaged or hostile file; closer bounds are [`ModelConfig::check`]'s.
const FIELD_MAX: u64 = 1 << 24;
/// Experts of all layers together: twenty times the largest known model.
pub(crate) const N_EXPERT_TOTAL_MAX: usize = 1 << 20;

const SUPPORTED: &str = "supported: qwen3_5_moe, qwen3_5_moe_text, qwen3_next, qwen3_moe";

/// The file and the two places where text fields may be.
struct Source<'a> {
    path: &'a Path,
    top: &'a Value,
    /// `text_config` of multimodal checkpoints, else the file itself.
    text: &'a Value,
}

/// The file's object. `path` is for messages only.
///
/// # Errors
/// It is not JSON, or not an object.
pub(crate) fn parse(path: &Path, json: &[u8]) -> Result<Value, ConvertError> {
    let invalid = |why: String| ConvertError::Config { path: path.to_owned(), why };
    let top: Value = serde_json::from_slice(json).map_err(|e| invalid(format!("not valid JSON: {e}")))?;
    if top.is_object() { Ok(top) } else { Err(invalid("not a JSON object".into())) }
}

/// Reads a configuration out of the file's object. `path` is for messages only.
///
/// # Errors
/// A missing field, a value of the wrong kind, an architecture or a switch that is not implemented.
pub(crate) fn read(path: &Path, top: &Value) -> Result<ModelConfig, ConvertError> {
    let text = top.get("text_config").filter(|t| t.is_object()).unwrap_or(top);
    let source = Source { path, top, text };
    let architecture = source.architecture()?;
    source.refuse_unimplemented(architecture)?;
    source.model(architecture)
}

impl Source<'_> {
    fn model(&self, architecture: Architecture) -> Result<ModelConfig, ConvertError> {
        let is_hybrid = architecture != Architecture::Qwen3Moe;
        let layers = self.layers(is_hybrid)?;
        let has_linear = layers.contains(&LayerKind::LinearAttention);
        let head_dim = self.size("head_dim")?;
        let config = ModelConfig {
            architecture,
            d_model: self.size("hidden_size")?,
            n_vocab: self.size("vocab_size")?,
            n_ctx_train: self.size("max_position_embeddings")?,
            rms_norm_eps: self
                .positive(self.text, "rms_norm_eps")?
                .ok_or_else(|| self.missing("rms_norm_eps"))?,
            linear: if has_linear { Some(self.linear()?) } else { None },
            layers,
            n_head: self.size("num_attention_heads")?,
            n_head_kv: self.size("num_key_value_heads")?,
            head_dim,
            attention_gate: is_hybrid,
            n_rot: self.n_rot(head_dim, if is_hybrid { 0.25 } else { 1.0 })?,
            rope_theta: self.rope_field("rope_theta")?.ok_or_else(|| self.missing("rope_theta"))?,
            rope_scaling: self.rope_scaling()?,
            n_expert: self.n_expert()?,
            n_expert_used: self.size("num_experts_per_tok")?,
            norm_topk_prob: self.norm_topk_prob(architecture)?,
            d_ff_expert: self.size("moe_intermediate_size")?,
            d_ff_shared: if is_hybrid { self.size("shared_expert_intermediate_size")? } else { 0 },
            tie_word_embeddings: self.either_flag("tie_word_embeddings")?.unwrap_or(false),
        };
        config.check().map_err(|why| self.invalid(why))?;
        if config.n_layer() * config.n_expert > N_EXPERT_TOTAL_MAX {
            let why =
                format!("{} layers of {} experts are not believable", config.n_layer(), config.n_expert);
            return Err(self.invalid(why));
        }
        Ok(config)
    }

    fn architecture(&self) -> Result<Architecture, ConvertError> {
        let model_type = self.top.get("model_type").or(self.text.get("model_type")).and_then(Value::as_str);
        let what = match model_type {
            Some("qwen3_5_moe" | "qwen3_5_moe_text") => return Ok(Architecture::Qwen35Moe),
            Some("qwen3_next") => return Ok(Architecture::Qwen3Next),
            Some("qwen3_moe") => return Ok(Architecture::Qwen3Moe),
            Some("qwen4_exp") => {
                "model_type qwen4_exp is another architecture (hyper-connections, n-gram embeddings)"
                    .to_owned()
            }
            Some(dense @ ("qwen3_5" | "qwen3_5_text")) => {
                format!("model_type {dense} is a dense model, it has no experts")
            }
            Some(other) => format!("model_type {other} is not supported"),
            None => return Err(self.missing("model_type")),
        };
        Err(self.unsupported(format!("{what}; {SUPPORTED}")))
    }

    /// Switches that would change the arithmetic.
    fn refuse_unimplemented(&self, architecture: Architecture) -> Result<(), ConvertError> {
        let refuse =
            |key: &str, value: &Value| Err(self.unsupported(format!("{key} {value} is not supported")));
        type Accepts = fn(&Value) -> bool;
        let accepted: [(&str, Accepts); 5] = [
            ("hidden_act", |v| v == "silu"),
            ("output_gate_type", |v| v == "swish" || v == "silu"),
            ("attention_bias", |v| v == false),
            ("use_sliding_window", |v| v == false),
            ("mlp_only_layers", |v| v.as_array().is_some_and(Vec::is_empty)),
        ];
        for (key, accepts) in accepted {
            if let Some(value) = present(self.text, key).filter(|v| !accepts(v)) {
                return refuse(key, value);
            }
        }
        if architecture != Architecture::Qwen3Moe
            && let Some(value) = present(self.text, "attn_output_gate").filter(|v| *v != true)
        {
            return refuse("attn_output_gate", value);
        }
        match present(self.text, "decoder_sparse_step") {
            Some(step) if step != 1 => Err(self.unsupported(format!(
                "decoder_sparse_step {step} makes dense layers, which is not supported"
            ))),
            _ => Ok(()),
        }
    }

    /// `layer_types`, else full attention at every `full_attention_interval`-th layer.
    fn layers(&self, is_hybrid: bool) -> Result<Vec<LayerKind>, ConvertError> {
        let n_layer = self.size("num_hidden_layers")?;
        let layers = match present(self.text, "layer_types") {
            Some(types) => self.layer_types(types)?,
            None if is_hybrid => {
                let interval = self.optional_size("full_attention_interval")?.unwrap_or(4);
                let kind = |i: usize| {
                    if (i + 1).is_multiple_of(interval) {
                        LayerKind::FullAttention
                    } else {
                        LayerKind::LinearAttention
                    }
                };
                (0..n_layer).map(kind).collect()
            }
            None => vec![LayerKind::FullAttention; n_layer],
        };
        if layers.len() != n_layer {
            let why = format!("layer_types has {} entries for {n_layer} num_hidden_layers", layers.len());
            return Err(self.invalid(why));
        }
        if !is_hybrid && layers.contains(&LayerKind::LinearAttention) {
            return Err(self.unsupported("layer_types: qwen3_moe has no linear_attention layers".into()));
        }
        Ok(layers)
    }

    fn layer_types(&self, types: &Value) -> Result<Vec<LayerKind>, ConvertError> {
        let types = types.as_array().ok_or_else(|| self.invalid("layer_types is not a list".into()))?;
        let kind = |t: &Value| match t.as_str() {
            Some("full_attention") => Ok(LayerKind::FullAttention),
            Some("linear_attention") => Ok(LayerKind::LinearAttention),
            _ => Err(self.unsupported(format!("layer_types: {t} is not supported"))),
        };
        types.iter().map(kind).collect()
    }

    fn linear(&self) -> Result<LinearAttention, ConvertError> {
        Ok(LinearAttention {
            n_head_k: self.size("linear_num_key_heads")?,
            n_head_v: self.size("linear_num_value_heads")?,
            head_dim_k: self.size("linear_key_head_dim")?,
            head_dim_v: self.size("linear_value_head_dim")?,
            n_conv: self.size("linear_conv_kernel_dim")?,
            out_heads_tiled: false,
        })
    }

    /// Experts a layer. Transformers 5 re-saves qwen3_moe with the second name.
    fn n_expert(&self) -> Result<usize, ConvertError> {
        let n_expert = self.optional_size("num_experts")?.or(self.optional_size("num_local_experts")?);
        n_expert.ok_or_else(|| self.missing("num_experts (or num_local_experts)"))
    }

    /// Qwen3.5 always renormalises, Qwen3-Next unless told otherwise; the Qwen3-MoE files say it.
    fn norm_topk_prob(&self, architecture: Architecture) -> Result<bool, ConvertError> {
        match (architecture, self.flag(self.text, "norm_topk_prob")?) {
            (Architecture::Qwen35Moe, _) | (Architecture::Qwen3Next, None) => Ok(true),
            (_, Some(value)) => Ok(value),
            (Architecture::Qwen3Moe, None) => Err(self.missing("norm_topk_prob")),
        }
    }

    fn n_rot(&self, head_dim: usize, default_factor: f64) -> Result<usize, ConvertError> {
        let factor = self.rope_field("partial_rotary_factor")?.unwrap_or(default_factor);
        let n_rot = head_dim as f64 * factor;
        if n_rot.fract() != 0.0 || n_rot % 2.0 != 0.0 || n_rot < 2.0 || n_rot > head_dim as f64 {
            let why = format!(
                "partial_rotary_factor {factor} of head_dim {head_dim} is not an even number of dims"
            );
            return Err(self.invalid(why));
        }
        Ok(n_rot as usize)
    }

    /// Where rotary settings may be, the most specific place first.
    fn rope_places(&self) -> impl Iterator<Item = &Value> {
        [self.text, self.top].into_iter().flat_map(|place| {
            let nested =
                ["rope_parameters", "rope_scaling"].into_iter().filter_map(|key| present(place, key));
            nested.chain(std::iter::once(place))
        })
    }

    fn rope_field(&self, key: &str) -> Result<Option<f64>, ConvertError> {
        match self.rope_places().find(|place| present(place, key).is_some()) {
            Some(place) => self.positive(place, key),
            None => Ok(None),
        }
    }

    fn rope_scaling(&self) -> Result<Option<RopeScaling>, ConvertError> {
        // `type` is the older spelling; at the top of a file it would mean something else.
        let is_nested = |place: &&Value| !std::ptr::eq(*place, self.text) && !std::ptr::eq(*place, self.top);
        let typed = |place: &Value| present(place, "rope_type").or(present(place, "type")).cloned();
        let places = || self.rope_places().filter(is_nested);
        let Some((place, rope_type)) = places().find_map(|place| Some((place, typed(place)?))) else {
            return Ok(None);
        };
        match rope_type.as_str() {
            Some("default") => return Ok(None),
            Some("yarn") => {}
            _ => {
                return Err(self
                    .unsupported(format!("rope_type {rope_type} is not supported (default and yarn are)")));
            }
        }
        let defaults = [("beta_fast", 32.0), ("beta_slow", 1.0)];
        for key in ["beta_fast", "beta_slow", "attention_factor", "mscale", "mscale_all_dim", "truncate"] {
            let default = defaults.iter().find(|(name, _)| *name == key).map(|(_, value)| *value);
            if let Some(value) = present(place, key).filter(|v| default.is_none() || v.as_f64() != default) {
                return Err(self.unsupported(format!("yarn with {key} {value} is not supported")));
            }
        }
        let original = "original_max_position_embeddings";
        Ok(Some(RopeScaling {
            factor: self.positive(place, "factor")?.ok_or_else(|| self.missing("factor (of yarn)"))?,
            n_ctx_original: match present(place, original) {
                Some(_) => self.size_in(place, original)?,
                None => return Err(self.missing("original_max_position_embeddings (of yarn)")),
            },
        }))
    }

    fn size(&self, key: &str) -> Result<usize, ConvertError> {
        self.size_in(self.text, key)
    }

    fn optional_size(&self, key: &str) -> Result<Option<usize>, ConvertError> {
        present(self.text, key).map(|_| self.size(key)).transpose()
    }

    /// A positive integer.
    fn size_in(&self, place: &Value, key: &str) -> Result<usize, ConvertError> {
        let value = present(place, key).ok_or_else(|| self.missing(key))?;
        match value.as_u64() {
            Some(n @ 1..=FIELD_MAX) => Ok(n as usize),
            _ => Err(self.invalid(format!("{key} is {value}, expected an integer from 1 to {FIELD_MAX}"))),
        }
    }

    fn positive(&self, place: &Value, key: &str) -> Result<Option<f64>, ConvertError> {
        let Some(value) = present(place, key) else { return Ok(None) };
        match value.as_f64() {
            Some(x) if x.is_finite() && x > 0.0 => Ok(Some(x)),
            _ => Err(self.invalid(format!("{key} is {value}, expected a positive number"))),
        }
    }

    fn flag(&self, place: &Value, key: &str) -> Result<Option<bool>, ConvertError> {
        let Some(value) = present(place, key) else { return Ok(None) };
        value
            .as_bool()
            .map(Some)
            .ok_or_else(|| self.invalid(format!("{key} is {value}, expected true or false")))
    }

    /// A flag of the whole checkpoint, which some files have inside `text_config` only.
    fn either_flag(&self, key: &str) -> Result<Option<bool>, ConvertError> {
        Ok(self.flag(self.top, key)?.or(self.flag(self.text, key)?))
    }

    fn invalid(&self, why: String) -> ConvertError {
        ConvertError::Config { path: self.path(), why }
    }

    fn missing(&self, key: &str) -> ConvertError {
        self.invalid(format!("field {key} is missing"))
    }

    fn unsupported(&self, what: String) -> ConvertError {
        ConvertError::Unsupported { path: self.path(), what }
    }

    fn path(&self) -> PathBuf {
        self.path.to_owned()
    }
}

/// A field that is there and not null.
pub(crate) fn present<'a>(place: &'a Value, key: &str) -> Option<&'a Value> {
    place.get(key).filter(|v| !v.is_null())
}
