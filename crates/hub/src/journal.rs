//! The list of finished blocks beside an unfinished download: what a killed one need not fetch again.
//!
//! One line a block with its checksum, appended after the block was written. Nothing here is trusted on resume: blocks
//! are read again and compared, so neither the journal nor the data has to be made durable on the way, and a power cut
//! costs no more than what the system had not written yet.

use std::collections::BTreeMap;
use std::fs::{File, OpenOptions, TryLockError};
use std::io::{self, ErrorKind, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use crate::HubError;

const HEADER: &str = "flash-moe-pull 1 ";

/// No journal of ours is longer: a line for each block of the largest file.
const JOURNAL_BYTES_MAX: u64 = 1 << 30;

/// The open journal. It is locked: two processes cannot write the same file.
#[derive(Debug)]
pub(crate) struct Journal {
    path: PathBuf,
    file: File,
    key: String,
}

impl Journal {
    /// Opens or creates the journal of the download `key`, and returns the blocks (number and xxh3) that it lists. The
    /// journal of another download is emptied.
    pub(crate) fn open(path: &Path, key: &str) -> Result<(Self, BTreeMap<u64, u64>), HubError> {
        let open = OpenOptions::new().read(true).write(true).create(true).truncate(false).open(path);
        let file = open.map_err(HubError::io(path, "open"))?;
        if let Err(TryLockError::WouldBlock) = file.try_lock() {
            let source = io::Error::new(ErrorKind::WouldBlock, "another process is downloading this file");
            return Err(HubError::Io { path: path.to_owned(), action: "lock", source });
        } // Where locks do not exist (some network folders) we do without.
        let mut journal = Self { path: path.to_owned(), file, key: key.to_owned() };
        let mut bytes = Vec::new();
        let mut limited = (&journal.file).take(JOURNAL_BYTES_MAX);
        limited.read_to_end(&mut bytes).map_err(HubError::io(path, "read"))?;
        match parse(&bytes, key) {
            Some((blocks, valid_bytes)) => {
                journal.cut(valid_bytes as u64).map_err(HubError::io(path, "shorten"))?;
                Ok((journal, blocks))
            }
            None => {
                journal.start()?;
                Ok((journal, BTreeMap::new()))
            }
        }
    }

    /// The blocks that the journal at `path` lists, without opening it for writing.
    pub(crate) fn peek(path: &Path, key: &str) -> BTreeMap<u64, u64> {
        let mut bytes = Vec::new();
        let read = File::open(path).and_then(|file| file.take(JOURNAL_BYTES_MAX).read_to_end(&mut bytes));
        read.ok().and_then(|_| parse(&bytes, key)).map(|(blocks, _)| blocks).unwrap_or_default()
    }

    /// Forgets all blocks.
    pub(crate) fn start(&mut self) -> Result<(), HubError> {
        let header = format!("{HEADER}{}\n", self.key);
        let restarted = self.cut(0).and_then(|()| self.file.write_all(header.as_bytes()));
        restarted.map_err(HubError::io(&self.path, "write"))
    }

    /// Adds a block.
    pub(crate) fn append(&mut self, block: u64, xxh3: u64) -> Result<(), HubError> {
        let line = format!("{block} {xxh3:016x}\n");
        self.file.write_all(line.as_bytes()).map_err(HubError::io(&self.path, "write"))
    }

    /// What is written next comes after the first `bytes`, which are left.
    fn cut(&mut self, bytes: u64) -> io::Result<()> {
        self.file.set_len(bytes)?;
        self.file.seek(SeekFrom::Start(bytes)).map(drop)
    }
}

/// Reads lines until the first that is torn or garbled; also says how many bytes are good.
fn parse(bytes: &[u8], key: &str) -> Option<(BTreeMap<u64, u64>, usize)> {
    let header = format!("{HEADER}{key}\n");
    let lines = bytes.strip_prefix(header.as_bytes())?.split_inclusive(|&b| b == b'\n');
    let (mut blocks, mut valid_bytes) = (BTreeMap::new(), header.len());
    for line in lines {
        let Some((block, xxh3)) = parse_line(line) else { break };
        blocks.insert(block, xxh3);
        valid_bytes += line.len();
    }
    Some((blocks, valid_bytes))
}

fn parse_line(line: &[u8]) -> Option<(u64, u64)> {
    let line = std::str::from_utf8(line.strip_suffix(b"\n")?).ok()?;
    let (block, xxh3) = line.split_once(' ')?;
    let is_hex = xxh3.len() == 16 && xxh3.bytes().all(|b| b.is_ascii_hexdigit());
    is_hex.then(|| Some((block.parse().ok()?, u64::from_str_radix(xxh3, 16).ok()?)))?
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    /// A torn line would be taken for a block, blocks of another file for ours, or what comes next be lost.
    #[test]
    fn journals_survive_a_kill() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("x.part.journal");
        let (mut journal, blocks) = Journal::open(&path, "one").unwrap();
        assert!(blocks.is_empty());
        journal.append(7, 1).unwrap();
        journal.append(3, u64::MAX).unwrap();
        assert!(Journal::open(&path, "one").unwrap_err().to_string().contains("another process"));
        drop(journal);
        let whole = fs::read(&path).unwrap();
        for cut in 0..=whole.len() {
            fs::write(&path, &whole[..cut]).unwrap();
            let (mut journal, blocks) = Journal::open(&path, "one").unwrap();
            assert!(
                blocks.iter().all(|pair| [(&7, &1), (&3, &u64::MAX)].contains(&pair)),
                "{cut}: {blocks:?}"
            );
            assert!(cut < whole.len() || blocks.len() == 2);
            journal.append(9, 5).unwrap();
            drop(journal);
            assert_eq!(Journal::peek(&path, "one").get(&9), Some(&5), "{cut}");
        }
        assert!(Journal::peek(&path, "two").is_empty());
        assert!(Journal::open(&path, "two").unwrap().1.is_empty());
    }
}
