//! The whole: connections on threads of their own, the engine on the caller's.

use std::io;
use std::net::TcpListener;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use generate::TextModel;
use prefix::Cache;

use crate::app::{App, ServeOptions};
use crate::conn;
use crate::engine::{self, Model, Queue, SchedulerOptions};
use crate::metrics::Metrics;

/// Threads that serve connections: they write little and wait much.
const N_THREAD: usize = 2;
/// Between two looks at whether the server is to end.
const STOP_POLL: Duration = Duration::from_millis(100);
/// For answers that were cut short to be told so.
const FAREWELL: Duration = Duration::from_secs(2);

/// A server that cannot run.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ServeError {
    /// Threads or sockets.
    #[error("the server cannot run: {0}")]
    Io(#[from] io::Error),
    /// A thread of the server ended by a fault of the program.
    #[error("the server's threads ended by a fault of the program")]
    Panicked,
}

/// Serves until `is_stopped`, then lets answers go on for `grace`. The model is used on the calling thread only.
/// `cache`: of prefixes of prompts; without it each prompt is fed as a whole.
///
/// # Errors
/// Threads cannot be started, or the socket fails.
pub fn serve<M: Model>(
    model: &mut M,
    text: Arc<TextModel>,
    listener: TcpListener,
    options: ServeOptions,
    scheduling: SchedulerOptions,
    cache: Option<Cache>,
    n_queue: usize,
    grace: Duration,
    is_stopped: impl Fn() -> bool + Send + Sync,
) -> Result<(), ServeError> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(N_THREAD)
        .thread_name("http")
        .enable_all()
        .build()?;
    let (queue, metrics) = (Arc::new(Queue::new(n_queue)), Arc::new(Metrics::default()));
    let limits = options.limits;
    let app = App::new(options, text.clone(), queue.clone(), metrics.clone());
    let is_engine_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let stop = async {
            while !is_stopped() && !is_engine_over.load(Ordering::SeqCst) {
                tokio::time::sleep(STOP_POLL).await;
            }
            queue.close(grace);
        };
        let (queue, runtime) = (&queue, &runtime);
        let http = scope.spawn(move || {
            // Whatever ends the connections ends the engine.
            let _closing = Closing(queue);
            runtime.block_on(conn::serve(listener, app.router(), limits, stop, grace + FAREWELL))
        });
        {
            // Also by a panic, which must end the program and not leave it without an engine.
            let _ending = Ending(&is_engine_over);
            engine::run(model, &text, queue, cache, scheduling, &metrics);
        }
        http.join().map_err(|_| ServeError::Panicked)?.map_err(ServeError::Io)
    })
}

struct Ending<'a>(&'a AtomicBool);

impl Drop for Ending<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::SeqCst);
    }
}

struct Closing<'q>(&'q Queue);

impl Drop for Closing<'_> {
    fn drop(&mut self) {
        self.0.close(Duration::ZERO);
    }
}
