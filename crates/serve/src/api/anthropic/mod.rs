//! Anthropic's Messages API.

mod error;
mod events;
mod models;
mod request;

use std::collections::VecDeque;

use axum::extract::State;
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use axum::{Json, Router, response::sse};
use serde::Serialize;
use utoipa::ToSchema;

use crate::api::answer::{Source, lost};
use crate::api::fields::Fields;
use crate::app::App;
use crate::engine::{Failure, Update, Updates};
use crate::error::ApiError;
use crate::limits::JsonBody;
use crate::off_thread::off_thread;

pub(crate) use error::{ErrorBody, errors_in_our_words};
pub(crate) use events::{Event, Message};
pub(crate) use models::{is_anthropic, model, models};

use events::MessageWriter;

/// The number of tokens of a prompt.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, ToSchema)]
#[schema(as = AnthropicTokenCount)]
pub(crate) struct TokenCount {
    /// All of them, whether they were read before or not.
    input_tokens: usize,
}

/// The addresses, without what they begin with.
pub(crate) fn router() -> Router<App> {
    Router::new().route("/messages", post(messages)).route("/messages/count_tokens", post(count_tokens))
}

/// Asks for the next message of a conversation.
async fn messages(State(app): State<App>, JsonBody(body): JsonBody) -> Result<Response, ApiError> {
    let fields = Fields::of(&body);
    let is_stream = fields.bool("stream")?.unwrap_or(false);
    let asked = request::read(&fields, app.options())?;
    asked.skipped.log();
    drop(body);
    let prepared = app.prepare(Source::Chat(Box::new(asked.chat)), asked.wishes).await?;
    let mut updates = app.submit(prepared.jobs)?;
    let writer = MessageWriter::new(asked.model);
    if is_stream {
        return Ok(crate::sse::respond(updates, writer, app.options().heartbeat));
    }
    let updates = updates.first_mut().expect("one job was handed in");
    Ok(Json(whole(updates, writer).await?).into_response())
}

async fn whole(updates: &mut Updates, mut writer: MessageWriter) -> Result<Message, ApiError> {
    loop {
        match updates.next().await.unwrap_or_else(lost) {
            Update::Failed(failure) => return Err(failure.into()),
            update => {
                let is_last = matches!(update, Update::Done(_));
                writer.update(update);
                if is_last {
                    return Ok(writer.into_message());
                }
            }
        }
    }
}

/// Counts the tokens of a prompt. Nothing is generated.
async fn count_tokens(
    State(app): State<App>,
    JsonBody(body): JsonBody,
) -> Result<Json<TokenCount>, ApiError> {
    let asked = request::read_prompt(&Fields::of(&body), app.options())?;
    asked.skipped.log();
    let count = move || {
        let prepared = app.prompt(Source::Chat(Box::new(asked.chat)), asked.wishes.thinking.is_on)?;
        Ok::<_, ApiError>(prepared.prompt.ids.len())
    };
    Ok(Json(TokenCount { input_tokens: off_thread(count).await? }))
}

impl crate::sse::Encoder for MessageWriter {
    fn begin(&mut self, _out: &mut VecDeque<sse::Event>) {}

    fn update(&mut self, _choice: usize, update: Update, out: &mut VecDeque<sse::Event>) {
        out.extend(MessageWriter::update(self, update).iter().map(Event::to_sse));
    }

    fn end(&mut self, _out: &mut VecDeque<sse::Event>) {}

    fn failed(&mut self, failure: Failure, out: &mut VecDeque<sse::Event>) {
        out.push_back(Event::Error { error: ApiError::from(failure).into() }.to_sse());
    }

    fn heartbeat(&self) -> sse::Event {
        Event::Ping.to_sse()
    }
}
