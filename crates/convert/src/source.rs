//! An open file of weights, whatever its container: positioned reads, and what tells it from another.

use std::fs::File;
use std::io::{BufReader, Read};
use std::path::{Path, PathBuf};
use std::time::UNIX_EPOCH;

use store::read_exact_at;

use crate::ConvertError;

/// A byte in one of a checkpoint's files.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Place {
    /// Index into the files.
    pub(crate) file: usize,
    /// Bytes from its start.
    pub(crate) offset: u64,
}

/// An open weight file.
#[derive(Debug)]
pub(crate) struct SourceFile {
    pub(crate) path: PathBuf,
    file: File,
    /// Size in bytes and time of change, for the fingerprint.
    pub(crate) bytes: u64,
    pub(crate) modified_ns: u128,
    /// Hash of the header, set by the container's reader.
    pub(crate) header_hash: u64,
}

impl SourceFile {
    /// Opens a regular file.
    pub(crate) fn open(path: &Path) -> Result<Self, ConvertError> {
        let not_a_file =
            || ConvertError::NotACheckpoint { path: path.to_owned(), why: "not a regular file".into() };
        let file = File::open(path).map_err(|e| match path.is_dir() {
            true => not_a_file(), // Windows does not open folders.
            false => ConvertError::io(path, "open")(e),
        })?;
        let meta = file.metadata().map_err(ConvertError::io(path, "read its size"))?;
        if !meta.is_file() {
            return Err(not_a_file());
        }
        let modified = meta.modified().ok().and_then(|t| t.duration_since(UNIX_EPOCH).ok());
        Ok(Self {
            path: path.to_owned(),
            file,
            bytes: meta.len(),
            modified_ns: modified.map_or(0, |d| d.as_nanos()),
            header_hash: 0,
        })
    }

    /// Reads from the file's own position on, which is the first byte until this is called.
    pub(crate) fn reader(&self) -> impl Read {
        BufReader::new(&self.file)
    }

    /// Fills `out` from byte `offset`; `what` is named if that fails.
    pub(crate) fn read(&self, what: &str, offset: u64, out: &mut [u8]) -> Result<(), ConvertError> {
        let bytes = out.len();
        read_exact_at(&self.file, out, offset)
            .map_err(|e| ConvertError::io(&self.path, format!("read {bytes} bytes of {what}"))(e))
    }
}
