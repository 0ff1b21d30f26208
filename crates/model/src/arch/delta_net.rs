//! Gated DeltaNet (spec 2.5).

use kernels::{Backend, DeltaInputs, DeltaWeights, Precision, Rows};

use super::Pass;
use crate::session::{DeltaState, delta_shape};
use crate::timing::{Lap, Phase};
use crate::weights::DeltaNet;

impl<B: Backend> Pass<'_, B> {
    /// `y = out_proj(silu(z) ⊙ norm(delta_rule(conv(in_proj h))))`.
    pub(super) fn delta_net(
        &mut self,
        layer: usize,
        w: &DeltaNet<B>,
        state: &mut DeltaState<B>,
        lap: &mut Lap,
    ) {
        let (s, n) = (&mut *self.scratch, self.n_token);
        let shape = delta_shape(self.config).expect("checked when the store was opened");
        let projections = &mut [(&w.qkv, &mut s.proj), (&w.z, &mut s.z), (&w.b, &mut s.k), (&w.a, &mut s.v)];
        self.backend.matmul(projections, &s.h, 0, n, Precision::Setting);
        lap.end(self.backend, self.timing, layer, Phase::Projections);

        let weights = DeltaWeights {
            conv: &w.conv,
            decay: &w.decay,
            dt_bias: &w.dt_bias,
            norm: &w.norm,
            eps: self.config.rms_norm_eps as f32,
        };
        let inputs = DeltaInputs { qkv: &s.proj, b: &s.k, a: &s.v, z: &s.z };
        let states = (&mut state.conv, &mut state.s);
        self.backend.delta_net(shape, &weights, &inputs, states, Rows::at(self.pos, n), &mut s.mixed);
        lap.end(self.backend, self.timing, layer, Phase::Mixing);

        self.backend.matmul(&mut [(&w.out, &mut s.y)], &s.mixed, 0, n, Precision::Setting);
    }
}
