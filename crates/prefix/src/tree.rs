//! The tree of prefixes: nodes over token ids, what they hold, and the walk along a prompt.
//!
//! Children hang at a node's end, because a prompt can only go on from a state. Siblings may therefore begin alike:
//! what diverges in the middle of an edge is fed again from the node before, and is an edge of its own. A node is
//! there as long as it holds something or has children; a bounded number of bare ones stays, so that a prompt can be
//! told that its checkpoint is gone.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::SystemTime;

use crate::{Key, Part};

/// Bare nodes without children that are remembered.
const N_BARE_MAX: usize = 64;

/// When something was used: by the count of prompts, and by the clock.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Use {
    pub(crate) n_prompt: u64,
    pub(crate) at: SystemTime,
}

/// What the disk has of a part.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum OnDisk {
    #[default]
    No,
    /// The thread that writes has it.
    Waiting,
    /// So many bytes.
    Written(u64),
}

/// Half of a node: where its bytes are.
#[derive(Debug, Default)]
pub(crate) struct Held {
    blocks: Option<Vec<Arc<[u8]>>>,
    pub(crate) on_disk: OnDisk,
}

impl Held {
    pub(crate) fn blocks(&self) -> Option<&[Arc<[u8]>]> {
        self.blocks.as_deref()
    }

    pub(crate) fn memory_bytes(&self) -> u64 {
        self.blocks.iter().flatten().map(|block| block.len() as u64).sum()
    }

    pub(crate) fn is_written(&self) -> bool {
        matches!(self.on_disk, OnDisk::Written(_))
    }

    /// It can be loaded.
    pub(crate) fn is_there(&self) -> bool {
        self.blocks.is_some() || self.is_written()
    }

    /// The thread that writes still holds the bytes: dropping them here would free nothing.
    pub(crate) fn is_pinned(&self) -> bool {
        self.blocks.iter().flatten().any(|block| Arc::strong_count(block) > 1)
    }
}

/// A prefix.
#[derive(Debug)]
pub(crate) struct Node {
    pub(crate) parent: Key,
    /// Tokens before its own.
    pub(crate) start: usize,
    pub(crate) ids: Vec<u32>,
    pub(crate) children: Vec<Key>,
    pub(crate) kv: Held,
    pub(crate) state: Held,
    /// The state has logits behind it.
    pub(crate) has_logits: bool,
    pub(crate) last_use: Use,
    pub(crate) n_hit: u32,
    pub(crate) likelihood: f32,
    /// What the disk had of it could not be read.
    pub(crate) is_damaged: bool,
}

impl Node {
    pub(crate) fn end(&self) -> usize {
        self.start + self.ids.len()
    }

    pub(crate) fn part(&self, part: Part) -> &Held {
        match part {
            Part::Kv => &self.kv,
            Part::State => &self.state,
        }
    }

    pub(crate) fn part_mut(&mut self, part: Part) -> &mut Held {
        match part {
            Part::Kv => &mut self.kv,
            Part::State => &mut self.state,
        }
    }

    fn is_bare(&self) -> bool {
        self.children.is_empty() && !self.kv.is_there() && !self.state.is_there()
    }
}

/// All nodes. The root is the empty prefix; it holds nothing.
pub(crate) struct Tree {
    root: Key,
    nodes: HashMap<Key, Node>,
    memory_bytes: u64,
}

/// What a walk along a prompt came upon.
#[derive(Debug, Default)]
pub(crate) struct Found {
    /// The deepest node that can be gone on from; `None`: there is none, or the session itself has as much.
    pub(crate) node: Option<Key>,
    /// Its end, or without states a position in it.
    pub(crate) n_reusable: usize,
    /// The longest common beginning with anything.
    pub(crate) n_matched: usize,
    /// The edge that goes on at `n_matched` in another way, and where in it.
    pub(crate) goes_on: Option<(Key, usize)>,
    /// The deepest node on the way whose checkpoint is gone.
    pub(crate) gone: Option<Key>,
    n_gone: usize,
}

impl Tree {
    pub(crate) fn new(root: Key) -> Self {
        let start = Use { n_prompt: 0, at: SystemTime::UNIX_EPOCH };
        let mut tree = Self { root, nodes: HashMap::new(), memory_bytes: 0 };
        tree.nodes.insert(root, bare_node(root, 0, Vec::new(), start));
        tree
    }

    pub(crate) fn root(&self) -> Key {
        self.root
    }

    /// Bytes of all blocks that are held.
    pub(crate) fn memory_bytes(&self) -> u64 {
        self.memory_bytes
    }

    /// Nothing was ever kept.
    pub(crate) fn is_empty(&self) -> bool {
        self.nodes.len() == 1
    }

    pub(crate) fn get(&self, key: Key) -> Option<&Node> {
        self.nodes.get(&key)
    }

    pub(crate) fn get_mut(&mut self, key: Key) -> Option<&mut Node> {
        self.nodes.get_mut(&key)
    }

    /// A node that the tree itself named.
    pub(crate) fn node(&self, key: Key) -> &Node {
        self.nodes.get(&key).expect("nodes name only nodes that are there")
    }

    pub(crate) fn node_mut(&mut self, key: Key) -> &mut Node {
        self.nodes.get_mut(&key).expect("nodes name only nodes that are there")
    }

    /// Every node but the root, parents first.
    pub(crate) fn top_down(&self) -> Vec<Key> {
        let mut order = self.node(self.root).children.clone();
        let mut next = 0;
        while next < order.len() {
            order.extend_from_slice(&self.node(order[next]).children);
            next += 1;
        }
        order
    }

    /// The nodes from the root, which is left out, down to `key`.
    pub(crate) fn path(&self, key: Key) -> Vec<Key> {
        let mut path = Vec::new();
        let mut at = key;
        while at != self.root {
            path.push(at);
            at = self.node(at).parent;
        }
        path.reverse();
        path
    }

    /// Walks along `prompt`. Keys and values of its first `n_held` tokens need not be there. Without states
    /// (`is_stateless`) any position but the prompt's end can be gone on from.
    pub(crate) fn search(&self, prompt: &[u32], n_held: usize, is_stateless: bool) -> Found {
        let mut found = Found::default();
        if is_stateless {
            found.n_reusable = n_held.min(prompt.len().saturating_sub(1));
        }
        let mut open = vec![(self.root, true)];
        while let Some((key, is_whole)) = open.pop() {
            let node = self.node(key);
            let end = node.end();
            if key != self.root {
                let has_state = node.state.is_there();
                let goes = end < prompt.len() || (end == prompt.len() && node.has_logits);
                if is_whole && has_state && goes && end > found.n_reusable {
                    (found.node, found.n_reusable) = (Some(key), end);
                } else if !(is_whole && has_state) && end > found.n_gone {
                    (found.gone, found.n_gone) = (Some(key), end);
                }
            }
            for &child_key in &node.children {
                let child = self.node(child_key);
                let n_common = common(&child.ids, &prompt[end..]);
                let is_all = n_common == child.ids.len();
                let n_matched = end + n_common;
                let is_deeper = n_matched > found.n_matched;
                if is_deeper || (n_matched == found.n_matched && found.goes_on.is_none()) {
                    found.n_matched = n_matched;
                    found.goes_on = (!is_all).then_some((child_key, n_common));
                }
                let has_kv = is_whole && (child.end() <= n_held || child.kv.is_there());
                let n_common_max = n_matched.min(prompt.len().saturating_sub(1));
                if is_stateless && has_kv && found.n_reusable < n_common_max {
                    (found.node, found.n_reusable) = (Some(child_key), n_common_max);
                }
                if is_all {
                    open.push((child_key, has_kv));
                }
            }
        }
        if found.n_gone <= found.n_reusable {
            found.gone = None;
        }
        found
    }

    /// The deepest node whose whole path is a beginning of `ids`; of several the one that has most.
    pub(crate) fn deepest(&self, ids: &[u32]) -> Key {
        let mut best = (0, false, false);
        let mut deepest = self.root;
        let mut open = vec![(self.root, true)];
        while let Some((key, is_whole)) = open.pop() {
            let node = self.node(key);
            let rank = (node.end(), is_whole, node.state.is_there());
            if rank > best {
                (best, deepest) = (rank, key);
            }
            for &child_key in &node.children {
                let child = self.node(child_key);
                if ids[node.end()..].starts_with(&child.ids) {
                    open.push((child_key, is_whole && child.kv.is_there()));
                }
            }
        }
        deepest
    }

    /// Adds a node without bytes at the end of `parent`, unless it is there.
    pub(crate) fn add(&mut self, parent: Key, ids: &[u32], now: Use) -> Key {
        let key = parent.child(ids);
        if !self.nodes.contains_key(&key) {
            let start = self.node(parent).end();
            self.node_mut(parent).children.push(key);
            self.nodes.insert(key, bare_node(parent, start, ids.to_vec(), now));
        }
        key
    }

    /// Holds `blocks` in memory.
    pub(crate) fn put(&mut self, key: Key, part: Part, blocks: Vec<Arc<[u8]>>) {
        self.drop_memory(key, part);
        let held = self.node_mut(key).part_mut(part);
        held.blocks = Some(blocks);
        self.memory_bytes += held.memory_bytes();
    }

    /// Lets go of a part's bytes in memory.
    pub(crate) fn drop_memory(&mut self, key: Key, part: Part) {
        let held = self.nodes.get_mut(&key).expect("nodes name only nodes that are there").part_mut(part);
        self.memory_bytes -= held.memory_bytes();
        held.blocks = None;
    }

    /// Removes a node that nothing hangs on.
    pub(crate) fn remove(&mut self, key: Key) {
        for part in [Part::Kv, Part::State] {
            self.drop_memory(key, part);
        }
        let node = self.nodes.remove(&key).expect("nodes name only nodes that are there");
        debug_assert!(node.children.is_empty());
        self.node_mut(node.parent).children.retain(|child| *child != key);
    }

    /// Forgets bare nodes, the ones that were used longest ago first, until few enough are left.
    pub(crate) fn prune(&mut self) {
        loop {
            let bare = self.nodes.iter().filter(|(key, node)| **key != self.root && node.is_bare());
            let mut bare: Vec<_> =
                bare.map(|(key, node)| (node.last_use.n_prompt, node.last_use.at, *key)).collect();
            if bare.len() <= N_BARE_MAX {
                return;
            }
            bare.sort_unstable();
            for (_, _, key) in &bare[..bare.len() - N_BARE_MAX] {
                self.remove(*key);
            }
        }
    }
}

fn bare_node(parent: Key, start: usize, ids: Vec<u32>, now: Use) -> Node {
    Node {
        parent,
        start,
        ids,
        children: Vec::new(),
        kv: Held::default(),
        state: Held::default(),
        has_logits: false,
        last_use: now,
        n_hit: 0,
        likelihood: 1.0,
        is_damaged: false,
    }
}

/// Length of the common beginning.
fn common(a: &[u32], b: &[u32]) -> usize {
    // Whole pieces compare many ids at once.
    const PIECE: usize = 64;
    let n_equal =
        a.chunks_exact(PIECE).zip(b.chunks_exact(PIECE)).take_while(|(a, b)| a == b).count() * PIECE;
    n_equal + a[n_equal..].iter().zip(&b[n_equal..]).take_while(|(a, b)| a == b).count()
}
