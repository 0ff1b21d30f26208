//! `eval`: what others need to compare us: the logits of given tokens, their distance from those of
//! another run, or the answers to given dialogues.

mod calls;
mod compare;
mod dialogues;
mod logits;
mod split;
mod tally;

use crate::flags::EvalFlags;

pub(crate) fn eval(flags: &EvalFlags) -> anyhow::Result<()> {
    match (&flags.ids, &flags.dialogues, &flags.out) {
        (Some(ids), ..) => logits::run(flags, ids),
        (_, Some(dialogues), Some(out)) => dialogues::answer_all(flags, dialogues, out),
        _ => unreachable!("the command line asks for one of the two"),
    }
}
