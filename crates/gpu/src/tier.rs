//! Experts in memory of the device, and mixtures that it computes without the host.

use std::sync::Mutex;

use kernels::{HeldJob, HeldShape, SharedJob};

use crate::context::{Bind, Buf, Context, lock};
use crate::memory::{GpuWeights, RecordSlab};
use crate::ops::Records;
use crate::ops::route::{MISSING, PAIR_WORDS};

/// Records start at multiples of it.
const RECORD_ALIGN: usize = 64;

/// The experts of all layers that the device can hold, in places of equal number a layer.
pub(crate) struct Tier {
    layers: Vec<Held>,
    n_expert: usize,
    /// Word where each expert's record starts in its layer's slab, or [`MISSING`], `[n_layer, n_expert]`.
    table: Buf,
    /// What [`crate::ops::route::RouteStep`] writes, and behind it the shared expert's pair, `[n_layer, n_expert + 1]`
    /// times [`PAIR_WORDS`]: those of a layer stay within its slab, whatever happens.
    pairs: Buf,
    /// Experts that the last mixture of each layer chose, `[n_layer, n_expert]`.
    chosen: Buf,
    seen: Mutex<Seen>,
}

/// A layer.
struct Held {
    records: Records,
    /// `[n_place + 1, stride]`: the last one is for the shared expert.
    slab: Buf,
    stride_bytes: usize,
    /// Place of each expert that is held.
    places: Mutex<Vec<Option<usize>>>,
    /// Of the shared expert, once it is here: routed ones before its pair, and the rows of that.
    shared: Mutex<Option<(usize, (u32, u32))>>,
}

/// What became of mixtures.
#[derive(Default)]
struct Seen {
    /// Recorded since the last read: layer and number of experts a token.
    recorded: Vec<(usize, usize)>,
    /// Word 0 of the control buffer as it was read, and the experts of `recorded`.
    control: u32,
    chosen: Vec<u32>,
}

impl Tier {
    /// Room for `n_place` experts of each layer.
    pub(crate) fn new(context: &Context, layers: &[HeldShape], n_place: usize) -> Self {
        let n_expert = layers.iter().map(|l| l.n_expert).max().unwrap_or(0);
        let words = |n: usize| context.buffer((layers.len() * n * 4) as u64);
        let (table, pairs, chosen) = (words(n_expert), words((n_expert + 1) * PAIR_WORDS), words(n_expert));
        context.write_large(&table, 0, &vec![0xff; layers.len() * n_expert * 4]);
        context.write_large(&pairs, 0, &vec![0xff; layers.len() * (n_expert + 1) * PAIR_WORDS * 4]);
        let held = |shape: &HeldShape| {
            let stride_bytes = stride(shape);
            Held {
                records: records(shape),
                slab: context.buffer(((n_place + 1) * stride_bytes) as u64),
                stride_bytes,
                places: Mutex::new(vec![None; shape.n_expert]),
                shared: Mutex::default(),
            }
        };
        Self {
            layers: layers.iter().map(held).collect(),
            n_expert,
            table,
            pairs,
            chosen,
            seen: Mutex::default(),
        }
    }

    /// Most places of a layer that a kernel can see, and that fit into `bytes` over all layers, with one more for the
    /// shared expert.
    pub(crate) fn n_place(context: &Context, layers: &[HeldShape], bytes: u64) -> usize {
        let all: u64 = layers.iter().map(|shape| stride(shape) as u64).sum();
        let largest = layers.iter().map(stride).max().unwrap_or(1).max(1) as u64;
        let n_expert = layers.iter().map(|l| l.n_expert).min().unwrap_or(0) as u64;
        let n_stride = (bytes / all.max(1)).min(context.binding_bytes_max() / largest);
        n_stride.saturating_sub(1).min(n_expert) as usize
    }

    /// How a layer's records are laid out, and what they lie in.
    pub(crate) fn layer(&self, layer: usize) -> (&Records, Bind<'_>) {
        (&self.layers[layer].records, self.layers[layer].slab.bind())
    }

    /// Copies a record, which starts at byte `from.1` of a slab, to a place.
    pub(crate) fn hold(
        &self,
        context: &Context,
        (layer, expert): (usize, usize),
        from: (&RecordSlab, usize),
        place: usize,
        instead: Option<usize>,
    ) {
        let held = &self.layers[layer];
        let start = place * held.stride_bytes;
        if let Some(old) = instead {
            self.list(context, layer, old, MISSING);
            lock(&held.places)[old] = None;
        }
        let bytes = held.stride_bytes as u64;
        context.copy((&from.0.buf, from.1 as u64), (&held.slab, start as u64), bytes);
        self.list(context, layer, expert, (start / 4) as u32);
        lock(&held.places)[expert] = Some(place);
    }

    /// Makes the shared expert one more pair behind those of `k` routed ones, if it looks like them: a copy of it joins
    /// their records when it is first asked for.
    pub(crate) fn joins(
        &self,
        context: &Context,
        layer: usize,
        k: usize,
        shared: &SharedJob<'_, GpuWeights>,
    ) -> bool {
        let (held, matrices) = (&self.layers[layer], [shared.gate, shared.up, shared.down]);
        let wanted = held.records.matrices(held.slab.bind());
        let is_alike = matrices.iter().zip(wanted).all(|(w, wanted)| {
            w.blocks.len() == 1 && (w.format, w.rows, w.cols) == (wanted.format, wanted.rows, wanted.cols)
        });
        let &[rows] = shared.rows else { return false };
        if !is_alike {
            return false;
        }
        let start = held.slab.bytes() / held.stride_bytes as u64 - 1;
        let start = (start * held.stride_bytes as u64 / 4) as u32;
        let mut known = lock(&held.shared);
        if known.is_none() {
            for (w, planes) in matrices.iter().zip(held.records.planes) {
                w.copy(context, &held.slab, planes.map(|word| start + word));
            }
        }
        if known.replace((k, rows)) != Some((k, rows)) {
            let at = self.pairs(layer).1 as usize + k * PAIR_WORDS;
            put(context, &[start, rows.0, rows.1, 0], (&self.pairs, at));
        }
        true
    }

    /// Words where the records of jobs start.
    pub(crate) fn rows<'a>(&self, layer: usize, jobs: &[HeldJob<'a>]) -> Vec<(u32, &'a [(u32, u32)])> {
        let held = &self.layers[layer];
        let places = lock(&held.places);
        let at = |job: &HeldJob<'a>| {
            let place = places[job.expert].expect("the host asks for experts that the device holds");
            ((place * held.stride_bytes / 4) as u32, job.rows)
        };
        jobs.iter().map(at).collect()
    }

    /// The table of a layer's records.
    pub(crate) fn table(&self, layer: usize) -> (Bind<'_>, u32) {
        (self.table.bind(), (layer * self.n_expert) as u32)
    }

    /// Where a layer's pairs are.
    pub(crate) fn pairs(&self, layer: usize) -> (Bind<'_>, u32) {
        (self.pairs.bind(), (layer * (self.n_expert + 1) * PAIR_WORDS) as u32)
    }

    /// Where a layer's choice is, which is taken note of.
    pub(crate) fn chosen(&self, layer: usize, k: usize) -> (Bind<'_>, u32) {
        lock(&self.seen).recorded.push((layer, k));
        (self.chosen.bind(), (layer * self.n_expert) as u32)
    }

    /// Has a mixture been recorded that nobody has asked about?
    pub(crate) fn is_open(&self) -> bool {
        !lock(&self.seen).recorded.is_empty()
    }

    /// Reads as [`Context::read`], and with it what became of mixtures.
    pub(crate) fn read(&self, context: &Context, buf: &Buf, offset: u64, out: &mut [u8]) {
        let mut seen = lock(&self.seen);
        let mut control = [0; 4];
        let mut chosen = vec![0; self.layers.len() * self.n_expert * 4];
        context.read_all(&mut [
            (buf, offset, out),
            (context.control_buf(), 0, &mut control),
            (&self.chosen, 0, &mut chosen),
        ]);
        seen.control = u32::from_ne_bytes(control);
        let word = |i: usize| u32::from_ne_bytes([0, 1, 2, 3].map(|b| chosen[4 * i + b]));
        let Seen { recorded, chosen: seen_chosen, .. } = &mut *seen;
        seen_chosen.clear();
        for &(layer, k) in recorded.iter() {
            seen_chosen.extend((0..k).map(|j| word(layer * self.n_expert + j)));
        }
    }

    /// The first layer of the mixtures since the last call that had no effect; experts of those before are appended to
    /// `chosen`.
    pub(crate) fn stopped(&self, context: &Context, chosen: &mut Vec<u32>) -> Option<usize> {
        let mut seen = lock(&self.seen);
        let stopped = seen.control.checked_sub(1).map(|layer| layer as usize);
        let done = seen.recorded.iter().take_while(|(layer, _)| Some(*layer) != stopped);
        let n_word: usize = done.map(|(_, k)| k).sum();
        chosen.extend_from_slice(&seen.chosen[..n_word]);
        seen.recorded.clear();
        if stopped.is_some() {
            context.write(context.control_buf(), 0, &[0; 4]);
            seen.control = 0;
        }
        stopped
    }

    /// Has the device find an expert's record at this word, or nowhere.
    pub(crate) fn list(&self, context: &Context, layer: usize, expert: usize, word: u32) {
        put(context, &[word], (&self.table, layer * self.n_expert + expert));
    }
}

/// Writes words to a buffer, from a word on, in turn with what is recorded.
fn put(context: &Context, words: &[u32], (to, at): (&Buf, usize)) {
    let from = u64::from(context.args(words)) * 4;
    context.copy((context.args_buf(), from), (to, at as u64 * 4), words.len() as u64 * 4);
}

fn stride(shape: &HeldShape) -> usize {
    shape.record_bytes.next_multiple_of(RECORD_ALIGN)
}

fn records(shape: &HeldShape) -> Records {
    let planes = |i: usize| {
        let (rows, cols) = if i == 2 { (shape.d_model, shape.d_ff) } else { (shape.d_ff, shape.d_model) };
        shape.formats[i].planes(rows, cols).map(|plane| ((shape.offsets[i] + plane.start) / 4) as u32)
    };
    Records {
        formats: shape.formats,
        d_model: shape.d_model,
        d_ff: shape.d_ff,
        planes: [planes(0), planes(1), planes(2)],
    }
}

#[cfg(test)]
mod tests {
    use kernels::{Backend, Mixture, RouteShape};
    use quant::{Format, Matrix};

    use super::*;
    use crate::Gpu;
    use crate::memory::GpuTensor;
    use crate::test_rig::{assert_same, gpu, random, stored};

    const N_EXPERT: usize = 4;
    const D_MODEL: usize = 128;
    const D_FF: usize = 64;
    const SHAPES: [(usize, usize); 3] = [(D_FF, D_MODEL), (D_FF, D_MODEL), (D_MODEL, D_FF)];
    const A4: Format = Format::Affine { bits: 4, group: 32 };
    const A8: Format = Format::Affine { bits: 8, group: 32 };

    fn matrices(seed: u64, format: Format) -> [Matrix; 3] {
        [0, 1, 2].map(|i| stored(3 * seed + i as u64, format, SHAPES[i].0, SHAPES[i].1))
    }

    fn tensor(gpu: &Gpu, values: &[f32]) -> GpuTensor {
        let mut tensor = gpu.zeros(values.len());
        gpu.write(&mut tensor, 0, values);
        tensor
    }

    fn shape(n_layer: usize) -> Vec<HeldShape> {
        let bytes = SHAPES.map(|(rows, cols)| A4.matrix_bytes(rows, cols));
        let offsets = [0, bytes[0], bytes[0] + bytes[1]];
        let record_bytes = bytes.iter().sum();
        let shape = HeldShape {
            n_expert: N_EXPERT,
            d_model: D_MODEL,
            d_ff: D_FF,
            formats: [A4; 3],
            offsets,
            record_bytes,
        };
        vec![shape; n_layer]
    }

    /// Holds random experts in all places.
    fn hold(gpu: &Gpu, shapes: &[HeldShape]) {
        for (layer, shape) in shapes.iter().enumerate() {
            let memory = gpu.record_memory(N_EXPERT, shape.record_bytes).unwrap().unwrap();
            for (expert, mut record) in memory.into_iter().enumerate() {
                for (i, w) in matrices((100 * layer + expert) as u64, A4).iter().enumerate() {
                    let view = w.view();
                    let planes = A4.planes(view.rows, view.cols);
                    for (plane, bytes) in planes.iter().zip([view.codes, view.scales, view.biases]) {
                        record[shape.offsets[i] + plane.start..][..bytes.len()].copy_from_slice(bytes);
                    }
                }
                gpu.hold(layer, expert, &record, expert, None);
                gpu.finish();
            }
        }
    }

    #[test]
    fn a_mixture_gives_what_its_experts_give_one_by_one() {
        // Breaks if the shared expert takes a routed one's place, pair or row, is another layer's, or is taken for one
        // of the others where its format differs.
        let Some(gpu) = gpu() else { return };
        let shapes = shape(3);
        let mut gpu = gpu.with_experts((shapes.len() * (N_EXPERT + 1) * stride(&shapes[0])) as u64);
        assert_eq!(gpu.hold_layers(&shapes), N_EXPERT);
        gpu.begin(1);
        hold(&gpu, &shapes);
        let shared = [A4, A8, A4].into_iter().enumerate();
        let shared: Vec<_> =
            shared.map(|(i, f)| matrices(1000 + i as u64, f).map(|w| gpu.weights(w))).collect();
        let mut h = tensor(&gpu, &random(1, D_MODEL));
        let (mut x, gate) = (gpu.zeros(D_MODEL), gpu.zeros(1));
        let layers = [0, 1, 2, 0, 2];
        for (call, (layer, k)) in [2, N_EXPERT].into_iter().flat_map(|k| layers.map(|l| (l, k))).enumerate() {
            let logits = tensor(&gpu, &random(call as u64, N_EXPERT));
            let (mut got, mut want) = (gpu.zeros((k + 1) * D_MODEL), gpu.zeros((k + 1) * D_MODEL));
            let rows = [(0, k as u32)];
            let [gate_w, up, down] = &shared[layer];
            let job = || SharedJob { gate: gate_w, up, down, rows: &rows };
            assert!(gpu.mixture(Mixture {
                layer,
                shape: RouteShape { n_expert: N_EXPERT, k, renormalise: true },
                logits: &logits,
                shared: Some((job(), &gate)),
                h: &mut h,
                routed: &mut got,
                x: &mut x,
                norm: None,
            }));
            let read = |tensor: &GpuTensor| {
                let mut values = vec![0.0; (k + 1) * D_MODEL];
                gpu.read(tensor, 0, &mut values);
                values
            };
            let (got, mut chosen) = (read(&got), Vec::new());
            assert_eq!(gpu.stopped(&mut chosen), None);
            for (j, &expert) in chosen.iter().enumerate() {
                let jobs = [HeldJob { expert: expert as usize, rows: &[(0, j as u32)] }];
                gpu.experts_held(layer, &jobs, &h, &mut want);
            }
            gpu.experts(&[], Some(job()), &h, &mut want);
            assert_same(&format!("layer {layer}, {k} experts"), &got, &read(&want));
        }
    }
}
