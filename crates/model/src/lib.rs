//! The forward pass: from token ids to logits, with experts streamed from the store.
//!
//! This crate is the only place that orders work: route, request experts, do what does not need them, wait,
//! compute. It waits for reads at one named, timed point a layer. `arch/` reads like the specification of the
//! models; everything arithmetic is behind [`kernels::Backend`], everything about files behind [`stream`].
#![forbid(unsafe_code)]

mod arch;
mod engine;
mod error;
mod fill;
mod footprint;
mod observe;
mod routing;
mod scratch;
mod session;
mod state;
mod timeline;
mod timing;
mod weights;

#[cfg(test)]
mod tests;

pub use engine::{Engine, EngineOptions, Logits, Prefetch};
pub use error::ModelError;
pub use footprint::Footprint;
pub use session::Session;
pub use state::State;
pub use timeline::{Timeline, TokenModel};
pub use timing::{Phase, Timing};
