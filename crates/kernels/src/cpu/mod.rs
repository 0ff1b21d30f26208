//! The CPU backend: a thread pool and kernels written once for every instruction set.
//!
//! `pool.rs` threads, `crowd.rs` how many of them compute, `topology.rs` what cores there are; `isa.rs` what the CPU
//! has; `simd.rs` the 16-lane vector all kernels use, implemented by `avx512.rs`, `avx2.rs`, `neon.rs`, `generic.rs`;
//! `codes.rs`, `blocks/`, `fixed.rs`, `direct.rs` quantised matrices and `floats.rs` plain ones, put together by
//! `product.rs` for `matmul.rs` and `ffn.rs`; `pointwise.rs`, `attention/`, `delta_net/` the rest.
#![allow(unsafe_code)]

/// The body once for each number, as a constant: the compiler does not unroll what goes to a `Sink`, whose sums then
/// would not be registers.
macro_rules! unrolled {
    ($i:ident in $($n:literal)+ => $body:expr) => {
        $({
            const $i: usize = $n;
            $body;
        })+
    };
}

mod attention;
#[cfg(target_arch = "x86_64")]
mod avx2;
#[cfg(target_arch = "x86_64")]
mod avx512;
mod bandwidth;
#[cfg(feature = "blas")]
pub mod blas;
mod blocks;
mod codes;
mod crowd;
mod delta_net;
mod direct;
mod ffn;
mod fixed;
mod floats;
mod flops;
mod generic;
mod isa;
mod matmul;
#[cfg(target_arch = "aarch64")]
mod neon;
mod pointwise;
mod pool;
mod product;
mod share;
mod simd;
mod topology;

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use quant::Matrix;

pub use attention::CpuKv;
pub use isa::Isa;
pub use topology::Cores;

use crate::{
    AttentionShape, Backend, DeltaInputs, DeltaShape, DeltaWeights, ExpertJob, KvFormat, Precision, Rope,
    Rows, SharedJob,
};
use ffn::Jobs;
use isa::Token;
use pool::Pool;
use simd::Lanes;

/// Computes on the CPU with the instruction set found at run time.
///
/// Operations of one `Cpu` run one after the other: all threads work on each.
pub struct Cpu {
    isa: Token,
    pool: Pool,
    activations: Activations,
    scratch: Mutex<Scratch>,
}

/// What products of quantised matrices round activations to, group by group.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Activations {
    /// To 24 bits: as precise as sums in f32.
    #[default]
    Exact,
    /// To 16 bits: off by at most 1 in 65,000 of the group's largest number. An approximation.
    Int16,
}

impl Activations {
    /// Signed bytes of a number.
    fn planes(self) -> usize {
        match self {
            Self::Exact => 3,
            Self::Int16 => 2,
        }
    }
}

/// Buffers that grow to what the largest call needed: repeated calls of one size allocate nothing.
#[derive(Default)]
struct Scratch {
    /// Activations laid out for one product.
    prepared: Vec<Lanes<i32>>,
    ffn: ffn::Scratch,
    /// cos and sin of each token, `[n_token, n_rot]`
    angles: Vec<f32>,
    attention: attention::Scratch,
}

impl Cpu {
    /// The best instruction set of this CPU on `n_thread` threads (at least 1), the calling one included.
    pub fn new(n_thread: usize) -> Self {
        Self::with_isa(n_thread, Isa::detect()).expect("what was detected is there")
    }

    /// A given instruction set; `None` if this CPU lacks it.
    pub fn with_isa(n_thread: usize, isa: Isa) -> Option<Self> {
        let isa = Token::new(isa)?;
        let activations = Activations::default();
        Some(Self { isa, pool: Pool::new(n_thread), activations, scratch: Mutex::default() })
    }

    /// The same with other activations.
    pub fn with_activations(self, activations: Activations) -> Self {
        Self { activations, ..self }
    }

    /// The instruction set in use.
    pub fn isa(&self) -> Isa {
        self.isa.isa()
    }

    /// Threads in use, the caller included.
    pub fn n_thread(&self) -> usize {
        self.pool.n_thread()
    }

    /// Bytes per second that all threads together read from memory: the median over pieces of a buffer larger than
    /// the caches, for about `duration`. Takes 1 GiB of memory meanwhile.
    pub fn measure_ram_bandwidth(&self, duration: Duration) -> f64 {
        bandwidth::measure(self.isa, &self.pool, duration)
    }

    /// Bytes per second, read and written, that all threads together change in place: the median over pieces of a
    /// buffer of `n_float` numbers, a few MiB at least, for about `duration`. The size of the buffer names the cache,
    /// or the memory, that is measured.
    pub fn measure_update_bandwidth(&self, n_float: usize, duration: Duration) -> f64 {
        bandwidth::measure_update(self.isa, &self.pool, n_float, duration)
    }

    /// Floating-point operations per second that all threads together compute in registers, two a multiply-add: the
    /// median over pieces, for about `duration`.
    pub fn measure_flop_rate(&self, duration: Duration) -> f64 {
        flops::measure(self.isa, &self.pool, duration)
    }

    /// Memory that attention of one token over `n_ctx` positions works in, beside less than a MiB a thread.
    pub fn attention_scratch_bytes(shape: AttentionShape, n_ctx: usize) -> usize {
        attention::scratch_bytes(shape, n_ctx)
    }

    fn planes(&self, precision: Precision) -> usize {
        match precision {
            Precision::Full => Activations::Exact.planes(),
            Precision::Setting => self.activations.planes(),
        }
    }

    fn compute(&self) -> (Token, &Pool) {
        (self.isa, &self.pool)
    }

    /// The scratch, emptied of nothing: its contents mean nothing between calls, so a poisoned one is as good.
    fn with_scratch<T>(&self, call: impl FnOnce(&mut Scratch) -> T) -> T {
        call(&mut self.scratch.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Backend for Cpu {
    type Tensor = Vec<f32>;
    type Weights = Matrix;
    type Kv = CpuKv;

    fn describe(&self) -> String {
        let n_thread = self.n_thread();
        format!("CPU, {}, {n_thread} thread{}", self.isa(), if n_thread == 1 { "" } else { "s" })
    }

    fn zeros(&self, n: usize) -> Vec<f32> {
        vec![0.0; n]
    }

    fn write(&self, t: &mut Vec<f32>, at: usize, values: &[f32]) {
        t[at..at + values.len()].copy_from_slice(values);
    }

    fn read(&self, t: &Vec<f32>, at: usize, out: &mut [f32]) {
        out.copy_from_slice(&t[at..at + out.len()]);
    }

    fn weights(&self, matrix: Matrix) -> Matrix {
        matrix
    }

    fn embed(&self, w: &Matrix, ids: &[u32], out: &mut Vec<f32>) {
        pointwise::embed(&self.pool, w.view(), ids, out);
    }

    fn matmul(
        &self,
        products: &mut [(&Matrix, &mut Vec<f32>)],
        x: &Vec<f32>,
        first: usize,
        n_token: usize,
        precision: Precision,
    ) {
        let Some(cols) = products.first().map(|(w, _)| w.cols()) else { return };
        let (x, planes) = (&x[first * cols..(first + n_token) * cols], self.planes(precision));
        self.with_scratch(|s| matmul::matmul(self.compute(), products, x, n_token, planes, &mut s.prepared));
    }

    fn rms_norm(&self, x: &Vec<f32>, weight: &Vec<f32>, eps: f32, n_token: usize, out: &mut Vec<f32>) {
        pointwise::rms_norm(self.compute(), x, weight, eps, n_token, out);
    }

    fn add(&self, x: &mut Vec<f32>, y: &Vec<f32>, n: usize) {
        pointwise::add(self.compute(), &mut x[..n], &y[..n]);
    }

    fn kv(&self, shape: AttentionShape, format: KvFormat, n_ctx: usize) -> CpuKv {
        CpuKv::new(shape, format, n_ctx)
    }

    fn read_kv(&self, kv: &CpuKv, pos: usize, out: &mut [u8]) {
        kv.read(pos, out);
    }

    fn write_kv(&self, kv: &mut CpuKv, pos: usize, bytes: &[u8]) {
        kv.write(&self.pool, pos, bytes);
    }

    fn attention_prepare(
        &self,
        shape: AttentionShape,
        rope: &Rope,
        norms: (&Vec<f32>, &Vec<f32>, f32),
        qkv: (&mut Vec<f32>, &mut Vec<f32>, &Vec<f32>),
        kv: &mut CpuKv,
        rows: Rows,
    ) {
        self.with_scratch(|s| {
            attention::prepare(self.compute(), shape, rope, norms, qkv, kv, rows, &mut s.angles);
        });
    }

    fn attention(&self, shape: AttentionShape, q: &Vec<f32>, kv: &CpuKv, rows: Rows, out: &mut Vec<f32>) {
        self.with_scratch(|s| attention::attend(self.compute(), shape, q, kv, rows, &mut s.attention, out));
    }

    fn delta_net(
        &self,
        shape: DeltaShape,
        weights: &DeltaWeights<'_, Vec<f32>>,
        inputs: &DeltaInputs<'_, Vec<f32>>,
        states: (&mut Vec<f32>, &mut Vec<f32>),
        rows: Rows,
        out: &mut Vec<f32>,
    ) {
        let states = (&mut states.0[..], &mut states.1[..]);
        delta_net::delta_net(self.compute(), shape, weights, inputs, states, rows, out);
    }

    fn experts(
        &self,
        jobs: &[ExpertJob<'_>],
        shared: Option<SharedJob<'_, Matrix>>,
        x: &Vec<f32>,
        out: &mut Vec<f32>,
    ) {
        let shared = shared.map(|SharedJob { gate, up, down, rows }| ExpertJob {
            gate: gate.view(),
            up: up.view(),
            down: down.view(),
            rows,
        });
        let planes = self.planes(Precision::Setting);
        self.with_scratch(|s| {
            ffn::experts(self.compute(), Jobs { jobs, shared }, x, planes, out, &mut s.ffn)
        });
    }

    fn combine(
        &self,
        x: &mut Vec<f32>,
        routed: &Vec<f32>,
        weights: &[f32],
        shared: Option<&Vec<f32>>,
        dims: (usize, usize, usize),
    ) {
        pointwise::combine(self.compute(), x, routed, weights, shared.map(Vec::as_slice), dims);
    }
}
