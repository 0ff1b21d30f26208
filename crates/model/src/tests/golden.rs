//! Logits, block outputs and states against the float64 reference.

use std::sync::{Arc, Mutex};

use convert::Bits;
use kernels::{Backend, KvFormat, Reference};

use super::rig::*;
use crate::Engine;
use crate::session::LayerState;

/// Bound on a logit's error: f32 arithmetic over 4 and over 8 layers (spec 7).
const BOUND_4: f64 = 1e-4;
const BOUND_8: f64 = 5e-4;

/// Bounds on a logit's error where keys and values are rounded, of 8 layers, 2 of them with attention: two to three
/// times what was seen. The logits are about 1.
const KV_BOUNDS: [(KvFormat, f64); 4] =
    [(KvFormat::F32, BOUND_8), (KvFormat::F16, 4e-3), (KvFormat::Bf16, 3e-2), (KvFormat::Q8, 0.1)];
/// Tokens before the one at which two experts are so near to each other that q8 changes the choice.
const N_BEFORE_TIE: usize = 142;

/// Every way of cutting 150 tokens into calls that must give the same logits.
const CALLS: [&[usize]; 8] = [&[150], &[1], &[70, 33, 1], &[7], &[64], &[63, 1, 86], &[65, 20], &[128, 1]];

fn check(checkpoint: &str, bound: f64) {
    let packed = pack(checkpoint, Bits::Source);
    let golden: Golden = golden(checkpoint, "golden.json");
    let mut engine = Setup::plain().engine(&packed.store);
    for calls in CALLS {
        let diff = max_diff(&logits_in_calls(&mut engine, &golden.ids, calls), &golden.logits);
        assert!(diff <= bound, "{checkpoint} in calls of {calls:?}: off by {diff:.2e}");
    }
}

#[test]
fn qwen3_5_moe_logits() {
    // Would break: any formula of the forward pass, prefill, steps, or continuation from a filled state.
    check("qwen3_5_moe", BOUND_4);
}

#[test]
fn qwen3_5_moe_logits_of_eight_layers() {
    // Would break: errors that grow with depth, a second full-attention layer.
    check("qwen3_5_moe_8l", BOUND_8);
}

#[test]
fn qwen3_next_logits() {
    // Would break: the regrouping of fused projections, per-expert tensors.
    check("qwen3_next", BOUND_4);
}

#[test]
fn qwen3_moe_logits() {
    // Would break: attention without a gate, rotary over the whole head, plain norms, no shared expert.
    check("qwen3_moe", BOUND_4);
}

#[test]
fn random_splits_agree() {
    // Would break: a state that is right only at the borders that other tests use.
    let packed = pack("qwen3_5_moe", Bits::Source);
    let golden: Golden = golden("qwen3_5_moe", "golden.json");
    let mut engine = Setup { n_slot: 3, ..Setup::plain() }.engine(&packed.store);
    let mut seed = 0x5eed_0001_u64;
    for _ in 0..10 {
        let start = seed;
        let calls: Vec<usize> = (0..150)
            .map(|_| {
                seed = seed.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
                1 + (seed >> 33) as usize % 40
            })
            .collect();
        let diff = max_diff(&logits_in_calls(&mut engine, &golden.ids, &calls), &golden.logits);
        assert!(diff <= BOUND_4, "seed {start:#x}: off by {diff:.2e}");
    }
}

#[test]
fn the_scalar_reference_agrees() {
    // Would break: a mistake that the reference backend and the fast one share would still show here, and one that
    // only the fast one has shows in the tests above.
    let packed = pack("qwen3_5_moe", Bits::Source);
    let golden: Golden = golden("qwen3_5_moe", "golden.json");
    let mut engine = Engine::load(&packed.store, Reference, Setup::plain().options(), &mut |_| {}).unwrap();
    for calls in [&[150][..], &[70, 33, 1]] {
        let diff = max_diff(&logits_in_calls(&mut engine, &golden.ids, calls), &golden.logits);
        assert!(diff <= BOUND_4, "in calls of {calls:?}: off by {diff:.2e}");
    }
}

#[test]
fn packed_bits_agree_with_the_reference_on_dequantised_weights() {
    // Would break: a kernel that decodes codes, scales or biases wrongly.
    for bits in [8, 4, 2] {
        let packed = pack("qwen3_5_moe_quantable", Bits::N(bits));
        let golden: Golden = golden("qwen3_5_moe_quantable", &format!("golden_{bits}bit.json"));
        let mut engine = Setup::plain().engine(&packed.store);
        for calls in [&[150][..], &[70, 33, 1]] {
            let diff = max_diff(&logits_in_calls(&mut engine, &golden.ids, calls), &golden.logits);
            assert!(diff <= BOUND_4, "{bits} bits in calls of {calls:?}: off by {diff:.2e}");
        }
    }
}

#[test]
fn keys_and_values_in_fewer_bits_stay_near() {
    // Would break: a format that a layer, a restart of a batch or the reference backend takes for another.
    let packed = pack("qwen3_5_moe_8l", Bits::Source);
    let golden: Golden = golden("qwen3_5_moe_8l", "golden.json");
    let near = |got: &[Vec<f32>]| max_diff(&got[..N_BEFORE_TIE], &golden.logits[..N_BEFORE_TIE]);
    for (kv_format, bound) in KV_BOUNDS {
        let setup = Setup { kv_format, ..Setup::plain() };
        let mut engine = setup.engine(&packed.store);
        for calls in [&[150][..], &[70, 33, 1]] {
            let diff = near(&logits_in_calls(&mut engine, &golden.ids, calls));
            assert!(diff <= bound, "{kv_format} in calls of {calls:?}: off by {diff:.2e}");
        }
        let mut reference = Engine::load(&packed.store, Reference, setup.options(), &mut |_| {}).unwrap();
        let diff = near(&logits_in_calls(&mut reference, &golden.ids, &[150]));
        assert!(diff <= bound, "{kv_format}, reference backend: off by {diff:.2e}");
    }
}

#[test]
fn block_outputs_and_final_states() {
    // Would break: two errors that cancel in the logits; a state that is stored after the SiLU or transposed.
    let packed = pack("qwen3_5_moe", Bits::Source);
    let ids = golden::<Golden>("qwen3_5_moe", "golden.json").ids;
    let blocks: GoldenBlocks = golden("qwen3_5_moe", "golden.json");
    let mut engine = Setup::plain().engine(&packed.store);
    let d_model = engine.config().d_model;
    let seen = Arc::new(Mutex::new(Vec::new()));
    let (sink, positions) = (seen.clone(), blocks.block_positions.clone());
    engine.set_trace(move |backend, _, x| {
        for &pos in &positions {
            let mut row = vec![0.0; d_model];
            backend.read(x, pos * d_model, &mut row);
            sink.lock().unwrap().push(row);
        }
    });
    let mut session = engine.session(N_CTX);
    logits_of(&mut engine, &mut session, &ids).unwrap();
    let diff = max_diff(&seen.lock().unwrap(), &blocks.block_outputs.concat());
    assert!(diff <= BOUND_4, "block outputs are off by {diff:.2e}");

    assert_eq!(blocks.linear_states.len(), 2);
    for golden in blocks.linear_states {
        let LayerState::DeltaNet(state) = &session.layers[golden.layer] else {
            panic!("not a delta-net layer")
        };
        let check = |tensor, expected: Vec<f64>, what| {
            let mut got = vec![0.0; expected.len()];
            engine.backend().read(tensor, 0, &mut got);
            let diff = max_diff(&[got], &[expected]);
            assert!(diff <= 5e-5, "{what} of layer {} is off by {diff:.2e}", golden.layer);
        };
        check(&state.s, golden.s.concat().concat(), "S");
        check(&state.conv, golden.conv.concat(), "conv");
    }
}
