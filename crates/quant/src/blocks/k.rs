//! Blocks of 256 columns in groups of 16 or 32, whose scales are whole numbers times a half `d` of the block; in some
//! also biases, times a half `m`.

use super::{Numbers, half_at};

/// `scales[16]`, codes of 2 bits `[64]`, `d`, `m`: scales in the low halves of their bytes, biases in the high ones.
pub(super) fn q2_k(block: &[u8], to: &mut Numbers) {
    let (d, m) = (half_at(block, 80), half_at(block, 82));
    for (g, &byte) in block[..16].iter().enumerate() {
        to.scales[g] = d * f32::from(byte & 15);
        to.biases[g] = -(m * f32::from(byte >> 4));
    }
    for (i, code) in to.codes.iter_mut().enumerate() {
        *code = pair_of_bits(&block[16..80], i) as i8;
    }
}

/// Code `i` of 2 bits: those of 128 columns are 32 bytes, the lowest bits of which are columns 0 to 31.
fn pair_of_bits(codes: &[u8], i: usize) -> u8 {
    codes[i / 128 * 32 + i % 32] >> (i % 128 / 32 * 2) & 3
}

/// Top bits `[32]`, codes of 2 bits `[64]`, `scales[12]`, `d`. Where the top bit is missing, the code is 4 less.
pub(super) fn q3_k(block: &[u8], to: &mut Numbers) {
    let (scales, d) = (&block[96..108], half_at(block, 108));
    for g in 0..16 {
        let low = scales[g % 8] >> (g / 8 * 4) & 15;
        let high = scales[8 + g % 4] >> (g / 4 * 2) & 3;
        to.scales[g] = d * f32::from((low | high << 4) as i8 - 32);
    }
    for (i, code) in to.codes.iter_mut().enumerate() {
        let top = block[i % 32] >> (i / 32) & 1;
        *code = (pair_of_bits(&block[32..96], i) | top << 2) as i8 - 4;
    }
}

/// `d`, `m`, `scales[12]`, codes of 4 bits `[128]`.
pub(super) fn q4_k(block: &[u8], to: &mut Numbers) {
    scales_and_biases(block, to);
    for (i, code) in to.codes.iter_mut().enumerate() {
        *code = nibble_of_pair(&block[16..], i) as i8;
    }
}

/// `d`, `m`, `scales[12]`, top bits `[32]`, bit `g` of byte `i` for column `i` of group `g`, codes `[128]`.
pub(super) fn q5_k(block: &[u8], to: &mut Numbers) {
    scales_and_biases(block, to);
    for (i, code) in to.codes.iter_mut().enumerate() {
        let top = block[16 + i % 32] >> (i / 32) & 1;
        *code = (nibble_of_pair(&block[48..], i) | top << 4) as i8;
    }
}

/// Code `i` of 4 bits: 32 bytes are two groups of 32, the first in the low halves.
fn nibble_of_pair(codes: &[u8], i: usize) -> u8 {
    codes[i / 64 * 32 + i % 32] >> (i % 64 / 32 * 4) & 15
}

/// Eight scales and biases of 6 bits in 12 bytes.
fn scales_and_biases(block: &[u8], to: &mut Numbers) {
    let (d, m, bytes) = (half_at(block, 0), half_at(block, 2), &block[4..16]);
    for g in 0..8 {
        let (scale, bias) = if g < 4 {
            (bytes[g] & 63, bytes[4 + g] & 63)
        } else {
            let low = bytes[4 + g];
            (low & 15 | bytes[g - 4] >> 6 << 4, low >> 4 | bytes[g] >> 6 << 4)
        };
        to.scales[g] = d * f32::from(scale);
        to.biases[g] = -(m * f32::from(bias));
    }
}

/// Low halves `[128]`, top bits `[64]`, `scales[16]`, `d`: 128 columns are 64 bytes of low halves and 32 of top bits.
pub(super) fn q6_k(block: &[u8], to: &mut Numbers) {
    let (low, top, scales, d) = (&block[..128], &block[128..192], &block[192..208], half_at(block, 208));
    for (to, &scale) in to.scales.iter_mut().zip(scales) {
        *to = d * f32::from(scale as i8);
    }
    for (i, code) in to.codes.iter_mut().enumerate() {
        let (half, quarter, l) = (i / 128, i % 128 / 32, i % 32);
        let low = low[64 * half + 32 * (quarter % 2) + l] >> (quarter / 2 * 4) & 15;
        let top = top[32 * half + l] >> (2 * quarter) & 3;
        *code = (low | top << 4) as i8 - 32;
    }
}
