//! GGUF files: what is read of them, and what is refused.

mod common;

use std::fs;
use std::io::{Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use common::Random;
use common::gguf::{File, Golden, random_bytes, string};
use convert::gguf::{Value, read_header};
use convert::safetensors::HeaderError;
use convert::{Bits, Checkpoint, PackOptions, SourceKind, pack};
use serde_json::{Value as Json, json};
use store::{Architecture, LayerKind, RopeScaling, Store};
use tempfile::TempDir;

fn header_error(bytes: &[u8]) -> HeaderError {
    match read_header(&mut &bytes[..], bytes.len() as u64).unwrap() {
        Ok(header) => panic!("taken for {header:?}"),
        Err(e) => e,
    }
}

fn check_header(bytes: &[u8], says: &str) {
    let error = header_error(bytes).to_string();
    assert!(error.contains(says), "{error:?} does not say {says:?}");
}

/// A file with a key of every type and a tensor.
fn sample() -> File {
    let mut file = File::default();
    file.text("general.architecture", "qwen35moe");
    file.key("u8", 0, &[200]);
    file.key("i8", 1, &[200]);
    file.key("u16", 2, &[1, 2]);
    file.key("i16", 3, &[0xff, 0xff]);
    file.u32("u32", 7);
    file.key("i32", 5, &(-7i32).to_le_bytes());
    file.key("f32", 6, &1e-6f32.to_le_bytes());
    file.key("bool", 7, &[1]);
    file.key("u64", 10, &u64::MAX.to_le_bytes());
    file.key("i64", 11, &(-5i64).to_le_bytes());
    file.key("f64", 12, &0.1f64.to_le_bytes());
    file.array("numbers", 3, 3, &[1, 0, 2, 0, 0xff, 0xff]);
    file.texts("texts", ["a", "", "bc"]);
    // Two arrays of bytes.
    let inner = |n: u64, bytes: &[u8]| [&0u32.to_le_bytes()[..], &n.to_le_bytes(), bytes].concat();
    file.array("nested", 9, 2, &[inner(1, &[1]), inner(2, &[2, 3])].concat());
    file.tensor("a", &[32, 2], 8, &random_bytes(1, 68));
    file.tensor("b", &[3, 2], 0, &random_bytes(2, 24));
    file
}

#[test]
fn every_type_of_value_is_read() {
    // A value of the wrong width moves all that follows.
    for version in [2, 3] {
        let bytes = File { version, ..sample() }.bytes();
        let header = read_header(&mut &bytes[..], bytes.len() as u64).unwrap().unwrap();
        let get = |key: &str| header.metadata[key].clone();
        assert_eq!(get("u8"), Value::Unsigned(200));
        assert_eq!(get("i8"), Value::Signed(-56));
        assert_eq!(get("u16"), Value::Unsigned(513));
        assert_eq!(get("i16"), Value::Signed(-1));
        assert_eq!(get("i32"), Value::Signed(-7));
        assert_eq!(get("f32"), Value::Float(1e-6));
        assert_eq!(get("bool"), Value::Bool(true));
        assert_eq!(get("u64"), Value::Unsigned(u64::MAX));
        assert_eq!(get("i64"), Value::Signed(-5));
        assert_eq!(get("f64"), Value::Float(0.1));
        let Value::Numbers(numbers) = get("numbers") else { panic!("{:?}", get("numbers")) };
        let expected = [1, 2, -1].map(Value::Signed);
        assert_eq!(numbers.iter().collect::<Vec<_>>(), expected);
        let Value::Texts(texts) = get("texts") else { panic!("{:?}", get("texts")) };
        assert_eq!(texts.iter().collect::<Vec<_>>(), [&b"a"[..], b"", b"bc"]);
        assert_eq!(get("nested"), Value::Nested);
        let [a, b] = &header.tensors[..] else { panic!("{:?}", header.tensors) };
        assert_eq!((a.name.as_str(), &a.shape[..], a.bytes, a.type_id), ("a", &[2, 32][..], 68, 8));
        assert_eq!((b.name.as_str(), &b.shape[..], b.bytes), ("b", &[2, 3][..], 24));
        assert_eq!((a.offset % 32, b.offset - a.offset), (0, 96));
        assert_eq!(header.end, b.offset + 24);
    }
}

#[test]
fn damaged_headers_are_refused() {
    // A count or length that is believed: an allocation of terabytes, a read outside the file, a panic.
    let change = |change: &dyn Fn(&mut File)| {
        let mut file = sample();
        change(&mut file);
        file.bytes()
    };
    check_header(b"", "empty");
    check_header(b"GGUF", "truncated");
    check_header(b"<!DOCTYPE html><html>", "a web page");
    check_header(b"version https://git-lfs.github.com/spec/v1", "a git-lfs pointer");
    check_header(b"\x10\0\0\0\0\0\0\0{}", "does not begin with GGUF");
    check_header(b"FUGG\0\0\0\x03", "big-endian");
    check_header(b"GGUF\0\0\0\x03\0\0\0\0\0\0\0\0", "big-endian");
    check_header(b"GGUF\x01\0\0\0\0\0\0\0\0\0\0\0", "version 1");
    check_header(b"GGUF\x04\0\0\0\0\0\0\0\0\0\0\0", "version 4 is not known");
    let counts = |tensors: u64, keys: u64| {
        let mut bytes = sample().bytes();
        bytes[8..16].copy_from_slice(&tensors.to_le_bytes());
        bytes[16..24].copy_from_slice(&keys.to_le_bytes());
        bytes
    };
    check_header(&counts(u64::MAX, 1), "tensors do not fit");
    check_header(&counts(1, u64::MAX / 13), "keys do not fit");
    let long = [&(1u64 << 40).to_le_bytes()[..], b"x"].concat();
    check_header(&change(&|f| f.key("k", 8, &long)), "the header goes on to byte");
    check_header(&change(&|f| f.array("k", 8, 1 << 60, b"")), "values of key k do not fit");
    check_header(&change(&|f| f.array("k", 10, u64::MAX / 8 + 2, b"")), "values of key k do not fit");
    check_header(&change(&|f| f.array("k", 9, 1 << 50, b"")), "values of key k do not fit");
    check_header(&change(&|f| f.array("k", 13, 1, &[0; 64])), "type 13, which does not exist");
    check_header(&change(&|f| f.key("k", 99, &[0; 64])), "type 99, which does not exist");
    check_header(&change(&|f| f.key("k", 7, &[2])), "neither true nor false");
    check_header(&change(&|f| f.array("k", 7, 2, &[1, 3])), "neither true nor false");
    check_header(&change(&|f| f.u32("u32", 8)), "key u32 appears twice");
    check_header(&change(&|f| f.u32("general.alignment", 0)), "no power of two");
    check_header(&change(&|f| f.u32("general.alignment", 24)), "no power of two");
    check_header(&change(&|f| f.text("general.alignment", "32")), "no power of two");
    let deep = |depth: u32| {
        let one = [9u32.to_le_bytes().to_vec(), 1u64.to_le_bytes().to_vec()].concat();
        one.repeat(depth as usize)
    };
    check_header(&change(&|f| f.key("k", 9, &deep(2000))), "arrays in arrays");
    check_header(&change(&|f| f.keys.push([&2u64.to_le_bytes()[..], &[0xff, 0xfe]].concat())), "not UTF-8");
    check_header(&change(&|f| f.keys.push((1u64 << 20).to_le_bytes().to_vec())), "a key has 1048576 bytes");
    check_header(&change(&|f| f.tensor("a", &[32], 0, &[0; 128])), "tensor a: appears twice");
    check_header(&change(&|f| f.tensor("c", &[], 0, &[0; 128])), "tensor c has 0 axes");
    check_header(&change(&|f| f.tensor("c", &[1; 5], 0, &[0; 128])), "tensor c has 5 axes");
    check_header(
        &change(&|f| f.tensor("c", &[48, 2], 8, &[0; 128])),
        "has rows of 48, Q8_0 needs a multiple of 32",
    );
    check_header(&change(&|f| f.tensor("c", &[1 << 40, 1 << 40], 0, &[])), "too large to be true");
    check_header(&change(&|f| f.tensor("c", &[1 << 62], 0, &[])), "too large to be true");
    check_header(&change(&|f| f.tensor("c", &[1 << 30], 0, &[])), "truncated: tensor c ends at byte");
    check_header(&change(&|f| f.infos[1].1 = 32), "overlaps tensor b");
    check_header(&change(&|f| f.infos[1].1 = 100), "no multiple of 32");
    check_header(&change(&|f| f.infos[1].1 = u64::MAX - 31), "truncated: tensor b");
}

#[test]
fn every_cut_is_noticed() {
    // A download that ended early, at any byte of the header or of the data.
    let bytes = sample().bytes();
    let header = read_header(&mut &bytes[..], bytes.len() as u64).unwrap().unwrap();
    for n in 0..header.end as usize {
        header_error(&bytes[..n]);
    }
    assert!(read_header(&mut &bytes[..header.end as usize], header.end).unwrap().is_ok());
}

#[test]
fn every_flipped_byte_is_survived() {
    // A panic or a huge allocation behind any single byte. That it is noticed is not promised.
    let bytes = sample().bytes();
    for at in 0..sample().header().len() {
        for flip in [0x01, 0x80, 0xff] {
            let mut damaged = bytes.clone();
            damaged[at] ^= flip;
            let _ = read_header(&mut &damaged[..], damaged.len() as u64).unwrap();
        }
    }
}

/// A golden model in a folder.
struct Model {
    dir: TempDir,
    path: PathBuf,
}

impl Model {
    /// As it is.
    fn golden(name: &str) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let path = Golden::read(name).write(dir.path());
        Self { dir, path }
    }

    /// The file of `name`, changed.
    fn changed(name: &str, change: impl FnOnce(&mut File)) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let mut file = Golden::read(name).files[0].build();
        change(&mut file);
        let path = dir.path().join("model.gguf");
        fs::write(&path, file.bytes()).unwrap();
        Self { dir, path }
    }

    fn error(&self) -> String {
        match Checkpoint::open(&self.path) {
            Ok(_) => panic!("{} opens", self.path.display()),
            Err(e) => e.to_string(),
        }
    }
}

/// Replaces the value of a key, or removes it.
fn set(file: &mut File, key: &str, entry: Option<Vec<u8>>) {
    let start = string(key);
    let at = file.keys.iter().position(|k| k.starts_with(&start));
    match (at, entry) {
        (Some(at), None) => drop(file.keys.remove(at)),
        (Some(at), Some(entry)) => file.keys[at] = entry,
        (None, Some(entry)) => file.keys.push(entry),
        (None, None) => panic!("no key {key}"),
    }
}

fn set_u32(file: &mut File, key: &str, value: u32) {
    set(file, key, Some([&string(key)[..], &4u32.to_le_bytes(), &value.to_le_bytes()].concat()));
}

fn set_text(file: &mut File, key: &str, value: &str) {
    set(file, key, Some([&string(key)[..], &8u32.to_le_bytes(), &string(value)].concat()));
}

fn set_f32(file: &mut File, key: &str, value: f32) {
    set(file, key, Some([&string(key)[..], &6u32.to_le_bytes(), &value.to_le_bytes()].concat()));
}

#[test]
fn the_configuration_of_each_architecture() {
    // A field read from the wrong key, a block for several tokens taken for a layer, heads in the wrong order.
    let qwen35 = Checkpoint::open(&Model::golden("q4_k_m").path).unwrap();
    let config = qwen35.config();
    assert_eq!(qwen35.kind(), SourceKind::Gguf);
    assert_eq!(qwen35.name(), "Tiny q4_k_m");
    assert_eq!(config.architecture, Architecture::Qwen35Moe);
    let (linear, full) = (LayerKind::LinearAttention, LayerKind::FullAttention);
    assert_eq!(config.layers, [linear, linear, full]);
    assert_eq!((config.d_model, config.n_vocab, config.n_ctx_train), (256, 268, 4096));
    assert_eq!((config.n_head, config.n_head_kv, config.head_dim, config.n_rot), (4, 2, 64, 16));
    assert_eq!((config.rope_theta, config.rms_norm_eps), (1e7, 1e-6));
    assert_eq!(
        (config.n_expert, config.n_expert_used, config.d_ff_expert, config.d_ff_shared),
        (6, 2, 256, 256)
    );
    assert!(config.norm_topk_prob && config.attention_gate && !config.tie_word_embeddings);
    let linear = config.linear.unwrap();
    assert_eq!((linear.n_head_k, linear.n_head_v, linear.head_dim_k, linear.head_dim_v), (4, 8, 64, 32));
    assert!(linear.out_heads_tiled);
    assert_eq!(qwen35.skipped(), ["multi-token prediction: 20 tensors"]);

    assert!(Checkpoint::open(&Model::golden("q2_k").path).unwrap().config().tie_word_embeddings);
    let next = Checkpoint::open(&Model::golden("next").path).unwrap();
    assert_eq!(next.config().architecture, Architecture::Qwen3Next);
    assert!(!next.config().linear.unwrap().out_heads_tiled);
    let moe = Checkpoint::open(&Model::golden("moe").path).unwrap();
    assert_eq!(moe.config().architecture, Architecture::Qwen3Moe);
    assert_eq!((moe.config().linear, moe.config().d_ff_shared, moe.config().n_rot), (None, 0, 64));
    assert!(!moe.config().attention_gate);
}

#[test]
fn keys_that_files_may_have_otherwise() {
    // Heads given once a layer, YaRN, a file that says nothing of rotated dims.
    let heads: Vec<u8> = [0u32, 0, 2].iter().flat_map(|n| n.to_le_bytes()).collect();
    let model = Model::changed("q8_0", |file| {
        set(file, "qwen35moe.attention.head_count_kv", None);
        file.array("qwen35moe.attention.head_count_kv", 4, 3, &heads);
        set_text(file, "qwen35moe.rope.scaling.type", "yarn");
        set_f32(file, "qwen35moe.rope.scaling.factor", 4.0);
        set_u32(file, "qwen35moe.rope.scaling.original_context_length", 1024);
    });
    let checkpoint = Checkpoint::open(&model.path).unwrap();
    assert_eq!(checkpoint.config().n_head_kv, 2);
    let expected = RopeScaling { factor: 4.0, n_ctx_original: 1024 };
    assert_eq!(checkpoint.config().rope_scaling, Some(expected));
    let model = Model::changed("q8_0", |file| set_text(file, "general.name", "a\nb\u{1b}[2J"));
    assert_eq!(Checkpoint::open(&model.path).unwrap().name(), "model", "no name to show");
    let model = Model::changed("q8_0", |file| set(file, "qwen35moe.full_attention_interval", None));
    assert!(model.error().contains("blk.2."), "layers of another kind are noticed: {}", model.error());
}

#[test]
fn metadata_that_is_missing_wrong_or_not_supported() {
    // A default in place of a field, arithmetic that is not that of the model, an error that does not name the key.
    let check = |change: &dyn Fn(&mut File), says: &str| {
        let error = Model::changed("q8_0", change).error();
        assert!(error.contains(says), "{error:?} does not say {says:?}");
    };
    let key = |name: &str| format!("qwen35moe.{name}");
    for name in [
        "block_count",
        "context_length",
        "embedding_length",
        "attention.head_count",
        "attention.head_count_kv",
        "attention.key_length",
        "attention.value_length",
        "attention.layer_norm_rms_epsilon",
        "rope.freq_base",
        "rope.dimension_count",
        "expert_count",
        "expert_used_count",
        "expert_feed_forward_length",
        "expert_shared_feed_forward_length",
        "ssm.conv_kernel",
        "ssm.state_size",
        "ssm.group_count",
        "ssm.time_step_rank",
        "ssm.inner_size",
    ] {
        let says = format!("metadata key {} is missing", key(name));
        check(&|file| set(file, &key(name), None), &says);
        check(&|file| set_text(file, &key(name), "x"), &format!("{} is \"x\", expected", key(name)));
    }
    check(&|file| set(file, "general.architecture", None), "general.architecture is missing");
    check(
        &|file| set_text(file, "general.architecture", "llama"),
        "architecture \"llama\" is not supported; supported: qwen35moe",
    );
    check(&|file| set_text(file, "general.architecture", "clip"), "mmproj");
    check(
        &|file| set_u32(file, &key("expert_count"), 5),
        "has shape [6, 256], the config calls for [5, 256]",
    );
    check(&|file| set_u32(file, &key("expert_count"), u32::MAX), "expected an integer from 1 to");
    check(&|file| set_u32(file, &key("embedding_length"), 128), "has shape");
    check(&|file| set_u32(file, &key("block_count"), 4), "missing");
    check(&|file| set_u32(file, &key("nextn_predict_layers"), 3), "no layer is left");
    check(&|file| set_u32(file, &key("attention.value_length"), 32), "not supported");
    check(&|file| set_u32(file, &key("ssm.inner_size"), 767), "no multiple of");
    check(&|file| set_u32(file, &key("ssm.group_count"), 4), "not a multiple of linear.n_head_k");
    check(&|file| set_u32(file, &key("expert_gating_func"), 2), "expert_gating_func 2 is not supported");
    check(
        &|file| set_f32(file, &key("expert_weights_scale"), 2.5),
        "expert_weights_scale 2.5 is not supported",
    );
    check(
        &|file| set_u32(file, &key("attention.sliding_window"), 4096),
        "sliding_window 4096 is not supported",
    );
    check(&|file| set_text(file, &key("rope.scaling.type"), "linear"), "linear is not supported");
    check(&|file| set_text(file, &key("rope.scaling.type"), "yarn"), "rope.scaling.factor is missing");
    check(&|file| set_f32(file, &key("rope.freq_base"), f32::NAN), "expected a finite number");
    check(&|file| set_f32(file, &key("rope.freq_base"), 0.0), "expected a number above zero");
}

#[test]
fn tensors_that_are_missing_unknown_doubled_or_misshapen() {
    // A layer without experts is noticed when the file is opened, not when a token needs them.
    let without = |name: &'static str| {
        move |file: &mut File| {
            let start = string(name);
            file.infos.retain(|(info, _)| !info.starts_with(&start));
        }
    };
    let check = |change: &dyn Fn(&mut File), says: &str| {
        let error = Model::changed("q8_0", change).error();
        assert!(error.contains(says), "{error:?} does not say {says:?}");
    };
    check(&without("blk.1.ffn_down_exps.weight"), "part of expert 0 of layer 1");
    check(&without("blk.2.attn_q_norm.weight"), "attn_q_norm of layer 2");
    check(&without("blk.0.ssm_a"), "linear_a_log of layer 0");
    check(&without("token_embd.weight"), "token_embd.weight is missing");
    check(
        &|file| file.tensor("blk.1.attn_q.weight", &[256, 512], 8, &random_bytes(1, 139_264)),
        "unknown to qwen3_5_moe",
    );
    check(&|file| file.tensor("blk.0.attn_rot.weight", &[256], 0, &[0; 1024]), "blk.0.attn_rot.weight");
    check(&|file| file.tensor("blk.7.attn_norm.weight", &[256], 0, &[0; 1024]), "blk.7.attn_norm.weight");
    check(&|file| file.tensor("blk.00.attn_norm.weight", &[256], 0, &[0; 1024]), "blk.00.attn_norm.weight");
    let fused = |file: &mut File| {
        file.tensor("blk.0.ffn_gate_up_exps.weight", &[256, 512, 6], 8, &random_bytes(1, 835_584));
    };
    check(&fused, "holds the same weights as tensor blk.0.ffn_gate_exps.weight");
    let odd = |file: &mut File| {
        without("blk.0.ffn_gate_inp.weight")(file);
        file.tensor("blk.0.ffn_gate_inp.weight", &[256, 6], 34, &[0; 324]);
    };
    check(&odd, "has type TQ1_0, which is not supported");
}

#[test]
fn damaged_models_are_survived() {
    // A panic or a huge allocation behind a header that is read but means nonsense.
    let model = Model::golden("moe");
    let header = Golden::read("moe").files[0].build().header();
    let file = fs::File::options().write(true).open(&model.path).unwrap();
    let mut random = Random(0x5eed);
    for round in 0..500 {
        let mut damaged = header.clone();
        for _ in 0..1 + round % 4 {
            let at = random.next() as usize % damaged.len();
            damaged[at] = if random.next().is_multiple_of(2) { 0xff } else { random.next() as u8 };
        }
        (&file).seek(SeekFrom::Start(0)).unwrap();
        (&file).write_all(&damaged).unwrap();
        let _ = Checkpoint::open(&model.path);
    }
}

#[test]
fn values_that_are_no_decay_are_refused() {
    // A decay that is positive would become NaN and a model that answers nonsense.
    let golden = Golden::read("next");
    let mut file = golden.files[0].build();
    let at = golden.files[0].tensors.iter().position(|t| t.name == "blk.0.ssm_a").unwrap();
    let offset = file.infos[at].1 as usize;
    file.data[offset..offset + 4].copy_from_slice(&0.5f32.to_le_bytes());
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("m.gguf");
    fs::write(&path, file.bytes()).unwrap();
    let checkpoint = Checkpoint::open(&path).unwrap();
    let options = PackOptions { bits: Bits::Source, ..PackOptions::default() };
    let error = pack(&checkpoint, &dir.path().join("out"), &options, &mut |_| ()).unwrap_err().to_string();
    assert!(error.contains("blk.0.ssm_a") && error.contains("not finite"), "{error}");
}

#[test]
fn parts_find_each_other() {
    // Any part given, a folder with a vision encoder too, a part missing, parts of two models, parts joined by cat, a
    // part under another name.
    let model = Model::golden("mxfp4");
    let golden = Golden::read("mxfp4");
    let part = |i: usize| model.dir.path().join(&golden.files[i].name);
    let expected = Checkpoint::open(&part(0)).unwrap().weight_bytes();
    for i in 1..3 {
        assert_eq!(Checkpoint::open(&part(i)).unwrap().weight_bytes(), expected);
    }
    fs::write(model.dir.path().join("mmproj-F16.gguf"), "GGUF").unwrap();
    assert_eq!(Checkpoint::open(model.dir.path()).unwrap().weight_bytes(), expected);

    let joined = model.dir.path().join("joined.gguf");
    let all: Vec<u8> = (0..3).flat_map(|i| fs::read(part(i)).unwrap()).collect();
    fs::write(&joined, all).unwrap();
    let error = Checkpoint::open(&joined).unwrap_err().to_string();
    assert!(error.contains("must not be joined with cat"), "{error}");
    fs::remove_file(&joined).unwrap();

    let renamed = model.dir.path().join("renamed.gguf");
    fs::copy(part(1), &renamed).unwrap();
    let error = Checkpoint::open(&renamed).unwrap_err().to_string();
    assert!(error.contains("one of 3 parts") && error.contains("NAME-00001-of-00003.gguf"), "{error}");
    fs::remove_file(&renamed).unwrap();

    let second = fs::read(part(1)).unwrap();
    fs::write(part(1), fs::read(part(2)).unwrap()).unwrap();
    let error = Checkpoint::open(&part(0)).unwrap_err().to_string();
    assert!(error.contains("is not part 2 of 3"), "{error}");
    fs::write(part(1), &second[..second.len() - 100_000]).unwrap();
    let error = Checkpoint::open(&part(0)).unwrap_err().to_string();
    assert!(error.contains("00002-of-00003.gguf: truncated: tensor blk."), "{error}");
    fs::remove_file(part(1)).unwrap();
    for i in [0, 2] {
        let error = Checkpoint::open(&part(i)).unwrap_err().to_string();
        assert!(error.contains("2 of 3 weight files present, missing: mxfp4-00002-of-00003.gguf"), "{error}");
    }
}

#[test]
fn text_files_are_made_of_metadata() {
    // A turn that never ends, a marker that is shown or hidden, a padding row taken for a token.
    let checkpoint = Checkpoint::open(&Model::golden("q8_0").path).unwrap();
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().join("out");
    let options = PackOptions { bits: Bits::Source, ..PackOptions::default() };
    pack(&checkpoint, &out, &options, &mut |_| ()).unwrap();
    let store = Store::open(&out).unwrap();
    let sidecar = |name: &str| store.sidecar(name).unwrap().unwrap_or_else(|| panic!("no {name}"));
    let read = |name: &str| serde_json::from_slice::<Json>(&sidecar(name)).unwrap();
    assert_eq!(sidecar("chat_template.jinja"), b"{{ messages[0].content }}");
    assert_eq!(read("generation_config.json"), json!({"eos_token_id": [262, 260]}));
    assert_eq!(read("tokenizer_config.json")["eos_token"], "<|im_end|>");
    let tokenizer = read("tokenizer.json");
    assert_eq!(tokenizer["model"]["vocab"].as_object().unwrap().len(), 260);
    assert_eq!(tokenizer["model"]["merges"][2], json!(["Ġt", "he"]));
    let added: Vec<_> = tokenizer["added_tokens"]
        .as_array()
        .unwrap()
        .iter()
        .map(|t| (t["content"].as_str().unwrap(), t["id"].as_u64().unwrap(), t["special"].as_bool().unwrap()))
        .collect();
    let expected = [
        ("<|endoftext|>", 260, true),
        ("<|im_start|>", 261, true),
        ("<|im_end|>", 262, true),
        ("<think>", 263, false),
        ("</think>", 264, false),
        ("<|fim_pad|>", 265, false),
    ];
    assert_eq!(added, expected);
}

/// The metadata that the common converter makes of a Hugging Face tokenizer, in a model that has as many rows.
fn metadata_of(tokenizer: &Json, pre: &str) -> File {
    let vocab = tokenizer["model"]["vocab"].as_object().unwrap();
    let added = tokenizer["added_tokens"].as_array().unwrap();
    let n = vocab.len() + added.len() + 3;
    let mut tokens: Vec<String> = (0..n).map(|i| format!("[PAD{i}]")).collect();
    let mut kinds = vec![5i32; n];
    for (text, id) in vocab {
        let id = id.as_u64().unwrap() as usize;
        (tokens[id], kinds[id]) = (text.clone(), 1);
    }
    for token in added {
        let (id, text) = (token["id"].as_u64().unwrap() as usize, token["content"].as_str().unwrap());
        let looks_special = text.starts_with("<|") && text.ends_with("|>");
        let is_control = looks_special || token["special"].as_bool().unwrap();
        (tokens[id], kinds[id]) = (text.to_owned(), if is_control { 3 } else { 4 });
    }
    let merges = tokenizer["model"]["merges"].as_array().unwrap();
    let merges: Vec<String> = merges
        .iter()
        .map(|pair| match pair {
            Json::String(pair) => pair.clone(),
            pair => format!("{} {}", pair[0].as_str().unwrap(), pair[1].as_str().unwrap()),
        })
        .collect();
    let golden = Golden::read("moe");
    let mut file = golden.files[0].build();
    set_text(&mut file, "tokenizer.ggml.pre", pre);
    for key in ["tokens", "token_type", "merges", "eos_token_id"] {
        set(&mut file, &format!("tokenizer.ggml.{key}"), None);
    }
    file.texts("tokenizer.ggml.tokens", tokens.iter().map(String::as_str));
    let kinds: Vec<u8> = kinds.iter().flat_map(|kind| kind.to_le_bytes()).collect();
    file.array("tokenizer.ggml.token_type", 5, n as u64, &kinds);
    file.texts("tokenizer.ggml.merges", merges.iter().map(String::as_str));
    // Embedding and head get as many rows, in F16 to be small.
    for name in ["token_embd.weight", "output.weight"] {
        let start = string(name);
        file.infos.retain(|(info, _)| !info.starts_with(&start));
        file.tensor(name, &[256, n as u64], 1, &vec![0; n * 512]);
    }
    file
}

/// The tokenizer that is made of the metadata made of one is the same.
fn check_round_trip(path: &Path, pre: &str) {
    let expected: Json = serde_json::from_slice(&fs::read(path).unwrap()).unwrap();
    let dir = tempfile::tempdir().unwrap();
    let model = dir.path().join("m.gguf");
    fs::write(&model, metadata_of(&expected, pre).bytes()).unwrap();
    let checkpoint = Checkpoint::open(&model).unwrap();
    let sidecars = checkpoint.sidecars();
    let (_, bytes) = sidecars.iter().find(|(name, _)| name == "tokenizer.json").expect("a tokenizer");
    let got: Json = serde_json::from_slice(bytes).unwrap();
    for part in ["added_tokens", "normalizer", "pre_tokenizer", "post_processor", "decoder", "model"] {
        assert!(got[part] == expected[part], "{part} of {}", path.display());
    }
}

#[test]
fn tokenizers_survive_the_way_through_metadata() {
    // Another split, normaliser, merge or special token: other ids for the same text.
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    check_round_trip(&root.join("../cli/demo/tokenizer.json"), "qwen35");
    let shared = root.join("../../../shared/tokenizer/tokenizer.json");
    match shared.is_file() {
        true => check_round_trip(&shared, "qwen35"),
        false => println!("SKIPPED: no {} here, only the demo model's tokenizer was tried", shared.display()),
    }
}

#[test]
fn tokenizers_that_are_not_supported_leave_the_weights_usable() {
    // A model that cannot be opened for its text, or text cut in another way than the model knows.
    let check = |change: &dyn Fn(&mut File), says: &str| {
        let checkpoint = Checkpoint::open(&Model::changed("q8_0", change).path).unwrap();
        let notes = checkpoint.notes().join("\n");
        assert!(notes.contains(says) && notes.contains("token ids"), "{notes:?} does not say {says:?}");
        assert!(!checkpoint.sidecars().iter().any(|(name, _)| name == "tokenizer.json"));
    };
    check(
        &|file| set_text(file, "tokenizer.ggml.pre", "llama-bpe"),
        "\"llama-bpe\" is not supported (qwen35, qwen2",
    );
    check(&|file| set_text(file, "tokenizer.ggml.model", "llama"), "model \"llama\" is not supported");
    check(&|file| set(file, "tokenizer.ggml.model", None), "the file has no tokenizer");
    check(&|file| set(file, "tokenizer.ggml.pre", None), "tokenizer.ggml.pre");
    check(&|file| set(file, "tokenizer.ggml.token_type", None), "token_type");
}

#[test]
fn tokenizers_that_contradict_themselves_are_refused() {
    // An id beyond the vocabulary is an index out of bounds later.
    let check = |change: &dyn Fn(&mut File), says: &str| {
        let error = Model::changed("q8_0", change).error();
        assert!(error.contains(says), "{error:?} does not say {says:?}");
    };
    check(&|file| set(file, "tokenizer.ggml.merges", None), "tokenizer.ggml.merges is missing");
    check(&|file| set_u32(file, "tokenizer.ggml.eos_token_id", 268), "there are 268 tokens");
    let texts = |file: &mut File, key: &str, texts: &[&str]| {
        set(file, key, None);
        file.texts(key, texts.iter().copied());
    };
    check(&|file| texts(file, "tokenizer.ggml.tokens", &["a"]), "has 1 entries, the embedding 268 rows");
    check(
        &|file| texts(file, "tokenizer.ggml.tokens", &["a"; 268]),
        "token \"a\" of tokenizer.ggml.tokens appears twice",
    );
    check(
        &|file| texts(file, "tokenizer.ggml.merges", &["ab"]),
        "entry 0 of tokenizer.ggml.merges is not two texts",
    );
    check(&|file| set_text(file, "tokenizer.ggml.token_type", "x"), "not an array of numbers");
}
