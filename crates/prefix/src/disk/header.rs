//! The first bytes of a file: which part of which node it is, and where its blocks are.
//!
//! ```text
//!   0  "FMPREFIX"                 8 bytes
//!   8  version, part              u32 each; part 0: keys and values, 1: state
//!  16  identity, key, parent      16 bytes each
//!  64  start                      u64: tokens before the node's own
//!  72  n_ids, n_blocks            u32 each
//!  80  ids                        u32 each
//!      blocks                     bytes: u64, xxh3 of them: u64
//!      zeros
//!      xxh3 of all of the above   the last 8 bytes of the header, which is a multiple of 16384 long
//!      blocks                     each padded with zeros to a multiple of 16384
//! ```
//!
//! All numbers are little-endian. What is read is hostile: bounded before anything is allocated, and compared with the
//! name, the size of the file and what the identity says about sizes.

use std::io::{self, Write};

use xxhash_rust::xxh3::xxh3_64;

use super::{Entry, Part};
use crate::{Key, Shape};

/// Blocks and the header begin at multiples of this, so that they can be read past the page cache.
pub(super) const ALIGN: u64 = store::RECORD_ALIGN as u64;
/// Longest block: a reader has memory for a few of them.
pub(crate) const BLOCK_BYTES_MAX: usize = 8 << 20;

const MAGIC: [u8; 8] = *b"FMPREFIX";
const VERSION: u32 = 1;
/// Bytes before the ids.
pub(super) const PRELUDE_BYTES: usize = 80;
const ID_BYTES: usize = 4;
const BLOCK_ENTRY_BYTES: usize = 16;
const CHECKSUM_BYTES: usize = 8;
/// Most tokens of a node, and most blocks of a file: more than any context.
const N_IDS_MAX: usize = 1 << 24;
const N_BLOCKS_MAX: usize = 1 << 20;

/// A block of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Block {
    /// Without padding, 1 to 8 MiB.
    pub bytes: usize,
    /// Of these bytes.
    pub xxh3: u64,
}

impl Block {
    /// Of these bytes.
    pub(crate) fn of(bytes: &[u8]) -> Self {
        Self { bytes: bytes.len(), xxh3: xxh3_64(bytes) }
    }
}

/// What a file says about itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Header {
    /// Keys and values, or the state.
    pub part: Part,
    /// [`crate::Identity::root`] of whoever wrote it.
    pub root: Key,
    /// The node that this one goes on from.
    pub parent: Key,
    /// Tokens before the node's own.
    pub start: usize,
    /// The node's own tokens, at least one.
    pub ids: Vec<u32>,
    /// In order.
    pub blocks: Vec<Block>,
}

impl Header {
    /// The name of the node.
    pub fn key(&self) -> Key {
        self.parent.child(&self.ids)
    }

    /// Bytes of all blocks, without padding.
    pub fn payload_bytes(&self) -> u64 {
        self.blocks.iter().map(|block| block.bytes as u64).sum()
    }

    /// Bytes of the file.
    pub fn file_bytes(&self) -> u64 {
        let padded = |block: &Block| (block.bytes as u64).next_multiple_of(ALIGN);
        header_bytes(self.ids.len(), self.blocks.len()) + self.blocks.iter().map(padded).sum::<u64>()
    }

    /// Is it of a context that can be?
    pub(super) fn is_bounded(&self) -> bool {
        let end = self.start.checked_add(self.ids.len());
        let is_context = end.is_some_and(|end| end <= u32::MAX as usize);
        is_context && self.ids.len() <= N_IDS_MAX && self.blocks.len() <= N_BLOCKS_MAX
    }

    /// As a file has it.
    pub fn encode(&self) -> Vec<u8> {
        let Self { part, root, parent, start, ids, blocks } = self;
        let mut bytes = Vec::with_capacity(self.encoded_bytes() as usize);
        bytes.extend(MAGIC);
        bytes.extend(VERSION.to_le_bytes());
        bytes.extend(part.code().to_le_bytes());
        bytes.extend([*root, self.key(), *parent].iter().flat_map(|key| key.to_bytes()));
        bytes.extend((*start as u64).to_le_bytes());
        bytes.extend((ids.len() as u32).to_le_bytes());
        bytes.extend((blocks.len() as u32).to_le_bytes());
        bytes.extend(ids.iter().flat_map(|id| id.to_le_bytes()));
        for block in blocks {
            bytes.extend((block.bytes as u64).to_le_bytes());
            bytes.extend(block.xxh3.to_le_bytes());
        }
        bytes.resize(self.encoded_bytes() as usize - CHECKSUM_BYTES, 0);
        bytes.extend(xxh3_64(&bytes).to_le_bytes());
        bytes
    }

    /// Bytes of [`Self::encode`]: where the blocks begin.
    pub(super) fn encoded_bytes(&self) -> u64 {
        header_bytes(self.ids.len(), self.blocks.len())
    }

    /// How long the header is whose first bytes these are, in a file of `file_bytes`.
    ///
    /// # Errors
    /// They are not of a header of this version, or the file is too short for it.
    pub fn length(prelude: &[u8], file_bytes: u64) -> Result<u64, String> {
        let Some(prelude) = prelude.get(..PRELUDE_BYTES) else { return Err("ends within its header".into()) };
        if prelude[..8] != MAGIC {
            return Err("is not a file of the prefix cache".into());
        }
        let version = u32_at(prelude, 8);
        if version != VERSION {
            return Err(format!("has version {version}, this program reads version {VERSION}"));
        }
        let (n_ids, n_blocks) = (u32_at(prelude, 72) as usize, u32_at(prelude, 76) as usize);
        if n_ids == 0 || n_ids > N_IDS_MAX || n_blocks > N_BLOCKS_MAX {
            return Err(format!("claims {n_ids} tokens and {n_blocks} blocks"));
        }
        let bytes = header_bytes(n_ids, n_blocks);
        if bytes > file_bytes {
            return Err(format!("ends within its header of {bytes} bytes"));
        }
        Ok(bytes)
    }

    /// Reads what [`Self::encode`] made: `bytes` begin with it, the whole file has `file_bytes`.
    ///
    /// # Errors
    /// It is anything else; says what, for a message that begins with the file.
    pub fn decode(bytes: &[u8], file_bytes: u64) -> Result<Self, String> {
        let length = Self::length(bytes, file_bytes)?;
        let Some(bytes) = bytes.get(..length as usize) else { return Err("ends within its header".into()) };
        let (body, checksum) = bytes.split_at(bytes.len() - CHECKSUM_BYTES);
        if xxh3_64(body).to_le_bytes() != checksum {
            return Err("has a damaged header".into());
        }
        let (n_ids, n_blocks) = (u32_at(body, 72) as usize, u32_at(body, 76) as usize);
        let (ids, rest) = body[PRELUDE_BYTES..].split_at(ID_BYTES * n_ids);
        let (blocks, padding) = rest.split_at(BLOCK_ENTRY_BYTES * n_blocks);
        let header = Self {
            part: Part::from_code(u32_at(body, 12)).ok_or("is of a kind that is not known")?,
            root: key_at(body, 16),
            parent: key_at(body, 48),
            start: usize::try_from(u64_at(body, 64)).map_err(|_| "begins beyond any context")?,
            ids: ids.chunks_exact(ID_BYTES).map(|id| u32_at(id, 0)).collect(),
            blocks: blocks.chunks_exact(BLOCK_ENTRY_BYTES).map(block).collect::<Result<_, String>>()?,
        };
        if !header.is_bounded() {
            return Err("ends beyond any context".into());
        }
        if header.key() != key_at(body, 32) {
            return Err("has a key that is not of its tokens".into());
        }
        if padding.iter().any(|&byte| byte != 0) {
            return Err("has something behind its header".into());
        }
        if header.file_bytes() != file_bytes {
            return Err(format!("is {file_bytes} bytes, its header says {}", header.file_bytes()));
        }
        Ok(header)
    }

    /// Refuses what is not the part of the node that its name says, or has not the bytes that its model needs.
    pub(crate) fn check(&self, name: (Key, Part), root: Key, shape: Shape) -> Result<(), String> {
        if (self.key(), self.part) != name {
            return Err("is of another checkpoint than its name says".into());
        }
        if self.root != root {
            return Err("is of another model or other settings".into());
        }
        let bytes = self.payload_bytes();
        if !is_payload(self.part, self.ids.len(), bytes, shape) {
            return Err(format!("has {bytes} bytes, which its model does not have"));
        }
        Ok(())
    }

    /// The half of a node that the file is.
    pub(super) fn entry(self, last_use: std::time::SystemTime) -> Entry {
        let (key, bytes) = (self.key(), Some(self.payload_bytes()));
        let (kv_bytes, state_bytes) = match self.part {
            Part::Kv => (bytes, None),
            Part::State => (None, bytes),
        };
        Entry { key, parent: self.parent, start: self.start, ids: self.ids, kv_bytes, state_bytes, last_use }
    }
}

/// Can a part of a node with `n_ids` tokens of its own have so many bytes?
pub(super) fn is_payload(part: Part, n_ids: usize, bytes: u64, shape: Shape) -> bool {
    let Shape { kv_token_bytes, state_bytes, logits_bytes } = shape;
    match part {
        Part::Kv => (n_ids as u64).checked_mul(kv_token_bytes as u64) == Some(bytes),
        Part::State => {
            let with_logits = (state_bytes as u64).checked_add(logits_bytes as u64);
            bytes == state_bytes as u64 || Some(bytes) == with_logits
        }
    }
}

/// Writes a block as a file has it: zeros behind it.
pub(crate) fn write_block(out: &mut dyn Write, block: &[u8]) -> io::Result<()> {
    const ZEROS: [u8; ALIGN as usize] = [0; ALIGN as usize];
    out.write_all(block)?;
    out.write_all(&ZEROS[..padding_bytes(block.len())])
}

/// Zeros behind a block of so many bytes.
pub(crate) fn padding_bytes(block_bytes: usize) -> usize {
    block_bytes.next_multiple_of(ALIGN as usize) - block_bytes
}

fn header_bytes(n_ids: usize, n_blocks: usize) -> u64 {
    let bytes = PRELUDE_BYTES + ID_BYTES * n_ids + BLOCK_ENTRY_BYTES * n_blocks + CHECKSUM_BYTES;
    (bytes as u64).next_multiple_of(ALIGN)
}

fn block(entry: &[u8]) -> Result<Block, String> {
    let bytes = u64_at(entry, 0);
    let bounded = usize::try_from(bytes).ok().filter(|bytes| (1..=BLOCK_BYTES_MAX).contains(bytes));
    let bytes = bounded.ok_or_else(|| format!("has a block of {bytes} bytes"))?;
    Ok(Block { bytes, xxh3: u64_at(entry, 8) })
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(bytes[at..at + 4].try_into().expect("4 bytes"))
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(bytes[at..at + 8].try_into().expect("8 bytes"))
}

fn key_at(bytes: &[u8], at: usize) -> Key {
    Key::from_bytes(bytes[at..at + 16].try_into().expect("16 bytes"))
}
