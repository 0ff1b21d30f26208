//! How near the matrix products come to the machine's limits: `cargo bench -p flash-moe-kernels --bench matvec`.
//!
//! For each instruction set and format: bytes of weights per second of products of one token with matrices larger than
//! the caches, beside plain reads measured in turn with them; then multiply-adds per second of batches, beside those
//! of f32 in registers. Then three forms of the 4-bit product. Medians. `FLASH_MOE_BENCH_THREADS` sets the threads
//! (default: all cores), `FLASH_MOE_BENCH_SET` picks instruction sets by a part of their name, and
//! `FLASH_MOE_BENCH_FORMATS` formats, separated by commas.

mod forms;

use std::sync::Arc;
use std::time::{Duration, Instant};

use kernels::{Activations, Backend, Cpu, Isa, Precision};
use quant::{Block, Buffer, Format, Matrix};

/// Enough matrices that the first is long gone from the caches when its turn comes again.
const TOTAL_BYTES: usize = 1 << 30;
const ROWS: usize = 4096;
const COLS: usize = 4096;
const BATCHES: [usize; 3] = [4, 16, 128];
const RUNS: usize = 5;

fn main() {
    let variable = |name| std::env::var(name).ok();
    let threads = variable("FLASH_MOE_BENCH_THREADS").map(|n| n.parse().expect("a number of threads"));
    let n_thread = threads.unwrap_or_else(|| std::thread::available_parallelism().map_or(1, |n| n.get()));
    let set = variable("FLASH_MOE_BENCH_SET").unwrap_or_default();
    let formats = variable("FLASH_MOE_BENCH_FORMATS").map_or_else(all_formats, |names| {
        names.split(',').map(|name| name.parse().expect("the name of a format")).collect()
    });
    println!(
        "{ROWS}x{COLS}, {n_thread} threads, {} MiB of weights a run, median of {RUNS}",
        TOTAL_BYTES >> 20
    );
    println!(
        "{:24} {:12} {:>7} {:>10} {:>6}   GMAC/s of {BATCHES:?} tokens, ratio to f32; with 16-bit activations",
        "set", "format", "GB/s", "read GB/s", "ratio"
    );
    for isa in Isa::ALL.into_iter().filter(|isa| isa.to_string().contains(&set)) {
        for &format in &formats {
            let Some(cpu) = Cpu::with_isa(n_thread, isa) else { continue };
            measure(cpu, isa, format);
        }
    }
    forms::compare();
}

fn all_formats() -> Vec<Format> {
    let affine = [4, 8, 6, 5, 3, 2].map(|bits| Format::Affine { bits, group: 64 });
    let others = [Format::Bf16, Format::Fp8, Format::Mxfp4, Format::Nvfp4];
    affine.into_iter().chain(others).chain(Block::ALL.map(Format::Block)).collect()
}

fn measure(cpu: Cpu, isa: Isa, format: Format) {
    let matrices = matrices(format);
    // Alternating, so that other programs disturb all alike.
    let (mut one, mut read, mut flops) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..RUNS {
        read.push(cpu.measure_ram_bandwidth(Duration::from_millis(300)));
        one.push(bytes_per_second(&cpu, &matrices, 1));
        flops.push(cpu.measure_flop_rate(Duration::from_millis(100)));
    }
    let (one, read, flops) = (median(one), median(read), median(flops));
    print!(
        "{:24} {:12} {:7.1} {:10.1} {:4.0} %  ",
        isa.to_string(),
        format.to_string(),
        one / 1e9,
        read / 1e9,
        100.0 * one / read
    );
    let batches = |cpu: &Cpu| {
        for n_token in BATCHES {
            let rate =
                bytes_per_second(cpu, &matrices[..4], n_token) / format.matrix_bytes(ROWS, COLS) as f64;
            let macs = rate * (ROWS * COLS * n_token) as f64;
            print!(" {:6.1} {:4.2}", macs / 1e9, 2.0 * macs / flops);
        }
    };
    batches(&cpu);
    if format.run_cols() > 1 {
        print!(" |");
        batches(&cpu.with_activations(Activations::Int16));
    }
    println!();
}

fn matrices(format: Format) -> Vec<Matrix> {
    let bytes = format.matrix_bytes(ROWS, COLS);
    let n = TOTAL_BYTES / bytes;
    let mut buffer = Buffer::zeroed(n * bytes).expect("memory for the weights");
    // Any bits are codes. As bf16 or halves they are numbers of about 1, as exponents powers of two below 1: denormals
    // would be slow.
    let has_exponents = matches!(format, Format::Mxfp4 | Format::Block(Block::Mxfp4));
    for (i, byte) in buffer.iter_mut().enumerate() {
        let noise = (i.wrapping_mul(0x9e37_79b9) >> 11) as u8;
        *byte = match (has_exponents, i % 2) {
            (true, _) => 0x40 | noise & 0x3f,
            (false, 0) => noise,
            (false, _) => 0x3c | noise & 3,
        };
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
