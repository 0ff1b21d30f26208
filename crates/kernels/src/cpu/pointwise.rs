//! Operations that touch each number once: embedding, norms, sums.

use quant::MatrixRef;

use super::isa::Token;
use super::pool::Pool;
use super::share::Share;
use super::simd::{Kernel, LANES, Simd, dot, load_at, sigmoid, store_at};

/// Numbers of a job: less is not worth waking a thread for.
const JOB_FLOATS: usize = 4096;

/// See [`crate::Backend::embed`].
pub(super) fn embed(pool: &Pool, w: MatrixRef<'_>, ids: &[u32], out: &mut [f32]) {
    let out = Share::new(out);
    pool.run(ids.len(), &|t| {
        // SAFETY: each job has its own token.
        w.decode_row(ids[t] as usize, unsafe { out.part(t * w.cols, w.cols) });
    });
}

/// See [`crate::Backend::rms_norm`].
pub(super) fn rms_norm(
    (isa, pool): (Token, &Pool),
    x: &[f32],
    weight: &[f32],
    eps: f32,
    n_token: usize,
    out: &mut [f32],
) {
    let d = weight.len();
    let out = Share::new(&mut out[..n_token * d]);
    pool.run(n_token, &|t| {
        // SAFETY: each job has its own token.
        let out = unsafe { out.part(t * d, d) };
        isa.run(RmsNorm { x: &x[t * d..(t + 1) * d], weight, eps, out });
    });
}

/// Normalises one row.
struct RmsNorm<'a> {
    x: &'a [f32],
    weight: &'a [f32],
    eps: f32,
    out: &'a mut [f32],
}

impl Kernel for RmsNorm<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let scale = s.splat(rms_scale(s, self.x, self.eps));
        for at in (0..self.x.len()).step_by(LANES) {
            let y = s.mul(s.mul(load_at(s, self.x, at), scale), load_at(s, self.weight, at));
            store_at(s, y, self.out, at);
        }
    }
}

/// `1 / sqrt(mean(x²) + eps)`
#[inline(always)]
pub(super) fn rms_scale<S: Simd>(s: S, x: &[f32], eps: f32) -> f32 {
    1.0 / (dot(s, x, x) / x.len() as f32 + eps).sqrt()
}

/// See [`crate::Backend::add`].
pub(super) fn add((isa, pool): (Token, &Pool), x: &mut [f32], y: &[f32]) {
    let n = x.len();
    let x = Share::new(x);
    pool.run(n.div_ceil(JOB_FLOATS), &|job| {
        let (at, end) = (job * JOB_FLOATS, n.min((job + 1) * JOB_FLOATS));
        // SAFETY: each job has its own part.
        isa.run(Add { x: unsafe { x.part(at, end - at) }, y: &y[at..end] });
    });
}

struct Add<'a> {
    x: &'a mut [f32],
    y: &'a [f32],
}

impl Kernel for Add<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        for at in (0..self.x.len()).step_by(LANES) {
            let sum = s.add(load_at(s, self.x, at), load_at(s, self.y, at));
            store_at(s, sum, self.x, at);
        }
    }
}

/// See [`crate::Backend::combine`].
pub(super) fn combine(
    (isa, pool): (Token, &Pool),
    x: &mut [f32],
    routed: &[f32],
    weights: &[f32],
    shared: Option<&[f32]>,
    (n_token, k, d): (usize, usize, usize),
) {
    let x = Share::new(&mut x[..n_token * d]);
    pool.run(n_token, &|t| {
        isa.run(Combine {
            // SAFETY: each job has its own token.
            x: unsafe { x.part(t * d, d) },
            routed: &routed[t * k * d..(t + 1) * k * d],
            weights: &weights[t * k..(t + 1) * k],
            shared: shared.map(|gate| (gate[t], &routed[(n_token * k + t) * d..][..d])),
        });
    });
}

/// One token's sum of its experts.
struct Combine<'a> {
    x: &'a mut [f32],
    routed: &'a [f32],
    weights: &'a [f32],
    /// Gate, before the sigmoid, and output.
    shared: Option<(f32, &'a [f32])>,
}

impl Kernel for Combine<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let d = self.x.len();
        let gate = self.shared.map(|(gate, _)| sigmoid(s, s.splat(gate)));
        for at in (0..d).step_by(LANES) {
            let mut sum = s.splat(0.0);
            for (&weight, row) in self.weights.iter().zip(self.routed.chunks_exact(d)) {
                sum = s.fma(s.splat(weight), load_at(s, row, at), sum);
            }
            if let (Some(gate), Some((_, shared))) = (gate, self.shared) {
                sum = s.fma(gate, load_at(s, shared, at), sum);
            }
            store_at(s, s.add(load_at(s, self.x, at), sum), self.x, at);
        }
    }
}
