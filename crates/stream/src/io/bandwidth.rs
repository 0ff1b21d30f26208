//! How fast the drive under the records is.

use std::io;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use quant::Buffer;
use store::{Blob, RECORD_ALIGN};

use crate::Tuning;

use super::{Backing, ReadAt, Reader, read_exact};

/// A file and the places in it that a request may start at: `0, RECORD_ALIGN, … (n_start - 1) · RECORD_ALIGN`.
struct Target {
    source: Box<dyn ReadAt>,
    n_start: u64,
}

/// Bytes a second that the drive under `files` delivers to `tuning.depth` threads reading `request_bytes` (rounded up to
/// [`RECORD_ALIGN`]) at random offsets of the given files, over `duration`. Uncached where the file system allows
/// direct reads; elsewhere the page cache has its part in the result.
///
/// # Errors
/// A file cannot be opened or read, or none is as long as a request.
pub fn measure_read_bandwidth(
    files: &[&Path],
    request_bytes: usize,
    tuning: Tuning,
    duration: Duration,
) -> io::Result<f64> {
    let request_bytes = request_bytes.max(1).next_multiple_of(RECORD_ALIGN);
    let targets = open_targets(files, request_bytes)?;
    let start = Instant::now();
    let failed = AtomicBool::new(false);
    let go_on = || start.elapsed() < duration && !failed.load(Ordering::Relaxed);
    let read_bytes = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..tuning.depth.max(1))
            .map(|idx| {
                let (targets, failed) = (&targets, &failed);
                scope.spawn(move || {
                    let result = read_at_random(targets, request_bytes, idx as u64 + 1, go_on);
                    failed.fetch_or(result.is_err(), Ordering::Relaxed);
                    result
                })
            })
            .collect();
        let results = threads
            .into_iter()
            .map(|t| t.join().unwrap_or_else(|_| Err(io::Error::other("reader panicked"))));
        results.sum::<io::Result<u64>>()
    })?;
    Ok(read_bytes as f64 / start.elapsed().as_secs_f64())
}

fn open_targets(files: &[&Path], request_bytes: usize) -> io::Result<Vec<Target>> {
    let mut targets = Vec::new();
    for path in files {
        if let Some(room) = std::fs::metadata(path)?.len().checked_sub(request_bytes as u64) {
            let source = Reader::open(&Blob::File(path.to_path_buf()), Backing::Direct)?;
            targets.push(Target { source, n_start: room / RECORD_ALIGN as u64 + 1 });
        }
    }
    match targets.is_empty() {
        true => Err(io::Error::other(format!("no file is as long as one request of {request_bytes} bytes"))),
        false => Ok(targets),
    }
}

/// One thread's bytes. At least one request is made, however short the time.
fn read_at_random(
    targets: &[Target],
    request_bytes: usize,
    seed: u64,
    go_on: impl Fn() -> bool,
) -> io::Result<u64> {
    let mut buffer = Buffer::zeroed(request_bytes)?;
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut read_bytes = 0;
    loop {
        let target = &targets[(xorshift(&mut state) % targets.len() as u64) as usize];
        let offset = xorshift(&mut state) % target.n_start * RECORD_ALIGN as u64;
        read_exact(&*target.source, offset, &mut buffer, &mut 0).map_err(|e| {
            io::Error::new(e.kind(), format!("{}: offset {offset}: {e}", target.source.name()))
        })?;
        read_bytes += request_bytes as u64;
        if !go_on() {
            return Ok(read_bytes);
        }
    }
}

fn xorshift(state: &mut u64) -> u64 {
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    *state
}
