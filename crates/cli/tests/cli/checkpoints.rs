//! Checkpoints of every form, packed or used where they are: what is damaged, unfinished or gone is said.

use std::fs::{self, OpenOptions};
use std::path::{Path, PathBuf};
use std::process::Stdio;

use crate::gguf_files::Golden;
use crate::hub_server::wait_until;
use crate::support::{checkpoint, command, copy, finish, flash_moe};

pub(crate) const FORMS: [&str; 4] = ["qwen3_5_moe_quantable", "forms/mlx_4bit", "forms/fp8", "gguf"];

/// A checkpoint of a form in a new folder; the path to name.
pub(crate) fn source(form: &str, folder: &Path) -> PathBuf {
    if form == "gguf" {
        return Golden::read("q8_0").write(folder);
    }
    copy(&checkpoint(form), folder);
    folder.to_owned()
}

/// Its file of weights.
fn weights(path: &Path) -> PathBuf {
    if path.is_dir() { path.join("model.safetensors") } else { path.to_owned() }
}

fn set_len(path: &Path, len: u64) {
    OpenOptions::new().write(true).open(path).unwrap().set_len(len).unwrap();
}

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

/// What a user may do with a model, and that it takes a path.
fn uses(model: &str) -> Vec<Vec<&str>> {
    vec![
        vec!["inspect", model],
        vec!["verify", model],
        vec!["bench", model, "--tokens", "1", "--prompt-tokens", "2", "--measure", "0.05"],
        vec!["run", model, "hello", "--max-tokens", "1"],
        vec!["chat", model],
        vec!["serve", model, "--port", "0"],
        vec!["pack", model, "never.store"],
    ]
}

/// A model could not be used where it is, or only where paths are plain; its folder would be written to.
#[test]
fn every_form_is_used_where_it_is() {
    for form in FORMS {
        let folder = tempfile::tempdir().unwrap();
        let home = folder.path().join("домой été");
        fs::create_dir(&home).unwrap();
        let model = source(form, &folder.path().join("模型 été/in put"));
        let dir = weights(&model).parent().unwrap().to_owned();
        let listing = |dir: &Path| {
            let entries = fs::read_dir(dir).unwrap().map(Result::unwrap);
            let mut names: Vec<_> = entries
                .map(|entry| (entry.file_name(), entry.metadata().unwrap().modified().unwrap()))
                .collect();
            names.sort();
            names
        };
        let before = listing(&dir);
        let run = |args: &[&str]| {
            let mut command = command(args);
            command.env("HOME", &home).env("LOCALAPPDATA", &home).env("TMPDIR", &home);
            finish(command.stdin(Stdio::null()).spawn().unwrap()).ok()
        };
        for args in &uses(text(&model))[..3] {
            let done = run(args);
            assert!(done.stderr.contains("checkpoint where it is"), "{form}: {done:?}");
        }
        let out = folder.path().join("出力 dir/new.store");
        let done = run(&["pack", text(&model), text(&out), "--bits", "source"]);
        assert!(done.stderr.contains("will have"), "no estimate: {done:?}");
        run(&["verify", text(&out)]);
        assert_eq!(listing(&dir), before, "{form}");
    }
    // This one has a tokenizer.
    let folder = tempfile::tempdir().unwrap();
    let model = source("gguf", folder.path());
    flash_moe(&["run", text(&model), "hello", "--max-tokens", "2", "--temperature", "0"]).ok();
}

/// A damaged download would be used, or its owner be told to pack it again.
#[test]
fn damaged_checkpoints_are_not_used() {
    for form in FORMS {
        let check = |spoil: &dyn Fn(&Path), error: &str, hint: &str| {
            let folder = tempfile::tempdir().unwrap();
            let model = source(form, &folder.path().join("in"));
            spoil(&weights(&model));
            for args in uses(text(&model)) {
                flash_moe(&args).fails(1, error, hint);
            }
        };
        let len = |path: &Path| fs::metadata(path).unwrap().len();
        check(&|path| set_len(path, len(path) - 64), "truncated: tensor", "download the named files again");
        // The finder of models says it of a GGUF file.
        check(&|path| set_len(path, 0), "empty", "");
        check(
            &|path| fs::write(path, "<html><body>").unwrap(),
            "a web page",
            "download the named files again",
        );
        check(&|path| fs::remove_file(path).unwrap(), "", "");
    }
    // What is not finite is found by who reads all of it.
    let folder = tempfile::tempdir().unwrap();
    let model = source("qwen3_5_moe_quantable", &folder.path().join("in"));
    let mut bytes = fs::read(weights(&model)).unwrap();
    let n = bytes.len();
    bytes[n - 4096..].chunks_exact_mut(2).for_each(|number| number.copy_from_slice(&[0xC0, 0x7F]));
    fs::write(weights(&model), bytes).unwrap();
    let done = flash_moe(&["verify", text(&model)]);
    assert!(done.stderr.contains("not finite"), "{done:?}");
    done.fails(1, "found", "download the named files again");
}

/// A killed `pack` would start over, finish with other bytes, or leave something that is taken for a model.
#[test]
fn a_killed_pack_goes_on() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    let model = source("qwen3_5_moe_quantable", &path("in"));
    // The slowest way.
    let pack = |out: &Path| {
        ["pack", text(&model), text(out), "--bits", "3", "--quantiser", "search"].map(str::to_owned)
    };
    let (whole, out) = (path("whole.store"), path("out.store"));
    flash_moe(&pack(&whole)).ok();
    let n_line = |journal: &Path| fs::read(journal).map_or(0, |b| b.iter().filter(|b| **b == b'\n').count());
    let partial = path("out.store.partial");
    let is_killed = (0..20).any(|_| {
        let mut child = command(&pack(&out)).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        wait_until("a part of the store", || 10 <= n_line(&partial.join("journal")) || out.exists());
        child.kill().unwrap();
        child.wait().unwrap();
        // It may have been faster.
        partial.exists() || fs::remove_dir_all(&out).is_err()
    });
    assert!(is_killed && partial.exists() && !out.exists());
    for unfinished in [&out, &partial] {
        for args in uses(text(unfinished)) {
            flash_moe(&args).fails(1, "packing it was interrupted", "");
        }
    }
    let done = flash_moe(&pack(&out)).ok();
    assert!(done.stderr.contains("of it from an earlier run"), "{done:?}");
    for file in ["manifest.json", "dense.bin", "experts/layer-000.bin", "experts/layer-003.bin"] {
        assert!(fs::read(out.join(file)).unwrap() == fs::read(whole.join(file)).unwrap(), "{file}");
    }
}

/// A drive that is not there would be a riddle, or a reason to download everything again.
#[test]
fn drives_that_are_not_there() {
    let folder = tempfile::tempdir().unwrap();
    let mount = folder.path().join("Volumes/My Drive");
    fs::create_dir_all(&mount).unwrap();
    let absent = folder.path().join("Volumes/Other");
    for model in [
        absent.clone(),
        absent.join("Qwen"),
        absent.join("m.gguf"),
        mount.join("Qwen"),
        mount.join("a.store"),
        mount.clone(),
    ] {
        for args in uses(text(&model)) {
            flash_moe(&args).fails(1, "is the drive connected?", "");
        }
    }
    // The cache of downloads is on it.
    let mut command = command(&["run", "owner/model", "hello"]);
    command.env("HF_HUB_CACHE", absent.join("hub")).env("HF_ENDPOINT", "http://127.0.0.1:1");
    let done = finish(command.spawn().unwrap());
    done.fails(1, "hub, which is not there)", "connect the drive that the cache is on");
    assert!(!absent.exists() && fs::read_dir(&mount).unwrap().next().is_none(), "something was written");
}

/// A link or a blob of the shared cache that is broken would be an error about something else.
#[test]
#[cfg(unix)]
fn broken_files_of_a_cache_are_named() {
    use std::os::unix::fs::symlink;

    for form in FORMS {
        let folder = tempfile::tempdir().unwrap();
        let repo = folder.path().join("hub/models--owner--model");
        let blobs = repo.join("blobs");
        let given = source(form, &blobs);
        let snapshot = repo.join("snapshots/0123abc");
        fs::create_dir_all(&snapshot).unwrap();
        for entry in fs::read_dir(&blobs).unwrap() {
            let name = entry.unwrap().file_name();
            symlink(Path::new("../../blobs").join(&name), snapshot.join(&name)).unwrap();
        }
        fs::write(blobs.join("0123.incomplete"), "unfinished").unwrap();
        let blob = weights(&given);
        for model in [&repo, &snapshot, &folder.path().join("hub")] {
            flash_moe(&["verify", text(model)]).ok();
        }
        let name = blob.file_name().unwrap().to_str().unwrap();
        let kept = fs::read(&blob).unwrap();
        fs::write(&blob, "").unwrap();
        let done = flash_moe(&["verify", text(&repo)]).fails(1, "empty", "");
        assert!(done.stderr.contains(name), "{done:?}");
        fs::write(folder.path().join("elsewhere"), kept).unwrap();
        fs::remove_file(&blob).unwrap();
        let done = flash_moe(&["verify", text(&repo)]).fails(1, "not there", "");
        assert!(done.stderr.contains(name), "{done:?}");
    }
}
