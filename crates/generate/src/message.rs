//! The conversation as callers give it, in the form of the OpenAI API, and as templates want it.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use crate::error::GenerateError;

/// Parameter name under which tool-call arguments that are not a JSON object are kept, in one piece.
const RAW_ARGUMENTS: &str = "arguments";
/// Roles and part types are short words; anything else could smuggle control tokens past the guard.
const WORD_BYTES_MAX: usize = 64;

/// One message of a conversation.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(from = "AnyMessage")]
pub struct Message {
    /// `system` (or `developer`), `user`, `assistant` or `tool` (or `function`).
    pub role: String,
    /// The text; may be missing in an assistant message with tool calls.
    pub content: Option<Content>,
    /// The assistant's thinking, without tags.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reasoning_content: Option<String>,
    /// Calls that the assistant made.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub tool_calls: Vec<ToolCall>,
    /// Which call a tool message answers.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tool_call_id: Option<String>,
    /// Name of the speaker or tool, which some templates print.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
}

/// A message as clients write it: two names for thinking, of which some send both, and the call of older APIs.
#[derive(Deserialize)]
struct AnyMessage {
    role: String,
    content: Option<Content>,
    reasoning_content: Option<Value>,
    reasoning: Option<Value>,
    tool_calls: Option<Vec<ToolCall>>,
    function_call: Option<FunctionCall>,
    tool_call_id: Option<String>,
    name: Option<String>,
}

impl From<AnyMessage> for Message {
    fn from(any: AnyMessage) -> Self {
        // Other APIs have objects of these names, which hold no text.
        let texts = [&any.reasoning_content, &any.reasoning].map(|value| value.as_ref()?.as_str());
        let mut texts = texts.into_iter().flatten();
        let first = texts.next();
        let reasoning_content = first.filter(|text| !text.is_empty()).or(texts.next()).or(first);
        let reasoning_content = reasoning_content.map(str::to_owned);
        let mut tool_calls = any.tool_calls.unwrap_or_default();
        if let (Some(function), true) = (any.function_call, tool_calls.is_empty()) {
            tool_calls.push(ToolCall { id: None, function });
        }
        let AnyMessage { role, content, tool_call_id, name, .. } = any;
        Self { role, content, reasoning_content, tool_calls, tool_call_id, name }
    }
}

/// Text, whole or in parts.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(untagged, expecting = "content must be a text or a list of parts")]
pub enum Content {
    /// Plain text.
    Text(String),
    /// Parts `{"type": "text", "text": …}`. Other kinds (images) are refused, but in the results of tools become
    /// [`placeholder`]s.
    Parts(Vec<Value>),
}

/// A call of a tool.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(from = "AnyCall")]
pub struct ToolCall {
    /// The API's id for it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub id: Option<String>,
    /// What is called.
    pub function: FunctionCall,
}

/// Name and arguments of a call.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct FunctionCall {
    /// The tool's name.
    pub name: String,
    /// A JSON object, or (as the API has it) a string that contains one.
    #[serde(default)]
    pub arguments: Value,
}

/// `{"id", "type", "function": {"name", "arguments"}}`, or the inner object alone.
#[derive(Deserialize)]
#[serde(untagged, expecting = "a call must have a function with a name")]
enum AnyCall {
    Wrapped { id: Option<String>, function: FunctionCall },
    Bare(FunctionCall),
}

impl From<AnyCall> for ToolCall {
    fn from(call: AnyCall) -> Self {
        match call {
            AnyCall::Wrapped { id, function } => Self { id, function },
            AnyCall::Bare(function) => Self { id: None, function },
        }
    }
}

impl ToolCall {
    /// The same with arguments as an object, told in `warnings` if they are not one.
    pub(crate) fn with_object(&self, message_idx: usize, warnings: &mut Vec<String>) -> Self {
        let FunctionCall { name, arguments: given } = &self.function;
        let arguments = arguments(given).unwrap_or_else(|raw| {
            let what = format!("message {message_idx}: the arguments of the call to {name:?}");
            warnings.push(format!("{what} are not a JSON object; kept as one value"));
            json!({ RAW_ARGUMENTS: raw })
        });
        Self { id: self.id.clone(), function: FunctionCall { name: name.clone(), arguments } }
    }

    fn to_template(&self, message_idx: usize, warnings: &mut Vec<String>) -> Value {
        let Self { id, function } = self.with_object(message_idx, warnings);
        json!({ "id": id, "type": "function", "function": function })
    }
}

impl Message {
    /// A system message.
    pub fn system(text: impl Into<String>) -> Self {
        Self::of("system", text)
    }

    /// A user message.
    pub fn user(text: impl Into<String>) -> Self {
        Self::of("user", text)
    }

    /// An assistant message.
    pub fn assistant(text: impl Into<String>) -> Self {
        Self::of("assistant", text)
    }

    /// The result of a tool.
    pub fn tool(text: impl Into<String>) -> Self {
        Self::of("tool", text)
    }

    fn of(role: &str, text: impl Into<String>) -> Self {
        Self { role: role.into(), content: Some(Content::Text(text.into())), ..Self::default() }
    }

    /// The text, whole. What a tool's result has that is not text is told in `warnings`.
    ///
    /// # Errors
    /// A part is not text.
    pub(crate) fn text(
        &self,
        message_idx: usize,
        warnings: &mut Vec<String>,
    ) -> Result<String, GenerateError> {
        let is_result = matches!(self.role.as_str(), "tool" | "function");
        let mut part = |part| match (text_part(part), unseen_kind(part)) {
            (Err(_), Some(kind)) if is_result => {
                let what = format!("message {message_idx}: content of type {kind} in the result of a tool");
                warnings.push(format!("{what}, which this model cannot read"));
                Ok(placeholder(kind))
            }
            (text, _) => text,
        };
        match &self.content {
            None => Ok(String::new()),
            Some(Content::Text(text)) => Ok(text.clone()),
            Some(Content::Parts(parts)) => {
                let text = parts.iter().map(&mut part).collect::<Result<String, String>>();
                text.map_err(|why| GenerateError::Message { message_idx, why })
            }
        }
    }

    /// The message as templates want it: arguments as an object. Oddities that were smoothed over are told in
    /// `warnings`.
    pub(crate) fn to_template(
        &self,
        message_idx: usize,
        warnings: &mut Vec<String>,
    ) -> Result<Value, GenerateError> {
        let bad = |why: String| GenerateError::Message { message_idx, why };
        if !is_word(&self.role) {
            return Err(bad(format!("{:?} is not a role", self.role)));
        }
        let mut out = Map::new();
        out.insert("role".into(), self.role.clone().into());
        let content = match &self.content {
            None => Value::Null,
            Some(Content::Text(text)) => text.clone().into(),
            Some(Content::Parts(parts)) => {
                // Templates guess a part's kind from its keys, so others are not passed on.
                let parts = parts.iter().map(|part| Ok(json!({ "type": "text", "text": text_part(part)? })));
                parts.collect::<Result<Vec<_>, _>>().map_err(bad)?.into()
            }
        };
        out.insert("content".into(), content);
        let texts = [("reasoning_content", &self.reasoning_content), ("tool_call_id", &self.tool_call_id)];
        for (key, text) in texts.into_iter().chain([("name", &self.name)]) {
            if let Some(text) = text {
                out.insert(key.into(), text.clone().into());
            }
        }
        if !self.tool_calls.is_empty() {
            let calls = self.tool_calls.iter().map(|call| call.to_template(message_idx, warnings));
            out.insert("tool_calls".into(), calls.collect());
        }
        Ok(Value::Object(out))
    }
}

/// The text of a part. The names are those of the chat and the responses API.
fn text_part(part: &Value) -> Result<&str, String> {
    let kind = part.get("type").and_then(Value::as_str);
    match (kind, part.get("text").and_then(Value::as_str)) {
        (None | Some("text" | "input_text" | "output_text"), Some(text)) => Ok(text),
        (_, text) => Err(match (unseen_kind(part), text) {
            (Some(kind), None) if kind.contains("image") => {
                format!("images are not supported (content of type {kind}), only text")
            }
            (Some(kind), _) => format!("content of type {kind} is not supported, only text"),
            (None, _) => "a content part has no text".into(),
        }),
    }
}

/// The type of a part that is something else than text.
fn unseen_kind(part: &Value) -> Option<&str> {
    part.get("type").and_then(Value::as_str).filter(|kind| !kind.contains("text") && is_word(kind))
}

/// What stands in the result of a tool for content that is not text. An agent's session goes on with it: the image
/// that a tool has read would be in every later request.
pub fn placeholder(kind: &str) -> &'static str {
    let has = |words: &[&str]| words.iter().any(|word| kind.contains(word));
    if has(&["image", "screenshot"]) {
        "[an image, which this model cannot see]"
    } else if has(&["audio"]) {
        "[sound, which this model cannot hear]"
    } else if has(&["video"]) {
        "[a video, which this model cannot see]"
    } else if has(&["file", "document"]) {
        "[a file, which this model cannot read]"
    } else {
        "[content that this model cannot read]"
    }
}

/// Arguments as an object; the raw text or value if that is not what they are.
fn arguments(given: &Value) -> Result<Value, Value> {
    match given {
        Value::Object(_) => Ok(given.clone()),
        Value::Null => Ok(json!({})),
        Value::String(text) if text.trim().is_empty() => Ok(json!({})),
        Value::String(text) => match serde_json::from_str(text) {
            Ok(object @ Value::Object(_)) => Ok(object),
            _ => Err(given.clone()),
        },
        _ => Err(given.clone()),
    }
}

fn is_word(text: &str) -> bool {
    let word_byte = |b: u8| b.is_ascii_alphanumeric() || b == b'_' || b == b'-';
    (1..=WORD_BYTES_MAX).contains(&text.len()) && text.bytes().all(word_byte)
}
