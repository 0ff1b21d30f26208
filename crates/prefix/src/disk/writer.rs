//! The thread that writes: each part to a file beside its name, which is made durable and then renamed.

use std::collections::VecDeque;
use std::fs::File;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use super::filling::Filling;
use super::header::{BLOCK_BYTES_MAX, Block, Header};
use super::index::Known;
use super::warnings::Kind;
use super::{Entry, Part, Shared, State, budget, place};
use crate::Key;

/// Most bytes that wait, unless it is one part alone: until they are on the disk they are in memory.
pub(super) const QUEUE_BYTES_MAX: u64 = 1 << 30;
/// After an error nothing is tried for so long.
const PAUSE: Duration = Duration::from_secs(60);

/// A part that waits to be written.
pub(super) struct Job {
    pub(super) key: Key,
    /// Without checksums: the thread has the time for them.
    header: Header,
    blocks: Vec<Arc<[u8]>>,
}

/// What became of a job.
enum Outcome {
    Written(Known),
    /// The file was there already.
    Known(Known),
    /// Somebody removed the part before it was complete.
    Cancelled,
    /// The day's budget is used up.
    NoBudget,
    Failed {
        action: &'static str,
        path: PathBuf,
        error: io::Error,
    },
}

/// What the thread has to do, and what it did.
#[derive(Default)]
pub(super) struct Queue {
    jobs: VecDeque<Job>,
    /// What is being written.
    under_way: Option<(Key, Part, u64)>,
    is_cancelled: bool,
    /// Of the files of `jobs` and of what is under way.
    pub(super) waiting_bytes: u64,
    pub(super) is_closing: bool,
    pub(super) paused_until: Option<Instant>,
    pub(super) written: Vec<(Key, Part, u64)>,
    pub(super) failed: Vec<(Key, Part)>,
}

impl Job {
    /// `blocks` are cut where they are longer than a reader takes.
    pub(super) fn new(root: Key, entry: &Entry, part: Part, blocks: Vec<Arc<[u8]>>) -> Self {
        let pieces = pieces(&blocks).map(|piece| Block { bytes: piece.len(), xxh3: 0 }).collect();
        let Entry { key, parent, start, ref ids, .. } = *entry;
        let header = Header { part, root, parent, start, ids: ids.clone(), blocks: pieces };
        Self { key, header, blocks }
    }

    pub(super) fn file_bytes(&self) -> u64 {
        self.header.file_bytes()
    }

    pub(super) fn payload_bytes(&self) -> u64 {
        self.header.payload_bytes()
    }

    /// Is it within the limits of a file?
    pub(super) fn can_be_read(&self) -> bool {
        self.header.is_bounded()
    }

    fn known(&self) -> Known {
        let (file_bytes, payload_bytes) = (self.file_bytes(), self.payload_bytes());
        Known { file_bytes, payload_bytes, last_use: SystemTime::now() }
    }
}

/// The blocks of a file.
fn pieces(blocks: &[Arc<[u8]>]) -> impl Iterator<Item = &[u8]> {
    blocks.iter().flat_map(|block| block.chunks(BLOCK_BYTES_MAX))
}

impl Queue {
    pub(super) fn push(&mut self, job: Job) {
        self.waiting_bytes += job.file_bytes();
        self.jobs.push_back(job);
    }

    /// Of the files that the day's budget does not count yet.
    pub(super) fn uncounted_bytes(&self) -> u64 {
        self.jobs.iter().map(Job::file_bytes).sum()
    }

    pub(super) fn is_idle(&self) -> bool {
        self.jobs.is_empty() && self.under_way.is_none()
    }

    /// Does this part, with at least so many bytes, wait or is it being written?
    pub(super) fn has(&self, key: Key, part: Part, payload_bytes: u64) -> bool {
        let is_under_way =
            self.under_way.is_some_and(|(k, p, bytes)| (k, p) == (key, part) && bytes >= payload_bytes);
        let waits =
            |job: &Job| (job.key, job.header.part) == (key, part) && job.payload_bytes() >= payload_bytes;
        is_under_way && !self.is_cancelled || self.jobs.iter().any(waits)
    }

    /// Takes a part out, or has what is written of it thrown away.
    pub(super) fn cancel(&mut self, key: Key, part: Part) {
        self.is_cancelled |= self.under_way.is_some_and(|(k, p, _)| (k, p) == (key, part));
        let waiting_bytes = &mut self.waiting_bytes;
        self.jobs.retain(|job| {
            let goes = (job.key, job.header.part) == (key, part);
            if goes {
                *waiting_bytes -= job.file_bytes();
            }
            !goes
        });
        self.written.retain(|&(k, p, _)| (k, p) != (key, part));
    }

    fn take(&mut self) -> Option<Job> {
        let job = self.jobs.pop_front()?;
        self.under_way = Some((job.key, job.header.part, job.payload_bytes()));
        Some(job)
    }

    /// None of what waits will be written.
    fn give_up(&mut self) {
        for job in self.jobs.drain(..) {
            self.waiting_bytes -= job.file_bytes();
            self.failed.push((job.key, job.header.part));
        }
    }
}

/// Writes until the disk is dropped and nothing waits.
pub(super) fn run(shared: &Shared) {
    let mut state = shared.lock();
    loop {
        if let Some(mut job) = state.queue.take() {
            drop(state);
            let outcome = write(shared, &mut job);
            state = shared.lock();
            settle(shared, &mut state, &job, outcome);
            shared.idle.notify_all();
        } else if state.queue.is_closing {
            return;
        } else {
            state = shared.wait_for(&shared.work, state);
        }
    }
}

/// Notes what became of a job.
fn settle(shared: &Shared, state: &mut State, job: &Job, outcome: Outcome) {
    let name = (job.key, job.header.part);
    let today = budget::day(SystemTime::now());
    state.queue.under_way = None;
    state.queue.waiting_bytes -= job.file_bytes();
    if std::mem::take(&mut state.queue.is_cancelled) && !matches!(outcome, Outcome::Failed { .. }) {
        // It may have got its name before.
        let _ = state.index.remove(name.0, name.1);
        return;
    }
    match outcome {
        Outcome::Cancelled => {}
        Outcome::Known(known) => {
            state.queue.written.push((name.0, name.1, known.payload_bytes));
            state.index.insert(name.0, name.1, known);
        }
        // The index knows it since it was renamed.
        Outcome::Written(known) => {
            state.queue.written.push((name.0, name.1, known.payload_bytes));
            state.warnings.is_over(Kind::Write);
        }
        Outcome::NoBudget => {
            state.queue.failed.push(name);
            state.queue.give_up();
            shared.warn_of_budget(state, today);
        }
        Outcome::Failed { action, path, error } => {
            state.queue.failed.push(name);
            state.queue.give_up();
            state.queue.paused_until = Some(Instant::now() + PAUSE);
            let path = path.display();
            state.warnings.push_once(Kind::Write, today, || {
                let todo = advice(&error);
                format!("prefix cache: cannot {action} {path}: {error}; prompts are kept in memory only for now: {todo}")
            });
        }
    }
}

fn advice(error: &io::Error) -> &'static str {
    match error.kind() {
        ErrorKind::StorageFull | ErrorKind::QuotaExceeded => {
            "free space on the drive, or give the cache less of it"
        }
        ErrorKind::PermissionDenied | ErrorKind::ReadOnlyFilesystem => {
            "give this user the right to write there"
        }
        ErrorKind::WouldBlock => "end the program that holds the file",
        _ => "check the folder and its drive",
    }
}

fn write(shared: &Shared, job: &mut Job) -> Outcome {
    let (key, part) = (job.key, job.header.part);
    let path = shared.folder.join(place::file_name(key, part));
    // Another program may have written the same meanwhile.
    let identity = (shared.root_key, shared.shape);
    if let Some(header) = place::standing(&shared.folder, (key, part), identity, job.payload_bytes()) {
        let (file_bytes, payload_bytes) = (header.file_bytes(), header.payload_bytes());
        return Outcome::Known(Known { file_bytes, payload_bytes, last_use: SystemTime::now() });
    }
    let today = budget::day(SystemTime::now());
    let limit_bytes = shared.limits.daily_write_bytes;
    match shared.with_folder(|| shared.budget.take(job.file_bytes(), limit_bytes, today)) {
        Ok(true) => {}
        Ok(false) => return Outcome::NoBudget,
        Err(error) => {
            return Outcome::Failed { action: "count bytes in", path: shared.budget.path().into(), error };
        }
    }
    let (unfinished, file) = match shared.with_folder(|| place::make_unfinished(&shared.folder, key, part)) {
        Ok(made) => made,
        Err(error) => {
            return Outcome::Failed { action: "make a file in", path: shared.folder.clone(), error };
        }
    };
    job.header.blocks = pieces(&job.blocks).map(Block::of).collect();
    let outcome = match fill(shared, file, job) {
        Ok(true) => publish(shared, job, &unfinished, path),
        Ok(false) => Outcome::Cancelled,
        Err(error) => Outcome::Failed { action: "write", path, error },
    };
    if !matches!(outcome, Outcome::Written(_)) {
        let _ = place::remove_file(&unfinished);
    }
    outcome
}

/// Writes all bytes and makes them durable. False: somebody cancelled it.
fn fill(shared: &Shared, file: File, job: &Job) -> io::Result<bool> {
    let mut filling = Filling::begin(file, &job.header)?;
    for piece in pieces(&job.blocks) {
        if filling.block(piece)? && shared.lock().queue.is_cancelled {
            return Ok(false);
        }
    }
    filling.finish()?;
    Ok(true)
}

/// Gives a complete file its name.
fn publish(shared: &Shared, job: &Job, unfinished: &Path, path: PathBuf) -> Outcome {
    let mut state = shared.lock();
    if state.queue.is_cancelled {
        return Outcome::Cancelled;
    }
    // Under the lock: who looks at the folder would take it for another program's, or for lost.
    if let Err(error) = store::rename(unfinished, &path) {
        return Outcome::Failed { action: "name", path, error };
    }
    state.index.insert(job.key, job.header.part, job.known());
    drop(state);
    match store::sync_folder(&shared.folder) {
        Ok(()) => Outcome::Written(job.known()),
        Err(error) => Outcome::Failed { action: "make durable", path: shared.folder.clone(), error },
    }
}
