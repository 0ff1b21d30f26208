//! `eval`: what others need to compare us: the logits of given tokens, or the answers to given dialogues.

mod dialogues;
mod logits;
mod split;

use crate::flags::EvalFlags;

pub(crate) fn eval(flags: &EvalFlags) -> anyhow::Result<()> {
    match (&flags.ids, &flags.dump_logits, &flags.dialogues, &flags.out) {
        (Some(ids), Some(out), ..) => logits::dump(flags, ids, out),
        (.., Some(dialogues), Some(out)) => dialogues::answer_all(flags, dialogues, out),
        _ => unreachable!("the command line asks for one of the two"),
    }
}
