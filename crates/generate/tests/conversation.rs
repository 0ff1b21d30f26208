//! What agents send, prepared for templates that refuse most of it.

mod common;

use generate::{ChatRequest, GenerateError, Message, Prepared, TextModel, Tool, ToolChoice};
use proptest::prelude::*;
use serde_json::{Value, json};

fn messages(json: &Value) -> Vec<Message> {
    serde_json::from_value(json.clone()).unwrap()
}

fn models() -> Vec<(&'static str, TextModel)> {
    common::templates().into_iter().map(|(name, source)| (name, common::text_model(&source))).collect()
}

fn request(json: &Value) -> ChatRequest {
    ChatRequest { messages: messages(json), ..ChatRequest::default() }
}

fn prepare(model: &TextModel, json: &Value) -> Prepared {
    model.prepare(&request(json)).unwrap_or_else(|e| panic!("{e}: {json}"))
}

fn text(model: &TextModel, json: &Value) -> String {
    prepare(model, json).prompt.text
}

fn calls(ids: &[&str]) -> Value {
    let call =
        |id: &&str| json!({ "id": id, "type": "function", "function": { "name": "ls", "arguments": "{}" } });
    ids.iter().map(call).collect()
}

fn assistant(ids: &[&str]) -> Value {
    json!({ "role": "assistant", "content": null, "reasoning_content": "plan", "tool_calls": calls(ids) })
}

fn result(id: &str, text: &str) -> Value {
    json!({ "role": "tool", "tool_call_id": id, "content": text })
}

fn said(role: &str, text: &str) -> Value {
    json!({ "role": role, "content": text })
}

/// Conversations that must give the same prompt as another one: (case, given, as if it had been).
// tidy: long because it is a table.
fn equal_cases() -> Vec<(&'static str, Value, Value)> {
    let user = said("user", "hi");
    let go = said("user", "go");
    vec![
        ("A05", json!([said("developer", "A"), user]), json!([said("system", "A"), user])),
        (
            "T01 leading ones are joined",
            json!([said("system", " A\n"), said("developer", ""), said("system", "B"), user]),
            json!([said("system", "A\n\nB"), user]),
        ),
        (
            "T01 a later one is a turn",
            json!([said("system", "A"), user, said("assistant", "hello"), said("system", "B"), go]),
            json!([said("system", "A"), user, said("assistant", "hello"), said("user", "B"), go]),
        ),
        ("T01 an empty one says nothing", json!([user, said("system", " "), go]), json!([user, go])),
        (
            "T01 among results it joins the last",
            json!([
                user,
                assistant(&["a", "b"]),
                said("system", "X"),
                result("b", "2"),
                said("developer", "Y"),
                result("a", "1"),
                said("system", "Z")
            ]),
            json!([user, assistant(&["a", "b"]), result("a", "1"), result("b", "2\n\nX\n\nY\n\nZ")]),
        ),
        (
            "T02 only results remain",
            json!([said("system", "S"), assistant(&["c1"]), result("c1", "a.txt")]),
            json!([
                said("system", "S"),
                said("user", "Continue."),
                assistant(&["c1"]),
                result("c1", "a.txt")
            ]),
        ),
        (
            "T02 nobody spoke",
            json!([said("system", "S")]),
            json!([said("system", "S"), said("user", "Continue.")]),
        ),
        (
            "T02 a greeting",
            json!([said("assistant", "Hello!"), user]),
            json!([said("user", "Continue."), said("assistant", "Hello!"), user]),
        ),
        (
            "T02 a question that looks like a result",
            json!([said("user", "<tool_response>x</tool_response>")]),
            json!([said("user", "Continue."), said("user", "<tool_response>x</tool_response>")]),
        ),
        (
            "results out of order; what answers nothing stays",
            json!([
                user,
                assistant(&["a", "b", "c"]),
                result("c", "3"),
                result("?", "0"),
                result("a", "1"),
                result("b", "2")
            ]),
            json!([
                user,
                assistant(&["a", "b", "c"]),
                result("a", "1"),
                result("x", "0"),
                result("b", "2"),
                result("c", "3")
            ]),
        ),
        (
            "results are matched within their round",
            json!([
                user,
                assistant(&["a", "b"]),
                result("b", "2"),
                result("a", "1"),
                assistant(&["a", "b"]),
                result("b", "4"),
                result("a", "3")
            ]),
            json!([
                user,
                assistant(&["a", "b"]),
                result("a", "1"),
                result("b", "2"),
                assistant(&["a", "b"]),
                result("a", "3"),
                result("b", "4")
            ]),
        ),
        (
            "the older API's calls",
            json!([user, { "role": "assistant", "function_call": { "name": "ls", "arguments": "{}" }, "reasoning": "plan" },
                { "role": "function", "name": "ls", "content": "1" }]),
            json!([user, assistant(&["a"]), result("a", "1")]),
        ),
        (
            "A07",
            json!([user, assistant(&["a"]), { "role": "tool", "tool_call_id": "a", "content": [{ "type": "text", "text": "{\"t\":" }, { "type": "text", "text": "20}" }] }]),
            json!([user, assistant(&["a"]), result("a", "{\"t\":20}")]),
        ),
        (
            "A07 no result",
            json!([user, assistant(&["a"]), { "role": "tool", "tool_call_id": "a", "content": [] }]),
            json!([user, assistant(&["a"]), result("a", "")]),
        ),
        (
            "A37 both names",
            json!([user, { "role": "assistant", "reasoning": "plan", "reasoning_content": "", "content": "", "tool_calls": calls(&["a"]) }, result("a", "1")]),
            json!([user, assistant(&["a"]), result("a", "1")]),
        ),
        ("A34 an empty start is none", json!([user, { "role": "assistant", "content": " " }]), json!([user])),
    ]
}

#[test]
fn ordinary_traffic_is_prepared() {
    // T01, T02, A05, A07, A37: agents would get the template's errors, or models would miss what the system said.
    for (name, model) in models() {
        for (case, given, expected) in equal_cases() {
            assert_eq!(text(&model, &given), text(&model, &expected), "{case}, template {name}");
        }
    }
}

#[test]
fn missing_content_is_empty_content() {
    // A06: clients differ in how they say "no text", and the prefix would be read again.
    let history = |content: Option<Value>| {
        let mut call = assistant(&["a"]);
        match content {
            Some(content) => call["content"] = content,
            None => drop(call.as_object_mut().unwrap().remove("content")),
        }
        json!([said("user", "hi"), call, result("a", "1")])
    };
    for (name, model) in models() {
        let expected = text(&model, &history(Some(json!(""))));
        for content in [None, Some(Value::Null), Some(json!([]))] {
            assert_eq!(text(&model, &history(content)), expected, "{name}");
        }
    }
}

#[test]
fn thinking_of_a_round_of_calls_is_shown() {
    // A37: in the middle of its work the model would forget why it began, also when the system interrupts.
    let loop_of = |key: &str| {
        let mut call = assistant(&["a"]);
        let thinking = call.as_object_mut().unwrap().remove("reasoning_content").unwrap();
        call[key] = thinking;
        json!([said("user", "hi"), call, result("a", "1"), said("system", "hurry")])
    };
    for (name, model) in models() {
        let prompt = text(&model, &loop_of("reasoning_content"));
        assert!(prompt.contains("<think>\nplan\n</think>"), "{name}: {prompt}");
        assert_eq!(text(&model, &loop_of("reasoning")), prompt);
    }
}

#[test]
fn arguments_may_be_text() {
    // T04: calls would be shown to the model as quoted blobs, or fail the request.
    let history = |arguments: Value| {
        let call = json!([{ "id": "a", "function": { "name": "f", "arguments": arguments } }]);
        json!([said("user", "hi"), { "role": "assistant", "tool_calls": call }, result("a", "1")])
    };
    for (_, model) in models() {
        let object = text(&model, &history(json!({ "path": "a.py", "n": 3 })));
        assert!(object.contains("<parameter=path>\na.py\n</parameter>\n<parameter=n>\n3\n</parameter>\n"));
        assert_eq!(text(&model, &history(json!("{\"path\":\"a.py\",\"n\":3}"))), object);
        let none = text(&model, &history(json!({})));
        assert!([json!(""), json!(" "), Value::Null].into_iter().all(|a| text(&model, &history(a)) == none));
        let raw = prepare(&model, &history(json!("{bad"))).prompt;
        assert!(raw.text.contains("<parameter=arguments>\n{bad\n</parameter>\n"), "{}", raw.text);
        let told = "message 1: the arguments of the call to \"f\" are not a JSON object; kept as one value";
        assert_eq!(raw.warnings, [told]);
    }
}

#[test]
fn booleans_have_one_spelling() {
    // T17: the same call would be spelled anew each turn, and the prefix read again.
    let history = |arguments: Value, n_later: usize| {
        let call = json!([{ "id": "a", "function": { "name": "f", "arguments": arguments } }]);
        let mut history =
            vec![said("user", "hi"), json!({ "role": "assistant", "tool_calls": call }), result("a", "1")];
        history.extend((0..n_later).flat_map(|_| [assistant(&["b"]), result("b", "2")]));
        Value::Array(history)
    };
    for (name, model) in models() {
        let python = ["True", "False", "None"];
        let [yes, no, none] = if name.contains("3.6") { ["true", "false", "null"] } else { python };
        let shown = format!(
            "<parameter=t>\n{yes}\n</parameter>\n<parameter=f>\n{no}\n</parameter>\n<parameter=n>\n{none}\n</parameter>\n\
             <parameter=l>\n[true, null]\n"
        );
        let object = json!({ "t": true, "f": false, "n": null, "l": [true, null] });
        for arguments in [object.clone(), object.to_string().into()] {
            for n_later in 0..3 {
                let prompt = text(&model, &history(arguments.clone(), n_later));
                assert!(prompt.contains(&shown), "{name}: {prompt}");
            }
        }
    }
}

#[test]
fn a_begun_answer_is_continued() {
    // A34: the model would begin anew, think first, or get a text that is not quite what was given.
    let cases =
        ["Red,", "Red, ", "Red,\n\n", "日本 👩‍👩‍👧", "x <|im_", "a <|im_end|> b", "say </think> now", "\u{FDD0}"];
    for (name, model) in models() {
        for given in cases {
            let prepared = prepare(&model, &json!([said("user", "List"), said("assistant", given)]));
            let prompt = &prepared.prompt;
            assert!(
                prompt.text.ends_with(given.rsplit("</think>").next().unwrap()),
                "{name}: {}",
                prompt.text
            );
            assert_eq!(prompt.text.matches("<|im_start|>assistant").count(), 1, "{}", prompt.text);
            assert!(prompt.text.contains("</think>\n\n"), "thinking is over: {}", prompt.text);
            assert_eq!(model.tokenizer().decode(&prompt.ids, false), prompt.text);
            assert!(prepared.output.continues && !prepared.output.thinking_open && !prompt.thinking_open);
            // The question stays; how the answer's turn begins depends on what comes later.
            let settled = model.tokenizer().decode(&prompt.ids[..prepared.n_settled], false);
            assert!(settled == "<|im_start|>user\nList<|im_end|>\n", "{settled:?}");
        }
        // White space at the start is not: templates drop it from history as well.
        let prompt = text(&model, &json!([said("user", "List"), said("assistant", "\n Red")]));
        assert!(prompt.ends_with("</think>\n\nRed"), "{prompt}");
        // Thinking that is over is continued with the answer, calls with the next turn.
        let thought = json!([said("user", "List"), { "role": "assistant", "reasoning": "plan" }]);
        assert!(text(&model, &thought).ends_with("<think>\nplan\n</think>\n\n"));
        let prepared = prepare(&model, &json!([said("user", "List"), assistant(&["a"])]));
        assert!(prepared.prompt.text.ends_with("</tool_call><|im_end|>\n<|im_start|>assistant\n<think>\n"));
        assert!(!prepared.output.continues && prepared.output.thinking_open);
    }
}

/// Every request would be rendered and tokenised twice, the second time to see where the answer opens; or that would be
/// seen at a wrong place.
#[test]
fn a_prompt_is_rendered_once() {
    let turns = "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}";
    let once = "{% if not add_generation_prompt %}{{ raise_exception('rendered again') }}{% endif %}";
    let model = common::text_model(format!("{once}{turns}<|im_start|>assistant").as_bytes());
    let question = said("user", "What is <|im_start|>?");
    let chat = [said("system", "Be brief."), said("user", "Hi"), said("assistant", "Hello."), question];
    for n in [2, 4] {
        let Prepared { prompt, n_settled, .. } = prepare(&model, &json!(chat[..n]));
        assert_eq!(model.tokenizer().decode(&prompt.ids[n_settled..], false), "<|im_start|>assistant");
    }
    // It cannot be seen: no control token begins the messages, the last one is continued, the answer has no opening.
    let plain = "{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}\
                 {% if add_generation_prompt %}assistant:{% endif %}";
    let long = "word ".repeat(100);
    for (source, given, settled) in [
        (plain, json!(chat[..2]), "system: Be brief.\nuser: Hi\n"),
        (turns, json!(chat[..3]), "<|im_start|>user\nHi<|im_end|>\n"),
        (turns, json!([chat[1], chat[2], said("user", &long)]), long.as_str()),
    ] {
        let model = common::text_model(source.as_bytes());
        let Prepared { prompt, n_settled, .. } = prepare(&model, &given);
        let shown = model.tokenizer().decode(&prompt.ids[..n_settled], false);
        assert!(shown.contains(settled), "{shown:?}");
    }
}

/// An agent's session would be over when a tool has read an image: it is in every later request.
#[test]
fn placeholders_stand_for_what_tools_return() {
    let model = common::text_model(&common::data("chat_template.jinja"));
    let image = json!({ "type": "image_url", "image_url": { "url": "data:image/png;base64,AAAA" } });
    for (part, expected) in [
        (image, "[an image, which this model cannot see]"),
        (json!({ "type": "input_image", "image_url": "x" }), "[an image, which this model cannot see]"),
        (json!({ "type": "input_audio" }), "[sound, which this model cannot hear]"),
        (json!({ "type": "video_url" }), "[a video, which this model cannot see]"),
        (json!({ "type": "file", "file": {} }), "[a file, which this model cannot read]"),
        (json!({ "type": "resource" }), "[content that this model cannot read]"),
    ] {
        for role in ["tool", "function"] {
            let parts = json!([{ "type": "text", "text": "here: " }, part]);
            let given = json!([said("user", "x"), { "role": role, "content": parts }]);
            let prepared = prepare(&model, &given);
            let result = format!("<tool_response>\nhere: {expected}\n</tool_response>");
            assert!(prepared.prompt.text.contains(&result), "{}", prepared.prompt.text);
            assert!(!prepared.prompt.text.contains("AAAA"), "{}", prepared.prompt.text);
            let kind = part["type"].as_str().unwrap();
            let told = format!("message 1: content of type {kind} in the result of a tool");
            assert_eq!(prepared.prompt.warnings, [format!("{told}, which this model cannot read")]);
        }
    }
}

#[test]
fn what_cannot_be_prepared_is_named() {
    // A29: an image would be dropped without a word, or a wrong role found by nobody.
    let image = json!([{ "type": "text", "text": "what?" }, { "type": "image_url", "image_url": { "url": "data:" } }]);
    let cases = [
        (json!([said("user", "x"), { "role": "user", "content": image }]), 1, "images are not supported"),
        (json!([{ "role": "user", "content": [{ "type": "input_audio" }] }]), 0, "input_audio"),
        (json!([said("system", "x"), said("user", "x"), said("robot", "x")]), 2, "\"robot\" is not a role"),
        (json!([said("User", "x")]), 0, "is not a role"),
    ];
    let model = common::text_model(&common::data("chat_template.jinja"));
    for (given, expected_idx, words) in cases {
        match model.prepare(&request(&given)) {
            Err(GenerateError::Message { message_idx, why }) => {
                assert!(message_idx == expected_idx && why.contains(words), "{message_idx} {why}");
            }
            other => panic!("{given}: {other:?}"),
        }
    }
    assert!(matches!(model.prepare(&request(&json!([]))), Err(GenerateError::NoMessages)));
    let odd = json!([said("user", "x"), result("nothing", "1")]);
    let told =
        "message 1: a tool's result for the call \"nothing\", which is not among the calls right before it";
    assert_eq!(prepare(&model, &odd).prompt.warnings, [told]);
    let no_text = json!([said("user", "x"), { "role": "tool", "content": [{ "type": "text" }] }]);
    assert!(model.prepare(&request(&no_text)).is_err());
    let error = serde_json::from_value::<Message>(json!({ "role": "user", "content": 7 })).unwrap_err();
    assert_eq!(error.to_string(), "content must be a text or a list of parts");
}

/// Tools as loosely as clients declare them: (given, how it is printed).
fn loose_tools() -> Vec<(Value, Value)> {
    let printed = |function: Value| json!({ "type": "function", "function": function });
    let nothing = json!({ "type": "object", "properties": {} });
    let schema = json!({ "$defs": { "P": { "properties": { "x": {} } } }, "type": "object",
        "properties": { "p": { "$ref": "#/$defs/P" }, "untyped": { "description": null } } });
    let plain = json!({ "name": "f", "description": "d", "parameters": schema });
    vec![
        (
            json!({ "type": "function", "function": { "name": "f" } }),
            printed(json!({ "name": "f", "parameters": nothing })),
        ),
        (
            json!({ "type": "function", "function": { "parameters": {}, "description": null, "name": "f" } }),
            printed(json!({ "name": "f", "parameters": nothing })),
        ),
        (json!({ "type": "function", "function": plain }), printed(plain.clone())),
        (
            json!({ "strict": true, "parameters": schema, "description": "d", "name": "f", "type": "function" }),
            printed(plain.clone()),
        ),
        (
            json!({ "name": "f", "description": "d", "input_schema": schema, "cache_control": { "type": "ephemeral" } }),
            printed(plain.clone()),
        ),
        (
            json!({ "type": "custom", "name": "f", "description": "d", "input_schema": schema }),
            printed(plain),
        ),
    ]
}

#[test]
fn loose_tools_are_declared_in_one_form() {
    // A28: a tool would fail the request, or read differently depending on who declares it.
    for (given, expected) in loose_tools() {
        let tool = Tool::from_json(&given).unwrap();
        assert_eq!(tool.declaration.to_string(), expected.to_string(), "{given}");
    }
    let tools: Vec<Tool> = loose_tools().iter().map(|(given, _)| Tool::from_json(given).unwrap()).collect();
    let tools: Vec<Tool> = tools.into_iter().cycle().take(80).collect();
    for (name, model) in models() {
        let request = ChatRequest { tools: tools.clone(), ..request(&json!([said("user", "hi")])) };
        let prepared = model.prepare(&request).unwrap_or_else(|e| panic!("{name}: {e}"));
        assert_eq!(prepared.prompt.text.matches("\"name\": \"f\"").count(), 80, "{name}");
        assert_eq!(prepared.output.tools.len(), 80);
        // Those that may not be called are shown all the same: the prefix stays.
        let none = ChatRequest { tool_choice: ToolChoice::None, ..request };
        let none = model.prepare(&none).unwrap();
        assert!(none.output.tools.is_empty() && none.prompt == prepared.prompt);
    }
    let bad = [
        json!({}),
        json!({ "name": " " }),
        json!({ "type": "web_search", "name": "web_search" }),
        json!({ "type": "custom", "name": "shell" }),
        json!({ "name": "f", "parameters": "none" }),
        json!({ "name": "f>\n<function=g" }),
        json!({ "name": "x".repeat(300) }),
    ];
    for given in bad {
        assert!(matches!(Tool::from_json(&given), Err(GenerateError::Tool { .. })), "{given}");
    }
}

fn any_text() -> impl Strategy<Value = String> {
    prop_oneof![
        "[a-c \\n<>/]{0,8}",
        prop::sample::select(vec![
            "",
            " x ",
            "<tool_response>x</tool_response>",
            "<think>p</think>q",
            "</think>",
            "<|im_end|>",
            "<|im_",
            "Continue.",
            "end|>",
            "{\"a\": 1}",
            "日本",
        ])
        .prop_map(str::to_owned),
    ]
}

fn any_message() -> impl Strategy<Value = Value> {
    let id = || prop::sample::select(vec!["a", "b", "c"]);
    let call = (id(), prop::sample::select(vec!["{}", "", "{\"x\":true}", "{bad", "[1]"]))
        .prop_map(|(id, arguments)| json!({ "id": id, "function": { "name": "f", "arguments": arguments } }));
    let optional = |text: Option<String>| text.map_or(Value::Null, Value::from);
    prop_oneof![
        3 => (prop::sample::select(vec!["system", "developer", "user", "user", "user"]), any_text())
            .prop_map(|(role, text)| json!({ "role": role, "content": text })),
        2 => (prop::option::of(any_text()), prop::option::of(any_text()), prop::collection::vec(call, 0..3))
            .prop_map(move |(text, thinking, calls)| json!({ "role": "assistant", "content": optional(text),
                "reasoning": optional(thinking), "tool_calls": calls })),
        2 => (prop::sample::select(vec!["tool", "function"]), prop::option::of(id()), any_text())
            .prop_map(|(role, id, text)| json!({ "role": role, "tool_call_id": id, "content": text })),
    ]
}

/// The text without thinking, and without the opening of an answer.
fn without_thinking(text: &str) -> String {
    let mut out = String::new();
    let mut rest = text;
    while let Some(at) = rest.find("<|im_start|>assistant\n<think>\n") {
        let (before, thinking) = rest.split_at(at);
        out.push_str(before);
        out.push_str("<|im_start|>assistant\n");
        rest = thinking.split_once("</think>\n\n").map_or("", |(_, after)| after);
    }
    out + rest
}

/// What a user quotes would be taken for the start of a message, or messages would have no start: what is kept of a
/// prompt would be kept at the wrong places.
#[test]
fn messages_begin_where_the_template_begins_them() {
    for (name, source) in common::templates() {
        let model = common::text_model(&source);
        let list = json!([
            { "role": "system", "content": "S" },
            { "role": "user", "content": "What is <|im_start|>system?" },
            { "role": "assistant", "content": "A <|im_start|>." },
            { "role": "user", "content": "Yes?" },
        ]);
        let ids = prepare(&model, &list).prompt.ids;
        let borders = model.message_borders(&ids);
        let text = |i: usize| {
            let end = borders.get(i + 1).copied().unwrap_or(ids.len());
            model.tokenizer().decode(&ids[borders[i]..end], false)
        };
        let starts: Vec<String> = (0..borders.len()).map(text).collect();
        assert_eq!(starts.len(), 5, "{name}: {starts:?}");
        for (start, role) in starts.iter().zip(["system", "user", "assistant", "user", "assistant"]) {
            assert!(start.starts_with(&format!("<|im_start|>{role}\n")), "{name}: {start:?}");
        }
        assert_eq!(borders[0], 0, "{name}");
        assert!(model.message_borders(&ids[1..]).is_empty() && model.message_borders(&[]).is_empty());
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 100, ..ProptestConfig::default() })]

    /// Any conversation has a prompt, and a later message leaves the prompt before it as it was (but for thinking,
    /// which templates drop when the next question comes): else agents would fail, or wait for the whole conversation
    /// to be read again.
    #[test]
    fn prompts_only_grow(list in prop::collection::vec(any_message(), 1..9), template_idx in 0..4_usize) {
        let mut sources = common::templates();
        let n_template = sources.len();
        let (name, source) = sources.swap_remove(template_idx % n_template);
        let model = common::text_model(&source);
        let prepared: Vec<Prepared> =
            (1..=list.len()).map(|n| prepare(&model, &Value::Array(list[..n].to_vec()))).collect();
        let settled = |p: &Prepared| model.tokenizer().decode(&p.prompt.ids[..p.n_settled], false);
        for (i, (before, after)) in prepared.iter().zip(&prepared[1..]).enumerate() {
            let role = list[i + 1]["role"].as_str().unwrap();
            // Results, and what the system says among them or at the start, are one turn as a whole.
            let joins = !matches!(role, "user" | "assistant");
            if joins {
                continue;
            }
            let (is_reply, is_question) = (role == "assistant", role == "user");
            let (old, new) = (settled(before), after.prompt.text.as_str());
            let is_kept = new.starts_with(&old)
                || is_question && without_thinking(new).starts_with(&without_thinking(&old));
            prop_assert!(is_kept, "{name}, message {}:\n{old}\n---\n{new}", i + 1);
            prop_assert!(!is_reply || new.starts_with(&old));
        }
    }
}
