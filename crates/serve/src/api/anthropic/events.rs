//! How an answer is told in the Messages API: as events while it is made, or as one message.

use generate::Finish;
use serde::Serialize;
use serde_json::{Map, Value};
use utoipa::ToSchema;

use crate::api::anthropic::error::ErrorDetail;
use crate::api::parts::{Change, Part, PartKind, Parts};
use crate::engine::{Done, Timings, Update};
use crate::id;

/// Thinking carries a signature, and clients drop blocks where it is empty. Here it signs nothing.
const SIGNATURE: &str = "flash-moe";

/// An answer.
#[derive(Clone, Debug, PartialEq, Serialize, ToSchema)]
#[schema(as = AnthropicMessage)]
pub(crate) struct Message {
    id: String,
    /// `message`
    r#type: &'static str,
    /// `assistant`
    role: &'static str,
    /// The name of the request.
    model: String,
    content: Vec<Block>,
    stop_reason: Option<StopReason>,
    /// Which of the request's `stop_sequences` ended it.
    stop_sequence: Option<String>,
    usage: Usage,
}

/// A part of an answer.
#[derive(Clone, Debug, PartialEq, Serialize, ToSchema)]
#[serde(tag = "type", rename_all = "snake_case")]
#[schema(as = AnthropicBlock)]
pub(crate) enum Block {
    Thinking { thinking: String, signature: String },
    Text { text: String },
    ToolUse { id: String, name: String, input: Map<String, Value> },
}

/// More of a part.
#[derive(Clone, Debug, PartialEq, Serialize, ToSchema)]
#[serde(tag = "type", rename_all = "snake_case")]
#[schema(as = AnthropicDelta)]
#[expect(clippy::enum_variant_names, reason = "the names of the API")]
pub(crate) enum Delta {
    ThinkingDelta { thinking: String },
    SignatureDelta { signature: String },
    TextDelta { text: String },
    InputJsonDelta { partial_json: String },
}

/// Why an answer ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
#[schema(as = AnthropicStopReason)]
pub(crate) enum StopReason {
    EndTurn,
    MaxTokens,
    StopSequence,
    ToolUse,
    ModelContextWindowExceeded,
}

/// Counts of tokens.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, ToSchema)]
#[schema(as = AnthropicUsage)]
pub(crate) struct Usage {
    /// Tokens of the prompt that were read for this answer, and will be for the next.
    input_tokens: usize,
    /// Tokens of the prompt that were read for an answer before.
    cache_read_input_tokens: usize,
    /// Tokens of the prompt that were read for this answer and kept for the next.
    cache_creation_input_tokens: usize,
    /// Tokens of the answer, thinking included.
    output_tokens: usize,
    output_tokens_details: OutputTokensDetails,
}

impl Usage {
    /// All tokens of the prompt, those that were not read again, and of the others those that are kept.
    fn set_prompt(&mut self, n_prompt: usize, n_cached: usize, n_kept: usize) {
        self.cache_read_input_tokens = n_cached;
        self.cache_creation_input_tokens = n_kept;
        self.input_tokens = n_prompt.saturating_sub(n_cached + n_kept);
    }
}

/// Tokens of the answer by kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, ToSchema)]
#[schema(as = AnthropicOutputTokensDetails)]
pub(crate) struct OutputTokensDetails {
    thinking_tokens: usize,
}

/// How an answer ended.
#[derive(Clone, Debug, PartialEq, Serialize, ToSchema)]
#[schema(as = AnthropicMessageEnd)]
pub(crate) struct MessageEnd {
    stop_reason: Option<StopReason>,
    stop_sequence: Option<String>,
}

/// An event of a streamed answer: its name is its `type`.
#[derive(Clone, Debug, PartialEq, Serialize, ToSchema)]
#[serde(tag = "type", rename_all = "snake_case")]
#[schema(as = AnthropicEvent)]
pub(crate) enum Event {
    MessageStart {
        message: Message,
    },
    ContentBlockStart {
        index: usize,
        content_block: Block,
    },
    ContentBlockDelta {
        index: usize,
        delta: Delta,
    },
    ContentBlockStop {
        index: usize,
    },
    MessageDelta {
        delta: MessageEnd,
        usage: Usage,
    },
    MessageStop,
    /// Nothing has happened.
    Ping,
    /// Nothing comes after it.
    Error {
        error: ErrorDetail,
    },
}

impl Event {
    /// As it is sent.
    pub(crate) fn to_sse(&self) -> axum::response::sse::Event {
        let json = serde_json::to_string(self).expect("keys are text");
        axum::response::sse::Event::default().event(self.name()).data(json)
    }

    /// Its name in the stream.
    fn name(&self) -> &'static str {
        match self {
            Self::MessageStart { .. } => "message_start",
            Self::ContentBlockStart { .. } => "content_block_start",
            Self::ContentBlockDelta { .. } => "content_block_delta",
            Self::ContentBlockStop { .. } => "content_block_stop",
            Self::MessageDelta { .. } => "message_delta",
            Self::MessageStop => "message_stop",
            Self::Ping => "ping",
            Self::Error { .. } => "error",
        }
    }
}

/// Tells one answer.
#[derive(Debug)]
pub(crate) struct MessageWriter {
    /// What is complete of it.
    message: Message,
    parts: Parts,
    /// Blocks that were begun before the open one.
    n_block: usize,
    /// The id of the call that is open.
    call_id: String,
}

impl MessageWriter {
    /// `model`: the name in the request.
    pub(crate) fn new(model: String) -> Self {
        let message = Message {
            id: id::fresh("msg_"),
            r#type: "message",
            role: "assistant",
            model,
            content: Vec::new(),
            stop_reason: None,
            stop_sequence: None,
            usage: Usage::default(),
        };
        Self { message, parts: Parts::default(), n_block: 0, call_id: String::new() }
    }

    /// The events that an update leads to.
    pub(crate) fn update(&mut self, update: Update) -> Vec<Event> {
        let mut events = Vec::new();
        let Self { message, parts, n_block, call_id } = self;
        parts.push(&update, &mut |change| {
            let index = *n_block;
            match change {
                Change::Open(kind) => {
                    *call_id = id::fresh("toolu_");
                    let content_block = empty_block(kind, call_id);
                    events.push(Event::ContentBlockStart { index, content_block });
                }
                Change::Delta(kind, text) => {
                    events.push(Event::ContentBlockDelta { index, delta: delta(kind, text.to_owned()) });
                }
                Change::Close(part) => {
                    if part.kind == PartKind::Thinking {
                        let delta = Delta::SignatureDelta { signature: SIGNATURE.into() };
                        events.push(Event::ContentBlockDelta { index, delta });
                    }
                    events.push(Event::ContentBlockStop { index });
                    *n_block += 1;
                    message.content.extend(block(part, call_id));
                }
            }
        });
        match update {
            Update::Started { n_prompt, n_cached, n_kept } => {
                self.message.usage.set_prompt(n_prompt, n_cached, n_kept);
                events.push(Event::MessageStart { message: self.message.clone() });
            }
            Update::Done(done) => events.extend(self.end(done)),
            _ => {}
        }
        events
    }

    /// The answer, once it is over.
    pub(crate) fn into_message(self) -> Message {
        self.message
    }

    fn end(&mut self, done: Done) -> [Event; 2] {
        let message = &mut self.message;
        let Timings { n_prompt, n_cached, n_kept, .. } = done.timings;
        message.usage.set_prompt(n_prompt, n_cached, n_kept);
        message.usage.output_tokens = done.timings.n_generated;
        message.usage.output_tokens_details.thinking_tokens = done.n_reasoning;
        message.stop_reason = Some(match done.finish {
            Finish::Stop(_) if 0 < self.parts.n_call() => StopReason::ToolUse,
            Finish::Stop(_) => StopReason::EndTurn,
            Finish::StopText(_) => StopReason::StopSequence,
            Finish::Length | Finish::Interrupted => StopReason::MaxTokens,
            Finish::ContextFull => StopReason::ModelContextWindowExceeded,
        });
        if let Finish::StopText(text) = done.finish {
            message.stop_sequence = Some(text);
        }
        let end =
            MessageEnd { stop_reason: message.stop_reason, stop_sequence: message.stop_sequence.clone() };
        [Event::MessageDelta { delta: end, usage: message.usage }, Event::MessageStop]
    }
}

fn empty_block(kind: &PartKind, call_id: &str) -> Block {
    match kind {
        PartKind::Thinking => Block::Thinking { thinking: String::new(), signature: String::new() },
        PartKind::Text => Block::Text { text: String::new() },
        PartKind::Call { name } => {
            Block::ToolUse { id: call_id.to_owned(), name: name.clone(), input: Map::new() }
        }
    }
}

fn delta(kind: &PartKind, text: String) -> Delta {
    match kind {
        PartKind::Thinking => Delta::ThinkingDelta { thinking: text },
        PartKind::Text => Delta::TextDelta { text },
        PartKind::Call { .. } => Delta::InputJsonDelta { partial_json: text },
    }
}

/// A complete block; `None` for a call that was cut: clients would run it.
fn block(part: Part, call_id: &str) -> Option<Block> {
    let Part { kind, text, is_complete } = part;
    if !is_complete {
        return None;
    }
    Some(match kind {
        PartKind::Thinking => Block::Thinking { thinking: text, signature: SIGNATURE.into() },
        PartKind::Text => Block::Text { text },
        PartKind::Call { name } => {
            let input = serde_json::from_str(&text).unwrap_or_default();
            Block::ToolUse { id: call_id.to_owned(), name, input }
        }
    })
}

#[cfg(test)]
mod tests {
    use generate::Channel;
    use serde_json::json;

    use super::*;
    use crate::engine::CallUpdate;

    /// Thinking, text, two calls of one tool and one that was cut, in pieces of this many bytes.
    fn updates(n_byte: usize, finish: Finish, is_cut: bool) -> Vec<Update> {
        let mut updates = vec![Update::Started { n_prompt: 10, n_cached: 4, n_kept: 5 }];
        let mut pieces = |text: &str, update: &dyn Fn(String) -> Update| {
            updates
                .extend(text.as_bytes().chunks(n_byte).map(|b| update(String::from_utf8(b.into()).unwrap())));
        };
        pieces("hm", &|text| Update::Text { channel: Channel::Thinking, text });
        pieces("\nLet me look.\n", &|text| Update::Text { channel: Channel::Answer, text });
        for (index, city) in ["Rome", "Oslo"].into_iter().enumerate() {
            let json = json!({ "city": city }).to_string();
            updates.push(Update::Call(CallUpdate::Begin { index, name: "weather".into() }));
            let more = json.as_bytes().chunks(n_byte).map(|b| String::from_utf8(b.into()).unwrap());
            updates.extend(more.map(|json| Update::Call(CallUpdate::Arguments { index, json })));
            updates.push(Update::Call(CallUpdate::End { index, complete: index == 0 || !is_cut }));
        }
        let timings = Timings { n_prompt: 10, n_cached: 4, n_kept: 5, n_generated: 20, ..Timings::default() };
        updates.push(Update::Done(Done { finish, n_reasoning: 3, timings }));
        updates
    }

    fn write(updates: Vec<Update>) -> (Vec<Value>, Value) {
        let mut writer = MessageWriter::new("m".into());
        let events = updates.into_iter().flat_map(|update| writer.update(update));
        let events = events.map(|event| {
            let json = serde_json::to_value(&event).unwrap();
            assert_eq!(json["type"], event.name());
            json
        });
        let events: Vec<Value> = events.collect();
        (events, serde_json::to_value(writer.into_message()).unwrap())
    }

    /// A10, T22: calls would get the wrong arguments, or clients could not follow the order.
    #[test]
    fn calls_are_told_in_order() {
        let (events, message) = write(updates(100, Finish::Stop(0), false));
        let id = |i: usize| message["content"][i]["id"].clone();
        let start = |index: usize, block: Value| json!({ "type": "content_block_start", "index": index, "content_block": block });
        let delta = |index: usize, delta: Value| json!({ "type": "content_block_delta", "index": index, "delta": delta });
        let stop = |index: usize| json!({ "type": "content_block_stop", "index": index });
        let call = |index: usize| {
            start(index, json!({ "type": "tool_use", "id": id(index), "name": "weather", "input": {} }))
        };
        let arguments = |index: usize, text: &str| {
            delta(index, json!({ "type": "input_json_delta", "partial_json": text }))
        };
        let usage = json!({
            "input_tokens": 1, "cache_read_input_tokens": 4, "cache_creation_input_tokens": 5, "output_tokens": 20,
            "output_tokens_details": { "thinking_tokens": 3 },
        });
        let expected = json!([
            start(0, json!({ "type": "thinking", "thinking": "", "signature": "" })),
            delta(0, json!({ "type": "thinking_delta", "thinking": "hm" })),
            delta(0, json!({ "type": "signature_delta", "signature": "flash-moe" })),
            stop(0),
            start(1, json!({ "type": "text", "text": "" })),
            delta(1, json!({ "type": "text_delta", "text": "\nLet me look.\n" })),
            stop(1),
            call(2),
            arguments(2, r#"{"city":"Rome"}"#),
            stop(2),
            call(3),
            arguments(3, r#"{"city":"Oslo"}"#),
            stop(3),
            { "type": "message_delta", "delta": { "stop_reason": "tool_use", "stop_sequence": null }, "usage": usage },
            { "type": "message_stop" },
        ]);
        assert_eq!(json!(events[1..]), expected);
        assert_eq!(events[0]["type"], "message_start");
        assert_eq!(message["usage"], usage);
        let contents = json!([
            { "type": "thinking", "thinking": "hm", "signature": "flash-moe" },
            { "type": "text", "text": "\nLet me look.\n" },
            { "type": "tool_use", "id": id(2), "name": "weather", "input": { "city": "Rome" } },
            { "type": "tool_use", "id": id(3), "name": "weather", "input": { "city": "Oslo" } },
        ]);
        assert_eq!(message["content"], contents);
        assert_ne!(id(2), id(3));
        let (bytes, mut same) = write(updates(1, Finish::Stop(0), false));
        assert!(events.len() < bytes.len());
        for i in [2, 3] {
            same["content"][i]["id"] = id(i);
        }
        assert_eq!(same["content"], contents, "one byte at a time");
    }

    /// T21, A39: a call that was cut would be run, or a complete one not.
    #[test]
    fn why_it_ended_is_right() {
        for (finish, is_cut, reason, n_call) in [
            (Finish::Stop(0), false, "tool_use", 2),
            (Finish::Length, true, "max_tokens", 1),
            (Finish::Length, false, "max_tokens", 2),
            (Finish::ContextFull, true, "model_context_window_exceeded", 1),
            (Finish::StopText("END".into()), false, "stop_sequence", 2),
        ] {
            let (events, message) = write(updates(7, finish, is_cut));
            let calls = message["content"].as_array().unwrap().iter().filter(|b| b["type"] == "tool_use");
            assert_eq!((message["stop_reason"].as_str(), calls.count()), (Some(reason), n_call));
            let n = |kind: &str| events.iter().filter(|event| event["type"] == kind).count();
            assert_eq!((n("content_block_start"), n("content_block_stop")), (4, 4), "{reason}");
        }
    }
}
