//! Misses of our cache policy and of textbook ones on recorded routings, at several cache sizes.
//!
//! One line a trace, size and policy: misses after the first quarter of the tokens, relative to plain LRU and to the
//! optimum. Usage: `cargo run --release -p flash-moe-stream --example cache_curves -- TRACE...`

use std::path::Path;

use stream::{RoutingTrace, belady_misses, lru_misses, misses_by, policy_misses};

/// Slots, as a share of all records that the trace uses.
const SHARES: [f64; 6] = [0.03, 0.05, 0.1, 0.14, 0.2, 0.4];
/// Tokens after which a use counts half.
const HALF_LIVES: [f64; 8] = [4.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0, 1024.0];
/// Share of the segmented LRU that holds records used at least twice.
const PROTECTED_SHARE: f64 = 0.8;

fn main() {
    let files: Vec<String> = std::env::args().skip(1).collect();
    if files.is_empty() {
        eprintln!("usage: cache_curves TRACE...");
        std::process::exit(2);
    }
    for file in files {
        match RoutingTrace::read(Path::new(&file)) {
            Ok(trace) => print_curves(&file, &trace),
            Err(error) => {
                eprintln!("error: {error}");
                std::process::exit(1);
            }
        }
    }
}

fn print_curves(file: &str, trace: &RoutingTrace) {
    let n_skip = trace.n_token() / 4;
    let n_expert = trace.experts.iter().max().map_or(0, |&e| e as usize + 1);
    let n_use = ((trace.n_token() - n_skip) * trace.n_layer * trace.n_expert_used) as f64;
    println!(
        "{file}: {} tokens, {} layers, {} of {n_expert} experts",
        trace.n_token(),
        trace.n_layer,
        trace.n_expert_used
    );
    println!("share  slots  policy         hit    misses  / LRU  / optimum");
    for share in SHARES {
        let n_slot = ((trace.n_layer * n_expert) as f64 * share) as usize;
        if n_slot < 2 * trace.n_expert_used {
            continue;
        }
        let lru = lru_misses(trace, n_slot, n_skip);
        let best = belady_misses(trace, n_slot, n_skip);
        let print = |policy: &str, misses: u64| {
            let (n, lru, best) = (misses as f64, lru as f64, best as f64);
            let hit = 1.0 - n / n_use;
            println!(
                "{share:<6} {n_slot:<6} {policy:<13} {hit:.3} {misses:>9}  {:.3}  {:.3}",
                n / lru,
                n / best
            );
        };
        print("lru", lru);
        print("ours", policy_misses(trace, n_expert, n_slot, n_skip));
        print("optimum", best);
        print("lfu", lfu_misses(trace, n_slot, n_skip));
        print("segmented", segmented_misses(trace, n_slot, n_skip));
        for half_life in HALF_LIVES {
            print(&format!("decay {half_life}"), decayed_misses(trace, n_slot, n_skip, half_life));
        }
    }
}

/// The record goes that was used least often since the start, ties to the least recently used.
fn lfu_misses(trace: &RoutingTrace, n_slot: usize, n_skip_token: usize) -> u64 {
    let mut counts: Vec<u32> = Vec::new();
    misses_by(trace, n_slot, n_skip_token, |at| {
        let count = entry(&mut counts, at.record);
        *count += 1;
        (*count, at.idx)
    })
}

/// The record goes whose uses, each worth half after `half_life` tokens, add up to least. Evicted records keep theirs.
fn decayed_misses(trace: &RoutingTrace, n_slot: usize, n_skip_token: usize, half_life: f64) -> u64 {
    // log2 of the sum of 2^(token / half_life): all decay alike, so their order does not depend on when one looks.
    let mut scores: Vec<Option<f64>> = Vec::new();
    misses_by(trace, n_slot, n_skip_token, |at| {
        let now = at.token as f64 / half_life;
        let score = entry(&mut scores, at.record);
        let sum = score.map_or(now, |old| now + (1.0 + (old - now).exp2()).log2());
        *score = Some(sum);
        // Sums are not negative: their bits are in the same order.
        (sum.to_bits(), at.idx)
    })
}

/// LRU in two segments: a record enters the first, a further use takes it to the second; what the second has no room
/// for goes back to the first, and the last of the first goes.
fn segmented_misses(trace: &RoutingTrace, n_slot: usize, n_skip_token: usize) -> u64 {
    use std::collections::{BTreeMap, HashMap};
    let n_protected_max = (n_slot as f64 * PROTECTED_SHARE) as usize;
    let mut segments: [BTreeMap<usize, (usize, u32)>; 2] = Default::default();
    let mut place: HashMap<(usize, u32), (usize, usize)> = HashMap::new();
    let (mut clock, mut n_miss) = (0, 0);
    for token in 0..trace.n_token() {
        for layer in 0..trace.n_layer {
            for &expert in trace.at(token, layer) {
                clock += 1;
                let record = (layer, expert);
                let segment = match place.get(&record) {
                    Some(&(segment, at)) => {
                        segments[segment].remove(&at);
                        1
                    }
                    None => {
                        n_miss += u64::from(token >= n_skip_token);
                        0
                    }
                };
                segments[segment].insert(clock, record);
                place.insert(record, (segment, clock));
                if segments[1].len() > n_protected_max {
                    let (_, demoted) = segments[1].pop_first().expect("it is too full");
                    clock += 1;
                    segments[0].insert(clock, demoted);
                    place.insert(demoted, (0, clock));
                }
                if place.len() > n_slot {
                    let (_, victim) = segments[0].pop_first().expect("the other segment is bounded");
                    place.remove(&victim);
                }
            }
        }
    }
    n_miss
}

fn entry<T: Default + Clone>(values: &mut Vec<T>, i: usize) -> &mut T {
    if i >= values.len() {
        values.resize(i + 1, T::default());
    }
    &mut values[i]
}
