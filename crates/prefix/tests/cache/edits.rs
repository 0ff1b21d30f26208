//! Random trees of edits: what is taken up is what feeding would have given, whatever had to go and whatever broke.

use std::fs;
use std::path::Path;

use prefix::Cache;
use proptest::prelude::*;

use crate::model::{Session, identity, open_limited};

/// A prompt made from an earlier one.
#[derive(Clone, Debug)]
enum Edit {
    /// It goes on.
    Append(usize),
    /// It is cut and goes on in another way.
    Change(usize, usize),
    /// A part of the middle is left out, as front ends do when a context is full.
    Trim(usize, usize),
    /// Once more.
    Repeat,
}

/// What happens before a prompt.
#[derive(Clone, Copy, Debug)]
enum Event {
    Nothing,
    /// The server starts again.
    Restart,
    /// It is idle.
    Pause,
    /// A bit of a file flips.
    Flip(usize, usize),
    /// A file is cut.
    Cut(usize, usize),
    /// A file disappears.
    Remove(usize),
    /// The device fails after so many calls.
    DeviceFails(usize),
}

#[derive(Clone, Debug)]
struct Turn {
    event: Event,
    /// Which earlier prompt it is made from.
    from: prop::sample::Index,
    edit: Edit,
    /// Which session reads it.
    session: usize,
    /// Checkpoints on the way, in parts of 1000 of its length, and how likely they are.
    points: Vec<(usize, f32)>,
}

fn turn(events: bool) -> impl Strategy<Value = Turn> {
    let edit = prop_oneof![
        3 => (1_usize..400).prop_map(Edit::Append),
        2 => (0_usize..1000, 1_usize..300).prop_map(|(cut, n)| Edit::Change(cut, n)),
        1 => (0_usize..1000, 1_usize..200).prop_map(|(cut, n)| Edit::Trim(cut, n)),
        1 => Just(Edit::Repeat),
    ];
    let event = prop_oneof![
        8 => Just(Event::Nothing),
        3 => Just(Event::Restart),
        1 => Just(Event::Pause),
        1 => any::<(usize, usize)>().prop_map(|(file, at)| Event::Flip(file, at)),
        1 => any::<(usize, usize)>().prop_map(|(file, at)| Event::Cut(file, at)),
        1 => any::<usize>().prop_map(Event::Remove),
        1 => (0_usize..4).prop_map(Event::DeviceFails),
    ];
    let event = event.prop_map(move |event| if events { event } else { Event::Nothing });
    let likelihood = prop_oneof![Just(0.25_f32), Just(1.0), Just(2.0)];
    let points = prop::collection::vec((1_usize..=1000, likelihood), 0..5);
    (event, any::<prop::sample::Index>(), edit, 0_usize..3, points)
        .prop_map(|(event, from, edit, session, points)| Turn { event, from, edit, session, points })
}

fn prompt_of(turn: &Turn, prompts: &[Vec<u32>], next_id: &mut u32) -> Vec<u32> {
    let mut prompt = turn.from.get(prompts).clone();
    let n_token = prompt.len();
    let mut append = |prompt: &mut Vec<u32>, n: usize| {
        // Few values: texts that differ meet again by chance.
        prompt.extend((0..n as u32).map(|i| (i * 7 + *next_id) % 11));
        *next_id += 1;
    };
    match turn.edit {
        Edit::Append(n) => append(&mut prompt, n),
        Edit::Change(cut, n) => {
            prompt.truncate(n_token * cut / 1000);
            append(&mut prompt, n);
        }
        Edit::Trim(cut, n) => {
            let cut = n_token * cut / 1000;
            prompt.drain(cut..(cut + n).min(n_token));
        }
        Edit::Repeat => {}
    }
    prompt
}

fn points_of(turn: &Turn, n_token: usize) -> Vec<(usize, f32)> {
    let pos = |part: usize| (n_token * part).div_ceil(1000);
    let mut points: Vec<_> = turn.points.iter().map(|&(part, likelihood)| (pos(part), likelihood)).collect();
    points.sort_by_key(|(pos, _)| *pos);
    points.dedup_by_key(|(pos, _)| *pos);
    points.retain(|(pos, _)| *pos > 0);
    points
}

/// All files of checkpoints, in the order of their names.
fn files(root: &Path) -> Vec<std::path::PathBuf> {
    let folder = root.join(identity().root().hex());
    let all = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let mut files: Vec<_> =
        all.filter(|path| path.extension().is_some_and(|e| e == "kv" || e == "state")).collect();
    files.sort();
    files
}

/// Changes a file; true: there was one.
fn harm(root: &Path, event: Event) -> bool {
    let files = files(root);
    let (Event::Flip(file, _) | Event::Cut(file, _) | Event::Remove(file)) = event else { return false };
    let Some(path) = (!files.is_empty()).then(|| &files[file % files.len()]) else { return false };
    let mut bytes = fs::read(path).unwrap();
    let n = bytes.len();
    match event {
        Event::Flip(_, at) => bytes[at / 8 % n] ^= 1 << (at % 8),
        Event::Cut(_, at) => bytes.truncate(at % n),
        _ => {
            fs::remove_file(path).unwrap();
            return true;
        }
    }
    fs::write(path, bytes).unwrap();
    true
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, ..ProptestConfig::default() })]

    /// A prompt would be answered from bytes of another one, or memory would grow past its limit.
    #[test]
    fn prompts_are_as_if_fed_whole(
        turns in prop::collection::vec(turn(false), 1..30),
        memory_bytes in prop_oneof![Just(0_u64), 100..3000_u64, 3000..60_000_u64],
    ) {
        let mut cache = Cache::new(identity(), memory_bytes);
        let mut sessions = vec![Session::fed(&[]); 3];
        let mut prompts = vec![Vec::new()];
        let mut next_id = 0;
        for turn in &turns {
            let prompt = prompt_of(turn, &prompts, &mut next_id);
            sessions[turn.session].read(&mut cache, &prompt, &points_of(turn, prompt.len()));
            prop_assert!(cache.stats().memory_bytes <= memory_bytes);
            prompts.push(prompt);
        }
        prop_assert!(cache.take_warnings().is_empty());
    }

    /// With room for all, something that was kept would not be found, or something else would be.
    #[test]
    fn everything_kept_is_found(turns in prop::collection::vec(turn(false), 1..30)) {
        let mut cache = Cache::new(identity(), u64::MAX);
        let mut prompts = vec![Vec::new()];
        let mut next_id = 0;
        // What a list of all that was kept says: tokens, and whether there are logits.
        let mut kept: Vec<(Vec<u32>, bool)> = Vec::new();
        for turn in &turns {
            let prompt = prompt_of(turn, &prompts, &mut next_id);
            let n_token = prompt.len();
            let goes = |ids: &[u32], with_logits| ids.len() < n_token || with_logits && ids.len() == n_token;
            let fitting = kept.iter().filter(|(ids, logits)| prompt.starts_with(ids) && goes(ids, *logits));
            let n_reusable = fitting.map(|(ids, _)| ids.len()).max().unwrap_or(0);
            let n_common = |ids: &[u32]| ids.iter().zip(&prompt).take_while(|(a, b)| a == b).count();
            let n_matched = kept.iter().map(|(ids, _)| n_common(ids)).max().unwrap_or(0);
            let found = cache.find(&prompt, 0);
            prop_assert_eq!((found.n_reusable, found.n_matched), (n_reusable, n_matched));
            let points = points_of(turn, n_token);
            let loaded = Session::fed(&[]).read(&mut cache, &prompt, &points);
            prop_assert_eq!(loaded.n_reused, n_reusable);
            let new = points.iter().filter(|(pos, _)| *pos > n_reusable);
            kept.extend(new.map(|(pos, _)| (prompt[..*pos].to_vec(), *pos == n_token)));
            prompts.push(prompt);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 60, ..ProptestConfig::default() })]

    /// Damage, restarts, full disks or failing devices would change an answer.
    #[test]
    fn nothing_wrong_comes_from_disks(
        turns in prop::collection::vec(turn(true), 1..25),
        memory_bytes in prop_oneof![3000..20_000_u64, Just(u64::MAX)],
        size_bytes in prop_oneof![1 => 20_000..200_000_u64, 3 => Just(u64::MAX)],
    ) {
        let folder = tempfile::tempdir().unwrap();
        let mut cache = open_limited(folder.path(), memory_bytes, size_bytes);
        let mut sessions = vec![Session::fed(&[]); 3];
        let mut prompts = vec![Vec::new()];
        let mut next_id = 0;
        for turn in &turns {
            let session = &mut sessions[turn.session];
            session.fails_in = None;
            match turn.event {
                Event::Nothing => {}
                Event::Restart => {
                    drop(cache);
                    cache = open_limited(folder.path(), memory_bytes, size_bytes);
                    prop_assert!(cache.stats().disk_bytes <= size_bytes);
                }
                Event::Pause => cache.pause(),
                Event::DeviceFails(n) => session.fails_in = Some(n),
                harmful => {
                    cache.flush();
                    harm(folder.path(), harmful);
                }
            }
            let prompt = prompt_of(turn, &prompts, &mut next_id);
            session.read(&mut cache, &prompt, &points_of(turn, prompt.len()));
            if cache.stats().disk_bytes > size_bytes {
                // For a moment a file that just got its name counts as waiting too.
                cache.flush();
            }
            let stats = cache.stats();
            prop_assert!(stats.memory_bytes <= memory_bytes && stats.disk_bytes <= size_bytes, "{:?}", stats);
            prompts.push(prompt);
        }
        cache.flush();
        let disk_bytes = cache.stats().disk_bytes;
        drop(cache);
        let mut cache = open_limited(folder.path(), u64::MAX, size_bytes);
        let is_harm = |turn: &Turn| matches!(turn.event, Event::Flip(..) | Event::Cut(..) | Event::Remove(_));
        prop_assert!(turns.iter().any(is_harm) || cache.stats().disk_bytes == disk_bytes);
        for prompt in &prompts {
            Session::fed(&[]).take_up(&mut cache, prompt);
        }
    }
}
