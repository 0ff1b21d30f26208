//! Records whose bytes lie in several places, seen as one file of records at a fixed stride.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::StoreError;
use crate::files::read_exact_at;

/// A run of bytes of a checkpoint's file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Piece {
    /// First byte in the file of records.
    pub start: u64,
    /// Which of the files has it.
    pub file: usize,
    /// First byte there.
    pub offset: u64,
    /// Length, not 0.
    pub bytes: u64,
}

/// A file of records that is made of pieces of other files. What is in none is zero.
#[derive(Debug)]
pub struct PieceFile {
    name: PathBuf,
    files: Arc<[PathBuf]>,
    pieces: Vec<Piece>,
    bytes: u64,
}

/// What a [`PieceFile`] has at a place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Run {
    /// So many bytes of a file, from an offset on.
    Piece {
        /// Index into [`PieceFile::files`].
        file: usize,
        /// First byte there.
        offset: u64,
        /// Bytes up to the end of the piece.
        bytes: u64,
    },
    /// So many zeros; 0 at the end.
    Gap {
        /// Bytes up to the next piece, or the end.
        bytes: u64,
    },
}

impl PieceFile {
    /// `bytes` in all, `pieces` in order; `name` is shown in messages.
    ///
    /// # Errors
    /// A piece is empty, overlaps the one before, reaches beyond the end or is in a file that is not listed.
    pub fn new(
        name: PathBuf,
        files: Arc<[PathBuf]>,
        pieces: Vec<Piece>,
        bytes: u64,
    ) -> Result<Self, StoreError> {
        let mut end = 0;
        for piece in &pieces {
            let is_outside = piece.start.checked_add(piece.bytes).is_none_or(|piece_end| bytes < piece_end);
            if piece.start < end || piece.bytes == 0 || is_outside || files.len() <= piece.file {
                let why = format!("{piece:?} does not belong behind byte {end} of {bytes}");
                return Err(StoreError::Invalid { path: name, why });
            }
            end = piece.start + piece.bytes;
        }
        Ok(Self { name, files, pieces, bytes })
    }

    /// Shown in messages.
    pub fn name(&self) -> &Path {
        &self.name
    }

    /// Length.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// The files that pieces are in.
    pub fn files(&self) -> &Arc<[PathBuf]> {
        &self.files
    }

    /// Which of them have a piece.
    pub fn is_used(&self, file: usize) -> bool {
        self.pieces.iter().any(|piece| piece.file == file)
    }

    /// All pieces, in order.
    pub fn pieces(&self) -> &[Piece] {
        &self.pieces
    }

    /// Where the bytes from `offset` on are.
    pub fn run_at(&self, offset: u64) -> Run {
        let after = self.pieces.partition_point(|piece| piece.start + piece.bytes <= offset);
        match self.pieces.get(after) {
            Some(piece) if piece.start <= offset => {
                let skip = offset - piece.start;
                Run::Piece { file: piece.file, offset: piece.offset + skip, bytes: piece.bytes - skip }
            }
            next => Run::Gap { bytes: next.map_or(self.bytes, |piece| piece.start).saturating_sub(offset) },
        }
    }

    /// Opens the files that are used, for reading through the page cache.
    pub(crate) fn open(&self) -> Result<Vec<Option<File>>, StoreError> {
        let open = |(idx, path): (usize, &PathBuf)| match self.is_used(idx) {
            false => Ok(None),
            true => File::open(path).map(Some).map_err(|source| StoreError::Io {
                path: path.clone(),
                action: "open",
                source,
            }),
        };
        self.files.iter().enumerate().map(open).collect()
    }

    /// Fills `out` with the bytes from `offset` on; `files` is what [`Self::open`] gave.
    pub(crate) fn read_exact_at(
        &self,
        files: &[Option<File>],
        mut out: &mut [u8],
        mut offset: u64,
    ) -> Result<(), StoreError> {
        while !out.is_empty() {
            let (Run::Piece { bytes, .. } | Run::Gap { bytes }) = self.run_at(offset);
            let n = usize::try_from(bytes).map_or(out.len(), |bytes| bytes.min(out.len()));
            let (part, rest) = out.split_at_mut(n);
            match self.run_at(offset) {
                Run::Gap { bytes: 0 } => {
                    let why = format!("ends before offset {offset}");
                    return Err(StoreError::Invalid { path: self.name.clone(), why });
                }
                Run::Gap { .. } => part.fill(0),
                Run::Piece { file, offset, .. } => {
                    let opened = files[file].as_ref().expect("files with pieces were opened");
                    read_exact_at(opened, part, offset).map_err(|source| StoreError::Io {
                        path: self.files[file].clone(),
                        action: "read",
                        source,
                    })?;
                }
            }
            (out, offset) = (rest, offset + n as u64);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(pieces: &[(u64, u64, u64)], bytes: u64) -> Result<PieceFile, StoreError> {
        let piece = |&(start, offset, bytes)| Piece { start, file: 0, offset, bytes };
        PieceFile::new("p".into(), [PathBuf::from("a")].into(), pieces.iter().map(piece).collect(), bytes)
    }

    /// Bytes of another expert, or of nothing, would be taken for weights.
    #[test]
    fn every_place_is_in_a_piece_or_a_gap() {
        let file = file(&[(2, 100, 3), (5, 200, 1), (8, 50, 2)], 12).unwrap();
        let gap = |bytes| Run::Gap { bytes };
        let piece = |offset, bytes| Run::Piece { file: 0, offset, bytes };
        let expected = [
            gap(2),
            gap(1),
            piece(100, 3),
            piece(101, 2),
            piece(102, 1),
            piece(200, 1),
            gap(2),
            gap(1),
            piece(50, 2),
            piece(51, 1),
            gap(2),
            gap(1),
            gap(0),
            gap(0),
        ];
        for (offset, expected) in expected.into_iter().enumerate() {
            assert_eq!(file.run_at(offset as u64), expected, "at {offset}");
        }
    }

    /// A hostile checkpoint could make pieces overlap or leave the file of records.
    #[test]
    fn pieces_that_do_not_follow_each_other_are_refused() {
        for pieces in [
            &[(0, 0, 4), (3, 9, 1)][..],
            &[(4, 0, 0)],
            &[(0, 0, 13)],
            &[(u64::MAX, 0, 2)],
            &[(5, 0, 1), (1, 0, 1)],
        ] {
            assert!(file(pieces, 12).is_err(), "{pieces:?}");
        }
    }
}
