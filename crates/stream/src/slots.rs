//! The slots: a fixed number of record-sized, page-aligned buffers over all layers, and what is in them.
//!
//! A slot is parked (its memory is with the system), free (memory, no record), being filled (its buffer is
//! with a reader, so nobody can look at half a record), or full; a full slot that nobody uses is listed with
//! the policy. Knows nothing of who wants a record or why.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::adapt::Adaptive;
use crate::io::{Prefault, SlotBuffer, SlotMemory, slot_buffers};
use crate::policy::Policy;
use crate::tier::Tier;
use crate::{CacheMode, StreamError};

/// In the table: not in memory, and not on its way.
const ABSENT: u32 = u32::MAX;

/// With fewer slots nothing could be read while something else is in use.
pub(crate) const N_SLOT_MIN: usize = 2;

/// How many slots may hold memory, shared with whoever watches the machine's memory. Takes effect when the
/// next experts are requested.
#[derive(Clone, Debug)]
pub struct SlotLimit(Arc<AtomicUsize>);

impl SlotLimit {
    /// Slots that may hold memory.
    pub fn get(&self) -> usize {
        self.0.load(Ordering::Relaxed)
    }

    /// Evicts the coldest records if there are more. Never more slots than planned, nor fewer than are in use.
    pub fn set(&self, n_slot: usize) {
        self.0.store(n_slot, Ordering::Relaxed);
    }
}

/// A record's place: which layer, and its number over all layers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Key {
    pub(crate) layer: usize,
    pub(crate) record: usize,
}

/// What is in a slot.
pub(crate) enum Content {
    Empty(SlotBuffer),
    /// The buffer is with a reader.
    Reading,
    Ready(SlotBuffer),
    Failed(SlotBuffer, StreamError),
}

/// Why a record is read that nobody asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Spare {
    /// The next step of its layer may use it.
    Guess,
    /// It was hot in an earlier run.
    Warm,
}

pub(crate) struct Slot {
    pub(crate) content: Content,
    /// The record that it holds, or is to hold.
    pub(crate) key: Key,
    /// Why it was filled, if nobody has asked for it yet.
    pub(crate) spare: Option<Spare>,
    /// How often it is in use.
    n_pin: u32,
}

/// Makes so many slots of so many bytes each, page-aligned; `None`: memory of the system will do.
pub type MakeSlots<'a> = dyn Fn(usize, usize) -> io::Result<Option<Vec<SlotMemory>>> + 'a;

/// All slots.
pub(crate) struct Slots {
    mode: CacheMode,
    limit: SlotLimit,
    slots: Vec<Slot>,
    /// Until the limit falls for the first time.
    prefault: Option<Prefault>,
    /// Slot of each record.
    table: Vec<u32>, // [n_record]
    free: Vec<usize>,
    parked: Vec<usize>,
    policy: Policy,
    pub(crate) heat: Adaptive,
    /// What a device holds as well, or instead.
    pub(crate) tier: Tier,
}

impl Slots {
    /// Room for `n_slot` records of `slot_bytes` at most, of layers with so many records each. Slots take
    /// memory in the background, or when they are first filled.
    /// `make` provides them, if the system does not.
    pub(crate) fn new(
        mode: CacheMode,
        (n_slot, slot_bytes): (usize, usize),
        n_expert: &[usize],
        make: &MakeSlots<'_>,
    ) -> io::Result<Self> {
        let slot = |buffer| Slot {
            content: Content::Empty(buffer),
            key: Key { layer: 0, record: 0 },
            spare: None,
            n_pin: 0,
        };
        let n_expert_max = n_expert.iter().copied().max().unwrap_or(0);
        let buffers = match make(n_slot, slot_bytes)? {
            Some(given) => given.into_iter().map(SlotBuffer::Given).collect(),
            None => slot_buffers(n_slot, slot_bytes)?,
        };
        assert_eq!(buffers.len(), n_slot, "slots that were made");
        Ok(Self {
            mode,
            limit: SlotLimit(Arc::new(AtomicUsize::new(n_slot))),
            prefault: Prefault::start(&buffers),
            slots: buffers.into_iter().map(slot).collect(),
            table: vec![ABSENT; n_expert.iter().sum()],
            free: Vec::with_capacity(n_slot),
            parked: (0..n_slot).rev().collect(),
            policy: Policy::new(n_expert.len(), n_expert_max, n_slot),
            heat: Adaptive::new(n_expert, n_slot),
            tier: Tier::default(),
        })
    }

    /// Most slots there can be.
    pub(crate) fn n_slot(&self) -> usize {
        self.slots.len()
    }

    /// Records of all layers.
    pub(crate) fn n_record(&self) -> usize {
        self.table.len()
    }

    /// Slots that hold memory.
    pub(crate) fn n_live(&self) -> usize {
        self.slots.len() - self.parked.len()
    }

    /// Slots that may hold memory now.
    fn n_limit(&self) -> usize {
        self.limit.get().max(N_SLOT_MIN)
    }

    pub(crate) fn limit(&self) -> &SlotLimit {
        &self.limit
    }

    pub(crate) fn get(&self, slot: usize) -> &Slot {
        &self.slots[slot]
    }

    pub(crate) fn is_ready(&self, slot: usize) -> bool {
        matches!(self.slots[slot].content, Content::Ready(_))
    }

    /// Where a record is, or is on its way to.
    pub(crate) fn find(&self, key: Key) -> Option<usize> {
        Some(self.table[key.record]).filter(|&slot| slot != ABSENT).map(|slot| slot as usize)
    }

    /// The slot's record is in use once more.
    pub(crate) fn pin(&mut self, slot_idx: usize) {
        let slot = &mut self.slots[slot_idx];
        slot.n_pin += 1;
        slot.spare = None;
        if slot.n_pin == 1 && matches!(slot.content, Content::Ready(_)) {
            self.policy.remove(slot.key.layer, slot_idx);
        }
    }

    /// Lists all slots that nobody uses in the order of the present heats.
    pub(crate) fn reorder(&mut self) {
        for (slot_idx, slot) in self.slots.iter().enumerate() {
            if slot.n_pin == 0 && matches!(slot.content, Content::Ready(_)) {
                self.policy.remove(slot.key.layer, slot_idx);
                self.policy.insert(slot.key.layer, slot_idx, self.heat.heat().score(slot.key.record));
            }
        }
    }

    /// The read of a spare record is being given up: whoever asks for the record from now on has it read
    /// again, unless it turns out to be whole.
    pub(crate) fn abandon(&mut self, slot_idx: usize) {
        let slot = &mut self.slots[slot_idx];
        slot.spare = None;
        if matches!(slot.content, Content::Reading) {
            self.table[slot.key.record] = ABSENT;
        }
    }

    /// Undoes one [`Self::pin`] or [`Self::fill`].
    pub(crate) fn unpin(&mut self, slot_idx: usize) {
        let slot = &mut self.slots[slot_idx];
        slot.n_pin -= 1;
        if slot.n_pin == 0 {
            self.settle(slot_idx);
        }
    }

    /// A slot to fill, and its buffer; in use unless it is spare. A free one, or a parked one within the
    /// limit, or that of the coldest record, if that one is colder (log2 of its heat) than `heat_max`.
    /// `None`: there is no such slot now.
    pub(crate) fn fill(
        &mut self,
        key: Key,
        spare: Option<Spare>,
        heat_max: f64,
    ) -> Option<(usize, SlotBuffer)> {
        assert!(self.find(key).is_none(), "layer {} record {} is filled twice", key.layer, key.record);
        let slot_idx = self.vacate(heat_max)?;
        self.table[key.record] = slot_idx as u32;
        let slot = &mut self.slots[slot_idx];
        let buffer = match std::mem::replace(&mut slot.content, Content::Reading) {
            Content::Empty(buffer) | Content::Ready(buffer) => buffer,
            _ => unreachable!("a slot that is vacant is empty, or holds a record that nobody uses"),
        };
        (slot.key, slot.spare, slot.n_pin) = (key, spare, u32::from(spare.is_none()));
        Some((slot_idx, buffer))
    }

    /// The read of a slot is over. A record that failed, or was given up, is read again for whoever asks next.
    pub(crate) fn filled(&mut self, slot_idx: usize, content: Content) {
        let slot = &mut self.slots[slot_idx];
        assert!(matches!(slot.content, Content::Reading), "slot {slot_idx} is not being filled");
        let place = &mut self.table[slot.key.record];
        let is_abandoned = *place != slot_idx as u32;
        slot.content = match content {
            // Somebody asked for it meanwhile and has it read into another slot.
            Content::Ready(buffer) if is_abandoned && *place != ABSENT => Content::Empty(buffer),
            Content::Ready(buffer) => {
                *place = slot_idx as u32;
                Content::Ready(buffer)
            }
            content => {
                *place = if is_abandoned { *place } else { ABSENT };
                content
            }
        };
        if slot.n_pin == 0 {
            self.settle(slot_idx);
        }
    }

    /// Where nothing is read ([`CacheMode::Assumed`]): a full slot that passes for the record, once all slots
    /// are live.
    pub(crate) fn stand_in(&self, key: Key) -> Option<usize> {
        if self.mode != CacheMode::Assumed || self.n_live() < self.n_limit() {
            return None;
        }
        let n_slot = self.slots.len();
        (0..n_slot).map(|i| (key.record + i) % n_slot).find(|&slot| self.is_ready(slot))
    }

    /// Evicts the coldest records until the limit is kept, and gives their memory back. What is in use stays.
    pub(crate) fn keep_limit(&mut self) {
        if self.n_limit() < self.n_slot()
            && let Some(prefault) = self.prefault.take()
        {
            // It has ended when it is dropped: what it took for slots that were never filled goes back.
            drop(prefault);
            for &slot_idx in &self.parked {
                if let Content::Empty(buffer) = &mut self.slots[slot_idx].content {
                    buffer.discard();
                }
            }
        }
        while self.n_limit() < self.n_live() {
            let Some(slot_idx) = self.free.pop().or_else(|| self.evict(f64::INFINITY)) else { return };
            let slot = &mut self.slots[slot_idx];
            let mut buffer = match std::mem::replace(&mut slot.content, Content::Reading) {
                Content::Empty(buffer) | Content::Ready(buffer) => buffer,
                _ => unreachable!("a slot that is vacant is empty, or holds a record that nobody uses"),
            };
            buffer.discard();
            slot.content = Content::Empty(buffer);
            self.parked.push(slot_idx);
        }
    }

    fn vacate(&mut self, heat_max: f64) -> Option<usize> {
        if let Some(slot) = self.free.pop() {
            return Some(slot);
        }
        if self.n_live() < self.n_limit()
            && let Some(slot) = self.parked.pop()
        {
            return Some(slot);
        }
        self.evict(heat_max)
    }

    fn evict(&mut self, heat_max: f64) -> Option<usize> {
        let (layer, slot, heat) = self.policy.coldest(self.heat.heat())?;
        (heat < heat_max).then(|| {
            self.policy.remove(layer, slot);
            self.table[self.slots[slot].key.record] = ABSENT;
            slot
        })
    }

    /// Decides what becomes of a slot that nobody uses any more.
    fn settle(&mut self, slot_idx: usize) {
        let slot = &mut self.slots[slot_idx];
        slot.content = match std::mem::replace(&mut slot.content, Content::Reading) {
            Content::Ready(buffer) if self.mode != CacheMode::Page => {
                let record = slot.key.record;
                // What a device holds needs no slot.
                let score =
                    if self.tier.holds(record) { f64::NEG_INFINITY } else { self.heat.heat().score(record) };
                self.policy.insert(slot.key.layer, slot_idx, score);
                Content::Ready(buffer)
            }
            Content::Ready(buffer) => {
                self.table[slot.key.record] = ABSENT;
                self.free.push(slot_idx);
                Content::Empty(buffer)
            }
            Content::Empty(buffer) | Content::Failed(buffer, _) => {
                self.free.push(slot_idx);
                Content::Empty(buffer)
            }
            // `filled` settles it.
            Content::Reading => return,
        };
    }
}
