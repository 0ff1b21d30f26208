//! From logits to the next token: penalties, truncation, draw.
//!
//! The order is that of Hugging Face's processors: repetition penalty, frequency and presence penalty, the
//! caller's bias (so that its -100 and 100 mean never and always whatever the penalties are), what is not
//! allowed is left out, then (unless greedy) temperature, top-k, top-p, min-p, and one draw. Everything is a
//! function of logits, history, parameters and seed: the same inputs give the same token on every machine.
//! Ties are won by the lowest id.

use std::cmp::Ordering;
use std::collections::HashMap;

use crate::config::GenerationConfig;
use crate::error::GenerateError;

/// Largest bias of a token, either way.
const BIAS_MAX: f32 = 100.0;

/// How the next token is chosen.
#[derive(Clone, Debug, PartialEq)]
pub struct SamplingParams {
    /// Divides the logits; 0 is greedy: the largest logit wins and nothing below but the penalties matters.
    pub temperature: f32,
    /// Only this many most likely tokens stay; 0 keeps all.
    pub top_k: usize,
    /// Of those the fewest whose probabilities sum to at least this; 1 keeps all.
    pub top_p: f32,
    /// Of those the ones with at least this fraction of the most likely one's probability; 0 keeps all.
    pub min_p: f32,
    /// Subtracted from the logit of every token that was generated before (not of the prompt's).
    pub presence_penalty: f32,
    /// Subtracted once for each time that the token was generated before (not of the prompt's).
    pub frequency_penalty: f32,
    /// Divides positive and multiplies negative logits of tokens of the prompt and of the answer so far, as
    /// in Hugging Face and llama.cpp; 1 is off.
    pub repetition_penalty: f32,
    /// Start of the random sequence.
    pub seed: u64,
}

impl Default for SamplingParams {
    /// The model cards' advice for thinking: temperature 1, top-k 20, top-p 0.95.
    fn default() -> Self {
        Self {
            temperature: 1.0,
            top_k: 20,
            top_p: 0.95,
            min_p: 0.0,
            presence_penalty: 0.0,
            frequency_penalty: 0.0,
            repetition_penalty: 1.0,
            seed: 0,
        }
    }
}

/// What a user sets on top of the checkpoint's defaults; `None` leaves a value as it is.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SamplingOverrides {
    /// See [`SamplingParams::temperature`].
    pub temperature: Option<f32>,
    /// See [`SamplingParams::top_k`].
    pub top_k: Option<usize>,
    /// See [`SamplingParams::top_p`].
    pub top_p: Option<f32>,
    /// See [`SamplingParams::min_p`].
    pub min_p: Option<f32>,
    /// See [`SamplingParams::presence_penalty`].
    pub presence_penalty: Option<f32>,
    /// See [`SamplingParams::frequency_penalty`].
    pub frequency_penalty: Option<f32>,
    /// See [`SamplingParams::repetition_penalty`].
    pub repetition_penalty: Option<f32>,
    /// See [`SamplingParams::seed`].
    pub seed: Option<u64>,
}

impl SamplingParams {
    /// The checkpoint's defaults with the user's changes, checked.
    pub fn resolve(
        config: Option<&GenerationConfig>,
        user: &SamplingOverrides,
    ) -> Result<Self, GenerateError> {
        let base = config.map(GenerationConfig::sampling).unwrap_or_default();
        let params = Self {
            temperature: user.temperature.unwrap_or(base.temperature),
            top_k: user.top_k.unwrap_or(base.top_k),
            top_p: user.top_p.unwrap_or(base.top_p),
            min_p: user.min_p.unwrap_or(base.min_p),
            presence_penalty: user.presence_penalty.unwrap_or(base.presence_penalty),
            frequency_penalty: user.frequency_penalty.unwrap_or(base.frequency_penalty),
            repetition_penalty: user.repetition_penalty.unwrap_or(base.repetition_penalty),
            seed: user.seed.unwrap_or(base.seed),
        };
        params.validate()?;
        Ok(params)
    }

    /// Refuses values outside their range.
    pub fn validate(&self) -> Result<(), GenerateError> {
        let checks = [
            ("temperature", self.temperature, 0.0, 100.0, "0 (greedy) to 100"),
            ("top_p", self.top_p, 0.0, 1.0, "0 to 1"),
            ("min_p", self.min_p, 0.0, 1.0, "0 to 1"),
            ("presence_penalty", self.presence_penalty, -2.0, 2.0, "-2 to 2"),
            ("frequency_penalty", self.frequency_penalty, -2.0, 2.0, "-2 to 2"),
            ("repetition_penalty", self.repetition_penalty, 0.01, 10.0, "0.01 to 10 (1 is off)"),
        ];
        for (name, value, low, high, range) in checks {
            // Written so that NaN fails too.
            if !(low..=high).contains(&value) {
                return Err(GenerateError::Parameter { name, value: value.into(), range });
            }
        }
        Ok(())
    }
}

/// How likely the model itself found a token, whatever was chosen and why: log probabilities of its own
/// distribution, at temperature 1, before penalties, bias, grammar and truncation. A token that was not chosen
/// but certain (a grammar, a budget) has 0.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct TokenLogprob {
    /// Natural logarithm of the probability.
    pub logprob: f32,
    /// The likeliest tokens, likeliest first; the chosen one may be among them.
    pub top: Vec<(u32, f32)>,
}

/// Which tokens may be chosen.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Allowed<'a> {
    /// All but these.
    Except(&'a [u32]),
    /// Those whose bit is set, 32 tokens a word; tokens behind the end may not.
    Only(&'a [u32]),
}

/// The sampler of one answer: parameters, history and random state.
pub struct Sampler {
    params: SamplingParams,
    /// Added to the logits of these tokens.
    bias: Vec<(u32, f32)>,
    n_vocab: usize,
    rng: SplitMix64,
    /// Tokens of prompt and answer: how often each was generated (0: only in the prompt).
    seen: HashMap<u32, u32>,
    /// Scratch: logits after penalties, `[n_vocab]`.
    logits: Vec<f32>,
    /// Scratch: candidate ids, most likely first as far as `sort_prefix` was asked, `[n_vocab]`.
    order: Vec<u32>,
}

impl Sampler {
    /// `n_vocab`: ids from here on are never chosen (rows of the embedding without a token); `prompt`: all
    /// tokens before the answer.
    pub fn new(params: SamplingParams, n_vocab: usize, prompt: &[u32]) -> Result<Self, GenerateError> {
        params.validate()?;
        let rng = SplitMix64(params.seed);
        let seen = prompt.iter().map(|&id| (id, 0)).collect();
        Ok(Self { params, bias: Vec::new(), n_vocab, rng, seen, logits: Vec::new(), order: Vec::new() })
    }

    /// Adds to the logits of these tokens, each -100 (never) to 100 (always).
    ///
    /// # Errors
    /// A value out of range, or an id without a token.
    pub fn with_bias(mut self, bias: Vec<(u32, f32)>) -> Result<Self, GenerateError> {
        for &(id, value) in &bias {
            if !(-BIAS_MAX..=BIAS_MAX).contains(&value) {
                let value = value.into();
                return Err(GenerateError::Parameter { name: "logit_bias", value, range: "-100 to 100" });
            }
            if id as usize >= self.n_vocab {
                let (name, range) = ("a token of logit_bias", "in the vocabulary");
                return Err(GenerateError::Parameter { name, value: id.into(), range });
            }
        }
        self.bias = bias;
        Ok(self)
    }

    /// Chooses the token after `pos` fed tokens and remembers it. `logits`: [at least n_vocab].
    pub fn sample(&mut self, logits: &[f32], pos: usize) -> Result<u32, GenerateError> {
        self.sample_allowed(logits, pos, Allowed::Except(&[]))
    }

    /// The same among the tokens that are allowed.
    pub(crate) fn sample_allowed(
        &mut self,
        logits: &[f32],
        pos: usize,
        allowed: Allowed<'_>,
    ) -> Result<u32, GenerateError> {
        let logits = self.own(logits)?;
        if let Some(id) = logits.iter().position(|l| !l.is_finite()) {
            return Err(GenerateError::NonFinite { id, n_vocab: self.n_vocab, pos, value: logits[id] });
        }
        self.logits.clear();
        self.logits.extend_from_slice(logits);
        self.penalise();
        self.add_bias();
        self.forbid(allowed);
        let best = self.largest();
        if self.logits[best as usize] == f32::NEG_INFINITY {
            return Err(GenerateError::NothingAllowed { pos });
        }
        let id = if self.params.temperature == 0.0 { best } else { self.draw(best) };
        self.remember(id);
        Ok(id)
    }

    /// Counts a token of the answer that was not chosen here.
    pub(crate) fn remember(&mut self, id: u32) {
        *self.seen.entry(id).or_insert(0) += 1;
    }

    /// What the model itself thinks of a token, and of the `n_top` likeliest ones.
    pub(crate) fn logprob(
        &self,
        logits: &[f32],
        id: u32,
        n_top: usize,
    ) -> Result<TokenLogprob, GenerateError> {
        let logits = self.own(logits)?;
        let max = logits.iter().copied().fold(f32::NEG_INFINITY, f32::max);
        let total: f64 = logits.iter().map(|&logit| weight(logit, max, 1.0)).sum();
        let log_total = f64::from(max) + total.ln();
        let logprob = |id: u32| (f64::from(logits[id as usize]) - log_total) as f32;
        let mut top: Vec<u32> = Vec::with_capacity(n_top + 1);
        for id in 0..logits.len() as u32 {
            let better = |&&other: &&u32| by_logit(logits, other, id) == Ordering::Less;
            if top.len() < n_top
                || top.last().is_some_and(|&last| by_logit(logits, id, last) == Ordering::Less)
            {
                top.insert(top.iter().take_while(better).count(), id);
                top.truncate(n_top);
            }
        }
        Ok(TokenLogprob { logprob: logprob(id), top: top.into_iter().map(|id| (id, logprob(id))).collect() })
    }

    /// The logits of those rows that are tokens: `[n_vocab]`.
    fn own<'l>(&self, logits: &'l [f32]) -> Result<&'l [f32], GenerateError> {
        let own = logits.get(..self.n_vocab).filter(|l| !l.is_empty());
        own.ok_or(GenerateError::LogitCount { got: logits.len(), n_vocab: self.n_vocab })
    }

    fn add_bias(&mut self) {
        for &(id, bias) in &self.bias {
            let logit = &mut self.logits[id as usize];
            *logit = (*logit + bias).clamp(f32::MIN, f32::MAX);
        }
    }

    fn forbid(&mut self, allowed: Allowed<'_>) {
        match allowed {
            Allowed::Except(ids) => {
                for &id in ids {
                    if let Some(logit) = self.logits.get_mut(id as usize) {
                        *logit = f32::NEG_INFINITY;
                    }
                }
            }
            Allowed::Only(words) => {
                let words = words.iter().copied().chain(std::iter::repeat(0));
                for (logits, word) in self.logits.chunks_mut(32).zip(words) {
                    match word {
                        u32::MAX => {}
                        0 => logits.fill(f32::NEG_INFINITY),
                        _ => {
                            for (bit, logit) in logits.iter_mut().enumerate() {
                                if word >> bit & 1 == 0 {
                                    *logit = f32::NEG_INFINITY;
                                }
                            }
                        }
                    }
                }
            }
        }
    }

    fn penalise(&mut self) {
        let SamplingParams { presence_penalty, frequency_penalty, repetition_penalty, .. } = self.params;
        if (presence_penalty, frequency_penalty, repetition_penalty) == (0.0, 0.0, 1.0) {
            return;
        }
        for (&id, &n_generated) in &self.seen {
            let Some(logit) = self.logits.get_mut(id as usize) else { continue };
            *logit = if *logit > 0.0 { *logit / repetition_penalty } else { *logit * repetition_penalty };
            *logit -= frequency_penalty * n_generated as f32;
            if n_generated > 0 {
                *logit -= presence_penalty;
            }
            // A huge logit times a penalty may overflow; the order of tokens is all that matters out there.
            *logit = logit.clamp(f32::MIN, f32::MAX);
        }
    }

    fn largest(&self) -> u32 {
        let mut best = 0;
        for (id, &logit) in self.logits.iter().enumerate() {
            if logit > self.logits[best] {
                best = id;
            }
        }
        best as u32
    }

    fn draw(&mut self, best: u32) -> u32 {
        let (max, temperature) = (self.logits[best as usize], self.params.temperature);
        let n_kept = self.truncate(max);
        let weight = |id: u32| weight(self.logits[id as usize], max, temperature);
        let kept = &self.order[..n_kept];
        let total: f64 = kept.iter().map(|&id| weight(id)).sum();
        let mut left = self.rng.next_unit() * total;
        for &id in kept {
            left -= weight(id);
            if left < 0.0 {
                return id;
            }
        }
        // Rounding may leave a remainder of the last bit: it belongs to the most likely token.
        best
    }

    /// Fills `order` and returns how many of its first candidates stay. All three limits keep a prefix of the
    /// order by probability, so the result is the shortest of the three prefixes; without limits all stay, in
    /// order of ids.
    fn truncate(&mut self, max: f32) -> usize {
        let SamplingParams { temperature, top_k, top_p, min_p, .. } = self.params;
        let Self { logits, order, n_vocab, .. } = self;
        order.clear();
        order.extend(0..*n_vocab as u32);
        let n_top_k = if top_k == 0 { *n_vocab } else { top_k.min(*n_vocab) };
        if n_top_k == *n_vocab && top_p >= 1.0 && min_p == 0.0 {
            return *n_vocab;
        }
        let weight = |id: u32| weight(logits[id as usize], max, temperature);
        // Without top-k nearly all probability is in few tokens: sorting the whole vocabulary is rarely
        // needed.
        let (mut n_sorted, total) = if n_top_k < *n_vocab {
            sort_prefix(order, logits, n_top_k);
            (n_top_k, order[..n_top_k].iter().map(|&id| weight(id)).sum::<f64>())
        } else {
            (0, order.iter().map(|&id| weight(id)).sum())
        };
        loop {
            let mut sum = 0.0;
            for (n, &id) in order[..n_sorted].iter().enumerate() {
                // The most likely token always stays.
                if n > 0 && (sum >= f64::from(top_p) * total || weight(id) < f64::from(min_p)) {
                    return n;
                }
                sum += weight(id);
            }
            if n_sorted == n_top_k {
                return n_top_k;
            }
            n_sorted = (n_sorted * 8).clamp(256.min(n_top_k), n_top_k);
            sort_prefix(order, logits, n_sorted);
        }
    }
}

/// Puts the n most likely candidates in front, in order.
fn sort_prefix(order: &mut [u32], logits: &[f32], n: usize) {
    if n < order.len() {
        order.select_nth_unstable_by(n, |&a, &b| by_logit(logits, a, b));
    }
    order[..n].sort_unstable_by(|&a, &b| by_logit(logits, a, b));
}

/// The likelier token first, of equals the one with the lower id.
fn by_logit(logits: &[f32], a: u32, b: u32) -> Ordering {
    logits[b as usize].total_cmp(&logits[a as usize]).then(a.cmp(&b))
}

/// exp((logit - max) / temperature) in f64: at most 1, so that nothing overflows.
fn weight(logit: f32, max: f32, temperature: f32) -> f64 {
    ((f64::from(logit) - f64::from(max)) / f64::from(temperature)).exp()
}

/// SplitMix64 (Steele, Lea, Flood 2014): one 64-bit counter through a mixing function. Sound for one draw a
/// token, and the whole state is the seed.
struct SplitMix64(u64);

impl SplitMix64 {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    /// Uniform in [0, 1), 53 bits.
    fn next_unit(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1u64 << 53) as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn split_mix_matches_its_published_sequence() {
        // Answers for a given seed would differ from machine to machine or release to release.
        let mut rng = SplitMix64(1234567);
        let expected = [6457827717110365317, 3203168211198807973, 9817491932198370423, 4593380528125082431];
        assert_eq!([(); 4].map(|()| rng.next()), expected);
        for _ in 0..1000 {
            assert!((0.0..1.0).contains(&rng.next_unit()));
        }
    }
}
