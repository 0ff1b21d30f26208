//! All rules, run over the files that git tracks. Each rule lives in one file and knows nothing of the others.

mod edges;
mod rust;
mod source;
mod text;

use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, bail};

/// What was found.
pub(crate) struct Report {
    /// Files looked at.
    pub(crate) n_file: usize,
    /// One line each: `path:line: what is wrong`.
    pub(crate) problems: Vec<String>,
}

/// A tracked file.
pub(crate) struct File {
    /// Relative to the workspace, `/` between parts.
    pub(crate) path: String,
    /// Size on disk.
    pub(crate) bytes: u64,
    /// Contents, if they are text.
    pub(crate) text: Option<String>,
}

impl File {
    /// `path:line: what`, lines counted from 1.
    pub(crate) fn problem(&self, line_idx: usize, what: impl std::fmt::Display) -> String {
        format!("{}:{}: {what}", self.path, line_idx + 1)
    }

    /// Does the name end in `.extension`?
    pub(crate) fn is(&self, extension: &str) -> bool {
        Path::new(&self.path).extension().is_some_and(|e| e == extension)
    }
}

/// Runs every rule.
pub(crate) fn check(root: &Path) -> anyhow::Result<Report> {
    let files = tracked_files(root)?;
    let mut problems = text::check_sizes(&files);
    problems.extend(edges::check(&files)?);
    for file in &files {
        if let Some(text) = &file.text {
            problems.extend(text::check(file, text, root));
            if file.is("rs") {
                problems.extend(rust::check(file, text));
            }
        }
    }
    Ok(Report { n_file: files.len(), problems })
}

/// Everything in git's index that still exists.
fn tracked_files(root: &Path) -> anyhow::Result<Vec<File>> {
    // The checkout may belong to another user than the one who tests it (containers).
    let args = ["-c", "safe.directory=*", "ls-files", "-z"];
    let out = Command::new("git").args(args).current_dir(root).output().context("cannot run git")?;
    if !out.status.success() {
        bail!("git ls-files failed: {}", String::from_utf8_lossy(&out.stderr).trim());
    }
    let names = String::from_utf8(out.stdout).context("a tracked file name is not UTF-8")?;
    let mut files = Vec::new();
    for name in names.split('\0').filter(|name| !name.is_empty()) {
        let path = root.join(name);
        if !path.is_file() {
            continue; // Deleted, but not yet in the index.
        }
        let bytes = fs::read(&path).with_context(|| format!("cannot read {name}"))?;
        let n_byte = bytes.len() as u64;
        let text = if bytes.contains(&0) { None } else { String::from_utf8(bytes).ok() };
        files.push(File { path: name.to_owned(), bytes: n_byte, text });
    }
    Ok(files)
}
