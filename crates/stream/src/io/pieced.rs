//! Records that lie in several places of other files, put together as they are read.
//!
//! Pieces begin anywhere, and reads past the page cache must be aligned: they land in memory of the thread that reads,
//! and are copied from there. The copy costs a tenth of the time of a fast drive, and other reads are under way
//! meanwhile.

use std::cell::RefCell;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use quant::Buffer;
use store::{PieceFile, Run};

use super::file::FileSource;
use super::{Backing, ReadAt};

thread_local! {
    /// What a thread reads into, grown to the largest part it had.
    static LANDING: RefCell<Option<Buffer>> = const { RefCell::new(None) };
}

/// A [`PieceFile`] and its open files.
pub(super) struct PieceSource {
    map: Arc<PieceFile>,
    /// Those that have pieces.
    files: Vec<Option<FileSource>>,
}

impl PieceSource {
    pub(super) fn open(map: &Arc<PieceFile>, backing: Backing) -> io::Result<Self> {
        let open = |(idx, path): (usize, &PathBuf)| match map.is_used(idx) {
            true => FileSource::open(path, backing).map(Some),
            false => Ok(None),
        };
        let files = map.files().iter().enumerate().map(open).collect::<io::Result<_>>()?;
        Ok(Self { map: Arc::clone(map), files })
    }

    fn used(&self) -> impl Iterator<Item = &FileSource> {
        self.files.iter().flatten()
    }
}

impl ReadAt for PieceSource {
    /// Reads at most up to the end of a piece.
    fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<usize> {
        let up_to = |bytes: u64| usize::try_from(bytes).map_or(buf.len(), |bytes| bytes.min(buf.len()));
        match self.map.run_at(offset) {
            Run::Gap { bytes } => {
                let n = up_to(bytes);
                buf[..n].fill(0);
                Ok(n)
            }
            Run::Piece { file, offset, bytes } => {
                let n = up_to(bytes);
                let file = self.files[file].as_ref().expect("files with pieces were opened");
                let named =
                    |e: io::Error| io::Error::new(e.kind(), format!("{} at {offset}: {e}", file.name()));
                LANDING
                    .with_borrow_mut(|landing| file.read_anywhere(offset, &mut buf[..n], landing))
                    .map_err(named)
            }
        }
    }

    fn name(&self) -> String {
        self.map.name().display().to_string()
    }

    fn is_direct(&self) -> bool {
        self.used().all(FileSource::is_direct)
    }
}
