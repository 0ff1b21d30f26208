//! Splits the model's text into thinking and answer at `<think>` and `</think>`.
//!
//! Works on text, so a tag may be one token, several, or arrive one character at a time. The tags and the
//! newlines around them belong to neither channel. Nothing else is lost: what might become a tag is held
//! back, and comes out as text when it does not.

const OPEN: &str = "<think>";
const CLOSE: &str = "</think>";

/// Which part of the output a piece of text belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Channel {
    /// Reasoning, which is usually shown dimmed or not at all.
    Thinking,
    /// The answer.
    Answer,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    /// Nothing but white space so far, and the prompt left thinking closed: the model may still open it.
    Start,
    /// Just inside the tag: newlines are dropped.
    ThinkingStart,
    Thinking,
    /// Just behind the closing tag: newlines are dropped.
    AnswerStart,
    /// The rest. Later tags are ordinary text: an answer may talk about them.
    Answer,
}

/// The splitter for one answer.
pub struct ThinkSplitter {
    state: State,
    held: String,
}

impl ThinkSplitter {
    /// `thinking_open`: the prompt ends inside an opened `<think>`.
    pub fn new(thinking_open: bool) -> Self {
        let state = if thinking_open { State::ThinkingStart } else { State::Start };
        Self { state, held: String::new() }
    }

    /// Behind thinking, in the middle of an answer.
    pub fn in_answer() -> Self {
        Self { state: State::Answer, held: String::new() }
    }

    /// Takes the next text and gives out what is decided.
    pub fn push(&mut self, text: &str, out: &mut dyn FnMut(Channel, &str)) {
        self.held.push_str(text);
        while self.step(out) {}
    }

    /// The end: whatever is held back is text after all.
    pub fn finish(&mut self, out: &mut dyn FnMut(Channel, &str)) {
        let channel = self.channel();
        emit(channel, &std::mem::take(&mut self.held), out);
    }

    /// Whether the text so far ends inside thinking.
    pub fn channel(&self) -> Channel {
        match self.state {
            State::ThinkingStart | State::Thinking => Channel::Thinking,
            State::Start | State::AnswerStart | State::Answer => Channel::Answer,
        }
    }

    /// One decision; false when more text is needed for the next.
    fn step(&mut self, out: &mut dyn FnMut(Channel, &str)) -> bool {
        match self.state {
            State::Start => self.look_for_open(),
            State::ThinkingStart => self.skip_newlines(State::Thinking),
            State::AnswerStart => self.skip_newlines(State::Answer),
            State::Thinking => self.look_for_close(out),
            State::Answer => {
                emit(Channel::Answer, &std::mem::take(&mut self.held), out);
                false
            }
        }
    }

    fn look_for_open(&mut self) -> bool {
        let body = self.held.trim_start();
        if let Some(rest) = body.strip_prefix(OPEN) {
            self.held = rest.to_owned();
            self.state = State::ThinkingStart;
        } else if OPEN.starts_with(body) {
            return false;
        } else {
            self.state = State::Answer;
        }
        true
    }

    fn skip_newlines(&mut self, next: State) -> bool {
        let n_newline = self.held.len() - self.held.trim_start_matches('\n').len();
        self.held.drain(..n_newline);
        if self.held.is_empty() {
            return false;
        }
        self.state = next;
        true
    }

    fn look_for_close(&mut self, out: &mut dyn FnMut(Channel, &str)) -> bool {
        if let Some(at) = self.held.find(CLOSE) {
            emit(Channel::Thinking, self.held[..at].trim_end_matches('\n'), out);
            self.held.drain(..at + CLOSE.len());
            self.state = State::AnswerStart;
            return true;
        }
        // Keep the longest end that may be the start of "\n…\n</think>".
        let n_tag = (1..CLOSE.len()).rev().find(|&n| self.held.ends_with(&CLOSE[..n])).unwrap_or(0);
        let decided = self.held[..self.held.len() - n_tag].trim_end_matches('\n').len();
        emit(Channel::Thinking, &self.held[..decided], out);
        self.held.drain(..decided);
        false
    }
}

fn emit(channel: Channel, text: &str, out: &mut dyn FnMut(Channel, &str)) {
    if !text.is_empty() {
        out(channel, text);
    }
}
