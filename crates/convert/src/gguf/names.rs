//! Tensor names of GGUF files -> roles, and the orders of rows that these files have.

use std::ops::Range;

use store::{Architecture, ExpertPart, LayerKind, LinearAttention, ModelConfig, Role};

use crate::names::{Grouped, Skip};

/// What a tensor holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Holds {
    /// All rows of one role, of `blk.N` or of the whole model.
    Dense(Role, Option<usize>),
    /// Rows of query, key and value projections, one after the other.
    AttnQkv(usize),
    /// Rows of several linear-attention roles, grouped by key head.
    Grouped(Grouped, usize),
    /// Matrices of all experts.
    Experts(&'static [ExpertPart], usize),
    /// Nothing that is needed.
    Skip(Skip),
}

#[derive(Clone, Copy)]
enum Part {
    Dense(Role),
    /// Queries, keys and values of either kind of layer.
    Qkv,
    Grouped(Grouped),
    Experts(&'static [ExpertPart]),
}

const MODEL: &[(&str, Role)] = &[
    ("token_embd.weight", Role::Embed),
    ("output_norm.weight", Role::FinalNorm),
    ("output.weight", Role::LmHead),
];

const ATTENTION: &[(&str, Part)] = &[
    ("attn_norm.weight", Part::Dense(Role::InputNorm)),
    ("attn_q.weight", Part::Dense(Role::AttnQ)),
    ("attn_k.weight", Part::Dense(Role::AttnK)),
    ("attn_v.weight", Part::Dense(Role::AttnV)),
    ("attn_qkv.weight", Part::Qkv),
    ("attn_output.weight", Part::Dense(Role::AttnO)),
    ("attn_q_norm.weight", Part::Dense(Role::AttnQNorm)),
    ("attn_k_norm.weight", Part::Dense(Role::AttnKNorm)),
];

const EXPERTS: &[(&str, Part)] = &[
    ("ffn_gate_inp.weight", Part::Dense(Role::Router)),
    ("ffn_gate_exps.weight", Part::Experts(&[ExpertPart::Gate])),
    ("ffn_up_exps.weight", Part::Experts(&[ExpertPart::Up])),
    ("ffn_gate_up_exps.weight", Part::Experts(&[ExpertPart::Gate, ExpertPart::Up])),
    ("ffn_down_exps.weight", Part::Experts(&[ExpertPart::Down])),
];

const SHARED: &[(&str, Part)] = &[
    ("ffn_gate_shexp.weight", Part::Dense(Role::SharedGate)),
    ("ffn_up_shexp.weight", Part::Dense(Role::SharedUp)),
    ("ffn_down_shexp.weight", Part::Dense(Role::SharedDown)),
    ("ffn_gate_inp_shexp.weight", Part::Dense(Role::SharedExpertGate)),
];

const LINEAR: &[(&str, Part)] = &[
    ("attn_gate.weight", Part::Dense(Role::LinearZ)),
    ("ssm_conv1d.weight", Part::Dense(Role::LinearConv)),
    ("ssm_a", Part::Dense(Role::LinearALog)),
    ("ssm_dt.bias", Part::Dense(Role::LinearDtBias)),
    ("ssm_norm.weight", Part::Dense(Role::LinearNorm)),
    ("ssm_out.weight", Part::Dense(Role::LinearOut)),
    ("ssm_beta.weight", Part::Dense(Role::LinearB)),
    ("ssm_alpha.weight", Part::Dense(Role::LinearA)),
];

/// The older form of Qwen3-Next's input projections, and their fused b and a.
const LINEAR_GROUPED: &[(&str, Part)] =
    &[("ssm_in.weight", Part::Grouped(Grouped::Qkvz)), ("ssm_ba.weight", Part::Grouped(Grouped::Ba))];

/// Before the experts: of the hybrid architectures, and of Qwen3-MoE.
const HYBRID_NORM: &[(&str, Part)] = &[("post_attention_norm.weight", Part::Dense(Role::PostAttentionNorm))];
const PLAIN_NORM: &[(&str, Part)] = &[("ffn_norm.weight", Part::Dense(Role::PostAttentionNorm))];

/// What tensor `name` of a file of `n_block` blocks holds; `None` if the architecture has no such name.
pub(super) fn classify(config: &ModelConfig, n_block: usize, name: &str) -> Option<Holds> {
    if name == "rope_freqs.weight" {
        return Some(Holds::Skip(Skip::Rotary));
    }
    if let Some((_, role)) = MODEL.iter().find(|(known, _)| *known == name) {
        return Some(Holds::Dense(*role, None));
    }
    let (block, rest) = crate::names::index(name.strip_prefix("blk.")?)?;
    if (config.n_layer()..n_block).contains(&block) {
        return Some(Holds::Skip(Skip::Mtp));
    }
    let tables: &[&[(&str, Part)]] = match config.architecture {
        Architecture::Qwen35Moe => &[ATTENTION, HYBRID_NORM, EXPERTS, SHARED, LINEAR],
        Architecture::Qwen3Next => &[ATTENTION, HYBRID_NORM, EXPERTS, SHARED, LINEAR, LINEAR_GROUPED],
        Architecture::Qwen3Moe => &[ATTENTION, PLAIN_NORM, EXPERTS],
    };
    let (_, part) = tables.iter().copied().flatten().find(|(suffix, _)| *suffix == rest)?;
    Some(match *part {
        Part::Dense(role) => Holds::Dense(role, Some(block)),
        Part::Qkv => match config.layers.get(block)? {
            LayerKind::FullAttention => Holds::AttnQkv(block),
            LayerKind::LinearAttention => Holds::Dense(Role::LinearQkv, Some(block)),
        },
        Part::Grouped(group) => Holds::Grouped(group, block),
        Part::Experts(parts) => Holds::Experts(parts, block),
    })
}

/// Rows of query, key and value of a fused projection of full attention.
pub(super) fn attn_qkv_rows(config: &ModelConfig) -> Vec<(Role, Vec<Range<usize>>)> {
    let (q, kv) = (config.n_head * config.head_dim, config.n_head_kv * config.head_dim);
    let q = if config.attention_gate { 2 * q } else { q };
    let parts = [(Role::AttnQ, 0..q), (Role::AttnK, q..q + kv), (Role::AttnV, q + kv..q + 2 * kv)];
    parts.map(|(role, rows)| (role, std::iter::once(rows).collect())).to_vec()
}

/// Rows of a tensor whose value heads lie tiled, head by head in our order; `None` if `role` has none.
///
/// Of `r` value heads a key head, head `g·r + i` lies at place `i·n_head_k + g`.
pub(super) fn tiled_rows(linear: &LinearAttention, role: Role) -> Option<Vec<Range<usize>>> {
    let n_before = 2 * linear.n_head_k * linear.head_dim_k;
    // Rows before the heads, and rows of a head.
    let (start, n_row) = match role {
        Role::LinearQkv | Role::LinearConv => (n_before, linear.head_dim_v),
        Role::LinearZ => (0, linear.head_dim_v),
        Role::LinearA | Role::LinearB => (0, 1),
        _ => return None,
    };
    let n_value = linear.n_head_v / linear.n_head_k;
    let place = |head: usize| head % n_value * linear.n_head_k + head / n_value;
    let heads = (0..linear.n_head_v).map(|head| {
        let at = start + place(head) * n_row;
        at..at + n_row
    });
    let before = (start > 0).then_some(0..start);
    Some(before.into_iter().chain(heads).collect())
}
