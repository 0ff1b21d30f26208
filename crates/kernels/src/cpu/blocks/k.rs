//! Blocks of 256 columns whose scales are whole numbers times a half `d`, in some with biases times a half `m`.

use quant::IQ4;

use super::legacy::halves_apart;
use super::{At, Out, Strip, byte, masked, nibbles, table};
use crate::cpu::simd::Simd;

/// Facts of a block of 256 columns.
macro_rules! facts {
    ($bytes:literal, $group:literal, $middle:literal) => {
        const COLS: usize = 256;
        const BYTES: usize = $bytes;
        const GROUP: usize = $group;
        const MIDDLE: u8 = $middle;
        const IS_WIDE: bool = $middle == 128;
    };
}

/// Bytes `from .. from + 32` of each row as eight lane vectors.
///
/// # Safety
/// They can be read.
#[inline(always)]
unsafe fn two_turned<S: Simd>(s: S, at: At, from: usize) -> [S::I; 8] {
    // SAFETY: the caller's promise.
    let ([a, b, c, d], [e, f, g, h]) = unsafe { (at.turned(s, from), at.turned(s, from + 16)) };
    [a, b, c, d, e, f, g, h]
}

/// `d·scale` of groups `4i .. 4i + 4` out of four bytes a lane, which count from `zero`.
#[inline(always)]
fn four_scales<S: Simd>(s: S, d: S::V, bytes: S::I, zero: f32, i: usize, to: &mut Out<'_>) {
    for j in 0..4 {
        let scale = s.sub(s.to_float(byte(s, bytes, j)), s.splat(zero));
        to.scale(s, 4 * i + j, s.mul(d, scale));
    }
}

/// The same with biases, `−m·bias`, for codes whose middle is `middle`.
#[inline(always)]
fn four_scales_and_biases<S: Simd>(
    s: S,
    (d, m): (S::V, S::V),
    (scales, biases): (S::I, S::I),
    middle: u8,
    i: usize,
    to: &mut Out<'_>,
) {
    let minus_m = s.sub(s.splat(0.0), m);
    for j in 0..4 {
        let scale = s.mul(d, s.to_float(byte(s, scales, j)));
        let bias = s.mul(minus_m, s.to_float(byte(s, biases, j)));
        to.scale_and_bias(s, 4 * i + j, scale, s.fma(s.splat(f32::from(middle)), scale, bias));
    }
}

/// `d`, `m` and eight scales and biases of 6 bits in 12 bytes, at the head of the block.
///
/// # Safety
/// 16 bytes can be read.
#[inline(always)]
unsafe fn packed_scales<S: Simd>(s: S, at: At, middle: u8, to: &mut Out<'_>) {
    // SAFETY: the caller's promise.
    let [halves, a, b, c] = unsafe { at.turned(s, 0) };
    let [d, m] = s.f16_pairs(halves);
    let first = (masked(s, a, 63), masked(s, b, 63));
    // The last four have their low halves in the last four bytes, and their tops above those of the first four.
    let [low_scales, low_biases] = nibbles(s, c);
    let scales = s.int_xor(low_scales, masked(s, s.int_shr(a, 2), 0x30));
    let biases = s.int_xor(low_biases, masked(s, s.int_shr(b, 2), 0x30));
    four_scales_and_biases(s, (d, m), first, middle, 0, to);
    four_scales_and_biases(s, (d, m), (scales, biases), middle, 1, to);
}

/// `d`, `m`, scales, codes of 4 bits.
pub(in crate::cpu) struct Q4K;

impl Strip for Q4K {
    facts!(144, 32, 8);

    #[inline(always)]
    unsafe fn decode<S: Simd>(s: S, at: At, to: &mut Out<'_>) {
        // SAFETY: these bytes are within the block.
        unsafe { packed_scales(s, at, 8, to) };
        for i in 0..8 {
            // SAFETY: these bytes are within the block.
            let words = unsafe { at.turned(s, 16 + 16 * i) };
            for j in 0..4 {
                let [low, high] = nibbles(s, words[j]);
                to.code(s, i / 2 * 16 + i % 2 * 4 + j, low);
                to.code(s, i / 2 * 16 + 8 + i % 2 * 4 + j, high);
            }
        }
    }
}

/// `d`, `m`, scales, top bits, codes.
pub(in crate::cpu) struct Q5K;

impl Strip for Q5K {
    facts!(176, 32, 16);

    #[inline(always)]
    unsafe fn decode<S: Simd>(s: S, at: At, to: &mut Out<'_>) {
        // SAFETY: these bytes are within the block.
        let top = unsafe {
            packed_scales(s, at, 16, to);
            two_turned(s, at, 16)
        };
        for part in 0..8 {
            let (pair, first) = (part / 2, part / 2 * 16 + part % 2 * 4);
            // SAFETY: these bytes are within the block.
            let words = unsafe { at.turned(s, 48 + 16 * part) };
            for i in 0..4 {
                let [low, high] = nibbles(s, words[i]);
                // The bits of both groups, lowest.
                let bits = s.int_shr(top[part % 2 * 4 + i], 2 * pair as u32);
                let low_top = s.int_shl(masked(s, bits, 1), 4);
                let high_top = s.int_shl(masked(s, bits, 2), 3);
                to.code(s, first + i, s.int_xor(low, low_top));
                to.code(s, first + 8 + i, s.int_xor(high, high_top));
            }
        }
    }
}

/// Low halves, top bits, scales, `d`.
pub(in crate::cpu) struct Q6K;

impl Strip for Q6K {
    facts!(210, 16, 32);

    #[inline(always)]
    unsafe fn decode<S: Simd>(s: S, at: At, to: &mut Out<'_>) {
        // SAFETY: these bytes are within the block.
        let (d, scales) = unsafe { (at.words::<S, 2>(s, 208), at.turned(s, 192)) };
        let (d, sign) = (s.f16_pairs(d)[0], s.int_splat(i32::from_le_bytes([0x80; 4])));
        for i in 0..4 {
            four_scales(s, d, s.int_xor(scales[i], sign), 128.0, i, to);
        }
        // 64 columns are 16 bytes of top bits, and twice 16 of low halves.
        for part in 0..4 {
            let (half, first) = (part / 2, part / 2 * 32 + part % 2 * 4);
            // SAFETY: these bytes are within the block.
            let top = unsafe { at.turned(s, 128 + 16 * part) };
            for k in 0..2 {
                // SAFETY: these bytes are within the block.
                let low = unsafe { at.turned(s, 64 * half + part % 2 * 16 + 32 * k) };
                for i in 0..4 {
                    let [early, late] = nibbles(s, low[i]);
                    let early_top = s.int_shl(top[i], 4 - 2 * k as u32);
                    let late_top = s.int_shr(top[i], 2 * k as u32);
                    to.code(s, first + 8 * k + i, s.int_xor(early, masked(s, early_top, 0x30)));
                    to.code(s, first + 16 + 8 * k + i, s.int_xor(late, masked(s, late_top, 0x30)));
                }
            }
        }
    }
}

/// Top bits, codes of 2 bits, scales, `d`.
pub(in crate::cpu) struct Q3K;

impl Strip for Q3K {
    facts!(110, 16, 4);

    #[inline(always)]
    unsafe fn decode<S: Simd>(s: S, at: At, to: &mut Out<'_>) {
        // SAFETY: these bytes are within the block, and two behind it.
        let ([a, b, top_scales, d], top) = unsafe { (at.turned(s, 96), two_turned(s, at, 0)) };
        let ([d, _], [a_low, a_high], [b_low, b_high]) = (s.f16_pairs(d), nibbles(s, a), nibbles(s, b));
        let tops = [
            s.int_shl(masked(s, top_scales, 0x03), 4),
            s.int_shl(masked(s, top_scales, 0x0c), 2),
            masked(s, top_scales, 0x30),
            masked(s, s.int_shr(top_scales, 2), 0x30),
        ];
        for (i, low) in [a_low, b_low, a_high, b_high].into_iter().enumerate() {
            four_scales(s, d, s.int_xor(low, tops[i]), 32.0, i, to);
        }
        for half in 0..2 {
            // SAFETY: these bytes are within the block.
            let words = unsafe { two_turned(s, at, 32 + 32 * half) };
            for i in 0..8 {
                for quarter in 0..4 {
                    let low = masked(s, s.int_shr(words[i], 2 * quarter as u32), 3);
                    let bit = masked(s, s.int_shr(top[i], (4 * half + quarter) as u32), 1);
                    to.code(s, 32 * half + 8 * quarter + i, s.int_xor(low, s.int_shl(bit, 2)));
                }
            }
        }
    }
}

/// Scales and biases, codes of 2 bits, `d`, `m`.
pub(in crate::cpu) struct Q2K;

impl Strip for Q2K {
    facts!(84, 16, 2);

    #[inline(always)]
    unsafe fn decode<S: Simd>(s: S, at: At, to: &mut Out<'_>) {
        // SAFETY: these bytes are within the block.
        let (scales, halves) = unsafe { (at.turned(s, 0), at.words::<S, 4>(s, 80)) };
        let [d, m] = s.f16_pairs(halves);
        for i in 0..4 {
            let [scales, biases] = nibbles(s, scales[i]);
            four_scales_and_biases(s, (d, m), (scales, biases), 2, i, to);
        }
        for half in 0..2 {
            // SAFETY: these bytes are within the block.
            let words = unsafe { two_turned(s, at, 16 + 32 * half) };
            for i in 0..8 {
                for quarter in 0..4 {
                    let codes = masked(s, s.int_shr(words[i], 2 * quarter as u32), 3);
                    to.code(s, 32 * half + 8 * quarter + i, codes);
                }
            }
        }
    }
}

/// `d`, top bits of the scales, their low halves, codes of 4 bits that choose from a table.
pub(in crate::cpu) struct Iq4Xs;

impl Strip for Iq4Xs {
    facts!(136, 32, 128);

    #[inline(always)]
    unsafe fn decode<S: Simd>(s: S, at: At, to: &mut Out<'_>) {
        // SAFETY: these bytes are within the block.
        let [head, low, ..] = unsafe { at.turned(s, 0) };
        let [d, _] = s.f16_pairs(head);
        for g in 0..8 {
            let low = s.int_and(s.int_shr(low, 4 * g as u32), s.int_splat(15));
            let top = s.int_and(s.int_shr(head, 16 + 2 * g as u32), s.int_splat(3));
            let scale = s.to_float(s.int_xor(low, s.int_shl(top, 4)));
            to.scale(s, g, s.mul(d, s.sub(scale, s.splat(32.0))));
            // SAFETY: these bytes are within the block.
            let words = unsafe { at.turned(s, 8 + 16 * g) };
            for (i, codes) in halves_apart(s, words).into_iter().enumerate() {
                to.code(s, 8 * g + i, s.look_up(const { &table(IQ4, 128) }, codes));
            }
        }
    }
}
