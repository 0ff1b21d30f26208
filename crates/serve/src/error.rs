//! What a client is told when a request cannot be answered. Each API writes it in a shape of its own.

use axum::Json;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use generate::GenerateError;
use serde_json::{Value, json};

use crate::engine::{Failure, FailureKind, Refused};

/// Seconds after which a client that found the queue full may try again.
const RETRY_AFTER_S: u16 = 5;

/// Kinds of errors, each with its status.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ErrorKind {
    /// The request is wrong, or asks for what there is not.
    Invalid,
    /// The prompt does not fit the context.
    ContextLength,
    /// The key is missing or wrong.
    Unauthorized,
    /// Not from there.
    Forbidden,
    /// There is no such route or model.
    NotFound,
    /// The route has other methods.
    Method,
    /// The body did not come in time.
    BodyTimeOut,
    /// The body is too long.
    TooLarge,
    /// The queue is full.
    Busy,
    /// The server failed.
    Internal,
    /// The server ends.
    ShuttingDown,
    /// The answer took too long.
    TimeOut,
}

/// An error of a request.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct ApiError {
    /// Which kind.
    pub kind: ErrorKind,
    /// For people.
    pub message: String,
    /// The field that is wrong.
    pub param: Option<String>,
}

impl ApiError {
    pub(crate) fn new(kind: ErrorKind, message: impl Into<String>) -> Self {
        Self { kind, message: message.into(), param: None }
    }

    /// A field that is wrong: the message says how, and begins with its name.
    pub(crate) fn field(name: impl Into<String>, what: impl std::fmt::Display) -> Self {
        let name = name.into();
        Self { kind: ErrorKind::Invalid, message: format!("{name}: {what}"), param: Some(name) }
    }

    pub(crate) fn invalid(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::Invalid, message)
    }

    pub(crate) fn too_long(n_prompt: usize, n_ctx: usize) -> Self {
        let message = format!(
            "the prompt has {n_prompt} tokens, the maximum context length of this server is {n_ctx} tokens: shorten \
             the prompt, or start the server with a larger --ctx"
        );
        Self { kind: ErrorKind::ContextLength, message, param: Some("messages".into()) }
    }

    /// The status.
    pub fn status(&self) -> StatusCode {
        match self.kind {
            ErrorKind::Invalid | ErrorKind::ContextLength => StatusCode::BAD_REQUEST,
            ErrorKind::Unauthorized => StatusCode::UNAUTHORIZED,
            ErrorKind::Forbidden => StatusCode::FORBIDDEN,
            ErrorKind::NotFound => StatusCode::NOT_FOUND,
            ErrorKind::Method => StatusCode::METHOD_NOT_ALLOWED,
            ErrorKind::BodyTimeOut => StatusCode::REQUEST_TIMEOUT,
            ErrorKind::TooLarge => StatusCode::PAYLOAD_TOO_LARGE,
            ErrorKind::Busy => StatusCode::TOO_MANY_REQUESTS,
            ErrorKind::Internal => StatusCode::INTERNAL_SERVER_ERROR,
            ErrorKind::ShuttingDown => StatusCode::SERVICE_UNAVAILABLE,
            ErrorKind::TimeOut => StatusCode::GATEWAY_TIMEOUT,
        }
    }

    /// In the shape of the OpenAI API.
    pub fn openai(&self) -> Value {
        let (kind, code) = match self.kind {
            ErrorKind::Invalid | ErrorKind::Method | ErrorKind::BodyTimeOut | ErrorKind::TooLarge => {
                ("invalid_request_error", None)
            }
            ErrorKind::ContextLength => ("invalid_request_error", Some("context_length_exceeded")),
            ErrorKind::Unauthorized => ("authentication_error", Some("invalid_api_key")),
            ErrorKind::Forbidden => ("permission_error", None),
            ErrorKind::NotFound => ("not_found_error", Some("not_found")),
            ErrorKind::Busy => ("rate_limit_error", Some("queue_full")),
            ErrorKind::Internal => ("server_error", None),
            ErrorKind::ShuttingDown => ("server_error", Some("shutting_down")),
            ErrorKind::TimeOut => ("server_error", Some("timeout")),
        };
        json!({ "error": { "message": self.message, "type": kind, "param": self.param, "code": code } })
    }

    /// A response with this body, and the headers that the status asks for.
    pub(crate) fn response(&self, body: Value) -> Response {
        let mut response = (self.status(), Json(body)).into_response();
        let headers = response.headers_mut();
        match self.kind {
            ErrorKind::Busy | ErrorKind::ShuttingDown => {
                headers.insert(header::RETRY_AFTER, HeaderValue::from(RETRY_AFTER_S));
            }
            ErrorKind::Unauthorized => {
                headers.insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
            }
            _ => {}
        }
        // Whoever stands between may write it in another shape.
        response.extensions_mut().insert(self.clone());
        response
    }
}

impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        self.response(self.openai())
    }
}

impl From<Refused> for ApiError {
    fn from(refused: Refused) -> Self {
        let kind = match refused {
            Refused::Full { .. } => ErrorKind::Busy,
            Refused::Closed => ErrorKind::ShuttingDown,
        };
        Self::new(kind, refused.to_string())
    }
}

impl From<Failure> for ApiError {
    fn from(failure: Failure) -> Self {
        let kind = match failure.kind {
            FailureKind::Engine | FailureKind::SlowReader => ErrorKind::Internal,
            FailureKind::TimeOut => ErrorKind::TimeOut,
            FailureKind::ShuttingDown => ErrorKind::ShuttingDown,
        };
        Self::new(kind, failure.message)
    }
}

impl From<GenerateError> for ApiError {
    fn from(error: GenerateError) -> Self {
        let message = error.to_string();
        match error {
            GenerateError::PromptTooLong { n_prompt, n_ctx } => Self::too_long(n_prompt, n_ctx),
            GenerateError::Message { message_idx, .. } => {
                Self { param: Some(format!("messages[{message_idx}]")), ..Self::invalid(message) }
            }
            GenerateError::Parameter { name, .. } => {
                Self { param: Some(name.into()), ..Self::invalid(message) }
            }
            GenerateError::Tool { .. } => Self { param: Some("tools".into()), ..Self::invalid(message) },
            GenerateError::Encode { .. }
            | GenerateError::TemplateRefused { .. }
            | GenerateError::TemplateRender { .. }
            | GenerateError::TemplateFuel { .. }
            | GenerateError::Unguarded { .. }
            | GenerateError::Grammar { .. }
            | GenerateError::NoTemplate
            | GenerateError::NoMessages
            | GenerateError::EmptyPrompt => Self::invalid(message),
            _ => Self::new(ErrorKind::Internal, message),
        }
    }
}
