//! What a request of the Responses API asks for.
//!
//! Nothing is stored: a request brings the whole conversation. Kinds of items and tools that this server does not know
//! are left out, with a line in the log; what would need something stored is refused.

use generate::{
    ChatRequest, Content, FunctionCall, Message, ResponseFormat, SamplingOverrides, Tool, ToolCall,
    ToolChoice, placeholder,
};
use serde_json::{Map, Value, json};

use crate::api::answer::Wishes;
use crate::api::fields::{Fields, wrong};
use crate::api::openai::cache_hint;
use crate::api::responses::events::{REASONING_PREFIX, ResponseSettings};
use crate::api::skipped::Skipped;
use crate::api::thinking::Thinking;
use crate::app::ServeOptions;
use crate::error::ApiError;
use crate::limits::Limits;

/// Fields that need something stored, or that would change the answer.
const REFUSED: [(&str, &str); 4] = [
    (
        "previous_response_id",
        "is not supported: this server stores nothing, send the whole conversation in input",
    ),
    ("conversation", "is not supported: this server stores nothing, send the whole conversation in input"),
    ("prompt", "is not supported: this server has no stored prompts, send instructions and input"),
    ("background", "is not supported: this server stores nothing, so the answer could not be fetched"),
];
/// Content that the model cannot read.
const UNREADABLE: [&str; 4] = ["input_image", "input_file", "input_audio", "computer_screenshot"];
/// The field of what a tool returned. An agent sends it with every later request, so a placeholder stands there for
/// what the model cannot read.
const RESULT: &str = "output";
/// Between parts of text that make up one message.
const BETWEEN_PARTS: &str = "\n\n";

/// A request, read.
#[derive(Debug)]
pub(crate) struct Asked {
    /// The conversation.
    pub(crate) chat: ChatRequest,
    /// How to answer.
    pub(crate) wishes: Wishes,
    /// What is left out.
    pub(crate) skipped: Skipped,
    /// What the answer repeats of the request.
    pub(crate) settings: ResponseSettings,
}

/// A function of the request, and what the model knows it as.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Function {
    /// What the model calls.
    pub(crate) full_name: String,
    /// The group that it is in.
    pub(crate) namespace: Option<String>,
    /// Its name there.
    pub(crate) name: String,
}

/// Reads a request.
pub(crate) fn read(body: &Map<String, Value>, options: &ServeOptions) -> Result<Asked, ApiError> {
    let (fields, limits) = (Fields::of(body), &options.limits);
    for (name, what) in REFUSED {
        if fields.value(name).is_some_and(|value| *value != Value::Bool(false)) {
            return Err(fields.error(name, what));
        }
    }
    let wants_encrypted = read_include(&fields)?;
    let mut skipped = Skipped::default();
    let mut messages = Vec::new();
    if let Some(instructions) = fields.str("instructions")? {
        messages.push(Message::system(instructions));
    }
    read_input(&fields, limits, &mut messages, &mut skipped)?;
    let mut tools = Tools::read(&fields, limits, &mut skipped)?;
    let tool_choice = tools.choice(&fields, limits)?;
    let response = response_format(&fields, limits)?;
    let parallel = fields.bool("parallel_tool_calls")?;
    let reasoning = fields.inner("reasoning")?;
    let wants_summary = reasoning.as_ref().is_some_and(|reasoning| {
        reasoning.value("summary").or_else(|| reasoning.value("generate_summary")).is_some()
    });
    let sampling = SamplingOverrides {
        temperature: fields.f32("temperature")?,
        top_p: fields.f32("top_p")?,
        ..SamplingOverrides::default()
    };
    let max_tokens = fields.count("max_output_tokens")?;
    if max_tokens == Some(0) {
        return Err(fields.error("max_output_tokens", "must be at least 1"));
    }
    if let Some(metadata) = fields.object("metadata")?
        && metadata.values().any(|value| !value.is_string())
    {
        return Err(fields.error("metadata", "its values must be strings"));
    }
    let settings = ResponseSettings::new(body, tools.functions, wants_summary, wants_encrypted);
    let chat = ChatRequest {
        messages,
        tools: tools.tools,
        tool_choice,
        single_call: parallel == Some(false),
        free_calls: fields.bool("constrain_tool_calls")? == Some(false),
        response,
        ..ChatRequest::default()
    };
    let thinking = Thinking::read(&fields, options.thinking)?;
    let hint = cache_hint(&fields)?;
    let close_at_limit = fields.bool("close_at_limit")?.unwrap_or(false);
    let wishes = Wishes { sampling, max_tokens, thinking, close_at_limit, hint, ..Wishes::default() };
    Ok(Asked { chat, wishes, skipped, settings })
}

/// Whether thinking is wanted in a form that clients hand back.
fn read_include(fields: &Fields<'_>) -> Result<bool, ApiError> {
    let logprobs = "is not supported here: log probabilities are told by /v1/chat/completions";
    if fields.count("top_logprobs")?.is_some_and(|n| 0 < n) {
        return Err(fields.error("top_logprobs", logprobs));
    }
    let include = fields.array("include")?.unwrap_or_default();
    if include.iter().any(|value| value == "message.output_text.logprobs") {
        return Err(fields.error("include", logprobs));
    }
    Ok(include.iter().any(|value| value == "reasoning.encrypted_content"))
}

fn read_input(
    fields: &Fields<'_>,
    limits: &Limits,
    messages: &mut Vec<Message>,
    skipped: &mut Skipped,
) -> Result<(), ApiError> {
    match fields.value("input") {
        None => Err(fields.error("input", "is missing")),
        Some(Value::String(text)) => {
            messages.push(Message::user(text));
            Ok(())
        }
        Some(Value::Array(items)) if items.is_empty() => Err(fields.error("input", "must not be empty")),
        Some(Value::Array(items)) => {
            Limits::check("input", items.len(), limits.n_message)?;
            let mut turns = Turns { messages, open: None };
            for (i, item) in items.iter().enumerate() {
                turns.push(&format!("input[{i}]"), item, skipped)?;
            }
            turns.close();
            if turns.messages.is_empty() {
                return Err(fields.error("input", "says nothing: a message, a call or a result is needed"));
            }
            Ok(())
        }
        Some(other) => Err(wrong("input", "a string or an array of items", other)),
    }
}

/// Items to messages: thinking, text and calls that follow each other are one message of the assistant.
struct Turns<'m> {
    messages: &'m mut Vec<Message>,
    open: Option<Message>,
}

impl Turns<'_> {
    fn close(&mut self) {
        // Thinking that led to nothing is nothing.
        let said = |message: &Message| message.content.is_some() || !message.tool_calls.is_empty();
        self.messages.extend(self.open.take().filter(said));
    }

    fn assistant(&mut self) -> &mut Message {
        self.open.get_or_insert_with(|| Message { role: "assistant".into(), ..Message::default() })
    }

    fn push(&mut self, path: &str, item: &Value, skipped: &mut Skipped) -> Result<(), ApiError> {
        let fields = Fields::at(path, item)?;
        match fields.str("type")? {
            None | Some("message") => self.push_message(&fields, skipped),
            Some("reasoning") => {
                if self.open.as_ref().is_some_and(|m| m.content.is_some() || !m.tool_calls.is_empty()) {
                    self.close();
                }
                let text = reasoning_text(&fields)?;
                let open = self.assistant().reasoning_content.get_or_insert_default();
                *open += &text;
                Ok(())
            }
            Some("function_call") => {
                let name = required(&fields, "name")?;
                let namespace = fields.str("namespace")?;
                let function = FunctionCall {
                    name: full_name(namespace, name),
                    arguments: fields.value("arguments").cloned().unwrap_or_default(),
                };
                let id = fields.str("call_id")?.map(str::to_owned);
                self.assistant().tool_calls.push(ToolCall { id, function });
                Ok(())
            }
            Some("function_call_output") => {
                self.close();
                let text = text(&fields, RESULT, skipped)?;
                let tool_call_id = fields.str("call_id")?.map(str::to_owned);
                self.messages.push(Message { tool_call_id, ..Message::tool(text) });
                Ok(())
            }
            Some("item_reference") => {
                Err(ApiError::field(path, "this server stores nothing, send the item itself"))
            }
            Some(kind) => {
                skipped.push(path, kind);
                Ok(())
            }
        }
    }

    fn push_message(&mut self, fields: &Fields<'_>, skipped: &mut Skipped) -> Result<(), ApiError> {
        let role = required(fields, "role")?;
        match role {
            "assistant" => {
                let text = text(fields, "content", skipped)?;
                if self.open.as_ref().is_some_and(|m| m.content.is_some() || !m.tool_calls.is_empty()) {
                    self.close();
                }
                self.assistant().content = Some(Content::Text(text));
            }
            "user" | "system" | "developer" => {
                self.close();
                let text = text(fields, "content", skipped)?;
                self.messages.push(Message { role: role.into(), ..Message::user(text) });
            }
            _ => return Err(fields.error("role", "must be user, assistant, system or developer")),
        }
        Ok(())
    }
}

fn required<'a>(fields: &Fields<'a>, name: &str) -> Result<&'a str, ApiError> {
    fields.str(name)?.ok_or_else(|| fields.error(name, "is missing"))
}

/// A text, whole or in parts.
fn text(fields: &Fields<'_>, name: &str, skipped: &mut Skipped) -> Result<String, ApiError> {
    let path = fields.path(name);
    match fields.value(name) {
        None => Ok(String::new()),
        Some(Value::String(text)) => Ok(text.clone()),
        Some(Value::Array(parts)) => {
            let (mut texts, mut is_ours) = (Vec::new(), false);
            for (i, part) in parts.iter().enumerate() {
                let path = format!("{path}[{i}]");
                let part = Fields::at(&path, part)?;
                match part.str("type")? {
                    Some("output_text") => {
                        is_ours = true;
                        texts.push(required(&part, "text")?);
                    }
                    Some("input_text" | "text") | None => texts.push(required(&part, "text")?),
                    Some("refusal") => texts.push(required(&part, "refusal")?),
                    Some(kind) if UNREADABLE.contains(&kind) && name == RESULT => {
                        skipped.push(&path, kind);
                        texts.push(placeholder(kind));
                    }
                    Some(kind) if UNREADABLE.contains(&kind) => {
                        let what = format!(
                            "{kind} is not supported: images, sound and files cannot be read, only text"
                        );
                        return Err(ApiError::field(path, what));
                    }
                    Some(kind) => skipped.push(&path, kind),
                }
            }
            // The assistant's own text is as it was.
            Ok(texts.join(if is_ours { "" } else { BETWEEN_PARTS }))
        }
        Some(other) => Err(wrong(&path, "a string or an array of parts", other)),
    }
}

/// Thinking that comes back: as content, as its summary, or in the form that only we can read.
fn reasoning_text(fields: &Fields<'_>) -> Result<String, ApiError> {
    let mut texts = Vec::new();
    for name in ["content", "summary"] {
        for part in fields.array(name)?.unwrap_or_default() {
            texts.extend(part.get("text").and_then(Value::as_str));
        }
        if !texts.is_empty() {
            return Ok(texts.join(BETWEEN_PARTS));
        }
    }
    let hidden = fields.str("encrypted_content")?.and_then(|text| text.strip_prefix(REASONING_PREFIX));
    Ok(hidden.unwrap_or_default().to_owned())
}

/// What the model knows a function as that is in a group.
fn full_name(namespace: Option<&str>, name: &str) -> String {
    match namespace {
        None | Some("") => name.to_owned(),
        Some(group) if group.ends_with("__") => format!("{group}{name}"),
        Some(group) => format!("{group}__{name}"),
    }
}

/// The request's functions, as the model knows them.
#[derive(Default)]
struct Tools {
    tools: Vec<Tool>,
    functions: Vec<Function>,
}

impl Tools {
    fn read(fields: &Fields<'_>, limits: &Limits, skipped: &mut Skipped) -> Result<Self, ApiError> {
        let mut tools = Self::default();
        for (i, value) in fields.array("tools")?.unwrap_or_default().iter().enumerate() {
            tools.push(&format!("tools[{i}]"), None, value, skipped)?;
            Limits::check("tools", tools.tools.len(), limits.n_tool)?;
        }
        Ok(tools)
    }

    fn push(
        &mut self,
        path: &str,
        namespace: Option<&str>,
        value: &Value,
        skipped: &mut Skipped,
    ) -> Result<(), ApiError> {
        let fields = Fields::at(path, value)?;
        match (fields.str("type")?, namespace) {
            (Some("function"), _) => self.push_function(path, namespace, &fields),
            (Some("namespace"), None) => {
                let name = required(&fields, "name")?;
                for (i, value) in fields.array("tools")?.unwrap_or_default().iter().enumerate() {
                    self.push(&format!("{path}.tools[{i}]"), Some(name), value, skipped)?;
                }
                Ok(())
            }
            (Some(kind), _) => {
                skipped.push(path, kind);
                Ok(())
            }
            (None, _) => Err(fields.error("type", "is missing")),
        }
    }

    fn push_function(
        &mut self,
        path: &str,
        namespace: Option<&str>,
        fields: &Fields<'_>,
    ) -> Result<(), ApiError> {
        // Some clients nest it as for chat completions.
        let fields = fields.inner("function")?.unwrap_or_else(|| fields.clone());
        let name = required(&fields, "name")?;
        let full_name = full_name(namespace, name);
        let mut function = Map::new();
        function.insert("name".into(), if name.is_empty() { "" } else { &full_name }.into());
        if let Some(description) = fields.str("description")? {
            function.insert("description".into(), description.into());
        }
        match fields.value("parameters") {
            None => {}
            Some(schema @ (Value::Object(_) | Value::Bool(_))) => {
                function.insert("parameters".into(), schema.clone());
            }
            Some(other) => return Err(wrong(&fields.path("parameters"), "a JSON schema", other)),
        }
        if let Some(strict) = fields.bool("strict")? {
            function.insert("strict".into(), strict.into());
        }
        let tool = Tool::from_json(&json!({ "type": "function", "function": function }));
        self.tools.push(tool.map_err(|error| ApiError::field(path, error))?);
        let namespace = namespace.map(str::to_owned);
        self.functions.push(Function { full_name, namespace, name: name.to_owned() });
        Ok(())
    }

    /// Which of them an answer calls. A list of allowed ones leaves only those.
    fn choice(&mut self, fields: &Fields<'_>, limits: &Limits) -> Result<ToolChoice, ApiError> {
        let error = |what: &str| fields.error("tool_choice", what);
        let choice = match fields.value("tool_choice") {
            None => ToolChoice::Auto,
            Some(Value::String(word)) => word_choice(word).ok_or_else(|| {
                error("must be auto, none, required, or an object that names a function or those allowed")
            })?,
            Some(_) => {
                let choice = fields.inner("tool_choice")?.expect("it has a value");
                match choice.str("type")? {
                    Some("function") => ToolChoice::Named(self.named(&choice)?),
                    Some("allowed_tools") => {
                        let mode = choice.str("mode")?.unwrap_or("auto");
                        let mode = word_choice(mode)
                            .ok_or_else(|| choice.error("mode", "must be auto or required"))?;
                        let mut names = Vec::new();
                        let allowed = choice.array("tools")?.unwrap_or_default();
                        Limits::check("tool_choice.tools", allowed.len(), limits.n_tool)?;
                        for (i, tool) in allowed.iter().enumerate() {
                            let tool = Fields::at(&format!("tool_choice.tools[{i}]"), tool)?;
                            if tool.str("type")? == Some("function") {
                                names.push(self.named(&tool)?);
                            }
                        }
                        self.tools.retain(|tool| names.contains(&tool.name));
                        mode
                    }
                    _ => return Err(error("names a kind of tool that this server does not have")),
                }
            }
        };
        if choice == ToolChoice::Required && self.tools.is_empty() {
            return Err(error("asks for a call, but there is no function that could be called"));
        }
        Ok(choice)
    }

    /// The full name of the function that an object names.
    fn named(&self, fields: &Fields<'_>) -> Result<String, ApiError> {
        let inner = fields.inner("function")?.unwrap_or_else(|| fields.clone());
        let name = required(&inner, "name")?;
        let full_name = full_name(inner.str("namespace")?, name);
        let is_meant = |function: &&Function| function.full_name == full_name || function.name == name;
        match self.functions.iter().find(is_meant) {
            Some(function) => Ok(function.full_name.clone()),
            None => Err(inner.error("name", format!("is {name:?}, which is not among the tools"))),
        }
    }
}

fn word_choice(word: &str) -> Option<ToolChoice> {
    Some(match word {
        "auto" => ToolChoice::Auto,
        "none" => ToolChoice::None,
        "required" => ToolChoice::Required,
        _ => return None,
    })
}

/// `text.format`
fn response_format(fields: &Fields<'_>, limits: &Limits) -> Result<ResponseFormat, ApiError> {
    let Some(text) = fields.inner("text")? else { return Ok(ResponseFormat::Text) };
    let Some(format) = text.inner("format")? else { return Ok(ResponseFormat::Text) };
    match format.str("type")? {
        Some("text") => Ok(ResponseFormat::Text),
        Some("json_object") => Ok(ResponseFormat::JsonObject),
        Some("json_schema") => match format.value("schema") {
            Some(schema @ (Value::Object(_) | Value::Bool(_))) => {
                let n_byte = schema.to_string().len();
                if limits.grammar_bytes < n_byte {
                    let what = format!("has {n_byte} bytes, at most {} are read", limits.grammar_bytes);
                    return Err(format.error("schema", what));
                }
                Ok(ResponseFormat::JsonSchema(schema.clone()))
            }
            Some(other) => Err(wrong(&format.path("schema"), "a JSON schema", other)),
            None => Err(format.error("schema", "is missing")),
        },
        _ => Err(format.error("type", "must be text, json_object or json_schema")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::CacheHint;

    fn read_json(body: &Value) -> Result<Asked, ApiError> {
        read(body.as_object().unwrap(), &ServeOptions::new("m", 100, 100))
    }

    fn hello(more: &Value) -> Value {
        let mut body = json!({ "model": "m", "input": "hi" });
        for (key, value) in more.as_object().unwrap() {
            body[key] = value.clone();
        }
        body
    }

    fn check_input(name: &str, input: &Value, expected: &Value, n_skipped: usize) {
        let asked = read_json(&json!({ "input": input })).unwrap();
        assert_eq!(serde_json::to_value(&asked.chat.messages).unwrap(), *expected, "{name}");
        let n_line = asked.skipped.line().map_or(0, |line| line.matches("input[").count());
        assert_eq!(n_line, n_skipped, "{name}: {:?}", asked.skipped);
    }

    /// Parts of a conversation would be lost, or told by somebody else, or in another order.
    #[test]
    fn items_become_messages() {
        let message =
            |role: &str, content: Value| json!({ "type": "message", "role": role, "content": content });
        let user = |text: &str| json!({ "role": "user", "content": text });
        check_input("text", &json!("hi"), &json!([user("hi")]), 0);
        check_input(
            "easy messages",
            &json!([{ "role": "developer", "content": "D" }, { "role": "user", "content": "hi" }]),
            &json!([{ "role": "developer", "content": "D" }, user("hi")]),
            0,
        );
        check_input(
            "parts",
            &json!([
                message(
                    "user",
                    json!([{ "type": "input_text", "text": "a" }, { "type": "input_text", "text": "b" }])
                ),
                message(
                    "assistant",
                    json!([
                        { "type": "output_text", "text": "c", "annotations": [] },
                        { "type": "output_text", "text": "d" },
                    ])
                ),
                message("user", json!([])),
            ]),
            &json!([user("a\n\nb"), { "role": "assistant", "content": "cd" }, user("")]),
            0,
        );
        let asked = read_json(&hello(&json!({ "instructions": "S" }))).unwrap();
        assert_eq!(asked.chat.messages, [Message::system("S"), Message::user("hi")]);
    }

    /// An agent's session would be over when a tool has read an image: it is in every later request.
    #[test]
    fn placeholders_stand_for_images_of_tools() {
        let output = |id: &str, output: Value| json!({ "type": "function_call_output", "call_id": id, "output": output });
        check_input(
            "what tools return that is not text",
            &json!([
                output(
                    "c1",
                    json!([{ "type": "input_text", "text": "seen:" }, { "type": "input_image", "image_url": "data:" }])
                ),
                output("c2", json!([{ "type": "input_file", "file_data": "A" }])),
            ]),
            &json!([
                { "role": "tool", "content": "seen:\n\n[an image, which this model cannot see]", "tool_call_id": "c1" },
                { "role": "tool", "content": "[a file, which this model cannot read]", "tool_call_id": "c2" },
            ]),
            2,
        );
    }

    /// A37: a turn with calls would be torn apart, or lose its thinking.
    #[test]
    fn turns_stay_whole() {
        let message =
            |role: &str, content: Value| json!({ "type": "message", "role": role, "content": content });
        let call = |id: &str, arguments: &str| json!({ "type": "function_call", "id": "fc_1", "call_id": id, "name": "ls", "arguments": arguments });
        let output = |id: &str, output: Value| json!({ "type": "function_call_output", "call_id": id, "output": output });
        let user = |text: &str| json!({ "role": "user", "content": text });
        check_input(
            "a turn with calls",
            &json!([
                message("user", json!("list")),
                { "type": "reasoning", "id": "rs_1", "summary": [], "content": [{ "type": "reasoning_text", "text": "hm" }] },
                message("assistant", json!("Let me look.")),
                call("c1", "{\"path\":\"a\"}"),
                call("c2", ""),
                output("c1", json!("a.txt")),
                output("c2", json!([{ "type": "input_text", "text": "b.txt" }])),
                { "type": "reasoning", "summary": [{ "type": "summary_text", "text": "so" }] },
                message("assistant", json!("Done.")),
                message("user", json!("thanks")),
            ]),
            &json!([
                user("list"),
                {
                    "role": "assistant",
                    "content": "Let me look.",
                    "reasoning_content": "hm",
                    "tool_calls": [
                        { "id": "c1", "function": { "name": "ls", "arguments": "{\"path\":\"a\"}" } },
                        { "id": "c2", "function": { "name": "ls", "arguments": "" } },
                    ],
                },
                { "role": "tool", "content": "a.txt", "tool_call_id": "c1" },
                { "role": "tool", "content": "b.txt", "tool_call_id": "c2" },
                { "role": "assistant", "content": "Done.", "reasoning_content": "so" },
                user("thanks"),
            ]),
            0,
        );
        check_input(
            "thinking that only we can read, and what is not known",
            &json!([
                { "type": "reasoning", "summary": [], "encrypted_content": "flash-moe:hm" },
                { "type": "function_call", "call_id": "c", "namespace": "mcp__git__", "name": "log", "arguments": "{}" },
                { "type": "web_search_call", "id": "w", "status": "completed" },
                { "type": "custom_tool_call", "call_id": "x", "name": "apply_patch", "input": "…" },
                { "type": "reasoning", "summary": [], "encrypted_content": "gAAAA" },
            ]),
            &json!([{
                "role": "assistant",
                "content": null,
                "reasoning_content": "hm",
                "tool_calls": [{ "id": "c", "function": { "name": "mcp__git__log", "arguments": "{}" } }],
            }]),
            2,
        );
    }

    /// A12, A14: tools that are nested or unknown would be an error, or a choice would be ignored.
    #[test]
    fn tools_and_the_choice_among_them() {
        let schema = json!({ "type": "object" });
        let tools = json!([
            { "type": "function", "name": "ls", "description": "lists", "parameters": schema, "strict": false },
            { "type": "web_search" },
            { "type": "custom", "name": "apply_patch", "format": { "type": "grammar" } },
            { "type": "namespace", "name": "git", "description": "", "tools": [
                { "type": "function", "name": "log", "parameters": null },
                { "type": "custom", "name": "raw" },
            ] },
        ]);
        let asked = read_json(&hello(&json!({ "tools": tools }))).unwrap();
        let declared: Vec<&Value> =
            asked.chat.tools.iter().map(|tool| &tool.declaration["function"]).collect();
        let expected = json!([
            { "name": "ls", "description": "lists", "parameters": schema },
            { "name": "git__log", "parameters": { "type": "object", "properties": {} } },
        ]);
        assert_eq!(json!(declared), expected);
        let line = asked.skipped.line().unwrap();
        let skipped = r#"tools[1] ("web_search"), tools[2] ("custom"), tools[3].tools[1] ("custom")"#;
        assert!(line.ends_with(skipped), "{line}");
        let log = json!({ "type": "function", "name": "log", "namespace": "git" });
        for (choice, expected, n_tool) in [
            (json!("auto"), ToolChoice::Auto, 2),
            (json!("none"), ToolChoice::None, 2),
            (json!("required"), ToolChoice::Required, 2),
            (json!({ "type": "function", "name": "ls" }), ToolChoice::Named("ls".into()), 2),
            (log.clone(), ToolChoice::Named("git__log".into()), 2),
            (json!({ "type": "allowed_tools", "mode": "required", "tools": [log] }), ToolChoice::Required, 1),
        ] {
            let asked = read_json(&hello(&json!({ "tools": tools, "tool_choice": choice }))).unwrap();
            assert_eq!((asked.chat.tool_choice, asked.chat.tools.len()), (expected, n_tool), "{choice}");
        }
    }

    /// A31: options, thinking above all, would have no effect.
    #[test]
    fn options_reach_the_answer() {
        let schema = json!({ "type": "object" });
        let format = json!({ "type": "json_schema", "name": "n", "schema": schema, "strict": true });
        let asked = read_json(&hello(&json!({
            "temperature": 0.5, "top_p": 0.9, "max_output_tokens": 7, "parallel_tool_calls": false,
            "reasoning": { "effort": "none", "summary": "auto" }, "text": { "format": format, "verbosity": "low" },
            "store": true, "include": ["reasoning.encrypted_content"], "prompt_cache_key": "k", "background": false,
            "constrain_tool_calls": false,
            "close_at_limit": true,
        })))
        .unwrap();
        let sampling = &asked.wishes.sampling;
        assert_eq!((sampling.temperature, sampling.top_p), (Some(0.5), Some(0.9)));
        assert_eq!((asked.wishes.max_tokens, asked.chat.single_call), (Some(7), true));
        assert_eq!(asked.wishes.hint, CacheHint { key: Some("k".into()), is_marked: false });
        let usual = read_json(&hello(&json!({}))).unwrap();
        assert!(asked.chat.free_calls && !usual.chat.free_calls);
        assert!(asked.wishes.close_at_limit && !usual.wishes.close_at_limit);
        assert_eq!(asked.wishes.thinking, Thinking::OFF);
        assert_eq!(asked.chat.response, ResponseFormat::JsonSchema(schema));
        let low = read_json(&hello(&json!({ "reasoning": { "effort": "low" } }))).unwrap();
        assert_eq!(low.wishes.thinking.is_on, Some(true));
        assert!(low.wishes.thinking.budget.is_some());
        assert_eq!(read_json(&hello(&json!({}))).unwrap().wishes.thinking, Thinking::default());
    }

    /// Mistakes would be answered as if they were none, or without their place.
    #[test]
    fn mistakes_are_named() {
        let item = |item: Value| json!({ "input": [item] });
        let image = json!([{ "type": "input_image", "image_url": "data:image/png;base64,AA" }]);
        for (body, param) in [
            (json!({ "input": null }), "input"),
            (json!({ "input": [] }), "input"),
            (item(json!({ "type": "reasoning", "summary": [], "encrypted_content": "x" })), "input"),
            (item(json!({ "type": "web_search_call" })), "input"),
            (json!({ "input": 7 }), "input"),
            (item(json!("x")), "input[0]"),
            (item(json!({ "content": "x" })), "input[0].role"),
            (item(json!({ "role": "wizard", "content": "x" })), "input[0].role"),
            (item(json!({ "role": "user", "content": 7 })), "input[0].content"),
            // A29
            (item(json!({ "role": "user", "content": image })), "input[0].content[0]"),
            (item(json!({ "type": "function_call", "call_id": "c" })), "input[0].name"),
            (item(json!({ "type": "item_reference", "id": "x" })), "input[0]"),
            (json!({ "previous_response_id": "resp_1" }), "previous_response_id"),
            (json!({ "conversation": "conv_1" }), "conversation"),
            (json!({ "prompt": { "id": "p" } }), "prompt"),
            (json!({ "background": true }), "background"),
            (json!({ "include": ["message.output_text.logprobs"] }), "include"),
            (json!({ "top_logprobs": 3 }), "top_logprobs"),
            (json!({ "max_output_tokens": 0 }), "max_output_tokens"),
            (json!({ "reasoning": { "effort": "huge" } }), "reasoning.effort"),
            (json!({ "text": { "format": { "type": "xml" } } }), "text.format.type"),
            (json!({ "text": { "format": { "type": "json_schema", "name": "n" } } }), "text.format.schema"),
            (json!({ "tools": [{ "name": "x" }] }), "tools[0].type"),
            (json!({ "tools": [{ "type": "function" }] }), "tools[0].name"),
            (json!({ "tools": [{ "type": "function", "name": "" }] }), "tools[0]"),
            (json!({ "tool_choice": "required" }), "tool_choice"),
            (json!({ "tool_choice": "sometimes" }), "tool_choice"),
            (json!({ "tool_choice": { "type": "function", "name": "x" } }), "tool_choice.name"),
            (json!({ "tool_choice": { "type": "web_search" } }), "tool_choice"),
            // Each would be looked for among all functions.
            (
                json!({ "tool_choice": { "type": "allowed_tools", "tools": vec![json!({}); 600] } }),
                "tool_choice.tools",
            ),
            (json!({ "metadata": { "a": 1 } }), "metadata"),
            (json!({ "prompt_cache_key": 7 }), "prompt_cache_key"),
        ] {
            let error = read_json(&hello(&body)).unwrap_err();
            assert_eq!(error.param.as_deref(), Some(param), "{body}: {error}");
        }
    }
}
