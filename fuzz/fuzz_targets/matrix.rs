//! Any shape and bytes as a matrix: refused, or every row can be decoded; a decoded row is encoded again or refused.
#![no_main]

use libfuzzer_sys::fuzz_target;
use quant::{Format, MatrixRef, encode_row};

fuzz_target!(|input: (u8, u8, usize, usize, &[u8])| {
    let (kind, group, rows, cols, bytes) = input;
    let format = match kind {
        0xfd => Format::F32,
        0xfe => Format::F16,
        0xff => Format::Bf16,
        bits => Format::Affine { bits, group },
    };
    let Ok(matrix) = MatrixRef::new(format, rows, cols, bytes) else { return };
    // A matrix without columns may have any number of rows.
    for row in 0..rows.min(1000) {
        let mut out = vec![0.0; cols];
        matrix.decode_row(row, &mut out);
        let mut codes = vec![0; format.row_bytes(cols)];
        let mut scales = vec![0; format.row_groups(cols) * 2];
        let mut biases = scales.clone();
        let finite = out.iter().all(|w| w.is_finite());
        let encoded = encode_row(format, &out, &mut codes, &mut scales, &mut biases);
        assert!(finite || encoded.is_err());
    }
});
