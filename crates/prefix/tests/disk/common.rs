//! Small checkpoints whose bytes follow from their keys.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use prefix::{Disk, DiskLimits, Entry, Identity, Key, Part, Shape};

pub(crate) const SHAPE: Shape = Shape { kv_token_bytes: 96, state_bytes: 50_000, logits_bytes: 400 };
pub(crate) const PARTS: [Part; 2] = [Part::Kv, Part::State];
/// Tokens whose keys and values are one block.
const N_BLOCK_IDS: usize = 256;

pub(crate) fn limits() -> DiskLimits {
    DiskLimits {
        size_bytes: u64::MAX,
        daily_write_bytes: u64::MAX,
        expiry: Duration::from_secs(1000),
        free_bytes: 0,
    }
}

pub(crate) fn identity(n: u64) -> Identity {
    Identity { fingerprint: n, settings: "as usual".into(), model: format!("model {n}"), shape: SHAPE }
}

/// The `n`-th child of `parent`, with `n_ids` tokens of its own.
pub(crate) fn child(parent: Key, start: usize, n: u32, n_ids: usize) -> Entry {
    let ids: Vec<u32> = (0..n_ids as u32).map(|i| n * 1000 + i).collect();
    let kv_bytes = Some((n_ids * SHAPE.kv_token_bytes) as u64);
    let state_bytes = Some(SHAPE.state_bytes as u64);
    let last_use = SystemTime::UNIX_EPOCH;
    Entry { key: parent.child(&ids), parent, start, ids, kv_bytes, state_bytes, last_use }
}

/// `n` nodes, each the child of the one before.
pub(crate) fn chain(identity: &Identity, n: u32) -> Vec<Entry> {
    let (mut parent, mut start, mut nodes) = (identity.root(), 0, Vec::new());
    for i in 0..n {
        let node = child(parent, start, i, 300 + i as usize % 7);
        (parent, start) = (node.key, start + node.ids.len());
        nodes.push(node);
    }
    nodes
}

/// What a part has: xorshift from its key.
pub(crate) fn bytes(entry: &Entry, part: Part) -> Vec<u8> {
    let n = match part {
        Part::Kv => entry.kv_bytes,
        Part::State => entry.state_bytes,
    };
    let mut random = u64::from_le_bytes(entry.key.to_bytes()[..8].try_into().unwrap()) | 1;
    if part == Part::State {
        random ^= 0x5555_5555_5555_5555;
    }
    let mut bytes = Vec::new();
    while (bytes.len() as u64) < n.unwrap_or(0) {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        bytes.extend(random.to_le_bytes());
    }
    bytes.truncate(n.unwrap_or(0) as usize);
    bytes
}

pub(crate) fn blocks(entry: &Entry, part: Part) -> Vec<Arc<[u8]>> {
    let bytes = bytes(entry, part);
    let block_bytes = if part == Part::Kv { N_BLOCK_IDS * SHAPE.kv_token_bytes } else { bytes.len().max(1) };
    bytes.chunks(block_bytes).map(Arc::from).collect()
}

/// Has both parts written, and waits for them.
pub(crate) fn put(disk: &Disk, entry: &Entry) {
    for part in PARTS {
        assert!(disk.write(entry, part, blocks(entry, part)), "{:?}", disk.take_warnings());
    }
    disk.flush();
}

/// Is the part there, with the bytes that were written?
pub(crate) fn is_right(disk: &Disk, entry: &Entry, part: Part) -> Result<(), String> {
    let mut read = Vec::new();
    let n = disk.read(entry.key, part, &mut |block| {
        read.extend_from_slice(block);
        Ok(())
    })?;
    assert_eq!(n, read.len() as u64);
    assert!(read == bytes(entry, part), "{part:?} of {} has wrong bytes", entry.key.hex());
    Ok(())
}

/// Are both?
pub(crate) fn assert_right(disk: &Disk, entry: &Entry) {
    PARTS.iter().for_each(|&part| is_right(disk, entry, part).unwrap());
}

/// What was found, but for the times, in the order of positions.
pub(crate) fn timeless(mut entries: Vec<Entry>) -> Vec<Entry> {
    entries.iter_mut().for_each(|entry| entry.last_use = SystemTime::UNIX_EPOCH);
    entries.sort_by_key(|entry| (entry.start, entry.key));
    entries
}

pub(crate) fn folder(root: &Path, identity: &Identity) -> PathBuf {
    root.join(identity.root().hex())
}

pub(crate) fn path(root: &Path, identity: &Identity, key: Key, part: Part) -> PathBuf {
    let extension = if part == Part::Kv { "kv" } else { "state" };
    folder(root, identity).join(format!("{}.{extension}", key.hex()))
}

/// Makes a file look as if it was used so many seconds ago.
pub(crate) fn age(path: &Path, secs: u64) {
    let file = fs::File::options().write(true).open(path).unwrap();
    file.set_modified(SystemTime::now() - Duration::from_secs(secs)).unwrap();
}
