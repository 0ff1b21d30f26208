//! What a parallel step costs, and what another program's thread costs:
//! `cargo bench -p flash-moe-kernels --bench pool`.
//!
//! Prints the time of a step of tiny jobs for a number of threads, also more than there are cores, then the speed
//! of a loop of steps like those of decode, alone and beside threads that compute without end. Medians and the
//! quickest of several runs: other programs only ever add time.

use std::hint::spin_loop;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use kernels::{Backend, Cpu, Precision};
use quant::{Buffer, Format, Matrix};

const RUNS: usize = 5;
const RUN_TIME: Duration = Duration::from_millis(250);
/// Floats of a tiny job.
const TINY: usize = 16;
/// Rows and columns of the products of the loop: 20 to 80 µs each on one core.
const ROWS: usize = 1024;
const COLS: usize = 2048;
/// Matrices that the loop goes through, larger together than the caches near the core.
const N_MATRIX: usize = 32;
const FORMAT: Format = Format::Affine { bits: 4, group: 64 };

fn main() {
    let n_core = std::thread::available_parallelism().map_or(1, usize::from);
    println!("steps of 8 tiny jobs a thread, {n_core} cores, {RUNS} runs");
    println!("{:>7} {:>12} {:>12} {:>14}", "threads", "median ns", "quickest ns", "of which jobs");
    for n_thread in [1, 2, 4, 16, 64] {
        let n_job = 8 * n_thread;
        let alone = steps(&Cpu::new(1), n_job);
        let cpu = Cpu::new(n_thread);
        let mut times: Vec<f64> = (0..RUNS).map(|_| steps(&cpu, n_job)).collect();
        let (median, quickest) = middle_and_least(&mut times);
        println!("{n_thread:>7} {median:12.0} {quickest:12.0} {alone:14.0}");
    }
    println!("\nloops of {N_MATRIX} products {ROWS}x{COLS} and norms, {RUNS} runs");
    println!("{:>7} {:>6} {:>12} {:>12}", "threads", "others", "median µs", "quickest µs");
    for n_thread in [1, n_core, 2 * n_core] {
        let cpu = Cpu::new(n_thread);
        for n_other in [0, 1, n_core] {
            let mut times = beside(n_other, || (0..RUNS).map(|_| loops(&cpu)).collect());
            let (median, quickest) = middle_and_least(&mut times);
            println!("{n_thread:>7} {n_other:>6} {median:12.0} {quickest:12.0}");
        }
    }
}

/// Nanoseconds of a step of `n_job` jobs of a few operations each: the mean over a time.
fn steps(cpu: &Cpu, n_job: usize) -> f64 {
    let (x, weight, mut out) = (vec![1.0; n_job * TINY], vec![1.0; TINY], vec![0.0; n_job * TINY]);
    mean_seconds(100, || cpu.rms_norm(&x, &weight, 1e-6, n_job, &mut out)) * 1e9
}

/// Microseconds of going once through all matrices: the mean over a time.
fn loops(cpu: &Cpu) -> f64 {
    let bytes = FORMAT.matrix_bytes(ROWS, COLS);
    let buffer = Arc::new(Buffer::zeroed(N_MATRIX * bytes).expect("memory for the weights"));
    let matrix = |i| Matrix::new(FORMAT, ROWS, COLS, Arc::clone(&buffer), i * bytes).expect("a matrix");
    let matrices: Vec<Matrix> = (0..N_MATRIX).map(matrix).collect();
    let (x, weight) = (vec![1.0; COLS], vec![1.0; ROWS]);
    let (mut y, mut normed) = (vec![0.0; ROWS], vec![0.0; ROWS]);
    let once = || {
        for matrix in &matrices {
            cpu.matmul(&mut [(matrix, &mut y)], &x, 0, 1, Precision::Setting);
            cpu.rms_norm(&y, &weight, 1e-6, 1, &mut normed);
        }
    };
    mean_seconds(1, once) * 1e6
}

/// Seconds that a call takes, made again and again in groups of `n_call` for a while.
fn mean_seconds(n_call: u32, mut call: impl FnMut()) -> f64 {
    let mut n = 0;
    let start = Instant::now();
    while start.elapsed() < RUN_TIME {
        (0..n_call).for_each(|_| call());
        n += n_call;
    }
    start.elapsed().as_secs_f64() / f64::from(n)
}

/// Calls `measure` while `n_other` threads compute.
fn beside(n_other: usize, measure: impl FnOnce() -> Vec<f64>) -> Vec<f64> {
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for _ in 0..n_other {
            scope.spawn(|| {
                while !is_over.load(Ordering::Relaxed) {
                    spin_loop();
                }
            });
        }
        let result = measure();
        is_over.store(true, Ordering::Relaxed);
        result
    })
}

fn middle_and_least(times: &mut [f64]) -> (f64, f64) {
    times.sort_by(f64::total_cmp);
    (times[times.len() / 2], times[0])
}
