//! Random requests and releases on a device with random faults.

mod common;

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::LazyLock;
use std::time::Duration;

use common::{Device, FOREVER, Fault, Key, content, lease, stream_on};
use proptest::prelude::*;
use store::Blob;
use stream::{
    Backing, CacheMode, ExpertStream, Lease, Method, Reader, RecordFile, SimDrive, SimFaults, SimSpec,
    StreamError, StreamOptions, Tuning,
};
use xxhash_rust::xxh3::xxh3_64;

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

/// What a device should deliver.
struct Truth<'a> {
    content: fn(Key) -> Vec<u8>,
    /// Can the record be read? `None`: nobody knows.
    is_readable: &'a dyn Fn(Key) -> Option<bool>,
}

/// An open lease and the places that it gave.
type Open = (Lease, BTreeSet<usize>);

/// Takes more of a lease: right bytes, each place once, all of them in the end; or an error that names a
/// record of it that cannot be read, or that other leases hold all slots. Is there more to come?
fn take_more(
    stream: &mut ExpertStream,
    (lease, given): &mut Open,
    truth: &Truth<'_>,
    n_other: usize,
) -> Result<bool, TestCaseError> {
    let key = |lease: &Lease, place: usize| (lease.layer(), lease.experts()[place]);
    match stream.next(lease, 2) {
        Ok(true) => {
            prop_assert!(!lease.ready().is_empty() && lease.ready().len() <= 2);
            for &place in lease.ready() {
                prop_assert!(given.insert(place), "a place was given twice");
                let key = key(lease, place);
                prop_assert!((truth.is_readable)(key) != Some(false));
                prop_assert!(stream.record(lease, place) == (truth.content)(key), "wrong bytes of {key:?}");
            }
            Ok(true)
        }
        Ok(false) => {
            prop_assert_eq!(given.len(), lease.experts().len());
            Ok(false)
        }
        Err(StreamError::Read { layer, expert, .. } | StreamError::Checksum { layer, expert, .. }) => {
            prop_assert!(layer == lease.layer() && lease.experts().contains(&expert));
            prop_assert!((truth.is_readable)((layer, expert)) != Some(true));
            Ok(false)
        }
        Err(StreamError::TooFewSlots { .. }) => {
            prop_assert!(n_other > 0, "a lease alone must be able to go on");
            Ok(false)
        }
        Err(other) => Err(TestCaseError::fail(other.to_string())),
    }
}

fn run_steps(stream: &mut ExpertStream, steps: &[Step], truth: &Truth<'_>) -> Result<(), TestCaseError> {
    let (mut open, mut n_request) = (Vec::<Open>::new(), 0);
    for step in steps {
        match step {
            Step::Request { layer, experts, n_token } => {
                let experts: Vec<usize> = experts.iter().copied().collect();
                n_request += experts.len() as u64;
                let tokens =
                    |place: usize| (0..*n_token).filter(move |token| *token == 0 || place.is_multiple_of(2));
                open.push((stream.lease(*layer, *n_token, &experts, tokens), BTreeSet::new()));
            }
            Step::Next(idx) if !open.is_empty() => {
                let (idx, n_other) = (idx % open.len(), open.len() - 1);
                take_more(stream, &mut open[idx], truth, n_other)?;
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
        while take_more(stream, &mut last, truth, open.len())? {}
        stream.release(last.0);
    }
    let stats = stream.stats();
    prop_assert_eq!(stats.n_hit + stats.n_miss, n_request);
    prop_assert!(stats.n_prefetch_hit <= stats.n_prefetch);
    Ok(())
}

/// All slots can be used at once, and nothing stays in use: all can be given up, once the last guesses have arrived.
fn check_slots(stream: &mut ExpertStream, truth: &Truth<'_>) -> Result<(), TestCaseError> {
    let limit = stream.limit();
    limit.set(N_SLOT);
    let all: Vec<usize> = (0..N_SLOT).collect();
    for _ in 0..1000 {
        let mut open = (lease(stream, CLEAN_LAYER, &all), BTreeSet::new());
        while take_more(stream, &mut open, truth, 0)? {}
        prop_assert_eq!(open.1.len(), N_SLOT);
        stream.release(open.0);
        if limit.get() == 0 && stream.n_live_slot() == 2 {
            return Ok(());
        }
        limit.set(0);
    }
    Err(TestCaseError::fail("a slot stays in use"))
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
    let truth = Truth { content, is_readable: &|key| Some(!is_bad(key)) };
    let mut stream = stream_on(&device, mode, N_SLOT, n_reader);
    run_steps(&mut stream, steps, &truth)?;
    check_slots(&mut stream, &truth)
}

/// Bytes of a record that is read in up to three parts.
const LONG_STRIDE: usize = 3 * 16 * 1024;

fn long_record((layer, expert): Key) -> Vec<u8> {
    [0, 1, 2].into_iter().flat_map(|part| content((10 * layer + part, expert))).collect()
}

/// 4 layers of 8 experts in files, read directly or, with faults in all but the last layer, through a
/// simulated drive.
fn long_layers(dir: &Path, faults: Option<SimFaults>, seed: u64) -> Vec<RecordFile> {
    let jitter = Duration::from_micros(100);
    let drive = faults.map(|faults| SimDrive::new(SimSpec { seed, jitter, faults, ..SimSpec::default() }));
    let layer = |layer| {
        let records: Vec<_> = (0..8).map(|expert| long_record((layer, expert))).collect();
        let path = dir.join(format!("{layer}.bin"));
        if !path.exists() {
            std::fs::write(&path, records.concat()).unwrap();
        }
        let source = Reader::open(&Blob::File(path), Backing::Direct).unwrap();
        let source = match &drive {
            Some(drive) if layer != CLEAN_LAYER => drive.wrap(source),
            _ => source,
        };
        let xxh3 = Some(records.iter().map(|r| xxh3_64(r)).collect());
        RecordFile { source, stride_bytes: LONG_STRIDE, n_expert: records.len(), xxh3 }
    };
    (0..=CLEAN_LAYER).map(layer).collect()
}

fn tuning() -> impl Strategy<Value = Tuning> {
    let method = prop_oneof![Just(Method::Pool), Just(Method::Uring)];
    let request_bytes = prop_oneof![Just(16 * 1024), Just(32 * 1024), Just(1 << 30)];
    (method, request_bytes, 1..6_usize).prop_map(|(method, request_bytes, depth)| Tuning {
        method,
        request_bytes,
        depth,
    })
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

    /// The same for records in parts, with either method, on files and through a drive that fails at random.
    #[test]
    fn right_parts_or_an_error(
        tuning in tuning(),
        has_faults in any::<bool>(),
        seed in any::<u64>(),
        lasting in 0.0..1.0_f64,
        steps in steps(),
    ) {
        static DIR: LazyLock<tempfile::TempDir> = LazyLock::new(|| tempfile::tempdir().unwrap());
        let rate = 0.02;
        let stall_for = Duration::from_micros(100);
        let faults = SimFaults {
            short: rate, eio: rate, wrong: rate, interrupted: 0.0, end: rate, stall: rate, stall_for, lasting,
        };
        let layers = long_layers(DIR.path(), has_faults.then_some(faults), seed);
        let options = StreamOptions { mode: CacheMode::Slots, n_slot: N_SLOT, tuning };
        let is_readable = |(layer, _): Key| (layer == CLEAN_LAYER || !has_faults).then_some(true);
        let truth = Truth { content: long_record, is_readable: &is_readable };
        let mut stream = ExpertStream::new(layers, options).unwrap();
        run_steps(&mut stream, &steps, &truth)?;
        check_slots(&mut stream, &truth)?;
    }
}
