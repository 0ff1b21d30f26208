//! Matrix products and embeddings.

use std::sync::Arc;

use kernels::{Activations, Backend, Cpu, Isa, Precision, Reference};
use quant::{Buffer, Format, Matrix};

use crate::common::{
    Random, assert_close, assert_close_to, assert_same, cpus, cpus_2, formats, is_fused, matrix, name, norm,
    some,
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
    let cases = formats().into_iter().flat_map(|format| SHAPES.map(|shape| (format, shape)));
    for (format, (rows, n_group, n_token)) in some(cases) {
        let mut random = Random::new(rows as u64);
        // Blocks are long: as many columns as others have.
        let cols = n_group.min(65 * 128 / format_group(format)) * format_group(format);
        let w = random.matrix(format, rows, cols);
        let first = random.below(3);
        let x = random.normals((first + n_token) * cols);
        check(&cpus, &format!("{format} {rows}x{cols}, {n_token} tokens"), &w, &x, first, n_token);
    }
}

#[test]
fn rows_that_share_sets_of_the_cache_are_read_as_others() {
    // Breaks if rows that lie a multiple of 4096 bytes apart are put together in a wrong order, or the last one is read
    // past its end.
    let cpus = cpus_2();
    for (bits, cols) in [(4, 8192), (2, 16384), (8, 4096)] {
        for group in [32, 64, 128] {
            for format in [Format::Affine { bits, group }, Format::AffineF16 { bits, group }] {
                let mut random = Random::new(u64::from(bits));
                let w = random.matrix(format, 37, cols);
                let x = random.normals(2 * cols);
                check(&cpus, &format!("{format} 37x{cols}"), &w, &x, 0, 2);
            }
        }
    }
}

#[test]
fn plain_floats_may_have_any_number_of_columns() {
    // Breaks if the last, incomplete vector of a row is read past its end or dropped.
    let cpus = cpus_2();
    for format in [Format::F32, Format::F16, Format::Bf16, Format::Fp8, Format::Fp8F32] {
        for cols in [1, 3, 15, 16, 17, 127, 129, 200] {
            let mut random = Random::new(cols as u64);
            let w = random.matrix(format, 5, cols);
            let x = random.normals(3 * cols);
            check(&cpus, &format!("{format} 5x{cols}"), &w, &x, 0, 3);
        }
    }
}

#[test]
fn codes_that_are_no_number_do_not_become_one() {
    // Breaks if a damaged FP8 weight is taken for a large number: the answer would be wrong, and nobody would know.
    for format in [Format::Fp8, Format::Fp8F32] {
        let plain = matrix(format, 40, 40, &[1.0; 40 * 40]);
        let view = plain.view();
        for (row, col, code) in [(0, 0, 0x7f_u8), (3, 17, 0xff), (39, 39, 0x7f)] {
            let mut buffer = Buffer::zeroed(format.matrix_bytes(40, 40)).unwrap();
            let [codes, scales, _] = format.planes(40, 40);
            buffer[codes].copy_from_slice(view.codes);
            buffer[scales].copy_from_slice(view.scales);
            buffer[row * 40 + col] = code;
            let w = Matrix::new(format, 40, 40, Arc::new(buffer), 0).unwrap();
            for (cpu, n_token) in cpus_2().iter().flat_map(|cpu| [(cpu, 1), (cpu, 5)]) {
                let mut got = vec![0.0; n_token * 40];
                cpu.matmul(&mut [(&w, &mut got)], &vec![1.0; n_token * 40], 0, n_token, Precision::Setting);
                for (i, y) in got.iter().enumerate() {
                    assert_eq!(
                        y.is_nan(),
                        i % 40 == row,
                        "{format}, {}, {code:#x}, row {}",
                        name(cpu),
                        i % 40
                    );
                }
            }
        }
    }
}

/// Columns of a group or block; 32 for plain floats.
fn format_group(format: Format) -> usize {
    if format.run_cols() == 1 { 32 } else { format.run_cols() }
}

/// All backends within the bound; all fused sets and all cuts of the batch with the same bits.
fn check(cpus: &[kernels::Cpu], what: &str, w: &quant::Matrix, x: &Vec<f32>, first: usize, n_token: usize) {
    let rows = w.rows();
    let mut want = vec![0.0; n_token * rows];
    Reference.matmul(&mut [(w, &mut want)], x, first, n_token, Precision::Setting);
    // A product of independent numbers has about this size.
    let mut row = vec![0.0; w.cols()];
    w.view().decode_row(0, &mut row);
    let size = norm(&row) * norm(x) / ((x.len() / w.cols()) as f64).sqrt();
    let mut fused: Option<Vec<f32>> = None;
    for cpu in cpus {
        let what = format!("{what}, {}", name(cpu));
        let mut got = vec![f32::NAN; n_token * rows];
        cpu.matmul(&mut [(w, &mut got)], x, first, n_token, Precision::Setting);
        assert_close_to(&what, &got, &want, PRODUCT_BOUND, size);
        let mut alone = vec![f32::NAN; rows];
        for t in 0..n_token {
            cpu.matmul(&mut [(w, &mut alone)], x, first + t, 1, Precision::Setting);
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

/// Activations are rounded to multiples of no less than 2⁻¹⁰⁰: what that takes from a product of 192 numbers.
const TINY: f64 = 1e-28;

#[test]
fn extreme_activations_keep_their_products() {
    // Breaks if zeros, denormals, small or large numbers or NaN are mangled on the way through the layout.
    let format = Format::Affine { bits: 4, group: 64 };
    let mut random = Random::new(2);
    let w = random.matrix(format, 33, 192);
    for scale in [0.0, 1e-40, 1e-30, 1e-20, 1e-10, 1e10, 1e30] {
        let x = random.normals(192).iter().map(|x| x * scale).collect::<Vec<f32>>();
        let mut want = vec![0.0; 33];
        Reference.matmul(&mut [(&w, &mut want)], &x, 0, 1, Precision::Setting);
        for cpu in cpus_2() {
            let what = format!("times {scale:e}, {}", name(&cpu));
            let mut got = vec![f32::NAN; 33];
            cpu.matmul(&mut [(&w, &mut got)], &x, 0, 1, Precision::Setting);
            let size = norm(&want) / (want.len() as f64).sqrt();
            assert_close_to(&what, &got, &want, PRODUCT_BOUND, size.max(TINY / PRODUCT_BOUND));
        }
    }
    let mut x = vec![0.0; 192];
    x[70] = f32::NAN;
    for cpu in cpus_2() {
        let mut got = vec![0.0; 33];
        cpu.matmul(&mut [(&w, &mut got)], &x, 0, 1, Precision::Setting);
        assert!(got.iter().all(|y| y.is_nan()), "a NaN is lost, {}", name(&cpu));
    }
}

#[test]
fn every_code_in_every_place_has_its_value() {
    // Breaks if a code lands on the wrong column: each column is asked for alone, and must be exact.
    for format in formats() {
        let cols = 2 * format_group(format).max(64);
        let mut random = Random::new(3);
        let w = random.matrix(format, 3, cols);
        let mut row = vec![0.0; cols];
        for cpu in cpus_2() {
            let one_hot: Vec<f32> = (0..cols * cols).map(|i| (i / cols == i % cols) as u8 as f32).collect();
            let mut got = vec![0.0; cols * 3];
            cpu.matmul(&mut [(&w, &mut got)], &one_hot, 0, cols, Precision::Setting);
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
fn one_large_activation_costs_its_neighbours_nothing_that_f32_sums_keep() {
    // Breaks if numbers beside an outlier are rounded to few bits: the group's code and bias parts, each larger than
    // their sum, are f32 and lose some bits of it, no more.
    let format = Format::Affine { bits: 4, group: 64 };
    let mut random = Random::new(7);
    let w = random.matrix(format, 16, 256);
    let mut row = vec![0.0; 256];
    let mut x = random.normals(256);
    x[100] = 1e4;
    for cpu in cpus_2() {
        let mut got = vec![f32::NAN; 16];
        cpu.matmul(&mut [(&w, &mut got)], &x, 0, 1, Precision::Setting);
        for (r, &got) in got.iter().enumerate() {
            w.view().decode_row(r, &mut row);
            let want: f64 = row.iter().zip(&x).map(|(w, x)| *w as f64 * *x as f64).sum();
            let size = row.iter().map(|w| w.abs() as f64).fold(0.0, f64::max)
                * x.iter().map(|x| x.abs() as f64).sum::<f64>();
            assert!((got as f64 - want).abs() <= 1e-6 * size, "{}: {got} should be {want}", name(&cpu));
        }
    }
}

#[test]
fn fewer_bits_of_activations_keep_their_bound() {
    // Breaks if a plane is lost or weighed wrongly, the setting does nothing, or what must be exact is not.
    const BOUND: f64 = 2e-4;
    for format in formats() {
        let mut random = Random::new(8);
        let cols = 4 * format_group(format).max(64);
        let (w, x) = (random.matrix(format, 35, cols), random.normals(9 * cols));
        let (mut want, mut first) = (vec![0.0; 9 * 35], None);
        Reference.matmul(&mut [(&w, &mut want)], &x, 0, 9, Precision::Full);
        for isa in Isa::ALL {
            let Some(cpu) = Cpu::with_isa(2, isa) else { continue };
            let cpu = cpu.with_activations(Activations::Int16);
            let what = format!("{format}, {}", name(&cpu));
            let mut got = vec![f32::NAN; 9 * 35];
            cpu.matmul(&mut [(&w, &mut got)], &x, 0, 9, Precision::Setting);
            assert_close(&what, &got, &want, BOUND);
            if format.run_cols() > 1 {
                let error = got.iter().zip(&want).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
                assert!(BOUND as f32 / 200.0 < error, "{what}: no rounding at all, {error:e}");
            }
            if is_fused(&cpu) {
                assert_same(&what, &got, first.get_or_insert(got.clone()));
            }
            cpu.matmul(&mut [(&w, &mut got)], &x, 0, 9, Precision::Full);
            assert_close(&format!("{what}, in full"), &got, &want, PRODUCT_BOUND);
        }
    }
}

#[test]
fn several_matrices_at_once_give_what_each_gives_alone() {
    // Breaks if one matrix of a call gets another's activations, rows or output.
    let mut random = Random::new(9);
    let formats = [(4, 64), (8, 64), (4, 64), (3, 32)].map(|(bits, group)| Format::Affine { bits, group });
    let all: Vec<_> = formats.into_iter().chain([Format::Bf16]).zip([70, 16, 33, 1, 40]).collect();
    let weights: Vec<_> = all.iter().map(|&(format, rows)| random.matrix(format, rows, 128)).collect();
    let x = random.normals(140 * 128);
    for cpu in cpus_2() {
        for n_token in [1, 3, 130] {
            let empty = || weights.iter().map(|w| vec![f32::NAN; n_token * w.rows()]).collect::<Vec<_>>();
            let (mut together, mut alone) = (empty(), empty());
            let mut products: Vec<_> = weights.iter().zip(&mut together).collect();
            cpu.matmul(&mut products, &x, 5, n_token, Precision::Setting);
            for (i, (w, out)) in weights.iter().zip(&mut alone).enumerate() {
                cpu.matmul(&mut [(w, &mut *out)], &x, 5, n_token, Precision::Setting);
                assert_same(&format!("matrix {i}, {n_token} tokens, {}", name(&cpu)), &together[i], out);
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
