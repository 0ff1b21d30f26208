//! How to stream: what keeps experts in memory, and how reads are issued.

/// What keeps experts in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CacheMode {
    /// Our slots keep records, files are read past the page cache.
    Slots,
    /// The system's page cache keeps what it likes: every use is a buffered read into a few staging slots.
    Page,
    /// Nothing is read once all slots are full: a slot stands in for the records that are missing. Results are
    /// meaningless; the speed is that of a machine with enough memory.
    Assumed,
}

/// How reads are issued.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Method {
    /// Threads that each wait for one read: every system.
    Pool,
    /// One thread that keeps a ring of reads under way: Linux; elsewhere, and for sources that are no files, as
    /// [`Method::Pool`].
    Uring,
}

/// How a drive is kept busy; [`crate::tune`] finds what suits the one at hand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tuning {
    /// How reads are issued.
    pub method: Method,
    /// Longest single request: records are read in parts of at most this size, rounded down to a multiple of
    /// the records' alignment.
    pub request_bytes: usize,
    /// Requests under way at a time (the threads of a pool), at least 1.
    pub depth: usize,
}

/// What an aligned read may read too much, at both ends together.
const LANDING_EXTRA_BYTES: usize = 2 * 4096;

impl Tuning {
    /// Memory that reads of records in pieces take beside the slots, at most: such records have up to `record_bytes`.
    pub fn landing_bytes(&self, record_bytes: usize) -> usize {
        self.depth.max(1) * (self.request_bytes.min(record_bytes) + LANDING_EXTRA_BYTES)
    }
}

impl Default for Tuning {
    /// Enough for the drives that were measured, and records still arrive one after the other.
    fn default() -> Self {
        Self { method: Method::Pool, request_bytes: 1 << 20, depth: 8 }
    }
}

/// How to stream.
#[derive(Clone, Copy, Debug)]
pub struct StreamOptions {
    /// Cache policy.
    pub mode: CacheMode,
    /// Most slots in all.
    pub n_slot: usize,
    /// How reads are issued.
    pub tuning: Tuning,
}
