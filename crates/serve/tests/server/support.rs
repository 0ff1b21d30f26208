//! Servers for tests: an engine with a scripted model behind the real router.

use std::net::{SocketAddr, TcpListener};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::http::{HeaderMap, Request, StatusCode};
use prefix::{Cache, Disk, DiskLimits};
use serde_json::Value;
use serve::engine::{Queue, SchedulerOptions, run};
use serve::{App, Metrics, ServeOptions};
use tower::ServiceExt;

use crate::scripted::{Log, Script, Scripted, Stage, text_model};

/// Much more than what is kept in any test.
const CACHE_BYTES: u64 = 64 << 20;

/// A router and the engine behind it. Dropped, it ends.
pub(crate) struct Server {
    pub(crate) router: Router,
    pub(crate) log: Arc<Mutex<Log>>,
    queue: Arc<Queue>,
    engine: Option<std::thread::JoinHandle<()>>,
}

/// What a server is like, if not as usual.
pub(crate) struct Setup {
    pub(crate) stage: Stage,
    pub(crate) options: ServeOptions,
    pub(crate) scheduling: SchedulerOptions,
    pub(crate) n_queue: usize,
    /// `None`: nothing is kept.
    pub(crate) cache: Option<Cache>,
}

impl Setup {
    pub(crate) fn new(scripts: &[(&str, Script)]) -> Self {
        let stage = Stage::new(scripts);
        let options = ServeOptions::new("org/model", 8225, stage.n_ctx);
        let scheduling = SchedulerOptions { n_parallel: 2, ..SchedulerOptions::default() };
        let cache = Some(Cache::new(Scripted::identity(), CACHE_BYTES));
        Self { stage, options, scheduling, n_queue: 16, cache }
    }

    pub(crate) fn n_ctx(mut self, n_ctx: usize) -> Self {
        (self.stage.n_ctx, self.options.n_ctx) = (n_ctx, n_ctx);
        self
    }

    /// What is kept is in a folder too.
    pub(crate) fn on_disk(mut self, folder: &Path) -> Self {
        let limits = DiskLimits {
            size_bytes: CACHE_BYTES,
            daily_write_bytes: CACHE_BYTES,
            expiry: Duration::from_secs(3600),
            free_bytes: 0,
        };
        let identity = Scripted::identity();
        let (disk, entries) = Disk::open(folder, &identity, limits).unwrap();
        self.cache = Some(Cache::new(identity, CACHE_BYTES).with_disk(disk, entries));
        self
    }

    pub(crate) fn start(self) -> Server {
        let (queue, metrics) = (Arc::new(Queue::new(self.n_queue)), Arc::new(Metrics::default()));
        let text = Arc::new(text_model());
        let router = App::new(self.options, text.clone(), queue.clone(), metrics.clone()).router();
        let log = self.stage.log.clone();
        let (stage, scheduling, served, cache) = (self.stage, self.scheduling, queue.clone(), self.cache);
        let engine = std::thread::spawn(move || {
            run(&mut Scripted::new(stage), &text, &served, cache, scheduling, &metrics);
        });
        Server { router, log, queue, engine: Some(engine) }
    }

    /// The same on a socket.
    pub(crate) fn listen(self) -> Listening {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let stop = Arc::new(AtomicBool::new(false));
        let (log, is_stopped) = (self.stage.log.clone(), stop.clone());
        let thread = std::thread::spawn(move || {
            let mut model = Scripted::new(self.stage);
            let grace = Duration::from_secs(5);
            serve::serve(
                &mut model,
                Arc::new(text_model()),
                listener,
                self.options,
                self.scheduling,
                self.cache,
                self.n_queue,
                grace,
                || is_stopped.load(Ordering::SeqCst),
            )
            .unwrap();
        });
        Listening { address, log, stop, thread: Some(thread) }
    }
}

/// A server on a socket. Dropped, it ends.
pub(crate) struct Listening {
    pub(crate) address: SocketAddr,
    pub(crate) log: Arc<Mutex<Log>>,
    stop: Arc<AtomicBool>,
    thread: Option<std::thread::JoinHandle<()>>,
}

impl Listening {
    /// Ends it as Ctrl-C does; whatever it was doing must have ended well.
    pub(crate) fn stop(mut self) {
        self.end();
    }

    fn end(&mut self) {
        self.stop.store(true, Ordering::SeqCst);
        if let Some(thread) = self.thread.take() {
            let ended = thread.join();
            assert!(ended.is_ok() || std::thread::panicking(), "the server panicked");
        }
    }
}

impl Drop for Listening {
    fn drop(&mut self) {
        self.end();
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.queue.close(Duration::ZERO);
        if let Some(engine) = self.engine.take() {
            let ended = engine.join();
            assert!(ended.is_ok() || std::thread::panicking(), "the engine panicked");
        }
    }
}

/// A response that is complete.
#[derive(Debug)]
pub(crate) struct Reply {
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
    pub(crate) body: String,
}

impl Reply {
    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or_else(|e| panic!("{e}: {}", self.body))
    }

    /// The data of all events, without the last `[DONE]`, which must be there.
    pub(crate) fn events(&self) -> Vec<Value> {
        let mut data: Vec<&str> = self.body.lines().filter_map(|line| line.strip_prefix("data: ")).collect();
        assert_eq!(data.pop(), Some("[DONE]"), "{}", self.body);
        data.into_iter().map(|data| serde_json::from_str(data).unwrap()).collect()
    }
}

impl Server {
    pub(crate) async fn send(&self, request: Request<Body>) -> Reply {
        let response = self.router.clone().oneshot(request).await.unwrap();
        let (parts, body) = response.into_parts();
        let bytes = axum::body::to_bytes(body, 1 << 26).await.unwrap();
        let body = String::from_utf8(bytes.into()).expect("every response is UTF-8");
        Reply { status: parts.status, headers: parts.headers, body }
    }

    /// Requests that wait.
    pub(crate) fn n_waiting(&self) -> usize {
        self.queue.n_waiting()
    }

    pub(crate) async fn post(&self, path: &str, body: &Value) -> Reply {
        self.send(request("POST", path, body.to_string())).await
    }

    pub(crate) async fn get(&self, path: &str) -> Reply {
        self.send(request("GET", path, String::new())).await
    }

    /// A chat request.
    pub(crate) async fn chat(&self, body: &Value) -> Reply {
        self.post("/v1/chat/completions", body).await
    }
}

pub(crate) fn request(method: &str, path: &str, body: String) -> Request<Body> {
    let builder = Request::builder().method(method).uri(path).header("host", "localhost:8080");
    builder.header("content-type", "application/json").body(body.into()).unwrap()
}

/// An object with the fields of both.
pub(crate) fn with(body: &Value, more: &Value) -> Value {
    let mut body = body.clone();
    for (key, value) in more.as_object().unwrap() {
        body[key] = value.clone();
    }
    body
}
