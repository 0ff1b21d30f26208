//! What many requests do to each other: sharing, waiting, reuse.

use std::sync::Arc;

use serde_json::{Value, json};
use serve::engine::SchedulerOptions;

use crate::scripted::{Gate, Script};
use crate::support::{Setup, with};

fn ask(text: &str) -> Value {
    json!({ "messages": [{ "role": "user", "content": text }], "enable_thinking": false, "seed": 1 })
}

fn content(reply: &crate::support::Reply) -> String {
    reply.json()["choices"][0]["message"]["content"].as_str().unwrap().to_owned()
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
