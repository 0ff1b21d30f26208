//! Readers without the slot cache: what is read when, and what is given up.

use std::collections::HashSet;
use std::io;
use std::sync::{Arc, Condvar, Mutex};

use proptest::prelude::*;
use store::RECORD_ALIGN;
use xxhash_rust::xxh3::xxh3_64;

use super::queue::{Check, Lane, Part, Queue, Work};
use super::*;
use crate::{Method, RecordFile, Tuning};

const N_PART: usize = 5;
const STRIDE: usize = N_PART * RECORD_ALIGN - 100;

/// A source whose reads wait for permission.
#[derive(Default)]
struct Gate {
    state: Mutex<GateState>,
    changed: Condvar,
}

#[derive(Default)]
struct GateState {
    is_open: bool,
    /// (expert, part) in the order of arrival, and those that may pass.
    arrived: Vec<(usize, usize)>,
    passes: HashSet<(usize, usize)>,
    /// Reads that fail once they pass.
    broken: HashSet<(usize, usize)>,
}

impl Gate {
    fn open(&self) {
        self.state.lock().unwrap().is_open = true;
        self.changed.notify_all();
    }

    fn pass(&self, expert: usize, part: usize) {
        self.state.lock().unwrap().passes.insert((expert, part));
        self.changed.notify_all();
    }

    /// The first `n` arrivals.
    fn arrivals(&self, n: usize) -> Vec<(usize, usize)> {
        let state = self.state.lock().unwrap();
        let mut state = self.changed.wait_while(state, |state| state.arrived.len() < n).unwrap();
        let mut arrived = std::mem::take(&mut state.arrived);
        assert_eq!(arrived.len(), n, "more than that were begun: {arrived:?}");
        arrived.sort_unstable();
        arrived
    }
}

struct Source(Arc<Gate>);

impl ReadAt for Source {
    fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<usize> {
        let (expert, start) = (offset as usize / STRIDE, offset as usize % STRIDE);
        let key = (expert, start / RECORD_ALIGN);
        let mut state = self.0.state.lock().unwrap();
        state.arrived.push(key);
        self.0.changed.notify_all();
        let mut state =
            self.0.changed.wait_while(state, |state| !state.is_open && !state.passes.contains(&key)).unwrap();
        state.passes.remove(&key);
        if state.broken.remove(&key) {
            return Err(io::Error::from_raw_os_error(5));
        }
        buf.copy_from_slice(&content(expert)[start..start + buf.len()]);
        Ok(buf.len())
    }

    fn name(&self) -> String {
        "gate".into()
    }
}

fn content(expert: usize) -> Vec<u8> {
    (0..STRIDE).map(|i| (i * 31 + i / 256 + expert * 7) as u8).collect()
}

fn readers(gate: &Arc<Gate>, request_bytes: usize, depth: usize) -> Readers {
    let xxh3 = Some((0..8).map(|expert| xxh3_64(&content(expert))).collect());
    let source = Box::new(Source(Arc::clone(gate)));
    let layer = RecordFile { source, stride_bytes: STRIDE, n_expert: 8, xxh3 };
    let tuning = Tuning { method: Method::Uring, request_bytes, depth };
    let readers = Readers::new(Arc::new(vec![layer]), tuning).unwrap();
    assert_eq!(readers.method(), Method::Pool, "this source is no file");
    readers
}

fn submit(readers: &Readers, urgency: Urgency, experts: &[usize]) {
    let job = |&expert| {
        let buffer = slot_buffers(1, N_PART * RECORD_ALIGN).unwrap().remove(0);
        Job { urgency, slot: 10 + expert, layer: 0, expert, buffer }
    };
    readers.submit(&mut experts.iter().map(job).collect());
}

fn wait(readers: &Readers, n: usize) -> Vec<Done> {
    let (mut all, mut done) = (Vec::new(), Vec::new());
    while all.len() < n {
        readers.wait_done(&mut done);
        all.append(&mut done);
    }
    assert_eq!(all.len(), n);
    all.sort_by_key(|done| done.slot);
    all
}

#[track_caller]
fn check_ready(done: &Done) {
    assert!(matches!(done.outcome, Outcome::Ready));
    assert!(done.buffer[..STRIDE] == content(done.slot - 10));
}

/// Parts of a record must be read at the same time, as many as the depth says, and land where they belong.
#[test]
fn parts_side_by_side() {
    let gate = Arc::default();
    let readers = readers(&gate, RECORD_ALIGN + 5, 7);
    submit(&readers, Urgency::Demand, &[3, 1]);
    assert_eq!(gate.arrivals(7), [(1, 0), (1, 1), (3, 0), (3, 1), (3, 2), (3, 3), (3, 4)]);
    gate.pass(3, 4);
    gate.pass(1, 1);
    assert_eq!(gate.arrivals(2), [(1, 2), (1, 3)]);
    gate.open();
    let done = wait(&readers, 2);
    done.iter().for_each(check_ready);
    assert!(done.iter().all(|done| done.cost.read_bytes == STRIDE as u64 && done.cost.n_retry == 0));
}

/// A part that fails must cost the record an attempt and no more, and no byte of the failed attempt may survive.
#[test]
fn a_failed_part() {
    let gate = Arc::<Gate>::default();
    gate.state.lock().unwrap().broken = HashSet::from([(2, 3), (2, 1)]);
    let readers = readers(&gate, RECORD_ALIGN, 2);
    gate.open();
    submit(&readers, Urgency::Demand, &[2]);
    let done = wait(&readers, 1);
    check_ready(&done[0]);
    // Two parts of the first attempt failed, the second read all.
    let bytes = 2 * STRIDE - 2 * RECORD_ALIGN;
    assert_eq!((done[0].cost.n_retry, done[0].cost.read_bytes), (1, bytes as u64));
}

/// Spare reads that fill the drive delay the reads that somebody waits for.
#[test]
fn spare_parts_are_few_and_last() {
    let gate = Arc::default();
    let readers = readers(&gate, RECORD_ALIGN, 4);
    submit(&readers, Urgency::Spare, &[0, 1]);
    assert_eq!(gate.arrivals(2), [(0, 0), (0, 1)]);
    submit(&readers, Urgency::Demand, &[5]);
    assert_eq!(gate.arrivals(2), [(5, 0), (5, 1)]);
    gate.pass(0, 0);
    gate.pass(0, 1);
    assert_eq!(gate.arrivals(2), [(5, 2), (5, 3)], "what is wanted goes first");
    gate.open();
    wait(&readers, 3).iter().for_each(check_ready);
}

/// A spare record that is wanted now must not stay among the spare ones, and what was read of it must count.
#[test]
fn promote_in_flight() {
    let gate = Arc::default();
    let readers = readers(&gate, RECORD_ALIGN, 4);
    submit(&readers, Urgency::Spare, &[0, 1]);
    assert_eq!(gate.arrivals(2), [(0, 0), (0, 1)]);
    readers.promote(11);
    assert_eq!(gate.arrivals(2), [(1, 0), (1, 1)]);
    readers.promote(10);
    readers.promote(10);
    readers.promote(99);
    gate.pass(0, 0);
    gate.pass(0, 1);
    assert_eq!(gate.arrivals(2), [(1, 2), (1, 3)]);
    gate.open();
    let done = wait(&readers, 2);
    done.iter().for_each(check_ready);
    assert!(done.iter().all(|done| done.cost.read_bytes == STRIDE as u64));
}

/// A spare record that nobody wants any more must end at the next border, with its cost, and never as a whole one.
#[test]
fn cancel_in_flight() {
    let gate = Arc::default();
    let readers = readers(&gate, RECORD_ALIGN, 4);
    submit(&readers, Urgency::Spare, &[0, 1, 2]);
    assert_eq!(gate.arrivals(2), [(0, 0), (0, 1)]);
    readers.cancel(10);
    readers.cancel(11);
    readers.cancel(99);
    let done = wait(&readers, 1);
    assert!(done[0].slot == 11 && matches!(done[0].outcome, Outcome::Cancelled));
    assert_eq!(done[0].cost.read_bytes, 0);
    gate.pass(0, 0);
    assert_eq!(gate.arrivals(1), [(2, 0)]);
    gate.open();
    let done = wait(&readers, 2);
    assert!(matches!(done[0].outcome, Outcome::Cancelled));
    assert_eq!(done[0].cost.read_bytes, 2 * RECORD_ALIGN as u64);
    check_ready(&done[1]);

    // Too late: all of it is asked for, or somebody wants it.
    let gate = Arc::default();
    let readers = self::readers(&gate, 1 << 30, 1);
    submit(&readers, Urgency::Spare, &[0, 1]);
    gate.arrivals(1);
    readers.cancel(10);
    readers.promote(11);
    readers.cancel(11);
    gate.open();
    wait(&readers, 2).iter().for_each(check_ready);
}

/// A queue of one layer in a lane.
fn queue(lane: Lane, stride_bytes: usize, request_bytes: usize) -> Queue {
    let gate = Arc::default();
    let layer =
        RecordFile { source: Box::new(Source(gate)), stride_bytes, n_expert: 8, xxh3: Some(vec![0; 8]) };
    Queue::new(Arc::new(vec![layer]), vec![lane], request_bytes, true)
}

fn job(urgency: Urgency, expert: usize, bytes: usize) -> Job {
    let buffer = slot_buffers(1, bytes.next_multiple_of(RECORD_ALIGN)).unwrap().remove(0);
    Job { urgency, slot: expert, layer: 0, expert, buffer }
}

/// A spare part that starts while an urgent one is under way takes bandwidth from it.
#[test]
fn spare_parts_need_an_idle_drive() {
    for lane in [Lane::Threads, Lane::Ring] {
        let stride_bytes = 3 * RECORD_ALIGN;
        let mut queue = queue(lane, stride_bytes, 2 * RECORD_ALIGN);
        queue.push(job(Urgency::Spare, 0, stride_bytes));
        queue.push(job(Urgency::Demand, 1, stride_bytes));
        let next = |queue: &mut Queue| queue.next_part(lane);
        let parts = [next(&mut queue).unwrap(), next(&mut queue).unwrap()];
        let wanted = [stride_bytes, 5 * RECORD_ALIGN].map(|offset| offset as u64);
        assert_eq!(parts.each_ref().map(|part| part.offset), wanted);
        assert_eq!(parts.each_ref().map(|part| part.bytes), [2 * RECORD_ALIGN, RECORD_ALIGN]);
        assert!(next(&mut queue).is_none());
        let [first, second] = parts;
        queue.finish_part(first, Ok(()));
        assert!(next(&mut queue).is_none());
        queue.take_wakes();
        queue.finish_part(second, Ok(()));
        let wakes = queue.take_wakes();
        assert!(if lane == Lane::Ring { wakes.ring } else { wakes.threads > 0 });
        assert_eq!(next(&mut queue).unwrap().offset, 0);
        assert_eq!(next(&mut queue).unwrap().offset, 2 * RECORD_ALIGN as u64);
    }
}

/// A single request of 2 GiB or more is cut or refused by the system.
#[cfg(target_pointer_width = "64")]
#[test]
fn huge_records_in_parts() {
    const GIB: usize = 1 << 30;
    let stride_bytes = 2 * GIB + RECORD_ALIGN;
    let mut queue = queue(Lane::Ring, stride_bytes, READ_BYTES_MAX);
    // The memory is never touched.
    queue.push(job(Urgency::Demand, 3, stride_bytes));
    let mut offset = 3 * stride_bytes as u64;
    for bytes in [GIB, GIB, RECORD_ALIGN] {
        let part = queue.next_part(Lane::Ring).unwrap();
        assert_eq!((part.offset, part.bytes), (offset, bytes));
        offset += bytes as u64;
    }
    assert!(queue.next_part(Lane::Ring).is_none());
}

/// Requests of no size, or of an odd one.
#[test]
fn odd_tunings() {
    for (request_bytes, depth) in [(0, 0), (1, 1), (RECORD_ALIGN * 2 - 1, 3), (usize::MAX, 2)] {
        let gate = Arc::<Gate>::default();
        gate.open();
        let readers = readers(&gate, request_bytes, depth);
        submit(&readers, Urgency::Demand, &[4, 0, 7]);
        wait(&readers, 3).iter().for_each(check_ready);
    }
}

/// Notes what it is asked for and delivers nothing.
struct Recorder(Mutex<Vec<(u64, usize)>>);

impl ReadAt for Recorder {
    fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<usize> {
        self.0.lock().unwrap().push((offset, buf.len()));
        Ok(buf.len())
    }

    fn name(&self) -> String {
        "recorder".into()
    }
}

/// One call of 2 GiB or more is cut or refused by the system; many small ones are slow.
#[test]
fn as_few_calls_as_systems_allow() {
    const GIB: usize = 1 << 30;
    let cases = [(0, vec![]), (1, vec![1]), (GIB, vec![GIB]), (2 * GIB + 5, vec![GIB, GIB, 5])];
    for (bytes, calls) in cases {
        let (recorder, mut got) = (Recorder(Mutex::default()), 9);
        // The memory is never touched.
        let mut buffer = quant::Buffer::zeroed(bytes).unwrap();
        read_exact(&recorder, 7, &mut buffer, &mut got).unwrap();
        assert_eq!(got, bytes);
        let mut offset = 7;
        for (call, bytes) in recorder.0.into_inner().unwrap().into_iter().zip(calls) {
            assert_eq!(call, (offset, bytes));
            offset += bytes as u64;
        }
        assert_eq!(offset, 7 + bytes as u64);
    }
}

/// Bytes of a record that is hashed in several steps.
const LONG: usize = (2 << 20) + 3 * RECORD_ALIGN;

fn long_record(expert: usize) -> Vec<u8> {
    (0..LONG).map(|i| (i * 31 + i / 256 + expert * 7) as u8).collect()
}

/// What readers of long records hold. At these bytes something goes wrong with the first record, once.
struct Hands {
    queue: Queue,
    parts: Vec<Part>,
    checks: Vec<Check>,
    wrong: Option<usize>,
    broken: Option<usize>,
}

impl Hands {
    /// Takes something to read, or else to hash.
    fn take(&mut self, rather_hashes: bool) -> bool {
        let check = if rather_hashes { self.queue.next_work() } else { None };
        let part = if check.is_none() { self.queue.next_part(Lane::Ring) } else { None };
        let is_part = part.is_some();
        self.parts.extend(part);
        match check.or_else(|| if is_part { None } else { self.queue.next_work() }) {
            Some(Work::Check(check)) => self.checks.push(check),
            Some(Work::Read(_)) => panic!("the ring has nothing for threads to read"),
            None => return is_part,
        }
        true
    }

    /// Gives back the `i`th of what is held.
    fn give(&mut self, i: usize) -> bool {
        let n_held = self.parts.len() + self.checks.len();
        if n_held == 0 {
            return false;
        }
        match (i % n_held).checked_sub(self.parts.len()) {
            Some(i) => {
                let mut check = self.checks.swap_remove(i);
                check.run();
                self.queue.finish_check(check);
            }
            None => {
                let part = self.parts.swap_remove(i % n_held);
                self.read(part);
            }
        }
        true
    }

    fn read(&mut self, mut part: Part) {
        let (expert, start) = (part.offset as usize / LONG, part.offset as usize % LONG);
        let range = start..start + part.bytes;
        let is_hit = |at: &mut usize| expert == 0 && range.contains(at);
        if self.broken.take_if(is_hit).is_some() {
            return self.queue.finish_part(part, Err(io::Error::from_raw_os_error(5)));
        }
        part.buffer().copy_from_slice(&long_record(expert)[range.clone()]);
        if let Some(at) = self.wrong.take_if(is_hit) {
            part.buffer()[at - start] ^= 1;
        }
        part.advance(range.len());
        self.queue.finish_part(part, Ok(()));
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]

    /// Records are hashed while they arrive: one would be given out with a wrong byte, or too early, or would never
    /// come.
    #[test]
    fn records_are_right_in_whatever_order_they_arrive(
        choices in prop::collection::vec(any::<u8>(), 0..200),
        wrong in prop::option::of(0..LONG),
        broken in prop::option::of(0..LONG),
    ) {
        let xxh3 = Some([0, 1].map(|expert| xxh3_64(&long_record(expert))).to_vec());
        let layer = RecordFile { source: Box::new(Source(Arc::default())), stride_bytes: LONG, n_expert: 2, xxh3 };
        let queue = Queue::new(Arc::new(vec![layer]), vec![Lane::Ring], 128 << 10, false);
        let mut hands = Hands { queue, parts: Vec::new(), checks: Vec::new(), wrong, broken };
        (0..2).for_each(|expert| hands.queue.push(job(Urgency::Demand, expert, LONG)));
        for choice in choices {
            match choice % 2 {
                0 => hands.take(choice % 4 == 0),
                _ => hands.give(usize::from(choice / 2)),
            };
        }
        while hands.take(false) || hands.give(0) {}
        let mut done = std::mem::take(&mut hands.queue.done);
        done.sort_by_key(|done| done.slot);
        prop_assert_eq!(done.len(), 2);
        for (expert, done) in done.iter().enumerate() {
            prop_assert!(matches!(done.outcome, Outcome::Ready));
            prop_assert!(done.buffer[..LONG] == long_record(expert)[..]);
        }
        let has_fault = wrong.is_some() || broken.is_some();
        prop_assert_eq!([done[0].cost.n_retry > 0, done[1].cost.n_retry > 0], [has_fault, false]);
    }
}
