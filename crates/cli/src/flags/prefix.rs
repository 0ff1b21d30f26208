//! What is kept of prompts, and what becomes of it.

use std::path::PathBuf;

use clap::{Args, Subcommand};

use super::{EngineFlags, OpeningFlags};
use crate::size::Size;

/// What is kept of prompts.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Prefix cache")]
pub(crate) struct PrefixFlags {
    /// Read each prompt from its start, and keep nothing of it, in memory or on disk.
    #[arg(long, conflicts_with_all = ["prefix_cache_size", "prefix_cache_writes"])]
    pub(crate) no_prefix_cache: bool,
    /// Most that prompts of all models may take on disk, such as 10GiB, so that later runs need not read them again; 0
    /// keeps them in memory only [default: 32GiB, or a tenth of the free space if that is less].
    #[arg(long, value_name = "SIZE")]
    pub(crate) prefix_cache_size: Option<Size>,
    /// Most that is written there a day: drives wear out [default: 64GiB].
    #[arg(long, value_name = "SIZE")]
    pub(crate) prefix_cache_writes: Option<Size>,
}

#[derive(Debug, Args)]
pub(crate) struct CacheFlags {
    #[command(subcommand)]
    pub(crate) command: CacheCommand,
}

#[derive(Debug, Subcommand)]
pub(crate) enum CacheCommand {
    /// List what is kept on disk, by model and settings.
    Ls {
        /// Result as JSON on standard output.
        #[arg(long)]
        json: bool,
    },
    /// Remove what is kept of a model.
    Rm {
        /// The name of a model or the beginning of a key, as `cache ls` shows them.
        #[arg(value_name = "MODEL|KEY", required_unless_present = "all")]
        which: Option<String>,
        /// Everything, of all models.
        #[arg(long, conflicts_with = "which")]
        all: bool,
    },
    /// Say where it is kept, how much of it there is, and how much was written today.
    Stats {
        /// Result as JSON on standard output.
        #[arg(long)]
        json: bool,
    },
    /// Read a system message, tools and files, and make a file of the session: whoever imports it can ask at once.
    #[command(allow_missing_positional = true)]
    Export(Box<ExportFlags>),
    /// Take a session from a file, for prompts that begin as it does.
    Import(ImportFlags),
}

#[derive(Debug, Args)]
pub(crate) struct ExportFlags {
    /// A store, a checkpoint or a pulled repository (without: the demo model).
    pub(crate) model: Option<PathBuf>,
    /// The file to write; an earlier session there is replaced.
    pub(crate) out: PathBuf,
    #[command(flatten)]
    pub(crate) opening: OpeningFlags,
    #[command(flatten)]
    pub(crate) prefix: PrefixFlags,
    #[command(flatten)]
    pub(crate) engine: EngineFlags,
}

#[derive(Debug, Args)]
pub(crate) struct ImportFlags {
    /// What `cache export` wrote.
    pub(crate) file: PathBuf,
    /// The same model as there: a store, a checkpoint or a pulled repository (without: the demo model).
    pub(crate) model: Option<PathBuf>,
    /// Most that prompts of all models may take on disk [default: 32GiB, or a tenth of the free space if that is less].
    #[arg(long, value_name = "SIZE")]
    pub(crate) prefix_cache_size: Option<Size>,
}
