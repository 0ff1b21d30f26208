//! OpenAI's Responses API, without a store.

mod events;
mod request;

use std::collections::VecDeque;

use axum::extract::State;
use axum::response::{IntoResponse, Response as HttpResponse, sse};
use axum::routing::post;
use axum::{Json, Router};

use crate::api::answer::{Source, lost};
use crate::app::App;
use crate::engine::{Failure, Update, Updates};
use crate::error::ApiError;
use crate::limits::JsonBody;

pub(crate) use events::{Event, Response};

use events::ResponseWriter;

/// The address, without what it begins with.
pub(crate) fn router() -> Router<App> {
    Router::new().route("/responses", post(responses))
}

/// Asks for what follows a conversation.
async fn responses(State(app): State<App>, JsonBody(body): JsonBody) -> Result<HttpResponse, ApiError> {
    let is_stream = crate::api::fields::Fields::of(&body).bool("stream")?.unwrap_or(false);
    let asked = request::read(&body, app.options())?;
    drop(body);
    asked.skipped.log();
    let prepared = app.prepare(Source::Chat(Box::new(asked.chat)), asked.wishes).await?;
    let mut updates = app.submit(prepared.jobs)?;
    let writer = ResponseWriter::new(asked.settings, app.options().name().to_owned());
    if is_stream {
        return Ok(crate::sse::respond(updates, writer, app.options().heartbeat));
    }
    let updates = updates.first_mut().expect("one job was handed in");
    Ok(Json(whole(updates, writer).await?).into_response())
}

async fn whole(updates: &mut Updates, mut writer: ResponseWriter) -> Result<Response, ApiError> {
    loop {
        match updates.next().await.unwrap_or_else(lost) {
            Update::Failed(failure) => return Err(failure.into()),
            update => {
                let is_last = matches!(update, Update::Done(_));
                writer.update(update);
                if is_last {
                    return Ok(writer.into_response());
                }
            }
        }
    }
}

impl crate::sse::Encoder for ResponseWriter {
    fn begin(&mut self, out: &mut VecDeque<sse::Event>) {
        out.push_back(ResponseWriter::begin(self).to_sse());
    }

    fn update(&mut self, _choice: usize, update: Update, out: &mut VecDeque<sse::Event>) {
        out.extend(ResponseWriter::update(self, update).iter().map(Event::to_sse));
    }

    fn end(&mut self, _out: &mut VecDeque<sse::Event>) {}

    fn failed(&mut self, failure: Failure, out: &mut VecDeque<sse::Event>) {
        out.push_back(ResponseWriter::failed(self, failure.into()).to_sse());
    }
}
