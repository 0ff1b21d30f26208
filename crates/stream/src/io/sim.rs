//! A drive that is slower, and worse, than what is under it: bandwidth, latency and faults on command.
//!
//! What goes wrong depends on the seed, the place and how often it was read, never on the time, so a run can be
//! repeated. The bytes come from the source that it wraps.

use std::collections::HashMap;
use std::io;
use std::str::FromStr;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use xxhash_rust::xxh3::xxh3_64_with_seed;

use super::ReadAt;

/// How a simulated drive behaves. The default is that of what is under it.
///
/// Written as a list, every entry of which may be left out:
/// `7GB/s,latency=80us,jitter=20us,seed=1,eio=0.001,wrong=0.001,stall=0.01,stall_for=50ms,lasting=0.5`
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct SimSpec {
    /// Decides which reads go wrong, and by how much they are late.
    pub seed: u64,
    /// Most bytes a second, over all readers together.
    pub bytes_per_s: Option<f64>,
    /// Time of a read beside that of its bytes; reads may overlap in it.
    pub latency: Duration,
    /// Up to this much more, so that reads end in another order than they began.
    pub jitter: Duration,
    /// What goes wrong.
    pub faults: SimFaults,
}

/// Shares of the reads that go wrong, 0 to 1, together at most 1. A read is one call of [`ReadAt::read_at`].
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct SimFaults {
    /// Fewer bytes than asked for.
    pub short: f64,
    /// The drive reports an error.
    pub eio: f64,
    /// One bit is wrong.
    pub wrong: f64,
    /// A signal arrives first.
    pub interrupted: f64,
    /// The file seems to end there.
    pub end: f64,
    /// The read takes [`Self::stall_for`] longer.
    pub stall: f64,
    /// How much longer.
    pub stall_for: Duration,
    /// Share of the places with a fault that have it every time they are read.
    pub lasting: f64,
}

/// What a simulated drive did so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SimCounts {
    /// Reads, those that went wrong included.
    pub n_read: u64,
    /// Bytes delivered.
    pub read_bytes: u64,
    /// Reads that delivered fewer bytes than asked for.
    pub n_short: u64,
    /// Errors of the drive.
    pub n_eio: u64,
    /// Reads with a wrong bit.
    pub n_wrong: u64,
    /// Interrupted reads.
    pub n_interrupted: u64,
    /// Ends of file that are none.
    pub n_end: u64,
    /// Reads that took longer.
    pub n_stall: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fault {
    Short,
    Eio,
    Wrong,
    Interrupted,
    End,
    Stall,
}

const FAULTS: [Fault; 6] =
    [Fault::Short, Fault::Eio, Fault::Wrong, Fault::Interrupted, Fault::End, Fault::Stall];

impl SimFaults {
    fn rate(&self, fault: Fault) -> f64 {
        match fault {
            Fault::Short => self.short,
            Fault::Eio => self.eio,
            Fault::Wrong => self.wrong,
            Fault::Interrupted => self.interrupted,
            Fault::End => self.end,
            Fault::Stall => self.stall,
        }
    }

    fn any(&self) -> bool {
        FAULTS.iter().any(|&fault| self.rate(fault) > 0.0)
    }

    /// The fault at a point of [0, 1).
    fn at(&self, mut point: f64) -> Option<Fault> {
        FAULTS.into_iter().find(|&fault| {
            point -= self.rate(fault);
            point < 0.0
        })
    }
}

/// The simulated drive: all sources that it wraps share its bandwidth.
pub struct SimDrive {
    spec: SimSpec,
    /// When the last byte of all reads so far has passed.
    busy_until: Mutex<Instant>,
    n_read: AtomicU64,
    read_bytes: AtomicU64,
    n_fault: [AtomicU64; FAULTS.len()],
}

impl SimDrive {
    /// A drive that is idle.
    pub fn new(spec: SimSpec) -> Arc<Self> {
        Arc::new(Self {
            spec,
            busy_until: Mutex::new(Instant::now()),
            n_read: AtomicU64::new(0),
            read_bytes: AtomicU64::new(0),
            n_fault: Default::default(),
        })
    }

    /// The same bytes, read through this drive.
    pub fn wrap(self: &Arc<Self>, inner: Box<dyn ReadAt>) -> Box<dyn ReadAt> {
        let id = xxh3_64_with_seed(inner.name().as_bytes(), self.spec.seed);
        Box::new(SimSource { drive: Arc::clone(self), inner, id, n_read: Mutex::default() })
    }

    /// What it did so far.
    pub fn counts(&self) -> SimCounts {
        let n = |fault: Fault| self.n_fault[fault as usize].load(Relaxed);
        SimCounts {
            n_read: self.n_read.load(Relaxed),
            read_bytes: self.read_bytes.load(Relaxed),
            n_short: n(Fault::Short),
            n_eio: n(Fault::Eio),
            n_wrong: n(Fault::Wrong),
            n_interrupted: n(Fault::Interrupted),
            n_end: n(Fault::End),
            n_stall: n(Fault::Stall),
        }
    }

    /// When the last of `bytes` has passed that are asked for now. `noise` is evenly spread over [0, 1).
    fn reserve(&self, bytes: usize, noise: f64) -> Instant {
        let now = Instant::now();
        let transfer = self.spec.bytes_per_s.map_or(0.0, |rate| bytes as f64 / rate);
        let mut busy_until = self.busy_until.lock().unwrap_or_else(PoisonError::into_inner);
        *busy_until = (*busy_until).max(now) + Duration::from_secs_f64(transfer);
        *busy_until + self.spec.latency + self.spec.jitter.mul_f64(noise)
    }
}

struct SimSource {
    drive: Arc<SimDrive>,
    inner: Box<dyn ReadAt>,
    /// Depends on the seed and the name.
    id: u64,
    /// How often each offset was read; only kept if faults depend on it.
    n_read: Mutex<HashMap<u64, u64>>,
}

impl SimSource {
    /// A hash of this very read. Where faults last it is the same every time.
    fn draw(&self, offset: u64, bytes: usize) -> u64 {
        let faults = &self.drive.spec.faults;
        let place = mix(mix(self.id, offset), bytes as u64);
        if !faults.any() || unit(mix(place, 1)) < faults.lasting {
            return place;
        }
        let mut n_read = self.n_read.lock().unwrap_or_else(PoisonError::into_inner);
        let attempt = n_read.entry(offset).or_default();
        *attempt += 1;
        mix(place, *attempt + 1)
    }
}

impl ReadAt for SimSource {
    fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<usize> {
        let SimDrive { spec, n_read, read_bytes, n_fault, .. } = &*self.drive;
        let draw = self.draw(offset, buf.len());
        let fault = spec.faults.at(unit(mix(draw, 2)));
        n_read.fetch_add(1, Relaxed);
        fault.iter().for_each(|&fault| _ = n_fault[fault as usize].fetch_add(1, Relaxed));
        match fault {
            Some(Fault::Interrupted) => return Err(io::ErrorKind::Interrupted.into()),
            Some(Fault::End) => return Ok(0),
            _ => {}
        }
        let wanted = match fault {
            Some(Fault::Short) => 1 + (mix(draw, 3) % buf.len().max(1) as u64) as usize,
            _ => buf.len(),
        };
        let mut end = self.drive.reserve(wanted.min(buf.len()), unit(mix(draw, 4)));
        if fault == Some(Fault::Stall) {
            end += spec.faults.stall_for;
        }
        // The bytes are copied while the simulated drive transfers them.
        let wanted = wanted.min(buf.len());
        let result = match fault {
            Some(Fault::Eio) => Err(io::Error::from_raw_os_error(EIO)),
            _ => self.inner.read_at(offset, &mut buf[..wanted]),
        };
        if let (Some(Fault::Wrong), Ok(n @ 1..)) = (fault, &result) {
            buf[(mix(draw, 5) % *n as u64) as usize] ^= 1 << (draw % 8);
        }
        sleep_until(end);
        if let Ok(n) = &result {
            read_bytes.fetch_add(*n as u64, Relaxed);
        }
        result
    }

    fn name(&self) -> String {
        self.inner.name()
    }

    fn is_direct(&self) -> bool {
        self.inner.is_direct()
    }
}

const EIO: i32 = 5;

fn mix(hash: u64, value: u64) -> u64 {
    xxh3_64_with_seed(&value.to_le_bytes(), hash)
}

/// Evenly spread over [0, 1).
fn unit(hash: u64) -> f64 {
    (hash >> 11) as f64 / (1_u64 << 53) as f64
}

/// Wakes within microseconds of the time: systems let sleepers oversleep by about what is left to spinning here.
fn sleep_until(end: Instant) {
    const SPIN: Duration = Duration::from_micros(70);
    loop {
        let left = end.saturating_duration_since(Instant::now());
        match left.checked_sub(SPIN) {
            _ if left.is_zero() => return,
            Some(long) => std::thread::sleep(long),
            None => std::hint::spin_loop(),
        }
    }
}

/// What is wrong with the text of a [`SimSpec`].
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SimSpecError {
    /// No such entry.
    #[error(
        "`{0}` is none of RATE (as 7GB/s), seed=N, latency=TIME, jitter=TIME, stall_for=TIME, and \
         short=, eio=, wrong=, interrupted=, end=, stall=, lasting= with a share of 0 to 1"
    )]
    Unknown(String),
    /// A value that its entry cannot have.
    #[error("`{entry}`: {wanted}")]
    Value {
        /// The entry, as written.
        entry: String,
        /// What it should be.
        wanted: &'static str,
    },
    /// More faults than reads.
    #[error("the shares of reads that go wrong add up to more than 1")]
    Shares,
}

impl FromStr for SimSpec {
    type Err = SimSpecError;

    fn from_str(text: &str) -> Result<Self, SimSpecError> {
        let mut spec = Self::default();
        for entry in text.split(',').map(str::trim).filter(|entry| !entry.is_empty()) {
            spec.set(entry)?;
        }
        let total: f64 = FAULTS.iter().map(|&fault| spec.faults.rate(fault)).sum();
        if total > 1.0 { Err(SimSpecError::Shares) } else { Ok(spec) }
    }
}

impl SimSpec {
    fn set(&mut self, entry: &str) -> Result<(), SimSpecError> {
        let refuse = |wanted| SimSpecError::Value { entry: entry.into(), wanted };
        let time =
            |text| parse_duration(text).ok_or(refuse("a time as 80us, 1.5ms or 2s is wanted, up to an hour"));
        let share = |text: &str| {
            let share = text.parse().ok().filter(|share| (0.0..=1.0).contains(share));
            share.ok_or(refuse("a share of 0 to 1 is wanted"))
        };
        let Some((name, value)) = entry.split_once('=') else {
            let rate = entry.strip_suffix("/s").ok_or_else(|| SimSpecError::Unknown(entry.into()))?;
            let rate = parse_rate(rate).ok_or(refuse("a rate as 7GB/s, 850MB/s or 3.5GiB/s is wanted"))?;
            self.bytes_per_s = Some(rate);
            return Ok(());
        };
        match name {
            "seed" => self.seed = value.parse().map_err(|_| refuse("a whole number is wanted"))?,
            "latency" => self.latency = time(value)?,
            "jitter" => self.jitter = time(value)?,
            "stall_for" => self.faults.stall_for = time(value)?,
            "short" => self.faults.short = share(value)?,
            "eio" => self.faults.eio = share(value)?,
            "wrong" => self.faults.wrong = share(value)?,
            "interrupted" => self.faults.interrupted = share(value)?,
            "end" => self.faults.end = share(value)?,
            "stall" => self.faults.stall = share(value)?,
            "lasting" => self.faults.lasting = share(value)?,
            _ => return Err(SimSpecError::Unknown(entry.into())),
        }
        Ok(())
    }
}

/// A number with one of these units behind it. Longer units come before those that they end with.
fn parse_unit(text: &str, units: &[(&str, f64)]) -> Option<f64> {
    let (number, factor) =
        units.iter().find_map(|&(unit, factor)| Some((text.strip_suffix(unit)?, factor)))?;
    let value = number.trim().parse::<f64>().ok()? * factor;
    value.is_finite().then_some(value)
}

fn parse_duration(text: &str) -> Option<Duration> {
    let seconds = parse_unit(text, &[("us", 1e-6), ("ms", 1e-3), ("s", 1.0)])?;
    (0.0..=3600.0).contains(&seconds).then(|| Duration::from_secs_f64(seconds))
}

fn parse_rate(text: &str) -> Option<f64> {
    let units = [
        ("GiB", 1_073_741_824.0),
        ("MiB", 1_048_576.0),
        ("KiB", 1024.0),
        ("GB", 1e9),
        ("MB", 1e6),
        ("kB", 1e3),
    ];
    // Slower than that a read would take hours.
    parse_unit(text, &units).filter(|rate| (1e3..=1e13).contains(rate))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Reads that share a drive must share its bandwidth, and overlap in latency only.
    #[test]
    fn one_timeline() {
        let spec = "1MB/s,latency=5ms".parse().unwrap();
        let drive = SimDrive::new(spec);
        let before = Instant::now();
        let ends = [1000, 3000, 2000].map(|bytes| drive.reserve(bytes, 0.0));
        assert!(ends[0] >= before + Duration::from_millis(6));
        let millis = Duration::from_millis;
        // Later only if this test was held up between the calls.
        assert!(ends[1] - ends[0] >= millis(3) && ends[2] - ends[1] >= millis(2), "{ends:?}");
        let late = drive.reserve(0, 0.5);
        assert!(late >= ends[2]);
    }

    /// Sleeping too short makes a slow drive fast.
    #[test]
    fn sleeps_until_the_time() {
        for micros in [0, 10, 69, 71, 200] {
            let end = Instant::now() + Duration::from_micros(micros);
            sleep_until(end);
            assert!(Instant::now() >= end);
        }
    }
}
