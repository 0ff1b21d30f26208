//! What the user should know: kept until somebody asks.

use std::collections::HashMap;

/// Most warnings that are kept; the others are counted.
const N_WARNING_MAX: usize = 32;

/// What is said at most once a day.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Kind {
    Full,
    Budget,
    Write,
    Look,
}

#[derive(Default)]
pub(super) struct Warnings {
    texts: Vec<String>,
    n_more: usize,
    /// The day it was last said.
    said: HashMap<Kind, u64>,
}

impl Warnings {
    pub(super) fn push(&mut self, text: String) {
        if self.texts.len() < N_WARNING_MAX {
            self.texts.push(text);
        } else {
            self.n_more += 1;
        }
    }

    /// Said today already: not again.
    pub(super) fn push_once(&mut self, kind: Kind, day: u64, text: impl FnOnce() -> String) {
        if self.said.insert(kind, day) != Some(day) {
            self.push(text());
        }
    }

    /// It is over: if it comes again, it is news.
    pub(super) fn is_over(&mut self, kind: Kind) {
        self.said.remove(&kind);
    }

    pub(super) fn take(&mut self) -> Vec<String> {
        let mut texts = std::mem::take(&mut self.texts);
        match std::mem::take(&mut self.n_more) {
            0 => {}
            n => texts.push(format!("prefix cache: {n} more warnings of this kind")),
        }
        texts
    }
}
