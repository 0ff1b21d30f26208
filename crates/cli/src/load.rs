//! From a store and a plan to an engine that can run.

use kernels::Cpu;
use model::Engine;
use store::Store;

use crate::flags::EngineFlags;
use crate::output::note;
use crate::plan::{Plan, Wishes, Work};
use crate::progress::Progress;

/// A model in memory.
pub(crate) struct Loaded {
    pub(crate) engine: Engine<Cpu>,
    pub(crate) plan: Plan,
}

/// Plans the memory and loads the dense weights. What else the process needs (the tokenizer) is loaded before, so that
/// the plan can count it.
pub(crate) fn load(store: &Store, flags: &EngineFlags, work: Work) -> anyhow::Result<Loaded> {
    let plan = Plan::new(&Wishes::from(flags), store, work)?;
    if plan.is_approximate {
        let own = store.config().n_expert_used;
        note(format_args!(
            "note: {} experts a token instead of the model's {own} (--experts)",
            plan.n_expert_used
        ));
    }
    if flags.verbose {
        note(plan.describe());
    }
    let mut progress = Progress::new("load", store.dense_bytes(), 0);
    let backend = Cpu::new(plan.n_thread);
    let engine =
        Engine::load(store, backend, plan.engine_options(), &mut |read_bytes| progress.at(read_bytes))?;
    progress.finish();
    Ok(Loaded { engine, plan })
}
