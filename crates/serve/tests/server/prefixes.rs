//! What of a prompt is not read again, and that the answer is the same for it.

use std::sync::Arc;

use prefix::Cache;
use serde_json::{Value, json};

use crate::scripted::{Gate, Script, Scripted};
use crate::support::{Reply, Server, Setup, with};

/// Tokens of the opening of an answer, which histories have in another form.
const N_OPENING: usize = 12;

/// Tokens of the prompt, and those of them that were not read again.
fn usage(reply: &Reply) -> (usize, usize) {
    assert_eq!(reply.status, 200, "{}", reply.body);
    let usage = reply.json()["usage"].take();
    let n = |value: &Value| value.as_u64().unwrap() as usize;
    (n(&usage["prompt_tokens"]), n(&usage["prompt_tokens_details"]["cached_tokens"]))
}

fn content(reply: &Reply) -> String {
    reply.json()["choices"][0]["message"]["content"].as_str().unwrap_or_default().to_owned()
}

fn message(role: &str, text: impl Into<String>) -> Value {
    json!({ "role": role, "content": text.into() })
}

/// A question without thinking, answered in the same way each time.
fn ask(messages: &[Value]) -> Value {
    json!({ "messages": messages, "enable_thinking": false, "temperature": 0, "seed": 1 })
}

/// So many words that no other seed gives.
fn words(seed: usize, n: usize) -> String {
    let word =
        |i: usize| ["tree", "road", "lamp", "fish", "moon", "salt"][(seed * 31 + i * i + i * seed) % 6];
    (0..n).map(word).collect::<Vec<_>>().join(" ")
}

fn noise(n: usize) -> Setup {
    Setup::new(&[("[noise]", Script::Noise(n))]).n_ctx(16_384)
}

/// The same requests, one after another, to a server that keeps nothing.
async fn cold_answers(setup: Setup, bodies: &[Value]) -> Vec<String> {
    let server = Setup { cache: None, ..setup }.start();
    let mut answers = Vec::new();
    for body in bodies {
        let reply = server.chat(body).await;
        assert_eq!(usage(&reply).1, 0, "nothing is kept");
        answers.push(content(&reply));
    }
    answers
}

/// C01: a prompt that was read a moment ago would be read as a whole again.
#[tokio::test(flavor = "multi_thread")]
async fn the_same_prompt_is_read_once() {
    let server = noise(20).start();
    let body = ask(&[message("user", words(1, 3000) + "[noise]")]);
    let (first, second) = (server.chat(&body).await, server.chat(&body).await);
    let n_fed = server.log.lock().unwrap().n_fed;
    let ((n_prompt, n_before), (_, n_cached)) = (usage(&first), usage(&second));
    assert_eq!((n_before, content(&first).len()), (0, 20));
    assert!(n_prompt - N_OPENING <= n_cached, "{n_cached} of {n_prompt}");
    assert_eq!((n_fed, content(&second)), (2 * n_prompt - n_cached, content(&first)));
}

/// C01: a prompt without a conversation, whose every token is known, would be read again for its last logits.
#[tokio::test(flavor = "multi_thread")]
async fn a_known_prompt_is_not_read_at_all() {
    let server = noise(20).start();
    let body = json!({ "prompt": words(2, 500) + "[noise]", "temperature": 0, "max_tokens": 40, "seed": 1 });
    let mut texts = Vec::new();
    for is_first in [true, false, false] {
        let n_before = server.log.lock().unwrap().n_fed;
        let reply = server.post("/v1/completions", &body).await;
        let (n_prompt, n_cached) = usage(&reply);
        assert_eq!(n_cached, if is_first { 0 } else { n_prompt });
        assert_eq!(server.log.lock().unwrap().n_fed - n_before, n_prompt - n_cached);
        texts.push(reply.json()["choices"][0]["text"].take());
    }
    assert!(texts[0].as_str().is_some_and(|text| text.len() == 20), "{texts:?}");
    assert!(texts.iter().all(|text| *text == texts[0]), "{texts:?}");
    // As chunks, with progress: the prompt is done at once.
    let stream = with(&body, &json!({ "stream": true, "return_progress": true }));
    let events = server.post("/v1/completions", &stream).await.events();
    let progress = events.iter().find(|event| event["prompt_progress"].is_object()).unwrap();
    assert_eq!(progress["prompt_progress"]["processed"], progress["prompt_progress"]["total"]);
}

/// C02: conversations that begin with the same instructions would read them each for itself.
#[tokio::test(flavor = "multi_thread")]
async fn heads_are_shared() {
    for n_word in [1500, 20] {
        let system = message("system", words(3, n_word));
        let question = |text: &str| ask(&[system.clone(), message("user", text.to_owned() + "[noise]")]);
        let bodies = [question("What is A? "), question("And B? "), question("What is A? ")];
        let cold = cold_answers(noise(20), &bodies).await;
        let server = noise(20).start();
        for (i, body) in bodies.iter().enumerate() {
            let reply = server.chat(body).await;
            assert_eq!(content(&reply), cold[i]);
            let (n_prompt, n_cached) = usage(&reply);
            if n_word == 1500 {
                let least = [0, n_prompt - 40, n_prompt - N_OPENING][i];
                assert!(least <= n_cached, "question {i}: {n_cached} of {n_prompt}");
            }
        }
    }
}

/// A chat of ten questions, answered one after another: all messages, and the tokens of each prompt.
async fn chat(server: &Server, thinking: bool) -> (Vec<Value>, Vec<usize>) {
    let mut messages = vec![message("system", words(4, 100))];
    let mut n_prompts: Vec<usize> = Vec::new();
    for turn in 0..10 {
        messages.push(message("user", format!("{} {turn} [noise]", words(5 + turn, 120))));
        let reply = server.chat(&with(&ask(&messages), &json!({ "enable_thinking": thinking }))).await;
        let (n_prompt, n_cached) = usage(&reply);
        let before = n_prompts.last().map_or(0, |n| n - N_OPENING);
        assert!(before <= n_cached, "turn {turn}: {n_cached} of {n_prompt}");
        n_prompts.push(n_prompt);
        messages.push(message("assistant", content(&reply)));
    }
    (messages, n_prompts)
}

/// C03, C05: after a change in the middle, or without one, the conversation would be read from its start.
#[tokio::test(flavor = "multi_thread")]
async fn edits_go_on_from_before_the_change() {
    let server = noise(20).start();
    let (messages, n_prompts) = chat(&server, false).await;
    // Message 0 is the system's; questions have odd numbers.
    let mut regenerated = messages.clone();
    regenerated.pop();
    let mut edited = messages[..=9].to_vec();
    edited[7] = message("user", "Something else. [noise]");
    let mut edited_answer = messages[..=9].to_vec();
    edited_answer[8] = message("assistant", "Not that.");
    let mut deleted = messages[..=19].to_vec();
    deleted.drain(5..=6);
    let bodies = [ask(&regenerated), ask(&edited), ask(&edited_answer), ask(&deleted)];
    let cold = cold_answers(noise(20), &bodies).await;
    let n_least = [n_prompts[9], n_prompts[2], n_prompts[3], n_prompts[1]];
    for (i, body) in bodies.iter().enumerate() {
        let reply = server.chat(body).await;
        let (n_prompt, n_cached) = usage(&reply);
        assert!(n_least[i] - N_OPENING <= n_cached, "edit {i}: {n_cached} of {n_prompt}, not {}", n_least[i]);
        assert_eq!(content(&reply), cold[i], "edit {i}");
    }
}

/// C04: with thinking, which templates drop when the next question comes, each turn would be read from its start.
#[tokio::test(flavor = "multi_thread")]
async fn dropped_thinking_costs_its_own_turn_only() {
    let thought = format!("{}\n</think>\n\nParis.", words(6, 300));
    let server = Setup::new(&[("capital", Script::Text(thought)), ("[noise]", Script::Noise(8))]).start();
    let question = message("user", words(7, 600) + " capital?");
    let on = |messages: &[Value]| with(&ask(messages), &json!({ "enable_thinking": true }));
    let first = server.chat(&on(std::slice::from_ref(&question))).await;
    let (n_first, _) = usage(&first);
    let answer = first.json()["choices"][0]["message"].take();
    assert!(answer["reasoning_content"].is_string() && answer["content"] == "Paris.", "{answer}");
    for answer in [message("assistant", "Paris."), answer] {
        let next = on(&[question.clone(), answer, message("user", "And [noise]?")]);
        let (n_prompt, n_cached) = usage(&server.chat(&next).await);
        assert!(n_first - N_OPENING <= n_cached, "{n_cached} of {n_prompt}, {n_first} before");
        assert!(n_prompt < n_first + 60, "the thinking is not in it");
    }
}

/// C04: in a round of calls, where templates show thinking, an agent that sends it back would still have its turns read
/// again.
#[tokio::test(flavor = "multi_thread")]
async fn a_round_of_calls_goes_on_with_its_thinking() {
    let call = "<tool_call>\n<function=ls>\n<parameter=path>\nsrc\n</parameter>\n</function>\n</tool_call>";
    let thought = format!("{}\n</think>\n\n{call}", words(8, 300));
    let server = Setup::new(&[("list", Script::Text(thought)), ("main.rs", Script::Noise(8))]).start();
    let tools = json!([{ "type": "function", "function": { "name": "ls", "parameters": {
        "type": "object", "properties": { "path": { "type": "string" } }, "required": ["path"],
    } } }]);
    let on = json!({ "enable_thinking": true, "tools": tools });
    let question = message("user", words(9, 600) + " list");
    let first = server.chat(&with(&ask(std::slice::from_ref(&question)), &on)).await;
    let n_generated = first.json()["usage"]["completion_tokens"].as_u64().unwrap() as usize;
    let answer = first.json()["choices"][0]["message"].take();
    let id = answer["tool_calls"][0]["id"].clone();
    let result = json!({ "role": "tool", "tool_call_id": id, "content": "main.rs" });
    let next = server.chat(&with(&ask(&[question, answer, result]), &on)).await;
    let ((n_first, _), (_, n_cached)) = (usage(&first), usage(&next));
    assert!(n_first + n_generated - 2 <= n_cached, "{n_cached} of {n_first} and {n_generated}");
    assert_eq!(next.json()["timings"]["cache_source"], "session");
}

/// C10: titles and sub-agents would push the main conversation out, with one session and little memory.
#[tokio::test(flavor = "multi_thread")]
async fn small_prompts_do_not_push_out_the_main_one() {
    let mut setup = noise(20);
    setup.scheduling.n_parallel = 1;
    setup.cache = Some(Cache::new(Scripted::identity(), 64 << 10));
    let server = setup.start();
    let main = [message("system", words(10, 2000)), message("user", words(11, 1500) + "[noise]")];
    let first = server.chat(&ask(&main)).await;
    for i in 0..12 {
        server.chat(&ask(&[message("user", format!("A title for {} [noise]", words(20 + i, 100)))])).await;
    }
    let agent = [message("system", words(12, 800)), message("user", words(13, 200) + "[noise]")];
    server.chat(&ask(&agent)).await;
    let more = [message("assistant", content(&first)), message("user", "Go on. [noise]")];
    let next = server.chat(&ask(&[&main[..], &more].concat())).await;
    let ((n_first, _), (n_next, n_cached)) = (usage(&first), usage(&next));
    assert!(n_first - N_OPENING <= n_cached, "{n_cached} of {n_next}");
    assert_eq!(next.json()["timings"]["cache_source"], "memory");
}

/// C10: agents that are started together would each read the instructions that they share.
#[tokio::test(flavor = "multi_thread")]
async fn prompts_that_begin_alike_are_read_together() {
    let gate = Arc::new(Gate::default());
    let mut setup = noise(20);
    (setup.scheduling.n_parallel, setup.scheduling.n_chunk) = (4, 256);
    setup.stage.gate = Some(("gate".into(), gate.clone()));
    let server = setup.start();
    let system = message("system", words(12, 3000));
    let agent =
        |name: &str| ask(&[system.clone(), message("user", format!("{name} {} [noise]", words(3, 100)))]);
    let (first, bodies) = (ask(&[message("user", "gate")]), ["one", "two", "three"].map(agent));
    // The first one holds the model until all others wait.
    let all = async {
        let [one, two, three] = &bodies;
        tokio::join!(server.chat(&first), server.chat(one), server.chat(two), server.chat(three))
    };
    let opener = async {
        while server.n_waiting() < 3 {
            tokio::task::yield_now().await;
        }
        gate.open();
    };
    let ((_, one, two, three), ()) = tokio::join!(all, opener);
    let n_fed = server.log.lock().unwrap().n_fed;
    let (n_prompt, n_cached) = [&one, &two, &three]
        .map(usage)
        .iter()
        .fold((0, 0), |(n, cached), (n_prompt, n_cached)| (n + n_prompt, cached + n_cached));
    assert!(6000 <= n_cached && n_fed < 4500, "{n_cached} of {n_prompt}, {n_fed} were fed");
    let cold = cold_answers(noise(20), &bodies).await;
    assert_eq!([one, two, three].map(|reply| content(&reply)).to_vec(), cold);
}

/// A client's name for a conversation would have no effect: with no room for anything but sessions, a prompt of one
/// conversation would take the session of another.
#[tokio::test(flavor = "multi_thread")]
async fn a_conversation_takes_its_own_session() {
    for (key, source) in [(json!("a"), json!("session")), (Value::Null, Value::Null)] {
        let mut setup = Setup::new(&[("[yes]", Script::Text("Yes, that is so.".into()))]);
        setup.cache = Some(Cache::new(Scripted::identity(), 0));
        let server = setup.start();
        let say = async |messages: &[Value], key: &Value| {
            let reply = server.chat(&with(&ask(messages), &json!({ "prompt_cache_key": key }))).await;
            (content(&reply), reply.json()["timings"]["cache_source"].take())
        };
        let question = |seed: usize, n: usize| message("user", words(seed, n) + "[yes]");
        say(&[question(21, 800)], &json!("a")).await;
        let short = question(22, 300);
        let (answer, _) = say(std::slice::from_ref(&short), &json!("b")).await;
        say(&[question(23, 300)], &key).await;
        // The answer goes on.
        let next = say(&[short, message("assistant", answer + " And")], &json!("b")).await;
        assert_eq!(next.1, source, "{key}");
    }
}

/// C11: white space that a client trims would cost the whole conversation.
#[tokio::test(flavor = "multi_thread")]
async fn trimmed_white_space_costs_one_answer() {
    let server =
        Setup::new(&[("spaces", Script::Text("Well.  \n\n\n".into())), ("[noise]", Script::Noise(8))])
            .start();
    let question = message("user", words(14, 600) + " spaces");
    let (n_first, _) = usage(&server.chat(&ask(std::slice::from_ref(&question))).await);
    let next = ask(&[question, message("assistant", "Well."), message("user", "[noise]")]);
    let (n_prompt, n_cached) = usage(&server.chat(&next).await);
    assert!(n_first - N_OPENING <= n_cached, "{n_cached} of {n_prompt}, {n_first} before");
}

/// C13: an answer that goes on from something kept would be another one than from the start.
#[tokio::test(flavor = "multi_thread")]
async fn hits_do_not_change_answers() {
    const N_PROMPT: usize = 50;
    let raw = |text: String| json!({ "prompt": text, "temperature": 0, "max_tokens": 64, "seed": 1 });
    let text = async |server: &Server, body: &Value| {
        let reply = server.post("/v1/completions", body).await;
        (reply.json()["choices"][0]["text"].take(), usage(&reply).1)
    };
    let prompts: Vec<String> = (0..N_PROMPT).map(|i| words(i * 7 + 1, 40 + i * 13) + " [noise]").collect();
    let cold_server = Setup { cache: None, ..noise(64) }.start();
    let server = noise(64).start();
    let mut n_hit = 0;
    for (i, prompt) in prompts.iter().enumerate() {
        let (cold, _) = text(&cold_server, &raw(prompt.clone())).await;
        // Something that parts from it at various points, and something that ends there.
        for share in [1 + i % 5, 2 + i % 4] {
            let cut = prompt.len() * share / 6;
            text(&server, &raw(prompt[..cut].to_owned())).await;
            text(&server, &raw(format!("{} and [noise]", &prompt[..cut]))).await;
        }
        for _ in 0..2 {
            let (warm, n_cached) = text(&server, &raw(prompt.clone())).await;
            assert_eq!(warm, cold, "prompt {i}");
            n_hit += usize::from(0 < n_cached);
        }
    }
    assert!(N_PROMPT < n_hit, "{n_hit} of {} prompts hit", 2 * N_PROMPT);
}

/// C17: tools would be put into an order of our own, which the model was not asked for; or the same tools in another
/// order would be taken for what is kept.
#[tokio::test(flavor = "multi_thread")]
async fn tools_are_kept_in_the_order_they_came() {
    let tool = |name: &str, keys: [&str; 2]| {
        let properties = json!({ keys[0]: { "type": "string" }, keys[1]: { "type": "string" } });
        json!({ "type": "function", "function": {
            "name": name, "description": words(9, 300), "parameters": { "type": "object", "properties": properties },
        } })
    };
    let (a, b, b_turned) = (tool("a", ["x", "y"]), tool("b", ["x", "y"]), tool("b", ["y", "x"]));
    let body = |tools: &[&Value]| {
        with(&ask(&[message("user", "[noise]")]), &json!({ "tools": tools, "tool_choice": "none" }))
    };
    let server = noise(20).start();
    let (n_prompt, _) = usage(&server.chat(&body(&[&a, &b])).await);
    for (tools, is_same) in [([&a, &b], true), ([&a, &b_turned], false), ([&b, &a], false)] {
        let reply = server.chat(&body(&tools)).await;
        let (n, n_cached) = usage(&reply);
        assert_eq!((n, content(&reply).len()), (n_prompt, 20));
        assert_eq!(n - N_OPENING <= n_cached, is_same, "{n_cached} of {n}");
    }
}

/// C21: a front end that drops the oldest messages would have its instructions read with every turn.
#[tokio::test(flavor = "multi_thread")]
async fn instructions_stay_when_old_messages_go() {
    let server = noise(20).start();
    let system = message("system", words(15, 800));
    let turns: Vec<Value> = (0..12)
        .flat_map(|i| {
            [message("user", format!("{} [noise]", words(30 + i, 60))), message("assistant", "Yes.")]
        })
        .collect();
    let window = |start: usize| [std::slice::from_ref(&system), &turns[start..start + 9]].concat();
    let (n_prompt, _) = usage(&server.chat(&ask(&window(0))).await);
    let head = ask(&[system.clone(), message("user", "?")]);
    let n_head = usage(&server.chat(&head).await).0 - 20;
    for start in [2, 4, 6] {
        let (_, n_cached) = usage(&server.chat(&ask(&window(start))).await);
        assert!(n_head <= n_cached, "{n_cached} of {n_prompt}, {n_head} are the head");
    }
}

/// With the cache turned off something would be reused all the same, or nobody would learn why nothing is.
#[tokio::test(flavor = "multi_thread")]
async fn without_a_cache_nothing_is_reused() {
    let mut setup = noise(20);
    setup.cache = None;
    let server = setup.start();
    let question = message("user", words(16, 200) + "[noise]");
    let first = server.chat(&ask(std::slice::from_ref(&question))).await;
    let more = [question, message("assistant", content(&first)), message("user", "Go on. [noise]")];
    let next = server.chat(&ask(&more)).await;
    assert_eq!((usage(&first).1, usage(&next).1), (0, 0));
    let timings = next.json()["timings"].take();
    assert_eq!((&timings["cache_source"], &timings["cache_missed"]), (&Value::Null, &json!("off")));
    let metrics = server.get("/metrics").await.body;
    assert!(metrics.contains("flash_moe_prefix_misses_total{reason=\"off\"} 2\n"), "{metrics}");
}

/// C20: nobody could see what was reused, from where, and why it is not more.
#[tokio::test(flavor = "multi_thread")]
async fn hits_and_misses_are_counted() {
    let server = noise(20).start();
    let text = words(17, 400);
    let why = async |text: &str| {
        let body = json!({ "prompt": format!("{text}[noise]"), "temperature": 0, "max_tokens": 8 });
        let timings = server.post("/v1/completions", &body).await.json()["timings"].take();
        (timings["cache_source"].clone(), timings["cache_missed"].clone())
    };
    assert_eq!(why(&text).await, (Value::Null, json!("empty")));
    assert_eq!(why(&text).await, (json!("memory"), Value::Null));
    assert_eq!(why(&words(18, 300)).await, (Value::Null, json!("differs")));
    let metrics = server.get("/metrics").await.body;
    for line in [
        "flash_moe_prefix_hits_total{source=\"memory\"} 1\n",
        "flash_moe_prefix_misses_total{reason=\"empty\"} 1\n",
        "flash_moe_prefix_misses_total{reason=\"differs\"} 1\n",
        "flash_moe_prefix_evictions_total 0\n",
        "flash_moe_prefix_disk_bytes 0\n",
    ] {
        assert!(metrics.contains(line), "{line}: {metrics}");
    }
    let memory = metrics.lines().find_map(|line| line.strip_prefix("flash_moe_prefix_memory_bytes "));
    assert!(memory.is_some_and(|n| n.parse::<u64>().unwrap() > 3200), "{metrics}");
}

/// C08: a server that was started anew would read every conversation from its start.
#[tokio::test(flavor = "multi_thread")]
async fn a_restart_loses_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let question = message("user", words(19, 2000) + "[noise]");
    let first = noise(20).on_disk(folder.path()).start().chat(&ask(std::slice::from_ref(&question))).await;
    let next = ask(&[question, message("assistant", content(&first)), message("user", "Go on. [noise]")]);
    let cold = cold_answers(noise(20), std::slice::from_ref(&next)).await;
    let server = noise(20).on_disk(folder.path()).start();
    let reply = server.chat(&next).await;
    let ((n_first, _), (n_prompt, n_cached)) = (usage(&first), usage(&reply));
    assert!(n_first - N_OPENING <= n_cached, "{n_cached} of {n_prompt}");
    assert_eq!(
        (content(&reply), reply.json()["timings"]["cache_source"].take()),
        (cold[0].clone(), json!("disk"))
    );
}
