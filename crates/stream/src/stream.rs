//! All experts of a model: what is used now, what is read for it, and what is read ahead.
//!
//! Bookkeeping happens on the thread that calls; readers only fill buffers. Steady-state use allocates nothing.

use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::heat::Heat;
use crate::io::{Done, Job, Outcome, Readers, Urgency};
use crate::lookahead::Lookahead;
use crate::slots::{Content, Key, MakeSlots, N_SLOT_MIN, SlotLimit, Slots, Spare};
use crate::tier::{Admission, Tier};
use crate::{Backing, CacheMode, Method, ReadAt, StreamError, StreamOptions};

/// Records of one lease that are being read or wait to be computed, at most: enough to keep any drive busy,
/// and no more, since the records of a whole prompt would push everything else out of memory.
const N_WINDOW: usize = 32;

/// Guesses that may be read and unused at a time: a share of the slots, and what one token needs.
const GUESS_SHARE: usize = 4;
const GUESSES_MIN: usize = 16;

/// What a guess weighs against what it evicts, in uses: if it is right, its read would have evicted the same
/// record a moment later, and if it is wrong, the next miss takes its slot.
const GUESS_USES: f64 = 8.0;

/// One layer's records.
pub struct RecordFile {
    /// Where they are.
    pub source: Box<dyn ReadAt>,
    /// From one record to the next; expert `e` starts at `e · stride_bytes`.
    pub stride_bytes: usize,
    /// Records.
    pub n_expert: usize,
    /// xxh3-64 of each record, all `stride_bytes` of it, `[n_expert]`; a checkpoint has none.
    pub xxh3: Option<Vec<u64>>,
}

/// Counters since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct StreamStats {
    /// Requests that found their record in a slot, or on its way into one.
    pub n_hit: u64,
    /// Requests that had to read.
    pub n_miss: u64,
    /// Those of the hits that a device held in memory of its own.
    pub n_held: u64,
    /// Bytes read, failed attempts and reads ahead included.
    pub read_bytes: u64,
    /// Reads tried again.
    pub n_retry: u64,
    /// Time in which the engine waited for reads.
    pub wait: Duration,
    /// Time that the readers spent reading and checking, added up over all readers.
    pub read: Duration,
    /// Records whose reads were queued before anybody requested them; a wrong one may end before it began.
    pub n_prefetch: u64,
    /// Those of them that were requested while they were there or on their way.
    pub n_prefetch_hit: u64,
}

/// Requests of one layer since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LayerStats {
    /// Found in a slot, or on their way into one.
    pub n_hit: u64,
    /// Had to be read.
    pub n_miss: u64,
}

/// Experts of one layer that are being used. They come in any order: [`ExpertStream::next`].
#[derive(Debug, Default)]
#[must_use = "its slots stay in use until it is released"]
pub struct Lease {
    layer: usize,
    /// `[n]`, as requested.
    experts: Vec<usize>,
    /// Slot of each, once it has one.
    slots: Vec<Option<usize>>, // [n]
    /// Places (indices of `experts`) that are in a slot or on their way, and were not given yet.
    pending: Vec<usize>,
    /// Places that have no slot yet, the next one last.
    missing: Vec<usize>,
    /// Places that a device holds.
    held: Vec<usize>,
    n_token: usize,
    /// Is its use counted?
    is_noted: bool,
    /// Was it read for this lease?
    is_read: Vec<bool>, // [n]
    /// Places that were read for this lease and were not given back.
    n_read: usize,
    /// Places that the last call of `next` gave.
    ready: Vec<usize>,
    /// Places given before that, which are still being used.
    kept: Vec<usize>,
}

impl Lease {
    /// The layer.
    pub fn layer(&self) -> usize {
        self.layer
    }

    /// Experts, as requested.
    pub fn experts(&self) -> &[usize] {
        &self.experts
    }

    /// Places of those that a device holds ([`ExpertStream::hold`]): [`ExpertStream::next`] does not give them.
    pub fn held(&self) -> &[usize] {
        &self.held
    }

    /// Must some of them be read?
    pub fn must_read(&self) -> bool {
        0 < self.n_read || !self.missing.is_empty()
    }

    /// Places (indices of [`Self::experts`]) that the last call of [`ExpertStream::next`] gave.
    pub fn ready(&self) -> &[usize] {
        &self.ready
    }
}

/// All experts of a model.
pub struct ExpertStream {
    mode: CacheMode,
    layers: Arc<Vec<RecordFile>>,
    /// Record number of each layer's expert 0.
    first: Vec<usize>, // [n_layer]
    slots: Slots,
    readers: Readers,
    /// Jobs that the readers have.
    n_flying: usize,
    /// Slots that are filled without being asked for, some of them asked for meanwhile.
    spare: Vec<usize>,
    lookahead: Lookahead,
    stats: StreamStats,
    layer_stats: Vec<LayerStats>,
    /// Released leases, kept for their capacity.
    leases: Vec<Lease>,
    /// Scratch, kept for its capacity.
    jobs: Vec<Job>,
    done: Vec<Done>,
}

impl ExpertStream {
    /// Starts the readers. Slots take memory when they are first needed.
    ///
    /// # Errors
    /// Fewer than 2 slots, no memory for their addresses, or no threads.
    pub fn new(layers: Vec<RecordFile>, options: StreamOptions) -> Result<Self, StreamError> {
        Self::new_in(layers, options, &|_, _| Ok(None))
    }

    /// As [`Self::new`], with slots that `make` provides. They keep their memory.
    ///
    /// # Errors
    /// As [`Self::new`], and what `make` says.
    pub fn new_in(
        layers: Vec<RecordFile>,
        options: StreamOptions,
        make: &MakeSlots<'_>,
    ) -> Result<Self, StreamError> {
        let n_slot = options.n_slot;
        if n_slot < N_SLOT_MIN {
            return Err(StreamError::TooFewSlots { n_slot, n_min: N_SLOT_MIN });
        }
        let n_expert: Vec<usize> = layers.iter().map(|layer| layer.n_expert).collect();
        let first = (0..layers.len()).map(|layer| n_expert[..layer].iter().sum()).collect();
        let n_record = n_expert.iter().sum();
        let slot_bytes = layers.iter().map(|layer| layer.stride_bytes).max().unwrap_or(0);
        let n_slot = n_slot.min(usize::max(n_record, N_SLOT_MIN));
        let slots = Slots::new(options.mode, (n_slot, slot_bytes), &n_expert, make)
            .map_err(|source| StreamError::Allocate { bytes: n_slot.saturating_mul(slot_bytes), source })?;
        let layers = Arc::new(layers);
        Ok(Self {
            mode: options.mode,
            first,
            slots,
            readers: Readers::new(Arc::clone(&layers), options.tuning)?,
            n_flying: 0,
            spare: Vec::with_capacity(n_slot),
            lookahead: Lookahead::new(layers.len()),
            stats: StreamStats::default(),
            layer_stats: vec![LayerStats::default(); layers.len()],
            leases: Vec::new(),
            jobs: Vec::with_capacity(n_slot),
            done: Vec::with_capacity(n_slot),
            layers,
        })
    }

    /// How files should be opened for a cache mode.
    pub fn backing(mode: CacheMode) -> Backing {
        match mode {
            CacheMode::Slots | CacheMode::Assumed => Backing::Direct,
            CacheMode::Page => Backing::Buffered,
        }
    }

    /// Are all layers read past the page cache?
    pub fn is_direct(&self) -> bool {
        self.layers.iter().all(|layer| layer.source.is_direct())
    }

    /// How reads are issued in fact: the tuning's method where system and sources allow it.
    pub fn method(&self) -> Method {
        self.readers.method()
    }

    /// Most slots there can be.
    pub fn n_slot(&self) -> usize {
        self.slots.n_slot()
    }

    /// Slots that hold memory now.
    pub fn n_live_slot(&self) -> usize {
        self.slots.n_live()
    }

    /// How many slots may hold memory: to be lowered when others need it.
    pub fn limit(&self) -> SlotLimit {
        self.slots.limit().clone()
    }

    /// Counters.
    pub fn stats(&self) -> StreamStats {
        self.stats
    }

    /// Counters by layer.
    pub fn layer_stats(&self) -> &[LayerStats] {
        &self.layer_stats
    }

    /// Takes experts of a layer into use, for `n_token` tokens, and starts reading those that are not in
    /// memory, up to a window. Returns without waiting. `experts` are distinct and in file order; `tokens_of`
    /// a place in them are the tokens (below `n_token`) that use it.
    ///
    /// # Panics
    /// There is no such layer or expert, or an expert is requested twice.
    pub fn lease<T: Iterator<Item = usize> + Clone>(
        &mut self,
        layer: usize,
        n_token: usize,
        experts: &[usize],
        tokens_of: impl Fn(usize) -> T,
    ) -> Lease {
        self.take_done();
        if layer == 0 && self.slots.heat.choose(n_token) {
            self.slots.reorder();
        }
        self.slots.keep_limit();
        self.slots.heat.advance(layer, n_token);
        let mut lease = self.leases.pop().unwrap_or_default();
        (lease.layer, lease.n_token) = (layer, n_token);
        for (place, &expert) in experts.iter().enumerate() {
            let record = self.key(layer, expert).record;
            lease.experts.push(expert);
            lease.slots.push(None);
            lease.is_read.push(false);
            let list = if self.slots.tier.holds(record) { &mut lease.held } else { &mut lease.missing };
            list.push(place);
        }
        if !lease.missing.is_empty() {
            // What is read must not push out what is used now.
            self.note_use(&mut lease, &tokens_of);
        }
        lease.missing.reverse();
        let n_right = self.take_present(&mut lease);
        let n_wrong = self.drop_wrong_guesses(layer);
        let (n, n_miss) = (lease.experts.len(), lease.missing.len());
        if n_token == 1 {
            self.slots.tier.learn(layer, lease.held.len() == n);
        }
        self.lookahead.learn(layer, n_token, [n_right, n_wrong], n_miss + n_right);
        self.count(layer, n - n_miss, n_miss, lease.held.len());
        self.start_reads(&mut lease);
        lease
    }

    /// Takes note of which tokens use the experts of a lease, if that was not done yet: where nothing has to be read it
    /// can wait until the device has work. `tokens_of` as for [`Self::lease`].
    pub fn note_use<T: Iterator<Item = usize> + Clone>(
        &mut self,
        lease: &mut Lease,
        tokens_of: &impl Fn(usize) -> T,
    ) {
        if std::mem::replace(&mut lease.is_noted, true) {
            return;
        }
        let Lease { layer, n_token, .. } = *lease;
        for (place, &expert) in lease.experts.iter().enumerate() {
            let record = self.key(layer, expert).record;
            let ages = tokens_of(place).map(|token| n_token - 1 - token);
            self.slots.heat.touch(layer, record, ages, n_token == 1);
        }
    }

    /// Takes note that one token used these experts of a layer, which a device holds and has computed by itself.
    ///
    /// # Panics
    /// There is no such layer or expert.
    pub fn note_held(&mut self, layer: usize, experts: impl ExactSizeIterator<Item = usize>) {
        if layer == 0 && self.slots.heat.choose(1) {
            self.slots.reorder();
        }
        self.slots.heat.advance(layer, 1);
        self.slots.tier.learn(layer, true);
        self.count(layer, experts.len(), 0, experts.len());
        for expert in experts {
            let record = self.key(layer, expert).record;
            self.slots.heat.touch(layer, record, std::iter::once(0), true);
        }
    }

    fn count(&mut self, layer: usize, n_hit: usize, n_miss: usize, n_held: usize) {
        self.stats.n_hit += n_hit as u64;
        self.stats.n_miss += n_miss as u64;
        self.stats.n_held += n_held as u64;
        self.layer_stats[layer].n_hit += n_hit as u64;
        self.layer_stats[layer].n_miss += n_miss as u64;
    }

    /// A device can hold so many records of each layer.
    pub fn hold(&mut self, n_place: usize) {
        self.slots.tier = Tier::new(self.layers.len(), self.slots.n_record(), n_place);
    }

    /// Will the device probably find all experts that a token needs of this layer in its own memory?
    pub fn trusts_held(&self, layer: usize) -> bool {
        self.slots.tier.is_trusted(layer, self.layers[layer].n_expert)
    }

    /// Whether the device should hold the expert at a place that [`Self::next`] gave last; if so, it counts as held
    /// from now on. Only a free place is taken, unless `may_evict`.
    pub fn admit(&mut self, lease: &Lease, place: usize, may_evict: bool) -> Option<Admission> {
        let (layer, expert) = (lease.layer, lease.experts[place]);
        let Key { record, .. } = self.key(layer, expert);
        let Slots { tier, heat, .. } = &mut self.slots;
        let (place, old) = tier.admit(heat.heat(), layer, record, may_evict)?;
        Some(Admission { layer, expert, place, instead: old.map(|record| record - self.first[layer]) })
    }

    /// Gives back what the last call gave, and then gives the experts that are in memory by now, at most
    /// `n_max`, of those that were not given before: their places are [`Lease::ready`]. If there is none,
    /// waits for one. `false`: all were given. This is the one place where the engine waits for I/O.
    ///
    /// # Errors
    /// A record could not be read or does not match its checksum, or other leases hold all slots. The lease must still
    /// be released.
    pub fn next(&mut self, lease: &mut Lease, n_max: usize) -> Result<bool, StreamError> {
        self.give_back(lease);
        self.next_ready(lease, n_max, &mut || {})
    }

    /// As [`Self::next`], for a device that still reads what earlier calls gave: that stays in use until the lease is
    /// released, or until slots are needed; `finish` then waits for the device.
    ///
    /// # Errors
    /// As [`Self::next`].
    pub fn next_keeping(
        &mut self,
        lease: &mut Lease,
        n_max: usize,
        finish: &mut dyn FnMut(),
    ) -> Result<bool, StreamError> {
        lease.kept.append(&mut lease.ready);
        self.next_ready(lease, n_max, finish)
    }

    fn next_ready(
        &mut self,
        lease: &mut Lease,
        n_max: usize,
        finish: &mut dyn FnMut(),
    ) -> Result<bool, StreamError> {
        // A layer of a long prompt takes a while, and memory may be needed now.
        self.slots.keep_limit();
        loop {
            self.take_done();
            self.start_reads(lease);
            if !lease.missing.is_empty() && !lease.kept.is_empty() {
                finish();
                lease.ready.append(&mut lease.kept);
                self.give_back(lease);
                self.start_reads(lease);
            }
            self.take_ready(lease, n_max)?;
            if !lease.ready.is_empty() {
                return Ok(true);
            }
            if lease.pending.is_empty() && lease.missing.is_empty() {
                return Ok(false);
            }
            if self.n_flying == 0 {
                let n_slot = self.slots.n_live();
                return Err(StreamError::TooFewSlots { n_slot, n_min: n_slot + 1 });
            }
            if lease.pending.is_empty() {
                // Every slot is waiting for a record that nobody asked for.
                self.cancel_spare();
            }
            self.wait_done();
        }
    }

    /// The bytes of the expert at a place that [`Self::next`] gave last: `stride_bytes` of its layer.
    ///
    /// # Panics
    /// It was not given, or was given back.
    pub fn record(&self, lease: &Lease, place: usize) -> &[u8] {
        let slot = lease.slots[place].map(|slot| &self.slots.get(slot).content);
        match slot {
            Some(Content::Ready(buffer)) => &buffer[..self.layers[lease.layer].stride_bytes],
            _ => panic!("layer {} expert {} is not in memory", lease.layer, lease.experts[place]),
        }
    }

    /// Ends a lease. Its reads that are still under way go on; their records may be hits later.
    pub fn release(&mut self, mut lease: Lease) {
        lease.slots.iter().flatten().for_each(|&slot| self.slots.unpin(slot));
        lease.experts.clear();
        lease.slots.clear();
        lease.pending.clear();
        lease.missing.clear();
        lease.ready.clear();
        lease.kept.clear();
        lease.held.clear();
        lease.is_noted = false;
        lease.is_read.clear();
        lease.n_read = 0;
        self.leases.push(lease);
    }

    /// Is it worth guessing what the next step of this layer, of `n_token` tokens, needs?
    pub fn prefetch_pays(&self, layer: usize, n_token: usize) -> bool {
        self.mode == CacheMode::Slots && self.lookahead.pays(layer, n_token)
    }

    /// Starts reading experts of a layer that will probably be used next, the likeliest first: behind
    /// everything that was asked for, and only where nothing hotter has to go.
    ///
    /// # Panics
    /// There is no such layer or expert.
    pub fn prefetch(&mut self, layer: usize, experts: &[usize]) {
        if self.mode != CacheMode::Slots {
            return;
        }
        self.take_done();
        // The records of a whole prompt would push out each other.
        let n_max = self.slots.n_live() / GUESS_SHARE + GUESSES_MIN;
        for &expert in experts {
            let key = self.key(layer, expert);
            let is_there = self.slots.find(key).is_some() || self.slots.tier.holds(key.record);
            if !is_there && self.spare.len() < n_max {
                let heat = self.slots.heat.heat().after_uses(key.record, GUESS_USES);
                if !self.start_spare(key, expert, Spare::Guess, heat) {
                    break;
                }
            }
        }
        self.submit();
    }

    /// How much each record was used.
    pub fn heat(&self) -> Heat {
        self.slots.heat.kept().export()
    }

    /// Takes over what was hot in an earlier run and starts reading it into empty slots, the hottest first, behind
    /// everything that is asked for.
    ///
    /// # Errors
    /// It is of a model with other layers or experts.
    pub fn warm(&mut self, heat: &Heat) -> Result<(), StreamError> {
        let (n_record, n_heat) = (self.slots.n_record(), heat.log2.len());
        if n_heat != n_record {
            return Err(StreamError::OtherHeat { n_record, n_heat });
        }
        self.slots.heat.heats_mut().iter_mut().for_each(|table| table.import(heat));
        if self.mode != CacheMode::Slots {
            return Ok(());
        }
        let all = (0..self.first.len())
            .flat_map(|layer| (0..self.layers[layer].n_expert).map(move |expert| (layer, expert)));
        let mut keys: Vec<(Key, usize)> =
            all.map(|(layer, expert)| (self.key(layer, expert), expert)).collect();
        let score = |key: Key| self.slots.heat.heat().score(key.record);
        keys.retain(|&(key, _)| score(key) > f64::NEG_INFINITY);
        keys.sort_by(|a, b| score(b.0).total_cmp(&score(a.0)));
        for (key, expert) in keys {
            let is_there = self.slots.find(key).is_some() || self.slots.tier.holds(key.record);
            if !is_there && !self.start_spare(key, expert, Spare::Warm, f64::NEG_INFINITY) {
                break;
            }
        }
        self.submit();
        Ok(())
    }

    fn key(&self, layer: usize, expert: usize) -> Key {
        let n_expert = self.layers[layer].n_expert;
        assert!(expert < n_expert, "layer {layer} has {n_expert} experts, there is no number {expert}");
        Key { layer, record: self.first[layer] + expert }
    }

    /// Pins the experts that are in memory or on their way; how many of those were guesses.
    fn take_present(&mut self, lease: &mut Lease) -> usize {
        let mut n_right = 0;
        let Lease { layer, experts, slots, pending, missing, .. } = lease;
        missing.retain(|&place| {
            let key = self.key(*layer, experts[place]);
            let Some(slot) = self.slots.find(key).or_else(|| self.slots.stand_in(key)) else { return true };
            if let Some(spare) = self.slots.get(slot).spare {
                n_right += usize::from(spare == Spare::Guess);
                self.readers.promote(slot);
            }
            self.slots.pin(slot);
            slots[place] = Some(slot);
            pending.push(place);
            false
        });
        self.stats.n_prefetch_hit += n_right as u64;
        n_right
    }

    /// Gives up what is being read for this layer and was not asked for now; how many guesses were wrong.
    fn drop_wrong_guesses(&mut self, layer: usize) -> usize {
        let mut n_wrong = 0;
        self.spare.retain(|&slot_idx| {
            let slot = self.slots.get(slot_idx);
            let is_wrong = slot.spare == Some(Spare::Guess) && slot.key.layer == layer;
            let stays = match slot.spare {
                Some(Spare::Guess) => !is_wrong,
                // Once it is there, nothing is left to be given up.
                Some(Spare::Warm) => matches!(slot.content, Content::Reading),
                None => false,
            };
            if is_wrong {
                n_wrong += 1;
                self.slots.abandon(slot_idx);
                self.readers.cancel(slot_idx);
            }
            stays
        });
        n_wrong
    }

    /// Reads missing experts, as far as the window and the slots allow.
    fn start_reads(&mut self, lease: &mut Lease) {
        while lease.n_read < N_WINDOW
            && let Some(&place) = lease.missing.last()
        {
            let key = self.key(lease.layer, lease.experts[place]);
            // Meanwhile another lease may have asked for it.
            let slot = match self.slots.find(key).or_else(|| self.slots.stand_in(key)) {
                Some(slot) => {
                    self.slots.pin(slot);
                    slot
                }
                None => match self.slots.fill(key, None, f64::INFINITY) {
                    Some((slot, buffer)) => {
                        let (layer, expert) = (lease.layer, lease.experts[place]);
                        self.jobs.push(Job { urgency: Urgency::Demand, slot, layer, expert, buffer });
                        slot
                    }
                    None => break,
                },
            };
            (lease.slots[place], lease.is_read[place]) = (Some(slot), true);
            lease.n_read += 1;
            lease.pending.push(place);
            lease.missing.pop();
        }
        self.submit();
    }

    /// Puts a record on the list of jobs, if a slot can be had for it.
    fn start_spare(&mut self, key: Key, expert: usize, spare: Spare, heat_max: f64) -> bool {
        let Some((slot, buffer)) = self.slots.fill(key, Some(spare), heat_max) else { return false };
        self.jobs.push(Job { urgency: Urgency::Spare, slot, layer: key.layer, expert, buffer });
        self.spare.push(slot);
        self.stats.n_prefetch += 1;
        true
    }

    fn submit(&mut self) {
        self.n_flying += self.jobs.len();
        self.readers.submit(&mut self.jobs);
    }

    fn cancel_spare(&mut self) {
        for slot in self.spare.drain(..) {
            if self.slots.get(slot).spare.is_some() {
                self.slots.abandon(slot);
                self.readers.cancel(slot);
            }
        }
    }

    fn give_back(&mut self, lease: &mut Lease) {
        for place in lease.ready.drain(..) {
            if let Some(slot) = lease.slots[place].take() {
                self.slots.unpin(slot);
                lease.n_read -= usize::from(lease.is_read[place]);
            }
        }
    }

    /// Moves places from `pending` to `ready`.
    fn take_ready(&mut self, lease: &mut Lease, n_max: usize) -> Result<(), StreamError> {
        let Lease { slots, pending, ready, .. } = lease;
        let mut failure = None;
        pending.retain(|&place| {
            let slot = slots[place].expect("a pending place has a slot");
            match &self.slots.get(slot).content {
                Content::Ready(_) if ready.len() < n_max => {
                    ready.push(place);
                    false
                }
                Content::Failed(_, error) => {
                    failure.get_or_insert_with(|| error.duplicate());
                    true
                }
                _ => true,
            }
        });
        failure.map_or(Ok(()), Err)
    }

    /// Takes over what the readers have finished.
    fn take_done(&mut self) {
        let mut done = std::mem::take(&mut self.done);
        self.readers.take_done(&mut done);
        self.accept(done);
    }

    /// The same, but waits until there is something.
    fn wait_done(&mut self) {
        let start = Instant::now();
        let mut done = std::mem::take(&mut self.done);
        self.readers.wait_done(&mut done);
        self.stats.wait += start.elapsed();
        self.accept(done);
    }

    fn accept(&mut self, mut done: Vec<Done>) {
        self.n_flying -= done.len();
        for Done { slot, buffer, outcome, cost } in done.drain(..) {
            self.stats.read_bytes += cost.read_bytes;
            self.stats.n_retry += cost.n_retry;
            self.stats.read += cost.read;
            let content = match outcome {
                Outcome::Ready => Content::Ready(buffer),
                Outcome::Failed(error) => Content::Failed(buffer, error),
                Outcome::Cancelled => Content::Empty(buffer),
            };
            self.slots.filled(slot, content);
        }
        self.done = done;
    }
}
