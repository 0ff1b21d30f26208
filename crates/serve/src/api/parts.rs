//! From the engine's updates to the parts that an answer has: thinking, text, calls, one after another.
//!
//! APIs whose answers are lists of parts share this; each says in its own words that a part begins, grows and ends.

use generate::Channel;

use crate::engine::{CallUpdate, Update};

/// What a part is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum PartKind {
    /// Thinking.
    Thinking,
    /// Text of the answer.
    Text,
    /// A call of this tool; the part's text is its arguments.
    Call {
        /// The tool.
        name: String,
    },
}

/// A part of an answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Part {
    /// What it is.
    pub(crate) kind: PartKind,
    /// Text, or the arguments as JSON text.
    pub(crate) text: String,
    /// False: the answer ended inside of this call.
    pub(crate) is_complete: bool,
}

/// What an update does to the parts.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Change<'a> {
    /// A new part begins.
    Open(&'a PartKind),
    /// It goes on.
    Delta(&'a PartKind, &'a str),
    /// It is over.
    Close(Part),
}

/// The parts of one answer, while it is made.
#[derive(Debug, Default)]
pub(crate) struct Parts {
    open: Option<Part>,
    /// White space that a part may begin with: it is one only if more than that comes.
    held: String,
    /// The part that it would belong to.
    held_kind: Option<PartKind>,
    n_call: usize,
}

impl Parts {
    /// Complete calls so far.
    pub(crate) fn n_call(&self) -> usize {
        self.n_call
    }

    /// Takes the next update.
    pub(crate) fn push(&mut self, update: &Update, on_change: &mut dyn FnMut(Change<'_>)) {
        match update {
            Update::Text { channel: Channel::Thinking, text } => {
                self.text(PartKind::Thinking, text, on_change)
            }
            Update::Text { channel: Channel::Answer, text } => self.text(PartKind::Text, text, on_change),
            Update::Call(CallUpdate::Begin { name, .. }) => {
                self.begin(PartKind::Call { name: name.clone() }, on_change);
            }
            Update::Call(CallUpdate::Arguments { json, .. }) => self.grow(json, on_change),
            Update::Call(CallUpdate::End { complete, .. }) => {
                if let Some(open) = &mut self.open {
                    open.is_complete = *complete;
                    self.n_call += usize::from(*complete);
                }
                self.finish(on_change);
            }
            Update::Done(_) | Update::Failed(_) => self.finish(on_change),
            Update::Started { .. } | Update::Progress { .. } | Update::Token { .. } | Update::Timings(_) => {}
        }
    }

    fn text(&mut self, kind: PartKind, text: &str, on_change: &mut dyn FnMut(Change<'_>)) {
        if self.open.as_ref().is_none_or(|open| open.kind != kind) {
            if self.held_kind.as_ref() != Some(&kind) || self.open.is_some() {
                self.finish(on_change);
            }
            self.held_kind = Some(kind.clone());
            self.held.push_str(text);
            if self.held.trim().is_empty() {
                return;
            }
            let text = std::mem::take(&mut self.held);
            self.begin(kind, on_change);
            return self.grow(&text, on_change);
        }
        self.grow(text, on_change);
    }

    fn begin(&mut self, kind: PartKind, on_change: &mut dyn FnMut(Change<'_>)) {
        self.finish(on_change);
        on_change(Change::Open(&kind));
        let is_complete = !matches!(kind, PartKind::Call { .. });
        self.open = Some(Part { kind, text: String::new(), is_complete });
    }

    fn grow(&mut self, text: &str, on_change: &mut dyn FnMut(Change<'_>)) {
        if let Some(open) = &mut self.open
            && !text.is_empty()
        {
            open.text.push_str(text);
            on_change(Change::Delta(&open.kind, text));
        }
    }

    fn finish(&mut self, on_change: &mut dyn FnMut(Change<'_>)) {
        self.held.clear();
        if let Some(part) = self.open.take() {
            on_change(Change::Close(part));
        }
    }
}

#[cfg(test)]
mod tests {
    use generate::Finish;

    use super::*;
    use crate::engine::{Done, Timings};

    fn text(text: &str) -> Update {
        Update::Text { channel: Channel::Answer, text: text.into() }
    }

    fn thinking(text: &str) -> Update {
        Update::Text { channel: Channel::Thinking, text: text.into() }
    }

    fn begin(index: usize, name: &str) -> Update {
        Update::Call(CallUpdate::Begin { index, name: name.into() })
    }

    fn arguments(index: usize, json: &str) -> Update {
        Update::Call(CallUpdate::Arguments { index, json: json.into() })
    }

    fn end(index: usize) -> Update {
        Update::Call(CallUpdate::End { index, complete: index < 2 })
    }

    fn done() -> Update {
        Update::Done(Done { finish: Finish::Stop(0), n_reasoning: 0, timings: Timings::default() })
    }

    /// What changes, in short: `+` begins, `-` ends (`!`: cut), the rest is text.
    fn changes(updates: &[Update]) -> (String, usize) {
        let (mut parts, mut seen) = (Parts::default(), String::new());
        for update in updates {
            parts.push(update, &mut |change| match change {
                Change::Open(PartKind::Thinking) => seen += "+think ",
                Change::Open(PartKind::Text) => seen += "+text ",
                Change::Open(PartKind::Call { name }) => seen += &format!("+{name} "),
                Change::Delta(_, text) => seen += &format!("{text} "),
                Change::Close(part) => {
                    seen += &format!("-{}{} ", part.text, if part.is_complete { "" } else { "!" });
                }
            });
        }
        (seen.trim_end().to_owned(), parts.n_call())
    }

    /// Blocks would be told that are empty, or never end, or overlap.
    #[test]
    fn parts_follow_each_other() {
        let all =
            [thinking("a"), thinking("b"), text("c"), begin(0, "f"), arguments(0, "{}"), end(0), done()];
        let white =
            [thinking("a"), text("\n\n"), begin(0, "f"), arguments(0, "{}"), end(0), text("\n"), done()];
        let indented = [text("\n"), text("  x"), text("\n"), text("y"), done()];
        let two = [begin(0, "f"), arguments(0, "{}"), end(0), begin(1, "g"), arguments(1, "{\"x\":"), done()];
        for (updates, expected, n_call) in [
            (all.as_slice(), "+think a b -ab +text c -c +f {} -{}", 1),
            (&white, "+think a -a +f {} -{}", 1),
            (&indented, "+text \n  x \n y -\n  x\ny", 0),
            (&two, "+f {} -{} +g {\"x\": -{\"x\":!", 1),
            (&[text(" "), done()], "", 0),
            (&[thinking(" "), text("x"), done()], "+text x -x", 0),
            (&[begin(2, "f"), arguments(2, "{}"), end(2), done()], "+f {} -{}!", 0),
        ] {
            assert_eq!(changes(updates), (expected.to_owned(), n_call));
        }
    }
}
