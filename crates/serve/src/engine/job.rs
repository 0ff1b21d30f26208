//! What is asked of the engine, and what it tells while it works.

use std::time::Duration;

use generate::{Channel, Finish, GenerateOptions, TokenLogprob};

use crate::engine::{Counters, Reason, Source};

/// One answer to generate.
#[derive(Clone, Debug)]
pub struct Job {
    /// All tokens of the prompt, at least one and at most the context.
    pub prompt: Vec<u32>,
    /// Leading tokens of it that later prompts of the same conversation will have too; 0: unknown.
    pub n_settled: usize,
    /// Where messages begin in it, ascending; empty: unknown.
    pub borders: Vec<usize>,
    /// What the client says about coming back.
    pub hint: CacheHint,
    /// How the answer is generated and read.
    pub options: GenerateOptions,
    /// Tell [`Update::Progress`].
    pub wants_progress: bool,
    /// Tell [`Update::Timings`] after every token.
    pub wants_timings: bool,
}

/// What a client says about what it will ask next. Nothing depends on it but time.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CacheHint {
    /// Its name for the conversation.
    pub key: Option<String>,
    /// The beginning of the prompt will come back.
    pub is_marked: bool,
}

/// What happens to a job, in order: `Started`, `Progress`es, then tokens and what they decide, then `Done`. `Failed`
/// may come at any time. Nothing comes after `Done` or `Failed`.
#[derive(Clone, Debug)]
pub enum Update {
    /// It left the queue, and its prompt is about to be fed.
    Started {
        /// Tokens of the prompt.
        n_prompt: usize,
        /// Those of them that need not be fed again.
        n_cached: usize,
        /// Those that are fed and then need not be fed again, if there is room for what is kept of them.
        n_kept: usize,
    },
    /// More of the prompt was fed. Left out when the reader is slow.
    Progress {
        /// Tokens of the prompt that are done, cached ones included.
        n_done: usize,
        /// Time since it left the queue.
        elapsed: Duration,
    },
    /// A token was chosen. What it decides comes next, if anything.
    Token {
        /// The token.
        id: u32,
        /// Log probabilities, if asked for.
        logprob: Option<Box<TokenLogprob>>,
    },
    /// Text of the answer or of thinking.
    Text {
        /// Which of them.
        channel: Channel,
        /// Whole characters.
        text: String,
    },
    /// A piece of a call.
    Call(CallUpdate),
    /// How it goes so far.
    Timings(Timings),
    /// The end.
    Done(Done),
    /// The end, because of an error.
    Failed(Failure),
}

/// A piece of a call of a tool. Calls come one after another.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CallUpdate {
    /// A call begins.
    Begin {
        /// Its number in the answer, from 0.
        index: usize,
        /// The tool.
        name: String,
    },
    /// More of its arguments: all pieces together are a JSON object.
    Arguments {
        /// The call.
        index: usize,
        /// JSON text.
        json: String,
    },
    /// Its arguments are JSON now.
    End {
        /// The call.
        index: usize,
        /// The model ended the call; else it broke off.
        complete: bool,
    },
}

/// A finished answer.
#[derive(Clone, Debug)]
pub struct Done {
    /// Why it ended.
    pub finish: Finish,
    /// Tokens of thinking among those generated.
    pub n_reasoning: usize,
    /// Counts and times.
    pub timings: Timings,
}

/// Counts and times of one answer.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Timings {
    /// Tokens of the prompt.
    pub n_prompt: usize,
    /// Those of them that were not fed again.
    pub n_cached: usize,
    /// Where these come from; `None` if there are none.
    pub source: Option<Source>,
    /// Why it is not more, if there was more to feed than what is new in any case.
    pub reason: Option<Reason>,
    /// Those that were fed and then kept.
    pub n_kept: usize,
    /// From leaving the queue to the first logits.
    pub prompt_time: Duration,
    /// Tokens chosen.
    pub n_generated: usize,
    /// Time since the first logits.
    pub generate_time: Duration,
    /// What the expert stream did in the passes of this answer.
    pub counters: Counters,
    /// Positions of the context.
    pub n_ctx: usize,
    /// Those of them in use.
    pub n_ctx_used: usize,
}

impl Timings {
    /// Tokens of the answer a second: the first one comes with the prompt.
    pub fn tokens_s(&self) -> Option<f64> {
        let seconds = self.generate_time.as_secs_f64();
        (1 < self.n_generated && 0.0 < seconds).then(|| (self.n_generated - 1) as f64 / seconds)
    }

    /// Tokens of the prompt a second, of those that were fed.
    pub fn prompt_tokens_s(&self) -> Option<f64> {
        let (n_fed, seconds) = (self.n_prompt.saturating_sub(self.n_cached), self.prompt_time.as_secs_f64());
        (0 < n_fed && 0.0 < seconds).then(|| n_fed as f64 / seconds)
    }
}

/// Why an answer could not be finished.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// Whose fault it is.
    pub kind: FailureKind,
    /// What happened.
    pub message: String,
}

/// Whose fault a failure is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FailureKind {
    /// The model, the drive or the program.
    Engine,
    /// It took longer than is allowed.
    TimeOut,
    /// The client does not read what it asked for.
    SlowReader,
    /// The server ends.
    ShuttingDown,
}
