//! Model hubs: lists of files, downloads that can be killed at any time, and the cache that other programs share.
//!
//! Speaks the HTTP API of the Hugging Face hub. Owns names of repositories and the places of downloaded files; knows
//! nothing of what is in them. All that a server says is hostile: names stay inside their folder, sizes are bounded,
//! every byte is checked against size and digest before a file gets its name.
#![forbid(unsafe_code)]

mod cache;
mod client;
mod digest;
mod download;
mod error;
mod find;
mod journal;
mod listing;
mod name;
mod part;
mod place;
mod pull;
mod repo;
mod select;
mod settings;
mod shards;

pub use download::{Event, Options};
pub use error::{Choice, HubError};
pub use find::{Found, resolve};
pub use pull::{Pulled, Target, pull};
pub use repo::Repo;
pub use settings::{Settings, Token};
pub use shards::Shards;
