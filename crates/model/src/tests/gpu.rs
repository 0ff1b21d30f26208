//! The same models on a GPU, where there is one (Mesa's lavapipe will do).

use convert::Bits;
use gpu::Gpu;

use super::rig::*;

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
