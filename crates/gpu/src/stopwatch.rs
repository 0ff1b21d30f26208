//! Times of the device by phase: each phase is a pass of its own, and passes write timestamps.

use std::time::Duration;

use wgpu::{
    Buffer, BufferDescriptor, BufferUsages, CommandEncoder, ComputePassTimestampWrites, Device, QuerySet,
    QuerySetDescriptor, QueryType,
};

/// Timestamps of one read: two a pass. What comes after is not measured.
const N_QUERY: u32 = 4096;

/// Passes since the last read.
pub(crate) struct Stopwatch {
    queries: QuerySet,
    /// `[N_QUERY]` ticks, on the device.
    ticks: Buffer,
    tick_s: f64,
    /// What each pass belongs to, once it is known: layer and phase.
    passes: Vec<Option<(usize, usize)>>,
    /// Read, and not asked for yet.
    measured: Vec<(usize, usize, Duration)>,
}

impl Stopwatch {
    pub(crate) fn new(device: &Device, tick_s: f64) -> Self {
        let ty = QueryType::Timestamp;
        Self {
            queries: device.create_query_set(&QuerySetDescriptor { label: None, ty, count: N_QUERY }),
            ticks: device.create_buffer(&BufferDescriptor {
                label: None,
                size: u64::from(N_QUERY) * 8,
                usage: BufferUsages::QUERY_RESOLVE | BufferUsages::COPY_SRC,
                mapped_at_creation: false,
            }),
            tick_s,
            passes: Vec::new(),
            measured: Vec::new(),
        }
    }

    /// What the pass that begins now writes.
    pub(crate) fn begin(&mut self) -> Option<ComputePassTimestampWrites<'_>> {
        let at = 2 * self.passes.len() as u32;
        if N_QUERY < at + 2 {
            return None;
        }
        self.passes.push(None);
        Some(ComputePassTimestampWrites {
            query_set: &self.queries,
            beginning_of_pass_write_index: Some(at),
            end_of_pass_write_index: Some(at + 1),
        })
    }

    /// The passes since the last mark belong to this.
    pub(crate) fn mark(&mut self, layer: usize, phase: usize) {
        self.passes
            .iter_mut()
            .rev()
            .take_while(|pass| pass.is_none())
            .for_each(|p| *p = Some((layer, phase)));
    }

    /// Bytes of the ticks to read.
    pub(crate) fn n_byte(&self) -> u64 {
        self.passes.len() as u64 * 16
    }

    /// Has the ticks copied to `to` from byte `at` on.
    pub(crate) fn resolve(&self, encoder: &mut CommandEncoder, to: &Buffer, at: u64) {
        if !self.passes.is_empty() {
            encoder.resolve_query_set(&self.queries, 0..2 * self.passes.len() as u32, &self.ticks, 0);
            encoder.copy_buffer_to_buffer(&self.ticks, 0, to, at, self.n_byte());
        }
    }

    /// Takes over ticks that were read, two a pass.
    pub(crate) fn take(&mut self, ticks: &[u64]) {
        for (pass, ticks) in self.passes.drain(..).zip(ticks.as_chunks::<2>().0) {
            let time = Duration::from_secs_f64(ticks[1].saturating_sub(ticks[0]) as f64 * self.tick_s);
            // What nobody has marked belongs to no layer: the head.
            self.measured.extend(pass.map(|(layer, phase)| (layer, phase, time)));
        }
    }

    /// What was measured since the last call.
    pub(crate) fn measured(&mut self) -> Vec<(usize, usize, Duration)> {
        std::mem::take(&mut self.measured)
    }
}
