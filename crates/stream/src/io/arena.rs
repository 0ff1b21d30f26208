//! The memory of all slots: one mapping, handed out in parts that each have one owner.

use std::io;
use std::ops::{Deref, DerefMut};
use std::sync::Arc;

use memmap2::{MmapOptions, MmapRaw};

/// One slot's bytes, page-aligned, owned by whoever holds it. Takes memory when it is first written.
pub(crate) struct SlotBuffer {
    /// Part `[offset .. offset + len]` of the mapping belongs to this value alone.
    map: Arc<MmapRaw>,
    offset: usize,
    len: usize,
}

// `MmapRaw` is `Send + Sync`, so a `SlotBuffer` is too.

/// `n_slot` slots of `slot_bytes` each, or a little more so that all are aligned. Large pages are asked for where there
/// are any: a direct read pins every page of its slot, and a record spans more small pages than a core's translation
/// cache holds.
///
/// # Errors
/// The system refuses the mapping.
pub(crate) fn slot_buffers(n_slot: usize, slot_bytes: usize) -> io::Result<Vec<SlotBuffer>> {
    let slot_bytes = slot_bytes.next_multiple_of(store::RECORD_ALIGN);
    let bytes = n_slot.checked_mul(slot_bytes).ok_or(io::ErrorKind::OutOfMemory)?;
    let map = MmapOptions::new().len(bytes.max(1)).no_reserve_swap().map_anon()?;
    #[cfg(target_os = "linux")]
    // A kernel without large pages refuses, and small ones do.
    let _ = map.advise(memmap2::Advice::HugePage);
    let map = Arc::new(MmapRaw::from(map));
    let slot = |idx| SlotBuffer { map: Arc::clone(&map), offset: idx * slot_bytes, len: slot_bytes };
    Ok((0..n_slot).map(slot).collect())
}

impl SlotBuffer {
    /// Gives the memory back to the system; the bytes are zero, or what they were, when they are read again.
    pub(crate) fn discard(&mut self) {
        #[cfg(target_os = "linux")]
        let advice = memmap2::UncheckedAdvice::DontNeed;
        #[cfg(target_vendor = "apple")]
        let advice = memmap2::UncheckedAdvice::FreeReusable;
        #[cfg(all(unix, not(any(target_os = "linux", target_vendor = "apple"))))]
        let advice = memmap2::UncheckedAdvice::Free;
        // SAFETY: the range is this buffer's own part of the mapping, nobody holds a reference into it (`&mut self`),
        // and all contents are valid bytes. A refusal keeps the memory.
        #[cfg(unix)]
        let _ = unsafe { self.map.unchecked_advise_range(advice, self.offset, self.len) };
    }
}

impl Deref for SlotBuffer {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        // SAFETY: the part lies in the mapping, which lives as long as `self`; only `self` owns it, and anonymous
        // memory is initialised.
        unsafe { std::slice::from_raw_parts(self.map.as_ptr().add(self.offset), self.len) }
    }
}

impl DerefMut for SlotBuffer {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as in `deref`; `&mut self` is the only way to the part.
        unsafe { std::slice::from_raw_parts_mut(self.map.as_mut_ptr().add(self.offset), self.len) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two slots would share bytes, or a slot that was given back would be lost.
    #[test]
    fn slots_are_apart_and_come_back() {
        let bytes = store::RECORD_ALIGN;
        let mut slots = slot_buffers(3, bytes).unwrap();
        for (idx, slot) in slots.iter_mut().enumerate() {
            assert!(slot.iter().all(|&b| b == 0) && slot.len() == bytes);
            slot.fill(idx as u8 + 1);
        }
        slots[1].discard();
        assert!(slots[0].iter().all(|&b| b == 1) && slots[2].iter().all(|&b| b == 3));
        slots[1].fill(9);
        assert!(slots[1].iter().all(|&b| b == 9));
        assert!(slot_buffers(usize::MAX / bytes, bytes).is_err());
    }
}
