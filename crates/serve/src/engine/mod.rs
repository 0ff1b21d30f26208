//! Between requests and the model: one thread owns the model and shares it out.
//!
//! Handlers turn a request into a [`Job`], hand it in at the [`Queue`], and read [`Update`]s. the engine's thread
//! takes jobs from the queue and runs them side by side. Knows nothing of HTTP or of any API's words.

mod job;
mod model;
mod queue;
mod reuse;
mod running;
mod scheduler;
mod slot;

pub use job::{CacheHint, CallUpdate, Done, Failure, FailureKind, Job, Timings, Update};
pub use model::{Counters, Model};
pub use queue::{Queue, Refused, Ticket, Updates};
pub use reuse::{Parting, Reason, Reuse, Source};
pub use scheduler::{SchedulerOptions, run};
