//! What a user means by a model: a path to a folder, a shard or a GGUF file, a repository's folder in the cache, or the
//! name of a repository that was downloaded before.

use std::fs;
use std::path::{Path, PathBuf};

use crate::cache::{CachedRepo, folder_names};
use crate::select::{GgufSet, NotOne, choose, gguf_sets};
use crate::shards::HOLES_NAME;
use crate::{Choice, HubError, Repo, Settings};

/// A model on this machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Found {
    /// A store's or checkpoint's folder, or the (first) file of a GGUF model.
    pub path: PathBuf,
    /// What was taken, where that is not what was named.
    pub note: Option<String>,
}

/// What makes a folder a model.
const MANIFEST: &str = "manifest.json";
const CONFIG: &str = "config.json";
const SAFETENSORS: &str = ".safetensors";
const INDEX: &str = ".safetensors.index.json";

/// The model that `what` names: a path, or a repository (`owner/name`, `owner/name@revision`, `owner/name:Q4_K_M`) in
/// the cache of `settings`. Without settings only paths are known.
///
/// # Errors
/// Nothing there; several models and none is named; a model of which parts are missing.
pub fn resolve(what: &Path, settings: Option<&Settings>) -> Result<Found, HubError> {
    if what.symlink_metadata().is_ok() {
        return by_path(what);
    }
    let repo = what.to_str().and_then(|text| text.parse::<Repo>().ok().filter(|_| !text.contains("://")));
    if let (Some(repo), Some(settings)) = (repo, settings) {
        return by_name(&repo, &settings.cache);
    }
    Err(no_model(what, "no such file or folder (is the drive connected?)"))
}

fn no_model(path: &Path, why: impl Into<String>) -> HubError {
    HubError::NoModel { path: path.to_owned(), why: why.into() }
}

fn by_name(repo: &Repo, cache: &Path) -> Result<Found, HubError> {
    let cached = CachedRepo::new(cache, &repo.id);
    if !cached.dir.join("snapshots").is_dir() {
        return Err(HubError::NotDownloaded { repo: repo.to_string(), cache: cache.to_owned() });
    }
    let snapshot = cached.find(repo.revision.as_deref())?;
    let path = in_folder(&snapshot, &repo.id, repo.variant.as_deref())?;
    let note = Some(format!("{repo}: taking {} of the cache", path.display()));
    Ok(Found { path, note })
}

fn by_path(path: &Path) -> Result<Found, HubError> {
    let meta = fs::metadata(path).map_err(|_| match fs::read_link(path) {
        Ok(target) => no_model(path, format!("is a link to {}, which is not there", target.display())),
        Err(_) => no_model(path, "cannot be opened"),
    })?;
    let taken = if meta.is_dir() { folder(path)? } else { file(path)? };
    if taken.join(HOLES_NAME).exists() {
        let why = "its weights are not all there: 'pull --pack' was interrupted; run the same command again";
        return Err(no_model(&taken, why));
    }
    let note = (taken != path).then(|| format!("{}: taking {}", path.display(), taken.display()));
    Ok(Found { path: taken, note })
}

/// A shard stands for its folder, a part of a GGUF model for the first part.
fn file(path: &Path) -> Result<PathBuf, HubError> {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let folder = store::parent_of(path);
    if name.ends_with(SAFETENSORS) || name.ends_with(INDEX) || name == CONFIG || name == MANIFEST {
        return Ok(folder);
    }
    if name.ends_with(".gguf") {
        let sets = gguf_sets(files(&folder)?.iter().map(|(name, bytes)| (name.as_str(), Some(*bytes))));
        let Some(set) = sets.into_iter().find(|set| set.names.iter().any(|part| *part == *name)) else {
            return Ok(path.to_owned());
        };
        let parts = choose(vec![set], None).map_err(|not_one| match not_one {
            NotOne::None(why) => no_model(path, why),
            NotOne::Several(_) => unreachable!("one was given"),
        })?;
        return first_part(&folder, &parts);
    }
    Err(no_model(path, "is neither a safetensors nor a GGUF file"))
}

fn folder(path: &Path) -> Result<PathBuf, HubError> {
    if is_cached(path) {
        let cached = CachedRepo { dir: path.to_owned() };
        let what = cached.id().unwrap_or_else(|| path.display().to_string());
        return in_folder(&cached.find(None)?, &what, None);
    }
    in_folder(path, &path.display().to_string(), None)
}

/// The model in a folder: the folder itself, a GGUF model in it, or what is in one of its folders.
fn in_folder(path: &Path, what: &str, variant: Option<&str>) -> Result<PathBuf, HubError> {
    if variant.is_none() && is_model(path) {
        return Ok(path.to_owned());
    }
    let mut weights = files(path)?;
    let mut folders = Vec::new();
    for name in folder_names(path)? {
        // In a cache each repository is a folder: one that is unfinished is nothing to choose from.
        let child = path.join(&name);
        let child = if is_cached(&child) { CachedRepo { dir: child }.find(None).ok() } else { Some(child) };
        let Some(child) = child else { continue };
        if variant.is_none() && is_model(&child) {
            folders.push((Choice { name, bytes: None }, child));
        } else if let (Ok(inside), Ok(relative)) = (files(&child), child.strip_prefix(path)) {
            let relative = relative.to_string_lossy().replace('\\', "/");
            weights.extend(inside.into_iter().map(|(file, bytes)| (format!("{relative}/{file}"), bytes)));
        }
    }
    let sets = gguf_sets(weights.iter().map(|(name, bytes)| (name.as_str(), Some(*bytes))));
    if folders.is_empty() && sets.is_empty() {
        return Err(no_model(path, nothing_in(path)?));
    }
    if folders.len() == 1 && sets.is_empty() {
        return Ok(folders.remove(0).1);
    }
    let mut choices: Vec<Choice> = folders.into_iter().map(|(choice, _)| choice).collect();
    if choices.is_empty() {
        match choose(sets, variant) {
            Ok(set) => return first_part(path, &set),
            Err(NotOne::None(why)) => return Err(no_model(path, why)),
            Err(NotOne::Several(sets)) => choices = sets,
        }
    } else {
        choices.extend(sets.into_iter().map(|set| Choice { bytes: set.bytes, name: set.stem }));
    }
    Err(HubError::Choose { what: what.to_owned(), choices })
}

/// The folder of a repository in a cache.
fn is_cached(path: &Path) -> bool {
    path.join("snapshots").is_dir()
}

/// A store, or a checkpoint. Whether all of it is there is for its reader to say.
fn is_model(path: &Path) -> bool {
    let has_weights =
        || files(path).is_ok_and(|files| files.iter().any(|(name, _)| name.ends_with(SAFETENSORS)));
    path.join(MANIFEST).is_file() || has_weights()
}

/// The first file of a GGUF model, all of whose files must be there.
fn first_part(folder: &Path, set: &GgufSet) -> Result<PathBuf, HubError> {
    for path in set.names.iter().map(|name| folder.join(name)) {
        match fs::metadata(&path) {
            Ok(meta) if meta.len() > 0 => {}
            Ok(_) => return Err(no_model(&path, "is empty (is the download unfinished?)")),
            Err(_) => return Err(no_model(&path, "is a link to something that is not there")),
        }
    }
    Ok(folder.join(&set.names[0]))
}

/// Names and sizes of the files (and links) in a folder, sorted. Names that are not UTF-8 are not ours.
fn files(dir: &Path) -> Result<Vec<(String, u64)>, HubError> {
    let mut files = Vec::new();
    for entry in fs::read_dir(dir).map_err(HubError::io(dir, "list"))? {
        let entry = entry.map_err(HubError::io(dir, "list"))?;
        let meta = fs::metadata(entry.path()).ok();
        if meta.as_ref().is_none_or(|meta| meta.is_file()) {
            let bytes = meta.map_or(0, |meta| meta.len());
            files.extend(entry.file_name().into_string().map(|name| (name, bytes)));
        }
    }
    files.sort();
    Ok(files)
}

/// Why a folder is no model.
fn nothing_in(path: &Path) -> Result<&'static str, HubError> {
    let files = files(path)?;
    Ok(if files.is_empty() && folder_names(path)?.is_empty() {
        "the folder is empty (is the drive connected?)"
    } else if files.iter().any(|(name, _)| name == CONFIG || name.ends_with(".part")) {
        "there are no weights in this folder (is the download unfinished?)"
    } else {
        "there is no model in this folder: no store, no safetensors, no GGUF"
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    #[cfg(unix)]
    use crate::cache::symlink;

    struct Disk(tempfile::TempDir);

    impl Disk {
        fn new(files: &[&str]) -> Self {
            let disk = Self(tempfile::tempdir().unwrap());
            files.iter().for_each(|name| disk.write(name, "x"));
            disk
        }

        fn path(&self, name: &str) -> PathBuf {
            self.0.path().join(name)
        }

        fn write(&self, name: &str, text: &str) {
            fs::create_dir_all(self.path(name).parent().unwrap()).unwrap();
            fs::write(self.path(name), text).unwrap();
        }

        fn resolve(&self, what: &Path) -> Result<Found, HubError> {
            let (endpoint, cache) = ("http://localhost".into(), self.path("hub"));
            resolve(what, Some(&Settings { endpoint, cache, token: None, use_proxy: false }))
        }

        /// What is taken for the path `what`, and whether a note says so.
        #[track_caller]
        fn takes(&self, what: &str, expected: &str) {
            let found = self.resolve(&self.path(what)).unwrap();
            assert_eq!((found.path, found.note.is_some()), (self.path(expected), what != expected), "{what}");
        }

        #[track_caller]
        fn fails(&self, what: &Path, says: &str) {
            let error = self.resolve(what).unwrap_err().to_string();
            assert!(error.contains(says), "{}: {error}", what.display());
        }
    }

    const SHARD: &str = "model-00001-of-00002.safetensors";

    /// A path would be refused although what is meant is plain, or something else would be taken in silence.
    #[test]
    fn paths_lead_to_models() {
        let disk = Disk::new(&[
            "store/manifest.json",
            "hf/config.json",
            "hf/model-00001-of-00002.safetensors",
            "one/gguf/m-Q4_0.gguf",
            "one/gguf/mmproj-F16.gguf",
            "split/m-00001-of-00002.gguf",
            "split/m-00002-of-00002.gguf",
            "only/inner/manifest.json",
            "unfinished/config.json",
            "other/readme.md",
        ]);
        disk.takes("store", "store");
        disk.takes("store/manifest.json", "store");
        disk.takes("hf", "hf");
        disk.takes(&format!("hf/{SHARD}"), "hf");
        disk.takes("one/gguf", "one/gguf/m-Q4_0.gguf");
        disk.takes("one", "one/gguf/m-Q4_0.gguf");
        disk.takes("one/gguf/m-Q4_0.gguf", "one/gguf/m-Q4_0.gguf");
        disk.takes("split/m-00002-of-00002.gguf", "split/m-00001-of-00002.gguf");
        disk.takes("split", "split/m-00001-of-00002.gguf");
        disk.takes("only", "only/inner");
        disk.fails(&disk.path("unfinished"), "unfinished");
        disk.fails(&disk.path("other"), "no model");
        disk.fails(&disk.path("other/readme.md"), "neither");
        disk.fails(&disk.path("nowhere"), "no such file");
        fs::create_dir(disk.path("empty")).unwrap();
        disk.fails(&disk.path("empty"), "drive connected");
    }

    /// One of several models would be taken at random, or half a model.
    #[test]
    fn several_models_are_listed() {
        let disk = Disk::new(&[
            "two/m-Q4_0.gguf",
            "two/m-Q8_0.gguf",
            "mixed/a/manifest.json",
            "mixed/b/m-Q8_0.gguf",
            "half/m-00001-of-00002.gguf",
            "gap/m-00001-of-00002.gguf",
        ]);
        disk.fails(&disk.path("two"), "2 models: Q4_0 (0.0 kB), Q8_0");
        disk.fails(&disk.path("mixed"), "2 models: a, b/m-Q8_0");
        disk.fails(&disk.path("half"), "1 of 2 parts");
        disk.write("gap/m-00002-of-00002.gguf", "");
        disk.fails(&disk.path("gap"), "is empty");
        #[cfg(unix)]
        {
            fs::remove_file(disk.path("gap/m-00002-of-00002.gguf")).unwrap();
            symlink(Path::new("nowhere"), &disk.path("gap/m-00002-of-00002.gguf")).unwrap();
            disk.fails(&disk.path("gap"), "not there");
        }
    }

    /// What other programs have downloaded would not be found by its name.
    #[test]
    #[cfg(unix)]
    fn the_cache_is_known_by_names() {
        let disk = Disk::new(&["hub/models--a--b/blobs/d1", "hub/models--a--g/snapshots/e1/m-Q4_K_M.gguf"]);
        disk.write("hub/models--a--g/snapshots/e1/m-Q8_0.gguf", "x");
        let snapshot = "hub/models--a--b/snapshots/c1";
        fs::create_dir_all(disk.path(snapshot)).unwrap();
        for name in ["config.json", SHARD] {
            symlink(Path::new("../../blobs/d1"), &disk.path(snapshot).join(name)).unwrap();
        }
        let named = |name: &str| disk.resolve(Path::new(name)).map(|found| found.path);
        assert_eq!(named("a/b").unwrap(), disk.path(snapshot));
        assert!(disk.resolve(Path::new("a/b")).unwrap().note.unwrap().starts_with("a/b: taking "));
        disk.takes("hub/models--a--b", snapshot);
        disk.takes(&format!("{snapshot}/{SHARD}"), snapshot);
        let gguf = "hub/models--a--g/snapshots/e1/m-Q4_K_M.gguf";
        assert_eq!(named("a/g:q4_k_m").unwrap(), disk.path(gguf));
        disk.fails(Path::new("a/g"), "2 models: Q4_K_M");
        disk.fails(Path::new("a/g:Q2_K"), "2 models: Q4_K_M");
        disk.fails(Path::new("a/b@v2"), "v2");
        disk.fails(Path::new("a/none"), "nor in the cache");
        disk.fails(&disk.path("hub"), "models--a--b");
    }
}
