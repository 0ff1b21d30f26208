//! Qwen3.5, 3.6 and 3.8 MoE. The multimodal files have the text model under `model.language_model.`, conversions
//! for MLX under `language_model.model.`.

use super::{ATTENTION, LINEAR, LINEAR_SEPARATE, MODEL, NORMS, Names, ROUTED, SHARED, Skip};

pub(super) const NAMES: Names = Names {
    prefixes: &["model.language_model.", "language_model.model.", "model."],
    model: MODEL,
    layer: &[NORMS, ATTENTION, LINEAR, LINEAR_SEPARATE, ROUTED, SHARED],
    skip: &[
        ("model.visual.", Skip::Vision),
        ("visual.", Skip::Vision),
        ("vision_tower.", Skip::Vision),
        ("mtp.", Skip::Mtp),
        ("model.mtp.", Skip::Mtp),
        ("language_model.mtp.", Skip::Mtp),
        ("language_model.model.mtp.", Skip::Mtp),
    ],
    zero_centred_norms: true,
};
