//! The [`kernels::Backend`] on GPUs: WGSL kernels on Vulkan, Metal and DX12 through wgpu.
//!
//! Operations are recorded and run when somebody reads a result; what was recorded is submitted earlier where that
//! lets the device start. `unsafe` only in `raw.rs`.
#![deny(unsafe_code)]

mod adapter;
mod backend;
#[cfg(feature = "bench")]
pub mod bench;
#[cfg(feature = "bench")]
pub mod bench_ops;
#[cfg(feature = "bench")]
pub mod bench_prompt;
mod context;
mod failure;
mod format;
mod kernel;
mod measure;
mod memory;
mod ops;
#[allow(unsafe_code, reason = "memory that the device and the host share, shaders without bounds checks")]
mod raw;
mod selftest;
mod stopwatch;
#[cfg(test)]
mod test_rig;
#[cfg(test)]
mod tests;
mod tier;

pub use adapter::{AdapterKind, AdapterReport, Feature, adapters};
pub use backend::Gpu;
pub use memory::{GpuTensor, GpuWeights};
pub use ops::kv::Kv as GpuKv;

/// Why there is no GPU backend, or no longer.
#[derive(Clone, Debug, thiserror::Error)]
pub enum GpuError {
    /// No driver, or no device.
    #[error("no GPU was found: neither Vulkan nor Metal nor DX12 lists one")]
    None,
    /// The number is not that of an adapter.
    #[error("there is no GPU number {index}: there are {n}")]
    Index {
        /// The number asked for.
        index: usize,
        /// Adapters.
        n: usize,
    },
    /// It lacks something.
    #[error("the GPU '{name}' cannot be used: {why}")]
    Refused {
        /// Its name.
        name: String,
        /// What it lacks, or what went wrong.
        why: String,
    },
    /// It stopped working.
    #[error("the GPU '{name}' failed: {what}")]
    Failed {
        /// Its name.
        name: String,
        /// What the driver said.
        what: String,
    },
}
