//! Gated full attention (spec 2.4), and the plain attention of Qwen3-MoE.

use kernels::{Backend, Precision};
use store::Input;

use super::{OTHER_STATE, Pass, shares};
use crate::session::{LayerState, Session, attention_shape};
use crate::timing::{Lap, Phase};
use crate::weights::Attention;

impl<B: Backend> Pass<'_, B> {
    /// `y = o_proj(σ(gate) ⊙ attend(rope(norm(q)), rope(norm(k)), v))` of `h`.
    pub(super) fn attention(
        &mut self,
        layer: usize,
        w: &Attention<B>,
        sessions: &mut [&mut Session<B>],
        lap: &mut Lap,
    ) {
        self.observe(Some(layer), Input::Mixer, self.n_token);
        let (s, n) = (&mut *self.scratch, self.n_token);
        let shape = attention_shape(self.config);
        let projections = &mut [(&w.q, &mut s.proj), (&w.k, &mut s.k), (&w.v, &mut s.v)];
        self.backend.matmul(projections, &s.h, 0, n, Precision::Setting);
        lap.end(self.backend, self.timing, layer, Phase::Projections);

        let norms = (&w.q_norm, &w.k_norm, self.config.rms_norm_eps as f32);
        for (rows, state, _) in shares(sessions, layer, n / self.n_session) {
            let LayerState::Attention(kv) = state else { unreachable!("{OTHER_STATE}") };
            let qkv = (&mut s.proj, &mut s.k, &s.v);
            self.backend.attention_prepare(shape, self.rope, norms, qkv, kv, rows);
            self.backend.attention(shape, &s.proj, kv, rows, &mut s.mixed);
        }
        lap.end(self.backend, self.timing, layer, Phase::Mixing);

        self.observe(Some(layer), Input::MixerOut, n);
        let s = &mut *self.scratch;
        self.backend.matmul(&mut [(&w.o, &mut s.y)], &s.mixed, 0, n, Precision::Setting);
    }
}
