//! Two-dimensional f32 arrays in NumPy's `.npy` format, version 1.0, row by row.

use std::fs::File;
use std::io::{self, BufReader, Read, Write};
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

/// An array being read.
pub(crate) struct NpyReader {
    file: BufReader<File>,
    pub(crate) n_row: usize,
    bytes: Vec<u8>,
}

impl NpyReader {
    /// Opens an array whose rows have `n_col` numbers.
    ///
    /// # Errors
    /// The file cannot be read, is no two-dimensional little-endian f32 array in C order of that width, or is shorter
    /// or longer than its shape says.
    pub(crate) fn open(path: &Path, n_col: usize) -> io::Result<Self> {
        let mut file = BufReader::with_capacity(1 << 20, File::open(path)?);
        let bad = |why: String| io::Error::new(io::ErrorKind::InvalidData, why);
        let mut start = [0; 10];
        file.read_exact(&mut start)?;
        if start[..8] != *b"\x93NUMPY\x01\x00" {
            return Err(bad("not a .npy file of version 1.0".into()));
        }
        let mut literal = vec![0; literal_len(&start)];
        file.read_exact(&mut literal)?;
        let literal: String = literal.iter().map(|&b| b as char).filter(|c| !c.is_whitespace()).collect();
        let shape = literal
            .strip_prefix("{'descr':'<f4','fortran_order':False,'shape':(")
            .and_then(|rest| rest.trim_end_matches('}').trim_end_matches(',').strip_suffix(')'))
            .and_then(|shape| shape.split_once(','))
            .and_then(|(rows, cols)| Some((rows.parse::<usize>().ok()?, cols.parse::<usize>().ok()?)));
        let Some((n_row, cols)) = shape else {
            return Err(bad(format!("not a two-dimensional f32 array in C order: {literal}")));
        };
        if cols != n_col {
            return Err(bad(format!("rows of {cols} numbers, expected {n_col}")));
        }
        let (has, header) = (file.get_ref().metadata()?.len(), (start.len() + literal_len(&start)) as u64);
        let expected = (n_row as u64).checked_mul(4 * n_col as u64).and_then(|n| n.checked_add(header));
        if expected != Some(has) {
            return Err(bad(format!("{has} bytes do not hold {n_row} rows of {n_col} numbers")));
        }
        Ok(Self { file, n_row, bytes: vec![0; 4 * n_col] })
    }

    /// The next row.
    pub(crate) fn row(&mut self, row: &mut [f32]) -> io::Result<()> {
        self.file.read_exact(&mut self.bytes)?;
        for (x, bytes) in row.iter_mut().zip(self.bytes.as_chunks::<4>().0) {
            *x = f32::from_le_bytes(*bytes);
        }
        Ok(())
    }
}

/// Length of the literal that follows the first ten bytes.
fn literal_len(start: &[u8; 10]) -> usize {
    u16::from_le_bytes([start[8], start[9]]).into()
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

    /// Another shape, type or a cut file would be compared as if it were right.
    #[test]
    fn only_arrays_of_the_right_shape_are_read() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.npy");
        let mut writer = NpyWriter::create(&path, 2, 3).unwrap();
        writer.row(&[0.0, 1.0, -2.0]).unwrap();
        writer.row(&[0.5, f32::INFINITY, 1e-3]).unwrap();
        writer.finish().unwrap();
        let mut reader = NpyReader::open(&path, 3).unwrap();
        let mut row = [0.0; 3];
        reader.row(&mut row).and_then(|()| reader.row(&mut row)).unwrap();
        assert_eq!((reader.n_row, row), (2, [0.5, f32::INFINITY, 1e-3]));
        assert!(NpyReader::open(&path, 2).is_err(), "another width");
        let good = std::fs::read(&path).unwrap();
        let text = |from: &str, to: &str| {
            let at = good.windows(from.len()).position(|w| w == from.as_bytes()).unwrap();
            [&good[..at], to.as_bytes(), &good[at + from.len()..]].concat()
        };
        let cases = [
            good[..good.len() - 1].to_vec(),
            [&good[..], &[0]].concat(),
            good[..9].to_vec(),
            text("<f4", "<f8"),
            text("False", "True "),
            text("(2, 3)", "(6,)  "),
            text("(2, 3)", "(2,-3)"),
            text("NUMPY", "NUMPI"),
        ];
        for (i, bytes) in cases.iter().enumerate() {
            std::fs::write(&path, bytes).unwrap();
            assert!(NpyReader::open(&path, 3).is_err(), "case {i}");
        }
    }
}
