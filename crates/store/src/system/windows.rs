//! Files on Windows.

use std::fs::{self, File, Metadata, OpenOptions};
use std::io::{self, ErrorKind};
use std::os::windows::fs::FileExt;
use std::path::Path;
use std::time::Duration;

use sysinfo::{DiskRefreshKind, Disks};

/// Can a folder be renamed while files in it are open?
pub(crate) const RENAMES_OPEN_FOLDERS: bool = false;

/// A scanner of viruses has new files open for a moment: so often, and so long apart, a name is tried again.
const N_RENAME_MAX: u32 = 50;
const RENAME_PAUSE: Duration = Duration::from_millis(100);

/// Reads into `buf` from byte `offset` of `file`, of which other threads may read at the same time. May be short; 0 is
/// the end.
///
/// # Errors
/// What the system says.
pub fn read_at(file: &File, buf: &mut [u8], offset: u64) -> io::Result<usize> {
    file.seek_read(buf, offset)
}

/// Writes all of `bytes` at byte `offset` of `file`, which other threads may write at the same time.
///
/// # Errors
/// What the system says.
pub fn write_all_at(file: &File, bytes: &[u8], offset: u64) -> io::Result<()> {
    let mut done = 0;
    while done < bytes.len() {
        match file.seek_write(&bytes[done..], offset + done as u64) {
            Ok(0) => return Err(ErrorKind::WriteZero.into()),
            Ok(n) => done += n,
            Err(e) if e.kind() == ErrorKind::Interrupted => {}
            Err(e) => return Err(e),
        }
    }
    Ok(())
}

/// Bytes that we may still write in `folder`, if the system says.
pub(crate) fn free_bytes(folder: &Path) -> Option<u64> {
    let folder = std::path::absolute(folder).ok()?;
    let disks = Disks::new_with_refreshed_list_specifics(DiskRefreshKind::nothing().with_storage()).ok()?;
    let holding = disks.iter().filter(|disk| folder.starts_with(disk.mount_point()));
    let disk = holding.max_by_key(|disk| disk.mount_point().as_os_str().len())?;
    Some(disk.available_space())
}

/// The system takes room for a file when it is made longer.
pub(crate) fn reserve(_file: &File, _bytes: u64) -> io::Result<()> {
    Ok(())
}

/// The room that a file takes on the disk, in bytes.
pub fn allocated_bytes(meta: &Metadata) -> u64 {
    meta.len()
}

/// Renames a file or folder; a file that is in the way is replaced.
///
/// # Errors
/// What the system says.
pub fn rename(from: &Path, to: &Path) -> io::Result<()> {
    for _ in 1..N_RENAME_MAX {
        match fs::rename(from, to) {
            Err(e) if e.kind() == ErrorKind::PermissionDenied => std::thread::sleep(RENAME_PAUSE),
            result => return result,
        }
    }
    fs::rename(from, to)
}

/// Makes a file's bytes durable, which takes the right to write it.
///
/// # Errors
/// What the system says.
pub fn sync_file(path: &Path) -> io::Result<()> {
    OpenOptions::new().write(true).open(path)?.sync_all()
}

/// The file system keeps its names in a journal, and folders cannot be flushed.
///
/// # Errors
/// What the system says.
pub fn sync_folder(_path: &Path) -> io::Result<()> {
    Ok(())
}
