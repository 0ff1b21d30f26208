//! What this machine can do, measured in the same run, and how fast that lets a model be.

use std::path::{Path, PathBuf};
use std::time::Duration;

use gpu::{Gpu, GpuError};
use kernels::Cpu;
use serde::Serialize;
use store::{Role, Store};
use stream::Tuning;

use crate::bytes::Census;
use crate::drive::expert_files;
use crate::meter::Cost;

/// Memory and arithmetic are steady: a part of the drive's time is enough.
const COMPUTE_SHARE: u32 = 4;

/// What is measured of a drive: reads of experts, as the engine does them.
pub(crate) struct Probe {
    files: Vec<PathBuf>,
    record_bytes: usize,
    tuning: Tuning,
}

/// What experts come from, in bytes a second.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Ssd {
    /// Not from a drive.
    None,
    /// Drives burst and tire: measured before and after the runs.
    Measured { before: f64, after: f64 },
    /// As the user wants it.
    Simulated(f64),
}

/// Rates of a machine, in bytes or operations a second.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Machine {
    pub(crate) ssd: Ssd,
    pub(crate) ram: f64,
    pub(crate) flop: f64,
}

/// The parts of a model, in bytes and floating-point operations. Attention over the context is not
/// counted.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Parts {
    /// Average over layers.
    record_bytes: f64,
    /// Dense weights of all layers, which each batch reads once.
    dense_bytes: f64,
    /// The head, which is read once where logits are wanted.
    head_bytes: f64,
    /// Of every token.
    token_flops: f64,
    /// Of a token whose logits are wanted, in addition: the head, and the experts of the last layer.
    head_flops: f64,
}

/// What a phase needs at least.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Demand {
    pub(crate) n_token: f64,
    pub(crate) read_bytes: f64,
    pub(crate) touched_bytes: f64,
    pub(crate) flops: f64,
}

/// The part of a machine that a phase cannot be faster than.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Limit {
    Drive,
    Memory,
    Arithmetic,
}

/// The most that a machine allows, if everything overlaps perfectly.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Bound {
    pub(crate) tok_s: f64,
    pub(crate) by: Limit,
}

impl Limit {
    /// For people.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Limit::Drive => "drive",
            Limit::Memory => "memory bandwidth",
            Limit::Arithmetic => "arithmetic",
        }
    }
}

impl Probe {
    /// `None` if the model is not on a drive.
    pub(crate) fn of(store: &Store, parts: &Parts, tuning: Tuning) -> Option<Self> {
        let files = expert_files(store);
        (!files.is_empty()).then_some(Self { files, record_bytes: parts.record_bytes as usize, tuning })
    }

    /// Takes the files out of the system's page cache; false where that cannot be asked for.
    pub(crate) fn forget_pages(&self) -> std::io::Result<bool> {
        self.files.iter().try_fold(true, |all, path| Ok(forget_pages(&std::fs::File::open(path)?)? && all))
    }

    /// Bytes a second of random reads, a record each.
    pub(crate) fn measure(&self, time: Duration) -> std::io::Result<f64> {
        let files: Vec<&Path> = self.files.iter().map(PathBuf::as_path).collect();
        stream::measure_read_bandwidth(&files, self.record_bytes, self.tuning, time)
    }
}

impl Ssd {
    /// Before and after.
    pub(crate) fn measured(self) -> Option<(f64, f64)> {
        match self {
            Ssd::Measured { before, after } => Some((before, after)),
            Ssd::None | Ssd::Simulated(_) => None,
        }
    }

    /// What counts.
    pub(crate) fn rate(self) -> Option<f64> {
        match self {
            Ssd::None => None,
            Ssd::Measured { before, after } => Some((before + after) / 2.0),
            Ssd::Simulated(rate) => Some(rate),
        }
    }

    /// For people.
    pub(crate) fn describe(self) -> String {
        let rate = self.rate().unwrap_or_default() / 1e9;
        match self {
            Ssd::None => "no drive".into(),
            Ssd::Simulated(_) => format!("simulated drive {rate:.2} GB/s"),
            Ssd::Measured { before, after } => {
                format!("drive {rate:.2} GB/s ({:.2} before, {:.2} after)", before / 1e9, after / 1e9)
            }
        }
    }
}

impl Machine {
    /// Measures memory and arithmetic of GPU number `gpu`, or else of the CPU; what the drive does is known already.
    /// Takes up to 1 GiB of memory meanwhile.
    ///
    /// # Errors
    /// The GPU fails.
    pub(crate) fn measure(
        gpu: Option<usize>,
        n_thread: usize,
        ssd: Ssd,
        drive_time: Duration,
    ) -> Result<Self, GpuError> {
        if gpu.is_some() {
            let gpu = Gpu::open_untested(gpu)?;
            return Ok(Self { ssd, ram: gpu.measure_read_bandwidth()?, flop: gpu.measure_flop_rate()? });
        }
        let cpu = Cpu::new(n_thread);
        let time = drive_time / COMPUTE_SHARE;
        Ok(Self { ssd, ram: cpu.measure_ram_bandwidth(time), flop: cpu.measure_flop_rate(time) })
    }

    /// Tokens a second that `demand` allows; `None` if it demands nothing.
    pub(crate) fn bound(&self, demand: &Demand) -> Option<Bound> {
        let seconds = [
            (Limit::Drive, self.ssd.rate().map_or(0.0, |ssd| demand.read_bytes / ssd)),
            (Limit::Memory, demand.touched_bytes / self.ram),
            (Limit::Arithmetic, demand.flops / self.flop),
        ];
        let (by, seconds) = seconds.into_iter().max_by(|a, b| a.1.total_cmp(&b.1))?;
        let tok_s = demand.n_token / seconds;
        (tok_s > 0.0 && tok_s.is_finite()).then_some(Bound { tok_s, by })
    }
}

impl Parts {
    pub(crate) fn of(store: &Store, n_expert_used: usize) -> Self {
        let config = store.config();
        let census = Census::of(store, n_expert_used);
        let n_record = (config.n_layer() * config.n_expert).max(1) as f64;
        let head = if config.tie_word_embeddings { Role::Embed } else { Role::LmHead };
        let last = config.n_layer().checked_sub(1);
        let expert_flops = 2.0 * census.expert_params as f64 / n_record * n_expert_used as f64;
        let mut parts = Self {
            record_bytes: census.expert_bytes as f64 / n_record,
            dense_bytes: 0.0,
            head_bytes: 0.0,
            token_flops: expert_flops * last.unwrap_or(0) as f64,
            head_flops: expert_flops,
        };
        for tensor in &store.manifest().dense {
            let bytes = tensor.format.matrix_bytes(tensor.rows, tensor.cols) as f64;
            let flops = 2.0 * (tensor.rows * tensor.cols) as f64;
            match tensor.role {
                role if role == head => {
                    (parts.head_bytes, parts.head_flops) = (bytes, parts.head_flops + flops)
                }
                // A lookup of some rows.
                Role::Embed => {}
                role => {
                    let is_wanted_only = tensor.layer == last && is_beside_experts(role);
                    parts.dense_bytes += bytes;
                    *(if is_wanted_only { &mut parts.head_flops } else { &mut parts.token_flops }) += flops;
                }
            }
        }
        parts
    }

    /// Average over layers.
    pub(crate) fn record_bytes(&self) -> f64 {
        self.record_bytes
    }

    /// Of what was done: `n_head` times logits. Only records that had to come from the drive count as read, not those
    /// that were read for nothing or twice; behind a page cache (`is_paged`), what the system says that it read.
    pub(crate) fn demand(&self, cost: &Cost, n_head: usize, is_paged: bool) -> Demand {
        let (n_token, n_head) = (cost.counts.n_token as f64, n_head as f64);
        let stream = &cost.counts.stream;
        let read_bytes = match is_paged {
            true => cost.storage_bytes.unwrap_or_default() as f64,
            false => (stream.n_miss + stream.n_prefetch_hit) as f64 * self.record_bytes,
        };
        Demand {
            n_token,
            read_bytes,
            touched_bytes: cost.timing.n_batch as f64 * self.dense_bytes
                + (stream.n_hit + stream.n_miss) as f64 * self.record_bytes
                + n_head * self.head_bytes,
            flops: n_token * self.token_flops + n_head * self.head_flops,
        }
    }
}

/// Is it used with the routed experts, after everything that later tokens depend on?
fn is_beside_experts(role: Role) -> bool {
    matches!(
        role,
        Role::Router | Role::SharedGate | Role::SharedUp | Role::SharedDown | Role::SharedExpertGate
    )
}

#[cfg(target_os = "linux")]
fn forget_pages(file: &std::fs::File) -> std::io::Result<bool> {
    // Pages that are still to be written would stay.
    file.sync_data()?;
    rustix::fs::fadvise(file, 0, None, rustix::fs::Advice::DontNeed)?;
    Ok(true)
}

#[cfg(not(target_os = "linux"))]
fn forget_pages(_file: &std::fs::File) -> std::io::Result<bool> {
    Ok(false)
}

#[cfg(test)]
mod tests {
    use stream::StreamStats;

    use super::*;
    use crate::meter::Counts;

    /// The fraction that is reported would be of something else.
    #[test]
    fn the_slowest_part_is_the_bound() {
        let machine = Machine { ssd: Ssd::Measured { before: 1.5e9, after: 2.5e9 }, ram: 100e9, flop: 1e12 };
        let demand =
            |read_bytes, touched_bytes, flops| Demand { n_token: 4.0, read_bytes, touched_bytes, flops };
        let cases = [
            (demand(16e9, 40e9, 1e12), Some(Bound { tok_s: 0.5, by: Limit::Drive })),
            (demand(0.0, 400e9, 1e12), Some(Bound { tok_s: 1.0, by: Limit::Memory })),
            (demand(1e9, 40e9, 8e12), Some(Bound { tok_s: 0.5, by: Limit::Arithmetic })),
            (demand(0.0, 0.0, 0.0), None),
        ];
        for (demand, expected) in cases {
            assert_eq!(machine.bound(&demand), expected, "{demand:?}");
        }
        let without = Machine { ssd: Ssd::None, ..machine };
        assert_eq!(without.bound(&demand(16e9, 400e9, 0.0)), Some(Bound { tok_s: 1.0, by: Limit::Memory }));
    }

    /// Dense weights would count once a token in prefill too, or reads for nothing would excuse a slow run.
    #[test]
    fn a_batch_reads_dense_weights_once() {
        let parts = Parts {
            record_bytes: 10.0,
            dense_bytes: 1000.0,
            head_bytes: 100.0,
            token_flops: 7.0,
            head_flops: 3.0,
        };
        let stream =
            StreamStats { n_hit: 3, n_miss: 2, n_prefetch_hit: 1, read_bytes: 999, ..Default::default() };
        let counts = Counts { n_token: 64, stream, ..Default::default() };
        let timing = model::Timing { n_batch: 2, ..Default::default() };
        let cost = Cost { counts, timing, storage_bytes: Some(17), ..Default::default() };
        let demand = parts.demand(&cost, 1, false);
        let expected =
            Demand { n_token: 64.0, read_bytes: 30.0, touched_bytes: 2150.0, flops: 64.0 * 7.0 + 3.0 };
        assert_eq!(demand, expected);
        assert_eq!(parts.demand(&cost, 1, true), Demand { read_bytes: 17.0, ..expected });
    }
}
