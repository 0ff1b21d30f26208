//! Expert slots and the reads that fill them: which records stay in memory, how the missing ones get there.
//!
//! Knows layers and experts as numbers and records as bytes: nothing of formats or of what a layer computes.
#![forbid(unsafe_code)]

mod error;
mod io;
mod memory;
mod options;
mod policy;
mod replay;
mod slots;
mod trace;

pub use error::StreamError;
pub use io::{Backing, ReadAt, Reader, measure_read_bandwidth};
pub use memory::{available_bytes, peak_rss_bytes, rss_bytes, total_bytes};
pub use options::{CacheMode, Method, StreamOptions, Tuning};
pub use replay::{Use, belady_misses, lru_misses, misses_by};
pub use slots::{ExpertStream, Lease, RecordFile, StreamStats};
pub use trace::{RoutingTrace, TraceError};
