//! A file that is read past the page cache where the file system allows it.

#[cfg_attr(unix, path = "file/unix.rs")]
#[cfg_attr(windows, path = "file/windows.rs")]
mod system;

use std::io;
#[cfg(target_os = "linux")]
use std::os::fd::BorrowedFd;
use std::path::{Path, PathBuf};

use quant::Buffer;
use store::RECORD_ALIGN;

use super::{Backing, ReadAt};
use system::{SharedFile, is_out_of_files, raise_file_limit};

/// Memory alignment that direct reads need: the page size of most machines and the block of all drives.
const MEMORY_ALIGN: usize = 4096;

/// A file with up to two descriptors: direct reads must be aligned, and what a short read leaves over may not be.
pub(super) struct FileSource {
    path: PathBuf,
    buffered: SharedFile,
    direct: Option<SharedFile>,
}

impl FileSource {
    pub(super) fn open(path: &Path, backing: Backing) -> io::Result<Self> {
        raise_file_limit();
        let buffered = SharedFile::open(path)?;
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

impl FileSource {
    /// As [`ReadAt::read_at`], past the page cache also where `offset` and `buf` are not aligned: through `landing`,
    /// which grows to what it needs.
    pub(super) fn read_anywhere(
        &self,
        offset: u64,
        buf: &mut [u8],
        landing: &mut Option<Buffer>,
    ) -> io::Result<usize> {
        let Some(direct) = &self.direct else { return self.buffered.read_at(buf, offset) };
        let skip = (offset % MEMORY_ALIGN as u64) as usize;
        let bytes = (skip + buf.len()).next_multiple_of(MEMORY_ALIGN);
        if landing.as_ref().is_none_or(|memory| memory.len() < bytes) {
            *landing = Some(Buffer::zeroed(bytes)?);
        }
        let memory = &mut landing.as_mut().expect("made above")[..bytes];
        match direct.read_at(memory, offset - skip as u64) {
            // Some file systems want larger blocks, or refuse single requests.
            Err(e) if e.kind() == io::ErrorKind::InvalidInput => self.buffered.read_at(buf, offset),
            Err(e) => Err(e),
            Ok(n) => {
                let n = n.saturating_sub(skip).min(buf.len());
                buf[..n].copy_from_slice(&memory[skip..skip + n]);
                Ok(n)
            }
        }
    }
}

impl ReadAt for FileSource {
    fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<usize> {
        if let Some(direct) = self.direct.as_ref().filter(|_| is_aligned(offset, buf)) {
            match direct.read_at(buf, offset) {
                // Some file systems refuse single requests (holes, inline or compressed extents).
                Err(e) if e.kind() == io::ErrorKind::InvalidInput => {}
                result => return result,
            }
        }
        self.buffered.read_at(buf, offset)
    }

    fn name(&self) -> String {
        self.path.display().to_string()
    }

    fn is_direct(&self) -> bool {
        self.direct.is_some()
    }

    #[cfg(target_os = "linux")]
    fn direct_fd(&self) -> Option<BorrowedFd<'_>> {
        self.direct.as_ref().map(SharedFile::fd)
    }
}

fn is_aligned(offset: u64, buf: &[u8]) -> bool {
    offset.is_multiple_of(RECORD_ALIGN as u64)
        && buf.len().is_multiple_of(RECORD_ALIGN)
        && buf.as_ptr().addr().is_multiple_of(MEMORY_ALIGN)
}

/// `None`, or an error, where the system or the file system cannot. Some refuse at open, some at the first read.
fn open_direct(path: &Path) -> io::Result<Option<SharedFile>> {
    let Some(file) = SharedFile::open_uncached(path)? else { return Ok(None) };
    let mut block = Buffer::zeroed(RECORD_ALIGN)?;
    file.read_at(&mut block, 0)?;
    Ok(Some(file))
}
