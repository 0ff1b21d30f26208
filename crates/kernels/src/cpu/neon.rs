//! NEON: four registers per vector.

use std::arch::{aarch64::*, asm};

use half::f16;

use super::simd::{Kernel, LANES, Packed, Simd, centre, front, spread_shuffle};

/// Proof of neon.
#[derive(Clone, Copy)]
pub(super) struct Neon(());

/// Lanes 0..4, 4..8, 8..12 and 12..16.
type Quad = [float32x4_t; 4];

/// Evaluates intrinsics of the features that [`Neon`] proves.
macro_rules! neon {
    ($e:expr) => {{
        // SAFETY: a `Neon` exists only where the CPU has the feature, and references cover what is read.
        unsafe { $e }
    }};
}

/// One expression per register.
macro_rules! quad {
    ($i:ident => $e:expr) => {{
        [neon!({ const $i: usize = 0; $e }), neon!({ const $i: usize = 1; $e }), neon!({ const $i: usize = 2; $e }),
         neon!({ const $i: usize = 3; $e })]
    }};
}

impl Neon {
    pub(super) fn detect() -> Option<Self> {
        std::arch::is_aarch64_feature_detected!("neon").then_some(Self(()))
    }

    pub(super) fn run<K: Kernel>(self, kernel: K) -> K::Output {
        #[target_feature(enable = "neon")]
        fn enabled<K: Kernel>(s: Neon, kernel: K) -> K::Output {
            kernel.run(s)
        }
        neon!(enabled(self, kernel))
    }
}

/// `(word >> shift) & (2^bits - 1)` as numbers; `count` is the negated shift.
#[inline(always)]
fn bits_at(words: uint32x4_t, count: int32x4_t, bits: u32) -> float32x4_t {
    neon!({
        let codes = vandq_u32(vshlq_u32(words, count), vdupq_n_u32((1 << bits) - 1));
        vsubq_f32(vcvtq_f32_u32(codes), vdupq_n_f32(centre(bits)))
    })
}

impl Simd for Neon {
    type V = Quad;

    // 4 partial sums take 16 of the 32 registers.
    const TILE: usize = 4;

    #[inline(always)]
    fn splat(self, x: f32) -> Quad {
        [neon!(vdupq_n_f32(x)); 4]
    }

    #[inline(always)]
    fn load(self, from: &[f32; LANES]) -> Quad {
        quad!(I => vld1q_f32(from[4 * I..].as_ptr()))
    }

    #[inline(always)]
    fn store(self, v: Quad, to: &mut [f32; LANES]) {
        quad!(I => vst1q_f32(to[4 * I..].as_mut_ptr(), v[I]));
    }

    #[inline(always)]
    fn add(self, a: Quad, b: Quad) -> Quad {
        quad!(I => vaddq_f32(a[I], b[I]))
    }

    #[inline(always)]
    fn sub(self, a: Quad, b: Quad) -> Quad {
        quad!(I => vsubq_f32(a[I], b[I]))
    }

    #[inline(always)]
    fn mul(self, a: Quad, b: Quad) -> Quad {
        quad!(I => vmulq_f32(a[I], b[I]))
    }

    #[inline(always)]
    fn div(self, a: Quad, b: Quad) -> Quad {
        quad!(I => vdivq_f32(a[I], b[I]))
    }

    #[inline(always)]
    fn fma(self, a: Quad, b: Quad, c: Quad) -> Quad {
        quad!(I => vfmaq_f32(c[I], a[I], b[I]))
    }

    #[inline(always)]
    fn max(self, a: Quad, b: Quad) -> Quad {
        quad!(I => vmaxq_f32(a[I], b[I]))
    }

    #[inline(always)]
    fn min(self, a: Quad, b: Quad) -> Quad {
        quad!(I => vminq_f32(a[I], b[I]))
    }

    #[inline(always)]
    fn sum(self, v: Quad) -> f32 {
        neon!({
            let v = vaddq_f32(vaddq_f32(v[0], v[2]), vaddq_f32(v[1], v[3]));
            let v = vadd_f32(vget_low_f32(v), vget_high_f32(v));
            vget_lane_f32::<0>(v) + vget_lane_f32::<1>(v)
        })
    }

    #[inline(always)]
    fn pow2(self, n: Quad) -> Quad {
        quad!(I => vreinterpretq_f32_s32(vshlq_n_s32::<23>(vaddq_s32(vcvtq_s32_f32(n[I]), vdupq_n_s32(127)))))
    }

    #[inline(always)]
    fn prefetch(self, at: *const u8) {
        // SAFETY: a prefetch reads nothing and cannot fault.
        unsafe {
            asm!("prfm pldl1strm, [{at}]", at = in(reg) at, options(nostack, readonly, preserves_flags))
        }
    }

    #[inline(always)]
    fn codes(self, words: &[u8; 64], shift: u32, bits: u32) -> Quad {
        let count = neon!(vdupq_n_s32(-(shift as i32)));
        quad!(I => bits_at(vreinterpretq_u32_u8(vld1q_u8(words[16 * I..].as_ptr())), count, bits))
    }

    #[inline(always)]
    fn packed_codes(self, bytes: &[u8; 16], layout: &Packed) -> Quad {
        let bytes = neon!(vld1q_u8(bytes.as_ptr()));
        quad!(I => {
            // Indices beyond the table (0x80) give 0.
            let words = vqtbl1q_u8(bytes, vld1q_u8(layout.shuffle[4 * I..].as_ptr().cast()));
            let count = vnegq_s32(vreinterpretq_s32_u32(vld1q_u32(layout.shift[4 * I..].as_ptr())));
            bits_at(vreinterpretq_u32_u8(words), count, layout.bits)
        })
    }

    #[inline(always)]
    fn load_bf16(self, from: &[u8; 32]) -> Quad {
        quad!(I => {
            let half = vreinterpret_u16_u8(vld1_u8(from[8 * I..].as_ptr()));
            vreinterpretq_f32_u32(vshll_n_u16::<16>(half))
        })
    }

    /// Half-precision vectors are not in stable Rust: a scalar conversion each.
    #[inline(always)]
    fn load_f16(self, from: &[u8; 32]) -> Quad {
        let (from, _) = from.as_chunks::<2>();
        self.load(&std::array::from_fn(|i| f16::from_le_bytes(from[i]).to_f32()))
    }

    #[inline(always)]
    fn spread_bf16(self, from: &[u8], n: usize) -> Quad {
        let bytes = front(from, n).to_le_bytes();
        let shuffle = match n {
            1 => const { &spread_shuffle(1) },
            2 => const { &spread_shuffle(2) },
            4 => const { &spread_shuffle(4) },
            _ => const { &spread_shuffle(8) },
        };
        let bytes = neon!(vld1q_u8(bytes.as_ptr()));
        // Indices beyond the table (0x80) give 0.
        quad!(I => vreinterpretq_f32_u8(vqtbl1q_u8(bytes, vld1q_u8(shuffle[4 * I..].as_ptr().cast()))))
    }

    #[inline(always)]
    fn load_i8(self, from: &[u8; LANES]) -> Quad {
        let bytes = neon!(vld1q_s8(from.as_ptr().cast()));
        let (low, high) = neon!((vmovl_s8(vget_low_s8(bytes)), vmovl_s8(vget_high_s8(bytes))));
        neon!([
            vcvtq_f32_s32(vmovl_s16(vget_low_s16(low))),
            vcvtq_f32_s32(vmovl_s16(vget_high_s16(low))),
            vcvtq_f32_s32(vmovl_s16(vget_low_s16(high))),
            vcvtq_f32_s32(vmovl_s16(vget_high_s16(high))),
        ])
    }

    #[inline(always)]
    fn largest(self, v: Quad) -> f32 {
        neon!(vmaxvq_f32(vmaxq_f32(vmaxq_f32(v[0], v[2]), vmaxq_f32(v[1], v[3]))))
    }
}
