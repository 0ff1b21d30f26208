//! A thread that keeps a ring of direct reads under way.
//!
//! Only reads: checks, and what the kernel answers oddly (short, refused, at the end of a file), are for the threads.

use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::Arc;

use io_uring::{IoUring, Probe, cqueue, opcode, squeue, types};
use rustix::event::{EventfdFlags, eventfd};

use super::ReadAt;
use super::pool::Shared;
use super::queue::{Lane, Part, Queue};
use crate::{Method, RecordFile, Tuning};

/// Most requests under way: what a ring may need of locked memory on old kernels stays below the usual limit.
const DEPTH_MAX: usize = 1024;

/// `user_data` of the poll for new work; parts have their place as theirs.
const WAKE: u64 = u64::MAX;

/// Wakes the ring's thread.
pub(super) struct Bell(OwnedFd);

impl Bell {
    /// Fails only if it has been rung 2^64 times without anyone listening.
    pub(super) fn ring(&self) {
        let _ = rustix::io::write(&self.0, &1_u64.to_ne_bytes());
    }

    /// Fails if nobody rang.
    fn silence(&self) {
        let _ = rustix::io::read(&self.0, &mut [0_u8; 8]);
    }
}

/// A ring, and the parts that the kernel writes to.
pub(super) struct Ring {
    uring: IoUring,
    parts: Vec<Option<Part>>, // [depth]
    vacant: Vec<usize>,
    bell: Arc<Bell>,
}

impl Ring {
    /// None unless a ring is asked for, it has something to read, and the system gives one: old kernels have none, and
    /// containers forbid them.
    pub(super) fn for_layers(layers: &[RecordFile], tuning: Tuning) -> Option<Self> {
        let has_file = layers.iter().any(|layer| Self::can_read(&*layer.source));
        match has_file && tuning.method == Method::Uring {
            true => Self::new(tuning.depth.clamp(1, DEPTH_MAX)).ok(),
            false => None,
        }
    }

    pub(super) fn can_read(source: &dyn ReadAt) -> bool {
        source.direct_fd().is_some()
    }

    fn new(depth: usize) -> io::Result<Self> {
        let n_entry = (depth as u32 + 1).next_power_of_two();
        // Spares interrupts of whoever computes; kernels before 5.19 do not know it.
        let quiet = IoUring::builder().setup_coop_taskrun().build(n_entry);
        let uring = quiet.or_else(|_| IoUring::new(n_entry))?;
        let mut probe = Probe::new();
        uring.submitter().register_probe(&mut probe)?;
        if ![opcode::Read::CODE, opcode::PollAdd::CODE].iter().all(|&code| probe.is_supported(code)) {
            return Err(io::ErrorKind::Unsupported.into());
        }
        let bell = Arc::new(Bell(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?));
        Ok(Self { uring, parts: (0..depth).map(|_| None).collect(), vacant: (0..depth).collect(), bell })
    }

    /// What tells this ring of new work.
    pub(super) fn bell(&self) -> Arc<Bell> {
        Arc::clone(&self.bell)
    }

    /// Reads until the queue is closed and no read is under way.
    pub(super) fn run(mut self, shared: &Shared) {
        self.listen();
        loop {
            let mut queue = shared.lock();
            self.take_completions(&mut queue);
            if queue.is_closed && self.vacant.len() == self.parts.len() {
                return;
            }
            if !queue.is_closed {
                self.take_parts(shared, &mut queue);
            }
            shared.notify(&mut queue);
            drop(queue);
            // A signal, or the kernel is short of memory: what was submitted completes nevertheless, and what was not
            // is submitted next time.
            if self.uring.submit_and_wait(1).is_err() {
                std::thread::yield_now();
            }
        }
    }

    fn take_parts(&mut self, shared: &Shared, queue: &mut Queue) {
        while let Some(&place) = self.vacant.last() {
            let Some(part) = queue.next_part(Lane::Ring) else { return };
            let Some(entry) = read_entry(shared, &part, place) else {
                queue.repair(part);
                continue;
            };
            self.vacant.pop();
            self.parts[place] = Some(part);
            self.push(&entry);
        }
    }

    fn take_completions(&mut self, queue: &mut Queue) {
        let mut was_rung = false;
        for completion in self.uring.completion() {
            let place = match completion.user_data() {
                WAKE => {
                    was_rung = true;
                    continue;
                }
                place => place as usize,
            };
            let part = self.parts[place].take().expect("the kernel answers once");
            self.vacant.push(place);
            finish(queue, part, &completion);
        }
        if was_rung {
            self.bell.silence();
            self.listen();
        }
    }

    /// Has the kernel tell when the bell rings next.
    fn listen(&mut self) {
        let fd = types::Fd(self.bell.0.as_raw_fd());
        self.push(
            &opcode::PollAdd::new(fd, rustix::event::PollFlags::IN.bits().into()).build().user_data(WAKE),
        );
    }

    fn push(&mut self, entry: &squeue::Entry) {
        // SAFETY: the memory of a read belongs to its part, which `self.parts` keeps until the kernel has answered;
        // `run` returns only then. A poll has no memory.
        let pushed = unsafe { self.uring.submission().push(entry) };
        pushed.expect("the ring has an entry for each part and one for the bell");
    }
}

/// None if the source has no descriptor for direct reads after all.
fn read_entry(shared: &Shared, part: &Part, place: usize) -> Option<squeue::Entry> {
    let fd = types::Fd(shared.layers[part.layer].source.direct_fd()?.as_raw_fd());
    let read = opcode::Read::new(fd, part.memory(), part.bytes as u32).offset(part.offset);
    Some(read.build().user_data(place as u64))
}

/// Takes over what the kernel says of a read.
fn finish(queue: &mut Queue, mut part: Part, completion: &cqueue::Entry) {
    match usize::try_from(completion.result()) {
        Ok(n) => {
            part.advance(n);
            match part.bytes {
                0 => queue.finish_part(part, Ok(())),
                _ => queue.repair(part),
            }
        }
        Err(_) => {
            let error = io::Error::from_raw_os_error(-completion.result());
            use io::ErrorKind::{Interrupted, InvalidInput, Unsupported, WouldBlock};
            match error.kind() {
                Interrupted | InvalidInput | Unsupported | WouldBlock => queue.repair(part),
                _ => queue.finish_part(part, Err(error)),
            }
        }
    }
}
