//! `chat`: a conversation in the terminal.

mod command;
mod conversation;
mod lines;
mod model;
mod rounds;
mod saved;
mod tools;

use store::Store;

use self::command::{COMMANDS, Command, Input, KEYS};
use self::conversation::{Conversation, NO_SHELL};
use self::lines::Lines;
use self::model::Model;
use self::saved::LastChat;
use self::tools::Toolbox;
use crate::attach::Attachment;
use crate::cachedir::CacheDir;
use crate::error::CliError;
use crate::flags::{AnswerFlags, ChatFlags};
use crate::load::{Loaded, load_warm};
use crate::output::{note, quote};
use crate::plan::Work;
use crate::prefixes::Prefixes;
use crate::{hint, target, text, toolfile};

pub(crate) fn chat(flags: ChatFlags) -> anyhow::Result<()> {
    // Wrong values are refused before anything is loaded.
    let mut lines = Lines::open()?;
    if flags.shell && !lines.has_terminal() {
        return Err(CliError::Usage(NO_SHELL.into()).into());
    }
    let tools = toolbox(&flags)?;
    let files: Result<Vec<_>, _> =
        flags.answer.opening.file.iter().map(|path| Attachment::read(path)).collect();
    let files = files?;
    let store = target::open(flags.model.as_deref())?;
    let text_model = text::load(&store)?.check_template()?;
    text::sampling(&text_model, &flags.answer.sampling)?;
    let work =
        Work { n_ctx: None, n_feed: None, keeps_prefixes: !flags.prefix.no_prefix_cache, n_session: 1 };
    let loaded = load_warm(&store, &flags.engine, work)?;
    if flags.answer.timing {
        kernels::Backend::measure(loaded.engine.backend());
    }
    greet(&store, &loaded, &flags.answer);
    let is_verbose = flags.engine.verbose;
    let prefixes = Prefixes::open(&flags.prefix, &store, &loaded, is_verbose);
    let model = Model::new(loaded, text_model, prefixes, is_verbose);
    let last = LastChat::open(CacheDir::open(is_verbose), store.fingerprint(), !flags.prefix.no_prefix_cache);
    let mut conversation = Conversation::new(model, store.location(), flags.answer, tools, files, last);
    if flags.resume {
        tell(conversation.resume());
    }
    while let Some(typed) = lines.next()? {
        match command::parse(&typed) {
            Ok(Input::Nothing) => {}
            Ok(Input::Message(message)) => conversation.say(&message, &mut lines)?,
            Ok(Input::Command(Command::Quit)) => break,
            Ok(Input::Command(command)) => obey(command, &mut conversation, &mut lines)?,
            Err(why) => quote(&why),
        }
    }
    conversation.model.finish();
    lines.save();
    Ok(())
}

fn obey(command: Command, conversation: &mut Conversation, lines: &mut Lines) -> anyhow::Result<()> {
    match command {
        Command::Retry => return conversation.retry(lines),
        Command::Help => help(),
        Command::Clear => conversation.clear(),
        Command::Undo => conversation.undo(),
        Command::Stats => conversation.stats(),
        Command::Think(thinking) => conversation.think(thinking),
        Command::System(text) => conversation.system(text),
        Command::Tools(command) => tell(conversation.change_tools(&command, lines)),
        Command::File(path) => tell(conversation.attach(&path)),
        Command::Save(path) => tell(conversation.save(&path)),
        Command::Load(path) => tell(conversation.load(&path)),
        Command::Resume => tell(conversation.resume()),
        Command::Set(setting) => tell(conversation.set(setting)),
        Command::Quit => {}
    }
    Ok(())
}

/// What goes wrong with a command is said, and the chat goes on.
fn tell(done: anyhow::Result<()>) {
    if let Err(error) = done {
        hint::print(&error);
    }
}

fn toolbox(flags: &ChatFlags) -> anyhow::Result<Toolbox> {
    let mut tools = Toolbox::default();
    tools.has_shell = flags.shell;
    if let Some(path) = &flags.answer.opening.tools {
        let declared = toolfile::tools(path)?;
        tools.declare(declared).map_err(|why| CliError::Input { path: path.clone(), why })?;
    }
    Ok(tools)
}

fn help() {
    for (name, arguments, what) in COMMANDS {
        note(format_args!("{:<38} {what}", format!("{name} {arguments}")));
    }
    note(KEYS);
}

fn greet(store: &Store, loaded: &Loaded, flags: &AnswerFlags) {
    let name = store.location();
    let backend = kernels::Backend::describe(loaded.engine.backend());
    note(format_args!("{name} on {backend}. /help lists commands, Ctrl-D leaves."));
    if !flags.opening.file.is_empty() {
        note(format_args!("({} files go with the first message)", flags.opening.file.len()));
    }
}
