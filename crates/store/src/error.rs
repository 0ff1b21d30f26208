//! What can go wrong with a store.

use std::io;
use std::path::PathBuf;

/// A store that cannot be read, written or trusted.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StoreError {
    /// The folder is not a store.
    #[error("{path} is not a flash-moe store: {why}")]
    NotAStore {
        /// The folder.
        path: PathBuf,
        /// What is missing or wrong.
        why: String,
    },
    /// What a killed `pack` left behind.
    #[error(
        "{path} is not a flash-moe store yet: packing it was interrupted: run the same pack command again to finish it"
    )]
    Unfinished {
        /// The folder.
        path: PathBuf,
    },
    /// Written by a later program.
    #[error("{path} has store version {found}, this program reads up to version {supported}")]
    FutureVersion {
        /// The manifest.
        path: PathBuf,
        /// Its version.
        found: u64,
        /// The newest one we know.
        supported: u64,
    },
    /// The manifest contradicts itself or the files.
    #[error("{path}: {why}")]
    Invalid {
        /// The file.
        path: PathBuf,
        /// What is wrong, with offset, role, layer or expert.
        why: String,
    },
    /// Bytes are not what was written.
    #[error("{path}: checksum mismatch in {what} at offset {offset}")]
    Checksum {
        /// The file.
        path: PathBuf,
        /// Role or layer and expert.
        what: String,
        /// Where it starts.
        offset: u64,
    },
    /// The system failed us.
    #[error("{path}: cannot {action}: {source}")]
    Io {
        /// The file.
        path: PathBuf,
        /// What was tried.
        action: &'static str,
        /// Why not.
        source: io::Error,
    },
    /// Not enough room for the output.
    #[error("{path}: needs {needed_bytes} bytes of disk space, {free_bytes} are free")]
    DiskFull {
        /// The output.
        path: PathBuf,
        /// Bytes still to write.
        needed_bytes: u64,
        /// Bytes there are.
        free_bytes: u64,
    },
    /// The output is there already.
    #[error("{path} already exists")]
    Exists {
        /// The output.
        path: PathBuf,
    },
}
