//! Packing a checkpoint whose weight files come while it is packed, and go.

mod common;

use std::collections::BTreeSet;
use std::fs::{self, OpenOptions};
use std::path::{Path, PathBuf};
use std::sync::Mutex;

use common::*;
use convert::{Checkpoint, ConvertError, PackOptions, WeightSource, pack, pack_arriving};

/// Brings files from another folder.
struct Carrier {
    from: PathBuf,
    to: PathBuf,
    state: Mutex<State>,
    /// The file that does not come.
    lost: Option<String>,
}

#[derive(Default)]
struct State {
    planned: Vec<String>,
    n_live_max: usize,
    there: BTreeSet<String>,
    gone: BTreeSet<String>,
}

impl WeightSource for Carrier {
    fn plan(&self, names: &[String], n_live: usize) -> Result<(), ConvertError> {
        let mut state = self.state.lock().unwrap();
        (state.planned, state.n_live_max) = (names.to_vec(), n_live);
        Ok(())
    }

    fn need(&self, name: &str) -> Result<(), ConvertError> {
        if self.lost.as_deref() == Some(name) {
            return Err(ConvertError::Arrival { name: name.into(), source: "the line is dead".into() });
        }
        let mut state = self.state.lock().unwrap();
        assert!(state.planned.iter().any(|planned| planned == name), "{name} was not planned");
        assert!(!state.gone.contains(name), "{name} was said to be done");
        if state.there.insert(name.to_owned()) {
            write_at_start(&self.to.join(name), &fs::read(self.from.join(name)).unwrap());
        }
        Ok(())
    }

    fn done(&self, name: &str) {
        let mut state = self.state.lock().unwrap();
        assert!(state.there.contains(name) && state.gone.insert(name.to_owned()), "{name}");
        keep_header(&self.to.join(name));
    }
}

fn write_at_start(path: &Path, bytes: &[u8]) {
    let file = OpenOptions::new().write(true).open(path).unwrap();
    store::write_all_at(&file, bytes, 0).unwrap();
}

/// Makes everything after the header zeros.
fn keep_header(path: &Path) {
    let bytes = fs::read(path).unwrap();
    let head = 8 + u64::from_le_bytes(bytes[..8].try_into().unwrap());
    let file = OpenOptions::new().write(true).open(path).unwrap();
    file.set_len(head).unwrap();
    file.set_len(bytes.len() as u64).unwrap();
}

/// A checkpoint of several files, and a copy of it that has nothing but their headers.
fn two_folders(layout: Layout) -> (tempfile::TempDir, PathBuf, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let (from, to) = (folder.path().join("model"), folder.path().join("headers/model"));
    Tiny::new(Layout { n_shard: 4, ..layout }, 7).write(&from);
    fs::create_dir_all(&to).unwrap();
    for entry in fs::read_dir(&from).unwrap().flatten() {
        let path = to.join(entry.file_name());
        fs::copy(entry.path(), &path).unwrap();
        if path.extension().is_some_and(|e| e == "safetensors") {
            keep_header(&path);
            // The store remembers what it was made of.
            let modified = entry.metadata().unwrap().modified().unwrap();
            OpenOptions::new().write(true).open(&path).unwrap().set_modified(modified).unwrap();
        }
    }
    (folder, from, to)
}

/// Weights would be read before they are there or after they are gone, or the store would be another one.
#[test]
fn files_that_come_late_make_the_same_store() {
    for layout in [QWEN35, NEXT] {
        let (folder, from, to) = two_folders(layout);
        let (whole, late) = (folder.path().join("whole.store"), folder.path().join("late.store"));
        let options = PackOptions::default();
        pack(&Checkpoint::open(&from).unwrap(), &whole, &options, &mut |_| ()).unwrap();
        let carrier = Carrier { from, to: to.clone(), state: Mutex::default(), lost: None };
        let checkpoint = Checkpoint::open(&to).unwrap();
        pack_arriving(&checkpoint, Some(&carrier), &late, &options, &mut |_| ()).unwrap();
        assert!(tree(&whole) == tree(&late), "{layout:?}");
        let state = carrier.state.into_inner().unwrap();
        assert_eq!(state.gone.len(), 4, "{layout:?}: all files were used and given back");
        assert!((1..=4).contains(&state.n_live_max), "{}", state.n_live_max);
    }
}

/// A store would be finished without a file, or what was made before it failed be made again.
#[test]
fn a_file_that_does_not_come_ends_the_run() {
    let (folder, from, to) = two_folders(QWEN35);
    let out = folder.path().join("out.store");
    let options = PackOptions::default();
    let lost = shard_name(2, 4);
    let carrier = |lost| Carrier { from: from.clone(), to: to.clone(), state: Mutex::default(), lost };
    let checkpoint = Checkpoint::open(&to).unwrap();
    let first = carrier(Some(lost.clone()));
    let error = pack_arriving(&checkpoint, Some(&first), &out, &options, &mut |_| ()).unwrap_err();
    assert_eq!(error.to_string(), format!("{lost}: the line is dead"));
    assert!(!out.exists());
    let again = carrier(None);
    let report = pack_arriving(&checkpoint, Some(&again), &out, &options, &mut |_| ()).unwrap();
    assert!(report.resumed_bytes > 0);
    let n_gone = first.state.into_inner().unwrap().gone.len();
    let n_planned = again.state.into_inner().unwrap().planned.len();
    assert!(n_planned <= 4 - n_gone, "{n_planned} files came after {n_gone} had been used up");
}
