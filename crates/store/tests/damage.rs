//! Damaged, hostile and future stores are refused or found, and the message names the place.

mod common;

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use store::{ExpertLayer, Manifest, Role, Store, StoreError, StoreWriter};

/// A fresh store in a temporary folder.
fn fresh() -> (tempfile::TempDir, PathBuf) {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("s");
    common::write(&path, &common::plan());
    (dir, path)
}

fn parse(bytes: &[u8]) -> Result<Manifest, StoreError> {
    Manifest::parse(bytes, Path::new("m")).map(|(manifest, _)| manifest)
}

/// A manifest file around `body`, with the right checksum.
fn envelope(body: &Value) -> Vec<u8> {
    let body = body.to_string();
    let xxh3 = xxhash_rust::xxh3::xxh3_64(body.as_bytes());
    format!(r#"{{"format":"flash-moe-store","version":1,"xxh3":"{xxh3:016x}","body":{body}}}"#).into_bytes()
}

fn body(path: &Path) -> Value {
    let manifest: Value = serde_json::from_slice(&fs::read(path.join("manifest.json")).unwrap()).unwrap();
    manifest["body"].clone()
}

fn flip(path: &Path, at: u64, bit: u8) {
    let mut bytes = fs::read(path).unwrap();
    bytes[at as usize] ^= 1 << bit;
    fs::write(path, bytes).unwrap();
}

#[test]
fn any_flipped_bit_of_the_manifest_is_refused() {
    // Would break: a damaged shape, offset or checksum is believed.
    let (_dir, path) = fresh();
    let good = fs::read(path.join("manifest.json")).unwrap();
    parse(&good).unwrap();
    for bit in 0..good.len() * 8 {
        let mut bad = good.clone();
        bad[bit / 8] ^= 1 << (bit % 8);
        assert!(parse(&bad).is_err(), "bit {} of byte {} (of {:?})", bit % 8, bit / 8, good[bit / 8] as char);
    }
    for len in 0..good.len() {
        assert!(parse(&good[..len]).is_err(), "cut to {len} bytes");
    }
}

#[test]
fn a_flipped_bit_of_the_weights_is_found_and_named() {
    // Would break: wrong tokens without a word, or a message that does not say what to download again.
    let (_dir, path) = fresh();
    let store = Store::open(&path).unwrap();
    let check = |file: &str, at: u64, expected: &str, dense: bool| {
        let file = path.join(file);
        flip(&file, at, (at % 8) as u8);
        let report = store.verify(&mut |_| ()).unwrap();
        assert_eq!(report.problems.len(), 1, "{:?}", report.problems);
        let message = report.problems[0].to_string();
        assert!(message.starts_with(file.to_str().unwrap()) && message.ends_with(expected), "{message}");
        let loaded = store.load_dense(&mut |_| ());
        assert_eq!(loaded.err().map(|e| e.to_string()), dense.then_some(message));
        flip(&file, at, (at % 8) as u8);
    };
    for tensor in &store.manifest().dense {
        let layer = tensor.layer.map_or(String::new(), |l| format!(" of layer {l}"));
        let expected = format!("checksum mismatch in {}{layer} at offset {}", tensor.role, tensor.offset);
        for at in [0, tensor.bytes() / 2, tensor.bytes() - 1] {
            check("dense.bin", tensor.offset + at, &expected, true);
        }
    }
    for layer in 0..2 {
        let formats = &store.manifest().experts[layer].formats;
        let stride = ExpertLayer::stride_bytes(formats, store.config()) as u64;
        for expert in 0..2 {
            let (file, start) = (format!("experts/layer-{layer:03}.bin"), expert * stride);
            let expected = format!("checksum mismatch in layer {layer}, expert {expert} at offset {start}");
            for at in [0, stride / 2, stride - 1] {
                check(&file, start + at, &expected, false);
            }
        }
    }
    flip(&path.join("tokenizer.json"), 1, 0);
    let error = store.sidecar("tokenizer.json").unwrap_err();
    assert!(error.to_string().contains("tokenizer.json: checksum mismatch"), "{error}");
    assert_eq!(store.verify(&mut |_| ()).unwrap().problems.len(), 1);
}

#[test]
fn numbers_that_are_not_finite_are_found_although_the_checksum_is_right() {
    // Would break: NaN logits from a store that verifies.
    let dir = tempfile::tempdir().unwrap();
    let (path, plan) = (dir.path().join("s"), common::plan());
    let mut writer = StoreWriter::create(&path, plan.clone()).unwrap();
    let formats = &plan.experts[1].formats;
    let [gate, up, down] = ExpertLayer::ranges(formats, &plan.config);
    let [_, scales, biases] = formats[0].planes(32, 64);
    let mut record = common::record(&plan, 1, 0);
    record[gate.start + scales.start + 3] = 0x7f; // 0x7f80 and more: inf and NaN
    record[gate.start + scales.start + 2] = 0x80;
    record[gate.start + biases.end - 2..gate.start + biases.end].copy_from_slice(&[0xc0, 0xff]);
    record[up.start + 10..up.start + 12].copy_from_slice(&[0x80, 0xff]);
    record[down.start] = 0xff; // a code: anything goes
    writer.put_expert(1, 0, &record).unwrap();
    let norm = plan.dense.iter().position(|t| t.role == Role::FinalNorm).unwrap();
    let mut floats = common::dense(&plan, norm);
    floats[4..8].copy_from_slice(&f32::INFINITY.to_le_bytes());
    writer.write_dense(norm, 0, &floats).unwrap();
    writer.finish_dense(norm).unwrap();
    let k = plan.dense.iter().position(|t| t.role == Role::AttnK).unwrap();
    let mut floats = common::dense(&plan, k);
    floats[2..4].copy_from_slice(&0xfc00u16.to_le_bytes());
    writer.write_dense(k, 0, &floats).unwrap();
    writer.finish_dense(k).unwrap();
    assert!(common::fill(&mut writer, &plan, usize::MAX).unwrap());
    writer.finish().unwrap();

    let store = Store::open(&path).unwrap();
    let found: Vec<String> =
        store.verify(&mut |_| ()).unwrap().problems.iter().map(|p| p.to_string()).collect();
    let offset = |idx: usize| store.manifest().dense[idx].offset;
    let dense = path.join("dense.bin").display().to_string();
    let layer = path.join("experts/layer-001.bin").display().to_string();
    let expected = [
        format!("{dense}: final_norm, weights: the number at offset {} is not finite", offset(norm) + 4),
        format!("{dense}: attn_k of layer 1, weights: the number at offset {} is not finite", offset(k) + 2),
        format!(
            "{layer}: layer 1, expert 0, gate, scales: the number at offset {} is not finite",
            scales.start + 2
        ),
        format!(
            "{layer}: layer 1, expert 0, gate, biases: the number at offset {} is not finite",
            biases.end - 2
        ),
        format!(
            "{layer}: layer 1, expert 0, up, weights: the number at offset {} is not finite",
            up.start + 10
        ),
    ];
    assert_eq!(found, expected);
}

#[test]
fn files_of_the_wrong_size_are_refused() {
    // Would break: an interrupted copy of a store is opened and fails in the middle of an answer.
    let (_dir, path) = fresh();
    let names = ["dense.bin", "experts/layer-000.bin", "experts/layer-001.bin", "tokenizer.json"];
    for name in names.map(|n| path.join(n)) {
        let good = fs::read(&name).unwrap();
        for len in [0, 1, good.len() / 2, good.len() - 1, good.len() + 1] {
            let mut bad = good.clone();
            bad.resize(len, 0);
            fs::write(&name, bad).unwrap();
            let error = Store::open(&path).unwrap_err().to_string();
            if len == good.len() {
                continue;
            }
            let expected = format!("{}: is {len} bytes, the manifest says {}", name.display(), good.len());
            assert_eq!(error, expected);
        }
        fs::remove_file(&name).unwrap();
        let error = Store::open(&path).unwrap_err().to_string();
        assert_eq!(error, format!("{}: is missing", name.display()));
        fs::create_dir(&name).unwrap();
        let error = Store::open(&path).unwrap_err().to_string();
        assert_eq!(error, format!("{}: is not a file", name.display()));
        fs::remove_dir(&name).unwrap();
        fs::write(&name, good).unwrap();
    }
    Store::open(&path).unwrap();
}

#[test]
fn a_file_cut_short_after_opening_is_a_problem_of_each_piece() {
    // Would break: verify stops at the first unreadable piece, or a short read is taken for zeros.
    let (_dir, path) = fresh();
    let store = Store::open(&path).unwrap();
    let cut = |name: &str, len: u64| {
        fs::File::options().write(true).open(path.join(name)).unwrap().set_len(len).unwrap()
    };
    cut("experts/layer-000.bin", 20_000);
    cut("dense.bin", store.dense_bytes() - 1);
    let report = store.verify(&mut |_| ()).unwrap();
    let messages: Vec<String> = report.problems.iter().map(|p| p.to_string()).collect();
    assert_eq!(messages.len(), 2, "{messages:?}");
    assert!(messages[0].contains("dense.bin: cannot read: the file ends"), "{messages:?}");
    assert!(
        messages[1].contains("layer-000.bin: cannot read: the file ends at or before offset 20000"),
        "{messages:?}"
    );
    assert!(store.load_dense(&mut |_| ()).is_err());
    fs::remove_file(path.join("dense.bin")).unwrap();
    assert!(store.verify(&mut |_| ()).unwrap_err().to_string().contains("dense.bin: cannot open"));
}

#[test]
fn folders_that_are_not_stores_say_why() {
    // Would break: an unhelpful message for a mistyped path, a checkpoint folder or a GGUF file.
    let dir = tempfile::tempdir().unwrap();
    let check = |path: &Path, expected: &str| {
        let error = Store::open(path).unwrap_err();
        assert!(matches!(error, StoreError::NotAStore { .. }), "{error:?}");
        assert!(error.to_string().contains(expected), "{error}");
    };
    check(&dir.path().join("nothing"), "nothing is not a flash-moe store: it does not exist");
    check(dir.path(), "it has no manifest.json");
    let file = dir.path().join("model.gguf");
    fs::write(&file, "GGUF").unwrap();
    check(&file, "it is not a folder");
    let manifest = dir.path().join("manifest.json");
    for (bytes, expected) in [
        ("", "it is not a manifest: EOF"),
        ("{}", "it is not a manifest: missing field `format`"),
        (r#"{"format":"pnpm","version":1}"#, "its format is 'pnpm', not 'flash-moe-store'"),
        (&"[".repeat(100_000), "it is not a manifest"),
    ] {
        fs::write(&manifest, bytes).unwrap();
        check(dir.path(), expected);
    }
}

#[test]
fn a_store_from_the_future_is_told_apart_from_a_damaged_one() {
    // Would break: "update the program" and "download again" are confused.
    let bytes = br#"{"version":2,"format":"flash-moe-store","new":[{}],"body":7}"#;
    let error = parse(bytes).unwrap_err();
    assert!(matches!(error, StoreError::FutureVersion { found: 2, supported: 1, .. }), "{error}");
    let error = parse(br#"{"version":0,"format":"flash-moe-store"}"#).unwrap_err();
    assert_eq!(error.to_string(), "m: store version 0 never existed");
}

/// Checks that a manifest is refused, with what is expected in the message, when one value of it is changed.
fn refused() -> impl Fn(&str, Value, &str) {
    let (_dir, path) = fresh();
    let good = body(&path);
    parse(&envelope(&good)).unwrap();
    move |pointer, value, expected| {
        let mut bad = good.clone();
        *bad.pointer_mut(pointer).unwrap_or_else(|| panic!("no {pointer}")) = value;
        let error = parse(&envelope(&bad)).unwrap_err().to_string();
        assert!(error.contains(expected), "{pointer}: {error}");
    }
}

#[test]
fn configurations_out_of_bounds_are_refused() {
    // Would break: a hostile shape overflows a size or reaches the forward pass.
    let (check, max) = (refused(), json!(u64::MAX));
    check("/config/d_model", json!(0), "config: d_model is 0, allowed is 1 to 1048576");
    check("/config/d_model", max.clone(), "config: d_model is 18446744073709551615");
    check("/config/d_model", json!(-1), "manifest body: invalid value");
    check("/config/d_model", json!(1e300), "manifest body: invalid type");
    check("/config/d_model", json!(65), "embed is 8x64, expected 8x65");
    check("/config/n_vocab", max.clone(), "n_vocab");
    check("/config/n_expert", json!(65_537), "n_expert is 65537, allowed is 1 to 65536");
    check("/config/n_expert_used", json!(3), "n_expert_used is 3, allowed is 1 to 2");
    check("/config/n_expert", json!(3), "router of layer 0 is 2x64, expected 3x64");
    check("/config/n_head", json!(3), "n_head is 3, not a multiple of n_head_kv, 2");
    check("/config/head_dim", json!(1 << 20), "n_head·head_dim is 4194304");
    check("/config/n_rot", json!(3), "n_rot is 3, not a multiple of the size of a pair, 2");
    check("/config/n_rot", json!(18), "n_rot is 18, allowed is 2 to 16");
    check("/config/rms_norm_eps", json!(-1e-6), "rms_norm_eps is -0.000001, must be above zero");
    check("/config/rope_theta", json!(0.0), "rope_theta is 0, must be above zero");
    check("/config/rope_scaling", json!({"factor": 4.0, "n_ctx_original": 0}), "n_ctx_original is 0");
    check("/config/layers", json!([]), "layers is 0, allowed is 1 to 4096");
    check("/config/layers", json!(vec!["full_attention"; 4097]), "layers is 4097");
    check("/config/layers/0", json!("mamba"), "unknown variant `mamba`");
    check("/config/linear", json!(null), "layers has linear_attention but linear, their shapes, is absent");
    check("/config/linear/n_head_v", json!(5), "linear.n_head_v is 5, not a multiple of linear.n_head_k, 2");
    check("/config/linear/head_dim_v", max, "linear.head_dim_v");
    check("/config/linear/n_conv", json!(0), "linear.n_conv is 0");
    check("/config/architecture", json!("qwen4_exp"), "unknown variant `qwen4_exp`");
    check("/config/tie_word_embeddings", json!(true), "lm_head is there twice or not called for");
    check("/config/d_ff_shared", json!(0), "shared_gate of layer 0 is there twice or not called for");
}

#[test]
fn manifests_that_contradict_themselves_are_refused() {
    // Would break: a hostile manifest reads outside its file, writes outside its folder, or leaves a role without
    // weights.
    let (check, max) = (refused(), json!(u64::MAX));
    check("/dense/0/offset", json!(64), "embed starts at offset 64 of dense.bin, expected 0");
    check("/dense/1/offset", json!(0), "lm_head starts at offset 0 of dense.bin, expected 640");
    check("/dense/1/offset", max.clone(), "lm_head starts at offset 18446744073709551615");
    check("/dense/0/rows", max.clone(), "embed is 18446744073709551615x64, expected 8x64");
    check("/dense/0/format", json!("affine9g64"), "unknown weight format 'affine9g64'");
    check(
        "/dense/0/format",
        json!("affine8g128"),
        "embed: affine8g128 needs rows of a multiple of 128 columns, got 64",
    );
    check("/dense/0/format", json!("affine4g64"), "lm_head starts at offset 640 of dense.bin, expected 384");
    check("/dense/2/format", json!("bf16"), "final_norm is bf16, must be f32");
    check("/dense/0/role", json!("lm_head"), "lm_head is there twice");
    check("/dense/1/role", json!("embed"), "embed is there twice");
    check("/dense/0/layer", json!(0), "embed of layer 0 is there twice or not called for");
    check("/dense/5/layer", json!(9), "of layer 9 is there twice or not called for");
    check(
        "/dense/0/xxh3",
        json!("ABCDEF0123456789"),
        "checksum \"ABCDEF0123456789\" of embed is not 16 hex digits",
    );
    check("/dense", json!([]), "embed is missing");
    check("/experts", json!([]), "experts has 0 layers, the configuration 2");
    check(
        "/experts/1/xxh3",
        json!(["0123456789abcdef"]),
        "layer 1 has 1 expert checksums, the configuration 2 experts",
    );
    check("/experts/1/xxh3/1", json!(""), "checksum \"\" of layer 1, expert 1 is not 16 hex digits");
    check("/experts/0/formats", json!(["f32", "f32"]), "manifest body: invalid length 2");
    check(
        "/experts/0/formats/2",
        json!("affine4g64"),
        "down of the experts of layer 0: affine4g64 needs rows",
    );
    for name in ["", ".", "..", "/etc/passwd", "a/b", "a\\b", ".hidden", "nul\u{0}", "ü", &"x".repeat(101)] {
        check("/sidecars/0/name", json!(name), "is not a plain file name");
    }
    for name in ["manifest.json", "dense.bin", "experts", "journal", "config.json"] {
        check("/sidecars/0/name", json!(name), "has the name of another file");
    }
    check("/sidecars/0/bytes", max, "sidecar tokenizer.json has 18446744073709551615 bytes");
    check("/name", json!(7), "manifest body: invalid type");
    check(
        "/source",
        json!({"kind": "", "fingerprint": "", "skipped": [], "extra": 1}),
        "unknown field `extra`",
    );
}
