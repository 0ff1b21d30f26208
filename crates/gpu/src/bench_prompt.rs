//! Times products of many tokens.

use std::error::Error;
use std::io::Write;
use std::time::Instant;

use quant::{Block, Format};

use crate::context::{Buf, Context};
use crate::ops::experts_prompt::Jobs;
use crate::ops::prompt_tile::Tile;
use crate::ops::{MatrixAt, Product, Records};

/// For every shape.
const FORMAT: Format = Format::Affine { bits: 4, group: 64 };
/// For one.
const OTHERS: [Format; 8] = [
    Format::Affine { bits: 8, group: 64 },
    Format::Block(Block::Q8_0),
    Format::Block(Block::Q4K),
    Format::Block(Block::Q5K),
    Format::Block(Block::Q6K),
    Format::Block(Block::Iq4Xs),
    Format::Block(Block::Mxfp4),
    Format::Mxfp4,
];
/// Rows, columns.
const SHAPES: [(usize, usize); 4] = [(2048, 2048), (8192, 2048), (4096, 4096), (12288, 4096)];
const OTHER_SHAPE: (usize, usize) = (4096, 4096);
const TOKENS: [usize; 3] = [128, 512, 2048];
/// Name, d_model, d_ff, experts.
const EXPERTS: [(&str, usize, usize, usize); 2] = [("35B", 2048, 512, 256), ("397B", 4096, 1024, 64)];
const EXPERT_TOKENS: [usize; 2] = [512, 2048];
const N_EXPERT_USED: usize = 8;
/// Timed submissions, of which the median counts, and how long each is to take.
const N_RUN: usize = 5;
const RUN_S: f64 = 0.05;
const REPEATS_MAX: f64 = 200.0;

/// Writes a table of the speed of each product on adapter number `adapter`, or the best one, in TFLOPS: with the tile
/// that is chosen, and with each.
///
/// # Errors
/// There is no adapter, it fails, or `out` does.
pub fn run(adapter: Option<usize>, out: &mut dyn Write) -> Result<(), Box<dyn Error>> {
    let context = Context::open(adapter)?;
    writeln!(out, "{}, {}, TFLOPS", context.report.name, context.report.driver)?;
    write!(out, "{:42} {:>10} {:>8}", "product", "ms", "chosen")?;
    for tile in tiles(&context) {
        let kind = if matches!(tile, Tile::Coop { .. }) { "coop" } else { "tile" };
        write!(out, " {:>9}", format!("{kind} {}", tile.tokens()))?;
    }
    writeln!(out)?;
    for (rows, cols) in SHAPES {
        for n_token in TOKENS {
            matmul(&context, FORMAT, (rows, cols, n_token), out)?;
        }
    }
    for format in OTHERS {
        for n_token in TOKENS {
            matmul(&context, format, (OTHER_SHAPE.0, OTHER_SHAPE.1, n_token), out)?;
        }
    }
    for (name, d_model, d_ff, n_expert) in EXPERTS {
        for n_token in EXPERT_TOKENS {
            for format in [FORMAT].into_iter().chain(OTHERS) {
                let what = format!("experts of {name} in {format}, {n_token} tokens");
                experts(&context, (&what, format), (d_model, d_ff, n_expert), n_token, out)?;
            }
        }
    }
    context.failure().map_or(Ok(()), |error| Err(error.into()))
}

fn matmul(
    context: &Context,
    format: Format,
    (rows, cols, n_token): (usize, usize, usize),
    out: &mut dyn Write,
) -> std::io::Result<()> {
    let (w, x) = (weights(context, format.matrix_bytes(rows, cols)), weights(context, n_token * cols * 4));
    let result = context.buffer((n_token * rows * 4) as u64);
    let planes = format.planes(rows, cols).map(|plane| (plane.start / 4) as u32);
    let w = MatrixAt { format, rows, cols, buf: w.bind(), planes };
    let product = Product { w, out: result.bind(), stride: rows, at: 0 };
    let flops = 2.0 * (rows * cols * n_token) as f64;
    let chosen = time_s(context, || context.matmul_prompt(&[product], x.bind(), 0, n_token));
    let what = format!("{rows}x{cols} in {format}, {n_token} tokens");
    let each: Vec<_> = tiles(context)
        .map(|tile| {
            time_s(context, || context.matmul_tiled(tile, &product, (x.bind(), 0, n_token), &mut None))
        })
        .collect();
    write_row(out, &what, flops, chosen, &each)
}

fn experts(
    context: &Context,
    (what, format): (&str, Format),
    (d_model, d_ff, n_expert): (usize, usize, usize),
    n_token: usize,
    out: &mut dyn Write,
) -> std::io::Result<()> {
    let mut record_bytes = 0;
    let planes = [(d_ff, d_model), (d_ff, d_model), (d_model, d_ff)].map(|(rows, cols)| {
        let start = record_bytes;
        record_bytes += format.matrix_bytes(rows, cols);
        format.planes(rows, cols).map(|plane| ((start + plane.start) / 4) as u32)
    });
    let records = Records { formats: [format; 3], d_model, d_ff, planes };
    let n_pair = n_token * N_EXPERT_USED;
    let (words, n_pair_max) = jobs(n_expert, n_token, record_bytes / 4);
    let slab = weights(context, n_expert * record_bytes);
    let x = weights(context, n_token * d_model * 4);
    let hidden = context.buffer((n_pair * d_ff * 4) as u64);
    let result = context.buffer((n_pair * d_model * 4) as u64);
    let buf = context.buffer(words.len() as u64 * 4);
    context.write(&buf, 0, bytemuck::cast_slice(&words));
    let jobs = Jobs { buf: buf.bind(), at: 0, n_job: n_expert, n_pair, n_row_in: n_token, n_pair_max };
    let tensors = [x.bind(), hidden.bind(), result.bind()];
    let flops = 6.0 * (d_model * d_ff * n_pair) as f64;
    let chosen = time_s(context, || context.experts_prompt(&records, slab.bind(), jobs, tensors));
    let each: Vec<_> = tiles(context)
        .map(|tile| time_s(context, || context.experts_tiled(tile, &records, slab.bind(), jobs, tensors)))
        .collect();
    write_row(out, what, flops, chosen, &each)
}

/// Tiles of threads, and those of cooperative matrices where the device has them.
fn tiles(context: &Context) -> impl Iterator<Item = Tile> {
    let own = context.tiles(FORMAT).into_iter().filter(|tile| !Tile::THREADS.contains(tile));
    Tile::THREADS.into_iter().chain(own)
}

/// Jobs of experts that tokens chose at random, as [`Jobs`] has them, and the pairs of the largest.
fn jobs(n_expert: usize, n_token: usize, record_words: usize) -> (Vec<u32>, usize) {
    let mut pairs = vec![Vec::new(); n_expert];
    let mut row_out = 0;
    for t in 0..n_token {
        // Different experts: an odd step through a power of two of them.
        let (start, step) = (hash(2 * t as u64) as usize, hash(2 * t as u64 + 1) as usize | 1);
        for i in 0..N_EXPERT_USED {
            pairs[(start.wrapping_add(i.wrapping_mul(step))) % n_expert].extend([t as u32, row_out]);
            row_out += 1;
        }
    }
    let mut words = Vec::new();
    let (mut at, mut first_pair) = (4 * n_expert, 0);
    for (e, pairs) in pairs.iter().enumerate() {
        let n_pair = pairs.len() / 2;
        words.extend([e * record_words, at, n_pair, first_pair].map(|n| n as u32));
        at += pairs.len();
        first_pair += n_pair;
    }
    let n_pair_max = pairs.iter().map(|pairs| pairs.len() / 2).max().unwrap_or(0);
    words.extend(pairs.concat());
    (words, n_pair_max)
}

/// `bytes` of numbers between 0 and 1, whatever they are read as.
fn weights(context: &Context, bytes: usize) -> Buf {
    let words: Vec<u32> = (0..bytes as u64 / 4).map(|i| hash(i) as u32 & 0x3f7f_3f7f).collect();
    let buf = context.buffer(bytes as u64);
    context.write(&buf, 0, bytemuck::cast_slice(&words));
    buf
}

fn hash(n: u64) -> u64 {
    let z = n.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z ^ (z >> 31)
}

/// Seconds that the device takes for one: the median of several submissions of many.
fn time_s(context: &Context, mut record: impl FnMut()) -> f64 {
    let mut seconds = |n: usize| {
        let start = Instant::now();
        (0..n).for_each(|_| record());
        context.wait();
        start.elapsed().as_secs_f64() / n as f64
    };
    seconds(1);
    let n = (RUN_S / seconds(1)).clamp(1.0, REPEATS_MAX) as usize;
    let mut all: Vec<f64> = (0..N_RUN).map(|_| seconds(n)).collect();
    all.sort_by(f64::total_cmp);
    all[N_RUN / 2]
}

fn write_row(
    out: &mut dyn Write,
    what: &str,
    flops: f64,
    chosen_s: f64,
    each_s: &[f64],
) -> std::io::Result<()> {
    let tflops = |seconds: f64| flops / seconds / 1e12;
    write!(out, "{what:42} {:10.3} {:8.3}", chosen_s * 1e3, tflops(chosen_s))?;
    for &seconds in each_s {
        write!(out, " {:9.3}", tflops(seconds))?;
    }
    writeln!(out)
}
