//! What kernels know of a format: its text, which reads matrices, and that text's constants.
//!
//! A new format is a text that has the functions which `wgsl/format_affine.wgsl` names, a line in
//! [`kernel_of_every_format`] and an arm in [`reader_of`].

use arrayvec::ArrayVec;
use quant::{Block, Format};

use crate::context::Bind;
use crate::kernel::Kernel;
use crate::ops::MatrixAt;

/// Reads affine codes.
pub(crate) const AFFINE: &str = include_str!("wgsl/format_affine.wgsl");
/// Reads codes in blocks, and microscaling floats.
pub(crate) const BLOCK: &str = include_str!("wgsl/format_block.wgsl");
/// Reads plain floats.
pub(crate) const FLOAT: &str = include_str!("wgsl/format_float.wgsl");
/// What the first two need.
pub(crate) const HALF: &str = include_str!("wgsl/half.wgsl");

/// Texts, and so kernels of one purpose.
pub(crate) const N_TEXT: usize = 3;
/// The first of them read codes, which devices may multiply in other ways than as floats.
pub(crate) const N_CODE_TEXT: usize = 2;

/// Most constants of a kernel that reads matrices.
const CONSTANTS_MAX: usize = 12;

/// Kernels of one purpose, one for each text of a format: a name, the texts behind that one, and the buffers: the first
/// three are [`MatrixAt::binds`].
macro_rules! kernel_of_every_format {
    ($name:literal, [$($text:expr),*], $access:expr) => {
        [
            $crate::kernel::Kernel {
                name: concat!($name, " affine"),
                wgsl: &[$crate::format::HALF, $crate::format::AFFINE, $($text),*],
                access: $access,
            },
            $crate::kernel::Kernel {
                name: concat!($name, " block"),
                wgsl: &[$crate::format::HALF, $crate::format::BLOCK, $($text),*],
                access: $access,
            },
            $crate::kernel::Kernel {
                name: concat!($name, " float"),
                wgsl: &[$crate::format::FLOAT, $($text),*],
                access: $access,
            },
        ]
    };
}
pub(crate) use kernel_of_every_format;

/// How kernels read a format.
pub(crate) struct Reader {
    /// Which of the texts.
    pub(crate) text: usize,
    constants: ArrayVec<(&'static str, u32), CONSTANTS_MAX>,
    /// Columns of a chunk.
    pub(crate) chunk_cols: usize,
}

/// Whether kernels read a format.
pub(crate) fn is_read(format: Format) -> bool {
    reader_of(format).is_some()
}

/// How kernels read `format`, of which [`is_read`] holds.
pub(crate) fn read_by(format: Format) -> Reader {
    reader_of(format).unwrap_or_else(|| unreachable!("{format} is refused by Gpu::for_formats"))
}

fn reader_of(format: Format) -> Option<Reader> {
    let reader = |text, constants: &[_], chunk_cols| Reader {
        text,
        constants: constants.iter().copied().collect(),
        chunk_cols,
    };
    let affine = |bits: u8, group: u8, half| {
        reader(0, &[("BITS", bits.into()), ("GROUP", group.into()), ("HALF", half)], 32)
    };
    let block = |kind, group, runs| reader(1, &[("KIND", kind), ("GROUP", group), ("RUNS", runs)], 32);
    let float = |kind| reader(2, &[("KIND", kind)], 8);
    Some(match format {
        Format::F32 => float(0),
        Format::F16 => float(1),
        Format::Bf16 => float(2),
        Format::Affine { bits, group } => affine(bits, group, 0),
        Format::AffineF16 { bits, group } => affine(bits, group, 1),
        Format::Block(Block::Q8_0) => block(0, 32, 1),
        Format::Block(Block::Q4K) => block(1, 32, 2),
        Format::Block(Block::Q5K) => block(2, 32, 2),
        Format::Block(Block::Q6K) => block(3, 16, 4),
        Format::Block(Block::Iq4Xs) => block(4, 32, 1),
        Format::Block(Block::Mxfp4) => block(5, 32, 1),
        Format::Mxfp4 => block(6, 32, 1),
        _ => return None,
    })
}

impl Reader {
    /// Whether numbers are codes with a scale.
    pub(crate) fn has_codes(&self) -> bool {
        self.text < N_CODE_TEXT
    }

    /// Of kernels of one purpose, the one that reads this format.
    pub(crate) fn kernel<'a>(&self, kernels: &'a [Kernel]) -> &'a Kernel {
        &kernels[self.text]
    }

    /// The constants of such a kernel, with its `own` behind those of the format.
    pub(crate) fn constants(
        &self,
        own: &[(&'static str, u32)],
    ) -> ArrayVec<(&'static str, u32), CONSTANTS_MAX> {
        self.constants.iter().chain(own).copied().collect()
    }
}

impl<'a> MatrixAt<'a> {
    /// Its buffer as texts of formats see it: as words, pairs and fours.
    pub(crate) fn binds(&self) -> [Bind<'a>; 3] {
        [self.buf; 3]
    }

    /// Whether one dispatch can read both.
    pub(crate) fn goes_with(&self, other: &MatrixAt<'_>) -> bool {
        (self.format, self.cols) == (other.format, other.cols) && self.buf == other.buf
    }
}
