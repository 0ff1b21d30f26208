//! Gated DeltaNet (spec 2.5).

use kernels::{Backend, DELTA_CHUNK, DeltaInputs, DeltaWeights, Precision, Rows};
use store::Input;

use super::{OTHER_STATE, Pass, shares};
use crate::session::{DeltaState, LayerState, Session, delta_shape, state_lens};
use crate::state::{Waypoints, append_state};
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
        self.observe(Some(layer), Input::Mixer, self.n_token);
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
        for (rows, state, way) in shares(sessions, layer, n / self.n_session) {
            let LayerState::DeltaNet(state) = state else { unreachable!("{OTHER_STATE}") };
            let mut run = |state: &mut DeltaState<B>, rows| {
                let states = (&mut state.conv, &mut state.s);
                self.backend.delta_net(shape, &weights, &inputs, states, rows, &mut s.mixed);
            };
            run_past(self.backend, state_lens(self.config), way, state, rows, &mut run);
        }
        lap.end(self.backend, self.timing, layer, Phase::Mixing);

        self.observe(Some(layer), Input::MixerOut, n);
        let s = &mut *self.scratch;
        self.backend.matmul(&mut [(&w.out, &mut s.y)], &s.mixed, 0, n, Precision::Setting);
    }
}

/// Runs a layer over `rows`, and appends its state behind each waypoint on them. The state goes on from the last border
/// of a chunk before it, so that the result is the same as without waypoints.
fn run_past<B: Backend>(
    backend: &B,
    lens: (usize, usize),
    way: &mut Waypoints,
    state: &mut DeltaState<B>,
    rows: Rows,
    run: &mut dyn FnMut(&mut DeltaState<B>, Rows),
) {
    let part =
        |from: usize, to: usize| Rows { first: rows.first + from - rows.pos, pos: from, n_token: to - from };
    let mut pos = rows.pos;
    for point in way.begun() {
        let border = (point.pos / DELTA_CHUNK * DELTA_CHUNK).max(pos);
        if pos < border {
            run(state, part(pos, border));
            pos = border;
        }
        if border == point.pos {
            append_state(backend, state, lens, &mut point.bytes);
            continue;
        }
        let mut conv = vec![0.0; lens.0];
        let mut s = vec![0.0; lens.1];
        backend.read(&state.conv, 0, &mut conv);
        backend.read(&state.s, 0, &mut s);
        run(state, part(border, point.pos));
        append_state(backend, state, lens, &mut point.bytes);
        backend.write(&mut state.conv, 0, &conv);
        backend.write(&mut state.s, 0, &s);
    }
    run(state, part(pos, rows.pos + rows.n_token));
}
