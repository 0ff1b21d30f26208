//! The server: HTTP, the APIs' words, and the engine that many requests share.
#![forbid(unsafe_code)]

mod api;
mod app;
mod auth;
mod conn;
pub mod engine;
mod error;
mod id;
mod limits;
mod metrics;
mod off_thread;
mod openapi;
mod server;
mod sse;
mod timed_writes;
mod web;

pub use api::thinking::Thinking;
pub use app::{App, ReasoningField, ServeOptions};
pub use auth::{Keys, Origins};
pub use error::{ApiError, ErrorKind};
pub use limits::Limits;
pub use metrics::Metrics;
pub use server::{ServeError, serve};
