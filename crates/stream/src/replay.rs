//! How often a cache would have missed on a recorded routing: what a policy is measured against.
//!
//! One cache of `n_slot` records serves all layers. A step is one token in one layer: its records are resident
//! together, so none of them can make room for another.

use std::cmp::Reverse;
use std::collections::BTreeSet;

use crate::RoutingTrace;

/// One use of a record.
#[derive(Clone, Copy, Debug)]
pub struct Use {
    /// Number of this use.
    pub idx: usize,
    /// Token.
    pub token: usize,
    /// The record, numbered densely over all layers.
    pub record: usize,
}

/// Misses of the least-recently-used policy, those of the first `n_skip_token` tokens not counted.
///
/// # Panics
/// There are fewer slots than a step needs.
pub fn lru_misses(trace: &RoutingTrace, n_slot: usize, n_skip_token: usize) -> u64 {
    misses_by(trace, n_slot, n_skip_token, |at| at.idx)
}

/// Misses of the best policy there can be, which knows the future: the record goes that is needed last.
///
/// # Panics
/// There are fewer slots than a step needs.
pub fn belady_misses(trace: &RoutingTrace, n_slot: usize, n_skip_token: usize) -> u64 {
    let (records, n_record) = records(trace);
    let mut next_of = vec![usize::MAX; n_record];
    let mut next_use = vec![usize::MAX; records.len()];
    for (i, &record) in records.iter().enumerate().rev() {
        next_use[i] = std::mem::replace(&mut next_of[record], i);
    }
    misses_by(trace, n_slot, n_skip_token, |at| Reverse(next_use[at.idx]))
}

/// Misses of a policy that gives every record a key when it is used, and of all records evicts the one with the
/// lowest key.
///
/// # Panics
/// There are fewer slots than a step needs.
pub fn misses_by<K: Ord + Copy>(
    trace: &RoutingTrace,
    n_slot: usize,
    n_skip_token: usize,
    mut key: impl FnMut(Use) -> K,
) -> u64 {
    let k = trace.n_expert_used;
    assert!(n_slot >= k, "{n_slot} slots, a step needs {k}");
    let (records, n_record) = records(trace);
    let mut keys: Vec<Option<K>> = vec![None; n_record];
    let mut evictable = BTreeSet::new();
    let mut n_miss = 0;
    for (step, used) in records.chunks_exact(k.max(1)).enumerate() {
        let token = step / trace.n_layer;
        let mut n_missing = 0;
        for &record in used {
            match keys[record].take() {
                Some(key) => drop(evictable.remove(&(key, record))),
                None => n_missing += 1,
            }
        }
        while evictable.len() + k > n_slot {
            let (_, victim) = evictable.pop_first().expect("a step fits the slots");
            keys[victim] = None;
        }
        for (i, &record) in used.iter().enumerate() {
            let key = key(Use { idx: step * k + i, token, record });
            keys[record] = Some(key);
            evictable.insert((key, record));
        }
        n_miss += if token < n_skip_token { 0 } else { n_missing };
    }
    n_miss
}

/// The record of each use, and how many there are: experts can have any number in a trace from elsewhere.
fn records(trace: &RoutingTrace) -> (Vec<usize>, usize) {
    let rows = trace.experts.chunks_exact(trace.n_expert_used.max(1)).enumerate();
    let uses: Vec<(usize, u32)> =
        rows.flat_map(|(step, row)| row.iter().map(move |&e| (step % trace.n_layer, e))).collect();
    let mut known = uses.clone();
    known.sort_unstable();
    known.dedup();
    let number = |used| known.binary_search(used).expect("all uses are known");
    (uses.iter().map(number).collect(), known.len())
}
