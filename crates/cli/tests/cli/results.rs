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
    let more = ["--experts", "1", "--cache", "page", "--threads", "1", "--measure", "0.05"];
    let report = json(&[&args[..], &more].concat());
    let top = [
        "bench_version",
        "model",
        "architecture",
        "device",
        "threads",
        "memory_budget_bytes",
        "peak_rss_bytes",
        "cache",
        "n_expert_used",
        "activations",
        "kv_format",
        "kv_bytes_per_token",
        "n_slot",
        "simulated_drive",
        "trace",
        "pages_dropped",
        "phases",
        "depths",
        "parallel",
        "limits",
    ];
    assert_eq!(keys(&report), top);
    assert_eq!(keys(&report["phases"]), ["prefill", "decode"]);
    for name in ["prefill", "decode"] {
        let phase = &report["phases"][name];
        let agreed = ["tokens", "seconds", "tok_s", "hit_rate", "bytes_read", "read_gb_s"];
        let more = [
            "cache_state",
            "bytes_per_token",
            "tok_s_min",
            "tok_s_max",
            "storage_bytes",
            "ms_per_token",
            "hit_rate_by_layer",
            "read_ahead",
            "bound_tok_s",
            "bound_by",
            "fraction_of_bound",
            "samples",
        ];
        assert_eq!(keys(phase), [&agreed[..], &more].concat());
        assert_eq!(keys(&phase["ms_per_token"]), ["compute", "read_wait", "other"]);
        assert_eq!(keys(&phase["read_ahead"]), ["records", "used"]);
        assert_eq!(phase["hit_rate_by_layer"].as_array().unwrap().len(), 4);
        let samples = phase["samples"].as_array().unwrap();
        let states: Vec<&Value> = samples.iter().map(|sample| &sample["cache_state"]).collect();
        assert_eq!(states, ["cold", "warm", "warm"]);
        assert_eq!(keys(&samples[0]), [&["cache_state"][..], &agreed, &["wait_seconds"]].concat());
        let speed = |key: &str| phase[key].as_f64().unwrap();
        assert!(speed("tok_s_min") <= speed("tok_s") && speed("tok_s") <= speed("tok_s_max"), "{phase}");
        assert!((speed("tok_s") / speed("bound_tok_s") / speed("fraction_of_bound") - 1.0).abs() < 1e-9);
    }
    let limits = ["ssd_gb_s", "ram_gb_s", "bound_tok_s", "fraction_of_bound"];
    let more = ["ssd_before_gb_s", "ssd_after_gb_s", "gflop_s"];
    assert_eq!(keys(&report["limits"]), [&limits[..], &more].concat());
    assert_eq!(report["limits"]["fraction_of_bound"], report["phases"]["decode"]["fraction_of_bound"]);
    let said = [&report["architecture"], &report["cache"], &report["n_expert_used"], &report["threads"]];
    assert_eq!(said, [&Value::from("qwen3_5_moe"), &"page".into(), &1.into(), &1.into()]);
    let tokens = [&report["phases"]["prefill"]["tokens"], &report["phases"]["decode"]["tokens"]];
    assert_eq!(tokens, [&Value::from(70), &5.into()]);
    assert_eq!(report["memory_budget_bytes"], 100_000_000);
    let peak = report["peak_rss_bytes"].as_u64().unwrap();
    assert!(peak <= 105_000_000 + 64_000_000, "peak memory {peak}");
}

/// What bench measures of a tiny model, quickly.
fn quick<'a>(more: &[&'a str]) -> Vec<&'a str> {
    let store = store().to_str().unwrap();
    [
        &["bench", store, "--memory", "100MB", "--tokens", "4", "--prompt-tokens", "9", "--measure", "0.05"],
        more,
    ]
    .concat()
}

/// The user would not be told that the output is an approximation, or get no table.
#[test]
fn bench_says_what_changes_the_output() {
    let done = flash_moe(&quick(&["--experts", "1", "--timing", "-v", "--repeat", "1"])).ok();
    assert!(done.stderr.contains("note: 1 experts a token instead of the model's 2"), "{done:?}");
    assert!(done.stderr.contains("memory plan: ") && done.stderr.contains("read wait"), "{done:?}");
    assert!(done.stderr.contains("cold") && !done.stderr.contains("warm "), "{done:?}");
    assert_eq!(done.stdout, "");
}

/// A result could not be compared with an earlier one, or a wrong file would be noticed only after the work.
#[test]
fn bench_compares_with_an_earlier_result() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("earlier.json");
    let path = path.to_str().unwrap();
    let earlier = flash_moe(&quick(&["--json"])).ok().stdout;
    fs::write(path, earlier).unwrap();
    let done = flash_moe(&quick(&["--compare", path, "--threads", "1"])).ok();
    let line = |name: &str| done.stderr.lines().find(|line| line.starts_with(name)).unwrap_or_default();
    assert!(line("decode hits").trim_end().ends_with("1.000"), "{done:?}");
    assert!(line("prefill of its bound").contains('%'), "{done:?}");
    fs::write(path, "{}").unwrap();
    flash_moe(&quick(&["--compare", path])).fails(1, "not a result of bench --json", "");
}

/// Speeds at a depth would be those of another depth, or of another format of keys and values.
#[test]
fn bench_measures_at_depths() {
    for (format, n_bytes) in [("f16", 2.0), ("q8", 1.0625), ("f32", 4.0)] {
        let done = flash_moe(&quick(&["--json", "--depth", "0,100,3000", "--kv", format, "-v"])).ok();
        assert!(done.stderr.contains(&format!("tokens of context, {format}")), "{done:?}");
        let report: Value = serde_json::from_str(&done.stdout).unwrap();
        assert_eq!(report["kv_format"], format);
        let depths = report["depths"].as_array().unwrap();
        assert_eq!(depths.iter().map(|d| d["depth"].as_u64().unwrap()).collect::<Vec<_>>(), [0, 100, 3000]);
        let n_token = report["kv_bytes_per_token"].as_u64().unwrap();
        for depth in depths {
            let figure = |key: &str| depth[key].as_f64().unwrap();
            assert!(0.0 < figure("tok_s_min") && figure("tok_s_min") <= figure("tok_s_max"), "{depth}");
            let is_kept = depth["depth"] != 0;
            assert_eq!(
                [&depth["restore_seconds"], &depth["prompt_seconds"]].map(Value::is_f64),
                [is_kept; 2]
            );
            // Two of the four measured tokens come before the middle.
            assert_eq!(figure("kv_bytes_read_per_token"), (figure("depth") + 2.0) * n_token as f64);
        }
        let inspected = json(&["inspect", store().to_str().unwrap(), "--json", "--kv", format]);
        assert_eq!(inspected["memory_plan"]["kv_bytes_per_token"], n_token);
        let n_number = n_token as f64 / n_bytes;
        assert!(n_number.fract() == 0.0 && 0.0 < n_number, "{format}: {n_token} bytes");
    }
    flash_moe(&quick(&["--depth", "100000000"])).fails(2, "is more than the", "");
}

/// Speeds of several conversations would be those of one, or what they share would not be seen.
#[test]
fn bench_measures_several_at_a_time() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("routing");
    let path = path.to_str().unwrap();
    flash_moe(&quick(&["--repeat", "9", "--record-routing", path])).ok();
    for more in [&["--parallel", "1,3,9"][..], &["--parallel", "1,3,9", "--trace", path]] {
        let report = json(&quick(&[&["--json"], more].concat()));
        let parallel = report["parallel"].as_array().unwrap();
        assert_eq!(parallel.iter().map(|p| p["sessions"].as_u64().unwrap()).collect::<Vec<_>>(), [1, 3, 9]);
        for entry in parallel {
            let figure = |key: &str| entry[key].as_f64().unwrap();
            assert!(0.0 < figure("tok_s_min") && figure("tok_s_min") <= figure("tok_s_max"), "{entry}");
            let (n, experts) = (figure("sessions"), figure("experts_per_layer"));
            assert_eq!(figure("experts_per_layer_unshared"), 2.0 * n);
            assert!(if n == 1.0 { experts == 2.0 } else { 2.0 <= experts && experts < 2.0 * n }, "{entry}");
            assert!((figure("ms_per_step") * figure("tok_s") / (1e3 * n) - 1.0).abs() < 1e-9, "{entry}");
        }
    }
    let args = quick(&["--parallel", "65"]);
    flash_moe(&args).fails(2, "1..=64", "");
    let args = quick(&["--parallel", "64", "--trace", path]);
    flash_moe(&args).fails(2, "the routing of 117 tokens, 768 are needed", "");
}

/// There would be no chart, or half of one under its name.
#[test]
fn bench_draws_a_chart() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("chart.svg");
    flash_moe(&quick(&["--plot", path.to_str().unwrap()])).ok();
    let svg = fs::read_to_string(&path).unwrap();
    assert!(svg.starts_with("<svg ") && svg.ends_with("</svg>\n"));
    for text in [
        "tiny.store on CPU",
        "prefill: ",
        "decode: ",
        "layer 3, experts: ",
        ">best possible (Belady)<",
        " % measured",
    ] {
        assert!(svg.contains(text), "{text}");
    }
    let nowhere = folder.path().join("none/chart.svg");
    flash_moe(&quick(&["--plot", nowhere.to_str().unwrap()])).fails(1, "cannot write", "");
}

/// A recorded text could not be measured again, or another one would be measured without a word.
#[test]
fn bench_replays_a_recorded_text() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let trace = path("text.routing");
    let recorded = json(&quick(&["--record-routing", &trace, "--json", "--repeat", "2"]));
    // Other tokens, the same experts.
    let replayed = json(&quick(&["--trace", &trace, "--json", "--repeat", "2", "--seed", "7"]));
    let requests = |report: &Value| report["phases"]["decode"]["hit_rate_by_layer"].clone();
    assert_eq!(requests(&recorded), requests(&replayed));
    assert_eq!(replayed["trace"], trace.as_str());
    let n = "the routing of 26 tokens, 39 are needed";
    flash_moe(&quick(&["--trace", &trace])).fails(2, n, "");
    flash_moe(&quick(&["--trace", &path("none")])).fails(1, "none", "");
    flash_moe(&quick(&["--trace", &trace, "--repeat", "1", "--experts", "1"])).fails(1, "trace", "");
    fs::write(&trace, "text").unwrap();
    flash_moe(&quick(&["--trace", &trace])).fails(1, "no routing trace", "");
}

/// Results of an experiment would pass for results of the machine.
#[test]
fn bench_names_experiments() {
    let done = flash_moe(&quick(&["--assume-resident", "--json"])).ok();
    let report: Value = serde_json::from_str(&done.stdout).unwrap();
    assert_eq!((&report["cache"], &report["limits"]["ssd_gb_s"]), (&"assumed resident".into(), &Value::Null));
    assert!(done.stderr.contains("the output means nothing"), "{done:?}");
    let done = flash_moe(&quick(&["--drive", "2GB/s,latency=10us", "--json"])).ok();
    let report: Value = serde_json::from_str(&done.stdout).unwrap();
    assert_eq!(
        (&report["simulated_drive"], &report["pages_dropped"]),
        (&"2GB/s,latency=10us".into(), &Value::Null)
    );
    let drive = ["ssd_gb_s", "ssd_before_gb_s"].map(|key| &report["limits"][key]);
    assert_eq!(drive, [&Value::from(2.0), &Value::Null]);
    assert!(done.stderr.contains("simulated drive: 2GB/s,latency=10us"), "{done:?}");
    for more in [["--drive", "2GB/s"], ["--assume-resident", "--json"]] {
        flash_moe(&quick(&[&more[..], &["--cache", "page"]].concat())).fails(2, "--cache page", "");
    }
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

/// Rounded activations would change nothing, or not be named; a distance would be told from logits of other tokens.
#[test]
fn eval_tells_how_far_two_runs_lie_apart() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let (ids, out) = (path("ids.txt"), path("out.npy"));
    let demo = concat!(env!("CARGO_MANIFEST_DIR"), "/demo");
    fs::write(&ids, "1 200 3000 4 5 6 700 8").unwrap();
    flash_moe(&["eval", demo, "--ids", &ids, "--dump-logits", &out]).ok();
    let compare = ["eval", demo, "--ids", &ids, "--compare-logits", &out, "--json"];
    let same = json(&compare);
    assert_eq!((&same["kl_max"], &same["same_top"], &same["n_token"]), (&0.0.into(), &1.0.into(), &8.into()));
    assert_eq!(same["perplexity"], same["reference_perplexity"]);
    let rounded = [&compare[..], &["--activations", "int16"]].concat();
    let kl = json(&rounded)["kl_mean"].as_f64().unwrap();
    assert!(0.0 < kl && kl < 1e-3, "{kl}");
    let done = flash_moe(&rounded).ok();
    assert!(done.stderr.contains("note: activations rounded to int16"), "{done:?}");
    fs::write(&ids, "1 200 3000").unwrap();
    flash_moe(&compare).fails(1, "logits of 8 tokens, but 3 token ids are given", "");
    fs::write(&out, "not an array").unwrap();
    flash_moe(&compare).fails(1, "not a .npy file", "");
}

/// Calls that do not fit their schemas would come out though they are held to them, or be counted as others.
#[test]
fn eval_counts_calls_and_holds_them() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let (dialogues, out) = (path("dialogues.jsonl"), path("out.jsonl"));
    let demo = concat!(env!("CARGO_MANIFEST_DIR"), "/demo");
    let parameters = serde_json::json!({ "type": "object", "required": ["unit"],
        "properties": { "unit": { "type": "string", "enum": ["furlong", "parsec"] }, "n": { "type": "integer" } } });
    let line = |id: u32, expected: Value| {
        let message = serde_json::json!({ "role": "user", "content": "Tell me a story, please." });
        let tools = serde_json::json!([{ "type": "function", "function": { "name": "f", "parameters": parameters } }]);
        serde_json::json!({ "id": id, "kind": "story", "messages": [message], "tools": tools, "think": false,
            "expected": expected })
    };
    let wanted = serde_json::json!([{ "name": "f", "arguments": { "unit": "mile" } }]);
    fs::write(&dialogues, format!("{}\n{}\n", line(1, wanted), line(2, serde_json::json!([])))).unwrap();
    let args = ["eval", demo, "--dialogues", &dialogues, "--out", &out, "--calls", "required", "--json"];
    let counts = json(&args);
    let called = &counts["calls expected"];
    assert!(called["n_dialogue"] == 1 && called["n_calling"] == 1 && called["n_exact"] == 0, "{counts}");
    assert!(called["n_parsed"] == called["n_call"] && called["n_valid"] == called["n_call"], "{counts}");
    assert_eq!(
        (&counts["story"]["n_dialogue"], &counts["no call expected"]["n_calling"]),
        (&2.into(), &0.into())
    );
    let answers = fs::read_to_string(&out).unwrap();
    let answers: Vec<Value> = answers.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert!(answers[0]["text"].as_str().unwrap().starts_with("<tool_call>\n<function=f>\n"), "{answers:?}");
    assert_eq!((&answers[0]["finish"], &answers[1]["id"]), (&"stop".into(), &2.into()));
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
        let args =
            [&["eval", &store, "--ids", &ids_path, "--dump-logits", &out, "--kv", "f32"], more].concat();
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
