//! What is measured, remembered and told: `doctor`, the cache folder, what a killed run leaves behind.

use std::ffi::OsStr;
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, Stdio};

use serde_json::Value;

use crate::support::{Done, command, store};

/// The program with a cache folder of its own.
fn with_cache(cache: &Path, args: &[&str]) -> Done {
    let out = command(args).env("FLASH_MOE_CACHE", cache).stdin(Stdio::null()).output().unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    Done { code: out.status.code(), stdout: text(out.stdout), stderr: text(out.stderr) }
}

/// Scripts that read `doctor --json` would break, the next run would not use what was measured, or garbage in the cache
/// folder would stop it.
#[test]
fn what_doctor_measures_is_used() {
    let folder = tempfile::tempdir().unwrap();
    let cache = folder.path().join("cache");
    let store = store().to_str().unwrap();
    let bench =
        || with_cache(&cache, &["bench", store, "-v", "--tokens", "1", "--memory", "100MB"]).ok().stderr;
    assert!(bench().contains(", the default"), "nothing was measured yet");

    let done = with_cache(&cache, &["doctor", store, "--json", "--memory", "100MB", "--threads", "1"]).ok();
    let report: Value = serde_json::from_str(&done.stdout).unwrap_or_else(|e| panic!("{e}: {done:?}"));
    let number = |path: &str| {
        report.pointer(path).and_then(Value::as_f64).unwrap_or_else(|| panic!("{path}: {report}"))
    };
    assert_eq!(report["machine"]["threads"], 1);
    for path in [
        "/machine/memory/physical_bytes",
        "/machine/cores/fast",
        "/measured/drive/direct_gb_s",
        "/measured/drive/settings/0/depth",
        "/measured/experts_gb_s",
        "/measured/prefill_gflop_s",
    ] {
        assert!(number(path) > 0.0, "{path}: {report}");
    }
    assert_eq!(number("/models/0/fits/budget_bytes"), 100e6);
    let band = |end: &str| number(&format!("/models/0/fits/prediction/decode_tok_s/{end}"));
    assert!(0.0 < band("low") && band("low") < band("likely") && band("likely") < band("high"), "{report}");
    assert!(report["advice"].is_array(), "{report}");
    for gpu in report["machine"]["gpus"].as_array().unwrap() {
        assert!(gpu["name"].is_string() && gpu["index"].is_u64() && gpu.get("refused").is_some(), "{report}");
    }

    assert!(bench().contains("as measured before"));
    let mut drives: Value = serde_json::from_slice(&fs::read(cache.join("drives.json")).unwrap()).unwrap();
    drives["drives"].as_object_mut().unwrap().values_mut().for_each(|drive| {
        drive["rates"]["direct_bytes_s"] = 2e6.into();
        drive["rates"]["buffered_bytes_s"] = 1e6.into();
    });
    fs::write(cache.join("drives.json"), drives.to_string()).unwrap();
    let stderr = bench();
    assert!(stderr.contains("note: the model's drive reads 2 MB/s"), "{stderr}");
    fs::write(cache.join("drives.json"), "garbage").unwrap();
    let stderr = bench();
    assert!(stderr.contains("drives.json is ignored") && stderr.contains(", the default"), "{stderr}");
}

/// The user would not see what was found.
#[test]
fn doctor_says_that_a_model_does_not_fit() {
    let cache = tempfile::tempdir().unwrap();
    let done = with_cache(cache.path(), &["doctor", store().to_str().unwrap(), "--memory", "1MB"]).ok();
    for wanted in ["this machine", "measured", "does not fit: it needs at least", "what to change"] {
        assert!(done.stdout.contains(wanted), "'{wanted}' in {done:?}");
    }
}

/// The owner of a GPU that does not work would have nothing to show.
#[test]
fn doctor_reports_on_gpus() {
    let folder = tempfile::tempdir().unwrap();
    let done = with_cache(folder.path(), &["doctor", "--gpu", "--json"]).ok();
    let report: Value = serde_json::from_str(&done.stdout).unwrap_or_else(|e| panic!("{e}: {done:?}"));
    assert!(report["program"].as_str().unwrap().starts_with("flash-moe "), "{report}");
    let gpus = report["gpus"].as_array().unwrap();
    for gpu in gpus {
        assert!(gpu["driver"].is_string() && gpu["features"].is_array(), "{report}");
        let is_usable = gpu["refused"].is_null() && gpu["failure"].is_null();
        for path in ["/self_test/first_ms", "/speed/round_trip_us", "/speed/read_gb_s", "/speed/gflop_s"] {
            let number = gpu.pointer(path).and_then(Value::as_f64);
            assert_eq!(number.is_some_and(|number| number > 0.0), is_usable, "{path}: {report}");
        }
    }
    let text = with_cache(folder.path(), &["doctor", "--gpu"]).ok().stdout;
    let n = text.lines().filter(|line| line.trim_start().starts_with("verdict")).count();
    assert_eq!(n, gpus.len(), "{text}");
}

/// A machine without a driver would get no report, or one that ends in an error.
#[test]
#[cfg(target_os = "linux")]
fn doctor_without_a_driver_says_so() {
    let nowhere = "/nonexistent/driver.json";
    let out = command(&["doctor", "--gpu"])
        .env("VK_ICD_FILENAMES", nowhere)
        .env("VK_DRIVER_FILES", nowhere)
        .output()
        .unwrap();
    let text = String::from_utf8(out.stdout).unwrap();
    assert!(out.status.success() && text.contains("0 GPUs\n  none was found"), "{text}");
}

/// A chat that has loaded its model and waits for a line.
fn waiting_chat(cache: &Path) -> Child {
    let args: [&OsStr; 1] = ["chat".as_ref()];
    let mut child = command(&args).env("FLASH_MOE_CACHE", cache).stdin(Stdio::piped()).spawn().unwrap();
    let mut line = String::new();
    BufReader::new(child.stderr.take().unwrap()).read_line(&mut line).unwrap();
    assert!(line.contains("/help lists commands"), "{line}");
    child
}

/// A run that the system killed for its memory would end without a word, or every ended run be called killed.
#[test]
fn the_next_run_tells_of_a_killed_one() {
    let folder = tempfile::tempdir().unwrap();
    let next = || with_cache(folder.path(), &["run", "Hello", "--max-tokens", "1"]).ok().stderr;
    let mut killed = waiting_chat(folder.path());
    assert!(!next().contains("ended from outside"), "it is still there");
    killed.kill().unwrap();
    killed.wait().unwrap();
    let told = next();
    assert!(
        told.contains("note: a run of demo model with a budget of ") && told.contains("--memory"),
        "{told}"
    );
    assert!(!next().contains("ended from outside"), "once is enough");

    let mut quit = waiting_chat(folder.path());
    quit.stdin.take().unwrap().write_all(b"/quit\n").unwrap();
    quit.wait().unwrap();
    #[cfg(unix)]
    {
        let mut terminated = waiting_chat(folder.path());
        let signal = std::process::Command::new("kill").arg(terminated.id().to_string()).status().unwrap();
        assert!(signal.success());
        terminated.wait().unwrap();
    }
    assert!(!next().contains("ended from outside"), "they were asked to go");
}

/// A folder that cannot be used would stop a run.
#[test]
fn a_cache_that_cannot_be_written_is_no_error() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("file");
    fs::write(&file, "").unwrap();
    let done = with_cache(&file, &["run", "Hello", "--max-tokens", "1"]).ok();
    assert!(!done.stderr.contains("note:"), "{done:?}");
}
