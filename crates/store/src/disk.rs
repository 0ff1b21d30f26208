//! The writer's errands with the file system: room, flushing, renaming, and what to say when they fail.

use std::fs::{File, OpenOptions};
use std::io;
use std::path::{Path, PathBuf};

use crate::{StoreError, system};

/// Bytes that we may still write beside `path`, if the system says.
pub fn free_bytes(path: &Path) -> Option<u64> {
    system::free_bytes(&parent_of(path))
}

/// Gives a file its final size, with real blocks where the file system can, so that a full disk is noticed now.
///
/// # Errors
/// The disk is full, or the system fails.
pub fn allocate(path: &Path, bytes: u64) -> io::Result<()> {
    let file = open_for_write(path)?;
    system::reserve(&file, bytes)?;
    file.set_len(bytes)
}

pub(crate) fn open_for_write(path: &Path) -> io::Result<File> {
    OpenOptions::new().write(true).create(true).truncate(false).open(path)
}

pub(crate) fn rename(from: &Path, to: &Path) -> Result<(), StoreError> {
    system::rename(from, to).map_err(|e| io_error(from, "rename", e))
}

/// The folder that `path` is in.
pub fn parent_of(path: &Path) -> PathBuf {
    match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent.into(),
        _ => ".".into(),
    }
}

/// The error for a failed write of `needed_bytes` to `file` of the store `path`.
pub(crate) fn disk_error(
    path: &Path,
    file: &Path,
    action: &'static str,
    needed_bytes: u64,
    error: io::Error,
) -> StoreError {
    match (error.kind(), free_bytes(path)) {
        (io::ErrorKind::StorageFull, Some(free_bytes)) => {
            StoreError::DiskFull { path: path.into(), needed_bytes, free_bytes }
        }
        _ => io_error(file, action, error),
    }
}

pub(crate) fn io_error(path: &Path, action: &'static str, source: io::Error) -> StoreError {
    StoreError::Io { path: path.into(), action, source }
}
