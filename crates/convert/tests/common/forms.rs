//! The same tiny checkpoints as others publish them: converted for MLX, or in FP8.
#![allow(dead_code)] // Each test file uses its share.

use half::f16;
use quant::Format;
use serde_json::{Value, json};
use store::Architecture;

use super::common::*;

pub(crate) const FOUR: Format = Format::Affine { bits: 4, group: 64 };
pub(crate) const EIGHT: Format = Format::Affine { bits: 8, group: 64 };

/// The usual recipe: everything has 4 bits, routers and gates of shared experts have 8.
pub(crate) fn usual(module: &str) -> Option<Format> {
    Some(if is_gate(module) { EIGHT } else { FOUR })
}

pub(crate) fn is_gate(module: &str) -> bool {
    module.ends_with("mlp.gate") || module.ends_with("shared_expert_gate")
}

/// What mlx-lm writes of the usual recipe; `prefix` stands before `layers`.
pub(crate) fn usual_settings(prefix: &str) -> Value {
    let mut settings = json!({"group_size": 64, "bits": 4, "mode": "affine"});
    for layer in 0..N_LAYER {
        for gate in ["gate", "shared_expert_gate"] {
            settings[format!("{prefix}layers.{layer}.mlp.{gate}")] = json!({"group_size": 64, "bits": 8});
        }
    }
    settings
}

/// A folder in MLX's form with the usual recipe.
pub(crate) fn usual_mlx(layout: Layout) -> Tiny {
    let mut mlx = with_even_norms(Tiny::new(layout, 7)).to_mlx(usual);
    let settings = usual_settings("language_model.model.");
    mlx.config["quantization_config"] = settings.clone();
    mlx.config["quantization"] = settings;
    mlx
}

/// Norms whose factor is exact as BF16 and as `1 + w`.
pub(crate) fn with_even_norms(mut tiny: Tiny) -> Tiny {
    let norms = tiny.tensors.iter_mut().filter(|t| t.name.ends_with("norm.weight"));
    norms.flat_map(|t| &mut t.values).for_each(|w| *w = (*w * 64.0).round() / 64.0);
    tiny
}

/// Is this a matrix that conversions quantise?
fn is_matrix(tensor: &TinyTensor) -> bool {
    let name = &tensor.name;
    tensor.shape.len() >= 2
        && !name.contains("conv1d")
        && !name.contains("visual")
        && !name.starts_with("mtp.")
}

impl Tiny {
    /// The checkpoint converted for MLX as mlx-lm does it: names, stacked experts, swapped axes, shifted norms; each
    /// matrix in the format that `format` gives its module.
    pub(crate) fn to_mlx(&self, format: impl Fn(&str) -> Option<Format>) -> Tiny {
        let mut mlx = Tiny { layout: self.layout, config: self.config.clone(), tensors: Vec::new() };
        let is_multimodal = self.layout.architecture == Architecture::Qwen35Moe;
        let shifts = self.layout.architecture != Architecture::Qwen3Moe;
        for mut tensor in self.stacked() {
            let is_quantised = is_matrix(&tensor);
            if is_multimodal {
                tensor.name = match tensor.name.strip_prefix("model.language_model.") {
                    Some(rest) => format!("language_model.model.{rest}"),
                    None if tensor.name.starts_with("lm_head") => format!("language_model.{}", tensor.name),
                    None => tensor.name.replace("model.visual.", "vision_tower."),
                };
            }
            if tensor.name.ends_with("conv1d.weight") {
                tensor.shape.swap(1, 2);
            }
            let is_norm = tensor.name.ends_with("norm.weight") && !tensor.name.contains("linear_attn");
            if is_norm && shifts && !tensor.name.starts_with("mtp.") {
                tensor.values.iter_mut().for_each(|w| *w += 1.0);
            }
            let module = tensor.name.trim_end_matches(".weight").to_owned();
            match format(&module).filter(|_| is_quantised) {
                Some(format) => mlx.tensors.extend(quantised(&module, &tensor, format)),
                None => mlx.tensors.push(tensor),
            }
        }
        mlx
    }

    /// Tensors with the experts of a layer stacked, gate, up and down apart.
    fn stacked(&self) -> Vec<TinyTensor> {
        let mut tensors = Vec::new();
        for tensor in &self.tensors {
            let Some((p, rest)) = tensor.name.split_once("mlp.experts.") else {
                tensors.push(tensor.clone());
                continue;
            };
            let part = rest.trim_end_matches(".weight").rsplit('.').next().unwrap();
            let mut put = |part: &str, rows: usize, values: Vec<f32>| {
                let name = format!("{p}mlp.switch_mlp.{part}.weight");
                let cols = *tensor.shape.last().unwrap();
                match tensors.iter_mut().find(|t: &&mut TinyTensor| t.name == name) {
                    Some(stack) => stack.values.extend(values),
                    None => {
                        let shape = vec![N_EXPERT, rows, cols];
                        tensors.push(TinyTensor { name, shape, values, ..tensor.clone() });
                    }
                }
            };
            if part == "gate_up_proj" {
                for both in tensor.values.chunks(2 * D_FF * D_MODEL) {
                    put("gate_proj", D_FF, both[..D_FF * D_MODEL].to_vec());
                    put("up_proj", D_FF, both[D_FF * D_MODEL..].to_vec());
                }
            } else {
                put(part, tensor.shape[tensor.shape.len() - 2], tensor.values.clone());
            }
        }
        tensors
    }

    /// The checkpoint in FP8 as published: matrices but embedding, head, routers and the small ones; scales in `dtype`.
    pub(crate) fn to_fp8(&self, dtype: &'static str) -> Tiny {
        let mut fp8 = Tiny { layout: self.layout, config: self.config.clone(), tensors: Vec::new() };
        fp8.config["quantization_config"] = json!({
            "quant_method": "fp8", "fmt": "e4m3", "activation_scheme": "dynamic", "weight_block_size": [128, 128],
            "modules_to_not_convert": ["lm_head", "model.embed_tokens"],
        });
        let kept = ["embed", "lm_head", "mlp.gate.", "shared_expert_gate", "in_proj_a", "in_proj_b."];
        for tensor in &self.tensors {
            if !is_matrix(tensor) || kept.iter().any(|name| tensor.name.contains(name)) {
                fp8.tensors.push(tensor.clone());
                continue;
            }
            let format = if dtype == "F32" { Format::Fp8F32 } else { Format::Fp8 };
            // Stacked matrices have whole blocks of rows.
            let [stack @ .., rows, cols] = tensor.shape.as_slice() else { unreachable!("is a matrix") };
            let n_row = stack.iter().product::<usize>() * rows;
            let [codes, scales, _] = encode(format, n_row, *cols, &tensor.values);
            let plane =
                |name, dtype, shape, bytes| TinyTensor { name, dtype, shape, values: Vec::new(), bytes };
            let blocks = stack.iter().copied().chain([rows.div_ceil(128), cols.div_ceil(128)]).collect();
            fp8.tensors.push(plane(tensor.name.clone(), "F8_E4M3", tensor.shape.clone(), codes));
            fp8.tensors.push(plane(format!("{}_scale_inv", tensor.name), dtype, blocks, scales));
        }
        fp8
    }
}

/// The tensors that a quantised module has.
fn quantised(module: &str, tensor: &TinyTensor, format: Format) -> Vec<TinyTensor> {
    let (cols, stack) = tensor.shape.split_last().unwrap();
    let rows = stack.iter().product();
    let [codes, scales, biases] = encode(format, rows, *cols, &tensor.values);
    let (dtype, scale_bytes) = match format {
        Format::Affine { .. } => ("BF16", 2),
        Format::AffineF16 { .. } => ("F16", 2),
        _ => ("U8", 1),
    };
    let plane = |name: &str, dtype, row_len: usize, bytes| TinyTensor {
        name: format!("{module}.{name}"),
        dtype,
        shape: stack.iter().copied().chain([row_len]).collect(),
        values: Vec::new(),
        bytes,
    };
    let n_scale = format.scale_row_bytes(*cols) / scale_bytes;
    let mut planes = vec![plane("weight", "U32", format.row_bytes(*cols) / 4, codes)];
    planes.push(plane("scales", dtype, n_scale, scales));
    if !biases.is_empty() {
        planes.push(plane("biases", dtype, n_scale, biases));
    }
    planes
}

/// Codes, scales and biases. Formats that numbers cannot be converted to get arbitrary ones: what is checked is that
/// they arrive.
pub(crate) fn encode(format: Format, rows: usize, cols: usize, values: &[f32]) -> [Vec<u8>; 3] {
    let bytes = [format.row_bytes(cols), format.scale_row_bytes(cols), format.bias_row_bytes(cols)];
    let n_scale_row = rows.div_ceil(format.scale_rows());
    let mut planes = [vec![0; rows * bytes[0]], vec![0; n_scale_row * bytes[1]], vec![0; rows * bytes[2]]];
    let [codes, scales, biases] = &mut planes;
    if matches!(format, Format::Mxfp4 | Format::Nvfp4 | Format::AffineF16 { .. }) {
        let mut random = Random(values[0].to_bits().into());
        codes.iter_mut().for_each(|code| *code = random.next() as u8);
        if let Format::AffineF16 { .. } = format {
            for plane in [scales, biases] {
                plane.chunks_exact_mut(2).for_each(|w| {
                    w.copy_from_slice(&f16::from_f32(random.centred() / 64.0).to_le_bytes());
                });
            }
        } else {
            // From 2^-31 to 1 as E8M0, from 2^-2 to 3.75 as E4M3.
            let first = if format == Format::Mxfp4 { 96 } else { 40 };
            scales.iter_mut().for_each(|scale| *scale = first + (random.next() % 32) as u8);
        }
        return planes;
    }
    for (i, numbers) in values.chunks(format.scale_rows() * cols).enumerate() {
        let row = i * format.scale_rows();
        let n_row = numbers.len() / cols;
        let codes = &mut codes[row * bytes[0]..][..n_row * bytes[0]];
        let scales = &mut scales[i * bytes[1]..][..bytes[1]];
        let biases = &mut biases[row * bytes[2]..][..bytes[2]];
        quant::encode_rows(format, cols, numbers, codes, scales, biases).unwrap();
    }
    planes
}
