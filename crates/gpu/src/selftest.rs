//! Each kind of kernel once on the actual device, against the scalar reference: an error of a driver refuses the
//! device instead of changing an answer.
//!
//! Operations are recorded one after the other and read together, so the device is waited for once.

use std::sync::Arc;

use kernels::{
    AttentionShape, Backend, DeltaInputs, DeltaShape, DeltaWeights, ExpertJob, HeadOrder, KvFormat, Norm,
    Precision, RecordMemory, Reference, Rope, RouteShape, Routes, Rows, SharedJob,
};
use quant::{Block, Buffer, Format, Matrix, MatrixRef};

use crate::Gpu;
use crate::context::{Buf, Context};
use crate::memory::GpuTensor;
use crate::ops::route::{PAIR_WORDS, RouteStep, Router, WEIGHT_WORD, routes_words};

/// Ten times what kernels' tests allow, relative to the larger of a number and the root mean square of its result.
const BOUND: f64 = 2e-4;
/// Where keys are rounded to f16 once more.
const ATTENTION_BOUND: f64 = 2e-3;

const A4: Format = Format::Affine { bits: 4, group: 64 };
const A8: Format = Format::Affine { bits: 8, group: 32 };
/// Formats that [`check`] computes products with.
const CHECKED: [Format; 3] = [A4, A8, Format::Bf16];
/// Tokens of a prompt.
const N_PROMPT: usize = 9;

/// What an operation made.
struct Made<T> {
    what: String,
    bound: f64,
    tensor: T,
}

/// An operation with its inputs.
type Case<'a, B> = Box<dyn FnOnce(&B) -> Vec<Made<<B as Backend>::Tensor>> + 'a>;

/// Runs everything; the first result that is wrong, in words.
pub(crate) fn check(gpu: &Gpu) -> Result<(), String> {
    std::thread::scope(|scope| {
        let exact = scope.spawn(exact);
        check_against(gpu, || exact.join().expect("the reference computes whatever it is given"))
    })
}

fn check_against(gpu: &Gpu, exact: impl FnOnce() -> Vec<Vec<f32>>) -> Result<(), String> {
    let records = Records::new(gpu, A4, DIMS).map_err(|error| error.to_string())?;
    let run: Vec<_> = cases(gpu, &records).into_iter().flat_map(|case| case(gpu)).collect();
    let routing = Routing::new(&gpu.context);
    routing.run(&gpu.context);
    let mut words = routing.room();
    let got = read(gpu, &run, routing.parts(&mut words))?;
    compare(&run, &got, &exact())?;
    routing.judge(&words)
}

/// What the reference makes.
fn exact() -> Vec<Vec<f32>> {
    let records = Records::new(&Reference, A4, DIMS).expect("the reference takes any memory");
    made_by_reference(cases(&Reference, &records))
}

fn made_by_reference(cases: Vec<Case<'_, Reference>>) -> Vec<Vec<f32>> {
    cases.into_iter().flat_map(|case| case(&Reference)).map(|made| made.tensor).collect()
}

/// Runs what reads matrices in these formats, but for those of [`check`]; the first result that is wrong, in words.
pub(crate) fn check_formats(gpu: &Gpu, formats: &[Format]) -> Result<(), String> {
    for (i, format) in formats.iter().enumerate() {
        if !CHECKED.contains(format) && !formats[..i].contains(format) {
            check_format(gpu, *format)?;
        }
    }
    Ok(())
}

fn check_format(gpu: &Gpu, format: Format) -> Result<(), String> {
    let records = Records::new(gpu, format, FORMAT_DIMS).map_err(|error| error.to_string())?;
    let run: Vec<_> = cases_of(gpu, &records).into_iter().flat_map(|case| case(gpu)).collect();
    let got = read(gpu, &run, std::iter::empty())?;
    let records = Records::new(&Reference, format, FORMAT_DIMS).expect("the reference takes any memory");
    compare(&run, &got, &made_by_reference(cases_of(&Reference, &records)))
}

/// What the device made, and some parts of other buffers with it.
fn read<'a>(
    gpu: &Gpu,
    run: &'a [Made<GpuTensor>],
    others: impl Iterator<Item = (&'a Buf, u64, &'a mut [u8])>,
) -> Result<Vec<Vec<f32>>, String> {
    let mut got: Vec<Vec<f32>> = run.iter().map(|made| vec![0.0; made.tensor.len]).collect();
    let mut parts: Vec<(&Buf, u64, &mut [u8])> =
        run.iter().map(|made| &made.tensor.buf).zip(got.iter_mut()).map(part).collect();
    others.for_each(|other| parts.push(other));
    gpu.context.read_all(&mut parts);
    match gpu.failure() {
        Some(error) => Err(format!("it failed in its self-test: {error}")),
        None => Ok(got),
    }
}

fn compare(run: &[Made<GpuTensor>], got: &[Vec<f32>], want: &[Vec<f32>]) -> Result<(), String> {
    let mut all = run.iter().zip(got).zip(want);
    all.try_for_each(|((made, got), want)| judge(&made.what, off(got, want), made.bound))
}

fn part<'a>((buf, out): (&'a Buf, &'a mut Vec<f32>)) -> (&'a Buf, u64, &'a mut [u8]) {
    (buf, 0, bytemuck::cast_slice_mut(out))
}

fn judge(what: &str, off: f64, bound: f64) -> Result<(), String> {
    if off <= bound {
        return Ok(());
    }
    Err(format!(
        "its result of {what} is wrong (off by {off:.1e}, {bound:.0e} is allowed): an error of its driver"
    ))
}

/// The largest error, relative to the larger of the number itself and the root mean square of them all.
fn off(got: &[f32], want: &[f32]) -> f64 {
    let mean = want.iter().map(|&x| f64::from(x).powi(2)).sum::<f64>() / want.len().max(1) as f64;
    let error = |(&got, &want): (&f32, &f32)| {
        let (got, want) = (f64::from(got), f64::from(want));
        let error = (got - want).abs() / mean.sqrt().max(want.abs()).max(1e-30);
        if error.is_nan() { f64::INFINITY } else { error }
    };
    got.iter().zip(want).map(error).fold(0.0, f64::max)
}

/// All operations of the trait, each with inputs of its own: what one does wrong is not blamed on another.
fn cases<'a, B: Backend<Tensor: 'static, Weights: 'static, Kv: 'static>>(
    backend: &B,
    records: &'a Records,
) -> Vec<Case<'a, B>> {
    let mut inputs = Inputs { backend, state: 1 };
    let mut cases = inputs.sums();
    for format in CHECKED {
        cases.extend([1, N_PROMPT].map(|n_token| inputs.products(format, n_token)));
    }
    cases.push(inputs.embed(A4));
    cases.extend([1, N_PROMPT].map(|n_token| inputs.experts(records, n_token)));
    let attentions = [(2, 150, 1), (2, 0, N_PROMPT), (48, 3, 2)];
    cases.extend(attentions.map(|(n_head_kv, pos, n_token)| inputs.attention(n_head_kv, pos, n_token)));
    cases.extend([1, 70].map(|n_token| inputs.delta_net(n_token)));
    cases
}

/// All operations with matrices in the format of the records.
fn cases_of<'a, B: Backend<Tensor: 'static, Weights: 'static, Kv: 'static>>(
    backend: &B,
    records: &'a Records,
) -> Vec<Case<'a, B>> {
    let (mut inputs, format) = (Inputs { backend, state: 1 }, records.format);
    let mut cases = vec![inputs.embed(format)];
    for n_token in [1, N_PROMPT] {
        cases.push(inputs.products(format, n_token));
        cases.push(inputs.experts(records, n_token));
    }
    cases
}

fn tokens(n_token: usize) -> &'static str {
    if n_token == 1 { "one token" } else { "several tokens" }
}

/// Makes inputs: the same for every backend.
struct Inputs<'b, B> {
    backend: &'b B,
    state: u64,
}

impl<B: Backend<Tensor: 'static, Weights: 'static, Kv: 'static>> Inputs<'_, B> {
    /// About normal numbers.
    fn floats(&mut self, n: usize) -> Vec<f32> {
        let mut unit = || (random(&mut self.state) >> 40) as f32 / (1u64 << 23) as f32 - 1.0;
        (0..n).map(|_| 1.4 * (unit() + unit())).collect()
    }

    fn tensor(&mut self, n: usize) -> B::Tensor {
        let (mut tensor, values) = (self.backend.zeros(n), self.floats(n));
        self.backend.write(&mut tensor, 0, &values);
        tensor
    }

    fn matrix(&mut self, format: Format, rows: usize, cols: usize) -> B::Weights {
        let mut buffer = Buffer::zeroed(format.matrix_bytes(rows, cols)).expect("a few kilobytes");
        fill(&mut self.state, &mut buffer, format, rows, cols);
        let matrix = Matrix::new(format, rows, cols, Arc::new(buffer), 0);
        self.backend.weights(matrix.expect("the shape fits the format"))
    }

    fn products(&mut self, format: Format, n_token: usize) -> Case<'static, B> {
        // More chunks than a subgroup has threads, and not a power of two.
        let (rows, cols) = ([45, 18], format.run_cols().max(64) * 17);
        let w = rows.map(|rows| self.matrix(format, rows, cols));
        let x = self.tensor((n_token + 1) * cols);
        Box::new(move |backend| {
            let mut out = rows.map(|rows| backend.zeros(n_token * rows));
            backend.begin(n_token);
            let mut products: Vec<_> = w.iter().zip(&mut out).collect();
            backend.matmul(&mut products, &x, 1, n_token, Precision::Full);
            let what = format!("a product of {format} weights, {}", tokens(n_token));
            made(what, BOUND, out)
        })
    }

    fn embed(&mut self, format: Format) -> Case<'static, B> {
        let (cols, ids) = (3 * format.run_cols().max(32), [10, 0, 3, 3, 7]);
        let w = self.matrix(format, 11, cols);
        Box::new(move |backend| {
            let mut out = backend.zeros(ids.len() * cols);
            backend.embed(&w, &ids, &mut out);
            made(format!("an embedding of {format} weights"), BOUND, [out])
        })
    }

    /// Norms, sums and mixtures.
    fn sums(&mut self) -> Vec<Case<'static, B>> {
        const EPS: f32 = 1e-6;
        let (n_token, k, d) = (3, 2, 300);
        let (x, weight) = (self.tensor(n_token * d), self.tensor(d));
        let norm: Case<'static, B> = Box::new(move |backend| {
            let mut out = backend.zeros(n_token * d);
            backend.rms_norm(&x, &weight, EPS, n_token, &mut out);
            made("a norm", BOUND, [out])
        });
        let (mut x, y) = (self.tensor(n_token * d), self.tensor(n_token * d));
        let add: Case<'static, B> = Box::new(move |backend| {
            backend.add(&mut x, &y, n_token * d - 1);
            made("a sum", BOUND, [x])
        });
        let (mut x, y, weight) = (self.tensor(n_token * d), self.tensor(n_token * d), self.tensor(d));
        let add_norm: Case<'static, B> = Box::new(move |backend| {
            let mut out = backend.zeros(n_token * d);
            let norm = Norm { weight: &weight, d, eps: EPS, out: &mut out };
            backend.add_norm((&mut x, &y), norm, n_token);
            made("a sum with its norm", BOUND, [x, out])
        });
        let mixture = |inputs: &mut Self, has_norm: bool| -> Case<'static, B> {
            let (mut x, weight) = (inputs.tensor(n_token * d), inputs.tensor(d));
            let (routed, gate) = (inputs.tensor(n_token * (k + 1) * d), inputs.tensor(n_token));
            let weights = inputs.floats(n_token * k);
            Box::new(move |backend| {
                let mut out = backend.zeros(n_token * d);
                let norm = Norm { weight: &weight, d, eps: EPS, out: &mut out };
                let norm = has_norm.then_some(norm);
                backend.combine_norm(&mut x, &routed, &weights, Some(&gate), (n_token, k, d), norm);
                let what = if has_norm { "a mixture with its norm" } else { "a mixture" };
                made(what, BOUND, [x, out])
            })
        };
        vec![norm, add, add_norm, mixture(self, false), mixture(self, true)]
    }

    fn experts<'a>(&mut self, records: &'a Records, n_token: usize) -> Case<'a, B> {
        let w = records.shapes().map(|(rows, cols)| self.matrix(records.format, rows, cols));
        let d_model = records.dims[0];
        let x = self.tensor(n_token * d_model);
        Box::new(move |backend| {
            // Each token chooses one of the experts or both.
            let mut rows: [Vec<(u32, u32)>; N_EXPERT] = Default::default();
            let mut n_out = 0;
            for t in 0..n_token as u32 {
                for (_, rows) in rows.iter_mut().enumerate().filter(|(e, _)| t % 3 != *e as u32 + 1) {
                    rows.push((t, n_out));
                    n_out += 1;
                }
            }
            let shared_rows: Vec<(u32, u32)> = (0..n_token as u32).map(|t| (t, n_out + t)).collect();
            let jobs: Vec<ExpertJob<'_>> =
                rows.iter().enumerate().map(|(e, rows)| records.job(e, rows)).collect();
            let shared = SharedJob { gate: &w[0], up: &w[1], down: &w[2], rows: &shared_rows };
            let mut out = backend.zeros((n_out as usize + n_token) * d_model);
            backend.begin(n_token);
            backend.experts(&jobs, Some(shared), &x, &mut out);
            made(format!("experts of {} weights, {}", records.format, tokens(n_token)), BOUND, [out])
        })
    }

    /// With many heads a workgroup walks over all positions.
    fn attention(&mut self, n_head_kv: usize, pos: usize, n_token: usize) -> Case<'static, B> {
        let shape = AttentionShape { n_head: 2 * n_head_kv, n_head_kv, head_dim: 64, gated: true };
        let kv_dim = shape.n_head_kv * shape.head_dim;
        let mut kv = self.backend.kv(shape, KvFormat::F16, pos + n_token);
        let before = self.floats(2 * pos * kv_dim);
        let mut bytes = vec![0; pos * KvFormat::F16.position_bytes(shape)];
        let rows = before.chunks_exact(shape.head_dim);
        for (row, bytes) in rows.zip(bytes.chunks_exact_mut(KvFormat::F16.row_bytes(shape.head_dim))) {
            KvFormat::F16.encode_row(row, bytes);
        }
        self.backend.write_kv(&mut kv, 0, &bytes);
        let mut q = self.tensor(n_token * shape.n_head * 2 * shape.head_dim);
        let (mut k, v) = (self.tensor(n_token * kv_dim), self.tensor(n_token * kv_dim));
        let norms = [self.tensor(shape.head_dim), self.tensor(shape.head_dim)];
        let rope =
            Rope { inv_freq: (0..16).map(|j| 1e4f64.powf(f64::from(-j) / 16.0)).collect(), scale: 1.0 };
        Box::new(move |backend| {
            let mut out = backend.zeros(n_token * shape.n_head * shape.head_dim);
            backend.begin(n_token);
            let (norms, qkv) = ((&norms[0], &norms[1], 1e-6), (&mut q, &mut k, &v));
            let rows = Rows::at(pos, n_token);
            backend.attention_prepare(shape, &rope, norms, qkv, &mut kv, rows);
            backend.attention(shape, &q, &kv, rows, &mut out);
            let mut all = made("queries and keys", BOUND, [q, k]);
            all.extend(made(format!("attention, {}", tokens(n_token)), ATTENTION_BOUND, [out]));
            all
        })
    }

    fn delta_net(&mut self, n_token: usize) -> Case<'static, B> {
        let shape = DeltaShape {
            n_head_k: 2,
            n_head_v: 4,
            head_dim_k: 32,
            head_dim_v: 48,
            n_conv: 4,
            out_order: HeadOrder::Tiled,
        };
        let (n_channel, n_head) = (shape.n_channel(), shape.n_head_v);
        let conv = self.tensor(shape.n_conv * n_channel);
        let (dt_bias, norm) = (self.tensor(n_head), self.tensor(shape.head_dim_v));
        let mut decay = self.backend.zeros(n_head);
        let decays: Vec<f32> = self.floats(n_head).iter().map(|x| x.exp()).collect();
        self.backend.write(&mut decay, 0, &decays);
        let (qkv, z) = (self.tensor(n_token * n_channel), self.tensor(n_token * shape.d_v()));
        let [b, a] = [0; 2].map(|_| self.tensor(n_token * n_head));
        let mut conv_state = self.tensor((shape.n_conv - 1) * n_channel);
        let mut state = self.tensor(shape.state_len());
        Box::new(move |backend| {
            let weights =
                DeltaWeights { conv: &conv, decay: &decay, dt_bias: &dt_bias, norm: &norm, eps: 1e-6 };
            let inputs = DeltaInputs { qkv: &qkv, b: &b, a: &a, z: &z };
            let mut out = backend.zeros(n_token * shape.d_v());
            backend.begin(n_token);
            let states = (&mut conv_state, &mut state);
            backend.delta_net(shape, &weights, &inputs, states, Rows::at(0, n_token), &mut out);
            let what = format!("a delta-net, {}", tokens(n_token));
            made(what, BOUND, [out, conv_state, state])
        })
    }
}

fn made<T, const N: usize>(what: impl Into<String>, bound: f64, tensors: [T; N]) -> Vec<Made<T>> {
    let what: String = what.into();
    tensors.into_iter().map(|tensor| Made { what: what.clone(), bound, tensor }).collect()
}

/// The next of a series of random numbers.
pub(crate) fn random(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mut z = *state;
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// A matrix of random codes whose numbers are mostly below 0.1.
pub(crate) fn fill(state: &mut u64, bytes: &mut [u8], format: Format, rows: usize, cols: usize) {
    let [codes, scales, biases] = format.planes(rows, cols);
    // Halves with random bits where `mask` has some.
    let mut halves = |plane: &mut [u8], mask: u16, bits: u16| {
        for half in plane.chunks_exact_mut(2) {
            half.copy_from_slice(&(random(state) as u16 & mask | bits).to_le_bytes());
        }
    };
    match format {
        Format::Affine { bits, .. } => {
            halves(&mut bytes[codes], u16::MAX, 0);
            // bf16: sign, 8 bits of exponent, 7 of mantissa. Codes times scales are below 1/8, biases about -1/24.
            halves(&mut bytes[scales], 0x7f, u16::from(124 - bits) << 7);
            halves(&mut bytes[biases], 0x7f, 0x8000 | 122 << 7);
        }
        Format::AffineF16 { bits, .. } => {
            halves(&mut bytes[codes], u16::MAX, 0);
            // The same numbers: 5 bits of exponent, 10 of mantissa.
            halves(&mut bytes[scales], 0x3ff, u16::from(12 - bits) << 10);
            halves(&mut bytes[biases], 0x3ff, 0x8000 | 10 << 10);
        }
        Format::Mxfp4 => {
            halves(&mut bytes[codes], u16::MAX, 0);
            // There may be an odd number of them. None is so small that numbers are denormal.
            bytes[scales].fill_with(|| 0x78 | random(state) as u8 & 1);
        }
        Format::Block(kind) => fill_blocks(state, &mut bytes[codes], kind),
        _ => halves(&mut bytes[codes], 0x807f, 122 << 7),
    }
}

/// Random blocks, with scales that make their numbers small.
fn fill_blocks(state: &mut u64, bytes: &mut [u8], kind: Block) {
    for block in bytes.chunks_exact_mut(kind.bytes()) {
        block.fill_with(|| random(state) as u8);
        // Where halves are, and the top bits that they keep: some scales are so small that they are denormal.
        let halves: &[(usize, u16)] = match kind {
            Block::Q8_0 => &[(0, 4 << 10)],
            Block::Q4K => &[(0, 2 << 10), (2, 5 << 10)],
            Block::Q5K => &[(0, 1 << 10), (2, 5 << 10)],
            Block::Q6K => &[(208, 0)],
            Block::Iq4Xs => &[(0, 0)],
            _ => &[],
        };
        for &(at, bits) in halves {
            block[at] = random(state) as u8;
            block[at + 1] = random(state) as u8 & 0x83 | (bits >> 8) as u8;
        }
        if kind == Block::Mxfp4 {
            block[0] = 0x78 | random(state) as u8 & 1;
        }
    }
}

const N_EXPERT: usize = 2;
/// d_model and d_ff.
const DIMS: [usize; 2] = [320, 128];
/// Those for any format.
const FORMAT_DIMS: [usize; 2] = [512, 256];

/// Experts in memory that the backend reads in place.
struct Records {
    memory: Vec<RecordMemory>,
    format: Format,
    /// d_model and d_ff.
    dims: [usize; 2],
}

impl Records {
    fn new<B: Backend>(backend: &B, format: Format, dims: [usize; 2]) -> std::io::Result<Self> {
        let mut all = Self { memory: Vec::new(), format, dims };
        let record_bytes = 3 * all.matrix_bytes();
        let plain = || (0..N_EXPERT).map(|_| Box::new(vec![0u8; record_bytes]) as RecordMemory).collect();
        all.memory = backend.record_memory(N_EXPERT, record_bytes)?.unwrap_or_else(plain);
        let (state, matrix_bytes, shapes) = (&mut 7, all.matrix_bytes(), all.shapes());
        for record in &mut all.memory {
            for (bytes, (rows, cols)) in record.chunks_exact_mut(matrix_bytes).zip(shapes) {
                fill(state, bytes, format, rows, cols);
            }
        }
        Ok(all)
    }

    /// Of gate, up and down.
    fn shapes(&self) -> [(usize, usize); 3] {
        let [d_model, d_ff] = self.dims;
        [(d_ff, d_model), (d_ff, d_model), (d_model, d_ff)]
    }

    /// All take as many.
    fn matrix_bytes(&self) -> usize {
        let bytes = self.shapes().map(|(rows, cols)| self.format.matrix_bytes(rows, cols));
        bytes.into_iter().max().unwrap_or(0)
    }

    fn job<'a>(&'a self, expert: usize, rows: &'a [(u32, u32)]) -> ExpertJob<'a> {
        let n_byte = self.matrix_bytes();
        let [gate, up, down] = [0, 1, 2].map(|i| {
            let (rows, cols) = self.shapes()[i];
            let bytes = &self.memory[expert][i * n_byte..][..n_byte];
            MatrixRef::new(self.format, rows, cols, bytes).expect("the shape fits the format")
        });
        ExpertJob { gate, up, down, rows }
    }
}

/// Both ways to choose experts: they write words.
struct Routing {
    logits: Buf,
    table: Buf,
    /// What [`Context::choose`] writes.
    routes: Buf,
    pairs: Buf,
    chosen: Buf,
    want: Routes,
}

impl Routing {
    const SHAPE: RouteShape = RouteShape { n_expert: 100, k: 8, renormalise: true };
    const FIRST_RECORD: u32 = 1000;

    fn new(context: &Context) -> Self {
        let RouteShape { n_expert, k, .. } = Self::SHAPE;
        let logits = Inputs { backend: &Reference, state: 3 }.floats(n_expert);
        let mut want = Routes::default();
        want.choose(&logits, Self::SHAPE, None).expect("the logits are finite");
        let words = |n: usize| context.buffer(n as u64 * 4);
        let all = Self {
            logits: words(n_expert),
            table: words(n_expert),
            routes: words(routes_words(1, k)),
            pairs: words(PAIR_WORDS * k),
            chosen: words(k),
            want,
        };
        context.write(&all.logits, 0, bytemuck::cast_slice(&logits));
        let table: Vec<u32> = (0..n_expert as u32).map(|e| Self::FIRST_RECORD + e).collect();
        context.write(&all.table, 0, bytemuck::cast_slice(&table));
        all
    }

    fn run(&self, context: &Context) {
        let RouteShape { n_expert, k, renormalise } = Self::SHAPE;
        let router = Router { logits: self.logits.bind(), n_expert, k, renormalise, forced: None };
        context.choose(&router, self.routes.bind(), 1);
        let (table, pairs) = ((self.table.bind(), 0), (self.pairs.bind(), 0));
        context.route_step(&router, &RouteStep { layer: 0, table, pairs, chosen: (self.chosen.bind(), 0) });
    }

    fn room(&self) -> [Vec<u32>; 3] {
        let k = Self::SHAPE.k;
        [routes_words(1, k), PAIR_WORDS * k, k].map(|n| vec![0; n])
    }

    fn parts<'a>(
        &'a self,
        words: &'a mut [Vec<u32>; 3],
    ) -> impl Iterator<Item = (&'a Buf, u64, &'a mut [u8])> {
        let bufs = [&self.routes, &self.pairs, &self.chosen];
        bufs.into_iter().zip(words).map(|(buf, words)| (buf, 0, bytemuck::cast_slice_mut(words)))
    }

    fn judge(&self, [routes, pairs, chosen]: &[Vec<u32>; 3]) -> Result<(), String> {
        let (k, want) = (Self::SHAPE.k, &self.want);
        let floats = |words: &[u32]| words.iter().map(|&bits| f32::from_bits(bits)).collect::<Vec<f32>>();
        let whole = |words: &[u32]| words.iter().map(|&word| word as f32).collect::<Vec<f32>>();
        let experts: Vec<u32> = want.experts.iter().copied().chain([0]).collect();
        judge("choosing experts", off(&whole(&routes[k..]), &whole(&experts)), 0.0)?;
        judge("weighting experts", off(&floats(&routes[..k]), &want.weights), BOUND)?;
        let (mut places, mut weights) = (Vec::new(), Vec::new());
        for pair in pairs.chunks_exact(PAIR_WORDS) {
            weights.push(pair[WEIGHT_WORD as usize]);
            places.extend_from_slice(&pair[..WEIGHT_WORD as usize]);
        }
        let place = |(j, &e): (usize, &u32)| [Self::FIRST_RECORD + e, 0, j as u32];
        let want_places: Vec<u32> = want.experts.iter().enumerate().flat_map(place).collect();
        judge("choosing experts on the device", off(&whole(chosen), &whole(&want.experts)), 0.0)?;
        judge("finding experts on the device", off(&whole(&places), &whole(&want_places)), 0.0)?;
        judge("weighting experts on the device", off(&floats(&weights), &want.weights), BOUND)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::GpuError;
    use crate::kernel::planted::{self, Mistake};
    use crate::ops::kernels;
    use crate::test_rig::{index, others, rig};

    /// What a wrong driver might make of a text: of functions with as many arguments of the same kinds, another one.
    const MISTAKES: [(&str, &str); 3] =
        [("fma(", "clamp("), ("exp(", "exp2("), ("subgroupAdd(", "subgroupMax(")];

    fn mistake(kernel: &'static str) -> Mistake {
        let listed = kernels().into_iter().find(|listed| listed.name == kernel).unwrap();
        let text = listed.wgsl.concat();
        let (right, wrong) = match kernel {
            "add" => ("x[i] + y[i]", "x[i]"),
            "prompt_split" => ("units[row] = unit", "units[row] = 2.0 * unit"),
            "delta_shift" => ("p.n_token", "(p.n_token - 1u)"),
            _ => *MISTAKES
                .iter()
                .find(|(right, _)| text.contains(right))
                .unwrap_or_else(|| panic!("a mistake to make in {kernel}")),
        };
        Mistake { kernel, right, wrong }
    }

    #[test]
    fn every_purpose_of_a_kernel_is_tested() {
        // Breaks if a new kernel is left out of the self-test.
        let Some(rig) = rig() else { return };
        let purpose = |name: &'static str| name.split(' ').next().unwrap();
        let gpu = Gpu::on(rig.context).self_test().unwrap();
        let tested: BTreeSet<&str> = gpu.context.kernels().into_iter().map(purpose).collect();
        let all: BTreeSet<&str> = kernels().iter().map(|kernel| purpose(kernel.name)).collect();
        // Figures for reports, and what is there with cooperative matrices only.
        let others = BTreeSet::from(["measure_read", "measure_flops", "prompt_split"]);
        assert_eq!(&all - &others, &tested - &others);
    }

    #[test]
    fn a_device_with_a_wrong_kernel_is_not_opened() {
        // Breaks if the self-test is not run, or its verdict is lost on the way.
        if rig().is_none() {
            return;
        }
        planted::set(Some(Mistake { kernel: "rms_norm", right: "fma(", wrong: "clamp(" }));
        let opened = Gpu::open(index());
        planted::set(None);
        let Err(GpuError::Refused { why, .. }) = opened else { panic!("it was opened") };
        assert!(why.contains("its result of a norm is wrong (off by "), "{why}");
        assert!(why.ends_with("an error of its driver"), "{why}");
        Gpu::open(index()).unwrap();
    }

    #[test]
    fn a_kernel_that_reads_a_format_wrongly_is_found() {
        // Breaks if a model's weights are read by a kernel that a driver gets wrong, or a format that is right is
        // refused.
        let Some(rig) = rig() else { return };
        let gpu = Gpu::on(rig.context);
        for format in others() {
            assert_eq!(check_formats(&gpu, &[format]), Ok(()), "{format}");
        }
        let format = Format::Block(Block::Q5K);
        let kernels = gpu.context.kernels().into_iter().filter(|kernel| kernel.contains(" block"));
        let kernels: Vec<_> = kernels.collect();
        assert_eq!(kernels.len(), 5, "{kernels:?}");
        for kernel in kernels {
            let mistake = mistake(kernel);
            let Err(why) = gpu.context.mistaken(mistake, || check_formats(&gpu, &[A4, format])) else {
                panic!("'{}' for '{}' in {kernel} was not found", mistake.wrong, mistake.right);
            };
            assert!(why.contains("q5_k weights") && why.contains(" is wrong (off by "), "{kernel}: {why}");
        }
    }

    #[test]
    fn a_wrong_kernel_is_found() {
        // Breaks if a device passes whose driver computes one kind of kernel wrongly, or a right one is refused.
        let Some(rig) = rig() else { return };
        let gpu = Gpu::on(rig.context).self_test().unwrap();
        assert_eq!(check(&gpu), Ok(()));
        let kernels = gpu.context.kernels();
        assert!(20 < kernels.len(), "{kernels:?}");
        // Passes are counted anew for each device, so a wrong count stays wrong.
        for kernel in kernels.into_iter().filter(|kernel| *kernel != "tally") {
            let mistake = mistake(kernel);
            let Err(why) = gpu.context.mistaken(mistake, || check(&gpu)) else {
                panic!("'{}' for '{}' in {kernel} was not found", mistake.wrong, mistake.right);
            };
            assert!(why.contains(" is wrong (off by "), "{kernel}: {why}");
            assert_eq!(check(&gpu), Ok(()), "after {kernel}");
        }
    }
}
