//! What is known of the drive under a model: how it wants to be read, and how fast it is. Measured once, remembered.

use std::collections::BTreeMap;
use std::fs::File as OsFile;
use std::io::{self, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime};

use model::Footprint;
use serde::{Deserialize, Serialize};
use store::{Blob, Manifest, Store};
use stream::{Backing, CacheMode, DriveFacts, Method, Reader, Tuning};

use crate::cachedir::CacheDir;

use crate::output::note;
use crate::predict::Supply;

/// A drive below this makes every model crawl.
pub(crate) const DRIVE_FLOOR_BYTES_S: f64 = 100e6;

/// The file in the cache folder.
const FILE: &str = "drives.json";
/// What was measured is believed for so long: drives fill up, age and get other firmware.
const AGE_MAX: Duration = Duration::from_secs(30 * 24 * 3600);
/// Drives that are remembered: those seen last.
const N_DRIVE_MAX: usize = 32;
/// Experts of a smaller model are read once and stay in memory.
const MODEL_BYTES_MIN: u64 = 1 << 30;
/// How long ways to read are tried, and each other rate is measured.
const TUNE_TIME: Duration = Duration::from_millis(2200);
const RATE_TIME: Duration = Duration::from_millis(400);
/// Reads out of the page cache.
const N_COPY: usize = 8;
/// Bounds of what a remembered tuning may say.
const DEPTH_MAX: usize = 1024;
const REQUEST_ALIGN: usize = 4096;

/// Bytes a second of expert-sized reads at random places.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct DriveRates {
    /// Past the page cache, as slots are filled.
    pub(crate) direct_bytes_s: f64,
    /// Through the page cache, when nothing is in it.
    pub(crate) buffered_bytes_s: f64,
    /// Out of the page cache.
    pub(crate) copy_bytes_s: f64,
}

impl DriveRates {
    /// What an expert costs: in slots it stays, through the page cache it comes every time.
    pub(crate) fn supply(&self, mode: CacheMode) -> Supply {
        match mode {
            CacheMode::Page => Supply { hit_s: 1.0 / self.copy_bytes_s, miss_s: 1.0 / self.buffered_bytes_s },
            CacheMode::Slots | CacheMode::Assumed => Supply { hit_s: 0.0, miss_s: 1.0 / self.direct_bytes_s },
        }
    }
}

/// Where the knowledge comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Origin {
    /// Nothing is known.
    Default,
    /// An earlier run measured it.
    Remembered,
    /// This run did.
    Measured,
}

/// How to read from a drive.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Drive {
    pub(crate) tuning: Tuning,
    pub(crate) rates: Option<DriveRates>,
    pub(crate) origin: Origin,
}

impl Drive {
    /// A drive of which nothing is known.
    pub(crate) fn unknown() -> Self {
        Self { tuning: Tuning::default(), rates: None, origin: Origin::Default }
    }

    /// The drive under `store`, if an earlier run measured it.
    pub(crate) fn known(store: &Store, cache: &CacheDir) -> Self {
        let files = expert_files(store);
        files.first().and_then(|path| Self::recall(cache, &key(path))).unwrap_or(Self::unknown())
    }

    /// The same, but measures it now if nobody did and the model is large enough to care.
    pub(crate) fn find(store: &Store, cache: &CacheDir) -> Self {
        let known = Self::known(store, cache);
        let files = expert_files(store);
        let size = |path: &PathBuf| std::fs::metadata(path).map_or(0, |meta| meta.len());
        if known.rates.is_some() || files.iter().map(size).sum::<u64>() < MODEL_BYTES_MIN {
            return known;
        }
        match measure(&files, record_bytes(store.manifest())) {
            Ok(measured) => {
                measured.remember(cache);
                let rate = measured.drive.rates.map_or(0.0, |rates| rates.direct_bytes_s);
                note(format_args!(
                    "measured the drive once: {:.2} GB/s ('flash-moe doctor' measures again)",
                    rate / 1e9
                ));
                measured.drive
            }
            Err(error) => {
                note(format_args!("note: the drive cannot be measured: {error}"));
                known
            }
        }
    }

    /// The drive called `key`, as an earlier run found it.
    fn recall(cache: &CacheDir, key: &str) -> Option<Self> {
        let known = load(cache).drives.remove(key)?;
        let drive = known.to_drive()?;
        known.is_fresh(now()).then_some(drive)
    }

    /// For later runs.
    pub(crate) fn remember(&self, cache: &CacheDir, key: &str) {
        let Some(rates) = self.rates else { return };
        let mut file = load(cache);
        file.drives.insert(key.to_owned(), Known::new(self.tuning, rates, now()));
        while file.drives.len() > N_DRIVE_MAX {
            let oldest = file.drives.iter().min_by_key(|(_, known)| known.at).map(|(key, _)| key.clone());
            file.drives.remove(&oldest.expect("there are more than none"));
        }
        let json = serde_json::to_vec_pretty(&file).expect("its keys are strings");
        cache.write(FILE, &json);
    }
}

/// A drive that this run measured.
#[derive(Clone, Debug)]
pub(crate) struct Measured {
    pub(crate) drive: Drive,
    /// All ways to read that were tried: bytes a second.
    pub(crate) table: Vec<(Tuning, f64)>,
    pub(crate) facts: Option<DriveFacts>,
    /// Do reads go past the page cache?
    pub(crate) is_direct: bool,
    key: String,
}

impl Measured {
    /// For later runs.
    pub(crate) fn remember(&self, cache: &CacheDir) {
        self.drive.remember(cache, &self.key);
    }
}

/// Measures the drive that `files` are on with reads of `record_bytes`, in about [`TUNE_TIME`] and twice
/// [`RATE_TIME`].
pub(crate) fn measure(files: &[PathBuf], record_bytes: usize) -> io::Result<Measured> {
    let files: Vec<&Path> = files.iter().map(PathBuf::as_path).collect();
    let tuned = stream::tune(&files, record_bytes, TUNE_TIME)?;
    let chosen = tuned.table.iter().find(|(tuning, _)| *tuning == tuned.tuning);
    let rates = DriveRates {
        direct_bytes_s: chosen.expect("what was chosen was tried").1,
        buffered_bytes_s: stream::measure_buffered_bandwidth(&files, record_bytes, tuned.tuning, RATE_TIME)?,
        copy_bytes_s: copy_rate(files[0], record_bytes)?,
    };
    Ok(Measured {
        drive: Drive { tuning: tuned.tuning, rates: Some(rates), origin: Origin::Measured },
        table: tuned.table,
        facts: stream::drive_facts(files[0]),
        is_direct: Reader::open(&Blob::File(files[0].to_owned()), Backing::Direct)?.is_direct(),
        key: key(files[0]),
    })
}

/// The name that a drive is remembered under. Where the system tells none, what was measured is remembered for the
/// folder.
fn key(path: &Path) -> String {
    let folder = || path.parent().unwrap_or(path).display().to_string();
    stream::drive_key(path).unwrap_or_else(folder)
}

/// Bytes a second out of the page cache: the first record, again and again.
fn copy_rate(path: &Path, record_bytes: usize) -> io::Result<f64> {
    let mut file = OsFile::open(path)?;
    let mut record = vec![0; record_bytes];
    let mut once = || {
        file.seek(SeekFrom::Start(0))?;
        let start = Instant::now();
        file.read_exact(&mut record)?;
        io::Result::Ok(start.elapsed())
    };
    // The first one may come from the drive.
    let mut best = once()?.min(once()?);
    for _ in 0..N_COPY {
        best = best.min(once()?);
    }
    Ok(record_bytes as f64 / best.as_secs_f64().max(1e-9))
}

/// Bytes of the largest expert record.
pub(crate) fn record_bytes(manifest: &Manifest) -> usize {
    Footprint::of(manifest).record_bytes as usize
}

/// Files of the experts; none for the demo model, which is not on a drive.
pub(crate) fn expert_files(store: &Store) -> Vec<PathBuf> {
    let mut files: Vec<PathBuf> = (0..store.config().n_layer())
        .flat_map(|layer| match store.expert_blob(layer) {
            Blob::File(path) => vec![path],
            Blob::Memory { .. } => Vec::new(),
            Blob::Pieces(pieces) => pieces
                .files()
                .iter()
                .enumerate()
                .filter(|(idx, _)| pieces.is_used(*idx))
                .map(|(_, path)| path.clone())
                .collect(),
        })
        .collect();
    // Layers of a checkpoint share files.
    files.dedup();
    files
}

/// `drives.json`.
#[derive(Debug, Default, Serialize, Deserialize)]
struct File {
    drives: BTreeMap<String, Known>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Known {
    /// Seconds since 1970.
    at: u64,
    /// Of the program: another one may read in other ways.
    version: String,
    method: String,
    request_bytes: usize,
    depth: usize,
    rates: DriveRates,
}

impl Known {
    fn new(tuning: Tuning, rates: DriveRates, at: u64) -> Self {
        Self {
            at,
            version: env!("CARGO_PKG_VERSION").into(),
            method: method_name(tuning.method).into(),
            request_bytes: tuning.request_bytes,
            depth: tuning.depth,
            rates,
        }
    }

    fn is_fresh(&self, now: u64) -> bool {
        // A date in the future is a clock that was wrong.
        let age = now.checked_sub(self.at).map(Duration::from_secs);
        self.version == env!("CARGO_PKG_VERSION") && age.is_some_and(|age| age < AGE_MAX)
    }

    /// `None` if it makes no sense: anybody may have written the file.
    fn to_drive(&self) -> Option<Drive> {
        let method = [Method::Pool, Method::Uring].into_iter().find(|m| method_name(*m) == self.method)?;
        let (request_bytes, depth) = (self.request_bytes, self.depth);
        let makes_sense = (1..=DEPTH_MAX).contains(&depth)
            && 0 < request_bytes
            && request_bytes.is_multiple_of(REQUEST_ALIGN);
        let DriveRates { direct_bytes_s, buffered_bytes_s, copy_bytes_s } = self.rates;
        let are_rates = [direct_bytes_s, buffered_bytes_s, copy_bytes_s].iter().all(|&rate| rate > 0.0);
        (makes_sense && are_rates).then_some(Drive {
            tuning: Tuning { method, request_bytes, depth },
            rates: Some(self.rates),
            origin: Origin::Remembered,
        })
    }
}

/// The name of a way of reading, in files and for people.
pub(crate) fn method_name(method: Method) -> &'static str {
    match method {
        Method::Pool => "threads",
        Method::Uring => "io_uring",
    }
}

fn load(cache: &CacheDir) -> File {
    let Some(bytes) = cache.read(FILE) else { return File::default() };
    serde_json::from_slice(&bytes).unwrap_or_else(|error| {
        cache.ignore(FILE, error);
        File::default()
    })
}

fn now() -> u64 {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).map_or(0, |time| time.as_secs())
}

#[cfg(test)]
mod tests {
    use super::*;

    const RATES: DriveRates = DriveRates { direct_bytes_s: 2e9, buffered_bytes_s: 1e9, copy_bytes_s: 9e9 };
    const TUNING: Tuning = Tuning { method: Method::Uring, request_bytes: 1 << 20, depth: 16 };

    /// Each start would measure again, or another drive's settings would be used.
    #[test]
    fn what_was_measured_is_remembered() {
        let folder = tempfile::tempdir().unwrap();
        let cache = CacheDir::at(folder.path());
        assert_eq!(Drive::recall(&cache, "a"), None);
        let drive = Drive { tuning: TUNING, rates: Some(RATES), origin: Origin::Measured };
        drive.remember(&cache, "a");
        assert_eq!(Drive::recall(&cache, "b"), None);
        assert_eq!(Drive::recall(&cache, "a"), Some(Drive { origin: Origin::Remembered, ..drive }));
        for other in 0..N_DRIVE_MAX {
            drive.remember(&cache, &other.to_string());
        }
        assert_eq!(load(&cache).drives.len(), N_DRIVE_MAX);
        // Garbage is ignored and replaced.
        cache.write(FILE, b"{\"drives\": [");
        assert_eq!(Drive::recall(&cache, "a"), None);
        drive.remember(&cache, "a");
        assert!(Drive::recall(&cache, "a").is_some());
    }

    /// An old or senseless file would slow reads down or take all memory.
    #[test]
    fn what_is_old_or_senseless_is_not_believed() {
        let known = Known::new(TUNING, RATES, 1_000_000_000);
        assert!(known.is_fresh(1_000_000_000) && known.is_fresh(1_000_000_000 + 29 * 24 * 3600));
        assert!(!known.is_fresh(1_000_000_000 + 31 * 24 * 3600) && !known.is_fresh(999_999_999));
        assert!(!Known { version: "0.0.0".into(), ..known.clone() }.is_fresh(1_000_000_001));
        assert!(known.to_drive().is_some());
        let nan = DriveRates { copy_bytes_s: f64::NAN, ..RATES };
        for senseless in [
            Known { depth: 0, ..known.clone() },
            Known { depth: 1 << 20, ..known.clone() },
            Known { request_bytes: 0, ..known.clone() },
            Known { request_bytes: 1000, ..known.clone() },
            Known { method: "hope".into(), ..known.clone() },
            Known { rates: nan, ..known.clone() },
        ] {
            assert_eq!(senseless.to_drive(), None, "{senseless:?}");
        }
    }
}
