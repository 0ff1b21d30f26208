//! Products of stored matrices with many tokens.

use crate::context::{Bind, Context};
use crate::format::read_by;
use crate::ops::Product;
use crate::ops::prompt_tile::{MATMUL_PROMPT, Split, Tile};

impl Context {
    /// `out[t·stride + at + r] = w[r] · x[first + t]` for each product, `x` `[_, cols]`: as precise as sums in f32.
    /// Bits do not depend on what else is multiplied.
    pub(crate) fn matmul_prompt(&self, products: &[Product<'_>], x: Bind<'_>, first: usize, n_token: usize) {
        let mut split = None;
        for product in products {
            let n_group = |tile: Tile| product.w.rows.div_ceil(tile.rows()) * n_token.div_ceil(tile.tokens());
            let tile = self.fastest_tile(product.w.format, n_group);
            self.matmul_tiled(tile, product, (x, first, n_token), &mut split);
        }
    }

    /// The same for one product, with a tile. `split` are the activations if it or another product split them.
    pub(crate) fn matmul_tiled(
        &self,
        tile: Tile,
        product: &Product<'_>,
        (x, first, n_token): (Bind<'_>, usize, usize),
        split: &mut Option<std::sync::Arc<Split>>,
    ) {
        let &Product { w, out, stride, at } = product;
        let reader = read_by(w.format);
        let [words, twos, fours] = w.binds();
        let (first, [x, units]) = match tile {
            Tile::Threads { .. } => (first, [x, x]),
            Tile::Coop { .. } => {
                (0, split.get_or_insert_with(|| self.split(x, first, n_token, w.cols)).binds())
            }
        };
        let sizes = [w.rows, w.cols, first, n_token, stride, at].map(|n| n as u32);
        let params: [u32; 9] = std::array::from_fn(|i| if i < 6 { sizes[i] } else { w.planes[i - 6] });
        let groups = [w.rows.div_ceil(tile.rows()) as u32, n_token.div_ceil(tile.tokens()) as u32, 1];
        let constants = reader.constants(&tile.constants());
        let buffers = [words, twos, fours, x, units, out];
        self.run(MATMUL_PROMPT.of(tile, w.format), &constants, &buffers, &params, groups);
    }
}

#[cfg(test)]
mod tests {
    use kernels::{Backend, Precision, Reference};
    use quant::{Format, Matrix};

    use crate::ops::Product;
    use crate::ops::prompt_tile::Tile;
    use crate::ops::prompt_tile::tests::kinds;
    use crate::test_rig::{
        Rig, assert_close, assert_close_to, assert_same, decoded, encoded, formats, others, random, rig,
        size_of_products, stored,
    };

    /// f32 sums of up to a few thousand products against f64 ones.
    const PRODUCT_BOUND: f64 = 1e-5;

    /// Products of rows with `n_token` tokens from `first` on, in columns 3.. of rows that are 5 longer.
    fn matmul(
        rig: &Rig,
        tile: Option<Tile>,
        w: &Matrix,
        x: &[f32],
        first: usize,
        n_token: usize,
    ) -> Vec<f32> {
        let (w, x) = (rig.upload(w), rig.tensor(x));
        let rows = w.at().rows;
        let (stride, at) = (rows + 5, 3);
        let out = rig.tensor(&vec![-7.0; n_token * stride]);
        let product = Product { w: w.at(), out: out.bind(), stride, at };
        match tile {
            Some(tile) => rig.context.matmul_tiled(tile, &product, (x.bind(), first, n_token), &mut None),
            None => rig.context.matmul_prompt(&[product], x.bind(), first, n_token),
        }
        let out = rig.read(&out, n_token * stride);
        for (i, &y) in out.iter().enumerate() {
            assert!((at..at + rows).contains(&(i % stride)) || y == -7.0, "number {i} is not its own");
        }
        out.chunks_exact(stride).flat_map(|row| row[at..at + rows].to_vec()).collect()
    }

    #[test]
    fn prompt_products_of_every_format_agree_with_the_reference() {
        // Breaks if a format is decoded wrongly or a ragged edge of rows, columns or tokens is lost or written beyond.
        let Some(rig) = rig() else { return };
        for (format, cols) in formats() {
            for (i, (rows, n_token)) in [(1, 1), (130, 19), (7, 33)].into_iter().enumerate() {
                let (cols, first) = (cols[i], i);
                let w = stored(i as u64, format, rows, cols);
                let x = random(9, (first + n_token) * cols);
                let mut want = vec![0.0; n_token * rows];
                Reference.matmul(&mut [(&w, &mut want)], &x, first, n_token, Precision::Full);
                let what = format!("{format} {rows}x{cols}, {n_token} tokens");
                let got = matmul(&rig, None, &w, &x, first, n_token);
                assert_close_to(&what, &got, &want, PRODUCT_BOUND, size_of_products(&w, &x));
            }
        }
    }

    #[test]
    fn the_bits_of_a_prompt_product_depend_on_its_row_and_token_alone() {
        // Breaks if a tile sums in another order, or threads of a large tile get another's rows or tokens.
        let Some(rig) = rig() else { return };
        let affine = |bits, group| Format::Affine { bits, group };
        let blocks = others().map(|format| (format, 130, 3 * format.run_cols()));
        let all = [(affine(4, 64), 261, 256), (affine(3, 32), 130, 96), (Format::Bf16, 140, 50)];
        for (format, rows, cols) in all.into_iter().chain(blocks) {
            let (w, n_token) = (stored(1, format, rows, cols), 140);
            let x = random(2, n_token * cols);
            let mut want = vec![0.0; n_token * rows];
            Reference.matmul(&mut [(&w, &mut want)], &x, 0, n_token, Precision::Full);
            for tiles in kinds(&rig, format) {
                let all: Vec<_> =
                    tiles.iter().map(|&tile| matmul(&rig, Some(tile), &w, &x, 0, n_token)).collect();
                let what = format!("{format}, {:?}", tiles[0]);
                assert_close_to(&what, &all[0], &want, PRODUCT_BOUND, size_of_products(&w, &x));
                for (tile, got) in tiles.iter().zip(&all) {
                    assert_same(&format!("{format}, {tile:?}"), got, &all[0]);
                    let part = matmul(&rig, Some(*tile), &w, &x, 71, 3);
                    let what = format!("{format}, {tile:?}, 3 tokens");
                    assert_same(&what, &part, &all[0][71 * rows..74 * rows]);
                }
            }
        }
    }

    #[test]
    fn long_sums_stay_as_precise_as_f32() {
        // Breaks if a sum of thousands of products, or one beside an outlier, loses more than f32 sums do.
        let Some(rig) = rig() else { return };
        let w = stored(3, Format::Affine { bits: 4, group: 64 }, 16, 8192);
        let mut x = random(4, 2 * 8192);
        x[8192 + 100] = 1e3;
        let mut want = vec![0.0; 32];
        Reference.matmul(&mut [(&w, &mut want)], &x, 0, 2, Precision::Full);
        let got = matmul(&rig, None, &w, &x, 0, 2);
        for (t, what) in ["a long sum", "an outlier"].into_iter().enumerate() {
            let (row, range) = (&x[t * 8192..(t + 1) * 8192], t * 16..(t + 1) * 16);
            assert_close_to(
                what,
                &got[range.clone()],
                &want[range],
                PRODUCT_BOUND,
                size_of_products(&w, row),
            );
        }
    }

    #[test]
    fn rows_and_tokens_of_any_size_keep_their_products() {
        // Breaks if numbers that are far smaller or larger than others of the batch lose bits, or a unit overflows.
        let Some(rig) = rig() else { return };
        const COLS: usize = 192;
        let (row_sizes, token_sizes) = ([1e-15, 1e-4, 1.0, 1e3, 1e15], [1e-15, 1e-6, 0.0, 1.0, 1e4, 1e18]);
        let scaled = |seed, sizes: &[f32]| -> Vec<f32> {
            let numbers = random(seed, sizes.len() * COLS);
            numbers.iter().enumerate().map(|(i, x)| x * sizes[i / COLS]).collect()
        };
        let w = encoded(Format::Affine { bits: 5, group: 64 }, 5, COLS, &scaled(10, &row_sizes));
        let x = scaled(11, &token_sizes);
        let mut want = vec![0.0; 30];
        Reference.matmul(&mut [(&w, &mut want)], &x, 0, 6, Precision::Full);
        let got = matmul(&rig, None, &w, &x, 0, 6);
        for (i, (&got, &want)) in got.iter().zip(&want).enumerate() {
            let (row, token) = (row_sizes[i % 5], token_sizes[i / 5]);
            let size = f64::from(row) * f64::from(token) * (COLS as f64).sqrt();
            let what = format!("row of size {row:e}, token of size {token:e}");
            assert_close_to(&what, &[got], &[want], PRODUCT_BOUND, size);
        }
    }

    #[test]
    fn every_code_in_every_place_has_its_value() {
        // Breaks if a code lands on the wrong column: each column is asked for alone, and must be exact, but for bits
        // that two parts of a number have no room for.
        let Some(rig) = rig() else { return };
        for (format, [cols, ..]) in formats() {
            let w = stored(5, format, 3, cols);
            let one_hot: Vec<f32> = (0..cols * cols).map(|i| f32::from(i / cols == i % cols)).collect();
            for tiles in kinds(&rig, format) {
                let got = matmul(&rig, Some(tiles[0]), &w, &one_hot, 0, cols);
                for r in 0..3 {
                    let row = decoded(&w, r);
                    let column: Vec<f32> = (0..cols).map(|c| got[c * 3 + r]).collect();
                    let what = format!("{format}, row {r}, {:?}", tiles[0]);
                    match tiles[0] {
                        Tile::Threads { .. } => assert_same(&what, &column, &row),
                        Tile::Coop { .. } => assert_close(&what, &column, &row, 3e-7),
                    }
                }
            }
        }
    }

    #[test]
    fn several_products_give_what_each_gives_alone() {
        // Breaks if one product of a call gets another's weights, format or output.
        let Some(rig) = rig() else { return };
        let affine = |bits, group| Format::Affine { bits, group };
        let all = [(affine(4, 64), 70), (affine(8, 32), 16), (Format::F16, 133), (affine(4, 64), 1)];
        let weights: Vec<_> = all.iter().map(|&(format, rows)| stored(6, format, rows, 128)).collect();
        let x = random(7, 40 * 128);
        let tensor = rig.tensor(&x);
        let uploaded: Vec<_> = weights.iter().map(|w| rig.upload(w)).collect();
        let outs: Vec<_> = weights.iter().map(|w| rig.zeros(37 * w.rows())).collect();
        let products: Vec<_> = uploaded
            .iter()
            .zip(&outs)
            .map(|(w, out)| Product { w: w.at(), out: out.bind(), stride: w.at().rows, at: 0 })
            .collect();
        rig.context.matmul_prompt(&products, tensor.bind(), 2, 37);
        for (i, (w, out)) in weights.iter().zip(&outs).enumerate() {
            let alone = matmul(&rig, None, w, &x, 2, 37);
            assert_same(&format!("product {i}"), &rig.read(out, 37 * w.rows()), &alone);
        }
    }
}
