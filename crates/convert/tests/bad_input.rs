//! Checkpoints that must be refused: with a message that names file and tensor, before anything is written.

mod common;

use std::fs;
use std::path::Path;

use common::*;
use convert::{Checkpoint, PackOptions, pack};
use proptest::prelude::*;
use serde_json::json;

/// Writes a checkpoint, breaks it, and expects an error at open that has all of `says`.
fn check(what: &str, layout: Layout, edit: impl Fn(&mut Tiny), spoil: impl Fn(&Path), says: &[&str]) {
    let dir = tempfile::tempdir().unwrap();
    let source = dir.path().join("in put");
    let mut tiny = Tiny::new(layout, 3);
    edit(&mut tiny);
    tiny.write(&source);
    spoil(&source);
    let error = Checkpoint::open(&source).expect_err(what).to_string();
    for part in says {
        assert!(error.contains(part), "{what}: no '{part}' in: {error}");
    }
    assert!(!error.contains('\n') && !error.ends_with('.') && error.len() < 2000, "{what}: {error}");
}

fn keep(_: &mut Tiny) {}

const SHARDED: Layout = Layout { n_shard: 5, ..QWEN35 };

#[test]
fn damaged_files() {
    // A damaged download that is packed into a store of rubbish, or a message that does not say which file.
    let third = shard_name(2, 5);
    let check = |what: &str, spoil: &dyn Fn(&Path), says: &[&str]| {
        check(
            what,
            SHARDED,
            keep,
            |dir| spoil(&dir.join(&third)),
            &[&["model-00003-of-00005"], says].concat(),
        );
    };
    let replace = |what: &str, contents: &[u8], says: &str| {
        check(what, &|path| fs::write(path, contents).unwrap(), &[says]);
    };
    replace("empty", b"", "empty (0 bytes)");
    replace("web page", b"<!DOCTYPE html><p>Not found", "a web page");
    replace("short web page", b"\n<HTML", "a web page");
    replace("pointer", b"version https://git-lfs.github.com/spec/v1\noid sha256:0\n", "a git-lfs pointer");
    replace("5 bytes", b"12345", "does not fit (file has 5");
    let huge = [&(1u64 << 63).to_le_bytes()[..], b"{}"].concat();
    replace("huge header", &huge, "header of 9223372036854775808 bytes");
    replace("no JSON", &container("{\"a\":", &[]), "header is not valid");
    let cut = |path: &Path, keep: &dyn Fn(u64) -> u64| {
        let file = fs::File::options().write(true).open(path).unwrap();
        file.set_len(keep(file.metadata().unwrap().len())).unwrap();
    };
    let says = ["truncated: tensor model.", "ends at byte", "file has"];
    check("truncated", &|path| cut(path, &|len| len - 1), &says);
    check("truncated in its header", &|path| cut(path, &|_| 40), &["does not fit (file has 40"]);
    let folder = |path: &Path| fs::remove_file(path).and(fs::create_dir(path)).unwrap();
    check("a folder", &folder, &["not a regular file"]);
}

#[test]
fn headers_that_lie() {
    // Offsets outside the file, sizes that overflow, tensors that share bytes or names: reads of foreign bytes.
    let entry = |dtype: &str, shape: serde_json::Value, offsets: [u64; 2]| {
        json!({"dtype": dtype, "shape": shape, "data_offsets": offsets}).to_string()
    };
    let check = |header: String, says: &str| {
        let file = container(&header, &[0; 8]);
        let error = convert::safetensors::parse_header(&file, file.len() as u64).unwrap_err().to_string();
        assert!(error.contains(says), "{header}: no '{says}' in: {error}");
    };
    let one = |entry: String| format!("{{\"a.b\": {entry}}}");
    check(one(entry("BF16", json!([4]), [0, 16])), "truncated: tensor a.b");
    check(one(entry("BF16", json!([4]), [u64::MAX - 8, u64::MAX])), "tensor a.b: data_offsets end");
    check(one(entry("BF16", json!([4]), [8, 0])), "tensor a.b: data_offsets 8..0 run backwards");
    check(one(entry("BF16", json!([5]), [0, 8])), "tensor a.b: BF16 of shape [5] does not take the 8 bytes");
    check(one(entry("BF16", json!([1u64 << 63, 2, 2]), [0, 8])), "does not take the 8 bytes");
    check(one(entry("BF16", json!([-4]), [0, 8])), "tensor a.b: invalid value");
    check(one("7".into()), "tensor a.b: invalid type");
    check(one("{\"dtype\": \"BF16\"}".into()), "tensor a.b: missing field");
    check("[]".into(), "not valid");
    let (a, b) = (entry("U8", json!([8]), [0, 8]), entry("U8", json!([4]), [4, 8]));
    check(format!("{{\"a\": {a}, \"b\": {b}}}"), "tensor a: overlaps tensor b");
    let (a, b) = (entry("U8", json!([4]), [0, 4]), entry("U8", json!([4]), [4, 8]));
    check(format!("{{\"a\": {a}, \"a\": {b}}}"), "tensor a: appears twice");
    let fine = container(&format!("{{\"a\": {a}, \"b\": {b}, \"__metadata__\": {{\"x\": [1]}}}}"), &[0; 8]);
    assert_eq!(convert::safetensors::parse_header(&fine, fine.len() as u64).unwrap().len(), 2);
}

proptest! {
    #[test]
    fn random_headers_never_panic(
        bytes in proptest::collection::vec(any::<u8>(), 0..200),
        file_len in any::<u64>(),
        edits in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..8),
    ) {
        // A panic or an absurd allocation on a hostile file. Bytes of all kinds, and a valid header with a few changed.
        let _ = convert::safetensors::parse_header(&bytes, file_len);
        let header = "{\"w\":{\"dtype\":\"F16\",\"shape\":[2,2],\"data_offsets\":[0,8]}}";
        let mut file = container(header, &[0; 8]);
        let whole = file.len() as u64;
        for (at, byte) in edits {
            let at = at.index(file.len());
            file[at] = byte;
        }
        if let Ok(tensors) = convert::safetensors::parse_header(&file, whole) {
            for tensor in tensors {
                prop_assert!(tensor.offset.checked_add(tensor.bytes).is_some_and(|end| end <= whole));
            }
        }
        let _ = convert::safetensors::parse_header(&file, file_len);
    }
}

#[test]
fn files_that_are_not_there() {
    // A conversion that starts without all its shards, or a message that names one of many.
    let remove = |names: &'static [usize]| {
        move |dir: &Path| names.iter().for_each(|i| fs::remove_file(dir.join(shard_name(*i, 5))).unwrap())
    };
    let both =
        ["3 of 5 weight files present", "missing: model-00002-of-00005.safetensors, model-00004-of-00005"];
    check("two shards", SHARDED, keep, remove(&[1, 3]), &both);
    let no_index = |dir: &Path| fs::remove_file(dir.join("model.safetensors.index.json")).unwrap();
    let without_index = |dir: &Path| {
        remove(&[1, 3])(dir);
        no_index(dir);
    };
    check("two shards and no index", SHARDED, keep, without_index, &both);
    // Elsewhere not every user may make links.
    #[cfg(unix)]
    check(
        "broken link",
        SHARDED,
        keep,
        |dir| {
            let path = dir.join(shard_name(1, 5));
            fs::remove_file(&path).unwrap();
            std::os::unix::fs::symlink("../blobs/abc", path).unwrap();
        },
        &["4 of 5", "00002", "a link to ../blobs/abc, which is not there"],
    );
    let edit_index = |from: &'static str, to: &'static str| {
        move |dir: &Path| {
            let path = dir.join("model.safetensors.index.json");
            let index = fs::read_to_string(&path).unwrap();
            assert!(index.contains(from));
            fs::write(path, index.replacen(from, to, 1)).unwrap();
        }
    };
    let says = ["lm_head.weights", "the index says that it is in this file, but it is not"];
    check(
        "index names no tensor",
        SHARDED,
        keep,
        edit_index("\"lm_head.weight\"", "\"lm_head.weights\""),
        &says,
    );
    let elsewhere = edit_index("\"lm_head.weight\":\"model-00001", "\"lm_head.weight\":\"model-00002");
    check("index names another file", SHARDED, keep, elsewhere, &["model-00002", "tensor lm_head.weight"]);
    let outside = edit_index("\"model-00001", "\"../model-00001");
    check("index leaves the folder", SHARDED, keep, outside, &["index.json", "not a plain file name"]);
    check("index is no index", SHARDED, keep, edit_index("{", "["), &["index.json", "not a weight index"]);
    let empty = |dir: &Path| {
        fs::write(dir.join("model.safetensors.index.json"), r#"{"weight_map": {}}"#).unwrap();
    };
    check("index is empty", SHARDED, keep, empty, &["index.json", "names no weight files"]);
    let no_config = |dir: &Path| fs::remove_file(dir.join("config.json")).unwrap();
    check("no config", SHARDED, keep, no_config, &["no config.json in this folder"]);
    let no_weights = |dir: &Path| fs::remove_file(dir.join("model.safetensors")).unwrap();
    check("no weights", QWEN35, keep, no_weights, &["no .safetensors files"]);
    // No index at all is fine when all shards are there.
    let dir = tempfile::tempdir().unwrap();
    Tiny::new(SHARDED, 3).write(dir.path());
    no_index(dir.path());
    Checkpoint::open(dir.path()).unwrap();
}

#[test]
fn paths_that_are_no_checkpoints() {
    // "no such file" for everything, or a panic on an odd path.
    let dir = tempfile::tempdir().unwrap();
    fs::create_dir(dir.path().join("empty")).unwrap();
    fs::create_dir_all(dir.path().join("hub/snapshots")).unwrap();
    fs::write(dir.path().join("m.gguf"), "GGUF").unwrap();
    fs::write(dir.path().join("m.txt"), "").unwrap();
    fs::create_dir(dir.path().join("two")).unwrap();
    for name in ["a.gguf", "b-00002-of-00003.gguf", "b-00003-of-00003.gguf", "mmproj-a.gguf"] {
        fs::write(dir.path().join("two").join(name), "GGUF").unwrap();
    }
    for (name, says) in [
        ("absent", "is the drive connected?"),
        ("two", "several models in it, name one: a.gguf, b-00002-of-00003.gguf"),
        ("empty", "the folder is empty"),
        ("hub", "no config.json in this folder"),
        ("m.gguf", "truncated: the header goes on to byte 8"),
        ("m.txt", "expected a folder, a .safetensors or a .gguf file"),
        ("", "truncated: the header goes on to byte 8"),
    ] {
        let error = Checkpoint::open(&dir.path().join(name)).unwrap_err().to_string();
        assert!(error.contains(says), "{name}: {error}");
    }
}

#[test]
fn tensors_that_do_not_fit() {
    // Missing, unknown, doubled or misshapen tensors that pass, or are named one at a time.
    let check =
        |what: &str, layout, edit: &dyn Fn(&mut Tiny), says: &[&str]| check(what, layout, edit, |_| (), says);
    let p = "model.language_model.layers.1.";
    let renamed =
        |from: &'static str, to: &'static str| move |t: &mut Tiny| t.tensor_mut(from).name = to.into();
    let remove = |t: &mut Tiny| {
        t.remove("lm_head.weight");
        t.remove(&format!("{p}linear_attn.A_log"));
    };
    check("missing", QWEN35, &remove, &["2 tensors are missing: lm_head, linear_a_log of layer 1"]);
    let no_experts = |t: &mut Tiny| {
        t.remove(&format!("{p}mlp.experts.gate_up_proj"));
        t.remove(&format!("{p}mlp.experts.down_proj"));
        t.remove("model.language_model.layers.3.mlp.experts.down_proj");
    };
    let says = ["5 tensors are missing: all experts of layer 1, part of expert 0 of layer 3"];
    check("missing experts", QWEN35, &no_experts, &says);
    let shape = |t: &mut Tiny| t.tensor_mut("lm_head.weight").shape = vec![D_MODEL, N_VOCAB];
    check(
        "transposed",
        QWEN35,
        &shape,
        &["tensor lm_head.weight: has shape [128, 96], the config calls for [96, 128]"],
    );
    let dtype = |t: &mut Tiny| t.tensor_mut("lm_head.weight").dtype = "I8";
    check("dtype", QWEN35, &dtype, &["tensor lm_head.weight: has dtype I8, only BF16, F16 and F32"]);
    let unknown = |t: &mut Tiny| {
        for i in 0..7 {
            t.add(&mut Random(1), format!("model.layers.{i}.extra.weight"), &[1]);
        }
    };
    let says = ["7 tensors have names unknown to qwen3_5_moe: model.layers.0.extra.weight, ", " and 2 more"];
    check("unknown", QWEN35, &unknown, &says);
    let layer =
        |t: &mut Tiny| t.add(&mut Random(1), "model.layers.4.mlp.gate.weight".into(), &[N_EXPERT, D_MODEL]);
    check(
        "one layer more",
        QWEN35,
        &layer,
        &["model.layers.4.mlp.gate.weight (the config has no such layer"],
    );
    let expert =
        renamed("model.layers.0.mlp.experts.3.up_proj.weight", "model.layers.0.mlp.experts.4.up_proj.weight");
    check("one expert more", NEXT, &expert, &["experts.4.up_proj.weight (the config has no such"]);
    let both =
        |t: &mut Tiny| t.add(&mut Random(1), format!("{p}mlp.experts.2.up_proj.weight"), &[D_FF, D_MODEL]);
    check("both layouts", QWEN35, &both, &["holds the same weights as tensor", "experts.2.up_proj"]);
    let prefixes = |t: &mut Tiny| t.add(&mut Random(1), "model.norm.weight".into(), &[D_MODEL]);
    check("both prefixes", QWEN35, &prefixes, &["holds the same weights as tensor"]);
    let conv = |t: &mut Tiny| t.tensor_mut(&format!("{p}linear_attn.conv1d.weight")).shape.swap(1, 2);
    let says = ["layers.1.linear_attn.conv1d.weight: has shape [256, 4, 1], but", "the other way round"];
    check("half converted", QWEN35, &conv, &says);
}

#[test]
fn a_tensor_in_two_files() {
    // One of two copies taken by chance.
    let doubled = |dir: &Path| {
        fs::copy(dir.join(shard_name(0, 5)), dir.join(shard_name(1, 5))).unwrap();
        fs::remove_file(dir.join("model.safetensors.index.json")).unwrap();
    };
    check(
        "doubled",
        SHARDED,
        keep,
        doubled,
        &["model-00002-of-00005", "embed_tokens.weight: is also in", "00001"],
    );
}

#[test]
fn weights_that_are_not_numbers() {
    // A NaN that ends as an endless token 0; an error that does not say where it is.
    for (name, at, value, says) in [
        (
            "model.language_model.layers.2.mlp.experts.gate_up_proj",
            (3 * 128 + 65) * D_MODEL + 7,
            f32::NAN,
            "row 1 of expert_up of expert 3: the number in column 7 is not finite",
        ),
        (
            "model.language_model.layers.3.self_attn.q_proj.weight",
            9 * D_MODEL + 100,
            f32::INFINITY,
            "q_proj.weight: row 9 of attn_q",
        ),
        (
            "model.language_model.norm.weight",
            5,
            f32::NEG_INFINITY,
            "norm.weight: row 0 of final_norm: the number in column 5",
        ),
        ("lm_head.weight", 2 * D_MODEL, 3e38, "lm_head.weight: row 2 of lm_head: affine8g64 cannot hold"),
    ] {
        let dir = tempfile::tempdir().unwrap();
        let mut tiny = Tiny::new(Layout { dtype: "F32", ..QWEN35 }, 3);
        tiny.tensor_mut(name).values[at] = value;
        if value == 3e38 {
            tiny.tensor_mut(name).values[at + 1] = -value;
        }
        tiny.write(&dir.path().join("in"));
        let checkpoint = Checkpoint::open(&dir.path().join("in")).unwrap();
        let out = dir.path().join("out");
        let result = pack(&checkpoint, &out, &PackOptions::default(), &mut |_| ());
        let error = result.unwrap_err().to_string();
        assert!(error.contains(says) && error.contains("model.safetensors"), "{says}: {error}");
        let left: Vec<_> = fs::read_dir(dir.path()).unwrap().map(|e| e.unwrap().file_name()).collect();
        assert_eq!(left, ["in"], "{name}: something was left of a store that can never be finished");
    }
}

#[test]
fn a_source_cut_while_it_is_read() {
    // A shard truncated after it was opened: zeros or old bytes instead of an error.
    let dir = tempfile::tempdir().unwrap();
    Tiny::new(QWEN35, 3).write(&dir.path().join("in"));
    let checkpoint = Checkpoint::open(&dir.path().join("in")).unwrap();
    let shard = dir.path().join("in/model.safetensors");
    let len = fs::metadata(&shard).unwrap().len();
    fs::File::options().write(true).open(&shard).unwrap().set_len(len / 2).unwrap();
    let out = dir.path().join("out");
    let error = pack(&checkpoint, &out, &PackOptions::default(), &mut |_| ()).unwrap_err().to_string();
    assert!(error.contains("model.safetensors: cannot read") && error.contains("of tensor"), "{error}");
    assert!(!out.exists());
}

#[test]
fn an_output_that_is_there() {
    // A finished store overwritten.
    let dir = tempfile::tempdir().unwrap();
    Tiny::new(QWEN3, 3).write(dir.path());
    let checkpoint = Checkpoint::open(dir.path()).unwrap();
    let error = pack(&checkpoint, dir.path(), &PackOptions::default(), &mut |_| ()).unwrap_err().to_string();
    assert!(error.contains("already exists"), "{error}");
}
