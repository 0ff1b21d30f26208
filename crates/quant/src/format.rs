//! The formats a matrix can be stored in, and how many bytes each takes.

use std::fmt;
use std::ops::Range;
use std::str::FromStr;

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
}

/// A format that does not exist, or a shape or number that a format cannot hold.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum FormatError {
    /// The name is not one of ours.
    #[error("unknown weight format '{0}' (known: f32, f16, bf16, affine{{2,3,4,5,6,8}}g{{32,64,128}})")]
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
            Format::Affine { bits, group }
                if !Self::AFFINE_BITS.contains(&bits) || !Self::AFFINE_GROUPS.contains(&group) =>
            {
                Err(FormatError::Unknown(self.to_string()))
            }
            Format::Affine { group, .. } if !cols.is_multiple_of(group as usize) => {
                Err(FormatError::Cols { format: self, group: group as usize, cols })
            }
            _ => Ok(()),
        }
    }

    /// Bytes of one row of codes.
    pub fn row_bytes(self, cols: usize) -> usize {
        match self {
            Format::F32 => cols * 4,
            Format::F16 | Format::Bf16 => cols * 2,
            Format::Affine { bits, .. } => cols * bits as usize / 8,
        }
    }

    /// Scales (and biases) in one row: 0 for plain floats.
    pub fn row_groups(self, cols: usize) -> usize {
        match self {
            Format::Affine { group, .. } => cols / group as usize,
            _ => 0,
        }
    }

    /// Byte ranges of codes, scales and biases inside a matrix stored in one piece (the last two empty for floats).
    pub fn planes(self, rows: usize, cols: usize) -> [Range<usize>; 3] {
        let codes = rows * self.row_bytes(cols);
        let group_plane = rows * self.row_groups(cols) * 2;
        let scales_at = codes.next_multiple_of(PLANE_ALIGN);
        let biases_at = (scales_at + group_plane).next_multiple_of(PLANE_ALIGN);
        [0..codes, scales_at..scales_at + group_plane, biases_at..biases_at + group_plane]
    }

    /// Bytes of a whole matrix stored in one piece, padded to [`PLANE_ALIGN`].
    pub fn matrix_bytes(self, rows: usize, cols: usize) -> usize {
        let [codes, _, biases] = self.planes(rows, cols);
        codes.end.max(biases.end).next_multiple_of(PLANE_ALIGN)
    }
}

impl fmt::Display for Format {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Format::F32 => f.write_str("f32"),
            Format::F16 => f.write_str("f16"),
            Format::Bf16 => f.write_str("bf16"),
            Format::Affine { bits, group } => write!(f, "affine{bits}g{group}"),
        }
    }
}

impl FromStr for Format {
    type Err = FormatError;

    fn from_str(name: &str) -> Result<Self, FormatError> {
        let unknown = || FormatError::Unknown(name.to_owned());
        let affine = || {
            let (bits, group) = name.strip_prefix("affine")?.split_once('g')?;
            let find = |known: &[u8], text: &str| known.iter().copied().find(|n| n.to_string() == text);
            Some(Format::Affine {
                bits: find(&Self::AFFINE_BITS, bits)?,
                group: find(&Self::AFFINE_GROUPS, group)?,
            })
        };
        match name {
            "f32" => Ok(Format::F32),
            "f16" => Ok(Format::F16),
            "bf16" => Ok(Format::Bf16),
            _ => affine().ok_or_else(unknown),
        }
    }
}
