//! Checkpoint to store: reads what people download, gives every tensor its role, quantises, and writes a store.
//!
//! The only crate that knows checkpoint tensor names ([`Checkpoint`] sorts them by role; `names` has the tables).
//! Source files are hostile: everything is checked when the checkpoint is opened, before a byte is written.
//! Weights stream through in units of a few MB; memory does not grow with the model.
#![forbid(unsafe_code)]

mod checkpoint;
mod config;
mod error;
mod folder;
mod names;
mod options;
mod pack;
mod popularity;
mod random;
pub mod safetensors;
mod synth;
mod work;

pub use checkpoint::Checkpoint;
pub use error::ConvertError;
pub use options::{Bits, PackOptions, RoleSelector};
pub use pack::{PackReport, RoleError, pack};
pub use popularity::Routing;
pub use synth::{SYNTH_PRESETS, SynthOptions, synth, synth_plan};
pub use work::Progress;
