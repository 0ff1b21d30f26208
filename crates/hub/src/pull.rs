//! From the name of a repository to its files on this machine.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;
use std::time::Instant;

use crate::client::{Client, Patience};
use crate::download::{Event, Job, Options, download};
use crate::listing::{Listing, RemoteFile, complete, file_url, list};
use crate::place::Place;
use crate::select::{NotOne, needed};
use crate::{HubError, Repo, Settings, name};

/// Where the files go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Target<'a> {
    /// Into the cache that hub programs share.
    Cache,
    /// Under their own names into this folder.
    Folder(&'a Path),
}

/// What was downloaded.
#[derive(Clone, Debug)]
pub struct Pulled {
    /// The folder with the files.
    pub folder: PathBuf,
    /// What to name for a model: the folder, or the (first) GGUF file.
    pub model: PathBuf,
    /// Of the repository.
    pub commit: String,
    /// Files that are needed, and their bytes.
    pub n_file: usize,
    /// Bytes of them.
    pub total_bytes: u64,
    /// Bytes that came over the net this time.
    pub fetched_bytes: u64,
    /// Wall time.
    pub seconds: f64,
}

/// Downloads what a model needs of `repo`. What an earlier run finished, or began, is not fetched again.
///
/// Files get their names when size and digest are right; until then each is a `.part` with a journal beside it.
///
/// # Errors
/// No such repository, revision or model in it; no access; a server that cannot be reached or sends wrong bytes;
/// hostile file names; no room. What came so far is kept for the next run.
pub fn pull(
    settings: &Settings,
    repo: &Repo,
    target: Target<'_>,
    options: &Options,
    on: &mut dyn FnMut(Event),
) -> Result<Pulled, HubError> {
    let start = Instant::now();
    let source = Source::open(settings, repo, options)?;
    let (commit, files) = (&source.commit, &source.files);
    let place = match target {
        Target::Folder(dir) => Place::folder(dir)?,
        Target::Cache => Place::cache(&settings.cache, &repo.id, repo.revision(), commit)?,
    };
    let mut missing = Vec::new();
    for file in files {
        if !place.has(file)? {
            missing.push(file);
        }
    }
    let total_bytes = sum(files);
    let fetched_bytes = source.fetch(&place, &missing, total_bytes, on)?;
    place.finish()?;
    let folder = place.root();
    let gguf = files.iter().map(|file| &file.name).filter(|name| name.ends_with(".gguf")).min();
    let has_safetensors = files.iter().any(|file| file.name.ends_with(".safetensors"));
    let model = gguf.filter(|_| !has_safetensors).map_or_else(|| folder.clone(), |name| folder.join(name));
    Ok(Pulled {
        folder,
        model,
        n_file: files.len(),
        total_bytes,
        fetched_bytes,
        seconds: start.elapsed().as_secs_f64(),
        commit: source.commit,
    })
}

/// The files of a model on a hub.
pub(crate) struct Source<'a> {
    pub(crate) client: Client,
    pub(crate) options: &'a Options,
    pub(crate) repo: &'a Repo,
    pub(crate) commit: String,
    /// What is needed, sizes known.
    pub(crate) files: Vec<RemoteFile>,
}

impl<'a> Source<'a> {
    /// Asks the hub what there is, and chooses.
    pub(crate) fn open(settings: &Settings, repo: &'a Repo, options: &'a Options) -> Result<Self, HubError> {
        let client = Client::new(settings, options)?;
        let never = AtomicBool::new(false);
        let mut patience = Patience::new(options, &never);
        let Listing { commit, files } = list(&client, repo, &mut patience)?;
        let mut files = choose(repo, files, options.all_files)?;
        let names = files.iter().map(|file| file.name.as_str());
        name::check_all(names).map_err(|(name, why)| HubError::FileName {
            repo: repo.id.clone(),
            name: name.to_owned(),
            why,
        })?;
        for file in files.iter_mut().filter(|file| file.bytes.is_none()) {
            complete(&client, repo, &commit, file, &mut patience)?;
        }
        Ok(Self { client, options, repo, commit, files })
    }

    /// Fetches `missing` of the `total_bytes` of all files.
    pub(crate) fn fetch(
        &self,
        place: &Place,
        missing: &[&RemoteFile],
        total_bytes: u64,
        on: &mut dyn FnMut(Event),
    ) -> Result<u64, HubError> {
        let (jobs, files) = self.jobs(place, missing)?;
        let needed_bytes: u64 = jobs.iter().map(needed_bytes).sum();
        let root = place.root();
        let beside = jobs.first().map_or(root.as_path(), |job| job.part.as_path());
        if let Some(free_bytes) = store::free_bytes(beside).filter(|&free| free < needed_bytes) {
            return Err(HubError::DiskFull { path: root, needed_bytes, free_bytes });
        }
        // Files with the same bytes are fetched once.
        let there_bytes = total_bytes - jobs.iter().map(|job| job.bytes).sum::<u64>();
        let mut is_planned = false;
        let mut say = |step: Result<u64, String>| {
            let done_bytes = match step {
                Err(trouble) => return on(Event::Trouble(trouble)),
                Ok(bytes) => there_bytes + bytes,
            };
            if !std::mem::replace(&mut is_planned, true) {
                on(Event::Plan { n_file: self.files.len(), total_bytes, there_bytes: done_bytes });
            }
            on(Event::Progress { done_bytes, total_bytes });
        };
        let finish = |i: usize, digest: &_| place.put(&jobs[i].part, &files[i], digest);
        let is_over = AtomicBool::new(false);
        download(&self.client, self.options, &self.repo.id, &jobs, &finish, &is_over, &mut say)
    }

    /// How to fetch a file.
    pub(crate) fn job(&self, file: &RemoteFile, part: PathBuf) -> Job {
        Job {
            name: file.name.clone(),
            url: file_url(&self.client, self.repo, &self.commit, &file.name),
            bytes: file.bytes.expect("sizes were asked for"),
            digest: file.digest.clone(),
            part,
            identity: self.identity(file),
        }
    }

    /// What tells the contents of a file from those that it has at another commit.
    pub(crate) fn identity(&self, file: &RemoteFile) -> String {
        let at_commit = || format!("{} {}", self.commit, file.name);
        file.digest.as_ref().map_or_else(at_commit, |digest| digest.hex().to_owned())
    }

    /// What to fetch, and which files each becomes.
    fn jobs<'f>(
        &self,
        place: &Place,
        missing: &[&'f RemoteFile],
    ) -> Result<(Vec<Job>, Vec<Vec<&'f RemoteFile>>), HubError> {
        let (mut jobs, mut files) = (Vec::new(), Vec::<Vec<&RemoteFile>>::new());
        let mut by_part = HashMap::new();
        for file in missing {
            let part = place.part(file)?;
            let at = *by_part.entry(part.clone()).or_insert(jobs.len());
            if at < jobs.len() {
                files[at].push(file);
                continue;
            }
            jobs.push(self.job(file, part));
            files.push(vec![file]);
        }
        Ok((jobs, files))
    }
}

/// Room on the disk that a file still takes.
fn needed_bytes(job: &Job) -> u64 {
    let taken = std::fs::metadata(&job.part).map_or(0, |meta| store::allocated_bytes(&meta));
    job.bytes.saturating_sub(taken)
}

fn sum(files: &[RemoteFile]) -> u64 {
    files.iter().filter_map(|file| file.bytes).fold(0, u64::saturating_add)
}

fn choose(repo: &Repo, files: Vec<RemoteFile>, all_files: bool) -> Result<Vec<RemoteFile>, HubError> {
    if all_files {
        return Ok(files);
    }
    needed(&files, repo.variant.as_deref()).map_err(|not_one| match not_one {
        NotOne::None(why) => HubError::NoWeights { repo: repo.id.clone(), why },
        NotOne::Several(choices) => HubError::Choose { what: repo.id.clone(), choices },
    })
}
