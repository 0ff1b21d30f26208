//! `POST /v1/chat/completions`

use std::collections::VecDeque;

use axum::Json;
use axum::extract::State;
use axum::response::sse::Event;
use axum::response::{IntoResponse, Response};
use generate::{Channel, ChatRequest};
use serde_json::{Map, Value, json};

use super::request::{response_format, wishes};
use super::{Usage, messages, timings_json};
use crate::api::answer::{Answer, Call, Source, Wishes, finish_reason};
use crate::api::fields::Fields;
use crate::api::skipped::Skipped;
use crate::api::thinking::Thinking;
use crate::api::tokens::{OpenTokens, chat_logprobs};
use crate::app::App;
use crate::engine::{CallUpdate, Done, Failure, Update, Updates};
use crate::error::ApiError;
use crate::limits::{JsonBody, Limits};
use crate::{id, sse};

/// Asks for one or several answers to a conversation.
pub(crate) async fn chat_completions(
    State(app): State<App>,
    JsonBody(body): JsonBody,
) -> Result<Response, ApiError> {
    let fields = Fields::of(&body);
    let (chat, wishes) = read(&fields, &app)?;
    let style = Style::read(&fields, &app)?;
    let is_stream = fields.bool("stream")?.unwrap_or(false);
    drop(body);
    let asked = app.prepare(Source::Chat(Box::new(chat)), wishes).await?;
    let updates = app.submit(asked.jobs)?;
    let frame = Frame::new(&app);
    if !is_stream {
        return whole(&app, updates, &frame, &style).await;
    }
    let choices = updates.iter().map(|_| Choice::default()).collect();
    let encoder = ChatEncoder {
        app: app.clone(),
        frame,
        style,
        choices,
        usage: Usage::default(),
        timings: Value::Null,
    };
    Ok(sse::respond(updates, encoder, app.options().heartbeat))
}

/// The conversation, and how to answer.
pub(crate) fn read(fields: &Fields<'_>, app: &App) -> Result<(ChatRequest, Wishes), ApiError> {
    let options = app.options();
    let limits = &options.limits;
    let tools = messages::tools(fields, limits)?;
    let tool_choice = messages::tool_choice(fields, &tools)?;
    let mut template_vars = fields.object("chat_template_kwargs")?.cloned().unwrap_or_default();
    // These are asked for in other ways as well, and said once.
    template_vars.shift_remove("enable_thinking");
    template_vars.shift_remove("thinking_budget");
    let mut skipped = Skipped::default();
    let chat = ChatRequest {
        messages: messages::messages(fields, limits, &mut skipped)?,
        tool_choice,
        tools,
        single_call: fields.bool("parallel_tool_calls")? == Some(false),
        free_calls: fields.bool("constrain_tool_calls")? == Some(false),
        response: response_format(fields, limits)?,
        template_vars,
        ..ChatRequest::default()
    };
    let n_top = fields.count("top_logprobs")?;
    Limits::check("top_logprobs", n_top.unwrap_or(0), limits.n_top_logprob)?;
    let wants_logprobs = fields.bool("logprobs")?.unwrap_or(false);
    if n_top.is_some_and(|n| 0 < n) && !wants_logprobs {
        return Err(fields.error("top_logprobs", "needs logprobs to be true"));
    }
    let wishes = Wishes {
        thinking: Thinking::read(fields, options.thinking)?,
        n_top_logprob: wants_logprobs.then(|| n_top.unwrap_or(0)),
        ..wishes(fields, options)?
    };
    skipped.log();
    Ok((chat, wishes))
}

/// How answers are written.
#[derive(Clone, Debug)]
struct Style {
    /// The field that thinking goes to; `None`: nowhere.
    reasoning_field: Option<&'static str>,
    wants_usage: bool,
    wants_logprobs: bool,
}

impl Style {
    fn read(fields: &Fields<'_>, app: &App) -> Result<Self, ApiError> {
        let stream_options = fields.inner("stream_options")?;
        let wants_usage = stream_options.map(|options| options.bool("include_usage")).transpose()?.flatten();
        let reasoning_field = match fields.str("reasoning_format")? {
            None | Some("auto" | "deepseek") => Some(app.options().reasoning_field.name()),
            Some("reasoning_content") => Some("reasoning_content"),
            Some("reasoning") => Some("reasoning"),
            Some("hidden") => None,
            Some(_) => {
                let what = "must be auto, reasoning_content, reasoning or hidden";
                return Err(fields.error("reasoning_format", what));
            }
        };
        Ok(Self {
            reasoning_field,
            wants_usage: wants_usage.unwrap_or(false),
            wants_logprobs: fields.bool("logprobs")?.unwrap_or(false),
        })
    }
}

/// What all chunks of a response have in common.
#[derive(Clone, Debug)]
struct Frame {
    id: String,
    created_s: u64,
    model: String,
}

impl Frame {
    fn new(app: &App) -> Self {
        Self { id: id::fresh("chatcmpl-"), created_s: id::now_s(), model: app.options().name().to_owned() }
    }

    fn json(&self, object: &str, choices: Value) -> Map<String, Value> {
        let value = json!({
            "id": self.id,
            "object": object,
            "created": self.created_s,
            "model": self.model,
            "system_fingerprint": concat!("flash-moe-", env!("CARGO_PKG_VERSION")),
            "choices": choices,
        });
        let Value::Object(map) = value else { unreachable!("it is written as an object") };
        map
    }
}

async fn whole(
    app: &App,
    mut updates: Vec<Updates>,
    frame: &Frame,
    style: &Style,
) -> Result<Response, ApiError> {
    let (mut choices, mut usage, mut timings) = (Vec::new(), Usage::default(), Value::Null);
    for (index, answer) in Answer::read_all(&mut updates).await?.into_iter().enumerate() {
        usage.add(&answer.done, 0 < index);
        timings = timings_json(&answer.done.timings);
        choices.push(choice_json(app, index, answer, style));
    }
    let mut body = frame.json("chat.completion", choices.into());
    body.insert("usage".into(), usage.json());
    body.insert("timings".into(), timings);
    Ok(Json(body).into_response())
}

fn choice_json(app: &App, index: usize, answer: Answer, style: &Style) -> Value {
    let tokenizer = app.text().tokenizer();
    let logprobs = style.wants_logprobs.then(|| chat_logprobs(&answer.chosen(tokenizer), tokenizer));
    // A call that was cut is not told: clients would run it.
    let calls: Vec<Call> = answer.calls.into_iter().filter(|call| call.is_complete).collect();
    let finish_reason = finish_reason(&answer.done.finish, calls.len());
    let mut message = Map::new();
    message.insert("role".into(), "assistant".into());
    let is_nothing = answer.text.is_empty() && !calls.is_empty();
    message.insert("content".into(), if is_nothing { Value::Null } else { answer.text.into() });
    if let Some(field) = style.reasoning_field.filter(|_| !answer.thinking.is_empty()) {
        message.insert(field.into(), answer.thinking.into());
    }
    message.insert("refusal".into(), Value::Null);
    if !calls.is_empty() {
        let call = |call: Call| {
            let function = json!({ "name": call.name, "arguments": call.arguments });
            json!({ "id": id::fresh("call_"), "type": "function", "function": function })
        };
        message.insert("tool_calls".into(), calls.into_iter().map(call).collect());
    }
    json!({ "index": index, "message": message, "logprobs": logprobs, "finish_reason": finish_reason })
}

/// One answer of a stream.
#[derive(Debug, Default)]
struct Choice {
    has_begun: bool,
    /// Tokens of the prompt, and those of them that were not fed again.
    total: (usize, usize),
    n_call_complete: usize,
    open: OpenTokens,
}

/// Writes chunks.
struct ChatEncoder {
    app: App,
    frame: Frame,
    style: Style,
    choices: Vec<Choice>,
    usage: Usage,
    timings: Value,
}

impl ChatEncoder {
    fn event(body: Map<String, Value>) -> Event {
        Event::default().data(Value::Object(body).to_string())
    }

    fn extra(&self, key: &str, value: Value) -> Event {
        let mut body = self.frame.json("chat.completion.chunk", json!([]));
        body.insert(key.into(), value);
        Self::event(body)
    }

    /// A piece of an answer. The first one says whose it is.
    fn delta(&mut self, index: usize, delta: Value, logprobs: Option<Value>) -> Event {
        let mut map = Map::new();
        if !std::mem::replace(&mut self.choices[index].has_begun, true) {
            map.insert("role".into(), "assistant".into());
        }
        if let Value::Object(delta) = delta {
            map.extend(delta);
        }
        let mut choice = json!({ "index": index, "delta": map, "finish_reason": null });
        if let Some(logprobs) = logprobs {
            choice["logprobs"] = logprobs;
        }
        Self::event(self.frame.json("chat.completion.chunk", json!([choice])))
    }

    fn call(&mut self, index: usize, call: CallUpdate) -> Option<Event> {
        let piece = match call {
            CallUpdate::Begin { index, name } => json!({
                "index": index,
                "id": id::fresh("call_"),
                "type": "function",
                "function": { "name": name, "arguments": "" },
            }),
            CallUpdate::Arguments { index, json } => {
                json!({ "index": index, "function": { "arguments": json } })
            }
            CallUpdate::End { complete, .. } => {
                self.choices[index].n_call_complete += usize::from(complete);
                return None;
            }
        };
        Some(self.delta(index, json!({ "tool_calls": [piece] }), None))
    }

    fn done(&mut self, index: usize, done: &Done, out: &mut VecDeque<Event>) {
        if !self.choices[index].has_begun {
            out.push_back(self.delta(index, json!({ "content": "" }), None));
        }
        self.usage.add(done, 0 < index);
        let reason = finish_reason(&done.finish, self.choices[index].n_call_complete);
        let choice = json!({ "index": index, "delta": {}, "finish_reason": reason });
        let mut body = self.frame.json("chat.completion.chunk", json!([choice]));
        self.timings = timings_json(&done.timings);
        body.insert("timings".into(), self.timings.clone());
        out.push_back(Self::event(body));
    }
}

impl sse::Encoder for ChatEncoder {
    fn begin(&mut self, _out: &mut VecDeque<Event>) {}

    fn update(&mut self, index: usize, update: Update, out: &mut VecDeque<Event>) {
        match update {
            Update::Started { n_prompt, n_cached, .. } => {
                self.choices[index].total = (n_prompt, n_cached);
            }
            Update::Progress { n_done, elapsed } => {
                let progress = super::progress_json(self.choices[index].total, n_done, elapsed);
                out.push_back(self.extra("prompt_progress", progress));
            }
            Update::Token { id, logprob } => self.choices[index].open.push(id, logprob),
            Update::Text { channel: Channel::Thinking, text } => {
                self.choices[index].open.clear();
                if let Some(field) = self.style.reasoning_field {
                    out.push_back(self.delta(index, json!({ field: text }), None));
                }
            }
            Update::Text { channel: Channel::Answer, text } => {
                let logprobs = self.style.wants_logprobs.then(|| {
                    let tokenizer = self.app.text().tokenizer();
                    chat_logprobs(&self.choices[index].open.take(&text, tokenizer), tokenizer)
                });
                out.push_back(self.delta(index, json!({ "content": text }), logprobs));
            }
            Update::Call(call) => {
                self.choices[index].open.clear();
                out.extend(self.call(index, call));
            }
            Update::Timings(timings) => out.push_back(self.extra("timings", timings_json(&timings))),
            Update::Done(done) => self.done(index, &done, out),
            Update::Failed(failure) => self.failed(failure, out),
        }
    }

    fn end(&mut self, out: &mut VecDeque<Event>) {
        if self.style.wants_usage {
            let mut body = self.frame.json("chat.completion.chunk", json!([]));
            body.insert("usage".into(), self.usage.json());
            body.insert("timings".into(), self.timings.take());
            out.push_back(Self::event(body));
        }
        out.push_back(Event::default().data("[DONE]"));
    }

    fn failed(&mut self, failure: Failure, out: &mut VecDeque<Event>) {
        out.push_back(Event::default().data(ApiError::from(failure).openai().to_string()));
    }
}
