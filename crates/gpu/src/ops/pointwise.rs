//! Norms and sums.

use crate::context::{Bind, Context};
use crate::kernel::Access::{Read, Write};
use crate::kernel::Kernel;

static RMS_NORM: Kernel = Kernel {
    name: "rms_norm",
    wgsl: &[include_str!("../wgsl/reduce.wgsl"), include_str!("../wgsl/rms_norm.wgsl")],
    access: &[Read, Read, Write],
};

impl Context {
    /// `out[t] = x[t] / sqrt(mean(x[t]²) + eps) ⊙ weight`, `x` and `out` `[n_row, d]`.
    pub(crate) fn rms_norm(
        &self,
        (x, weight, out): (Bind<'_>, Bind<'_>, Bind<'_>),
        d: usize,
        eps: f32,
        n_row: usize,
    ) {
        let params = [d as u32, eps.to_bits(), n_row as u32];
        self.run(&RMS_NORM, &[], &[x, weight, out], &params, self.grid(n_row));
    }
}

#[cfg(test)]
mod tests {
    use kernels::{Backend, Reference};

    use crate::test_rig::{assert_close, random, rig};

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
}
