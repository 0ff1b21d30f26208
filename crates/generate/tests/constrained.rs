//! Answers held to schemas, grammars and calls, by models that would rather say something else.

mod common;

use std::collections::BTreeMap;
use std::ops::ControlFlow;

use common::noise::Noise;
use generate::{
    Channel, ChatRequest, Event, Finish, GenerateError, GenerateOptions, Generation, Message, Outcome,
    ResponseFormat, SamplingParams, TextFiles, TextModel, Tool, ToolChoice, generate,
};
use serde_json::{Value, json};

/// A template whose calls are JSON.
const JSON_CALLS: &str = "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}\
    <|im_start|>assistant\n{% if enable_thinking is defined and enable_thinking is false %}<think>\n\n</think>\n\n\
    {% endif %}{# <tool_call>\n{\"name\": <name>, \"arguments\": <arguments>}\n</tool_call> #}";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// The small tokenizer, one token a byte, calls in XML.
    SmallXml,
    SmallJson,
    /// The demo model's tokenizer, calls in XML.
    DemoXml,
}

fn text_model(kind: Kind) -> TextModel {
    let (small, small_config) = (common::small_json().to_string(), common::small_config().to_string());
    let demo = common::demo_tokenizer_json();
    let demo_config = common::repository_file("crates/cli/demo/tokenizer_config.json");
    let xml = common::data("chat_template.jinja");
    let (tokenizer, config) = match kind {
        Kind::SmallXml | Kind::SmallJson => (small.as_bytes(), small_config.as_bytes()),
        Kind::DemoXml => (&demo[..], &demo_config[..]),
    };
    let chat_template = if kind == Kind::SmallJson { JSON_CALLS.as_bytes() } else { &xml[..] };
    TextModel::new(TextFiles {
        tokenizer,
        tokenizer_config: Some(config),
        chat_template: Some(chat_template),
        generation_config: None,
    })
    .unwrap()
}

fn request() -> ChatRequest {
    ChatRequest { messages: vec![Message::user("hello")], thinking: Some(false), ..ChatRequest::default() }
}

fn tool(name: &str, parameters: Value) -> Tool {
    Tool::from_json(&json!({ "type": "function", "function": { "name": name, "parameters": parameters } }))
        .unwrap()
}

/// What came out: all text in the model's own form, and what was shown.
struct Run {
    raw: String,
    thinking: String,
    answer: String,
    outcome: Outcome,
}

fn run_with(
    model: &TextModel,
    request: &ChatRequest,
    noise: &mut Noise,
    edit: impl FnOnce(&mut GenerateOptions),
) -> Result<Run, GenerateError> {
    let prepared = model.prepare(request)?;
    let mut options = GenerateOptions {
        sampling: SamplingParams { seed: noise.seed, ..SamplingParams::default() },
        stop_ids: model.stop_ids().to_vec(),
        max_tokens: Some(3000),
        output: prepared.output,
        constraint: prepared.constraint,
        ..GenerateOptions::default()
    };
    edit(&mut options);
    noise.n_prompt = prepared.prompt.ids.len();
    let (mut thinking, mut answer) = (String::new(), String::new());
    let outcome = generate(noise, model.tokenizer(), &prepared.prompt.ids, &options, &mut |event| {
        match event {
            Event::Text { channel: Channel::Thinking, text } => thinking.push_str(text),
            Event::Text { channel: Channel::Answer, text } => answer.push_str(text),
            _ => {}
        }
        ControlFlow::Continue(())
    })?;
    assert_eq!(noise.fed, outcome.fed, "what the model was fed is not what the caller is told");
    let raw = model.tokenizer().decode(&outcome.generated, false);
    Ok(Run { raw, thinking, answer, outcome })
}

fn run(model: &TextModel, request: &ChatRequest, seed: u64) -> Run {
    let mut noise = Noise::new(model.tokenizer(), seed);
    // Else it would never be done with calling.
    noise.taste.push((model.tokenizer().token_id("<|im_end|>").unwrap(), 5.0));
    run_with(model, request, &mut noise, |_| {}).unwrap_or_else(|e| panic!("seed {seed}: {e}"))
}

/// Answers of noise to each schema; the demo model's tokenizer is slower.
fn n_answer(kind: Kind) -> u64 {
    if kind == Kind::DemoXml { 20 } else { 200 }
}

/// Schemas of the kinds that clients send.
fn schemas() -> Vec<(&'static str, Value)> {
    let text = json!({ "type": "string", "maxLength": 20 });
    vec![
        (
            "flat",
            json!({ "type": "object", "properties": { "a": { "type": "integer" }, "b": { "enum": ["x", "y"] } },
            "required": ["a", "b"], "additionalProperties": false }),
        ),
        (
            "nested",
            json!({ "type": "object", "properties": {
            "user": { "type": "object", "properties": { "name": text, "tags": { "type": "array", "items": text, "maxItems": 3 } },
                "required": ["name", "tags"], "additionalProperties": false },
            "ok": { "type": "boolean" } }, "required": ["user"], "additionalProperties": false }),
        ),
        (
            "enum of all kinds",
            json!({ "enum": ["a \"quoted\" text", 1, 2.5, true, null, ["x", 1], { "k": "v" }] }),
        ),
        (
            "array",
            json!({ "type": "array", "items": { "type": "integer", "minimum": -5, "maximum": 120 }, "minItems": 1, "maxItems": 4 }),
        ),
        (
            "numbers",
            json!({ "type": "object", "properties": { "x": { "type": "number", "minimum": 0, "maximum": 1 },
            "n": { "type": "integer", "exclusiveMinimum": 10, "maximum": 99 }, "m": { "type": "integer", "multipleOf": 5, "minimum": 0, "maximum": 1000 } },
            "required": ["x", "n", "m"], "additionalProperties": false }),
        ),
        (
            "anyOf",
            json!({ "anyOf": [{ "type": "object", "properties": { "kind": { "const": "circle" }, "r": { "type": "number", "minimum": 0, "maximum": 9 } },
            "required": ["kind", "r"], "additionalProperties": false },
            { "type": "object", "properties": { "kind": { "const": "square" }, "side": { "type": "integer", "minimum": 0, "maximum": 9 } },
            "required": ["kind", "side"], "additionalProperties": false }] }),
        ),
        (
            "reference",
            json!({ "$ref": "#/$defs/tree", "$defs": { "tree": { "type": "object", "properties": {
            "value": { "type": "integer", "minimum": 0, "maximum": 9 }, "children": { "type": "array", "items": { "$ref": "#/$defs/leaf" }, "maxItems": 2 } },
            "required": ["value", "children"], "additionalProperties": false },
            "leaf": { "type": "object", "properties": { "leaf": { "type": "boolean" } }, "required": ["leaf"], "additionalProperties": false } } }),
        ),
        (
            "pattern",
            json!({ "type": "object", "properties": { "id": { "type": "string", "pattern": "^[A-Z]{2}-[0-9]{3}$" },
            "date": { "type": "string", "format": "date" } }, "required": ["id", "date"], "additionalProperties": false }),
        ),
        (
            "unicode",
            json!({ "type": "object", "properties": { "städte": { "enum": ["東京", "Zürich", "👩‍👩‍👧", "a\nb\t\"c\"\\"] },
            "größe": { "type": ["integer", "null"], "minimum": 0, "maximum": 300 } }, "required": ["städte", "größe"], "additionalProperties": false }),
        ),
        (
            "map",
            json!({ "type": "object", "properties": { "id": { "type": "integer", "minimum": 0, "maximum": 9 } }, "required": ["id"],
            "additionalProperties": { "type": "boolean" }, "maxProperties": 4 }),
        ),
        ("lengths", json!({ "type": "string", "minLength": 3, "maxLength": 8 })),
    ]
}

#[test]
fn answers_fit_their_schema_whatever_the_model_says() {
    // A16: clients would get JSON that does not parse or lacks what they asked for.
    for kind in [Kind::SmallXml, Kind::DemoXml] {
        let model = text_model(kind);
        for (name, schema) in schemas() {
            let validator = jsonschema::validator_for(&schema).unwrap();
            let request = ChatRequest { response: ResponseFormat::JsonSchema(schema.clone()), ..request() };
            for seed in 0..n_answer(kind) {
                let run = run(&model, &request, seed);
                let about = format!("{kind:?}, {name}, seed {seed}: {:?}", run.answer);
                assert!(matches!(run.outcome.finish, Finish::Stop(_)), "{about}: {:?}", run.outcome.finish);
                let value: Value =
                    serde_json::from_str(&run.answer).unwrap_or_else(|e| panic!("{about}: {e}"));
                assert!(validator.is_valid(&value), "{about}");
                assert_eq!(run.raw, run.answer, "{about}");
            }
        }
    }
}

/// The validator is stricter than clients about descriptions.
fn without_nulls(mut schema: Value) -> Value {
    match &mut schema {
        Value::Object(fields) => {
            fields.retain(|key, value| key != "description" || value.is_string());
            fields.values_mut().for_each(|value| *value = without_nulls(value.take()));
        }
        Value::Array(items) => items.iter_mut().for_each(|item| *item = without_nulls(item.take())),
        _ => {}
    }
    schema
}

/// What a call of noise must be.
fn parse_xml_call(call: &str, tools: &[Tool]) -> Result<(String, BTreeMap<String, Value>), String> {
    let body = call.strip_prefix("<tool_call>\n<function=").ok_or("no opening")?;
    let body = body.strip_suffix("</function>\n</tool_call>").ok_or("no end")?;
    let (name, mut rest) = body.split_once(">\n").ok_or("no name")?;
    let tool = tools.iter().find(|tool| tool.name == name).ok_or("undeclared")?;
    let mut arguments = BTreeMap::new();
    while let Some(parameter) = rest.strip_prefix("<parameter=") {
        let (key, value) = parameter.split_once(">\n").ok_or("no key")?;
        let (value, after) = value.split_once("</parameter>\n").ok_or("no end of the value")?;
        // The line break before the end may be forgotten.
        let value = value.strip_suffix('\n').unwrap_or(value);
        let root = tool.parameters.as_ref();
        let properties =
            root.and_then(|p| p.get("properties").or_else(|| p.pointer("/$defs/args/properties")));
        let mut schema = properties.and_then(|p| p.get(key)).cloned().unwrap_or(json!({}));
        if let Some(definitions) = root.and_then(|root| root.get("$defs")) {
            schema["$defs"] = definitions.clone();
        }
        let schema = without_nulls(schema);
        let validator = jsonschema::validator_for(&schema).unwrap();
        // Text, unless only JSON fits.
        let text = Value::from(value);
        let typed = if validator.is_valid(&text) {
            text
        } else {
            match value {
                "True" => true.into(),
                "False" => false.into(),
                "None" => Value::Null,
                _ => serde_json::from_str(value).map_err(|e| format!("{key}: {e}"))?,
            }
        };
        if arguments.insert(key.to_owned(), typed).is_some() {
            return Err(format!("{key} twice"));
        }
        rest = after;
    }
    if rest.is_empty() { Ok((name.to_owned(), arguments)) } else { Err(format!("left: {rest:?}")) }
}

fn parse_json_call(call: &str) -> Result<(String, BTreeMap<String, Value>), String> {
    let body = call
        .strip_prefix("<tool_call>\n")
        .and_then(|c| c.strip_suffix("\n</tool_call>"))
        .ok_or("no envelope")?;
    let value: Value = serde_json::from_str(body).map_err(|e| e.to_string())?;
    let name = value["name"].as_str().ok_or("no name")?.to_owned();
    let arguments = value["arguments"].as_object().ok_or("no arguments")?;
    Ok((name, arguments.iter().map(|(k, v)| (k.clone(), v.clone())).collect()))
}

/// Splits an answer into its calls and checks each against its tool; returns their names.
fn check_calls(kind: Kind, raw: &str, tools: &[Tool]) -> Result<Vec<String>, String> {
    let mut names = Vec::new();
    for call in raw.split_inclusive("</tool_call>") {
        let call = call.strip_prefix('\n').unwrap_or(call);
        let (name, arguments) = match kind {
            Kind::SmallJson => parse_json_call(call)?,
            Kind::SmallXml | Kind::DemoXml => parse_xml_call(call, tools)?,
        };
        let tool = tools.iter().find(|tool| tool.name == name).ok_or("undeclared")?;
        if let Some(schema) = &tool.parameters {
            let value = Value::Object(arguments.into_iter().collect());
            let error = jsonschema::validator_for(&without_nulls(schema.clone()))
                .unwrap()
                .iter_errors(&value)
                .next()
                .map(|e| e.to_string());
            if let Some(error) = error {
                return Err(format!("{value}: {error}"));
            }
        }
        names.push(name);
    }
    Ok(names)
}

fn tools() -> Vec<Tool> {
    vec![
        tool(
            "get_weather",
            json!({ "type": "object", "properties": { "city": { "type": "string" }, "days": { "type": "integer", "minimum": 1, "maximum": 14 },
            "unit": { "type": "string", "enum": ["C", "F"] } }, "required": ["city", "days"] }),
        ),
        tool("get", json!({ "type": "object", "properties": {} })),
        tool(
            "write_file",
            json!({ "type": "object", "properties": { "path": { "type": "string", "pattern": "^[a-z]{1,8}\\.txt$" },
            "tags": { "type": "array", "items": { "enum": ["a", "b"] }, "maxItems": 2 }, "mode": { "type": ["integer", "null"], "minimum": 0, "maximum": 7 },
            "title": { "type": "string", "minLength": 1, "maxLength": 12 }, "at": { "$ref": "#/$defs/point" },
            "who": { "anyOf": [{ "type": "string", "enum": ["me", "you"] }, { "type": "boolean" }] } },
            "required": ["path", "at", "who"], "additionalProperties": false,
            "$defs": { "point": { "type": "object", "properties": { "x": { "type": "integer", "minimum": 0, "maximum": 9 } }, "required": ["x"], "additionalProperties": false } } }),
        ),
    ]
}

#[test]
fn required_calls_are_valid_whatever_the_model_says() {
    // A14, A39: a call would be missing, of a tool that is not there, or with arguments that its schema refuses.
    for kind in [Kind::SmallXml, Kind::SmallJson, Kind::DemoXml] {
        let model = text_model(kind);
        let request = ChatRequest { tools: tools(), tool_choice: ToolChoice::Required, ..request() };
        let mut seen = BTreeMap::<String, usize>::new();
        let mut most = 0;
        for seed in 0..n_answer(kind) {
            let run = run(&model, &request, seed);
            let about = format!("{kind:?}, seed {seed}: {:?} {:?}", run.outcome.finish, run.raw);
            assert!(matches!(run.outcome.finish, Finish::Stop(_)), "{about}");
            let names =
                check_calls(kind, &run.raw, &request.tools).unwrap_or_else(|e| panic!("{about}: {e}"));
            most = most.max(names.len());
            names.into_iter().for_each(|name| *seen.entry(name).or_default() += 1);
        }
        assert_eq!(seen.len(), 3, "{kind:?}: not all tools were called: {seen:?}");
        assert!(most > 1, "{kind:?}: never two calls");
        let named =
            ChatRequest { tool_choice: ToolChoice::Named("get".into()), single_call: true, ..request };
        for seed in 0..20 {
            let raw = run(&model, &named, seed).raw;
            assert_eq!(
                check_calls(kind, &raw, &named.tools).unwrap(),
                ["get"],
                "{kind:?}, seed {seed}: {raw:?}"
            );
        }
    }
}

#[test]
fn free_answers_are_held_to_a_call_once_it_begins() {
    // Calls of low-bit models would not parse; or the model be forced to call.
    for kind in [Kind::SmallXml, Kind::SmallJson, Kind::DemoXml] {
        let model = text_model(kind);
        let request = ChatRequest { tools: tools(), ..request() };
        let open = model.tokenizer().token_id("<tool_call>").unwrap();
        let (mut n_call, mut n_prose) = (0, 0);
        for seed in 0..n_answer(kind) {
            let mut noise = Noise::new(model.tokenizer(), seed);
            noise.taste = vec![(open, 8.0), (model.tokenizer().token_id("<|im_end|>").unwrap(), 10.0)];
            let run = run_with(&model, &request, &mut noise, |_| {}).unwrap();
            let about = format!("{kind:?}, seed {seed}: {:?}", run.raw);
            match run.raw.find("<tool_call>") {
                Some(at) => {
                    n_call += 1;
                    check_calls(kind, &run.raw[at..], &request.tools)
                        .unwrap_or_else(|e| panic!("{about}: {e}"));
                }
                None => n_prose += 1,
            }
        }
        assert!(n_call > 0 && n_prose > 0, "{kind:?}: {n_call} answers with calls, {n_prose} without");
    }
}

/// Tokens that the small tokenizer has for a text, or for what comes next in it.
fn script(text: &str) -> Vec<u32> {
    common::small().encode(text).unwrap()
}

/// A model of the small tokenizer that wants to say this, and what becomes of it.
fn run_script(
    request: &ChatRequest,
    text: &str,
    edit: impl FnOnce(&mut GenerateOptions),
) -> Result<(Run, Vec<u32>), GenerateError> {
    let model = text_model(Kind::SmallXml);
    let prepared = model.prepare(request)?;
    let mut options = GenerateOptions {
        sampling: SamplingParams { temperature: 0.0, ..SamplingParams::default() },
        stop_ids: model.stop_ids().to_vec(),
        max_tokens: Some(500),
        output: prepared.output,
        constraint: prepared.constraint,
        ..GenerateOptions::default()
    };
    edit(&mut options);
    let mut script = common::Script::new(&script(text), prepared.prompt.ids.len());
    script.n_ctx = 100_000;
    let (mut thinking, mut answer) = (String::new(), String::new());
    let outcome = generate(&mut script, model.tokenizer(), &prepared.prompt.ids, &options, &mut |event| {
        match event {
            Event::Text { channel: Channel::Thinking, text } => thinking.push_str(text),
            Event::Text { channel: Channel::Answer, text } => answer.push_str(text),
            _ => {}
        }
        ControlFlow::Continue(())
    })?;
    let raw = model.tokenizer().decode(&outcome.generated, false);
    Ok((Run { raw, thinking, answer, outcome }, prepared.prompt.ids))
}

/// `{"a": integer, "b": "x" or "y"}`
fn two_fields() -> ResponseFormat {
    ResponseFormat::JsonSchema(schemas()[0].1.clone())
}

#[test]
fn the_grammar_begins_behind_thinking_however_it_is_closed() {
    // A16: thinking would be held to the schema, the answer not, or the close eat a part of it.
    let request = ChatRequest { thinking: Some(true), response: two_fields(), ..request() };
    let cases = [
        // (what the model wants to say, thinking, all text)
        (
            "plan {\n</think>\n\n{\"a\":1,\"b\":\"y\"}<|im_end|>",
            "plan {",
            "plan {\n</think>\n\n{\"a\":1,\"b\":\"y\"}",
        ),
        ("p</think>{\"a\":12,\"b\":\"y\"}<|im_end|>", "p", "p</think>\n\n"),
        ("p\n</think>\n\nSure! ", "p", "p\n</think>\n\n{"),
        // It stops in its thinking.
        ("p<|im_end|>", "p", "p\n</think>\n\n{"),
        ("<|im_end|>", "", "\n</think>\n\n{"),
    ];
    for (text, thinking, begin) in cases {
        let (run, _) = run_script(&request, text, |_| {}).unwrap();
        assert_eq!(run.thinking, thinking, "{text:?}");
        assert!(run.raw.starts_with(begin), "{text:?}: {:?}", run.raw);
        let (_, answer) = run.raw.split_once("</think>\n\n").unwrap();
        assert_eq!(run.answer, answer, "{text:?}");
        let ends = matches!(run.outcome.finish, Finish::Stop(_));
        assert!(ends || run.outcome.finish == Finish::Length, "{text:?}: {:?}", run.outcome.finish);
        if ends {
            let value: Value =
                serde_json::from_str(answer).unwrap_or_else(|e| panic!("{text:?} {answer:?}: {e}"));
            assert!(value["a"].is_number(), "{text:?}");
        }
    }
    // A close in pieces, the last of which reaches into the answer.
    let pieces = [b"p".as_slice(), b"<", b"/think>"].concat();
    let ids: Vec<u32> = pieces.iter().map(|&b| b.into()).collect();
    let model = text_model(Kind::SmallXml);
    let mut noise = Noise::new(model.tokenizer(), 1);
    noise.script = ids;
    let run = run_with(&model, &request, &mut noise, |_| {}).unwrap();
    assert!(run.raw.starts_with("p</think>\n\n{"), "{:?}", run.raw);
    let value: Value = serde_json::from_str(&run.answer).unwrap();
    assert!(value["a"].is_number());
}

#[test]
fn a_thinking_budget_closes_thinking_cleanly() {
    // T31, A31: thinking would go on for ever, a part of a tag or character show up, or 0 mean no limit.
    let free = ChatRequest { thinking: Some(true), ..request() };
    let held = ChatRequest { response: two_fields(), ..free.clone() };
    let answer = "A.<|im_end|>";
    let cases = [
        // (budget, what the model wants to say, all text until the answer)
        (0, "loop", "\n</think>\n\n"),
        (4, "loop loop loop", "loop\n</think>\n\n"),
        (5, "loop\nloop", "loop\n</think>\n\n"),
        // Inside a character: it is completed first.
        (1, "é loop", "é\n</think>\n\n"),
        (2, "日本", "日\n</think>\n\n"),
        (9, "a</think>\n\nb", "a</think>\n\nb"),
    ];
    for (budget, text, begin) in cases {
        let (run, _) = run_script(&free, &format!("{text}{answer}"), |o| {
            o.thinking_budget = Some(budget);
            o.max_tokens = Some(40);
        })
        .unwrap();
        assert!(run.raw.starts_with(begin), "{budget}, {text:?}: {:?}", run.raw);
        let (thinking, _) = begin.split_once("</think>").unwrap();
        assert_eq!(run.thinking, thinking.trim_end_matches('\n'), "{budget}, {text:?}");
        let (run, _) = run_script(&held, text, |o| o.thinking_budget = Some(budget)).unwrap();
        assert_eq!(run.thinking, thinking.trim_end_matches('\n'), "held: {budget}, {text:?}");
        assert!(run.answer.starts_with('{'), "held: {budget}, {text:?}: {:?}", run.raw);
    }
    // A tag that has begun is completed.
    let model = text_model(Kind::SmallXml);
    let mut noise = Noise::new(model.tokenizer(), 1);
    noise.script = b"ab</thi".iter().map(|&b| b.into()).collect();
    let run = run_with(&model, &free, &mut noise, |o| {
        o.thinking_budget = Some(7);
        o.max_tokens = Some(30);
    })
    .unwrap();
    assert!(run.raw.starts_with("ab</think>\n\n"), "{:?}", run.raw);
    assert_eq!(run.thinking, "ab");
}

#[test]
fn calls_begin_their_grammar_wherever_they_begin() {
    // T06, T10: a call without its opening tag, in pieces, or inside thinking would not be held to the tool.
    let tools = vec![tool(
        "get_weather",
        json!({ "type": "object", "properties": { "days": { "enum": [7] } }, "required": ["days"] }),
    )];
    let call = "\n<function=get_weather>\n<parameter=days>\n7\n</parameter>\n</function>\n</tool_call>";
    let cases = [
        // (thinking, what the model wants to say, all of it)
        (false, "Let me see.\n<tool_call>oh no", format!("Let me see.\n<tool_call>{call}")),
        (false, "<function=get_weather>oh no", call[1..].to_string()),
        (false, "Hm.\n  <function=get_weather>oh no", format!("Hm.\n  {}", &call[1..])),
        (true, "I should call.\n<tool_call>oh no", format!("I should call.\n<tool_call>{call}")),
    ];
    for (thinking, text, expected) in cases {
        let request =
            ChatRequest { tools: tools.clone(), thinking: Some(thinking), single_call: true, ..request() };
        let (run, _) = run_script(&request, text, |_| {}).unwrap();
        assert_eq!(run.raw, expected, "{text:?}");
        assert!(matches!(run.outcome.finish, Finish::Stop(_)), "{text:?}");
    }
    // Not a declared tool, or not a call: stays what it is.
    for text in [
        "<function=other>a<|im_end|>",
        "x <function=get_weather>a<|im_end|>",
        "<function=get_weather<|im_end|>",
    ] {
        let request = ChatRequest { tools: tools.clone(), ..request() };
        let (run, _) = run_script(&request, text, |_| {}).unwrap();
        assert_eq!(run.raw, text.strip_suffix("<|im_end|>").unwrap());
    }
}

#[test]
fn tool_choice_is_kept() {
    // A14: a model that prefers prose would not call, or call though it must not.
    let tools = vec![
        tool("a", json!({ "type": "object", "properties": {} })),
        tool("b", json!({ "type": "object", "properties": {} })),
    ];
    let call = |name: &str| format!("<tool_call>\n<function={name}>\n</function>\n</tool_call>");
    let prose = "I would rather talk.<|im_end|>";
    let wish = format!("{}<|im_end|>", call("b"));
    let with = |tool_choice, response| ChatRequest {
        tools: tools.clone(),
        tool_choice,
        response,
        single_call: true,
        ..request()
    };
    let json = r#"{"a":1,"b":"x"}"#;
    let cases = [
        (with(ToolChoice::Required, ResponseFormat::Text), wish.as_str(), call("b")),
        (with(ToolChoice::Named("a".into()), ResponseFormat::Text), &wish, call("a")),
        (with(ToolChoice::Named("b".into()), ResponseFormat::Text), prose, call("b")),
        (with(ToolChoice::Auto, ResponseFormat::Text), prose, "I would rather talk.".into()),
        (with(ToolChoice::Auto, ResponseFormat::Text), &wish, call("b")),
        (with(ToolChoice::None, ResponseFormat::Text), prose, "I would rather talk.".into()),
        // Either a call or the JSON.
        (with(ToolChoice::Auto, two_fields()), &wish, call("b")),
        (with(ToolChoice::Auto, two_fields()), &format!("{json}<|im_end|>"), json.into()),
        (with(ToolChoice::None, two_fields()), &format!("{json}<|im_end|>"), json.into()),
        (with(ToolChoice::Required, two_fields()), &wish, call("b")),
    ];
    for (request, text, expected) in cases {
        let (run, _) = run_script(&request, text, |_| {}).unwrap();
        assert_eq!(run.raw, expected, "{:?}, {:?}", request.tool_choice, request.response);
    }
    let none = with(ToolChoice::None, ResponseFormat::Text);
    let (run, _) = run_script(&none, &wish, |_| {}).unwrap();
    assert!(!run.outcome.generated.contains(&common::id("<tool_call>")), "{:?}", run.raw);
    for choice in [ToolChoice::Named("c".into()), ToolChoice::Required] {
        let tools = if choice == ToolChoice::Required { Vec::new() } else { tools.clone() };
        let request = ChatRequest { tools, tool_choice: choice, ..request() };
        assert!(matches!(run_script(&request, "", |_| {}), Err(GenerateError::Grammar { .. })));
    }
}

#[test]
fn calls_are_free_when_asked_for() {
    // Someone who compares would measure the grammar, not the model.
    let tools = vec![tool("a", json!({ "type": "object", "properties": {} }))];
    let request = ChatRequest { tools: tools.clone(), free_calls: true, ..request() };
    let text = "<tool_call>\nnonsense</tool_call>";
    assert_eq!(run_script(&request, &format!("{text}<|im_end|>"), |_| {}).unwrap().0.raw, text);
    let strict = Tool { strict: true, ..tools[0].clone() };
    let (run, _) = run_script(&ChatRequest { tools: vec![strict], ..request }, text, |_| {}).unwrap();
    assert!(run.raw.starts_with("<tool_call>\n<function=a>"), "{:?}", run.raw);
}

#[test]
fn numbers_end_before_nobody_can_read_them() {
    // N12: a model that writes digits without end would make a number that readers of JSON refuse. Texts may have as
    // many digits as they like.
    let digits = "7".repeat(400);
    let (integer, number) = (json!({ "type": "integer" }), json!({ "type": "number" }));
    let list = json!({ "type": "array", "items": integer, "maxItems": 2 });
    let cases = [(integer.clone(), ""), (integer, "-"), (number.clone(), ""), (number, "0."), (list, "[12,")];
    for (schema, start) in cases {
        let held = ChatRequest { response: ResponseFormat::JsonSchema(schema.clone()), ..request() };
        let (run, _) = run_script(&held, &format!("{start}{digits}"), |o| o.max_tokens = Some(1000)).unwrap();
        let about = format!("{schema}, {start:?}: {:?}", run.answer);
        serde_json::from_str::<Value>(&run.answer).unwrap_or_else(|e| panic!("{about}: {e}"));
        assert!(run.answer.starts_with(start) && run.answer.contains(&digits[..300]), "{about}");
        assert!(!run.answer.contains(&digits[..301]), "{about}");
    }
    let text = ResponseFormat::JsonSchema(json!({ "type": "string" }));
    let held = ChatRequest { response: text, ..request() };
    let (run, _) = run_script(&held, &format!("\"{digits}\""), |_| {}).unwrap();
    assert_eq!(run.answer, format!("\"{digits}\""));
    let note =
        json!({ "type": "object", "properties": { "text": { "type": "string" } }, "required": ["text"] });
    let tools = vec![tool("note", note)];
    let call = format!(
        "<tool_call>\n<function=note>\n<parameter=text>\n{digits}\n</parameter>\n</function>\n</tool_call>"
    );
    let (run, _) =
        run_script(&ChatRequest { tools, ..request() }, &call, |o| o.max_tokens = Some(1000)).unwrap();
    assert!(run.raw.starts_with(&call), "{:?}", run.raw);
}

#[test]
fn regular_expressions_and_grammars_hold() {
    // Clients that ask for a form would get another one.
    let cases = [
        (ResponseFormat::Regex(r"[0-9]{4}-(0[1-9]|1[0-2])".into()), "1999-12<|im_end|>", "1999-12"),
        (ResponseFormat::Regex("yes|no".into()), "nope", "no"),
        (ResponseFormat::Regex("(ja|nein)/x".into()), "nein/x<|im_end|>", "nein/x"),
        (ResponseFormat::Lark("start: \"a\"+ \"b\"".into()), "aaab<|im_end|>", "aaab"),
        (ResponseFormat::JsonObject, "{\"k\": [1, true]}<|im_end|>", "{\"k\": [1, true]}"),
    ];
    for (response, text, expected) in cases {
        let request = ChatRequest { response, ..request() };
        let (run, _) = run_script(&request, text, |_| {}).unwrap();
        assert_eq!(run.raw, expected, "{:?}", request.response);
        assert!(matches!(run.outcome.finish, Finish::Stop(_)));
    }
}

#[test]
fn what_cannot_be_held_to_is_an_error_that_says_why() {
    // Schemas would be kept in part without a word, or a hostile one hang the server.
    let schema = |schema: Value| ResponseFormat::JsonSchema(schema);
    let deep = (0..200).fold(json!({}), |inner, _| json!({ "type": "array", "items": inner }));
    let wide: Value = (0..20_000)
        .map(|i| (format!("property_{i}"), json!({ "type": "string" })))
        .collect::<serde_json::Map<_, _>>()
        .into();
    let cases = [
        (
            schema(
                json!({ "type": "object", "properties": { "a": {} }, "dependentRequired": { "a": ["b"] } }),
            ),
            "dependentRequired",
        ),
        (schema(json!({ "type": "array", "uniqueItems": true })), "uniqueItems"),
        (schema(json!({ "type": "integer", "minimum": 5, "maximum": 4 })), "minimum"),
        (schema(json!({ "$ref": "https://example.com/schema.json" })), "example.com"),
        (schema(json!({ "$ref": "#/$defs/missing" })), "missing"),
        (schema(json!({ "type": "string", "pattern": "(" })), "regex"),
        (schema(json!("string")), "not a JSON object"),
        (schema(deep), "levels deep"),
        (schema(json!({ "type": "object", "properties": wide })), "bytes"),
        (
            schema(
                json!({ "type": "string", "pattern": "((((a{1,1000}){1,1000}){1,1000}){1,1000}){1,1000}" }),
            ),
            "",
        ),
        (ResponseFormat::Regex("[a-".into()), "regular expression"),
        (ResponseFormat::Regex("(".repeat(100_000)), "levels deep"),
        (ResponseFormat::Regex("a".repeat(1 << 20)), "bytes"),
        (ResponseFormat::Regex("([a-z]{1,300}[0-9]{1,300}){1,300}|(\\w{1,900}x){1,900}y".into()), ""),
        (ResponseFormat::Lark("start: missing".into()), "missing"),
        (ResponseFormat::Lark("start: start".into()), ""),
        (ResponseFormat::Lark("not a grammar".into()), "grammar"),
        (ResponseFormat::Lark("start: <|nothing|>".into()), "nothing"),
        (ResponseFormat::Lark(format!("start: {}", "(".repeat(5000))), "levels deep"),
    ];
    let model = text_model(Kind::SmallXml);
    for (response, says) in cases {
        let about: String = format!("{response:?}").chars().take(200).collect();
        let request = ChatRequest { response, ..request() };
        match model.prepare(&request) {
            Err(error @ GenerateError::Grammar { .. }) => {
                let message = error.to_string();
                assert!(message.contains(says), "{about}: {message}");
                assert!(message.len() < 1000, "{about}: {message}");
            }
            Err(error) => panic!("{about}: {error}"),
            // Nothing says that it is too much: then it has to work.
            Ok(_) if says.is_empty() => {
                let mut noise = Noise::new(model.tokenizer(), 1);
                let run = run_with(&model, &request, &mut noise, |o| o.max_tokens = Some(30));
                assert!(matches!(run, Ok(_) | Err(GenerateError::Grammar { .. })), "{about}");
            }
            Ok(_) => panic!("{about}: no error"),
        }
    }
}

#[test]
fn schemas_that_grow_when_they_are_followed_come_to_an_end() {
    // A few references, each to two others, or long definitions for each of many parameters: one small request would
    // take a thread or all memory for ever.
    let level = |i: usize| {
        let next = json!({ "$ref": format!("#/$defs/d{}", i + 1) });
        (format!("d{i}"), json!({ "anyOf": vec![next; 8] }))
    };
    let mut definitions: serde_json::Map<String, Value> = (0..14).map(level).collect();
    definitions.insert("d14".into(), json!({ "type": "integer" }));
    definitions.insert("again".into(), json!({ "anyOf": vec![json!({ "$ref": "#/$defs/again" }); 8] }));
    let by_reference = |name: &str| {
        let x = json!({ "$ref": format!("#/$defs/{name}") });
        json!({ "type": "object", "properties": { "x": x }, "$defs": definitions })
    };
    let many: serde_json::Map<String, Value> =
        (0..1000).map(|i| (format!("p{i}"), json!({ "type": "array", "minItems": i }))).collect();
    let long =
        json!({ "type": "object", "properties": many, "$defs": { "d": { "title": "x".repeat(200_000) } } });
    let model = text_model(Kind::SmallXml);
    for parameters in [by_reference("d0"), by_reference("again"), long] {
        let request = ChatRequest { tools: vec![tool("f", parameters)], ..request() };
        assert!(model.prepare(&request).is_ok());
    }
}

#[test]
fn strict_tools_are_held_to_or_refused() {
    // `strict` would be a promise that is not kept; a tool that is not strict be unusable because of its schema.
    let odd = json!({ "type": "object", "properties": { "list": { "type": "array", "items": { "type": "integer", "minimum": 0, "maximum": 9 },
        "maxItems": 2, "uniqueItems": true }, "broken": { "type": "string", "pattern": "(?=x)(" } }, "required": ["list"] });
    let loose = tool("odd", odd);
    let strict = Tool { strict: true, ..loose.clone() };
    for kind in [Kind::SmallXml, Kind::SmallJson] {
        let model = text_model(kind);
        let with = |tool: &Tool| ChatRequest {
            tools: vec![tool.clone()],
            tool_choice: ToolChoice::Required,
            ..request()
        };
        let Err(error) = model.prepare(&with(&strict)) else { panic!("{kind:?}: no error") };
        assert!(error.to_string().contains("odd"), "{kind:?}: {error}");
        for seed in 0..10 {
            let run = run(&model, &with(&loose), seed);
            assert!(run.raw.contains("odd"), "{kind:?}: {:?}", run.raw);
        }
    }
    // Too much of them: their names still count.
    let words = |i: u64| {
        (0..400).map(move |n| format!("{:x}", (i * 400 + n).wrapping_mul(0x1234_5678_9ABC_DEF1) % (1 << 48)))
    };
    let pattern = |i| format!("^({})$", words(i).collect::<Vec<_>>().join("|"));
    let heavy = |i| json!({ "type": "object", "properties": { "x": { "type": "string", "pattern": pattern(i) } }, "required": ["x"] });
    let heavy: Vec<Tool> = (0..60).map(|i| tool(&format!("heavy_{i}"), heavy(i))).collect();
    let request_heavy =
        ChatRequest { tools: heavy, tool_choice: ToolChoice::Required, single_call: true, ..request() };
    let model = text_model(Kind::SmallXml);
    let mut noise = Noise::new(model.tokenizer(), 1);
    noise.n_ctx = 1 << 30;
    let raw = run_with(&model, &request_heavy, &mut noise, |o| o.max_tokens = Some(60)).unwrap().raw;
    assert!(raw.starts_with("<tool_call>\n<function=heavy_"), "{raw:?}");
    let bad_name = Tool { name: "a>b".into(), ..tool("a", json!({})) };
    let request = ChatRequest { tools: vec![bad_name], tool_choice: ToolChoice::Required, ..request() };
    assert!(matches!(text_model(Kind::SmallXml).prepare(&request), Err(GenerateError::Grammar { .. })));
}

#[test]
fn loose_schemas_of_agents_can_be_called() {
    // A28: agents send tools without parameters, with references, with empty schemas, and many of them.
    let mut all = vec![
        tool("none", Value::Null),
        tool("empty", json!({})),
        tool("bare", json!({ "type": "object" })),
        tool(
            "untyped",
            json!({ "type": "object", "properties": { "x": {}, "y": { "description": "anything" } } }),
        ),
        tool(
            "map",
            json!({ "type": "object", "additionalProperties": { "type": "integer", "minimum": 0, "maximum": 9 } }),
        ),
        tool(
            "referring",
            json!({ "$ref": "#/$defs/args", "$defs": { "args": { "type": "object", "properties": { "n": { "$ref": "#/$defs/n" } }, "required": ["n"] },
            "n": { "type": "integer", "minimum": 0, "maximum": 9 } } }),
        ),
        tool(
            "null_description",
            json!({ "type": "object", "description": null, "properties": { "q": { "type": "string", "description": null } } }),
        ),
        tool(
            "combined",
            json!({ "allOf": [{ "type": "object", "properties": { "q": { "type": "string" } } }] }),
        ),
    ];
    let many: serde_json::Map<String, Value> =
        (0..70).map(|i| (format!("p{i}"), json!({ "type": "boolean" }))).collect();
    all.push(tool("many", json!({ "type": "object", "properties": many, "required": ["p3", "p69"] })));
    all.extend((0..71).map(|i| {
        tool(&format!("tool_{i}"), json!({ "type": "object", "properties": { "x": { "type": "string" } } }))
    }));
    for kind in [Kind::SmallXml, Kind::SmallJson] {
        let model = text_model(kind);
        for tool in &all[..9] {
            let choice = ToolChoice::Named(tool.name.clone());
            let request =
                ChatRequest { tools: all.clone(), tool_choice: choice, single_call: true, ..request() };
            for seed in 0..5 {
                let run = run(&model, &request, seed);
                let about = format!("{kind:?}, {}, seed {seed}: {:?}", tool.name, run.raw);
                assert!(matches!(run.outcome.finish, Finish::Stop(_)), "{about}");
                check_calls(kind, &run.raw, &all).unwrap_or_else(|e| panic!("{about}: {e}"));
            }
        }
        let request = ChatRequest { tools: all.clone(), tool_choice: ToolChoice::Required, ..request() };
        let raw = run(&model, &request, 3).raw;
        check_calls(kind, &raw, &all).unwrap_or_else(|e| panic!("{kind:?}: {raw:?}: {e}"));
    }
}

#[test]
fn limits_hold_inside_forced_tokens() {
    // A batch of certain tokens would overrun max_tokens or the context.
    let request = ChatRequest { tools: tools(), tool_choice: ToolChoice::Named("get".into()), ..request() };
    for max_tokens in 0..12 {
        let (run, prompt) = run_script(&request, "", |o| o.max_tokens = Some(max_tokens)).unwrap();
        assert_eq!((run.outcome.generated.len(), run.outcome.finish), (max_tokens, Finish::Length));
        assert!(run.outcome.fed.len() <= prompt.len() + max_tokens);
    }
    let model = text_model(Kind::SmallXml);
    let n_prompt = model.prepare(&request).unwrap().prompt.ids.len();
    let mut noise = Noise::new(model.tokenizer(), 0);
    noise.n_ctx = n_prompt + 5;
    let run = run_with(&model, &request, &mut noise, |_| {}).unwrap();
    assert_eq!((run.outcome.generated.len(), run.outcome.finish), (6, Finish::ContextFull));
}

/// Is an answer to the request what it is held to? Noise that is cut, not closed, makes none that are.
fn is_whole(kind: Kind, request: &ChatRequest, run: &Run) -> bool {
    match &request.response {
        ResponseFormat::JsonSchema(schema) => serde_json::from_str(&run.answer)
            .is_ok_and(|value: Value| jsonschema::validator_for(schema).unwrap().is_valid(&value)),
        _ => check_calls(kind, &run.raw, &request.tools).is_ok(),
    }
}

#[test]
fn answers_are_closed_at_their_limit_when_asked_for() {
    // A model that does not get out of a value would leave JSON or a call that nobody can read.
    for kind in [Kind::SmallXml, Kind::SmallJson, Kind::DemoXml] {
        let model = text_model(kind);
        let calls = ChatRequest { tools: tools(), tool_choice: ToolChoice::Required, ..request() };
        let answers = schemas()
            .into_iter()
            .map(|(_, schema)| ChatRequest { response: ResponseFormat::JsonSchema(schema), ..request() });
        let (mut n_closed, mut n_cut) = (0, 0);
        for request in answers.chain([calls]) {
            for seed in 0..n_answer(kind) / 20 {
                let noise = || Noise::new(model.tokenizer(), seed);
                let run = |max_tokens: usize, is_closed: bool| {
                    let edit = |o: &mut GenerateOptions| {
                        (o.max_tokens, o.close_at_limit) = (Some(max_tokens), is_closed);
                    };
                    run_with(&model, &request, &mut noise(), edit).unwrap()
                };
                for max_tokens in [140, 150, 200, 300] {
                    let (cut, closed) = (run(max_tokens, false), run(max_tokens, true));
                    let about = format!("{kind:?}, seed {seed}, {max_tokens}: {:?}", closed.raw);
                    assert!(is_whole(kind, &request, &closed), "{about}");
                    assert!(closed.outcome.generated.len() <= max_tokens, "{about}");
                    match cut.outcome.finish {
                        Finish::Length => {
                            n_closed += usize::from(closed.outcome.finish == Finish::Length);
                            n_cut += usize::from(!is_whole(kind, &request, &cut));
                        }
                        // Ways out are hardly ever the shortest.
                        finish if cut.outcome.generated.len() + 16 <= max_tokens => {
                            let (closed, cut) = ((closed.raw, closed.outcome.finish), (cut.raw, finish));
                            assert_eq!(closed, cut, "{about}");
                        }
                        _ => {}
                    }
                }
            }
        }
        assert!(0 < n_cut && n_cut <= n_closed, "{kind:?}: {n_closed} closed, {n_cut} would be cut");
    }
}

#[test]
fn models_that_open_thinking_themselves_may() {
    // Models whose prompt leaves thinking open to them would have to answer without it.
    let model = text_model(Kind::SmallJson);
    for (thinking, thinks) in [(None, true), (Some(true), true), (Some(false), false)] {
        let request = ChatRequest { thinking, response: two_fields(), ..request() };
        let mut noise = Noise::new(model.tokenizer(), 1);
        noise.script = script("<think>hm</think>");
        let run = run_with(&model, &request, &mut noise, |_| {}).unwrap();
        assert_eq!(run.thinking, if thinks { "hm" } else { "" }, "{thinking:?}: {:?}", run.raw);
        let value: Value = serde_json::from_str(&run.answer).unwrap_or_else(|e| panic!("{:?}: {e}", run.raw));
        assert!(value["a"].is_number());
        // It need not.
        let mut noise = Noise::new(model.tokenizer(), 1);
        noise.script = script("{");
        let run = run_with(&model, &request, &mut noise, |_| {}).unwrap();
        assert!(run.raw.starts_with('{'), "{:?}", run.raw);
    }
}

#[test]
fn answers_can_be_made_on_any_thread() {
    // A server could not share models, or move answers between its threads.
    fn is_shared<T: Send + Sync>() {}
    fn is_moved<T: Send>() {}
    is_shared::<TextModel>();
    is_shared::<GenerateOptions>();
    is_moved::<Generation<'static>>();
    // The vocabulary is prepared once, whoever comes first.
    let model = text_model(Kind::SmallXml);
    std::thread::scope(|scope| {
        for seed in 0..4 {
            let model = &model;
            let request = ChatRequest { response: two_fields(), ..request() };
            scope.spawn(move || {
                let run = run(model, &request, seed);
                assert!(serde_json::from_str::<Value>(&run.answer).is_ok(), "seed {seed}: {:?}", run.answer);
            });
        }
    });
}
