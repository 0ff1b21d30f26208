//! Tiny checkpoints in the real Hugging Face layout, with random weights, written by hand.
#![allow(dead_code)] // Each test file uses its share.

pub(crate) mod gguf;
pub(crate) mod random;

use std::fs;
use std::path::{Path, PathBuf};

use half::{bf16, f16};
use serde_json::{Value, json};
use store::Architecture;

pub(crate) use self::random::Random;

pub(crate) const N_LAYER: usize = 4;
pub(crate) const N_EXPERT: usize = 4;
pub(crate) const D_MODEL: usize = 128;
pub(crate) const N_VOCAB: usize = 96;
pub(crate) const HEAD_DIM: usize = 32;
pub(crate) const N_HEAD: usize = 4;
pub(crate) const N_HEAD_KV: usize = 2;
pub(crate) const N_HEAD_K: usize = 2;
pub(crate) const N_HEAD_V: usize = 4;
pub(crate) const D_K: usize = 32; // Width of a linear key head.
pub(crate) const D_V: usize = 32; // Width of a linear value head.
pub(crate) const N_CONV: usize = 4;
pub(crate) const D_FF: usize = 64;

/// How a checkpoint is laid out.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Layout {
    pub(crate) architecture: Architecture,
    pub(crate) prefix: &'static str,
    /// Most tensors; `A_log` and `linear_attn.norm` are F32.
    pub(crate) dtype: &'static str,
    /// All experts of a layer in one tensor.
    pub(crate) is_fused: bool,
    pub(crate) is_tied: bool,
    pub(crate) n_shard: usize,
}

pub(crate) const QWEN35: Layout = Layout {
    architecture: Architecture::Qwen35Moe,
    prefix: "model.language_model.",
    dtype: "BF16",
    is_fused: true,
    is_tied: false,
    n_shard: 1,
};
pub(crate) const NEXT: Layout =
    Layout { architecture: Architecture::Qwen3Next, prefix: "model.", is_fused: false, ..QWEN35 };
pub(crate) const QWEN3: Layout = Layout { architecture: Architecture::Qwen3Moe, ..NEXT };

/// One tensor.
#[derive(Clone, Debug)]
pub(crate) struct TinyTensor {
    pub(crate) name: String,
    pub(crate) dtype: &'static str,
    pub(crate) shape: Vec<usize>,
    /// Exactly representable in `dtype`; empty if there are `bytes`.
    pub(crate) values: Vec<f32>,
    /// Of a dtype that is not numbers to us.
    pub(crate) bytes: Vec<u8>,
}

/// A checkpoint that is not on disk yet.
#[derive(Clone, Debug)]
pub(crate) struct Tiny {
    pub(crate) layout: Layout,
    pub(crate) config: Value,
    pub(crate) tensors: Vec<TinyTensor>,
}

impl Tiny {
    pub(crate) fn new(layout: Layout, seed: u64) -> Self {
        let mut tiny = Tiny { layout, config: config(layout), tensors: Vec::new() };
        let mut random = Random(seed);
        let p = layout.prefix;
        tiny.add(&mut random, format!("{p}embed_tokens.weight"), &[N_VOCAB, D_MODEL]);
        if !layout.is_tied {
            tiny.add(&mut random, "lm_head.weight".into(), &[N_VOCAB, D_MODEL]);
        }
        tiny.add(&mut random, format!("{p}norm.weight"), &[D_MODEL]);
        for layer in 0..N_LAYER {
            tiny.add_layer(&mut random, &format!("{p}layers.{layer}."), is_linear(layout, layer));
        }
        if layout.architecture == Architecture::Qwen35Moe {
            tiny.add(&mut random, "mtp.fc.weight".into(), &[D_MODEL, 2 * D_MODEL]);
            tiny.add(&mut random, "mtp.layers.0.mlp.gate.weight".into(), &[N_EXPERT, D_MODEL]);
            tiny.add(&mut random, "model.visual.patch_embed.proj.weight".into(), &[8, 3, 2, 4, 4]);
        }
        tiny
    }

    fn add_layer(&mut self, random: &mut Random, p: &str, is_linear: bool) {
        let layout = self.layout;
        let mut add = |name: &str, shape: &[usize]| self.add(random, format!("{p}{name}"), shape);
        add("input_layernorm.weight", &[D_MODEL]);
        add("post_attention_layernorm.weight", &[D_MODEL]);
        if is_linear {
            let (k, v) = (N_HEAD_K * D_K, N_HEAD_V * D_V);
            if layout.architecture == Architecture::Qwen3Next {
                add("linear_attn.in_proj_qkvz.weight", &[2 * k + 2 * v, D_MODEL]);
                add("linear_attn.in_proj_ba.weight", &[2 * N_HEAD_V, D_MODEL]);
            } else {
                add("linear_attn.in_proj_qkv.weight", &[2 * k + v, D_MODEL]);
                add("linear_attn.in_proj_z.weight", &[v, D_MODEL]);
                add("linear_attn.in_proj_b.weight", &[N_HEAD_V, D_MODEL]);
                add("linear_attn.in_proj_a.weight", &[N_HEAD_V, D_MODEL]);
            }
            add("linear_attn.conv1d.weight", &[2 * k + v, 1, N_CONV]);
            add("linear_attn.A_log", &[N_HEAD_V]);
            add("linear_attn.dt_bias", &[N_HEAD_V]);
            add("linear_attn.norm.weight", &[D_V]);
            add("linear_attn.out_proj.weight", &[D_MODEL, v]);
        } else {
            let gate = if layout.architecture == Architecture::Qwen3Moe { 1 } else { 2 };
            add("self_attn.q_proj.weight", &[gate * N_HEAD * HEAD_DIM, D_MODEL]);
            add("self_attn.k_proj.weight", &[N_HEAD_KV * HEAD_DIM, D_MODEL]);
            add("self_attn.v_proj.weight", &[N_HEAD_KV * HEAD_DIM, D_MODEL]);
            add("self_attn.o_proj.weight", &[D_MODEL, N_HEAD * HEAD_DIM]);
            add("self_attn.q_norm.weight", &[HEAD_DIM]);
            add("self_attn.k_norm.weight", &[HEAD_DIM]);
        }
        add("mlp.gate.weight", &[N_EXPERT, D_MODEL]);
        if layout.is_fused {
            add("mlp.experts.gate_up_proj", &[N_EXPERT, 2 * D_FF, D_MODEL]);
            add("mlp.experts.down_proj", &[N_EXPERT, D_MODEL, D_FF]);
        } else {
            for expert in 0..N_EXPERT {
                add(&format!("mlp.experts.{expert}.gate_proj.weight"), &[D_FF, D_MODEL]);
                add(&format!("mlp.experts.{expert}.up_proj.weight"), &[D_FF, D_MODEL]);
                add(&format!("mlp.experts.{expert}.down_proj.weight"), &[D_MODEL, D_FF]);
            }
        }
        if layout.architecture != Architecture::Qwen3Moe {
            add("mlp.shared_expert.gate_proj.weight", &[D_FF, D_MODEL]);
            add("mlp.shared_expert.up_proj.weight", &[D_FF, D_MODEL]);
            add("mlp.shared_expert.down_proj.weight", &[D_MODEL, D_FF]);
            add("mlp.shared_expert_gate.weight", &[1, D_MODEL]);
        }
    }

    /// Adds a tensor of random values.
    pub(crate) fn add(&mut self, random: &mut Random, name: String, shape: &[usize]) {
        let is_f32 = name.ends_with("A_log") || name.ends_with("linear_attn.norm.weight");
        let dtype = if is_f32 { "F32" } else { self.layout.dtype };
        let n = shape.iter().product();
        let values = (0..n).map(|_| round(dtype, random.centred())).collect();
        self.tensors.push(TinyTensor { name, dtype, shape: shape.to_vec(), values, bytes: Vec::new() });
    }

    pub(crate) fn tensor(&self, name: &str) -> &TinyTensor {
        self.tensors.iter().find(|t| t.name == name).unwrap_or_else(|| panic!("no tensor {name}"))
    }

    pub(crate) fn tensor_mut(&mut self, name: &str) -> &mut TinyTensor {
        self.tensors.iter_mut().find(|t| t.name == name).unwrap_or_else(|| panic!("no tensor {name}"))
    }

    pub(crate) fn remove(&mut self, name: &str) {
        self.tensors.retain(|t| t.name != name);
    }

    /// The text fields of the configuration, wherever they are.
    pub(crate) fn text_config(&mut self) -> &mut Value {
        if self.config.get("text_config").is_some() {
            &mut self.config["text_config"]
        } else {
            &mut self.config
        }
    }

    /// Writes the folder: configuration, tokenizer, shards, and an index if there are several.
    pub(crate) fn write(&self, dir: &Path) {
        fs::create_dir_all(dir).unwrap();
        fs::write(dir.join("config.json"), self.config.to_string()).unwrap();
        fs::write(dir.join("tokenizer.json"), "{}").unwrap();
        let n = self.layout.n_shard;
        if n == 1 {
            return write_shard(&dir.join("model.safetensors"), &self.tensors);
        }
        let mut index = serde_json::Map::new();
        for (i, tensors) in self.tensors.chunks(self.tensors.len().div_ceil(n)).enumerate() {
            let name = shard_name(i, n);
            write_shard(&dir.join(&name), tensors);
            index.extend(tensors.iter().map(|t| (t.name.clone(), json!(name))));
        }
        let index = json!({"metadata": {"total_size": 0}, "weight_map": index});
        fs::write(dir.join("model.safetensors.index.json"), index.to_string()).unwrap();
    }
}

pub(crate) fn shard_name(i: usize, n: usize) -> String {
    format!("model-{:05}-of-{n:05}.safetensors", i + 1)
}

pub(crate) fn is_linear(layout: Layout, layer: usize) -> bool {
    layout.architecture != Architecture::Qwen3Moe && !(layer + 1).is_multiple_of(4)
}

fn config(layout: Layout) -> Value {
    let is_hybrid = layout.architecture != Architecture::Qwen3Moe;
    let mut text = json!({
        "vocab_size": N_VOCAB, "hidden_size": D_MODEL, "num_hidden_layers": N_LAYER, "num_attention_heads": N_HEAD,
        "num_key_value_heads": N_HEAD_KV, "head_dim": HEAD_DIM, "hidden_act": "silu", "max_position_embeddings": 4096,
        "rms_norm_eps": 1e-6, "attention_bias": false, "mlp_only_layers": [], "num_experts": N_EXPERT,
        "num_experts_per_tok": 2, "moe_intermediate_size": D_FF, "tie_word_embeddings": layout.is_tied,
    });
    let mut extend = |more: Value| text.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    if is_hybrid {
        extend(json!({
            "full_attention_interval": 4, "linear_conv_kernel_dim": N_CONV, "linear_key_head_dim": D_K,
            "linear_value_head_dim": D_V, "linear_num_key_heads": N_HEAD_K, "linear_num_value_heads": N_HEAD_V,
            "shared_expert_intermediate_size": D_FF,
        }));
    }
    if layout.architecture == Architecture::Qwen35Moe {
        extend(json!({
            "model_type": "qwen3_5_moe_text", "attn_output_gate": true,
            "rope_parameters": {"rope_type": "default", "rope_theta": 1e7, "partial_rotary_factor": 0.25},
        }));
        return json!({"model_type": "qwen3_5_moe", "text_config": text, "tie_word_embeddings": layout.is_tied});
    }
    extend(json!({
        "model_type": layout.architecture.name(), "rope_theta": 1e6, "rope_scaling": null, "norm_topk_prob": true,
        "decoder_sparse_step": 1,
    }));
    text
}

pub(crate) fn write_shard(path: &Path, tensors: &[TinyTensor]) {
    let mut header = serde_json::Map::new();
    header.insert("__metadata__".into(), json!({"format": "pt"}));
    let mut data = Vec::new();
    for tensor in tensors {
        let start = data.len();
        data.extend_from_slice(&tensor.bytes);
        data.extend(to_bytes(tensor.dtype, &tensor.values));
        let entry =
            json!({"dtype": tensor.dtype, "shape": tensor.shape, "data_offsets": [start, data.len()]});
        header.insert(tensor.name.clone(), entry);
    }
    fs::write(path, container(&Value::Object(header).to_string(), &data)).unwrap();
}

/// Length, header padded to 8 bytes, data.
pub(crate) fn container(header: &str, data: &[u8]) -> Vec<u8> {
    let padded = format!("{header}{}", " ".repeat(header.len().next_multiple_of(8) - header.len()));
    [&(padded.len() as u64).to_le_bytes()[..], padded.as_bytes(), data].concat()
}

fn to_bytes(dtype: &str, values: &[f32]) -> Vec<u8> {
    match dtype {
        "BF16" => values.iter().flat_map(|&w| bf16::from_f32(w).to_le_bytes()).collect(),
        "F16" => values.iter().flat_map(|&w| f16::from_f32(w).to_le_bytes()).collect(),
        "F32" => values.iter().flat_map(|&w| w.to_le_bytes()).collect(),
        // Only its name is looked at, or the tensor has bytes.
        _ => vec![0; values.len()],
    }
}

pub(crate) fn round(dtype: &str, w: f32) -> f32 {
    match dtype {
        "BF16" => bf16::from_f32(w).to_f32(),
        "F16" => f16::from_f32(w).to_f32(),
        _ => w,
    }
}

/// Every file below a folder with its contents, sorted.
pub(crate) fn tree(dir: &Path) -> Vec<(PathBuf, Vec<u8>)> {
    let mut found = Vec::new();
    let mut folders = vec![dir.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else {
                found.push((path.strip_prefix(dir).unwrap().to_owned(), fs::read(&path).unwrap()));
            }
        }
    }
    found.sort();
    found
}
