//! How much memory a model takes, before any is taken: the numbers that the memory plan is made of.

use kernels::DELTA_CHUNK;
use store::{DenseTensor, ExpertLayer, LayerKind, Manifest};

use crate::scratch;

/// Bytes that a store needs in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Footprint {
    /// Dense weights, always resident.
    pub dense_bytes: u64,
    /// Keys and values of one token over all full-attention layers, f32.
    pub kv_bytes_per_token: u64,
    /// Recurrent and convolution state of one session, f32.
    pub state_bytes: u64,
    /// Activations of one token of a batch.
    pub scratch_bytes_per_token: u64,
    /// Activations that do not grow with the batch: logits and the delta-net's chunk matrices.
    pub scratch_bytes_fixed: u64,
    /// The largest expert record: one slot.
    pub record_bytes: u64,
    /// Expert records in all.
    pub n_record: u64,
}

impl Footprint {
    /// Reads the numbers off a manifest.
    pub fn of(manifest: &Manifest) -> Self {
        let config = &manifest.config;
        let n_full = config.n_layer_of(LayerKind::FullAttention);
        let n_linear = config.n_layer_of(LayerKind::LinearAttention);
        let state = config
            .linear
            .map_or(0, |l| l.n_head_v * l.head_dim_k * l.head_dim_v + (l.n_conv - 1) * l.n_channel());
        let record =
            manifest.experts.iter().map(|e| ExpertLayer::stride_bytes(&e.formats, config)).max().unwrap_or(0);
        let chunk =
            config.linear.map_or(0, |l| l.n_head_v * DELTA_CHUNK * (2 * DELTA_CHUNK + 2 * l.head_dim_v));
        Self {
            dense_bytes: manifest.dense.iter().map(DenseTensor::bytes).sum(),
            kv_bytes_per_token: (n_full * 2 * config.n_head_kv * config.head_dim * 4) as u64,
            state_bytes: (n_linear * state * 4) as u64,
            scratch_bytes_per_token: scratch::floats_per_token(config) as u64 * 4,
            scratch_bytes_fixed: ((scratch::N_LOGITS + 1) * config.n_vocab + chunk) as u64 * 4,
            record_bytes: record as u64,
            n_record: (config.n_expert * config.n_layer()) as u64,
        }
    }
}
