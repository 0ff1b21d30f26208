//! The loop: feed the prompt, then sample and feed one token at a time, until something ends it.
//!
//! Knows nothing of the conversation: the prompt is ids. A token is fed only when the one after it is wanted,
//! so the model always stands at a prefix of prompt and answer that the caller is told.

use std::ops::ControlFlow;
use std::time::{Duration, Instant};

use crate::error::GenerateError;
use crate::sample::{Sampler, SamplingParams};
use crate::stream::TextStream;
use crate::thinking::{Channel, ThinkSplitter};
use crate::tokenizer::Tokenizer;
use model::{ModelError, TokenModel};

/// What an answer is generated with.
#[derive(Clone, Debug, Default)]
pub struct GenerateOptions {
    /// How tokens are chosen.
    pub sampling: SamplingParams,
    /// Tokens that end the answer, see [`crate::stop_ids`]. None of them is shown. Empty: only limits end it.
    pub stop_ids: Vec<u32>,
    /// Most tokens to generate; `None`: as many as the context holds.
    pub max_tokens: Option<usize>,
    /// The prompt ends inside an opened `<think>`, see [`crate::Prompt::thinking_open`].
    pub thinking_open: bool,
    /// No chat format (`--raw`): no thinking is looked for, all text is answer.
    pub raw: bool,
}

/// What happens while generating, in order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event<'a> {
    /// Prompt tokens fed so far, of those that had to be fed.
    PromptProgress {
        /// Tokens fed in this call.
        done: usize,
        /// Tokens to feed in this call.
        total: usize,
    },
    /// A token was chosen. Its text, if it is shown, follows now or with a later token.
    Token {
        /// The token.
        id: u32,
    },
    /// Text for the user; never half a character or part of a thinking tag.
    Text {
        /// Thinking or answer.
        channel: Channel,
        /// The text.
        text: &'a str,
    },
}

/// Why an answer ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Finish {
    /// The model ended it with this token.
    Stop(u32),
    /// `max_tokens` were generated.
    Length,
    /// The context is full.
    ContextFull,
    /// The caller asked to stop.
    Interrupted,
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
/// model was fed before; the rest, at least one token, is fed here. Returning `Break` from `on_event` ends
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
    check_prompt(prompt, n_reused, model.n_ctx())?;
    let n_vocab = tokenizer.vocab_size().min(model.n_vocab());
    let sampler = Sampler::new(options.sampling.clone(), n_vocab, prompt)?;
    let mut output = Output::new(tokenizer, options);
    let start = Instant::now();

    let finish_and_times = match prefill(model, &prompt[n_reused..], on_event)? {
        None => (Finish::Interrupted, start.elapsed(), Duration::ZERO),
        Some(logits) => {
            let prefill_time = start.elapsed();
            let finish = decode(model, sampler, logits, options, &mut output, on_event)?;
            (finish, prefill_time, start.elapsed() - prefill_time)
        }
    };
    output.finish(on_event);
    let (finish, prefill, decode) = finish_and_times;
    let generated = output.generated;
    let fed = prompt.iter().chain(&generated).copied().take(model.pos()).collect();
    Ok(Outcome { finish, generated, fed, n_prompt: prompt.len(), n_reused, prefill, decode })
}

fn check_prompt(prompt: &[u32], pos: usize, n_ctx: usize) -> Result<(), GenerateError> {
    let n_prompt = prompt.len();
    if n_prompt == 0 {
        return Err(GenerateError::EmptyPrompt);
    }
    if n_prompt > n_ctx {
        return Err(GenerateError::PromptTooLong { n_prompt, n_ctx });
    }
    if pos >= n_prompt {
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

/// Samples and feeds until something ends the answer.
fn decode(
    model: &mut dyn TokenModel,
    mut sampler: Sampler,
    mut logits: Vec<f32>,
    options: &GenerateOptions,
    output: &mut Output<'_>,
    on_event: &mut dyn FnMut(Event<'_>) -> ControlFlow<()>,
) -> Result<Finish, GenerateError> {
    let max_tokens = options.max_tokens.unwrap_or(usize::MAX);
    loop {
        if output.generated.len() >= max_tokens {
            return Ok(Finish::Length);
        }
        let id = sampler.sample(&logits, model.pos())?;
        if options.stop_ids.contains(&id) {
            return Ok(Finish::Stop(id));
        }
        if output.push(id, on_event).is_break() {
            return Ok(Finish::Interrupted);
        }
        if output.generated.len() >= max_tokens {
            return Ok(Finish::Length);
        }
        if model.pos() >= model.n_ctx() {
            return Ok(Finish::ContextFull);
        }
        match model.feed(&[id], &mut |_| ControlFlow::Continue(())) {
            Ok(next) => {
                logits.clear();
                logits.extend_from_slice(next);
            }
            Err(ModelError::Interrupted) => return Ok(Finish::Interrupted),
            Err(error) => return Err(error.into()),
        }
    }
}

/// Tokens to events.
struct Output<'t> {
    generated: Vec<u32>,
    stream: TextStream<'t>,
    /// `None` in raw mode.
    splitter: Option<ThinkSplitter>,
}

impl<'t> Output<'t> {
    fn new(tokenizer: &'t Tokenizer, options: &GenerateOptions) -> Self {
        let splitter = (!options.raw).then(|| ThinkSplitter::new(options.thinking_open));
        Self { generated: Vec::new(), stream: TextStream::new(tokenizer), splitter }
    }

    fn push(&mut self, id: u32, on_event: &mut dyn FnMut(Event<'_>) -> ControlFlow<()>) -> ControlFlow<()> {
        self.generated.push(id);
        let text = self.stream.push(id);
        let mut flow = on_event(Event::Token { id });
        self.show(&text, &mut |event| {
            // A `Break` in the middle of a token's text must not lose the rest of it.
            if on_event(event).is_break() {
                flow = ControlFlow::Break(());
            }
        });
        flow
    }

    fn show(&mut self, text: &str, on_event: &mut dyn FnMut(Event<'_>)) {
        let mut emit = |channel, text: &str| on_event(Event::Text { channel, text });
        match &mut self.splitter {
            Some(splitter) => splitter.push(text, &mut emit),
            None if text.is_empty() => {}
            None => emit(Channel::Answer, text),
        }
    }

    /// The end of the answer: nothing stays held back.
    fn finish(&mut self, on_event: &mut dyn FnMut(Event<'_>) -> ControlFlow<()>) {
        // The answer is over: there is nothing left that `Break` could stop.
        let mut deliver = |event: Event<'_>| {
            let _ = on_event(event);
        };
        let rest = self.stream.finish();
        self.show(&rest, &mut deliver);
        if let Some(splitter) = &mut self.splitter {
            splitter.finish(&mut |channel, text| deliver(Event::Text { channel, text }));
        }
    }
}
