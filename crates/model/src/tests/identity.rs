//! Logits do not depend on memory or I/O, bit for bit.

use std::io;
use std::sync::atomic::{AtomicU64, Ordering};

use convert::Bits;
use stream::{CacheMode, ReadAt, RecordFile};

use super::rig::*;

/// A mix of prefill and steps.
const CALLS: &[usize] = &[90, 1, 1, 30, 1];

#[test]
fn slots_cache_readers_threads_and_batches_change_no_bit() {
    // Would break: sums in arrival order, kernels whose result depends on the batch or on how rows are shared out.
    for (checkpoint, bits) in [("qwen3_5_moe", Bits::Source), ("qwen3_5_moe_quantable", Bits::N(4))] {
        let packed = pack(checkpoint, bits);
        let ids = golden::<Golden>(checkpoint, "golden.json").ids;
        let plain = Setup::plain();
        let expected = logits_in_calls(&mut plain.engine(&packed.store), &ids, CALLS);
        let (slots, page) = (CacheMode::Slots, CacheMode::Page);
        for (mode, n_slot, n_reader, n_thread, n_batch) in [
            (slots, 2, 1, 2, 256),
            (slots, 2, 8, 1, 64),
            (slots, 16, 8, 2, 64),
            (slots, 1000, 8, 3, 128),
            (page, 2, 8, 2, 256),
            (page, 4, 1, 1, 64),
        ] {
            let setup = Setup { mode, n_slot, n_reader, n_thread, n_batch, ..plain };
            let got = logits_in_calls(&mut setup.engine(&packed.store), &ids, CALLS);
            assert_same_bits(&got, &expected, &format!("{checkpoint} with {setup:?}"));
        }
    }
}

#[test]
fn groups_of_experts_change_no_bit() {
    // Would break: a batch whose experts go through in several groups, by their number or for want of slots.
    let demo = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../cli/demo");
    let store = store::Store::open(&demo).unwrap();
    let ids: Vec<u32> = (0..100_u32).map(|i| i * 7919 % 8192).collect();
    let plain = Setup::plain();
    let expected = logits_in_calls(&mut plain.engine(&store), &ids, CALLS);
    for n_slot in [2, 6, 40, 64, 300] {
        let got = logits_in_calls(&mut Setup { n_slot, ..plain }.engine(&store), &ids, CALLS);
        assert_same_bits(&got, &expected, &format!("{n_slot} slots"));
    }
}

/// Makes some reads wait for a while, so that they finish in another order.
struct Shuffled {
    inner: Box<dyn ReadAt>,
    state: AtomicU64,
}

impl ReadAt for Shuffled {
    fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<usize> {
        let state = self.state.fetch_add(0x9e37_79b9_7f4a_7c15, Ordering::Relaxed);
        for _ in 0..(state >> 40) % 2000 {
            std::thread::yield_now();
        }
        self.inner.read_at(offset, buf)
    }

    fn name(&self) -> String {
        self.inner.name()
    }
}

#[test]
fn the_order_in_which_reads_finish_changes_no_bit() {
    // Would break: experts summed as they arrive.
    let packed = pack("qwen3_5_moe", Bits::Source);
    let ids = golden::<Golden>("qwen3_5_moe", "golden.json").ids;
    let setup = Setup { n_slot: 4, n_reader: 8, ..Setup::plain() };
    let expected = logits_in_calls(&mut setup.engine(&packed.store), &ids, CALLS);
    for seed in 1..=5_u64 {
        let shuffle = |file: RecordFile| RecordFile {
            source: Box::new(Shuffled { inner: file.source, state: AtomicU64::new(seed << 32) }),
            ..file
        };
        let got = logits_in_calls(&mut setup.engine_with(&packed.store, shuffle), &ids, CALLS);
        assert_same_bits(&got, &expected, &format!("seed {seed}"));
    }
}
