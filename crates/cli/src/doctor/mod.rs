//! `doctor`: what this machine can do, what a model will do on it, and what to change.
//!
//! `products.rs`, `machine.rs` and `scratch.rs` measure and look, `predict.rs` calculates, `advice.rs` judges,
//! `text.rs` shows. `gpu.rs` does all of that for GPUs.

mod advice;
mod gpu;
mod machine;
mod products;
mod scratch;
mod text;

use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::Duration;

use convert::{Bits, PackOptions, Routing, SYNTH_PRESETS, SynthOptions};
use kernels::{Cores, Cpu, KvFormat};
use serde::{Serialize, Serializer};
use store::{Manifest, Store};
use stream::{DriveFacts, Heat, MemoryFacts};

use crate::cachedir::CacheDir;
use crate::drive::{self, Drive, Measured};
use crate::flags::{Cache, DoctorFlags, Prefetch};
use crate::output::note;
use crate::plan::{Plan, Wishes, Work};
use crate::predict::{Needs, Prediction, Rates};
use crate::{heatfile, interrupt, report, target};
use advice::Findings;
use products::Products;
use scratch::Scratch;

/// Tokens of the prompt whose speed is predicted.
const N_PROMPT: usize = 512;
/// How long memory is read.
const RAM_TIME: Duration = Duration::from_millis(400);
/// What the measurement of memory takes, and room to spare.
const RAM_BYTES: u64 = 3 << 29;

/// `--json`, and what the text shows.
#[derive(Debug, Serialize)]
struct Report {
    machine: Machine,
    measured: Rated,
    models: Vec<Model>,
    advice: Vec<String>,
}

#[derive(Debug, Serialize)]
struct Machine {
    cpu: String,
    instruction_set: String,
    #[serde(serialize_with = "cores_json")]
    cores: Cores,
    threads: usize,
    gpus: Vec<gpu::Listed>,
    /// What is measured and predicted here.
    device: &'static str,
    #[serde(serialize_with = "memory_json")]
    memory: MemoryFacts,
    #[serde(serialize_with = "drive_json")]
    drive: Option<DriveFacts>,
}

/// Rates in 10⁹ a second.
#[derive(Debug, Serialize)]
struct Rated {
    /// Reads of one expert at random places; `None` if there was nothing to read.
    drive: Option<DriveRated>,
    ram_gb_s: Option<f64>,
    /// Weights, one token.
    dense_gb_s: f64,
    experts_gb_s: f64,
    /// Two for each multiply-add, many tokens.
    prefill_gflop_s: f64,
}

#[derive(Debug, Serialize)]
struct DriveRated {
    request_bytes: usize,
    direct_gb_s: f64,
    buffered_gb_s: f64,
    page_cache_gb_s: f64,
    settings: Vec<Setting>,
}

/// One way to read, the fastest first.
#[derive(Debug, Serialize)]
struct Setting {
    method: &'static str,
    request_bytes: usize,
    depth: usize,
    gb_s: f64,
}

#[derive(Debug, Serialize)]
struct Model {
    name: String,
    expert_bytes: u64,
    #[serde(flatten)]
    outcome: Outcome,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "snake_case")]
enum Outcome {
    Fits(Box<Fit>),
    DoesNotFit { needed_bytes: u64 },
}

#[derive(Debug, Serialize)]
struct Fit {
    budget_bytes: u64,
    dense_bytes: u64,
    n_slot: usize,
    n_expert_record: u64,
    cache: &'static str,
    prediction: Option<Prediction>,
}

pub(crate) fn doctor(flags: &DoctorFlags) -> anyhow::Result<()> {
    interrupt::install()?;
    if flags.gpu {
        return gpu::doctor(flags.json);
    }
    let store = flags.model.as_deref().map(|path| target::open(Some(path))).transpose()?;
    let manifests = match &store {
        Some(store) => vec![store.manifest().clone()],
        None => SYNTH_PRESETS.iter().map(|like| known_model(like)).collect::<Result<_, _>>()?,
    };
    let example = manifests
        .iter()
        .max_by_key(|m| drive::record_bytes(m) * m.config.n_expert)
        .expect("there is a model or the known ones");
    let cores = Cores::read();
    let n_thread = flags.threads.unwrap_or(cores.n_thread());
    let cpu = Cpu::new(n_thread);
    let memory = MemoryFacts::read();

    let cache = CacheDir::open(true);
    let measured = measure_drive(store.as_ref(), example, &cache);
    note("measuring memory and processor");
    let ram_bytes_s = (RAM_BYTES < memory.available_bytes).then(|| cpu.measure_ram_bandwidth(RAM_TIME));
    let products = Products::measure(&cpu, example)?;

    let wishes = Wishes {
        memory: flags.memory.0,
        cache: Cache::Auto,
        ctx: None,
        threads: Some(n_thread),
        readers: None,
        experts: None,
        prefetch: Prefetch::Auto,
        kv: KvFormat::default(),
        vram: None,
    };
    let drive = measured.as_ref().map_or(Drive::unknown(), |measured| measured.drive);
    let heat = store.as_ref().and_then(|store| heatfile::read(&cache, store.fingerprint()));
    let judge = |manifest: &Manifest| model(manifest, &wishes, &drive, &products, ram_bytes_s, heat.as_ref());
    let models: Vec<Model> = manifests.iter().map(judge).collect();
    let facts = measured.as_ref().and_then(|measured| measured.facts.clone());
    let findings = findings(flags, &memory, measured.as_ref(), &models);
    let report = Report {
        machine: Machine {
            cpu: machine::cpu_name(),
            instruction_set: cpu.isa().to_string(),
            cores,
            threads: n_thread,
            gpus: gpu::list(),
            device: "cpu",
            memory,
            drive: facts,
        },
        measured: rated(measured.as_ref(), ram_bytes_s, &products, drive::record_bytes(example)),
        models,
        advice: advice::advise(&findings),
    };
    match flags.json {
        true => report::print(&report),
        false => print_text(&text::show(&report)),
    }
}

fn print_text(text: &str) -> anyhow::Result<()> {
    Ok(std::io::stdout().lock().write_all(text.as_bytes())?)
}

/// A model at 4 bits, as `pack` would make it.
fn known_model(like: &str) -> anyhow::Result<Manifest> {
    let pack = PackOptions { bits: "4".parse::<Bits>()?, ..PackOptions::default() };
    let (model, routing) = (like.to_owned(), Routing::Uniform);
    let options = SynthOptions { like: model, n_layer: None, n_vocab: None, pack, seed: 0, routing };
    let mut manifest = convert::synth_plan(&options)?.manifest();
    // What it stands for: weights that people use.
    manifest.source.kind = "safetensors".into();
    manifest.name = like.to_owned();
    Ok(manifest)
}

/// On the model's own files, or on a file that is made for it in the current folder. A drive that cannot be measured
/// is no reason to stop.
fn measure_drive(store: Option<&Store>, example: &Manifest, cache: &CacheDir) -> Option<Measured> {
    let mut scratch = None;
    let files: Vec<PathBuf> = match store {
        Some(store) => drive::expert_files(store),
        None => {
            note("writing a temporary file of up to 1 GiB into this folder, to measure its drive");
            match Scratch::write(Path::new("."), scratch::BYTES_MAX) {
                Ok(file) => vec![scratch.insert(file).path.clone()],
                Err(error) => {
                    note(format_args!("note: no file can be written here: {error}"));
                    return None;
                }
            }
        }
    };
    note("measuring the drive");
    match drive::measure(&files, drive::record_bytes(example)) {
        Ok(measured) => {
            measured.remember(cache);
            Some(measured)
        }
        Err(error) => {
            note(format_args!("note: the drive cannot be measured: {error}"));
            None
        }
    }
}

fn rated(
    measured: Option<&Measured>,
    ram_bytes_s: Option<f64>,
    products: &Products,
    request_bytes: usize,
) -> Rated {
    let drive = measured.and_then(|measured| {
        let rates = measured.drive.rates?;
        let mut table = measured.table.clone();
        table.sort_by(|a, b| b.1.total_cmp(&a.1));
        let setting = |&(tuning, rate): &(stream::Tuning, f64)| Setting {
            method: drive::method_name(tuning.method),
            request_bytes: tuning.request_bytes.min(request_bytes),
            depth: tuning.depth,
            gb_s: rate / 1e9,
        };
        Some(DriveRated {
            request_bytes,
            direct_gb_s: rates.direct_bytes_s / 1e9,
            buffered_gb_s: rates.buffered_bytes_s / 1e9,
            page_cache_gb_s: rates.copy_bytes_s / 1e9,
            settings: table.iter().map(setting).collect(),
        })
    });
    Rated {
        drive,
        ram_gb_s: ram_bytes_s.map(|rate| rate / 1e9),
        dense_gb_s: 1e-9 / products.dense.seconds(1.0, 1.0),
        experts_gb_s: 1e-9 / products.experts.seconds(1.0, 1.0),
        prefill_gflop_s: 2e-9 * products.macs_per_byte / products.experts.token_s,
    }
}

/// One model on this machine.
fn model(
    manifest: &Manifest,
    wishes: &Wishes,
    drive: &Drive,
    products: &Products,
    ram_bytes_s: Option<f64>,
    heat: Option<&Heat>,
) -> Model {
    let work = Work { n_ctx: None, n_feed: Some(N_PROMPT), keeps_prefixes: false, n_session: 1 };
    let outcome = match Plan::new(wishes, manifest, work, drive) {
        Ok(plan) => {
            let needs = Needs::of(manifest, plan.n_expert_used);
            let predict = |supply| {
                let Products { dense, experts, .. } = *products;
                // Without a measurement: as fast as the products read it.
                let ram_bytes_s = ram_bytes_s.unwrap_or(1.0 / dense.seconds(1.0, 1.0));
                let rates = Rates { supply, ram_bytes_s, dense, experts };
                let (n_slot, n_batch) = (plan.n_cached(), plan.n_batch);
                let hit_rate = match heat.and_then(|heat| heat.hottest_share(n_slot)) {
                    Some(share) => needs.hit_rate_after(n_slot, share),
                    None => needs.hit_rate(n_slot),
                };
                Prediction::new(&needs, &rates, n_slot, n_batch, hit_rate, N_PROMPT)
            };
            Outcome::Fits(Box::new(Fit {
                budget_bytes: plan.budget.0,
                dense_bytes: plan.dense_bytes(),
                n_slot: plan.stream.n_slot,
                n_expert_record: plan.n_record(),
                cache: plan.cache_name(),
                prediction: drive.rates.map(|rates| predict(rates.supply(plan.stream.mode))),
            }))
        }
        Err(crate::error::CliError::Memory(room)) => Outcome::DoesNotFit { needed_bytes: room.needed().0 },
        Err(error) => unreachable!("nothing was asked for but memory: {error}"),
    };
    let expert_bytes =
        drive::record_bytes(manifest) as u64 * (manifest.config.n_layer() * manifest.config.n_expert) as u64;
    Model { name: manifest.name.clone(), expert_bytes, outcome }
}

fn findings(
    flags: &DoctorFlags,
    memory: &MemoryFacts,
    measured: Option<&Measured>,
    models: &[Model],
) -> Findings {
    let mut findings = Findings {
        memory: memory.clone(),
        too_hot: machine::too_hot(),
        is_budget_given: flags.memory.0.is_some(),
        ..Findings::default()
    };
    if let Some(measured) = measured {
        findings.drive_bytes_s = measured.drive.rates.map(|rates| rates.direct_bytes_s);
        findings.drive = measured.facts.clone();
        findings.is_direct = Some(measured.is_direct);
    }
    // Advice about one model needs one.
    if let [Model { expert_bytes, outcome: Outcome::Fits(fit), .. }] = models {
        findings.expert_bytes = Some(*expert_bytes);
        findings.budget_bytes = fit.budget_bytes;
        findings.limit = fit.prediction.map(|prediction| prediction.decode_limit);
    }
    findings
}

fn drive_json<S: Serializer>(drive: &Option<DriveFacts>, serializer: S) -> Result<S::Ok, S::Error> {
    let json = |drive: &DriveFacts| {
        serde_json::json!({
            "device": drive.device,
            "model": drive.model,
            "is_rotational": drive.is_rotational,
            "is_removable": drive.is_removable,
            "filesystem": drive.filesystem,
            "mount_options": drive.mount_options,
            "read_ahead_bytes": drive.read_ahead_bytes,
        })
    };
    drive.as_ref().map(json).serialize(serializer)
}

fn cores_json<S: Serializer>(cores: &Cores, serializer: S) -> Result<S::Ok, S::Error> {
    serde_json::json!({
        "logical": cores.n_cpu,
        "physical": cores.n_core,
        "fast": cores.n_fast,
        "container_limit": cores.quota,
    })
    .serialize(serializer)
}

fn memory_json<S: Serializer>(memory: &MemoryFacts, serializer: S) -> Result<S::Ok, S::Error> {
    serde_json::json!({
        "physical_bytes": memory.physical_bytes,
        "limit_bytes": memory.limit_bytes,
        "available_bytes": memory.available_bytes,
        "swap_bytes": memory.swap_bytes,
        "swap_used_bytes": memory.swap_used_bytes,
        "huge_pages": memory.huge_pages,
    })
    .serialize(serializer)
}
