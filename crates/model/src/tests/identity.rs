//! Logits do not depend on memory or I/O, bit for bit.

use std::sync::{Arc, LazyLock};
use std::time::Duration;

use convert::Bits;
use kernels::{Cpu, KvFormat};
use proptest::prelude::*;
use stream::{CacheMode, Method, RecordFile, SimDrive, SimFaults, SimSpec, StreamError, Tuning};

use super::rig::*;
use crate::{Engine, ModelError, Prefetch};

/// A mix of prefill and steps.
const CALLS: &[usize] = &[90, 1, 1, 30, 1];

/// A packed checkpoint, its tokens, and their logits with everything in memory.
struct Case {
    packed: Packed,
    ids: Vec<u32>,
    expected: Vec<Vec<f32>>,
}

static CASES: LazyLock<[Case; 2]> = LazyLock::new(|| {
    [("qwen3_5_moe", Bits::Source), ("qwen3_5_moe_quantable", Bits::N(4))].map(|(checkpoint, bits)| {
        let packed = pack(checkpoint, bits);
        let ids = golden::<Golden>(checkpoint, "golden.json").ids;
        let plain = Setup { kv_format: KvFormat::default(), ..Setup::plain() };
        let expected = logits_in_calls(&mut plain.engine(&packed.store), &ids, CALLS);
        Case { packed, ids, expected }
    })
});

fn wrapped(drive: &Arc<SimDrive>, file: RecordFile) -> RecordFile {
    RecordFile { source: drive.wrap(file.source), ..file }
}

pub(super) fn setups() -> impl Strategy<Value = Setup> {
    let kv_format = KvFormat::default();
    let mode = prop_oneof![3 => Just(CacheMode::Slots), 1 => Just(CacheMode::Page)];
    let n_slot = prop_oneof![2..40_usize, Just(1000)];
    let method = prop_oneof![Just(Method::Pool), Just(Method::Uring)];
    let request_bytes = prop_oneof![Just(16 * 1024), Just(64 * 1024), Just(1 << 30)];
    let tuning = (method, request_bytes, 1..9_usize).prop_map(|(method, request_bytes, depth)| Tuning {
        method,
        request_bytes,
        depth,
    });
    let n_batch = prop_oneof![Just(64), Just(128), Just(256)];
    let prefetch = prop_oneof![Just(Prefetch::Auto), Just(Prefetch::On), Just(Prefetch::Off)];
    (mode, n_slot, tuning, 1..4_usize, n_batch, prefetch).prop_map(
        move |(mode, n_slot, tuning, n_thread, n_batch, prefetch)| Setup {
            mode,
            n_slot,
            tuning,
            n_thread,
            n_batch,
            prefetch,
            kv_format,
        },
    )
}

/// `None` if one read met a fault at each of its attempts, one in a hundred thousand: an error, no wrong logits.
fn logits_unless_unlucky(engine: &mut Engine<Cpu>, ids: &[u32]) -> Option<Vec<Vec<f32>>> {
    match try_logits_in_calls(engine, ids, CALLS) {
        Err(ModelError::Stream(StreamError::Read { .. } | StreamError::Checksum { .. })) => None,
        logits => Some(logits.unwrap()),
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, failure_persistence: None, ..ProptestConfig::default() })]

    /// Experts summed as they arrive, kernels whose result depends on the batch or on how rows are shared out, half a
    /// record computed, a retry that leaves something behind.
    #[test]
    fn nothing_about_memory_or_reads_changes_a_bit(
        case in 0..2_usize,
        setup in setups(),
        seed in any::<u64>(),
        has_drive in any::<bool>(),
        n_slot_later in 2..30_usize,
        is_warm in any::<bool>(),
    ) {
        let Case { packed, ids, expected } = &CASES[case];
        let faults = SimFaults { short: 0.05, eio: 0.01, wrong: 0.01, interrupted: 0.05, ..SimFaults::default() };
        let jitter = Duration::from_micros(200);
        let drive = SimDrive::new(SimSpec { seed, jitter, faults, ..SimSpec::default() });
        let mut engine = match has_drive {
            true => setup.engine_with(&packed.store, |file| wrapped(&drive, file)),
            false => setup.engine(&packed.store),
        };
        let Some(got) = logits_unless_unlucky(&mut engine, ids) else { return Ok(()) };
        assert_same_bits(&got, expected, &format!("first run with {setup:?}"));
        engine.slot_limit().set(n_slot_later);
        if is_warm {
            let heat = engine.heat();
            engine.warm(&heat).unwrap();
        }
        let Some(got) = logits_unless_unlucky(&mut engine, ids) else { return Ok(()) };
        assert_same_bits(&got, expected, &format!("then with {n_slot_later} slots: {setup:?}"));
    }
}

#[test]
fn groups_of_experts_change_no_bit() {
    // Would break: a batch whose experts go through in several groups, by their number or for want of slots.
    let demo = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../cli/demo");
    let store = store::Store::open(&demo).unwrap();
    let ids: Vec<u32> = (0..100_u32).map(|i| i * 7919 % 8192).collect();
    let plain = Setup::plain();
    let expected = logits_in_calls(&mut plain.engine(&store), &ids, CALLS);
    for n_slot in [2, 6, 40, 64, 300] {
        let got = logits_in_calls(&mut Setup { n_slot, ..plain }.engine(&store), &ids, CALLS);
        assert_same_bits(&got, &expected, &format!("{n_slot} slots"));
    }
}
