//! Floats of 4 and 8 bits, and the formats that are made of them.

use half::bf16;

use crate::FormatError;

/// Twice the value of each E2M1 code (sign, 2 bits of exponent, 1 of mantissa): whole numbers.
pub const E2M1_DOUBLED: [i8; 16] = [0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12];

/// Rows and columns that share a scale of [`crate::Format::Fp8`].
pub const FP8_BLOCK: usize = 128;

/// The largest E4M3 number.
const E4M3_MAX: f32 = 448.0;

/// Half of the power of two that an E8M0 scale stands for, `2^(code − 128)`: for numbers that are doubled.
pub(crate) fn e8m0_half(code: u8) -> f32 {
    // Below 2⁻¹²⁶ floats are denormal.
    f32::from_bits(if code < 2 { 0x0020_0000 << code } else { (u32::from(code) - 1) << 23 })
}

/// The value of an E4M3 code (sign, 4 bits of exponent, 3 of mantissa, no infinities); NaN for 0x7f and 0xff.
pub fn e4m3(code: u8) -> f32 {
    let (sign, rest) = (u32::from(code >> 7) << 31, u32::from(code & 0x7f));
    if rest == 0x7f {
        return f32::NAN;
    }
    // As the top bits of an f32 the exponent is 120 too small. Denormals become denormals, and so exact.
    f32::from_bits(sign | rest << 20) * f32::from_bits((127 + 120) << 23)
}

/// The E4M3 code nearest to `x`, ties to even. `x` is finite and at most [`E4M3_MAX`], but for rounding.
fn to_e4m3(x: f32) -> u8 {
    let sign = if x.is_sign_negative() { 0x80 } else { 0 };
    let x = x.abs().min(E4M3_MAX);
    // Steps are 2⁻⁹ below 2⁻⁶, and an eighth of the power of two from there on.
    let exponent = ((x.to_bits() >> 23) as i32 - 127).max(-6);
    let step = f32::from_bits(((exponent - 3 + 127) as u32) << 23);
    // 0..=16 eighths; 8 of them and more carry into the exponent by themselves.
    let eighths = (x / step).round_ties_even() as u32;
    sign | (((exponent + 6) as u32 * 8) + eighths) as u8
}

/// `w = E2M1(code)·2^(scale − 127)`, a scale each 32 columns.
pub(crate) fn decode_mxfp4(codes: &[u8], scales: &[u8], out: &mut [f32]) {
    decode_nibbles::<32>(codes, scales, out, e8m0_half);
}

/// `w = E2M1(code)·E4M3(scale)`, a scale each 16 columns.
pub(crate) fn decode_nvfp4(codes: &[u8], scales: &[u8], out: &mut [f32]) {
    decode_nibbles::<16>(codes, scales, out, |scale| 0.5 * e4m3(scale));
}

fn decode_nibbles<const GROUP: usize>(
    codes: &[u8],
    scales: &[u8],
    out: &mut [f32],
    half: impl Fn(u8) -> f32,
) {
    for ((codes, &scale), out) in codes.chunks_exact(GROUP / 2).zip(scales).zip(out.chunks_exact_mut(GROUP)) {
        let half = half(scale);
        for (&code, w) in codes.iter().zip(out.chunks_exact_mut(2)) {
            w[0] = half * f32::from(E2M1_DOUBLED[usize::from(code & 15)]);
            w[1] = half * f32::from(E2M1_DOUBLED[usize::from(code >> 4)]);
        }
    }
}

/// `w = E4M3(code)·scale`, a scale each [`FP8_BLOCK`] columns: bf16 or, if `WIDE`, f32.
pub(crate) fn decode_fp8<const WIDE: bool>(codes: &[u8], scales: &[u8], out: &mut [f32]) {
    let scales = scales.chunks_exact(if WIDE { 4 } else { 2 });
    for ((codes, scale), out) in codes.chunks(FP8_BLOCK).zip(scales).zip(out.chunks_mut(FP8_BLOCK)) {
        let scale = match *scale {
            [a, b, c, d] => f32::from_le_bytes([a, b, c, d]),
            [a, b] => bf16::from_le_bytes([a, b]).to_f32(),
            _ => unreachable!("2 or 4 bytes"),
        };
        for (&code, w) in codes.iter().zip(out) {
            *w = e4m3(code) * scale;
        }
    }
}

/// Rounds up to [`FP8_BLOCK`] rows of `cols` numbers to E4M3 with a scale each block of columns: the largest magnitude
/// over 448, stored as bf16 or, if `WIDE`, as f32. Codes are relative to the stored scale.
pub(crate) fn encode_fp8<const WIDE: bool>(
    rows: &[f32],
    cols: usize,
    codes: &mut [u8],
    scales: &mut [u8],
) -> Result<(), FormatError> {
    for (block, scale_out) in scales.chunks_exact_mut(if WIDE { 4 } else { 2 }).enumerate() {
        let (from, to) = (block * FP8_BLOCK, cols.min((block + 1) * FP8_BLOCK));
        let mut largest = 0.0f32;
        for row in rows.chunks_exact(cols) {
            if let Some(col) = row[from..to].iter().position(|w| !w.is_finite()) {
                return Err(FormatError::NotFinite { col: from + col });
            }
            largest = row[from..to].iter().fold(largest, |largest, w| largest.max(w.abs()));
        }
        let exact = if largest == 0.0 { 1.0 } else { (largest / E4M3_MAX).max(f32::MIN_POSITIVE) };
        let scale = if WIDE { exact } else { bf16::from_f32(exact).to_f32() };
        match scale_out {
            [a, b] => [*a, *b] = bf16::from_f32(exact).to_le_bytes(),
            wide => wide.copy_from_slice(&scale.to_le_bytes()),
        }
        for (row, codes) in rows.chunks_exact(cols).zip(codes.chunks_exact_mut(cols)) {
            for (w, code) in row[from..to].iter().zip(&mut codes[from..to]) {
                *code = to_e4m3(w / scale);
            }
        }
    }
    Ok(())
}
