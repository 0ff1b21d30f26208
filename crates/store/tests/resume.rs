//! A killed `pack` goes on where it was, and never leaves something that looks finished.

mod common;

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use quant::Format;
use store::{DensePlan, ExpertPlan, Store, StoreError, StorePlan, StoreWriter};

/// Pieces of the tiny plan: its dense tensors and four records.
fn n_piece() -> usize {
    common::plan().dense.len() + 4
}

struct Setup {
    _dir: tempfile::TempDir,
    path: PathBuf,
    partial: PathBuf,
}

/// A store of which `n` pieces were written before the writer was dropped.
fn killed_after(n: usize) -> Setup {
    let dir = tempfile::tempdir().unwrap();
    let (path, partial) = (dir.path().join("s"), dir.path().join("s.partial"));
    let mut writer = StoreWriter::create(&path, common::plan()).unwrap();
    common::fill(&mut writer, &common::plan(), n).unwrap();
    Setup { _dir: dir, path, partial }
}

/// The files of an uninterrupted run.
fn uninterrupted() -> BTreeMap<String, Vec<u8>> {
    let dir = tempfile::tempdir().unwrap();
    common::write(&dir.path().join("s"), &common::plan());
    common::files(&dir.path().join("s"))
}

/// Finishes the store and compares it with an uninterrupted run; returns the pieces that were found finished.
fn check_resume(setup: &Setup, expected: &BTreeMap<String, Vec<u8>>) -> usize {
    let plan = common::plan();
    let mut writer = StoreWriter::create(&setup.path, plan.clone()).unwrap();
    let n_dense = (0..plan.dense.len()).filter(|&i| writer.has_dense(i)).count();
    let n_expert = (0..4).filter(|i| writer.has_expert(i / 2, i % 2)).count();
    assert_eq!(writer.resumed_bytes() > 0, n_dense + n_expert > 0);
    assert!(common::fill(&mut writer, &plan, usize::MAX).unwrap());
    writer.finish().unwrap();
    assert!(!setup.partial.exists());
    assert!(common::files(&setup.path) == *expected, "the files differ from those of an uninterrupted run");
    n_dense + n_expert
}

fn flip(path: &Path, at: usize) {
    let mut bytes = fs::read(path).unwrap();
    bytes[at] ^= 0x10;
    fs::write(path, bytes).unwrap();
}

#[test]
fn killed_after_any_piece_gives_the_same_bytes() {
    // Would break: resumed stores differ, finished pieces are done again, or an unfinished store is opened.
    let expected = uninterrupted();
    for n in 0..=n_piece() {
        let setup = killed_after(n);
        for path in [&setup.path, &setup.partial] {
            let error = Store::open(path).unwrap_err();
            assert!(error.to_string().contains("run the same pack command again"), "{error}");
        }
        // Even under another name.
        let renamed = setup.path.with_file_name("renamed");
        fs::rename(&setup.partial, &renamed).unwrap();
        let error = Store::open(&renamed).unwrap_err();
        assert!(error.to_string().contains("run the same pack command again"), "{error}");
        fs::rename(&renamed, &setup.partial).unwrap();
        assert_eq!(check_resume(&setup, &expected), n, "after {n} pieces");
    }
}

#[test]
fn damaged_pieces_are_written_again() {
    // Would break: a power cut that lost data blocks, but not the journal, ends in a corrupt store.
    let expected = uninterrupted();
    let all = n_piece();
    let dense_bytes = expected["dense.bin"].len();
    // The first byte, the first one of the padding after LinearALog, f32 [1, 4], and the last one.
    let padding = {
        let store = common::plan();
        let before = |i: usize| store.dense[i].format.matrix_bytes(store.dense[i].rows, store.dense[i].cols);
        let idx = store.dense.iter().position(|t| t.role == store::Role::LinearALog).unwrap();
        (0..idx).map(before).sum::<usize>() + 4 * 4
    };
    assert_eq!(expected["dense.bin"][padding], 0);
    for (name, at) in [
        ("dense.bin", 0),
        ("dense.bin", padding),
        ("dense.bin", dense_bytes - 1),
        ("experts/layer-000.bin", 0),
        ("experts/layer-001.bin", expected["experts/layer-001.bin"].len() - 1),
    ] {
        let setup = killed_after(all);
        flip(&setup.partial.join(name), at);
        assert_eq!(check_resume(&setup, &expected), all - 1, "{name} at {at}");
    }
    for (name, n_lost) in [("dense.bin", all - 4), ("experts/layer-000.bin", 2)] {
        let setup = killed_after(all);
        fs::remove_file(setup.partial.join(name)).unwrap();
        assert_eq!(check_resume(&setup, &expected), all - n_lost, "{name} removed");
        let setup = killed_after(all);
        let longer = fs::read(setup.partial.join(name)).unwrap().repeat(2);
        fs::write(setup.partial.join(name), longer).unwrap();
        assert_eq!(check_resume(&setup, &expected), all, "{name} too long");
    }
}

#[test]
fn a_torn_or_garbled_journal_costs_only_what_it_lost() {
    // Would break: killed in the middle of a journal line, the next run fails or trusts garbage.
    let expected = uninterrupted();
    let whole = fs::read(killed_after(n_piece()).partial.join("journal")).unwrap();
    for len in (0..whole.len()).step_by(31).chain([whole.len() - 1]) {
        let setup = killed_after(n_piece());
        fs::write(setup.partial.join("journal"), &whole[..len]).unwrap();
        let n_line = whole[..len].iter().filter(|&&b| b == b'\n').count();
        assert_eq!(check_resume(&setup, &expected), n_line.saturating_sub(1), "journal cut to {len} bytes");
    }
    for garbage in [
        "dense 99999 0123456789abcdef\n",
        "expert 7 7 0123456789abcdef\n",
        "dense -1 0\n",
        "\u{0}\n",
        "dense 0",
    ] {
        let setup = killed_after(3);
        let mut journal = fs::read(setup.partial.join("journal")).unwrap();
        journal.extend(garbage.as_bytes());
        fs::write(setup.partial.join("journal"), journal).unwrap();
        assert_eq!(check_resume(&setup, &expected), 3, "{garbage:?}");
    }
}

#[test]
fn another_plan_starts_over() {
    // Would break: pieces of two models, or of two widths, end up in one store.
    let setup = killed_after(n_piece());
    let mut other = common::plan();
    other.experts[0].formats[2] = Format::Affine { bits: 8, group: 32 };
    let mut writer = StoreWriter::create(&setup.path, other.clone()).unwrap();
    assert_eq!(writer.resumed_bytes(), 0);
    assert!(common::fill(&mut writer, &other, usize::MAX).unwrap());
    writer.finish().unwrap();
    let fresh = setup.path.with_file_name("fresh");
    common::write(&fresh, &other);
    assert_eq!(common::files(&setup.path), common::files(&fresh));
}

#[test]
fn killed_while_finishing_is_not_finished() {
    // Would break: a crash between the manifest and the rename leaves a folder that opens, or cannot be resumed.
    let expected = uninterrupted();
    let setup = killed_after(n_piece());
    for name in ["manifest.json", "manifest.json.tmp", "tokenizer.json"] {
        fs::write(setup.partial.join(name), expected.get(name).unwrap_or(&vec![])).unwrap();
    }
    Store::open(&setup.partial).unwrap_err();
    fs::remove_file(setup.partial.join("manifest.json.tmp")).unwrap();
    assert_eq!(check_resume(&setup, &expected), n_piece());
}

#[test]
fn two_writers_exclude_each_other() {
    // Would break: the same command started twice interleaves its writes.
    let setup = killed_after(0);
    let _first = StoreWriter::create(&setup.path, common::plan()).unwrap();
    let error = StoreWriter::create(&setup.path, common::plan()).unwrap_err();
    assert!(error.to_string().contains("another process is writing this store"), "{error}");
}

#[test]
#[should_panic(expected = "expert 1 of layer 1 was not written")]
fn a_store_with_a_missing_record_cannot_be_finished() {
    // Would break: zeros in place of an expert.
    let setup = killed_after(0);
    let mut writer = StoreWriter::create(&setup.path, common::plan()).unwrap();
    common::fill(&mut writer, &common::plan(), n_piece() - 1).unwrap();
    let _ = writer.finish();
}

#[test]
#[should_panic(expected = "embed: 512 of 544 bytes were written")]
fn a_tensor_with_a_missing_block_cannot_be_finished() {
    // Would break: zeros in place of rows.
    let setup = killed_after(0);
    let mut writer = StoreWriter::create(&setup.path, common::plan()).unwrap();
    writer.write_dense(0, 0, &[1; 512]).unwrap();
    let _ = writer.finish_dense(0);
}

#[test]
fn what_does_not_fit_on_the_disk_is_refused_before_anything_is_written() {
    // Would break: hours of packing end in "no space left on device".
    let mut plan = common::plan();
    let config = &mut plan.config;
    (config.d_model, config.d_ff_expert, config.n_expert) = (1 << 20, 1 << 20, 1 << 16);
    let f32_plan = |s: store::DenseShape| DensePlan {
        role: s.role,
        layer: s.layer,
        format: Format::F32,
        rows: s.rows,
        cols: s.cols,
    };
    plan.dense = config.dense_shapes().into_iter().map(f32_plan).collect();
    plan.experts = vec![ExpertPlan { formats: [Format::F32; 3] }; 2];
    let needed = 2 * (1u64 << 16) * 3 * (1 << 42);
    assert!(plan.total_bytes() > needed);
    let dir = tempfile::tempdir().unwrap();
    match StoreWriter::create(&dir.path().join("s"), plan).unwrap_err() {
        StoreError::DiskFull { needed_bytes, free_bytes, .. } => {
            assert!(needed_bytes > needed && free_bytes < needed_bytes, "{needed_bytes} {free_bytes}");
        }
        other => panic!("{other}"),
    }
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
}

#[test]
fn plans_and_places_that_make_no_sense_are_refused() {
    // Would break: a mistake in a converter is noticed only when the finished store is opened.
    let dir = tempfile::tempdir().unwrap();
    let check = |change: &dyn Fn(&mut StorePlan), expected: &str| {
        let mut plan = common::plan();
        change(&mut plan);
        let error = StoreWriter::create(&dir.path().join("s"), plan).unwrap_err();
        assert!(error.to_string().contains(expected), "{error}");
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
    };
    check(&|p| p.dense.truncate(5), "is missing");
    check(&|p| p.dense.push(p.dense[0].clone()), "embed is there twice");
    check(&|p| p.dense[0].cols = 65, "embed: affine8g64 needs rows of a multiple of 64 columns, got 65");
    check(&|p| p.dense[2].format = Format::Bf16, "final_norm is bf16, must be f32");
    check(&|p| p.config.n_head = 0, "config: n_head is 0, allowed is 1 to");
    check(&|p| p.sidecars.push(("../evil".into(), vec![])), "\"../evil\" is not a plain file name");
    check(&|p| p.sidecars.push(("dense.bin".into(), vec![])), "dense.bin has the name of another file");
    check(&|p| p.experts.truncate(1), "experts has 1 layers, the configuration 2");
    let file = dir.path().join("file");
    fs::write(&file, "").unwrap();
    let error = StoreWriter::create(&file.join("s"), common::plan()).unwrap_err();
    assert!(matches!(&error, StoreError::Io { action: "create the folder", .. }), "{error}");
    let error = StoreWriter::create(Path::new(".."), common::plan()).unwrap_err();
    assert_eq!(error.to_string(), "..: is not a name for a new folder");
}
