//! The loop: feed the prompt, then sample and feed one token at a time, until something ends it.
//!
//! Knows nothing of the conversation: the prompt is ids. A token is fed only when the one after it is wanted,
//! so the model always stands at a prefix of prompt and answer that the caller is told.

use std::ops::ControlFlow;
use std::time::{Duration, Instant};

use crate::error::GenerateError;
use crate::generation::{Finish, GenerateOptions, Generation, Next};
use crate::sample::TokenLogprob;
use crate::thinking::Channel;
use crate::tokenizer::Tokenizer;
use model::{ModelError, TokenModel};

/// What happens while generating, in order.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Event<'a> {
    /// Prompt tokens fed so far, of those that had to be fed.
    PromptProgress {
        /// Tokens fed in this call.
        done: usize,
        /// Tokens to feed in this call.
        total: usize,
    },
    /// A token was chosen, or is certain. Its text, if it is shown, follows now or with a later token.
    Token {
        /// The token.
        id: u32,
        /// How likely it was, if that is asked for.
        logprob: Option<&'a TokenLogprob>,
    },
    /// Text for the user; never half a character or part of a thinking tag.
    Text {
        /// Thinking or answer.
        channel: Channel,
        /// The text.
        text: &'a str,
    },
    /// A call of a tool, piece by piece.
    Call(CallEvent<'a>),
}

/// A piece of a call. Calls come one after another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CallEvent<'a> {
    /// A call of a declared tool begins.
    Begin {
        /// Its number in the answer, from 0.
        index: usize,
        /// The tool.
        name: &'a str,
    },
    /// More of its arguments: all pieces together are a JSON object.
    Arguments {
        /// The call.
        index: usize,
        /// JSON text.
        json: &'a str,
    },
    /// Its arguments are JSON now.
    End {
        /// The call.
        index: usize,
        /// The model ended the call. Else it broke off, because the answer ended or what came was no call any more:
        /// open values were closed, later ones are missing.
        complete: bool,
    },
}

/// A finished answer.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// Why it ended.
    pub finish: Finish,
    /// All chosen tokens, without the stop token.
    pub generated: Vec<u32>,
    /// Everything that the model has been fed, from position 0: the next prompt continues after the common
    /// prefix with this. At most prompt and answer, without the last chosen token.
    pub fed: Vec<u32>,
    /// Tokens of the prompt, reused ones included.
    pub n_prompt: usize,
    /// Tokens of the prompt that the model had been fed before this call.
    pub n_reused: usize,
    /// Time from the start to the first logits.
    pub prefill: Duration,
    /// Time after that, of `generated.len()` tokens.
    pub decode: Duration,
}

/// How many leading tokens two timelines share.
pub fn common_prefix(a: &[u32], b: &[u32]) -> usize {
    a.iter().zip(b).take_while(|(x, y)| x == y).count()
}

/// Generates one answer.
///
/// `prompt` is the whole timeline from position 0. The first `model.pos()` tokens of it must be what the
/// model was fed before; the rest is fed here: at least one token, unless the logits behind the prompt are known
/// ([`TokenModel::has_logits`]). Returning `Break` from `on_event` ends
/// the answer: between two chunks of the prompt, or after the current token. Text that was held back (an
/// unfinished character, a possible tag) still comes out as events then. The model stays usable after that;
/// after an error it is in the state that [`TokenModel::feed`] documents.
pub fn generate(
    model: &mut dyn TokenModel,
    tokenizer: &Tokenizer,
    prompt: &[u32],
    options: &GenerateOptions,
    on_event: &mut dyn FnMut(Event<'_>) -> ControlFlow<()>,
) -> Result<Outcome, GenerateError> {
    let n_reused = model.pos();
    check_prompt(prompt, n_reused, model)?;
    let mut generation = Generation::new(tokenizer, model.n_vocab(), prompt, model.n_ctx(), options.clone())?;
    let start = Instant::now();

    let (finish, prefill, decode) = match prefill(model, &prompt[n_reused..], on_event)? {
        None => (Finish::Interrupted, start.elapsed(), Duration::ZERO),
        Some(logits) => {
            let prefill_time = start.elapsed();
            let finish = decode(model, logits, &mut generation, on_event)?;
            (finish, prefill_time, start.elapsed() - prefill_time)
        }
    };
    // The answer is over: there is nothing left that `Break` could stop.
    generation.finish(&mut |event| {
        let _ = on_event(event);
    });
    let generated = generation.generated().to_vec();
    let fed = prompt.iter().chain(&generated).copied().take(model.pos()).collect();
    Ok(Outcome { finish, generated, fed, n_prompt: prompt.len(), n_reused, prefill, decode })
}

fn check_prompt(prompt: &[u32], pos: usize, model: &dyn TokenModel) -> Result<(), GenerateError> {
    let (n_prompt, n_ctx) = (prompt.len(), model.n_ctx());
    if n_prompt == 0 {
        return Err(GenerateError::EmptyPrompt);
    }
    if n_prompt > n_ctx {
        return Err(GenerateError::PromptTooLong { n_prompt, n_ctx });
    }
    if pos > n_prompt || (pos == n_prompt && !model.has_logits()) {
        return Err(GenerateError::NothingToFeed { pos, n_prompt });
    }
    Ok(())
}

/// Feeds the rest of the prompt; `None` if the caller stopped it. Logits are `[n_vocab]`.
fn prefill(
    model: &mut dyn TokenModel,
    ids: &[u32],
    on_event: &mut dyn FnMut(Event<'_>) -> ControlFlow<()>,
) -> Result<Option<Vec<f32>>, GenerateError> {
    let total = ids.len();
    let fed = model.feed(ids, &mut |done| on_event(Event::PromptProgress { done, total }));
    match fed {
        Ok(logits) => Ok(Some(logits.to_vec())),
        Err(ModelError::Interrupted) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// Chooses and feeds until something ends the answer.
fn decode(
    model: &mut dyn TokenModel,
    mut logits: Vec<f32>,
    generation: &mut Generation<'_>,
    on_event: &mut dyn FnMut(Event<'_>) -> ControlFlow<()>,
) -> Result<Finish, GenerateError> {
    loop {
        let ids = match generation.next(&logits, model.pos(), on_event)? {
            Next::End(finish) => return Ok(finish),
            Next::Feed(ids) => ids,
        };
        match model.feed(&ids, &mut |_| ControlFlow::Continue(())) {
            Ok(next) => {
                logits.clear();
                logits.extend_from_slice(next);
            }
            Err(ModelError::Interrupted) => return Ok(Finish::Interrupted),
            Err(error) => return Err(error.into()),
        }
    }
}
