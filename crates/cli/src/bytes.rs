//! Parameters and bytes of a store, counted from its manifest.

use std::collections::BTreeMap;

use store::{DenseTensor, ExpertLayer, ExpertPart, Manifest, Role, Store};

/// What a model is made of.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Census {
    /// Weights that are not in routed experts.
    pub(crate) dense_params: u64,
    pub(crate) expert_params: u64,
    /// Weights that one token is multiplied with: all dense ones but the embedding, and the chosen experts.
    pub(crate) active_params: u64,
    /// Bytes of all expert records, padding included.
    pub(crate) expert_bytes: u64,
    /// Dense bytes that one token reads: of the embedding, one row (all of it if it is the head as well).
    pub(crate) dense_bytes_per_token: u64,
    /// Bytes of the records that one token uses.
    pub(crate) expert_bytes_per_token: u64,
    /// By role and format: bytes.
    pub(crate) roles: BTreeMap<(String, String), u64>,
}

impl Census {
    /// Counts, with `n_expert_used` experts a token.
    pub(crate) fn of(store: &Store, n_expert_used: usize) -> Self {
        Self::of_manifest(store.manifest(), n_expert_used)
    }

    /// Counts what a manifest describes.
    pub(crate) fn of_manifest(manifest: &Manifest, n_expert_used: usize) -> Self {
        let config = &manifest.config;
        let (used, all) = (n_expert_used as u64, config.n_expert as u64);
        let params_of = |t: &DenseTensor| (t.rows * t.cols) as u64;
        let bytes_of = |t: &DenseTensor| t.format.matrix_bytes(t.rows, t.cols) as u64;
        let mut roles = BTreeMap::new();
        let (mut dense_params, mut active_params, mut dense_bytes_per_token) = (0, 0, 0);
        for tensor in &manifest.dense {
            dense_params += params_of(tensor);
            let is_lookup = tensor.role == Role::Embed && !config.tie_word_embeddings;
            active_params += if is_lookup { 0 } else { params_of(tensor) };
            dense_bytes_per_token += bytes_of(tensor) / if is_lookup { tensor.rows.max(1) as u64 } else { 1 };
            *roles.entry((tensor.role.to_string(), tensor.format.to_string())).or_insert(0) +=
                bytes_of(tensor);
        }
        let (mut expert_bytes, mut expert_params) = (0, 0);
        for layer in &manifest.experts {
            expert_bytes += all * ExpertLayer::stride_bytes(&layer.formats, config) as u64;
            for (part, format) in ExpertPart::ALL.into_iter().zip(layer.formats) {
                let (rows, cols) = ExpertLayer::shape(config, part);
                expert_params += all * (rows * cols) as u64;
                let bytes = all * format.matrix_bytes(rows, cols) as u64;
                *roles.entry((format!("expert_{part}"), format.to_string())).or_insert(0) += bytes;
            }
        }
        Self {
            dense_params,
            expert_params,
            active_params: active_params + expert_params / all.max(1) * used,
            expert_bytes,
            dense_bytes_per_token,
            expert_bytes_per_token: expert_bytes / all.max(1) * used,
            roles,
        }
    }
}
