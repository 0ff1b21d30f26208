//! Formats whose codes and scales lie together in blocks, and those of microscaling floats: 16 rows, 256 columns at a
//! time. Codes go to a [`Sink`]: to bytes in the first-level cache, or for a single token right into sums of products.
//!
//! A lane is a row, as everywhere in `codes.rs`, so scales that are packed in a block are taken apart for 16 rows at
//! once. A new kind is one more [`Strip`] and one more arm in [`visit`].

mod iq;
mod k;
mod legacy;
mod mlx;

use std::marker::PhantomData;
use std::ops::Range;

use quant::{Block, Format};

use super::codes::{LANE_COLS, LOAD_BYTES, Rows, Shape, Tile};
use super::isa::Token;
use super::simd::{Kernel, LANES, Lanes, Simd};

/// Columns that are decoded at a time, if a row has so many left.
pub(super) const PART_COLS: usize = 256;

/// A kind of format.
pub(super) trait Strip {
    /// Columns of a strip: a block, or as many codes as are loaded at once.
    const COLS: usize;
    /// Bytes of a strip in the plane of codes.
    const BYTES: usize;
    /// Columns that share a scale.
    const GROUP: usize;
    /// What codes count from.
    const MIDDLE: u8;
    /// The largest code.
    const MAX: u8;
    /// As [`super::codes::Order`].
    const ORDER: usize = 1;
    /// Parts in which a strip is decoded, each with codes of [`Strip::SLOTS`] groups.
    const SECTIONS: usize = 1;
    /// At most [`SLOTS_MAX`].
    const SLOTS: usize = 1;

    /// The group whose codes section `section` puts in slot `slot`.
    #[inline(always)]
    fn group(section: usize, slot: usize) -> usize {
        section * Self::SLOTS + slot
    }

    /// Decodes what a strip holds beside codes, and what several sections need: `at` is where it begins.
    ///
    /// # Safety
    /// Of the 16 rows, [`Strip::BYTES`] and [`LOAD_BYTES`] behind them can be read.
    unsafe fn head<S: Simd>(s: S, at: At, to: &mut Scales<'_>, head: &mut Head);

    /// Decodes the codes of a section.
    ///
    /// # Safety
    /// As for [`Strip::head`], which has filled `head`.
    unsafe fn codes<S: Simd>(s: S, at: At, head: &Head, section: usize, to: &mut impl Sink<S>);

    /// Decodes scales that lie in a plane of their own, for columns `cols`.
    fn scales<S: Simd>(_s: S, _rows: &Rows<'_>, _cols: &Range<usize>, _tile: &mut Tile) {}
}

/// The most of [`Strip::SLOTS`].
pub(super) const SLOTS_MAX: usize = 4;

/// What sections of a strip share: room for its codes as bytes, a row after the other.
pub(super) type Head = [Lanes<i32>; PART_COLS / LANE_COLS];

/// Where codes go.
pub(super) trait Sink<S: Simd> {
    /// Lane vector `k` of the group in slot `slot`. Those of a slot come in their order.
    fn code(&mut self, s: S, slot: usize, k: usize, codes: S::I);
}

/// A tile as sink of section `section`.
struct Stored<'a, B> {
    /// Those of the strip.
    codes: &'a mut [Lanes<i32>],
    section: usize,
    strip: PhantomData<B>,
}

impl<S: Simd, B: Strip> Sink<S> for Stored<'_, B> {
    #[inline(always)]
    fn code(&mut self, s: S, slot: usize, k: usize, codes: S::I) {
        let first = B::group(self.section, slot) * (B::GROUP / LANE_COLS);
        s.int_store(codes, &mut self.codes[first + k].0);
    }
}

/// The first byte of a strip in the first of 16 rows, and the distance of the rows.
#[derive(Clone, Copy)]
pub(super) struct At {
    first: *const u8,
    stride: usize,
    /// Where to fetch from while the strip is read.
    next: *const u8,
}

impl At {
    /// Bytes `from .. from + 16` of each row, turned: lane `r` of vector `i` is bytes `4i .. 4i + 4` of row `r`.
    /// As many bytes are fetched: all at once they would be more than a core can ask for.
    ///
    /// # Safety
    /// They can be read.
    #[inline(always)]
    unsafe fn turned<S: Simd>(self, s: S, from: usize) -> [S::I; 4] {
        for line in (0..LOAD_BYTES * LANES).step_by(64) {
            s.prefetch(self.next.wrapping_add(from * LANES + line));
        }
        // SAFETY: the caller's promise.
        s.swap_lanes(unsafe { s.load_rows(self.first.wrapping_add(from), self.stride) })
    }

    /// The number of `N` bytes, 1, 2 or 4, at byte `from` of each row.
    ///
    /// # Safety
    /// They can be read.
    #[inline(always)]
    unsafe fn words<S: Simd, const N: usize>(self, s: S, from: usize) -> S::I {
        let mut words = [0; LANES];
        for (r, word) in words.iter_mut().enumerate() {
            let at = self.first.wrapping_add(r * self.stride + from);
            // Not a copy of `N` bytes: that is a call where crates are compiled apart.
            // SAFETY: the caller's promise.
            *word = unsafe {
                match N {
                    1 => i32::from(at.read()),
                    2 => i32::from(u16::from_le_bytes(at.cast::<[u8; 2]>().read())),
                    _ => i32::from_le_bytes(at.cast::<[u8; 4]>().read()),
                }
            };
        }
        s.int_load(&words)
    }
}

/// Where scales and biases go: those of a strip and what is behind them.
pub(super) struct Scales<'a> {
    pub(super) scales: &'a mut [Lanes],
    pub(super) biases: &'a mut [Lanes],
}

impl Scales<'_> {
    /// For codes that count from their middle without a bias.
    #[inline(always)]
    fn scale<S: Simd>(&mut self, s: S, g: usize, scale: S::V) {
        s.store(scale, &mut self.scales[g].0);
        s.store(s.splat(0.0), &mut self.biases[g].0);
    }

    /// For codes that count from 0: `bias` is that of the middle.
    #[inline(always)]
    fn scale_and_bias<S: Simd>(&mut self, s: S, g: usize, scale: S::V, bias: S::V) {
        s.store(scale, &mut self.scales[g].0);
        s.store(bias, &mut self.biases[g].0);
    }
}

/// Byte `i` of each lane.
#[inline(always)]
fn byte<S: Simd>(s: S, v: S::I, i: usize) -> S::I {
    s.int_and(s.int_shr(v, 8 * i as u32), s.int_splat(0xff))
}

/// `v` with only the bits of `mask` in each byte.
#[inline(always)]
fn masked<S: Simd>(s: S, v: S::I, mask: u8) -> S::I {
    s.int_and(v, s.int_splat(i32::from_le_bytes([mask; 4])))
}

/// The low halves of bytes and the high ones.
#[inline(always)]
fn nibbles<S: Simd>(s: S, v: S::I) -> [S::I; 2] {
    [masked(s, v, 15), masked(s, s.int_shr(v, 4), 15)]
}

/// A small table of signed numbers, counted from `middle`.
const fn table(numbers: [i8; 16], middle: u8) -> [u8; 16] {
    let mut table = [0; 16];
    let mut i = 0;
    while i < 16 {
        table[i] = (numbers[i] as i16 + middle as i16) as u8;
        i += 1;
    }
    table
}

/// `2^(code − 128)` of a byte a lane: half of an E8M0 scale, for numbers that are doubled.
#[inline(always)]
fn e8m0_half<S: Simd>(s: S, codes: S::I) -> S::V {
    // 0 would be 0: it is 2⁻¹²⁷, doubled.
    let doubled = s.max(s.as_float(s.int_shl(codes, 23)), s.splat(f32::from_bits(0x0040_0000)));
    s.mul(doubled, s.splat(0.5))
}

/// Decodes columns `cols` (at most [`PART_COLS`]) of 16 rows.
pub(super) struct Decode<'a, B> {
    pub(super) rows: &'a Rows<'a>,
    pub(super) cols: Range<usize>,
    pub(super) tile: &'a mut Tile,
    pub(super) strip: PhantomData<B>,
}

impl<B: Strip> Kernel for Decode<'_, B> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let Self { rows, cols, tile, .. } = self;
        let strips = Strips::<B>::new(s, rows, &cols, tile);
        let Tile { codes, scales, biases, head, .. } = tile;
        for i in 0..strips.n {
            let at = strips.at(i);
            let (first, n_group) = (i * B::COLS / LANE_COLS, B::COLS / B::GROUP);
            let (scales, biases) = (&mut scales[i * n_group..], &mut biases[i * n_group..]);
            // SAFETY: `Strips` gives strips that can be read.
            unsafe { B::head(s, at, &mut Scales { scales, biases }, head) };
            for section in 0..B::SECTIONS {
                let codes = &mut codes[first..][..B::COLS / LANE_COLS];
                let mut to = Stored { codes, section, strip: PhantomData::<B> };
                // SAFETY: as above.
                unsafe { B::codes(s, at, head, section, &mut to) };
            }
        }
    }
}

/// The strips of some columns of 16 rows.
pub(super) struct Strips<B> {
    pub(super) n: usize,
    first: At,
    strip: PhantomData<B>,
}

impl<B: Strip> Strips<B> {
    /// Those of columns `cols`, whose scales are decoded if they lie in a plane of their own.
    #[inline(always)]
    pub(super) fn new<S: Simd>(s: S, rows: &Rows<'_>, cols: &Range<usize>, tile: &mut Tile) -> Self {
        B::scales(s, rows, cols, tile);
        let (n, from) = (cols.len().div_ceil(B::COLS), cols.start / B::COLS * B::BYTES);
        let (first, stride) = rows.code_bytes(from, n * B::BYTES + LOAD_BYTES, &mut tile.stage);
        Self { n, first: At { first, stride, next: rows.next_bytes(from) }, strip: PhantomData }
    }

    /// Where strip `i` begins, of whose 16 rows its bytes and [`LOAD_BYTES`] behind them can be read.
    #[inline(always)]
    pub(super) fn at(&self, i: usize) -> At {
        let At { first, stride, next } = self.first;
        At { first: first.wrapping_add(i * B::BYTES), next: next.wrapping_add(i * B::BYTES * LANES), stride }
    }
}

/// What is done for the [`Strip`] of a format.
pub(super) trait Visit {
    type Output;
    fn visit<B: Strip>(self) -> Self::Output;
}

/// Does it; `None` for formats that are not made of strips.
pub(super) fn visit<V: Visit>(format: Format, visitor: V) -> Option<V::Output> {
    Some(match format {
        Format::Mxfp4 => visitor.visit::<mlx::Mxfp4>(),
        Format::Nvfp4 => visitor.visit::<mlx::Nvfp4>(),
        Format::Block(block) => match block {
            Block::Q4_0 => visitor.visit::<legacy::Q4_0>(),
            Block::Q4_1 => visitor.visit::<legacy::Q4_1>(),
            Block::Q5_0 => visitor.visit::<legacy::Q5_0>(),
            Block::Q5_1 => visitor.visit::<legacy::Q5_1>(),
            Block::Q8_0 => visitor.visit::<legacy::Q8_0>(),
            Block::Mxfp4 => visitor.visit::<legacy::Mxfp4>(),
            Block::Q2K => visitor.visit::<k::Q2K>(),
            Block::Q3K => visitor.visit::<k::Q3K>(),
            Block::Q4K => visitor.visit::<k::Q4K>(),
            Block::Q5K => visitor.visit::<k::Q5K>(),
            Block::Q6K => visitor.visit::<k::Q6K>(),
            Block::Iq4Nl => visitor.visit::<legacy::Iq4Nl>(),
            Block::Iq4Xs => visitor.visit::<k::Iq4Xs>(),
            Block::Iq1S => visitor.visit::<iq::Iq1S>(),
            Block::Iq1M => visitor.visit::<iq::Iq1M>(),
            Block::Iq2Xxs => visitor.visit::<iq::Iq2Xxs>(),
            Block::Iq2Xs => visitor.visit::<iq::Iq2Xs>(),
            Block::Iq2S => visitor.visit::<iq::Iq2S>(),
            Block::Iq3Xxs => visitor.visit::<iq::Iq3Xxs>(),
            Block::Iq3S => visitor.visit::<iq::Iq3S>(),
        },
        _ => return None,
    })
}

/// What products need to know of a kind.
pub(super) struct ShapeOf;

impl Visit for ShapeOf {
    type Output = Shape;

    fn visit<B: Strip>(self) -> Shape {
        Shape {
            group: B::GROUP,
            strip: B::COLS,
            middle: i32::from(B::MIDDLE),
            order: B::ORDER,
            max: B::MAX,
            n_group: PART_COLS / B::GROUP,
        }
    }
}

/// [`Decode`], before its kind is known.
pub(super) struct DecodeArgs<'a> {
    pub(super) isa: Token,
    pub(super) rows: &'a Rows<'a>,
    pub(super) cols: Range<usize>,
    pub(super) tile: &'a mut Tile,
}

impl Visit for DecodeArgs<'_> {
    type Output = ();

    fn visit<B: Strip>(self) {
        let Self { isa, rows, cols, tile } = self;
        isa.run_int(Decode { rows, cols, tile, strip: PhantomData::<B> });
    }
}
