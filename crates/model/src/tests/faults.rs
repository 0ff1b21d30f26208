//! Reads that fail.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use convert::Bits;
use stream::{ReadAt, RecordFile, SimCounts, SimDrive, SimFaults, SimSpec, StreamError, Tuning};

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
    let state = engine.state(&session).unwrap().bytes;
    broken.store(true, Ordering::Relaxed);
    let error = logits_of(&mut engine, &mut session, &ids[70..]).unwrap_err();
    let ModelError::Stream(StreamError::Read { file, layer, .. }) = &error else { panic!("{error}") };
    assert!(file.contains("layer-") && *layer < 4, "{error}");
    broken.store(false, Ordering::Relaxed);
    assert!(matches!(logits_of(&mut engine, &mut session, &[1]), Err(ModelError::Poisoned { .. })));

    let expected = logits_in_calls(&mut engine, &ids, &[70, 80]);
    engine.resume(&mut session, &ids[..70], &state).unwrap();
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

/// Faults to survive or to report.
const N_FAULT: u64 = 10_000;

#[test]
fn ten_thousand_faults_and_no_wrong_token() {
    // Would break: any way from a read that went wrong to a wrong token, an endless wait, a fault nobody hears of.
    let packed = pack("qwen3_5_moe_quantable", Bits::N(4));
    let ids = golden::<Golden>("qwen3_5_moe_quantable", "golden.json").ids;
    let expected = logits_in_calls(&mut Setup::plain().engine(&packed.store), &ids, &[70, 1]);
    let (mut n_fault, mut n_error, mut n_whole) = (0, 0, 0);
    for seed in 1.. {
        let lasting = if seed % 3 == 0 { 0.02 } else { 0.0 };
        let faults = SimFaults {
            short: 0.02,
            eio: 0.01,
            wrong: 0.01,
            interrupted: 0.02,
            end: 0.005,
            stall: 0.005,
            stall_for: std::time::Duration::from_micros(300),
            lasting,
        };
        let drive = SimDrive::new(SimSpec { seed, faults, ..SimSpec::default() });
        let tuning = Tuning { request_bytes: 16 * 1024, depth: 1 + seed as usize % 8, ..Tuning::default() };
        let setup = Setup { n_slot: 2 + seed as usize % 9, tuning, ..Setup::plain() };
        let mut engine =
            setup.engine_with(&packed.store, |file| RecordFile { source: drive.wrap(file.source), ..file });
        let mut session = engine.session(N_CTX);
        let mut calls = vec![&ids[..70]];
        calls.extend(ids[70..].chunks(1));
        let (mut pos, mut failed) = (0, false);
        for call in calls {
            match logits_of(&mut engine, &mut session, call) {
                Ok(rows) => {
                    assert_same_bits(&rows, &expected[pos..pos + call.len()], &format!("seed {seed}"))
                }
                Err(ModelError::Stream(StreamError::Read { .. } | StreamError::Checksum { .. })) => {
                    failed = true
                }
                Err(other) => panic!("seed {seed}: {other}"),
            }
            pos += call.len();
            if failed {
                break;
            }
        }
        let SimCounts { n_short, n_eio, n_wrong, n_end, n_stall, .. } = drive.counts();
        n_fault += n_short + n_eio + n_wrong + n_end + n_stall;
        n_error += u32::from(failed);
        n_whole += u32::from(!failed);
        if n_fault >= N_FAULT {
            break;
        }
    }
    eprintln!("{n_fault} faults: {n_error} runs ended with an error, {n_whole} were right to the end");
    assert!(n_error > 0 && n_whole > 0, "{n_error} errors, {n_whole} whole runs");
}
