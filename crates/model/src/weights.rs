//! Dense weights bound to their places in the forward pass. Roles are looked up here once and never again.

use kernels::Backend;
use store::{Dense, LayerKind, ModelConfig, Role};

/// The dense part of a model.
pub(crate) struct Weights<B: Backend> {
    /// `[n_vocab, d_model]`
    pub(crate) embed: B::Weights,
    pub(crate) layers: Vec<Layer<B>>,
    /// `[d_model]`
    pub(crate) final_norm: B::Tensor,
    /// `[n_vocab, d_model]`; `None` when the embedding is the head.
    pub(crate) lm_head: Option<B::Weights>,
}

/// One layer without its routed experts.
pub(crate) struct Layer<B: Backend> {
    /// `[d_model]`
    pub(crate) input_norm: B::Tensor,
    pub(crate) mixer: Mixer<B>,
    /// `[d_model]`
    pub(crate) post_attention_norm: B::Tensor,
    pub(crate) moe: Moe<B>,
}

/// What mixes tokens.
pub(crate) enum Mixer<B: Backend> {
    Attention(Attention<B>),
    DeltaNet(DeltaNet<B>),
}

/// Full attention.
pub(crate) struct Attention<B: Backend> {
    /// `[n_head · head_dim (·2 if gated), d_model]`
    pub(crate) q: B::Weights,
    /// `[n_head_kv · head_dim, d_model]`
    pub(crate) k: B::Weights,
    /// `[n_head_kv · head_dim, d_model]`
    pub(crate) v: B::Weights,
    /// `[d_model, n_head · head_dim]`
    pub(crate) o: B::Weights,
    /// `[head_dim]`
    pub(crate) q_norm: B::Tensor,
    /// `[head_dim]`
    pub(crate) k_norm: B::Tensor,
}

/// Gated DeltaNet.
pub(crate) struct DeltaNet<B: Backend> {
    /// `[n_channel, d_model]`
    pub(crate) qkv: B::Weights,
    /// `[d_v, d_model]`
    pub(crate) z: B::Weights,
    /// `[n_head_v, d_model]`
    pub(crate) b: B::Weights,
    /// `[n_head_v, d_model]`
    pub(crate) a: B::Weights,
    /// `[n_conv, n_channel]`
    pub(crate) conv: B::Tensor,
    /// `[n_head_v]` = exp(A_log)
    pub(crate) decay: B::Tensor,
    /// `[n_head_v]`
    pub(crate) dt_bias: B::Tensor,
    /// `[head_dim_v]`
    pub(crate) norm: B::Tensor,
    /// `[d_model, d_v]`
    pub(crate) out: B::Weights,
}

/// Router and shared expert.
pub(crate) struct Moe<B: Backend> {
    /// `[n_expert, d_model]`
    pub(crate) router: B::Weights,
    pub(crate) shared: Option<Shared<B>>,
}

/// The expert that every token uses.
pub(crate) struct Shared<B: Backend> {
    /// `[d_ff_shared, d_model]`
    pub(crate) gate: B::Weights,
    /// `[d_ff_shared, d_model]`
    pub(crate) up: B::Weights,
    /// `[d_model, d_ff_shared]`
    pub(crate) down: B::Weights,
    /// `[1, d_model]`
    pub(crate) expert_gate: B::Weights,
}

impl<B: Backend> Weights<B> {
    /// Binds all tensors that `config` calls for; [`store::Store::open`] has checked that they are there.
    pub(crate) fn bind(backend: &B, config: &ModelConfig, dense: &Dense) -> Self {
        let bind = Binder { backend, dense };
        Self {
            embed: bind.weights(Role::Embed, None),
            layers: (0..config.n_layer()).map(|i| bind.layer(config, i)).collect(),
            final_norm: bind.tensor(Role::FinalNorm, None),
            lm_head: (!config.tie_word_embeddings).then(|| bind.weights(Role::LmHead, None)),
        }
    }
}

struct Binder<'a, B: Backend> {
    backend: &'a B,
    dense: &'a Dense,
}

impl<B: Backend> Binder<'_, B> {
    fn weights(&self, role: Role, layer: Option<usize>) -> B::Weights {
        self.backend.weights(self.dense.matrix(role, layer))
    }

    fn tensor(&self, role: Role, layer: Option<usize>) -> B::Tensor {
        self.upload(&self.dense.vector(role, layer))
    }

    fn upload(&self, values: &[f32]) -> B::Tensor {
        let mut tensor = self.backend.zeros(values.len());
        self.backend.write(&mut tensor, 0, values);
        tensor
    }

    fn layer(&self, config: &ModelConfig, i: usize) -> Layer<B> {
        Layer {
            input_norm: self.tensor(Role::InputNorm, Some(i)),
            mixer: match config.layers[i] {
                LayerKind::FullAttention => Mixer::Attention(self.attention(i)),
                LayerKind::LinearAttention => Mixer::DeltaNet(self.delta_net(config, i)),
            },
            post_attention_norm: self.tensor(Role::PostAttentionNorm, Some(i)),
            moe: Moe {
                router: self.weights(Role::Router, Some(i)),
                shared: (config.d_ff_shared > 0).then(|| self.shared(i)),
            },
        }
    }

    fn attention(&self, i: usize) -> Attention<B> {
        Attention {
            q: self.weights(Role::AttnQ, Some(i)),
            k: self.weights(Role::AttnK, Some(i)),
            v: self.weights(Role::AttnV, Some(i)),
            o: self.weights(Role::AttnO, Some(i)),
            q_norm: self.tensor(Role::AttnQNorm, Some(i)),
            k_norm: self.tensor(Role::AttnKNorm, Some(i)),
        }
    }

    fn delta_net(&self, config: &ModelConfig, i: usize) -> DeltaNet<B> {
        // Stored channel by channel; tap by tap, neighbouring channels are computed together.
        let stored = self.dense.vector(Role::LinearConv, Some(i));
        let n_conv = config.linear.expect("checked when the store was opened").n_conv;
        let conv: Vec<f32> =
            (0..n_conv).flat_map(|tap| stored.iter().skip(tap).step_by(n_conv).copied()).collect();
        let decay: Vec<f32> =
            self.dense.vector(Role::LinearALog, Some(i)).iter().map(|&a| f64::from(a).exp() as f32).collect();
        DeltaNet {
            qkv: self.weights(Role::LinearQkv, Some(i)),
            z: self.weights(Role::LinearZ, Some(i)),
            b: self.weights(Role::LinearB, Some(i)),
            a: self.weights(Role::LinearA, Some(i)),
            conv: self.upload(&conv),
            decay: self.upload(&decay),
            dt_bias: self.tensor(Role::LinearDtBias, Some(i)),
            norm: self.tensor(Role::LinearNorm, Some(i)),
            out: self.weights(Role::LinearOut, Some(i)),
        }
    }

    fn shared(&self, i: usize) -> Shared<B> {
        Shared {
            gate: self.weights(Role::SharedGate, Some(i)),
            up: self.weights(Role::SharedUp, Some(i)),
            down: self.weights(Role::SharedDown, Some(i)),
            expert_gate: self.weights(Role::SharedExpertGate, Some(i)),
        }
    }
}
