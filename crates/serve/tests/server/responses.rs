//! `/v1/responses`: each case whole, in natural chunks, and in single characters.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use crate::scripted::Script;
use crate::support::{Reply, Setup, with};

/// Checks a response and takes away what differs from one to the next.
fn comparable(mut body: Value) -> Value {
    assert_eq!(body["object"], "response");
    assert_eq!((&body["store"], &body["previous_response_id"]), (&json!(false), &Value::Null));
    let usage = body["usage"].take();
    let n = |key: &str| usage[key].as_u64().unwrap_or_else(|| panic!("{key}: {usage}"));
    assert_eq!(n("total_tokens"), n("input_tokens") + n("output_tokens"));
    assert!(usage["input_tokens_details"]["cached_tokens"].is_u64());
    assert!(usage["output_tokens_details"]["reasoning_tokens"].is_u64());
    let mut ids = BTreeSet::new();
    let mut fresh = |value: &mut Value, prefix: &str| {
        let id = value.take();
        let id = id.as_str().unwrap_or_else(|| panic!("no id {prefix}"));
        assert!(id.starts_with(prefix) && ids.insert(id.to_owned()), "{id}");
    };
    fresh(&mut body["id"], "resp_");
    for item in body["output"].as_array_mut().unwrap() {
        let prefix = match item["type"].as_str().unwrap() {
            "message" => "msg_",
            "reasoning" => "rs_",
            "function_call" => "fc_",
            other => panic!("{other}"),
        };
        fresh(&mut item["id"], prefix);
        if item["type"] == "function_call" {
            fresh(&mut item["call_id"], "call_");
        }
    }
    for key in ["created_at", "completed_at"] {
        body[key] = Value::Null;
    }
    body
}

/// The data of all events.
fn events(reply: &Reply) -> Vec<Value> {
    assert_eq!(reply.status, 200, "{}", reply.body);
    let mut events = Vec::new();
    for event in reply.body.split("\n\n").filter(|event| !event.is_empty()) {
        let (name, data) = event.split_once('\n').unwrap_or_else(|| panic!("{event:?}"));
        let data: Value = serde_json::from_str(data.strip_prefix("data: ").unwrap()).unwrap();
        assert_eq!(name.strip_prefix("event: "), data["type"].as_str(), "the name is the type");
        assert_eq!(data["sequence_number"], events.len(), "numbers rise by one");
        events.push(data);
    }
    events
}

/// Puts a stream together as SDKs do, and checks the order of events: what it says, and the last event's response.
fn streamed(reply: &Reply) -> Value {
    let events = events(reply);
    let [created, progress, middle @ .., last] = events.as_slice() else { panic!("{}", reply.body) };
    assert_eq!(created["type"], "response.created");
    assert_eq!(progress["type"], "response.in_progress");
    assert_eq!(created["response"]["status"], "in_progress");
    assert_eq!(created["response"]["id"], last["response"]["id"]);
    let (mut done, mut open) = (Vec::new(), None::<(Value, String)>);
    for event in middle {
        assert_eq!(event["output_index"], done.len(), "{event}");
        let kind = event["type"].as_str().unwrap().strip_prefix("response.").unwrap();
        if kind == "output_item.added" {
            assert!(open.is_none(), "items follow each other");
            open = Some((event["item"].clone(), String::new()));
            continue;
        }
        let (item, text) = open.as_mut().expect("an open item");
        if kind == "output_item.done" {
            for key in ["id", "type", "role", "call_id", "namespace", "name"] {
                assert_eq!(item[key], event["item"][key], "the item is the one that began");
            }
            done.push(event["item"].clone());
            open = None;
            continue;
        }
        assert_eq!(event["item_id"], item["id"]);
        match kind.rsplit_once('.').unwrap() {
            (_, "delta") => *text += event["delta"].as_str().unwrap(),
            ("output_text" | "reasoning_text" | "reasoning_summary_text", "done") => {
                assert_eq!(event["text"], *text);
            }
            ("function_call_arguments", "done") => assert_eq!(event["arguments"], *text),
            ("content_part" | "reasoning_summary_part", "added") => assert_eq!(event["part"]["text"], ""),
            ("content_part" | "reasoning_summary_part", "done") => assert_eq!(event["part"]["text"], *text),
            _ => panic!("{kind}"),
        }
    }
    assert_eq!(last["response"]["output"], json!(done), "the response has what was told");
    let status = last["response"]["status"].as_str().unwrap();
    assert_eq!(last["type"], format!("response.{status}"));
    last["response"].clone()
}

fn ask(text: &str, more: &Value) -> Value {
    with(&json!({ "model": "any", "input": text }), more)
}

/// The same answer three ways.
async fn three_ways(text: &str, more: &Value) -> Value {
    let scripts = [("[text]", Script::Text(text.into())), ("[chars]", Script::Characters(text.into()))];
    let server = Setup::new(&scripts).start();
    let stream = with(more, &json!({ "stream": true }));
    let reply = server.post("/v1/responses", &ask("[text]", more)).await;
    assert_eq!(reply.status, 200, "{}", reply.body);
    let one = comparable(reply.json());
    let two = comparable(streamed(&server.post("/v1/responses", &ask("[text]", &stream)).await));
    let three = comparable(streamed(&server.post("/responses", &ask("[chars]", &stream)).await));
    assert_eq!(one, two, "whole and streamed differ");
    assert_eq!(one, three, "tokens and characters differ");
    one
}

/// Text, thinking and the end would reach clients changed, or depend on how they come.
#[tokio::test(flavor = "multi_thread")]
async fn answers_are_the_same_however_they_come() {
    let off = json!({ "reasoning": { "effort": "none" } });
    let on = json!({ "reasoning": { "effort": "high" } });
    let summary = json!({ "reasoning": { "effort": "high", "summary": "auto" } });
    let hidden = with(&on, &json!({ "include": ["reasoning.encrypted_content"] }));
    let cut = with(&off, &json!({ "max_output_tokens": 1 }));
    let message = |text: &str, status: &str| {
        let part = json!({ "type": "output_text", "text": text, "annotations": [], "logprobs": [] });
        json!({ "type": "message", "id": null, "status": status, "role": "assistant", "content": [part] })
    };
    let thinking = json!({ "type": "reasoning", "id": null, "status": "completed", "summary": [],
        "content": [{ "type": "reasoning_text", "text": "Hm." }] });
    let told =
        with(&thinking, &json!({ "content": [], "summary": [{ "type": "summary_text", "text": "Hm." }] }));
    let kept = with(&thinking, &json!({ "encrypted_content": "flash-moe:Hm." }));
    let thought = "Hm.\n</think>\n\nParis.";
    for (more, script, output, status) in [
        (&off, "Paris.", vec![message("Paris.", "completed")], "completed"),
        (&off, "日本 👩‍👩‍👧 é", vec![message("日本 👩‍👩‍👧 é", "completed")], "completed"),
        (&off, "", vec![], "completed"),
        (&on, thought, vec![thinking, message("Paris.", "completed")], "completed"),
        (&summary, thought, vec![told, message("Paris.", "completed")], "completed"),
        (&hidden, thought, vec![kept, message("Paris.", "completed")], "completed"),
        (&cut, "a b c d", vec![message("a", "incomplete")], "incomplete"),
    ] {
        let response = three_ways(script, more).await;
        assert_eq!(
            (&response["output"], &response["status"]),
            (&json!(output), &json!(status)),
            "{script:?}"
        );
        let details =
            if status == "incomplete" { json!({ "reason": "max_output_tokens" }) } else { Value::Null };
        assert_eq!(response["incomplete_details"], details);
    }
}

/// A12: calls would not be told as such, or not by the names that the client has for them.
#[tokio::test(flavor = "multi_thread")]
async fn calls_are_the_same_however_they_come() {
    let schema =
        json!({ "type": "object", "properties": { "city": { "type": "string" } }, "required": ["city"] });
    let weather = json!({ "type": "function", "name": "weather", "parameters": schema });
    let tools = json!([weather, { "type": "web_search" }, { "type": "custom", "name": "patch" },
        { "type": "namespace", "name": "mcp__maps__", "tools": [weather] }]);
    let body = json!({ "reasoning": { "effort": "none" }, "tools": tools });
    let call = |name: &str, city: &str| {
        format!(
            "<tool_call>\n<function={name}>\n<parameter=city>\n{city}\n</parameter>\n</function>\n</tool_call>"
        )
    };
    let script = format!("{}\n{}", call("weather", "Rome"), call("mcp__maps__weather", "Oslo"));
    let mut response = three_ways(&script, &body).await;
    let output = response["output"].as_array_mut().unwrap();
    for item in &mut *output {
        // Spaces in JSON are nobody's business.
        item["arguments"] = serde_json::from_str(item["arguments"].as_str().unwrap()).unwrap();
    }
    let item = |city: &str| {
        json!({ "type": "function_call", "id": null, "status": "completed", "call_id": null, "name": "weather",
            "arguments": { "city": city } })
    };
    let nested = with(&item("Oslo"), &json!({ "namespace": "mcp__maps__" }));
    assert_eq!(json!(output), json!([item("Rome"), nested]));
    assert_eq!(response["status"], "completed");
}

/// A26: a client would wait for the rest of an answer that has failed, or be told nothing.
#[tokio::test(flavor = "multi_thread")]
async fn failures_are_told() {
    let server = Setup::new(&[("fails", Script::Fails("one two three".into()))]).start();
    let off = json!({ "reasoning": { "effort": "none" } });
    let reply = server.post("/v1/responses", &ask("fails", &off)).await;
    assert_eq!((reply.status.as_u16(), &reply.json()["error"]["type"]), (500, &json!("server_error")));
    let stream = with(&off, &json!({ "stream": true }));
    let events = events(&server.post("/v1/responses", &ask("fails", &stream)).await);
    let last = &events[events.len() - 1];
    assert_eq!((&last["type"], &last["response"]["status"]), (&json!("response.failed"), &json!("failed")));
    assert_eq!(last["response"]["error"]["code"], "server_error");
    assert!(last["response"]["error"]["message"].as_str().unwrap().contains("injected"), "{last}");
    let long = server.post("/v1/responses", &ask(&"word ".repeat(9000), &off)).await;
    assert_eq!(long.json()["error"]["code"], "context_length_exceeded", "A20");
    let stored = server.post("/v1/responses", &ask("x", &json!({ "previous_response_id": "resp_1" }))).await;
    let error = &stored.json()["error"];
    assert_eq!((stored.status.as_u16(), &error["param"]), (400, &json!("previous_response_id")));
}
