//! Experts in memory of the device, and mixtures that it computes without the host.

use std::sync::Mutex;

use kernels::{HeldJob, HeldShape};

use crate::context::{Bind, Buf, Context, lock};
use crate::memory::RecordSlab;
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
    /// What [`crate::ops::route::RouteStep`] writes, `[n_layer, n_expert]` times [`PAIR_WORDS`]: those of a layer stay
    /// within its slab, whatever happens.
    pairs: Buf,
    /// Experts that the last mixture of each layer chose, `[n_layer, n_expert]`.
    chosen: Buf,
    seen: Mutex<Seen>,
}

/// A layer.
struct Held {
    records: Records,
    /// `[n_place, stride]`
    slab: Buf,
    stride_bytes: usize,
    /// Place of each expert that is held.
    places: Mutex<Vec<Option<usize>>>,
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
        let words = |n: usize| context.buffer((layers.len() * n_expert * n * 4) as u64);
        let (table, pairs, chosen) = (words(1), words(PAIR_WORDS), words(1));
        context.write_large(&table, 0, &vec![0xff; layers.len() * n_expert * 4]);
        context.write_large(&pairs, 0, &vec![0xff; layers.len() * n_expert * PAIR_WORDS * 4]);
        let held = |shape: &HeldShape| {
            let stride_bytes = stride(shape);
            Held {
                records: records(shape),
                slab: context.buffer((n_place * stride_bytes) as u64),
                stride_bytes,
                places: Mutex::new(vec![None; shape.n_expert]),
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

    /// Most places of a layer that a kernel can see, and that fit into `bytes` over all layers.
    pub(crate) fn n_place(context: &Context, layers: &[HeldShape], bytes: u64) -> usize {
        let all: u64 = layers.iter().map(|shape| stride(shape) as u64).sum();
        let largest = layers.iter().map(stride).max().unwrap_or(1).max(1) as u64;
        let n_expert = layers.iter().map(|l| l.n_expert).min().unwrap_or(0) as u64;
        (bytes / all.max(1)).min(context.binding_bytes_max() / largest).min(n_expert) as usize
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
        (self.pairs.bind(), (layer * self.n_expert * PAIR_WORDS) as u32)
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
        let at = context.args(&[word]);
        let to = (layer * self.n_expert + expert) as u64 * 4;
        context.copy((context.args_buf(), u64::from(at) * 4), (&self.table, to), 4);
    }
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
