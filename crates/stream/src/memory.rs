//! What the machine or container really has, and what this process uses.

/// Bytes that can be used without swapping: the least of free physical memory and what every enclosing cgroup
/// (v1 or v2) has left. Page cache that can be dropped counts as free.
pub fn available_bytes() -> u64 {
    panic!("stub")
}

/// Resident bytes of this process now.
pub fn rss_bytes() -> u64 {
    panic!("stub")
}

/// The most resident bytes this process ever had.
pub fn peak_rss_bytes() -> u64 {
    panic!("stub")
}
