//! Systems without `/proc`: what the sysinfo crate finds. What it cannot find is 0.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use sysinfo::{ProcessRefreshKind, ProcessesToUpdate, System};

/// The most that was seen: these systems' peaks cannot be read without unsafe code.
static PEAK_RSS_BYTES: AtomicU64 = AtomicU64::new(0);

fn machine_bytes(figure: fn(&System) -> u64) -> u64 {
    let Ok(mut system) = System::new() else { return 0 };
    system.refresh_memory();
    figure(&system)
}

/// What can be had without swapping.
pub(super) fn margin_bytes() -> i64 {
    i64::try_from(machine_bytes(System::available_memory)).unwrap_or(i64::MAX)
}

/// These systems do not count it.
pub(super) fn stalled() -> Option<Duration> {
    None
}

pub(super) fn physical_bytes() -> u64 {
    machine_bytes(System::total_memory)
}

pub(super) fn total_bytes() -> u64 {
    physical_bytes()
}

/// All swap space, and what of it is in use.
pub(super) fn swap_bytes() -> (u64, u64) {
    (machine_bytes(System::total_swap), machine_bytes(System::used_swap))
}

/// Linux has the setting.
pub(super) fn huge_pages() -> Option<String> {
    None
}

pub(super) fn rss_bytes() -> u64 {
    let (Ok(pid), Ok(mut system)) = (sysinfo::get_current_pid(), System::new()) else { return 0 };
    let what = ProcessRefreshKind::nothing().with_memory();
    system.refresh_processes_specifics(ProcessesToUpdate::Some(&[pid]), true, what);
    let bytes = system.process(pid).map_or(0, |process| process.memory());
    PEAK_RSS_BYTES.fetch_max(bytes, Ordering::Relaxed);
    bytes
}

pub(super) fn peak_rss_bytes() -> u64 {
    rss_bytes().max(PEAK_RSS_BYTES.load(Ordering::Relaxed))
}
