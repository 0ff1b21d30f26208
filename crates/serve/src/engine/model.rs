//! What the scheduler needs of a model.

use std::ops::{ControlFlow, Range};
use std::time::Duration;

use model::ModelError;

/// A model with several sessions.
pub trait Model {
    /// One timeline of tokens.
    type Session;

    /// Rows of the head.
    fn n_vocab(&self) -> usize;

    /// Positions that each session has.
    fn n_ctx(&self) -> usize;

    /// Feeding is cut at multiples of this position, so that the result does not depend on where it was cut.
    fn n_align(&self) -> usize;

    /// Tokens that are fed at once, at most: what is remembered on the way is taken after each such piece.
    fn n_batch(&self) -> usize {
        usize::MAX
    }

    /// An empty session.
    fn open(&mut self) -> Self::Session;

    /// The tokens that a session was fed.
    fn ids<'s>(&self, session: &'s Self::Session) -> &'s [u32];

    /// Logits `[n_vocab]` after the last of them.
    fn logits<'s>(&self, session: &'s Self::Session) -> &'s [f32];

    /// Why a session cannot go on.
    fn failure(&self, session: &Self::Session) -> Option<String>;

    /// Feeds tokens. `progress` is told how many are done; when it breaks, feeding stops at the end of the current
    /// batch with [`ModelError::Interrupted`], and the session stands there.
    ///
    /// # Errors
    /// [`ModelError::Interrupted`], or what makes the session unusable.
    fn feed(
        &mut self,
        session: &mut Self::Session,
        ids: &[u32],
        progress: &mut dyn FnMut(usize) -> ControlFlow<()>,
    ) -> Result<(), ModelError>;

    /// Feeds one token to each session.
    ///
    /// # Errors
    /// Some sessions failed, see [`Self::failure`]; all others were fed. If none says so, none was fed.
    fn decode(&mut self, sessions: &mut [&mut Self::Session], ids: &[u32]) -> Result<(), ModelError>;

    /// Has a session remember its recurrent state at `positions` (ascending, behind the present one) when it is fed up
    /// to them, without being cut there. In place of what was asked for before.
    fn keep_at(&mut self, session: &mut Self::Session, positions: &[usize]);

    /// What was remembered since the last call: positions and their states, without logits.
    fn take_kept(&mut self, session: &mut Self::Session) -> Vec<(usize, Vec<u8>)>;

    /// The recurrent state where a session stands, and behind it the logits there.
    ///
    /// # Errors
    /// The session has failed, or the device.
    fn state(&self, session: &Self::Session) -> Result<Vec<u8>, ModelError>;

    /// Copies keys and values of `positions`, as they are stored: for each layer that has them those of all positions.
    ///
    /// # Errors
    /// They are not there, `out` has another length, or the device has failed.
    fn read_kv(
        &self,
        session: &Self::Session,
        positions: Range<usize>,
        out: &mut [u8],
    ) -> Result<(), ModelError>;

    /// Replaces keys and values of `positions` by what [`Self::read_kv`] gave. The session then goes on by
    /// [`Self::resume`] only.
    ///
    /// # Errors
    /// There is no room for them, `bytes` has another length, or the device has failed.
    fn write_kv(
        &self,
        session: &mut Self::Session,
        positions: Range<usize>,
        bytes: &[u8],
    ) -> Result<(), ModelError>;

    /// Takes a session to behind `ids`, whose keys and values are there. `state`: as [`Self::state`] or
    /// [`Self::take_kept`] gave it.
    ///
    /// # Errors
    /// `state` is not of this model, or the device has failed.
    fn resume(&self, session: &mut Self::Session, ids: &[u32], state: &[u8]) -> Result<(), ModelError>;

    /// Work since the start.
    fn counters(&self) -> Counters;

    /// An answer was finished, or nothing is to be done: a moment for what must be done now and then.
    fn pause(&mut self);
}

/// What the expert stream did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Requests for experts that were in memory.
    pub n_hit: u64,
    /// Requests for experts that had to be read.
    pub n_miss: u64,
    /// Bytes read.
    pub read_bytes: u64,
    /// Time spent waiting for reads.
    pub wait: Duration,
}

impl Counters {
    /// What came after `before`.
    pub(crate) fn since(&self, before: &Self) -> Self {
        Self {
            n_hit: self.n_hit.saturating_sub(before.n_hit),
            n_miss: self.n_miss.saturating_sub(before.n_miss),
            read_bytes: self.read_bytes.saturating_sub(before.read_bytes),
            wait: self.wait.saturating_sub(before.wait),
        }
    }

    /// Both.
    pub(crate) fn plus(&self, more: &Self) -> Self {
        Self {
            n_hit: self.n_hit + more.n_hit,
            n_miss: self.n_miss + more.n_miss,
            read_bytes: self.read_bytes + more.read_bytes,
            wait: self.wait + more.wait,
        }
    }

    /// Share of the requests that were served from memory; `None` if there were none.
    pub(crate) fn hit_rate(&self) -> Option<f64> {
        let n = self.n_hit + self.n_miss;
        (0 < n).then(|| self.n_hit as f64 / n as f64)
    }

    /// Gigabytes read for each second of waiting; `None` if nobody waited.
    pub(crate) fn read_gb_s(&self) -> Option<f64> {
        let wait_s = self.wait.as_secs_f64();
        (0 < self.read_bytes && 0.0 < wait_s).then(|| self.read_bytes as f64 / 1e9 / wait_s)
    }
}
