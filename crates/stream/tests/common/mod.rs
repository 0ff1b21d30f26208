//! A device whose faults, order and speed the test decides.
#![allow(dead_code, reason = "each test program uses its own part")]

use std::collections::{HashMap, HashSet};
use std::io;
use std::sync::{Arc, Condvar, Mutex};

use stream::{CacheMode, ExpertStream, Lease, ReadAt, RecordFile, StreamError, StreamOptions, Tuning};
use xxhash_rust::xxh3::{xxh3_64, xxh3_64_with_seed};

/// Bytes of a record in tests.
pub(crate) const STRIDE: usize = 16 * 1024;

/// `(layer, expert)`.
pub(crate) type Key = (usize, usize);

/// What goes wrong when a record is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    /// Calls deliver at most this many bytes.
    Short(usize),
    /// A signal arrives before anything is read.
    Interrupted,
    /// The drive reports an error.
    Eio,
    /// One bit is wrong.
    Wrong,
    /// The file ends after this many bytes of the record.
    End(usize),
    /// The program behind the device has a bug.
    Panic,
}

/// For [`Device::fail`]: the fault never goes away.
pub(crate) const FOREVER: usize = usize::MAX;

#[derive(Default)]
struct State {
    /// Fault of a record and how many attempts it spoils.
    faults: HashMap<Key, (Fault, usize)>,
    /// Attempts so far, and what goes wrong in the present one.
    attempts: HashMap<Key, (usize, Option<Fault>)>,
    closed: bool,
    /// Reads at the closed gate.
    waiting: HashSet<Key>,
    passes: HashSet<Key>,
    /// Shuffles the order in which records arrive.
    seed: Option<u64>,
}

/// The device under all layers. While its gate is closed reads stop there.
#[derive(Default)]
pub(crate) struct Device {
    state: Mutex<State>,
    changed: Condvar,
}

impl Device {
    pub(crate) fn new() -> Arc<Self> {
        Arc::default()
    }

    /// The next `n_attempt` attempts to read this record go wrong.
    pub(crate) fn fail(&self, key: Key, fault: Fault, n_attempt: usize) {
        self.state.lock().unwrap().faults.insert(key, (fault, n_attempt));
    }

    pub(crate) fn heal(&self) {
        self.state.lock().unwrap().faults.clear();
    }

    /// Every attempt takes a random time from now on.
    pub(crate) fn shuffle(&self, seed: u64) {
        self.state.lock().unwrap().seed = Some(seed);
    }

    /// How often a read of this record was begun.
    pub(crate) fn n_attempt(&self, key: Key) -> usize {
        self.state.lock().unwrap().attempts.get(&key).map_or(0, |a| a.0)
    }

    /// How often a read of any record was begun.
    pub(crate) fn n_attempt_all(&self) -> usize {
        self.state.lock().unwrap().attempts.values().map(|a| a.0).sum()
    }

    pub(crate) fn close(&self) {
        self.state.lock().unwrap().closed = true;
    }

    pub(crate) fn open(&self) {
        self.state.lock().unwrap().closed = false;
        self.changed.notify_all();
    }

    /// Returns when this many reads stand at the closed gate.
    pub(crate) fn wait_for_arrivals(&self, n: usize) {
        let state = self.state.lock().unwrap();
        drop(self.changed.wait_while(state, |s| s.waiting.len() < n).unwrap());
    }

    /// Lets one read through the closed gate.
    pub(crate) fn pass(&self, key: Key) {
        self.state.lock().unwrap().passes.insert(key);
        self.changed.notify_all();
    }

    /// An attempt begins: it waits at the gate and gets the fault that it will have.
    fn begin(&self, key: Key) {
        let mut state = self.state.lock().unwrap();
        let fault = match state.faults.get_mut(&key) {
            None | Some((_, 0)) => None,
            Some((fault, FOREVER)) => Some(*fault),
            Some((fault, left)) => {
                *left -= 1;
                Some(*fault)
            }
        };
        let attempt = state.attempts.entry(key).or_default();
        *attempt = (attempt.0 + 1, fault);
        let delay = [attempt.0, key.0, key.1].map(|n| n as u64);
        state.waiting.insert(key);
        self.changed.notify_all();
        let mut state = self.changed.wait_while(state, |s| s.closed && !s.passes.contains(&key)).unwrap();
        state.waiting.remove(&key);
        state.passes.remove(&key);
        let Some(seed) = state.seed else { return };
        drop(state);
        let delay = delay.iter().fold(seed, |hash, n| xxh3_64_with_seed(&n.to_le_bytes(), hash));
        (0..delay % 64).for_each(|_| std::thread::yield_now());
    }

    fn fault(&self, key: Key) -> Option<Fault> {
        self.state.lock().unwrap().attempts[&key].1
    }
}

/// One layer's file on the device.
struct Layer {
    device: Arc<Device>,
    layer: usize,
    n_expert: usize,
}

impl ReadAt for Layer {
    fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<usize> {
        let (expert, start) = ((offset / STRIDE as u64) as usize, (offset % STRIDE as u64) as usize);
        assert!(expert < self.n_expert && start + buf.len() <= STRIDE, "a read outside of the record");
        let key = (self.layer, expert);
        if start == 0 {
            self.device.begin(key);
        }
        let fault = self.device.fault(key);
        let n = match fault {
            Some(Fault::Short(most)) => buf.len().min(most),
            Some(Fault::End(end)) => buf.len().min(end.saturating_sub(start)),
            Some(Fault::Interrupted) => return Err(io::ErrorKind::Interrupted.into()),
            Some(Fault::Eio) => return Err(io::Error::from_raw_os_error(5)),
            Some(Fault::Panic) => panic!("a bug in the device (expected in this test)"),
            Some(Fault::Wrong) | None => buf.len(),
        };
        buf[..n].copy_from_slice(&content(key)[start..start + n]);
        if fault == Some(Fault::Wrong) {
            buf[n / 2] ^= 4;
        }
        Ok(n)
    }

    fn name(&self) -> String {
        format!("layer-{}.bin", self.layer)
    }
}

/// The right bytes of a record.
pub(crate) fn content((layer, expert): Key) -> Vec<u8> {
    let seed = (layer * 1000 + expert) as u64;
    (0..STRIDE as u64 / 8)
        .flat_map(|i| (seed << 32 | i).wrapping_mul(0x9e37_79b9_7f4a_7c15).to_le_bytes())
        .collect()
}

pub(crate) fn layers(device: &Arc<Device>, n_layer: usize, n_expert: usize) -> Vec<RecordFile> {
    let layer = |layer| RecordFile {
        source: Box::new(Layer { device: Arc::clone(device), layer, n_expert }),
        stride_bytes: STRIDE,
        n_expert,
        xxh3: Some((0..n_expert).map(|expert| xxh3_64(&content((layer, expert)))).collect()),
    };
    (0..n_layer).map(layer).collect()
}

/// 4 layers of 8 experts on this device.
pub(crate) fn stream_on(
    device: &Arc<Device>,
    mode: CacheMode,
    n_slot: usize,
    n_reader: usize,
) -> ExpertStream {
    let tuning = Tuning { depth: n_reader, ..Tuning::default() };
    ExpertStream::new(layers(device, 4, 8), StreamOptions { mode, n_slot, tuning }).unwrap()
}

/// Requests experts for one token.
pub(crate) fn lease(stream: &mut ExpertStream, layer: usize, experts: &[usize]) -> Lease {
    stream.lease(layer, 1, experts, |_| std::iter::once(0))
}

/// Every record that the lease gave last has the right bytes.
#[track_caller]
pub(crate) fn check_ready(stream: &ExpertStream, lease: &Lease) {
    for &place in lease.ready() {
        let key = (lease.layer(), lease.experts()[place]);
        assert!(stream.record(lease, place) == content(key), "{key:?}");
    }
}

/// Takes all experts of a lease, a few at a time, and checks their bytes; the places in the order they came.
#[track_caller]
pub(crate) fn take_all(stream: &mut ExpertStream, lease: &mut Lease) -> Result<Vec<usize>, StreamError> {
    let mut places = Vec::new();
    while stream.next(lease, 3)? {
        assert!(!lease.ready().is_empty());
        check_ready(stream, lease);
        places.extend_from_slice(lease.ready());
    }
    Ok(places)
}

/// Requests, takes and checks all, and releases.
#[track_caller]
pub(crate) fn use_experts(stream: &mut ExpertStream, layer: usize, experts: &[usize]) {
    let mut lease = lease(stream, layer, experts);
    let mut places = take_all(stream, &mut lease).unwrap();
    places.sort_unstable();
    assert!(places.iter().copied().eq(0..experts.len()), "each once: {places:?}");
    stream.release(lease);
}
