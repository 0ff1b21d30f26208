//! AVX2 with FMA and F16C: two registers per vector.

use std::arch::{asm, x86_64::*};

use super::simd::{Kernel, LANES, Packed, Simd};

/// Proof of avx2, fma and f16c; with `VNNI` also of avxvnni.
#[derive(Clone, Copy)]
pub(super) struct Avx2<const VNNI: bool>(());

/// Lanes 0..8 and 8..16.
#[derive(Clone, Copy)]
pub(super) struct Pair(__m256, __m256);

/// Lanes 0..8 and 8..16.
#[derive(Clone, Copy)]
pub(super) struct IntPair(__m256i, __m256i);

/// Evaluates intrinsics of the features that [`Avx2`] proves.
macro_rules! avx2 {
    ($e:expr) => {{
        // SAFETY: an `Avx2` exists only where the CPU has the features, and references cover what is read.
        unsafe { $e }
    }};
}

impl Avx2<false> {
    pub(super) fn detect() -> Option<Self> {
        let all = is_x86_feature_detected!("avx2")
            && is_x86_feature_detected!("fma")
            && is_x86_feature_detected!("f16c");
        all.then_some(Self(()))
    }

    pub(super) fn run<K: Kernel>(self, kernel: K) -> K::Output {
        #[target_feature(enable = "avx2,fma,f16c")]
        fn enabled<K: Kernel>(s: Avx2<false>, kernel: K) -> K::Output {
            kernel.run(s)
        }
        avx2!(enabled(self, kernel))
    }
}

impl Avx2<true> {
    pub(super) fn detect() -> Option<Self> {
        let all = Avx2::<false>::detect().is_some() && is_x86_feature_detected!("avxvnni");
        all.then_some(Self(()))
    }

    pub(super) fn base(self) -> Avx2<false> {
        Avx2(())
    }

    pub(super) fn run<K: Kernel>(self, kernel: K) -> K::Output {
        #[target_feature(enable = "avx2,fma,f16c,avxvnni")]
        fn enabled<K: Kernel>(s: Avx2<true>, kernel: K) -> K::Output {
            kernel.run(s)
        }
        avx2!(enabled(self, kernel))
    }
}

/// One operation on both halves.
macro_rules! both {
    ($op:ident$(::<$n:literal>)?($($v:expr),+)) => {
        IntPair($op$(::<$n>)?($($v.0),+), $op$(::<$n>)?($($v.1),+))
    };
}

/// 16 bytes in each half of both registers.
macro_rules! quarters {
    ($bytes:expr) => {{
        let half = _mm256_broadcastsi128_si256(_mm_loadu_si128($bytes.as_ptr().cast()));
        IntPair(half, half)
    }};
}

#[inline(always)]
fn words(x: i16) -> IntPair {
    avx2!(IntPair(_mm256_set1_epi16(x), _mm256_set1_epi16(x)))
}

impl<const VNNI: bool> Simd for Avx2<VNNI> {
    type V = Pair;
    type I = IntPair;

    // 4 partial sums take 8 of the 16 registers; the totals are touched once a block.
    const TILE: usize = 4;
    const N_SUM: usize = 6;
    const IS_DOT4_SLOW: bool = !VNNI;

    #[inline(always)]
    fn splat(self, x: f32) -> Pair {
        avx2!(Pair(_mm256_set1_ps(x), _mm256_set1_ps(x)))
    }

    #[inline(always)]
    fn load(self, from: &[f32; LANES]) -> Pair {
        avx2!(Pair(_mm256_loadu_ps(from.as_ptr()), _mm256_loadu_ps(from[8..].as_ptr())))
    }

    #[inline(always)]
    fn store(self, v: Pair, to: &mut [f32; LANES]) {
        avx2!({
            _mm256_storeu_ps(to.as_mut_ptr(), v.0);
            _mm256_storeu_ps(to[8..].as_mut_ptr(), v.1);
        })
    }

    #[inline(always)]
    fn add(self, a: Pair, b: Pair) -> Pair {
        avx2!(Pair(_mm256_add_ps(a.0, b.0), _mm256_add_ps(a.1, b.1)))
    }

    #[inline(always)]
    fn sub(self, a: Pair, b: Pair) -> Pair {
        avx2!(Pair(_mm256_sub_ps(a.0, b.0), _mm256_sub_ps(a.1, b.1)))
    }

    #[inline(always)]
    fn mul(self, a: Pair, b: Pair) -> Pair {
        avx2!(Pair(_mm256_mul_ps(a.0, b.0), _mm256_mul_ps(a.1, b.1)))
    }

    #[inline(always)]
    fn div(self, a: Pair, b: Pair) -> Pair {
        avx2!(Pair(_mm256_div_ps(a.0, b.0), _mm256_div_ps(a.1, b.1)))
    }

    #[inline(always)]
    fn fma(self, a: Pair, b: Pair, c: Pair) -> Pair {
        avx2!(Pair(_mm256_fmadd_ps(a.0, b.0, c.0), _mm256_fmadd_ps(a.1, b.1, c.1)))
    }

    #[inline(always)]
    fn max(self, a: Pair, b: Pair) -> Pair {
        avx2!(Pair(_mm256_max_ps(a.0, b.0), _mm256_max_ps(a.1, b.1)))
    }

    #[inline(always)]
    fn min(self, a: Pair, b: Pair) -> Pair {
        avx2!(Pair(_mm256_min_ps(a.0, b.0), _mm256_min_ps(a.1, b.1)))
    }

    #[inline(always)]
    fn sum(self, v: Pair) -> f32 {
        avx2!({
            let v = _mm256_add_ps(v.0, v.1);
            let v = _mm_add_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps::<1>(v));
            let v = _mm_add_ps(v, _mm_movehl_ps(v, v));
            _mm_cvtss_f32(_mm_add_ss(v, _mm_movehdup_ps(v)))
        })
    }

    #[inline(always)]
    fn pow2(self, n: Pair) -> Pair {
        avx2!({
            let bias = _mm256_set1_epi32(127);
            let low = _mm256_slli_epi32::<23>(_mm256_add_epi32(_mm256_cvtps_epi32(n.0), bias));
            let high = _mm256_slli_epi32::<23>(_mm256_add_epi32(_mm256_cvtps_epi32(n.1), bias));
            Pair(_mm256_castsi256_ps(low), _mm256_castsi256_ps(high))
        })
    }

    #[inline(always)]
    fn prefetch(self, at: *const u8) {
        avx2!(_mm_prefetch::<_MM_HINT_T0>(at.cast()))
    }

    #[inline(always)]
    fn load_bf16(self, from: &[u8; 32]) -> Pair {
        avx2!({
            let low = _mm256_cvtepu16_epi32(_mm_loadu_si128(from.as_ptr().cast()));
            let high = _mm256_cvtepu16_epi32(_mm_loadu_si128(from[16..].as_ptr().cast()));
            let low = _mm256_castsi256_ps(_mm256_slli_epi32::<16>(low));
            Pair(low, _mm256_castsi256_ps(_mm256_slli_epi32::<16>(high)))
        })
    }

    #[inline(always)]
    fn load_f16(self, from: &[u8; 32]) -> Pair {
        avx2!({
            let low = _mm256_cvtph_ps(_mm_loadu_si128(from.as_ptr().cast()));
            Pair(low, _mm256_cvtph_ps(_mm_loadu_si128(from[16..].as_ptr().cast())))
        })
    }

    #[inline(always)]
    fn load_e4m3(self, from: &[u8; LANES]) -> Pair {
        avx2!({
            // Bytes on top of 16 bits and one down are halves, but for the copy of the sign.
            let tops = _mm256_slli_epi16::<8>(_mm256_cvtepu8_epi16(_mm_loadu_si128(from.as_ptr().cast())));
            let halves = _mm256_and_si256(_mm256_srai_epi16::<1>(tops), _mm256_set1_epi16(0xbfff_u16 as i16));
            let number = _mm256_and_si256(halves, _mm256_set1_epi16(0x3fff));
            let is_nan = _mm256_cmpeq_epi16(number, _mm256_set1_epi16(0x3f80));
            let halves = _mm256_or_si256(halves, _mm256_and_si256(is_nan, _mm256_set1_epi16(0x7c00)));
            let low = _mm256_cvtph_ps(_mm256_castsi256_si128(halves));
            Pair(low, _mm256_cvtph_ps(_mm256_extracti128_si256::<1>(halves)))
        })
    }

    #[inline(always)]
    fn int_splat(self, x: i32) -> IntPair {
        avx2!(IntPair(_mm256_set1_epi32(x), _mm256_set1_epi32(x)))
    }

    #[inline(always)]
    fn int_load(self, from: &[i32; LANES]) -> IntPair {
        avx2!(IntPair(
            _mm256_loadu_si256(from.as_ptr().cast()),
            _mm256_loadu_si256(from[8..].as_ptr().cast())
        ))
    }

    #[inline(always)]
    fn int_store(self, v: IntPair, to: &mut [i32; LANES]) {
        avx2!({
            _mm256_storeu_si256(to.as_mut_ptr().cast(), v.0);
            _mm256_storeu_si256(to[8..].as_mut_ptr().cast(), v.1);
        })
    }

    #[inline(always)]
    fn int_add(self, a: IntPair, b: IntPair) -> IntPair {
        avx2!(both!(_mm256_add_epi32(a, b)))
    }

    #[inline(always)]
    fn int_and(self, a: IntPair, b: IntPair) -> IntPair {
        avx2!(both!(_mm256_and_si256(a, b)))
    }

    #[inline(always)]
    fn int_xor(self, a: IntPair, b: IntPair) -> IntPair {
        avx2!(both!(_mm256_xor_si256(a, b)))
    }

    #[inline(always)]
    fn int_shl(self, a: IntPair, n: u32) -> IntPair {
        let n = self.int_splat(n as i32);
        avx2!(both!(_mm256_sllv_epi32(a, n)))
    }

    #[inline(always)]
    fn int_shr(self, a: IntPair, n: u32) -> IntPair {
        let n = self.int_splat(n as i32);
        avx2!(both!(_mm256_srlv_epi32(a, n)))
    }

    #[inline(always)]
    fn to_int(self, v: Pair) -> IntPair {
        avx2!(IntPair(_mm256_cvtps_epi32(v.0), _mm256_cvtps_epi32(v.1)))
    }

    #[inline(always)]
    fn to_float(self, v: IntPair) -> Pair {
        avx2!(Pair(_mm256_cvtepi32_ps(v.0), _mm256_cvtepi32_ps(v.1)))
    }

    #[inline(always)]
    fn as_float(self, v: IntPair) -> Pair {
        avx2!(Pair(_mm256_castsi256_ps(v.0), _mm256_castsi256_ps(v.1)))
    }

    #[inline(always)]
    fn bf16_pairs(self, v: IntPair) -> [Pair; 2] {
        avx2!({
            let low = both!(_mm256_slli_epi32::<16>(v));
            let mask = _mm256_set1_epi32(0xffff_0000_u32 as i32);
            [self.as_float(low), self.as_float(both!(_mm256_and_si256(v, IntPair(mask, mask))))]
        })
    }

    #[inline(always)]
    fn f16_pairs(self, v: IntPair) -> [Pair; 2] {
        // In each four lanes the low halves first, then the high ones.
        const APART: [u8; 16] = [0, 1, 4, 5, 8, 9, 12, 13, 2, 3, 6, 7, 10, 11, 14, 15];
        avx2!({
            let v = both!(_mm256_shuffle_epi8(v, quarters!(APART)));
            let v = IntPair(_mm256_permute4x64_epi64::<0xd8>(v.0), _mm256_permute4x64_epi64::<0xd8>(v.1));
            let low = (_mm256_castsi256_si128(v.0), _mm256_castsi256_si128(v.1));
            let high = (_mm256_extracti128_si256::<1>(v.0), _mm256_extracti128_si256::<1>(v.1));
            [
                Pair(_mm256_cvtph_ps(low.0), _mm256_cvtph_ps(low.1)),
                Pair(_mm256_cvtph_ps(high.0), _mm256_cvtph_ps(high.1)),
            ]
        })
    }

    #[inline(always)]
    fn look_up(self, table: &[u8; 16], v: IntPair) -> IntPair {
        avx2!({
            let table = quarters!(table);
            both!(_mm256_shuffle_epi8(table, v))
        })
    }

    #[inline(always)]
    fn dot4(self, sum: IntPair, codes: IntPair, x: IntPair) -> IntPair {
        if VNNI {
            return avx2!(both!(_mm256_dpbusd_avx_epi32(sum, codes, x)));
        }
        self.dot2_words(sum, avx2!(both!(_mm256_maddubs_epi16(codes, x))), words(1))
    }

    #[inline(always)]
    fn dot2_bytes(self, sum: IntPair, codes: IntPair, x: IntPair) -> IntPair {
        avx2!(both!(_mm256_add_epi16(sum, both!(_mm256_maddubs_epi16(codes, x)))))
    }

    #[inline(always)]
    fn dot2_words(self, sum: IntPair, a: IntPair, b: IntPair) -> IntPair {
        avx2!(both!(_mm256_add_epi32(sum, both!(_mm256_madd_epi16(a, b)))))
    }

    #[inline(always)]
    fn swap_bytes(self, v: IntPair) -> IntPair {
        const SWAP: [u8; 16] = [0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15];
        avx2!(both!(_mm256_shuffle_epi8(v, quarters!(SWAP))))
    }

    #[inline(always)]
    unsafe fn load_rows(self, rows: *const u8, mut stride: usize) -> [IntPair; 4] {
        // Otherwise the compiler keeps 16 pointers through a loop, and most of them on the stack.
        // SAFETY: no instruction.
        unsafe { asm!("/* {0} */", inout(reg) stride, options(nomem, nostack, preserves_flags)) };
        macro_rules! four {
            ($i:literal) => {{
                let row = |b: usize| rows.add(($i + 4 * b) * stride).cast();
                IntPair(_mm256_loadu2_m128i(row(1), row(0)), _mm256_loadu2_m128i(row(3), row(2)))
            }};
        }
        // SAFETY: the features are there, and the caller promises that the bytes can be read.
        unsafe { [four!(0), four!(1), four!(2), four!(3)] }
    }

    #[inline(always)]
    fn swap_lanes(self, v: [IntPair; 4]) -> [IntPair; 4] {
        avx2!({
            let (a, b) = (both!(_mm256_unpacklo_epi32(v[0], v[1])), both!(_mm256_unpackhi_epi32(v[0], v[1])));
            let (c, d) = (both!(_mm256_unpacklo_epi32(v[2], v[3])), both!(_mm256_unpackhi_epi32(v[2], v[3])));
            [
                both!(_mm256_unpacklo_epi64(a, c)),
                both!(_mm256_unpackhi_epi64(a, c)),
                both!(_mm256_unpacklo_epi64(b, d)),
                both!(_mm256_unpackhi_epi64(b, d)),
            ]
        })
    }

    #[inline(always)]
    fn spread_codes<const BITS: usize>(self, v: IntPair) -> IntPair {
        // There is no shift of 16-bit lanes by different counts: a product moves each code to the top of its lane.
        let factors: [u16; 8] = const {
            let mut factors = [0; 8];
            let mut i = 0;
            while i < 8 {
                factors[i] = 1 << (16 - BITS as u32 - Packed::<BITS>::SHIFTS[i]);
                i += 1;
            }
            factors
        };
        avx2!({
            let [first, second] = Packed::<BITS>::WORDS;
            let factors = quarters!(factors);
            let down = _mm_cvtsi32_si128(16 - BITS as i32);
            let first = both!(_mm256_mullo_epi16(both!(_mm256_shuffle_epi8(v, quarters!(first))), factors));
            let second = both!(_mm256_mullo_epi16(both!(_mm256_shuffle_epi8(v, quarters!(second))), factors));
            let first = IntPair(_mm256_srl_epi16(first.0, down), _mm256_srl_epi16(first.1, down));
            let second = IntPair(_mm256_srl_epi16(second.0, down), _mm256_srl_epi16(second.1, down));
            both!(_mm256_packus_epi16(first, second))
        })
    }

    #[inline(always)]
    fn load_i8(self, from: &[u8; LANES]) -> Pair {
        avx2!({
            let low = _mm256_cvtepi8_epi32(_mm_loadl_epi64(from.as_ptr().cast()));
            let high = _mm256_cvtepi8_epi32(_mm_loadl_epi64(from[8..].as_ptr().cast()));
            Pair(_mm256_cvtepi32_ps(low), _mm256_cvtepi32_ps(high))
        })
    }

    #[inline(always)]
    fn largest(self, v: Pair) -> f32 {
        avx2!({
            let v = _mm256_max_ps(v.0, v.1);
            let v = _mm_max_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps::<1>(v));
            let v = _mm_max_ps(v, _mm_movehl_ps(v, v));
            _mm_cvtss_f32(_mm_max_ss(v, _mm_movehdup_ps(v)))
        })
    }
}
