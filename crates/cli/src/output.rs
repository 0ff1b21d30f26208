//! What people read: notes on standard error, and the answer as it comes with a line about its speed below.

use std::fmt::Display;
use std::io::{self, IsTerminal, Write};
use std::sync::atomic::{AtomicBool, Ordering};
#[cfg(unix)]
use std::sync::{Mutex, PoisonError};

use console::Term;
use generate::Channel;

const DIM: &str = "\x1b[2m";
const RESET: &str = "\x1b[0m";
/// Plain text, and pasted text without marks around it.
const NO_PASTE_MARKS: &str = "\x1b[0m\x1b[?2004l";
/// From the cursor to the end of the screen.
const CLEAR_BELOW: &str = "\x1b[J";
/// A row below the cursor comes to be, whatever scrolls for it; then the cursor is where it was, in that column.
const ROOM_BELOW: &str = "\x1bD\x1bM";
const SAVE_CURSOR: &str = "\x1b7";
const RESTORE_CURSOR: &str = "\x1b8";
const TAB_COLUMNS: usize = 8;

/// There is a status line below the cursor of the terminal.
static IS_STATUS_SHOWN: AtomicBool = AtomicBool::new(false);

/// A line on standard error. If nobody can read it, that is no reason to stop.
pub(crate) fn note(text: impl Display) {
    let clear = if IS_STATUS_SHOWN.swap(false, Ordering::SeqCst) { CLEAR_BELOW } else { "" };
    let _ = writeln!(io::stderr().lock(), "{clear}{text}");
}

/// A note with words of the model's in it, which may not command the terminal.
pub(crate) fn quote(text: &str) {
    if io::stderr().is_terminal() { note(harmless(text)) } else { note(text) }
}

/// How the terminal was before lines were edited on it.
#[cfg(unix)]
static TERMINAL: Mutex<Option<rustix::termios::Termios>> = Mutex::new(None);

/// Remembers how the terminal is, for [`leave`].
pub(crate) fn remember_terminal() {
    #[cfg(unix)]
    if let Ok(terminal) = rustix::termios::tcgetattr(io::stdin()) {
        *TERMINAL.lock().unwrap_or_else(PoisonError::into_inner) = Some(terminal);
    }
}

/// The program ends in the middle of something: the terminal is as it was, and what comes next begins on a line of its
/// own.
pub(crate) fn leave() {
    #[cfg(unix)]
    if let Some(terminal) = &*TERMINAL.lock().unwrap_or_else(PoisonError::into_inner) {
        let _ = rustix::termios::tcsetattr(io::stdin(), rustix::termios::OptionalActions::Now, terminal);
    }
    if io::stderr().is_terminal() {
        note(if can_draw() { NO_PASTE_MARKS } else { "" });
    }
}

/// Does the terminal understand more than lines?
fn can_draw() -> bool {
    if cfg!(windows) {
        // Asking switches escape sequences on.
        return Term::stderr().features().colors_supported();
    }
    std::env::var_os("TERM").is_some_and(|term| !term.is_empty() && term != "dumb")
}

/// How an answer is shown.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct View {
    /// Standard output belongs to the result: the answer is shown on standard error.
    pub(crate) is_json: bool,
    /// Thinking is not shown.
    pub(crate) hide_thinking: bool,
}

/// Shows an answer piece by piece. Thinking is dimmed on a terminal, and kept out of a redirected answer.
pub(crate) struct AnswerPrinter {
    answer: Sink,
    /// If it is another one.
    thinking: Option<Sink>,
    hide_thinking: bool,
    /// What was shown last.
    channel: Option<Channel>,
    /// The last character was a line end, or nothing was shown yet.
    at_line_start: bool,
}

impl AnswerPrinter {
    pub(crate) fn new(view: View) -> Self {
        let mut answer = if view.is_json { Sink::stderr() } else { Sink::stdout() };
        let mut thinking = (!answer.is_terminal && !view.is_json).then(Sink::stderr);
        let screen = thinking.as_mut().filter(|sink| sink.is_terminal).unwrap_or(&mut answer);
        if screen.is_terminal && io::stderr().is_terminal() && can_draw() {
            screen.live = Some(Live::default());
        }
        Self { answer, thinking, hide_thinking: view.hide_thinking, channel: None, at_line_start: true }
    }

    /// Shows the next piece at once.
    pub(crate) fn text(&mut self, channel: Channel, text: &str) -> io::Result<()> {
        if channel == Channel::Thinking && self.hide_thinking {
            return Ok(());
        }
        if self.channel.is_some_and(|last| last != channel) {
            self.end_line()?;
        }
        self.channel = Some(channel);
        self.at_line_start = text.ends_with('\n');
        self.sink(channel).write(text, channel == Channel::Thinking)
    }

    /// Shows this line below the text, on a terminal that can.
    pub(crate) fn status(&mut self, line: String) -> io::Result<()> {
        let mut sinks = std::iter::once(&mut self.answer).chain(&mut self.thinking);
        let Some(sink) = sinks.find(|sink| sink.live.is_some()) else { return Ok(()) };
        if let Some(live) = &mut sink.live {
            live.status = line;
        }
        sink.write("", false)
    }

    /// Ends the last line and takes the status line away.
    pub(crate) fn finish(mut self) -> io::Result<()> {
        self.status(String::new())?;
        self.end_line()
    }

    fn sink(&mut self, channel: Channel) -> &mut Sink {
        match (channel, &mut self.thinking) {
            (Channel::Thinking, Some(thinking)) => thinking,
            _ => &mut self.answer,
        }
    }

    fn end_line(&mut self) -> io::Result<()> {
        if let Some(channel) = self.channel
            && !self.at_line_start
        {
            self.sink(channel).write("\n", false)?;
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
    /// If there may be a status line.
    live: Option<Live>,
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
        Self { out, is_terminal, is_styled: is_terminal && !no_color && can_draw(), live: None }
    }

    /// Text and the status line below it go out in one piece: nothing flickers.
    fn write(&mut self, text: &str, is_dim: bool) -> io::Result<()> {
        let shown = if self.is_terminal { harmless(text) } else { text.to_owned() };
        let mut bytes = String::new();
        if self.live.is_some() && IS_STATUS_SHOWN.swap(false, Ordering::SeqCst) {
            bytes.push_str(CLEAR_BELOW);
        }
        if is_dim && self.is_styled && !shown.is_empty() {
            bytes.extend([DIM, &shown, RESET]);
        } else {
            bytes.push_str(&shown);
        }
        if let Some(live) = &mut self.live {
            let (height, width) =
                Term::stdout().size_checked().or(Term::stderr().size_checked()).unwrap_or_default();
            live.advance(&shown, width.into());
            if let Some(drawn) = live.draw(height.into(), width.into(), self.is_styled) {
                bytes.push_str(&drawn);
                IS_STATUS_SHOWN.store(true, Ordering::SeqCst);
            }
        }
        self.out.write_all(bytes.as_bytes())?;
        self.out.flush()
    }
}

/// The line below the text, and where the text ends.
#[derive(Default)]
struct Live {
    status: String,
    /// Columns that the last row of text takes.
    column: usize,
}

impl Live {
    fn advance(&mut self, text: &str, width: usize) {
        for c in text.chars() {
            self.column = match c {
                '\n' => 0,
                '\t' => ((self.column / TAB_COLUMNS + 1) * TAB_COLUMNS).min(width.saturating_sub(1)),
                _ => {
                    let columns = console::measure_text_width(c.encode_utf8(&mut [0; 4]));
                    if width < self.column + columns { columns } else { self.column + columns }
                }
            };
        }
    }

    /// What draws the line; nothing where the cursor is near the end of its row: a terminal that waits for the next
    /// character to go on below forgets that when the cursor moves.
    fn draw(&self, height: usize, width: usize, is_styled: bool) -> Option<String> {
        if self.status.is_empty() || height < 2 || width < self.column + 3 {
            return None;
        }
        let line = console::truncate_str(&self.status, width - 1, "");
        let (dim, reset) = if is_styled { (DIM, RESET) } else { ("", "") };
        Some(format!("{ROOM_BELOW}{SAVE_CURSOR}\r\n{dim}{line}{reset}{RESTORE_CURSOR}"))
    }
}

/// A model's words may not command the terminal: control characters but line ends and tabs are shown as U+FFFD.
pub(crate) fn harmless(text: &str) -> String {
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

    fn shown(is_terminal: bool, hide_thinking: bool, pieces: &[(Channel, &str)]) -> (String, String) {
        let (answer, thinking) = (Shared::default(), Shared::default());
        let sink = |out: &Shared| Sink {
            out: Box::new(out.clone()),
            is_terminal,
            is_styled: is_terminal,
            live: None,
        };
        let mut printer = AnswerPrinter {
            answer: sink(&answer),
            thinking: Some(sink(&thinking)),
            hide_thinking,
            channel: None,
            at_line_start: true,
        };
        for (channel, text) in pieces {
            printer.text(*channel, text).unwrap();
            printer.status("1 tok/s".into()).unwrap();
        }
        printer.finish().unwrap();
        let text = |out: Shared| String::from_utf8(out.0.lock().unwrap().clone()).unwrap();
        (text(answer), text(thinking))
    }

    /// A redirected answer would contain thinking, the status line, escape codes or no line end.
    #[test]
    fn a_redirected_answer_is_plain() {
        let pieces = [(Channel::Thinking, "hm"), (Channel::Answer, "a\x1b[2J"), (Channel::Answer, "b")];
        assert_eq!(shown(false, false, &pieces), ("a\x1b[2Jb\n".into(), "hm\n".into()));
        assert_eq!(shown(false, true, &pieces), ("a\x1b[2Jb\n".into(), String::new()));
        assert_eq!(shown(false, false, &[]), (String::new(), String::new()));
        assert_eq!(shown(false, false, &[(Channel::Answer, "x\n")]).0, "x\n");
    }

    /// Thinking would not be dimmed, or a model could send commands to the terminal: with the escape character, or
    /// with the 8-bit ones that some terminals take for it.
    #[test]
    fn a_terminal_is_protected() {
        let pieces = [(Channel::Thinking, "hm"), (Channel::Answer, "a\x1b[2J\u{9b}2J\r\x07\tb\n")];
        let answer = "a\u{FFFD}[2J\u{FFFD}2J\u{FFFD}\u{FFFD}\tb\n";
        assert_eq!(shown(true, false, &pieces), (answer.into(), "\x1b[2mhm\x1b[0m\n".into()));
    }

    /// The status line would be drawn over text, where it scrolls the text away, or where it costs a character.
    #[test]
    fn the_status_line_keeps_off_the_text() {
        let mut live = Live { status: "12 tok/s, and more".into(), column: 0 };
        let draw = |live: &Live, is_styled| live.draw(24, 10, is_styled);
        let plain = "\x1bD\x1bM\x1b7\r\n12 tok/s,\x1b8";
        assert_eq!(draw(&live, false).as_deref(), Some(plain));
        assert!(draw(&live, true).is_some_and(|drawn| drawn.contains("\x1b[2m12 tok/s,\x1b[0m\x1b8")));
        let cases =
            [("abcdefg", 7, true), ("h", 8, false), ("ij", 10, false), ("k", 1, true), ("\t", 8, false)];
        let more = [("\n漢字漢", 6, true), ("字漢字", 2, true), ("\n", 0, true)];
        for (text, column, is_drawn) in cases.into_iter().chain(more) {
            live.advance(text, 10);
            assert_eq!((live.column, draw(&live, false).is_some()), (column, is_drawn), "{text:?}");
        }
        assert_eq!(live.draw(1, 10, false), None);
        live.status.clear();
        assert_eq!(draw(&live, false), None);
    }
}
