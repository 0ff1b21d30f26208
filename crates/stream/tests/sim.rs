//! The simulated drive: what it is told to do it does, again and again.

use std::io;
use std::time::Duration;

use store::Blob;
use stream::{
    Backing, CacheMode, ExpertStream, Method, Reader, RecordFile, SimCounts, SimDrive, SimFaults, SimSpec,
    StreamError, StreamOptions, Tuning,
};
use xxhash_rust::xxh3::xxh3_64;

const STRIDE: usize = 48 * 1024;
const N_EXPERT: usize = 32;
const N_LAYER: usize = 4;

/// The bytes of all records of all layers.
fn content() -> &'static [u8] {
    static CONTENT: std::sync::OnceLock<Vec<u8>> = std::sync::OnceLock::new();
    CONTENT.get_or_init(|| {
        let words =
            (0..(N_LAYER * N_EXPERT * STRIDE / 8) as u64).map(|i| i.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        words.flat_map(u64::to_le_bytes).collect()
    })
}

fn layer_content(layer: usize) -> &'static [u8] {
    &content()[layer * N_EXPERT * STRIDE..][..N_EXPERT * STRIDE]
}

fn stream_on(drive: &std::sync::Arc<SimDrive>, tuning: Tuning) -> ExpertStream {
    let layer = |layer| {
        let bytes = layer_content(layer);
        let memory = Blob::Memory { name: format!("layer-{layer}"), bytes };
        RecordFile {
            source: drive.wrap(Reader::open(&memory, Backing::Direct).unwrap()),
            stride_bytes: STRIDE,
            n_expert: N_EXPERT,
            xxh3: Some(bytes.chunks(STRIDE).map(xxh3_64).collect()),
        }
    };
    let options = StreamOptions { mode: CacheMode::Slots, n_slot: 12, tuning };
    ExpertStream::new((0..N_LAYER).map(layer).collect(), options).unwrap()
}

/// Uses every record twice. Which requests failed, and the text of the errors.
fn use_all(stream: &mut ExpertStream) -> Vec<(usize, usize, String)> {
    let mut failures = Vec::new();
    let requests = (0..2 * N_LAYER * N_EXPERT / 4).map(|i| (i % N_LAYER, i / N_LAYER * 4 % N_EXPERT));
    for (layer, first) in requests {
        let experts = [first, first + 1, first + 2, first + 3];
        // One by one, so that which of them fail does not depend on the order in which they come.
        for expert in experts {
            let mut lease = stream.lease(layer, 1, &[expert], |_| std::iter::once(0));
            match stream.next(&mut lease, 1) {
                Ok(more) => {
                    assert!(more && lease.ready() == [0]);
                    assert!(stream.record(&lease, 0) == &layer_content(layer)[expert * STRIDE..][..STRIDE]);
                }
                Err(error) => {
                    assert!(
                        matches!(error, StreamError::Read { .. } | StreamError::Checksum { .. }),
                        "{error}"
                    );
                    failures.push((layer, expert, error.to_string()));
                }
            }
            stream.release(lease);
        }
    }
    failures
}

fn faults(rate: f64, lasting: f64) -> SimFaults {
    let stall_for = Duration::from_micros(50);
    SimFaults {
        short: rate,
        eio: rate,
        wrong: rate,
        interrupted: rate,
        end: rate,
        stall: rate,
        stall_for,
        lasting,
    }
}

/// Without interruptions: one that lasts is met thousands of times by a single read.
fn n_fault(counts: SimCounts) -> u64 {
    let SimCounts { n_short, n_eio, n_wrong, n_end, n_stall, .. } = counts;
    n_short + n_eio + n_wrong + n_end + n_stall
}

/// Any fault that becomes a wrong byte, a hang or a failure that nobody hears of.
#[test]
fn ten_thousand_faults() {
    let mut total = SimCounts::default();
    let (mut n_failure, mut seed) = (0, 0);
    while n_fault(total) < 10_000 {
        seed += 1;
        eprintln!("seed {seed}");
        let (rate, lasting) = [(0.03, 0.0), (0.01, 0.2), (0.15, 0.0), (0.005, 1.0)][seed as usize % 4];
        let drive = SimDrive::new(SimSpec { seed, faults: faults(rate, lasting), ..SimSpec::default() });
        let request_bytes = [16 * 1024, 32 * 1024, 1 << 30][seed as usize % 3];
        let tuning = Tuning { method: Method::Pool, request_bytes, depth: 1 + seed as usize % 5 };
        let mut stream = stream_on(&drive, tuning);
        n_failure += use_all(&mut stream).len();
        let stats = stream.stats();
        drop(stream);
        let counts = drive.counts();
        assert_eq!(counts.read_bytes, stats.read_bytes, "all bytes are counted");
        // A hidden one would be neither a retry nor an error.
        assert!(stats.n_retry > 0);
        total.n_short += counts.n_short;
        total.n_eio += counts.n_eio;
        total.n_wrong += counts.n_wrong;
        total.n_interrupted += counts.n_interrupted;
        total.n_end += counts.n_end;
        total.n_stall += counts.n_stall;
    }
    eprintln!("{total:?}, {n_failure} requests failed");
    assert!(total.n_wrong > 1000 && total.n_eio > 1000 && total.n_end > 1000 && n_failure > 100);
}

/// A run that cannot be repeated cannot be debugged: the same faults and outcomes whatever the timing.
#[test]
fn the_same_seed_is_the_same_run() {
    let run = |seed, depth| {
        let spec = SimSpec {
            seed,
            bytes_per_s: Some(20e9),
            latency: Duration::from_micros(10),
            jitter: Duration::from_micros(300),
            faults: faults(0.04, 0.1),
        };
        let drive = SimDrive::new(spec);
        let mut stream = stream_on(&drive, Tuning { method: Method::Pool, request_bytes: 16 * 1024, depth });
        let failures: Vec<_> =
            use_all(&mut stream).into_iter().map(|(layer, first, _)| (layer, first)).collect();
        let n_retry = stream.stats().n_retry;
        drop(stream);
        (failures, n_retry, drive.counts())
    };
    let first = run(7, 1);
    assert!(!first.0.is_empty() && first.1 > 0);
    assert_eq!(run(7, 1), first);
    assert_eq!(run(7, 6), first);
    assert_ne!(run(8, 6), first);
}

/// A drive without faults that injects some, or rates that do nothing.
#[test]
fn only_what_was_asked_for() {
    let drive = SimDrive::new(SimSpec { bytes_per_s: Some(50e9), ..SimSpec::default() });
    let mut stream = stream_on(&drive, Tuning::default());
    assert!(use_all(&mut stream).is_empty());
    let bytes = 2 * (N_LAYER * N_EXPERT * STRIDE) as u64;
    let reads = bytes / STRIDE as u64;
    let counts = drive.counts();
    assert_eq!(counts, SimCounts { n_read: reads, read_bytes: bytes, ..SimCounts::default() });

    let spec: SimSpec = "eio=1,lasting=1".parse().unwrap();
    let drive = SimDrive::new(spec);
    let mut stream = stream_on(&drive, Tuning::default());
    let failures = use_all(&mut stream);
    assert_eq!(failures.len(), 2 * N_LAYER * N_EXPERT);
    assert!(failures[0].2.contains("failed after 3 attempts: "), "{:?}", failures[0]);
    assert_eq!((drive.counts().n_eio, drive.counts().read_bytes), (3 * reads, 0));
}

/// Sources keep what is theirs, and a read beyond the end stays one.
#[test]
fn wrapping() {
    let drive = SimDrive::new("short=1".parse().unwrap());
    let memory = Blob::Memory { name: "demo".into(), bytes: layer_content(0) };
    let source = drive.wrap(Reader::open(&memory, Backing::Direct).unwrap());
    assert_eq!((source.name(), source.is_direct()), ("demo".into(), false));
    let mut byte = [0];
    assert_eq!(source.read_at(u64::MAX - 5, &mut byte).unwrap(), 0);
    assert_eq!(source.read_at(3, &mut []).unwrap(), 0);
    assert_eq!(source.read_at(9, &mut byte).unwrap(), 1);
    assert_eq!(byte[0], layer_content(0)[9]);
    let eio = SimDrive::new("eio=1".parse().unwrap()).wrap(source).read_at(0, &mut byte).unwrap_err();
    assert_eq!((eio.raw_os_error(), eio.kind() == io::ErrorKind::Interrupted), (Some(5), false));
}

/// `--drive` is typed by people: what is understood, and what they are told.
#[test]
fn specs() {
    let spec: SimSpec =
        "7GB/s, latency=80us,jitter=1.5ms,seed=9,eio=0.001,stall=0.5,stall_for=2s,lasting=1".parse().unwrap();
    let faults = SimFaults {
        eio: 0.001,
        stall: 0.5,
        stall_for: Duration::from_secs(2),
        lasting: 1.0,
        ..SimFaults::default()
    };
    let right = SimSpec {
        seed: 9,
        bytes_per_s: Some(7e9),
        latency: Duration::from_micros(80),
        jitter: Duration::from_micros(1500),
        faults,
    };
    assert_eq!(spec, right);
    assert_eq!("".parse(), Ok(SimSpec::default()));
    assert_eq!("2GiB/s".parse::<SimSpec>().unwrap().bytes_per_s, Some(2_147_483_648.0));
    let wrong = [
        ("7GB", "`7GB` is none of"),
        ("speed=3", "`speed=3` is none of"),
        ("7XB/s", "`7XB/s`: a rate as 7GB/s"),
        ("0GB/s", "a rate"),
        ("-1GB/s", "a rate"),
        ("infGB/s", "a rate"),
        ("NaNGB/s", "a rate"),
        ("latency=80", "`latency=80`: a time as 80us"),
        ("latency=-1us", "a time"),
        ("latency=1e300s", "a time"),
        ("latency=NaNs", "a time"),
        ("eio=1.5", "`eio=1.5`: a share of 0 to 1"),
        ("eio=NaN", "a share"),
        ("eio=-0.1", "a share"),
        ("seed=x", "`seed=x`: a whole number"),
        ("eio=0.6,short=0.6", "add up to more than 1"),
    ];
    for (text, wanted) in wrong {
        let error = text.parse::<SimSpec>().unwrap_err().to_string();
        assert!(error.contains(wanted), "{text}: {error}");
    }
}
