//! The memory of all slots: one mapping, handed out in parts that each have one owner.

use std::io;
use std::ops::{Deref, DerefMut};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;

use memmap2::{MmapOptions, MmapRaw};

/// A slot's bytes that somebody else made: a device that reads records where they are.
pub type SlotMemory = Box<dyn DerefMut<Target = [u8]> + Send + Sync>;

/// One slot's bytes, page-aligned, owned by whoever holds it.
pub(crate) enum SlotBuffer {
    /// A part of a mapping.
    Map(MapPart),
    /// Taken from the system as long as it lives.
    Given(SlotMemory),
}

/// Takes memory when it is first written, or before that by [`Prefault`].
pub(crate) struct MapPart {
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
    let part = |idx| MapPart { map: Arc::clone(&map), offset: idx * slot_bytes, len: slot_bytes };
    Ok((0..n_slot).map(|idx| SlotBuffer::Map(part(idx))).collect())
}

/// Bytes that take memory in one call.
const PIECE_BYTES: usize = 32 << 20;
/// Less is taken in no time when it is written.
const PREFAULT_BYTES_MIN: usize = 2 * PIECE_BYTES;

/// A thread that makes all slots of an arena take memory, the first ones first. The system zeroes memory at its first
/// use; if that is a read from the drive into it, the read and everything that waits for it takes that much longer.
/// Ends when this is dropped.
pub(crate) struct Prefault {
    is_over: Arc<AtomicBool>,
    thread: Option<JoinHandle<io::Result<()>>>,
}

impl Prefault {
    /// Of all slots that one [`slot_buffers`] made; `None` where it is not worth it, or cannot be done.
    pub(crate) fn start(slots: &[SlotBuffer]) -> Option<Self> {
        let bytes: usize = slots.iter().map(|slot| slot.len()).sum();
        if bytes < PREFAULT_BYTES_MIN || !cfg!(target_os = "linux") {
            return None;
        }
        let SlotBuffer::Map(MapPart { map, .. }) = slots.first()? else { return None };
        let map = Arc::clone(map);
        let is_over = Arc::new(AtomicBool::new(false));
        let stop = Arc::clone(&is_over);
        let take = move || {
            for start in (0..bytes).step_by(PIECE_BYTES) {
                if stop.load(Ordering::Relaxed) {
                    break;
                }
                // A system that cannot, or has no memory left, leaves it to the first write.
                take_memory(&map, start, PIECE_BYTES.min(bytes - start))?;
            }
            Ok(())
        };
        let thread = std::thread::Builder::new().name("slot-memory".into()).spawn(take).ok();
        thread.map(|thread| Self { is_over, thread: Some(thread) })
    }

    /// Waits for the end.
    fn join(&mut self) -> io::Result<()> {
        self.thread.take().map_or(Ok(()), |thread| thread.join().expect("nothing panics in it"))
    }
}

impl Drop for Prefault {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Relaxed);
        // What failed will be seen at the first write.
        let _ = self.join();
    }
}

/// Makes a part of the mapping take memory and changes none of its bytes.
fn take_memory(map: &MmapRaw, start: usize, len: usize) -> io::Result<()> {
    #[cfg(target_os = "linux")]
    return map.advise_range(memmap2::Advice::PopulateWrite, start, len);
    #[cfg(not(target_os = "linux"))]
    return Err(io::Error::other(format!("no way to take {len} bytes from {start} of {:?}", map.as_ptr())));
}

impl SlotBuffer {
    /// Gives the memory back to the system, if it was not given; the bytes are zero, or what they were, when they are
    /// read again.
    pub(crate) fn discard(&mut self) {
        #[cfg(target_os = "linux")]
        let advice = memmap2::UncheckedAdvice::DontNeed;
        #[cfg(target_vendor = "apple")]
        let advice = memmap2::UncheckedAdvice::FreeReusable;
        #[cfg(all(unix, not(any(target_os = "linux", target_vendor = "apple"))))]
        let advice = memmap2::UncheckedAdvice::Free;
        #[cfg(unix)]
        if let SlotBuffer::Map(part) = self {
            // SAFETY: the range is this buffer's own part of the mapping, nobody holds a reference into it
            // (`&mut self`), and all contents are valid bytes. A refusal keeps the memory.
            let _ = unsafe { part.map.unchecked_advise_range(advice, part.offset, part.len) };
        }
        #[cfg(windows)]
        if matches!(self, SlotBuffer::Map(_)) {
            windows::discard(self);
        }
    }
}

#[cfg(windows)]
mod windows {
    use std::ffi::c_void;

    const MEM_RESET: u32 = 0x8_0000;
    const PAGE_READWRITE: u32 = 4;

    #[link(name = "kernel32")]
    unsafe extern "system" {
        fn VirtualAlloc(start: *mut c_void, bytes: usize, what: u32, protection: u32) -> *mut c_void;
        fn VirtualUnlock(start: *mut c_void, bytes: usize) -> i32;
    }

    /// Tells the system that the pages need not be kept, and takes them out of the working set, which unlocking what is
    /// not locked does.
    pub(super) fn discard(buffer: &mut [u8]) {
        let (start, bytes) = (buffer.as_mut_ptr().cast(), buffer.len());
        // SAFETY: the range is whole pages of one mapping of the paging file that `buffer` alone refers to, and all
        // contents are valid bytes. A refusal keeps the memory.
        unsafe {
            VirtualAlloc(start, bytes, MEM_RESET, PAGE_READWRITE);
            VirtualUnlock(start, bytes);
        }
    }
}

impl Deref for SlotBuffer {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        match self {
            // SAFETY: the part lies in the mapping, which lives as long as `self`; only `self` owns it, and anonymous
            // memory is initialised.
            SlotBuffer::Map(part) => unsafe {
                std::slice::from_raw_parts(part.map.as_ptr().add(part.offset), part.len)
            },
            SlotBuffer::Given(memory) => memory,
        }
    }
}

impl DerefMut for SlotBuffer {
    fn deref_mut(&mut self) -> &mut [u8] {
        match self {
            // SAFETY: as in `deref`; `&mut self` is the only way to the part.
            SlotBuffer::Map(part) => unsafe {
                std::slice::from_raw_parts_mut(part.map.as_mut_ptr().add(part.offset), part.len)
            },
            SlotBuffer::Given(memory) => memory,
        }
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

    /// Is the page at that address in memory? As the kernel's `pagemap` has it: 8 bytes a page, the top bit.
    #[cfg(all(target_os = "linux", target_arch = "x86_64"))]
    fn is_present(byte: &u8) -> bool {
        use std::os::unix::fs::FileExt;
        let (page, mut entry) = (std::ptr::from_ref(byte) as u64 / 4096, [0; 8]);
        std::fs::File::open("/proc/self/pagemap").unwrap().read_exact_at(&mut entry, page * 8).unwrap();
        u64::from_le_bytes(entry) >> 63 == 1
    }

    /// Memory would be taken twice, written over, kept after it was given back, or not be taken ahead at all.
    #[cfg(all(target_os = "linux", target_arch = "x86_64"))]
    #[test]
    fn memory_is_taken_ahead() {
        let bytes = 10 << 20;
        let mut slots = slot_buffers(PREFAULT_BYTES_MIN / bytes + 1, bytes).unwrap();
        assert!(Prefault::start(&slots[1..2]).is_none(), "a single slot is not worth it");
        assert!(slots.iter().all(|slot| !is_present(&slot[0])));
        let mut prefault = Prefault::start(&slots).unwrap();
        slots.iter_mut().for_each(|slot| slot.fill(7));
        if prefault.join().is_err() {
            // Kernels before 5.14 cannot.
            return;
        }
        assert!(slots.iter().all(|slot| slot.iter().all(|&b| b == 7)));
        slots.iter_mut().for_each(SlotBuffer::discard);
        assert!(slots.iter().all(|slot| !is_present(&slot[bytes / 2])));
        Prefault::start(&slots).unwrap().join().unwrap();
        assert!(slots.iter().all(|slot| is_present(&slot[0]) && is_present(&slot[bytes - 1])));
        drop(Prefault::start(&slots));
    }
}
