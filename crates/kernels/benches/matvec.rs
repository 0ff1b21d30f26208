//! How near the matrix products come to the memory's speed: `cargo bench -p flash-moe-kernels`.
//!
//! Prints, for each instruction set and format, the bytes of weights read per second by products of one token with
//! matrices larger than the caches, the bandwidth of plain reads measured beside it, and their ratio; then the
//! speed-up per token of a batch. Medians. `FLASH_MOE_BENCH_THREADS` sets the threads (default: all cores).

use std::sync::Arc;
use std::time::{Duration, Instant};

use kernels::{Backend, Cpu, Isa, Precision};
use quant::{Buffer, Format, Matrix};

/// Enough matrices that the first is long gone from the caches when its turn comes again.
const TOTAL_BYTES: usize = 1 << 30;
const ROWS: usize = 4096;
const COLS: usize = 4096;
/// Tokens of the batch.
const N_BATCH: usize = 64;
const RUNS: usize = 5;
const FORMATS: [Format; 4] = [
    Format::Affine { bits: 4, group: 64 },
    Format::Affine { bits: 8, group: 64 },
    Format::Affine { bits: 3, group: 64 },
    Format::Bf16,
];

fn main() {
    let threads =
        std::env::var("FLASH_MOE_BENCH_THREADS").ok().map(|n| n.parse().expect("a number of threads"));
    let n_thread = threads.unwrap_or_else(|| std::thread::available_parallelism().map_or(1, |n| n.get()));
    println!(
        "{ROWS}x{COLS}, {n_thread} threads, {} MiB of weights a run, median of {RUNS}",
        TOTAL_BYTES >> 20
    );
    println!(
        "{:8} {:12} {:>11} {:>11} {:>7} {:>16}",
        "set", "format", "GB/s", "read GB/s", "ratio", "batch 64, times"
    );
    for isa in Isa::ALL {
        let Some(cpu) = Cpu::with_isa(n_thread, isa) else { continue };
        for format in FORMATS {
            let matrices = matrices(format);
            // Alternating, so that other programs disturb both alike.
            let (mut one, mut read) = (Vec::new(), Vec::new());
            for _ in 0..RUNS {
                read.push(cpu.measure_ram_bandwidth(Duration::from_millis(300)));
                one.push(bytes_per_second(&cpu, &matrices, 1));
            }
            let (one, read) = (median(one), median(read));
            let batch = bytes_per_second(&cpu, &matrices[..8], N_BATCH) * N_BATCH as f64;
            let (isa, format) = (isa.to_string(), format.to_string());
            let ratio = format!("{:.0} %", 100.0 * one / read);
            println!(
                "{isa:8} {format:12} {:11.1} {:11.1} {ratio:>7} {:16.1}",
                one / 1e9,
                read / 1e9,
                batch / one
            );
        }
    }
}

fn matrices(format: Format) -> Vec<Matrix> {
    let bytes = format.matrix_bytes(ROWS, COLS);
    let n = TOTAL_BYTES / bytes;
    let mut buffer = Buffer::zeroed(n * bytes).expect("memory for the weights");
    // Any bits are codes. As bf16 they are numbers of about 1: denormals would be slow.
    for (i, byte) in buffer.iter_mut().enumerate() {
        let noise = (i.wrapping_mul(0x9e37_79b9) >> 11) as u8;
        *byte = if i % 2 == 1 { 0x3c | noise & 3 } else { noise };
    }
    let buffer = Arc::new(buffer);
    let matrix =
        |i| Matrix::new(format, ROWS, COLS, Arc::clone(&buffer), i * bytes).expect("a matrix of this shape");
    (0..n).map(matrix).collect()
}

/// Bytes of weights per second: the median over the matrices, each used once.
fn bytes_per_second(cpu: &Cpu, matrices: &[Matrix], n_token: usize) -> f64 {
    let x: Vec<f32> = (0..n_token * COLS).map(|i| (i % 17) as f32 - 8.0).collect();
    let mut out = cpu.zeros(n_token * ROWS);
    let mut one = |matrix: &Matrix| {
        let start = Instant::now();
        cpu.matmul(&mut [(matrix, &mut out)], &x, 0, n_token, Precision::Setting);
        matrix.format().matrix_bytes(ROWS, COLS) as f64 / start.elapsed().as_secs_f64()
    };
    median(matrices.iter().map(&mut one).collect())
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}
