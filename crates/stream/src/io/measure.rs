//! How fast the drive under the records is, and how it wants to be asked: measured with the readers that the engine
//! uses, on records at random places.

use std::collections::hash_map::RandomState;
use std::hash::{BuildHasher, Hasher};
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use store::{Blob, RECORD_ALIGN};

use super::{Backing, Done, Job, Outcome, Reader, Readers, SlotBuffer, Urgency, slot_buffers};
use crate::{Method, RecordFile, Tuning};

/// Most memory for records under way while tuning.
const TUNE_BYTES_MAX: usize = 128 << 20;

/// A tuning whose worth is this close to the best is as good, if it comes first in the order of preference.
const AS_GOOD: f64 = 0.93;

/// Bytes a second that the drive under `files` delivers to readers with this tuning, reading records of `record_bytes`
/// (rounded up to [`RECORD_ALIGN`]) at random places over `duration`, checksums included. Uncached where the file
/// system allows direct reads; elsewhere the page cache has its part in the result.
///
/// # Errors
/// A file cannot be opened or read, or none is as long as a record.
pub fn measure_read_bandwidth(
    files: &[&Path],
    record_bytes: usize,
    tuning: Tuning,
    duration: Duration,
) -> io::Result<f64> {
    let mut rig = Rig::new(files, record_bytes, tuning, Backing::Direct)?;
    Ok(rig.measure(&mut Vec::new(), duration)?.bytes_s)
}

/// The same through the page cache, as [`crate::CacheMode::Page`] reads, and cold: where the system can, it forgets
/// what it keeps of these files first.
///
/// # Errors
/// As [`measure_read_bandwidth`].
pub fn measure_buffered_bandwidth(
    files: &[&Path],
    record_bytes: usize,
    tuning: Tuning,
    duration: Duration,
) -> io::Result<f64> {
    let mut rig = Rig::new(files, record_bytes, tuning, Backing::Buffered)?;
    files.iter().try_for_each(|path| drop_cached(path))?;
    Ok(rig.measure(&mut Vec::new(), duration)?.bytes_s)
}

#[cfg(any(target_os = "linux", target_os = "android"))]
fn drop_cached(path: &Path) -> io::Result<()> {
    let file = std::fs::File::open(path)?;
    // Advice: some file systems ignore it.
    let _ = rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::DontNeed);
    Ok(())
}

#[cfg(not(any(target_os = "linux", target_os = "android")))]
fn drop_cached(_path: &Path) -> io::Result<()> {
    Ok(())
}

/// What suits a drive.
#[derive(Clone, Debug)]
pub struct Tuned {
    /// The best of the table, or what is preferred and hardly slower.
    pub tuning: Tuning,
    /// What was tried, in the order of preference, and its bytes a second. Not always the fastest is chosen: see
    /// [`tune`].
    pub table: Vec<(Tuning, f64)>,
}

/// Finds how the drive under `files` wants to be asked for records of `record_bytes`. Takes `limit`, or as long as
/// reading a few records takes if the drive is slower than that.
///
/// Reading takes time of the processor's cores, which then do not compute: a rate is worth as much as the share of them
/// that it leaves.
///
/// # Errors
/// As [`measure_read_bandwidth`].
pub fn tune(files: &[&Path], record_bytes: usize, limit: Duration) -> io::Result<Tuned> {
    let start = Instant::now();
    let mut trials = Vec::new();
    for tuning in candidates(record_bytes) {
        let rig = Rig::new(files, record_bytes, tuning, Backing::Direct)?;
        // Where there is no ring the threads would be measured again.
        if rig.readers.method() == tuning.method {
            trials.push(Trial { tuning, rig, speeds: Vec::new() });
        }
    }
    let mut buffers = Vec::new();
    // Drives are noisy, and fast after a pause: all are tried in turns, and the slower half leaves after two of them.
    let mut racing: Vec<usize> = (0..trials.len()).collect();
    for n_turn_left in (1..=N_TURN).rev() {
        let slice = limit.saturating_sub(start.elapsed()) / n_turn_left / racing.len() as u32;
        for &idx in &racing {
            let is_late = start.elapsed() >= limit;
            if !(is_late && trials.iter().any(|trial| !trial.speeds.is_empty())) {
                let speed = trials[idx].rig.measure(&mut buffers, slice)?;
                trials[idx].speeds.push(speed);
            }
        }
        racing.sort_by(|&a, &b| trials[b].worth().total_cmp(&trials[a].worth()));
        if n_turn_left % 2 == 1 {
            racing.truncate((racing.len() / 2).max(N_FINALIST));
        }
    }
    let best = trials[racing[0]].worth();
    // In the order of preference.
    racing.sort_unstable();
    let is_as_good = |&&idx: &&usize| trials[idx].worth() >= AS_GOOD * best;
    let chosen = *racing.iter().find(is_as_good).expect("the best is as good as itself");
    let tried = trials.iter().filter(|trial| !trial.speeds.is_empty());
    Ok(Tuned {
        tuning: trials[chosen].tuning,
        table: tried.map(|trial| (trial.tuning, trial.rate())).collect(),
    })
}

/// Turns of the race, and how many stay in it to the end.
const N_TURN: u32 = 6;
const N_FINALIST: usize = 3;

struct Trial {
    tuning: Tuning,
    rig: Rig,
    speeds: Vec<Speed>,
}

impl Trial {
    /// Bytes a second.
    fn rate(&self) -> f64 {
        self.median(|speed| speed.bytes_s)
    }

    fn worth(&self) -> f64 {
        self.median(Speed::worth)
    }

    /// 0 if nothing was measured.
    fn median(&self, what: impl Fn(&Speed) -> f64) -> f64 {
        let mut all: Vec<f64> = self.speeds.iter().map(what).collect();
        all.sort_by(f64::total_cmp);
        all.get(all.len() / 2).copied().unwrap_or(0.0)
    }
}

/// What reading takes, and what it gives.
struct Speed {
    bytes_s: f64,
    /// Share of the time of all cores, 0 where the system does not tell.
    share_of_cores: f64,
}

impl Speed {
    fn worth(&self) -> f64 {
        self.bytes_s * (1.0 - self.share_of_cores).max(0.0)
    }
}

/// Time of the processor that the program took.
#[cfg(unix)]
fn processor_time() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

#[cfg(not(unix))]
fn processor_time() -> Duration {
    Duration::ZERO
}

/// What is worth a try, in the order of preference: small parts and few of them, so that the records of a layer
/// arrive one after the other and are computed meanwhile. Whole records, several at a time, arrive all at the end.
fn candidates(record_bytes: usize) -> impl Iterator<Item = Tuning> {
    const WHOLE: usize = 1 << 30;
    const MIB: usize = 1 << 20;
    let shapes = [
        (Method::Uring, MIB, 8),
        (Method::Pool, MIB, 8),
        (Method::Uring, MIB / 4, 32),
        (Method::Pool, MIB / 4, 32),
        (Method::Uring, MIB, 16),
        (Method::Pool, MIB, 16),
        (Method::Uring, WHOLE, 4),
        (Method::Pool, WHOLE, 4),
        (Method::Uring, WHOLE, 8),
        (Method::Pool, WHOLE, 8),
    ];
    let all = shapes.map(|(method, request_bytes, depth)| Tuning { method, request_bytes, depth });
    let fits = move |tuning: &Tuning| {
        let is_new = tuning.request_bytes == WHOLE || tuning.request_bytes < record_bytes;
        // The smallest is tried in any case.
        let fits = tuning.depth == 4 || n_record(*tuning, record_bytes) * record_bytes <= TUNE_BYTES_MAX;
        is_new && fits
    };
    all.into_iter().filter(fits)
}

/// Records under way that give the readers something to do at any time.
fn n_record(tuning: Tuning, record_bytes: usize) -> usize {
    let n_part = record_bytes.div_ceil(tuning.request_bytes.max(RECORD_ALIGN));
    tuning.depth.max(1).div_ceil(n_part) + 1
}

/// Readers on files, and what they read: records that nobody knows the checksums of.
struct Rig {
    readers: Readers,
    /// Records of each file.
    n_expert: Vec<usize>, // [n_layer]
    record_bytes: usize,
    n_record: usize,
    /// Differs from run to run, so that no cache on the way knows the places.
    random: u64,
}

impl Rig {
    fn new(files: &[&Path], record_bytes: usize, tuning: Tuning, backing: Backing) -> io::Result<Self> {
        let record_bytes = record_bytes.max(1).next_multiple_of(RECORD_ALIGN);
        let mut layers = Vec::new();
        for path in files {
            let n_expert = (std::fs::metadata(path)?.len() / record_bytes as u64) as usize;
            if n_expert > 0 {
                let source = Reader::open(&Blob::File(path.to_path_buf()), backing)?;
                layers.push(RecordFile {
                    source,
                    stride_bytes: record_bytes,
                    n_expert,
                    xxh3: Some(vec![0; n_expert]),
                });
            }
        }
        if layers.is_empty() {
            return Err(io::Error::other(format!(
                "no file is as long as one request of {record_bytes} bytes"
            )));
        }
        Ok(Self {
            n_expert: layers.iter().map(|layer| layer.n_expert).collect(),
            readers: Readers::lenient(Arc::new(layers), tuning).map_err(io::Error::other)?,
            record_bytes,
            n_record: n_record(tuning, record_bytes),
            random: RandomState::new().build_hasher().finish() | 1,
        })
    }

    /// At least one record is read, however short the time. `buffers` are kept for the next.
    fn measure(&mut self, buffers: &mut Vec<SlotBuffer>, duration: Duration) -> io::Result<Speed> {
        if let Some(n_more @ 1..) = self.n_record.checked_sub(buffers.len()) {
            buffers.extend(slot_buffers(n_more, self.record_bytes)?);
            // The system zeroes memory at its first use: not the drive's time.
            buffers.iter_mut().for_each(|buffer| buffer.fill(0));
        }
        let (start, processor_start) = (Instant::now(), processor_time());
        let (mut jobs, mut done) = (Vec::new(), Vec::new());
        let (mut n_under_way, mut n_read, mut failure) = (0, 0, None);
        loop {
            let goes_on = failure.is_none() && (n_read == 0 || start.elapsed() < duration);
            while goes_on && n_under_way < self.n_record {
                jobs.push(self.random_job(buffers.pop().expect("one for each record under way")));
                n_under_way += 1;
            }
            if n_under_way == 0 {
                break;
            }
            self.readers.submit(&mut jobs);
            self.readers.wait_done(&mut done);
            n_under_way -= done.len();
            for Done { buffer, outcome, .. } in done.drain(..) {
                buffers.push(buffer);
                match outcome {
                    Outcome::Failed(error) => failure = Some(error),
                    _ => n_read += 1,
                }
            }
        }
        match failure {
            Some(error) => Err(io::Error::other(error)),
            None => {
                let took_s = start.elapsed().as_secs_f64();
                let processor_s = (processor_time() - processor_start).as_secs_f64();
                let n_core = std::thread::available_parallelism().map_or(1, usize::from) as f64;
                let bytes_s = (n_read * self.record_bytes) as f64 / took_s;
                Ok(Speed { bytes_s, share_of_cores: processor_s / took_s / n_core })
            }
        }
    }

    fn random_job(&mut self, buffer: SlotBuffer) -> Job {
        let layer = self.random(self.n_expert.len());
        let expert = self.random(self.n_expert[layer]);
        Job { urgency: Urgency::Demand, slot: 0, layer, expert, buffer }
    }

    /// Below `end`; xorshift.
    fn random(&mut self, end: usize) -> usize {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        (self.random % end as u64) as usize
    }
}
