//! Everything a user can get wrong or have broken: one line that says what, one that says what to do, no traces.

use std::fs::{self, File, OpenOptions};
use std::io::{Read, Seek, SeekFrom, Write};
use std::path::Path;
use std::process::Stdio;

use crate::support::{checkpoint, command, copy, flash_moe, store};

/// Packs a copy of a checkpoint that `damage` was done to: it must fail with `error`, and leave nothing behind.
#[track_caller]
fn check_pack(damage: impl Fn(&Path), error: &str, hint: &str) {
    let folder = tempfile::tempdir().unwrap();
    let source = folder.path().join("source");
    copy(&checkpoint("qwen3_5_moe_quantable"), &source);
    damage(&source);
    let out = folder.path().join("out.store");
    flash_moe(&["pack".as_ref(), source.as_os_str(), out.as_os_str()]).fails(1, error, hint);
    assert!(!out.exists(), "something that looks finished was left");
}

/// Runs `args` (`STORE` stands for it) on a copy of a store that `damage` was done to.
#[track_caller]
fn check_store(args: &[&str], damage: impl Fn(&Path), error: &str, hint: &str) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("damaged.store");
    copy(store(), &path);
    damage(&path);
    let path = path.to_str().unwrap();
    let args: Vec<&str> = args.iter().map(|arg| if *arg == "STORE" { path } else { arg }).collect();
    flash_moe(&args).fails(1, error, hint);
}

fn edit(path: &Path, change: impl Fn(String) -> String) {
    let before = fs::read_to_string(path).unwrap();
    let after = change(before.clone());
    assert_ne!(before, after, "nothing was changed in {}", path.display());
    fs::write(path, after).unwrap();
}

fn set_len(path: &Path, len: u64) {
    OpenOptions::new().write(true).open(path).unwrap().set_len(len).unwrap();
}

/// Puts the weights into two shards of which an index tells; the second one is only a name.
fn split_index(source: &Path) {
    let first = "model-00001-of-00002.safetensors";
    fs::rename(source.join("model.safetensors"), source.join(first)).unwrap();
    let names = tensor_names(&source.join(first));
    let place = |(i, name): (usize, &String)| {
        let shard = if i == 0 { "model-00002-of-00002.safetensors" } else { first };
        format!("{name:?}: {shard:?}")
    };
    let map: Vec<String> = names.iter().enumerate().map(place).collect();
    let index = format!("{{\"weight_map\": {{{}}}}}", map.join(", "));
    fs::write(source.join("model.safetensors.index.json"), index).unwrap();
}

/// Names of the tensors in a safetensors file.
fn tensor_names(path: &Path) -> Vec<String> {
    let mut file = File::open(path).unwrap();
    let mut length = [0; 8];
    file.read_exact(&mut length).unwrap();
    let mut header = vec![0; u64::from_le_bytes(length) as usize];
    file.read_exact(&mut header).unwrap();
    let header: serde_json::Map<String, serde_json::Value> = serde_json::from_slice(&header).unwrap();
    header.keys().filter(|name| *name != "__metadata__").cloned().collect()
}

/// A damaged download would be packed, or blamed on something else.
#[test]
fn checkpoints_that_are_damaged() {
    let weights = |source: &Path| source.join("model.safetensors");
    let full = fs::metadata(weights(&checkpoint("qwen3_5_moe_quantable"))).unwrap().len();
    check_pack(|source| set_len(&weights(source), full - 1000), "model.safetensors", "download");
    check_pack(|source| set_len(&weights(source), 0), "model.safetensors", "download");
    check_pack(|source| fs::remove_file(weights(source)).unwrap(), "no weights in this folder", "repository");
    check_pack(
        split_index,
        "1 of 2 weight files present, missing: model-00002-of-00002.safetensors",
        "download",
    );
    let ghost = |source: &Path| {
        let name = "model.language_model.layers.0.ghost.weight";
        let mut map: Vec<String> = tensor_names(&weights(source));
        map.push(name.into());
        let map: Vec<String> = map.iter().map(|name| format!("{name:?}: \"model.safetensors\"")).collect();
        let index = format!("{{\"weight_map\": {{{}}}}}", map.join(", "));
        fs::write(source.join("model.safetensors.index.json"), index).unwrap();
    };
    check_pack(ghost, "layers.0.ghost.weight", "");
    let nan = |source: &Path| {
        let mut file = OpenOptions::new().write(true).open(weights(source)).unwrap();
        file.seek(SeekFrom::End(-4096)).unwrap();
        file.write_all(&[0xC0, 0x7F].repeat(1024)).unwrap();
    };
    check_pack(nan, "tensor ", "damaged");
}

/// A model that is not ours would be packed into nonsense.
#[test]
fn checkpoints_that_are_not_for_us() {
    let config = |source: &Path| source.join("config.json");
    check_pack(|source| fs::remove_file(config(source)).unwrap(), "config.json", "SOURCE is a folder");
    check_pack(|source| fs::write(config(source), "").unwrap(), "config.json", "");
    let other = |source: &Path| edit(&config(source), |text| text.replace("\"qwen3_5_moe", "\"qwen4_exp"));
    check_pack(other, "qwen4_exp", "");
    let narrow = |source: &Path| {
        edit(&config(source), |text| text.replace("\"hidden_size\": 128", "\"hidden_size\": 64"))
    };
    check_pack(narrow, "tensor ", "");
    flash_moe(&["pack", "no/such/folder", "out.store"]).fails(1, "no/such/folder", "a checkpoint");
}

/// A damaged store would give wrong words, or a riddle.
#[test]
fn stores_that_are_damaged() {
    let flip = |path: &Path, at: u64| {
        let mut file = OpenOptions::new().read(true).write(true).open(path).unwrap();
        let mut byte = [0];
        file.seek(SeekFrom::Start(at)).unwrap();
        file.read_exact(&mut byte).unwrap();
        file.seek(SeekFrom::Start(at)).unwrap();
        file.write_all(&[byte[0] ^ 0x10]).unwrap();
    };
    let layer_1 = |path: &Path| path.join("experts/layer-001.bin");
    let one_bit = |path: &Path| flip(&layer_1(path), 100);
    check_store(&["verify", "STORE"], one_bit, "1 problem found", "copy or pack");
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("flipped.store");
    copy(store(), &path);
    one_bit(&path);
    let done = flash_moe(&["verify".as_ref(), path.as_os_str()]);
    assert!(done.stderr.contains("layer 1, expert 0"), "{done:?}");

    // Every record of the layer, so that the run needs one of them.
    let all_records = |path: &Path| {
        let n_byte = fs::metadata(layer_1(path)).unwrap().len();
        (0..n_byte).step_by(16 * 1024).for_each(|at| flip(&layer_1(path), at));
    };
    check_store(&["bench", "STORE", "--tokens", "1"], all_records, "layer 1 expert", "verify");
    check_store(&["bench", "STORE"], |path| flip(&path.join("dense.bin"), 4096), "dense.bin", "verify");
    check_store(&["inspect", "STORE"], |path| set_len(&layer_1(path), 100), "layer-001.bin", "");
    check_store(&["inspect", "STORE"], |path| set_len(&path.join("manifest.json"), 0), "manifest.json", "");
    let future = |path: &Path| {
        edit(&path.join("manifest.json"), |text| text.replacen("\"version\":1", "\"version\":99", 1));
    };
    check_store(&["inspect", "STORE"], future, "store version 99", "newer flash-moe");
    check_store(
        &["inspect", "STORE"],
        |path| fs::remove_file(path.join("manifest.json")).unwrap(),
        "no weights in this folder",
        "MODEL is a store",
    );
}

/// A permission problem would look like a damaged store.
#[test]
#[cfg(unix)]
fn a_file_that_may_not_be_read() {
    use std::os::unix::fs::PermissionsExt;

    let forbid = |path: &Path| {
        let file = path.join("dense.bin");
        fs::set_permissions(&file, fs::Permissions::from_mode(0o000)).unwrap();
    };
    let folder = tempfile::tempdir().unwrap();
    let probe = folder.path().join("dense.bin");
    fs::write(&probe, "x").unwrap();
    forbid(folder.path());
    if File::open(&probe).is_ok() {
        // Not eprintln!, which the test runner keeps to itself when a test passes.
        let _ = writeln!(std::io::stderr(), "SKIPPED: this user may read everything");
        return;
    }
    check_store(&["bench", "STORE"], forbid, "dense.bin", "ls -l");
}

/// A user would be told nothing about what to do.
#[test]
fn models_that_cannot_be_run() {
    let golden = checkpoint("qwen3_5_moe_quantable");
    let golden = golden.to_str().unwrap();
    let store = store().to_str().unwrap();
    flash_moe(&["run", golden, "hello"]).fails(1, "no tokenizer", "flash-moe bench");
    flash_moe(&["run", "./nothing.store", "hello"]).fails(1, "nothing.store", "");
    flash_moe(&["run", store, "hello"]).fails(1, "no tokenizer", "flash-moe bench");
    flash_moe(&["chat", store]).fails(1, "no tokenizer", "flash-moe bench");
    flash_moe(&["pack", golden, store]).fails(1, "already exists", "another name");
    flash_moe(&["bench", store, "--memory", "1MiB"]).fails(1, "dense weights", "--memory");
    flash_moe(&["bench", store, "--experts", "99"]).fails(2, "--experts 99", "");
    flash_moe(&["bench", store, "--ctx", "1000000000"]).fails(2, "context", "");
    flash_moe(&["pack", golden, "x.store", "--group", "7"]).fails(2, "group 7", "");
    let memory = flash_moe(&["inspect", store, "--memory", "1MiB"]).ok();
    assert!(memory.stdout.contains("memory plan: none"), "{memory:?}");
}

/// Files for `eval` would be taken for something else, or half an array would be left.
#[test]
fn bad_files_for_eval() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let (ids, out) = (path("ids"), path("out.npy"));
    let store = store().to_str().unwrap();
    let check = |contents: &str, split: &str, code: i32, error: &str| {
        fs::write(&ids, contents).unwrap();
        let args = ["eval", store, "--ids", &ids, "--dump-logits", &out, "--split", split];
        flash_moe(&args).fails(code, error, "");
        assert!(!Path::new(&out).exists());
    };
    check("1 2 three", "3", 1, "'three' is not a token id");
    check("", "1", 1, "no token ids");
    check("1 2 3", "2", 2, "--split: 2 tokens, there are 3");
    check("1 999999", "2", 1, "token id 999999");
    let args = ["eval", store, "--ids", &ids, "--dump-logits", &out];
    flash_moe(&[&args[..], &["--temperature", "1"]].concat()).fails(2, "samples nothing", "");
    fs::remove_file(&ids).unwrap();
    flash_moe(&["eval", store, "--ids", &ids, "--dump-logits", &out]).fails(1, "cannot read", "");
}

/// `flash-moe inspect | head -1` would end with a complaint.
#[test]
fn a_closed_pipe_is_no_failure() {
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let mut command = command(&["inspect".as_ref(), store().as_os_str()]);
    let out = command.stdout(writer).stdin(Stdio::null()).output().unwrap();
    assert_eq!((out.status.code(), String::from_utf8(out.stderr).unwrap().as_str()), (Some(0), ""));
}
