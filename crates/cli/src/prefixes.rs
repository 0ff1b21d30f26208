//! What was computed of prompts, kept in memory and on disk: how the program opens that, and how `run` and `chat` use
//! it.

use std::ops::Range;
use std::path::{Path, PathBuf};
use std::time::Duration;

use generate::{Prepared, TextModel, common_prefix};
use kernels::Backend;
use model::{Engine, Footprint, ModelError, Session};
use prefix::{Cache, Checkpoint, Disk, DiskLimits, Identity, Point, Timeline, answer_likelihood, points};
use serve::engine::{Parting, Reuse, Source};
use store::Store;

use crate::cachedir::CacheDir;
use crate::flags::PrefixFlags;
use crate::load::Loaded;
use crate::output::{note, quote};
use crate::plan::{self, Plan};
use crate::size::Size;

/// Folder of [`CacheDir`].
const FOLDER: &str = "prefixes";
/// Most bytes on disk if the user does not say, and the share of what is free that they may be.
const SIZE_BYTES: u64 = 32 << 30;
const FREE_SHARE: u64 = 10;
/// Most bytes that are written there a day if the user does not say.
pub(crate) const DAILY_WRITE_BYTES: u64 = 64 << 30;
/// Stays free on the file system.
const FREE_BYTES: u64 = 1 << 30;
/// What nobody used for so long goes.
const EXPIRY: Duration = Duration::from_secs(30 * 24 * 3600);

/// How settings are written down.
const KV_END: &str = " keys and values";
const VERSION_START: &str = ", version ";
const VERSION: &str = env!("CARGO_PKG_VERSION");

/// Where prefixes are kept on disk.
pub(crate) fn folder(is_verbose: bool) -> Option<PathBuf> {
    CacheDir::open(is_verbose).path(FOLDER)
}

/// Most bytes on disk if the user does not say.
pub(crate) fn default_size_bytes(root: &Path) -> u64 {
    // What is there already could be free.
    let free_bytes = free_bytes(root).map(|bytes| bytes.saturating_add(prefix::disk::used_bytes(root)));
    free_bytes.map_or(SIZE_BYTES, |bytes| (bytes / FREE_SHARE).min(SIZE_BYTES))
}

/// Free bytes of the file system that `root` is on, or will be.
pub(crate) fn free_bytes(root: &Path) -> Option<u64> {
    root.ancestors().find(|path| path.is_dir()).and_then(|path| store::free_bytes(&path.join("any")))
}

/// The cache of prefixes for a loaded model; `None` if nothing is to be kept. Without a usable folder it is in memory
/// only.
pub(crate) fn open(flags: &PrefixFlags, store: &Store, loaded: &Loaded, is_verbose: bool) -> Option<Cache> {
    let Some(cache) = in_memory(loaded, store.location()) else {
        if !flags.no_prefix_cache {
            note("note: nothing is kept of prompts, because the memory budget has no room for it (--memory)");
        }
        return None;
    };
    let root = folder(is_verbose).filter(|_| flags.prefix_cache_size.is_none_or(|size| size.0 > 0));
    let Some(root) = root else { return Some(cache) };
    let limits = limits(&root, flags.prefix_cache_size, flags.prefix_cache_writes);
    match Disk::open(&root, cache.identity(), limits) {
        Ok((disk, entries)) => Some(cache.with_disk(disk, entries)),
        Err(error) => {
            let root = root.display();
            quote(&format!("warning: prompts are kept in memory only: {root} cannot be used: {error}"));
            Some(cache)
        }
    }
}

/// What the folder may take: as the user says, or as is usual.
pub(crate) fn limits(root: &Path, size: Option<Size>, daily_writes: Option<Size>) -> DiskLimits {
    DiskLimits {
        size_bytes: size.map_or_else(|| default_size_bytes(root), |size| size.0),
        daily_write_bytes: daily_writes.map_or(DAILY_WRITE_BYTES, |size| size.0),
        expiry: EXPIRY,
        free_bytes: FREE_BYTES,
    }
}

/// The same without a folder. `model`: its name.
pub(crate) fn in_memory(loaded: &Loaded, model: String) -> Option<Cache> {
    let memory = loaded.plan.prefix_memory()?;
    Some(Cache::new(identity(loaded, model), memory.cache_bytes))
}

/// Everything that the numbers depend on.
pub(crate) fn identity(loaded: &Loaded, model: String) -> Identity {
    let Loaded { engine, plan, activations, .. } = loaded;
    // On the CPU the bits are the same whatever instructions and threads there are; a GPU's are its own.
    let device = match engine.backend().gpu() {
        None => "CPU".to_owned(),
        Some(gpu) => gpu.describe(),
    };
    Identity {
        fingerprint: engine.fingerprint(),
        settings: format!(
            "{} experts, {}{KV_END}, {activations} activations, {device}{VERSION_START}{VERSION}",
            plan.n_expert_used,
            plan.kv_format.name(),
        ),
        model,
        shape: plan.prefix_shape(),
    }
}

/// Refuses what this program could not use with the model of `store`, whatever its flags.
///
/// # Errors
/// Says why.
pub(crate) fn accept(identity: &Identity, store: &Store) -> Result<(), String> {
    let Identity { fingerprint, settings, model, shape } = identity;
    if *fingerprint != store.fingerprint() {
        return Err(format!(
            "is of {model} (weights {fingerprint:016x}), not of {} (weights {:016x})",
            store.location(),
            store.fingerprint()
        ));
    }
    let (settings, version) = settings.rsplit_once(VERSION_START).unwrap_or((settings, "that is unknown"));
    if version != VERSION {
        return Err(format!("was made by version {version} of this program, this is version {VERSION}"));
    }
    let kv = settings.split(", ").nth(1).and_then(|kv| kv.strip_suffix(KV_END)?.parse().ok());
    let footprint = Footprint::of(store.manifest());
    if kv.is_none_or(|kv| plan::prefix_shape(&footprint, kv) != *shape) {
        return Err(format!("is of other shapes than {} has", store.location()));
    }
    Ok(())
}

/// Those of `positions` (ascending) whose states there is memory for until they are handed to the cache.
pub(crate) fn affordable(positions: &[usize], plan: &Plan) -> Vec<usize> {
    plan.prefix_memory().map_or(Vec::new(), |memory| thinned(positions, plan.n_batch, memory.n_way))
}

/// Leaves out positions, the earlier ones first, so that no more than `n_way` lie in any batch of `n_batch`.
fn thinned(positions: &[usize], n_batch: usize, n_way: usize) -> Vec<usize> {
    let mut kept: Vec<usize> = Vec::new(); // descending
    for &pos in positions.iter().rev() {
        let has_room = kept.len().checked_sub(n_way).is_none_or(|i| pos + n_batch <= kept[i]);
        if has_room {
            kept.push(pos);
        }
    }
    kept.reverse();
    kept
}

/// The cache of a command that answers one prompt after the other.
pub(crate) struct Prefixes {
    cache: Option<Cache>,
    is_verbose: bool,
}

impl Prefixes {
    pub(crate) fn open(flags: &PrefixFlags, store: &Store, loaded: &Loaded, is_verbose: bool) -> Self {
        let mut prefixes = Self { cache: open(flags, store, loaded, is_verbose), is_verbose };
        prefixes.warn();
        prefixes
    }

    /// A session that stands at a prefix of `prompt`: `held` if that helps, which was fed the prompt before. With `-v`
    /// what of the prompt is there, and why it is not more.
    pub(crate) fn session_for<B: Backend>(
        &mut self,
        engine: &Engine<B>,
        plan: &Plan,
        held: Option<Session<B>>,
        prompt: &[u32],
        text: &TextModel,
    ) -> Session<B> {
        let (session, reuse) = self.take(engine, plan, held, prompt);
        if self.is_verbose {
            quote(&reuse.line(prompt, text.tokenizer()));
        }
        self.warn();
        session
    }

    fn take<B: Backend>(
        &mut self,
        engine: &Engine<B>,
        plan: &Plan,
        held: Option<Session<B>>,
        prompt: &[u32],
    ) -> (Session<B>, Reuse) {
        let Some(cache) = &mut self.cache else { return (engine.session(plan.n_ctx), Reuse::off()) };
        let held = held.filter(|session| session.failure().is_none());
        let n_same = held.as_ref().map_or(0, |session| common_prefix(session.ids(), prompt));
        let closest = held.as_ref().map(|session| Parting::new(prompt, session.ids()));
        let lookup = cache.find(prompt, n_same);
        let n_reusable = lookup.n_reusable;
        let reuse = |n_token, source| Reuse::new(prompt.len(), n_token, source, lookup, closest);
        let (mut session, n_held) = match held {
            Some(session) if n_same == session.pos() && n_same < prompt.len() && n_reusable <= n_same => {
                return (session, reuse(n_same, Some(Source::Session)));
            }
            Some(session) if 0 < n_reusable => (session, n_same),
            other => {
                // Its memory goes before the new one's comes.
                drop(other);
                (engine.session(plan.n_ctx), 0)
            }
        };
        let loaded = cache.load(prompt, n_held, &mut View { engine, session: &mut session });
        if loaded.n_reused == 0 || session.failure().is_some() {
            drop(session);
            return (engine.session(plan.n_ctx), reuse(0, None));
        }
        let source = if 0 < loaded.read_bytes { Source::Disk } else { Source::Memory };
        (session, reuse(loaded.n_reused, Some(source)))
    }

    /// What keeps checkpoints while `prepared` is fed to `session`.
    pub(crate) fn keeper<'a, B: Backend>(
        &'a mut self,
        session: &mut Session<B>,
        plan: &Plan,
        prepared: &'a Prepared,
        text: &TextModel,
    ) -> Option<Keeper<'a>> {
        let cache = self.cache.as_mut()?;
        let ids = &prepared.prompt.ids;
        let prompt = prefix::Prompt {
            n_token: ids.len(),
            borders: &text.message_borders(ids),
            n_settled: prepared.n_settled,
            n_reused: session.pos(),
            is_marked: false,
        };
        let points = points(&prompt, cache.identity().shape);
        // What is kept at the very end has logits.
        let ways: Vec<usize> = points.iter().map(|point| point.pos).filter(|&pos| pos < ids.len()).collect();
        session.keep_states_at(&affordable(&ways, plan));
        Some(Keeper { cache, ids, points, n_batch: plan.n_batch })
    }

    /// Keeps where `session` stands behind an answer: a conversation may go on from there. `n_generated`: its tokens.
    pub(crate) fn keep_answer<B: Backend>(
        &mut self,
        engine: &Engine<B>,
        session: &mut Session<B>,
        n_generated: usize,
        has_thought: bool,
    ) {
        let Some(cache) = &mut self.cache else { return };
        let likelihood = answer_likelihood(n_generated, false, has_thought);
        let Some(likelihood) = likelihood.filter(|_| session.failure().is_none()) else { return };
        // Without it the answer is read again: no reason to stop.
        let Ok(mut state) = engine.state(session) else { return };
        // Nobody asks for the token after the last again.
        state.bytes.truncate(cache.identity().shape.state_bytes);
        let ids = session.ids().to_vec();
        let checkpoint = Checkpoint { ids: &ids, state: state.bytes, likelihood };
        cache.keep(checkpoint, &View { engine, session });
        self.warn();
    }

    /// The last answer was given: waits until everything is on the disk that is on its way there.
    pub(crate) fn finish(&mut self) {
        if let Some(cache) = &mut self.cache {
            cache.flush();
        }
        self.warn();
    }

    fn warn(&mut self) {
        for warning in self.cache.iter_mut().flat_map(Cache::take_warnings) {
            quote(&format!("warning: {warning}"));
        }
    }
}

/// Keeps checkpoints on the way through a prompt.
pub(crate) struct Keeper<'a> {
    cache: &'a mut Cache,
    ids: &'a [u32],
    points: Vec<Point>,
    n_batch: usize,
}

impl Keeper<'_> {
    /// How many of `n_left` tokens at `pos` are fed before [`Self::keep`]: those of a batch.
    pub(crate) fn n_piece(&self, pos: usize, n_left: usize) -> usize {
        n_left.min(pos / kernels::DELTA_CHUNK * kernels::DELTA_CHUNK + self.n_batch - pos)
    }

    /// Keeps what was passed since the last call.
    ///
    /// # Errors
    /// The device has failed.
    pub(crate) fn keep<B: Backend>(
        &mut self,
        engine: &Engine<B>,
        session: &mut Session<B>,
    ) -> Result<(), ModelError> {
        let mut passed = session.take_states();
        let n_prompt = self.ids.len();
        if session.pos() == n_prompt && self.points.iter().any(|point| point.pos == n_prompt) {
            passed.push(engine.state(session)?);
        }
        for state in passed {
            let Some(point) = self.points.iter().find(|point| point.pos == state.pos) else { continue };
            let ids = &self.ids[..state.pos];
            let checkpoint = Checkpoint { ids, state: state.bytes, likelihood: point.likelihood };
            self.cache.keep(checkpoint, &View { engine, session });
        }
        Ok(())
    }
}

/// A session as the cache sees it.
pub(crate) struct View<'a, B: Backend> {
    pub(crate) engine: &'a Engine<B>,
    pub(crate) session: &'a mut Session<B>,
}

impl<B: Backend> Timeline for View<'_, B> {
    fn read_kv(&self, positions: Range<usize>, out: &mut [u8]) -> Result<(), String> {
        self.engine.read_kv(self.session, positions, out).map_err(|error| error.to_string())
    }

    fn write_kv(&mut self, positions: Range<usize>, bytes: &[u8]) -> Result<(), String> {
        self.engine.write_kv(self.session, positions, bytes).map_err(|error| error.to_string())
    }

    fn resume(&mut self, ids: &[u32], state: &[u8]) -> Result<(), String> {
        self.engine.resume(self.session, ids, state).map_err(|error| error.to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// States would take more memory than is planned for them, or the one that the next turn needs would be left out.
    #[test]
    fn states_of_a_batch_are_few() {
        let cases: [(&[usize], usize, &[usize]); 6] = [
            (&[], 1, &[]),
            (&[600, 1400, 1990], 4, &[600, 1400, 1990]),
            (&[600, 1400, 1990], 1, &[1990]),
            (&[600, 1400, 1990], 2, &[1400, 1990]),
            (&[10, 100, 2000, 2100, 4148, 6196], 1, &[10, 2100, 4148, 6196]),
            (&[10, 2000, 2100, 4148, 6196], 2, &[10, 2000, 2100, 4148, 6196]),
        ];
        for (positions, n_way, expected) in cases {
            let kept = thinned(positions, 2048, n_way);
            assert_eq!(kept, expected, "{positions:?}, {n_way}");
        }
    }
}
