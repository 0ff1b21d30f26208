//! The worked example of docs/store-format.md is what the code writes.

use std::fs;

use quant::Format;
use serde_json::Value;
use store::{
    Architecture, DensePlan, ExpertLayer, ExpertPlan, LayerKind, ModelConfig, Source, Store, StorePlan,
    StoreWriter,
};

const DOC: &str = include_str!("../../../docs/store-format.md");
const AFFINE: Format = Format::Affine { bits: 4, group: 32 };

/// The lines of the only block of the document in `language`.
fn block(language: &str) -> &'static str {
    let (_, rest) = DOC.split_once(&format!("```{language}\n")).expect("the document has such a block");
    rest.split_once("```").expect("the block ends").0
}

/// The example's model: one layer, one expert, everything as small as it can be.
fn plan() -> StorePlan {
    let config = ModelConfig {
        architecture: Architecture::Qwen3Moe,
        d_model: 32,
        n_vocab: 4,
        n_ctx_train: 64,
        rms_norm_eps: 1e-6,
        layers: vec![LayerKind::FullAttention],
        n_head: 1,
        n_head_kv: 1,
        head_dim: 32,
        attention_gate: false,
        n_rot: 32,
        rope_theta: 10000.0,
        rope_scaling: None,
        linear: None,
        n_expert: 1,
        n_expert_used: 1,
        norm_topk_prob: true,
        d_ff_expert: 1,
        d_ff_shared: 0,
        tie_word_embeddings: true,
    };
    let dense = config.dense_shapes().into_iter().map(|s| DensePlan {
        role: s.role,
        layer: s.layer,
        format: if s.role.is_f32() { Format::F32 } else { AFFINE },
        rows: s.rows,
        cols: s.cols,
    });
    StorePlan {
        name: "example".into(),
        source: Source { kind: "example".into(), fingerprint: String::new(), skipped: vec![] },
        dense: dense.collect(),
        experts: vec![ExpertPlan { formats: [AFFINE, AFFINE, Format::Bf16] }],
        sidecars: vec![("config.json".into(), b"{}".to_vec())],
        config,
    }
}

/// The example's record, quantised from the numbers that the document gives.
fn record(plan: &StorePlan) -> Vec<u8> {
    let formats = &plan.experts[0].formats;
    let [gate, up, down] = ExpertLayer::ranges(formats, &plan.config);
    let mut record = vec![0; ExpertLayer::stride_bytes(formats, &plan.config)];
    let gate_row: Vec<f32> = (0..32).map(|i| 0.5 * (i % 16) as f32 - 4.0).collect();
    let up_row: Vec<f32> = (0..32).map(|i| 3.75 - 0.25 * (i % 16) as f32).collect();
    for (row, at) in [(gate_row, gate), (up_row, up)] {
        let (mut codes, mut scale, mut bias) = ([0; 16], [0; 2], [0; 2]);
        quant::encode_row(AFFINE, &row, &mut codes, &mut scale, &mut bias).unwrap();
        for (plane, part) in AFFINE.planes(1, 32).into_iter().zip([&codes[..], &scale, &bias]) {
            record[at.start + plane.start..at.start + plane.end].copy_from_slice(part);
        }
    }
    for i in 0..32 {
        let at = down.start + 2 * i;
        quant::encode_row(Format::Bf16, &[i as f32], &mut record[at..at + 2], &mut [], &mut []).unwrap();
    }
    record
}

/// Offset and bytes of every line of 16 that is not all zeros.
fn hex_dump(bytes: &[u8]) -> String {
    let lines = bytes.chunks(16).enumerate().filter(|(_, line)| line.iter().any(|&b| b != 0));
    lines.fold(String::new(), |dump, (i, line)| {
        let hex: Vec<String> = line.iter().map(|b| format!("{b:02x}")).collect();
        dump + &format!("{:5}  {}\n", i * 16, hex.join(" "))
    })
}

#[test]
fn the_worked_example_is_what_the_code_writes() {
    // Would break: the document and the code say different things, and a foreign reader believes the document.
    let dir = tempfile::tempdir().unwrap();
    let (path, plan) = (dir.path().join("s"), plan());
    let mut writer = StoreWriter::create(&path, plan.clone()).unwrap();
    for (idx, tensor) in plan.dense.iter().enumerate() {
        writer.write_dense(idx, 0, &vec![0; tensor.format.matrix_bytes(tensor.rows, tensor.cols)]).unwrap();
        writer.finish_dense(idx).unwrap();
    }
    writer.put_expert(0, 0, &record(&plan)).unwrap();
    writer.finish().unwrap();

    let written = fs::read(path.join("experts/layer-000.bin")).unwrap();
    assert_eq!(written.len(), 16384);
    let dump = hex_dump(&written);
    assert_eq!(dump, block("hex"), "the document should say:\n{dump}");

    let manifest = fs::read_to_string(path.join("manifest.json")).unwrap();
    let found: Value = serde_json::from_str(&manifest).unwrap();
    let documented: Value = serde_json::from_str(block("json")).unwrap_or_default();
    assert_eq!(found, documented, "the document should say:\n{manifest}");
    // The order of fields and the absence of spaces too.
    let compact: String = block("json").lines().map(str::trim_start).collect();
    assert_eq!(compact, manifest);
    assert_eq!(Store::open(&path).unwrap().verify(&mut |_| ()).unwrap().problems.len(), 0);
}

#[test]
fn the_document_names_every_role() {
    // Would break: a role is added and a foreign reader cannot know its shape.
    for role in store::Role::ALL {
        assert!(DOC.contains(&format!("`{role}`")), "{role}");
    }
}
