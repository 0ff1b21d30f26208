//! Arithmetic on stored blocks: the [`Backend`] trait, its scalar reference and its CPU implementation.
//!
//! Knows shapes and blocks: no files, no cache, no architectures. `unsafe` only below `cpu/`.
#![deny(unsafe_code)]

mod backend;
mod cpu;
mod kv;
mod reference;
mod routes;

pub use backend::{
    AttentionShape, Backend, DELTA_CHUNK, DeltaInputs, DeltaShape, DeltaWeights, ExpertJob, HeadOrder,
    HeldJob, HeldShape, Mixture, Norm, Precision, RecordMemory, Rope, Rows, SharedJob,
};
#[cfg(feature = "blas")]
pub use cpu::blas;
pub use cpu::{Activations, Cores, Cpu, CpuKv, Isa};
pub use kv::{KV_PAGE, KvFormat};
pub use reference::{Reference, ReferenceKv};
pub use routes::{NonFinite, RouteShape, Routes};
