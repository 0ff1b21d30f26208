//! Messages and tools of a chat request.

use generate::{Content, FunctionCall, Message, Tool, ToolCall, ToolChoice, placeholder};
use serde_json::{Value, json};

use crate::api::fields::{Fields, wrong};
use crate::api::skipped::Skipped;
use crate::error::ApiError;
use crate::limits::Limits;

/// Kinds of content that other models read.
const NOT_TEXT: [&str; 8] =
    ["image_url", "image", "input_image", "input_audio", "audio_url", "video_url", "file", "input_file"];

/// All messages. A placeholder stands for images and the like in the results of tools, which is told in `skipped`.
pub(crate) fn messages(
    fields: &Fields<'_>,
    limits: &Limits,
    skipped: &mut Skipped,
) -> Result<Vec<Message>, ApiError> {
    let Some(values) = fields.array("messages")? else {
        return Err(fields.error("messages", "is missing: an array of messages is needed"));
    };
    if values.is_empty() {
        return Err(fields.error("messages", "must not be empty"));
    }
    Limits::check("messages", values.len(), limits.n_message)?;
    values.iter().enumerate().map(|(i, value)| message(&format!("messages[{i}]"), value, skipped)).collect()
}

fn message(path: &str, value: &Value, skipped: &mut Skipped) -> Result<Message, ApiError> {
    let fields = Fields::at(path, value)?;
    let Some(role) = fields.str("role")? else { return Err(fields.error("role", "is missing")) };
    // The old name for the results of tools.
    let role = if role == "function" { "tool" } else { role };
    let content = match fields.value("content") {
        None => None,
        Some(Value::String(text)) => Some(Content::Text(text.clone())),
        Some(Value::Array(parts)) => {
            let replaced = (role == "tool").then_some(skipped);
            Some(Content::Parts(self::parts(&fields.path("content"), parts, replaced)?))
        }
        Some(other) => return Err(wrong(&fields.path("content"), "a string or an array of parts", other)),
    };
    let calls = fields.array("tool_calls")?.unwrap_or_default();
    let calls = calls.iter().enumerate().map(|(i, call)| tool_call(&format!("{path}.tool_calls[{i}]"), call));
    let reasoning =
        fields.str("reasoning_content")?.map_or_else(|| fields.str("reasoning"), |text| Ok(Some(text)))?;
    Ok(Message {
        role: role.to_owned(),
        content,
        reasoning_content: reasoning.map(str::to_owned),
        tool_calls: calls.collect::<Result<_, _>>()?,
        tool_call_id: fields.str("tool_call_id")?.map(str::to_owned),
        name: fields.str("name")?.map(str::to_owned),
    })
}

/// The parts of a content, as texts. `replaced`: tells what a placeholder stands for, which is an error without it.
fn parts(path: &str, parts: &[Value], mut replaced: Option<&mut Skipped>) -> Result<Vec<Value>, ApiError> {
    let check = |(i, part): (usize, &Value)| {
        let path = format!("{path}[{i}]");
        if let Value::String(text) = part {
            return Ok(json!({ "type": "text", "text": text }));
        }
        let kind = Fields::at(&path, part)?.str("type")?;
        match (kind, &mut replaced) {
            (Some(kind), Some(skipped)) if !kind.contains("text") => {
                skipped.push(&path, kind);
                Ok(json!({ "type": "text", "text": placeholder(kind) }))
            }
            (Some(kind), None) if NOT_TEXT.contains(&kind) => {
                let what =
                    format!("{kind} is not supported: images, sound and files cannot be read, only text");
                Err(ApiError::field(path, what))
            }
            _ => Ok(part.clone()),
        }
    };
    parts.iter().enumerate().map(check).collect()
}

fn tool_call(path: &str, value: &Value) -> Result<ToolCall, ApiError> {
    let fields = Fields::at(path, value)?;
    let function = fields.inner("function")?.unwrap_or_else(|| fields.clone());
    let Some(name) = function.str("name")? else { return Err(function.error("name", "is missing")) };
    let arguments = function.value("arguments").cloned().unwrap_or_default();
    Ok(ToolCall {
        id: fields.str("id")?.map(str::to_owned),
        function: FunctionCall { name: name.to_owned(), arguments },
    })
}

/// All tools.
pub(crate) fn tools(fields: &Fields<'_>, limits: &Limits) -> Result<Vec<Tool>, ApiError> {
    let values = fields.array("tools")?.unwrap_or_default();
    Limits::check("tools", values.len(), limits.n_tool)?;
    let tool = |(i, value): (usize, &Value)| {
        let path = format!("tools[{i}]");
        let fields = Fields::at(&path, value)?;
        match fields.str("type")? {
            None | Some("function") => {}
            Some(_) => {
                return Err(fields.error("type", "must be function: there are no other kinds of tools here"));
            }
        }
        let function = fields.inner("function")?.unwrap_or_else(|| fields.clone());
        function.str("description")?;
        function.bool("strict")?;
        if let Some(schema) = function.value("parameters")
            && !matches!(schema, Value::Object(_) | Value::Bool(_))
        {
            return Err(wrong(&function.path("parameters"), "a JSON schema", schema));
        }
        Tool::from_json(value).map_err(|error| ApiError::field(path, error))
    };
    values.iter().enumerate().map(tool).collect()
}

/// Which of them an answer calls.
pub(crate) fn tool_choice(fields: &Fields<'_>, tools: &[Tool]) -> Result<ToolChoice, ApiError> {
    let error = |what: String| fields.error("tool_choice", what);
    let choice = match fields.value("tool_choice") {
        None => ToolChoice::Auto,
        Some(Value::String(word)) => match word.as_str() {
            "auto" => ToolChoice::Auto,
            "none" => ToolChoice::None,
            "required" | "any" => ToolChoice::Required,
            _ => {
                return Err(error("must be auto, none, required, or an object that names a function".into()));
            }
        },
        Some(_) => {
            let choice = fields.inner("tool_choice")?.expect("it has a value");
            let function = choice.inner("function")?.unwrap_or_else(|| choice.clone());
            match function.str("name")? {
                Some(name) => ToolChoice::Named(name.to_owned()),
                None => return Err(error("names no function".into())),
            }
        }
    };
    match &choice {
        ToolChoice::Named(name) if tools.iter().all(|tool| tool.name != *name) => {
            Err(error(format!("names the function {name:?}, which is not among the tools")))
        }
        ToolChoice::Required if tools.is_empty() => {
            Err(error("asks for a call, but there are no tools".into()))
        }
        _ => Ok(choice),
    }
}
