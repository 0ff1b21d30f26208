//! What the bytes of a GGUF block mean.
//!
//! Every kind is whole numbers of 8 bits with a scale, and in some a bias, for each 16 or 32 of them: [`Numbers`]. A
//! product of scale and number is exact in f32, so there is one rounding, where a bias is added.

mod iq;
mod k;
mod legacy;

use half::f16;

pub use iq::{IQ4, codebooks};

use crate::Block;

/// The numbers of a block: `w = scale·code + bias`.
pub(crate) struct Numbers {
    /// One each column.
    codes: [i8; Block::COLS_MAX],
    /// One each [`Block::group`] columns.
    scales: [f32; Block::GROUPS_MAX],
    /// The same; nothing is written here for kinds without.
    biases: [f32; Block::GROUPS_MAX],
}

impl Default for Numbers {
    fn default() -> Self {
        Self {
            codes: [0; Block::COLS_MAX],
            scales: [0.0; Block::GROUPS_MAX],
            biases: [0.0; Block::GROUPS_MAX],
        }
    }
}

impl Block {
    /// The most columns of a block.
    pub const COLS_MAX: usize = 256;
    /// The most groups of a block.
    pub const GROUPS_MAX: usize = 16;

    /// Whether numbers have a bias beside their scale.
    const fn has_biases(self) -> bool {
        matches!(self, Block::Q4_1 | Block::Q5_1 | Block::Q2K | Block::Q4K | Block::Q5K)
    }

    /// Reads one block of [`Block::bytes`] bytes.
    ///
    /// # Panics
    /// There are more or fewer (program mistake).
    fn unpack(self, block: &[u8], to: &mut Numbers) {
        assert_eq!(block.len(), self.bytes(), "bytes of a block of {self}");
        match self {
            Block::Q4_0 => legacy::q4_0(block, to),
            Block::Q4_1 => legacy::q4_1(block, to),
            Block::Q5_0 => legacy::q5_0(block, to),
            Block::Q5_1 => legacy::q5_1(block, to),
            Block::Q8_0 => legacy::q8_0(block, to),
            Block::Mxfp4 => legacy::mxfp4(block, to),
            Block::Q2K => k::q2_k(block, to),
            Block::Q3K => k::q3_k(block, to),
            Block::Q4K => k::q4_k(block, to),
            Block::Q5K => k::q5_k(block, to),
            Block::Q6K => k::q6_k(block, to),
            Block::Iq4Nl => iq::iq4_nl(block, to),
            Block::Iq4Xs => iq::iq4_xs(block, to),
            Block::Iq1S => iq::iq1_s(block, to),
            Block::Iq1M => iq::iq1_m(block, to),
            Block::Iq2Xxs => iq::iq2_xxs(block, to),
            Block::Iq2Xs => iq::iq2_xs(block, to),
            Block::Iq2S => iq::iq2_s(block, to),
            Block::Iq3Xxs => iq::iq3_xxs(block, to),
            Block::Iq3S => iq::iq3_s(block, to),
        }
    }
}

/// Decodes one row of blocks.
pub(crate) fn decode_row(kind: Block, row: &[u8], out: &mut [f32]) {
    let (mut numbers, group) = (Numbers::default(), kind.group());
    for (block, out) in row.chunks_exact(kind.bytes()).zip(out.chunks_exact_mut(kind.cols())) {
        kind.unpack(block, &mut numbers);
        for (g, (out, codes)) in
            out.chunks_exact_mut(group).zip(numbers.codes.chunks_exact(group)).enumerate()
        {
            let (scale, bias) = (numbers.scales[g], numbers.biases[g]);
            for (w, &code) in out.iter_mut().zip(codes) {
                *w = scale * f32::from(code);
                if kind.has_biases() {
                    *w += bias;
                }
            }
        }
    }
}

/// The half at byte `at`.
fn half_at(block: &[u8], at: usize) -> f32 {
    f16::from_le_bytes([block[at], block[at + 1]]).to_f32()
}

/// The 16-bit number at byte `at`.
fn u16_at(block: &[u8], at: usize) -> u16 {
    u16::from_le_bytes([block[at], block[at + 1]])
}

/// The 32-bit number at byte `at`.
fn u32_at(block: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(block[at..at + 4].try_into().expect("4 bytes"))
}
