//! Where downloaded files go: plain into a folder, or into the cache that other programs share.

use std::collections::HashMap;
use std::fs::{self, File};
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::UNIX_EPOCH;

use xxhash_rust::xxh3::xxh3_64;

use crate::HubError;
use crate::cache::{CachedRepo, symlink};
use crate::digest::{Digest, Hasher};
use crate::listing::RemoteFile;
use crate::name::{JOURNAL_ENDING, PART_ENDING};
use crate::part::{journal_path, refuse_link};

/// The list of files in a folder that were downloaded and checked.
const RECORD_NAME: &str = ".flash-moe-pulled";
const RECORD_BYTES_MAX: u64 = 16 << 20;

/// Where the files of one repository at one commit go.
pub(crate) enum Place {
    Folder(Folder),
    Cache { repo: CachedRepo, revision: String, commit: String },
}

/// Files under their own names.
pub(crate) struct Folder {
    root: PathBuf,
    /// By name: what was checked. A file that has changed since is checked again.
    record: Mutex<HashMap<String, Seen>>,
}

/// A checked file: digest, size, time of change in ns.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Seen {
    digest: String,
    bytes: u64,
    modified_ns: u128,
}

impl Place {
    /// A folder, which is made if need be.
    pub(crate) fn folder(root: &Path) -> Result<Self, HubError> {
        fs::create_dir_all(root).map_err(HubError::io(root, "make the folder"))?;
        let record = Mutex::new(read_record(&root.join(RECORD_NAME)));
        Ok(Place::Folder(Folder { root: root.to_owned(), record }))
    }

    /// The folder of a repository in a cache, which is made if need be.
    pub(crate) fn cache(cache: &Path, id: &str, revision: &str, commit: &str) -> Result<Self, HubError> {
        let repo = CachedRepo::new(cache, id);
        let blobs = repo.dir.join("blobs");
        fs::create_dir_all(&blobs).map_err(HubError::io(&blobs, "make the folder"))?;
        let (revision, commit) = (revision.to_owned(), commit.to_owned());
        Ok(Place::Cache { repo, revision, commit })
    }

    /// The folder that has all files in the end.
    pub(crate) fn root(&self) -> PathBuf {
        match self {
            Place::Folder(folder) => folder.root.clone(),
            Place::Cache { repo, commit, .. } => repo.snapshot(commit),
        }
    }

    /// Where a file is written until it is complete. Not `.incomplete`: other programs would go on where such a file
    /// ends, and ours has holes.
    pub(crate) fn part(&self, file: &RemoteFile) -> Result<PathBuf, HubError> {
        Ok(match self {
            Place::Folder(folder) => {
                create_folders(&folder.root, &file.name)?;
                folder.root.join(format!("{}{PART_ENDING}", file.name))
            }
            Place::Cache { repo, commit, .. } => {
                let unnamed = || format!("{:016x}", xxh3_64(format!("{commit}/{}", file.name).as_bytes()));
                let digest = file.digest.as_ref().map_or_else(unnamed, |digest| digest.hex().to_owned());
                repo.blob(&format!("{digest}{PART_ENDING}"))
            }
        })
    }

    /// Is the file there already? A checked one, that is: what is not known is hashed.
    pub(crate) fn has(&self, file: &RemoteFile) -> Result<bool, HubError> {
        let bytes = file.bytes;
        let is_as_long =
            |path: &Path| fs::metadata(path).is_ok_and(|m| m.is_file() && Some(m.len()) == bytes);
        match self {
            Place::Folder(folder) => folder.has(file),
            Place::Cache { repo, commit, .. } => match &file.digest {
                Some(digest) if is_as_long(&repo.blob(digest.hex())) => {
                    repo.link(commit, &file.name, digest.hex(), symlink)?;
                    Ok(true)
                }
                _ => Ok(is_as_long(&repo.snapshot(commit).join(&file.name))),
            },
        }
    }

    /// Gives a complete part its name, and names of others with the same bytes.
    pub(crate) fn put(&self, part: &Path, files: &[&RemoteFile], digest: &Digest) -> Result<(), HubError> {
        match self {
            Place::Folder(folder) => files.iter().try_for_each(|file| folder.put(part, &file.name, digest)),
            Place::Cache { repo, commit, .. } => {
                rename_durably(part, &repo.blob(digest.hex()))?;
                files.iter().try_for_each(|file| repo.link(commit, &file.name, digest.hex(), symlink))
            }
        }
    }

    /// All files are there.
    pub(crate) fn finish(&self) -> Result<(), HubError> {
        match self {
            Place::Folder(_) => Ok(()),
            Place::Cache { repo, revision, commit } => repo.set_ref(revision, commit),
        }
    }
}

impl Folder {
    fn has(&self, file: &RemoteFile) -> Result<bool, HubError> {
        let path = self.root.join(&file.name);
        refuse_link(&path)?;
        let Ok(meta) = fs::metadata(&path) else { return Ok(false) };
        if !meta.is_file() || Some(meta.len()) != file.bytes {
            return Ok(false);
        }
        let Some(digest) = &file.digest else { return Ok(true) };
        let seen = seen(&path, digest)?;
        let is_known = self.record().get(&file.name) == Some(&seen);
        if !is_known && hash(&path, digest, meta.len())? != *digest {
            return Ok(false);
        }
        // A run that was killed at the end may have left it.
        let _ = fs::remove_file(self.root.join(format!("{}{JOURNAL_ENDING}", file.name)));
        if !is_known {
            self.add(&file.name, seen)?;
        }
        Ok(true)
    }

    fn put(&self, part: &Path, name: &str, digest: &Digest) -> Result<(), HubError> {
        let path = self.root.join(name);
        rename_durably(part, &path)?;
        self.add(name, seen(&path, digest)?)
    }

    fn record(&self) -> std::sync::MutexGuard<'_, HashMap<String, Seen>> {
        self.record.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Remembers that a file was checked.
    fn add(&self, name: &str, seen: Seen) -> Result<(), HubError> {
        let mut record = self.record();
        record.insert(name.to_owned(), seen);
        let mut lines: Vec<String> = record
            .iter()
            .map(|(name, Seen { digest, bytes, modified_ns })| {
                format!("{digest} {bytes} {modified_ns} {name}\n")
            })
            .collect();
        lines.sort();
        write_whole(&self.root.join(RECORD_NAME), lines.concat().as_bytes())
    }
}

fn read_record(path: &Path) -> HashMap<String, Seen> {
    let mut text = String::new();
    let read = File::open(path).and_then(|file| file.take(RECORD_BYTES_MAX).read_to_string(&mut text));
    if read.is_err() || path.is_symlink() {
        return HashMap::new();
    }
    let parse = |line: &str| {
        let mut words = line.splitn(4, ' ');
        let digest = words.next()?.to_owned();
        let (bytes, modified_ns) = (words.next()?.parse().ok()?, words.next()?.parse().ok()?);
        Some((words.next()?.to_owned(), Seen { digest, bytes, modified_ns }))
    };
    text.lines().filter_map(parse).collect()
}

fn seen(path: &Path, digest: &Digest) -> Result<Seen, HubError> {
    let meta = fs::metadata(path).map_err(HubError::io(path, "look at the file"))?;
    let modified = meta.modified().ok().and_then(|time| time.duration_since(UNIX_EPOCH).ok());
    let modified_ns = modified.map_or(0, |duration| duration.as_nanos());
    Ok(Seen { digest: digest.hex().to_owned(), bytes: meta.len(), modified_ns })
}

/// The digest of a file, of the kind of `like`.
fn hash(path: &Path, like: &Digest, bytes: u64) -> Result<Digest, HubError> {
    let mut hasher = Hasher::new(Some(like), bytes);
    let mut file = File::open(path).map_err(HubError::io(path, "open"))?;
    let mut buffer = vec![0; 1 << 20];
    loop {
        match file.read(&mut buffer).map_err(HubError::io(path, "read"))? {
            0 => return Ok(hasher.finish()),
            n => hasher.update(&buffer[..n]),
        }
    }
}

/// A part whose bytes are on the disk becomes a file; then its journal has served.
fn rename_durably(part: &Path, path: &Path) -> Result<(), HubError> {
    store::rename(part, path).map_err(HubError::io(path, "rename the part"))?;
    let folder = store::parent_of(path);
    store::sync_folder(&folder).map_err(HubError::io(&folder, "flush"))?;
    let journal = journal_path(part);
    fs::remove_file(&journal).map_err(HubError::io(&journal, "remove"))
}

/// Replaces a small file: readers see the old or the new one.
pub(crate) fn write_whole(path: &Path, bytes: &[u8]) -> Result<(), HubError> {
    let unnamed = path.with_added_extension(format!("{}.tmp", std::process::id()));
    refuse_link(&unnamed)?;
    let written = fs::write(&unnamed, bytes).and_then(|()| store::rename(&unnamed, path));
    written.map_err(HubError::io(path, "write"))
}

/// Makes the folders between `root` and its file `name`. A link among them is not followed: it would lead elsewhere.
pub(crate) fn create_folders(root: &Path, name: &str) -> Result<(), HubError> {
    let mut path = root.to_owned();
    for part in name.split('/').rev().skip(1).collect::<Vec<_>>().into_iter().rev() {
        path.push(part);
        refuse_link(&path)?;
        if !path.is_dir() {
            fs::create_dir_all(&path).map_err(HubError::io(&path, "make the folder"))?;
        }
    }
    Ok(())
}
