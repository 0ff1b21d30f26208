//! A small checkpoint in memory, one file of which the fuzzer writes.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use convert::Checkpoint;

const GOLDEN: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../tests/golden/forms/mlx_4bit");

/// Opens the checkpoint with `bytes` as its file `name`, and if that succeeds as a store, all of which is read.
pub fn open_with(name: &str, bytes: &[u8]) {
    static DIR: OnceLock<PathBuf> = OnceLock::new();
    let dir = DIR.get_or_init(|| make(name));
    fs::write(dir.join(name), bytes).expect("memory is there");
    read_all(dir);
}

/// Opens the checkpoint at `path`, and if that succeeds as a store, all of which is read.
pub fn read_all(path: &Path) {
    let Ok(checkpoint) = Checkpoint::open(path) else { return };
    let Ok(store) = checkpoint.in_place() else { return };
    // Numbers that are not finite are problems, not errors.
    let _ = store.verify(&mut |_| {});
    for sidecar in &store.manifest().sidecars {
        let _ = store.sidecar(&sidecar.name);
    }
}

/// A folder of this process in memory, with what the checkpoint has but for `name`.
pub fn make(name: &str) -> PathBuf {
    let dir = Path::new("/dev/shm").join(format!("flash-moe-fuzz-{name}-{}", std::process::id()));
    fs::create_dir_all(&dir).expect("memory is there");
    for entry in fs::read_dir(GOLDEN).expect("the checkpoint is in the repository").flatten() {
        if entry.file_name() != *name {
            fs::copy(entry.path(), dir.join(entry.file_name())).expect("memory is there");
        }
    }
    dir
}
