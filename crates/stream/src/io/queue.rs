//! The records under way, cut into parts that readers take, and what came of them.
//!
//! Owns the buffers while they are filled, and decides the order: what somebody waits for goes first. Knows nothing
//! of how bytes are read.

use std::collections::VecDeque;
use std::io;
use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, Instant};

use xxhash_rust::xxh3::Xxh3;

use super::SlotBuffer;
use crate::{RecordFile, StreamError};

/// How often a record is read before it counts as unreadable: an error may be a cable, a bus, a busy server.
pub(crate) const N_ATTEMPT: u32 = 3;

/// Spare parts under way at a time and their length: together the longest that an urgent read may have to wait for
/// the drive, 2 ms at 1 GB/s.
const N_SPARE_PART_MAX: usize = 2;
const SPARE_PART_BYTES_MAX: usize = 1 << 20;

/// Least bytes of a record that are hashed at a time, but for its end. They arrived just before, and are still in the
/// processor's cache.
const CHECK_BYTES_MIN: usize = 256 << 10;
/// Parts that come before those in front of them, of all records under way: room for so many is kept.
const N_EARLY: usize = 1024;

/// When a record is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Urgency {
    /// Somebody waits for it.
    Demand,
    /// It may be useful: only while nothing urgent is queued.
    Spare,
}

/// One record to read.
pub(crate) struct Job {
    pub(crate) urgency: Urgency,
    pub(crate) slot: usize,
    pub(crate) layer: usize,
    pub(crate) expert: usize,
    pub(crate) buffer: SlotBuffer,
}

/// What came of a job.
pub(crate) struct Done {
    pub(crate) slot: usize,
    pub(crate) buffer: SlotBuffer,
    pub(crate) outcome: Outcome,
    pub(crate) cost: Cost,
}

/// How a job ended.
pub(crate) enum Outcome {
    Ready,
    Failed(StreamError),
    /// A spare job that was given up before its record was whole.
    Cancelled,
}

/// What a record cost, failed attempts included.
#[derive(Clone, Copy, Default)]
pub(crate) struct Cost {
    pub(crate) read_bytes: u64,
    pub(crate) n_retry: u64,
    /// Added up over the parts and the check.
    pub(crate) read: Duration,
}

/// Who reads a layer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Lane {
    /// Each waits for one read.
    Threads,
    /// Keeps several under way.
    Ring,
}

/// A range of a record, and the right to write its memory. Goes back to the queue in any case.
pub(super) struct Part {
    flight: usize,
    pub(super) layer: usize,
    /// First byte in the file of what is still missing, and where it belongs.
    pub(super) offset: u64,
    memory: *mut u8,
    /// Bytes missing, and arrived.
    pub(super) bytes: usize,
    got: usize,
    /// First byte of the part in the record.
    start: usize,
    is_spare: bool,
    since: Instant,
}

// SAFETY: a part is the only one that touches its memory, see `Part::buffer`.
unsafe impl Send for Part {}

impl Part {
    /// The memory that is still to be filled.
    pub(super) fn buffer(&mut self) -> &mut [u8] {
        // SAFETY: parts are disjoint ranges of a buffer that its flight owns and does not touch until all its parts
        // are back; a part cannot be copied.
        unsafe { std::slice::from_raw_parts_mut(self.memory, self.bytes) }
    }

    /// Where that is.
    #[cfg_attr(not(target_os = "linux"), expect(dead_code, reason = "for rings"))]
    pub(super) fn memory(&self) -> *mut u8 {
        self.memory
    }

    /// `n` bytes have arrived.
    pub(super) fn advance(&mut self, n: usize) {
        assert!(n <= self.bytes, "a source delivers at most what it was asked for");
        self.offset += n as u64;
        self.got += n;
        self.bytes -= n;
        // SAFETY: `n` is within the part.
        self.memory = unsafe { self.memory.add(n) };
    }
}

/// Bytes of a record that arrived, to be hashed.
pub(super) struct Check {
    flight: usize,
    memory: *const u8,
    bytes: usize,
    /// Of all bytes before.
    hash: Xxh3,
    since: Instant,
}

// SAFETY: the memory is only read, and nobody writes it meanwhile, see `Check::run`.
unsafe impl Send for Check {}

impl Check {
    /// Takes up to 0.1 ms a megabyte.
    pub(super) fn run(&mut self) {
        // SAFETY: the flight owns the buffer, the parts with these bytes are back, and it neither hands them out again
        // nor gives the buffer away until the check is back.
        self.hash.update(unsafe { std::slice::from_raw_parts(self.memory, self.bytes) });
    }
}

/// What a thread does next.
#[expect(clippy::large_enum_variant, reason = "it is moved once a check; a box would be allocated for each")]
pub(super) enum Work {
    Read(Part),
    Check(Check),
}

/// A record under way.
struct Flight {
    job: Job,
    /// The buffer's memory; it stays where it is when the buffer is moved.
    memory: *mut u8,
    /// Of the record.
    bytes: usize,
    /// First byte that was in no part of this attempt yet.
    next: usize,
    n_part: usize,
    /// All bytes before this one have arrived in this attempt.
    arrived: usize,
    /// All bytes before this one are in `hash`.
    hashed: usize,
    hash: Xxh3,
    /// Bytes of it are being hashed, or soon will be.
    has_check: bool,
    attempt: u32,
    /// Nothing more of it is read.
    is_cancelled: bool,
    /// The first place that failed in this attempt, and why.
    failure: Option<(usize, io::Error)>,
    cost: Cost,
}

// SAFETY: `memory` points into `job.buffer`, which is `Send`.
unsafe impl Send for Flight {}

/// Flights of a lane that have bytes in no part yet.
#[derive(Default)]
struct Waiting {
    demand: VecDeque<usize>,
    spare: VecDeque<usize>,
    /// Parts that readers have.
    n_demand_part: usize,
    n_spare_part: usize,
}

impl Waiting {
    fn of(&mut self, urgency: Urgency) -> &mut VecDeque<usize> {
        match urgency {
            Urgency::Demand => &mut self.demand,
            Urgency::Spare => &mut self.spare,
        }
    }

    /// Spare parts only while the drive has nothing else to do.
    fn next(&self) -> Option<(usize, Urgency)> {
        let has_room = self.n_demand_part == 0 && self.n_spare_part < N_SPARE_PART_MAX;
        match self.demand.front() {
            Some(&idx) => Some((idx, Urgency::Demand)),
            None => self.spare.front().filter(|_| has_room).map(|&idx| (idx, Urgency::Spare)),
        }
    }

    fn n_part(&mut self, is_spare: bool) -> &mut usize {
        if is_spare { &mut self.n_spare_part } else { &mut self.n_demand_part }
    }
}

/// Who has something new to look at.
#[derive(Clone, Copy, Default)]
pub(super) struct Wakes {
    /// How many of them; while changes are noted, whether any.
    pub(super) threads: usize,
    pub(super) ring: bool,
    pub(super) owner: bool,
}

/// All of it. The collections keep their capacity, so that a job allocates nothing.
pub(super) struct Queue {
    layers: Arc<Vec<RecordFile>>,
    lanes: Vec<Lane>, // [n_layer]
    request_bytes: usize,
    /// Is every record right, whatever its checksum? For measurements.
    is_lenient: bool,
    flights: Vec<Option<Flight>>,
    vacant: Vec<usize>,
    /// The last flight that filled a slot.
    flight_of_slot: Vec<usize>,
    threads: Waiting,
    ring: Waiting,
    /// Parts that the ring could not read.
    repairs: VecDeque<Part>,
    /// Flights with bytes to hash.
    checks: VecDeque<usize>,
    /// Flights and ranges of parts that came before those in front of them.
    early: Vec<(usize, Range<usize>)>,
    pub(super) done: Vec<Done>,
    pub(super) is_closed: bool,
    wakes: Wakes,
}

impl Queue {
    /// `request_bytes` is a multiple of the record alignment.
    pub(super) fn new(
        layers: Arc<Vec<RecordFile>>,
        lanes: Vec<Lane>,
        request_bytes: usize,
        is_lenient: bool,
    ) -> Self {
        Self {
            layers,
            lanes,
            request_bytes,
            is_lenient,
            flights: Vec::new(),
            vacant: Vec::new(),
            flight_of_slot: Vec::new(),
            threads: Waiting::default(),
            ring: Waiting::default(),
            repairs: VecDeque::new(),
            checks: VecDeque::new(),
            early: Vec::with_capacity(N_EARLY),
            done: Vec::new(),
            is_closed: false,
            wakes: Wakes::default(),
        }
    }

    pub(super) fn push(&mut self, mut job: Job) {
        let bytes = self.layers[job.layer].stride_bytes;
        let flight = Flight {
            memory: job.buffer[..bytes].as_mut_ptr(),
            bytes,
            job,
            next: 0,
            n_part: 0,
            arrived: 0,
            hashed: 0,
            hash: Xxh3::new(),
            has_check: false,
            attempt: 1,
            is_cancelled: false,
            failure: None,
            cost: Cost::default(),
        };
        let slot = flight.job.slot;
        if self.flight_of_slot.len() <= slot {
            self.flight_of_slot.resize(slot + 1, 0);
            self.reserve(slot + 1);
        }
        let idx = self.vacant.pop().unwrap_or(self.flights.len());
        match self.flights.get_mut(idx) {
            Some(place) => *place = Some(flight),
            None => self.flights.push(Some(flight)),
        }
        self.flight_of_slot[slot] = idx;
        self.wait(idx);
    }

    /// Room for the flights of `n_slot` slots, which have one each at a time: once every slot was used, no list grows,
    /// however many flights it holds at once.
    fn reserve(&mut self, n_slot: usize) {
        let Self { flights, vacant, threads, ring, checks, done, .. } = self;
        flights.reserve(n_slot.saturating_sub(flights.len()));
        vacant.reserve(n_slot.saturating_sub(vacant.len()));
        done.reserve(n_slot.saturating_sub(done.len()));
        for list in [&mut threads.demand, &mut threads.spare, &mut ring.demand, &mut ring.spare, checks] {
            list.reserve(n_slot.saturating_sub(list.len()));
        }
    }

    /// Makes a spare job urgent, however much of it was read.
    pub(super) fn promote(&mut self, slot: usize) {
        let Some(idx) = self.find_spare(slot) else { return };
        self.flight(idx).job.urgency = Urgency::Demand;
        if self.stop_waiting(idx) {
            self.wait(idx);
        }
    }

    /// Gives up a spare job, unless all of it was asked for.
    pub(super) fn cancel(&mut self, slot: usize) {
        let Some(idx) = self.find_spare(slot) else { return };
        if self.stop_waiting(idx) {
            self.flight(idx).is_cancelled = true;
            self.land_if_idle(idx);
        }
    }

    /// What a thread does next: what ends a record comes first.
    pub(super) fn next_work(&mut self) -> Option<Work> {
        if let Some(idx) = self.checks.pop_front() {
            let flight = self.flight(idx);
            // SAFETY: `hashed` is within the record.
            let memory = unsafe { flight.memory.add(flight.hashed) };
            let (bytes, hash) = (flight.arrived - flight.hashed, std::mem::take(&mut flight.hash));
            return Some(Work::Check(Check { flight: idx, memory, bytes, hash, since: Instant::now() }));
        }
        self.repairs.pop_front().or_else(|| self.next_part(Lane::Threads)).map(Work::Read)
    }

    /// What a lane reads next.
    pub(super) fn next_part(&mut self, lane: Lane) -> Option<Part> {
        let (idx, urgency) = self.waiting(lane).next()?;
        let is_spare = urgency == Urgency::Spare;
        let bytes_max = self.request_bytes.min(if is_spare { SPARE_PART_BYTES_MAX } else { usize::MAX });
        let flight = self.flight(idx);
        let start = flight.next;
        let bytes = (flight.bytes - start).min(bytes_max);
        flight.next += bytes;
        flight.n_part += 1;
        let is_last = flight.next == flight.bytes;
        let part = Part {
            flight: idx,
            layer: flight.job.layer,
            offset: flight.job.expert as u64 * flight.bytes as u64 + start as u64,
            // SAFETY: `start` is within the record.
            memory: unsafe { flight.memory.add(start) },
            bytes,
            got: 0,
            start,
            is_spare,
            since: Instant::now(),
        };
        let waiting = self.waiting(lane);
        *waiting.n_part(is_spare) += 1;
        if is_last {
            waiting.of(urgency).pop_front();
        }
        Some(part)
    }

    /// Hands a part over to the threads.
    #[cfg_attr(not(target_os = "linux"), expect(dead_code, reason = "for rings"))]
    pub(super) fn repair(&mut self, part: Part) {
        self.repairs.push_back(part);
        self.wakes.threads = 1;
    }

    /// Takes back a part that was read, or could not be.
    pub(super) fn finish_part(&mut self, part: Part, result: io::Result<()>) {
        let lane = self.lanes[part.layer];
        let waiting = self.waiting(lane);
        *waiting.n_part(part.is_spare) -= 1;
        if waiting.n_demand_part == 0 && !waiting.spare.is_empty() {
            self.wake(lane);
        }
        let flight = self.flight(part.flight);
        flight.n_part -= 1;
        flight.cost.read_bytes += part.got as u64;
        flight.cost.read += part.since.elapsed();
        let is_first = flight.failure.as_ref().is_none_or(|&(place, _)| part.start < place);
        match result {
            Ok(()) => self.arrive(part.flight, part.start..part.start + part.got),
            Err(error) if is_first => {
                let error = match error.kind() {
                    io::ErrorKind::UnexpectedEof => early_end(flight.bytes, part.start + part.got),
                    _ => error,
                };
                flight.failure = Some((part.start, error));
            }
            Err(_) => {}
        }
        self.land_if_idle(part.flight);
    }

    /// Takes back a check.
    pub(super) fn finish_check(&mut self, check: Check) {
        let flight = self.flight(check.flight);
        flight.cost.read += check.since.elapsed();
        flight.hash = check.hash;
        flight.hashed += check.bytes;
        flight.has_check = false;
        self.check_if_due(check.flight);
        self.land_if_idle(check.flight);
    }

    /// Who must be told of what changed since the last call.
    pub(super) fn take_wakes(&mut self) -> Wakes {
        let wakes = std::mem::take(&mut self.wakes);
        let threads = if wakes.threads > 0 { self.n_work() } else { 0 };
        let has_part = self.ring.next().is_some();
        Wakes { threads, ring: wakes.ring && has_part, owner: wakes.owner }
    }

    /// What there is to do for threads.
    fn n_work(&self) -> usize {
        let n_part = |&idx: &usize| {
            let flight = self.flights[idx].as_ref().expect("waiting flights are under way");
            (flight.bytes - flight.next).div_ceil(self.request_bytes)
        };
        let n_demand: usize = self.threads.demand.iter().map(n_part).sum();
        let n_spare = match self.threads.next() {
            Some((_, Urgency::Spare)) => N_SPARE_PART_MAX - self.threads.n_spare_part,
            _ => 0,
        };
        self.checks.len() + self.repairs.len() + n_demand + n_spare
    }

    fn flight(&mut self, idx: usize) -> &mut Flight {
        self.flights[idx].as_mut().expect("a flight ends when nobody knows it any more")
    }

    fn find_spare(&self, slot: usize) -> Option<usize> {
        let idx = *self.flight_of_slot.get(slot)?;
        let job = &self.flights.get(idx)?.as_ref()?.job;
        (job.slot == slot && job.urgency == Urgency::Spare).then_some(idx)
    }

    fn lane(&mut self, idx: usize) -> Lane {
        let layer = self.flight(idx).job.layer;
        self.lanes[layer]
    }

    /// Of a flight's record, if it has one.
    fn checksum(&mut self, idx: usize) -> Option<u64> {
        let Job { layer, expert, .. } = self.flight(idx).job;
        self.layers[layer].xxh3.as_ref().map(|xxh3| xxh3[expert])
    }

    fn waiting(&mut self, lane: Lane) -> &mut Waiting {
        match lane {
            Lane::Threads => &mut self.threads,
            Lane::Ring => &mut self.ring,
        }
    }

    fn wake(&mut self, lane: Lane) {
        match lane {
            Lane::Threads => self.wakes.threads = 1,
            Lane::Ring => self.wakes.ring = true,
        }
    }

    fn wait(&mut self, idx: usize) {
        let (lane, urgency) = (self.lane(idx), self.flight(idx).job.urgency);
        self.waiting(lane).of(urgency).push_back(idx);
        self.wake(lane);
    }

    /// Takes a spare flight off its list; false if it is on none.
    fn stop_waiting(&mut self, idx: usize) -> bool {
        let lane = self.lane(idx);
        let spare = &mut self.waiting(lane).spare;
        let place = spare.iter().position(|&waiting| waiting == idx);
        place.and_then(|place| spare.remove(place)).is_some()
    }

    /// Takes note of bytes of a record that arrived.
    fn arrive(&mut self, idx: usize, range: Range<usize>) {
        if range.start != self.flight(idx).arrived {
            return self.early.push((idx, range));
        }
        let mut arrived = range.end;
        while let Some(i) =
            self.early.iter().position(|(flight, range)| (*flight, range.start) == (idx, arrived))
        {
            arrived = self.early.swap_remove(i).1.end;
        }
        self.flight(idx).arrived = arrived;
        self.check_if_due(idx);
    }

    /// Has what arrived hashed, if it is enough, and if the record is still wanted.
    fn check_if_due(&mut self, idx: usize) {
        let has_checksums = self.checksum(idx).is_some();
        let flight = self.flight(idx);
        let (n_new, is_whole) = (flight.arrived - flight.hashed, flight.arrived == flight.bytes);
        let is_wanted = has_checksums && flight.failure.is_none() && !flight.is_cancelled;
        let is_enough = n_new >= CHECK_BYTES_MIN || is_whole && n_new > 0;
        if is_wanted && is_enough && !flight.has_check {
            flight.has_check = true;
            self.checks.push_back(idx);
            self.wakes.threads = 1;
        }
    }

    /// Decides how a flight goes on of which nothing is under way.
    fn land_if_idle(&mut self, idx: usize) {
        let flight = self.flight(idx);
        if flight.n_part > 0 || flight.has_check {
            return;
        }
        if flight.is_cancelled {
            return self.land(idx, Outcome::Cancelled);
        }
        if flight.next < flight.bytes {
            return;
        }
        if let Some((_, source)) = flight.failure.take() {
            return self.retry(idx, Some(source));
        }
        let hash = flight.hash.digest();
        match self.checksum(idx) {
            Some(xxh3) if xxh3 != hash && !self.is_lenient => self.retry(idx, None),
            _ => self.land(idx, Outcome::Ready),
        }
    }

    /// Reads the whole record again, if it may. `source` is why; none for wrong bytes.
    fn retry(&mut self, idx: usize, source: Option<io::Error>) {
        let flight = self.flight(idx);
        if flight.attempt < N_ATTEMPT {
            flight.attempt += 1;
            (flight.next, flight.arrived, flight.hashed) = (0, 0, 0);
            flight.hash.reset();
            self.early.retain(|&(early, _)| early != idx);
            return self.wait(idx);
        }
        let &mut Flight { bytes, attempt: attempts, job: Job { layer, expert, .. }, .. } = flight;
        let file = self.layers[layer].source.name();
        let offset = expert as u64 * bytes as u64;
        let error = match source {
            Some(source) => StreamError::Read { file, offset, bytes, layer, expert, attempts, source },
            None => StreamError::Checksum { file, offset, layer, expert },
        };
        self.land(idx, Outcome::Failed(error));
    }

    fn land(&mut self, idx: usize, outcome: Outcome) {
        let flight = self.flights[idx].take().expect("it lands once");
        self.early.retain(|&(early, _)| early != idx);
        self.vacant.push(idx);
        let cost = Cost { n_retry: u64::from(flight.attempt - 1), ..flight.cost };
        self.done.push(Done { slot: flight.job.slot, buffer: flight.job.buffer, outcome, cost });
        self.wakes.owner = true;
    }
}

fn early_end(wanted: usize, got: usize) -> io::Error {
    let text = format!("the file ends early: wanted {wanted} bytes, got {got}");
    io::Error::new(io::ErrorKind::UnexpectedEof, text)
}
