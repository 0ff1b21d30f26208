//! The line under an answer that is being generated: speed, hits, drive, context.

use std::time::{Duration, Instant};

use generate::Channel;

use crate::meter::{Counts, Gauge, ratio};

/// Rates of less time than this jump about.
const INTERVAL: Duration = Duration::from_millis(500);

/// What the line says, and when it says something new.
pub(crate) struct Status {
    gauge: Gauge,
    /// Counters when it last changed; `None` before the first token.
    last: Option<(Instant, Counts)>,
}

impl Status {
    /// Of the model that this gauge belongs to.
    pub(crate) fn new(gauge: Gauge) -> Self {
        Self { gauge, last: None }
    }

    /// The new text, if it is time for one: rates are those since the last one.
    pub(crate) fn update(&mut self, now: Instant, channel: Channel) -> Option<String> {
        let reading = self.gauge.get();
        let Some((then, before)) = self.last else {
            self.last = Some((now, reading.counts));
            return None;
        };
        let recent = reading.counts.since(&before);
        if now.duration_since(then) < INTERVAL || recent.n_token == 0 {
            return None;
        }
        self.last = Some((now, reading.counts));
        Some(line(&recent, reading.pos, reading.n_ctx, channel))
    }
}

fn line(recent: &Counts, pos: usize, n_ctx: usize, channel: Channel) -> String {
    let mut parts = Vec::new();
    if channel == Channel::Thinking {
        parts.push("thinking".to_owned());
    }
    parts.extend(recent.tok_s().map(|speed| format!("{speed:.1} tok/s")));
    parts.extend(recent.hit_rate().map(|rate| format!("{:.0} % in memory", 100.0 * rate)));
    let drive = ratio(recent.stream.read_bytes as f64 / 1e9, recent.time.as_secs_f64());
    parts.extend(drive.map(|rate| format!("drive {rate:.2} GB/s")));
    parts.push(format!("context {pos} of {n_ctx}"));
    parts.join(" | ")
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::rc::Rc;

    use stream::StreamStats;

    use super::*;
    use crate::meter::Reading;

    /// The line would show sums for rates, flicker, or hold still.
    #[test]
    fn rates_are_recent_and_steady() {
        let counts = |n_token, seconds, n_hit, n_miss, read_bytes| Counts {
            n_token,
            time: Duration::from_secs(seconds),
            stream: StreamStats { n_hit, n_miss, read_bytes, ..StreamStats::default() },
        };
        let gauge: Gauge = Rc::new(Cell::new(Reading::default()));
        let mut status = Status::new(gauge.clone());
        let start = Instant::now();
        let mut at = |seconds, counts, channel| {
            gauge.set(Reading { counts, pos: 100 + counts.n_token, n_ctx: 4096 });
            status.update(start + Duration::from_secs(seconds), channel)
        };
        assert_eq!(at(0, counts(1, 1, 0, 100, 1 << 30), Channel::Thinking), None);
        assert_eq!(at(0, counts(2, 1, 50, 100, 1 << 30), Channel::Thinking), None);
        let text = at(2, counts(21, 3, 90, 110, (1 << 30) + 500_000_000), Channel::Thinking);
        assert_eq!(
            text.as_deref(),
            Some("thinking | 10.0 tok/s | 90 % in memory | drive 0.25 GB/s | context 121 of 4096")
        );
        let again = counts(21, 3, 90, 110, (1 << 30) + 500_000_000);
        assert_eq!(at(3, again, Channel::Answer), None);
        let text = at(4, counts(22, 4, 90, 110, (1 << 30) + 500_000_000), Channel::Answer);
        assert_eq!(text.as_deref(), Some("1.0 tok/s | drive 0.00 GB/s | context 122 of 4096"));
    }
}
