//! The mixture of experts (spec 2.6), the only place that waits for reads.
//!
//! Experts are requested in file order and may arrive in any order; each (token, choice) pair has its own output
//! row and the rows are summed in router order, so nothing about memory or I/O can change a bit.

use std::collections::VecDeque;

use kernels::{Backend, ExpertJob};
use store::ExpertLayer;
use stream::Lease;

use super::Pass;
use crate::ModelError;
use crate::routing::{Grouped, Routes};
use crate::timing::{Lap, Phase};
use crate::weights::Moe;

/// Most experts of a group: enough to keep a drive busy while the group before is computed, few enough that the first
/// group is there soon. More than any model uses for one token.
const N_GROUP_MAX: usize = 32;

/// Host-side buffers of the experts' bookkeeping, reused from layer to layer.
#[derive(Debug, Default)]
pub(crate) struct MoeScratch {
    /// `[n_token, n_expert]`
    logits: Vec<f32>,
    routes: Routes,
    grouped: Grouped,
}

impl<B: Backend> Pass<'_, B> {
    /// `x += Σ_j weight_j · expert_j(h) + σ(gate · h) · shared(h)`.
    pub(super) fn experts(&mut self, layer: usize, w: &Moe<B>, lap: &mut Lap) -> Result<(), ModelError> {
        let (n, n_expert, k) = (self.n_token, self.config.n_expert, self.n_expert_used);
        let mut moe = std::mem::take(self.moe);
        self.backend.matmul(&w.router, &self.scratch.h, 0, n, &mut self.scratch.router);
        moe.logits.resize(n * n_expert, 0.0);
        self.backend.read(&self.scratch.router, 0, &mut moe.logits);
        moe.routes
            .choose(&moe.logits, n_expert, k, self.config.norm_topk_prob)
            .map_err(|_| ModelError::NonFinite { layer })?;
        moe.grouped.group(&moe.routes.experts, k, n_expert);
        self.timing.add(layer, Phase::Router, lap.take());

        self.routed(layer, w, &moe.grouped, lap)?;
        let dims = (n, k, self.config.d_model);
        let s = &mut *self.scratch;
        self.backend.combine(&mut s.x, &s.routed, &moe.routes.weights, w.shared.as_ref().map(|_| &s.y), dims);
        self.timing.add(layer, Phase::Experts, lap.take());
        *self.moe = moe;
        Ok(())
    }

    /// Fills `scratch.routed`, and `scratch.y` with the shared expert while the first reads are under way.
    ///
    /// A batch that needs many experts, or more than there are slots, takes them in groups, two at a time: one
    /// computes, the next one reads.
    fn routed(
        &mut self,
        layer: usize,
        w: &Moe<B>,
        grouped: &Grouped,
        lap: &mut Lap,
    ) -> Result<(), ModelError> {
        let n_active = grouped.experts.len();
        let n_slot = self.stream.n_slot();
        let n_group =
            if n_active <= n_slot.min(N_GROUP_MAX) { n_active } else { (n_slot / 2).clamp(1, N_GROUP_MAX) };
        let mut leases = VecDeque::with_capacity(2);
        let mut result = self.request(layer, grouped, 0..n_group.min(n_active), &mut leases);
        self.timing.add(layer, Phase::Router, lap.take());
        if let Some(shared) = &w.shared {
            let s = &mut *self.scratch;
            let ffn = (&shared.gate, &shared.up, &shared.down);
            self.backend.shared_expert(ffn, &shared.expert_gate, &s.h, self.n_token, &mut s.y);
            self.timing.add(layer, Phase::Shared, lap.take());
        }
        let mut start = 0;
        while result.is_ok() && start < n_active {
            let end = (start + n_group).min(n_active);
            if end < n_active {
                result = self.request(layer, grouped, end..(end + n_group).min(n_active), &mut leases);
            }
            let lease = leases.pop_front().expect("this group was requested one turn ago");
            if result.is_ok() {
                result = self.group(layer, grouped, start, &lease, lap);
            }
            self.stream.release(lease);
            start = end;
        }
        leases.into_iter().for_each(|lease| self.stream.release(lease));
        result
    }

    /// Asks for a group of experts.
    fn request(
        &mut self,
        layer: usize,
        grouped: &Grouped,
        group: std::ops::Range<usize>,
        leases: &mut VecDeque<Lease>,
    ) -> Result<(), ModelError> {
        leases.push_back(self.stream.request(layer, &grouped.experts[group])?);
        Ok(())
    }

    /// Waits for one group, whose first expert is number `start` of `grouped`, and computes it.
    fn group(
        &mut self,
        layer: usize,
        grouped: &Grouped,
        start: usize,
        lease: &Lease,
        lap: &mut Lap,
    ) -> Result<(), ModelError> {
        let waited = self.stream.wait(lease);
        self.timing.add(layer, Phase::ReadWait, lap.take());
        waited?;
        let jobs: Vec<ExpertJob<'_>> = (0..lease.experts.len())
            .map(|i| {
                let record = self.stream.record(lease, i);
                let [gate, up, down] = ExpertLayer::parts(&self.formats[layer], self.config, record);
                ExpertJob { gate, up, down, rows: grouped.rows_of(start + i) }
            })
            .collect();
        self.backend.experts(&jobs, &self.scratch.h, &mut self.scratch.routed);
        self.timing.add(layer, Phase::Experts, lap.take());
        Ok(())
    }
}
