//! Jobs that wait, in the order they came; bounded.

use std::collections::VecDeque;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::mpsc;

use crate::engine::{Job, Update};

/// Updates that may lie between the engine and whoever reads them: a slow reader stops its own answer then.
const N_UPDATE_MAX: usize = 256;

/// Hands jobs from many handlers to one engine.
#[derive(Debug)]
pub struct Queue {
    state: Mutex<State>,
    /// Signalled when there is a new job, and when the queue is closed.
    changed: Condvar,
    n_wait_max: usize,
}

#[derive(Debug, Default)]
struct State {
    waiting: VecDeque<Ticket>,
    /// The engine has so many places free.
    n_free: usize,
    /// No new jobs; what runs must end by then.
    closed: Option<Instant>,
}

/// A job that waits.
#[derive(Debug)]
pub struct Ticket {
    /// What to do.
    pub job: Job,
    /// Whom to tell. Closed: nobody wants to know any more.
    pub updates: mpsc::Sender<Update>,
    /// When it came.
    pub queued: Instant,
}

/// What the engine tells about one job. Dropping it cancels the job.
#[derive(Debug)]
pub struct Updates(mpsc::Receiver<Update>);

impl Updates {
    /// The next one; `None` after the last.
    pub async fn next(&mut self) -> Option<Update> {
        self.0.recv().await
    }
}

/// Jobs that were not taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refused {
    /// Too many wait already.
    #[error("{n_waiting} requests wait already and {n_more} more are too many (--queue); try again later")]
    Full {
        /// Jobs that wait.
        n_waiting: usize,
        /// Jobs that came.
        n_more: usize,
    },
    /// The server ends.
    #[error("the server is shutting down")]
    Closed,
}

impl Queue {
    /// `n_wait_max` jobs may wait, besides those that run.
    pub fn new(n_wait_max: usize) -> Self {
        Self { state: Mutex::default(), changed: Condvar::new(), n_wait_max }
    }

    /// Takes all jobs or none.
    ///
    /// # Errors
    /// Too many wait, or the queue is closed.
    pub fn submit(&self, jobs: Vec<Job>) -> Result<Vec<Updates>, Refused> {
        let mut state = self.lock();
        if state.closed.is_some() {
            return Err(Refused::Closed);
        }
        // Those whose clients are gone take nobody's place.
        state.waiting.retain(|ticket| !ticket.updates.is_closed());
        let n_waiting = state.waiting.len();
        if self.n_wait_max.saturating_add(state.n_free) < n_waiting + jobs.len() {
            return Err(Refused::Full { n_waiting, n_more: jobs.len() });
        }
        let queued = Instant::now();
        let enqueue = |job| {
            let (updates, receiver) = mpsc::channel(N_UPDATE_MAX);
            state.waiting.push_back(Ticket { job, updates, queued });
            Updates(receiver)
        };
        let updates = jobs.into_iter().map(enqueue).collect();
        self.changed.notify_all();
        Ok(updates)
    }

    /// Jobs that wait.
    pub fn n_waiting(&self) -> usize {
        self.lock().waiting.len()
    }

    /// No new jobs from now on, and none of those that wait. What runs may go on for `grace`.
    pub fn close(&self, grace: Duration) {
        let deadline = Instant::now() + grace;
        let mut state = self.lock();
        state.closed = Some(state.closed.map_or(deadline, |closed| closed.min(deadline)));
        self.changed.notify_all();
    }

    /// The oldest job that somebody still wants. `n_free`: places that the engine has for jobs.
    pub(crate) fn pop(&self, n_free: usize) -> Option<Ticket> {
        let mut state = self.lock();
        while let Some(ticket) = state.waiting.pop_front() {
            if !ticket.updates.is_closed() {
                state.n_free = n_free.saturating_sub(1);
                return Some(ticket);
            }
        }
        state.n_free = n_free;
        None
    }

    /// Tells how many places the engine has free.
    pub(crate) fn set_free(&self, n_free: usize) {
        self.lock().n_free = n_free;
    }

    /// When everything must have ended, if the queue is closed.
    pub(crate) fn closed(&self) -> Option<Instant> {
        self.lock().closed
    }

    /// Waits for a job, the end, or `timeout`.
    pub(crate) fn wait(&self, timeout: Duration) {
        let state = self.lock();
        if state.waiting.is_empty() && state.closed.is_none() {
            drop(self.changed.wait_timeout(state, timeout).unwrap_or_else(PoisonError::into_inner));
        }
    }

    /// Nothing panics while it holds the lock.
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
