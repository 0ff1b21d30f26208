//! `eval` of text, references and matrices.

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use crate::support::{checkpoint, copy, flash_moe};

/// Folder of the vectors.
fn vectors() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/eval")
}

fn eval(args: &[&str]) -> Value {
    let done = flash_moe(&[&["eval"], args, &["--json"]].concat()).ok();
    serde_json::from_str(&done.stdout).unwrap_or_else(|error| panic!("{error}: {done:?}"))
}

/// The same number but for rounding, at every path that `expected` has.
#[track_caller]
fn assert_agrees(got: &Value, expected: &Value, tolerance: f64) {
    for (key, expected) in expected.as_object().unwrap() {
        // With an interval, or without.
        let got = got[key].get("value").unwrap_or(&got[key]);
        match expected.as_f64() {
            Some(number) => {
                let error = (got.as_f64().unwrap() - number).abs();
                assert!(error <= tolerance * number.abs(), "{key}: {got}, not {expected}");
            }
            None => assert_agrees(got, expected, tolerance),
        }
    }
}

/// Figures would not be those of the model: windows, counting, sums, bytes, and the distance from a reference.
#[test]
fn figures_are_those_of_the_float64_reference() {
    let vectors = vectors();
    let expected: Value = serde_json::from_slice(&fs::read(vectors.join("demo.json")).unwrap()).unwrap();
    let text = vectors.join("text.txt").to_str().unwrap().to_owned();
    let folder = tempfile::tempdir().unwrap();
    let reference = folder.path().join("own.ref").to_str().unwrap().to_owned();
    let windows = ["--text", &text, "--window", "200", "--stride", "100", "--kv", "f32"];
    let own = eval(&[&windows[..], &["--save-reference", &reference]].concat());
    assert_agrees(
        &own["perplexity"],
        &json!({ "value": expected["strided"]["reference"]["perplexity"] }),
        1e-4,
    );
    let fewer = eval(&[&windows[..], &["--experts", "3", "--reference", &reference]].concat());
    assert_agrees(&fewer["perplexity"], &json!({ "value": expected["strided"]["perplexity"] }), 1e-4);
    // A reference has its probabilities in 16 bits.
    assert_agrees(&fewer, &expected["strided"], 1e-3);
    let [low, high] = [0, 1].map(|i| fewer["reference"]["perplexity_change"]["ci95"][i].as_f64().unwrap());
    assert!(low < 1866.0 && 1866.0 < high, "{low} {high}");
    let same = eval(&[&windows[..], &["--reference", &reference]].concat());
    let same = &same["reference"];
    assert!(same["kl_max"].as_f64().unwrap().abs() < 1e-6, "{same}");
    assert_eq!((&same["same_top"]["value"], &same["perplexity_change"]["value"]), (&json!(1.0), &json!(0.0)));
    // Of some tokens less is known: never more than the whole distance.
    flash_moe(
        &[&["eval"], &windows[..], &["--save-reference", &reference, "--reference-top", "64"]].concat(),
    )
    .ok();
    let listed = eval(&[&windows[..], &["--experts", "3", "--reference", &reference]].concat());
    let kl = |report: &Value| report["reference"]["kl_mean"]["value"].as_f64().unwrap();
    assert!(0.5 * kl(&fewer) < kl(&listed) && kl(&listed) < kl(&fewer), "{listed}");
    let halves = ["--text", &text, "--window", "128", "--counting", "llama.cpp", "--kv", "f32"];
    assert_agrees(&eval(&halves), &expected["llama.cpp"], 1e-4);
}

/// Nonsense would be measured, or an error not say what to do.
#[test]
fn what_cannot_be_measured_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let (text, reference) = (path("t.txt"), path("r"));
    let check = |contents: &str, more: &[&str], code: i32, error: &str| {
        fs::write(&text, contents).unwrap();
        flash_moe(&[&["eval", "--text", &text], more].concat()).fails(code, error, "");
    };
    check("", &[], 1, "the file is empty");
    check("a", &[], 1, "no text of two tokens or more");
    check("some words", &["--text-bytes", "1"], 1, "no text of two tokens or more");
    check("some words", &["--window", "5000"], 2, "--window 5000 is more than the context of 4096");
    check("some words", &["--window", "65", "--ctx", "64"], 2, "--window 65 is more than the context of 64");
    check("some words", &["--window", "8", "--stride", "9"], 2, "tokens would be left out");
    check("some words", &["--stride", "9", "--counting", "llama.cpp"], 2, "there is no --stride");
    check("some words", &["--counting", "llama.cpp"], 2, "no document fills a window");
    check("some words", &["--temperature", "1"], 2, "samples nothing");
    check("some words", &["--experts", "6,3"], 2, "--experts: one number");
    check("some words", &["--experts", "65"], 2, "more than the 64");
    check("some words", &["--reference", &reference], 1, "cannot read");
    fs::write(&text, "some more words").unwrap();
    flash_moe(&["eval", "--text", &text, "--save-reference", &reference]).ok();
    check("other words entirely", &["--reference", &reference], 1, "a reference of another text");
    check(
        "some more words",
        &["--reference", &reference, "--window", "3"],
        1,
        "here are windows of 3 tokens",
    );
    fs::remove_file(&text).unwrap();
    flash_moe(&["eval", "--text", &text]).fails(1, "cannot read", "");
    // A vocabulary of 256 tokens under a tokenizer with 8192.
    let store = path("store");
    flash_moe(&["pack", tiny(folder.path(), false).to_str().unwrap(), &store]).ok();
    fs::write(&text, "What is this?").unwrap();
    flash_moe(&["eval", &store, "--text", &text]).fails(1, "tokenizer.json is of another model", "");
}

/// A tiny checkpoint with a tokenizer: the demo model's, or its 256 single bytes.
fn tiny(folder: &Path, is_bytes: bool) -> PathBuf {
    let target = folder.join(if is_bytes { "tiny" } else { "mismatched" });
    copy(&checkpoint("qwen3_5_moe_quantable"), &target);
    let demo = Path::new(env!("CARGO_MANIFEST_DIR")).join("demo/tokenizer.json");
    let mut tokenizer: Value = serde_json::from_slice(&fs::read(demo).unwrap()).unwrap();
    if is_bytes {
        tokenizer["added_tokens"] = json!([]);
        tokenizer["model"]["merges"] = json!([]);
        let vocabulary = tokenizer["model"]["vocab"].as_object_mut().unwrap();
        vocabulary.retain(|_, id| id.as_u64().unwrap() < 256);
    }
    fs::write(target.join("tokenizer.json"), tokenizer.to_string()).unwrap();
    target
}

/// A matrix would have other cells than asked for, compute finished ones again, or leave packed stores on the disk.
#[test]
fn a_matrix_has_its_cells_and_goes_on() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let source = tiny(folder.path(), true).to_str().unwrap().to_owned();
    let (text, out, plot) = (path("text.txt"), path("out.json"), path("plot.svg"));
    fs::write(&text, "Nine ships, and then ten. ".repeat(20)).unwrap();
    let common =
        ["eval", &source, "--matrix", "--text", &text, "--out", &out, "--window", "64", "--threads", "1"];
    let all = [&common[..], &["--bits", "bf16,8,2", "--experts", "2,1", "--plot", &plot]].concat();
    let done = flash_moe(&all).ok();
    assert!(done.stderr.contains("cell 6 of 6: 2, 1 experts"), "{done:?}");
    let read = || -> Value { serde_json::from_slice(&fs::read(&out).unwrap()).unwrap() };
    let state = read();
    let cells = state["cells"].as_array().unwrap();
    let names: Vec<String> =
        cells.iter().map(|c| format!("{} {}", c["column"].as_str().unwrap(), c["n_expert_used"])).collect();
    assert_eq!(names, ["bf16 2", "bf16 1", "8 2", "8 1", "2 2", "2 1"]);
    let kl = |i: usize| cells[i]["text"]["reference"]["kl_mean"]["value"].as_f64().unwrap();
    assert!(cells[0]["text"]["reference"].is_null() && kl(1) > 0.0 && kl(2) > 0.0, "{state}");
    assert!(kl(2) < kl(4) && kl(3) > kl(2), "8 bits are nearer than 2, 2 experts than 1: {state}");
    let n_line = done.stderr.lines().filter(|line| line.starts_with("| ")).count();
    assert_eq!(n_line, 2 + 6, "{done:?}");
    assert!(fs::read_to_string(&plot).unwrap().contains("KL, nats"));
    assert!(!Path::new(&format!("{out}.work")).exists(), "packed stores were left");
    // All is there: nothing is done again.
    let again = flash_moe(&all).ok();
    assert!(!again.stderr.contains("cell 1") && again.stderr.contains("| bf16"), "{again:?}");
    assert_eq!(read(), state);
    // One cell was not finished: it, and what it is compared with, are made, and come out the same.
    let mut cut = state.clone();
    cut["cells"].as_array_mut().unwrap().pop();
    fs::write(&out, cut.to_string()).unwrap();
    let done = flash_moe(&all).ok();
    assert!(done.stderr.contains("cell 2 of 2: 2, 1 experts"), "{done:?}");
    let figures = |state: &Value| -> Vec<Value> {
        let mut found: Vec<Value> =
            state["cells"].as_array().unwrap().iter().map(|c| c["text"]["reference"].clone()).collect();
        found.sort_by_key(Value::to_string);
        found
    };
    assert_eq!(figures(&read()), figures(&state));
    fs::write(&text, "Other text, as long as this.").unwrap();
    flash_moe(&all).fails(1, "of another matrix: the text differs", "");
}

/// Flags of a matrix that mean nothing would be accepted, or be found after hours of work.
#[test]
fn a_matrix_that_makes_no_sense_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let source = tiny(folder.path(), true).to_str().unwrap().to_owned();
    let (text, out) = (path("text.txt"), path("out.json"));
    fs::write(&text, "Nine ships, and then ten.").unwrap();
    let check = |model: &[&str], more: &[&str], code: i32, error: &str| {
        let common = ["--matrix", "--text", &text, "--out", &out];
        flash_moe(&[&["eval"], model, &common[..], more].concat()).fails(code, error, "");
        assert!(!Path::new(&out).exists());
    };
    check(&[&source], &["--bits", "4,7"], 2, "bits '7'");
    check(&[&source], &["--bits", "4,4"], 2, "both called '4'");
    check(&[&source], &["--bits", "4", "--experts", "1,1"], 2, "--experts has 1 twice");
    check(&[&source], &["--bits", "4", "--experts", "2,9"], 2, "--experts 9 is more than the 8");
    check(&[&source], &["--bits", "4", "--", "--bogus"], 2, "--bogus");
    check(&[&source, "x"], &["--bits", "4"], 1, "x");
    check(&[], &["--bits", "4"], 2, "the demo model");
    fs::write(&out, "{}").unwrap();
    let args = ["eval", "--matrix", "--text", &text, "--out", &out];
    flash_moe(&args).fails(1, "not the result of a matrix", "");
}
