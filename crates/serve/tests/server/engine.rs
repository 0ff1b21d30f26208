//! What many requests do to each other: sharing, waiting, reuse.

use std::sync::Arc;
use std::time::Duration;

use axum::response::Response;
use serde_json::{Value, json};
use serve::engine::SchedulerOptions;
use tower::ServiceExt;

use crate::scripted::{Gate, Script};
use crate::support::{Server, Setup, request, with};

fn ask(text: &str) -> Value {
    json!({ "messages": [{ "role": "user", "content": text }], "enable_thinking": false, "seed": 1 })
}

fn content(reply: &crate::support::Reply) -> String {
    reply.json()["choices"][0]["message"]["content"].as_str().unwrap().to_owned()
}

/// The answer to a streamed request, before anything of it was read.
async fn stream(server: &Server, text: &str) -> Response {
    let body = with(&ask(text), &json!({ "stream": true })).to_string();
    server.router.clone().oneshot(request("POST", "/v1/chat/completions", body)).await.unwrap()
}

async fn read(response: Response) -> String {
    let bytes = axum::body::to_bytes(response.into_body(), 1 << 26).await.unwrap();
    String::from_utf8(bytes.into()).unwrap()
}

/// A35: answers at the same time would be mixed up, made one after another, or refused although there is room.
#[tokio::test(flavor = "multi_thread")]
async fn answers_are_made_together() {
    let gate = Arc::new(Gate::default());
    let mut setup = Setup::new(&[("noise", Script::Noise(200)), ("short", Script::Text("Brief.".into()))]);
    setup.scheduling.n_parallel = 4;
    setup.stage.gate = Some(("gate".into(), gate.clone()));
    let server = setup.start();
    let prompts = ["noise one gate", "noise two", "noise three", "short"];
    let ask = |text: &'static str| {
        let server = &server;
        async move { server.chat(&ask(text)).await }
    };
    // The first one holds the model until all others wait.
    let all = async { tokio::join!(ask(prompts[0]), ask(prompts[1]), ask(prompts[2]), ask(prompts[3])) };
    let opener = async {
        while server.n_waiting() < 3 {
            tokio::task::yield_now().await;
        }
        gate.open();
    };
    let ((one, two, three, short), ()) = tokio::join!(all, opener);
    assert_eq!(content(&short), "Brief.");
    let together = [one, two, three].map(|reply| content(&reply));
    assert!(server.log.lock().unwrap().batches.contains(&3), "they share passes");
    for (text, prompt) in together.iter().zip(prompts) {
        assert_eq!(content(&ask(prompt).await), *text, "alone as among others");
    }
}

/// A35: a full server would take in work without end, or not say when to come back.
#[tokio::test(flavor = "multi_thread")]
async fn a_full_queue_says_so() {
    let gate = Arc::new(Gate::default());
    let mut setup = Setup::new(&[("hi", Script::Text("Hello.".into()))]);
    (setup.scheduling.n_parallel, setup.n_queue) = (1, 2);
    setup.stage.gate = Some(("gate".into(), gate.clone()));
    let server = Arc::new(setup.start());
    let send = |text: &'static str| {
        let server = server.clone();
        tokio::spawn(async move { server.chat(&ask(text)).await })
    };
    let first = send("hi gate");
    while server.log.lock().unwrap().n_fed == 0 {
        tokio::task::yield_now().await;
    }
    let waiting = [send("hi"), send("hi")];
    while server.n_waiting() < 2 {
        tokio::task::yield_now().await;
    }
    let refused = server.chat(&with(&ask("hi"), &json!({ "stream": true }))).await;
    assert_eq!((refused.status.as_u16(), &refused.json()["error"]["code"]), (429, &json!("queue_full")));
    assert!(refused.headers.contains_key("retry-after"));
    gate.open();
    for answer in [first].into_iter().chain(waiting) {
        assert_eq!(content(&answer.await.unwrap()), "Hello.");
    }
}

/// A36: each turn of a chat would be computed from its start, or a title would push the chat out.
#[tokio::test(flavor = "multi_thread")]
async fn a_conversation_goes_on_where_it_was() {
    let server =
        Setup::new(&[("story", Script::Text("Once.".into())), ("title", Script::Text("A.".into()))]).start();
    let story = json!({ "role": "user", "content": "story ".repeat(300) });
    let chat = |messages: Value| json!({ "messages": messages, "enable_thinking": false });
    let cached = |reply: &crate::support::Reply| {
        reply.json()["usage"]["prompt_tokens_details"]["cached_tokens"].as_u64().unwrap()
    };
    let first = server.chat(&chat(json!([story]))).await;
    assert_eq!(cached(&first), 0);
    for i in 0..3 {
        server.chat(&ask(&format!("title {i}"))).await;
    }
    let assistant = json!({ "role": "assistant", "content": "Once." });
    let second = chat(json!([story, assistant, { "role": "user", "content": "story" }]));
    let next = server.chat(&second).await;
    let n_first = first.json()["usage"]["prompt_tokens"].as_u64().unwrap();
    assert!(n_first - 64 <= cached(&next), "{} of {n_first}", cached(&next));
    // The same turn once more.
    let again = server.chat(&second).await;
    assert!(n_first - 64 <= cached(&again), "{} of {n_first}", cached(&again));
    assert_eq!((content(&next), content(&again)), ("Once.".into(), "Once.".into()));
}

/// A prompt would keep everybody else from their next token until it is done.
#[tokio::test(flavor = "multi_thread")]
async fn long_prompts_are_fed_in_pieces() {
    let mut setup = Setup::new(&[("noise", Script::Noise(300)), ("long", Script::Text("Done.".into()))]);
    setup.scheduling = SchedulerOptions { n_parallel: 2, n_chunk: 64, ..setup.scheduling };
    let server = setup.start();
    let long = "word ".repeat(2000) + "long";
    let (noise, done) =
        tokio::join!(async { server.chat(&ask("noise")).await }, async { server.chat(&ask(&long)).await });
    assert_eq!((content(&noise).len(), content(&done)), (300, "Done.".to_owned()));
}

/// Several answers to one request would wait for each other, and fail as if their client did not read.
#[tokio::test(flavor = "multi_thread")]
async fn answers_to_one_request_are_read_together() {
    let mut setup = Setup::new(&[("noise", Script::Noise(600))]);
    setup.stage.decode_time = Duration::from_millis(5);
    setup.scheduling.stall_time = Duration::from_secs(1);
    let server = setup.start();
    for path in ["/v1/chat/completions", "/v1/completions"] {
        let reply = server.post(path, &with(&ask("noise"), &json!({ "n": 2, "prompt": "noise" }))).await;
        assert_eq!(reply.status, 200, "{}", reply.body);
    }
}

/// A number that the engine's thread changes, once it does not change any more.
async fn settled(number: impl Fn() -> usize) -> usize {
    let mut last = None;
    while last != Some(number()) {
        last = Some(number());
        for _ in 0..1000 {
            tokio::task::yield_now().await;
        }
    }
    number()
}

/// A reader that is slow for a moment would get nothing until a prompt of any length is done.
#[tokio::test(flavor = "multi_thread")]
async fn a_prompt_is_fed_in_pieces_although_a_reader_is_slow() {
    let gate = Arc::new(Gate::default());
    let mut setup = Setup::new(&[("noise", Script::Noise(600)), ("long", Script::Text("Done.".into()))]);
    setup.scheduling.n_chunk = 64;
    setup.stage.gate = Some(("gate".into(), gate.clone()));
    let server = setup.start();
    let slow = stream(&server, "noise").await;
    // Nobody reads it: the engine stops when as much waits as may.
    while server.log.lock().unwrap().batches.len() < 120 {
        tokio::task::yield_now().await;
    }
    let n_before = server.log.lock().unwrap().n_fed;
    settled(|| server.log.lock().unwrap().batches.len()).await;
    let long = format!("gate {} long", "word ".repeat(2000));
    let opener = async {
        while server.log.lock().unwrap().n_fed == n_before {
            tokio::task::yield_now().await;
        }
        let n_fed = settled(|| server.log.lock().unwrap().n_fed).await - n_before;
        gate.open();
        n_fed
    };
    let ask_long = ask(&long);
    let (done, n_fed) = tokio::join!(server.chat(&ask_long), opener);
    assert_eq!(content(&done), "Done.");
    assert!(n_fed <= 64, "{n_fed} tokens were fed at once");
    assert!(read(slow).await.contains("[DONE]"), "the slow one gets its answer too");
}

/// Somebody who reads too slowly would be told that the engine has stopped.
#[tokio::test(flavor = "multi_thread")]
async fn a_slow_reader_hears_why_it_ends() {
    let mut setup = Setup::new(&[("noise", Script::Noise(600))]);
    setup.scheduling.stall_time = Duration::from_secs(1);
    let server = setup.start();
    let slow = stream(&server, "noise").await;
    while !server.get("/metrics").await.body.contains("answers_failed_total 1\n") {
        tokio::task::yield_now().await;
    }
    let text = read(slow).await;
    assert!(text.contains("the client read nothing for 1 s"), "{text}");
}
