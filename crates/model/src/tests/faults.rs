//! Reads that fail.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use convert::Bits;
use stream::{ReadAt, RecordFile, StreamError};

use super::rig::*;
use crate::ModelError;

/// Fails while `broken`, at most `n_left` times.
struct Faulty {
    inner: Box<dyn ReadAt>,
    broken: Arc<AtomicBool>,
    n_left: Arc<AtomicU32>,
}

impl ReadAt for Faulty {
    fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<usize> {
        let count_down = |n: u32| n.checked_sub(1);
        let relaxed = Ordering::Relaxed;
        if self.broken.load(relaxed) && self.n_left.fetch_update(relaxed, relaxed, count_down).is_ok() {
            return Err(io::Error::from_raw_os_error(5));
        }
        self.inner.read_at(offset, buf)
    }

    fn name(&self) -> String {
        self.inner.name()
    }
}

/// An engine whose reads fail `n_fault` times once `broken` is set.
fn rig(packed: &Packed, n_fault: u32) -> (crate::Engine<kernels::Cpu>, Arc<AtomicBool>) {
    let broken = Arc::new(AtomicBool::new(false));
    let n_left = Arc::new(AtomicU32::new(n_fault));
    let wrap = |file: RecordFile| RecordFile {
        source: Box::new(Faulty { inner: file.source, broken: broken.clone(), n_left: n_left.clone() }),
        ..file
    };
    let setup = Setup { n_slot: 2, ..Setup::plain() };
    (setup.engine_with(&packed.store, wrap), broken)
}

#[test]
fn a_lasting_read_error_names_the_expert_and_poisons_the_session() {
    // Would break: a wrong token after a failed read.
    let packed = pack("qwen3_5_moe", Bits::Source);
    let ids = golden::<Golden>("qwen3_5_moe", "golden.json").ids;
    let (mut engine, broken) = rig(&packed, u32::MAX);
    let mut session = engine.session(N_CTX);
    logits_of(&mut engine, &mut session, &ids[..70]).unwrap();
    let snapshot = engine.snapshot(&session).unwrap();
    broken.store(true, Ordering::Relaxed);
    let error = logits_of(&mut engine, &mut session, &ids[70..]).unwrap_err();
    let ModelError::Stream(StreamError::Read { file, layer, .. }) = &error else { panic!("{error}") };
    assert!(file.contains("layer-") && *layer < 4, "{error}");
    broken.store(false, Ordering::Relaxed);
    assert!(matches!(logits_of(&mut engine, &mut session, &[1]), Err(ModelError::Poisoned { .. })));

    let expected = logits_in_calls(&mut engine, &ids, &[70, 80]);
    engine.rewind(&mut session, &snapshot).unwrap();
    let got = logits_of(&mut engine, &mut session, &ids[70..]).unwrap();
    assert_same_bits(&got, &expected[70..], "after the drive came back");
}

#[test]
fn a_passing_read_error_is_retried() {
    // Would break: one bad read of a tired drive ending an answer.
    let packed = pack("qwen3_5_moe", Bits::Source);
    let ids = golden::<Golden>("qwen3_5_moe", "golden.json").ids;
    let (mut engine, broken) = rig(&packed, 1);
    let expected = logits_in_calls(&mut engine, &ids, &[70, 80]);
    broken.store(true, Ordering::Relaxed);
    assert_same_bits(&logits_in_calls(&mut engine, &ids, &[70, 80]), &expected, "with a retry");
    assert_eq!(engine.stream_stats().n_retry, 1);
}
