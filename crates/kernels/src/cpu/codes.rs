//! Rows of quantised matrices, decoded to bytes in the first-level cache.
//!
//! Matrix kernels work on 16 rows at a time, a lane each: codes of one byte, four columns a lane. For several tokens
//! [`Decode`] writes those of eight groups of columns to the first-level cache, scales and biases as f32 beside them;
//! for a single one they stay in registers. A new format is one more [`Codes`] and one more arm in [`with_codes`].

use std::marker::PhantomData;
use std::ops::Range;

use quant::{Format, MatrixRef};

use super::blocks;
use super::simd::{Kernel, LANES, Lanes, Simd};

/// Groups of columns that are decoded at a time, of formats with planes of bf16 or f16 scales.
pub(super) const N_GROUP: usize = 8;
/// The most of any format.
const N_GROUP_MAX: usize = 16;
/// The most columns of a group.
const GROUP_MAX: usize = 128;
/// Columns of a lane.
pub(super) const LANE_COLS: usize = 4;
/// Bytes of a row that are loaded at once.
pub(super) const LOAD_BYTES: usize = 16;
/// Bytes of a row that eight groups take at most.
const STAGE_BYTES: usize = N_GROUP * GROUP_MAX + LOAD_BYTES;

/// Bytes of a cache line.
const LINE_BYTES: usize = 64;
/// Lines that lie so far apart share a set of a first-level cache with sets for 64 lines, which nearly all have.
const SET_BYTES: usize = 4096;

/// What products need to know of a format's codes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Shape {
    /// Columns that share a scale.
    pub(super) group: usize,
    /// Columns that are decoded at a time.
    pub(super) strip: usize,
    /// What codes count from.
    pub(super) middle: i32,
    /// As [`Order`].
    pub(super) order: usize,
    /// The largest code.
    pub(super) max: u8,
    /// Groups that are decoded at a time.
    pub(super) n_group: usize,
}

impl Shape {
    /// `None` for formats without codes.
    pub(super) fn of(format: Format) -> Option<Self> {
        let (Format::Affine { bits, group } | Format::AffineF16 { bits, group }) = format else {
            return blocks::visit(format, blocks::ShapeOf);
        };
        let (Order(order), strip) = with_codes!(bits, C => (C::ORDER, C::STRIP_COLS));
        let (group, middle) = (group as usize, middle(bits));
        Some(Self { group, strip, middle, order, max: max(bits), n_group: N_GROUP })
    }
}

/// The longest of [`Shape::run`].
pub(super) const RUN_MAX: usize = 8;

impl Shape {
    /// Over how many lane vectors sums of products of two bytes stay in 16 bits: see [`run`].
    pub(super) fn run(&self) -> usize {
        run(self.max)
    }
}

/// Over how many lane vectors sums of products of two bytes stay in 16 bits, if the largest code is `max`: a power of
/// two, or 0 if codes can be 128 or more.
pub(super) const fn run(max: u8) -> usize {
    // Numbers are from -128 to 127.
    match (i16::MAX as usize / (2 * 128 * max as usize)).checked_ilog2() {
        Some(log) if 1 << log < RUN_MAX => 1 << log,
        Some(_) => RUN_MAX,
        None => 0,
    }
}

/// 16 rows, some groups of columns.
pub(super) struct Tile {
    /// `[columns / 4]`, a lane each row: four codes.
    pub(super) codes: [Lanes<i32>; N_GROUP * GROUP_MAX / LANE_COLS],
    /// `[group]`, a lane each row.
    pub(super) scales: [Lanes; N_GROUP_MAX],
    /// The same, for codes that are counted from their middle: `bias + middle·scale`.
    pub(super) biases: [Lanes; N_GROUP_MAX],
    /// What a strip of blocks is decoded with.
    pub(super) head: blocks::Head,
    /// Rows copied from where there are fewer than 16, or too few bytes behind them.
    pub(super) stage: Stage,
}

/// Bytes of 16 rows.
type Stage = [[u8; STAGE_BYTES]; LANES];

impl Default for Tile {
    fn default() -> Self {
        Self {
            codes: [Lanes([0; LANES]); N_GROUP * GROUP_MAX / LANE_COLS],
            scales: Default::default(),
            biases: Default::default(),
            head: [Lanes([0; LANES]); _],
            stage: [[0; STAGE_BYTES]; LANES],
        }
    }
}

/// A format's codes.
pub(super) trait Codes {
    /// Bits of a code.
    const BITS: usize;
    /// Codes of a row are decoded by so many bytes, at most 16.
    const STRIP_BYTES: usize;
    /// Columns of as many bytes.
    const STRIP_COLS: usize = Self::STRIP_BYTES * 8 / Self::BITS;
    /// Lane vectors of as many columns.
    const STRIP_VECTORS: usize = Self::STRIP_COLS / LANE_COLS;
    /// Which columns share a lane.
    const ORDER: Order;

    /// 16 bytes of 16 rows, as [`Simd::load_rows`] gives them, turned so that a lane is a row.
    fn words<S: Simd>(s: S, rows: [S::I; 4]) -> [S::I; 4];
    /// Lane vector `i` of the strip.
    fn vector<S: Simd>(s: S, words: &[S::I; 4], i: usize) -> S::I;
}

/// The middle of the codes of `bits` bits. Codes are taken relative to it: sums of `q·x` and `bias · Σ x` would
/// otherwise be large and nearly cancel.
pub(super) const fn middle(bits: u8) -> i32 {
    1 << (bits - 1)
}

/// The largest code of `bits` bits.
pub(super) const fn max(bits: u8) -> u8 {
    u8::MAX >> (8 - bits)
}

/// Lane vectors in steps of `n`: byte `i` of vector `n·j + k` is column `4·n·j + n·i + k`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Order(pub(super) usize);

/// Codes of 2, 4 or 8 bits: a lane holds the same bits of each byte of a 32-bit word.
pub(super) struct Words<const BITS: usize>;

impl<const BITS: usize> Codes for Words<BITS> {
    const BITS: usize = BITS;
    const STRIP_BYTES: usize = LOAD_BYTES;
    const ORDER: Order = Order(8 / BITS);

    #[inline(always)]
    fn words<S: Simd>(s: S, rows: [S::I; 4]) -> [S::I; 4] {
        s.swap_lanes(rows)
    }

    #[inline(always)]
    fn vector<S: Simd>(s: S, words: &[S::I; 4], i: usize) -> S::I {
        let n = 8 / BITS;
        let mask = s.int_splat(i32::from_le_bytes([((1u32 << BITS) - 1) as u8; 4]));
        if BITS == 8 { words[i] } else { s.int_and(s.int_shr(words[i / n], (i % n * BITS) as u32), mask) }
    }
}

/// Codes that straddle bytes: 3, 5 or 6 bits.
pub(super) struct Straddling<const BITS: usize>;

impl<const BITS: usize> Codes for Straddling<BITS> {
    const BITS: usize = BITS;
    const STRIP_BYTES: usize = 2 * BITS;
    const ORDER: Order = Order(1);

    #[inline(always)]
    fn words<S: Simd>(s: S, rows: [S::I; 4]) -> [S::I; 4] {
        let mut spread = rows;
        for i in 0..4 {
            spread[i] = s.spread_codes::<BITS>(rows[i]);
        }
        s.swap_lanes(spread)
    }

    #[inline(always)]
    fn vector<S: Simd>(_: S, words: &[S::I; 4], i: usize) -> S::I {
        words[i]
    }
}

/// 16 rows of a quantised matrix. Those behind the last one repeat it.
#[derive(Clone, Copy)]
pub(super) struct Rows<'a> {
    pub(super) w: MatrixRef<'a>,
    /// Columns of a group.
    pub(super) group: usize,
    pub(super) first: usize,
    /// What will be needed next, a matrix and its first row: its bytes are fetched meanwhile.
    pub(super) next: (MatrixRef<'a>, usize),
}

impl<'a> Rows<'a> {
    /// The codes of groups `groups`: pointer to those of the first row and distance of the rows; 16 rows can be read up
    /// to [`LOAD_BYTES`] behind the start of the last strip.
    #[inline(always)]
    pub(super) fn codes<C: Codes>(&self, groups: &Range<usize>, stage: &mut Stage) -> (*const u8, usize) {
        let (from, n) = self.span::<C>(groups);
        self.plane().rows(from, n, stage)
    }

    /// The same for reading once, in pieces, where the first-level cache may have fewer ways than there are rows.
    #[inline(always)]
    pub(super) fn codes_by_line<C: Codes>(
        &self,
        groups: &Range<usize>,
        stage: &mut Stage,
    ) -> (*const u8, usize) {
        let (from, n) = self.span::<C>(groups);
        match self.plane().lines(from, n, stage) {
            Some(rows) => rows,
            None => self.plane().rows(from, n, stage),
        }
    }

    /// Where the codes of these groups begin in a row, and how many bytes are read.
    #[inline(always)]
    fn span<C: Codes>(&self, groups: &Range<usize>) -> (usize, usize) {
        let n_strip = (groups.len() * self.group).div_ceil(C::STRIP_COLS);
        (groups.start * self.group * C::BITS / 8, (n_strip - 1) * C::STRIP_BYTES + LOAD_BYTES)
    }

    #[inline(always)]
    fn plane(&self) -> Plane<'a> {
        let (w, first) = (self.w, self.first);
        Plane { bytes: w.codes, row_bytes: w.format.row_bytes(w.cols), n_row: w.rows, first }
    }

    /// Bytes `from .. from + n` of the codes of 16 rows: pointer to those of the first row and distance of the rows.
    /// What lies behind a row's end means nothing.
    #[inline(always)]
    pub(super) fn code_bytes(&self, from: usize, n: usize, stage: &mut Stage) -> (*const u8, usize) {
        self.plane().rows(from, n, stage)
    }

    /// The same of the scales; those that will be needed next are fetched meanwhile.
    #[inline(always)]
    pub(super) fn scale_bytes<S: Simd>(
        &self,
        s: S,
        from: usize,
        n: usize,
        stage: &mut Stage,
    ) -> (*const u8, usize) {
        let ((w, first), (next_w, next_first)) = ((self.w, self.first), self.next);
        let next_at = next_first * next_w.format.scale_row_bytes(next_w.cols) + from * LANES;
        let next = next_w.scales.as_ptr().wrapping_add(next_at);
        for line in (0..n * LANES).step_by(64) {
            s.prefetch(next.wrapping_add(line));
        }
        let row_bytes = w.format.scale_row_bytes(w.cols);
        Plane { bytes: w.scales, row_bytes, n_row: w.rows, first }.rows(from, n, stage)
    }

    /// Where to fetch from while the codes from `group` on are used: the next rows in the order in which they lie in
    /// memory, not in that in which they will be used.
    #[inline(always)]
    pub(super) fn next_codes<C: Codes>(&self, group: usize) -> *const u8 {
        self.next_bytes(group * self.group * C::BITS / 8)
    }

    /// The same while the bytes from `from` on of each row are used.
    #[inline(always)]
    pub(super) fn next_bytes(&self, from: usize) -> *const u8 {
        let (w, first) = self.next;
        w.codes.as_ptr().wrapping_add(first * w.format.row_bytes(w.cols) + from * LANES)
    }

    /// Scales and biases of up to eight groups from `group` on; what lies behind the last group means nothing.
    #[inline(always)]
    pub(super) fn decode_scales<S: Simd, C: Codes>(&self, s: S, group: usize, tile: &mut Tile) {
        let Tile { scales, biases, stage, .. } = tile;
        let (w, first, row_bytes) = (self.w, self.first, self.w.format.scale_row_bytes(self.w.cols));
        let middle = s.splat(middle(C::BITS as u8) as f32);
        let (next_w, next_first) = self.next;
        let next_at = next_first * next_w.format.scale_row_bytes(next_w.cols) + 2 * group * LANES;
        let is_f16 = matches!(w.format, Format::AffineF16 { .. });
        let planes = [(w.scales, next_w.scales, &mut *scales), (w.biases, next_w.biases, &mut *biases)];
        for (bytes, next, to) in planes {
            let plane = Plane { bytes, row_bytes, n_row: w.rows, first };
            let next = next.as_ptr().wrapping_add(next_at);
            for line in (0..LOAD_BYTES * LANES).step_by(64) {
                s.prefetch(next.wrapping_add(line));
            }
            let (rows, stride) = plane.rows(2 * group, LOAD_BYTES, stage);
            // SAFETY: `Plane::rows` gave 16 rows of these bytes.
            let pairs = s.swap_lanes(unsafe { s.load_rows(rows, stride) });
            for j in 0..4 {
                let [even, odd] = if is_f16 { s.f16_pairs(pairs[j]) } else { s.bf16_pairs(pairs[j]) };
                s.store(even, &mut to[2 * j].0);
                s.store(odd, &mut to[2 * j + 1].0);
            }
        }
        for g in 0..N_GROUP {
            let bias = s.fma(middle, s.load(&scales[g].0), s.load(&biases[g].0));
            s.store(bias, &mut biases[g].0);
        }
    }
}

/// Decodes groups `groups` (at most eight) of 16 rows.
pub(super) struct Decode<'a, C> {
    pub(super) rows: &'a Rows<'a>,
    pub(super) groups: Range<usize>,
    pub(super) tile: &'a mut Tile,
    pub(super) codes: PhantomData<C>,
}

impl<C: Codes> Kernel for Decode<'_, C> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let Self { rows, groups, tile, .. } = self;
        rows.decode_scales::<S, C>(s, groups.start, tile);
        let next = rows.next_codes::<C>(groups.start);
        let n_strip = (groups.len() * rows.group).div_ceil(C::STRIP_COLS);
        let (from, stride) = rows.codes::<C>(&groups, &mut tile.stage);
        for (i, to) in tile.codes.chunks_exact_mut(C::STRIP_VECTORS).take(n_strip).enumerate() {
            for line in (0..C::STRIP_BYTES * LANES).step_by(64) {
                s.prefetch(next.wrapping_add(i * C::STRIP_BYTES * LANES + line));
            }
            // SAFETY: `Rows::codes` gave 16 rows with the bytes of all strips.
            let words = C::words(s, unsafe { s.load_rows(from.wrapping_add(i * C::STRIP_BYTES), stride) });
            for j in 0..C::STRIP_VECTORS {
                s.int_store(C::vector(s, &words, j), &mut to[j].0);
            }
        }
    }
}

/// 16 rows of a plane of a matrix.
#[derive(Clone, Copy)]
struct Plane<'a> {
    bytes: &'a [u8],
    row_bytes: usize,
    n_row: usize,
    first: usize,
}

impl Plane<'_> {
    /// Byte `from` of the first row, of which `n` can be read, as can those of the 15 rows that follow, each the
    /// returned number of bytes behind the one before. In place if all that lies in the plane, else copied to `stage`.
    #[inline(always)]
    fn rows(&self, from: usize, n: usize, stage: &mut Stage) -> (*const u8, usize) {
        let Self { bytes, row_bytes, n_row, first } = *self;
        if first + LANES <= n_row && (first + LANES - 1) * row_bytes + from + n <= bytes.len() {
            return (bytes[first * row_bytes + from..].as_ptr(), row_bytes);
        }
        assert!(n <= STAGE_BYTES, "{n} bytes of a row at once");
        for (r, to) in stage.iter_mut().enumerate() {
            let row = (first + r).min(n_row - 1) * row_bytes;
            let from = &bytes[row + from..row + row_bytes.min(from + n)];
            to[..from.len()].copy_from_slice(from);
        }
        (stage.as_ptr().cast(), STAGE_BYTES)
    }

    /// The same, copied to `stage` line by line; `None` unless all rows share sets of the cache. There they would push
    /// each other out before all of a line was used.
    #[inline(always)]
    fn lines(&self, from: usize, n: usize, stage: &mut Stage) -> Option<(*const u8, usize)> {
        let Self { bytes, row_bytes, n_row, first } = *self;
        let is_there = first + LANES <= n_row && (first + LANES - 1) * row_bytes + from + n <= bytes.len();
        if !row_bytes.is_multiple_of(SET_BYTES) || !n.is_multiple_of(LINE_BYTES) || !is_there {
            return None;
        }
        let to = stage.as_flattened_mut().as_chunks_mut::<LINE_BYTES>().0;
        for r in 0..LANES {
            let lines = bytes[(first + r) * row_bytes + from..][..n].as_chunks::<LINE_BYTES>().0;
            for i in 0..lines.len() {
                to[r * lines.len() + i] = lines[i];
            }
        }
        Some((stage.as_ptr().cast(), n))
    }
}

/// Evaluates `$e` with `$codes` standing for the [`Codes`] of so many bits.
macro_rules! with_codes {
    ($bits:expr, $codes:ident => $e:expr) => {{
        #[allow(unused_imports)]
        use $crate::cpu::codes::{Straddling, Words};
        match $bits {
            2 => {
                type $codes = Words<2>;
                $e
            }
            3 => {
                type $codes = Straddling<3>;
                $e
            }
            4 => {
                type $codes = Words<4>;
                $e
            }
            5 => {
                type $codes = Straddling<5>;
                $e
            }
            6 => {
                type $codes = Straddling<6>;
                $e
            }
            8 => {
                type $codes = Words<8>;
                $e
            }
            bits => panic!("codes of {bits} bits"),
        }
    }};
}
pub(super) use with_codes;
