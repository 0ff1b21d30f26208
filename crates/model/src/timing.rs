//! Where the time of a forward pass goes, by layer and phase.

use std::time::{Duration, Instant};

use kernels::Backend;

/// The parts of a layer, in the order they run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// Norm and input projections of attention or delta-net.
    Projections,
    /// Convolution and delta rule, or rotary and attention.
    Mixing,
    /// Output projection and residual.
    Output,
    /// Norm, router product and choice of experts.
    Router,
    /// The shared expert, computed while reads are under way.
    Shared,
    /// Waiting for expert reads.
    ReadWait,
    /// Routed experts and their sum.
    Experts,
}

impl Phase {
    /// All phases, in order.
    pub const ALL: [Phase; 7] = [
        Phase::Projections,
        Phase::Mixing,
        Phase::Output,
        Phase::Router,
        Phase::Shared,
        Phase::ReadWait,
        Phase::Experts,
    ];

    /// A column title.
    pub fn name(self) -> &'static str {
        match self {
            Phase::Projections => "projections",
            Phase::Mixing => "mixing",
            Phase::Output => "output",
            Phase::Router => "router",
            Phase::Shared => "shared",
            Phase::ReadWait => "read wait",
            Phase::Experts => "experts",
        }
    }
}

/// Time by layer and phase since it was last taken.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Timing {
    /// `[n_layer][phase]`: of the host, which may run ahead of a device.
    pub layers: Vec<[Duration; Phase::ALL.len()]>,
    /// `[n_layer][phase]`: of a device that was asked to measure ([`kernels::Backend::measure`]); else all 0.
    pub device: Vec<[Duration; Phase::ALL.len()]>,
    /// Embedding rows.
    pub embed: Duration,
    /// Final norm and head.
    pub head: Duration,
    /// Tokens that went through.
    pub n_token: usize,
    /// Batches that they went in.
    pub n_batch: usize,
}

impl Timing {
    pub(crate) fn new(n_layer: usize) -> Self {
        let layers = vec![Default::default(); n_layer];
        Self { device: layers.clone(), layers, ..Self::default() }
    }

    /// Takes over what a device has measured.
    pub(crate) fn add_device<B: Backend>(&mut self, backend: &B) {
        for (layer, phase, time) in backend.measured() {
            self.device[layer][phase] += time;
        }
    }

    pub(crate) fn add(&mut self, layer: usize, phase: Phase, time: Duration) {
        self.layers[layer][phase as usize] += time;
    }

    /// Did a device measure?
    pub fn is_of_device(&self) -> bool {
        self.device.iter().flatten().any(|time| !time.is_zero())
    }

    /// Sum over layers, of the host.
    pub fn phase(&self, phase: Phase) -> Duration {
        self.layers.iter().map(|l| l[phase as usize]).sum()
    }

    /// Everything.
    pub fn total(&self) -> Duration {
        self.embed + self.head + Phase::ALL.iter().map(|&p| self.phase(p)).sum::<Duration>()
    }
}

/// A stopwatch that is read at the end of each phase.
pub(crate) struct Lap(Instant);

impl Lap {
    pub(crate) fn start() -> Self {
        Self(Instant::now())
    }

    /// A phase of a layer is over.
    pub(crate) fn end<B: Backend>(&mut self, backend: &B, timing: &mut Timing, layer: usize, phase: Phase) {
        timing.add(layer, phase, self.take());
        backend.mark(layer, phase as usize);
    }

    /// Time since the start or the last call.
    pub(crate) fn take(&mut self) -> Duration {
        let now = Instant::now();
        let time = now - self.0;
        self.0 = now;
        time
    }
}
