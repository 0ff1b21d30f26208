//! Packing the committed checkpoints, loading them in every way, and comparing logits.

use std::ops::{ControlFlow, Range};
use std::path::{Path, PathBuf};

use convert::{Bits, Checkpoint, PackOptions};
use kernels::{Backend, Cpu, KvFormat};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use store::{Blob, LayerKind, Store};
use stream::{CacheMode, ExpertStream, Reader, RecordFile, StreamOptions, Tuning};

use crate::engine::record_files;
use crate::session::attention_shape;
use crate::{Engine, EngineOptions, Logits, ModelError, Prefetch, Session};

/// Longest context any test needs.
pub(super) const N_CTX: usize = 256;

/// `tests/golden`.
fn golden_dir() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/golden")
}

/// What the float64 reference says of a checkpoint (tests/golden/README.md).
#[derive(Deserialize)]
pub(super) struct Golden {
    pub(super) ids: Vec<u32>,
    /// `[n_token][n_vocab]`
    pub(super) logits: Vec<Vec<f64>>,
}

/// What it says of the inside as well.
#[derive(Deserialize)]
pub(super) struct GoldenBlocks {
    pub(super) block_positions: Vec<usize>,
    /// `[n_layer][position][d_model]`
    pub(super) block_outputs: Vec<Vec<Vec<f64>>>,
    pub(super) linear_states: Vec<GoldenState>,
}

/// Final state of a delta-net layer.
#[derive(Deserialize)]
pub(super) struct GoldenState {
    pub(super) layer: usize,
    /// `[n_conv - 1][n_channel]`
    pub(super) conv: Vec<Vec<f64>>,
    /// `[n_head_v][head_dim_k][head_dim_v]`
    pub(super) s: Vec<Vec<Vec<f64>>>,
}

/// Reads `tests/golden/<checkpoint>/<file>`.
pub(super) fn golden<T: DeserializeOwned>(checkpoint: &str, file: &str) -> T {
    let path = golden_dir().join(checkpoint).join(file);
    let text = std::fs::read_to_string(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    serde_json::from_str(&text).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
}

/// A packed checkpoint in a temporary folder.
pub(super) struct Packed {
    _dir: tempfile::TempDir,
    pub(super) store: Store,
}

/// Packs `tests/golden/<checkpoint>` at the given bits, everything else at its default.
pub(super) fn pack(checkpoint: &str, bits: Bits) -> Packed {
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().join("store");
    let source = Checkpoint::open(&golden_dir().join(checkpoint)).unwrap();
    let options = PackOptions { bits, ..PackOptions::default() };
    convert::pack(&source, &out, &options, &mut |_| {}).unwrap();
    Packed { store: Store::open(&out).unwrap(), _dir: dir }
}

/// `tests/golden/<checkpoint>` as a store, where it is.
pub(super) fn in_place(checkpoint: &str) -> Store {
    Checkpoint::open(&golden_dir().join(checkpoint)).unwrap().in_place().unwrap()
}

/// How to run a model.
#[derive(Clone, Copy, Debug)]
pub(super) struct Setup {
    pub(super) mode: CacheMode,
    pub(super) n_slot: usize,
    pub(super) tuning: Tuning,
    pub(super) n_thread: usize,
    pub(super) n_batch: usize,
    pub(super) prefetch: Prefetch,
    pub(super) kv_format: KvFormat,
}

impl Setup {
    /// Everything resident, two threads, one batch; keys and values as the golden vectors have them.
    pub(super) fn plain() -> Self {
        Self {
            mode: CacheMode::Slots,
            n_slot: 1000,
            tuning: Tuning::default(),
            n_thread: 2,
            n_batch: 256,
            prefetch: Prefetch::Auto,
            kv_format: KvFormat::F32,
        }
    }

    pub(super) fn options(&self) -> EngineOptions {
        let stream = StreamOptions { mode: self.mode, n_slot: self.n_slot, tuning: self.tuning };
        EngineOptions {
            stream,
            n_batch: self.n_batch,
            n_expert_used: None,
            prefetch: self.prefetch,
            kv_format: self.kv_format,
        }
    }

    /// Loads `store` on the CPU backend.
    pub(super) fn engine(&self, store: &Store) -> Engine<Cpu> {
        self.engine_on(Cpu::new(self.n_thread), store)
    }

    /// Loads `store` on any backend.
    pub(super) fn engine_on<B: Backend>(&self, backend: B, store: &Store) -> Engine<B> {
        Engine::load(store, backend, self.options(), &mut |_| {}).unwrap()
    }

    /// Loads `store` with every expert file wrapped.
    pub(super) fn engine_with(&self, store: &Store, wrap: impl Fn(RecordFile) -> RecordFile) -> Engine<Cpu> {
        let options = self.options();
        let open = |blob: &Blob| Reader::open(blob, ExpertStream::backing(options.stream.mode));
        let files = record_files(store, &open).unwrap().into_iter().map(wrap).collect();
        Engine::load_from(store, Cpu::new(self.n_thread), options, files, &mut |_| {}).unwrap()
    }
}

/// Feeds `ids` and returns the logits after every one, `[n_token][n_vocab]`.
pub(super) fn logits_of<B: Backend>(
    engine: &mut Engine<B>,
    session: &mut Session<B>,
    ids: &[u32],
) -> Result<Vec<Vec<f32>>, ModelError> {
    let mut all = Vec::new();
    let mut sink = |_, row: &[f32]| all.push(row.to_vec());
    engine.forward(session, ids, Logits::All(&mut sink), &mut |_| ControlFlow::Continue(()))?;
    Ok(all)
}

/// Feeds `ids` in calls of the given lengths (the last one repeats) and returns the logits after every token.
pub(super) fn logits_in_calls<B: Backend>(
    engine: &mut Engine<B>,
    ids: &[u32],
    calls: &[usize],
) -> Vec<Vec<f32>> {
    try_logits_in_calls(engine, ids, calls).unwrap()
}

/// See [`logits_in_calls`]; an error if a read fails for good.
pub(super) fn try_logits_in_calls<B: Backend>(
    engine: &mut Engine<B>,
    ids: &[u32],
    calls: &[usize],
) -> Result<Vec<Vec<f32>>, ModelError> {
    let mut session = engine.session(N_CTX);
    let (mut all, mut at) = (Vec::new(), 0);
    for i in 0.. {
        if at == ids.len() {
            break;
        }
        let n = calls[i.min(calls.len() - 1)].min(ids.len() - at);
        all.extend(logits_of(engine, &mut session, &ids[at..at + n])?);
        at += n;
    }
    Ok(all)
}

/// Standard deviation of a table.
pub(super) fn spread(table: &[Vec<f64>]) -> f64 {
    let n = table.iter().map(Vec::len).sum::<usize>() as f64;
    let mean = table.iter().flatten().sum::<f64>() / n;
    (table.iter().flatten().map(|x| (x - mean).powi(2)).sum::<f64>() / n).sqrt()
}

/// Largest difference between two tables.
pub(super) fn max_diff(got: &[Vec<f32>], expected: &[Vec<f64>]) -> f64 {
    assert_eq!(got.len(), expected.len());
    let rows = got.iter().zip(expected);
    rows.flat_map(|(g, e)| g.iter().zip(e).map(|(g, e)| (f64::from(*g) - e).abs())).fold(0.0, f64::max)
}

/// The same bits?
pub(super) fn assert_same_bits(got: &[Vec<f32>], expected: &[Vec<f32>], what: &str) {
    let bits = |t: &[Vec<f32>]| t.iter().flatten().map(|v| v.to_bits()).collect::<Vec<_>>();
    assert!(bits(got) == bits(expected), "{what}: logits differ in bits");
}

/// A session as bytes: what a cache of prefixes keeps.
pub(super) struct Saved {
    ids: Vec<u32>,
    kv: Vec<u8>,
    pub(super) state: Vec<u8>,
}

impl Saved {
    /// Copies `session`.
    pub(super) fn of<B: Backend>(engine: &Engine<B>, session: &Session<B>) -> Result<Self, ModelError> {
        let pos = session.pos();
        Ok(Self {
            ids: session.ids().to_vec(),
            kv: kv_of(engine, session, 0..pos)?,
            state: engine.state(session)?.bytes,
        })
    }

    /// Takes `session` to where the copied one was, in pieces of `n_piece` positions.
    pub(super) fn load<B: Backend>(
        &self,
        engine: &Engine<B>,
        session: &mut Session<B>,
        n_piece: usize,
    ) -> Result<(), ModelError> {
        let (n, n_layer) = (self.ids.len(), engine.config().n_layer_of(LayerKind::FullAttention));
        let n_position = self.kv.len() / (n * n_layer).max(1);
        for start in (0..n).step_by(n_piece) {
            let end = n.min(start + n_piece);
            let of =
                |layer: usize| &self.kv[(layer * n + start) * n_position..(layer * n + end) * n_position];
            engine.write_kv(session, start..end, &(0..n_layer).map(of).collect::<Vec<_>>().concat())?;
        }
        engine.resume(session, &self.ids, &self.state)
    }
}

/// Keys and values of `positions`.
pub(super) fn kv_of<B: Backend>(
    engine: &Engine<B>,
    session: &Session<B>,
    positions: Range<usize>,
) -> Result<Vec<u8>, ModelError> {
    let shape = attention_shape(engine.config());
    let n_layer = engine.config().n_layer_of(LayerKind::FullAttention);
    let mut kv = vec![0; n_layer * positions.len() * engine.kv_format().position_bytes(shape)];
    engine.read_kv(session, positions, &mut kv)?;
    Ok(kv)
}
