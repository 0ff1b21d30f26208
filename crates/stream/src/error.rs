//! A read that failed for good.

use std::io;

/// A record that could not be read, after retries.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StreamError {
    /// The system reports an error.
    #[error(
        "{file}: reading layer {layer} expert {expert} ({bytes} bytes at offset {offset}) failed after {attempts} attempts: {source}"
    )]
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
    /// A reading thread cannot be started.
    #[error("cannot start a reading thread: {source}")]
    Thread {
        /// Why not.
        source: io::Error,
    },
    /// Heats of another model.
    #[error("heats of {n_heat} records do not fit a model of {n_record}")]
    OtherHeat {
        /// Records of the model.
        n_record: usize,
        /// Heats there are.
        n_heat: usize,
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

impl StreamError {
    /// The same error once more: every lease on a record that failed is told. [`io::Error`] has no `Clone`.
    pub(crate) fn duplicate(&self) -> Self {
        let again = |e: &io::Error| match e.raw_os_error() {
            Some(code) => io::Error::from_raw_os_error(code),
            None => io::Error::new(e.kind(), e.to_string()),
        };
        match self {
            &Self::Read { ref file, offset, bytes, layer, expert, attempts, ref source } => Self::Read {
                file: file.clone(),
                offset,
                bytes,
                layer,
                expert,
                attempts,
                source: again(source),
            },
            &Self::Checksum { ref file, offset, layer, expert } => {
                Self::Checksum { file: file.clone(), offset, layer, expert }
            }
            Self::Open { file, source } => Self::Open { file: file.clone(), source: again(source) },
            Self::Allocate { bytes, source } => Self::Allocate { bytes: *bytes, source: again(source) },
            Self::Thread { source } => Self::Thread { source: again(source) },
            Self::OtherHeat { n_record, n_heat } => Self::OtherHeat { n_record: *n_record, n_heat: *n_heat },
            Self::TooFewSlots { n_slot, n_min } => Self::TooFewSlots { n_slot: *n_slot, n_min: *n_min },
        }
    }
}
