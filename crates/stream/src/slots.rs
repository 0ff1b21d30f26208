//! The slot cache: a fixed number of record-sized, page-aligned buffers over all layers.

use std::time::Duration;

use crate::{Backing, ReadAt, StreamError};

/// What keeps experts in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CacheMode {
    /// Our slots keep records, files are read past the page cache.
    Slots,
    /// The system's page cache keeps what it likes: every use is a buffered read into a few staging slots.
    Page,
}

/// One layer's records.
pub struct RecordFile {
    /// Where they are.
    pub source: Box<dyn ReadAt>,
    /// From one record to the next; expert `e` starts at `e · stride_bytes`.
    pub stride_bytes: usize,
    /// xxh3-64 of each record.
    pub xxh3: Vec<u64>,
}

/// How to stream.
#[derive(Clone, Copy, Debug)]
pub struct StreamOptions {
    /// Cache policy.
    pub mode: CacheMode,
    /// Slots in all.
    pub n_slot: usize,
    /// Reading threads.
    pub n_reader: usize,
}

/// Counters since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct StreamStats {
    /// Requests that found their record in a slot.
    pub n_hit: u64,
    /// Requests that had to read.
    pub n_miss: u64,
    /// Bytes read.
    pub read_bytes: u64,
    /// Reads tried again.
    pub n_retry: u64,
    /// Time spent waiting in [`ExpertStream::wait`].
    pub wait: Duration,
}

/// Experts of one layer that are being used: pinned until [`ExpertStream::release`].
#[derive(Debug)]
pub struct Lease {
    /// The layer.
    pub layer: usize,
    /// Experts, as requested.
    pub experts: Vec<usize>,
    pub(crate) slots: Vec<usize>,
}

/// All experts of a model.
pub struct ExpertStream {
    _stub: (),
}

impl ExpertStream {
    /// Allocates the slots and starts the readers.
    ///
    /// # Errors
    /// No memory, or fewer than 2 slots.
    pub fn new(_layers: Vec<RecordFile>, _options: StreamOptions) -> Result<Self, StreamError> {
        panic!("stub")
    }

    /// How files should be opened for a cache mode.
    pub fn backing(mode: CacheMode) -> Backing {
        match mode {
            CacheMode::Slots => Backing::Direct,
            CacheMode::Page => Backing::Buffered,
        }
    }

    /// Slots in all.
    pub fn n_slot(&self) -> usize {
        panic!("stub")
    }

    /// Pins the experts that are in memory and starts reading all others at once. Returns without waiting.
    /// `experts` are distinct. Several leases may be open, as long as their experts fit the slots together.
    ///
    /// # Errors
    /// [`StreamError::TooFewSlots`] if all open leases together pin more than there are slots.
    pub fn request(&mut self, _layer: usize, _experts: &[usize]) -> Result<Lease, StreamError> {
        panic!("stub")
    }

    /// Is this expert of the lease in memory, so that [`Self::record`] may be called?
    pub fn is_ready(&mut self, _lease: &Lease, _idx: usize) -> bool {
        panic!("stub")
    }

    /// Waits until all experts of the lease are in memory. This is the one place where the engine waits for I/O.
    ///
    /// # Errors
    /// A record could not be read or does not match its checksum. The lease must still be released.
    pub fn wait(&mut self, _lease: &Lease) -> Result<(), StreamError> {
        panic!("stub")
    }

    /// The bytes of the lease's expert number `idx` (its place in `experts`).
    ///
    /// # Panics
    /// The record has not arrived: [`Self::wait`] or [`Self::is_ready`] comes first.
    pub fn record(&self, _lease: &Lease, _idx: usize) -> &[u8] {
        panic!("stub")
    }

    /// Unpins a lease.
    pub fn release(&mut self, _lease: Lease) {
        panic!("stub")
    }

    /// Counters.
    pub fn stats(&self) -> StreamStats {
        panic!("stub")
    }
}
