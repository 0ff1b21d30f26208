//! Steady-state decode takes no memory: all of it was planned and taken before.

use std::alloc::{GlobalAlloc, Layout, System};
use std::ops::ControlFlow;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use kernels::{Cpu, KvFormat};
use model::{Engine, EngineOptions, Logits, Prefetch, Session};
use store::Store;
use stream::{CacheMode, Method, StreamOptions, Tuning};

/// Counts allocations of all threads while it is told to.
struct Counting;

static IS_COUNTING: AtomicBool = AtomicBool::new(false);
static N_ALLOCATION: AtomicUsize = AtomicUsize::new(0);

// SAFETY: everything is passed on to the system's allocator.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        if IS_COUNTING.load(Ordering::Relaxed) {
            N_ALLOCATION.fetch_add(1, Ordering::Relaxed);
        }
        // SAFETY: the caller's promise.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, ptr: *mut u8, layout: Layout) {
        // SAFETY: the caller's promise.
        unsafe { System.dealloc(ptr, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Counts allocations of all threads meanwhile.
fn count(work: impl FnOnce()) -> usize {
    N_ALLOCATION.store(0, Ordering::Relaxed);
    IS_COUNTING.store(true, Ordering::Relaxed);
    work();
    IS_COUNTING.store(false, Ordering::Relaxed);
    N_ALLOCATION.load(Ordering::Relaxed)
}

/// Allocations of 100 decoded tokens, and of 100 of each of three sessions together, after prompts and 100 tokens that
/// bring everything to its size.
fn n_allocation(store: &Store, n_slot: usize, tuning: Tuning, prefetch: Prefetch) -> [usize; 2] {
    let stream = StreamOptions { mode: CacheMode::Slots, n_slot, tuning };
    let kv_format = KvFormat::default();
    let options = EngineOptions { stream, n_batch: 64, n_expert_used: None, prefetch, kv_format };
    let mut engine = Engine::load(store, Cpu::new(2), options, &mut |_| {}).unwrap();
    let mut sessions = [512, 400, 600].map(|n_ctx| engine.session(n_ctx));
    let n_vocab = engine.config().n_vocab as u32;
    let ids: Vec<u32> = (0..300).map(|i: u32| i.wrapping_mul(2_654_435_761) % n_vocab).collect();
    let mut feed = |session: &mut Session<Cpu>, ids: &[u32]| {
        engine.forward(session, ids, Logits::Last, &mut |_| ControlFlow::Continue(())).unwrap();
    };
    let n_prompt = count(|| feed(&mut sessions[0], &ids[..100]));
    assert!(n_prompt > 0, "a first prompt brings buffers to their size: is nothing counted?");
    feed(&mut sessions[1], &ids[..70]);
    feed(&mut sessions[2], &ids[..128]);
    ids[100..200].chunks(1).for_each(|ids| feed(&mut sessions[0], ids));
    let n_alone = count(|| ids[200..].chunks(1).for_each(|ids| feed(&mut sessions[0], ids)));
    let mut batch = sessions.each_mut();
    let mut decode = |ids: &[u32]| ids.windows(3).for_each(|ids| engine.decode(&mut batch, ids).unwrap());
    decode(&ids[..102]);
    let n_together = count(|| decode(&ids[100..202]));
    let stats = engine.stream_stats();
    assert!(n_slot > 300 || stats.n_miss > 1000, "nothing was read: {stats:?}");
    [n_alone, n_together]
}

/// Memory would grow while answering, or time would go to the allocator in the hot loop.
#[test]
fn decode_allocates_nothing() {
    let store = Store::open(&Path::new(env!("CARGO_MANIFEST_DIR")).join("../cli/demo")).unwrap();
    let parts = Tuning { method: Method::Uring, request_bytes: 16 * 1024, depth: 4 };
    for (n_slot, tuning, prefetch) in [
        (1000, Tuning::default(), Prefetch::Auto),
        (40, Tuning::default(), Prefetch::Auto),
        (40, parts, Prefetch::On),
        (40, Tuning { method: Method::Pool, ..parts }, Prefetch::Off),
    ] {
        let n = n_allocation(&store, n_slot, tuning, prefetch);
        assert_eq!(n, [0, 0], "{n_slot} slots, {tuning:?}, prefetch {prefetch:?}");
    }
}
