//! Tiles of rows and tokens that products of many tokens are made of, and activations as those take them.

use std::sync::Arc;

use arrayvec::ArrayVec;
use quant::Format;

use crate::context::{Bind, Buf, Context};
use crate::format::{AFFINE, N_TEXT, kernel_of_every_format, read_by};
use crate::kernel::Access::{Read, Write};
use crate::kernel::{Access, Kernel};

const TILE: &str = include_str!("../wgsl/prompt_tile.wgsl");
const COOP_TILE: &str = include_str!("../wgsl/prompt_coop.wgsl");
const UNIT: &str = include_str!("../wgsl/prompt_unit.wgsl");

static SPLIT: Kernel = Kernel {
    name: "prompt_split",
    wgsl: &[include_str!("../wgsl/prompt_split.wgsl"), UNIT],
    access: &[Read, Write, Write],
};

/// Tiles that keep a large device busy.
const TILES_MIN: usize = 132;

/// A kernel of products of many tokens, for every kind of tile.
pub(crate) struct TiledKernel {
    threads: [Kernel; N_TEXT],
    coop_16: Kernel,
    coop_8: Kernel,
}

/// A [`TiledKernel`]: a name, its text, and its buffers: those of the matrix, two of activations, and its own.
macro_rules! tiled_kernel {
    ($name:literal, $text:expr, $access:expr) => {
        $crate::ops::prompt_tile::TiledKernel::new(
            kernel_of_every_format!($name, [TILE, $text], $access),
            [concat!($name, " coop 16"), concat!($name, " coop 8")],
            [
                &[include_str!("../wgsl/coop_16.wgsl"), UNIT, AFFINE, $text, COOP_TILE],
                &[include_str!("../wgsl/coop_8.wgsl"), UNIT, AFFINE, $text, COOP_TILE],
            ],
            $access,
        )
    };
}

impl TiledKernel {
    const fn new(
        threads: [Kernel; N_TEXT],
        [name_16, name_8]: [&'static str; 2],
        [wgsl_16, wgsl_8]: [&'static [&'static str]; 2],
        access: &'static [Access],
    ) -> Self {
        Self {
            threads,
            coop_16: Kernel { name: name_16, wgsl: wgsl_16, access },
            coop_8: Kernel { name: name_8, wgsl: wgsl_8, access },
        }
    }

    pub(crate) fn of(&self, tile: Tile, format: Format) -> &Kernel {
        match tile {
            Tile::Threads { .. } => read_by(format).kernel(&self.threads),
            Tile::Coop { side: 16, .. } => &self.coop_16,
            Tile::Coop { .. } => &self.coop_8,
        }
    }
}

pub(crate) static MATMUL_PROMPT: TiledKernel = tiled_kernel!(
    "matmul_prompt",
    include_str!("../wgsl/matmul_prompt.wgsl"),
    &[Read, Read, Read, Read, Read, Write]
);

pub(crate) static EXPERTS_PROMPT: TiledKernel = tiled_kernel!(
    "experts_prompt",
    include_str!("../wgsl/experts_prompt.wgsl"),
    &[Read, Read, Read, Read, Read, Read, Write]
);

/// The rectangle of rows and tokens that a workgroup computes, and how. All of a kind give the same bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Tile {
    /// Each thread sums some rows for some fours of tokens.
    Threads { n_row: u32, n_quad: u32 },
    /// Cooperative matrices of `side`² numbers. In tokens, `n_column` subgroups lie beside each other, and of each
    /// `n_fragment` matrices.
    Coop { side: u32, n_column: u32, n_fragment: u32 },
}

/// Columns and fragments of the tiles of cooperative matrices.
const COOP: [(u32, u32); N_TILE] = [(1, 1), (1, 2), (2, 2), (1, 4), (2, 4)];
/// Tiles of a kind at most.
const N_TILE: usize = 5;
pub(crate) type Tiles = ArrayVec<Tile, N_TILE>;

impl Tile {
    /// Those that any device can compute, for any format, the smallest first.
    pub(crate) const THREADS: [Self; 4] = [
        Self::Threads { n_row: 2, n_quad: 1 },
        Self::Threads { n_row: 4, n_quad: 1 },
        Self::Threads { n_row: 8, n_quad: 1 },
        Self::Threads { n_row: 8, n_quad: 2 },
    ];

    /// Rows of weights.
    pub(crate) fn rows(self) -> usize {
        match self {
            Self::Threads { .. } => 128,
            Self::Coop { side, .. } => 8 * side as usize,
        }
    }

    pub(crate) fn tokens(self) -> usize {
        match self {
            Self::Threads { n_row, n_quad } => (8 * n_row * n_quad) as usize,
            Self::Coop { side, n_column, n_fragment } => (side * n_column * n_fragment) as usize,
        }
    }

    /// Columns that are decoded at a time: what workgroup memory has room for.
    fn cols(self, format: Format) -> u32 {
        let has_low = matches!(format, Format::Affine { bits: 5.., .. });
        if has_low || 64 < self.tokens() { 32 } else { 64 }
    }

    /// Values of the constants of its text.
    pub(crate) fn constants(self, format: Format) -> ArrayVec<(&'static str, u32), 4> {
        match self {
            Self::Threads { n_row, n_quad } => [("N_ROW", n_row), ("N_QUAD", n_quad)].into_iter().collect(),
            Self::Coop { n_column, n_fragment, .. } => {
                let sizes = [n_column, n_fragment, self.cols(format)];
                ["N_COLUMN", "N_FRAGMENT", "TILE_COLS"].into_iter().zip(sizes).collect()
            }
        }
    }

    /// What it costs to multiply with `n` tokens, in tokens: decoding its weights costs as much as some.
    fn cost(self, n: usize) -> usize {
        match self {
            Self::Threads { .. } => 16 + self.tokens(),
            Self::Coop { side, n_column, n_fragment } => {
                // Few threads with many sums each: too few to keep the device busy.
                let fixed = if (n_column, n_fragment) == (1, 4) { 48 } else { 32 };
                fixed + n.next_multiple_of((side * n_column) as usize)
            }
        }
    }

    /// Bytes of workgroup memory: parts of weights and activations, and a matrix of each subgroup.
    fn workgroup_bytes(self, format: Format) -> usize {
        match self {
            Self::Threads { .. } => (self.rows() + self.tokens()) * 16 * 4,
            Self::Coop { side, n_column, .. } => {
                let n_part = if matches!(format, Format::Affine { bits: 5.., .. }) { 2 } else { 1 };
                let parts = (n_part * self.rows() + 2 * self.tokens()) * (self.cols(format) as usize + 8) * 2;
                let matrices = (4 * n_column * side * side) as usize;
                parts + matrices.max(4 * self.rows() + self.tokens()) * 4
            }
        }
    }
}

impl Context {
    /// The tiles that products with a format are made of.
    pub(crate) fn tiles(&self, format: Format) -> Tiles {
        match (self.coop_side, format) {
            (Some(side), Format::Affine { .. }) => {
                let tiles = COOP.map(|(n_column, n_fragment)| Tile::Coop { side, n_column, n_fragment });
                let bytes_max = self.limits.max_compute_workgroup_storage_size as usize;
                tiles.into_iter().filter(|tile| tile.workgroup_bytes(format) <= bytes_max).collect()
            }
            _ => Tile::THREADS.into_iter().collect(),
        }
    }

    /// The fastest tile for products with these numbers of tokens, given how many of it rows take.
    pub(crate) fn fastest_tile(
        &self,
        format: Format,
        n_row_tile: impl Fn(Tile) -> usize,
        n_tokens: impl Iterator<Item = usize> + Clone,
    ) -> Tile {
        let cost = |tile: &Tile| {
            let (size, n_row_tile) = (tile.tokens(), n_row_tile(*tile));
            let of_product = |n: usize| {
                let rest = if n.is_multiple_of(size) { 0 } else { tile.cost(n % size) };
                n / size * tile.cost(size) + rest
            };
            let all: usize = n_tokens.clone().map(of_product).sum();
            let largest = n_tokens.clone().map(|n| tile.cost(n.min(size))).max();
            (n_row_tile * all).max(TILES_MIN * largest.unwrap_or(0))
        };
        self.tiles(format).into_iter().min_by_key(cost).unwrap_or(Tile::THREADS[0])
    }

    /// Rows of activations as tiles take them, with `first` as row 0 for cooperative matrices: for weights with
    /// `n_group` groups in a row.
    pub(crate) fn split(
        &self,
        x: Bind<'_>,
        first: usize,
        n_row: usize,
        cols: usize,
        n_group: usize,
    ) -> Arc<Split> {
        let fours = cols / 4 + n_group.div_ceil(16) * 4;
        let split = self.grown_split((n_row * 2 * fours * 8) as u64, (n_row * 4) as u64);
        let params = [first, n_row, cols, cols / n_group].map(|n| n as u32);
        self.run(&SPLIT, &[], &[x, split.parts.bind(), split.units.bind()], &params, self.grid(n_row));
        split
    }

    fn grown_split(&self, parts_bytes: u64, units_bytes: u64) -> Arc<Split> {
        let mut known = self.split.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        match &*known {
            Some(split) if parts_bytes <= split.parts.bytes() && units_bytes <= split.units.bytes() => {
                Arc::clone(split)
            }
            old => {
                let bytes = |new: u64, old: Option<&Buf>| new.max(old.map_or(0, Buf::bytes));
                let split = Arc::new(Split {
                    parts: self.buffer(bytes(parts_bytes, old.as_ref().map(|s| &s.parts))),
                    units: self.buffer(bytes(units_bytes, old.as_ref().map(|s| &s.units))),
                });
                *known = Some(Arc::clone(&split));
                split
            }
        }
    }
}

/// Activations as sums of two f16 numbers times a unit of their row: memory that is used again and again.
pub(crate) struct Split {
    /// `[n_row, high and low, cols and sums of groups]`
    parts: Buf,
    /// `[n_row]`
    units: Buf,
}

impl Split {
    pub(crate) fn binds(&self) -> [Bind<'_>; 2] {
        [self.parts.bind(), self.units.bind()]
    }
}

/// All kernels of this file.
#[cfg(test)]
pub(crate) fn kernels() -> Vec<&'static Kernel> {
    let of = |tiled: &'static TiledKernel| tiled.threads.iter().chain([&tiled.coop_16, &tiled.coop_8]);
    of(&MATMUL_PROMPT).chain(of(&EXPERTS_PROMPT)).chain([&SPLIT]).collect()
}

#[cfg(test)]
pub(crate) mod tests {
    use quant::Format;

    use super::{Tile, Tiles};
    use crate::test_rig::Rig;

    /// Tiles that must give the same bits: those of threads, and what the device has in their place.
    pub(crate) fn kinds(rig: &Rig, format: Format) -> Vec<Tiles> {
        let mut kinds = vec![Tile::THREADS.into_iter().collect(), rig.context.tiles(format)];
        kinds.dedup();
        kinds
    }
}
