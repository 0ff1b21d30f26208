//! Files that are not what was written: never used, never followed, and what is right beside them stays.

use std::fs;
use std::path::Path;

use prefix::disk::{Block, Header, folders};
use prefix::{Disk, Entry, Identity, Part};
use proptest::prelude::*;
use xxhash_rust::xxh3::xxh3_64;

use crate::common::*;

/// A folder with two nodes, each with both parts.
fn two_nodes() -> (tempfile::TempDir, Identity, Vec<Entry>) {
    let (root, me) = (tempfile::tempdir().unwrap(), identity(1));
    let nodes = chain(&me, 2);
    let (disk, _) = Disk::open(root.path(), &me, limits()).unwrap();
    nodes.iter().for_each(|node| put(&disk, node));
    (root, me, nodes)
}

/// The keys and values of the first node cannot be used: they are gone after opening, one warning names them, and all
/// else is there.
fn assert_dropped(root: &Path, me: &Identity, nodes: &[Entry], what: &str) {
    let (disk, found) = Disk::open(root, me, limits()).unwrap();
    let left = Entry { kv_bytes: None, ..nodes[0].clone() };
    assert_eq!(timeless(found), [left, nodes[1].clone()], "{what}");
    let warnings = disk.take_warnings();
    let is_named = warnings.len() == 1 && warnings[0].contains(&nodes[0].key.hex());
    assert!(is_named && warnings[0].contains("removed it"), "{what}: {warnings:?}");
    let path = path(root, me, nodes[0].key, Part::Kv);
    assert!(fs::symlink_metadata(&path).is_err(), "{what}: {} is still there", path.display());
    assert!(is_right(&disk, &nodes[0], Part::Kv).is_err(), "{what}");
    is_right(&disk, &nodes[0], Part::State).unwrap();
    assert_right(&disk, &nodes[1]);
}

/// Half a file would be taken for a whole one.
#[test]
fn truncated_files_are_dropped() {
    let (root, me, nodes) = two_nodes();
    let path = path(root.path(), &me, nodes[0].key, Part::Kv);
    let whole = fs::read(&path).unwrap();
    let header = Header::decode(&whole, whole.len() as u64).unwrap();
    let in_header = [0, 1, 8, 79, 80, 81, 80 + 4 * header.ids.len(), 16376, 16383, 16384];
    let mut borders = vec![];
    let mut offset = 16384;
    for block in &header.blocks {
        borders.extend([offset + 1, offset + block.bytes - 1, offset + block.bytes]);
        offset += block.bytes.next_multiple_of(16384);
        borders.extend([offset - 1, offset]);
    }
    assert_eq!(borders.pop(), Some(whole.len()));
    for n in in_header.into_iter().chain(borders) {
        fs::write(&path, &whole[..n]).unwrap();
        assert_dropped(root.path(), &me, &nodes, &format!("{n} bytes"));
    }
    fs::write(&path, [&whole[..], &[0]].concat()).unwrap();
    assert_dropped(root.path(), &me, &nodes, "one byte more");
}

/// A flipped bit of a header would lead to other tokens, sizes or places.
#[test]
fn every_byte_of_a_header_counts() {
    let (root, me, nodes) = two_nodes();
    let path = path(root.path(), &me, nodes[0].key, Part::Kv);
    let whole = fs::read(&path).unwrap();
    let file_bytes = whole.len() as u64;
    let mut bytes = whole[..16384].to_vec();
    Header::decode(&bytes, file_bytes).unwrap();
    for at in 0..bytes.len() {
        bytes[at] ^= 1 << (at % 8);
        assert!(Header::decode(&bytes, file_bytes).is_err(), "byte {at}");
        bytes[at] ^= 1 << (at % 8);
    }
    for at in [0, 8, 12, 16, 32, 48, 64, 72, 76, 80, 2000, 16383] {
        let mut damaged = whole.clone();
        damaged[at] ^= 0x10;
        fs::write(&path, damaged).unwrap();
        assert_dropped(root.path(), &me, &nodes, &format!("byte {at}"));
    }
}

/// Somebody who can write checksums would have other tokens' keys and values used, or our memory.
#[test]
fn headers_that_contradict_themselves_are_dropped() {
    let (root, me, nodes) = two_nodes();
    let file = path(root.path(), &me, nodes[0].key, Part::Kv);
    let whole = fs::read(&file).unwrap();
    let put_u32 =
        |at: usize, n: u32| move |bytes: &mut Vec<u8>| bytes[at..at + 4].copy_from_slice(&n.to_le_bytes());
    let n_ids = nodes[0].ids.len();
    let table = 80 + 4 * n_ids;
    type Change<'a> = Box<dyn Fn(&mut Vec<u8>) + 'a>;
    let changes: [(&str, Change<'_>); 15] = [
        ("version 0", Box::new(put_u32(8, 0))),
        ("version 2", Box::new(put_u32(8, 2))),
        ("another kind", Box::new(put_u32(12, 2))),
        ("a state", Box::new(put_u32(12, 1))),
        ("another identity", Box::new(put_u32(16, 1))),
        ("another key", Box::new(put_u32(32, 1))),
        ("another parent", Box::new(put_u32(48, 1))),
        ("a start beyond all contexts", Box::new(put_u32(68, 1))),
        ("a start at the end of all contexts", Box::new(put_u32(64, u32::MAX))),
        ("no tokens", Box::new(put_u32(72, 0))),
        ("too many tokens", Box::new(put_u32(72, u32::MAX))),
        ("too many blocks", Box::new(put_u32(76, u32::MAX))),
        ("another token", Box::new(put_u32(80, 77))),
        ("an empty block", Box::new(put_u32(table, 0))),
        ("a huge block", Box::new(put_u32(table + 4, u32::MAX))),
    ];
    for (what, change) in changes {
        let mut bytes = whole.clone();
        change(&mut bytes);
        let checksum = xxh3_64(&bytes[..16376]).to_le_bytes();
        bytes[16376..16384].copy_from_slice(&checksum);
        fs::write(&file, bytes).unwrap();
        assert_dropped(root.path(), &me, &nodes, what);
    }
    let header = Header::decode(&whole, whole.len() as u64).unwrap();
    let mut short = header.clone();
    short.blocks.pop();
    fs::write(&file, [short.encode(), whole[16384..short.file_bytes() as usize].to_vec()].concat()).unwrap();
    assert_dropped(root.path(), &me, &nodes, "fewer bytes than tokens need");
    fs::write(&file, fs::read(path(root.path(), &me, nodes[0].key, Part::State)).unwrap()).unwrap();
    assert_dropped(root.path(), &me, &nodes, "the other part of the node");
    fs::write(&file, fs::read(path(root.path(), &me, nodes[1].key, Part::Kv)).unwrap()).unwrap();
    assert_dropped(root.path(), &me, &nodes, "another node under this name");
    let foreign = Header { root: identity(2).root(), ..header };
    fs::write(&file, [foreign.encode(), whole[16384..].to_vec()].concat()).unwrap();
    assert_dropped(root.path(), &me, &nodes, "a file of another model");
}

/// Damaged numbers would be computed with.
#[test]
fn flipped_bits_of_blocks_are_found_at_reading() {
    let (root, me, nodes) = two_nodes();
    let (disk, _) = Disk::open(root.path(), &me, limits()).unwrap();
    let path = path(root.path(), &me, nodes[0].key, Part::Kv);
    let whole = fs::read(&path).unwrap();
    let header = Header::decode(&whole, whole.len() as u64).unwrap();
    let mut offset = 16384;
    for Block { bytes, .. } in header.blocks {
        for bit in [0, 8 * bytes / 3, 8 * bytes - 1] {
            let mut damaged = whole.clone();
            damaged[offset + bit / 8] ^= 1 << (bit % 8);
            fs::write(&path, damaged).unwrap();
            let why = is_right(&disk, &nodes[0], Part::Kv).unwrap_err();
            assert!(why.contains(&format!("offset {offset} is damaged")), "{why}");
        }
        offset += bytes.next_multiple_of(16384);
    }
    // What cannot be used is removed by the caller, and can be written again.
    disk.remove(nodes[0].key, Part::Kv);
    put(&disk, &nodes[0]);
    nodes.iter().for_each(|node| assert_right(&disk, node));
}

/// A file that a user or a tool put there would be used, be removed though it is not ours, or stop the cache.
#[test]
fn what_is_not_a_file_of_ours_is_not_used() {
    let (root, me, nodes) = two_nodes();
    let folder = folder(root.path(), &me);
    let kv = path(root.path(), &me, nodes[0].key, Part::Kv);
    let right = fs::read(&kv).unwrap();
    let beside = root.path().join("beside");
    fs::create_dir(&beside).unwrap();
    fs::write(beside.join("kv"), &right).unwrap();
    fs::write(folder.join("notes.txt"), "mine").unwrap();
    fs::remove_file(&kv).unwrap();
    fs::create_dir(&kv).unwrap();
    assert_dropped(root.path(), &me, &nodes, "an empty folder");
    for name in ["copy of a file.kv", &format!("{}.state", nodes[0].key.hex().to_uppercase())] {
        fs::write(folder.join(name), &right).unwrap();
        let (disk, found) = Disk::open(root.path(), &me, limits()).unwrap();
        assert_eq!(found.len(), 2);
        assert!(disk.take_warnings()[0].contains("by its name"));
        assert!(!folder.join(name).exists());
    }
    #[cfg(unix)]
    for target in [beside.join("kv"), beside.clone(), "nowhere".into()] {
        std::os::unix::fs::symlink(&target, &kv).unwrap();
        assert_dropped(root.path(), &me, &nodes, &format!("a link to {}", target.display()));
    }
    assert_eq!(fs::read(beside.join("kv")).unwrap(), right);
    assert_eq!(fs::read(folder.join("notes.txt")).unwrap(), b"mine");
}

/// A folder in the way would be removed with what is in it, be warned of for ever, or stop all writing.
#[test]
fn what_cannot_be_removed_is_left_and_said_once() {
    let (root, me, nodes) = two_nodes();
    let kv = path(root.path(), &me, nodes[0].key, Part::Kv);
    fs::remove_file(&kv).unwrap();
    fs::create_dir(&kv).unwrap();
    fs::write(kv.join("precious"), "mine").unwrap();
    let (disk, found) = Disk::open(root.path(), &me, limits()).unwrap();
    assert_eq!(timeless(found)[0], Entry { kv_bytes: None, ..nodes[0].clone() });
    let warnings = disk.take_warnings();
    assert!(warnings.len() == 1 && warnings[0].contains("by hand"), "{warnings:?}");
    assert!(!disk.write(&nodes[0], Part::Kv, blocks(&nodes[0], Part::Kv)));
    disk.remove(nodes[1].key, Part::Kv);
    put(&disk, &nodes[1]);
    assert_eq!((disk.rescan().added, disk.take_warnings()), (vec![], vec![]));
    assert!(kv.join("precious").exists());
    let listed = folders(root.path()).unwrap();
    assert_eq!((listed[0].n_checkpoint, listed[0].n_damaged), (2, 1));
}

/// A file that we may not read would be removed, or stop the cache.
#[cfg(unix)]
#[test]
fn unreadable_files_are_left() {
    use std::os::unix::fs::PermissionsExt;
    let (root, me, nodes) = two_nodes();
    let kv = path(root.path(), &me, nodes[0].key, Part::Kv);
    fs::set_permissions(&kv, fs::Permissions::from_mode(0o0)).unwrap();
    if fs::File::open(&kv).is_ok() {
        eprintln!("SKIPPED: this user may read everything");
        return;
    }
    let (disk, found) = Disk::open(root.path(), &me, limits()).unwrap();
    assert_eq!(timeless(found)[0], Entry { kv_bytes: None, ..nodes[0].clone() });
    assert!(disk.take_warnings()[0].contains("cannot read it"));
    assert!(kv.exists());
}

/// What killed programs leave would fill the disk, or what living ones write would be taken from them.
#[test]
fn files_that_nobody_writes_any_more_are_removed() {
    let (root, me, nodes) = two_nodes();
    let folder = folder(root.path(), &me);
    let file = |n: u32| folder.join(format!("{}.kv.{n}.tmp", nodes[0].key.hex()));
    for n in 0..3 {
        fs::write(file(n), "half a file").unwrap();
    }
    age(&file(0), 100);
    age(&file(1), 100);
    let writer = fs::File::options().write(true).open(file(1)).unwrap();
    writer.lock().unwrap();
    let (disk, found) = Disk::open(root.path(), &me, limits()).unwrap();
    assert_eq!((timeless(found), disk.take_warnings()), (nodes.clone(), vec![]));
    assert_eq!([0, 1, 2].map(|n| file(n).exists()), [false, true, true]);
}

proptest! {
    /// Any header comes back as it was, and any other bytes are refused without a panic.
    #[test]
    fn headers_round_trip(
        ids in prop::collection::vec(any::<u32>(), 1..5000),
        blocks in prop::collection::vec((1usize..=8 << 20, any::<u64>()), 0..600),
        start in 0usize..1 << 30,
        is_kv: bool,
        at: prop::sample::Index,
        noise: Vec<u8>,
    ) {
        let blocks = blocks.into_iter().map(|(bytes, xxh3)| Block { bytes, xxh3 }).collect();
        let part = if is_kv { Part::Kv } else { Part::State };
        let (root, parent) = (identity(1).root(), identity(2).root());
        let header = Header { part, root, parent, start, ids, blocks };
        let mut bytes = header.encode();
        let file_bytes = header.file_bytes();
        prop_assert_eq!(Header::length(&bytes, file_bytes), Ok(bytes.len() as u64));
        prop_assert_eq!(Header::decode(&bytes, file_bytes), Ok(header));
        prop_assert!(Header::decode(&bytes, file_bytes - 1).is_err());
        let at = at.index(bytes.len());
        let end = bytes.len().min(at + noise.len());
        bytes[at..end].copy_from_slice(&noise[..end - at]);
        let _ = Header::decode(&bytes, file_bytes);
    }
}
