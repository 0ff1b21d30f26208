//! What people read: notes on standard error, and the answer as it comes.

use std::fmt::Display;
use std::io::{self, IsTerminal, Write};

use generate::Channel;

const DIM: &str = "\x1b[2m";
const RESET: &str = "\x1b[0m";

/// A line on standard error. If nobody can read it, that is no reason to stop.
pub(crate) fn note(text: impl Display) {
    let _ = writeln!(io::stderr().lock(), "{text}");
}

/// Shows an answer piece by piece. Thinking is dimmed on a terminal, and kept out of a redirected answer.
pub(crate) struct AnswerPrinter {
    answer: Sink,
    thinking: Sink,
    /// What was shown last.
    channel: Option<Channel>,
    /// The last character was a line end, or nothing was shown yet.
    at_line_start: bool,
}

impl AnswerPrinter {
    /// To standard output; with `is_json` to standard error, because standard output belongs to the result.
    pub(crate) fn new(is_json: bool) -> Self {
        let answer = if is_json { Sink::stderr() } else { Sink::stdout() };
        let thinking = if answer.is_terminal && !is_json { Sink::stdout() } else { Sink::stderr() };
        Self { answer, thinking, channel: None, at_line_start: true }
    }

    /// Shows the next piece at once.
    pub(crate) fn text(&mut self, channel: Channel, text: &str) -> io::Result<()> {
        if self.channel.is_some_and(|last| last != channel) {
            self.end_line()?;
        }
        self.channel = Some(channel);
        self.at_line_start = text.ends_with('\n');
        match channel {
            Channel::Thinking => self.thinking.write(text, true),
            Channel::Answer => self.answer.write(text, false),
        }
    }

    /// Ends the last line.
    pub(crate) fn finish(mut self) -> io::Result<()> {
        self.end_line()
    }

    fn end_line(&mut self) -> io::Result<()> {
        let sink = match self.channel {
            None => return Ok(()),
            Some(Channel::Thinking) => &mut self.thinking,
            Some(Channel::Answer) => &mut self.answer,
        };
        if !self.at_line_start {
            sink.write("\n", false)?;
            self.at_line_start = true;
        }
        Ok(())
    }
}

/// Standard output or standard error.
struct Sink {
    out: Box<dyn Write>,
    is_terminal: bool,
    is_styled: bool,
}

impl Sink {
    fn stdout() -> Self {
        Self::new(Box::new(io::stdout()), io::stdout().is_terminal())
    }

    fn stderr() -> Self {
        Self::new(Box::new(io::stderr()), io::stderr().is_terminal())
    }

    fn new(out: Box<dyn Write>, is_terminal: bool) -> Self {
        let no_color = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
        Self { out, is_terminal, is_styled: is_terminal && !no_color }
    }

    fn write(&mut self, text: &str, is_dim: bool) -> io::Result<()> {
        let shown = if self.is_terminal { harmless(text) } else { text.to_owned() };
        if is_dim && self.is_styled {
            write!(self.out, "{DIM}{shown}{RESET}")?;
        } else {
            self.out.write_all(shown.as_bytes())?;
        }
        self.out.flush()
    }
}

/// A model's words may not command the terminal: control characters but line ends and tabs are shown as U+FFFD.
fn harmless(text: &str) -> String {
    text.chars().map(|c| if c.is_control() && c != '\n' && c != '\t' { '\u{FFFD}' } else { c }).collect()
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use super::*;

    #[derive(Clone, Default)]
    struct Shared(Arc<Mutex<Vec<u8>>>);

    impl Write for Shared {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().unwrap().extend_from_slice(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    fn shown(is_terminal: bool, pieces: &[(Channel, &str)]) -> (String, String) {
        let (answer, thinking) = (Shared::default(), Shared::default());
        let sink = |out: &Shared| Sink { out: Box::new(out.clone()), is_terminal, is_styled: is_terminal };
        let mut printer = AnswerPrinter {
            answer: sink(&answer),
            thinking: sink(&thinking),
            channel: None,
            at_line_start: true,
        };
        for (channel, text) in pieces {
            printer.text(*channel, text).unwrap();
        }
        printer.finish().unwrap();
        let text = |out: Shared| String::from_utf8(out.0.lock().unwrap().clone()).unwrap();
        (text(answer), text(thinking))
    }

    /// A redirected answer would contain thinking, escape codes or no line end.
    #[test]
    fn a_redirected_answer_is_plain() {
        let pieces = [(Channel::Thinking, "hm"), (Channel::Answer, "a\x1b[2J"), (Channel::Answer, "b")];
        assert_eq!(shown(false, &pieces), ("a\x1b[2Jb\n".into(), "hm\n".into()));
        assert_eq!(shown(false, &[]), (String::new(), String::new()));
        assert_eq!(shown(false, &[(Channel::Answer, "x\n")]).0, "x\n");
    }

    /// Thinking would not be dimmed, or a model could send commands to the terminal.
    #[test]
    fn a_terminal_is_protected() {
        let pieces = [(Channel::Thinking, "hm"), (Channel::Answer, "a\x1b[2J\tb\n")];
        assert_eq!(shown(true, &pieces), ("a\u{FFFD}[2J\tb\n".into(), "\x1b[2mhm\x1b[0m\n".into()));
    }
}
