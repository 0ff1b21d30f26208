//! How far a long piece of work is: a bar on a terminal, a line now and then elsewhere.

use std::io::IsTerminal;
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressStyle};

use crate::output::note;
use crate::size::Size;

/// Between two lines when there is no terminal.
const LINE_INTERVAL: Duration = Duration::from_secs(5);

/// Work that is shorter shows no bar.
const BAR_DELAY: Duration = Duration::from_millis(300);

/// Bytes done of a known number.
pub(crate) struct Progress {
    what: &'static str,
    total_bytes: u64,
    start: Instant,
    /// Bytes that were there before this run: not part of the speed.
    first_bytes: u64,
    shown: Shown,
}

enum Shown {
    Bar(ProgressBar),
    /// When the last line was printed.
    Lines(Instant),
}

impl Progress {
    /// Starts at `first_bytes` of `total_bytes`.
    pub(crate) fn new(what: &'static str, total_bytes: u64, first_bytes: u64) -> Self {
        let start = Instant::now();
        let shown = if std::io::stderr().is_terminal() {
            let template =
                "{msg} {wide_bar} {binary_bytes} of {binary_total_bytes}, {binary_bytes_per_sec}, {eta} left";
            let style = ProgressStyle::with_template(template).expect("the template is valid");
            let bar =
                ProgressBar::new(total_bytes).with_style(style).with_message(what).with_position(first_bytes);
            bar.reset_eta();
            Shown::Bar(bar)
        } else {
            Shown::Lines(start)
        };
        Self { what, total_bytes, start, first_bytes, shown }
    }

    /// `done_bytes` are done.
    pub(crate) fn at(&mut self, done_bytes: u64) {
        let line = match &mut self.shown {
            Shown::Bar(_) if self.start.elapsed() < BAR_DELAY => return,
            Shown::Bar(bar) => return bar.set_position(done_bytes),
            Shown::Lines(last) if last.elapsed() < LINE_INTERVAL => return,
            Shown::Lines(last) => {
                *last = Instant::now();
                self.line(done_bytes)
            }
        };
        note(line);
    }

    /// All is done; returns bytes a second of this run.
    pub(crate) fn finish(self) -> f64 {
        if let Shown::Bar(bar) = &self.shown {
            bar.finish_and_clear();
        }
        (self.total_bytes - self.first_bytes.min(self.total_bytes)) as f64
            / self.start.elapsed().as_secs_f64().max(1e-9)
    }

    fn line(&self, done_bytes: u64) -> String {
        let new_bytes = done_bytes.saturating_sub(self.first_bytes).max(1);
        let speed = new_bytes as f64 / self.start.elapsed().as_secs_f64().max(1e-9);
        let left = self.total_bytes.saturating_sub(done_bytes) as f64 / speed;
        let (done, total) = (Size(done_bytes), Size(self.total_bytes));
        format!("{}: {done} of {total}, {:.0} MB/s, {left:.0} s left", self.what, speed / 1e6)
    }
}

/// Tokens of a prompt: a bar on a terminal, nothing elsewhere. Gone when dropped.
pub(crate) struct TokenBar(ProgressBar);

impl TokenBar {
    /// Shows that `n_token` are to be done.
    pub(crate) fn new(n_token: usize) -> Self {
        let template = "prompt {wide_bar} {pos} of {len} tokens, {percent} %, {eta} left";
        let style = ProgressStyle::with_template(template).expect("the template is valid");
        Self(ProgressBar::new(n_token as u64).with_style(style))
    }

    /// `n_left` are not done yet.
    pub(crate) fn at_left(&self, n_left: usize) {
        if BAR_DELAY <= self.0.elapsed() {
            self.0.set_position(self.0.length().unwrap_or_default().saturating_sub(n_left as u64));
        }
    }
}

impl Drop for TokenBar {
    fn drop(&mut self) {
        self.0.finish_and_clear();
    }
}
