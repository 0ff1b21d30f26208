//! Rows of a matrix on their way out of the checkpoint: copied where the format stays, else decoded and encoded.

use std::ops::Range;

use quant::{Cost, Format, FormatError, Searcher};

use crate::ConvertError;
use crate::assembly::{Adjust, DenseSource};
use crate::checkpoint::{Checkpoint, is_whole};
use crate::options::Kind;
use crate::work::{plane_bytes, row_bytes};

/// Every so many rows are decoded again to measure the error: the cost stays under 1 %.
const ERROR_SAMPLE_ROWS: usize = 64;

/// Rows that are decoded and encoded together: as many as can share scales.
const BLOCK_ROWS: usize = 128;

/// Buffers that a worker keeps.
#[derive(Default)]
pub(crate) struct Scratch {
    /// Codes, scales and biases as they are in the file.
    source: [Vec<u8>; 3],
    /// Rows decoded, and one of them as it is stored.
    numbers: Vec<f32>,
    stored: Vec<f32>,
    searcher: Searcher,
}

/// A matrix in the checkpoint, and what it becomes.
pub(crate) struct Matrix<'a> {
    pub(crate) kind: Kind,
    /// Named in errors.
    pub(crate) expert: Option<usize>,
    pub(crate) tensor: usize,
    pub(crate) cols: usize,
    /// Rows of the tensor, in the matrix's order.
    pub(crate) pieces: &'a [Range<usize>],
    pub(crate) adjust: Adjust,
    pub(crate) format: Format,
    /// What errors cost, where codes are searched for.
    pub(crate) cost: Option<Cost<'a>>,
}

impl<'a> Matrix<'a> {
    /// A dense matrix, in `format`.
    pub(crate) fn dense(source: &'a DenseSource, format: Format) -> Self {
        Self {
            kind: Kind::Dense(source.role),
            expert: None,
            tensor: source.tensor,
            cols: source.cols,
            pieces: &source.pieces,
            adjust: source.adjust,
            format,
            cost: None,
        }
    }

    /// What of `rows` of the matrix lies together in the tensor: the first row in the matrix, rows of the tensor.
    fn runs(&self, rows: Range<usize>) -> impl Iterator<Item = (usize, Range<usize>)> {
        let mut piece_start = 0;
        self.pieces.iter().filter_map(move |piece| {
            let start = piece_start;
            piece_start += piece.len();
            let (from, to) = (rows.start.max(start), rows.end.min(piece_start));
            (from < to).then(|| (from, piece.start + (from - start)..piece.start + (to - start)))
        })
    }
}

impl Checkpoint {
    /// Rows of a matrix in its format: copied if that is what the checkpoint has, else decoded and encoded. `rows`
    /// starts at a multiple of the format's `scale_rows`. `measure` gets a sample of the rows that lost something:
    /// their numbers, and those stored.
    ///
    /// # Errors
    /// The file cannot be read, or a number is not finite or beyond the format.
    pub(crate) fn rows(
        &self,
        matrix: &Matrix<'_>,
        rows: Range<usize>,
        planes: [&mut [u8]; 3],
        scratch: &mut Scratch,
        measure: &mut dyn FnMut(&[f32], &[f32]),
    ) -> Result<(), ConvertError> {
        let format = self.tensor(matrix.tensor).format;
        if format == matrix.format && matrix.adjust == Adjust::None && is_whole(format, matrix.pieces) {
            self.copy(matrix, rows, planes)
        } else {
            self.convert(matrix, rows, planes, scratch, measure)
        }
    }

    fn copy(
        &self,
        matrix: &Matrix<'_>,
        rows: Range<usize>,
        planes: [&mut [u8]; 3],
    ) -> Result<(), ConvertError> {
        let &Matrix { format, cols, tensor, .. } = matrix;
        let [codes, scales, biases] = planes;
        for (row, from) in matrix.runs(rows.clone()) {
            let at = row - rows.start;
            let [c, s, b] = format.row_planes(at..at + from.len(), cols);
            self.read_rows(tensor, cols, from, [&mut codes[c], &mut scales[s], &mut biases[b]])?;
        }
        let planes = [codes, scales, biases];
        for (i, plane) in planes.iter().enumerate() {
            if let Some(at) = format.first_not_finite(i, 0, plane) {
                let scale_rows = if i == 1 { format.scale_rows() } else { 1 };
                let row_bytes = row_bytes(format, cols)[i];
                let (row, col) = (at / row_bytes * scale_rows, at % row_bytes * cols / row_bytes);
                return Err(self.bad_weight(matrix, rows.start + row, FormatError::NotFinite { col }));
            }
        }
        Ok(())
    }

    fn convert(
        &self,
        matrix: &Matrix<'_>,
        rows: Range<usize>,
        planes: [&mut [u8]; 3],
        scratch: &mut Scratch,
        measure: &mut dyn FnMut(&[f32], &[f32]),
    ) -> Result<(), ConvertError> {
        let &Matrix { format, cols, .. } = matrix;
        let scale_rows = format.scale_rows();
        let [codes, scales, biases] = planes;
        for block in rows.clone().step_by(BLOCK_ROWS) {
            let block = block..rows.end.min(block + BLOCK_ROWS);
            self.decode(matrix, block.clone(), scratch)?;
            for (i, numbers) in scratch.numbers.chunks(scale_rows * cols).enumerate() {
                let row = block.start + i * scale_rows;
                let at = row - rows.start;
                let [c, s, b] = format.row_planes(at..at + numbers.len() / cols, cols);
                let (codes, scales, biases) = (&mut codes[c], &mut scales[s], &mut biases[b]);
                let encoded = match matrix.cost {
                    Some(cost) => scratch.searcher.encode_row(format, numbers, cost, codes, scales, biases),
                    None => quant::encode_rows(format, cols, numbers, codes, scales, biases),
                };
                encoded.map_err(|source| self.bad_weight(matrix, row, source))?;
                if is_lossy(format) && row.is_multiple_of(ERROR_SAMPLE_ROWS) {
                    scratch.stored.resize(cols, 0.0);
                    quant::decode_row(
                        format,
                        &codes[..format.row_bytes(cols)],
                        scales,
                        biases,
                        &mut scratch.stored,
                    );
                    measure(&numbers[..cols], &scratch.stored);
                }
            }
        }
        Ok(())
    }

    /// Reads and decodes rows of a matrix to `scratch.numbers`.
    fn decode(
        &self,
        matrix: &Matrix<'_>,
        rows: Range<usize>,
        scratch: &mut Scratch,
    ) -> Result<(), ConvertError> {
        let &Matrix { cols, tensor, .. } = matrix;
        let format = self.tensor(tensor).format;
        let scale_rows = format.scale_rows();
        scratch.numbers.resize(rows.len() * cols, 0.0);
        for (row, from) in matrix.runs(rows.clone()) {
            // Scales of rows before these may be theirs too.
            let whole = from.start - from.start % scale_rows..from.end;
            let sizes = plane_bytes(format, cols, whole.len());
            scratch.source.iter_mut().zip(sizes).for_each(|(plane, bytes)| plane.resize(bytes, 0));
            let out = scratch.source.each_mut().map(|p| &mut p[..]);
            self.read_rows(tensor, cols, whole.clone(), out)?;
            let numbers = scratch.numbers[(row - rows.start) * cols..].chunks_exact_mut(cols);
            for (numbers, i) in numbers.zip(from.start - whole.start..whole.len()) {
                let [c, s, b] = format.row_planes(i..i + 1, cols);
                let [codes, scales, biases] = &scratch.source;
                quant::decode_row(format, &codes[c], &scales[s], &biases[b], numbers);
            }
        }
        matrix.adjust.apply(&mut scratch.numbers);
        Ok(())
    }

    fn bad_weight(&self, matrix: &Matrix<'_>, row: usize, source: FormatError) -> ConvertError {
        let expert = matrix.expert.map_or(String::new(), |e| format!(" of expert {e}"));
        ConvertError::BadWeight {
            path: self.path_of(matrix.tensor).to_owned(),
            tensor: self.tensor(matrix.tensor).name.clone(),
            matrix: format!("{}{expert}", matrix.kind),
            row,
            source,
        }
    }
}

/// Has the format fewer values than numbers can have? Then the report says how far off they are.
fn is_lossy(format: Format) -> bool {
    !matches!(format, Format::F32 | Format::F16 | Format::Bf16)
}
