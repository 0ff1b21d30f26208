//! From a store and a plan to an engine that can run.

use gpu::{Gpu, GpuError};
use model::{Engine, Footprint};
use store::{Blob, Store};
use stream::{Backing, CacheMode, Governor, MemoryReading, Reader, SimDrive, SimSpec};

use crate::cachedir::CacheDir;
use crate::device::{self, Device, Either};
use crate::drive::{DRIVE_FLOOR_BYTES_S, Drive, expert_files};
use crate::error::{CliError, Memory};
use crate::flags::{self, Cache, EngineFlags};
use crate::heatfile::HeatFile;
use crate::interrupt;
use crate::marker::Marker;
use crate::output::note;
use crate::plan::{Plan, Wishes, Work};
use crate::progress::Progress;
use crate::size::Size;

/// A model in memory.
pub(crate) struct Loaded {
    pub(crate) engine: Engine<Device>,
    pub(crate) plan: Plan,
    /// Name of the setting.
    pub(crate) activations: &'static str,
    /// If this run learns from earlier ones.
    heat: Option<HeatFile>,
    /// Keeps the slots within the memory that there is.
    _governor: Option<Governor>,
    /// Tells the next run if this one is killed.
    _marker: Option<Marker>,
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
    if flags.experts.len() > 1 {
        return Err(CliError::Usage("--experts: one number; several are for 'eval --matrix'".into()).into());
    }
    let cache = CacheDir::open(flags.verbose);
    // Before the plan, which counts the memory that is free.
    let drive = match flags.readers {
        Some(_) => Drive::known(store, &cache),
        None => Drive::find(store, &cache),
    };
    let mut wishes = Wishes::from(flags);
    if experiment.assume_resident || experiment.drive.is_some() {
        // What the real drive makes faster says nothing here.
        wishes.cache = Cache::Slots;
    }
    let (device, mut plan) = plan_with_device(store, flags, work, &drive, wishes)?;
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
    let activations = activations_on(&device, flags.activations);
    if flags.verbose {
        note(plan.describe());
    }
    warn_of_slow_drive(&drive, &plan);
    interrupt::install()?;
    let marker = Marker::start(&cache, &store.location(), plan.budget);
    let mut progress = Progress::new("load", store.dense_bytes(), 0);
    let backend = device.prepared(&plan, activations);
    let activations = activations.name();
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
    let governor = govern(&engine, &plan, flags.verbose);
    Ok(Loaded { engine, plan, activations, heat: None, _governor: governor, _marker: marker })
}

/// How precisely activations enter products, which is said if it is not what the model or the user expects.
fn activations_on(device: &Device, asked: flags::Activations) -> flags::Activations {
    match (asked, device.gpu()) {
        (flags::Activations::Exact, _) => {}
        (_, None) => note(format_args!("note: activations rounded to {} (--activations)", asked.name())),
        (_, Some(_)) => {
            note("note: the GPU takes activations as they are, whatever --activations says");
            return flags::Activations::Exact;
        }
    }
    asked
}

/// Opens the device and divides the memory. A GPU that the model does not fit is no reason to give up, unless it was
/// asked for.
fn plan_with_device(
    store: &Store,
    flags: &EngineFlags,
    work: Work,
    drive: &Drive,
    wishes: Wishes,
) -> anyhow::Result<(Device, Plan)> {
    let on_cpu = |why: &dyn std::fmt::Display| -> anyhow::Result<(Device, Plan)> {
        note(format_args!("note: computing on the CPU: {why}"));
        let flags = EngineFlags { device: flags::Device::Cpu, ..flags.clone() };
        Ok((device::open(&flags)?, Plan::new(&wishes, store.manifest(), work, drive)?))
    };
    let is_free = flags.device == flags::Device::Auto;
    let device = match device::open(flags)? {
        Either::Cpu(cpu) => Either::Cpu(cpu),
        Either::Gpu(gpu) => match for_model(*gpu, store) {
            Ok(gpu) => Either::Gpu(Box::new(gpu)),
            Err(why) if is_free => return on_cpu(&why),
            Err(why) => return Err(why.into()),
        },
    };
    let vram = device.vram(flags);
    match Plan::new(&Wishes { vram, ..wishes }, store.manifest(), work, drive) {
        Err(CliError::Memory(room)) if room.memory == Memory::Gpu && is_free => {
            on_cpu(&CliError::Memory(room))
        }
        plan => Ok((device, plan?)),
    }
}

/// A GPU that can compute the model.
fn for_model(gpu: Gpu, store: &Store) -> Result<Gpu, GpuError> {
    let footprint = Footprint::of(store.manifest());
    gpu.check_shapes(footprint.attention, footprint.delta, store.config().n_expert)?;
    gpu.for_formats(store.manifest().formats())
}

/// The same for somebody who waits for answers: experts that earlier runs used most are read in the background.
pub(crate) fn load_warm(store: &Store, flags: &EngineFlags, work: Work) -> anyhow::Result<Loaded> {
    let mut loaded = load(store, flags, work)?;
    loaded.hold_all()?;
    // The demo model is in memory already, and the page cache keeps what it likes.
    if loaded.plan.stream.mode == CacheMode::Slots && !expert_files(store).is_empty() {
        loaded.heat = Some(HeatFile::warm(CacheDir::open(flags.verbose), &mut loaded.engine));
    }
    Ok(loaded)
}

impl Loaded {
    /// A model that fits a GPU's memory is there before the first answer.
    fn hold_all(&mut self) -> anyhow::Result<()> {
        let total_bytes = self.plan.held_bytes();
        let mut progress = Progress::new("experts", total_bytes, 0);
        self.engine.hold_all(&mut |n_held, n| progress.at(total_bytes * n_held as u64 / n as u64))?;
        progress.finish();
        Ok(())
    }

    /// Between two answers: what was learned is kept now and then.
    pub(crate) fn pause(&mut self) {
        if let Some(heat) = &mut self.heat {
            heat.save_rarely(&self.engine);
        }
    }

    /// The last answer was given: what was learned is kept.
    pub(crate) fn finish(&mut self) {
        if let Some(heat) = &mut self.heat {
            heat.save(&self.engine);
        }
    }
}

/// Reads that slow are not what anybody expects.
fn warn_of_slow_drive(drive: &Drive, plan: &Plan) {
    let rate = drive.rates.map(|rates| rates.direct_bytes_s).filter(|&rate| rate < DRIVE_FLOOR_BYTES_S);
    if let (Some(rate), Some(seconds)) = (rate, plan.supply_s()) {
        note(format_args!(
            "note: the model's drive reads {:.0} MB/s, so a token will take {seconds:.1} s or more; 'flash-moe doctor' \
             says what can be done",
            rate / 1e6
        ));
    }
}

/// Watches the memory. Without a thread for it the plan stands as it is.
fn govern(engine: &Engine<Device>, plan: &Plan, is_verbose: bool) -> Option<Governor> {
    let (limit, n_slot_max) = (engine.slot_limit(), plan.stream.n_slot);
    let apply = move |n_slot, reading: &MemoryReading| {
        let was = limit.get();
        limit.set(n_slot);
        if is_verbose {
            let free = Size(u64::try_from(reading.margin_bytes).unwrap_or(0));
            let verb = if n_slot < was { "gives back" } else { "takes again" };
            note(format_args!(
                "memory: {verb} {} expert slots, {n_slot} of {n_slot_max} now; {free} free, {:.0} % stalled",
                n_slot.abs_diff(was),
                100.0 * reading.stall
            ));
        }
    };
    Governor::start(plan.governor_options(), apply).ok()
}
