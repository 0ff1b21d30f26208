//! Results that scripts rely on: JSON, arrays, exit codes.

use std::fs;
use std::path::Path;

use serde_json::Value;

use crate::support::{checkpoint, flash_moe, store};

fn json(args: &[&str]) -> Value {
    let done = flash_moe(args).ok();
    serde_json::from_str(&done.stdout).unwrap_or_else(|error| panic!("{error}: {done:?}"))
}

fn keys(value: &Value) -> Vec<&str> {
    value.as_object().unwrap().keys().map(String::as_str).collect()
}

/// Scripts that read `bench --json` would break.
#[test]
fn bench_reports_what_is_agreed() {
    let store = store().to_str().unwrap();
    let args = ["bench", store, "--json", "--memory", "100MB", "--tokens", "5", "--prompt-tokens", "70"];
    let report = json(&[&args[..], &["--experts", "1", "--cache", "page", "--threads", "1"]].concat());
    let top = [
        "model",
        "architecture",
        "device",
        "threads",
        "memory_budget_bytes",
        "peak_rss_bytes",
        "cache",
        "n_expert_used",
        "phases",
        "limits",
    ];
    assert_eq!(keys(&report), top);
    assert_eq!(keys(&report["phases"]), ["prefill", "decode"]);
    let phase = ["tokens", "seconds", "tok_s", "hit_rate", "bytes_read", "read_gb_s"];
    assert_eq!(keys(&report["phases"]["decode"]), phase);
    assert_eq!(keys(&report["limits"]), ["ssd_gb_s", "ram_gb_s", "bound_tok_s", "fraction_of_bound"]);
    let said = [&report["architecture"], &report["cache"], &report["n_expert_used"], &report["threads"]];
    assert_eq!(said, [&Value::from("qwen3_5_moe"), &"page".into(), &1.into(), &1.into()]);
    let tokens = [&report["phases"]["prefill"]["tokens"], &report["phases"]["decode"]["tokens"]];
    assert_eq!(tokens, [&Value::from(70), &5.into()]);
    assert_eq!(report["memory_budget_bytes"], 100_000_000);
    let peak = report["peak_rss_bytes"].as_u64().unwrap();
    assert!(peak <= 105_000_000 + 64_000_000, "peak memory {peak}");
}

/// The user would not be told that the output is an approximation, or get no table.
#[test]
fn bench_says_what_changes_the_output() {
    let store = store().to_str().unwrap();
    let done = flash_moe(&["bench", store, "--experts", "1", "--timing", "-v", "--tokens", "2"]).ok();
    assert!(done.stderr.contains("note: 1 experts a token instead of the model's 2"), "{done:?}");
    assert!(done.stderr.contains("memory plan: ") && done.stderr.contains("read wait"), "{done:?}");
    assert_eq!(done.stdout, "");
}

/// Scripts that read `inspect --json` would break, or its numbers would be wrong.
#[test]
fn inspect_counts_a_known_model() {
    let report = json(&["inspect", store().to_str().unwrap(), "--json"]);
    assert_eq!(report["architecture"], "qwen3_5_moe");
    let (n, dense) =
        (|path: &str| report.pointer(path).and_then(Value::as_u64).unwrap(), "/parameters/dense");
    assert_eq!(n("/parameters/total"), n(dense) + n("/parameters/experts"));
    // All experts are alike, and a token uses so many of them in each layer.
    assert_eq!(n("/bytes_per_token/experts") * n("/n_expert"), n("/bytes/experts") * n("/n_expert_used"));
    assert_eq!(n("/memory_plan/n_expert_record"), n("/n_layer") * n("/n_expert"));
    let folder = fs::metadata(store().join("dense.bin")).unwrap().len();
    assert_eq!(n("/bytes/dense"), folder);
}

/// The logits of a row, as `eval` wrote them.
fn read_npy(path: &Path) -> (Vec<u8>, Vec<f32>) {
    let bytes = fs::read(path).unwrap();
    let header = 10 + u16::from_le_bytes([bytes[8], bytes[9]]) as usize;
    let floats = bytes[header..].chunks_exact(4).map(|b| f32::from_le_bytes(b.try_into().unwrap()));
    (bytes[..header].to_vec(), floats.collect())
}

/// The whole way from checkpoint to logits would not be the model: compared with the float64 reference.
#[test]
fn eval_writes_the_reference_logits() {
    let folder = tempfile::tempdir().unwrap();
    // A path as people have them.
    let path = |name: &str| folder.path().join("мои модели ü").join(name).to_str().unwrap().to_owned();
    fs::create_dir(folder.path().join("мои модели ü")).unwrap();
    let (store, ids_path) = (path("exact store"), path("ids.json"));
    let source = checkpoint("qwen3_5_moe");
    flash_moe(&["pack", source.to_str().unwrap(), &store, "--bits", "source"]).ok();
    flash_moe(&["verify", &store]).ok();
    let golden: Value =
        serde_json::from_str(&fs::read_to_string(source.join("golden.json")).unwrap()).unwrap();
    fs::write(&ids_path, golden["ids"].to_string()).unwrap();
    let rows = golden["logits"].as_array().unwrap();
    let expected: Vec<f64> =
        rows.iter().flat_map(|row| row.as_array().unwrap()).map(|x| x.as_f64().unwrap()).collect();
    let dump = |more: &[&str]| {
        let out = path("out.npy");
        let args = [&["eval", &store, "--ids", &ids_path, "--dump-logits", &out], more].concat();
        flash_moe(&args).ok();
        let (header, logits) = read_npy(Path::new(&out));
        let shape = format!("({}, {})", rows.len(), expected.len() / rows.len());
        assert!(String::from_utf8_lossy(&header).contains(&shape), "{shape}");
        let worst = logits.iter().zip(&expected).map(|(a, b)| (f64::from(*a) - b).abs()).fold(0.0, f64::max);
        assert!(logits.len() == expected.len() && worst <= 1e-4, "{more:?}: {worst}");
        logits
    };
    let whole = dump(&[]);
    dump(&["--split", "70,33,1x47"]);
    // Memory, cache and readers change nothing, not even the last bit.
    for more in [&["--cache", "page"][..], &["--memory", "48MiB"], &["--readers", "1", "--threads", "1"]] {
        assert!(whole == dump(more), "{more:?} changed the logits");
    }
}
