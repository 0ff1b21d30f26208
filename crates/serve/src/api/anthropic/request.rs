//! What a request of the Messages API asks for.
//!
//! Agents send more than this server has: kinds of content and tools that it does not know are left out, with a line in
//! the log. What would change the meaning of the conversation (images, documents that are no text) is refused, but not
//! in the results of tools: there a placeholder stands for it, because an agent would send it with every request.

use generate::{
    ChatRequest, Content, FunctionCall, Message, ResponseFormat, SamplingOverrides, Tool, ToolCall,
    ToolChoice, placeholder,
};
use serde_json::{Map, Value, json};

use crate::api::answer::Wishes;
use crate::api::fields::{Fields, wrong};
use crate::api::skipped::Skipped;
use crate::api::thinking::Thinking;
use crate::app::ServeOptions;
use crate::engine::CacheHint;
use crate::error::ApiError;
use crate::limits::Limits;

/// Claude Code begins its system prompt with such a line. It differs from request to request and tells the model
/// nothing, but everything behind a change has to be fed again.
const BILLING_HEADER: &str = "x-anthropic-billing-header:";
/// Between blocks of text that make up one message.
const BETWEEN_BLOCKS: &str = "\n\n";

/// A request, read.
#[derive(Debug)]
pub(crate) struct Asked {
    /// The conversation.
    pub(crate) chat: ChatRequest,
    /// How to answer.
    pub(crate) wishes: Wishes,
    /// What is left out.
    pub(crate) skipped: Skipped,
    /// As the request has it: any name will do.
    pub(crate) model: String,
}

/// Reads a request for an answer.
pub(crate) fn read(fields: &Fields<'_>, options: &ServeOptions) -> Result<Asked, ApiError> {
    let (mut asked, limits) = (read_prompt(fields, options)?, &options.limits);
    let max_tokens = fields.count("max_tokens")?;
    if max_tokens == Some(0) {
        return Err(fields.error("max_tokens", "must be at least 1"));
    }
    if let (Some(max_tokens), Some(budget)) = (max_tokens, asked.wishes.thinking.budget)
        && max_tokens <= budget
    {
        return Err(fields.error("max_tokens", "must be greater than thinking.budget_tokens"));
    }
    asked.wishes.max_tokens = max_tokens;
    asked.wishes.stop_texts = stop_texts(fields, limits)?;
    asked.wishes.sampling = SamplingOverrides {
        temperature: fields.f32("temperature")?,
        top_k: fields.count("top_k")?,
        top_p: fields.f32("top_p")?,
        ..SamplingOverrides::default()
    };
    Ok(asked)
}

/// Reads what decides the prompt: all of a request for a count.
pub(crate) fn read_prompt(fields: &Fields<'_>, options: &ServeOptions) -> Result<Asked, ApiError> {
    let limits = &options.limits;
    let mut skipped = Skipped::default();
    let Some(model) = fields.str("model")? else { return Err(fields.error("model", "is missing")) };
    let Some(values) = fields.array("messages")? else { return Err(fields.error("messages", "is missing")) };
    if values.is_empty() {
        return Err(fields.error("messages", "must not be empty"));
    }
    Limits::check("messages", values.len(), limits.n_message)?;
    let mut messages = Vec::new();
    messages.extend(system_message(fields, options.keep_billing_line, &mut skipped)?);
    for (i, value) in values.iter().enumerate() {
        push_message(&format!("messages[{i}]"), value, &mut messages, &mut skipped)?;
    }
    let tools = tools(fields, limits, &mut skipped)?;
    let (tool_choice, single_call) = tool_choice(fields, &tools)?;
    let response = response_format(fields, limits)?;
    let free_calls = fields.bool("constrain_tool_calls")? == Some(false);
    let chat = ChatRequest {
        messages,
        tools,
        tool_choice,
        single_call,
        free_calls,
        response,
        ..ChatRequest::default()
    };
    let hint = CacheHint { key: None, is_marked: is_marked(fields) };
    let close_at_limit = fields.bool("close_at_limit")?.unwrap_or(false);
    let wishes = Wishes { thinking: thinking(fields)?, close_at_limit, hint, ..Wishes::default() };
    Ok(Asked { chat, wishes, skipped, model: model.to_owned() })
}

/// Does the client say anywhere that what stands before will come back? Here that is a hint, wherever it stands.
fn is_marked(fields: &Fields<'_>) -> bool {
    let has_mark = |value: &Value| value.get("cache_control").is_some_and(|mark| !mark.is_null());
    let any = |value: Option<&Value>, is: &dyn Fn(&Value) -> bool| {
        value.and_then(Value::as_array).is_some_and(|values| values.iter().any(is))
    };
    let in_message = |message: &Value| {
        any(message.get("content"), &|block| has_mark(block) || any(block.get("content"), &has_mark))
    };
    fields.value("cache_control").is_some()
        || any(fields.value("system"), &has_mark)
        || any(fields.value("tools"), &has_mark)
        || any(fields.value("messages"), &in_message)
}

/// Off unless it is asked for, as in Anthropic's API: clients that do not ask expect text first.
fn thinking(fields: &Fields<'_>) -> Result<Thinking, ApiError> {
    let Some(thinking) = fields.inner("thinking")? else { return Ok(Thinking::OFF) };
    let budget = thinking.count("budget_tokens")?;
    match thinking.str("type")? {
        Some("enabled" | "adaptive" | "between_tools") => Ok(Thinking::of_budget(budget)),
        Some("disabled") => Ok(Thinking::OFF),
        _ => Err(thinking.error("type", "must be enabled, adaptive, between_tools or disabled")),
    }
}

fn stop_texts(fields: &Fields<'_>, limits: &Limits) -> Result<Vec<String>, ApiError> {
    let values = fields.array("stop_sequences")?.unwrap_or_default();
    Limits::check("stop_sequences", values.len(), limits.n_stop)?;
    let text = |(i, value): (usize, &Value)| match value {
        Value::String(text) if limits.stop_bytes < text.len() => {
            Err(fields.error("stop_sequences", format!("a text is longer than {} bytes", limits.stop_bytes)))
        }
        Value::String(text) => Ok(text.clone()),
        other => Err(wrong(&format!("stop_sequences[{i}]"), "a string", other)),
    };
    let texts: Vec<String> = values.iter().enumerate().map(text).collect::<Result<_, _>>()?;
    Ok(texts.into_iter().filter(|text| !text.is_empty()).collect())
}

/// All of the system prompt but Claude Code's billing line, unless that is to stay.
fn system_message(
    fields: &Fields<'_>,
    keeps_billing_line: bool,
    skipped: &mut Skipped,
) -> Result<Option<Message>, ApiError> {
    let mut texts = texts("system", fields.value("system"), Unreadable::Refused, skipped)?;
    if let Some(first) = texts.first_mut()
        && !keeps_billing_line
        && first.starts_with(BILLING_HEADER)
    {
        let rest = first.split_once('\n').map_or("", |(_, rest)| rest.trim_start_matches('\n'));
        *first = rest.to_owned();
    }
    texts.retain(|text| !text.is_empty());
    Ok((!texts.is_empty()).then(|| Message::system(texts.join(BETWEEN_BLOCKS))))
}

/// What becomes of content that the model cannot read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Unreadable {
    /// An error.
    Refused,
    /// A placeholder, and a line in the log.
    Replaced,
}

/// A block of content.
struct Block<'a> {
    path: String,
    kind: &'a str,
    fields: Fields<'a>,
}

impl<'a> Block<'a> {
    fn text(&self, name: &str) -> Result<&'a str, ApiError> {
        self.fields.str(name)?.ok_or_else(|| self.fields.error(name, "is missing"))
    }

    /// What a user, a system prompt or a tool says with it; `None` if that is nothing.
    fn said(&self, unreadable: Unreadable, skipped: &mut Skipped) -> Result<Option<String>, ApiError> {
        match self.kind {
            "text" => self.text("text").map(|text| Some(text.to_owned())),
            "image" => self.unreadable(unreadable, "images are not supported, only text", skipped).map(Some),
            "document" => self.document(unreadable, skipped).map(Some),
            "search_result" => {
                let (title, source) = (self.text("title")?, self.text("source")?);
                let content = self.fields.value("content");
                let body = texts(&self.fields.path("content"), content, unreadable, skipped)?;
                Ok(Some(format!("{title}\n{source}\n{}", body.join(BETWEEN_BLOCKS))))
            }
            kind => {
                skipped.push(&self.path, kind);
                Ok(None)
            }
        }
    }

    fn unreadable(
        &self,
        unreadable: Unreadable,
        why: &str,
        skipped: &mut Skipped,
    ) -> Result<String, ApiError> {
        if unreadable == Unreadable::Refused {
            return Err(ApiError::field(&self.path, why));
        }
        skipped.push(&self.path, self.kind);
        Ok(placeholder(self.kind).to_owned())
    }

    fn document(&self, unreadable: Unreadable, skipped: &mut Skipped) -> Result<String, ApiError> {
        let Some(source) = self.fields.inner("source")? else {
            return Err(self.fields.error("source", "is missing"));
        };
        let text = match source.str("type")? {
            Some("text") => source.str("data")?.unwrap_or_default().to_owned(),
            Some("content") => {
                let content = source.value("content");
                texts(&source.path("content"), content, unreadable, skipped)?.join(BETWEEN_BLOCKS)
            }
            _ => self.unreadable(unreadable, "only documents of plain text are supported", skipped)?,
        };
        Ok(match self.fields.str("title")? {
            Some(title) => format!("{title}\n{text}"),
            None => text,
        })
    }
}

/// The blocks of a content that is not one text.
fn blocks<'a>(path: &str, values: &'a [Value]) -> Result<Vec<Block<'a>>, ApiError> {
    let block = |(i, value): (usize, &'a Value)| {
        let path = format!("{path}[{i}]");
        let fields = Fields::at(&path, value)?;
        let Some(kind) = fields.str("type")? else { return Err(fields.error("type", "is missing")) };
        Ok(Block { path, kind, fields })
    };
    values.iter().enumerate().map(block).collect()
}

/// What a content says, a text for each block.
fn texts(
    path: &str,
    content: Option<&Value>,
    unreadable: Unreadable,
    skipped: &mut Skipped,
) -> Result<Vec<String>, ApiError> {
    match content {
        None => Ok(Vec::new()),
        Some(Value::String(text)) => Ok(vec![text.clone()]),
        Some(Value::Array(values)) => {
            let mut texts = Vec::new();
            for block in blocks(path, values)? {
                texts.extend(block.said(unreadable, skipped)?);
            }
            Ok(texts)
        }
        Some(other) => Err(wrong(path, "a string or an array of blocks", other)),
    }
}

fn push_message(
    path: &str,
    value: &Value,
    messages: &mut Vec<Message>,
    skipped: &mut Skipped,
) -> Result<(), ApiError> {
    let fields = Fields::at(path, value)?;
    let Some(role) = fields.str("role")? else { return Err(fields.error("role", "is missing")) };
    let (path, content) = (fields.path("content"), fields.value("content"));
    match (role, content) {
        ("user", Some(Value::Array(values))) => push_user(&path, values, messages, skipped),
        ("assistant", Some(Value::Array(values))) => {
            messages.push(assistant_message(blocks(&path, values)?, skipped)?);
            Ok(())
        }
        ("user" | "assistant" | "system", content) => {
            let text = texts(&path, content, Unreadable::Refused, skipped)?.join(BETWEEN_BLOCKS);
            messages.push(Message { role: role.into(), ..Message::user(text) });
            Ok(())
        }
        _ => Err(fields.error("role", "must be user, assistant or system")),
    }
}

/// Texts that stand together are one message, and each result of a tool is one, in the order they came.
fn push_user(
    path: &str,
    values: &[Value],
    messages: &mut Vec<Message>,
    skipped: &mut Skipped,
) -> Result<(), ApiError> {
    let mut texts_before = Vec::new();
    let n_before = messages.len();
    for block in blocks(path, values)? {
        if block.kind != "tool_result" {
            texts_before.extend(block.said(Unreadable::Refused, skipped)?);
            continue;
        }
        if !texts_before.is_empty() {
            messages.push(Message::user(std::mem::take(&mut texts_before).join(BETWEEN_BLOCKS)));
        }
        let id = block.text("tool_use_id")?;
        let content = block.fields.value("content");
        let result = texts(&block.fields.path("content"), content, Unreadable::Replaced, skipped)?;
        let is_error = block.fields.bool("is_error")?.unwrap_or(false);
        let text = result_text(result.join(BETWEEN_BLOCKS), is_error);
        messages.push(Message { tool_call_id: Some(id.to_owned()), ..Message::tool(text) });
    }
    if !texts_before.is_empty() || messages.len() == n_before {
        messages.push(Message::user(texts_before.join(BETWEEN_BLOCKS)));
    }
    Ok(())
}

/// The result of a tool. That it failed is said in words, unless it says so itself.
fn result_text(text: String, is_error: bool) -> String {
    let says_so = text.get(..5).is_some_and(|start| start.eq_ignore_ascii_case("error"));
    if is_error && !says_so { format!("Error: {text}") } else { text }
}

fn assistant_message(blocks: Vec<Block<'_>>, skipped: &mut Skipped) -> Result<Message, ApiError> {
    let (mut text, mut thinking, mut calls) = (String::new(), String::new(), Vec::new());
    for block in blocks {
        match block.kind {
            "text" => text += block.text("text")?,
            "thinking" => thinking += block.text("thinking")?,
            "tool_use" => {
                let function = FunctionCall {
                    name: block.text("name")?.to_owned(),
                    arguments: block.fields.value("input").cloned().unwrap_or_default(),
                };
                calls.push(ToolCall { id: Some(block.text("id")?.to_owned()), function });
            }
            "image" => return Err(ApiError::field(block.path, "images are not supported, only text")),
            kind => skipped.push(&block.path, kind),
        }
    }
    Ok(Message {
        reasoning_content: (!thinking.is_empty()).then_some(thinking),
        tool_calls: calls,
        content: Some(Content::Text(text)),
        role: "assistant".into(),
        ..Message::default()
    })
}

/// Tools of the client. Those that only Anthropic's servers or models have are left out.
fn tools(fields: &Fields<'_>, limits: &Limits, skipped: &mut Skipped) -> Result<Vec<Tool>, ApiError> {
    let values = fields.array("tools")?.unwrap_or_default();
    Limits::check("tools", values.len(), limits.n_tool)?;
    let mut tools = Vec::new();
    for (i, value) in values.iter().enumerate() {
        let path = format!("tools[{i}]");
        let fields = Fields::at(&path, value)?;
        let schema = fields.value("input_schema");
        match (fields.str("type")?, schema) {
            (None | Some("custom"), _) | (_, Some(_)) => {}
            (Some(kind), None) => {
                skipped.push(&path, kind);
                continue;
            }
        }
        let mut function = Map::new();
        function.insert("name".into(), fields.str("name")?.unwrap_or_default().into());
        if let Some(description) = fields.str("description")? {
            function.insert("description".into(), description.into());
        }
        let schema = match schema {
            None => json!({ "type": "object" }),
            Some(schema @ (Value::Object(_) | Value::Bool(_))) => schema.clone(),
            Some(other) => return Err(wrong(&fields.path("input_schema"), "a JSON schema", other)),
        };
        function.insert("parameters".into(), schema);
        if let Some(strict) = fields.bool("strict")? {
            function.insert("strict".into(), strict.into());
        }
        let tool = Tool::from_json(&json!({ "type": "function", "function": function }));
        tools.push(tool.map_err(|error| ApiError::field(path, error))?);
    }
    Ok(tools)
}

/// Which of them an answer calls, and whether at most one.
fn tool_choice(fields: &Fields<'_>, tools: &[Tool]) -> Result<(ToolChoice, bool), ApiError> {
    let Some(choice) = fields.inner("tool_choice")? else { return Ok((ToolChoice::Auto, false)) };
    let single_call = choice.bool("disable_parallel_tool_use")?.unwrap_or(false);
    let choice = match choice.str("type")? {
        Some("auto") => ToolChoice::Auto,
        Some("none") => ToolChoice::None,
        Some("any") if tools.is_empty() => {
            return Err(
                fields.error("tool_choice", "asks for a call, but there is no tool that could be called")
            );
        }
        Some("any") => ToolChoice::Required,
        Some("tool") => match choice.str("name")? {
            Some(name) if tools.iter().any(|tool| tool.name == name) => ToolChoice::Named(name.to_owned()),
            Some(name) => {
                return Err(choice.error("name", format!("is {name:?}, which is not among the tools")));
            }
            None => return Err(choice.error("name", "is missing")),
        },
        _ => return Err(choice.error("type", "must be auto, any, tool or none")),
    };
    Ok((choice, single_call))
}

/// `output_config.format`, or `output_format` as it was called before.
fn response_format(fields: &Fields<'_>, limits: &Limits) -> Result<ResponseFormat, ApiError> {
    let format = match fields.inner("output_config")? {
        Some(config) => config.inner("format")?,
        None => None,
    };
    let format = format.map_or_else(|| fields.inner("output_format"), |format| Ok(Some(format)))?;
    let Some(format) = format else { return Ok(ResponseFormat::Text) };
    match (format.str("type")?, format.value("schema")) {
        (Some("json_schema"), Some(schema @ (Value::Object(_) | Value::Bool(_)))) => {
            let n_byte = schema.to_string().len();
            if limits.grammar_bytes < n_byte {
                let what = format!("has {n_byte} bytes, at most {} are read", limits.grammar_bytes);
                return Err(format.error("schema", what));
            }
            Ok(ResponseFormat::JsonSchema(schema.clone()))
        }
        (Some("json_schema"), Some(other)) => Err(wrong(&format.path("schema"), "a JSON schema", other)),
        (Some("json_schema"), None) => Err(format.error("schema", "is missing")),
        _ => Err(format.error("type", "must be json_schema")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read_json(body: &Value) -> Result<Asked, ApiError> {
        read(&Fields::of(body.as_object().unwrap()), &ServeOptions::new("m", 100, 100))
    }

    /// A request with one user message, and more.
    fn hello(more: &Value) -> Value {
        let mut body =
            json!({ "model": "m", "max_tokens": 10, "messages": [{ "role": "user", "content": "hi" }] });
        for (key, value) in more.as_object().unwrap() {
            body[key] = value.clone();
        }
        body
    }

    fn check_messages(name: &str, messages: &Value, expected: &Value, n_skipped: usize) {
        let asked = read_json(&json!({ "model": "m", "messages": messages })).unwrap();
        assert_eq!(serde_json::to_value(&asked.chat.messages).unwrap(), *expected, "{name}");
        let n_line = asked.skipped.line().map_or(0, |line| line.matches("messages[").count());
        assert_eq!(n_line, n_skipped, "{name}: {:?}", asked.skipped);
    }

    /// What a client marks as coming back would not be kept before other things.
    #[test]
    fn marks_of_the_cache_are_seen_everywhere() {
        let mark = json!({ "type": "ephemeral" });
        let text = |more: &Value| {
            let mut block = json!({ "type": "text", "text": "a" });
            block["cache_control"] = more.clone();
            json!([block])
        };
        let user = |content: Value| json!([{ "role": "user", "content": content }]);
        let result = json!([{ "type": "tool_result", "tool_use_id": "t", "content": text(&mark) }]);
        let tool = json!({ "name": "a", "input_schema": { "type": "object" }, "cache_control": mark });
        let schema = json!({ "type": "object", "properties": { "cache_control": mark } });
        for (more, expected) in [
            (json!({}), false),
            (json!({ "cache_control": mark }), true),
            (json!({ "cache_control": null }), false),
            (json!({ "system": text(&mark) }), true),
            (json!({ "system": text(&Value::Null) }), false),
            (json!({ "messages": user(text(&mark)) }), true),
            (json!({ "messages": user(result) }), true),
            (json!({ "tools": [tool] }), true),
            (json!({ "tools": [{ "name": "a", "input_schema": schema }] }), false),
        ] {
            let asked = read_json(&hello(&more)).unwrap();
            assert_eq!(asked.wishes.hint, CacheHint { key: None, is_marked: expected }, "{more}");
            assert_eq!(asked.skipped, Skipped::default(), "{more}");
        }
    }

    /// An agent's session would be over when a tool has read an image: it is in every later request.
    #[test]
    fn placeholders_stand_for_images_of_tools() {
        let result =
            |content: Value| json!({ "type": "tool_result", "tool_use_id": "t1", "content": content });
        let tool = |text: &str| json!({ "role": "tool", "content": text, "tool_call_id": "t1" });
        let text = json!({ "type": "text", "text": "seen:" });
        let image = json!({ "type": "image", "source": { "type": "base64", "media_type": "image/png", "data": "AA" } });
        let pdf = json!({ "type": "document", "source": { "type": "base64", "media_type": "application/pdf", "data": "A" } });
        check_messages(
            "what tools return that is not text",
            &json!([{ "role": "user", "content": [result(json!([text, image])), result(json!([pdf]))] }]),
            &json!([
                tool("seen:\n\n[an image, which this model cannot see]"),
                tool("[a file, which this model cannot read]"),
            ]),
            2,
        );
    }

    /// Parts of a conversation would be lost, or told by somebody else, or in another order.
    #[test]
    fn conversations_become_messages() {
        let result =
            |content: Value| json!({ "type": "tool_result", "tool_use_id": "t1", "content": content });
        let failed = |text: &str| json!({ "type": "tool_result", "tool_use_id": "t1", "is_error": true, "content": text });
        let tool = |text: &str| json!({ "role": "tool", "content": text, "tool_call_id": "t1" });
        let user = |content: Value| json!([{ "role": "user", "content": content }]);
        let text = |text: &str| json!({ "type": "text", "text": text });
        check_messages("text", &user(json!("hi")), &json!([{ "role": "user", "content": "hi" }]), 0);
        check_messages("nothing", &user(json!([])), &json!([{ "role": "user", "content": "" }]), 0);
        check_messages(
            "blocks",
            &user(
                json!([{ "type": "text", "text": "a", "cache_control": { "type": "ephemeral" } }, text("b")]),
            ),
            &json!([{ "role": "user", "content": "a\n\nb" }]),
            0,
        );
        check_messages(
            "results among text",
            &user(json!([text("before"), result(json!("r1")), result(json!([text("r2")])), text("after")])),
            &json!([
                { "role": "user", "content": "before" },
                tool("r1"),
                tool("r2"),
                { "role": "user", "content": "after" },
            ]),
            0,
        );
        check_messages(
            "results that are empty or failed",
            &user(json!([{ "type": "tool_result", "tool_use_id": "t1" }, failed("no"), failed("Error: no")])),
            &json!([tool(""), tool("Error: no"), tool("Error: no")]),
            0,
        );
        check_messages(
            "the assistant",
            &json!([{ "role": "assistant", "content": [
                { "type": "thinking", "thinking": "hm", "signature": "flash-moe" },
                { "type": "redacted_thinking", "data": "xyz" },
                text("Let me "),
                text("look."),
                { "type": "tool_use", "id": "t1", "name": "ls", "input": { "path": "." } },
                { "type": "server_tool_use", "id": "s1", "name": "web_search", "input": {} },
            ] }]),
            &json!([{
                "role": "assistant",
                "content": "Let me look.",
                "reasoning_content": "hm",
                "tool_calls": [{ "id": "t1", "function": { "name": "ls", "arguments": { "path": "." } } }],
            }]),
            2,
        );
        check_messages(
            "documents, finds and a reminder",
            &json!([
                { "role": "user", "content": [
                    { "type": "document", "title": "T", "source": { "type": "text", "data": "D" } },
                    { "type": "search_result", "title": "S", "source": "u", "content": [text("found")] },
                ] },
                { "role": "system", "content": [text("be short")] },
            ]),
            &json!([
                { "role": "user", "content": "T\nD\n\nS\nu\nfound" },
                { "role": "system", "content": "be short" },
            ]),
            0,
        );
    }

    /// C06: every turn of Claude Code would be read from the start again.
    #[test]
    fn the_billing_line_is_not_part_of_the_prompt() {
        let text = |text: &str| json!({ "type": "text", "text": text });
        let line = |hash: &str| format!("x-anthropic-billing-header: cc_version=2.1.37.{hash}; cch={hash};");
        for (system, expected) in [
            (json!("S"), Some("S")),
            (json!(""), None),
            (json!([]), None),
            (json!([text("A"), text("B")]), Some("A\n\nB")),
            (json!([text(&line("a1")), text("You are an agent.")]), Some("You are an agent.")),
            (json!(format!("{}\n\nS", line("b2"))), Some("S")),
            (json!(line("c3")), None),
            // Only at the start: anywhere else it is text.
            (json!("S\nx-anthropic-billing-header: 1"), Some("S\nx-anthropic-billing-header: 1")),
        ] {
            let asked = read_json(&hello(&json!({ "system": system }))).unwrap();
            let first = asked.chat.messages.first().filter(|m| m.role == "system");
            let content = first.map(|message| message.content.clone().unwrap());
            assert_eq!(content, expected.map(|text| Content::Text(text.into())), "{system}");
        }
    }

    /// A31: thinking would be on or off against the client's wish.
    #[test]
    fn thinking_is_as_asked() {
        let on = |budget| Thinking { is_on: Some(true), budget };
        for (thinking, expected) in [
            (Value::Null, Thinking::OFF),
            (json!({ "type": "disabled" }), Thinking::OFF),
            (json!({ "type": "enabled", "budget_tokens": 0 }), Thinking::OFF),
            (json!({ "type": "enabled", "budget_tokens": 9 }), on(Some(9))),
            (json!({ "type": "enabled" }), on(None)),
            (json!({ "type": "adaptive" }), on(None)),
        ] {
            let asked = read_json(&hello(&json!({ "thinking": thinking }))).unwrap();
            assert_eq!(asked.wishes.thinking, expected, "{thinking}");
        }
    }

    /// A12, A14: tools that cannot be called would be offered, or a choice would be ignored.
    #[test]
    fn tools_and_the_choice_among_them() {
        let schema = json!({ "type": "object", "properties": { "x": {} } });
        let tools = json!([
            { "name": "a", "description": "A", "input_schema": schema, "cache_control": {} },
            { "type": "custom", "name": "b", "strict": true },
            { "type": "web_search_20250305", "name": "web_search" },
            { "type": "bash_20250124", "name": "bash" },
        ]);
        let asked = read_json(&hello(&json!({ "tools": tools }))).unwrap();
        let declared: Vec<&Value> =
            asked.chat.tools.iter().map(|tool| &tool.declaration["function"]).collect();
        let expected = json!([
            { "name": "a", "description": "A", "parameters": schema },
            { "name": "b", "parameters": { "type": "object" } },
        ]);
        assert_eq!(json!(declared), expected);
        assert!(asked.chat.tools[1].strict);
        let line = asked.skipped.line().unwrap();
        assert!(line.contains(r#"tools[2] ("web_search_20250305"), tools[3] ("bash_20250124")"#), "{line}");
        for (choice, expected) in [
            (json!({ "type": "auto" }), (ToolChoice::Auto, false)),
            (json!({ "type": "auto", "disable_parallel_tool_use": true }), (ToolChoice::Auto, true)),
            (json!({ "type": "any" }), (ToolChoice::Required, false)),
            (json!({ "type": "tool", "name": "b" }), (ToolChoice::Named("b".into()), false)),
            (json!({ "type": "none" }), (ToolChoice::None, false)),
        ] {
            let asked = read_json(&hello(&json!({ "tools": tools, "tool_choice": choice }))).unwrap();
            assert_eq!((asked.chat.tool_choice, asked.chat.single_call), expected, "{choice}");
        }
    }

    /// Options would have no effect.
    #[test]
    fn options_reach_the_answer() {
        let schema = json!({ "type": "object" });
        let format = json!({ "type": "json_schema", "schema": schema });
        let body = hello(&json!({
            "max_tokens": 7, "temperature": 0.5, "top_k": 3, "top_p": 0.9, "stop_sequences": ["END", ""],
            "output_config": { "effort": "low", "format": format }, "metadata": { "user_id": "u" },
            "service_tier": "auto", "model": "claude-any", "constrain_tool_calls": false,
            "close_at_limit": true,
        }));
        let asked = read_json(&body).unwrap();
        let usual = read_json(&hello(&json!({}))).unwrap();
        assert!(asked.chat.free_calls && !usual.chat.free_calls);
        assert!(asked.wishes.close_at_limit && !usual.wishes.close_at_limit);
        let expected = SamplingOverrides {
            temperature: Some(0.5),
            top_k: Some(3),
            top_p: Some(0.9),
            ..SamplingOverrides::default()
        };
        assert_eq!((asked.wishes.sampling, asked.wishes.max_tokens), (expected, Some(7)));
        assert_eq!((asked.wishes.stop_texts, asked.model.as_str()), (vec!["END".to_owned()], "claude-any"));
        assert_eq!(asked.chat.response, ResponseFormat::JsonSchema(schema.clone()));
        let old = read_json(&hello(&json!({ "output_format": format }))).unwrap();
        assert_eq!(old.chat.response, ResponseFormat::JsonSchema(schema));
    }

    /// Mistakes would be answered as if they were none, or without their place.
    #[test]
    fn mistakes_are_named() {
        let message = |content: Value| json!({ "messages": [{ "role": "user", "content": content }] });
        let image = json!({ "type": "image", "source": { "type": "base64", "media_type": "image/png", "data": "AA" } });
        for (body, param) in [
            (json!({ "model": null }), "model"),
            (json!({ "messages": null }), "messages"),
            (json!({ "messages": [] }), "messages"),
            (json!({ "messages": [7] }), "messages[0]"),
            (json!({ "messages": [{ "content": "x" }] }), "messages[0].role"),
            (json!({ "messages": [{ "role": "tool", "content": "x" }] }), "messages[0].role"),
            (message(json!(7)), "messages[0].content"),
            (message(json!(["x"])), "messages[0].content[0]"),
            (message(json!([{ "text": "x" }])), "messages[0].content[0].type"),
            (message(json!([{ "type": "text" }])), "messages[0].content[0].text"),
            // A29
            (message(json!([{ "type": "text", "text": "x" }, image])), "messages[0].content[1]"),
            (
                message(json!([{ "type": "tool_result", "content": "x" }])),
                "messages[0].content[0].tool_use_id",
            ),
            (
                message(json!([{ "type": "document", "source": { "type": "base64", "data": "A" } }])),
                "messages[0].content[0]",
            ),
            (json!({ "system": 7 }), "system"),
            (json!({ "max_tokens": 0 }), "max_tokens"),
            (json!({ "max_tokens": -1 }), "max_tokens"),
            (json!({ "thinking": { "type": "enabled", "budget_tokens": 10 } }), "max_tokens"),
            (json!({ "thinking": { "type": "on" } }), "thinking.type"),
            (json!({ "stop_sequences": "x" }), "stop_sequences"),
            (json!({ "stop_sequences": [7] }), "stop_sequences[0]"),
            (json!({ "tools": [{ "description": "nameless" }] }), "tools[0]"),
            (json!({ "tools": [{ "name": "a", "input_schema": "x" }] }), "tools[0].input_schema"),
            (json!({ "tool_choice": { "type": "any" } }), "tool_choice"),
            (json!({ "tool_choice": { "type": "tool", "name": "x" } }), "tool_choice.name"),
            (json!({ "tool_choice": { "type": "tool" } }), "tool_choice.name"),
            (json!({ "tool_choice": { "type": "required" } }), "tool_choice.type"),
            (json!({ "output_config": { "format": { "type": "xml" } } }), "output_config.format.type"),
            (
                json!({ "output_config": { "format": { "type": "json_schema" } } }),
                "output_config.format.schema",
            ),
        ] {
            let error = read_json(&hello(&body)).unwrap_err();
            assert_eq!(error.param.as_deref(), Some(param), "{body}: {error}");
        }
    }
}
