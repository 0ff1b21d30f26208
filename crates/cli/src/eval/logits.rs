//! The logits after each of the given tokens, as an array that NumPy reads.

use std::fs;
use std::io;
use std::ops::ControlFlow;
use std::path::Path;

use model::Logits;

use super::split;
use crate::error::CliError;
use crate::flags::{EvalFlags, SamplingFlags};
use crate::load::load;
use crate::npy::NpyWriter;
use crate::output::note;
use crate::plan::Work;
use crate::target;

pub(super) fn dump(flags: &EvalFlags, ids_path: &Path, out_path: &Path) -> anyhow::Result<()> {
    if flags.sampling != SamplingFlags::default() {
        return Err(CliError::Usage("--ids computes logits and samples nothing".into()).into());
    }
    let ids = read_ids(ids_path)?;
    let pieces = match &flags.split {
        Some(text) => split::parse(text, ids.len()).map_err(CliError::Usage)?,
        None => vec![ids.len()],
    };
    let store = target::open(Some(&flags.model))?;
    let n_feed = pieces.iter().copied().max();
    let mut loaded = load(&store, &flags.engine, Work { n_ctx: Some(ids.len()), n_feed, n_snapshot: 0 })?;
    let mut session = loaded.engine.session(loaded.plan.n_ctx);
    let failed = |source| CliError::Io { path: out_path.to_owned(), action: "write", source };
    let n_vocab = loaded.engine.config().n_vocab;
    let mut array = NpyWriter::create(out_path, ids.len(), n_vocab).map_err(failed)?;
    let mut written: io::Result<()> = Ok(());
    let mut start = 0;
    for n in pieces {
        let mut write_row = |_: usize, row: &[f32]| {
            if written.is_ok() {
                written = array.row(row);
            }
        };
        let piece = &ids[start..start + n];
        loaded
            .engine
            .forward(&mut session, piece, Logits::All(&mut write_row), &mut |_| ControlFlow::Continue(()))?;
        start += n;
    }
    written.and_then(|()| array.finish()).map_err(failed)?;
    note(format_args!("{}: f32 [{}, {n_vocab}]", out_path.display(), ids.len()));
    Ok(())
}

/// A JSON array of ids, or ids separated by blanks.
fn read_ids(path: &Path) -> Result<Vec<u32>, CliError> {
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
