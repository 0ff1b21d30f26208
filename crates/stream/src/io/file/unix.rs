//! Files on Unix.

use std::fs::File;
use std::io;
#[cfg(target_os = "linux")]
use std::os::fd::{AsFd, BorrowedFd};
use std::path::Path;
use std::sync::Once;

use rustix::io::Errno;
use rustix::process::{Resource, getrlimit, setrlimit};

/// An open file that threads read at the same time.
pub(super) struct SharedFile(File);

impl SharedFile {
    pub(super) fn open(path: &Path) -> io::Result<Self> {
        File::open(path).map(Self)
    }

    /// For reads past the page cache; `None` where the system knows none.
    #[cfg(any(target_os = "linux", target_os = "android"))]
    pub(super) fn open_uncached(path: &Path) -> io::Result<Option<Self>> {
        use std::os::unix::fs::OpenOptionsExt;
        let flags = rustix::fs::OFlags::DIRECT.bits() as i32;
        File::options().read(true).custom_flags(flags).open(path).map(|file| Some(Self(file)))
    }

    /// For reads past the page cache; `None` where the system knows none.
    #[cfg(target_vendor = "apple")]
    pub(super) fn open_uncached(path: &Path) -> io::Result<Option<Self>> {
        let file = File::open(path)?;
        rustix::fs::fcntl_nocache(&file, true)?;
        Ok(Some(Self(file)))
    }

    /// For reads past the page cache; `None` where the system knows none.
    #[cfg(not(any(target_os = "linux", target_os = "android", target_vendor = "apple")))]
    pub(super) fn open_uncached(_path: &Path) -> io::Result<Option<Self>> {
        Ok(None)
    }

    pub(super) fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<usize> {
        store::read_at(&self.0, buf, offset)
    }

    #[cfg(target_os = "linux")]
    pub(super) fn fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// A model of 100 layers opens 200 files, and the usual soft limits are 256 and 1024. A refusal is no error here: if
/// files run out, opening one says so.
pub(super) fn raise_file_limit() {
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

pub(super) fn is_out_of_files(error: &io::Error) -> bool {
    [Errno::MFILE, Errno::NFILE].contains(&Errno::from_io_error(error).unwrap_or(Errno::IO))
}
