//! A loaded model: dense weights, expert stream and activations, ready to run batches.

use std::io;
use std::ops::ControlFlow;

use kernels::{Backend, DELTA_CHUNK, HeldShape, KvFormat, Rope};
use quant::Format;
use store::{Blob, Input, ModelConfig, Store};
use stream::{
    ExpertStream, Heat, LayerStats, ReadAt, RecordFile, RoutingTrace, SlotLimit, StreamError, StreamOptions,
    StreamStats,
};

use crate::arch::{MoeScratch, Pass, hand_over};
use crate::error::check_backend;
use crate::observe::Observer;
use crate::routing::Routing;
use crate::scratch::{N_LOGITS, Scratch};
use crate::session::well;
use crate::timing::Timing;
use crate::weights::Weights;
use crate::{ModelError, Session};

/// Are experts read before their layer's router has chosen them? Output does not depend on it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Prefetch {
    /// Where it was seen to pay.
    #[default]
    Auto,
    /// Always.
    On,
    /// Never.
    Off,
}

/// How to load a model.
#[derive(Clone, Copy, Debug)]
pub struct EngineOptions {
    /// Expert slots and readers.
    pub stream: StreamOptions,
    /// Most tokens that go through a layer at a time; rounded up to a multiple of [`DELTA_CHUNK`].
    pub n_batch: usize,
    /// Experts a token uses, if not the model's own number: an approximation.
    pub n_expert_used: Option<usize>,
    /// Reads ahead.
    pub prefetch: Prefetch,
    /// How sessions store keys and values.
    pub kv_format: KvFormat,
}

/// Experts that are read at a time where all are.
const N_HOLD: usize = 32;

/// Which logits a call wants.
pub enum Logits<'a> {
    /// Those after the last token, kept in the session.
    Last,
    /// Those after every token: told the position and `[n_vocab]`. The last ones are kept as well.
    All(&'a mut dyn FnMut(usize, &[f32])),
}

/// A model that can run.
pub struct Engine<B: Backend> {
    backend: B,
    config: ModelConfig,
    fingerprint: u64,
    weights: Weights<B>,
    formats: Vec<[Format; 3]>,
    n_expert_used: usize,
    n_batch: usize,
    rope: Rope,
    stream: ExpertStream,
    scratch: Scratch<B>,
    moe: MoeScratch,
    timing: Timing,
    routing: Routing,
    prefetch: Prefetch,
    kv_format: KvFormat,
    /// Experts of each layer that the backend can hold.
    n_place: usize,
    trace: Option<Trace<B>>,
    observer: Option<Observer>,
}

/// Sees the residual stream after each layer of each batch.
type Trace<B> = Box<dyn FnMut(&B, usize, &<B as Backend>::Tensor) + Send>;

/// Opens what holds the experts of a layer.
type Open<'a> = dyn Fn(&Blob) -> io::Result<Box<dyn ReadAt>> + 'a;

impl<B: Backend> Engine<B> {
    /// Reads the dense weights and opens the experts. `progress` gets the bytes of dense weights read so far.
    ///
    /// # Errors
    /// A file cannot be read or is damaged, slots cannot be allocated, the backend has failed, or the number of experts
    /// is out of range.
    pub fn load(
        store: &Store,
        backend: B,
        options: EngineOptions,
        progress: &mut dyn FnMut(u64),
    ) -> Result<Self, ModelError> {
        let open = |blob: &Blob| stream::Reader::open(blob, ExpertStream::backing(options.stream.mode));
        Self::load_with(store, backend, options, &open, progress)
    }

    /// As [`Self::load`], with what holds the experts opened by `open`: for simulated drives.
    ///
    /// # Errors
    /// As [`Self::load`].
    pub fn load_with(
        store: &Store,
        backend: B,
        options: EngineOptions,
        open: &Open<'_>,
        progress: &mut dyn FnMut(u64),
    ) -> Result<Self, ModelError> {
        let files = record_files(store, open)?;
        Self::load_from(store, backend, options, files, progress)
    }

    /// As [`Self::load`], with the experts' files opened by the caller.
    pub(crate) fn load_from(
        store: &Store,
        mut backend: B,
        options: EngineOptions,
        files: Vec<RecordFile>,
        progress: &mut dyn FnMut(u64),
    ) -> Result<Self, ModelError> {
        let config = store.config().clone();
        let n_expert_used = options.n_expert_used.unwrap_or(config.n_expert_used);
        if n_expert_used == 0 || n_expert_used > config.n_expert {
            return Err(ModelError::ExpertCount { asked: n_expert_used, n_expert: config.n_expert });
        }
        let n_batch = options.n_batch.max(1).next_multiple_of(DELTA_CHUNK);
        // What is copied to a device must not stand beside the slots.
        let weights = Weights::bind(&backend, &config, &store.load_dense(progress)?);
        let n_place = backend.hold_layers(&held_shapes(store));
        let make = |n_slot, slot_bytes| backend.record_memory(n_slot, slot_bytes);
        let mut stream = ExpertStream::new_in(files, options.stream, &make)?;
        stream.hold(n_place);
        let scratch = Scratch::new(&backend, &config, n_batch, n_expert_used);
        // A device that has not enough memory does not say so each time.
        check_backend(&backend)?;
        Ok(Self {
            scratch,
            timing: Timing::new(config.n_layer()),
            rope: rope(&config),
            formats: store.manifest().experts.iter().map(|e| e.formats).collect(),
            fingerprint: store.fingerprint(),
            moe: MoeScratch::default(),
            routing: Routing::Own,
            prefetch: options.prefetch,
            kv_format: options.kv_format,
            n_place,
            trace: None,
            observer: None,
            backend,
            config,
            weights,
            n_expert_used,
            n_batch,
            stream,
        })
    }

    /// An empty timeline of up to `n_ctx` tokens. Memory for keys and values is taken as they come.
    pub fn session(&self, n_ctx: usize) -> Session<B> {
        Session::new(&self.backend, &self.config, self.kv_format, n_ctx)
    }

    /// Feeds tokens. Afterwards the session's logits are those after the last token.
    ///
    /// Batches end at absolute multiples of [`DELTA_CHUNK`] positions whatever `n_batch` is, so the result depends
    /// neither on it nor on memory. `progress` is told the tokens done, after each layer of a batch the same share of
    /// its tokens; when it breaks with tokens left, the session stands at the end of that batch.
    ///
    /// # Errors
    /// Too many tokens, an id out of range (nothing was fed), [`ModelError::Interrupted`], or an expert that
    /// cannot be read or a router that overflows (the session is poisoned).
    pub fn forward(
        &mut self,
        session: &mut Session<B>,
        ids: &[u32],
        mut logits: Logits<'_>,
        progress: &mut dyn FnMut(usize) -> ControlFlow<()>,
    ) -> Result<(), ModelError> {
        self.check(session, ids)?;
        self.backend.begin(ids.len());
        let sessions = &mut [session];
        let (mut done, mut is_stopped) = (0, false);
        while done < ids.len() {
            let n_token = self.batch_len(sessions[0].pos(), ids.len() - done);
            let (batch, before) = (&ids[done..done + n_token], done);
            done += n_token;
            let is_last = done == ids.len();
            let told = &mut |n_done| is_stopped |= progress(before + n_done).is_break();
            self.batch(sessions, batch, is_last, &mut logits, told)?;
            told(n_token);
            if is_stopped && !is_last {
                return Err(ModelError::Interrupted);
            }
        }
        Ok(())
    }

    /// Feeds one token to each of several sessions, `ids[i]` to `sessions[i]`, wherever each of them stands. Afterwards
    /// the logits of each are those after its token.
    ///
    /// All go through a layer together: an expert is read and computed once for all tokens that chose it, and other
    /// weights are read from memory once. Only attention and delta-nets are computed session by session. What a session
    /// gets does not depend on the others: the same bits as from [`Self::forward`] of its one token.
    ///
    /// # Errors
    /// [`ModelError::Refused`]: a session is full or poisoned, or an id is out of range; nothing was fed. Any other
    /// error: the sessions that failed say so ([`Session::failure`]), all others were fed as if nothing had been. An
    /// expert that cannot be read is a failure of the sessions whose tokens chose it, and a router that overflows one
    /// of the session whose token it was (of all while routing is recorded or replayed); everything else is a failure
    /// of all.
    ///
    /// # Panics
    /// There are not as many ids as sessions, or more than [`EngineOptions::n_batch`].
    pub fn decode(&mut self, sessions: &mut [&mut Session<B>], ids: &[u32]) -> Result<(), ModelError> {
        assert_eq!(sessions.len(), ids.len(), "a token for each session");
        assert!(ids.len() <= self.n_batch, "{} sessions in batches of {}", ids.len(), self.n_batch);
        for (session_idx, (session, id)) in sessions.iter().zip(ids).enumerate() {
            self.check(session, std::slice::from_ref(id))
                .map_err(|source| ModelError::Refused { session_idx, source: Box::new(source) })?;
        }
        if ids.is_empty() {
            return Ok(());
        }
        self.backend.begin(1);
        self.batch(sessions, ids, true, &mut Logits::Last, &mut |_| {})
    }

    /// Shapes.
    pub fn config(&self) -> &ModelConfig {
        &self.config
    }

    /// Experts a token uses.
    pub fn n_expert_used(&self) -> usize {
        self.n_expert_used
    }

    /// Names the weights: saved sessions carry it.
    pub fn fingerprint(&self) -> u64 {
        self.fingerprint
    }

    /// How sessions store keys and values.
    pub fn kv_format(&self) -> KvFormat {
        self.kv_format
    }

    /// Where the arithmetic happens.
    pub fn backend(&self) -> &B {
        &self.backend
    }

    /// Hits, misses and bytes read since the model was loaded.
    pub fn stream_stats(&self) -> StreamStats {
        self.stream.stats()
    }

    /// The same by layer, without reads.
    pub fn layer_stats(&self) -> &[LayerStats] {
        self.stream.layer_stats()
    }

    /// How many expert slots may hold memory.
    pub fn slot_limit(&self) -> SlotLimit {
        self.stream.limit()
    }

    /// How much each expert was used lately.
    pub fn heat(&self) -> Heat {
        self.stream.heat()
    }

    /// Starts reading what was hot in an earlier run, in the background.
    ///
    /// # Errors
    /// The heats are of another model.
    pub fn warm(&mut self, heat: &Heat) -> Result<(), ModelError> {
        Ok(self.stream.warm(heat)?)
    }

    /// Has the backend hold all experts, if it has places for all: a model that fits a device is there as a whole
    /// before the first token. `progress` gets the experts that are held so far, of how many; nothing happens, and it
    /// is not called, where there are too few places.
    ///
    /// # Errors
    /// An expert cannot be read.
    pub fn hold_all(&mut self, progress: &mut dyn FnMut(usize, usize)) -> Result<(), ModelError> {
        let (n_layer, n_expert) = (self.config.n_layer(), self.config.n_expert);
        if self.n_place < n_expert {
            return Ok(());
        }
        let all: Vec<usize> = (0..n_expert).collect();
        for layer in 0..n_layer {
            for (i, experts) in all.chunks(N_HOLD).enumerate() {
                let mut lease = self.stream.lease(layer, 0, experts, |_| std::iter::empty());
                let mut held = Ok(());
                while held.is_ok() {
                    match self.stream.next(&mut lease, N_HOLD) {
                        Ok(true) => hand_over(&self.backend, &mut self.stream, &lease, false),
                        Ok(false) => break,
                        Err(error) => held = Err(error),
                    }
                    self.backend.finish();
                }
                self.stream.release(lease);
                held?;
                progress(layer * n_expert + (i * N_HOLD + experts.len()), n_layer * n_expert);
            }
        }
        Ok(())
    }

    /// Takes note of all experts that tokens use from now on.
    pub fn record_routing(&mut self) {
        let (n_layer, n_expert_used) = (self.config.n_layer(), self.n_expert_used);
        self.routing = Routing::Record(RoutingTrace { n_layer, n_expert_used, experts: Vec::new() });
    }

    /// Ends recording or replaying; what was recorded since the start of either, or replayed.
    pub fn take_routing(&mut self) -> Option<RoutingTrace> {
        match std::mem::take(&mut self.routing) {
            Routing::Own => None,
            Routing::Record(trace) | Routing::Replay { trace, .. } => Some(trace),
        }
    }

    /// Tokens use the experts of `trace` from now on, the first one those of its token 0: its timing is that of another
    /// text, its output means nothing.
    ///
    /// # Errors
    /// The trace is of other layers or experts.
    pub fn replay_routing(&mut self, trace: RoutingTrace) -> Result<(), ModelError> {
        let expert_max = trace.experts.iter().copied().max().unwrap_or(0);
        let shape = (trace.n_layer, trace.n_expert_used);
        if shape != (self.config.n_layer(), self.n_expert_used) || self.config.n_expert <= expert_max as usize
        {
            let (n_layer, n_expert_used) = shape;
            return Err(ModelError::TraceShape { n_layer, n_expert_used, expert_max });
        }
        self.routing = Routing::Replay { trace, at: 0 };
        Ok(())
    }

    /// Takes the times collected since the last call.
    pub fn take_timing(&mut self) -> Timing {
        std::mem::replace(&mut self.timing, Timing::new(self.config.n_layer()))
    }

    /// Shows the residual stream after each layer of each batch to `trace`: for debugging and for tests.
    pub fn set_trace(&mut self, trace: impl FnMut(&B, usize, &B::Tensor) + Send + 'static) {
        self.trace = Some(Box::new(trace));
    }

    /// Shows the inputs of the matrices to `observer` from now on: the layer (`None` for the head), which input, and
    /// `[_, width]` of the tokens. Experts that the backend holds in memory of its own are not shown.
    pub fn set_observer(&mut self, observer: impl FnMut(Option<usize>, Input, &[f32]) + Send + 'static) {
        self.observer = Some(Box::new(observer));
    }

    /// Refuses before anything is changed.
    fn check(&self, session: &Session<B>, ids: &[u32]) -> Result<(), ModelError> {
        session.check_usable()?;
        if ids.len() > session.n_ctx - session.pos() {
            return Err(ModelError::ContextFull {
                n_token: ids.len(),
                pos: session.pos(),
                n_ctx: session.n_ctx,
            });
        }
        let n_vocab = self.config.n_vocab;
        match ids.iter().find(|&&id| id as usize >= n_vocab) {
            Some(&id) => Err(ModelError::TokenRange { id, n_vocab }),
            None => Ok(()),
        }
    }

    /// How many of `n_left` tokens at `pos` go into the next batch: up to the last chunk border within reach.
    fn batch_len(&self, pos: usize, n_left: usize) -> usize {
        let border = (pos / DELTA_CHUNK) * DELTA_CHUNK + self.n_batch;
        n_left.min(border - pos)
    }

    /// Feeds as many tokens to each session as to the others, in order. Sessions that fail are poisoned.
    fn batch(
        &mut self,
        sessions: &mut [&mut Session<B>],
        ids: &[u32],
        is_last: bool,
        logits: &mut Logits<'_>,
        progress: &mut dyn FnMut(usize),
    ) -> Result<(), ModelError> {
        let ran = self.run(sessions, ids, is_last, logits, progress);
        match ran {
            Ok(None) => self.keep_here(sessions),
            Ok(Some(error)) => Err(error),
            Err(error) => {
                let why = error.to_string();
                well(sessions).for_each(|session| session.poison = Some(why.clone()));
                Err(error)
            }
        }
    }

    /// As [`Self::batch`]; an error is one of all sessions, what is returned one of those that left the batch.
    fn run(
        &mut self,
        sessions: &mut [&mut Session<B>],
        ids: &[u32],
        is_last: bool,
        logits: &mut Logits<'_>,
        progress: &mut dyn FnMut(usize),
    ) -> Result<Option<ModelError>, ModelError> {
        let n_layer = self.config.n_layer();
        let (n_session, n_token) = (sessions.len(), ids.len());
        let (n_each, state_bytes) = (n_token / n_session, self.state_bytes());
        for session in well(sessions) {
            session.way.begin(session.ids.len()..session.ids.len() + n_each, state_bytes);
        }
        self.routing.start(n_token)?;
        let n_wanted = match logits {
            Logits::Last if !self.routing.wants_all() => n_session * usize::from(is_last),
            _ => n_token,
        };
        let mut trace = self.trace.take();
        let mut pass = Pass {
            backend: &self.backend,
            config: &self.config,
            weights: &self.weights,
            formats: &self.formats,
            n_expert_used: self.n_expert_used,
            rope: &self.rope,
            stream: &mut self.stream,
            scratch: &mut self.scratch,
            moe: &mut self.moe,
            timing: &mut self.timing,
            routing: &mut self.routing,
            prefetch: self.prefetch,
            is_watched: trace.is_some() || self.observer.is_some(),
            observer: self.observer.as_mut(),
            n_session,
            n_token,
            first_row: 0,
            n_wanted,
            failure: None,
        };
        let backend = pass.backend;
        let ran = pass.run(ids, sessions, &mut |layer, x| {
            if let Some(trace) = &mut trace {
                trace(backend, layer, x);
            }
            if layer + 1 < n_layer {
                progress(n_token * (layer + 1) / n_layer);
            }
        });
        self.trace = trace;
        ran?;
        pass.routing.finish(n_token);
        match logits {
            Logits::All(_) => give_logits(&mut pass, sessions, 0, logits)?,
            Logits::Last if is_last => {
                let first = pass.n_token - pass.n_session;
                give_logits(&mut pass, sessions, first, logits)?;
            }
            Logits::Last => {}
        }
        let of_each = ids.chunks_exact(n_each);
        for (session, ids) in sessions.iter_mut().zip(of_each).filter(|(session, _)| session.poison.is_none())
        {
            session.ids.extend_from_slice(ids);
            session.way.finish();
        }
        Ok(pass.failure)
    }
}

/// Logits of the rows of a finished pass from `first` on.
fn give_logits<B: Backend>(
    pass: &mut Pass<'_, B>,
    sessions: &mut [&mut Session<B>],
    first: usize,
    logits: &mut Logits<'_>,
) -> Result<(), ModelError> {
    let (backend, n_row, n_vocab) = (pass.backend, pass.n_token, pass.config.n_vocab);
    pass.norm(&pass.weights.final_norm);
    pass.observe(None, Input::Head, n_row);
    for start in (first..n_row).step_by(N_LOGITS) {
        let n = N_LOGITS.min(n_row - start);
        pass.head(start, n);
        for row in 0..n {
            // Either all rows are of one session, or each is of another.
            let of = (start + row) * pass.n_session / n_row;
            loop {
                let session = well(sessions).nth(of).expect("rows are of sessions that are well");
                backend.read(&pass.scratch.logits, row * n_vocab, &mut session.logits);
                pass.check()?;
                pass.timing.add_device(backend);
                if pass.settle(sessions)? {
                    break;
                }
                pass.norm(&pass.weights.final_norm);
                pass.head(start, n);
            }
            if let Logits::All(sink) = logits {
                let session = &sessions[of];
                sink(session.pos() + start + row, &session.logits);
            }
        }
    }
    Ok(())
}

/// Opens the files that hold the experts.
pub(crate) fn record_files(store: &Store, open: &Open<'_>) -> Result<Vec<RecordFile>, ModelError> {
    let config = store.config();
    let layer = |(i, experts): (usize, &store::ExpertLayer)| {
        let blob = store.expert_blob(i);
        let source = open(&blob)
            .map_err(|source| StreamError::Open { file: blob.path().display().to_string(), source })?;
        Ok(RecordFile {
            source,
            stride_bytes: store::ExpertLayer::stride_bytes(&experts.formats, config),
            n_expert: config.n_expert,
            xxh3: (!store.manifest().is_in_place())
                .then(|| experts.xxh3.iter().map(|hex| checksum(hex)).collect()),
        })
    };
    store.manifest().experts.iter().enumerate().map(layer).collect()
}

/// What a backend that holds experts must know.
fn held_shapes(store: &Store) -> Vec<HeldShape> {
    let config = store.config();
    let shape = |experts: &store::ExpertLayer| HeldShape {
        n_expert: config.n_expert,
        d_model: config.d_model,
        d_ff: config.d_ff_expert,
        formats: experts.formats,
        offsets: store::ExpertLayer::ranges(&experts.formats, config).map(|part| part.start),
        record_bytes: store::ExpertLayer::stride_bytes(&experts.formats, config),
    };
    store.manifest().experts.iter().map(shape).collect()
}

/// A checksum as the manifest writes it.
fn checksum(hex: &str) -> u64 {
    u64::from_str_radix(hex, 16).expect("checked when the store was opened")
}

/// Rotary frequencies, with YaRN where the configuration asks for it (spec 2.3).
fn rope(config: &ModelConfig) -> Rope {
    let (n_rot, theta) = (config.n_rot as f64, config.rope_theta);
    let inv_freq = (0..config.n_rot / 2).map(|j| theta.powf(-2.0 * j as f64 / n_rot));
    let Some(yarn) = &config.rope_scaling else {
        return Rope { inv_freq: inv_freq.collect(), scale: 1.0 };
    };
    let n_ctx = yarn.n_ctx_original as f64;
    let turn = |beta: f64| n_rot * (n_ctx / (2.0 * std::f64::consts::PI * beta)).ln() / (2.0 * theta.ln());
    let low = turn(32.0).floor().max(0.0);
    let high = turn(1.0).ceil().min(n_rot - 1.0);
    let stretched = inv_freq.enumerate().map(|(j, inv)| {
        let ramp = ((j as f64 - low) / (high - low).max(1e-3)).clamp(0.0, 1.0);
        inv * (1.0 - ramp) + inv / yarn.factor * ramp
    });
    Rope { inv_freq: stretched.collect(), scale: (0.1 * yarn.factor.ln() + 1.0) as f32 }
}
