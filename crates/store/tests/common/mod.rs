//! A tiny model with both kinds of layers, made-up weights, and the plan that stores them.
#![allow(dead_code, reason = "each test file uses a part")]

use std::path::Path;

use quant::Format;
use store::{
    Architecture, DensePlan, ExpertLayer, ExpertPlan, LayerKind, LinearAttention, ModelConfig, Role, Source,
    StoreError, StorePlan, StoreWriter,
};

pub(crate) const AFFINE4: Format = Format::Affine { bits: 4, group: 32 };
pub(crate) const AFFINE8: Format = Format::Affine { bits: 8, group: 64 };

/// One linear and one full-attention layer, two experts.
pub(crate) fn config() -> ModelConfig {
    ModelConfig {
        architecture: Architecture::Qwen35Moe,
        d_model: 64,
        n_vocab: 8,
        n_ctx_train: 128,
        rms_norm_eps: 1e-6,
        layers: vec![LayerKind::LinearAttention, LayerKind::FullAttention],
        n_head: 4,
        n_head_kv: 2,
        head_dim: 16,
        attention_gate: true,
        n_rot: 4,
        rope_theta: 1e7,
        rope_scaling: None,
        linear: Some(LinearAttention {
            n_head_k: 2,
            n_head_v: 4,
            head_dim_k: 8,
            head_dim_v: 8,
            n_conv: 4,
            out_heads_tiled: false,
        }),
        n_expert: 2,
        n_expert_used: 1,
        norm_topk_prob: true,
        d_ff_expert: 32,
        d_ff_shared: 32,
        tie_word_embeddings: false,
    }
}

/// A plan that uses every kind of format.
pub(crate) fn plan() -> StorePlan {
    let config = config();
    let format = |role: Role, cols: usize| match role {
        role if role.is_f32() => Format::F32,
        Role::Embed => AFFINE8,
        Role::AttnQ => Format::Bf16,
        Role::AttnK => Format::F16,
        _ if cols.is_multiple_of(32) => AFFINE4,
        _ => Format::F32,
    };
    let dense = config.dense_shapes().into_iter().map(|s| DensePlan {
        role: s.role,
        layer: s.layer,
        format: format(s.role, s.cols),
        rows: s.rows,
        cols: s.cols,
    });
    StorePlan {
        name: "tiny".into(),
        source: Source { kind: "test".into(), fingerprint: "0".into(), skipped: vec!["mtp".into()] },
        dense: dense.collect(),
        experts: vec![
            ExpertPlan { formats: [AFFINE4; 3] },
            ExpertPlan { formats: [AFFINE8, Format::Bf16, AFFINE4] },
        ],
        sidecars: vec![("tokenizer.json".into(), b"{}\n".to_vec()), ("config.json".into(), vec![])],
        config,
    }
}

/// Made-up numbers, the same for the same `seed`.
pub(crate) fn numbers(seed: usize, n: usize) -> Vec<f32> {
    (0..n).map(|i| ((seed * 7919 + i * 104_729) % 2003) as f32 / 1001.0 - 1.0).collect()
}

/// A matrix of made-up numbers in one piece, as the store has it.
pub(crate) fn matrix(format: Format, rows: usize, cols: usize, seed: usize) -> Vec<u8> {
    let mut bytes = vec![0; format.matrix_bytes(rows, cols)];
    let planes = format.planes(rows, cols);
    let (row_bytes, group_bytes) = (format.row_bytes(cols), format.scale_row_bytes(cols));
    for (row_idx, row) in numbers(seed, rows * cols).chunks(cols).enumerate() {
        let (mut codes, mut scales, mut biases) =
            (vec![0; row_bytes], vec![0; group_bytes], vec![0; group_bytes]);
        quant::encode_row(format, row, &mut codes, &mut scales, &mut biases).unwrap();
        for (plane, part) in planes.iter().zip([codes, scales, biases]) {
            let at = plane.start + row_idx * part.len();
            bytes[at..at + part.len()].copy_from_slice(&part);
        }
    }
    bytes
}

/// The bytes of dense tensor `idx`.
pub(crate) fn dense(plan: &StorePlan, idx: usize) -> Vec<u8> {
    let tensor = &plan.dense[idx];
    matrix(tensor.format, tensor.rows, tensor.cols, idx)
}

/// The bytes of a record.
pub(crate) fn record(plan: &StorePlan, layer: usize, expert: usize) -> Vec<u8> {
    let formats = &plan.experts[layer].formats;
    let mut bytes = vec![0; ExpertLayer::stride_bytes(formats, &plan.config)];
    for (i, (range, part)) in
        ExpertLayer::ranges(formats, &plan.config).into_iter().zip(store::ExpertPart::ALL).enumerate()
    {
        let (rows, cols) = ExpertLayer::shape(&plan.config, part);
        bytes[range].copy_from_slice(&matrix(formats[i], rows, cols, 100 + layer * 10 + expert * 3 + i));
    }
    bytes
}

/// Writes what is missing, but at most `limit` pieces; true if nothing is missing any more.
pub(crate) fn fill(writer: &mut StoreWriter, plan: &StorePlan, limit: usize) -> Result<bool, StoreError> {
    let mut n = 0;
    for idx in 0..plan.dense.len() {
        if writer.has_dense(idx) {
            continue;
        }
        if n == limit {
            return Ok(false);
        }
        // In two pieces, the later one first.
        let bytes = dense(plan, idx);
        let half = bytes.len() / 2;
        writer.write_dense(idx, half, &bytes[half..])?;
        writer.write_dense(idx, 0, &bytes[..half])?;
        writer.finish_dense(idx)?;
        n += 1;
    }
    for layer in 0..plan.experts.len() {
        for expert in 0..plan.config.n_expert {
            if writer.has_expert(layer, expert) {
                continue;
            }
            if n == limit {
                return Ok(false);
            }
            writer.put_expert(layer, expert, &record(plan, layer, expert))?;
            n += 1;
        }
    }
    Ok(true)
}

/// Writes the whole store.
pub(crate) fn write(path: &Path, plan: &StorePlan) {
    let mut writer = StoreWriter::create(path, plan.clone()).unwrap();
    assert!(fill(&mut writer, plan, usize::MAX).unwrap());
    writer.finish().unwrap();
}

/// All files below `dir`, by relative name.
pub(crate) fn files(dir: &Path) -> std::collections::BTreeMap<String, Vec<u8>> {
    let mut found = std::collections::BTreeMap::new();
    let mut dirs = vec![dir.to_path_buf()];
    while let Some(next) = dirs.pop() {
        for entry in std::fs::read_dir(next).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                dirs.push(path);
            } else {
                let name =
                    path.strip_prefix(dir).unwrap().to_str().unwrap().replace(std::path::MAIN_SEPARATOR, "/");
                found.insert(name, std::fs::read(path).unwrap());
            }
        }
    }
    found
}
