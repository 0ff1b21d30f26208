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
pub struct Message {
    /// `system`, `user`, `assistant` or `tool`.
    pub role: String,
    /// The text; may be missing in an assistant message with tool calls.
    #[serde(default)]
    pub content: Option<Content>,
    /// The assistant's thinking, without tags.
    #[serde(default, alias = "reasoning", skip_serializing_if = "Option::is_none")]
    pub reasoning_content: Option<String>,
    /// Calls that the assistant made.
    #[serde(default, deserialize_with = "null_as_default", skip_serializing_if = "Vec::is_empty")]
    pub tool_calls: Vec<ToolCall>,
    /// Which call a tool message answers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tool_call_id: Option<String>,
    /// Name of the speaker or tool, which some templates print.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
}

/// Text, whole or in parts.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Content {
    /// Plain text.
    Text(String),
    /// Parts `{"type": "text", "text": …}`. Other kinds (images) are refused.
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
#[serde(untagged)]
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

fn null_as_default<'de, D, T>(deserializer: D) -> Result<T, D::Error>
where
    D: serde::Deserializer<'de>,
    T: Default + Deserialize<'de>,
{
    Ok(Option::deserialize(deserializer)?.unwrap_or_default())
}

impl ToolCall {
    fn to_template(&self, message_idx: usize, warnings: &mut Vec<String>) -> Value {
        let FunctionCall { name, arguments: given } = &self.function;
        let arguments = arguments(given).unwrap_or_else(|raw| {
            let what = format!("message {message_idx}: the arguments of the call to {name:?}");
            warnings.push(format!("{what} are not a JSON object; kept as one value"));
            json!({ RAW_ARGUMENTS: raw })
        });
        json!({ "id": self.id, "type": "function", "function": { "name": name, "arguments": arguments } })
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
                parts.iter().map(|p| text_part(p).map_err(bad)).collect::<Result<Vec<_>, _>>()?.into()
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

/// A text part, reduced to what it must have. Templates guess a part's kind from its keys, so others are not
/// passed on.
fn text_part(part: &Value) -> Result<Value, String> {
    match (part.get("type").and_then(Value::as_str), part.get("text").and_then(Value::as_str)) {
        (None | Some("text"), Some(text)) => Ok(json!({ "type": "text", "text": text })),
        (Some(kind), _) if kind != "text" && is_word(kind) => {
            Err(format!("content of type {kind} is not supported, only text"))
        }
        _ => Err("a content part has no text".into()),
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
