//! The tree of checkpoints: what is kept, what is found, what goes.

use std::ops::Range;
use std::sync::Arc;
use std::time::SystemTime;

use crate::on_disk::Shelf;
use crate::restore::{Failure, Restoring};
use crate::tree::{Found, OnDisk, Tree, Use};
use crate::value::{Gain, Place};
use crate::{Disk, Entry, Identity, Key, Part, Shape, value};

/// Positions in a block of keys and values, at most.
const BLOCK_POSITIONS: usize = 256;

/// Bytes of a block, at most; one position is never cut.
const BLOCK_BYTES: usize = 8 << 20;

/// Kept ids that tell where a prompt differs.
const N_DIFFERING: usize = 8;

/// Likelihoods are cut to this.
const LIKELIHOOD_MAX: f32 = 64.0;

/// Warnings that wait to be taken, at most.
const N_WARNING_MAX: usize = 64;

/// A session as the cache sees it.
pub trait Timeline {
    /// Copies keys and values of `positions` to `out`, for each layer that has them those of all positions, as they
    /// are stored: [`crate::Shape::kv_token_bytes`] a position in all.
    ///
    /// # Errors
    /// The device has failed.
    fn read_kv(&self, positions: Range<usize>, out: &mut [u8]) -> Result<(), String>;

    /// Replaces keys and values of `positions` by `bytes`, as [`Self::read_kv`] gives them; those behind the session's
    /// context are left out. The session can then only go on by [`Self::resume`].
    ///
    /// # Errors
    /// The device has failed.
    fn write_kv(&mut self, positions: Range<usize>, bytes: &[u8]) -> Result<(), String>;

    /// Stands behind `ids`, whose keys and values are there, with the recurrent state and, if it has them, the logits
    /// of `state`.
    ///
    /// # Errors
    /// The device has failed, or `state` is not of this model.
    fn resume(&mut self, ids: &[u32], state: &[u8]) -> Result<(), String>;
}

/// Everything that is kept.
pub struct Cache {
    pub(crate) identity: Identity,
    pub(crate) tree: Tree,
    pub(crate) shelf: Option<Shelf>,
    memory_limit_bytes: u64,
    /// Prompts so far: [`Cache::load`] is called once for each.
    n_prompt: u64,
    n_hit: u64,
    n_miss: u64,
    n_evicted: u64,
    warnings: Vec<String>,
}

/// What is handed in to be kept.
pub struct Checkpoint<'a> {
    /// All tokens before it.
    pub ids: &'a [u32],
    /// The recurrent state there, then logits or nothing: see [`crate::Shape`].
    pub state: Vec<u8>,
    /// How likely it is that somebody comes back to it, 1 being usual.
    pub likelihood: f32,
}

/// What became of a checkpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kept {
    /// It is in memory, and on its way to the disk if there is one.
    Stored,
    /// It was there already.
    Known,
    /// It is worth less than what it would push out, or has no room at all.
    NoRoom,
}

/// What is there for a prompt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lookup {
    /// Leading tokens of the prompt that need not be fed: there is a checkpoint behind them. 0: none.
    pub n_reusable: usize,
    /// Leading tokens of the prompt that somebody fed before, as far as the tree knows.
    pub n_matched: usize,
    /// Why it is not more; `None` if it is all, or all but the last token.
    pub missing: Option<Missing>,
}

/// Why no more of a prompt can be reused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Missing {
    /// Nothing was kept yet.
    Empty,
    /// What is kept goes on in another way at [`Lookup::n_matched`]: with these tokens, a few of them.
    Differs {
        /// What is kept.
        kept: Vec<u32>,
    },
    /// What is kept ends at [`Lookup::n_matched`]; the prompt goes on.
    Ends,
    /// The checkpoint that was there had to go.
    Evicted,
    /// It is on the disk, but cannot be used.
    Damaged,
}

/// What was taken up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Loaded {
    /// Tokens that need not be fed. 0: nothing, and the session is not to be used.
    pub n_reused: usize,
    /// Bytes that came from the disk.
    pub read_bytes: u64,
}

/// What there is, and what it did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CacheStats {
    /// Checkpoints that can be used.
    pub n_checkpoint: usize,
    /// Bytes in memory.
    pub memory_bytes: u64,
    /// Most bytes in memory.
    pub memory_limit_bytes: u64,
    /// Bytes on the disk.
    pub disk_bytes: u64,
    /// Prompts that found a checkpoint.
    pub n_hit: u64,
    /// Prompts that found none.
    pub n_miss: u64,
    /// Checkpoints that went out of memory and are not on the disk.
    pub n_evicted: u64,
    /// Bytes read back from the disk.
    pub read_bytes: u64,
    /// Bytes written to the disk.
    pub written_bytes: u64,
}

impl Cache {
    /// Empty, and in memory only. Blocks of at most `memory_bytes` are held; token ids come on top.
    pub fn new(identity: Identity, memory_bytes: u64) -> Self {
        let tree = Tree::new(identity.root());
        Self {
            identity,
            tree,
            shelf: None,
            memory_limit_bytes: memory_bytes,
            n_prompt: 0,
            n_hit: 0,
            n_miss: 0,
            n_evicted: 0,
            warnings: Vec::new(),
        }
    }

    /// With what [`Disk::open`] found. What is kept passes through memory on its way there.
    pub fn with_disk(mut self, disk: Disk, entries: Vec<Entry>) -> Self {
        let mut shelf = Shelf::new(disk);
        shelf.attach(&mut self.tree, &self.identity, entries);
        self.shelf = Some(shelf);
        self
    }

    /// Whose checkpoints these are.
    pub fn identity(&self) -> &Identity {
        &self.identity
    }

    /// The best checkpoint for `prompt`. The session that will go on has keys and values of its first `n_held` tokens.
    /// Changes nothing, so it may be asked for several sessions.
    pub fn find(&self, prompt: &[u32], n_held: usize) -> Lookup {
        let found = self.search(prompt, n_held);
        let missing = self.missing(&found, prompt.len());
        Lookup { n_reusable: found.n_reusable, n_matched: found.n_matched, missing }
    }

    fn search(&self, prompt: &[u32], n_held: usize) -> Found {
        self.tree.search(prompt, n_held, self.identity.shape.state_bytes == 0)
    }

    fn missing(&self, found: &Found, n_token: usize) -> Option<Missing> {
        if found.n_reusable + 1 >= n_token {
            return None;
        }
        if self.tree.is_empty() {
            return Some(Missing::Empty);
        }
        if let Some(gone) = found.gone {
            let is_damaged = self.tree.path(gone).iter().any(|key| self.tree.node(*key).is_damaged);
            return Some(if is_damaged { Missing::Damaged } else { Missing::Evicted });
        }
        Some(match found.goes_on {
            None => Missing::Ends,
            Some((key, n_common)) => {
                let kept = self.tree.node(key).ids[n_common..].iter().take(N_DIFFERING).copied().collect();
                Missing::Differs { kept }
            }
        })
    }

    /// Brings `timeline` to the best checkpoint for `prompt`; if that cannot be read, to the next best. It has keys and
    /// values of the first `n_held` tokens already. To be called once for each prompt that no session simply goes on
    /// with: what is kept ages by it.
    pub fn load(&mut self, prompt: &[u32], n_held: usize, timeline: &mut dyn Timeline) -> Loaded {
        self.sync();
        self.n_prompt += 1;
        let mut restoring = Restoring::new(timeline, n_held);
        // Each round that fails takes a part from the disk.
        loop {
            let Found { node, n_reusable, .. } = self.search(prompt, restoring.n_held);
            if n_reusable == 0 {
                break;
            }
            let needs_logits = n_reusable == prompt.len();
            match self.restore(node, &prompt[..n_reusable], needs_logits, &mut restoring) {
                Ok(()) => {
                    self.n_hit += 1;
                    node.into_iter().for_each(|key| self.used(key));
                    return Loaded { n_reused: n_reusable, read_bytes: restoring.read_bytes };
                }
                Err(Failure::Timeline(why)) => {
                    self.warn(format!(
                        "prefix cache: a session cannot take a prefix up, and computes it again: {why}"
                    ));
                    break;
                }
                Err(Failure::Disk { key, part, why }) => self.damaged(key, part, &why),
            }
        }
        self.n_miss += 1;
        Loaded { n_reused: 0, read_bytes: restoring.read_bytes }
    }

    /// Somebody goes on from `key`.
    fn used(&mut self, key: Key) {
        let now = self.now();
        let node = self.tree.node_mut(key);
        node.last_use = now;
        node.n_hit = node.n_hit.saturating_add(1);
        if let Some(shelf) = &self.shelf {
            shelf.touch(&self.tree.path(key));
        }
    }

    /// A part on the disk cannot be used: it goes, and the user is told.
    fn damaged(&mut self, key: Key, part: Part, why: &str) {
        if let Some(shelf) = &mut self.shelf {
            shelf.remove(&mut self.tree, key, part);
        }
        self.tree.node_mut(key).is_damaged = true;
        self.warn(format!("prefix cache: {why}: it is removed, and its tokens are computed again"));
    }

    /// Keeps a checkpoint of `timeline`, which was fed its ids and perhaps more. What is missing of the keys and values
    /// before it is filled in on the way.
    pub fn keep(&mut self, checkpoint: Checkpoint<'_>, timeline: &dyn Timeline) -> Kept {
        let Checkpoint { ids, state, likelihood } = checkpoint;
        let Shape { state_bytes, logits_bytes, .. } = self.identity.shape;
        let has_logits = state.len() == state_bytes + logits_bytes;
        if ids.is_empty() || !(has_logits || state.len() == state_bytes) {
            let (n_token, n_byte) = (ids.len(), state.len());
            self.warn(format!(
                "a checkpoint behind {n_token} tokens is not kept: its state has {n_byte} bytes, not {state_bytes}, \
                 or {logits_bytes} more with logits"
            ));
            return Kept::NoRoom;
        }
        self.sync();
        let now = self.now();
        let parent = self.tree.deepest(ids);
        let n_known = self.tree.node(parent).end();
        let is_new = n_known < ids.len();
        let key = if is_new { self.tree.add(parent, &ids[n_known..], now) } else { parent };
        let node = self.tree.node_mut(key);
        let likelihood = if likelihood.is_finite() { likelihood.clamp(0.0, LIKELIHOOD_MAX) } else { 1.0 };
        node.last_use = now;
        node.likelihood = if is_new { likelihood } else { node.likelihood.max(likelihood) };
        let adds_logits = has_logits && !node.has_logits && !node.state.is_pinned();
        let state = (!node.state.is_there() || adds_logits).then_some(state);
        let path = self.tree.path(key);
        let kept = self.fill(&path, state, has_logits, timeline, now);
        if kept == Kept::NoRoom {
            if is_new {
                self.tree.remove(key);
            }
            return kept;
        }
        if let Some(shelf) = &mut self.shelf {
            shelf.adopt(&mut self.tree, &self.identity, key);
            shelf.touch(&path);
        }
        self.count_lost(|cache| {
            if let Some(shelf) = &mut cache.shelf {
                shelf.write(&mut cache.tree, &path, now);
            }
        });
        kept
    }

    /// Gives the last node of `path` a state, and keys and values to all on it that have none.
    fn fill(
        &mut self,
        path: &[Key],
        state: Option<Vec<u8>>,
        has_logits: bool,
        timeline: &dyn Timeline,
        now: Use,
    ) -> Kept {
        let Some(&key) = path.last() else { return Kept::NoRoom };
        let without: Vec<Key> =
            path.iter().copied().filter(|at| !self.tree.node(*at).kv.is_there()).collect();
        if state.is_none() && without.is_empty() {
            return Kept::Known;
        }
        let n_token: usize = without.iter().map(|at| self.tree.node(*at).ids.len()).sum();
        let kv_bytes = (n_token * self.identity.shape.kv_token_bytes) as u64;
        let state_bytes = state.as_ref().map_or(0, Vec::len) as u64;
        let node = self.tree.node(key);
        let value = (node.end() - value::base(&self.tree, path)) as f64 * value::weight(node, now);
        let spared = |key, part| part == Part::Kv && path.contains(&key);
        if self.make_room(Gain { kv_bytes, state_bytes, value }, path, &spared) {
            if let Err(why) = self.read_kv(&without, timeline) {
                self.warn(format!(
                    "prefix cache: a checkpoint is not kept, its keys and values cannot be read: {why}"
                ));
                return Kept::NoRoom;
            }
        } else {
            let alone = Gain { kv_bytes: 0, state_bytes, value: value * value::ALONE };
            if state.is_none() || !self.make_room(alone, path, &spared) {
                return Kept::NoRoom;
            }
        }
        if let Some(state) = state {
            if let Some(shelf) = &mut self.shelf
                && self.tree.node(key).state.on_disk != OnDisk::No
            {
                shelf.remove(&mut self.tree, key, Part::State);
            }
            self.tree.put(key, Part::State, blocks_of(&state));
            self.tree.node_mut(key).has_logits = has_logits;
        }
        self.tree.node_mut(key).is_damaged = false;
        Kept::Stored
    }

    /// Has keys and values of the nodes `without` them copied.
    fn read_kv(&mut self, without: &[Key], timeline: &dyn Timeline) -> Result<(), String> {
        for &key in without {
            let node = self.tree.node(key);
            let mut blocks = Vec::new();
            for positions in self.block_positions(node.start..node.end()) {
                let n_byte = positions.len() * self.identity.shape.kv_token_bytes;
                let mut block: Arc<[u8]> = std::iter::repeat_n(0, n_byte).collect();
                timeline.read_kv(positions, Arc::get_mut(&mut block).expect("nobody else has it yet"))?;
                blocks.push(block);
            }
            self.tree.put(key, Part::Kv, blocks);
        }
        Ok(())
    }

    /// Lets go of what is worth less than `gain`, at the end of `path`, and is not `spared`; false: nothing went, there
    /// is no room.
    pub(crate) fn make_room(&mut self, gain: Gain, path: &[Key], spared: &dyn Fn(Key, Part) -> bool) -> bool {
        let planned_bytes = self.tree.memory_bytes().saturating_add(gain.bytes());
        let over_bytes = planned_bytes.saturating_sub(self.memory_limit_bytes);
        if over_bytes == 0 {
            return true;
        }
        if gain.bytes() > self.memory_limit_bytes {
            return false;
        }
        let parts = value::survey(&self.tree, Place::Memory, path, self.now());
        let Some(going) = value::victims(&self.tree, &parts, over_bytes, gain, spared) else { return false };
        self.count_lost(|cache| going.iter().for_each(|(key, part)| cache.tree.drop_memory(*key, *part)));
        true
    }

    /// Does what may cost checkpoints, and counts them.
    fn count_lost(&mut self, act: impl FnOnce(&mut Self)) {
        let n_before = value::n_checkpoint(&self.tree);
        act(self);
        self.n_evicted += n_before.saturating_sub(value::n_checkpoint(&self.tree)) as u64;
    }

    /// What there is now.
    pub fn stats(&self) -> CacheStats {
        let shelf = self.shelf.as_ref();
        CacheStats {
            n_checkpoint: value::n_checkpoint(&self.tree),
            memory_bytes: self.tree.memory_bytes(),
            memory_limit_bytes: self.memory_limit_bytes,
            disk_bytes: shelf.map_or(0, |shelf| shelf.disk.used_bytes()),
            n_hit: self.n_hit,
            n_miss: self.n_miss,
            n_evicted: self.n_evicted,
            read_bytes: shelf.map_or(0, |shelf| shelf.read_bytes),
            written_bytes: shelf.map_or(0, Shelf::written_bytes),
        }
    }

    /// What a user should know of, in whole sentences; each is told once.
    pub fn take_warnings(&mut self) -> Vec<String> {
        let mut warnings = std::mem::take(&mut self.warnings);
        warnings.extend(self.shelf.iter().flat_map(|shelf| shelf.disk.take_warnings()));
        warnings
    }

    /// Nothing is to be done: a moment to drop what is too old and to see what other programs put into the folder.
    pub fn pause(&mut self) {
        let now = self.now();
        self.sync();
        if let Some(shelf) = &mut self.shelf {
            shelf.tidy(&mut self.tree, &self.identity, now);
        }
        self.tree.prune();
    }

    /// Waits until everything is on the disk that is on its way there.
    pub fn flush(&mut self) {
        if let Some(shelf) = &self.shelf {
            shelf.disk.flush();
        }
        self.sync();
    }

    /// Takes note of what happened meanwhile. Nothing else forgets nodes, so that what is known of them holds.
    fn sync(&mut self) {
        if let Some(shelf) = &mut self.shelf {
            shelf.sync(&mut self.tree, &self.identity);
        }
        self.tree.prune();
    }

    fn now(&self) -> Use {
        Use { n_prompt: self.n_prompt, at: SystemTime::now() }
    }

    fn warn(&mut self, text: String) {
        if self.warnings.len() < N_WARNING_MAX {
            self.warnings.push(text);
        }
    }

    /// The blocks of keys and values of `positions`.
    pub(crate) fn block_positions(
        &self,
        positions: Range<usize>,
    ) -> impl Iterator<Item = Range<usize>> + use<> {
        block_positions(self.identity.shape, positions)
    }
}

/// The blocks that keys and values of a node's `positions` are cut into.
pub(crate) fn block_positions(
    shape: Shape,
    positions: Range<usize>,
) -> impl Iterator<Item = Range<usize>> + use<> {
    let Range { start, end } = positions;
    let n = (BLOCK_BYTES / shape.kv_token_bytes.max(1)).clamp(1, BLOCK_POSITIONS);
    (start..end).step_by(n).map(move |at| at..(at + n).min(end))
}

fn blocks_of(state: &[u8]) -> Vec<Arc<[u8]>> {
    state.chunks(BLOCK_BYTES).map(Arc::from).collect()
}
