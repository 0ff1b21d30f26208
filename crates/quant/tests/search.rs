//! The search against the plain quantiser and against trying everything; costs are recomputed in f64 from what decodes.

use quant::{Cost, Curvature, Format, FormatError, Searcher, decode_row, encode_row};

/// Deterministic numbers, about normal.
struct Random(u64);

impl Random {
    fn uniform(&mut self) -> f64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 11) as f64 / (1u64 << 53) as f64
    }

    fn normal(&mut self) -> f64 {
        (0..12).map(|_| self.uniform()).sum::<f64>() - 6.0
    }

    fn row(&mut self, n: usize, shape: usize) -> Vec<f32> {
        let number = |random: &mut Self| match shape {
            0 => 0.05 * random.normal(),
            1 => random.normal().powi(3),
            2 => 40.0 + random.normal(),
            3 => f64::from(random.uniform() < 0.1) * random.normal(),
            4 => -1e-30 * random.uniform(),
            _ => 0.25,
        };
        (0..n).map(|_| number(self) as f32).collect()
    }
}

const N_SHAPE: usize = 6;

fn planes(format: Format, cols: usize) -> [Vec<u8>; 3] {
    let groups = format.scale_row_bytes(cols);
    [vec![0xa5; format.row_bytes(cols)], vec![0xa5; groups], vec![0xa5; groups]]
}

/// What `encode` stores, decoded.
fn stored(
    format: Format,
    cols: usize,
    encode: impl FnOnce(&mut [u8], &mut [u8], &mut [u8]) -> Result<(), FormatError>,
) -> Vec<f32> {
    let [mut codes, mut scales, mut biases] = planes(format, cols);
    encode(&mut codes, &mut scales, &mut biases).unwrap();
    let mut out = vec![f32::NAN; cols];
    decode_row(format, &codes, &scales, &biases, &mut out);
    out
}

fn plain(format: Format, row: &[f32]) -> Vec<f32> {
    stored(format, row.len(), |c, s, b| encode_row(format, row, c, s, b))
}

fn searched(format: Format, row: &[f32], cost: Cost<'_>) -> Vec<f32> {
    stored(format, row.len(), |c, s, b| Searcher::default().encode_row(format, row, cost, c, s, b))
}

fn error(row: &[f32], stored: &[f32], costs: &[f32]) -> f64 {
    let square = |((w, s), c): ((&f32, &f32), &f32)| f64::from(*c) * (f64::from(*w) - f64::from(*s)).powi(2);
    row.iter().zip(stored).zip(costs).map(square).sum()
}

/// A search that takes something worse than what everybody has, in any format, for any costs, on any numbers.
#[test]
fn never_worse_than_plain() {
    let mut random = Random(1);
    for bits in Format::AFFINE_BITS {
        for group in Format::AFFINE_GROUPS {
            let format = Format::Affine { bits, group };
            for case in 0..4 * N_SHAPE {
                let row = random.row(256, case % N_SHAPE);
                let costs: Vec<f32> = match case / N_SHAPE {
                    0 => vec![1.0; 256],
                    1 => (0..256).map(|_| random.uniform() as f32).collect(),
                    2 => (0..256).map(|_| random.normal().exp() as f32).collect(),
                    _ => (0..256).map(|i| f32::from(u8::from(i % 64 < 3))).collect(),
                };
                let cost = if case < N_SHAPE { Cost::Equal } else { Cost::Columns(&costs) };
                let [before, after] =
                    [plain(format, &row), searched(format, &row, cost)].map(|s| error(&row, &s, &costs));
                assert!(after <= before * (1.0 + 1e-5), "{format} case {case}: {after} after {before}");
            }
        }
    }
}

/// The least cost with any range out of a fine grid, the best scale and bias for the codes that it gives, and the codes
/// nearest to these.
fn best_of_all(row: &[f32], costs: &[f32], n: f64) -> f64 {
    const N_GRID: usize = 64;
    let w: Vec<f64> = row.iter().map(|&w| f64::from(w)).collect();
    let c: Vec<f64> = costs.iter().map(|&c| f64::from(c)).collect();
    let (lo, hi) = w.iter().fold((f64::MAX, f64::MIN), |(lo, hi), &w| (lo.min(w), hi.max(w)));
    let code = |w: f64, s: f64, b: f64| ((w - b) / s).round_ties_even().clamp(0.0, n);
    let mut best = f64::MAX;
    for i in 0..N_GRID {
        for j in 0..N_GRID - i {
            let step = (hi - lo) / N_GRID as f64;
            let (mut b, end) = (lo + step * i as f64, hi - step * j as f64);
            let mut s = (end - b) / n;
            for _ in 0..2 {
                let q: Vec<f64> = w.iter().map(|&w| code(w, s, b)).collect();
                let sum = |f: &dyn Fn(usize) -> f64| (0..w.len()).map(|i| c[i] * f(i)).sum::<f64>();
                let (c1, cq, cqq) = (sum(&|_| 1.0), sum(&|i| q[i]), sum(&|i| q[i] * q[i]));
                let (cw, cqw) = (sum(&|i| w[i]), sum(&|i| q[i] * w[i]));
                let det = c1 * cqq - cq * cq;
                if det <= 1e-12 {
                    break;
                }
                s = (c1 * cqw - cq * cw) / det;
                b = (cw - s * cq) / c1;
                best = best.min(sum(&|i| (w[i] - (s * code(w[i], s, b) + b)).powi(2)));
            }
        }
    }
    best
}

/// A search that stops at the first thing that looks good: on small groups it comes within 1 % of trying everything in
/// the mean, and within a fifth on each.
#[test]
fn as_good_as_trying_everything() {
    let mut random = Random(2);
    for bits in [2, 3, 4] {
        let format = Format::Affine { bits, group: 32 };
        let (mut found, mut best, mut worst) = (0.0, 0.0, 0.0f64);
        for case in 0..60 {
            let row = random.row(32, [0, 1, 2][case % 3]);
            let costs: Vec<f32> =
                (0..32).map(|_| if case < 30 { 1.0 } else { random.uniform() as f32 }).collect();
            let norm = error(&row, &[0.0; 32], &costs);
            let ours = error(&row, &searched(format, &row, Cost::Columns(&costs)), &costs);
            let least = best_of_all(&row, &costs, f64::from((1u32 << bits) - 1));
            (found, best) = (found + ours / norm, best + least / norm);
            // Biases are stored as bf16, which counts where numbers lie far from zero.
            if case % 3 != 2 {
                worst = worst.max(ours / least);
            }
        }
        println!("{bits} bits: {:.4} in the mean, {worst:.4} at worst", found / best);
        assert!(found <= 1.01 * best, "{bits} bits: {:.4} in the mean", found / best);
        assert!(worst <= 1.20, "{bits} bits: {worst:.4} at worst");
    }
}

/// Inputs whose columns go together: a few sources, mixed, and some noise. Their mean products, `[n, n]`.
fn products(random: &mut Random, n: usize) -> Vec<f64> {
    const N_SOURCE: usize = 12;
    let mix: Vec<f64> = (0..n * N_SOURCE).map(|_| random.normal()).collect();
    let product = |i: usize, j: usize| {
        (0..N_SOURCE).map(|s| mix[i * N_SOURCE + s] * mix[j * N_SOURCE + s]).sum::<f64>()
    };
    let noise = |i, j| if i == j { 1.0 } else { 0.0 };
    (0..n * n).map(|at| product(at / n, at % n) + noise(at / n, at % n)).collect()
}

/// `eᵀ H e`, with the share of the mean of its diagonal that the search adds to it.
fn curved(row: &[f32], stored: &[f32], h: &[f64]) -> f64 {
    let n = row.len();
    let damping = 0.01 * (0..n).map(|i| h[i * n + i]).sum::<f64>() / n as f64;
    let e: Vec<f64> = row.iter().zip(stored).map(|(w, s)| f64::from(*w) - f64::from(*s)).collect();
    let of_row = |i: usize| e[i] * ((0..n).map(|j| h[i * n + j] * e[j]).sum::<f64>() + damping * e[i]);
    (0..n).map(of_row).sum()
}

/// Errors that do not make up for each other: where inputs go together, outputs must come much nearer than with a cost
/// for each column by itself; and never be worse than plain, whatever the numbers.
#[test]
fn errors_make_up_for_each_other() {
    const N: usize = 128;
    let mut random = Random(3);
    let h = products(&mut random, N);
    let narrow: Vec<f32> = h.iter().map(|&h| h as f32).collect();
    let squares: Vec<f32> = (0..N).map(|i| narrow[i * N + i]).collect();
    let curvature = Curvature::new(&squares, &narrow, N, 1.0);
    for bits in [2, 3, 4] {
        let format = Format::Affine { bits, group: 64 };
        let (mut ours, mut by_columns) = (0.0, 0.0);
        for case in 0..2 * N_SHAPE {
            let row = random.row(N, case % N_SHAPE);
            let [found, columns, before] = [
                searched(format, &row, Cost::Curvature(&curvature)),
                searched(format, &row, Cost::Columns(&squares)),
                plain(format, &row),
            ]
            .map(|stored| curved(&row, &stored, &h));
            assert!(found <= before * (1.0 + 1e-3) + 1e-20, "{format} case {case}: {found} after {before}");
            if case % N_SHAPE == 0 {
                (ours, by_columns) = (ours + found, by_columns + columns);
            }
        }
        println!("{bits} bits: {:.3} of the cost", ours / by_columns);
        assert!(ours < 0.5 * by_columns, "{bits} bits: {:.3} of the cost", ours / by_columns);
    }
}

/// Blocks that are mixed up, or a curvature without correlations that is not the same as costs for each column.
#[test]
fn blocks_are_each_others_neighbours() {
    let mut random = Random(4);
    let (width, block) = (320, 128);
    assert_eq!(Curvature::products_len(width, block), 128 * 128 * 2 + 64 * 64);
    let row = random.row(width, 0);
    let costs: Vec<f32> = (0..width).map(|_| random.normal().exp() as f32).collect();
    let mut products = Vec::new();
    for costs in costs.chunks(block) {
        let n = costs.len();
        products.extend((0..n * n).map(|at| if at / n == at % n { costs[at / n] } else { 0.0 }));
    }
    let curvature = Curvature::new(&costs, &products, block, 1.0);
    assert_eq!((curvature.block(), curvature.width()), (block, width));
    let format = Format::Affine { bits: 3, group: 64 };
    let [curved, plain] = [searched(format, &row, Cost::Curvature(&curvature)), plain(format, &row)];
    let columns = searched(format, &row, Cost::Columns(&costs));
    let [curved, columns, plain] = [curved, columns, plain].map(|stored| error(&row, &stored, &costs));
    assert!(curved <= 1.05 * columns && columns < 0.95 * plain, "{curved} {columns} {plain}");
}

/// Inputs that were never seen, or always zero, divide by nothing; what is not finite is refused as ever.
#[test]
fn nothing_known_and_nothing_finite() {
    let mut random = Random(5);
    let format = Format::Affine { bits: 2, group: 32 };
    let mut row = random.row(64, 0);
    let nothing = Curvature::new(&[0.0; 64], &[0.0; 64 * 64], 128, 1.0);
    let found = searched(format, &row, Cost::Curvature(&nothing));
    assert!(error(&row, &found, &[1.0; 64]) <= error(&row, &plain(format, &row), &[1.0; 64]));
    assert_eq!(searched(format, &row, Cost::Columns(&[0.0; 64])), plain(format, &row));
    row[40] = f32::NAN;
    let [mut codes, mut scales, mut biases] = planes(format, 64);
    let refused =
        Searcher::default().encode_row(format, &row, Cost::Equal, &mut codes, &mut scales, &mut biases);
    assert_eq!(refused, Err(FormatError::NotFinite { col: 40 }));
}

/// Bytes that depend on the rows before: the buffers are the searcher's, the result is the row's.
#[test]
fn rows_do_not_know_of_each_other() {
    let mut random = Random(6);
    let format = Format::Affine { bits: 3, group: 64 };
    let h: Vec<f32> = products(&mut random, 128).iter().map(|&h| h as f32).collect();
    let squares: Vec<f32> = (0..128).map(|i| h[i * 128 + i]).collect();
    let curvature = Curvature::new(&squares, &h, 128, 0.9);
    let mut shared = Searcher::default();
    for shape in 0..N_SHAPE {
        let row = random.row(128, shape);
        let cost = Cost::Curvature(&curvature);
        let again = stored(format, 128, |c, s, b| shared.encode_row(format, &row, cost, c, s, b));
        assert_eq!(again, searched(format, &row, cost));
        let wide = random.row(256, shape);
        let again = stored(format, 256, |c, s, b| shared.encode_row(format, &wide, Cost::Equal, c, s, b));
        assert_eq!(again, searched(format, &wide, Cost::Equal));
    }
}
