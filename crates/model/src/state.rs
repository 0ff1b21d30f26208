//! Going on from somewhere else: what a session has at a position, as bytes.
//!
//! Keys and values only ever grow, so those of a position's past stay what they are; the recurrent state is copied
//! where it may be wanted again (spec 2.5, "state copy = checkpoint"). Both together are all that a session needs to
//! go on.

use std::ops::Range;

use kernels::Backend;

use crate::error::check_backend;
use crate::session::{DeltaState, LayerState, Session, attention_shape, state_lens};
use crate::{Engine, ModelError};

/// Recurrent state at one position.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct State {
    /// Tokens before it.
    pub pos: usize,
    /// Convolution and rule of each delta-net layer, little-endian f32: [`crate::Footprint::state_bytes`]. Then logits,
    /// `[n_vocab]`, where they are known.
    pub bytes: Vec<u8>,
}

/// States that a session remembers while it is fed.
#[derive(Debug, Default)]
pub(crate) struct Waypoints {
    /// Positions, ascending.
    wanted: Vec<usize>,
    /// Of the batch that is computed: some layers are still missing.
    begun: Vec<State>,
    /// Complete.
    kept: Vec<State>,
}

impl Waypoints {
    /// A batch of these positions begins.
    pub(crate) fn begin(&mut self, batch: Range<usize>, state_bytes: usize) {
        let inside = self.wanted.iter().filter(|&&pos| batch.start < pos && pos < batch.end);
        self.begun = inside.map(|&pos| State { pos, bytes: Vec::with_capacity(state_bytes) }).collect();
    }

    /// It is computed.
    pub(crate) fn finish(&mut self) {
        self.kept.append(&mut self.begun);
    }

    /// States that get the next layer's.
    pub(crate) fn begun(&mut self) -> &mut [State] {
        &mut self.begun
    }
}

impl<B: Backend> Session<B> {
    /// Remembers the states behind these positions, those that are ahead, when it is fed them: on the way, without
    /// being cut there, so that the result is the same. Earlier wishes are forgotten.
    pub fn keep_states_at(&mut self, positions: &[usize]) {
        self.way.wanted = positions.iter().copied().filter(|&pos| self.ids.len() < pos).collect();
        self.way.wanted.sort_unstable();
        self.way.wanted.dedup();
    }

    /// The states that were remembered since the last call, without logits.
    pub fn take_states(&mut self) -> Vec<State> {
        std::mem::take(&mut self.way.kept)
    }
}

impl<B: Backend> Engine<B> {
    /// The state where `session` is now, logits included.
    ///
    /// # Errors
    /// The session is poisoned, or the backend has failed.
    pub fn state(&self, session: &Session<B>) -> Result<State, ModelError> {
        session.check_usable()?;
        let mut bytes = Vec::with_capacity(self.state_bytes() + 4 * session.logits.len());
        for layer in &session.layers {
            if let LayerState::DeltaNet(state) = layer {
                append_state(self.backend(), state, state_lens(self.config()), &mut bytes);
            }
        }
        append(&session.logits, &mut bytes);
        check_backend(self.backend())?;
        Ok(State { pos: session.pos(), bytes })
    }

    /// The states that sessions remember where a batch ended.
    pub(crate) fn keep_here(&self, sessions: &mut [&mut Session<B>]) -> Result<(), ModelError> {
        for session in sessions {
            let pos = session.pos();
            if session.poison.is_none() && session.way.wanted.contains(&pos) {
                let mut state = self.state(session)?;
                state.bytes.truncate(self.state_bytes());
                session.way.kept.push(state);
            }
        }
        Ok(())
    }

    /// Bytes of a state without logits.
    pub(crate) fn state_bytes(&self) -> usize {
        let is_delta = |kind: &&store::LayerKind| **kind == store::LayerKind::LinearAttention;
        let n_layer = self.config().layers.iter().filter(is_delta).count();
        if n_layer == 0 {
            return 0;
        }
        let (n_conv, n_state) = state_lens(self.config());
        n_layer * 4 * (n_conv + n_state)
    }

    /// Copies keys and values of `positions` as they are stored to `out`: for each full-attention layer those of all
    /// positions, [`kernels::KvFormat::position_bytes`] each.
    ///
    /// # Errors
    /// The session is poisoned, or the backend has failed.
    ///
    /// # Panics
    /// The session has no such positions, or `out` is of another size.
    pub fn read_kv(
        &self,
        session: &Session<B>,
        positions: Range<usize>,
        out: &mut [u8],
    ) -> Result<(), ModelError> {
        session.check_usable()?;
        assert!(positions.end <= session.pos(), "{positions:?} of {}", session.pos());
        let n_layer = attention_layers(&session.layers).count();
        assert_eq!(out.len(), n_layer * self.layer_bytes(&positions), "bytes of {positions:?}");
        if !out.is_empty() {
            let parts = out.chunks_exact_mut(self.layer_bytes(&positions));
            for (kv, part) in attention_layers(&session.layers).zip(parts) {
                self.backend().read_kv(kv, positions.start, part);
            }
        }
        check_backend(self.backend())
    }

    /// Replaces keys and values of `positions` by what [`Self::read_kv`] gave; those behind the context are left out.
    /// The session can only go on by [`Self::resume`] then.
    ///
    /// # Errors
    /// There is a gap before `positions`, they do not fit `bytes`, or the backend has failed.
    pub fn write_kv(
        &self,
        session: &mut Session<B>,
        positions: Range<usize>,
        bytes: &[u8],
    ) -> Result<(), ModelError> {
        let refuse = |why: String| Err(ModelError::State { why });
        let (n_held, n_ctx) = (session.n_held(), session.n_ctx);
        if n_held < positions.start || n_ctx < positions.start {
            return refuse(format!(
                "keys and values of positions {positions:?} do not follow those of {n_held} in a context of {n_ctx}"
            ));
        }
        let n_layer_bytes = self.layer_bytes(&positions);
        let n_layer = attention_layers(&session.layers).count();
        if bytes.len() != n_layer * n_layer_bytes {
            return refuse(format!("{} bytes are not those of positions {positions:?}", bytes.len()));
        }
        let fitting = positions.start..positions.end.min(n_ctx);
        session.ids.truncate(positions.start);
        session.n_written = fitting.end;
        session.poison = Some("it was not taken up completely".into());
        let mut parts = bytes.chunks_exact(n_layer_bytes.max(1));
        for layer in &mut session.layers {
            if let LayerState::Attention(kv) = layer {
                // No positions, no parts.
                let part = parts.next().unwrap_or_default();
                self.backend().write_kv(kv, positions.start, &part[..self.layer_bytes(&fitting)]);
            }
        }
        check_backend(self.backend())
    }

    /// Stands behind `ids`: their keys and values are there, because they were fed or by [`Self::write_kv`]. `state` is
    /// [`State::bytes`] of that position; without logits, those of the session mean nothing until more is fed.
    ///
    /// # Errors
    /// The session was fed other ids, keys and values are missing, `state` is not of this model, or the backend has
    /// failed.
    pub fn resume(&self, session: &mut Session<B>, ids: &[u32], state: &[u8]) -> Result<(), ModelError> {
        let refuse = |why: String| Err(ModelError::State { why });
        let n_own = session.ids.len().min(ids.len());
        if session.n_held() < ids.len() || session.ids[..n_own] != ids[..n_own] {
            return refuse(format!(
                "the session does not have keys and values of these {} tokens",
                ids.len()
            ));
        }
        if let Some(&id) = ids.iter().find(|&&id| self.config().n_vocab <= id as usize) {
            return Err(ModelError::TokenRange { id, n_vocab: self.config().n_vocab });
        }
        let n_logits = 4 * session.logits.len();
        let Some(logits) = state.len().checked_sub(self.state_bytes()).filter(|n| [0, n_logits].contains(n))
        else {
            return refuse(format!("{} bytes are no state of this model", state.len()));
        };
        let (state, logits) = state.split_at(state.len() - logits);
        let mut state = Floats(state);
        for layer in &mut session.layers {
            if let LayerState::DeltaNet(delta) = layer {
                let (n_conv, n_state) = state_lens(self.config());
                self.backend().write(&mut delta.conv, 0, &state.take(n_conv));
                self.backend().write(&mut delta.s, 0, &state.take(n_state));
            }
        }
        match logits {
            [] => session.logits.fill(f32::NAN),
            logits => session.logits.copy_from_slice(&Floats(logits).take(n_logits / 4)),
        }
        session.ids.truncate(n_own);
        session.ids.extend_from_slice(&ids[n_own..]);
        (session.n_written, session.poison) = (0, None);
        (session.way.begun, session.way.kept) = (Vec::new(), Vec::new());
        check_backend(self.backend())
    }

    /// Bytes of keys and values of `positions` of one layer.
    fn layer_bytes(&self, positions: &Range<usize>) -> usize {
        positions.len() * self.kv_format().position_bytes(attention_shape(self.config()))
    }
}

fn attention_layers<B: Backend>(layers: &[LayerState<B>]) -> impl Iterator<Item = &B::Kv> {
    layers.iter().filter_map(|layer| match layer {
        LayerState::Attention(kv) => Some(kv),
        LayerState::DeltaNet(_) => None,
    })
}

/// Appends the state of a layer, of `lens` floats.
pub(crate) fn append_state<B: Backend>(
    backend: &B,
    state: &DeltaState<B>,
    lens: (usize, usize),
    bytes: &mut Vec<u8>,
) {
    let mut values = vec![0.0; lens.0.max(lens.1)];
    for (tensor, n) in [(&state.conv, lens.0), (&state.s, lens.1)] {
        backend.read(tensor, 0, &mut values[..n]);
        append(&values[..n], bytes);
    }
}

/// Appends numbers as bytes.
fn append(values: &[f32], bytes: &mut Vec<u8>) {
    let at = bytes.len();
    bytes.resize(at + 4 * values.len(), 0);
    for (to, value) in bytes[at..].as_chunks_mut().0.iter_mut().zip(values) {
        *to = value.to_le_bytes();
    }
}

/// Numbers as bytes, from the front on.
struct Floats<'a>(&'a [u8]);

impl Floats<'_> {
    fn take(&mut self, n: usize) -> Vec<f32> {
        let (taken, rest) = self.0.split_at(4 * n);
        self.0 = rest;
        taken.as_chunks().0.iter().map(|&bytes| f32::from_le_bytes(bytes)).collect()
    }
}
