//! Random requests and releases on a device with random faults.

mod common;

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::LazyLock;
use std::time::Duration;

use common::{Device, FOREVER, Fault, Key, content, stream_on};
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
    },
    /// Waits for an open lease.
    Wait(usize),
    /// Releases an open lease, waited for or not.
    Release(usize),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let experts = proptest::collection::btree_set(0..8_usize, 1..5);
    let step = prop_oneof![
        3 => (0..CLEAN_LAYER, experts).prop_map(|(layer, experts)| Step::Request { layer, experts }),
        2 => (0..8_usize).prop_map(Step::Wait),
        2 => (0..8_usize).prop_map(Step::Release),
    ];
    proptest::collection::vec(step, 1..60)
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

/// What the lease got: right bytes, or an error that names a record that cannot be read.
fn check_lease(
    stream: &mut ExpertStream,
    lease: &Lease,
    is_bad: &dyn Fn(Key) -> bool,
) -> Result<(), TestCaseError> {
    let keys: Vec<Key> = lease.experts.iter().map(|&expert| (lease.layer, expert)).collect();
    match stream.wait(lease) {
        Ok(()) => prop_assert!(!keys.iter().any(|&key| is_bad(key))),
        Err(StreamError::Read { layer, expert, .. } | StreamError::Checksum { layer, expert, .. }) => {
            prop_assert!(keys.contains(&(layer, expert)) && is_bad((layer, expert)));
        }
        Err(other) => prop_assert!(false, "{other}"),
    }
    for (idx, &key) in keys.iter().enumerate() {
        prop_assert_eq!(stream.is_ready(lease, idx), !is_bad(key));
        prop_assert!(is_bad(key) || stream.record(lease, idx) == content(key));
    }
    Ok(())
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
    let (mut open, mut n_request) = (Vec::<Lease>::new(), 0);
    for step in steps {
        match step {
            Step::Request { layer, experts } => {
                let pinned = open.iter().flat_map(|l| l.experts.iter().map(|&e| (l.layer, e)));
                let with_new: Vec<Key> = pinned.chain(experts.iter().map(|&e| (*layer, e))).collect();
                let n_distinct = with_new.iter().collect::<BTreeSet<_>>().len();
                let experts: Vec<usize> = experts.iter().copied().collect();
                match stream.request(*layer, &experts) {
                    Ok(lease) => {
                        prop_assert!(n_distinct <= N_SLOT);
                        n_request += experts.len() as u64;
                        open.push(lease);
                    }
                    // A record that failed under one lease is read again for the next: it may hold more than one slot.
                    Err(StreamError::TooFewSlots { n_slot, n_min }) => {
                        prop_assert!(n_slot == N_SLOT && n_min > N_SLOT && with_new.len() >= n_min);
                        prop_assert!(n_distinct > N_SLOT || with_new.iter().any(|&key| is_bad(key)));
                    }
                    Err(other) => prop_assert!(false, "{other}"),
                }
            }
            Step::Wait(idx) if !open.is_empty() => {
                check_lease(&mut stream, &open[idx % open.len()], &is_bad)?
            }
            Step::Release(idx) if !open.is_empty() => {
                let lease = open.swap_remove(idx % open.len());
                stream.release(lease);
            }
            Step::Wait(_) | Step::Release(_) => {}
        }
    }
    for lease in open {
        check_lease(&mut stream, &lease, &is_bad)?;
        stream.release(lease);
    }
    let stats = stream.stats();
    prop_assert_eq!(stats.n_hit + stats.n_miss, n_request);
    prop_assert_eq!(stream.n_slot(), N_SLOT);
    // Nothing leaked: all slots can be pinned at once.
    let all = stream.request(CLEAN_LAYER, &[0, 1, 2, 3, 4, 5, 6, 7]).unwrap();
    check_lease(&mut stream, &all, &|_| false)?;
    stream.release(all);
    Ok(())
}

/// Bytes of a record that is read in up to three parts.
const LONG_STRIDE: usize = 3 * 16 * 1024;

fn long_record((layer, expert): Key) -> Vec<u8> {
    [0, 1, 2].into_iter().flat_map(|part| content((10 * layer + part, expert))).collect()
}

/// 4 layers of 8 experts in files, read directly or, with faults in all but the last layer, through a simulated drive.
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
        RecordFile { source, stride_bytes: LONG_STRIDE, xxh3: records.iter().map(|r| xxh3_64(r)).collect() }
    };
    (0..=CLEAN_LAYER).map(layer).collect()
}

/// Waits for a lease. Whatever came of it, what is there must be right.
fn check_long(stream: &mut ExpertStream, lease: &Lease, may_fail: bool) -> Result<(), TestCaseError> {
    let result = stream.wait(lease);
    for (idx, &expert) in lease.experts.iter().enumerate() {
        let is_ready = stream.is_ready(lease, idx);
        prop_assert!(is_ready || result.is_err());
        prop_assert!(!is_ready || stream.record(lease, idx) == long_record((lease.layer, expert)));
    }
    match result {
        Ok(()) => Ok(()),
        Err(StreamError::Read { .. } | StreamError::Checksum { .. }) if may_fail => Ok(()),
        Err(other) => Err(TestCaseError::fail(other.to_string())),
    }
}

fn run_long(mut stream: ExpertStream, steps: &[Step], may_fail: bool) -> Result<(), TestCaseError> {
    let mut open = Vec::<Lease>::new();
    for step in steps {
        match step {
            Step::Request { layer, experts } => {
                let experts: Vec<usize> = experts.iter().copied().collect();
                match stream.request(*layer, &experts) {
                    Ok(lease) => open.push(lease),
                    Err(error) => prop_assert!(matches!(error, StreamError::TooFewSlots { .. }), "{error}"),
                }
            }
            Step::Wait(idx) if !open.is_empty() => {
                check_long(&mut stream, &open[idx % open.len()], may_fail)?
            }
            Step::Release(idx) if !open.is_empty() => {
                let lease = open.swap_remove(idx % open.len());
                stream.release(lease);
            }
            Step::Wait(_) | Step::Release(_) => {}
        }
    }
    for lease in open {
        check_long(&mut stream, &lease, may_fail)?;
        stream.release(lease);
    }
    // Nothing leaked: all slots can be pinned at once.
    let all = stream.request(CLEAN_LAYER, &[0, 1, 2, 3, 4, 5, 6, 7]).unwrap();
    check_long(&mut stream, &all, false)?;
    stream.release(all);
    Ok(())
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
    #![proptest_config(ProptestConfig { cases: 200, failure_persistence: None, ..ProptestConfig::default() })]

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
        run_long(ExpertStream::new(layers, options).unwrap(), &steps, has_faults)?;
    }
}
