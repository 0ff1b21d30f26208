//! Scalar encode and decode of plain floats and of the affine formats.
//!
//! The affine quantiser reproduces MLX bit for bit: codes are computed with the f32 scale and bias, which are then
//! stored as bf16. Loops run over fixed lanes and avoid library calls, so that the compiler can vectorise them.

use half::bf16;

use crate::{Format, FormatError};

/// Codes packed at a time: the smallest number that fills whole bytes for every width.
const CODES_PER_PACK: usize = 8;
/// The largest group that a format has.
const GROUP_MAX: usize = 128;
/// Smallest scale, so that a group of equal numbers divides by something.
const SCALE_MIN: f32 = 1e-7;

/// Quantises one row to codes of `bits` bits.
pub(crate) fn encode(
    bits: u8,
    group: u8,
    row: &[f32],
    codes: &mut [u8],
    scales: &mut [u8],
    biases: &mut [u8],
) -> Result<(), FormatError> {
    let encode = match bits {
        2 => encode_affine::<2>,
        3 => encode_affine::<3>,
        4 => encode_affine::<4>,
        5 => encode_affine::<5>,
        6 => encode_affine::<6>,
        8 => encode_affine::<8>,
        _ => unreachable!("the caller has checked the format"),
    };
    encode(group as usize, row, codes, scales, biases)
}

/// Scales and biases of a row.
#[derive(Clone, Copy)]
pub(crate) struct Params<'a> {
    pub(crate) scales: &'a [u8],
    pub(crate) biases: &'a [u8],
    /// What two bytes of them are.
    pub(crate) float: fn([u8; 2]) -> f32,
}

/// Decodes one row of codes of `bits` bits.
pub(crate) fn decode(bits: u8, group: u8, codes: &[u8], params: Params<'_>, out: &mut [f32]) {
    let decode = match bits {
        2 => decode_affine::<2>,
        3 => decode_affine::<3>,
        4 => decode_affine::<4>,
        5 => decode_affine::<5>,
        6 => decode_affine::<6>,
        8 => decode_affine::<8>,
        _ => unreachable!("the caller has checked the format"),
    };
    decode(group as usize, codes, params, out);
}

/// Writes `row` with `round`, which gives the bytes and the value that they stand for.
pub(crate) fn encode_floats<const BYTES: usize>(
    format: Format,
    row: &[f32],
    codes: &mut [u8],
    round: impl Fn(f32) -> ([u8; BYTES], f32),
) -> Result<(), FormatError> {
    let mut poison = 0.0;
    for (&w, code) in row.iter().zip(codes.chunks_exact_mut(BYTES)) {
        let (bytes, value) = round(w);
        code.copy_from_slice(&bytes);
        poison += value * 0.0;
    }
    if poison == 0.0 {
        return Ok(());
    }
    check_finite(row, 0)?;
    let col = row.iter().position(|&w| !round(w).1.is_finite()).expect("one of them poisoned the sum");
    Err(FormatError::Range { format, col })
}

pub(crate) fn decode_floats<const BYTES: usize>(
    codes: &[u8],
    out: &mut [f32],
    value: impl Fn([u8; BYTES]) -> f32,
) {
    for (code, w) in codes.chunks_exact(BYTES).zip(out) {
        *w = value(code.try_into().expect("chunks of this length"));
    }
}

/// Names the first number of `row` that is not finite; `first_col` is the column of `row[0]`.
fn check_finite(row: &[f32], first_col: usize) -> Result<(), FormatError> {
    match row.iter().position(|w| !w.is_finite()) {
        Some(col) => Err(FormatError::NotFinite { col: first_col + col }),
        None => Ok(()),
    }
}

fn encode_affine<const BITS: usize>(
    group: usize,
    row: &[f32],
    codes: &mut [u8],
    scales: &mut [u8],
    biases: &mut [u8],
) -> Result<(), FormatError> {
    let n = ((1u32 << BITS) - 1) as f32;
    let groups = row.chunks_exact(group).zip(codes.chunks_exact_mut(group * BITS / 8));
    let params = scales.chunks_exact_mut(2).zip(biases.chunks_exact_mut(2));
    for (group_idx, ((w, packed), (scale_out, bias_out))) in groups.zip(params).enumerate() {
        let col = group_idx * group;
        let Some((lo, hi)) = range(w) else {
            check_finite(w, col)?;
            unreachable!("range found a number that is not finite");
        };
        let (scale, bias) = affine_params(lo, hi, n);
        let stored = [bf16::from_f32(scale), bf16::from_f32(bias)];
        // The largest magnitude that decoding can meet on its way.
        if !(stored[0].to_f32().abs() * n + stored[1].to_f32().abs()).is_finite() {
            let format = Format::Affine { bits: BITS as u8, group: group as u8 };
            return Err(FormatError::Range { format, col });
        }
        scale_out.copy_from_slice(&stored[0].to_le_bytes());
        bias_out.copy_from_slice(&stored[1].to_le_bytes());
        let mut q = [0u8; GROUP_MAX];
        quantise(w, scale, bias, n, &mut q[..group]);
        pack_row::<BITS>(&q[..group], packed);
    }
    Ok(())
}

/// Smallest and largest of a group, or `None` if one of its numbers is not finite.
pub(crate) fn range(group: &[f32]) -> Option<(f32, f32)> {
    const LANES: usize = 8;
    let (mut lo, mut hi, mut poison) = ([f32::INFINITY; LANES], [f32::NEG_INFINITY; LANES], [0.0; LANES]);
    for w in group.chunks_exact(LANES) {
        for lane in 0..LANES {
            lo[lane] = if w[lane] < lo[lane] { w[lane] } else { lo[lane] };
            hi[lane] = if w[lane] > hi[lane] { w[lane] } else { hi[lane] };
            poison[lane] += w[lane] * 0.0;
        }
    }
    let finite = poison.iter().all(|&p| p == 0.0);
    finite.then(|| (lo.into_iter().fold(lo[0], f32::min), hi.into_iter().fold(hi[0], f32::max)))
}

/// Scale and bias of a group. The end of the range with the larger magnitude is hit exactly, and so is zero if the
/// range reaches it; the scale is negative where that end is the upper one.
pub(crate) fn affine_params(lo: f32, hi: f32, n: f32) -> (f32, f32) {
    let magnitude = ((hi - lo) / n).max(SCALE_MIN);
    let (scale, edge) = if lo.abs() > hi.abs() { (magnitude, lo) } else { (-magnitude, hi) };
    let q0 = (edge / scale).round_ties_even();
    if q0 == 0.0 { (scale, 0.0) } else { (edge / q0, edge) }
}

/// `q = clip(round((w - bias) / scale), 0, n)`, halves to even.
pub(crate) fn quantise(w: &[f32], scale: f32, bias: f32, n: f32, q: &mut [u8]) {
    // 1.5·2²³: adding it to 0..=255 leaves the number, rounded half to even, in the low bits of the sum. Clipping
    // first gives the same codes as clipping last, since both limits are whole numbers.
    const ROUND: f32 = 12_582_912.0;
    for (q, &w) in q.iter_mut().zip(w) {
        let x = (w - bias) / scale;
        let x = if x > 0.0 { x } else { 0.0 };
        let x = if x < n { x } else { n };
        *q = (x + ROUND).to_bits() as u8;
    }
}

fn decode_affine<const BITS: usize>(group: usize, codes: &[u8], params: Params<'_>, out: &mut [f32]) {
    let Params { scales, biases, float } = params;
    let groups = codes.chunks_exact(group * BITS / 8).zip(out.chunks_exact_mut(group));
    let params = scales.as_chunks::<2>().0.iter().zip(biases.as_chunks::<2>().0);
    for ((packed, w), (&scale, &bias)) in groups.zip(params) {
        let (scale, bias) = (float(scale), float(bias));
        for (packed, w) in packed.chunks_exact(BITS).zip(w.chunks_exact_mut(CODES_PER_PACK)) {
            let mut word = [0; 8];
            word[..BITS].copy_from_slice(packed);
            let q = unpack::<BITS>(u64::from_le_bytes(word)).to_le_bytes();
            for i in 0..CODES_PER_PACK {
                w[i] = scale * f32::from(q[i]) + bias;
            }
        }
    }
}

/// Codes, one a byte, to the bytes that hold them; a multiple of 8 of them.
pub(crate) fn pack_codes(bits: u8, codes: &[u8], packed: &mut [u8]) {
    let pack = match bits {
        2 => pack_row::<2>,
        3 => pack_row::<3>,
        4 => pack_row::<4>,
        5 => pack_row::<5>,
        6 => pack_row::<6>,
        8 => pack_row::<8>,
        _ => unreachable!("checked by assert_row"),
    };
    pack(codes, packed);
}

fn pack_row<const BITS: usize>(codes: &[u8], packed: &mut [u8]) {
    for (codes, out) in codes.chunks_exact(CODES_PER_PACK).zip(packed.chunks_exact_mut(BITS)) {
        let word = pack::<BITS>(u64::from_le_bytes(codes.try_into().expect("8 codes")));
        out.copy_from_slice(&word.to_le_bytes()[..BITS]);
    }
}

/// Eight codes, one a byte, to `8·BITS` bits: neighbours are joined to pairs, pairs to fours, fours to eight.
fn pack<const BITS: usize>(x: u64) -> u64 {
    let x = (x & 0x00ff_00ff_00ff_00ff) | ((x & 0xff00_ff00_ff00_ff00) >> (8 - BITS));
    let x = (x & 0x0000_ffff_0000_ffff) | ((x & 0xffff_0000_ffff_0000) >> (16 - 2 * BITS));
    (x & 0x0000_0000_ffff_ffff) | ((x & 0xffff_ffff_0000_0000) >> (32 - 4 * BITS))
}

/// The inverse of [`pack`].
fn unpack<const BITS: usize>(x: u64) -> u64 {
    let low = |bits: usize| (1u64 << bits) - 1;
    let four = low(4 * BITS);
    let x = (x & four) | ((x & !four) << (32 - 4 * BITS));
    let pair = low(2 * BITS) * 0x0000_0001_0000_0001;
    let x = (x & pair) | ((x & !pair) << (16 - 2 * BITS));
    let one = low(BITS) * 0x0001_0001_0001_0001;
    (x & one) | ((x & !one) << (8 - BITS))
}
