//! Whose turn it is: pieces of prompts and single tokens of many answers, on one model.
//!
//! Answers that are past their prompt take each step together, in one pass. A piece of a prompt is fed between two
//! steps, from each prompt in turn, and after a piece that took some time steps get about as long: neither starves. An
//! answer does not depend on the others: prompts are cut where it makes no difference ([`Model::n_align`]), and each
//! answer has a session and a sampler of its own.

use std::time::{Duration, Instant};

use generate::{GenerateError, TextModel};
use prefix::Cache;

use crate::engine::running::{Outbox, Running, Step};
use crate::engine::slot::Slots;
use crate::engine::{FailureKind, Job, Model, Queue, Ticket};
use crate::metrics::Metrics;

/// While nothing can be done but to wait for readers.
const STALL_POLL: Duration = Duration::from_millis(10);
/// While nobody wants anything.
const IDLE_POLL: Duration = Duration::from_secs(1);

/// How the model is shared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SchedulerOptions {
    /// Answers that are made at the same time, each with a session of its own.
    pub n_parallel: usize,
    /// Most tokens of a prompt that are fed while others wait for their next token.
    pub n_chunk: usize,
    /// An answer must be complete so long after it came.
    pub answer_time: Duration,
    /// A reader that takes nothing for so long gets no more.
    pub stall_time: Duration,
    /// Tell the log of each prompt what of it was there, and why it is not more.
    pub is_verbose: bool,
}

impl Default for SchedulerOptions {
    fn default() -> Self {
        Self {
            n_parallel: 1,
            n_chunk: 512,
            answer_time: Duration::from_secs(6 * 3600),
            stall_time: Duration::from_secs(60),
            is_verbose: false,
        }
    }
}

/// Runs jobs from `queue` until it is closed and all are done. `cache`: of prefixes of prompts; without it each prompt
/// is fed as a whole.
pub fn run<M: Model>(
    model: &mut M,
    text: &TextModel,
    queue: &Queue,
    cache: Option<Cache>,
    options: SchedulerOptions,
    metrics: &Metrics,
) {
    let slots = Slots::new(options.n_parallel.max(1));
    let mut scheduler = Scheduler {
        model,
        text,
        queue,
        cache,
        options,
        metrics,
        slots,
        running: Vec::new(),
        leaving: Vec::new(),
        turn: 0,
        owed: Duration::ZERO,
    };
    while scheduler.step() {}
    if let Some(cache) = &mut scheduler.cache {
        cache.flush();
    }
    scheduler.tell_cache();
    queue.set_free(0);
}

struct Scheduler<'a, M: Model> {
    model: &'a mut M,
    text: &'a TextModel,
    queue: &'a Queue,
    cache: Option<Cache>,
    options: SchedulerOptions,
    metrics: &'a Metrics,
    slots: Slots<M>,
    running: Vec<Running<'a, M>>,
    /// Answers that are over, but not yet read.
    leaving: Vec<Outbox>,
    /// Whose prompt is next.
    turn: usize,
    /// Time that steps get before the next piece of a prompt.
    owed: Duration,
}

impl<'a, M: Model> Scheduler<'a, M> {
    /// One round; false when everything is over.
    fn step(&mut self) -> bool {
        self.admit();
        self.leave();
        self.drop_unwanted();
        self.metrics.set_load(self.running.len(), self.queue.n_waiting());
        let ready = self.running.iter_mut().map(|r| (r.is_prefill(), r.outbox.flush()));
        let (mut n_prefill, mut n_decode) = (0, 0);
        for (is_prefill, is_read) in ready {
            n_prefill += usize::from(is_prefill);
            n_decode += usize::from(!is_prefill && is_read);
        }
        let start = Instant::now();
        if 0 < n_prefill && (n_decode == 0 || self.owed.is_zero()) {
            self.prefill();
            self.owed = if 0 < n_decode { start.elapsed() } else { Duration::ZERO };
        } else if 0 < n_decode {
            self.decode();
            self.owed = self.owed.saturating_sub(start.elapsed());
        } else if self.running.is_empty() && self.leaving.is_empty() {
            if self.queue.closed().is_some() {
                return false;
            }
            self.model.pause();
            if let Some(cache) = &mut self.cache {
                cache.pause();
            }
            self.tell_cache();
            self.queue.wait(IDLE_POLL);
        } else {
            std::thread::sleep(STALL_POLL);
        }
        true
    }

    /// Starts what there is room for.
    fn admit(&mut self) {
        while 0 < self.slots.n_free() {
            let Some(ticket) = self.queue.pop(self.slots.n_free()) else { break };
            if self.queue.closed().is_some() {
                self.refuse(ticket, FailureKind::ShuttingDown, "the server is shutting down");
            } else if self.options.answer_time < ticket.queued.elapsed() {
                self.refuse(ticket, FailureKind::TimeOut, "the request waited too long");
            } else {
                self.start(ticket);
            }
        }
    }

    fn refuse(&mut self, ticket: Ticket, kind: FailureKind, message: &str) {
        let mut outbox = Outbox::of(ticket);
        outbox.fail(kind, message.into());
        self.leaving.push(outbox);
    }

    fn start(&mut self, ticket: Ticket) {
        self.metrics.started(ticket.queued.elapsed());
        let Job { prompt, hint, .. } = &ticket.job;
        let taken = self.slots.take(self.model, self.cache.as_mut(), prompt, hint.key.as_deref());
        match Running::start(self.model, self.text, ticket, taken) {
            Ok(running) => self.running.push(running),
            Err((error, mut outbox, session)) => {
                outbox.fail(FailureKind::Engine, error.to_string());
                self.slots.give_back(session, None, self.cache.is_some());
                self.leaving.push(outbox);
                self.metrics.failed();
            }
        }
    }

    /// Forgets what was read to its end, or will not be.
    fn leave(&mut self) {
        let stall_time = self.options.stall_time;
        let is_over = self.deadline_passed();
        self.leaving.retain_mut(|outbox| !outbox.flush() && outbox.stalled() < stall_time && !is_over);
    }

    /// Must everything end now?
    fn deadline_passed(&self) -> bool {
        self.queue.closed().is_some_and(|deadline| deadline <= Instant::now())
    }

    /// Ends answers that nobody waits for, or that took too long.
    fn drop_unwanted(&mut self) {
        let is_over = self.deadline_passed();
        for i in (0..self.running.len()).rev() {
            let running = &mut self.running[i];
            if running.outbox.is_closed() {
                self.metrics.cancelled();
                self.remove(i, true);
                continue;
            }
            if is_over {
                running.fail(FailureKind::ShuttingDown, "the server is shutting down".into());
            } else if self.options.answer_time < running.queued.elapsed() {
                let limit_s = self.options.answer_time.as_secs();
                running.fail(FailureKind::TimeOut, format!("the answer was not complete after {limit_s} s"));
            } else if self.options.stall_time < running.outbox.stalled() {
                let limit_s = self.options.stall_time.as_secs();
                running.fail(FailureKind::SlowReader, format!("the client read nothing for {limit_s} s"));
            } else {
                continue;
            }
            self.metrics.failed();
            self.remove(i, true);
        }
    }

    /// Takes an answer out; its session is kept if it is sound.
    fn remove(&mut self, i: usize, is_sound: bool) {
        let mut running = self.running.swap_remove(i);
        if is_sound && self.model.failure(&running.session).is_none() {
            if let Some(cache) = &mut self.cache {
                running.keep_answer(self.model, cache);
            }
            self.slots.give_back(running.session, running.key, self.cache.is_some());
        } else {
            self.slots.give_up();
        }
        if !running.outbox.flush() {
            self.leaving.push(running.outbox);
        }
        self.tell_cache();
        self.model.pause();
    }

    /// What the cache has to tell.
    fn tell_cache(&mut self) {
        if let Some(cache) = &mut self.cache {
            self.metrics.set_cache(&cache.stats());
            for warning in cache.take_warnings() {
                eprintln!("warning: {warning}");
            }
        }
    }

    /// Whose prompt is fed next. One that begins as another one that is being fed waits for what is kept of that.
    fn next_prompt(&mut self) -> Option<usize> {
        let n = self.running.len();
        let prompts = (0..n).map(|k| (self.turn + k) % n).filter(|&i| self.running[i].is_prefill());
        let (led, ready): (Vec<usize>, Vec<usize>) = prompts.partition(|&i| {
            let running = &self.running[i];
            !running.has_begun() && self.running.iter().any(|other| other.leads(self.model, running))
        });
        for i in led {
            self.running[i].wait();
        }
        ready.first().copied()
    }

    fn begin(&mut self, i: usize) {
        let running = &mut self.running[i];
        running.begin(self.model, self.cache.as_mut());
        let (prompt, reuse) = running.prompt();
        self.metrics.reused(reuse.source, reuse.reason(prompt.len()));
        if self.options.is_verbose {
            eprintln!("{}", reuse.line(prompt, self.text.tokenizer()));
        }
    }

    /// Feeds a piece of the prompt whose turn it is: all of it if there is nobody else, be it one whose reader is slow
    /// just now.
    fn prefill(&mut self) {
        let n = self.running.len();
        let Some(i) = self.next_prompt() else { return };
        if !self.running[i].has_begun() {
            self.begin(i);
        }
        self.turn = (i + 1) % n;
        let is_alone = n == 1;
        let chunk = if is_alone { self.model.n_batch() } else { self.options.n_chunk };
        let (queue, n_free) = (self.queue, self.slots.n_free());
        let deadline = |queue: &Queue| queue.closed().is_none_or(|deadline| Instant::now() < deadline);
        let is_wanted = || deadline(queue) && !(is_alone && 0 < n_free && 0 < queue.n_waiting());
        let before = self.model.counters();
        let running = &mut self.running[i];
        let n_before = self.model.ids(&running.session).len();
        let stepped = running.prefill(self.model, self.cache.as_mut(), chunk, &is_wanted);
        let n_fed = self.model.ids(&running.session).len().saturating_sub(n_before);
        let used = self.model.counters().since(&before);
        running.add(&used);
        self.metrics.fed_prompt(n_fed);
        self.metrics.used(&used);
        self.settle(i, stepped);
    }

    /// One token, or several that are certain, for each answer that is past its prompt and whose reader keeps up.
    fn decode(&mut self) {
        let before = self.model.counters();
        let mut batch: Vec<usize> = Vec::new();
        let mut results: Vec<(usize, Result<Step, GenerateError>)> = Vec::new();
        for i in 0..self.running.len() {
            let running = &mut self.running[i];
            if running.is_prefill() || !running.outbox.flush() {
                continue;
            }
            if running.single().is_some() {
                batch.push(i);
            } else {
                let before = self.model.counters();
                let stepped = running.feed_next(self.model);
                running.add(&self.model.counters().since(&before));
                results.push((i, stepped));
            }
        }
        if !batch.is_empty() {
            self.decode_batch(&batch, &mut results);
        }
        self.metrics.used(&self.model.counters().since(&before));
        // From behind, because finished ones are taken out.
        results.sort_by_key(|&(i, _)| std::cmp::Reverse(i));
        for (i, stepped) in results {
            self.settle(i, stepped);
        }
    }

    fn decode_batch(&mut self, batch: &[usize], results: &mut Vec<(usize, Result<Step, GenerateError>)>) {
        let before = self.model.counters();
        let mut ids = Vec::with_capacity(batch.len());
        let mut sessions = Vec::with_capacity(batch.len());
        for (i, running) in self.running.iter_mut().enumerate() {
            if batch.contains(&i) {
                ids.extend(running.single());
                sessions.push(&mut running.session);
            }
        }
        let decoded = self.model.decode(&mut sessions, &ids);
        let used = self.model.counters().since(&before);
        // Which sessions an error is about, they say themselves; if none does, it is about all.
        let failure = |model: &M, i: usize| model.failure(&self.running[i].session);
        let is_of_some = batch.iter().any(|&i| failure(self.model, i).is_some());
        for &i in batch {
            let error = match &decoded {
                Ok(()) => None,
                Err(error) if !is_of_some => Some(error.to_string()),
                Err(_) => self.model.failure(&self.running[i].session),
            };
            let running = &mut self.running[i];
            running.add(&used);
            let stepped = match error {
                None => running.choose(self.model),
                Some(why) => Err(model::ModelError::Poisoned { why }.into()),
            };
            results.push((i, stepped));
        }
    }

    /// What follows from a step of an answer.
    fn settle(&mut self, i: usize, stepped: Result<Step, GenerateError>) {
        let running = &mut self.running[i];
        self.metrics.generated(running.take_new_tokens());
        match stepped {
            Ok(Step::More) => {
                running.outbox.flush();
            }
            Ok(Step::Done) => {
                self.metrics.finished(&running.timings(self.model));
                self.remove(i, true);
            }
            Err(error) => {
                running.fail(FailureKind::Engine, error.to_string());
                self.metrics.failed();
                self.remove(i, false);
            }
        }
    }
}
