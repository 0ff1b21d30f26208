//! `bench`: how fast prefill and decode are, and how fast this machine lets them be.
//!
//! Prompt and decoded tokens are random ids, so that a run can be repeated exactly and needs no tokenizer. Consecutive
//! words of a text share more experts than random ids do: hit rates of real use are higher.

use std::ops::ControlFlow;
use std::path::PathBuf;
use std::time::Duration;

use kernels::Cpu;
use model::TokenModel;
use serde::Serialize;
use store::{Blob, Store};

use crate::bytes::Census;
use crate::flags::BenchFlags;
use crate::load::{Loaded, load};
use crate::meter::{Cost, Metered};
use crate::output::note;
use crate::plan::{Plan, Work};
use crate::report::{Phases, Setting};
use crate::size::Size;
use crate::{report, target, timing};

/// How long memory is measured.
const RAM_TIME: Duration = Duration::from_millis(500);
/// How long the drive is measured.
const SSD_TIME: Duration = Duration::from_secs(2);

/// `--json` of `bench`.
#[derive(Serialize)]
struct BenchReport {
    #[serde(flatten)]
    setting: Setting,
    phases: Phases,
    limits: Limits,
}

/// What the machine can do, measured in the same run.
#[derive(Clone, Copy, Debug, Serialize)]
struct Limits {
    /// `null` for the demo model, which is not on a drive.
    ssd_gb_s: Option<f64>,
    ram_gb_s: f64,
    /// Decode cannot be faster, with the hit rate of this run.
    bound_tok_s: Option<f64>,
    fraction_of_bound: Option<f64>,
}

pub(crate) fn bench(flags: &BenchFlags) -> anyhow::Result<()> {
    let store = target::open(flags.model.as_deref())?;
    let n_all = flags.prompt_tokens + flags.warmup + flags.tokens;
    let work = Work { n_ctx: Some(n_all), n_feed: Some(flags.prompt_tokens), n_snapshot: 0 };
    let mut loaded = load(&store, &flags.engine, work)?;
    let (prefill, decode) = measure(&mut loaded, flags)?;
    if flags.timing {
        note(timing::table("prefill", &prefill.timing));
        note(timing::table("decode", &decode.timing));
    }
    let setting = Setting::of(&store, &loaded);
    let Loaded { engine, plan, .. } = loaded;
    // The limits are measured with the model's memory given back.
    drop(engine);
    let limits = Limits::measure(&store, &plan, &decode)?;
    describe(&setting, &prefill, &decode, &limits);
    if flags.json {
        report::print(&BenchReport { setting, phases: Phases::of(&prefill, &decode), limits })?;
    }
    Ok(())
}

/// Feeds the prompt, then tokens one by one.
fn measure(loaded: &mut Loaded, flags: &BenchFlags) -> anyhow::Result<(Cost, Cost)> {
    let mut session = loaded.engine.session(loaded.plan.n_ctx);
    let n_vocab = loaded.engine.config().n_vocab;
    let mut random = Random(flags.seed);
    let mut ids = |n: usize| -> Vec<u32> { (0..n).map(|_| random.below(n_vocab)).collect() };
    let (prompt, warmup, tokens) = (ids(flags.prompt_tokens), ids(flags.warmup), ids(flags.tokens));
    let mut metered = Metered::new(&mut loaded.engine, &mut session, prompt.len());
    metered.feed(&prompt, &mut |_| ControlFlow::Continue(()))?;
    for id in warmup {
        metered.feed(&[id], &mut |_| ControlFlow::Continue(()))?;
    }
    metered.decode = Cost::default();
    for id in tokens {
        metered.feed(&[id], &mut |_| ControlFlow::Continue(()))?;
    }
    Ok((metered.prefill, metered.decode))
}

impl Limits {
    fn measure(store: &Store, plan: &Plan, decode: &Cost) -> anyhow::Result<Self> {
        let files: Vec<PathBuf> = (0..store.config().n_layer())
            .filter_map(|layer| match store.expert_blob(layer) {
                Blob::File(path) => Some(path),
                Blob::Memory { .. } => None,
            })
            .collect();
        let census = Census::of(store, plan.n_expert_used);
        let record_bytes = census.expert_bytes / plan.n_record().max(1);
        let ssd = match &files.iter().map(PathBuf::as_path).collect::<Vec<_>>()[..] {
            [] => None,
            files => Some(stream::measure_read_bandwidth(
                files,
                record_bytes as usize,
                plan.stream.tuning,
                SSD_TIME,
            )?),
        };
        let ram = Cpu::new(plan.n_thread).measure_ram_bandwidth(RAM_TIME);
        let touched_bytes = census.dense_bytes_per_token + census.expert_bytes_per_token;
        let read_bytes = decode.read_bytes as f64 / decode.n_token.max(1) as f64;
        let bound = bound_tok_s(read_bytes, ssd, touched_bytes as f64, ram);
        Ok(Self {
            ssd_gb_s: ssd.map(|bytes_s| bytes_s / 1e9),
            ram_gb_s: ram / 1e9,
            bound_tok_s: bound,
            fraction_of_bound: bound.zip(decode.tok_s()).map(|(bound, speed)| speed / bound),
        })
    }
}

/// Tokens a second if reading and computing overlap perfectly; bandwidths in bytes a second.
fn bound_tok_s(read_bytes: f64, ssd: Option<f64>, touched_bytes: f64, ram: f64) -> Option<f64> {
    let read_s = ssd.map_or(0.0, |ssd| read_bytes / ssd);
    let seconds = read_s.max(touched_bytes / ram);
    (seconds > 0.0 && seconds.is_finite()).then(|| 1.0 / seconds)
}

fn describe(setting: &Setting, prefill: &Cost, decode: &Cost, limits: &Limits) {
    let or_none =
        |value: Option<f64>, unit: &str| value.map_or("-".into(), |value| format!("{value:.2} {unit}"));
    for (name, cost) in [("prefill", prefill), ("decode", decode)] {
        note(format_args!(
            "{name:<8} {} tokens in {:.2} s: {}; hits {}; {} read, {} while waiting",
            cost.n_token,
            cost.time.as_secs_f64(),
            or_none(cost.tok_s(), "tok/s"),
            or_none(cost.hit_rate().map(|rate| 100.0 * rate), "%"),
            Size(cost.read_bytes),
            or_none(cost.read_gb_s(), "GB/s"),
        ));
    }
    note(format_args!(
        "limits   ssd {}, ram {:.2} GB/s: {}, of which {} reached",
        or_none(limits.ssd_gb_s, "GB/s"),
        limits.ram_gb_s,
        or_none(limits.bound_tok_s, "tok/s"),
        or_none(limits.fraction_of_bound.map(|fraction| 100.0 * fraction), "%"),
    ));
    note(format_args!("memory   peak {}", Size(setting.peak_rss_bytes)));
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

    /// The fraction that is reported would be of something else.
    #[test]
    fn the_slower_of_drive_and_memory_is_the_bound() {
        assert_eq!(bound_tok_s(4e9, Some(2e9), 10e9, 100e9), Some(0.5));
        assert_eq!(bound_tok_s(0.0, Some(2e9), 10e9, 100e9), Some(10.0));
        assert_eq!(bound_tok_s(4e9, None, 10e9, 100e9), Some(10.0));
        assert_eq!(bound_tok_s(0.0, None, 0.0, 100e9), None);
    }

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
