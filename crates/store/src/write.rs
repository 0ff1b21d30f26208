//! Writing a store: everything's place is known from a plan before the first byte, the work happens in
//! `STORE.partial`, each finished piece is journaled with its checksum, and the last step is a rename.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

use quant::Format;

use crate::disk::{allocate, disk_error, free_bytes, io_error, open_for_write, parent_of, rename};
use crate::files::{DENSE_NAME, EXPERTS_NAME, JOURNAL_NAME, MANIFEST_NAME, expert_file_name};
use crate::journal::{Journal, Piece};
use crate::role::tensor_name;
use crate::system::{self, allocated_bytes, sync_file, sync_folder, write_all_at};
use crate::{
    Blob, DenseTensor, ExpertLayer, Manifest, ModelConfig, Role, Sidecar, Source, StoreError, hash, parallel,
};

/// Added to the folder's name while it is not finished.
pub(crate) const PARTIAL_SUFFIX: &str = ".partial";

/// A dense tensor that will be written.
#[derive(Clone, Debug, PartialEq)]
pub struct DensePlan {
    /// What it is for.
    pub role: Role,
    /// Its layer, if it belongs to one.
    pub layer: Option<usize>,
    /// How it will be stored.
    pub format: Format,
    /// Outputs.
    pub rows: usize,
    /// Inputs.
    pub cols: usize,
}

/// Formats of gate, up and down of a layer's experts.
#[derive(Clone, Debug, PartialEq)]
pub struct ExpertPlan {
    /// Gate, up, down.
    pub formats: [Format; 3],
}

/// Everything about a store to be written but the weights.
#[derive(Clone, Debug, PartialEq)]
pub struct StorePlan {
    /// Model name.
    pub name: String,
    /// Where the weights come from.
    pub source: Source,
    /// Shapes.
    pub config: ModelConfig,
    /// Dense tensors in file order.
    pub dense: Vec<DensePlan>,
    /// One entry a layer.
    pub experts: Vec<ExpertPlan>,
    /// Files to keep byte for byte: name and contents.
    pub sidecars: Vec<(String, Vec<u8>)>,
}

/// A store being written.
#[derive(Debug)]
pub struct StoreWriter {
    path: PathBuf,
    partial: PathBuf,
    /// Complete but for the checksums of dense tensors and experts, which are below until the end.
    manifest: Manifest,
    sidecars: Vec<(String, Vec<u8>)>,
    /// Checksum of each finished dense tensor.
    dense_xxh3: Vec<Option<u64>>,
    /// `[n_layer][n_expert]` checksum of each finished record.
    expert_xxh3: Vec<Vec<Option<u64>>>,
    /// Bytes that `write_dense` got for each dense tensor.
    dense_written: Vec<u64>,
    dense_file: File,
    /// The expert file that was written last, and its layer: callers go layer by layer.
    expert_file: Option<(usize, File)>,
    journal: Journal,
    resumed_bytes: u64,
}

/// `path` with [`PARTIAL_SUFFIX`], or `None` if it has no last component that could be named so.
pub(crate) fn partial_path(path: &Path) -> Option<PathBuf> {
    let mut name = OsString::from(path.file_name()?);
    name.push(PARTIAL_SUFFIX);
    Some(path.with_file_name(name))
}

impl StorePlan {
    /// Bytes of all files of the finished store.
    ///
    /// # Panics
    /// May do so if the configuration is out of bounds: [`ModelConfig::check`] comes first.
    pub fn total_bytes(&self) -> u64 {
        let manifest = self.manifest();
        let sidecars = manifest.sidecars.iter().map(|s| s.bytes);
        let files = file_sizes(&manifest).into_iter().map(|(_, bytes)| bytes).chain(sidecars);
        files.fold(manifest.to_bytes().len() as u64, u64::saturating_add)
    }

    /// The manifest of the finished store, with checksums of zero for the weights.
    pub fn manifest(&self) -> Manifest {
        let pending = hash::to_hex(0);
        let mut offset = 0;
        let dense = |plan: &DensePlan| {
            let &DensePlan { role, layer, format, rows, cols } = plan;
            let tensor = DenseTensor { role, layer, format, rows, cols, offset, xxh3: pending.clone() };
            offset += tensor.bytes();
            tensor
        };
        let expert = |plan: &ExpertPlan| ExpertLayer {
            formats: plan.formats,
            xxh3: vec![pending.clone(); self.config.n_expert],
        };
        let sidecar = |(name, bytes): &(String, Vec<u8>)| Sidecar {
            name: name.clone(),
            bytes: bytes.len() as u64,
            xxh3: hash::hex(bytes),
        };
        Manifest {
            name: self.name.clone(),
            source: self.source.clone(),
            config: self.config.clone(),
            dense: self.dense.iter().map(dense).collect(),
            experts: self.experts.iter().map(expert).collect(),
            sidecars: self.sidecars.iter().map(sidecar).collect(),
        }
    }

    /// Checks shapes and formats before anything is computed from them.
    fn check(&self) -> Result<(), String> {
        self.config.check().map_err(|why| format!("config: {why}"))?;
        for plan in &self.dense {
            let name = tensor_name(plan.role, plan.layer);
            plan.format.check(plan.rows, plan.cols).map_err(|e| format!("{name}: {e}"))?;
        }
        self.manifest().check(true)
    }
}

impl StoreWriter {
    /// Starts writing `path`, or goes on with an unfinished `path.partial` that was started from the same plan
    /// (pieces whose bytes still match their journaled checksum are kept; a different plan starts over).
    ///
    /// # Errors
    /// `path` exists, the plan contradicts itself, the disk has too little room, or the system fails.
    pub fn create(path: &Path, plan: StorePlan) -> Result<Self, StoreError> {
        Self::create_with_progress(path, plan, &mut |_| ())
    }

    /// As [`StoreWriter::create`]; `progress` gets the bytes of earlier pieces that were read again so far, which
    /// can be hundreds of gigabytes.
    ///
    /// # Errors
    /// As [`StoreWriter::create`].
    pub fn create_with_progress(
        path: &Path,
        plan: StorePlan,
        progress: &mut dyn FnMut(u64),
    ) -> Result<Self, StoreError> {
        let invalid = |why: String| StoreError::Invalid { path: path.into(), why };
        let partial = partial_path(path).ok_or_else(|| invalid("is not a name for a new folder".into()))?;
        if path.symlink_metadata().is_ok() {
            return Err(StoreError::Exists { path: path.into() });
        }
        plan.check().map_err(|why| invalid(format!("cannot be written: {why}")))?;
        let manifest = plan.manifest();
        let plan_hash = hash::of(&manifest.to_bytes());
        let parent = parent_of(path);
        fs::create_dir_all(&parent).map_err(|e| io_error(&parent, "create the folder", e))?;

        let earlier = if partial.exists() { Some(reopen(&partial, plan_hash)?) } else { None };
        check_room(path, &partial, &manifest)?;
        let (journal, pieces) = match earlier {
            Some(earlier) => earlier,
            None => {
                fs::create_dir(&partial).map_err(|e| io_error(&partial, "create the folder", e))?;
                let mut journal = Journal::open(partial.join(JOURNAL_NAME))?;
                journal.start(plan_hash)?;
                (journal, Default::default())
            }
        };
        let experts = partial.join(EXPERTS_NAME);
        fs::create_dir_all(&experts).map_err(|e| io_error(&experts, "create the folder", e))?;
        for (name, bytes) in file_sizes(&manifest) {
            let file = partial.join(name);
            allocate(&file, bytes).map_err(|e| disk_error(path, &file, "allocate room for", bytes, e))?;
        }
        let dense_path = partial.join(DENSE_NAME);
        let mut writer = Self {
            path: path.into(),
            dense_xxh3: vec![None; manifest.dense.len()],
            expert_xxh3: vec![vec![None; manifest.config.n_expert]; manifest.experts.len()],
            dense_written: vec![0; manifest.dense.len()],
            dense_file: open_for_write(&dense_path).map_err(|e| io_error(&dense_path, "open", e))?,
            expert_file: None,
            sidecars: plan.sidecars,
            partial,
            manifest,
            journal,
            resumed_bytes: 0,
        };
        writer.keep(pieces.into_iter().collect(), progress);
        Ok(writer)
    }

    /// Marks those of `pieces` finished whose bytes still have their checksum; the others will be done again.
    fn keep(&mut self, pieces: Vec<(Piece, u64)>, progress: &mut dyn FnMut(u64)) {
        let same = |(piece, xxh3): (Piece, u64), add: &dyn Fn(u64)| {
            let (name, offset, bytes) = self.place(piece)?;
            let blob = Blob::File(self.partial.join(name));
            let found =
                hash::of_range(&blob.open().ok()?, offset, bytes, &mut |read, _| add(read.len() as u64));
            (found.ok()? == xxh3).then_some((piece, xxh3, bytes))
        };
        for (piece, xxh3, bytes) in parallel::map(pieces, same, progress).into_iter().flatten() {
            self.resumed_bytes += bytes;
            match piece {
                Piece::Dense(idx) => self.dense_xxh3[idx] = Some(xxh3),
                Piece::Expert(layer, expert) => self.expert_xxh3[layer][expert] = Some(xxh3),
            }
        }
    }

    /// File, offset and bytes of a piece, or `None` if the plan has no such piece.
    fn place(&self, piece: Piece) -> Option<(String, u64, u64)> {
        match piece {
            Piece::Dense(idx) => {
                let tensor = self.manifest.dense.get(idx)?;
                Some((DENSE_NAME.into(), tensor.offset, tensor.bytes()))
            }
            Piece::Expert(layer, expert) => {
                self.expert_xxh3.get(layer)?.get(expert)?;
                let stride = self.stride_bytes(layer) as u64;
                Some((expert_file_name(layer), expert as u64 * stride, stride))
            }
        }
    }

    fn stride_bytes(&self, layer: usize) -> usize {
        ExpertLayer::stride_bytes(&self.manifest.experts[layer].formats, &self.manifest.config)
    }

    /// Bytes already there from an earlier run.
    pub fn resumed_bytes(&self) -> u64 {
        self.resumed_bytes
    }

    /// Is dense tensor `idx` (of the plan) there already?
    pub fn has_dense(&self, idx: usize) -> bool {
        self.dense_xxh3[idx].is_some()
    }

    /// Is this record there already?
    pub fn has_expert(&self, layer: usize, expert: usize) -> bool {
        self.expert_xxh3[layer][expert].is_some()
    }

    /// Writes a piece of dense tensor `idx`, in any order: a tensor can be larger than memory allows, and a
    /// block of its rows lands in three planes.
    ///
    /// # Errors
    /// The disk is full or the system fails.
    ///
    /// # Panics
    /// The piece does not fit the tensor.
    pub fn write_dense(
        &mut self,
        idx: usize,
        offset_in_tensor: usize,
        bytes: &[u8],
    ) -> Result<(), StoreError> {
        let tensor = &self.manifest.dense[idx];
        let (offset, end) = (offset_in_tensor as u64, offset_in_tensor as u64 + bytes.len() as u64);
        assert!(end <= tensor.bytes(), "{} ends before {end}", tensor_name(tensor.role, tensor.layer));
        let offset = tensor.offset + offset;
        self.dense_xxh3[idx] = None;
        self.dense_written[idx] += bytes.len() as u64;
        write_all_at(&self.dense_file, bytes, offset).map_err(|e| self.write_error(DENSE_NAME, bytes, e))
    }

    /// All of dense tensor `idx` (`Format::matrix_bytes`; the padding need not be) has been written: hashes and
    /// journals it.
    ///
    /// # Errors
    /// The disk is full or the system fails.
    ///
    /// # Panics
    /// Fewer bytes were written than its planes have.
    pub fn finish_dense(&mut self, idx: usize) -> Result<(), StoreError> {
        let tensor = &self.manifest.dense[idx];
        let planes = tensor.format.planes(tensor.rows, tensor.cols);
        let planes_bytes: usize = planes.iter().map(|p| p.len()).sum();
        let written = self.dense_written[idx];
        let name = tensor_name(tensor.role, tensor.layer);
        assert!(written >= planes_bytes as u64, "{name}: {written} of {planes_bytes} bytes were written");
        // An interrupted run's file may have been damaged between the planes too.
        let ends = [planes[1].start, planes[2].start, tensor.bytes() as usize];
        for (plane, end) in planes.iter().zip(ends) {
            let padding = vec![0; end.saturating_sub(plane.end)];
            let at = tensor.offset + plane.end as u64;
            write_all_at(&self.dense_file, &padding, at)
                .map_err(|e| self.write_error(DENSE_NAME, &padding, e))?;
        }
        let blob = Blob::File(self.partial.join(DENSE_NAME));
        let xxh3 = hash::of_range(&blob.open()?, tensor.offset, tensor.bytes(), &mut |_, _| ())?;
        self.record(Piece::Dense(idx), xxh3)?;
        self.dense_xxh3[idx] = Some(xxh3);
        Ok(())
    }

    /// Writes one record, `ExpertLayer::stride_bytes` long, padding zero.
    ///
    /// # Errors
    /// The disk is full or the system fails.
    ///
    /// # Panics
    /// The record has another length, or something in its padding at the end.
    pub fn put_expert(&mut self, layer: usize, expert: usize, record: &[u8]) -> Result<(), StoreError> {
        let stride = self.stride_bytes(layer);
        assert_eq!(record.len(), stride, "bytes of a record of layer {layer}");
        let parts = ExpertLayer::ranges(&self.manifest.experts[layer].formats, &self.manifest.config);
        assert!(record[parts[2].end..].iter().all(|&b| b == 0), "the padding of a record is zero");
        let name = expert_file_name(layer);
        if self.expert_file.as_ref().is_none_or(|(open, _)| *open != layer) {
            let path = self.partial.join(&name);
            self.expert_file = Some((layer, open_for_write(&path).map_err(|e| io_error(&path, "open", e))?));
        }
        let (_, file) = self.expert_file.as_ref().expect("just opened");
        self.expert_xxh3[layer][expert] = None;
        write_all_at(file, record, expert as u64 * stride as u64)
            .map_err(|e| self.write_error(&name, record, e))?;
        let xxh3 = hash::of(record);
        self.record(Piece::Expert(layer, expert), xxh3)?;
        self.expert_xxh3[layer][expert] = Some(xxh3);
        Ok(())
    }

    fn record(&mut self, piece: Piece, xxh3: u64) -> Result<(), StoreError> {
        self.journal.append(piece, xxh3).map_err(|e| self.write_error(JOURNAL_NAME, &[], e))
    }

    /// Throws away what was written for `path`: for when the source turns out to be no good.
    ///
    /// # Errors
    /// The system fails to remove it.
    pub fn discard(path: &Path) -> Result<(), StoreError> {
        match partial_path(path) {
            Some(partial) if partial.is_dir() => {
                fs::remove_dir_all(&partial).map_err(|e| io_error(&partial, "remove", e))
            }
            _ => Ok(()),
        }
    }

    /// Writes sidecars and manifest, makes everything durable, and renames the folder into place.
    ///
    /// # Errors
    /// The disk is full, `path` was created by someone else meanwhile, or the system fails. What was written stays
    /// in `path.partial`.
    ///
    /// # Panics
    /// A dense tensor or a record was not written.
    pub fn finish(mut self) -> Result<(), StoreError> {
        self.fill_checksums();
        for (name, bytes) in &self.sidecars {
            self.write_durably(name, bytes)?;
        }
        for (name, _) in file_sizes(&self.manifest) {
            let path = self.partial.join(name);
            sync_file(&path).map_err(|e| io_error(&path, "flush", e))?;
        }
        // The manifest makes the folder a store: it comes last, whole, under its own name.
        let unnamed = format!("{MANIFEST_NAME}.tmp");
        self.write_durably(&unnamed, &self.manifest.to_bytes())?;
        rename(&self.partial.join(unnamed), &self.partial.join(MANIFEST_NAME))?;
        for dir in [self.partial.join(EXPERTS_NAME), self.partial.clone()] {
            sync_folder(&dir).map_err(|e| io_error(&dir, "flush", e))?;
        }
        if self.path.symlink_metadata().is_ok() {
            return Err(StoreError::Exists { path: self.path });
        }
        drop((self.dense_file, self.expert_file));
        // Locked to the end, where a locked file is not in the way.
        let lock = system::RENAMES_OPEN_FOLDERS.then_some(self.journal);
        // Renamed with the journal still inside: killed before the rename, all can be resumed; killed after it, the
        // store has one useless file.
        rename(&self.partial, &self.path)?;
        let journal = self.path.join(JOURNAL_NAME);
        fs::remove_file(&journal).map_err(|e| io_error(&journal, "remove", e))?;
        for dir in [self.path.clone(), parent_of(&self.path)] {
            sync_folder(&dir).map_err(|e| io_error(&dir, "flush", e))?;
        }
        drop(lock);
        Ok(())
    }

    fn fill_checksums(&mut self) {
        for (tensor, xxh3) in self.manifest.dense.iter_mut().zip(&self.dense_xxh3) {
            let name = tensor_name(tensor.role, tensor.layer);
            tensor.xxh3 = hash::to_hex(xxh3.unwrap_or_else(|| panic!("{name} was not finished")));
        }
        for (layer, (experts, xxh3)) in self.manifest.experts.iter_mut().zip(&self.expert_xxh3).enumerate() {
            for (expert, (text, xxh3)) in experts.xxh3.iter_mut().zip(xxh3).enumerate() {
                let missing = || panic!("expert {expert} of layer {layer} was not written");
                *text = hash::to_hex(xxh3.unwrap_or_else(missing));
            }
        }
    }

    /// Writes a small file and waits until it is on the disk.
    fn write_durably(&self, name: &str, bytes: &[u8]) -> Result<(), StoreError> {
        let path = self.partial.join(name);
        let write = || {
            fs::write(&path, bytes)?;
            sync_file(&path)
        };
        write().map_err(|e| self.write_error(name, bytes, e))
    }

    /// The error for a failed write of `bytes` to file `name`: a full disk gets its numbers, which count all that is
    /// missing, or only `bytes` where the weights are complete.
    fn write_error(&self, name: &str, bytes: &[u8], error: io::Error) -> StoreError {
        let dense = self.manifest.dense.iter().zip(&self.dense_xxh3);
        let dense_bytes: u64 =
            dense.filter(|(_, xxh3)| xxh3.is_none()).map(|(tensor, _)| tensor.bytes()).sum();
        let n_missing =
            |layer: usize| self.expert_xxh3[layer].iter().filter(|xxh3| xxh3.is_none()).count() as u64;
        let layer_bytes = |layer: usize| n_missing(layer).saturating_mul(self.stride_bytes(layer) as u64);
        let needed = (0..self.expert_xxh3.len()).map(layer_bytes).fold(dense_bytes, u64::saturating_add);
        disk_error(&self.path, &self.partial.join(name), "write", needed.max(bytes.len() as u64), error)
    }
}

/// The files of known size: `dense.bin` and one for each layer's experts.
fn file_sizes(manifest: &Manifest) -> Vec<(String, u64)> {
    let experts = (0..manifest.experts.len()).map(|l| (expert_file_name(l), manifest.expert_file_bytes(l)));
    std::iter::once((DENSE_NAME.into(), manifest.dense_bytes())).chain(experts).collect()
}

/// The journal of an unfinished store and its pieces. Empties the folder if it was started from another plan.
fn reopen(partial: &Path, plan_hash: u64) -> Result<(Journal, BTreeMap<Piece, u64>), StoreError> {
    let list = || fs::read_dir(partial)?.collect::<io::Result<Vec<_>>>();
    let entries = list().map_err(|e| io_error(partial, "list the folder", e))?;
    let journal_path = partial.join(JOURNAL_NAME);
    if !entries.is_empty() && !journal_path.exists() {
        let why = "is in the way and not an unfinished store: move it elsewhere".into();
        return Err(StoreError::Invalid { path: partial.into(), why });
    }
    let mut journal = Journal::open(journal_path)?;
    if let Some(pieces) = journal.pieces(plan_hash)? {
        return Ok((journal, pieces));
    }
    for entry in entries.iter().filter(|e| e.file_name() != JOURNAL_NAME) {
        let is_dir = entry.file_type().is_ok_and(|t| t.is_dir());
        let path = entry.path();
        let removed = if is_dir { fs::remove_dir_all(&path) } else { fs::remove_file(&path) };
        removed.map_err(|e| io_error(&path, "remove", e))?;
    }
    journal.start(plan_hash)?;
    Ok((journal, Default::default()))
}

/// Checks that what is not allocated yet fits on the disk.
fn check_room(path: &Path, partial: &Path, manifest: &Manifest) -> Result<(), StoreError> {
    let missing = |(name, bytes): (String, u64)| {
        let allocated = partial.join(name).metadata().map_or(0, |meta| allocated_bytes(&meta));
        bytes.saturating_sub(allocated)
    };
    let sidecars = manifest.sidecars.iter().map(|s| s.bytes);
    let needed_bytes =
        file_sizes(manifest).into_iter().map(missing).chain(sidecars).fold(0, u64::saturating_add);
    match free_bytes(path) {
        Some(free_bytes) if free_bytes < needed_bytes => {
            Err(StoreError::DiskFull { path: path.into(), needed_bytes, free_bytes })
        }
        _ => Ok(()),
    }
}
