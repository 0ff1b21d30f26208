//! What is remembered between runs: one folder of the user's, written rarely and atomically.
//!
//! Nothing depends on it. What cannot be read is as good as absent, what cannot be written is said with `-v` and
//! forgotten.

use std::fs;
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};

use crate::output::note;

/// No file of ours is larger.
const FILE_BYTES_MAX: u64 = 64 << 20;

/// The folder, if there is a place for one.
#[derive(Clone, Debug)]
pub(crate) struct CacheDir {
    root: Option<PathBuf>,
    is_verbose: bool,
}

impl CacheDir {
    /// `$FLASH_MOE_CACHE`, or the system's place for caches. Without a home nothing is remembered.
    pub(crate) fn open(is_verbose: bool) -> Self {
        let variable =
            |name: &str| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
        Self { root: place(variable), is_verbose }
    }

    /// A folder for a test.
    #[cfg(test)]
    pub(crate) fn at(root: &Path) -> Self {
        Self { root: Some(root.to_owned()), is_verbose: false }
    }

    /// The contents of a file.
    pub(crate) fn read(&self, name: &str) -> Option<Vec<u8>> {
        let path = self.path(name)?;
        match read_bounded(&path) {
            Ok(bytes) => Some(bytes),
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            Err(error) => {
                self.ignore(name, error);
                None
            }
        }
    }

    /// Replaces a file, at once and completely; nobody else may read it.
    pub(crate) fn write(&self, name: &str, bytes: &[u8]) {
        let Some(path) = self.path(name) else { return };
        let partial = path.with_added_extension(format!("{}.tmp", std::process::id()));
        let written = self.folder_of(&path).and_then(|()| write_private(&partial, bytes));
        if let Err(error) = written.and_then(|()| fs::rename(&partial, &path)) {
            let _ = fs::remove_file(&partial);
            if self.is_verbose {
                note(format_args!("note: {} is not kept: {error}", path.display()));
            }
        }
    }

    /// Where a file is or would be; its folder need not exist.
    pub(crate) fn path(&self, name: &str) -> Option<PathBuf> {
        Some(self.root.as_ref()?.join(name))
    }

    /// Says why a file is ignored.
    pub(crate) fn ignore(&self, name: &str, why: impl std::fmt::Display) {
        if let Some(path) = self.path(name).filter(|_| self.is_verbose) {
            note(format_args!("note: {} is ignored: {why}", path.display()));
        }
    }

    fn folder_of(&self, path: &Path) -> io::Result<()> {
        path.parent().map_or(Ok(()), fs::create_dir_all)
    }
}

/// Where caches are kept, from environment variables.
fn place(variable: impl Fn(&str) -> Option<PathBuf>) -> Option<PathBuf> {
    let absolute = |name: &str| variable(name).filter(|path| path.is_absolute());
    if let Some(own) = variable("FLASH_MOE_CACHE") {
        return Some(own);
    }
    let caches = if cfg!(windows) {
        absolute("LOCALAPPDATA")
    } else if let Some(xdg) = absolute("XDG_CACHE_HOME") {
        Some(xdg)
    } else {
        Some(absolute("HOME")?.join(if cfg!(target_os = "macos") { "Library/Caches" } else { ".cache" }))
    };
    Some(caches?.join("flash-moe"))
}

fn write_private(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let mut options = fs::File::options();
    options.write(true).create(true).truncate(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    options.open(path)?.write_all(bytes)
}

fn read_bounded(path: &Path) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    fs::File::open(path)?.take(FILE_BYTES_MAX + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > FILE_BYTES_MAX {
        return Err(io::Error::other("it is too large to be one of ours"));
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Files would be put where nobody looks for them, or somebody's relative path would litter the current folder.
    #[test]
    #[cfg(not(any(windows, target_os = "macos")))]
    fn the_place_is_the_systems() {
        let check = |variables: &[(&str, &str)], expected: Option<&str>| {
            let get = |name: &str| variables.iter().find(|(key, _)| *key == name).map(|(_, v)| v.into());
            assert_eq!(place(get).as_deref(), expected.map(Path::new), "{variables:?}");
        };
        let (home, xdg) = (("HOME", "/home/u"), ("XDG_CACHE_HOME", "/x"));
        check(&[], None);
        check(&[home], Some("/home/u/.cache/flash-moe"));
        check(&[home, xdg], Some("/x/flash-moe"));
        check(&[home, ("XDG_CACHE_HOME", "x")], Some("/home/u/.cache/flash-moe"));
        check(&[("HOME", "u")], None);
        check(&[home, xdg, ("FLASH_MOE_CACHE", "mine")], Some("mine"));
    }

    /// A second run would find nothing, a half-written file, or be stopped by a folder it may not use.
    #[test]
    fn files_come_back_and_trouble_is_no_error() {
        let folder = tempfile::tempdir().unwrap();
        let cache = CacheDir::at(&folder.path().join("new/place"));
        assert_eq!(cache.read("a/b"), None);
        cache.write("a/b", b"one");
        cache.write("a/b", b"two");
        assert_eq!(cache.read("a/b").unwrap(), b"two");
        assert_eq!(fs::read_dir(folder.path().join("new/place/a")).unwrap().count(), 1);
        // A file where a folder should be: reading and writing are given up.
        cache.write("a/b/c", b"three");
        assert_eq!(cache.read("a/b/c"), None);
        let nowhere = CacheDir { root: None, is_verbose: true };
        nowhere.write("a", b"");
        assert_eq!(nowhere.read("a"), None);
    }
}
