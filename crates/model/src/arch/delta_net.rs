//! Gated DeltaNet (spec 2.5).

use kernels::{Backend, DeltaInputs, DeltaWeights, Precision};

use super::{OTHER_STATE, Pass, shares};
use crate::session::{LayerState, Session, delta_shape};
use crate::timing::{Lap, Phase};
use crate::weights::DeltaNet;

impl<B: Backend> Pass<'_, B> {
    /// `y = out_proj(silu(z) ⊙ norm(delta_rule(conv(in_proj h))))`.
    pub(super) fn delta_net(
        &mut self,
        layer: usize,
        w: &DeltaNet<B>,
        sessions: &mut [&mut Session<B>],
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
        for (rows, state) in shares(sessions, layer, n / self.n_session) {
            let LayerState::DeltaNet(state) = state else { unreachable!("{OTHER_STATE}") };
            let states = (&mut state.conv, &mut state.s);
            self.backend.delta_net(shape, &weights, &inputs, states, rows, &mut s.mixed);
        }
        lap.end(self.backend, self.timing, layer, Phase::Mixing);

        self.backend.matmul(&mut [(&w.out, &mut s.y)], &s.mixed, 0, n, Precision::Setting);
    }
}
