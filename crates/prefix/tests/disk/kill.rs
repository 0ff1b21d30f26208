//! A writer that is killed, again and again: what it had reported is there, and nothing half.

use std::env;
use std::fs;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use prefix::{Disk, Entry, Identity, Part};

use crate::common::*;

/// Set in the process that writes: the folder, and the first node that it writes.
const FOLDER: &str = "FLASH_MOE_TEST_FOLDER";
const FIRST: &str = "FLASH_MOE_TEST_FIRST";
/// Begins a line that reports a part which is on the disk.
const REPORT: &str = "written ";

const N_KILL: u32 = 200;
/// Most bytes that a process writes before it is killed.
const KILL_BYTES_MAX: u64 = 600 << 10;

/// The `n`-th node, all children of the root: 60 to 330 KiB of keys and values.
fn node(me: &Identity, n: u32) -> Entry {
    child(me.root(), 0, n, 600 + 97 * (n as usize % 31))
}

/// The process that is killed; does nothing when it runs as one of the tests.
#[test]
fn writer() {
    let (Some(folder), Ok(first)) = (env::var_os(FOLDER), env::var(FIRST)) else { return };
    let me = identity(1);
    let (disk, _) = Disk::open(Path::new(&folder), &me, limits()).unwrap();
    for n in first.parse().unwrap().. {
        let node = node(&me, n);
        PARTS.iter().for_each(|&part| assert!(disk.write(&node, part, blocks(&node, part))));
        disk.flush();
        for (_, part, _) in disk.take_written() {
            println!("{REPORT}{n} {}", u32::from(part == Part::State));
        }
    }
}

fn start(folder: &Path, first: u32) -> Child {
    let mut command = Command::new(env::current_exe().unwrap());
    command
        .args(["--exact", "kill::writer", "--nocapture"])
        .env(FOLDER, folder)
        .env(FIRST, first.to_string());
    command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap()
}

/// Bytes of all files, also of those that are not complete.
fn folder_bytes(folder: &Path) -> u64 {
    let Ok(entries) = fs::read_dir(folder) else { return 0 };
    entries.filter_map(|entry| Some(entry.ok()?.metadata().ok()?.len())).sum()
}

/// Runs a writer until the folder has grown by `bytes`, and kills it. What it reported.
fn run_and_kill(root: &Path, me: &Identity, first: u32, bytes: u64) -> Vec<(u32, Part)> {
    let folder = folder(root, me);
    let end_bytes = folder_bytes(&folder) + bytes;
    let mut child = start(root, first);
    let stdout = BufReader::new(child.stdout.take().unwrap());
    let reports = thread::spawn(move || {
        let lines = stdout.lines().map_while(Result::ok);
        lines.filter_map(|line| Some(line.split_once(REPORT)?.1.to_owned())).collect::<Vec<_>>()
    });
    while folder_bytes(&folder) < end_bytes {
        assert!(child.try_wait().unwrap().is_none(), "the writer ended by itself");
        thread::yield_now();
    }
    child.kill().unwrap();
    child.wait().unwrap();
    let parse = |report: String| {
        let (n, part) = report.split_once(' ').unwrap();
        (n.parse().unwrap(), if part == "0" { Part::Kv } else { Part::State })
    };
    reports.join().unwrap().into_iter().map(parse).collect()
}

/// A crash would lose older checkpoints, or leave a half one that is taken for whole.
#[test]
fn killed_two_hundred_times_nothing_that_was_reported_is_lost() {
    let root = tempfile::tempdir().unwrap();
    let me = identity(1);
    let (mut reported, mut first, mut random) = (Vec::new(), 0, 0x2545_f491_4f6c_dd1d_u64);
    // Those of a minute ago are still there: another program may be about to lock them.
    let (mut n_unfinished, mut n_half_killed, mut slowest) = (0, 0, Duration::ZERO);
    for n_kill in 0..N_KILL {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        let new = run_and_kill(root.path(), &me, first, random % KILL_BYTES_MAX);
        let names = fs::read_dir(folder(root.path(), &me)).into_iter().flatten();
        let is_unfinished = |path: &Path| path.extension().unwrap() == "tmp";
        let n = names.filter(|name| is_unfinished(&name.as_ref().unwrap().path())).count();
        n_half_killed += u32::from(n > n_unfinished);
        n_unfinished = n;
        let start = Instant::now();
        let (disk, found) = Disk::open(root.path(), &me, limits()).unwrap();
        slowest = slowest.max(start.elapsed());
        assert_eq!(disk.take_warnings(), Vec::<String>::new(), "kill {n_kill}");
        reported.extend(&new);
        for (n, part) in &reported {
            let entry = found.iter().find(|entry| entry.key == node(&me, *n).key);
            let bytes =
                entry.and_then(|entry| if *part == Part::Kv { entry.kv_bytes } else { entry.state_bytes });
            assert!(bytes.is_some(), "kill {n_kill}: {part:?} of node {n} is lost");
        }
        // All that it wrote, reported or not, is whole.
        let end = first + new.len() as u32 + 1;
        for node in (first..=end).map(|n| node(&me, n)) {
            let Some(entry) = found.iter().find(|entry| entry.key == node.key) else { continue };
            assert_eq!((entry.parent, entry.start, &entry.ids), (node.parent, 0, &node.ids));
            let there = [(Part::Kv, entry.kv_bytes), (Part::State, entry.state_bytes)];
            let there = there.iter().filter(|(_, bytes)| bytes.is_some());
            there.for_each(|&(part, _)| is_right(&disk, &node, part).unwrap());
        }
        first = new.iter().map(|&(n, _)| n + 1).max().unwrap_or(first);
    }
    let (disk, found) = Disk::open(root.path(), &me, limits()).unwrap();
    for &(n, part) in &reported {
        is_right(&disk, &node(&me, n), part).unwrap();
    }
    println!("{} nodes, {n_half_killed} kills within a file, slowest opening {slowest:?}", found.len());
    assert!(n_half_killed > 0, "no kill was in the middle of a file");
    assert!(reported.len() > N_KILL as usize / 4, "{} parts were written", reported.len());
}

/// Starting a server would take long; prints how long.
#[test]
fn a_hundred_checkpoints_are_opened() {
    let root = tempfile::tempdir().unwrap();
    let me = identity(1);
    let (disk, _) = Disk::open(root.path(), &me, limits()).unwrap();
    let nodes: Vec<Entry> = (0..100).map(|n| node(&me, n)).collect();
    for node in &nodes {
        PARTS.iter().for_each(|&part| assert!(disk.write(node, part, blocks(node, part))));
    }
    drop(disk);
    let start = Instant::now();
    let (_, found) = Disk::open(root.path(), &me, limits()).unwrap();
    println!("100 checkpoints are opened in {:?}", start.elapsed());
    assert_eq!(found.len(), nodes.len());
}
