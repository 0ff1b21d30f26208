//! How often a cache would have missed on a recorded routing: what a policy is measured against.
//!
//! One cache of `n_slot` records serves all layers. A step is one token in one layer: its records are resident
//! together, so none of them can make room for another.

use std::cmp::Reverse;
use std::collections::BTreeSet;

use crate::RoutingTrace;
use crate::adapt::{Adaptive, Directory};

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

/// Misses of the policy that the slots have, on a model with `n_expert` experts a layer.
///
/// # Panics
/// There are fewer slots than a step needs, or the trace has experts beyond `n_expert`.
pub fn policy_misses(trace: &RoutingTrace, n_expert: usize, n_slot: usize, n_skip_token: usize) -> u64 {
    let k = trace.n_expert_used;
    assert!(n_slot >= k, "{n_slot} slots, a step needs {k}");
    let n_experts = vec![n_expert; trace.n_layer];
    let mut heat = Adaptive::new(&n_experts, n_slot);
    let mut cache = Directory::new(&n_experts, n_slot);
    let mut n_miss = 0;
    for token in 0..trace.n_token() {
        if heat.choose(1) {
            cache.reorder(heat.heat());
        }
        for layer in 0..trace.n_layer {
            heat.advance(layer, 1);
            let records = || trace.at(token, layer).iter().map(|&expert| layer * n_expert + expert as usize);
            records().for_each(|record| heat.touch(layer, record, std::iter::once(0), true));
            // Those that are there come first: no missing one takes their place.
            let (present, missing): (Vec<usize>, Vec<usize>) = records().partition(|&r| cache.contains(r));
            for &record in present.iter().chain(&missing) {
                cache.take(heat.heat(), layer, record);
            }
            records().for_each(|record| cache.list(heat.heat(), layer, record));
            n_miss += if token < n_skip_token { 0 } else { missing.len() as u64 };
        }
    }
    n_miss
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

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    fn traces(n_token: usize) -> impl Strategy<Value = RoutingTrace> {
        (1..=n_token, 1..3usize, 1..3usize).prop_flat_map(|(n_token, n_layer, k)| {
            let row = Just(vec![0u32, 3, 1000, 4, 7]).prop_shuffle();
            prop::collection::vec(row, n_token * n_layer).prop_map(move |rows| RoutingTrace {
                n_layer,
                n_expert_used: k,
                experts: rows.iter().flat_map(|row| row[..k].to_vec()).collect(),
            })
        })
    }

    /// The steps of a trace: token and records.
    fn steps(trace: &RoutingTrace) -> Vec<(usize, Vec<(usize, u32)>)> {
        (0..trace.n_token())
            .flat_map(|token| (0..trace.n_layer).map(move |layer| (token, layer)))
            .map(|(token, layer)| (token, trace.at(token, layer).iter().map(|&e| (layer, e)).collect()))
            .collect()
    }

    /// Fewest misses of any choice of victims: all sets that a cache can hold, and the misses that led there.
    fn fewest_misses(trace: &RoutingTrace, n_slot: usize, n_skip_token: usize) -> u64 {
        let mut states = BTreeSet::from([(0, BTreeSet::new())]);
        for (token, used) in steps(trace) {
            let used: BTreeSet<_> = used.into_iter().collect();
            let mut next = BTreeSet::new();
            for (n_miss, held) in states {
                let n_missing = used.difference(&held).count() as u64;
                let rest: Vec<_> = held.difference(&used).copied().collect();
                for mask in 0..1u32 << rest.len() {
                    let kept = (0..rest.len()).filter(|i| mask >> i & 1 == 1).map(|i| rest[i]);
                    let held: BTreeSet<_> = used.iter().copied().chain(kept).collect();
                    if held.len() <= n_slot {
                        next.insert((n_miss + if token < n_skip_token { 0 } else { n_missing }, held));
                    }
                }
            }
            states = next;
        }
        states.first().map_or(0, |state| state.0)
    }

    proptest! {
        /// The optimum that policies are compared with is none.
        #[test]
        fn nothing_misses_less_than_the_optimum(trace in traces(5), extra in 0..4usize) {
            let n_slot = trace.n_expert_used + extra;
            prop_assert!(policy_misses(&trace, 1001, n_slot, 0) >= belady_misses(&trace, n_slot, 0));
            prop_assert_eq!(belady_misses(&trace, n_slot, 0), fewest_misses(&trace, n_slot, 0));
        }

        /// Another record goes than the one that was used least recently, or the warm-up is counted.
        #[test]
        fn lru_equals_a_list(trace in traces(40), extra in 0..10usize, n_skip_token in 0..10usize) {
            let n_slot = trace.n_expert_used + extra;
            let (mut newest_last, mut n_miss) = (Vec::new(), 0);
            for (token, used) in steps(&trace) {
                for record in &used {
                    let place = newest_last.iter().position(|held| held == record);
                    n_miss += u64::from(place.is_none() && token >= n_skip_token);
                    place.map(|place| newest_last.remove(place));
                }
                // What is used now stays, so the others make room.
                let n_excess = (newest_last.len() + used.len()).saturating_sub(n_slot);
                newest_last.drain(..n_excess);
                newest_last.extend(used);
            }
            prop_assert_eq!(lru_misses(&trace, n_slot, n_skip_token), n_miss);
            let fewest = belady_misses(&trace, n_slot, 0);
            prop_assert!(fewest <= lru_misses(&trace, n_slot, 0));
        }
    }
}
