//! Activations laid out as the matrix kernels read them.
//!
//! Tokens are cut into tiles of 8, 4, 2 or 1. A tile holds, for each vector of the weights' order, that vector of
//! each of its tokens; then a kernel reads one stream. Beside it lie the sums of each group of columns, which
//! the biases of affine formats multiply. Rows are padded with zeros to whole blocks.

use quant::Format;

use super::codes::{Order, with_codes};
use super::share::Share;
use super::simd::{Kernel, LANES, Lanes, Simd};

/// How one row of activations is laid out for a format.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Layout {
    cols: usize,
    /// Vectors of a block.
    n_block_vector: usize,
    order: Order,
    /// Columns of a group, 0 for plain floats.
    group: usize,
}

impl Layout {
    pub(super) fn new(format: Format, cols: usize) -> Self {
        let group = match format {
            Format::Affine { group, .. } => group as usize,
            _ => 0,
        };
        let (n_block_vector, order) = with_codes!(format, C => (C::VECTORS, C::ORDER));
        Self { cols, n_block_vector, order, group }
    }

    /// Vectors of the activations of one token.
    pub(super) fn n_vector(&self) -> usize {
        self.cols.next_multiple_of(self.n_block_vector * LANES) / LANES
    }

    /// Vectors of the group sums of one token.
    pub(super) fn n_sum_vector(&self) -> usize {
        self.cols.checked_div(self.group).unwrap_or(0).div_ceil(LANES)
    }

    /// Vectors that one token takes in all.
    pub(super) fn n_lanes(&self) -> usize {
        self.n_vector() + self.n_sum_vector()
    }
}

/// The largest tile of any instruction set.
pub(super) const TILE_MAX: usize = 8;

/// Tokens `first .. first + n_token` of a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Tile {
    pub(super) first: usize,
    pub(super) n_token: usize,
}

/// Cuts `n_token` tokens into the tiles that a kernel takes: as many of `max` as go, then smaller powers of two.
pub(super) fn tiles(n_token: usize, max: usize) -> impl Iterator<Item = Tile> {
    let mut first = 0;
    std::iter::from_fn(move || {
        let left = n_token - first;
        let n_token = if left >= max { max } else { left.checked_ilog2().map_or(0, |log| 1 << log) };
        let tile = Tile { first, n_token };
        first += n_token;
        (n_token > 0).then_some(tile)
    })
}

/// Activations of one tile in place.
#[derive(Clone, Copy)]
pub(super) struct PreparedTile<'a> {
    pub(super) n_token: usize,
    /// `[n_vector][n_token]`
    pub(super) x: &'a [Lanes],
    /// `[n_sum_vector][n_token]`
    pub(super) sums: &'a [Lanes],
}

/// The tile in the buffer of all tokens, `[n_token * n_lanes]`.
pub(super) fn prepared<'a>(layout: &Layout, buffer: &'a [Lanes], tile: Tile) -> PreparedTile<'a> {
    let (x, sums) = buffer[tile.first * layout.n_lanes()..][..tile.n_token * layout.n_lanes()]
        .split_at(tile.n_token * layout.n_vector());
    PreparedTile { n_token: tile.n_token, x, sums }
}

/// Lays out one tile of a batch that begins at `base` of the buffer. `row(t)` is token `t` of the batch, `[cols]`.
pub(super) struct Prepare<'a, 'b, F> {
    pub(super) layout: Layout,
    pub(super) tile: Tile,
    pub(super) row: F,
    pub(super) buffer: &'a Share<'b, Lanes>,
    pub(super) base: usize,
}

impl<'x, F: Fn(usize) -> &'x [f32]> Kernel for Prepare<'_, '_, F> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let Tile { first, n_token } = self.tile;
        let n_lanes = self.layout.n_lanes();
        // SAFETY: tiles of one step do not overlap.
        let to = unsafe { self.buffer.part(self.base + first * n_lanes, n_token * n_lanes) };
        let (x, sums) = to.split_at_mut(n_token * self.layout.n_vector());
        for t in 0..n_token {
            let row = (self.row)(first + t);
            match self.layout.order {
                Order::Rows => copy_rows(row, x.iter_mut().skip(t).step_by(n_token)),
                Order::Words(n) => copy_words(row, n, &mut x[t..], n_token),
            }
            if self.layout.group != 0 {
                sum_groups(s, row, self.layout.group, sums.iter_mut().skip(t).step_by(n_token));
            }
        }
    }
}

fn copy_rows<'a>(row: &[f32], to: impl Iterator<Item = &'a mut Lanes>) {
    let mut at = 0;
    for to in to {
        let from = row.get(at..row.len().min(at + LANES)).unwrap_or(&[]);
        to.0[..from.len()].copy_from_slice(from);
        to.0[from.len()..].fill(0.0);
        at += LANES;
    }
}

/// Word `l` of a block has columns `n·l .. n·l + n`; code `j` of it goes to lane `l` of vector `j`.
fn copy_words(row: &[f32], n: usize, x: &mut [Lanes], stride: usize) {
    for (block, to) in row.chunks(n * LANES).zip(x.chunks_mut(n * stride)) {
        for j in 0..n {
            let to = &mut to[j * stride].0;
            for (l, to) in to.iter_mut().enumerate() {
                *to = block.get(l * n + j).copied().unwrap_or(0.0);
            }
        }
    }
}

#[inline(always)]
fn sum_groups<'a, S: Simd>(s: S, row: &[f32], group: usize, to: impl Iterator<Item = &'a mut Lanes>) {
    for (groups, to) in row.chunks(group * LANES).zip(to) {
        let mut groups = groups.chunks_exact(group);
        for to in &mut to.0 {
            let group = groups.next().unwrap_or(&[]);
            let (vectors, _) = group.as_chunks::<LANES>();
            let mut sum = s.splat(0.0);
            for v in vectors {
                sum = s.add(sum, s.load(v));
            }
            *to = s.sum(sum);
        }
    }
}
