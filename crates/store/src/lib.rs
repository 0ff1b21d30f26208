//! Where every tensor and every expert of a model lives: the packed store, its reader and its writer.
//!
//! `docs/store-format.md` describes the bytes; this crate is checked against it. Everything read is hostile:
//! bounded, checked, and refused with file, offset and role. Checkpoint tensor names do not exist here.
#![forbid(unsafe_code)]

mod check;
mod config;
mod disk;
mod error;
mod files;
mod hash;
mod journal;
mod manifest;
mod parallel;
mod read;
mod role;
#[cfg_attr(unix, path = "system/unix.rs")]
#[cfg_attr(windows, path = "system/windows.rs")]
mod system;
mod verify;
mod write;

pub use config::{Architecture, DenseShape, LayerKind, LinearAttention, ModelConfig, RopeScaling};
pub use error::StoreError;
pub use files::{Blob, StoreFiles, read_exact_at};
pub use manifest::{DenseTensor, ExpertLayer, FORMAT_VERSION, Manifest, RECORD_ALIGN, Sidecar, Source};
pub use read::{Dense, Store};
pub use role::{ExpertPart, Role};
pub use system::read_at;
pub use verify::VerifyReport;
pub use write::{DensePlan, ExpertPlan, StorePlan, StoreWriter};
