//! The threads of one backend: a fork-join pool with cheap barriers.
//!
//! Decode runs about ten parallel steps a layer, microseconds apart, then waits milliseconds for the disk. So
//! workers spin for a moment after each step and then sleep. A step never waits for a worker that has not
//! joined it: who is there takes the jobs of who is not, and the step ends when those inside have left.
//!
//! Each thread has a seat, a cache line of its own, with the jobs that it has not begun: first its share, a range
//! of neighbours, which it walks in order as the memory's prefetchers like it; then the back half of what is left
//! in the fullest other seat. Nothing that a thread writes for each job is shared.
//!
//! On a machine that has other work a spinning thread may keep the very thread from running that it waits for. So
//! nobody spins for long, also not the caller at the end of a step, and threads sit out while cores are missing
//! (`crowd.rs`).

use std::any::Any;
use std::cell::UnsafeCell;
use std::hint::spin_loop;
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use super::crowd::{Crowd, own_figures};

/// How long a thread looks for news before it sleeps.
const SPIN: Duration = Duration::from_micros(50);
/// Looks between two looks at the clock, which cost more.
const LOOKS_PER_CLOCK: u32 = 16;

/// Bits of [`Call::state`]: whether the step is open, whether the pool ends, and above them the step's number.
const OPEN: u64 = 1;
const STOP: u64 = 2;
const STEP: u64 = 4;

/// Bits of a job's number in [`Seat::jobs`], which has two of them below the step's tag.
const JOB_BITS: u32 = 20;
const N_JOB_MAX: usize = (1 << JOB_BITS) - 1;
const TAG_BITS: u32 = 64 - 2 * JOB_BITS;

type Panic = Box<dyn Any + Send>;

/// `n_thread - 1` workers and the caller.
pub(super) struct Pool {
    shared: Arc<Shared>,
    workers: Vec<JoinHandle<()>>,
    /// Held while a step runs: one step at a time.
    running: Mutex<Crowd>,
}

struct Shared {
    call: Call,
    seats: Vec<Seat>, // [n_thread], the caller's first
    rest: Rest,
}

/// Written by the caller, watched by all: what a worker needs to join comes with one cache line.
#[repr(align(128))]
struct Call {
    state: AtomicU64,
    /// Seats of the step; workers on later ones sit out.
    n_seat: AtomicUsize,
    /// Valid while the step is open or a worker is inside.
    step: UnsafeCell<Step>,
}

/// Written by one thread, unless others take its jobs.
#[repr(align(128))]
struct Seat {
    /// The jobs not begun: the step's tag, the first and the end. Under another tag: the seat's whole share.
    jobs: AtomicU64,
    /// May the worker read the step?
    is_inside: AtomicBool,
    /// Where the system tells about the worker.
    figures: OnceLock<Option<PathBuf>>,
}

/// Written when somebody sleeps.
#[repr(align(128))]
struct Rest {
    n_sleeper: AtomicUsize,
    is_caller_asleep: AtomicBool,
    sleep: Mutex<()>,
    wake: Condvar,
    wake_caller: Condvar,
    wake_sitters: Condvar,
    /// The first panic of a job in a worker.
    panic: Mutex<Option<Panic>>,
}

#[derive(Clone, Copy)]
struct Step {
    tag: u64,
    n_seat: usize,
    n_job: usize,
    job: *const (dyn Fn(usize) + Sync),
}

// SAFETY: `step` is written only by the holder of `running`, while no worker is inside and none can enter; workers
// read it only inside. The closure it points to is `Sync` and outlives the step.
unsafe impl Sync for Call {}
// SAFETY: as above; the pointer is only followed inside a step.
unsafe impl Send for Call {}

impl Step {
    /// See [`Seat::jobs`].
    fn word(&self, jobs: Range<usize>) -> u64 {
        (self.tag << JOB_BITS | jobs.start as u64) << JOB_BITS | jobs.end as u64
    }
}

impl Pool {
    /// A pool that computes on `n_thread` threads (at least 1), the caller included.
    pub(super) fn new(n_thread: usize) -> Self {
        let nothing: &'static (dyn Fn(usize) + Sync) = &|_| {};
        let n_thread = n_thread.max(1);
        let seat =
            |_| Seat { jobs: AtomicU64::new(0), is_inside: AtomicBool::new(false), figures: OnceLock::new() };
        let shared = Arc::new(Shared {
            call: Call {
                state: AtomicU64::new(0),
                n_seat: AtomicUsize::new(n_thread),
                step: UnsafeCell::new(Step { tag: 0, n_seat: 0, n_job: 0, job: nothing }),
            },
            seats: (0..n_thread).map(seat).collect(),
            rest: Rest {
                n_sleeper: AtomicUsize::new(0),
                is_caller_asleep: AtomicBool::new(false),
                sleep: Mutex::new(()),
                wake: Condvar::new(),
                wake_caller: Condvar::new(),
                wake_sitters: Condvar::new(),
                panic: Mutex::new(None),
            },
        });
        // A system that refuses a thread gets a smaller pool: the others take its jobs.
        let workers = (1..n_thread)
            .map_while(|i| {
                let shared = Arc::clone(&shared);
                std::thread::Builder::new().name(format!("compute-{i}")).spawn(move || shared.work(i)).ok()
            })
            .collect();
        Self { shared, workers, running: Mutex::new(Crowd::new(n_thread)) }
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
        if n_job <= N_JOB_MAX {
            return self.run_step(n_job, job);
        }
        for first in (0..n_job).step_by(N_JOB_MAX) {
            self.run_step(N_JOB_MAX.min(n_job - first), &|i| job(first + i));
        }
    }

    /// At most [`N_JOB_MAX`] jobs.
    fn run_step(&self, n_job: usize, job: &(dyn Fn(usize) + Sync)) {
        let mut running = lock(&self.running);
        let n_seat = running.n_thread(|seat| self.shared.figures(seat));
        if n_seat == 1 {
            drop(running);
            return (0..n_job).for_each(job);
        }
        self.shared.seat(n_seat);
        // SAFETY: only the lifetime is dropped; the step is closed and empty before this function returns.
        let job: &'static (dyn Fn(usize) + Sync) = unsafe { std::mem::transmute(job) };
        let step = self.shared.open(n_job, job);
        let mine = catch_unwind(AssertUnwindSafe(|| self.shared.take_jobs(0, step)));
        self.shared.close();
        let theirs = lock(&self.shared.rest.panic).take();
        drop(running);
        if let Some(panic) = mine.err().or(theirs) {
            resume_unwind(panic);
        }
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        self.shared.call.state.fetch_or(STOP, Ordering::SeqCst);
        self.shared.wake_sleepers();
        self.shared.wake_sitters();
        for worker in self.workers.drain(..) {
            // A worker cannot panic: jobs are caught.
            let _ = worker.join();
        }
    }
}

impl Shared {
    /// For the holder of `running`, while no step is open.
    fn open(&self, n_job: usize, job: &'static (dyn Fn(usize) + Sync)) -> Step {
        let call = &self.call;
        let mut number = call.state.load(Ordering::Relaxed) / STEP + 1;
        if number.is_multiple_of(1 << TAG_BITS) {
            // Tags begin again: no seat may keep one of long ago. Tag 0 is nobody's.
            self.seats.iter().for_each(|seat| seat.jobs.store(0, Ordering::Relaxed));
            number += 1;
        }
        let n_seat = call.n_seat.load(Ordering::Relaxed);
        let step = Step { tag: number % (1 << TAG_BITS), n_seat, n_job, job };
        // SAFETY: no step is open and no worker is inside (the end of every run), and `running` is ours.
        unsafe { *call.step.get() = step };
        call.state.store((number * STEP) | OPEN, Ordering::SeqCst);
        self.wake_sleepers();
        step
    }

    /// Lets nobody in any more and waits for those inside.
    fn close(&self) {
        // A worker says that it is inside before it looks whether the step is open, and we the other way round. All
        // four are sequentially consistent, so at least one of the two sees the other.
        let state = self.call.state.load(Ordering::Relaxed);
        self.call.state.store(state & !OPEN, Ordering::SeqCst);
        for seat in &self.seats[1..] {
            let mut spin = Spin::default();
            while seat.is_inside.load(Ordering::SeqCst) {
                if !spin.goes_on() {
                    self.sleep_until_left(seat);
                }
            }
        }
    }

    fn sleep_until_left(&self, seat: &Seat) {
        let mut guard = lock(&self.rest.sleep);
        // As in `close`: we say that we sleep and then look; the worker says that it left and then looks.
        self.rest.is_caller_asleep.store(true, Ordering::SeqCst);
        while seat.is_inside.load(Ordering::SeqCst) {
            guard = self.rest.wake_caller.wait(guard).unwrap_or_else(PoisonError::into_inner);
        }
        self.rest.is_caller_asleep.store(false, Ordering::SeqCst);
    }

    /// For a thread inside the step, or its owner, on its own seat.
    fn take_jobs(&self, seat: usize, step: Step) {
        // SAFETY: the caller is inside the step or is its owner, so the closure is alive.
        let job = unsafe { &*step.job };
        loop {
            while let Some(i) = self.take_first(seat, step) {
                job(i);
            }
            if !self.steal(seat, step) {
                return;
            }
        }
    }

    /// The jobs of a seat that nobody has begun, and the word that says so. Words only hand out numbers: whoever is
    /// inside sees all else that a job needs.
    fn jobs(&self, seat: usize, step: Step) -> (u64, Range<usize>) {
        let word = self.seats[seat].jobs.load(Ordering::Relaxed);
        let jobs = match word >> (2 * JOB_BITS) == step.tag {
            true => (word >> JOB_BITS) as usize & N_JOB_MAX..word as usize & N_JOB_MAX,
            false if seat < step.n_seat => {
                step.n_job * seat / step.n_seat..step.n_job * (seat + 1) / step.n_seat
            }
            false => 0..0,
        };
        (word, jobs)
    }

    /// Puts `jobs` in the place of `word`, if that is still there.
    fn replace(&self, seat: usize, step: Step, word: u64, jobs: Range<usize>) -> bool {
        let new = step.word(jobs);
        self.seats[seat].jobs.compare_exchange(word, new, Ordering::Relaxed, Ordering::Relaxed).is_ok()
    }

    /// The first job of the own seat.
    fn take_first(&self, seat: usize, step: Step) -> Option<usize> {
        loop {
            let (word, jobs) = self.jobs(seat, step);
            let first = jobs.start;
            if jobs.is_empty() {
                return None;
            }
            if self.replace(seat, step, word, first + 1..jobs.end) {
                return Some(first);
            }
        }
    }

    /// Moves the back half of the jobs of the fullest seat to the own, empty one; `false`: there are none.
    fn steal(&self, seat: usize, step: Step) -> bool {
        loop {
            let others = (0..step.n_seat).filter(|&other| other != seat);
            let fullest = others.map(|other| (other, self.jobs(other, step)));
            let Some((victim, (word, jobs))) = fullest.max_by_key(|(_, (_, jobs))| jobs.len()) else {
                return false;
            };
            if jobs.is_empty() {
                return false;
            }
            let middle = jobs.start + jobs.len() / 2;
            if self.replace(victim, step, word, jobs.start..middle) {
                // Nobody else writes to an empty seat.
                self.seats[seat].jobs.store(step.word(middle..jobs.end), Ordering::Relaxed);
                return true;
            }
        }
    }

    /// The life of a worker.
    fn work(&self, seat: usize) {
        self.seats[seat].figures.get_or_init(own_figures);
        let mut done = 0;
        while self.wait_for_news(seat, done) {
            self.seats[seat].is_inside.store(true, Ordering::SeqCst);
            let state = self.call.state.load(Ordering::SeqCst);
            if is_news(state, done) {
                done = state / STEP;
                // SAFETY: we are inside, so the owner does not write.
                let step = unsafe { *self.call.step.get() };
                if let Err(panic) = catch_unwind(AssertUnwindSafe(|| self.take_jobs(seat, step))) {
                    lock(&self.rest.panic).get_or_insert(panic);
                }
            }
            self.seats[seat].is_inside.store(false, Ordering::SeqCst);
            if self.rest.is_caller_asleep.load(Ordering::SeqCst) {
                let _guard = lock(&self.rest.sleep);
                self.rest.wake_caller.notify_one();
            }
        }
    }

    /// Waits for an open step other than `done`; `false`: the pool ends.
    fn wait_for_news(&self, seat: usize, done: u64) -> bool {
        let mut spin = Spin::default();
        loop {
            let state = self.call.state.load(Ordering::Acquire);
            if state & STOP != 0 {
                return false;
            }
            if self.call.n_seat.load(Ordering::Relaxed) <= seat {
                self.sit_out(seat);
                continue;
            }
            if is_news(state, done) {
                return true;
            }
            if !spin.goes_on() {
                self.sleep_until_news(done);
                spin = Spin::default();
            }
        }
    }

    fn sleep_until_news(&self, done: u64) {
        let mut guard = lock(&self.rest.sleep);
        self.rest.n_sleeper.fetch_add(1, Ordering::SeqCst);
        // As in `close`: we say that we sleep and then look; the caller opens the step and then looks.
        loop {
            let state = self.call.state.load(Ordering::SeqCst);
            if state & STOP != 0 || is_news(state, done) {
                break;
            }
            guard = self.rest.wake.wait(guard).unwrap_or_else(PoisonError::into_inner);
        }
        self.rest.n_sleeper.fetch_sub(1, Ordering::SeqCst);
    }

    /// Until there is a seat again, or the pool ends.
    fn sit_out(&self, seat: usize) {
        let mut guard = lock(&self.rest.sleep);
        while self.call.n_seat.load(Ordering::SeqCst) <= seat
            && self.call.state.load(Ordering::SeqCst) & STOP == 0
        {
            guard = self.rest.wake_sitters.wait(guard).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Sets the number of seats, between two steps.
    fn seat(&self, n_seat: usize) {
        let was = self.call.n_seat.load(Ordering::Relaxed);
        if n_seat != was {
            self.call.n_seat.store(n_seat, Ordering::SeqCst);
            self.wake_sitters();
        }
    }

    /// Whoever looked before and did not sleep yet holds the lock.
    fn wake_sitters(&self) {
        let _guard = lock(&self.rest.sleep);
        self.rest.wake_sitters.notify_all();
    }

    fn figures(&self, seat: usize) -> Option<&Path> {
        self.seats[seat].figures.get()?.as_deref()
    }

    fn wake_sleepers(&self) {
        if self.rest.n_sleeper.load(Ordering::SeqCst) != 0 {
            let _guard = lock(&self.rest.sleep);
            self.rest.wake.notify_all();
        }
    }
}

/// Looks for something that should come soon.
#[derive(Default)]
struct Spin {
    n_look: u32,
    since: Option<Instant>,
}

impl Spin {
    /// Pauses; `false`: it was long enough.
    fn goes_on(&mut self) -> bool {
        spin_loop();
        self.n_look += 1;
        if !self.n_look.is_multiple_of(LOOKS_PER_CLOCK) {
            return true;
        }
        let since = *self.since.get_or_insert_with(Instant::now);
        since.elapsed() < SPIN
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

    /// Runs a step and counts how often each job ran.
    #[track_caller]
    fn check(pool: &Pool, n_job: usize) {
        let counts: Vec<AtomicU32> = (0..n_job).map(|_| AtomicU32::new(0)).collect();
        pool.run(n_job, &|i| {
            counts[i].fetch_add(1, Ordering::Relaxed);
        });
        let wrong = counts.iter().position(|count| count.load(Ordering::Relaxed) != 1);
        assert_eq!(wrong, None, "of {n_job} jobs on {} threads", pool.n_thread());
    }

    /// A step loses a job, runs one twice, or returns before all are done.
    #[test]
    fn every_job_runs_exactly_once() {
        for n_thread in [1, 2, 3, 5, 16, 64] {
            let pool = Pool::new(n_thread);
            (0..2000).for_each(|round| check(&pool, round * 7 % 131));
        }
    }

    /// The numbers of jobs or steps outgrow their bits.
    #[test]
    fn many_jobs_and_many_steps() {
        let pool = Pool::new(3);
        for n_job in [N_JOB_MAX - 1, N_JOB_MAX, N_JOB_MAX + 1, 2 * N_JOB_MAX + 5] {
            check(&pool, n_job);
        }
        for round in 1..4 {
            // Between two steps: all seats but some know the last tag when tags begin again.
            pool.shared.call.state.store(((round << TAG_BITS) - 5) * STEP, Ordering::SeqCst);
            (0..10).for_each(|step| check(&pool, if step % 2 == 0 { 2 } else { 9 }));
        }
    }

    /// A step of several callers is taken for another's.
    #[test]
    fn callers_take_turns() {
        let pool = Pool::new(4);
        std::thread::scope(|scope| {
            for caller in 0..4 {
                let pool = &pool;
                scope.spawn(move || (0..500).for_each(|round| check(pool, (round + caller) % 23)));
            }
        });
    }

    /// Threads that sit out keep their jobs, or never come back.
    #[test]
    fn threads_sit_out_and_come_back() {
        let pool = Pool::new(6);
        for round in 0..3000_usize {
            lock(&pool.running).set(1 + round * 5 % 6);
            check(&pool, round % 40);
        }
        let threads = Mutex::new(std::collections::BTreeSet::new());
        while lock(&threads).len() < 6 {
            lock(&pool.running).set(6);
            pool.run(12, &|_| {
                lock(&threads).insert(format!("{:?}", std::thread::current().id()));
            });
        }
    }

    /// Neighbouring jobs go to different threads, or one thread's jobs to all others one by one.
    #[test]
    fn seats_have_ranges_and_thieves_take_half() {
        let pool = Pool::new(4);
        let step = Step { tag: 9, n_seat: 3, n_job: 31, job: &|_| {} };
        let jobs = |seat| pool.shared.jobs(seat, step).1;
        assert_eq!([0, 1, 2, 3].map(jobs), [0..10, 10..20, 20..31, 0..0]);
        assert_eq!(pool.shared.take_first(1, step), Some(10));
        assert!(pool.shared.steal(3, step));
        assert_eq!([0, 1, 2, 3].map(jobs), [0..10, 11..20, 20..25, 25..31]);
        let mut taken: Vec<usize> = std::iter::from_fn(|| pool.shared.take_first(3, step)).collect();
        assert_eq!(taken, [25, 26, 27, 28, 29, 30]);
        assert!(pool.shared.steal(3, step));
        assert_eq!([0, 1, 2, 3].map(jobs), [0..5, 11..20, 20..25, 5..10]);
        taken.clear();
        while let Some(job) =
            pool.shared.take_first(3, step).or_else(|| pool.shared.steal(3, step).then_some(usize::MAX))
        {
            taken.push(job);
        }
        taken.retain(|&job| job != usize::MAX);
        taken.sort_unstable();
        assert_eq!(taken, (0..10).chain(11..25).collect::<Vec<_>>());
    }

    /// A job's panic is swallowed, deadlocks the barrier or kills a worker for good.
    #[test]
    fn a_panic_reaches_the_caller_and_the_pool_survives() {
        for n_thread in [1, 3, 16] {
            let pool = Pool::new(n_thread);
            for bad in 0..48 {
                let run = || pool.run(48, &|i| assert!(i != bad, "job {i}"));
                let panic = catch_unwind(AssertUnwindSafe(run)).expect_err("one job panics");
                assert_eq!(*panic.downcast::<String>().expect("assert message"), format!("job {bad}"));
                check(&pool, 100);
            }
            let all = catch_unwind(AssertUnwindSafe(|| pool.run(48, &|i| panic!("job {i}"))));
            assert!(all.is_err());
            check(&pool, 100);
        }
    }

    /// A pool hangs when it ends: before its threads have begun, while they look for news, sleep or sit out.
    #[test]
    fn pools_end_in_every_state() {
        for n_thread in [2, 7, 64] {
            drop(Pool::new(n_thread));
            for _ in 0..50 {
                let pool = Pool::new(n_thread);
                check(&pool, 9);
            }
            let pool = Pool::new(n_thread);
            while pool.shared.rest.n_sleeper.load(Ordering::SeqCst) < n_thread - 1 {
                std::thread::yield_now();
            }
            check(&pool, 9);
            while pool.shared.rest.n_sleeper.load(Ordering::SeqCst) < n_thread - 1 {
                std::thread::yield_now();
            }
            drop(pool);
            let pool = Pool::new(n_thread);
            lock(&pool.running).set(2);
            (0..50).for_each(|_| check(&pool, 9));
        }
    }
}
