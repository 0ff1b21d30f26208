//! Qwen3-Next: the input projections of linear attention are fused, their rows grouped by key head.

use super::{ATTENTION, Grouped, LINEAR, LINEAR_SEPARATE, MODEL, NORMS, Names, Part, ROUTED, SHARED, Skip};

const LINEAR_GROUPED: &[(&str, Part)] = &[
    ("linear_attn.in_proj_qkvz.weight", Part::Grouped(Grouped::Qkvz)),
    ("linear_attn.in_proj_ba.weight", Part::Grouped(Grouped::Ba)),
];

pub(super) const NAMES: Names = Names {
    prefixes: &["model."],
    model: MODEL,
    // Some tools re-save it with separate projections.
    layer: &[NORMS, ATTENTION, LINEAR, LINEAR_GROUPED, LINEAR_SEPARATE, ROUTED, SHARED],
    skip: &[("mtp.", Skip::Mtp), ("model.mtp.", Skip::Mtp)],
    zero_centred_norms: true,
};
