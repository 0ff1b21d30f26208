//! The web page: its files, and the endpoint that turns a model's markdown into clean HTML. It knows nothing of models
//! or requests: the page talks to the API like any other client.

mod assets;
mod code;
mod render;

use std::sync::LazyLock;
use std::time::{Duration, Instant};

use axum::extract::rejection::JsonRejection;
use axum::extract::{DefaultBodyLimit, FromRequest};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Json, Router};
use serde::{Deserialize, Serialize};
use serde_json::json;
use tokio::sync::Semaphore;

/// A body: markdown of the longest kind in which every other byte is escaped, and then some.
const BODY_BYTES_MAX: usize = 3 * render::MARKDOWN_BYTES_MAX;
/// Renders at a time: the cores are for the model.
const RENDERS_MAX: usize = 2;
/// Time for one render. A usual answer takes a few milliseconds.
const RENDER_TIME: Duration = Duration::from_secs(2);

/// `GET /` and `GET /web/{file}`, which say nothing that is not public.
pub(crate) fn files<S: Clone + Send + Sync + 'static>() -> Router<S> {
    Router::new().route("/", get(assets::index)).route("/web/{file}", get(assets::file))
}

/// `POST /web/render`; `body_time`: for a body to arrive as a whole.
pub(crate) fn rendering<S: Clone + Send + Sync + 'static>(body_time: Duration) -> Router<S> {
    let render = async move |request: axum::extract::Request| {
        let read = tokio::time::timeout(body_time, Json::from_request(request, &()));
        match read.await {
            Ok(body) => render_markdown(body).await,
            Err(_) => error(StatusCode::REQUEST_TIMEOUT, "the text did not arrive in time"),
        }
    };
    Router::new().route("/web/render", post(render).layer(DefaultBodyLimit::max(BODY_BYTES_MAX)))
}

/// What the page sends.
#[derive(Deserialize)]
struct Request {
    /// Whole text of a message, or its end from the start of a block.
    markdown: String,
    /// More is to come, so that the last block may still change.
    #[serde(default)]
    open: bool,
}

/// What the page gets.
#[derive(Serialize)]
struct Rendered {
    /// All blocks; of an open text, those that can no longer change.
    html: String,
    /// The last block of an open text.
    tail_html: String,
    /// Where that block starts in the markdown, in UTF-16 units as JavaScript counts.
    tail_start: usize,
}

/// Renders off the threads that serve requests, within bounds on size and time.
async fn render_markdown(body: Result<Json<Request>, JsonRejection>) -> Response {
    static RENDERS: LazyLock<Semaphore> = LazyLock::new(|| Semaphore::new(RENDERS_MAX));
    let Json(request) = match body {
        Ok(body) => body,
        Err(rejection) => return error(rejection.status(), &rejection.body_text()),
    };
    let _permit = RENDERS.acquire().await.expect("the semaphore is never closed");
    let render = move || {
        let deadline = Instant::now() + RENDER_TIME;
        render::render(&request.markdown, request.open, deadline)
    };
    match tokio::task::spawn_blocking(render).await {
        Ok(Ok(page)) => {
            Json(Rendered { html: page.html, tail_html: page.tail_html, tail_start: page.tail_start_utf16 })
                .into_response()
        }
        Ok(Err(refused)) => {
            let status = match refused {
                render::Refused::TooLong { .. } => StatusCode::PAYLOAD_TOO_LARGE,
                render::Refused::TooComplex => StatusCode::UNPROCESSABLE_ENTITY,
            };
            error(status, &refused.to_string())
        }
        Err(_) => error(StatusCode::INTERNAL_SERVER_ERROR, "the text could not be rendered"),
    }
}

/// An error in the API's own shape.
fn error(status: StatusCode, message: &str) -> Response {
    let kind = if status.is_server_error() { "server_error" } else { "invalid_request_error" };
    let body = json!({ "error": { "message": message, "type": kind, "code": null } });
    (status, Json(body)).into_response()
}

#[cfg(test)]
mod tests {
    use axum::body::{Body, to_bytes};
    use axum::http::{Request, header};
    use tower::ServiceExt;

    use super::*;

    async fn send(request: Request<Body>) -> (StatusCode, axum::http::HeaderMap, Vec<u8>) {
        let router = files::<()>().merge(rendering(Duration::from_secs(60)));
        let response = router.oneshot(request).await.unwrap();
        let (parts, body) = response.into_parts();
        let bytes = to_bytes(body, usize::MAX).await.unwrap();
        (parts.status, parts.headers, bytes.to_vec())
    }

    async fn get_page(path: &str) -> (StatusCode, axum::http::HeaderMap, Vec<u8>) {
        send(Request::get(path).body(Body::empty()).unwrap()).await
    }

    async fn post_render(body: &str) -> (StatusCode, serde_json::Value) {
        let request = Request::post("/web/render").header(header::CONTENT_TYPE, "application/json");
        let (status, _, bytes) = send(request.body(Body::from(body.to_owned())).unwrap()).await;
        (status, serde_json::from_slice(&bytes).unwrap())
    }

    /// The page would load a script from elsewhere, or run one that stands in text.
    #[tokio::test]
    async fn pages_come_with_a_strict_policy() {
        for path in ["/", "/web/app.js", "/web/style.css", "/web/icons.svg"] {
            let (status, headers, body) = get_page(path).await;
            assert_eq!(status, StatusCode::OK, "{path}");
            assert!(!body.is_empty(), "{path}");
            let policy = headers[header::CONTENT_SECURITY_POLICY].to_str().unwrap();
            assert!(policy.starts_with("default-src 'self'"), "{path}: {policy}");
            assert!(!policy.contains("unsafe"), "{path}: {policy}");
            assert_eq!(headers[header::X_CONTENT_TYPE_OPTIONS], "nosniff", "{path}");
            assert_eq!(headers[header::REFERRER_POLICY], "no-referrer", "{path}");
        }
    }

    /// Browsers refuse modules and styles of the wrong type.
    #[tokio::test]
    async fn files_have_their_types() {
        let cases = [
            ("/", "text/html; charset=utf-8"),
            ("/web/app.js", "text/javascript; charset=utf-8"),
            ("/web/style.css", "text/css; charset=utf-8"),
            ("/web/icon.svg", "image/svg+xml"),
        ];
        for (path, kind) in cases {
            assert_eq!(get_page(path).await.1[header::CONTENT_TYPE], kind, "{path}");
        }
    }

    /// A file that the page names is not in the program, or a path leads out of its folder.
    #[tokio::test]
    async fn unknown_files_are_not_found() {
        for path in ["/web/nothing.js", "/web/..%2FCargo.toml", "/web/%2e%2e", "/web/app.js/x"] {
            assert_eq!(get_page(path).await.0, StatusCode::NOT_FOUND, "{path}");
        }
    }

    /// Every load would fetch all files again, or an old page would stay after an update.
    #[tokio::test]
    async fn unchanged_files_are_not_sent_again() {
        let (_, headers, _) = get_page("/web/app.js").await;
        let tag = &headers[header::ETAG];
        for (given, status) in
            [(tag.to_str().unwrap(), StatusCode::NOT_MODIFIED), ("\"old\"", StatusCode::OK)]
        {
            let request = Request::get("/web/app.js").header(header::IF_NONE_MATCH, given);
            let (got, headers, body) = send(request.body(Body::empty()).unwrap()).await;
            assert_eq!(got, status);
            assert_eq!(&headers[header::ETAG], tag);
            assert_eq!(body.is_empty(), status == StatusCode::NOT_MODIFIED);
        }
    }

    /// The page gets something else than it asks for.
    #[tokio::test]
    async fn render_answers_with_html() {
        let (status, body) = post_render(r#"{"markdown": "*a*\n\nß𝄞 b\n\nc\n", "open": true}"#).await;
        assert_eq!(status, StatusCode::OK);
        let expected = json!({ "html": "<p><em>a</em></p>\n<p>ß𝄞 b</p>\n", "tail_html": "<p>c</p>\n", "tail_start": 12 });
        assert_eq!(body, expected);
    }

    /// A bad request is a server error, or hangs, or says nothing.
    #[tokio::test]
    async fn render_refuses_in_the_shape_of_the_api() {
        let long = json!({ "markdown": "a".repeat(render::MARKDOWN_BYTES_MAX + 1) }).to_string();
        let huge = json!({ "markdown": "a".repeat(BODY_BYTES_MAX) }).to_string();
        let cases = [
            ("", StatusCode::BAD_REQUEST),
            ("{}", StatusCode::UNPROCESSABLE_ENTITY),
            (r#"{"markdown": 1}"#, StatusCode::UNPROCESSABLE_ENTITY),
            (&long, StatusCode::PAYLOAD_TOO_LARGE),
            (&huge, StatusCode::PAYLOAD_TOO_LARGE),
        ];
        for (body, expected) in cases {
            let (status, answer) = post_render(body).await;
            assert_eq!(status, expected, "{}", &body[..body.len().min(40)]);
            assert!(answer["error"]["message"].as_str().is_some_and(|m| !m.is_empty()), "{answer}");
        }
    }

    /// Somebody could keep all connections for as long as he likes.
    #[tokio::test]
    async fn a_body_that_does_not_come_is_not_waited_for() {
        let never = futures_util::stream::pending::<Result<Vec<u8>, std::io::Error>>();
        let request = Request::post("/web/render").header(header::CONTENT_TYPE, "application/json");
        let request = request.body(Body::from_stream(never)).unwrap();
        let response = rendering::<()>(Duration::from_millis(1)).oneshot(request).await.unwrap();
        assert_eq!(response.status(), StatusCode::REQUEST_TIMEOUT);
    }
}
