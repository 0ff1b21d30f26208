//! The mixture of experts (spec 2.6), the only place that waits for reads.
//!
//! Experts are requested in file order and are computed as they arrive, those in memory first; each (token,
//! choice) pair has its own output row and the rows are summed in router order, so nothing about memory or
//! I/O can change a bit.

use arrayvec::ArrayVec;
use kernels::{Backend, ExpertJob};
use store::ExpertLayer;
use stream::Lease;

use super::Pass;
use crate::ModelError;
use crate::engine::Prefetch;
use crate::routing::{Grouped, Routes};
use crate::timing::{Lap, Phase};
use crate::weights::Moe;

/// Most experts of one call of the backend.
const N_JOB_MAX: usize = 32;

/// Host-side buffers of the experts' bookkeeping, reused from layer to layer.
#[derive(Debug, Default)]
pub(crate) struct MoeScratch {
    /// `[n_token, n_expert]`
    logits: Vec<f32>,
    routes: Routes,
    grouped: Grouped,
    /// Experts that a layer will probably need.
    guess: Vec<usize>,
    /// Rows of the residual stream on their way to another place.
    pub(super) rows: Vec<f32>,
}

impl<B: Backend> Pass<'_, B> {
    /// `x += Σ_j weight_j · expert_j(h) + σ(gate · h) · shared(h)`.
    pub(super) fn experts(&mut self, layer: usize, w: &Moe<B>, lap: &mut Lap) -> Result<(), ModelError> {
        let (n, k) = (self.n_token, self.n_expert_used);
        let mut moe = std::mem::take(self.moe);
        self.route(&w.router, &mut moe.logits);
        let (renormalise, forced) = (self.config.norm_topk_prob, self.routing.forced(layer, self.first_row));
        moe.routes
            .choose(&moe.logits, self.config.n_expert, k, renormalise, forced)
            .map_err(|_| ModelError::NonFinite { layer })?;
        self.routing.record(layer, k, &moe.routes.experts);
        let grouped = &mut moe.grouped;
        grouped.group(&moe.routes.experts, k, self.config.n_expert);
        let tokens_of = |place: usize| grouped.rows_of(place).iter().map(|&(token, _)| token as usize);
        let mut lease = self.stream.lease(layer, n, &grouped.experts, tokens_of);
        self.timing.add(layer, Phase::Router, lap.take());
        if let Some(shared) = &w.shared {
            let s = &mut *self.scratch;
            let ffn = (&shared.gate, &shared.up, &shared.down);
            self.backend.shared_expert(ffn, &shared.expert_gate, &s.h, n, &mut s.y);
            self.timing.add(layer, Phase::Shared, lap.take());
        }
        let result = self.routed(&mut lease, grouped, lap);
        self.stream.release(lease);
        result?;
        let (s, dims) = (&mut *self.scratch, (n, k, self.config.d_model));
        self.backend.combine(&mut s.x, &s.routed, &moe.routes.weights, w.shared.as_ref().map(|_| &s.y), dims);
        self.timing.add(layer, Phase::Experts, lap.take());
        *self.moe = moe;
        Ok(())
    }

    /// Fills `scratch.routed` with the outputs of the lease's experts, in the order in which they come.
    fn routed(&mut self, lease: &mut Lease, grouped: &Grouped, lap: &mut Lap) -> Result<(), ModelError> {
        let layer = lease.layer();
        loop {
            let more = self.stream.next(lease, N_JOB_MAX);
            self.timing.add(layer, Phase::ReadWait, lap.take());
            if !more? {
                return Ok(());
            }
            let job = |&place: &usize| {
                let record = self.stream.record(lease, place);
                let [gate, up, down] = ExpertLayer::parts(&self.formats[layer], self.config, record);
                ExpertJob { gate, up, down, rows: grouped.rows_of(place) }
            };
            let jobs: ArrayVec<ExpertJob<'_>, N_JOB_MAX> = lease.ready().iter().map(job).collect();
            self.backend.experts(&jobs, &self.scratch.h, &mut self.scratch.routed);
            self.timing.add(layer, Phase::Experts, lap.take());
        }
    }

    /// Applies the layer's router to its input, before attention or delta-net have added to it, and has the
    /// experts that this chooses read: mostly the same that the layer will choose, and the drive is idle now.
    /// A chunk of a prompt needs almost all experts that any guess names.
    pub(super) fn guess(&mut self, layer: usize, norm: &B::Tensor, w: &Moe<B>, lap: &mut Lap) {
        let pays = match self.prefetch {
            Prefetch::Off => false,
            Prefetch::On => true,
            Prefetch::Auto => self.stream.prefetch_pays(layer, self.n_token),
        };
        if !pays {
            return;
        }
        let mut moe = std::mem::take(self.moe);
        self.norm(norm);
        self.route(&w.router, &mut moe.logits);
        // Numbers that are not finite are an error when the layer itself routes.
        let chosen = moe.routes.choose(&moe.logits, self.config.n_expert, self.n_expert_used, false, None);
        if chosen.is_ok() {
            moe.grouped.likeliest(
                &moe.routes.experts,
                self.n_expert_used,
                self.config.n_expert,
                &mut moe.guess,
            );
            self.stream.prefetch(layer, &moe.guess);
        }
        *self.moe = moe;
        self.timing.add(layer, Phase::Router, lap.take());
    }

    /// Router logits of `scratch.h`, `[n_token, n_expert]`.
    fn route(&mut self, router: &B::Weights, logits: &mut Vec<f32>) {
        self.backend.matmul(router, &self.scratch.h, 0, self.n_token, &mut self.scratch.router);
        logits.resize(self.n_token * self.config.n_expert, 0.0);
        self.backend.read(&self.scratch.router, 0, logits);
    }
}
