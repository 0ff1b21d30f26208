//! A conversation in a file: JSON, with a mark that says whose it is.

use std::io::Write;
use std::path::Path;

use generate::Message;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::tools::Toolbox;
use crate::attach::read_bounded;
use crate::cachedir::CacheDir;
use crate::error::CliError;
use crate::flags::{AnswerFlags, OnOff, SamplingFlags};
use crate::outfile::OutFile;
use crate::toolfile;

const FORMAT: &str = "flash-moe chat";
const VERSION: u32 = 1;
const FILE_BYTES_MAX: u64 = 64 << 20;

/// What is kept.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Saved {
    format: String,
    version: u32,
    /// What it was held with.
    pub(super) model: String,
    #[serde(default)]
    settings: Settings,
    /// Declarations from files.
    #[serde(default)]
    tools: Vec<Value>,
    /// Calculator and clock.
    #[serde(default)]
    builtin_tools: bool,
    pub(super) messages: Vec<Message>,
}

/// Only what differs from the defaults.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
struct Settings {
    #[serde(skip_serializing_if = "Option::is_none")]
    system: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    think: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    think_budget: Option<usize>,
    #[serde(skip_serializing_if = "Option::is_none")]
    max_tokens: Option<usize>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    stop: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    temperature: Option<f32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    top_p: Option<f32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    top_k: Option<usize>,
    #[serde(skip_serializing_if = "Option::is_none")]
    min_p: Option<f32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    presence_penalty: Option<f32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    frequency_penalty: Option<f32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    repetition_penalty: Option<f32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    seed: Option<u64>,
}

/// The mark alone, to say what else a file is.
#[derive(Deserialize)]
struct Mark {
    format: String,
    version: u32,
}

impl Saved {
    pub(super) fn new(model: String, messages: &[Message], flags: &AnswerFlags, tools: &Toolbox) -> Self {
        Self {
            format: FORMAT.into(),
            version: VERSION,
            model,
            settings: Settings::of(flags),
            tools: tools.declared().iter().map(|tool| tool.declaration.clone()).collect(),
            builtin_tools: tools.has_builtin,
            messages: messages.to_vec(),
        }
    }

    /// Writes `path`, at once and completely.
    ///
    /// # Errors
    /// It cannot be written, or is something else than a saved chat: that is not replaced.
    pub(super) fn write(&self, path: &Path) -> Result<(), CliError> {
        if path.exists() {
            Self::read(path).map_err(|error| match error {
                CliError::Input { path, why } => {
                    CliError::Input { path, why: format!("{why}; it is not replaced, choose another name") }
                }
                other => other,
            })?;
        }
        self.json()
            .and_then(|json| {
                let mut file = OutFile::create(path)?;
                writeln!(file, "{json}")?;
                file.finish()
            })
            .map_err(|source| CliError::Io { path: path.to_owned(), action: "write", source })
    }

    fn json(&self) -> std::io::Result<String> {
        Ok(serde_json::to_string_pretty(self)?)
    }

    /// Reads `path`.
    ///
    /// # Errors
    /// It is not a saved chat, or one of a later version.
    pub(super) fn read(path: &Path) -> Result<Self, CliError> {
        let bytes = read_bounded(path, FILE_BYTES_MAX)?;
        Self::parse(&bytes).map_err(|why| CliError::Input { path: path.to_owned(), why })
    }

    fn parse(bytes: &[u8]) -> Result<Self, String> {
        let no_chat = || "is not a chat that /save wrote".to_owned();
        let mark: Mark = serde_json::from_slice(bytes).map_err(|_| no_chat())?;
        if mark.format != FORMAT {
            return Err(no_chat());
        }
        if mark.version != VERSION {
            return Err(format!("is a chat of version {}, this program reads {VERSION}", mark.version));
        }
        let saved: Self =
            serde_json::from_slice(bytes).map_err(|error| format!("is a damaged chat: {error}"))?;
        let odd =
            saved.messages.iter().position(|m| !["user", "assistant", "tool"].contains(&m.role.as_str()));
        match odd {
            Some(idx) => {
                Err(format!("is a damaged chat: message {idx} has the role {:?}", saved.messages[idx].role))
            }
            None => Ok(saved),
        }
    }

    /// Settings and tools for a chat that goes on with this one. What the shell tool may do is not in a file.
    ///
    /// # Errors
    /// A tool's declaration is wrong.
    pub(super) fn restore(
        &self,
        flags: &AnswerFlags,
        tools: &Toolbox,
    ) -> Result<(AnswerFlags, Toolbox), String> {
        let (mut flags, mut tools) = (flags.clone(), tools.clone());
        self.settings.apply(&mut flags);
        tools.has_builtin = self.builtin_tools;
        tools.declare(self.tools.iter().map(toolfile::tool).collect::<Result<_, _>>()?)?;
        Ok((flags, tools))
    }
}

/// The last conversation with a model, for the next chat.
pub(super) struct LastChat {
    cache: CacheDir,
    name: String,
    is_kept: bool,
    /// Of an earlier chat.
    pub(super) previous: Option<Saved>,
}

impl LastChat {
    /// Of the model with this fingerprint. `is_kept`: this chat is kept for the next.
    pub(super) fn open(cache: CacheDir, fingerprint: u64, is_kept: bool) -> Self {
        let name = format!("chats/{fingerprint:016x}.json");
        let previous = cache.read(&name).and_then(|bytes| match Saved::parse(&bytes) {
            Ok(saved) => Some(saved),
            Err(why) => {
                cache.ignore(&name, format_args!("it {why}"));
                None
            }
        });
        Self { cache, name, is_kept, previous }
    }

    /// Replaces it.
    pub(super) fn write(&self, saved: &Saved) {
        if let Some(json) = saved.json().ok().filter(|_| self.is_kept) {
            self.cache.write(&self.name, json.as_bytes());
        }
    }
}

impl Settings {
    fn of(flags: &AnswerFlags) -> Self {
        let sampling = &flags.sampling;
        Self {
            system: flags.opening.system.clone(),
            think: flags.opening.think.map(|think| think == OnOff::On),
            think_budget: flags.think_budget,
            max_tokens: flags.max_tokens,
            stop: flags.stop.clone(),
            temperature: sampling.temperature,
            top_p: sampling.top_p,
            top_k: sampling.top_k,
            min_p: sampling.min_p,
            presence_penalty: sampling.presence_penalty,
            frequency_penalty: sampling.frequency_penalty,
            repetition_penalty: sampling.repetition_penalty,
            seed: sampling.seed,
        }
    }

    fn apply(&self, flags: &mut AnswerFlags) {
        flags.opening.system.clone_from(&self.system);
        flags.opening.think = self.think.map(|think| if think { OnOff::On } else { OnOff::Off });
        flags.think_budget = self.think_budget;
        flags.max_tokens = self.max_tokens;
        flags.stop.clone_from(&self.stop);
        flags.sampling = SamplingFlags {
            seed: self.seed,
            temperature: self.temperature,
            top_p: self.top_p,
            top_k: self.top_k,
            min_p: self.min_p,
            presence_penalty: self.presence_penalty,
            frequency_penalty: self.frequency_penalty,
            repetition_penalty: self.repetition_penalty,
        };
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use clap::Parser;
    use generate::{FunctionCall, ToolCall};
    use serde_json::json;

    use super::*;
    use crate::flags::{Command, Flags};

    fn flags(args: &[&str]) -> AnswerFlags {
        match Flags::parse_from([&["flash-moe", "chat"], args].concat()).command {
            Command::Chat(flags) => flags.answer,
            other => panic!("{other:?}"),
        }
    }

    /// A conversation would come back changed: calls without results, other settings, or a shell that may run.
    #[test]
    fn a_saved_chat_comes_back() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a chat.json");
        let call = ToolCall {
            id: Some("call_0".into()),
            function: FunctionCall { name: "f".into(), arguments: json!("{\"b\": 1, \"a\": \"\\u0007é\"}") },
        };
        let messages = [
            Message::user("hello\n"),
            Message { role: "assistant".into(), tool_calls: vec![call], ..Message::default() },
            Message { tool_call_id: Some("call_0".into()), ..Message::tool("2") },
            Message { reasoning_content: Some("hm".into()), ..Message::assistant("Two.") },
        ];
        let mut tools = Toolbox::default();
        (tools.has_builtin, tools.has_shell) = (true, true);
        tools.declare(vec![toolfile::tool(&json!({ "name": "f" })).unwrap()]).unwrap();
        let args = "--think on --think-budget 9 --max-tokens 7 --stop END --temperature 0.3 --top-p 0.9 --top-k 5 \
                    --min-p 0.1 --presence-penalty 0.2 --frequency-penalty 0.4 --repetition-penalty 1.1 --seed 3 \
                    --system Short.";
        let given = flags(&args.split_whitespace().collect::<Vec<_>>());
        for _ in 0..2 {
            // The second time replaces the first.
            Saved::new("m".into(), &messages, &given, &tools).write(&path).unwrap();
        }
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
        let saved = Saved::read(&path).unwrap();
        assert_eq!((saved.model.as_str(), saved.messages.as_slice()), ("m", &messages[..]));
        let (restored, tools) = saved.restore(&flags(&[]), &Toolbox::default()).unwrap();
        assert_eq!(format!("{restored:?}"), format!("{given:?}"));
        assert!(tools.has_builtin && !tools.has_shell);
        assert_eq!(tools.declared()[0].name, "f");
    }

    /// Another file would be loaded as a chat, or be lost when a chat is saved over it.
    #[test]
    fn files_of_others_are_refused() {
        let chat = |version: u32, messages: Value| {
            json!({ "format": FORMAT, "version": version, "model": "m", "messages": messages }).to_string()
        };
        let cases = [
            ("not JSON".into(), "is not a chat"),
            ("{\"messages\": []}".into(), "is not a chat"),
            (chat(1, json!([])).replace("flash-moe", "other"), "is not a chat"),
            (chat(2, json!([])), "version 2"),
            (chat(1, json!("x")), "damaged"),
            (chat(1, json!([{ "role": "system", "content": "x" }])), "message 0 has the role \"system\""),
        ];
        let folder = tempfile::tempdir().unwrap();
        for (text, why) in cases {
            let path = folder.path().join("file");
            fs::write(&path, &text).unwrap();
            let error = Saved::read(&path).unwrap_err().to_string();
            assert!(error.contains(why), "{error}");
            let new = Saved::new("m".into(), &[], &flags(&[]), &Toolbox::default());
            let error = new.write(&path).unwrap_err().to_string();
            assert!(error.contains("not replaced"), "{error}");
            assert_eq!(fs::read_to_string(&path).unwrap(), text);
        }
    }
}
