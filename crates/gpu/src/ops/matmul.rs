//! Products of matrices with a few tokens.

use arrayvec::ArrayVec;

use crate::context::{Bind, Context};
use crate::format::{N_TEXT, kernel_of_every_format, read_by};
use crate::kernel::Access::{Read, Write};
use crate::kernel::Kernel;
use crate::ops::Product;
use crate::ops::step::{Cut, Tuning};

/// Products of one dispatch.
const PRODUCTS_MAX: usize = 4;

static MATMUL_STEP: [Kernel; N_TEXT] = kernel_of_every_format!(
    "matmul_step",
    [include_str!("../wgsl/rows.wgsl"), include_str!("../wgsl/matmul_step.wgsl")],
    &[Read, Read, Read, Read, Read, Write, Write, Write, Write]
);

impl Context {
    /// `out[t] = w · x[first + t]` for every product, as f32; for few tokens, which share what is read of a matrix up to
    /// four at a time. All matrices have as many columns as `x`. A token's results depend on nothing but the token.
    pub(crate) fn matmul_step(&self, products: &[Product<'_>], x: Bind<'_>, first: usize, n_token: usize) {
        self.matmul_tuned(products, x, first, n_token, tuning);
    }

    fn matmul_tuned(
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
        let reader = read_by(w.format);
        let cut = Cut::new(self, &reader, tuning, w.cols, n_token);
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
        self.run(reader.kernel(&MATMUL_STEP), &reader.constants(&cut.constants()), &buffers, &params, groups);
    }
}

/// What is fast for these matrices.
fn tuning(products: &[Product<'_>]) -> Tuning {
    let rows: usize = products.iter().map(|p| p.w.rows).sum();
    Tuning {
        threads: 128,
        rows: if rows < 1024 {
            1
        } else if rows < 8192 {
            2
        } else {
            4
        },
    }
}

#[cfg(test)]
mod tests {
    use kernels::{Backend, Precision, Reference};
    use quant::{Format, Matrix};

    use super::*;
    use crate::test_rig::{Rig, assert_close_to, assert_same, formats, random, rig, stored};

    /// f32 sums of up to a few thousand products against f64 ones.
    const PRODUCT_BOUND: f64 = 1e-5;

    const A4: Format = Format::Affine { bits: 4, group: 64 };

    /// Rows, columns in groups of the format (or 32), tokens, the first of them.
    const SHAPES: [(usize, usize, usize, usize); 8] = [
        (1, 1, 1, 0),
        (3, 2, 2, 1),
        (7, 3, 1, 2),
        (33, 5, 5, 0),
        (65, 7, 9, 1),
        (64, 33, 1, 0),
        (9, 65, 4, 2),
        (257, 12, 3, 0),
    ];

    fn group(format: Format) -> usize {
        match format {
            Format::Affine { group, .. } => group.into(),
            _ => 32,
        }
    }

    /// As the reference has it, and every token with the bits that it has alone, however the work is cut.
    fn check(rig: &Rig, what: &str, w: &Matrix, x: &Vec<f32>, first: usize, n_token: usize) {
        let (rows, cols) = (w.rows(), w.cols());
        let mut want = vec![0.0; n_token * rows];
        Reference.matmul(&mut [(w, &mut want)], x, first, n_token, Precision::Full);
        let (w, x) = (rig.upload(w), rig.tensor(x));
        let product = |first, n_token, tuning| {
            let out = rig.zeros(n_token * rows);
            let product = Product { w: w.at(), out: out.bind(), stride: rows, at: 0 };
            rig.context.matmul_tuned(&[product], x.bind(), first, n_token, |_| tuning);
            rig.read(&out, n_token * rows)
        };
        let tuning = Tuning { threads: 128, rows: 4 };
        let got = product(first, n_token, tuning);
        let size = (want.iter().map(|y| f64::from(*y).powi(2)).sum::<f64>() / want.len() as f64).sqrt();
        assert_close_to(&format!("{what} of {cols} columns"), &got, &want, PRODUCT_BOUND, size.max(0.1));
        for t in 0..n_token {
            let alone = product(first + t, 1, Tuning { threads: 64 << (t % 3), rows: 1 << (t % 3) });
            assert_same(&format!("{what}, token {t} alone"), &alone, &got[t * rows..(t + 1) * rows]);
        }
    }

    #[test]
    fn products_of_every_format_agree_with_the_reference() {
        // Breaks if a format is decoded wrongly, a ragged edge is lost, or a row depends on tokens beside it.
        let Some(rig) = rig() else { return };
        for (format, _) in formats() {
            for (rows, n_group, n_token, first) in SHAPES {
                let cols = n_group * group(format);
                let w = stored(1, format, rows, cols);
                let x = random(2, (first + n_token) * cols);
                check(&rig, &format!("{format}, {rows} rows, {n_token} tokens"), &w, &x, first, n_token);
            }
        }
    }
}
