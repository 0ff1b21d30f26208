//! The skeleton that all three architectures share (spec 2.1):
//!
//! ```text
//! x = embed[ids]
//! for each layer:
//!     x += attention_or_delta_net(norm(x))
//!     x += experts(norm(x))
//! logits = head(norm(x))
//! ```
//!
//! Qwen3.5-MoE and Qwen3-Next differ in how checkpoints lay out their weights, which is behind us here.
//! Qwen3-MoE is the same skeleton with full attention everywhere, no output gate and no shared expert.

mod attention;
mod delta_net;
mod moe;

pub(crate) use moe::{MoeScratch, hand_over};

use kernels::{Backend, Norm, Precision, Rope, Rows};
use quant::Format;
use store::ModelConfig;
use stream::ExpertStream;

use crate::ModelError;
use crate::engine::Prefetch;
use crate::error::check_backend;
use crate::observe::Observer;
use crate::routing::Routing;
use crate::scratch::Scratch;
use crate::session::{LayerState, Session, well};
use crate::state::Waypoints;
use crate::timing::{Lap, Phase, Timing};
use crate::weights::{Mixer, Weights};

/// Everything a batch passes through, lent by the engine for one call.
pub(crate) struct Pass<'a, B: Backend> {
    pub(crate) backend: &'a B,
    pub(crate) config: &'a ModelConfig,
    pub(crate) weights: &'a Weights<B>,
    /// Formats of gate, up and down of each layer's experts.
    pub(crate) formats: &'a [[Format; 3]],
    pub(crate) n_expert_used: usize,
    pub(crate) rope: &'a Rope,
    pub(crate) stream: &'a mut ExpertStream,
    pub(crate) scratch: &'a mut Scratch<B>,
    pub(crate) moe: &'a mut MoeScratch,
    pub(crate) timing: &'a mut Timing,
    pub(crate) routing: &'a mut Routing,
    pub(crate) prefetch: Prefetch,
    /// Does somebody want to see what happens between the layers?
    pub(crate) is_watched: bool,
    /// Is shown the inputs of the matrices.
    pub(crate) observer: Option<&'a mut Observer>,
    /// Sessions that have tokens in the batch, each as many; those that fail leave it.
    pub(crate) n_session: usize,
    /// Tokens in the batch; after the last layer, those whose output is wanted.
    pub(crate) n_token: usize,
    /// Number in the batch of the token in the first row of `scratch.x`.
    pub(crate) first_row: usize,
    /// Tokens whose output of the last layer is wanted: the last ones of the batch, or all.
    pub(crate) n_wanted: usize,
    /// Why the first of the sessions that left had to.
    pub(crate) failure: Option<ModelError>,
}

/// What a session of another model would have.
const OTHER_STATE: &str = "a session is made from the engine's own configuration";

/// The rows and the state of a layer of each session of a batch with `n_each` tokens of each, and what is to be
/// remembered on the way.
fn shares<'a, B: Backend>(
    sessions: &'a mut [&mut Session<B>],
    layer: usize,
    n_each: usize,
) -> impl Iterator<Item = (Rows, &'a mut LayerState<B>, &'a mut Waypoints)> {
    well(sessions).enumerate().map(move |(i, session)| {
        let rows = Rows { first: i * n_each, pos: session.pos(), n_token: n_each };
        (rows, &mut session.layers[layer], &mut session.way)
    })
}

impl<B: Backend> Pass<'_, B> {
    /// Runs a batch through all layers; `scratch.x` is the residual stream of the wanted tokens after the last one.
    /// `trace` sees it after each layer.
    pub(crate) fn run(
        &mut self,
        ids: &[u32],
        sessions: &mut [&mut Session<B>],
        trace: &mut dyn FnMut(usize, &B::Tensor),
    ) -> Result<(), ModelError> {
        let mut lap = Lap::start();
        self.backend.embed(&self.weights.embed, ids, &mut self.scratch.x);
        let mut moe = std::mem::take(self.moe);
        self.guess(0, &mut moe);
        *self.moe = moe;
        self.norm(&self.weights.layers[0].input_norm);
        self.timing.embed += lap.take();
        for i in 0..self.weights.layers.len() {
            self.mix(i, sessions, &mut lap);
            self.feed_forward(i, false, sessions, &mut lap)?;
            trace(i, &self.scratch.x);
        }
        self.timing.n_token += ids.len();
        self.timing.n_batch += 1;
        Ok(())
    }

    /// Once something was read that came after the last layer: had every mixture that the backend computed by itself
    /// what it needed? If not, the layers from there on were for nothing, and are run now.
    pub(crate) fn settle(&mut self, sessions: &mut [&mut Session<B>]) -> Result<bool, ModelError> {
        let Some(layer) = self.note_mixtures() else { return Ok(true) };
        let mut lap = Lap::start();
        self.norm(&self.weights.layers[layer].post_attention_norm);
        self.feed_forward(layer, true, sessions, &mut lap)?;
        for i in layer + 1..self.weights.layers.len() {
            self.mix(i, sessions, &mut lap);
            self.feed_forward(i, false, sessions, &mut lap)?;
        }
        Ok(false)
    }

    /// `x += attention_or_delta_net(h)`, `h = norm(x)`
    fn mix(&mut self, i: usize, sessions: &mut [&mut Session<B>], lap: &mut Lap) {
        let layer = &self.weights.layers[i];
        match &layer.mixer {
            Mixer::Attention(w) => self.attention(i, w, sessions, lap),
            Mixer::DeltaNet(w) => self.delta_net(i, w, sessions, lap),
        }
        let (d, eps, s) = (self.config.d_model, self.config.rms_norm_eps as f32, &mut *self.scratch);
        if i + 1 == self.weights.layers.len() && self.n_wanted < self.n_token {
            self.backend.add(&mut s.x, &s.y, self.n_token * d);
            self.keep_wanted();
            self.norm(&layer.post_attention_norm);
        } else {
            let norm = Norm { weight: &layer.post_attention_norm, d, eps, out: &mut s.h };
            self.backend.add_norm((&mut s.x, &s.y), norm, self.n_token);
        }
        lap.end(self.backend, self.timing, i, Phase::Output);
    }

    /// `x += experts(h)`, `h = norm(x)` for the next layer; `must_ask`: the host chooses, whatever the backend could do
    /// by itself.
    fn feed_forward(
        &mut self,
        i: usize,
        must_ask: bool,
        sessions: &mut [&mut Session<B>],
        lap: &mut Lap,
    ) -> Result<(), ModelError> {
        let layer = &self.weights.layers[i];
        while self.n_token > 0 {
            match self.experts(i, &layer.moe, must_ask, lap) {
                Ok(()) => break,
                Err(error) => self.part_with_failed(error, sessions)?,
            }
            self.norm(&layer.post_attention_norm);
        }
        Ok(())
    }

    /// Sessions whose tokens are the reason for an error leave the batch; `x` is then that of the others.
    ///
    /// # Errors
    /// All are, or there are no such tokens.
    fn part_with_failed(
        &mut self,
        error: ModelError,
        sessions: &mut [&mut Session<B>],
    ) -> Result<(), ModelError> {
        let MoeScratch { failed, rows, .. } = self.moe;
        let n_left = self.n_token - failed.len();
        // A trace of routing has a row for each token that was fed.
        let can_leave = self.n_session == self.n_token && self.routing.is_own();
        if failed.is_empty() || n_left == 0 || !can_leave {
            return Err(error);
        }
        let why = error.to_string();
        for (row, session) in well(sessions).enumerate() {
            session.poison = failed.contains(&row).then(|| why.clone());
        }
        let d = self.config.d_model;
        rows.resize(self.n_token * d, 0.0);
        self.backend.read(&self.scratch.x, 0, rows);
        let stay = (0..self.n_token).filter(|row| !failed.contains(row));
        stay.enumerate().for_each(|(to, from)| rows.copy_within(from * d..(from + 1) * d, to * d));
        self.backend.write(&mut self.scratch.x, 0, &rows[..n_left * d]);
        (self.n_session, self.n_token, self.n_wanted) = (n_left, n_left, n_left);
        self.failure.get_or_insert(error);
        self.check()
    }

    /// Nothing comes after the last layer's experts but logits: tokens whose logits nobody wants leave before them.
    fn keep_wanted(&mut self) {
        let (d, first) = (self.config.d_model, self.n_token - self.n_wanted);
        let rows = &mut self.moe.rows;
        rows.resize(self.n_wanted * d, 0.0);
        self.backend.read(&self.scratch.x, first * d, rows);
        self.backend.write(&mut self.scratch.x, 0, rows);
        (self.n_token, self.first_row) = (self.n_wanted, first);
    }

    /// Is the backend still well?
    pub(crate) fn check(&self) -> Result<(), ModelError> {
        check_backend(self.backend)
    }

    /// Logits of the batch's tokens `first .. first + n_token` into the head of `scratch.logits`.
    pub(crate) fn head(&mut self, first: usize, n_token: usize) {
        let mut lap = Lap::start();
        let head = self.weights.lm_head.as_ref().unwrap_or(&self.weights.embed);
        let logits = &mut [(head, &mut self.scratch.logits)];
        self.backend.matmul(logits, &self.scratch.h, first, n_token, Precision::Full);
        self.timing.head += lap.take();
    }

    /// `h = norm(x)`
    pub(crate) fn norm(&mut self, weight: &B::Tensor) {
        let eps = self.config.rms_norm_eps as f32;
        self.backend.rms_norm(&self.scratch.x, weight, eps, self.n_token, &mut self.scratch.h);
    }
}
