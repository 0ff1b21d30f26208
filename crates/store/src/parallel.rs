//! Work on many independent pieces with a few threads, progress reported on the caller's thread.

use std::sync::Mutex;
use std::sync::mpsc;
use std::thread;

/// Enough to keep an NVMe drive busy with sequential reads while others hash.
const N_THREAD_MAX: usize = 4;

/// Runs `work` on every item and returns the results in the items' order. `work` gets a function that adds to the
/// bytes done, and `progress` is told their sum as it grows.
pub(crate) fn map<T: Send, R: Send>(
    items: Vec<T>,
    work: impl Fn(T, &dyn Fn(u64)) -> R + Sync,
    progress: &mut dyn FnMut(u64),
) -> Vec<R> {
    let n_item = items.len();
    let n_thread = thread::available_parallelism().map_or(1, usize::from).clamp(2, N_THREAD_MAX).min(n_item);
    let queue = Mutex::new(items.into_iter().enumerate());
    let (sender, bytes_done) = mpsc::channel();
    let mut results: Vec<Option<R>> = Vec::new();
    results.resize_with(n_item, || None);
    thread::scope(|scope| {
        let workers: Vec<_> = (0..n_thread)
            .map(|_| {
                let (sender, queue, work) = (sender.clone(), &queue, &work);
                scope.spawn(move || {
                    let add = |bytes| sender.send(bytes).expect("the receiver outlives the workers");
                    let next = || queue.lock().expect("no worker panics while it takes an item").next();
                    std::iter::from_fn(next).map(|(idx, item)| (idx, work(item, &add))).collect::<Vec<_>>()
                })
            })
            .collect();
        drop(sender);
        let mut sum = 0;
        for bytes in bytes_done {
            sum += bytes;
            progress(sum);
        }
        for worker in workers {
            for (idx, result) in worker.join().expect("work does not panic") {
                results[idx] = Some(result);
            }
        }
    });
    results.into_iter().map(|r| r.expect("each item was taken once")).collect()
}
