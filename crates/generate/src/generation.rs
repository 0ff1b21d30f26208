//! One answer as a state machine: logits in, tokens to feed out.
//!
//! Knows neither the model nor the conversation, so whoever owns the model decides whose turn it is: a loop for one
//! answer ([`crate::generate()`]), or a scheduler for many.

use std::ops::ControlFlow;

use crate::constraint::Constraint;
use crate::course::{Choice, Course};
use crate::error::GenerateError;
use crate::generate::Event;
use crate::output::Output;
use crate::request::OutputSpec;
use crate::sample::{Sampler, SamplingParams, TokenLogprob};
use crate::stop_text::StopTexts;
use crate::thinking::Channel;
use crate::tokenizer::Tokenizer;

/// Most tokens of which log probabilities are told.
const TOP_LOGPROB_MAX: usize = 100;
/// How many tokens before the limit a way out of a grammar is looked for, at each token: it may get longer at any one.
const WAY_OUT_TOKENS: usize = 256;

/// What an answer is generated with.
#[derive(Clone, Debug, Default)]
pub struct GenerateOptions {
    /// How tokens are chosen.
    pub sampling: SamplingParams,
    /// Added to the logits of these tokens after the penalties: -100 is never, 100 always.
    pub logit_bias: Vec<(u32, f32)>,
    /// Tokens that end the answer, see [`crate::stop_ids`]. None of them is shown. Empty: only limits end it.
    pub stop_ids: Vec<u32>,
    /// Texts that end the answer where they appear in it (not in thinking or in calls). None of them is shown. Of
    /// several the one that is complete first ends it, of those the longest.
    pub stop_texts: Vec<String>,
    /// Most tokens to generate; `None`: as many as the context holds.
    pub max_tokens: Option<usize>,
    /// Most tokens of thinking: then it is closed, the way the model does it (a few more tokens, if it is inside a
    /// character). 0: at once, though a prompt that leaves thinking out is better. `None`: as many as there are.
    pub thinking_budget: Option<usize>,
    /// Tell log probabilities: of the chosen token and of this many likeliest ones, at most 100. See
    /// [`TokenLogprob`].
    pub n_top_logprob: Option<usize>,
    /// How the answer's text is read.
    pub output: OutputSpec,
    /// What the answer is held to.
    pub constraint: Option<Constraint>,
    /// An answer that would reach its limit inside what it is held to, or hardly get out before, is completed: open
    /// values end, what must follow has the first value that fits. It still ends with [`Finish::Length`] or
    /// [`Finish::ContextFull`]. Not where no way is found in time; regular expressions, grammars and patterns may have
    /// none.
    pub close_at_limit: bool,
}

/// Why an answer ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Finish {
    /// The model ended it with this token, or nothing else could follow.
    Stop(u32),
    /// One of the stop texts came.
    StopText(String),
    /// `max_tokens` were generated.
    Length,
    /// The context is full.
    ContextFull,
    /// The caller asked to stop.
    Interrupted,
}

/// What an answer wants next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Next {
    /// These tokens fed, at least one; then logits again. All but the first are certain whatever the logits are, and
    /// maybe the first too.
    Feed(Vec<u32>),
    /// Nothing.
    End(Finish),
}

/// An answer that is being generated.
pub struct Generation<'t> {
    options: GenerateOptions,
    sampler: Sampler,
    course: Course<'t>,
    output: Output<'t>,
    stop_texts: StopTexts,
    generated: Vec<u32>,
    n_ctx: usize,
    /// What completes the answer from here, near its limit.
    way_out: Option<Vec<u32>>,
}

impl<'t> Generation<'t> {
    /// `prompt`: all tokens before the answer; `n_vocab`: rows of the model's head; `n_ctx`: positions that prompt and
    /// answer may take.
    ///
    /// # Errors
    /// A parameter out of range.
    pub fn new(
        tokenizer: &'t Tokenizer,
        n_vocab: usize,
        prompt: &[u32],
        n_ctx: usize,
        mut options: GenerateOptions,
    ) -> Result<Self, GenerateError> {
        if let Some(n) = options.n_top_logprob.filter(|&n| n > TOP_LOGPROB_MAX) {
            let (name, range) = ("top_logprobs", "0 to 100");
            return Err(GenerateError::Parameter { name, value: n as f64, range });
        }
        let sampler = Sampler::new(options.sampling.clone(), tokenizer.vocab_size().min(n_vocab), prompt)?
            .with_bias(std::mem::take(&mut options.logit_bias))?;
        let stop_texts = StopTexts::new(std::mem::take(&mut options.stop_texts))?;
        let (constraint, stop_ids) = (options.constraint.take(), options.stop_ids.clone());
        let course = Course::new(tokenizer, &options.output, constraint, stop_ids, options.thinking_budget);
        let output = Output::new(tokenizer, &options.output);
        Ok(Self { options, sampler, course, output, stop_texts, generated: Vec::new(), n_ctx, way_out: None })
    }

    /// All tokens of the answer so far, chosen or certain, without the stop token.
    pub fn generated(&self) -> &[u32] {
        &self.generated
    }

    /// Takes the logits `[n_vocab]` after `pos` tokens, chooses, and tells what that decides. `Break` from `on_event`
    /// ends the answer after the current token.
    ///
    /// # Errors
    /// Logits that are not numbers, or not enough of them; a grammar that no token fits or that takes too long.
    pub fn next(
        &mut self,
        logits: &[f32],
        pos: usize,
        on_event: &mut dyn FnMut(Event<'_>) -> ControlFlow<()>,
    ) -> Result<Next, GenerateError> {
        if self.generated.len() >= self.options.max_tokens.unwrap_or(usize::MAX) {
            return Ok(Next::End(Finish::Length));
        }
        let mut ids = Vec::new();
        self.course.certain(&mut ids)?;
        let mut chosen = None;
        if ids.is_empty() {
            let id = match self.course.choice()? {
                Choice::Of(allowed) => self.sampler.sample_allowed(logits, pos, allowed)?,
                Choice::End(id) => return Ok(Next::End(Finish::Stop(id))),
            };
            if !self.options.stop_ids.contains(&id) {
                chosen = Some(id);
                self.course.accept(id, &mut ids)?;
            } else if self.course.may_stop() {
                return Ok(Next::End(Finish::Stop(id)));
            } else {
                self.course.stopped_thinking(&mut ids)?;
            }
        }
        if let Some(way) = self.last_way_out(ids.len(), pos) {
            return self.close(&way, pos, on_event);
        }
        for n in 0..ids.len() {
            let is_chosen = n == 0 && chosen == Some(ids[0]);
            if let Some(finish) = self.take(ids[n], is_chosen.then_some(logits), pos + n, on_event)? {
                return Ok(Next::End(finish));
            }
        }
        Ok(match self.course.is_complete() {
            Some(id) => Next::End(Finish::Stop(id)),
            None => Next::Feed(ids),
        })
    }

    /// What completes the answer from where it stood before the next `n_next` tokens, at `pos`, if after them its limit
    /// would come first.
    fn last_way_out(&mut self, n_next: usize, pos: usize) -> Option<Vec<u32>> {
        let last = self.way_out.take();
        let n_left = self.n_left(pos);
        if !self.options.close_at_limit || !self.course.is_held() || WAY_OUT_TOKENS < n_left {
            return None;
        }
        self.way_out = n_left.checked_sub(n_next).and_then(|n_max| self.course.way_out(n_max));
        if self.way_out.is_some() { None } else { last }
    }

    /// Tokens that the answer may still have, with the next one at `pos`.
    fn n_left(&self, pos: usize) -> usize {
        let n_max = self.options.max_tokens.unwrap_or(usize::MAX);
        n_max.saturating_sub(self.generated.len()).min(self.n_ctx.saturating_add(1).saturating_sub(pos))
    }

    /// Ends the answer at its limit with these tokens, the first at `pos`.
    fn close(
        &mut self,
        way: &[u32],
        pos: usize,
        on_event: &mut dyn FnMut(Event<'_>) -> ControlFlow<()>,
    ) -> Result<Next, GenerateError> {
        let is_length =
            self.options.max_tokens.is_some_and(|n_max| n_max - self.generated.len() == self.n_left(pos));
        for (n, &id) in way.iter().enumerate() {
            if let Some(finish) = self.take(id, None, pos + n, on_event)? {
                return Ok(Next::End(finish));
            }
        }
        Ok(Next::End(if is_length { Finish::Length } else { Finish::ContextFull }))
    }

    /// The end of the answer, whatever ended it: nothing stays held back but what lies behind a stop text.
    pub fn finish(&mut self, on_event: &mut dyn FnMut(Event<'_>)) {
        let Self { output, stop_texts, .. } = self;
        output.finish(&mut |event| pass(event, stop_texts, on_event));
        stop_texts.flush(&mut |text| on_event(Event::Text { channel: Channel::Answer, text }));
    }

    /// Takes the next token of the answer, at `pos`, and tells whether it is the last. `logits`: of a chosen one.
    fn take(
        &mut self,
        id: u32,
        logits: Option<&[f32]>,
        pos: usize,
        on_event: &mut dyn FnMut(Event<'_>) -> ControlFlow<()>,
    ) -> Result<Option<Finish>, GenerateError> {
        if logits.is_none() {
            self.sampler.remember(id);
        }
        let logprob = match (self.options.n_top_logprob, logits) {
            (None, _) => None,
            (Some(n), Some(logits)) => Some(self.sampler.logprob(logits, id, n)?),
            (Some(n), None) => {
                let top = if n > 0 { vec![(id, 0.0)] } else { Vec::new() };
                Some(TokenLogprob { logprob: 0.0, top })
            }
        };
        self.generated.push(id);
        let mut flow = on_event(Event::Token { id, logprob: logprob.as_ref() });
        let Self { output, stop_texts, .. } = self;
        output.push(id, &mut |event| {
            pass(event, stop_texts, &mut |event| {
                // A `Break` in the middle of a token's text must not lose the rest of it.
                if on_event(event).is_break() {
                    flow = ControlFlow::Break(());
                }
            });
        });
        Ok(if let Some(text) = self.stop_texts.found() {
            Some(Finish::StopText(text.to_owned()))
        } else if flow.is_break() {
            Some(Finish::Interrupted)
        } else if self.generated.len() >= self.options.max_tokens.unwrap_or(usize::MAX) {
            Some(Finish::Length)
        } else if pos >= self.n_ctx {
            Some(Finish::ContextFull)
        } else {
            None
        })
    }
}

/// Passes an event on, as far as no stop text lies before it.
fn pass(event: Event<'_>, stop_texts: &mut StopTexts, on_event: &mut dyn FnMut(Event<'_>)) {
    let mut answer = |text: &str| on_event(Event::Text { channel: Channel::Answer, text });
    match event {
        Event::Text { channel: Channel::Answer, text } => stop_texts.push(text, &mut answer),
        _ if stop_texts.found().is_some() => {}
        _ => {
            stop_texts.flush(&mut answer);
            on_event(event);
        }
    }
}
