//! What can go wrong between ids and logits.

use kernels::Backend;
use store::StoreError;
use stream::StreamError;

/// A forward pass, or the loading of a model, that failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ModelError {
    /// The weights cannot be read.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// An expert cannot be read. The session is poisoned.
    #[error(transparent)]
    Stream(#[from] StreamError),
    /// An earlier error left this session's state undefined.
    #[error("this session failed earlier ({why}) and cannot go on; start a new one")]
    Poisoned {
        /// The earlier error.
        why: String,
    },
    /// The caller asked to stop. The session stands at the last finished chunk.
    #[error("interrupted")]
    Interrupted,
    /// The tokens do not fit the context.
    #[error("{n_token} more tokens do not fit: {pos} of {n_ctx} context positions are used")]
    ContextFull {
        /// Tokens to be added.
        n_token: usize,
        /// Tokens there are.
        pos: usize,
        /// The context.
        n_ctx: usize,
    },
    /// One of the sessions of a batch, or its token, is refused. Nothing was fed to any of them.
    #[error("number {session_idx} of the batch: {source}")]
    Refused {
        /// Its place in the batch.
        session_idx: usize,
        /// Why.
        source: Box<ModelError>,
    },
    /// A token id outside the vocabulary.
    #[error("token id {id} is outside the vocabulary of {n_vocab}")]
    TokenRange {
        /// The id.
        id: u32,
        /// Rows of the embedding.
        n_vocab: usize,
    },
    /// A number that is not one: the weights are damaged or overflow.
    #[error("layer {layer}: the router's output is not finite (damaged weights, or an overflow)")]
    NonFinite {
        /// The layer.
        layer: usize,
    },
    /// The device that computes failed. The session is poisoned.
    #[error("{what}")]
    Backend {
        /// What happened.
        what: String,
    },
    /// More or fewer experts than the model has.
    #[error("{asked} experts a token asked for, the model has {n_expert}")]
    ExpertCount {
        /// `--experts`.
        asked: usize,
        /// Experts a layer.
        n_expert: usize,
    },
    /// A routing trace that is replayed has no more tokens.
    #[error("the routing trace ends after {n_token} tokens")]
    TraceEnd {
        /// Tokens of the trace.
        n_token: usize,
    },
    /// A routing trace of another model.
    #[error(
        "the routing trace has {n_layer} layers with {n_expert_used} experts a token, up to number {expert_max}: not this model"
    )]
    TraceShape {
        /// Layers of the trace.
        n_layer: usize,
        /// Its experts a token.
        n_expert_used: usize,
        /// Its highest expert.
        expert_max: u32,
    },
    /// A state, or keys and values, of another history, model or shape.
    #[error("this saved state does not belong here: {why}")]
    State {
        /// What differs.
        why: String,
    },
}

impl ModelError {
    /// The expert that could not be had, in the layer that was computed.
    pub(crate) fn expert(&self) -> Option<usize> {
        match self {
            Self::Stream(StreamError::Read { expert, .. } | StreamError::Checksum { expert, .. }) => {
                Some(*expert)
            }
            _ => None,
        }
    }
}

/// Is it still well?
pub(crate) fn check_backend<B: Backend>(backend: &B) -> Result<(), ModelError> {
    backend.failure().map_or(Ok(()), |what| Err(ModelError::Backend { what }))
}
