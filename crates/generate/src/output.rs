//! From tokens to what the user sees: text in its channel, and calls of tools.

use crate::generate::Event;
use crate::request::OutputSpec;
use crate::stream::TextStream;
use crate::thinking::{Channel, ThinkSplitter};
use crate::tokenizer::Tokenizer;

/// Reads one answer.
pub(crate) struct Output<'t> {
    stream: TextStream<'t>,
    /// `None` in raw mode.
    splitter: Option<ThinkSplitter>,
}

impl<'t> Output<'t> {
    pub(crate) fn new(tokenizer: &'t Tokenizer, spec: &OutputSpec) -> Self {
        let splitter = (!spec.raw).then(|| ThinkSplitter::new(spec.thinking_open));
        Self { stream: TextStream::new(tokenizer), splitter }
    }

    /// Takes the next token and tells what it decides.
    pub(crate) fn push(&mut self, id: u32, on_event: &mut dyn FnMut(Event<'_>)) {
        let text = self.stream.push(id);
        self.show(&text, on_event);
    }

    /// The end of the answer: nothing stays held back.
    pub(crate) fn finish(&mut self, on_event: &mut dyn FnMut(Event<'_>)) {
        let rest = self.stream.finish();
        self.show(&rest, on_event);
        if let Some(splitter) = &mut self.splitter {
            splitter.finish(&mut |channel, text| on_event(Event::Text { channel, text }));
        }
    }

    fn show(&mut self, text: &str, on_event: &mut dyn FnMut(Event<'_>)) {
        let mut emit = |channel, text: &str| on_event(Event::Text { channel, text });
        match &mut self.splitter {
            Some(splitter) => splitter.push(text, &mut emit),
            None if text.is_empty() => {}
            None => emit(Channel::Answer, text),
        }
    }
}
