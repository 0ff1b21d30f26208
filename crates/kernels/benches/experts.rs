//! A layer's experts at true shapes: `cargo bench -p flash-moe-kernels --bench experts`.
//!
//! Decode: one token, GB/s of the experts' bytes beside plain reads. Prefill: tokens spread evenly over the experts,
//! multiply-adds per second beside those of f32 in registers. Medians; 4 bits, groups of 64, all cores.

use std::time::{Duration, Instant};

use kernels::{Backend, Cpu, ExpertJob, Precision};
use quant::{Buffer, Format, MatrixRef};

const FORMAT: Format = Format::Affine { bits: 4, group: 64 };
/// Experts in memory: more than the caches hold.
const N_EXPERT: usize = 128;
const RUNS: usize = 9;

/// Name, d_model, d_ff, experts of a token, experts of a layer.
const SHAPES: [(&str, usize, usize, usize, usize); 2] =
    [("35B-A3B", 2048, 512, 8, 256), ("397B-A17B", 4096, 1024, 10, 512)];

fn main() {
    let n_thread = std::thread::available_parallelism().map_or(1, |n| n.get());
    let cpu = Cpu::new(n_thread);
    println!("{}, median of {RUNS}", cpu.describe());
    for (name, d_model, d_ff, n_used, n_expert) in SHAPES {
        let matrix_bytes = FORMAT.matrix_bytes(d_ff, d_model);
        let record_bytes = 3 * matrix_bytes;
        let mut buffer = Buffer::zeroed(N_EXPERT * record_bytes).expect("memory for the experts");
        for (i, byte) in buffer.iter_mut().enumerate() {
            *byte = if i % 2 == 1 { 0x38 } else { (i.wrapping_mul(0x9e37_79b9) >> 11) as u8 };
        }
        let shape = (d_model, d_ff);
        let (mut decode, mut read, mut flops) = (Vec::new(), Vec::new(), Vec::new());
        let x: Vec<f32> = (0..512 * d_model).map(|i| (i % 17) as f32 / 8.0 - 1.0).collect();
        let mut out = cpu.zeros(512 * n_used * d_model);
        let rows: Vec<_> = (0..n_used as u32).map(|i| [(0, i)]).collect();
        let mut first = 0;
        for _ in 0..RUNS {
            read.push(cpu.measure_ram_bandwidth(Duration::from_millis(200)));
            flops.push(cpu.measure_flop_rate(Duration::from_millis(100)));
            let mut times = Vec::new();
            for _ in 0..50 {
                let jobs: Vec<_> =
                    rows.iter().enumerate().map(|(i, rows)| job(&buffer, shape, first + i, rows)).collect();
                first += n_used;
                times.push(seconds(|| cpu.experts(&jobs, None, &x, &mut out)));
            }
            decode.push((n_used * record_bytes) as f64 / median(times));
        }
        let (decode, read, flops) = (median(decode), median(read), median(flops));
        println!(
            "{name:10} decode: {:.1} GB/s, {:.2} of reads at {:.1} GB/s",
            decode / 1e9,
            decode / read,
            read / 1e9
        );

        for n_token in [128, 512] {
            let n_pair = n_token * n_used;
            let rows: Vec<Vec<_>> = (0..n_expert)
                .map(|e| {
                    (e..n_pair).step_by(n_expert).map(move |p| ((p / n_used) as u32, p as u32)).collect()
                })
                .collect();
            let jobs: Vec<_> =
                rows.iter().enumerate().map(|(e, rows)| job(&buffer, shape, e, rows)).collect();
            let mut times = Vec::new();
            for _ in 0..RUNS {
                // As many at once as the engine takes.
                times
                    .push(seconds(|| jobs.chunks(32).for_each(|jobs| cpu.experts(jobs, None, &x, &mut out))));
            }
            let macs = (3 * d_model * d_ff * n_pair) as f64 / median(times);
            println!(
                "{name:10} prefill {n_token}: {:.0} GMAC/s, {:.2} of f32 in registers",
                macs / 1e9,
                2.0 * macs / flops
            );
        }
        routers(&cpu, d_model, n_expert);
    }
}

/// Expert `expert`, one of those in memory.
fn job<'a>(
    buffer: &'a [u8],
    (d_model, d_ff): (usize, usize),
    expert: usize,
    rows: &'a [(u32, u32)],
) -> ExpertJob<'a> {
    let n = FORMAT.matrix_bytes(d_ff, d_model);
    let part = |i: usize, n_row, n_col| {
        let bytes = &buffer[(expert % N_EXPERT * 3 + i) * n..][..n];
        MatrixRef::new(FORMAT, n_row, n_col, bytes).expect("bytes of this shape")
    };
    ExpertJob { gate: part(0, d_ff, d_model), up: part(1, d_ff, d_model), down: part(2, d_model, d_ff), rows }
}

/// The router of one token: small, and in cache.
fn routers(cpu: &Cpu, d_model: usize, n_expert: usize) {
    let format = Format::Affine { bits: 8, group: 64 };
    let buffer = Buffer::zeroed(format.matrix_bytes(n_expert, d_model)).expect("memory for a router");
    let router =
        quant::Matrix::new(format, n_expert, d_model, buffer.into(), 0).expect("a matrix of this shape");
    let (x, mut out) = (vec![1.0; d_model], cpu.zeros(n_expert));
    let times = (0..2000)
        .map(|_| seconds(|| cpu.matmul(&mut [(&router, &mut out)], &x, 0, 1, Precision::Full)))
        .collect();
    println!("           router of one token: {:.1} us", 1e6 * median(times));
}

fn seconds(run: impl FnOnce()) -> f64 {
    let start = Instant::now();
    run();
    start.elapsed().as_secs_f64()
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}
