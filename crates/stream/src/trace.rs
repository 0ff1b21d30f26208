//! Which experts each token used in each layer: recorded, written, read back, replayed.

/// The router's choices for a number of tokens.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RoutingTrace {
    /// Layers.
    pub n_layer: usize,
    /// Experts a token uses in a layer.
    pub n_expert_used: usize,
    /// `[n_token, n_layer, n_expert_used]`
    pub experts: Vec<u32>,
}

impl RoutingTrace {
    /// Tokens.
    pub fn n_token(&self) -> usize {
        self.experts.len().checked_div(self.n_layer * self.n_expert_used).unwrap_or(0)
    }

    /// The experts of one token in one layer, best first.
    ///
    /// # Panics
    /// There is no such token or layer.
    pub fn at(&self, token: usize, layer: usize) -> &[u32] {
        assert!(layer < self.n_layer, "layer {layer} of {}", self.n_layer);
        let k = self.n_expert_used;
        &self.experts[(token * self.n_layer + layer) * k..][..k]
    }
}
