//! What is asked of one answer, whatever API it came through, and what it becomes.

use std::sync::Arc;

use serde_json::{Map, Value};

use crate::constraint::Constraint;
use crate::message::Message;
use crate::template::Prompt;
use crate::tool::{CallFormat, Tool, ToolChoice};

/// A conversation and what its next answer must be like.
#[derive(Clone, Debug, Default)]
pub struct ChatRequest {
    /// The conversation so far. If the last message is the assistant's, the answer continues it.
    pub messages: Vec<Message>,
    /// Tools that the model knows of.
    pub tools: Vec<Tool>,
    /// Which of them it calls.
    pub tool_choice: ToolChoice,
    /// At most one call an answer.
    pub single_call: bool,
    /// Calls that the model may make need not fit their schemas, unless a tool is strict. Without this they are
    /// held to them as far as a grammar can be made of them.
    pub free_calls: bool,
    /// Form of the answer's text.
    pub response: ResponseFormat,
    /// Thinking on or off; `None` leaves it to the template.
    pub thinking: Option<bool>,
    /// More variables for the template.
    pub template_vars: Map<String, Value>,
}

/// What the answer's text must be. Thinking is always free.
#[derive(Clone, Debug, Default, PartialEq)]
pub enum ResponseFormat {
    /// Anything.
    #[default]
    Text,
    /// A JSON object.
    JsonObject,
    /// JSON that this schema accepts.
    JsonSchema(Value),
    /// What the regular expression matches.
    Regex(String),
    /// What the Lark grammar accepts.
    Lark(String),
}

/// What an answer is generated from.
#[derive(Clone, Debug)]
pub struct Prepared {
    /// The prompt.
    pub prompt: Prompt,
    /// Leading tokens of the prompt that later prompts of the same conversation will have too: all but the opening of
    /// the answer. 0: unknown.
    pub n_settled: usize,
    /// How the answer's text is read.
    pub output: OutputSpec,
    /// What the answer is held to, once thinking is over.
    pub constraint: Option<Constraint>,
}

/// How an answer's text is read.
#[derive(Clone, Debug, Default)]
pub struct OutputSpec {
    /// No chat format: all text is answer.
    pub raw: bool,
    /// The prompt ends inside an opened `<think>`.
    pub thinking_open: bool,
    /// The answer continues a text that has begun: its first white space counts, and no thinking is looked for.
    pub continues: bool,
    /// Tools that may be called; calls of others stay text. Empty: no calls are looked for.
    pub tools: Arc<[Tool]>,
    /// How the model writes calls.
    pub call_format: CallFormat,
}
