//! Keeps the expert slots within the memory that there is, while the program runs.
//!
//! [`Regulator`] decides, from readings alone; the [`Governor`]'s thread reads, asks it, and tells. What this process
//! holds and what is free add up to a figure that does not change when slots are filled or given back, so its own
//! decisions cannot make it swing.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use super::system;

/// Between two readings, and while little is free: programs take gigabytes within a second.
const INTERVAL: Duration = Duration::from_millis(250);
const INTERVAL_TIGHT: Duration = Duration::from_millis(50);
/// Time without trouble before slots come back, and between two steps in either direction.
const QUIET: Duration = Duration::from_secs(10);
const STEP: Duration = Duration::from_secs(1);
/// Others that take memory faster than this go on for as long as it takes until slots are given back. Slower is noise,
/// and nobody's next gigabyte is believed in before it is taken.
const FALL_BYTES_S_MIN: f64 = 400e6;
const FALL_AHEAD_S: f64 = 0.7;
const FALL_BYTES_MAX: f64 = 1e9;
/// Slots come back in steps of this share, and a shrink goes this much further than it must, so that noise neither
/// shrinks again at once nor grows.
const SLACK: usize = 64;
/// What pressure takes at a time.
const PRESSURE_SHARE: usize = 8;
/// Share of the time that some task waited for memory. Below it is what reclaiming old file pages costs.
const STALL_MAX: f64 = 0.10;
/// Pressure with more than this many floors free is not about us: another group at its own limit stalls too.
const N_FLOOR_CALM: u64 = 4;

/// What the governor may do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GovernorOptions {
    /// Slots of the plan: never more.
    pub n_slot_max: usize,
    /// Never fewer: what a step needs.
    pub n_slot_min: usize,
    /// Bytes of a slot.
    pub slot_bytes: u64,
    /// What the process uses beside slots.
    pub fixed_bytes: u64,
    /// What must stay free.
    pub floor_bytes: u64,
}

impl GovernorOptions {
    /// Is so little free that it may be needed soon?
    fn is_tight(&self, reading: &MemoryReading) -> bool {
        reading.margin_bytes < (N_FLOOR_CALM * self.floor_bytes) as i64
    }
}

/// The system's memory at one moment.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct MemoryReading {
    /// Resident bytes of this process.
    pub rss_bytes: u64,
    /// What there is in all: the least limit.
    pub total_bytes: u64,
    /// What can be had without swapping; negative where a lowered limit is exceeded.
    pub margin_bytes: i64,
    /// Time since the last reading.
    pub elapsed: Duration,
    /// Share of it in which some task waited for memory; 0 where the system does not say.
    pub stall: f64,
}

/// Slots as a function of readings, and of what happened before.
#[derive(Clone, Debug)]
struct Regulator {
    options: GovernorOptions,
    n_slot: usize,
    /// What others held at the last reading: neither this process's nor free.
    others: Option<i128>,
    /// Bytes a second that others take.
    fall_bytes_s: f64,
    /// Since slots were last taken away, or given back.
    calm: Duration,
}

impl Regulator {
    /// Starts with the plan's slots.
    fn new(options: GovernorOptions) -> Self {
        Self { options, n_slot: options.n_slot_max, others: None, fall_bytes_s: 0.0, calm: QUIET }
    }

    /// The slots that there may be from now on: fewer at once when memory is missing, more again slowly when it has
    /// been there for a while.
    fn decide(&mut self, reading: &MemoryReading) -> usize {
        let o = self.options;
        let slack = (o.n_slot_max / SLACK).max(1);
        let held = i128::from(reading.rss_bytes) + i128::from(reading.margin_bytes);
        let for_slots =
            held - self.falls_ahead(reading) - i128::from(o.fixed_bytes) - i128::from(o.floor_bytes);
        let n_room = usize::try_from(for_slots / i128::from(o.slot_bytes.max(1))).unwrap_or(0);
        self.calm = self.calm.saturating_add(reading.elapsed);
        let wanted = if n_room < self.n_slot {
            n_room.saturating_sub(slack)
        } else if STALL_MAX <= reading.stall && o.is_tight(reading) {
            // It takes a moment until memory that was given back is felt.
            let is_due = STEP <= self.calm;
            self.n_slot - if is_due { self.n_slot.div_ceil(PRESSURE_SHARE) } else { 0 }
        } else {
            let is_due = QUIET <= self.calm;
            let n_more = if is_due { slack.min(n_room.saturating_sub(self.n_slot + slack)) } else { 0 };
            // All of the plan comes back where there is room for it, slack or not.
            if is_due && o.n_slot_max <= n_room { self.n_slot + slack } else { self.n_slot + n_more }
        };
        let n_slot = wanted.clamp(o.n_slot_min.min(o.n_slot_max), o.n_slot_max);
        match n_slot.cmp(&self.n_slot) {
            std::cmp::Ordering::Less => self.calm = Duration::ZERO,
            std::cmp::Ordering::Equal => {}
            std::cmp::Ordering::Greater => self.calm = QUIET - STEP,
        }
        self.n_slot = n_slot;
        n_slot
    }

    /// Bytes that others will have taken before slots that are given back now are felt.
    fn falls_ahead(&mut self, reading: &MemoryReading) -> i128 {
        let MemoryReading { rss_bytes, total_bytes, margin_bytes, elapsed, .. } = *reading;
        let others = i128::from(total_bytes) - i128::from(rss_bytes) - i128::from(margin_bytes);
        let fall = self.others.replace(others).map_or(0, |before| others - before).max(0);
        let bytes_s = fall as f64 / elapsed.max(INTERVAL_TIGHT / 2).as_secs_f64();
        self.fall_bytes_s = bytes_s.max(self.fall_bytes_s / 2.0);
        match self.fall_bytes_s {
            bytes_s if bytes_s < FALL_BYTES_S_MIN => 0,
            bytes_s => (bytes_s * FALL_AHEAD_S).min(FALL_BYTES_MAX) as i128,
        }
    }
}

/// A thread that watches; it ends when this is dropped.
pub struct Governor {
    is_over: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Governor {
    /// Calls `apply` with the slots that there may be whenever their number changes, and with the reading that
    /// was the reason.
    ///
    /// # Errors
    /// No thread can be started.
    pub fn start(
        options: GovernorOptions,
        mut apply: impl FnMut(usize, &MemoryReading) + Send + 'static,
    ) -> std::io::Result<Self> {
        let is_over = Arc::new(AtomicBool::new(false));
        let stop = Arc::clone(&is_over);
        let watch = move || {
            let (mut gauge, mut regulator) = (Gauge::new(), Regulator::new(options));
            let (mut last, mut interval) = (options.n_slot_max, INTERVAL);
            while !stop.load(Ordering::Acquire) {
                std::thread::park_timeout(interval);
                let reading = gauge.read();
                interval = if options.is_tight(&reading) { INTERVAL_TIGHT } else { INTERVAL };
                let n_slot = regulator.decide(&reading);
                if n_slot != last {
                    last = n_slot;
                    apply(n_slot, &reading);
                }
            }
        };
        let thread = std::thread::Builder::new().name("governor".into()).spawn(watch)?;
        Ok(Self { is_over, thread: Some(thread) })
    }
}

impl Drop for Governor {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Release);
        if let Some(thread) = self.thread.take() {
            thread.thread().unpark();
            // A panic of the thread has been printed; there is nobody left to warn.
            let _ = thread.join();
        }
    }
}

/// Turns the system's running count of stalls into shares of time.
struct Gauge {
    at: Instant,
    stalled: Duration,
}

impl Gauge {
    fn new() -> Self {
        Self { at: Instant::now(), stalled: system::stalled().unwrap_or_default() }
    }

    fn read(&mut self) -> MemoryReading {
        let now = Self::new();
        let elapsed = now.at.duration_since(self.at);
        let stalled = now.stalled.saturating_sub(self.stalled);
        let stall = stalled.as_secs_f64() / elapsed.max(INTERVAL_TIGHT / 2).as_secs_f64();
        *self = now;
        MemoryReading {
            rss_bytes: super::rss_bytes(),
            total_bytes: system::total_bytes(),
            margin_bytes: system::margin_bytes(),
            elapsed,
            stall,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;
    const GIB: u64 = 1 << 30;

    const OPTIONS: GovernorOptions = GovernorOptions {
        n_slot_max: 1000,
        n_slot_min: 10,
        slot_bytes: 7 * MIB,
        fixed_bytes: 2 * GIB,
        floor_bytes: 256 * MIB,
    };

    /// A machine on which this process fills its slots, 50 a reading, and gives back what it must.
    struct World {
        limit_bytes: u64,
        others_bytes: u64,
        stall: f64,
        n_full: usize,
        regulator: Regulator,
        history: Vec<usize>,
    }

    impl World {
        fn new(limit_bytes: u64) -> Self {
            let regulator = Regulator::new(OPTIONS);
            Self { limit_bytes, others_bytes: 0, stall: 0.0, n_full: 0, regulator, history: Vec::new() }
        }

        fn rss_bytes(&self) -> u64 {
            OPTIONS.fixed_bytes + self.n_full as u64 * OPTIONS.slot_bytes
        }

        fn margin_bytes(&self) -> i64 {
            self.limit_bytes as i64 - self.others_bytes as i64 - self.rss_bytes() as i64
        }

        /// Returns the slots after `seconds`.
        #[track_caller]
        fn run(&mut self, seconds: u32) -> usize {
            (0..seconds * 4).for_each(|_| self.run_once());
            *self.history.last().unwrap()
        }

        #[track_caller]
        fn run_once(&mut self) {
            let reading = MemoryReading {
                rss_bytes: self.rss_bytes(),
                total_bytes: self.limit_bytes,
                margin_bytes: self.margin_bytes(),
                elapsed: INTERVAL,
                stall: self.stall,
            };
            let n_slot = self.regulator.decide(&reading);
            assert!((OPTIONS.n_slot_min..=OPTIONS.n_slot_max).contains(&n_slot));
            self.history.push(n_slot);
            self.n_full = (self.n_full + 50).min(n_slot);
        }

        /// Changes of direction: shrinking after growing, or the other way round.
        fn n_turn(&self) -> usize {
            let steps: Vec<bool> =
                self.history.windows(2).filter(|w| w[0] != w[1]).map(|w| w[0] < w[1]).collect();
            steps.windows(2).filter(|w| w[0] != w[1]).count()
        }
    }

    /// Slots would be taken away although all is well, or the plan would be exceeded.
    #[test]
    fn nothing_happens_when_all_is_well() {
        let mut world = World::new(12 * GIB);
        assert_eq!(world.run(600), 1000);
        assert!(world.history.iter().all(|&n| n == 1000));
    }

    /// The process would be killed when its limit is lowered while it runs.
    #[test]
    fn a_limit_lowered_by_half() {
        let mut world = World::new(10 * GIB);
        world.run(60);
        world.limit_bytes = 5 * GIB;
        assert!(world.margin_bytes() < 0);
        let n_slot = world.run(1);
        assert!(world.margin_bytes() >= OPTIONS.floor_bytes as i64, "{n_slot} slots are too many");
        let settled = world.run(300);
        assert!(settled * 7 > 2600, "{settled} slots leave too much unused");
        assert_eq!(world.run(300), settled, "it does not settle");
        // Lower than what is needed beside slots: as few as can be.
        world.limit_bytes = GIB;
        assert_eq!(world.run(1), OPTIONS.n_slot_min);
    }

    /// Other programs would swap, or their memory would stay unused after they end.
    #[test]
    fn another_process_takes_and_returns() {
        let mut world = World::new(10 * GIB);
        world.run(60);
        world.others_bytes = 4 * GIB;
        let fewer = world.run(1);
        assert!(fewer < 600 && world.margin_bytes() >= OPTIONS.floor_bytes as i64);
        world.others_bytes = 0;
        assert_eq!(world.run(9), fewer, "it comes back before it was quiet for a while");
        let start = world.history.len();
        assert_eq!(world.run(60), 1000);
        assert!(world.history[start..].windows(2).all(|w| w[0] <= w[1] && w[1] - w[0] <= 15));
        assert_eq!(world.n_turn(), 1);
        // As fast as memory can be taken: it must be given back before it is asked for.
        for _ in 0..12 {
            world.others_bytes += 340 * MIB;
            world.run_once();
            assert!(world.margin_bytes() > 0, "{} bytes", world.margin_bytes());
        }
    }

    /// A short stall would cost the cache, or a long one would be ignored.
    #[test]
    fn pressure() {
        let mut world = World::new(9 * GIB + 512 * MIB);
        world.run(60);
        let calm = *world.history.last().unwrap();
        world.stall = 0.5;
        let after_spike = world.run(1);
        assert!(after_spike >= calm - calm / 4 && after_spike < calm, "{calm} -> {after_spike}");
        world.stall = 0.0;
        assert_eq!(world.run(90), calm);
        world.stall = 0.5;
        world.run(20);
        assert!(
            world.margin_bytes() >= (N_FLOOR_CALM * OPTIONS.floor_bytes) as i64,
            "it gave back too little"
        );
        // Another group's stalls, with much memory free.
        let mut world = World::new(20 * GIB);
        world.run(10);
        world.stall = 0.9;
        assert_eq!(world.run(60), 1000);
    }

    /// Noise in the readings would make it shrink and grow for ever.
    #[test]
    fn noise_does_not_swing_it() {
        let mut world = World::new(7 * GIB);
        let mut seed = 0x9e37_79b9_7f4a_7c15_u64;
        for _ in 0..600 {
            seed ^= seed << 13;
            seed ^= seed >> 7;
            seed ^= seed << 17;
            world.others_bytes = seed % (80 * MIB);
            world.run(1);
        }
        assert!(world.n_turn() <= 2, "{} turns", world.n_turn());
    }

    /// Dropping it would wait for ever, or it would not see this machine's memory.
    #[test]
    fn the_thread_acts_and_ends() {
        let (tell, told) = std::sync::mpsc::channel();
        // No machine has room for these.
        let options = GovernorOptions { slot_bytes: 1 << 50, ..OPTIONS };
        let governor = Governor::start(options, move |n_slot, reading| {
            let _ = tell.send((n_slot, *reading));
        });
        let (n_slot, reading) = told.recv().unwrap();
        assert_eq!(n_slot, OPTIONS.n_slot_min);
        assert!(reading.rss_bytes > 0 && reading.stall >= 0.0, "{reading:?}");
        drop(governor.unwrap());
        assert!(told.recv().is_err(), "it acted once and is gone");
    }
}
