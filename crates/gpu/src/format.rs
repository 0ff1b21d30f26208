//! What kernels know of a format: its text, which reads matrices, and that text's constants.
//!
//! A new format is a text that has the functions which `wgsl/format_affine.wgsl` names, a line in
//! [`kernel_of_every_format`] and an arm in [`read_by`].

use arrayvec::ArrayVec;
use quant::Format;

use crate::context::Bind;
use crate::kernel::Kernel;
use crate::ops::MatrixAt;

/// Reads affine codes.
pub(crate) const AFFINE: &str = include_str!("wgsl/format_affine.wgsl");
/// Reads plain floats.
pub(crate) const FLOAT: &str = include_str!("wgsl/format_float.wgsl");

/// Texts, and so kernels of one purpose.
pub(crate) const N_TEXT: usize = 2;

/// Most constants of a kernel that reads matrices.
const CONSTANTS_MAX: usize = 12;

/// Kernels of one purpose, one for each text of a format: a name, the texts behind that one, and the buffers: the first
/// three are [`MatrixAt::binds`].
macro_rules! kernel_of_every_format {
    ($name:literal, [$($text:expr),*], $access:expr) => {
        [
            $crate::kernel::Kernel {
                name: concat!($name, " affine"),
                wgsl: &[$crate::format::AFFINE, $($text),*],
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
    text: usize,
    constants: ArrayVec<(&'static str, u32), CONSTANTS_MAX>,
    /// Columns of a chunk.
    pub(crate) chunk_cols: usize,
}

/// How kernels read `format`.
pub(crate) fn read_by(format: Format) -> Reader {
    let reader = |text, constants: &[_], chunk_cols| Reader {
        text,
        constants: constants.iter().copied().collect(),
        chunk_cols,
    };
    let float = |kind| reader(1, &[("KIND", kind)], 8);
    match format {
        Format::F32 => float(0),
        Format::F16 => float(1),
        Format::Bf16 => float(2),
        Format::Affine { bits, group } => reader(0, &[("BITS", bits.into()), ("GROUP", group.into())], 32),
    }
}

impl Reader {
    /// Of kernels of one purpose, the one that reads this format.
    pub(crate) fn kernel<'a>(&self, kernels: &'a [Kernel; N_TEXT]) -> &'a Kernel {
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
