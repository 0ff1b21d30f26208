//! What happens when there is no room: one clear warning, and everything else goes on.

use std::fs;
use std::path::Path;

use prefix::{Disk, DiskLimits, Entry, Identity, Part};

use crate::common::*;

fn write(disk: &Disk, node: &Entry, part: Part) -> bool {
    let is_taken = disk.write(node, part, blocks(node, part));
    disk.flush();
    is_taken
}

/// Bytes of the two files of a node.
fn file_bytes(root: &Path, me: &Identity, node: &Entry) -> u64 {
    PARTS.iter().map(|&part| path(root, me, node.key, part).metadata().unwrap().len()).sum()
}

/// The cache would grow without end, or stop for ever once it is full.
#[test]
fn no_more_is_written_than_fits() {
    let root = tempfile::tempdir().unwrap();
    let me = identity(1);
    let nodes = chain(&me, 4);
    let (disk, _) = Disk::open(root.path(), &me, limits()).unwrap();
    put(&disk, &nodes[0]);
    let node_bytes = file_bytes(root.path(), &me, &nodes[0]);
    drop(disk);
    let (disk, _) =
        Disk::open(root.path(), &me, DiskLimits { size_bytes: 2 * node_bytes + 1, ..limits() }).unwrap();
    put(&disk, &nodes[1]);
    assert_eq!((disk.excess_bytes(1), disk.excess_bytes(2)), (0, 1));
    for _ in 0..2 {
        assert!(!write(&disk, &nodes[2], Part::State));
    }
    let warnings = disk.take_warnings();
    assert!(warnings.len() == 1 && warnings[0].contains("is full"), "{warnings:?}");
    disk.remove(nodes[0].key, Part::Kv);
    disk.remove(nodes[0].key, Part::State);
    assert_eq!(disk.excess_bytes(node_bytes), 0);
    put(&disk, &nodes[2]);
    nodes[1..3].iter().for_each(|node| assert_right(&disk, node));
    assert_eq!((disk.used_bytes(), disk.take_failed()), (2 * node_bytes, vec![]));
}

/// Models that nobody uses any more would keep the cache for ever, or one that is used lose everything to another.
#[test]
fn files_of_other_models_go_by_age() {
    let root = tempfile::tempdir().unwrap();
    let (me, you) = (identity(1), identity(2));
    let theirs = chain(&you, 3);
    let (disk, _) = Disk::open(root.path(), &you, limits()).unwrap();
    theirs.iter().for_each(|node| put(&disk, node));
    let node_bytes = file_bytes(root.path(), &you, &theirs[0]);
    drop(disk);
    for (secs, node) in [(300, &theirs[1]), (200, &theirs[2]), (100, &theirs[0])] {
        PARTS.iter().for_each(|&part| age(&path(root.path(), &you, node.key, part), secs));
    }
    let size_bytes = 3 * node_bytes;
    let (disk, _) = Disk::open(root.path(), &me, DiskLimits { size_bytes, ..limits() }).unwrap();
    let mine = chain(&me, 3);
    put(&disk, &mine[0]);
    let left = |keys: &[usize]| {
        let (_, found) = Disk::open(root.path(), &you, limits()).unwrap();
        let keys: Vec<_> = keys.iter().map(|&n| theirs[n].clone()).collect();
        assert_eq!(timeless(found), keys);
    };
    left(&[0, 2]);
    // Ours is younger than one of theirs, older than the other.
    drop(disk);
    PARTS.iter().for_each(|&part| age(&path(root.path(), &me, mine[0].key, part), 150));
    let (disk, _) = Disk::open(root.path(), &me, DiskLimits { size_bytes, ..limits() }).unwrap();
    assert_eq!(disk.excess_bytes(2 * node_bytes), node_bytes);
    left(&[0]);
    put(&disk, &mine[1]);
    assert_right(&disk, &mine[0]);
    assert!(!write(&disk, &mine[2], Part::State));
    assert_eq!(disk.take_warnings().len(), 1);
    left(&[0]);
}

/// A drive would wear out, or a budget that one server used up be there again for the next.
#[test]
fn no_more_is_written_a_day_than_allowed() {
    let root = tempfile::tempdir().unwrap();
    let (me, you) = (identity(1), identity(2));
    let nodes = chain(&me, 4);
    let (disk, _) = Disk::open(root.path(), &me, limits()).unwrap();
    put(&disk, &nodes[0]);
    let daily_write_bytes = 2 * file_bytes(root.path(), &me, &nodes[0]);
    drop(disk);
    let limits = DiskLimits { daily_write_bytes, ..limits() };
    let (disk, _) = Disk::open(root.path(), &me, limits).unwrap();
    let (other, _) = Disk::open(root.path(), &you, limits).unwrap();
    put(&disk, &nodes[1]);
    for _ in 0..2 {
        assert!(!write(&disk, &nodes[2], Part::Kv));
    }
    assert!(!write(&other, &chain(&you, 1)[0], Part::Kv));
    for disk in [&disk, &other] {
        let warnings = disk.take_warnings();
        assert!(warnings.len() == 1 && warnings[0].contains("a day"), "{warnings:?}");
    }
    nodes[..2].iter().for_each(|node| assert_right(&disk, node));
    // What is there already costs nothing.
    assert!(write(&disk, &nodes[0], Part::Kv));
}

/// A program that shares the budget would use it up between our look and our write, and we would write all the same.
#[test]
fn budgets_are_taken_when_it_is_written() {
    let root = tempfile::tempdir().unwrap();
    let me = identity(1);
    let nodes = chain(&me, 30);
    let (disk, _) = Disk::open(root.path(), &me, limits()).unwrap();
    put(&disk, &nodes[0]);
    let daily_write_bytes = 10 * file_bytes(root.path(), &me, &nodes[0]);
    drop(disk);
    let limits = DiskLimits { daily_write_bytes, ..limits() };
    let disks = [0; 3].map(|_| Disk::open(root.path(), &me, limits).unwrap().0);
    for (i, node) in nodes.iter().enumerate() {
        for part in PARTS {
            // At some time it says no.
            let _ = disks[i % 3].write(node, part, blocks(node, part));
        }
    }
    disks.iter().for_each(Disk::flush);
    assert!(prefix::disk::written_today_bytes(root.path()) <= daily_write_bytes);
    let (disk, found) = Disk::open(root.path(), &me, limits).unwrap();
    assert!(disk.used_bytes() <= daily_write_bytes && found.len() >= 8);
}

/// The system or other programs would get into trouble because of a cache.
#[test]
fn free_space_stays_free() {
    let root = tempfile::tempdir().unwrap();
    let me = identity(1);
    let nodes = chain(&me, 2);
    let (disk, _) = Disk::open(root.path(), &me, limits()).unwrap();
    put(&disk, &nodes[0]);
    drop(disk);
    let greedy = DiskLimits { free_bytes: u64::MAX / 2, ..limits() };
    let (disk, _) = Disk::open(root.path(), &me, greedy).unwrap();
    assert!(disk.excess_bytes(1) > 0);
    assert!(!write(&disk, &nodes[1], Part::Kv));
    let warnings = disk.take_warnings();
    assert!(warnings.len() == 1 && warnings[0].contains("stay free"), "{warnings:?}");
    assert_right(&disk, &nodes[0]);
}

/// A folder that is deleted while a server runs would end its caching, or the server.
#[test]
fn a_folder_that_is_gone_is_made_again() {
    let root = tempfile::tempdir().unwrap();
    let deep = root.path().join("cache");
    let me = identity(1);
    let nodes = chain(&me, 3);
    let (disk, _) = Disk::open(&deep, &me, limits()).unwrap();
    put(&disk, &nodes[0]);
    fs::remove_dir_all(&deep).unwrap();
    assert!(is_right(&disk, &nodes[0], Part::Kv).is_err());
    let mut removed = disk.rescan().removed;
    removed.sort_by_key(|&(_, part)| part == Part::State);
    assert_eq!(removed, PARTS.map(|part| (nodes[0].key, part)));
    assert_eq!((disk.used_bytes(), disk.rescan()), (0, Default::default()));
    disk.touch(nodes[0].key);
    disk.remove(nodes[0].key, Part::Kv);
    for node in &nodes {
        put(&disk, node);
        assert_right(&disk, node);
    }
    assert_eq!((disk.take_failed(), disk.take_warnings()), (vec![], vec![]));
    fs::remove_dir_all(&deep).unwrap();
    drop(disk);
    assert_eq!(Disk::open(&deep, &me, limits()).unwrap().1, []);
}

/// Something that stands where the folder was would be overwritten, fill the log, or leave parts in flight for ever.
#[test]
fn errors_are_told_once_and_end_what_waits() {
    let root = tempfile::tempdir().unwrap();
    let me = identity(1);
    let nodes = chain(&me, 3);
    let (disk, _) = Disk::open(root.path(), &me, limits()).unwrap();
    fs::remove_dir_all(folder(root.path(), &me)).unwrap();
    fs::write(folder(root.path(), &me), "in the way").unwrap();
    let accepted: Vec<_> =
        nodes.iter().filter(|node| disk.write(node, Part::Kv, blocks(node, Part::Kv))).collect();
    assert!(!accepted.is_empty());
    disk.flush();
    let expected: Vec<_> = accepted.iter().map(|node| (node.key, Part::Kv)).collect();
    assert_eq!((disk.take_failed(), disk.take_written()), (expected, vec![]));
    let warnings = disk.take_warnings();
    assert!(warnings.len() == 1 && warnings[0].contains("cannot"), "{warnings:?}");
    // For a while nothing is tried.
    assert!(!write(&disk, &nodes[0], Part::Kv));
    assert_eq!(disk.take_warnings(), Vec::<String>::new());
    assert_eq!(fs::read_to_string(folder(root.path(), &me)).unwrap(), "in the way");
}

/// A full drive would stop the server, leave half files, or lose what is there.
#[cfg(target_os = "linux")]
#[test]
fn a_full_drive_is_told_and_survived() {
    // Room for one node; then, for fewer files than two nodes have, which nothing tells before.
    for (options, why) in [("size=200k", "is full"), ("size=4m,nr_inodes=7", "free space")] {
        let root = tempfile::tempdir().unwrap();
        let run = |args: &[&str]| {
            let done = std::process::Command::new(args[0]).args(&args[1..]).arg(root.path()).output();
            done.is_ok_and(|output| output.status.success())
        };
        if !run(&["mount", "-t", "tmpfs", "-o", options, "tmpfs"]) {
            eprintln!("SKIPPED: this user may not mount a small file system");
            return;
        }
        let result = std::panic::catch_unwind(|| check_full_drive(root.path(), why));
        assert!(run(&["umount"]));
        result.unwrap();
    }
}

#[cfg(target_os = "linux")]
fn check_full_drive(root: &Path, why: &str) {
    let me = identity(1);
    let nodes = chain(&me, 3);
    let (disk, _) = Disk::open(root, &me, limits()).unwrap();
    put(&disk, &nodes[0]);
    let is_taken = nodes[1..].iter().all(|node| PARTS.iter().all(|&part| write(&disk, node, part)));
    assert!(!is_taken);
    let warnings = disk.take_warnings();
    assert!(warnings.len() == 1 && warnings[0].contains(why), "{warnings:?}");
    assert_right(&disk, &nodes[0]);
    let names = fs::read_dir(folder(root, &me)).unwrap().map(|name| name.unwrap().path());
    let is_whole = |path: std::path::PathBuf| path.extension().unwrap() != "tmp";
    assert!(names.into_iter().all(is_whole), "a half file is left");
    drop(disk);
    let (disk, found) = Disk::open(root, &me, limits()).unwrap();
    assert_eq!(timeless(found)[0], nodes[0]);
    // Once there is room it goes on.
    PARTS.iter().for_each(|&part| disk.remove(nodes[0].key, part));
    assert!(write(&disk, &nodes[2], Part::Kv));
    is_right(&disk, &nodes[2], Part::Kv).unwrap();
}
