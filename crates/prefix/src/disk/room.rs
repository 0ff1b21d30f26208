//! How much may be written: the size of all folders, the free space of the drive, and what goes for it.
//!
//! Which of its own checkpoints goes is the cache's decision. Files of other identities have nobody here who knows
//! their value: they go by age, once they are older than all of ours.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use super::place::{self, Name};
use super::{DiskLimits, index};
use crate::Key;

/// The folders of other identities.
#[derive(Default)]
pub(super) struct Strangers {
    folders: HashMap<PathBuf, Folder>,
}

struct Folder {
    bytes: u64,
    seen_change: Option<SystemTime>,
}

/// A complete file of another identity.
struct Stray {
    path: PathBuf,
    bytes: u64,
    modified: SystemTime,
}

impl Strangers {
    pub(super) fn bytes(&self) -> u64 {
        self.folders.values().map(|folder| folder.bytes).sum()
    }

    /// Looks at folders whose names changed.
    pub(super) fn look(&mut self, root: &Path, own: Key, now: SystemTime) {
        let mut folders = HashMap::new();
        for (key, path) in place::identities(root).unwrap_or_default() {
            if key == own {
                continue;
            }
            let seen_change = place::settled_change(&path, now);
            let old = self
                .folders
                .remove(&path)
                .filter(|old| seen_change.is_some() && old.seen_change == seen_change);
            let folder = old.unwrap_or_else(|| {
                let bytes = strays(&path).iter().map(|stray| stray.bytes).sum();
                Folder { bytes, seen_change }
            });
            folders.insert(path, folder);
        }
        self.folders = folders;
    }

    /// Removes files that were used before `before`, the oldest first, until `excess_bytes` are gone.
    pub(super) fn drop_older(&mut self, before: Option<SystemTime>, excess_bytes: u64) {
        let mut all: Vec<Stray> = self.folders.keys().flat_map(|folder| strays(folder)).collect();
        all.retain(|stray| before.is_none_or(|before| stray.modified < before));
        all.sort_by_key(|stray| stray.modified);
        let mut gone_bytes = 0;
        for stray in all {
            if gone_bytes >= excess_bytes {
                break;
            }
            gone_bytes += self.drop_stray(&stray);
        }
    }

    /// Removes what nobody used for so long.
    pub(super) fn expire(&mut self, now: SystemTime, expiry: Duration) {
        let all: Vec<Stray> = self.folders.keys().flat_map(|folder| strays(folder)).collect();
        for stray in all.iter().filter(|stray| index::is_expired(stray.modified, now, expiry)) {
            self.drop_stray(stray);
        }
    }

    /// Bytes that are gone.
    fn drop_stray(&mut self, stray: &Stray) -> u64 {
        if place::remove_file(&stray.path).is_err() {
            return 0;
        }
        let parent = store::parent_of(&stray.path);
        if let Some(folder) = self.folders.get_mut(&parent) {
            folder.bytes = folder.bytes.saturating_sub(stray.bytes);
        }
        stray.bytes
    }
}

/// Complete files of a folder.
fn strays(folder: &Path) -> Vec<Stray> {
    let found = place::list(folder).unwrap_or_default().into_iter();
    let complete = found.filter(|found| found.is_file && matches!(found.name, Name::Part(..)));
    complete.map(|found| Stray { path: found.path, bytes: found.bytes, modified: found.modified }).collect()
}

/// Bytes that must go before `more_bytes` can come, where `used_bytes` are there or on their way and `waiting_bytes`
/// of these are not yet on the drive.
pub(super) fn excess_bytes(
    folder: &Path,
    limits: &DiskLimits,
    used_bytes: u64,
    waiting_bytes: u64,
    more_bytes: u64,
) -> u64 {
    let over = used_bytes.saturating_add(more_bytes).saturating_sub(limits.size_bytes);
    // Of the file system that the folder is on; if the system does not say, a full drive is noticed when it is written.
    let free_bytes = store::free_bytes(&folder.join("any")).unwrap_or(u64::MAX);
    let needed_bytes = limits.free_bytes.saturating_add(waiting_bytes).saturating_add(more_bytes);
    over.max(needed_bytes.saturating_sub(free_bytes))
}
