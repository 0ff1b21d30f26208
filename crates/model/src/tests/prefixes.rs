//! Going on from a cache of prefixes: the same logits as reading the whole prompt, whatever was kept, pushed out, or
//! written and read again.

use std::ops::{ControlFlow, Range};
use std::path::Path;
use std::time::Duration;

use convert::Bits;
use kernels::{Backend, DELTA_CHUNK};
use prefix::{Cache, Checkpoint, Disk, DiskLimits, Identity, Shape};
use proptest::prelude::*;
use store::LayerKind;

use super::rig::*;
use crate::session::attention_shape;
use crate::{Engine, Logits, Session};

/// Most tokens of a prompt.
const N_PROMPT_MAX: usize = 200;

/// A session and its engine, as the cache sees them.
struct Timeline<'a, B: Backend> {
    engine: &'a Engine<B>,
    session: &'a mut Session<B>,
}

impl<B: Backend> prefix::Timeline for Timeline<'_, B> {
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

/// What the next prompt is made of.
#[derive(Clone, Debug)]
enum Edit {
    /// The same once more.
    Again,
    /// Another earlier prompt, numbered from the last one.
    Back(usize),
    /// More tokens.
    Extend(Vec<u32>),
    /// The first part of it, so many 256ths, and other tokens.
    Branch(usize, Vec<u32>),
    /// The program ends and starts again.
    Restart,
}

fn edits() -> impl Strategy<Value = Vec<Edit>> {
    let tokens = || prop::collection::vec(0_u32..200, 1..70);
    let edit = prop_oneof![
        1 => Just(Edit::Again),
        2 => (0_usize..4).prop_map(Edit::Back),
        3 => tokens().prop_map(Edit::Extend),
        4 => (0_usize..256, tokens()).prop_map(|(part, ids)| Edit::Branch(part, ids)),
        1 => Just(Edit::Restart),
    ];
    prop::collection::vec(edit, 1..10)
}

fn identity<B: Backend>(engine: &Engine<B>) -> Identity {
    let config = engine.config();
    let position = engine.kv_format().position_bytes(attention_shape(config));
    let shape = Shape {
        kv_token_bytes: config.n_layer_of(LayerKind::FullAttention) * position,
        state_bytes: engine.state_bytes(),
        logits_bytes: 4 * config.n_vocab,
    };
    let model = "golden".into();
    Identity { fingerprint: engine.fingerprint(), settings: "as it is".into(), model, shape }
}

fn open(identity: &Identity, memory_bytes: u64, folder: &Path) -> Cache {
    let limits = DiskLimits {
        size_bytes: 8 << 20,
        daily_write_bytes: 1 << 40,
        expiry: Duration::from_secs(3600),
        free_bytes: 0,
    };
    let (disk, entries) = Disk::open(folder, identity, limits).unwrap();
    Cache::new(identity.clone(), memory_bytes).with_disk(disk, entries)
}

/// Feeds the rest of `prompt`, keeps checkpoints at multiples of `spacing` and, unless these are borders of chunks, at
/// its end. Returns the last logits and the tokens that were not fed.
fn feed<B: Backend>(
    engine: &mut Engine<B>,
    cache: &mut Cache,
    prompt: &[u32],
    spacing: usize,
) -> (Vec<f32>, usize) {
    let mut session = engine.session(N_CTX);
    let n_reused = cache.load(prompt, 0, &mut Timeline { engine, session: &mut session }).n_reused;
    if n_reused == 0 {
        session = engine.session(N_CTX);
    }
    assert_eq!(session.ids(), &prompt[..n_reused]);
    if n_reused < prompt.len() {
        session.keep_states_at(&(spacing..prompt.len()).step_by(spacing).collect::<Vec<_>>());
        let go_on = &mut |_| ControlFlow::Continue(());
        engine.forward(&mut session, &prompt[n_reused..], Logits::Last, go_on).unwrap();
    }
    let logits = session.logits().to_vec();
    let mut states = session.take_states();
    if spacing != DELTA_CHUNK {
        states.push(engine.state(&session).unwrap());
    }
    for state in states {
        // Likely enough to be written, short as it is.
        let checkpoint = Checkpoint { ids: &prompt[..state.pos], state: state.bytes, likelihood: 2.0 };
        cache.keep(checkpoint, &Timeline { engine, session: &mut session });
    }
    assert_eq!(cache.take_warnings(), Vec::<String>::new());
    (logits, n_reused)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]
    #[test]
    fn logits_from_kept_prefixes_are_those_of_a_cold_run(
        edits in edits(),
        spacing in prop::sample::select(&[DELTA_CHUNK, 23][..]),
        memory_bytes in prop::sample::select(&[60_000_u64, 300_000, 1 << 30][..]),
        checkpoint in prop::sample::select(&["qwen3_5_moe", "qwen3_moe"][..]),
    ) {
        // Would break: an answer that depends on what was asked before it.
        thread_local! {
            static PACKED: [Packed; 2] = ["qwen3_5_moe", "qwen3_moe"].map(|name| pack(name, Bits::Source));
        }
        PACKED.with(|packed| {
            let store = &packed[usize::from(checkpoint == "qwen3_moe")].store;
            let mut engine = Setup { n_batch: 64, ..Setup::plain() }.engine(store);
            let folder = tempfile::tempdir().unwrap();
            let identity = identity(&engine);
            let mut cache = open(&identity, memory_bytes, folder.path());
            let mut prompts: Vec<Vec<u32>> = vec![(0..100).map(|i| i * 7 % 200).collect()];
            for edit in edits {
                let last = prompts.last().unwrap().clone();
                let mut prompt = match edit {
                    Edit::Again => last,
                    Edit::Back(k) => prompts[prompts.len().saturating_sub(1 + k)].clone(),
                    Edit::Extend(ids) => [last, ids].concat(),
                    Edit::Branch(part, ids) => [&last[..last.len() * part / 256], &ids[..]].concat(),
                    Edit::Restart => {
                        cache.flush();
                        drop(cache);
                        cache = open(&identity, memory_bytes, folder.path());
                        last
                    }
                };
                prompt.truncate(N_PROMPT_MAX);
                let (got, n_reused) = feed(&mut engine, &mut cache, &prompt, spacing);
                let expected = logits_in_calls(&mut engine, &prompt, &[prompt.len()]).pop().unwrap();
                // What was read before and fits is found; without states, up to any token.
                if memory_bytes == 1 << 30 {
                    let n_same = |other: &Vec<u32>| other.iter().zip(&prompt).take_while(|(a, b)| a == b).count();
                    let n_known = prompts[1..].iter().map(n_same).max().unwrap_or(0);
                    let is_exact = checkpoint == "qwen3_moe" && spacing != DELTA_CHUNK;
                    let n_lost = if is_exact { 1 } else { spacing };
                    prop_assert!(n_known <= n_reused + n_lost, "{} of {}", n_reused, n_known);
                }
                if spacing == DELTA_CHUNK || checkpoint == "qwen3_moe" {
                    assert_same_bits(&[got], &[expected], &format!("{n_reused} of {} reused", prompt.len()));
                } else {
                    let expected: Vec<f64> = expected.iter().map(|&x| x.into()).collect();
                    let diff = max_diff(&[got], &[expected]);
                    prop_assert!(diff <= 1e-4, "{} of {} reused: {}", n_reused, prompt.len(), diff);
                }
                prompts.push(prompt);
            }
            Ok(())
        })?;
    }
}
