//! How each format's codes become vectors. A new format is one more [`Codes`] and one more arm in [`with_codes`].

use super::simd::{LANES, Packed, Simd, centre};

/// A format's codes along a row, cut into blocks.
pub(super) trait Codes {
    /// Bytes of a block.
    const BYTES: usize;
    /// Vectors in a block.
    const VECTORS: usize;
    /// Columns in a block.
    const COLS: usize = Self::VECTORS * LANES;
    /// What has been taken off the codes.
    const CENTRE: f32 = 0.0;
    /// How activations must lie to meet the codes.
    const ORDER: Order;

    /// Vector `j` of the block that `codes` begins with: codes of affine formats, numbers of plain floats.
    /// What follows the block may be read, and is not used.
    fn vector<S: Simd>(s: S, codes: &[u8], j: usize) -> S::V;
}

/// Which column of a block is lane `l` of vector `j`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Order {
    /// `16·j + l`
    Rows,
    /// `n·l + j`: lane `l` holds a word of `n` codes, which come out one per vector.
    Words(usize),
}

/// Codes of 2, 4 or 8 bits: 16 words of 32 bits are a block, the low codes of all words its first vector.
pub(super) struct Words<const BITS: u32>;

impl<const BITS: u32> Codes for Words<BITS> {
    const BYTES: usize = 64;
    const VECTORS: usize = 32 / BITS as usize;
    const ORDER: Order = Order::Words(32 / BITS as usize);
    const CENTRE: f32 = centre(BITS);

    #[inline(always)]
    fn vector<S: Simd>(s: S, codes: &[u8], j: usize) -> S::V {
        s.codes(codes[..64].try_into().expect("64 bytes"), BITS * j as u32, BITS)
    }
}

/// Codes that straddle bytes (3, 5 or 6 bits). A block is 32 columns: the smallest group, so it has one scale.
pub(super) struct Straddling<const BITS: usize>;

impl<const BITS: usize> Codes for Straddling<BITS> {
    const BYTES: usize = 4 * BITS;
    const VECTORS: usize = 2;
    const ORDER: Order = Order::Rows;
    const CENTRE: f32 = centre(BITS as u32);

    #[inline(always)]
    fn vector<S: Simd>(s: S, codes: &[u8], j: usize) -> S::V {
        let layout = const { &Packed::new(BITS as u32) };
        let at = 2 * BITS * j;
        match codes.get(at..at + 16) {
            Some(bytes) => s.packed_codes(bytes.try_into().expect("16 bytes"), layout),
            None => {
                let mut bytes = [0; 16];
                bytes[..2 * BITS].copy_from_slice(&codes[at..at + 2 * BITS]);
                s.packed_codes(&bytes, layout)
            }
        }
    }
}

/// IEEE single precision.
pub(super) struct Float32;

impl Codes for Float32 {
    const BYTES: usize = 512;
    const VECTORS: usize = 8;
    const ORDER: Order = Order::Rows;

    #[inline(always)]
    fn vector<S: Simd>(s: S, codes: &[u8], j: usize) -> S::V {
        let (numbers, _) = codes[64 * j..64 * j + 64].as_chunks::<4>();
        s.load(&std::array::from_fn(|i| f32::from_le_bytes(numbers[i])))
    }
}

/// IEEE half precision.
pub(super) struct Float16;

impl Codes for Float16 {
    const BYTES: usize = 256;
    const VECTORS: usize = 8;
    const ORDER: Order = Order::Rows;

    #[inline(always)]
    fn vector<S: Simd>(s: S, codes: &[u8], j: usize) -> S::V {
        s.load_f16(codes[32 * j..32 * j + 32].try_into().expect("32 bytes"))
    }
}

/// bfloat16.
pub(super) struct BFloat16;

impl Codes for BFloat16 {
    const BYTES: usize = 256;
    const VECTORS: usize = 8;
    const ORDER: Order = Order::Rows;

    #[inline(always)]
    fn vector<S: Simd>(s: S, codes: &[u8], j: usize) -> S::V {
        s.load_bf16(codes[32 * j..32 * j + 32].try_into().expect("32 bytes"))
    }
}

/// Evaluates `$e` with `$codes` standing for the [`Codes`] of a [`quant::Format`].
macro_rules! with_codes {
    ($format:expr, $codes:ident => $e:expr) => {{
        #[allow(unused_imports)]
        use $crate::cpu::codes::*;
        match $format {
            ::quant::Format::F32 => {
                type $codes = Float32;
                $e
            }
            ::quant::Format::F16 => {
                type $codes = Float16;
                $e
            }
            ::quant::Format::Bf16 => {
                type $codes = BFloat16;
                $e
            }
            ::quant::Format::Affine { bits: 2, .. } => {
                type $codes = Words<2>;
                $e
            }
            ::quant::Format::Affine { bits: 3, .. } => {
                type $codes = Straddling<3>;
                $e
            }
            ::quant::Format::Affine { bits: 4, .. } => {
                type $codes = Words<4>;
                $e
            }
            ::quant::Format::Affine { bits: 5, .. } => {
                type $codes = Straddling<5>;
                $e
            }
            ::quant::Format::Affine { bits: 6, .. } => {
                type $codes = Straddling<6>;
                $e
            }
            ::quant::Format::Affine { bits: 8, .. } => {
                type $codes = Words<8>;
                $e
            }
            other @ ::quant::Format::Affine { .. } => panic!("{other} is not a format"),
        }
    }};
}
pub(super) use with_codes;
