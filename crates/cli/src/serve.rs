//! `serve`: a model for many clients.

use std::net::{SocketAddr, TcpListener, ToSocketAddrs};
use std::ops::{ControlFlow, Range};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use generate::SamplingOverrides;
use kernels::{Backend, DELTA_CHUNK};
use model::{Engine, Logits, ModelError, Session};
use serve::engine::{Counters, Model, SchedulerOptions};
use serve::{Keys, Origins, ServeOptions, Thinking};
use store::Store;

use crate::device::Device;
use crate::error::CliError;
use crate::flags::{ReasoningField, ServeFlags};
use crate::interrupt::Answering;
use crate::load::{Loaded, load_warm};
use crate::output::note;
use crate::plan::Work;
use crate::{prefixes, target, text};

/// Where a key may be, so that it is in no list of processes.
const KEY_VARIABLE: &str = "FLASH_MOE_API_KEY";
/// What clients call the model inside the program.
const DEMO_NAME: &str = "flash-moe-demo";
/// Answers may go on for so long after the first Ctrl-C; a second one ends them.
const GRACE: Duration = Duration::from_secs(10);

pub(crate) fn serve(flags: &ServeFlags) -> anyhow::Result<()> {
    let keys = keys(flags)?;
    let listener = listen(flags, &keys)?;
    let address = listener.local_addr()?;
    let store = target::open(flags.model.as_deref())?;
    let text_model = text::load(&store)?;
    // Wrong values are refused before anything is loaded.
    text::sampling(&text_model, &flags.sampling)?;
    let work = Work::serving(&flags.engine, store.manifest(), flags.parallel, !flags.prefix.no_prefix_cache);
    // While the weights are read; else the first requests would wait for it.
    let loaded = std::thread::scope(|scope| {
        scope.spawn(|| text_model.warm_up());
        load_warm(&store, &flags.engine, work)
    })?;
    let is_verbose = flags.engine.verbose;
    let scheduling =
        SchedulerOptions { n_parallel: work.n_session as usize, is_verbose, ..SchedulerOptions::default() };
    let cache = prefixes::open(&flags.prefix, &store, &loaded, is_verbose);
    let options = options(flags, &store, &loaded, keys);
    greet(&options, address, &loaded, scheduling.n_parallel);
    let mut served = Served { loaded };
    let answering = Answering::begin();
    let is_stopped = || answering.flow().is_break();
    let text_model = Arc::new(text_model);
    serve::serve(
        &mut served,
        text_model,
        listener,
        options,
        scheduling,
        cache,
        flags.queue,
        GRACE,
        is_stopped,
    )?;
    served.loaded.finish();
    Ok(())
}

/// From the command line, a file, or the environment.
fn keys(flags: &ServeFlags) -> anyhow::Result<Keys> {
    let in_file = |path: &Path| {
        let read = std::fs::read_to_string(path);
        read.map_err(|source| CliError::Io { path: path.to_owned(), action: "read", source })
    };
    let file = flags.api_key_file.as_deref().map(in_file).transpose()?;
    let lines = file.iter().flat_map(|text| text.lines()).map(|line| line.trim().to_owned());
    let mut keys: Vec<String> = flags.api_key.iter().cloned().chain(lines).collect();
    keys.retain(|key| !key.is_empty());
    let is_asked = flags.api_key.is_some() || file.is_some();
    if is_asked && keys.is_empty() {
        return Err(CliError::Usage("the API key is empty".into()).into());
    }
    if !is_asked && !flags.no_auth {
        keys.extend(std::env::var(KEY_VARIABLE).ok());
    }
    Ok(Keys::new(keys))
}

/// Others can reach the address only if there is a key, or if that is what the user wants.
fn listen(flags: &ServeFlags, keys: &Keys) -> anyhow::Result<TcpListener> {
    let failed = |action, source| CliError::Io {
        path: format!("{}:{}", flags.host, flags.port).into(),
        action,
        source,
    };
    let found =
        (flags.host.as_str(), flags.port).to_socket_addrs().map_err(|e| failed("find the address", e))?;
    let addresses: Vec<SocketAddr> = found.collect();
    let is_private = addresses.iter().all(|address| address.ip().is_loopback());
    if !is_private && keys.is_empty() && !flags.no_auth {
        let why =
            format!("--host {} can be reached by others: it needs --api-key (or --no-auth)", flags.host);
        return Err(CliError::Usage(why).into());
    }
    Ok(TcpListener::bind(addresses.as_slice()).map_err(|e| failed("listen", e))?)
}

fn options(flags: &ServeFlags, store: &Store, loaded: &Loaded, keys: Keys) -> ServeOptions {
    let own = match &flags.model {
        None => DEMO_NAME.to_owned(),
        Some(_) => {
            let location = store.location();
            let name = Path::new(&location).file_name().map(|name| name.to_string_lossy().into_owned());
            name.unwrap_or(location)
        }
    };
    let names = flags.alias.iter().cloned().chain([own]).collect();
    let sampling = &flags.sampling;
    ServeOptions {
        names,
        thinking: Thinking { is_on: text::thinking(flags.think), budget: flags.think_budget },
        max_tokens: flags.max_tokens,
        sampling: SamplingOverrides {
            temperature: sampling.temperature,
            top_k: sampling.top_k,
            top_p: sampling.top_p,
            min_p: sampling.min_p,
            presence_penalty: sampling.presence_penalty,
            frequency_penalty: sampling.frequency_penalty,
            repetition_penalty: sampling.repetition_penalty,
            seed: sampling.seed,
        },
        reasoning_field: match flags.reasoning_field {
            ReasoningField::ReasoningContent => serve::ReasoningField::ReasoningContent,
            ReasoningField::Reasoning => serve::ReasoningField::Reasoning,
        },
        keep_billing_line: flags.keep_billing_line,
        keys,
        origins: Origins {
            hosts: flags.allowed_host.iter().chain([&flags.host]).cloned().collect(),
            origins: flags.allowed_origin.clone(),
        },
        ..ServeOptions::new("", loaded.engine.config().n_vocab, loaded.plan.n_ctx)
    }
}

fn greet(options: &ServeOptions, address: SocketAddr, loaded: &Loaded, n_parallel: usize) {
    let backend = loaded.engine.backend().describe();
    let name = options.names.first().map_or("", String::as_str);
    let n_ctx = loaded.plan.n_ctx;
    note(format_args!("{name} on {backend}: {n_parallel} answers at a time, {n_ctx} tokens of context each"));
    if options.keys.is_empty() && !address.ip().is_loopback() {
        note("note: everybody who can reach this address may use the model (--no-auth)");
    }
    note(format_args!("listening on http://{address} (the API is at /v1); Ctrl-C ends"));
}

/// The engine as the server sees it.
struct Served {
    loaded: Loaded,
}

impl Served {
    fn engine(&self) -> &Engine<Device> {
        &self.loaded.engine
    }
}

impl Model for Served {
    type Session = Session<Device>;

    fn n_vocab(&self) -> usize {
        self.engine().config().n_vocab
    }

    fn n_ctx(&self) -> usize {
        self.loaded.plan.n_ctx
    }

    fn n_align(&self) -> usize {
        DELTA_CHUNK
    }

    fn n_batch(&self) -> usize {
        self.loaded.plan.n_batch
    }

    fn open(&mut self) -> Self::Session {
        self.engine().session(self.loaded.plan.n_ctx)
    }

    fn ids<'s>(&self, session: &'s Self::Session) -> &'s [u32] {
        session.ids()
    }

    fn logits<'s>(&self, session: &'s Self::Session) -> &'s [f32] {
        session.logits()
    }

    fn failure(&self, session: &Self::Session) -> Option<String> {
        session.failure().map(str::to_owned)
    }

    fn feed(
        &mut self,
        session: &mut Self::Session,
        ids: &[u32],
        progress: &mut dyn FnMut(usize) -> ControlFlow<()>,
    ) -> Result<(), ModelError> {
        self.loaded.engine.forward(session, ids, Logits::Last, progress)
    }

    fn decode(&mut self, sessions: &mut [&mut Self::Session], ids: &[u32]) -> Result<(), ModelError> {
        self.loaded.engine.decode(sessions, ids)
    }

    fn keep_at(&mut self, session: &mut Self::Session, positions: &[usize]) {
        session.keep_states_at(&prefixes::affordable(positions, &self.loaded.plan));
    }

    fn take_kept(&mut self, session: &mut Self::Session) -> Vec<(usize, Vec<u8>)> {
        session.take_states().into_iter().map(|state| (state.pos, state.bytes)).collect()
    }

    fn state(&self, session: &Self::Session) -> Result<Vec<u8>, ModelError> {
        Ok(self.engine().state(session)?.bytes)
    }

    fn read_kv(
        &self,
        session: &Self::Session,
        positions: Range<usize>,
        out: &mut [u8],
    ) -> Result<(), ModelError> {
        self.engine().read_kv(session, positions, out)
    }

    fn write_kv(
        &self,
        session: &mut Self::Session,
        positions: Range<usize>,
        bytes: &[u8],
    ) -> Result<(), ModelError> {
        self.engine().write_kv(session, positions, bytes)
    }

    fn resume(&self, session: &mut Self::Session, ids: &[u32], state: &[u8]) -> Result<(), ModelError> {
        self.engine().resume(session, ids, state)
    }

    fn counters(&self) -> Counters {
        let stats = self.engine().stream_stats();
        Counters { n_hit: stats.n_hit, n_miss: stats.n_miss, read_bytes: stats.read_bytes, wait: stats.wait }
    }

    fn pause(&mut self) {
        self.loaded.pause();
    }
}
