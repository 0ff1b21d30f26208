//! `pull`: a model from a hub, as it is or packed on the way.

use std::fs;
use std::path::{Path, PathBuf};

use convert::{Checkpoint, ConvertError, WeightSource};
use hub::{Event, HubError, Options, Pulled, Settings, Shards, Target};

use crate::error::CliError;
use crate::flags::PullFlags;
use crate::hint::quoted;
use crate::output::note;
use crate::pack::pack_checkpoint;
use crate::progress::Progress;
use crate::size::Size;

pub(crate) fn pull(flags: &PullFlags) -> anyhow::Result<()> {
    let settings = Settings::from_env()?;
    let options = Options { n_connection: flags.connections, all_files: flags.all, ..Options::default() };
    if let Some(store) = flags.dir.as_deref().filter(|_| flags.pack) {
        return pull_packed(store, &settings, &options, flags);
    }
    let target = flags.dir.as_deref().map_or(Target::Cache, Target::Folder);
    let mut shown = Shown { is_verbose: flags.verbose, bar: None };
    let pulled = hub::pull(&settings, &flags.repo, target, &options, &mut |event| shown.on(event))?;
    shown.finish();
    summary(&pulled, flags);
    Ok(())
}

/// Packs one weight file while the next comes: the disk has the store, and two files.
fn pull_packed(
    store: &Path,
    settings: &Settings,
    options: &Options,
    flags: &PullFlags,
) -> anyhow::Result<()> {
    if flags.repo.variant.is_some() {
        return Err(
            CliError::Usage("--pack takes the safetensors of a repository: leave ':' out".into()).into()
        );
    }
    if store.symlink_metadata().is_ok() {
        return Err(ConvertError::from(store::StoreError::Exists { path: store.to_owned() }).into());
    }
    let is_verbose = flags.verbose;
    let report = move |event| match event {
        Event::Trouble(text) if is_verbose => note(format_args!("note: {text}; trying again")),
        Event::Note(text) => note(format_args!("note: {text}")),
        _ => {}
    };
    // A folder named as the model, which is what the store remembers.
    let beside = beside(store);
    let name = flags.repo.id.rsplit('/').next().unwrap_or("model");
    let shards = Shards::open(settings, &flags.repo, options, &beside.join(name), &report)?;
    let checkpoint = Checkpoint::open(shards.dir())?;
    shards.run(|| pack_checkpoint(&checkpoint, Some(&Arriving(&shards)), store, &flags.choice))?;
    drop(checkpoint);
    shards.remove()?;
    fs::remove_dir(&beside).map_err(|source| CliError::Io { path: beside, action: "remove", source })?;
    println!("{}", store.display());
    Ok(())
}

/// Where weight files are until they are packed.
fn beside(store: &Path) -> PathBuf {
    store.with_added_extension("pulled")
}

/// Shards of a hub, for a checkpoint that is packed.
struct Arriving<'a>(&'a Shards<'a>);

impl WeightSource for Arriving<'_> {
    fn plan(&self, names: &[String], n_live: usize) -> Result<(), ConvertError> {
        self.0.plan(names, n_live).map_err(|e| arrival("weights", e))
    }

    fn need(&self, name: &str) -> Result<(), ConvertError> {
        self.0.need(name).map_err(|e| arrival(name, e))
    }

    fn done(&self, name: &str) {
        self.0.done(name);
    }
}

fn arrival(name: &str, error: HubError) -> ConvertError {
    ConvertError::Arrival { name: name.to_owned(), source: Box::new(error) }
}

/// What is there now: the model's path on standard output, for scripts.
fn summary(pulled: &Pulled, flags: &PullFlags) {
    let Pulled { n_file, total_bytes, fetched_bytes, seconds, commit, .. } = pulled;
    let plural = if *n_file == 1 { "" } else { "s" };
    let speed = *fetched_bytes as f64 / seconds.max(1e-9) / 1e6;
    let how = match fetched_bytes {
        0 => "all were there already".to_owned(),
        bytes => format!("{} fetched in {seconds:.1} s, {speed:.0} MB/s", Size(*bytes)),
    };
    let repo = &flags.repo.id;
    note(format_args!("{repo} at {commit}: {n_file} file{plural}, {} ({how})", Size(*total_bytes)));
    let path = pulled.model.display().to_string();
    note(format_args!("look at it: flash-moe inspect {}", quoted(&path)));
    println!("{path}");
}

/// A bar that starts when the size of the work is known.
struct Shown {
    is_verbose: bool,
    bar: Option<Progress>,
}

impl Shown {
    fn on(&mut self, event: Event) {
        match event {
            Event::Plan { n_file, total_bytes, there_bytes } => {
                let there = match there_bytes {
                    0 => String::new(),
                    bytes => format!(", {} of it there already", Size(bytes)),
                };
                note(format_args!("pull: {n_file} files, {}{there}", Size(total_bytes)));
                self.bar = Some(Progress::new("pull", total_bytes, there_bytes));
            }
            Event::Progress { done_bytes, .. } => {
                if let Some(bar) = &mut self.bar {
                    bar.at(done_bytes);
                }
            }
            Event::Trouble(text) if self.is_verbose => note(format_args!("note: {text}; trying again")),
            Event::Trouble(_) => {}
            Event::Note(text) => note(format_args!("note: {text}")),
        }
    }

    fn finish(self) {
        if let Some(bar) = self.bar {
            bar.finish();
        }
    }
}
