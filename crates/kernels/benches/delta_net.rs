//! How near a delta-net comes to the machine's speed: `cargo bench -p flash-moe-kernels --bench delta_net`.
//!
//! One token (decode): the whole of [`Backend::delta_net`] against the delta rule alone in plain loops and in BLAS
//! calls (with `--features blas`, which needs OpenBLAS). These get normed queries and keys, and their threads share
//! out the heads once and never wait for each other. `state GB/s` counts each state once read and once written, beside
//! what the threads read and write in place in a buffer as large, measured in turns. Then many tokens (prefill):
//! operations that the matrix form needs, beside what the cores multiply and add in registers. Medians.
//! `FLASH_MOE_BENCH_THREADS` sets the threads of the last rows (default: all cores).

use std::time::{Duration, Instant};

use kernels::{Backend, Cpu, DELTA_CHUNK, DeltaInputs, DeltaShape, DeltaWeights, HeadOrder, Isa, Rows};

const SHAPE: DeltaShape = DeltaShape {
    n_head_k: 16,
    n_head_v: 64,
    head_dim_k: 128,
    head_dim_v: 128,
    n_conv: 4,
    out_order: HeadOrder::Grouped,
};
/// Layers of one step: a state of 4 MiB stays in a third-level cache, 45 of them in no cache.
const LAYERS: [usize; 2] = [1, 45];
const RUNS: usize = 7;
/// One measurement of one form.
const TIME: Duration = Duration::from_millis(150);
/// Tokens of a prefill call.
const N_TOKEN: usize = 8 * DELTA_CHUNK;

fn main() {
    let threads =
        std::env::var("FLASH_MOE_BENCH_THREADS").ok().map(|n| n.parse().expect("a number of threads"));
    let n_thread = threads.unwrap_or_else(|| std::thread::available_parallelism().map_or(1, |n| n.get()));
    println!("{SHAPE:?}, {} MiB of state a layer, median of {RUNS}", (SHAPE.state_len() * 4) >> 20);
    for n_thread in if n_thread == 1 { vec![1] } else { vec![1, n_thread] } {
        for n_layer in LAYERS {
            decode(n_thread, n_layer);
        }
        prefill(n_thread);
    }
}

/// What takes one token.
enum Form {
    /// All of the backend's operation.
    Whole(Box<Cpu>),
    /// The delta rule alone, compiled from plain loops.
    Loops,
    /// The delta rule alone, with so many threads in each call.
    #[cfg(feature = "blas")]
    Blas(i32),
}

fn decode(n_thread: usize, n_layer: usize) {
    let mut forms: Vec<Form> = Isa::ALL
        .into_iter()
        .filter_map(|isa| Cpu::with_isa(n_thread, isa))
        .map(|cpu| Form::Whole(Box::new(cpu)))
        .collect();
    forms.push(Form::Loops);
    #[cfg(feature = "blas")]
    forms.extend([1, n_thread as i32].map(Form::Blas).into_iter().take(n_thread.min(2)));
    let mut layers: Vec<Layer> = (0..n_layer).map(|_| Layer::new(1)).collect();
    // Alternating, so that other programs disturb all alike.
    let (mut times, mut updates) = (vec![Vec::new(); forms.len()], Vec::new());
    let cpu = Cpu::new(n_thread);
    for _ in 0..RUNS {
        updates.push(cpu.measure_update_bandwidth(n_layer * SHAPE.state_len(), TIME));
        for (form, times) in forms.iter().zip(&mut times) {
            times.push(match form {
                Form::Whole(cpu) => whole(cpu, &mut layers),
                Form::Loops => shared_out(n_thread, &mut layers, loops),
                #[cfg(feature = "blas")]
                Form::Blas(n) => {
                    kernels::blas::set_threads(*n);
                    shared_out(n_thread, &mut layers, blas)
                }
            });
        }
    }
    let is_loops = |form: &Form| matches!(form, Form::Loops);
    let loops = forms.iter().position(is_loops).expect("the loops are a form");
    let (update, loops) = (median(updates), median(times[loops].clone()));
    println!("decode, {n_layer} layers, {n_thread} threads: {:.1} GB/s in place", update / 1e9);
    println!("  {:22} {:>10} {:>12} {:>7} {:>12}", "", "us a layer", "state GB/s", "ratio", "x loops");
    for (form, times) in forms.iter().zip(times) {
        let name = match form {
            Form::Whole(cpu) => cpu.isa().to_string(),
            Form::Loops => "plain loops".to_owned(),
            #[cfg(feature = "blas")]
            Form::Blas(n) => format!("BLAS, {n} threads a call"),
        };
        let time = median(times);
        let rate = (2 * 4 * SHAPE.state_len()) as f64 / time;
        let (us, ratio) = (time * 1e6, 100.0 * rate / update);
        println!("  {name:22} {us:10.1} {:12.1} {ratio:5.0} % {:12.2}", rate / 1e9, loops / time);
    }
}

fn prefill(n_thread: usize) {
    println!("prefill, {N_TOKEN} tokens, {n_thread} threads");
    for isa in Isa::ALL {
        let Some(cpu) = Cpu::with_isa(n_thread, isa) else { continue };
        let mut layers = [Layer::new(N_TOKEN)];
        let (mut rates, mut peaks) = (Vec::new(), Vec::new());
        for _ in 0..RUNS {
            peaks.push(cpu.measure_flop_rate(TIME));
            rates.push(chunked_flop() / whole(&cpu, &mut layers));
        }
        let (rate, peak) = (median(rates), median(peaks));
        let (us, ratio) = (chunked_flop() / rate / N_TOKEN as f64 * 1e6, 100.0 * rate / peak);
        println!(
            "  {:8} {:7.1} of {:7.1} GFLOP/s {ratio:4.0} %, {us:6.1} us a token",
            isa.to_string(),
            rate / 1e9,
            peak / 1e9
        );
    }
}

/// What the matrix form multiplies and adds for all tokens, without the convolution, norms and exponentials.
fn chunked_flop() -> f64 {
    let DeltaShape { n_head_k, n_head_v, head_dim_k: dk, head_dim_v: dv, .. } = SHAPE;
    let n = DELTA_CHUNK;
    // K S, Q S and Kᵀ R; the triangles of R and of what is read.
    let value_head = 3 * 2 * n * dk * dv + 2 * n * n * dv;
    // The triangles of K Kᵀ and Q Kᵀ.
    let key_head = 2 * n * (n + 1) * dk;
    (N_TOKEN / n * (n_head_v * value_head + n_head_k * key_head)) as f64
}

/// One layer and some tokens.
struct Layer {
    n_token: usize,
    conv: Vec<f32>,
    decay: Vec<f32>,
    dt_bias: Vec<f32>,
    norm: Vec<f32>,
    qkv: Vec<f32>,
    b: Vec<f32>,
    a: Vec<f32>,
    z: Vec<f32>,
    conv_state: Vec<f32>,
    state: Vec<f32>,
}

impl Layer {
    fn new(n_token: usize) -> Self {
        let numbers = |n: usize| -> Vec<f32> { (0..n).map(|i| (i * 7 % 17) as f32 / 8.0 - 1.0).collect() };
        let (n_channel, n_head_v) = (SHAPE.n_channel(), SHAPE.n_head_v);
        Self {
            n_token,
            conv: numbers(SHAPE.n_conv * n_channel),
            decay: vec![1e-7; n_head_v],
            dt_bias: numbers(n_head_v),
            norm: numbers(SHAPE.head_dim_v),
            qkv: numbers(n_token * n_channel),
            b: numbers(n_token * n_head_v),
            a: numbers(n_token * n_head_v),
            z: numbers(n_token * SHAPE.d_v()),
            conv_state: numbers((SHAPE.n_conv - 1) * n_channel),
            state: numbers(SHAPE.state_len()),
        }
    }
}

/// Seconds a layer.
fn whole(cpu: &Cpu, layers: &mut [Layer]) -> f64 {
    let mut out = cpu.zeros(layers[0].n_token * SHAPE.d_v());
    let (start, mut times) = (Instant::now(), Vec::new());
    while start.elapsed() < TIME {
        for layer in layers.iter_mut() {
            let time = Instant::now();
            let Layer { n_token, conv, decay, dt_bias, norm, qkv, b, a, z, conv_state, state } = layer;
            let weights = DeltaWeights { conv, decay, dt_bias, norm, eps: 1e-6 };
            let inputs = DeltaInputs { qkv, b, a, z };
            cpu.delta_net(SHAPE, &weights, &inputs, (conv_state, state), Rows::at(0, *n_token), &mut out);
            times.push(time.elapsed().as_secs_f64());
        }
    }
    median(times)
}

/// A head's step of the delta rule alone: state, q, k, v, output.
type Step = fn(&mut [f32], [&[f32]; 3], &mut [f32]);

/// β and e^g of the plain forms.
const BETA: f32 = 0.5;
const DECAY: f32 = 0.9;

/// Seconds a layer, each thread with its own heads.
fn shared_out(n_thread: usize, layers: &mut [Layer], step: Step) -> f64 {
    let head_len = SHAPE.head_dim_k * SHAPE.head_dim_v;
    let part_len = SHAPE.n_head_v.div_ceil(n_thread) * head_len;
    let mut parts: Vec<Vec<&mut [f32]>> = (0..n_thread).map(|_| Vec::new()).collect();
    let n_layer = layers.len();
    for layer in layers {
        for (part, states) in parts.iter_mut().zip(layer.state.chunks_mut(part_len)) {
            part.push(states);
        }
    }
    let time = |mut layers: Vec<&mut [f32]>| {
        let unit = 1.0 / (SHAPE.head_dim_k as f32).sqrt();
        let (k, q) = (vec![unit; SHAPE.head_dim_k], vec![unit * unit; SHAPE.head_dim_k]);
        let (v, mut out) = (vec![1.0; SHAPE.head_dim_v], vec![0.0; SHAPE.head_dim_v]);
        let (start, mut n) = (Instant::now(), 0);
        while start.elapsed() < TIME {
            for states in &mut layers {
                for state in states.chunks_exact_mut(head_len) {
                    step(state, [&q, &k, &v], &mut out);
                }
            }
            n += 1;
        }
        std::hint::black_box(&out);
        start.elapsed().as_secs_f64() / (n * n_layer) as f64
    };
    std::thread::scope(|scope| {
        let threads: Vec<_> = parts.into_iter().map(|part| scope.spawn(|| time(part))).collect();
        threads.into_iter().map(|thread| thread.join().expect("a measurement")).fold(0.0, f64::max)
    })
}

fn loops(state: &mut [f32], [q, k, v]: [&[f32]; 3], out: &mut [f32]) {
    let (mut d, dv) = ([0.0; SHAPE.head_dim_v], v.len());
    for (row, &k) in state.chunks_exact_mut(dv).zip(k) {
        for c in 0..dv {
            row[c] *= DECAY;
            d[c] += k * row[c];
        }
    }
    for c in 0..dv {
        d[c] = BETA * (v[c] - d[c]);
    }
    out.fill(0.0);
    for (row, (&k, &q)) in state.chunks_exact_mut(dv).zip(k.iter().zip(q)) {
        for c in 0..dv {
            row[c] += k * d[c];
            out[c] += q * row[c];
        }
    }
}

#[cfg(feature = "blas")]
fn blas(state: &mut [f32], [q, k, v]: [&[f32]; 3], out: &mut [f32]) {
    let mut d = [0.0; SHAPE.head_dim_v];
    kernels::blas::scale(DECAY, state);
    kernels::blas::transposed_product(state, k, &mut d);
    for (d, v) in d.iter_mut().zip(v) {
        *d = BETA * (v - *d);
    }
    kernels::blas::add_outer_product(state, k, &d);
    kernels::blas::transposed_product(state, q, out);
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}
