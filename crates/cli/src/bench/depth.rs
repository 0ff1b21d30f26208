//! Decode at a depth: with so many positions in the context already.

use std::ops::ControlFlow;

use model::TokenModel;
use serde::Serialize;

use super::series::Series;
use super::{Random, n_decode};
use crate::flags::BenchFlags;
use crate::load::Loaded;
use crate::meter::Metered;
use crate::output::note;
use crate::size::Size;

/// Repetitions at one depth.
pub(super) struct Depth {
    n_pos: usize,
    series: Series,
    /// Keys and values that the middle one of the measured tokens reads.
    kv_bytes: u64,
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
}

/// Measures each of the user's depths. Every repetition begins at the same made-up context.
pub(super) fn measure(loaded: &mut Loaded, flags: &BenchFlags) -> anyhow::Result<Vec<Depth>> {
    let go_on = &mut |_| ControlFlow::Continue(());
    let mut depths = Vec::new();
    for &n_pos in &flags.depth {
        let mut session = loaded.engine.session(loaded.plan.n_ctx);
        loaded.engine.fill_random(&mut session, n_pos, flags.seed)?;
        let start = loaded.engine.snapshot(&session)?;
        let (n_vocab, mut random) = (loaded.engine.config().n_vocab, Random(flags.seed));
        let mut series = Series::default();
        for _ in 0..flags.repeat {
            loaded.engine.rewind(&mut session, &start)?;
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
        depths.push(Depth { n_pos, series, kv_bytes });
    }
    Ok(depths)
}

impl Depth {
    pub(super) fn report(&self) -> DepthReport {
        let (spread, tok_s) = (self.series.spread(), self.series.tok_s());
        DepthReport {
            depth: self.n_pos,
            tok_s,
            tok_s_min: spread.map(|(min, _)| min),
            tok_s_max: spread.map(|(_, max)| max),
            ms_per_token: tok_s.map(|tok_s| 1e3 / tok_s),
            kv_bytes_read_per_token: self.kv_bytes,
        }
    }

    /// For people.
    pub(super) fn show(&self) {
        let DepthReport { depth, tok_s, tok_s_min, tok_s_max, ms_per_token, .. } = self.report();
        let [tok_s, min, max, ms] =
            [tok_s, tok_s_min, tok_s_max, ms_per_token].map(Option::unwrap_or_default);
        note(format_args!(
            "depth    {depth}: {tok_s:.2} tok/s ({min:.2} to {max:.2}); {ms:.2} ms a token, which reads {} of keys and values",
            Size(self.kv_bytes)
        ));
    }
}
