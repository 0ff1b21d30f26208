//! `chat`: a conversation in the terminal.

use std::io::{self, IsTerminal};
use std::path::PathBuf;

use crate::device::Device;
use generate::{ChatRequest, Content, Finish, GenerateOptions, Message, Prompt, TextModel, common_prefix};
use model::{ModelError, Session, Snapshot, TokenModel};
use rustyline::DefaultEditor;
use rustyline::error::ReadlineError;
use store::Store;

use crate::answer::{Answer, answer};
use crate::flags::{AnswerFlags, ChatFlags};
use crate::hint;
use crate::interrupt::Answering;
use crate::load::{Loaded, load_warm};
use crate::meter::Metered;
use crate::output::note;
use crate::plan::Work;
use crate::{target, text};

const HELP: &str = "/clear  forget the conversation
/help   this list
/quit   leave (also Ctrl-D)
Ctrl-C  ends an answer, or clears the line";

/// Lines of history that are kept.
const N_HISTORY_MAX: usize = 1000;

pub(crate) fn chat(flags: ChatFlags) -> anyhow::Result<()> {
    let store = target::open(flags.model.as_deref())?;
    let text_model = text::load(&store)?.check_template()?;
    // Wrong values are refused before anything is loaded.
    text::sampling(&text_model, &flags.answer.sampling)?;
    let loaded =
        load_warm(&store, &flags.engine, Work { n_ctx: None, n_feed: None, n_snapshot: 1, n_session: 1 })?;
    if flags.answer.timing {
        kernels::Backend::measure(loaded.engine.backend());
    }
    greet(&store, &loaded);
    let mut conversation = Conversation {
        messages: Vec::new(),
        timeline: None,
        loaded,
        text: text_model,
        flags: flags.answer,
        is_verbose: flags.engine.verbose,
    };
    let mut lines = Lines::open()?;
    while let Some(line) = lines.next()? {
        match line.trim() {
            "" => {}
            "/quit" | "/exit" => break,
            "/help" => note(HELP),
            "/clear" => {
                conversation.clear();
                note("(the conversation is forgotten)");
            }
            command if command.starts_with('/') && !command.contains(char::is_whitespace) => {
                note(format_args!("there is no {command}; /help lists what there is"));
            }
            message => conversation.turn(message)?,
        }
    }
    conversation.loaded.finish();
    lines.save();
    Ok(())
}

fn greet(store: &Store, loaded: &Loaded) {
    let name = store.location();
    let backend = kernels::Backend::describe(loaded.engine.backend());
    note(format_args!("{name} on {backend}. /help lists commands, Ctrl-D leaves."));
}

/// Messages, and what the model remembers of them.
struct Conversation {
    messages: Vec<Message>,
    timeline: Option<Timeline>,
    loaded: Loaded,
    text: TextModel,
    flags: AnswerFlags,
    is_verbose: bool,
}

/// A session, and where it was before the last answer: templates write answers into history in another form than
/// they were generated in (without thinking), so the next prompt parts from the session there.
struct Timeline {
    session: Session<Device>,
    snapshot: Option<Snapshot>,
}

impl Conversation {
    fn clear(&mut self) {
        self.messages.clear();
        self.timeline = None;
    }

    /// One question and its answer. What goes wrong with it is said, and the conversation goes on without it.
    fn turn(&mut self, line: &str) -> anyhow::Result<()> {
        self.messages.push(Message::user(line));
        match self.reply() {
            Ok(answer) => {
                answer.status(self.is_verbose, self.flags.timing);
                self.remember(answer);
                self.loaded.pause();
            }
            // Nobody reads the answers any more.
            Err(error) if hint::is_broken_pipe(&error) => return Err(error),
            Err(error) => {
                hint::print(&error);
                self.messages.pop();
                // After an error the state of a session is not known.
                self.timeline = None;
            }
        }
        Ok(())
    }

    fn remember(&mut self, answer: Answer) {
        if answer.finish == Finish::Interrupted && answer.text.is_empty() {
            self.messages.pop();
            return;
        }
        let thinking = Some(answer.thinking).filter(|thinking| !thinking.is_empty());
        self.messages.push(Message {
            role: "assistant".into(),
            content: Some(Content::Text(answer.text)),
            reasoning_content: thinking,
            ..Message::default()
        });
    }

    fn reply(&mut self) -> anyhow::Result<Answer> {
        let messages = self.messages.clone();
        let thinking = text::thinking(self.flags.think);
        let prepared = self.text.prepare(&ChatRequest { messages, thinking, ..ChatRequest::default() })?;
        text::tell_warnings(&prepared);
        let (prompt, n_settled) = (&prepared.prompt, prepared.n_settled);
        let options = GenerateOptions {
            sampling: text::sampling(&self.text, &self.flags.sampling)?,
            stop_ids: self.text.stop_ids().to_vec(),
            max_tokens: self.flags.max_tokens,
            output: prepared.output.clone(),
            ..GenerateOptions::default()
        };
        let mut timeline = self.timeline_for(prompt)?;
        let answering = Answering::begin();
        let engine = &mut self.loaded.engine;
        let n_reused = timeline.session.pos();
        let metered = Metered::new(engine, &mut timeline.session, prompt.ids.len());
        let mut metered = metered.shown(self.is_verbose);
        if n_reused < n_settled {
            let fed = metered.feed(&prompt.ids[n_reused..n_settled], &mut |_| answering.flow());
            if !matches!(fed, Err(ModelError::Interrupted)) {
                fed?;
                timeline.snapshot = Some(metered.engine.snapshot(metered.session)?);
            }
        }
        let mut answer = answer(&mut metered, &self.text, prompt, &options, &answering, false)?;
        answer.n_reused = n_reused;
        self.timeline = Some(timeline);
        Ok(answer)
    }

    /// The session, taken back to where `prompt` goes on from it; a new one if it never was there.
    fn timeline_for(&mut self, prompt: &Prompt) -> anyhow::Result<Timeline> {
        if let Some(mut timeline) = self.timeline.take() {
            let n_same = common_prefix(timeline.session.ids(), &prompt.ids);
            if n_same == timeline.session.pos() && n_same < prompt.ids.len() {
                return Ok(timeline);
            }
            if let Some(snapshot) = &timeline.snapshot
                && snapshot.pos() <= n_same
            {
                self.loaded.engine.rewind(&mut timeline.session, snapshot)?;
                return Ok(timeline);
            }
        }
        Ok(Timeline { session: self.loaded.engine.session(self.loaded.plan.n_ctx), snapshot: None })
    }
}

/// Lines that the user types, with history on a terminal.
struct Lines {
    editor: DefaultEditor,
    /// Where the history is kept; `None` if nobody types, or there is no home.
    history: Option<PathBuf>,
}

impl Lines {
    fn open() -> anyhow::Result<Self> {
        let config =
            rustyline::Config::builder().max_history_size(N_HISTORY_MAX)?.auto_add_history(true).build();
        let mut editor = DefaultEditor::with_config(config)?;
        let history = if io::stdin().is_terminal() { history_path() } else { None };
        if let Some(path) = &history {
            // There is none the first time.
            let _ = editor.load_history(path);
        }
        Ok(Self { editor, history })
    }

    /// The next line; `None` at the end.
    fn next(&mut self) -> anyhow::Result<Option<String>> {
        loop {
            match self.editor.readline("> ") {
                Ok(line) => return Ok(Some(line)),
                Err(ReadlineError::Interrupted) => {}
                Err(ReadlineError::Eof) => return Ok(None),
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// Keeps the history. A chat is no worse without one.
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
