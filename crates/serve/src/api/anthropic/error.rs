//! Errors in the words of the Messages API.

use axum::body::Body;
use axum::extract::Request;
use axum::http::header::CONTENT_LENGTH;
use axum::middleware::Next;
use axum::response::Response;
use serde::Serialize;
use utoipa::ToSchema;

use crate::api::anthropic::models::is_anthropic;
use crate::error::{ApiError, ErrorKind};

/// Body of an answer that is an error.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
#[schema(as = AnthropicError)]
pub(crate) struct ErrorBody {
    /// `error`
    r#type: &'static str,
    error: ErrorDetail,
}

/// What went wrong.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
#[schema(as = AnthropicErrorDetail)]
pub(crate) struct ErrorDetail {
    /// What kind of error it is, such as `invalid_request_error`.
    r#type: &'static str,
    message: String,
}

impl From<ApiError> for ErrorDetail {
    fn from(error: ApiError) -> Self {
        let kind = match error.kind {
            ErrorKind::Invalid | ErrorKind::ContextLength | ErrorKind::Method => "invalid_request_error",
            ErrorKind::Unauthorized => "authentication_error",
            ErrorKind::Forbidden => "permission_error",
            ErrorKind::NotFound => "not_found_error",
            ErrorKind::BodyTimeOut | ErrorKind::TimeOut => "timeout_error",
            ErrorKind::TooLarge => "request_too_large",
            ErrorKind::Busy => "rate_limit_error",
            ErrorKind::Internal => "api_error",
            ErrorKind::ShuttingDown => "overloaded_error",
        };
        Self { r#type: kind, message: error.message }
    }
}

/// Puts errors in the words of this API, whoever found them, if the request is one of it.
pub(crate) async fn errors_in_our_words(request: Request, next: Next) -> Response {
    let path = request.uri().path();
    let path = path.strip_prefix("/v1").unwrap_or(path);
    let is_ours = is_anthropic(request.headers()) || path == "/messages" || path.starts_with("/messages/");
    let response = next.run(request).await;
    let error = response.extensions().get::<ApiError>().filter(|_| is_ours);
    let Some(error) = error.cloned() else { return response };
    let body = ErrorBody { r#type: "error", error: error.into() };
    let (mut parts, _) = response.into_parts();
    parts.headers.remove(CONTENT_LENGTH);
    Response::from_parts(parts, Body::from(serde_json::to_string(&body).expect("it is text only")))
}
