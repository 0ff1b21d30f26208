//! Scalar encode and decode of one row.

use crate::Format;

/// Quantises (or rounds) one row to `format`.
///
/// `row` is `[cols]`, `codes` `[row_bytes]`, `scales` and `biases` `[row_groups]` bf16 (empty for plain floats).
pub fn encode_row(_format: Format, _row: &[f32], _codes: &mut [u8], _scales: &mut [u8], _biases: &mut [u8]) {
    panic!("stub")
}

/// Decodes one row of `format` to f32: the exact value that every kernel computes with.
pub fn decode_row(_format: Format, _codes: &[u8], _scales: &[u8], _biases: &[u8], _out: &mut [f32]) {
    panic!("stub")
}
