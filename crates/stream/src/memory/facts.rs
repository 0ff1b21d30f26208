//! What there is to say about the machine's memory, for people.

use super::system;

/// The machine's memory, now.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MemoryFacts {
    /// Physical memory.
    pub physical_bytes: u64,
    /// The least limit of the enclosing cgroups, if it is below that.
    pub limit_bytes: Option<u64>,
    /// What can be had without swapping.
    pub available_bytes: u64,
    /// Swap space.
    pub swap_bytes: u64,
    /// Of that, in use.
    pub swap_used_bytes: u64,
    /// When the system makes huge pages by itself: `always`, `madvise` or `never`. Linux only.
    pub huge_pages: Option<String>,
}

impl MemoryFacts {
    /// Asks the system.
    pub fn read() -> Self {
        let physical_bytes = system::physical_bytes();
        let total_bytes = super::total_bytes();
        let (swap_bytes, swap_used_bytes) = system::swap_bytes();
        Self {
            physical_bytes,
            limit_bytes: Some(total_bytes).filter(|&limit| limit < physical_bytes),
            available_bytes: super::available_bytes(),
            swap_bytes,
            swap_used_bytes,
            huge_pages: system::huge_pages(),
        }
    }
}
