//! The OpenAPI document against the server that it describes.

use serde_json::{Value, json};

use crate::scripted::Script;
use crate::support::Setup;

/// Tools that drive the server by its document would ask for what is not there, or miss what is.
#[tokio::test(flavor = "multi_thread")]
async fn what_is_described_is_there() {
    let server = Setup::new(&[("hi", Script::Text("Hello".into()))]).start();
    let document = server.get("/openapi.json").await.json();
    assert!(document["openapi"].as_str().unwrap().starts_with("3."));
    let hello = json!([{ "role": "user", "content": "hi" }]);
    let bodies = [
        ("/v1/chat/completions", json!({ "messages": hello })),
        ("/v1/completions", json!({ "prompt": "hi", "max_tokens": 2 })),
        ("/v1/responses", json!({ "input": "hi" })),
        ("/v1/messages", json!({ "model": "m", "max_tokens": 9, "messages": hello })),
        ("/v1/messages/count_tokens", json!({ "model": "m", "messages": hello })),
        ("/v1/embeddings", json!({})),
        ("/tokenize", json!({ "content": "hi" })),
        ("/detokenize", json!({ "tokens": [1] })),
    ];
    let mut n_post = 0;
    for (path, operations) in document["paths"].as_object().unwrap() {
        for (method, operation) in operations.as_object().unwrap() {
            let reply = if method == "post" {
                n_post += 1;
                let (_, body) = bodies.iter().find(|(known, _)| known == path).expect("a body for it");
                server.post(path, body).await
            } else {
                server.get(&path.replace("{name}", "org/model")).await
            };
            let status = reply.status.as_u16().to_string();
            assert_eq!(
                status,
                if path == "/v1/embeddings" { "400" } else { "200" },
                "{path}: {}",
                reply.body
            );
            let described = &operation["responses"][&status]["content"];
            let kind = reply.headers["content-type"].to_str().unwrap().split(';').next().unwrap();
            let schema = &described[kind]["schema"];
            assert!(schema.is_object(), "{path}: {kind} is not described");
            if kind == "application/json" {
                check_required(path, &document, schema, &reply.json());
            }
        }
    }
    assert_eq!(n_post, bodies.len(), "every body is of a described address");
}

/// What a schema requires is there, at the top and in objects below it.
fn check_required(place: &str, document: &Value, schema: &Value, value: &Value) {
    let schema = match schema["$ref"].as_str() {
        Some(reference) => document.pointer(&reference[1..]).unwrap(),
        None => schema,
    };
    for name in schema["required"].as_array().into_iter().flatten() {
        let name = name.as_str().unwrap();
        let inner = value.get(name).unwrap_or_else(|| panic!("{place}: {name} is missing: {value}"));
        check_required(&format!("{place}.{name}"), document, &schema["properties"][name], inner);
    }
    if let (Some(first), items @ Value::Object(_)) = (value.get(0), &schema["items"]) {
        check_required(&format!("{place}[0]"), document, items, first);
    }
}
