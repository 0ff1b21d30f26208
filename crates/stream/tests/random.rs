//! Random requests and releases on a device with random faults.

mod common;

use std::collections::{BTreeMap, BTreeSet};

use common::{Device, FOREVER, Fault, Key, content, lease, stream_on, take_all};
use proptest::prelude::*;
use stream::{CacheMode, ExpertStream, Lease, StreamError};

const N_SLOT: usize = 8;

/// The last layer is never requested by a step and has no faults.
const CLEAN_LAYER: usize = 3;

#[derive(Clone, Debug)]
enum Step {
    Request {
        layer: usize,
        experts: BTreeSet<usize>,
        n_token: usize,
    },
    /// Takes what is there from an open lease, or waits.
    Next(usize),
    /// Releases an open lease, used or not.
    Release(usize),
    /// Guesses.
    Prefetch {
        layer: usize,
        experts: BTreeSet<usize>,
    },
    /// Changes the number of slots.
    Limit(usize),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let experts = || proptest::collection::btree_set(0..8_usize, 1..5);
    let step = prop_oneof![
        6 => (0..CLEAN_LAYER, experts(), 1..4_usize)
            .prop_map(|(layer, experts, n_token)| Step::Request { layer, experts, n_token }),
        6 => (0..8_usize).prop_map(Step::Next),
        4 => (0..8_usize).prop_map(Step::Release),
        3 => (0..CLEAN_LAYER, experts()).prop_map(|(layer, experts)| Step::Prefetch { layer, experts }),
        1 => (0..10_usize).prop_map(Step::Limit),
    ];
    proptest::collection::vec(step, 1..80)
}

/// Faults that pass within the attempts of one read, and faults that stay.
fn faults() -> impl Strategy<Value = BTreeMap<Key, (Fault, usize)>> {
    let fault = prop_oneof![
        (1..20_000_usize).prop_map(|n| (Fault::Short(n.max(500)), FOREVER)),
        (1..4_usize).prop_map(|n| (Fault::Interrupted, n)),
        (1..3_usize).prop_map(|n| (Fault::Eio, n)),
        (1..3_usize).prop_map(|n| (Fault::Wrong, n)),
        (0..16_000_usize).prop_map(|end| (Fault::End(end), 2)),
        Just((Fault::Eio, FOREVER)),
        Just((Fault::Wrong, FOREVER)),
        Just((Fault::End(100), FOREVER)),
    ];
    proptest::collection::btree_map((0..CLEAN_LAYER, 0..8_usize), fault, 0..12)
}

/// An open lease and the places that it gave.
type Open = (Lease, BTreeSet<usize>);

/// Takes more of a lease: right bytes, each place once, all of them in the end; or an error that names a record of it that
/// cannot be read, or that other leases hold all slots. Is there more to come?
fn take_more(
    stream: &mut ExpertStream,
    (lease, given): &mut Open,
    is_bad: &dyn Fn(Key) -> bool,
    n_other: usize,
) -> Result<bool, TestCaseError> {
    let key = |lease: &Lease, place: usize| (lease.layer(), lease.experts()[place]);
    match stream.next(lease, 2) {
        Ok(true) => {
            prop_assert!(!lease.ready().is_empty() && lease.ready().len() <= 2);
            for &place in lease.ready() {
                prop_assert!(given.insert(place), "a place was given twice");
                prop_assert!(!is_bad(key(lease, place)));
                prop_assert!(stream.record(lease, place) == content(key(lease, place)));
            }
            Ok(true)
        }
        Ok(false) => {
            prop_assert_eq!(given.len(), lease.experts().len());
            Ok(false)
        }
        Err(StreamError::Read { layer, expert, .. } | StreamError::Checksum { layer, expert, .. }) => {
            prop_assert!(
                layer == lease.layer() && lease.experts().contains(&expert) && is_bad((layer, expert))
            );
            Ok(false)
        }
        Err(StreamError::TooFewSlots { .. }) => {
            prop_assert!(n_other > 0, "a lease alone must be able to go on");
            Ok(false)
        }
        Err(other) => {
            prop_assert!(false, "{other}");
            Ok(false)
        }
    }
}

fn run(
    mode: CacheMode,
    n_reader: usize,
    seed: u64,
    steps: &[Step],
    faults: &BTreeMap<Key, (Fault, usize)>,
) -> Result<(), TestCaseError> {
    let device = Device::new();
    device.shuffle(seed);
    for (&key, &(fault, n_attempt)) in faults {
        device.fail(key, fault, n_attempt);
    }
    let is_bad = |key: Key| {
        faults.get(&key).is_some_and(|&(fault, n)| n == FOREVER && !matches!(fault, Fault::Short(_)))
    };
    let mut stream = stream_on(&device, mode, N_SLOT, n_reader);
    let (mut open, mut n_request) = (Vec::<Open>::new(), 0);
    for step in steps {
        match step {
            Step::Request { layer, experts, n_token } => {
                let experts: Vec<usize> = experts.iter().copied().collect();
                n_request += experts.len() as u64;
                let tokens = |place: usize| (0..*n_token).filter(move |token| *token == 0 || place % 2 == 0);
                open.push((stream.lease(*layer, *n_token, &experts, tokens), BTreeSet::new()));
            }
            Step::Next(idx) if !open.is_empty() => {
                let (idx, n_other) = (idx % open.len(), open.len() - 1);
                take_more(&mut stream, &mut open[idx], &is_bad, n_other)?;
            }
            Step::Release(idx) if !open.is_empty() => {
                let (lease, _) = open.swap_remove(idx % open.len());
                stream.release(lease);
            }
            Step::Prefetch { layer, experts } => {
                stream.prefetch(*layer, &experts.iter().copied().collect::<Vec<_>>());
            }
            Step::Limit(n_slot) => stream.limit().set(*n_slot),
            Step::Next(_) | Step::Release(_) => {}
        }
        prop_assert!(stream.n_live_slot() <= N_SLOT);
    }
    while let Some(mut last) = open.pop() {
        while take_more(&mut stream, &mut last, &is_bad, open.len())? {}
        stream.release(last.0);
    }
    let stats = stream.stats();
    prop_assert_eq!(stats.n_hit + stats.n_miss, n_request);
    prop_assert!(stats.n_prefetch_hit <= stats.n_prefetch);
    let limit = stream.limit();
    limit.set(N_SLOT);
    let all: Vec<usize> = (0..N_SLOT).collect();
    let mut lease_all = || {
        let mut lease = lease(&mut stream, CLEAN_LAYER, &all);
        let n_given = take_all(&mut stream, &mut lease).map(|places| places.len()).ok();
        stream.release(lease);
        (n_given, stream.n_live_slot())
    };
    prop_assert_eq!(lease_all().0, Some(N_SLOT));
    // Nothing stays in use: all slots can be given up, once the last guesses have arrived.
    limit.set(0);
    let mut rounds = (0..1000).map(|_| lease_all());
    prop_assert!(
        rounds.any(|(n_given, n_live)| n_given == Some(N_SLOT) && n_live == 2),
        "a slot stays in use"
    );
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 150, failure_persistence: None, ..ProptestConfig::default() })]

    /// Any record that is delivered has the right bytes, whatever the order, the faults and the cache mode; any that
    /// cannot be read is an error; no slot is ever lost.
    #[test]
    fn right_bytes_or_an_error(
        page in any::<bool>(),
        n_reader in 1..5_usize,
        seed in any::<u64>(),
        steps in steps(),
        faults in faults(),
    ) {
        let mode = if page { CacheMode::Page } else { CacheMode::Slots };
        run(mode, n_reader, seed, &steps, &faults)?;
    }
}
