//! Qwen3-MoE: full attention everywhere, no shared expert, plain norm weights.

use super::{ATTENTION, MODEL, NORMS, Names, ROUTED};

pub(super) const NAMES: Names = Names {
    prefixes: &["model."],
    model: MODEL,
    layer: &[NORMS, ATTENTION, ROUTED],
    skip: &[],
    zero_centred_norms: false,
};
