//! The instruction set that every CPU has: plain arrays, left to the compiler.

use half::{bf16, f16};

use super::simd::{LANES, Simd};

/// Needs nothing.
#[derive(Clone, Copy)]
pub(super) struct Generic;

impl Simd for Generic {
    type V = [f32; LANES];
    type I = [i32; LANES];

    // No token profits from a neighbour where nothing is held in registers anyway.
    const TILE: usize = 1;
    const N_SUM: usize = 0;
    const IS_DOT4_SLOW: bool = false;

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
    fn load_e4m3(self, from: &[u8; LANES]) -> Self::V {
        from.map(|code| {
            let (sign, number) = (u32::from(code >> 7) << 31, u32::from(code & 0x7f));
            if number == 0x7f {
                return f32::NAN;
            }
            // As a half: exponent and mantissa at their places.
            f32::from_bits(sign | f16::from_bits((number << 7) as u16).to_f32().to_bits())
        })
    }

    #[inline(always)]
    fn int_splat(self, x: i32) -> Self::I {
        [x; LANES]
    }

    #[inline(always)]
    fn int_load(self, from: &[i32; LANES]) -> Self::I {
        *from
    }

    #[inline(always)]
    fn int_store(self, v: Self::I, to: &mut [i32; LANES]) {
        *to = v;
    }

    #[inline(always)]
    fn int_add(self, a: Self::I, b: Self::I) -> Self::I {
        std::array::from_fn(|i| a[i].wrapping_add(b[i]))
    }

    #[inline(always)]
    fn int_and(self, a: Self::I, b: Self::I) -> Self::I {
        std::array::from_fn(|i| a[i] & b[i])
    }

    #[inline(always)]
    fn int_xor(self, a: Self::I, b: Self::I) -> Self::I {
        std::array::from_fn(|i| a[i] ^ b[i])
    }

    #[inline(always)]
    fn int_shl(self, a: Self::I, n: u32) -> Self::I {
        a.map(|a| a << n)
    }

    #[inline(always)]
    fn int_shr(self, a: Self::I, n: u32) -> Self::I {
        a.map(|a| (a as u32 >> n) as i32)
    }

    #[inline(always)]
    fn to_int(self, v: Self::V) -> Self::I {
        v.map(|v| v.round_ties_even() as i32)
    }

    #[inline(always)]
    fn to_float(self, v: Self::I) -> Self::V {
        v.map(|v| v as f32)
    }

    #[inline(always)]
    fn as_float(self, v: Self::I) -> Self::V {
        v.map(|v| f32::from_bits(v as u32))
    }

    #[inline(always)]
    fn bf16_pairs(self, v: Self::I) -> [Self::V; 2] {
        [v.map(|v| f32::from_bits((v as u32) << 16)), v.map(|v| f32::from_bits(v as u32 & 0xffff_0000))]
    }

    #[inline(always)]
    fn f16_pairs(self, v: Self::I) -> [Self::V; 2] {
        [v.map(|v| f16::from_bits(v as u16).to_f32()), v.map(|v| f16::from_bits((v >> 16) as u16).to_f32())]
    }

    #[inline(always)]
    fn look_up(self, table: &[u8; 16], v: Self::I) -> Self::I {
        v.map(|v| i32::from_le_bytes(v.to_le_bytes().map(|byte| table[usize::from(byte & 15)])))
    }

    #[inline(always)]
    fn dot4(self, sum: Self::I, codes: Self::I, x: Self::I) -> Self::I {
        std::array::from_fn(|lane| {
            let (codes, x) = (codes[lane].to_le_bytes(), x[lane].to_le_bytes());
            (0..4).fold(sum[lane], |sum, i| sum.wrapping_add(codes[i] as i32 * x[i] as i8 as i32))
        })
    }

    #[inline(always)]
    fn dot2_bytes(self, sum: Self::I, codes: Self::I, x: Self::I) -> Self::I {
        std::array::from_fn(|lane| {
            let (codes, x) = (codes[lane].to_le_bytes(), x[lane].to_le_bytes());
            let pair = |i: usize| (0..2).map(|j| codes[i + j] as i32 * x[i + j] as i8 as i32).sum::<i32>();
            let (low, high) = (sum[lane].wrapping_add(pair(0)), (sum[lane] >> 16).wrapping_add(pair(2)));
            low & 0xffff | high << 16
        })
    }

    #[inline(always)]
    fn dot2_words(self, sum: Self::I, a: Self::I, b: Self::I) -> Self::I {
        std::array::from_fn(|lane| {
            let (a, b) = (a[lane], b[lane]);
            let low = a as i16 as i32 * b as i16 as i32;
            sum[lane].wrapping_add(low).wrapping_add((a >> 16) * (b >> 16))
        })
    }

    #[inline(always)]
    fn swap_bytes(self, v: Self::I) -> Self::I {
        std::array::from_fn(|lane| {
            let from = lane / 4 * 4;
            i32::from_le_bytes(std::array::from_fn(|j| v[from + j].to_le_bytes()[lane % 4]))
        })
    }

    #[inline(always)]
    unsafe fn load_rows(self, rows: *const u8, stride: usize) -> [Self::I; 4] {
        std::array::from_fn(|i| {
            std::array::from_fn(|lane| {
                let at = (lane / 4 * 4 + i) * stride + lane % 4 * 4;
                // SAFETY: the caller promises that 16 bytes of 16 rows can be read.
                i32::from_le_bytes(unsafe { rows.add(at).cast::<[u8; 4]>().read() })
            })
        })
    }

    #[inline(always)]
    fn swap_lanes(self, v: [Self::I; 4]) -> [Self::I; 4] {
        std::array::from_fn(|i| std::array::from_fn(|lane| v[lane % 4][lane / 4 * 4 + i]))
    }

    #[inline(always)]
    fn spread_codes<const BITS: usize>(self, v: Self::I) -> Self::I {
        std::array::from_fn(|lane| {
            let from = lane / 4 * 4;
            let all = (0..4).rev().fold(0u128, |all, i| all << 32 | v[from + i] as u32 as u128);
            let code = |i: usize| (all >> ((lane % 4 * 4 + i) * BITS)) as u8 & ((1 << BITS) - 1);
            i32::from_le_bytes(std::array::from_fn(code))
        })
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
