//! The writer's errands with the file system: room, flushing, renaming, and what to say when they fail.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::path::{Path, PathBuf};

use rustix::fs::FallocateFlags;
use rustix::io::Errno;

use crate::StoreError;

/// Bytes that we may still write beside `path`, if the system says.
pub(crate) fn free_bytes(path: &Path) -> Option<u64> {
    let stat = rustix::fs::statvfs(parent_of(path)).ok()?;
    Some(stat.f_bavail.saturating_mul(stat.f_frsize))
}

/// Gives a file its final size, with real blocks where the file system can, so that a full disk is noticed now.
pub(crate) fn allocate(path: &Path, bytes: u64) -> io::Result<()> {
    let file = open_for_write(path)?;
    match rustix::io::retry_on_intr(|| rustix::fs::fallocate(&file, FallocateFlags::empty(), 0, bytes)) {
        Ok(()) | Err(Errno::OPNOTSUPP | Errno::NOSYS | Errno::INVAL) => {}
        Err(e) => return Err(e.into()),
    }
    file.set_len(bytes)
}

pub(crate) fn open_for_write(path: &Path) -> io::Result<File> {
    OpenOptions::new().write(true).create(true).truncate(false).open(path)
}

pub(crate) fn rename(from: &Path, to: &Path) -> Result<(), StoreError> {
    fs::rename(from, to).map_err(|e| io_error(from, "rename", e))
}

/// Makes a file's bytes, or a folder's list of names, durable.
pub(crate) fn sync(path: &Path) -> io::Result<()> {
    File::open(path)?.sync_all()
}

/// The folder that `path` is in.
pub(crate) fn parent_of(path: &Path) -> PathBuf {
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
