//! How fast kernels are, for people.

use std::io::{self, Write};
use std::time::Instant;

use quant::Format;

use crate::context::{Buf, Context};
use crate::ops::step::Tuning;
use crate::ops::{MatrixAt, Product, Records};

/// Weights that a measurement goes through, so that none are in a cache when they are read again.
const WEIGHT_BYTES: u64 = 512 << 20;
/// Seconds of work to measure.
const WORK_S: f64 = 0.01;
/// Measurements, of which the median counts.
const REPEATS: usize = 5;

/// Prints the speed of products of few tokens on the best device, against that of copies.
///
/// # Errors
/// There is no device, or `out` takes no more.
pub fn products(out: &mut dyn Write) -> io::Result<()> {
    let context = Context::open(None).map_err(io::Error::other)?;
    let report = &context.report;
    writeln!(
        out,
        "{} ({}, {}), subgroups {:?}",
        report.name, report.interface, report.driver, report.subgroup
    )?;
    let bench = Bench { copy_bytes_s: copy_bytes_s(&context), context };
    writeln!(out, "copies: {:.0} GB/s", bench.copy_bytes_s * 1e-9)?;
    bench.small(out)?;
    let a4 = affine(4);
    bench.cuts(out, "rows of a team and threads of a workgroup", &sizes(), &row_cuts())?;
    let few = [(a4, 2048, 2048, 1), (a4, 4096, 4096, 1), (a4, 16384, 4096, 1), (a4, 248_320, 4096, 1)];
    bench.cuts(out, "ways", &few, &ways())?;
    let formats = [2, 3, 5, 6, 8].map(affine).into_iter().chain([Format::Bf16, Format::F16, Format::F32]);
    let formats: Vec<Shape> = formats.map(|format| (format, 16384, 4096, 1)).collect();
    bench.cuts(out, "formats", &formats, &row_cuts()[..4])?;
    let tokens = [1, 2, 3, 4, 8].map(|n_token| (a4, 16384, 4096, n_token));
    bench.cuts(out, "tokens", &tokens, &row_cuts()[..4])?;
    for (name, d_model, d_ff, n, n_pair) in [("35B", 2048, 512, 256, 8), ("397B", 4096, 1024, 64, 10)] {
        bench.experts(out, name, [d_model, d_ff], n, n_pair)?;
    }
    match bench.context.failure() {
        Some(error) => Err(io::Error::other(error)),
        None => Ok(()),
    }
}

/// Format, rows, columns, tokens.
type Shape = (Format, usize, usize, usize);

fn affine(bits: u8) -> Format {
    Format::Affine { bits, group: 64 }
}

fn sizes() -> Vec<Shape> {
    let rows = [64, 1024, 2048, 4096, 8192, 16384, 248_320];
    let mut shapes: Vec<Shape> = rows.into_iter().map(|rows| (affine(4), rows, 4096, 1)).collect();
    shapes.extend([(affine(8), 248_320, 4096, 1), (affine(4), 2048, 2048, 1), (affine(4), 4096, 8192, 1)]);
    shapes
}

fn row_cuts() -> Vec<(String, Tuning)> {
    let cut = |threads, rows| (format!("{rows}r {threads}t"), Tuning { threads, rows, ..Tuning::BASE });
    [(128, 1), (128, 2), (128, 4), (128, 8), (64, 2), (64, 4), (256, 1), (256, 2), (256, 4)]
        .map(|(threads, rows)| cut(threads, rows))
        .into()
}

fn ways() -> Vec<(String, Tuning)> {
    let base = Tuning { rows: 2, ..Tuning::BASE };
    let mut ways = Vec::new();
    for rows in [2, 4] {
        let base = Tuning { rows, ..base };
        ways.push((format!("{rows}r base"), base));
        ways.push((format!("{rows}r !ahead"), Tuning { ahead: false, ..base }));
        ways.push((format!("{rows}r !tiled"), Tuning { tiled: false, ..base }));
        ways.push((format!("{rows}r !both"), Tuning { ahead: false, tiled: false, ..base }));
        ways.push((format!("{rows}r 16l"), Tuning { lanes: 16, ..base }));
        ways.push((format!("{rows}r 8l"), Tuning { lanes: 8, ..base }));
    }
    ways
}

struct Bench {
    context: Context,
    /// Bytes read and written by a copy.
    copy_bytes_s: f64,
}

impl Bench {
    /// What a dispatch costs that has next to nothing to do.
    fn small(&self, out: &mut dyn Write) -> io::Result<()> {
        let weights = Weights::new(&self.context, affine(4), 32, 64);
        let time_s = self.matmul_s(&weights, 64, 1, Tuning { rows: 1, ..Tuning::BASE });
        writeln!(out, "a product of 32x64: {:.2} us", time_s * 1e6)
    }

    /// A table: a line for every shape, a column for every cut.
    fn cuts(
        &self,
        out: &mut dyn Write,
        what: &str,
        shapes: &[Shape],
        cuts: &[(String, Tuning)],
    ) -> io::Result<()> {
        writeln!(out, "\n{what}: GB/s, share of copies")?;
        write!(out, "{:<28}{:>9}", "", "best us")?;
        for (name, _) in cuts {
            write!(out, "{name:>14}")?;
        }
        writeln!(out)?;
        for &(format, rows, cols, n_token) in shapes {
            let weights = Weights::new(&self.context, format, rows, cols);
            let bytes = format.matrix_bytes(rows, cols) as f64;
            let times: Vec<f64> =
                cuts.iter().map(|&(_, tuning)| self.matmul_s(&weights, cols, n_token, tuning)).collect();
            let best = times.iter().copied().fold(f64::INFINITY, f64::min);
            write!(out, "{:<28}{:>9.2}", format!("{format} {rows}x{cols}, {n_token}"), best * 1e6)?;
            for time_s in times {
                self.cell(out, bytes / time_s)?;
            }
            writeln!(out)?;
            out.flush()?;
        }
        Ok(())
    }

    fn cell(&self, out: &mut dyn Write, bytes_s: f64) -> io::Result<()> {
        let cell = format!("{:.0} {:>3.0}%", bytes_s * 1e-9, 100.0 * bytes_s / self.copy_bytes_s);
        write!(out, "{cell:>14}")
    }

    fn matmul_s(&self, weights: &Weights, cols: usize, n_token: usize, tuning: Tuning) -> f64 {
        let x = self.context.buffer((n_token * cols * 4) as u64);
        let rows: usize = weights.copies[0].iter().map(|part| part.rows).sum();
        let y = self.context.buffer((n_token * rows * 4) as u64);
        self.time_s(|i| {
            let mut at = 0;
            let products: Vec<Product<'_>> = weights.copies[i % weights.copies.len()]
                .iter()
                .map(|part| {
                    let product =
                        Product { w: part.at(&weights.bufs[part.buf]), out: y.bind(), stride: rows, at };
                    at += part.rows;
                    product
                })
                .collect();
            self.context.matmul_tuned(&products, x.bind(), 0, n_token, |_| tuning);
        })
    }

    fn experts(
        &self,
        out: &mut dyn Write,
        name: &str,
        [d_model, d_ff]: [usize; 2],
        n: usize,
        n_pair: usize,
    ) -> io::Result<()> {
        let format = affine(4);
        let shapes = [(d_ff, d_model), (d_ff, d_model), (d_model, d_ff)];
        let (mut planes, mut record_words) = ([[0; 3]; 3], 0);
        for (planes, (rows, cols)) in planes.iter_mut().zip(shapes) {
            *planes = format.planes(rows, cols).map(|plane| record_words + plane.start as u32 / 4);
            record_words += format.matrix_bytes(rows, cols) as u32 / 4;
        }
        let records = Records { formats: [format; 3], d_model, d_ff, planes };
        let slab = random(&self.context, u64::from(record_words) * 4 * n as u64);
        // Every dispatch takes the next experts.
        let pair = |i: usize| [(i % n) as u32 * record_words, 0, (i % n_pair) as u32, 0];
        let words: Vec<u32> = (0..n * n_pair).flat_map(pair).collect();
        let pairs = self.context.buffer(words.len() as u64 * 4);
        self.context.write(&pairs, 0, bytemuck::cast_slice(&words));
        let floats = |n: usize| self.context.buffer(n as u64 * 4);
        let (x, hidden, y) = (floats(d_model), floats(n_pair * d_ff), floats(n_pair * d_model));
        let bytes = f64::from(record_words) * 4.0 * n_pair as f64;
        let matrices = records.matrices(slab.bind());
        writeln!(
            out,
            "\n{name}: {n_pair} of {n} experts, d_model {d_model}, d_ff {d_ff}: us, GB/s, share of copies"
        )?;
        for (cut, tuning) in row_cuts().into_iter().chain(ways()).filter(|(_, tuning)| 2 <= tuning.rows) {
            let time_s = self.time_s(|i| {
                let at = (i % n * n_pair * 4) as u32;
                let buffers = [x.bind(), hidden.bind(), y.bind()];
                self.context.experts_tuned(&matrices, (pairs.bind(), at, n_pair), buffers, |_, _| tuning);
            });
            write!(out, "{cut:<14}{:>9.2}", time_s * 1e6)?;
            self.cell(out, bytes / time_s)?;
            writeln!(out)?;
        }
        Ok(())
    }

    /// Seconds that the `i`th piece of work takes among others.
    fn time_s(&self, record: impl Fn(usize)) -> f64 {
        let many = |n: usize| self.context.time_s(|| (0..n).for_each(&record));
        many(2);
        let n = ((WORK_S / (many(8) / 8.0).max(1e-7)) as usize).clamp(4, 2000);
        median(|| many(n) / n as f64)
    }
}

/// A matrix, often enough that its bytes are not in a cache when its turn comes again.
struct Weights {
    bufs: Vec<Buf>,
    /// Of each copy, blocks of rows.
    copies: Vec<Vec<Part>>,
}

/// Some rows of a matrix.
struct Part {
    format: Format,
    rows: usize,
    cols: usize,
    buf: usize,
    at: u64,
}

impl Part {
    fn at<'a>(&self, buf: &'a Buf) -> MatrixAt<'a> {
        let Self { format, rows, cols, at, .. } = *self;
        let planes = format.planes(rows, cols).map(|plane| (at as usize + plane.start) as u32 / 4);
        MatrixAt { format, rows, cols, buf: buf.bind(), planes }
    }
}

impl Weights {
    fn new(context: &Context, format: Format, rows: usize, cols: usize) -> Self {
        let limit = context.report.binding_bytes_max.min(2 << 30);
        let bytes = format.matrix_bytes(rows, cols) as u64;
        let n_copy = WEIGHT_BYTES.div_ceil(bytes).clamp(1, 64);
        if bytes <= limit {
            let per_buf = (limit / bytes).min(n_copy);
            let part =
                |i: u64| Part { format, rows, cols, buf: (i / per_buf) as usize, at: i % per_buf * bytes };
            let bufs = (0..n_copy.div_ceil(per_buf)).map(|_| random(context, per_buf * bytes)).collect();
            return Self { bufs, copies: (0..n_copy).map(|i| vec![part(i)]).collect() };
        }
        let n_part = bytes.div_ceil(limit - (1 << 20)) as usize;
        let rows = rows.div_ceil(n_part);
        let part_bytes = format.matrix_bytes(rows, cols) as u64;
        let bufs = (0..n_part).map(|_| random(context, part_bytes)).collect();
        Self { bufs, copies: vec![(0..n_part).map(|buf| Part { format, rows, cols, buf, at: 0 }).collect()] }
    }
}

/// Random words, none of whose halves is a bf16 of 2 or more.
fn random(context: &Context, bytes: u64) -> Buf {
    const BLOCK_BYTES: u64 = 16 << 20;
    let buf = context.buffer(bytes);
    let mut state = 1u64;
    let mut word = || {
        state = state.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
        (state >> 32) as u32 & 0xbfff_bfff
    };
    let block: Vec<u32> = (0..BLOCK_BYTES.min(bytes) / 4).map(|_| word()).collect();
    let source = context.buffer(BLOCK_BYTES);
    context.write(&source, 0, bytemuck::cast_slice(&block));
    for at in (0..bytes).step_by(BLOCK_BYTES as usize) {
        context.copy((&source, 0), (&buf, at), BLOCK_BYTES.min(bytes - at));
    }
    context.wait();
    buf
}

fn copy_bytes_s(context: &Context) -> f64 {
    let bytes = context.report.binding_bytes_max.min(1 << 30);
    let (from, to) = (context.buffer(bytes), context.buffer(bytes));
    let copies_s = |n: usize| {
        for _ in 0..n {
            context.copy((&from, 0), (&to, 0), bytes);
        }
        let start = Instant::now();
        context.wait();
        start.elapsed().as_secs_f64()
    };
    copies_s(1);
    2.0 * bytes as f64 * 8.0 / median(|| copies_s(9) - copies_s(1))
}

fn median(measure: impl Fn() -> f64) -> f64 {
    let mut times: Vec<f64> = (0..REPEATS).map(|_| measure()).collect();
    times.sort_by(f64::total_cmp);
    times[REPEATS / 2]
}
