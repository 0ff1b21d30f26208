//! What is written comes back, and nothing else.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use prefix::disk::{folders, remove_folder, written_today_bytes};
use prefix::{Disk, DiskLimits, Entry, Identity, Part, Shape};

use crate::common::*;

/// Checkpoints would be lost at a restart, or come back as others.
#[test]
fn what_is_written_is_there_after_a_restart() {
    let root = tempfile::tempdir().unwrap();
    let me = identity(1);
    let nodes = chain(&me, 5);
    let (disk, found) = Disk::open(root.path(), &me, limits()).unwrap();
    assert_eq!(found, []);
    for node in &nodes {
        put(&disk, node);
        assert_right(&disk, node);
    }
    let mut written = disk.take_written();
    written.sort_by_key(|&(key, part, _)| (key, part == Part::State));
    let sizes = |node: &Entry| {
        [(node.key, Part::Kv, node.kv_bytes.unwrap()), (node.key, Part::State, node.state_bytes.unwrap())]
    };
    let mut expected: Vec<_> = nodes.iter().flat_map(sizes).collect();
    expected.sort_by_key(|&(key, part, _)| (key, part == Part::State));
    assert_eq!(written, expected);
    let used_bytes = disk.used_bytes();
    drop(disk);
    let (disk, found) = Disk::open(root.path(), &me, limits()).unwrap();
    assert_eq!(timeless(found), timeless(nodes.clone()));
    nodes.iter().for_each(|node| assert_right(&disk, node));
    assert_eq!((disk.used_bytes(), disk.take_warnings()), (used_bytes, vec![]));
    assert_eq!(disk.rescan(), Default::default());
    // Another model, or other settings, sees nothing of it.
    let (other, found) = Disk::open(root.path(), &identity(2), limits()).unwrap();
    assert_eq!((found, other.used_bytes()), (vec![], used_bytes));
    assert!(is_right(&other, &nodes[0], Part::Kv).is_err());
}

/// A half of a node would come back as a whole one, or a removed one would come back at all.
#[test]
fn parts_come_and_go_on_their_own() {
    let root = tempfile::tempdir().unwrap();
    let me = identity(1);
    let nodes = chain(&me, 3);
    let (disk, _) = Disk::open(root.path(), &me, limits()).unwrap();
    nodes.iter().for_each(|node| put(&disk, node));
    disk.remove(nodes[0].key, Part::State);
    disk.remove(nodes[1].key, Part::Kv);
    disk.remove(nodes[2].key, Part::Kv);
    disk.remove(nodes[2].key, Part::State);
    disk.remove(nodes[2].key, Part::State);
    assert!(is_right(&disk, &nodes[1], Part::Kv).unwrap_err().contains(&nodes[1].key.hex()));
    assert_eq!(disk.rescan(), Default::default());
    drop(disk);
    let (_, found) = Disk::open(root.path(), &me, limits()).unwrap();
    let halves =
        vec![Entry { state_bytes: None, ..nodes[0].clone() }, Entry { kv_bytes: None, ..nodes[1].clone() }];
    assert_eq!(timeless(found), halves);
}

/// What was removed before it was written would be on the disk all the same, and nobody would know.
#[test]
fn what_is_removed_while_it_waits_is_not_written() {
    let root = tempfile::tempdir().unwrap();
    let me = identity(1);
    let nodes = chain(&me, 40);
    let (disk, _) = Disk::open(root.path(), &me, limits()).unwrap();
    for node in &nodes {
        PARTS.iter().for_each(|&part| assert!(disk.write(node, part, blocks(node, part))));
    }
    nodes.iter().for_each(|node| PARTS.iter().for_each(|&part| disk.remove(node.key, part)));
    disk.flush();
    assert_eq!((disk.take_written(), disk.take_failed(), disk.used_bytes()), (vec![], vec![], 0));
    drop(disk);
    assert_eq!(Disk::open(root.path(), &me, limits()).unwrap().1, []);
}

/// Logits that are known later would never be kept, or be lost again.
#[test]
fn a_state_with_logits_replaces_one_without() {
    let root = tempfile::tempdir().unwrap();
    let me = identity(1);
    let bare = chain(&me, 1).remove(0);
    let whole =
        Entry { state_bytes: bare.state_bytes.map(|n| n + SHAPE.logits_bytes as u64), ..bare.clone() };
    let (disk, _) = Disk::open(root.path(), &me, limits()).unwrap();
    for node in [&bare, &whole, &bare] {
        assert!(disk.write(node, Part::State, blocks(node, Part::State)));
        disk.flush();
    }
    is_right(&disk, &whole, Part::State).unwrap();
    assert_eq!(disk.take_written().len(), 3);
}

/// Blocks would come back in other pieces than a session can use, or take more memory than a reader has.
#[test]
fn blocks_come_as_they_were_written_but_for_long_ones() {
    let root = tempfile::tempdir().unwrap();
    let cases: [(&[usize], &[usize]); 4] = [
        (&[5, 0, 16384, 16385, 1], &[5, 16384, 16385, 1]),
        (&[8 << 20, (8 << 20) + 1], &[8 << 20, 8 << 20, 1]),
        (&[20 << 20], &[8 << 20, 8 << 20, 4 << 20]),
        (&[], &[]),
    ];
    for (written, expected) in cases {
        let shape = Shape { kv_token_bytes: 0, state_bytes: written.iter().sum(), logits_bytes: 7 };
        let me = Identity { shape, ..identity(1) };
        let node = Entry {
            kv_bytes: Some(0),
            state_bytes: Some(shape.state_bytes as u64),
            ..child(me.root(), 0, 0, 3)
        };
        let all = bytes(&node, Part::State);
        let mut rest = &all[..];
        let mut cut = |&n: &usize| {
            let (block, others) = rest.split_at(n);
            rest = others;
            Arc::from(block)
        };
        let (disk, _) = Disk::open(root.path(), &me, limits()).unwrap();
        assert!(disk.write(&node, Part::State, written.iter().map(&mut cut).collect()));
        assert!(disk.write(&node, Part::Kv, Vec::new()));
        disk.flush();
        assert_right(&disk, &node);
        let mut lengths = Vec::new();
        let count = &mut |piece: &[u8]| {
            lengths.push(piece.len());
            Ok(())
        };
        disk.read(node.key, Part::State, count).unwrap();
        assert_eq!(lengths, expected);
        drop(disk);
        assert_eq!(timeless(Disk::open(root.path(), &me, limits()).unwrap().1), [node]);
    }
}

/// A chain of nodes would come back in another order, or damage be blamed on another part.
#[test]
fn parts_are_read_one_after_the_other() {
    let root = tempfile::tempdir().unwrap();
    let me = identity(1);
    // More files than are open at a time.
    let nodes = chain(&me, 50);
    let (disk, _) = Disk::open(root.path(), &me, limits()).unwrap();
    nodes.iter().for_each(|node| put(&disk, node));
    let parts: Vec<_> = nodes.iter().flat_map(|node| PARTS.map(|part| (node.key, part))).collect();
    let read = || {
        let mut all = vec![Vec::new(); parts.len()];
        let result = disk.read_parts(&parts, &mut |idx, block| {
            assert!(all[idx + 1..].iter().all(Vec::is_empty), "block of part {idx}");
            all[idx].extend_from_slice(block);
            Ok(())
        });
        (result, all)
    };
    let expected: Vec<_> = nodes.iter().flat_map(|node| PARTS.map(|part| bytes(node, part))).collect();
    let (result, all) = read();
    assert!(all == expected);
    assert_eq!(result, Ok(expected.iter().map(|bytes| bytes.len() as u64).sum()));
    disk.remove(nodes[42].key, Part::State);
    let (result, all) = read();
    let (idx, why) = result.unwrap_err();
    assert_eq!(idx, 85);
    assert!(why.contains(&nodes[42].key.hex()), "{why}");
    assert!(all[..85] == expected[..85] && all[85..].iter().all(Vec::is_empty));
    assert_eq!(disk.read_parts(&[], &mut |_, _| Err("nothing".into())), Ok(0));
}

/// A consumer that fails would hang its readers, or be taken for a success.
#[test]
fn what_a_consumer_says_is_the_error() {
    let root = tempfile::tempdir().unwrap();
    let me = identity(1);
    let node = child(me.root(), 0, 0, 5000);
    let (disk, _) = Disk::open(root.path(), &me, limits()).unwrap();
    put(&disk, &node);
    for n_good in [0, 1, 7, 18] {
        let mut n = 0;
        let result = disk.read(node.key, Part::Kv, &mut |_| {
            n += 1;
            if n > n_good { Err("no room".into()) } else { Ok(()) }
        });
        assert!(result.unwrap_err().ends_with("no room"));
        assert_eq!(n, n_good + 1);
    }
}

/// What is used every day would be thrown away as old, or what nobody uses be kept for ever.
#[test]
fn what_nobody_uses_expires() {
    let root = tempfile::tempdir().unwrap();
    let (me, you) = (identity(1), identity(2));
    let nodes = chain(&me, 3);
    let theirs = chain(&you, 2);
    let (disk, _) = Disk::open(root.path(), &you, limits()).unwrap();
    theirs.iter().for_each(|node| put(&disk, node));
    drop(disk);
    let (disk, _) = Disk::open(root.path(), &me, limits()).unwrap();
    nodes.iter().for_each(|node| put(&disk, node));
    drop(disk);
    let old = limits().expiry.as_secs() + 100;
    for (who, node) in [(&me, &nodes[0]), (&me, &nodes[1]), (&you, &theirs[0])] {
        PARTS.iter().for_each(|&part| age(&path(root.path(), who, node.key, part), old));
    }
    let patient = DiskLimits { expiry: Duration::from_secs(10 * old), ..limits() };
    let (disk, found) = Disk::open(root.path(), &me, patient).unwrap();
    let last_use = found.iter().find(|entry| entry.key == nodes[0].key).unwrap().last_use;
    assert!(SystemTime::now().duration_since(last_use).unwrap().as_secs() >= old);
    disk.touch(nodes[1].key);
    drop(disk);
    let (disk, found) = Disk::open(root.path(), &me, limits()).unwrap();
    assert_eq!(timeless(found), timeless(nodes[1..].to_vec()));
    assert_eq!(disk.expire(), []);
    let (_, found) = Disk::open(root.path(), &you, limits()).unwrap();
    assert_eq!(timeless(found), timeless(theirs[1..].to_vec()));
}

/// `cache ls` would not say what is there, or `cache rm` would leave it or remove what is not ours.
#[test]
fn folders_are_listed_and_removed() {
    let root = tempfile::tempdir().unwrap();
    assert_eq!(folders(&root.path().join("nowhere")).unwrap(), []);
    let mut used_bytes = 0;
    for n in 1..4 {
        let (disk, _) = Disk::open(root.path(), &identity(n), limits()).unwrap();
        chain(&identity(n), n as u32).iter().for_each(|node| put(&disk, node));
        used_bytes = disk.used_bytes();
    }
    std::fs::create_dir(root.path().join("somebody else's")).unwrap();
    let listed = folders(root.path()).unwrap();
    assert!(listed.iter().all(|folder| folder.n_token_max > 0));
    let all_bytes = listed.iter().map(|folder| folder.bytes).sum::<u64>();
    assert_eq!(prefix::disk::used_bytes(root.path()), all_bytes);
    let names: Vec<_> = listed.iter().map(|folder| (folder.identity.clone(), folder.n_checkpoint)).collect();
    let expected = [(Some(identity(3)), 3), (Some(identity(2)), 2), (Some(identity(1)), 1)];
    assert_eq!(names, expected);
    assert!(listed.iter().all(|folder| folder.n_damaged == 0 && folder.oldest_use <= folder.newest_use));
    let about_bytes =
        |folder: &prefix::disk::Folder| folder.path.join("about.json").metadata().unwrap().len();
    assert_eq!(listed.iter().map(|folder| folder.bytes - about_bytes(folder)).sum::<u64>(), used_bytes);
    assert_eq!(written_today_bytes(root.path()), used_bytes);
    assert_eq!(remove_folder(&listed[1]).unwrap(), listed[1].bytes);
    assert!(!listed[1].path.exists());
    std::fs::write(listed[0].path.join("notes.txt"), "mine").unwrap();
    assert_eq!(remove_folder(&listed[0]).unwrap(), listed[0].bytes);
    assert_eq!(std::fs::read_dir(&listed[0].path).unwrap().count(), 1);
    assert_eq!(folders(root.path()).unwrap().len(), 2);
}

/// Other users of the machine would read prompts.
#[cfg(unix)]
#[test]
fn only_the_user_may_look() {
    use std::os::unix::fs::PermissionsExt;
    let root = tempfile::tempdir().unwrap();
    let (me, deep) = (identity(1), root.path().join("a/b"));
    let (disk, _) = Disk::open(&deep, &me, limits()).unwrap();
    chain(&me, 2).iter().for_each(|node| put(&disk, node));
    let mode = |path: &std::path::Path| path.metadata().unwrap().permissions().mode() & 0o777;
    for path in [&deep, &folder(&deep, &me)] {
        assert_eq!(mode(path), 0o700, "{}", path.display());
    }
    let files = std::fs::read_dir(folder(&deep, &me)).unwrap().map(|entry| entry.unwrap().path());
    let files: Vec<_> = files.chain([deep.join("written")]).collect();
    assert_eq!(files.len(), 6);
    files.iter().for_each(|path| assert_eq!(mode(path), 0o600, "{}", path.display()));
}
