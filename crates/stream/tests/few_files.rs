//! With hardly any file descriptors left. Alone in its program: the limit is the whole process's.
#![cfg(target_os = "linux")]

use std::io::Write;

use rustix::process::{Resource, Rlimit, setrlimit};
use store::Blob;
use stream::{Backing, CacheMode, ExpertStream, Method, Reader, RecordFile, StreamOptions, Tuning};
use xxhash_rust::xxh3::xxh3_64;

const STRIDE: usize = 48 * 1024;

/// A system that gives no ring, for whatever reason, must be read with threads and not at all be an error; files that
/// cannot be opened must be one, and must not silently become buffered.
#[test]
fn rings_and_files_run_out() {
    let bytes: Vec<u8> = (0..4 * STRIDE).map(|i| (i * 7 + i / 251) as u8).collect();
    let mut file = tempfile::NamedTempFile::new().unwrap();
    file.write_all(&bytes).unwrap();
    let blob = Blob::File(file.path().into());
    let first = Reader::open(&blob, Backing::Direct).unwrap();
    let is_direct = first.is_direct();

    let n_file = 64;
    setrlimit(Resource::Nofile, Rlimit { current: Some(n_file), maximum: Some(n_file) }).unwrap();
    let mut sources = vec![first];
    let refused = loop {
        match Reader::open(&blob, Backing::Direct) {
            Ok(source) => sources.push(source),
            Err(error) => break error,
        }
    };
    assert_eq!(refused.raw_os_error(), Some(rustix::io::Errno::MFILE.raw_os_error()));
    assert!(sources.len() > 10 && sources.iter().all(|source| source.is_direct() == is_direct));
    // Takes what is left: at most one.
    let _last = std::fs::File::open(file.path());

    let xxh3: Vec<u64> = bytes.chunks(STRIDE).map(xxh3_64).collect();
    let layer =
        |source| RecordFile { source, stride_bytes: STRIDE, n_expert: xxh3.len(), xxh3: Some(xxh3.clone()) };
    let tuning = Tuning { method: Method::Uring, request_bytes: 16 * 1024, depth: 3 };
    let options = StreamOptions { mode: CacheMode::Slots, n_slot: 4, tuning };
    let mut stream = ExpertStream::new(sources.into_iter().map(layer).collect(), options).unwrap();
    assert_eq!(stream.method(), Method::Pool);
    let mut lease = stream.lease(5, 1, &[0, 1, 2, 3], |_| std::iter::once(0));
    let mut n_right = 0;
    while stream.next(&mut lease, 4).unwrap() {
        for &expert in lease.ready() {
            assert!(stream.record(&lease, expert) == &bytes[expert * STRIDE..][..STRIDE]);
            n_right += 1;
        }
    }
    assert_eq!(n_right, 4);
    stream.release(lease);
}
