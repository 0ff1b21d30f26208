//! A device, its buffers, and what was recorded for it.

#[cfg(test)]
use std::collections::BTreeSet;
use std::io;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use arrayvec::ArrayVec;
use rustc_hash::FxHashMap;
use wgpu::{
    BindGroup, BindGroupDescriptor, BindGroupEntry, BindingResource, Buffer, BufferBinding, BufferDescriptor,
    BufferUsages, CommandEncoder, ComputePass, ComputePassDescriptor, Device, DeviceDescriptor,
    ExperimentalFeatures, Features, Limits, MemoryHints, PollType, Queue,
};

use crate::adapter::{
    AdapterKind, AdapterReport, BINDINGS_MAX, choose, coop_features, coop_side, features_needed,
};
use crate::failure::{self, Failure};
#[cfg(test)]
use crate::kernel::planted::{self, Mistake};
use crate::kernel::{Access, Constants, Kernel, Pipelines};
use crate::ops::prompt_tile::Split;
use crate::stopwatch::Stopwatch;
use crate::{GpuError, raw};

/// Words of the arguments of all dispatches of a submission.
const ARGS_WORDS: usize = 2 << 20;
/// Words that say whether recorded work still counts; from word 16 on workgroups count each other (`delta_step.wgsl`).
const CONTROL_WORDS: u64 = 1024;
/// Least bytes of the buffer that results come back in.
const READBACK_BYTES_MIN: u64 = 1 << 20;
/// Bytes that are written at a time, and pieces that are on their way at most.
const PIECE_BYTES: usize = 16 << 20;
const PIECES_AHEAD: usize = 4;
/// Dispatches that are worth a submission of their own.
const N_DISPATCH_MIN: usize = 48;
/// Sizes of buffers are multiples of it: kernels read up to four words at a time.
const BUFFER_ALIGN: u64 = 16;

/// How long the device may take until all that was submitted is done; one that is emulated, that often as long.
const WAIT_MAX: Duration = Duration::from_secs(60);
const EMULATED_WAITS: u32 = 20;

/// The last dispatch of every pass, see [`Tally`].
static TALLY: Kernel =
    Kernel { name: "tally", wgsl: &[include_str!("wgsl/tally.wgsl")], access: &[Access::Write] };

/// Memory of the device.
pub(crate) struct Buf {
    raw: Buffer,
    id: u32,
    dropped: Arc<Mutex<Vec<u32>>>,
}

impl Buf {
    /// Its size.
    pub(crate) fn bytes(&self) -> u64 {
        self.raw.size()
    }

    /// All of it.
    pub(crate) fn bind(&self) -> Bind<'_> {
        Bind { buf: self, offset: 0, bytes: self.bytes() }
    }
}

impl Drop for Buf {
    fn drop(&mut self) {
        lock(&self.dropped).push(self.id);
    }
}

/// A part of a buffer that a kernel sees.
#[derive(Clone, Copy)]
pub(crate) struct Bind<'a> {
    buf: &'a Buf,
    offset: u64,
    bytes: u64,
}

impl PartialEq for Bind<'_> {
    fn eq(&self, other: &Self) -> bool {
        (self.buf.id, self.offset, self.bytes) == (other.buf.id, other.offset, other.bytes)
    }
}

impl<'a> Bind<'a> {
    fn entry(&self, binding: usize) -> BindGroupEntry<'a> {
        BindGroupEntry {
            binding: binding as u32,
            resource: BindingResource::Buffer(BufferBinding {
                buffer: &self.buf.raw,
                offset: self.offset,
                size: wgpu::BufferSize::new(self.bytes),
            }),
        }
    }
}

/// Buffers that were bound together, and the layout: what a bind group is known by.
type GroupKey = (usize, ArrayVec<(u32, u64, u64), { BINDINGS_MAX as usize }>);

/// An open device.
pub(crate) struct Context {
    pub(crate) report: AdapterReport,
    pub(crate) features: Features,
    pub(crate) limits: Limits,
    device: Device,
    queue: Queue,
    recorder: Mutex<Recorder>,
    /// `[ARGS_WORDS]`, written anew for each submission.
    args: Buf,
    /// `[CONTROL_WORDS]`
    control: Buf,
    next_id: AtomicU32,
    dropped: Arc<Mutex<Vec<u32>>>,
    failure: Failure,
    pub(crate) wait_max: Duration,
    /// Rows and columns of the cooperative matrices that kernels use, if they use any.
    pub(crate) coop_side: Option<u32>,
    /// Activations for cooperative matrices.
    pub(crate) split: Mutex<Option<Arc<Split>>>,
}

#[derive(Default)]
struct Recorder {
    encoder: Option<CommandEncoder>,
    pass: Option<ComputePass<'static>>,
    args: Vec<u32>,
    pipelines: Pipelines,
    groups: FxHashMap<GroupKey, BindGroup>,
    readback: Option<(Buffer, raw::HostMemory)>,
    /// Dispatches since the last submission.
    n_dispatch: usize,
    /// If times are measured.
    stopwatch: Option<Stopwatch>,
    tally: Option<Tally>,
}

/// Metal drops the rest of a pass that finds no memory or takes too long, and DX12 that of a device that was removed,
/// and neither says so: each pass counts itself, and who reads a result compares.
struct Tally {
    /// `[1]`, passes that were carried out.
    n_done: Buf,
    /// Passes that were recorded.
    n_pass: u32,
}

impl Context {
    /// Opens adapter `index`, or the best one.
    ///
    /// # Errors
    /// There is none, it lacks something, or its driver refuses.
    pub(crate) fn open(index: Option<usize>) -> Result<Self, GpuError> {
        let (adapter, report) = choose(index)?;
        let refused = |why: String| GpuError::Refused { name: report.name.clone(), why };
        let coop_side = coop_side(&adapter);
        let wanted = features_needed()
            | raw::features_wanted()
            | coop_side.map_or(Features::empty(), |_| coop_features());
        let features = adapter.features() & wanted;
        let limits = adapter.limits();
        let (device, queue) = pollster::block_on(adapter.request_device(&DeviceDescriptor {
            label: None,
            required_features: features,
            required_limits: limits.clone(),
            experimental_features:
                coop_side.map_or_else(ExperimentalFeatures::disabled, |_| raw::experimental_features()),
            memory_hints: MemoryHints::Performance,
            trace: wgpu::Trace::Off,
        }))
        .map_err(|error| refused(error.to_string()))?;
        let failure = Failure::watch(&device);
        let dropped = Arc::default();
        let own = |id: u32, words: u64| Buf {
            raw: device.create_buffer(&descriptor(words * 4)),
            id,
            dropped: Arc::clone(&dropped),
        };
        let (args, control) = (own(0, ARGS_WORDS as u64), own(1, CONTROL_WORDS));
        // Vulkan tells.
        let is_tallied = report.interface != "Vulkan" || cfg!(test);
        let tally = is_tallied.then(|| Tally { n_done: own(2, 1), n_pass: 0 });
        let recorder = Mutex::new(Recorder { tally, ..Recorder::default() });
        let next_id = AtomicU32::new(3);
        let n_wait = if report.kind == AdapterKind::Emulated { EMULATED_WAITS } else { 1 };
        let split = Mutex::default();
        Ok(Self {
            report,
            features,
            limits,
            device,
            queue,
            recorder,
            args,
            control,
            next_id,
            dropped,
            failure,
            wait_max: n_wait * WAIT_MAX,
            coop_side,
            split,
        })
    }

    /// `bytes` zeros. If there is not so much memory, the device has failed.
    pub(crate) fn buffer(&self, bytes: u64) -> Buf {
        Buf {
            raw: self.device.create_buffer(&descriptor(bytes)),
            id: self.next_id.fetch_add(1, Ordering::Relaxed),
            dropped: Arc::clone(&self.dropped),
        }
    }

    /// Copies to a buffer, behind what was recorded before. `offset` and the length are multiples of 4.
    pub(crate) fn write(&self, buf: &Buf, offset: u64, bytes: &[u8]) {
        if !bytes.is_empty() && !self.is_failed() {
            self.flush();
            self.queue.write_buffer(&buf.raw, offset, bytes);
        }
    }

    /// As [`Self::write`], for any number of bytes: not more than a few pieces are on their way at a time.
    pub(crate) fn write_large(&self, buf: &Buf, offset: u64, bytes: &[u8]) {
        for (i, piece) in bytes.chunks(PIECE_BYTES).enumerate() {
            let at = offset + (i * PIECE_BYTES) as u64;
            // A plane of an odd number of 2-byte numbers: its last word is written whole.
            let (words, rest) = piece.split_at(piece.len() / 4 * 4);
            self.write(buf, at, words);
            if !rest.is_empty() {
                let mut word = [0; 4];
                word[..rest.len()].copy_from_slice(rest);
                self.write(buf, at + words.len() as u64, &word);
            }
            if self.is_failed() {
                return;
            }
            self.queue.submit([]);
            if i % PIECES_AHEAD == PIECES_AHEAD - 1 {
                self.wait_for_all();
            }
        }
    }

    /// Most bytes of a buffer that a kernel can see.
    pub(crate) fn binding_bytes_max(&self) -> u64 {
        let limits = &self.limits;
        limits.max_storage_buffer_binding_size.min(limits.max_buffer_size) / BUFFER_ALIGN * BUFFER_ALIGN
    }

    /// `bytes` of memory that both host and device see.
    ///
    /// # Errors
    /// The device cannot, or there is not so much.
    pub(crate) fn host_buffer(&self, bytes: u64) -> io::Result<(Buf, Arc<raw::HostMemory>)> {
        let usage =
            BufferUsages::STORAGE | BufferUsages::COPY_SRC | BufferUsages::COPY_DST | BufferUsages::MAP_READ;
        let raw = self.device.create_buffer(&BufferDescriptor { usage, ..descriptor(bytes) });
        if let Some(error) = self.failure() {
            return Err(io::Error::other(error));
        }
        let memory = raw::HostMemory::of(&self.device, &raw)
            .ok_or_else(|| io::Error::other("the GPU's driver does not show its memory to the host"))?;
        let buf =
            Buf { raw, id: self.next_id.fetch_add(1, Ordering::Relaxed), dropped: Arc::clone(&self.dropped) };
        // Else it would be zeroed when it is first used, with records in it.
        let mut recorder = lock(&self.recorder);
        self.end_pass(&mut recorder);
        recorder.encoder(&self.device).clear_buffer(&buf.raw, 0, None);
        self.submit(&mut recorder);
        self.wait_for_all();
        self.failure().map_or_else(|| Ok((buf, Arc::new(memory))), |error| Err(io::Error::other(error)))
    }

    /// Copies between buffers, behind what was recorded before. Offsets and length are multiples of 4.
    pub(crate) fn copy(&self, from: (&Buf, u64), to: (&Buf, u64), bytes: u64) {
        if self.is_failed() {
            return;
        }
        let mut recorder = lock(&self.recorder);
        self.end_pass(&mut recorder);
        let encoder = recorder.encoder(&self.device);
        encoder.copy_buffer_to_buffer(&from.0.raw, from.1, &to.0.raw, to.1, bytes);
    }

    /// Copies from a buffer to `out`, once all that was recorded before is done.
    pub(crate) fn read(&self, buf: &Buf, offset: u64, out: &mut [u8]) {
        self.read_all(&mut [(buf, offset, out)]);
    }

    /// Copies from several buffers, once all that was recorded before is done. Offsets are multiples of 4. Zeros if the
    /// device has failed by then.
    pub(crate) fn read_all(&self, parts: &mut [(&Buf, u64, &mut [u8])]) {
        let mut recorder = lock(&self.recorder);
        if self.read_back(&mut recorder, parts).is_none() {
            parts.iter_mut().for_each(|(_, _, out)| out.fill(0));
        }
    }

    /// `None`: the device has failed.
    fn read_back(&self, recorder: &mut Recorder, parts: &mut [(&Buf, u64, &mut [u8])]) -> Option<()> {
        let padded = |out: &[u8]| (out.len() as u64).next_multiple_of(4);
        let n_byte: u64 = parts.iter().map(|(_, _, out)| padded(out)).sum();
        if n_byte == 0 {
            return Some(());
        }
        self.well()?;
        if recorder.tally.is_some() {
            recorder.start_pass(&self.device);
        }
        self.end_pass(recorder);
        let ticks_at = n_byte.next_multiple_of(8);
        let ticks_bytes = recorder.stopwatch.as_ref().map_or(0, Stopwatch::n_byte);
        let tally_at = ticks_at + ticks_bytes;
        if !recorder.grow_readback(&self.device, tally_at + 4) {
            // If the device is lost, that is the reason.
            self.wait_for_all();
            self.fail("its driver does not show its memory to the host");
            return None;
        }
        recorder.encoder(&self.device);
        let Recorder { encoder: Some(encoder), readback: Some((readback, _)), stopwatch, tally, .. } =
            &mut *recorder
        else {
            return None;
        };
        let mut at = 0;
        for (buf, offset, out) in parts.iter().filter(|(_, _, out)| !out.is_empty()) {
            encoder.copy_buffer_to_buffer(&buf.raw, *offset, readback, at, padded(out));
            at += padded(out);
        }
        if let Some(stopwatch) = stopwatch {
            stopwatch.resolve(encoder, readback, ticks_at);
        }
        if let Some(tally) = tally {
            encoder.copy_buffer_to_buffer(&tally.n_done.raw, 0, readback, tally_at, 4);
        }
        self.submit(recorder);
        self.wait_for_all();
        self.well()?;
        let Recorder { readback: Some((_, memory)), stopwatch, tally, .. } = recorder else { return None };
        if let Some(tally) = tally {
            let mut n_done = [0; 4];
            memory.read(tally_at as usize, &mut n_done);
            if u32::from_ne_bytes(n_done) != tally.n_pass {
                self.fail("its driver gave up work that it was given, perhaps for want of memory");
                return None;
            }
        }
        let mut at = 0;
        for (_, _, out) in parts {
            memory.read(at, out);
            at += padded(out) as usize;
        }
        if let Some(stopwatch) = stopwatch {
            let mut ticks = vec![0u64; ticks_bytes as usize / 8];
            memory.read(ticks_at as usize, bytemuck::cast_slice_mut(&mut ticks));
            stopwatch.take(&ticks);
        }
        Some(())
    }

    /// From now on the time of each phase is measured, if the device can.
    pub(crate) fn measure(&self) {
        if self.features.contains(Features::TIMESTAMP_QUERY) {
            let tick_s = f64::from(self.queue.get_timestamp_period()) * 1e-9;
            lock(&self.recorder).stopwatch = Some(Stopwatch::new(&self.device, tick_s));
        }
    }

    /// What was recorded since the last call belongs to this phase.
    pub(crate) fn mark(&self, layer: usize, phase: usize) {
        let mut recorder = lock(&self.recorder);
        if recorder.stopwatch.is_some() {
            self.end_pass(&mut recorder);
        }
        if let Some(stopwatch) = &mut recorder.stopwatch {
            stopwatch.mark(layer, phase);
        }
    }

    /// What was measured since the last call.
    pub(crate) fn measured(&self) -> Vec<(usize, usize, Duration)> {
        lock(&self.recorder).stopwatch.as_mut().map(Stopwatch::measured).unwrap_or_default()
    }

    /// Puts words where kernels find them, in [`Self::args_bind`] from the returned word on, until the next flush: for
    /// dispatches that are recorded next.
    pub(crate) fn args(&self, words: &[u32]) -> u32 {
        let at = self.args_room(words.len());
        lock(&self.recorder).args.extend_from_slice(words);
        at
    }

    /// Makes room for `n` words of arguments, so that the next ones go to the returned word whatever was there.
    pub(crate) fn args_room(&self, n: usize) -> u32 {
        assert!(n <= ARGS_WORDS, "{n} words of arguments");
        let mut recorder = lock(&self.recorder);
        if ARGS_WORDS < recorder.args.len() + n {
            self.submit(&mut recorder);
        }
        recorder.args.len() as u32
    }

    /// The arguments of all dispatches: `array<u32>`.
    pub(crate) fn args_bind(&self) -> Bind<'_> {
        self.args.bind()
    }

    /// Words that say whether recorded work still counts: where word 0 is not 0, kernels that read it write nothing.
    pub(crate) fn control(&self) -> Bind<'_> {
        self.control.bind()
    }

    /// The buffer of the same.
    pub(crate) fn control_buf(&self) -> &Buf {
        &self.control
    }

    /// The buffer of [`Self::args_bind`].
    pub(crate) fn args_buf(&self) -> &Buf {
        &self.args
    }

    /// Records a dispatch of `groups` workgroups.
    pub(crate) fn run(
        &self,
        kernel: &Kernel,
        constants: Constants<'_>,
        buffers: &[Bind<'_>],
        params: &[u32],
        groups: [u32; 3],
    ) {
        assert_eq!(buffers.len(), kernel.access.len(), "buffers of {}", kernel.name);
        #[cfg(test)]
        crate::kernel::assert_listed(kernel);
        let limit = self.limits.max_compute_workgroups_per_dimension;
        assert!(groups.iter().all(|&n| n <= limit), "{}: {groups:?} workgroups", kernel.name);
        if groups.contains(&0) || self.is_failed() {
            return;
        }
        let mut recorder = lock(&self.recorder);
        recorder.start_pass(&self.device);
        self.dispatch(&mut recorder, kernel, constants, buffers, params, groups);
        recorder.n_dispatch += 1;
    }

    /// Records a dispatch in the open pass.
    fn dispatch(
        &self,
        recorder: &mut Recorder,
        kernel: &Kernel,
        constants: Constants<'_>,
        buffers: &[Bind<'_>],
        params: &[u32],
        groups: [u32; 3],
    ) {
        let Recorder { pass: Some(pass), pipelines, groups: known, .. } = recorder else { return };
        let layout = {
            let pipeline = pipelines.get(&self.device, kernel, constants);
            pass.set_pipeline(&pipeline.raw);
            pipeline.layout
        };
        let key = (layout, buffers.iter().map(|b| (b.buf.id, b.offset, b.bytes)).collect());
        let group = known.entry(key).or_insert_with(|| self.bind_group(pipelines, layout, buffers));
        pass.set_bind_group(0, &*group, &[]);
        if !params.is_empty() {
            pass.set_immediates(0, bytemuck::cast_slice(params));
        }
        pass.dispatch_workgroups(groups[0], groups[1], groups[2]);
    }

    fn end_pass(&self, recorder: &mut Recorder) {
        if recorder.pass.is_some()
            && let Some(mut tally) = recorder.tally.take()
        {
            self.dispatch(recorder, &TALLY, &[], &[tally.n_done.bind()], &[], [1, 1, 1]);
            tally.n_pass = tally.n_pass.wrapping_add(1);
            recorder.tally = Some(tally);
        }
        recorder.pass = None;
    }

    /// Workgroups for `n` items of a kernel that finds its number as `y · num_workgroups.x + x`, and stops at `n`.
    pub(crate) fn grid(&self, n: usize) -> [u32; 3] {
        let limit = self.limits.max_compute_workgroups_per_dimension as usize;
        let y = n.div_ceil(limit);
        [n.div_ceil(y.max(1)) as u32, y as u32, 1]
    }

    /// Submits what was recorded.
    pub(crate) fn flush(&self) {
        self.submit(&mut lock(&self.recorder));
    }

    /// Submits what was recorded if it keeps the device busy for a while: so it works while more is recorded.
    pub(crate) fn flush_if_long(&self) {
        let mut recorder = lock(&self.recorder);
        if N_DISPATCH_MIN <= recorder.n_dispatch {
            self.submit(&mut recorder);
        }
    }

    /// Waits until all that was recorded is done.
    pub(crate) fn wait(&self) {
        self.flush();
        self.wait_for_all();
    }

    /// Takes note that something went wrong.
    pub(crate) fn fail(&self, what: &str) {
        self.failure.note(what.to_owned());
    }

    /// The first thing that went wrong.
    pub(crate) fn failure(&self) -> Option<GpuError> {
        let what = self.failure.get()?.to_owned();
        Some(GpuError::Failed { name: self.report.name.clone(), what })
    }

    /// See [`crate::Gpu::breaker`].
    pub(crate) fn breaker(&self) -> impl Fn() + Send + Sync + use<> {
        let device = self.device.clone();
        move || device.destroy()
    }

    fn is_failed(&self) -> bool {
        self.failure.get().is_some()
    }

    fn well(&self) -> Option<()> {
        (!self.is_failed()).then_some(())
    }

    fn wait_for_all(&self) {
        if self.is_failed() {
            return;
        }
        let poll = PollType::Wait { submission_index: None, timeout: Some(self.wait_max) };
        if let Err(what) = failure::wait(|| self.device.poll(poll)) {
            self.failure.note(what);
            // Whoever closes a queue waits for it, perhaps for ever.
            std::mem::forget(self.queue.clone());
        }
    }

    fn submit(&self, recorder: &mut Recorder) {
        self.end_pass(recorder);
        recorder.n_dispatch = 0;
        if let Some(encoder) = recorder.encoder.take()
            && !self.is_failed()
        {
            if !recorder.args.is_empty() {
                self.queue.write_buffer(&self.args.raw, 0, bytemuck::cast_slice(&recorder.args));
                recorder.args.clear();
            }
            self.queue.submit([encoder.finish()]);
        }
        if self.is_failed() {
            recorder.args.clear();
        }
        let mut dropped = lock(&self.dropped);
        if !dropped.is_empty() {
            recorder.groups.retain(|(_, buffers), _| buffers.iter().all(|(id, ..)| !dropped.contains(id)));
            dropped.clear();
        }
    }

    fn bind_group(&self, pipelines: &Pipelines, layout: usize, buffers: &[Bind<'_>]) -> BindGroup {
        let entries: ArrayVec<_, { BINDINGS_MAX as usize }> =
            buffers.iter().enumerate().map(|(binding, b)| b.entry(binding)).collect();
        self.device.create_bind_group(&BindGroupDescriptor {
            label: None,
            layout: pipelines.bind_group_layout(layout),
            entries: &entries,
        })
    }
}

impl Recorder {
    fn encoder(&mut self, device: &Device) -> &mut CommandEncoder {
        self.encoder.get_or_insert_with(|| device.create_command_encoder(&Default::default()))
    }

    fn start_pass(&mut self, device: &Device) {
        if self.pass.is_none() {
            let Self { encoder, stopwatch, .. } = self;
            let encoder = encoder.get_or_insert_with(|| device.create_command_encoder(&Default::default()));
            let timestamp_writes = stopwatch.as_mut().and_then(Stopwatch::begin);
            let descriptor = ComputePassDescriptor { label: None, timestamp_writes };
            self.pass = Some(encoder.begin_compute_pass(&descriptor).forget_lifetime());
        }
    }

    /// Is there room for so many bytes that come back now?
    fn grow_readback(&mut self, device: &Device, n_byte: u64) -> bool {
        if self.readback.as_ref().is_none_or(|(buffer, _)| buffer.size() < n_byte) {
            let buffer = device.create_buffer(&BufferDescriptor {
                label: None,
                size: n_byte.next_power_of_two().max(READBACK_BYTES_MIN),
                usage: BufferUsages::COPY_DST | BufferUsages::MAP_READ,
                mapped_at_creation: false,
            });
            self.readback = raw::HostMemory::of(device, &buffer).map(|memory| (buffer, memory));
        }
        self.readback.is_some()
    }
}

fn descriptor(bytes: u64) -> BufferDescriptor<'static> {
    BufferDescriptor {
        label: None,
        size: bytes.max(1).next_multiple_of(BUFFER_ALIGN),
        usage: BufferUsages::STORAGE | BufferUsages::COPY_SRC | BufferUsages::COPY_DST,
        mapped_at_creation: false,
    }
}

pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

impl Context {
    /// Seconds that the device takes for what `record` records: by its own clock where it has one, else by the host's.
    pub(crate) fn time_s(&self, record: impl FnOnce()) -> f64 {
        self.wait();
        if !self.features.contains(Features::TIMESTAMP_QUERY) {
            record();
            let start = std::time::Instant::now();
            self.wait();
            return start.elapsed().as_secs_f64();
        }
        let queries = self.device.create_query_set(&wgpu::QuerySetDescriptor {
            label: None,
            ty: wgpu::QueryType::Timestamp,
            count: 2,
        });
        let times = self.device.create_buffer(&BufferDescriptor {
            usage: BufferUsages::QUERY_RESOLVE | BufferUsages::COPY_SRC,
            ..descriptor(16)
        });
        {
            let mut recorder = lock(&self.recorder);
            let writes = wgpu::ComputePassTimestampWrites {
                query_set: &queries,
                beginning_of_pass_write_index: Some(0),
                end_of_pass_write_index: Some(1),
            };
            let pass = wgpu::ComputePassDescriptor { label: None, timestamp_writes: Some(writes) };
            let pass = recorder.encoder(&self.device).begin_compute_pass(&pass).forget_lifetime();
            recorder.pass = Some(pass);
        }
        record();
        let result = self.buffer(16);
        {
            let mut recorder = lock(&self.recorder);
            self.end_pass(&mut recorder);
            let encoder = recorder.encoder(&self.device);
            encoder.resolve_query_set(&queries, 0..2, &times, 0);
            encoder.copy_buffer_to_buffer(&times, 0, &result.raw, 0, 16);
        }
        let mut ticks = [0u64; 2];
        self.read(&result, 0, bytemuck::cast_slice_mut(&mut ticks));
        ticks[1].saturating_sub(ticks[0]) as f64 * f64::from(self.queue.get_timestamp_period()) * 1e-9
    }
}

/// All kernels of this file.
#[cfg(test)]
pub(crate) fn kernels() -> Vec<&'static Kernel> {
    vec![&TALLY]
}

#[cfg(test)]
impl Context {
    /// Word 0 of the control buffer, as of what was recorded before.
    pub(crate) fn control_word(&self) -> u32 {
        let mut word = [0; 4];
        self.read(&self.control, 0, &mut word);
        u32::from_le_bytes(word)
    }

    /// Sets word 0 of the control buffer, for what is recorded next.
    pub(crate) fn control_set(&self, word: u32) {
        self.write(&self.control, 0, &word.to_le_bytes());
    }

    /// The device, its queue, and a buffer of so many bytes.
    #[cfg(not(target_vendor = "apple"))]
    pub(crate) fn raw_parts(&self, bytes: u64) -> (Device, Queue, Buffer) {
        (self.device.clone(), self.queue.clone(), self.device.create_buffer(&descriptor(bytes)))
    }

    /// As if the driver gave up a pass.
    pub(crate) fn drop_pass(&self) {
        let mut recorder = lock(&self.recorder);
        let tally = recorder.tally.as_mut().expect("tests count passes");
        tally.n_pass += 1;
    }

    /// Kernels that were run so far.
    pub(crate) fn kernels(&self) -> BTreeSet<&'static str> {
        lock(&self.recorder).pipelines.names()
    }

    /// What `with` says while a kernel has a mistake.
    pub(crate) fn mistaken<T>(&self, mistake: Mistake, with: impl FnOnce() -> T) -> T {
        let forget = || lock(&self.recorder).pipelines.forget(mistake.kernel);
        forget();
        planted::set(Some(mistake));
        let result = with();
        planted::set(None);
        forget();
        result
    }
}
