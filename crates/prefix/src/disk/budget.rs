//! Bytes written today, by all programs that share the folder: drives wear out.
//!
//! `written` has one line: the day (UTC, counted from 1970) and the bytes. It is changed under a lock.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use super::place;

const NAME: &str = "written";
/// Longest text of the file.
const TEXT_BYTES_MAX: u64 = 64;
/// Others have the file locked for microseconds.
const N_LOCK_TRIAL: u32 = 200;
const LOCK_PAUSE: Duration = Duration::from_millis(5);

/// The file.
pub(super) struct Budget {
    path: PathBuf,
}

impl Budget {
    pub(super) fn new(root: &Path) -> Self {
        Self { path: root.join(NAME) }
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Bytes written on `day`. A file that is missing or makes no sense counts nothing.
    pub(super) fn written_bytes(&self, day: u64) -> u64 {
        let mut text = String::new();
        let read =
            File::open(&self.path).and_then(|file| file.take(TEXT_BYTES_MAX).read_to_string(&mut text));
        read.ok().and_then(|_| parse(&text, day)).unwrap_or(0)
    }

    /// Takes `bytes` of the `limit_bytes` of `day`; false if so many are not left. Waits for other programs, but not
    /// for ever.
    pub(super) fn take(&self, bytes: u64, limit_bytes: u64, day: u64) -> io::Result<bool> {
        let mut options = place::private();
        let mut file = options.read(true).write(true).create(true).truncate(false).open(&self.path)?;
        lock(&file)?;
        let mut text = String::new();
        // What is not text counts nothing.
        let _ = (&mut file).take(TEXT_BYTES_MAX).read_to_string(&mut text);
        let written_bytes = parse(&text, day).unwrap_or(0);
        let Some(sum_bytes) = written_bytes.checked_add(bytes).filter(|&sum| sum <= limit_bytes) else {
            return Ok(false);
        };
        let text = format!("{day} {sum_bytes:020}\n");
        file.seek(SeekFrom::Start(0))?;
        // As long as what it replaces: whoever is killed here leaves the one or the other.
        file.write_all(text.as_bytes())?;
        file.set_len(text.len() as u64)?;
        Ok(true)
    }
}

/// The day of a time: days begin at midnight UTC.
pub(super) fn day(time: SystemTime) -> u64 {
    time.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_secs() / (24 * 60 * 60)
}

fn parse(text: &str, today: u64) -> Option<u64> {
    let (day, bytes) = text.trim_end().split_once(' ')?;
    (day.parse() == Ok(today)).then(|| bytes.parse().ok()).flatten()
}

fn lock(file: &File) -> io::Result<()> {
    for _ in 0..N_LOCK_TRIAL {
        match file.try_lock() {
            Err(std::fs::TryLockError::WouldBlock) => std::thread::sleep(LOCK_PAUSE),
            // Where locks do not exist (some network folders) we do without.
            Ok(()) | Err(std::fs::TryLockError::Error(_)) => return Ok(()),
        }
    }
    Err(io::Error::new(io::ErrorKind::WouldBlock, "another program keeps it locked"))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A drive would wear out faster than the user allowed, or nothing would ever be written again.
    #[test]
    fn days_have_budgets_of_their_own() {
        let root = tempfile::tempdir().unwrap();
        let (one, other) = (Budget::new(root.path()), Budget::new(root.path()));
        assert!(one.take(60, 100, 7).unwrap());
        assert!(!other.take(41, 100, 7).unwrap());
        assert!(other.take(40, 100, 7).unwrap());
        assert_eq!(one.written_bytes(7), 100);
        assert!(!one.take(u64::MAX, u64::MAX, 7).unwrap(), "a sum beyond all numbers");
        assert!(one.take(100, 100, 8).unwrap());
        assert_eq!((one.written_bytes(7), one.written_bytes(8)), (0, 100));
    }

    /// A damaged file would stop writing, or be taken at its word.
    #[test]
    fn nonsense_counts_nothing() {
        let cases: [&[u8]; 8] =
            [b"", b"7", b"7 ", b"7 x\n", b"7 -1\n", b"x 5\n", b"7 99999999999999999999999\n", &[0xff; 5000]];
        for text in cases {
            let root = tempfile::tempdir().unwrap();
            std::fs::write(root.path().join(NAME), text).unwrap();
            let budget = Budget::new(root.path());
            assert_eq!(budget.written_bytes(7), 0, "{text:?}");
            assert!(budget.take(5, 10, 7).unwrap(), "{text:?}");
            assert_eq!(std::fs::read_to_string(root.path().join(NAME)).unwrap(), format!("7 {:020}\n", 5));
        }
    }
}
