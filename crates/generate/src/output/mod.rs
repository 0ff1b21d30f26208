//! From tokens to what the user sees: text in its channel, and calls of tools.
//!
//! Tokens become text (`stream`), text is split into thinking and answer (`thinking`), and calls are found in both
//! (`calls`, with a file for each of their forms). Every part gives out what is decided and holds back what is not, so
//! the events do not depend on how the text was cut, but for where pieces of text and arguments end.

mod calls;
mod json;
mod repair;
mod value;
mod xml;

use crate::generate::Event;
use crate::request::OutputSpec;
use crate::stream::TextStream;
use crate::thinking::{Channel, ThinkSplitter};
use crate::tokenizer::Tokenizer;
use calls::Calls;

/// Reads one answer.
pub(crate) struct Output<'t> {
    stream: TextStream<'t>,
    reader: AnswerReader,
}

impl<'t> Output<'t> {
    pub(crate) fn new(tokenizer: &'t Tokenizer, spec: &OutputSpec) -> Self {
        Self { stream: TextStream::new(tokenizer), reader: AnswerReader::new(spec) }
    }

    /// Takes the next token and tells what it decides.
    pub(crate) fn push(&mut self, id: u32, on_event: &mut dyn FnMut(Event<'_>)) {
        let text = self.stream.push(id);
        self.reader.push(&text, on_event);
    }

    /// The end of the answer: nothing stays held back.
    pub(crate) fn finish(&mut self, on_event: &mut dyn FnMut(Event<'_>)) {
        let rest = self.stream.finish();
        self.reader.push(&rest, on_event);
        self.reader.finish(on_event);
    }
}

/// Reads the text of one answer, in pieces of any size.
pub struct AnswerReader {
    /// `None` in raw mode.
    splitter: Option<ThinkSplitter>,
    /// `None` without tools.
    calls: Option<Calls>,
}

impl AnswerReader {
    /// At the start of an answer.
    pub fn new(spec: &OutputSpec) -> Self {
        let splitter = match spec.continues {
            true => ThinkSplitter::in_answer(),
            false => ThinkSplitter::new(spec.thinking_open),
        };
        let has_calls = !spec.raw && !spec.tools.is_empty();
        let calls = has_calls.then(|| Calls::new(spec.tools.clone(), !spec.continues));
        Self { splitter: (!spec.raw).then_some(splitter), calls }
    }

    /// Takes the next text and tells what it decides.
    pub fn push(&mut self, text: &str, on_event: &mut dyn FnMut(Event<'_>)) {
        let Some(splitter) = &mut self.splitter else {
            if !text.is_empty() {
                on_event(Event::Text { channel: Channel::Answer, text });
            }
            return;
        };
        let Some(calls) = &mut self.calls else {
            return splitter.push(text, &mut |channel, text| on_event(Event::Text { channel, text }));
        };
        read(splitter, calls, text.to_owned(), on_event);
    }

    /// The end of the answer: nothing stays held back. A call that is open ends, incomplete.
    pub fn finish(&mut self, on_event: &mut dyn FnMut(Event<'_>)) {
        let Some(splitter) = &mut self.splitter else { return };
        let Some(calls) = &mut self.calls else {
            return splitter.finish(&mut |channel, text| on_event(Event::Text { channel, text }));
        };
        while calls.is_open() {
            let rest = calls.finish_open(on_event);
            read(splitter, calls, rest, on_event);
        }
        splitter.finish(&mut |channel, text| calls.text(channel, text, on_event));
        calls.flush(on_event);
    }
}

/// Reads text. What belongs to a call is not looked through for the tags of thinking, and a call can only open behind
/// a `>`.
fn read(
    splitter: &mut ThinkSplitter,
    calls: &mut Calls,
    mut text: String,
    on_event: &mut dyn FnMut(Event<'_>),
) {
    let mut at = 0;
    while at < text.len() {
        if calls.is_open() {
            text = calls.push(&text[at..], on_event);
            at = 0;
            continue;
        }
        let end = text[at..].find('>').map_or(text.len(), |n| at + n + 1);
        splitter.push(&text[at..end], &mut |channel, text| calls.text(channel, text, on_event));
        at = end;
    }
}
