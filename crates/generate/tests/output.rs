//! What users see of scripted answers: thinking, text and calls of tools.

mod common;

use std::ops::ControlFlow;
use std::sync::Arc;

use generate::{
    AnswerReader, CallEvent, CallFormat, Channel, Event, GenerateOptions, OutputSpec, SamplingParams,
    Tokenizer, Tool, generate,
};
use model::{ModelError, TokenModel};
use proptest::prelude::*;
use serde_json::{Value, json};

/// What an answer is read as.
#[derive(Clone, Debug, Default, PartialEq)]
struct Read {
    thinking: String,
    content: String,
    calls: Vec<Call>,
}

#[derive(Clone, Debug, Default, PartialEq)]
struct Call {
    name: String,
    arguments: String,
    complete: Option<bool>,
}

impl Read {
    fn take(&mut self, event: Event<'_>) {
        match event {
            Event::Text { channel, text } => {
                assert!(!text.is_empty());
                let into = if channel == Channel::Thinking { &mut self.thinking } else { &mut self.content };
                into.push_str(text);
            }
            Event::Call(CallEvent::Begin { index, name }) => {
                assert!(self.calls.iter().all(|call| call.complete.is_some()), "one after another");
                assert_eq!(index, self.calls.len());
                self.calls.push(Call { name: name.to_owned(), ..Call::default() });
            }
            Event::Call(CallEvent::Arguments { index, json }) => {
                assert!(index + 1 == self.calls.len() && !json.is_empty());
                self.calls[index].arguments.push_str(json);
            }
            Event::Call(CallEvent::End { index, complete }) => {
                assert_eq!((index + 1, self.calls[index].complete), (self.calls.len(), None));
                self.calls[index].complete = Some(complete);
            }
            Event::PromptProgress { .. } | Event::Token { .. } => {}
        }
    }

    /// Whatever the model says, clients get calls that have ended and arguments that are JSON objects.
    fn check(&self) {
        for call in &self.calls {
            assert!(call.complete.is_some(), "{call:?}");
            let arguments: Value =
                serde_json::from_str(&call.arguments).unwrap_or_else(|e| panic!("{e}: {call:?}"));
            assert!(arguments.is_object(), "{call:?}");
        }
    }
}

/// A model that says these tokens.
struct Fake {
    answer: Vec<u32>,
    n_fed: usize,
    logits: Vec<f32>,
}

impl TokenModel for Fake {
    fn n_vocab(&self) -> usize {
        self.logits.len()
    }

    fn n_ctx(&self) -> usize {
        usize::MAX
    }

    fn pos(&self) -> usize {
        self.n_fed
    }

    fn feed(
        &mut self,
        ids: &[u32],
        _: &mut dyn FnMut(usize) -> ControlFlow<()>,
    ) -> Result<&[f32], ModelError> {
        self.n_fed += ids.len();
        self.logits.fill(0.0);
        // The prompt is one token.
        self.logits[self.answer[self.n_fed - 1] as usize] = 1.0;
        Ok(&self.logits)
    }
}

/// Reads the answer through the whole path from tokens on.
fn read_tokens(tokenizer: &Tokenizer, ids: &[u32], spec: &OutputSpec) -> Read {
    let stop = tokenizer.token_id("<|im_end|>").unwrap();
    let answer = [ids, &[stop]].concat();
    let mut model = Fake { answer, n_fed: 0, logits: vec![0.0; tokenizer.vocab_size()] };
    let options = GenerateOptions {
        sampling: SamplingParams { temperature: 0.0, ..SamplingParams::default() },
        stop_ids: vec![stop],
        output: spec.clone(),
        ..GenerateOptions::default()
    };
    let mut read = Read::default();
    let outcome = generate(&mut model, tokenizer, &[0], &options, &mut |event| {
        read.take(event);
        ControlFlow::Continue(())
    });
    assert_eq!(outcome.unwrap().generated, ids);
    read.check();
    read
}

/// Reads the answer in these pieces.
fn read_pieces<'a>(pieces: impl IntoIterator<Item = &'a str>, spec: &OutputSpec) -> Read {
    let (mut read, mut reader) = (Read::default(), AnswerReader::new(spec));
    pieces.into_iter().for_each(|piece| reader.push(piece, &mut |event| read.take(event)));
    reader.finish(&mut |event| read.take(event));
    read.check();
    read
}

fn demo() -> Tokenizer {
    Tokenizer::from_bytes(&common::demo_tokenizer_json(), None).unwrap()
}

fn tool(name: &str, properties: Value) -> Tool {
    let parameters = json!({ "type": "object", "properties": properties });
    Tool::from_json(&json!({ "name": name, "parameters": parameters })).unwrap()
}

fn tools() -> Arc<[Tool]> {
    let typed = json!({
        "type": "object",
        "$defs": { "Point": { "type": "object", "properties": { "x": { "type": "integer" } } }, "Loop": { "$ref": "#/$defs/Loop" } },
        "properties": {
            "n": { "type": "integer" }, "x": { "type": "number" }, "ok": { "type": "boolean" },
            "tags": { "type": "array", "items": { "type": "string" } }, "o": { "type": "object" },
            "v": { "type": ["integer", "null"] }, "s": { "type": "string" }, "ns": { "type": "string", "nullable": true },
            "p": { "$ref": "#/$defs/Point" }, "l": { "$ref": "#/$defs/Loop" }, "gone": { "$ref": "#/$defs/None" },
            "u": { "anyOf": [{ "type": "string" }, { "type": "array" }] }, "e": { "enum": ["1", "null", "a"] },
            "m": { "enum": ["7", 7, null] }, "c": { "const": 3 }, "any": {},
            "one": { "oneOf": [{ "type": "integer" }, { "type": "string" }] },
            "all": { "allOf": [{ "type": ["string", "integer"] }, { "type": "integer" }] },
        },
    });
    [
        Tool::from_json(&json!({ "name": "ls" })).unwrap(),
        tool("get_weather", json!({ "city": { "type": "string" } })),
        tool("write", json!({ "path": { "type": "string" }, "content": { "type": "string" } })),
        Tool::from_json(&json!({ "name": "typed", "parameters": typed })).unwrap(),
    ]
    .into()
}

fn spec() -> OutputSpec {
    OutputSpec { tools: tools(), ..OutputSpec::default() }
}

/// A case: the answer's text, and what it is read as.
struct Case {
    name: &'static str,
    text: String,
    thinking_open: bool,
    expected: Read,
}

fn call(name: &str, arguments: &str) -> Call {
    Call { name: name.into(), arguments: arguments.into(), complete: Some(true) }
}

fn cut(name: &str, arguments: &str) -> Call {
    Call { complete: Some(false), ..call(name, arguments) }
}

fn case(name: &'static str, text: &str, content: &str, calls: &[Call]) -> Case {
    let expected = Read { content: content.into(), calls: calls.to_vec(), ..Read::default() };
    Case { name, text: text.into(), thinking_open: false, expected }
}

fn thought(name: &'static str, text: &str, thinking: &str, content: &str, calls: &[Call]) -> Case {
    let mut case = case(name, text, content, calls);
    (case.thinking_open, case.expected.thinking) = (true, thinking.into());
    case
}

/// A call of `typed` with one parameter.
fn typed(name: &'static str, key: &str, value: &str, expected: &str) -> Case {
    let text = format!(
        "<tool_call>\n<function=typed>\n<parameter={key}>\n{value}\n</parameter>\n</function>\n</tool_call>"
    );
    case(name, &text, "", &[call("typed", &format!("{{\"{key}\":{expected}}}"))])
}

fn write_call(content: &str) -> String {
    format!(
        "<tool_call>\n<function=write>\n<parameter=content>\n{content}\n</parameter>\n</function>\n</tool_call>"
    )
}

/// A value that must arrive byte for byte.
fn exact(name: &'static str, content: &str) -> Case {
    let arguments = json!({ "content": content }).to_string();
    case(name, &write_call(content), "", &[call("write", &arguments)])
}

const LS: &str = "<tool_call>\n<function=ls>\n</function>\n</tool_call>";
const PARIS: &str =
    "<tool_call>\n<function=get_weather>\n<parameter=city>\nParis\n</parameter>\n</function>\n</tool_call>";

fn ls() -> Call {
    call("ls", "{}")
}

fn city(name: &str) -> Call {
    call("get_weather", &json!({ "city": name }).to_string())
}

/// Calls as they should be, and text around them.
// tidy: long because it is a table.
fn plain_cases() -> Vec<Case> {
    let oslo = PARIS.replace("Paris", "Oslo");
    let both = [city("Paris"), city("Oslo")];
    vec![
        case("T05 tags", PARIS, "", &[city("Paris")]),
        case(
            "T05 JSON",
            "<tool_call>\n{\"name\":\"get_weather\",\"arguments\":{\"city\":\"Paris\"}}\n</tool_call>",
            "",
            &[city("Paris")],
        ),
        case("T05 text before", &format!("Let me check.\n\n{PARIS}"), "Let me check.", &[city("Paris")]),
        case("A33", "Paris.", "Paris.", &[]),
        case("A33 white space is the answer's", "\n Paris. \n", "\n Paris. \n", &[]),
        case("A33 nothing", "", "", &[]),
        thought(
            "thinking, answer, call",
            &format!("plan\n</think>\n\nSure.\n\n{LS}"),
            "plan",
            "Sure.",
            &[ls()],
        ),
        thought("thinking, call", &format!("plan\n</think>\n\n{LS}\n"), "plan", "", &[ls()]),
        case("thinking that the model opens", &format!("<think>\nplan\n</think>\n\n{LS}"), "", &[ls()]),
        case("T22 three calls", &format!("{PARIS}\n{oslo}\n{LS}"), "", &[&both[..], &[ls()]].concat()),
        case("T22 text between", &format!("A.\n\n{PARIS}\nB.\n{oslo}\nC."), "A.\nB.\nC.", &both),
        case("T22 text between only", &format!("{PARIS}\nB.\n\n{oslo}"), "B.", &both),
        case("T22 no white space at all", &format!("A.\n{PARIS}B.{oslo}"), "A.\nB.", &both),
        case(
            "two calls in one envelope",
            "<tool_call>\n<function=ls>\n</function>\n<function=ls>\n</function>\n</tool_call>",
            "",
            &[ls(), ls()],
        ),
        case(
            "T24",
            &format!("日本 👩‍👩‍👧 é{}", write_call("日本 👩‍👩‍👧 é")),
            "日本 👩‍👩‍👧 é",
            &[call("write", "{\"content\":\"日本 👩‍👩‍👧 é\"}")],
        ),
        case("T32 code", "if (i < n && a <b) return <tool>", "if (i < n && a <b) return <tool>", &[]),
        case("T32 a tag that never ends", "see <tool_", "see <tool_", &[]),
        case("T32 an open one", "<tool_call>\n", "<tool_call>\n", &[]),
        case("T32 almost a tool", "<function=lss>\n</function>", "<function=lss>\n</function>", &[]),
        case(
            "tags are named",
            "Use `<tool_call>` or <function=ls>.",
            "Use `<tool_call>` or <function=ls>.",
            &[],
        ),
        case(
            "an undeclared tool",
            "<tool_call>\n<function=rm>\n<parameter=x>\n1\n</parameter>\n</function>\n</tool_call>",
            "<tool_call>\n<function=rm>\n<parameter=x>\n1\n</parameter>\n</function>\n</tool_call>",
            &[],
        ),
        case(
            "an undeclared tool in JSON",
            "x <tool_call>{\"name\":\"rm\",\"arguments\":{}}</tool_call>",
            "x <tool_call>{\"name\":\"rm\",\"arguments\":{}}</tool_call>",
            &[],
        ),
        case(
            "an inline value",
            "<tool_call><function=get_weather><parameter=city>Paris</parameter></function></tool_call>",
            "",
            &[city("Paris")],
        ),
        case(
            "quoted names",
            "<tool_call>\n<function=\"get_weather\">\n<parameter name=\"city\">\nParis\n</parameter>\n</function>\n</tool_call>",
            "",
            &[city("Paris")],
        ),
        case(
            "an empty value",
            "<tool_call>\n<function=get_weather>\n<parameter=city>\n\n</parameter>\n</function>\n</tool_call>",
            "",
            &[city("")],
        ),
        case(
            "an empty value, short",
            "<tool_call>\n<function=get_weather>\n<parameter=city>\n</parameter>\n</function>\n</tool_call>",
            "",
            &[city("")],
        ),
        case(
            "an odd key",
            "<tool_call>\n<function=ls>\n<parameter=a\"\\b>\nx\n</parameter>\n</function>\n</tool_call>",
            "",
            &[call("ls", r#"{"a\"\\b":"x"}"#)],
        ),
    ]
}

/// Calls that are not quite right.
// tidy: long because it is a table.
fn broken_cases() -> Vec<Case> {
    vec![
        case(
            "T06",
            "Let me check.\n<function=get_weather>\n<parameter=city>\nParis\n</parameter>\n</function>\n</tool_call>",
            "Let me check.",
            &[city("Paris")],
        ),
        case("T06 indented, at the start", "  <function=ls>\n</function>", "", &[ls()]),
        case(
            "T06 not at the start of a line",
            "so <function=ls>\n</function>\n</tool_call>",
            "so <function=ls>\n</function>\n</tool_call>",
            &[],
        ),
        case(
            "T06 undeclared",
            "<function=rm>\n</function>\n</tool_call>",
            "<function=rm>\n</function>\n</tool_call>",
            &[],
        ),
        case(
            "T08",
            "<tool_call>\n<function=write>\n<parameter=path>\na.txt\n</parameter>\n<parameter=content>\nhello\n</function>\n</tool_call>",
            "",
            &[call("write", r#"{"path":"a.txt","content":"hello"}"#)],
        ),
        case(
            "T08 before another parameter",
            "<tool_call>\n<function=write>\n<parameter=path>\na.txt\n<parameter=content>\nhello\n</parameter>\n</function>\n</tool_call>",
            "",
            &[call("write", r#"{"path":"a.txt","content":"hello"}"#)],
        ),
        case(
            "T08 nothing closed but the envelope",
            "<tool_call>\n<function=get_weather>\n<parameter=city>\nParis\n</tool_call>",
            "",
            &[city("Paris")],
        ),
        case(
            "T09 stray tags",
            "Answer is 4.\n</parameter>\n</tool_call>\nBye.",
            "Answer is 4.\n</parameter>\n</tool_call>\nBye.",
            &[],
        ),
        case(
            "T09 the function is not closed",
            "<tool_call>\n<function=ls>\n</tool_call> text",
            "text",
            &[ls()],
        ),
        case(
            "T09 words between parameters",
            "<tool_call>\n<function=get_weather>\nwell then\n<parameter=city>\nParis\n</parameter>\n</parameter>\n</function>\n</tool_call>",
            "well then",
            &[city("Paris")],
        ),
        case("T39 the envelope is not closed", "ok\n<tool_call>\n<function=ls>\n</function>", "ok", &[ls()]),
        case(
            "T39 nothing is closed",
            "<tool_call>\n<function=get_weather>\n<parameter=city>\nParis\n</parameter>\n",
            "",
            &[cut("get_weather", r#"{"city":"Paris"}"#)],
        ),
        case("the envelope is closed twice", &format!("{LS}\n</tool_call>\nok"), "</tool_call>\nok", &[ls()]),
        case(
            "the envelope is opened twice",
            "<tool_call>\n<tool_call>\n<function=ls>\n</function>\n</tool_call>",
            "<tool_call>",
            &[ls()],
        ),
        case(
            "the next call begins too early",
            &format!("<tool_call>\n<function=ls>\n{PARIS}"),
            "",
            &[ls(), city("Paris")],
        ),
        thought("T10", &format!("I should list files.\n{LS}"), "I should list files.", "", &[ls()]),
        thought(
            "T10 JSON",
            "I should.\n<tool_call>\n{\"name\": \"ls\"}\n</tool_call>",
            "I should.",
            "",
            &[ls()],
        ),
        thought("T10 thinking goes on", &format!("A.\n{LS}\nB.\n</think>\n\nC."), "A.\nB.", "C.", &[ls()]),
        thought(
            "T10 a tag of thinking in a value",
            &format!("A.\n{}\n</think>\n\nC.", write_call("x</think>y")),
            "A.",
            "C.",
            &[call("write", r#"{"content":"x</think>y"}"#)],
        ),
        thought(
            "T10 only named",
            "a <tool_call>\n<function=ls>\nand so on\n</think>\n\nC.",
            "a <tool_call>\n<function=ls>\nand so on",
            "C.",
            &[],
        ),
        thought(
            "T10 not a call",
            "a\n<tool_call> is a tag\n</think>\n\nC.",
            "a\n<tool_call> is a tag",
            "C.",
            &[],
        ),
        case(
            "T21 in a value",
            "<tool_call>\n<function=write>\n<parameter=path>\na\n</parameter>\n<parameter=content>\nhalf",
            "",
            &[cut("write", r#"{"path":"a","content":"half"}"#)],
        ),
        case(
            "T21 in a tag",
            "<tool_call>\n<function=write>\n<parameter=content>\nhalf\n</param",
            "",
            &[cut("write", r#"{"content":"half"}"#)],
        ),
        case(
            "T21 in a list",
            "<tool_call>\n<function=typed>\n<parameter=tags>\n[\"a\", \"b",
            "",
            &[cut("typed", r#"{"tags":["a","b"]}"#)],
        ),
        case(
            "T21 before a parameter",
            "<tool_call>\n<function=write>\n<param",
            "<param",
            &[cut("write", "{}")],
        ),
        case(
            "T21 in JSON",
            "<tool_call>\n{\"name\": \"write\", \"arguments\": {\"content\": \"ha\\",
            "",
            &[cut("write", r#"{"content":"ha"}"#)],
        ),
    ]
}

/// The form of the older models.
// tidy: long because it is a table.
fn json_cases() -> Vec<Case> {
    let ls_text = "{\"name\": \"ls\", \"arguments\": {}}";
    let envelope = |text: &str| format!("<tool_call>\n{text}\n</tool_call>");
    vec![
        case(
            "a list",
            &envelope(&format!(
                "[{ls_text}, {{\"arguments\": {{\"city\": \"Paris\"}}, \"name\": \"get_weather\"}},\n{ls_text}]"
            )),
            "",
            &[ls(), city("Paris"), ls()],
        ),
        case(
            "arguments first",
            &envelope("{\"arguments\": {\"city\": \"Paris\"}, \"name\": \"get_weather\"}"),
            "",
            &[city("Paris")],
        ),
        case(
            "arguments as text",
            &envelope("{\"name\": \"get_weather\", \"arguments\": \"{\\\"city\\\": \\\"Paris\\\"}\"}"),
            "",
            &[city("Paris")],
        ),
        case(
            "parameters",
            &envelope("{\"name\": \"get_weather\", \"parameters\": {\"city\": \"Paris\"}}"),
            "",
            &[city("Paris")],
        ),
        case("no arguments", &envelope("{\"name\": \"ls\"}"), "", &[ls()]),
        case("more keys", &envelope("{\"name\": \"ls\", \"arguments\": {}, \"id\": \"x\", }"), "", &[ls()]),
        case(
            "no object",
            &envelope("{\"name\": \"ls\", \"arguments\": [1]}"),
            &envelope("{\"name\": \"ls\", \"arguments\": [1]}"),
            &[],
        ),
        case(
            "wrapped",
            &envelope("{\"type\": \"function\", \"function\": {\"name\": \"ls\", \"arguments\": {}}}"),
            "",
            &[ls()],
        ),
        case(
            "Python's spelling",
            &envelope("{\"name\": \"typed\", \"arguments\": {'ok': True, \"v\": None, \"tags\": ['a',],}}"),
            "",
            &[call("typed", r#"{"ok":true,"v":null,"tags":["a"]}"#)],
        ),
        case(
            "a line break in a text",
            &envelope("{\"name\": \"write\", \"arguments\": {\"content\": \"a\n\tb\"}}"),
            "",
            &[call("write", r#"{"content":"a\n\tb"}"#)],
        ),
        case(
            "tags in a text",
            &envelope("{\"name\": \"write\", \"arguments\": {\"content\": \"</tool_call> }}\"}}"),
            "",
            &[call("write", r#"{"content":"</tool_call> }}"}"#)],
        ),
        case("not closed", "<tool_call>\n{\"name\": \"ls\", \"arguments\": {}}", "", &[ls()]),
        case(
            "the object is not closed",
            "<tool_call>\n{\"name\": \"ls\", \"arguments\": {}\n</tool_call>",
            "",
            &[ls()],
        ),
        case(
            "breaks off",
            &envelope("{\"name\": \"write\", \"arguments\": {\"content\": oops}}"),
            "oops}}",
            &[cut("write", r#"{"content":null}"#)],
        ),
        case("not JSON", &envelope("{name: ls}"), &envelope("{name: ls}"), &[]),
        case("an empty list", &envelope("[]"), &envelope("[]"), &[]),
        case(
            "two envelopes",
            &format!("A\n{}\nB\n{}", envelope(ls_text), envelope(ls_text)),
            "A\nB",
            &[ls(), ls()],
        ),
    ]
}

/// Values and their types.
fn value_cases() -> Vec<Case> {
    vec![
        exact("T12", "    def f():\n        return 1\n"),
        exact("T12 blank lines", "\n\na\n\n\n"),
        exact("T12 white space only", " \t"),
        exact("T12 other line breaks", "a\r\nb\r\n"),
        exact("T14", "<a href=\"x?a=1&amp;b=2\">&lt;ok&gt;</a>"),
        exact("T19 JSON", "{\"a\": 1}"),
        exact("T19 a number", "01234"),
        exact("T19 constants", "None"),
        exact(
            "quoted tags",
            "a </parameter> b\n</parameter>\nc </function> d\n</function>\ne\n</tool_call>\n<parameter=x>\ny",
        ),
        exact("quoted tags of calls", "say <tool_call> and <function=ls>\n"),
        exact("control characters", "\u{1}\u{7f}\\\"/"),
        exact("part of a tag", "a\n</para\n</parametre>\n<"),
        typed("T15", "n", "130", "130"),
        typed("T15", "x", "1.5", "1.5"),
        typed("T15", "ok", "true", "true"),
        typed("T15", "tags", "[\"a\",\"b\"]", "[\"a\",\"b\"]"),
        typed("T15 an object", "o", "{\"a\": {\"b\": [1, 2.50]}}", "{\"a\":{\"b\":[1,2.50]}}"),
        typed("T15 digits are kept", "x", "1e2", "1e2"),
        typed("T15 a whole number", "n", "3.0", "3"),
        typed("T15 white space", "n", " 7 ", "7"),
        typed("T15 does not fit", "n", "seven", "\"seven\""),
        typed("T15 does not fit either", "n", "1.5", "\"1.5\""),
        typed("T17", "ok", "True", "true"),
        typed("T17", "v", "None", "null"),
        typed("T17", "v", "null", "null"),
        typed("T17 in a list", "tags", "['a', None]", "[\"a\",null]"),
        typed("T17 a text that may be null", "ns", "None", "null"),
        typed("T17 a text that is not null", "ns", "None of them", "\"None of them\""),
        typed("T19", "s", "null", "\"null\""),
        typed("a reference", "p", "{\"x\": 1}", "{\"x\":1}"),
        typed("a reference to itself", "l", "x", "\"x\""),
        typed("a reference to nothing", "gone", "7", "7"),
        typed("text or list", "u", "[\"a\"]", "[\"a\"]"),
        typed("text or list", "u", "[a]", "\"[a]\""),
        typed("text or list", "u", "7", "\"7\""),
        typed("a word", "e", "1", "\"1\""),
        typed("a word", "e", "null", "\"null\""),
        typed("a word or a number", "m", "7", "\"7\""),
        typed("a word or null", "m", "None", "null"),
        typed("a constant", "c", "3", "3"),
        typed("one of", "one", "12", "12"),
        typed("one of", "one", "012", "\"012\""),
        typed("all of", "all", "12", "12"),
        typed("untyped", "any", "{\"a\": 1}", "{\"a\":1}"),
        typed("untyped", "any", "True", "true"),
        typed("untyped", "any", "a b", "\"a b\""),
        typed("untyped", "any", "{'a': 1}", "\"{'a': 1}\""),
        typed("untyped", "any", "\"a\"", "\"\\\"a\\\"\""),
        typed("undeclared", "unknown", "-1.5", "-1.5"),
    ]
}

fn cases() -> Vec<Case> {
    let mut cases = plain_cases();
    cases.extend(broken_cases());
    cases.extend(json_cases());
    cases.extend(value_cases());
    for case in &mut cases {
        if case.name == "thinking that the model opens" {
            case.expected.thinking = "plan".into();
        }
    }
    cases
}

#[test]
fn answers_are_read_the_same_however_they_come() {
    // Calls would be shown as text, or made though nobody declared them; streams would differ from whole answers.
    let (small, demo) = (common::small(), demo());
    let mut wrong = Vec::new();
    for Case { name, text, thinking_open, expected } in cases() {
        for call_format in [CallFormat::Xml, CallFormat::Json] {
            let spec = OutputSpec { thinking_open, call_format, ..spec() };
            let natural = demo.encode(&text).unwrap();
            let bytes: Vec<u32> = text.bytes().map(u32::from).collect();
            let reads = [
                ("whole", read_pieces([text.as_str()], &spec)),
                ("tokens", read_tokens(&demo, &natural, &spec)),
                ("bytes", read_tokens(&small, &bytes, &spec)),
            ];
            let differ = reads.into_iter().filter(|(_, read)| *read != expected);
            wrong.extend(
                differ.map(|(how, read)| format!("{name}, {how}: {text:?}\n{read:#?}\nnot {expected:#?}")),
            );
        }
    }
    assert!(wrong.is_empty(), "{} of the readings are wrong:\n{}", wrong.len(), wrong.join("\n"));
}

#[test]
fn nothing_is_a_call_without_tools() {
    // Text about calls would vanish from answers of requests that have no tools.
    for Case { name, text, .. } in cases() {
        let read = read_pieces([text.as_str()], &OutputSpec::default());
        let text = text.strip_prefix("<think>\nplan\n</think>\n\n").unwrap_or(&text);
        assert_eq!((read.content.as_str(), read.calls.len()), (text, 0), "{name}");
    }
}

#[test]
fn continued_answers_keep_their_start() {
    // A34: the space after "Red," would be lost, or a tag taken for thinking.
    let spec = OutputSpec { continues: true, ..spec() };
    for text in ["\n\n blue", "<think>x</think>", " a</think>\n\nb", "<function=ls>\n</function>"] {
        let read = read_pieces([text], &spec);
        assert_eq!(read, Read { content: text.into(), ..Read::default() });
    }
    assert_eq!(read_pieces(["\n", LS], &spec).calls, [ls()]);
}

#[test]
fn long_texts_stream() {
    // T20: minutes of silence while a file is written.
    let line = "let x = 1;\n";
    let starts = [
        "<tool_call>\n<function=write>\n<parameter=content>\n".to_owned(),
        "<tool_call>\n{\"name\": \"write\", \"arguments\": {\"content\": \"".to_owned(),
        // Text or null.
        "<tool_call>\n<function=typed>\n<parameter=ns>\n".to_owned(),
        "<tool_call>\n<function=typed>\n<parameter=any>\n".to_owned(),
    ];
    for start in starts {
        let (mut read, spec) = (Read::default(), spec());
        let mut reader = AnswerReader::new(&spec);
        reader.push(&start, &mut |event| read.take(event));
        for n_line in 1..=5000 {
            reader.push(line, &mut |event| read.take(event));
            let n_shown = read.calls[0].arguments.matches("let x = 1;").count();
            if n_line < 5 || n_line % 1000 == 0 {
                assert_eq!(n_shown, n_line, "{start}");
            }
        }
    }
}

/// Answers made of tags, of pieces that look like them, and of well-formed calls that were damaged.
fn any_answer() -> impl Strategy<Value = String> {
    let texts: Vec<String> = cases().into_iter().map(|case| case.text).collect();
    let pieces = prop::sample::select(vec![
        "<tool_call>",
        "</tool_call>",
        "<function=ls>",
        "<function=typed>",
        "<function=rm>",
        "</function>",
        "<parameter=n>",
        "<parameter=s>",
        "</parameter>",
        "<think>",
        "</think>",
        "\n",
        "\n\n",
        " ",
        "<",
        "</",
        "a",
        "7",
        "{",
        "}",
        "[",
        "]",
        "\"",
        "\\",
        "{\"name\": \"ls\", \"arguments\": {",
        "\"name\"",
        ":",
        ",",
        "日",
        "<tool_",
        ">",
        "'",
        "\\ud83d",
        "null",
        "<function=write>\n<parameter=content>\n",
    ]);
    let random = prop::collection::vec(pieces, 0..24).prop_map(|pieces| pieces.concat());
    let damaged =
        (prop::sample::select(texts), any::<prop::sample::Index>(), any::<prop::sample::Index>(), 0..4_usize)
            .prop_map(|(text, a, b, kind)| {
                damage(&text, a.index(text.len() + 1), b.index(text.len() + 1), kind)
            });
    prop_oneof![random, damaged.clone(), (damaged.clone(), damaged).prop_map(|(a, b)| format!("{a}\n{b}"))]
}

/// Drops, doubles or truncates a part that goes from tag to tag, or anything.
fn damage(text: &str, a: usize, b: usize, kind: usize) -> String {
    let border = |at: usize, is_tag: bool| {
        let at = text.floor_char_boundary(at);
        if is_tag { text[at..].find('<').map_or(text.len(), |n| at + n) } else { at }
    };
    let (a, b) = (border(a, kind != 3), border(b, kind != 3));
    let (a, b) = (a.min(b), a.max(b));
    match kind {
        0 | 3 => format!("{}{}", &text[..a], &text[b..]),
        1 => format!("{}{}{}", &text[..b], &text[a..b], &text[b..]),
        _ => text[..b].to_owned(),
    }
}

/// A part of a value. Tags that a call could end with are followed by something else.
fn any_piece() -> impl Strategy<Value = String> {
    let quoted = vec![
        "</parameter>x",
        "</parameter>\n<",
        "</function>y",
        "</tool_call>z",
        "<parameter=content>",
        "<function=ls>",
        "<tool_call>",
        "<think>",
        "</think>",
        "</param",
        "\n",
    ];
    prop_oneof!["[a-z\"\\\\\n\t é日<>/&;{}\\[\\]]", prop::sample::select(quoted).prop_map(str::to_owned)]
}

/// Letters and digits of the text, outside of anything that looks like a tag.
fn substance(text: &str) -> String {
    text.chars().filter(|c| c.is_alphanumeric()).collect()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1000, ..ProptestConfig::default() })]

    /// No answer breaks the reader, gives calls that are not JSON, or reads differently in pieces.
    #[test]
    fn any_answer_is_read(text in any_answer(), thinking_open: bool, continues: bool, cut: prop::sample::Index) {
        let spec = OutputSpec { thinking_open, continues, ..spec() };
        let whole = read_pieces([text.as_str()], &spec);
        let chars: Vec<String> = text.chars().map(String::from).collect();
        prop_assert_eq!(&read_pieces(chars.iter().map(String::as_str), &spec), &whole);
        let at = text.floor_char_boundary(cut.index(text.len() + 1));
        prop_assert_eq!(&read_pieces([&text[..at], &text[at..]], &spec), &whole);
        // Without a call, nothing is lost but the tags of thinking.
        if whole.calls.is_empty() {
            let shown = substance(&format!("{}{}", whole.thinking, whole.content));
            let rest = substance(&text.replace("<think>", "").replace("</think>", ""));
            prop_assert_eq!(substance(&shown.replace("think", "")), rest.replace("think", ""));
        }
        // With one, everything is in it or around it. (Calls in JSON may say more than is passed on.)
        if !text.contains(['{', '[']) {
            let n_mark = |text: &str| text.matches('日').count();
            let in_calls: usize = whole.calls.iter().map(|call| n_mark(&call.arguments)).sum();
            prop_assert_eq!(n_mark(&whole.thinking) + n_mark(&whole.content) + in_calls, n_mark(&text));
        }
    }

    /// What the model says between, before and after calls is shown, in order.
    #[test]
    fn text_around_calls_is_kept(texts in prop::collection::vec("[a-z<>/ \n]{0,12}", 1..5)) {
        let answer = texts.join(LS);
        let read = read_pieces([answer.as_str()], &spec());
        prop_assert_eq!(read.calls.len(), texts.len() - 1);
        let words = |text: &str| text.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
        let all: String = words(&texts.join(" ")).concat();
        prop_assert_eq!(words(&read.content).concat(), all);
    }

    /// An opening that is repeated without end is read like any other text.
    #[test]
    fn repeated_openings_are_read(n in 1..400_usize, opening in prop::sample::select(vec![
        "<tool_call>{\"a\": \"", "<tool_call>", "<function=ls>\n", "<tool_call>\n<function=ls>\n<parameter=n>\n", "<think>",
        "\n", "{\"name\": \"ls\", \"arguments\": {", "<tool_call>[", "</parameter>\n", "<tool_call>{\"name\": \"ls\", \"arguments\": {",
    ])) {
        let text = opening.repeat(n);
        let spec = spec();
        prop_assert_eq!(read_pieces(text.split_inclusive('>'), &spec), read_pieces([text.as_str()], &spec));
    }

    /// Any text comes back byte for byte, however it is cut, also one that quotes tags.
    #[test]
    fn any_value_is_exact(pieces in prop::collection::vec(any_piece(), 0..30), cut: prop::sample::Index) {
        let content = pieces.concat();
        let text = write_call(&content);
        let at = text.floor_char_boundary(cut.index(text.len() + 1));
        let read = read_pieces([&text[..at], &text[at..]], &spec());
        let arguments: Value = serde_json::from_str(&read.calls[0].arguments).unwrap();
        prop_assert_eq!(arguments["content"].as_str(), Some(content.as_str()));
        prop_assert_eq!((read.calls.len(), read.calls[0].complete), (1, Some(true)));
    }
}
