//! What the OpenAI API answers, and errors. Fields that only some answers have are left out of `required`.
#![expect(dead_code, reason = "only describes")]

use serde_json::Value;
use utoipa::ToSchema;

/// An error.
#[derive(ToSchema)]
pub(super) struct Error {
    error: ErrorDetail,
}

/// What went wrong.
#[derive(ToSchema)]
struct ErrorDetail {
    /// For people.
    message: String,
    /// Such as `invalid_request_error`.
    r#type: String,
    /// The field that is wrong.
    param: Option<String>,
    /// Such as `context_length_exceeded`.
    code: Option<String>,
}

/// One or several answers to a conversation.
#[derive(ToSchema)]
pub(super) struct ChatCompletion {
    id: String,
    /// `chat.completion`
    object: String,
    created: u64,
    model: String,
    system_fingerprint: String,
    choices: Vec<ChatChoice>,
    usage: Usage,
    /// Speed and cache, as far as known.
    #[schema(value_type = Object)]
    timings: Value,
}

/// An answer.
#[derive(ToSchema)]
struct ChatChoice {
    index: usize,
    message: AnswerMessage,
    /// Of the tokens of the content.
    #[schema(value_type = Option<Object>)]
    logprobs: Value,
    /// `stop`, `length` or `tool_calls`
    finish_reason: String,
}

/// The assistant's message.
#[derive(ToSchema)]
struct AnswerMessage {
    /// `assistant`
    role: String,
    content: Option<String>,
    /// Thinking, if there was any. Servers may call it `reasoning`.
    #[schema(nullable = false)]
    reasoning_content: Option<String>,
    /// Calls of tools, if there were any.
    #[schema(value_type = Option<Vec<Object>>)]
    tool_calls: Option<Value>,
    /// Always null.
    refusal: Option<String>,
}

/// Counts of tokens.
#[derive(ToSchema)]
struct Usage {
    prompt_tokens: usize,
    completion_tokens: usize,
    total_tokens: usize,
    #[schema(value_type = Object)]
    prompt_tokens_details: Value,
    #[schema(value_type = Object)]
    completion_tokens_details: Value,
}

/// One or several continuations.
#[derive(ToSchema)]
pub(super) struct Completion {
    id: String,
    /// `text_completion`
    object: String,
    created: u64,
    model: String,
    choices: Vec<TextChoice>,
    usage: Usage,
}

/// A continuation.
#[derive(ToSchema)]
struct TextChoice {
    index: usize,
    text: String,
    #[schema(value_type = Option<Object>)]
    logprobs: Value,
    /// `stop` or `length`
    finish_reason: String,
}

/// All names of the model.
#[derive(ToSchema)]
pub(super) struct ModelList {
    data: Vec<Model>,
}

/// A name of the model.
#[derive(ToSchema)]
pub(super) struct Model {
    id: String,
    /// `model`
    #[schema(nullable = false)]
    object: Option<String>,
    #[schema(nullable = false)]
    created: Option<u64>,
    #[schema(nullable = false)]
    owned_by: Option<String>,
    /// Tokens that prompt and answer may have together.
    #[schema(nullable = false)]
    context_length: Option<usize>,
}

/// Tokens.
#[derive(ToSchema)]
pub(super) struct Tokenized {
    count: usize,
    max_model_len: usize,
    /// Ids, or with `with_pieces` objects with `id` and `piece`.
    tokens: Vec<Value>,
}

/// Text.
#[derive(ToSchema)]
pub(super) struct Detokenized {
    content: String,
    /// The same.
    prompt: String,
}

/// Whether the server is there.
#[derive(ToSchema)]
pub(super) struct Health {
    /// `ok`, or what else it does.
    status: String,
}
