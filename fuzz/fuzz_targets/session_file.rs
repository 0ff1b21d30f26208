//! A session file, changed somewhere or anything else: refused, and then nothing is left of it, or what was exported.
#![no_main]

use std::fs;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::LazyLock;
use std::time::Duration;

use libfuzzer_sys::fuzz_target;
use prefix::{DiskLimits, Identity, Shape, Timeline, export, import};
use xxhash_rust::xxh3::xxh3_64;

const SHAPE: Shape = Shape { kv_token_bytes: 24, state_bytes: 64, logits_bytes: 8 };
const LIMITS: DiskLimits = DiskLimits {
    size_bytes: 1 << 30,
    daily_write_bytes: 0,
    expiry: Duration::from_secs(1_000_000),
    free_bytes: 0,
};
/// What tar and headers of parts begin at multiples of.
const TAR_BYTES: usize = 512;
const HEADER_BYTES: usize = 16384;

struct Blank;

impl Timeline for Blank {
    fn read_kv(&self, positions: Range<usize>, out: &mut [u8]) -> Result<(), String> {
        out.fill(positions.end as u8);
        Ok(())
    }

    fn write_kv(&mut self, _: Range<usize>, _: &[u8]) -> Result<(), String> {
        Ok(())
    }

    fn resume(&mut self, _: &[u32], _: &[u8]) -> Result<(), String> {
        Ok(())
    }
}

static WHOLE: LazyLock<Vec<u8>> = LazyLock::new(|| {
    let (mut bytes, ids) = (Vec::new(), [3, 1, 4, 1, 5]);
    let identity = Identity { fingerprint: 7, settings: "usual".into(), model: "m".into(), shape: SHAPE };
    export(&mut bytes, &identity, &ids, &[9; SHAPE.state_bytes], &Blank).expect("memory takes it");
    bytes
});

/// A folder of this process.
static PLACE: LazyLock<PathBuf> = LazyLock::new(|| {
    let place = std::env::temp_dir().join(format!("flash-moe-fuzz-{}", std::process::id()));
    fs::create_dir_all(&place).expect("a temporary folder");
    place
});

fuzz_target!(|input: (Vec<(u16, u8, bool)>, u16, &[u8])| {
    let (changes, n_cut, other) = input;
    check(other);
    let mut bytes = WHOLE.clone();
    for (at, change, is_anywhere) in changes {
        // Most of the file is zeros: half of the changes go where something is.
        let at = if is_anywhere {
            at as usize
        } else {
            at as usize / HEADER_BYTES * HEADER_BYTES + at as usize % TAR_BYTES
        };
        if let Some(byte) = bytes.get_mut(at) {
            *byte ^= change;
        }
    }
    check(&bytes);
    repair(&mut bytes);
    check(&bytes);
    bytes.truncate(bytes.len() - (n_cut as usize).min(bytes.len()));
    check(&bytes);
});

/// With the right checksums of tar, else the fuzzer would never get past them.
fn repair(bytes: &mut [u8]) {
    let mut at = 0;
    while let Some(header) = bytes.get_mut(at..at + TAR_BYTES) {
        header[148..156].fill(b' ');
        let sum: u32 = header.iter().map(|byte| u32::from(*byte)).sum();
        header[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
        let size =
            std::str::from_utf8(&header[124..135]).ok().and_then(|text| usize::from_str_radix(text, 8).ok());
        at += TAR_BYTES;
        let part = at..at + HEADER_BYTES;
        if let Some(part) = bytes.get_mut(part).filter(|part| part.starts_with(b"FMPREFIX")) {
            let (body, checksum) = part.split_at_mut(HEADER_BYTES - 8);
            checksum.copy_from_slice(&xxh3_64(body).to_le_bytes());
        }
        let Some(size) = size.filter(|size| 0 < *size) else { return };
        at = at.saturating_add(size.next_multiple_of(TAR_BYTES));
    }
}

fn check(bytes: &[u8]) {
    let (file, root) = (PLACE.join("session"), PLACE.join("cache"));
    fs::write(&file, bytes).expect("a temporary file");
    let imported = import(&file, &root, &LIMITS, "mine", &|_| Ok(()));
    match imported {
        Ok(imported) => {
            assert!(names(&imported.folder).len() == 3);
            fs::remove_dir_all(&root).expect("our own folder");
        }
        Err(_) => assert!(names(&root).is_empty()),
    }
}

fn names(folder: &Path) -> Vec<std::ffi::OsString> {
    let entries = fs::read_dir(folder).into_iter().flatten();
    entries.map(|entry| entry.expect("our own folder").file_name()).collect()
}
