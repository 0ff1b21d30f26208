//! The cache and its folder: what is written, what is removed from it, and what it tells.

use std::collections::HashMap;
use std::time::SystemTime;

use crate::tree::{Held, OnDisk, Tree, Use};
use crate::value::{self, Gain, Place};
use crate::{Disk, Entry, Identity, Key, Part};

/// A checkpoint that is not marked as likely is written if it is so many tokens behind the nearest one that is written:
/// reading fewer again costs less than writing a state.
const WRITE_GAP_MIN: usize = 256;

/// A file takes at most so much more than the ids and blocks that are in it: for its header, and for each block.
const HEADER_BYTES: u64 = store::RECORD_ALIGN as u64 + 256;
const BLOCK_EXTRA_BYTES: u64 = store::RECORD_ALIGN as u64 + 16;

/// A folder, and what of it has no place in the tree.
pub(crate) struct Shelf {
    pub(crate) disk: Disk,
    /// By the node that they go on from, which is not there: perhaps another program has yet to write it.
    strays: HashMap<Key, Vec<Entry>>,
    pub(crate) read_bytes: u64,
    written_bytes: u64,
}

impl Shelf {
    pub(crate) fn new(disk: Disk) -> Self {
        Self { disk, strays: HashMap::new(), read_bytes: 0, written_bytes: 0 }
    }

    pub(crate) fn written_bytes(&self) -> u64 {
        self.written_bytes
    }

    /// Takes note of what the writing thread did.
    pub(crate) fn sync(&mut self, tree: &mut Tree, identity: &Identity) {
        for (key, part, bytes) in self.disk.take_written() {
            self.written_bytes += bytes;
            if let Some(node) = tree.get_mut(key)
                && (part == Part::Kv || bytes == state_bytes(identity, node.has_logits))
            {
                node.part_mut(part).on_disk = OnDisk::Written(bytes);
            }
        }
        for (key, part) in self.disk.take_failed() {
            self.gone(tree, key, part);
        }
    }

    /// A part is not on the disk any more.
    fn gone(&mut self, tree: &mut Tree, key: Key, part: Part) {
        match tree.get_mut(key) {
            Some(node) => node.part_mut(part).on_disk = OnDisk::No,
            None => {
                for entry in self.strays.values_mut().flatten().filter(|entry| entry.key == key) {
                    match part {
                        Part::Kv => entry.kv_bytes = None,
                        Part::State => entry.state_bytes = None,
                    }
                }
            }
        }
    }

    /// Removes a part, which cannot be read or is worth too little.
    pub(crate) fn remove(&mut self, tree: &mut Tree, key: Key, part: Part) {
        self.disk.remove(key, part);
        self.gone(tree, key, part);
    }

    /// Gives entries their places in the tree.
    pub(crate) fn attach(&mut self, tree: &mut Tree, identity: &Identity, entries: Vec<Entry>) {
        let mut open = entries;
        while let Some(entry) = open.pop() {
            let Some(parent) = tree.get(entry.parent) else {
                let strays = self.strays.entry(entry.parent).or_default();
                strays.retain(|stray| stray.key != entry.key);
                strays.push(entry);
                continue;
            };
            if entry.ids.is_empty()
                || parent.end() != entry.start
                || entry.parent.child(&entry.ids) != entry.key
            {
                continue;
            }
            let used = Use { n_prompt: 0, at: entry.last_use };
            let key = tree.add(entry.parent, &entry.ids, used);
            note(tree, identity, &entry);
            open.extend(self.strays.remove(&key).unwrap_or_default());
        }
    }

    /// A node came to the tree: strays may go on from it.
    pub(crate) fn adopt(&mut self, tree: &mut Tree, identity: &Identity, key: Key) {
        if let Some(strays) = self.strays.remove(&key) {
            self.attach(tree, identity, strays);
        }
    }

    /// Takes note of what other programs did, and removes what is too old or too much.
    pub(crate) fn tidy(&mut self, tree: &mut Tree, identity: &Identity, now: Use) {
        let changes = self.disk.rescan();
        self.attach(tree, identity, changes.added);
        for (key, part) in changes.removed.into_iter().chain(self.disk.expire()) {
            self.gone(tree, key, part);
        }
        let mut excess_bytes = self.drop_strays(0);
        if excess_bytes > 0 {
            for worth in value::survey(tree, Place::Disk, &[], now) {
                if excess_bytes == 0 {
                    break;
                }
                self.remove(tree, worth.key, worth.part);
                excess_bytes = excess_bytes.saturating_sub(worth.bytes);
            }
        }
    }

    /// Removes strays until `more_bytes` have room; bytes that are still missing.
    fn drop_strays(&mut self, more_bytes: u64) -> u64 {
        loop {
            let excess_bytes = self.disk.excess_bytes(more_bytes);
            let Some(&parent) = self.strays.keys().next().filter(|_| excess_bytes > 0) else {
                return excess_bytes;
            };
            for stray in self.strays.remove(&parent).unwrap_or_default() {
                self.disk.remove(stray.key, Part::Kv);
                self.disk.remove(stray.key, Part::State);
            }
        }
    }

    /// Has the last node of `path` written, and before it what is missing of the keys and values on the way.
    pub(crate) fn write(&mut self, tree: &mut Tree, path: &[Key], now: Use) {
        let Some((&last, before)) = path.split_last() else { return };
        let on_its_way = |held: &Held| held.on_disk != OnDisk::No;
        let whole = before.iter().take_while(|key| on_its_way(&tree.node(**key).kv));
        let written = whole.map(|key| tree.node(*key)).filter(|node| on_its_way(&node.state));
        let base = written.last().map_or(0, |node| node.end());
        let node = tree.node(last);
        if node.end() - base < WRITE_GAP_MIN && node.likelihood <= 1.0 {
            return;
        }
        let parts = path.iter().map(|key| (*key, Part::Kv)).chain([(last, Part::State)]);
        let parts: Vec<(Key, Part)> =
            parts.filter(|(key, part)| !on_its_way(tree.node(*key).part(*part))).collect();
        if parts.is_empty() || parts.iter().any(|(key, part)| tree.node(*key).part(*part).blocks().is_none())
        {
            return;
        }
        let of_kind = |kind| {
            let parts = parts.iter().filter(move |(_, part)| *part == kind);
            parts.map(|(key, part)| file_bytes(tree, *key, *part)).sum()
        };
        let value = (node.end() - base) as f64 * value::weight(node, now);
        let gain = Gain { kv_bytes: of_kind(Part::Kv), state_bytes: of_kind(Part::State), value };
        if !self.make_room(tree, gain, path, now) {
            return;
        }
        for (key, part) in parts {
            let node = tree.node(key);
            let blocks = node.part(part).blocks().unwrap_or_default().to_vec();
            if !self.disk.write(&entry(key, tree), part, blocks) {
                return;
            }
            tree.node_mut(key).part_mut(part).on_disk = OnDisk::Waiting;
        }
    }

    /// Removes files that are worth less than `gain`; false: nothing was removed, and there is no
    /// room. If there is nothing to remove, it is the disk's business to say so.
    fn make_room(&mut self, tree: &mut Tree, gain: Gain, path: &[Key], now: Use) -> bool {
        let excess_bytes = self.drop_strays(gain.bytes());
        if excess_bytes == 0 {
            return true;
        }
        let parts = value::survey(tree, Place::Disk, path, now);
        if parts.is_empty() {
            return true;
        }
        let spared = |key, part| part == Part::Kv && path.contains(&key);
        let Some(going) = value::victims(tree, &parts, excess_bytes, gain, &spared) else { return false };
        for (key, part) in going {
            self.remove(tree, key, part);
        }
        true
    }

    /// Says that nodes were used.
    pub(crate) fn touch(&self, path: &[Key]) {
        for key in path {
            self.disk.touch(*key);
        }
    }
}

/// What a state has in bytes.
pub(crate) fn state_bytes(identity: &Identity, has_logits: bool) -> u64 {
    let shape = identity.shape;
    (shape.state_bytes + if has_logits { shape.logits_bytes } else { 0 }) as u64
}

/// Takes note of what the disk has of a node.
fn note(tree: &mut Tree, identity: &Identity, entry: &Entry) {
    let node = tree.get_mut(entry.key).expect("it was just added");
    if let Some(bytes) = entry.kv_bytes {
        node.kv.on_disk = OnDisk::Written(bytes);
    }
    let Some(bytes) = entry.state_bytes else { return };
    if !node.state.is_there() {
        node.has_logits = bytes == state_bytes(identity, true);
    }
    // Another program may have written it with logits, or without.
    if bytes == state_bytes(identity, node.has_logits) {
        node.state.on_disk = OnDisk::Written(bytes);
    }
}

fn entry(key: Key, tree: &Tree) -> Entry {
    let node = tree.node(key);
    Entry {
        key,
        parent: node.parent,
        start: node.start,
        ids: node.ids.clone(),
        kv_bytes: None,
        state_bytes: None,
        last_use: SystemTime::now(),
    }
}

/// What a part's file takes, at most.
fn file_bytes(tree: &Tree, key: Key, part: Part) -> u64 {
    let node = tree.node(key);
    let held = node.part(part);
    let n_block = held.blocks().map_or(0, |blocks| blocks.len() as u64);
    HEADER_BYTES + 4 * node.ids.len() as u64 + n_block * BLOCK_EXTRA_BYTES + held.memory_bytes()
}
