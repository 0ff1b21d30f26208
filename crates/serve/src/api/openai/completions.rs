//! `POST /v1/completions`: text goes on, without a chat template.

use std::collections::VecDeque;

use axum::Json;
use axum::extract::State;
use axum::response::sse::Event;
use axum::response::{IntoResponse, Response};
use serde_json::{Map, Value, json};

use super::request::{response_format, wishes};
use super::{Usage, timings_json};
use crate::api::answer::{Answer, Source, Wishes, finish_reason};
use crate::api::fields::{Fields, wrong};
use crate::api::tokens::{OpenTokens, text_logprobs};
use crate::app::App;
use crate::engine::{Done, Failure, Update, Updates};
use crate::error::ApiError;
use crate::limits::{JsonBody, Limits};
use crate::{id, sse};

/// What all parts of a response need.
struct Completion {
    app: App,
    id: String,
    created_s: u64,
    /// Answers to each prompt.
    n_choice: usize,
    /// What stands before each answer, if the request wants it repeated.
    echoes: Vec<String>, // [n_prompt]
    wants_usage: bool,
    wants_logprobs: bool,
}

/// Asks for continuations of one or several texts.
pub(crate) async fn completions(
    State(app): State<App>,
    JsonBody(body): JsonBody,
) -> Result<Response, ApiError> {
    let fields = Fields::of(&body);
    let wishes = read(&fields, &app)?;
    let sources = prompts(&fields)?;
    let n_choice = wishes.n_choice;
    Limits::check("prompt", sources.len().saturating_mul(n_choice), app.options().limits.n_choice)?;
    let is_echo = fields.bool("echo")?.unwrap_or(false);
    let wants_logprobs = wishes.n_top_logprob.is_some();
    if is_echo && wants_logprobs {
        return Err(
            fields.error("echo", "cannot be combined with logprobs: those of the prompt are not kept")
        );
    }
    let stream_options = fields.inner("stream_options")?;
    let wants_usage = stream_options.map(|options| options.bool("include_usage")).transpose()?.flatten();
    let is_stream = fields.bool("stream")?.unwrap_or(false);
    drop(body);
    let (mut jobs, mut echoes) = (Vec::new(), Vec::new());
    for source in sources {
        let asked = app.prepare(source, wishes.clone()).await?;
        jobs.extend(asked.jobs);
        echoes.push(if is_echo { asked.text } else { String::new() });
    }
    let updates = app.submit(jobs)?;
    let completion = Completion {
        id: id::fresh("cmpl-"),
        created_s: id::now_s(),
        n_choice,
        echoes,
        wants_usage: wants_usage.unwrap_or(false),
        wants_logprobs,
        app: app.clone(),
    };
    if !is_stream {
        return completion.whole(updates).await;
    }
    let choices = updates.iter().map(|_| Choice::default()).collect();
    let encoder = TextEncoder { completion, choices, usage: Usage::default(), timings: Value::Null };
    Ok(sse::respond(updates, encoder, app.options().heartbeat))
}

fn read(fields: &Fields<'_>, app: &App) -> Result<Wishes, ApiError> {
    if fields.str("suffix")?.is_some_and(|suffix| !suffix.is_empty()) {
        return Err(fields.error("suffix", "is not supported: the model only continues text"));
    }
    let options = app.options();
    if response_format(fields, &options.limits)? != generate::ResponseFormat::Text {
        return Err(fields.error("response_format", "is supported by /v1/chat/completions only"));
    }
    let wishes = Wishes { n_top_logprob: fields.count("logprobs")?, ..wishes(fields, options)? };
    Limits::check("logprobs", wishes.n_top_logprob.unwrap_or(0), options.limits.n_top_logprob)?;
    match fields.count("best_of")? {
        Some(best_of) if best_of != wishes.n_choice => {
            Err(fields.error("best_of", "is not supported: it can only be the same as n"))
        }
        _ => Ok(wishes),
    }
}

/// A text, tokens, or an array of either.
fn prompts(fields: &Fields<'_>) -> Result<Vec<Source>, ApiError> {
    let one = |path: &str, value: &Value| match value {
        Value::String(text) => Ok(Source::Raw(text.clone())),
        Value::Array(ids) => token_ids(path, ids).map(Source::Ids),
        other => Err(wrong(path, "a string or an array of token ids", other)),
    };
    match fields.value("prompt") {
        None => Err(fields.error("prompt", "is missing")),
        Some(Value::Array(values)) if values.is_empty() => Err(fields.error("prompt", "must not be empty")),
        Some(Value::Array(values)) if !values[0].is_number() => {
            values.iter().enumerate().map(|(i, value)| one(&format!("prompt[{i}]"), value)).collect()
        }
        Some(value) => Ok(vec![one("prompt", value)?]),
    }
}

/// An array of token ids.
pub(crate) fn token_ids(path: &str, values: &[Value]) -> Result<Vec<u32>, ApiError> {
    let id = |(i, value): (usize, &Value)| {
        let id = value.as_u64().and_then(|id| u32::try_from(id).ok());
        id.ok_or_else(|| wrong(&format!("{path}[{i}]"), "a token id", value))
    };
    values.iter().enumerate().map(id).collect()
}

impl Completion {
    fn json(&self, choices: Value) -> Map<String, Value> {
        let value = json!({
            "id": self.id,
            "object": "text_completion",
            "created": self.created_s,
            "model": self.app.options().name(),
            "choices": choices,
        });
        let Value::Object(map) = value else { unreachable!("it is written as an object") };
        map
    }

    async fn whole(&self, mut updates: Vec<Updates>) -> Result<Response, ApiError> {
        let (mut choices, mut usage, mut timings) = (Vec::new(), Usage::default(), Value::Null);
        let tokenizer = self.app.text().tokenizer();
        for (index, answer) in Answer::read_all(&mut updates).await?.into_iter().enumerate() {
            usage.add(&answer.done, !index.is_multiple_of(self.n_choice));
            timings = timings_json(&answer.done.timings);
            let logprobs =
                self.wants_logprobs.then(|| text_logprobs(&answer.chosen(tokenizer), tokenizer, 0));
            choices.push(json!({
                "index": index,
                "text": format!("{}{}", self.echoes[index / self.n_choice], answer.text),
                "logprobs": logprobs,
                "finish_reason": finish_reason(&answer.done.finish, 0),
            }));
        }
        let mut body = self.json(choices.into());
        body.insert("usage".into(), usage.json());
        body.insert("timings".into(), timings);
        Ok(Json(body).into_response())
    }
}

/// One text of a stream.
#[derive(Debug, Default)]
struct Choice {
    open: OpenTokens,
    /// Characters that were sent.
    n_char: usize,
    /// Tokens of the prompt, and those of them that were not fed again.
    total: (usize, usize),
}

/// Writes chunks.
struct TextEncoder {
    completion: Completion,
    choices: Vec<Choice>,
    usage: Usage,
    timings: Value,
}

impl TextEncoder {
    fn event(body: Map<String, Value>) -> Event {
        Event::default().data(Value::Object(body).to_string())
    }

    fn extra(&self, key: &str, value: Value) -> Event {
        let mut body = self.completion.json(json!([]));
        body.insert(key.into(), value);
        Self::event(body)
    }

    fn piece(&mut self, index: usize, text: String) -> Event {
        let tokenizer = self.completion.app.text().tokenizer();
        let choice = &mut self.choices[index];
        let logprobs = self
            .completion
            .wants_logprobs
            .then(|| text_logprobs(&choice.open.take(&text, tokenizer), tokenizer, choice.n_char));
        choice.n_char += text.chars().count();
        let choice = json!({ "index": index, "text": text, "logprobs": logprobs, "finish_reason": null });
        Self::event(self.completion.json(json!([choice])))
    }

    fn done(&mut self, index: usize, done: &Done) -> Event {
        self.usage.add(done, !index.is_multiple_of(self.completion.n_choice));
        self.timings = timings_json(&done.timings);
        let finish_reason = finish_reason(&done.finish, 0);
        let choice = json!({ "index": index, "text": "", "logprobs": null, "finish_reason": finish_reason });
        let mut body = self.completion.json(json!([choice]));
        body.insert("timings".into(), self.timings.clone());
        Self::event(body)
    }
}

impl sse::Encoder for TextEncoder {
    fn begin(&mut self, out: &mut VecDeque<Event>) {
        for index in 0..self.choices.len() {
            let echo = self.completion.echoes[index / self.completion.n_choice].clone();
            if !echo.is_empty() {
                out.push_back(self.piece(index, echo));
            }
        }
    }

    fn update(&mut self, index: usize, update: Update, out: &mut VecDeque<Event>) {
        match update {
            Update::Started { n_prompt, n_cached, .. } => self.choices[index].total = (n_prompt, n_cached),
            Update::Progress { n_done, elapsed } => {
                let progress = super::progress_json(self.choices[index].total, n_done, elapsed);
                out.push_back(self.extra("prompt_progress", progress));
            }
            Update::Token { id, logprob } => self.choices[index].open.push(id, logprob),
            Update::Text { text, .. } => out.push_back(self.piece(index, text)),
            // Raw text has no calls.
            Update::Call(_) => {}
            Update::Timings(timings) => out.push_back(self.extra("timings", timings_json(&timings))),
            Update::Done(done) => out.push_back(self.done(index, &done)),
            Update::Failed(failure) => self.failed(failure, out),
        }
    }

    fn end(&mut self, out: &mut VecDeque<Event>) {
        if self.completion.wants_usage {
            let mut body = self.completion.json(json!([]));
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
