//! The production line behind `pack` and `synth`: units of work are made on several threads and written by one.
//!
//! A unit is one expert record or a block of rows of a dense tensor, so memory is bounded by units in flight and
//! not by the model. Units arrive in any order; each has its place in the store, so the bytes do not depend on it.

use std::ops::Range;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::sync_channel;
use std::thread;

use quant::Format;
use store::{DensePlan, ExpertLayer, ExpertPlan, ModelConfig, StorePlan, StoreWriter};

use crate::ConvertError;
use crate::arrival::Arrivals;
use crate::assembly::role_in_layer;

/// How far a conversion is.
#[derive(Clone, Debug)]
pub struct Progress {
    /// Bytes dealt with: of the source when packing, of the store when there is no source.
    pub done_bytes: u64,
    /// Bytes in all.
    pub total_bytes: u64,
    /// What was dealt with last.
    pub what: String,
}

/// Numbers in a block of rows: 16 MiB as f32, 8 MiB as bf16.
const BLOCK_NUMBERS: usize = 4 << 20;

/// Memory for records and blocks in flight, all threads together.
const IN_FLIGHT_BYTES_MAX: usize = 768 << 20;

/// One piece of work.
#[derive(Clone, Debug)]
pub(crate) enum Unit {
    /// Some rows of dense tensor `idx` of the plan.
    Dense { idx: usize, rows: Range<usize> },
    /// One record.
    Expert { layer: usize, expert: usize },
}

/// What a unit becomes.
pub(crate) enum Piece {
    /// Codes, scales and biases of the rows.
    Dense([Vec<u8>; 3]),
    /// The whole record, padding included.
    Expert(Vec<u8>),
}

/// A plan cut into units, beside the writer that took the plan itself.
pub(crate) struct Work {
    pub(crate) config: ModelConfig,
    pub(crate) dense: Vec<DensePlan>,
    pub(crate) experts: Vec<ExpertPlan>,
    units: Vec<Unit>,
}

impl Work {
    /// Cuts `plan` into units, in file order.
    pub(crate) fn new(plan: &StorePlan) -> Self {
        let mut units = Vec::new();
        for (idx, dense) in plan.dense.iter().enumerate() {
            // Rows that share scales stay together.
            let shared = dense.format.scale_rows();
            let block = (BLOCK_NUMBERS / dense.cols / shared).max(1) * shared;
            units.extend(
                (0..dense.rows)
                    .step_by(block)
                    .map(|start| Unit::Dense { idx, rows: start..(start + block).min(dense.rows) }),
            );
        }
        for layer in 0..plan.experts.len() {
            units.extend((0..plan.config.n_expert).map(|expert| Unit::Expert { layer, expert }));
        }
        let (config, dense, experts) = (plan.config.clone(), plan.dense.clone(), plan.experts.clone());
        Self { config, dense, experts, units }
    }

    /// Makes and writes all units that `writer` lacks, then finishes the store. `arrivals` is told which units these
    /// are, and may bring them into another order.
    ///
    /// `produce` makes a unit's piece, on any thread, with a scratch of its own; `unit_bytes` is what a unit counts
    /// for in `progress`.
    pub(crate) fn run<'a, S: Default>(
        &self,
        mut writer: StoreWriter,
        unit_bytes: impl Fn(&Unit) -> u64,
        produce: impl Fn(&Unit, &mut S) -> Result<Piece, ConvertError> + Sync,
        arrivals: impl FnOnce(&mut [&Unit]) -> Result<Option<Arrivals<'a>>, ConvertError>,
        progress: &mut dyn FnMut(Progress),
    ) -> Result<(), ConvertError> {
        let total_bytes = self.units.iter().map(&unit_bytes).sum();
        let is_there = |unit: &Unit| match *unit {
            Unit::Dense { idx, .. } => writer.has_dense(idx),
            Unit::Expert { layer, expert } => writer.has_expert(layer, expert),
        };
        let (there, mut missing): (Vec<&Unit>, Vec<&Unit>) =
            self.units.iter().partition(|unit| is_there(unit));
        let mut done_bytes = there.into_iter().map(&unit_bytes).sum();
        progress(Progress { done_bytes, total_bytes, what: "starting".into() });
        let arrivals = arrivals(&mut missing)?;

        let mut blocks_left = vec![0usize; self.dense.len()];
        for unit in &missing {
            if let Unit::Dense { idx, .. } = unit {
                blocks_left[*idx] += 1;
            }
        }
        let consume = |i: usize, piece: Piece| {
            let unit = missing[i];
            self.write(&mut writer, unit, piece, &mut blocks_left)?;
            done_bytes += unit_bytes(unit);
            progress(Progress { done_bytes, total_bytes, what: self.name(unit) });
            arrivals.iter().for_each(|arrivals| arrivals.done(i));
            Ok(())
        };
        let produce = |i: usize, scratch: &mut S| {
            arrivals.iter().try_for_each(|arrivals| arrivals.need(i))?;
            produce(missing[i], scratch)
        };
        in_parallel(missing.len(), self.n_worker(), produce, consume)?;
        progress(Progress { done_bytes, total_bytes, what: "finishing".into() });
        Ok(writer.finish()?)
    }

    fn write(
        &self,
        writer: &mut StoreWriter,
        unit: &Unit,
        piece: Piece,
        blocks_left: &mut [usize],
    ) -> Result<(), ConvertError> {
        match (unit, piece) {
            (&Unit::Expert { layer, expert }, Piece::Expert(record)) => {
                writer.put_expert(layer, expert, &record)?
            }
            (Unit::Dense { idx, rows }, Piece::Dense(planes)) => {
                let DensePlan { format, rows: n_row, cols, .. } = self.dense[*idx];
                let places = format.planes(n_row, cols);
                let starts = plane_bytes(format, cols, rows.start);
                for ((place, start), bytes) in places.into_iter().zip(starts).zip(planes) {
                    if !bytes.is_empty() {
                        writer.write_dense(*idx, place.start + start, &bytes)?;
                    }
                }
                blocks_left[*idx] -= 1;
                if blocks_left[*idx] == 0 {
                    writer.finish_dense(*idx)?;
                }
            }
            _ => unreachable!("a unit becomes a piece of its own kind"),
        }
        Ok(())
    }

    fn name(&self, unit: &Unit) -> String {
        match unit {
            Unit::Dense { idx, .. } => role_in_layer(self.dense[*idx].role, self.dense[*idx].layer),
            Unit::Expert { layer, .. } => format!("experts of layer {layer}"),
        }
    }

    /// As many threads as there are cores, fewer if their units would take too much memory together.
    fn n_worker(&self) -> usize {
        let strides = self.experts.iter().map(|e| ExpertLayer::stride_bytes(&e.formats, &self.config));
        // A piece, and the block of the source that it is made from.
        let unit_bytes = strides.max().unwrap_or(0).max(BLOCK_NUMBERS * 4) + BLOCK_NUMBERS * 4;
        let n_core = thread::available_parallelism().map_or(1, usize::from);
        // One more piece waits for the writer, and one is being written.
        (IN_FLIGHT_BYTES_MAX / unit_bytes).saturating_sub(2).clamp(1, n_core)
    }
}

/// Bytes of a row in each plane.
pub(crate) fn row_bytes(format: Format, cols: usize) -> [usize; 3] {
    [format.row_bytes(cols), format.scale_row_bytes(cols), format.bias_row_bytes(cols)]
}

/// Bytes of the first `rows` rows in each plane.
pub(crate) fn plane_bytes(format: Format, cols: usize, rows: usize) -> [usize; 3] {
    format.row_planes(0..rows, cols).map(|range| range.len())
}

/// The planes of a matrix stored in one piece.
pub(crate) fn planes_mut(format: Format, rows: usize, cols: usize, bytes: &mut [u8]) -> [&mut [u8]; 3] {
    let [codes, scales, biases] = format.planes(rows, cols);
    let (head, biases_on) = bytes.split_at_mut(biases.start);
    let (head, scales_on) = head.split_at_mut(scales.start);
    [&mut head[codes], &mut scales_on[..scales.len()], &mut biases_on[..biases.len()]]
}

/// Calls `produce` for `0..n` on `n_worker` threads and `consume` on this one, in order of completion. Stops at the
/// first error.
fn in_parallel<T: Send, S: Default>(
    n: usize,
    n_worker: usize,
    produce: impl Fn(usize, &mut S) -> Result<T, ConvertError> + Sync,
    mut consume: impl FnMut(usize, T) -> Result<(), ConvertError>,
) -> Result<(), ConvertError> {
    let next = AtomicUsize::new(0);
    thread::scope(|scope| {
        let (sender, receiver) = sync_channel(1);
        for _ in 0..n_worker {
            let sender = sender.clone();
            let (next, produce) = (&next, &produce);
            scope.spawn(move || {
                let mut scratch = S::default();
                loop {
                    let i = next.fetch_add(1, Ordering::Relaxed);
                    if i >= n {
                        return;
                    }
                    let piece = produce(i, &mut scratch);
                    // The receiver is gone after an error.
                    let is_last = piece.is_err();
                    if sender.send((i, piece)).is_err() || is_last {
                        return;
                    }
                }
            });
        }
        drop(sender);
        // Owned by the loop: leaving it early closes the channel, which ends the workers.
        for (i, piece) in receiver {
            consume(i, piece?)?;
        }
        Ok(())
    })
}
