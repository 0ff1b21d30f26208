//! One file on its way: written block by block in any order, hashed in order as far as it is complete.

use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use xxhash_rust::xxh3::{Xxh3, xxh3_64};

use crate::HubError;
use crate::digest::{Digest, Hasher};
use crate::journal::Journal;

/// An unfinished file with its journal.
#[derive(Debug)]
pub(crate) struct Part {
    path: PathBuf,
    file: File,
    bytes: u64,
    block_bytes: u64,
    expected: Option<Digest>,
    blocks: Mutex<Blocks>,
    following: Mutex<Following>,
}

#[derive(Debug)]
struct Blocks {
    is_done: Vec<bool>,
    journal: Journal,
}

/// The digest of the first blocks.
#[derive(Debug)]
struct Following {
    hasher: Hasher,
    n_block: usize,
}

/// The journal of the part file at `path`.
pub(crate) fn journal_path(path: &Path) -> PathBuf {
    path.with_added_extension("journal")
}

/// What the journal of a file with these properties begins with.
pub(crate) fn key(bytes: u64, block_bytes: u64, identity: &str) -> String {
    format!("{bytes} {block_bytes} {identity}")
}

/// Bytes that an earlier, unfinished download has, as its journal says.
pub(crate) fn journaled_bytes(path: &Path, bytes: u64, block_bytes: u64, identity: &str) -> u64 {
    if !fs::metadata(path).is_ok_and(|meta| meta.len() == bytes) {
        return 0;
    }
    let blocks = Journal::peek(&journal_path(path), &key(bytes, block_bytes, identity));
    let len = |block: &u64| bytes.saturating_sub(block.saturating_mul(block_bytes)).min(block_bytes);
    blocks.keys().map(len).sum()
}

impl Part {
    /// Opens the part file, with all the room that it will need. Blocks of an earlier run that are as its journal says
    /// are kept; `identity` tells the downloads of different contents apart.
    pub(crate) fn open(
        path: &Path,
        bytes: u64,
        block_bytes: u64,
        identity: &str,
        expected: Option<Digest>,
    ) -> Result<Self, HubError> {
        for path in [path, &journal_path(path)] {
            refuse_link(path)?;
        }
        let (journal, listed) = Journal::open(&journal_path(path), &key(bytes, block_bytes, identity))?;
        let is_new = !fs::metadata(path).is_ok_and(|meta| meta.len() == bytes);
        store::allocate(path, bytes).map_err(|e| match (e.kind(), store::free_bytes(path)) {
            (ErrorKind::StorageFull, Some(free_bytes)) => {
                HubError::DiskFull { path: path.to_owned(), needed_bytes: bytes, free_bytes }
            }
            _ => HubError::io(path, "make room for it")(e),
        })?;
        let file =
            OpenOptions::new().read(true).write(true).open(path).map_err(HubError::io(path, "open"))?;
        let n_block = usize::try_from(bytes.div_ceil(block_bytes)).expect("the size of a file is bounded");
        let part = Self {
            path: path.to_owned(),
            file,
            bytes,
            block_bytes,
            following: Mutex::new(Following { hasher: Hasher::new(expected.as_ref(), bytes), n_block: 0 }),
            expected,
            blocks: Mutex::new(Blocks { is_done: vec![false; n_block], journal }),
        };
        if !is_new {
            part.keep(listed)?;
        }
        Ok(part)
    }

    /// Keeps the listed blocks whose bytes are as they were.
    fn keep(&self, listed: impl IntoIterator<Item = (u64, u64)>) -> Result<(), HubError> {
        let mut buffer = Vec::new();
        for (block, xxh3) in listed {
            let Some(range) = self.range_of(block) else { continue };
            self.read(range, &mut buffer)?;
            if xxh3_64(&buffer) == xxh3 {
                self.blocks().is_done[block as usize] = true;
            }
        }
        Ok(())
    }

    /// Bytes of a block that exists.
    fn range_of(&self, block: u64) -> Option<Range<u64>> {
        let start = block.checked_mul(self.block_bytes).filter(|&start| start < self.bytes)?;
        Some(start..self.bytes.min(start + self.block_bytes))
    }

    fn read(&self, range: Range<u64>, out: &mut Vec<u8>) -> Result<(), HubError> {
        out.resize((range.end - range.start) as usize, 0);
        store::read_exact_at(&self.file, out, range.start).map_err(HubError::io(&self.path, "read"))
    }

    fn blocks(&self) -> MutexGuard<'_, Blocks> {
        self.blocks.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Bytes that are there.
    pub(crate) fn done_bytes(&self) -> u64 {
        let blocks = self.blocks();
        let done = blocks.is_done.iter().enumerate().filter(|(_, is_done)| **is_done);
        done.filter_map(|(block, _)| self.range_of(block as u64)).map(|range| range.end - range.start).sum()
    }

    /// Runs of missing blocks, none longer than `span_bytes` (or than a block).
    pub(crate) fn missing(&self, span_bytes: u64) -> Vec<Range<u64>> {
        let mut spans: Vec<Range<u64>> = Vec::new();
        for (block, is_done) in self.blocks().is_done.iter().enumerate() {
            let Some(range) = self.range_of(block as u64).filter(|_| !is_done) else { continue };
            match spans.last_mut() {
                Some(last) if last.end == range.start && range.end - last.start <= span_bytes => {
                    last.end = range.end;
                }
                _ => spans.push(range),
            }
        }
        spans
    }

    /// Forgets everything.
    pub(crate) fn start_over(&self) -> Result<(), HubError> {
        let mut blocks = self.blocks();
        blocks.is_done.fill(false);
        blocks.journal.start()?;
        let mut following = self.following.lock().unwrap_or_else(PoisonError::into_inner);
        *following = Following { hasher: Hasher::new(self.expected.as_ref(), self.bytes), n_block: 0 };
        Ok(())
    }

    /// Starts to write `span`, which begins at a block.
    pub(crate) fn write(&self, span: Range<u64>) -> Writing<'_> {
        assert!(span.start.is_multiple_of(self.block_bytes), "a span begins at a block");
        Writing { part: self, at: span.start, span, hash: Xxh3::new() }
    }

    /// Adds complete blocks to the digest, unless another thread is at it.
    fn follow(&self) -> Result<(), HubError> {
        match self.following.try_lock() {
            Ok(mut following) => self.advance(&mut following),
            Err(_) => Ok(()),
        }
    }

    fn advance(&self, following: &mut Following) -> Result<(), HubError> {
        let mut buffer = Vec::new();
        while self.blocks().is_done.get(following.n_block) == Some(&true) {
            let range = self.range_of(following.n_block as u64).expect("a block of the file");
            self.read(range, &mut buffer)?;
            following.hasher.update(&buffer);
            following.n_block += 1;
        }
        Ok(())
    }

    /// The digest of the complete file, which is on the disk after this.
    pub(crate) fn finish(&self) -> Result<Digest, HubError> {
        let mut following = self.following.lock().unwrap_or_else(PoisonError::into_inner);
        self.advance(&mut following)?;
        assert_eq!(following.n_block, self.blocks().is_done.len(), "all blocks of {}", self.path.display());
        store::sync_file(&self.path).map_err(HubError::io(&self.path, "flush"))?;
        Ok(following.hasher.clone().finish())
    }

    /// Removes file and journal.
    pub(crate) fn discard(&self) {
        for path in [&self.path, &journal_path(&self.path)] {
            // What cannot be removed is checked before it is used again.
            let _ = fs::remove_file(path);
        }
    }
}

/// A link would be followed to wherever it leads.
pub(crate) fn refuse_link(path: &Path) -> Result<(), HubError> {
    if path.is_symlink() {
        let source = io::Error::other("it is a link to somewhere else: remove it");
        return Err(HubError::Io { path: path.to_owned(), action: "write", source });
    }
    Ok(())
}

/// A span that is being written, in order.
pub(crate) struct Writing<'a> {
    part: &'a Part,
    span: Range<u64>,
    at: u64,
    /// Of the bytes of the current block.
    hash: Xxh3,
}

impl Writing<'_> {
    /// What is still missing.
    pub(crate) fn left(&self) -> Range<u64> {
        self.at..self.span.end
    }

    /// Begins again at the start of the span.
    pub(crate) fn restart(&mut self) {
        self.at = self.span.start;
        self.hash.reset();
    }

    /// Writes the next bytes, which do not go beyond the span.
    pub(crate) fn put(&mut self, mut bytes: &[u8]) -> Result<(), HubError> {
        let part = self.part;
        while !bytes.is_empty() {
            let block = self.at / part.block_bytes;
            let end = self.span.end.min((block + 1) * part.block_bytes);
            let (now, later) = bytes.split_at(bytes.len().min((end - self.at) as usize));
            store::write_all_at(&part.file, now, self.at).map_err(HubError::io(&part.path, "write"))?;
            self.hash.update(now);
            self.at += now.len() as u64;
            if self.at == end {
                let mut blocks = part.blocks();
                blocks.journal.append(block, self.hash.digest())?;
                blocks.is_done[block as usize] = true;
                drop(blocks);
                self.hash.reset();
                part.follow()?;
            }
            bytes = later;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn content(bytes: usize) -> Vec<u8> {
        (0..bytes).map(|i| (i * 31 % 251) as u8).collect()
    }

    /// Blocks would be lost, trusted when damaged, or added to the digest in the wrong order.
    #[test]
    fn a_part_is_resumed_and_checked() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("m.part");
        let content = content(1050);
        let digest = {
            let mut hasher = Hasher::new(None, 1050);
            hasher.update(&content);
            hasher.finish()
        };
        let open = || Part::open(&path, 1050, 100, "x", None).unwrap();
        let part = open();
        assert_eq!(part.missing(300), [0..300, 300..600, 600..900, 900..1050]);
        // The last span first, and half a block that a kill would lose.
        part.write(900..1050).put(&content[900..]).unwrap();
        part.write(0..300).put(&content[..250]).unwrap();
        assert_eq!(part.done_bytes(), 350);
        drop(part);
        assert_eq!(journaled_bytes(&path, 1050, 100, "x"), 350);
        assert_eq!(journaled_bytes(&path, 1050, 100, "y"), 0);
        // A block that the system lost.
        let file = OpenOptions::new().write(true).open(&path).unwrap();
        store::write_all_at(&file, b"!", 105).unwrap();
        let part = open();
        let missing = part.missing(10_000);
        assert!(missing.len() == 1 && missing[0] == (100..900), "{missing:?}");
        let mut writing = part.write(100..900);
        for piece in content[100..900].chunks(33) {
            writing.put(piece).unwrap();
        }
        assert!(writing.left().is_empty());
        assert_eq!(part.finish().unwrap(), digest);
        assert_eq!(fs::read(&path).unwrap(), content);
        part.start_over().unwrap();
        assert_eq!(part.done_bytes(), 0);
    }

    /// An empty file would never be finished.
    #[test]
    fn an_empty_file_is_complete() {
        let folder = tempfile::tempdir().unwrap();
        let part = Part::open(&folder.path().join("m.part"), 0, 100, "x", None).unwrap();
        assert!(part.missing(100).is_empty());
        assert_eq!(part.finish().unwrap(), Hasher::new(None, 0).finish());
    }
}
