//! Norms and sums.

use crate::context::{Bind, Context};
use crate::kernel::Access::{Read, Write};
use crate::kernel::Kernel;

static RMS_NORM: Kernel = Kernel {
    name: "rms_norm",
    wgsl: &[
        include_str!("../wgsl/reduce.wgsl"),
        include_str!("../wgsl/norm_row.wgsl"),
        include_str!("../wgsl/rms_norm.wgsl"),
    ],
    access: &[Read, Read, Write],
};

static ADD: Kernel =
    Kernel { name: "add", wgsl: &[include_str!("../wgsl/add.wgsl")], access: &[Read, Write, Read] };

static ADD_NORM: Kernel = Kernel {
    name: "add_norm",
    wgsl: &[
        include_str!("../wgsl/reduce.wgsl"),
        include_str!("../wgsl/norm_row.wgsl"),
        include_str!("../wgsl/add_norm.wgsl"),
    ],
    access: &[Read, Write, Read, Read, Write],
};

static COMBINE: Kernel = Kernel {
    name: "combine",
    wgsl: &[
        include_str!("../wgsl/activations.wgsl"),
        include_str!("../wgsl/combine_sum.wgsl"),
        include_str!("../wgsl/combine.wgsl"),
    ],
    access: &[Read, Write, Read, Read, Read],
};

static COMBINE_NORM: Kernel = Kernel {
    name: "combine_norm",
    wgsl: &[
        include_str!("../wgsl/reduce.wgsl"),
        include_str!("../wgsl/norm_row.wgsl"),
        include_str!("../wgsl/activations.wgsl"),
        include_str!("../wgsl/combine_sum.wgsl"),
        include_str!("../wgsl/combine_norm.wgsl"),
    ],
    access: &[Read, Write, Read, Read, Read, Read, Write],
};

/// Threads of a workgroup.
const N_THREAD: usize = 256;
/// Most threads of a workgroup for a row, and numbers that a thread has under way.
const N_THREAD_ROW: usize = 512;
const N_OWN_MAX: usize = 8;

/// What [`Context::combine`] adds up.
#[derive(Clone, Copy)]
pub(crate) struct Combine<'a> {
    /// `[n_token · k, d]`, then, if there is a shared expert, `[n_token, d]`.
    pub(crate) routed: Bind<'a>,
    /// Where the f32 weight of token `t`'s choice `j` is: word `.1 + (t·k + j) · .2`.
    pub(crate) weights: (Bind<'a>, u32, u32),
    /// The shared expert's gate before its sigmoid, `[n_token]`.
    pub(crate) shared: Option<Bind<'a>>,
    pub(crate) n_token: usize,
    pub(crate) k: usize,
    pub(crate) d: usize,
}

impl Combine<'_> {
    fn params(&self, eps: f32) -> [u32; 7] {
        let (_, at, stride) = self.weights;
        let has_shared = u32::from(self.shared.is_some());
        [self.n_token as u32, self.k as u32, self.d as u32, at, stride, has_shared, eps.to_bits()]
    }
}

impl Context {
    /// Of `wgsl/norm_row.wgsl`, for rows of `d`: the bits depend on them.
    fn norm_constants(&self, d: usize) -> [(&'static str, u32); 2] {
        let n_thread = self.threads_max(N_THREAD_ROW);
        [("N_THREAD", n_thread as u32), ("N_OWN", d.div_ceil(n_thread).clamp(1, N_OWN_MAX) as u32)]
    }

    /// `n` threads of a workgroup where the device has so many, or else those that all devices have.
    pub(crate) fn threads_max(&self, n: usize) -> usize {
        if n <= self.limits.max_compute_invocations_per_workgroup as usize { n } else { N_THREAD }
    }

    /// `x[i] += y[i]` for the first `n` numbers, unless word 0 of the control buffer is set.
    pub(crate) fn add(&self, x: Bind<'_>, y: Bind<'_>, n: usize) {
        self.run(&ADD, &[], &[self.control(), x, y], &[n as u32], self.grid(n.div_ceil(N_THREAD)));
    }

    /// [`Self::add`], then [`Self::rms_norm`] of `x` to `h`, with their bits, in one dispatch. Both are `[n_row, d]`.
    pub(crate) fn add_norm(
        &self,
        (x, y): (Bind<'_>, Bind<'_>),
        (weight, h): (Bind<'_>, Bind<'_>),
        d: usize,
        eps: f32,
        n_row: usize,
    ) {
        let params = [d as u32, eps.to_bits(), n_row as u32];
        self.run(
            &ADD_NORM,
            &self.norm_constants(d),
            &[self.control(), x, y, weight, h],
            &params,
            self.grid(n_row),
        );
    }

    /// Adds the experts' results to `x [n_token, d]`, as [`kernels::Backend::combine`] says, unless word 0 of the
    /// control buffer is set.
    pub(crate) fn combine(&self, x: Bind<'_>, c: &Combine<'_>) {
        let buffers = [self.control(), x, c.routed, c.weights.0, c.shared.unwrap_or(c.routed)];
        let grid = self.grid((c.n_token * c.d).div_ceil(N_THREAD));
        self.run(&COMBINE, &[], &buffers, &c.params(0.0), grid);
    }

    /// [`Self::combine`], then [`Self::rms_norm`] of `x` to `h`, with their bits, in one dispatch.
    pub(crate) fn combine_norm(
        &self,
        x: Bind<'_>,
        c: &Combine<'_>,
        (weight, h): (Bind<'_>, Bind<'_>),
        eps: f32,
    ) {
        let shared = c.shared.unwrap_or(c.routed);
        let buffers = [self.control(), x, c.routed, c.weights.0, shared, weight, h];
        self.run(&COMBINE_NORM, &self.norm_constants(c.d), &buffers, &c.params(eps), self.grid(c.n_token));
    }

    /// `out[t] = x[t] / sqrt(mean(x[t]²) + eps) ⊙ weight`, `x` and `out` `[n_row, d]`.
    pub(crate) fn rms_norm(
        &self,
        (x, weight, out): (Bind<'_>, Bind<'_>, Bind<'_>),
        d: usize,
        eps: f32,
        n_row: usize,
    ) {
        let params = [d as u32, eps.to_bits(), n_row as u32];
        self.run(&RMS_NORM, &self.norm_constants(d), &[x, weight, out], &params, self.grid(n_row));
    }
}

/// All kernels of this file.
#[cfg(test)]
pub(crate) fn kernels() -> Vec<&'static Kernel> {
    vec![&RMS_NORM, &ADD, &ADD_NORM, &COMBINE, &COMBINE_NORM]
}

#[cfg(test)]
mod tests {
    use kernels::{Backend, Reference};

    use super::Combine;
    use crate::test_rig::{assert_close, assert_same, random, rig};

    #[test]
    fn norms_agree_with_the_reference() {
        // Breaks if a tail is left out of a sum, ε is misplaced, or rows are mixed up.
        let Some(rig) = rig() else { return };
        for (d, n_row) in [(1, 1), (16, 3), (17, 2), (100, 5), (128, 70), (4096, 1), (5000, 2)] {
            let (x, weight) = (random(d as u64, n_row * d), random(7, d));
            let mut want = vec![0.0; n_row * d];
            Reference.rms_norm(&x, &weight, 1e-6, n_row, &mut want);
            let (x, weight, out) = (rig.tensor(&x), rig.tensor(&weight), rig.zeros(n_row * d));
            rig.context.rms_norm((x.bind(), weight.bind(), out.bind()), d, 1e-6, n_row);
            assert_close(&format!("{n_row} rows of {d}"), &rig.read(&out, n_row * d), &want, 2e-6);
        }
    }

    const SHAPES: [(usize, usize, usize); 6] =
        [(1, 1, 1), (1, 10, 4096), (3, 4, 100), (17, 2, 33), (2, 0, 5), (300, 8, 64)];

    #[test]
    fn sums_agree_with_the_reference() {
        // Breaks if the weighted sum takes a wrong weight, row or order, or a tail is left out.
        let Some(rig) = rig() else { return };
        for (n_token, k, d) in SHAPES {
            let x = random(1, n_token * d);
            let (routed, weights) = (random(2, n_token * (k + 1) * d), random(3, n_token * k));
            let gate = random(4, n_token);
            let routed_buf = rig.tensor(&routed);
            let gate_buf = rig.tensor(&gate);
            // Behind three words, every fourth word.
            let spread: Vec<f32> =
                [0.0; 3].into_iter().chain(weights.iter().flat_map(|&w| [w, 9.0, 9.0, 9.0])).collect();
            let spread = rig.tensor(&spread);
            for has_shared in [false, true] {
                let mut want = x.clone();
                Reference.combine(&mut want, &routed, &weights, has_shared.then_some(&gate), (n_token, k, d));
                let got = rig.tensor(&x);
                let shared = has_shared.then(|| gate_buf.bind());
                let weights = (spread.bind(), 3, 4);
                let combine = Combine { routed: routed_buf.bind(), weights, shared, n_token, k, d };
                rig.context.combine(got.bind(), &combine);
                assert_close(&format!("{n_token} {k} {d}"), &rig.read(&got, n_token * d), &want, 1e-6);
            }
            let (mut want, n) = (x.clone(), n_token * d - 1);
            Reference.add(&mut want, &routed, n);
            let got = rig.tensor(&x);
            rig.context.add(got.bind(), routed_buf.bind(), n);
            assert_same(&format!("add {n}"), &rig.read(&got, n_token * d), &want);
        }
    }

    #[test]
    fn fused_norms_have_the_bits_of_the_separate_ones() {
        // Breaks if a fused kernel sums in another order, so that a token's bits depend on the size of its batch.
        let Some(rig) = rig() else { return };
        for (n_token, k, d) in SHAPES {
            let (x, weight) = (random(1, n_token * d), rig.tensor(&random(5, d)));
            let (routed, weights) = (rig.tensor(&random(2, n_token * (k + 1) * d)), random(3, n_token * k));
            let (weights, gate) = (rig.tensor(&weights), rig.tensor(&random(4, n_token)));
            let combine = Combine {
                routed: routed.bind(),
                weights: (weights.bind(), 0, 1),
                shared: Some(gate.bind()),
                n_token,
                k,
                d,
            };
            let n = n_token * d;
            let check = |what: &str,
                         separate: &dyn Fn(&crate::context::Buf),
                         fused: &dyn Fn([&crate::context::Buf; 2])| {
                let (x_1, h_1, x_2, h_2) = (rig.tensor(&x), rig.zeros(n), rig.tensor(&x), rig.zeros(n));
                separate(&x_1);
                rig.context.rms_norm((x_1.bind(), weight.bind(), h_1.bind()), d, 1e-6, n_token);
                fused([&x_2, &h_2]);
                assert_same(&format!("x, {what} {n_token} {k} {d}"), &rig.read(&x_2, n), &rig.read(&x_1, n));
                assert_same(&format!("h, {what} {n_token} {k} {d}"), &rig.read(&h_2, n), &rig.read(&h_1, n));
            };
            check("add", &|x| rig.context.add(x.bind(), routed.bind(), n), &|[x, h]| {
                let norm = (weight.bind(), h.bind());
                rig.context.add_norm((x.bind(), routed.bind()), norm, d, 1e-6, n_token);
            });
            check("combine", &|x| rig.context.combine(x.bind(), &combine), &|[x, h]| {
                rig.context.combine_norm(x.bind(), &combine, (weight.bind(), h.bind()), 1e-6);
            });
        }
    }

    #[test]
    fn work_behind_a_missing_expert_changes_nothing() {
        // Breaks if a token goes on with the sum of experts that were not there.
        let Some(rig) = rig() else { return };
        let (n_token, k, d) = (2, 3, 300);
        let (x, y) = (random(1, n_token * d), rig.tensor(&random(2, n_token * (k + 1) * d)));
        let combine = Combine { routed: y.bind(), weights: (y.bind(), 0, 1), shared: None, n_token, k, d };
        let (x_buf, h) = (rig.tensor(&x), rig.zeros(n_token * d));
        rig.context.control_set(7);
        rig.context.add(x_buf.bind(), y.bind(), n_token * d);
        rig.context.add_norm((x_buf.bind(), y.bind()), (y.bind(), h.bind()), d, 1e-6, n_token);
        rig.context.combine(x_buf.bind(), &combine);
        rig.context.combine_norm(x_buf.bind(), &combine, (y.bind(), h.bind()), 1e-6);
        assert_same("x", &rig.read(&x_buf, n_token * d), &x);
        assert_same("h", &rig.read(&h, n_token * d), &vec![0.0; n_token * d]);
        rig.context.control_set(0);
        rig.context.add(x_buf.bind(), y.bind(), n_token * d);
        assert!(rig.read(&x_buf, n_token * d) != x, "nothing was added");
    }
}
