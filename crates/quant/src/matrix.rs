//! A matrix in its stored blocks: borrowed ([`MatrixRef`]) or sharing a buffer ([`Matrix`]).

use std::sync::Arc;

use crate::{Buffer, Format, FormatError};

/// A borrowed matrix `[rows, cols]`. The planes may lie apart: a checkpoint used in place has them in different
/// places, the packed store has them one after the other.
#[derive(Clone, Copy, Debug)]
pub struct MatrixRef<'a> {
    /// How the numbers are stored.
    pub format: Format,
    /// Outputs.
    pub rows: usize,
    /// Inputs.
    pub cols: usize,
    /// `[rows, row_bytes]`
    pub codes: &'a [u8],
    /// `[rows / scale_rows, scale_row_bytes]`, empty for formats without.
    pub scales: &'a [u8],
    /// `[rows, bias_row_bytes]`, empty for formats without.
    pub biases: &'a [u8],
}

impl<'a> MatrixRef<'a> {
    /// A matrix stored in one piece, as [`Format::planes`] lays it out.
    ///
    /// # Errors
    /// The shape does not fit the format, or `bytes` is shorter than the matrix.
    pub fn new(format: Format, rows: usize, cols: usize, bytes: &'a [u8]) -> Result<Self, FormatError> {
        format.check(rows, cols)?;
        let expected = format.matrix_bytes(rows, cols);
        if bytes.len() < expected {
            return Err(FormatError::Bytes { format, rows, cols, expected, got: bytes.len() });
        }
        let [codes, scales, biases] = format.planes(rows, cols);
        Ok(Self { format, rows, cols, codes: &bytes[codes], scales: &bytes[scales], biases: &bytes[biases] })
    }

    /// Row `row` decoded to f32, `[cols]`.
    pub fn decode_row(&self, row: usize, out: &mut [f32]) {
        let (format, cols) = (self.format, self.cols);
        let part = |plane: &'a [u8], row: usize, n: usize| &plane[row * n..][..n];
        let scales = part(self.scales, row / format.scale_rows(), format.scale_row_bytes(cols));
        let biases = part(self.biases, row, format.bias_row_bytes(cols));
        crate::decode_row(format, part(self.codes, row, format.row_bytes(cols)), scales, biases, out);
    }
}

/// A matrix that shares a buffer with others (the dense weights are one buffer).
#[derive(Clone, Debug)]
pub struct Matrix {
    format: Format,
    rows: usize,
    cols: usize,
    buffer: Arc<Buffer>,
    offset: usize,
}

impl Matrix {
    /// The matrix that starts at byte `offset` of `buffer`.
    ///
    /// # Errors
    /// As [`MatrixRef::new`].
    pub fn new(
        format: Format,
        rows: usize,
        cols: usize,
        buffer: Arc<Buffer>,
        offset: usize,
    ) -> Result<Self, FormatError> {
        MatrixRef::new(format, rows, cols, buffer.get(offset..).unwrap_or(&[]))?;
        Ok(Self { format, rows, cols, buffer, offset })
    }

    /// The borrowed view.
    pub fn view(&self) -> MatrixRef<'_> {
        MatrixRef::new(self.format, self.rows, self.cols, &self.buffer[self.offset..])
            .expect("checked when the matrix was made")
    }

    /// Outputs.
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// Inputs.
    pub fn cols(&self) -> usize {
        self.cols
    }

    /// How the numbers are stored.
    pub fn format(&self) -> Format {
        self.format
    }
}
