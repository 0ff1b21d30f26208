//! Products of one token: codes come from memory into the products.
//!
//! Nothing is stored between the two, and while bytes are waited for, sums of those before are computed. Sums, and the
//! order in which groups are added, are those of `fixed.rs`, to the bit.

use std::marker::PhantomData;
use std::ops::Range;

use quant::Format;

use super::blocks::{PART_COLS, SLOTS_MAX, Scales, Sink, Strip, Strips};
use super::codes::{Codes, LANE_COLS, Rows, Tile, max, run};
use super::fixed::{Layout, add_group, has_many_registers, has_registers, in_words, n_word, value};
use super::simd::{Kernel, LANES, Lanes, Simd};

/// Whether a format is taken by a set with registers for sums: if strips do not go beyond a row, nor beyond a group of
/// an affine format, whose numbers must also be bytes.
pub(super) struct IsDirect {
    pub(super) format: Format,
    pub(super) layout: Layout,
}

impl Kernel for IsDirect {
    type Output = bool;

    #[inline(always)]
    fn run<S: Simd>(self, _: S) -> bool {
        let Layout { cols, shape, .. } = self.layout;
        if !has_registers(S::N_SUM) {
            return false;
        }
        match self.format {
            Format::Affine { .. } | Format::AffineF16 { .. } => {
                shape.group.is_multiple_of(shape.strip) && !in_words::<S>(shape.run())
            }
            _ => cols.is_multiple_of(shape.strip),
        }
    }
}

/// Adds the products of eight groups of an affine format with two blocks of 16 rows.
pub(super) struct DotAffine<'a, C, const P: usize> {
    pub(super) layout: Layout,
    pub(super) rows: [Rows<'a>; 2],
    pub(super) groups: Range<usize>,
    /// For scales and biases.
    pub(super) tiles: &'a mut [Tile; 2],
    /// The token's activations.
    pub(super) x: &'a [i32],
    pub(super) totals: &'a mut [Lanes; 2],
    pub(super) codes: PhantomData<C>,
}

impl<C: Codes, const P: usize> Kernel for DotAffine<'_, C, P> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(mut self, s: S) {
        // Known when compiled: no code is made for sets that do not take this way.
        assert!(const { has_registers(S::N_SUM) }, "registers for sums");
        if has_many_registers(S::N_SUM) {
            self.blocks::<S, 2>(s, 0);
        } else {
            self.blocks::<S, 1>(s, 0);
            self.blocks::<S, 1>(s, 1);
        }
    }
}

impl<C: Codes, const P: usize> DotAffine<'_, C, P> {
    /// The same for `R` of the blocks.
    #[inline(always)]
    fn blocks<S: Simd, const R: usize>(&mut self, s: S, first_block: usize) {
        let (max, group_cols) = (max(C::BITS as u8), self.layout.shape.group);
        let (n_strip, n_word) = (group_cols / C::STRIP_COLS, n_word::<S>(P, run(max)));
        let (numbers, facts) = self.x.split_at(self.layout.n_number());
        let (rows, tiles) = (&self.rows[first_block..][..R], &mut self.tiles[first_block..][..R]);
        let (mut from, mut total) = ([(std::ptr::null(), 0, std::ptr::null()); R], [s.splat(0.0); R]);
        for r in 0..R {
            rows[r].decode_scales::<S, C>(s, self.groups.start, &mut tiles[r]);
            let (first, stride) = if has_many_registers(S::N_SUM) {
                rows[r].codes::<C>(&self.groups, &mut tiles[r].stage)
            } else {
                rows[r].codes_by_line::<C>(&self.groups, &mut tiles[r].stage)
            };
            from[r] = (first, stride, rows[r].next_codes::<C>(self.groups.start));
            total[r] = s.load(&self.totals[first_block + r].0);
        }
        for (g, group) in self.groups.clone().enumerate() {
            let n_number = group_cols / LANE_COLS * n_word;
            let (numbers, facts) =
                (&numbers[group * n_number..][..n_number], &facts[group * (2 + P)..][..2 + P]);
            let mut sums = [[s.int_splat(0); P]; R];
            let mut parts = sums;
            for p in 0..P {
                let start = s.int_splat(facts[2 + p]);
                for r in 0..R {
                    sums[r][p] = start;
                }
            }
            for i in 0..n_strip {
                let x = &numbers[i * C::STRIP_VECTORS * n_word..][..C::STRIP_VECTORS * n_word];
                let at = (g * n_strip + i) * C::STRIP_BYTES;
                let mut words = [[s.int_splat(0); 4]; R];
                for r in 0..R {
                    let (first, stride, next) = from[r];
                    for line in (0..C::STRIP_BYTES * LANES).step_by(64) {
                        s.prefetch(next.wrapping_add(at * LANES + line));
                    }
                    // SAFETY: `Rows::codes` gave 16 rows with the bytes of all strips.
                    words[r] = C::words(s, unsafe { s.load_rows(first.wrapping_add(at), stride) });
                }
                unrolled!(K in 0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 => {
                    if K < C::STRIP_VECTORS {
                        let (x, place) = (&x[K * n_word..][..n_word], (K, C::STRIP_VECTORS));
                        for r in 0..R {
                            let codes = C::vector(s, &words[r], K);
                            accumulate(s, codes, max, place, x, &mut sums[r], &mut parts[r]);
                        }
                    }
                });
            }
            for r in 0..R {
                let value = value(s, &sums[r], in_words::<S>(run(max)));
                total[r] = add_group(s, total[r], value, (&tiles[r].scales[g], &tiles[r].biases[g]), facts);
            }
        }
        for r in 0..R {
            s.store(total[r], &mut self.totals[first_block + r].0);
        }
    }
}

/// Adds the products of the codes, of which `max` is the largest, of vector `k` of `n` that come one after the other:
/// sums in 16 bits, `parts`, do not outlast these.
#[inline(always)]
fn accumulate<S: Simd, const P: usize>(
    s: S,
    codes: S::I,
    max: u8,
    (k, n): (usize, usize),
    x: &[i32],
    sums: &mut [S::I; P],
    parts: &mut [S::I; P],
) {
    let run = run(max);
    if in_words::<S>(run) {
        let mask = s.int_splat(0x00ff_00ff);
        let halves = [s.int_and(codes, mask), s.int_and(s.int_shr(codes, 8), mask)];
        for w in 0..n_word::<S>(P, run) {
            sums[w / 2] = s.dot2_words(sums[w / 2], halves[w % 2], s.int_splat(x[w]));
        }
    } else if S::IS_DOT4_SLOW && run > 1 {
        for p in 0..P {
            parts[p] = s.dot2_bytes(parts[p], codes, s.int_splat(x[p]));
        }
        if (k + 1) % run == 0 || k + 1 == n {
            for p in 0..P {
                sums[p] = s.dot2_words(sums[p], parts[p], s.int_splat(0x0001_0001));
                parts[p] = s.int_splat(0);
            }
        }
    } else {
        for p in 0..P {
            sums[p] = s.dot4(sums[p], codes, s.int_splat(x[p]));
        }
    }
}

/// Adds the products of some groups of columns with two blocks of 16 rows, strip by strip.
pub(super) struct DotStrips<'a, B, const P: usize> {
    pub(super) layout: Layout,
    pub(super) rows: &'a [Rows<'a>; 2],
    pub(super) groups: Range<usize>,
    /// For scales and biases.
    pub(super) tiles: &'a mut [Tile; 2],
    /// The token's activations.
    pub(super) x: &'a [i32],
    pub(super) totals: &'a mut [Lanes; 2],
    pub(super) strip: PhantomData<B>,
}

impl<B: Strip, const P: usize> Kernel for DotStrips<'_, B, P> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        // As above.
        assert!(const { has_registers(S::N_SUM) }, "registers for sums");
        let Self { layout, rows, groups, tiles, x, totals, .. } = self;
        let (numbers, facts) = x.split_at(layout.n_number());
        let (n_group, n_number) = (B::COLS / B::GROUP, B::COLS / LANE_COLS * n_word::<S>(P, run(B::MAX)));
        let numbers = &numbers[groups.start / n_group * n_number..];
        let facts = &facts[groups.start * (2 + P)..];
        let cols = groups.start * B::GROUP..groups.end * B::GROUP;
        let mut values = [Lanes::default(); PART_COLS / 16];
        for r in 0..2 {
            let tile = &mut tiles[r];
            let strips = Strips::<B>::new(s, &rows[r], &cols, tile);
            let Tile { scales, biases, head, .. } = tile;
            let mut total = s.load(&totals[r].0);
            for i in 0..strips.n {
                let at = strips.at(i);
                let (numbers, facts) =
                    (&numbers[i * n_number..][..n_number], &facts[i * n_group * (2 + P)..]);
                let (scales, biases) = (&mut scales[i * n_group..], &mut biases[i * n_group..]);
                // SAFETY: `Strips` gives strips that can be read.
                unsafe { B::head(s, at, &mut Scales { scales: &mut *scales, biases: &mut *biases }, head) };
                for section in 0..B::SECTIONS {
                    let mut sums = Sums::<S, B, P>::new(s, numbers, section, facts);
                    // SAFETY: as above.
                    unsafe { B::codes(s, at, head, section, &mut sums) };
                    for slot in 0..B::SLOTS {
                        let value = value(s, &sums.sums[slot], const { in_words::<S>(run(B::MAX)) });
                        s.store(value, &mut values[B::group(section, slot)].0);
                    }
                }
                for g in 0..n_group {
                    let (value, facts) = (s.load(&values[g].0), &facts[g * (2 + P)..][..2 + P]);
                    total = add_group(s, total, value, (&scales[g], &biases[g]), facts);
                }
            }
            s.store(total, &mut totals[r].0);
        }
    }
}

/// The sums of the groups of section `section` of a strip, as sink of its codes.
struct Sums<'a, S: Simd, B, const P: usize> {
    /// Those of the strip.
    numbers: &'a [i32],
    section: usize,
    /// Of each slot; as those of a tile.
    sums: [[S::I; P]; SLOTS_MAX],
    /// Those in 16 bits.
    parts: [[S::I; P]; SLOTS_MAX],
    strip: PhantomData<B>,
}

impl<'a, S: Simd, B: Strip, const P: usize> Sums<'a, S, B, P> {
    /// `numbers` and `facts` are those of the strip.
    #[inline(always)]
    fn new(s: S, numbers: &'a [i32], section: usize, facts: &[i32]) -> Self {
        assert!(numbers.len() == B::COLS / LANE_COLS * n_word::<S>(P, run(B::MAX)), "the numbers of a strip");
        let zeros = [[s.int_splat(0); P]; SLOTS_MAX];
        let mut sums = zeros;
        for slot in 0..B::SLOTS {
            for p in 0..P {
                sums[slot][p] = s.int_splat(facts[B::group(section, slot) * (2 + P) + 2 + p]);
            }
        }
        Self { numbers, section, sums, parts: zeros, strip: PhantomData }
    }
}

impl<S: Simd, B: Strip, const P: usize> Sink<S> for Sums<'_, S, B, P> {
    #[inline(always)]
    fn code(&mut self, s: S, slot: usize, k: usize, codes: S::I) {
        let (n_word, n_vector) = (n_word::<S>(P, run(B::MAX)), B::GROUP / LANE_COLS);
        let at = (B::group(self.section, slot) * n_vector + k) * n_word;
        debug_assert!(at + n_word <= self.numbers.len(), "vector {k} of slot {slot}");
        // SAFETY: groups and vectors are those of the strip, whose numbers these are.
        let x = unsafe { self.numbers.get_unchecked(at..at + n_word) };
        let (sums, parts) = (&mut self.sums[slot], &mut self.parts[slot]);
        accumulate(s, codes, B::MAX, (k, n_vector), x, sums, parts);
    }
}
