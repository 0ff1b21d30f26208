//! Taking a session to another place; limits.

use std::ops::ControlFlow;

use convert::Bits;
use kernels::{DELTA_CHUNK, KvFormat};
use proptest::prelude::*;

use super::rig::*;
use crate::{Logits, ModelError};

#[test]
fn a_restored_session_goes_on_with_the_same_bits() {
    // Would break: a part of the state that is not saved, or saved at the wrong length.
    for (checkpoint, kv_format) in [("qwen3_5_moe", KvFormat::ALL), ("qwen3_moe", KvFormat::ALL)]
        .into_iter()
        .flat_map(|(checkpoint, formats)| formats.map(|format| (checkpoint, format)))
    {
        let packed = pack(checkpoint, Bits::Source);
        let golden: Golden = golden(checkpoint, "golden.json");
        let mut engine = Setup { kv_format, ..Setup::plain() }.engine(&packed.store);
        for (cut, n_piece) in [(0, 1), (1, 1), (64, 64), (70, 11), (149, 256)] {
            let mut session = engine.session(N_CTX);
            logits_of(&mut engine, &mut session, &golden.ids[..cut]).unwrap();
            let saved = Saved::of(&engine, &session).unwrap();
            let mut restored = engine.session(N_CTX);
            // What the session held before is forgotten.
            logits_of(&mut engine, &mut restored, &[7; 90]).unwrap();
            saved.load(&engine, &mut restored, n_piece).unwrap();
            assert_eq!(restored.ids(), session.ids());
            assert_eq!(restored.logits(), session.logits());
            let expected = logits_of(&mut engine, &mut session, &golden.ids[cut..]).unwrap();
            let got = logits_of(&mut engine, &mut restored, &golden.ids[cut..]).unwrap();
            assert_same_bits(&got, &expected, &format!("{checkpoint}, {kv_format}, restored at {cut}"));
            if kv_format == KvFormat::F32 {
                assert!(max_diff(&got, &golden.logits[cut..]) <= 1e-4);
            }
        }
    }
}

#[test]
fn a_session_that_goes_back_goes_on_with_the_same_bits() {
    // Would break: keys of a forgotten branch that are still seen, a recurrent state that was not put back.
    let packed = pack("qwen3_5_moe", Bits::Source);
    let ids = golden::<Golden>("qwen3_5_moe", "golden.json").ids;
    let mut engine = Setup::plain().engine(&packed.store);
    let mut session = engine.session(N_CTX);
    logits_of(&mut engine, &mut session, &ids[..70]).unwrap();
    let state = engine.state(&session).unwrap();
    assert_eq!(state.pos, 70);
    let expected = logits_of(&mut engine, &mut session, &ids[70..]).unwrap();
    for branch in [&[1, 2, 3, 4, 5][..], &[]] {
        engine.resume(&mut session, &ids[..70], &state.bytes).unwrap();
        if !branch.is_empty() {
            logits_of(&mut engine, &mut session, branch).unwrap();
        }
    }
    let got = logits_of(&mut engine, &mut session, &ids[70..]).unwrap();
    assert_same_bits(&got, &expected, "after going back twice");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]
    #[test]
    fn states_on_the_way_are_those_of_a_run_that_stops_there(
        mut points in prop::collection::vec(1_usize..150, 0..6),
        mut cuts in prop::collection::vec(1_usize..150, 0..3),
        n_batch in prop::sample::select(&[64_usize, 128, 256][..]),
    ) {
        // Would break: remembering a state changes the output, or the state is not the one behind that token.
        thread_local! {
            static PACKED: Packed = pack("qwen3_5_moe", Bits::Source);
        }
        let ids = golden::<Golden>("qwen3_5_moe", "golden.json").ids;
        PACKED.with(|packed| {
            let mut engine = Setup { n_batch, ..Setup::plain() }.engine(&packed.store);
            let mut feed = |cuts: &[usize], points: &[usize]| {
                let mut session = engine.session(N_CTX);
                session.keep_states_at(points);
                let mut logits = Vec::new();
                for part in [&[0], cuts, &[ids.len()]].concat().windows(2).filter(|part| part[0] < part[1]) {
                    logits.extend(logits_of(&mut engine, &mut session, &ids[part[0]..part[1]]).unwrap());
                }
                let state = engine.state(&session).unwrap().bytes;
                (logits, session.take_states(), state)
            };
            cuts.sort_unstable();
            let (expected, none, last) = feed(&cuts, &[]);
            let (got, states, same) = feed(&cuts, &points);
            prop_assert!(none.is_empty());
            prop_assert_eq!(same, last);
            assert_same_bits(&got, &expected, "with states on the way");
            points.sort_unstable();
            points.dedup();
            prop_assert_eq!(states.iter().map(|state| state.pos).collect::<Vec<_>>(), points.clone());
            for state in &states {
                // The same borders of chunks, up to the point.
                let cuts: Vec<_> = cuts.iter().copied().filter(|&cut| cut < state.pos).chain([state.pos]).collect();
                let (_, stopped, _) = feed(&cuts, &[state.pos]);
                let diff = max_state_diff(&stopped[0].bytes, &state.bytes);
                // A chunk that is cut is computed in another way.
                let bound = if state.pos % DELTA_CHUNK == 0 { 0.0 } else { 1e-5 };
                prop_assert!(diff <= bound, "the state at {} is {} away", state.pos, diff);
            }
            Ok(())
        })?;
    }
}

/// The largest difference of two states, relative to the largest number.
fn max_state_diff(a: &[u8], b: &[u8]) -> f32 {
    assert_eq!(a.len(), b.len());
    let floats =
        |bytes: &[u8]| bytes.as_chunks().0.iter().map(|&x| f32::from_le_bytes(x)).collect::<Vec<_>>();
    let (a, b) = (floats(a), floats(b));
    let largest = a.iter().fold(0.0, |largest: f32, x| largest.max(x.abs()));
    a.iter().zip(&b).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max) / largest
}

#[test]
fn what_does_not_belong_to_a_session_is_refused() {
    // Would break: keys of one conversation mixed with the recurrent state of another, or states of other shapes.
    let packed = pack("qwen3_5_moe", Bits::Source);
    let mut engine = Setup::plain().engine(&packed.store);
    let mut session = engine.session(N_CTX);
    logits_of(&mut engine, &mut session, &[1, 2, 3]).unwrap();
    let saved = Saved::of(&engine, &session).unwrap();
    let refused = |result: Result<(), ModelError>, what: &str| {
        assert!(matches!(result, Err(ModelError::State { .. })), "{what}: {result:?}");
    };
    let mut other = engine.session(N_CTX);
    for ids in [&[1, 2][..], &[9, 9]] {
        logits_of(&mut engine, &mut other, ids).unwrap();
        refused(engine.resume(&mut other, &[1, 2, 3], &saved.state), "keys of other tokens, or none");
    }
    for state in [&saved.state[1..], &[], &[&saved.state[..], &[0; 4]].concat()] {
        refused(engine.resume(&mut session, &[1, 2, 3], state), "a state of another length");
    }
    let far = engine.resume(&mut session, &[1, 2, 256], &saved.state);
    refused(far, "another token");
    let kv = kv_of(&engine, &session, 0..3).unwrap();
    refused(engine.write_kv(&mut session, 4..7, &kv), "a gap");
    refused(engine.write_kv(&mut session, 0..2, &kv), "bytes of more positions");
    refused(saved.load(&engine, &mut engine.session(2), 1), "a shorter context");
    // Taken up by half: neither fed nor copied before it is complete.
    engine.write_kv(&mut session, 0..3, &kv).unwrap();
    assert!(matches!(logits_of(&mut engine, &mut session, &[1]), Err(ModelError::Poisoned { .. })));
    assert!(matches!(Saved::of(&engine, &session), Err(ModelError::Poisoned { .. })));
    engine.resume(&mut session, &[1, 2, 3], &saved.state).unwrap();
    logits_of(&mut engine, &mut session, &[1]).unwrap();
}

#[test]
fn limits_are_errors_that_change_nothing() {
    // Would break: writing past the cache, a row of another token's embedding.
    let packed = pack("qwen3_5_moe", Bits::Source);
    let mut engine = Setup::plain().engine(&packed.store);
    let mut session = engine.session(4);
    logits_of(&mut engine, &mut session, &[1, 2, 3]).unwrap();
    let full = logits_of(&mut engine, &mut session, &[4, 5]);
    assert!(matches!(full, Err(ModelError::ContextFull { n_token: 2, pos: 3, n_ctx: 4 })));
    assert!(matches!(
        logits_of(&mut engine, &mut session, &[256]),
        Err(ModelError::TokenRange { id: 256, .. })
    ));
    assert_eq!(session.pos(), 3);
    logits_of(&mut engine, &mut session, &[4]).unwrap();
}

#[test]
fn an_interrupted_prompt_stands_at_a_batch_border() {
    // Would break: Ctrl-C during a long prompt losing or doubling tokens, or nobody seeing how far a long batch is.
    let packed = pack("qwen3_5_moe", Bits::Source);
    let golden: Golden = golden("qwen3_5_moe", "golden.json");
    let mut engine = Setup { n_batch: 64, ..Setup::plain() }.engine(&packed.store);
    let mut session = engine.session(N_CTX);
    let mut told = Vec::new();
    let stopped = engine.forward(&mut session, &golden.ids, Logits::Last, &mut |done| {
        told.push(done);
        if done == 32 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    });
    assert!(matches!(stopped, Err(ModelError::Interrupted)));
    assert_eq!(told, [16, 32, 48, 64]);
    assert_eq!(session.ids(), &golden.ids[..64]);
    let rest = logits_of(&mut engine, &mut session, &golden.ids[64..]).unwrap();
    assert!(max_diff(&rest, &golden.logits[64..]) <= 1e-4);
}
