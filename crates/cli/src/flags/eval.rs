//! What is typed after `eval`.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::{ArgGroup, Args, ValueEnum};

use super::{EngineFlags, SamplingFlags, at_least_one, svg_path};

#[derive(Debug, Args)]
#[command(group = ArgGroup::new("task").required(true).multiple(true).args(["ids", "text", "dialogues"]))]
#[command(group = ArgGroup::new("logits").multiple(true).args(["dump_logits", "compare_logits", "collect_imatrix"]))]
#[command(group = ArgGroup::new("judged").multiple(true).args(["compare_logits", "dialogues", "text"]))]
#[command(group = ArgGroup::new("kept").multiple(true).args(["dialogues", "matrix"]))]
#[command(group = ArgGroup::new("referring").multiple(true).args(["save_reference", "matrix"]))]
pub(crate) struct EvalFlags {
    /// A store or checkpoint (without: the demo model). With --matrix several.
    pub(crate) model: Vec<PathBuf>,
    /// Token ids: a JSON array, or numbers separated by blanks.
    #[arg(long, value_name = "FILE", requires = "logits", conflicts_with_all = ["text", "dialogues"])]
    pub(crate) ids: Option<PathBuf>,
    /// Where to write the logits after each token: f32, [n_tokens, n_vocab].
    #[arg(long, value_name = "OUT.npy", requires = "ids")]
    pub(crate) dump_logits: Option<PathBuf>,
    /// Logits of the same tokens from another run (see --dump-logits): how far is this one from them?
    #[arg(long, value_name = "REF.npy", requires = "ids")]
    pub(crate) compare_logits: Option<PathBuf>,
    /// Feed the tokens in such pieces: `70,33,1x47` is 70, then 33, then 47 times 1.
    #[arg(long, value_name = "SPLIT", requires = "ids")]
    pub(crate) split: Option<String>,
    /// Where to write what goes into the model's matrices while --text or --ids is fed, for `pack --imatrix`.
    #[arg(long, value_name = "OUT", conflicts_with_all = ["dialogues", "matrix", "dump_logits", "compare_logits"])]
    #[arg(conflicts_with_all = ["split", "json", "window", "stride", "save_reference", "reference"])]
    pub(crate) collect_imatrix: Option<PathBuf>,
    /// Columns of a matrix whose inputs' products are kept together, a multiple of 128; 0 keeps squares only.
    #[arg(long, value_name = "N", default_value_t = 256, requires = "collect_imatrix")]
    pub(crate) imatrix_block: usize,
    /// The result as JSON on standard output.
    #[arg(long, requires = "judged")]
    pub(crate) json: bool,
    /// Conversations to answer, one JSON object a line: {"id", "messages", "tools", "think"}, and for counting calls
    /// {"expected", "kind", "tier"}; greedy, unless --temperature says otherwise.
    #[arg(long, value_name = "FILE.jsonl", requires = "out", conflicts_with = "ids")]
    pub(crate) dialogues: Option<PathBuf>,
    /// Where to write the answers, one JSON object a line: {"id", "text", "finish"}; with --matrix: the result, which
    /// is also where an interrupted run goes on.
    #[arg(long, value_name = "FILE", requires = "kept")]
    pub(crate) out: Option<PathBuf>,
    /// Most tokens of an answer.
    #[arg(long, value_name = "N", default_value_t = 400, value_parser = at_least_one(), requires = "dialogues")]
    pub(crate) max_tokens: usize,
    /// Complete calls that this would cut, where they are held, with the first values that fit.
    #[arg(long, requires = "dialogues")]
    pub(crate) close_at_limit: bool,
    /// What calls of tools are held to.
    #[arg(long, value_name = "HOW", default_value = "free", requires = "dialogues")]
    pub(crate) calls: CallRule,
    /// Only so many of the dialogues: always the same ones, chosen as if by chance.
    #[arg(long, value_name = "N", value_parser = at_least_one(), requires = "dialogues")]
    pub(crate) sample: Option<usize>,
    #[command(flatten)]
    pub(crate) text: TextFlags,
    #[command(flatten)]
    pub(crate) matrix: MatrixFlags,
    #[command(flatten)]
    pub(crate) sampling: SamplingFlags,
    #[command(flatten)]
    pub(crate) engine: EngineFlags,
}

/// How likely a model finds text.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Text")]
pub(crate) struct TextFlags {
    /// Perplexity and bits per byte of a text; repeatable. A file that ends in .jsonl has a document {"text"} a line,
    /// any other is one document.
    #[arg(long, value_name = "FILE")]
    pub(crate) text: Vec<PathBuf>,
    /// Only the first N bytes of all texts.
    #[arg(long, value_name = "N", value_parser = at_least_one(), requires = "text")]
    pub(crate) text_bytes: Option<usize>,
    /// Tokens that are fed together; a document starts anew [default: 2048, or the model's context if that is less].
    #[arg(long, value_name = "N", value_parser = window(), requires = "text")]
    pub(crate) window: Option<usize>,
    /// Tokens between the starts of two windows [default: half a window].
    #[arg(long, value_name = "N", value_parser = at_least_one(), requires = "text")]
    pub(crate) stride: Option<usize>,
    /// Which tokens of a window count.
    #[arg(long, value_name = "HOW", default_value = "strided", requires = "text")]
    pub(crate) counting: Counting,
    /// Keep this run's distributions, for --reference.
    #[arg(long, value_name = "FILE", requires = "text", conflicts_with = "matrix")]
    pub(crate) save_reference: Option<PathBuf>,
    /// How far from the distributions of another run of the same text with the same windows?
    #[arg(long, value_name = "FILE", requires = "text", conflicts_with = "matrix")]
    pub(crate) reference: Option<PathBuf>,
    /// Keep only so many of the likeliest tokens at each position [default: all of a vocabulary of up to 16384 tokens,
    /// else 512].
    #[arg(long, value_name = "N", value_parser = at_least_one(), requires = "referring")]
    pub(crate) reference_top: Option<usize>,
}

/// Many evaluations at once.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Matrix")]
pub(crate) struct MatrixFlags {
    /// Every model at every number of --experts, compared with the first: a table, and --out as JSON.
    #[arg(long, requires_all = ["out", "task"])]
    pub(crate) matrix: bool,
    /// Pack each MODEL, a checkpoint, to these: bits as `pack --bits` has them, or bf16 for a checkpoint in that
    /// format.
    #[arg(long, value_name = "BITS,..", value_delimiter = ',', requires = "matrix")]
    #[arg(value_parser = clap::builder::NonEmptyStringValueParser::new())]
    pub(crate) bits: Vec<String>,
    /// Draw it.
    #[arg(long, value_name = "FILE.svg", value_parser = svg_path, requires = "matrix")]
    pub(crate) plot: Option<PathBuf>,
    /// More flags for `pack`, behind `--`.
    #[arg(last = true, value_name = "PACK FLAGS", requires = "bits")]
    pub(crate) pack_args: Vec<OsString>,
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

/// Which tokens of a window count.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Counting {
    /// Each token of a document but its first once: all of the first window, what is new in the others.
    Strided,
    /// As llama-perplexity: windows side by side, the second half of each; a rest that fills none is left out.
    #[value(name = "llama.cpp")]
    LlamaCpp,
}

/// There must be something to predict, and something to predict it from.
fn window() -> impl clap::builder::TypedValueParser<Value = usize> {
    use clap::builder::TypedValueParser;
    clap::value_parser!(u64).range(2..=u64::from(u32::MAX)).map(|n| n as usize)
}
