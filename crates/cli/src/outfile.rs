//! A file of results that appears under its name only when it is complete.

use std::fs::{self, File};
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

use crate::interrupt::Temporary;

/// Written beside its name.
pub(crate) struct OutFile {
    path: PathBuf,
    partial: PathBuf,
    out: BufWriter<File>,
    /// Removes what is not complete.
    _temporary: Option<Temporary>,
}

impl OutFile {
    /// Starts `path`.
    pub(crate) fn create(path: &Path) -> io::Result<Self> {
        let partial = partial(path);
        let out = buffered(File::create(&partial)?);
        Ok(Self { path: path.to_owned(), partial, out, _temporary: None })
    }

    /// Starts `path`, for this user's eyes only. Half of it is of no use: it goes when this is dropped.
    pub(crate) fn create_private(path: &Path) -> io::Result<Self> {
        let partial = partial(path);
        match fs::remove_file(&partial) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        let mut options = File::options();
        options.write(true).create_new(true);
        #[cfg(unix)]
        std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
        let out = buffered(options.open(&partial)?);
        let temporary = Some(Temporary::new(partial.clone()));
        Ok(Self { path: path.to_owned(), partial, out, _temporary: temporary })
    }

    /// Puts it into place.
    pub(crate) fn finish(mut self) -> io::Result<()> {
        self.out.flush()?;
        self.out.get_ref().sync_all()?;
        fs::rename(&self.partial, &self.path)
    }
}

fn partial(path: &Path) -> PathBuf {
    let mut partial = path.as_os_str().to_owned();
    partial.push(".partial");
    PathBuf::from(partial)
}

fn buffered(file: File) -> BufWriter<File> {
    BufWriter::with_capacity(1 << 20, file)
}

impl Write for OutFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.out.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }
}
