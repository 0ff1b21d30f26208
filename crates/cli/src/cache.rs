//! `cache`: what is kept of prompts on disk, shown and removed. Sessions in files: `session_file.rs`.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use prefix::disk::{self, Folder};
use serde::Serialize;

use crate::error::CliError;
use crate::flags::CacheCommand;
use crate::output::harmless;
use crate::size::Size;
use crate::{prefixes, report, session_file};

/// Digits of a key that people are shown.
const N_KEY: usize = 12;

/// A folder as `cache ls --json` shows it.
#[derive(Serialize)]
struct FolderReport {
    key: String,
    /// `null`: nobody knows any more whose it is.
    model: Option<String>,
    settings: Option<String>,
    checkpoints: usize,
    /// Tokens of the longest.
    tokens: usize,
    bytes: u64,
    /// RFC 3339; `null`: it has no files.
    last_use: Option<String>,
    /// Files that cannot be used.
    damaged: usize,
}

/// `cache stats --json`.
#[derive(Serialize)]
struct StatsReport {
    folder: PathBuf,
    bytes: u64,
    /// Most bytes, unless --prefix-cache-size says otherwise.
    default_limit_bytes: u64,
    written_today_bytes: u64,
    default_daily_write_bytes: u64,
    /// Of the file system; `null`: unknown.
    free_bytes: Option<u64>,
    models: usize,
    checkpoints: usize,
}

/// Returns false if the user interrupted it.
pub(crate) fn cache(command: &CacheCommand) -> anyhow::Result<bool> {
    let root = || prefixes::folder(false).ok_or(CliError::NoCacheFolder);
    match command {
        CacheCommand::Ls { json } => list(&folders(&root()?)?, *json)?,
        CacheCommand::Rm { which, all } => {
            remove(&folders(&root()?)?, which.as_deref().filter(|_| !all))?;
        }
        CacheCommand::Stats { json } => {
            let root = root()?;
            stats(&root, &folders(&root)?, *json)?;
        }
        CacheCommand::Export(flags) => return session_file::export(flags),
        CacheCommand::Import(flags) => session_file::import(flags, &root()?)?,
    }
    Ok(true)
}

fn folders(root: &Path) -> Result<Vec<Folder>, CliError> {
    disk::folders(root).map_err(|source| CliError::Io { path: root.to_owned(), action: "read", source })
}

impl FolderReport {
    fn of(folder: &Folder) -> Self {
        let time = folder.newest_use.and_then(|used| jiff::Timestamp::try_from(used).ok());
        Self {
            key: folder.root_key.hex(),
            model: folder.identity.as_ref().map(|identity| identity.model.clone()),
            settings: folder.identity.as_ref().map(|identity| identity.settings.clone()),
            checkpoints: folder.n_checkpoint,
            tokens: folder.n_token_max,
            bytes: folder.bytes,
            last_use: time.map(|time| format!("{time:.0}")),
            damaged: folder.n_damaged,
        }
    }
}

fn list(folders: &[Folder], is_json: bool) -> anyhow::Result<()> {
    let reports: Vec<FolderReport> = folders.iter().map(FolderReport::of).collect();
    if is_json {
        return report::print(&reports);
    }
    let mut out = std::io::stdout().lock();
    for (folder, report) in folders.iter().zip(&reports) {
        let FolderReport { key, model, settings, checkpoints, tokens, bytes, damaged, .. } = report;
        let unknown = || "(unknown)".to_owned();
        let model = harmless(&model.clone().unwrap_or_else(unknown));
        let settings = harmless(&settings.clone().unwrap_or_else(unknown));
        let damaged = if *damaged > 0 { format!(", {damaged} damaged files") } else { String::new() };
        writeln!(
            out,
            "{}  {model}\n  {settings}\n  {checkpoints} checkpoints of up to {tokens} tokens, {}, {}{damaged}",
            &key[..N_KEY],
            Size(*bytes),
            last_use(folder),
        )?;
    }
    if reports.is_empty() {
        writeln!(out, "nothing is kept")?;
    }
    Ok(())
}

/// When a folder was last used, for people.
fn last_use(folder: &Folder) -> String {
    let age = folder.newest_use.map(|used| SystemTime::now().duration_since(used).unwrap_or_default());
    match age.map(|age| age.as_secs() / 60) {
        None => "never used".into(),
        Some(0) => "used just now".into(),
        Some(n @ 1..120) => format!("used {n} min ago"),
        Some(n) if n < 48 * 60 => format!("used {} h ago", n / 60),
        Some(n) => format!("used {} days ago", n / (24 * 60)),
    }
}

/// Removes the folders of a model, or those whose keys begin so; `None`: all.
fn remove(folders: &[Folder], which: Option<&str>) -> anyhow::Result<()> {
    let is_meant = |folder: &&Folder| {
        which.is_none_or(|which| {
            let is_key = N_KEY <= which.len() && folder.root_key.hex().starts_with(which);
            is_key || folder.identity.as_ref().is_some_and(|identity| is_named(&identity.model, which))
        })
    };
    let meant: Vec<&Folder> = folders.iter().filter(is_meant).collect();
    if let Some(which) = which.filter(|_| meant.is_empty()) {
        return Err(CliError::NotKept { which: which.into() }.into());
    }
    let (mut gone_bytes, mut n_checkpoint) = (0, 0);
    for folder in &meant {
        let removed = disk::remove_folder(folder);
        gone_bytes +=
            removed.map_err(|source| CliError::Io { path: folder.path.clone(), action: "remove", source })?;
        n_checkpoint += folder.n_checkpoint;
    }
    writeln!(std::io::stdout().lock(), "removed {n_checkpoint} checkpoints, {} are free", Size(gone_bytes))?;
    Ok(())
}

/// Does `which` name this model: as it is shown, by its last part, or by the same path?
fn is_named(model: &str, which: &str) -> bool {
    let last = Path::new(model).file_name();
    let is_path = || {
        Path::new(which)
            .canonicalize()
            .is_ok_and(|path| Path::new(model).canonicalize().is_ok_and(|m| m == path))
    };
    model == which || last.is_some_and(|last| last == which) || is_path()
}

fn stats(root: &Path, folders: &[Folder], is_json: bool) -> anyhow::Result<()> {
    let report = StatsReport {
        folder: root.to_owned(),
        bytes: folders.iter().map(|folder| folder.bytes).sum(),
        default_limit_bytes: prefixes::default_size_bytes(root),
        written_today_bytes: disk::written_today_bytes(root),
        default_daily_write_bytes: prefixes::DAILY_WRITE_BYTES,
        free_bytes: prefixes::free_bytes(root),
        models: folders.len(),
        checkpoints: folders.iter().map(|folder| folder.n_checkpoint).sum(),
    };
    if is_json {
        return report::print(&report);
    }
    let StatsReport { bytes, default_limit_bytes, written_today_bytes, models, checkpoints, .. } = report;
    let free = report.free_bytes.map_or("unknown".to_owned(), |bytes| Size(bytes).to_string());
    writeln!(
        std::io::stdout().lock(),
        "folder         {}\nkept           {} of {} (--prefix-cache-size), {checkpoints} checkpoints of {models} models \
         and settings\nwritten today  {} of {} (--prefix-cache-writes)\nfree           {free}",
        root.display(),
        Size(bytes),
        Size(default_limit_bytes),
        Size(written_today_bytes),
        Size(prefixes::DAILY_WRITE_BYTES),
    )?;
    Ok(())
}
