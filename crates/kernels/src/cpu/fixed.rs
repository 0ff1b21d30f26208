//! Activations in fixed point, and their products with codes in whole numbers.
//!
//! Each group of columns of a token is `x = unit · X`, with whole numbers `X` of two or three signed bytes: *planes*,
//! `X = X₀ + 256·(X₁ + 255·X₂)`, so that the first two also fit a number of 16 bits.
//! Products with codes are then sums of products of bytes, which CPUs have instructions for, and they are exact.
//! With three planes `X` has 24 bits, as many as an f32, and is off by at most 2⁻²⁴ of the group's largest number:
//! what f32 sums lose anyway. So this is the default; two planes are faster where there are many tokens, and an
//! approximation.
//!
//! `y = Σ_g (scale·unit)·Σ (q − m)·X + (bias + m·scale)·Σ x`, `m` the middle code; groups in their order, in f32, the
//! sum of the planes rounded once (two planes) or twice (three). As all inside a group is exact, results do not depend
//! on the instruction set (if it has fused multiply-add), on tiles or on other tokens.
//!
//! Sets without an instruction for sums of four products of bytes sum two in 16 bits, over as many lane vectors as stay
//! in them ([`Shape::run`]); codes of 8 bits become 16, and so do the activations.

use quant::Format;

use super::codes::{LANE_COLS, RUN_MAX, Shape, Tile};
use super::simd::{Kernel, LANES, Lanes, Simd};

/// Units are no smaller: their reciprocals and their products with scales must be normal numbers.
const UNIT_MIN: f32 = f32::from_bits((127 - 100) << 23);

/// How a token's activations lie for the matrices of one format.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Layout {
    pub(super) cols: usize,
    pub(super) shape: Shape,
    pub(super) planes: usize,
}

impl Layout {
    /// `None` for formats without codes.
    pub(super) fn new(format: Format, cols: usize, planes: usize) -> Option<Self> {
        Shape::of(format).map(|shape| Self { cols, shape, planes })
    }

    fn n_group(&self) -> usize {
        self.cols / self.shape.group
    }

    /// Bytes of the numbers of one token, in words.
    pub(super) fn n_number(&self) -> usize {
        // Words for each two planes are the most that a set takes.
        let n_word = if self.shape.run() == 0 { self.planes.next_multiple_of(2) } else { self.planes };
        self.cols / LANE_COLS * n_word
    }

    /// Unit, sum and start values of a group, in words.
    fn n_fact(&self) -> usize {
        2 + self.planes
    }

    /// Vectors of one token.
    pub(super) fn n_lanes(&self) -> usize {
        (self.n_number() + self.n_group() * self.n_fact()).div_ceil(LANES)
    }

    /// Which columns of 16 are the bytes of four lane vectors.
    fn columns(&self) -> [usize; LANES] {
        let n = self.shape.order;
        std::array::from_fn(|i| {
            let (vector, byte) = (i / LANE_COLS, i % LANE_COLS);
            vector / n * LANE_COLS * n + byte * n + vector % n
        })
    }
}

/// Whether a set takes numbers as 16 bits each.
pub(super) const fn in_words<S: Simd>(run: usize) -> bool {
    S::IS_DOT4_SLOW && run == 0
}

/// Words that four numbers take: one for each plane, or two for each number of 16 bits.
pub(super) const fn n_word<S: Simd>(planes: usize, run: usize) -> usize {
    if in_words::<S>(run) { planes.next_multiple_of(2) } else { planes }
}

/// Whether a set has registers for the sums of a block of rows.
pub(super) const fn has_registers(n_sum: usize) -> bool {
    6 <= n_sum
}

/// Whether a set has registers for the sums of two blocks of rows, and for the codes of two strips.
pub(super) const fn has_many_registers(n_sum: usize) -> bool {
    12 <= n_sum
}

/// The largest power-of-two tile of tokens whose sums stay in registers.
pub(super) const fn tile_max(n_sum: usize, planes: usize) -> usize {
    let n_block = if has_many_registers(n_sum) { 2 } else { 1 };
    match n_sum / (n_block * planes) {
        0..2 => 1,
        2..4 => 2,
        _ => 4,
    }
}

/// Lays out token `t` of a tile of `n_token`.
///
/// The tile: `[cols / 4][n_token][n_word]` words, in the order of the format's lane vectors: four bytes of each plane,
/// or even and odd ones of four numbers of 16 bits; then `[group][n_token]` of unit and sum of the numbers (f32), and
/// what their sums start from: `−m·Σ X`.
pub(super) struct Prepare<'a, const P: usize> {
    pub(super) layout: Layout,
    pub(super) row: &'a [f32],
    pub(super) t: usize,
    pub(super) n_token: usize,
    pub(super) to: &'a mut [i32],
}

impl<const P: usize> Kernel for Prepare<'_, P> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let Self { layout, row, t, n_token, to } = self;
        let (numbers, facts) = to.split_at_mut(n_token * layout.n_number());
        let columns = layout.columns();
        let (in_words, n) = (in_words::<S>(layout.shape.run()), n_word::<S>(P, layout.shape.run()));
        let words = numbers.chunks_exact_mut(n_token * n);
        let mut words = words.map(|words| &mut words[t * n..(t + 1) * n]);
        for (g, x) in row.chunks_exact(layout.shape.group).enumerate() {
            let (unit, sum) = measure::<S, P>(s, x);
            let inverse = s.splat(1.0 / unit);
            let mut sums = s.int_splat(0);
            for x in x.as_chunks::<LANES>().0 {
                let mut ordered = [0.0; LANES];
                for i in 0..LANES {
                    ordered[i] = x[columns[i]];
                }
                let x = s.to_int(s.mul(s.load(&ordered), inverse));
                let (low, top) = if P == 2 { (x, s.int_splat(0)) } else { split(s, x) };
                let bytes = digits(s, low, top);
                sums = s.dot4(sums, s.int_splat(0x0101_0101), bytes);
                let mut lanes = [0; LANES];
                s.int_store(bytes, &mut lanes);
                if in_words {
                    lanes = pairs(s, low, top);
                }
                for lanes in lanes.as_chunks::<LANE_COLS>().0 {
                    words.next().expect("words each four columns").copy_from_slice(&lanes[..n]);
                }
            }
            let mut lanes = [0; LANES];
            s.int_store(sums, &mut lanes);
            let sums: [i32; P] = std::array::from_fn(|p| lanes.iter().skip(p).step_by(LANE_COLS).sum());
            let facts = &mut facts[(g * n_token + t) * (2 + P)..][..2 + P];
            (facts[0], facts[1]) = (unit.to_bits() as i32, sum.to_bits() as i32);
            for p in 0..P {
                facts[2 + p] = -layout.shape.middle * sums[p];
            }
            if in_words {
                facts[2] += facts[3] << 8;
                facts[3] = facts[1 + P];
            }
        }
    }
}

/// Unit and sum of a group. A number that is not finite makes the sum so, and with it every product.
#[inline(always)]
fn measure<S: Simd, const P: usize>(s: S, x: &[f32]) -> (f32, f32) {
    let (mut sum, mut max) = (s.splat(0.0), s.splat(0.0));
    for x in x.as_chunks::<LANES>().0 {
        let x = s.load(x);
        sum = s.add(sum, x);
        max = s.max(s.max(x, s.sub(s.splat(0.0), x)), max);
    }
    let mut lanes = [0.0; LANES];
    s.store(max, &mut lanes);
    let max = lanes.into_iter().fold(0.0, f32::max);
    (unit::<P>(max), s.sum(sum))
}

/// What one step of the whole numbers is worth, for a group whose largest number is `max`.
#[inline(always)]
fn unit<const P: usize>(max: f32) -> f32 {
    // The largest number of P digits.
    let largest = [32_639.0, 8_323_199.0][P - 2];
    let unit = (max / largest).clamp(UNIT_MIN, f32::MAX);
    if P == 2 {
        return unit;
    }
    // The next power of two: then numbers of up to 23 bits are kept exactly.
    let power = f32::from_bits(unit.to_bits() & 0x7f80_0000);
    if power < unit { 2.0 * power } else { power }
}

/// What the third plane counts.
const TOP: i32 = 255 * 256;

/// `low` and `top` of `x = low + TOP·top`, `low` from -32640 to 32639.
#[inline(always)]
fn split<S: Simd>(s: S, x: S::I) -> (S::I, S::I) {
    // (x + 32640) / 256 / 255, with 128 more to keep all above 0.
    let n = s.int_shr(s.int_add(x, s.int_splat(TOP / 2 + 128 * TOP)), 8);
    let top = s.int_shr(s.int_add(s.int_add(n, s.int_shr(n, 8)), s.int_splat(1)), 8);
    let top = s.int_add(top, s.int_splat(-128));
    (s.to_int(s.fma(s.to_float(top), s.splat(-TOP as f32), s.to_float(x))), top)
}

/// The digits of whole numbers, from -128 to 127: lane `p` of each four has digit `p` of four numbers.
#[inline(always)]
fn digits<S: Simd>(s: S, low: S::I, top: S::I) -> S::I {
    // With 128 added to the first digit both are the bytes of a sum; the top bit takes the 128 off again.
    let half = s.int_splat(0x80);
    let low = s.int_and(s.int_xor(s.int_add(low, half), half), s.int_splat(0xffff));
    s.swap_bytes(s.int_xor(low, s.int_shl(top, 16)))
}

/// The lower 16 bits of four numbers as two words, even ones and odd ones, then those of `top`.
#[inline(always)]
fn pairs<S: Simd>(s: S, low: S::I, top: S::I) -> [i32; LANES] {
    let (mut numbers, mut lanes) = ([[0; LANES]; 2], [0; LANES]);
    s.int_store(low, &mut numbers[0]);
    s.int_store(top, &mut numbers[1]);
    for (i, lane) in lanes.iter_mut().enumerate() {
        let (numbers, first) = (&numbers[i % LANE_COLS / 2], i / LANE_COLS * LANE_COLS + i % 2);
        *lane = numbers[first] & 0xffff | numbers[first + 2] << 16;
    }
    lanes
}

/// Adds the products of some groups with two blocks of 16 rows; `RUN` is [`Shape::run`], at most [`run_max`].
pub(super) struct Dot<'a, const P: usize, const T: usize, const RUN: usize> {
    pub(super) layout: Layout,
    /// Of the two blocks.
    pub(super) tiles: &'a [Tile; 2],
    /// The first of the groups, and their number.
    pub(super) first: usize,
    pub(super) n_group: usize,
    /// The activations of `T` tokens.
    pub(super) x: &'a [i32],
    /// `[T]`
    pub(super) totals: &'a mut [[Lanes; 2]],
}

impl<const P: usize, const T: usize, const RUN: usize> Kernel for Dot<'_, P, T, RUN> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(mut self, s: S) {
        // Known when compiled: no code is made for tiles and sums that the set never gets.
        assert!(T <= const { tile_max(S::N_SUM, P) }, "a tile of {T} tokens");
        assert!(RUN <= const { run_max::<S>() }, "sums of {RUN} vectors");
        if has_many_registers(S::N_SUM) {
            self.blocks::<S, 2>(s, 0);
        } else {
            self.blocks::<S, 1>(s, 0);
            self.blocks::<S, 1>(s, 1);
        }
    }
}

impl<const P: usize, const T: usize, const RUN: usize> Dot<'_, P, T, RUN> {
    /// The same for `R` of the blocks.
    #[inline(always)]
    fn blocks<S: Simd, const R: usize>(&mut self, s: S, first_block: usize) {
        let Self { layout, first, n_group, x, .. } = *self;
        let (n_word, n_vector) = (const { n_word::<S>(P, RUN) }, layout.shape.group / LANE_COLS);
        let (numbers, facts) = x.split_at(T * layout.n_number());
        let tiles = &self.tiles[first_block..][..R];
        let mut total = [[s.splat(0.0); R]; T];
        for t in 0..T {
            for r in 0..R {
                total[t][r] = s.load(&self.totals[t][first_block + r].0);
            }
        }
        for g in 0..n_group.min(tiles[0].scales.len()) {
            let numbers = &numbers[(first + g) * n_vector * T * n_word..][..n_vector * T * n_word];
            let facts = &facts[(first + g) * T * (2 + P)..][..T * (2 + P)];
            let mut codes: [&[Lanes<i32>]; R] = [&[]; R];
            for r in 0..R {
                codes[r] = &tiles[r].codes[g * n_vector..][..n_vector];
            }
            let sums = group_sums::<S, P, T, RUN, R>(s, codes, numbers, facts);
            for t in 0..T {
                let facts = &facts[t * (2 + P)..][..2 + P];
                for r in 0..R {
                    let value = value::<S, P>(s, &sums[t][r], const { in_words::<S>(RUN) });
                    total[t][r] =
                        add_group(s, total[t][r], value, (&tiles[r].scales[g], &tiles[r].biases[g]), facts);
                }
            }
        }
        for t in 0..T {
            for r in 0..R {
                s.store(total[t][r], &mut self.totals[t][first_block + r].0);
            }
        }
    }
}

/// The longest run that a set makes a difference for.
const fn run_max<S: Simd>() -> usize {
    if S::IS_DOT4_SLOW { RUN_MAX } else { 1 }
}

/// [`run_max`] of a set.
pub(super) struct RunMax;

impl Kernel for RunMax {
    type Output = usize;

    #[inline(always)]
    fn run<S: Simd>(self, _: S) -> usize {
        run_max::<S>()
    }
}

/// `Σ (q − m)·X` of one group: each plane apart, or the first two together and the third.
#[inline(always)]
fn group_sums<S: Simd, const P: usize, const T: usize, const RUN: usize, const R: usize>(
    s: S,
    codes: [&[Lanes<i32>]; R],
    numbers: &[i32],
    facts: &[i32],
) -> [[[S::I; P]; R]; T] {
    let mut sums = [[[s.int_splat(0); P]; R]; T];
    for t in 0..T {
        for p in 0..P {
            let start = s.int_splat(facts[t * (2 + P) + 2 + p]);
            for r in 0..R {
                sums[t][r][p] = start;
            }
        }
    }
    if const { in_words::<S>(RUN) } {
        add_words(s, codes, numbers, &mut sums);
    } else if RUN > 1 {
        add_runs::<S, P, T, RUN, R>(s, codes, numbers, &mut sums);
    } else {
        add_bytes(s, codes, numbers, &mut sums);
    }
    sums
}

/// Adds products of bytes, four at a time.
#[inline(always)]
fn add_bytes<S: Simd, const P: usize, const T: usize, const R: usize>(
    s: S,
    codes: [&[Lanes<i32>]; R],
    numbers: &[i32],
    sums: &mut [[[S::I; P]; R]; T],
) {
    for (i, x) in numbers.chunks_exact(T * P).enumerate() {
        let mut w = [s.int_splat(0); R];
        for r in 0..R {
            w[r] = s.int_load(&codes[r][i].0);
        }
        for t in 0..T {
            for p in 0..P {
                let x = s.int_splat(x[t * P + p]);
                for r in 0..R {
                    sums[t][r][p] = s.dot4(sums[t][r][p], w[r], x);
                }
            }
        }
    }
}

/// Adds products of bytes that are summed in 16 bits over `RUN` vectors.
#[inline(always)]
fn add_runs<S: Simd, const P: usize, const T: usize, const RUN: usize, const R: usize>(
    s: S,
    codes: [&[Lanes<i32>]; R],
    numbers: &[i32],
    sums: &mut [[[S::I; P]; R]; T],
) {
    let n_vector = codes[0].len();
    assert!(codes.iter().all(|codes| codes.len() == n_vector) && numbers.len() == n_vector * T * P);
    let mut i = 0;
    while i < n_vector {
        let mut parts = [[[s.int_splat(0); P]; R]; T];
        let end = n_vector.min(i + RUN);
        while i < end {
            let (mut w, range) = ([s.int_splat(0); R], i * T * P..(i + 1) * T * P);
            for r in 0..R {
                // SAFETY: within the slices, by the assertion.
                w[r] = s.int_load(unsafe { &codes[r].get_unchecked(i).0 });
            }
            // SAFETY: as above.
            let x = unsafe { numbers.get_unchecked(range) };
            for t in 0..T {
                for p in 0..P {
                    let x = s.int_splat(x[t * P + p]);
                    for r in 0..R {
                        parts[t][r][p] = s.dot2_bytes(parts[t][r][p], w[r], x);
                    }
                }
            }
            i += 1;
        }
        for t in 0..T {
            for r in 0..R {
                for p in 0..P {
                    sums[t][r][p] = s.dot2_words(sums[t][r][p], parts[t][r][p], s.int_splat(0x0001_0001));
                }
            }
        }
    }
}

/// Adds products of numbers of 16 bits: the first two planes to the first sum, the third to the second one.
#[inline(always)]
fn add_words<S: Simd, const P: usize, const T: usize, const R: usize>(
    s: S,
    codes: [&[Lanes<i32>]; R],
    numbers: &[i32],
    sums: &mut [[[S::I; P]; R]; T],
) {
    let n = const { n_word::<S>(P, 0) };
    let mask = s.int_splat(0x00ff_00ff);
    for (i, x) in numbers.chunks_exact(T * n).enumerate() {
        for r in 0..R {
            let codes = s.int_load(&codes[r][i].0);
            let halves = [s.int_and(codes, mask), s.int_and(s.int_shr(codes, 8), mask)];
            for t in 0..T {
                for w in 0..n {
                    let x = s.int_splat(x[t * n + w]);
                    sums[t][r][w / 2] = s.dot2_words(sums[t][r][w / 2], halves[w % 2], x);
                }
            }
        }
    }
}

/// `total + (scale·unit)·value + (bias + m·scale)·Σ x` of a group, whose scale and bias (with that of the middle) are
/// given: `value` is `Σ (q − m)·X`.
#[inline(always)]
pub(super) fn add_group<S: Simd>(
    s: S,
    total: S::V,
    value: S::V,
    (scale, bias): (&Lanes, &Lanes),
    facts: &[i32],
) -> S::V {
    let unit = s.splat(f32::from_bits(facts[0] as u32));
    let sum = s.splat(f32::from_bits(facts[1] as u32));
    let scale = s.mul(s.load(&scale.0), unit);
    s.fma(s.load(&bias.0), sum, s.fma(value, scale, total))
}

/// The number whose digits these are: each plane apart, or `in_words` the first two together and the third.
#[inline(always)]
pub(super) fn value<S: Simd, const P: usize>(s: S, sums: &[S::I; P], in_words: bool) -> S::V {
    // Two digits fit an i32: |Σ| is below 2³⁰ for groups of 128 and 8 bits.
    let low = if in_words { sums[0] } else { s.int_add(s.int_shl(sums[1], 8), sums[0]) };
    let low = s.to_float(low);
    let top = if in_words { sums[1] } else { sums[P - 1] };
    if P == 3 { s.fma(s.to_float(top), s.splat(TOP as f32), low) } else { low }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cpu::isa::{Isa, Token};

    struct Split([f32; LANES]);

    impl Kernel for Split {
        type Output = [[i32; LANES]; 3];

        #[inline(always)]
        fn run<S: Simd>(self, s: S) -> Self::Output {
            let (low, top) = split(s, s.to_int(s.load(&self.0)));
            let mut out = [[0; LANES]; 3];
            for (v, out) in [low, top, digits(s, low, top)].into_iter().zip(&mut out) {
                s.int_store(v, out);
            }
            out
        }
    }

    #[test]
    fn digits_make_up_the_number() {
        // Breaks if the largest numbers have digits that do not fit, or a digit is taken wrongly.
        let largest = 8_323_199;
        let middle = (-70_000..70_000).step_by(7).chain([0, 127, 128, 32_639, 32_640, TOP, TOP / 2]);
        let ends = (largest - 40_000..=largest).step_by(11);
        let numbers: Vec<i32> = middle.chain(ends).flat_map(|x| [x, -x]).chain([largest, -largest]).collect();
        for isa in Isa::ALL.into_iter().filter_map(Token::new) {
            for numbers in numbers.chunks(LANES) {
                let x: [f32; LANES] = std::array::from_fn(|i| *numbers.get(i).unwrap_or(&0) as f32);
                let [low, top, digits] = isa.run(Split(x));
                for (i, &x) in numbers.iter().enumerate() {
                    assert_eq!(low[i] + TOP * top[i], x, "{}: {x}", isa.isa());
                    assert!(i16::try_from(low[i]).is_ok() && i8::try_from(top[i]).is_ok(), "{x}");
                    let digit = |p: usize| i32::from(digits[i / 4 * 4 + p].to_le_bytes()[i % 4] as i8);
                    assert_eq!(digit(0) + 256 * (digit(1) + 255 * digit(2)), x, "{}: {x}", isa.isa());
                }
            }
        }
    }
}
