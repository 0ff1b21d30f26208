//! The OpenAI API.

pub(crate) mod chat;
pub(crate) mod completions;
mod messages;
pub(crate) mod models;
mod request;
pub(crate) mod tokenize;

use std::time::Duration;

use serde_json::{Value, json};

pub(crate) use request::cache_hint;

use crate::engine::{Done, Reason, Source, Timings};

/// What an answer cost.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Usage {
    n_prompt: usize,
    n_cached: usize,
    n_generated: usize,
    n_reasoning: usize,
}

impl Usage {
    /// Adds an answer; `is_same_prompt`: to a prompt that is counted already.
    pub(crate) fn add(&mut self, done: &Done, is_same_prompt: bool) {
        if !is_same_prompt {
            self.n_prompt += done.timings.n_prompt;
            self.n_cached += done.timings.n_cached;
        }
        self.n_generated += done.timings.n_generated;
        self.n_reasoning += done.n_reasoning;
    }

    pub(crate) fn json(&self) -> Value {
        json!({
            "prompt_tokens": self.n_prompt,
            "completion_tokens": self.n_generated,
            "total_tokens": self.n_prompt + self.n_generated,
            "prompt_tokens_details": { "cached_tokens": self.n_cached },
            "completion_tokens_details": { "reasoning_tokens": self.n_reasoning },
        })
    }
}

/// Counts and speeds: an extension, in the names that llama.cpp has for them.
pub(crate) fn timings_json(timings: &Timings) -> Value {
    let ms = |time: Duration| time.as_secs_f64() * 1e3;
    json!({
        "prompt_n": timings.n_prompt.saturating_sub(timings.n_cached),
        "cache_n": timings.n_cached,
        "cache_source": timings.source.map(Source::name),
        "cache_missed": timings.reason.map(Reason::name),
        "prompt_ms": ms(timings.prompt_time),
        "prompt_per_second": timings.prompt_tokens_s(),
        "predicted_n": timings.n_generated,
        "predicted_ms": ms(timings.generate_time),
        "predicted_per_second": timings.tokens_s(),
        "hit_rate": timings.counters.hit_rate(),
        "read_gb_s": timings.counters.read_gb_s(),
        "n_ctx": timings.n_ctx,
        "n_ctx_used": timings.n_ctx_used,
    })
}

/// How far a prompt is: an extension, in the names that llama.cpp has for it.
pub(crate) fn progress_json((total, cached): (usize, usize), n_done: usize, elapsed: Duration) -> Value {
    json!({
        "total": total,
        "cached": cached,
        "processed": n_done,
        "elapsed_ms": elapsed.as_secs_f64() * 1e3,
    })
}
