//! What requests may hold. Other fields are ignored, and `null` is the same as nothing.
#![expect(dead_code, reason = "only describes")]

use serde::Deserialize;
use serde_json::Value;
use utoipa::ToSchema;

/// Body of `POST /v1/chat/completions`.
#[derive(ToSchema)]
pub(super) struct ChatCompletionRequest {
    /// Ignored: there is one model.
    model: Option<String>,
    /// The conversation. If the last message is the assistant's, the answer continues it.
    #[schema(min_items = 1)]
    messages: Vec<ChatMessage>,
    /// Tools that the model knows of: `{"type": "function", "function": {"name", "description", "parameters"}}`.
    #[schema(value_type = Option<Vec<Object>>)]
    tools: Option<Value>,
    /// `auto`, `none`, `required`, or an object that names a function.
    tool_choice: Option<Value>,
    /// false: at most one call.
    parallel_tool_calls: Option<bool>,
    /// false: calls need not fit their schemas, unless a tool is strict.
    constrain_tool_calls: Option<bool>,
    /// true: an answer that would reach its limit inside JSON or a call is completed before, with the first values
    /// that fit; the reason why it ended stays the limit.
    close_at_limit: Option<bool>,
    /// Form of the answer's text: type `text`, `json_object`, `json_schema`, `regex` or `lark`.
    #[schema(value_type = Option<Object>)]
    response_format: Option<Value>,
    /// `none`, `minimal`, `low`, `medium`, `high`, `xhigh` or `max`.
    reasoning_effort: Option<String>,
    /// Thinking on or off.
    enable_thinking: Option<bool>,
    /// Most tokens of thinking; 0: off, -1: no limit.
    #[schema(minimum = -1)]
    thinking_budget: Option<i64>,
    /// Variables for the model's template.
    #[schema(value_type = Option<Object>)]
    chat_template_kwargs: Option<Value>,
    /// Most tokens of the answer, thinking included; -1: what the context has left.
    #[schema(minimum = -1)]
    max_completion_tokens: Option<i64>,
    /// The same by its older name.
    #[schema(minimum = -1)]
    max_tokens: Option<i64>,
    /// Answers to make.
    #[schema(minimum = 1, maximum = 16)]
    n: Option<usize>,
    /// A text that ends the answer, or several.
    stop: Option<Value>,
    /// Send the answer as events while it is made.
    stream: Option<bool>,
    /// `{"include_usage": true}`
    #[schema(value_type = Option<Object>)]
    stream_options: Option<Value>,
    /// Tell log probabilities.
    logprobs: Option<bool>,
    /// And of so many likeliest tokens.
    #[schema(minimum = 0, maximum = 20)]
    top_logprobs: Option<usize>,
    /// Token ids, and what is added to their logits.
    #[schema(value_type = Option<Object>)]
    logit_bias: Option<Value>,
    /// 0: always the most likely token.
    #[schema(minimum = 0, maximum = 100)]
    temperature: Option<f32>,
    /// Choose among the most likely tokens that have this probability together.
    #[schema(minimum = 0, maximum = 1)]
    top_p: Option<f32>,
    /// Choose among so many most likely tokens; 0 or -1: all.
    #[schema(minimum = -1)]
    top_k: Option<i64>,
    /// Choose among tokens with at least this fraction of the most likely one's probability.
    #[schema(minimum = 0, maximum = 1)]
    min_p: Option<f32>,
    /// Against tokens that were generated.
    #[schema(minimum = -2, maximum = 2)]
    presence_penalty: Option<f32>,
    /// The same for each time.
    #[schema(minimum = -2, maximum = 2)]
    frequency_penalty: Option<f32>,
    /// Against tokens of prompt and answer; 1: off.
    #[schema(minimum = 0.01, maximum = 10)]
    repetition_penalty: Option<f32>,
    /// Start of the random sequence.
    seed: Option<i64>,
    /// A name for the conversation: its next request finds the work of this one sooner.
    prompt_cache_key: Option<String>,
    /// The beginning of the prompt will come back. How long what is kept stays is the server's to say.
    prompt_cache_retention: Option<String>,
    /// Tell how far the prompt is, in a stream.
    return_progress: Option<bool>,
}

/// A message of the conversation.
#[derive(ToSchema)]
struct ChatMessage {
    /// `system`, `developer`, `user`, `assistant` or `tool`.
    #[schema(example = "user")]
    role: String,
    /// A text, or parts `{"type": "text", "text": …}`.
    content: Option<Value>,
    /// Thinking of the assistant.
    reasoning_content: Option<String>,
    /// Calls of the assistant.
    #[schema(value_type = Option<Vec<Object>>)]
    tool_calls: Option<Value>,
    /// Which call a message of a tool answers.
    tool_call_id: Option<String>,
    /// Of the speaker.
    name: Option<String>,
}

/// Body of `POST /v1/completions`. Sampling is as in `POST /v1/chat/completions`.
#[derive(ToSchema)]
pub(super) struct CompletionRequest {
    /// Ignored: there is one model.
    model: Option<String>,
    /// A text, token ids, or an array of either.
    prompt: Value,
    /// Most tokens of the answer; -1: what the context has left.
    #[schema(minimum = -1)]
    max_tokens: Option<i64>,
    /// Answers to each prompt.
    #[schema(minimum = 1, maximum = 16)]
    n: Option<usize>,
    /// Repeat the prompt.
    echo: Option<bool>,
    /// A text that ends the answer, or several.
    stop: Option<Value>,
    /// Send the answer as events while it is made.
    stream: Option<bool>,
    /// Tell log probabilities, and those of so many likeliest tokens.
    #[schema(minimum = 0, maximum = 20)]
    logprobs: Option<usize>,
    /// 0: always the most likely token.
    #[schema(minimum = 0, maximum = 100)]
    temperature: Option<f32>,
    /// Choose among the most likely tokens that have this probability together.
    #[schema(minimum = 0, maximum = 1)]
    top_p: Option<f32>,
    /// Start of the random sequence.
    seed: Option<i64>,
    /// A name for the conversation: its next request finds the work of this one sooner.
    prompt_cache_key: Option<String>,
    /// The beginning of the prompt will come back. How long what is kept stays is the server's to say.
    prompt_cache_retention: Option<String>,
}

/// Body of `POST /v1/responses`.
#[derive(ToSchema)]
pub(super) struct ResponsesRequest {
    /// Ignored: there is one model.
    model: Option<String>,
    /// A text, or items: messages, thinking, calls and their results.
    input: ResponsesInput,
    /// What the model is told first.
    instructions: Option<String>,
    /// Functions, and groups of them (`namespace`). Other kinds are left out.
    #[schema(value_type = Option<Vec<Object>>)]
    tools: Option<Value>,
    /// `auto`, `none`, `required`, or an object that names a function or those allowed.
    tool_choice: Option<Value>,
    /// false: at most one call.
    parallel_tool_calls: Option<bool>,
    /// false: calls need not fit their schemas, unless a tool is strict.
    constrain_tool_calls: Option<bool>,
    /// true: an answer that would reach its limit inside JSON or a call is completed before, with the first values
    /// that fit; the reason why it ended stays the limit.
    close_at_limit: Option<bool>,
    /// Most tokens of the answer, thinking included.
    #[schema(minimum = 1)]
    max_output_tokens: Option<usize>,
    /// `effort`: how much to think; `summary`: tell thinking as its own summary.
    #[schema(value_type = Option<Object>)]
    reasoning: Option<Value>,
    /// `format`: type `text`, `json_object` or `json_schema`.
    #[schema(value_type = Option<Object>)]
    text: Option<Value>,
    /// Send the answer as events while it is made.
    stream: Option<bool>,
    /// `reasoning.encrypted_content`: thinking in a form to be handed back.
    include: Option<Vec<String>>,
    /// Ignored: nothing is stored.
    store: Option<bool>,
    /// A name for the conversation: its next request finds the work of this one sooner.
    prompt_cache_key: Option<String>,
    /// The beginning of the prompt will come back. How long what is kept stays is the server's to say.
    prompt_cache_retention: Option<String>,
    /// 0: always the most likely token.
    #[schema(minimum = 0, maximum = 100)]
    temperature: Option<f32>,
    /// Choose among the most likely tokens that have this probability together.
    #[schema(minimum = 0, maximum = 1)]
    top_p: Option<f32>,
    /// Told back.
    #[schema(value_type = Option<Object>)]
    metadata: Option<Value>,
}

/// A text or items.
#[derive(Deserialize, ToSchema)]
#[serde(untagged)]
enum ResponsesInput {
    Text(String),
    Items(Vec<ResponsesInputItem>),
}

/// An item of a conversation. Kinds that are not known are left out.
#[derive(Deserialize, ToSchema)]
#[serde(tag = "type", rename_all = "snake_case")]
enum ResponsesInputItem {
    Message {
        /// `user`, `assistant`, `system` or `developer`.
        #[schema(example = "user")]
        role: String,
        /// A text, or parts of text.
        content: Option<Value>,
    },
    Reasoning {
        #[schema(value_type = Option<Vec<Object>>)]
        summary: Option<Value>,
        #[schema(value_type = Option<Vec<Object>>)]
        content: Option<Value>,
        encrypted_content: Option<String>,
    },
    FunctionCall {
        call_id: Option<String>,
        namespace: Option<String>,
        name: String,
        /// JSON text.
        arguments: Option<String>,
    },
    FunctionCallOutput {
        call_id: Option<String>,
        /// A text, or parts of text.
        output: Option<Value>,
    },
}

/// Body of `POST /v1/messages`.
#[derive(ToSchema)]
#[schema(as = AnthropicMessagesRequest)]
pub(super) struct MessagesRequest {
    /// Any name: it is told back.
    model: String,
    /// The conversation. If the last message is the assistant's, the answer continues it.
    #[schema(min_items = 1)]
    messages: Vec<InputMessage>,
    /// What the model is told first.
    system: Option<InputContent>,
    /// Most tokens of the answer, thinking included. Left out: what the context has left.
    #[schema(minimum = 1)]
    max_tokens: Option<usize>,
    /// Texts that end the answer.
    #[schema(max_items = 16)]
    stop_sequences: Option<Vec<String>>,
    /// Send the answer as events while it is made.
    stream: Option<bool>,
    /// 0: always the most likely token.
    #[schema(minimum = 0, maximum = 100)]
    temperature: Option<f32>,
    /// Choose among so many most likely tokens.
    top_k: Option<usize>,
    /// Choose among the most likely tokens that have this probability together.
    #[schema(minimum = 0, maximum = 1)]
    top_p: Option<f32>,
    /// Off unless it is asked for.
    thinking: Option<InputThinking>,
    /// Tools that the model knows of. Those that Anthropic's servers have are left out.
    tools: Option<Vec<InputTool>>,
    /// Which of them it calls.
    tool_choice: Option<InputToolChoice>,
    /// false: calls need not fit their schemas, unless a tool is strict.
    constrain_tool_calls: Option<bool>,
    /// true: an answer that would reach its limit inside JSON or a call is completed before, with the first values
    /// that fit; the reason why it ended stays the limit.
    close_at_limit: Option<bool>,
    /// `format`: `{"type": "json_schema", "schema": …}`.
    #[schema(value_type = Option<Object>)]
    output_config: Option<Value>,
    /// The beginning of the prompt will come back. The same in blocks and tools. Everything is kept without it too, as
    /// long as there is room.
    #[schema(value_type = Option<Object>)]
    cache_control: Option<Value>,
}

/// Body of `POST /v1/messages/count_tokens`: fields as in `POST /v1/messages`.
#[derive(ToSchema)]
#[schema(as = AnthropicCountTokensRequest)]
pub(super) struct CountTokensRequest {
    model: String,
    #[schema(min_items = 1)]
    messages: Vec<InputMessage>,
    system: Option<InputContent>,
    thinking: Option<InputThinking>,
    tools: Option<Vec<InputTool>>,
    tool_choice: Option<InputToolChoice>,
}

/// A message of the conversation.
#[derive(ToSchema)]
#[schema(as = AnthropicInputMessage)]
struct InputMessage {
    /// `user`, `assistant` or `system`.
    #[schema(example = "user")]
    role: String,
    content: InputContent,
}

/// A text or blocks.
#[derive(Deserialize, ToSchema)]
#[serde(untagged)]
#[schema(as = AnthropicInputContent)]
enum InputContent {
    Text(String),
    Blocks(Vec<InputBlock>),
}

/// A block of a message. Kinds that are not known are left out; images, and documents that are no text, are refused.
#[derive(Deserialize, ToSchema)]
#[serde(tag = "type", rename_all = "snake_case")]
#[schema(as = AnthropicInputBlock)]
enum InputBlock {
    Text {
        text: String,
    },
    Thinking {
        thinking: String,
        signature: Option<String>,
    },
    ToolUse {
        id: String,
        name: String,
        #[schema(value_type = Object)]
        input: Value,
    },
    ToolResult {
        tool_use_id: String,
        /// A text, or blocks of text.
        content: Option<Value>,
        is_error: Option<bool>,
    },
}

/// Thinking on or off.
#[derive(ToSchema)]
#[schema(as = AnthropicThinking)]
struct InputThinking {
    /// `enabled`, `adaptive`, `between_tools` or `disabled`.
    #[schema(example = "enabled")]
    r#type: String,
    /// Most tokens of thinking, less than `max_tokens`; 0: off.
    budget_tokens: Option<usize>,
}

/// A tool of the client.
#[derive(ToSchema)]
#[schema(as = AnthropicTool)]
struct InputTool {
    #[schema(min_length = 1)]
    name: String,
    description: Option<String>,
    /// JSON schema of its arguments.
    #[schema(value_type = Object)]
    input_schema: Value,
    /// Arguments must match the schema.
    strict: Option<bool>,
}

/// Which tools an answer calls.
#[derive(ToSchema)]
#[schema(as = AnthropicToolChoice)]
struct InputToolChoice {
    /// `auto`, `any`, `tool` or `none`.
    #[schema(example = "auto")]
    r#type: String,
    /// Which one, for `tool`.
    name: Option<String>,
    /// At most one call.
    disable_parallel_tool_use: Option<bool>,
}

/// Body of `POST /tokenize`: a text or a conversation.
#[derive(ToSchema)]
pub(super) struct TokenizeRequest {
    /// The text.
    content: Option<String>,
    /// The same.
    prompt: Option<String>,
    /// A conversation, as in `POST /v1/chat/completions`.
    messages: Option<Vec<ChatMessage>>,
    /// Control tokens that the text quotes count as such.
    parse_special: Option<bool>,
    /// Tell each token's text.
    with_pieces: Option<bool>,
}

/// Body of `POST /detokenize`.
#[derive(ToSchema)]
pub(super) struct DetokenizeRequest {
    tokens: Vec<u32>,
}
