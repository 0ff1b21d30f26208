//! One mutable slice whose disjoint parts are written by several threads.

use std::marker::PhantomData;

/// A mutable slice that jobs of one pool step write in parts.
pub(super) struct Share<'a, T> {
    start: *mut T,
    len: usize,
    owner: PhantomData<&'a mut [T]>,
}

// SAFETY: it only hands out parts, and who takes parts promises that they do not overlap.
unsafe impl<T: Send> Sync for Share<'_, T> {}

impl<'a, T> Share<'a, T> {
    pub(super) fn new(slice: &'a mut [T]) -> Self {
        Self { start: slice.as_mut_ptr(), len: slice.len(), owner: PhantomData }
    }

    /// `slice[at..at + len]`.
    ///
    /// # Safety
    /// No two parts that are alive at the same time may overlap.
    #[allow(clippy::mut_from_ref)]
    pub(super) unsafe fn part(&self, at: usize, len: usize) -> &'a mut [T] {
        assert!(at <= self.len && len <= self.len - at, "part {at}+{len} of {}", self.len);
        // SAFETY: inside the slice (checked above), which is borrowed for 'a; exclusive by the caller's promise.
        unsafe { std::slice::from_raw_parts_mut(self.start.add(at), len) }
    }

    /// `slice[at..at + len]`, to read.
    ///
    /// # Safety
    /// No [`Self::part`] that is alive at the same time may overlap it.
    pub(super) unsafe fn read(&self, at: usize, len: usize) -> &'a [T] {
        assert!(at <= self.len && len <= self.len - at, "part {at}+{len} of {}", self.len);
        // SAFETY: inside the slice (checked above), which is borrowed for 'a; nobody writes it by the caller's promise.
        unsafe { std::slice::from_raw_parts(self.start.add(at), len) }
    }

    /// Where `slice[at]` lies, to name and not to follow.
    pub(super) fn address(&self, at: usize) -> *const T {
        self.start.wrapping_add(at)
    }
}
