//! The instruction set that every CPU has: plain arrays, left to the compiler.

use half::{bf16, f16};

use super::simd::{LANES, Packed, Simd, centre};

/// Needs nothing.
#[derive(Clone, Copy)]
pub(super) struct Generic;

impl Simd for Generic {
    type V = [f32; LANES];

    // No token profits from a neighbour where nothing is held in registers anyway.
    const TILE: usize = 1;

    #[inline(always)]
    fn splat(self, x: f32) -> Self::V {
        [x; LANES]
    }

    #[inline(always)]
    fn load(self, from: &[f32; LANES]) -> Self::V {
        *from
    }

    #[inline(always)]
    fn store(self, v: Self::V, to: &mut [f32; LANES]) {
        *to = v;
    }

    #[inline(always)]
    fn add(self, a: Self::V, b: Self::V) -> Self::V {
        std::array::from_fn(|i| a[i] + b[i])
    }

    #[inline(always)]
    fn sub(self, a: Self::V, b: Self::V) -> Self::V {
        std::array::from_fn(|i| a[i] - b[i])
    }

    #[inline(always)]
    fn mul(self, a: Self::V, b: Self::V) -> Self::V {
        std::array::from_fn(|i| a[i] * b[i])
    }

    #[inline(always)]
    fn div(self, a: Self::V, b: Self::V) -> Self::V {
        std::array::from_fn(|i| a[i] / b[i])
    }

    /// Two roundings: a fused one would be a library call.
    #[inline(always)]
    fn fma(self, a: Self::V, b: Self::V, c: Self::V) -> Self::V {
        std::array::from_fn(|i| a[i] * b[i] + c[i])
    }

    #[inline(always)]
    fn max(self, a: Self::V, b: Self::V) -> Self::V {
        std::array::from_fn(|i| if a[i] > b[i] { a[i] } else { b[i] })
    }

    #[inline(always)]
    fn min(self, a: Self::V, b: Self::V) -> Self::V {
        std::array::from_fn(|i| if a[i] < b[i] { a[i] } else { b[i] })
    }

    #[inline(always)]
    fn sum(self, v: Self::V) -> f32 {
        let v: [f32; 8] = std::array::from_fn(|i| v[i] + v[i + 8]);
        let v: [f32; 4] = std::array::from_fn(|i| v[i] + v[i + 4]);
        (v[0] + v[2]) + (v[1] + v[3])
    }

    #[inline(always)]
    fn pow2(self, n: Self::V) -> Self::V {
        // The saturating conversion keeps NaN away from the exponent bits.
        n.map(|n| f32::from_bits(((n as i32 + 127) as u32) << 23))
    }

    #[inline(always)]
    fn prefetch(self, _at: *const u8) {}

    #[inline(always)]
    fn codes(self, words: &[u8; 64], shift: u32, bits: u32) -> Self::V {
        let (words, _) = words.as_chunks::<4>();
        std::array::from_fn(|i| {
            ((u32::from_le_bytes(words[i]) >> shift) & ((1 << bits) - 1)) as f32 - centre(bits)
        })
    }

    #[inline(always)]
    fn packed_codes(self, bytes: &[u8; 16], layout: &Packed) -> Self::V {
        let all = u128::from_le_bytes(*bytes);
        std::array::from_fn(|i| {
            let code = (all >> (i as u32 * layout.bits)) as u32 & ((1 << layout.bits) - 1);
            code as f32 - centre(layout.bits)
        })
    }

    #[inline(always)]
    fn load_bf16(self, from: &[u8; 32]) -> Self::V {
        let (from, _) = from.as_chunks::<2>();
        std::array::from_fn(|i| bf16::from_le_bytes(from[i]).to_f32())
    }

    #[inline(always)]
    fn load_f16(self, from: &[u8; 32]) -> Self::V {
        let (from, _) = from.as_chunks::<2>();
        std::array::from_fn(|i| f16::from_le_bytes(from[i]).to_f32())
    }

    #[inline(always)]
    fn spread_bf16(self, from: &[u8], n: usize) -> Self::V {
        let (from, _) = from.as_chunks::<2>();
        std::array::from_fn(|i| bf16::from_le_bytes(from[i * n / LANES]).to_f32())
    }

    #[inline(always)]
    fn load_i8(self, from: &[u8; LANES]) -> Self::V {
        from.map(|x| f32::from(x as i8))
    }

    #[inline(always)]
    fn largest(self, v: Self::V) -> f32 {
        let v: [f32; 8] = std::array::from_fn(|i| if v[i] > v[i + 8] { v[i] } else { v[i + 8] });
        v.into_iter().fold(f32::NEG_INFINITY, f32::max)
    }
}
