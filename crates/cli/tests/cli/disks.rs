//! Disks that are full, or may not be written to: small ones that these tests mount where only they see them.

use std::fs;
use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};

use crate::checkpoints::{FORMS, source};
use crate::hub_server::{Bench, File};
use crate::support::{checkpoint, command, flash_moe, store};

/// Runs a script of the shell in which `$FLASH_MOE` is the program and folders may be mounted; false where the system
/// does not allow that.
#[track_caller]
fn with_mounts(script: &str, folder: &Path, args: &[&str]) -> bool {
    with_mounts_and(&[], script, folder, args)
}

/// The same with variables of the environment.
#[track_caller]
fn with_mounts_and(variables: &[(&str, &str)], script: &str, folder: &Path, args: &[&str]) -> bool {
    let is_allowed = Command::new("unshare").args(["-rm", "mount", "-t", "tmpfs", "none", "/mnt"]).output();
    if !is_allowed.is_ok_and(|out| out.status.success()) {
        // Not eprintln!, which the test runner keeps to itself when a test passes.
        let _ = writeln!(std::io::stderr(), "SKIPPED: this user may not mount a file system");
        return false;
    }
    let program = command::<&str>(&[]);
    let mut command = Command::new("unshare");
    command.args(["-rm", "sh", "-euxc", script, "sh"]).args(args).current_dir(folder).stdin(Stdio::null());
    command.env("FLASH_MOE", program.get_program());
    for (name, value) in program.get_envs() {
        match value {
            Some(value) => command.env(name, value),
            None => command.env_remove(name),
        };
    }
    command.envs(variables.iter().copied());
    let out = command.output().unwrap();
    let text = [out.stdout, out.stderr].map(|text| String::from_utf8_lossy(&text).into_owned()).concat();
    assert!(out.status.success(), "{text}");
    assert!(!text.contains("panicked"), "{text}");
    true
}

/// A model on a drive that may not be written to could not be used.
#[test]
fn read_only_folders_are_no_obstacle() {
    let script = r#"
        mkdir model
        mount -t tmpfs none model
        cp -r "$1" model/
        mount -o remount,ro model
        if touch model/probe; then exit 1; fi
        m="model/$2"
        "$FLASH_MOE" inspect "$m"
        "$FLASH_MOE" verify "$m"
        "$FLASH_MOE" bench "$m" --tokens 2 --prompt-tokens 3 --measure 0.05
        case "$2" in *.gguf) "$FLASH_MOE" run "$m" hello --max-tokens 1 --seed 1 ;; esac
        test "$3" = store || "$FLASH_MOE" pack "$m" out.store --bits source
    "#;
    for form in FORMS.into_iter().chain(["store"]) {
        let folder = tempfile::tempdir().unwrap();
        let model = match form {
            "store" => store().to_owned(),
            _ => source(form, &folder.path().join("in")),
        };
        let name = model.file_name().unwrap().to_str().unwrap();
        if !with_mounts(script, folder.path(), &[model.to_str().unwrap(), name, form]) {
            return;
        }
    }
}

/// Hours of packing would end with nothing, with a store that is taken for finished, or with one that cannot be
/// continued.
#[test]
fn a_full_disk_is_said_and_survived() {
    let script = r#"
        mkdir disk
        mount -t tmpfs -o size="$2"k none disk
        if "$FLASH_MOE" pack "$1" disk/new/out.store --bits source 2>said; then exit 1; fi
        cat said
        grep -q "of disk space\|No space left" said
        grep -q "hint: free some space" said
        test ! -e disk/new/out.store
        if "$FLASH_MOE" verify disk/new/out.store; then exit 1; fi
        mount -o remount,size=100m disk
        "$FLASH_MOE" pack "$1" disk/new/out.store --bits source
        "$FLASH_MOE" verify disk/new/out.store
    "#;
    for form in FORMS {
        let folder = tempfile::tempdir().unwrap();
        let model = source(form, &folder.path().join("in"));
        let model = model.to_str().unwrap();
        let whole = folder.path().join("whole.store");
        flash_moe(&["pack", model, whole.to_str().unwrap(), "--bits", "source"]).ok();
        let bytes_of = |dir: &Path| -> u64 {
            let entries = fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().metadata().unwrap());
            entries.filter(|meta| meta.is_file()).map(|meta| meta.len()).sum()
        };
        let needed_kb = (bytes_of(&whole) + bytes_of(&whole.join("experts"))) / 1024;
        // Far too small, and nearly large enough: what is noticed at the very end.
        for kb in [needed_kb / 3, needed_kb - 4] {
            let folder = tempfile::tempdir().unwrap();
            if !with_mounts(script, folder.path(), &[model, &kb.to_string()]) {
                return;
            }
        }
    }
    // A folder that was not there is made.
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("not/there/out.store");
    let source = checkpoint("forms/mlx_4bit");
    flash_moe(&["pack".as_ref(), source.as_os_str(), out.as_os_str()]).ok();
}

/// A download that does not fit would leave something that is taken for a model, or start over.
#[test]
fn a_download_that_does_not_fit_is_said_and_survived() {
    let script = r#"
        mkdir disk
        mount -t tmpfs -o size=1m none disk
        for more in "" --pack; do
            if "$FLASH_MOE" pull owner/model disk/out$more $more 2>said; then exit 1; fi
            cat said
            grep -q "of disk space" said
            grep -q "hint: free some space" said
            if "$FLASH_MOE" verify disk/out$more; then exit 1; fi
        done
        mount -o remount,size=100m disk
        for more in "" --pack; do
            "$FLASH_MOE" pull owner/model disk/out$more $more
            "$FLASH_MOE" verify disk/out$more
        done
    "#;
    let files = ["config.json", "model.safetensors"]
        .map(|name| File::of_disk(&checkpoint("qwen3_5_moe_quantable").join(name)));
    let bench = Bench::new(files.to_vec(), vec![]);
    let url = bench.server.url();
    let variables = [("HF_ENDPOINT", url.as_str()), ("NO_PROXY", "127.0.0.1")];
    with_mounts_and(&variables, script, bench.disk.path(), &[]);
}
