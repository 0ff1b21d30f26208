//! Reading records: files and memory behind one trait, and the threads that read.
//!
//! Knows offsets and bytes. Which record goes where, and what is kept, is decided in `slots`.

mod arena;
mod drive;
mod file;
mod measure;
mod pieced;
mod pool;
mod queue;
mod sim;
#[cfg(test)]
mod tests;
#[cfg_attr(not(target_os = "linux"), path = "no_ring.rs")]
mod uring;

use std::io;
#[cfg(target_os = "linux")]
use std::os::fd::BorrowedFd;

use store::Blob;

pub use arena::SlotMemory;
pub(crate) use arena::{Prefault, SlotBuffer, slot_buffers};
pub use drive::{DriveFacts, drive_facts, drive_key};
pub use measure::{Tuned, measure_buffered_bandwidth, measure_read_bandwidth, tune};
pub(crate) use pool::Readers;
pub(crate) use queue::{Done, Job, Outcome, Urgency};
pub use sim::{SimCounts, SimDrive, SimFaults, SimSpec, SimSpecError};

/// Something records are read from. A file, the program's own bytes, or a test's faulty device.
pub trait ReadAt: Send + Sync {
    /// Fills `buf` from byte `offset`. May be short; 0 is the end.
    fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<usize>;
    /// Shown in messages.
    fn name(&self) -> String;
    /// Do aligned reads go past the page cache?
    fn is_direct(&self) -> bool {
        false
    }
    /// The open file for aligned reads past the page cache, if that is all there is to this source: a ring then reads
    /// it without asking [`Self::read_at`].
    #[cfg(target_os = "linux")]
    fn direct_fd(&self) -> Option<BorrowedFd<'_>> {
        None
    }
}

/// How files are opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Backing {
    /// Past the page cache where the file system allows it, else buffered.
    Direct,
    /// Through the page cache.
    Buffered,
}

/// Opens a blob.
pub struct Reader;

impl Reader {
    /// Opens `blob` for reading.
    ///
    /// # Errors
    /// The file cannot be opened. A file system that refuses direct reads is no error: the file is then read through
    /// the page cache, and [`ReadAt::is_direct`] says so.
    pub fn open(blob: &Blob, backing: Backing) -> io::Result<Box<dyn ReadAt>> {
        Ok(match blob {
            Blob::File(path) => Box::new(file::FileSource::open(path, backing)?),
            Blob::Memory { name, bytes } => Box::new(MemorySource { name: name.clone(), bytes }),
            Blob::Pieces(map) => Box::new(pieced::PieceSource::open(map, backing)?),
        })
    }
}

/// Bytes of the program itself.
struct MemorySource {
    name: String,
    bytes: &'static [u8],
}

impl ReadAt for MemorySource {
    fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<usize> {
        let rest =
            usize::try_from(offset).ok().and_then(|offset| self.bytes.get(offset..)).unwrap_or_default();
        let n = rest.len().min(buf.len());
        buf[..n].copy_from_slice(&rest[..n]);
        Ok(n)
    }

    fn name(&self) -> String {
        self.name.clone()
    }
}

/// One call reads at most this much: systems refuse or cut requests of 2 GiB and more.
const READ_BYTES_MAX: usize = 1 << 30;

/// Interrupted calls in a row before a device counts as broken: no real signal arrives so often.
const N_INTERRUPT_MAX: u32 = 10_000;

/// Fills `buf` from `offset` on, with as few calls as the source allows. `got` counts the bytes that arrived, also if
/// the read fails.
fn read_exact(source: &dyn ReadAt, offset: u64, buf: &mut [u8], got: &mut usize) -> io::Result<()> {
    let mut n_interrupt = 0;
    *got = 0;
    while *got < buf.len() {
        let end = buf.len().min(got.saturating_add(READ_BYTES_MAX));
        let part = &mut buf[*got..end];
        match source.read_at(offset + *got as u64, part) {
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(n) => {
                assert!(n <= part.len(), "a source delivers at most what it was asked for");
                *got += n;
                n_interrupt = 0;
            }
            Err(e) if e.kind() == io::ErrorKind::Interrupted && n_interrupt < N_INTERRUPT_MAX => {
                n_interrupt += 1
            }
            Err(e) => return Err(e),
        }
    }
    Ok(())
}
