//! Server-sent events: what one or several jobs tell, as any API writes it.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::pin::Pin;
use std::time::Duration;

use axum::http::{HeaderName, HeaderValue};
use axum::response::sse::{Event, KeepAlive, Sse};
use axum::response::{IntoResponse, Response};
use futures_util::stream::{self, SelectAll, Stream, StreamExt};

use crate::api::answer::lost;
use crate::engine::{Failure, Update, Updates};

/// How an API writes updates. `choice` is the number of the job.
pub(crate) trait Encoder: Send + 'static {
    /// Before anything is known of the answer.
    fn begin(&mut self, out: &mut VecDeque<Event>);

    /// Writes an update that is not `Failed`.
    fn update(&mut self, choice: usize, update: Update, out: &mut VecDeque<Event>);

    /// All jobs are done.
    fn end(&mut self, out: &mut VecDeque<Event>);

    /// One job failed: nothing more comes.
    fn failed(&mut self, failure: Failure, out: &mut VecDeque<Event>);

    /// What is sent when nothing else was for a while.
    fn heartbeat(&self) -> Event {
        Event::default().comment("still working")
    }
}

type Source = Pin<Box<dyn Stream<Item = (usize, Update)> + Send>>;

struct State<E> {
    encoder: E,
    /// Dropped when it is over, which cancels what still runs.
    updates: Option<SelectAll<Source>>,
    n_left: usize,
    out: VecDeque<Event>,
}

/// A response that begins at once. A comment is sent when nothing else was for `heartbeat`.
pub(crate) fn respond(updates: Vec<Updates>, mut encoder: impl Encoder, heartbeat: Duration) -> Response {
    let n_left = updates.len();
    let mut out = VecDeque::new();
    encoder.begin(&mut out);
    let keep_alive = KeepAlive::new().interval(heartbeat).event(encoder.heartbeat());
    let updates =
        Some(stream::select_all(updates.into_iter().enumerate().map(|(i, updates)| source(i, updates))));
    let events = stream::unfold(State { encoder, updates, n_left, out }, next);
    let mut response = Sse::new(events).keep_alive(keep_alive).into_response();
    // Proxies must not collect the stream.
    let (name, no) = (HeaderName::from_static("x-accel-buffering"), HeaderValue::from_static("no"));
    response.headers_mut().insert(name, no);
    response
}

/// All updates of one job; an engine that ends without a word is a failure.
fn source(choice: usize, updates: Updates) -> Source {
    let updates = stream::unfold(Some(updates), async |updates| {
        let mut updates = updates?;
        let update = updates.next().await.unwrap_or_else(lost);
        let is_last = matches!(update, Update::Done(_) | Update::Failed(_));
        Some((update, (!is_last).then_some(updates)))
    });
    Box::pin(updates.map(move |update| (choice, update)))
}

async fn next<E: Encoder>(mut state: State<E>) -> Option<(Result<Event, Infallible>, State<E>)> {
    loop {
        if let Some(event) = state.out.pop_front() {
            return Some((Ok(event), state));
        }
        let State { encoder, updates, n_left, out } = &mut state;
        let (choice, update) = updates.as_mut()?.next().await?;
        match update {
            Update::Failed(failure) => {
                encoder.failed(failure, out);
                *updates = None;
            }
            update => {
                *n_left -= usize::from(matches!(update, Update::Done(_)));
                encoder.update(choice, update, out);
                if *n_left == 0 {
                    encoder.end(out);
                    *updates = None;
                }
            }
        }
    }
}
