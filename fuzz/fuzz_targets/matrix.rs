//! Any shape and bytes as a matrix: refused, or every row can be decoded; a decoded row is encoded again or refused.
#![no_main]

use libfuzzer_sys::fuzz_target;
use quant::{Block, Format, MatrixRef, encode_row};

/// Formats without parameters.
const PLAIN: [Format; 7] = [
    Format::F32,
    Format::F16,
    Format::Bf16,
    Format::Mxfp4,
    Format::Nvfp4,
    Format::Fp8,
    Format::Fp8F32,
];

fuzz_target!(|input: (u8, u8, usize, usize, &[u8])| {
    let (kind, group, rows, cols, bytes) = input;
    let format = match kind {
        0..16 => Format::Affine { bits: kind, group },
        16..32 => Format::AffineF16 { bits: kind - 16, group },
        32..128 => Format::Block(Block::ALL[usize::from(kind) % Block::ALL.len()]),
        _ => PLAIN[usize::from(kind) % PLAIN.len()],
    };
    let Ok(matrix) = MatrixRef::new(format, rows, cols, bytes) else { return };
    // A matrix without columns may have any number of rows.
    for row in 0..rows.min(1000) {
        let mut out = vec![0.0; cols];
        matrix.decode_row(row, &mut out);
        if format.scale_rows() > 1 {
            continue;
        }
        let mut codes = vec![0; format.row_bytes(cols)];
        let mut scales = vec![0; format.scale_row_bytes(cols)];
        let mut biases = vec![0; format.bias_row_bytes(cols)];
        let finite = out.iter().all(|w| w.is_finite());
        let encoded = encode_row(format, &out, &mut codes, &mut scales, &mut biases);
        assert!(finite || encoded.is_err());
    }
});
