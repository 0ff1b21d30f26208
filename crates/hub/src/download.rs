//! Several files over several connections: who fetches what, what happens when it fails, when a file is complete.
//!
//! Files are taken in order, and cut into spans. A connection fetches a span by one ranged request, and asks for the
//! rest of it after a drop. A server that ignores ranges gets one connection a file.

use std::collections::VecDeque;
use std::io::Read;
use std::ops::Range;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use crate::HubError;
use crate::client::{Client, Method, Patience, Reply, Trouble, shown};
use crate::digest::Digest;
use crate::part::{Part, Writing};

/// How a download is done.
#[derive(Clone, Debug)]
pub struct Options {
    /// Connections at the same time.
    pub n_connection: usize,
    /// Most bytes of one request.
    pub span_bytes: u64,
    /// Bytes that are journaled together: what a kill costs each connection at most.
    pub block_bytes: u64,
    /// Tries in a row that bring nothing, before it is given up.
    pub n_try: u32,
    /// A server that says nothing for so long has gone away.
    pub silence_max: Duration,
    /// How to wait.
    pub wait: fn(Duration),
    /// Every file of the repository, not only those that a model needs.
    pub all_files: bool,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            n_connection: 8,
            span_bytes: 32 << 20,
            block_bytes: 1 << 20,
            n_try: 8,
            silence_max: Duration::from_secs(60),
            wait: thread::sleep,
            all_files: false,
        }
    }
}

/// What happens meanwhile.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// What will be downloaded.
    Plan {
        /// Files that are needed.
        n_file: usize,
        /// Their bytes.
        total_bytes: u64,
        /// Bytes of them that are there already.
        there_bytes: u64,
    },
    /// How far it is.
    Progress {
        /// Bytes that are there.
        done_bytes: u64,
        /// Bytes in all.
        total_bytes: u64,
    },
    /// Something that went wrong and is tried again.
    Trouble(String),
    /// Something that the user should know.
    Note(String),
}

/// A file to fetch.
#[derive(Clone, Debug)]
pub(crate) struct Job {
    /// In the repository.
    pub(crate) name: String,
    pub(crate) url: String,
    pub(crate) bytes: u64,
    pub(crate) digest: Option<Digest>,
    /// Where it is written until it is complete.
    pub(crate) part: PathBuf,
    /// Tells contents apart that have the same name.
    pub(crate) identity: String,
}

/// Between two events about progress.
const PROGRESS_INTERVAL: Duration = Duration::from_millis(200);

/// Bytes that are read from a connection at a time.
const BUFFER_BYTES: usize = 256 << 10;

/// What a connection can do next.
enum Task {
    Open(usize),
    Fetch(usize, Arc<Part>, Range<u64>, bool),
    Finish(usize, Arc<Part>),
}

/// How far a file is.
enum Stage {
    Waiting,
    /// Being opened or finished by one thread.
    Held,
    Fetching(Fetching),
    Done,
}

struct Fetching {
    part: Arc<Part>,
    queue: VecDeque<Range<u64>>,
    n_busy: usize,
    /// The server ignores ranges: the one span is the file.
    is_whole: bool,
    /// The server has answered with a range.
    has_ranges: bool,
}

/// Why a request ended before its span.
enum Stop {
    Trouble(Trouble),
    /// The whole file came where a part of it was asked for.
    RangeIgnored,
    /// Another thread failed.
    Over,
}

impl From<HubError> for Stop {
    fn from(error: HubError) -> Self {
        Stop::Trouble(Trouble::Fatal(error))
    }
}

impl From<Trouble> for Stop {
    fn from(trouble: Trouble) -> Self {
        Stop::Trouble(trouble)
    }
}

struct State {
    stages: Vec<Stage>,
    error: Option<HubError>,
}

/// Gives a complete file its name.
type Finish<'a> = &'a (dyn Fn(usize, &Digest) -> Result<(), HubError> + Sync);

struct Download<'a> {
    client: &'a Client,
    options: &'a Options,
    repo: &'a str,
    jobs: &'a [Job],
    finish: Finish<'a>,
    state: Mutex<State>,
    /// A task came to be, or all is done.
    changed: Condvar,
    is_over: &'a AtomicBool,
    /// By job: bytes that are there, where redirects led, digests that were wrong.
    done_bytes: Vec<AtomicU64>,
    locations: Vec<Mutex<Option<String>>>,
    n_wrong: Vec<AtomicU64>,
    fetched_bytes: AtomicU64,
}

/// Fetches all `jobs`; `finish` gives each complete file its name. `on` hears now and then how many bytes are there,
/// all jobs together, and what went wrong and is tried again. Setting `is_over` ends it early, as if all was done.
/// Returns the bytes that came over the net.
pub(crate) fn download(
    client: &Client,
    options: &Options,
    repo: &str,
    jobs: &[Job],
    finish: Finish<'_>,
    is_over: &AtomicBool,
    on: &mut dyn FnMut(Result<u64, String>),
) -> Result<u64, HubError> {
    let there = |job: &Job| {
        AtomicU64::new(crate::part::journaled_bytes(&job.part, job.bytes, options.block_bytes, &job.identity))
    };
    let download = Download {
        client,
        options,
        repo,
        jobs,
        finish,
        state: Mutex::new(State { stages: jobs.iter().map(|_| Stage::Waiting).collect(), error: None }),
        changed: Condvar::new(),
        is_over,
        done_bytes: jobs.iter().map(there).collect(),
        locations: jobs.iter().map(|_| Mutex::new(None)).collect(),
        n_wrong: jobs.iter().map(|_| AtomicU64::new(0)).collect(),
        fetched_bytes: AtomicU64::new(0),
    };
    let done_bytes = || download.done_bytes.iter().map(|bytes| bytes.load(Ordering::Relaxed)).sum();
    thread::scope(|scope| {
        let (sender, receiver) = channel();
        for _ in 0..options.n_connection.max(1) {
            let (download, sender) = (&download, sender.clone());
            scope.spawn(move || download.work(&sender));
        }
        drop(sender);
        on(Ok(done_bytes()));
        loop {
            match receiver.recv_timeout(PROGRESS_INTERVAL) {
                Ok(trouble) => on(Err(trouble)),
                Err(RecvTimeoutError::Timeout) => on(Ok(done_bytes())),
                Err(RecvTimeoutError::Disconnected) => return on(Ok(done_bytes())),
            }
        }
    });
    let state = download.state.into_inner().unwrap_or_else(PoisonError::into_inner);
    state.error.map_or(Ok(download.fetched_bytes.into_inner()), Err)
}

impl Download<'_> {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// One connection.
    fn work(&self, troubles: &Sender<String>) {
        while let Some(task) = self.next() {
            let result = match task {
                Task::Open(i) => self.open(i),
                Task::Fetch(i, part, span, is_whole) => self.fetch(i, &part, span, is_whole, troubles),
                Task::Finish(i, part) => self.complete(i, part, troubles),
            };
            if let Err(error) = result {
                // The first error is the cause of the others. Under the lock: nobody is about to wait meanwhile.
                let mut state = self.state();
                state.error.get_or_insert(error);
                self.is_over.store(true, Ordering::Relaxed);
            }
            self.changed.notify_all();
        }
    }

    /// The next thing to do, in the order of files; waits for it. `None` when there will be none.
    fn next(&self) -> Option<Task> {
        let mut state = self.state();
        loop {
            if self.is_over.load(Ordering::Relaxed) {
                return None;
            }
            let mut is_done = true;
            for (i, stage) in state.stages.iter_mut().enumerate() {
                match stage {
                    Stage::Done => continue,
                    Stage::Held => {}
                    Stage::Waiting => {
                        *stage = Stage::Held;
                        return Some(Task::Open(i));
                    }
                    Stage::Fetching(fetching) => {
                        let part = fetching.part.clone();
                        if let Some(span) = fetching.queue.pop_front() {
                            fetching.n_busy += 1;
                            return Some(Task::Fetch(i, part, span, fetching.is_whole));
                        }
                        if fetching.n_busy == 0 {
                            *stage = Stage::Held;
                            return Some(Task::Finish(i, part));
                        }
                    }
                }
                is_done = false;
            }
            if is_done {
                return None;
            }
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }

    fn open(&self, i: usize) -> Result<(), HubError> {
        let Job { bytes, digest, part, identity, .. } = &self.jobs[i];
        let part = Part::open(part, *bytes, self.options.block_bytes, identity, digest.clone())?;
        self.start(i, Arc::new(part));
        Ok(())
    }

    /// Queues all that is missing of a file.
    fn start(&self, i: usize, part: Arc<Part>) {
        self.done_bytes[i].store(part.done_bytes(), Ordering::Relaxed);
        let queue = part.missing(self.options.span_bytes).into();
        let fetching = Fetching { part, queue, n_busy: 0, is_whole: false, has_ranges: false };
        self.state().stages[i] = Stage::Fetching(fetching);
    }

    fn fetch(
        &self,
        i: usize,
        part: &Part,
        span: Range<u64>,
        is_whole: bool,
        troubles: &Sender<String>,
    ) -> Result<(), HubError> {
        let mut patience = Patience::new(self.options, self.is_over);
        let mut writing = part.write(span);
        while !writing.left().is_empty() {
            let before = writing.left().start;
            let trouble = match self.stream(i, &mut writing) {
                Ok(()) => continue,
                Err(Stop::Over) => return Ok(()),
                Err(Stop::Trouble(trouble)) => trouble,
                Err(Stop::RangeIgnored) => match self.ignores_ranges(i, part)? {
                    None => return Ok(()),
                    Some(trouble) => trouble,
                },
            };
            if is_whole {
                // Without ranges there is no rest to ask for.
                self.done_bytes[i].fetch_sub(writing.left().start, Ordering::Relaxed);
                writing.restart();
            } else if before < writing.left().start {
                patience.renew();
            }
            if let Trouble::Again(error, _) = &trouble {
                // Nobody listens any more if the main thread panicked.
                let _ = troubles.send(format!("{}: {error}", self.jobs[i].name));
            }
            patience.wait(trouble)?;
        }
        self.with_fetching(i, |fetching| fetching.n_busy -= 1);
        Ok(())
    }

    fn with_fetching<T>(&self, i: usize, change: impl FnOnce(&mut Fetching) -> T) -> T {
        match &mut self.state().stages[i] {
            Stage::Fetching(fetching) => change(fetching),
            _ => unreachable!("a file that somebody fetches a span of"),
        }
    }

    /// The server sent the file where a span was asked for: from now on it is fetched whole, unless ranges worked
    /// before.
    fn ignores_ranges(&self, i: usize, part: &Part) -> Result<Option<Trouble>, HubError> {
        let Job { url, bytes, .. } = &self.jobs[i];
        self.with_fetching(i, |fetching| {
            if fetching.has_ranges && !fetching.is_whole {
                let why = "the whole file came where a range was asked for".to_owned();
                return Ok(Some(Trouble::Again(HubError::Answer { url: shown(url), why }, None)));
            }
            if !fetching.is_whole {
                fetching.is_whole = true;
                part.start_over()?;
                self.done_bytes[i].store(0, Ordering::Relaxed);
                fetching.queue = std::iter::once(0..*bytes).collect();
            }
            fetching.n_busy -= 1;
            Ok(None)
        })
    }

    /// One request for what is left of a span, as far as it goes.
    fn stream(&self, i: usize, writing: &mut Writing<'_>) -> Result<(), Stop> {
        let (job, left) = (&self.jobs[i], writing.left());
        let is_all = left == (0..job.bytes);
        let reply = self.request(i, (!is_all).then_some(&left))?;
        let url = shown(&reply.url);
        let n = match reply.status {
            206 => {
                self.with_fetching(i, |fetching| fetching.has_ranges = true);
                range_bytes(&reply, &left, job.bytes)
            }
            _ if !is_all => return Err(Stop::RangeIgnored),
            _ => match reply.number("content-length") {
                Some(n) if n != job.bytes => Err(format!("sends {n} bytes, the hub lists {}", job.bytes)),
                _ => Ok(job.bytes),
            },
        };
        let n = n.map_err(|why| Trouble::Again(HubError::Answer { url: url.clone(), why }, None))?;
        let mut reader = reply.reader().take(n);
        let mut buffer = vec![0; BUFFER_BYTES.min(n as usize).max(1)];
        let mut done = 0;
        while done < n {
            if self.is_over.load(Ordering::Relaxed) {
                return Err(Stop::Over);
            }
            let again = |why: String| Trouble::Again(HubError::Network { url: url.clone(), why }, None);
            let read = match reader.read(&mut buffer) {
                Ok(0) => return Err(again(format!("the answer ends after {done} of {n} bytes")).into()),
                Ok(read) => read,
                Err(e) => return Err(again(format!("after {done} of {n} bytes: {e}")).into()),
            };
            writing.put(&buffer[..read])?;
            done += read as u64;
            self.fetched_bytes.fetch_add(read as u64, Ordering::Relaxed);
            self.done_bytes[i].fetch_add(read as u64, Ordering::Relaxed);
        }
        Ok(())
    }

    /// Asks where redirects led before: addresses in storage are good for a while, then the hub gives a new one.
    fn request(&self, i: usize, range: Option<&Range<u64>>) -> Result<Reply, Trouble> {
        let job = &self.jobs[i];
        let location = || self.locations[i].lock().unwrap_or_else(PoisonError::into_inner);
        let known = location().clone();
        if let Some(known) = known {
            let reply = self.client.ask(Method::Get, &known, range, false)?;
            if !matches!(reply.status, 401 | 403 | 404 | 410) {
                return self.client.check(reply, self.repo, &job.name);
            }
            location().take_if(|now| *now == known);
        }
        let reply = self.client.ask(Method::Get, &job.url, range, false)?;
        let reply = self.client.check(reply, self.repo, &job.name)?;
        if reply.url != job.url {
            *location() = Some(reply.url.clone());
        }
        Ok(reply)
    }

    /// All bytes are there: are they the right ones?
    fn complete(&self, i: usize, part: Arc<Part>, troubles: &Sender<String>) -> Result<(), HubError> {
        let job = &self.jobs[i];
        let got = part.finish()?;
        if let Some(expected) = job.digest.as_ref().filter(|expected| **expected != got) {
            if self.n_wrong[i].fetch_add(1, Ordering::Relaxed) > 0 {
                part.discard();
                return Err(HubError::Digest {
                    file: job.name.clone(),
                    algorithm: expected.algorithm(),
                    expected: expected.hex().to_owned(),
                    got: got.hex().to_owned(),
                });
            }
            let _ = troubles.send(format!("{}: wrong bytes came, it is fetched again", job.name));
            part.start_over()?;
            self.start(i, part);
            return Ok(());
        }
        drop(part);
        (self.finish)(i, &got)?;
        self.state().stages[i] = Stage::Done;
        Ok(())
    }
}

/// Bytes of a 206 answer that are of use: it must begin where it was asked to, and be of the file that is listed.
fn range_bytes(reply: &Reply, asked: &Range<u64>, file_bytes: u64) -> Result<u64, String> {
    let text = reply.header("content-range").ok_or("206 without Content-Range")?;
    let parsed = || {
        let (range, total) = text.trim().strip_prefix("bytes ")?.split_once('/')?;
        let (start, last) = range.split_once('-')?;
        let total: Option<u64> = if total == "*" { None } else { Some(total.parse().ok()?) };
        Some((start.parse::<u64>().ok()?, last.parse::<u64>().ok()?.checked_add(1)?, total))
    };
    let (start, end, total) = parsed().ok_or_else(|| format!("Content-Range '{text}' makes no sense"))?;
    if let Some(total) = total.filter(|&total| total != file_bytes) {
        return Err(format!("the file has {total} bytes, the hub lists {file_bytes}"));
    }
    if start != asked.start || end <= start {
        return Err(format!("bytes {}-{} were asked for, '{text}' comes", asked.start, asked.end - 1));
    }
    Ok(end.min(asked.end) - start)
}
