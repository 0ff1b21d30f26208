//! The list of finished pieces in an unfinished store: what a killed `pack` need not do again.
//!
//! One line a piece, appended after the piece was written. Nothing here is trusted on resume: the pieces are read
//! again and compared, so that neither the journal nor the data has to be made durable on the way.

use std::collections::BTreeMap;
use std::fs::{File, OpenOptions, TryLockError};
use std::io::{self, ErrorKind, Read, Seek, SeekFrom, Write};
use std::path::PathBuf;

use crate::{StoreError, hash};

/// Starts the first line, which ends with the plan's hash.
const HEADER: &str = "flash-moe-journal 1 ";

/// A piece that is finished as a whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Piece {
    /// Dense tensor, by place in the plan.
    Dense(usize),
    /// Layer and expert.
    Expert(usize, usize),
}

/// The open journal. It is locked: two processes cannot write the same store.
#[derive(Debug)]
pub(crate) struct Journal {
    path: PathBuf,
    file: File,
}

impl Journal {
    /// Opens or creates the journal and locks it.
    pub(crate) fn open(path: PathBuf) -> Result<Self, StoreError> {
        let file = match OpenOptions::new().read(true).write(true).create(true).truncate(false).open(&path) {
            Ok(file) => file,
            Err(source) => return Err(StoreError::Io { path, action: "open", source }),
        };
        match file.try_lock() {
            Err(TryLockError::WouldBlock) => {
                let source = io::Error::new(ErrorKind::WouldBlock, "another process is writing this store");
                Err(StoreError::Io { path, action: "lock", source })
            }
            // Where locks do not exist (some network folders) we do without.
            Ok(()) | Err(TryLockError::Error(_)) => Ok(Self { path, file }),
        }
    }

    /// The finished pieces and their checksums, or `None` if this is not the journal of the plan with this hash. A
    /// torn last line is cut off.
    pub(crate) fn pieces(&mut self, plan_hash: u64) -> Result<Option<BTreeMap<Piece, u64>>, StoreError> {
        let mut bytes = Vec::new();
        self.file.read_to_end(&mut bytes).map_err(|e| self.error("read", e))?;
        let (pieces, valid_bytes) = parse(&bytes, plan_hash);
        cut(&mut self.file, valid_bytes as u64).map_err(|e| self.error("shorten", e))?;
        Ok(pieces)
    }

    /// Starts over for the plan with this hash.
    pub(crate) fn start(&mut self, plan_hash: u64) -> Result<(), StoreError> {
        let restart = |file: &mut File| {
            cut(file, 0)?;
            file.write_all(format!("{HEADER}{}\n", hash::to_hex(plan_hash)).as_bytes())
        };
        restart(&mut self.file).map_err(|e| self.error("write", e))
    }

    /// Adds a finished piece.
    pub(crate) fn append(&mut self, piece: Piece, xxh3: u64) -> io::Result<()> {
        let xxh3 = hash::to_hex(xxh3);
        let line = match piece {
            Piece::Dense(idx) => format!("dense {idx} {xxh3}\n"),
            Piece::Expert(layer, expert) => format!("expert {layer} {expert} {xxh3}\n"),
        };
        self.file.write_all(line.as_bytes())
    }

    fn error(&self, action: &'static str, source: io::Error) -> StoreError {
        StoreError::Io { path: self.path.clone(), action, source }
    }
}

/// What is written next comes after the first `bytes`, which are left.
fn cut(file: &mut File, bytes: u64) -> io::Result<()> {
    file.set_len(bytes)?;
    file.seek(SeekFrom::Start(bytes)).map(drop)
}

/// Reads lines until the first that is torn or garbled; also says how many bytes are good.
fn parse(bytes: &[u8], plan_hash: u64) -> (Option<BTreeMap<Piece, u64>>, usize) {
    let mut lines = bytes.split_inclusive(|&b| b == b'\n');
    let header = format!("{HEADER}{}\n", hash::to_hex(plan_hash));
    if lines.next() != Some(header.as_bytes()) {
        return (None, 0);
    }
    let mut pieces = BTreeMap::new();
    let mut valid_bytes = header.len();
    for line in lines {
        let Some((piece, xxh3)) = parse_line(line) else { break };
        // A piece that was damaged and written again is there twice: the last line counts.
        pieces.insert(piece, xxh3);
        valid_bytes += line.len();
    }
    (Some(pieces), valid_bytes)
}

fn parse_line(line: &[u8]) -> Option<(Piece, u64)> {
    let line = std::str::from_utf8(line.strip_suffix(b"\n")?).ok()?;
    let mut words = line.split(' ');
    let piece = match words.next()? {
        "dense" => Piece::Dense(words.next()?.parse().ok()?),
        "expert" => Piece::Expert(words.next()?.parse().ok()?, words.next()?.parse().ok()?),
        _ => return None,
    };
    let xxh3 = words.next().filter(|w| hash::is_hex(w) && words.next().is_none())?;
    Some((piece, u64::from_str_radix(xxh3, 16).ok()?))
}
