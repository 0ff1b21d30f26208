//! Several sessions decoded together.

use std::io;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, LazyLock};

use convert::Bits;
use kernels::{Backend, Cpu, KvFormat};
use proptest::prelude::*;
use stream::{ReadAt, RecordFile, RoutingTrace, StreamError};

use super::identity::setups;
use super::rig::*;
use crate::session::LayerState;
use crate::{Engine, ModelError, Prefetch, Session};

/// Prompts of the sessions: about the borders of delta-net chunks, of pages of keys, and more sessions than rows of
/// logits are computed at a time.
const PROMPTS: [usize; 10] = [0, 1, 5, 61, 62, 63, 64, 100, 127, 120];
/// Tokens that each session decodes after its prompt.
const N_STEP: usize = 6;

/// A packed checkpoint, the tokens of each session, and the logits after each one that is decoded, alone.
struct Case {
    packed: Packed,
    ids: Vec<Vec<u32>>,
    /// `[session][step][n_vocab]`
    expected: Vec<Vec<Vec<f32>>>,
}

/// All architectures, and packed bits.
static CASES: LazyLock<[Case; 4]> = LazyLock::new(|| {
    let checkpoints = [
        ("qwen3_5_moe", Bits::Source),
        ("qwen3_next", Bits::Source),
        ("qwen3_moe", Bits::Source),
        ("qwen3_5_moe_quantable", Bits::N(4)),
    ];
    checkpoints.map(|(checkpoint, bits)| Case::new(pack(checkpoint, bits), checkpoint))
});

impl Case {
    fn new(packed: Packed, checkpoint: &str) -> Self {
        let mut golden = golden::<Golden>(checkpoint, "golden.json").ids;
        let mut ids_of = |n_prompt: usize| {
            golden.rotate_left(17);
            golden[..n_prompt + N_STEP].to_vec()
        };
        let ids: Vec<Vec<u32>> = PROMPTS.iter().map(|&n| ids_of(n)).collect();
        let mut engine = Setup { kv_format: KvFormat::default(), ..Setup::plain() }.engine(&packed.store);
        let alone = |(ids, n_prompt): (&Vec<u32>, &usize)| {
            let calls = if *n_prompt == 0 { vec![1] } else { vec![*n_prompt, 1] };
            logits_in_calls(&mut engine, ids, &calls).split_off(*n_prompt)
        };
        let expected = ids.iter().zip(&PROMPTS).map(alone).collect();
        Self { packed, ids, expected }
    }
}

/// A session that stands behind its prompt.
fn prompted<B: Backend>(engine: &mut Engine<B>, prompt: &[u32]) -> Session<B> {
    let mut session = engine.session(N_CTX);
    logits_of(engine, &mut session, prompt).unwrap();
    session
}

/// The sessions of these numbers, in this order.
fn chosen<'a, B: Backend>(sessions: &'a mut [Session<B>], order: &[usize]) -> Vec<&'a mut Session<B>> {
    let mut all: Vec<Option<&mut Session<B>>> = sessions.iter_mut().map(Some).collect();
    order.iter().map(|&i| all[i].take().unwrap()).collect()
}

fn same_bits(got: &[f32], expected: &[f32]) -> bool {
    got.iter().map(|x| x.to_bits()).eq(expected.iter().map(|x| x.to_bits()))
}

/// Decodes `batches` of sessions, each behind its prompt when it first comes, and checks the logits of each.
fn check(engine: &mut Engine<Cpu>, case: &Case, batches: &[Vec<usize>], what: &str) {
    let mut sessions: Vec<Session<Cpu>> = PROMPTS.iter().map(|_| engine.session(N_CTX)).collect();
    for batch in batches {
        for &i in batch.iter().filter(|&&i| PROMPTS[i] > 0) {
            if sessions[i].pos() == 0 {
                sessions[i] = prompted(engine, &case.ids[i][..PROMPTS[i]]);
            }
        }
        let order: Vec<usize> =
            batch.iter().copied().filter(|&i| sessions[i].pos() < case.ids[i].len()).collect();
        let ids: Vec<u32> = order.iter().map(|&i| case.ids[i][sessions[i].pos()]).collect();
        engine.decode(&mut chosen(&mut sessions, &order), &ids).unwrap();
        for &i in &order {
            let n_fed = sessions[i].pos();
            assert_eq!(sessions[i].ids(), &case.ids[i][..n_fed], "session {i}: {what}");
            let expected = &case.expected[i][n_fed - PROMPTS[i] - 1];
            assert!(same_bits(sessions[i].logits(), expected), "session {i} of {order:?} at {n_fed}: {what}");
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 40, failure_persistence: None, ..ProptestConfig::default() })]

    /// An answer that depends on who else asks, or on who comes and goes: states, positions or rows that are mixed up,
    /// a kernel whose result depends on the batch.
    #[test]
    fn others_in_the_batch_change_no_bit(
        case in 0..4_usize,
        setup in setups(),
        batches in prop::collection::vec(
            (Just((0..PROMPTS.len()).collect::<Vec<_>>()).prop_shuffle(), 0..=PROMPTS.len()), 1..10),
    ) {
        let case = &CASES[case];
        let batches: Vec<Vec<usize>> = batches.iter().map(|(order, n)| order[..*n].to_vec()).collect();
        check(&mut setup.engine(&case.packed.store), case, &batches, &format!("{batches:?} with {setup:?}"));
    }
}

#[test]
fn all_together_and_one_by_one() {
    // Would break: as above, for each architecture, with few and many slots, with reads ahead and without.
    let all: Vec<usize> = (0..PROMPTS.len()).collect();
    let together = vec![all.clone(); N_STEP];
    let growing: Vec<Vec<usize>> = (1..=PROMPTS.len()).map(|n| all[..n].to_vec()).collect();
    let alone: Vec<Vec<usize>> = all.iter().flat_map(|&i| [vec![i], vec![i]]).collect();
    for (i, case) in CASES.iter().enumerate() {
        for (n_slot, prefetch) in [(1000, Prefetch::Auto), (2, Prefetch::Off), (20, Prefetch::On)] {
            let setup = Setup { kv_format: KvFormat::default(), n_slot, prefetch, ..Setup::plain() };
            for batches in [&together, &growing, &alone] {
                let what = format!("case {i}, {batches:?} with {setup:?}");
                check(&mut setup.engine(&case.packed.store), case, batches, &what);
            }
        }
    }
}

/// What the sessions of `case` behind their prompts choose for their next token, a row each.
fn routing_of(case: &Case, order: &[usize]) -> RoutingTrace {
    let mut engine = Setup { kv_format: KvFormat::default(), ..Setup::plain() }.engine(&case.packed.store);
    let mut sessions: Vec<Session<Cpu>> =
        order.iter().map(|&i| prompted(&mut engine, &case.ids[i][..PROMPTS[i]])).collect();
    let ids: Vec<u32> = order.iter().map(|&i| case.ids[i][PROMPTS[i]]).collect();
    engine.record_routing();
    engine.decode(&mut sessions.iter_mut().collect::<Vec<_>>(), &ids).unwrap();
    engine.take_routing().unwrap()
}

#[test]
fn routing_is_recorded_and_replayed_in_the_order_of_the_batch() {
    // Would break: a recorded token that gets another one's experts, or a replay that goes on with the wrong row.
    let case = &CASES[0];
    let order = [7, 2, 9];
    let together = routing_of(case, &order);
    let alone: Vec<u32> = order.iter().flat_map(|&i| routing_of(case, &[i]).experts).collect();
    assert_eq!(together.experts, alone);
    let mut engine = Setup { kv_format: KvFormat::default(), ..Setup::plain() }.engine(&case.packed.store);
    let mut sessions: Vec<Session<Cpu>> =
        order.iter().map(|&i| prompted(&mut engine, &case.ids[i][..PROMPTS[i]])).collect();
    // Each session's experts twice: the second token's router is not asked.
    engine
        .replay_routing(RoutingTrace { experts: [&alone[..], &alone].concat(), ..together.clone() })
        .unwrap();
    for step in 0..2 {
        let ids: Vec<u32> = order.iter().map(|&i| case.ids[i][PROMPTS[i] + step]).collect();
        let before = engine.stream_stats();
        engine.decode(&mut sessions.iter_mut().collect::<Vec<_>>(), &ids).unwrap();
        let after = engine.stream_stats();
        assert_eq!(after.n_hit + after.n_miss - before.n_hit - before.n_miss, n_union(&together), "{step}");
        for (session, &i) in sessions.iter().zip(&order) {
            assert_eq!(same_bits(session.logits(), &case.expected[i][step]), step == 0, "session {i}");
        }
    }
    let mut batch: Vec<_> = sessions.iter_mut().collect();
    assert!(matches!(engine.decode(&mut batch, &[1; 3]), Err(ModelError::TraceEnd { n_token: 6 })));
}

/// Different experts of all layers.
fn n_union(trace: &RoutingTrace) -> u64 {
    let of_layer = |layer: usize| {
        let mut experts: Vec<u32> =
            (0..trace.n_token()).flat_map(|token| trace.at(token, layer)).copied().collect();
        experts.sort_unstable();
        experts.dedup();
        experts.len() as u64
    };
    (0..trace.n_layer).map(of_layer).sum()
}

#[test]
fn what_several_want_is_read_once() {
    // Would break: the reason to decode together.
    let case = &CASES[0];
    let order: Vec<usize> = (0..PROMPTS.len()).collect();
    let trace = routing_of(case, &order);
    let setup =
        Setup { kv_format: KvFormat::default(), n_slot: 2, prefetch: Prefetch::Off, ..Setup::plain() };
    let mut engine = setup.engine(&case.packed.store);
    let mut sessions: Vec<Session<Cpu>> =
        order.iter().map(|&i| prompted(&mut engine, &case.ids[i][..PROMPTS[i]])).collect();
    let ids: Vec<u32> = order.iter().map(|&i| case.ids[i][PROMPTS[i]]).collect();
    let before = engine.stream_stats();
    engine.decode(&mut sessions.iter_mut().collect::<Vec<_>>(), &ids).unwrap();
    let after = engine.stream_stats();
    let (n_request, n_read) =
        (after.n_hit + after.n_miss - before.n_hit - before.n_miss, after.n_miss - before.n_miss);
    assert_eq!(n_request, n_union(&trace));
    assert!(n_read <= n_request && n_request < trace.experts.len() as u64, "{n_read}, {n_request}");
}

#[test]
fn one_that_is_refused_keeps_all_where_they_are() {
    // Would break: a batch of which some were fed and some not, with an error that does not say whose fault it was.
    let case = &CASES[0];
    let mut engine = Setup::plain().engine(&case.packed.store);
    let mut sessions = [engine.session(8), engine.session(1), engine.session(8)];
    for session in &mut sessions {
        logits_of(&mut engine, session, &[3]).unwrap();
    }
    let before: Vec<Vec<f32>> = sessions.iter().map(|session| session.logits().to_vec()).collect();
    let check = |error: ModelError, at: usize, why: &str| {
        assert!(matches!(error, ModelError::Refused { session_idx, .. } if session_idx == at), "{error}");
        assert!(error.to_string().starts_with(&format!("number {at} of the batch: {why}")), "{error}");
    };
    let mut batch: Vec<_> = sessions.iter_mut().collect();
    check(engine.decode(&mut batch, &[1, 2, 3]).unwrap_err(), 1, "1 more tokens do not fit");
    batch.swap_remove(1);
    check(engine.decode(&mut batch, &[1, 256]).unwrap_err(), 1, "token id 256");
    sessions[0].poison = Some("a test".into());
    let mut batch: Vec<_> = sessions.iter_mut().collect();
    check(engine.decode(&mut batch, &[1, 2, 3]).unwrap_err(), 0, "this session failed earlier (a test)");
    for (session, before) in sessions.iter().zip(&before) {
        assert_eq!(session.pos(), 1);
        assert!(same_bits(session.logits(), before));
    }
    engine.decode(&mut [], &[]).unwrap();
}

/// Fails for reads that begin in some place, while `broken`.
struct BadPlace {
    inner: Box<dyn ReadAt>,
    place: Range<u64>,
    broken: Arc<AtomicBool>,
}

impl ReadAt for BadPlace {
    fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<usize> {
        if self.broken.load(Ordering::Relaxed) && self.place.contains(&offset) {
            return Err(io::Error::from_raw_os_error(5));
        }
        self.inner.read_at(offset, buf)
    }

    fn name(&self) -> String {
        self.inner.name()
    }
}

/// An engine that cannot read an expert of a layer while the flag is set.
fn engine_with_bad(case: &Case, layer: usize, expert: usize) -> (Engine<Cpu>, Arc<AtomicBool>) {
    let broken = Arc::new(AtomicBool::new(false));
    let setup =
        Setup { kv_format: KvFormat::default(), n_slot: 2, prefetch: Prefetch::Off, ..Setup::plain() };
    let engine = setup.engine_with(&case.packed.store, |file| {
        let stride = file.stride_bytes as u64;
        let is_it = file.source.name().contains(&format!("layer-{layer:03}"));
        let place = if is_it { expert as u64 * stride..(expert as u64 + 1) * stride } else { 0..0 };
        RecordFile {
            source: Box::new(BadPlace { inner: file.source, place, broken: broken.clone() }),
            ..file
        }
    });
    (engine, broken)
}

#[test]
fn an_expert_that_cannot_be_read_fails_only_those_who_need_it() {
    // Would break: one bad place of a drive ending the answers of all, or going unnoticed.
    let case = &CASES[0];
    let order: Vec<usize> = (0..PROMPTS.len()).collect();
    let trace = routing_of(case, &order);
    for layer in 0..trace.n_layer {
        // The likeliest expert that some, but not all need; and one that a single token needs, if there is one.
        let users = |expert: u32| order.iter().filter(|&&i| trace.at(i, layer).contains(&expert)).count();
        let used = |n: Range<usize>| (0..1000).filter(|&e| n.contains(&users(e))).max_by_key(|&e| users(e));
        for expert in [used(1..order.len()), used(1..2)].into_iter().flatten() {
            let (mut engine, broken) = engine_with_bad(case, layer, expert as usize);
            let mut sessions: Vec<Session<Cpu>> =
                order.iter().map(|&i| prompted(&mut engine, &case.ids[i][..PROMPTS[i]])).collect();
            let ids: Vec<u32> = order.iter().map(|&i| case.ids[i][PROMPTS[i]]).collect();
            broken.store(true, Ordering::Relaxed);
            let error = engine.decode(&mut sessions.iter_mut().collect::<Vec<_>>(), &ids).unwrap_err();
            let ModelError::Stream(StreamError::Read { layer: l, expert: e, .. }) = &error else {
                panic!("{error}")
            };
            assert_eq!((*l, *e), (layer, expert as usize), "{error}");
            for &i in &order {
                let what = format!("session {i}, layer {layer}, expert {expert}");
                if trace.at(i, layer).contains(&expert) {
                    assert_eq!(sessions[i].failure(), Some(error.to_string().as_str()), "{what}");
                } else {
                    assert_eq!((sessions[i].failure(), sessions[i].pos()), (None, PROMPTS[i] + 1), "{what}");
                    assert!(same_bits(sessions[i].logits(), &case.expected[i][0]), "{what}");
                }
            }
            broken.store(false, Ordering::Relaxed);
            sessions.retain(|session| session.failure().is_none());
            let well: Vec<usize> =
                order.iter().copied().filter(|&i| !trace.at(i, layer).contains(&expert)).collect();
            let ids: Vec<u32> = well.iter().map(|&i| case.ids[i][PROMPTS[i] + 1]).collect();
            engine.decode(&mut sessions.iter_mut().collect::<Vec<_>>(), &ids).unwrap();
            for (session, &i) in sessions.iter().zip(&well) {
                assert!(same_bits(session.logits(), &case.expected[i][1]), "then session {i}");
            }
        }
    }
}

#[test]
fn an_expert_that_all_need_fails_all() {
    // Would break: sessions that look fed after a batch that was not.
    let case = &CASES[0];
    let expert = routing_of(case, &[5]).at(0, 1)[0] as usize;
    let (mut engine, broken) = engine_with_bad(case, 1, expert);
    let mut sessions: Vec<Session<Cpu>> =
        (0..3).map(|_| prompted(&mut engine, &case.ids[5][..PROMPTS[5]])).collect();
    broken.store(true, Ordering::Relaxed);
    let ids = [case.ids[5][PROMPTS[5]]; 3];
    let error = engine.decode(&mut sessions.iter_mut().collect::<Vec<_>>(), &ids).unwrap_err();
    assert!(matches!(error, ModelError::Stream(StreamError::Read { layer: 1, .. })), "{error}");
    assert!(sessions.iter().all(|session| session.failure().is_some() && session.pos() == PROMPTS[5]));
}

#[test]
fn a_router_that_overflows_fails_only_its_session() {
    // Would break: one conversation's overflow ending all others.
    let case = &CASES[0];
    let mut engine = Setup { kv_format: KvFormat::default(), ..Setup::plain() }.engine(&case.packed.store);
    let order = [4, 1, 8, 3];
    let mut sessions: Vec<Session<Cpu>> =
        order.iter().map(|&i| prompted(&mut engine, &case.ids[i][..PROMPTS[i]])).collect();
    for overflowed in [0, 2] {
        let state = sessions[overflowed].layers.iter_mut().find_map(|layer| match layer {
            LayerState::DeltaNet(state) => Some(&mut state.s),
            LayerState::Attention(_) => None,
        });
        state.unwrap().fill(f32::NAN);
    }
    let ids: Vec<u32> = order.iter().map(|&i| case.ids[i][PROMPTS[i]]).collect();
    let error = engine.decode(&mut sessions.iter_mut().collect::<Vec<_>>(), &ids).unwrap_err();
    assert!(matches!(error, ModelError::NonFinite { .. }), "{error}");
    for (n, (session, &i)) in sessions.iter().zip(&order).enumerate() {
        assert_eq!(session.failure().is_some(), n % 2 == 0, "{n}");
        assert!(n % 2 == 0 || same_bits(session.logits(), &case.expected[i][0]), "session {i}");
    }
}
