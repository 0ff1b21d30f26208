//! Blocks of 32 columns: a half as scale, in some another as bias, then the codes.
//!
//! Codes of 4 bits are 16 bytes: the low halves are columns 0 to 15, the high ones 16 to 31. Those of 5 bits have their
//! top bits in a word of their own, bit `i` for column `i`.

use super::{Numbers, half_at, u32_at};
use crate::minifloat::{E2M1_DOUBLED, e8m0_half};

/// Bytes of 32 codes of 4 bits.
const NIBBLE_BYTES: usize = 16;

/// Codes of 4 bits from byte `at` on, as `value` has them.
pub(super) fn nibbles(block: &[u8], at: usize, to: &mut [i8], value: impl Fn(usize, u8) -> i8) {
    for (i, &byte) in block[at..at + NIBBLE_BYTES].iter().enumerate() {
        to[i] = value(i, byte & 15);
        to[NIBBLE_BYTES + i] = value(NIBBLE_BYTES + i, byte >> 4);
    }
}

/// `d`, codes; `d·(code − 8)`
pub(super) fn q4_0(block: &[u8], to: &mut Numbers) {
    to.scales[0] = half_at(block, 0);
    nibbles(block, 2, &mut to.codes, |_, code| code as i8 - 8);
}

/// `d`, `m`, codes; `d·code + m`
pub(super) fn q4_1(block: &[u8], to: &mut Numbers) {
    (to.scales[0], to.biases[0]) = (half_at(block, 0), half_at(block, 2));
    nibbles(block, 4, &mut to.codes, |_, code| code as i8);
}

/// `d`, top bits, codes; `d·(code − 16)`
pub(super) fn q5_0(block: &[u8], to: &mut Numbers) {
    to.scales[0] = half_at(block, 0);
    let top = u32_at(block, 2);
    nibbles(block, 6, &mut to.codes, |i, code| (code | top_bit(top, i)) as i8 - 16);
}

/// `d`, `m`, top bits, codes; `d·code + m`
pub(super) fn q5_1(block: &[u8], to: &mut Numbers) {
    (to.scales[0], to.biases[0]) = (half_at(block, 0), half_at(block, 2));
    let top = u32_at(block, 4);
    nibbles(block, 8, &mut to.codes, |i, code| (code | top_bit(top, i)) as i8);
}

fn top_bit(top: u32, col: usize) -> u8 {
    ((top >> col & 1) as u8) << 4
}

/// `d`, signed bytes; `d·byte`
pub(super) fn q8_0(block: &[u8], to: &mut Numbers) {
    to.scales[0] = half_at(block, 0);
    for (code, &byte) in to.codes.iter_mut().zip(&block[2..]) {
        *code = byte as i8;
    }
}

/// E8M0 scale, E2M1 codes.
pub(super) fn mxfp4(block: &[u8], to: &mut Numbers) {
    to.scales[0] = e8m0_half(block[0]);
    nibbles(block, 1, &mut to.codes, |_, code| E2M1_DOUBLED[usize::from(code)]);
}
