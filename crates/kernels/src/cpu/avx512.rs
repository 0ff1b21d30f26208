//! AVX-512: one register per vector.

use std::arch::x86_64::*;

use super::simd::{Kernel, LANES, Packed, Simd, centre, front, spread_shuffle};

/// Proof of avx512f, avx512bw, avx512vl and avx512dq.
#[derive(Clone, Copy)]
pub(super) struct Avx512(());

/// Evaluates intrinsics of the features that [`Avx512`] proves.
macro_rules! avx512 {
    ($e:expr) => {{
        // SAFETY: an `Avx512` exists only where the CPU has the features, and references cover what is read.
        unsafe { $e }
    }};
}

/// `(word & (2^bits - 1))` less the centre.
macro_rules! low_bits {
    ($words:expr, $bits:expr) => {
        _mm512_sub_ps(
            _mm512_cvtepi32_ps(_mm512_and_si512($words, _mm512_set1_epi32((1 << $bits) - 1))),
            _mm512_set1_ps(centre($bits)),
        )
    };
}

impl Avx512 {
    pub(super) fn detect() -> Option<Self> {
        let all = is_x86_feature_detected!("avx512f")
            && is_x86_feature_detected!("avx512bw")
            && is_x86_feature_detected!("avx512vl")
            && is_x86_feature_detected!("avx512dq")
            && is_x86_feature_detected!("avx2")
            && is_x86_feature_detected!("fma")
            && is_x86_feature_detected!("f16c");
        all.then_some(Self(()))
    }

    pub(super) fn run<K: Kernel>(self, kernel: K) -> K::Output {
        #[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx2,fma,f16c")]
        fn enabled<K: Kernel>(s: Avx512, kernel: K) -> K::Output {
            kernel.run(s)
        }
        avx512!(enabled(self, kernel))
    }
}

impl Simd for Avx512 {
    type V = __m512;

    // 8 partial sums and 8 totals of the 32 registers.
    const TILE: usize = 8;

    #[inline(always)]
    fn splat(self, x: f32) -> __m512 {
        avx512!(_mm512_set1_ps(x))
    }

    #[inline(always)]
    fn load(self, from: &[f32; LANES]) -> __m512 {
        avx512!(_mm512_loadu_ps(from.as_ptr()))
    }

    #[inline(always)]
    fn store(self, v: __m512, to: &mut [f32; LANES]) {
        avx512!(_mm512_storeu_ps(to.as_mut_ptr(), v))
    }

    #[inline(always)]
    fn add(self, a: __m512, b: __m512) -> __m512 {
        avx512!(_mm512_add_ps(a, b))
    }

    #[inline(always)]
    fn sub(self, a: __m512, b: __m512) -> __m512 {
        avx512!(_mm512_sub_ps(a, b))
    }

    #[inline(always)]
    fn mul(self, a: __m512, b: __m512) -> __m512 {
        avx512!(_mm512_mul_ps(a, b))
    }

    #[inline(always)]
    fn div(self, a: __m512, b: __m512) -> __m512 {
        avx512!(_mm512_div_ps(a, b))
    }

    #[inline(always)]
    fn fma(self, a: __m512, b: __m512, c: __m512) -> __m512 {
        avx512!(_mm512_fmadd_ps(a, b, c))
    }

    #[inline(always)]
    fn max(self, a: __m512, b: __m512) -> __m512 {
        avx512!(_mm512_max_ps(a, b))
    }

    #[inline(always)]
    fn min(self, a: __m512, b: __m512) -> __m512 {
        avx512!(_mm512_min_ps(a, b))
    }

    #[inline(always)]
    fn sum(self, v: __m512) -> f32 {
        avx512!({
            let v = _mm256_add_ps(_mm512_castps512_ps256(v), _mm512_extractf32x8_ps::<1>(v));
            let v = _mm_add_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps::<1>(v));
            let v = _mm_add_ps(v, _mm_movehl_ps(v, v));
            _mm_cvtss_f32(_mm_add_ss(v, _mm_movehdup_ps(v)))
        })
    }

    #[inline(always)]
    fn pow2(self, n: __m512) -> __m512 {
        avx512!({
            let exponent = _mm512_add_epi32(_mm512_cvtps_epi32(n), _mm512_set1_epi32(127));
            _mm512_castsi512_ps(_mm512_slli_epi32::<23>(exponent))
        })
    }

    #[inline(always)]
    fn prefetch(self, at: *const u8) {
        avx512!(_mm_prefetch::<_MM_HINT_T0>(at.cast()))
    }

    #[inline(always)]
    fn codes(self, words: &[u8; 64], shift: u32, bits: u32) -> __m512 {
        avx512!({
            let words = _mm512_loadu_si512(words.as_ptr().cast());
            let words = _mm512_srlv_epi32(words, _mm512_set1_epi32(shift as i32));
            if bits == 4 {
                // The permutation looks at the low 4 bits of its index only: mask, conversion and centring in one.
                let values = _mm512_set_ps(
                    7.5, 6.5, 5.5, 4.5, 3.5, 2.5, 1.5, 0.5, -0.5, -1.5, -2.5, -3.5, -4.5, -5.5, -6.5, -7.5,
                );
                _mm512_permutexvar_ps(words, values)
            } else {
                low_bits!(words, bits)
            }
        })
    }

    #[inline(always)]
    fn packed_codes(self, bytes: &[u8; 16], layout: &Packed) -> __m512 {
        avx512!({
            let bytes = _mm512_broadcast_i32x4(_mm_loadu_si128(bytes.as_ptr().cast()));
            let pairs = _mm512_shuffle_epi8(bytes, _mm512_loadu_si512(layout.shuffle.as_ptr().cast()));
            let words = _mm512_srlv_epi32(pairs, _mm512_loadu_si512(layout.shift.as_ptr().cast()));
            low_bits!(words, layout.bits)
        })
    }

    #[inline(always)]
    fn load_bf16(self, from: &[u8; 32]) -> __m512 {
        avx512!({
            let words = _mm512_cvtepu16_epi32(_mm256_loadu_si256(from.as_ptr().cast()));
            _mm512_castsi512_ps(_mm512_slli_epi32::<16>(words))
        })
    }

    #[inline(always)]
    fn load_f16(self, from: &[u8; 32]) -> __m512 {
        avx512!(_mm512_cvtph_ps(_mm256_loadu_si256(from.as_ptr().cast())))
    }

    #[inline(always)]
    fn spread_bf16(self, from: &[u8], n: usize) -> __m512 {
        macro_rules! spread {
            ($repeated:expr, $n:literal) => {
                avx512!({
                    let shuffle = const { &spread_shuffle($n) };
                    let shuffle = _mm512_loadu_si512(shuffle.as_ptr().cast());
                    _mm512_castsi512_ps(_mm512_shuffle_epi8($repeated, shuffle))
                })
            };
        }
        let front = front(from, n);
        match n {
            1 => avx512!(_mm512_castsi512_ps(_mm512_set1_epi32((front as i32) << 16))),
            2 => spread!(_mm512_set1_epi32(front as i32), 2),
            4 => spread!(_mm512_set1_epi64(front as i64), 4),
            _ => spread!(_mm512_broadcast_i32x4(_mm_set_epi64x((front >> 64) as i64, front as i64)), 8),
        }
    }

    #[inline(always)]
    fn load_i8(self, from: &[u8; LANES]) -> __m512 {
        avx512!(_mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_loadu_si128(from.as_ptr().cast()))))
    }

    #[inline(always)]
    fn largest(self, v: __m512) -> f32 {
        avx512!({
            let v = _mm256_max_ps(_mm512_castps512_ps256(v), _mm512_extractf32x8_ps::<1>(v));
            let v = _mm_max_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps::<1>(v));
            let v = _mm_max_ps(v, _mm_movehl_ps(v, v));
            _mm_cvtss_f32(_mm_max_ss(v, _mm_movehdup_ps(v)))
        })
    }
}
