//! The operations: what each dispatches, beside the texts in `wgsl/`.

pub(crate) mod attention;
pub(crate) mod delta_net;
pub(crate) mod embed;
pub(crate) mod experts;
pub(crate) mod experts_prompt;
pub(crate) mod kv;
pub(crate) mod matmul;
pub(crate) mod matmul_prompt;
pub(crate) mod pointwise;
pub(crate) mod prompt_tile;
pub(crate) mod route;
pub(crate) mod step;

use quant::Format;

use crate::context::Bind;

/// A stored matrix in memory of the device.
#[derive(Clone, Copy)]
pub(crate) struct MatrixAt<'a> {
    pub(crate) format: Format,
    pub(crate) rows: usize,
    pub(crate) cols: usize,
    /// What it lies in.
    pub(crate) buf: Bind<'a>,
    /// Where in it codes, scales and biases start, in words; multiples of 16.
    pub(crate) planes: [u32; 3],
}

/// A matrix to multiply with, and where the results go: number `r` of token `t` to `out[t · stride + at + r]`.
#[derive(Clone, Copy)]
pub(crate) struct Product<'a> {
    pub(crate) w: MatrixAt<'a>,
    pub(crate) out: Bind<'a>,
    pub(crate) stride: usize,
    pub(crate) at: usize,
}

/// Experts of one layer: how a record is laid out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Records {
    /// Of gate, up and down.
    pub(crate) formats: [Format; 3],
    pub(crate) d_model: usize,
    pub(crate) d_ff: usize,
    /// Where in a record codes, scales and biases of gate, up and down start, in words; multiples of 16.
    pub(crate) planes: [[u32; 3]; 3],
}

/// All kernels, for tests that look at each of them.
#[cfg(test)]
pub(crate) fn kernels() -> Vec<&'static crate::kernel::Kernel> {
    let files = [
        crate::context::kernels,
        crate::measure::kernels,
        attention::kernels,
        delta_net::kernels,
        embed::kernels,
        experts::kernels,
        matmul::kernels,
        pointwise::kernels,
        prompt_tile::kernels,
        route::kernels,
    ];
    files.into_iter().flat_map(|kernels| kernels()).collect()
}
