//! Page-aligned memory for weights: dense tensors and expert slots.

use std::ops::{Deref, DerefMut};

use memmap2::MmapMut;

/// What is smaller cannot have a large page.
#[cfg(target_os = "linux")]
const HUGE_PAGE_BYTES: usize = 2 << 20;

/// Zeroed, page-aligned bytes that the system hands out lazily, so that direct I/O can read straight into them.
pub struct Buffer {
    map: MmapMut,
    len: usize,
}

impl Buffer {
    /// `len` zero bytes. The memory is only taken when it is first written.
    ///
    /// # Errors
    /// The system refuses the mapping (address space or overcommit limit).
    pub fn zeroed(len: usize) -> std::io::Result<Self> {
        let map = MmapMut::map_anon(len.max(1))?;
        // Weights are read from end to end: with pages of 4 KiB the processor's prefetching stops at each of them.
        // Without large pages it is slower, not wrong.
        #[cfg(target_os = "linux")]
        if HUGE_PAGE_BYTES <= len {
            let _ = map.advise(memmap2::Advice::HugePage);
        }
        Ok(Self { map, len })
    }
}

impl Deref for Buffer {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        &self.map[..self.len]
    }
}

impl DerefMut for Buffer {
    fn deref_mut(&mut self) -> &mut [u8] {
        &mut self.map[..self.len]
    }
}

impl std::fmt::Debug for Buffer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Buffer({} bytes)", self.len)
    }
}
