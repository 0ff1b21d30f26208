//! What a tensor is for. After `convert`, weights are known by role, layer and expert, never by name.

use std::fmt;

use serde::{Deserialize, Serialize};

/// A dense tensor's place in the forward pass. Shapes are `[rows, cols]`; vectors are `[1, n]`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Role {
    /// `[n_vocab, d_model]`
    Embed,
    /// `[n_vocab, d_model]`; absent when tied to `Embed`.
    LmHead,
    /// `[1, d_model]`. All norm weights are stored as the factor itself (`1 + w` already added).
    FinalNorm,
    /// `[1, d_model]`, before attention or delta-net.
    InputNorm,
    /// `[1, d_model]`, before the experts.
    PostAttentionNorm,
    /// `[n_head·head_dim·(2 if gated), d_model]`
    AttnQ,
    /// `[n_head_kv·head_dim, d_model]`
    AttnK,
    /// `[n_head_kv·head_dim, d_model]`
    AttnV,
    /// `[d_model, n_head·head_dim]`
    AttnO,
    /// `[1, head_dim]`
    AttnQNorm,
    /// `[1, head_dim]`
    AttnKNorm,
    /// `[n_channel, d_model]`: q, k, v one after the other.
    LinearQkv,
    /// `[d_v, d_model]`
    LinearZ,
    /// `[n_head_v, d_model]`
    LinearB,
    /// `[n_head_v, d_model]`
    LinearA,
    /// `[n_channel, n_conv]`; the last tap is the current token.
    LinearConv,
    /// `[1, n_head_v]`: the logarithm, as checkpoints have it.
    LinearALog,
    /// `[1, n_head_v]`
    LinearDtBias,
    /// `[1, head_dim_v]`
    LinearNorm,
    /// `[d_model, d_v]`
    LinearOut,
    /// `[n_expert, d_model]`
    Router,
    /// `[d_ff_shared, d_model]`
    SharedGate,
    /// `[d_ff_shared, d_model]`
    SharedUp,
    /// `[d_model, d_ff_shared]`
    SharedDown,
    /// `[1, d_model]`: the shared expert's sigmoid gate.
    SharedExpertGate,
}

/// The three matrices of a routed expert, in the order a record has them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ExpertPart {
    /// `[d_ff_expert, d_model]`
    Gate,
    /// `[d_ff_expert, d_model]`
    Up,
    /// `[d_model, d_ff_expert]`
    Down,
}

impl ExpertPart {
    /// All three, in record order.
    pub const ALL: [ExpertPart; 3] = [ExpertPart::Gate, ExpertPart::Up, ExpertPart::Down];
}

impl Role {
    /// All roles, in the order the store writes them.
    pub const ALL: [Role; 25] = [
        Role::Embed,
        Role::LmHead,
        Role::FinalNorm,
        Role::InputNorm,
        Role::PostAttentionNorm,
        Role::AttnQ,
        Role::AttnK,
        Role::AttnV,
        Role::AttnO,
        Role::AttnQNorm,
        Role::AttnKNorm,
        Role::LinearQkv,
        Role::LinearZ,
        Role::LinearB,
        Role::LinearA,
        Role::LinearConv,
        Role::LinearALog,
        Role::LinearDtBias,
        Role::LinearNorm,
        Role::LinearOut,
        Role::Router,
        Role::SharedGate,
        Role::SharedUp,
        Role::SharedDown,
        Role::SharedExpertGate,
    ];

    /// Norms, biases, decay and convolution: always F32, never quantised.
    pub fn is_f32(self) -> bool {
        use Role::*;
        matches!(
            self,
            FinalNorm
                | InputNorm
                | PostAttentionNorm
                | AttnQNorm
                | AttnKNorm
                | LinearConv
                | LinearALog
                | LinearDtBias
                | LinearNorm
        )
    }
}

/// The name that the manifest has, such as `attn_q`.
impl fmt::Display for Role {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.serialize(f)
    }
}

/// The name that messages have, such as `gate`.
impl fmt::Display for ExpertPart {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.serialize(f)
    }
}

/// How messages call a dense tensor.
pub(crate) fn tensor_name(role: Role, layer: Option<usize>) -> String {
    match layer {
        Some(layer) => format!("{role} of layer {layer}"),
        None => role.to_string(),
    }
}
