//! One answer that is being made: where it is, what it cost, and what its reader has not taken yet.

use std::collections::VecDeque;
use std::ops::ControlFlow;
use std::time::{Duration, Instant};

use generate::{
    CallEvent, Channel, Event, Finish, GenerateError, GenerateOptions, Generation, Next, TextModel,
};
use tokio::sync::mpsc::Sender;
use tokio::sync::mpsc::error::TrySendError;

use crate::engine::slot::Timeline;
use crate::engine::{CallUpdate, Counters, Done, Failure, FailureKind, Model, Ticket, Timings, Update};

/// Between two reports of progress of a prompt.
const PROGRESS_INTERVAL: Duration = Duration::from_millis(200);

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
    pub(crate) timeline: Timeline<M>,
    pub(crate) outbox: Outbox,
    /// When it came to the queue.
    pub(crate) queued: Instant,
    generation: Generation<'t>,
    prompt: Vec<u32>,
    /// Where a state is remembered; 0: nowhere.
    snapshot_pos: usize,
    /// To feed next, once the prompt is done.
    next: Vec<u32>,
    wants_progress: bool,
    wants_timings: bool,
    n_cached: usize,
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
        timeline: Timeline<M>,
    ) -> Result<Self, (GenerateError, Outbox, Timeline<M>)> {
        let Ticket { job, updates, queued } = ticket;
        let mut outbox = Outbox::new(updates);
        let thinking = if job.options.output.thinking_open { Thinking::Open } else { Thinking::Unknown };
        let generation = match new_generation(model, text, &job.prompt, job.options) {
            Ok(generation) => generation,
            Err(error) => return Err((error, outbox, timeline)),
        };
        let n_cached = model.ids(&timeline.session).len();
        outbox.push(Update::Started { n_prompt: job.prompt.len(), n_cached });
        let now = Instant::now();
        let snapshot_pos = job.n_settled.min(job.prompt.len() - 1) / model.n_align() * model.n_align();
        Ok(Self {
            timeline,
            outbox,
            queued,
            generation,
            prompt: job.prompt,
            snapshot_pos,
            next: Vec::new(),
            wants_progress: job.wants_progress,
            wants_timings: job.wants_timings,
            n_cached,
            started: now,
            told: now,
            first_logits: None,
            counters: Counters::default(),
            thinking,
            n_counted: 0,
        })
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
    /// now and then whether to go on.
    pub(crate) fn prefill(
        &mut self,
        model: &mut M,
        chunk: usize,
        is_wanted: &dyn Fn() -> bool,
    ) -> Result<Step, GenerateError> {
        let (pos, n_align) = (model.ids(&self.timeline.session).len(), model.n_align());
        let goal = if pos < self.snapshot_pos { self.snapshot_pos } else { self.prompt.len() };
        let end = goal.min(
            (pos / n_align * n_align)
                .saturating_add(chunk.checked_next_multiple_of(n_align).unwrap_or(usize::MAX)),
        );
        let Self { outbox, told, .. } = self;
        let (started, wants_progress) = (self.started, self.wants_progress);
        let fed = model.feed(&mut self.timeline.session, &self.prompt[pos..end], &mut |n_done| {
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
            Ok(()) | Err(model::ModelError::Interrupted) => {}
            Err(error) => return Err(error.into()),
        }
        let pos = model.ids(&self.timeline.session).len();
        if pos == self.snapshot_pos && 0 < pos {
            self.timeline.snapshot = Some((pos, model.snapshot(&self.timeline.session)?));
        }
        if self.wants_progress {
            self.outbox.push(Update::Progress { n_done: pos, elapsed: self.started.elapsed() });
        }
        if pos < self.prompt.len() {
            return Ok(Step::More);
        }
        self.first_logits = Some(Instant::now());
        self.choose(model)
    }

    /// Feeds tokens that are certain, several at once.
    pub(crate) fn feed_next(&mut self, model: &mut M) -> Result<Step, GenerateError> {
        match model.feed(&mut self.timeline.session, &self.next, &mut |_| ControlFlow::Continue(())) {
            Ok(()) => self.choose(model),
            Err(error) => Err(error.into()),
        }
    }

    /// Chooses from the logits that there are now.
    pub(crate) fn choose(&mut self, model: &M) -> Result<Step, GenerateError> {
        let pos = model.ids(&self.timeline.session).len();
        let n_before = self.generation.generated().len();
        let (outbox, thinking) = (&mut self.outbox, &mut self.thinking);
        let mut n_token = n_before;
        let next = self.generation.next(model.logits(&self.timeline.session), pos, &mut |event| {
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
            n_cached: self.n_cached,
            prompt_time: first - self.started,
            n_generated: self.generation.generated().len(),
            generate_time: first.elapsed(),
            counters: self.counters,
            n_ctx: model.n_ctx(),
            n_ctx_used: model.ids(&self.timeline.session).len(),
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
