//! `GET /v1/models`, `/health`, `/metrics`, and what is refused.

use axum::Json;
use axum::extract::{Path, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde_json::{Value, json};

use crate::api::anthropic;
use crate::app::App;
use crate::error::{ApiError, ErrorKind};

fn model_json(app: &App, name: &str) -> Value {
    let options = app.options();
    json!({
        "id": name,
        "object": "model",
        "created": app.started_s(),
        "owned_by": "flash-moe",
        "context_length": options.n_ctx,
        "max_model_len": options.n_ctx,
    })
}

/// All names of the one model.
pub(crate) async fn models(State(app): State<App>, headers: HeaderMap) -> Response {
    if anthropic::is_anthropic(&headers) {
        return Json(anthropic::models(&app)).into_response();
    }
    let models: Value = app.options().names.iter().map(|name| model_json(&app, name)).collect();
    Json(json!({ "object": "list", "data": models })).into_response()
}

/// One of them.
pub(crate) async fn model(
    State(app): State<App>,
    headers: HeaderMap,
    Path(name): Path<String>,
) -> Result<Response, ApiError> {
    if !app.options().names.contains(&name) {
        return Err(ApiError::new(ErrorKind::NotFound, "there is no model of this name: see /v1/models"));
    }
    if anthropic::is_anthropic(&headers) {
        return Ok(Json(anthropic::model(&app, &name)).into_response());
    }
    Ok(Json(model_json(&app, &name)).into_response())
}

/// Is the server there? Anybody may ask.
pub(crate) async fn health(State(app): State<App>) -> Response {
    let (status, word) = match app.is_closed() {
        false => (StatusCode::OK, "ok"),
        true => (StatusCode::SERVICE_UNAVAILABLE, "shutting down"),
    };
    (status, Json(json!({ "status": word }))).into_response()
}

/// Numbers for Prometheus.
pub(crate) async fn metrics(State(app): State<App>) -> Response {
    let kind = "application/openmetrics-text; version=1.0.0; charset=utf-8";
    ([(header::CONTENT_TYPE, kind)], app.metrics().text()).into_response()
}

/// Embeddings need another kind of model.
pub(crate) async fn embeddings() -> ApiError {
    ApiError::invalid("this model generates text: embeddings are not supported")
}

/// No such route.
pub(crate) async fn not_found() -> ApiError {
    ApiError::new(ErrorKind::NotFound, "there is nothing at this address: docs/server.md lists the endpoints")
}

/// Another method.
pub(crate) async fn wrong_method() -> ApiError {
    ApiError::new(ErrorKind::Method, "this address does not take this method")
}
