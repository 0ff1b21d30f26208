//! The readers: a queue, threads that each wait for one read, and where there is one a ring.

use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

use store::RECORD_ALIGN;

use super::queue::{Done, Job, Lane, Part, Queue, Work};
use super::uring::{Bell, Ring};
use super::{READ_BYTES_MAX, read_exact};
use crate::{Method, RecordFile, StreamError, Tuning};

/// Threads beside a ring: they compare checksums, 6 GB/s each where memory is slow. Idle ones cost nothing.
const N_CHECKER: usize = 4;

/// What the owner, the threads and the ring share.
pub(super) struct Shared {
    pub(super) layers: Arc<Vec<RecordFile>>,
    queue: Mutex<Queue>,
    work_queued: Condvar,
    job_done: Condvar,
    n_thread: usize,
    bell: Option<Arc<Bell>>,
}

impl Shared {
    /// No code panics while it holds the lock, so a poisoned queue is a whole queue.
    pub(super) fn lock(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Wakes those who have something to do, before the queue is unlocked or waited for.
    pub(super) fn notify(&self, queue: &mut Queue) {
        let wakes = queue.take_wakes();
        if self.n_thread <= wakes.threads {
            self.work_queued.notify_all();
        } else {
            // As many as there are pieces of work, not all for one.
            (0..wakes.threads).for_each(|_| self.work_queued.notify_one());
        }
        if wakes.owner {
            self.job_done.notify_one();
        }
        if wakes.ring {
            self.ring_bell();
        }
    }

    fn ring_bell(&self) {
        self.bell.iter().for_each(|bell| bell.ring());
    }
}

/// Reads records into buffers that travel with the job and come back with the result. Reads that are under way when it
/// is dropped end first.
pub(crate) struct Readers {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
    method: Method,
}

impl Readers {
    pub(crate) fn new(layers: Arc<Vec<RecordFile>>, tuning: Tuning) -> Result<Self, StreamError> {
        Self::start(layers, tuning, false)
    }

    /// Takes every record as right that could be read, for measurements.
    pub(super) fn lenient(layers: Arc<Vec<RecordFile>>, tuning: Tuning) -> Result<Self, StreamError> {
        Self::start(layers, tuning, true)
    }

    fn start(layers: Arc<Vec<RecordFile>>, tuning: Tuning, is_lenient: bool) -> Result<Self, StreamError> {
        let request_bytes =
            tuning.request_bytes.clamp(RECORD_ALIGN, READ_BYTES_MAX) / RECORD_ALIGN * RECORD_ALIGN;
        let ring = Ring::for_layers(&layers, tuning);
        let lane = |layer: &RecordFile| match ring.is_some() && Ring::can_read(&*layer.source) {
            true => Lane::Ring,
            false => Lane::Threads,
        };
        let lanes: Vec<Lane> = layers.iter().map(lane).collect();
        let n_thread = match lanes.contains(&Lane::Threads) {
            true => tuning.depth.max(1),
            false => N_CHECKER,
        };
        let mut readers = Self {
            shared: Arc::new(Shared {
                queue: Mutex::new(Queue::new(Arc::clone(&layers), lanes, request_bytes, is_lenient)),
                layers,
                work_queued: Condvar::new(),
                job_done: Condvar::new(),
                n_thread,
                bell: ring.as_ref().map(Ring::bell),
            }),
            threads: Vec::new(),
            method: if ring.is_some() { Method::Uring } else { Method::Pool },
        };
        for idx in 0..n_thread {
            readers.spawn(format!("expert-reader-{idx}"), run)?;
        }
        if let Some(ring) = ring {
            readers.spawn("expert-ring".into(), move |shared| ring.run(shared))?;
        }
        Ok(readers)
    }

    fn spawn(
        &mut self,
        name: String,
        body: impl FnOnce(&Shared) + Send + 'static,
    ) -> Result<(), StreamError> {
        let shared = Arc::clone(&self.shared);
        let thread = std::thread::Builder::new()
            .name(name)
            .spawn(move || body(&shared))
            .map_err(|source| StreamError::Thread { source })?;
        self.threads.push(thread);
        Ok(())
    }

    /// How reads are issued in fact: not every system has rings, nor is every source for them.
    pub(crate) fn method(&self) -> Method {
        self.method
    }

    /// Queues all jobs at once and leaves `jobs` empty.
    pub(crate) fn submit(&self, jobs: &mut Vec<Job>) {
        if jobs.is_empty() {
            return;
        }
        let mut queue = self.shared.lock();
        jobs.drain(..).for_each(|job| queue.push(job));
        self.shared.notify(&mut queue);
    }

    /// A spare job is wanted now, also one that is partly read.
    pub(crate) fn promote(&self, slot: usize) {
        let mut queue = self.shared.lock();
        queue.promote(slot);
        self.shared.notify(&mut queue);
    }

    /// Gives up a spare job: it is done when its next part is, as [`super::Outcome::Cancelled`] if its record is not
    /// whole by then.
    pub(crate) fn cancel(&self, slot: usize) {
        let mut queue = self.shared.lock();
        queue.cancel(slot);
        self.shared.notify(&mut queue);
    }

    /// Moves what is done into `done`, which is empty.
    pub(crate) fn take_done(&self, done: &mut Vec<Done>) {
        std::mem::swap(&mut self.shared.lock().done, done);
    }

    /// The same, but waits until at least one job is done. There must be a job under way.
    pub(crate) fn wait_done(&self, done: &mut Vec<Done>) {
        let mut queue = self.shared.lock();
        while queue.done.is_empty() {
            queue = self.shared.job_done.wait(queue).unwrap_or_else(PoisonError::into_inner);
        }
        std::mem::swap(&mut queue.done, done);
    }
}

impl Drop for Readers {
    fn drop(&mut self) {
        self.shared.lock().is_closed = true;
        self.shared.work_queued.notify_all();
        self.shared.ring_bell();
        for thread in self.threads.drain(..) {
            // Panics of a source are caught and reported where they happen.
            let _ = thread.join();
        }
    }
}

/// A reading thread.
fn run(shared: &Shared) {
    let mut queue = shared.lock();
    while !queue.is_closed {
        let work = queue.next_work();
        shared.notify(&mut queue);
        let Some(work) = work else {
            queue = shared.work_queued.wait(queue).unwrap_or_else(PoisonError::into_inner);
            continue;
        };
        drop(queue);
        match work {
            Work::Read(mut part) => {
                let result = read_part(&shared.layers[part.layer], &mut part);
                queue = shared.lock();
                queue.finish_part(part, result);
            }
            Work::Check(mut check) => {
                check.run();
                queue = shared.lock();
                queue.finish_check(check);
            }
        }
    }
}

fn read_part(file: &RecordFile, part: &mut Part) -> io::Result<()> {
    let (offset, mut got) = (part.offset, 0);
    // A source that panics must not leave the engine waiting for ever.
    let result =
        catch_unwind(AssertUnwindSafe(|| read_exact(&*file.source, offset, part.buffer(), &mut got)))
            .unwrap_or_else(|_| Err(io::Error::other("the reader panicked")));
    part.advance(got);
    result
}
