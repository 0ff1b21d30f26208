//! How much the threads can compute: the limit of every long prefill.

use std::time::{Duration, Instant};

use super::isa::Token;
use super::pool::Pool;
use super::simd::{Kernel, LANES, Simd};

/// Most independent chains: as many as a matrix kernel has tokens in registers, and at least two. So many hide the
/// latency of a multiply-add and leave registers for the operands.
const CHAIN_MAX: usize = 8;
/// Multiply-adds of one chain in one job: well under a millisecond, far more than it takes to hand out a job.
const N_STEP: usize = 1 << 17;
/// Jobs of each thread that are timed at once.
const N_JOB: usize = 4;

/// The median of pieces that are computed one after the other.
pub(super) fn measure(isa: Token, pool: &Pool, duration: Duration) -> f64 {
    let n_job = N_JOB * pool.n_thread();
    let n_flop = n_job as f64 * isa.run(Chains) as f64;
    let start = Instant::now();
    let mut times = Vec::new();
    while times.is_empty() || start.elapsed() < duration {
        let time = Instant::now();
        pool.run(n_job, &|_| {
            isa.run(Chains);
        });
        times.push(time.elapsed());
    }
    times.sort_unstable();
    n_flop / times[times.len() / 2].as_secs_f64()
}

/// Runs the chains; the result is the number of floating-point operations, two a multiply-add and lane.
struct Chains;

impl Kernel for Chains {
    type Output = usize;

    #[inline(always)]
    fn run<S: Simd>(self, s: S) -> usize {
        // Tends to 1: neither denormal nor infinite, whatever the number of steps.
        let (a, b) = (s.splat(std::hint::black_box(0.75)), s.splat(std::hint::black_box(0.25)));
        let n_chain = S::TILE.max(2);
        let mut chains = [s.splat(0.5); CHAIN_MAX];
        for _ in 0..N_STEP {
            for i in 0..n_chain {
                chains[i] = s.fma(chains[i], a, b);
            }
        }
        let mut sum = chains[0];
        for i in 1..n_chain {
            sum = s.add(sum, chains[i]);
        }
        std::hint::black_box(s.sum(sum));
        2 * LANES * n_chain * N_STEP
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Isa;

    /// Operations would be counted that were not done, or a machine without an instruction set would fail.
    #[test]
    fn every_instruction_set_has_a_rate() {
        for isa in Isa::ALL.into_iter().filter_map(Token::new) {
            let n_flop = isa.run(Chains);
            assert!(n_flop >= 2 * LANES * N_STEP && n_flop.is_multiple_of(2 * LANES * N_STEP));
            let rate = measure(isa, &Pool::new(2), Duration::ZERO);
            assert!(rate.is_finite() && rate > 0.0);
        }
    }
}
