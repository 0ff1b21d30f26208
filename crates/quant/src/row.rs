//! Encode and decode by format: the arithmetic that every kernel is checked against.

use half::{bf16, f16};

use crate::affine::{self, Params};
use crate::{Format, FormatError, blocks, minifloat};

/// Quantises (or rounds) one row to `format`, which is one of plain floats or [`Format::Affine`].
///
/// `row` is `[cols]`, `codes` `[row_bytes]`, `scales` and `biases` `[scale_row_bytes]` and `[bias_row_bytes]`.
///
/// # Errors
/// A number that is not finite or that the format cannot hold, or a format that is only read; what was written until
/// then is to be thrown away.
///
/// # Panics
/// The shapes do not fit each other or the format (program mistake: [`Format::check`] comes first).
pub fn encode_row(
    format: Format,
    row: &[f32],
    codes: &mut [u8],
    scales: &mut [u8],
    biases: &mut [u8],
) -> Result<(), FormatError> {
    assert_row(format, row.len(), codes.len(), scales.len(), biases.len());
    match format {
        Format::F32 => affine::encode_floats(format, row, codes, |w| (w.to_le_bytes(), w)),
        Format::F16 => affine::encode_floats(format, row, codes, |w| {
            let rounded = f16::from_f32(w);
            (rounded.to_le_bytes(), rounded.to_f32())
        }),
        Format::Bf16 => affine::encode_floats(format, row, codes, |w| {
            let rounded = bf16::from_f32(w);
            (rounded.to_le_bytes(), rounded.to_f32())
        }),
        Format::Affine { bits, group } => affine::encode(bits, group, row, codes, scales, biases),
        _ => Err(FormatError::ReadOnly(format)),
    }
}

/// Quantises (or rounds) rows that share scales: as many as [`Format::scale_rows`] says, or the fewer that are left at
/// the end of a matrix.
///
/// `rows` is `[n, cols]`, `codes` `[n, row_bytes]`, `scales` and `biases` one row of each.
///
/// # Errors
/// As [`encode_row`], which does it for formats whose rows share nothing; [`Format::Fp8`] and [`Format::Fp8F32`] can
/// only be encoded here.
///
/// # Panics
/// The shapes do not fit each other or the format (program mistake).
pub fn encode_rows(
    format: Format,
    cols: usize,
    rows: &[f32],
    codes: &mut [u8],
    scales: &mut [u8],
    biases: &mut [u8],
) -> Result<(), FormatError> {
    let n_row = rows.len() / cols.max(1);
    assert!(rows.len() == n_row * cols && n_row <= format.scale_rows(), "rows that share scales");
    if format.scale_rows() == 1 {
        return encode_row(format, rows, codes, scales, biases);
    }
    let bytes = (codes.len(), scales.len(), biases.len());
    assert_eq!(
        bytes,
        (n_row * format.row_bytes(cols), format.scale_row_bytes(cols), 0),
        "bytes of {n_row} rows"
    );
    match format {
        Format::Fp8 => minifloat::encode_fp8::<false>(rows, cols, codes, scales),
        Format::Fp8F32 => minifloat::encode_fp8::<true>(rows, cols, codes, scales),
        _ => Err(FormatError::ReadOnly(format)),
    }
}

/// Decodes one row of `format` to f32: the exact value that every kernel computes with. `scales` are those that belong
/// to the row, which other rows may share ([`Format::scale_rows`]).
///
/// What has a scale and a bias is `w = scale·q + bias` in f32; the product is exact, so there is one rounding.
///
/// # Panics
/// The shapes do not fit each other or the format (program mistake).
pub fn decode_row(format: Format, codes: &[u8], scales: &[u8], biases: &[u8], out: &mut [f32]) {
    assert_row(format, out.len(), codes.len(), scales.len(), biases.len());
    match format {
        Format::F32 => affine::decode_floats(codes, out, f32::from_le_bytes),
        Format::F16 => affine::decode_floats(codes, out, |b| f16::from_le_bytes(b).to_f32()),
        Format::Bf16 => affine::decode_floats(codes, out, |b| bf16::from_le_bytes(b).to_f32()),
        Format::Affine { bits, group } => {
            affine::decode(bits, group, codes, Params { scales, biases, float: bf16_of }, out)
        }
        Format::AffineF16 { bits, group } => {
            affine::decode(bits, group, codes, Params { scales, biases, float: f16_of }, out);
        }
        Format::Mxfp4 => minifloat::decode_mxfp4(codes, scales, out),
        Format::Nvfp4 => minifloat::decode_nvfp4(codes, scales, out),
        Format::Fp8 => minifloat::decode_fp8::<false>(codes, scales, out),
        Format::Fp8F32 => minifloat::decode_fp8::<true>(codes, scales, out),
        Format::Block(kind) => blocks::decode_row(kind, codes, out),
    }
}

fn bf16_of(bytes: [u8; 2]) -> f32 {
    bf16::from_le_bytes(bytes).to_f32()
}

fn f16_of(bytes: [u8; 2]) -> f32 {
    f16::from_le_bytes(bytes).to_f32()
}

/// Asserts that the pieces of one row belong together.
fn assert_row(format: Format, cols: usize, codes: usize, scales: usize, biases: usize) {
    assert_eq!(format.check(1, cols), Ok(()), "a row that the format cannot hold");
    assert_eq!(codes, format.row_bytes(cols), "bytes of codes in a row of {cols} in {format}");
    assert_eq!(
        (scales, biases),
        (format.scale_row_bytes(cols), format.bias_row_bytes(cols)),
        "bytes of scales and biases in a row of {cols} in {format}"
    );
}
