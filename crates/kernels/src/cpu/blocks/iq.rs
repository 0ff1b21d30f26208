//! Blocks that choose four or eight numbers at a time from a code book: read a row at a time, then turned.
//!
//! Books hold bytes as products take them, `middle + number`. Where a sign is set, a byte `b` becomes `2·middle − b`:
//! with bytes below 128 that is `(b ^ 127) − (127 − 2·middle)`, which no borrow leaves, so eight go at once.

use quant::Block;
use quant::codebooks::{IQ1, IQ2_S, IQ2_XS, IQ2_XXS, IQ3_S, IQ3_XXS};

use super::{At, Head, Scales, Sink, Strip};
use crate::cpu::simd::{LANES, Simd};

/// The codes of a row of a block, before they are turned: eight bytes each.
type Codes = [u64; Block::COLS_MAX / 8];

/// What else a row of a block holds.
struct Scale {
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
            const MAX: u8 = 2 * $middle;

            const SECTIONS: usize = Self::COLS / Self::GROUP;

            #[inline(always)]
            unsafe fn head<S: Simd>(s: S, at: At, to: &mut Scales<'_>, head: &mut Head) {
                let (mut halves, mut steps) = ([0; LANES], [[0; LANES]; Block::GROUPS_MAX]);
                for r in 0..LANES {
                    for line in (0..Self::BYTES).step_by(64) {
                        s.prefetch(at.next.wrapping_add(r * Self::BYTES + line));
                    }
                    // SAFETY: the caller's promise.
                    let block = unsafe { &*at.first.add(r * at.stride).cast::<[u8; Self::BYTES]>() };
                    // SAFETY: room for 16 rows of these codes, whose alignment is less.
                    let codes = unsafe { &mut *head.as_mut_ptr().cast::<Codes>().add(r) };
                    let row = $read(block, codes);
                    halves[r] = i32::from(row.d);
                    for g in 0..Self::COLS / Self::GROUP {
                        steps[g][r] = i32::from(row.steps[g]);
                    }
                }
                let unit = s.mul(s.f16_pairs(s.int_load(&halves))[0], s.splat($unit));
                for g in 0..Self::COLS / Self::GROUP {
                    let step = s.fma(s.splat(2.0), s.to_float(s.int_load(&steps[g])), s.splat(1.0));
                    to.scale(s, g, s.mul(unit, step));
                }
            }

            #[inline(always)]
            unsafe fn codes<S: Simd>(s: S, _: At, head: &Head, section: usize, to: &mut impl Sink<S>) {
                let rows = head.as_ptr().cast::<u8>().wrapping_add(section * Self::GROUP);
                for i in 0..Self::GROUP / 16 {
                    // SAFETY: `head` is 16 rows of so many bytes.
                    let words = unsafe { s.load_rows(rows.add(16 * i), Block::COLS_MAX) };
                    let codes = s.swap_lanes(words);
                    unrolled!(J in 0 1 2 3 => to.code(s, 0, 4 * i + J, codes[J]));
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
    let mut steps = [0; Block::GROUPS_MAX];
    for (g, step) in steps.iter_mut().enumerate() {
        *step = block[at + g / 2] >> (g % 2 * 4) & 15;
    }
    steps
}

#[inline(always)]
fn iq2_xxs(block: &[u8; Block::Iq2Xxs.bytes()], codes: &mut Codes) -> Scale {
    let mut steps = [0; Block::GROUPS_MAX];
    for g in 0..8 {
        let word = u32_at(block, 6 + 8 * g);
        steps[g] = (word >> 28) as u8;
        for i in 0..4 {
            let entry = IQ2_XXS_BYTES[usize::from(block[2 + 8 * g + i])];
            codes[4 * g + i] = signed::<43>(entry, EVEN_SIGNS[(word >> (7 * i) & 127) as usize]);
        }
    }
    Scale { steps, d: u16_at(block, 0) }
}

#[inline(always)]
fn iq2_xs(block: &[u8; Block::Iq2Xs.bytes()], codes: &mut Codes) -> Scale {
    for (i, codes) in codes.iter_mut().enumerate() {
        let word = usize::from(u16_at(block, 2 + 2 * i));
        *codes = signed::<43>(IQ2_XS_BYTES[word & 511], EVEN_SIGNS[word >> 9]);
    }
    Scale { steps: nibble_steps(block, 66), d: u16_at(block, 0) }
}

#[inline(always)]
fn iq2_s(block: &[u8; Block::Iq2S.bytes()], codes: &mut Codes) -> Scale {
    for g in 0..8 {
        let top = usize::from(block[66 + g]) << 8;
        for i in 0..4 {
            let at = 4 * g + i;
            let entry = IQ2_S_BYTES[usize::from(block[2 + at]) | top >> (2 * i) & 0x300];
            codes[at] = signed::<43>(entry, SIGNS[usize::from(block[34 + at])]);
        }
    }
    Scale { steps: nibble_steps(block, 74), d: u16_at(block, 0) }
}

#[inline(always)]
fn iq3_xxs(block: &[u8; Block::Iq3Xxs.bytes()], codes: &mut Codes) -> Scale {
    let mut steps = [0; Block::GROUPS_MAX];
    for g in 0..8 {
        let word = u32_at(block, 66 + 4 * g);
        steps[g] = (word >> 28) as u8;
        for i in 0..4 {
            let at = 2 + 8 * g + 2 * i;
            let low = IQ3_XXS_BYTES[usize::from(block[at])];
            let high = IQ3_XXS_BYTES[usize::from(block[at + 1])];
            let signs = EVEN_SIGNS[(word >> (7 * i) & 127) as usize];
            codes[4 * g + i] = signed::<62>(low | high << 32, signs);
        }
    }
    Scale { steps, d: u16_at(block, 0) }
}

#[inline(always)]
fn iq3_s(block: &[u8; Block::Iq3S.bytes()], codes: &mut Codes) -> Scale {
    for g in 0..8 {
        let top = usize::from(block[66 + g]) << 8;
        for i in 0..4 {
            let at = 4 * g + i;
            let low = IQ3_S_BYTES[usize::from(block[2 + 2 * at]) | top >> (2 * i) & 256];
            let high = IQ3_S_BYTES[usize::from(block[3 + 2 * at]) | top >> (2 * i + 1) & 256];
            codes[at] = signed::<15>(low | high << 32, SIGNS[usize::from(block[74 + at])]);
        }
    }
    let mut steps = [0; Block::GROUPS_MAX];
    for g in 0..8 {
        steps[g] = block[106 + g / 2] >> (g % 2 * 4) & 15;
    }
    Scale { steps, d: u16_at(block, 0) }
}

/// Adds an eighth to eight numbers, or takes one off.
#[inline(always)]
fn shifted(bytes: u64, is_less: bool) -> u64 {
    bytes + if is_less { 0 } else { 0x0202_0202_0202_0202 }
}

#[inline(always)]
fn iq1_s(block: &[u8; Block::Iq1S.bytes()], codes: &mut Codes) -> Scale {
    let mut steps = [0; Block::GROUPS_MAX];
    for g in 0..8 {
        let word = usize::from(u16_at(block, 34 + 2 * g));
        steps[g] = (word >> 12 & 7) as u8;
        for i in 0..4 {
            let entry = usize::from(block[2 + 4 * g + i]) | (word >> (3 * i) & 7) << 8;
            codes[4 * g + i] = shifted(IQ1_BYTES[entry], word >> 15 == 1);
        }
    }
    Scale { steps, d: u16_at(block, 0) }
}

#[inline(always)]
fn iq1_m(block: &[u8; Block::Iq1M.bytes()], codes: &mut Codes) -> Scale {
    for g in 0..16 {
        let top = usize::from(block[32 + g]) << 8;
        for i in 0..2 {
            let top = top >> (4 * i);
            let entry = usize::from(block[2 * g + i]) | top & 0x700;
            codes[2 * g + i] = shifted(IQ1_BYTES[entry], top & 0x800 != 0);
        }
    }
    let (mut steps, mut d) = ([0; Block::GROUPS_MAX], 0);
    for i in 0..4 {
        let word = u16_at(block, 48 + 2 * i);
        d |= word >> 12 << (4 * i);
        for j in 0..4 {
            steps[4 * i + j] = (word >> (3 * j) & 7) as u8;
        }
    }
    Scale { steps, d }
}
