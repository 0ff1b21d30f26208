//! Decode at a depth, with so many positions in the context already; and a prompt that goes on from there, where a
//! checkpoint was kept.

use std::ops::ControlFlow;
use std::time::Instant;

use model::{Session, TokenModel};
use prefix::{Cache, Checkpoint, Kept};
use serde::Serialize;

use super::series::Series;
use super::{Random, n_decode};
use crate::device::Device;
use crate::flags::BenchFlags;
use crate::load::Loaded;
use crate::meter::Metered;
use crate::output::note;
use crate::prefixes::{self, View};
use crate::size::Size;

/// Repetitions at one depth.
pub(super) struct Depth {
    n_pos: usize,
    series: Series,
    /// A prompt that goes on from a kept checkpoint.
    turns: Vec<Turn>,
    /// Keys and values that the middle one of the measured tokens reads.
    kv_bytes: u64,
}

/// One prompt, in seconds.
#[derive(Clone, Copy)]
struct Turn {
    /// To take up the checkpoint.
    restore_s: f64,
    /// To feed the prompt.
    prompt_s: f64,
}

/// A depth as `--json` of `bench` reports it: medians over the warm repetitions.
#[derive(Serialize)]
pub(super) struct DepthReport {
    depth: usize,
    tok_s: Option<f64>,
    tok_s_min: Option<f64>,
    tok_s_max: Option<f64>,
    ms_per_token: Option<f64>,
    kv_bytes_read_per_token: u64,
    /// Seconds to take up a checkpoint of this depth that is kept in memory; `null`: there is no room for it, or
    /// nothing to keep.
    restore_seconds: Option<f64>,
    /// Seconds to feed the prompt (--prompt-tokens) behind it: with those above the time to the first token.
    prompt_seconds: Option<f64>,
}

/// Measures each of the user's depths. Every repetition begins at the same made-up context.
pub(super) fn measure(loaded: &mut Loaded, flags: &BenchFlags) -> anyhow::Result<Vec<Depth>> {
    let go_on = &mut |_| ControlFlow::Continue(());
    let mut depths = Vec::new();
    for &n_pos in &flags.depth {
        let mut session = loaded.engine.session(loaded.plan.n_ctx);
        loaded.engine.fill_random(&mut session, n_pos, flags.seed)?;
        let start = loaded.engine.state(&session)?.bytes;
        let ids = session.ids().to_vec();
        let (n_vocab, mut random) = (loaded.engine.config().n_vocab, Random(flags.seed));
        let (mut series, mut turns) = (Series::default(), Vec::new());
        let mut cache = prefixes::in_memory(loaded, String::new()).and_then(|mut cache| {
            let checkpoint = Checkpoint { ids: &ids, state: start.clone(), likelihood: 1.0 };
            let view = View { engine: &loaded.engine, session: &mut session };
            (0 < n_pos && cache.keep(checkpoint, &view) == Kept::Stored).then_some(cache)
        });
        for _ in 0..flags.repeat {
            if let Some(cache) = &mut cache {
                turns.push(turn(loaded, cache, &mut session, &ids, flags)?);
            }
            loaded.engine.resume(&mut session, &ids, &start)?;
            let mut metered = Metered::new(&mut loaded.engine, &mut session, 0);
            for i in 0..n_decode(flags) {
                if i == flags.warmup {
                    metered.take();
                }
                metered.feed(&[random.below(n_vocab)], go_on)?;
            }
            let (_, decode) = metered.take();
            series.push(decode);
        }
        let n_seen = n_pos + flags.warmup + flags.tokens.div_ceil(2);
        let kv_bytes = n_seen as u64 * loaded.plan.kv_bytes_per_token();
        depths.push(Depth { n_pos, series, turns, kv_bytes });
    }
    Ok(depths)
}

/// Feeds a prompt behind `ids`, of which `cache` has a checkpoint, in a session that takes the place of `session`.
fn turn(
    loaded: &mut Loaded,
    cache: &mut Cache,
    session: &mut Session<Device>,
    ids: &[u32],
    flags: &BenchFlags,
) -> anyhow::Result<Turn> {
    let (n_vocab, mut random) = (loaded.engine.config().n_vocab, Random(flags.seed));
    let new = (0..flags.prompt_tokens).map(|_| random.below(n_vocab));
    let prompt: Vec<u32> = ids.iter().copied().chain(new).collect();
    *session = loaded.engine.session(loaded.plan.n_ctx);
    let start = Instant::now();
    let found = cache.load(&prompt, 0, &mut View { engine: &loaded.engine, session });
    let restore_s = start.elapsed().as_secs_f64();
    anyhow::ensure!(found.n_reused == ids.len(), "{} of {} tokens were kept", found.n_reused, ids.len());
    let mut metered = Metered::new(&mut loaded.engine, session, prompt.len());
    metered.feed(&prompt[ids.len()..], &mut |_| ControlFlow::Continue(()))?;
    let prompt_s = start.elapsed().as_secs_f64() - restore_s;
    Ok(Turn { restore_s, prompt_s })
}

impl Depth {
    /// The median of the warm repetitions.
    fn median(&self, of: impl Fn(&Turn) -> f64) -> Option<f64> {
        let mut all: Vec<f64> = self.turns[usize::from(self.turns.len() > 1)..].iter().map(of).collect();
        all.sort_by(f64::total_cmp);
        all.get(all.len() / 2).copied()
    }

    pub(super) fn report(&self) -> DepthReport {
        let (spread, tok_s) = (self.series.spread(), self.series.tok_s());
        DepthReport {
            depth: self.n_pos,
            tok_s,
            tok_s_min: spread.map(|(min, _)| min),
            tok_s_max: spread.map(|(_, max)| max),
            ms_per_token: tok_s.map(|tok_s| 1e3 / tok_s),
            kv_bytes_read_per_token: self.kv_bytes,
            restore_seconds: self.median(|turn| turn.restore_s),
            prompt_seconds: self.median(|turn| turn.prompt_s),
        }
    }

    /// For people.
    pub(super) fn show(&self) {
        let report = self.report();
        let DepthReport { depth, tok_s, tok_s_min, tok_s_max, ms_per_token, .. } = report;
        let [tok_s, min, max, ms] =
            [tok_s, tok_s_min, tok_s_max, ms_per_token].map(Option::unwrap_or_default);
        note(format_args!(
            "depth    {depth}: {tok_s:.2} tok/s ({min:.2} to {max:.2}); {ms:.2} ms a token, which reads {} of keys and values",
            Size(self.kv_bytes)
        ));
        if let (Some(restore_s), Some(prompt_s)) = (report.restore_seconds, report.prompt_seconds) {
            note(format_args!(
                "         a prompt that goes on from there: {prompt_s:.2} s, {restore_s:.3} s more to take up what is kept"
            ));
        }
    }
}
