//! How an answer is told in the Messages API: as events while it is made, or as one message.

use generate::Finish;
use serde::Serialize;
use serde_json::{Map, Value};
use utoipa::ToSchema;

use crate::api::anthropic::error::ErrorDetail;
use crate::api::parts::{Change, Part, PartKind, Parts};
use crate::engine::{Done, Update};
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
enum Block {
    Thinking { thinking: String, signature: String },
    Text { text: String },
    ToolUse { id: String, name: String, input: Map<String, Value> },
}

/// More of a part.
#[derive(Clone, Debug, PartialEq, Serialize, ToSchema)]
#[serde(tag = "type", rename_all = "snake_case")]
#[schema(as = AnthropicDelta)]
enum Delta {
    ThinkingDelta { thinking: String },
    SignatureDelta { signature: String },
    TextDelta { text: String },
    InputJsonDelta { partial_json: String },
}

/// Why an answer ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
#[schema(as = AnthropicStopReason)]
enum StopReason {
    EndTurn,
    MaxTokens,
    StopSequence,
    ToolUse,
    ModelContextWindowExceeded,
}

/// Counts of tokens.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, ToSchema)]
#[schema(as = AnthropicUsage)]
struct Usage {
    /// Tokens of the prompt that were read for this answer.
    input_tokens: usize,
    /// Tokens of the prompt that were read for an answer before.
    cache_read_input_tokens: usize,
    /// Always 0: what is kept costs nothing.
    cache_creation_input_tokens: usize,
    /// Tokens of the answer, thinking included.
    output_tokens: usize,
    output_tokens_details: OutputTokensDetails,
}

/// Tokens of the answer by kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, ToSchema)]
#[schema(as = AnthropicOutputTokensDetails)]
struct OutputTokensDetails {
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
            Update::Started { n_prompt, n_cached } => {
                self.message.usage.input_tokens = n_prompt - n_cached;
                self.message.usage.cache_read_input_tokens = n_cached;
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
