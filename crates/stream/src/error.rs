//! A read that failed for good.

use std::io;

/// A record that could not be read, after retries.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StreamError {
    /// The system reports an error.
    #[error("{file}: reading layer {layer} expert {expert} ({bytes} bytes at offset {offset}) failed after {attempts} attempts: {source}")]
    Read {
        /// The file.
        file: String,
        /// First byte of the record.
        offset: u64,
        /// Bytes of the record.
        bytes: usize,
        /// Layer.
        layer: usize,
        /// Expert.
        expert: usize,
        /// How often it was tried.
        attempts: u32,
        /// The last error.
        source: io::Error,
    },
    /// The bytes are not those that were written.
    #[error("{file}: layer {layer} expert {expert} at offset {offset} does not match its checksum")]
    Checksum {
        /// The file.
        file: String,
        /// First byte of the record.
        offset: u64,
        /// Layer.
        layer: usize,
        /// Expert.
        expert: usize,
    },
    /// A file cannot be opened.
    #[error("{file}: cannot open: {source}")]
    Open {
        /// The file.
        file: String,
        /// Why not.
        source: io::Error,
    },
    /// Slots cannot be allocated.
    #[error("cannot allocate {bytes} bytes for expert slots: {source}")]
    Allocate {
        /// Bytes asked for.
        bytes: usize,
        /// Why not.
        source: io::Error,
    },
    /// The budget holds fewer slots than one step needs.
    #[error("{n_slot} expert slots are too few: at least {n_min} are needed")]
    TooFewSlots {
        /// Slots there would be.
        n_slot: usize,
        /// Slots needed.
        n_min: usize,
    },
}
