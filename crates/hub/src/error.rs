//! What can go wrong between a hub and the disk.

use std::fmt::Write as _;
use std::io;
use std::path::{Path, PathBuf};

/// One of several models that could be meant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Choice {
    /// How to name it.
    pub name: String,
    /// Bytes of its files, if they are known.
    pub bytes: Option<u64>,
}

/// A repository that cannot be named, reached, downloaded or found.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum HubError {
    /// What was typed names no repository.
    #[error("'{text}' is not the name of a repository: {why}")]
    Name {
        /// What was typed.
        text: String,
        /// What is wrong with it.
        why: &'static str,
    },
    /// The environment says something impossible.
    #[error("{variable}: {why}")]
    Environment {
        /// The variable.
        variable: &'static str,
        /// What is wrong with it.
        why: String,
    },
    /// The hub wants to know who asks, or does not know the repository (it does not say which).
    #[error("{url}: {repo} does not exist, or may be seen only with a token{}", says(.message))]
    Unauthorized {
        /// What was asked for.
        url: String,
        /// The repository.
        repo: String,
        /// What the hub says.
        message: String,
        /// A token was sent.
        has_token: bool,
    },
    /// The hub knows who asks, and refuses.
    #[error("{url}: access to {repo} is refused{}", says(.message))]
    Forbidden {
        /// What was asked for.
        url: String,
        /// The repository.
        repo: String,
        /// What the hub says.
        message: String,
        /// A token was sent.
        has_token: bool,
    },
    /// Nothing there.
    #[error("{url}: {what} does not exist{}", says(.message))]
    NotFound {
        /// What was asked for.
        url: String,
        /// Repository, revision or file.
        what: String,
        /// What the hub says.
        message: String,
    },
    /// An answer that trying again does not help with, or did not.
    #[error("{url}: the server answers {status}{}", says(.message))]
    Status {
        /// What was asked for.
        url: String,
        /// The HTTP status.
        status: u16,
        /// What the server says.
        message: String,
    },
    /// The server cannot be reached, or goes away again and again.
    #[error("{url}: {why}")]
    Network {
        /// What was asked for.
        url: String,
        /// What happened last.
        why: String,
    },
    /// An answer that makes no sense.
    #[error("{url}: {why}")]
    Answer {
        /// What was asked for.
        url: String,
        /// What is wrong with it.
        why: String,
    },
    /// A file name that no honest server has.
    #[error("{repo} has a file named {name:?}, {why}: nothing was downloaded")]
    FileName {
        /// The repository.
        repo: String,
        /// The name.
        name: String,
        /// What is wrong with it.
        why: &'static str,
    },
    /// The bytes are not those that the hub lists, twice.
    #[error("{file}: the server sends wrong bytes: {algorithm} is {got}, the hub lists {expected}")]
    Digest {
        /// The file in the repository.
        file: String,
        /// `sha256` or `git blob`.
        algorithm: &'static str,
        /// What the hub lists.
        expected: String,
        /// What came.
        got: String,
    },
    /// Nothing to download.
    #[error("{repo}: {why}")]
    NoWeights {
        /// The repository.
        repo: String,
        /// What is missing.
        why: String,
    },
    /// Several models, and none is named.
    #[error("{what} has {} models: {}", .choices.len(), list(.choices))]
    Choose {
        /// The repository or folder.
        what: String,
        /// The models.
        choices: Vec<Choice>,
    },
    /// A repository whose files are not here.
    #[error("{repo} is neither a path nor in the cache ({cache}{})", if cache.exists() { "" } else { ", which is not there" })]
    NotDownloaded {
        /// The repository.
        repo: String,
        /// The folder that was looked in.
        cache: PathBuf,
    },
    /// A path that leads to no model.
    #[error("{path}: {why}")]
    NoModel {
        /// The path.
        path: PathBuf,
        /// What is wrong with it.
        why: String,
    },
    /// Not enough room.
    #[error("{path}: needs {} more of disk space, {} are free", size(*.needed_bytes), size(*.free_bytes))]
    DiskFull {
        /// Where the files go.
        path: PathBuf,
        /// Bytes still to write.
        needed_bytes: u64,
        /// Bytes there are.
        free_bytes: u64,
    },
    /// The system failed us.
    #[error("{path}: cannot {action}: {source}")]
    Io {
        /// The file.
        path: PathBuf,
        /// What was tried.
        action: &'static str,
        /// Why not.
        source: io::Error,
    },
}

impl HubError {
    pub(crate) fn io(path: &Path, action: &'static str) -> impl FnOnce(io::Error) -> Self {
        let path = path.to_owned();
        move |source| HubError::Io { path, action, source }
    }
}

/// Choices that a message lists.
const N_CHOICE_LISTED: usize = 40;

fn list(choices: &[Choice]) -> String {
    let mut text = String::new();
    for choice in choices.iter().take(N_CHOICE_LISTED) {
        let comma = if text.is_empty() { "" } else { ", " };
        let bytes = choice.bytes.map_or(String::new(), |bytes| format!(" ({})", size(bytes)));
        write!(text, "{comma}{}{bytes}", choice.name).expect("writing to a string");
    }
    match choices.len().saturating_sub(N_CHOICE_LISTED) {
        0 => text,
        more => format!("{text} and {more} more"),
    }
}

/// Hubs list decimal sizes.
pub(crate) fn size(bytes: u64) -> String {
    match bytes {
        0..1_000_000 => format!("{:.1} kB", bytes as f64 / 1e3),
        1_000_000..1_000_000_000 => format!("{:.1} MB", bytes as f64 / 1e6),
        _ => format!("{:.1} GB", bytes as f64 / 1e9),
    }
}

/// What a server says about its refusal, if it says something.
fn says(message: &str) -> String {
    if message.is_empty() { String::new() } else { format!(" ({message})") }
}
