//! Bounds of everything that a client sends.

use std::ops::Deref;
use std::time::Duration;

use axum::body::Body;
use axum::extract::{FromRequest, Request};
use serde_json::{Map, Value};
use tokio::sync::OwnedSemaphorePermit;

use crate::app::App;
use crate::error::{ApiError, ErrorKind};
use crate::off_thread::off_thread;

/// Up to here a body is read in no time.
const SMALL_BODY_BYTES: usize = 1 << 20;
/// Larger bodies that are in memory as values at the same time.
pub(crate) const N_LARGE_BODY: usize = 2;

/// What a client may ask of the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Of a request's body.
    pub body_bytes: usize,
    /// For a body to arrive as a whole.
    pub body_time: Duration,
    /// For the head of a request to arrive.
    pub head_time: Duration,
    /// For a client to take more of its answer, whole or in a stream: then its connection is closed.
    pub write_time: Duration,
    /// Of the head of a request.
    pub head_bytes: usize,
    /// Header fields of a request.
    pub n_header: usize,
    /// Connections at the same time: more wait.
    pub n_connection: usize,
    /// Messages of a conversation.
    pub n_message: usize,
    /// Tools.
    pub n_tool: usize,
    /// Answers to one request.
    pub n_choice: usize,
    /// Stop texts.
    pub n_stop: usize,
    /// Of each of them.
    pub stop_bytes: usize,
    /// Of a schema, regular expression or grammar.
    pub grammar_bytes: usize,
    /// Likeliest tokens that are told.
    pub n_top_logprob: usize,
    /// Tokens with a bias.
    pub n_logit_bias: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            body_bytes: 32 << 20,
            body_time: Duration::from_secs(60),
            head_time: Duration::from_secs(30),
            write_time: Duration::from_secs(60),
            head_bytes: 64 << 10,
            n_header: 100,
            n_connection: 256,
            n_message: 10_000,
            n_tool: 512,
            n_choice: 16,
            n_stop: 16,
            stop_bytes: 1 << 10,
            grammar_bytes: 256 << 10,
            n_top_logprob: 20,
            n_logit_bias: 1024,
        }
    }
}

impl Limits {
    /// Refuses more than `most` of something.
    pub(crate) fn check(name: &str, n: usize, most: usize) -> Result<(), ApiError> {
        if n <= most {
            Ok(())
        } else {
            Err(ApiError::field(name, format!("{n} of them are too many: at most {most}")))
        }
    }

    async fn read(&self, body: Body) -> Result<Vec<u8>, ApiError> {
        let read = axum::body::to_bytes(body, self.body_bytes);
        match tokio::time::timeout(self.body_time, read).await {
            Ok(Ok(bytes)) => Ok(bytes.into()),
            // Either it is too long, or the connection broke and nobody reads this.
            Ok(Err(_)) => {
                let what = format!("the body is longer than {} bytes, or incomplete", self.body_bytes);
                Err(ApiError::new(ErrorKind::TooLarge, what))
            }
            Err(_) => {
                let what = format!("the body did not arrive within {} s", self.body_time.as_secs());
                Err(ApiError::new(ErrorKind::BodyTimeOut, what))
            }
        }
    }
}

/// A body that is a JSON object. The parser refuses more than 128 levels of nesting.
pub(crate) struct JsonBody(pub(crate) JsonObject);

/// The object, and its place among the large ones, if it is one. Read, it takes many times the memory of its text: it
/// should be dropped as soon as nothing more is read from it.
pub(crate) struct JsonObject {
    map: Map<String, Value>,
    _place: Option<OwnedSemaphorePermit>,
}

impl Deref for JsonObject {
    type Target = Map<String, Value>;

    fn deref(&self) -> &Self::Target {
        &self.map
    }
}

impl FromRequest<App> for JsonBody {
    type Rejection = ApiError;

    async fn from_request(request: Request, app: &App) -> Result<Self, ApiError> {
        let bytes = app.options().limits.read(request.into_body()).await?;
        let (_place, parsed) = if bytes.len() <= SMALL_BODY_BYTES {
            (None, parse(&bytes))
        } else {
            let place = app.large_bodies().acquire_owned().await.ok();
            (place, off_thread(move || parse(&bytes)).await)
        };
        Ok(Self(JsonObject { map: parsed?, _place }))
    }
}

fn parse(bytes: &[u8]) -> Result<Map<String, Value>, ApiError> {
    match serde_json::from_slice(bytes) {
        Ok(Value::Object(map)) => Ok(map),
        Ok(_) => Err(ApiError::invalid("the body must be a JSON object")),
        Err(error) => Err(ApiError::invalid(format!("the body is not valid JSON: {error}"))),
    }
}
