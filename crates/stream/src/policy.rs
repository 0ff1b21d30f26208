//! Which record gives up its slot: the least recently used over all layers.
//!
//! Knows slots as numbers. Only slots that hold a record and are pinned by no lease are on the list, so a victim is
//! found in O(1) with any number of slots.

/// Marks the end of the list, and slots that are not on it.
const NONE: u32 = u32::MAX;

#[derive(Clone, Copy)]
struct Link {
    older: u32,
    newer: u32,
    listed: bool,
}

/// Slots that may be reused, ordered by when they were last in use: a doubly linked list in one array.
pub(crate) struct Policy {
    links: Vec<Link>,
    oldest: u32,
    newest: u32,
}

impl Policy {
    pub(crate) fn new() -> Self {
        Self { links: Vec::new(), oldest: NONE, newest: NONE }
    }

    /// `slot` holds a record that nobody uses any more.
    ///
    /// # Panics
    /// It is on the list already.
    pub(crate) fn insert(&mut self, slot: usize) {
        if slot >= self.links.len() {
            self.links.resize(slot + 1, Link { older: NONE, newer: NONE, listed: false });
        }
        assert!(!self.links[slot].listed, "slot {slot} is on the list already");
        self.links[slot] = Link { older: self.newest, newer: NONE, listed: true };
        match self.newest {
            NONE => self.oldest = slot as u32,
            newest => self.links[newest as usize].newer = slot as u32,
        }
        self.newest = slot as u32;
    }

    /// `slot` is in use again.
    ///
    /// # Panics
    /// It is not on the list.
    pub(crate) fn remove(&mut self, slot: usize) {
        let Link { older, newer, listed } = self.links[slot];
        assert!(listed, "slot {slot} is not on the list");
        match older {
            NONE => self.oldest = newer,
            older => self.links[older as usize].newer = newer,
        }
        match newer {
            NONE => self.newest = older,
            newer => self.links[newer as usize].older = older,
        }
        self.links[slot].listed = false;
    }

    /// Takes the slot to reuse off the list.
    pub(crate) fn evict(&mut self) -> Option<usize> {
        let slot = match self.oldest {
            NONE => return None,
            slot => slot as usize,
        };
        self.remove(slot);
        Some(slot)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A broken link loses slots or hands one out twice: every operation is compared with a plain vector.
    #[test]
    fn list_equals_a_vector() {
        let (mut policy, mut model) = (Policy::new(), Vec::new());
        let mut seed = 0x9e37_79b9_7f4a_7c15_u64;
        for _ in 0..20_000 {
            seed ^= seed << 13;
            seed ^= seed >> 7;
            seed ^= seed << 17;
            let slot = (seed >> 8) as usize % 40;
            match (seed % 5, model.iter().position(|&s| s == slot)) {
                (0, _) => {
                    let want = (!model.is_empty()).then(|| model.remove(0));
                    assert_eq!(policy.evict(), want);
                }
                (_, None) => {
                    policy.insert(slot);
                    model.push(slot);
                }
                (_, Some(place)) => {
                    policy.remove(slot);
                    model.remove(place);
                }
            }
        }
        for slot in model {
            assert_eq!(policy.evict(), Some(slot));
        }
        assert_eq!(policy.evict(), None);
    }
}
