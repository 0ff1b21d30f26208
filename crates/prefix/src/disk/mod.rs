//! Checkpoints in files.
//!
//! Each part of a node is a file that is named by the node's key, written once and never changed:
//!
//! ```text
//! root/written                         bytes written today, by all programs
//! root/<identity>/about.json           whose checkpoints these are, for people
//! root/<identity>/<key>.kv, .state     see `header.rs`
//! root/<identity>/….tmp                being written
//! ```
//!
//! Nothing has to be compacted, because what goes is a file that is unlinked; and programs that share a folder need no
//! lock for it, because files of the same name are of the same tokens of the same model. A file is made durable before
//! it gets its name, so that a crash at any time leaves whole files only, and what a drive damages is found by
//! checksums: of the header when the folder is looked at, of a block when it is read.
//!
//! This module prints nothing: warnings are kept until they are taken.

mod budget;
mod filling;
mod folders;
pub(crate) mod header;
mod incoming;
mod index;
pub(crate) mod place;
mod read;
mod room;
mod warnings;
mod writer;

use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant, SystemTime};

use crate::{Identity, Key, Shape};
use budget::Budget;
pub use folders::{Folder, folders, remove_folder, used_bytes, written_today_bytes};
pub use header::{Block, Header};
pub(crate) use incoming::Incoming;
use index::Index;
use read::Wanted;
use room::Strangers;
use warnings::{Kind, Warnings};
use writer::{Job, QUEUE_BYTES_MAX, Queue};

/// The folder of one identity, and the thread that writes to it. Dropping it writes what still waits.
pub struct Disk {
    shared: Arc<Shared>,
    writer: Option<JoinHandle<()>>,
}

/// What the folder of all identities may take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DiskLimits {
    /// Bytes of all files.
    pub size_bytes: u64,
    /// Bytes written a day (UTC), by all programs that share the folder: drives wear out.
    pub daily_write_bytes: u64,
    /// Files that nobody used for so long go.
    pub expiry: Duration,
    /// So much stays free on the file system.
    pub free_bytes: u64,
}

/// Half of a node: the two have files of their own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Part {
    /// Keys and values of the node's own tokens.
    Kv,
    /// The state behind them.
    State,
}

/// A node that a folder has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Its name.
    pub key: Key,
    /// The node that it goes on from.
    pub parent: Key,
    /// Tokens before its own.
    pub start: usize,
    /// Its own tokens.
    pub ids: Vec<u32>,
    /// Bytes of keys and values; `None`: they are not there.
    pub kv_bytes: Option<u64>,
    /// Bytes of the state; `None`: it is not there.
    pub state_bytes: Option<u64>,
    /// When it was written or used.
    pub last_use: SystemTime,
}

/// Takes the blocks of several parts, with the index of the part, in order. An error ends the reading.
pub type Consume<'a> = dyn FnMut(usize, &[u8]) -> Result<(), String> + 'a;

/// What other programs did to the folder.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Changes {
    /// Nodes that are new, or have a part that is new.
    pub added: Vec<Entry>,
    /// Parts that are gone.
    pub removed: Vec<(Key, Part)>,
}

/// What the writing thread and the callers share.
struct Shared {
    root: PathBuf,
    folder: PathBuf,
    identity: Identity,
    root_key: Key,
    shape: Shape,
    limits: DiskLimits,
    budget: Budget,
    state: Mutex<State>,
    /// There is something to write, or nothing more will come.
    work: Condvar,
    /// Something was written, or will not be.
    idle: Condvar,
}

struct State {
    index: Index,
    strangers: Strangers,
    queue: Queue,
    warnings: Warnings,
}

impl Part {
    /// Ends the name of its file.
    fn extension(self) -> &'static str {
        match self {
            Self::Kv => "kv",
            Self::State => "state",
        }
    }

    /// As headers have it.
    fn code(self) -> u32 {
        match self {
            Self::Kv => 0,
            Self::State => 1,
        }
    }

    fn from_code(code: u32) -> Option<Self> {
        [Self::Kv, Self::State].into_iter().find(|part| part.code() == code)
    }
}

impl Disk {
    /// Opens or makes the folder `root/<identity>`, and finds what is in it. What is damaged, foreign or of another
    /// version is removed with a warning; what other programs are writing just now stays.
    ///
    /// # Errors
    /// The folder cannot be made or read.
    pub fn open(root: &Path, identity: &Identity, limits: DiskLimits) -> io::Result<(Self, Vec<Entry>)> {
        let root_key = identity.root();
        let folder = root.join(root_key.hex());
        let state = State {
            index: Index::new(folder.clone(), root_key, identity.shape),
            strangers: Strangers::default(),
            queue: Queue::default(),
            warnings: Warnings::default(),
        };
        let shared = Arc::new(Shared {
            root: root.to_owned(),
            folder,
            identity: identity.clone(),
            root_key,
            shape: identity.shape,
            limits,
            budget: Budget::new(root),
            state: Mutex::new(state),
            work: Condvar::new(),
            idle: Condvar::new(),
        });
        shared.make_folder()?;
        let entries = shared.look(&mut shared.lock())?.added;
        let for_thread = shared.clone();
        let writer = thread::Builder::new().name("prefix-write".into());
        let writer = writer.spawn(move || writer::run(&for_thread))?;
        let disk = Self { shared, writer: Some(writer) };
        disk.expire();
        Ok((disk, entries))
    }

    /// Has a part written by the thread: `blocks` in order. False: the limits do not allow it, or too much waits
    /// already. What is there already is written already. A state with logits takes the place of one without.
    ///
    /// # Panics
    /// The key is not that of the node's tokens, or the blocks are not as long as the identity says.
    pub fn write(&self, entry: &Entry, part: Part, blocks: Vec<Arc<[u8]>>) -> bool {
        let shared = &*self.shared;
        assert!(
            !entry.ids.is_empty() && entry.parent.child(&entry.ids) == entry.key,
            "a node is named by its tokens"
        );
        let job = Job::new(shared.root_key, entry, part, blocks);
        let bytes = job.payload_bytes();
        assert!(header::is_payload(part, entry.ids.len(), bytes, shared.shape), "{part:?} has {bytes} bytes");
        let mut state = shared.lock();
        if state.index.get(entry.key, part).is_some_and(|known| known.payload_bytes >= bytes) {
            state.queue.written.push((entry.key, part, bytes));
            return true;
        }
        if state.queue.has(entry.key, part, bytes) {
            return true;
        }
        if !job.can_be_read() {
            return false;
        }
        let is_paused = state.queue.paused_until.is_some_and(|until| Instant::now() < until);
        let waiting_bytes = state.queue.waiting_bytes;
        let is_too_much =
            waiting_bytes > 0 && waiting_bytes.saturating_add(job.file_bytes()) > QUEUE_BYTES_MAX;
        if is_paused || is_too_much || state.index.is_blocked(entry.key, part) {
            return false;
        }
        if !shared.allow(&mut state, job.file_bytes()) {
            return false;
        }
        state.queue.push(job);
        shared.work.notify_one();
        true
    }

    /// Reads a part, several blocks at a time and past the page cache, and hands the blocks over in order, as they were
    /// written; those of more than 8 MiB in pieces. Bytes in all.
    ///
    /// # Errors
    /// It is not there, is not what was written, or cannot be read; or what `consume` says.
    pub fn read(
        &self,
        key: Key,
        part: Part,
        consume: &mut dyn FnMut(&[u8]) -> Result<(), String>,
    ) -> Result<u64, String> {
        self.read_parts(&[(key, part)], &mut |_, block| consume(block)).map_err(|(_, why)| why)
    }

    /// As [`Self::read`], several parts one after the other, at the speed of one: `consume` gets the index of the part
    /// too.
    ///
    /// # Errors
    /// As [`Self::read`], with the index of the part. Those before it were handed over whole.
    pub fn read_parts(
        &self,
        parts: &[(Key, Part)],
        consume: &mut Consume<'_>,
    ) -> Result<u64, (usize, String)> {
        let shared = &*self.shared;
        let wanted = parts.iter().map(|&(key, part)| {
            let path = shared.folder.join(place::file_name(key, part));
            Wanted { path, name: (key, part) }
        });
        let wanted: Vec<Wanted> = wanted.collect();
        read::read(&wanted, (shared.root_key, shared.shape), consume)
            .map_err(|(idx, why)| (idx, format!("{}: {why}", wanted[idx].path.display())))
    }

    /// Removes a part, also if it is not yet written. One that is not there is no error.
    pub fn remove(&self, key: Key, part: Part) {
        let mut state = self.shared.lock();
        state.queue.cancel(key, part);
        if let Err(e) = state.index.remove(key, part) {
            let path = state.index.path(key, part);
            state.warnings.push(format!("{}: cannot remove it from the prefix cache: {e}", path.display()));
        }
    }

    /// Says that a node was used now. A file is not touched twice within a minute.
    pub fn touch(&self, key: Key) {
        self.shared.lock().index.touch(key, SystemTime::now());
    }

    /// Bytes of the files of all identities, and of what waits to be written.
    pub fn used_bytes(&self) -> u64 {
        self.shared.lock().used_bytes()
    }

    /// Bytes of our own files that must go before `more_bytes` more can be written. Files of other identities that are
    /// older than all of ours go first, here and now.
    pub fn excess_bytes(&self, more_bytes: u64) -> u64 {
        self.shared.excess_bytes(&mut self.shared.lock(), more_bytes)
    }

    /// What other programs added to the folder and removed from it. Cheap if nothing changed.
    pub fn rescan(&self) -> Changes {
        let mut state = self.shared.lock();
        match self.shared.look(&mut state) {
            Ok(changes) => changes,
            // Somebody removed the folder: it will be made again by the next write.
            Err(e) if e.kind() == io::ErrorKind::NotFound => {
                Changes { added: Vec::new(), removed: state.index.forget_all() }
            }
            Err(e) => {
                let today = budget::day(SystemTime::now());
                let path = self.shared.folder.display();
                state
                    .warnings
                    .push_once(Kind::Look, today, || format!("prefix cache: cannot look into {path}: {e}"));
                Changes::default()
            }
        }
    }

    /// Removes what nobody used for longer than the limits say, of other identities too. Ours that are gone.
    pub fn expire(&self) -> Vec<(Key, Part)> {
        let (now, expiry) = (SystemTime::now(), self.shared.limits.expiry);
        let state = &mut *self.shared.lock();
        state.strangers.expire(now, expiry);
        state.index.expire(now, expiry)
    }

    /// Waits until nothing waits to be written.
    pub fn flush(&self) {
        let mut state = self.shared.lock();
        while !state.queue.is_idle() {
            state = self.shared.wait_for(&self.shared.idle, state);
        }
    }

    /// Parts that are on the disk since this was asked last, and their bytes.
    pub fn take_written(&self) -> Vec<(Key, Part, u64)> {
        std::mem::take(&mut self.shared.lock().queue.written)
    }

    /// Parts that [`Self::write`] took and that could not be written, since this was asked last.
    pub fn take_failed(&self) -> Vec<(Key, Part)> {
        std::mem::take(&mut self.shared.lock().queue.failed)
    }

    /// What the user should know, since this was asked last: a line each.
    pub fn take_warnings(&self) -> Vec<String> {
        self.shared.lock().warnings.take()
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        self.shared.lock().queue.is_closing = true;
        self.shared.work.notify_one();
        if let Some(writer) = self.writer.take() {
            // A thread that panicked has said so.
            let _ = writer.join();
        }
    }
}

impl State {
    fn used_bytes(&self) -> u64 {
        self.index.file_bytes() + self.strangers.bytes() + self.queue.waiting_bytes
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wait_for<'a>(&self, what: &Condvar, state: MutexGuard<'a, State>) -> MutexGuard<'a, State> {
        what.wait(state).unwrap_or_else(PoisonError::into_inner)
    }

    fn make_folder(&self) -> io::Result<()> {
        place::make_folder(&self.folder)?;
        // For people only; if there is no room for it, what is there can still be read.
        let _ = place::write_about(&self.folder, &self.identity);
        Ok(())
    }

    /// Does something in the folder, which somebody may have removed: then it is made again.
    fn with_folder<T>(&self, act: impl Fn() -> io::Result<T>) -> io::Result<T> {
        match act() {
            Err(e) if e.kind() == io::ErrorKind::NotFound => {
                self.make_folder()?;
                act()
            }
            result => result,
        }
    }

    fn look(&self, state: &mut State) -> io::Result<Changes> {
        let now = SystemTime::now();
        state.strangers.look(&self.root, self.root_key, now);
        state.index.look(now, self.limits.expiry, &mut state.warnings)
    }

    fn excess_bytes(&self, state: &mut State, more_bytes: u64) -> u64 {
        let excess = |state: &State| {
            let waiting_bytes = state.queue.waiting_bytes;
            room::excess_bytes(&self.folder, &self.limits, state.used_bytes(), waiting_bytes, more_bytes)
        };
        let excess_bytes = excess(state);
        if excess_bytes == 0 || state.strangers.bytes() == 0 {
            return excess_bytes;
        }
        let oldest_use = state.index.oldest_use();
        state.strangers.drop_older(oldest_use, excess_bytes);
        excess(state)
    }

    /// May so many bytes be written? If not, the user is told.
    fn allow(&self, state: &mut State, file_bytes: u64) -> bool {
        let today = budget::day(SystemTime::now());
        let planned_bytes = self.budget.written_bytes(today).saturating_add(state.queue.uncounted_bytes());
        if planned_bytes.saturating_add(file_bytes) > self.limits.daily_write_bytes {
            self.warn_of_budget(state, today);
            return false;
        }
        let excess_bytes = self.excess_bytes(state, file_bytes);
        if excess_bytes > 0 {
            let (root, used) = (self.root.display(), mib(state.used_bytes()));
            let (size, free) = (mib(self.limits.size_bytes), mib(self.limits.free_bytes));
            let excess = mib(excess_bytes);
            state.warnings.push_once(Kind::Full, today, || {
                format!(
                    "prefix cache: {root} is full: it has {used} of at most {size}, {free} of the drive stay free, and \
                     {excess} are missing; prompts are kept in memory only: allow it more, or remove what is not needed"
                )
            });
        }
        excess_bytes == 0
    }

    fn warn_of_budget(&self, state: &mut State, today: u64) {
        let (root, limit) = (self.root.display(), mib(self.limits.daily_write_bytes));
        state.warnings.push_once(Kind::Budget, today, || {
            format!(
                "prefix cache: {limit} a day may be written to {root}, and today's are used up; prompts are kept in memory \
                 only until midnight UTC: allow it more if the drive endures it"
            )
        });
    }
}

/// For messages.
pub(crate) fn mib(bytes: u64) -> String {
    format!("{:.1} MiB", bytes as f64 / (1 << 20) as f64)
}
