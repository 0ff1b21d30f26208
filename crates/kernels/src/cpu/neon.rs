//! NEON: four registers per vector.

use std::arch::{aarch64::*, asm};

use super::simd::{Kernel, LANES, Packed, Simd};

/// Proof of neon, with `DOT` also of dotprod and i8mm.
#[derive(Clone, Copy)]
pub(super) struct Neon<const DOT: bool>(());

/// Lanes 0..4, 4..8, 8..12 and 12..16.
type Quad = [float32x4_t; 4];
/// The same.
type IntQuad = [int32x4_t; 4];

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

impl Neon<false> {
    pub(super) fn detect() -> Option<Self> {
        std::arch::is_aarch64_feature_detected!("neon").then_some(Self(()))
    }

    pub(super) fn run<K: Kernel>(self, kernel: K) -> K::Output {
        #[target_feature(enable = "neon")]
        fn enabled<K: Kernel>(s: Neon<false>, kernel: K) -> K::Output {
            kernel.run(s)
        }
        neon!(enabled(self, kernel))
    }
}

impl Neon<true> {
    pub(super) fn detect() -> Option<Self> {
        let all = Neon::<false>::detect().is_some()
            && std::arch::is_aarch64_feature_detected!("dotprod")
            && std::arch::is_aarch64_feature_detected!("i8mm");
        all.then_some(Self(()))
    }

    pub(super) fn base(self) -> Neon<false> {
        Neon(())
    }

    pub(super) fn run<K: Kernel>(self, kernel: K) -> K::Output {
        #[target_feature(enable = "neon,dotprod,i8mm")]
        fn enabled<K: Kernel>(s: Neon<true>, kernel: K) -> K::Output {
            kernel.run(s)
        }
        neon!(enabled(self, kernel))
    }
}

/// `sum + Σ a·b` of the four bytes of each lane, `a` unsigned, `b` signed. The intrinsic is not in stable Rust.
///
/// # Safety
/// The CPU has i8mm.
#[inline(always)]
unsafe fn usdot(mut sum: int32x4_t, a: int32x4_t, b: int32x4_t) -> int32x4_t {
    // SAFETY: registers only; the caller promises the instruction.
    unsafe {
        asm!(
            ".arch_extension i8mm",
            "usdot {sum:v}.4s, {a:v}.16b, {b:v}.16b",
            sum = inout(vreg) sum, a = in(vreg) a, b = in(vreg) b,
            options(pure, nomem, nostack, preserves_flags)
        );
    }
    sum
}

/// Four IEEE halves. Half-precision vectors are not in stable Rust, but their conversion is.
#[inline(always)]
fn widened(halves: uint16x4_t) -> float32x4_t {
    let to: float32x4_t;
    // SAFETY: registers only, and every 64-bit Arm has the instruction.
    unsafe {
        asm!(
            "fcvtl {to:v}.4s, {from:v}.4h", to = out(vreg) to, from = in(vreg) halves,
            options(pure, nomem, nostack, preserves_flags)
        );
    }
    to
}

impl<const DOT: bool> Simd for Neon<DOT> {
    type V = Quad;
    type I = IntQuad;

    // 4 partial sums take 16 of the 32 registers.
    const TILE: usize = 4;
    const N_SUM: usize = 6;
    const IS_DOT4_SLOW: bool = !DOT;

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
    fn load_bf16(self, from: &[u8; 32]) -> Quad {
        quad!(I => {
            let half = vreinterpret_u16_u8(vld1_u8(from[8 * I..].as_ptr()));
            vreinterpretq_f32_u32(vshll_n_u16::<16>(half))
        })
    }

    #[inline(always)]
    fn load_f16(self, from: &[u8; 32]) -> Quad {
        quad!(I => widened(vreinterpret_u16_u8(vld1_u8(from[8 * I..].as_ptr()))))
    }

    #[inline(always)]
    fn load_e4m3(self, from: &[u8; LANES]) -> Quad {
        // Bytes on top of 16 bits and one down are halves, but for the copy of the sign.
        let halves = |tops: int16x8_t| {
            neon!({
                let halves = vandq_u16(vreinterpretq_u16_s16(vshrq_n_s16::<1>(tops)), vdupq_n_u16(0xbfff));
                let is_nan = vceqq_u16(vandq_u16(halves, vdupq_n_u16(0x3fff)), vdupq_n_u16(0x3f80));
                vorrq_u16(halves, vandq_u16(is_nan, vdupq_n_u16(0x7c00)))
            })
        };
        neon!({
            let bytes = vld1q_s8(from.as_ptr().cast());
            let low = halves(vreinterpretq_s16_s8(vzip1q_s8(vdupq_n_s8(0), bytes)));
            let high = halves(vreinterpretq_s16_s8(vzip2q_s8(vdupq_n_s8(0), bytes)));
            [
                widened(vget_low_u16(low)),
                widened(vget_high_u16(low)),
                widened(vget_low_u16(high)),
                widened(vget_high_u16(high)),
            ]
        })
    }

    #[inline(always)]
    fn int_splat(self, x: i32) -> IntQuad {
        [neon!(vdupq_n_s32(x)); 4]
    }

    #[inline(always)]
    fn int_load(self, from: &[i32; LANES]) -> IntQuad {
        quad!(I => vld1q_s32(from[4 * I..].as_ptr()))
    }

    #[inline(always)]
    fn int_store(self, v: IntQuad, to: &mut [i32; LANES]) {
        quad!(I => vst1q_s32(to[4 * I..].as_mut_ptr(), v[I]));
    }

    #[inline(always)]
    fn int_add(self, a: IntQuad, b: IntQuad) -> IntQuad {
        quad!(I => vaddq_s32(a[I], b[I]))
    }

    #[inline(always)]
    fn int_and(self, a: IntQuad, b: IntQuad) -> IntQuad {
        quad!(I => vandq_s32(a[I], b[I]))
    }

    #[inline(always)]
    fn int_xor(self, a: IntQuad, b: IntQuad) -> IntQuad {
        quad!(I => veorq_s32(a[I], b[I]))
    }

    #[inline(always)]
    fn int_shl(self, a: IntQuad, n: u32) -> IntQuad {
        let n = neon!(vdupq_n_s32(n as i32));
        quad!(I => vshlq_s32(a[I], n))
    }

    #[inline(always)]
    fn int_shr(self, a: IntQuad, n: u32) -> IntQuad {
        let n = neon!(vdupq_n_s32(-(n as i32)));
        quad!(I => vreinterpretq_s32_u32(vshlq_u32(vreinterpretq_u32_s32(a[I]), n)))
    }

    #[inline(always)]
    fn to_int(self, v: Quad) -> IntQuad {
        quad!(I => vcvtnq_s32_f32(v[I]))
    }

    #[inline(always)]
    fn to_float(self, v: IntQuad) -> Quad {
        quad!(I => vcvtq_f32_s32(v[I]))
    }

    #[inline(always)]
    fn as_float(self, v: IntQuad) -> Quad {
        quad!(I => vreinterpretq_f32_s32(v[I]))
    }

    #[inline(always)]
    fn bf16_pairs(self, v: IntQuad) -> [Quad; 2] {
        let mask = neon!(vdupq_n_s32(0xffff_0000_u32 as i32));
        [
            quad!(I => vreinterpretq_f32_s32(vshlq_n_s32::<16>(v[I]))),
            quad!(I => vreinterpretq_f32_s32(vandq_s32(v[I], mask))),
        ]
    }

    #[inline(always)]
    fn f16_pairs(self, v: IntQuad) -> [Quad; 2] {
        [
            quad!(I => widened(vmovn_u32(vreinterpretq_u32_s32(v[I])))),
            quad!(I => widened(vshrn_n_u32::<16>(vreinterpretq_u32_s32(v[I])))),
        ]
    }

    #[inline(always)]
    fn look_up(self, table: &[u8; 16], v: IntQuad) -> IntQuad {
        let table = neon!(vld1q_u8(table.as_ptr()));
        quad!(I => vreinterpretq_s32_u8(vqtbl1q_u8(table, vreinterpretq_u8_s32(v[I]))))
    }

    #[inline(always)]
    fn dot4(self, sum: IntQuad, codes: IntQuad, x: IntQuad) -> IntQuad {
        if DOT {
            return quad!(I => usdot(sum[I], codes[I], x[I]));
        }
        let zero = self.int_splat(0);
        self.dot2_words(sum, self.dot2_bytes(zero, codes, x), self.int_splat(0x0001_0001))
    }

    #[inline(always)]
    fn dot2_bytes(self, sum: IntQuad, codes: IntQuad, x: IntQuad) -> IntQuad {
        quad!(I => {
            let (codes, x) = (vreinterpretq_s8_s32(codes[I]), vreinterpretq_s8_s32(x[I]));
            let low = vmull_s8(vget_low_s8(codes), vget_low_s8(x));
            let pairs = vpaddq_s16(low, vmull_s8(vget_high_s8(codes), vget_high_s8(x)));
            vreinterpretq_s32_s16(vaddq_s16(vreinterpretq_s16_s32(sum[I]), pairs))
        })
    }

    #[inline(always)]
    fn dot2_words(self, sum: IntQuad, a: IntQuad, b: IntQuad) -> IntQuad {
        quad!(I => {
            let (a, b) = (vreinterpretq_s16_s32(a[I]), vreinterpretq_s16_s32(b[I]));
            let low = vmull_s16(vget_low_s16(a), vget_low_s16(b));
            vaddq_s32(sum[I], vpaddq_s32(low, vmull_s16(vget_high_s16(a), vget_high_s16(b))))
        })
    }

    #[inline(always)]
    fn swap_bytes(self, v: IntQuad) -> IntQuad {
        const SWAP: [u8; 16] = [0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15];
        let swap = neon!(vld1q_u8(SWAP.as_ptr()));
        quad!(I => vreinterpretq_s32_u8(vqtbl1q_u8(vreinterpretq_u8_s32(v[I]), swap)))
    }

    #[inline(always)]
    unsafe fn load_rows(self, rows: *const u8, stride: usize) -> [IntQuad; 4] {
        macro_rules! four {
            ($i:literal) => {
                // SAFETY: the caller promises that the bytes can be read.
                quad!(I => vreinterpretq_s32_u8(vld1q_u8(rows.add(($i + 4 * I) * stride))))
            };
        }
        [four!(0), four!(1), four!(2), four!(3)]
    }

    #[inline(always)]
    fn swap_lanes(self, v: [IntQuad; 4]) -> [IntQuad; 4] {
        let blocks = quad!(I => {
            let (a, b) = (vtrnq_s32(v[0][I], v[1][I]), vtrnq_s32(v[2][I], v[3][I]));
            let low = |a: int32x4_t, b: int32x4_t| vcombine_s32(vget_low_s32(a), vget_low_s32(b));
            let high = |a: int32x4_t, b: int32x4_t| vcombine_s32(vget_high_s32(a), vget_high_s32(b));
            [low(a.0, b.0), low(a.1, b.1), high(a.0, b.0), high(a.1, b.1)]
        });
        macro_rules! vector {
            ($j:literal) => {
                [blocks[0][$j], blocks[1][$j], blocks[2][$j], blocks[3][$j]]
            };
        }
        [vector!(0), vector!(1), vector!(2), vector!(3)]
    }

    #[inline(always)]
    fn spread_codes<const BITS: usize>(self, v: IntQuad) -> IntQuad {
        let down: [i16; 8] = const {
            let mut down = [0; 8];
            let mut i = 0;
            while i < 8 {
                down[i] = -(Packed::<BITS>::SHIFTS[i] as i16);
                i += 1;
            }
            down
        };
        let [first, second] = Packed::<BITS>::WORDS;
        let (first, second) = neon!((vld1q_u8(first.as_ptr().cast()), vld1q_u8(second.as_ptr().cast())));
        let (down, mask) = neon!((vld1q_s16(down.as_ptr()), vdupq_n_u8((1 << BITS) - 1)));
        quad!(I => {
            let v = vreinterpretq_u8_s32(v[I]);
            let first = vshlq_u16(vreinterpretq_u16_u8(vqtbl1q_u8(v, first)), down);
            let second = vshlq_u16(vreinterpretq_u16_u8(vqtbl1q_u8(v, second)), down);
            let codes = vcombine_u8(vmovn_u16(first), vmovn_u16(second));
            vreinterpretq_s32_u8(vandq_u8(codes, mask))
        })
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
