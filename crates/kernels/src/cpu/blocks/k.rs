//! Blocks of 256 columns whose scales are whole numbers times a half `d`, in some with biases times a half `m`.

use quant::IQ4;

use super::legacy::halves_apart;
use super::{At, Head, Scales, Sink, Strip, byte, masked, nibbles, table};
use crate::cpu::simd::Simd;

/// Facts of a block of 256 columns.
macro_rules! facts {
    ($bytes:literal, $group:literal, $middle:literal, $max:literal, $sections:literal * $slots:literal) => {
        const COLS: usize = 256;
        const BYTES: usize = $bytes;
        const GROUP: usize = $group;
        const MIDDLE: u8 = $middle;
        const MAX: u8 = $max;
        const SECTIONS: usize = $sections;
        const SLOTS: usize = $slots;
    };
}

/// Keeps bytes `from .. from + 32` of each row, turned: eight vectors.
///
/// # Safety
/// They can be read.
#[inline(always)]
unsafe fn keep_32<S: Simd>(s: S, at: At, from: usize, head: &mut Head) {
    for i in 0..2 {
        // SAFETY: the caller's promise.
        let words = unsafe { at.turned(s, from + 16 * i) };
        for j in 0..4 {
            s.int_store(words[j], &mut head[4 * i + j].0);
        }
    }
}

/// The group in slot `slot` where a section is every second 16 columns of a half of the block.
const fn group_of_half(section: usize, slot: usize) -> usize {
    section / 2 * 8 + slot * 2 + section % 2
}

/// `d·scale` of groups `4i .. 4i + 4` out of four bytes a lane, which count from `zero`.
#[inline(always)]
fn four_scales<S: Simd>(s: S, d: S::V, bytes: S::I, zero: f32, i: usize, to: &mut Scales<'_>) {
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
    to: &mut Scales<'_>,
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
unsafe fn packed_scales<S: Simd>(s: S, at: At, middle: u8, to: &mut Scales<'_>) {
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
    facts!(144, 32, 8, 15, 4 * 2);

    #[inline(always)]
    unsafe fn head<S: Simd>(s: S, at: At, to: &mut Scales<'_>, _: &mut Head) {
        // SAFETY: these bytes are within the block.
        unsafe { packed_scales(s, at, 8, to) };
    }

    #[inline(always)]
    unsafe fn codes<S: Simd>(s: S, at: At, _: &Head, section: usize, to: &mut impl Sink<S>) {
        let from = 16 + 32 * section;
        // SAFETY: these bytes are within the block.
        let words = unsafe { [at.turned(s, from), at.turned(s, from + 16)] };
        unrolled!(SLOT in 0 1 => unrolled!(I in 0 1 2 3 4 5 6 7 => {
            to.code(s, SLOT, I, nibbles(s, words[I / 4][I % 4])[SLOT])
        }));
    }
}

/// `d`, `m`, scales, top bits, codes.
pub(in crate::cpu) struct Q5K;

impl Strip for Q5K {
    facts!(176, 32, 16, 31, 4 * 2);

    #[inline(always)]
    unsafe fn head<S: Simd>(s: S, at: At, to: &mut Scales<'_>, head: &mut Head) {
        // SAFETY: these bytes are within the block.
        unsafe {
            packed_scales(s, at, 16, to);
            keep_32(s, at, 16, head);
        }
    }

    #[inline(always)]
    unsafe fn codes<S: Simd>(s: S, at: At, head: &Head, section: usize, to: &mut impl Sink<S>) {
        let from = 48 + 32 * section;
        // SAFETY: these bytes are within the block.
        let words = unsafe { [at.turned(s, from), at.turned(s, from + 16)] };
        unrolled!(SLOT in 0 1 => unrolled!(I in 0 1 2 3 4 5 6 7 => {
            let low = nibbles(s, words[I / 4][I % 4])[SLOT];
            let bit = masked(s, s.int_shr(s.int_load(&head[I].0), (2 * section + SLOT) as u32), 1);
            to.code(s, SLOT, I, s.int_xor(low, s.int_shl(bit, 4)))
        }));
    }
}

/// Low halves, top bits, scales, `d`.
pub(in crate::cpu) struct Q6K;

impl Strip for Q6K {
    facts!(210, 16, 32, 63, 4 * 4);

    #[inline(always)]
    fn group(section: usize, slot: usize) -> usize {
        group_of_half(section, slot)
    }

    #[inline(always)]
    unsafe fn head<S: Simd>(s: S, at: At, to: &mut Scales<'_>, _: &mut Head) {
        // SAFETY: these bytes are within the block.
        let (d, scales) = unsafe { (at.words::<S, 2>(s, 208), at.turned(s, 192)) };
        let (d, sign) = (s.f16_pairs(d)[0], s.int_splat(i32::from_le_bytes([0x80; 4])));
        for i in 0..4 {
            four_scales(s, d, s.int_xor(scales[i], sign), 128.0, i, to);
        }
    }

    #[inline(always)]
    unsafe fn codes<S: Simd>(s: S, at: At, _: &Head, section: usize, to: &mut impl Sink<S>) {
        // 64 columns are 16 bytes of top bits, and twice 16 of low halves.
        let from = 64 * (section / 2) + 16 * (section % 2);
        // SAFETY: these bytes are within the block.
        let (top, low) =
            unsafe { (at.turned(s, 128 + 16 * section), [at.turned(s, from), at.turned(s, from + 32)]) };
        unrolled!(SLOT in 0 1 2 3 => unrolled!(I in 0 1 2 3 => {
            let low = nibbles(s, low[SLOT % 2][I])[SLOT / 2];
            let bits = masked(s, s.int_shr(top[I], 2 * SLOT as u32), 3);
            to.code(s, SLOT, I, s.int_xor(low, s.int_shl(bits, 4)))
        }));
    }
}

/// Top bits, codes of 2 bits, scales, `d`.
pub(in crate::cpu) struct Q3K;

impl Strip for Q3K {
    facts!(110, 16, 4, 7, 4 * 4);

    #[inline(always)]
    fn group(section: usize, slot: usize) -> usize {
        group_of_half(section, slot)
    }

    #[inline(always)]
    unsafe fn head<S: Simd>(s: S, at: At, to: &mut Scales<'_>, head: &mut Head) {
        // SAFETY: these bytes are within the block, and two behind it.
        let [a, b, top_scales, d] = unsafe {
            keep_32(s, at, 0, head);
            at.turned(s, 96)
        };
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
    }

    #[inline(always)]
    unsafe fn codes<S: Simd>(s: S, at: At, head: &Head, section: usize, to: &mut impl Sink<S>) {
        let (half, part) = (section / 2, section % 2);
        // SAFETY: these bytes are within the block.
        let words = unsafe { at.turned(s, 32 + 16 * section) };
        unrolled!(SLOT in 0 1 2 3 => unrolled!(I in 0 1 2 3 => {
            let low = masked(s, s.int_shr(words[I], 2 * SLOT as u32), 3);
            let bits = s.int_shr(s.int_load(&head[4 * part + I].0), (4 * half + SLOT) as u32);
            to.code(s, SLOT, I, s.int_xor(low, s.int_shl(masked(s, bits, 1), 2)))
        }));
    }
}

/// Scales and biases, codes of 2 bits, `d`, `m`.
pub(in crate::cpu) struct Q2K;

impl Strip for Q2K {
    facts!(84, 16, 2, 3, 4 * 4);

    #[inline(always)]
    fn group(section: usize, slot: usize) -> usize {
        group_of_half(section, slot)
    }

    #[inline(always)]
    unsafe fn head<S: Simd>(s: S, at: At, to: &mut Scales<'_>, _: &mut Head) {
        // SAFETY: these bytes are within the block.
        let (scales, halves) = unsafe { (at.turned(s, 0), at.words::<S, 4>(s, 80)) };
        let [d, m] = s.f16_pairs(halves);
        for i in 0..4 {
            let [scales, biases] = nibbles(s, scales[i]);
            four_scales_and_biases(s, (d, m), (scales, biases), 2, i, to);
        }
    }

    #[inline(always)]
    unsafe fn codes<S: Simd>(s: S, at: At, _: &Head, section: usize, to: &mut impl Sink<S>) {
        // SAFETY: these bytes are within the block.
        let words = unsafe { at.turned(s, 16 + 16 * section) };
        unrolled!(SLOT in 0 1 2 3 => unrolled!(I in 0 1 2 3 => {
            to.code(s, SLOT, I, masked(s, s.int_shr(words[I], 2 * SLOT as u32), 3))
        }));
    }
}

/// `d`, top bits of the scales, their low halves, codes of 4 bits that choose from a table.
pub(in crate::cpu) struct Iq4Xs;

impl Strip for Iq4Xs {
    facts!(136, 32, 128, 255, 8 * 1);

    #[inline(always)]
    unsafe fn head<S: Simd>(s: S, at: At, to: &mut Scales<'_>, _: &mut Head) {
        // SAFETY: these bytes are within the block.
        let [head, low, ..] = unsafe { at.turned(s, 0) };
        let [d, _] = s.f16_pairs(head);
        for g in 0..8 {
            let low = s.int_and(s.int_shr(low, 4 * g as u32), s.int_splat(15));
            let top = s.int_and(s.int_shr(head, 16 + 2 * g as u32), s.int_splat(3));
            let scale = s.to_float(s.int_xor(low, s.int_shl(top, 4)));
            to.scale(s, g, s.mul(d, s.sub(scale, s.splat(32.0))));
        }
    }

    #[inline(always)]
    unsafe fn codes<S: Simd>(s: S, at: At, _: &Head, section: usize, to: &mut impl Sink<S>) {
        // SAFETY: these bytes are within the block.
        let words = unsafe { at.turned(s, 8 + 16 * section) };
        let codes = halves_apart(s, words);
        unrolled!(I in 0 1 2 3 4 5 6 7 => {
            to.code(s, 0, I, s.look_up(const { &table(IQ4, 128) }, codes[I]))
        });
    }
}
