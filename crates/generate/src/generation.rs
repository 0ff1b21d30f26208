//! One answer as a state machine: logits in, tokens to feed out.
//!
//! Knows neither the model nor the conversation, so whoever owns the model decides whose turn it is: a loop for one
//! answer ([`crate::generate()`]), or a scheduler for many.

use std::ops::ControlFlow;

use crate::constraint::Constraint;
use crate::error::GenerateError;
use crate::generate::Event;
use crate::output::Output;
use crate::request::OutputSpec;
use crate::sample::{Sampler, SamplingParams};
use crate::tokenizer::Tokenizer;

/// What an answer is generated with.
#[derive(Clone, Debug, Default)]
pub struct GenerateOptions {
    /// How tokens are chosen.
    pub sampling: SamplingParams,
    /// Added to the logits of these tokens.
    pub logit_bias: Vec<(u32, f32)>,
    /// Tokens that end the answer, see [`crate::stop_ids`]. None of them is shown. Empty: only limits end it.
    pub stop_ids: Vec<u32>,
    /// Texts that end the answer where they appear in it (not in thinking or in calls). None of them is shown.
    pub stop_texts: Vec<String>,
    /// Most tokens to generate; `None`: as many as the context holds.
    pub max_tokens: Option<usize>,
    /// Most tokens of thinking: then it is closed. `None`: as many as there are.
    pub thinking_budget: Option<usize>,
    /// Tell log probabilities: of the chosen token and of this many likeliest ones.
    pub n_top_logprob: Option<usize>,
    /// How the answer's text is read.
    pub output: OutputSpec,
    /// What the answer is held to.
    pub constraint: Option<Constraint>,
}

/// Why an answer ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Finish {
    /// The model ended it with this token.
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
    /// These tokens fed, at least one; then logits again. Several are certain whatever the logits are.
    Feed(Vec<u32>),
    /// Nothing.
    End(Finish),
}

/// An answer that is being generated.
pub struct Generation<'t> {
    options: GenerateOptions,
    sampler: Sampler,
    output: Output<'t>,
    generated: Vec<u32>,
    n_ctx: usize,
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
        options: GenerateOptions,
    ) -> Result<Self, GenerateError> {
        let sampler = Sampler::new(options.sampling.clone(), tokenizer.vocab_size().min(n_vocab), prompt)?;
        let output = Output::new(tokenizer, &options.output);
        Ok(Self { options, sampler, output, generated: Vec::new(), n_ctx })
    }

    /// All chosen tokens, without the stop token.
    pub fn generated(&self) -> &[u32] {
        &self.generated
    }

    /// Takes the logits `[n_vocab]` after `pos` tokens, chooses, and tells what that decides. `Break` from `on_event`
    /// ends the answer after the current token.
    ///
    /// # Errors
    /// Logits that are not numbers, or not enough of them.
    pub fn next(
        &mut self,
        logits: &[f32],
        pos: usize,
        on_event: &mut dyn FnMut(Event<'_>) -> ControlFlow<()>,
    ) -> Result<Next, GenerateError> {
        let max_tokens = self.options.max_tokens.unwrap_or(usize::MAX);
        if self.generated.len() >= max_tokens {
            return Ok(Next::End(Finish::Length));
        }
        let id = self.sampler.sample(logits, pos)?;
        if self.options.stop_ids.contains(&id) {
            return Ok(Next::End(Finish::Stop(id)));
        }
        self.generated.push(id);
        let mut flow = on_event(Event::Token { id });
        self.output.push(id, &mut |event| {
            // A `Break` in the middle of a token's text must not lose the rest of it.
            if on_event(event).is_break() {
                flow = ControlFlow::Break(());
            }
        });
        Ok(match flow {
            ControlFlow::Break(()) => Next::End(Finish::Interrupted),
            ControlFlow::Continue(()) if self.generated.len() >= max_tokens => Next::End(Finish::Length),
            ControlFlow::Continue(()) if pos >= self.n_ctx => Next::End(Finish::ContextFull),
            ControlFlow::Continue(()) => Next::Feed(vec![id]),
        })
    }

    /// The end of the answer, whatever ended it: nothing stays held back.
    pub fn finish(&mut self, on_event: &mut dyn FnMut(Event<'_>)) {
        self.output.finish(on_event);
    }
}
