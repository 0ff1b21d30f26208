//! The quantiser against MLX's own, and what must hold for any input.

use half::{bf16, f16};
use proptest::prelude::*;
use quant::{Format, FormatError, MatrixRef, decode_row, encode_row};

/// One encoded row: codes, scales, biases.
type Encoded = (Vec<u8>, Vec<u8>, Vec<u8>);

fn encode(format: Format, row: &[f32]) -> Result<Encoded, FormatError> {
    let groups = format.scale_row_bytes(row.len());
    // Old bytes must not shine through.
    let (mut codes, mut scales, mut biases) =
        (vec![0xa5; format.row_bytes(row.len())], vec![0xa5; groups], vec![0xa5; groups]);
    encode_row(format, row, &mut codes, &mut scales, &mut biases)?;
    Ok((codes, scales, biases))
}

fn decode(format: Format, (codes, scales, biases): &Encoded, cols: usize) -> Vec<f32> {
    let mut out = vec![f32::NAN; cols];
    decode_row(format, codes, scales, biases, &mut out);
    out
}

fn affine_formats() -> impl Iterator<Item = Format> {
    Format::AFFINE_BITS
        .into_iter()
        .flat_map(|bits| Format::AFFINE_GROUPS.map(|group| Format::Affine { bits, group }))
}

fn bits_of(row: &[f32]) -> Vec<u32> {
    row.iter().map(|w| w.to_bits()).collect()
}

/// Takes numbers off the front of a vector file.
struct Vectors<'a>(&'a [u8]);

impl<'a> Vectors<'a> {
    fn bytes(&mut self, n: usize) -> &'a [u8] {
        let (taken, rest) = self.0.split_at(n);
        self.0 = rest;
        taken
    }

    fn floats(&mut self, n: usize) -> Vec<f32> {
        self.bytes(n * 4).chunks_exact(4).map(|b| f32::from_le_bytes(b.try_into().unwrap())).collect()
    }
}

#[test]
fn codes_scales_and_biases_are_those_of_mlx() {
    // Would break: a checkpoint packed here differs from the same checkpoint converted by MLX, or is decoded
    // differently. The vectors are made by tools/golden/quant/make_vectors.py.
    let mut vectors = Vectors(include_bytes!("data/affine.bin"));
    let mut size = || u32::from_le_bytes(vectors.bytes(4).try_into().unwrap()) as usize;
    let (n_row, n_col) = (size(), size());
    let inputs = [vectors.floats(n_row * n_col), vectors.floats(n_row * n_col)];
    for (input, which) in inputs.iter().zip(["f32", "bf16"]) {
        for format in affine_formats() {
            let (row_bytes, group_bytes) = (format.row_bytes(n_col), format.scale_row_bytes(n_col));
            let codes = vectors.bytes(n_row * row_bytes);
            let scales = vectors.bytes(n_row * group_bytes);
            let biases = vectors.bytes(n_row * group_bytes);
            let decoded =
                matches!(format, Format::Affine { group: 64, .. }).then(|| vectors.floats(n_row * n_col));
            for row in 0..n_row {
                let encoded = encode(format, &input[row * n_col..][..n_col]).unwrap();
                let what = format!("{format}, {which} input, row {row}");
                assert_eq!(encoded.1, scales[row * group_bytes..][..group_bytes], "scales, {what}");
                assert_eq!(encoded.2, biases[row * group_bytes..][..group_bytes], "biases, {what}");
                assert_eq!(encoded.0, codes[row * row_bytes..][..row_bytes], "codes, {what}");
                if let Some(decoded) = &decoded {
                    let expected = &decoded[row * n_col..][..n_col];
                    assert_eq!(
                        bits_of(&decode(format, &encoded, n_col)),
                        bits_of(expected),
                        "decoded, {what}"
                    );
                }
            }
        }
    }
    assert!(vectors.0.is_empty());
}

#[test]
fn codes_are_a_little_endian_bit_stream() {
    // Would break: codes in another order than the documented one, for a reader that knows only the document.
    for format in affine_formats() {
        let Format::Affine { bits, group } = format else { unreachable!() };
        let (bits, cols) = (bits as usize, 2 * group as usize);
        let codes: Vec<u8> = (0..format.row_bytes(cols)).map(|i| (i * 151 % 256) as u8).collect();
        let one = bf16::ONE.to_le_bytes().repeat(2);
        let out = decode(format, &(codes.clone(), one, vec![0; 4]), cols);
        for (i, &w) in out.iter().enumerate() {
            let bit = |n: usize| usize::from(codes[n / 8] >> (n % 8) & 1);
            let q: usize = (0..bits).map(|b| bit(i * bits + b) << b).sum();
            assert_eq!(w, q as f32, "{format}, code {i}");
        }
    }
}

#[test]
fn numbers_that_cannot_be_stored_are_refused() {
    // Would break: one NaN in a checkpoint silently turns a whole group into garbage.
    let affine = Format::Affine { bits: 4, group: 32 };
    let cases = [
        (Format::F32, f32::NAN, FormatError::NotFinite { col: 37 }),
        (Format::F16, f32::INFINITY, FormatError::NotFinite { col: 37 }),
        (Format::Bf16, f32::NEG_INFINITY, FormatError::NotFinite { col: 37 }),
        (affine, f32::NAN, FormatError::NotFinite { col: 37 }),
        (affine, f32::INFINITY, FormatError::NotFinite { col: 37 }),
        (affine, f32::NEG_INFINITY, FormatError::NotFinite { col: 37 }),
        (Format::F16, 65520.0, FormatError::Range { format: Format::F16, col: 37 }),
        (Format::Bf16, f32::MAX, FormatError::Range { format: Format::Bf16, col: 37 }),
        (affine, f32::MAX, FormatError::Range { format: affine, col: 32 }),
    ];
    for (format, bad, expected) in cases {
        let mut row = vec![-1e4; 64];
        row[37] = bad;
        row[39] = bad;
        assert_eq!(encode(format, &row), Err(expected), "{format} {bad}");
    }
    // hi - lo overflows although both are finite.
    let mut row = vec![0.0; 32];
    (row[3], row[4]) = (3e38, -3e38);
    assert_eq!(encode(affine, &row), Err(FormatError::Range { format: affine, col: 0 }));
}

#[test]
fn half_floats_round_to_nearest_even() {
    // Would break: truncation instead of rounding when a checkpoint in f32 is packed to halves.
    let cases = [
        (1.0 + 1.0 / 256.0, 1.0),
        (1.0 + 3.0 / 256.0, 1.0 + 4.0 / 256.0),
        (1.0 + 1.1 / 256.0, 1.0 + 2.0 / 256.0),
    ];
    for (from, to) in cases {
        assert_eq!(decode(Format::Bf16, &encode(Format::Bf16, &[from]).unwrap(), 1), [to]);
    }
    assert_eq!(decode(Format::F16, &encode(Format::F16, &[65519.0]).unwrap(), 1), [65504.0]);
    assert_eq!(decode(Format::F16, &encode(Format::F16, &[1.0 + 1.0 / 2048.0]).unwrap(), 1), [1.0]);
}

#[test]
fn hostile_shapes_are_refused_without_arithmetic_going_wrong() {
    // Would break: a size computed from a file overflows and a later slice panics, or worse, fits.
    let affine = Format::Affine { bits: 4, group: 64 };
    for (rows, cols) in
        [(usize::MAX, 64), (0, usize::MAX - 63), (1 << 32, 1 << 31), (1 << 60, 0), (usize::MAX, usize::MAX)]
    {
        for format in [Format::F32, Format::Bf16, affine] {
            let error = MatrixRef::new(format, rows, cols, &[]).unwrap_err();
            assert!(matches!(error, FormatError::TooLarge(..) | FormatError::Cols { .. }), "{error}");
        }
    }
    let error = MatrixRef::new(affine, 1, 96, &[0; 256]).unwrap_err();
    assert_eq!(error.to_string(), "affine4g64 needs rows of a multiple of 64 columns, got 96");
    let error = MatrixRef::new(affine, 1, 64, &[0; 191]).unwrap_err();
    assert_eq!(error.to_string(), "a 1x64 matrix in affine4g64 takes 192 bytes, got 191");
    for (bits, group) in [(0, 64), (4, 0), (7, 64), (4, 16)] {
        assert!(matches!(Format::Affine { bits, group }.check(1, 64), Err(FormatError::Unknown(_))));
    }
}

#[test]
fn format_names_are_read_as_they_are_written_and_no_other_way() {
    // Would break: a manifest is refused, or two spellings mean the same format.
    for format in affine_formats().chain([Format::F32, Format::F16, Format::Bf16]) {
        assert_eq!(format.to_string().parse(), Ok(format));
    }
    for name in [
        "",
        "F32",
        "affine",
        "affine4",
        "affine4g",
        "affine04g64",
        "affine+4g64",
        "affine7g64",
        "affine4g16",
        "affine4g64 ",
    ] {
        assert_eq!(name.parse::<Format>(), Err(FormatError::Unknown(name.into())));
    }
}

/// Largest error that quantising allows for numbers between `lo` and `hi`: half a step, or a whole one where the
/// code was clipped (the scale is stretched so that `edge` is hit), and the rounding of scale and bias to bf16.
fn error_max(scale: f32, bias: f32, code: f32, n: f32) -> f64 {
    let scale = f64::from(scale.abs()) * (1.0 + 1.0 / 256.0);
    let step = if code == n { scale } else { scale / 2.0 };
    step + (scale * f64::from(code) + f64::from(bias.abs())) / 256.0 + 1e-44
}

proptest! {
    #[test]
    fn decoding_comes_back_to_within_a_step(
        exponent in -30i32..30,
        shift in -3.0f32..3.0,
        row in prop::collection::vec(-1.0f32..1.0, 128),
    ) {
        // Would break: a wrong sign, edge or packing for some range of numbers.
        let row: Vec<f32> = row.iter().map(|w| (w + shift) * 2f32.powi(exponent)).collect();
        for format in affine_formats() {
            let Format::Affine { bits, group } = format else { unreachable!() };
            let n = ((1u32 << bits) - 1) as f32;
            let encoded = encode(format, &row).unwrap();
            let decoded = decode(format, &encoded, row.len());
            let param = |plane: &[u8], col: usize| {
                let at = col / group as usize * 2;
                bf16::from_le_bytes([plane[at], plane[at + 1]]).to_f32()
            };
            for (col, (w, back)) in row.iter().zip(&decoded).enumerate() {
                let (scale, bias) = (param(&encoded.1, col), param(&encoded.2, col));
                let code = if scale == 0.0 { n } else { ((back - bias) / scale).round() };
                let error = (f64::from(*w) - f64::from(*back)).abs();
                prop_assert!(error <= error_max(scale, bias, code, n), "{format} col {col}: {w} came back as {back}");
            }
        }
    }

    #[test]
    fn plain_floats_come_back_exactly(bits in prop::collection::vec(any::<u32>(), 1..40)) {
        // Would break: a plain format changes a number that it can hold, or keeps one that it must refuse.
        let row: Vec<f32> = bits.iter().map(|&b| f32::from_bits(b)).collect();
        let halves: Vec<f32> = bits.iter().map(|&b| f16::from_bits(b as u16).to_f32()).collect();
        let brains: Vec<f32> = bits.iter().map(|&b| bf16::from_bits(b as u16).to_f32()).collect();
        for (format, row) in [(Format::F32, row), (Format::F16, halves), (Format::Bf16, brains)] {
            match row.iter().position(|w| !w.is_finite()) {
                Some(col) => prop_assert_eq!(encode(format, &row), Err(FormatError::NotFinite { col })),
                None => {
                    let back = decode(format, &encode(format, &row).unwrap(), row.len());
                    prop_assert_eq!(bits_of(&back), bits_of(&row));
                }
            }
        }
    }

    #[test]
    fn any_row_is_encoded_or_refused(bits in prop::collection::vec(any::<u32>(), 128)) {
        // Would break: a panic, or a scale that is not finite, on numbers of any size.
        let row: Vec<f32> = bits.iter().map(|&b| f32::from_bits(b)).collect();
        for format in affine_formats() {
            if let Ok(encoded) = encode(format, &row) {
                prop_assert!(decode(format, &encoded, row.len()).iter().all(|w| w.is_finite()));
            }
        }
    }
}
