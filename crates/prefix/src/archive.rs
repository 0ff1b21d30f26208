//! A session in one file: what somebody needs to go on from a prompt that was read on another machine.
//!
//! The file is an uncompressed tar archive with exactly three entries, in this order:
//!
//! ```text
//! about.json        the identity that computed it, at most 64 KiB
//! <key>.kv          keys and values of all tokens, one node from the root
//! <key>.state       the state behind them
//! ```
//!
//! The last two are the files of a folder of the cache, byte for byte. What is read is hostile: nothing in it gives a
//! name or a length that is not checked, and nothing gets its name in the folder before all of it was found right.

use std::fs::File;
use std::io::{self, Read, Write};
use std::ops::Range;
use std::path::{Path, PathBuf};

use tar::{Archive, Entries, Entry, EntryType};
use thiserror::Error;

use crate::cache::{Timeline, block_positions};
use crate::disk::header::{BLOCK_BYTES_MAX, padding_bytes, write_block};
use crate::disk::place::{ABOUT_BYTES_MAX, ABOUT_NAME, Name, Unusable, file_name, meaning, read_header_from};
use crate::disk::{Block, DiskLimits, Header, Incoming, Part, mib};
use crate::{Identity, Key, Shape};

/// Unit of a tar archive, which ends with two of zeros.
const TAR_BYTES: u64 = 512;

/// What came out of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Imported {
    /// What computed it, and under which settings it is used. The model has the name that the file says.
    pub identity: Identity,
    /// Tokens of the session.
    pub n_token: usize,
    /// Bytes of the file.
    pub file_bytes: u64,
    /// Where it is now.
    pub folder: PathBuf,
    /// False: it was there already.
    pub is_new: bool,
}

/// Why a file was not taken.
#[derive(Debug, Error)]
pub enum ArchiveError {
    /// The system does not read or write it.
    #[error("{path}: cannot {action}: {source}")]
    Io {
        /// The file, or the folder.
        path: PathBuf,
        /// What was tried.
        action: &'static str,
        /// What the system says.
        source: io::Error,
    },
    /// Something else.
    #[error("{path}: is not a session file: {why}")]
    Foreign {
        /// The file.
        path: PathBuf,
        /// What tells.
        why: String,
    },
    /// Not as it was written, or never right.
    #[error("{path}: is damaged: {why}")]
    Damaged {
        /// The file.
        path: PathBuf,
        /// Where and what.
        why: String,
    },
    /// It is of another model or program, or of other settings.
    #[error("{path}: {why}")]
    Refused {
        /// The file.
        path: PathBuf,
        /// The caller's reason.
        why: String,
    },
    /// The cache may not take so much.
    #[error("{path}: has {}, the cache may take {}", mib(*file_bytes), mib(*limit_bytes))]
    TooLarge {
        /// The file.
        path: PathBuf,
        /// Its size.
        file_bytes: u64,
        /// [`DiskLimits::size_bytes`].
        limit_bytes: u64,
    },
    /// The drive is full.
    #[error(
        "{folder}: {} are needed, {} of them stay free, and {} are",
        mib(*needed_bytes), mib(*kept_free_bytes), mib(*free_bytes)
    )]
    NoRoom {
        /// Of the cache.
        folder: PathBuf,
        /// What is needed, with what stays free.
        needed_bytes: u64,
        /// [`DiskLimits::free_bytes`].
        kept_free_bytes: u64,
        /// What there is.
        free_bytes: u64,
    },
}

/// Writes a session that was fed `ids` and has the recurrent `state` behind them, with or without logits. Keys and
/// values are read from it twice, a block at a time: their checksums come first. Bytes of the file.
///
/// # Errors
/// The file cannot be written, or the session not be read.
///
/// # Panics
/// There are no ids, or `state` is not as long as the identity says.
pub fn export(
    out: &mut dyn Write,
    identity: &Identity,
    ids: &[u32],
    state: &[u8],
    timeline: &dyn Timeline,
) -> io::Result<u64> {
    let Shape { kv_token_bytes, state_bytes, logits_bytes } = identity.shape;
    assert!(!ids.is_empty() && [state_bytes, state_bytes + logits_bytes].contains(&state.len()));
    let (root, mut kv) = (identity.root(), Vec::new());
    let mut each_block = |act: &mut dyn FnMut(&[u8]) -> io::Result<()>| -> io::Result<()> {
        for positions in block_positions(identity.shape, 0..ids.len()) {
            kv.resize(positions.len() * kv_token_bytes, 0);
            timeline.read_kv(positions, &mut kv).map_err(io::Error::other)?;
            kv.chunks(BLOCK_BYTES_MAX).try_for_each(&mut *act)?;
        }
        Ok(())
    };
    let header = |part, blocks| Header { part, root, parent: root, start: 0, ids: ids.to_vec(), blocks };
    let mut blocks = Vec::new();
    each_block(&mut |block| {
        blocks.push(Block::of(block));
        Ok(())
    })?;
    let kv_header = header(Part::Kv, blocks);
    let state_header = header(Part::State, state.chunks(BLOCK_BYTES_MAX).map(Block::of).collect());
    let about = serde_json::to_vec_pretty(identity)?;
    let about_bytes = about.len() as u64;
    if about_bytes > ABOUT_BYTES_MAX {
        return Err(io::Error::other(format!("the model's name and settings have {about_bytes} bytes")));
    }

    begin_entry(out, ABOUT_NAME, about_bytes)?;
    out.write_all(&about)?;
    write_zeros(out, about_bytes.next_multiple_of(TAR_BYTES) - about_bytes)?;
    begin_part(out, &kv_header)?;
    each_block(&mut |block| write_block(out, block))?;
    begin_part(out, &state_header)?;
    state.chunks(BLOCK_BYTES_MAX).try_for_each(|block| write_block(out, block))?;
    write_zeros(out, 2 * TAR_BYTES)?;
    Ok(archive_bytes(about_bytes, [&kv_header, &state_header]))
}

/// Bytes of the file.
fn archive_bytes(about_bytes: u64, parts: [&Header; 2]) -> u64 {
    let entry = |bytes: u64| TAR_BYTES + bytes.next_multiple_of(TAR_BYTES);
    entry(about_bytes) + parts.iter().map(|header| entry(header.file_bytes())).sum::<u64>() + 2 * TAR_BYTES
}

fn begin_part(out: &mut dyn Write, header: &Header) -> io::Result<()> {
    begin_entry(out, &file_name(header.key(), header.part), header.file_bytes())?;
    out.write_all(&header.encode())
}

fn begin_entry(out: &mut dyn Write, name: &str, bytes: u64) -> io::Result<()> {
    let mut header = tar::Header::new_gnu();
    header.set_path(name)?;
    header.set_entry_type(EntryType::Regular);
    header.set_mode(0o600);
    header.set_uid(0);
    header.set_gid(0);
    header.set_mtime(0);
    header.set_size(bytes);
    header.set_cksum();
    out.write_all(header.as_bytes())
}

fn write_zeros(out: &mut dyn Write, n: u64) -> io::Result<()> {
    io::copy(&mut io::repeat(0).take(n), out).map(drop)
}

/// Whose session a file has; the rest of it is not looked at.
///
/// # Errors
/// It cannot be read, or is no session file.
pub fn read_identity(path: &Path) -> Result<Identity, ArchiveError> {
    let mut archive = Archive::new(open(path)?.0);
    let mut reading = Reading::begin(path, &mut archive)?;
    Ok(reading.about()?.0)
}

/// Puts the session of a file into the folder `root` of all identities, if `accept` does not refuse what computed it:
/// there it is `model`'s. Everything is checked before anything gets its name, and nothing is left of what is refused.
///
/// # Errors
/// It is no session file, is damaged, refused, or has no room.
pub fn import(
    path: &Path,
    root: &Path,
    limits: &DiskLimits,
    model: &str,
    accept: &dyn Fn(&Identity) -> Result<(), String>,
) -> Result<Imported, ArchiveError> {
    let (file, file_bytes) = open(path)?;
    let mut archive = Archive::new(file);
    let mut reading = Reading::begin(path, &mut archive)?;
    let (identity, about_bytes) = reading.about()?;
    accept(&identity).map_err(|why| ArchiveError::Refused { path: path.to_owned(), why })?;
    let limit_bytes = limits.size_bytes;
    if file_bytes > limit_bytes {
        return Err(ArchiveError::TooLarge { path: path.to_owned(), file_bytes, limit_bytes });
    }
    let own = Identity { model: model.to_owned(), ..identity.clone() };
    let cannot = |path: &Path, action| {
        let path = path.to_owned();
        move |source| ArchiveError::Io { path, action, source }
    };
    let mut incoming = Incoming::begin(root, &own).map_err(cannot(root, "make a folder in"))?;
    let folder = incoming.folder().to_owned();
    let needed_bytes = file_bytes.saturating_add(limits.free_bytes);
    if let Some(free_bytes) = store::free_bytes(&folder.join("any")).filter(|free| *free < needed_bytes) {
        let kept_free_bytes = limits.free_bytes;
        return Err(ArchiveError::NoRoom { folder, needed_bytes, kept_free_bytes, free_bytes });
    }
    let (kv, n_token) = reading.part(Part::Kv, None, &identity, &mut incoming)?;
    let (state, _) = reading.part(Part::State, Some(kv.key()), &identity, &mut incoming)?;
    reading.end(archive_bytes(about_bytes, [&kv, &state]), file_bytes)?;
    let is_new = incoming.finish().map_err(cannot(&folder, "write to"))?;
    Ok(Imported { identity, n_token, file_bytes, folder, is_new })
}

/// A file, and its bytes.
fn open(path: &Path) -> Result<(File, u64), ArchiveError> {
    let cannot = |source| ArchiveError::Io { path: path.to_owned(), action: "read", source };
    // Opening a pipe would wait for its writer.
    if !path.metadata().map_err(cannot)?.is_file() {
        return Err(ArchiveError::Foreign { path: path.to_owned(), why: "it is not a file".into() });
    }
    let file = File::open(path).map_err(cannot)?;
    let file_bytes = file.metadata().map_err(cannot)?.len();
    Ok((file, file_bytes))
}

/// A file on its way from the first entry to the last.
struct Reading<'a> {
    path: &'a Path,
    entries: Entries<'a, File>,
}

impl<'a> Reading<'a> {
    fn begin(path: &'a Path, archive: &'a mut Archive<File>) -> Result<Self, ArchiveError> {
        let entries = archive.entries();
        let cannot = |source| ArchiveError::Io { path: path.to_owned(), action: "read", source };
        // Raw: long names and other extensions are entries like others, and refused.
        Ok(Self { path, entries: entries.map_err(cannot)?.raw(true) })
    }

    fn foreign(&self, why: impl Into<String>) -> ArchiveError {
        ArchiveError::Foreign { path: self.path.to_owned(), why: why.into() }
    }

    fn damaged(&self, why: impl Into<String>) -> ArchiveError {
        ArchiveError::Damaged { path: self.path.to_owned(), why: why.into() }
    }

    /// The next entry, its name and its bytes; `None`: there is none.
    fn next(&mut self) -> Result<Option<(Entry<'a, File>, String, u64)>, String> {
        let Some(entry) = self.entries.next() else { return Ok(None) };
        let entry = entry.map_err(|error| match error.raw_os_error() {
            // What the reader says otherwise quotes the file.
            None => "it is no tar archive, or broken off".to_owned(),
            Some(_) => format!("cannot read it: {error}"),
        })?;
        if entry.header().entry_type() != EntryType::Regular {
            return Err("it has an entry that is not a file".into());
        }
        let name = String::from_utf8(entry.path_bytes().into_owned());
        let name = name.map_err(|_| "it has an entry with an odd name")?;
        let bytes = entry.size();
        Ok(Some((entry, name, bytes)))
    }

    /// Whose session it is, and how many bytes say so.
    fn about(&mut self) -> Result<(Identity, u64), ArchiveError> {
        let next = self.next().map_err(|why| self.foreign(why))?;
        let Some((entry, _, bytes)) =
            next.filter(|(_, name, bytes)| name == ABOUT_NAME && *bytes <= ABOUT_BYTES_MAX)
        else {
            return Err(self.foreign(format!("it does not begin with {ABOUT_NAME}")));
        };
        let mut text = Vec::new();
        let read = entry.take(ABOUT_BYTES_MAX).read_to_end(&mut text);
        read.map_err(|error| self.damaged(error.to_string()))?;
        let identity = serde_json::from_slice(&text);
        let identity =
            identity.map_err(|error| self.foreign(format!("its {ABOUT_NAME} is wrong: {error}")))?;
        Ok((identity, bytes))
    }

    /// Copies the next entry, which is this part of the node `key` (`None`: of any node that begins at the root).
    fn part(
        &mut self,
        part: Part,
        key: Option<Key>,
        identity: &Identity,
        incoming: &mut Incoming,
    ) -> Result<(Header, usize), ArchiveError> {
        let next = self.next().map_err(|why| self.damaged(why))?;
        let Some((mut entry, name, bytes)) = next else { return Err(self.damaged("entries are missing")) };
        let named = match meaning(&name) {
            Name::Part(named, is_of) if is_of == part && key.is_none_or(|key| key == named) => named,
            _ => return Err(self.damaged("it has an entry with another name than a session's")),
        };
        let wrong =
            |why: String| ArchiveError::Damaged { path: self.path.to_owned(), why: format!("{name}: {why}") };
        let header = read_header_from(&mut entry, bytes).map_err(|error| match error {
            Unusable::Wrong(why) => wrong(why),
            Unusable::Unreadable(error) => wrong(error.to_string()),
        })?;
        header.check((named, part), identity.root(), identity.shape).map_err(wrong)?;
        if header.parent != identity.root() || header.start != 0 {
            return Err(wrong("does not begin at the first token".into()));
        }
        if !is_cut_right(&header, identity.shape) {
            return Err(wrong("its blocks are of other sizes than they should be".into()));
        }
        let to = incoming.folder().to_owned();
        let cannot = |source| ArchiveError::Io { path: to.clone(), action: "write to", source };
        incoming.part(&header).map_err(cannot)?;
        let mut padded = Vec::new();
        for (idx, block) in header.blocks.iter().enumerate() {
            padded.resize(block.bytes + padding_bytes(block.bytes), 0);
            entry.read_exact(&mut padded).map_err(|error| wrong(format!("block {idx}: {error}")))?;
            let (payload, padding) = padded.split_at(block.bytes);
            if Block::of(payload) != *block || padding.iter().any(|byte| *byte != 0) {
                return Err(wrong(format!("block {idx} is not what was written")));
            }
            incoming.block(payload).map_err(cannot)?;
        }
        let n_token = header.ids.len();
        Ok((header, n_token))
    }

    /// Refuses whatever is behind the last entry.
    fn end(&mut self, expected_bytes: u64, file_bytes: u64) -> Result<(), ArchiveError> {
        if self.next().map_err(|why| self.damaged(why))?.is_some() || file_bytes != expected_bytes {
            return Err(self.damaged(format!("it has {file_bytes} bytes, not {expected_bytes}")));
        }
        Ok(())
    }
}

/// Are the blocks those of a node that begins at the root? Others could not be taken up again.
fn is_cut_right(header: &Header, shape: Shape) -> bool {
    let cut = |range: Range<usize>, unit: usize| {
        let bytes = range.len() * unit;
        (0..bytes).step_by(BLOCK_BYTES_MAX).map(move |at| BLOCK_BYTES_MAX.min(bytes - at))
    };
    let blocks = header.blocks.iter().map(|block| block.bytes);
    match header.part {
        Part::Kv => {
            let positions = block_positions(shape, 0..header.ids.len());
            blocks.eq(positions.flat_map(|at| cut(at, shape.kv_token_bytes)))
        }
        Part::State => blocks.eq(cut(0..header.payload_bytes() as usize, 1)),
    }
}
