//! The slot cache against a device that misbehaves on command.

mod common;

use std::io;

use common::{Device, FOREVER, Fault, Key, check_ready, lease, stream_on, take_all, use_experts};
use stream::{CacheMode, ExpertStream, StreamError, StreamOptions, Tuning};

const SLOTS: CacheMode = CacheMode::Slots;
const PAGE: CacheMode = CacheMode::Page;

/// A hit that reads again makes the cache useless.
#[test]
fn hits_do_not_read() {
    let device = Device::new();
    let mut stream = stream_on(&device, SLOTS, 6, 2);
    use_experts(&mut stream, 0, &[1, 3, 7]);
    use_experts(&mut stream, 1, &[3]);
    let waited = stream.stats().wait;
    use_experts(&mut stream, 0, &[3, 7]);
    use_experts(&mut stream, 1, &[3]);
    let stats = stream.stats();
    assert_eq!((stats.n_hit, stats.n_miss, stats.n_retry), (3, 4, 0));
    assert_eq!(stats.read_bytes, 4 * common::STRIDE as u64);
    assert_eq!(device.n_attempt_all(), 4);
    assert_eq!(stats.wait, waited, "nothing was waited for");
    assert_eq!(
        stream.layer_stats().iter().map(|l| (l.n_hit, l.n_miss)).collect::<Vec<_>>(),
        [(2, 3), (1, 1), (0, 0), (0, 0)]
    );
}

/// Evicting anything but the least recently used record costs reads where nothing is known of how often they
/// are used.
#[test]
fn least_recently_used_goes_first() {
    let device = Device::new();
    let mut stream = stream_on(&device, SLOTS, 3, 1);
    for expert in [0, 1, 2, 0, 3] {
        use_experts(&mut stream, 0, &[expert]); // 1 is the oldest when 3 comes
    }
    for (expert, n_attempt) in [(0, 1), (2, 1), (3, 1), (1, 2)] {
        use_experts(&mut stream, 0, &[expert]);
        assert_eq!(device.n_attempt((0, expert)), n_attempt, "{expert}");
    }
}

/// A layer that comes later in a token would lose its records to those that came before it.
#[test]
fn layers_are_treated_alike() {
    let device = Device::new();
    let mut stream = stream_on(&device, SLOTS, 5, 2);
    for token in 0..20 {
        for layer in 0..4 {
            // One expert that stays; in one layer another one, too.
            let experts: &[usize] = if layer == token % 4 { &[0, 1 + token % 7] } else { &[0] };
            use_experts(&mut stream, layer, experts);
        }
    }
    let n_attempt: Vec<usize> = (0..4).map(|layer| device.n_attempt((layer, 0))).collect();
    assert_eq!(n_attempt, [1; 4], "the experts that stay are read once");
}

/// A record in use that is evicted changes weights under a running product.
#[test]
fn records_in_use_stay() {
    let device = Device::new();
    let mut stream = stream_on(&device, SLOTS, 4, 2);
    let mut held = lease(&mut stream, 0, &[2, 5]);
    while held.ready().len() < 2 {
        // Both must come in one call, or the first is given back.
        stream.release(held);
        held = lease(&mut stream, 0, &[2, 5]);
        stream.next(&mut held, 2).unwrap();
    }
    let again = lease(&mut stream, 0, &[2]);
    stream.release(again);
    for expert in 0..8 {
        use_experts(&mut stream, 1, &[expert.min(6), expert.min(6) + 1]);
        check_ready(&stream, &held);
    }
    stream.release(held);
    use_experts(&mut stream, 0, &[2, 5]);
    assert_eq!((device.n_attempt((0, 2)), device.n_attempt((0, 5))), (1, 1));
}

/// A prompt may need more experts than there are slots; a request that cannot go on must neither hang nor
/// leave slots in use behind.
#[test]
fn few_slots_are_enough_or_an_error() {
    let device = Device::new();
    let few = StreamOptions { mode: SLOTS, n_slot: 1, tuning: Tuning::default() };
    let refused = ExpertStream::new(common::layers(&device, 1, 8), few);
    assert!(matches!(refused, Err(StreamError::TooFewSlots { n_slot: 1, n_min: 2 })));

    for n_slot in 2..6 {
        let mut stream = stream_on(&device, SLOTS, n_slot, 2);
        use_experts(&mut stream, 1, &[0, 1, 2, 3, 4, 5, 6, 7]);
        let mut held = lease(&mut stream, 0, &[0, 1, 2, 3, 4, 5]);
        stream.next(&mut held, n_slot).unwrap();
        let mut other = lease(&mut stream, 2, &[0]);
        let refused = take_all(&mut stream, &mut other);
        assert!(matches!(refused, Err(StreamError::TooFewSlots { .. })), "{refused:?}");
        stream.release(other);
        stream.release(held);
        use_experts(&mut stream, 2, &[0, 1, 2, 3]);
    }
}

/// A record that two leases want must be read once, also if the first loses interest.
#[test]
fn reads_under_way_are_shared() {
    for mode in [SLOTS, PAGE] {
        let device = Device::new();
        let mut stream = stream_on(&device, mode, 6, 2);
        device.close();
        let first = lease(&mut stream, 0, &[4, 5]);
        let second = lease(&mut stream, 0, &[5, 6]);
        stream.release(first);
        let third = lease(&mut stream, 0, &[4]);
        device.open();
        for mut lease in [second, third] {
            take_all(&mut stream, &mut lease).unwrap();
            stream.release(lease);
        }
        assert_eq!(device.n_attempt_all(), 3);
        assert_eq!((stream.stats().n_hit, stream.stats().n_miss), (2, 3));
    }
}

/// Bytes that land in another record's slot, or experts that wait for slower ones: records arrive in every order.
#[test]
fn experts_are_given_as_they_arrive() {
    let experts = [0, 3, 5, 6];
    for order in [[0, 1, 2, 3], [3, 2, 1, 0], [2, 0, 3, 1], [1, 3, 0, 2]] {
        let device = Device::new();
        let mut stream = stream_on(&device, SLOTS, 5, 4);
        use_experts(&mut stream, 1, &[7]);
        device.close();
        let mut lease = lease(&mut stream, 1, &[0, 3, 5, 6, 7]);
        assert!(stream.next(&mut lease, 8).unwrap());
        assert_eq!(lease.ready(), [4], "the expert in memory comes first");
        device.wait_for_arrivals(4);
        for place in order {
            device.pass((1, experts[place]));
            assert!(stream.next(&mut lease, 8).unwrap());
            assert_eq!(lease.ready(), [place]);
            check_ready(&stream, &lease);
        }
        assert!(!stream.next(&mut lease, 8).unwrap());
        stream.release(lease);
    }
}

/// Page mode must leave caching to the system, and still give the right bytes.
#[test]
fn page_mode_keeps_nothing() {
    let device = Device::new();
    let mut stream = stream_on(&device, PAGE, 6, 2);
    for n_attempt in 1..4 {
        use_experts(&mut stream, 0, &[1, 3]);
        assert_eq!((device.n_attempt((0, 3)), device.n_attempt((0, 1))), (n_attempt, n_attempt));
    }
    let mut held = lease(&mut stream, 0, &[3]);
    stream.next(&mut held, 1).unwrap();
    use_experts(&mut stream, 0, &[3]);
    assert_eq!(device.n_attempt((0, 3)), 4, "a record in use is a hit");
    stream.release(held);
}

/// Where nothing shall be read, something would be, or nothing would come.
#[test]
fn assumed_records_are_not_read() {
    let device = Device::new();
    let mut stream = stream_on(&device, CacheMode::Assumed, 3, 2);
    for layer in 0..4 {
        for step in 0..5 {
            let mut lease = lease(&mut stream, layer, &[step, step + 2]);
            let mut n = 0;
            while stream.next(&mut lease, 8).unwrap() {
                n += lease.ready().len();
                lease
                    .ready()
                    .iter()
                    .for_each(|&place| assert_eq!(stream.record(&lease, place).len(), common::STRIDE));
            }
            assert_eq!(n, 2);
            stream.release(lease);
        }
    }
    assert_eq!(device.n_attempt_all(), 3, "one a slot");
}

/// Guesses must arrive without being asked for, must not be read twice, and wrong ones must not hold slots.
#[test]
fn guesses_are_read_ahead() {
    let device = Device::new();
    let mut stream = stream_on(&device, SLOTS, 4, 2);
    stream.prefetch(2, &[3, 5]);
    use_experts(&mut stream, 1, &[0]); // comes first, or between
    use_experts(&mut stream, 2, &[3, 6]);
    assert_eq!((device.n_attempt((2, 3)), device.n_attempt((2, 6))), (1, 1));
    let stats = stream.stats();
    assert_eq!((stats.n_prefetch, stats.n_prefetch_hit), (2, 1));
    assert_eq!((stats.n_hit, stats.n_miss), (1, 2));
    use_experts(&mut stream, 3, &[0, 1, 2, 3]);
}

/// A guess would push out what is in use, or what is used more than other records.
#[test]
fn guesses_take_the_slot_of_the_coldest() {
    let device = Device::new();
    let mut stream = stream_on(&device, SLOTS, 2, 1);
    use_experts(&mut stream, 0, &[0, 1]);
    use_experts(&mut stream, 0, &[1]);
    stream.prefetch(1, &[4]);
    assert_eq!(stream.stats().n_prefetch, 1);
    use_experts(&mut stream, 0, &[1]);
    assert_eq!((device.n_attempt((0, 0)), device.n_attempt((0, 1))), (1, 1), "0 went, 1 stayed");
    let mut held = lease(&mut stream, 2, &[0, 1]);
    stream.prefetch(3, &[0, 1]);
    assert_eq!(stream.stats().n_prefetch, 1, "both slots are in use");
    take_all(&mut stream, &mut held).unwrap();
    stream.release(held);
}

/// A lowered limit must free memory at once, and a raised one must be used again; records must stay right.
#[test]
fn the_limit_can_change() {
    let device = Device::new();
    let mut stream = stream_on(&device, SLOTS, 8, 2);
    let limit = stream.limit();
    use_experts(&mut stream, 0, &[0, 1, 2, 3, 4, 5, 6, 7]);
    for n_slot in [5, 2, 0] {
        limit.set(n_slot);
        use_experts(&mut stream, 1, &[0, 1, 2]);
        assert_eq!(stream.n_live_slot(), n_slot.max(2), "limit {n_slot}");
    }
    limit.set(usize::MAX);
    use_experts(&mut stream, 2, &[0, 1, 2, 3, 4, 5]);
    let n_attempt = device.n_attempt_all();
    use_experts(&mut stream, 2, &[0, 1, 2, 3, 4, 5]);
    assert_eq!(device.n_attempt_all(), n_attempt, "six slots are there again");
    assert_eq!(stream.n_live_slot(), 8);
}

/// What was hot in the last run must be read ahead, the hottest first, and what is asked for must not wait for it.
#[test]
fn heat_warms_the_next_run() {
    let device = Device::new();
    let mut stream = stream_on(&device, SLOTS, 8, 1);
    for expert in [1, 1, 1, 1, 6, 6, 6, 3, 3, 0] {
        use_experts(&mut stream, 2, &[expert]);
    }
    let heat = stream.heat();
    let mut next = stream_on(&device, SLOTS, 3, 1);
    device.close();
    next.warm(&heat).unwrap();
    device.wait_for_arrivals(1);
    let mut asked = lease(&mut next, 0, &[5]);
    device.open();
    take_all(&mut next, &mut asked).unwrap();
    next.release(asked);
    let n_attempt = [1, 6].map(|expert| device.n_attempt((2, expert)));
    use_experts(&mut next, 2, &[1]);
    assert_eq!(device.n_attempt((2, 1)), n_attempt[0], "the hottest one is there");
    let other = ExpertStream::new(
        common::layers(&device, 3, 8),
        StreamOptions { mode: SLOTS, n_slot: 4, tuning: Tuning::default() },
    );
    let refused = other.unwrap().warm(&heat);
    assert!(matches!(refused, Err(StreamError::OtherHeat { n_record: 24, n_heat: 32 })), "{refused:?}");
}

/// What a device holds would be read again, into slots that nobody needs.
#[test]
fn a_warm_start_leaves_out_what_a_device_holds() {
    let device = Device::new();
    let mut stream = stream_on(&device, SLOTS, 8, 1);
    use_experts(&mut stream, 2, &[1, 6]);
    let heat = stream.heat();
    let mut next = stream_on(&device, SLOTS, 8, 1);
    next.hold(4);
    let mut asked = lease(&mut next, 2, &[1]);
    assert!(next.next(&mut asked, 1).unwrap());
    let admitted = next.admit(&asked, 0, false).map(|a| (a.layer, a.expert, a.place, a.instead));
    assert_eq!(admitted, Some((2, 1, 0, None)));
    next.release(asked);
    // Its slot is the first to go, and then there is room again.
    use_experts(&mut next, 0, &[0, 1]);
    next.limit().set(2);
    use_experts(&mut next, 0, &[0]);
    next.limit().set(usize::MAX);
    let n_attempt = [1, 6].map(|expert| device.n_attempt((2, expert)));
    next.warm(&heat).unwrap();
    use_experts(&mut next, 2, &[6]);
    assert_eq!(device.n_attempt((2, 6)), n_attempt[1] + 1, "it was hot, and is not held");
    use_experts(&mut next, 2, &[7]);
    let held = lease(&mut next, 2, &[1]);
    assert_eq!((held.held(), held.must_read()), (&[0][..], false));
    next.release(held);
    assert_eq!(device.n_attempt((2, 1)), n_attempt[0], "it is held");
}

/// A warm start would use up the room that guesses have.
#[test]
fn guesses_go_on_after_a_warm_start() {
    let device = Device::new();
    let mut stream = stream_on(&device, SLOTS, 32, 2);
    let all = [0, 1, 2, 3, 4, 5, 6, 7];
    (0..4).for_each(|layer| use_experts(&mut stream, layer, &all[..7]));
    let mut next = stream_on(&device, SLOTS, 32, 2);
    next.warm(&stream.heat()).unwrap();
    // The only one that was not hot comes after all that were, since one read is asked for at a time.
    (0..4).for_each(|layer| use_experts(&mut next, layer, &all[..1]));
    while next.stats().read_bytes < 28 * common::STRIDE as u64 {
        use_experts(&mut next, 0, &all[..1]);
    }
    use_experts(&mut next, 0, &all[..1]);
    let before = next.stats().n_prefetch;
    next.prefetch(3, &[7]);
    assert_eq!(next.stats().n_prefetch, before + 1);
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
    let mut failed = lease(&mut stream, 3, &[0, 4, 7]);
    let mut shared = lease(&mut stream, 3, &[4]);
    for lease in [&mut failed, &mut shared] {
        let error = take_all(&mut stream, lease).unwrap_err();
        assert!(is_right(&error), "{error:?}");
        assert!(error.to_string().contains(text), "{error} / {text}");
    }
    // The others are not harmed.
    use_experts(&mut stream, 3, &[0, 7]);
    use_experts(&mut stream, 0, &[4]);

    // Not a hit later, neither while the failed lease is held nor after it.
    let n_attempt = device.n_attempt(bad);
    let mut while_held = lease(&mut stream, 3, &[4]);
    assert!(take_all(&mut stream, &mut while_held).is_err());
    assert!(device.n_attempt(bad) > n_attempt);
    device.heal();
    use_experts(&mut stream, 3, &[4]);
    [failed, shared, while_held].into_iter().for_each(|lease| stream.release(lease));
    use_experts(&mut stream, 3, &[0, 4, 7]);
    let n_attempt = device.n_attempt_all();
    use_experts(&mut stream, 3, &[4]);
    assert_eq!(device.n_attempt_all(), n_attempt, "the healed record is a hit");
    // All slots can be used again.
    use_experts(&mut stream, 1, &[0, 1, 2, 3, 4, 5]);
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
        let abandoned = lease(&mut stream, 0, &[0, 1, 2, 3]);
        stream.release(abandoned);
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
    let lease = lease(&mut stream, 0, &[0, 1, 2, 3, 4, 5, 6, 7]);
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
    let mut lease = lease(&mut stream, 1, &[2]);
    let _ = stream.next(&mut lease, 1);
    stream.record(&lease, 0);
}

/// Model threads share the stream by reference.
#[test]
fn stream_can_be_shared() {
    fn is_send_and_sync<T: Send + Sync>() {}
    is_send_and_sync::<ExpertStream>();
}
