//! One answer that is being made: where it is, what it cost, and what its reader has not taken yet.

use std::collections::VecDeque;
use std::ops::ControlFlow;
use std::time::{Duration, Instant};

use generate::{
    CallEvent, Channel, Event, Finish, GenerateError, GenerateOptions, Generation, Next, TextModel,
    common_prefix,
};
use prefix::{Cache, Checkpoint, Kept, Point, answer_likelihood};
use tokio::sync::mpsc::Sender;
use tokio::sync::mpsc::error::TrySendError;

use crate::engine::reuse::{Reuse, View};
use crate::engine::slot::Taken;
use crate::engine::{
    CallUpdate, Counters, Done, Failure, FailureKind, Model, Source, Ticket, Timings, Update,
};

/// Between two reports of progress of a prompt.
const PROGRESS_INTERVAL: Duration = Duration::from_millis(200);
/// A prompt waits for another one with the same beginning if that saves so many tokens.
const N_LED_MIN: usize = 256;

/// What is told, and to whom. What the reader has no room for waits here: at most what one token decides, because an
/// answer does not go on before its reader does.
pub(crate) struct Outbox {
    sender: Sender<Update>,
    waiting: VecDeque<Update>,
    /// Since when the reader takes nothing.
    stalled: Option<Instant>,
}

impl Outbox {
    fn new(sender: Sender<Update>) -> Self {
        Self { sender, waiting: VecDeque::new(), stalled: None }
    }

    fn push(&mut self, update: Update) {
        self.waiting.push_back(update);
    }

    /// Hands over what there is room for; true if nothing is left.
    pub(crate) fn flush(&mut self) -> bool {
        while let Some(update) = self.waiting.pop_front() {
            match self.sender.try_send(update) {
                Ok(()) => self.stalled = None,
                Err(TrySendError::Full(update)) => {
                    self.waiting.push_front(update);
                    self.stalled.get_or_insert_with(Instant::now);
                    return false;
                }
                Err(TrySendError::Closed(_)) => self.waiting.clear(),
            }
        }
        true
    }

    /// Does nobody want to know any more?
    pub(crate) fn is_closed(&self) -> bool {
        self.sender.is_closed()
    }

    /// How long the reader has taken nothing although there was something. The engine may have been busy with others
    /// meanwhile, so it is given what there is room for now.
    pub(crate) fn stalled(&mut self) -> Duration {
        self.flush();
        self.stalled.map_or(Duration::ZERO, |since| since.elapsed())
    }
}

/// What a step led to.
pub(crate) enum Step {
    /// There is more to do.
    More,
    /// The answer is complete.
    Done,
}

/// An answer that is being made.
pub(crate) struct Running<'t, M: Model> {
    pub(crate) session: M::Session,
    pub(crate) outbox: Outbox,
    /// The client's name for the conversation.
    pub(crate) key: Option<String>,
    /// When it came to the queue.
    pub(crate) queued: Instant,
    generation: Generation<'t>,
    prompt: Vec<u32>,
    n_settled: usize,
    borders: Vec<usize>,
    is_marked: bool,
    /// Where checkpoints are kept on the way through the prompt, once it has begun.
    points: Vec<Point>,
    /// The first piece of the prompt was fed, or is about to be.
    has_begun: bool,
    /// Another one was let go first, to go on from what it keeps.
    has_waited: bool,
    /// The prompt is no conversation: whatever goes on from the answer has it as it was generated.
    is_raw: bool,
    /// To feed next, once the prompt is done.
    next: Vec<u32>,
    wants_progress: bool,
    wants_timings: bool,
    reuse: Reuse,
    /// Tokens of the prompt that were fed and kept.
    n_kept: usize,
    started: Instant,
    told: Instant,
    first_logits: Option<Instant>,
    counters: Counters,
    thinking: Thinking,
    /// Tokens of the answer that were counted already.
    n_counted: usize,
}

/// Counts tokens of thinking.
#[derive(Clone, Copy)]
enum Thinking {
    /// Nothing but thinking so far, or nothing at all and the prompt opened it.
    Open,
    /// Nothing so far.
    Unknown,
    /// It is over, after so many tokens.
    Over(usize),
}

impl<'t, M: Model> Running<'t, M> {
    /// Starts a job on a session that stands at a prefix of its prompt.
    pub(crate) fn start(
        model: &M,
        text: &'t TextModel,
        ticket: Ticket,
        taken: Taken<M>,
    ) -> Result<Self, (GenerateError, Outbox, M::Session)> {
        let Ticket { job, updates, queued } = ticket;
        let Taken { session, reuse } = taken;
        let outbox = Outbox::new(updates);
        let is_raw = job.options.output.raw;
        let thinking = if job.options.output.thinking_open { Thinking::Open } else { Thinking::Unknown };
        let generation = match new_generation(model, text, &job.prompt, job.options) {
            Ok(generation) => generation,
            Err(error) => return Err((error, outbox, session)),
        };
        let now = Instant::now();
        Ok(Self {
            session,
            outbox,
            key: job.hint.key,
            queued,
            generation,
            prompt: job.prompt,
            n_settled: job.n_settled,
            borders: job.borders,
            is_marked: job.hint.is_marked,
            points: Vec::new(),
            has_begun: false,
            has_waited: false,
            is_raw,
            next: Vec::new(),
            wants_progress: job.wants_progress,
            wants_timings: job.wants_timings,
            reuse,
            n_kept: 0,
            started: now,
            told: now,
            first_logits: None,
            counters: Counters::default(),
            thinking,
            n_counted: 0,
        })
    }

    /// Was anything of the prompt fed, or tried to?
    pub(crate) fn has_begun(&self) -> bool {
        self.has_begun
    }

    /// Others were fed first.
    pub(crate) fn wait(&mut self) {
        self.has_waited = true;
    }

    /// Will a checkpoint be kept on the way through this prompt that `other`, which has not begun, can go on from?
    pub(crate) fn leads(&self, model: &M, other: &Self) -> bool {
        let (pos, n_held) = (model.ids(&self.session).len(), model.ids(&other.session).len());
        let mut ahead = self.points.iter().map(|point| point.pos).filter(|&at| pos < at);
        let n_same = common_prefix(&self.prompt, &other.prompt);
        self.is_prefill() && ahead.any(|at| n_held + N_LED_MIN <= at && at <= n_same)
    }

    /// The prompt is about to be fed. What others kept meanwhile is taken up, and it is settled what is kept on the
    /// way.
    pub(crate) fn begin(&mut self, model: &mut M, cache: Option<&mut Cache>) {
        self.has_begun = true;
        if let Some(cache) = cache {
            if self.has_waited {
                self.catch_up(model, cache);
            }
            let prompt = prefix::Prompt {
                n_token: self.prompt.len(),
                borders: &self.borders,
                n_settled: self.n_settled,
                n_reused: self.reuse.n_token,
                is_marked: self.is_marked,
            };
            self.points = prefix::points(&prompt, cache.identity().shape);
        }
        // What is remembered at the very end comes with its logits.
        let n_prompt = self.prompt.len();
        let on_the_way = self.points.iter().map(|point| point.pos).filter(|&pos| pos < n_prompt);
        model.keep_at(&mut self.session, &on_the_way.collect::<Vec<_>>());
        let n_cached = self.reuse.n_token;
        let n_kept = self.points.last().map_or(0, |point| point.pos.saturating_sub(n_cached));
        self.outbox.push(Update::Started { n_prompt, n_cached, n_kept });
    }

    fn catch_up(&mut self, model: &mut M, cache: &mut Cache) {
        let n_held = model.ids(&self.session).len();
        let lookup = cache.find(&self.prompt, n_held);
        if lookup.n_reusable <= n_held {
            return;
        }
        let view = &mut View { model, session: &mut self.session };
        let (n_token, source) = match Source::of(cache.load(&self.prompt, n_held, view)) {
            Some((n_token, source)) if model.failure(&self.session).is_none() => (n_token, Some(source)),
            _ => {
                self.session = model.open();
                (0, None)
            }
        };
        self.reuse = Reuse::new(self.prompt.len(), n_token, source, lookup, None);
    }

    /// The prompt's tokens, and what of them need not be fed.
    pub(crate) fn prompt(&self) -> (&[u32], &Reuse) {
        (&self.prompt, &self.reuse)
    }

    /// Is the prompt still being fed?
    pub(crate) fn is_prefill(&self) -> bool {
        self.first_logits.is_none()
    }

    /// The one token to feed next, if it is one.
    pub(crate) fn single(&self) -> Option<u32> {
        match self.next.as_slice() {
            [id] => Some(*id),
            _ => None,
        }
    }

    /// Work done for this answer.
    pub(crate) fn add(&mut self, counters: &Counters) {
        self.counters = self.counters.plus(counters);
    }

    /// Feeds the next piece of the prompt, at most up to `chunk` tokens behind the last border. `is_wanted` is asked
    /// now and then whether to go on. With a checkpoint of the whole prompt there is nothing to feed.
    pub(crate) fn prefill(
        &mut self,
        model: &mut M,
        cache: Option<&mut Cache>,
        chunk: usize,
        is_wanted: &dyn Fn() -> bool,
    ) -> Result<Step, GenerateError> {
        if model.ids(&self.session).len() < self.prompt.len() {
            self.feed_piece(model, chunk, is_wanted)?;
            if let Some(cache) = cache {
                self.keep(model, cache)?;
            }
        }
        let pos = model.ids(&self.session).len();
        if self.wants_progress {
            self.outbox.push(Update::Progress { n_done: pos, elapsed: self.started.elapsed() });
        }
        if pos < self.prompt.len() {
            return Ok(Step::More);
        }
        self.first_logits = Some(Instant::now());
        self.choose(model)
    }

    fn feed_piece(
        &mut self,
        model: &mut M,
        chunk: usize,
        is_wanted: &dyn Fn() -> bool,
    ) -> Result<(), GenerateError> {
        let (pos, n_align) = (model.ids(&self.session).len(), model.n_align());
        let end = self.prompt.len().min(
            (pos / n_align * n_align)
                .saturating_add(chunk.checked_next_multiple_of(n_align).unwrap_or(usize::MAX)),
        );
        let Self { outbox, told, .. } = self;
        let (started, wants_progress) = (self.started, self.wants_progress);
        let fed = model.feed(&mut self.session, &self.prompt[pos..end], &mut |n_done| {
            if wants_progress && PROGRESS_INTERVAL <= told.elapsed() && outbox.waiting.is_empty() {
                *told = Instant::now();
                // There will be another one.
                let _ = outbox
                    .sender
                    .try_send(Update::Progress { n_done: pos + n_done, elapsed: started.elapsed() });
            }
            let goes_on = is_wanted() && !outbox.is_closed();
            if goes_on { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
        });
        match fed {
            Ok(()) | Err(model::ModelError::Interrupted) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    /// Keeps the checkpoints that the piece that was just fed has passed.
    fn keep(&mut self, model: &mut M, cache: &mut Cache) -> Result<(), GenerateError> {
        let mut passed = model.take_kept(&mut self.session);
        let n_prompt = self.prompt.len();
        let is_at_end = model.ids(&self.session).len() == n_prompt;
        if is_at_end && self.points.iter().any(|point| point.pos == n_prompt) {
            passed.push((n_prompt, model.state(&self.session)?));
        }
        for (pos, state) in passed {
            let point = self.points.iter().find(|point| point.pos == pos);
            let Some(&Point { likelihood, .. }) = point else { continue };
            let checkpoint = Checkpoint { ids: &self.prompt[..pos], state, likelihood };
            let kept = cache.keep(checkpoint, &View { model, session: &mut self.session });
            if kept != Kept::NoRoom {
                self.n_kept = pos.saturating_sub(self.reuse.n_token);
            }
        }
        Ok(())
    }

    /// Keeps the end of the answer if it is likely that somebody goes on from it as it was generated.
    pub(crate) fn keep_answer(&mut self, model: &M, cache: &mut Cache) {
        let n_token = self.generation.generated().len();
        let has_thought = 0 < self.thinking.count(n_token);
        let likelihood = answer_likelihood(n_token, self.is_raw, has_thought);
        let Some(likelihood) = likelihood.filter(|_| !self.is_prefill()) else { return };
        let Ok(mut state) = model.state(&self.session) else { return };
        // Nobody asks for the token after the last again.
        state.truncate(cache.identity().shape.state_bytes);
        let ids = model.ids(&self.session).to_vec();
        let checkpoint = Checkpoint { ids: &ids, state, likelihood };
        cache.keep(checkpoint, &View { model, session: &mut self.session });
    }

    /// Feeds tokens that are certain, several at once.
    pub(crate) fn feed_next(&mut self, model: &mut M) -> Result<Step, GenerateError> {
        match model.feed(&mut self.session, &self.next, &mut |_| ControlFlow::Continue(())) {
            Ok(()) => self.choose(model),
            Err(error) => Err(error.into()),
        }
    }

    /// Chooses from the logits that there are now.
    pub(crate) fn choose(&mut self, model: &M) -> Result<Step, GenerateError> {
        let pos = model.ids(&self.session).len();
        let n_before = self.generation.generated().len();
        let (outbox, thinking) = (&mut self.outbox, &mut self.thinking);
        let mut n_token = n_before;
        let next = self.generation.next(model.logits(&self.session), pos, &mut |event| {
            n_token += usize::from(matches!(event, Event::Token { .. }));
            thinking.see(&event, n_token);
            outbox.waiting.extend(update(event));
            ControlFlow::Continue(())
        })?;
        if self.wants_timings && n_before < self.generation.generated().len() {
            let timings = self.timings(model);
            self.outbox.push(Update::Timings(timings));
        }
        match next {
            Next::Feed(ids) => {
                self.next = ids;
                Ok(Step::More)
            }
            Next::End(finish) => {
                self.finish(model, finish);
                Ok(Step::Done)
            }
        }
    }

    /// The end.
    fn finish(&mut self, model: &M, finish: Finish) {
        let (outbox, thinking) = (&mut self.outbox, &mut self.thinking);
        let n_token = self.generation.generated().len();
        self.generation.finish(&mut |event| {
            thinking.see(&event, n_token);
            outbox.waiting.extend(update(event));
        });
        let n_reasoning = thinking.count(n_token);
        let timings = self.timings(model);
        self.outbox.push(Update::Done(Done { finish, n_reasoning, timings }));
    }

    /// The end, because of an error.
    pub(crate) fn fail(&mut self, kind: FailureKind, message: String) {
        self.outbox.fail(kind, message);
    }

    /// Tokens generated since this was last asked.
    pub(crate) fn take_new_tokens(&mut self) -> usize {
        let n_token = self.generation.generated().len();
        n_token - std::mem::replace(&mut self.n_counted, n_token)
    }

    /// Counts and times so far.
    pub(crate) fn timings(&self, model: &M) -> Timings {
        let first = self.first_logits.unwrap_or_else(Instant::now);
        Timings {
            n_prompt: self.prompt.len(),
            n_cached: self.reuse.n_token,
            source: self.reuse.source,
            reason: self.reuse.reason(self.prompt.len()),
            n_kept: self.n_kept,
            prompt_time: first - self.started,
            n_generated: self.generation.generated().len(),
            generate_time: first.elapsed(),
            counters: self.counters,
            n_ctx: model.n_ctx(),
            n_ctx_used: model.ids(&self.session).len(),
        }
    }
}

impl Outbox {
    /// The last thing that is told. Whoever was slow until now gets time to hear it.
    pub(crate) fn fail(&mut self, kind: FailureKind, message: String) {
        self.stalled = None;
        self.push(Update::Failed(Failure { kind, message }));
    }

    /// For a job that never started.
    pub(crate) fn of(ticket: Ticket) -> Self {
        Self::new(ticket.updates)
    }
}

impl Thinking {
    /// `n_token`: tokens chosen, those of this event included.
    fn see(&mut self, event: &Event<'_>, n_token: usize) {
        let is_thinking = match event {
            Event::Text { channel, .. } => *channel == Channel::Thinking,
            Event::Call(_) => false,
            Event::PromptProgress { .. } | Event::Token { .. } => return,
        };
        *self = match (*self, is_thinking) {
            (Self::Over(n), _) => Self::Over(n),
            (_, true) => Self::Open,
            (Self::Open, false) => Self::Over(n_token.saturating_sub(1)),
            (Self::Unknown, false) => Self::Over(0),
        };
    }

    fn count(self, n_token: usize) -> usize {
        match self {
            Self::Open => n_token,
            Self::Unknown => 0,
            Self::Over(n) => n,
        }
    }
}

fn new_generation<'t, M: Model>(
    model: &M,
    text: &'t TextModel,
    prompt: &[u32],
    options: GenerateOptions,
) -> Result<Generation<'t>, GenerateError> {
    Generation::new(text.tokenizer(), model.n_vocab(), prompt, model.n_ctx(), options)
}

/// What a reader is told of an event.
fn update(event: Event<'_>) -> Option<Update> {
    Some(match event {
        Event::PromptProgress { .. } => return None,
        Event::Token { id, logprob } => Update::Token { id, logprob: logprob.cloned().map(Box::new) },
        Event::Text { channel, text } => Update::Text { channel, text: text.to_owned() },
        Event::Call(CallEvent::Begin { index, name }) => {
            Update::Call(CallUpdate::Begin { index, name: name.to_owned() })
        }
        Event::Call(CallEvent::Arguments { index, json }) => {
            Update::Call(CallUpdate::Arguments { index, json: json.to_owned() })
        }
        Event::Call(CallEvent::End { index, complete }) => Update::Call(CallUpdate::End { index, complete }),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An answer would fail as if nobody read it, because the engine was busy with another one's prompt.
    #[test]
    fn a_reader_that_came_back_is_not_stalled() {
        let (sender, mut reader) = tokio::sync::mpsc::channel(1);
        let mut outbox = Outbox::new(sender);
        for n_done in 0..3 {
            outbox.push(Update::Progress { n_done, elapsed: Duration::ZERO });
        }
        assert!(!outbox.flush());
        assert!(outbox.stalled.is_some());
        for _ in 0..2 {
            assert!(reader.try_recv().is_ok());
            outbox.stalled();
        }
        assert_eq!((outbox.stalled(), outbox.waiting.len()), (Duration::ZERO, 0));
    }
}
