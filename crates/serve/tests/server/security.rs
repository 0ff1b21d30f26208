//! Who may ask, from where, and how much.

use axum::body::Body;
use axum::http::Request;
use serde_json::json;
use serve::{Keys, Origins};

use crate::scripted::Script;
use crate::support::{Server, Setup, request};

const CHAT: &str = "/v1/chat/completions";

fn hello() -> String {
    json!({ "messages": [{ "role": "user", "content": "hi" }], "enable_thinking": false }).to_string()
}

fn server(change: impl FnOnce(&mut Setup)) -> Server {
    let mut setup = Setup::new(&[("hi", Script::Text("Hello.".into()))]);
    change(&mut setup);
    setup.start()
}

fn chat(headers: &[(&str, &str)]) -> Request<Body> {
    let mut request = request("POST", CHAT, hello());
    for (name, value) in headers {
        let name: axum::http::HeaderName = name.parse().unwrap();
        request.headers_mut().insert(name, value.parse().unwrap());
    }
    request
}

/// Somebody without the key would be answered, or somebody with it would not.
#[tokio::test(flavor = "multi_thread")]
async fn keys_open_the_server() {
    let server =
        server(|setup| setup.options.keys = Keys::new(["secret".into(), String::new(), "other".into()]));
    let cases: [(&[(&str, &str)], u16); 11] = [
        (&[], 401),
        (&[("authorization", "Bearer secret")], 200),
        (&[("authorization", "bearer  other")], 200),
        (&[("x-api-key", "secret")], 200),
        (&[("authorization", "Bearer for another"), ("x-api-key", "secret")], 200),
        (&[("authorization", "Bearer secre")], 401),
        (&[("authorization", "Bearer secrets")], 401),
        (&[("authorization", "Bearer ")], 401),
        (&[("authorization", "Basic secret")], 401),
        (&[("x-api-key", "")], 401),
        // With a key, the name of the host does not matter.
        (&[("x-api-key", "secret"), ("host", "evil.example")], 200),
    ];
    for (headers, status) in cases {
        let reply = server.send(chat(headers)).await;
        assert_eq!(reply.status.as_u16(), status, "{headers:?}");
        if status == 401 {
            assert_eq!(reply.json()["error"]["code"], "invalid_api_key");
            assert!(!reply.body.contains("secret"));
        }
    }
    assert_eq!(server.get("/health").await.status, 200);
    for path in ["/metrics", "/v1/models", "/models"] {
        assert_eq!(server.get(path).await.status, 401, "{path}");
    }
    let markdown = json!({ "markdown": "*a*" });
    assert_eq!(server.post("/web/render", &markdown).await.status, 401, "it takes work");
    assert_eq!(server.get("/").await.status, 200);
    assert_eq!(format!("{:?}", Keys::new(["secret".into()])), "Keys(1)");
}

/// A24: a page on this machine could not ask with a key.
#[tokio::test(flavor = "multi_thread")]
async fn preflights_need_no_key() {
    let server = server(|setup| setup.options.keys = Keys::new(["k".into()]));
    let mut preflight = request("OPTIONS", CHAT, String::new());
    for (name, value) in [
        ("origin", "http://localhost:3000"),
        ("access-control-request-method", "POST"),
        ("access-control-request-headers", "authorization,content-type"),
    ] {
        preflight.headers_mut().insert(name, value.parse().unwrap());
    }
    let reply = server.send(preflight).await;
    assert!(reply.status.is_success(), "{}", reply.status);
    let header = |name: &str| reply.headers.get(name).map(|value| value.to_str().unwrap().to_lowercase());
    assert!(header("access-control-allow-headers").is_some_and(|names| names.contains("authorization")));
    assert_eq!(header("access-control-allow-origin").as_deref(), Some("http://localhost:3000"));
    let reply = server.send(chat(&[("origin", "http://localhost:3000")])).await;
    assert_eq!(reply.status, 401);
    assert_eq!(reply.json()["error"]["type"], "authentication_error");
    assert!(reply.headers.contains_key("access-control-allow-origin"), "the page may read the error");
}

/// A web page anywhere would use the model of everybody who opens it (DNS rebinding, cross-site requests).
#[tokio::test(flavor = "multi_thread")]
async fn foreign_pages_are_refused() {
    let server = server(|setup| {
        let (hosts, origins) = (vec!["Box.lan".into()], vec!["https://chat.example.org".into()]);
        setup.options.origins = Origins { hosts, origins };
    });
    let cases: [(&[(&str, &str)], u16); 14] = [
        (&[("host", "localhost:8080")], 200),
        (&[("host", "127.0.0.1:8080")], 200),
        (&[("host", "[::1]:8080")], 200),
        (&[("host", "app.localhost")], 200),
        (&[("host", "192.168.1.4:8080")], 200),
        (&[("host", "box.lan:8080")], 200),
        (&[("host", "evil.example:8080")], 403),
        (&[("host", "localhost.evil.example")], 403),
        (&[("origin", "http://localhost:8080")], 200),
        (&[("origin", "https://chat.example.org")], 200),
        (&[("origin", "https://evil.example")], 403),
        (&[("origin", "https://localhost.evil.example")], 403),
        (&[("origin", "null")], 403),
        (&[("host", "box.lan:8080"), ("origin", "http://box.lan:8080")], 200),
    ];
    for (headers, status) in cases {
        assert_eq!(server.send(chat(headers)).await.status.as_u16(), status, "{headers:?}");
    }
    let mut nameless = chat(&[]);
    nameless.headers_mut().remove("host");
    assert_eq!(server.send(nameless).await.status, 400);
}

/// One request could take all memory, or a stack.
#[tokio::test(flavor = "multi_thread")]
async fn what_a_client_sends_is_bounded() {
    let server = server(|setup| {
        let limits = &mut setup.options.limits;
        (limits.body_bytes, limits.n_message, limits.n_tool, limits.grammar_bytes) = (20_000, 10, 3, 100);
    });
    let post = |body: String| async { server.send(request("POST", CHAT, body)).await };
    let messages = |n: usize| json!({ "messages": vec![json!({ "role": "user", "content": "hi" }); n] });
    let with = |key: &str, value: serde_json::Value| {
        let mut body = messages(1);
        body[key] = value;
        body.to_string()
    };
    let tool = json!({ "type": "function", "function": { "name": "f" } });
    let schema = json!({ "type": "json_schema", "json_schema": { "schema": { "title": "x".repeat(200) } } });
    let cases = [
        (format!("{}\"a\"{}", "[".repeat(9000), "]".repeat(9000)), 400),
        (format!("{{\"messages\": {}", "[".repeat(5000)), 400),
        (with("messages", json!("x".repeat(30_000))), 413),
        (messages(11).to_string(), 400),
        (with("tools", json!(vec![tool; 4])), 400),
        (with("response_format", schema), 400),
        (with("stop", json!(vec!["a"; 17])), 400),
        ("[]".into(), 400),
        ("".into(), 400),
        ("{\"messages\": \u{0}".into(), 400),
        (hello(), 200),
    ];
    for (body, status) in cases {
        let start: String = body.chars().take(60).collect();
        let reply = post(body).await;
        assert_eq!(reply.status.as_u16(), status, "{start}: {}", reply.body);
        assert!(status == 200 || reply.json()["error"]["message"].is_string());
    }
}
