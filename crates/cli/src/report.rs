//! The machine-readable result that `run` and `bench` share.

use serde::Serialize;
use store::Store;

use crate::load::Loaded;
use crate::meter::{Cost, PhaseReport};
use crate::size::Size;

/// What ran, and where.
#[derive(Debug, Serialize)]
pub(crate) struct Setting {
    model: String,
    architecture: &'static str,
    device: String,
    threads: usize,
    memory_budget_bytes: u64,
    pub(crate) peak_rss_bytes: u64,
    cache: &'static str,
    n_expert_used: usize,
    activations: &'static str,
    kv_format: &'static str,
    kv_bytes_per_token: u64,
}

/// Both phases.
#[derive(Debug, Serialize)]
pub(crate) struct Phases {
    prefill: PhaseReport,
    decode: PhaseReport,
}

impl Setting {
    /// Now, after the work.
    pub(crate) fn of(store: &Store, loaded: &Loaded) -> Self {
        Self {
            model: store.location(),
            architecture: store.config().architecture.name(),
            device: kernels::Backend::describe(loaded.engine.backend()),
            threads: loaded.plan.n_thread,
            memory_budget_bytes: loaded.plan.budget.0,
            peak_rss_bytes: stream::peak_rss_bytes(),
            cache: loaded.plan.cache_name(),
            n_expert_used: loaded.plan.n_expert_used,
            activations: loaded.activations,
            kv_format: loaded.plan.kv_format.name(),
            kv_bytes_per_token: loaded.plan.kv_bytes_per_token(),
        }
    }
    /// On one line.
    pub(crate) fn title(&self) -> String {
        let (budget, cache) = (Size(self.memory_budget_bytes), self.cache);
        format!("{} on {}; {budget} of memory, cache {cache}", self.model, self.device)
    }
}

impl Phases {
    pub(crate) fn of(prefill: &Cost, decode: &Cost) -> Self {
        Self { prefill: prefill.counts.report(), decode: decode.counts.report() }
    }
}

/// Prints a result on standard output.
pub(crate) fn print(result: &impl Serialize) -> anyhow::Result<()> {
    use std::io::Write;
    let json = serde_json::to_string_pretty(result)?;
    writeln!(std::io::stdout().lock(), "{json}")?;
    Ok(())
}
