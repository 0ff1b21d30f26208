//! What handlers share, and which address leads where.

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::{DefaultBodyLimit, MatchedPath, Request, State};
use axum::http::Method;
use axum::middleware::{Next, from_fn, from_fn_with_state};
use axum::response::Response;
use axum::routing::{get, post};
use generate::{SamplingOverrides, TextModel};
use tokio::sync::Semaphore;
use tower_http::cors::{AllowHeaders, AllowOrigin, CorsLayer};

use crate::api::anthropic::{self, errors_in_our_words};
use crate::api::openai::{chat, completions, models, tokenize};
use crate::api::responses;
use crate::api::thinking::Thinking;
use crate::auth::{self, Keys, Origins};
use crate::engine::{Job, Queue, Updates};
use crate::error::ApiError;
use crate::id;
use crate::limits::{Limits, N_LARGE_BODY};
use crate::metrics::Metrics;
use crate::openapi;
use crate::web;

/// How long a browser may remember what a preflight said.
const PREFLIGHT_AGE: Duration = Duration::from_secs(600);

/// The field of chat answers that thinking goes to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ReasoningField {
    /// `reasoning_content`
    #[default]
    ReasoningContent,
    /// `reasoning`
    Reasoning,
}

impl ReasoningField {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::ReasoningContent => "reasoning_content",
            Self::Reasoning => "reasoning",
        }
    }
}

/// What a server is like.
#[derive(Clone, Debug)]
pub struct ServeOptions {
    /// What the model is called: at least one name, the first one is used in answers.
    pub names: Vec<String>,
    /// Rows of the head.
    pub n_vocab: usize,
    /// Positions of the context.
    pub n_ctx: usize,
    /// Thinking, where requests do not say.
    pub thinking: Thinking,
    /// Most tokens of an answer, where requests do not say; `None`: what the context has left.
    pub max_tokens: Option<usize>,
    /// Sampling, where requests do not say.
    pub sampling: SamplingOverrides,
    /// Where thinking goes.
    pub reasoning_field: ReasoningField,
    /// Who may ask; empty: everybody.
    pub keys: Keys,
    /// From where.
    pub origins: Origins,
    /// How much.
    pub limits: Limits,
    /// A comment is sent in a stream when nothing else was for so long.
    pub heartbeat: Duration,
    /// Claude Code begins its system prompts with a line about billing that changes from request to request. Such a
    /// line is left out of prompts, or everything behind it would have to be read again each time; this leaves it in.
    pub keep_billing_line: bool,
}

impl ServeOptions {
    /// Defaults for a model.
    pub fn new(name: impl Into<String>, n_vocab: usize, n_ctx: usize) -> Self {
        Self {
            names: vec![name.into()],
            n_vocab,
            n_ctx,
            thinking: Thinking::default(),
            max_tokens: None,
            sampling: SamplingOverrides::default(),
            reasoning_field: ReasoningField::default(),
            keys: Keys::default(),
            origins: Origins::default(),
            limits: Limits::default(),
            heartbeat: Duration::from_secs(10),
            keep_billing_line: false,
        }
    }

    pub(crate) fn name(&self) -> &str {
        self.names.first().map_or("model", String::as_str)
    }
}

/// What handlers share. Cheap to clone.
#[derive(Clone)]
pub struct App(Arc<Shared>);

struct Shared {
    options: ServeOptions,
    text: Arc<TextModel>,
    queue: Arc<Queue>,
    metrics: Arc<Metrics>,
    large_bodies: Arc<Semaphore>,
    started_s: u64,
}

impl App {
    /// Jobs go to `queue`, which an engine must serve.
    pub fn new(
        options: ServeOptions,
        text: Arc<TextModel>,
        queue: Arc<Queue>,
        metrics: Arc<Metrics>,
    ) -> Self {
        let large_bodies = Arc::new(Semaphore::new(N_LARGE_BODY));
        Self(Arc::new(Shared { options, text, queue, metrics, large_bodies, started_s: id::now_s() }))
    }

    pub(crate) fn options(&self) -> &ServeOptions {
        &self.0.options
    }

    pub(crate) fn text(&self) -> &TextModel {
        &self.0.text
    }

    pub(crate) fn metrics(&self) -> &Metrics {
        &self.0.metrics
    }

    /// Places for bodies that take much memory.
    pub(crate) fn large_bodies(&self) -> Arc<Semaphore> {
        self.0.large_bodies.clone()
    }

    pub(crate) fn started_s(&self) -> u64 {
        self.0.started_s
    }

    /// Is the server ending?
    pub(crate) fn is_closed(&self) -> bool {
        self.0.queue.closed().is_some()
    }

    /// Hands jobs in, all or none.
    pub(crate) fn submit(&self, jobs: Vec<Job>) -> Result<Vec<Updates>, ApiError> {
        Ok(self.0.queue.submit(jobs)?)
    }

    /// All addresses.
    pub fn router(&self) -> Router {
        let api = Router::new()
            .route("/chat/completions", post(chat::chat_completions))
            .route("/completions", post(completions::completions))
            .route("/models", get(models::models))
            .route("/models/{*name}", get(models::model))
            .route("/embeddings", post(models::embeddings))
            .merge(responses::router())
            .merge(anthropic::router());
        let guarded = Router::new()
            .merge(api.clone())
            .nest("/v1", api)
            .route("/metrics", get(models::metrics))
            .route("/openapi.json", get(openapi::openapi))
            .route("/tokenize", post(tokenize::tokenize))
            .route("/detokenize", post(tokenize::detokenize))
            .route("/v1/tokenize", post(tokenize::tokenize))
            .route("/v1/detokenize", post(tokenize::detokenize))
            .merge(web::rendering(self.options().limits.body_time))
            .route_layer(from_fn_with_state(self.clone(), auth::check_key));
        // The page asks for the key itself.
        let open = Router::new()
            .route("/health", get(models::health))
            .route("/v1/health", get(models::health))
            .merge(web::files());
        guarded
            .merge(open)
            .fallback(models::not_found)
            .method_not_allowed_fallback(models::wrong_method)
            // Bodies have a limit of their own.
            .layer(DefaultBodyLimit::disable())
            .layer(self.cors())
            .layer(from_fn_with_state(self.clone(), auth::check_origin))
            .layer(from_fn(errors_in_our_words))
            .layer(from_fn_with_state(self.clone(), count))
            .with_state(self.clone())
    }

    fn cors(&self) -> CorsLayer {
        let app = self.clone();
        let allowed = AllowOrigin::predicate(move |origin, _| app.options().origins.allows(origin));
        CorsLayer::new()
            .allow_origin(allowed)
            .allow_methods([Method::GET, Method::POST])
            // Clients of the APIs send headers of their own, which say nothing that a page could not know.
            .allow_headers(AllowHeaders::mirror_request())
            .max_age(PREFLIGHT_AGE)
    }
}

/// Counts requests.
async fn count(State(app): State<App>, request: Request, next: Next) -> Response {
    let path = request.extensions().get::<MatchedPath>().map(|path| path.as_str().to_owned());
    let response = next.run(request).await;
    app.metrics().answered(path, response.status().as_u16());
    response
}
