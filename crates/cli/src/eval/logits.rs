//! The logits after each of the given tokens: as an array that NumPy reads, or against those of another run.

use std::fs;
use std::io;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};

use model::Logits;

use super::compare::Comparison;
use super::split;
use crate::error::CliError;
use crate::flags::EvalFlags;
use crate::load::load;
use crate::npy::NpyWriter;
use crate::output::note;
use crate::plan::Work;
use crate::{report, target};

/// Where the rows go.
struct Sinks<'a> {
    dump: Option<(&'a Path, NpyWriter)>,
    comparison: Option<(&'a Path, Comparison)>,
}

impl Sinks<'_> {
    fn row(&mut self, row: &[f32], next: Option<u32>) -> Result<(), CliError> {
        if let Some((path, array)) = &mut self.dump {
            array.row(row).map_err(|source| write_failed(path, source))?;
        }
        match &mut self.comparison {
            Some((path, comparison)) => comparison.row(path, row, next),
            None => Ok(()),
        }
    }
}

pub(super) fn run(flags: &EvalFlags, ids_path: &Path) -> anyhow::Result<()> {
    let ids = read_ids(ids_path)?;
    let pieces = match &flags.split {
        Some(text) => split::parse(text, ids.len()).map_err(CliError::Usage)?,
        None => vec![ids.len()],
    };
    let store = target::open(flags.model.first().map(PathBuf::as_path))?;
    let n_vocab = store.config().n_vocab;
    let comparison = match &flags.compare_logits {
        Some(path) => Some((path.as_path(), Comparison::open(path, ids.len(), n_vocab)?)),
        None => None,
    };
    let n_feed = pieces.iter().copied().max();
    let mut loaded = load(
        &store,
        &flags.engine,
        Work { n_ctx: Some(ids.len()), n_feed, keeps_prefixes: false, n_session: 1 },
    )?;
    let mut session = loaded.engine.session(loaded.plan.n_ctx);
    let dump = match &flags.dump_logits {
        Some(path) => {
            let array = NpyWriter::create(path, ids.len(), n_vocab);
            Some((path.as_path(), array.map_err(|source| write_failed(path, source))?))
        }
        None => None,
    };
    let mut sinks = Sinks { dump, comparison };
    let mut result = Ok(());
    let mut start = 0;
    for n in pieces {
        let mut use_row = |pos: usize, row: &[f32]| {
            if result.is_ok() {
                result = sinks.row(row, ids.get(pos + 1).copied());
            }
        };
        let piece = &ids[start..start + n];
        loaded
            .engine
            .forward(&mut session, piece, Logits::All(&mut use_row), &mut |_| ControlFlow::Continue(()))?;
        start += n;
    }
    result?;
    if let Some((path, array)) = sinks.dump {
        array.finish().map_err(|source| write_failed(path, source))?;
        note(format_args!("{}: f32 [{}, {n_vocab}]", path.display(), ids.len()));
    }
    if let Some((_, comparison)) = sinks.comparison {
        let report = comparison.report();
        note(report.describe());
        if flags.json {
            report::print(&report)?;
        }
    }
    Ok(())
}

fn write_failed(path: &Path, source: io::Error) -> CliError {
    CliError::Io { path: path.to_owned(), action: "write", source }
}

/// A JSON array of ids, or ids separated by blanks.
pub(super) fn read_ids(path: &Path) -> Result<Vec<u32>, CliError> {
    let text = fs::read_to_string(path).map_err(|source| CliError::Io {
        path: path.to_owned(),
        action: "read",
        source,
    })?;
    let ids = parse_ids(&text).map_err(|why| CliError::Input { path: path.to_owned(), why })?;
    if ids.is_empty() {
        return Err(CliError::Input { path: path.to_owned(), why: "there are no token ids in it".into() });
    }
    Ok(ids)
}

fn parse_ids(text: &str) -> Result<Vec<u32>, String> {
    if text.trim_start().starts_with('[') {
        return serde_json::from_str(text).map_err(|error| format!("not an array of token ids: {error}"));
    }
    let id = |word: &str| word.parse().map_err(|_| format!("'{word}' is not a token id"));
    text.split_whitespace().map(id).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Other tokens than those in the file would be fed.
    #[test]
    fn both_forms_of_ids_are_read() {
        assert_eq!(parse_ids(" [1, 2,\n3]\n"), Ok(vec![1, 2, 3]));
        assert_eq!(parse_ids("1 2\n3\t4\n"), Ok(vec![1, 2, 3, 4]));
        assert_eq!(parse_ids(" \n"), Ok(vec![]));
        for bad in ["[1, -2]", "[1.5]", "[1", "1,2", "one", "4294967296"] {
            assert!(parse_ids(bad).is_err(), "{bad}");
        }
    }
}
