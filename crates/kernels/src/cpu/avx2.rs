//! AVX2 with FMA and F16C: two registers per vector.

use std::arch::x86_64::*;

use super::simd::{Kernel, LANES, Packed, Simd, centre, front, spread_shuffle};

/// Proof of avx2, fma and f16c.
#[derive(Clone, Copy)]
pub(super) struct Avx2(());

/// Lanes 0..8 and 8..16.
#[derive(Clone, Copy)]
pub(super) struct Pair(__m256, __m256);

/// Evaluates intrinsics of the features that [`Avx2`] proves.
macro_rules! avx2 {
    ($e:expr) => {{
        // SAFETY: an `Avx2` exists only where the CPU has the features, and references cover what is read.
        unsafe { $e }
    }};
}

impl Avx2 {
    pub(super) fn detect() -> Option<Self> {
        let all = is_x86_feature_detected!("avx2")
            && is_x86_feature_detected!("fma")
            && is_x86_feature_detected!("f16c");
        all.then_some(Self(()))
    }

    pub(super) fn run<K: Kernel>(self, kernel: K) -> K::Output {
        #[target_feature(enable = "avx2,fma,f16c")]
        fn enabled<K: Kernel>(s: Avx2, kernel: K) -> K::Output {
            kernel.run(s)
        }
        avx2!(enabled(self, kernel))
    }
}

/// `(word & (2^bits - 1))` less the centre.
macro_rules! low_bits {
    ($words:expr, $bits:expr) => {
        _mm256_sub_ps(
            _mm256_cvtepi32_ps(_mm256_and_si256($words, _mm256_set1_epi32((1 << $bits) - 1))),
            _mm256_set1_ps(centre($bits)),
        )
    };
}

impl Simd for Avx2 {
    type V = Pair;

    // 4 partial sums take 8 of the 16 registers; the totals are touched once a block.
    const TILE: usize = 4;

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
    fn codes(self, words: &[u8; 64], shift: u32, bits: u32) -> Pair {
        avx2!({
            let count = _mm256_set1_epi32(shift as i32);
            let low = _mm256_srlv_epi32(_mm256_loadu_si256(words.as_ptr().cast()), count);
            let high = _mm256_srlv_epi32(_mm256_loadu_si256(words[32..].as_ptr().cast()), count);
            Pair(low_bits!(low, bits), low_bits!(high, bits))
        })
    }

    #[inline(always)]
    fn packed_codes(self, bytes: &[u8; 16], layout: &Packed) -> Pair {
        avx2!({
            let bytes = _mm256_broadcastsi128_si256(_mm_loadu_si128(bytes.as_ptr().cast()));
            let low = _mm256_shuffle_epi8(bytes, _mm256_loadu_si256(layout.shuffle.as_ptr().cast()));
            let high = _mm256_shuffle_epi8(bytes, _mm256_loadu_si256(layout.shuffle[8..].as_ptr().cast()));
            let low = _mm256_srlv_epi32(low, _mm256_loadu_si256(layout.shift.as_ptr().cast()));
            let high = _mm256_srlv_epi32(high, _mm256_loadu_si256(layout.shift[8..].as_ptr().cast()));
            Pair(low_bits!(low, layout.bits), low_bits!(high, layout.bits))
        })
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
    fn spread_bf16(self, from: &[u8], n: usize) -> Pair {
        macro_rules! spread {
            ($repeated:expr, $n:literal) => {
                avx2!({
                    let shuffle = const { &spread_shuffle($n) };
                    let low = _mm256_loadu_si256(shuffle.as_ptr().cast());
                    let high = _mm256_loadu_si256(shuffle[8..].as_ptr().cast());
                    let low = _mm256_shuffle_epi8($repeated, low);
                    Pair(_mm256_castsi256_ps(low), _mm256_castsi256_ps(_mm256_shuffle_epi8($repeated, high)))
                })
            };
        }
        let front = front(from, n);
        match n {
            1 => self.splat(f32::from_bits((front as u32) << 16)),
            2 => spread!(_mm256_set1_epi32(front as i32), 2),
            4 => spread!(_mm256_set1_epi64x(front as i64), 4),
            _ => {
                let all = avx2!(_mm256_set_epi64x(
                    (front >> 64) as i64,
                    front as i64,
                    (front >> 64) as i64,
                    front as i64
                ));
                spread!(all, 8)
            }
        }
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
