//! Microscaling floats as MLX stores them: codes of 4 bits along the row, scales in a plane of their own.

use std::ops::Range;

use quant::E2M1_DOUBLED;

use super::{At, Head, Scales, Sink, Strip, byte, e8m0_half, nibbles, table};
use crate::cpu::codes::{LANE_COLS, LOAD_BYTES, Rows, Tile};
use crate::cpu::simd::Simd;

/// 32 codes in 16 bytes, the first of two in the low half: lane vectors of even and odd columns take turns.
///
/// # Safety
/// 16 bytes can be read.
#[inline(always)]
unsafe fn decode_codes<S: Simd>(s: S, at: At, n_vector: usize, to: &mut impl Sink<S>) {
    // SAFETY: the caller's promise.
    let words = unsafe { at.turned(s, 0) };
    unrolled!(I in 0 1 2 3 4 5 6 7 => {
        let codes = s.look_up(const { &table(E2M1_DOUBLED, 12) }, nibbles(s, words[I / 2])[I % 2]);
        to.code(s, I / n_vector, I % n_vector, codes)
    });
}

/// Up to 16 scales of a byte each, turned: four in each vector.
#[inline(always)]
fn scale_words<S: Simd>(s: S, rows: &Rows<'_>, first_group: usize, tile: &mut Tile) -> [S::I; 4] {
    let (bytes, stride) = rows.scale_bytes(s, first_group, LOAD_BYTES, &mut tile.stage);
    // SAFETY: `Rows::scale_bytes` gave 16 rows of these bytes.
    s.swap_lanes(unsafe { s.load_rows(bytes, stride) })
}

/// An E8M0 scale each 32 columns.
pub(in crate::cpu) struct Mxfp4;

impl Strip for Mxfp4 {
    const COLS: usize = 32;
    const BYTES: usize = 16;
    const GROUP: usize = 32;
    const MIDDLE: u8 = 12;
    const MAX: u8 = 24;
    const ORDER: usize = 2;

    #[inline(always)]
    unsafe fn head<S: Simd>(_: S, _: At, _: &mut Scales<'_>, _: &mut Head) {}

    #[inline(always)]
    unsafe fn codes<S: Simd>(s: S, at: At, _: &Head, _: usize, to: &mut impl Sink<S>) {
        // SAFETY: these are the bytes of the strip.
        unsafe { decode_codes(s, at, Self::GROUP / LANE_COLS, to) }
    }

    #[inline(always)]
    fn scales<S: Simd>(s: S, rows: &Rows<'_>, cols: &Range<usize>, tile: &mut Tile) {
        let words = scale_words(s, rows, cols.start / 32, tile);
        for g in 0..8 {
            let scale = e8m0_half(s, byte(s, words[g / 4], g % 4));
            s.store(scale, &mut tile.scales[g].0);
            s.store(s.splat(0.0), &mut tile.biases[g].0);
        }
    }
}

/// An E4M3 scale each 16 columns.
pub(in crate::cpu) struct Nvfp4;

impl Strip for Nvfp4 {
    const COLS: usize = 32;
    const BYTES: usize = 16;
    const GROUP: usize = 16;
    const MIDDLE: u8 = 12;
    const MAX: u8 = 24;
    const ORDER: usize = 2;
    const SLOTS: usize = 2;

    #[inline(always)]
    unsafe fn head<S: Simd>(_: S, _: At, _: &mut Scales<'_>, _: &mut Head) {}

    #[inline(always)]
    unsafe fn codes<S: Simd>(s: S, at: At, _: &Head, _: usize, to: &mut impl Sink<S>) {
        // SAFETY: these are the bytes of the strip.
        unsafe { decode_codes(s, at, Self::GROUP / LANE_COLS, to) }
    }

    #[inline(always)]
    fn scales<S: Simd>(s: S, rows: &Rows<'_>, cols: &Range<usize>, tile: &mut Tile) {
        let words = scale_words(s, rows, cols.start / 16, tile);
        for i in 0..4 {
            for j in 0..2 {
                // Bytes `j` and `j + 2` as halves: exponent and mantissa at their places, so 2⁻⁸ of the number.
                let bytes = s.int_shr(words[i], 8 * j as u32);
                let number = s.int_and(s.int_shl(bytes, 7), s.int_splat(0x3f80_3f80));
                let sign =
                    s.int_and(s.int_shl(bytes, 8), s.int_splat(i32::from_le_bytes([0, 0x80, 0, 0x80])));
                for (k, half) in s.f16_pairs(s.int_xor(number, sign)).into_iter().enumerate() {
                    let g = 4 * i + j + 2 * k;
                    // Codes are doubled.
                    s.store(s.mul(half, s.splat(128.0)), &mut tile.scales[g].0);
                    s.store(s.splat(0.0), &mut tile.biases[g].0);
                }
            }
        }
    }
}
