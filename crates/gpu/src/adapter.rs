//! Which GPUs there are, and which of them can be used.

use std::cmp::Reverse;

use wgpu::{
    Adapter, Backends, CooperativeMatrixProperties, CooperativeScalarType, DeviceType, Features, Instance,
    InstanceDescriptor, InstanceFlags,
};

use crate::{GpuError, raw};

/// Most bytes of parameters of a dispatch.
pub(crate) const PARAMS_BYTES_MAX: u32 = 128;
/// Most buffers of a kernel.
pub(crate) const BINDINGS_MAX: u32 = 12;
/// Threads of a workgroup that kernels rely on.
const WORKGROUP_MIN: u32 = 256;
/// Workgroup memory that kernels rely on.
const WORKGROUP_BYTES_MIN: u32 = 32 << 10;

/// What kind of device it is, the best first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum AdapterKind {
    /// Has memory of its own.
    Discrete,
    /// Shares the memory of the machine.
    Integrated,
    /// Of a virtual machine, or unknown.
    Other,
    /// Emulated on the CPU: for tests, slower than the CPU backend.
    Emulated,
}

impl AdapterKind {
    /// For people.
    pub fn name(self) -> &'static str {
        match self {
            Self::Discrete => "discrete",
            Self::Integrated => "integrated",
            Self::Other => "other",
            Self::Emulated => "CPU emulation",
        }
    }
}

/// An adapter as the system lists it.
#[derive(Clone, Debug)]
pub struct AdapterReport {
    /// Its place: `gpu:N`.
    pub index: usize,
    /// The driver's name for it.
    pub name: String,
    /// What it is.
    pub kind: AdapterKind,
    /// The programming interface: Vulkan, Metal or DX12.
    pub interface: String,
    /// The driver and its version.
    pub driver: String,
    /// Threads that run in step, at least and at most.
    pub subgroup: (u32, u32),
    /// Largest part of a buffer that a kernel can see.
    pub binding_bytes_max: u64,
    /// Its memory, where the driver tells.
    pub memory_bytes: Option<u64>,
    /// Largest buffer.
    pub buffer_bytes_max: u64,
    /// Memory that the threads of a workgroup share.
    pub workgroup_bytes: u32,
    /// What kernels need or use.
    pub features: Vec<Feature>,
    /// Why it cannot be used.
    pub refused: Option<String>,
}

/// Something that a driver may offer.
#[derive(Clone, Debug)]
pub struct Feature {
    /// For people.
    pub name: &'static str,
    /// Without it, the adapter cannot be used.
    pub is_needed: bool,
    /// It is there.
    pub is_offered: bool,
}

/// All adapters, the best first: discrete before integrated before emulated.
pub fn adapters() -> Vec<AdapterReport> {
    list().into_iter().map(|(_, report)| report).collect()
}

/// The adapter to use: number `index`, or else the best that can be used.
pub(crate) fn choose(index: Option<usize>) -> Result<(Adapter, AdapterReport), GpuError> {
    let mut all = list();
    let n = all.len();
    let at = match index {
        _ if n == 0 => return Err(GpuError::None),
        Some(index) if n <= index => return Err(GpuError::Index { index, n }),
        Some(index) => index,
        None => all.iter().position(|(_, report)| report.refused.is_none()).unwrap_or(0),
    };
    let (adapter, report) = all.swap_remove(at);
    match &report.refused {
        Some(why) => Err(GpuError::Refused { name: report.name, why: why.clone() }),
        None => Ok((adapter, report)),
    }
}

/// What kernels need.
pub(crate) fn features_needed() -> Features {
    Features::SUBGROUP | Features::IMMEDIATES | Features::MAPPABLE_PRIMARY_BUFFERS
}

/// What cooperative matrices need.
pub(crate) fn coop_features() -> Features {
    Features::EXPERIMENTAL_COOPERATIVE_MATRIX | Features::SHADER_F16
}

/// Rows and columns of the cooperative matrices of f16 with sums in f32 that kernels can use: 16 for subgroups that are
/// always of 32 threads, 8 for those of 8 (Mesa's lavapipe, for tests).
pub(crate) fn coop_side(adapter: &Adapter) -> Option<u32> {
    let info = adapter.get_info();
    let side = match (info.subgroup_min_size, info.subgroup_max_size) {
        (32, 32) => 16,
        (8, 8) => 8,
        _ => return None,
    };
    let fits = |p: &CooperativeMatrixProperties| {
        (p.m_size, p.n_size, p.k_size) == (side, side, side)
            && (p.ab_type, p.cr_type) == (CooperativeScalarType::F16, CooperativeScalarType::F32)
    };
    let offered = adapter.features().contains(coop_features());
    (offered && adapter.cooperative_matrix_properties().iter().any(fits)).then_some(side)
}

fn list() -> Vec<(Adapter, AdapterReport)> {
    let mut descriptor = InstanceDescriptor::new_without_display_handle();
    descriptor.backends = Backends::VULKAN | Backends::METAL | Backends::DX12;
    descriptor.flags = InstanceFlags::empty();
    let instance = Instance::new(descriptor);
    let found = pollster::block_on(instance.enumerate_adapters(Backends::all()));
    let mut all: Vec<(Adapter, AdapterReport)> =
        found.into_iter().map(|a| (report(&a), a)).map(swap).collect();
    // Windows lists a device once for each interface: Vulkan first.
    all.sort_by_key(|(_, r)| (r.kind, Reverse(r.interface == "Vulkan")));
    for (index, (_, report)) in all.iter_mut().enumerate() {
        report.index = index;
    }
    all
}

fn swap<A, B>((a, b): (A, B)) -> (B, A) {
    (b, a)
}

fn report(adapter: &Adapter) -> AdapterReport {
    let (info, limits) = (adapter.get_info(), adapter.limits());
    AdapterReport {
        index: 0,
        kind: match info.device_type {
            DeviceType::DiscreteGpu => AdapterKind::Discrete,
            DeviceType::IntegratedGpu => AdapterKind::Integrated,
            DeviceType::Cpu => AdapterKind::Emulated,
            DeviceType::VirtualGpu | DeviceType::Other => AdapterKind::Other,
        },
        interface: match info.backend {
            wgpu::Backend::Vulkan => "Vulkan".to_owned(),
            wgpu::Backend::Metal => "Metal".to_owned(),
            wgpu::Backend::Dx12 => "DX12".to_owned(),
            other => format!("{other:?}"),
        },
        driver: format!("{} {}", info.driver, info.driver_info).trim().to_owned(),
        subgroup: (info.subgroup_min_size, info.subgroup_max_size),
        binding_bytes_max: limits.max_storage_buffer_binding_size,
        memory_bytes: raw::device_memory_bytes(adapter),
        buffer_bytes_max: limits.max_buffer_size,
        workgroup_bytes: limits.max_compute_workgroup_storage_size,
        features: features(adapter),
        refused: refusal(adapter),
        name: info.name,
    }
}

fn features(adapter: &Adapter) -> Vec<Feature> {
    let has = adapter.features();
    let feature = |name, feature| Feature {
        name,
        is_needed: features_needed().contains(feature),
        is_offered: has.contains(feature),
    };
    let coop =
        Feature { name: "cooperative matrices", is_needed: false, is_offered: coop_side(adapter).is_some() };
    vec![
        feature("subgroups", Features::SUBGROUP),
        feature("immediates", Features::IMMEDIATES),
        feature("shared memory with the host", Features::MAPPABLE_PRIMARY_BUFFERS),
        feature("timestamps", Features::TIMESTAMP_QUERY),
        coop,
    ]
}

fn refusal(adapter: &Adapter) -> Option<String> {
    let (has, limits) = (adapter.features(), adapter.limits());
    let missing = features_needed() - has;
    if missing.contains(Features::SUBGROUP) {
        return Some("its driver offers no subgroup operations".to_owned());
    }
    if missing.contains(Features::MAPPABLE_PRIMARY_BUFFERS) {
        return Some("its driver offers no memory that both host and device see".to_owned());
    }
    if missing.contains(Features::IMMEDIATES) || limits.max_immediate_size < PARAMS_BYTES_MAX {
        return Some(format!("its driver takes fewer than {PARAMS_BYTES_MAX} bytes of immediate data"));
    }
    let least = [
        ("storage buffers of a kernel", limits.max_storage_buffers_per_shader_stage, BINDINGS_MAX),
        ("threads of a workgroup", limits.max_compute_invocations_per_workgroup, WORKGROUP_MIN),
        ("bytes of workgroup memory", limits.max_compute_workgroup_storage_size, WORKGROUP_BYTES_MIN),
    ];
    let short = least.into_iter().find(|&(_, has, needs)| has < needs);
    short.map(|(what, has, needs)| format!("it has {has} {what}, {needs} are needed"))
}
