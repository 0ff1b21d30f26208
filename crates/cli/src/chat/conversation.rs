//! A conversation: what was said, with which settings and tools, and what commands do to it.

use std::path::Path;

use anyhow::Context;
use generate::{Content, FunctionCall, Message, ToolCall};

use super::command::{Setting, Thinking, ToolsCommand};
use super::lines::{Lines, Reply};
use super::model::Model;
use super::rounds::{self, End, N_ROUND_MAX, Peer};
use super::saved::{LastChat, Saved};
use super::tools::{self, Toolbox, Way};
use crate::answer::Answer;
use crate::attach::{Attachment, with_files};
use crate::flags::{AnswerFlags, OnOff};
use crate::interrupt::Answering;
use crate::meter::Counts;
use crate::output::{note, quote};
use crate::{hint, text, toolfile};

/// Characters of a text that a note about it shows.
const N_EXCERPT: usize = 60;
/// Characters of a tool's result that are shown.
const N_RESULT: usize = 2000;

pub(super) struct Conversation {
    /// Without the system message, which is a setting.
    messages: Vec<Message>,
    pub(super) flags: AnswerFlags,
    pub(super) tools: Toolbox,
    /// For the next message.
    files: Vec<Attachment>,
    pub(super) model: Model,
    /// The model's name, for files.
    name: String,
    /// Calls so far: each has its own id.
    n_call: usize,
    totals: Totals,
    last: LastChat,
}

/// All answers together.
#[derive(Clone, Copy, Debug, Default)]
struct Totals {
    n_answer: usize,
    n_generated: usize,
    prefill: Counts,
    decode: Counts,
}

impl Conversation {
    pub(super) fn new(
        model: Model,
        name: String,
        flags: AnswerFlags,
        tools: Toolbox,
        files: Vec<Attachment>,
        last: LastChat,
    ) -> Self {
        let totals = Totals::default();
        Self { messages: Vec::new(), flags, tools, files, model, name, n_call: 0, totals, last }
    }

    /// A message and its answer.
    pub(super) fn say(&mut self, message: &str, lines: &mut Lines) -> anyhow::Result<()> {
        let before = self.messages.clone();
        self.messages.push(Message::user(with_files(&self.files, message)));
        if self.answer(before, lines)? {
            self.files.clear();
        }
        Ok(())
    }

    /// Another answer to the last message.
    pub(super) fn retry(&mut self, lines: &mut Lines) -> anyhow::Result<()> {
        let Some(last) = self.last_question() else {
            note("there is nothing to answer again");
            return Ok(());
        };
        let before = self.messages.clone();
        self.messages.truncate(last + 1);
        self.answer(before, lines).map(|_| ())
    }

    /// Answers the last message. What goes wrong is said, and the conversation goes on as it was `before`, as if nobody
    /// had asked: false.
    fn answer(&mut self, before: Vec<Message>, lines: &mut Lines) -> anyhow::Result<bool> {
        let mut turn = Turn {
            model: &mut self.model,
            flags: &self.flags,
            tools: &self.tools,
            totals: &mut self.totals,
            lines,
            answering: Answering::begin(),
        };
        let end = rounds::turn(&mut turn, &mut self.messages, &mut self.n_call);
        match end {
            Ok(end @ (End::Answered | End::Stopped | End::TooManyRounds)) => {
                if end == End::TooManyRounds {
                    note(format_args!(
                        "note: the model called tools {N_ROUND_MAX} times in a row and was stopped"
                    ));
                }
                self.last.write(&self.saved());
                Ok(true)
            }
            Ok(End::Unsaid) => {
                self.messages = before;
                Ok(false)
            }
            // Nobody reads the answers any more.
            Err(error) if hint::is_broken_pipe(&error) => Err(error),
            Err(error) => {
                hint::print(&error);
                self.messages = before;
                Ok(false)
            }
        }
    }

    fn last_question(&self) -> Option<usize> {
        self.messages.iter().rposition(|message| message.role == "user")
    }

    pub(super) fn undo(&mut self) {
        match self.last_question() {
            None => note("there is nothing to forget"),
            Some(last) => {
                quote(&format!("(forgotten: {})", excerpt(&self.messages[last])));
                self.messages.truncate(last);
            }
        }
    }

    pub(super) fn clear(&mut self) {
        self.messages.clear();
        self.files.clear();
        self.model.clear();
        note("(the conversation is forgotten)");
    }

    pub(super) fn think(&mut self, thinking: Thinking) {
        thinking.apply(&mut self.flags);
        note(format_args!("(thinking: {})", self.thinking()));
    }

    fn thinking(&self) -> String {
        match (self.flags.opening.think, self.flags.think_budget) {
            (Some(OnOff::Off), _) => "off".into(),
            (Some(OnOff::On), None) => "on".into(),
            (None, None) => "as the model's template has it".into(),
            (_, Some(n)) => format!("at most {n} tokens"),
        }
    }

    pub(super) fn system(&mut self, text: Option<String>) {
        match text {
            None => quote(self.flags.opening.system.as_deref().unwrap_or("(no system message)")),
            Some(text) => {
                self.flags.opening.system = Some(text).filter(|text| text != "off");
                let is = if self.flags.opening.system.is_some() { "set" } else { "removed" };
                note(format_args!("(the system message is {is})"));
            }
        }
    }

    pub(super) fn change_tools(&mut self, command: &ToolsCommand, lines: &Lines) -> anyhow::Result<()> {
        match command {
            ToolsCommand::List => {}
            ToolsCommand::Off => self.tools = Toolbox::default(),
            ToolsCommand::BuiltIn => self.tools.has_builtin = true,
            ToolsCommand::Shell if !lines.has_terminal() => anyhow::bail!(NO_SHELL),
            ToolsCommand::Shell => self.tools.has_shell = true,
            ToolsCommand::Declare(path) => {
                self.tools.declare(toolfile::tools(path)?).map_err(anyhow::Error::msg)?;
            }
        }
        note(self.tools.list());
        Ok(())
    }

    pub(super) fn attach(&mut self, path: &Path) -> anyhow::Result<()> {
        let file = Attachment::read(path)?;
        let n_byte = file.text.len();
        quote(&format!("({} goes with the next message: {n_byte} bytes)", file.name));
        self.files.push(file);
        Ok(())
    }

    pub(super) fn set(&mut self, setting: Option<Setting>) -> anyhow::Result<()> {
        if let Some(setting) = setting {
            let mut flags = self.flags.clone();
            setting.apply(&mut flags);
            text::sampling(&self.model.text, &flags.sampling)?;
            self.flags = flags;
        }
        let sampling = text::sampling(&self.model.text, &self.flags.sampling)?;
        let seed = self.flags.sampling.seed.map_or("another one each time".into(), |seed| seed.to_string());
        let max_tokens = self.flags.max_tokens.map_or("what the context has left".into(), |n| n.to_string());
        note(format_args!(
            "temperature {}, top_p {}, top_k {}, min_p {}, presence_penalty {}, frequency_penalty {}, \
             repetition_penalty {}, seed {seed}, max_tokens {max_tokens}",
            sampling.temperature,
            sampling.top_p,
            sampling.top_k,
            sampling.min_p,
            sampling.presence_penalty,
            sampling.frequency_penalty,
            sampling.repetition_penalty,
        ));
        Ok(())
    }

    pub(super) fn stats(&self) {
        let Totals { n_answer, n_generated, prefill, decode } = &self.totals;
        let speed = prefill.tok_s().map_or(String::new(), |speed| format!(" at {speed:.1} tok/s"));
        note(format_args!(
            "context: {} of {} tokens, {} messages\nprompts: {} tokens read{speed}\nanswers: {n_answer}, of {n_generated} tokens",
            self.model.pos(),
            self.model.n_ctx(),
            self.messages.len(),
            prefill.n_token,
        ));
        if 0 < decode.n_token {
            note(decode.describe());
        }
    }

    fn saved(&self) -> Saved {
        Saved::new(self.name.clone(), &self.messages, &self.flags, &self.tools)
    }

    pub(super) fn save(&self, path: &Path) -> anyhow::Result<()> {
        self.saved().write(path)?;
        note(format_args!("({} messages are in {})", self.messages.len(), path.display()));
        Ok(())
    }

    pub(super) fn load(&mut self, path: &Path) -> anyhow::Result<()> {
        let saved = Saved::read(path)?;
        self.take_up(saved).with_context(|| path.display().to_string())?;
        self.files.clear();
        Ok(())
    }

    /// Goes on with the last conversation of an earlier chat.
    pub(super) fn resume(&mut self) -> anyhow::Result<()> {
        match self.last.previous.clone() {
            Some(saved) => self.take_up(saved),
            None => {
                note("(there is no earlier conversation with this model)");
                Ok(())
            }
        }
    }

    fn take_up(&mut self, saved: Saved) -> anyhow::Result<()> {
        let restored = saved.restore(&self.flags, &self.tools);
        let (flags, tools) = restored.map_err(anyhow::Error::msg)?;
        text::sampling(&self.model.text, &flags.sampling)?;
        if saved.model != self.name {
            quote(&format!("note: this conversation was held with {}", saved.model));
        }
        note(format_args!("({} messages are here again)", saved.messages.len()));
        self.n_call += saved.messages.iter().map(|message| message.tool_calls.len()).sum::<usize>();
        (self.flags, self.tools, self.messages) = (flags, tools, saved.messages);
        Ok(())
    }
}

/// Why the shell tool is refused.
pub(super) const NO_SHELL: &str = "commands of the shell need a terminal, on which each is allowed or not";

/// The beginning of a message.
fn excerpt(message: &Message) -> String {
    let text = match &message.content {
        Some(Content::Text(text)) => text.split_whitespace().collect::<Vec<_>>().join(" "),
        _ => String::new(),
    };
    shortened(&text, N_EXCERPT)
}

fn shortened(text: &str, n_char: usize) -> String {
    match text.char_indices().nth(n_char) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}

/// What answers and calls of one turn need.
struct Turn<'a> {
    model: &'a mut Model,
    flags: &'a AnswerFlags,
    tools: &'a Toolbox,
    totals: &'a mut Totals,
    lines: &'a mut Lines,
    answering: Answering,
}

impl Peer for Turn<'_> {
    fn reply(&mut self, messages: &[Message]) -> anyhow::Result<Answer> {
        let system = self.flags.opening.system.as_deref().map(Message::system);
        let messages = system.into_iter().chain(messages.iter().cloned()).collect();
        let answer = self.model.reply(messages, self.tools.tools(), self.flags, &self.answering)?;
        answer.status(self.model.is_verbose, self.flags.timing);
        self.totals.n_answer += 1;
        self.totals.n_generated += answer.n_generated;
        self.totals.prefill = self.totals.prefill.plus(&answer.prefill.counts);
        self.totals.decode = self.totals.decode.plus(&answer.decode.counts);
        self.model.loaded.pause();
        Ok(answer)
    }

    fn call(&mut self, call: &ToolCall) -> anyhow::Result<Option<String>> {
        if self.answering.flow().is_break() {
            return Ok(None);
        }
        let shown = tools::describe(call);
        Ok(match self.tools.call(&call.function) {
            Way::Done(result) => {
                quote(&format!("[{shown} -> {}]", shortened(&result, N_RESULT)));
                Some(result)
            }
            Way::Ask => {
                quote(&format!("[the model calls {shown}]"));
                self.ask(&call.function)?
            }
            Way::Shell(command) => {
                quote(&format!("[the model wants to run]\n{command}"));
                self.shell(&command)?
            }
        })
    }
}

impl Turn<'_> {
    fn ask(&mut self, function: &FunctionCall) -> anyhow::Result<Option<String>> {
        let question = format!("result of {} (empty: an error)> ", function.name.escape_default());
        Ok(match self.lines.ask(&question)? {
            Reply::Stop => None,
            Reply::Text(text) if text.trim().is_empty() => Some(tools::error("the tool failed")),
            Reply::Text(text) => Some(text),
        })
    }

    fn shell(&mut self, command: &str) -> anyhow::Result<Option<String>> {
        if !self.lines.has_terminal() {
            return Ok(Some(tools::error(NO_SHELL)));
        }
        let yes = match self.lines.ask("run it? [y/N] ")? {
            Reply::Stop => return Ok(None),
            Reply::Text(text) => ["y", "yes"].contains(&text.trim().to_lowercase().as_str()),
        };
        if !yes {
            return Ok(Some(tools::error("the user did not allow this command")));
        }
        let result = tools::run_shell(command, &|| self.answering.flow());
        quote(&shortened(&result, N_RESULT));
        Ok(if self.answering.flow().is_break() { None } else { Some(result) })
    }
}
