//! What the machine or container really has, and what this process uses.
//!
//! Reads what the system reports, now. How much of it the engine may take is decided elsewhere.

#[cfg(target_os = "linux")]
mod cgroup;
mod facts;
mod governor;
#[cfg(target_os = "linux")]
mod linux;
#[cfg(not(target_os = "linux"))]
mod other;

#[cfg(target_os = "linux")]
use linux as system;
#[cfg(not(target_os = "linux"))]
use other as system;

pub use facts::MemoryFacts;
pub use governor::{Governor, GovernorOptions, MemoryReading};

/// Bytes that can be used without swapping: the least of free physical memory and what every enclosing cgroup
/// (v1 or v2) has left. Page cache that can be dropped counts as free.
pub fn available_bytes() -> u64 {
    u64::try_from(system::margin_bytes()).unwrap_or(0)
}

/// Bytes there are in all: physical memory, or the least limit of the enclosing cgroups if that is lower.
pub fn total_bytes() -> u64 {
    system::total_bytes()
}

/// Resident bytes of this process now.
pub fn rss_bytes() -> u64 {
    system::rss_bytes()
}

/// The most resident bytes this process ever had. Where the system does not keep it, the most that any call of this
/// function or [`rss_bytes`] found.
pub fn peak_rss_bytes() -> u64 {
    system::peak_rss_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Wrong units or a wrong field make the budget absurd: the numbers of this process must fit together.
    #[test]
    fn numbers_fit_together() {
        let mut touched = quant::Buffer::zeroed(64 << 20).unwrap();
        let before = rss_bytes();
        touched.chunks_mut(4096).for_each(|page| page[0] = 1);
        let after = rss_bytes();
        assert!(after >= before + (60 << 20), "64 MiB more: {before} -> {after}");
        // The kernel counts in batches per thread.
        assert!(peak_rss_bytes() + (1 << 20) >= after);
        let (available, total) = (available_bytes(), total_bytes());
        assert!(0 < available && available <= total, "{available} of {total}");
        assert!(after < total && total < 1 << 50);
        assert_eq!(touched[4096], 1);
        let facts = MemoryFacts::read();
        assert!(total <= facts.physical_bytes && facts.swap_used_bytes <= facts.swap_bytes, "{facts:?}");
        assert!(facts.limit_bytes.is_none_or(|limit| limit == total), "{facts:?}");
    }
}
