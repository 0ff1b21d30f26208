//! Two servers on one folder.

use std::thread;

use prefix::disk::Changes;
use prefix::{Disk, Entry, Part};

use crate::common::*;

/// Servers would not see each other's checkpoints, or go on with ones that are gone.
#[test]
fn changes_of_others_are_seen() {
    let root = tempfile::tempdir().unwrap();
    let me = identity(1);
    let nodes = chain(&me, 3);
    let open = || Disk::open(root.path(), &me, limits()).unwrap().0;
    let (one, two) = (open(), open());
    put(&one, &nodes[0]);
    assert_eq!(one.rescan(), Changes::default());
    let seen = two.rescan();
    assert_eq!((timeless(seen.added), seen.removed), (vec![nodes[0].clone()], vec![]));
    assert_right(&two, &nodes[0]);
    assert_eq!(two.rescan(), Changes::default());
    assert!(two.write(&nodes[1], Part::Kv, blocks(&nodes[1], Part::Kv)));
    two.flush();
    let half = Entry { state_bytes: None, ..nodes[1].clone() };
    assert_eq!(timeless(one.rescan().added), [half]);
    assert!(two.write(&nodes[1], Part::State, blocks(&nodes[1], Part::State)));
    two.flush();
    assert_eq!(timeless(one.rescan().added), [nodes[1].clone()], "both halves of a node of which one is new");
    one.remove(nodes[0].key, Part::State);
    let seen = two.rescan();
    assert_eq!((seen.added, seen.removed), (vec![], vec![(nodes[0].key, Part::State)]));
    assert_eq!((one.used_bytes(), one.take_warnings()), (two.used_bytes(), vec![]));
}

/// What another server wrote meanwhile would be written twice, or never count as being there.
#[test]
fn what_another_wrote_is_not_written_again() {
    let root = tempfile::tempdir().unwrap();
    let me = identity(1);
    let node = chain(&me, 1).remove(0);
    let open = || Disk::open(root.path(), &me, limits()).unwrap().0;
    let (one, two) = (open(), open());
    put(&one, &node);
    let written_bytes = prefix::disk::written_today_bytes(root.path());
    put(&two, &node);
    assert_eq!(two.take_written().len(), 2);
    assert_eq!(prefix::disk::written_today_bytes(root.path()), written_bytes);
    assert_eq!(two.used_bytes(), one.used_bytes());
    assert_right(&two, &node);
}

/// Two writers of the same files would mix them, and a reader would see half of one.
#[test]
fn many_writers_and_readers() {
    let root = tempfile::tempdir().unwrap();
    let me = identity(1);
    let nodes = chain(&me, 24);
    thread::scope(|scope| {
        for n in 0..4 {
            let (root, me, nodes) = (root.path(), &me, &nodes);
            scope.spawn(move || {
                let (disk, _) = Disk::open(root, me, limits()).unwrap();
                // Each begins elsewhere: the same and different nodes are written at the same time.
                for i in 0..nodes.len() {
                    let node = &nodes[(i + 6 * n) % nodes.len()];
                    PARTS.iter().for_each(|&part| assert!(disk.write(node, part, blocks(node, part))));
                    for entry in disk.rescan().added {
                        let node = nodes.iter().find(|node| node.key == entry.key).unwrap();
                        let there = [(Part::Kv, entry.kv_bytes), (Part::State, entry.state_bytes)];
                        let there = there.iter().filter(|(_, bytes)| bytes.is_some());
                        there.for_each(|&(part, _)| is_right(&disk, node, part).unwrap());
                    }
                }
                disk.flush();
                nodes.iter().for_each(|node| assert_right(&disk, node));
                assert_eq!((disk.take_failed(), disk.take_warnings()), (vec![], vec![]));
            });
        }
    });
    let (disk, found) = Disk::open(root.path(), &me, limits()).unwrap();
    assert_eq!((timeless(found), disk.take_warnings()), (nodes, vec![]));
    let names = std::fs::read_dir(folder(root.path(), &me)).unwrap();
    assert_eq!(names.count(), 2 * 24 + 1, "nothing unfinished is left");
}
