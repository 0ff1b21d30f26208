//! What a typed line asks for: a message, or a command that begins with `/`.

use std::path::PathBuf;
use std::str::FromStr;

use crate::flags::{AnswerFlags, OnOff};

/// Commands, their arguments, and what they do: for help and completion.
pub(super) const COMMANDS: [(&str, &str, &str); 14] = [
    ("/help", "", "this list"),
    ("/quit", "", "leave (also /exit, Ctrl-D)"),
    ("/clear", "", "forget the conversation; settings, system message and tools stay"),
    ("/think", "on|off|auto|N", "let the model think: yes, no, as its template has it, at most N tokens"),
    ("/system", "TEXT|off", "what the model is told before the conversation"),
    ("/tools", "FILE|builtin|shell|off|list", "what the model may call"),
    ("/file", "PATH", "attach a text file to the next message"),
    ("/save", "FILE", "keep the conversation"),
    ("/load", "FILE", "go on with one that was kept"),
    ("/resume", "", "go on with the last conversation of an earlier chat with this model"),
    ("/retry", "", "another answer to the last message"),
    ("/undo", "", "forget the last message and its answer"),
    ("/set", "NAME VALUE|default", "change a setting, such as temperature 0.7; alone: list all"),
    ("/stats", "", "tokens, speed, cache, context"),
];

/// Keys, for help.
pub(super) const KEYS: &str = "\
Alt-Enter, or \\ at the end of a line  go on in a new line
\"\"\"     begins and ends a message of many lines
Ctrl-C  ends an answer (twice: leaves), or clears the line (twice on an empty one: leaves)
A message that begins with a blank is never a command.";

/// What to do next.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Input {
    Nothing,
    Message(String),
    Command(Command),
}

#[derive(Clone, Debug, PartialEq)]
pub(super) enum Command {
    Help,
    Quit,
    Clear,
    Think(Thinking),
    /// `None`: tell it.
    System(Option<String>),
    Tools(ToolsCommand),
    File(PathBuf),
    Save(PathBuf),
    Load(PathBuf),
    Resume,
    Retry,
    Undo,
    /// `None`: list all.
    Set(Option<Setting>),
    Stats,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Thinking {
    Auto,
    On,
    Off,
    AtMost(usize),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum ToolsCommand {
    Declare(PathBuf),
    BuiltIn,
    Shell,
    Off,
    List,
}

/// A setting and its new value; `None`: the default.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Setting {
    Temperature(Option<f32>),
    TopP(Option<f32>),
    TopK(Option<usize>),
    MinP(Option<f32>),
    PresencePenalty(Option<f32>),
    FrequencyPenalty(Option<f32>),
    RepetitionPenalty(Option<f32>),
    Seed(Option<u64>),
    MaxTokens(Option<usize>),
}

/// Names of all settings.
pub(super) const SETTINGS: [&str; 9] = [
    "temperature",
    "top_p",
    "top_k",
    "min_p",
    "presence_penalty",
    "frequency_penalty",
    "repetition_penalty",
    "seed",
    "max_tokens",
];

/// Reads what was typed.
///
/// # Errors
/// A command that there is not, or one with wrong arguments.
pub(super) fn parse(typed: &str) -> Result<Input, String> {
    if typed.trim().is_empty() {
        return Ok(Input::Nothing);
    }
    if let Some(block) = block(typed) {
        return Ok(if block.trim().is_empty() { Input::Nothing } else { Input::Message(block.to_owned()) });
    }
    let (name, argument) = typed.split_once(char::is_whitespace).unwrap_or((typed, ""));
    // A path is not a command.
    let is_command = name.strip_prefix('/').is_some_and(|name| !name.contains('/'));
    if !is_command {
        return Ok(Input::Message(typed.trim().to_owned()));
    }
    command(name, argument.trim()).map(Input::Command)
}

/// The text between `"""` and `"""`; the end may be missing.
fn block(typed: &str) -> Option<&str> {
    let text = typed.trim().strip_prefix(QUOTES)?;
    let text = text.strip_suffix(QUOTES).unwrap_or(text);
    let text = text.strip_prefix('\n').unwrap_or(text);
    Some(text.strip_suffix('\n').unwrap_or(text))
}

const QUOTES: &str = "\"\"\"";

/// Does a message of many lines go on after this?
pub(super) fn is_open(typed: &str) -> bool {
    typed.trim().strip_prefix(QUOTES).is_some_and(|rest| !rest.ends_with(QUOTES))
}

fn command(name: &str, argument: &str) -> Result<Command, String> {
    let path = || match argument {
        "" => Err(usage(name)),
        _ => Ok(path(argument)),
    };
    let command = match name {
        "/think" => Command::Think(thinking(argument).ok_or_else(|| usage(name))?),
        "/system" => Command::System(Some(argument.to_owned()).filter(|text| !text.is_empty())),
        "/tools" => Command::Tools(match argument {
            "" | "list" => ToolsCommand::List,
            "builtin" => ToolsCommand::BuiltIn,
            "shell" => ToolsCommand::Shell,
            "off" => ToolsCommand::Off,
            _ => ToolsCommand::Declare(path()?),
        }),
        "/file" => Command::File(path()?),
        "/save" => Command::Save(path()?),
        "/load" => Command::Load(path()?),
        "/set" => Command::Set(setting(argument)?),
        _ => {
            let command = match name {
                "/help" => Command::Help,
                "/quit" | "/exit" => Command::Quit,
                "/clear" => Command::Clear,
                "/resume" => Command::Resume,
                "/retry" => Command::Retry,
                "/undo" => Command::Undo,
                "/stats" => Command::Stats,
                _ => return Err(format!("there is no {name}; /help lists what there is")),
            };
            if !argument.is_empty() {
                return Err(usage(name));
            }
            command
        }
    };
    Ok(command)
}

fn usage(name: &str) -> String {
    let arguments =
        COMMANDS.iter().find(|(command, ..)| *command == name).map_or("", |(_, arguments, _)| arguments);
    format!("usage: {}", format!("{name} {arguments}").trim_end())
}

/// A path as completion writes it: in quotes, or with blanks behind `\` (not on Windows, where that parts folders).
fn path(argument: &str) -> PathBuf {
    let quoted = argument.len() > 1 && (argument.starts_with('"') && argument.ends_with('"'));
    let text = match argument {
        _ if quoted => argument[1..argument.len() - 1].to_owned(),
        _ if cfg!(windows) => argument.to_owned(),
        _ => argument.replace("\\ ", " "),
    };
    match (text.strip_prefix("~/"), std::env::home_dir()) {
        (Some(rest), Some(home)) if !quoted => home.join(rest),
        _ => text.into(),
    }
}

fn thinking(argument: &str) -> Option<Thinking> {
    Some(match argument {
        "on" => Thinking::On,
        "off" => Thinking::Off,
        "auto" => Thinking::Auto,
        _ => Thinking::AtMost(argument.parse().ok().filter(|&n| 0 < n)?),
    })
}

fn setting(argument: &str) -> Result<Option<Setting>, String> {
    if argument.is_empty() {
        return Ok(None);
    }
    let (name, value) = argument.split_once([' ', '=']).unwrap_or((argument, ""));
    let value = value.trim();
    let setting = match name.replace('-', "_").as_str() {
        "temperature" => Setting::Temperature(number(name, value)?),
        "top_p" => Setting::TopP(number(name, value)?),
        "top_k" => Setting::TopK(number(name, value)?),
        "min_p" => Setting::MinP(number(name, value)?),
        "presence_penalty" => Setting::PresencePenalty(number(name, value)?),
        "frequency_penalty" => Setting::FrequencyPenalty(number(name, value)?),
        "repetition_penalty" => Setting::RepetitionPenalty(number(name, value)?),
        "seed" => Setting::Seed(number(name, value)?),
        "max_tokens" => match number(name, value)? {
            Some(0) => return Err("max_tokens must be at least 1".into()),
            n => Setting::MaxTokens(n),
        },
        _ => return Err(format!("there is no setting {name}; there are {}", SETTINGS.join(", "))),
    };
    Ok(Some(setting))
}

fn number<T: FromStr>(name: &str, value: &str) -> Result<Option<T>, String> {
    if value == "default" {
        return Ok(None);
    }
    value
        .parse()
        .map(Some)
        .map_err(|_| format!("{value:?} is no value for {name}: give a number, or default"))
}

impl Setting {
    /// Into the flags of later answers.
    pub(super) fn apply(self, flags: &mut AnswerFlags) {
        let sampling = &mut flags.sampling;
        match self {
            Self::Temperature(x) => sampling.temperature = x,
            Self::TopP(x) => sampling.top_p = x,
            Self::TopK(n) => sampling.top_k = n,
            Self::MinP(x) => sampling.min_p = x,
            Self::PresencePenalty(x) => sampling.presence_penalty = x,
            Self::FrequencyPenalty(x) => sampling.frequency_penalty = x,
            Self::RepetitionPenalty(x) => sampling.repetition_penalty = x,
            Self::Seed(n) => sampling.seed = n,
            Self::MaxTokens(n) => flags.max_tokens = n,
        }
    }
}

impl Thinking {
    /// Into the flags of later answers.
    pub(super) fn apply(self, flags: &mut AnswerFlags) {
        (flags.opening.think, flags.think_budget) = match self {
            Self::Auto => (None, None),
            Self::On => (Some(OnOff::On), None),
            Self::Off => (Some(OnOff::Off), None),
            Self::AtMost(n) => (Some(OnOff::On), Some(n)),
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A message would be taken for a command, or a command reach the model.
    #[test]
    fn commands_and_messages_are_told_apart() {
        let message = |text: &str| Ok(Input::Message(text.into()));
        let command = |command| Ok(Input::Command(command));
        let err = |why: &str| Err(why.to_owned());
        let cases = [
            ("", Ok(Input::Nothing)),
            (" \n ", Ok(Input::Nothing)),
            (" hello \n", message("hello")),
            (" /quit", message("/quit")),
            ("/usr/bin/x is missing", message("/usr/bin/x is missing")),
            ("\"\"\"\n/quit\n  x\n\"\"\"", message("/quit\n  x")),
            ("\"\"\"one\"\"\"", message("one")),
            ("\"\"\"\nno end", message("no end")),
            ("\"\"\"\"\"\"", Ok(Input::Nothing)),
            ("/help", command(Command::Help)),
            ("/quit ", command(Command::Quit)),
            ("/exit", command(Command::Quit)),
            ("/clear all", err("usage: /clear")),
            ("/resume", command(Command::Resume)),
            ("/nonsense", err("there is no /nonsense; /help lists what there is")),
            ("/nonsense with words", err("there is no /nonsense; /help lists what there is")),
            ("/think off", command(Command::Think(Thinking::Off))),
            ("/think 200", command(Command::Think(Thinking::AtMost(200)))),
            ("/think 0", err("usage: /think on|off|auto|N")),
            ("/think", err("usage: /think on|off|auto|N")),
            ("/system", command(Command::System(None))),
            ("/system Be brief.\nAlways.", command(Command::System(Some("Be brief.\nAlways.".into())))),
            ("/tools", command(Command::Tools(ToolsCommand::List))),
            ("/tools builtin", command(Command::Tools(ToolsCommand::BuiltIn))),
            ("/tools my.json", command(Command::Tools(ToolsCommand::Declare("my.json".into())))),
            ("/file \"a b.txt\"", command(Command::File("a b.txt".into()))),
            ("/save", err("usage: /save FILE")),
            ("/set", command(Command::Set(None))),
            ("/set temperature 0.7", command(Command::Set(Some(Setting::Temperature(Some(0.7)))))),
            ("/set top-k=20", command(Command::Set(Some(Setting::TopK(Some(20)))))),
            ("/set seed default", command(Command::Set(Some(Setting::Seed(None))))),
            ("/set top_k 1.5", err("\"1.5\" is no value for top_k: give a number, or default")),
            ("/set max_tokens 0", err("max_tokens must be at least 1")),
            ("/set heat 1", err(&format!("there is no setting heat; there are {}", SETTINGS.join(", ")))),
        ];
        for (typed, expected) in cases {
            assert_eq!(parse(typed), expected, "{typed:?}");
        }
        let closed = ["x", "\"\"\"x\"\"\"", "\"\"\"\nx\n\"\"\"\n", "say \"\"\""];
        assert!(closed.into_iter().all(|typed| !is_open(typed)));
        assert!(["\"\"\"", "\"\"\"x", " \"\"\"x\n"].into_iter().all(is_open));
    }

    /// A command would be missing in help and completion, or help name one that there is not; a setting too.
    #[test]
    fn the_lists_are_complete() {
        for (name, arguments, _) in COMMANDS {
            for argument in ["", "x", "on", "seed 1"] {
                let unknown =
                    parse(&format!("{name} {argument}")).is_err_and(|why| why.contains("there is no /"));
                assert!(!unknown, "{name} {arguments}");
            }
        }
        assert!(SETTINGS.iter().all(|name| parse(&format!("/set {name} 1")).is_ok()));
    }
}
