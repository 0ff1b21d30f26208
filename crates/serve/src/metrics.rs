//! Numbers for Prometheus.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use prefix::CacheStats;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::encoding::text::encode;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::{Registry, Unit};

use crate::engine::{Counters, Reason, Source, Timings};

/// Bounds of histograms of seconds: from a small model in memory to a long prompt from a slow drive.
const SECONDS: [f64; 12] = [0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0, 100.0, 300.0, 1000.0, 3000.0];
/// Bounds of histograms of tokens a second.
const TOKENS_S: [f64; 10] = [0.1, 0.3, 1.0, 3.0, 10.0, 20.0, 40.0, 80.0, 160.0, 320.0];

/// All of them.
pub struct Metrics {
    registry: Registry,
    requests: Family<RequestLabels, Counter>,
    active: Gauge,
    waiting: Gauge,
    prompt_tokens: Counter,
    cached_tokens: Counter,
    generated_tokens: Counter,
    finished: Counter,
    failed: Counter,
    cancelled: Counter,
    wait_s: Histogram,
    first_token_s: Histogram,
    tokens_s: Histogram,
    hits: Counter,
    misses: Counter,
    read_bytes: Counter,
    read_wait_s: Counter<f64, AtomicU64>,
    prefix_hits: Family<SourceLabels, Counter>,
    prefix_misses: Family<ReasonLabels, Counter>,
    prefix_checkpoints: Gauge,
    prefix_memory_bytes: Gauge,
    prefix_disk_bytes: Gauge,
    prefix_evicted: Counter,
    prefix_read_bytes: Counter,
    prefix_written_bytes: Counter,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct RequestLabels {
    /// As routes are written; empty where there is none.
    route: String,
    status: u16,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct SourceLabels {
    source: &'static str,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct ReasonLabels {
    reason: &'static str,
}

impl Default for Metrics {
    fn default() -> Self {
        let mut metrics = Self {
            registry: Registry::default(),
            requests: Family::default(),
            active: Gauge::default(),
            waiting: Gauge::default(),
            prompt_tokens: Counter::default(),
            cached_tokens: Counter::default(),
            generated_tokens: Counter::default(),
            finished: Counter::default(),
            failed: Counter::default(),
            cancelled: Counter::default(),
            wait_s: Histogram::new(SECONDS),
            first_token_s: Histogram::new(SECONDS),
            tokens_s: Histogram::new(TOKENS_S),
            hits: Counter::default(),
            misses: Counter::default(),
            read_bytes: Counter::default(),
            read_wait_s: Counter::default(),
            prefix_hits: Family::default(),
            prefix_misses: Family::default(),
            prefix_checkpoints: Gauge::default(),
            prefix_memory_bytes: Gauge::default(),
            prefix_disk_bytes: Gauge::default(),
            prefix_evicted: Counter::default(),
            prefix_read_bytes: Counter::default(),
            prefix_written_bytes: Counter::default(),
        };
        metrics.register();
        metrics
    }
}

impl Metrics {
    fn register(&mut self) {
        let mut registry = Registry::with_prefix("flash_moe");
        let r = &mut registry;
        r.register("http_requests", "Requests by route and status", self.requests.clone());
        r.register("answers_active", "Answers that are being made", self.active.clone());
        r.register("answers_waiting", "Requests that wait", self.waiting.clone());
        r.register("prompt_tokens", "Tokens of prompts that were fed", self.prompt_tokens.clone());
        r.register("cached_tokens", "Tokens of prompts that were fed before", self.cached_tokens.clone());
        r.register("generated_tokens", "Tokens generated", self.generated_tokens.clone());
        r.register("answers_finished", "Answers that were completed", self.finished.clone());
        r.register("answers_failed", "Answers that ended with an error", self.failed.clone());
        r.register("answers_cancelled", "Answers that nobody waited for any more", self.cancelled.clone());
        let seconds = || Unit::Seconds;
        r.register_with_unit("queue_wait", "Time in the queue", seconds(), self.wait_s.clone());
        r.register_with_unit(
            "first_token",
            "Time from leaving the queue to the first token",
            seconds(),
            self.first_token_s.clone(),
        );
        r.register("answer_tokens_per_second", "Speed of answers", self.tokens_s.clone());
        r.register("expert_hits", "Experts that were in memory", self.hits.clone());
        r.register("expert_misses", "Experts that had to be read", self.misses.clone());
        r.register_with_unit("expert_read", "Experts read", Unit::Bytes, self.read_bytes.clone());
        r.register_with_unit("expert_wait", "Time waited for reads", seconds(), self.read_wait_s.clone());
        self.register_prefixes(&mut registry);
        self.registry = registry;
    }

    fn register_prefixes(&self, r: &mut Registry) {
        let bytes = || Unit::Bytes;
        let hits = "Prompts that began as one before, by where the work of it was";
        r.register("prefix_hits", hits, self.prefix_hits.clone());
        let misses = "Prompts of which more was read than the last tokens, by why it was not there";
        r.register("prefix_misses", misses, self.prefix_misses.clone());
        r.register("prefix_checkpoints", "Checkpoints that can be used", self.prefix_checkpoints.clone());
        let memory = self.prefix_memory_bytes.clone();
        r.register_with_unit("prefix_memory", "Checkpoints in memory", bytes(), memory);
        r.register_with_unit(
            "prefix_disk",
            "Checkpoints on the disk",
            bytes(),
            self.prefix_disk_bytes.clone(),
        );
        r.register("prefix_evictions", "Checkpoints that had to go", self.prefix_evicted.clone());
        r.register_with_unit("prefix_read", "Checkpoints read back", bytes(), self.prefix_read_bytes.clone());
        let written = self.prefix_written_bytes.clone();
        r.register_with_unit("prefix_written", "Checkpoints written to the disk", bytes(), written);
    }

    /// In the text format.
    pub fn text(&self) -> String {
        let mut text = String::new();
        encode(&mut text, &self.registry).expect("writing to a string");
        text
    }

    pub(crate) fn answered(&self, route: Option<String>, status: u16) {
        let route = route.unwrap_or_default();
        self.requests.get_or_create(&RequestLabels { route, status }).inc();
    }

    pub(crate) fn set_load(&self, n_active: usize, n_waiting: usize) {
        self.active.set(n_active as i64);
        self.waiting.set(n_waiting as i64);
    }

    pub(crate) fn started(&self, wait: Duration) {
        self.wait_s.observe(wait.as_secs_f64());
    }

    pub(crate) fn fed_prompt(&self, n_token: usize) {
        self.prompt_tokens.inc_by(n_token as u64);
    }

    pub(crate) fn generated(&self, n_token: usize) {
        self.generated_tokens.inc_by(n_token as u64);
    }

    pub(crate) fn used(&self, used: &Counters) {
        self.hits.inc_by(used.n_hit);
        self.misses.inc_by(used.n_miss);
        self.read_bytes.inc_by(used.read_bytes);
        self.read_wait_s.inc_by(used.wait.as_secs_f64());
    }

    pub(crate) fn finished(&self, timings: &Timings) {
        self.finished.inc();
        self.cached_tokens.inc_by(timings.n_cached as u64);
        self.first_token_s.observe(timings.prompt_time.as_secs_f64());
        if let Some(tokens_s) = timings.tokens_s() {
            self.tokens_s.observe(tokens_s);
        }
    }

    pub(crate) fn failed(&self) {
        self.failed.inc();
    }

    pub(crate) fn cancelled(&self) {
        self.cancelled.inc();
    }

    /// A prompt was looked for: where the beginning of it was, and why it is not more.
    pub(crate) fn reused(&self, source: Option<Source>, reason: Option<Reason>) {
        if let Some(source) = source.map(Source::name) {
            self.prefix_hits.get_or_create(&SourceLabels { source }).inc();
        }
        if let Some(reason) = reason.map(Reason::name) {
            self.prefix_misses.get_or_create(&ReasonLabels { reason }).inc();
        }
    }

    /// What is kept of prompts.
    pub(crate) fn set_cache(&self, stats: &CacheStats) {
        self.prefix_checkpoints.set(stats.n_checkpoint as i64);
        self.prefix_memory_bytes.set(stats.memory_bytes as i64);
        self.prefix_disk_bytes.set(stats.disk_bytes as i64);
        self.prefix_evicted.inner().store(stats.n_evicted, Ordering::Relaxed);
        self.prefix_read_bytes.inner().store(stats.read_bytes, Ordering::Relaxed);
        self.prefix_written_bytes.inner().store(stats.written_bytes, Ordering::Relaxed);
    }
}
