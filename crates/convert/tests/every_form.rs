//! What must hold for checkpoints of every form, packed or used where they are: originals, MLX, FP8, GGUF.

#[path = "common/forms.rs"]
mod checkpoints;
mod common;

use std::fs;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use checkpoints::*;
use common::gguf::Golden;
use common::*;
use convert::{Bits, Checkpoint, PackOptions, PackReport, pack};
use store::Store;

const FORMS: [&str; 4] = ["safetensors", "mlx", "fp8", "gguf"];

/// Safetensors of a form, in five files.
fn tiny(form: &str) -> Tiny {
    let sharded = |layout| Layout { n_shard: 5, ..layout };
    match form {
        "safetensors" => Tiny::new(sharded(NEXT), 3),
        "mlx" => usual_mlx(sharded(QWEN35)),
        "fp8" => Tiny::new(sharded(QWEN3), 9).to_fp8("BF16"),
        other => panic!("{other} is not made of tensors in safetensors"),
    }
}

/// A checkpoint of a form in a folder as people have them.
struct Source {
    dir: tempfile::TempDir,
}

impl Source {
    fn new(form: &str) -> Self {
        let source = Self { dir: tempfile::tempdir().unwrap() };
        match form {
            "gguf" => drop(Golden::read("mxfp4").write(&source.path())),
            _ => tiny(form).write(&source.path()),
        }
        source
    }

    fn path(&self) -> PathBuf {
        self.dir.path().join("模型 été/in put")
    }

    fn out(&self, name: &str) -> PathBuf {
        self.dir.path().join("出力 dir").join(name)
    }

    /// The files that have weights, in order.
    fn files(&self) -> Vec<PathBuf> {
        let names = tree(&self.path()).into_iter().map(|(name, _)| name);
        let is_weights = |name: &PathBuf| name.extension().is_some_and(|e| e == "safetensors" || e == "gguf");
        names.filter(is_weights).map(|name| self.path().join(name)).collect()
    }

    fn open(&self) -> Checkpoint {
        Checkpoint::open(&self.path()).unwrap()
    }

    fn in_place(&self) -> Store {
        self.open().in_place().unwrap()
    }
}

fn options() -> PackOptions {
    PackOptions { bits: Bits::Source, ..PackOptions::default() }
}

fn pack_quietly(checkpoint: &Checkpoint, out: &Path) -> PackReport {
    pack(checkpoint, out, &options(), &mut |_| ()).unwrap()
}

/// Packs until `n` steps are done.
fn pack_interrupted(checkpoint: &Checkpoint, out: &Path, n: usize) {
    let mut n_step = 0;
    let mut stop = |_| {
        n_step += 1;
        assert!(n_step <= n, "stopped on purpose");
    };
    catch_unwind(AssertUnwindSafe(|| pack(checkpoint, out, &options(), &mut stop))).unwrap_err();
}

fn set_len(path: &Path, len: u64) {
    fs::File::options().write(true).open(path).unwrap().set_len(len).unwrap();
}

/// Other finite weights, as many bytes of them, in the second half of a file; its time of change is `modified`.
fn change_weights(path: &Path, modified: SystemTime) {
    let mut bytes = fs::read(path).unwrap();
    let half = bytes.len() / 2;
    // The lowest bit, unless that would make the NaN of a format of one byte.
    bytes[half..].iter_mut().step_by(61).filter(|b| **b & 0x7E != 0x7E).for_each(|b| *b ^= 1);
    fs::write(path, bytes).unwrap();
    fs::File::options().write(true).open(path).unwrap().set_modified(modified).unwrap();
}

#[test]
fn missing_files_are_named() {
    // A model that is opened without all its files, or a message that does not say which one is missing.
    for form in FORMS {
        let source = Source::new(form);
        let files = source.files();
        fs::remove_file(&files[1]).unwrap();
        let error = Checkpoint::open(&source.path()).expect_err(form).to_string();
        let n = files.len();
        let missing = files[1].file_name().unwrap().to_string_lossy();
        let says = format!("{} of {n} weight files present, missing: {missing}", n - 1);
        assert!(error.contains(&says), "{form}: no '{says}' in: {error}");
    }
}

#[test]
fn damaged_files_are_named() {
    // A download that ended early or went wrong is used, or blamed on another file; a panic or a huge allocation.
    for form in FORMS {
        let check = |what: &str, spoil: &dyn Fn(&Path), says: &str| {
            let source = Source::new(form);
            let file = &source.files()[1];
            spoil(file);
            let error = Checkpoint::open(&source.path()).expect_err(what).to_string();
            let name = file.file_name().unwrap().to_string_lossy();
            assert!(
                error.contains(&*name) && error.contains(says),
                "{form}, {what}: no '{says}' in: {error}"
            );
        };
        let len = |file: &Path| fs::metadata(file).unwrap().len();
        // Files of GGUF may end with padding.
        check("cut", &|file| set_len(file, len(file) - 64), "truncated: tensor");
        check("cut in its header", &|file| set_len(file, 40), "fit");
        check("empty", &|file| fs::write(file, "").unwrap(), "empty (0 bytes)");
        check("web page", &|file| fs::write(file, "<!DOCTYPE html><p>Not found").unwrap(), "a web page");
        check("zeros", &|file| fs::write(file, [0; 4096]).unwrap(), "");
        let huge = |file: &Path| {
            let mut bytes = fs::read(file).unwrap();
            let at = if form == "gguf" { 8 } else { 0 };
            bytes[at..at + 8].copy_from_slice(&(1u64 << 63).to_le_bytes());
            fs::write(file, bytes).unwrap();
        };
        check("huge header", &huge, "fit");
    }
}

#[test]
fn files_that_shrink_are_noticed_when_they_are_read() {
    // Zeros or old bytes taken for weights, or an error that does not name the file.
    for form in FORMS {
        let source = Source::new(form);
        let (checkpoint, store) = (source.open(), source.in_place());
        for file in source.files() {
            set_len(&file, fs::metadata(&file).unwrap().len() / 2);
        }
        let report = store.verify(&mut |_| ()).unwrap();
        for problem in &report.problems {
            let text = problem.to_string();
            assert!(text.contains("cannot read") && text.contains("-of-0000"), "{form}: {text}");
        }
        let n_expert = report.problems.iter().filter(|p| p.to_string().contains("of layer")).count();
        assert!(report.problems.len() > n_expert, "{form}: dense weights too: {:?}", report.problems);
        assert!(store.load_dense(&mut |_| ()).is_err(), "{form}");
        let out = source.out("store");
        let error = pack(&checkpoint, &out, &options(), &mut |_| ()).unwrap_err().to_string();
        assert!(error.contains("cannot read") && !out.exists(), "{form}: {error}");
    }
}

#[test]
fn layers_without_experts_are_named() {
    // A layer whose experts are missing is noticed when a token needs them, or computed with zeros.
    for form in ["safetensors", "mlx", "fp8"] {
        let refused = |what: &str, is_kept: &dyn Fn(&str) -> bool, says: &str| {
            let mut tiny = tiny(form);
            tiny.tensors.retain(|tensor| is_kept(&tensor.name));
            let dir = tempfile::tempdir().unwrap();
            tiny.write(dir.path());
            let error = Checkpoint::open(dir.path()).expect_err(what).to_string();
            assert!(error.contains(says), "{form}, {what}: no '{says}' in: {error}");
        };
        let is_expert = |name: &str| name.contains("mlp.experts.") || name.contains("switch_mlp");
        refused(
            "no experts",
            &|name| !(name.contains("layers.1.") && is_expert(name)),
            "all experts of layer 1",
        );
        refused(
            "first layer only",
            &|name| name.contains("layers.0.") || !is_expert(name),
            "all experts of layer 1, all experts of layer 2, all experts of layer 3",
        );
        refused(
            "no down",
            &|name| !(name.contains("layers.2.") && is_expert(name) && name.contains("down_proj")),
            "part of expert 0 of layer 2",
        );
        refused("no layer", &|name| !name.contains("layers.3."), "of layer 3");
    }
}

#[test]
fn an_interrupted_run_goes_on() {
    // Killed anywhere and run again: a piece missing, or done twice in the wrong place, in formats that are copied.
    for form in FORMS {
        let source = Source::new(form);
        let checkpoint = source.open();
        let whole = source.out("whole");
        pack_quietly(&checkpoint, &whole);
        let expected = tree(&whole);
        for n in [1, 30] {
            let out = source.out(&format!("after {n}"));
            pack_interrupted(&checkpoint, &out, n);
            let error = Store::open(&out).unwrap_err().to_string();
            assert!(error.contains("interrupted"), "{form}: {error}");
            let report = pack_quietly(&source.open(), &out);
            assert!(0 < report.resumed_bytes, "{form}: nothing was kept after {n} steps");
            assert!(tree(&out) == expected, "{form}: bytes differ after {n} steps");
        }
    }
}

#[test]
fn changed_weights_are_another_model() {
    // What was kept of the old weights (prompts, sessions, half a store) used with the new ones.
    let later = UNIX_EPOCH + Duration::from_secs(2_000_000_000);
    for form in FORMS {
        let source = Source::new(form);
        let (before, out) = (source.in_place(), source.out("store"));
        assert_eq!(before.fingerprint(), source.in_place().fingerprint(), "{form}: the same files");
        let n_piece = before.manifest().dense.len();
        pack_interrupted(&source.open(), &out, n_piece);
        let file = source.files().remove(1);
        let modified = fs::metadata(&file).unwrap().modified().unwrap();
        // Copied with its time, from another version.
        change_weights(&file, modified);
        assert_ne!(source.in_place().fingerprint(), before.fingerprint(), "{form}: same size and time");
        change_weights(&file, later);
        assert_ne!(source.in_place().fingerprint(), before.fingerprint(), "{form}: same size and bytes");
        change_weights(&file, later);
        let report = pack_quietly(&source.open(), &out);
        assert_eq!(report.resumed_bytes, 0, "{form}: pieces of the old weights");
        let fresh = source.out("fresh");
        pack_quietly(&source.open(), &fresh);
        assert!(tree(&out) == tree(&fresh), "{form}: not the new weights");
        // A finished store is not the new weights': it is left alone, and said to be there.
        let error = pack(&source.open(), &out, &options(), &mut |_| ()).unwrap_err().to_string();
        assert!(error.contains("already exists"), "{form}: {error}");
    }
}

#[test]
fn nothing_is_written_beside_a_checkpoint() {
    // A folder that may not be written to could not be used, or a drive would slowly fill.
    for form in FORMS {
        let source = Source::new(form);
        let before = tree(source.dir.path());
        let store = source.in_place();
        let report = store.verify(&mut |_| ()).unwrap();
        assert!(report.problems.is_empty() && 0 < report.read_bytes, "{form}: {report:?}");
        store.load_dense(&mut |_| ()).unwrap();
        assert!(tree(source.dir.path()) == before, "{form}");
    }
}
