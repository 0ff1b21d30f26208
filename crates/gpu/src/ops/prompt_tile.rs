//! Tiles of rows and tokens that products of many tokens are made of, and activations as those take them.

use std::sync::Arc;

use arrayvec::ArrayVec;
use quant::Format;

use crate::context::{Bind, Buf, Context};
use crate::format::{AFFINE, BLOCK, HALF, N_CODE_TEXT, N_TEXT, kernel_of_every_format, read_by};
use crate::kernel::Access::{Read, Write};
use crate::kernel::Kernel;

const TILE: &str = include_str!("../wgsl/prompt_tile.wgsl");
const COOP: &str = include_str!("../wgsl/prompt_coop.wgsl");
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
    coop_16: [Kernel; N_CODE_TEXT],
    coop_8: [Kernel; N_CODE_TEXT],
}

/// A [`TiledKernel`]: a name, its text, and its buffers: those of the matrix, two of activations, and its own.
macro_rules! tiled_kernel {
    ($name:literal, $text:expr, $access:expr) => {
        $crate::ops::prompt_tile::TiledKernel::new(
            kernel_of_every_format!($name, [TILE, $text], $access),
            coop_kernels!($name, " coop 16", "../wgsl/coop_16.wgsl", $text, $access),
            coop_kernels!($name, " coop 8", "../wgsl/coop_8.wgsl", $text, $access),
        )
    };
}

/// Those with cooperative matrices, one for each text of codes.
macro_rules! coop_kernels {
    ($name:literal, $kind:literal, $coop:literal, $text:expr, $access:expr) => {
        [
            Kernel {
                name: concat!($name, $kind, " affine"),
                wgsl: &[include_str!($coop), UNIT, HALF, AFFINE, $text, COOP],
                access: $access,
            },
            Kernel {
                name: concat!($name, $kind, " block"),
                wgsl: &[include_str!($coop), UNIT, HALF, BLOCK, $text, COOP],
                access: $access,
            },
        ]
    };
}

impl TiledKernel {
    const fn new(
        threads: [Kernel; N_TEXT],
        coop_16: [Kernel; N_CODE_TEXT],
        coop_8: [Kernel; N_CODE_TEXT],
    ) -> Self {
        Self { threads, coop_16, coop_8 }
    }

    pub(crate) fn of(&self, tile: Tile, format: Format) -> &Kernel {
        let reader = read_by(format);
        match tile {
            Tile::Threads { .. } => reader.kernel(&self.threads),
            Tile::Coop { side: 16, .. } => reader.kernel(&self.coop_16),
            Tile::Coop { .. } => reader.kernel(&self.coop_8),
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
    /// Cooperative matrices of `side`² numbers, `n_fragment` of them beside each other.
    Coop { side: u32, n_fragment: u32 },
}

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
            Self::Coop { side, n_fragment } => (2 * side * n_fragment) as usize,
        }
    }

    /// Values of the constants of its text.
    pub(crate) fn constants(self) -> ArrayVec<(&'static str, u32), 3> {
        match self {
            Self::Threads { n_row, n_quad } => [("N_ROW", n_row), ("N_QUAD", n_quad)].into_iter().collect(),
            Self::Coop { n_fragment, .. } => [("N_FRAGMENT", n_fragment)].into_iter().collect(),
        }
    }

    /// What it costs beside its products (decoding its weights), in tokens.
    fn cost_tokens(self) -> usize {
        match self {
            Self::Threads { .. } => 16,
            Self::Coop { .. } => 48,
        }
    }

    /// Bytes of workgroup memory: two parts of 40 columns of f16, and a matrix of each of 8 subgroups.
    fn workgroup_bytes(self) -> usize {
        match self {
            Self::Threads { .. } => (self.rows() + self.tokens()) * 16 * 4,
            Self::Coop { side, .. } => {
                (self.rows() + self.tokens()) * 2 * 40 * 2 + 8 * (side * side) as usize * 4
            }
        }
    }
}

impl Context {
    /// The tiles that products with a format are made of.
    pub(crate) fn tiles(&self, format: Format) -> ArrayVec<Tile, 4> {
        match self.coop_side {
            Some(side) if read_by(format).has_codes() => {
                let tiles = [1, 2, 4].map(|n_fragment| Tile::Coop { side, n_fragment });
                let bytes_max = self.limits.max_compute_workgroup_storage_size as usize;
                tiles.into_iter().filter(|tile| tile.workgroup_bytes() <= bytes_max).collect()
            }
            _ => Tile::THREADS.into(),
        }
    }

    /// The fastest tile, given how many workgroups it takes of each.
    pub(crate) fn fastest_tile(&self, format: Format, n_group: impl Fn(Tile) -> usize) -> Tile {
        let cost = |tile: &Tile| n_group(*tile).max(TILES_MIN) * (tile.tokens() + tile.cost_tokens());
        self.tiles(format).into_iter().min_by_key(cost).unwrap_or(Tile::THREADS[0])
    }

    /// Rows of activations as tiles take them, with `first` as row 0 for cooperative matrices.
    pub(crate) fn split(&self, x: Bind<'_>, first: usize, n_row: usize, cols: usize) -> Arc<Split> {
        let split = self.grown_split((n_row * cols * 4) as u64, (n_row * 4) as u64);
        let params = [first, n_row, cols].map(|n| n as u32);
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
    /// `[n_row, high and low, cols]`
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
    let of = |tiled: &'static TiledKernel| tiled.threads.iter().chain(&tiled.coop_16).chain(&tiled.coop_8);
    of(&MATMUL_PROMPT).chain(of(&EXPERTS_PROMPT)).chain([&SPLIT]).collect()
}

#[cfg(test)]
pub(crate) mod tests {
    use arrayvec::ArrayVec;
    use quant::Format;

    use super::Tile;
    use crate::test_rig::Rig;

    /// Tiles that must give the same bits: those of threads, and what the device has in their place.
    pub(crate) fn kinds(rig: &Rig, format: Format) -> Vec<ArrayVec<Tile, 4>> {
        let mut kinds = vec![Tile::THREADS.into(), rig.context.tiles(format)];
        kinds.dedup();
        kinds
    }
}
