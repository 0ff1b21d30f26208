//! Checkpoints in the forms that others publish, against the float64 reference on their decoded weights.

use convert::Bits;
use kernels::Reference;

use super::rig::*;
use crate::Engine;

/// Bound on a logit's error, relative to the spread of the logits.
const BOUND: f64 = 1e-3;

/// Originals of every architecture, fused and apart; what mlx-lm makes of them; FP8.
const FORMS: [&str; 11] = [
    "qwen3_5_moe",
    "qwen3_next",
    "qwen3_moe",
    "forms/fp8",
    "forms/mlx_4bit",
    "forms/mlx_mixed",
    "forms/mlx_f16",
    "forms/mlx_mxfp4",
    "forms/mlx_nvfp4",
    "forms/mlx_next",
    "forms/mlx_qwen3",
];

#[test]
fn every_form_has_the_logits_of_its_decoded_weights() {
    // A name, a scale, a shifted norm or a plane read as another; bytes that packing changes; a kernel that decodes a
    // format wrongly.
    for form in FORMS {
        let golden: Golden = golden(form, "golden.json");
        let bound = BOUND * spread(&golden.logits);
        let packed = pack(form, Bits::Source);
        let in_place = in_place(form);
        assert!(in_place.manifest().is_in_place() && !packed.store.manifest().is_in_place());
        let mut logits = Vec::new();
        for store in [&packed.store, &in_place] {
            let mut engine = Setup::plain().engine(store);
            for calls in [&[golden.ids.len()][..], &[17, 1]] {
                let got = logits_in_calls(&mut engine, &golden.ids, calls);
                let diff = max_diff(&got, &golden.logits);
                assert!(diff <= bound, "{form} in calls of {calls:?}: off by {diff:.2e} of {bound:.2e}");
                logits.push(got);
            }
        }
        assert_same_bits(&logits[2..].concat(), &logits[..2].concat(), form);
    }
}

#[test]
fn the_scalar_reference_agrees_on_every_form() {
    // A mistake of the fast backend that the bound above hides.
    for form in FORMS {
        let golden: Golden = golden(form, "golden.json");
        let mut engine =
            Engine::load(&in_place(form), Reference, Setup::plain().options(), &mut |_| {}).unwrap();
        let diff = max_diff(&logits_in_calls(&mut engine, &golden.ids, &[golden.ids.len()]), &golden.logits);
        let bound = BOUND * spread(&golden.logits);
        assert!(diff <= bound, "{form}: off by {diff:.2e} of {bound:.2e}");
    }
}

#[test]
fn fewer_slots_than_experts_change_nothing() {
    // Records that are put together of pieces while others are evicted.
    for form in ["forms/mlx_mixed", "forms/fp8", "qwen3_5_moe"] {
        let ids = golden::<Golden>(form, "golden.json").ids;
        let logits = |n_slot| {
            let mut engine = Setup { n_slot, ..Setup::plain() }.engine(&in_place(form));
            logits_in_calls(&mut engine, &ids, &[9, 1])
        };
        assert_same_bits(&logits(3), &logits(1000), form);
    }
}
