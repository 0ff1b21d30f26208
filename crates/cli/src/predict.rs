//! How fast a model will be on a machine: arithmetic on measured rates, nothing else.
//!
//! A layer of one token is its dense products, then its experts: those that are in memory are computed while the
//! missing ones are read, so the longer of the two counts. A prompt goes through in chunks, and a chunk reads each
//! expert that it needs once. In the last layer only the last token of a prompt goes on to the experts.

use model::Footprint;
use store::{Manifest, Role, Source};

/// Between the router's choice and the first byte, and what else a layer does once: seconds.
const LAYER_S: f64 = 2e-4;
/// What norms, rotary embedding, softmax and the delta rule add to the products of a prompt.
const MIXING: f64 = 1.1;
/// Rates differ from run to run by about this much.
const RATE_ERROR: f64 = 0.12;

/// Hit rates of real conversations that were published for caches of a share of all experts: share, hits.
/// For models of 512, 256 and 128 experts a layer.
const CURVE_512: [(f64, f64); 8] = [
    (0.0, 0.0),
    (0.039, 0.47),
    (0.059, 0.56),
    (0.12, 0.68),
    (0.17, 0.79),
    (0.25, 0.81),
    (0.37, 0.93),
    (1.0, 1.0),
];
const CURVE_256: [(f64, f64); 6] =
    [(0.0, 0.0), (0.10, 0.56), (0.15, 0.65), (0.41, 0.917), (0.62, 0.948), (1.0, 1.0)];
const CURVE_128: [(f64, f64); 5] = [(0.0, 0.0), (0.12, 0.53), (0.24, 0.74), (0.40, 0.92), (1.0, 1.0)];
/// How far apart published hit rates of one share are.
const CURVE_ERROR: f64 = 0.08;

/// Which experts tokens choose.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Routing {
    /// As conversations do.
    Real,
    /// Made up: the `r`-th most popular expert as `r` to the power of minus this; 0 is evenly. Below 1.
    Zipf(f64),
}

impl Routing {
    /// What `synth` notes of its stores.
    fn of(source: &Source) -> Self {
        let zipf = |text: &str| text.parse().ok().filter(|exponent| (0.0..1.0).contains(exponent));
        match source.fingerprint.split_once(", routing ") {
            _ if source.kind != "synthetic" => Routing::Real,
            None => Routing::Zipf(0.0),
            Some((_, text)) => text.strip_prefix("zipf:").and_then(zipf).map_or(Routing::Real, Routing::Zipf),
        }
    }
}

/// What a model asks of a machine.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Needs {
    n_layer: f64,
    n_expert: f64,
    n_expert_used: f64,
    record_bytes: f64,
    /// Dense weights of all layers.
    dense_bytes: f64,
    /// The head: once a token in decode, once a prompt in prefill.
    head_bytes: f64,
    /// Recurrent state, read and written for each token.
    state_bytes: f64,
    routing: Routing,
}

impl Needs {
    pub(crate) fn of(manifest: &Manifest, n_expert_used: usize) -> Self {
        let footprint = Footprint::of(manifest);
        let head_role = if manifest.config.tie_word_embeddings { Role::Embed } else { Role::LmHead };
        let bytes_of = |is_wanted: &dyn Fn(&store::DenseTensor) -> bool| {
            manifest.dense.iter().filter(|t| is_wanted(t)).map(|t| t.bytes() as f64).sum()
        };
        Self {
            n_layer: manifest.config.n_layer() as f64,
            n_expert: manifest.config.n_expert as f64,
            n_expert_used: n_expert_used as f64,
            record_bytes: footprint.record_bytes as f64,
            dense_bytes: bytes_of(&|t| t.layer.is_some()),
            head_bytes: bytes_of(&|t| t.role == head_role),
            state_bytes: footprint.state_bytes as f64,
            routing: Routing::of(&manifest.source),
        }
    }

    /// Share of expert requests that `n_slot` slots serve, once they are filled; and how wrong that may be.
    pub(crate) fn hit_rate(&self, n_slot: usize) -> (f64, f64) {
        let share = (n_slot as f64 / (self.n_layer * self.n_expert)).min(1.0);
        if let Routing::Zipf(exponent) = self.routing {
            // What the most popular ones are asked for, if those are the ones that are kept.
            return (share.powf(1.0 - exponent), 0.02 + 0.2 * exponent);
        }
        let curve: &[(f64, f64)] = match self.n_expert {
            400.0.. => &CURVE_512,
            200.0.. => &CURVE_256,
            _ => &CURVE_128,
        };
        (interpolate(curve, share), if share < 1.0 { CURVE_ERROR } else { 0.0 })
    }

    /// The same for a model whose earlier runs made `share` of their requests to its `n_slot` hottest experts: the next
    /// texts are neither all other ones nor the same.
    pub(crate) fn hit_rate_after(&self, n_slot: usize, share: f64) -> (f64, f64) {
        let (expected, error) = self.hit_rate(n_slot);
        if self.routing != Routing::Real {
            // It is known, and a sample of it is noise.
            return (expected, error);
        }
        ((expected + share) / 2.0, error.max((expected - share).abs()) / 2.0)
    }

    /// Seconds until a token's experts are there.
    pub(crate) fn supply_s(&self, supply: &Supply, hit_rate: f64) -> f64 {
        self.n_layer * self.n_expert_used * self.record_bytes * supply.seconds(hit_rate)
    }

    /// Experts that `n_token` tokens need in a layer, if they choose evenly.
    fn union(&self, n_token: f64) -> f64 {
        self.n_expert * (1.0 - (1.0 - self.n_expert_used / self.n_expert).powf(n_token))
    }
}

/// The point of `curve` at `x`, which is within it.
fn interpolate(curve: &[(f64, f64)], x: f64) -> f64 {
    let segment = curve.windows(2).find(|w| x <= w[1].0).unwrap_or(&curve[curve.len() - 2..]);
    let [(x0, y0), (x1, y1)] = [segment[0], segment[1]];
    y0 + (y1 - y0) * (x - x0) / (x1 - x0)
}

/// Seconds of products with `n` tokens: `bytes · (weight_s + n · token_s)`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Product {
    /// For each byte of weights, whatever the number of tokens.
    pub(crate) weight_s: f64,
    /// For each byte of weights and token.
    pub(crate) token_s: f64,
}

impl Product {
    /// From the seconds that a byte took with one token and with `n`.
    pub(crate) fn fit(one: f64, many: f64, n: usize) -> Self {
        let token_s = ((many - one) / (n.max(2) - 1) as f64).clamp(0.0, one);
        Self { weight_s: one - token_s, token_s }
    }

    pub(crate) fn seconds(&self, bytes: f64, n_token: f64) -> f64 {
        bytes * (self.weight_s + n_token * self.token_s)
    }

    fn scaled(&self, factor: f64) -> Self {
        Self { weight_s: self.weight_s * factor, token_s: self.token_s * factor }
    }
}

/// How experts get to where they are computed: seconds a byte.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Supply {
    /// A hit: nothing from a slot, a copy from the page cache.
    pub(crate) hit_s: f64,
    pub(crate) miss_s: f64,
}

impl Supply {
    /// A byte, on average.
    fn seconds(&self, hit_rate: f64) -> f64 {
        hit_rate * self.hit_s + (1.0 - hit_rate) * self.miss_s
    }
}

/// What was measured.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Rates {
    pub(crate) supply: Supply,
    pub(crate) ram_bytes_s: f64,
    pub(crate) dense: Product,
    pub(crate) experts: Product,
}

/// What a token waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Limit {
    Drive,
    Processor,
}

/// Seconds, and what decides them.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Time {
    pub(crate) seconds: f64,
    pub(crate) limit: Limit,
}

impl Time {
    fn new(seconds: f64, read_s: f64, compute_s: f64) -> Self {
        Self { seconds, limit: if compute_s < read_s { Limit::Drive } else { Limit::Processor } }
    }
}

/// One token, with the share `hit_rate` of its experts in memory.
pub(crate) fn decode(needs: &Needs, rates: &Rates, hit_rate: f64) -> Time {
    let used_bytes = needs.n_expert_used * needs.record_bytes;
    let read_s = used_bytes * rates.supply.seconds(hit_rate);
    let experts_s = rates.experts.seconds(used_bytes, 1.0);
    // What comes last is computed when it is there.
    let last_s = (1.0 - hit_rate.powf(needs.n_expert_used)) * experts_s / needs.n_expert_used;
    let dense_s = rates.dense.seconds(needs.dense_bytes + needs.head_bytes, 1.0);
    let state_s = 2.0 * needs.state_bytes / rates.ram_bytes_s;
    let layers_s = needs.n_layer * (read_s.max(experts_s) + last_s + LAYER_S);
    let compute_s = dense_s + state_s + needs.n_layer * experts_s;
    Time::new(dense_s + state_s + layers_s, needs.n_layer * read_s, compute_s)
}

/// A prompt of `n_token` in chunks of `n_batch`, when nothing is in the `n_slot` slots yet. Their memory is there: it
/// is taken while the program starts.
pub(crate) fn prefill(needs: &Needs, rates: &Rates, n_token: usize, n_batch: usize, n_slot: usize) -> Time {
    let share = (n_slot as f64 / (needs.n_layer * needs.n_expert)).min(1.0);
    let n_whole = needs.n_layer - 1.0;
    // The last layer's experts.
    let last_bytes = needs.n_expert_used * needs.record_bytes;
    let (last_s, mut read_s) = (rates.experts.seconds(last_bytes, 1.0), last_bytes * rates.supply.miss_s);
    let mut seconds = last_s.max(read_s) + LAYER_S;
    let mut compute_s = last_s;
    for start in (0..n_token).step_by(n_batch.max(1)) {
        let n = n_batch.max(1).min(n_token - start) as f64;
        let n_needed = needs.union(n);
        let needed_bytes = n_needed * needs.record_bytes;
        let kept = if start == 0 { 0.0 } else { share };
        let read = needed_bytes * rates.supply.seconds(kept);
        let rows = n * needs.n_expert_used / n_needed;
        let experts = rates.experts.seconds(needed_bytes, rows);
        let dense = rates.dense.seconds(needs.dense_bytes / needs.n_layer, n) * MIXING;
        seconds += needs.n_layer * dense + n_whole * (experts.max(read) + LAYER_S);
        read_s += n_whole * read;
        compute_s += needs.n_layer * dense + n_whole * experts;
    }
    let head_s = rates.dense.seconds(needs.head_bytes, 1.0);
    Time::new(seconds + head_s, read_s, compute_s + head_s)
}

/// A figure and where it may lie.
#[derive(Clone, Copy, Debug, PartialEq, serde::Serialize)]
pub(crate) struct Band {
    pub(crate) low: f64,
    pub(crate) likely: f64,
    pub(crate) high: f64,
}

impl Band {
    /// Of `figure`, given the factor on all times and the hit rate.
    fn of(hit_rate: (f64, f64), figure: impl Fn(f64, f64) -> f64) -> Self {
        let (hit_rate, error) = hit_rate;
        let hit_rate = |change: f64| (hit_rate + change).clamp(0.0, 1.0);
        let ends =
            [figure(1.0 + RATE_ERROR, hit_rate(-error)), figure(1.0 / (1.0 + RATE_ERROR), hit_rate(error))];
        Self { low: ends[0].min(ends[1]), likely: figure(1.0, hit_rate(0.0)), high: ends[0].max(ends[1]) }
    }
}

/// What a user will see.
#[derive(Clone, Copy, Debug, PartialEq, serde::Serialize)]
pub(crate) struct Prediction {
    /// Share of expert requests that will be served from memory.
    pub(crate) hit_rate: f64,
    pub(crate) decode_tok_s: Band,
    pub(crate) decode_limit: Limit,
    /// A prompt of `n_prompt` tokens, with nothing in memory yet.
    pub(crate) n_prompt: usize,
    pub(crate) prefill_tok_s: Band,
    pub(crate) prefill_limit: Limit,
    /// From the prompt to the first token of the answer.
    pub(crate) first_token_s: Band,
}

impl Prediction {
    /// For a plan of `n_slot` slots and chunks of `n_batch` tokens.
    pub(crate) fn new(
        needs: &Needs,
        rates: &Rates,
        n_slot: usize,
        n_batch: usize,
        hit_rate: (f64, f64),
        n_prompt: usize,
    ) -> Self {
        let slower = |factor: f64| Rates {
            supply: Supply { hit_s: rates.supply.hit_s * factor, miss_s: rates.supply.miss_s * factor },
            ram_bytes_s: rates.ram_bytes_s / factor,
            dense: rates.dense.scaled(factor),
            experts: rates.experts.scaled(factor),
        };
        let decode = |factor: f64, hit_rate: f64| decode(needs, &slower(factor), hit_rate);
        let prompt = |factor: f64| prefill(needs, &slower(factor), n_prompt, n_batch, n_slot);
        Self {
            hit_rate: hit_rate.0,
            decode_tok_s: Band::of(hit_rate, |factor, hit_rate| 1.0 / decode(factor, hit_rate).seconds),
            decode_limit: decode(1.0, hit_rate.0).limit,
            n_prompt,
            prefill_tok_s: Band::of(hit_rate, |factor, _| n_prompt as f64 / prompt(factor).seconds),
            prefill_limit: prompt(1.0).limit,
            first_token_s: Band::of(hit_rate, |factor, _| prompt(factor).seconds),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 397B at 4 bits, about.
    const NEEDS: Needs = Needs {
        n_layer: 60.0,
        n_expert: 512.0,
        n_expert_used: 10.0,
        record_bytes: 7.08e6,
        dense_bytes: 4.4e9,
        head_bytes: 0.6e9,
        state_bytes: 195e6,
        routing: Routing::Real,
    };

    /// A machine whose products run at 100 GB/s of weights and 2 TFLOP/s.
    fn rates(drive_bytes_s: f64) -> Rates {
        let product = Product { weight_s: 1e-11, token_s: 2e-12 };
        Rates {
            supply: Supply { hit_s: 0.0, miss_s: 1.0 / drive_bytes_s },
            ram_bytes_s: 120e9,
            dense: product,
            experts: product,
        }
    }

    #[track_caller]
    fn near(got: f64, expected: f64) {
        assert!((got / expected - 1.0).abs() < 0.02, "{got} instead of {expected}");
    }

    /// The speed on slow and on fast drives would be wrong by more than the band says.
    #[test]
    fn decode_is_the_longer_of_reading_and_computing() {
        // 70 % of 4.25 GB are read at 5 GB/s; 5 GB of dense weights and states are computed before.
        let slow = decode(&NEEDS, &rates(5e9), 0.3);
        near(slow.seconds, 0.5947 + 0.06 + 0.00325 + 60.0 * (2e-4 + 8.5e-5));
        assert_eq!(slow.limit, Limit::Drive);
        // Everything is in memory: all bytes at the products' speed.
        let fast = decode(&NEEDS, &rates(5e9), 1.0);
        near(fast.seconds, 0.051 + 0.06 + 0.00325 + 60.0 * 2e-4);
        assert_eq!(fast.limit, Limit::Processor);
    }

    /// A prompt would be charged for reading an expert once a token, or not at all.
    #[test]
    fn a_chunk_reads_each_expert_once() {
        let whole = prefill(&NEEDS, &rates(5e9), 512, 512, 0);
        // 512 tokens need all experts of all layers but the last: 214 GB at 5 GB/s.
        assert!(42.7 < whole.seconds && whole.seconds < 50.0, "{whole:?}");
        assert_eq!(whole.limit, Limit::Drive);
        let halves = prefill(&NEEDS, &rates(5e9), 512, 256, 0);
        assert!(1.8 < halves.seconds / whole.seconds, "{halves:?}");
        // With slots for all of them the second half reads nothing.
        let kept = prefill(&NEEDS, &rates(5e9), 512, 256, 60 * 512);
        assert!(kept.seconds < 0.6 * halves.seconds, "{kept:?}");
        assert_eq!(prefill(&NEEDS, &rates(1e15), 512, 512, 0).limit, Limit::Processor);
        // One layer is the last one: 512 tokens through the dense weights, and ten experts.
        let one = prefill(&Needs { n_layer: 1.0, ..NEEDS }, &rates(5e9), 512, 512, 0);
        near(one.seconds, 4.4e9 * (1e-11 + 512.0 * 2e-12) * MIXING + 0.01416 + 2e-4 + 0.0072);
    }

    /// The share of slots would be taken for the share of hits, or a curve read wrongly.
    #[test]
    fn hits_follow_the_published_curve_or_the_share() {
        let at = |share: f64, needs: &Needs| needs.hit_rate((share * 60.0 * needs.n_expert) as usize).0;
        near(at(0.12, &NEEDS), 0.68);
        near(at(0.145, &NEEDS), 0.735);
        near(at(0.10, &Needs { n_expert: 256.0, ..NEEDS }), 0.56);
        near(at(0.40, &Needs { n_expert: 128.0, ..NEEDS }), 0.92);
        let synthetic = |fingerprint: &str| {
            let source =
                Source { kind: "synthetic".into(), fingerprint: fingerprint.into(), skipped: vec![] };
            at(0.25, &Needs { routing: Routing::of(&source), ..NEEDS })
        };
        near(synthetic("seed 0"), 0.25);
        near(synthetic("seed 0, routing zipf:0.5"), 0.5);
        near(synthetic("seed 0, routing topics:8,1.5"), 0.81);
        let (hit_rate, error) = NEEDS.hit_rate_after((0.12 * 60.0 * 512.0) as usize, 0.88);
        near(hit_rate, 0.78);
        near(error, 0.1);
        assert_eq!(NEEDS.hit_rate(0).0, 0.0);
        assert_eq!(NEEDS.hit_rate(60 * 512), (1.0, 0.0));
        assert_eq!(NEEDS.hit_rate(usize::MAX).0, 1.0);
    }

    /// The figure would lie outside its own band.
    #[test]
    fn bands_hold_their_figure() {
        for n_slot in [0, 10, 4000, 60 * 512] {
            let p = Prediction::new(&NEEDS, &rates(5e9), n_slot, 512, NEEDS.hit_rate(n_slot), 512);
            for band in [p.decode_tok_s, p.prefill_tok_s, p.first_token_s] {
                assert!(0.0 < band.low && band.low <= band.likely && band.likely <= band.high, "{p:?}");
                assert!(band.high.is_finite());
            }
        }
    }

    /// Products of many tokens would be predicted from noise: negative or slower than one by one.
    #[test]
    fn products_are_fitted() {
        let product = Product::fit(1e-10, 4e-10, 31);
        near(product.seconds(1e9, 1.0), 0.1);
        near(product.seconds(1e9, 31.0), 0.4);
        near(Product::fit(1e-10, 0.5e-10, 16).seconds(1e9, 100.0), 0.1);
        near(Product::fit(1e-10, 1e-8, 2).seconds(1e9, 2.0), 0.2);
    }
}
