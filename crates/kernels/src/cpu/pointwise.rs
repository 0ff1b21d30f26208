//! Operations that touch each number once: embedding, norms, convolution, sums.

use quant::MatrixRef;

use super::isa::Token;
use super::pool::Pool;
use super::share::Share;
use super::simd::{Kernel, LANES, Simd, dot, load_at, sigmoid, silu, store_at};
use crate::ConvShape;

/// Numbers of a job: less is not worth waking a thread for.
const JOB_FLOATS: usize = 4096;
/// Channels of a convolution job.
const JOB_CHANNELS: usize = 16 * LANES;

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

/// See [`crate::Backend::gated_rms_norm`].
pub(super) fn gated_rms_norm(
    (isa, pool): (Token, &Pool),
    x: &mut [f32],
    z: &[f32],
    weight: &[f32],
    eps: f32,
    n_row: usize,
) {
    let d = weight.len();
    let x = Share::new(&mut x[..n_row * d]);
    let per_job = JOB_FLOATS.div_ceil(d);
    pool.run(n_row.div_ceil(per_job), &|job| {
        let rows = job * per_job..n_row.min((job + 1) * per_job);
        // SAFETY: each job has its own rows.
        let x = unsafe { x.part(rows.start * d, rows.len() * d) };
        isa.run(GatedRmsNorm { x, z: &z[rows.start * d..rows.end * d], weight, eps });
    });
}

/// Normalises and gates some rows in place.
struct GatedRmsNorm<'a> {
    x: &'a mut [f32],
    z: &'a [f32],
    weight: &'a [f32],
    eps: f32,
}

impl Kernel for GatedRmsNorm<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let d = self.weight.len();
        for (x, z) in self.x.chunks_exact_mut(d).zip(self.z.chunks_exact(d)) {
            let scale = s.splat(rms_scale(s, x, self.eps));
            for at in (0..d).step_by(LANES) {
                let y = s.mul(s.mul(load_at(s, x, at), scale), load_at(s, self.weight, at));
                store_at(s, s.mul(y, silu(s, load_at(s, z, at))), x, at);
            }
        }
    }
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

/// See [`crate::Backend::conv_silu`].
pub(super) fn conv_silu(
    (isa, pool): (Token, &Pool),
    shape: ConvShape,
    weight: &[f32],
    x: &[f32],
    state: &mut [f32],
    n_token: usize,
    out: &mut [f32],
) {
    let n_channel = shape.n_channel;
    let state = &Share::new(&mut state[..(shape.n_conv - 1) * n_channel]);
    let out = &Share::new(&mut out[..n_token * n_channel]);
    pool.run(n_channel.div_ceil(JOB_CHANNELS), &|job| {
        let first = job * JOB_CHANNELS;
        for first in (first..n_channel.min(first + JOB_CHANNELS)).step_by(LANES) {
            isa.run(Conv { shape, weight, x, state, out, n_token, first });
        }
    });
}

/// Up to 16 neighbouring channels of all tokens.
struct Conv<'a, 'b> {
    shape: ConvShape,
    weight: &'a [f32],
    x: &'a [f32],
    state: &'a Share<'b, f32>,
    out: &'a Share<'b, f32>,
    n_token: usize,
    /// The first channel.
    first: usize,
}

impl Kernel for Conv<'_, '_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let n_conv = self.shape.n_conv;
        for j in 0..n_conv {
            let mut tap = [0.0; LANES];
            for (l, tap) in tap[..self.n()].iter_mut().enumerate() {
                *tap = self.weight[(self.first + l) * n_conv + j];
            }
            let tap = s.load(&tap);
            for t in 0..self.n_token {
                let out = self.part(self.out, t);
                let before = if j == 0 { s.splat(0.0) } else { load_at(s, out, 0) };
                store_at(s, s.fma(tap, self.seen(s, t + j), before), out, 0);
            }
        }
        for t in 0..self.n_token {
            let out = self.part(self.out, t);
            store_at(s, silu(s, load_at(s, out, 0)), out, 0);
        }
        for r in 0..n_conv - 1 {
            // What the new row holds was seen at or behind the place that it takes: in order, nothing is lost.
            let row = self.seen(s, r + self.n_token);
            store_at(s, row, self.part(self.state, r), 0);
        }
    }
}

impl Conv<'_, '_> {
    /// Our channels, at most 16.
    fn n(&self) -> usize {
        LANES.min(self.shape.n_channel - self.first)
    }

    /// Our channels of one row.
    #[allow(clippy::mut_from_ref)]
    fn part<'a>(&self, rows: &Share<'a, f32>, row: usize) -> &'a mut [f32] {
        // SAFETY: each job has its own channels, and keeps no two parts of one row.
        unsafe { rows.part(row * self.shape.n_channel + self.first, self.n()) }
    }

    /// Row `r` of what the taps see: the rows of the state, then the tokens.
    #[inline(always)]
    fn seen<S: Simd>(&self, s: S, r: usize) -> S::V {
        match r.checked_sub(self.shape.n_conv - 1) {
            None => load_at(s, self.part(self.state, r), 0),
            Some(t) => load_at(s, &self.x[t * self.shape.n_channel + self.first..][..self.n()], 0),
        }
    }
}
