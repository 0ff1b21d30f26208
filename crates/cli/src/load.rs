//! From a store and a plan to an engine that can run.

use kernels::Cpu;
use model::Engine;
use store::{Blob, Store};
use stream::{Backing, CacheMode, Reader, SimDrive, SimSpec};

use crate::flags::EngineFlags;
use crate::output::note;
use crate::plan::{Plan, Wishes, Work};
use crate::progress::Progress;

/// A model in memory.
pub(crate) struct Loaded {
    pub(crate) engine: Engine<Cpu>,
    pub(crate) plan: Plan,
}

/// What is made different from a machine's real state, to measure something.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Experiment {
    /// Nothing is read once all slots are full.
    pub(crate) assume_resident: bool,
    /// Experts are read from a drive like this.
    pub(crate) drive: Option<SimSpec>,
}

/// Plans the memory and loads the dense weights. What else the process needs (the tokenizer) is loaded before, so that
/// the plan can count it.
pub(crate) fn load(store: &Store, flags: &EngineFlags, work: Work) -> anyhow::Result<Loaded> {
    load_for(store, flags, work, Experiment::default())
}

/// The same, for an experiment.
pub(crate) fn load_for(
    store: &Store,
    flags: &EngineFlags,
    work: Work,
    experiment: Experiment,
) -> anyhow::Result<Loaded> {
    let mut plan = Plan::new(&Wishes::from(flags), store, work)?;
    if experiment.assume_resident {
        plan.stream.mode = CacheMode::Assumed;
    }
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
    let (options, loaded) = (plan.engine_options(), &mut |read_bytes| progress.at(read_bytes));
    let engine = match experiment.drive.map(SimDrive::new) {
        None => Engine::load(store, backend, options, loaded)?,
        Some(drive) => {
            // Out of the page cache, so that the drive at hand does not limit the simulated one.
            let open = |blob: &Blob| Ok(drive.wrap(Reader::open(blob, Backing::Buffered)?));
            Engine::load_with(store, backend, options, &open, loaded)?
        }
    };
    progress.finish();
    Ok(Loaded { engine, plan })
}
