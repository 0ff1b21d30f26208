//! Files on Windows.

use std::fs::File;
use std::io;
use std::os::windows::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// The system's flag for reads past the page cache, which have to be aligned.
const FILE_FLAG_NO_BUFFERING: u32 = 0x2000_0000;

/// A file that threads read at the same time. The system does the reads of a handle one after the other, so each read
/// under way has a handle of its own.
pub(super) struct SharedFile {
    path: PathBuf,
    flags: u32,
    idle: Mutex<Vec<File>>,
}

impl SharedFile {
    pub(super) fn open(path: &Path) -> io::Result<Self> {
        Self::open_with(path, 0)
    }

    /// For reads past the page cache; `None` where the system knows none.
    pub(super) fn open_uncached(path: &Path) -> io::Result<Option<Self>> {
        Self::open_with(path, FILE_FLAG_NO_BUFFERING).map(Some)
    }

    fn open_with(path: &Path, flags: u32) -> io::Result<Self> {
        let file = Self { path: path.to_owned(), flags, idle: Mutex::default() };
        let first = file.handle()?;
        file.lock().push(first);
        Ok(file)
    }

    pub(super) fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<usize> {
        let idle = self.lock().pop();
        let handle = idle.map_or_else(|| self.handle(), Ok)?;
        let result = store::read_at(&handle, buf, offset);
        self.lock().push(handle);
        result
    }

    fn handle(&self) -> io::Result<File> {
        File::options().read(true).custom_flags(self.flags).open(&self.path)
    }

    fn lock(&self) -> MutexGuard<'_, Vec<File>> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Handles are limited by memory alone.
pub(super) fn raise_file_limit() {}

pub(super) fn is_out_of_files(_error: &io::Error) -> bool {
    false
}
