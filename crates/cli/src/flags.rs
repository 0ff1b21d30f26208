//! What the user typed, and nothing else: no defaults that depend on the machine or the model, no files opened.
//! `plan.rs` turns it into decisions.

use std::ffi::OsString;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use clap::{Args, Parser, Subcommand, ValueEnum};
use convert::{Bits, PackOptions, RoleSelector, Routing, SYNTH_PRESETS};
use kernels::KvFormat;
use stream::SimSpec;

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
    /// Turn a checkpoint (a folder of safetensors files) into a store.
    Pack(PackFlags),
    /// Say what a store is: shapes, sizes, bytes per token, memory plan.
    Inspect(InspectFlags),
    /// Read a whole store and check checksums and values.
    Verify(VerifyFlags),
    /// Measure drive, memory and processor, predict speeds, say what to change.
    Doctor(DoctorFlags),
    /// Measure prefill and decode speed, and the limits of this machine.
    Bench(BenchFlags),
    /// Write the logits of given tokens, or the answers to given dialogues.
    Eval(EvalFlags),
    /// Write a store with random weights at a model's true shapes.
    Synth(SynthFlags),
}

#[derive(Debug, Args)]
pub(crate) struct RunFlags {
    /// A store (see `pack`). If only one argument is given: a model if it is an existing path or looks like one,
    /// else the prompt.
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
    pub(crate) engine: EngineFlags,
}

#[derive(Debug, Args)]
pub(crate) struct ChatFlags {
    /// A store (see `pack`).
    pub(crate) model: Option<PathBuf>,
    /// The model may ask to run commands of the shell: each is shown, and run only after a yes.
    #[arg(long)]
    pub(crate) shell: bool,
    #[command(flatten)]
    pub(crate) answer: AnswerFlags,
    #[command(flatten)]
    pub(crate) engine: EngineFlags,
}

#[derive(Debug, Args)]
pub(crate) struct ServeFlags {
    /// A store (see `pack`).
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
    #[command(flatten)]
    pub(crate) sampling: SamplingFlags,
    #[command(flatten)]
    pub(crate) engine: EngineFlags,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
#[value(rename_all = "snake_case")]
pub(crate) enum ReasoningField {
    ReasoningContent,
    Reasoning,
}

/// How an answer is made.
#[derive(Clone, Debug, Args)]
pub(crate) struct AnswerFlags {
    /// Most tokens of an answer [default: what the context has left].
    #[arg(long, value_name = "N", value_parser = at_least_one())]
    pub(crate) max_tokens: Option<usize>,
    /// Let the model think before it answers [default: as its template has it].
    #[arg(long, value_name = "WHEN")]
    pub(crate) think: Option<OnOff>,
    /// Most tokens of thinking: then the answer begins.
    #[arg(long, value_name = "N", value_parser = at_least_one())]
    pub(crate) think_budget: Option<usize>,
    /// Do not show thinking.
    #[arg(long)]
    pub(crate) hide_thinking: bool,
    /// What the model is told before the conversation.
    #[arg(long, value_name = "TEXT")]
    pub(crate) system: Option<String>,
    /// Put a text file before the (first) message; repeatable.
    #[arg(long, value_name = "PATH")]
    pub(crate) file: Vec<PathBuf>,
    /// Tools that the model may call: an array of declarations in the form of the OpenAI API.
    #[arg(long, value_name = "FILE.json")]
    pub(crate) tools: Option<PathBuf>,
    /// End the answer before this text; repeatable.
    #[arg(long, value_name = "TEXT", value_parser = clap::builder::NonEmptyStringValueParser::new())]
    pub(crate) stop: Vec<String>,
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
    /// Experts a token uses: fewer than the model's own number is faster and changes the output.
    #[arg(long, value_name = "K", value_parser = at_least_one())]
    pub(crate) experts: Option<usize>,
    /// How precisely products of quantised weights see activations: as f32, or rounded to 16 bits in each group, which
    /// is faster for prompts and changes the output a little.
    #[arg(long, value_name = "PRECISION", default_value = "exact")]
    pub(crate) activations: Activations,
    /// Most tokens of prompt and answer together [default: the model's, at most 8192].
    #[arg(long, value_name = "N", value_parser = at_least_one())]
    pub(crate) ctx: Option<usize>,
    /// How keys and values of the context are stored: f16, bf16, f32 (as computed), or q8 (for long contexts in little
    /// memory).
    #[arg(long, value_name = "FORMAT", default_value_t = KvFormat::default(), value_parser = str::parse::<KvFormat>)]
    pub(crate) kv: KvFormat,
    /// Say more on standard error: the memory plan, speeds.
    #[arg(short, long)]
    pub(crate) verbose: bool,
}

#[derive(Debug, Args)]
pub(crate) struct PackFlags {
    /// The checkpoint: a folder with config.json and safetensors files.
    pub(crate) source: PathBuf,
    /// The store to write; must not exist. An unfinished one is continued.
    pub(crate) store: PathBuf,
    #[command(flatten)]
    pub(crate) format: FormatFlags,
}

/// How weights are stored.
#[derive(Clone, Debug, Args)]
pub(crate) struct FormatFlags {
    /// Bits of the experts and projections: 8, 6, 5, 4, 3, 2, or `source` for each tensor's own type (`synth`: bf16).
    #[arg(long, value_name = "BITS", default_value = "4", value_parser = str::parse::<Bits>)]
    pub(crate) bits: Bits,
    /// Weights that share a scale and a bias: 32, 64 or 128.
    #[arg(long, value_name = "N", default_value_t = 64)]
    pub(crate) group: u8,
    /// Other bits for one role, such as lm_head=6 or experts=3; repeatable.
    #[arg(long, value_name = "ROLE=BITS", value_parser = PackOptions::parse_role)]
    pub(crate) role: Vec<(RoleSelector, Bits)>,
}

#[derive(Debug, Args)]
pub(crate) struct InspectFlags {
    /// A store (without: the demo model).
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
    /// A store (without: the demo model).
    pub(crate) model: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub(crate) struct DoctorFlags {
    /// A store (without: predictions for each known model at 4 bits; the drive of the current folder is measured with
    /// a temporary file).
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
    /// A store (without: the demo model).
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
    /// Also measure decode with so many positions in the context, such as 0,4096,32768: keys and values are random,
    /// the output means nothing.
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
#[command(group = clap::ArgGroup::new("task").required(true).args(["ids", "dialogues"]))]
#[command(group = clap::ArgGroup::new("logits").multiple(true).args(["dump_logits", "compare_logits"]))]
#[command(group = clap::ArgGroup::new("judged").multiple(true).args(["compare_logits", "dialogues"]))]
pub(crate) struct EvalFlags {
    /// A store.
    pub(crate) model: PathBuf,
    /// Token ids: a JSON array, or numbers separated by blanks.
    #[arg(long, value_name = "FILE", requires = "logits")]
    pub(crate) ids: Option<PathBuf>,
    /// Where to write the logits after each token: f32, [n_tokens, n_vocab].
    #[arg(long, value_name = "OUT.npy", requires = "ids")]
    pub(crate) dump_logits: Option<PathBuf>,
    /// Logits of the same tokens from another run (see --dump-logits): how far is this one from them?
    #[arg(long, value_name = "REF.npy", requires = "ids")]
    pub(crate) compare_logits: Option<PathBuf>,
    /// The comparison, or what the answers' calls are worth, as JSON on standard output.
    #[arg(long, requires = "judged")]
    pub(crate) json: bool,
    /// Feed the tokens in such pieces: `70,33,1x47` is 70, then 33, then 47 times 1.
    #[arg(long, value_name = "SPLIT", requires = "ids")]
    pub(crate) split: Option<String>,
    /// Conversations to answer, one JSON object a line: {"id", "messages", "tools", "think"}, and for counting calls
    /// {"expected", "kind", "tier"}; greedy, unless --temperature says otherwise.
    #[arg(long, value_name = "FILE.jsonl", requires = "out", conflicts_with = "ids")]
    pub(crate) dialogues: Option<PathBuf>,
    /// Where to write the answers, one JSON object a line: {"id", "text", "finish"}.
    #[arg(long, value_name = "FILE.jsonl", requires = "dialogues")]
    pub(crate) out: Option<PathBuf>,
    /// Most tokens of an answer.
    #[arg(long, value_name = "N", default_value_t = 400, value_parser = at_least_one(), requires = "dialogues")]
    pub(crate) max_tokens: usize,
    /// What calls of tools are held to.
    #[arg(long, value_name = "HOW", default_value = "free", requires = "dialogues")]
    pub(crate) calls: CallRule,
    #[command(flatten)]
    pub(crate) sampling: SamplingFlags,
    #[command(flatten)]
    pub(crate) engine: EngineFlags,
}

/// How answers to dialogues call tools.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum CallRule {
    /// As the model likes.
    Free,
    /// If it calls, in its own form and with arguments that fit the tool's schema.
    Held,
    /// The same, and where a call is expected it must make one.
    Required,
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

    /// A command line would be taken for another.
    #[test]
    fn bad_usage_is_refused() {
        let cases = [
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
        ];
        for case in cases {
            let args = std::iter::once("flash-moe").chain(case.split(' '));
            let error = Flags::try_parse_from(args).expect_err(case);
            assert_eq!(error.exit_code(), 2, "{case}");
        }
    }
}
