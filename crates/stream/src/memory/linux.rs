//! Linux: `/proc` and the cgroup file systems.

use std::fs;
use std::time::Duration;

use super::cgroup::{self, Cgroup, kib_field};

/// What `/proc` says about the groups that this process is in.
fn cgroups() -> Vec<Cgroup> {
    let read = |path| fs::read_to_string(path).unwrap_or_default();
    Cgroup::enclosing(&read("/proc/self/cgroup"), &read("/proc/self/mountinfo"))
}

fn proc_bytes(path: &str, key: &str) -> Option<u64> {
    kib_field(&fs::read_to_string(path).ok()?, key)
}

/// What can be had without swapping; negative where a limit is exceeded.
pub(super) fn margin_bytes() -> i64 {
    let free = proc_bytes("/proc/meminfo", "MemAvailable").unwrap_or(0);
    let free = i64::try_from(free).unwrap_or(i64::MAX);
    cgroups().iter().filter_map(Cgroup::margin_bytes).fold(free, i64::min)
}

/// How long tasks waited for memory, in all: of the own group where that is known, else of the whole machine.
pub(super) fn stalled() -> Option<Duration> {
    cgroups()
        .iter()
        .find_map(Cgroup::stalled)
        .or_else(|| cgroup::stalled(&fs::read_to_string("/proc/pressure/memory").ok()?))
}

pub(super) fn physical_bytes() -> u64 {
    proc_bytes("/proc/meminfo", "MemTotal").unwrap_or(0)
}

pub(super) fn total_bytes() -> u64 {
    cgroups().iter().filter_map(Cgroup::limit_bytes).fold(physical_bytes(), u64::min)
}

/// All swap space, and what of it is in use.
pub(super) fn swap_bytes() -> (u64, u64) {
    let bytes = |key| proc_bytes("/proc/meminfo", key).unwrap_or(0);
    let total = bytes("SwapTotal");
    (total, total.saturating_sub(bytes("SwapFree")))
}

/// The word in brackets of `always [madvise] never`.
pub(super) fn huge_pages() -> Option<String> {
    let text = fs::read_to_string("/sys/kernel/mm/transparent_hugepage/enabled").ok()?;
    Some(text.split_once('[')?.1.split_once(']')?.0.to_owned())
}

pub(super) fn rss_bytes() -> u64 {
    proc_bytes("/proc/self/status", "VmRSS").unwrap_or(0)
}

pub(super) fn peak_rss_bytes() -> u64 {
    proc_bytes("/proc/self/status", "VmHWM").unwrap_or(0)
}
