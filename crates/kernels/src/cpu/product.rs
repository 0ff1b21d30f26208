//! Blocks of rows times tiles of tokens: what all matrix products are made of.
//!
//! The unit of work is two blocks of 16 rows: neighbours in one matrix, or the same rows of two (gate and up). They
//! share the loads of the activations. Quantised matrices take `codes.rs` and `fixed.rs`, plain floats `floats.rs`;
//! which is decided by the format alone, and a token's result is the same in any tile.

use std::cell::RefCell;
use std::marker::PhantomData;
use std::ops::Range;

use quant::{Format, MatrixRef};

use super::codes::{Decode, Rows, Tile, with_codes};
use super::floats::with_floats;
use super::isa::Token;
use super::simd::{Kernel, LANES, Lanes, Simd};
use super::{blocks, direct, fixed, floats};

/// Rows of a block.
pub(super) const BLOCK_ROWS: usize = LANES;
/// Rows of two blocks.
pub(super) const PAIR_ROWS: usize = 2 * BLOCK_ROWS;
/// The most tokens of one call: a multiple of the largest tile.
pub(super) const TOKENS_MAX: usize = 128;

/// How a token's activations lie for a matrix.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Layout {
    Fixed(fixed::Layout),
    Floats { cols: usize },
}

impl Layout {
    /// For matrices of `format` with rows of `cols`, and activations in so many planes if they are in fixed point.
    pub(super) fn new(format: Format, cols: usize, planes: usize) -> Self {
        fixed::Layout::new(format, cols, planes).map_or(Self::Floats { cols }, Self::Fixed)
    }

    /// Vectors that one token takes.
    pub(super) fn n_lanes(&self) -> usize {
        match self {
            Self::Fixed(layout) => layout.n_lanes(),
            Self::Floats { cols } => floats::n_lanes(*cols),
        }
    }

    /// The most tokens of a tile.
    pub(super) fn tile_max(&self, isa: Token) -> usize {
        isa.run_int(TileMax(*self))
    }

    /// Lays out one tile: `row(t)` is token `t` of it, `to` has [`Layout::n_lanes`] vectors a token.
    pub(super) fn prepare<'x>(
        &self,
        isa: Token,
        n_token: usize,
        row: impl Fn(usize) -> &'x [f32],
        to: &mut [Lanes<i32>],
    ) {
        for t in 0..n_token {
            match *self {
                Self::Floats { .. } => floats::prepare(row(t), t, n_token, to),
                Self::Fixed(layout) => {
                    let (row, to) = (row(t), words_mut(to));
                    match layout.planes {
                        2 => isa.run_int(fixed::Prepare::<2> { layout, row, t, n_token, to }),
                        3 => isa.run_int(fixed::Prepare::<3> { layout, row, t, n_token, to }),
                        n => unreachable!("{n} planes"),
                    }
                }
            }
        }
    }
}

struct TileMax(Layout);

impl Kernel for TileMax {
    type Output = usize;

    #[inline(always)]
    fn run<S: Simd>(self, _: S) -> usize {
        match self.0 {
            Layout::Fixed(layout) => fixed::tile_max(S::N_SUM, layout.planes),
            Layout::Floats { .. } => S::TILE,
        }
    }
}

/// The words of some vectors.
fn words(lanes: &[Lanes<i32>]) -> &[i32] {
    // SAFETY: `Lanes<i32>` is 16 i32 and no padding.
    unsafe { std::slice::from_raw_parts(lanes.as_ptr().cast(), lanes.len() * LANES) }
}

/// See [`words`].
fn words_mut(lanes: &mut [Lanes<i32>]) -> &mut [i32] {
    // SAFETY: `Lanes<i32>` is 16 i32 and no padding.
    unsafe { std::slice::from_raw_parts_mut(lanes.as_mut_ptr().cast(), lanes.len() * LANES) }
}

/// Tokens `first .. first + n_token` of a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Span {
    pub(super) first: usize,
    pub(super) n_token: usize,
}

/// Cuts `n_token` tokens into tiles: as many of `max` as go, then smaller powers of two.
pub(super) fn tiles(n_token: usize, max: usize) -> impl Iterator<Item = Span> {
    let mut first = 0;
    std::iter::from_fn(move || {
        let left = n_token - first;
        let n_token = if left >= max { max } else { left.checked_ilog2().map_or(0, |log| 1 << log) };
        let tile = Span { first, n_token };
        first += n_token;
        (n_token > 0).then_some(tile)
    })
}

/// Activations of a batch, tile after tile.
#[derive(Clone, Copy)]
pub(super) struct Inputs<'a> {
    pub(super) layout: Layout,
    pub(super) n_token: usize,
    /// `[n_token * n_lanes]`
    pub(super) lanes: &'a [Lanes<i32>],
}

/// Two blocks of rows.
#[derive(Clone, Copy)]
pub(super) struct Blocks<'a> {
    /// Of one format and number of columns.
    w: [MatrixRef<'a>; 2],
    /// The first rows. Blocks may reach beyond the last row.
    first: [usize; 2],
}

impl<'a> Blocks<'a> {
    /// Rows `first .. first + 32` of one matrix.
    pub(super) fn neighbours(w: MatrixRef<'a>, first: usize) -> Self {
        Self { w: [w, w], first: [first, first + BLOCK_ROWS] }
    }

    /// Rows `first .. first + 16` of two matrices.
    pub(super) fn both(w: [MatrixRef<'a>; 2], first: usize) -> Self {
        assert!(w[0].format == w[1].format && w[0].cols == w[1].cols, "matrices of a pair are alike");
        Self { w, first: [first; 2] }
    }

    /// Products with up to [`TOKENS_MAX`] tokens of `x`, from token `tokens.first` on, a multiple of that. For each
    /// token `use_sums` gets its number and the sums of both blocks. `next` is what this thread will probably multiply
    /// next: it is fetched meanwhile.
    pub(super) fn multiply(
        &self,
        isa: Token,
        x: Inputs<'_>,
        tokens: Span,
        next: Option<Blocks<'a>>,
        mut use_sums: impl FnMut(usize, &[Lanes; 2]),
    ) {
        assert!(
            tokens.n_token <= TOKENS_MAX && tokens.first.is_multiple_of(TOKENS_MAX),
            "a cut of the batch"
        );
        WORK.with_borrow_mut(|work| {
            let totals = &mut work.totals[..tokens.n_token];
            match x.layout {
                Layout::Fixed(layout) => {
                    self.multiply_codes(isa, layout, x, tokens, next, &mut work.tiles, totals)
                }
                Layout::Floats { .. } => self.multiply_floats(isa, x, tokens, totals),
            }
            for (t, sums) in totals.iter().enumerate() {
                use_sums(tokens.first + t, sums);
            }
        });
    }

    /// The activations of a tile.
    fn tile<'x>(x: Inputs<'x>, tile: Span) -> &'x [Lanes<i32>] {
        let n = x.layout.n_lanes();
        &x.lanes[tile.first * n..(tile.first + tile.n_token) * n]
    }

    fn multiply_codes(
        &self,
        isa: Token,
        layout: fixed::Layout,
        x: Inputs<'_>,
        tokens: Span,
        next: Option<Blocks<'a>>,
        work: &mut [Tile; 2],
        totals: &mut [[Lanes; 2]],
    ) {
        let (max, format, shape) = (x.layout.tile_max(isa), self.w[0].format, layout.shape);
        let n_group = self.w[0].cols / shape.group;
        let next = next.unwrap_or(*self);
        let rows = [0, 1].map(|r| Rows {
            w: self.w[r],
            group: shape.group,
            first: self.first[r],
            next: (next.w[r], next.first[r]),
        });
        let is_direct = isa.run_int(direct::IsDirect { format, layout });
        totals.fill([Lanes::default(); 2]);
        for first in (0..n_group).step_by(shape.n_group) {
            let groups = first..n_group.min(first + shape.n_group);
            if let ([totals], true) = (&mut *totals, is_direct) {
                let x = words(Self::tile(x, tokens));
                multiply_one(isa, layout, &rows, groups, work, x, totals);
                continue;
            }
            for r in 0..2 {
                decode(isa, &rows[r], groups.clone(), &mut work[r]);
            }
            for tile in tiles(tokens.n_token, max) {
                let in_batch = Span { first: tokens.first + tile.first, ..tile };
                let dot = DotArgs {
                    layout,
                    tiles: work,
                    groups: groups.clone(),
                    x: words(Self::tile(x, in_batch)),
                    totals: &mut totals[tile.first..tile.first + tile.n_token],
                };
                dot.run(isa, shape.run().min(isa.run_int(fixed::RunMax)));
            }
        }
    }

    fn multiply_floats(&self, isa: Token, x: Inputs<'_>, tokens: Span, totals: &mut [[Lanes; 2]]) {
        let (w, first) = (self.w, self.first);
        for tile in tiles(tokens.n_token, x.layout.tile_max(isa)) {
            let totals = &mut totals[tile.first..tile.first + tile.n_token];
            let x = Self::tile(x, Span { first: tokens.first + tile.first, ..tile });
            with_floats!(w[0].format, F => {
                let floats = PhantomData::<F>;
                match tile.n_token {
                    1 => isa.run(floats::Dot::<F, 1> { w, first, x, totals, floats }),
                    2 => isa.run(floats::Dot::<F, 2> { w, first, x, totals, floats }),
                    4 => isa.run(floats::Dot::<F, 4> { w, first, x, totals, floats }),
                    8 => isa.run(floats::Dot::<F, 8> { w, first, x, totals, floats }),
                    n => unreachable!("a tile of {n} tokens"),
                }
            });
        }
    }
}

/// Decodes groups `groups` of 16 rows.
fn decode(isa: Token, rows: &Rows<'_>, groups: Range<usize>, tile: &mut Tile) {
    match rows.w.format {
        Format::Affine { bits, .. } | Format::AffineF16 { bits, .. } => with_codes!(bits, C => {
            isa.run_int(Decode { rows, groups, tile, codes: PhantomData::<C> });
        }),
        format => {
            let cols = groups.start * rows.group..groups.end * rows.group;
            let args = blocks::DecodeArgs { isa, rows, cols, tile };
            blocks::visit(format, args).expect("a fixed layout is of codes");
        }
    }
}

/// [`direct::DotAffine`] or [`direct::DotStrips`], for any format and number of planes.
fn multiply_one(
    isa: Token,
    layout: fixed::Layout,
    rows: &[Rows<'_>; 2],
    groups: Range<usize>,
    tiles: &mut [Tile; 2],
    x: &[i32],
    totals: &mut [Lanes; 2],
) {
    let (Format::Affine { bits, .. } | Format::AffineF16 { bits, .. }) = rows[0].w.format else {
        let args = DotStripArgs { isa, layout, rows, groups, tiles, x, totals };
        blocks::visit(rows[0].w.format, args).expect("a fixed layout is of codes");
        return;
    };
    macro_rules! dot {
        ($p:literal) => {
            with_codes!(bits, C => {
                let codes = PhantomData::<C>;
                isa.run_int(direct::DotAffine::<C, $p> { layout, rows: *rows, groups, tiles, x, totals, codes })
            })
        };
    }
    match layout.planes {
        2 => dot!(2),
        3 => dot!(3),
        n => unreachable!("{n} planes"),
    }
}

/// What [`direct::DotStrips`] needs, before its constants are known.
struct DotStripArgs<'a> {
    isa: Token,
    layout: fixed::Layout,
    rows: &'a [Rows<'a>; 2],
    groups: Range<usize>,
    tiles: &'a mut [Tile; 2],
    x: &'a [i32],
    totals: &'a mut [Lanes; 2],
}

impl blocks::Visit for DotStripArgs<'_> {
    type Output = ();

    fn visit<B: blocks::Strip>(self) {
        let Self { isa, layout, rows, groups, tiles, x, totals } = self;
        let strip = PhantomData::<B>;
        macro_rules! dot {
            ($p:literal) => {
                isa.run_int(direct::DotStrips::<B, $p> { layout, rows, groups, tiles, x, totals, strip })
            };
        }
        match layout.planes {
            2 => dot!(2),
            3 => dot!(3),
            n => unreachable!("{n} planes"),
        }
    }
}

/// What [`fixed::Dot`] needs, before its constants are known.
struct DotArgs<'a> {
    layout: fixed::Layout,
    tiles: &'a [Tile; 2],
    groups: Range<usize>,
    x: &'a [i32],
    totals: &'a mut [[Lanes; 2]],
}

impl DotArgs<'_> {
    /// Every number of planes and size of tile is a function of its own.
    fn run(self, isa: Token, run: usize) {
        macro_rules! dot {
            ($p:literal, $t:literal) => {
                match run {
                    0 => self.dot::<$p, $t, 0>(isa),
                    1 => self.dot::<$p, $t, 1>(isa),
                    2 => self.dot::<$p, $t, 2>(isa),
                    4 => self.dot::<$p, $t, 4>(isa),
                    8 => self.dot::<$p, $t, 8>(isa),
                    n => unreachable!("sums of {n} vectors"),
                }
            };
        }
        match (self.layout.planes, self.totals.len()) {
            (2, 1) => dot!(2, 1),
            (2, 2) => dot!(2, 2),
            (2, 4) => dot!(2, 4),
            (3, 1) => dot!(3, 1),
            (3, 2) => dot!(3, 2),
            (3, 4) => dot!(3, 4),
            (p, t) => unreachable!("{p} planes of {t} tokens"),
        }
    }

    fn dot<const P: usize, const T: usize, const RUN: usize>(self, isa: Token) {
        let Self { layout, tiles, groups, x, totals } = self;
        let (first, n_group) = (groups.start, groups.len());
        isa.run_int(fixed::Dot::<P, T, RUN> { layout, tiles, first, n_group, x, totals });
    }
}

thread_local! {
    static WORK: RefCell<Box<Work>> = RefCell::default();
}

/// Buffers of one thread.
struct Work {
    tiles: [Tile; 2],
    /// `[token][block]`
    totals: [[Lanes; 2]; TOKENS_MAX],
}

impl Default for Work {
    fn default() -> Self {
        Self { tiles: Default::default(), totals: [[Lanes::default(); 2]; TOKENS_MAX] }
    }
}
