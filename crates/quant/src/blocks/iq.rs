//! Blocks whose codes choose numbers from tables: single ones (`iq4`), or four or eight at a time (`iq1` to `iq3`).

pub mod codebooks;

use half::f16;

use super::legacy::nibbles;
use super::{Numbers, half_at, u16_at, u32_at};

use codebooks::{IQ1, IQ2_S, IQ2_XS, IQ2_XXS, IQ3_S, IQ3_XXS};

/// What codes of 4 bits stand for.
pub const IQ4: [i8; 16] = [-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113];

/// `d`, codes as those of `q4_0`.
pub(super) fn iq4_nl(block: &[u8], to: &mut Numbers) {
    to.scales[0] = half_at(block, 0);
    nibbles(block, 2, &mut to.codes, |_, code| IQ4[usize::from(code)]);
}

/// `d`, top bits of the scales (16 bits), their low halves `[4]`, codes `[8][16]`.
pub(super) fn iq4_xs(block: &[u8], to: &mut Numbers) {
    let (d, top) = (half_at(block, 0), u16_at(block, 2));
    for g in 0..8 {
        let low = block[4 + g / 2] >> (g % 2 * 4) & 15;
        let scale = low | ((top >> (2 * g) & 3) as u8) << 4;
        to.scales[g] = d * f32::from(scale as i8 - 32);
        nibbles(block, 8 + 16 * g, &mut to.codes[32 * g..], |_, code| IQ4[usize::from(code)]);
    }
}

/// Writes the numbers of a table's entry, those with their bit in `signs` negative.
fn signed<const N: usize>(entry: [i8; N], signs: u8, to: &mut [i8]) {
    for (i, (to, number)) in to.iter_mut().zip(entry).enumerate() {
        *to = if signs >> i & 1 == 0 { number } else { -number };
    }
}

/// Signs of eight numbers out of 7 bits: as many are negative as make the number of them even.
const fn even_signs(bits: u32) -> u8 {
    let bits = (bits & 0x7f) as u8;
    bits | ((bits.count_ones() & 1) as u8) << 7
}

/// `d`, for each 32 columns: four entries of a byte, then four times signs of 7 bits and a scale of 4.
pub(super) fn iq2_xxs(block: &[u8], to: &mut Numbers) {
    let d = half_at(block, 0);
    for g in 0..8 {
        let (at, word) = (2 + 8 * g, u32_at(block, 6 + 8 * g));
        to.scales[g] = d * (0.5 + (word >> 28) as f32) * 0.25;
        for i in 0..4 {
            let entry = IQ2_XXS[usize::from(block[at + i])];
            signed(entry, even_signs(word >> (7 * i)), &mut to.codes[32 * g + 8 * i..]);
        }
    }
}

/// `d`, 32 times an entry of 9 bits and signs of 7, then 16 scales of 4 bits.
pub(super) fn iq2_xs(block: &[u8], to: &mut Numbers) {
    let d = half_at(block, 0);
    for i in 0..32 {
        let word = u16_at(block, 2 + 2 * i);
        let entry = IQ2_XS[usize::from(word & 511)];
        signed(entry, even_signs(u32::from(word >> 9)), &mut to.codes[8 * i..]);
    }
    quarter_scales(d, &block[66..74], to);
}

/// 16 scales of 4 bits, an eighth of `d` times an odd number.
fn quarter_scales(d: f32, scales: &[u8], to: &mut Numbers) {
    for g in 0..16 {
        to.scales[g] = d * (0.5 + f32::from(scales[g / 2] >> (g % 2 * 4) & 15)) * 0.25;
    }
}

/// `d`, 32 times the low byte of an entry, 32 times signs, the entries' top 2 bits `[8]`, 16 scales of 4 bits.
pub(super) fn iq2_s(block: &[u8], to: &mut Numbers) {
    let (d, top) = (half_at(block, 0), &block[66..74]);
    for i in 0..32 {
        let entry = usize::from(block[2 + i]) | usize::from(top[i / 4] >> (i % 4 * 2) & 3) << 8;
        signed(IQ2_S[entry], block[34 + i], &mut to.codes[8 * i..]);
    }
    quarter_scales(d, &block[74..82], to);
}

/// `d`, 64 entries of a byte, four columns each; for each 32 columns four times signs of 7 bits and a scale of 4.
pub(super) fn iq3_xxs(block: &[u8], to: &mut Numbers) {
    let d = half_at(block, 0);
    for g in 0..8 {
        let word = u32_at(block, 66 + 4 * g);
        to.scales[g] = d * (0.5 + (word >> 28) as f32) * 0.5;
        for i in 0..8 {
            let signs = even_signs(word >> (i / 2 * 7)) >> (i % 2 * 4);
            signed(IQ3_XXS[usize::from(block[2 + 8 * g + i])], signs, &mut to.codes[32 * g + 4 * i..]);
        }
    }
}

/// `d`, 64 times the low byte of an entry, their top bits `[8]`, signs `[32]`, 8 scales of 4 bits.
pub(super) fn iq3_s(block: &[u8], to: &mut Numbers) {
    let (d, top, signs) = (half_at(block, 0), &block[66..74], &block[74..106]);
    for i in 0..64 {
        let entry = usize::from(block[2 + i]) | usize::from(top[i / 8] >> (i % 8) & 1) << 8;
        signed(IQ3_S[entry], signs[i / 2] >> (i % 2 * 4), &mut to.codes[4 * i..]);
    }
    for g in 0..8 {
        to.scales[g] = d * f32::from(1 + 2 * (block[106 + g / 2] >> (g % 2 * 4) & 15));
    }
}

/// Eight numbers −1, 0 or 1, each an eighth more or less: eighths.
fn shifted(entry: [i8; 8], is_less: bool, to: &mut [i8]) {
    for (to, number) in to.iter_mut().zip(entry) {
        *to = 8 * number + if is_less { -1 } else { 1 };
    }
}

/// `d`, 32 times the low byte of an entry; for each 32 columns four times the entries' top 3 bits, a scale of 3 bits
/// and whether an eighth is taken off or added.
pub(super) fn iq1_s(block: &[u8], to: &mut Numbers) {
    let d = half_at(block, 0);
    for g in 0..8 {
        let word = u16_at(block, 34 + 2 * g);
        to.scales[g] = d * f32::from(2 * (word >> 12 & 7) + 1) * 0.125;
        for i in 0..4 {
            let entry = usize::from(block[2 + 4 * g + i]) | usize::from(word >> (3 * i) & 7) << 8;
            shifted(IQ1[entry], word >> 15 == 1, &mut to.codes[32 * g + 8 * i..]);
        }
    }
}

/// 32 times the low byte of an entry, 32 times 4 bits: the entry's top 3 and whether an eighth is taken off; four words
/// of four scales of 3 bits each, and a quarter of `d` in the top bits of each.
pub(super) fn iq1_m(block: &[u8], to: &mut Numbers) {
    let words: [u16; 4] = std::array::from_fn(|i| u16_at(block, 48 + 2 * i));
    let d = words.iter().enumerate().fold(0, |d, (i, word)| d | word >> 12 << (4 * i));
    let d = f16::from_bits(d).to_f32();
    for g in 0..16 {
        to.scales[g] = d * f32::from(2 * (words[g / 4] >> (g % 4 * 3) & 7) + 1) * 0.125;
    }
    for i in 0..32 {
        let top = block[32 + i / 2] >> (i % 2 * 4);
        let entry = usize::from(block[i]) | usize::from(top & 7) << 8;
        shifted(IQ1[entry], top & 8 != 0, &mut to.codes[8 * i..]);
    }
}
