//! `/v1/chat/completions`: each case whole, in natural chunks, and in single characters.

use serde_json::{Value, json};

use crate::scripted::Script;
use crate::support::{Reply, Server, Setup, with};

/// What a client puts together from an answer, however it comes.
#[derive(Debug, Default, PartialEq)]
struct Seen {
    content: String,
    reasoning: String,
    /// Names and arguments.
    calls: Vec<(String, String)>,
    finish_reason: String,
    usage: Value,
}

fn whole(reply: &Reply) -> Seen {
    assert_eq!(reply.status, 200, "{}", reply.body);
    let body = reply.json();
    let choice = &body["choices"][0];
    let message = &choice["message"];
    assert_eq!((&body["object"], &message["role"]), (&json!("chat.completion"), &json!("assistant")));
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let call = |call: &Value| {
        assert_eq!(call["type"], "function");
        assert!(call["id"].as_str().is_some_and(|id| id.starts_with("call_")));
        (text(&call["function"]["name"]), text(&call["function"]["arguments"]))
    };
    Seen {
        content: text(&message["content"]),
        reasoning: text(&message["reasoning_content"]),
        calls: message["tool_calls"].as_array().into_iter().flatten().map(call).collect(),
        finish_reason: text(&choice["finish_reason"]),
        usage: body["usage"].clone(),
    }
}

/// Puts a stream together, and checks the shape of each chunk as strict SDKs do (A27).
fn streamed(reply: &Reply) -> Seen {
    assert_eq!(reply.status, 200, "{}", reply.body);
    let (mut seen, mut n_role, mut n_finish) = (Seen::default(), 0, 0);
    let events = reply.events();
    for event in &events {
        assert_eq!(event["object"], "chat.completion.chunk");
        assert_eq!((&event["id"], &event["created"]), (&events[0]["id"], &events[0]["created"]));
        if event["usage"].is_object() {
            assert_eq!(event["choices"], json!([]));
            seen.usage = event["usage"].clone();
            continue;
        }
        let choice = &event["choices"][0];
        let delta = choice["delta"].as_object().expect("a delta");
        n_role += usize::from(delta.contains_key("role"));
        assert!(delta.values().all(|value| !value.is_null()), "no null: {event}");
        seen.content += delta.get("content").and_then(Value::as_str).unwrap_or_default();
        seen.reasoning += delta.get("reasoning_content").and_then(Value::as_str).unwrap_or_default();
        for piece in delta.get("tool_calls").and_then(Value::as_array).into_iter().flatten() {
            let index = piece["index"].as_u64().unwrap() as usize;
            if piece.get("id").is_some() {
                assert_eq!(index, seen.calls.len(), "calls come in order");
                seen.calls.push((piece["function"]["name"].as_str().unwrap().into(), String::new()));
            } else {
                assert!(piece["function"].get("name").is_none(), "the name comes once: {event}");
            }
            seen.calls[index].1 += piece["function"]["arguments"].as_str().unwrap();
        }
        if let Some(reason) = choice["finish_reason"].as_str() {
            n_finish += 1;
            assert!(event["timings"].is_object(), "the last chunk has timings");
            seen.finish_reason = reason.into();
        }
    }
    assert_eq!((n_role, n_finish), (1, 1), "{}", reply.body);
    seen
}

/// The same answer three ways.
async fn three_ways(text: &str, body: &Value) -> Seen {
    let scripts = [("[text]", Script::Text(text.into())), ("[chars]", Script::Characters(text.into()))];
    let server = Setup::new(&scripts).start();
    let ask = |key: &str| with(&json!({ "messages": [{ "role": "user", "content": key }] }), body);
    let stream = json!({ "stream": true, "stream_options": { "include_usage": true } });
    let mut one = whole(&server.chat(&ask("[text]")).await);
    let mut two = streamed(&server.chat(&with(&ask("[text]"), &stream)).await);
    let mut three = streamed(&server.chat(&with(&ask("[chars]"), &stream)).await);
    assert!(one.usage["completion_tokens"].is_u64() && one.usage["prompt_tokens"].is_u64(), "{one:?}");
    // The second and third had their prompts in memory, and the third says it in more tokens.
    for seen in [&mut one, &mut two, &mut three] {
        seen.usage = Value::Null;
    }
    assert_eq!(one, two, "whole and streamed differ");
    assert_eq!(one, three, "tokens and characters differ");
    one
}

/// Text, thinking and the end would reach clients changed, or depend on how they come.
#[tokio::test(flavor = "multi_thread")]
async fn answers_are_the_same_however_they_come() {
    let on = json!({ "enable_thinking": true });
    let off = json!({ "enable_thinking": false });
    let cases = [
        // A33: without thinking nothing is taken for it.
        (&off, "Paris.", ("", "Paris.", "stop")),
        (&on, "It is\nParis.\n</think>\n\nParis.", ("It is\nParis.", "Paris.", "stop")),
        (&off, "日本 👩‍👩‍👧 é", ("", "日本 👩‍👩‍👧 é", "stop")),
        (&off, "if (i < n && a <b) return <tool>", ("", "if (i < n && a <b) return <tool>", "stop")),
        (&off, "", ("", "", "stop")),
    ];
    for (body, text, (reasoning, content, finish_reason)) in cases {
        let seen = three_ways(text, body).await;
        assert_eq!(
            (&*seen.reasoning, &*seen.content, &*seen.finish_reason),
            (reasoning, content, finish_reason)
        );
    }
}

fn usual(scripts: &[(&str, Script)]) -> Server {
    Setup::new(scripts).start()
}

fn ask(text: &str) -> Value {
    json!({ "messages": [{ "role": "user", "content": text }], "enable_thinking": false })
}

/// A01: usage would be missing, or in a chunk that nobody asked for.
#[tokio::test(flavor = "multi_thread")]
async fn usage_is_told_where_it_was_asked_for() {
    let server = usual(&[("hello", Script::Text("Hi there".into()))]);
    let stream = with(&ask("hello"), &json!({ "stream": true }));
    let reply = server.chat(&stream).await;
    assert!(reply.events().iter().all(|event| event.get("usage").is_none()), "{}", reply.body);
    let reply = server.chat(&with(&stream, &json!({ "stream_options": { "include_usage": true } }))).await;
    let events = reply.events();
    let (last, before) = events.split_last().unwrap();
    assert_eq!(last["choices"], json!([]));
    let usage = &last["usage"];
    let n = |key: &str| usage[key].as_u64().unwrap();
    assert_eq!(n("total_tokens"), n("prompt_tokens") + n("completion_tokens"));
    assert!(usage["prompt_tokens_details"]["cached_tokens"].is_u64());
    assert_eq!(usage["completion_tokens_details"]["reasoning_tokens"], 0);
    assert!(before.iter().all(|event| event.get("usage").is_none()));
    let thinking = with(&ask("hello"), &json!({ "enable_thinking": true }));
    let usage = server.chat(&thinking).await.json()["usage"].clone();
    assert_eq!(usage["completion_tokens_details"]["reasoning_tokens"], usage["completion_tokens"]);
}

const WEATHER: &str =
    "<tool_call>\n<function=get_weather>\n<parameter=city>\nParis\n</parameter>\n</function>\n</tool_call>";

fn weather() -> Value {
    let parameters = json!({ "type": "object", "properties": { "city": { "type": "string" } } });
    let function = json!({ "name": "get_weather", "description": "Weather", "parameters": parameters });
    json!({ "tools": [{ "type": "function", "function": function }], "enable_thinking": false })
}

/// T05, T22, A39: calls would be shown as text, or would lack an end that says so.
#[tokio::test(flavor = "multi_thread")]
async fn calls_are_calls_however_they_come() {
    let paris = || ("get_weather".to_owned(), json!({ "city": "Paris" }).to_string());
    let cases = [
        (WEATHER.to_owned(), "", 1),
        (format!("Let me see.\n{WEATHER}"), "Let me see.", 1),
        (format!("{WEATHER}\n{WEATHER}\n{WEATHER}"), "", 3),
        // Its envelope is never closed.
        (WEATHER.replace("\n</tool_call>", ""), "", 1),
    ];
    for (text, content, n_call) in cases {
        let seen = three_ways(&text, &weather()).await;
        assert_eq!((seen.content.trim(), &*seen.finish_reason), (content, "tool_calls"), "{text}");
        let calls = seen.calls.iter().map(|(name, arguments)| {
            let arguments: Value = serde_json::from_str(arguments).expect("arguments are JSON");
            (name.clone(), arguments.to_string())
        });
        assert_eq!(calls.collect::<Vec<_>>(), vec![paris(); n_call], "{text}");
    }
    // Nobody declared it: text.
    let seen = three_ways(WEATHER, &json!({ "enable_thinking": false })).await;
    assert_eq!((seen.calls.len(), &*seen.finish_reason), (0, "stop"));
}

/// T21: a call that `max_tokens` cut would look complete, and be run with half of a value.
#[tokio::test(flavor = "multi_thread")]
async fn a_call_that_was_cut_is_none() {
    let server = usual(&[("[weather]", Script::Characters(WEATHER.into()))]);
    let body = with(&ask("[weather]"), &weather());
    let (mut n_cut, mut n_complete) = (0, 0);
    for max_tokens in 1..100 {
        let body = with(&body, &json!({ "max_tokens": max_tokens }));
        let one = whole(&server.chat(&body).await);
        let two = streamed(&server.chat(&with(&body, &json!({ "stream": true }))).await);
        assert_eq!(one.finish_reason, two.finish_reason, "{max_tokens}");
        for (_, arguments) in &one.calls {
            assert_eq!(*arguments, json!({ "city": "Paris" }).to_string(), "{max_tokens}");
        }
        n_cut += usize::from(one.calls.is_empty() && !two.calls.is_empty());
        n_complete += usize::from(one.finish_reason == "tool_calls");
        assert!(one.finish_reason == "length" || n_complete == 1, "{one:?}");
        if n_complete == 1 {
            break;
        }
    }
    assert!(0 < n_cut && n_complete == 1, "{n_cut} cut, {n_complete} complete");
}

/// A17: a stop text would leak, or what only begins like one would be lost.
#[tokio::test(flavor = "multi_thread")]
async fn stop_texts_end_answers() {
    let cases = [
        ("one END two", json!("END"), "one "),
        ("one END two", json!(["nothing", "END"]), "one "),
        ("one\n\nUser: two", json!(["END", "\n\nUser:"]), "one"),
        ("one EN", json!(["END"]), "one EN"),
        ("one END", json!([]), "one END"),
    ];
    for (text, stop, content) in cases {
        let seen = three_ways(text, &json!({ "stop": stop, "enable_thinking": false })).await;
        assert_eq!((&*seen.content, &*seen.finish_reason), (content, "stop"), "{text:?} {stop}");
    }
}

/// A19: the newer name would lose, or an answer be cut at a number nobody gave.
#[tokio::test(flavor = "multi_thread")]
async fn answers_are_as_long_as_asked() {
    let server = usual(&[("noise", Script::Noise(700))]);
    let cases = [
        (json!({ "max_completion_tokens": 40 }), 40, "length"),
        (json!({ "max_tokens": 30 }), 30, "length"),
        (json!({ "max_tokens": 30, "max_completion_tokens": 5 }), 5, "length"),
        (json!({ "max_tokens": 0 }), 0, "length"),
        (json!({ "max_tokens": -1 }), 700, "stop"),
        (json!({}), 700, "stop"),
    ];
    for (more, n_token, finish_reason) in cases {
        let body = server.chat(&with(&ask("noise"), &more)).await.json();
        assert_eq!(body["usage"]["completion_tokens"], n_token, "{more}");
        assert_eq!(body["choices"][0]["finish_reason"], finish_reason, "{more}");
    }
}

/// A20: a long prompt would be cut in silence, or an answer that fills the context would look complete.
#[tokio::test(flavor = "multi_thread")]
async fn the_context_is_a_limit_that_is_told() {
    let server = Setup::new(&[("noise", Script::Noise(9000))]).n_ctx(512).start();
    let reply = server.chat(&with(&ask(&"long ".repeat(3000)), &json!({ "stream": true }))).await;
    let error = &reply.json()["error"];
    assert_eq!((reply.status.as_u16(), &error["code"]), (400, &json!("context_length_exceeded")));
    let message = error["message"].as_str().unwrap();
    let numbers = message.split(|c: char| !c.is_ascii_digit()).filter(|n| !n.is_empty());
    let numbers: Vec<usize> = numbers.map(|n| n.parse().unwrap()).collect();
    assert!(numbers.contains(&512) && numbers.iter().any(|&n| 3000 < n), "{message}");
    let seen = whole(&server.chat(&ask("noise")).await);
    assert_eq!(seen.finish_reason, "length");
    assert!(100 < seen.usage["completion_tokens"].as_u64().unwrap());
}

/// A22: log probabilities would not be those of the text that they come with.
#[tokio::test(flavor = "multi_thread")]
async fn logprobs_belong_to_the_text() {
    let text = "Well, 日本 is 1 of 2.";
    for script in [Script::Text(text.into()), Script::Characters(text.into())] {
        let server = usual(&[("hello", script)]);
        let body = with(&ask("hello"), &json!({ "logprobs": true, "top_logprobs": 3 }));
        let check = |logprobs: &Value, text: &str| {
            let tokens = logprobs["content"].as_array().expect("tokens");
            let bytes = tokens.iter().flat_map(|token| {
                assert_eq!(token["top_logprobs"].as_array().map(Vec::len), Some(3), "{token}");
                assert!(token["logprob"].as_f64().is_some_and(|p| p <= 0.0), "{token}");
                token["bytes"].as_array().unwrap().iter().map(|byte| byte.as_u64().unwrap() as u8)
            });
            assert_eq!(String::from_utf8_lossy(&bytes.collect::<Vec<u8>>()), text);
        };
        let one = server.chat(&body).await.json();
        check(&one["choices"][0]["logprobs"], text);
        let mut all = String::new();
        for event in server.chat(&with(&body, &json!({ "stream": true }))).await.events() {
            let choice = &event["choices"][0];
            if let Some(content) = choice["delta"]["content"].as_str() {
                check(&choice["logprobs"], content);
                all += content;
            }
        }
        assert_eq!(all, text);
    }
    let reply = usual(&[]).chat(&with(&ask("hello"), &json!({ "top_logprobs": 3 }))).await;
    assert_eq!(reply.status, 400);
}

/// A26: an error in the middle would look like an end, or take others with it.
#[tokio::test(flavor = "multi_thread")]
async fn an_error_ends_one_answer() {
    let scripts = [
        ("broken", Script::Fails("one two three four".into())),
        ("early", Script::FailsAtOnce),
        ("noise", Script::Noise(300)),
    ];
    let server = usual(&scripts);
    let stream = |text: &str| with(&ask(text), &json!({ "stream": true }));
    let (good, bad) = tokio::join!(async { server.chat(&ask("noise")).await }, async {
        server.chat(&stream("broken")).await
    });
    assert_eq!(whole(&good).usage["completion_tokens"], 300);
    let data: Vec<&str> = bad.body.lines().filter_map(|line| line.strip_prefix("data: ")).collect();
    let (last, before) = data.split_last().unwrap();
    let error: Value = serde_json::from_str(last).unwrap();
    assert_eq!(error["error"]["type"], "server_error", "{last}");
    assert!(!before.is_empty() && before.iter().all(|data| !data.contains("error")), "{}", bad.body);
    assert!(!bad.body.contains("[DONE]"));
    for text in ["broken", "early"] {
        let reply = server.chat(&ask(text)).await;
        assert_eq!((reply.status.as_u16(), &reply.json()["error"]["type"]), (500, &json!("server_error")));
    }
    assert_eq!(server.chat(&ask("noise")).await.status, 200, "the server lives on");
}

/// A31, A33: thinking could not be turned off, or not by the name that a client has for it.
#[tokio::test(flavor = "multi_thread")]
async fn thinking_is_switched_by_every_name() {
    let server = usual(&[("hello", Script::Text("Paris.".into()))]);
    let off = [
        json!({ "enable_thinking": false }),
        json!({ "chat_template_kwargs": { "enable_thinking": false } }),
        json!({ "reasoning_effort": "none" }),
        json!({ "thinking": { "type": "disabled" } }),
        json!({ "thinking_budget": 0 }),
    ];
    let hello = json!({ "messages": [{ "role": "user", "content": "hello" }] });
    for more in off {
        let seen = whole(&server.chat(&with(&hello, &more)).await);
        assert_eq!((&*seen.content, &*seen.reasoning), ("Paris.", ""), "{more}");
    }
    let on = json!({ "chat_template_kwargs": { "enable_thinking": true } });
    assert_eq!(whole(&server.chat(&with(&hello, &on)).await).reasoning, "Paris.");
    let mut setup = Setup::new(&[("hello", Script::Text("Paris.".into()))]);
    setup.options.thinking = serve::Thinking { is_on: Some(false), budget: None };
    assert_eq!(whole(&setup.start().chat(&hello).await).content, "Paris.", "the server's own setting");
}

/// A37: a client that knows the other name would not see thinking, or lose it in its history.
#[tokio::test(flavor = "multi_thread")]
async fn thinking_has_two_names() {
    let server = usual(&[("hello", Script::Text("Hm.\n</think>\n\nParis.".into()))]);
    let hello = json!({ "messages": [{ "role": "user", "content": "hello" }], "enable_thinking": true });
    for (format, field) in
        [("reasoning", Some("reasoning")), ("auto", Some("reasoning_content")), ("hidden", None)]
    {
        let body = with(&hello, &json!({ "reasoning_format": format }));
        let message = server.chat(&body).await.json()["choices"][0]["message"].clone();
        for name in ["reasoning", "reasoning_content"] {
            let expected = if Some(name) == field { json!("Hm.") } else { Value::Null };
            assert_eq!(message[name], expected, "{format}");
        }
        assert_eq!(message["content"], "Paris.");
    }
}

/// A41: a client that asked would see nothing of a long prompt; one that did not would get events it does not know.
#[tokio::test(flavor = "multi_thread")]
async fn progress_is_told_to_those_who_ask() {
    let server = usual(&[("hello", Script::Text("Hi".into()))]);
    let body = with(&ask(&("word ".repeat(600) + "hello")), &json!({ "stream": true }));
    let asked = with(&body, &json!({ "return_progress": true, "timings_per_token": true }));
    let events = server.chat(&asked).await.events();
    let progress: Vec<&Value> = events.iter().filter_map(|event| event.get("prompt_progress")).collect();
    let last = progress.last().expect("there is progress");
    assert_eq!(last["processed"], last["total"]);
    assert!(last["cached"].is_u64() && last["elapsed_ms"].is_f64(), "{last}");
    let timings = events.last().unwrap()["timings"].clone();
    for key in
        ["prompt_n", "cache_n", "prompt_ms", "predicted_n", "predicted_ms", "hit_rate", "n_ctx", "n_ctx_used"]
    {
        assert!(timings[key].is_number(), "{key}: {timings}");
    }
    let plain = server.chat(&body).await;
    assert!(plain.events().iter().all(|event| event.get("prompt_progress").is_none()));
}

/// A42: the same question with the same seed would get another answer, alone or among others, cold or warm.
#[tokio::test(flavor = "multi_thread")]
async fn the_same_seed_gives_the_same_answer() {
    let server = usual(&[("noise", Script::Noise(60))]);
    for more in [json!({ "seed": 7, "temperature": 0.8 }), json!({ "temperature": 0 })] {
        let body = with(&ask("noise"), &more);
        let first = whole(&server.chat(&body).await).content;
        assert_eq!(first.len(), 60);
        let other = with(&ask("noise and more"), &json!({ "seed": 1 }));
        let (again, _) = tokio::join!(server.chat(&body), server.chat(&other));
        assert_eq!(whole(&again).content, first, "{more}");
        assert_eq!(whole(&server.chat(&body).await).content, first, "{more}");
    }
    let others = with(&ask("noise"), &json!({ "seed": 8, "temperature": 0.8, "n": 3 }));
    let body = server.chat(&others).await.json();
    let texts: Vec<&Value> = (0..3).map(|i| &body["choices"][i]["message"]["content"]).collect();
    assert!(texts[0] != texts[1] && texts[1] != texts[2], "choices differ: {texts:?}");
    assert_eq!(body["usage"]["completion_tokens"], 180);
}

/// A14: a client that demands a call, or none, would get what the model likes.
#[tokio::test(flavor = "multi_thread")]
async fn choices_of_tools_are_kept() {
    let prose = "I would rather talk.";
    let named = json!({ "type": "function", "function": { "name": "get_weather" } });
    for choice in [json!("required"), named] {
        let body = with(&weather(), &json!({ "tool_choice": choice, "max_tokens": 400 }));
        let server = usual(&[("hello", Script::Text(prose.into()))]);
        let ask = with(&ask("hello"), &body);
        let seen = whole(&server.chat(&ask).await);
        // A model that does not want to may run on in a value.
        assert!(seen.content.is_empty(), "{choice}: {seen:?}");
        assert!(["tool_calls", "length"].contains(&&*seen.finish_reason), "{choice}: {seen:?}");
        assert!(seen.finish_reason == "length" || !seen.calls.is_empty(), "{choice}: {seen:?}");
        assert!(seen.calls.iter().all(|(_, json)| serde_json::from_str::<Value>(json).is_ok()), "{seen:?}");
    }
    let body = with(&weather(), &json!({ "tool_choice": "none" }));
    let seen = three_ways(prose, &body).await;
    assert_eq!((&*seen.content, seen.calls.len()), (prose, 0));
    let willing = with(&weather(), &json!({ "tool_choice": "required" }));
    let seen = three_ways(WEATHER, &willing).await;
    assert_eq!((seen.calls.len(), &*seen.finish_reason), (1, "tool_calls"));
}

/// N12: JSON and calls of a model that does not get out of a value could not be read, though a client asked for that.
#[tokio::test(flavor = "multi_thread")]
async fn answers_are_closed_at_their_limit_when_asked_for() {
    let (digits, city) = ("1".repeat(500), "dong ".repeat(100));
    let schema = json!({ "type": "object", "properties": { "a": { "type": "array", "items": { "type": "integer" } } },
        "required": ["a"] });
    let format = json!({ "type": "json_schema", "json_schema": { "name": "s", "schema": schema } });
    let json_text = format!("{{\"a\": [{digits}");
    let call = WEATHER.replace("Paris", &city);
    let cases = [(json_text, json!({ "response_format": format })), (call, weather())];
    for (text, more) in cases {
        let server = usual(&[("hello", Script::Text(text))]);
        let body = with(&ask("hello"), &with(&more, &json!({ "max_tokens": 200 })));
        let cut = whole(&server.chat(&body).await);
        assert!(cut.calls.is_empty() && serde_json::from_str::<Value>(&cut.content).is_err(), "{cut:?}");
        let body = with(&body, &json!({ "close_at_limit": true }));
        let closed = whole(&server.chat(&body).await);
        let streamed = streamed(&server.chat(&with(&body, &json!({ "stream": true }))).await);
        assert_eq!((&closed.content, &closed.calls), (&streamed.content, &streamed.calls));
        assert_eq!((&*cut.finish_reason, &*closed.finish_reason), ("length", "length"));
        let json = closed.calls.first().map_or(&*closed.content, |(_, arguments)| arguments);
        let value: Value = serde_json::from_str(json).unwrap_or_else(|e| panic!("{e}: {closed:?}"));
        assert!(value["a"].is_array() || value["city"].is_string(), "{closed:?}");
    }
}

/// A16: a schema would hold thinking, too, or not hold the answer, or the two would wait for each other.
#[tokio::test(flavor = "multi_thread")]
async fn schemas_hold_the_answer_only() {
    let properties = json!({ "a": { "type": "integer" }, "b": { "enum": ["x", "y"] } });
    let schema = json!({ "type": "object", "properties": properties, "required": ["a", "b"] });
    let format = json!({ "type": "json_schema", "json_schema": { "name": "s", "schema": schema } });
    let json_text = "{\"a\": 12, \"b\": \"y\"}";
    let thinking = format!("A number, then a letter: {{?\n</think>\n\n{json_text}");
    for (text, is_on, reasoning) in
        [(json_text, false, ""), (&*thinking, true, "A number, then a letter: {?")]
    {
        let body = json!({ "response_format": format, "enable_thinking": is_on });
        let seen = three_ways(text, &body).await;
        let content: Value = serde_json::from_str(&seen.content).unwrap_or_else(|e| panic!("{e}: {seen:?}"));
        assert_eq!((content, &*seen.reasoning), (json!({ "a": 12, "b": "y" }), reasoning));
    }
    for format in [
        json!({ "response_format": { "type": "regex", "pattern": "(yes|no)" } }),
        json!({ "guided_choice": ["yes", "no"] }),
        json!({ "structured_outputs": { "regex": "(yes|no)" } }),
        json!({ "response_format": { "type": "lark", "grammar": "start: \"yes\" | \"no\"" } }),
    ] {
        let seen = three_ways("no", &with(&json!({ "enable_thinking": false }), &format)).await;
        assert_eq!(seen.content, "no", "{format}");
        let server = usual(&[("hello", Script::Text("Perhaps.".into()))]);
        let seen = whole(&server.chat(&with(&ask("hello"), &format)).await);
        assert!(["yes", "no"].contains(&&*seen.content), "{format}: {seen:?}");
    }
    let server = usual(&[]);
    for format in [
        json!({ "response_format": { "type": "regex", "pattern": "(" } }),
        json!({ "response_format": { "type": "lark", "grammar": "start: nothing" } }),
    ] {
        let reply = server.chat(&with(&ask("hello"), &format)).await;
        assert_eq!(reply.status, 400, "{format}: {}", reply.body);
    }
}
