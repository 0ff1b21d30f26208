//! From what any API asks to jobs for the engine, and from the engine's updates to a whole answer.

use futures_util::future::try_join_all;
use generate::{
    Channel, ChatRequest, Finish, GenerateOptions, Prepared, SamplingOverrides, TokenLogprob, Tokenizer,
};

use crate::api::thinking::Thinking;
use crate::api::tokens::{Chosen, OpenTokens};
use crate::app::App;
use crate::engine::{CacheHint, CallUpdate, Done, Failure, FailureKind, Job, Update, Updates};
use crate::error::ApiError;
use crate::off_thread::off_thread;

/// Of a warning, in the log.
const WARNING_CHARS_MAX: usize = 300;

/// How answers are generated, whatever API they are asked for through.
#[derive(Clone, Debug, Default)]
pub(crate) struct Wishes {
    pub(crate) sampling: SamplingOverrides,
    pub(crate) logit_bias: Vec<(u32, f32)>,
    pub(crate) stop_texts: Vec<String>,
    /// `None`: what the context has left.
    pub(crate) max_tokens: Option<usize>,
    pub(crate) thinking: Thinking,
    pub(crate) n_top_logprob: Option<usize>,
    /// Answers to the same prompt.
    pub(crate) n_choice: usize,
    pub(crate) wants_progress: bool,
    pub(crate) wants_timings: bool,
    /// Ends of turns do not end the answer.
    pub(crate) ignores_stop_ids: bool,
    /// What the answer is held to is completed before its limit cuts it.
    pub(crate) close_at_limit: bool,
    pub(crate) hint: CacheHint,
}

/// What an answer is made from.
#[derive(Clone, Debug)]
pub(crate) enum Source {
    /// A conversation.
    Chat(Box<ChatRequest>),
    /// Text in the model's own form.
    Raw(String),
    /// Tokens.
    Ids(Vec<u32>),
}

/// One prompt's jobs.
#[derive(Debug)]
pub(crate) struct Asked {
    pub(crate) jobs: Vec<Job>,
    /// The prompt as text.
    pub(crate) text: String,
}

impl App {
    /// Renders, tokenises and checks, off the threads that serve connections.
    pub(crate) async fn prepare(&self, source: Source, wishes: Wishes) -> Result<Asked, ApiError> {
        let app = self.clone();
        off_thread(move || app.prepare_now(source, wishes)).await
    }

    fn prepare_now(&self, source: Source, wishes: Wishes) -> Result<Asked, ApiError> {
        let options = self.options();
        let Prepared { prompt, n_settled, output, constraint } =
            self.prompt(source, wishes.thinking.is_on)?;
        if let Some(line) = warning_line(&prompt.warnings) {
            eprintln!("{line}");
        }
        if prompt.ids.is_empty() {
            return Err(ApiError::invalid("the prompt is empty"));
        }
        if options.n_ctx < prompt.ids.len() {
            return Err(ApiError::too_long(prompt.ids.len(), options.n_ctx));
        }
        let base = GenerateOptions {
            sampling: self.text().sampling(&with_defaults(&wishes.sampling, &options.sampling))?,
            logit_bias: wishes.logit_bias,
            stop_ids: if wishes.ignores_stop_ids { Vec::new() } else { self.text().stop_ids().to_vec() },
            stop_texts: wishes.stop_texts,
            max_tokens: wishes.max_tokens.or(options.max_tokens),
            thinking_budget: wishes.thinking.budget,
            n_top_logprob: wishes.n_top_logprob,
            output,
            constraint,
            close_at_limit: wishes.close_at_limit,
        };
        let borders = self.text().message_borders(&prompt.ids);
        let job = |choice: usize| {
            let mut options = base.clone();
            options.sampling.seed = options.sampling.seed.wrapping_add(choice as u64);
            Job {
                prompt: prompt.ids.clone(),
                n_settled,
                borders: borders.clone(),
                hint: wishes.hint.clone(),
                options,
                wants_progress: wishes.wants_progress,
                wants_timings: wishes.wants_timings,
            }
        };
        Ok(Asked { jobs: (0..wishes.n_choice.max(1)).map(job).collect(), text: prompt.text })
    }

    /// The prompt of a source.
    pub(crate) fn prompt(&self, source: Source, thinking: Option<bool>) -> Result<Prepared, ApiError> {
        let n_vocab = self.options().n_vocab;
        match source {
            Source::Chat(mut chat) => {
                chat.thinking = thinking;
                Ok(self.text().prepare(&chat)?)
            }
            Source::Raw(text) => {
                let mut prepared = self.text().prepare_raw(text)?;
                prepared.n_settled = prepared.prompt.ids.len();
                Ok(prepared)
            }
            Source::Ids(ids) => {
                if let Some(id) = ids.iter().find(|&&id| n_vocab <= id as usize) {
                    let what = format!("token id {id} is outside the vocabulary of {n_vocab}");
                    return Err(ApiError::field("prompt", what));
                }
                let mut prepared = self.text().prepare_raw(String::new())?;
                prepared.prompt.text = self.text().tokenizer().decode(&ids, false);
                prepared.n_settled = ids.len();
                prepared.prompt.ids = ids;
                Ok(prepared)
            }
        }
    }
}

/// What a request leaves open is as the server has it; a seed differs each time.
fn with_defaults(user: &SamplingOverrides, server: &SamplingOverrides) -> SamplingOverrides {
    SamplingOverrides {
        temperature: user.temperature.or(server.temperature),
        top_k: user.top_k.or(server.top_k),
        top_p: user.top_p.or(server.top_p),
        min_p: user.min_p.or(server.min_p),
        presence_penalty: user.presence_penalty.or(server.presence_penalty),
        frequency_penalty: user.frequency_penalty.or(server.frequency_penalty),
        repetition_penalty: user.repetition_penalty.or(server.repetition_penalty),
        seed: user.seed.or(server.seed).or_else(|| Some(crate::id::random())),
    }
}

/// What of a conversation was smoothed over, in one line for the log.
fn warning_line(warnings: &[String]) -> Option<String> {
    let first: String = warnings.first()?.chars().take(WARNING_CHARS_MAX).collect();
    let more =
        if warnings.len() == 1 { String::new() } else { format!(" (and {} more)", warnings.len() - 1) };
    Some(format!("in a request: {first}{more}"))
}

/// A call of a tool.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Call {
    pub(crate) name: String,
    /// JSON text.
    pub(crate) arguments: String,
    /// The model ended it; else the arguments are what came of them.
    pub(crate) is_complete: bool,
}

/// A whole answer.
#[derive(Clone, Debug)]
pub(crate) struct Answer {
    pub(crate) text: String,
    pub(crate) thinking: String,
    pub(crate) calls: Vec<Call>,
    /// Of all tokens, in order.
    pub(crate) tokens: Vec<(u32, Option<Box<TokenLogprob>>)>,
    /// Pieces of text, each with the number of tokens before its end; `None`: something else came.
    pub(crate) pieces: Vec<(usize, Option<String>)>,
    pub(crate) done: Done,
}

impl Answer {
    /// Reads all answers to their ends, side by side: one that nobody reads would have to wait for the others.
    pub(crate) async fn read_all(updates: &mut [Updates]) -> Result<Vec<Self>, ApiError> {
        try_join_all(updates.iter_mut().map(Self::read)).await
    }

    /// Reads it to its end.
    async fn read(updates: &mut Updates) -> Result<Self, ApiError> {
        let (mut text, mut thinking, mut calls) = (String::new(), String::new(), Vec::<Call>::new());
        let (mut tokens, mut pieces) = (Vec::new(), Vec::new());
        loop {
            match updates.next().await.unwrap_or_else(lost) {
                Update::Started { .. } | Update::Progress { .. } | Update::Timings(_) => {}
                Update::Token { id, logprob } => tokens.push((id, logprob)),
                Update::Text { channel: Channel::Thinking, text } => {
                    thinking += &text;
                    pieces.push((tokens.len(), None));
                }
                Update::Text { channel: Channel::Answer, text: piece } => {
                    text += &piece;
                    pieces.push((tokens.len(), Some(piece)));
                }
                Update::Call(CallUpdate::Begin { name, .. }) => calls.push(Call { name, ..Call::default() }),
                Update::Call(CallUpdate::Arguments { json, .. }) => {
                    if let Some(call) = calls.last_mut() {
                        call.arguments += &json;
                    }
                }
                Update::Call(CallUpdate::End { complete, .. }) => {
                    if let Some(call) = calls.last_mut() {
                        call.is_complete = complete;
                    }
                }
                Update::Done(done) => {
                    return Ok(Self { text, thinking, calls, tokens, pieces, done });
                }
                Update::Failed(failure) => return Err(failure.into()),
            }
        }
    }
}

impl Answer {
    /// The tokens of the text, with their log probabilities if those were asked for.
    pub(crate) fn chosen(&self, tokenizer: &Tokenizer) -> Vec<Chosen> {
        let mut open = OpenTokens::default();
        let (mut n_pushed, mut chosen) = (0, Vec::new());
        for (n_token, piece) in &self.pieces {
            for (id, logprob) in &self.tokens[n_pushed..*n_token] {
                open.push(*id, logprob.clone());
            }
            n_pushed = *n_token;
            match piece {
                Some(text) => chosen.extend(open.take(text, tokenizer)),
                None => open.clear(),
            }
        }
        chosen
    }
}

/// For an engine that ended without a word.
pub(crate) fn lost() -> Update {
    Update::Failed(Failure { kind: FailureKind::Engine, message: "the engine has stopped".into() })
}

/// How the OpenAI API calls the end of an answer.
pub(crate) fn finish_reason(finish: &Finish, n_call: usize) -> &'static str {
    match finish {
        Finish::Length | Finish::ContextFull | Finish::Interrupted => "length",
        Finish::Stop(_) | Finish::StopText(_) if 0 < n_call => "tool_calls",
        Finish::Stop(_) | Finish::StopText(_) => "stop",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// T04: nobody would learn that a client's history is broken, or one request could fill the log.
    #[test]
    fn warnings_are_one_line() {
        assert_eq!(warning_line(&[]), None);
        let odd = "message 1: odd".to_owned();
        assert_eq!(warning_line(std::slice::from_ref(&odd)).as_deref(), Some("in a request: message 1: odd"));
        let line = warning_line(&[odd.clone(), odd.clone(), odd.repeat(1000)]).unwrap();
        assert_eq!(line, "in a request: message 1: odd (and 2 more)");
        assert!(warning_line(&[odd.repeat(1000)]).unwrap().len() < 400);
    }
}
