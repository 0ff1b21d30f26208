//! Which record gives up its slot: the coldest over all layers, among equals the one that was least recently in use.
//!
//! Knows slots as numbers. Only slots that hold a record and that nobody uses are listed: one heap a layer, because
//! scores of one layer never change their order, while those of two layers do as their clocks advance.

use crate::heat::HeatTable;

/// Marks slots that are not listed.
const NONE: u32 = u32::MAX;

#[derive(Clone, Copy, PartialEq, PartialOrd)]
struct Entry {
    score: f64,
    /// Counts insertions.
    age: u64,
    slot: u32,
}

/// Slots that may be reused.
pub(crate) struct Policy {
    /// The coldest on top, `[n_layer]`.
    heaps: Vec<Vec<Entry>>,
    /// Place of each slot in its layer's heap.
    places: Vec<u32>, // [n_slot]
    n_insert: u64,
}

impl Policy {
    /// `n_expert`: the most records of a layer; memory is reserved for all of them.
    pub(crate) fn new(n_layer: usize, n_expert: usize, n_slot: usize) -> Self {
        let heaps = (0..n_layer).map(|_| Vec::with_capacity(n_expert.min(n_slot))).collect();
        Self { heaps, places: vec![NONE; n_slot], n_insert: 0 }
    }

    /// `slot` holds a record of `layer` with this score, and nobody uses it any more.
    ///
    /// # Panics
    /// It is listed already.
    pub(crate) fn insert(&mut self, layer: usize, slot: usize, score: f64) {
        assert!(self.places[slot] == NONE, "slot {slot} is listed already");
        let heap = &mut self.heaps[layer];
        heap.push(Entry { score, age: self.n_insert, slot: slot as u32 });
        self.n_insert += 1;
        let last = heap.len() - 1;
        self.places[slot] = last as u32;
        self.rise(layer, last);
    }

    /// `slot` is in use again, or is given up.
    ///
    /// # Panics
    /// It is not listed under `layer`.
    pub(crate) fn remove(&mut self, layer: usize, slot: usize) {
        let place = self.places[slot] as usize;
        let heap = &mut self.heaps[layer];
        assert!(
            heap.get(place).is_some_and(|entry| entry.slot as usize == slot),
            "slot {slot} is not listed"
        );
        heap.swap_remove(place);
        self.places[slot] = NONE;
        if place < heap.len() {
            self.places[heap[place].slot as usize] = place as u32;
            self.rise(layer, place);
            self.sink(layer, place);
        }
    }

    /// The layer, the slot and the heat (log2) of the coldest record.
    pub(crate) fn coldest(&self, heat: &HeatTable) -> Option<(usize, usize, f64)> {
        let tops = self.heaps.iter().enumerate().filter_map(|(layer, heap)| Some((layer, heap.first()?)));
        let tops = tops.map(|(layer, top)| (heat.log2_of_score(layer, top.score), top.age, layer, top.slot));
        let (heat, _, layer, slot) = tops.min_by(|a, b| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1)))?;
        Some((layer, slot as usize, heat))
    }

    fn rise(&mut self, layer: usize, mut place: usize) {
        while place > 0 && self.is_colder(layer, place, (place - 1) / 2) {
            self.swap(layer, place, (place - 1) / 2);
            place = (place - 1) / 2;
        }
    }

    fn sink(&mut self, layer: usize, mut place: usize) {
        let len = self.heaps[layer].len();
        loop {
            let mut coldest = place;
            for child in (2 * place + 1..2 * place + 3).filter(|&child| child < len) {
                if self.is_colder(layer, child, coldest) {
                    coldest = child;
                }
            }
            if coldest == place {
                return;
            }
            self.swap(layer, place, coldest);
            place = coldest;
        }
    }

    fn is_colder(&self, layer: usize, a: usize, b: usize) -> bool {
        let heap = &self.heaps[layer];
        heap[a].score.total_cmp(&heap[b].score).then(heap[a].age.cmp(&heap[b].age)).is_lt()
    }

    fn swap(&mut self, layer: usize, a: usize, b: usize) {
        let heap = &mut self.heaps[layer];
        heap.swap(a, b);
        self.places[heap[a].slot as usize] = a as u32;
        self.places[heap[b].slot as usize] = b as u32;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const N_LAYER: usize = 3;
    const N_SLOT: usize = 40;

    /// A broken heap loses slots or evicts a warm record: every operation is compared with a plain list.
    #[test]
    fn heaps_equal_a_list() {
        let mut policy = Policy::new(N_LAYER, N_SLOT, N_SLOT);
        let heat = HeatTable::new(&[0; N_LAYER], 1.0);
        let mut model: Vec<(f64, usize, usize)> = Vec::new(); // score, slot, layer; oldest first
        let mut seed = 0x9e37_79b9_7f4a_7c15_u64;
        for _ in 0..20_000 {
            seed ^= seed << 13;
            seed ^= seed >> 7;
            seed ^= seed << 17;
            let (slot, layer) = ((seed >> 8) as usize % N_SLOT, (seed >> 20) as usize % N_LAYER);
            let score = [f64::NEG_INFINITY, 0.0, 1.0, 2.5][(seed >> 30) as usize % 4];
            match (seed % 5, model.iter().position(|m| m.1 == slot)) {
                (0, _) => {
                    let want = model.iter().min_by(|a, b| a.0.total_cmp(&b.0)).copied();
                    let got = policy.coldest(&heat);
                    assert_eq!(got.map(|(layer, slot, heat)| (heat, slot, layer)), want);
                    if let Some((_, slot, layer)) = want {
                        policy.remove(layer, slot);
                        model.retain(|m| m.1 != slot);
                    }
                }
                (_, None) => {
                    policy.insert(layer, slot, score);
                    model.push((score, slot, layer));
                }
                (_, Some(place)) => {
                    let (_, slot, layer) = model.remove(place);
                    policy.remove(layer, slot);
                }
            }
        }
        assert_eq!(policy.heaps.iter().map(Vec::len).sum::<usize>(), model.len());
    }
}
