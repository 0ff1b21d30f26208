//! The threads of one backend: a fork-join pool with cheap barriers.
//!
//! Decode runs about ten parallel steps a layer, microseconds apart, then waits milliseconds for the disk. So
//! workers spin for a moment after each step and then sleep. A step never waits for a worker that has not
//! joined it: the caller takes the remaining jobs itself, closes the step, and waits only for those inside.

use std::any::Any;
use std::cell::UnsafeCell;
use std::hint::spin_loop;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

/// Looks at the state before a worker sleeps: about 50 µs where a pause takes 40 ns.
const SPINS_BEFORE_SLEEP: u32 = 1200;
/// Looks before a caller gives its core away while it waits for workers inside a step.
const SPINS_BEFORE_YIELD: u32 = 2000;

/// Bits of [`Shared::state`]: the number of workers inside, whether the step is open, whether the pool ends, and
/// above them the number of the step.
const INSIDE: u64 = 0xffff;
const OPEN: u64 = 1 << 16;
const STOP: u64 = 1 << 17;
const STEP: u64 = 1 << 18;

type Panic = Box<dyn Any + Send>;

/// `n_thread - 1` workers and the caller.
pub(super) struct Pool {
    shared: Arc<Shared>,
    workers: Vec<JoinHandle<()>>,
    /// Held while a step runs: one step at a time.
    running: Mutex<()>,
}

struct Shared {
    state: AtomicU64,
    /// The next job of the step.
    next: AtomicUsize,
    /// Valid while the step is open or a worker is inside.
    step: UnsafeCell<Step>,
    sleepers: AtomicUsize,
    sleep: Mutex<()>,
    wake: Condvar,
    /// The first panic of a job in a worker.
    panic: Mutex<Option<Panic>>,
}

#[derive(Clone, Copy)]
struct Step {
    n_job: usize,
    job: *const (dyn Fn(usize) + Sync),
}

// SAFETY: `step` is written only by the holder of `running`, while no worker is inside and none can enter; workers
// read it only inside. The closure it points to is `Sync` and outlives the step.
unsafe impl Sync for Shared {}
// SAFETY: as above; the pointer is only followed inside a step.
unsafe impl Send for Shared {}

impl Pool {
    /// A pool that computes on `n_thread` threads (at least 1), the caller included.
    pub(super) fn new(n_thread: usize) -> Self {
        let nothing: &'static (dyn Fn(usize) + Sync) = &|_| {};
        let shared = Arc::new(Shared {
            state: AtomicU64::new(0),
            next: AtomicUsize::new(0),
            step: UnsafeCell::new(Step { n_job: 0, job: nothing }),
            sleepers: AtomicUsize::new(0),
            sleep: Mutex::new(()),
            wake: Condvar::new(),
            panic: Mutex::new(None),
        });
        // A system that refuses a thread gets a smaller pool: the caller takes the jobs.
        let workers = (1..n_thread)
            .map_while(|i| {
                let shared = Arc::clone(&shared);
                std::thread::Builder::new().name(format!("compute-{i}")).spawn(move || shared.work()).ok()
            })
            .collect();
        Self { shared, workers, running: Mutex::new(()) }
    }

    /// Threads that take part, the caller included.
    pub(super) fn n_thread(&self) -> usize {
        self.workers.len() + 1
    }

    /// Calls `job(0) .. job(n_job - 1)`, each once, on any thread in any order, and returns when all are done.
    /// A panic of a job reaches the caller, after the jobs that had started. Jobs must not call `run`.
    pub(super) fn run(&self, n_job: usize, job: &(dyn Fn(usize) + Sync)) {
        if self.workers.is_empty() || n_job <= 1 {
            return (0..n_job).for_each(job);
        }
        let running = lock(&self.running);
        // SAFETY: only the lifetime is dropped; the step is closed and empty before this function returns.
        let job: &'static (dyn Fn(usize) + Sync) = unsafe { std::mem::transmute(job) };
        let step = Step { n_job, job };
        // SAFETY: no step is open and no worker is inside (the end of every run), and `running` is ours.
        unsafe { *self.shared.step.get() = step };
        self.shared.next.store(0, Ordering::Relaxed);
        self.shared.open();
        let mine = catch_unwind(AssertUnwindSafe(|| self.shared.take_jobs(step)));
        if mine.is_err() {
            self.shared.next.store(n_job, Ordering::Relaxed);
        }
        self.shared.close();
        let theirs = lock(&self.shared.panic).take();
        drop(running);
        if let Some(panic) = mine.err().or(theirs) {
            resume_unwind(panic);
        }
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        self.shared.state.fetch_or(STOP, Ordering::SeqCst);
        self.shared.wake_sleepers();
        for worker in self.workers.drain(..) {
            // A worker cannot panic: jobs are caught.
            let _ = worker.join();
        }
    }
}

impl Shared {
    fn open(&self) {
        self.state.fetch_add(STEP | OPEN, Ordering::SeqCst);
        self.wake_sleepers();
    }

    /// Lets nobody in any more and waits for those inside.
    fn close(&self) {
        let mut state = self.state.fetch_and(!OPEN, Ordering::SeqCst);
        let mut spins = 0;
        while state & INSIDE != 0 {
            spins += 1;
            if spins < SPINS_BEFORE_YIELD {
                spin_loop()
            } else {
                std::thread::yield_now()
            }
            state = self.state.load(Ordering::Acquire);
        }
    }

    fn take_jobs(&self, step: Step) {
        // SAFETY: the caller is inside the step or is its owner, so the closure is alive.
        let job = unsafe { &*step.job };
        loop {
            let i = self.next.fetch_add(1, Ordering::Relaxed);
            if i >= step.n_job {
                return;
            }
            job(i);
        }
    }

    /// The life of a worker.
    fn work(&self) {
        let mut done = 0;
        while let Some(step) = self.enter(done) {
            done = step;
            // SAFETY: we are inside, so the owner does not write.
            let step = unsafe { *self.step.get() };
            if let Err(panic) = catch_unwind(AssertUnwindSafe(|| self.take_jobs(step))) {
                self.next.store(step.n_job, Ordering::Relaxed);
                lock(&self.panic).get_or_insert(panic);
            }
            self.state.fetch_sub(1, Ordering::Release);
        }
    }

    /// Waits for an open step other than `done` and enters it; its number, or `None` when the pool ends.
    fn enter(&self, done: u64) -> Option<u64> {
        let mut spins = 0;
        loop {
            let state = self.state.load(Ordering::Acquire);
            if state & STOP != 0 {
                return None;
            }
            if is_news(state, done) {
                if self.state.compare_exchange(state, state + 1, Ordering::AcqRel, Ordering::Relaxed).is_ok()
                {
                    return Some(state / STEP);
                }
                continue;
            }
            spins += 1;
            if spins < SPINS_BEFORE_SLEEP {
                spin_loop();
            } else {
                self.sleep_until_news(done);
                spins = 0;
            }
        }
    }

    fn sleep_until_news(&self, done: u64) {
        let mut guard = lock(&self.sleep);
        self.sleepers.fetch_add(1, Ordering::SeqCst);
        // `sleepers` is raised before the state is read, and a waker writes the state before it reads `sleepers`.
        // All four are sequentially consistent, so at least one of the two sees the other.
        loop {
            let state = self.state.load(Ordering::SeqCst);
            if state & STOP != 0 || is_news(state, done) {
                break;
            }
            guard = self.wake.wait(guard).unwrap_or_else(PoisonError::into_inner);
        }
        self.sleepers.fetch_sub(1, Ordering::SeqCst);
    }

    fn wake_sleepers(&self) {
        if self.sleepers.load(Ordering::SeqCst) != 0 {
            let _guard = lock(&self.sleep);
            self.wake.notify_all();
        }
    }
}

fn is_news(state: u64, done: u64) -> bool {
    state & OPEN != 0 && state / STEP != done
}

/// Nothing is half-done while one of our locks is held, so a poisoned one is as good.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicU32;

    #[test]
    fn every_job_runs_exactly_once() {
        // Breaks if a step loses a job, runs one twice, or returns before all are done.
        for n_thread in [1, 2, 5] {
            let pool = Pool::new(n_thread);
            for round in 0..2000 {
                let n_job = round % 17;
                let counts: Vec<AtomicU32> = (0..n_job).map(|_| AtomicU32::new(0)).collect();
                pool.run(n_job, &|i| {
                    counts[i].fetch_add(1, Ordering::Relaxed);
                });
                assert!(
                    counts.iter().all(|c| c.load(Ordering::Relaxed) == 1),
                    "{n_thread} threads, round {round}"
                );
            }
        }
    }

    #[test]
    fn a_panic_reaches_the_caller_and_the_pool_survives() {
        // Breaks if a job's panic is swallowed, deadlocks the barrier or kills a worker for good.
        for n_thread in [1, 3] {
            let pool = Pool::new(n_thread);
            for bad in 0..8 {
                let panic = catch_unwind(AssertUnwindSafe(|| pool.run(8, &|i| assert!(i != bad, "job {i}"))));
                let message =
                    *panic.expect_err("one job panics").downcast::<String>().expect("assert message");
                assert_eq!(message, format!("job {bad}"));
                let sum = AtomicUsize::new(0);
                pool.run(100, &|i| {
                    sum.fetch_add(i, Ordering::Relaxed);
                });
                assert_eq!(sum.into_inner(), 4950);
            }
        }
    }
}
