//! How kernels for few tokens are cut: what `wgsl/rows.wgsl` is told.

use crate::context::Context;
use crate::format::Reader;

/// Tokens that share what was read of a matrix.
pub(crate) const TOKENS_MAX: usize = 4;
/// Bytes of workgroup memory for tokens.
const TILE_BYTES: usize = 16 << 10;

/// What does not change results, only speed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Tuning {
    /// Threads of a workgroup.
    pub(crate) threads: usize,
    /// Rows of a team.
    pub(crate) rows: usize,
    /// Most threads of a team.
    pub(crate) lanes: usize,
    /// Whether a chunk is loaded before the one before it is used.
    pub(crate) ahead: bool,
    /// Whether tokens go through workgroup memory.
    pub(crate) tiled: bool,
}

impl Tuning {
    /// The one that measurements start from.
    pub(crate) const BASE: Self = Self { threads: 128, rows: 4, lanes: 32, ahead: true, tiled: true };
}

/// A cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Cut {
    tuning: Tuning,
    lanes: usize,
    tokens: usize,
    tile: usize,
}

impl Cut {
    /// For rows of `cols` numbers and `n_token` tokens.
    pub(crate) fn new(
        context: &Context,
        reader: &Reader,
        tuning: Tuning,
        cols: usize,
        n_token: usize,
    ) -> Self {
        let n_chunk = cols.div_ceil(reader.chunk_cols);
        let lanes = n_chunk.next_power_of_two().min(context.subgroup_lanes()).min(tuning.lanes);
        let tokens = n_token.next_power_of_two().min(TOKENS_MAX);
        // A whole turn of a team, and what `place` exchanges.
        let turn = reader.chunk_cols * lanes.max(8);
        let tile = (TILE_BYTES / 4 / tokens).min(cols.next_power_of_two().max(turn));
        Self { tuning, lanes, tokens, tile }
    }

    /// Rows of a workgroup.
    pub(crate) fn group_rows(&self) -> usize {
        self.tuning.threads / self.lanes * self.tuning.rows
    }

    /// Tokens that share what was read of a matrix.
    pub(crate) fn tokens(&self) -> usize {
        self.tokens
    }

    /// For the kernel.
    pub(crate) fn constants(&self) -> [(&'static str, u32); 8] {
        [
            ("ROWS", self.tuning.rows as u32),
            ("TOKENS", self.tokens as u32),
            ("LANES", self.lanes as u32),
            ("THREADS", self.tuning.threads as u32),
            ("TILE", self.tile as u32),
            ("TILE_VECTORS", (self.tokens * self.tile / 4).max(self.tuning.threads) as u32),
            ("AHEAD", self.tuning.ahead as u32),
            ("TILED", self.tuning.tiled as u32),
        ]
    }
}

impl Context {
    /// Threads that surely run in step. Metal states a range, but its devices have 32, and where that is wrong,
    /// kernels notice and take a slower way.
    fn subgroup_lanes(&self) -> usize {
        if self.report.interface == "Metal" {
            32
        } else {
            self.report.subgroup.0.next_power_of_two() as usize
        }
    }
}
