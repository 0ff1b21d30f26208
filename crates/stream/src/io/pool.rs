//! The threads that read records: buffers travel to them with the request and come back with the result.

use std::collections::VecDeque;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use xxhash_rust::xxh3::xxh3_64;

use super::{SlotBuffer, read_exact};
use crate::{RecordFile, StreamError, Tuning};

/// How often a record is read before it counts as unreadable.
pub(crate) const N_ATTEMPT: u32 = 3;

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
    pub(crate) read: Duration,
}

/// The queue that both sides share.
#[derive(Default)]
struct Queue {
    demand: VecDeque<Job>,
    spare: VecDeque<Job>,
    done: Vec<Done>,
    closed: bool,
}

#[derive(Default)]
struct Shared {
    queue: Mutex<Queue>,
    job_queued: Condvar,
    job_done: Condvar,
}

impl Shared {
    /// No code panics while it holds the lock, so a poisoned queue is a whole queue.
    fn lock(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Reading threads; they end when the pool is dropped, after the reads that they are in.
pub(crate) struct Pool {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
}

impl Pool {
    pub(crate) fn new(layers: Arc<Vec<RecordFile>>, tuning: Tuning) -> Result<Self, StreamError> {
        let mut pool = Self { shared: Arc::default(), threads: Vec::new() };
        for idx in 0..tuning.depth.max(1) {
            let (shared, layers) = (Arc::clone(&pool.shared), Arc::clone(&layers));
            let thread = std::thread::Builder::new()
                .name(format!("expert-reader-{idx}"))
                .spawn(move || run(&shared, &layers))
                .map_err(|source| StreamError::Thread { source })?;
            pool.threads.push(thread);
        }
        Ok(pool)
    }

    /// Queues all jobs at once and leaves `jobs` empty.
    pub(crate) fn submit(&self, jobs: &mut Vec<Job>) {
        if jobs.is_empty() {
            return;
        }
        let mut queue = self.shared.lock();
        for job in jobs.drain(..) {
            match job.urgency {
                Urgency::Demand => queue.demand.push_back(job),
                Urgency::Spare => queue.spare.push_back(job),
            }
        }
        drop(queue);
        self.shared.job_queued.notify_all();
    }

    /// A spare job is wanted now. No effect on one that is under way or done.
    pub(crate) fn promote(&self, slot: usize) {
        let mut queue = self.shared.lock();
        if let Some(idx) = queue.spare.iter().position(|job| job.slot == slot) {
            let job = queue.spare.remove(idx).expect("found just now");
            queue.demand.push_back(Job { urgency: Urgency::Demand, ..job });
        }
    }

    /// Gives up a spare job: it is done soon, as [`Outcome::Cancelled`] if its record is not whole by then.
    pub(crate) fn cancel(&self, slot: usize) {
        let mut queue = self.shared.lock();
        if let Some(idx) = queue.spare.iter().position(|job| job.slot == slot) {
            let job = queue.spare.remove(idx).expect("found just now");
            let (outcome, cost) = (Outcome::Cancelled, Cost::default());
            queue.done.push(Done { slot, buffer: job.buffer, outcome, cost });
            self.shared.job_done.notify_one();
        }
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

impl Drop for Pool {
    fn drop(&mut self) {
        self.shared.lock().closed = true;
        self.shared.job_queued.notify_all();
        for thread in self.threads.drain(..) {
            // Panics of a source are caught and reported where they happen.
            let _ = thread.join();
        }
    }
}

/// A reading thread.
fn run(shared: &Shared, layers: &[RecordFile]) {
    loop {
        let mut queue = shared.lock();
        let job = loop {
            if queue.closed {
                return;
            }
            match queue.demand.pop_front().or_else(|| queue.spare.pop_front()) {
                Some(job) => break job,
                None => queue = shared.job_queued.wait(queue).unwrap_or_else(PoisonError::into_inner),
            }
        };
        drop(queue);
        let done = read_record(&layers[job.layer], job);
        shared.lock().done.push(done);
        shared.job_done.notify_one();
    }
}

/// Reads a record and checks it, as often as [`N_ATTEMPT`] allows: an error may be a cable, a bus, a busy server.
fn read_record(file: &RecordFile, mut job: Job) -> Done {
    let start = Instant::now();
    let mut cost = Cost::default();
    let mut attempt = 1;
    let outcome = loop {
        match attempt_record(file, &mut job, attempt, &mut cost) {
            Ok(()) => break Outcome::Ready,
            Err(_) if attempt < N_ATTEMPT => attempt += 1,
            Err(error) => break Outcome::Failed(error),
        }
    };
    cost.n_retry = u64::from(attempt - 1);
    cost.read = start.elapsed();
    Done { slot: job.slot, buffer: job.buffer, outcome, cost }
}

fn attempt_record(
    file: &RecordFile,
    job: &mut Job,
    attempt: u32,
    cost: &mut Cost,
) -> Result<(), StreamError> {
    let offset = job.expert as u64 * file.stride_bytes as u64;
    let record = &mut job.buffer[..file.stride_bytes];
    let mut got = 0;
    // A source that panics must not leave the engine waiting for ever.
    let read = catch_unwind(AssertUnwindSafe(|| read_exact(&*file.source, offset, record, &mut got)))
        .unwrap_or_else(|_| Err(io::Error::other("the reader panicked")));
    cost.read_bytes += got as u64;
    let (layer, expert) = (job.layer, job.expert);
    read.map_err(|source| StreamError::Read {
        file: file.source.name(),
        offset,
        bytes: file.stride_bytes,
        layer,
        expert,
        attempts: attempt,
        source,
    })?;
    match xxh3_64(record) == file.xxh3[expert] {
        true => Ok(()),
        false => Err(StreamError::Checksum { file: file.source.name(), offset, layer, expert }),
    }
}
