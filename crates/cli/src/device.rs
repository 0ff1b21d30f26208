//! Where the model computes, decided when the program runs: each operation goes to the CPU or to the GPU.

use std::path::Path;
use std::time::Duration;

use arrayvec::ArrayVec;
use gpu::{AdapterKind, Gpu, GpuKv, GpuTensor, GpuWeights};
use kernels::{
    Activations, AttentionShape, Backend, Cores, Cpu, CpuKv, DeltaInputs, DeltaShape, DeltaWeights,
    ExpertJob, HeldJob, HeldShape, KvFormat, Mixture, NonFinite, Norm, Precision, RecordMemory, Rope,
    RouteShape, Routes, Rows, SharedJob,
};
use quant::Matrix;

use crate::flags::{self, EngineFlags};
use crate::output::note;
use crate::plan::{Plan, Vram};
use crate::size::Size;

/// Most matrices of a call of [`Backend::matmul`].
const N_PRODUCT_MAX: usize = 8;

/// What one of the two has.
pub(crate) enum Either<C, G> {
    Cpu(C),
    Gpu(G),
}

/// The CPU or a GPU.
pub(crate) type Device = Either<Cpu, Box<Gpu>>;

type Tensor = Either<Vec<f32>, GpuTensor>;
type Weights = Either<<Cpu as Backend>::Weights, GpuWeights>;

/// Access to one side: what a device made is only ever given to that device.
macro_rules! side {
    ($name:ident, $side:ident, $own:ident) => {
        mod $name {
            use super::Either;

            pub(super) fn of<C, G>(either: &Either<C, G>) -> &$own {
                match either {
                    Either::$side(own) => own,
                    _ => unreachable!("a device is given what it made"),
                }
            }

            pub(super) fn of_mut<C, G>(either: &mut Either<C, G>) -> &mut $own {
                match either {
                    Either::$side(own) => own,
                    _ => unreachable!("a device is given what it made"),
                }
            }
        }
    };
}
side!(cpu_side, Cpu, C);
side!(gpu_side, Gpu, G);

/// `$do` with the device as `$device`, and with `of` and `of_mut` that look into what it made.
macro_rules! on {
    ($self:ident, $device:ident => $do:expr) => {
        match $self {
            Either::Cpu($device) => {
                #[allow(unused_imports, reason = "not every operation changes something")]
                use cpu_side::{of, of_mut};
                $do
            }
            Either::Gpu($device) => {
                #[allow(unused_imports, reason = "not every operation changes something")]
                use gpu_side::{of, of_mut};
                $do
            }
        }
    };
}

/// The same, with what comes out wrapped.
macro_rules! make {
    ($self:ident, $device:ident => $do:expr) => {
        match $self {
            Either::Cpu($device) => Either::Cpu($do),
            Either::Gpu($device) => Either::Gpu($do),
        }
    };
}

/// A [`SharedJob`] of one side.
macro_rules! shared {
    ($job:expr) => {
        $job.map(|job| SharedJob { gate: of(job.gate), up: of(job.up), down: of(job.down), rows: job.rows })
    };
}

/// Share of a GPU's own memory that is taken without being asked, in percent: the rest is for the screen and for other
/// programs.
const VRAM_SHARE_PERCENT: u64 = 85;

/// Opens what the user asked for.
///
/// # Errors
/// A GPU was asked for by name and cannot be used.
pub(crate) fn open(flags: &EngineFlags) -> anyhow::Result<Device> {
    let cpu = || Either::Cpu(Cpu::new(flags.threads.unwrap_or(Cores::read().n_thread())));
    let index = match flags.device {
        flags::Device::Cpu => return Ok(cpu()),
        flags::Device::Auto if !may_have_gpu() || !has_good_gpu() => return Ok(cpu()),
        flags::Device::Auto => None,
        flags::Device::Gpu(index) => index,
    };
    match Gpu::open(index) {
        Ok(gpu) => {
            if gpu.adapter().kind == AdapterKind::Emulated {
                note("note: this GPU is emulated on the CPU, which is slower than --device cpu");
            }
            Ok(Either::Gpu(Box::new(gpu)))
        }
        Err(error) if flags.device == flags::Device::Auto => {
            note(format_args!("note: computing on the CPU: {error}"));
            Ok(cpu())
        }
        Err(error) => Err(error.into()),
    }
}

/// Whether the system shows any device that could be one. Drivers take memory and time, those that emulate a GPU most,
/// and some of them write to standard error: they are not loaded for nothing.
fn may_have_gpu() -> bool {
    let nodes = ["dri", "nvidia0", "nvidiactl", "dxg", "kfd", "kgsl-3d0", "mali0"];
    !cfg!(target_os = "linux") || nodes.iter().any(|node| Path::new("/dev").join(node).exists())
}

/// Is one faster than the CPU, to all appearances?
fn has_good_gpu() -> bool {
    let best = gpu::adapters().into_iter().next();
    best.is_some_and(|best| matches!(best.kind, AdapterKind::Discrete | AdapterKind::Integrated))
}

impl Device {
    /// The GPU, if it is one.
    pub(crate) fn gpu(&self) -> Option<&Gpu> {
        match self {
            Either::Cpu(_) => None,
            Either::Gpu(gpu) => Some(gpu),
        }
    }

    /// What may be used of the memory that it does not share with the machine.
    pub(crate) fn vram(&self, flags: &EngineFlags) -> Option<Vram> {
        let adapter = self.gpu()?.adapter();
        let share = adapter.memory_bytes.map(|bytes| Size(bytes / 100 * VRAM_SHARE_PERCENT));
        let budget = flags.vram.0.or(share).filter(|_| adapter.kind == AdapterKind::Discrete)?;
        Some(Vram { budget, is_given: flags.vram.0.is_some() })
    }

    /// Lets it do what the plan says.
    pub(crate) fn prepared(self, plan: &Plan, activations: flags::Activations) -> Self {
        let activations = match activations {
            flags::Activations::Exact => Activations::Exact,
            flags::Activations::Int16 => Activations::Int16,
        };
        match self {
            Either::Cpu(cpu) => Either::Cpu(cpu.with_activations(activations)),
            Either::Gpu(gpu) => Either::Gpu(Box::new(gpu.with_experts(plan.held_bytes()))),
        }
    }
}

/// A [`Norm`] of one side.
macro_rules! norm {
    ($norm:expr) => {
        Norm { weight: of($norm.weight), d: $norm.d, eps: $norm.eps, out: of_mut($norm.out) }
    };
}

impl Backend for Device {
    type Tensor = Tensor;
    type Weights = Weights;
    type Kv = Either<CpuKv, GpuKv>;

    fn describe(&self) -> String {
        on!(self, device => device.describe())
    }

    fn zeros(&self, n: usize) -> Tensor {
        make!(self, device => device.zeros(n))
    }

    fn write(&self, t: &mut Tensor, at: usize, values: &[f32]) {
        on!(self, device => device.write(of_mut(t), at, values))
    }

    fn read(&self, t: &Tensor, at: usize, out: &mut [f32]) {
        on!(self, device => device.read(of(t), at, out))
    }

    fn weights(&self, matrix: Matrix) -> Weights {
        make!(self, device => device.weights(matrix))
    }

    fn embed(&self, w: &Weights, ids: &[u32], out: &mut Tensor) {
        on!(self, device => device.embed(of(w), ids, of_mut(out)))
    }

    fn matmul(
        &self,
        products: &mut [(&Weights, &mut Tensor)],
        x: &Tensor,
        first: usize,
        n_token: usize,
        precision: Precision,
    ) {
        on!(self, device => {
            let own = products.iter_mut().map(|(w, out)| (of(w), of_mut(out)));
            let mut own: ArrayVec<_, N_PRODUCT_MAX> = own.collect();
            device.matmul(&mut own, of(x), first, n_token, precision);
        });
    }

    fn rms_norm(&self, x: &Tensor, weight: &Tensor, eps: f32, n_token: usize, out: &mut Tensor) {
        on!(self, device => device.rms_norm(of(x), of(weight), eps, n_token, of_mut(out)))
    }

    fn add(&self, x: &mut Tensor, y: &Tensor, n: usize) {
        on!(self, device => device.add(of_mut(x), of(y), n))
    }

    fn kv(&self, shape: AttentionShape, format: KvFormat, n_ctx: usize) -> Self::Kv {
        make!(self, device => device.kv(shape, format, n_ctx))
    }

    fn read_kv(&self, kv: &Self::Kv, pos: usize, out: &mut [u8]) {
        on!(self, device => device.read_kv(of(kv), pos, out))
    }

    fn write_kv(&self, kv: &mut Self::Kv, pos: usize, bytes: &[u8]) {
        on!(self, device => device.write_kv(of_mut(kv), pos, bytes))
    }

    fn attention_prepare(
        &self,
        shape: AttentionShape,
        rope: &Rope,
        (q_norm, k_norm, eps): (&Tensor, &Tensor, f32),
        (q, k, v): (&mut Tensor, &mut Tensor, &Tensor),
        kv: &mut Self::Kv,
        rows: Rows,
    ) {
        on!(self, device => {
            let (norms, qkv) = ((of(q_norm), of(k_norm), eps), (of_mut(q), of_mut(k), of(v)));
            device.attention_prepare(shape, rope, norms, qkv, of_mut(kv), rows);
        });
    }

    fn attention(&self, shape: AttentionShape, q: &Tensor, kv: &Self::Kv, rows: Rows, out: &mut Tensor) {
        on!(self, device => device.attention(shape, of(q), of(kv), rows, of_mut(out)))
    }

    fn delta_net(
        &self,
        shape: DeltaShape,
        w: &DeltaWeights<'_, Tensor>,
        i: &DeltaInputs<'_, Tensor>,
        (conv, s): (&mut Tensor, &mut Tensor),
        rows: Rows,
        out: &mut Tensor,
    ) {
        on!(self, device => {
            let weights = DeltaWeights {
                conv: of(w.conv),
                decay: of(w.decay),
                dt_bias: of(w.dt_bias),
                norm: of(w.norm),
                eps: w.eps,
            };
            let inputs = DeltaInputs { qkv: of(i.qkv), b: of(i.b), a: of(i.a), z: of(i.z) };
            let states = (of_mut(conv), of_mut(s));
            device.delta_net(shape, &weights, &inputs, states, rows, of_mut(out));
        });
    }

    fn experts(
        &self,
        jobs: &[ExpertJob<'_>],
        shared: Option<SharedJob<'_, Weights>>,
        x: &Tensor,
        out: &mut Tensor,
    ) {
        on!(self, device => device.experts(jobs, shared!(shared), of(x), of_mut(out)))
    }

    fn combine(
        &self,
        x: &mut Tensor,
        routed: &Tensor,
        weights: &[f32],
        shared: Option<&Tensor>,
        dims: (usize, usize, usize),
    ) {
        on!(self, device => device.combine(of_mut(x), of(routed), weights, shared.map(of), dims))
    }

    fn choose(
        &self,
        logits: &Tensor,
        shape: RouteShape,
        n_token: usize,
        forced: Option<&[u32]>,
        routes: &mut Routes,
    ) -> Result<(), NonFinite> {
        on!(self, device => device.choose(of(logits), shape, n_token, forced, routes))
    }

    fn begin(&self, n_token: usize) {
        on!(self, device => device.begin(n_token))
    }

    fn failure(&self) -> Option<String> {
        on!(self, device => device.failure())
    }

    fn record_memory(&self, n: usize, bytes: usize) -> std::io::Result<Option<Vec<RecordMemory>>> {
        on!(self, device => device.record_memory(n, bytes))
    }

    fn borrows_records(&self) -> bool {
        on!(self, device => device.borrows_records())
    }

    fn finish(&self) {
        on!(self, device => device.finish())
    }

    fn hold_layers(&mut self, layers: &[HeldShape]) -> usize {
        on!(self, device => device.hold_layers(layers))
    }

    fn hold(&self, layer: usize, expert: usize, record: &[u8], place: usize, instead: Option<usize>) {
        on!(self, device => device.hold(layer, expert, record, place, instead))
    }

    fn experts_held(&self, layer: usize, jobs: &[HeldJob<'_>], x: &Tensor, out: &mut Tensor) {
        on!(self, device => device.experts_held(layer, jobs, of(x), of_mut(out)))
    }

    fn mixture(&self, m: Mixture<'_, Tensor, Weights>) -> bool {
        on!(self, device => device.mixture(Mixture {
            layer: m.layer,
            shape: m.shape,
            logits: of(m.logits),
            shared: m.shared.map(|(job, gate)| {
                let job = shared!(Some(job));
                (job.expect("made of one"), of(gate))
            }),
            h: of_mut(m.h),
            routed: of_mut(m.routed),
            x: of_mut(m.x),
            norm: m.norm.map(|(weight, eps)| (of(weight), eps)),
        }))
    }

    fn add_norm(&self, (x, y): (&mut Tensor, &Tensor), norm: Norm<'_, Tensor>, n_token: usize) {
        on!(self, device => device.add_norm((of_mut(x), of(y)), norm!(norm), n_token))
    }

    fn combine_norm(
        &self,
        x: &mut Tensor,
        routed: &Tensor,
        weights: &[f32],
        shared: Option<&Tensor>,
        dims: (usize, usize, usize),
        norm: Option<Norm<'_, Tensor>>,
    ) {
        on!(self, device => {
            let norm = norm.map(|norm| norm!(norm));
            device.combine_norm(of_mut(x), of(routed), weights, shared.map(of), dims, norm);
        });
    }

    fn mark(&self, layer: usize, phase: usize) {
        on!(self, device => device.mark(layer, phase))
    }

    fn measure(&self) {
        on!(self, device => device.measure())
    }

    fn measured(&self) -> Vec<(usize, usize, Duration)> {
        on!(self, device => device.measured())
    }

    fn stopped(&self, chosen: &mut Vec<u32>) -> Option<usize> {
        on!(self, device => device.stopped(chosen))
    }
}
