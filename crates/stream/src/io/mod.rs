//! Reading records: files and memory behind one trait, and the threads that read.

use std::io;
use std::path::Path;
use std::time::Duration;

use store::Blob;

/// Something records are read from. A file, the program's own bytes, or a test's faulty device.
pub trait ReadAt: Send + Sync {
    /// Fills `buf` from byte `offset`. May be short; 0 is the end.
    fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<usize>;
    /// Shown in messages.
    fn name(&self) -> String;
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
    pub fn open(_blob: &Blob, _backing: Backing) -> io::Result<Box<dyn ReadAt>> {
        panic!("stub")
    }
}

/// Bytes a second that the drive under `path` delivers to `n_reader` threads reading `request_bytes` at random
/// offsets of the given files, uncached, over `duration`.
pub fn measure_read_bandwidth(_files: &[&Path], _request_bytes: usize, _n_reader: usize, _duration: Duration) -> io::Result<f64> {
    panic!("stub")
}
