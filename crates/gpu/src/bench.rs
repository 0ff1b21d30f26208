//! How fast kernels are, for people.

use std::io::{self, Write};

use quant::{Block, Format};

use crate::context::{Buf, Context};
use crate::kernel::Access;
use crate::kernel::Kernel;
use crate::measure::{READ, random};
use crate::ops::experts::Step;
use crate::ops::step::{Form, Tuning};
use crate::ops::{MatrixAt, Product, Records};

/// Weights that a measurement goes through, so that none are in a cache when they are read again.
const WEIGHT_BYTES: u64 = 512 << 20;
/// What yardsticks go through.
const YARDSTICK_BYTES: u64 = 1 << 30;
/// Seconds of work to measure, and of work before the first measurement.
const WORK_S: f64 = 0.01;
const WARM_UP_S: f64 = 0.5;
/// Measurements, of which the median counts.
const REPEATS: usize = 7;

/// Copies fours of words, four to a thread.
static COPY: Kernel = Kernel { name: "copy", wgsl: &[COPY_WGSL], access: &[Access::Read, Access::Write] };
const COPY_WGSL: &str = "
    struct Params { at: u32, n: u32 }
    var<immediate> p: Params;
    @group(0) @binding(0) var<storage, read> w4: array<vec4<u32>>;
    @group(0) @binding(1) var<storage, read_write> to: array<vec4<u32>>;
    @compute @workgroup_size(256)
    fn main(
        @builtin(workgroup_id) group: vec3<u32>,
        @builtin(num_workgroups) n_group: vec3<u32>,
        @builtin(local_invocation_index) thread: u32,
    ) {
        let first = (group.y * n_group.x + group.x) * 1024u + thread;
        for (var i = first; i < min(first + 1024u, p.n); i += 256u) {
            to[p.at + i] = w4[p.at + i];
        }
    }
";

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
    let bytes = report.binding_bytes_max.min(YARDSTICK_BYTES);
    let (from, to) = (random(&context, bytes), context.buffer(bytes));
    let mut bench = Bench { context, from, to, copy_bytes_s: 0.0 };
    bench.yardsticks(out)?;
    bench.small(out)?;
    let [a4, a8] = [4, 8].map(affine);
    let small = [(2048, 2048), (2048, 4096), (12288, 2048), (4096, 4096), (4096, 8192), (8192, 4096)];
    let small: Vec<Shape> =
        small.into_iter().map(|(rows, cols)| (a4, rows, cols, 1)).chain([(a8, 257, 2048, 1)]).collect();
    bench.cuts(out, "small matrices", &small, SMALL_CUTS)?;
    let large = [2, 3, 4, 5, 6, 8].map(|bits| (affine(bits), 248_320, 4096, 1));
    let large: Vec<Shape> = [(a4, 16384, 4096, 1), (a4, 248_320, 2048, 1)].into_iter().chain(large).collect();
    bench.cuts(out, "large matrices", &large, LARGE_CUTS)?;
    let floats = [(257, 2048), (4096, 4096), (16384, 4096)];
    let floats = floats.map(|(rows, cols)| (Format::Bf16, rows, cols, 1));
    bench.cuts(out, "plain floats", &floats, FLOAT_CUTS)?;
    let tokens = [1, 2, 4, 8].map(|n_token| (a4, 4096, 4096, n_token));
    bench.cuts(out, "tokens", &tokens, TOKEN_CUTS)?;
    let rows = [4096, 16384, 248_320].into_iter();
    let blocks: Vec<Shape> = rows.flat_map(|rows| OTHERS.map(|format| (format, rows, 4096, 1))).collect();
    bench.cuts(out, "other formats", &blocks, OTHER_CUTS)?;
    for (name, d_model, d_ff, n, n_pair) in [("35B", 2048, 512, 256, 8), ("397B", 4096, 1024, 64, 10)] {
        for format in [a4].into_iter().chain(OTHERS) {
            bench.experts(out, (name, format), [d_model, d_ff], n, n_pair)?;
        }
    }
    match bench.context.failure() {
        Some(error) => Err(io::Error::other(error)),
        None => Ok(()),
    }
}

/// Format, rows, columns, tokens.
type Shape = (Format, usize, usize, usize);

/// Those of checkpoints.
const OTHERS: [Format; 7] = [
    Format::Block(Block::Q8_0),
    Format::Block(Block::Q4K),
    Format::Block(Block::Q5K),
    Format::Block(Block::Q6K),
    Format::Block(Block::Iq4Xs),
    Format::Block(Block::Mxfp4),
    Format::Mxfp4,
];

fn affine(bits: u8) -> Format {
    Format::Affine { bits, group: 64 }
}

/// A cut.
const fn cut(form: Form, threads: usize, rows: usize, depth: usize, turns: usize) -> Tuning {
    Tuning { form, threads, rows, depth, turns }
}

/// What stands beside the defaults.
const SMALL_CUTS: &[Tuning] = &[
    cut(Form::Float, 256, 4, 1, 1),
    cut(Form::Dot, 128, 1, 1, 1),
    cut(Form::Dot, 128, 1, 2, 1),
    cut(Form::Dot, 256, 1, 1, 1),
    cut(Form::Dot, 256, 1, 2, 1),
    cut(Form::Dot, 256, 2, 1, 1),
    cut(Form::Dot, 256, 2, 2, 1),
    cut(Form::Dot, 256, 4, 1, 1),
    cut(Form::Dot, 512, 1, 2, 1),
    cut(Form::Dot, 512, 2, 1, 1),
    cut(Form::Dot, 512, 2, 2, 1),
];
const LARGE_CUTS: &[Tuning] = &[
    cut(Form::Float, 256, 4, 1, 1),
    cut(Form::Dot, 256, 4, 1, 1),
    cut(Form::Dot, 256, 2, 1, 8),
    cut(Form::Dot, 256, 2, 2, 8),
    cut(Form::Dot, 256, 4, 1, 8),
    cut(Form::Dot, 512, 2, 1, 4),
    cut(Form::Dot, 128, 4, 1, 8),
];
const FLOAT_CUTS: &[Tuning] = &[
    cut(Form::Float, 64, 1, 4, 1),
    cut(Form::Float, 128, 1, 2, 1),
    cut(Form::Float, 128, 1, 4, 1),
    cut(Form::Float, 256, 2, 2, 1),
    cut(Form::Float, 256, 4, 1, 1),
    cut(Form::Float, 256, 4, 2, 1),
    cut(Form::Float, 256, 8, 1, 1),
];
const OTHER_CUTS: &[Tuning] = &[
    cut(Form::Float, 256, 4, 1, 1),
    cut(Form::Dot, 256, 1, 2, 1),
    cut(Form::Dot, 256, 2, 1, 1),
    cut(Form::Dot, 256, 2, 2, 1),
    cut(Form::Dot, 256, 4, 1, 1),
    cut(Form::Dot, 256, 2, 1, 8),
    cut(Form::Dot, 512, 2, 1, 4),
];
const TOKEN_CUTS: &[Tuning] =
    &[cut(Form::Float, 256, 4, 1, 1), cut(Form::Dot, 256, 2, 1, 1), cut(Form::Dot, 256, 4, 1, 1)];
const EXPERT_CUTS: &[Tuning] = &[
    cut(Form::Float, 256, 4, 1, 1),
    cut(Form::Dot, 128, 4, 1, 1),
    cut(Form::Dot, 128, 4, 1, 2),
    cut(Form::Dot, 128, 8, 1, 1),
    cut(Form::Dot, 256, 2, 2, 1),
    cut(Form::Dot, 256, 4, 1, 1),
    cut(Form::Dot, 256, 4, 2, 1),
    cut(Form::Dot, 256, 8, 1, 1),
    cut(Form::Dot, 512, 2, 1, 1),
    cut(Form::Dot, 512, 4, 1, 1),
];

/// Threads, rows, chunks ahead, turns; `f` for floats; without a cut the default.
fn label(cut: Option<Tuning>) -> String {
    let Some(Tuning { form, threads, rows, depth, turns }) = cut else { return "default".to_owned() };
    let kind = if form == Form::Dot { "" } else { "f" };
    format!("{kind}{threads} {rows}r{depth}d{turns}t")
}

/// The default, then others.
fn columns(cuts: &[Tuning]) -> Vec<Option<Tuning>> {
    std::iter::once(None).chain(cuts.iter().copied().map(Some)).collect()
}

struct Bench {
    context: Context,
    /// For yardsticks.
    from: Buf,
    to: Buf,
    /// Bytes read and written by a copy.
    copy_bytes_s: f64,
}

impl Bench {
    /// How fast memory is.
    fn yardsticks(&mut self, out: &mut dyn Write) -> io::Result<()> {
        let bytes = self.from.bytes();
        let read = |_: usize| self.yardstick(&READ, 0, bytes);
        let copy = |_: usize| self.yardstick(&COPY, 0, bytes);
        let mut warm_s = 0.0;
        while warm_s < WARM_UP_S {
            warm_s += self.context.time_s(|| (0..8).for_each(copy));
        }
        let times = self.times_s(&[&read, &copy]);
        self.copy_bytes_s = 2.0 * bytes as f64 / times[1];
        writeln!(
            out,
            "reads: {:.0} GB/s, copies: {:.0} GB/s",
            bytes as f64 / times[0] * 1e-9,
            self.copy_bytes_s * 1e-9
        )
    }

    fn yardstick(&self, kernel: &Kernel, at: u64, bytes: u64) {
        let params = [at, bytes].map(|n| (n / 16) as u32);
        let groups = self.context.grid((params[1] as usize).div_ceil(1024));
        self.context.run(kernel, &[], &[self.from.bind(), self.to.bind()], &params, groups);
    }

    /// What a dispatch costs that has next to nothing to do.
    fn small(&self, out: &mut dyn Write) -> io::Result<()> {
        let weights = Weights::new(&self.context, affine(4), 32, 64);
        let [x, y] = [64, 32].map(|n| self.context.buffer(n * 4));
        for form in [Form::Float, Form::Dot] {
            let cut = Some(Tuning { form, ..Tuning::BASE });
            let product = |i: usize| self.matmul(&weights, (&x, &y), 1, i, cut);
            writeln!(out, "a product of 32x64, {form:?}: {:.2} us", self.times_s(&[&product])[0] * 1e6)?;
        }
        Ok(())
    }

    /// A table: a line for every shape, a column for every cut.
    fn cuts(&self, out: &mut dyn Write, what: &str, shapes: &[Shape], cuts: &[Tuning]) -> io::Result<()> {
        writeln!(out, "\n{what}: GB/s, share of copies")?;
        write!(out, "{:<28}{:>9}{:>14}", "", "best us", "a read")?;
        let cuts = columns(cuts);
        for &cut in &cuts {
            write!(out, "{:>14}", label(cut))?;
        }
        writeln!(out)?;
        for &(format, rows, cols, n_token) in shapes {
            let weights = Weights::new(&self.context, format, rows, cols);
            let bytes = format.matrix_bytes(rows, cols) as u64;
            let [x, y] = [cols, weights.rows()].map(|n| self.context.buffer((n_token * n * 4) as u64));
            let n_piece = (self.from.bytes() / bytes).max(1);
            let read_bytes = bytes.min(self.from.bytes());
            let read = |i: usize| self.yardstick(&READ, i as u64 % n_piece * bytes, read_bytes);
            let products: Vec<_> = cuts
                .iter()
                .map(|&cut| {
                    let (weights, x, y) = (&weights, &x, &y);
                    move |i: usize| self.matmul(weights, (x, y), n_token, i, cut)
                })
                .collect();
            let mut works: Vec<&dyn Fn(usize)> = vec![&read];
            works.extend(products.iter().map(|work| work as &dyn Fn(usize)));
            let times = self.times_s(&works);
            let best = times[1..].iter().copied().fold(f64::INFINITY, f64::min);
            write!(out, "{:<28}{:>9.2}", format!("{format} {rows}x{cols}, {n_token}"), best * 1e6)?;
            self.cell(out, read_bytes as f64 / times[0])?;
            for time_s in &times[1..] {
                self.cell(out, bytes as f64 / time_s)?;
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

    fn matmul(&self, weights: &Weights, (x, y): (&Buf, &Buf), n_token: usize, i: usize, cut: Option<Tuning>) {
        let mut at = 0;
        let stride = weights.rows();
        let products: Vec<Product<'_>> = weights.copies[i % weights.copies.len()]
            .iter()
            .map(|part| {
                let product = Product { w: part.at(&weights.bufs[part.buf]), out: y.bind(), stride, at };
                at += part.rows;
                product
            })
            .collect();
        let context = &self.context;
        context.matmul_tuned(&products, x.bind(), 0, n_token, |products| {
            cut.unwrap_or_else(|| context.matmul_tuning(products, n_token))
        });
    }

    fn experts(
        &self,
        out: &mut dyn Write,
        (name, format): (&str, Format),
        [d_model, d_ff]: [usize; 2],
        n: usize,
        n_pair: usize,
    ) -> io::Result<()> {
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
        let [gate, up, down] = &records.matrices(slab.bind());
        let run = |step: Step, i: usize, cut: Option<Tuning>| {
            let pairs = (pairs.bind(), (i % n * n_pair * 4) as u32, n_pair);
            let (matrices, buffers) = match step {
                Step::Down => ((down, down), (hidden.bind(), y.bind())),
                _ => ((gate, up), (x.bind(), hidden.bind())),
            };
            let cut = cut.unwrap_or_else(|| self.context.experts_tuning(matrices.0, n_pair));
            self.context.experts_dispatch(step, matrices, pairs, buffers, cut);
        };
        writeln!(
            out,
            "\n{name}: {n_pair} of {n} experts in {format}, d_model {d_model}, d_ff {d_ff}: us, GB/s, share of copies\n\
             {:<14}{:>32}{:>32}",
            "", "gate and up", "down"
        )?;
        let cuts = columns(EXPERT_CUTS);
        let works: Vec<_> = [Step::GateAndUp, Step::Down]
            .into_iter()
            .flat_map(|step| cuts.iter().map(move |&cut| (step, cut)))
            .map(|(step, cut)| move |i: usize| run(step, i, cut))
            .collect();
        let works: Vec<&dyn Fn(usize)> = works.iter().map(|work| work as &dyn Fn(usize)).collect();
        let times = self.times_s(&works);
        for (i, &cut) in cuts.iter().enumerate() {
            write!(out, "{:<14}", label(cut))?;
            for (time_s, share) in [(times[i], 2.0 / 3.0), (times[cuts.len() + i], 1.0 / 3.0)] {
                write!(out, "{:>18.2}", time_s * 1e6)?;
                self.cell(out, bytes * share / time_s)?;
            }
            writeln!(out)?;
        }
        Ok(())
    }

    /// Seconds that the `i`th piece of each work takes among others. They take turns, so that none has a better time.
    fn times_s(&self, works: &[&dyn Fn(usize)]) -> Vec<f64> {
        let many = |work: &dyn Fn(usize), n: usize| self.context.time_s(|| (0..n).for_each(work));
        let count = |work: &&dyn Fn(usize)| {
            many(*work, 2);
            ((WORK_S / (many(*work, 8) / 8.0).max(1e-7)) as usize).clamp(4, 2000)
        };
        let counts: Vec<usize> = works.iter().map(count).collect();
        let mut times = vec![[0.0; REPEATS]; works.len()];
        for repeat in 0..REPEATS {
            for (i, work) in works.iter().enumerate() {
                times[i][repeat] = many(*work, counts[i]) / counts[i] as f64;
            }
        }
        times.into_iter().map(median).collect()
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
    /// Of one copy.
    fn rows(&self) -> usize {
        self.copies[0].iter().map(|part| part.rows).sum()
    }

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

fn median(mut times: [f64; REPEATS]) -> f64 {
    times.sort_by(f64::total_cmp);
    times[REPEATS / 2]
}
