//! How much each record is in use: an exponentially decayed count of its uses, kept for all records, in
//! memory or not.
//!
//! The heat of a record is `Σ 2^(-age / half_life)` over its past uses (LRFU of Lee et al., 2001), divided by
//! the same sum over all tokens that went through its layer: the share of the tokens of late that used it. Ages
//! are in tokens of the layer. So neither layers that come later within a token look colder, nor a last layer
//! that only the last token of a prompt goes through. A prompt counts as its tokens would one by one. The sums
//! are kept as logarithms relative to the layer's clock at zero: then they only change when a record is used.

use xxhash_rust::xxh3::xxh3_64;

/// `log2` of the heat of a record that was never used.
const COLD: f64 = f64::NEG_INFINITY;

/// Heats of all records, for one half-life.
pub(crate) struct HeatTable {
    half_life: f64,
    /// `log2` of the sum over uses `+ clock / half_life`, `[n_record]`.
    scores: Vec<f64>,
    /// Tokens that went through, `[n_layer]`.
    clocks: Vec<f64>,
    /// The sum over tokens, `[n_layer]`.
    totals: Vec<f64>,
    /// What makes a heat of a score: `clock / half_life + log2(total)`, `[n_layer]`.
    levels: Vec<f64>,
    /// Layer of each record.
    layers: Vec<u32>, // [n_record]
    /// `2^(-age / half_life)` of each age that was seen.
    fades: Vec<f64>,
}

impl HeatTable {
    /// `n_expert`: the records of each layer; `half_life` in tokens.
    pub(crate) fn new(n_expert: &[usize], half_life: f64) -> Self {
        let layers = n_expert.iter().enumerate().flat_map(|(l, &n)| std::iter::repeat_n(l as u32, n));
        let layers: Vec<u32> = layers.collect();
        Self {
            half_life,
            scores: vec![COLD; layers.len()],
            clocks: vec![0.0; n_expert.len()],
            totals: vec![0.0; n_expert.len()],
            levels: vec![0.0; n_expert.len()],
            layers,
            fades: Vec::new(),
        }
    }

    /// `n_token` more tokens go through the layer.
    pub(crate) fn advance(&mut self, layer: usize, n_token: usize) {
        let n = n_token as f64;
        let fade = |age: f64| (-age / self.half_life).exp2();
        self.clocks[layer] += n;
        // The tokens before fade, and a geometric series comes in.
        self.totals[layer] = self.totals[layer] * fade(n) + (1.0 - fade(n)) / (1.0 - fade(1.0));
        self.levels[layer] = self.clocks[layer] / self.half_life + self.totals[layer].max(1.0).log2();
    }

    /// The record was used by the tokens that went through its layer so many tokens before the last one.
    pub(crate) fn add(&mut self, record: usize, ages: impl Iterator<Item = usize> + Clone) {
        // Relative to the last use: an old one is little, not nothing.
        let Some(last) = ages.clone().min() else { return };
        let mut heat = 0.0;
        for age in ages.map(|age| age - last) {
            for next in self.fades.len()..=age {
                self.fades.push((-(next as f64) / self.half_life).exp2());
            }
            heat += self.fades[age];
        }
        let used = (self.clocks[self.layers[record] as usize] - last as f64) / self.half_life;
        self.scores[record] = log2_sum(self.scores[record], used + heat.log2());
    }

    /// `log2` of the heat that the record would have if it were used `n` times now.
    pub(crate) fn after_uses(&self, record: usize, n: f64) -> f64 {
        let layer = self.layers[record] as usize;
        let used = self.clocks[layer] / self.half_life + n.log2();
        self.log2_of_score(layer, log2_sum(self.scores[record], used))
    }

    /// What orders the records of one layer, until one of them is used.
    pub(crate) fn score(&self, record: usize) -> f64 {
        self.scores[record]
    }

    /// `log2` of the heat now.
    pub(crate) fn log2(&self, record: usize) -> f64 {
        self.log2_of_score(self.layers[record] as usize, self.scores[record])
    }

    /// `log2` of the heat now, of a score of that layer.
    pub(crate) fn log2_of_score(&self, layer: usize, score: f64) -> f64 {
        score - self.levels[layer]
    }
}

/// `log2(2^a + 2^b)`
fn log2_sum(a: f64, b: f64) -> f64 {
    let (low, high) = if a < b { (a, b) } else { (b, a) };
    if low == COLD { high } else { high + (low - high).exp2().ln_1p() * std::f64::consts::LOG2_E }
}

/// Heats of a model's records at some time, to be kept between runs.
#[derive(Clone, Debug, PartialEq)]
pub struct Heat {
    /// `log2` of each record's heat, negative infinity for one that was never used.
    pub(crate) log2: Vec<f32>, // [n_record]
}

/// First bytes of the encoded form; the last digit is its version.
const MAGIC: &[u8; 8] = b"FMHEAT01";

impl HeatTable {
    pub(crate) fn export(&self) -> Heat {
        Heat { log2: (0..self.scores.len()).map(|record| self.log2(record) as f32).collect() }
    }

    /// The heats count as much as half of the longest memory that there is.
    ///
    /// # Panics
    /// There are not as many as records.
    pub(crate) fn import(&mut self, heat: &Heat) {
        assert_eq!(heat.log2.len(), self.scores.len(), "heats are of as many records");
        let total = (0.5 / (1.0 - (-1.0 / self.half_life).exp2())).max(1.0);
        for layer in 0..self.clocks.len() {
            self.totals[layer] = total;
            self.levels[layer] = self.clocks[layer] / self.half_life + total.log2();
        }
        for ((score, &layer), &log2) in self.scores.iter_mut().zip(&self.layers).zip(&heat.log2) {
            *score = f64::from(log2) + self.levels[layer as usize];
        }
    }
}

impl Heat {
    /// Share of all uses, old ones counting less, that fell on the `n` hottest records; `None` if there were no uses.
    pub fn hottest_share(&self, n: usize) -> Option<f64> {
        let mut heats: Vec<f64> = self.log2.iter().map(|&log2| f64::from(log2).exp2()).collect();
        heats.sort_unstable_by(|a, b| b.total_cmp(a));
        let all: f64 = heats.iter().sum();
        let hottest: f64 = heats.iter().take(n).sum();
        Some(hottest / all).filter(|share| share.is_finite())
    }

    /// Bytes for a file: magic, fingerprint of the model, number of records, an f32 a record, xxh3-64 of all before;
    /// little-endian.
    pub fn encode(&self, fingerprint: u64) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(32 + 4 * self.log2.len());
        bytes.extend_from_slice(MAGIC);
        bytes.extend_from_slice(&fingerprint.to_le_bytes());
        bytes.extend_from_slice(&(self.log2.len() as u64).to_le_bytes());
        self.log2.iter().for_each(|log2| bytes.extend_from_slice(&log2.to_le_bytes()));
        let sum = xxh3_64(&bytes);
        bytes.extend_from_slice(&sum.to_le_bytes());
        bytes
    }

    /// Heats from the bytes of a file. `None`: they are damaged, of another version, or of another model.
    pub fn decode(bytes: &[u8], fingerprint: u64) -> Option<Self> {
        let (body, sum) = bytes.split_last_chunk::<8>()?;
        let (magic, rest) = body.split_first_chunk::<8>()?;
        let (model, rest) = rest.split_first_chunk::<8>()?;
        let (n_record, rest) = rest.split_first_chunk::<8>()?;
        let (values, []) = rest.as_chunks::<4>() else { return None };
        let is_ours = magic == MAGIC
            && u64::from_le_bytes(*sum) == xxh3_64(body)
            && u64::from_le_bytes(*model) == fingerprint
            && u64::from_le_bytes(*n_record) == values.len() as u64;
        let log2: Vec<f32> = values.iter().map(|v| f32::from_le_bytes(*v)).collect();
        (is_ours && !log2.iter().any(|v| v.is_nan() || *v == f32::INFINITY)).then_some(Self { log2 })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Any heats that a file may hold.
    fn heats() -> impl Strategy<Value = Heat> {
        let log2 = prop_oneof![Just(f32::NEG_INFINITY), -40f32..0.0, any::<f32>()];
        let is_allowed = |v: &f32| !v.is_nan() && *v != f32::INFINITY;
        prop::collection::vec(log2.prop_filter("a heat", is_allowed), 0..40).prop_map(|log2| Heat { log2 })
    }

    /// The bytes with the checksum that they should have.
    fn sealed(body: &[u8]) -> Vec<u8> {
        [body, &xxh3_64(body).to_le_bytes()].concat()
    }

    proptest! {
        /// Heats come back as others, or a cut, longer or foreign file as a whole one.
        #[test]
        fn what_is_encoded_is_decoded(heat in heats(), model in any::<u64>(), cut in 1..40usize) {
            let bytes = heat.encode(model);
            prop_assert_eq!(Heat::decode(&bytes, model), Some(heat));
            prop_assert_eq!(Heat::decode(&bytes, model ^ 1 << (cut % 64)), None);
            let body = &bytes[..bytes.len() - 8];
            // Also where the checksum is right: the length is checked by itself.
            prop_assert_eq!(Heat::decode(&sealed(&body[..body.len().saturating_sub(cut)]), model), None);
            prop_assert_eq!(Heat::decode(&sealed(&[body, &vec![0; cut]].concat()), model), None);
        }

        /// Bytes that are no heats: a panic, or heats that cannot be worked with.
        #[test]
        fn garbage_is_refused(
            magic in prop_oneof![Just(*MAGIC), any::<[u8; 8]>()],
            n_record in prop_oneof![0..6u64, any::<u64>()],
            values in prop::collection::vec(any::<u32>(), 0..6),
        ) {
            let values: Vec<u8> = values.iter().flat_map(|v| v.to_le_bytes()).collect();
            let body = [&magic[..], &7u64.to_le_bytes(), &n_record.to_le_bytes(), &values].concat();
            prop_assert_eq!(Heat::decode(&body, 7), None);
            let bytes = sealed(&body);
            if let Some(heat) = Heat::decode(&bytes, 7) {
                prop_assert_eq!(heat.encode(7), bytes);
                let mut table = HeatTable::new(&[heat.log2.len()], 20.0);
                table.import(&heat);
                for record in 0..heat.log2.len() {
                    table.advance(0, 1);
                    table.add(record, std::iter::once(0));
                    prop_assert!(!table.log2(record).is_nan() && !table.after_uses(record, 3.0).is_nan());
                }
            }
        }

        /// A share of uses that is none.
        #[test]
        fn shares_are_shares(heat in heats(), n in 0..50usize) {
            if let Some(share) = heat.hottest_share(n) {
                prop_assert!((0.0..=1.0).contains(&share), "{share}");
            }
        }
    }

    /// The order of eviction would not be that of decayed use.
    #[test]
    fn heat_is_the_decayed_sum_of_uses() {
        for half_life in [0.25, 20.0] {
            let mut table = HeatTable::new(&[2, 3], half_life);
            let mut uses: Vec<Vec<f64>> = vec![Vec::new(); 5]; // clock of each use
            let mut tokens: Vec<Vec<f64>> = vec![Vec::new(); 2]; // clock of each token of a layer
            for step in 1..400_usize {
                let n_token = if step % 50 == 0 { 9 } else { 1 };
                for layer in 0..2 {
                    table.advance(layer, n_token);
                    tokens[layer].extend((0..n_token).map(|age| table.clocks[layer] - age as f64));
                    let record = if layer == 0 { step % 2 } else { 2 + step % 7 % 3 };
                    let ages = (0..n_token).rev().filter(|age| (step + age) % 11 < 7);
                    table.add(record, ages.clone());
                    uses[record].extend(ages.map(|age| table.clocks[layer] - age as f64));
                }
            }
            for (record, uses) in uses.iter().enumerate() {
                let layer = usize::from(record > 1);
                let sum = |at: &[f64]| -> f64 {
                    at.iter().map(|at| ((at - table.clocks[layer]) / half_life).exp2()).sum()
                };
                let expected = (sum(uses) / sum(&tokens[layer])).log2();
                let got = table.log2(record);
                assert!((got - expected).abs() < 1e-6, "record {record}: {got}, not {expected}");
            }
        }
    }

    /// Hit rates would be predicted that are none.
    #[test]
    fn the_hottest_have_their_share() {
        let heat = Heat { log2: vec![1.0, f32::NEG_INFINITY, 0.0, 0.0] };
        let shares: Vec<_> = (0..6).map(|n| heat.hottest_share(n).unwrap()).collect();
        assert_eq!(shares, [0.0, 0.5, 0.75, 1.0, 1.0, 1.0]);
        let unused = Heat { log2: vec![f32::NEG_INFINITY; 3] };
        assert_eq!(unused.hottest_share(2), None);
        assert_eq!(Heat { log2: vec![1e30] }.hottest_share(1), None);
    }

    /// A file of another model, or a damaged one, would warm the wrong experts.
    #[test]
    fn files_are_checked() {
        let mut table = HeatTable::new(&[3], 8.0);
        table.advance(0, 1);
        table.add(1, std::iter::once(0));
        let heat = table.export();
        assert_eq!(heat.log2, [f32::NEG_INFINITY, 0.0, f32::NEG_INFINITY]);
        let bytes = heat.encode(7);
        assert_eq!(Heat::decode(&bytes, 7), Some(heat.clone()));
        assert_eq!(Heat::decode(&bytes, 8), None);
        for end in 0..bytes.len() {
            assert_eq!(Heat::decode(&bytes[..end], 7), None, "cut at {end}");
        }
        for i in 0..bytes.len() {
            let mut damaged = bytes.clone();
            damaged[i] ^= 1;
            assert_eq!(Heat::decode(&damaged, 7), None, "byte {i}");
        }
        let nan = Heat { log2: vec![f32::NAN; 3] }.encode(7);
        assert_eq!(Heat::decode(&nan, 7), None);
        let mut other = HeatTable::new(&[3], 8.0);
        other.import(&heat);
        assert_eq!(other.export(), heat);
    }
}
