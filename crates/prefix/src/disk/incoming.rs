//! A node that comes from elsewhere: its files get their names together, or nothing stays of them.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use super::budget::{self, Budget};
use super::filling::Filling;
use super::header::Header;
use super::{Part, place};
use crate::{Identity, Key};

/// Parts on their way into the folder of their identity.
pub(crate) struct Incoming {
    root: PathBuf,
    folder: PathBuf,
    identity: Identity,
    /// Nobody else had the folder before: it goes if nothing comes.
    made_folder: bool,
    parts: Vec<Arriving>,
    /// Files that have their names.
    named: Vec<PathBuf>,
    is_complete: bool,
}

struct Arriving {
    name: (Key, Part),
    file_bytes: u64,
    /// `None`: the part was there already.
    unfinished: Option<(PathBuf, Filling)>,
}

impl Incoming {
    /// Makes the folder `root/<identity>` if it is not there.
    pub(crate) fn begin(root: &Path, identity: &Identity) -> io::Result<Self> {
        let folder = root.join(identity.root().hex());
        let made_folder = fs::symlink_metadata(&folder).is_err();
        place::make_folder(&folder)?;
        Ok(Self {
            root: root.to_owned(),
            folder,
            identity: identity.clone(),
            made_folder,
            parts: Vec::new(),
            named: Vec::new(),
            is_complete: false,
        })
    }

    /// The folder.
    pub(crate) fn folder(&self) -> &Path {
        &self.folder
    }

    /// Begins a part, whose header was checked; [`Self::block`] gets its blocks.
    pub(crate) fn part(&mut self, header: &Header) -> io::Result<()> {
        let name = (header.key(), header.part);
        let identity = (self.identity.root(), self.identity.shape);
        let standing = place::standing(&self.folder, name, identity, header.payload_bytes());
        let mut arriving = Arriving { name, file_bytes: header.file_bytes(), unfinished: None };
        if standing.is_none() {
            let (path, file) = place::make_unfinished(&self.folder, name.0, name.1)?;
            match Filling::begin(file, header) {
                Ok(filling) => arriving.unfinished = Some((path, filling)),
                Err(error) => {
                    let _ = place::remove_file(&path);
                    return Err(error);
                }
            }
        }
        self.parts.push(arriving);
        Ok(())
    }

    /// The next block of the part that was begun last.
    pub(crate) fn block(&mut self, block: &[u8]) -> io::Result<()> {
        let part = self.parts.last_mut().expect("a part was begun");
        part.unfinished.as_mut().map_or(Ok(false), |(_, filling)| filling.block(block)).map(drop)
    }

    /// Makes all files durable and gives them their names. False: they were there already.
    pub(crate) fn finish(mut self) -> io::Result<bool> {
        for (_, filling) in self.parts.iter_mut().filter_map(|part| part.unfinished.as_mut()) {
            filling.finish()?;
        }
        let mut new_bytes = 0;
        for part in &mut self.parts {
            let Some((unfinished, filling)) = part.unfinished.take() else { continue };
            // Not every system renames what is open.
            drop(filling);
            let path = self.folder.join(place::file_name(part.name.0, part.name.1));
            if let Err(error) = store::rename(&unfinished, &path) {
                let _ = place::remove_file(&unfinished);
                return Err(error);
            }
            self.named.push(path);
            new_bytes += part.file_bytes;
        }
        store::sync_folder(&self.folder)?;
        self.is_complete = true;
        // For people and for the day's limit; what is there can be used without.
        let _ = place::write_about(&self.folder, &self.identity);
        let _ = Budget::new(&self.root).take(new_bytes, u64::MAX, budget::day(SystemTime::now()));
        Ok(new_bytes > 0)
    }
}

impl Drop for Incoming {
    fn drop(&mut self) {
        // What cannot be removed is found as left behind later.
        for (unfinished, filling) in self.parts.drain(..).filter_map(|part| part.unfinished) {
            drop(filling);
            let _ = place::remove_file(&unfinished);
        }
        if !self.is_complete {
            self.named.iter().for_each(|path| drop(place::remove_file(path)));
            if self.made_folder {
                let _ = fs::remove_dir(&self.folder);
            }
        }
    }
}
