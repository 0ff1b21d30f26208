//! Routing traces made up after the published hit rates of a real model: 512 experts, 10 a token, an LRU of
//! 16/32/64/128 records in each layer hits 49/59/68/71 %.
//!
//! Prints the hit rates that it got, measured after the first quarter of the tokens. Usage:
//! `cargo run --release -p flash-moe-stream --example make_trace -- [--layers N] [--experts N] [--used N]
//! [--tokens N] [--seed N] OUT`
//!
//! A choice is one of three, as in real routing: an expert of a token shortly before (text repeats itself), one of
//! those that the topic prefers (topics change now and then, in all layers at once), or one by its popularity in
//! the layer, which is nearly flat (routers are trained to be balanced). Which of the three and all parameters are
//! fitted to the four points. A sampler of LRU stack distances would fit exactly, and make LRU the best policy.

use std::path::Path;

use stream::{RoutingTrace, TraceError};

/// Sizes of a layer's LRU, and the hit rates published.
const PUBLISHED: [(usize, f64); 4] = [(16, 0.49), (32, 0.59), (64, 0.68), (128, 0.71)];

/// Share of choices that repeat one of an earlier token.
const REPEAT_SHARE: f64 = 0.53;
/// How many tokens before, on average: each token further back is less likely by the same factor.
const REPEAT_AGE: f64 = 1.36;
/// Share of choices among a topic's experts.
const TOPIC_SHARE: f64 = 0.26;
/// Topics.
const N_TOPIC: usize = 12;
/// Tokens until the topic is drawn anew, on average.
const TOPIC_TOKENS: f64 = 20.0;
/// Experts of a topic, as a share of all: different ones in each layer.
const TOPIC_EXPERT_SHARE: f64 = 46.0 / 512.0;
/// The expert of rank r is chosen in proportion to r^-skew: within a topic, and otherwise.
const TOPIC_SKEW: f64 = 0.52;
const SKEW: f64 = 0.11;

struct Options {
    n_layer: usize,
    n_expert: usize,
    n_expert_used: usize,
    n_token: usize,
    seed: u64,
    out: String,
}

fn main() {
    let options = options(std::env::args().skip(1)).unwrap_or_else(|why| {
        eprintln!("error: {why}");
        eprintln!("usage: make_trace [--layers N] [--experts N] [--used N] [--tokens N] [--seed N] OUT");
        std::process::exit(2);
    });
    let trace = make(&options);
    print_summary(&trace);
    if let Err(error) = write(&trace, &options) {
        eprintln!("error: {error}");
        std::process::exit(1);
    }
}

fn write(trace: &RoutingTrace, options: &Options) -> Result<(), TraceError> {
    trace.check(options.n_layer, options.n_expert, options.n_expert_used)?;
    trace.write(Path::new(&options.out))
}

fn options(mut args: impl Iterator<Item = String>) -> Result<Options, String> {
    let (mut n_layer, mut n_expert, mut n_expert_used, mut n_token, mut seed) = (60, 512, 10, 2048, 1);
    let mut out = None;
    while let Some(arg) = args.next() {
        let mut number = |max: usize| {
            let text = args.next().ok_or_else(|| format!("{arg} needs a number"))?;
            let number = text.parse().ok().filter(|n| (1..=max).contains(n));
            number.ok_or_else(|| format!("{arg} '{text}' is no number from 1 to {max}"))
        };
        match arg.as_str() {
            "--layers" => n_layer = number(1000)?,
            "--experts" => n_expert = number(1 << 16)?,
            "--used" => n_expert_used = number(1000)?,
            "--tokens" => n_token = number(1 << 20)?,
            "--seed" => seed = number(usize::MAX)?,
            _ if out.is_none() && !arg.starts_with('-') => out = Some(arg),
            _ => return Err(format!("unknown argument '{arg}'")),
        }
    }
    if n_expert_used > n_expert {
        return Err(format!("--used {n_expert_used} of --experts {n_expert}"));
    }
    let out = out.ok_or("no file to write is named")?;
    Ok(Options { n_layer, n_expert, n_expert_used, n_token, seed: seed as u64, out })
}

/// What one layer's router prefers.
struct Layer {
    /// The experts by rank, over all text.
    all: Vec<u32>,
    /// And by topic.
    topics: Vec<Vec<u32>>,
}

fn make(options: &Options) -> RoutingTrace {
    let &Options { n_layer, n_expert, n_expert_used: k, n_token, .. } = options;
    let mut random = Random(options.seed);
    let n_topic_expert = (n_expert as f64 * TOPIC_EXPERT_SHARE).ceil() as usize;
    let layers: Vec<Layer> = (0..n_layer)
        .map(|_| Layer {
            all: random.shuffled(n_expert),
            topics: (0..N_TOPIC).map(|_| random.shuffled(n_expert)).collect(),
        })
        .collect();
    let (by_rank, by_topic_rank) = (cumulated(n_expert, SKEW), cumulated(n_topic_expert, TOPIC_SKEW));
    let mut trace = RoutingTrace { n_layer, n_expert_used: k, experts: Vec::new() };
    let mut topic = 0;
    for token in 0..n_token {
        if random.unit() < 1.0 / TOPIC_TOKENS {
            topic = random.below(N_TOPIC);
        }
        for (i, layer) in layers.iter().enumerate() {
            let start = trace.experts.len();
            while trace.experts.len() < start + k {
                let which = random.unit();
                let expert = if which < REPEAT_SHARE && token > 0 {
                    let before = 1 + (random.unit().ln() / (1.0 - 1.0 / REPEAT_AGE).ln()) as usize;
                    trace.at(token - before.min(token), i)[random.below(k)]
                } else if which < REPEAT_SHARE + TOPIC_SHARE {
                    layer.topics[topic][random.rank(&by_topic_rank)]
                } else {
                    layer.all[random.rank(&by_rank)]
                };
                if !trace.experts[start..].contains(&expert) {
                    trace.experts.push(expert);
                }
            }
        }
    }
    trace
}

/// The share of ranks up to each one, where rank r (from 1) has a weight of r^-skew.
fn cumulated(n: usize, skew: f64) -> Vec<f64> {
    let mut sum = 0.0;
    let sums: Vec<f64> = (1..=n)
        .map(|rank| {
            sum += (rank as f64).powf(-skew);
            sum
        })
        .collect();
    sums.iter().map(|s| s / sum).collect()
}

fn print_summary(trace: &RoutingTrace) {
    let n_skip = trace.n_token() / 4;
    println!("LRU of a layer: hits (published, for 512 experts of which 10 are used)");
    for (n_slot, published) in PUBLISHED {
        println!("{n_slot:>4}: {:.3} ({published})", lru_hits(trace, n_slot, n_skip));
    }
    let (mut same, mut n) = (0, 0);
    for token in 1..trace.n_token() {
        for layer in 0..trace.n_layer {
            let before = trace.at(token - 1, layer);
            same += trace.at(token, layer).iter().filter(|e| before.contains(e)).count();
            n += trace.n_expert_used;
        }
    }
    println!("shared with the token before: {:.3}", same as f64 / n as f64);
}

/// Hit rate of an LRU of `n_slot` records in each layer.
fn lru_hits(trace: &RoutingTrace, n_slot: usize, n_skip_token: usize) -> f64 {
    let mut n_hit = 0;
    for layer in 0..trace.n_layer {
        let mut newest_first: Vec<u32> = Vec::new();
        for token in 0..trace.n_token() {
            for &expert in trace.at(token, layer) {
                match newest_first.iter().position(|&e| e == expert) {
                    Some(place) => {
                        n_hit += usize::from(token >= n_skip_token);
                        newest_first[..=place].rotate_right(1);
                    }
                    None => {
                        newest_first.insert(0, expert);
                        newest_first.truncate(n_slot);
                    }
                }
            }
        }
    }
    n_hit as f64 / ((trace.n_token() - n_skip_token) * trace.n_layer * trace.n_expert_used) as f64
}

/// splitmix64.
struct Random(u64);

impl Random {
    /// Uniform on 0..1.
    fn unit(&mut self) -> f64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let x = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((x ^ (x >> 31)) >> 11) as f64 / (1u64 << 53) as f64
    }

    fn below(&mut self, n: usize) -> usize {
        (self.unit() * n as f64) as usize
    }

    fn rank(&mut self, cumulated: &[f64]) -> usize {
        let unit = self.unit();
        cumulated.partition_point(|&sum| sum <= unit)
    }

    fn shuffled(&mut self, n: usize) -> Vec<u32> {
        let mut order: Vec<u32> = (0..n as u32).collect();
        for i in (1..n).rev() {
            order.swap(i, self.below(i + 1));
        }
        order
    }
}
