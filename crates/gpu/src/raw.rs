//! Everything that the compiler cannot check: shaders without bounds checks, memory of the device that the host
//! sees, and what only a driver knows.

use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;
use std::sync::Arc;

use wgpu::hal::{Api, Device as _};
use wgpu::{
    Adapter, Buffer, Device, ExperimentalFeatures, Features, ShaderModule, ShaderModuleDescriptor,
    ShaderRuntimeChecks, ShaderSource,
};

/// What is used where a driver offers it.
pub(crate) fn features_wanted() -> Features {
    Features::TIMESTAMP_QUERY
}

/// What cooperative matrices take.
pub(crate) fn experimental_features() -> ExperimentalFeatures {
    // SAFETY: cooperative matrices are loaded from and stored to workgroup memory alone, within its bounds, by whole
    // subgroups, and checked against the reference like all else.
    unsafe { ExperimentalFeatures::enabled() }
}

/// A shader as it is written: no bounds checks, no loop counters.
pub(crate) fn trusted_module(device: &Device, name: &str, wgsl: &str) -> ShaderModule {
    let descriptor = ShaderModuleDescriptor { label: Some(name), source: ShaderSource::Wgsl(wgsl.into()) };
    // SAFETY: only texts of this crate come here. They index within the bounds that their callers' parameters state,
    // and each is checked against the reference on ragged shapes.
    unsafe { device.create_shader_module_trusted(descriptor, ShaderRuntimeChecks::unchecked()) }
}

/// Memory of the device, where the driver tells: its own for a discrete one.
#[cfg(not(target_vendor = "apple"))]
pub(crate) fn device_memory_bytes(adapter: &Adapter) -> Option<u64> {
    // SAFETY: the handle is used while the guard is held, and nothing is destroyed.
    let adapter = unsafe { adapter.as_hal::<wgpu::hal::vulkan::Api>() }?;
    let instance = adapter.shared_instance().raw_instance();
    // SAFETY: the physical device belongs to this instance, and both are alive.
    let memory = unsafe { instance.get_physical_device_memory_properties(adapter.raw_physical_device()) };
    // VK_MEMORY_HEAP_DEVICE_LOCAL_BIT
    let is_local = |flags: u32| flags & 1 != 0;
    let heaps = &memory.memory_heaps[..memory.memory_heap_count as usize];
    heaps.iter().filter(|heap| is_local(heap.flags.as_raw())).map(|heap| heap.size).max()
}

/// Memory of the device, where the driver tells: what Metal recommends to use at most.
#[cfg(target_vendor = "apple")]
pub(crate) fn device_memory_bytes(_: &Adapter) -> Option<u64> {
    None
}

/// The memory of a buffer that the host can see, as long as the buffer lives.
pub(crate) struct HostMemory {
    at: NonNull<u8>,
    n_byte: usize,
    /// Keeps it alive.
    _buffer: Buffer,
}

// SAFETY: it is plain memory; who reads or writes it when is up to the callers, who wait for the device.
unsafe impl Send for HostMemory {}
// SAFETY: as above: there is no shared mutation behind `&HostMemory` but the device's.
unsafe impl Sync for HostMemory {}

impl HostMemory {
    /// `None`: the host cannot see it, or not without flushing caches.
    pub(crate) fn of(device: &Device, buffer: &Buffer) -> Option<Self> {
        #[cfg(target_vendor = "apple")]
        let at = mapped::<wgpu::hal::metal::Api>(device, buffer);
        #[cfg(not(target_vendor = "apple"))]
        let at = mapped::<wgpu::hal::vulkan::Api>(device, buffer);
        #[cfg(windows)]
        let at = at.or_else(|| mapped::<wgpu::hal::dx12::Api>(device, buffer));
        Some(Self { at: at?, n_byte: buffer.size() as usize, _buffer: buffer.clone() })
    }

    /// Its size.
    pub(crate) fn len(&self) -> usize {
        self.n_byte
    }

    /// Where it starts: to be compared, not to be read.
    pub(crate) fn address(&self) -> usize {
        self.at.as_ptr() as usize
    }

    /// Its first `n` pieces of `bytes` each from the first multiple of `align` on, each owned by one value.
    ///
    /// # Panics
    /// They do not fit, or it was split before.
    pub(crate) fn split(self: Arc<Self>, align: usize, bytes: usize, n: usize) -> Vec<HostPart> {
        assert_eq!(Arc::strong_count(&self), 1, "memory that is in use is not split");
        let first = self.at.as_ptr().align_offset(align);
        assert!(first + n * bytes <= self.n_byte, "{n} pieces of {bytes} bytes in {}", self.n_byte);
        let part = |i| HostPart { memory: Arc::clone(&self), offset: first + i * bytes, n_byte: bytes };
        (0..n).map(part).collect()
    }

    /// Copies its bytes from `at` on to `out`. The device has finished what writes to it.
    pub(crate) fn read(&self, at: usize, out: &mut [u8]) {
        assert!(at + out.len() <= self.n_byte, "{} bytes from {at} of {}", out.len(), self.n_byte);
        // SAFETY: the memory is mapped and that large, and `out` is memory of the host.
        unsafe { std::ptr::copy_nonoverlapping(self.at.as_ptr().add(at), out.as_mut_ptr(), out.len()) }
    }
}

/// A part of [`HostMemory`] that belongs to this value alone. The device reads it only while nobody changes it.
pub(crate) struct HostPart {
    memory: Arc<HostMemory>,
    offset: usize,
    n_byte: usize,
}

impl Deref for HostPart {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        // SAFETY: the part lies in the memory, which lives as long as `self` and was cleared when it was made; only
        // `self` owns it.
        unsafe { std::slice::from_raw_parts(self.memory.at.as_ptr().add(self.offset), self.n_byte) }
    }
}

impl DerefMut for HostPart {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as in `deref`; `&mut self` is the only way to the part.
        unsafe { std::slice::from_raw_parts_mut(self.memory.at.as_ptr().add(self.offset), self.n_byte) }
    }
}

fn mapped<A: Api>(device: &Device, buffer: &Buffer) -> Option<NonNull<u8>> {
    // SAFETY: the handles are used while their guards are held, and nothing is destroyed.
    let (device, raw) = unsafe { (device.as_hal::<A>()?, buffer.as_hal::<A>()?) };
    // SAFETY: the buffer was made with a map usage and is never mapped through wgpu. These drivers keep such memory
    // mapped as long as the buffer lives.
    let mapping = unsafe { device.map_buffer(&raw, 0..buffer.size()) }.ok()?;
    mapping.is_coherent.then_some(mapping.ptr)
}

#[cfg(all(test, not(target_vendor = "apple")))]
mod tests {
    use wgpu::hal::vulkan::Api as Vulkan;
    use wgpu::hal::{CommandEncoder as _, CommandEncoderDescriptor, Device as _};

    use crate::test_rig::rig;

    #[test]
    #[ignore = "a mistake on purpose, for tools/gpu-validate.sh"]
    fn two_writes_without_a_barrier() {
        // Breaks if there is nothing to record them with: then the script would have no proof that it finds hazards.
        let context = rig().expect("a GPU").context;
        let (device, queue, buf) = context.raw_parts(64);
        // SAFETY: the handles are used while their guards are held; what is recorded is never submitted.
        unsafe {
            let device = device.as_hal::<Vulkan>().expect("Vulkan");
            let queue = queue.as_hal::<Vulkan>().expect("Vulkan");
            let buf = buf.as_hal::<Vulkan>().expect("Vulkan");
            let descriptor = CommandEncoderDescriptor { label: None, queue: &*queue };
            let mut encoder = device.create_command_encoder(&descriptor).expect("an encoder");
            encoder.begin_encoding(None).expect("it begins");
            encoder.clear_buffer(&buf, 0..64);
            encoder.clear_buffer(&buf, 0..64);
            encoder.discard_encoding();
        }
    }
}
