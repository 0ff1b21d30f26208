//! Prefixes of prompts that were computed: kept in memory and on disk, so that they are never computed twice.
//!
//! A *checkpoint* is what a session needs to go on from a position: the recurrent state there, and keys and values of
//! all positions before it. Checkpoints are nodes of a tree over token ids. A node holds keys and values of the tokens
//! between its parent and itself only, so whatever begins alike shares them, and nothing that is kept is ever changed.
//!
//! Knows token ids and bytes: not what the bytes mean, which model they are of, or who asks.
#![forbid(unsafe_code)]

mod archive;
mod cache;
pub mod disk;
mod identity;
mod on_disk;
mod points;
mod restore;
mod tree;
mod value;

pub use archive::{ArchiveError, Imported, export, import, read_identity};
pub use cache::{Cache, CacheStats, Checkpoint, Kept, Loaded, Lookup, Missing, Timeline};
pub use disk::{Disk, DiskLimits, Entry, Part};
pub use identity::{Identity, Key, Shape};
pub use points::{Point, Prompt, answer_likelihood, points};
