//! Repetitions of one phase: medians and spread instead of one lucky or unlucky run.

use serde::Serialize;
use stream::LayerStats;

use super::limits::{Bound, Limit};
use crate::meter::{Cost, Counts, PhaseReport, ratio};

/// All repetitions, in order. The first one began with an empty cache: it is cold, the others are warm.
#[derive(Default)]
pub(crate) struct Series(Vec<Cost>);

/// A phase as `--json` of `bench` reports it: medians over the warm repetitions (over the cold one if it is alone),
/// then what they were made from.
#[derive(Serialize)]
pub(crate) struct SeriesReport {
    #[serde(flatten)]
    median: PhaseReport,
    /// `cold` or `warm`: what the medians are of.
    cache_state: &'static str,
    bytes_per_token: Option<f64>,
    tok_s_min: Option<f64>,
    tok_s_max: Option<f64>,
    /// What the drive delivered, where the system counts it: less than `bytes_read` behind a page cache.
    storage_bytes: Option<f64>,
    ms_per_token: Split,
    hit_rate_by_layer: Vec<Option<f64>>,
    read_ahead: ReadAhead,
    bound_tok_s: Option<f64>,
    bound_by: Option<Limit>,
    fraction_of_bound: Option<f64>,
    samples: Vec<Sample>,
}

/// Where the time of a token goes, in milliseconds.
#[derive(Clone, Copy, Debug, Serialize)]
pub(crate) struct Split {
    pub(crate) compute: f64,
    pub(crate) read_wait: f64,
    pub(crate) other: f64,
}

/// Records that were read before they were asked for, a repetition.
#[derive(Clone, Copy, Debug, Serialize)]
pub(crate) struct ReadAhead {
    pub(crate) records: f64,
    /// Those that were asked for in time.
    pub(crate) used: f64,
}

/// One repetition.
#[derive(Serialize)]
struct Sample {
    cache_state: &'static str,
    #[serde(flatten)]
    phase: PhaseReport,
    wait_seconds: f64,
}

impl Series {
    pub(crate) fn push(&mut self, cost: Cost) {
        self.0.push(cost);
    }

    /// The repetition that began with an empty cache.
    pub(crate) fn cold(&self) -> Option<&Cost> {
        self.0.first()
    }

    /// Those that medians are of.
    pub(crate) fn typical(&self) -> &[Cost] {
        &self.0[usize::from(self.0.len() > 1)..]
    }

    pub(crate) fn is_warm(&self) -> bool {
        self.0.len() > 1
    }

    /// All typical repetitions together.
    pub(crate) fn sum(&self) -> Cost {
        let mut sum = Cost::default();
        self.typical().iter().for_each(|cost| sum.add(cost));
        sum
    }

    /// Median of a figure that all typical repetitions have.
    pub(crate) fn median(&self, of: impl Fn(&Counts) -> Option<f64>) -> Option<f64> {
        median(self.typical().iter().map(|cost| of(&cost.counts)).collect::<Option<Vec<f64>>>()?)
    }

    /// Slowest and fastest typical repetition, tokens a second.
    pub(crate) fn spread(&self) -> Option<(f64, f64)> {
        let speeds = self.typical().iter().map(|cost| cost.counts.tok_s()).collect::<Option<Vec<f64>>>()?;
        let all = |pick: fn(f64, f64) -> f64| speeds.iter().copied().reduce(pick);
        all(f64::min).zip(all(f64::max))
    }

    /// Tokens a second, at the median of the times.
    pub(crate) fn tok_s(&self) -> Option<f64> {
        ratio(self.typical().first()?.counts.n_token as f64, self.seconds()?)
    }

    fn seconds(&self) -> Option<f64> {
        self.median(|counts| Some(counts.time.as_secs_f64()))
    }

    /// Bytes read for a token.
    pub(crate) fn bytes_per_token(&self) -> Option<f64> {
        self.median(|counts| ratio(counts.stream.read_bytes as f64, counts.n_token as f64))
    }

    /// Averages over the typical repetitions, so that the parts add up.
    pub(crate) fn split(&self) -> Split {
        let sum = self.sum();
        let n_token = sum.counts.n_token.max(1) as f64;
        let ms = |time: std::time::Duration| time.as_secs_f64() * 1e3 / n_token;
        let wait = sum.timing.phase(model::Phase::ReadWait);
        let measured = sum.timing.total();
        Split {
            compute: ms(measured.saturating_sub(wait)),
            read_wait: ms(wait),
            other: ms(sum.counts.time.saturating_sub(measured)),
        }
    }

    /// Hit rate of each layer over the typical repetitions.
    pub(crate) fn layer_rates(&self) -> Vec<Option<f64>> {
        let rate = |l: &LayerStats| ratio(l.n_hit as f64, (l.n_hit + l.n_miss) as f64);
        self.sum().layers.iter().map(rate).collect()
    }

    /// Averages of the typical repetitions.
    pub(crate) fn read_ahead(&self) -> ReadAhead {
        let stream = self.sum().counts.stream;
        let mean = |n: u64| n as f64 / self.typical().len().max(1) as f64;
        ReadAhead { records: mean(stream.n_prefetch), used: mean(stream.n_prefetch_hit) }
    }

    pub(crate) fn report(&self, bound: Option<Bound>) -> SeriesReport {
        let state = |is_warm| if is_warm { "warm" } else { "cold" };
        let sample = |(i, cost): (usize, &Cost)| Sample {
            cache_state: state(i > 0),
            phase: cost.counts.report(),
            wait_seconds: cost.counts.stream.wait.as_secs_f64(),
        };
        let spread = self.spread();
        let storage = self.typical().iter().map(|cost| cost.storage_bytes.map(|bytes| bytes as f64));
        SeriesReport {
            median: PhaseReport {
                tokens: self.typical().first().map_or(0, |cost| cost.counts.n_token),
                seconds: self.seconds().unwrap_or_default(),
                tok_s: self.tok_s(),
                hit_rate: self.median(Counts::hit_rate),
                bytes_read: self.median(|c| Some(c.stream.read_bytes as f64)).unwrap_or_default() as u64,
                read_gb_s: self.median(Counts::read_gb_s),
            },
            cache_state: state(self.is_warm()),
            bytes_per_token: self.bytes_per_token(),
            tok_s_min: spread.map(|(min, _)| min),
            tok_s_max: spread.map(|(_, max)| max),
            storage_bytes: storage.collect::<Option<Vec<f64>>>().and_then(median),
            ms_per_token: self.split(),
            hit_rate_by_layer: self.layer_rates(),
            read_ahead: self.read_ahead(),
            bound_tok_s: bound.map(|bound| bound.tok_s),
            bound_by: bound.map(|bound| bound.by),
            fraction_of_bound: self.fraction(bound),
            samples: self.0.iter().enumerate().map(sample).collect(),
        }
    }

    /// How much of the bound the median reaches.
    pub(crate) fn fraction(&self, bound: Option<Bound>) -> Option<f64> {
        Some(self.tok_s()? / bound?.tok_s)
    }
}

/// The middle, or the mean of the two in the middle.
fn median(mut values: Vec<f64>) -> Option<f64> {
    values.sort_by(f64::total_cmp);
    let n = values.len();
    Some((values.get(n.checked_sub(1)? / 2)? + values.get(n / 2)?) / 2.0)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use model::Timing;
    use stream::StreamStats;

    use super::*;

    /// A result would be another one than the middle, or one run would be left out.
    #[test]
    fn medians() {
        let cases: [(&[f64], Option<f64>); 5] = [
            (&[], None),
            (&[3.0], Some(3.0)),
            (&[9.0, 1.0], Some(5.0)),
            (&[9.0, 1.0, 2.0], Some(2.0)),
            (&[4.0, 9.0, 1.0, 2.0], Some(3.0)),
        ];
        for (values, expected) in cases {
            assert_eq!(median(values.to_vec()), expected, "{values:?}");
        }
    }

    fn cost(seconds: u64, n_miss: u64) -> Cost {
        let wait = Duration::from_secs(seconds / 2);
        let stream = StreamStats { n_hit: 10 - n_miss, n_miss, wait, ..Default::default() };
        let mut layers = vec![[Duration::ZERO; model::Phase::ALL.len()]; 2];
        layers[1][model::Phase::ReadWait as usize] = wait;
        layers[0][model::Phase::Experts as usize] = Duration::from_secs(seconds / 4);
        let timing = Timing { layers, ..Default::default() };
        let counts = Counts { n_token: 8, time: Duration::from_secs(seconds), stream };
        Cost { counts, timing, ..Default::default() }
    }

    /// The run with an empty cache would be mixed with the others, or the parts would not be those of a token.
    #[test]
    fn the_cold_run_is_reported_apart() {
        let mut series = Series::default();
        series.push(cost(80, 10));
        assert_eq!((series.tok_s(), series.is_warm()), (Some(0.1), false));
        for seconds in [8, 32, 16] {
            series.push(cost(seconds, 5));
        }
        assert_eq!(series.cold().unwrap().counts.tok_s(), Some(0.1));
        assert_eq!((series.tok_s(), series.spread()), (Some(0.5), Some((0.25, 1.0))));
        let bound = Bound { tok_s: 2.0, by: Limit::Drive };
        let report = serde_json::to_value(series.report(Some(bound))).unwrap();
        let figures = ["/tok_s", "/hit_rate", "/fraction_of_bound", "/ms_per_token/read_wait"];
        let figures = figures.map(|path| report.pointer(path).unwrap().as_f64().unwrap());
        // (4 + 16 + 8) seconds of waiting for 24 tokens.
        assert_eq!(figures, [0.5, 0.5, 0.25, 28e3 / 24.0]);
        let parts = ["/ms_per_token/compute", "/ms_per_token/other"];
        assert_eq!(parts.map(|path| report.pointer(path).unwrap().as_f64().unwrap()), [14e3 / 24.0; 2]);
        let states: Vec<_> =
            report["samples"].as_array().unwrap().iter().map(|s| &s["cache_state"]).collect();
        assert_eq!(states, ["cold", "warm", "warm", "warm"]);
    }
}
