//! Qwen3-Next: the input projections of linear attention are fused, their rows grouped by key head.

use std::ops::Range;

use store::{LinearAttention, Role};

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

impl Grouped {
    /// The rows of the fused tensor that make up each role, in the role's order.
    pub(crate) fn rows(self, linear: &LinearAttention) -> Vec<(Role, Vec<Range<usize>>)> {
        let n_head_v_per_k = linear.n_head_v / linear.n_head_k;
        let (d_k, d_v) = (linear.head_dim_k, n_head_v_per_k * linear.head_dim_v);
        // What one key head has, in order: role and rows. Parts of a role are neighbours.
        let parts: &[(Role, usize)] = match self {
            Grouped::Qkvz => &[
                (Role::LinearQkv, d_k),
                (Role::LinearQkv, d_k),
                (Role::LinearQkv, d_v),
                (Role::LinearZ, d_v),
            ],
            Grouped::Ba => &[(Role::LinearB, n_head_v_per_k), (Role::LinearA, n_head_v_per_k)],
        };
        let head_rows: usize = parts.iter().map(|(_, n)| n).sum();
        let mut by_role: Vec<(Role, Vec<Range<usize>>)> = Vec::new();
        let mut start = 0;
        for &(role, n) in parts {
            let heads =
                (0..linear.n_head_k).map(|head| head * head_rows + start..head * head_rows + start + n);
            match by_role.last_mut() {
                Some((last, rows)) if *last == role => rows.extend(heads),
                _ => by_role.push((role, heads.collect())),
            }
            start += n;
        }
        by_role
    }
}
