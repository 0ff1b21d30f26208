//! How much memory a model takes, before any is taken: the numbers that the memory plan is made of.

use kernels::{AttentionShape, Cpu, DELTA_CHUNK, DeltaShape, KvFormat};
use store::{DenseTensor, ExpertLayer, LayerKind, Manifest};

use crate::scratch;
use crate::session::{attention_shape, delta_shape};

/// Bytes that a store needs in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Footprint {
    /// Dense weights, always resident.
    pub dense_bytes: u64,
    /// Full-attention layers: those with keys and values.
    pub n_attention: u64,
    /// Their shapes.
    pub attention: AttentionShape,
    /// Shapes of the delta-net layers, if there are any.
    pub delta: Option<DeltaShape>,
    /// Recurrent and convolution state of one session, f32.
    pub state_bytes: u64,
    /// Logits of one position, f32.
    pub logits_bytes: u64,
    /// Activations of one token of a batch.
    pub scratch_bytes_per_token: u64,
    /// Activations that do not grow with the batch: logits and the delta-net's chunk matrices.
    pub scratch_bytes_fixed: u64,
    /// The largest expert record: one slot.
    pub record_bytes: u64,
    /// Expert records in all.
    pub n_record: u64,
    /// Layers.
    pub n_layer: u64,
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
            n_attention: n_full as u64,
            attention: attention_shape(config),
            delta: delta_shape(config),
            state_bytes: (n_linear * state * 4) as u64,
            logits_bytes: config.n_vocab as u64 * 4,
            scratch_bytes_per_token: scratch::floats_per_token(config) as u64 * 4,
            scratch_bytes_fixed: ((scratch::N_LOGITS + 1) * config.n_vocab + chunk) as u64 * 4,
            record_bytes: record as u64,
            n_record: (config.n_expert * config.n_layer()) as u64,
            n_layer: config.n_layer() as u64,
        }
    }

    /// Keys and values of one token over all layers: what decode reads of each position.
    pub fn kv_bytes_per_token(&self, format: KvFormat) -> u64 {
        self.n_attention * format.position_bytes(self.attention) as u64
    }

    /// Memory for keys and values of `n_ctx` positions over all layers, in whole pages.
    pub fn kv_bytes(&self, format: KvFormat, n_ctx: usize) -> u64 {
        self.n_attention * format.memory_bytes(self.attention, n_ctx) as u64
    }

    /// Activations of a batch of `n_batch` tokens with up to `n_ctx` positions in sight.
    pub fn scratch_bytes(&self, n_batch: usize, n_ctx: usize) -> u64 {
        self.scratch_bytes_fixed
            + n_batch as u64 * self.scratch_bytes_per_token
            + Cpu::attention_scratch_bytes(self.attention, n_ctx) as u64
    }
}
