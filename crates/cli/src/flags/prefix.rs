//! What is kept of prompts, and what becomes of it.

use clap::{Args, Subcommand};

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
}
