//! Stores of random weights at the shapes of real models, for tests and benchmarks of machines.
//!
//! Codes are random bytes, but for what [`Popularity`] makes; scales and biases make the weights zero on average with
//! a standard deviation of about `1/sqrt(cols)`, so that activations keep their size and logits are finite. Nothing
//! is meaningful but the shapes.

use std::ops::Range;
use std::path::Path;

use half::bf16;
use quant::Format;
use store::{
    Architecture, DensePlan, ExpertLayer, ExpertPart, ExpertPlan, LayerKind, LinearAttention, ModelConfig,
    Role, Source, StorePlan, StoreWriter,
};

use crate::ConvertError;
use crate::options::{Kind, PackOptions};
use crate::popularity::{OUT_GAIN, Popularity, Routing};
use crate::random::Random;
use crate::work::{Piece, Progress, Unit, Work, plane_bytes, planes_mut, row_bytes};

/// What to make up.
#[derive(Clone, Debug)]
pub struct SynthOptions {
    /// One of [`SYNTH_PRESETS`].
    pub like: String,
    /// Layers, if not the model's own number.
    pub n_layer: Option<usize>,
    /// Rows of embedding and head, if not the model's own number.
    pub n_vocab: Option<usize>,
    /// Bits and group of the weights, overrides by role. [`crate::Bits::Source`] means BF16.
    pub pack: PackOptions,
    /// Which experts the routers prefer.
    pub routing: Routing,
    /// The same seed gives the same bytes.
    pub seed: u64,
}

/// The shapes that can be asked for.
pub const SYNTH_PRESETS: [&str; 7] = [
    "qwen3.5-35b",
    "qwen3.5-122b",
    "qwen3.5-397b",
    "qwen3.6-35b",
    "qwen3-next-80b",
    "qwen3-30b",
    "qwen3-235b",
];

/// Writes a store of random weights to `out`; an unfinished one of the same options is resumed. `progress` counts
/// bytes of the store. Returns the bytes of its files, about.
///
/// # Errors
/// No such preset, options that do not fit it, an output that exists or cannot be written.
pub fn synth(
    out: &Path,
    options: &SynthOptions,
    progress: &mut dyn FnMut(Progress),
) -> Result<u64, ConvertError> {
    write(out, synth_plan(options)?, options, progress)
}

/// What [`synth`] would write: shapes, formats and places, no weights.
///
/// # Errors
/// No such preset, or options that do not fit it.
pub fn synth_plan(options: &SynthOptions) -> Result<StorePlan, ConvertError> {
    plan(config(options)?, options)
}

fn write(
    out: &Path,
    plan: StorePlan,
    options: &SynthOptions,
    progress: &mut dyn FnMut(Progress),
) -> Result<u64, ConvertError> {
    let out_bytes = plan.total_bytes();
    let work = Work::new(&plan);
    let popularity = Popularity::new(options.routing, &plan.config, options.seed);
    let writer = StoreWriter::create(out, plan)?;
    let produce = |unit: &Unit, _: &mut ()| Ok(piece(&work, unit, popularity.as_ref(), options.seed));
    work.run(writer, |unit| unit_bytes(&work, unit), produce, |_| Ok(None), progress)?;
    Ok(out_bytes)
}

fn plan(config: ModelConfig, options: &SynthOptions) -> Result<StorePlan, ConvertError> {
    let shapes = config.dense_shapes();
    let dense_kinds = shapes.iter().map(|d| Kind::Dense(d.role));
    let kinds: Vec<Kind> = dense_kinds.chain(ExpertPart::ALL.map(Kind::Expert)).collect();
    options.pack.check(&kinds)?;
    let format = |kind: Kind, cols: usize| {
        let chosen = options.pack.format(kind, cols, Format::Bf16);
        chosen.map(|(format, _)| format).map_err(|why| ConvertError::Options(format!("{kind}: {why}")))
    };
    let mut dense = Vec::with_capacity(shapes.len());
    for shape in shapes {
        let format = format(Kind::Dense(shape.role), shape.cols)?;
        dense.push(DensePlan {
            role: shape.role,
            layer: shape.layer,
            format,
            rows: shape.rows,
            cols: shape.cols,
        });
    }
    let mut formats = [Format::F32; 3];
    for (i, part) in ExpertPart::ALL.into_iter().enumerate() {
        formats[i] = format(Kind::Expert(part), ExpertLayer::shape(&config, part).1)?;
    }
    let experts = vec![ExpertPlan { formats }; config.n_layer()];
    let fingerprint = match options.routing {
        Routing::Uniform => format!("seed {}", options.seed),
        routing => format!("seed {}, routing {routing}", options.seed),
    };
    let source = Source { kind: "synthetic".into(), fingerprint, skipped: Vec::new() };
    Ok(StorePlan {
        name: format!("synthetic {}", options.like),
        source,
        config,
        dense,
        experts,
        sidecars: Vec::new(),
    })
}

/// Shapes of a preset, with the options' own numbers of layers and tokens.
fn config(options: &SynthOptions) -> Result<ModelConfig, ConvertError> {
    let mut config = preset(&options.like).ok_or_else(|| {
        ConvertError::Options(format!("no preset '{}'; valid: {}", options.like, SYNTH_PRESETS.join(", ")))
    })?;
    if let Some(n_layer) = options.n_layer {
        // Beyond the model's own layers the pattern goes on.
        let kind = |i: usize| config.layers[i % config.layers.len()];
        config.layers = (0..n_layer).map(kind).collect();
        if config.n_layer_of(LayerKind::LinearAttention) == 0 {
            config.linear = None;
        }
    }
    config.n_vocab = options.n_vocab.unwrap_or(config.n_vocab);
    config.check().map_err(|why| ConvertError::Options(format!("synthetic model: {why}")))?;
    Ok(config)
}

/// Published shapes of the families.
fn preset(like: &str) -> Option<ModelConfig> {
    use Architecture::{Qwen3Moe, Qwen3Next, Qwen35Moe};
    // n_layer, d_model, n_head, n_head_kv, linear n_head_v, n_expert, n_expert_used, d_ff_expert
    let (architecture, n_layer, d_model, n_head, n_head_kv, n_head_v, n_expert, n_expert_used, d_ff) =
        match like {
            "qwen3.5-35b" | "qwen3.6-35b" => (Qwen35Moe, 40, 2048, 16, 2, 32, 256, 8, 512),
            "qwen3.5-122b" => (Qwen35Moe, 48, 3072, 32, 2, 64, 256, 8, 1024),
            "qwen3.5-397b" => (Qwen35Moe, 60, 4096, 32, 2, 64, 512, 10, 1024),
            "qwen3-next-80b" => (Qwen3Next, 48, 2048, 16, 2, 32, 512, 10, 512),
            "qwen3-30b" => (Qwen3Moe, 48, 2048, 32, 4, 0, 128, 8, 768),
            "qwen3-235b" => (Qwen3Moe, 94, 4096, 64, 4, 0, 128, 8, 1536),
            _ => return None,
        };
    let is_hybrid = architecture != Qwen3Moe;
    let is_full = |i: usize| !is_hybrid || (i + 1).is_multiple_of(4);
    let kind = |i: usize| if is_full(i) { LayerKind::FullAttention } else { LayerKind::LinearAttention };
    let linear = LinearAttention {
        n_head_k: 16,
        n_head_v,
        head_dim_k: 128,
        head_dim_v: 128,
        n_conv: 4,
        out_heads_tiled: false,
    };
    let head_dim = if is_hybrid { 256 } else { 128 };
    Some(ModelConfig {
        architecture,
        d_model,
        n_vocab: if architecture == Qwen35Moe { 248_320 } else { 151_936 },
        n_ctx_train: if is_hybrid { 262_144 } else { 40_960 },
        rms_norm_eps: 1e-6,
        layers: (0..n_layer).map(kind).collect(),
        n_head,
        n_head_kv,
        head_dim,
        attention_gate: is_hybrid,
        n_rot: if is_hybrid { head_dim / 4 } else { head_dim },
        rope_theta: if is_hybrid { 1e7 } else { 1e6 },
        rope_scaling: None,
        linear: is_hybrid.then_some(linear),
        n_expert,
        n_expert_used,
        norm_topk_prob: true,
        d_ff_expert: d_ff,
        d_ff_shared: if is_hybrid { d_ff } else { 0 },
        tie_word_embeddings: false,
    })
}

fn unit_bytes(work: &Work, unit: &Unit) -> u64 {
    match unit {
        Unit::Dense { idx, rows } => {
            let dense = &work.dense[*idx];
            plane_bytes(dense.format, dense.cols, rows.len()).iter().sum::<usize>() as u64
        }
        Unit::Expert { layer, .. } => {
            ExpertLayer::stride_bytes(&work.experts[*layer].formats, &work.config) as u64
        }
    }
}

fn piece(work: &Work, unit: &Unit, popularity: Option<&Popularity>, seed: u64) -> Piece {
    // With preferred experts, layers add little to what they are given.
    let std = |is_out: bool, cols: usize| {
        let gain = if is_out && popularity.is_some() { OUT_GAIN as f32 } else { 1.0 };
        gain / (cols as f32).sqrt()
    };
    match unit {
        Unit::Dense { idx, rows } => {
            let dense @ &DensePlan { role, format, cols, .. } = &work.dense[*idx];
            let mut random = Random::new([seed, 0, *idx as u64, rows.start as u64]);
            let mut planes = plane_bytes(format, cols, rows.len()).map(|bytes| vec![0; bytes]);
            if let Some(popularity) = popularity.filter(|_| Popularity::shapes(role)) {
                encode(dense, rows.clone(), popularity, &mut random, &mut planes);
                return Piece::Dense(planes);
            }
            let is_out = matches!(role, Role::AttnO | Role::LinearOut | Role::SharedDown);
            let [codes, scales, biases] = &mut planes;
            let small = role.is_f32().then_some(role);
            fill(small, format, std(is_out, cols), [codes, scales, biases], &mut random);
            Piece::Dense(planes)
        }
        Unit::Expert { layer, expert } => {
            let formats = &work.experts[*layer].formats;
            let mut random = Random::new([seed, 1, *layer as u64, *expert as u64]);
            let mut record = vec![0; ExpertLayer::stride_bytes(formats, &work.config)];
            for (i, range) in ExpertLayer::ranges(formats, &work.config).into_iter().enumerate() {
                let part = ExpertPart::ALL[i];
                let (rows, cols) = ExpertLayer::shape(&work.config, part);
                let planes = planes_mut(formats[i], rows, cols, &mut record[range]);
                fill(None, formats[i], std(part == ExpertPart::Down, cols), planes, &mut random);
            }
            Piece::Expert(record)
        }
    }
}

/// Makes the rows that preferences are in.
fn encode(
    dense: &DensePlan,
    rows: Range<usize>,
    popularity: &Popularity,
    random: &mut Random,
    planes: &mut [Vec<u8>; 3],
) {
    let &DensePlan { format, cols, .. } = dense;
    let ([codes, scales, biases], [n_code, n_scale, n_bias]) = (planes, row_bytes(format, cols));
    for (i, first) in rows.clone().step_by(format.scale_rows()).enumerate() {
        let shared = first..rows.end.min(first + format.scale_rows());
        let mut numbers = vec![0.0; shared.len() * cols];
        for (row, numbers) in shared.clone().zip(numbers.chunks_exact_mut(cols)) {
            popularity.row(dense.role, dense.layer, row, random, numbers);
        }
        let codes = &mut codes[(first - rows.start) * n_code..][..shared.len() * n_code];
        let (scales, biases) = (&mut scales[i * n_scale..][..n_scale], &mut biases[i * n_bias..][..n_bias]);
        quant::encode_rows(format, cols, &numbers, codes, scales, biases).expect("these are small numbers");
    }
}

/// Fills whole rows: 0 on average, standard deviation `std`. `small` is the role of a vector or convolution, F32.
fn fill(small: Option<Role>, format: Format, std: f32, planes: [&mut [u8]; 3], random: &mut Random) {
    let [codes, scales, biases] = planes;
    match format {
        Format::Affine { bits, .. } => {
            random.fill(codes);
            let n = f32::from(u8::MAX >> (8 - bits));
            // Codes are uniform on 0..=n.
            let scale = std / ((n * (n + 2.0)) / 12.0).sqrt();
            fill_bf16(scales, scale);
            fill_bf16(biases, -scale * n / 2.0);
        }
        Format::Bf16 => {
            random.fill(codes);
            // Magnitudes are uniform between a power of two and the next: 1.53 times the lower one, as mean square.
            let exponent = bf16::from_f32((std / 1.53).log2().round().exp2()).to_bits();
            for w in codes.chunks_exact_mut(2) {
                let bits = u16::from_le_bytes([w[0], w[1]]) & 0x807f | exponent;
                w.copy_from_slice(&bits.to_le_bytes());
            }
        }
        Format::Fp8 => {
            random.fill(codes);
            // Magnitudes are 1, 1.125, …, 1.875: 1.46 as mean square.
            codes.iter_mut().for_each(|code| *code = *code & 0x87 | 0x38);
            fill_bf16(scales, std / 1.46);
        }
        _ => {
            assert_eq!(format, Format::F32, "synthetic weights are affine, bf16, fp8, or small and f32");
            for w in codes.chunks_exact_mut(4) {
                w.copy_from_slice(&small_weight(small, random.unit()).to_le_bytes());
            }
        }
    }
}

/// A number for an F32 role out of `u`, uniform on 0..1: near 1 for norms, a decay of ordinary strength.
fn small_weight(role: Option<Role>, u: f32) -> f32 {
    match role {
        Some(Role::LinearALog) => (0.02 + 1.98 * u).ln(),
        Some(Role::LinearDtBias | Role::LinearConv) => 2.0 * u - 1.0,
        _ => 0.8 + 0.4 * u,
    }
}

fn fill_bf16(out: &mut [u8], value: f32) {
    let bytes = bf16::from_f32(value).to_le_bytes();
    out.chunks_exact_mut(2).for_each(|w| w.copy_from_slice(&bytes));
}

#[cfg(test)]
mod tests {
    use store::{Dense, Store};

    use super::*;
    use crate::Bits;

    fn options(like: &str, n_layer: usize, bits: Bits) -> SynthOptions {
        let pack = PackOptions { bits, ..PackOptions::default() };
        SynthOptions {
            like: like.into(),
            n_layer: Some(n_layer),
            n_vocab: Some(64),
            pack,
            routing: Routing::Uniform,
            seed: 1,
        }
    }

    /// A store of a preset's layers with few and narrow experts.
    fn small_store(out: &Path, bits: Bits, seed: u64) -> Store {
        let options = options("qwen3.5-35b", 4, bits);
        let config = ModelConfig { n_expert: 8, d_ff_expert: 64, d_model: 256, ..config(&options).unwrap() };
        let mut last = (0, 0);
        let mut progress = |p: Progress| last = (p.done_bytes, p.total_bytes);
        let options = SynthOptions { seed, ..options };
        write(out, plan(config, &options).unwrap(), &options, &mut progress).unwrap();
        assert!(last.0 == last.1 && last.0 > 0, "{last:?}");
        Store::open(out).unwrap()
    }

    #[test]
    fn weights_are_plausible() {
        // Logits that overflow or vanish: weights off centre or of the wrong size, decay that is not one.
        let dir = tempfile::tempdir().unwrap();
        for bits in [Bits::N(2), Bits::N(3), Bits::N(8), Bits::Fp8, Bits::Source] {
            let store = small_store(&dir.path().join(bits.to_string()), bits, 1);
            let verified = store.verify(&mut |_| ()).unwrap();
            assert!(verified.problems.is_empty(), "{bits}: {:?}", verified.problems);
            let dense = store.load_dense(&mut |_| ()).unwrap();
            let matrix = dense.matrix(Role::AttnQ, Some(3));
            let view = matrix.view();
            let (mut row, mut sum, mut squares) = (vec![0.0; view.cols], 0.0, 0.0);
            for i in 0..view.rows {
                view.decode_row(i, &mut row);
                sum += row.iter().map(|&w| f64::from(w)).sum::<f64>();
                squares += row.iter().map(|&w| f64::from(w).powi(2)).sum::<f64>();
            }
            let (n, root) = ((view.rows * view.cols) as f64, (view.cols as f64).sqrt());
            let (mean, std) = (sum / n * root, (squares / n).sqrt() * root);
            assert!(
                (0.7..1.4).contains(&std) && mean.abs() < 0.01,
                "{bits}: {mean} and {std} times 1/sqrt(cols)"
            );
            let norm = dense.vector(Role::FinalNorm, None);
            assert!(norm.iter().all(|w| (0.8..=1.2).contains(w)));
            let decay = dense.vector(Role::LinearALog, Some(0));
            assert!(decay.iter().all(|w| (0.02f32.ln()..=2f32.ln()).contains(w)), "{decay:?}");
        }
    }

    #[test]
    fn the_seed_decides() {
        // Bytes that depend on threads, or do not depend on the seed.
        let dir = tempfile::tempdir().unwrap();
        let manifest = |name: &str, seed| {
            let store = small_store(&dir.path().join(name), Bits::N(4), seed);
            // Checksums of all that was written.
            let weights = (store.manifest().dense.clone(), store.manifest().experts.clone());
            serde_json::to_string(&weights).unwrap()
        };
        let (first, again, other) = (manifest("a", 1), manifest("b", 1), manifest("c", 2));
        assert_eq!(first, again);
        assert_ne!(first, other);
    }

    #[test]
    fn presets_and_mistakes() {
        // A preset that does not exist or has impossible shapes; a mistake that is not explained.
        let wrong = |options: &SynthOptions| {
            synth(Path::new("/nonexistent/out"), options, &mut |_| ()).unwrap_err().to_string()
        };
        let error = wrong(&options("qwen9", 1, Bits::N(4)));
        assert!(SYNTH_PRESETS.iter().all(|preset| error.contains(preset)), "{error}");
        for preset in SYNTH_PRESETS {
            let full = SynthOptions { n_layer: None, n_vocab: None, ..options(preset, 0, Bits::N(4)) };
            plan(config(&full).unwrap(), &full).unwrap();
            assert!(wrong(&options(preset, 0, Bits::N(4))).contains("layers is 0"), "{preset}");
        }
        let mut odd = options("qwen3-30b", 1, Bits::N(4));
        odd.pack.group = 48;
        assert!(wrong(&odd).contains("group 48"));
    }

    #[test]
    fn expert_sizes_of_the_presets() {
        // A preset with another model's shapes. Bytes of one expert at 4 bits, group 64, as published.
        for (preset, bytes, n_linear) in
            [("qwen3.5-35b", 1_769_472, 30), ("qwen3.5-122b", 5_308_416, 36), ("qwen3.5-397b", 7_077_888, 45)]
        {
            let full = SynthOptions { n_layer: None, ..options(preset, 0, Bits::N(4)) };
            let config = config(&full).unwrap();
            let formats = plan(config.clone(), &full).unwrap().experts[0].formats;
            assert_eq!(ExpertLayer::ranges(&formats, &config)[2].end, bytes, "{preset}");
            assert_eq!(config.n_layer_of(LayerKind::LinearAttention), n_linear, "{preset}");
        }
    }

    const N_TOKEN: usize = 2048;

    /// The experts that the router of `layer` chooses for each token's embedding, sorted.
    fn chosen(dense: &Dense, layer: usize, k: usize) -> Vec<Vec<usize>> {
        let decoded = |role, layer| -> Vec<Vec<f64>> {
            let matrix = dense.matrix(role, layer);
            let mut row = vec![0.0; matrix.cols()];
            let mut decode = |i| {
                matrix.view().decode_row(i, &mut row);
                row.iter().map(|&w| f64::from(w)).collect()
            };
            (0..matrix.rows()).map(&mut decode).collect()
        };
        let product = |a: &[f64], b: &[f64]| a.iter().zip(b).map(|(a, b)| a * b).sum::<f64>();
        let router = decoded(Role::Router, Some(layer));
        let choose = |x: Vec<f64>| {
            let norm = (product(&x, &x) / x.len() as f64).sqrt();
            let logits: Vec<f64> = router.iter().map(|row| product(row, &x) / norm).collect();
            let mut order: Vec<usize> = (0..logits.len()).collect();
            order.sort_by(|&a, &b| logits[b].total_cmp(&logits[a]));
            order.truncate(k);
            order.sort_unstable();
            order
        };
        decoded(Role::Embed, None).into_iter().map(choose).collect()
    }

    fn routed_store(out: &Path, routing: Routing) -> (Store, ModelConfig) {
        let options = SynthOptions { routing, ..options("qwen3.5-397b", 4, Bits::N(4)) };
        let shapes = config(&options).unwrap();
        let config = ModelConfig {
            n_expert: 64,
            n_expert_used: 4,
            d_ff_expert: 64,
            d_model: 512,
            n_vocab: N_TOKEN,
            ..shapes
        };
        write(out, plan(config.clone(), &options).unwrap(), &options, &mut |_| ()).unwrap();
        (Store::open(out).unwrap(), config)
    }

    /// Experts are not used as often as asked for, or the same ones in all layers.
    #[test]
    fn popularity_has_the_exponent_asked_for() {
        let dir = tempfile::tempdir().unwrap();
        for (routing, exponent) in
            [(Routing::Uniform, 0.0), (Routing::Zipf(0.5), 0.5), (Routing::Zipf(1.0), 1.0)]
        {
            let (store, config) = routed_store(&dir.path().join(routing.to_string()), routing);
            let dense = store.load_dense(&mut |_| ()).unwrap();
            let mut favourites = Vec::new();
            for layer in 0..config.n_layer() {
                let mut counts = vec![(0.0f64, 0); config.n_expert];
                for expert in chosen(&dense, layer, config.n_expert_used).concat() {
                    counts[expert] = (counts[expert].0 + 1.0, expert);
                }
                counts.sort_by(|a, b| b.0.total_cmp(&a.0));
                favourites.push(counts[0].1);
                let points =
                    counts.iter().zip(1..).map(|((n, _), rank)| (f64::from(rank).ln(), n.max(1.0).ln()));
                let slope = slope(points.collect());
                assert!((slope + exponent).abs() < 0.15, "{routing} layer {layer}: {slope}");
            }
            favourites.dedup();
            assert!(favourites.len() > 1, "{routing}: {favourites:?}");
        }
    }

    /// Of the line that fits best.
    fn slope(points: Vec<(f64, f64)>) -> f64 {
        let n = points.len() as f64;
        let (x, y) = points.iter().fold((0.0, 0.0), |sum, p| (sum.0 + p.0 / n, sum.1 + p.1 / n));
        let (up, down) = points
            .iter()
            .fold((0.0, 0.0), |sum, p| (sum.0 + (p.0 - x) * (p.1 - y), sum.1 + (p.0 - x).powi(2)));
        up / down
    }

    /// Tokens of a topic do not share experts, or share them with all other tokens.
    #[test]
    fn topics_have_experts_of_their_own() {
        let dir = tempfile::tempdir().unwrap();
        let routing = Routing::Topics { n_topic: 8, gain: 1.5 };
        let (store, config) = routed_store(&dir.path().join("store"), routing);
        assert_eq!(store.manifest().source.fingerprint, "seed 1, routing topics:8,1.5");
        let dense = store.load_dense(&mut |_| ()).unwrap();
        let popularity = Popularity::new(routing, &config, 1).unwrap();
        for layer in 0..config.n_layer() {
            let chosen = chosen(&dense, layer, config.n_expert_used);
            let (mut same, mut other) = ((0, 0), (0, 0));
            for a in 0..200 {
                for b in 0..a {
                    let sum = if popularity.topic(a) == popularity.topic(b) { &mut same } else { &mut other };
                    sum.0 += chosen[a].iter().filter(|e| chosen[b].contains(e)).count();
                    sum.1 += config.n_expert_used;
                }
            }
            let share = |(n, of): (usize, usize)| n as f64 / of as f64;
            assert!(share(same) > 2.5 * share(other), "layer {layer}: {same:?} {other:?}");
        }
    }
}
