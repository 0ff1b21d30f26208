//! The demo model: a store compiled into the program, so that it answers with nothing to download.

/// Shown in place of a path.
pub(crate) const NAME: &str = "demo model";

/// Relative names and contents; empty in a build without `demo/`.
pub(crate) const FILES: &[(&str, &[u8])] = include!(concat!(env!("OUT_DIR"), "/demo_files.rs"));
