//! Counts what prefill and decode cost, between the model and whoever feeds it.

use std::ops::ControlFlow;
use std::time::{Duration, Instant};

use kernels::Backend;
use model::{Engine, Logits, ModelError, Session, Timing, TokenModel};
use serde::Serialize;
use stream::StreamStats;

/// One part in so many of a phase must be waiting for the waiting to be a measurement.
const WAIT_SHARE_MIN: u32 = 50;

/// What one phase cost.
#[derive(Clone, Debug, Default)]
pub(crate) struct Cost {
    pub(crate) n_token: usize,
    pub(crate) time: Duration,
    pub(crate) n_hit: u64,
    pub(crate) n_miss: u64,
    pub(crate) read_bytes: u64,
    pub(crate) wait: Duration,
    pub(crate) timing: Timing,
}

/// A phase as `--json` reports it. `null` where there was nothing to divide by.
#[derive(Clone, Copy, Debug, Serialize)]
pub(crate) struct PhaseReport {
    tokens: usize,
    seconds: f64,
    tok_s: Option<f64>,
    hit_rate: Option<f64>,
    bytes_read: u64,
    /// Bytes read for each second in which the engine waited for them.
    read_gb_s: Option<f64>,
}

impl Cost {
    fn add(
        &mut self,
        n_token: usize,
        time: Duration,
        before: StreamStats,
        after: StreamStats,
        timing: &Timing,
    ) {
        self.n_token += n_token;
        self.time += time;
        self.n_hit += after.n_hit - before.n_hit;
        self.n_miss += after.n_miss - before.n_miss;
        self.read_bytes += after.read_bytes - before.read_bytes;
        self.wait += after.wait - before.wait;
        add_timing(&mut self.timing, timing);
    }

    /// Tokens a second.
    pub(crate) fn tok_s(&self) -> Option<f64> {
        ratio(self.n_token as f64, self.time.as_secs_f64())
    }

    /// Share of the expert requests that were served from memory.
    pub(crate) fn hit_rate(&self) -> Option<f64> {
        ratio(self.n_hit as f64, (self.n_hit + self.n_miss) as f64)
    }

    /// Gigabytes read for each second in which the engine waited; `None` if it hardly did, because then the reads ran
    /// beside the arithmetic and the quotient says nothing about the drive.
    pub(crate) fn read_gb_s(&self) -> Option<f64> {
        let has_waited = 0 < self.read_bytes && self.time < self.wait * WAIT_SHARE_MIN;
        ratio(self.read_bytes as f64 / 1e9, self.wait.as_secs_f64()).filter(|_| has_waited)
    }

    pub(crate) fn report(&self) -> PhaseReport {
        PhaseReport {
            tokens: self.n_token,
            seconds: self.time.as_secs_f64(),
            tok_s: self.tok_s(),
            hit_rate: self.hit_rate(),
            bytes_read: self.read_bytes,
            read_gb_s: self.read_gb_s(),
        }
    }
}

/// A quotient, if it is a number.
fn ratio(a: f64, b: f64) -> Option<f64> {
    (b > 0.0).then(|| a / b)
}

fn add_timing(sum: &mut Timing, more: &Timing) {
    sum.layers.resize(sum.layers.len().max(more.layers.len()), Default::default());
    for (sum, more) in sum.layers.iter_mut().zip(&more.layers) {
        for (sum, more) in sum.iter_mut().zip(more) {
            *sum += *more;
        }
    }
    sum.embed += more.embed;
    sum.head += more.head;
    sum.n_token += more.n_token;
    sum.n_batch += more.n_batch;
}

/// An engine and a session whose work is counted: tokens before `n_prompt` are prefill, the others decode.
pub(crate) struct Metered<'a, B: Backend> {
    pub(crate) engine: &'a mut Engine<B>,
    pub(crate) session: &'a mut Session<B>,
    pub(crate) n_prompt: usize,
    pub(crate) prefill: Cost,
    pub(crate) decode: Cost,
}

impl<'a, B: Backend> Metered<'a, B> {
    pub(crate) fn new(engine: &'a mut Engine<B>, session: &'a mut Session<B>, n_prompt: usize) -> Self {
        // Times of what went before are not part of what is counted.
        engine.take_timing();
        Self { engine, session, n_prompt, prefill: Cost::default(), decode: Cost::default() }
    }
}

impl<B: Backend> TokenModel for Metered<'_, B> {
    fn n_vocab(&self) -> usize {
        self.engine.config().n_vocab
    }

    fn n_ctx(&self) -> usize {
        self.session.n_ctx()
    }

    fn pos(&self) -> usize {
        self.session.pos()
    }

    fn feed(
        &mut self,
        ids: &[u32],
        progress: &mut dyn FnMut(usize) -> ControlFlow<()>,
    ) -> Result<&[f32], ModelError> {
        let (start, pos, before) = (Instant::now(), self.session.pos(), self.engine.stream_stats());
        let fed = self.engine.forward(self.session, ids, Logits::Last, progress);
        let cost = if pos < self.n_prompt { &mut self.prefill } else { &mut self.decode };
        let timing = self.engine.take_timing();
        cost.add(self.session.pos() - pos, start.elapsed(), before, self.engine.stream_stats(), &timing);
        fed.map(|()| self.session.logits())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Rates would be wrong, or infinite where nothing happened.
    #[test]
    fn rates_are_per_second_and_per_request() {
        let mut cost = Cost::default();
        let report = serde_json::to_value(cost.report()).unwrap();
        assert_eq!(
            [&report["tok_s"], &report["hit_rate"], &report["read_gb_s"]],
            [&serde_json::Value::Null; 3]
        );
        let before = StreamStats { n_hit: 1, n_miss: 1, read_bytes: 10, ..StreamStats::default() };
        let after = StreamStats {
            n_hit: 4,
            n_miss: 2,
            read_bytes: 10 + 3_000_000_000,
            wait: Duration::from_secs(2),
            ..before
        };
        cost.add(8, Duration::from_secs(4), before, after, &Timing::default());
        assert_eq!((cost.tok_s(), cost.hit_rate(), cost.read_gb_s()), (Some(2.0), Some(0.75), Some(1.5)));
        cost.time = Duration::from_secs(200);
        assert_eq!(cost.read_gb_s(), None);
    }
}
