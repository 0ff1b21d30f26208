//! What the folder of one identity has, as far as it was looked at.

use std::collections::{HashMap, HashSet};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use super::place::{self, Found, Name, Unusable};
use super::warnings::Warnings;
use super::{Changes, Entry, Part};
use crate::{Key, Shape};

/// A file whose time of use is this young keeps it.
const TOUCH_AGE_MIN: Duration = Duration::from_secs(60);

/// A complete file.
pub(super) struct Known {
    /// Of the file.
    pub(super) file_bytes: u64,
    /// Of its blocks.
    pub(super) payload_bytes: u64,
    pub(super) last_use: SystemTime,
}

/// All complete files of a folder.
pub(super) struct Index {
    folder: PathBuf,
    root: Key,
    shape: Shape,
    files: HashMap<(Key, Part), Known>,
    file_bytes: u64,
    /// In the way: cannot be used, and cannot be removed. Warned of once.
    blocked: HashSet<PathBuf>,
    /// When the folder's names had changed as it was looked at; `None`: look again.
    seen_change: Option<SystemTime>,
}

impl Index {
    pub(super) fn new(folder: PathBuf, root: Key, shape: Shape) -> Self {
        Self {
            folder,
            root,
            shape,
            files: HashMap::new(),
            file_bytes: 0,
            blocked: HashSet::new(),
            seen_change: None,
        }
    }

    pub(super) fn get(&self, key: Key, part: Part) -> Option<&Known> {
        self.files.get(&(key, part))
    }

    /// Is something in the way of this part's file?
    pub(super) fn is_blocked(&self, key: Key, part: Part) -> bool {
        !self.blocked.is_empty() && self.blocked.contains(&self.path(key, part))
    }

    pub(super) fn path(&self, key: Key, part: Part) -> PathBuf {
        self.folder.join(place::file_name(key, part))
    }

    /// Bytes of all complete files.
    pub(super) fn file_bytes(&self) -> u64 {
        self.file_bytes
    }

    /// When that file was used which nobody used for longest.
    pub(super) fn oldest_use(&self) -> Option<SystemTime> {
        self.files.values().map(|known| known.last_use).min()
    }

    pub(super) fn insert(&mut self, key: Key, part: Part, known: Known) {
        self.file_bytes += known.file_bytes;
        if let Some(old) = self.files.insert((key, part), known) {
            self.file_bytes -= old.file_bytes;
        }
    }

    /// True if it was there.
    fn forget(&mut self, key: Key, part: Part) -> bool {
        let old = self.files.remove(&(key, part));
        self.file_bytes -= old.as_ref().map_or(0, |old| old.file_bytes);
        old.is_some()
    }

    /// The folder is gone: so are all files. Those that were known.
    pub(super) fn forget_all(&mut self) -> Vec<(Key, Part)> {
        self.file_bytes = 0;
        self.seen_change = None;
        self.files.drain().map(|(name, _)| name).collect()
    }

    /// Removes a file. It is forgotten also if the system refuses.
    pub(super) fn remove(&mut self, key: Key, part: Part) -> io::Result<()> {
        self.forget(key, part);
        place::remove_file(&self.path(key, part))
    }

    /// Says of both parts of a node that they were used now.
    pub(super) fn touch(&mut self, key: Key, now: SystemTime) {
        for part in [Part::Kv, Part::State] {
            let path = self.path(key, part);
            let Some(known) = self.files.get_mut(&(key, part)) else { continue };
            if now.duration_since(known.last_use).is_ok_and(|age| age >= TOUCH_AGE_MIN) {
                known.last_use = now;
                // It only goes a little earlier if that fails.
                let file = fs::File::options().write(true).open(path);
                let _ = file.and_then(|file| file.set_modified(now));
            }
        }
    }

    /// Looks at the folder: what is damaged, foreign, of another version or too old is removed, the rest is known
    /// afterwards. Nothing is looked at if no name in it changed.
    ///
    /// # Errors
    /// The folder cannot be read.
    pub(super) fn look(
        &mut self,
        now: SystemTime,
        expiry: Duration,
        warnings: &mut Warnings,
    ) -> io::Result<Changes> {
        let change = place::settled_change(&self.folder, now);
        if change.is_some() && change == self.seen_change {
            return Ok(Changes::default());
        }
        let mut gone: HashSet<(Key, Part)> = self.files.keys().copied().collect();
        let mut added: HashSet<Key> = HashSet::new();
        let mut headers: HashMap<(Key, Part), Entry> = HashMap::new();
        // A file that is being written changes without a name that changes.
        let mut is_settled = true;
        for found in place::list(&self.folder)? {
            match found.name {
                Name::Part(key, part) => {
                    let is_known = self.get(key, part).is_some_and(|known| known.file_bytes == found.bytes);
                    if is_known && found.is_file {
                        gone.remove(&(key, part));
                    } else if let Some(entry) = self.accept(&found, (key, part), (now, expiry), warnings) {
                        gone.remove(&(key, part));
                        added.insert(key);
                        headers.insert((key, part), entry);
                    }
                }
                Name::Wrong => self.reject(&found.path, "is of no checkpoint by its name", warnings),
                Name::Unfinished
                    if found.is_file && place::is_abandoned(&found.path, found.modified, now) =>
                {
                    let _ = place::remove_file(&found.path);
                }
                Name::Unfinished => is_settled = false,
                Name::About | Name::Other => {}
            }
        }
        self.seen_change = change.filter(|_| is_settled);
        self.blocked.retain(|path| fs::symlink_metadata(path).is_ok());
        for (key, part) in &gone {
            self.forget(*key, *part);
        }
        let added = added.into_iter().filter_map(|key| self.merge(key, &mut headers, warnings)).collect();
        Ok(Changes { added, removed: gone.into_iter().collect() })
    }

    /// Takes a new file in, or removes it.
    fn accept(
        &mut self,
        found: &Found,
        name: (Key, Part),
        (now, expiry): (SystemTime, Duration),
        warnings: &mut Warnings,
    ) -> Option<Entry> {
        if !found.is_file {
            self.reject(&found.path, "is not a file", warnings);
            return None;
        }
        if is_expired(found.modified, now, expiry) {
            let _ = place::remove_file(&found.path);
            return None;
        }
        let checked = place::read_header(&found.path).and_then(|header| {
            header.check(name, self.root, self.shape).map_err(Unusable::Wrong)?;
            Ok(header)
        });
        match checked {
            Ok(header) => {
                let (file_bytes, payload_bytes) = (header.file_bytes(), header.payload_bytes());
                self.blocked.remove(&found.path);
                self.insert(name.0, name.1, Known { file_bytes, payload_bytes, last_use: found.modified });
                Some(header.entry(found.modified))
            }
            Err(Unusable::Wrong(why)) => {
                self.reject(&found.path, &why, warnings);
                None
            }
            // Another program was quicker.
            Err(Unusable::Unreadable(e)) if e.kind() == io::ErrorKind::NotFound => None,
            Err(Unusable::Unreadable(e)) => {
                let text = format!("{}: cannot read it: {e}; it is not used", found.path.display());
                self.block(&found.path, text, warnings);
                None
            }
        }
    }

    /// Removes what cannot be used, and says so. Folders go only if they are empty.
    fn reject(&mut self, path: &Path, why: &str, warnings: &mut Warnings) {
        let path_text = path.display();
        let is_folder = fs::symlink_metadata(path).is_ok_and(|meta| meta.is_dir());
        let removed = if is_folder { fs::remove_dir(path) } else { place::remove_file(path) };
        match removed {
            Ok(()) => warnings.push(format!("{path_text}: {why}; removed it from the prefix cache")),
            Err(e) => {
                let text = format!("{path_text}: {why}, and cannot be removed: {e}; remove it by hand");
                self.block(path, text, warnings);
            }
        }
    }

    fn block(&mut self, path: &Path, text: String, warnings: &mut Warnings) {
        if self.blocked.insert(path.to_owned()) {
            warnings.push(text);
        }
    }

    /// One entry of the two parts of a node, of which at least one is new.
    fn merge(
        &mut self,
        key: Key,
        headers: &mut HashMap<(Key, Part), Entry>,
        warnings: &mut Warnings,
    ) -> Option<Entry> {
        let mut part = |part| {
            headers.remove(&(key, part)).or_else(|| {
                let last_use = self.get(key, part)?.last_use;
                let header = place::read_header(&self.path(key, part)).ok()?;
                header.check((key, part), self.root, self.shape).ok()?;
                Some(header.entry(last_use))
            })
        };
        match (part(Part::Kv), part(Part::State)) {
            (Some(kv), Some(state)) if kv.start == state.start => Some(Entry {
                state_bytes: state.state_bytes,
                last_use: kv.last_use.max(state.last_use),
                ..kv
            }),
            (Some(kv), Some(_)) => {
                self.forget(key, Part::State);
                self.reject(
                    &self.path(key, Part::State),
                    "begins at another position than its node",
                    warnings,
                );
                Some(kv)
            }
            (kv, state) => kv.or(state),
        }
    }

    /// Removes what nobody, also no other program, used for so long.
    pub(super) fn expire(&mut self, now: SystemTime, expiry: Duration) -> Vec<(Key, Part)> {
        let mut expired = Vec::new();
        for (&(key, part), known) in &mut self.files {
            if !is_expired(known.last_use, now, expiry) {
                continue;
            }
            let path = self.folder.join(place::file_name(key, part));
            if let Ok(modified) = fs::symlink_metadata(path).and_then(|meta| meta.modified()) {
                known.last_use = known.last_use.max(modified);
            }
            if is_expired(known.last_use, now, expiry) {
                expired.push((key, part));
            }
        }
        expired.retain(|&(key, part)| self.remove(key, part).is_ok());
        expired
    }
}

pub(super) fn is_expired(last_use: SystemTime, now: SystemTime, expiry: Duration) -> bool {
    now.duration_since(last_use).is_ok_and(|age| age > expiry)
}
