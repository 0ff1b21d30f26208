//! How near attention comes to the machine's limits: `cargo bench -p flash-moe-kernels --bench attention`.
//!
//! Decode: bytes of keys and values per second of one token at a given depth, the bandwidth of plain reads measured
//! beside it, and their ratio. With 16 query heads a key/value head, decode of 16-bit numbers is limited by arithmetic
//! as much as by memory, so the multiply-adds per second and their share of the measured rate are shown as well.
//! Prefill: the same for a prompt from position 0. Medians. `FLASH_MOE_BENCH_THREADS` sets the threads (default: all
//! cores), `FLASH_MOE_BENCH_ISA` the one instruction set (default: the best).

use std::time::{Duration, Instant};

use kernels::{AttentionShape, Backend, Cpu, CpuKv, Isa, KvFormat, Rows};

const SHAPES: [AttentionShape; 2] = [
    AttentionShape { n_head: 16, n_head_kv: 2, head_dim: 256, gated: true },
    AttentionShape { n_head: 32, n_head_kv: 2, head_dim: 256, gated: true },
];
const DEPTHS: [usize; 3] = [4096, 32_768, 131_072];
const PROMPTS: [usize; 2] = [512, 2048];
const RUNS: usize = 7;
/// More than the caches hold, in keys and values that are read in turn.
const TOTAL_BYTES: usize = 256 << 20;

fn main() {
    let threads =
        std::env::var("FLASH_MOE_BENCH_THREADS").ok().map(|n| n.parse().expect("a number of threads"));
    let n_thread = threads.unwrap_or_else(|| std::thread::available_parallelism().map_or(1, |n| n.get()));
    let wanted = std::env::var("FLASH_MOE_BENCH_ISA").ok();
    let isas = Isa::ALL.into_iter().filter(|isa| match &wanted {
        Some(name) => isa.to_string().eq_ignore_ascii_case(name),
        None => *isa == Isa::detect(),
    });
    for isa in isas {
        let cpu = Cpu::with_isa(n_thread, isa).expect("an instruction set that this CPU has");
        println!("{}, median of {RUNS}", cpu.describe());
        for shape in SHAPES {
            let AttentionShape { n_head, n_head_kv, head_dim, .. } = shape;
            println!("{n_head} heads, {n_head_kv} key/value heads of {head_dim}");
            for format in KvFormat::ALL {
                DEPTHS.iter().for_each(|&depth| decode(&cpu, shape, format, depth));
                PROMPTS.iter().for_each(|&n_token| prefill(&cpu, shape, format, n_token));
            }
        }
    }
}

/// Enough caches of `depth` positions that the first is gone from the CPU's caches when its turn comes again.
fn caches(cpu: &Cpu, shape: AttentionShape, format: KvFormat, depth: usize, n: usize) -> Vec<CpuKv> {
    let n_row = format.row_bytes(shape.head_dim);
    let mut bytes = vec![0; depth * format.position_bytes(shape)];
    for (i, stored) in bytes.chunks_exact_mut(n_row).enumerate() {
        let noise = |j| ((i * 31 + j * 17) as u32).wrapping_mul(0x9e37_79b9) >> 8;
        let row: Vec<f32> = (0..shape.head_dim).map(|j| noise(j) as f32 / (1 << 23) as f32 - 1.0).collect();
        format.encode_row(&row, stored);
    }
    let fill = |_| {
        let mut kv = cpu.kv(shape, format, depth);
        cpu.write_kv(&mut kv, 0, &bytes);
        kv
    };
    (0..n).map(fill).collect()
}

fn queries(shape: AttentionShape, n_token: usize) -> Vec<f32> {
    (0..n_token * shape.n_head * shape.head_dim * 2).map(|i| (i * 7 % 23) as f32 / 11.0 - 1.0).collect()
}

fn decode(cpu: &Cpu, shape: AttentionShape, format: KvFormat, depth: usize) {
    let n_bytes = depth * format.position_bytes(shape);
    let caches = caches(cpu, shape, format, depth, (TOTAL_BYTES / n_bytes).clamp(2, 16));
    let (q, mut out) = (queries(shape, 1), cpu.zeros(shape.n_head * shape.head_dim));
    let (mut times, mut read, mut flop) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..RUNS {
        // Alternating, so that other programs disturb all alike.
        read.push(cpu.measure_ram_bandwidth(Duration::from_millis(150)));
        flop.push(cpu.measure_flop_rate(Duration::from_millis(50)));
        for kv in &caches {
            let start = Instant::now();
            cpu.attention(shape, &q, kv, Rows::at(depth - 1, 1), &mut out);
            times.push(start.elapsed().as_secs_f64());
        }
    }
    let (time, read, flop) = (median(times), median(read), median(flop));
    let (bytes, flops) = (n_bytes as f64 / time, (4 * depth * shape.n_head * shape.head_dim) as f64 / time);
    println!(
        "  decode  {:4} at {depth:6}: {:8.3} ms, {:5.1} GB/s, {:3.0} % of {:4.1}; {:4.0} GFLOP/s, {:3.0} % of {:4.0}",
        format.name(),
        time * 1e3,
        bytes / 1e9,
        100.0 * bytes / read,
        read / 1e9,
        flops / 1e9,
        100.0 * flops / flop,
        flop / 1e9
    );
}

fn prefill(cpu: &Cpu, shape: AttentionShape, format: KvFormat, n_token: usize) {
    let kv = &caches(cpu, shape, format, n_token, 1)[0];
    let (q, mut out) = (queries(shape, n_token), cpu.zeros(n_token * shape.n_head * shape.head_dim));
    let (mut times, mut flop) = (Vec::new(), Vec::new());
    for _ in 0..RUNS {
        flop.push(cpu.measure_flop_rate(Duration::from_millis(50)));
        let start = Instant::now();
        cpu.attention(shape, &q, kv, Rows::at(0, n_token), &mut out);
        times.push(start.elapsed().as_secs_f64());
    }
    let (time, flop) = (median(times), median(flop));
    // Of what is not masked.
    let flops = (2 * n_token * (n_token + 1) * shape.n_head * shape.head_dim) as f64 / time;
    println!(
        "  prefill {:4} of {n_token:6}: {:8.3} ms, {:4.0} GFLOP/s, {:3.0} % of {:4.0}",
        format.name(),
        time * 1e3,
        flops / 1e9,
        100.0 * flops / flop,
        flop / 1e9
    );
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}
