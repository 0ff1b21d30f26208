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
mod in_place;
mod input;
mod journal;
mod manifest;
mod parallel;
mod pieces;
mod read;
mod role;
#[cfg_attr(unix, path = "system/unix.rs")]
#[cfg_attr(windows, path = "system/windows.rs")]
mod system;
mod verify;
mod write;

pub use config::{Architecture, DenseShape, LayerKind, LinearAttention, ModelConfig, RopeScaling};
pub use disk::{allocate, free_bytes, parent_of};
pub use error::StoreError;
pub use files::{Blob, StoreFiles, read_exact_at};
pub use in_place::{DenseRead, InPlace};
pub use input::Input;
pub use manifest::{DenseTensor, ExpertLayer, FORMAT_VERSION, Manifest, RECORD_ALIGN, Sidecar, Source};
pub use pieces::{Piece, PieceFile, Run};
pub use read::{Dense, Store};
pub use role::{ExpertPart, Role};
pub use system::{allocated_bytes, read_at, rename, sync_file, sync_folder, write_all_at};
pub use verify::VerifyReport;
pub use write::{DensePlan, ExpertPlan, StorePlan, StoreWriter};
