//! The same models on a GPU, where there is one (Mesa's lavapipe will do).

use std::ops::ControlFlow;

use convert::Bits;
use gpu::Gpu;

use super::rig::*;
use crate::{Engine, Logits, ModelError};

/// Bound on a logit's error.
const BOUND: f64 = 1e-3;

/// The GPU that `FLASH_MOE_TEST_GPU` names (a number), or the best one; `None`, loudly, where there is none.
fn gpu() -> Option<Gpu> {
    let index =
        std::env::var("FLASH_MOE_TEST_GPU").ok().map(|n| n.parse().expect("FLASH_MOE_TEST_GPU is a number"));
    Gpu::open(index).inspect_err(|error| eprintln!("SKIPPED: no GPU to test ({error})")).ok()
}

fn check(checkpoint: &str) {
    let Some(gpu) = gpu() else { return };
    let packed = pack(checkpoint, Bits::Source);
    let golden: Golden = golden(checkpoint, "golden.json");
    let mut engine = Setup::plain().engine_on(gpu, &packed.store);
    for calls in [&[150][..], &[1], &[70, 33, 1], &[64], &[63, 1, 86]] {
        let diff = max_diff(&logits_in_calls(&mut engine, &golden.ids, calls), &golden.logits);
        assert!(diff <= BOUND, "{checkpoint} in calls of {calls:?}: off by {diff:.2e}");
        eprintln!("{checkpoint} in calls of {calls:?}: off by {diff:.2e}");
    }
}

#[test]
fn qwen3_moe_logits() {
    // Would break: any formula of the forward pass with full attention, prefill, steps, or going on from a filled state.
    check("qwen3_moe");
}

#[test]
fn qwen3_5_moe_logits() {
    // Would break: delta-nets, gates, shared experts.
    check("qwen3_5_moe");
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
    assert!(engine.save(&session, &mut Vec::new()).is_err(), "{what}");
    let mut fresh = engine.session(N_CTX);
    assert!(matches!(engine.snapshot(&fresh), Err(ModelError::Backend { .. })), "{what}");
    assert!(matches!(engine.save(&fresh, &mut Vec::new()), Err(ModelError::Backend { .. })), "{what}");
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
