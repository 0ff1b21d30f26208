//! What can go wrong between a conversation and its answer.

use model::ModelError;

/// A prompt that could not be made, or an answer that could not be generated.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum GenerateError {
    /// A file of the checkpoint that is not JSON of the expected form.
    #[error("{file}: {why}")]
    Json {
        /// Which of the checkpoint's files.
        file: &'static str,
        /// What is wrong, with line and column where known.
        why: String,
    },
    /// A tokenizer.json that cannot be used.
    #[error("tokenizer.json: {why}")]
    Tokenizer {
        /// What is wrong or not supported.
        why: String,
    },
    /// Text that the tokenizer cannot encode.
    #[error("tokenizer: cannot encode the text: {why}")]
    Encode {
        /// What went wrong.
        why: String,
    },
    /// The checkpoint has no chat template.
    #[error(
        "the model has no chat template (chat_template.jinja, or chat_template in tokenizer_config.json)"
    )]
    NoTemplate,
    /// A template that cannot be compiled.
    #[error("chat template: {why}")]
    TemplateSyntax {
        /// The message of the template engine, with the line.
        why: String,
    },
    /// The template itself refused the conversation (its `raise_exception`).
    #[error("the chat template refuses this conversation: {why}")]
    TemplateRefused {
        /// The template's own words.
        why: String,
    },
    /// A template that failed while rendering.
    #[error("chat template: rendering failed: {why}")]
    TemplateRender {
        /// The message of the template engine, with the line.
        why: String,
    },
    /// A template that does more work than a conversation of this size can need.
    #[error("chat template: rendering was stopped after {fuel} steps (an endless loop?)")]
    TemplateFuel {
        /// The budget: one unit an instruction, one for 64 bytes of data.
        fuel: u64,
    },
    /// Text that quotes control tokens, under a template that looks at them.
    #[error(
        "a message quotes control tokens (such as {token}) and the chat template does not render it the same when \
         they are kept apart from real ones; remove them from the message"
    )]
    Unguarded {
        /// One of the quoted tokens.
        token: String,
    },
    /// A conversation without messages.
    #[error("the conversation is empty: at least one message is needed")]
    NoMessages,
    /// A conversation that is not well formed.
    #[error("message {message_idx}: {why}")]
    Message {
        /// Position in the conversation, from 0.
        message_idx: usize,
        /// What is wrong.
        why: String,
    },
    /// A tool that cannot be used.
    #[error("a tool cannot be used: {why}")]
    Tool {
        /// What is wrong.
        why: String,
    },
    /// A schema, regular expression or grammar that cannot be used.
    #[error("{what}: {why}")]
    Grammar {
        /// What was given.
        what: String,
        /// What is wrong or not supported.
        why: String,
    },
    /// A text that is meant to end answers but cannot be looked for.
    #[error("stop texts: {why}")]
    StopText {
        /// What is wrong.
        why: String,
    },
    /// A grammar that lets no token follow.
    #[error(
        "no token may follow at position {pos}: what the answer is held to allows none that this model has; \
         relax the schema or the grammar"
    )]
    NothingAllowed {
        /// Tokens fed so far.
        pos: usize,
    },
    /// A sampling parameter outside its range.
    #[error("{name} is {value}, it must be {range}")]
    Parameter {
        /// Name as in generation_config.json.
        name: &'static str,
        /// What was given.
        value: f64,
        /// What is allowed.
        range: &'static str,
    },
    /// Logits that are not numbers.
    #[error(
        "logit {id} of {n_vocab} at position {pos} is {value}: the model overflowed or its weights are damaged"
    )]
    NonFinite {
        /// First token whose logit is not finite.
        id: usize,
        /// Logits that were looked at.
        n_vocab: usize,
        /// Tokens fed so far.
        pos: usize,
        /// The logit.
        value: f32,
    },
    /// A model that returned another number of logits than it has tokens.
    #[error("the model returned {got} logits, its vocabulary has {n_vocab}")]
    LogitCount {
        /// Logits returned.
        got: usize,
        /// Logits expected.
        n_vocab: usize,
    },
    /// Nothing to generate from.
    #[error("the prompt is empty: at least one token is needed")]
    EmptyPrompt,
    /// The model already stands at or after the end of the prompt.
    #[error(
        "the model stands at position {pos}, the prompt has {n_prompt} tokens: rewind before their end first"
    )]
    NothingToFeed {
        /// Tokens fed.
        pos: usize,
        /// Tokens of the prompt.
        n_prompt: usize,
    },
    /// A prompt longer than the context.
    #[error("the prompt has {n_prompt} tokens, the context holds {n_ctx}: shorten it or raise --ctx")]
    PromptTooLong {
        /// Tokens of the prompt.
        n_prompt: usize,
        /// The context.
        n_ctx: usize,
    },
    /// The forward pass failed.
    #[error(transparent)]
    Model(#[from] ModelError),
}
