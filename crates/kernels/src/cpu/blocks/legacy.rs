//! Blocks of 32 columns with a half as scale, in some another as bias, and the like.

use quant::{E2M1_DOUBLED, IQ4};

use super::{At, Head, Scales, Sink, Strip, e8m0_half, masked, nibbles, table};
use crate::cpu::simd::Simd;

/// Facts of a block of 32 columns.
macro_rules! facts {
    ($bytes:literal, $middle:literal, $max:literal) => {
        const COLS: usize = 32;
        const BYTES: usize = $bytes;
        const GROUP: usize = 32;
        const MIDDLE: u8 = $middle;
        const MAX: u8 = $max;
    };
}

/// Lane vectors of 32 codes of 4 bits: the low halves of 16 bytes are the first 16 columns.
#[inline(always)]
pub(super) fn halves_apart<S: Simd>(s: S, words: [S::I; 4]) -> [S::I; 8] {
    let [a, b, c, d] = words;
    let ([a, e], [b, f], [c, g], [d, h]) = (nibbles(s, a), nibbles(s, b), nibbles(s, c), nibbles(s, d));
    [a, b, c, d, e, f, g, h]
}

/// Bits `4i .. 4i + 4` of each lane, as bit 4 of its four bytes.
#[inline(always)]
fn fifth_bits<S: Simd>(s: S, bits: S::I, i: usize) -> S::I {
    let four = s.int_and(s.int_shr(bits, 4 * i as u32), s.int_splat(15));
    let two = s.int_xor(four, s.int_shl(four, 7));
    // Bit `i` is now bit `8i` of the four bytes, among others.
    let spread = s.int_xor(two, s.int_shl(two, 14));
    s.int_shl(masked(s, spread, 1), 4)
}

/// `d`, codes; `d·(code − 8)`
pub(in crate::cpu) struct Q4_0;

impl Strip for Q4_0 {
    facts!(18, 8, 15);

    #[inline(always)]
    unsafe fn head<S: Simd>(s: S, at: At, to: &mut Scales<'_>, _: &mut Head) {
        // SAFETY: these bytes are within the block.
        let d = unsafe { at.words::<S, 2>(s, 0) };
        to.scale(s, 0, s.f16_pairs(d)[0]);
    }

    #[inline(always)]
    unsafe fn codes<S: Simd>(s: S, at: At, _: &Head, _: usize, to: &mut impl Sink<S>) {
        // SAFETY: these bytes are within the block.
        let words = unsafe { at.turned(s, 2) };
        let codes = halves_apart(s, words);
        unrolled!(I in 0 1 2 3 4 5 6 7 => to.code(s, 0, I, codes[I]));
    }
}

/// `d`, `m`, codes; `d·code + m`
pub(in crate::cpu) struct Q4_1;

impl Strip for Q4_1 {
    facts!(20, 8, 15);

    #[inline(always)]
    unsafe fn head<S: Simd>(s: S, at: At, to: &mut Scales<'_>, _: &mut Head) {
        // SAFETY: these bytes are within the block.
        let [d, m] = s.f16_pairs(unsafe { at.words::<S, 4>(s, 0) });
        to.scale_and_bias(s, 0, d, s.fma(s.splat(8.0), d, m));
    }

    #[inline(always)]
    unsafe fn codes<S: Simd>(s: S, at: At, _: &Head, _: usize, to: &mut impl Sink<S>) {
        // SAFETY: these bytes are within the block.
        let words = unsafe { at.turned(s, 4) };
        let codes = halves_apart(s, words);
        unrolled!(I in 0 1 2 3 4 5 6 7 => to.code(s, 0, I, codes[I]));
    }
}

/// `d`, top bits, codes; `d·(code − 16)`
pub(in crate::cpu) struct Q5_0;

impl Strip for Q5_0 {
    facts!(22, 16, 31);

    #[inline(always)]
    unsafe fn head<S: Simd>(s: S, at: At, to: &mut Scales<'_>, _: &mut Head) {
        // SAFETY: these bytes are within the block.
        let d = unsafe { at.words::<S, 2>(s, 0) };
        to.scale(s, 0, s.f16_pairs(d)[0]);
    }

    #[inline(always)]
    unsafe fn codes<S: Simd>(s: S, at: At, _: &Head, _: usize, to: &mut impl Sink<S>) {
        // SAFETY: these bytes are within the block.
        let (top, words) = unsafe { (at.words::<S, 4>(s, 2), at.turned(s, 6)) };
        let codes = halves_apart(s, words);
        unrolled!(I in 0 1 2 3 4 5 6 7 => to.code(s, 0, I, s.int_xor(codes[I], fifth_bits(s, top, I))));
    }
}

/// `d`, `m`, top bits, codes; `d·code + m`
pub(in crate::cpu) struct Q5_1;

impl Strip for Q5_1 {
    facts!(24, 16, 31);

    #[inline(always)]
    unsafe fn head<S: Simd>(s: S, at: At, to: &mut Scales<'_>, _: &mut Head) {
        // SAFETY: these bytes are within the block.
        let [d, m] = s.f16_pairs(unsafe { at.words::<S, 4>(s, 0) });
        to.scale_and_bias(s, 0, d, s.fma(s.splat(16.0), d, m));
    }

    #[inline(always)]
    unsafe fn codes<S: Simd>(s: S, at: At, _: &Head, _: usize, to: &mut impl Sink<S>) {
        // SAFETY: these bytes are within the block.
        let (top, words) = unsafe { (at.words::<S, 4>(s, 4), at.turned(s, 8)) };
        let codes = halves_apart(s, words);
        unrolled!(I in 0 1 2 3 4 5 6 7 => to.code(s, 0, I, s.int_xor(codes[I], fifth_bits(s, top, I))));
    }
}

/// `d`, signed bytes; `d·byte`
pub(in crate::cpu) struct Q8_0;

impl Strip for Q8_0 {
    facts!(34, 128, 255);

    #[inline(always)]
    unsafe fn head<S: Simd>(s: S, at: At, to: &mut Scales<'_>, _: &mut Head) {
        // SAFETY: these bytes are within the block.
        let d = unsafe { at.words::<S, 2>(s, 0) };
        to.scale(s, 0, s.f16_pairs(d)[0]);
    }

    #[inline(always)]
    unsafe fn codes<S: Simd>(s: S, at: At, _: &Head, _: usize, to: &mut impl Sink<S>) {
        // SAFETY: these bytes are within the block.
        let words = unsafe { [at.turned(s, 2), at.turned(s, 18)] };
        let sign = s.int_splat(i32::from_le_bytes([0x80; 4]));
        unrolled!(I in 0 1 2 3 4 5 6 7 => to.code(s, 0, I, s.int_xor(words[I / 4][I % 4], sign)));
    }
}

/// E8M0 scale, E2M1 codes.
pub(in crate::cpu) struct Mxfp4;

impl Strip for Mxfp4 {
    facts!(17, 12, 24);

    #[inline(always)]
    unsafe fn head<S: Simd>(s: S, at: At, to: &mut Scales<'_>, _: &mut Head) {
        // SAFETY: these bytes are within the block.
        let scale = unsafe { at.words::<S, 1>(s, 0) };
        to.scale(s, 0, e8m0_half(s, scale));
    }

    #[inline(always)]
    unsafe fn codes<S: Simd>(s: S, at: At, _: &Head, _: usize, to: &mut impl Sink<S>) {
        // SAFETY: these bytes are within the block.
        let words = unsafe { at.turned(s, 1) };
        let codes = halves_apart(s, words);
        unrolled!(I in 0 1 2 3 4 5 6 7 => to.code(s, 0, I, s.look_up(const { &table(E2M1_DOUBLED, 12) }, codes[I])));
    }
}

/// `d`, codes that choose from a table.
pub(in crate::cpu) struct Iq4Nl;

impl Strip for Iq4Nl {
    facts!(18, 128, 255);

    #[inline(always)]
    unsafe fn head<S: Simd>(s: S, at: At, to: &mut Scales<'_>, _: &mut Head) {
        // SAFETY: these bytes are within the block.
        let d = unsafe { at.words::<S, 2>(s, 0) };
        to.scale(s, 0, s.f16_pairs(d)[0]);
    }

    #[inline(always)]
    unsafe fn codes<S: Simd>(s: S, at: At, _: &Head, _: usize, to: &mut impl Sink<S>) {
        // SAFETY: these bytes are within the block.
        let words = unsafe { at.turned(s, 2) };
        let codes = halves_apart(s, words);
        unrolled!(I in 0 1 2 3 4 5 6 7 => to.code(s, 0, I, s.look_up(const { &table(IQ4, 128) }, codes[I])));
    }
}
