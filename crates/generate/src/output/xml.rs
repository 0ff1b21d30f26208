//! Calls in the form `<function=NAME>\n<parameter=KEY>\nVALUE\n</parameter>\n</function>`.
//!
//! A value is everything between its tags but for one line break at each end. Models write texts that quote these
//! tags, and forget tags, so a closing tag counts only where the call can go on or end after it:
//!
//! * `</parameter>` before another tag of the form, or at the end of the answer;
//! * `</function>` inside a value before `</tool_call>`, `<tool_call>` or `<function=`, or on a line of its own at the
//!   end of the answer;
//! * `</tool_call>` inside a value on a line of its own, before `<tool_call>` or at the end of the answer;
//! * `<parameter=KEY>` inside a value on a line of its own, for a key of the schema that has no value yet.
//!
//! Between parameters, what is not a tag is kept for after the call. A key that comes twice is written twice: readers
//! of JSON take the last.

use serde_json::Value;

use super::repair::push_json_text;
use super::value::{Kind, ValueWriter, is_declared};

const PARAMETER: &str = "<parameter=";
const PARAMETER_END: &str = "</parameter>";
pub(super) const FUNCTION: &str = "<function=";
const FUNCTION_END: &str = "</function>";
pub(super) const CALL: &str = "<tool_call>";
pub(super) const CALL_END: &str = "</tool_call>";

/// Longest name of a tool or parameter in a tag.
pub(super) const NAME_BYTES_MAX: usize = 256;

/// What stands at a place in the text.
pub(super) enum Tag<T> {
    /// Nothing of the kind.
    None,
    /// What follows decides.
    More,
    /// This.
    Found(T),
}

enum State {
    Between,
    Value(ValueWriter),
}

/// One call, from behind `<function=NAME>`.
pub(super) struct XmlCall {
    /// The tool's schema.
    parameters: Option<Value>,
    state: State,
    keys: Vec<String>,
    /// Text that is not decided.
    held: String,
    /// Bytes of it in which no value ends.
    n_seen: usize,
    /// The value has just begun: its first line break is not part of it.
    is_fresh: bool,
    /// What was taken from `held` last ended with a line break, or nothing was taken yet.
    is_line_start: bool,
    /// What stood between parameters and is no tag.
    stray: String,
}

impl XmlCall {
    pub(super) fn new(parameters: Option<Value>) -> Self {
        Self {
            parameters,
            state: State::Between,
            keys: Vec::new(),
            held: String::new(),
            n_seen: 0,
            is_fresh: false,
            is_line_start: true,
            stray: String::new(),
        }
    }

    /// Takes more text, and writes the arguments that it decides. True: the call is complete.
    pub(super) fn push(&mut self, text: &str, json: &mut String) -> bool {
        self.held.push_str(text);
        self.run(false, json)
    }

    /// The end of the answer. True: the call is complete.
    pub(super) fn finish(&mut self, json: &mut String) -> bool {
        // What may be the start of a tag on a line of its own is one that was cut.
        let last_line = self.held.rfind('\n').map_or(0, |at| at + 1);
        let starts_line = last_line > 0 || self.is_line_start;
        let tail = &self.held[last_line..];
        let is_cut = |tag: &str| tag.len() > tail.len() && tag.starts_with(tail);
        if starts_line && tail.len() > 1 && [PARAMETER_END, FUNCTION_END, CALL_END].into_iter().any(is_cut) {
            self.held.truncate(last_line);
        }
        if self.run(true, json) {
            return true;
        }
        if let State::Value(_) = self.state {
            self.end_value(self.held.len(), true, json);
        } else {
            self.stray.push_str(&std::mem::take(&mut self.held));
        }
        self.close(json);
        false
    }

    /// What stood between parameters and is no tag; and the text behind the call.
    pub(super) fn into_rest(self) -> (String, String) {
        (self.stray, self.held)
    }

    fn run(&mut self, is_end: bool, json: &mut String) -> bool {
        loop {
            let goes_on = match self.state {
                State::Between => match self.between(json) {
                    Tag::None => true,
                    Tag::More => false,
                    Tag::Found(()) => {
                        self.close(json);
                        return true;
                    }
                },
                State::Value(_) => self.in_value(is_end, json),
            };
            if !goes_on {
                return false;
            }
        }
    }

    fn close(&self, json: &mut String) {
        json.push_str(if self.keys.is_empty() { "{}" } else { "}" });
    }

    /// Looks for the next parameter or the end of the call.
    fn between(&mut self, json: &mut String) -> Tag<()> {
        let n_blank = self.held.len() - self.held.trim_start().len();
        if !self.stray.is_empty() {
            self.stray.push_str(&self.held[..n_blank]);
        }
        self.held.drain(..n_blank);
        if self.held.is_empty() {
            return Tag::More;
        }
        match parameter_tag(&self.held) {
            Tag::Found((key, n)) => {
                self.held.drain(..n);
                self.begin_value(key, json);
                return Tag::None;
            }
            Tag::More => return Tag::More,
            Tag::None => {}
        }
        for (tag, is_taken) in [(FUNCTION_END, true), (CALL_END, false), (CALL, false), (FUNCTION, false)] {
            if self.held.starts_with(tag) {
                self.held.drain(..if is_taken { tag.len() } else { 0 });
                return Tag::Found(());
            }
        }
        if self.held.starts_with(PARAMETER_END) {
            self.held.drain(..PARAMETER_END.len());
            return Tag::None;
        }
        let tags = [FUNCTION_END, CALL_END, CALL, FUNCTION, PARAMETER_END];
        if tags.iter().any(|tag| tag.starts_with(&self.held)) {
            return Tag::More;
        }
        let first = self.held.chars().next().map_or(0, char::len_utf8);
        let n = self.held[first..].find(['<', '\n']).map_or(self.held.len(), |at| first + at);
        self.stray.extend(self.held.drain(..n));
        Tag::None
    }

    fn begin_value(&mut self, key: String, json: &mut String) {
        json.push_str(if self.keys.is_empty() { "{\"" } else { ",\"" });
        push_json_text(&key, json);
        json.push_str("\":");
        self.state = State::Value(ValueWriter::new(Kind::of(self.parameters.as_ref(), &key)));
        self.keys.push(key);
        (self.n_seen, self.is_fresh, self.is_line_start) = (0, true, true);
    }

    /// Looks for the end of the value; true if it was found.
    fn in_value(&mut self, is_end: bool, json: &mut String) -> bool {
        if self.is_fresh && !self.held.is_empty() {
            self.is_fresh = false;
            if self.held.starts_with('\n') {
                self.held.drain(..1);
            }
        }
        let mut decided = self.held.len();
        while let Some(at) = self.held[self.n_seen..].find('<').map(|at| self.n_seen + at) {
            match self.end_at(at, is_end) {
                Tag::Found(n) => {
                    self.end_value(at, false, json);
                    self.held.drain(..n);
                    return true;
                }
                Tag::More => {
                    decided = at;
                    break;
                }
                Tag::None => self.n_seen = at + 1,
            }
        }
        self.n_seen = decided;
        // The last line break may be the one before the tag.
        let n_break = usize::from(self.held[..decided].ends_with('\n'));
        self.write(decided - n_break, json);
        false
    }

    /// Moves the start of the value to the writer.
    fn write(&mut self, n: usize, json: &mut String) {
        let text: String = self.held.drain(..n).collect();
        self.n_seen -= n.min(self.n_seen);
        if let (State::Value(writer), Some(last)) = (&mut self.state, text.chars().next_back()) {
            writer.push(&text, json);
            self.is_line_start = last == '\n';
        }
    }

    fn end_value(&mut self, at: usize, is_cut: bool, json: &mut String) {
        let n_break = usize::from(self.held[..at].ends_with('\n'));
        self.write(at - n_break, json);
        self.held.drain(..n_break);
        if let State::Value(writer) = std::mem::replace(&mut self.state, State::Between) {
            writer.finish(is_cut, json);
        }
    }

    /// Whether the value ends before the `<` at this place, and how many bytes are the tag that ends it.
    fn end_at(&self, at: usize, is_end: bool) -> Tag<usize> {
        let rest = &self.held[at..];
        let before = &self.held[..at];
        let starts_line = before.ends_with('\n') || before.is_empty() && self.is_line_start;
        let ends = |tag: &str, next: &[&str], at_end: bool, n: usize| {
            let Some(after) = rest.strip_prefix(tag) else {
                return if tag.starts_with(rest) && !is_end { Tag::More } else { Tag::None };
            };
            let after = after.trim_start();
            match next.iter().any(|tag| after.starts_with(tag)) {
                true => Tag::Found(n),
                false if !next.iter().any(|tag| tag.starts_with(after)) => Tag::None,
                false if !is_end => Tag::More,
                false if at_end => Tag::Found(n),
                false => Tag::None,
            }
        };
        let n = PARAMETER_END.len();
        let behind = [PARAMETER, FUNCTION_END, CALL_END, PARAMETER_END, CALL, FUNCTION, "<parameter "];
        let mut found = vec![ends(PARAMETER_END, &behind, true, n)];
        found.push(ends(FUNCTION_END, &[CALL_END, CALL, FUNCTION], starts_line, 0));
        if starts_line {
            found.push(ends(CALL_END, &[CALL], true, 0));
            found.push(self.next_parameter(rest, is_end));
        }
        let more = found.iter().any(|tag| matches!(tag, Tag::More));
        let other = if more { Tag::More } else { Tag::None };
        found.into_iter().find(|tag| matches!(tag, Tag::Found(_))).unwrap_or(other)
    }

    /// Whether another parameter begins here though the last one was not closed.
    fn next_parameter(&self, rest: &str, is_end: bool) -> Tag<usize> {
        match parameter_tag(rest) {
            Tag::Found((key, _)) if self.keys.contains(&key) => Tag::None,
            Tag::Found((key, _)) if is_declared(self.parameters.as_ref(), &key).unwrap_or(true) => {
                Tag::Found(0)
            }
            Tag::More if !is_end => Tag::More,
            _ => Tag::None,
        }
    }
}

/// `<parameter=KEY>` at the start of the text, or `<parameter name="KEY">`: the key, and the tag's bytes.
fn parameter_tag(text: &str) -> Tag<(String, usize)> {
    for opening in [PARAMETER, "<parameter name="] {
        if let Some(rest) = text.strip_prefix(opening) {
            return match name_of(rest) {
                Tag::Found((name, n)) => Tag::Found((name.to_owned(), opening.len() + n)),
                Tag::More => Tag::More,
                Tag::None => Tag::None,
            };
        }
        if opening.starts_with(text) {
            return Tag::More;
        }
    }
    Tag::None
}

/// A name up to `>`, perhaps in quotes; and the bytes with the `>`.
pub(super) fn name_of(text: &str) -> Tag<(&str, usize)> {
    match text.find(['>', '<', '\n']) {
        Some(at) if text[at..].starts_with('>') && at <= NAME_BYTES_MAX => {
            let name = text[..at].trim().trim_matches(['"', '\'']);
            if name.is_empty() { Tag::None } else { Tag::Found((name, at + 1)) }
        }
        None if text.len() <= NAME_BYTES_MAX => Tag::More,
        _ => Tag::None,
    }
}
