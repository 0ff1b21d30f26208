//! Bringing a session to a checkpoint: keys and values from the root down, the state last.

use std::ops::Range;
use std::sync::Arc;

use crate::cache::{Cache, Timeline};
use crate::on_disk::state_bytes;
use crate::value::Gain;
use crate::{Key, Part};

/// Why a checkpoint could not be taken up.
pub(crate) enum Failure {
    /// The session is of no use any more.
    Timeline(String),
    /// The disk does not give what it should have.
    Disk { key: Key, part: Part, why: String },
}

/// A session on its way to a checkpoint.
pub(crate) struct Restoring<'a> {
    timeline: &'a mut dyn Timeline,
    /// It has keys and values of so many tokens: fewer, once some were replaced by what may prove damaged.
    pub(crate) n_held: usize,
    /// Tokens before the checkpoint.
    n_token: usize,
    pub(crate) read_bytes: u64,
    state: Vec<u8>,
    /// What the session said when it failed.
    refused: Option<String>,
}

/// A part on its way from the disk, in pieces.
struct Incoming {
    /// Bytes and positions of its blocks of keys and values; empty for a state.
    blocks: Vec<(usize, Range<usize>)>,
    n_done: usize,
    begun: Vec<u8>,
    /// For memory, if there is room.
    kept: Option<Vec<Arc<[u8]>>>,
}

impl Cache {
    /// Goes on behind `ids`, which lead to `node` or, where there are no states, into it; without a node the session
    /// has their keys and values.
    pub(crate) fn restore(
        &mut self,
        node: Option<Key>,
        ids: &[u32],
        needs_logits: bool,
        restoring: &mut Restoring<'_>,
    ) -> Result<(), Failure> {
        restoring.state.clear();
        restoring.n_token = ids.len();
        if let Some(key) = node {
            self.restore_node(key, ids.len(), restoring)?;
            let has_logits = restoring.state.len() as u64 == state_bytes(&self.identity, true);
            if needs_logits && !has_logits {
                self.tree.node_mut(key).has_logits = false;
                return Err(Failure::Disk { key, part: Part::State, why: "its logits are not there".into() });
            }
        }
        restoring.timeline.resume(ids, &restoring.state).map_err(Failure::Timeline)
    }

    fn restore_node(
        &mut self,
        key: Key,
        n_token: usize,
        restoring: &mut Restoring<'_>,
    ) -> Result<(), Failure> {
        let path = self.tree.path(key);
        let lacking = path.iter().filter(|at| self.tree.node(**at).end() > restoring.n_held);
        let node = self.tree.node(key);
        let state = (node.end() == n_token && node.state.is_there()).then_some((key, Part::State));
        let parts: Vec<(Key, Part)> = lacking.map(|at| (*at, Part::Kv)).chain(state).collect();
        let is_in_memory =
            |cache: &Self, (key, part): (Key, Part)| cache.tree.node(key).part(part).blocks().is_some();
        let mut rest = &parts[..];
        while let Some(&first) = rest.first() {
            let n = if is_in_memory(self, first) {
                self.restore_from_memory(first, restoring)?;
                1
            } else {
                // One after the other, they are read as one stream.
                let n = rest.iter().take_while(|part| !is_in_memory(self, **part)).count();
                self.restore_from_disk(&rest[..n], &path, restoring)?;
                n
            };
            rest = &rest[n..];
        }
        Ok(())
    }

    fn restore_from_memory(
        &self,
        (key, part): (Key, Part),
        restoring: &mut Restoring<'_>,
    ) -> Result<(), Failure> {
        let node = self.tree.node(key);
        let held = node.part(part).blocks().unwrap_or_default();
        match part {
            Part::Kv => {
                let mut blocks = self.block_positions(node.start..node.end()).zip(held);
                blocks.try_for_each(|(at, block)| restoring.write_kv(at, block)).map_err(Failure::Timeline)
            }
            Part::State => {
                held.iter().for_each(|block| restoring.state.extend_from_slice(block));
                Ok(())
            }
        }
    }

    fn restore_from_disk(
        &mut self,
        parts: &[(Key, Part)],
        path: &[Key],
        restoring: &mut Restoring<'_>,
    ) -> Result<(), Failure> {
        let mut incoming = self.expect(parts, path);
        let failure = |idx: usize, why| {
            let (key, part): (Key, Part) = parts[idx];
            Failure::Disk { key, part, why }
        };
        let Some(shelf) = &mut self.shelf else { return Err(failure(0, "there is no disk".into())) };
        let read = shelf.disk.read_parts(parts, &mut |idx, piece| incoming[idx].take(piece, restoring));
        let read_bytes = read.map_err(|(idx, why)| match restoring.refused.take() {
            Some(refused) => Failure::Timeline(refused),
            None => failure(idx, why),
        })?;
        restoring.read_bytes += read_bytes;
        shelf.read_bytes += read_bytes;
        for (idx, (incoming, (key, part))) in incoming.into_iter().zip(parts).enumerate() {
            let is_whole = match part {
                Part::Kv => incoming.n_done == incoming.blocks.len(),
                Part::State => {
                    let n_byte = restoring.state.len() as u64;
                    [false, true].iter().any(|logits| n_byte == state_bytes(&self.identity, *logits))
                }
            };
            if !is_whole {
                return Err(failure(idx, OTHER_SIZES.into()));
            }
            if let Some(kept) = incoming.kept {
                self.tree.put(*key, *part, kept);
            }
        }
        Ok(())
    }

    /// Gets ready for what the disk gives. It is kept in memory as far as there is room that is worth nothing: what
    /// lies there is on the disk too, and was not used for longest.
    fn expect(&mut self, parts: &[(Key, Part)], path: &[Key]) -> Vec<Incoming> {
        let mut kept_bytes = 0;
        let mut incoming = Vec::with_capacity(parts.len());
        for &(key, part) in parts {
            let node = self.tree.node(key);
            let token_bytes = self.identity.shape.kv_token_bytes;
            let (blocks, n_byte) = match part {
                Part::Kv => {
                    let blocks = self.block_positions(node.start..node.end());
                    (
                        blocks.map(|at| (at.len() * token_bytes, at)).collect(),
                        (node.ids.len() * token_bytes) as u64,
                    )
                }
                Part::State => (Vec::new(), state_bytes(&self.identity, true)),
            };
            let gain = Gain { kv_bytes: kept_bytes, state_bytes: n_byte, value: 0.0 };
            let stays = self.make_room(gain, path, &|key, _| path.contains(&key));
            kept_bytes += if stays { n_byte } else { 0 };
            incoming.push(Incoming { blocks, n_done: 0, begun: Vec::new(), kept: stays.then(Vec::new) });
        }
        incoming
    }
}

const OTHER_SIZES: &str = "its blocks are of other sizes than they should be";

impl<'a> Restoring<'a> {
    pub(crate) fn new(timeline: &'a mut dyn Timeline, n_held: usize) -> Self {
        Self { timeline, n_held, n_token: 0, read_bytes: 0, state: Vec::new(), refused: None }
    }

    /// A block cannot be cut, as its layout is by layer: what is written twice is of the same tokens.
    fn write_kv(&mut self, positions: Range<usize>, block: &[u8]) -> Result<(), String> {
        if positions.end <= self.n_held || self.n_token <= positions.start {
            return Ok(());
        }
        self.n_held = self.n_held.min(positions.start);
        self.timeline.write_kv(positions, block).inspect_err(|why| self.refused = Some(why.clone()))
    }
}

impl Incoming {
    /// Takes a piece of a block in, and hands the block on when it is whole.
    fn take(&mut self, piece: &[u8], restoring: &mut Restoring<'_>) -> Result<(), String> {
        if self.blocks.is_empty() {
            restoring.state.extend_from_slice(piece);
            self.keep(piece);
            return Ok(());
        }
        let Some((block_bytes, positions)) = self.blocks.get(self.n_done).cloned() else {
            return Err(OTHER_SIZES.into());
        };
        let begun_bytes = self.begun.len() + piece.len();
        if begun_bytes > block_bytes {
            return Err(OTHER_SIZES.into());
        }
        if begun_bytes < block_bytes || !self.begun.is_empty() {
            self.begun.extend_from_slice(piece);
        }
        if begun_bytes == block_bytes {
            self.n_done += 1;
            let begun = std::mem::take(&mut self.begun);
            let block = if begun.is_empty() { piece } else { &begun };
            restoring.write_kv(positions, block)?;
            self.keep(block);
        }
        Ok(())
    }

    fn keep(&mut self, block: &[u8]) {
        if let Some(kept) = &mut self.kept {
            kept.push(Arc::from(block));
        }
    }
}
