//! `/v1/messages`: each case whole, in natural chunks, and in single characters.

use serde_json::{Map, Value, json};

use crate::scripted::Script;
use crate::support::{Reply, Setup, request, with};

/// What a client puts together from an answer, however it comes. Ids of calls are left out.
#[derive(Debug, PartialEq)]
struct Seen {
    content: Vec<Value>,
    stop_reason: Value,
    stop_sequence: Value,
}

/// Checks a message and takes it apart.
fn message(mut body: Value) -> (Seen, Value) {
    assert_eq!((&body["type"], &body["role"]), (&json!("message"), &json!("assistant")));
    assert!(body["id"].as_str().is_some_and(|id| id.starts_with("msg_")), "{body}");
    assert_eq!(body["model"], "claude-any", "the name of the request");
    let mut ids = Vec::new();
    for block in body["content"].as_array_mut().unwrap() {
        if block["type"] == "tool_use" {
            let id = block.as_object_mut().unwrap().remove("id").unwrap();
            assert!(id.as_str().is_some_and(|id| id.starts_with("toolu_")), "{id}");
            assert!(!ids.contains(&id), "no two calls have one id");
            ids.push(id);
        }
    }
    let seen = Seen {
        content: body["content"].as_array().unwrap().clone(),
        stop_reason: body["stop_reason"].take(),
        stop_sequence: body["stop_sequence"].take(),
    };
    (seen, body["usage"].take())
}

fn whole(reply: &Reply) -> (Seen, Value) {
    assert_eq!(reply.status, 200, "{}", reply.body);
    message(reply.json())
}

/// Names and data of all events; pings are left out.
fn events(reply: &Reply) -> Vec<Value> {
    assert_eq!(reply.headers["content-type"], "text/event-stream");
    let mut events = Vec::new();
    for event in reply.body.split("\n\n").filter(|event| !event.is_empty()) {
        let (name, data) = event.split_once('\n').unwrap_or_else(|| panic!("{event:?}"));
        let data: Value = serde_json::from_str(data.strip_prefix("data: ").unwrap()).unwrap();
        assert_eq!(name.strip_prefix("event: "), data["type"].as_str(), "the name is the type");
        if data["type"] != "ping" {
            events.push(data);
        }
    }
    events
}

/// Puts a stream together as SDKs do, and checks the order of events (A10).
fn streamed(reply: &Reply) -> (Seen, Value) {
    assert_eq!(reply.status, 200, "{}", reply.body);
    let events = events(reply);
    let [start, blocks @ .., end, stop] = events.as_slice() else { panic!("{}", reply.body) };
    assert_eq!((&start["type"], &stop["type"]), (&json!("message_start"), &json!("message_stop")));
    let mut body = start["message"].clone();
    assert_eq!((&body["content"], &body["stop_reason"]), (&json!([]), &Value::Null));
    let mut open: Option<(Value, String)> = None;
    for event in blocks {
        let n_block = body["content"].as_array().unwrap().len();
        assert_eq!(event["index"], n_block, "indices rise: {event}");
        match event["type"].as_str().unwrap() {
            "content_block_start" => {
                assert!(open.is_none(), "blocks follow each other");
                open = Some((event["content_block"].clone(), String::new()));
            }
            "content_block_delta" => {
                let (block, json) = open.as_mut().expect("an open block");
                let delta = &event["delta"];
                let (kind, field) = match delta["type"].as_str().unwrap() {
                    "text_delta" => ("text", "text"),
                    "thinking_delta" => ("thinking", "thinking"),
                    "signature_delta" => ("thinking", "signature"),
                    "input_json_delta" => ("tool_use", "partial_json"),
                    other => panic!("{other}"),
                };
                assert_eq!(block["type"], kind);
                let more = delta[field].as_str().unwrap();
                assert!(!more.is_empty(), "nothing is not told: {event}");
                match field {
                    "partial_json" => *json += more,
                    field => block[field] = format!("{}{more}", block[field].as_str().unwrap()).into(),
                }
            }
            "content_block_stop" => {
                let (mut block, json) = open.take().expect("an open block");
                if block["type"] == "tool_use" {
                    assert_eq!(block["input"], json!({}));
                    block["input"] = serde_json::from_str::<Map<_, _>>(&json).unwrap().into();
                }
                body["content"].as_array_mut().unwrap().push(block);
            }
            other => panic!("{other}"),
        }
    }
    assert!(open.is_none(), "the last block ends");
    assert_eq!(end["type"], "message_delta");
    for key in ["stop_reason", "stop_sequence"] {
        body[key] = end["delta"][key].clone();
    }
    for key in ["input_tokens", "cache_read_input_tokens", "cache_creation_input_tokens"] {
        assert_eq!(body["usage"][key], end["usage"][key], "counts of the prompt are told at the start");
    }
    body["usage"] = end["usage"].clone();
    message(body)
}

fn ask(text: &str, more: &Value) -> Value {
    let messages = json!([{ "role": "user", "content": text }]);
    with(&json!({ "model": "claude-any", "max_tokens": 1000, "messages": messages }), more)
}

/// The same answer three ways.
async fn three_ways(text: &str, more: &Value) -> Seen {
    let scripts = [("[text]", Script::Text(text.into())), ("[chars]", Script::Characters(text.into()))];
    let server = Setup::new(&scripts).start();
    let stream = with(more, &json!({ "stream": true }));
    let (one, usage) = whole(&server.post("/v1/messages", &ask("[text]", more)).await);
    let (two, streamed_usage) = streamed(&server.post("/v1/messages", &ask("[text]", &stream)).await);
    let (three, _) = streamed(&server.post("/messages", &ask("[chars]", &stream)).await);
    assert_eq!(one, two, "whole and streamed differ");
    assert_eq!(one, three, "tokens and characters differ");
    assert_eq!(usage["output_tokens"], streamed_usage["output_tokens"]);
    let total = |usage: &Value| {
        let kinds = ["input_tokens", "cache_read_input_tokens", "cache_creation_input_tokens"];
        kinds.iter().map(|kind| usage[kind].as_u64().unwrap()).sum::<u64>()
    };
    assert_eq!(total(&usage), total(&streamed_usage));
    one
}

/// Text, thinking and the end would reach clients changed, or depend on how they come.
#[tokio::test(flavor = "multi_thread")]
async fn answers_are_the_same_however_they_come() {
    let on = json!({ "thinking": { "type": "enabled", "budget_tokens": 500 } });
    let off = json!({});
    let stop = json!({ "stop_sequences": ["END"] });
    let text = |text: &str| json!({ "type": "text", "text": text });
    let thinking = |text: &str| json!({ "type": "thinking", "thinking": text, "signature": "flash-moe" });
    for (more, script, content, stop_reason, stop_sequence) in [
        (&off, "Paris.", vec![text("Paris.")], "end_turn", Value::Null),
        (&on, "Hm.\n</think>\n\nParis.", vec![thinking("Hm."), text("Paris.")], "end_turn", Value::Null),
        (&off, "日本 👩‍👩‍👧 é", vec![text("日本 👩‍👩‍👧 é")], "end_turn", Value::Null),
        (&off, "", vec![], "end_turn", Value::Null),
        (&stop, "One EN END two", vec![text("One EN ")], "stop_sequence", json!("END")),
        (&json!({ "max_tokens": 1 }), "a b c d", vec![text("a")], "max_tokens", Value::Null),
    ] {
        let expected = Seen { content, stop_reason: stop_reason.into(), stop_sequence };
        assert_eq!(three_ways(script, more).await, expected, "{script:?}");
    }
}

/// A10, A14, A39: calls would be lost between text, or told as text, or one too many would be made.
#[tokio::test(flavor = "multi_thread")]
async fn calls_are_the_same_however_they_come() {
    let schema =
        json!({ "type": "object", "properties": { "city": { "type": "string" } }, "required": ["city"] });
    let tools = json!({ "tools": [{ "name": "weather", "description": "", "input_schema": schema }] });
    let call = |city: &str| {
        format!(
            "<tool_call>\n<function=weather>\n<parameter=city>\n{city}\n</parameter>\n</function>\n</tool_call>"
        )
    };
    let used = |city: &str| json!({ "type": "tool_use", "name": "weather", "input": { "city": city } });
    let text = json!({ "type": "text", "text": "Let me look." });
    let thinking = json!({ "type": "thinking", "thinking": "Hm.", "signature": "flash-moe" });
    let two = format!("Let me look.\n{}\n{}", call("Rome"), call("日本"));
    let thought = format!("Hm.\n</think>\n\n{}", call("Oslo"));
    let on = with(&tools, &json!({ "thinking": { "type": "adaptive" } }));
    let single = json!({ "tool_choice": { "type": "auto", "disable_parallel_tool_use": true } });
    let single = with(&tools, &single);
    let none = with(&tools, &json!({ "tool_choice": { "type": "none" } }));
    for (more, script, expected, stop_reason) in [
        (&tools, &two, vec![text.clone(), used("Rome"), used("日本")], "tool_use"),
        (&on, &thought, vec![thinking, used("Oslo")], "tool_use"),
        (&single, &two, vec![text.clone(), used("Rome")], "tool_use"),
        (&none, &"Let me look.".to_owned(), vec![text], "end_turn"),
    ] {
        let seen = three_ways(script, more).await;
        let content: Vec<Value> = seen.content.iter().map(trimmed).collect();
        assert_eq!((content, &seen.stop_reason), (expected, &json!(stop_reason)), "{script:?}");
    }
}

/// A block without white space at the end of its text, which depends on what comes behind.
fn trimmed(block: &Value) -> Value {
    let mut block = block.clone();
    if let Some(text) = block["text"].as_str().map(|text| text.trim_end().to_owned()) {
        block["text"] = text.into();
    }
    block
}

/// A09: agents that plan with counts would overrun the context.
#[tokio::test(flavor = "multi_thread")]
async fn tokens_are_counted_as_they_are_used() {
    let server = Setup::new(&[("hello", Script::Text("Hi".into()))]).start();
    let tools = json!([{ "name": "ls", "description": "lists", "input_schema": { "type": "object" } }]);
    for more in [
        json!({}),
        json!({ "system": "S", "tools": tools }),
        json!({ "thinking": { "type": "enabled", "budget_tokens": 10 } }),
        json!({ "messages": [{ "role": "user", "content": "hello" }, { "role": "assistant", "content": "Red," }] }),
    ] {
        let body = ask("hello", &more);
        let n_before = server.log.lock().unwrap().n_fed;
        let counted = server.post("/v1/messages/count_tokens", &body).await;
        assert_eq!(counted.status, 200, "{}", counted.body);
        assert_eq!(server.log.lock().unwrap().n_fed, n_before, "nothing is generated");
        let usage = server.post("/v1/messages", &body).await.json()["usage"].take();
        let n = |key: &str| usage[key].as_u64().unwrap();
        let n_prompt = n("input_tokens") + n("cache_read_input_tokens") + n("cache_creation_input_tokens");
        assert_eq!(counted.json(), json!({ "input_tokens": n_prompt }), "{more}");
    }
}

/// C06: with a line that changes, every turn of an agent would be read from the start.
#[tokio::test(flavor = "multi_thread")]
async fn a_changing_billing_line_does_not_cost_the_cache() {
    let system = |hash: &str| {
        let line = format!("x-anthropic-billing-header: cc_version=2.1.{hash}; cch={hash};");
        let prompt = "You are an agent that works on files. ".repeat(20);
        json!({ "system": [{ "type": "text", "text": line }, { "type": "text", "text": prompt }] })
    };
    for (keep_billing_line, range) in [(false, 100..1000), (true, 0..50)] {
        let mut setup = Setup::new(&[("hello", Script::Text("Hi".into()))]);
        setup.options.keep_billing_line = keep_billing_line;
        let server = setup.start();
        let first = server.post("/v1/messages", &ask("hello", &system("a1b2"))).await.json()["usage"].take();
        assert!(first["cache_creation_input_tokens"].as_u64() > Some(100), "{first}");
        let usage = server.post("/v1/messages", &ask("hello", &system("9c8d"))).await.json()["usage"].take();
        assert!(range.contains(&usage["cache_read_input_tokens"].as_u64().unwrap()), "{usage}");
    }
}

/// Clients of this API read errors in its own shape only, also those that no route of it has made.
#[tokio::test(flavor = "multi_thread")]
async fn errors_have_the_shape_of_the_api() {
    let mut setup = Setup::new(&[("fails", Script::FailsAtOnce)]).n_ctx(256);
    setup.options.keys = serve::Keys::new(["secret".to_owned()]);
    let server = setup.start();
    let long = ask(&"word ".repeat(400), &json!({}));
    let invalid = "invalid_request_error";
    for (path, body, key, status, kind, part) in [
        ("/v1/messages", ask("x", &json!({})), "wrong", 401, "authentication_error", "key"),
        ("/v1/messages", json!({ "model": "m" }), "secret", 400, invalid, "messages"),
        ("/v1/messages", ask("x", &json!({ "temperature": -1 })), "secret", 400, invalid, "temperature"),
        ("/v1/messages", ask("x", &json!({ "top_p": 2 })), "secret", 400, invalid, "top_p"),
        // A20: with both numbers.
        ("/v1/messages", long, "secret", 400, invalid, "256"),
        ("/v1/messages", ask("fails", &json!({})), "secret", 500, "api_error", "injected"),
        ("/v1/messages/count_tokens", json!({ "model": "m" }), "secret", 400, invalid, "messages"),
        ("/v1/messages/batches", json!({}), "secret", 404, "not_found_error", "nothing"),
    ] {
        let mut request = request("POST", path, body.to_string());
        request.headers_mut().insert("x-api-key", key.parse().unwrap());
        let reply = server.send(request).await;
        assert_eq!(reply.status, status, "{}", reply.body);
        let body = reply.json();
        assert_eq!((&body["type"], &body["error"]["type"]), (&json!("error"), &json!(kind)), "{body}");
        assert!(body["error"]["message"].as_str().unwrap().contains(part), "{body}");
    }
}

/// A26: a client would wait for the rest of an answer that has failed.
#[tokio::test(flavor = "multi_thread")]
async fn a_failure_in_the_middle_is_one_event() {
    let server = Setup::new(&[("fails", Script::Fails("one two three".into()))]).start();
    let reply = server.post("/v1/messages", &ask("fails", &json!({ "stream": true }))).await;
    let events = events(&reply);
    let kinds: Vec<&str> = events.iter().map(|event| event["type"].as_str().unwrap()).collect();
    assert_eq!((kinds[0], kinds[kinds.len() - 1]), ("message_start", "error"), "{kinds:?}");
    let error = &events[events.len() - 1]["error"];
    assert_eq!(error["type"], "api_error");
    assert!(error["message"].as_str().unwrap().contains("injected"), "{error}");
    assert_eq!(kinds.iter().filter(|kind| **kind == "error").count(), 1);
}

/// A02: proxies and clients would give up while a long prompt is read.
#[tokio::test(flavor = "multi_thread")]
async fn pings_are_sent_while_nothing_else_is() {
    let mut setup = Setup::new(&[("hello", Script::Text("Hi".into()))]);
    setup.options.heartbeat = std::time::Duration::from_millis(5);
    let gate = std::sync::Arc::new(crate::scripted::Gate::default());
    setup.stage.gate = Some(("hello".into(), gate.clone()));
    let server = setup.start();
    let body = ask("hello", &json!({ "stream": true })).to_string();
    let response = tower::ServiceExt::oneshot(server.router.clone(), request("POST", "/v1/messages", body));
    let mut chunks = response.await.unwrap().into_body().into_data_stream();
    let mut seen = String::new();
    // The prompt is held up until a ping has come.
    while let Some(chunk) = futures_util::StreamExt::next(&mut chunks).await {
        seen += std::str::from_utf8(&chunk.unwrap()).unwrap();
        if seen.contains("event: ping\ndata: {\"type\":\"ping\"}\n\n") {
            gate.open();
        }
    }
    assert!(seen.ends_with("event: message_stop\ndata: {\"type\":\"message_stop\"}\n\n"), "{seen}");
}

/// The list of models of one API cannot be read by clients of the other.
#[tokio::test(flavor = "multi_thread")]
async fn models_are_listed_for_both_apis() {
    let server = Setup::new(&[]).start();
    for (path, ours) in [("/v1/models", true), ("/v1/models/org/model", false)] {
        let mut request = request("GET", path, String::new());
        request.headers_mut().insert("anthropic-version", "2023-06-01".parse().unwrap());
        let body = server.send(request).await.json();
        if ours {
            assert_eq!((&body["has_more"], &body["first_id"]), (&json!(false), &json!("org/model")));
        }
        let model = if ours { &body["data"][0] } else { &body };
        assert_eq!((&model["type"], &model["id"]), (&json!("model"), &json!("org/model")));
        assert!(model["created_at"].as_str().unwrap().ends_with('Z') && model["display_name"].is_string());
        let openai = server.get(path).await.json();
        assert!(openai["object"].is_string(), "{openai}");
    }
    let mut request = request("GET", "/v1/models/none", String::new());
    request.headers_mut().insert("anthropic-version", "2023-06-01".parse().unwrap());
    let reply = server.send(request).await;
    assert_eq!((reply.status.as_u16(), &reply.json()["error"]["type"]), (404, &json!("not_found_error")));
}
