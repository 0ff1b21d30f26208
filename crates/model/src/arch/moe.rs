//! The mixture of experts (spec 2.6), the only place that waits for reads.
//!
//! Experts are requested in file order and are computed as they arrive, those in memory first; each (token,
//! choice) pair has its own output row and the rows are summed in router order, so nothing about memory or
//! I/O can change a bit.

use arrayvec::ArrayVec;
use kernels::{
    Backend, ExpertJob, HeldJob, Mixture, NonFinite, Norm, Precision, RouteShape, Routes, SharedJob,
};
use store::ExpertLayer;
use stream::{ExpertStream, Lease};

use super::Pass;
use crate::ModelError;
use crate::engine::Prefetch;
use crate::observe::observe_experts;
use crate::routing::Grouped;
use crate::timing::{Lap, Phase};
use crate::weights::{Moe, Shared};

/// Most experts of one call of the backend.
const N_JOB_MAX: usize = 32;

/// What the next layer will probably choose.
#[derive(Debug, Default)]
struct Guess {
    routes: Routes,
    grouped: Grouped,
    /// Its experts, the likeliest first.
    experts: Vec<usize>,
}

/// What a router is applied to.
#[derive(Clone, Copy)]
enum Input {
    /// `scratch.h`
    Layer,
    /// `scratch.guess`
    Guess,
}

/// Host-side buffers of the experts' bookkeeping, reused from layer to layer.
#[derive(Debug, Default)]
pub(crate) struct MoeScratch {
    routes: Routes,
    /// Experts to take whatever the router says, `[n_token · k]`.
    forced: Vec<u32>,
    grouped: Grouped,
    /// The last layer's lease, if the backend may still be reading its records.
    held: Option<Lease>,
    guess: Guess,
    /// Layers whose mixture the backend computes by itself, and what it chose there, `[layers, k]`.
    by_itself: Vec<usize>,
    chosen: Vec<u32>,
    /// Rows of the shared expert.
    shared_rows: Vec<(u32, u32)>,
    /// Rows of the residual stream on their way to another place.
    pub(super) rows: Vec<f32>,
    /// Tokens that are the reason for the last error, if it has to do with tokens at all.
    pub(super) failed: Vec<usize>,
}

impl<B: Backend> Pass<'_, B> {
    /// `x += Σ_j weight_j · expert_j(h) + σ(gate · h) · shared(h)`.
    pub(super) fn experts(
        &mut self,
        layer: usize,
        w: &Moe<B>,
        must_ask: bool,
        lap: &mut Lap,
    ) -> Result<(), ModelError> {
        let mut moe = std::mem::take(self.moe);
        moe.failed.clear();
        self.observe(Some(layer), store::Input::Experts, self.n_token);
        self.observe_shared(layer, w);
        self.route(w, Input::Layer, self.n_token);
        // Behind the rows of the routed experts.
        let (n, k) = (self.n_token, self.n_expert_used);
        moe.shared_rows.clear();
        moe.shared_rows.extend((0..n as u32).map(|t| (t, (n * k) as u32 + t)));
        let result = if !must_ask && self.mixture(layer, w, &moe.shared_rows) {
            moe.by_itself.push(layer);
            lap.end(self.backend, self.timing, layer, Phase::Experts);
            Ok(())
        } else {
            self.ask(layer, w, &mut moe, lap)
        };
        *self.moe = moe;
        result
    }

    /// Has the backend route and compute a single token's mixture by itself, if it can and nobody wants to know.
    fn mixture(&mut self, layer: usize, w: &Moe<B>, shared_rows: &[(u32, u32)]) -> bool {
        let is_seen = self.is_watched || !self.routing.is_own();
        if self.n_token != 1 || is_seen || !self.stream.trusts_held(layer) {
            return false;
        }
        let (shape, eps) = (self.route_shape(), self.config.rms_norm_eps as f32);
        let norm = self.weights.layers.get(layer + 1).map(|next| (&next.input_norm, eps));
        let s = &mut *self.scratch;
        self.backend.mixture(Mixture {
            layer,
            shape,
            logits: &s.router,
            shared: w.shared.as_ref().map(|w| (w.job(shared_rows), &s.shared_gate)),
            h: &mut s.h,
            routed: &mut s.routed,
            x: &mut s.x,
            norm,
        })
    }

    /// Takes note of what the backend chose by itself since the last call; the first layer where it could not.
    pub(super) fn note_mixtures(&mut self) -> Option<usize> {
        let MoeScratch { by_itself, chosen, .. } = self.moe;
        if by_itself.is_empty() {
            return None;
        }
        chosen.clear();
        let stopped = self.backend.stopped(chosen);
        for (&layer, chosen) in by_itself.iter().zip(chosen.chunks_exact(self.n_expert_used)) {
            self.stream.note_held(layer, chosen.iter().map(|&expert| expert as usize));
        }
        by_itself.clear();
        stopped
    }

    /// The mixture with a choice on the host, which has records read that are not in memory.
    fn ask(
        &mut self,
        layer: usize,
        w: &Moe<B>,
        moe: &mut MoeScratch,
        lap: &mut Lap,
    ) -> Result<(), ModelError> {
        let (n, k) = (self.n_token, self.n_expert_used);
        let forced = self.routing.forced(layer, (self.first_row, n), &mut moe.forced).then_some(&*moe.forced);
        let chosen = self.choose(n, forced, &mut moe.routes);
        // The backend has done all that came before the choice.
        moe.held.take().into_iter().for_each(|lease| self.stream.release(lease));
        self.check()?;
        chosen.map_err(|NonFinite { row }| {
            moe.failed.push(row);
            ModelError::NonFinite { layer }
        })?;
        self.routing.record(layer, k, &moe.routes.experts);
        moe.grouped.group(&moe.routes.experts, k, self.config.n_expert);
        let mut lease = self.stream.lease(layer, n, &moe.grouped.experts, moe.grouped.tokens_of());
        self.guess(layer + 1, moe);
        lap.end(self.backend, self.timing, layer, Phase::Router);
        let shared = w.shared.as_ref().map(|w| w.job(&moe.shared_rows));
        let result = self.compute(&mut lease, shared, &moe.grouped, lap);
        self.stream.note_use(&mut lease, &moe.grouped.tokens_of());
        if result.is_ok() && self.backend.borrows_records() {
            moe.held = Some(lease);
        } else {
            self.backend.finish();
            self.stream.release(lease);
        }
        result.inspect_err(|error| {
            let expert = error.expert().and_then(|expert| moe.grouped.experts.binary_search(&expert).ok());
            moe.failed.extend(expert.into_iter().flat_map(moe.grouped.tokens_of()));
        })?;
        let (d, eps) = (self.config.d_model, self.config.rms_norm_eps as f32);
        let next = self.weights.layers.get(layer + 1);
        let s = &mut *self.scratch;
        let gate = w.shared.as_ref().map(|_| &s.shared_gate);
        let norm = next.map(|next| Norm { weight: &next.input_norm, d, eps, out: &mut s.h });
        self.backend.combine_norm(&mut s.x, &s.routed, &moe.routes.weights, gate, (n, k, d), norm);
        lap.end(self.backend, self.timing, layer, Phase::Experts);
        Ok(())
    }

    /// Fills `scratch.routed` with the outputs of the shared expert and of the lease's experts, in the order in which
    /// they come.
    fn compute(
        &mut self,
        lease: &mut Lease,
        mut shared: Option<SharedJob<'_, B::Weights>>,
        grouped: &Grouped,
        lap: &mut Lap,
    ) -> Result<(), ModelError> {
        let layer = lease.layer();
        if shared.is_some() && (lease.must_read() || !lease.held().is_empty()) {
            // While the first reads are under way; and there may be nothing else that comes.
            let s = &mut *self.scratch;
            self.backend.experts(&[], shared.take(), &s.h, &mut s.routed);
            lap.end(self.backend, self.timing, layer, Phase::Shared);
        }
        if !lease.held().is_empty() {
            let job =
                |&place: &usize| HeldJob { expert: lease.experts()[place], rows: grouped.rows_of(place) };
            let jobs: Vec<HeldJob<'_>> = lease.held().iter().map(job).collect();
            self.backend.experts_held(layer, &jobs, &self.scratch.h, &mut self.scratch.routed);
            lap.end(self.backend, self.timing, layer, Phase::Experts);
        }
        loop {
            let more = if self.backend.borrows_records() {
                self.stream.next_keeping(lease, N_JOB_MAX, &mut || self.backend.finish())
            } else {
                self.stream.next(lease, N_JOB_MAX)
            };
            lap.end(self.backend, self.timing, layer, Phase::ReadWait);
            if !more? {
                return Ok(());
            }
            {
                let job = |&place: &usize| {
                    let record = self.stream.record(lease, place);
                    let [gate, up, down] = ExpertLayer::parts(&self.formats[layer], self.config, record);
                    ExpertJob { gate, up, down, rows: grouped.rows_of(place) }
                };
                let jobs: ArrayVec<ExpertJob<'_>, N_JOB_MAX> = lease.ready().iter().map(job).collect();
                if let Some(observer) = &mut self.observer {
                    let experts = lease.ready().iter().map(|&place| lease.experts()[place]);
                    observe_experts(observer, self.backend, layer, experts.zip(&jobs), &self.scratch.h);
                }
                self.backend.experts(&jobs, shared.take(), &self.scratch.h, &mut self.scratch.routed);
            }
            // A prompt uses almost all: it pushes out nothing.
            hand_over(self.backend, self.stream, lease, self.n_token == self.n_session);
            lap.end(self.backend, self.timing, layer, Phase::Experts);
        }
    }

    /// Applies a layer's router to the residual stream as it is now, and has the experts that this chooses read: most
    /// of them are those that the layer will choose. Called while the layer before waits for its reads, so it costs
    /// nothing there, and its reads fill the time until the layer itself has routed.
    pub(super) fn guess(&mut self, layer: usize, moe: &mut MoeScratch) {
        let Some(next) = self.weights.layers.get(layer) else { return };
        // Only the wanted tokens go through the last layer's experts.
        let is_last = layer + 1 == self.weights.layers.len();
        let n = if is_last { self.n_wanted } else { self.n_token };
        let pays = match self.prefetch {
            Prefetch::Off => false,
            Prefetch::On => true,
            Prefetch::Auto => self.stream.prefetch_pays(layer, n),
        };
        if n == 0 || !pays {
            return;
        }
        let (s, eps) = (&mut *self.scratch, self.config.rms_norm_eps as f32);
        self.backend.rms_norm(&s.x, &next.post_attention_norm, eps, self.n_token, &mut s.guess);
        self.route(&next.moe, Input::Guess, n);
        let (n_expert, k, guess) = (self.config.n_expert, self.n_expert_used, &mut moe.guess);
        // Numbers that are not finite are an error when the layer itself routes.
        if self.choose(n, None, &mut guess.routes).is_ok() {
            guess.grouped.likeliest(&guess.routes.experts, k, n_expert, &mut guess.experts);
            self.stream.prefetch(layer, &guess.experts);
        }
    }

    /// Router logits of the last `n` tokens, `[n, n_expert]`, into `scratch.router`; for the layer itself also the
    /// shared expert's gate.
    fn route(&mut self, w: &Moe<B>, input: Input, n: usize) {
        let (s, first) = (&mut *self.scratch, self.n_token - n);
        let router = (&w.router, &mut s.router);
        match (input, &w.shared) {
            (Input::Layer, Some(shared)) => {
                let products = &mut [router, (&shared.expert_gate, &mut s.shared_gate)];
                self.backend.matmul(products, &s.h, first, n, Precision::Full);
            }
            (Input::Layer, None) => self.backend.matmul(&mut [router], &s.h, first, n, Precision::Full),
            (Input::Guess, _) => self.backend.matmul(&mut [router], &s.guess, first, n, Precision::Full),
        }
    }

    /// What the router's logits of `n` tokens choose.
    fn choose(&self, n: usize, forced: Option<&[u32]>, routes: &mut Routes) -> Result<(), NonFinite> {
        self.backend.choose(&self.scratch.router, self.route_shape(), n, forced, routes)
    }

    fn route_shape(&self) -> RouteShape {
        let config = self.config;
        RouteShape { n_expert: config.n_expert, k: self.n_expert_used, renormalise: config.norm_topk_prob }
    }
}

impl<B: Backend> Shared<B> {
    fn job<'a>(&'a self, rows: &'a [(u32, u32)]) -> SharedJob<'a, B::Weights> {
        SharedJob { gate: &self.gate, up: &self.up, down: &self.down, rows }
    }
}

/// Gives the backend the experts that it should hold itself, of those that are in memory now; whether others may go for
/// them.
pub(crate) fn hand_over<B: Backend>(backend: &B, stream: &mut ExpertStream, lease: &Lease, may_evict: bool) {
    for &place in lease.ready() {
        if let Some(a) = stream.admit(lease, place, may_evict) {
            backend.hold(a.layer, a.expert, stream.record(lease, place), a.place, a.instead);
        }
    }
}
