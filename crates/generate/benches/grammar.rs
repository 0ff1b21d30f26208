//! What holding answers to a form costs: time to compile a schema, and for each token of an answer.
//! `cargo bench -p flash-moe-generate --bench grammar -- [TOKENIZER.json [DIALOGUES.jsonl]]`
//!
//! The tokenizer is the demo model's unless another one is named. Schemas and answers are a small set of its own,
//! and with DIALOGUES (`{"tools": […], "expected": [{"name", "arguments"}]}` a line) the tools and calls of those.
//! Answers are replayed: at each step the model wants the next token of the given answer. The time of a token is
//! that of choosing it (greedy) less the median of choosing without a grammar.

use std::ops::ControlFlow;
use std::path::Path;
use std::time::{Duration, Instant};

use generate::{
    ChatRequest, GenerateOptions, Generation, Message, Next, ResponseFormat, SamplingParams, TextFiles,
    TextModel, Tool, ToolChoice,
};
use serde_json::{Value, json};

/// Of each answer; other programs only ever add time.
const RUNS: usize = 5;
/// Most tokens of an answer.
const TOKENS_MAX: usize = 2000;

fn main() {
    let args: Vec<String> = std::env::args().skip(1).filter(|arg| arg != "--bench").collect();
    let demo = Path::new(env!("CARGO_MANIFEST_DIR")).join("../cli/demo");
    let read = |path: &Path| std::fs::read(path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    let tokenizer =
        args.first().map_or_else(|| read(&demo.join("tokenizer.json")), |path| read(Path::new(path)));
    let template = read(&demo.join("chat_template.jinja"));
    let model = TextModel::new(TextFiles {
        tokenizer: &tokenizer,
        tokenizer_config: None,
        chat_template: Some(&template),
        generation_config: None,
    });
    let model = model.expect("the tokenizer can be read");
    println!("{} tokens", model.tokenizer().vocab_size());
    let start = Instant::now();
    model.constrain(&ResponseFormat::JsonObject).expect("a JSON object is a valid format");
    println!("first grammar, with the vocabulary: {:.0} ms", start.elapsed().as_secs_f64() * 1e3);

    let baseline = baseline(&model);
    println!("choosing without a grammar: {:.3} ms", baseline.as_secs_f64() * 1e3);
    let answers = own_schemas().into_iter().map(|(schema, answer)| {
        let response = ResponseFormat::JsonSchema(schema);
        (ChatRequest { response, ..request() }, answer)
    });
    measure("schemas", &model, &answers.collect::<Vec<_>>(), baseline);
    if let Some(path) = args.get(1) {
        let text = String::from_utf8(read(Path::new(path))).expect("dialogues are UTF-8");
        let dialogues: Vec<Value> =
            text.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
        for (what, choice) in [("required calls", ToolChoice::Required), ("free to call", ToolChoice::Auto)] {
            let requests: Vec<_> = dialogues.iter().filter_map(|d| call_request(d, &choice)).collect();
            measure(what, &model, &requests, baseline);
        }
    }
}

fn request() -> ChatRequest {
    ChatRequest { messages: vec![Message::user("hello")], thinking: Some(false), ..ChatRequest::default() }
}

/// Compiles and replays each answer, and prints what it took: the quickest of several runs.
fn measure(what: &str, model: &TextModel, answers: &[(ChatRequest, String)], baseline: Duration) {
    let n = answers.len();
    let (mut rendered, mut prepared) = (vec![Duration::MAX; n], vec![Duration::MAX; n]);
    let mut tokens: Vec<Vec<Duration>> = vec![Vec::new(); n];
    let (mut n_forced, mut n_refused) = (0, 0);
    for run in 0..RUNS {
        for (i, (request, answer)) in answers.iter().enumerate() {
            let mut request = request.clone();
            if let ResponseFormat::JsonSchema(schema) = &mut request.response {
                // Compiled grammars are kept, but not this one.
                schema["title"] = format!("run {run}").into();
            }
            let free = ChatRequest {
                response: ResponseFormat::Text,
                free_calls: true,
                tool_choice: ToolChoice::Auto,
                ..request.clone()
            };
            let prompt = timed(&mut rendered[i], || model.prepare(&free).expect("the prompt renders")).prompt;
            let held = timed(&mut prepared[i], || model.prepare(&request).expect("the grammar compiles"));
            let options = GenerateOptions { constraint: held.constraint, ..options(model) };
            let replay = replay(model, &prompt.ids, options, answer);
            if run == 0 {
                n_forced += replay.n_forced;
                n_refused += usize::from(!replay.is_whole);
                tokens[i] = replay.times;
            } else {
                tokens[i]
                    .iter_mut()
                    .zip(&replay.times)
                    .for_each(|(least, time)| *least = (*least).min(*time));
            }
        }
    }
    println!(
        "{what}: {n} answers, {n_refused} not as given, {n_forced} tokens certain, quickest of {RUNS} runs"
    );
    let mut compile: Vec<_> =
        prepared.iter().zip(&rendered).map(|(all, free)| all.saturating_sub(*free)).collect();
    print_times("compile", &mut compile);
    let mut tokens: Vec<_> = tokens.iter().flatten().map(|time| time.saturating_sub(baseline)).collect();
    print_times("token", &mut tokens);
}

/// Keeps the least time.
fn timed<T>(least: &mut Duration, work: impl FnOnce() -> T) -> T {
    let start = Instant::now();
    let result = work();
    *least = (*least).min(start.elapsed());
    result
}

fn print_times(what: &str, times: &mut [Duration]) {
    times.sort_unstable();
    let Some(last) = times.len().checked_sub(1) else { return };
    let at = |share: f64| times[(last as f64 * share) as usize].as_secs_f64() * 1e3;
    let n = times.len();
    println!(
        "  {what:8} n {n:6}  p50 {:.3}  p90 {:.3}  p99 {:.3}  max {:.3} ms",
        at(0.5),
        at(0.9),
        at(0.99),
        at(1.0)
    );
}

fn options(model: &TextModel) -> GenerateOptions {
    GenerateOptions {
        sampling: SamplingParams { temperature: 0.0, ..SamplingParams::default() },
        stop_ids: model.stop_ids().to_vec(),
        max_tokens: Some(TOKENS_MAX),
        ..GenerateOptions::default()
    }
}

/// Median of choosing a token that nothing holds.
fn baseline(model: &TextModel) -> Duration {
    let prompt = request_ids(model);
    let text = "Nothing holds this answer to anything. ".repeat(20);
    let mut times = replay(model, &prompt, options(model), &text).times;
    times.sort_unstable();
    times[times.len() / 2]
}

fn request_ids(model: &TextModel) -> Vec<u32> {
    model.prepare(&request()).expect("the prompt renders").prompt.ids
}

struct Replay {
    /// Of each choice.
    times: Vec<Duration>,
    n_forced: usize,
    /// The answer came as given.
    is_whole: bool,
}

/// Lets a model that wants to say `answer` say it.
fn replay(model: &TextModel, prompt: &[u32], options: GenerateOptions, answer: &str) -> Replay {
    let tokenizer = model.tokenizer();
    let n_vocab = tokenizer.vocab_size();
    let mut generation =
        Generation::new(tokenizer, n_vocab, prompt, 1 << 20, options).expect("valid options");
    let mut logits = vec![0.0; n_vocab];
    let (mut times, mut n_forced, mut pos) = (Vec::new(), 0, prompt.len());
    loop {
        let said = tokenizer.decode(generation.generated(), false);
        let rest = answer.strip_prefix(said.trim_end_matches('\u{FFFD}'));
        let wish = rest.and_then(|rest| tokenizer.encode(rest).expect("text is encoded").first().copied());
        let wish = wish.unwrap_or(model.stop_ids()[0]);
        logits[wish as usize] = 10.0;
        let start = Instant::now();
        let next = generation.next(&logits, pos, &mut |_| ControlFlow::Continue(()));
        times.push(start.elapsed());
        logits[wish as usize] = 0.0;
        match next.expect("an allowed token") {
            Next::Feed(ids) => {
                pos += ids.len();
                n_forced += ids.len() - 1;
            }
            Next::End(_) => break,
        }
    }
    let is_whole = tokenizer.decode(generation.generated(), false) == answer;
    Replay { times, n_forced, is_whole }
}

/// The request of a dialogue and the calls that it expects, as the template writes them.
fn call_request(dialogue: &Value, choice: &ToolChoice) -> Option<(ChatRequest, String)> {
    let tools: Vec<Tool> =
        dialogue["tools"].as_array()?.iter().filter_map(|tool| Tool::from_json(tool).ok()).collect();
    let calls: Vec<String> = dialogue["expected"].as_array()?.iter().filter_map(xml_call).collect();
    let answer = calls.join("\n");
    (!calls.is_empty()).then(|| (ChatRequest { tools, tool_choice: choice.clone(), ..request() }, answer))
}

fn xml_call(call: &Value) -> Option<String> {
    let parameters = call["arguments"].as_object()?.iter().map(|(key, value)| {
        let shown = match value {
            Value::String(text) => text.clone(),
            Value::Bool(value) => if *value { "True" } else { "False" }.to_owned(),
            other => other.to_string().replace("\",\"", "\", \""),
        };
        format!("<parameter={key}>\n{shown}\n</parameter>\n")
    });
    let name = call["name"].as_str()?;
    Some(format!(
        "<tool_call>\n<function={name}>\n{}</function>\n</tool_call>",
        parameters.collect::<String>()
    ))
}

/// Schemas of the kinds that clients send, each with an answer.
fn own_schemas() -> Vec<(Value, String)> {
    let prose =
        "The ship \\\"Pequod\\\" — a whaler\\nof Nantucket — sailed on Christmas day; nobody knew why. "
            .repeat(6);
    let event = json!({ "type": "object", "properties": { "title": { "type": "string" }, "date": { "type": "string", "format": "date" },
        "people": { "type": "array", "items": { "type": "object", "properties": { "name": { "type": "string" },
            "mail": { "type": "string", "format": "email" }, "age": { "type": "integer", "minimum": 0, "maximum": 150 } }, "required": ["name"] } },
        "kind": { "enum": ["meeting", "call", "travel", "other"] } }, "required": ["title", "date", "people", "kind"], "additionalProperties": false });
    let tree = json!({ "$ref": "#/$defs/node", "$defs": { "node": { "type": "object", "properties": { "value": { "type": "number" },
        "children": { "type": "array", "items": { "$ref": "#/$defs/node" } } }, "required": ["value"], "additionalProperties": false } } });
    let shape = json!({ "anyOf": [
        { "type": "object", "properties": { "kind": { "const": "circle" }, "radius": { "type": "number", "exclusiveMinimum": 0 } }, "required": ["kind", "radius"] },
        { "type": "object", "properties": { "kind": { "const": "text" }, "text": { "type": "string", "maxLength": 2000 } }, "required": ["kind", "text"] }] });
    let code = json!({ "type": "object", "properties": { "id": { "type": "string", "pattern": "^[A-Z]{3}-[0-9]{4,8}$" },
        "lines": { "type": "array", "items": { "type": "string" }, "minItems": 1 } }, "required": ["id", "lines"] });
    let wide: serde_json::Map<String, Value> = (0..120)
        .map(|i| (format!("field_{i}"), json!({ "type": ["string", "null"], "description": "A field" })))
        .collect();
    let wide = json!({ "type": "object", "properties": wide, "required": ["field_1", "field_119"], "additionalProperties": false });
    vec![
        (event, r#"{"title": "Review – Quartal №3", "date": "2026-03-14", "people": [{"name": "Zoë Müller", "mail": "zoe@example.org", "age": 44}, {"name": "東 京子"}], "kind": "meeting"}"#.into()),
        (tree, r#"{"value": 1.5, "children": [{"value": -2e3}, {"value": 0.25, "children": [{"value": 7}]}]}"#.into()),
        (shape, format!(r#"{{"kind": "text", "text": "{prose}"}}"#)),
        (code, r#"{"id": "ABC-20481", "lines": ["    def f(x):", "\treturn x ** 2  # \\o/", "", "print(f(\"3\"))"]}"#.into()),
        (wide, r#"{"field_1": "one", "field_7": null, "field_119": "last"}"#.into()),
        (json!({ "type": "object" }), format!(r#"{{"any": [1, 2, {{"deep": "{prose}"}}], "thing": null}}"#)),
    ]
}
