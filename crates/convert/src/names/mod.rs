//! Checkpoint tensor names, one table an architecture: name -> role, layer, expert.
//!
//! The only place where such names exist. A new family is a new file here. Tables are data: suffixes of the
//! layer's prefix and what they mean; [`classify`] does the parsing for all of them.

mod qwen3_5_moe;
mod qwen3_moe;
mod qwen3_next;

use store::{Architecture, ExpertPart, Role};

/// What a tensor holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Target {
    /// All rows of one role.
    Dense { role: Role, layer: Option<usize> },
    /// Rows of several linear-attention roles, grouped by key head.
    Grouped { group: Grouped, layer: usize },
    /// One matrix of one expert.
    Expert { part: ExpertPart, layer: usize, expert: usize },
    /// Matrices of all experts of a layer.
    ///
    /// `[n_expert, rows of the parts together, cols]`: an expert has all rows of the first part, then of the next.
    Experts { parts: &'static [ExpertPart], layer: usize },
    /// Recognised and left out.
    Skip(Skip),
}

/// Fused projections of Qwen3-Next: rows of one key head after the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Grouped {
    /// A key head has its q rows, its k rows, the v rows of its value heads, the z rows of the same.
    Qkvz,
    /// A key head has the b rows of its value heads, the a rows of the same.
    Ba,
}

/// Why a tensor is left out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Skip {
    /// Image encoder: this engine reads text.
    Vision,
    /// Multi-token prediction head.
    Mtp,
    /// Rotary tables, computed here.
    Rotary,
    /// A head in a checkpoint whose configuration ties it to the embedding.
    TiedHead,
}

impl Skip {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Skip::Vision => "vision",
            Skip::Mtp => "multi-token prediction",
            Skip::Rotary => "rotary table",
            Skip::TiedHead => "head tied to the embedding",
        }
    }
}

/// What a suffix inside a layer means.
#[derive(Clone, Copy)]
enum Part {
    Dense(Role),
    Grouped(Grouped),
    Experts(&'static [ExpertPart]),
}

/// The names of one architecture.
struct Names {
    /// What may come before `embed_tokens`, `norm` and `layers`.
    prefixes: &'static [&'static str],
    /// Outside the layers, after the prefix.
    model: &'static [(&'static str, Role)],
    /// Inside a layer, after `layers.N.`; several tables that families share.
    layer: &'static [&'static [(&'static str, Part)]],
    /// Whole-name prefixes of what is left out.
    skip: &'static [(&'static str, Skip)],
    /// Norm weights are stored as the distance from 1, but for `linear_attn.norm`.
    zero_centred_norms: bool,
}

const MODEL: &[(&str, Role)] = &[("embed_tokens.weight", Role::Embed), ("norm.weight", Role::FinalNorm)];

/// The head is outside the model; the second is MLX's.
const HEADS: &[&str] = &["lm_head.weight", "language_model.lm_head.weight"];

const NORMS: &[(&str, Part)] = &[
    ("input_layernorm.weight", Part::Dense(Role::InputNorm)),
    ("post_attention_layernorm.weight", Part::Dense(Role::PostAttentionNorm)),
];

const ATTENTION: &[(&str, Part)] = &[
    ("self_attn.q_proj.weight", Part::Dense(Role::AttnQ)),
    ("self_attn.k_proj.weight", Part::Dense(Role::AttnK)),
    ("self_attn.v_proj.weight", Part::Dense(Role::AttnV)),
    ("self_attn.o_proj.weight", Part::Dense(Role::AttnO)),
    ("self_attn.q_norm.weight", Part::Dense(Role::AttnQNorm)),
    ("self_attn.k_norm.weight", Part::Dense(Role::AttnKNorm)),
];

/// Linear attention, but for its input projections.
const LINEAR: &[(&str, Part)] = &[
    ("linear_attn.conv1d.weight", Part::Dense(Role::LinearConv)),
    ("linear_attn.A_log", Part::Dense(Role::LinearALog)),
    ("linear_attn.dt_bias", Part::Dense(Role::LinearDtBias)),
    ("linear_attn.norm.weight", Part::Dense(Role::LinearNorm)),
    ("linear_attn.out_proj.weight", Part::Dense(Role::LinearOut)),
];

const LINEAR_SEPARATE: &[(&str, Part)] = &[
    ("linear_attn.in_proj_qkv.weight", Part::Dense(Role::LinearQkv)),
    ("linear_attn.in_proj_z.weight", Part::Dense(Role::LinearZ)),
    ("linear_attn.in_proj_b.weight", Part::Dense(Role::LinearB)),
    ("linear_attn.in_proj_a.weight", Part::Dense(Role::LinearA)),
];

const ROUTED: &[(&str, Part)] = &[
    ("mlp.gate.weight", Part::Dense(Role::Router)),
    ("mlp.experts.gate_up_proj", Part::Experts(&[ExpertPart::Gate, ExpertPart::Up])),
    ("mlp.experts.down_proj", Part::Experts(&[ExpertPart::Down])),
    // As conversions for MLX have them.
    ("mlp.switch_mlp.gate_proj.weight", Part::Experts(&[ExpertPart::Gate])),
    ("mlp.switch_mlp.up_proj.weight", Part::Experts(&[ExpertPart::Up])),
    ("mlp.switch_mlp.down_proj.weight", Part::Experts(&[ExpertPart::Down])),
];

const SHARED: &[(&str, Part)] = &[
    ("mlp.shared_expert.gate_proj.weight", Part::Dense(Role::SharedGate)),
    ("mlp.shared_expert.up_proj.weight", Part::Dense(Role::SharedUp)),
    ("mlp.shared_expert.down_proj.weight", Part::Dense(Role::SharedDown)),
    ("mlp.shared_expert_gate.weight", Part::Dense(Role::SharedExpertGate)),
];

/// Matrices of an expert that has tensors of its own: `mlp.experts.E.…`.
const EXPERT: &[(&str, ExpertPart)] = &[
    ("gate_proj.weight", ExpertPart::Gate),
    ("up_proj.weight", ExpertPart::Up),
    ("down_proj.weight", ExpertPart::Down),
];

fn names(architecture: Architecture) -> &'static Names {
    match architecture {
        Architecture::Qwen35Moe => &qwen3_5_moe::NAMES,
        Architecture::Qwen3Next => &qwen3_next::NAMES,
        Architecture::Qwen3Moe => &qwen3_moe::NAMES,
    }
}

/// What tensor `name` holds; `None` if the architecture has no such name.
pub(crate) fn classify(architecture: Architecture, name: &str) -> Option<Target> {
    let names = names(architecture);
    if let Some((_, skip)) = names.skip.iter().find(|(prefix, _)| name.starts_with(prefix)) {
        return Some(Target::Skip(*skip));
    }
    if name.ends_with(".rotary_emb.inv_freq") {
        return Some(Target::Skip(Skip::Rotary));
    }
    if HEADS.contains(&name) {
        return Some(Target::Dense { role: Role::LmHead, layer: None });
    }
    // The longest prefix is listed first.
    let rest = names.prefixes.iter().find_map(|prefix| name.strip_prefix(prefix))?;
    if let Some((_, role)) = names.model.iter().find(|(suffix, _)| *suffix == rest) {
        return Some(Target::Dense { role: *role, layer: None });
    }
    let (layer, rest) = index(rest.strip_prefix("layers.")?)?;
    if let Some((expert, rest)) = rest.strip_prefix("mlp.experts.").and_then(index) {
        let (_, part) = EXPERT.iter().find(|(suffix, _)| *suffix == rest)?;
        return Some(Target::Expert { part: *part, layer, expert });
    }
    let (_, part) = names.layer.iter().copied().flatten().find(|(suffix, _)| *suffix == rest)?;
    Some(match *part {
        Part::Dense(role) => Target::Dense { role, layer: Some(layer) },
        Part::Grouped(group) => Target::Grouped { group, layer },
        Part::Experts(parts) => Target::Experts { parts, layer },
    })
}

/// `12.rest` as `(12, rest)`. Spellings that nobody writes (`012`, `+1`) are not numbers.
pub(crate) fn index(name: &str) -> Option<(usize, &str)> {
    let (digits, rest) = name.split_once('.')?;
    let canonical = digits.bytes().all(|b| b.is_ascii_digit()) && (digits == "0" || !digits.starts_with('0'));
    if canonical { Some((digits.parse().ok()?, rest)) } else { None }
}

/// Is `role` a norm whose weights are stored as the distance from 1?
pub(crate) fn is_zero_centred(architecture: Architecture, role: Role) -> bool {
    use Role::*;
    let is_norm = matches!(role, FinalNorm | InputNorm | PostAttentionNorm | AttnQNorm | AttnKNorm);
    is_norm && names(architecture).zero_centred_norms
}

/// Does this name only occur in checkpoints converted for MLX?
pub(crate) fn is_mlx(name: &str) -> bool {
    name.starts_with("language_model.") || name.contains(".switch_mlp.")
}

/// A module's name without what stands before its layer, which tools disagree about.
pub(crate) fn module(name: &str) -> &str {
    let prefixes = ["model.language_model.", "language_model.model.", "language_model.", "model."];
    prefixes.iter().find_map(|prefix| name.strip_prefix(prefix)).unwrap_or(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(architecture: Architecture, name: &str, expected: Option<Target>) {
        assert_eq!(classify(architecture, name), expected, "{} {name}", architecture.name());
    }

    #[test]
    fn names_of_all_architectures() {
        // A name read as the wrong role, layer or expert, or a needed tensor left out in silence.
        use Architecture::*;
        let dense = |role, layer| Some(Target::Dense { role, layer });
        check(Qwen35Moe, "model.language_model.embed_tokens.weight", dense(Role::Embed, None));
        check(Qwen35Moe, "model.norm.weight", dense(Role::FinalNorm, None));
        check(Qwen35Moe, "lm_head.weight", dense(Role::LmHead, None));
        check(
            Qwen35Moe,
            "model.language_model.layers.59.self_attn.q_proj.weight",
            dense(Role::AttnQ, Some(59)),
        );
        check(Qwen35Moe, "model.layers.0.linear_attn.in_proj_a.weight", dense(Role::LinearA, Some(0)));
        check(Qwen35Moe, "model.layers.0.linear_attn.in_proj_ba.weight", None);
        let ba = Target::Grouped { group: Grouped::Ba, layer: 3 };
        check(Qwen3Next, "model.layers.3.linear_attn.in_proj_ba.weight", Some(ba));
        let stack = Target::Experts { parts: &[ExpertPart::Gate, ExpertPart::Up], layer: 1 };
        for architecture in [Qwen35Moe, Qwen3Next, Qwen3Moe] {
            let expert = Target::Expert { part: ExpertPart::Down, layer: 7, expert: 511 };
            check(architecture, "model.layers.7.mlp.experts.511.down_proj.weight", Some(expert));
            check(architecture, "model.layers.1.mlp.experts.gate_up_proj", Some(stack));
            check(architecture, "model.layers.07.mlp.gate.weight", None);
            check(architecture, "model.layers.7.mlp.experts.+1.down_proj.weight", None);
            check(architecture, "model.layers.7.mlp.experts.1.down_proj.weight_scale_inv", None);
            check(architecture, "model.layers.99999999999999999999999.mlp.gate.weight", None);
        }
        check(Qwen35Moe, "model.visual.blocks.0.attn.qkv.weight", Some(Target::Skip(Skip::Vision)));
        check(Qwen35Moe, "mtp.layers.0.mlp.gate.weight", Some(Target::Skip(Skip::Mtp)));
        check(Qwen3Moe, "mtp.fc.weight", None);
        // Conversions for MLX.
        check(Qwen35Moe, "language_model.model.norm.weight", dense(Role::FinalNorm, None));
        check(Qwen35Moe, "language_model.lm_head.weight", dense(Role::LmHead, None));
        check(Qwen35Moe, "vision_tower.merger.mlp.0.weight", Some(Target::Skip(Skip::Vision)));
        check(Qwen35Moe, "language_model.mtp.fc.weight", Some(Target::Skip(Skip::Mtp)));
        for architecture in [Qwen35Moe, Qwen3Next, Qwen3Moe] {
            let up = Target::Experts { parts: &[ExpertPart::Up], layer: 5 };
            check(architecture, "model.layers.5.mlp.switch_mlp.up_proj.weight", Some(up));
            check(architecture, "model.layers.5.mlp.switch_mlp.up_proj.scales", None);
        }
        check(Qwen3Moe, "model.layers.0.mlp.shared_expert_gate.weight", None);
        check(Qwen3Moe, "model.layers.0.self_attn.rotary_emb.inv_freq", Some(Target::Skip(Skip::Rotary)));
    }

    #[test]
    fn only_the_right_norms_are_shifted() {
        // A norm shifted twice or not at all: fluent nonsense.
        use Architecture::*;
        for (architecture, role, expected) in [
            (Qwen35Moe, Role::InputNorm, true),
            (Qwen35Moe, Role::AttnKNorm, true),
            (Qwen35Moe, Role::LinearNorm, false),
            (Qwen35Moe, Role::LinearALog, false),
            (Qwen3Next, Role::FinalNorm, true),
            (Qwen3Next, Role::LinearNorm, false),
            (Qwen3Moe, Role::FinalNorm, false),
            (Qwen3Moe, Role::AttnQNorm, false),
        ] {
            assert_eq!(is_zero_centred(architecture, role), expected, "{architecture:?} {role:?}");
        }
    }
}
