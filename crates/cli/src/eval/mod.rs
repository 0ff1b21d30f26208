//! `eval`: what a model is worth, and what others need to compare us.
//!
//! How likely it finds text (`text.rs`), how far its distributions are from those of another run (`reference.rs`), what
//! its calls of tools are worth (`dialogues.rs`), and all this by bits and experts (`matrix/`). Or the logits of given
//! tokens (`logits.rs`).

mod calls;
mod compare;
mod corpus;
mod dialogues;
mod estimate;
mod imatrix;
mod logits;
mod logprob;
mod matrix;
mod reference;
mod split;
mod tally;
mod text;
mod windows;

use std::path::PathBuf;

use crate::error::CliError;
use crate::flags::{EvalFlags, SamplingFlags};
use crate::{report, target};

pub(crate) fn eval(flags: &EvalFlags) -> anyhow::Result<()> {
    if flags.dialogues.is_none() && flags.sampling != SamplingFlags::default() {
        return Err(CliError::Usage("--ids or --text computes logits and samples nothing".into()).into());
    }
    if flags.matrix.matrix {
        return matrix::eval(flags);
    }
    if let [_, second, ..] = flags.model.as_slice() {
        let why = format!("one model, or several with --matrix: what is {}?", second.display());
        return Err(CliError::Usage(why).into());
    }
    if let Some(out) = &flags.collect_imatrix {
        return imatrix::collect(flags, out);
    }
    match (&flags.ids, flags.text.text.is_empty(), &flags.dialogues, &flags.out) {
        (Some(ids), ..) => logits::run(flags, ids),
        (_, true, Some(dialogues), Some(out)) => dialogues::eval(flags, dialogues, out),
        (_, false, None, _) => {
            let store = target::open(flags.model.first().map(PathBuf::as_path))?;
            let result = text::eval(&store, &flags.text, &flags.engine)?;
            if flags.json { report::print(&result) } else { Ok(()) }
        }
        _ => {
            let why = "--text or --dialogues; both go together with --matrix".into();
            Err(CliError::Usage(why).into())
        }
    }
}
