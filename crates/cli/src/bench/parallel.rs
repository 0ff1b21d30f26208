//! Several conversations at a time: what they share, and what that makes of the speed.

use std::time::Instant;

use model::Session;
use serde::Serialize;
use stream::RoutingTrace;

use super::series::Series;
use super::{Random, n_decode};
use crate::device::Device;
use crate::flags::BenchFlags;
use crate::load::Loaded;
use crate::meter::{Cost, Counts, since};
use crate::output::note;
use crate::size::Size;

/// Repetitions with one number of sessions.
pub(super) struct Parallel {
    n_session: usize,
    series: Series,
    n_layer: usize,
    n_expert_used: usize,
}

/// A number of sessions as `--json` of `bench` reports it: medians over the warm repetitions.
#[derive(Serialize)]
pub(super) struct ParallelReport {
    sessions: usize,
    /// Of all sessions together.
    tok_s: Option<f64>,
    tok_s_min: Option<f64>,
    tok_s_max: Option<f64>,
    /// From one token of a session to its next.
    ms_per_step: Option<f64>,
    bytes_per_token: Option<f64>,
    hit_rate: Option<f64>,
    /// Different experts that the tokens of a step use in a layer, and how many they would be if none were shared.
    experts_per_layer: Option<f64>,
    experts_per_layer_unshared: usize,
}

/// Measures each of the user's numbers of sessions. Each session begins with its own first token, and goes on with
/// random ones or, if there is a trace, with its own stretch of that.
pub(super) fn measure(
    loaded: &mut Loaded,
    trace: Option<&RoutingTrace>,
    flags: &BenchFlags,
) -> anyhow::Result<Vec<Parallel>> {
    let mut random = Random(flags.seed);
    let mut all = Vec::new();
    for &n_session in &flags.parallel {
        let mut series = Series::default();
        for repeat in 0..flags.repeat {
            if let Some(trace) = trace {
                let first = repeat * n_session_max(flags) * n_decode(flags);
                let together = together(trace, first, n_session, n_decode(flags));
                loaded.engine.replay_routing(together)?;
            }
            series.push(decode(loaded, n_session, &mut random, flags)?);
            loaded.engine.take_routing();
        }
        let (n_layer, n_expert_used) = (loaded.engine.config().n_layer(), loaded.engine.n_expert_used());
        all.push(Parallel { n_session, series, n_layer, n_expert_used });
    }
    Ok(all)
}

/// Most sessions at a time.
pub(super) fn n_session_max(flags: &BenchFlags) -> usize {
    flags.parallel.iter().copied().max().unwrap_or_default()
}

/// One repetition.
fn decode(
    loaded: &mut Loaded,
    n_session: usize,
    random: &mut Random,
    flags: &BenchFlags,
) -> anyhow::Result<Cost> {
    let (engine, n_ctx) = (&mut loaded.engine, loaded.plan.n_ctx);
    let n_vocab = engine.config().n_vocab;
    let mut sessions: Vec<Session<Device>> = (0..n_session).map(|_| engine.session(n_ctx)).collect();
    let mut batch: Vec<&mut Session<Device>> = sessions.iter_mut().collect();
    let mut step = || -> Vec<u32> { (0..n_session).map(|_| random.below(n_vocab)).collect() };
    for _ in 0..flags.warmup {
        engine.decode(&mut batch, &step())?;
    }
    engine.take_timing();
    let before = engine.stream_stats();
    let mut counts = Counts::default();
    for _ in 0..flags.tokens {
        let ids = step();
        let start = Instant::now();
        engine.decode(&mut batch, &ids)?;
        counts.time += start.elapsed();
    }
    counts.n_token = n_session * flags.tokens;
    counts.stream = since(engine.stream_stats(), before);
    Ok(Cost { counts, timing: engine.take_timing(), ..Cost::default() })
}

/// `n_session` stretches of `n_token` tokens each, from token `first` of a trace on, as they come one beside the other.
fn together(trace: &RoutingTrace, first: usize, n_session: usize, n_token: usize) -> RoutingTrace {
    let row = trace.n_layer * trace.n_expert_used;
    let tokens = (0..n_token).flat_map(|t| (0..n_session).map(move |i| first + i * n_token + t));
    let experts = tokens.flat_map(|token| &trace.experts[token * row..][..row]).copied().collect();
    RoutingTrace { experts, ..*trace }
}

impl Parallel {
    pub(super) fn report(&self) -> ParallelReport {
        let (spread, tok_s) = (self.series.spread(), self.series.tok_s());
        let n_session = self.n_session as f64;
        let per_layer = |counts: &Counts| {
            let n_step = counts.n_token as f64 / n_session;
            Some((counts.stream.n_hit + counts.stream.n_miss) as f64 / (n_step * self.n_layer as f64))
        };
        ParallelReport {
            sessions: self.n_session,
            tok_s,
            tok_s_min: spread.map(|(min, _)| min),
            tok_s_max: spread.map(|(_, max)| max),
            ms_per_step: tok_s.map(|tok_s| 1e3 * n_session / tok_s),
            bytes_per_token: self.series.bytes_per_token(),
            hit_rate: self.series.median(Counts::hit_rate),
            experts_per_layer: self.series.median(per_layer),
            experts_per_layer_unshared: self.n_session * self.n_expert_used,
        }
    }

    /// For people.
    pub(super) fn show(&self) {
        let report = self.report();
        let [tok_s, min, max, ms, bytes, hits, experts] = [
            report.tok_s,
            report.tok_s_min,
            report.tok_s_max,
            report.ms_per_step,
            report.bytes_per_token,
            report.hit_rate,
            report.experts_per_layer,
        ]
        .map(Option::unwrap_or_default);
        let split = self.series.split();
        note(format_args!(
            "parallel {}: {tok_s:.2} tok/s together ({min:.2} to {max:.2}), {ms:.1} ms a step; {} read a token, hits \
             {:.2} %; {experts:.1} different experts a layer of {}; {:.2} ms a token waiting for reads",
            report.sessions,
            Size(bytes as u64),
            100.0 * hits,
            report.experts_per_layer_unshared,
            split.read_wait,
        ));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Sessions would get each other's experts, or all the same, or those of a repetition before.
    #[test]
    fn each_session_has_its_own_stretch() {
        let trace = RoutingTrace { n_layer: 2, n_expert_used: 1, experts: (0..40).collect() };
        let two = together(&trace, 4, 2, 3);
        assert_eq!(two.experts, [8, 9, 14, 15, 10, 11, 16, 17, 12, 13, 18, 19]);
        assert_eq!(together(&trace, 17, 1, 3).experts, (34..40).collect::<Vec<u32>>());
    }
}
