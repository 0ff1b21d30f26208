//! A hub on this machine that does what its script says: drops, wrong lengths, wrong bytes, refusals, redirects.
//!
//! It remembers every request and counts the bytes it sent, so that tests can tell what was fetched twice.
#![allow(dead_code)] // Each test file uses its share.

use std::collections::BTreeMap;
use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::ops::Range;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use sha2::{Digest, Sha256};
use tempfile::TempDir;

pub(crate) const COMMIT: &str = "0123456789abcdef0123456789abcdef01234567";
pub(crate) const REPO: &str = "owner/model";

/// Longest wait for anything: a test that waits for it has failed.
const PATIENCE: Duration = Duration::from_secs(120);

/// Bytes that are sent at a time.
const PIECE_BYTES: u64 = 64 << 10;

/// A file: pseudo-random bytes, made as they are needed.
#[derive(Clone, Debug)]
pub(crate) struct File {
    pub(crate) name: String,
    pub(crate) bytes: u64,
    pub(crate) seed: u64,
    /// Kept in git itself: the hub lists git's digest, none of SHA-256.
    pub(crate) is_small: bool,
    /// Its first bytes, in place of random ones.
    pub(crate) head: Vec<u8>,
}

impl File {
    pub(crate) fn new(name: &str, bytes: u64) -> Self {
        let seed = name.bytes().fold(1u64, |seed, b| seed.wrapping_mul(31).wrapping_add(b.into()));
        Self {
            name: name.into(),
            bytes,
            seed,
            is_small: !name.contains("safetensors") && !name.contains("gguf"),
            head: Vec::new(),
        }
    }

    /// Its bytes in `range`.
    pub(crate) fn content(&self, range: Range<u64>) -> Vec<u8> {
        let words = range.start / 8..range.end.div_ceil(8);
        let bytes: Vec<u8> = words.flat_map(|i| mix(self.seed.wrapping_add(i)).to_le_bytes()).collect();
        let skip = (range.start % 8) as usize;
        let mut bytes = bytes[skip..skip + (range.end - range.start) as usize].to_vec();
        let head = self.head.iter().enumerate().skip(range.start as usize);
        head.zip(&mut bytes).for_each(|((_, from), to)| *to = *from);
        bytes
    }

    /// A file of the disk.
    pub(crate) fn of_disk(path: &Path) -> Self {
        let head = fs::read(path).unwrap();
        let name = path.file_name().unwrap().to_str().unwrap();
        Self { bytes: head.len() as u64, head, ..Self::new(name, 0) }
    }

    pub(crate) fn sha256(&self) -> String {
        let mut hasher = Sha256::new();
        for start in (0..self.bytes).step_by(1 << 20) {
            hasher.update(self.content(start..self.bytes.min(start + (1 << 20))));
        }
        hex(&hasher.finalize())
    }

    fn listed(&self) -> String {
        let Self { name, bytes, .. } = self;
        let name = name.replace('\\', "\\\\").replace('\0', "\\u0000");
        if self.is_small {
            return format!(r#"{{"rfilename": "{name}", "size": {bytes}, "blobId": "{}"}}"#, self.git_blob());
        }
        let sha256 = self.sha256();
        format!(
            r#"{{"rfilename": "{name}", "size": {bytes}, "lfs": {{"sha256": "{sha256}", "size": {bytes}}}}}"#
        )
    }

    pub(crate) fn git_blob(&self) -> String {
        let mut sha1 = sha1::Sha1::new();
        sha1.update(format!("blob {}\0", self.bytes));
        sha1.update(self.content(0..self.bytes));
        hex(&sha1.finalize())
    }
}

/// Bytes of `files` in `folder` that a later run need not fetch: complete files, and blocks in journals.
pub(crate) fn kept_bytes(folder: &Path, files: &[File], block_bytes: u64) -> u64 {
    let of_file = |file: &File| {
        if folder.join(&file.name).exists() {
            return file.bytes;
        }
        let journal = folder.join(format!("{}.part.journal", file.name));
        let journal = fs::read_to_string(journal).unwrap_or_default();
        let blocks = journal.lines().skip(1).filter_map(|line| line.split(' ').next()?.parse::<u64>().ok());
        blocks.map(|block| block_bytes.min(file.bytes - block * block_bytes)).sum()
    };
    files.iter().map(of_file).sum()
}

/// Looks until it is so.
pub(crate) fn wait_until(what: &str, mut is_so: impl FnMut() -> bool) {
    let start = Instant::now();
    while !is_so() {
        assert!(start.elapsed() < PATIENCE, "waited too long for {what}");
        thread::yield_now();
    }
}

/// A hub, and a place for what comes from it.
pub(crate) struct Bench {
    pub(crate) server: Server,
    pub(crate) disk: TempDir,
}

impl Bench {
    pub(crate) fn new(files: Vec<File>, rules: Vec<Rule>) -> Self {
        Self { server: Server::start(files, rules), disk: tempfile::tempdir().unwrap() }
    }
}

/// splitmix64.
fn mix(x: u64) -> u64 {
    let z = x.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// What the server does instead of answering as it should.
#[derive(Clone, Debug)]
pub(crate) enum Act {
    /// The connection ends after so many bytes of the body.
    Drop(u64),
    /// Before the head.
    Hang,
    /// Nothing more comes after so many bytes of the body, and the connection stays.
    Stall(u64),
    /// 200 and the whole file, whatever was asked for.
    IgnoreRange,
    /// A length that is wrong by so much.
    Length(i64),
    /// No length: the end of the connection is the end of the file.
    NoLength,
    /// 200 and the whole file, without a length.
    Unsized,
    /// Another range than the one that was asked for.
    OtherRange,
    /// A file that is longer than it should be, as `Content-Range` says.
    OtherTotal,
    /// Every byte is wrong.
    WrongBytes,
    /// A refusal, with headers and a body.
    Refuse(u16, &'static [(&'static str, &'static str)], &'static str),
    /// To storage at another address.
    Redirect,
    /// To this address, with `%` for the port of this server.
    RedirectTo(&'static str),
    /// 200 and this, as the list of files.
    Json(String),
    /// HEAD without the headers about size and digest.
    BareHead,
}

/// An act for the requests, of those whose path has `path` in it and (`GET`, `HEAD`) that method, with these numbers.
#[derive(Clone, Debug)]
pub(crate) struct Rule {
    pub(crate) path: &'static str,
    pub(crate) times: Range<u64>,
    pub(crate) act: Act,
}

/// Always.
pub(crate) const ALWAYS: Range<u64> = 0..u64::MAX;

impl Rule {
    pub(crate) fn new(path: &'static str, times: Range<u64>, act: Act) -> Self {
        Self { path, times, act }
    }
}

/// A request that came.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Seen {
    /// Of the hub's storage?
    pub(crate) is_storage: bool,
    pub(crate) method: String,
    pub(crate) path: String,
    pub(crate) range: Option<Range<u64>>,
    pub(crate) authorization: Option<String>,
}

#[derive(Default)]
struct Log {
    seen: Vec<Seen>,
    /// By file: what was sent.
    sent: BTreeMap<String, Vec<Range<u64>>>,
    n_match: Vec<u64>,
}

struct Shared {
    files: Vec<File>,
    rules: Vec<Rule>,
    list: String,
    log: Mutex<Log>,
    sent_bytes: AtomicU64,
    /// No more bytes than these are sent.
    gate_bytes: Mutex<u64>,
    gate_moved: Condvar,
    storage_port: u16,
}

/// The running server. It goes on until the test's process ends.
pub(crate) struct Server {
    shared: Arc<Shared>,
    pub(crate) port: u16,
}

impl Server {
    pub(crate) fn start(files: Vec<File>, rules: Vec<Rule>) -> Self {
        Self::start_on(0, files, rules)
    }

    pub(crate) fn start_on(port: u16, files: Vec<File>, rules: Vec<Rule>) -> Self {
        let hub = TcpListener::bind(("127.0.0.1", port)).unwrap();
        // Another address: the token must not come here.
        let storage = TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let siblings: Vec<String> = files.iter().map(File::listed).collect();
        let list = format!(r#"{{"id": "{REPO}", "sha": "{COMMIT}", "siblings": [{}]}}"#, siblings.join(", "));
        let log = Mutex::new(Log { n_match: vec![0; rules.len()], ..Log::default() });
        let shared = Arc::new(Shared {
            files,
            rules,
            list,
            log,
            sent_bytes: AtomicU64::new(0),
            gate_bytes: Mutex::new(u64::MAX),
            gate_moved: Condvar::new(),
            storage_port: storage.local_addr().unwrap().port(),
        });
        let port = hub.local_addr().unwrap().port();
        for (listener, is_storage) in [(hub, false), (storage, true)] {
            let shared = shared.clone();
            thread::spawn(move || {
                for stream in listener.incoming().flatten() {
                    let shared = shared.clone();
                    // A client that goes away is no failure of the server.
                    thread::spawn(move || shared.serve(stream, is_storage));
                }
            });
        }
        Self { shared, port }
    }

    pub(crate) fn url(&self) -> String {
        format!("http://127.0.0.1:{}", self.port)
    }

    pub(crate) fn seen(&self) -> Vec<Seen> {
        self.shared.log.lock().unwrap().seen.clone()
    }

    /// Requests for bytes of a file.
    pub(crate) fn gets(&self, name: &str) -> Vec<Seen> {
        self.seen().into_iter().filter(|seen| seen.method == "GET" && seen.path.contains(name)).collect()
    }

    pub(crate) fn sent_bytes(&self) -> u64 {
        self.shared.sent_bytes.load(Ordering::SeqCst)
    }

    /// Bytes that were sent more than once, all files together.
    pub(crate) fn twice_bytes(&self) -> u64 {
        let log = self.shared.log.lock().unwrap();
        let twice = |ranges: &Vec<Range<u64>>| {
            let mut sorted = ranges.clone();
            sorted.sort_by_key(|range| range.start);
            let (mut end, mut twice) = (0, 0);
            for range in sorted {
                twice += range.end.min(end).saturating_sub(range.start);
                end = end.max(range.end);
            }
            twice
        };
        log.sent.values().map(twice).sum()
    }

    /// From now on no more than `bytes` are sent in all.
    pub(crate) fn set_gate(&self, bytes: u64) {
        *self.shared.gate_bytes.lock().unwrap() = bytes;
        self.shared.gate_moved.notify_all();
    }
}

impl Shared {
    fn serve(&self, stream: TcpStream, is_storage: bool) -> std::io::Result<()> {
        let mut reader = BufReader::new(stream.try_clone()?);
        let mut out = stream;
        while let Some(seen) = read_request(&mut reader, is_storage)? {
            let act = self.note(&seen);
            if !self.answer(&seen, act, &mut out)? {
                break;
            }
        }
        out.shutdown(std::net::Shutdown::Both)
    }

    /// Remembers a request; says what to do.
    fn note(&self, seen: &Seen) -> Option<Act> {
        let mut log = self.log.lock().unwrap();
        log.seen.push(seen.clone());
        let mut act = None;
        for (i, rule) in self.rules.iter().enumerate() {
            let text = format!("{} {}", seen.method, seen.path);
            if text.contains(rule.path) {
                let n = log.n_match[i];
                log.n_match[i] += 1;
                if rule.times.contains(&n) && act.is_none() {
                    act = Some(rule.act.clone());
                }
            }
        }
        act
    }

    /// Answers; `false` ends the connection.
    fn answer(&self, seen: &Seen, act: Option<Act>, out: &mut TcpStream) -> std::io::Result<bool> {
        match &act {
            Some(Act::Hang) => return Ok(false),
            Some(Act::Refuse(status, headers, body)) => {
                write!(out, "HTTP/1.1 {status} No\r\nContent-Length: {}\r\n", body.len())?;
                headers.iter().try_for_each(|(name, value)| write!(out, "{name}: {value}\r\n"))?;
                let body = if seen.method == "HEAD" { "" } else { body };
                write!(out, "\r\n{body}")?;
                return Ok(true);
            }
            Some(Act::RedirectTo(target)) => {
                let target = target.replace('%', &self.storage_port.to_string());
                write!(out, "HTTP/1.1 302 Found\r\nLocation: {target}\r\nContent-Length: 0\r\n\r\n")?;
                return Ok(true);
            }
            Some(Act::Json(json)) => return json_answer(json, out),
            _ => {}
        }
        if seen.path.starts_with(&format!("/api/models/{REPO}/revision/")) {
            return json_answer(&self.list, out);
        }
        let name = seen.path.strip_prefix(&format!("/{REPO}/resolve/{COMMIT}/"));
        let name = name.or_else(|| seen.path.strip_prefix("/storage/")).map(|n| n.split('?').next().unwrap());
        let Some(file) = self.files.iter().find(|file| Some(file.name.as_str()) == name) else {
            write!(
                out,
                "HTTP/1.1 404 Not Found\r\nX-Error-Code: EntryNotFound\r\nContent-Length: 0\r\n\r\n"
            )?;
            return Ok(true);
        };
        if matches!(act, Some(Act::Redirect)) {
            let (port, name, bytes) = (self.storage_port, &file.name, file.bytes);
            write!(
                out,
                "HTTP/1.1 302 Found\r\nLocation: http://127.0.0.1:{port}/storage/{name}?Signature=secret\r\n\
                 X-Linked-Size: {bytes}\r\nX-Linked-ETag: \"{}\"\r\nContent-Length: 0\r\n\r\n",
                file.sha256()
            )?;
            return Ok(true);
        }
        self.send(file, seen, act, out)
    }

    /// The file, or a part of it.
    fn send(&self, file: &File, seen: &Seen, act: Option<Act>, out: &mut TcpStream) -> std::io::Result<bool> {
        let asked = seen.range.clone().filter(|_| !matches!(act, Some(Act::IgnoreRange | Act::Unsized)));
        let mut range = asked.clone().unwrap_or(0..file.bytes);
        range.end = range.end.min(file.bytes);
        let mut total = file.bytes;
        match act {
            Some(Act::OtherRange) => range.start += 1,
            Some(Act::OtherTotal) => total += 1,
            _ => {}
        }
        match asked {
            Some(_) if range.start >= range.end => {
                write!(out, "HTTP/1.1 416 No\r\nContent-Length: 0\r\n\r\n")?;
                return Ok(true);
            }
            Some(_) => {
                let (start, last) = (range.start, range.end - 1);
                write!(out, "HTTP/1.1 206 Partial\r\nContent-Range: bytes {start}-{last}/{total}\r\n")?;
            }
            None => write!(out, "HTTP/1.1 200 OK\r\n")?,
        }
        let off = if let Some(Act::Length(off)) = act { off } else { 0 };
        let has_length = match act {
            Some(Act::NoLength | Act::Unsized) => false,
            Some(Act::BareHead) => seen.method != "HEAD",
            _ => true,
        };
        if has_length {
            write!(out, "Content-Length: {}\r\n", (range.end - range.start) as i64 + off)?;
        }
        write!(out, "\r\n")?;
        if seen.method == "HEAD" {
            return Ok(true);
        }
        let end = match act {
            Some(Act::Drop(after) | Act::Stall(after)) => range.end.min(range.start + after),
            _ => range.end,
        };
        let mut at = range.start;
        while at < end {
            let next = end.min(at + PIECE_BYTES);
            self.pass_gate(next - at);
            let mut bytes = file.content(at..next);
            if matches!(act, Some(Act::WrongBytes)) {
                bytes.iter_mut().for_each(|b| *b ^= 0x55);
            }
            out.write_all(&bytes)?;
            self.log.lock().unwrap().sent.entry(file.name.clone()).or_default().push(at..next);
            at = next;
        }
        if matches!(act, Some(Act::Stall(_))) {
            // Until the client goes away: it has nothing more to say.
            return out.read(&mut [0]).map(|_| false);
        }
        Ok(end == range.end && !matches!(act, Some(Act::NoLength | Act::Unsized | Act::Length(_))))
    }

    /// Waits until so many more bytes may be sent.
    fn pass_gate(&self, bytes: u64) {
        let mut gate_bytes = self.gate_bytes.lock().unwrap();
        while self.sent_bytes.load(Ordering::SeqCst) + bytes > *gate_bytes {
            gate_bytes = self.gate_moved.wait(gate_bytes).unwrap();
        }
        self.sent_bytes.fetch_add(bytes, Ordering::SeqCst);
    }
}

fn json_answer(json: &str, out: &mut TcpStream) -> std::io::Result<bool> {
    write!(out, "HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{json}", json.len())?;
    Ok(true)
}

/// One request; `None` at the end of the connection.
fn read_request(reader: &mut impl BufRead, is_storage: bool) -> std::io::Result<Option<Seen>> {
    let mut lines = Vec::new();
    loop {
        let mut line = String::new();
        if reader.read_line(&mut line)? == 0 {
            return Ok(None);
        }
        match line.trim_end() {
            "" => break,
            text => lines.push(text.to_owned()),
        }
    }
    let mut first = lines[0].split(' ');
    let (method, path) = (first.next().unwrap().to_owned(), first.next().unwrap().to_owned());
    let header = |name: &str| {
        let found = lines.iter().filter_map(|line| line.split_once(": "));
        found.clone().find(|(n, _)| n.eq_ignore_ascii_case(name)).map(|(_, value)| value.to_owned())
    };
    let range = header("range").map(|text| {
        let (start, last) = text.strip_prefix("bytes=").unwrap().split_once('-').unwrap();
        start.parse().unwrap()..last.parse::<u64>().unwrap() + 1
    });
    Ok(Some(Seen { is_storage, method, path, range, authorization: header("authorization") }))
}
