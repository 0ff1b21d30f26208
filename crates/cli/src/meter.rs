//! Counts what prefill and decode cost, between the model and whoever feeds it, and shows how far they are.

use std::cell::Cell;
use std::io::{self, IsTerminal};
use std::ops::ControlFlow;
use std::rc::Rc;
use std::time::{Duration, Instant};

use kernels::Backend;
use model::{Engine, Logits, ModelError, Session, Timing, TokenModel};
use serde::Serialize;
use stream::{LayerStats, StreamStats};

use crate::output::note;
use crate::prefixes::Keeper;
use crate::progress::TokenBar;
use crate::size::Size;

/// One part in so many of a phase must be waiting for the waiting to be a measurement.
const WAIT_SHARE_MIN: u32 = 50;
/// Decoded tokens from one line of statistics to the next.
const N_INTERVAL: usize = 256;

/// Counters of a phase, or of a part of one.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Counts {
    pub(crate) n_token: usize,
    pub(crate) time: Duration,
    pub(crate) stream: StreamStats,
}

/// What one phase cost.
#[derive(Clone, Debug, Default)]
pub(crate) struct Cost {
    pub(crate) counts: Counts,
    pub(crate) timing: Timing,
    /// Expert requests of each layer.
    pub(crate) layers: Vec<LayerStats>, // [n_layer]
    /// What the process had the drive deliver, where the system counts it: less than was read if the page cache had it.
    pub(crate) storage_bytes: Option<u64>,
}

/// A phase as `--json` reports it. `null` where there was nothing to divide by.
#[derive(Clone, Copy, Debug, Serialize)]
pub(crate) struct PhaseReport {
    pub(crate) tokens: usize,
    pub(crate) seconds: f64,
    pub(crate) tok_s: Option<f64>,
    pub(crate) hit_rate: Option<f64>,
    pub(crate) bytes_read: u64,
    /// Bytes read for each second in which the engine waited for them.
    pub(crate) read_gb_s: Option<f64>,
}

impl Counts {
    /// Of both.
    pub(crate) fn plus(&self, more: &Self) -> Self {
        Self {
            n_token: self.n_token + more.n_token,
            time: self.time + more.time,
            stream: combine(self.stream, more.stream, |a, b| a + b, |a, b| a + b),
        }
    }

    /// What came after `before`.
    pub(crate) fn since(&self, before: &Self) -> Self {
        Self {
            n_token: self.n_token - before.n_token,
            time: self.time - before.time,
            stream: since(self.stream, before.stream),
        }
    }

    /// Tokens a second.
    pub(crate) fn tok_s(&self) -> Option<f64> {
        ratio(self.n_token as f64, self.time.as_secs_f64())
    }

    /// Share of the expert requests that were served from memory.
    pub(crate) fn hit_rate(&self) -> Option<f64> {
        ratio(self.stream.n_hit as f64, (self.stream.n_hit + self.stream.n_miss) as f64)
    }

    /// The same without reads ahead: what the cache kept.
    pub(crate) fn kept_rate(&self) -> Option<f64> {
        let StreamStats { n_hit, n_miss, n_prefetch_hit, .. } = self.stream;
        ratio(n_hit.saturating_sub(n_prefetch_hit) as f64, (n_hit + n_miss) as f64)
    }

    /// Gigabytes read for each second in which the engine waited; `None` if it hardly did, because then the reads ran
    /// beside the arithmetic and the quotient says nothing about the drive.
    pub(crate) fn read_gb_s(&self) -> Option<f64> {
        let StreamStats { read_bytes, wait, .. } = self.stream;
        let has_waited = 0 < read_bytes && self.time < wait * WAIT_SHARE_MIN;
        ratio(read_bytes as f64 / 1e9, wait.as_secs_f64()).filter(|_| has_waited)
    }

    pub(crate) fn report(&self) -> PhaseReport {
        PhaseReport {
            tokens: self.n_token,
            seconds: self.time.as_secs_f64(),
            tok_s: self.tok_s(),
            hit_rate: self.hit_rate(),
            bytes_read: self.stream.read_bytes,
            read_gb_s: self.read_gb_s(),
        }
    }

    /// Speed, hits, bytes, where the time went and what to blame, for people.
    pub(crate) fn describe(&self) -> String {
        let StreamStats { n_miss, n_prefetch, n_retry, read_bytes, wait, read, .. } = self.stream;
        let ms = |time: Duration, n: u64| time.as_secs_f64() * 1e3 / n.max(1) as f64;
        let n_token = self.n_token.max(1) as u64;
        let busy = self.time.saturating_sub(wait);
        let cause = if busy < wait { "the drive" } else { "memory and arithmetic, not the drive" };
        let retries = if n_retry == 0 { String::new() } else { format!("{n_retry} reads tried again; ") };
        format!(
            "{:.1} tok/s; {:.1} % of experts in memory; {} read a token, {:.1} ms a read; {retries}{:.1} ms a token waiting, {:.1} ms not; limited by {cause}",
            self.tok_s().unwrap_or_default(),
            100.0 * self.hit_rate().unwrap_or_default(),
            Size(read_bytes / n_token),
            ms(read, n_miss + n_prefetch),
            ms(wait, n_token),
            ms(busy, n_token),
        )
    }
}

impl Cost {
    /// Adds what another part cost.
    pub(crate) fn add(&mut self, more: &Cost) {
        self.counts = self.counts.plus(&more.counts);
        add_timing(&mut self.timing, &more.timing);
        self.layers.resize(self.layers.len().max(more.layers.len()), LayerStats::default());
        for (sum, more) in self.layers.iter_mut().zip(&more.layers) {
            sum.n_hit += more.n_hit;
            sum.n_miss += more.n_miss;
        }
        self.storage_bytes = match (self.storage_bytes, more.storage_bytes) {
            (Some(sum), Some(more)) => Some(sum + more),
            (one, other) => one.or(other),
        };
    }
}

fn add_timing(sum: &mut Timing, more: &Timing) {
    for (sum, more) in [(&mut sum.layers, &more.layers), (&mut sum.device, &more.device)] {
        sum.resize(sum.len().max(more.len()), Default::default());
        sum.iter_mut().flatten().zip(more.iter().flatten()).for_each(|(sum, more)| *sum += *more);
    }
    sum.embed += more.embed;
    sum.head += more.head;
    sum.n_token += more.n_token;
    sum.n_batch += more.n_batch;
}

/// A quotient, if it is a number.
pub(crate) fn ratio(a: f64, b: f64) -> Option<f64> {
    (b > 0.0).then(|| a / b)
}

/// What came after `before`.
pub(crate) fn since(after: StreamStats, before: StreamStats) -> StreamStats {
    combine(after, before, |a, b| a - b, |a, b| a - b)
}

fn combine(
    a: StreamStats,
    b: StreamStats,
    count: impl Fn(u64, u64) -> u64,
    time: impl Fn(Duration, Duration) -> Duration,
) -> StreamStats {
    StreamStats {
        n_hit: count(a.n_hit, b.n_hit),
        n_miss: count(a.n_miss, b.n_miss),
        n_held: count(a.n_held, b.n_held),
        read_bytes: count(a.read_bytes, b.read_bytes),
        n_retry: count(a.n_retry, b.n_retry),
        wait: time(a.wait, b.wait),
        read: time(a.read, b.read),
        n_prefetch: count(a.n_prefetch, b.n_prefetch),
        n_prefetch_hit: count(a.n_prefetch_hit, b.n_prefetch_hit),
    }
}

/// Bytes that the system had drives deliver for this process, if it counts them.
fn storage_bytes() -> Option<u64> {
    // Only Linux has this file.
    let text = std::fs::read_to_string("/proc/self/io").ok()?;
    text.lines().find_map(|line| line.strip_prefix("read_bytes: "))?.parse().ok()
}

/// How far decode is.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Reading {
    /// Of decode.
    pub(crate) counts: Counts,
    /// Tokens in the context.
    pub(crate) pos: usize,
    /// Tokens that the context holds.
    pub(crate) n_ctx: usize,
}

/// A reading that others see while the model is being used.
pub(crate) type Gauge = Rc<Cell<Reading>>;

/// The phases, as places in an array.
const PREFILL: usize = 0;
const DECODE: usize = 1;

/// An engine and a session whose work is counted: tokens before `n_prompt` are prefill, the others decode.
pub(crate) struct Metered<'a, B: Backend> {
    pub(crate) engine: &'a mut Engine<B>,
    pub(crate) session: &'a mut Session<B>,
    n_prompt: usize,
    /// Prefill and decode. What layers did stays in the engine until the phase ends: a token costs no memory.
    costs: [Cost; 2],
    phase: usize,
    /// When the phase began.
    layers: Vec<LayerStats>, // [n_layer]
    storage_bytes: Option<u64>,
    shown: Option<Shown>,
    gauge: Gauge,
    /// Keeps checkpoints of the prompt.
    keeper: Option<Keeper<'a>>,
}

/// What is shown while the work goes on.
struct Shown {
    bar: Option<TokenBar>,
    /// If statistics are wanted.
    interval: Option<Interval>,
}

/// Statistics of every [`N_INTERVAL`] decoded tokens: a speed that falls is seen, and why.
#[derive(Default)]
struct Interval {
    start: Counts,
}

impl Interval {
    /// The statistics since the last ones, if there are tokens enough. `counts` are those of the whole answer.
    fn line(&mut self, counts: &Counts) -> Option<String> {
        if counts.n_token < self.start.n_token + N_INTERVAL {
            return None;
        }
        let (first, last) = (self.start.n_token + 1, counts.n_token);
        let line = format!("[tokens {first} to {last}: {}]", counts.since(&self.start).describe());
        self.start = *counts;
        Some(line)
    }
}

impl<'a, B: Backend> Metered<'a, B> {
    pub(crate) fn new(engine: &'a mut Engine<B>, session: &'a mut Session<B>, n_prompt: usize) -> Self {
        // Times of what went before are not part of what is counted.
        engine.take_timing();
        Self {
            layers: engine.layer_stats().to_vec(),
            storage_bytes: storage_bytes(),
            engine,
            session,
            n_prompt,
            costs: Default::default(),
            phase: PREFILL,
            shown: None,
            gauge: Gauge::default(),
            keeper: None,
        }
    }

    /// Keeps checkpoints of the prompt on the way.
    pub(crate) fn keeping(mut self, keeper: Option<Keeper<'a>>) -> Self {
        self.keeper = keeper;
        self
    }

    /// What shows how far decode is.
    pub(crate) fn gauge(&self) -> Gauge {
        Rc::clone(&self.gauge)
    }

    /// Shows how far the prompt is, and with `is_verbose` statistics now and then.
    pub(crate) fn shown(mut self, is_verbose: bool) -> Self {
        self.shown = Some(Shown { bar: None, interval: is_verbose.then(Interval::default) });
        self
    }

    /// Prefill and decode since the start or the last call.
    pub(crate) fn take(&mut self) -> (Cost, Cost) {
        self.end_phase();
        let [prefill, decode] = std::mem::take(&mut self.costs);
        (prefill, decode)
    }

    fn end_phase(&mut self) {
        let storage_now = storage_bytes();
        let mut layers = self.engine.layer_stats().to_vec();
        std::mem::swap(&mut self.layers, &mut layers);
        for (before, now) in layers.iter_mut().zip(&self.layers) {
            *before = LayerStats { n_hit: now.n_hit - before.n_hit, n_miss: now.n_miss - before.n_miss };
        }
        self.costs[self.phase].add(&Cost {
            counts: Counts::default(),
            timing: self.engine.take_timing(),
            layers,
            storage_bytes: storage_now.zip(self.storage_bytes).map(|(now, before)| now - before),
        });
        self.storage_bytes = storage_now;
    }

    /// Feeds tokens of the prompt, a batch at a time if checkpoints are kept: as many as fit a batch wait for that.
    fn feed_prompt(
        &mut self,
        ids: &[u32],
        progress: &mut dyn FnMut(usize) -> ControlFlow<()>,
    ) -> Result<(), ModelError> {
        let Self { engine, session, keeper: Some(keeper), .. } = self else {
            return self.engine.forward(self.session, ids, Logits::Last, progress);
        };
        let (mut n_fed, mut is_stopped) = (0, false);
        while n_fed < ids.len() {
            if is_stopped {
                return Err(ModelError::Interrupted);
            }
            let piece = &ids[n_fed..][..keeper.n_piece(session.pos(), ids.len() - n_fed)];
            let told = &mut |n_done| {
                is_stopped |= progress(n_fed + n_done).is_break();
                ControlFlow::Continue(())
            };
            engine.forward(session, piece, Logits::Last, told)?;
            n_fed += piece.len();
            keeper.keep(engine, session)?;
        }
        Ok(())
    }

    /// Statistics of the last tokens, if there are enough.
    fn show_interval(&mut self) {
        let interval = self.shown.as_mut().and_then(|shown| shown.interval.as_mut());
        if let Some(line) = interval.and_then(|interval| interval.line(&self.costs[DECODE].counts)) {
            // An answer that is being shown ends somewhere in a line.
            let line_end = if io::stdout().is_terminal() { "\n" } else { "" };
            note(format_args!("{line_end}{line}"));
        }
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

    fn has_logits(&self) -> bool {
        self.session.logits().first().is_some_and(|logit| logit.is_finite())
    }

    fn feed(
        &mut self,
        ids: &[u32],
        progress: &mut dyn FnMut(usize) -> ControlFlow<()>,
    ) -> Result<&[f32], ModelError> {
        let (start, pos, before) = (Instant::now(), self.session.pos(), self.engine.stream_stats());
        let phase = if pos < self.n_prompt { PREFILL } else { DECODE };
        if phase != self.phase {
            self.end_phase();
            self.phase = phase;
        }
        let bar = self.shown.as_mut().filter(|_| phase == PREFILL).map(|shown| {
            let n_left = self.n_prompt - pos;
            shown.bar.take().unwrap_or_else(|| TokenBar::new(n_left))
        });
        let n_prompt = self.n_prompt;
        let told = &mut |n_done: usize| {
            if let Some(bar) = &bar {
                bar.at_left(n_prompt - (pos + n_done).min(n_prompt));
            }
            progress(n_done)
        };
        let fed = match phase {
            PREFILL => self.feed_prompt(ids, told),
            _ => self.engine.forward(self.session, ids, Logits::Last, told),
        };
        let counts = Counts {
            n_token: self.session.pos() - pos,
            time: start.elapsed(),
            stream: since(self.engine.stream_stats(), before),
        };
        self.costs[phase].counts = self.costs[phase].counts.plus(&counts);
        if let Some(shown) = &mut self.shown
            && self.session.pos() < self.n_prompt
            && fed.is_ok()
        {
            shown.bar = bar;
        }
        let (pos, n_ctx) = (self.session.pos(), self.session.n_ctx());
        self.gauge.set(Reading { counts: self.costs[DECODE].counts, pos, n_ctx });
        self.show_interval();
        fed.map(|()| self.session.logits())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Rates would be wrong, or infinite where nothing happened.
    #[test]
    fn rates_are_per_second_and_per_request() {
        let report = serde_json::to_value(Counts::default().report()).unwrap();
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
        let counts = Counts { n_token: 8, time: Duration::from_secs(4), stream: since(after, before) };
        assert_eq!(
            (counts.tok_s(), counts.hit_rate(), counts.read_gb_s()),
            (Some(2.0), Some(0.75), Some(1.5))
        );
        let slow = Counts { time: Duration::from_secs(200), ..counts };
        assert_eq!(slow.read_gb_s(), None);
        let both = counts.plus(&slow);
        assert_eq!((both.n_token, both.stream.n_hit), (16, 6));
        assert_eq!(both.since(&slow).stream, counts.stream);
    }

    /// Statistics would come too often, never, or be averages over the whole answer, in which nothing is seen to fall.
    #[test]
    fn intervals_are_told_apart() {
        let mut interval = Interval::default();
        let mut lines = Vec::new();
        for n_token in 1..=2 * N_INTERVAL {
            // The second half is ten times slower.
            let slow = n_token.saturating_sub(N_INTERVAL) as u64;
            let time = Duration::from_millis(10 * n_token as u64 + 90 * slow);
            lines.extend(interval.line(&Counts { n_token, time, ..Counts::default() }));
        }
        assert_eq!(lines.len(), 2);
        assert!(lines[0].starts_with("[tokens 1 to 256: 100.0 tok/s"), "{lines:?}");
        assert!(lines[1].starts_with("[tokens 257 to 512: 10.0 tok/s"), "{lines:?}");
    }

    /// A phase would be reported with the bytes or layers of half of it.
    #[test]
    fn costs_add_up() {
        let cost = |storage_bytes| Cost {
            counts: Counts { n_token: 2, ..Counts::default() },
            timing: Timing { n_batch: 1, ..Timing::default() },
            layers: vec![LayerStats { n_hit: 3, n_miss: 1 }],
            storage_bytes,
        };
        let mut sum = Cost::default();
        [cost(None), cost(Some(5)), cost(Some(6))].iter().for_each(|cost| sum.add(cost));
        assert_eq!((sum.counts.n_token, sum.timing.n_batch, sum.storage_bytes), (6, 3, Some(11)));
        assert_eq!(sum.layers, [LayerStats { n_hit: 9, n_miss: 3 }]);
    }

    /// The line that explains a slow answer would blame the wrong part, or give sums instead of values a token.
    #[test]
    fn the_cause_is_where_the_time_goes() {
        let said = |wait_ms, n_retry| {
            let (wait, read) = (Duration::from_millis(wait_ms), Duration::from_millis(30));
            let stream = StreamStats {
                n_hit: 3,
                n_miss: 1,
                read_bytes: 4 << 20,
                n_retry,
                wait,
                read,
                ..Default::default()
            };
            Counts { n_token: 4, time: Duration::from_millis(100), stream }.describe()
        };
        let expected = "40.0 tok/s; 75.0 % of experts in memory; 1.0 MiB read a token, 30.0 ms a read; \
                        20.0 ms a token waiting, 5.0 ms not; limited by the drive";
        assert_eq!(said(80, 0), expected);
        assert!(said(80, 2).contains("; 2 reads tried again; "));
        assert!(said(20, 0).ends_with("limited by memory and arithmetic, not the drive"));
    }
}
