//! A file that is read past the page cache where the file system allows it.

use std::fs::{File, OpenOptions};
use std::io;
#[cfg(target_os = "linux")]
use std::os::fd::{AsFd, BorrowedFd};
use std::path::{Path, PathBuf};

use quant::Buffer;
use store::RECORD_ALIGN;

use super::{Backing, ReadAt};

/// Memory alignment that direct reads need: the page size of most machines and the block of all drives.
const MEMORY_ALIGN: usize = 4096;

/// A file with up to two descriptors: direct reads must be aligned, and what a short read leaves over may not be.
pub(super) struct FileSource {
    path: PathBuf,
    buffered: File,
    direct: Option<File>,
}

impl FileSource {
    pub(super) fn open(path: &Path, backing: Backing) -> io::Result<Self> {
        raise_file_limit();
        let buffered = File::open(path)?;
        let direct = match backing {
            Backing::Direct => match open_direct(path) {
                // Not a quirk of the file system, and the user can do something.
                Err(e) if is_out_of_files(&e) => return Err(e),
                result => result.ok().flatten(),
            },
            Backing::Buffered => None,
        };
        Ok(Self { path: path.to_owned(), buffered, direct })
    }
}

impl ReadAt for FileSource {
    fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<usize> {
        if let Some(direct) = self.direct.as_ref().filter(|_| is_aligned(offset, buf)) {
            match read_file_at(direct, buf, offset) {
                // Some file systems refuse single requests (holes, inline or compressed extents).
                Err(e) if e.kind() == io::ErrorKind::InvalidInput => {}
                result => return result,
            }
        }
        read_file_at(&self.buffered, buf, offset)
    }

    fn name(&self) -> String {
        self.path.display().to_string()
    }

    fn is_direct(&self) -> bool {
        self.direct.is_some()
    }

    #[cfg(target_os = "linux")]
    fn direct_fd(&self) -> Option<BorrowedFd<'_>> {
        self.direct.as_ref().map(AsFd::as_fd)
    }
}

fn is_aligned(offset: u64, buf: &[u8]) -> bool {
    offset.is_multiple_of(RECORD_ALIGN as u64)
        && buf.len().is_multiple_of(RECORD_ALIGN)
        && buf.as_ptr().addr().is_multiple_of(MEMORY_ALIGN)
}

/// `None`, or an error, where the system or the file system cannot. Some refuse at open, some at the first read.
fn open_direct(path: &Path) -> io::Result<Option<File>> {
    let Some(file) = open_uncached(path)? else { return Ok(None) };
    let mut block = Buffer::zeroed(RECORD_ALIGN)?;
    read_file_at(&file, &mut block, 0)?;
    Ok(Some(file))
}

#[cfg(any(target_os = "linux", target_os = "android"))]
fn open_uncached(path: &Path) -> io::Result<Option<File>> {
    use std::os::unix::fs::OpenOptionsExt;
    let flags = rustix::fs::OFlags::DIRECT.bits() as i32;
    OpenOptions::new().read(true).custom_flags(flags).open(path).map(Some)
}

#[cfg(target_vendor = "apple")]
fn open_uncached(path: &Path) -> io::Result<Option<File>> {
    let file = OpenOptions::new().read(true).open(path)?;
    rustix::fs::fcntl_nocache(&file, true)?;
    Ok(Some(file))
}

#[cfg(windows)]
fn open_uncached(path: &Path) -> io::Result<Option<File>> {
    use std::os::windows::fs::OpenOptionsExt;
    const FILE_FLAG_NO_BUFFERING: u32 = 0x2000_0000;
    OpenOptions::new().read(true).custom_flags(FILE_FLAG_NO_BUFFERING).open(path).map(Some)
}

#[cfg(not(any(target_os = "linux", target_os = "android", target_vendor = "apple", windows)))]
fn open_uncached(_path: &Path) -> io::Result<Option<File>> {
    Ok(None)
}

#[cfg(unix)]
fn read_file_at(file: &File, buf: &mut [u8], offset: u64) -> io::Result<usize> {
    std::os::unix::fs::FileExt::read_at(file, buf, offset)
}

#[cfg(windows)]
fn read_file_at(file: &File, buf: &mut [u8], offset: u64) -> io::Result<usize> {
    std::os::windows::fs::FileExt::seek_read(file, buf, offset)
}

/// A model of 100 layers opens 200 files, and the usual soft limits are 256 and 1024. A refusal is no error here: if
/// files run out, opening one says so.
#[cfg(unix)]
fn raise_file_limit() {
    use std::sync::Once;

    use rustix::process::{Resource, getrlimit, setrlimit};

    /// The most that macOS accepts, and plenty.
    const N_FILE: u64 = 10_240;
    static RAISED: Once = Once::new();
    RAISED.call_once(|| {
        let mut limit = getrlimit(Resource::Nofile);
        let wanted = limit.maximum.map_or(N_FILE, |hard| hard.min(N_FILE));
        if limit.current.is_some_and(|soft| soft < wanted) {
            limit.current = Some(wanted);
            let _ = setrlimit(Resource::Nofile, limit);
        }
    });
}

#[cfg(unix)]
fn is_out_of_files(error: &io::Error) -> bool {
    use rustix::io::Errno;
    [Errno::MFILE, Errno::NFILE].contains(&Errno::from_io_error(error).unwrap_or(Errno::IO))
}

#[cfg(not(unix))]
fn raise_file_limit() {}

#[cfg(not(unix))]
fn is_out_of_files(_error: &io::Error) -> bool {
    false
}
