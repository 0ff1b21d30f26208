//! What the user types: with editing, completion and history on a terminal, line by line from a pipe.

use std::io::{self, BufRead, IsTerminal};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use rustyline::completion::{Completer, FilenameCompleter, Pair};
use rustyline::error::ReadlineError;
use rustyline::highlight::Highlighter;
use rustyline::hint::Hinter;
use rustyline::history::DefaultHistory;
use rustyline::validate::{ValidationContext, ValidationResult, Validator};
use rustyline::{
    Behavior, Cmd, ConditionalEventHandler, Context, Editor, Event, EventContext, EventHandler, Helper,
    KeyEvent, Modifiers, RepeatCount,
};

use super::command::{self, COMMANDS, SETTINGS};
use crate::error::CliError;
use crate::output::note;
use crate::{interrupt, output};

/// Messages of the history that are kept.
const N_HISTORY_MAX: usize = 1000;
const PROMPT: &str = "> ";

/// Where lines come from.
pub(super) enum Lines {
    Terminal(Box<Terminal>),
    Pipe(io::StdinLock<'static>),
}

/// An answer to a question of ours.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Reply {
    Text(String),
    /// Ctrl-C, or the end of the input.
    Stop,
}

impl Lines {
    pub(super) fn open() -> anyhow::Result<Self> {
        if !io::stdin().is_terminal() {
            return Ok(Self::Pipe(io::stdin().lock()));
        }
        Ok(Self::Terminal(Box::new(Terminal::open()?)))
    }

    /// Can somebody be asked, who sees what the question is about?
    pub(super) fn has_terminal(&self) -> bool {
        matches!(self, Self::Terminal(_)) && io::stderr().is_terminal()
    }

    /// The next message or command; `None` at the end.
    pub(super) fn next(&mut self) -> anyhow::Result<Option<String>> {
        match self {
            Self::Terminal(terminal) => terminal.next(),
            Self::Pipe(pipe) => message(pipe),
        }
    }

    /// The answer to a question of ours, in one line.
    pub(super) fn ask(&mut self, question: &str) -> anyhow::Result<Reply> {
        match self {
            Self::Terminal(terminal) => terminal.ask(question),
            Self::Pipe(pipe) => Ok(line(pipe)?.map_or(Reply::Stop, Reply::Text)),
        }
    }

    /// Keeps the history. A chat is no worse without one.
    pub(super) fn save(&mut self) {
        if let Self::Terminal(terminal) = self {
            terminal.save();
        }
    }
}

/// A line without its end; `None` after the last one.
fn line(pipe: &mut impl BufRead) -> anyhow::Result<Option<String>> {
    let mut text = String::new();
    let n_read = pipe.read_line(&mut text).map_err(|error| match error.kind() {
        io::ErrorKind::InvalidData => CliError::PromptEncoding,
        _ => CliError::Io { path: "standard input".into(), action: "read", source: error },
    })?;
    if text.ends_with('\n') {
        text.pop();
        if text.ends_with('\r') {
            text.pop();
        }
    }
    Ok((0 < n_read).then_some(text))
}

/// Lines up to the end of a message.
fn message(pipe: &mut impl BufRead) -> anyhow::Result<Option<String>> {
    let Some(mut text) = line(pipe)? else { return Ok(None) };
    loop {
        let is_block = command::is_open(&text);
        let goes_on = !is_block && text.ends_with('\\');
        if !is_block && !goes_on {
            return Ok(Some(text));
        }
        if goes_on {
            text.pop();
        }
        match line(pipe)? {
            Some(more) => text = text + "\n" + &more,
            None => return Ok(Some(text)),
        }
    }
}

/// The editor.
pub(super) struct Terminal {
    editor: Editor<ChatHelper, DefaultHistory>,
    /// Where the history is kept; `None` without a home.
    history: Option<PathBuf>,
    /// The line was empty when Ctrl-C was typed last.
    was_empty: Arc<AtomicBool>,
}

impl Terminal {
    fn open() -> anyhow::Result<Self> {
        output::remember_terminal();
        // With the answers redirected, the prompt still belongs on the terminal.
        let behavior = if io::stdout().is_terminal() { Behavior::Stdio } else { Behavior::PreferTerm };
        let config = rustyline::Config::builder()
            .behavior(behavior)
            .max_history_size(N_HISTORY_MAX)?
            .completion_type(rustyline::CompletionType::List)
            .bracketed_paste(true)
            .build();
        let mut editor = Editor::with_config(config)?;
        editor.set_helper(Some(ChatHelper { files: FilenameCompleter::new() }));
        editor.bind_sequence(KeyEvent::new('\r', Modifiers::ALT), EventHandler::Simple(Cmd::Newline));
        editor
            .bind_sequence(KeyEvent::new('\r', Modifiers::NONE), EventHandler::Conditional(Box::new(Enter)));
        let was_empty = Arc::new(AtomicBool::new(false));
        let watch = EventHandler::Conditional(Box::new(CtrlC { was_empty: Arc::clone(&was_empty) }));
        editor.bind_sequence(KeyEvent::ctrl('C'), watch);
        let history = history_path();
        if let Some(path) = &history {
            // There is none the first time.
            let _ = editor.load_history(path);
        }
        Ok(Self { editor, history, was_empty })
    }

    fn next(&mut self) -> anyhow::Result<Option<String>> {
        let mut is_second = false;
        loop {
            match self.editor.readline(PROMPT) {
                Ok(line) => {
                    let line = line.replace(CONTINUED, "\n");
                    self.editor.add_history_entry(line.as_str())?;
                    return Ok(Some(line));
                }
                Err(ReadlineError::Interrupted) => {
                    let was_empty = self.was_empty.load(Ordering::SeqCst);
                    if interrupt::was_just_now() || (was_empty && is_second) {
                        return Ok(None);
                    }
                    is_second = was_empty;
                    if was_empty {
                        note("(Ctrl-C again or Ctrl-D leaves)");
                    }
                }
                Err(ReadlineError::Eof) => return Ok(None),
                Err(error) => return Err(error.into()),
            }
        }
    }

    fn ask(&mut self, question: &str) -> anyhow::Result<Reply> {
        // What was typed before the question is not its answer.
        #[cfg(unix)]
        let _ = rustix::termios::tcflush(io::stdin(), rustix::termios::QueueSelector::IFlush);
        match self.editor.readline(question) {
            Ok(line) => Ok(Reply::Text(line)),
            Err(ReadlineError::Interrupted | ReadlineError::Eof) => Ok(Reply::Stop),
            Err(error) => Err(error.into()),
        }
    }

    fn save(&mut self) {
        if let Some(path) = &self.history {
            let kept = path.parent().map_or(Ok(()), std::fs::create_dir_all).map_err(ReadlineError::from);
            if let Err(error) = kept.and_then(|()| self.editor.save_history(path)) {
                note(format_args!("note: the history is not kept: {}: {error}", path.display()));
            }
        }
    }
}

/// In the user's data folder.
fn history_path() -> Option<PathBuf> {
    let folder = |name: &str| std::env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let data = match cfg!(windows) {
        true => folder("LOCALAPPDATA"),
        false => folder("XDG_DATA_HOME").or_else(|| Some(folder("HOME")?.join(".local/share"))),
    };
    Some(data?.join("flash-moe/history"))
}

/// What a line that goes on ends with once Enter was pressed after its `\`: the mark, which nobody sees, tells it from
/// such a line in a pasted text. (The editor cannot take the `\` away and leave the cursor behind what replaces it.)
const CONTINUED: &str = "\\\u{200b}\n";

/// Enter after `\` begins a new line instead.
struct Enter;

impl ConditionalEventHandler for Enter {
    fn handle(&self, _: &Event, _: RepeatCount, _: bool, context: &EventContext<'_>) -> Option<Cmd> {
        let line = context.line();
        let goes_on = context.pos() == line.len() && line.ends_with('\\') && !command::is_open(line);
        goes_on.then(|| Cmd::Insert(1, CONTINUED.trim_start_matches('\\').into()))
    }
}

/// Takes notice of what Ctrl-C will clear.
struct CtrlC {
    was_empty: Arc<AtomicBool>,
}

impl ConditionalEventHandler for CtrlC {
    fn handle(&self, _: &Event, _: RepeatCount, _: bool, context: &EventContext<'_>) -> Option<Cmd> {
        self.was_empty.store(context.line().is_empty(), Ordering::SeqCst);
        None
    }
}

/// Completion of commands, and lines that are not complete.
struct ChatHelper {
    files: FilenameCompleter,
}

impl Helper for ChatHelper {}

impl Hinter for ChatHelper {
    type Hint = String;
}

impl Highlighter for ChatHelper {}

impl Validator for ChatHelper {
    fn validate(&self, context: &mut ValidationContext<'_>) -> rustyline::Result<ValidationResult> {
        let is_open = command::is_open(context.input());
        Ok(if is_open { ValidationResult::Incomplete } else { ValidationResult::Valid(None) })
    }
}

impl Completer for ChatHelper {
    type Candidate = Pair;

    fn complete(&self, line: &str, pos: usize, _: &Context<'_>) -> rustyline::Result<(usize, Vec<Pair>)> {
        let typed = &line[..pos];
        match typed.split_once(' ') {
            Some(("/file" | "/save" | "/load", _)) => self.files.complete_path(line, pos),
            Some(("/tools", word)) => {
                let (start, mut pairs) = self.files.complete_path(line, pos)?;
                let words = ["builtin", "shell", "off", "list"];
                pairs.extend(candidates(word, &words));
                Ok((start, pairs))
            }
            Some(("/think", word)) => Ok((pos - word.len(), candidates(word, &["on", "off", "auto"]))),
            Some(("/set", word)) => Ok((pos - word.len(), candidates(word, &SETTINGS))),
            None if typed.starts_with('/') => {
                let names: Vec<&str> = COMMANDS.iter().map(|(name, ..)| *name).collect();
                Ok((0, candidates(typed, &names)))
            }
            _ => Ok((pos, Vec::new())),
        }
    }
}

fn candidates(start: &str, words: &[&str]) -> Vec<Pair> {
    let fits = words.iter().filter(|word| word.starts_with(start));
    fits.map(|word| Pair { display: (*word).into(), replacement: format!("{word} ") }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A script's message of many lines would be several messages, or its last one be lost.
    #[test]
    fn messages_in_a_pipe_may_have_many_lines() {
        let mut pipe = io::Cursor::new("one\r\ntwo \\\nthree\n\"\"\"\na\\\nb\n\"\"\"\n\nlast\\");
        let mut messages = Vec::new();
        while let Some(text) = message(&mut pipe).unwrap() {
            messages.push(text);
        }
        assert_eq!(messages, ["one", "two \nthree", "\"\"\"\na\\\nb\n\"\"\"", "", "last"]);
        assert!(message(&mut io::Cursor::new(b"\xff\n")).is_err());
        assert_eq!(message(&mut io::Cursor::new("\"\"\"\nx")).unwrap().as_deref(), Some("\"\"\"\nx"));
    }

    /// Tab would offer nothing, or replace what was typed before.
    #[test]
    fn commands_are_completed() {
        let helper = ChatHelper { files: FilenameCompleter::new() };
        let history = DefaultHistory::new();
        let complete = |line: &str| {
            let (start, pairs) = helper.complete(line, line.len(), &Context::new(&history)).unwrap();
            (start, pairs.into_iter().map(|pair| pair.replacement).collect::<Vec<_>>())
        };
        assert_eq!(
            complete("/s"),
            (0, vec!["/system ".into(), "/save ".into(), "/set ".into(), "/stats ".into()])
        );
        assert_eq!(complete("/think o"), (7, vec!["on ".into(), "off ".into()]));
        assert_eq!(complete("/set temp"), (5, vec!["temperature ".into()]));
        assert_eq!(complete("/tools she"), (7, vec!["shell ".into()]));
        assert_eq!(complete("hello /s").1, Vec::<String>::new());
        let (start, names) = complete("/file Cargo.to");
        assert_eq!((start, names), (6, vec!["Cargo.toml".into()]));
    }
}
