//! What the cache tells: why no more can be reused, what it did, and what went wrong.

use std::path::Path;

use prefix::{Cache, Checkpoint, Kept, Loaded, Lookup, Missing, Part};

use crate::model::{LOGITS_BYTES, STATE_BYTES, Session, TOKEN_BYTES, identity, open_limited};

const ROOMY: u64 = u64::MAX;

/// Tokens `start..end`, and then those of `tail`.
fn text(end: u32, tail: &[u32]) -> Vec<u32> {
    (0..end).chain(tail.iter().copied()).collect()
}

fn keep(cache: &mut Cache, ids: &[u32]) -> Kept {
    Session::fed(ids).keep(cache, false, 1.0)
}

fn open(root: &Path, memory_bytes: u64) -> Cache {
    open_limited(root, memory_bytes, u64::MAX)
}

fn files(root: &Path, part: Part) -> Vec<std::path::PathBuf> {
    let extension = if part == Part::Kv { "kv" } else { "state" };
    let folder = std::fs::read_dir(root.join(identity().root().hex())).unwrap();
    let files = folder.map(|entry| entry.unwrap().path());
    files.filter(|path| path.extension().is_some_and(|e| e == extension)).collect()
}

/// Flips a bit of a file's last block, so that its header stays right.
fn damage(path: &Path) {
    let mut bytes = std::fs::read(path).unwrap();
    let at = bytes.len() - store::RECORD_ALIGN;
    bytes[at] ^= 1;
    std::fs::write(path, bytes).unwrap();
}

/// Users would not learn why a prompt is read again, or where it differs.
#[test]
fn what_is_missing_is_told() {
    let differs = |kept: &[u32]| Some(Missing::Differs { kept: kept.to_vec() });
    // What was kept, in order; the prompt; what is found.
    type Text<'a> = (u32, &'a [u32]);
    type Case<'a> = (&'a [Text<'a>], Text<'a>, Lookup);
    let cases: &[Case<'_>] = &[
        (&[], (5, &[]), Lookup { n_reusable: 0, n_matched: 0, missing: Some(Missing::Empty) }),
        (&[], (1, &[]), Lookup { n_reusable: 0, n_matched: 0, missing: None }),
        (&[], (0, &[]), Lookup { n_reusable: 0, n_matched: 0, missing: None }),
        (&[(5, &[])], (9, &[]), Lookup { n_reusable: 5, n_matched: 5, missing: Some(Missing::Ends) }),
        (&[(5, &[])], (6, &[]), Lookup { n_reusable: 5, n_matched: 5, missing: None }),
        // Without logits nothing can be reused of the same prompt: its end is not known to go on.
        (&[(5, &[])], (5, &[]), Lookup { n_reusable: 0, n_matched: 5, missing: Some(Missing::Ends) }),
        (
            &[(5, &[])],
            (0, &[7, 8]),
            Lookup { n_reusable: 0, n_matched: 0, missing: differs(&[0, 1, 2, 3, 4]) },
        ),
        (
            &[(5, &[]), (20, &[])],
            (9, &[99, 98]),
            Lookup { n_reusable: 5, n_matched: 9, missing: differs(&[9, 10, 11, 12, 13, 14, 15, 16]) },
        ),
        // The prompt ends where what is kept goes on.
        (
            &[(5, &[]), (20, &[])],
            (18, &[]),
            Lookup { n_reusable: 5, n_matched: 18, missing: differs(&[18, 19]) },
        ),
        (
            &[(5, &[]), (9, &[]), (5, &[50, 51, 52])],
            (5, &[50, 51, 60, 61]),
            Lookup { n_reusable: 5, n_matched: 7, missing: differs(&[52]) },
        ),
        (
            &[(5, &[]), (9, &[]), (5, &[50, 51, 52])],
            (5, &[50, 51, 52, 60, 61]),
            Lookup { n_reusable: 8, n_matched: 8, missing: Some(Missing::Ends) },
        ),
    ];
    for (kept, (end, tail), expected) in cases {
        let mut cache = Cache::new(identity(), ROOMY);
        for (end, tail) in *kept {
            assert_eq!(keep(&mut cache, &text(*end, tail)), Kept::Stored);
        }
        assert_eq!(cache.find(&text(*end, tail), 0), *expected, "{kept:?} for {end} {tail:?}");
    }
}

/// The same prompt once more would be fed, or answered from a state that does not know its logits.
#[test]
fn logits_make_a_prompt_whole() {
    let mut cache = Cache::new(identity(), ROOMY);
    let session = Session::fed(&text(5, &[]));
    assert_eq!(session.keep(&mut cache, false, 1.0), Kept::Stored);
    assert_eq!(session.keep(&mut cache, false, 1.0), Kept::Known);
    assert_eq!(cache.find(&session.ids, 5).n_reusable, 0);
    assert_eq!(session.keep(&mut cache, true, 1.0), Kept::Stored);
    assert_eq!(session.keep(&mut cache, true, 1.0), Kept::Known);
    assert_eq!(session.keep(&mut cache, false, 1.0), Kept::Known);
    assert_eq!(cache.find(&session.ids, 0), Lookup { n_reusable: 5, n_matched: 5, missing: None });
    assert_eq!(Session::fed(&[]).take_up(&mut cache, &session.ids).n_reused, 5);
    let bytes = 5 * TOKEN_BYTES + STATE_BYTES + LOGITS_BYTES;
    assert_eq!((cache.stats().n_checkpoint, cache.stats().memory_bytes), (1, bytes as u64));
}

/// A checkpoint that had to go would look as if it had never been, or a state alone would not help the session that
/// still has the rest.
#[test]
fn what_had_to_go_is_told() {
    let (first, second) = (text(100, &[]), text(0, &[7; 150]));
    let node_bytes = |n_token: usize| (n_token * TOKEN_BYTES + STATE_BYTES) as u64;
    let mut cache = Cache::new(identity(), node_bytes(150));
    assert_eq!(keep(&mut cache, &first), Kept::Stored);
    assert_eq!(Session::fed(&second).keep(&mut cache, false, 2.0), Kept::Stored);
    let stats = cache.stats();
    assert_eq!((stats.n_checkpoint, stats.n_evicted, stats.memory_bytes), (1, 1, node_bytes(150)));
    let prompt = text(120, &[]);
    let gone = Lookup { n_reusable: 0, n_matched: 100, missing: Some(Missing::Evicted) };
    assert_eq!(cache.find(&prompt, 0), gone);
    // It comes again.
    assert_eq!(Session::fed(&[]).take_up(&mut cache, &prompt), Loaded { n_reused: 0, read_bytes: 0 });
    let mut cache = Cache::new(identity(), STATE_BYTES as u64);
    assert_eq!(keep(&mut cache, &first), Kept::Stored);
    assert_eq!(cache.find(&prompt, 99), gone);
    assert_eq!(cache.find(&prompt, 100).n_reusable, 100);
    let mut session = Session::fed(&text(110, &[200]));
    assert_eq!(session.take_up(&mut cache, &prompt).n_reused, 100);
    assert_eq!((cache.stats().n_hit, cache.stats().n_miss), (1, 0));
}

/// What does not fit at all would be held, or throw everything else out.
#[test]
fn what_is_too_large_is_refused() {
    let mut cache = Cache::new(identity(), 3000);
    assert_eq!(keep(&mut cache, &text(100, &[])), Kept::Stored);
    let before = cache.stats();
    let large = Session::fed(&text(0, &[9; 5000]));
    // Its state alone would push out more than it may be worth to somebody.
    assert_eq!(cache.find(&large.ids, 0).n_matched, 0);
    let mut tiny = Cache::new(identity(), 10);
    assert_eq!(large.keep(&mut tiny, false, 1.0), Kept::NoRoom);
    assert_eq!((tiny.stats().n_checkpoint, tiny.stats().memory_bytes), (0, 0));
    assert_eq!(tiny.find(&large.ids, 0).missing, Some(Missing::Empty));
    assert_eq!(keep(&mut cache, &text(0, &[8; 3])), Kept::Stored);
    assert_eq!(cache.stats().n_checkpoint, before.n_checkpoint + 1);
}

/// A device that fails would leave half a prefix in use, or end the server.
#[test]
fn failing_devices_are_told() {
    let ids = text(600, &[]);
    let prompt = text(700, &[]);
    let mut failing = Session::fed(&ids);
    failing.fails_in = Some(0);
    let mut cache = Cache::new(identity(), ROOMY);
    assert_eq!(failing.keep(&mut cache, false, 1.0), Kept::NoRoom);
    assert_eq!((cache.stats().memory_bytes, cache.take_warnings().len()), (0, 1));
    assert_eq!(keep(&mut cache, &ids), Kept::Stored);
    // Three blocks, then the state.
    for fails_in in 0..4 {
        let mut session = Session::fed(&[]);
        session.fails_in = Some(fails_in);
        assert_eq!(session.take_up(&mut cache, &prompt).n_reused, 0);
        let warnings = cache.take_warnings();
        assert!(matches!(&warnings[..], [text] if text.ends_with("the device has failed")), "{warnings:?}");
    }
    let wrong = Checkpoint { ids: &ids, state: vec![0; 3], likelihood: 1.0 };
    assert_eq!(cache.keep(wrong, &Session::fed(&ids)), Kept::NoRoom);
    assert_eq!(cache.take_warnings().len(), 1);
    assert_eq!(Session::fed(&[]).take_up(&mut cache, &prompt).n_reused, 600);
}

/// A restart would lose what was read, or bytes would be read that are in memory.
#[test]
fn restarts_lose_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let ids = text(2000, &[]);
    let prompt = text(2100, &[]);
    let points = [(500, 1.0), (600, 1.0), (1000, 1.0), (2000, 1.0)];
    let mut cache = open(folder.path(), ROOMY);
    Session::fed(&[]).read(&mut cache, &ids, &points);
    cache.flush();
    let whole = 4 * STATE_BYTES + LOGITS_BYTES + 2000 * TOKEN_BYTES;
    // The state at 600 is too close to the one before: only the keys and values that others need are written.
    let written_bytes = (whole - STATE_BYTES) as u64;
    let stats = cache.stats();
    assert_eq!(
        (stats.n_checkpoint, stats.memory_bytes, stats.written_bytes),
        (4, whole as u64, written_bytes)
    );
    drop(cache);
    let mut cache = open(folder.path(), ROOMY);
    let stats = cache.stats();
    assert_eq!((stats.n_checkpoint, stats.memory_bytes), (3, 0));
    let read_bytes = (2000 * TOKEN_BYTES + STATE_BYTES + LOGITS_BYTES) as u64;
    assert_eq!(Session::fed(&[]).take_up(&mut cache, &prompt), Loaded { n_reused: 2000, read_bytes });
    assert_eq!((cache.stats().memory_bytes, cache.stats().read_bytes), (read_bytes, read_bytes));
    // Now it is in memory; and a session that has it all needs the state only.
    assert_eq!(Session::fed(&[]).take_up(&mut cache, &prompt), Loaded { n_reused: 2000, read_bytes: 0 });
    assert_eq!(Session::fed(&[]).take_up(&mut cache, &ids), Loaded { n_reused: 2000, read_bytes: 0 });
    assert!(cache.take_warnings().is_empty());
    drop(cache);
    let mut cache = open(folder.path(), 0);
    let state_bytes = (STATE_BYTES + LOGITS_BYTES) as u64;
    let loaded = Session::fed(&prompt).take_up(&mut cache, &prompt);
    assert_eq!(loaded, Loaded { n_reused: 2000, read_bytes: state_bytes });
    assert_eq!(cache.stats().memory_bytes, 0);
}

/// A marked beginning would not outlive the server, or an unmarked short one would cost a write each turn.
#[test]
fn short_ones_are_written_if_they_are_marked() {
    let folder = tempfile::tempdir().unwrap();
    for (n_token, likelihood, n_written) in [(255, 1.0, 0), (255, 2.0, 1), (256, 1.0, 1)] {
        let mut cache = open(folder.path(), ROOMY);
        let session = Session::fed(&text(n_token, &[]));
        assert_eq!(session.keep(&mut cache, false, likelihood), Kept::Stored);
        cache.flush();
        assert_eq!(files(folder.path(), Part::State).len(), n_written, "{n_token} {likelihood}");
        for part in [Part::Kv, Part::State] {
            files(folder.path(), part).iter().for_each(|path| std::fs::remove_file(path).unwrap());
        }
    }
}

/// Damaged bytes would be used, or stay.
#[test]
fn damage_is_told_and_mended() {
    // Keys and values behind damaged ones are not looked at until somebody needs them.
    for (part, n_mended) in [(Part::State, 590), (Part::Kv, 300)] {
        let folder = tempfile::tempdir().unwrap();
        let mut cache = open(folder.path(), ROOMY);
        Session::fed(&[]).read(&mut cache, &text(600, &[]), &[(300, 1.0), (590, 1.0)]);
        drop(cache);
        files(folder.path(), part).iter().for_each(|path| damage(path));
        let mut cache = open(folder.path(), ROOMY);
        let prompt = text(700, &[]);
        let lookup = cache.find(&prompt, 0);
        assert_eq!(lookup.n_reusable, 590);
        assert_eq!(Session::fed(&[]).take_up(&mut cache, &prompt).n_reused, 0);
        let found = cache.find(&prompt, 0);
        assert_eq!((found.n_reusable, found.n_matched, found.missing), (0, 590, Some(Missing::Damaged)));
        let warnings = cache.take_warnings();
        assert!(
            !warnings.is_empty() && warnings.iter().all(|text| text.contains("is removed")),
            "{warnings:?}"
        );
        assert_eq!((cache.stats().n_hit, cache.stats().n_miss), (0, 1));
        // What is read again is whole again.
        Session::fed(&[]).read(&mut cache, &text(600, &[]), &[(300, 1.0), (590, 1.0)]);
        assert_eq!(cache.find(&prompt, 0).missing, Some(Missing::Ends));
        drop(cache);
        assert_eq!(Session::fed(&[]).take_up(&mut open(folder.path(), ROOMY), &prompt).n_reused, n_mended);
    }
}

/// The next best checkpoint would not be taken, or one that counts on what was overwritten with damaged bytes.
#[test]
fn the_next_best_is_taken() {
    let folder = tempfile::tempdir().unwrap();
    let mut cache = open(folder.path(), ROOMY);
    Session::fed(&[]).read(&mut cache, &text(600, &[]), &[(300, 1.0), (590, 1.0)]);
    cache.flush();
    let first = files(folder.path(), Part::State);
    Session::fed(&[]).read(&mut cache, &text(1200, &[]), &[(1190, 1.0)]);
    drop(cache);
    let new = files(folder.path(), Part::State).into_iter().filter(|path| !first.contains(path));
    new.for_each(|path| damage(&path));
    let mut cache = open(folder.path(), ROOMY);
    let mut session = Session::fed(&text(450, &[9]));
    assert_eq!(session.take_up(&mut cache, &text(1300, &[])).n_reused, 590);
    assert_eq!((cache.stats().n_hit, cache.stats().n_miss, cache.take_warnings().len()), (1, 0, 1));
}

/// Two servers on one folder would not see each other's prefixes.
#[test]
fn what_another_program_wrote_is_found() {
    let folder = tempfile::tempdir().unwrap();
    let (mut one, mut other) = (open(folder.path(), ROOMY), open(folder.path(), ROOMY));
    Session::fed(&[]).read(&mut one, &text(900, &[]), &[(300, 1.0), (600, 1.0)]);
    one.flush();
    assert_eq!(other.find(&text(900, &[]), 0).missing, Some(Missing::Empty));
    other.pause();
    assert_eq!(Session::fed(&[]).take_up(&mut other, &text(900, &[])).n_reused, 600);
    // And one that goes on from what the other removed.
    for path in files(folder.path(), Part::Kv) {
        std::fs::remove_file(path).unwrap();
    }
    drop(other);
    let mut other = open(folder.path(), ROOMY);
    assert_eq!(other.find(&text(900, &[]), 0).n_reusable, 0);
    Session::fed(&[]).read(&mut other, &text(900, &[]), &[(300, 1.0), (600, 1.0)]);
    one.pause();
    assert_eq!(Session::fed(&[]).take_up(&mut one, &text(900, &[])).n_reused, 600);
    assert!(one.take_warnings().is_empty() && other.take_warnings().is_empty());
}

/// A full folder would keep what came first, or lose what is worth most.
#[test]
fn a_full_folder_keeps_what_is_worth_most() {
    let folder = tempfile::tempdir().unwrap();
    // A node takes four times 16 KiB: two have room.
    let size_bytes = 140_000;
    let prompt = |n: u32| text(0, &[n; 256]);
    let mut cache = open_limited(folder.path(), ROOMY, size_bytes);
    for (n, likelihood) in [(1, 4.0), (2, 1.0), (3, 2.0), (4, 0.5)] {
        assert_eq!(Session::fed(&prompt(n)).keep(&mut cache, false, likelihood), Kept::Stored);
        cache.flush();
        assert!(cache.stats().disk_bytes <= size_bytes);
    }
    assert_eq!(cache.stats().n_checkpoint, 4);
    assert!(cache.take_warnings().is_empty());
    drop(cache);
    let find = |cache: &Cache| [1, 2, 3, 4].map(|n| cache.find(&[prompt(n), vec![0]].concat(), 0).n_reusable);
    assert_eq!(find(&open_limited(folder.path(), ROOMY, size_bytes)), [256, 0, 256, 0]);
    // Less is allowed than there is: something goes at once; then nothing fits, and the user is told.
    let mut cache = open_limited(folder.path(), ROOMY, 70_000);
    cache.pause();
    assert!(cache.stats().disk_bytes <= 70_000);
    drop(cache);
    let mut cache = open_limited(folder.path(), ROOMY, 20_000);
    cache.pause();
    assert_eq!(cache.stats().disk_bytes, 0);
    assert_eq!(Session::fed(&prompt(5)).keep(&mut cache, false, 1.0), Kept::Stored);
    let warnings = cache.take_warnings();
    assert!(matches!(&warnings[..], [text] if text.contains("is full")), "{warnings:?}");
    assert_eq!(cache.find(&[prompt(5), vec![0]].concat(), 0).n_reusable, 256);
}
