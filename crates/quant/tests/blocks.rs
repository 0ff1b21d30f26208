//! Stored weights against what the packages of others decode them to, and what must hold for any bytes.

use proptest::prelude::*;
use quant::{Block, FP8_BLOCK, Format, FormatError, MatrixRef, decode_row, e4m3, encode_row, encode_rows};

/// Takes parts off the front of a vector file.
struct Vectors<'a>(&'a [u8]);

impl<'a> Vectors<'a> {
    fn bytes(&mut self, n: usize) -> &'a [u8] {
        let (taken, rest) = self.0.split_at(n);
        self.0 = rest;
        taken
    }

    fn number(&mut self) -> usize {
        u32::from_le_bytes(self.bytes(4).try_into().unwrap()) as usize
    }

    fn plane(&mut self) -> &'a [u8] {
        let n = self.number();
        self.bytes(n)
    }
}

/// All formats that are not plain floats or MLX's own affine one.
fn formats() -> Vec<Format> {
    let affine = Format::AFFINE_BITS.map(|bits| Format::AffineF16 { bits, group: 64 });
    let others = [Format::Mxfp4, Format::Nvfp4, Format::Fp8, Format::Fp8F32];
    affine.into_iter().chain(others).chain(Block::ALL.map(Format::Block)).collect()
}

#[test]
fn weights_decode_to_what_the_packages_of_others_say() {
    // Would break: a model of a published checkpoint computes with wrong weights. The vectors are made by
    // tools/golden/quant/make_block_vectors.py. All agree to the bit, but for the sign of zeros.
    let mut vectors = Vectors(include_bytes!("data/blocks.bin"));
    let mut seen = Vec::new();
    while !vectors.0.is_empty() {
        let n = vectors.bytes(1)[0] as usize;
        let name = std::str::from_utf8(vectors.bytes(n)).unwrap();
        let format: Format = name.parse().unwrap();
        seen.push(name.to_owned());
        let (rows, cols) = (vectors.number(), vectors.number());
        let [codes, scales, biases] = [vectors.plane(), vectors.plane(), vectors.plane()];
        let planes = format.planes(rows, cols);
        assert_eq!(
            [codes, scales, biases].map(<[u8]>::len),
            planes.map(|plane| plane.len()),
            "planes of {name}"
        );
        let matrix = MatrixRef { format, rows, cols, codes, scales, biases };
        let mut row = vec![f32::NAN; cols];
        for r in 0..rows {
            matrix.decode_row(r, &mut row);
            for (col, (got, want)) in row.iter().zip(vectors.bytes(4 * cols).chunks_exact(4)).enumerate() {
                let want = f32::from_le_bytes(want.try_into().unwrap());
                assert!(
                    got.to_bits() == want.to_bits() || (*got == 0.0 && want == 0.0),
                    "{name}, row {r}, column {col}: {got:e}, should be {want:e}"
                );
            }
        }
    }
    for format in formats() {
        // Of affine ones, any group of each number of bits.
        let name = format.to_string();
        let (start, end) = name.split_once("g64").unwrap_or((&name, ""));
        let is_seen = seen.iter().any(|seen| seen.starts_with(start) && seen.ends_with(end));
        assert!(is_seen, "no vectors of {name}");
    }
}

#[test]
fn names_and_numbers_of_types_are_read_as_they_are_written() {
    // Would break: a manifest is refused, or a file's type is taken for another.
    for format in formats() {
        assert_eq!(format.to_string().parse(), Ok(format));
    }
    for name in ["q4_k_m", "Q4_K", "mxfp8", "fp8f16", "affine4g64f32", "affine4g64f16 "] {
        assert_eq!(name.parse::<Format>(), Err(FormatError::Unknown(name.into())));
    }
    let known = (0..64).filter_map(Block::from_gguf_type).collect::<Vec<_>>();
    assert_eq!(known.len(), Block::ALL.len());
    assert_eq!(Block::from_gguf_type(12), Some(Block::Q4K));
    assert_eq!(Block::from_gguf_type(0), None);
    let error = MatrixRef::new(Format::Block(Block::Q4K), 1, 128, &[0; 256]).unwrap_err();
    assert_eq!(error.to_string(), "q4_k needs rows of a multiple of 256 columns, got 128");
    let unknown = "q9".parse::<Format>().unwrap_err().to_string();
    assert!(unknown.contains("mxfp4, nvfp4, fp8, fp8f32") && unknown.contains("iq4_xs"), "{unknown}");
}

#[test]
fn fp8_scales_belong_to_128_rows() {
    // Would break: a row is decoded with the scale of another block, or a matrix that ends inside a block is refused.
    let (rows, cols) = (FP8_BLOCK + 2, FP8_BLOCK + 1);
    let mut bytes = vec![0x38; Format::Fp8.matrix_bytes(rows, cols)];
    let [_, scales, biases] = Format::Fp8.planes(rows, cols);
    assert_eq!((scales.len(), biases.len()), (2 * 2 * 2, 0));
    for (scale, value) in bytes[scales].chunks_exact_mut(2).zip([1.0f32, 2.0, 4.0, 8.0]) {
        scale.copy_from_slice(&value.to_le_bytes()[2..]);
    }
    let matrix = MatrixRef::new(Format::Fp8, rows, cols, &bytes).unwrap();
    let mut row = vec![0.0; cols];
    for (r, want) in [(0, [1.0, 2.0]), (127, [1.0, 2.0]), (128, [4.0, 8.0]), (129, [4.0, 8.0])] {
        matrix.decode_row(r, &mut row);
        assert_eq!([row[0], row[127], row[128]], [want[0], want[0], want[1]], "row {r}");
    }
}

#[test]
fn what_is_not_finite_is_found_where_it_is() {
    // Would break: `verify` passes a file whose weights are NaN, or names another place.
    let cols = 512;
    for format in formats() {
        let mut sound = vec![0x11; format.matrix_bytes(300, cols)];
        let planes = format.planes(300, cols);
        let bytes_of = |plane: usize| planes[plane].len();
        // A scale of each kind, by its bytes: the plane, where in it, and what makes it infinite or NaN.
        let bad: Vec<(usize, usize, Vec<u8>)> = match format {
            Format::AffineF16 { .. } => vec![(1, 70, vec![0, 0x7c]), (2, 34, vec![1, 0xfc])],
            Format::Mxfp4 => vec![(1, 33, vec![255]), (1, 0, vec![253])],
            Format::Nvfp4 => vec![(1, 17, vec![0x7f]), (1, 18, vec![0xff])],
            Format::Fp8 => vec![(0, 1000, vec![0x7f]), (1, 6, vec![0x80, 0x7f])],
            Format::Fp8F32 => vec![(0, 1000, vec![0xff]), (1, 12, vec![0, 0, 0x80, 0xff])],
            Format::Block(Block::Mxfp4) => vec![(0, 17 * 5, vec![254])],
            Format::Block(block) => {
                let at = match block {
                    Block::Q2K => [80, 82],
                    Block::Q3K => [108, 108],
                    Block::Q6K => [208, 208],
                    Block::Iq1M => [52, 52],
                    Block::Q4_1 | Block::Q5_1 | Block::Q4K | Block::Q5K => [0, 2],
                    _ => [0, 0],
                };
                let bytes = if block == Block::Iq1M { vec![0, 0xc0, 0, 0x70] } else { vec![3, 0x7c] };
                at.into_iter().map(|at| (0, 3 * block.bytes() + at, bytes.clone())).collect()
            }
            other => panic!("{other}"),
        };
        for (plane, at, bytes) in bad {
            assert!(at + bytes.len() <= bytes_of(plane), "{format}");
            let start = planes[plane].start;
            let place = start + at..start + at + bytes.len();
            assert_eq!(format.first_not_finite(plane, 0, &sound[planes[plane].clone()]), None, "{format}");
            let old = sound[place.clone()].to_vec();
            sound[place.clone()].copy_from_slice(&bytes);
            let whole = &sound[planes[plane].clone()];
            assert_eq!(format.first_not_finite(plane, 0, whole), Some(at), "{format}, plane {plane}");
            // In pieces: found in the one that it is in, and in no other.
            for piece in [8, 64, 4096] {
                let found = whole.chunks(piece).enumerate().filter_map(|(i, bytes)| {
                    format.first_not_finite(plane, i * piece, bytes).map(|at| i * piece + at)
                });
                assert_eq!(found.collect::<Vec<_>>(), [at], "{format}, plane {plane}, pieces of {piece}");
            }
            sound[place].copy_from_slice(&old);
        }
    }
}

#[test]
fn what_is_only_read_is_not_written() {
    // Would break: packing to a format without an encoder panics, or writes zeros.
    for format in formats() {
        let row = vec![1.0; 256];
        let mut codes = vec![0; format.row_bytes(256)];
        let mut scales = vec![0; format.scale_row_bytes(256)];
        let mut biases = vec![0; format.bias_row_bytes(256)];
        let got = encode_row(format, &row, &mut codes, &mut scales, &mut biases);
        assert_eq!(got, Err(FormatError::ReadOnly(format)));
    }
    let text = FormatError::ReadOnly(Format::Nvfp4).to_string();
    assert_eq!(text, "numbers cannot be converted to nvfp4, only to f32, f16, bf16, affine formats and fp8");
}

/// Rows of a block, encoded and decoded again.
fn through_fp8(format: Format, cols: usize, rows: &[f32]) -> Result<Vec<f32>, FormatError> {
    let n_row = rows.len() / cols;
    let (mut codes, mut scales) = (vec![0xa5; n_row * cols], vec![0xa5; format.scale_row_bytes(cols)]);
    encode_rows(format, cols, rows, &mut codes, &mut scales, &mut [])?;
    let mut back = vec![f32::NAN; rows.len()];
    for (codes, back) in codes.chunks_exact(cols).zip(back.chunks_exact_mut(cols)) {
        decode_row(format, codes, &scales, &[], back);
    }
    Ok(back)
}

#[test]
fn every_fp8_number_comes_back() {
    // Would break: a code is rounded to its neighbour, or ties do not go to the even one.
    let all: Vec<f32> = (0..=255).map(e4m3).filter(|x| x.is_finite()).collect();
    // With 448 in each block the scale is 1.
    let mut rows = all.clone();
    rows.resize(2 * 254, 448.0);
    for format in [Format::Fp8, Format::Fp8F32] {
        for block in rows.chunks(127) {
            let mut row = block.to_vec();
            row.push(448.0);
            assert_eq!(through_fp8(format, 128, &row).unwrap(), row, "{format}");
        }
        let ties = [1.0625, 1.1875, -1.0625, 2f32.powi(-10), 3.0 * 2f32.powi(-10), 432.0, 431.9, 448.0];
        let want = [1.0, 1.25, -1.0, 0.0, 2f32.powi(-8), 448.0, 416.0, 448.0];
        assert_eq!(through_fp8(format, 8, &ties).unwrap(), want, "{format}");
        let error = through_fp8(format, 4, &[1.0, 2.0, 3.0, 4.0, 5.0, f32::NAN, 7.0, 8.0]).unwrap_err();
        assert_eq!(error, FormatError::NotFinite { col: 1 });
    }
}

proptest! {
    #[test]
    fn fp8_rounds_to_a_sixteenth(
        exponent in -60i32..60,
        rows in prop::collection::vec(-1.0f32..1.0, 3 * 150),
    ) {
        // Would break: a wrong scale, sign or block for some range of numbers.
        let rows: Vec<f32> = rows.iter().map(|w| w * 2f32.powi(exponent)).collect();
        for format in [Format::Fp8, Format::Fp8F32] {
            let back = through_fp8(format, 150, &rows).unwrap();
            for (at, (w, back)) in rows.iter().zip(&back).enumerate() {
                let largest = rows.iter().enumerate().filter(|(i, _)| i % 150 / 128 == at % 150 / 128);
                let largest = largest.fold(0.0f32, |largest, (_, w)| largest.max(w.abs()));
                // Half a step of three bits of mantissa, or of the smallest numbers; a bf16 scale may be too small by
                // a 512th, so that the largest number is cut off.
                let bound = (w.abs() / 16.0).max(largest / 448.0 / 1024.0) * 1.01 + w.abs() / 250.0;
                prop_assert!((w - back).abs() <= bound, "{format}: {w} came back as {back}");
            }
        }
    }

    #[test]
    fn any_bytes_decode_to_something(bytes in prop::collection::vec(any::<u8>(), 4096)) {
        // Would break: a panic on weights of a hostile file.
        for format in formats() {
            let (rows, cols) = (3, 256);
            let matrix = MatrixRef::new(format, rows, cols, &bytes[..format.matrix_bytes(rows, cols)]).unwrap();
            let mut row = vec![0.0; cols];
            for r in 0..rows {
                matrix.decode_row(r, &mut row);
            }
        }
    }
}
