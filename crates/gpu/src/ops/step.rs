//! How kernels for few tokens are cut: what `wgsl/rows.wgsl` is told.

use arrayvec::ArrayVec;
use quant::Format;

use crate::context::Context;
use crate::format::{N_CODE_TEXT, N_TEXT, Reader, read_by};
use crate::kernel::Kernel;

/// Tokens that share what was read of a matrix.
pub(crate) const TOKENS_MAX: usize = 4;
/// Sums of a thread.
const SUMS_MAX: usize = 16;
/// Bytes of workgroup memory for tokens as floats.
const FLOAT_TILE_BYTES: usize = 16 << 10;
/// Most bytes of workgroup memory for tokens as whole numbers: 8192 columns.
const DOT_TILE_BYTES_MAX: usize = 36 << 10;
/// Bytes of 32 columns there: nine vectors.
const DOT_CHUNK_BYTES: usize = 144;

/// Texts of kernels for few tokens of one purpose: those of codes in both forms, and of floats.
pub(crate) const N_STEP_TEXT: usize = N_CODE_TEXT + N_TEXT;

/// Kernels for few tokens of one purpose: a name, the text, and the buffers: the first three are
/// [`MatrixAt::binds`](crate::ops::MatrixAt::binds), the next two the tokens.
macro_rules! step_kernels {
    ($name:literal, $text:literal, $access:expr) => {
        [
            $crate::ops::step::step_kernels!(@dot $name, " affine dot", AFFINE, "affine", $text, $access),
            $crate::ops::step::step_kernels!(@dot $name, " block dot", BLOCK, "block", $text, $access),
            $crate::ops::step::step_kernels!(@float $name, " affine", [HALF, AFFINE], $text, $access),
            $crate::ops::step::step_kernels!(@float $name, " block", [HALF, BLOCK], $text, $access),
            $crate::ops::step::step_kernels!(@float $name, " float", [FLOAT], $text, $access),
        ]
    };
    (@dot $name:literal, $kind:literal, $format:ident, $codes:literal, $text:literal, $access:expr) => {
        $crate::kernel::Kernel {
            name: concat!($name, $kind),
            wgsl: &[
                $crate::format::HALF,
                $crate::format::$format,
                include_str!("../wgsl/rows.wgsl"),
                include_str!("../wgsl/rows_dot.wgsl"),
                include_str!(concat!("../wgsl/rows_dot_", $codes, ".wgsl")),
                include_str!($text),
            ],
            access: $access,
        }
    };
    (@float $name:literal, $kind:literal, [$($format:ident),*], $text:literal, $access:expr) => {
        $crate::kernel::Kernel {
            name: concat!($name, $kind),
            wgsl: &[
                $($crate::format::$format,)*
                include_str!("../wgsl/rows.wgsl"),
                include_str!("../wgsl/rows_float.wgsl"),
                include_str!($text),
            ],
            access: $access,
        }
    };
}
pub(crate) use step_kernels;

/// How numbers are multiplied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Form {
    /// As floats.
    Float,
    /// Codes as whole numbers, see `wgsl/rows_dot.wgsl`; plain floats as floats.
    Dot,
}

/// What does not change results, only speed. (The form changes the last bits.)
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Tuning {
    /// How numbers are multiplied.
    pub(crate) form: Form,
    /// Threads of a workgroup.
    pub(crate) threads: usize,
    /// Rows of a team.
    pub(crate) rows: usize,
    /// Chunks that are on their way while one is used.
    pub(crate) depth: usize,
    /// Times that a workgroup takes rows.
    pub(crate) turns: usize,
}

impl Tuning {
    /// One for many kinds of matrices.
    pub(crate) const BASE: Self = Self { form: Form::Float, threads: 256, rows: 4, depth: 1, turns: 1 };
}

/// A cut.
pub(crate) struct Cut {
    tuning: Tuning,
    reader: Reader,
    /// Which of the kernels.
    text: usize,
    lanes: usize,
    tokens: usize,
    tile: usize,
    tile_vectors: usize,
}

impl Cut {
    /// For rows of `cols` numbers and `n_token` tokens.
    pub(crate) fn new(
        context: &Context,
        format: Format,
        tuning: Tuning,
        cols: usize,
        n_token: usize,
    ) -> Self {
        let reader = read_by(format);
        let form = if reader.has_codes() { tuning.form } else { Form::Float };
        let n_chunk = cols.div_ceil(reader.chunk_cols);
        let lanes = n_chunk.next_power_of_two().min(context.subgroup_lanes());
        let tokens = n_token.next_power_of_two().min(TOKENS_MAX);
        let rows = tuning.rows.min(SUMS_MAX / tokens);
        let (text, chunk_bytes, tile_bytes) = match form {
            Form::Dot => (reader.text, DOT_CHUNK_BYTES, context.dot_tile_bytes()),
            Form::Float => (N_CODE_TEXT + reader.text, reader.chunk_cols * 4, FLOAT_TILE_BYTES),
        };
        // A whole turn of a team, and what tokens as floats exchange.
        let least = lanes.max(8);
        let n_most = tile_bytes / chunk_bytes / tokens / least;
        let n_step = n_chunk.div_ceil(least);
        let tile_chunks = n_step.min(n_most) * least;
        let depth = tuning.depth.min(n_step);
        let threads = tuning.threads.min(context.limits.max_compute_invocations_per_workgroup as usize);
        Self {
            tuning: Tuning { form, threads, rows, depth, ..tuning },
            text,
            lanes,
            tokens,
            tile: tile_chunks * reader.chunk_cols,
            reader,
            tile_vectors: (tile_chunks * chunk_bytes / 16 * tokens).max(threads),
        }
    }

    /// Of kernels of one purpose, the one for this.
    pub(crate) fn kernel<'a>(&self, kernels: &'a [Kernel; N_STEP_TEXT]) -> &'a Kernel {
        &kernels[self.text]
    }

    /// Rows of a workgroup.
    pub(crate) fn group_rows(&self) -> usize {
        self.tuning.threads / self.lanes * self.tuning.rows * self.tuning.turns
    }

    /// Tokens that share what was read of a matrix.
    pub(crate) fn tokens(&self) -> usize {
        self.tokens
    }

    /// For the kernel.
    pub(crate) fn constants(&self) -> ArrayVec<(&'static str, u32), 12> {
        self.reader.constants(&[
            ("ROWS", self.tuning.rows as u32),
            ("TOKENS", self.tokens as u32),
            ("LANES", self.lanes as u32),
            ("THREADS", self.tuning.threads as u32),
            ("TILE", self.tile as u32),
            ("TILE_VECTORS", self.tile_vectors as u32),
            ("DEPTH", self.tuning.depth as u32),
            ("TURNS", self.tuning.turns as u32),
        ])
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

    /// What is fast for codes here: where devices multiply bytes, that.
    pub(crate) fn form(&self) -> Form {
        if self.report.interface == "Metal" { Form::Float } else { Form::Dot }
    }

    fn dot_tile_bytes(&self) -> usize {
        (self.limits.max_compute_workgroup_storage_size as usize).min(DOT_TILE_BYTES_MAX)
    }
}
