//! How many threads of a pool should compute while other programs compute too.
//!
//! A step ends when its last thread does, so one thread that has to share its core makes all others wait: a pool
//! with one thread more than there are free cores is slower than one with a thread less. Linux tells how long each
//! thread was ready to run and did not (the second figure of `/proc/PID/task/TID/schedstat`). Divided by the time
//! that passed and added up over the threads, that is the number of cores that are missing. Where the system does
//! not tell, all threads compute.

use std::fs::{self, File};
use std::io::Read;
use std::path::{Path, PathBuf};
use std::thread::{self, ThreadId};
use std::time::{Duration, Instant};

/// Steps between two looks at the clock.
const STEPS_PER_CLOCK: u32 = 16;
/// Time over which delays are added up: many turns of a scheduler, which are a few milliseconds. And more of it for
/// each thread: reading its figures takes microseconds.
const WINDOW: Duration = Duration::from_millis(60);
const WINDOW_PER_THREAD: Duration = Duration::from_millis(1);
/// How long threads sit out at first, and at most if the core was still taken whenever one came back.
const PATIENCE: Duration = Duration::from_millis(250);
const PATIENCE_MAX: Duration = Duration::from_secs(4);
/// Windows after a change that say nothing: the system may still be moving threads to other cores.
const SETTLE_WINDOWS: u32 = 2;
/// Windows after a change in which it is found to be a mistake.
const TRIAL_WINDOWS: u32 = 4;
/// Missing cores that are noise.
const NOISE: f64 = 0.1;
/// Of what a thread adds, the share that may be missing before it sits out.
const WORTH: f64 = 0.8;

/// Where the system tells about the calling thread; `None` where it does not.
pub(super) fn own_figures() -> Option<PathBuf> {
    let thread = fs::read_link("/proc/thread-self").ok()?;
    Some(PathBuf::from("/proc").join(thread).join("schedstat"))
}

/// Seconds that a thread was ready to run and did not. Allocates nothing.
fn delay_s(figures: &Path) -> Option<f64> {
    let mut text = [0; 128];
    let n = File::open(figures).and_then(|mut file| file.read(&mut text)).ok()?;
    parse_delay_s(&text[..n])
}

/// From `RUNNING_NS DELAY_NS N_TURN`.
fn parse_delay_s(text: &[u8]) -> Option<f64> {
    let nanoseconds: u64 = str::from_utf8(text).ok()?.split_ascii_whitespace().nth(1)?.parse().ok()?;
    Some(nanoseconds as f64 * 1e-9)
}

/// The threads of a pool, as its caller sees them.
pub(super) struct Crowd {
    n_step: u32,
    since: Instant,
    /// As read last.
    delays_s: Vec<Option<f64>>, // [n_thread], the caller's first
    /// The thread that called last, and where its figures are.
    caller: Option<(ThreadId, Option<PathBuf>)>,
    size: Size,
}

impl Crowd {
    pub(super) fn new(n_thread: usize) -> Self {
        let delays_s = vec![None; n_thread];
        // Most likely the one that will call: then steps allocate nothing.
        let caller = Some((thread::current().id(), own_figures()));
        Self { n_step: 0, since: Instant::now(), delays_s, caller, size: Size::new(n_thread) }
    }

    /// Called before a step: how many threads should compute, the caller included. `figures` says where those of a
    /// worker are.
    pub(super) fn n_thread<'a>(&mut self, figures: impl Fn(usize) -> Option<&'a Path>) -> usize {
        self.n_step = self.n_step.wrapping_add(1);
        if self.n_step.is_multiple_of(STEPS_PER_CLOCK) {
            let passed = self.since.elapsed();
            if WINDOW + WINDOW_PER_THREAD * self.size.n as u32 <= passed {
                let missing = self.missing(passed, figures);
                self.size.judge(passed, missing);
                self.since += passed;
            }
        }
        self.size.n
    }

    /// Cores that were missing since the last call, `passed` ago.
    fn missing<'a>(&mut self, passed: Duration, figures: impl Fn(usize) -> Option<&'a Path>) -> f64 {
        let id = thread::current().id();
        let (_, own) = match self.caller.take() {
            Some(caller) if caller.0 == id => self.caller.insert(caller),
            _ => self.caller.insert((id, own_figures())),
        };
        let own = own.as_deref();
        let mut missing = 0.0;
        for (thread, last) in self.delays_s.iter_mut().enumerate().take(self.size.n) {
            let figures = if thread == 0 { own } else { figures(thread) };
            let Some(now) = figures.and_then(delay_s) else { continue };
            let Some(last) = last.replace(now) else { continue };
            // The caller may be another thread than last time.
            missing += ((now - last) / passed.as_secs_f64()).clamp(0.0, 1.0);
        }
        missing
    }

    /// Lets so many threads compute.
    #[cfg(test)]
    pub(super) fn set(&mut self, n_thread: usize) {
        self.size.n = n_thread;
    }
}

/// The number of threads that compute, and how it came about.
#[derive(Debug)]
struct Size {
    n: usize,
    n_max: usize,
    /// Windows since `n` changed.
    age: u32,
    /// Time until more are tried.
    wait: Duration,
    patience: Duration,
}

impl Size {
    fn new(n_max: usize) -> Self {
        Self { n: n_max, n_max, age: 0, wait: Duration::ZERO, patience: PATIENCE }
    }

    /// After a window of `passed` in which `missing` cores were missing.
    fn judge(&mut self, passed: Duration, missing: f64) {
        self.age = self.age.saturating_add(1);
        self.wait = self.wait.saturating_sub(passed);
        if self.age <= SETTLE_WINDOWS {
            return;
        }
        if self.n > 1 && (WORTH / self.n as f64).max(NOISE) < missing {
            let is_mistake = self.age <= TRIAL_WINDOWS;
            self.patience = if is_mistake { (2 * self.patience).min(PATIENCE_MAX) } else { PATIENCE };
            self.wait = self.patience;
            self.n -= (missing.round() as usize).clamp(1, self.n - 1);
            self.age = 0;
        } else if self.n < self.n_max && self.wait.is_zero() {
            self.n = (self.n + self.n.div_ceil(4)).min(self.n_max);
            self.age = 0;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goes through windows of 60 ms, the `i`-th with `n_other(i)` threads of other programs on `n_core` cores that
    /// are shared out evenly; the number of threads after each.
    fn sizes(n_max: usize, n_core: usize, n_other: impl Fn(usize) -> usize, n_window: usize) -> Vec<usize> {
        let mut size = Size::new(n_max);
        let after = |i| {
            let n_all = (size.n + n_other(i)).max(n_core);
            let missing = size.n as f64 * (1.0 - n_core as f64 / n_all as f64);
            size.judge(Duration::from_millis(60), missing);
            size.n
        };
        (0..n_window).map(after).collect()
    }

    /// Threads would fight for cores, or leave free ones alone.
    #[test]
    fn as_many_compute_as_have_cores() {
        let cases: [(usize, usize, usize, usize); 7] = [
            // threads, cores, threads of others, threads that compute in the end
            (2, 2, 0, 2),
            (2, 2, 1, 1),
            (8, 8, 1, 7),
            (8, 8, 3, 5),
            (64, 2, 0, 2),
            (4, 1, 0, 1),
            (1, 1, 5, 1),
        ];
        for (n_max, n_core, n_other, n) in cases {
            let sizes = sizes(n_max, n_core, |_| n_other, 2000);
            let share = sizes[1000..].iter().filter(|&&size| size == n).count() as f64 / 1000.0;
            assert!(share > 0.85, "{n_max} threads beside {n_other} on {n_core}: {n} in {share} of the time");
        }
    }

    /// A pool would stay small for good after another program ran.
    #[test]
    fn all_come_back_when_the_others_are_gone() {
        for (n_max, n_core, n_other) in [(2, 2, 1), (16, 16, 16), (64, 64, 200)] {
            let sizes = sizes(n_max, n_core, |window| if window < 1000 { n_other } else { 0 }, 1400);
            assert!(sizes[999] < n_max, "{n_max} threads beside {n_other}");
            assert_eq!(sizes[1399], n_max, "beside {n_other}");
        }
    }

    /// Interrupts and short turns of other programs would take threads away.
    #[test]
    fn noise_is_no_crowd() {
        let mut size = Size::new(8);
        (0..1000).for_each(|window| size.judge(WINDOW, if window % 3 == 0 { 0.09 } else { 0.0 }));
        assert_eq!(size.n, 8);
    }

    /// Another figure would be taken for the delay, or a panic come of a file that is none.
    #[test]
    fn figures_are_read() {
        assert_eq!(parse_delay_s(b"327068 2500000000 3\n"), Some(2.5));
        for text in [&b""[..], b"1", b"1 x 2", b"1 -2 3", b"\xff\xff \xff"] {
            assert_eq!(parse_delay_s(text), None, "{text:?}");
        }
        let own = own_figures();
        assert_eq!(own.is_some(), Path::new("/proc/thread-self").exists());
        assert_eq!(delay_s(Path::new("/nowhere")), None);
    }
}
