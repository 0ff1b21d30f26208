//! An agent at work: thirty turns behind long instructions with many tools, through both APIs, with a restart in the
//! middle. The conversation is made here, from a seed.

use serde_json::{Value, json};

use crate::scripted::{Script, text_model};
use crate::support::{Server, Setup, with};

const N_TURN: usize = 30;
/// A question comes every so many turns; the others answer calls.
const N_ROUND: usize = 6;
/// Tokens of instructions and tools, at least.
const N_HEAD: usize = 20_000;
/// The server ends before this turn, and another one goes on.
const RESTART: usize = 15;
const WORDS: [&str; 24] = [
    "file", "line", "change", "small", "before", "after", "read", "write", "test", "name", "value", "list",
    "never", "always", "answer", "question", "folder", "user", "code", "result", "error", "first", "last",
    "result",
];

/// Which API the agent speaks.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Api {
    OpenAi,
    Anthropic,
}

/// Numbers that follow from a seed.
struct Random(u64);

impl Random {
    fn words(&mut self, n: usize) -> String {
        let mut word = || {
            self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            WORDS[(self.0 >> 33) as usize % WORDS.len()]
        };
        (0..n).map(|_| word()).collect::<Vec<_>>().join(" ")
    }
}

/// Instructions, and tools in the form of OpenAI's functions.
fn head() -> (String, Vec<Value>) {
    let mut random = Random(7);
    let mut tools = Vec::new();
    for name in
        ["read_file", "write_file", "edit_file", "list_folder", "search", "run_test", "ask_user", "plan"]
    {
        let path = json!({ "type": "string", "description": random.words(30) });
        let options = json!({ "type": "object", "description": random.words(30) });
        tools.push(json!({
            "name": name,
            "description": random.words(200),
            "parameters": {
                "type": "object",
                "properties": { "path": path, "options": options },
                "required": ["path"],
            },
        }));
    }
    let tokenizer = text_model();
    let n_token = |text: &str| tokenizer.tokenizer().encode_text(text).unwrap().len();
    let n_tools: usize = tools.iter().map(|tool| n_token(&tool.to_string())).sum();
    let mut text = "You work on the files of a project.".to_owned();
    while n_tools + n_token(&text) < N_HEAD {
        let n_missing = N_HEAD - n_tools - n_token(&text);
        for _ in 0..n_missing.div_ceil(200) {
            text += &format!("\n\n{}.", random.words(120));
        }
    }
    (text, tools)
}

/// What the model says in a turn, and the file that it wants to see; none at the end of a round.
fn script(turn: usize) -> (String, Option<String>) {
    let mut random = Random(100 + turn as u64);
    let thinking = random.words(30);
    if turn % N_ROUND == N_ROUND - 1 {
        return (format!("{thinking}\n</think>\n\nDone: {}.", random.words(20)), None);
    }
    let path = format!("src/part_{turn}.rs");
    let call = format!(
        "<tool_call>\n<function=read_file>\n<parameter=path>\n{path}\n</parameter>\n</function>\n</tool_call>"
    );
    (format!("{thinking}\n</think>\n\n{call}"), Some(path))
}

/// The conversation as a client of one API has it.
struct Agent {
    api: Api,
    /// A request without messages.
    base: Value,
    messages: Vec<Value>,
    /// The call that is to be answered.
    call_id: Value,
}

impl Agent {
    fn new(api: Api) -> Self {
        let (instructions, tools) = head();
        let (base, messages) = match api {
            Api::OpenAi => {
                let function = |tool: &Value| json!({ "type": "function", "function": tool });
                let tools: Vec<Value> = tools.iter().map(function).collect();
                let base = json!({ "tools": tools, "enable_thinking": true, "temperature": 0 });
                (base, vec![json!({ "role": "system", "content": instructions })])
            }
            Api::Anthropic => {
                let tool = |tool: &Value| {
                    let (name, schema) = (&tool["name"], &tool["parameters"]);
                    json!({ "name": name, "description": tool["description"], "input_schema": schema })
                };
                let mark = json!({ "type": "ephemeral" });
                let system = json!([{ "type": "text", "text": instructions, "cache_control": mark }]);
                let tools: Vec<Value> = tools.iter().map(tool).collect();
                let thinking = json!({ "type": "enabled", "budget_tokens": 1000 });
                let base = json!({
                    "model": "claude-any",
                    "max_tokens": 2000,
                    "system": system,
                    "tools": tools,
                    "thinking": thinking,
                    "temperature": 0,
                });
                (base, Vec::new())
            }
        };
        Self { api, base, messages, call_id: Value::Null }
    }

    /// The next question, or the result of the call before.
    fn say(&mut self, turn: usize) {
        let mut random = Random(1000 + turn as u64);
        let text = format!("{} [t{turn:02}]", random.words(40));
        let id = self.call_id.take();
        self.messages.push(match (self.api, id) {
            (_, Value::Null) => json!({ "role": "user", "content": text }),
            (Api::OpenAi, id) => json!({ "role": "tool", "tool_call_id": id, "content": text }),
            (Api::Anthropic, id) => {
                let result = json!({ "type": "tool_result", "tool_use_id": id, "content": text });
                json!({ "role": "user", "content": [result] })
            }
        });
    }

    /// One turn: all tokens of the prompt, and those of them that were not read again.
    async fn turn(&mut self, server: &Server, turn: usize) -> (usize, usize) {
        self.say(turn);
        let body = with(&self.base, &json!({ "messages": self.messages }));
        let path = if self.api == Api::OpenAi { "/v1/chat/completions" } else { "/v1/messages" };
        let reply = server.post(path, &body).await;
        assert_eq!(reply.status, 200, "{}", reply.body);
        let body = reply.json();
        let n = |value: &Value| value.as_u64().unwrap() as usize;
        let usage = &body["usage"];
        let (_, expected) = script(turn);
        match self.api {
            Api::OpenAi => {
                let mut answer = body["choices"][0]["message"].clone();
                let call = &answer["tool_calls"][0];
                let arguments = expected.map(|path| json!({ "path": path }).to_string());
                assert_eq!(call["function"]["arguments"].as_str(), arguments.as_deref(), "turn {turn}");
                self.call_id = call["id"].clone();
                // As most clients do.
                answer.as_object_mut().unwrap().remove("reasoning_content");
                self.messages.push(answer);
                (n(&usage["prompt_tokens"]), n(&usage["prompt_tokens_details"]["cached_tokens"]))
            }
            Api::Anthropic => {
                let last = body["content"].as_array().unwrap().last().unwrap();
                assert_eq!(last["input"]["path"].as_str(), expected.as_deref(), "turn {turn}");
                self.call_id = last["id"].clone();
                self.messages.push(json!({ "role": "assistant", "content": body["content"] }));
                let kinds = ["input_tokens", "cache_read_input_tokens", "cache_creation_input_tokens"];
                (kinds.map(|kind| n(&usage[kind])).iter().sum(), n(&usage["cache_read_input_tokens"]))
            }
        }
    }
}

/// Agents send their whole conversation with every turn: nearly all of it would be read again, or all of it once more
/// when the server was started anew.
#[tokio::test(flavor = "multi_thread")]
async fn an_agents_turns_are_read_once() {
    let scripts: Vec<(String, Script)> =
        (0..N_TURN).map(|turn| (format!("[t{turn:02}]"), Script::Text(script(turn).0))).collect();
    let scripts: Vec<(&str, Script)> = scripts.iter().map(|(key, s)| (key.as_str(), s.clone())).collect();
    for api in [Api::OpenAi, Api::Anthropic] {
        let folder = tempfile::tempdir().unwrap();
        let start = || {
            let mut setup = Setup::new(&scripts).n_ctx(40_000).on_disk(folder.path());
            setup.scheduling.n_parallel = 1;
            setup.start()
        };
        let (mut server, mut agent) = (start(), Agent::new(api));
        let (mut n_all, mut n_all_cached, mut n_after_restart) = (0, 0, 0);
        for turn in 0..N_TURN {
            if turn == RESTART {
                drop(server);
                server = start();
            }
            let (n_prompt, n_cached) = agent.turn(&server, turn).await;
            assert!(N_HEAD <= n_prompt, "{n_prompt}");
            if 0 < turn {
                (n_all, n_all_cached) = (n_all + n_prompt, n_all_cached + n_cached);
            }
            if turn == RESTART {
                n_after_restart = n_prompt - n_cached;
            }
        }
        let share = n_all_cached as f64 / n_all as f64;
        println!(
            "{api:?}: {n_all_cached} of {n_all} tokens were not read again, {:.2} %; {n_after_restart} right after \
             the restart",
            share * 100.0
        );
        assert!(0.98 <= share, "{api:?}: {share}");
        let metrics = server.get("/metrics").await.body;
        let disk = metrics.lines().find_map(|line| line.strip_prefix("flash_moe_prefix_read_bytes_total "));
        assert!(
            disk.is_some_and(|n| 100_000 < n.parse::<u64>().unwrap()),
            "it came from the disk: {metrics}"
        );
    }
}
