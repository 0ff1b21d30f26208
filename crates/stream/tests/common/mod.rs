//! A device whose faults, order and speed the test decides.
#![allow(dead_code, reason = "each test program uses its own part")]

use std::collections::{HashMap, HashSet};
use std::io;
use std::sync::{Arc, Condvar, Mutex};

use stream::{CacheMode, ExpertStream, ReadAt, RecordFile, StreamOptions};
use xxhash_rust::xxh3::{xxh3_64, xxh3_64_with_seed};

/// Bytes of a record in tests.
pub const STRIDE: usize = 16 * 1024;

/// `(layer, expert)`.
pub type Key = (usize, usize);

/// What goes wrong when a record is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// Calls deliver at most this many bytes.
    Short(usize),
    /// Every other call is interrupted.
    Interrupted,
    /// Every call is interrupted.
    InterruptedForever,
    /// The drive reports an error.
    Eio,
    /// One bit is wrong.
    Wrong,
    /// The file ends after this many bytes of the record.
    End(usize),
    /// The program behind the device has a bug.
    Panic,
}

#[derive(Default)]
struct State {
    /// Fault and how many attempts it spoils.
    faults: HashMap<Key, (Fault, usize)>,
    /// Attempts to read a record.
    n_attempt: HashMap<Key, usize>,
    n_call: u64,
    closed: bool,
    waiting: HashSet<Key>,
    passes: HashSet<Key>,
}

/// All layers' device: reads stop at its gate while that is closed.
#[derive(Default)]
pub struct Device {
    state: Mutex<State>,
    changed: Condvar,
}

impl Device {
    pub fn new() -> Arc<Self> {
        Arc::default()
    }

    pub fn fail(&self, key: Key, fault: Fault, n_attempt: usize) {
        self.state.lock().unwrap().faults.insert(key, (fault, n_attempt));
    }

    pub fn heal(&self) {
        self.state.lock().unwrap().faults.clear();
    }

    /// How often a read of this record was begun.
    pub fn n_attempt(&self, key: Key) -> usize {
        self.state.lock().unwrap().n_attempt.get(&key).copied().unwrap_or(0)
    }

    /// How often any record's read was begun.
    pub fn n_attempt_all(&self) -> usize {
        self.state.lock().unwrap().n_attempt.values().sum()
    }

    pub fn close(&self) {
        self.state.lock().unwrap().closed = true;
    }

    pub fn open(&self) {
        self.state.lock().unwrap().closed = false;
        self.changed.notify_all();
    }

    /// Returns when this many reads stand at the closed gate.
    pub fn wait_for_arrivals(&self, n: usize) {
        let state = self.state.lock().unwrap();
        drop(self.changed.wait_while(state, |s| s.waiting.len() < n).unwrap());
    }

    /// Lets one read through the closed gate.
    pub fn pass(&self, key: Key) {
        self.state.lock().unwrap().passes.insert(key);
        self.changed.notify_all();
    }

    /// Counts the attempt, waits at the gate, and tells what goes wrong.
    fn begin(&self, key: Key) {
        let mut state = self.state.lock().unwrap();
        *state.n_attempt.entry(key).or_default() += 1;
        state.waiting.insert(key);
        self.changed.notify_all();
        let mut state = self.changed.wait_while(state, |s| s.closed && !s.passes.contains(&key)).unwrap();
        state.waiting.remove(&key);
        state.passes.remove(&key);
    }

    fn fault(&self, key: Key, ends_attempt: bool) -> Option<Fault> {
        let mut state = self.state.lock().unwrap();
        state.n_call += 1;
        let odd_call = state.n_call % 2 == 1;
        let (fault, left) = state.faults.get_mut(&key)?;
        let fault = *fault;
        if *left == 0 || (fault == Fault::Interrupted && !odd_call) {
            return None;
        }
        if ends_attempt && *left != usize::MAX {
            *left -= 1;
        }
        Some(fault)
    }
}

/// One layer of a device.
pub struct Layer {
    pub device: Arc<Device>,
    pub layer: usize,
    pub n_expert: usize,
}

impl ReadAt for Layer {
    fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<usize> {
        let (expert, start) = ((offset / STRIDE as u64) as usize, (offset % STRIDE as u64) as usize);
        assert!(expert < self.n_expert && start + buf.len() <= STRIDE, "a read outside of the record");
        let key = (self.layer, expert);
        if start == 0 {
            self.device.begin(key);
        }
        let bytes = &content(key)[start..];
        let mut n = buf.len().min(bytes.len());
        match self.device.fault(key, true) {
            None => {}
            Some(Fault::Short(max)) => n = n.min(max),
            Some(Fault::Interrupted | Fault::InterruptedForever) => return Err(io::ErrorKind::Interrupted.into()),
            Some(Fault::Eio) => return Err(io::Error::from_raw_os_error(5)),
            Some(Fault::End(end)) => n = n.min(end.saturating_sub(start)),
            Some(Fault::Panic) => panic!("a bug in the device (expected in this test)"),
            Some(Fault::Wrong) => {
                buf[..n].copy_from_slice(&bytes[..n]);
                buf[n / 2] ^= 4;
                return Ok(n);
            }
        }
        buf[..n].copy_from_slice(&bytes[..n]);
        Ok(n)
    }

    fn name(&self) -> String {
        format!("layer-{}.bin", self.layer)
    }
}
