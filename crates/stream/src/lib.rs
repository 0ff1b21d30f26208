//! Expert slots and the reads that fill them: which records stay in memory, how the missing ones get there.
//!
//! Knows layers and experts as numbers and records as bytes: nothing of formats or of what a layer computes.
#![deny(unsafe_code)]

mod adapt;
mod error;
mod heat;
#[allow(unsafe_code, reason = "several threads and the system fill one buffer")]
mod io;
mod lookahead;
mod memory;
mod options;
mod policy;
mod replay;
mod slots;
mod stream;
mod tier;
mod trace;

pub use error::StreamError;
pub use heat::Heat;
pub use io::{
    Backing, DriveFacts, ReadAt, Reader, SimCounts, SimDrive, SimFaults, SimSpec, SimSpecError, SlotMemory,
    Tuned, drive_facts, drive_key, measure_buffered_bandwidth, measure_read_bandwidth, tune,
};
pub use memory::{
    Governor, GovernorOptions, MemoryFacts, MemoryReading, available_bytes, peak_rss_bytes, rss_bytes,
    total_bytes,
};
pub use options::{CacheMode, Method, StreamOptions, Tuning};
pub use replay::{Use, belady_misses, lru_misses, misses_by, policy_misses};
pub use slots::{MakeSlots, SlotLimit};
pub use stream::{ExpertStream, LayerStats, Lease, RecordFile, StreamStats};
pub use tier::Admission;
pub use trace::{RoutingTrace, TraceError};
