//! What every kernel computes with: vectors of 16 f32 lanes, whatever the CPU's registers hold.
//!
//! Kernels are written once over [`Simd`]; an instruction set is an implementation of it (`avx512.rs`, `avx2.rs`,
//! `neon.rs`, `generic.rs`). A value of an implementing type is the proof that the CPU has the instructions, so
//! calling its methods is safe. Lanes, orders of sums and rounding are the same everywhere, so all sets with fused
//! multiply-add give the same bits.
//!
//! Everything below a [`Kernel`] that touches vectors must be an `#[inline(always)]` function, not a closure: only
//! code inlined into the function that enables the features may use them.

/// Lanes of a vector.
pub(super) const LANES: usize = 16;

/// Sixteen numbers on a cache line of their own.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C, align(64))]
pub(super) struct Lanes<T = f32>(pub(super) [T; LANES]);

/// Work that is compiled for every instruction set.
pub(super) trait Kernel {
    type Output;
    /// Must be `#[inline(always)]`.
    fn run<S: Simd>(self, s: S) -> Self::Output;
}

/// An instruction set that is known to be there.
pub(super) trait Simd: Copy + Send + Sync + 'static {
    /// 16 f32.
    type V: Copy;

    /// 16 lanes of 32 bits: whole numbers, or four bytes each, the lowest first.
    type I: Copy;

    /// The most tokens that a kernel of plain floats keeps in registers: 8, 4, 2 or 1.
    const TILE: usize;
    /// How many sums of type `I` a matrix kernel keeps in registers.
    const N_SUM: usize;
    /// Whether [`Simd::dot2_bytes`] and [`Simd::dot2_words`] take less time than [`Simd::dot4`].
    const IS_DOT4_SLOW: bool;

    fn splat(self, x: f32) -> Self::V;
    fn load(self, from: &[f32; LANES]) -> Self::V;
    fn store(self, v: Self::V, to: &mut [f32; LANES]);
    fn add(self, a: Self::V, b: Self::V) -> Self::V;
    fn sub(self, a: Self::V, b: Self::V) -> Self::V;
    fn mul(self, a: Self::V, b: Self::V) -> Self::V;
    fn div(self, a: Self::V, b: Self::V) -> Self::V;
    /// `a·b + c`, fused where the set has it.
    fn fma(self, a: Self::V, b: Self::V, c: Self::V) -> Self::V;
    /// The larger; `b` if one is NaN (or NaN).
    fn max(self, a: Self::V, b: Self::V) -> Self::V;
    /// The smaller; `b` if one is NaN (or NaN).
    fn min(self, a: Self::V, b: Self::V) -> Self::V;
    /// Sum of the lanes: halves of 8, of 4, of 2, of 1.
    fn sum(self, v: Self::V) -> f32;
    /// `2ⁿ` for whole `n` in -126..=127.
    fn pow2(self, n: Self::V) -> Self::V;

    /// Asks for the cache line at an address, which need not exist.
    fn prefetch(self, at: *const u8);

    /// 16 bf16.
    fn load_bf16(self, from: &[u8; 32]) -> Self::V;
    /// 16 IEEE halves.
    fn load_f16(self, from: &[u8; 32]) -> Self::V;

    /// 16 E4M3 codes, each 2⁻⁸ of its number; NaN stays NaN.
    fn load_e4m3(self, from: &[u8; LANES]) -> Self::V;

    fn int_splat(self, x: i32) -> Self::I;
    fn int_load(self, from: &[i32; LANES]) -> Self::I;
    fn int_store(self, v: Self::I, to: &mut [i32; LANES]);
    /// Wraps around.
    fn int_add(self, a: Self::I, b: Self::I) -> Self::I;
    fn int_and(self, a: Self::I, b: Self::I) -> Self::I;
    fn int_xor(self, a: Self::I, b: Self::I) -> Self::I;
    /// `a << n` of each lane.
    fn int_shl(self, a: Self::I, n: u32) -> Self::I;
    /// `a >> n` of each lane, zeros come in.
    fn int_shr(self, a: Self::I, n: u32) -> Self::I;
    /// The nearest whole number, ties to even; any where that is no i32.
    fn to_int(self, v: Self::V) -> Self::I;
    fn to_float(self, v: Self::I) -> Self::V;
    /// The f32 whose bits these are.
    fn as_float(self, v: Self::I) -> Self::V;
    /// The low and the high half of each lane as a bf16.
    fn bf16_pairs(self, v: Self::I) -> [Self::V; 2];
    /// The low and the high half of each lane as an IEEE half.
    fn f16_pairs(self, v: Self::I) -> [Self::V; 2];
    /// Each byte, below 16, becomes that byte of the table.
    fn look_up(self, table: &[u8; 16], v: Self::I) -> Self::I;

    /// `sum + Σ codes·x` of the four bytes of each lane: `codes` unsigned (below 128 if this is slow), `x` signed.
    fn dot4(self, sum: Self::I, codes: Self::I, x: Self::I) -> Self::I;
    /// `sum + Σ codes·x` of two bytes, in each half of each lane: 16 bits, which no sum may leave. `codes` are unsigned
    /// and below 128, `x` signed.
    fn dot2_bytes(self, sum: Self::I, codes: Self::I, x: Self::I) -> Self::I;
    /// `sum + Σ a·b` of the halves of each lane, signed numbers of 16 bits.
    fn dot2_words(self, sum: Self::I, a: Self::I, b: Self::I) -> Self::I;
    /// Within each four lanes: byte `i` of lane `j` becomes byte `j` of lane `i`.
    fn swap_bytes(self, v: Self::I) -> Self::I;
    /// 16 bytes of each of 16 rows, which lie `stride` bytes apart: lanes `4b .. 4b + 4` of vector `i` are of row
    /// `4b + i`.
    ///
    /// # Safety
    /// All those bytes can be read.
    unsafe fn load_rows(self, rows: *const u8, stride: usize) -> [Self::I; 4];
    /// Lane `4b + i` of vector `j` becomes lane `4b + j` of vector `i`: after [`Simd::load_rows`], each lane is a row.
    fn swap_lanes(self, v: [Self::I; 4]) -> [Self::I; 4];
    /// In each four lanes: 16 codes of 3, 5 or 6 bits, packed without gaps from the first byte on, become 16 bytes.
    fn spread_codes<const BITS: usize>(self, v: Self::I) -> Self::I;
    /// 16 signed bytes.
    fn load_i8(self, from: &[u8; LANES]) -> Self::V;
    /// The largest lane; anything if one is NaN.
    fn largest(self, v: Self::V) -> f32;
}

/// Where packed codes lie in 16 bytes: code `i` is bits `shift(i) ..` of the 16-bit number at byte `byte(i)`.
pub(super) struct Packed<const BITS: usize>;

impl<const BITS: usize> Packed<BITS> {
    /// For byte shuffles: codes `8·half ..` as 16-bit numbers.
    pub(super) const WORDS: [[[u8; 2]; 8]; 2] = {
        let mut words = [[[0; 2]; 8]; 2];
        let mut i = 0;
        while i < 16 {
            let byte = (i * BITS / 8) as u8;
            words[i / 8][i % 8] = [byte, byte + 1];
            i += 1;
        }
        words
    };
    /// How far code `i` (and `i + 8`) lies above the bottom of its 16-bit number.
    pub(super) const SHIFTS: [u32; 8] = {
        let mut shifts = [0; 8];
        let mut i = 0;
        while i < 8 {
            shifts[i] = (i * BITS % 8) as u32;
            i += 1;
        }
        shifts
    };
}

/// Up to 16 numbers at `row[at..]`, zeros behind the end.
#[inline(always)]
pub(super) fn load_at<S: Simd>(s: S, row: &[f32], at: usize) -> S::V {
    match row.get(at..at + LANES) {
        Some(full) => s.load(full.try_into().expect("16 numbers")),
        None => {
            let mut lanes = [0.0; LANES];
            let rest = row.get(at..).unwrap_or(&[]);
            lanes[..rest.len()].copy_from_slice(rest);
            s.load(&lanes)
        }
    }
}

/// Stores the lanes that lie inside `row[at..]`.
#[inline(always)]
pub(super) fn store_at<S: Simd>(s: S, v: S::V, row: &mut [f32], at: usize) {
    match row.get_mut(at..at + LANES) {
        Some(full) => s.store(v, full.try_into().expect("16 numbers")),
        None => {
            let mut lanes = [0.0; LANES];
            s.store(v, &mut lanes);
            let rest = row.get_mut(at..).unwrap_or(&mut []);
            rest.copy_from_slice(&lanes[..rest.len()]);
        }
    }
}

/// `Σ a·b` in four interleaved chains. `b` is at least as long as `a`.
#[inline(always)]
pub(super) fn dot<S: Simd>(s: S, a: &[f32], b: &[f32]) -> f32 {
    let mut sums = [s.splat(0.0); 4];
    let mut at = 0;
    while at < a.len() {
        for (i, sum) in sums.iter_mut().enumerate() {
            let at = at + i * LANES;
            *sum = s.fma(load_at(s, a, at), load_at(s, &b[..a.len()], at), *sum);
        }
        at += 4 * LANES;
    }
    s.sum(s.add(s.add(sums[0], sums[1]), s.add(sums[2], sums[3])))
}

/// Adding and subtracting 1.5·2²³ rounds to a whole number.
const ROUND: f32 = 12_582_912.0;
const EXP_POLYNOMIAL: [f32; 6] =
    [1.987_569_1e-4, 1.398_2e-3, 8.333_452e-3, 4.166_579_6e-2, 1.666_666_5e-1, 5e-1];

/// `eˣ` within 2 ulp; 0 below -104, infinity above 88.73, NaN stays NaN.
///
/// `x = n·ln 2 + r`, a polynomial of degree 7 in `r` (Cephes expf), then two exact powers of two, so that results
/// below the normal range lose only what they must.
#[inline(always)]
pub(super) fn exp<S: Simd>(s: S, x: S::V) -> S::V {
    let round = s.splat(ROUND);
    let x = s.min(s.splat(89.0), s.max(s.splat(-104.0), x));
    let n = s.sub(s.fma(x, s.splat(std::f32::consts::LOG2_E), round), round);
    let e = exp_reduced(s, x, n);
    let half = s.sub(s.fma(n, s.splat(0.5), round), round);
    s.mul(s.mul(e, s.pow2(half)), s.pow2(s.sub(n, half)))
}

/// `eˣ` of `x ≤ 0` within 2 ulp; 0 where that is below 2⁻¹²⁶, NaN stays NaN. As [`exp`], with a third less work.
#[inline(always)]
pub(super) fn exp_falling<S: Simd>(s: S, x: S::V) -> S::V {
    let round = s.splat(ROUND);
    // The smallest exponent is -127: the bits of 2⁻¹²⁷ as `pow2` makes them are those of 0.
    let x = s.max(s.splat(-88.0), x);
    let n = s.sub(s.fma(x, s.splat(std::f32::consts::LOG2_E), round), round);
    s.mul(exp_reduced(s, x, n), s.pow2(n))
}

/// `e^(x - n·ln 2)` for the whole number `n` next to `x / ln 2`.
#[inline(always)]
fn exp_reduced<S: Simd>(s: S, x: S::V, n: S::V) -> S::V {
    let r = s.fma(n, s.splat(-355.0 / 512.0), x);
    let r = s.fma(n, s.splat(2.121_944_4e-4), r);
    let mut p = s.splat(EXP_POLYNOMIAL[0]);
    for c in &EXP_POLYNOMIAL[1..] {
        p = s.fma(p, r, s.splat(*c));
    }
    s.add(s.fma(p, s.mul(r, r), r), s.splat(1.0))
}

/// `1 / (1 + e⁻ˣ)`
#[inline(always)]
pub(super) fn sigmoid<S: Simd>(s: S, x: S::V) -> S::V {
    let one = s.splat(1.0);
    s.div(one, s.add(one, exp(s, s.sub(s.splat(0.0), x))))
}

/// `x / (1 + e⁻ˣ)`
#[inline(always)]
pub(super) fn silu<S: Simd>(s: S, x: S::V) -> S::V {
    s.div(x, s.add(s.splat(1.0), exp(s, s.sub(s.splat(0.0), x))))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cpu::isa::{Isa, Token};

    struct Exp([f32; LANES]);

    impl Kernel for Exp {
        type Output = [f32; LANES];

        #[inline(always)]
        fn run<S: Simd>(self, s: S) -> [f32; LANES] {
            let mut y = [0.0; LANES];
            s.store(exp(s, s.load(&self.0)), &mut y);
            y
        }
    }

    #[test]
    fn exp_is_within_2_ulp() {
        // Breaks if a coefficient, the reduction or the scaling by powers of two is off.
        for isa in Isa::ALL.into_iter().filter_map(Token::new) {
            let mut worst = 0.0f64;
            // Every 499th number from -104 to 88.7, both signs by their bits.
            for bits in (0..0x42d0_0000u32).step_by(499 * LANES) {
                for sign in [0, 0x8000_0000] {
                    let x = std::array::from_fn(|i| f32::from_bits((bits + 499 * i as u32) | sign).min(88.7));
                    for (x, y) in x.into_iter().zip(isa.run(Exp(x))) {
                        let exact = (x as f64).exp();
                        let ulp = f32::from_bits((exact as f32).to_bits() + 1) as f64 - exact as f32 as f64;
                        worst = worst.max((y as f64 - exact).abs() / ulp);
                    }
                }
            }
            assert!(worst <= 2.0, "{}: {worst} ulp", isa.isa());
        }
    }

    struct ExpFalling([f32; LANES]);

    impl Kernel for ExpFalling {
        type Output = [f32; LANES];

        #[inline(always)]
        fn run<S: Simd>(self, s: S) -> [f32; LANES] {
            let mut y = [0.0; LANES];
            s.store(exp_falling(s, s.load(&self.0)), &mut y);
            y
        }
    }

    #[test]
    fn exp_of_what_is_not_positive_is_that_of_exp() {
        // Breaks if masked scores keep a weight, NaN becomes a number, or a weight is off.
        for isa in Isa::ALL.into_iter().filter_map(Token::new) {
            for bits in (0..0x42d0_0000u32).step_by(4999 * LANES) {
                let x = std::array::from_fn(|i| -f32::from_bits(bits + 4999 * i as u32));
                let pairs = isa.run(Exp(x)).into_iter().zip(isa.run(ExpFalling(x)));
                for (x, (exact, y)) in x.into_iter().zip(pairs) {
                    let is_small = exact < 2.0 * f32::MIN_POSITIVE && (y == 0.0 || y == exact);
                    assert!(y == exact || is_small, "{}: e^{x} is {exact:e}, not {y:e}", isa.isa());
                }
            }
            for (x, y) in [(f32::NEG_INFINITY, 0.0), (-1e30, 0.0), (-88.0, 0.0), (0.0, 1.0), (-0.0, 1.0)] {
                assert_eq!(isa.run(ExpFalling([x; LANES])), [y; LANES], "{}: e^{x}", isa.isa());
            }
            assert!(isa.run(ExpFalling([f32::NAN; LANES])).iter().all(|y| y.is_nan()), "{}", isa.isa());
        }
    }

    struct Dots([[i32; LANES]; 3]);

    impl Kernel for Dots {
        type Output = [[i32; LANES]; 3];

        #[inline(always)]
        fn run<S: Simd>(self, s: S) -> Self::Output {
            let [sum, a, b] = [s.int_load(&self.0[0]), s.int_load(&self.0[1]), s.int_load(&self.0[2])];
            let codes = s.int_and(a, s.int_splat(0x7f7f_7f7f));
            let mut out = [[0; LANES]; 3];
            s.int_store(s.dot4(sum, codes, b), &mut out[0]);
            s.int_store(s.dot2_words(sum, a, b), &mut out[1]);
            // Codes below 64, for sums that stay in 16 bits.
            let codes = s.int_and(a, s.int_splat(0x3f3f_3f3f));
            s.int_store(s.dot2_bytes(s.int_and(sum, s.int_splat(0x3fff_3fff)), codes, b), &mut out[2]);
            out
        }
    }

    #[test]
    fn sums_of_products_are_exact() {
        // Breaks if a set takes codes as signed, saturates, or sums the wrong neighbours.
        let mut state = 7u32;
        let mut random = || {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (state ^ state >> 15) as i32
        };
        for _ in 0..200 {
            let [sum, a, b]: [[i32; LANES]; 3] = std::array::from_fn(|_| std::array::from_fn(|_| random()));
            for isa in Isa::ALL.into_iter().filter_map(Token::new) {
                let out = isa.run_int(Dots([sum, a, b]));
                for lane in 0..LANES {
                    let byte = |v: i32, i: usize| i32::from(v.to_le_bytes()[i]);
                    let x = |i: usize| i32::from(b[lane].to_le_bytes()[i] as i8);
                    let dot4 = (0..4).map(|i| (byte(a[lane], i) & 0x7f) * x(i)).sum::<i32>();
                    let words = |v: i32| [v as i16, (v >> 16) as i16].map(i32::from);
                    let ([a0, a1], [b0, b1]) = (words(a[lane]), words(b[lane]));
                    let dot2 =
                        |i: usize| (0..2).map(|j| (byte(a[lane], i + j) & 0x3f) * x(i + j)).sum::<i32>();
                    let [low, high] = words(sum[lane] & 0x3fff_3fff);
                    let pairs = (low + dot2(0)) & 0xffff | (high + dot2(2)) << 16;
                    let words = sum[lane].wrapping_add(a0.wrapping_mul(b0)).wrapping_add(a1.wrapping_mul(b1));
                    let expected = [sum[lane].wrapping_add(dot4), words, pairs];
                    assert_eq!([out[0][lane], out[1][lane], out[2][lane]], expected, "{}", isa.isa());
                }
            }
        }
    }

    #[test]
    fn exp_has_the_right_limits() {
        // Breaks if masked scores (-∞) keep a weight, or NaN becomes a number.
        let cases =
            [(f32::NEG_INFINITY, 0.0), (-1e30, 0.0), (-105.0, 0.0), (0.0, 1.0), (90.0, f32::INFINITY)];
        for isa in Isa::ALL.into_iter().filter_map(Token::new) {
            for (x, y) in cases.into_iter().chain([(-0.0, 1.0), (f32::INFINITY, f32::INFINITY)]) {
                assert_eq!(isa.run(Exp([x; LANES])), [y; LANES], "{}: e^{x}", isa.isa());
            }
            assert!(isa.run(Exp([f32::NAN; LANES])).iter().all(|y| y.is_nan()), "{}: e^NaN", isa.isa());
        }
    }
}
