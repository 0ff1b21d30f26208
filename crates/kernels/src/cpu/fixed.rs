//! Activations in fixed point, and their products with codes in whole numbers.
//!
//! Each group of columns of a token is `x = unit · X`, with whole numbers `X` of two or three signed bytes: *planes*.
//! Products with codes are then sums of products of bytes, which CPUs have instructions for, and they are exact.
//! With three planes `X` has 24 bits, as many as an f32, and is off by at most 2⁻²⁴ of the group's largest number:
//! what f32 sums lose anyway. So this is the default; two planes are faster where there are many tokens, and an
//! approximation.
//!
//! `y = Σ_g (scale·unit)·Σ (q − m)·X + (bias + m·scale)·Σ x`, `m` the middle code; groups in their order, in f32, the
//! sum of the planes rounded once (two planes) or twice (three). As all inside a group is exact, results do not depend
//! on the instruction set (if it has fused multiply-add), on tiles or on other tokens.

use std::marker::PhantomData;
use std::ops::Range;

use quant::Format;

use super::codes::{Codes, LANE_COLS, Rows, Shape, Tile, with_codes};
use super::simd::{Kernel, LANES, Lanes, Simd};

/// Units are no smaller: their reciprocals and their products with scales must be normal numbers.
const UNIT_MIN: f32 = f32::from_bits((127 - 100) << 23);

/// How a token's activations lie for the matrices of one format.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Layout {
    cols: usize,
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
    fn n_number(&self) -> usize {
        self.cols / LANE_COLS * self.planes
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

/// The largest power-of-two tile of tokens whose sums stay in registers, for two blocks of rows.
pub(super) const fn tile_max(n_sum: usize, planes: usize) -> usize {
    match n_sum / (2 * planes) {
        0..2 => 1,
        2..4 => 2,
        _ => 4,
    }
}

/// Lays out token `t` of a tile of `n_token`.
///
/// The tile: `[cols / 4][n_token][planes]` words of four bytes, in the order of the format's lane vectors; then
/// `[group][n_token]` of unit and sum of the numbers (f32), and what the sums of each plane start from: `−m·Σ X`.
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
        let words = numbers.chunks_exact_mut(n_token * P);
        let mut words = words.map(|words| &mut words[t * P..(t + 1) * P]);
        for (g, x) in row.chunks_exact(layout.shape.group).enumerate() {
            let (unit, sum) = measure::<S, P>(s, x);
            let inverse = s.splat(1.0 / unit);
            let mut sums = s.int_splat(0);
            for x in x.as_chunks::<LANES>().0 {
                let mut ordered = [0.0; LANES];
                for i in 0..LANES {
                    ordered[i] = x[columns[i]];
                }
                let bytes = digits::<S, P>(s, s.to_int(s.mul(s.load(&ordered), inverse)));
                sums = s.dot4::<false>(sums, s.int_splat(0x0101_0101), bytes);
                let mut lanes = [0; LANES];
                s.int_store(bytes, &mut lanes);
                for lanes in lanes.as_chunks::<LANE_COLS>().0 {
                    words.next().expect("a word each four columns").copy_from_slice(&lanes[..P]);
                }
            }
            let mut lanes = [0; LANES];
            s.int_store(sums, &mut lanes);
            let facts = &mut facts[(g * n_token + t) * (2 + P)..][..2 + P];
            (facts[0], facts[1]) = (unit.to_bits() as i32, sum.to_bits() as i32);
            for p in 0..P {
                let sum: i32 = lanes.iter().skip(p).step_by(LANE_COLS).sum();
                facts[2 + p] = -layout.shape.middle * sum;
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
    // The largest number of P balanced digits to base 256.
    let largest = [32_639.0, 8_355_711.0][P - 2];
    let unit = (max / largest).clamp(UNIT_MIN, f32::MAX);
    if P == 2 {
        return unit;
    }
    // The next power of two: then numbers of up to 23 bits are kept exactly.
    let power = f32::from_bits(unit.to_bits() & 0x7f80_0000);
    if power < unit { 2.0 * power } else { power }
}

/// The digits of whole numbers to base 256, from -128 to 127: lane `p` of each four has digit `p` of four numbers.
#[inline(always)]
fn digits<S: Simd, const P: usize>(s: S, x: S::I) -> S::I {
    // With 128 added to each digit but the first they are the bytes of a sum; the top bit takes the 128 off again.
    let half = s.int_splat([0x80, 0x8080][P - 2]);
    s.swap_bytes(s.int_xor(s.int_add(x, half), half))
}

/// Adds the products of some groups with two blocks of 16 rows.
pub(super) struct Dot<'a, const P: usize, const T: usize, const WIDE: bool> {
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

impl<const P: usize, const T: usize, const WIDE: bool> Kernel for Dot<'_, P, T, WIDE> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        // Known when compiled: no code is made for tiles that the set never gets.
        assert!(T <= const { tile_max(S::N_SUM, P) }, "a tile of {T} tokens");
        let Self { layout, tiles, first, n_group, x, totals } = self;
        let (numbers, facts) = x.split_at(T * layout.n_number());
        let n_vector = layout.shape.group / LANE_COLS;
        let mut total = [[s.splat(0.0); 2]; T];
        for t in 0..T {
            for r in 0..2 {
                total[t][r] = s.load(&totals[t][r].0);
            }
        }
        for g in 0..n_group.min(tiles[0].scales.len()) {
            let numbers = &numbers[(first + g) * n_vector * T * P..][..n_vector * T * P];
            let facts = &facts[(first + g) * T * (2 + P)..][..T * (2 + P)];
            let codes =
                [&tiles[0].codes[g * n_vector..][..n_vector], &tiles[1].codes[g * n_vector..][..n_vector]];
            let sums = group_sums::<S, P, T, WIDE>(s, codes, numbers, facts);
            for t in 0..T {
                let facts = &facts[t * (2 + P)..][..2 + P];
                for r in 0..2 {
                    total[t][r] = add_group::<S, P>(s, total[t][r], &sums[t][r], &tiles[r], g, facts);
                }
            }
        }
        for t in 0..T {
            for r in 0..2 {
                s.store(total[t][r], &mut totals[t][r].0);
            }
        }
    }
}

/// `Σ (q − m)·X` of one group, each plane apart.
#[inline(always)]
fn group_sums<S: Simd, const P: usize, const T: usize, const WIDE: bool>(
    s: S,
    codes: [&[Lanes<i32>]; 2],
    numbers: &[i32],
    facts: &[i32],
) -> [[[S::I; P]; 2]; T] {
    let mut sums = [[[s.int_splat(0); P]; 2]; T];
    for t in 0..T {
        for p in 0..P {
            let start = s.int_splat(facts[t * (2 + P) + 2 + p]);
            (sums[t][0][p], sums[t][1][p]) = (start, start);
        }
    }
    for (i, x) in numbers.chunks_exact(T * P).enumerate() {
        let w = [s.int_load(&codes[0][i].0), s.int_load(&codes[1][i].0)];
        for t in 0..T {
            for p in 0..P {
                let x = s.int_splat(x[t * P + p]);
                for r in 0..2 {
                    sums[t][r][p] = s.dot4::<WIDE>(sums[t][r][p], w[r], x);
                }
            }
        }
    }
    sums
}

/// Whether a set keeps the codes of two strips in registers, as [`DotOne`] does.
const fn is_direct(n_sum: usize) -> bool {
    12 <= n_sum
}

/// Whether [`DotOne`] takes a format: it is affine, and its groups are whole strips.
pub(super) struct IsDirect {
    pub(super) format: Format,
}

impl Kernel for IsDirect {
    type Output = bool;

    #[inline(always)]
    fn run<S: Simd>(self, _: S) -> bool {
        let (Format::Affine { bits, group } | Format::AffineF16 { bits, group }) = self.format else {
            return false;
        };
        is_direct(S::N_SUM) && with_codes!(bits, C => usize::from(group).is_multiple_of(C::STRIP_COLS))
    }
}

/// Adds the products of eight groups with two blocks of 16 rows, for one token: codes come from memory into the
/// products.
pub(super) struct DotOne<'a, C, const P: usize> {
    pub(super) layout: Layout,
    pub(super) rows: [Rows<'a>; 2],
    pub(super) groups: Range<usize>,
    /// For scales and biases.
    pub(super) tiles: &'a mut [Tile; 2],
    /// The activations of the token.
    pub(super) x: &'a [i32],
    pub(super) totals: &'a mut [Lanes; 2],
    pub(super) codes: PhantomData<C>,
}

impl<C: Codes, const P: usize> Kernel for DotOne<'_, C, P> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        // Known when compiled: no code is made for sets that do not take this way.
        assert!(const { is_direct(S::N_SUM) }, "room for two strips");
        let Self { layout, rows, groups, tiles, x, totals, .. } = self;
        let (numbers, facts) = x.split_at(layout.n_number());
        let n_strip = layout.shape.group / C::STRIP_COLS;
        let [tile_0, tile_1] = tiles;
        rows[0].decode_scales::<S, C>(s, groups.start, tile_0);
        rows[1].decode_scales::<S, C>(s, groups.start, tile_1);
        let (from_0, stride_0) = rows[0].codes::<C>(&groups, &mut tile_0.stage);
        let (from_1, stride_1) = rows[1].codes::<C>(&groups, &mut tile_1.stage);
        let next = [rows[0].next_codes::<C>(groups.start), rows[1].next_codes::<C>(groups.start)];
        let mut total = [s.load(&totals[0].0), s.load(&totals[1].0)];
        for (g, group) in groups.enumerate() {
            let facts = &facts[group * (2 + P)..][..2 + P];
            let mut sums = [[s.int_splat(0); P]; 2];
            for p in 0..P {
                let start = s.int_splat(facts[2 + p]);
                (sums[0][p], sums[1][p]) = (start, start);
            }
            let numbers =
                &numbers[group * layout.shape.group / LANE_COLS * P..][..layout.shape.group / LANE_COLS * P];
            for (i, x) in numbers.chunks_exact(C::STRIP_VECTORS * P).enumerate() {
                let at = (g * n_strip + i) * C::STRIP_BYTES;
                for line in (0..C::STRIP_BYTES * LANES).step_by(64) {
                    s.prefetch(next[0].wrapping_add(at * LANES + line));
                    s.prefetch(next[1].wrapping_add(at * LANES + line));
                }
                // SAFETY: `Rows::codes` gave 16 rows with the bytes of all strips.
                let words = unsafe {
                    let rows_0 = s.load_rows(from_0.wrapping_add(at), stride_0);
                    [C::words(s, rows_0), C::words(s, s.load_rows(from_1.wrapping_add(at), stride_1))]
                };
                for j in 0..C::STRIP_VECTORS {
                    let w = [C::vector(s, &words[0], j), C::vector(s, &words[1], j)];
                    for p in 0..P {
                        let x = s.int_splat(x[j * P + p]);
                        for r in 0..2 {
                            let sum = &mut sums[r][p];
                            *sum = if C::BITS == 8 {
                                s.dot4::<true>(*sum, w[r], x)
                            } else {
                                s.dot4::<false>(*sum, w[r], x)
                            };
                        }
                    }
                }
            }
            for (r, tile) in [&*tile_0, &*tile_1].into_iter().enumerate() {
                total[r] = add_group::<S, P>(s, total[r], &sums[r], tile, g, facts);
            }
        }
        for r in 0..2 {
            s.store(total[r], &mut totals[r].0);
        }
    }
}

/// `total + (scale·unit)·Σ (q − m)·X + (bias + m·scale)·Σ x` of group `g` of a tile.
#[inline(always)]
fn add_group<S: Simd, const P: usize>(
    s: S,
    total: S::V,
    sums: &[S::I; P],
    tile: &Tile,
    g: usize,
    facts: &[i32],
) -> S::V {
    let unit = s.splat(f32::from_bits(facts[0] as u32));
    let sum = s.splat(f32::from_bits(facts[1] as u32));
    let scale = s.mul(s.load(&tile.scales[g].0), unit);
    let y = s.fma(value::<S, P>(s, sums), scale, total);
    s.fma(s.load(&tile.biases[g].0), sum, y)
}

/// The number whose digits these are.
#[inline(always)]
fn value<S: Simd, const P: usize>(s: S, sums: &[S::I; P]) -> S::V {
    // Two digits fit an i32: |Σ| is below 2²¹ for groups of 128 and 8 bits.
    let low = s.to_float(s.int_add(s.int_shl(sums[1], 8), sums[0]));
    if P == 3 { s.fma(s.to_float(sums[2]), s.splat(65_536.0), low) } else { low }
}
