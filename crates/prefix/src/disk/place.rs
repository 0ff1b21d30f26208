//! Names in the folder of an identity, and what is done to files there: nothing here follows a link that it removes.

use std::fmt;
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, ErrorKind, Read};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime};

use super::Part;
use super::header::{Header, PRELUDE_BYTES};
use crate::{Identity, Key, Shape};

/// The identity, for people.
pub(crate) const ABOUT_NAME: &str = "about.json";
/// Ends the names of files that are not complete.
const UNFINISHED_END: &str = ".tmp";
/// Longest `about.json`.
pub(crate) const ABOUT_BYTES_MAX: u64 = 64 << 10;

/// A file that a program has just made is not locked for a moment.
const UNLOCKED_AGE_MAX: Duration = Duration::from_secs(60);
/// Where files cannot be locked, only their age says that nobody writes them any more.
const UNFINISHED_AGE_MAX: Duration = Duration::from_secs(3600);

/// What a name in the folder of an identity means.
pub(crate) enum Name {
    Part(Key, Part),
    /// Ends as ours do, but is none.
    Wrong,
    Unfinished,
    About,
    /// Of somebody else: left alone.
    Other,
}

/// What a name means.
pub(crate) fn meaning(name: &str) -> Name {
    if name == ABOUT_NAME {
        return Name::About;
    }
    if name.ends_with(UNFINISHED_END) {
        return Name::Unfinished;
    }
    let parts = [Part::Kv, Part::State];
    let found =
        parts.iter().find_map(|&part| Some((part, name.strip_suffix(part.extension())?.strip_suffix('.')?)));
    match found {
        None => Name::Other,
        Some((part, stem)) => Key::from_hex(stem).map_or(Name::Wrong, |key| Name::Part(key, part)),
    }
}

/// The name of a part's file.
pub(crate) fn file_name(key: Key, part: Part) -> String {
    format!("{}.{}", key.hex(), part.extension())
}

/// The name of a file until it is complete: differs for all writers of this process, and usually from those of others.
fn unfinished_name(name: &str) -> String {
    static N_MADE: AtomicU64 = AtomicU64::new(0);
    let n = N_MADE.fetch_add(1, Ordering::Relaxed);
    format!("{name}.{}-{n}{UNFINISHED_END}", std::process::id())
}

/// Makes a folder, and those above it, for this user only.
pub(super) fn make_folder(path: &Path) -> io::Result<()> {
    let mut builder = DirBuilder::new();
    builder.recursive(true);
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    builder.create(path)
}

/// Options that make a file for this user only.
pub(super) fn private() -> OpenOptions {
    let options = File::options();
    #[cfg(unix)]
    let options = {
        let mut options = options;
        std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
        options
    };
    options
}

/// Makes an empty file for a part that is to be written, and locks it: who finds it unlocked knows that its writer is
/// dead.
pub(super) fn make_unfinished(folder: &Path, key: Key, part: Part) -> io::Result<(PathBuf, File)> {
    /// Another program may have the same process id, in a container of its own.
    const N_TRIAL: usize = 100;
    let mut result = Err(ErrorKind::AlreadyExists.into());
    for _ in 0..N_TRIAL {
        let path = folder.join(unfinished_name(&file_name(key, part)));
        result = private().write(true).create_new(true).open(&path).map(|file| (path, file));
        match &result {
            Err(e) if e.kind() == ErrorKind::AlreadyExists => {}
            Err(_) => break,
            Ok((_, file)) => {
                // Where locks do not exist (some network folders) the age has to do.
                let _ = file.try_lock();
                break;
            }
        }
    }
    result
}

/// Was this unfinished file left behind by a program that ended?
pub(super) fn is_abandoned(path: &Path, modified: SystemTime, now: SystemTime) -> bool {
    let age = now.duration_since(modified).unwrap_or_default();
    if age < UNLOCKED_AGE_MAX {
        return false;
    }
    match File::options().write(true).open(path).map(|file| file.try_lock()) {
        Ok(Ok(())) => true,
        Ok(Err(fs::TryLockError::WouldBlock)) => false,
        Ok(Err(fs::TryLockError::Error(_))) | Err(_) => age >= UNFINISHED_AGE_MAX,
    }
}

/// Removes a file; one that is not there is no error. What is not a file is left.
pub(super) fn remove_file(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(e) if e.kind() == ErrorKind::NotFound => Ok(()),
        result => result,
    }
}

/// Why a file cannot be used.
pub(crate) enum Unusable {
    /// It is not what it should be: it can go.
    Wrong(String),
    /// The system does not let us see it: nothing is known.
    Unreadable(io::Error),
}

/// Reads and checks the header of a file.
pub(super) fn read_header(path: &Path) -> Result<Header, Unusable> {
    file_bytes(path)?;
    let mut file = File::open(path).map_err(Unusable::Unreadable)?;
    let meta = file.metadata().map_err(Unusable::Unreadable)?;
    read_header_from(&mut file, meta.len())
}

/// The same of a file with `file_bytes` that is being read; what it gives next are the blocks.
pub(crate) fn read_header_from(file: &mut dyn Read, file_bytes: u64) -> Result<Header, Unusable> {
    let mut bytes = Vec::new();
    read_up_to(file, PRELUDE_BYTES as u64, &mut bytes)?;
    let length = Header::length(&bytes, file_bytes).map_err(Unusable::Wrong)?;
    read_up_to(file, length - bytes.len() as u64, &mut bytes)?;
    Header::decode(&bytes, file_bytes).map_err(Unusable::Wrong)
}

/// The header of a part that is in `folder` already, if it is right and has `payload_bytes` or more.
pub(super) fn standing(
    folder: &Path,
    name: (Key, Part),
    (root, shape): (Key, Shape),
    payload_bytes: u64,
) -> Option<Header> {
    let header = read_header(&folder.join(file_name(name.0, name.1))).ok()?;
    let is_right = header.check(name, root, shape).is_ok() && header.payload_bytes() >= payload_bytes;
    is_right.then_some(header)
}

/// Bytes of a file; a link is none, nor is what could be waited for.
pub(super) fn file_bytes(path: &Path) -> Result<u64, Unusable> {
    match fs::symlink_metadata(path).map_err(Unusable::Unreadable)? {
        meta if meta.is_file() => Ok(meta.len()),
        _ => Err(Unusable::Wrong("is not a file".into())),
    }
}

fn read_up_to(file: &mut dyn Read, n: u64, bytes: &mut Vec<u8>) -> Result<(), Unusable> {
    file.take(n).read_to_end(bytes).map(drop).map_err(Unusable::Unreadable)
}

/// Writes who the checkpoints of a folder are of, if it does not say so yet.
pub(super) fn write_about(folder: &Path, identity: &Identity) -> io::Result<()> {
    if read_about(folder).as_ref() == Some(identity) {
        return Ok(());
    }
    let unfinished = folder.join(unfinished_name(ABOUT_NAME));
    let text = serde_json::to_vec_pretty(identity)?;
    let mut file = private().write(true).create_new(true).open(&unfinished)?;
    io::Write::write_all(&mut file, &text)?;
    drop(file);
    store::rename(&unfinished, &folder.join(ABOUT_NAME))
}

/// Who the checkpoints of a folder are of, as [`write_about`] wrote it.
pub(super) fn read_about(folder: &Path) -> Option<Identity> {
    let path = folder.join(ABOUT_NAME);
    let is_file = fs::symlink_metadata(&path).is_ok_and(|meta| meta.is_file());
    let file = is_file.then(|| File::open(path))?.ok()?;
    let mut bytes = Vec::new();
    file.take(ABOUT_BYTES_MAX).read_to_end(&mut bytes).ok()?;
    serde_json::from_slice(&bytes).ok()
}

impl fmt::Display for Unusable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Wrong(why) => f.write_str(why),
            Self::Unreadable(error) => write!(f, "cannot read it: {error}"),
        }
    }
}

/// A file of a folder.
pub(super) struct Found {
    pub(super) path: PathBuf,
    pub(super) name: Name,
    /// Not followed, if it is a link.
    pub(super) is_file: bool,
    pub(super) bytes: u64,
    pub(super) modified: SystemTime,
}

/// All files of a folder that have a name of ours. What disappears meanwhile is left out.
pub(super) fn list(folder: &Path) -> io::Result<Vec<Found>> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        let Some(name) = entry.file_name().to_str().map(meaning) else { continue };
        // Of the link itself.
        let Ok(meta) = entry.metadata() else { continue };
        if matches!(name, Name::Other) {
            continue;
        }
        let modified = meta.modified().unwrap_or(SystemTime::UNIX_EPOCH);
        found.push(Found { path: entry.path(), name, is_file: meta.is_file(), bytes: meta.len(), modified });
    }
    Ok(found)
}

/// The folders of identities under `root`, with their keys. Links are not followed.
pub(super) fn identities(root: &Path) -> io::Result<Vec<(Key, PathBuf)>> {
    let entries = match fs::read_dir(root) {
        Err(e) if e.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries?,
    };
    let mut found = Vec::new();
    for entry in entries {
        let entry = entry?;
        let key = entry.file_name().to_str().and_then(Key::from_hex);
        if let Some(key) = key.filter(|_| entry.file_type().is_ok_and(|kind| kind.is_dir())) {
            found.push((key, entry.path()));
        }
    }
    Ok(found)
}

/// When the names of a folder last changed; `None`: so lately that more may change without being seen, or unknown.
pub(super) fn settled_change(folder: &Path, now: SystemTime) -> Option<SystemTime> {
    /// The coarsest clocks of file systems.
    const TICK: Duration = Duration::from_secs(2);
    let modified = fs::metadata(folder).and_then(|meta| meta.modified()).ok()?;
    now.duration_since(modified).is_ok_and(|age| age > TICK).then_some(modified)
}
