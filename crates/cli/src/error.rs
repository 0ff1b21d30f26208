//! What can go wrong at the edge: between what was typed and what the library crates are asked for.

use std::io;
use std::path::PathBuf;

use crate::size::Size;

/// A request that cannot be carried out.
#[derive(Debug, thiserror::Error)]
pub(crate) enum CliError {
    /// Flags that contradict each other or the model. Exit code 2.
    #[error("{0}")]
    Usage(String),
    /// This build has no demo model.
    #[error("this program was built without the demo model")]
    NoDemo,
    /// `synth` stores have none.
    #[error("{model} has no tokenizer, so it can neither read nor write text")]
    NoTokenizer { model: String },
    /// A prompt that is not UTF-8.
    #[error("the prompt is not valid UTF-8")]
    PromptEncoding,
    /// Standard input was empty.
    #[error("the prompt is empty")]
    EmptyPrompt,
    /// More tokens at once than the context holds.
    #[error("the prompt has {n_token} tokens, the context holds {n_ctx}")]
    TooLong { n_token: usize, n_ctx: usize },
    /// The budget holds less than the least that is needed.
    #[error("{}", no_room(.0))]
    Memory(Box<NoRoom>),
    /// There is no place for what is remembered between runs.
    #[error("there is no folder for what is kept between runs")]
    NoCacheFolder,
    /// `cache rm` of something else.
    #[error("nothing is kept of {which}")]
    NotKept { which: String },
    /// All prompts of a template begin in another way.
    #[error("prompts that differ in the question have no beginning in common")]
    NothingShared,
    /// `verify` found problems, which have been printed.
    #[error("{model}: {n_problem} problem{} found", if *.n_problem == 1 { "" } else { "s" })]
    Damaged { model: String, n_problem: usize, is_packed: bool },
    /// A file of the user's that cannot be read or written.
    #[error("{path}: cannot {action}: {source}")]
    Io { path: PathBuf, action: &'static str, source: io::Error },
    /// A file of the user's with other contents than expected.
    #[error("{path}: {why}")]
    Input { path: PathBuf, why: String },
}

/// Memory that has a budget.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Memory {
    /// The machine's.
    Host,
    /// A GPU's own.
    Gpu,
}

/// What is needed at least, and what there is.
#[derive(Debug)]
pub(crate) struct NoRoom {
    /// Which memory.
    pub(crate) memory: Memory,
    /// The budget.
    pub(crate) budget: Size,
    /// Was it given by the user?
    pub(crate) is_given: bool,
    /// What is needed, by name.
    pub(crate) parts: Vec<(&'static str, Size)>,
}

impl NoRoom {
    /// Sum of all parts.
    pub(crate) fn needed(&self) -> Size {
        Size(self.parts.iter().map(|(_, size)| size.0).sum())
    }
}

fn no_room(room: &NoRoom) -> String {
    let parts: Vec<String> = room.parts.iter().map(|(name, size)| format!("{name} {size}")).collect();
    let budget = match (room.memory, room.is_given) {
        (Memory::Host, true) => "--memory is",
        (Memory::Host, false) => "a safe share of this machine's memory is",
        (Memory::Gpu, true) => "on the GPU, and --vram is",
        (Memory::Gpu, false) => "on the GPU, and a safe share of its memory is",
    };
    format!("the model needs at least {} ({}), {budget} {}", room.needed(), parts.join(", "), room.budget)
}
