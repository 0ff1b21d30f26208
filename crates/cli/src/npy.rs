//! Writing a two-dimensional f32 array in NumPy's `.npy` format, version 1.0, row by row.

use std::io::{self, Write};
use std::path::Path;

use crate::outfile::OutFile;

/// The array's data starts at a multiple of this.
const ALIGN: usize = 64;

/// An array being written; it appears when all rows are there.
pub(crate) struct NpyWriter {
    file: OutFile,
    n_row_left: usize,
    n_col: usize,
}

impl NpyWriter {
    /// Starts an array of shape `[n_row, n_col]`.
    pub(crate) fn create(path: &Path, n_row: usize, n_col: usize) -> io::Result<Self> {
        let mut file = OutFile::create(path)?;
        file.write_all(&header(n_row, n_col))?;
        Ok(Self { file, n_row_left: n_row, n_col })
    }

    /// Appends one row.
    ///
    /// # Panics
    /// The row has another length, or there are more rows than announced.
    pub(crate) fn row(&mut self, row: &[f32]) -> io::Result<()> {
        assert!(row.len() == self.n_col && 0 < self.n_row_left, "a row that the header does not announce");
        self.n_row_left -= 1;
        row.iter().try_for_each(|x| self.file.write_all(&x.to_le_bytes()))
    }

    /// Puts the finished array into place.
    ///
    /// # Panics
    /// Rows are missing.
    pub(crate) fn finish(self) -> io::Result<()> {
        assert!(self.n_row_left == 0, "{} rows are missing", self.n_row_left);
        self.file.finish()
    }
}

/// Magic, version, length, and a Python literal that is padded so that the data is aligned.
fn header(n_row: usize, n_col: usize) -> Vec<u8> {
    let mut literal = format!("{{'descr': '<f4', 'fortran_order': False, 'shape': ({n_row}, {n_col}), }}");
    let n_before = b"\x93NUMPY".len() + 2 + 2;
    let n_all = (n_before + literal.len() + 1).next_multiple_of(ALIGN);
    literal.extend(std::iter::repeat_n(' ', n_all - n_before - literal.len() - 1));
    literal.push('\n');
    let n_literal = u16::try_from(literal.len()).expect("a shape is short");
    [b"\x93NUMPY\x01\x00", &n_literal.to_le_bytes()[..], literal.as_bytes()].concat()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// NumPy could not read the file.
    #[test]
    fn the_bytes_are_those_of_numpy() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.npy");
        let mut writer = NpyWriter::create(&path, 2, 3).unwrap();
        writer.row(&[0.0, 1.0, -2.0]).unwrap();
        writer.row(&[0.5, f32::INFINITY, 1e-3]).unwrap();
        assert!(!path.exists());
        writer.finish().unwrap();
        let bytes = std::fs::read(&path).unwrap();
        // numpy.save of the same array (NumPy 2.3) begins with these 128 bytes.
        let literal = "{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }";
        assert_eq!(&bytes[..10], b"\x93NUMPY\x01\x00\x76\x00");
        assert_eq!(&bytes[10..128], format!("{literal:<117}\n").as_bytes());
        assert_eq!(bytes.len(), 128 + 6 * 4);
        assert_eq!(&bytes[132..136], &1f32.to_le_bytes());
    }
}
