//! Weight files of a repository one after the other, for somebody who needs each for a short time: headers first, then
//! a few files at a time, each of which goes when it has been used.
//!
//! A file keeps its place on the disk all the time, so that it can stay open: at first it is its header and a hole.

use std::collections::{HashMap, VecDeque};
use std::fs::{self, File, OpenOptions};
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, SystemTime};

use xxhash_rust::xxh3::xxh3_64;

use crate::client::{Method, Patience, Trouble, shown};
use crate::download::{Event, Options, download};
use crate::listing::{RemoteFile, file_url};
use crate::part::{journal_path, refuse_link};
use crate::place::Place;
use crate::pull::Source;
use crate::{HubError, Repo, Settings};

/// The first request for a header: most are smaller.
const HEAD_BYTES: u64 = 256 << 10;
/// Bytes before a header, which say how long it is.
const LENGTH_BYTES: u64 = 8;
/// No header is longer.
const HEAD_BYTES_MAX: u64 = 100_000_008;

/// First of the times of change that weight files get. Each content has its own: what a program has made of it is still
/// its when it comes again, and is not taken for that of another version.
const MODIFIED: Duration = Duration::from_secs(1_000_000_000);
/// So many of the 64 bits of a hash are seconds: eight years.
const MODIFIED_BITS: u32 = 28;

/// Stands in the folder while its weight files may be holes, which look like zeros to who opens them.
pub(crate) const HOLES_NAME: &str = ".flash-moe-holes";

/// A repository of safetensors of which the weight files come one by one.
pub struct Shards<'a> {
    source: Source<'a>,
    dir: PathBuf,
    /// By weight file: bytes of length field and header.
    head_bytes: HashMap<String, u64>,
    state: Mutex<State>,
    changed: Condvar,
    is_over: AtomicBool,
    report: &'a (dyn Fn(Event) + Sync),
}

#[derive(Default)]
struct State {
    queue: VecDeque<String>,
    stages: HashMap<String, Stage>,
    n_live_max: usize,
    error: Option<HubError>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Stage {
    /// Its bytes take room.
    Fetching,
    Ready,
}

impl<'a> Shards<'a> {
    /// Downloads what stands beside the weights into folder `dir`, and the headers of the weight files. The folder is
    /// that of a checkpoint then, of which the weights are zeros.
    ///
    /// # Errors
    /// As [`crate::pull()`]; the weights are not safetensors.
    pub fn open(
        settings: &Settings,
        repo: &'a Repo,
        options: &'a Options,
        dir: &Path,
        report: &'a (dyn Fn(Event) + Sync),
    ) -> Result<Self, HubError> {
        let source = Source::open(settings, repo, options)?;
        let is_weights = |file: &&RemoteFile| file.name.ends_with(".safetensors");
        let (weights, others): (Vec<&RemoteFile>, Vec<&RemoteFile>) =
            source.files.iter().partition(is_weights);
        if weights.is_empty() {
            let why = "only safetensors can be packed while they are downloaded".to_owned();
            return Err(HubError::NoWeights { repo: repo.id.clone(), why });
        }
        let place = Place::folder(dir)?;
        let mark = dir.join(HOLES_NAME);
        refuse_link(&mark)?;
        fs::write(&mark, "").map_err(HubError::io(&mark, "write"))?;
        let mut missing = Vec::new();
        for file in others {
            if !place.has(file)? {
                missing.push(file);
            }
        }
        let total_bytes = missing.iter().filter_map(|file| file.bytes).sum();
        source.fetch(&place, &missing, total_bytes, &mut |event| match event {
            Event::Plan { .. } | Event::Progress { .. } => {}
            other => report(other),
        })?;
        let head_bytes = heads(&source, &weights, dir)?;
        Ok(Self {
            source,
            dir: dir.to_owned(),
            head_bytes,
            state: Mutex::default(),
            changed: Condvar::new(),
            is_over: AtomicBool::new(false),
            report,
        })
    }

    /// The checkpoint's folder.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// Lets files come, in this order, while `work` runs.
    pub fn run<T>(&self, work: impl FnOnce() -> T) -> T {
        /// Ends the download whatever becomes of the work.
        struct Over<'s, 'a>(&'s Shards<'a>);
        impl Drop for Over<'_, '_> {
            fn drop(&mut self) {
                let _state = self.0.state();
                self.0.is_over.store(true, Ordering::Relaxed);
                self.0.changed.notify_all();
            }
        }
        thread::scope(|scope| {
            scope.spawn(|| self.fetch_all());
            let _over = Over(self);
            work()
        })
    }

    /// The files that will be needed, in this order, at most `n_live` of them at a time. While those are used the next
    /// one comes.
    ///
    /// # Errors
    /// There is no room for so many.
    pub fn plan(&self, names: &[String], n_live: usize) -> Result<(), HubError> {
        let n_live_max = n_live.max(2);
        let mut sizes: Vec<u64> = names.iter().map(|name| self.file(name).bytes.unwrap_or(0)).collect();
        sizes.sort_unstable_by(|a, b| b.cmp(a));
        let needed_bytes: u64 = sizes.iter().take(n_live_max).sum();
        if let Some(free_bytes) = store::free_bytes(&self.dir).filter(|&free| free < needed_bytes) {
            return Err(HubError::DiskFull { path: self.dir.clone(), needed_bytes, free_bytes });
        }
        let mut state = self.state();
        state.queue = names.iter().cloned().collect();
        state.n_live_max = n_live_max;
        drop(state);
        self.changed.notify_all();
        Ok(())
    }

    /// Waits until a planned file is there and checked.
    ///
    /// # Errors
    /// It will not come.
    pub fn need(&self, name: &str) -> Result<(), HubError> {
        let mut state = self.state();
        while state.stages.get(name) != Some(&Stage::Ready) {
            if let Some(error) = state.error.take() {
                return Err(error);
            }
            if self.is_over.load(Ordering::Relaxed) {
                let why = "the download of another file failed".to_owned();
                return Err(HubError::NoWeights { repo: self.source.repo.id.clone(), why });
            }
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        Ok(())
    }

    /// A file is not needed any more: its room is given back.
    pub fn done(&self, name: &str) {
        let path = self.dir.join(name);
        let cut = OpenOptions::new().write(true).open(&path);
        // If it cannot be cut it only takes room: the end of the run removes it.
        let _ = cut.and_then(|file| file.set_len(self.head_bytes.get(name).copied().unwrap_or(0)));
        self.state().stages.remove(name);
        self.changed.notify_all();
    }

    /// Removes all that was downloaded.
    ///
    /// # Errors
    /// The system fails.
    pub fn remove(self) -> Result<(), HubError> {
        fs::remove_dir_all(&self.dir).map_err(HubError::io(&self.dir, "remove"))
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn file(&self, name: &str) -> &RemoteFile {
        let found = self.source.files.iter().find(|file| file.name == name);
        found.expect("files of the checkpoint are files of the repository")
    }

    fn fetch_all(&self) {
        while let Some(name) = self.next() {
            let fetched = self.fetch(&name);
            let mut state = self.state();
            match fetched {
                Ok(()) => {
                    state.stages.insert(name, Stage::Ready);
                }
                Err(error) => {
                    state.error = Some(error);
                    self.is_over.store(true, Ordering::Relaxed);
                }
            }
            self.changed.notify_all();
        }
    }

    /// The next file to fetch, as soon as there is room for it.
    fn next(&self) -> Option<String> {
        let mut state = self.state();
        loop {
            if self.is_over.load(Ordering::Relaxed) {
                return None;
            }
            if state.stages.len() < state.n_live_max
                && let Some(name) = state.queue.pop_front()
            {
                state.stages.insert(name.clone(), Stage::Fetching);
                return Some(name);
            }
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }

    fn fetch(&self, name: &str) -> Result<(), HubError> {
        let Source { client, options, repo, .. } = &self.source;
        let path = self.dir.join(name);
        let job = self.source.job(self.file(name), path.clone());
        let finish = |_, _: &_| {
            let journal = journal_path(&path);
            fs::remove_file(&journal).map_err(HubError::io(&journal, "remove"))
        };
        download(client, options, &repo.id, &[job], &finish, &self.is_over, &mut |step| {
            if let Err(trouble) = step {
                (self.report)(Event::Trouble(trouble));
            }
        })
        .map(drop)
    }
}

/// Writes the headers of `weights` into files of their full length; returns how long each is.
fn heads(source: &Source<'_>, weights: &[&RemoteFile], dir: &Path) -> Result<HashMap<String, u64>, HubError> {
    let (next, is_over) = (AtomicUsize::new(0), AtomicBool::new(false));
    let work = || {
        let mut found = Vec::new();
        while let Some(file) = weights.get(next.fetch_add(1, Ordering::Relaxed)) {
            let bytes = head(source, file, &is_over)
                .and_then(|bytes| write_head(&dir.join(&file.name), file, &bytes, &source.identity(file)));
            is_over.fetch_or(bytes.is_err(), Ordering::Relaxed);
            found.push((file.name.clone(), bytes?));
        }
        Ok(found)
    };
    thread::scope(|scope| {
        let threads: Vec<_> = (0..source.options.n_connection.max(1)).map(|_| scope.spawn(work)).collect();
        let mut heads = HashMap::new();
        for thread in threads {
            heads.extend(thread.join().expect("a thread that fetches headers does not panic")?);
        }
        Ok(heads)
    })
}

/// Length field and header of a file.
fn head(source: &Source<'_>, file: &RemoteFile, is_over: &AtomicBool) -> Result<Vec<u8>, HubError> {
    let url = file_url(&source.client, source.repo, &source.commit, &file.name);
    let bytes = file.bytes.unwrap_or(0);
    let fetch = |n: u64| {
        let mut patience = Patience::new(source.options, is_over);
        patience.insist(|| {
            if n == 0 {
                return Ok(Vec::new());
            }
            let reply = source.client.ask(Method::Get, &url, Some(&(0..n)), false)?;
            let reply = source.client.check(reply, &source.repo.id, &file.name)?;
            let mut head = Vec::new();
            let read = reply.reader().take(n).read_to_end(&mut head);
            let why = match read {
                Ok(_) if head.len() as u64 == n => return Ok(head),
                Ok(read) => format!("the answer ends after {read} of {n} bytes"),
                Err(e) => e.to_string(),
            };
            Err(Trouble::Again(HubError::Network { url: shown(&url), why }, None))
        })
    };
    let mut head = fetch(bytes.min(HEAD_BYTES))?;
    let header_bytes = head.first_chunk::<8>().map_or(0, |n| u64::from_le_bytes(*n));
    // What makes no sense is for the reader of the file to refuse.
    let n = LENGTH_BYTES.saturating_add(header_bytes).min(bytes).min(HEAD_BYTES_MAX);
    if head.len() as u64 != n {
        if (head.len() as u64) < n {
            head = fetch(n)?;
        }
        head.truncate(n as usize);
    }
    Ok(head)
}

fn write_head(path: &Path, file: &RemoteFile, head: &[u8], identity: &str) -> Result<u64, HubError> {
    refuse_link(path)?;
    let seconds = xxh3_64(identity.as_bytes()) >> (u64::BITS - MODIFIED_BITS);
    let modified = SystemTime::UNIX_EPOCH + MODIFIED + Duration::from_secs(seconds);
    let write = || {
        let out = OpenOptions::new().write(true).create(true).truncate(false).open(path)?;
        store::write_all_at(&out, head, 0)?;
        out.set_len(file.bytes.unwrap_or(0))?;
        File::set_modified(&out, modified)
    };
    write().map_err(HubError::io(path, "write its header"))?;
    Ok(head.len() as u64)
}
