//! What the user typed, and nothing else: no defaults that depend on the machine or the model, no files opened.
//! `plan.rs` turns it into decisions.

mod eval;
mod prefix;

use std::ffi::OsString;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use clap::{Args, Parser, Subcommand, ValueEnum};
use convert::{Bits, PackOptions, Quantiser, Recipe, RoleSelector, Routing, SYNTH_PRESETS};
use hub::Repo;
use kernels::KvFormat;
use stream::SimSpec;

pub(crate) use eval::{CallRule, Counting, EvalFlags, MatrixFlags, TextFlags};
pub(crate) use prefix::{CacheCommand, CacheFlags, ExportFlags, ImportFlags, PrefixFlags};

use crate::plan::N_SESSION_MAX;
use crate::size::Size;

/// Runs Mixture-of-Experts language models larger than memory.
#[derive(Debug, Parser)]
#[command(name = "flash-moe", version, max_term_width = 100)]
pub(crate) struct Flags {
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Answer one prompt (without MODEL: with the demo model inside this program).
    Run(RunFlags),
    /// Chat in the terminal (without MODEL: with the demo model inside this program).
    Chat(ChatFlags),
    /// Answer over HTTP, like the OpenAI API, with a web page (without MODEL: with the demo model inside this program).
    Serve(Box<ServeFlags>),
    /// Download a model from a hub; what an earlier run has begun is continued.
    #[command(mut_args(only_with_pack))]
    Pull(PullFlags),
    /// Turn a checkpoint into a store: faster reads, checksums, other bits.
    Pack(PackFlags),
    /// Say what a model is: shapes, sizes, bytes per token, memory plan.
    Inspect(InspectFlags),
    /// Read a whole store and check checksums and values.
    Verify(VerifyFlags),
    /// Measure drive, memory and processor, predict speeds, say what to change.
    Doctor(DoctorFlags),
    /// Measure prefill and decode speed, and the limits of this machine.
    Bench(BenchFlags),
    /// Measure quality: perplexity, distance from a reference, tool calls; by bits and experts. Or write logits.
    Eval(Box<EvalFlags>),
    /// Write a store with random weights at a model's true shapes.
    Synth(SynthFlags),
    /// Show or remove what is kept of prompts on disk, make a file of a session, or take one in.
    Cache(CacheFlags),
}

#[derive(Debug, Args)]
pub(crate) struct RunFlags {
    /// A store, a checkpoint (safetensors, MLX, GGUF), or a repository that was pulled. If only one argument is given:
    /// a model if it is an existing path or looks like one, else the prompt.
    #[arg(value_name = "MODEL")]
    pub(crate) first: Option<OsString>,
    /// The prompt; `-` reads it from standard input. Without one: a chat on a terminal, else standard input.
    #[arg(value_name = "PROMPT")]
    pub(crate) second: Option<String>,
    /// The prompt is the whole text: no chat template, special tokens in it count.
    #[arg(long, conflicts_with_all = ["schema", "system", "file", "tools", "think", "think_budget"])]
    pub(crate) raw: bool,
    /// Result as JSON on standard output, everything else on standard error.
    #[arg(long)]
    pub(crate) json: bool,
    /// The answer is JSON that this JSON schema accepts.
    #[arg(long, value_name = "FILE.json")]
    pub(crate) schema: Option<PathBuf>,
    /// Write down which experts each token uses, for `bench --trace`.
    #[arg(long, value_name = "FILE")]
    pub(crate) record_routing: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) answer: AnswerFlags,
    #[command(flatten)]
    pub(crate) prefix: PrefixFlags,
    #[command(flatten)]
    pub(crate) engine: EngineFlags,
}

#[derive(Debug, Args)]
pub(crate) struct ChatFlags {
    /// A store, a checkpoint (safetensors, MLX, GGUF), or a repository that was pulled.
    pub(crate) model: Option<PathBuf>,
    /// The model may ask to run commands of the shell: each is shown, and run only after a yes.
    #[arg(long)]
    pub(crate) shell: bool,
    /// Go on with the last conversation that was held with this model.
    #[arg(long)]
    pub(crate) resume: bool,
    #[command(flatten)]
    pub(crate) answer: AnswerFlags,
    #[command(flatten)]
    pub(crate) prefix: PrefixFlags,
    #[command(flatten)]
    pub(crate) engine: EngineFlags,
}

#[derive(Debug, Args)]
pub(crate) struct ServeFlags {
    /// A store, a checkpoint (safetensors, MLX, GGUF), or a repository that was pulled.
    pub(crate) model: Option<PathBuf>,
    /// Address to listen on: anything but this machine alone needs --api-key or --no-auth.
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1")]
    pub(crate) host: String,
    /// Port to listen on; 0 is any that is free.
    #[arg(long, value_name = "N", default_value_t = 8080)]
    pub(crate) port: u16,
    /// Key that requests must carry [default: the environment variable FLASH_MOE_API_KEY, which others cannot see].
    #[arg(long, value_name = "KEY")]
    pub(crate) api_key: Option<String>,
    /// File with keys, one a line.
    #[arg(long, value_name = "FILE")]
    pub(crate) api_key_file: Option<PathBuf>,
    /// Answer everybody who can reach the address.
    #[arg(long, conflicts_with_all = ["api_key", "api_key_file"])]
    pub(crate) no_auth: bool,
    /// Another name of this host that requests may use; repeatable.
    #[arg(long, value_name = "NAME")]
    pub(crate) allowed_host: Vec<String>,
    /// Origin of web pages that may use the server, such as `https://chat.example.org`; repeatable. Pages of this
    /// machine may.
    #[arg(long, value_name = "ORIGIN")]
    pub(crate) allowed_origin: Vec<String>,
    /// Name of the model for clients, before its own; repeatable.
    #[arg(long, value_name = "NAME")]
    pub(crate) alias: Vec<String>,
    /// Answers that are made at the same time, each with a context of its own [default: up to 4, if memory allows].
    #[arg(long, value_name = "N", value_parser = parallel())]
    pub(crate) parallel: Option<usize>,
    /// Requests that may wait besides.
    #[arg(long, value_name = "N", default_value_t = 64, value_parser = at_least_one())]
    pub(crate) queue: usize,
    /// Most tokens of an answer, where a request does not say [default: what the context has left].
    #[arg(long, value_name = "N", value_parser = at_least_one())]
    pub(crate) max_tokens: Option<usize>,
    /// Let the model think before it answers, where a request does not say [default: as its template has it].
    #[arg(long, value_name = "WHEN")]
    pub(crate) think: Option<OnOff>,
    /// Most tokens of thinking, where a request does not say [default: no limit].
    #[arg(long, value_name = "N", value_parser = at_least_one())]
    pub(crate) think_budget: Option<usize>,
    /// Field of answers that thinking goes to.
    #[arg(long, value_name = "NAME", default_value = "reasoning_content")]
    pub(crate) reasoning_field: ReasoningField,
    /// Leave the line about billing in the system prompts of Claude Code, which changes with each request: prompts are
    /// then read from their start.
    #[arg(long)]
    pub(crate) keep_billing_line: bool,
    #[command(flatten)]
    pub(crate) sampling: SamplingFlags,
    #[command(flatten)]
    pub(crate) prefix: PrefixFlags,
    #[command(flatten)]
    pub(crate) engine: EngineFlags,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
#[value(rename_all = "snake_case")]
pub(crate) enum ReasoningField {
    ReasoningContent,
    Reasoning,
}

/// What stands before the question.
#[derive(Clone, Debug, Args)]
pub(crate) struct OpeningFlags {
    /// What the model is told before the conversation.
    #[arg(long, value_name = "TEXT")]
    pub(crate) system: Option<String>,
    /// Put a text file before the (first) message; repeatable.
    #[arg(long, value_name = "PATH")]
    pub(crate) file: Vec<PathBuf>,
    /// Tools that the model may call: an array of declarations in the form of the OpenAI API.
    #[arg(long, value_name = "FILE.json")]
    pub(crate) tools: Option<PathBuf>,
    /// Let the model think before it answers [default: as its template has it].
    #[arg(long, value_name = "WHEN")]
    pub(crate) think: Option<OnOff>,
}

/// How an answer is made.
#[derive(Clone, Debug, Args)]
pub(crate) struct AnswerFlags {
    #[command(flatten)]
    pub(crate) opening: OpeningFlags,
    /// Most tokens of an answer [default: what the context has left].
    #[arg(long, value_name = "N", value_parser = at_least_one())]
    pub(crate) max_tokens: Option<usize>,
    /// Most tokens of thinking: then the answer begins.
    #[arg(long, value_name = "N", value_parser = at_least_one())]
    pub(crate) think_budget: Option<usize>,
    /// Do not show thinking.
    #[arg(long)]
    pub(crate) hide_thinking: bool,
    /// End the answer before this text; repeatable.
    #[arg(long, value_name = "TEXT", value_parser = clap::builder::NonEmptyStringValueParser::new())]
    pub(crate) stop: Vec<String>,
    /// Complete JSON and calls that a limit would cut, with the first values that fit.
    #[arg(long)]
    pub(crate) close_at_limit: bool,
    /// Print where the time went, by layer.
    #[arg(long)]
    pub(crate) timing: bool,
    #[command(flatten)]
    pub(crate) sampling: SamplingFlags,
}

/// How tokens are chosen. Defaults come from the model's generation_config.json.
#[derive(Clone, Debug, Default, PartialEq, Args)]
#[command(next_help_heading = "Sampling (defaults come from the model)")]
pub(crate) struct SamplingFlags {
    /// Makes sampling repeatable [default: another one each time].
    #[arg(long, value_name = "N")]
    pub(crate) seed: Option<u64>,
    /// 0 takes the likeliest token.
    #[arg(long, value_name = "X", allow_negative_numbers = true)]
    pub(crate) temperature: Option<f32>,
    /// Likeliest tokens that hold this much probability.
    #[arg(long, value_name = "X", allow_negative_numbers = true)]
    pub(crate) top_p: Option<f32>,
    /// So many of the likeliest tokens; 0 is all.
    #[arg(long, value_name = "N")]
    pub(crate) top_k: Option<usize>,
    /// Tokens at least this likely, relative to the likeliest.
    #[arg(long, value_name = "X", allow_negative_numbers = true)]
    pub(crate) min_p: Option<f32>,
    /// Subtracted from the logits of tokens that were generated before.
    #[arg(long, value_name = "X", allow_negative_numbers = true)]
    pub(crate) presence_penalty: Option<f32>,
    /// Subtracted as often as a token was generated before.
    #[arg(long, value_name = "X", allow_negative_numbers = true)]
    pub(crate) frequency_penalty: Option<f32>,
    /// Divides (or multiplies) the logits of tokens that were seen before; 1 is off.
    #[arg(long, value_name = "X", allow_negative_numbers = true)]
    pub(crate) repetition_penalty: Option<f32>,
}

/// Where and in how much memory the model runs.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Engine")]
pub(crate) struct EngineFlags {
    /// Where to compute: cpu, gpu (the best one), gpu:N (a certain one, see `doctor`); auto is a GPU if there is one
    /// that can be used, else the CPU.
    #[arg(long, value_name = "DEVICE", default_value = "auto", value_parser = str::parse::<Device>)]
    pub(crate) device: Device,
    /// What to use of a GPU's own memory, such as 10GiB; auto is a safe share of it.
    #[arg(long, value_name = "SIZE", default_value = "auto")]
    pub(crate) vram: Budget,
    /// Computing threads [default: one a core, of the fast ones if there are two kinds].
    #[arg(long, value_name = "N", value_parser = at_least_one())]
    pub(crate) threads: Option<usize>,
    /// The whole memory budget, such as 6GiB or 1500MB; auto is a safe share of what is available.
    #[arg(long, value_name = "SIZE", default_value = "auto")]
    pub(crate) memory: Budget,
    /// What keeps experts in memory: our own slots, or the system's page cache; auto is what the drive's measured
    /// rates make faster.
    #[arg(long, value_name = "POLICY", default_value = "auto")]
    pub(crate) cache: Cache,
    /// Threads that read experts [default: what suits the drive].
    #[arg(long, value_name = "N", value_parser = at_least_one())]
    pub(crate) readers: Option<usize>,
    /// Read experts before their layer asks for them: never, always, or where it was seen to pay.
    #[arg(long, value_name = "WHEN", default_value = "auto")]
    pub(crate) prefetch: Prefetch,
    /// Experts a token uses: fewer than the model's own number is faster and changes the output. Several, such as
    /// 6,4,2, for `eval --matrix`.
    #[arg(long, value_name = "K", value_delimiter = ',', value_parser = at_least_one())]
    pub(crate) experts: Vec<usize>,
    /// How precisely products of quantised weights see activations: as f32, or rounded to 16 bits in each group, which
    /// is faster for prompts and changes the output a little.
    #[arg(long, value_name = "PRECISION", default_value = "exact")]
    pub(crate) activations: Activations,
    /// Most tokens of prompt and answer together [default: the model's, at most 8192].
    #[arg(long, value_name = "N", value_parser = at_least_one())]
    pub(crate) ctx: Option<usize>,
    /// How keys and values of the context are stored: f16, bf16, f32 (as computed), or q8, rounded to 8 bits: long
    /// contexts take half the memory, and the output changes a little.
    #[arg(long, value_name = "FORMAT", default_value_t = KvFormat::default(), value_parser = str::parse::<KvFormat>)]
    pub(crate) kv: KvFormat,
    /// Say more on standard error: the memory plan, speeds.
    #[arg(short, long)]
    pub(crate) verbose: bool,
}

#[derive(Debug, Args)]
pub(crate) struct PullFlags {
    /// OWNER/NAME, OWNER/NAME@REVISION, OWNER/NAME:Q4_K_M for one of several GGUF models, or the address of a page.
    #[arg(value_name = "REPO", value_parser = str::parse::<Repo>)]
    pub(crate) repo: Repo,
    /// Folder for the files [default: the cache that other programs share, see HF_HOME]. With --pack: the store.
    pub(crate) dir: Option<PathBuf>,
    /// Every file of the repository, not only those that a model needs.
    #[arg(long, conflicts_with = "pack")]
    pub(crate) all: bool,
    /// Make a store of it (see `pack`): each weight file is packed while the next comes, and deleted.
    #[arg(long, requires = "dir")]
    pub(crate) pack: bool,
    /// Connections at the same time.
    #[arg(long, value_name = "N", default_value_t = 8, value_parser = connections())]
    pub(crate) connections: usize,
    /// Say more on standard error: what went wrong and was tried again.
    #[arg(short, long)]
    pub(crate) verbose: bool,
    #[command(flatten)]
    pub(crate) choice: ChoiceFlags,
}

#[derive(Debug, Args)]
pub(crate) struct PackFlags {
    /// The checkpoint: a folder of safetensors or MLX files, a GGUF file, or a repository that was downloaded.
    pub(crate) source: PathBuf,
    /// The store to write; must not exist. An unfinished one is continued.
    pub(crate) store: PathBuf,
    #[command(flatten)]
    pub(crate) choice: ChoiceFlags,
}

/// What a checkpoint's weights become.
#[derive(Debug, Args)]
pub(crate) struct ChoiceFlags {
    #[command(flatten)]
    pub(crate) format: FormatFlags,
    /// Bits by role and layer, in place of --bits: small, balanced or best. --role goes first.
    #[arg(long, value_name = "NAME", value_parser = str::parse::<Recipe>, conflicts_with = "bits")]
    pub(crate) recipe: Option<Recipe>,
    /// How codes of up to 4 bits are chosen: the range of each group in equal steps, as MLX does; or what a search
    /// finds to have the least error, which is slower: minmax or search [default: search with --imatrix, else minmax].
    #[arg(long, value_name = "HOW", value_parser = str::parse::<Quantiser>)]
    pub(crate) quantiser: Option<Quantiser>,
    /// Which errors cost most: what `eval --collect-imatrix` has written.
    #[arg(long, value_name = "FILE")]
    pub(crate) imatrix: Option<PathBuf>,
}

/// How weights are stored.
#[derive(Clone, Debug, Args)]
pub(crate) struct FormatFlags {
    /// Bits of the experts and projections: 8, 6, 5, 4, 3, 2, `fp8`, or `source` for each tensor's own type (`synth`:
    /// bf16) [default: 4; source if the checkpoint is quantised already].
    #[arg(long, value_name = "BITS", value_parser = str::parse::<Bits>)]
    pub(crate) bits: Option<Bits>,
    /// Weights that share a scale and a bias: 32, 64 or 128.
    #[arg(long, value_name = "N", default_value_t = 64)]
    pub(crate) group: u8,
    /// Other bits for one role, such as lm_head=6 or experts=3; repeatable.
    #[arg(long, value_name = "ROLE=BITS", value_parser = PackOptions::parse_role)]
    pub(crate) role: Vec<(RoleSelector, Bits)>,
}

#[derive(Debug, Args)]
pub(crate) struct InspectFlags {
    /// A store, a checkpoint or a pulled repository (without: the demo model).
    pub(crate) model: Option<PathBuf>,
    /// Result as JSON on standard output.
    #[arg(long)]
    pub(crate) json: bool,
    /// Plan for this budget, such as 6GiB; auto is a safe share of what is available.
    #[arg(long, value_name = "SIZE", default_value = "auto")]
    pub(crate) memory: Budget,
    /// Plan for this context [default: the model's, at most 8192].
    #[arg(long, value_name = "N", value_parser = at_least_one())]
    pub(crate) ctx: Option<usize>,
    /// Plan for keys and values stored as f16, bf16, f32 or q8.
    #[arg(long, value_name = "FORMAT", default_value_t = KvFormat::default(), value_parser = str::parse::<KvFormat>)]
    pub(crate) kv: KvFormat,
}

#[derive(Debug, Args)]
pub(crate) struct VerifyFlags {
    /// A store, a checkpoint or a pulled repository (without: the demo model).
    pub(crate) model: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub(crate) struct DoctorFlags {
    /// A store or checkpoint (without: predictions for each known model at 4 bits; the drive of the current folder is
    /// measured with a temporary file).
    pub(crate) model: Option<PathBuf>,
    /// Test and measure GPUs instead: a report for issues.
    #[arg(long, conflicts_with_all = ["model", "memory", "threads"])]
    pub(crate) gpu: bool,
    /// Result as JSON on standard output.
    #[arg(long)]
    pub(crate) json: bool,
    /// Predict for this budget, such as 6GiB; auto is a safe share of what is available.
    #[arg(long, value_name = "SIZE", default_value = "auto")]
    pub(crate) memory: Budget,
    /// Computing threads [default: one a core, of the fast ones if there are two kinds].
    #[arg(long, value_name = "N", value_parser = at_least_one())]
    pub(crate) threads: Option<usize>,
}

#[derive(Debug, Args)]
pub(crate) struct BenchFlags {
    /// A store, a checkpoint or a pulled repository (without: the demo model).
    pub(crate) model: Option<PathBuf>,
    /// Tokens of the random prompt.
    #[arg(long, value_name = "N", default_value_t = 128, value_parser = at_least_one())]
    pub(crate) prompt_tokens: usize,
    /// Tokens to decode.
    #[arg(long, value_name = "N", default_value_t = 32, value_parser = at_least_one())]
    pub(crate) tokens: usize,
    /// Tokens to decode before measuring starts, in each repetition.
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub(crate) warmup: usize,
    /// Also measure decode with so many positions in the context, such as 0,4096,32768, and a prompt of --prompt-tokens
    /// that goes on from there: keys and values are random, the output means nothing.
    #[arg(long, value_name = "N[,N..]", value_delimiter = ',', conflicts_with_all = ["trace", "record_routing"])]
    pub(crate) depth: Vec<usize>,
    /// Also measure decode of so many conversations at a time, such as 1,2,4,8: each has its own random tokens.
    #[arg(long, value_name = "N[,N..]", value_delimiter = ',', value_parser = n_session())]
    pub(crate) parallel: Vec<usize>,
    /// Repetitions of prefill and decode: the first one begins with an empty cache and is reported apart.
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = at_least_one())]
    pub(crate) repeat: usize,
    /// How long the drive is measured, before and after the runs; memory and arithmetic get a quarter of it.
    #[arg(long, value_name = "SECONDS", default_value = "2", value_parser = seconds)]
    pub(crate) measure: Duration,
    /// Seed of the random prompt.
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub(crate) seed: u64,
    /// Result as JSON on standard output, everything else on standard error.
    #[arg(long)]
    pub(crate) json: bool,
    /// Print where the time went, by layer.
    #[arg(long)]
    pub(crate) timing: bool,
    /// Print how this result differs from an earlier one, made with --json.
    #[arg(long, value_name = "RESULT.json")]
    pub(crate) compare: Option<PathBuf>,
    /// Draw the time by layer and phase, and the hit rate against the cache size.
    #[arg(long, value_name = "FILE.svg", value_parser = svg_path)]
    pub(crate) plot: Option<PathBuf>,
    /// Write down which experts each token uses.
    #[arg(long, value_name = "FILE", conflicts_with = "trace")]
    pub(crate) record_routing: Option<PathBuf>,
    /// Use experts that --record-routing wrote down, instead of the router's: speeds are those of that text.
    #[arg(long, value_name = "FILE")]
    pub(crate) trace: Option<PathBuf>,
    /// Read experts from a simulated drive, such as `7GB/s,latency=80us`.
    #[arg(long, value_name = "SPEC", value_parser = NamedDrive::parse)]
    pub(crate) drive: Option<NamedDrive>,
    /// Pretend that all experts are in memory: the most that this machine can compute. The output means nothing.
    #[arg(long, conflicts_with = "drive")]
    pub(crate) assume_resident: bool,
    #[command(flatten)]
    pub(crate) engine: EngineFlags,
}

/// A simulated drive, and how the user described it.
#[derive(Clone, Debug)]
pub(crate) struct NamedDrive {
    pub(crate) name: String,
    pub(crate) spec: SimSpec,
}

impl NamedDrive {
    fn parse(text: &str) -> Result<Self, String> {
        let spec = text.parse().map_err(|error| format!("{error}"))?;
        Ok(Self { name: text.to_owned(), spec })
    }
}

#[derive(Debug, Args)]
pub(crate) struct SynthFlags {
    /// The store to write; must not exist.
    pub(crate) out: PathBuf,
    /// Whose shapes.
    #[arg(long, value_name = "MODEL", value_parser = clap::builder::PossibleValuesParser::new(SYNTH_PRESETS))]
    pub(crate) like: String,
    /// Only so many layers.
    #[arg(long, value_name = "N", value_parser = at_least_one())]
    pub(crate) layers: Option<usize>,
    #[command(flatten)]
    pub(crate) format: FormatFlags,
    /// Another size of the vocabulary.
    #[arg(long, value_name = "N", value_parser = at_least_one())]
    pub(crate) vocab: Option<usize>,
    /// Which experts tokens use: `uniform`; `zipf:S`, the expert of rank r in proportion to r^-S; `topics:N,G`, N
    /// topics that each prefer experts of their own, by G times what tokens differ.
    #[arg(long, value_name = "HOW", default_value_t = Routing::Uniform, value_parser = str::parse::<Routing>)]
    pub(crate) routing: Routing,
    /// Makes the weights repeatable.
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub(crate) seed: u64,
}

/// A memory budget; `None` is for the plan to choose.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Budget(pub(crate) Option<Size>);

impl FromStr for Budget {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text == "auto" { Ok(Self(None)) } else { text.parse().map(|size| Self(Some(size))) }
    }
}

/// Where to compute.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Device {
    /// A GPU if there is one that can be used, else the CPU.
    Auto,
    Cpu,
    /// A certain one, or the best.
    Gpu(Option<usize>),
}

impl FromStr for Device {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "auto" => Ok(Self::Auto),
            "cpu" => Ok(Self::Cpu),
            "gpu" => Ok(Self::Gpu(None)),
            _ => {
                let index = text.strip_prefix("gpu:").and_then(|index| index.parse().ok());
                index
                    .map(|index| Self::Gpu(Some(index)))
                    .ok_or_else(|| format!("'{text}' is none of auto, cpu, gpu, gpu:N"))
            }
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Cache {
    /// What is faster on this drive; slots if it was never measured.
    Auto,
    /// A fixed number of expert slots, filled past the page cache.
    Slots,
    /// Buffered reads; the system keeps what it likes.
    Page,
}

/// How precisely activations enter products of quantised weights.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Activations {
    /// As f32.
    Exact,
    /// 16 bits a number, a scale a group.
    Int16,
}

impl Activations {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Exact => "exact",
            Self::Int16 => "int16",
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Prefetch {
    Auto,
    Off,
    On,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum OnOff {
    On,
    Off,
}

/// Counts of which zero makes no sense.
fn at_least_one() -> impl clap::builder::TypedValueParser<Value = usize> {
    use clap::builder::TypedValueParser;
    clap::value_parser!(u64).range(1..=u64::from(u32::MAX)).map(|n| n as usize)
}

/// Conversations that are decoded together: as many as any memory plan has activations for.
fn n_session() -> impl clap::builder::TypedValueParser<Value = usize> {
    use clap::builder::TypedValueParser;
    clap::value_parser!(u64).range(1..=N_SESSION_MAX as u64).map(|n| n as usize)
}

/// Answers at the same time.
fn parallel() -> impl clap::builder::TypedValueParser<Value = usize> {
    use clap::builder::TypedValueParser;
    clap::value_parser!(u64).range(1..=N_SESSION_MAX as u64).map(|n| n as usize)
}

/// How weights are stored matters to `pull` when it packs.
fn only_with_pack(arg: clap::Arg) -> clap::Arg {
    let is_format = ["bits", "group", "role"].iter().any(|id| arg.get_id() == id);
    if is_format { arg.requires("pack").help_heading("With --pack") } else { arg }
}

/// Connections to a hub: more are rude, and no faster.
fn connections() -> impl clap::builder::TypedValueParser<Value = usize> {
    use clap::builder::TypedValueParser;
    clap::value_parser!(u64).range(1..=64).map(|n| n as usize)
}

/// A time that is long enough to measure something.
fn seconds(text: &str) -> Result<Duration, String> {
    let seconds = text.parse::<f64>().ok().filter(|seconds| (0.05..=600.0).contains(seconds));
    seconds.map(Duration::from_secs_f64).ok_or_else(|| "not a number of seconds from 0.05 to 600".into())
}

/// A name for a chart. Text in a PNG would need font files, which not every system has.
fn svg_path(text: &str) -> Result<PathBuf, String> {
    let path = PathBuf::from(text);
    let is_svg = path.extension().is_some_and(|ending| ending.eq_ignore_ascii_case("svg"));
    is_svg.then_some(path).ok_or_else(|| "charts are SVG files: give a name that ends in .svg".into())
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    /// The declarations contradict each other: the program would panic at its start.
    #[test]
    fn the_declarations_are_consistent() {
        Flags::command().debug_assert();
    }

    /// How weights are stored would be asked for in vain, or needed where nothing is packed.
    #[test]
    fn a_pull_may_pack() {
        for case in
            ["pull a/b", "pull a/b c", "pull a/b c --pack", "pull a/b c --pack --bits 6 --role lm_head=8"]
        {
            let args = std::iter::once("flash-moe").chain(case.split(' '));
            Flags::try_parse_from(args).unwrap_or_else(|e| panic!("{case}: {e}"));
        }
    }

    /// N09: keys and values would be rounded to 8 bits unasked, which harms tool calls and long contexts.
    #[test]
    fn keys_and_values_keep_16_bits_unless_asked() {
        let flags = Flags::command();
        let all = flags.get_subcommands().flat_map(|command| command.get_arguments());
        let kv: Vec<_> = all.filter(|arg| arg.get_id() == "kv").map(|arg| arg.get_default_values()).collect();
        assert!(kv.len() > 2 && kv.iter().all(|values| *values == ["f16"]), "{kv:?}");
    }

    /// Nobody can mean these.
    const BAD_USAGE: &[&str] = &[
        "pull",
        "pull name",
        "pull a/../b",
        "pull a/b --pack",
        "pull a/b c --bits 4",
        "pull a/b c --pack --bits 7",
        "pull a/b c --pack --all",
        "pull a/b --connections 0",
        "pull a/b --connections 65",
        "run --threads 0",
        "run --memory 6G",
        "run --cache disk",
        "run --prefetch maybe",
        "run --device tpu",
        "run --device gpu:first",
        "run --vram much",
        "run --kv q4",
        "bench m --depth -1",
        "bench m --depth 0,",
        "bench m --depth many",
        "bench m --depth 10 --trace t",
        "bench m --parallel 0",
        "bench m --parallel 1,",
        "bench m --parallel 65",
        "run --think maybe",
        "run --think-budget 0",
        "run --raw --schema s.json",
        "run --raw --tools t.json",
        "run --shell",
        "run --stop=",
        "bench m --tokens 0",
        "bench m --repeat 0",
        "bench m --measure 0",
        "bench m --measure nan",
        "bench m --plot chart.png",
        "bench m --trace a --record-routing b",
        "bench m --drive fast",
        "bench m --drive 7GB/s --assume-resident",
        "doctor m --gpu",
        "doctor --gpu --threads 2",
        "eval m",
        "eval m --text t --ids a --dump-logits b",
        "eval m --text t --calls held",
        "eval m --text t --close-at-limit",
        "eval m --text t --out o",
        "eval m --text t --bits 4",
        "eval m --text t --plot p.svg",
        "eval m --text t --window 1",
        "eval m --text t --stride 0",
        "eval m --text t --counting some",
        "eval m --window 5 --dialogues d --out o",
        "eval m --reference r --dialogues d --out o",
        "eval m --text t --reference-top 5",
        "eval m --text t --sample 5",
        "eval m --text t --matrix",
        "eval m --matrix --out o",
        "eval m --text t --matrix --out o --save-reference r",
        "eval m --text t --matrix --out o --reference r",
        "eval m --text t --matrix --out o --bits 4,",
        "eval m --text t --matrix --out o -- --group 32",
        "eval m --ids a",
        "eval m --dump-logits a",
        "eval m --ids a --dump-logits b --dialogues c --out d",
        "eval m --ids a --dump-logits b --json",
        "eval m --ids a --dump-logits b --calls held",
        "eval m --dialogues c",
        "eval m --dialogues c --out d --calls never",
        "serve --parallel 0",
        "serve --parallel 65",
        "serve --port 65536",
        "serve --no-auth --api-key k",
        "serve --reasoning-field thoughts",
        "synth out",
        "synth out --like gpt",
        "synth out --like qwen3-30b --routing zipf:",
        "synth out --like qwen3-30b --routing zipf:nan",
        "synth out --like qwen3-30b --routing zipf:-1",
        "synth out --like qwen3-30b --routing topics:0,1",
        "pack a b --bits 7",
        "pack a b --role lm_head",
        "cache export",
        "cache export a b c",
        "cache export a b --raw",
        "cache import",
        "cache import a b c",
    ];

    /// A command line would be taken for another.
    #[test]
    fn bad_usage_is_refused() {
        for case in BAD_USAGE {
            let args = std::iter::once("flash-moe").chain(case.split(' '));
            let error = Flags::try_parse_from(args).expect_err(case);
            assert_eq!(error.exit_code(), 2, "{case}");
        }
    }
}
