//! Any text as a model's answer: it is read the same whole and in pieces, and calls have arguments that are JSON.
#![no_main]

use generate::{AnswerReader, CallEvent, Channel, Event, OutputSpec, Tool};
use libfuzzer_sys::fuzz_target;
use serde_json::{Value, json};

/// Thinking, text, and name and arguments of each call.
type Read = (String, String, Vec<(String, String)>);

fn read<'a>(pieces: impl Iterator<Item = &'a str>, spec: &OutputSpec) -> Read {
    let mut read = Read::default();
    let (thinking, content, calls) = (&mut read.0, &mut read.1, &mut read.2);
    let mut take = |event: Event<'_>| match event {
        Event::Text { channel: Channel::Thinking, text } => thinking.push_str(text),
        Event::Text { channel: Channel::Answer, text } => content.push_str(text),
        Event::Call(CallEvent::Begin { name, .. }) => calls.push((name.to_owned(), String::new())),
        Event::Call(CallEvent::Arguments { index, json }) => calls[index].1.push_str(json),
        Event::Call(CallEvent::End { index, .. }) => {
            assert!(serde_json::from_str::<Value>(&calls[index].1).is_ok_and(|arguments| arguments.is_object()));
        }
        Event::PromptProgress { .. } | Event::Token { .. } => {}
    };
    let mut reader = AnswerReader::new(spec);
    pieces.for_each(|piece| reader.push(piece, &mut take));
    reader.finish(&mut take);
    read
}

fuzz_target!(|input: (bool, usize, &str)| {
    let (thinking_open, at, text) = input;
    let tool = |name: &str, properties: Value| {
        let schema = json!({ "type": "object", "properties": properties });
        Tool::from_json(&json!({ "name": name, "parameters": schema })).expect("the tools are right")
    };
    let a = tool("a", json!({ "s": { "type": "string" }, "n": { "type": "integer" }, "l": { "type": "array" } }));
    let spec = OutputSpec { thinking_open, tools: [a, tool("b", json!({}))].into(), ..OutputSpec::default() };
    let whole = read([text].into_iter(), &spec);
    let at = text.floor_char_boundary(at % (text.len() + 1));
    assert_eq!(read([&text[..at], &text[at..]].into_iter(), &spec), whole);
    let ends = text.char_indices().map(|(at, c)| &text[at..at + c.len_utf8()]);
    assert_eq!(read(ends, &spec), whole);
});
