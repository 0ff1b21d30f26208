//! The blocks that GGUF files store matrices in.

use std::fmt;

/// A kind of block: a run of columns of one row that lie together with their scales.
///
/// Names are those of the files' own tools. Layouts are in `blocks/`, beside what reads them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[allow(missing_docs, reason = "the names are all there is to say")]
pub enum Block {
    Q4_0,
    Q4_1,
    Q5_0,
    Q5_1,
    Q8_0,
    Q2K,
    Q3K,
    Q4K,
    Q5K,
    Q6K,
    Iq4Nl,
    Iq4Xs,
    /// Microscaling floats of 4 bits, the scale in each block: other than [`crate::Format::Mxfp4`].
    Mxfp4,
    Iq1S,
    Iq1M,
    Iq2Xxs,
    Iq2Xs,
    Iq2S,
    Iq3Xxs,
    Iq3S,
}

/// What there is to know of a kind: its name, the number of its type in files, columns and bytes of a block, columns
/// that share a scale.
struct Facts(&'static str, u32, usize, usize, usize);

impl Block {
    /// All kinds.
    pub const ALL: [Block; 20] = [
        Block::Q4_0,
        Block::Q4_1,
        Block::Q5_0,
        Block::Q5_1,
        Block::Q8_0,
        Block::Q2K,
        Block::Q3K,
        Block::Q4K,
        Block::Q5K,
        Block::Q6K,
        Block::Iq4Nl,
        Block::Iq4Xs,
        Block::Mxfp4,
        Block::Iq1S,
        Block::Iq1M,
        Block::Iq2Xxs,
        Block::Iq2Xs,
        Block::Iq2S,
        Block::Iq3Xxs,
        Block::Iq3S,
    ];

    /// The kind that GGUF files give this number, if it is one of ours.
    pub fn from_gguf_type(number: u32) -> Option<Self> {
        Self::ALL.into_iter().find(|block| block.facts().1 == number)
    }

    /// Columns of a block: 32 or 256.
    pub const fn cols(self) -> usize {
        self.facts().2
    }

    /// Bytes of a block.
    pub const fn bytes(self) -> usize {
        self.facts().3
    }

    /// Columns that share a scale: 16 or 32.
    pub const fn group(self) -> usize {
        self.facts().4
    }

    /// Its name in formats' names.
    pub const fn name(self) -> &'static str {
        self.facts().0
    }

    const fn facts(self) -> Facts {
        match self {
            Block::Q4_0 => Facts("q4_0", 2, 32, 18, 32),
            Block::Q4_1 => Facts("q4_1", 3, 32, 20, 32),
            Block::Q5_0 => Facts("q5_0", 6, 32, 22, 32),
            Block::Q5_1 => Facts("q5_1", 7, 32, 24, 32),
            Block::Q8_0 => Facts("q8_0", 8, 32, 34, 32),
            Block::Q2K => Facts("q2_k", 10, 256, 84, 16),
            Block::Q3K => Facts("q3_k", 11, 256, 110, 16),
            Block::Q4K => Facts("q4_k", 12, 256, 144, 32),
            Block::Q5K => Facts("q5_k", 13, 256, 176, 32),
            Block::Q6K => Facts("q6_k", 14, 256, 210, 16),
            Block::Iq2Xxs => Facts("iq2_xxs", 16, 256, 66, 32),
            Block::Iq2Xs => Facts("iq2_xs", 17, 256, 74, 16),
            Block::Iq3Xxs => Facts("iq3_xxs", 18, 256, 98, 32),
            Block::Iq1S => Facts("iq1_s", 19, 256, 50, 32),
            Block::Iq4Nl => Facts("iq4_nl", 20, 32, 18, 32),
            Block::Iq3S => Facts("iq3_s", 21, 256, 110, 32),
            Block::Iq2S => Facts("iq2_s", 22, 256, 82, 16),
            Block::Iq4Xs => Facts("iq4_xs", 23, 256, 136, 32),
            Block::Iq1M => Facts("iq1_m", 29, 256, 56, 16),
            Block::Mxfp4 => Facts("gguf_mxfp4", 39, 32, 17, 32),
        }
    }
}

impl fmt::Display for Block {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
