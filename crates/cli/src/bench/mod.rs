//! `bench`: how fast prefill and decode are, and how fast this machine lets them be.
//!
//! Prompt and decoded tokens are random ids, so that a run can be repeated exactly and needs no tokenizer. Consecutive
//! words of a text share more experts than random ids do: hit rates of real use are higher.

mod compare;
mod limits;
mod plot;
mod series;
mod svg;

use std::io::Write;
use std::ops::ControlFlow;
use std::path::Path;

use model::TokenModel;
use serde::Serialize;
use stream::CacheMode;

use crate::error::CliError;
use crate::flags::BenchFlags;
use crate::load::{Loaded, load};
use crate::meter::{Counts, Metered};
use crate::outfile::OutFile;
use crate::output::note;
use crate::plan::Work;
use crate::report::Setting;
use crate::size::Size;
use crate::{report, target, timing};
use limits::{Bound, Drive, Machine, Needs};
use series::{Series, SeriesReport};

/// `--json` of `bench`.
#[derive(Serialize)]
struct BenchReport {
    bench_version: u64,
    /// Was the page cache emptied before the cold run? `null` for the demo model.
    pages_dropped: Option<bool>,
    #[serde(flatten)]
    setting: Setting,
    phases: PhaseReports,
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

/// Everything that was measured.
struct Outcome {
    prefill: Series,
    decode: Series,
    machine: Machine,
    prefill_bound: Option<Bound>,
    decode_bound: Option<Bound>,
}

pub(crate) fn bench(flags: &BenchFlags) -> anyhow::Result<()> {
    // Files of the user are looked at before the work, not after it.
    let before = flags.compare.as_deref().map(compare::read).transpose()?;
    let store = target::open(flags.model.as_deref())?;
    let n_all = flags.prompt_tokens + flags.warmup + flags.tokens;
    let work = Work { n_ctx: Some(n_all), n_feed: Some(flags.prompt_tokens), n_snapshot: 0 };
    let mut loaded = load(&store, &flags.engine, work)?;
    let needs = Needs::of(&store, loaded.plan.n_expert_used);
    let drive = Drive::of(&store, &needs, loaded.plan.stream.tuning);
    let measure_drive = || drive.as_ref().map(|drive| drive.measure(flags.measure)).transpose();
    let ssd_before = measure_drive()?;
    let pages_dropped = drive.as_ref().map(Drive::forget_pages).transpose()?;
    if pages_dropped == Some(false) && loaded.plan.stream.mode == CacheMode::Page {
        note("note: this system does not let us empty its page cache: the cold run may be warm");
    }
    let (prefill, decode) = measure(&mut loaded, flags)?;
    let setting = Setting::of(&store, &loaded);
    let Loaded { engine, plan } = loaded;
    // The limits are measured with the model's memory given back.
    drop(engine);
    let ssd = ssd_before.zip(measure_drive()?).map(|(before, after)| [before, after]);
    let machine = Machine::measure(plan.n_thread, ssd, flags.measure);
    let outcome = Outcome::new(prefill, decode, machine, &needs, plan.stream.mode == CacheMode::Page);
    outcome.show(flags, &setting);
    if let Some(path) = &flags.plot {
        outcome.plot(path, &setting)?;
    }
    let report = serde_json::to_value(outcome.report(setting, pages_dropped))?;
    if let Some(before) = before {
        note(compare::table(&before, &report));
    }
    if flags.json {
        report::print(&report)?;
    }
    Ok(())
}

/// Repeats: feeds a prompt, then tokens one by one. The ids go on from one repetition to the next, so that none finds
/// exactly what the one before left.
fn measure(loaded: &mut Loaded, flags: &BenchFlags) -> anyhow::Result<(Series, Series)> {
    let n_vocab = loaded.engine.config().n_vocab;
    let mut random = Random(flags.seed);
    let mut ids = |n: usize| -> Vec<u32> { (0..n).map(|_| random.below(n_vocab)).collect() };
    let (mut prefills, mut decodes) = (Series::default(), Series::default());
    let go_on = &mut |_| ControlFlow::Continue(());
    for _ in 0..flags.repeat {
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
    fn new(prefill: Series, decode: Series, machine: Machine, needs: &Needs, is_paged: bool) -> Self {
        // Prefill wants the logits of its last token, decode those of each.
        let (n_prefill, n_decode) = (prefill.typical().len(), decode.sum().counts.n_token);
        Self {
            prefill_bound: machine.bound(&needs.demand(&prefill.sum(), n_prefill, is_paged)),
            decode_bound: machine.bound(&needs.demand(&decode.sum(), n_decode, is_paged)),
            prefill,
            decode,
            machine,
        }
    }

    fn phases(&self) -> [(&'static str, &Series, Option<Bound>); 2] {
        [("prefill", &self.prefill, self.prefill_bound), ("decode", &self.decode, self.decode_bound)]
    }

    fn report(&self, setting: Setting, pages_dropped: Option<bool>) -> BenchReport {
        let [prefill, decode] = self.phases().map(|(_, series, bound)| series.report(bound));
        let giga = |value: f64| value / 1e9;
        BenchReport {
            bench_version: compare::VERSION,
            pages_dropped,
            setting,
            limits: Limits {
                ssd_gb_s: self.machine.ssd_mean().map(giga),
                ram_gb_s: giga(self.machine.ram),
                bound_tok_s: self.decode_bound.map(|bound| bound.tok_s),
                fraction_of_bound: self.decode.fraction(self.decode_bound),
                ssd_before_gb_s: self.machine.ssd.map(|[before, _]| giga(before)),
                ssd_after_gb_s: self.machine.ssd.map(|[_, after]| giga(after)),
                gflop_s: giga(self.machine.flop),
            },
            phases: PhaseReports { prefill, decode },
        }
    }

    /// Draws a chart into `path`.
    fn plot(&self, path: &Path, setting: &Setting) -> Result<(), CliError> {
        let (prefill, decode) = (self.prefill.sum().timing, self.decode.sum().timing);
        let chart = plot::Chart { title: setting.title(), prefill: &prefill, decode: &decode, hits: None };
        let svg = plot::draw(&chart);
        let write = |mut file: OutFile| file.write_all(svg.as_bytes()).and_then(|()| file.finish());
        OutFile::create(path).and_then(write).map_err(|source| CliError::Io {
            path: path.to_owned(),
            action: "write",
            source,
        })
    }

    /// For people.
    fn show(&self, flags: &BenchFlags, setting: &Setting) {
        for (name, series, bound) in self.phases() {
            if flags.timing {
                note(timing::table(name, &series.sum().timing));
            }
            describe(name, series, bound);
        }
        let drive = self.machine.ssd.map_or("no drive".into(), |[before, after]| {
            let mean = (before + after) / 2.0;
            format!("drive {:.2} GB/s ({:.2} before, {:.2} after)", mean / 1e9, before / 1e9, after / 1e9)
        });
        note(format_args!(
            "limits   {drive}, memory {:.2} GB/s, arithmetic {:.0} GFLOP/s",
            self.machine.ram / 1e9,
            self.machine.flop / 1e9,
        ));
        note(format_args!("memory   peak {}", Size(setting.peak_rss_bytes)));
    }
}

fn describe(name: &str, series: &Series, bound: Option<Bound>) {
    let speed = |tok_s: Option<f64>| tok_s.map_or("-".into(), |tok_s| format!("{tok_s:.2} tok/s"));
    let cold = series.cold().map_or(Counts::default(), |cost| cost.counts);
    let mut line = format!("{name:<8} {} tokens: cold {}", cold.n_token, speed(cold.tok_s()));
    if let Some((min, max)) = series.spread().filter(|_| series.is_warm()) {
        let n = series.typical().len();
        line += &format!("; warm {} (median of {n}, {min:.2} to {max:.2})", speed(series.tok_s()));
    }
    note(line);
    let split = series.split();
    let read = Size(series.bytes_per_token().unwrap_or_default() as u64);
    note(format_args!(
        "         hits {:.2} %; {read} read a token; {:.2} ms a token: {:.2} computing, {:.2} waiting for reads, {:.2} other",
        100.0 * series.median(Counts::hit_rate).unwrap_or_default(),
        split.compute + split.read_wait + split.other,
        split.compute,
        split.read_wait,
        split.other,
    ));
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
