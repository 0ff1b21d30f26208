//! The slot cache against a device that misbehaves on command.

mod common;

use std::io;

use common::{Device, FOREVER, Fault, Key, check_bytes, stream_on, use_experts};
use stream::{CacheMode, ExpertStream, Lease, StreamError, StreamOptions, Tuning};

const SLOTS: CacheMode = CacheMode::Slots;
const PAGE: CacheMode = CacheMode::Page;

/// A hit that reads again makes the cache useless.
#[test]
fn hits_do_not_read() {
    let device = Device::new();
    let mut stream = stream_on(&device, SLOTS, 6, 2);
    use_experts(&mut stream, 0, &[3, 1, 7]);
    use_experts(&mut stream, 1, &[3]);
    let waited = stream.stats().wait;
    use_experts(&mut stream, 0, &[7, 3]);
    use_experts(&mut stream, 1, &[3]);
    let stats = stream.stats();
    assert_eq!((stats.n_hit, stats.n_miss, stats.n_retry), (3, 4, 0));
    assert_eq!(stats.read_bytes, 4 * common::STRIDE as u64);
    assert_eq!(device.n_attempt_all(), 4);
    assert_eq!(stats.wait, waited, "nothing was waited for");
}

/// Evicting anything but the least recently used record costs reads.
#[test]
fn least_recently_used_goes_first() {
    let device = Device::new();
    let mut stream = stream_on(&device, SLOTS, 3, 1);
    use_experts(&mut stream, 0, &[0]);
    use_experts(&mut stream, 1, &[1]);
    use_experts(&mut stream, 2, &[2]);
    use_experts(&mut stream, 0, &[0]); // (1, 1) is the oldest now
    use_experts(&mut stream, 3, &[3]);
    for (key, n_attempt) in [((0, 0), 1), ((2, 2), 1), ((3, 3), 1), ((1, 1), 2)] {
        use_experts(&mut stream, key.0, &[key.1]);
        assert_eq!(device.n_attempt(key), n_attempt, "{key:?}");
    }
}

/// A pinned record that is evicted changes weights under a running product.
#[test]
fn pinned_records_stay() {
    let device = Device::new();
    let mut stream = stream_on(&device, SLOTS, 4, 2);
    let held = stream.request(0, &[5, 2]).unwrap();
    let again = stream.request(0, &[2]).unwrap();
    stream.wait(&held).unwrap();
    stream.release(again);
    for expert in 0..8 {
        use_experts(&mut stream, 1, &[expert, (expert + 1) % 8]);
        check_bytes(&stream, &held);
    }
    stream.release(held);
    use_experts(&mut stream, 0, &[2, 5]);
    assert_eq!((device.n_attempt((0, 2)), device.n_attempt((0, 5))), (1, 1));
}

/// A request that does not fit must neither hang nor leave pins behind.
#[test]
fn too_many_pins_are_refused() {
    let device = Device::new();
    let few = StreamOptions { mode: SLOTS, n_slot: 1, tuning: Tuning::default() };
    let refused = ExpertStream::new(common::layers(&device, 1, 8), few);
    assert!(matches!(refused, Err(StreamError::TooFewSlots { n_slot: 1, n_min: 2 })));

    let mut stream = stream_on(&device, SLOTS, 4, 2);
    let held = stream.request(0, &[0, 1]).unwrap();
    let refused = stream.request(0, &[1, 2, 3, 4]);
    assert!(matches!(refused, Err(StreamError::TooFewSlots { n_slot: 4, n_min: 5 })), "{refused:?}");
    let fits = stream.request(0, &[1, 2, 3]).unwrap();
    stream.wait(&fits).unwrap();
    check_bytes(&stream, &fits);
    stream.release(held);
    stream.release(fits);
    use_experts(&mut stream, 2, &[0, 1, 2, 3]);
}

/// A record that two leases want must be read once, also if the first loses interest.
#[test]
fn reads_under_way_are_shared() {
    for mode in [SLOTS, PAGE] {
        let device = Device::new();
        let mut stream = stream_on(&device, mode, 6, 2);
        device.close();
        let first = stream.request(0, &[4, 5]).unwrap();
        let second = stream.request(0, &[5, 6]).unwrap();
        assert!(!stream.is_ready(&first, 0) && !stream.is_ready(&second, 1));
        stream.release(first);
        let third = stream.request(0, &[4]).unwrap();
        device.open();
        for lease in [second, third] {
            stream.wait(&lease).unwrap();
            check_bytes(&stream, &lease);
            stream.release(lease);
        }
        assert_eq!(device.n_attempt_all(), 3);
        assert_eq!((stream.stats().n_hit, stream.stats().n_miss), (2, 3));
    }
}

/// Bytes that land in another record's slot: records arrive in every order.
#[test]
fn order_of_arrival_does_not_matter() {
    let experts = [6, 0, 3, 5];
    for order in [[0, 1, 2, 3], [3, 2, 1, 0], [2, 0, 3, 1], [1, 3, 0, 2]] {
        let device = Device::new();
        let mut stream = stream_on(&device, SLOTS, 5, 4);
        device.close();
        let lease = stream.request(1, &experts).unwrap();
        device.wait_for_arrivals(4);
        for (n_landed, idx) in order.into_iter().enumerate() {
            assert!(!stream.is_ready(&lease, idx));
            device.pass((1, experts[idx]));
            while !stream.is_ready(&lease, idx) {
                std::thread::yield_now();
            }
            let n_ready = (0..4).filter(|&idx| stream.is_ready(&lease, idx)).count();
            assert_eq!(n_ready, n_landed + 1);
        }
        stream.wait(&lease).unwrap();
        check_bytes(&stream, &lease);
        stream.release(lease);
        assert!(stream.stats().wait.is_zero(), "all records were there before the wait");
    }
}

/// Page mode must leave caching to the system, and still give the right bytes.
#[test]
fn page_mode_keeps_nothing() {
    let device = Device::new();
    let mut stream = stream_on(&device, PAGE, 6, 2);
    for n_attempt in 1..4 {
        use_experts(&mut stream, 0, &[3, 1]);
        assert_eq!((device.n_attempt((0, 3)), device.n_attempt((0, 1))), (n_attempt, n_attempt));
    }
    let held = stream.request(0, &[3]).unwrap();
    use_experts(&mut stream, 0, &[3]);
    assert_eq!(device.n_attempt((0, 3)), 4, "a record in use is a hit");
    stream.release(held);
}

/// A fault that passes must be survived: (fault, attempts it spoils, retries that it costs).
#[test]
fn passing_faults_are_survived() {
    let cases = [
        (Fault::Short(1000), FOREVER, 0),
        (Fault::Short(1), 1, 0),
        (Fault::Interrupted, 5, 0),
        (Fault::Eio, 1, 1),
        (Fault::Eio, 2, 2),
        (Fault::Wrong, 1, 1),
        (Fault::Wrong, 2, 2),
        (Fault::End(7000), 2, 2),
        (Fault::Panic, 1, 1),
    ];
    for (fault, n_attempt, n_retry) in cases {
        let device = Device::new();
        let mut stream = stream_on(&device, SLOTS, 4, 2);
        device.fail((2, 6), fault, n_attempt);
        use_experts(&mut stream, 2, &[1, 6]);
        assert_eq!(stream.stats().n_retry, n_retry, "{fault:?} {n_attempt}");
    }
}

fn check_failure(fault: Fault, is_right: impl Fn(&StreamError) -> bool, text: &str) {
    let bad: Key = (3, 4);
    let device = Device::new();
    let mut stream = stream_on(&device, SLOTS, 6, 2);
    device.fail(bad, fault, FOREVER);
    let lease = stream.request(3, &[0, 4, 7]).unwrap();
    let shared = stream.request(3, &[4]).unwrap();
    for lease in [&lease, &shared, &lease] {
        let error = stream.wait(lease).unwrap_err();
        assert!(is_right(&error), "{error:?}");
        assert!(error.to_string().contains(text), "{error} / {text}");
    }
    // The others are not harmed.
    assert!(stream.is_ready(&lease, 0) && !stream.is_ready(&lease, 1) && stream.is_ready(&lease, 2));
    assert!(stream.record(&lease, 0) == common::content((3, 0)));
    use_experts(&mut stream, 0, &[4]);

    // Not a hit later, neither while the failed lease is held nor after it.
    let n_attempt = device.n_attempt(bad);
    let while_held = stream.request(3, &[4]).unwrap();
    assert!(stream.wait(&while_held).is_err());
    assert!(device.n_attempt(bad) > n_attempt);
    device.heal();
    use_experts(&mut stream, 3, &[4]);
    release_all(&mut stream, [lease, shared, while_held]);
    use_experts(&mut stream, 3, &[0, 4, 7]);
    let n_attempt = device.n_attempt_all();
    use_experts(&mut stream, 3, &[4]);
    assert_eq!(device.n_attempt_all(), n_attempt, "the healed record is a hit");
    // All slots can be used again.
    use_experts(&mut stream, 1, &[0, 1, 2, 3, 4, 5]);
}

fn release_all<const N: usize>(stream: &mut ExpertStream, leases: [Lease; N]) {
    leases.into_iter().for_each(|lease| stream.release(lease));
}

/// An unreadable record must be an error that names it, and must harm no other.
#[test]
fn lasting_faults_are_errors() {
    let kind = |wanted: io::ErrorKind| {
        move |error: &StreamError| match error {
            StreamError::Read { offset, bytes, layer, expert, attempts, source, .. } => {
                assert_eq!((*layer, *expert, *bytes, *attempts), (3, 4, common::STRIDE, 3));
                assert_eq!(*offset, 4 * common::STRIDE as u64);
                source.kind() == wanted
            }
            _ => false,
        }
    };
    let eio = |error: &StreamError| match error {
        StreamError::Read { source, .. } => source.raw_os_error() == Some(5),
        _ => false,
    };
    let checksum = |error: &StreamError| match error {
        StreamError::Checksum { offset, layer: 3, expert: 4, .. } => *offset == 4 * common::STRIDE as u64,
        _ => false,
    };
    check_failure(
        Fault::Eio,
        eio,
        "layer-3.bin: reading layer 3 expert 4 (16384 bytes at offset 65536) failed after 3",
    );
    check_failure(Fault::Wrong, checksum, "layer-3.bin: layer 3 expert 4 at offset 65536 does not match");
    check_failure(Fault::End(0), kind(io::ErrorKind::UnexpectedEof), "wanted 16384 bytes, got 0");
    check_failure(Fault::End(9000), kind(io::ErrorKind::UnexpectedEof), "wanted 16384 bytes, got 9000");
    check_failure(Fault::Interrupted, kind(io::ErrorKind::Interrupted), "layer 3 expert 4");
    check_failure(Fault::Panic, kind(io::ErrorKind::Other), "panicked");
}

/// Reads that nobody waits for any more hold slots: a request that needs them must wait and not fail or hang.
#[test]
fn abandoned_reads_give_their_slots_back() {
    for mode in [SLOTS, PAGE] {
        let device = Device::new();
        let mut stream = stream_on(&device, mode, 4, 2);
        device.fail((0, 1), Fault::Eio, FOREVER);
        device.close();
        let lease = stream.request(0, &[0, 1, 2, 3]).unwrap();
        stream.release(lease);
        device.wait_for_arrivals(2);
        device.open();
        use_experts(&mut stream, 1, &[4, 5, 6, 7]);
    }
}

/// Quitting while reads are queued and under way must not hang.
#[test]
fn drop_with_reads_under_way() {
    let device = Device::new();
    let mut stream = stream_on(&device, SLOTS, 8, 2);
    device.close();
    let lease = stream.request(0, &[0, 1, 2, 3, 4, 5, 6, 7]).unwrap();
    device.wait_for_arrivals(2);
    let dropper = std::thread::spawn(move || drop((lease, stream)));
    // The queued reads are dropped, those under way end.
    device.open();
    dropper.join().unwrap();
}

/// A record that has not arrived must never be handed out.
#[test]
#[should_panic(expected = "layer 1 expert 2 is not in memory")]
fn record_before_arrival_panics() {
    let device = Device::new();
    device.fail((1, 2), Fault::Eio, FOREVER);
    let mut stream = stream_on(&device, SLOTS, 4, 1);
    let lease = stream.request(1, &[2]).unwrap();
    let _ = stream.wait(&lease);
    stream.record(&lease, 0);
}

/// Model threads share the stream by reference.
#[test]
fn stream_can_be_shared() {
    fn is_send_and_sync<T: Send + Sync>() {}
    is_send_and_sync::<ExpertStream>();
}
