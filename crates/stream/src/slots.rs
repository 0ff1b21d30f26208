//! The slot cache: a fixed number of record-sized, page-aligned buffers over all layers.
//!
//! Owns every slot and who uses it. A slot's buffer is owned here, or by a reading thread while it is being filled, so
//! nobody can look at half a record. All bookkeeping happens on the thread that calls; readers only fill buffers.

use std::sync::Arc;
use std::time::{Duration, Instant};

use quant::Buffer;

use crate::io::{Done, Job, Outcome, Readers, Urgency};
use crate::policy::Policy;
use crate::{Backing, CacheMode, Method, ReadAt, StreamError, StreamOptions};

/// One layer's records.
pub struct RecordFile {
    /// Where they are.
    pub source: Box<dyn ReadAt>,
    /// From one record to the next; expert `e` starts at `e · stride_bytes`.
    pub stride_bytes: usize,
    /// xxh3-64 of each record, all `stride_bytes` of it.
    pub xxh3: Vec<u64>,
}

/// Counters since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct StreamStats {
    /// Requests that found their record in a slot, or on its way into one.
    pub n_hit: u64,
    /// Requests that had to read.
    pub n_miss: u64,
    /// Bytes read, failed attempts included.
    pub read_bytes: u64,
    /// Reads tried again.
    pub n_retry: u64,
    /// Time in which the engine waited for reads.
    pub wait: Duration,
    /// Time that the readers spent reading and checking, added up over all readers.
    pub read: Duration,
}

/// Experts of one layer that are being used: pinned until [`ExpertStream::release`].
#[derive(Debug)]
#[must_use = "its slots stay pinned until it is released"]
pub struct Lease {
    /// The layer.
    pub layer: usize,
    /// Experts, as requested.
    pub experts: Vec<usize>,
    pub(crate) slots: Vec<usize>,
}

/// In the table: not in memory, and not on its way.
const ABSENT: u32 = u32::MAX;

/// What is in a slot. The buffer of a slot that is being filled is with a reader.
enum Content {
    Empty(Buffer),
    Reading,
    Ready(Buffer),
    Failed(Buffer, StreamError),
}

struct Slot {
    content: Content,
    /// Open leases that use it.
    n_pin: u32,
    /// Place in the table of the record that it holds.
    record: usize,
}

/// All experts of a model.
///
/// A slot is empty (on the free list), pinned by leases, being filled, or full and unpinned (known to the policy).
pub struct ExpertStream {
    mode: CacheMode,
    n_slot: usize,
    slot_bytes: usize,
    layers: Arc<Vec<RecordFile>>,
    /// Record number of each layer's expert 0.
    first: Vec<usize>, // [n_layer]
    /// Slot of each record.
    table: Vec<u32>, // [n_layer · n_expert]
    slots: Vec<Slot>,
    free: Vec<usize>,
    policy: Policy,
    readers: Readers,
    n_pinned: usize,
    /// Scratch, kept for its capacity.
    jobs: Vec<Job>,
    done: Vec<Done>,
    stats: StreamStats,
}

impl ExpertStream {
    /// Starts the readers. Slots take memory when they are first needed.
    ///
    /// # Errors
    /// Fewer than 2 slots, or no threads.
    pub fn new(layers: Vec<RecordFile>, options: StreamOptions) -> Result<Self, StreamError> {
        if options.n_slot < 2 {
            return Err(StreamError::TooFewSlots { n_slot: options.n_slot, n_min: 2 });
        }
        let mut n_record = 0;
        let first = layers.iter().map(|layer| {
            n_record += layer.xxh3.len();
            n_record - layer.xxh3.len()
        });
        let first = first.collect();
        let layers = Arc::new(layers);
        Ok(Self {
            mode: options.mode,
            n_slot: options.n_slot.min(ABSENT as usize),
            slot_bytes: layers.iter().map(|layer| layer.stride_bytes).max().unwrap_or(0),
            first,
            table: vec![ABSENT; n_record],
            slots: Vec::new(),
            free: Vec::new(),
            policy: Policy::new(),
            readers: Readers::new(Arc::clone(&layers), options.tuning)?,
            layers,
            n_pinned: 0,
            jobs: Vec::new(),
            done: Vec::new(),
            stats: StreamStats::default(),
        })
    }

    /// How files should be opened for a cache mode.
    pub fn backing(mode: CacheMode) -> Backing {
        match mode {
            CacheMode::Slots | CacheMode::Assumed => Backing::Direct,
            CacheMode::Page => Backing::Buffered,
        }
    }

    /// Are all layers read past the page cache?
    pub fn is_direct(&self) -> bool {
        self.layers.iter().all(|layer| layer.source.is_direct())
    }

    /// How reads are issued in fact: the tuning's method where system and sources allow it.
    pub fn method(&self) -> Method {
        self.readers.method()
    }

    /// Slots in all.
    pub fn n_slot(&self) -> usize {
        self.n_slot
    }

    /// Pins the experts that are in memory and starts reading all others at once. Returns without waiting, but for
    /// one case: slots are still being filled for leases that were released before their records arrived.
    /// `experts` are distinct. Several leases may be open, as long as their experts fit the slots together.
    ///
    /// # Errors
    /// [`StreamError::TooFewSlots`] if all open leases together pin more than there are slots; no memory for a slot.
    /// Nothing is pinned then.
    ///
    /// # Panics
    /// There is no such layer or expert, or one that must be read is requested twice.
    pub fn request(&mut self, layer: usize, experts: &[usize]) -> Result<Lease, StreamError> {
        let n_expert = self.layers[layer].xxh3.len();
        assert!(
            experts.iter().all(|&e| e < n_expert),
            "layer {layer} has {n_expert} experts, not all of {experts:?}"
        );
        self.take_done();
        let first = self.first[layer];
        self.make_room(first, experts)?;
        // Hits first, so that no miss takes their slots.
        let mut slots: Vec<usize> =
            experts.iter().map(|&expert| self.table[first + expert] as usize).collect();
        for &slot in slots.iter().filter(|&&slot| slot != ABSENT as usize) {
            self.pin(slot);
            self.stats.n_hit += 1;
        }
        for (slot, &expert) in slots.iter_mut().zip(experts).filter(|(slot, _)| **slot == ABSENT as usize) {
            *slot = self.start_read(layer, expert);
            self.stats.n_miss += 1;
        }
        self.readers.submit(&mut self.jobs);
        Ok(Lease { layer, experts: experts.to_vec(), slots })
    }

    /// Is this expert of the lease in memory, so that [`Self::record`] may be called?
    pub fn is_ready(&mut self, lease: &Lease, idx: usize) -> bool {
        self.take_done();
        matches!(self.slots[lease.slots[idx]].content, Content::Ready(_))
    }

    /// Waits until all experts of the lease are in memory. This is the one place where the engine waits for I/O.
    ///
    /// # Errors
    /// A record could not be read or does not match its checksum. The lease must still be released; its other records
    /// are there and right.
    pub fn wait(&mut self, lease: &Lease) -> Result<(), StreamError> {
        self.take_done();
        while lease.slots.iter().any(|&slot| matches!(self.slots[slot].content, Content::Reading)) {
            self.wait_done();
        }
        let failure = lease.slots.iter().find_map(|&slot| match &self.slots[slot].content {
            Content::Failed(_, error) => Some(error.duplicate()),
            _ => None,
        });
        failure.map_or(Ok(()), Err)
    }

    /// The bytes of the lease's expert number `idx` (its place in `experts`): `stride_bytes` of its layer.
    ///
    /// # Panics
    /// The record has not arrived: [`Self::wait`] or [`Self::is_ready`] comes first.
    pub fn record(&self, lease: &Lease, idx: usize) -> &[u8] {
        match &self.slots[lease.slots[idx]].content {
            Content::Ready(buffer) => &buffer[..self.layers[lease.layer].stride_bytes],
            _ => panic!("layer {} expert {} is not in memory", lease.layer, lease.experts[idx]),
        }
    }

    /// Unpins a lease. Reads that are still under way go on; their records may be hits later.
    pub fn release(&mut self, lease: Lease) {
        for slot in lease.slots {
            self.slots[slot].n_pin -= 1;
            if self.slots[slot].n_pin == 0 {
                self.n_pinned -= 1;
                self.settle(slot);
            }
        }
    }

    /// Counters.
    pub fn stats(&self) -> StreamStats {
        self.stats
    }

    /// Checks that the experts fit beside what is pinned, and makes the slots that they need and nobody made before.
    fn make_room(&mut self, first: usize, experts: &[usize]) -> Result<(), StreamError> {
        let slots = || experts.iter().map(|&expert| self.table[first + expert]);
        let n_miss = slots().filter(|&slot| slot == ABSENT).count();
        let n_unpinned =
            slots().filter(|&slot| slot != ABSENT && self.slots[slot as usize].n_pin == 0).count();
        let n_min = self.n_pinned + n_miss + n_unpinned;
        if n_min > self.n_slot {
            return Err(StreamError::TooFewSlots { n_slot: self.n_slot, n_min });
        }
        while self.free.len() < n_miss && self.slots.len() < self.n_slot {
            let buffer = Buffer::zeroed(self.slot_bytes)
                .map_err(|source| StreamError::Allocate { bytes: self.slot_bytes, source })?;
            self.free.push(self.slots.len());
            self.slots.push(Slot { content: Content::Empty(buffer), n_pin: 0, record: 0 });
        }
        Ok(())
    }

    fn pin(&mut self, slot_idx: usize) {
        let slot = &mut self.slots[slot_idx];
        slot.n_pin += 1;
        if slot.n_pin == 1 {
            self.n_pinned += 1;
            if matches!(slot.content, Content::Ready(_)) {
                self.policy.remove(slot_idx);
            }
        }
    }

    /// Gives the record a pinned slot and puts its read on the list of jobs.
    fn start_read(&mut self, layer: usize, expert: usize) -> usize {
        let record = self.first[layer] + expert;
        assert!(self.table[record] == ABSENT, "layer {layer} expert {expert} is requested twice in one call");
        let slot_idx = self.vacate_slot();
        let slot = &mut self.slots[slot_idx];
        let buffer = match std::mem::replace(&mut slot.content, Content::Reading) {
            Content::Empty(buffer) | Content::Ready(buffer) | Content::Failed(buffer, _) => buffer,
            Content::Reading => unreachable!("a slot that is being filled is neither free nor evictable"),
        };
        slot.n_pin = 1;
        slot.record = record;
        self.n_pinned += 1;
        self.table[record] = slot_idx as u32;
        self.jobs.push(Job { urgency: Urgency::Demand, slot: slot_idx, layer, expert, buffer });
        slot_idx
    }

    /// A slot that nobody uses and whose record, if it had one, is forgotten. [`Self::make_room`] came first, so if
    /// there is none now, a read that nobody waits for will give one back.
    fn vacate_slot(&mut self) -> usize {
        loop {
            if let Some(slot) = self.free.pop() {
                return slot;
            }
            if let Some(slot) = self.policy.evict() {
                self.table[self.slots[slot].record] = ABSENT;
                return slot;
            }
            self.wait_done();
        }
    }

    /// Decides what becomes of a slot that no lease pins any more.
    fn settle(&mut self, slot_idx: usize) {
        let slot = &mut self.slots[slot_idx];
        slot.content = match std::mem::replace(&mut slot.content, Content::Reading) {
            Content::Ready(buffer) if self.mode != CacheMode::Page => {
                self.policy.insert(slot_idx);
                Content::Ready(buffer)
            }
            Content::Ready(buffer) => {
                self.table[slot.record] = ABSENT;
                self.free.push(slot_idx);
                Content::Empty(buffer)
            }
            Content::Failed(buffer, _) => {
                self.free.push(slot_idx);
                Content::Empty(buffer)
            }
            // Its read is under way: `accept` settles it.
            other => other,
        };
    }

    /// Takes over what the readers have finished.
    fn take_done(&mut self) {
        let mut done = std::mem::take(&mut self.done);
        self.readers.take_done(&mut done);
        self.accept(done);
    }

    /// The same, but waits until there is something.
    fn wait_done(&mut self) {
        let start = Instant::now();
        let mut done = std::mem::take(&mut self.done);
        self.readers.wait_done(&mut done);
        self.stats.wait += start.elapsed();
        self.accept(done);
    }

    fn accept(&mut self, mut done: Vec<Done>) {
        for Done { slot: slot_idx, buffer, outcome, cost } in done.drain(..) {
            self.stats.read_bytes += cost.read_bytes;
            self.stats.n_retry += cost.n_retry;
            self.stats.read += cost.read;
            let slot = &mut self.slots[slot_idx];
            slot.content = match outcome {
                Outcome::Ready => Content::Ready(buffer),
                // Whoever asks from now on has it read again.
                Outcome::Failed(error) => {
                    self.table[slot.record] = ABSENT;
                    Content::Failed(buffer, error)
                }
                Outcome::Cancelled => {
                    self.table[slot.record] = ABSENT;
                    Content::Empty(buffer)
                }
            };
            if slot.n_pin == 0 {
                self.settle(slot_idx);
            }
        }
        self.done = done;
    }
}
