//! Products of matrices with a few tokens.

use arrayvec::ArrayVec;
use quant::Format;

use crate::context::{Bind, Context};
use crate::format::read_by;
use crate::kernel::Access::{Read, Write};
use crate::kernel::Kernel;
use crate::ops::Product;
use crate::ops::step::{Cut, Form, N_STEP_TEXT, Tuning, step_kernels};

/// Products of one dispatch.
const PRODUCTS_MAX: usize = 4;
/// Below so many rows, workgroups do not fill a device.
const FEW_ROWS: usize = 1024;
/// From so many rows on, they fill it several times even if each takes many rows.
const MANY_ROWS: usize = 65536;
/// From so many codes on, sharing what was read of tokens is worth more than many workgroups.
const LARGE_CODES: usize = 20 << 20;
/// The same for plain floats, in rows.
const LARGE_FLOAT_ROWS: usize = 8192;

static MATMUL_STEP: [Kernel; N_STEP_TEXT] = step_kernels!(
    "matmul_step",
    "../wgsl/matmul_step.wgsl",
    &[Read, Read, Read, Read, Read, Write, Write, Write, Write]
);

impl Context {
    /// `out[t] = w · x[first + t]` for every product, as f32; for few tokens: up to four share what is read of a
    /// matrix. All matrices have as many columns as `x`. A token's results depend on nothing but the token.
    pub(crate) fn matmul_step(&self, products: &[Product<'_>], x: Bind<'_>, first: usize, n_token: usize) {
        self.matmul_tuned(products, x, first, n_token, |products| self.matmul_tuning(products, n_token));
    }

    pub(crate) fn matmul_tuned(
        &self,
        products: &[Product<'_>],
        x: Bind<'_>,
        first: usize,
        n_token: usize,
        tuning: impl Fn(&[Product<'_>]) -> Tuning,
    ) {
        let mut rest: Vec<Product<'_>> = products.to_vec();
        while let Some(&one) = rest.first() {
            let mut together: ArrayVec<Product<'_>, PRODUCTS_MAX> = ArrayVec::new();
            rest.retain(|p| {
                let joins = !together.is_full() && p.w.goes_with(&one.w);
                if joins {
                    together.push(*p);
                }
                !joins
            });
            self.matmul_together(&together, x, (first, n_token), tuning(&together));
        }
    }

    /// Products whose matrices share buffer, format and width.
    fn matmul_together(
        &self,
        products: &[Product<'_>],
        x: Bind<'_>,
        (first, n_token): (usize, usize),
        tuning: Tuning,
    ) {
        let w = products[0].w;
        let cut = Cut::new(self, w.format, tuning, w.cols, n_token);
        let mut params = [0; 4 + 6 * PRODUCTS_MAX];
        params[..4].copy_from_slice(&[w.cols, first * w.cols, n_token, products.len()].map(|n| n as u32));
        for (i, p) in products.iter().enumerate() {
            assert_eq!(p.w.cols, w.cols, "columns of products with the same tokens");
            let [codes, scales, biases] = p.w.planes;
            params[4 + 4 * i..][..4].copy_from_slice(&[codes, scales, biases, p.w.rows as u32]);
            let outputs = 4 + 4 * PRODUCTS_MAX;
            params[outputs + 2 * i..][..2].copy_from_slice(&[p.stride as u32, p.at as u32]);
        }
        let n_group = products.iter().map(|p| p.w.rows.div_ceil(cut.group_rows())).sum();
        let [group_x, group_y, _] = self.grid(n_group);
        let groups = [group_x, group_y, n_token.div_ceil(cut.tokens()) as u32];
        let [w1, w2, w4] = w.binds();
        let out = |i: usize| products.get(i).unwrap_or(&products[0]).out;
        let buffers = [w1, w2, w4, x, x, out(0), out(1), out(2), out(3)];
        self.run(cut.kernel(&MATMUL_STEP), &cut.constants(), &buffers, &params, groups);
    }

    /// What is fast for these matrices: the best of `benches/products.rs` on an NVIDIA H200, where smaller ones want
    /// more workgroups and larger ones fewer preparations of the tokens.
    pub(crate) fn matmul_tuning(&self, products: &[Product<'_>], n_token: usize) -> Tuning {
        let (w, rows) = (products[0].w, products.iter().map(|p| p.w.rows).sum::<usize>());
        let base = Tuning { form: self.form(), ..Tuning::BASE };
        let has_codes = read_by(w.format).has_codes();
        match w.format {
            _ if has_codes && rows < FEW_ROWS => Tuning { threads: 128, rows: 1, ..base },
            _ if has_codes && (1 < n_token || self.form() == Form::Float) => base,
            // So large, all but six bits are best with two rows.
            Format::Affine { bits: 6, .. } if MANY_ROWS <= rows => Tuning { rows: 4, turns: 8, ..base },
            _ if has_codes && MANY_ROWS <= rows => Tuning { rows: 2, turns: 8, ..base },
            _ if has_codes && rows * w.cols < LARGE_CODES => Tuning { rows: 2, ..base },
            _ if has_codes => base,
            // Chunks of plain floats are short: a thread waits for many, one after the other.
            _ if rows < FEW_ROWS => Tuning { threads: 128, rows: 1, depth: 4, ..base },
            _ if rows < LARGE_FLOAT_ROWS => base,
            _ => Tuning { rows: 8, ..base },
        }
    }
}

/// All kernels of this file.
#[cfg(test)]
pub(crate) fn kernels() -> Vec<&'static Kernel> {
    MATMUL_STEP.iter().collect()
}

#[cfg(test)]
mod tests {
    use kernels::{Backend, Precision, Reference};
    use quant::{Block, Matrix};

    use super::*;
    use crate::context::Buf;
    use crate::ops::MatrixAt;
    use crate::test_rig::{
        Rig, Uploaded, assert_close, assert_close_to, assert_same, decoded, formats, random, rig, stored,
    };

    /// f32 sums of up to a few thousand products against f64 ones.
    const PRODUCT_BOUND: f64 = 1e-5;

    const A4: Format = Format::Affine { bits: 4, group: 64 };
    const Q4K: Format = Format::Block(Block::Q4K);
    const Q5K: Format = Format::Block(Block::Q5K);
    const Q6K: Format = Format::Block(Block::Q6K);
    const MXFP4: Format = Format::Block(Block::Mxfp4);

    /// Rows, columns in groups of the format (or 32), tokens, the first of them.
    const SHAPES: [(usize, usize, usize, usize); 6] =
        [(1, 1, 1, 0), (3, 2, 2, 1), (33, 5, 5, 0), (65, 7, 9, 1), (7, 65, 4, 2), (257, 12, 1, 3)];

    const CUT: Tuning = Tuning { rows: 2, ..Tuning::BASE };

    /// Whose kernels differ.
    fn forms(format: Format) -> &'static [Form] {
        if read_by(format).has_codes() { &[Form::Float, Form::Dot] } else { &[Form::Float] }
    }

    /// All numbers of bits and all groups, blocks, and plain floats.
    fn kinds() -> impl Iterator<Item = Format> {
        formats().into_iter().map(|(format, _)| format).filter(|format| match format {
            Format::Affine { bits, group } => *bits == 4 || *group == [32, 64, 128][usize::from(bits % 3)],
            _ => true,
        })
    }

    /// Columns for products of all [`kinds`].
    fn cols_of(format: Format) -> usize {
        2 * group(format).max(64)
    }

    fn group(format: Format) -> usize {
        format.run_cols().max(32)
    }

    fn product(rig: &Rig, w: &Uploaded, x: &Buf, (first, n_token): (usize, usize), cut: Tuning) -> Vec<f32> {
        let w = w.at();
        let out = rig.zeros(n_token * w.rows);
        let product = Product { w, out: out.bind(), stride: w.rows, at: 0 };
        rig.context.matmul_tuned(&[product], x.bind(), first, n_token, |_| cut);
        rig.read(&out, n_token * w.rows)
    }

    /// In every form as the reference has it.
    fn check(rig: &Rig, what: &str, w: &Matrix, x: &Vec<f32>, (first, n_token): (usize, usize)) {
        let mut want = vec![0.0; n_token * w.rows()];
        Reference.matmul(&mut [(w, &mut want)], x, first, n_token, Precision::Full);
        let (uploaded, x) = (rig.upload(w), rig.tensor(x));
        for &form in forms(w.format()) {
            let got = product(rig, &uploaded, &x, (first, n_token), Tuning { form, ..CUT });
            let what = format!("{what}, {form:?}, {} rows of {}, {n_token} tokens", w.rows(), w.cols());
            // A product of these numbers has about the size 1; few of them may all be small by chance.
            assert_close_to(&what, &got, &want, PRODUCT_BOUND, 1.0);
        }
    }

    /// Every token has the bits that it has alone.
    fn check_alone(rig: &Rig, what: &str, w: &Matrix, x: &[f32], (first, n_token): (usize, usize)) {
        let (uploaded, x, rows) = (rig.upload(w), rig.tensor(x), w.rows());
        for &form in forms(w.format()) {
            let cut = Tuning { form, ..CUT };
            let all = product(rig, &uploaded, &x, (first, n_token), cut);
            for t in 0..n_token {
                let alone = product(rig, &uploaded, &x, (first + t, 1), cut);
                let what = format!("{what}, {form:?}, {rows} rows of {}, token {t} alone", w.cols());
                assert_same(&what, &alone, &all[t * rows..(t + 1) * rows]);
            }
        }
    }

    #[test]
    fn products_of_every_format_agree_with_the_reference() {
        // Breaks if a format is decoded wrongly, or a code lands on the wrong column: each column is also asked for
        // alone, and must be exact.
        let Some(rig) = rig() else { return };
        for format in kinds() {
            let cols = cols_of(format);
            let (w, x) = (stored(1, format, 21, cols), random(2, 5 * cols));
            check(&rig, &format.to_string(), &w, &x, (1, 4));
            let one_hot: Vec<f32> = (0..cols * cols).map(|i| (i / cols == i % cols) as u8 as f32).collect();
            let (uploaded, one_hot) = (rig.upload(&w), rig.tensor(&one_hot));
            for &form in forms(format) {
                let got = product(&rig, &uploaded, &one_hot, (0, cols), Tuning { form, ..CUT });
                for r in 0..w.rows() {
                    let row = decoded(&w, r);
                    let column: Vec<f32> = (0..cols).map(|c| got[c * w.rows() + r]).collect();
                    // scale·code + bias is rounded once or twice.
                    assert_close(&format!("{format}, {form:?}, row {r}"), &column, &row, 2e-7);
                }
            }
        }
    }

    #[test]
    fn products_of_every_shape_agree_with_the_reference() {
        // Breaks if a ragged edge is lost, or a row depends on tokens beside it.
        let Some(rig) = rig() else { return };
        let formats = [A4, Format::Bf16, Q4K, Q6K, MXFP4];
        let cases = SHAPES.into_iter().flat_map(|shape| formats.map(|format| (shape, format)));
        for ((rows, n_group, n_token, first), format) in rig.some(cases) {
            let cols = n_group * group(format);
            let (w, x) = (stored(1, format, rows, cols), random(2, (first + n_token) * cols));
            check(&rig, &format.to_string(), &w, &x, (first, n_token));
            check_alone(&rig, &format.to_string(), &w, &x, (first, n_token));
        }
    }

    #[test]
    fn subgroups_may_be_smaller_than_they_seem() {
        // Breaks if a team that spans subgroups loses parts of its sums.
        let Some(mut rig) = rig() else { return };
        rig.context.report.interface = "Metal".to_owned();
        let (w, x) = (stored(1, A4, 5, 2048), random(2, 2 * 2048));
        check(&rig, "teams of 32", &w, &x, (0, 2));
        check_alone(&rig, "teams of 32", &w, &x, (0, 2));
    }

    #[test]
    fn plain_floats_may_have_any_number_of_columns() {
        // Breaks if the last, incomplete vector of a row is read past its end or dropped.
        let Some(rig) = rig() else { return };
        let bf16 = [1, 3, 15, 129].map(|cols| (Format::Bf16, cols));
        for (format, cols) in bf16.into_iter().chain([(Format::F16, 17), (Format::F32, 17)]) {
            let x = random(2, 3 * cols);
            check(&rig, &format.to_string(), &stored(1, format, 5, cols), &x, (0, 3));
        }
    }

    #[test]
    fn a_cut_changes_no_bit() {
        // Breaks if the order of a sum depends on what only speed should depend on.
        let Some(rig) = rig() else { return };
        let all = [A4, Format::Bf16, Q5K, Q6K].into_iter();
        let all = all.flat_map(|format| forms(format).iter().map(move |&form| (format, form)));
        for (format, form) in rig.some(all) {
            let cols = 8192 + 1088usize.next_multiple_of(format.run_cols());
            let (w, x) = (stored(1, format, 37, cols), random(2, cols));
            let (w, x) = (rig.upload(&w), rig.tensor(&x));
            let want = product(&rig, &w, &x, (0, 1), Tuning { form, ..CUT });
            for (threads, rows, depth, turns) in [(64, 1, 4, 3), (512, 4, 2, 1), (32, 8, 1, 2)] {
                let cut = Tuning { form, threads, rows, depth, turns };
                assert_same(&format!("{format}, {cut:?}"), &product(&rig, &w, &x, (0, 1), cut), &want);
            }
        }
    }

    #[test]
    fn activations_of_all_sizes_keep_their_products() {
        // Breaks if small or large numbers are mangled on the way, zeros do not stay zeros, or an outlier takes the
        // digits of numbers beyond its chunk.
        let Some(rig) = rig() else { return };
        let scales = [0.0, 1e-30, 1e-20, 1e-10, 1e10, 1e30].map(|scale| move |_: usize| scale);
        let checked = |what: &str, format: Format, scale: &dyn Fn(usize) -> f32| {
            let cols = cols_of(format);
            let w = stored(2, format, 33, cols);
            let x: Vec<f32> = random(4, cols).iter().enumerate().map(|(i, x)| x * scale(i)).collect();
            let mut want = vec![0.0; 33];
            Reference.matmul(&mut [(&w, &mut want)], &x, 0, 1, Precision::Full);
            for &form in forms(format) {
                let (w, x) = (rig.upload(&w), rig.tensor(&x));
                let got = product(&rig, &w, &x, (0, 1), Tuning { form, ..CUT });
                assert_close(&format!("{format}, {form:?}, {what}"), &got, &want, PRODUCT_BOUND);
            }
        };
        for format in kinds() {
            for scale in &scales {
                checked(&format!("times {:e}", scale(0)), format, scale);
            }
            checked("every tenth", format, &|i| if i % 10 == 0 { 1.0 } else { 1e-5 });
            checked("one", format, &|i| if i == 77 { 1e6 } else { 1.0 });
            checked("powers", format, &|i| 2f32.powi(i as i32 % 40 - 20));
        }
    }

    #[test]
    fn whole_numbers_reach_their_limits() {
        // Breaks if the largest digits overflow, or a number just above a power of two loses its top.
        let Some(rig) = rig() else { return };
        let w = stored(3, Format::Affine { bits: 8, group: 32 }, 5, 64);
        let uploaded = rig.upload(&w);
        for bits in
            [0x3f7e_fefe, 0x3f7e_feff, 0x3f7e_ff00, 0x3f7f_ffff, 0x3f80_0000, 0x3f80_0001, 0x3f7e_fefd]
        {
            for sign in [1.0, -1.0] {
                let x: Vec<f32> = (0..64).map(|i| f32::from_bits(bits - i % 3) * sign).collect();
                let mut want = vec![0.0; 5];
                Reference.matmul(&mut [(&w, &mut want)], &x, 0, 1, Precision::Full);
                let got =
                    product(&rig, &uploaded, &rig.tensor(&x), (0, 1), Tuning { form: Form::Dot, ..CUT });
                assert_close_to(&format!("{bits:#x} times {sign}"), &got, &want, PRODUCT_BOUND, 1.0);
            }
        }
    }

    #[test]
    fn several_matrices_at_once_give_what_each_gives_alone() {
        // Breaks if one matrix of a call gets another's rows, activations or place in the output.
        let Some(rig) = rig() else { return };
        // Six slices of one matrix, and others.
        let (big, other, float) =
            (stored(1, A4, 150, 128), stored(2, A4, 3, 128), stored(3, Format::Bf16, 40, 128));
        let (big, other, float) = (rig.upload(&big), rig.upload(&other), rig.upload(&float));
        let slice = |at: usize, rows: usize| {
            let w = big.at();
            // Words of a row: 128 codes, two scales, two biases.
            let row_words = [16, 1, 1];
            let planes = [0, 1, 2].map(|i| w.planes[i] + at as u32 * row_words[i]);
            MatrixAt { rows, planes, ..w }
        };
        let all = [
            slice(0, 70),
            other.at(),
            slice(70 + 10, 16),
            float.at(),
            slice(0, 1),
            slice(64, 33),
            slice(128, 5),
        ];
        let x = rig.tensor(&random(4, 8 * 128));
        let n_out: usize = all.iter().map(|w| w.rows).sum();
        for n_token in [1, 3] {
            // One after the other in one buffer with a gap, so that a token takes a stride.
            let (together, stride) = (rig.zeros(n_token * (n_out + 5)), n_out + 5);
            let mut at = 2;
            let mut products = Vec::new();
            for w in all {
                products.push(Product { w, out: together.bind(), stride, at });
                at += w.rows;
            }
            rig.context.matmul_step(&products, x.bind(), 5, n_token);
            let together = rig.read(&together, n_token * stride);
            for (i, p) in products.iter().enumerate() {
                let alone = rig.zeros(n_token * p.w.rows);
                let product = Product { out: alone.bind(), stride: p.w.rows, at: 0, ..*p };
                rig.context.matmul_step(&[product], x.bind(), 5, n_token);
                let alone = rig.read(&alone, n_token * p.w.rows);
                for (t, alone) in alone.chunks_exact(p.w.rows).enumerate() {
                    let got = &together[t * stride + p.at..][..p.w.rows];
                    assert_same(&format!("matrix {i}, token {t} of {n_token}"), got, alone);
                }
            }
            assert_same("the gap before", &together[..2], &[0.0; 2]);
        }
    }

    #[test]
    fn rows_may_be_many() {
        // Breaks if workgroups beyond the limit of one dimension are lost, or come twice.
        let Some(rig) = rig() else { return };
        let format = Format::Affine { bits: 2, group: 32 };
        let (rows, cols) = (262_147, 256);
        let (w, x) = (stored(1, format, rows, cols), random(2, cols));
        let mut want = vec![0.0; rows];
        Reference.matmul(&mut [(&w, &mut want)], &x, 0, 1, Precision::Full);
        let got =
            product(&rig, &rig.upload(&w), &rig.tensor(&x), (0, 1), Tuning { threads: 32, rows: 1, ..CUT });
        assert_close_to("many rows", &got, &want, PRODUCT_BOUND, 1.0);
    }
}
