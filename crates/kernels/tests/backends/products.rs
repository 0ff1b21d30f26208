//! Matrix products and embeddings.

use kernels::{Backend, Reference};
use quant::Format;

use crate::common::{
    Random, assert_close, assert_close_to, assert_same, cpus, cpus_2, formats, is_fused, matrix, name, norm,
};

/// f32 sums of up to a few thousand products against f64 ones.
const PRODUCT_BOUND: f64 = 1e-5;

/// Rows, columns in groups of the format (32 numbers for plain floats), tokens.
const SHAPES: [(usize, usize, usize); 12] = [
    (1, 1, 1),
    (2, 1, 3),
    (3, 2, 2),
    (7, 3, 1),
    (33, 5, 5),
    (65, 7, 9),
    (16, 8, 8),
    (130, 4, 17),
    (5, 16, 70),
    (64, 33, 1),
    (9, 65, 4),
    (257, 12, 2),
];

#[test]
fn products_of_every_format_agree_with_the_reference() {
    // Breaks if a format is decoded wrongly, a ragged edge is lost, or a row depends on batch, threads or set.
    let cpus = cpus();
    for format in formats() {
        let mut random = Random::new(1);
        for (rows, n_group, n_token) in SHAPES {
            let cols = n_group * format_group(format);
            let w = random.matrix(format, rows, cols);
            let first = random.below(3);
            let x = random.normals((first + n_token) * cols);
            check(&cpus, &format!("{format} {rows}x{cols}, {n_token} tokens"), &w, &x, first, n_token);
        }
    }
}

#[test]
fn plain_floats_may_have_any_number_of_columns() {
    // Breaks if the last, incomplete vector of a row is read past its end or dropped.
    let cpus = cpus_2();
    for format in [Format::F32, Format::F16, Format::Bf16] {
        for cols in [1, 3, 15, 16, 17, 127, 129, 200] {
            let mut random = Random::new(cols as u64);
            let w = random.matrix(format, 5, cols);
            let x = random.normals(3 * cols);
            check(&cpus, &format!("{format} 5x{cols}"), &w, &x, 0, 3);
        }
    }
}

fn format_group(format: Format) -> usize {
    match format {
        Format::Affine { group, .. } => group as usize,
        _ => 32,
    }
}

/// All backends within the bound; all fused sets and all cuts of the batch with the same bits.
fn check(cpus: &[kernels::Cpu], what: &str, w: &quant::Matrix, x: &Vec<f32>, first: usize, n_token: usize) {
    let rows = w.rows();
    let mut want = vec![0.0; n_token * rows];
    Reference.matmul(w, x, first, n_token, &mut want);
    // A product of independent numbers has about this size.
    let mut row = vec![0.0; w.cols()];
    w.view().decode_row(0, &mut row);
    let size = norm(&row) * norm(x) / ((x.len() / w.cols()) as f64).sqrt();
    let mut fused: Option<Vec<f32>> = None;
    for cpu in cpus {
        let what = format!("{what}, {}", name(cpu));
        let mut got = vec![f32::NAN; n_token * rows];
        cpu.matmul(w, x, first, n_token, &mut got);
        assert_close_to(&what, &got, &want, PRODUCT_BOUND, size);
        let mut alone = vec![f32::NAN; rows];
        for t in 0..n_token {
            cpu.matmul(w, x, first + t, 1, &mut alone);
            assert_same(&format!("{what}, token {t} alone"), &alone, &got[t * rows..(t + 1) * rows]);
        }
        if is_fused(cpu) {
            assert_same(
                &format!("{what}, against another set or number of threads"),
                &got,
                fused.get_or_insert(got.clone()),
            );
        }
    }
}

#[test]
fn extreme_activations_keep_their_products() {
    // Breaks if zeros, denormals, large numbers or NaN are mangled on the way through the layout.
    let format = Format::Affine { bits: 4, group: 64 };
    let mut random = Random::new(2);
    let w = random.matrix(format, 33, 192);
    for (what, x) in [
        ("zeros", vec![0.0; 192]),
        ("denormals", random.normals(192).iter().map(|x| x * 1e-40).collect()),
        ("large numbers", random.normals(192).iter().map(|x| x * 1e30).collect::<Vec<f32>>()),
    ] {
        let mut want = vec![0.0; 33];
        Reference.matmul(&w, &x, 0, 1, &mut want);
        for cpu in cpus_2() {
            let mut got = vec![f32::NAN; 33];
            cpu.matmul(&w, &x, 0, 1, &mut got);
            assert_close(&format!("{what}, {}", name(&cpu)), &got, &want, PRODUCT_BOUND);
        }
    }
    let mut x = vec![0.0; 192];
    x[70] = f32::NAN;
    for cpu in cpus_2() {
        let mut got = vec![0.0; 33];
        cpu.matmul(&w, &x, 0, 1, &mut got);
        assert!(got.iter().all(|y| y.is_nan()), "a NaN is lost, {}", name(&cpu));
    }
}

#[test]
fn every_code_in_every_place_has_its_value() {
    // Breaks if a code lands on the wrong column: each column is asked for alone, and must be exact.
    for format in formats() {
        let cols = 2 * format_group(format).max(64);
        let mut random = Random::new(3);
        let numbers = random.normals(3 * cols);
        let w = matrix(format, 3, cols, &numbers);
        let mut row = vec![0.0; cols];
        for cpu in cpus_2() {
            let one_hot: Vec<f32> = (0..cols * cols).map(|i| (i / cols == i % cols) as u8 as f32).collect();
            let mut got = vec![0.0; cols * 3];
            cpu.matmul(&w, &one_hot, 0, cols, &mut got);
            for r in 0..3 {
                w.view().decode_row(r, &mut row);
                let column: Vec<f32> = (0..cols).map(|c| got[c * 3 + r]).collect();
                // scale·code + bias is rounded once or twice.
                assert_close(&format!("{format}, row {r}, {}", name(&cpu)), &column, &row, 2e-7);
            }
        }
    }
}

#[test]
fn embeddings_are_decoded_rows() {
    // Breaks if a token gets another token's row.
    for format in formats() {
        let w = Random::new(4).matrix(format, 11, 256);
        let ids = [10, 0, 3, 3, 7];
        let mut want = vec![0.0; ids.len() * 256];
        Reference.embed(&w, &ids, &mut want);
        for cpu in cpus_2() {
            let mut got = vec![f32::NAN; ids.len() * 256];
            cpu.embed(&w, &ids, &mut got);
            assert_same(&format!("{format}, {}", name(&cpu)), &got, &want);
        }
    }
}
