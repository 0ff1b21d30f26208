//! What a device does in a second, for reports: figures that explain a model's speed.

use std::time::{Duration, Instant};

use crate::context::{Buf, Context};
use crate::kernel::Access::{Read, Write};
use crate::kernel::Kernel;
use crate::{Gpu, GpuError};

pub(crate) static READ: Kernel =
    Kernel { name: "measure_read", wgsl: &[include_str!("wgsl/measure_read.wgsl")], access: &[Read, Write] };

static FLOPS: Kernel =
    Kernel { name: "measure_flops", wgsl: &[include_str!("wgsl/measure_flops.wgsl")], access: &[Write] };

/// Memory that is read: more than caches hold.
const READ_BYTES: u64 = 512 << 20;
/// Measurements of which the median counts: of what takes long, and of waits.
const N_REPEAT: usize = 5;
const N_WAIT: usize = 100;
/// Dispatches that are recorded one after the other.
const N_DISPATCH: usize = 1000;
/// How long arithmetic is to take. Devices need some time to reach their clock.
const FLOPS_S: f64 = 0.02;
/// Rounds of `measure_flops.wgsl`, and its operations in each: Mesa's emulation does not take more.
const N_ROUND: u32 = 1000;
const ROUND_FLOP: f64 = 128.0;
const N_THREAD: f64 = 256.0;

impl Gpu {
    /// How long the host waits for next to nothing: the median of many times.
    ///
    /// # Errors
    /// The device has failed.
    pub fn measure_round_trip(&self) -> Result<Duration, GpuError> {
        let buf = self.context.buffer(16);
        let mut times = [Duration::ZERO; N_WAIT];
        for time in &mut times {
            let start = Instant::now();
            self.context.read(&buf, 0, &mut [0; 4]);
            *time = start.elapsed();
        }
        self.well(median(times))
    }

    /// What the host takes to record a dispatch.
    ///
    /// # Errors
    /// The device has failed.
    pub fn measure_recording(&self) -> Result<Duration, GpuError> {
        let (x, y) = (self.context.buffer(16), self.context.buffer(16));
        let mut times = [Duration::ZERO; N_REPEAT];
        for time in &mut times {
            self.context.wait();
            let start = Instant::now();
            (0..N_DISPATCH).for_each(|_| self.context.add(x.bind(), y.bind(), 1));
            *time = start.elapsed() / N_DISPATCH as u32;
        }
        self.well(median(times))
    }

    /// Bytes a second that a kernel reads from the device's memory.
    ///
    /// # Errors
    /// The device has failed, or has not so much memory.
    pub fn measure_read_bandwidth(&self) -> Result<f64, GpuError> {
        let bytes = self.context.binding_bytes_max().min(READ_BYTES);
        let (from, to) = (random(&self.context, bytes), self.context.buffer(16));
        let n = (bytes / 16) as u32;
        let groups = self.context.grid((n as usize).div_ceil(1024));
        let read = || self.context.run(&READ, &[], &[from.bind(), to.bind()], &[0, n], groups);
        self.context.time_s(read);
        let times: [f64; N_REPEAT] = std::array::from_fn(|_| self.context.time_s(read));
        self.well(bytes as f64 / median(times))
    }

    /// Additions and multiplications of f32 a second, two for a multiply-add.
    ///
    /// # Errors
    /// The device has failed.
    pub fn measure_flop_rate(&self) -> Result<f64, GpuError> {
        let out = self.context.buffer(16);
        let params = [N_ROUND, 0.999f32.to_bits()];
        let limit = self.context.limits.max_compute_workgroups_per_dimension;
        let time_s = |n_group: u32| {
            let run = || self.context.run(&FLOPS, &[], &[out.bind()], &params, [n_group, 1, 1]);
            self.context.time_s(run)
        };
        let mut n_group = 16;
        while time_s(n_group) < FLOPS_S && 2 * n_group <= limit && self.context.failure().is_none() {
            n_group *= 2;
        }
        let times: [f64; N_REPEAT] = std::array::from_fn(|_| time_s(n_group));
        let flop = f64::from(n_group) * N_THREAD * f64::from(N_ROUND) * ROUND_FLOP;
        self.well(flop / median(times))
    }

    fn well<T>(&self, measured: T) -> Result<T, GpuError> {
        self.context.failure().map_or(Ok(measured), Err)
    }
}

fn median<T: PartialOrd + Copy, const N: usize>(mut times: [T; N]) -> T {
    times.sort_by(|a, b| a.partial_cmp(b).expect("times are numbers"));
    times[N / 2]
}

/// Random words, none of whose halves is a bf16 of 2 or more.
pub(crate) fn random(context: &Context, bytes: u64) -> Buf {
    const BLOCK_BYTES: u64 = 16 << 20;
    let buf = context.buffer(bytes);
    let mut state = 1u64;
    let mut word = || {
        state = state.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
        (state >> 32) as u32 & 0xbfff_bfff
    };
    let block: Vec<u32> = (0..BLOCK_BYTES.min(bytes) / 4).map(|_| word()).collect();
    let source = context.buffer(BLOCK_BYTES);
    context.write(&source, 0, bytemuck::cast_slice(&block));
    for at in (0..bytes).step_by(BLOCK_BYTES as usize) {
        context.copy((&source, 0), (&buf, at), BLOCK_BYTES.min(bytes - at));
    }
    context.wait();
    buf
}

/// All kernels of this file.
#[cfg(test)]
pub(crate) fn kernels() -> Vec<&'static Kernel> {
    vec![&READ, &FLOPS]
}

#[cfg(test)]
mod tests {
    use crate::Gpu;
    use crate::test_rig::rig;

    #[test]
    fn what_is_measured_is_possible() {
        // Breaks if a figure is 0, has the wrong unit, or a kernel does nothing.
        let Some(rig) = rig() else { return };
        let gpu = Gpu::on(rig.context);
        let (wait, record) = (gpu.measure_round_trip().unwrap(), gpu.measure_recording().unwrap());
        let (read, flops) = (gpu.measure_read_bandwidth().unwrap(), gpu.measure_flop_rate().unwrap());
        eprintln!("{wait:?} a wait, {record:?} a dispatch, {read:.2e} bytes/s, {flops:.2e} flop/s");
        assert!(!wait.is_zero() && !record.is_zero(), "{wait:?} {record:?}");
        assert!((1e7..1e14).contains(&read), "{read}");
        assert!((1e8..1e16).contains(&flops), "{flops}");
    }

    #[test]
    fn a_failed_device_has_no_figures() {
        // Breaks if a report shows what a lost device seemed to do.
        let Some(rig) = rig() else { return };
        let gpu = Gpu::on(rig.context);
        gpu.breaker()();
        assert!(gpu.measure_round_trip().is_err() && gpu.measure_recording().is_err());
        assert!(gpu.measure_read_bandwidth().is_err() && gpu.measure_flop_rate().is_err());
    }
}
