//! The cache that hub programs share: `models--OWNER--NAME/{blobs,refs,snapshots}`.
//!
//! A blob is a file named by its digest. A snapshot is a folder named by a commit, whose files are links to blobs. A
//! ref is a file that holds the commit of a branch or tag.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use crate::HubError;
use crate::error::Choice;
use crate::place::{create_folders, write_whole};

/// Longest ref that is read.
const REF_BYTES_MAX: u64 = 256;

/// The folder of one repository in a cache.
#[derive(Clone, Debug)]
pub(crate) struct CachedRepo {
    pub(crate) dir: PathBuf,
}

impl CachedRepo {
    /// Of `owner/name`.
    pub(crate) fn new(cache: &Path, id: &str) -> Self {
        Self { dir: cache.join(format!("models--{}", id.replace('/', "--"))) }
    }

    /// `owner/name`, if the folder is named so.
    pub(crate) fn id(&self) -> Option<String> {
        let name = self.dir.file_name()?.to_str()?.strip_prefix("models--")?;
        Some(name.replacen("--", "/", 1))
    }

    pub(crate) fn blob(&self, digest: &str) -> PathBuf {
        self.dir.join("blobs").join(digest)
    }

    pub(crate) fn snapshot(&self, commit: &str) -> PathBuf {
        self.dir.join("snapshots").join(commit)
    }

    /// Makes file `name` of a snapshot lead to a blob: by a link, or by a copy where there are no links.
    pub(crate) fn link(
        &self,
        commit: &str,
        name: &str,
        digest: &str,
        symlink: fn(&Path, &Path) -> io::Result<()>,
    ) -> Result<(), HubError> {
        let snapshot = self.snapshot(commit);
        let path = snapshot.join(name);
        create_folders(&self.dir, &format!("snapshots/{commit}/{name}"))?;
        let up = "../".repeat(name.matches('/').count() + 2);
        let target = PathBuf::from(format!("{up}blobs/{digest}"));
        if fs::read_link(&path).is_ok_and(|there| there == target) {
            return Ok(());
        }
        if path.symlink_metadata().is_ok() {
            fs::remove_file(&path).map_err(HubError::io(&path, "replace"))?;
        }
        let blob = self.blob(digest);
        let hard_or_copy = |_| fs::hard_link(&blob, &path).or_else(|_| fs::copy(&blob, &path).map(drop));
        symlink(&target, &path).or_else(hard_or_copy).map_err(HubError::io(&path, "make a link to the blob"))
    }

    /// Lets a branch or tag be a commit.
    pub(crate) fn set_ref(&self, revision: &str, commit: &str) -> Result<(), HubError> {
        if revision == commit {
            return Ok(());
        }
        create_folders(&self.dir, &format!("refs/{revision}"))?;
        write_whole(&self.dir.join("refs").join(revision), commit.as_bytes())
    }

    /// The snapshot that `revision` (`main` without one) names, or the only one.
    pub(crate) fn find(&self, revision: Option<&str>) -> Result<PathBuf, HubError> {
        let snapshots = self.dir.join("snapshots");
        let commits = folder_names(&snapshots)?;
        let name = revision.unwrap_or("main");
        let named = read_ref(&self.dir.join("refs").join(name));
        let is_there = |commit: &String| commits.contains(commit);
        if let Some(commit) = named.filter(is_there).or_else(|| Some(name.to_owned()).filter(is_there)) {
            return Ok(snapshots.join(commit));
        }
        match (&commits[..], revision) {
            ([only], None) => Ok(snapshots.join(only)),
            ([], _) => Err(HubError::NoModel { path: snapshots, why: "there is no snapshot".into() }),
            (_, Some(revision)) => {
                let why = format!("revision {revision} is not among the {} snapshots", commits.len());
                Err(HubError::NoModel { path: snapshots, why })
            }
            (_, None) => {
                let choices = commits.into_iter().map(|name| Choice { name, bytes: None }).collect();
                Err(HubError::Choose {
                    what: format!("{} (none is refs/main)", snapshots.display()),
                    choices,
                })
            }
        }
    }
}

/// The commit in a ref. It becomes the name of a folder.
fn read_ref(path: &Path) -> Option<String> {
    let is_small = fs::metadata(path).is_ok_and(|meta| meta.is_file() && meta.len() <= REF_BYTES_MAX);
    let text = is_small.then(|| fs::read_to_string(path).ok())??;
    let commit = text.trim();
    commit.bytes().all(|b| b.is_ascii_alphanumeric()).then(|| commit.to_owned())
}

/// Names of the folders in a folder, sorted. Names that are not UTF-8 are not ours.
pub(crate) fn folder_names(dir: &Path) -> Result<Vec<String>, HubError> {
    let entries = fs::read_dir(dir).map_err(HubError::io(dir, "list"))?;
    let mut names = Vec::new();
    for entry in entries {
        let entry = entry.map_err(HubError::io(dir, "list"))?;
        if entry.path().is_dir() {
            names.extend(entry.file_name().into_string());
        }
    }
    names.sort();
    Ok(names)
}

/// A link to `target` at `path`.
pub(crate) fn symlink(target: &Path, path: &Path) -> io::Result<()> {
    #[cfg(unix)]
    return std::os::unix::fs::symlink(target, path);
    #[cfg(windows)]
    return std::os::windows::fs::symlink_file(target, path);
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The model would not be found by other programs, or (without links) not be there at all.
    #[test]
    fn snapshots_lead_to_blobs() {
        let folder = tempfile::tempdir().unwrap();
        let repo = CachedRepo::new(folder.path(), "a/b--c");
        assert!(repo.dir.ends_with("models--a--b--c"));
        assert_eq!(repo.id().unwrap(), "a/b--c");
        create_folders(&repo.dir, "blobs/x").unwrap();
        fs::write(repo.blob("d1"), "one").unwrap();
        fs::write(repo.blob("d2"), "two").unwrap();
        let no_links: fn(&Path, &Path) -> io::Result<()> = |_, _| Err(io::ErrorKind::PermissionDenied.into());
        for link in [symlink, no_links] {
            for (digest, text) in [("d1", "one"), ("d1", "one"), ("d2", "two")] {
                for name in ["config.json", "sub/deep/x.gguf"] {
                    repo.link("c0ffee", name, digest, link).unwrap();
                    assert_eq!(fs::read_to_string(repo.snapshot("c0ffee").join(name)).unwrap(), text);
                }
            }
        }
    }

    /// Another revision than the one that was named would be taken.
    #[test]
    fn a_snapshot_is_found_by_its_revision() {
        let folder = tempfile::tempdir().unwrap();
        let repo = CachedRepo::new(folder.path(), "a/b");
        let find =
            |revision| repo.find(revision).map(|p| p.file_name().unwrap().to_str().unwrap().to_owned());
        assert!(find(None).is_err());
        fs::create_dir_all(repo.snapshot("aaa")).unwrap();
        assert_eq!(find(None).unwrap(), "aaa");
        assert!(find(Some("v1")).is_err());
        fs::create_dir_all(repo.snapshot("bbb")).unwrap();
        assert!(find(None).unwrap_err().to_string().contains("aaa, bbb"));
        repo.set_ref("main", "bbb").unwrap();
        repo.set_ref("refs/pr/1", "aaa").unwrap();
        assert_eq!(find(None).unwrap(), "bbb");
        assert_eq!(find(Some("refs/pr/1")).unwrap(), "aaa");
        assert_eq!(find(Some("aaa")).unwrap(), "aaa");
        fs::write(repo.dir.join("refs/main"), "../../x").unwrap();
        assert!(find(None).is_err());
    }
}
