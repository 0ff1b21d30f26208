//! Files on Unix.

use std::fs::{self, File, Metadata};
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;

use rustix::fs::FallocateFlags;
use rustix::io::Errno;

/// What systems answer where a file system has no such call.
const UNSUPPORTED: [Errno; 4] = [Errno::OPNOTSUPP, Errno::NOTSUP, Errno::NOSYS, Errno::INVAL];

/// Can a folder be renamed while files in it are open?
pub(crate) const RENAMES_OPEN_FOLDERS: bool = true;

/// Reads into `buf` from byte `offset` of `file`, of which other threads may read at the same time. May be short; 0 is
/// the end.
///
/// # Errors
/// What the system says.
pub fn read_at(file: &File, buf: &mut [u8], offset: u64) -> io::Result<usize> {
    file.read_at(buf, offset)
}

/// Writes all of `bytes` at byte `offset` of `file`, which other threads may write at the same time.
///
/// # Errors
/// What the system says.
pub fn write_all_at(file: &File, bytes: &[u8], offset: u64) -> io::Result<()> {
    file.write_all_at(bytes, offset)
}

/// Bytes that we may still write in `folder`, if the system says.
pub(crate) fn free_bytes(folder: &Path) -> Option<u64> {
    let stat = rustix::fs::statvfs(folder).ok()?;
    Some(stat.f_bavail.saturating_mul(stat.f_frsize))
}

/// Takes room for the first `bytes` of a file where the file system can.
pub(crate) fn reserve(file: &File, bytes: u64) -> io::Result<()> {
    // Apple's call adds to what the file has.
    if cfg!(target_vendor = "apple") && file.metadata()?.len() >= bytes {
        return Ok(());
    }
    match rustix::io::retry_on_intr(|| rustix::fs::fallocate(file, FallocateFlags::empty(), 0, bytes)) {
        Err(e) if !UNSUPPORTED.contains(&e) => Err(e.into()),
        _ => Ok(()),
    }
}

/// The room that a file takes on the disk, in bytes.
pub fn allocated_bytes(meta: &Metadata) -> u64 {
    meta.blocks() * 512
}

/// Renames a file or folder; a file that is in the way is replaced.
///
/// # Errors
/// What the system says.
pub fn rename(from: &Path, to: &Path) -> io::Result<()> {
    fs::rename(from, to)
}

/// Makes a file's bytes durable.
///
/// # Errors
/// What the system says.
pub fn sync_file(path: &Path) -> io::Result<()> {
    let file = File::open(path)?;
    match file.sync_all() {
        // Not every file system has Apple's call that empties the drive's own cache too.
        Err(e) if cfg!(target_vendor = "apple") && is_unsupported(&e) => Ok(rustix::fs::fsync(&file)?),
        result => result,
    }
}

fn is_unsupported(error: &io::Error) -> bool {
    Errno::from_io_error(error).is_some_and(|e| e == Errno::NOTTY || UNSUPPORTED.contains(&e))
}

/// Makes a folder's list of names durable.
///
/// # Errors
/// What the system says.
pub fn sync_folder(path: &Path) -> io::Result<()> {
    sync_file(path)
}
