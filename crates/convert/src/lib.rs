//! Checkpoint to store: reads what people download, gives every tensor its role, quantises, and writes a store.
//!
//! The only crate that knows checkpoint tensor names ([`Checkpoint`] sorts them by role; `names` has the tables).
//! Source files are hostile: everything is checked when the checkpoint is opened, before a byte is written.
//! Weights stream through in units of a few MB; memory does not grow with the model.
#![forbid(unsafe_code)]

mod arrival;
mod assembly;
mod checkpoint;
mod config;
mod error;
mod folder;
pub mod gguf;
mod hf;
mod imatrix;
mod in_place;
mod names;
mod options;
mod pack;
mod popularity;
mod quantisation;
mod random;
mod recipe;
mod rows;
pub mod safetensors;
mod source;
mod synth;
mod work;

pub use arrival::WeightSource;
pub use checkpoint::{Checkpoint, SourceKind};
pub use error::ConvertError;
pub use imatrix::{Imatrix, ImatrixCollector};
pub use options::{Bits, PackOptions, Quantiser, RoleSelector};
pub use pack::{PackReport, RoleError, pack, pack_arriving, predict_bytes};
pub use popularity::Routing;
pub use recipe::Recipe;
pub use synth::{SYNTH_PRESETS, SynthOptions, synth, synth_plan};
pub use work::Progress;
