//! A file of results that appears under its name only when it is complete.

use std::fs::{self, File};
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

/// Written beside its name.
pub(crate) struct OutFile {
    path: PathBuf,
    partial: PathBuf,
    out: BufWriter<File>,
}

impl OutFile {
    /// Starts `path`.
    pub(crate) fn create(path: &Path) -> io::Result<Self> {
        let mut partial = path.as_os_str().to_owned();
        partial.push(".partial");
        let partial = PathBuf::from(partial);
        let out = BufWriter::with_capacity(1 << 20, File::create(&partial)?);
        Ok(Self { path: path.to_owned(), partial, out })
    }

    /// Puts it into place.
    pub(crate) fn finish(mut self) -> io::Result<()> {
        self.out.flush()?;
        fs::rename(&self.partial, &self.path)
    }
}

impl Write for OutFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.out.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }
}
