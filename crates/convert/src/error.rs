//! What can go wrong between a checkpoint and a store.

use std::io;
use std::path::{Path, PathBuf};

use quant::FormatError;
use store::StoreError;

use crate::safetensors::HeaderError;

/// A checkpoint that cannot be read, understood or converted.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ConvertError {
    /// There is no checkpoint at this path.
    #[error("{path} is not a checkpoint: {why}")]
    NotACheckpoint {
        /// The path given.
        path: PathBuf,
        /// What is missing.
        why: String,
    },
    /// The system failed us.
    #[error("{path}: cannot {action}: {source}")]
    Io {
        /// The file.
        path: PathBuf,
        /// What was tried, with the tensor if there is one.
        action: String,
        /// Why not.
        source: io::Error,
    },
    /// The configuration lacks something or contradicts itself.
    #[error("{path}: {why}")]
    Config {
        /// The configuration file.
        path: PathBuf,
        /// The field and what is wrong with it.
        why: String,
    },
    /// A kind of checkpoint that this program does not read.
    #[error("{path}: {what}")]
    Unsupported {
        /// The file that says so.
        path: PathBuf,
        /// What is not supported, and what is.
        what: String,
    },
    /// Some weight files are not there.
    #[error("{path}: {present} of {total} weight files present, missing: {}", .missing.join(", "))]
    MissingShards {
        /// The index.
        path: PathBuf,
        /// Files that are there.
        present: usize,
        /// Files that the index names.
        total: usize,
        /// The others, each with its reason if it is not plain absence.
        missing: Vec<String>,
    },
    /// The header of a weight file is damaged.
    #[error("{path}: {source}")]
    Header {
        /// The weight file.
        path: PathBuf,
        /// What is wrong with it.
        source: HeaderError,
    },
    /// A tensor is not what the configuration calls for.
    #[error("{path}: tensor {tensor}: {why}")]
    Tensor {
        /// Its weight file.
        path: PathBuf,
        /// Its name in the checkpoint.
        tensor: String,
        /// Shape, dtype or place, expected and got.
        why: String,
    },
    /// Tensors whose meaning is not known.
    #[error("{path}: {count} tensors have names unknown to {architecture}: {}", list(.first, *.count))]
    UnknownTensors {
        /// The checkpoint.
        path: PathBuf,
        /// Its architecture.
        architecture: &'static str,
        /// How many there are.
        count: usize,
        /// The first few.
        first: Vec<String>,
    },
    /// Tensors that the configuration calls for and no file has.
    #[error("{path}: {count} tensors are missing: {}", list(.first, *.count))]
    MissingTensors {
        /// The checkpoint.
        path: PathBuf,
        /// How many are missing.
        count: usize,
        /// The first few, by role, layer and expert.
        first: Vec<String>,
    },
    /// A weight is NaN, infinite or too large for its format.
    #[error("{path}: tensor {tensor}: row {row} of {matrix}: {source}")]
    BadWeight {
        /// Its weight file.
        path: PathBuf,
        /// Its name in the checkpoint.
        tensor: String,
        /// What it was to become: a role, or a part of an expert.
        matrix: String,
        /// Row of that.
        row: usize,
        /// Column and reason.
        source: FormatError,
    },
    /// An importance matrix that cannot be used.
    #[error("{path}: {why}")]
    Imatrix {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        why: String,
    },
    /// A weight file does not come.
    #[error("{name}: {source}")]
    Arrival {
        /// The weight file.
        name: String,
        /// Why not.
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// Options that make no sense, alone or for this checkpoint.
    #[error("{0}")]
    Options(String),
    /// The output.
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl ConvertError {
    pub(crate) fn io(path: &Path, action: impl Into<String>) -> impl FnOnce(io::Error) -> Self {
        let (path, action) = (path.to_owned(), action.into());
        move |source| ConvertError::Io { path, action, source }
    }
}

/// How many names an error lists before it says "and N more".
pub(crate) const NAMES_LISTED_MAX: usize = 5;

fn list(first: &[String], count: usize) -> String {
    let rest = count - first.len().min(count);
    let more = if rest > 0 { format!(" and {rest} more") } else { String::new() };
    first.join(", ") + &more
}
