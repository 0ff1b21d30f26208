//! `out[t] = w · x[t]`: any number of matrices on the same tokens.

use quant::{Matrix, MatrixRef};

use super::isa::Token;
use super::pool::Pool;
use super::product::{Blocks, Inputs, Layout, PAIR_ROWS, Span, TOKENS_MAX, tiles};
use super::share::Share;
use super::simd::Lanes;

/// The most matrices of one call.
const N_MATRIX_MAX: usize = 8;

/// Makes room for `n` vectors in a scratch buffer that only grows.
pub(super) fn room(buffer: &mut Vec<Lanes<i32>>, n: usize) -> &mut [Lanes<i32>] {
    if buffer.len() < n {
        buffer.resize(n, Lanes([0; 16]));
    }
    &mut buffer[..n]
}

/// `x` is `[n_token, cols]`, each output `[n_token, rows]`, `planes` as in `fixed.rs`, `scratch` any buffer.
pub(super) fn matmul(
    (isa, pool): (Token, &Pool),
    products: &mut [(&Matrix, &mut Vec<f32>)],
    x: &[f32],
    n_token: usize,
    planes: usize,
    scratch: &mut Vec<Lanes<i32>>,
) {
    assert!(products.len() <= N_MATRIX_MAX, "{} matrices at once", products.len());
    let Some(cols) = products.first().map(|(w, _)| w.cols()) else { return };
    assert!(products.iter().all(|(w, _)| w.cols() == cols), "matrices with the same input");

    // Matrices whose activations lie alike share them.
    let mut kinds = [(Layout::Floats { cols }, 0); N_MATRIX_MAX];
    let (mut n_kind, mut n_lanes) = (0, 0);
    let mut kind_of = [0; N_MATRIX_MAX];
    for ((w, _), kind) in products.iter().zip(&mut kind_of) {
        let layout = Layout::new(w.format(), cols, planes);
        *kind = kinds[..n_kind].iter().position(|k| k.0 == layout).unwrap_or(n_kind);
        if *kind == n_kind {
            kinds[n_kind] = (layout, n_lanes);
            n_lanes += n_token * layout.n_lanes();
            n_kind += 1;
        }
    }
    let lanes = room(scratch, n_lanes);
    for &(layout, start) in &kinds[..n_kind] {
        let n = layout.n_lanes();
        prepare((isa, pool), layout, x, n_token, &mut lanes[start..start + n_token * n]);
    }
    let inputs = kinds.map(|(layout, start)| Inputs { layout, n_token, lanes: &lanes[start..] });
    multiply((isa, pool), products, &kind_of.map(|kind| inputs[kind]));
}

/// Lays out all tokens for one layout.
fn prepare((isa, pool): (Token, &Pool), layout: Layout, x: &[f32], n_token: usize, lanes: &mut [Lanes<i32>]) {
    let (max, n_lanes, cols) = (layout.tile_max(isa), layout.n_lanes(), x.len() / n_token.max(1));
    let lanes = Share::new(lanes);
    pool.run(n_token.div_ceil(max), &|job| {
        let cut = job * max;
        for tile in tiles(max.min(n_token - cut), max) {
            let first = cut + tile.first;
            // SAFETY: tiles of one step do not overlap.
            let to = unsafe { lanes.part(first * n_lanes, tile.n_token * n_lanes) };
            layout.prepare(isa, tile.n_token, |t| &x[(first + t) * cols..(first + t + 1) * cols], to);
        }
    });
}

/// `inputs` has an entry for each product.
fn multiply(
    (isa, pool): (Token, &Pool),
    products: &mut [(&Matrix, &mut Vec<f32>)],
    inputs: &[Inputs<'_>; N_MATRIX_MAX],
) {
    let n_token = inputs[0].n_token;
    let n_cut = n_token.div_ceil(TOKENS_MAX);
    // Behind the last matrix: no job.
    let mut ends = [0; N_MATRIX_MAX];
    let mut n_job = 0;
    for ((w, out), end) in products.iter().zip(&mut ends) {
        assert!(n_token * w.rows() <= out.len(), "room for the products");
        n_job += w.rows().div_ceil(PAIR_ROWS) * n_cut;
        *end = n_job;
    }
    let matrices: [Option<(MatrixRef<'_>, Share<'_, f32>)>; N_MATRIX_MAX] = {
        let mut products = products.iter_mut();
        std::array::from_fn(|_| products.next().map(|(w, out)| (w.view(), Share::new(out))))
    };
    // Matrix, first row and cut of a job.
    let place = |job: usize| {
        let i = ends.iter().position(|&end| job < end)?;
        let job = job - i.checked_sub(1).map_or(0, |before| ends[before]);
        Some((i, job / n_cut * PAIR_ROWS, job % n_cut * TOKENS_MAX))
    };
    let matrix = |i: usize| matrices[i].as_ref().expect("a matrix for each job");
    pool.run(n_job, &|job| {
        let (i, row, first) = place(job).expect("jobs end with the last matrix");
        let (w, out) = matrix(i);
        let next = place(job + 1).map(|(i, row, _)| Blocks::neighbours(matrix(i).0, row));
        let tokens = Span { first, n_token: TOKENS_MAX.min(n_token - first) };
        let n_row = PAIR_ROWS.min(w.rows - row);
        Blocks::neighbours(*w, row).multiply(isa, inputs[i], tokens, next, |t, sums| {
            // SAFETY: each job has its own rows of its own tokens.
            let to = unsafe { out.part(t * w.rows + row, n_row) };
            for (to, sums) in to.chunks_mut(sums[0].0.len()).zip(sums) {
                to.copy_from_slice(&sums.0[..to.len()]);
            }
        });
    });
}
