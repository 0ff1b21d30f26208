//! The same models on a GPU, where there is one (Mesa's lavapipe will do).

use std::ops::ControlFlow;

use convert::Bits;
use gpu::Gpu;
use kernels::KvFormat;
use stream::CacheMode;

use super::rig::*;
use crate::{Engine, Logits, ModelError, Prefetch};

/// Bound on a logit's error.
const BOUND: f64 = 1e-3;
/// Experts that some tests let the device hold: those of the small models, and what is of no use.
const ALL_EXPERTS: u64 = 64 << 20;

/// The GPU that `FLASH_MOE_TEST_GPU` names (a number), or the best one; `None`, loudly, where there is none.
fn gpu() -> Option<Gpu> {
    let index = std::env::var("FLASH_MOE_TEST_GPU").ok();
    let index = index.map(|n| n.parse().expect("FLASH_MOE_TEST_GPU is a number"));
    Gpu::open(index).inspect_err(|error| eprintln!("SKIPPED: no GPU to test ({error})")).ok()
}

fn check(engine: &mut Engine<Gpu>, what: &str, golden: &Golden) {
    for calls in [&[150][..], &[1], &[70, 33, 1], &[64], &[63, 1, 86]] {
        let diff = max_diff(&logits_in_calls(engine, &golden.ids, calls), &golden.logits);
        assert!(diff <= BOUND, "{what} in calls of {calls:?}: off by {diff:.2e}");
    }
}

#[test]
fn logits_of_all_architectures_on_a_gpu() {
    // Would break: any formula of the forward pass, prefill, steps, or continuation from a filled state, on a device.
    for checkpoint in ["qwen3_5_moe", "qwen3_5_moe_8l", "qwen3_next", "qwen3_moe"] {
        let Some(gpu) = gpu() else { return };
        let packed = pack(checkpoint, Bits::Source);
        let mut engine = Setup::plain().engine_on(gpu, &packed.store);
        check(&mut engine, checkpoint, &golden(checkpoint, "golden.json"));
    }
}

#[test]
fn packed_bits_on_a_gpu_agree_with_the_reference() {
    // Would break: a kernel that decodes codes, scales or biases wrongly, whoever holds the experts.
    for bits in [8, 4, 2] {
        let packed = pack("qwen3_5_moe_quantable", Bits::N(bits));
        let golden: Golden = golden("qwen3_5_moe_quantable", &format!("golden_{bits}bit.json"));
        for experts_bytes in [0, ALL_EXPERTS] {
            let Some(gpu) = gpu() else { return };
            let mut engine = Setup::plain().engine_on(gpu.with_experts(experts_bytes), &packed.store);
            engine.hold_all(&mut |_, _| {}).unwrap();
            check(&mut engine, &format!("{bits} bits, {experts_bytes} bytes of experts"), &golden);
        }
    }
}

#[test]
fn memory_and_reads_change_no_bit_on_a_gpu() {
    // Would break: the promise that logits depend neither on where experts are nor on how they get there.
    let packed = pack("qwen3_5_moe_quantable", Bits::N(4));
    let ids = golden::<Golden>("qwen3_5_moe_quantable", "golden_4bit.json").ids;
    let calls = [100, 1, 1, 1, 1, 1, 20, 1];
    let plain = Setup { kv_format: KvFormat::F16, ..Setup::plain() };
    let setups = [
        ("everything resident", plain, 0),
        ("few slots", Setup { n_slot: 5, ..plain }, 0),
        ("two slots", Setup { n_slot: 2, prefetch: Prefetch::Off, ..plain }, 0),
        ("reads ahead", Setup { n_slot: 20, prefetch: Prefetch::On, ..plain }, 0),
        ("small batches", Setup { n_batch: 64, ..plain }, 0),
        ("page cache", Setup { mode: CacheMode::Page, n_slot: 8, ..plain }, 0),
        ("some experts held", Setup { n_slot: 6, ..plain }, 100 << 10),
        ("all experts held", plain, ALL_EXPERTS),
        ("all experts held, small batches", Setup { n_batch: 64, n_slot: 3, ..plain }, ALL_EXPERTS),
    ];
    let mut expected = None;
    for (what, setup, experts_bytes) in setups {
        let Some(gpu) = gpu() else { return };
        let mut engine = setup.engine_on(gpu.with_experts(experts_bytes), &packed.store);
        for round in 0..2 {
            let logits = logits_in_calls(&mut engine, &ids, &calls);
            let what = format!("{what}, round {round}");
            assert_same_bits(&logits, expected.get_or_insert_with(|| logits.clone()), &what);
        }
    }
}

#[test]
fn others_in_the_batch_change_no_bit_on_a_gpu() {
    // Would break: an answer that depends on who else asks: rows, positions or states of sessions that are mixed up.
    let packed = pack("qwen3_5_moe_quantable", Bits::N(4));
    let golden: Golden = golden("qwen3_5_moe_quantable", "golden_4bit.json");
    // One more than logits are computed at a time, about the borders of chunks.
    let prompts = [1, 5, 62, 63, 64, 100, 127, 10, 20];
    for (n_slot, experts_bytes) in [(1000, 0), (4, 0), (6, 100 << 10), (1000, ALL_EXPERTS)] {
        let Some(gpu) = gpu() else { return };
        let setup = Setup { n_slot, ..Setup::plain() };
        let mut engine = setup.engine_on(gpu.with_experts(experts_bytes), &packed.store);
        let alone = prompts.map(|n| logits_in_calls(&mut engine, &golden.ids[..n + 3], &[n, 1]).split_off(n));
        let mut sessions = prompts.map(|_| engine.session(N_CTX));
        for (session, n) in sessions.iter_mut().zip(prompts) {
            logits_of(&mut engine, session, &golden.ids[..n]).unwrap();
        }
        for (step, n) in [9, 3, 1].into_iter().enumerate() {
            let ids: Vec<u32> = prompts[..n].iter().map(|n| golden.ids[n + step]).collect();
            engine.decode(&mut sessions[..n].iter_mut().collect::<Vec<_>>(), &ids).unwrap();
            for (i, session) in sessions[..n].iter().enumerate() {
                let what = format!("session {i} of {n}, step {step}, {n_slot} slots, {experts_bytes} bytes");
                let got = [session.logits().to_vec()];
                assert_same_bits(&got, &alone[i][step..=step], &what);
                let at = prompts[i] + step;
                let diff = max_diff(&got, &golden.logits[at..=at]);
                assert!(diff <= BOUND, "{what}: off by {diff:.2e}");
            }
        }
    }
}

#[test]
fn layers_that_the_device_does_not_hold_fall_back() {
    // Would break: an expert that is missing in the middle of what the device computes by itself: the layers behind it
    // must run again, from the states before them.
    let packed = pack("qwen3_5_moe_quantable", Bits::N(4));
    let ids = golden::<Golden>("qwen3_5_moe_quantable", "golden_4bit.json").ids;
    let Some(gpu) = gpu() else { return };
    let mut asked = Setup::plain().engine_on(gpu, &packed.store);
    let expected = logits_in_calls(&mut asked, &ids, &[1]);
    let Some(gpu) = self::gpu() else { return };
    let mut engine = Setup::plain().engine_on(gpu.with_experts(ALL_EXPERTS), &packed.store);
    engine.hold_all(&mut |_, _| {}).unwrap();
    for lost in [(0, 0), (1, 3), (2, 1), (3, 2)] {
        engine.backend().forget(lost.0, lost.1);
        assert_same_bits(&logits_in_calls(&mut engine, &ids, &[1]), &expected, &format!("without {lost:?}"));
    }
    let stats = engine.stream_stats();
    assert!(0 < stats.n_held, "nothing was held: {stats:?}");
}

#[test]
fn sessions_on_a_gpu_are_saved_and_restored() {
    // Would break: keys, values or states that come back from the device other than they were.
    let Some(gpu) = gpu() else { return };
    let packed = pack("qwen3_5_moe", Bits::Source);
    let ids = golden::<Golden>("qwen3_5_moe", "golden.json").ids;
    let setup = Setup { kv_format: KvFormat::F16, ..Setup::plain() };
    let mut engine = setup.engine_on(gpu, &packed.store);
    let mut session = engine.session(N_CTX);
    logits_of(&mut engine, &mut session, &ids[..90]).unwrap();
    let saved = Saved::of(&engine, &session).unwrap();
    let expected = logits_of(&mut engine, &mut session, &ids[90..]).unwrap();
    let mut restored = engine.session(N_CTX);
    saved.load(&engine, &mut restored, 64).unwrap();
    assert_same_bits(&logits_of(&mut engine, &mut restored, &ids[90..]).unwrap(), &expected, "restored");
    // The same in one call, with states on the way.
    let mut session = engine.session(N_CTX);
    let expected = logits_of(&mut engine, &mut session, &ids).unwrap();
    let mut session = engine.session(N_CTX);
    session.keep_states_at(&[64, 70, 128]);
    let got = logits_of(&mut engine, &mut session, &ids).unwrap();
    assert_same_bits(&got, &expected, "with states on the way");
    let mut states = session.take_states();
    // The last one changes keys and values behind it: its chunk is cut.
    states.swap(1, 2);
    for state in states {
        engine.resume(&mut session, &ids[..state.pos], &state.bytes).unwrap();
        let got = logits_of(&mut engine, &mut session, &ids[state.pos..]).unwrap();
        if state.pos % 64 == 0 {
            assert_same_bits(&got, &expected[state.pos..], "from a state on the way");
        } else {
            let wide = |row: &Vec<f32>| row.iter().map(|&x| f64::from(x)).collect();
            let expected: Vec<Vec<f64>> = expected[state.pos..].iter().map(wide).collect();
            assert!(max_diff(&got, &expected) <= 1e-4, "from {}", state.pos);
        }
    }
}

/// What a device that breaks after `n_layer` layers of the calls leaves behind.
fn check_broken(packed: &Packed, ids: &[u32], calls: &[usize], expected: &[Vec<f32>], n_layer: usize) {
    let Some(gpu) = gpu() else { return };
    let breaker = gpu.breaker();
    let mut engine = Setup::plain().engine_on(gpu, &packed.store);
    let mut session = engine.session(N_CTX);
    let (mut got, mut n_seen, mut at) = (Vec::new(), 0, 0);
    let error = loop {
        let n = calls[at.min(1)].min(ids.len() - got.len());
        let part = &ids[got.len()..got.len() + n];
        let mut sink = |_, row: &[f32]| got.push(row.to_vec());
        let result = engine.forward(&mut session, part, Logits::All(&mut sink), &mut |_| {
            n_seen += 1;
            if n_seen == n_layer {
                breaker();
            }
            ControlFlow::Continue(())
        });
        match result {
            Ok(()) => at += 1,
            Err(error) => break error,
        }
    };
    let what = format!("broken after {n_layer} layers, {} tokens", got.len());
    assert!(matches!(error, ModelError::Backend { .. }), "{what}: {error}");
    assert_same_bits(&got, &expected[..got.len()], &what);
    assert!(matches!(logits_of(&mut engine, &mut session, &[1]), Err(ModelError::Poisoned { .. })), "{what}");
    assert!(Saved::of(&engine, &session).is_err(), "{what}");
    let mut fresh = engine.session(N_CTX);
    assert!(matches!(engine.state(&fresh), Err(ModelError::Backend { .. })), "{what}");
    assert!(matches!(engine.read_kv(&fresh, 0..0, &mut []), Err(ModelError::Backend { .. })), "{what}");
    assert!(matches!(logits_of(&mut engine, &mut fresh, &[1]), Err(ModelError::Backend { .. })), "{what}");
}

#[test]
fn a_device_lost_in_the_middle_of_an_answer_is_an_error() {
    // Would break: a token of a layer that nobody computed.
    let packed = pack("qwen3_5_moe", Bits::Source);
    let ids = &golden::<Golden>("qwen3_5_moe", "golden.json").ids[..80];
    let Some(well) = gpu() else { return };
    let expected = logits_in_calls(&mut Setup::plain().engine_on(well, &packed.store), ids, &[70, 1]);
    // In the prompt, behind its last layer, and in each layer of a later token.
    for n_layer in [1, 3, 4, 5, 12, 13, 14, 15, 16] {
        check_broken(&packed, ids, &[70, 1], &expected, n_layer);
    }
}

#[test]
fn a_model_that_does_not_fit_is_not_loaded() {
    // Would break: a model of whose weights some are nowhere.
    let packed = pack("qwen3_moe", Bits::Source);
    let Some(gpu) = gpu() else { return };
    gpu.breaker()();
    let error = Engine::load(&packed.store, gpu, Setup::plain().options(), &mut |_| {}).err();
    assert!(matches!(error, Some(ModelError::Backend { .. } | ModelError::Stream(_))), "{error:?}");
}
