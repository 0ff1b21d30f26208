//! The CPU backend: a thread pool and kernels written once for every instruction set.
//!
//! `pool.rs` threads; `isa.rs` what the CPU has; `simd.rs` the 16-lane vector all kernels use, implemented by
//! `avx512.rs`, `avx2.rs`, `neon.rs`, `generic.rs`; `codes.rs` the weight formats; `prepare.rs`, `product.rs`,
//! `matmul.rs`, `ffn.rs` matrix products; `pointwise.rs`, `attention/`, `delta_net.rs` the rest.
#![allow(unsafe_code)]

mod attention;
#[cfg(target_arch = "x86_64")]
mod avx2;
#[cfg(target_arch = "x86_64")]
mod avx512;
mod bandwidth;
mod codes;
mod delta_net;
mod ffn;
mod flops;
mod generic;
mod isa;
mod matmul;
#[cfg(target_arch = "aarch64")]
mod neon;
mod pointwise;
mod pool;
mod prepare;
mod product;
mod share;
mod simd;

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use quant::{Matrix, MatrixRef};

pub use attention::CpuKv;
pub use isa::Isa;

use crate::{AttentionShape, Backend, ConvShape, DeltaShape, ExpertJob, KvFormat, Rope};
use isa::Token;
use pool::Pool;
use simd::Lanes;

/// Computes on the CPU with the instruction set found at run time.
///
/// Operations of one `Cpu` run one after the other: all threads work on each.
pub struct Cpu {
    isa: Token,
    pool: Pool,
    scratch: Mutex<Scratch>,
}

/// Buffers that grow to what the largest call needed: repeated calls of one size allocate nothing.
#[derive(Default)]
struct Scratch {
    /// Activations laid out for one product.
    prepared: Vec<Lanes>,
    ffn: ffn::Scratch,
    /// Each token's row in the shared expert's batch.
    rows: Vec<(u32, u32)>,
    /// The shared expert's gate, `[n_token]`.
    gate: Vec<f32>,
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
        Some(Self { isa, pool: Pool::new(n_thread), scratch: Mutex::default() })
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

    /// Floating-point operations per second that all threads together compute in registers, two a multiply-add: the
    /// median over pieces, for about `duration`.
    pub fn measure_flop_rate(&self, duration: Duration) -> f64 {
        flops::measure(self.isa, &self.pool, duration)
    }

    /// Memory that attention of one token over `n_ctx` positions works in, beside less than a MiB a thread.
    pub fn attention_scratch_bytes(shape: AttentionShape, n_ctx: usize) -> usize {
        attention::scratch_bytes(shape, n_ctx)
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

    fn matmul(&self, w: &Matrix, x: &Vec<f32>, first: usize, n_token: usize, out: &mut Vec<f32>) {
        let x = &x[first * w.cols()..];
        self.with_scratch(|s| matmul::matmul(self.compute(), w.view(), x, n_token, out, &mut s.prepared));
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
        pos: usize,
        n_token: usize,
    ) {
        let pos = pos..pos + n_token;
        self.with_scratch(|s| {
            attention::prepare(self.compute(), shape, rope, norms, qkv, kv, pos, &mut s.angles);
        });
    }

    fn attention(
        &self,
        shape: AttentionShape,
        q: &Vec<f32>,
        kv: &CpuKv,
        pos: usize,
        n_token: usize,
        out: &mut Vec<f32>,
    ) {
        let pos = pos..pos + n_token;
        self.with_scratch(|s| attention::attend(self.compute(), shape, q, kv, pos, &mut s.attention, out));
    }

    fn conv_silu(
        &self,
        shape: ConvShape,
        weight: &Vec<f32>,
        x: &Vec<f32>,
        state: &mut Vec<f32>,
        n_token: usize,
        out: &mut Vec<f32>,
    ) {
        pointwise::conv_silu(self.compute(), shape, weight, x, state, n_token, out);
    }

    fn delta_net(
        &self,
        shape: DeltaShape,
        qkv: &Vec<f32>,
        ba: (&Vec<f32>, &Vec<f32>),
        decay_dt: (&Vec<f32>, &Vec<f32>),
        state: &mut Vec<f32>,
        pos: usize,
        n_token: usize,
        out: &mut Vec<f32>,
    ) {
        let (ba, decay_dt) = ((&ba.0[..], &ba.1[..]), (&decay_dt.0[..], &decay_dt.1[..]));
        delta_net::delta_net(self.compute(), shape, qkv, ba, decay_dt, state, pos..pos + n_token, out);
    }

    fn gated_rms_norm(&self, x: &mut Vec<f32>, z: &Vec<f32>, weight: &Vec<f32>, eps: f32, n_row: usize) {
        pointwise::gated_rms_norm(self.compute(), x, z, weight, eps, n_row);
    }

    fn experts(&self, jobs: &[ExpertJob<'_>], x: &Vec<f32>, out: &mut Vec<f32>) {
        self.with_scratch(|s| ffn::experts(self.compute(), jobs, x, out, &mut s.ffn));
    }

    fn shared_expert(
        &self,
        ffn: (&Matrix, &Matrix, &Matrix),
        expert_gate: &Matrix,
        x: &Vec<f32>,
        n_token: usize,
        out: &mut Vec<f32>,
    ) {
        let [gate, up, down]: [MatrixRef<'_>; 3] = [ffn.0.view(), ffn.1.view(), ffn.2.view()];
        self.with_scratch(|s| {
            s.rows.clear();
            s.rows.extend((0..n_token as u32).map(|t| (t, t)));
            let job = ExpertJob { gate, up, down, rows: &s.rows };
            ffn::experts(self.compute(), &[job], x, out, &mut s.ffn);
            s.gate.resize(n_token, 0.0);
            matmul::matmul(self.compute(), expert_gate.view(), x, n_token, &mut s.gate, &mut s.prepared);
            pointwise::scale_rows(self.compute(), out, &s.gate, gate.cols);
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
