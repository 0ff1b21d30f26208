//! What the matrices of a model are applied to: several matrices share an input.

use crate::{ExpertPart, LayerKind, ModelConfig, Role};

/// Activations that one or several matrices of a layer are multiplied with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Input {
    /// Of q, k and v of attention, or of qkv, z, b and a of a delta-net: `[d_model]`.
    Mixer,
    /// Of the mixer's output projection: `[n_head·head_dim]` or `[d_v]`.
    MixerOut,
    /// Of the router, of the shared expert's gate, up and sigmoid gate: `[d_model]`.
    Experts,
    /// Of the shared expert's down: `[d_ff_shared]`.
    SharedDown,
    /// Of a routed expert's gate and up, of the tokens that chose it: `[d_model]`.
    Expert(usize),
    /// Of a routed expert's down: `[d_ff_expert]`.
    ExpertDown(usize),
    /// Of the head: `[d_model]`.
    Head,
}

impl Input {
    /// All inputs of a model with their layers, each once: layer by layer, then the head's.
    pub fn all(config: &ModelConfig) -> impl Iterator<Item = (Option<usize>, Input)> {
        let n_expert = config.n_expert;
        let shared = (config.d_ff_shared > 0).then_some(Input::SharedDown);
        let of_layer = move |layer| {
            [Input::Mixer, Input::MixerOut, Input::Experts]
                .into_iter()
                .chain(shared)
                .chain((0..n_expert).map(Input::Expert))
                .chain((0..n_expert).map(Input::ExpertDown))
                .map(move |input| (Some(layer), input))
        };
        (0..config.n_layer()).flat_map(of_layer).chain([(None, Input::Head)])
    }

    /// What a dense role is multiplied with; `None` for the embedding and for what is not a matrix.
    pub fn of_role(role: Role) -> Option<Input> {
        use Role::*;
        match role {
            AttnQ | AttnK | AttnV | LinearQkv | LinearZ | LinearB | LinearA => Some(Input::Mixer),
            AttnO | LinearOut => Some(Input::MixerOut),
            Router | SharedGate | SharedUp | SharedExpertGate => Some(Input::Experts),
            SharedDown => Some(Input::SharedDown),
            LmHead => Some(Input::Head),
            Embed | FinalNorm | InputNorm | PostAttentionNorm | AttnQNorm | AttnKNorm | LinearConv
            | LinearALog | LinearDtBias | LinearNorm => None,
        }
    }

    /// What a matrix of routed expert `expert` is multiplied with.
    pub fn of_expert(part: ExpertPart, expert: usize) -> Input {
        match part {
            ExpertPart::Gate | ExpertPart::Up => Input::Expert(expert),
            ExpertPart::Down => Input::ExpertDown(expert),
        }
    }

    /// Numbers of a token.
    pub fn width(self, config: &ModelConfig, layer: Option<usize>) -> usize {
        let kind = layer.map(|layer| config.layers[layer]);
        match (self, kind, &config.linear) {
            (Input::MixerOut, Some(LayerKind::LinearAttention), Some(linear)) => linear.d_v(),
            (Input::MixerOut, ..) => config.n_head * config.head_dim,
            (Input::SharedDown, ..) => config.d_ff_shared,
            (Input::ExpertDown(_), ..) => config.d_ff_expert,
            (Input::Mixer | Input::Experts | Input::Expert(_) | Input::Head, ..) => config.d_model,
        }
    }
}
