//! AVX-512: one register per vector.

use std::arch::{asm, x86_64::*};

use super::simd::{Kernel, LANES, Packed, Simd};

/// Proof of avx512f, avx512bw, avx512vl and avx512dq; with `VNNI` also of avx512vnni and avx512vbmi.
#[derive(Clone, Copy)]
pub(super) struct Avx512<const VNNI: bool>(());

/// Evaluates intrinsics of the features that [`Avx512`] proves.
macro_rules! avx512 {
    ($e:expr) => {{
        // SAFETY: an `Avx512` exists only where the CPU has the features, and references cover what is read.
        unsafe { $e }
    }};
}

impl Avx512<false> {
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
        fn enabled<K: Kernel>(s: Avx512<false>, kernel: K) -> K::Output {
            kernel.run(s)
        }
        avx512!(enabled(self, kernel))
    }
}

impl Avx512<true> {
    pub(super) fn detect() -> Option<Self> {
        let base = Avx512::<false>::detect().is_some();
        let all = base && is_x86_feature_detected!("avx512vnni") && is_x86_feature_detected!("avx512vbmi");
        all.then_some(Self(()))
    }

    pub(super) fn base(self) -> Avx512<false> {
        Avx512(())
    }

    pub(super) fn run<K: Kernel>(self, kernel: K) -> K::Output {
        #[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx2,fma,f16c,avx512vnni,avx512vbmi")]
        fn enabled<K: Kernel>(s: Avx512<true>, kernel: K) -> K::Output {
            kernel.run(s)
        }
        avx512!(enabled(self, kernel))
    }
}

/// 16 bytes in each quarter of a register.
macro_rules! quarters {
    ($bytes:expr) => {
        _mm512_broadcast_i32x4(_mm_loadu_si128($bytes.as_ptr().cast()))
    };
}

impl<const VNNI: bool> Simd for Avx512<VNNI> {
    type V = __m512;
    type I = __m512i;

    // 8 partial sums and 8 totals of the 32 registers.
    const TILE: usize = 8;
    const N_SUM: usize = 24;
    const IS_DOT4_SLOW: bool = !VNNI;

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
    fn load_e4m3(self, from: &[u8; LANES]) -> __m512 {
        avx512!({
            // Bytes on top of 16 bits and one down are halves, but for the copy of the sign.
            let tops = _mm256_slli_epi16::<8>(_mm256_cvtepu8_epi16(_mm_loadu_si128(from.as_ptr().cast())));
            let mask = _mm256_set1_epi16(0xbfff_u16 as i16);
            let halves = _mm256_and_si256(_mm256_srai_epi16::<1>(tops), mask);
            let number = _mm256_and_si256(halves, _mm256_set1_epi16(0x3fff));
            let is_nan = _mm256_cmpeq_epi16(number, _mm256_set1_epi16(0x3f80));
            _mm512_cvtph_ps(_mm256_or_si256(halves, _mm256_and_si256(is_nan, _mm256_set1_epi16(0x7c00))))
        })
    }

    #[inline(always)]
    fn int_splat(self, x: i32) -> __m512i {
        avx512!(_mm512_set1_epi32(x))
    }

    #[inline(always)]
    fn int_load(self, from: &[i32; LANES]) -> __m512i {
        avx512!(_mm512_loadu_si512(from.as_ptr().cast()))
    }

    #[inline(always)]
    fn int_store(self, v: __m512i, to: &mut [i32; LANES]) {
        avx512!(_mm512_storeu_si512(to.as_mut_ptr().cast(), v))
    }

    #[inline(always)]
    fn int_add(self, a: __m512i, b: __m512i) -> __m512i {
        avx512!(_mm512_add_epi32(a, b))
    }

    #[inline(always)]
    fn int_and(self, a: __m512i, b: __m512i) -> __m512i {
        avx512!(_mm512_and_si512(a, b))
    }

    #[inline(always)]
    fn int_xor(self, a: __m512i, b: __m512i) -> __m512i {
        avx512!(_mm512_xor_si512(a, b))
    }

    #[inline(always)]
    fn int_shl(self, a: __m512i, n: u32) -> __m512i {
        avx512!(_mm512_sllv_epi32(a, _mm512_set1_epi32(n as i32)))
    }

    #[inline(always)]
    fn int_shr(self, a: __m512i, n: u32) -> __m512i {
        avx512!(_mm512_srlv_epi32(a, _mm512_set1_epi32(n as i32)))
    }

    #[inline(always)]
    fn to_int(self, v: __m512) -> __m512i {
        avx512!(_mm512_cvtps_epi32(v))
    }

    #[inline(always)]
    fn to_float(self, v: __m512i) -> __m512 {
        avx512!(_mm512_cvtepi32_ps(v))
    }

    #[inline(always)]
    fn as_float(self, v: __m512i) -> __m512 {
        avx512!(_mm512_castsi512_ps(v))
    }

    #[inline(always)]
    fn bf16_pairs(self, v: __m512i) -> [__m512; 2] {
        avx512!({
            let high = _mm512_and_si512(v, _mm512_set1_epi32(0xffff_0000_u32 as i32));
            [_mm512_castsi512_ps(_mm512_slli_epi32::<16>(v)), _mm512_castsi512_ps(high)]
        })
    }

    #[inline(always)]
    fn f16_pairs(self, v: __m512i) -> [__m512; 2] {
        avx512!({
            let high = _mm512_cvtepi32_epi16(_mm512_srli_epi32::<16>(v));
            [_mm512_cvtph_ps(_mm512_cvtepi32_epi16(v)), _mm512_cvtph_ps(high)]
        })
    }

    #[inline(always)]
    fn look_up(self, table: &[u8; 16], v: __m512i) -> __m512i {
        avx512!(_mm512_shuffle_epi8(quarters!(table), v))
    }

    #[inline(always)]
    fn dot4(self, sum: __m512i, codes: __m512i, x: __m512i) -> __m512i {
        if VNNI {
            return avx512!(_mm512_dpbusd_epi32(sum, codes, x));
        }
        avx512!(self.dot2_words(sum, _mm512_maddubs_epi16(codes, x), _mm512_set1_epi16(1)))
    }

    #[inline(always)]
    fn dot2_bytes(self, sum: __m512i, codes: __m512i, x: __m512i) -> __m512i {
        avx512!(_mm512_add_epi16(sum, _mm512_maddubs_epi16(codes, x)))
    }

    #[inline(always)]
    fn dot2_words(self, sum: __m512i, a: __m512i, b: __m512i) -> __m512i {
        avx512!(_mm512_add_epi32(sum, _mm512_madd_epi16(a, b)))
    }

    #[inline(always)]
    fn swap_bytes(self, v: __m512i) -> __m512i {
        const SWAP: [u8; 16] = [0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15];
        avx512!(_mm512_shuffle_epi8(v, quarters!(SWAP)))
    }

    #[inline(always)]
    unsafe fn load_rows(self, rows: *const u8, mut stride: usize) -> [__m512i; 4] {
        // Otherwise the compiler keeps 16 pointers through a loop, and most of them on the stack.
        // SAFETY: no instruction.
        unsafe { asm!("/* {0} */", inout(reg) stride, options(nomem, nostack, preserves_flags)) };
        macro_rules! four {
            ($i:literal) => {{
                let row = |b: usize| rows.add(($i + 4 * b) * stride).cast();
                let v = _mm512_castsi128_si512(_mm_loadu_si128(row(0)));
                let v = _mm512_mask_broadcast_i32x4(v, 0x00f0, _mm_loadu_si128(row(1)));
                let v = _mm512_mask_broadcast_i32x4(v, 0x0f00, _mm_loadu_si128(row(2)));
                _mm512_mask_broadcast_i32x4(v, 0xf000, _mm_loadu_si128(row(3)))
            }};
        }
        // SAFETY: the features are there, and the caller promises that the bytes can be read.
        unsafe { [four!(0), four!(1), four!(2), four!(3)] }
    }

    #[inline(always)]
    fn swap_lanes(self, v: [__m512i; 4]) -> [__m512i; 4] {
        avx512!({
            let (a, b) = (_mm512_unpacklo_epi32(v[0], v[1]), _mm512_unpackhi_epi32(v[0], v[1]));
            let (c, d) = (_mm512_unpacklo_epi32(v[2], v[3]), _mm512_unpackhi_epi32(v[2], v[3]));
            [
                _mm512_unpacklo_epi64(a, c),
                _mm512_unpackhi_epi64(a, c),
                _mm512_unpacklo_epi64(b, d),
                _mm512_unpackhi_epi64(b, d),
            ]
        })
    }

    #[inline(always)]
    fn spread_codes<const BITS: usize>(self, v: __m512i) -> __m512i {
        if VNNI {
            // Eight codes into each 64-bit lane, then an unaligned byte for each code.
            let lanes: [u8; 16] = const {
                let mut lanes = [0x80; 16];
                let mut i = 0;
                while i < BITS {
                    (lanes[i], lanes[8 + i]) = (i as u8, (BITS + i) as u8);
                    i += 1;
                }
                lanes
            };
            let places: [u8; 16] = const {
                let mut places = [0; 16];
                let mut i = 0;
                while i < 16 {
                    places[i] = (i % 8 * BITS) as u8;
                    i += 1;
                }
                places
            };
            return avx512!({
                let codes =
                    _mm512_multishift_epi64_epi8(quarters!(places), _mm512_shuffle_epi8(v, quarters!(lanes)));
                _mm512_and_si512(codes, _mm512_set1_epi8((1 << BITS) - 1))
            });
        }
        avx512!({
            let [first, second] = Packed::<BITS>::WORDS;
            let shifts: [u16; 8] = const {
                let mut shifts = [0; 8];
                let mut i = 0;
                while i < 8 {
                    shifts[i] = Packed::<BITS>::SHIFTS[i] as u16;
                    i += 1;
                }
                shifts
            };
            let mask = _mm512_set1_epi16((1 << BITS) - 1);
            let first = _mm512_srlv_epi16(_mm512_shuffle_epi8(v, quarters!(first)), quarters!(shifts));
            let second = _mm512_srlv_epi16(_mm512_shuffle_epi8(v, quarters!(second)), quarters!(shifts));
            _mm512_packus_epi16(_mm512_and_si512(first, mask), _mm512_and_si512(second, mask))
        })
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
