//! `bench`: how fast prefill and decode are, and how fast this machine lets them be.
//!
//! Prompt and decoded tokens are random ids, so that a run can be repeated exactly and parts no tokenizer. Consecutive
//! words of a text share more experts than random ids do: hit rates of real use are higher.

mod compare;
mod depth;
mod hits;
mod limits;
mod parallel;
mod plot;
mod series;

use std::io::Write;
use std::ops::ControlFlow;
use std::path::Path;

use model::TokenModel;
use serde::Serialize;
use store::Store;
use stream::{CacheMode, RoutingTrace};

use crate::error::CliError;
use crate::flags::{BenchFlags, Cache};
use crate::load::{Experiment, Loaded, load_for};
use crate::meter::{Counts, Metered};
use crate::outfile::OutFile;
use crate::output::note;
use crate::plan::{Plan, Work};
use crate::report::Setting;
use crate::size::Size;
use crate::{report, target, timing};
use depth::{Depth, DepthReport};
use hits::Shape;
use limits::{Bound, Machine, Parts, Probe, Ssd};
use parallel::{Parallel, ParallelReport, n_session_max};
use series::{Series, SeriesReport};

/// `--json` of `bench`.
#[derive(Serialize)]
struct BenchReport<'a> {
    bench_version: u64,
    #[serde(flatten)]
    setting: &'a Setting,
    n_slot: usize,
    /// As `--drive` has it.
    simulated_drive: Option<&'a str>,
    /// Where experts came from, if not from the router.
    trace: Option<&'a Path>,
    /// Was the page cache emptied before the cold run? `null` where nothing is on a drive.
    pages_dropped: Option<bool>,
    phases: PhaseReports,
    /// One for each `--depth`.
    depths: Vec<DepthReport>,
    /// One for each `--parallel`.
    parallel: Vec<ParallelReport>,
    limits: Limits,
}

#[derive(Serialize)]
struct PhaseReports {
    prefill: SeriesReport,
    decode: SeriesReport,
}

/// What the machine can do, measured in the same run. The bound is that of decode; phases have their own.
#[derive(Serialize)]
struct Limits {
    /// Mean of before and after; `null` for the demo model, which is not on a drive.
    ssd_gb_s: Option<f64>,
    ram_gb_s: f64,
    bound_tok_s: Option<f64>,
    fraction_of_bound: Option<f64>,
    ssd_before_gb_s: Option<f64>,
    ssd_after_gb_s: Option<f64>,
    gflop_s: f64,
}

/// What the runs gave.
struct Runs {
    prefill: Series,
    decode: Series,
    depths: Vec<Depth>,
    parallel: Vec<Parallel>,
    setting: Setting,
    plan: Plan,
    parts: Parts,
    /// Of a layer.
    n_expert: usize,
    /// What limits reading.
    ssd: Ssd,
    /// The GPU that computed.
    gpu: Option<usize>,
    pages_dropped: Option<bool>,
    /// Recorded or replayed.
    routing: Option<RoutingTrace>,
}

/// The runs, and what they could have been.
struct Outcome {
    runs: Runs,
    machine: Machine,
    prefill_bound: Option<Bound>,
    decode_bound: Option<Bound>,
}

pub(crate) fn bench(flags: &BenchFlags) -> anyhow::Result<()> {
    refuse_contradictions(flags)?;
    // Files of the user are looked at before the work, not after it.
    let before = flags.compare.as_deref().map(compare::read).transpose()?;
    let trace = flags.trace.as_deref().map(|path| read_trace(path, flags)).transpose()?;
    let store = target::open(flags.model.as_deref())?;
    let n_before = flags.depth.iter().copied().max().unwrap_or(0).saturating_add(flags.prompt_tokens);
    let work = Work {
        n_ctx: Some(n_before.saturating_add(n_decode(flags))),
        n_feed: Some(flags.prompt_tokens),
        keeps_prefixes: !flags.depth.is_empty(),
        n_session: n_session_max(flags).max(1) as u64,
    };
    let outcome = Outcome::of(run(&store, trace, work, flags)?, flags)?;
    outcome.show(flags);
    if let Some((path, routing)) = flags.record_routing.as_ref().zip(outcome.runs.routing.as_ref()) {
        routing.write(path)?;
    }
    if let Some((path, routing)) = flags.plot.as_ref().zip(outcome.runs.routing.as_ref()) {
        outcome.plot(path, routing, flags)?;
    }
    let report = serde_json::to_value(outcome.report(flags))?;
    if let Some(before) = before {
        note(compare::table(&before, &report));
    }
    if flags.json {
        report::print(&report)?;
    }
    Ok(())
}

/// What clap cannot know.
fn refuse_contradictions(flags: &BenchFlags) -> Result<(), CliError> {
    let is_special = flags.assume_resident || flags.drive.is_some();
    if is_special && flags.engine.cache == Cache::Page {
        let why = "--cache page leaves reading to the system: not with --drive or --assume-resident";
        return Err(CliError::Usage(why.into()));
    }
    Ok(())
}

/// Tokens that a repetition decodes.
fn n_decode(flags: &BenchFlags) -> usize {
    flags.warmup + flags.tokens
}

/// A trace that is long enough.
fn read_trace(path: &Path, flags: &BenchFlags) -> anyhow::Result<RoutingTrace> {
    let trace = RoutingTrace::read(path)?;
    let n_alone = flags.prompt_tokens + n_decode(flags);
    let n_together = n_session_max(flags) * n_decode(flags);
    let (n_token, n_needed) = (trace.n_token(), flags.repeat * n_alone.max(n_together));
    if n_token < n_needed {
        let why = format!(
            "{}: the routing of {n_token} tokens, {n_needed} are needed; lower --repeat, --prompt-tokens, --tokens or --parallel",
            path.display()
        );
        return Err(CliError::Usage(why).into());
    }
    Ok(trace)
}

/// Loads, measures and gives the model's memory back.
fn run(store: &Store, trace: Option<RoutingTrace>, work: Work, flags: &BenchFlags) -> anyhow::Result<Runs> {
    let simulated = flags.drive.as_ref().map(|drive| drive.spec);
    let experiment = Experiment { assume_resident: flags.assume_resident, drive: simulated };
    let mut loaded = load_for(store, &flags.engine, work, experiment)?;
    let parts = Parts::of(store, loaded.plan.n_expert_used);
    let is_real = simulated.is_none() && !flags.assume_resident;
    let probe = Probe::of(store, &parts, loaded.plan.stream.tuning).filter(|_| is_real);
    let measure_drive = || probe.as_ref().map(|probe| probe.measure(flags.measure)).transpose();
    let before = measure_drive()?;
    let pages_dropped = probe.as_ref().map(Probe::forget_pages).transpose()?;
    say_what_is_special(flags, pages_dropped, loaded.plan.stream.mode);
    match trace {
        Some(trace) => loaded.engine.replay_routing(trace)?,
        None if is_recorded(flags) => loaded.engine.record_routing(),
        None => {}
    }
    let (prefill, decode) = measure(&mut loaded, flags)?;
    let depths = depth::measure(&mut loaded, flags)?;
    let routing = loaded.engine.take_routing();
    let replayed = routing.as_ref().filter(|_| flags.trace.is_some());
    let parallel = parallel::measure(&mut loaded, replayed, flags)?;
    let setting = Setting::of(store, &loaded);
    let Loaded { engine, plan, .. } = loaded;
    let gpu = engine.backend().gpu().map(|gpu| gpu.adapter().index);
    // The drive is measured with the model's memory given back, and memory after it.
    drop(engine);
    let measured = before.zip(measure_drive()?);
    let ssd = match simulated.and_then(|spec| spec.bytes_per_s) {
        Some(rate) => Ssd::Simulated(rate),
        None => measured.map_or(Ssd::None, |(before, after)| Ssd::Measured { before, after }),
    };
    let n_expert = store.config().n_expert;
    Ok(Runs {
        prefill,
        decode,
        depths,
        parallel,
        setting,
        plan,
        parts,
        n_expert,
        ssd,
        gpu,
        pages_dropped,
        routing,
    })
}

fn is_recorded(flags: &BenchFlags) -> bool {
    flags.plot.is_some() || flags.record_routing.is_some()
}

/// Results of experiments are not to be taken for those of the machine.
fn say_what_is_special(flags: &BenchFlags, pages_dropped: Option<bool>, mode: CacheMode) {
    if let Some(drive) = &flags.drive {
        note(format_args!("note: experts come from a simulated drive: {}", drive.name));
    }
    if flags.assume_resident {
        note(
            "note: experts that are not in memory are taken to be (--assume-resident): the output means nothing",
        );
    }
    if let Some(path) = &flags.trace {
        note(format_args!("note: {} says which experts are used: the output means nothing", path.display()));
    } else if is_recorded(flags) {
        note("note: routing is recorded, for which prefill computes the last layer of all tokens");
    }
    if pages_dropped == Some(false) && mode == CacheMode::Page {
        note("note: this system does not let us empty its page cache: the cold run may be warm");
    }
}

/// Repeats: feeds a prompt, then tokens one by one. The ids go on from one repetition to the next, so that none finds
/// exactly what the one before left.
fn measure(loaded: &mut Loaded, flags: &BenchFlags) -> anyhow::Result<(Series, Series)> {
    let n_vocab = loaded.engine.config().n_vocab;
    let mut random = Random(flags.seed);
    let mut ids = |n: usize| -> Vec<u32> { (0..n).map(|_| random.below(n_vocab)).collect() };
    let (mut prefills, mut decodes) = (Series::default(), Series::default());
    let go_on = &mut |_| ControlFlow::Continue(());
    if flags.timing {
        kernels::Backend::measure(loaded.engine.backend());
    }
    for i in 0..flags.repeat {
        if i == 1 {
            // What a model that fits the device is like from its second answer on.
            loaded.engine.hold_all(&mut |_, _| {})?;
        }
        let (prompt, warmup, tokens) = (ids(flags.prompt_tokens), ids(flags.warmup), ids(flags.tokens));
        let mut session = loaded.engine.session(loaded.plan.n_ctx);
        let mut metered = Metered::new(&mut loaded.engine, &mut session, prompt.len());
        metered.feed(&prompt, go_on)?;
        let (prefill, _) = metered.take();
        for id in warmup {
            metered.feed(&[id], go_on)?;
        }
        metered.take();
        for id in tokens {
            metered.feed(&[id], go_on)?;
        }
        let (_, decode) = metered.take();
        prefills.push(prefill);
        decodes.push(decode);
    }
    Ok((prefills, decodes))
}

impl Outcome {
    fn of(runs: Runs, flags: &BenchFlags) -> anyhow::Result<Self> {
        let machine = Machine::measure(runs.gpu, runs.plan.n_thread, runs.ssd, flags.measure)?;
        let is_paged = runs.plan.stream.mode == CacheMode::Page;
        let bound =
            |series: &Series, n_head| machine.bound(&runs.parts.demand(&series.sum(), n_head, is_paged));
        // Prefill wants the logits of its last token, decode those of each.
        let (n_prefill, n_decode) = (runs.prefill.typical().len(), runs.decode.sum().counts.n_token);
        Ok(Self {
            prefill_bound: bound(&runs.prefill, n_prefill),
            decode_bound: bound(&runs.decode, n_decode),
            machine,
            runs,
        })
    }

    fn phases(&self) -> [(&'static str, &Series, Option<Bound>); 2] {
        let Self { runs, prefill_bound, decode_bound, .. } = self;
        [("prefill", &runs.prefill, *prefill_bound), ("decode", &runs.decode, *decode_bound)]
    }

    fn report<'a>(&'a self, flags: &'a BenchFlags) -> BenchReport<'a> {
        let [prefill, decode] = self.phases().map(|(_, series, bound)| series.report(bound));
        let giga = |value: f64| value / 1e9;
        BenchReport {
            bench_version: compare::VERSION,
            setting: &self.runs.setting,
            n_slot: self.runs.plan.stream.n_slot,
            simulated_drive: flags.drive.as_ref().map(|drive| drive.name.as_str()),
            trace: flags.trace.as_deref(),
            pages_dropped: self.runs.pages_dropped,
            limits: Limits {
                ssd_gb_s: self.machine.ssd.rate().map(giga),
                ram_gb_s: giga(self.machine.ram),
                bound_tok_s: self.decode_bound.map(|bound| bound.tok_s),
                fraction_of_bound: self.runs.decode.fraction(self.decode_bound),
                ssd_before_gb_s: self.machine.ssd.measured().map(|(before, _)| giga(before)),
                ssd_after_gb_s: self.machine.ssd.measured().map(|(_, after)| giga(after)),
                gflop_s: giga(self.machine.flop),
            },
            phases: PhaseReports { prefill, decode },
            depths: self.runs.depths.iter().map(Depth::report).collect(),
            parallel: self.runs.parallel.iter().map(Parallel::report).collect(),
        }
    }

    /// Draws a chart into `path`.
    fn plot(&self, path: &Path, routing: &RoutingTrace, flags: &BenchFlags) -> Result<(), CliError> {
        let Runs { prefill, decode, plan, parts, setting, n_expert, .. } = &self.runs;
        let shape =
            Shape { n_repeat: flags.repeat, n_prompt: flags.prompt_tokens, n_decode: n_decode(flags) };
        let run = (plan.stream.n_slot, decode.median(Counts::kept_rate));
        let svg = plot::draw(&plot::Chart {
            title: setting.title(),
            prefill: &prefill.sum().timing,
            decode: &decode.sum().timing,
            hits: &hits::curve(routing, shape, *n_expert, parts.record_bytes(), run),
        });
        let write = |mut file: OutFile| file.write_all(svg.as_bytes()).and_then(|()| file.finish());
        OutFile::create(path).and_then(write).map_err(|source| CliError::Io {
            path: path.to_owned(),
            action: "write",
            source,
        })
    }

    /// For people.
    fn show(&self, flags: &BenchFlags) {
        for (name, series, bound) in self.phases() {
            if flags.timing {
                note(timing::table(name, &series.sum().timing));
            }
            describe(name, series, bound);
        }
        self.runs.depths.iter().for_each(Depth::show);
        self.runs.parallel.iter().for_each(Parallel::show);
        note(format_args!(
            "limits   {}, memory {:.2} GB/s, arithmetic {:.0} GFLOP/s",
            self.machine.ssd.describe(),
            self.machine.ram / 1e9,
            self.machine.flop / 1e9,
        ));
        note(format_args!("memory   peak {}", Size(self.runs.setting.peak_rss_bytes)));
    }
}

fn describe(name: &str, series: &Series, bound: Option<Bound>) {
    let speed = |tok_s: Option<f64>| tok_s.map_or("-".into(), |tok_s| format!("{tok_s:.2} tok/s"));
    let cold = series.cold().map_or(Counts::default(), |cost| cost.counts);
    let mut line = format!("{name:<8} {} tokens: cold {}", cold.n_token, speed(cold.tok_s()));
    if let Some((min, max)) = series.spread().filter(|_| series.is_warm()) {
        let n = series.typical().len();
        line += &format!("; warm {}", speed(series.tok_s()));
        if n > 1 {
            line += &format!(" (median of {n}, {min:.2} to {max:.2})");
        }
    }
    note(line);
    let split = series.split();
    let read = Size(series.bytes_per_token().unwrap_or_default() as u64);
    let layers: Vec<f64> = series.layer_rates().into_iter().flatten().map(|rate| 100.0 * rate).collect();
    let layer = |pick: fn(f64, f64) -> f64| layers.iter().copied().reduce(pick).unwrap_or_default();
    note(format_args!(
        "         hits {:.2} % (layers {:.1} to {:.1}); {read} read a token; {:.2} ms a token: {:.2} computing, {:.2} waiting for reads, {:.2} other",
        100.0 * series.median(Counts::hit_rate).unwrap_or_default(),
        layer(f64::min),
        layer(f64::max),
        split.compute + split.read_wait + split.other,
        split.compute,
        split.read_wait,
        split.other,
    ));
    let ahead = series.read_ahead();
    if ahead.records > 0.0 {
        let share = 100.0 * ahead.used / ahead.records;
        note(format_args!("         {:.0} experts read ahead, {share:.1} % of them used", ahead.records));
    }
    if let Some((bound, fraction)) = bound.zip(series.fraction(bound)) {
        note(format_args!(
            "         {:.1} % of the {:.2} tok/s that the {} allows",
            100.0 * fraction,
            bound.tok_s,
            bound.by.name()
        ));
    }
}

/// Token ids for a seed: SplitMix64's mixing function over a counter.
struct Random(u64);

impl Random {
    fn below(&mut self, n: usize) -> u32 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        (((z ^ (z >> 31)) as u128 * n as u128) >> 64) as u32
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Runs could not be compared, or ids would leave the vocabulary.
    #[test]
    fn ids_repeat_and_stay_in_the_vocabulary() {
        let ids = |seed| -> Vec<u32> {
            let mut random = Random(seed);
            (0..1000).map(|_| random.below(7)).collect()
        };
        assert_eq!(ids(3), ids(3));
        assert_ne!(ids(3), ids(4));
        assert!((0..7).all(|id| ids(3).contains(&id)) && ids(3).iter().all(|&id| id < 7));
    }
}
