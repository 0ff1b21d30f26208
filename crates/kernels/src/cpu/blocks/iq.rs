//! Blocks that choose four or eight numbers at a time from a code book: read a row at a time, then turned.
//!
//! Books hold bytes as products take them, `middle + number`. Where a sign is set, a byte `b` becomes `2·middle − b`:
//! with bytes below 128 that is `(b ^ 127) − (127 − 2·middle)`, which no borrow leaves, so eight go at once.

use quant::Block;
use quant::codebooks::{IQ1, IQ2_S, IQ2_XS, IQ2_XXS, IQ3_S, IQ3_XXS};

use super::{At, Out, Strip};
use crate::cpu::simd::{LANES, Simd};

/// One row of a block, before it is turned.
struct Row {
    /// Eight bytes each.
    codes: [u64; Block::COLS_MAX / 8],
    /// Of each group: its scale is `(2·step + 1)` times that of the block.
    steps: [u8; Block::GROUPS_MAX],
    /// The block's half.
    d: u16,
}

/// A kind: what codes count from, the scale of a block in units of its half, and how a row is read.
macro_rules! kind {
    ($name:ident, $middle:literal, $unit:literal, $read:ident) => {
        pub(in crate::cpu) struct $name;

        impl Strip for $name {
            const COLS: usize = Block::$name.cols();
            const BYTES: usize = Block::$name.bytes();
            const GROUP: usize = Block::$name.group();
            const MIDDLE: u8 = $middle;
            const IS_WIDE: bool = false;

            #[inline(always)]
            unsafe fn decode<S: Simd>(s: S, at: At, to: &mut Out<'_>) {
                let mut rows = [[0; Block::COLS_MAX / 8]; LANES];
                let (mut halves, mut steps) = ([0; LANES], [[0; LANES]; Block::GROUPS_MAX]);
                for r in 0..LANES {
                    for line in (0..Self::BYTES).step_by(64) {
                        s.prefetch(at.next.wrapping_add(r * Self::BYTES + line));
                    }
                    // SAFETY: the caller's promise.
                    let block = unsafe { &*at.first.add(r * at.stride).cast::<[u8; Self::BYTES]>() };
                    let row = $read(block);
                    (rows[r], halves[r]) = (row.codes, i32::from(row.d));
                    for g in 0..Self::COLS / Self::GROUP {
                        steps[g][r] = i32::from(row.steps[g]);
                    }
                }
                let unit = s.mul(s.f16_pairs(s.int_load(&halves))[0], s.splat($unit));
                for g in 0..Self::COLS / Self::GROUP {
                    let step = s.fma(s.splat(2.0), s.to_float(s.int_load(&steps[g])), s.splat(1.0));
                    to.scale(s, g, s.mul(unit, step));
                }
                let rows: *const u8 = rows.as_ptr().cast();
                for i in 0..Block::COLS_MAX / 16 {
                    // SAFETY: rows of so many bytes.
                    let words = unsafe { s.load_rows(rows.add(16 * i), Block::COLS_MAX) };
                    for (j, codes) in s.swap_lanes(words).into_iter().enumerate() {
                        to.code(s, 4 * i + j, codes);
                    }
                }
            }
        }
    };
}

kind!(Iq1S, 9, 0.125, iq1_s);
kind!(Iq1M, 9, 0.125, iq1_m);
kind!(Iq2Xxs, 43, 0.125, iq2_xxs);
kind!(Iq2Xs, 43, 0.125, iq2_xs);
kind!(Iq2S, 43, 0.125, iq2_s);
kind!(Iq3Xxs, 62, 0.25, iq3_xxs);
kind!(Iq3S, 15, 1.0, iq3_s);

/// The entries of a book, `factor·number + middle` a byte each.
const fn bytes<const N: usize, const ENTRIES: usize>(
    book: &[[i8; N]; ENTRIES],
    factor: i16,
    middle: i16,
) -> [u64; ENTRIES] {
    let mut entries = [0; ENTRIES];
    let mut i = 0;
    while i < ENTRIES * N {
        entries[i / N] |= ((factor * book[i / N][i % N] as i16 + middle) as u64) << (8 * (i % N));
        i += 1;
    }
    entries
}

// One less than the middle: an eighth is added to each number, or taken off.
static IQ1_BYTES: [u64; 2048] = bytes(&IQ1, 8, 8);
static IQ2_XXS_BYTES: [u64; 256] = bytes(&IQ2_XXS, 1, 43);
static IQ2_XS_BYTES: [u64; 512] = bytes(&IQ2_XS, 1, 43);
static IQ2_S_BYTES: [u64; 1024] = bytes(&IQ2_S, 1, 43);
static IQ3_XXS_BYTES: [u64; 256] = bytes(&IQ3_XXS, 1, 62);
static IQ3_S_BYTES: [u64; 512] = bytes(&IQ3_S, 1, 15);

/// 127 in each byte whose bit is set.
static SIGNS: [u64; 256] = {
    let mut signs = [0; 256];
    let mut i = 0;
    while i < 256 * 8 {
        signs[i / 8] |= (((i / 8) >> (i % 8) & 1) as u64 * 127) << (8 * (i % 8));
        i += 1;
    }
    signs
};

/// The same for 7 bits, to which an eighth is added that makes their number even.
static EVEN_SIGNS: [u64; 128] = {
    let mut signs = [0; 128];
    let mut i = 0;
    while i < 128 {
        signs[i] = SIGNS[i | (i.count_ones() as usize & 1) << 7];
        i += 1;
    }
    signs
};

/// Eight bytes with their signs.
#[inline(always)]
fn signed<const MIDDLE: u64>(bytes: u64, signs: u64) -> u64 {
    (bytes ^ signs) - (signs & ((127 - 2 * MIDDLE) * 0x0101_0101_0101_0101))
}

#[inline(always)]
fn u16_at(block: &[u8], at: usize) -> u16 {
    u16::from_le_bytes([block[at], block[at + 1]])
}

#[inline(always)]
fn u32_at(block: &[u8], at: usize) -> u32 {
    u32::from_le_bytes([block[at], block[at + 1], block[at + 2], block[at + 3]])
}

/// 16 steps of 4 bits from byte `at` on.
#[inline(always)]
fn nibble_steps(block: &[u8], at: usize) -> [u8; Block::GROUPS_MAX] {
    std::array::from_fn(|g| block[at + g / 2] >> (g % 2 * 4) & 15)
}

#[inline(always)]
fn iq2_xxs(block: &[u8; Block::Iq2Xxs.bytes()]) -> Row {
    let mut row = Row { codes: [0; 32], steps: [0; 16], d: u16_at(block, 0) };
    for g in 0..8 {
        let word = u32_at(block, 6 + 8 * g);
        row.steps[g] = (word >> 28) as u8;
        for i in 0..4 {
            let entry = IQ2_XXS_BYTES[usize::from(block[2 + 8 * g + i])];
            row.codes[4 * g + i] = signed::<43>(entry, EVEN_SIGNS[(word >> (7 * i) & 127) as usize]);
        }
    }
    row
}

#[inline(always)]
fn iq2_xs(block: &[u8; Block::Iq2Xs.bytes()]) -> Row {
    let codes = std::array::from_fn(|i| {
        let word = usize::from(u16_at(block, 2 + 2 * i));
        signed::<43>(IQ2_XS_BYTES[word & 511], EVEN_SIGNS[word >> 9])
    });
    Row { codes, steps: nibble_steps(block, 66), d: u16_at(block, 0) }
}

#[inline(always)]
fn iq2_s(block: &[u8; Block::Iq2S.bytes()]) -> Row {
    let codes = std::array::from_fn(|i| {
        let top = usize::from(block[66 + i / 4] >> (i % 4 * 2) & 3) << 8;
        signed::<43>(IQ2_S_BYTES[usize::from(block[2 + i]) | top], SIGNS[usize::from(block[34 + i])])
    });
    Row { codes, steps: nibble_steps(block, 74), d: u16_at(block, 0) }
}

#[inline(always)]
fn iq3_xxs(block: &[u8; Block::Iq3Xxs.bytes()]) -> Row {
    let mut row = Row { codes: [0; 32], steps: [0; 16], d: u16_at(block, 0) };
    for g in 0..8 {
        let word = u32_at(block, 66 + 4 * g);
        row.steps[g] = (word >> 28) as u8;
        for i in 0..4 {
            let at = 2 + 8 * g + 2 * i;
            let [low, high] = [block[at], block[at + 1]].map(|byte| IQ3_XXS_BYTES[usize::from(byte)]);
            let signs = EVEN_SIGNS[(word >> (7 * i) & 127) as usize];
            row.codes[4 * g + i] = signed::<62>(low | high << 32, signs);
        }
    }
    row
}

#[inline(always)]
fn iq3_s(block: &[u8; Block::Iq3S.bytes()]) -> Row {
    let codes = std::array::from_fn(|i| {
        let top = usize::from(block[66 + i / 4]) << 8 >> (i % 4 * 2);
        let low = IQ3_S_BYTES[usize::from(block[2 + 2 * i]) | top & 256];
        let high = IQ3_S_BYTES[usize::from(block[3 + 2 * i]) | top >> 1 & 256];
        signed::<15>(low | high << 32, SIGNS[usize::from(block[74 + i])])
    });
    let mut steps = [0; 16];
    for g in 0..8 {
        steps[g] = block[106 + g / 2] >> (g % 2 * 4) & 15;
    }
    Row { codes, steps, d: u16_at(block, 0) }
}

/// Adds an eighth to eight numbers, or takes one off.
#[inline(always)]
fn shifted(bytes: u64, is_less: bool) -> u64 {
    bytes + if is_less { 0 } else { 0x0202_0202_0202_0202 }
}

#[inline(always)]
fn iq1_s(block: &[u8; Block::Iq1S.bytes()]) -> Row {
    let mut row = Row { codes: [0; 32], steps: [0; 16], d: u16_at(block, 0) };
    for g in 0..8 {
        let word = usize::from(u16_at(block, 34 + 2 * g));
        row.steps[g] = (word >> 12 & 7) as u8;
        for i in 0..4 {
            let entry = usize::from(block[2 + 4 * g + i]) | (word >> (3 * i) & 7) << 8;
            row.codes[4 * g + i] = shifted(IQ1_BYTES[entry], word >> 15 == 1);
        }
    }
    row
}

#[inline(always)]
fn iq1_m(block: &[u8; Block::Iq1M.bytes()]) -> Row {
    let words: [u16; 4] = std::array::from_fn(|i| u16_at(block, 48 + 2 * i));
    let d = words[0] >> 12 | words[1] >> 12 << 4 | words[2] >> 12 << 8 | words[3] >> 12 << 12;
    let codes = std::array::from_fn(|i| {
        let top = block[32 + i / 2] >> (i % 2 * 4);
        let entry = usize::from(block[i]) | usize::from(top & 7) << 8;
        shifted(IQ1_BYTES[entry], top & 8 != 0)
    });
    Row { codes, steps: std::array::from_fn(|g| (words[g / 4] >> (g % 4 * 3) & 7) as u8), d }
}
