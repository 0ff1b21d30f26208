//! Saving, restoring and rewinding a session; limits.

use std::ops::ControlFlow;

use convert::Bits;
use kernels::KvFormat;
use proptest::prelude::*;

use super::rig::*;
use crate::{Logits, ModelError};

#[test]
fn a_restored_session_goes_on_with_the_same_bits() {
    // Would break: a part of the state that is not saved, or saved at the wrong length.
    let packed = pack("qwen3_5_moe", Bits::Source);
    let golden: Golden = golden("qwen3_5_moe", "golden.json");
    for (cut, kv_format) in [0, 1, 64, 70, 149].into_iter().flat_map(|cut| KvFormat::ALL.map(|f| (cut, f))) {
        let mut engine = Setup { kv_format, ..Setup::plain() }.engine(&packed.store);
        let mut session = engine.session(N_CTX);
        logits_of(&mut engine, &mut session, &golden.ids[..cut]).unwrap();
        let mut file = Vec::new();
        engine.save(&session, &mut file).unwrap();
        let mut restored = engine.restore(&mut file.as_slice(), N_CTX).unwrap();
        assert_eq!(restored.ids(), session.ids());
        assert_eq!(restored.logits(), session.logits());
        let expected = logits_of(&mut engine, &mut session, &golden.ids[cut..]).unwrap();
        let got = logits_of(&mut engine, &mut restored, &golden.ids[cut..]).unwrap();
        assert_same_bits(&got, &expected, &format!("{kv_format}, restored at {cut}"));
        if kv_format == KvFormat::F32 {
            assert!(max_diff(&got, &golden.logits[cut..]) <= 1e-4);
        }
    }
}

#[test]
fn a_rewound_session_goes_on_with_the_same_bits() {
    // Would break: keys of a forgotten branch that are still seen, a recurrent state that was not put back.
    let packed = pack("qwen3_5_moe", Bits::Source);
    let ids = golden::<Golden>("qwen3_5_moe", "golden.json").ids;
    let mut engine = Setup::plain().engine(&packed.store);
    let mut session = engine.session(N_CTX);
    logits_of(&mut engine, &mut session, &ids[..70]).unwrap();
    let snapshot = engine.snapshot(&session).unwrap();
    assert_eq!(snapshot.pos(), 70);
    let expected = logits_of(&mut engine, &mut session, &ids[70..]).unwrap();
    engine.rewind(&mut session, &snapshot).unwrap();
    logits_of(&mut engine, &mut session, &[1, 2, 3, 4, 5]).unwrap();
    engine.rewind(&mut session, &snapshot).unwrap();
    let got = logits_of(&mut engine, &mut session, &ids[70..]).unwrap();
    assert_same_bits(&got, &expected, "after two rewinds");
}

#[test]
fn a_snapshot_of_another_history_is_refused() {
    // Would break: keys of one conversation mixed with the recurrent state of another.
    let packed = pack("qwen3_5_moe", Bits::Source);
    let mut engine = Setup::plain().engine(&packed.store);
    let mut session = engine.session(N_CTX);
    logits_of(&mut engine, &mut session, &[1, 2, 3]).unwrap();
    let snapshot = engine.snapshot(&session).unwrap();
    let mut other = engine.session(N_CTX);
    for ids in [&[1, 2][..], &[9, 9]] {
        logits_of(&mut engine, &mut other, ids).unwrap();
        assert!(matches!(engine.rewind(&mut other, &snapshot), Err(ModelError::Snapshot { .. })));
    }
}

#[test]
fn a_saved_session_of_another_kind_is_refused() {
    // Would break: states of other weights or shapes taken for ours.
    let packed = pack("qwen3_5_moe_quantable", Bits::Source);
    let other = pack("qwen3_5_moe_quantable", Bits::N(8));
    let mut engine = Setup::plain().engine(&packed.store);
    let mut session = engine.session(N_CTX);
    logits_of(&mut engine, &mut session, &[1, 2, 3]).unwrap();
    let mut file = Vec::new();
    engine.save(&session, &mut file).unwrap();
    let refused = |result: Result<_, ModelError>, what: &str| {
        assert!(matches!(result.map(|_: crate::Session<_>| ()), Err(ModelError::Snapshot { .. })), "{what}");
    };
    refused(Setup::plain().engine(&other.store).restore(&mut file.as_slice(), N_CTX), "other weights");
    let q8 = Setup { kv_format: KvFormat::Q8, ..Setup::plain() }.engine(&packed.store);
    let why = q8.restore(&mut file.as_slice(), N_CTX).map(|_| ()).unwrap_err().to_string();
    assert!(why.contains("stored as f32, this engine's as q8"), "{why}");
    refused(engine.restore(&mut file.as_slice(), 2), "a shorter context");
    refused(engine.restore(&mut b"GGUF0001".as_slice(), N_CTX), "another file");
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

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn a_damaged_saved_session_is_an_error(at in 0_usize..2000, flip in 1_u8..=255, cut in 0_usize..2000) {
        // Would break: a flipped bit or a short file read as a valid state, or a panic.
        thread_local! {
            static RIG: (crate::Engine<kernels::Cpu>, Vec<u8>) = {
                let packed = pack("qwen3_5_moe", Bits::Source);
                let mut engine = Setup::plain().engine(&packed.store);
                let mut session = engine.session(N_CTX);
                logits_of(&mut engine, &mut session, &[1, 2, 3]).unwrap();
                let mut file = Vec::new();
                engine.save(&session, &mut file).unwrap();
                (engine, file)
            };
        }
        RIG.with(|(engine, file)| {
            let mut flipped = file.clone();
            let at = at * file.len() / 2000;
            flipped[at] ^= flip;
            prop_assert!(engine.restore(&mut flipped.as_slice(), N_CTX).is_err(), "byte {}", at);
            let cut = cut * file.len() / 2000;
            prop_assert!(engine.restore(&mut &file[..cut], N_CTX).is_err(), "cut at {}", cut);
            Ok(())
        })?;
    }
}
