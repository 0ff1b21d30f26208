//! What a part is worth, and what has to go when there is no room.
//!
//! A part's value is the tokens that would have to be fed again without it, times how likely somebody comes back:
//! for a state those since the nearest checkpoint before it; for keys and values those of all checkpoints that depend
//! on them. What has the least value a byte goes first.

use std::collections::{HashMap, HashSet};
use std::time::Duration;

use crate::tree::{Node, OnDisk, Tree, Use};
use crate::{Key, Part};

/// After so many other prompts a checkpoint is worth half.
const HALF_LIFE_PROMPTS: f64 = 16.0;

/// After so long a checkpoint is worth half, whatever was asked meanwhile.
const HALF_LIFE: Duration = Duration::from_secs(4 * 60 * 60);

/// Hits that count, behind the first, which is the next turn of the same conversation: that one leaves a newer
/// checkpoint. A beginning that was used a thousand times and then no more has to go some day.
const N_HIT_MAX: u32 = 15;

/// What goes is whole parts, so a little more may be lost than is gained.
const LOSS_MAX: f64 = 2.0;

/// A conversation that went on from a checkpoint to another one seldom comes back to it: only to change something.
/// Where several went on, others will.
const PASSED: f64 = 1.0 / 8.0;

/// A state whose keys and values are not all there helps only a session that still has them.
pub(crate) const ALONE: f64 = 0.25;

/// A file has a header of so many bytes at least, and so many are the least that its blocks take.
const FILE_ALIGN: u64 = store::RECORD_ALIGN as u64;

/// Where a part lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    Memory,
    Disk,
}

/// A part that could go.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Worth {
    pub(crate) key: Key,
    pub(crate) part: Part,
    pub(crate) bytes: u64,
    /// Tokens to feed again without it, weighted. 0 in memory for what the disk has too.
    pub(crate) value: f64,
    last_use: (u64, std::time::SystemTime),
}

/// How likely somebody comes back to `node`.
pub(crate) fn weight(node: &Node, now: Use) -> f64 {
    let n_prompt = now.n_prompt.saturating_sub(node.last_use.n_prompt) as f64;
    let elapsed = now.at.duration_since(node.last_use.at).unwrap_or_default();
    let age = n_prompt / HALF_LIFE_PROMPTS + elapsed.as_secs_f64() / HALF_LIFE.as_secs_f64();
    f64::from(node.likelihood) * f64::from(1 + node.n_hit.saturating_sub(1).min(N_HIT_MAX)) * (-age).exp2()
}

/// What is known of a node while the whole tree is looked at.
struct Seen {
    /// End of the nearest checkpoint before the node that can be used.
    base: usize,
    /// Keys and values from the start to the node's end are there.
    is_whole: bool,
    /// How likely somebody comes back to it.
    weight: f64,
    /// Over the checkpoints at and behind the node: weights, and weights times ends.
    weights: f64,
    weighted_ends: f64,
    /// The last time that anything at or behind the node was used.
    last_use: (u64, std::time::SystemTime),
}

impl Worth {
    fn density(&self) -> f64 {
        self.value / self.bytes.max(1) as f64
    }
}

/// Every part that lies in `place` and could go, the one to go first in front. There will be a checkpoint at the end of
/// the path `coming`.
pub(crate) fn survey(tree: &Tree, place: Place, coming: &[Key], now: Use) -> Vec<Worth> {
    let order = tree.top_down();
    let seen = look(tree, &order, coming, now);
    let mut parts = Vec::new();
    for key in order {
        let (node, seen) = (tree.node(key), &seen[&key]);
        for part in [Part::Kv, Part::State] {
            let held = node.part(part);
            let bytes = match (place, held.on_disk) {
                (Place::Disk, OnDisk::Written(bytes)) => bytes.next_multiple_of(FILE_ALIGN) + FILE_ALIGN,
                (Place::Memory, _) if held.blocks().is_some() && !held.is_pinned() => held.memory_bytes(),
                _ => continue,
            };
            let value = match part {
                _ if place == Place::Memory && held.is_written() => 0.0,
                Part::Kv => seen.weighted_ends - seen.base as f64 * seen.weights,
                Part::State => {
                    let alone = if seen.is_whole { 1.0 } else { ALONE };
                    (node.end() - seen.base) as f64 * seen.weight * alone
                }
            };
            let last_use = match part {
                Part::Kv => seen.last_use,
                Part::State => (node.last_use.n_prompt, node.last_use.at),
            };
            parts.push(Worth { key, part, bytes, value: value.max(0.0), last_use });
        }
    }
    parts.sort_by(|a, b| a.density().total_cmp(&b.density()).then(a.last_use.cmp(&b.last_use)));
    parts
}

fn look(tree: &Tree, order: &[Key], coming: &[Key], now: Use) -> HashMap<Key, Seen> {
    let mut all: HashMap<Key, Seen> = HashMap::with_capacity(order.len());
    for &key in order {
        let node = tree.node(key);
        let (base, is_whole) = match all.get(&node.parent) {
            None => (0, true),
            Some(parent) => {
                let before = tree.node(node.parent);
                let is_checkpoint = parent.is_whole && before.state.is_there();
                (if is_checkpoint { before.end() } else { parent.base }, parent.is_whole)
            }
        };
        let is_whole = is_whole && node.kv.is_there();
        let last_use = (node.last_use.n_prompt, node.last_use.at);
        let weight = weight(node, now);
        all.insert(key, Seen { base, is_whole, weight, weights: 0.0, weighted_ends: 0.0, last_use });
    }
    let coming: HashSet<Key> = coming.iter().copied().collect();
    let mut n_branch: HashMap<Key, usize> = HashMap::new();
    // What is behind a node comes before it.
    for key in order.iter().rev() {
        let node = tree.node(*key);
        let seen = all.get_mut(key).expect("all nodes were seen");
        if n_branch.get(key) == Some(&1) {
            seen.weight *= PASSED;
        }
        if seen.is_whole && node.state.is_there() {
            seen.weights += seen.weight;
            seen.weighted_ends += seen.weight * node.end() as f64;
        }
        let Seen { weights, weighted_ends, last_use, .. } = *seen;
        if weights > 0.0 || coming.contains(key) {
            *n_branch.entry(node.parent).or_default() += 1;
        }
        if let Some(parent) = all.get_mut(&node.parent) {
            parent.weights += weights;
            parent.weighted_ends += weighted_ends;
            parent.last_use = parent.last_use.max(last_use);
        }
    }
    all
}

/// End of the nearest checkpoint before the last node of `path` that can be used.
pub(crate) fn base(tree: &Tree, path: &[Key]) -> usize {
    let mut base = 0;
    for key in &path[..path.len().saturating_sub(1)] {
        let node = tree.node(*key);
        if !node.kv.is_there() {
            break;
        }
        if node.state.is_there() {
            base = node.end();
        }
    }
    base
}

/// What a new checkpoint would take, and be worth.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Gain {
    pub(crate) kv_bytes: u64,
    pub(crate) state_bytes: u64,
    pub(crate) value: f64,
}

impl Gain {
    pub(crate) fn bytes(&self) -> u64 {
        self.kv_bytes.saturating_add(self.state_bytes)
    }

    /// That of its half which would go first: each is worth all of it, as one is of no use without the other.
    fn density(&self) -> f64 {
        self.value / self.kv_bytes.max(self.state_bytes).max(1) as f64
    }
}

/// Which of `parts`, in the order of [`survey`], have to go so that `over_bytes` are freed for `gain`; none of those
/// `spared`. `None`: that would cost more than it is worth, or is not enough.
pub(crate) fn victims(
    tree: &Tree,
    parts: &[Worth],
    over_bytes: u64,
    gain: Gain,
    spared: &dyn Fn(Key, Part) -> bool,
) -> Option<Vec<(Key, Part)>> {
    let (mut freed_bytes, mut lost) = (0, 0.0);
    let mut going = Vec::new();
    let mut left: Vec<&Worth> = parts.iter().filter(|worth| !spared(worth.key, worth.part)).collect();
    left.reverse();
    while freed_bytes < over_bytes {
        let worth = left.pop()?;
        lost += worth.value;
        if worth.density() > gain.density() || lost > LOSS_MAX * gain.value {
            return None;
        }
        going.push((worth.key, worth.part));
        freed_bytes += worth.bytes;
        if worth.part == Part::Kv {
            // What depends on it has been counted with it.
            left.retain(|other| {
                let goes = freed_bytes < over_bytes && tree.path(other.key).contains(&worth.key);
                if goes {
                    going.push((other.key, other.part));
                    freed_bytes += other.bytes;
                }
                !goes
            });
        }
    }
    Some(going)
}

/// Checkpoints that can be used.
pub(crate) fn n_checkpoint(tree: &Tree) -> usize {
    let mut whole: HashMap<Key, bool> = HashMap::from([(tree.root(), true)]);
    let mut n = 0;
    for key in tree.top_down() {
        let node = tree.node(key);
        let is_whole = whole[&node.parent] && node.kv.is_there();
        whole.insert(key, is_whole);
        n += usize::from(is_whole && node.state.is_there());
    }
    n
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::sync::Arc;
    use std::time::SystemTime;

    use super::*;
    use crate::Identity;

    /// Where a part of a node is.
    #[derive(Clone, Copy, PartialEq)]
    enum At {
        Nowhere,
        Memory,
        Disk,
        Both,
    }

    /// A node of a case: the first letter of its name is its parent's name, if that is one of the case.
    struct Spec {
        name: &'static str,
        parent: &'static str,
        n_token: usize,
        kv: At,
        state: At,
        likelihood: f32,
        n_hit: u32,
        age_prompts: u64,
        age_hours: u64,
    }

    /// Under the root, in memory, usual, never used, new.
    const NODE: Spec = Spec {
        name: "",
        parent: "",
        n_token: 1000,
        kv: At::Memory,
        state: At::Memory,
        likelihood: 1.0,
        n_hit: 0,
        age_prompts: 0,
        age_hours: 0,
    };

    const TOKEN_BYTES: usize = 10;
    const STATE_BYTES: usize = 20_000;
    const N_PROMPT: u64 = 1000;

    struct Case {
        name: &'static str,
        nodes: &'static [Spec],
        /// The order in which parts go from memory.
        memory: &'static [&'static str],
        /// And from the disk.
        disk: &'static [&'static str],
    }

    const CASES: &[Case] = &[
        Case {
            name: "a state that saves less goes before one that saves more, and before what both need",
            nodes: &[
                Spec { name: "a", n_token: 500, ..NODE },
                Spec { name: "b", parent: "a", n_token: 900, ..NODE },
            ],
            memory: &["a state", "b state", "b kv", "a kv"],
            disk: &[],
        },
        Case {
            name: "what a conversation has passed is worth an eighth",
            nodes: &[
                Spec { name: "a", n_token: 3900, ..NODE },
                Spec { name: "b", parent: "a", n_token: 500, ..NODE },
            ],
            memory: &["a state", "b state", "b kv", "a kv"],
            disk: &[],
        },
        Case {
            name: "where two went on others will",
            nodes: &[
                Spec { name: "a", n_token: 3900, ..NODE },
                Spec { name: "b", parent: "a", n_token: 500, ..NODE },
                Spec { name: "c", parent: "a", n_token: 400, likelihood: 2.0, ..NODE },
            ],
            memory: &["b state", "c state", "b kv", "a state", "c kv", "a kv"],
            disk: &[],
        },
        Case {
            name: "what is on the disk too goes first, by its last use",
            nodes: &[
                Spec { name: "a", kv: At::Both, state: At::Both, age_prompts: 1, ..NODE },
                Spec { name: "b", n_token: 10, ..NODE },
                Spec { name: "c", kv: At::Both, state: At::Both, age_prompts: 2, ..NODE },
                Spec { name: "d", n_token: 10, kv: At::Disk, state: At::Disk, ..NODE },
            ],
            memory: &["c kv", "c state", "a kv", "a state", "b state", "b kv"],
            disk: &["d state", "d kv", "c state", "a state", "c kv", "a kv"],
        },
        Case {
            name: "keys and values that no checkpoint needs go first",
            nodes: &[Spec { name: "a", state: At::Nowhere, ..NODE }, Spec { name: "b", n_token: 50, ..NODE }],
            memory: &["a kv", "b state", "b kv"],
            disk: &[],
        },
        Case {
            name: "a checkpoint whose keys and values are gone helps a live session only",
            nodes: &[
                Spec { name: "a", n_token: 2000, kv: At::Nowhere, ..NODE },
                Spec { name: "b", n_token: 1000, ..NODE },
                Spec { name: "c", parent: "a", n_token: 100, ..NODE },
            ],
            memory: &["c kv", "a state", "c state", "b state", "b kv"],
            disk: &[],
        },
        Case {
            name: "sixteen prompts later it is worth half",
            nodes: &[
                Spec { name: "a", n_token: 1000, age_prompts: 16, ..NODE },
                Spec { name: "b", n_token: 501, ..NODE },
                Spec { name: "c", n_token: 499, age_prompts: 1, ..NODE },
            ],
            memory: &["c state", "a state", "b state", "a kv", "c kv", "b kv"],
            disk: &[],
        },
        Case {
            name: "four hours later too",
            nodes: &[
                Spec { name: "a", n_token: 1000, age_hours: 4, ..NODE },
                Spec { name: "b", n_token: 501, ..NODE },
                Spec { name: "c", n_token: 499, age_prompts: 1, ..NODE },
            ],
            memory: &["c state", "a state", "b state", "a kv", "c kv", "b kv"],
            disk: &[],
        },
        Case {
            name: "hits and likelihood multiply; one hit is the next turn",
            nodes: &[
                Spec { name: "a", n_token: 1000, n_hit: 1, ..NODE },
                Spec { name: "b", n_token: 600, n_hit: 2, ..NODE },
                Spec { name: "c", n_token: 700, likelihood: 2.5, ..NODE },
                Spec { name: "d", n_token: 3000, likelihood: 0.25, ..NODE },
            ],
            memory: &["d kv", "d state", "a state", "b state", "c state", "a kv", "b kv", "c kv"],
            disk: &[],
        },
        Case {
            name: "a large checkpoint stays before a small one that is newer",
            nodes: &[
                Spec { name: "a", n_token: 3800, age_prompts: 16, ..NODE },
                Spec { name: "b", n_token: 300, ..NODE },
            ],
            memory: &["b state", "a kv", "a state", "b kv"],
            disk: &[],
        },
    ];

    fn tree_of(nodes: &[Spec], now: Use) -> (Tree, BTreeMap<Key, &'static str>) {
        let shape = crate::Shape { kv_token_bytes: TOKEN_BYTES, state_bytes: STATE_BYTES, logits_bytes: 0 };
        let root = Identity { fingerprint: 0, settings: String::new(), model: String::new(), shape }.root();
        let mut tree = Tree::new(root);
        let mut keys = BTreeMap::from([("", root)]);
        for (i, spec) in nodes.iter().enumerate() {
            let n_prompt = now.n_prompt - spec.age_prompts;
            let used = Use { n_prompt, at: now.at - Duration::from_secs(spec.age_hours * 3600) };
            let key = tree.add(keys[spec.parent], &vec![i as u32; spec.n_token], used);
            let node = tree.node_mut(key);
            (node.likelihood, node.n_hit) = (spec.likelihood, spec.n_hit);
            let parts =
                [(Part::Kv, spec.kv, spec.n_token * TOKEN_BYTES), (Part::State, spec.state, STATE_BYTES)];
            for (part, at, n_byte) in parts {
                if matches!(at, At::Disk | At::Both) {
                    tree.node_mut(key).part_mut(part).on_disk = OnDisk::Written(n_byte as u64);
                }
                if matches!(at, At::Memory | At::Both) {
                    tree.put(key, part, vec![Arc::from(vec![0; n_byte])]);
                }
            }
            keys.insert(spec.name, key);
        }
        (tree, keys.into_iter().map(|(name, key)| (key, name)).collect())
    }

    /// What is dear would go before what is cheap.
    #[test]
    fn the_least_valuable_goes_first() {
        let now = Use { n_prompt: N_PROMPT, at: SystemTime::UNIX_EPOCH + Duration::from_secs(1 << 30) };
        for Case { name, nodes, memory, disk } in CASES {
            let (tree, names) = tree_of(nodes, now);
            let order = |place| -> Vec<String> {
                let parts = survey(&tree, place, &[], now).into_iter();
                parts.map(|worth| format!("{} {}", names[&worth.key], part_name(worth.part))).collect()
            };
            assert_eq!(order(Place::Memory), *memory, "memory: {name}");
            assert_eq!(order(Place::Disk), *disk, "disk: {name}");
        }
    }

    /// Something small would push out something large, or something useful would find no room.
    #[test]
    fn what_goes_is_worth_less_than_what_comes() {
        let now = Use { n_prompt: N_PROMPT, at: SystemTime::UNIX_EPOCH };
        let large = Spec { name: "a", n_token: 4000, ..NODE };
        let (tree, names) = tree_of(&[large, Spec { name: "b", parent: "a", n_token: 400, ..NODE }], now);
        let parts = survey(&tree, Place::Memory, &[], now);
        let state = STATE_BYTES as u64;
        // Bytes that are missing, bytes and value of what comes, and what goes for it.
        let cases: &[(u64, u64, f64, Option<&[&str]>)] = &[
            (0, state, 0.0, Some(&[])),
            (1, state, 0.0, None),
            (state, state, 300.0, None),
            (state, state, 450.0, Some(&["b state"])),
            (state + 1, state, 450.0, None),
            (state + 1, state, 600.0, Some(&["b state", "a state"])),
            // The last keys and values take nothing with them that is not gone.
            (2 * state + 1, state, 2400.0, Some(&["b state", "a state", "b kv"])),
            // Worth more a byte, but not worth what would go.
            (1, 1000, 100.0, None),
            (1 << 40, 1 << 40, f64::MAX, None),
        ];
        let names = |going: Vec<(Key, Part)>| -> Vec<String> {
            going.iter().map(|(key, part)| format!("{} {}", names[key], part_name(*part))).collect()
        };
        let victims = |over_bytes, state_bytes, value, spared: &dyn Fn(Key, Part) -> bool| {
            let gain = Gain { kv_bytes: 0, state_bytes, value };
            victims(&tree, &parts, over_bytes, gain, spared).map(names)
        };
        for (over_bytes, bytes, value, expected) in cases {
            let going = victims(*over_bytes, *bytes, *value, &|_, _| false);
            let expected =
                expected.map(|going| going.iter().map(|name| name.to_string()).collect::<Vec<_>>());
            assert_eq!(going, expected, "{over_bytes} bytes for {value}");
        }
        let spares_states = |_, part| part == Part::State;
        assert_eq!(victims(1, state, 450.0, &spares_states), None);
        let spares_b = |key, _| tree.node(key).start > 0;
        assert_eq!(victims(1, state, 450.0, &spares_b), None);
    }

    /// A state would stay that is of no use without the keys and values that went.
    #[test]
    fn what_depends_on_keys_and_values_goes_with_them() {
        let now = Use { n_prompt: N_PROMPT, at: SystemTime::UNIX_EPOCH };
        let (tree, names) = tree_of(&[Spec { name: "a", n_token: 9000, ..NODE }], now);
        let parts = survey(&tree, Place::Memory, &[], now);
        let gain = Gain { kv_bytes: 0, state_bytes: 1, value: f64::MAX };
        let going = victims(&tree, &parts, 90_001, gain, &|_, _| false).unwrap();
        let going: Vec<_> = going.iter().map(|(key, part)| (names[key], part_name(*part))).collect();
        assert_eq!(going, [("a", "kv"), ("a", "state")]);
        let dear = Gain { value: 9000.0, state_bytes: 90_000, ..gain };
        assert!(victims(&tree, &parts, 110_000, dear, &|_, _| false).is_some());
    }

    /// Of two conversations that are alike, the one that nobody needs any more would stay for ever.
    #[test]
    fn equals_are_replaced() {
        let now = Use { n_prompt: N_PROMPT, at: SystemTime::UNIX_EPOCH };
        let (tree, _) = tree_of(&[Spec { name: "a", n_token: 2000, age_prompts: 1, ..NODE }], now);
        let parts = survey(&tree, Place::Memory, &[], now);
        let gain = Gain { kv_bytes: 20_000, state_bytes: STATE_BYTES as u64, value: 2000.0 };
        assert_eq!(
            victims(&tree, &parts, gain.bytes(), gain, &|_, _| false).map(|going| going.len()),
            Some(2)
        );
    }

    fn part_name(part: Part) -> &'static str {
        if part == Part::Kv { "kv" } else { "state" }
    }
}
