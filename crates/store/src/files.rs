//! Where a store's bytes come from: a folder, or the program itself (the embedded demo model).
//!
//! Owns names and reads; knows nothing of what the bytes mean.

use std::fs::File;
use std::io::{self, ErrorKind, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::{PieceFile, StoreError, system};

/// The manifest's file name.
pub(crate) const MANIFEST_NAME: &str = "manifest.json";
/// The dense weights' file name.
pub(crate) const DENSE_NAME: &str = "dense.bin";
/// The folder of the expert files.
pub(crate) const EXPERTS_NAME: &str = "experts";
/// The list of finished pieces in an unfinished store.
pub(crate) const JOURNAL_NAME: &str = "journal";

/// Systems refuse or cut reads of 2 GiB and more.
const READ_BYTES_MAX: usize = 1 << 30;

/// Name of the file that holds the records of `layer`.
pub(crate) fn expert_file_name(layer: usize) -> String {
    format!("{EXPERTS_NAME}/layer-{layer:03}.bin")
}

/// A set of named files.
#[derive(Clone, Debug)]
pub enum StoreFiles {
    /// A folder on disk.
    Dir(PathBuf),
    /// Files compiled into the program: relative name and bytes. `name` is shown in place of a path.
    Embedded {
        /// Shown to the user.
        name: &'static str,
        /// Relative path and contents.
        files: &'static [(&'static str, &'static [u8])],
    },
}

/// One file that expert records or dense tensors are read from.
#[derive(Clone, Debug)]
pub enum Blob {
    /// On disk.
    File(PathBuf),
    /// In the program.
    Memory {
        /// Shown to the user.
        name: String,
        /// Contents.
        bytes: &'static [u8],
    },
    /// In pieces of a checkpoint's files.
    Pieces(Arc<PieceFile>),
}

/// A [`Blob`] opened for reading.
#[derive(Debug)]
pub(crate) enum BlobReader<'a> {
    File { path: &'a Path, file: File },
    Memory { name: &'a str, bytes: &'static [u8] },
    Pieces { pieces: &'a PieceFile, files: Vec<Option<File>> },
}

impl StoreFiles {
    /// The folder, or the embedded name.
    pub(crate) fn location(&self) -> String {
        match self {
            StoreFiles::Dir(dir) => dir.display().to_string(),
            StoreFiles::Embedded { name, .. } => (*name).to_owned(),
        }
    }

    /// Path of a file, for messages and, in a folder, for opening it.
    pub(crate) fn path(&self, name: &str) -> PathBuf {
        match self {
            StoreFiles::Dir(dir) => dir.join(name),
            StoreFiles::Embedded { name: program, .. } => format!("{program}/{name}").into(),
        }
    }

    /// The file called `name`; whether it exists is known when it is read. An embedded file that is not there is
    /// `None`.
    pub(crate) fn blob(&self, name: &str) -> Option<Blob> {
        match self {
            StoreFiles::Dir(dir) => Some(Blob::File(dir.join(name))),
            StoreFiles::Embedded { files, .. } => {
                let &(_, bytes) = files.iter().find(|(file, _)| *file == name)?;
                Some(Blob::Memory { name: self.path(name).display().to_string(), bytes })
            }
        }
    }

    /// Size of the file called `name`, or `None` if it is not there.
    pub(crate) fn size(&self, name: &str) -> Result<Option<u64>, StoreError> {
        match self.blob(name) {
            None => Ok(None),
            Some(Blob::Memory { bytes, .. }) => Ok(Some(bytes.len() as u64)),
            Some(Blob::Pieces(_)) => unreachable!("files of a store are whole"),
            Some(Blob::File(path)) => match path.metadata() {
                Ok(meta) if meta.is_file() => Ok(Some(meta.len())),
                Ok(_) => Err(StoreError::Invalid { path, why: "is not a file".into() }),
                Err(e) if e.kind() == ErrorKind::NotFound => Ok(None),
                Err(source) => Err(StoreError::Io { path, action: "look at the file", source }),
            },
        }
    }

    /// Refuses a file called `name` that is missing or of another size.
    pub(crate) fn check_size(&self, name: &str, expected: u64) -> Result<(), StoreError> {
        let why = match self.size(name)? {
            Some(size) if size == expected => return Ok(()),
            Some(size) => format!("is {size} bytes, the manifest says {expected}"),
            None => "is missing".into(),
        };
        Err(StoreError::Invalid { path: self.path(name), why })
    }

    /// The whole file called `name`, or `None` if it is not there. A file of more than `bytes_max` is refused.
    pub(crate) fn read(&self, name: &str, bytes_max: u64) -> Result<Option<Vec<u8>>, StoreError> {
        let path = self.path(name);
        let Some(size) = self.size(name)? else { return Ok(None) };
        if size > bytes_max {
            let why = format!("is {size} bytes, more than the {bytes_max} that are sensible");
            return Err(StoreError::Invalid { path, why });
        }
        match self.blob(name) {
            None => Ok(None),
            Some(Blob::Memory { bytes, .. }) => Ok(Some(bytes.to_vec())),
            Some(Blob::Pieces(_)) => unreachable!("files of a store are whole"),
            Some(Blob::File(path)) => {
                let read = |path: &Path| -> io::Result<Vec<u8>> {
                    let mut bytes = Vec::with_capacity(size as usize);
                    File::open(path)?.take(bytes_max).read_to_end(&mut bytes)?;
                    Ok(bytes)
                };
                read(&path).map(Some).map_err(|source| StoreError::Io { path, action: "read", source })
            }
        }
    }
}

impl Blob {
    /// The path, or the embedded name, for messages.
    pub fn path(&self) -> &Path {
        match self {
            Blob::File(path) => path,
            Blob::Memory { name, .. } => Path::new(name),
            Blob::Pieces(pieces) => pieces.name(),
        }
    }

    pub(crate) fn open(&self) -> Result<BlobReader<'_>, StoreError> {
        match self {
            Blob::Memory { name, bytes } => Ok(BlobReader::Memory { name, bytes }),
            Blob::Pieces(pieces) => Ok(BlobReader::Pieces { pieces, files: pieces.open()? }),
            Blob::File(path) => match File::open(path) {
                Ok(file) => Ok(BlobReader::File { path, file }),
                Err(source) => Err(StoreError::Io { path: path.clone(), action: "open", source }),
            },
        }
    }
}

impl BlobReader<'_> {
    /// Fills `out` with the bytes from `offset` on.
    pub(crate) fn read_exact_at(&self, out: &mut [u8], offset: u64) -> Result<(), StoreError> {
        match self {
            BlobReader::File { path, file } => read_exact_at(file, out, offset)
                .map_err(|source| StoreError::Io { path: path.to_path_buf(), action: "read", source }),
            BlobReader::Pieces { pieces, files } => pieces.read_exact_at(files, out, offset),
            BlobReader::Memory { name, bytes } => {
                let from = usize::try_from(offset).ok().and_then(|at| bytes.get(at..)?.get(..out.len()));
                match from {
                    Some(from) => {
                        out.copy_from_slice(from);
                        Ok(())
                    }
                    None => {
                        Err(StoreError::Io { path: name.into(), action: "read", source: ends_early(offset) })
                    }
                }
            }
        }
    }
}

/// Fills `out` from `offset` of `file`, however often the system has to be asked.
///
/// # Errors
/// The file ends before, or the system fails; says where.
pub fn read_exact_at(file: &File, out: &mut [u8], offset: u64) -> io::Result<()> {
    let mut done = 0;
    while done < out.len() {
        let end = out.len().min(done + READ_BYTES_MAX);
        match system::read_at(file, &mut out[done..end], offset + done as u64) {
            Ok(0) => return Err(ends_early(offset + done as u64)),
            Ok(n) => done += n,
            Err(e) if e.kind() == ErrorKind::Interrupted => {}
            Err(e) => {
                return Err(io::Error::new(e.kind(), format!("at offset {}: {e}", offset + done as u64)));
            }
        }
    }
    Ok(())
}

fn ends_early(offset: u64) -> io::Error {
    io::Error::new(ErrorKind::UnexpectedEof, format!("the file ends at or before offset {offset}"))
}
