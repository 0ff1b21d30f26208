//! The formats a matrix can be stored in, and how many bytes each takes.

use std::fmt;
use std::ops::Range;
use std::str::FromStr;

use crate::Block;
use crate::minifloat::FP8_BLOCK;

/// Every plane of a matrix starts at a multiple of this many bytes: one cache line, one AVX-512 register.
pub const PLANE_ALIGN: usize = 64;

/// How the numbers of a matrix are stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Format {
    /// IEEE single precision, little-endian.
    F32,
    /// IEEE half precision.
    F16,
    /// bfloat16.
    Bf16,
    /// MLX affine: `w = scale·q + bias`, `q` an unsigned code of `bits` bits, one bf16 scale and one bf16 bias
    /// for every `group` columns. Codes are a little-endian bit stream along the row, least significant first.
    Affine {
        /// Bits of a code: 2, 3, 4, 5, 6 or 8.
        bits: u8,
        /// Columns that share a scale and a bias: 32, 64 or 128.
        group: u8,
    },
    /// The same with scales and biases in IEEE half precision: older MLX conversions.
    AffineF16 {
        /// Bits of a code: 2, 3, 4, 5, 6 or 8.
        bits: u8,
        /// Columns that share a scale and a bias: 32, 64 or 128.
        group: u8,
    },
    /// MLX microscaling floats: E2M1 codes of 4 bits, the first of two columns in the low half of a byte, and one E8M0
    /// scale for every 32 columns.
    Mxfp4,
    /// The same codes with one E4M3 scale for every 16 columns.
    Nvfp4,
    /// E4M3 codes of a byte, one bf16 scale for every 128 rows and 128 columns.
    Fp8,
    /// The same with f32 scales.
    Fp8F32,
    /// Blocks of a GGUF file, one after the other; scales are inside.
    Block(Block),
}

/// A format that does not exist, or a shape or number that a format cannot hold.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum FormatError {
    /// The name is not one of ours.
    #[error(
        "unknown weight format '{0}' (known: f32, f16, bf16, affine{{2,3,4,5,6,8}}g{{32,64,128}}, the same with f16 \
         behind it, mxfp4, nvfp4, fp8, fp8f32, and GGUF's: {known})",
        known = Block::ALL.map(Block::name).join(", ")
    )]
    Unknown(String),
    /// The row length is not a multiple of the group.
    #[error("{format} needs rows of a multiple of {group} columns, got {cols}")]
    Cols {
        /// The format asked for.
        format: Format,
        /// Its group.
        group: usize,
        /// The row length.
        cols: usize,
    },
    /// The bytes given are not the bytes that the shape needs.
    #[error("a {rows}x{cols} matrix in {format} takes {expected} bytes, got {got}")]
    Bytes {
        /// The format.
        format: Format,
        /// Rows.
        rows: usize,
        /// Columns.
        cols: usize,
        /// Bytes that the shape needs.
        expected: usize,
        /// Bytes given.
        got: usize,
    },
    /// The shape's size does not fit the address space.
    #[error("a {0}x{1} matrix is too large for this machine")]
    TooLarge(usize, usize),
    /// Numbers were to be converted to a format that is only read.
    #[error("numbers cannot be converted to {0}, only to f32, f16, bf16, affine formats and fp8")]
    ReadOnly(Format),
    /// A number to encode is NaN or infinite.
    #[error("the number in column {col} is not finite")]
    NotFinite {
        /// The first such column.
        col: usize,
    },
    /// A number to encode, or the scale of its group, is beyond the format's largest.
    #[error("{format} cannot hold the numbers from column {col} on: they are too large")]
    Range {
        /// The format.
        format: Format,
        /// The first column that does not fit, or the first of its group.
        col: usize,
    },
}

impl Format {
    /// Bits a code can have.
    pub const AFFINE_BITS: [u8; 6] = [2, 3, 4, 5, 6, 8];
    /// Columns that can share a scale and a bias.
    pub const AFFINE_GROUPS: [u8; 3] = [32, 64, 128];

    /// Checks that the format exists, that rows of `cols` numbers can be stored in it, and that none of the sizes
    /// below can overflow.
    ///
    /// # Errors
    /// One of these is not so.
    pub fn check(self, rows: usize, cols: usize) -> Result<(), FormatError> {
        // No format takes more than 4 bytes a number and 64 a plane for padding: 8 bytes leave room for both.
        let bytes_max = rows.max(64).checked_mul(cols.max(64)).and_then(|n| n.checked_mul(8));
        if bytes_max.is_none_or(|n| n > isize::MAX as usize) {
            return Err(FormatError::TooLarge(rows, cols));
        }
        match self {
            Format::Affine { bits, group } | Format::AffineF16 { bits, group }
                if !Self::AFFINE_BITS.contains(&bits) || !Self::AFFINE_GROUPS.contains(&group) =>
            {
                Err(FormatError::Unknown(self.to_string()))
            }
            _ if !cols.is_multiple_of(self.run_cols()) => {
                Err(FormatError::Cols { format: self, group: self.run_cols(), cols })
            }
            _ => Ok(()),
        }
    }

    /// Rows are whole multiples of so many columns: a group or a block.
    pub fn run_cols(self) -> usize {
        match self {
            Format::F32 | Format::F16 | Format::Bf16 | Format::Fp8 | Format::Fp8F32 => 1,
            Format::Affine { group, .. } | Format::AffineF16 { group, .. } => group as usize,
            Format::Mxfp4 => 32,
            Format::Nvfp4 => 16,
            Format::Block(kind) => kind.cols(),
        }
    }

    /// Bytes of one row of codes.
    pub fn row_bytes(self, cols: usize) -> usize {
        match self {
            Format::F32 => cols * 4,
            Format::F16 | Format::Bf16 => cols * 2,
            Format::Affine { bits, .. } | Format::AffineF16 { bits, .. } => cols * bits as usize / 8,
            Format::Mxfp4 | Format::Nvfp4 => cols / 2,
            Format::Fp8 | Format::Fp8F32 => cols,
            Format::Block(kind) => cols / kind.cols() * kind.bytes(),
        }
    }

    /// Rows that share one row of scales.
    pub fn scale_rows(self) -> usize {
        match self {
            Format::Fp8 | Format::Fp8F32 => FP8_BLOCK,
            _ => 1,
        }
    }

    /// Bytes of one row of scales: 0 where there are none or they are inside blocks.
    pub fn scale_row_bytes(self, cols: usize) -> usize {
        match self {
            Format::F32 | Format::F16 | Format::Bf16 | Format::Block(_) => 0,
            Format::Affine { group, .. } | Format::AffineF16 { group, .. } => cols / group as usize * 2,
            Format::Mxfp4 => cols / 32,
            Format::Nvfp4 => cols / 16,
            Format::Fp8 => cols.div_ceil(FP8_BLOCK) * 2,
            Format::Fp8F32 => cols.div_ceil(FP8_BLOCK) * 4,
        }
    }

    /// Bytes of one row of biases.
    pub fn bias_row_bytes(self, cols: usize) -> usize {
        match self {
            Format::Affine { .. } | Format::AffineF16 { .. } => self.scale_row_bytes(cols),
            _ => 0,
        }
    }

    /// Byte ranges of codes, scales and biases inside a matrix stored in one piece (empty where there are none).
    pub fn planes(self, rows: usize, cols: usize) -> [Range<usize>; 3] {
        let codes = rows * self.row_bytes(cols);
        let scales = rows.div_ceil(self.scale_rows()) * self.scale_row_bytes(cols);
        let biases = rows * self.bias_row_bytes(cols);
        let scales_at = codes.next_multiple_of(PLANE_ALIGN);
        let biases_at = (scales_at + scales).next_multiple_of(PLANE_ALIGN);
        [0..codes, scales_at..scales_at + scales, biases_at..biases_at + biases]
    }

    /// Byte ranges of rows `rows` in the planes of codes, scales and biases. They start at a multiple of
    /// [`Format::scale_rows`].
    pub fn row_planes(self, rows: Range<usize>, cols: usize) -> [Range<usize>; 3] {
        let part = |rows: Range<usize>, bytes: usize| rows.start * bytes..rows.end * bytes;
        let n = self.scale_rows();
        [
            part(rows.clone(), self.row_bytes(cols)),
            part(rows.start / n..rows.end.div_ceil(n), self.scale_row_bytes(cols)),
            part(rows, self.bias_row_bytes(cols)),
        ]
    }

    /// Bytes of a whole matrix stored in one piece, padded to [`PLANE_ALIGN`].
    pub fn matrix_bytes(self, rows: usize, cols: usize) -> usize {
        let [codes, scales, biases] = self.planes(rows, cols);
        codes.end.max(scales.end).max(biases.end).next_multiple_of(PLANE_ALIGN)
    }
}

impl fmt::Display for Format {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Format::F32 => f.write_str("f32"),
            Format::F16 => f.write_str("f16"),
            Format::Bf16 => f.write_str("bf16"),
            Format::Affine { bits, group } => write!(f, "affine{bits}g{group}"),
            Format::AffineF16 { bits, group } => write!(f, "affine{bits}g{group}f16"),
            Format::Mxfp4 => f.write_str("mxfp4"),
            Format::Nvfp4 => f.write_str("nvfp4"),
            Format::Fp8 => f.write_str("fp8"),
            Format::Fp8F32 => f.write_str("fp8f32"),
            Format::Block(kind) => kind.fmt(f),
        }
    }
}

impl FromStr for Format {
    type Err = FormatError;

    fn from_str(name: &str) -> Result<Self, FormatError> {
        let unknown = || FormatError::Unknown(name.to_owned());
        let affine = || {
            let (bits, group) = name.strip_prefix("affine")?.split_once('g')?;
            let (group, is_f16) = group.strip_suffix("f16").map_or((group, false), |group| (group, true));
            let find = |known: &[u8], text: &str| known.iter().copied().find(|n| n.to_string() == text);
            let (bits, group) = (find(&Self::AFFINE_BITS, bits)?, find(&Self::AFFINE_GROUPS, group)?);
            Some(if is_f16 { Format::AffineF16 { bits, group } } else { Format::Affine { bits, group } })
        };
        let block = || Block::ALL.into_iter().find(|kind| kind.name() == name).map(Format::Block);
        match name {
            "f32" => Ok(Format::F32),
            "f16" => Ok(Format::F16),
            "bf16" => Ok(Format::Bf16),
            "mxfp4" => Ok(Format::Mxfp4),
            "nvfp4" => Ok(Format::Nvfp4),
            "fp8" => Ok(Format::Fp8),
            "fp8f32" => Ok(Format::Fp8F32),
            _ => affine().or_else(block).ok_or_else(unknown),
        }
    }
}
