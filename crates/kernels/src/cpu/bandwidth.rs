//! How fast the threads can read memory, and change it: the limits of every decode step.

use std::time::{Duration, Instant};

use quant::Buffer;

use super::isa::Token;
use super::pool::Pool;
use super::share::Share;
use super::simd::{Kernel, LANES, Simd};

/// More than the last-level cache of any machine this runs on, so that a pass finds nothing of the pass before.
const BUFFER_BYTES: usize = 1 << 30;
/// What is timed at once: short enough that another program's turn on a core spoils few of them.
const PIECE_FLOATS: usize = 1 << 23;
/// What one job reads.
const JOB_FLOATS: usize = 1 << 17;

/// What is changed in place at once: as much as a delta-net layer of 64 heads keeps, in pieces of four heads.
const UPDATE_PIECE_FLOATS: usize = 1 << 20;
const UPDATE_JOB_FLOATS: usize = 1 << 16;

/// The median of pieces that are read one after the other.
pub(super) fn measure(isa: Token, pool: &Pool, duration: Duration) -> f64 {
    // As weights lie; written once, so that the pages exist.
    let mut buffer = Buffer::zeroed(BUFFER_BYTES).expect("memory to measure");
    buffer.fill(0x3c);
    // SAFETY: any bits are an f32; pages are aligned.
    let (_, buffer, _) = unsafe { buffer.align_to::<f32>() };
    let start = Instant::now();
    let mut times = Vec::new();
    for piece in buffer.chunks_exact(PIECE_FLOATS).cycle() {
        let time = Instant::now();
        pool.run(PIECE_FLOATS / JOB_FLOATS, &|job| {
            let sum = isa.run(Sum(&piece[job * JOB_FLOATS..(job + 1) * JOB_FLOATS]));
            std::hint::black_box(sum);
        });
        times.push(time.elapsed());
        if start.elapsed() >= duration {
            break;
        }
    }
    times.sort_unstable();
    size_of_val(&buffer[..PIECE_FLOATS]) as f64 / times[times.len() / 2].as_secs_f64()
}

/// The median of pieces of a buffer of `n_float` numbers that are changed in place one after the other: bytes read
/// plus bytes written per second.
pub(super) fn measure_update(isa: Token, pool: &Pool, n_float: usize, duration: Duration) -> f64 {
    let mut buffer = vec![1.0f32; n_float.next_multiple_of(UPDATE_PIECE_FLOATS)];
    let start = Instant::now();
    let mut times = Vec::new();
    while times.is_empty() || start.elapsed() < duration {
        for piece in buffer.chunks_exact_mut(UPDATE_PIECE_FLOATS) {
            let time = Instant::now();
            let piece = Share::new(piece);
            pool.run(UPDATE_PIECE_FLOATS / UPDATE_JOB_FLOATS, &|job| {
                // SAFETY: each job has its own part.
                isa.run(Scale(unsafe { piece.part(job * UPDATE_JOB_FLOATS, UPDATE_JOB_FLOATS) }));
            });
            times.push(time.elapsed());
        }
    }
    times.sort_unstable();
    2.0 * (UPDATE_PIECE_FLOATS * size_of::<f32>()) as f64 / times[times.len() / 2].as_secs_f64()
}

struct Scale<'a>(&'a mut [f32]);

impl Kernel for Scale<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let factor = s.splat(std::hint::black_box(1.0));
        for quad in self.0.as_chunks_mut::<LANES>().0.as_chunks_mut::<4>().0 {
            for x in quad {
                s.store(s.mul(factor, s.load(x)), x);
            }
        }
    }
}

struct Sum<'a>(&'a [f32]);

impl Kernel for Sum<'_> {
    type Output = f32;

    #[inline(always)]
    fn run<S: Simd>(self, s: S) -> f32 {
        let mut sums = [s.splat(0.0); 4];
        for quad in self.0.as_chunks::<LANES>().0.as_chunks::<4>().0 {
            for (sum, x) in sums.iter_mut().zip(quad) {
                *sum = s.add(*sum, s.load(x));
            }
        }
        s.sum(s.add(s.add(sums[0], sums[1]), s.add(sums[2], sums[3])))
    }
}
