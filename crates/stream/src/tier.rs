//! Records that a device holds in memory of its own, beside the slots: which, and in which of its places.
//!
//! Each layer has places of its own, so that a device finds all of a layer's in one piece of memory.

use crate::heat::HeatTable;

/// Not held; nothing in this place.
const NONE: u32 = u32::MAX;
/// A layer is trusted to have all that a token needs from this share of the last tokens on that found it so.
const TRUST_MIN: f64 = 0.98;
/// Tokens over which that is counted, about.
const TRUST_TOKENS: f64 = 32.0;
/// A record must be this much hotter (log2) than the one whose place it takes: it has to be copied.
const HOTTER: f64 = 1.0;

/// A record that a device should hold from now on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Admission {
    /// Its layer.
    pub layer: usize,
    /// Its number there.
    pub expert: usize,
    /// Where the device is to put it, of its places for this layer.
    pub place: usize,
    /// The expert of the layer that was there.
    pub instead: Option<usize>,
}

/// What is held where.
#[derive(Default)]
pub(crate) struct Tier {
    /// Places of each layer.
    n_place: usize,
    /// Record in each place, `[n_layer, n_place]`.
    records: Vec<u32>,
    /// Place of each record in its layer, `[n_record]`; empty without places.
    places: Vec<u32>,
    /// Places that are taken, `[n_layer]`.
    n_taken: Vec<usize>,
    /// Share of the last tokens that found all their experts held, `[n_layer]`.
    trust: Vec<f64>,
}

impl Tier {
    pub(crate) fn new(n_layer: usize, n_record: usize, n_place: usize) -> Self {
        Self {
            n_place,
            records: vec![NONE; n_layer * n_place],
            places: vec![NONE; n_record],
            n_taken: vec![0; n_layer],
            trust: vec![0.0; n_layer],
        }
    }

    /// One token went through a layer: were all its experts held?
    pub(crate) fn learn(&mut self, layer: usize, were_held: bool) {
        if let Some(trust) = self.trust.get_mut(layer) {
            *trust += (f64::from(u8::from(were_held)) - *trust) / TRUST_TOKENS;
        }
    }

    /// Will a token probably find all its experts of this layer, of `n_expert`, held?
    pub(crate) fn is_trusted(&self, layer: usize, n_expert: usize) -> bool {
        self.n_place != 0 && (self.n_taken[layer] == n_expert || TRUST_MIN <= self.trust[layer])
    }

    /// Is a record held?
    pub(crate) fn holds(&self, record: usize) -> bool {
        self.places.get(record).is_some_and(|&place| place != NONE)
    }

    /// A place for a record that is not held, and the record that was there: a place that is free, or, if `may_evict`,
    /// that of the coldest record of the layer if this one is clearly hotter.
    pub(crate) fn admit(
        &mut self,
        heat: &HeatTable,
        layer: usize,
        record: usize,
        may_evict: bool,
    ) -> Option<(usize, Option<usize>)> {
        if self.n_place == 0 || self.holds(record) {
            return None;
        }
        let records = &mut self.records[layer * self.n_place..][..self.n_place];
        let (place, old) = if self.n_taken[layer] < self.n_place {
            self.n_taken[layer] += 1;
            (self.n_taken[layer] - 1, None)
        } else {
            let score = |place: &usize| heat.score(records[*place] as usize);
            let coldest = (0..self.n_place).min_by(|a, b| score(a).total_cmp(&score(b)))?;
            if !may_evict || heat.score(record) < score(&coldest) + HOTTER {
                return None;
            }
            (coldest, Some(records[coldest] as usize))
        };
        if let Some(old) = old {
            self.places[old] = NONE;
        }
        records[place] = record as u32;
        self.places[record] = place as u32;
        Some((place, old))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_hottest_are_held() {
        // Breaks if a record gets two places, a place two records, or a cold record pushes out a hot one.
        let mut heat = HeatTable::new(&[4, 4], 8.0);
        let mut tier = Tier::new(2, 8, 2);
        heat.advance(1, 1);
        for (record, uses) in [(4, 8), (5, 1), (6, 1), (7, 3)] {
            heat.add(record, std::iter::repeat_n(0, uses));
        }
        assert_eq!(tier.admit(&heat, 1, 4, false), Some((0, None)));
        assert_eq!(tier.admit(&heat, 1, 5, false), Some((1, None)));
        assert_eq!(tier.admit(&heat, 1, 5, true), None, "it is held already");
        assert_eq!(tier.admit(&heat, 1, 6, true), None, "it is not hotter");
        assert_eq!(tier.admit(&heat, 1, 7, false), None, "nothing is free");
        assert_eq!(tier.admit(&heat, 1, 7, true), Some((1, Some(5))));
        assert_eq!([4, 5, 6, 7].map(|record| tier.holds(record)), [true, false, false, true]);
        assert_eq!(tier.admit(&heat, 0, 0, false), Some((0, None)), "each layer has its own places");
        assert!(!Tier::default().holds(3), "without places nothing is held");
        assert!(!Tier::default().is_trusted(0, 4), "and nothing is trusted");
    }

    #[test]
    fn layers_are_trusted_once_they_hold_what_is_asked_for() {
        // Breaks if a device computes for nothing token by token, or never by itself.
        let (heat, mut tier) = (HeatTable::new(&[2, 2], 8.0), Tier::new(2, 4, 2));
        assert!(!tier.is_trusted(0, 2));
        (0..200).for_each(|_| tier.learn(0, true));
        assert!(tier.is_trusted(0, 2) && !tier.is_trusted(1, 2));
        tier.learn(0, false);
        assert!(!tier.is_trusted(0, 2), "it may be missing again");
        tier.admit(&heat, 1, 2, false);
        assert!(!tier.is_trusted(1, 2));
        tier.admit(&heat, 1, 3, false);
        assert!(tier.is_trusted(1, 2), "nothing can be missing");
    }
}
