//! The folders of all identities, for people who want to know or to remove them.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use super::Part;
use super::budget::{self, Budget};
use super::header::Header;
use super::place::{self, Name};
use crate::{Identity, Key};

/// The folder of an identity.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Folder {
    /// [`Identity::root`]: its name.
    pub root_key: Key,
    /// `None`: the folder does not say it, or says that of another.
    pub identity: Option<Identity>,
    /// Where it is.
    pub path: PathBuf,
    /// States: each is a position to go on from.
    pub n_checkpoint: usize,
    /// Tokens before the furthest of them.
    pub n_token_max: usize,
    /// Bytes of all its files.
    pub bytes: u64,
    /// When that file was written or used which nobody used for longest; `None`: it has none.
    pub oldest_use: Option<SystemTime>,
    /// When a file was last written or used.
    pub newest_use: Option<SystemTime>,
    /// Files that cannot be used; they are removed when a model next uses the folder.
    pub n_damaged: usize,
}

/// The folders under `root`, the one that was used last first. Only headers are read.
///
/// # Errors
/// `root` or a folder cannot be read; a `root` that is not there has none.
pub fn folders(root: &Path) -> io::Result<Vec<Folder>> {
    let all = place::identities(root)?.into_iter().map(|(key, path)| folder(key, path));
    let mut all = all.collect::<io::Result<Vec<_>>>()?;
    all.sort_by_key(|folder| std::cmp::Reverse(folder.newest_use));
    Ok(all)
}

/// Removes a folder that [`folders`] listed: our files, and the folder if nothing else is in it. Bytes that are gone.
/// Links are removed, what they point to stays.
///
/// # Errors
/// The system refuses.
pub fn remove_folder(folder: &Folder) -> io::Result<u64> {
    let mut gone_bytes = 0;
    for found in place::list(&folder.path)? {
        if found.is_file || fs::symlink_metadata(&found.path).is_ok_and(|meta| meta.is_symlink()) {
            place::remove_file(&found.path)?;
            gone_bytes += found.bytes;
        }
    }
    match fs::remove_dir(&folder.path) {
        // Somebody else has files there.
        Err(e) if e.kind() == io::ErrorKind::DirectoryNotEmpty => {}
        result => result?,
    }
    Ok(gone_bytes)
}

/// Bytes of all files in the folders under `root`; what cannot be read counts nothing. No file is opened.
pub fn used_bytes(root: &Path) -> u64 {
    let all = place::identities(root).unwrap_or_default().into_iter();
    all.flat_map(|(_, path)| place::list(&path).unwrap_or_default()).map(|found| found.bytes).sum()
}

/// Bytes that all programs wrote below `root` today (UTC).
pub fn written_today_bytes(root: &Path) -> u64 {
    Budget::new(root).written_bytes(budget::day(SystemTime::now()))
}

fn folder(root_key: Key, path: PathBuf) -> io::Result<Folder> {
    let identity = place::read_about(&path).filter(|identity| identity.root() == root_key);
    let mut folder = Folder {
        root_key,
        identity,
        path,
        n_checkpoint: 0,
        n_token_max: 0,
        bytes: 0,
        oldest_use: None,
        newest_use: None,
        n_damaged: 0,
    };
    for found in place::list(&folder.path)? {
        folder.bytes += found.bytes;
        match found.name {
            Name::Part(key, part) if found.is_file => {
                let Some(header) = right_header(&folder, &found.path, (key, part)) else {
                    folder.n_damaged += 1;
                    continue;
                };
                if part == Part::State {
                    folder.n_checkpoint += 1;
                    folder.n_token_max = folder.n_token_max.max(header.start + header.ids.len());
                }
                let used = Some(found.modified);
                folder.oldest_use =
                    folder.oldest_use.map_or(used, |oldest| used.map(|used| used.min(oldest)));
                folder.newest_use = folder.newest_use.max(used);
            }
            Name::Part(..) | Name::Wrong => folder.n_damaged += 1,
            Name::Unfinished | Name::About | Name::Other => {}
        }
    }
    Ok(folder)
}

/// The header of a file, if it is the one that its name and its folder call for.
fn right_header(folder: &Folder, path: &Path, name: (Key, Part)) -> Option<Header> {
    let header = place::read_header(path).ok()?;
    let is_right = match &folder.identity {
        Some(identity) => header.check(name, folder.root_key, identity.shape).is_ok(),
        None => (header.key(), header.part, header.root) == (name.0, name.1, folder.root_key),
    };
    is_right.then_some(header)
}
