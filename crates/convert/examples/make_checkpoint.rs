//! Writes a random BF16 checkpoint at the shapes of Qwen3.5-35B-A3B in the real sharded layout, to measure `pack`
//! without a download. `make_checkpoint OUT N_LAYER`; a layer has 1.7 GB, embedding and head have 1 GB each.

use std::env;
use std::fs::{self, File};
use std::io::{BufWriter, Write};
use std::path::Path;

use serde_json::{Map, json};

const D_MODEL: u64 = 2048;
const N_VOCAB: u64 = 248_320;
const N_EXPERT: u64 = 256;
const D_FF: u64 = 512;
const PREFIX: &str = "model.language_model.";

type Error = Box<dyn std::error::Error>;

fn main() -> Result<(), Error> {
    let args: Vec<String> = env::args().collect();
    let [_, out, n_layer] = args.as_slice() else { return Err("usage: make_checkpoint OUT N_LAYER".into()) };
    let (out, n_layer) = (Path::new(out), n_layer.parse()?);
    fs::create_dir_all(out)?;
    fs::write(out.join("config.json"), config(n_layer).to_string())?;
    let n_shard = n_layer + 1;
    let mut index = Map::new();
    for shard in 0..n_shard {
        let name = format!("model-{:05}-of-{n_shard:05}.safetensors", shard + 1);
        let tensors = if shard < n_layer { layer(shard) } else { outside_layers() };
        write_shard(&out.join(&name), &tensors, shard as u64)?;
        index.extend(tensors.into_iter().map(|(tensor, ..)| (tensor, json!(name))));
    }
    let index = json!({"metadata": {}, "weight_map": index});
    fs::write(out.join("model.safetensors.index.json"), index.to_string())?;
    Ok(())
}

fn config(n_layer: usize) -> serde_json::Value {
    let text = json!({
        "model_type": "qwen3_5_moe_text", "vocab_size": N_VOCAB, "hidden_size": D_MODEL, "num_hidden_layers": n_layer,
        "num_attention_heads": 16, "num_key_value_heads": 2, "head_dim": 256, "hidden_act": "silu",
        "max_position_embeddings": 262_144, "rms_norm_eps": 1e-6, "attn_output_gate": true, "full_attention_interval": 4,
        "linear_conv_kernel_dim": 4, "linear_key_head_dim": 128, "linear_value_head_dim": 128,
        "linear_num_key_heads": 16, "linear_num_value_heads": 32, "num_experts": N_EXPERT, "num_experts_per_tok": 8,
        "moe_intermediate_size": D_FF, "shared_expert_intermediate_size": D_FF,
        "rope_parameters": {"rope_type": "default", "rope_theta": 1e7, "partial_rotary_factor": 0.25},
    });
    json!({"model_type": "qwen3_5_moe", "text_config": text, "tie_word_embeddings": false})
}

/// Name, dtype and shape.
type Tensor = (String, &'static str, Vec<u64>);

fn outside_layers() -> Vec<Tensor> {
    vec![
        (format!("{PREFIX}embed_tokens.weight"), "BF16", vec![N_VOCAB, D_MODEL]),
        (format!("{PREFIX}norm.weight"), "BF16", vec![D_MODEL]),
        ("lm_head.weight".into(), "BF16", vec![N_VOCAB, D_MODEL]),
    ]
}

fn layer(layer: usize) -> Vec<Tensor> {
    let mut tensors = Vec::new();
    let mut add = |name: &str, dtype, shape: &[u64]| {
        tensors.push((format!("{PREFIX}layers.{layer}.{name}"), dtype, shape.to_vec()));
    };
    add("input_layernorm.weight", "BF16", &[D_MODEL]);
    add("post_attention_layernorm.weight", "BF16", &[D_MODEL]);
    if (layer + 1).is_multiple_of(4) {
        add("self_attn.q_proj.weight", "BF16", &[8192, D_MODEL]);
        add("self_attn.k_proj.weight", "BF16", &[512, D_MODEL]);
        add("self_attn.v_proj.weight", "BF16", &[512, D_MODEL]);
        add("self_attn.o_proj.weight", "BF16", &[D_MODEL, 4096]);
        add("self_attn.q_norm.weight", "BF16", &[256]);
        add("self_attn.k_norm.weight", "BF16", &[256]);
    } else {
        add("linear_attn.in_proj_qkv.weight", "BF16", &[8192, D_MODEL]);
        add("linear_attn.in_proj_z.weight", "BF16", &[4096, D_MODEL]);
        add("linear_attn.in_proj_b.weight", "BF16", &[32, D_MODEL]);
        add("linear_attn.in_proj_a.weight", "BF16", &[32, D_MODEL]);
        add("linear_attn.conv1d.weight", "BF16", &[8192, 1, 4]);
        add("linear_attn.A_log", "F32", &[32]);
        add("linear_attn.dt_bias", "BF16", &[32]);
        add("linear_attn.norm.weight", "F32", &[128]);
        add("linear_attn.out_proj.weight", "BF16", &[D_MODEL, 4096]);
    }
    add("mlp.gate.weight", "BF16", &[N_EXPERT, D_MODEL]);
    add("mlp.experts.gate_up_proj", "BF16", &[N_EXPERT, 2 * D_FF, D_MODEL]);
    add("mlp.experts.down_proj", "BF16", &[N_EXPERT, D_MODEL, D_FF]);
    add("mlp.shared_expert.gate_proj.weight", "BF16", &[D_FF, D_MODEL]);
    add("mlp.shared_expert.up_proj.weight", "BF16", &[D_FF, D_MODEL]);
    add("mlp.shared_expert.down_proj.weight", "BF16", &[D_MODEL, D_FF]);
    add("mlp.shared_expert_gate.weight", "BF16", &[1, D_MODEL]);
    tensors
}

fn write_shard(path: &Path, tensors: &[Tensor], seed: u64) -> Result<(), Error> {
    let mut header = Map::new();
    let mut offset = 0;
    for (name, dtype, shape) in tensors {
        let bytes = shape.iter().product::<u64>() * if *dtype == "F32" { 4 } else { 2 };
        header.insert(
            name.clone(),
            json!({"dtype": dtype, "shape": shape, "data_offsets": [offset, offset + bytes]}),
        );
        offset += bytes;
    }
    let header = serde_json::to_vec(&header)?;
    let mut file = BufWriter::with_capacity(1 << 20, File::create(path)?);
    file.write_all(&(header.len() as u64).to_le_bytes())?;
    file.write_all(&header)?;
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    for (_, dtype, shape) in tensors {
        for _ in 0..shape.iter().product::<u64>() {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            // The sum of two uniform numbers, about the size of trained weights.
            let w = (((state & 0xffff) + (state >> 16 & 0xffff)) as f32 / 65536.0 - 1.0) * 0.05;
            match *dtype {
                "F32" => file.write_all(&w.to_le_bytes())?,
                _ => file.write_all(&w.to_le_bytes()[2..])?, // Truncated to bfloat16.
            }
        }
    }
    Ok(file.flush()?)
}
