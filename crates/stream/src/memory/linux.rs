//! Linux: `/proc` and the cgroup file systems.

use std::fs;

use super::cgroup::{Cgroup, kib_field};

/// What `/proc` says about the groups that this process is in.
fn cgroups() -> Vec<Cgroup> {
    let read = |path| fs::read_to_string(path).unwrap_or_default();
    Cgroup::enclosing(&read("/proc/self/cgroup"), &read("/proc/self/mountinfo"))
}

fn proc_bytes(path: &str, key: &str) -> Option<u64> {
    kib_field(&fs::read_to_string(path).ok()?, key)
}

pub(super) fn available_bytes() -> u64 {
    let free = proc_bytes("/proc/meminfo", "MemAvailable").unwrap_or(0);
    cgroups().iter().filter_map(Cgroup::headroom_bytes).fold(free, u64::min)
}

pub(super) fn total_bytes() -> u64 {
    let physical = proc_bytes("/proc/meminfo", "MemTotal").unwrap_or(0);
    cgroups().iter().filter_map(Cgroup::limit_bytes).fold(physical, u64::min)
}

pub(super) fn rss_bytes() -> u64 {
    proc_bytes("/proc/self/status", "VmRSS").unwrap_or(0)
}

pub(super) fn peak_rss_bytes() -> u64 {
    proc_bytes("/proc/self/status", "VmHWM").unwrap_or(0)
}
