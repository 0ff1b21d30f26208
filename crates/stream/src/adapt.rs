//! Which half-life of heat misses least, found out while running.
//!
//! No half-life suits all texts: where experts come back soon, forgetting at once (least recently used) is
//! best, and where some experts are simply popular, never forgetting is. So each candidate runs a cache of
//! its own that holds no bytes, over a sample of the records with a share of the slots (Waldspurger et al.,
//! SHARDS, 2015), and the real cache takes the half-life of the one that missed least lately.

use crate::heat::HeatTable;
use crate::policy::Policy;

/// Half-lives in tokens. The first is in effect least recently used.
const HALF_LIVES: [f64; 4] = [0.25, 8.0, 64.0, 512.0];
const N: usize = HALF_LIVES.len();
/// The half-life whose heats are kept between runs: what was popular, not what came last.
const KEPT: usize = 2;

/// Slots that a sampled cache has at least: fewer would mostly measure chance.
const N_GHOST_SLOT: usize = 256;
/// Misses count half after so many tokens.
const MEMORY_TOKENS: f64 = 256.0;
/// A candidate takes over if it has fewer misses than this share of the present one's.
const BETTER: f64 = 0.97;
/// Misses of the present one before there is any verdict.
const N_MISS_MIN: f64 = 100.0;

/// A cache without bytes: which records would be in memory.
pub(crate) struct Directory {
    policy: Policy,
    /// Slot of each record, or [`u32::MAX`].
    slots: Vec<u32>, // [n_record]
    /// Record and layer of each slot that is taken.
    records: Vec<(usize, usize)>, // [<= n_slot]
    n_slot: usize,
}

impl Directory {
    pub(crate) fn new(n_expert: &[usize], n_slot: usize) -> Self {
        let n_expert_max = n_expert.iter().copied().max().unwrap_or(0);
        Self {
            policy: Policy::new(n_expert.len(), n_expert_max, n_slot),
            slots: vec![u32::MAX; n_expert.iter().sum()],
            records: Vec::with_capacity(n_slot),
            n_slot,
        }
    }

    pub(crate) fn contains(&self, record: usize) -> bool {
        self.slots[record] != u32::MAX
    }

    /// Uses a record of a step, whose heat is up to date; was it in memory? It cannot go until it is listed.
    pub(crate) fn take(&mut self, heat: &HeatTable, layer: usize, record: usize) -> bool {
        let is_hit = self.contains(record);
        let slot = if is_hit {
            let slot = self.slots[record] as usize;
            self.policy.remove(layer, slot);
            slot
        } else if self.records.len() < self.n_slot {
            self.records.push((record, layer));
            self.records.len() - 1
        } else {
            let (layer, slot, _) = self.policy.coldest(heat).expect("a step fits the slots");
            self.policy.remove(layer, slot);
            self.slots[self.records[slot].0] = u32::MAX;
            slot
        };
        self.records[slot] = (record, layer);
        self.slots[record] = slot as u32;
        is_hit
    }

    /// A record that was taken can go.
    pub(crate) fn list(&mut self, heat: &HeatTable, layer: usize, record: usize) {
        self.policy.insert(layer, self.slots[record] as usize, heat.score(record));
    }

    /// Puts all records in the order of other heats.
    pub(crate) fn reorder(&mut self, heat: &HeatTable) {
        for (slot, &(record, layer)) in self.records.iter().enumerate() {
            self.policy.remove(layer, slot);
            self.policy.insert(layer, slot, heat.score(record));
        }
    }
}

/// Heats for all candidates, and the choice among them.
pub(crate) struct Adaptive {
    heats: [HeatTable; N],
    ghosts: Vec<Directory>,
    /// One record in so many is in the sample.
    sample: u64,
    /// Decayed misses of each candidate.
    misses: [f64; N],
    chosen: usize,
}

impl Adaptive {
    /// For a cache of `n_slot` records of layers with so many records each.
    pub(crate) fn new(n_expert: &[usize], n_slot: usize) -> Self {
        let sample = (n_slot / N_GHOST_SLOT).max(1);
        let ghost = |_| Directory::new(n_expert, n_slot / sample);
        // Where everything fits there is nothing to choose.
        let n_ghost = if n_slot < n_expert.iter().sum() { N } else { 0 };
        Self {
            heats: HALF_LIVES.map(|half_life| HeatTable::new(n_expert, half_life)),
            ghosts: (0..n_ghost).map(ghost).collect(),
            sample: sample as u64,
            misses: [0.0; N],
            chosen: 0,
        }
    }

    /// The heats that decide now.
    pub(crate) fn heat(&self) -> &HeatTable {
        &self.heats[self.chosen]
    }

    /// The heats to keep between runs.
    pub(crate) fn kept(&self) -> &HeatTable {
        &self.heats[KEPT]
    }

    /// All heats.
    pub(crate) fn heats_mut(&mut self) -> &mut [HeatTable] {
        &mut self.heats
    }

    /// `n_token` tokens go through a layer.
    pub(crate) fn advance(&mut self, layer: usize, n_token: usize) {
        self.heats.iter_mut().for_each(|heat| heat.advance(layer, n_token));
    }

    /// A record is used by the tokens that go through its layer now: how many came after each of them. Misses
    /// of single tokens count for the choice, those of prompts do not: a prompt is read as a whole and cannot
    /// keep what it needs.
    pub(crate) fn touch(
        &mut self,
        layer: usize,
        record: usize,
        ages: impl Iterator<Item = usize> + Clone,
        is_single: bool,
    ) {
        for heat in &mut self.heats {
            heat.add(record, ages.clone());
        }
        if mix(record as u64).is_multiple_of(self.sample) {
            for ((ghost, heat), misses) in self.ghosts.iter_mut().zip(&self.heats).zip(&mut self.misses) {
                let is_hit = ghost.take(heat, layer, record);
                ghost.list(heat, layer, record);
                *misses += f64::from(u8::from(!is_hit && is_single));
            }
        }
    }

    /// After each token: has the choice changed?
    pub(crate) fn choose(&mut self, n_token: usize) -> bool {
        let fade = (-(n_token as f64) / MEMORY_TOKENS).exp2();
        self.misses.iter_mut().for_each(|misses| *misses *= fade);
        let best = (0..N).min_by(|&a, &b| self.misses[a].total_cmp(&self.misses[b])).unwrap_or(0);
        let now = self.misses[self.chosen];
        let changes = N_MISS_MIN < now && self.misses[best] < BETTER * now;
        if changes {
            self.chosen = best;
        }
        changes
    }
}

/// SplitMix64's mixing function.
fn mix(x: u64) -> u64 {
    let x = x.wrapping_add(0x9E37_79B9_7F4A_7C15);
    let x = (x ^ (x >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    let x = (x ^ (x >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    x ^ (x >> 31)
}
