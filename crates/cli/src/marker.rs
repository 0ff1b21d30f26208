//! Tells the next run that this one was killed.
//!
//! While a model is loaded a small locked file says so. It goes when the program ends in any orderly way; what
//! remains and is not locked any more belongs to a process that was ended from outside. Systems that run out of
//! memory end processes like that, and say nothing.

use std::fs::{self, File, OpenOptions};
use std::io::{Read, Write};
use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::cachedir::CacheDir;
use crate::interrupt::Temporary;
use crate::output::note;
use crate::size::Size;

/// The folder of the markers.
const FOLDER: &str = "running";
/// A marker is a line.
const MARKER_BYTES_MAX: u64 = 1 << 16;

#[derive(Debug, PartialEq, Serialize, Deserialize)]
struct Run {
    pid: u32,
    model: String,
    budget_bytes: u64,
}

/// This run's marker. The lock goes first: locked files cannot be removed everywhere.
pub(crate) struct Marker {
    _lock: File,
    _file: Temporary,
}

impl Marker {
    /// Tells of runs that were killed, and marks this one.
    pub(crate) fn start(cache: &CacheDir, model: &str, budget: Size) -> Option<Self> {
        let folder = cache.path(FOLDER)?;
        for run in killed(&folder) {
            let less = Size(run.budget_bytes / 4 * 3);
            note(format_args!(
                "note: a run of {} with a budget of {} was ended from outside, probably for lack of memory\n\
                 hint: give it less: --memory {}MiB",
                run.model,
                Size(run.budget_bytes),
                less.0 >> 20,
            ));
        }
        let run = Run { pid: std::process::id(), model: model.to_owned(), budget_bytes: budget.0 };
        Self::create(&folder, &run).map_err(|error| cache.ignore(FOLDER, error)).ok()
    }

    fn create(folder: &Path, run: &Run) -> std::io::Result<Self> {
        fs::create_dir_all(folder)?;
        let path = folder.join(format!("{}.json", run.pid));
        let mut lock = File::create(&path)?;
        let file = Temporary::new(path);
        lock.lock()?;
        lock.write_all(serde_json::to_string(run)?.as_bytes())?;
        Ok(Self { _lock: lock, _file: file })
    }
}

/// Runs that left their marker without its lock. Their markers are removed.
fn killed(folder: &Path) -> Vec<Run> {
    let Ok(entries) = fs::read_dir(folder) else { return Vec::new() };
    let mut runs = Vec::new();
    for path in entries.filter_map(|entry| Some(entry.ok()?.path())) {
        // What cannot be locked is in use, or on a file system without locks: then nothing can be said.
        let open = OpenOptions::new().read(true).write(true).open(&path);
        let Some(file) = open.ok().filter(|file| file.try_lock().is_ok()) else { continue };
        let mut text = String::new();
        let has_text = (&file).take(MARKER_BYTES_MAX).read_to_string(&mut text).is_ok();
        drop(file);
        let was_removed = fs::remove_file(&path).is_ok();
        if let Ok(run) = serde_json::from_str(&text)
            && has_text
            && was_removed
        {
            runs.push(run);
        }
    }
    runs
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A killed run would not be told of, or be told of for ever; a running one would be called killed.
    #[test]
    fn only_markers_without_a_lock_are_told_of() {
        let folder = tempfile::tempdir().unwrap();
        let run = |pid| Run { pid, model: "m".into(), budget_bytes: 7 };
        let alive = Marker::create(folder.path(), &run(1)).unwrap();
        fs::write(folder.path().join("2.json"), serde_json::to_string(&run(2)).unwrap()).unwrap();
        fs::write(folder.path().join("3.json"), "garbage").unwrap();
        assert_eq!(killed(folder.path()), [run(2)]);
        assert_eq!(killed(folder.path()), []);
        assert!(folder.path().join("1.json").exists());
        drop(alive);
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
        assert_eq!(killed(&folder.path().join("absent")), []);
    }
}
