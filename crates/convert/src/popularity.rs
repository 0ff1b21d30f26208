//! Routers of made-up models that prefer some experts, as those of real models do.
//!
//! All embeddings of a topic share a direction, and router rows have a component along it: the expert's offset in
//! that topic. What else the rows and the embeddings have is noise, scaled so that a token's logits differ from the
//! offsets by a standard deviation of 1. Rows of the head share the direction too, so that a model that chooses its
//! own tokens stays in a topic. One topic, which is what `zipf` has, is popularity that no token changes.

use std::fmt;
use std::str::FromStr;

use store::{ModelConfig, Role};

use crate::ConvertError;
use crate::random::Random;

/// Which experts the routers of a made-up model prefer.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub enum Routing {
    /// None: the worst case for a cache.
    #[default]
    Uniform,
    /// The expert of rank r, another one in each layer, is used in proportion to r to the power of minus this.
    Zipf(f64),
    /// The tokens have topics, and experts are preferred by topic.
    Topics {
        /// How many.
        n_topic: usize,
        /// Standard deviation of an expert's logit from topic to topic, where that from token to token is 1.
        gain: f64,
    },
}

/// Largest numbers that make sense: what exceeds them is a mistake.
const EXPONENT_MAX: f64 = 4.0;
const N_TOPIC_MAX: usize = 64;
const GAIN_MAX: f64 = 4.0;

impl FromStr for Routing {
    type Err = ConvertError;

    fn from_str(text: &str) -> Result<Self, ConvertError> {
        let number = |text: &str, max: f64| text.parse().ok().filter(|n| (0.0..=max).contains(n));
        let topics = |text: &str| {
            let (n_topic, gain) = text.split_once(',')?;
            let n_topic = n_topic.parse().ok().filter(|n| (1..=N_TOPIC_MAX).contains(n))?;
            Some(Routing::Topics { n_topic, gain: number(gain, GAIN_MAX)? })
        };
        let routing = match text.split_once(':') {
            None if text == "uniform" => Some(Routing::Uniform),
            Some(("zipf", exponent)) => number(exponent, EXPONENT_MAX).map(Routing::Zipf),
            Some(("topics", text)) => topics(text),
            _ => None,
        };
        routing.ok_or_else(|| {
            ConvertError::Options(format!(
                "routing '{text}' is none of uniform, zipf:S (S from 0 to {EXPONENT_MAX}), topics:N,G (N from 1 to \
                 {N_TOPIC_MAX}, G from 0 to {GAIN_MAX})"
            ))
        })
    }
}

/// As it is parsed.
impl fmt::Display for Routing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Routing::Uniform => f.write_str("uniform"),
            Routing::Zipf(exponent) => write!(f, "zipf:{exponent}"),
            Routing::Topics { n_topic, gain } => write!(f, "topics:{n_topic},{gain}"),
        }
    }
}

/// What layers add to the residual stream, relative to weights that keep the size of activations: little, so that the
/// embedding's direction is there in the last layer.
pub(crate) const OUT_GAIN: f64 = 0.15;

/// Standard deviation of logits among the tokens of a topic.
const HEAD_STD: f64 = 2.0;

/// The structure that embedding, head and routers share.
pub(crate) struct Popularity {
    seed: u64,
    /// Share of a direction in the square of an embedding.
    share: f64,
    /// Orthonormal, one a topic: `[n_topic][d_model]`.
    directions: Vec<Vec<f32>>,
    /// What each topic adds to a router's logit: `[n_layer][n_topic][n_expert]`.
    offsets: Vec<Vec<Vec<f64>>>,
}

impl Popularity {
    /// Nothing, if all experts are alike.
    pub(crate) fn new(routing: Routing, config: &ModelConfig, seed: u64) -> Option<Self> {
        let (n_topic, share) = match routing {
            Routing::Uniform => return None,
            Routing::Zipf(_) => (1, 0.5),
            Routing::Topics { n_topic, .. } => (n_topic, 0.3),
        };
        let layer = |layer: usize| {
            let mut random = Random::new([seed, 2, layer as u64, 0]);
            (0..n_topic).map(|_| offsets(routing, config, &mut random)).collect()
        };
        Some(Self {
            seed,
            share,
            directions: directions(n_topic, config.d_model, &mut Random::new([seed, 3, 0, 0])),
            offsets: (0..config.n_layer()).map(layer).collect(),
        })
    }

    /// Whether [`Popularity::row`] knows a role.
    pub(crate) fn shapes(role: Role) -> bool {
        matches!(role, Role::Embed | Role::LmHead | Role::Router)
    }

    /// Makes one row of embedding, head or the router of `layer`.
    pub(crate) fn row(
        &self,
        role: Role,
        layer: Option<usize>,
        row: usize,
        random: &mut Random,
        out: &mut [f32],
    ) {
        let width = out.len() as f64;
        // What a direction makes of an embedding after its norm.
        let along = (self.share * width).sqrt();
        let noise = 1.0 - self.share;
        match role {
            Role::Embed => {
                random.fill_noise(out, noise.sqrt());
                add(out, &self.directions[self.topic(row)], along);
            }
            Role::LmHead => {
                random.fill_noise(out, HEAD_STD / width.sqrt());
                // Of all tokens, those of the same topic have 98 % of the probability.
                let stay = (50.0 * self.directions.len() as f64).ln();
                add(out, &self.directions[self.topic(row)], stay / along);
            }
            _ => {
                random.fill_noise(out, 1.0 / (noise * width).sqrt());
                let offsets = &self.offsets[layer.expect("routers belong to layers")];
                for (direction, offsets) in self.directions.iter().zip(offsets) {
                    // Noise along a direction would be popularity too.
                    let noise = dot(out, direction);
                    add(out, direction, offsets[row] / along - noise);
                }
            }
        }
    }

    /// The topic of a token.
    pub(crate) fn topic(&self, token: usize) -> usize {
        (Random::new([self.seed, 4, token as u64, 0]).next() % self.directions.len() as u64) as usize
    }
}

/// One topic's offsets in one layer, `[n_expert]`.
fn offsets(routing: Routing, config: &ModelConfig, random: &mut Random) -> Vec<f64> {
    let n = config.n_expert;
    match routing {
        Routing::Uniform => vec![0.0; n],
        Routing::Topics { gain, .. } => (0..n).map(|_| gain * random.normal()).collect(),
        Routing::Zipf(exponent) => {
            let by_rank = chances(n, config.n_expert_used, exponent);
            random.shuffled(n).into_iter().map(|rank| normal_quantile(by_rank[rank])).collect()
        }
    }
}

/// How likely a token uses the expert of each rank: in proportion to rank^-exponent, never quite certain, and
/// `n_used` in all.
fn chances(n: usize, n_used: usize, exponent: f64) -> Vec<f64> {
    const CHANCE_MAX: f64 = 0.999;
    let chances = |log_scale: f64| -> Vec<f64> {
        let chance = |rank: usize| (log_scale - exponent * (rank as f64).ln()).exp().min(CHANCE_MAX);
        (1..=n).map(chance).collect()
    };
    // The last rank's chance is at least 1 at the upper end, the first one's tiny at the lower.
    let (mut low, mut high) = (-30.0, exponent * (n as f64).ln());
    for _ in 0..60 {
        let middle = (low + high) / 2.0;
        let is_low = chances(middle).iter().sum::<f64>() < n_used as f64;
        *(if is_low { &mut low } else { &mut high }) = middle;
    }
    chances(low)
}

/// Where the normal distribution has `p` below it, to 5e-4 (Abramowitz and Stegun 26.2.23).
fn normal_quantile(p: f64) -> f64 {
    let t = (-2.0 * p.min(1.0 - p).ln()).sqrt();
    let top = 2.515517 + t * (0.802853 + t * 0.010328);
    let bottom = 1.0 + t * (1.432788 + t * (0.189269 + t * 0.001308));
    (t - top / bottom).copysign(p - 0.5)
}

/// Orthonormal vectors.
fn directions(n: usize, width: usize, random: &mut Random) -> Vec<Vec<f32>> {
    let mut made: Vec<Vec<f32>> = Vec::with_capacity(n);
    for _ in 0..n {
        let mut new = vec![0.0; width];
        random.fill_noise(&mut new, 1.0);
        for other in &made {
            let along = dot(&new, other);
            add(&mut new, other, -along);
        }
        let length = dot(&new, &new).sqrt() as f32;
        new.iter_mut().for_each(|w| *w /= length);
        made.push(new);
    }
    made
}

fn dot(a: &[f32], b: &[f32]) -> f64 {
    a.iter().zip(b).map(|(a, b)| f64::from(*a) * f64::from(*b)).sum()
}

fn add(out: &mut [f32], direction: &[f32], factor: f64) {
    for (out, d) in out.iter_mut().zip(direction) {
        *out += (factor * f64::from(*d)) as f32;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An option is taken for another, or one that makes no sense is taken.
    #[test]
    fn routing_as_written() {
        for text in ["uniform", "zipf:0", "zipf:0.25", "zipf:4", "topics:1,0", "topics:64,1.5"] {
            assert_eq!(text.parse::<Routing>().unwrap().to_string(), text);
        }
        for bad in [
            "",
            "zipf",
            "zipf:",
            "zipf:nan",
            "zipf:-1",
            "zipf:inf",
            "zipf:1e300",
            "zipf:1,2",
            "uniform:",
            "uniform:1",
            "topics:",
            "topics:8",
            "topics:0,1",
            "topics:-1,1",
            "topics:65,1",
            "topics:8,",
            "topics:8,nan",
            "topics:8,-1",
            "topics:99999999999999999999,1",
            "topics:1.5,1",
            "Uniform",
            " zipf:1",
        ] {
            let error = bad.parse::<Routing>().unwrap_err().to_string();
            assert!(error.contains("uniform, zipf:S") && error.contains("topics:N,G"), "{bad}: {error}");
        }
    }

    /// Chances that do not add up, or whose quantiles are not theirs.
    #[test]
    fn chances_add_up() {
        for (n, n_used, exponent) in
            [(512, 10, 0.0), (512, 10, 0.25), (512, 10, 4.0), (128, 8, 1.0), (8, 8, 1.0)]
        {
            let chances = chances(n, n_used, exponent);
            let sum: f64 = chances.iter().sum();
            assert!((sum - n_used as f64).abs() < 0.01, "{n} {n_used} {exponent}: {sum}");
            assert!(chances.iter().all(|&p| normal_quantile(p).is_finite()));
        }
        for (p, z) in [(0.5, 0.0), (0.975, 1.96), (0.025, -1.96), (0.00135, -3.0)] {
            assert!((normal_quantile(p) - z).abs() < 1e-3, "{p}");
        }
    }
}
