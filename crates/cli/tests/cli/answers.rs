//! Answers of the demo model: the way from text to text.

use std::fs;

use serde_json::{Value, json};

use crate::chat::WEATHER;
use crate::support::{flash_moe, flash_moe_with, store};

const GREEDY: [&str; 4] = ["--temperature", "0", "--max-tokens", "24"];

fn run(args: &[&str], input: &str) -> String {
    flash_moe_with(&[&["run"], args, &GREEDY].concat(), input).ok().stdout
}

/// No answer, or another one for the same question on another way.
#[test]
fn the_demo_model_answers() {
    let answer = run(&["Who are you?", "--think", "off"], "");
    assert!(answer.trim().len() > 5 && answer.ends_with('\n') && !answer.contains('\x1b'), "{answer:?}");
    assert_eq!(run(&["-", "--think", "off"], "Who are you?\n"), answer);
    assert_eq!(run(&["--think", "off"], "Who are you?\n"), answer);
    assert_eq!(run(&["Who are you?", "--think", "off", "--threads", "1", "--cache", "page"], ""), answer);
}

/// Scripts that read `run --json` would break.
#[test]
fn run_reports_json() {
    let args = [&["run", "Who are you?", "--json", "--seed", "7"][..], &GREEDY].concat();
    let done = flash_moe(&args).ok();
    let report: Value = serde_json::from_str(&done.stdout).unwrap();
    assert_eq!(report["seed"], 7);
    assert!(["stop", "length"].contains(&report["finish_reason"].as_str().unwrap()), "{report}");
    assert!(report["phases"]["prefill"]["tokens"].as_u64() > Some(0), "{report}");
    let said = format!("{}{}", report["thinking"].as_str().unwrap(), report["text"].as_str().unwrap());
    assert!(!said.is_empty(), "{report}");
}

/// A slow answer could not be explained, or its text not be measured again.
#[test]
fn run_says_what_limits_it_and_records() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("text.routing");
    let path = path.to_str().unwrap();
    let args = [&["run", "Who are you?", "-v", "--record-routing", path][..], &GREEDY].concat();
    let done = flash_moe(&args).ok();
    let line = done.stderr.lines().find(|line| line.starts_with("[answer: ")).unwrap_or_default();
    assert!(line.contains(" tok/s") && line.contains("limited by"), "{done:?}");
    let tokens = ["--prompt-tokens", "4", "--tokens", "2", "--repeat", "1", "--measure", "0.05"];
    flash_moe(&[&["bench", "--trace", path][..], &tokens].concat()).ok();
}

/// A script that asked for JSON of a certain form would get another one.
#[test]
fn an_answer_follows_its_schema() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("schema.json");
    let schema = json!({
        "type": "object",
        "properties": { "name": { "type": "string", "maxLength": 20 }, "age": { "type": "integer", "maximum": 200 } },
        "required": ["name", "age"],
        "additionalProperties": false
    });
    fs::write(&path, schema.to_string()).unwrap();
    for think in ["off", "on"] {
        let args = ["run", "Who are you?", "--schema", path.to_str().unwrap(), "--think", think, "--json"];
        let done = flash_moe(&[&args[..], &["--temperature", "0", "--max-tokens", "300"]].concat()).ok();
        let report: Value = serde_json::from_str(&done.stdout).unwrap();
        let answer: Value = serde_json::from_str(report["text"].as_str().unwrap()).unwrap();
        assert_eq!(answer.as_object().map(serde_json::Map::len), Some(2), "{answer}");
        assert!(answer["name"].is_string() && answer["age"].as_i64() <= Some(200), "{answer}");
        assert_eq!(report["finish_reason"], "stop");
    }
    fs::write(&path, "{\"type\": \"nonsense\"}").unwrap();
    flash_moe(&["run", "x", "--schema", path.to_str().unwrap()]).fails(1, "nonsense", "");
    fs::write(&path, "[]").unwrap();
    flash_moe(&["run", "x", "--schema", path.to_str().unwrap()]).fails(1, "not a JSON schema", "");
}

/// Calls would be text that a script has to take apart, or half a call look like a whole one.
#[test]
fn calls_are_told_apart_from_text() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("tools.json");
    fs::write(&path, WEATHER.to_string()).unwrap();
    let question = ["run", "What's the weather in Rome and Oslo?", "--tools", path.to_str().unwrap()];
    let args = [&question[..], &["--temperature", "0", "--think", "off"]].concat();
    let lines = flash_moe(&args).ok().stdout;
    let call = |city: &str| json!({ "name": "get_weather", "arguments": { "city": city } });
    let calls: Vec<Value> = lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(calls, [call("Rome"), call("Oslo")]);
    let report: Value =
        serde_json::from_str(&flash_moe(&[&args[..], &["--json"]].concat()).ok().stdout).unwrap();
    assert_eq!((&report["text"], &report["finish_reason"]), (&json!(""), &json!("tool_calls")));
    for (call, city) in report["tool_calls"].as_array().unwrap().iter().zip(["Rome", "Oslo"]) {
        let arguments: Value = serde_json::from_str(call["function"]["arguments"].as_str().unwrap()).unwrap();
        assert_eq!((&call["type"], &arguments), (&json!("function"), &json!({ "city": city })));
    }
    assert_ne!(report["tool_calls"][0]["id"], report["tool_calls"][1]["id"]);
    let cut: Value = serde_json::from_str(
        &flash_moe(&[&args[..], &["--json", "--max-tokens", "12"]].concat()).ok().stdout,
    )
    .unwrap();
    assert_eq!((&cut["tool_calls"], &cut["finish_reason"]), (&json!([]), &json!("length")));
}

/// What was asked of the answer would be ignored.
#[test]
fn flags_shape_the_answer() {
    let whole = run(&["Who are you?", "--think", "off"], "");
    let cut = run(&["Who are you?", "--think", "off", "--stop", " demo", "--stop", "never"], "");
    assert_eq!(cut.trim_end(), whole.split(" demo").next().unwrap());
    let report = |more: &[&str]| -> Value {
        let args = [&["run", "Who are you?", "--json"], more, &GREEDY[..]].concat();
        serde_json::from_str(&flash_moe(&args).ok().stdout).unwrap()
    };
    let n_prompt = |report: &Value| report["phases"]["prefill"]["tokens"].as_u64().unwrap();
    let folder = tempfile::tempdir().unwrap();
    let (notes, binary) = (folder.path().join("notes.txt"), folder.path().join("binary"));
    fs::write(&notes, "Some words.").unwrap();
    fs::write(&binary, b"\0\xff").unwrap();
    let plain = n_prompt(&report(&[]));
    let notes = notes.to_str().unwrap();
    assert!(plain < n_prompt(&report(&["--system", "Be kind."])));
    let with_one = n_prompt(&report(&["--file", notes]));
    assert!(plain < with_one && with_one < n_prompt(&report(&["--file", notes, "--file", notes])));
    let binary = binary.to_str().unwrap();
    flash_moe(&["run", "x", "--file", binary]).fails(1, "cannot be attached", "");
    let hidden = [&["run", "Who are you?", "--think", "on", "--hide-thinking"], &GREEDY[..]].concat();
    let shown = [&["run", "Who are you?", "--think", "on"], &GREEDY[..]].concat();
    let (hidden, shown) = (flash_moe(&hidden).ok(), flash_moe(&shown).ok());
    assert_eq!((hidden.stdout, hidden.stderr.as_str()), (shown.stdout, ""));
    assert_ne!(shown.stderr, "");
}

/// A seed would not repeat an answer, or not change it.
#[test]
fn a_seed_repeats_an_answer() {
    let answer = |seed: &str| {
        let args = [
            "run",
            "Tell me a story.",
            "--temperature",
            "1.5",
            "--top-k",
            "0",
            "--top-p",
            "1",
            "--seed",
            seed,
        ];
        flash_moe(&[&args[..], &["--max-tokens", "24", "--think", "off"]].concat()).ok().stdout
    };
    assert_eq!(answer("1"), answer("1"));
    assert!((2..6).any(|seed| answer(&seed.to_string()) != answer("1")));
}

/// Special tokens in a raw prompt would be taken for text, or a template would be put around it.
#[test]
fn a_raw_prompt_is_the_whole_prompt() {
    let args = [&["run", "--json", "--raw", "<|im_start|>"][..], &GREEDY].concat();
    let report: Value = serde_json::from_str(&flash_moe(&args).ok().stdout).unwrap();
    assert_eq!(report["phases"]["prefill"]["tokens"], 1);
}

/// A chat would not go on after a turn, a command would reach the model, or the session would be read anew each turn.
#[test]
fn a_chat_remembers_and_obeys() {
    let input =
        "/help\nWho are you?\n/nonsense\nWhat's the weather in Rome?\n/clear\nWho are you?\n/quit\nnever\n";
    // What other tests said is not there.
    let args = [&["chat", "-v", "--think", "off", "--prefix-cache-size", "0"][..], &GREEDY].concat();
    let done = flash_moe_with(&args, input).ok();
    assert!(
        done.stderr.contains("forget the conversation;") && done.stderr.contains("there is no /nonsense"),
        "{done:?}"
    );
    let turns: Vec<&str> = done.stderr.lines().filter(|line| line.starts_with("[prompt ")).collect();
    assert_eq!(turns.len(), 3, "{done:?}");
    assert_eq!(
        turns.iter().map(|turn| turn.contains("reused")).collect::<Vec<_>>(),
        [false, true, true],
        "{turns:?}"
    );
    let answers: Vec<&str> = done.stdout.lines().collect();
    assert_eq!(answers.first(), answers.last(), "{done:?}");
}

/// Bad sampling values or an empty prompt would be found out after minutes of loading.
#[test]
fn bad_prompts_and_values_are_refused() {
    let check = |args: &[&str], code: i32, error: &str| {
        flash_moe(args).fails(code, error, "");
    };
    check(&["run", "x", "--temperature", "-1"], 2, "temperature");
    check(&["run", "x", "--top-p", "1.5"], 2, "top_p");
    check(&["run", " "], 1, "prompt is empty");
    check(&["run", "-"], 1, "prompt is empty");
    check(&["run", "x", "--ctx", "2"], 1, "context holds 2");
    check(&["run", store().to_str().unwrap(), "x", "--json"], 1, "no tokenizer");
}
