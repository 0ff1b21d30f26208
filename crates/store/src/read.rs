//! Opening a store and loading its dense weights.

use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use quant::{Buffer, Format, Matrix};

use crate::files::{DENSE_NAME, JOURNAL_NAME, MANIFEST_NAME, expert_file_name};
use crate::role::tensor_name;
use crate::write::{PARTIAL_SUFFIX, partial_path};
use crate::{
    Blob, DenseRead, DenseTensor, InPlace, Manifest, ModelConfig, PieceFile, Role, StoreError, StoreFiles,
    hash, parallel,
};

/// A hundred times the manifest of a large model.
const MANIFEST_BYTES_MAX: u64 = 1 << 28;

/// Bytes of a dense tensor of a checkpoint that are read at a time, about.
const ROWS_BYTES: usize = 1 << 20;

/// An opened store: manifest checked against the configuration and the sizes of the files; no weights read yet.
#[derive(Clone, Debug)]
pub struct Store {
    pub(crate) origin: Origin,
    manifest: Manifest,
    fingerprint: u64,
}

/// Where the weights are.
#[derive(Clone, Debug)]
pub(crate) enum Origin {
    Packed(StoreFiles),
    InPlace { location: PathBuf, experts: Vec<Arc<PieceFile>>, weights: Arc<dyn DenseRead> },
}

/// The dense weights in memory, by role and layer.
#[derive(Debug)]
pub struct Dense {
    matrices: BTreeMap<(Role, Option<usize>), Matrix>,
}

impl Store {
    /// Opens the store in folder `path`.
    ///
    /// # Errors
    /// It is not a store, not finished, from a later version, damaged, or the system fails.
    pub fn open(path: &Path) -> Result<Self, StoreError> {
        let not_a_store = |why: &str| Err(StoreError::NotAStore { path: path.into(), why: why.into() });
        if path.file_name().is_some_and(|name| name.to_string_lossy().ends_with(PARTIAL_SUFFIX)) {
            return Err(StoreError::Unfinished { path: path.into() });
        }
        match path.metadata() {
            Ok(meta) if meta.is_dir() => {}
            Ok(_) => return not_a_store("it is not a folder"),
            Err(e) if e.kind() == ErrorKind::NotFound => {
                let started = partial_path(path).is_some_and(|p| p.join(JOURNAL_NAME).exists());
                if started {
                    return Err(StoreError::Unfinished { path: path.into() });
                }
                return not_a_store("it does not exist");
            }
            Err(source) => {
                return Err(StoreError::Io { path: path.into(), action: "look at the folder", source });
            }
        }
        Self::open_files(StoreFiles::Dir(path.into()))
    }

    /// Opens a store in a folder or in the program.
    ///
    /// # Errors
    /// As [`Store::open`].
    pub fn open_files(files: StoreFiles) -> Result<Self, StoreError> {
        let Some(bytes) = files.read(MANIFEST_NAME, MANIFEST_BYTES_MAX)? else {
            if files.size(JOURNAL_NAME)?.is_some() {
                return Err(StoreError::Unfinished { path: files.path("") });
            }
            let why = format!("it has no {MANIFEST_NAME}");
            return Err(StoreError::NotAStore { path: files.path(""), why });
        };
        let (manifest, fingerprint) = Manifest::parse(&bytes, &files.path(MANIFEST_NAME))?;
        files.check_size(DENSE_NAME, manifest.dense_bytes())?;
        for layer in 0..manifest.config.n_layer() {
            files.check_size(&expert_file_name(layer), manifest.expert_file_bytes(layer))?;
        }
        for sidecar in &manifest.sidecars {
            files.check_size(&sidecar.name, sidecar.bytes)?;
        }
        Ok(Self { origin: Origin::Packed(files), manifest, fingerprint })
    }

    /// A checkpoint as a store: nothing is copied, and there are no checksums.
    ///
    /// # Errors
    /// The parts contradict each other.
    pub fn in_place(parts: InPlace) -> Result<Self, StoreError> {
        let InPlace { location, manifest, fingerprint, experts, weights } = parts;
        let invalid = |why| StoreError::Invalid { path: location.clone(), why };
        manifest.check(false).map_err(invalid)?;
        let is_whole =
            |(layer, file): (usize, &Arc<PieceFile>)| file.bytes() == manifest.expert_file_bytes(layer);
        if experts.len() != manifest.config.n_layer() || !experts.iter().enumerate().all(is_whole) {
            return Err(invalid("its records do not fit its configuration".into()));
        }
        let origin = Origin::InPlace { location, experts, weights: weights.into() };
        Ok(Self { origin, manifest, fingerprint })
    }

    /// The folder or file, or the embedded name, for messages.
    pub fn location(&self) -> String {
        match &self.origin {
            Origin::Packed(files) => files.location(),
            Origin::InPlace { location, .. } => location.display().to_string(),
        }
    }

    /// The manifest.
    pub fn manifest(&self) -> &Manifest {
        &self.manifest
    }

    /// Shapes.
    pub fn config(&self) -> &ModelConfig {
        &self.manifest.config
    }

    /// A hash that names these weights: saved sessions carry it.
    pub fn fingerprint(&self) -> u64 {
        self.fingerprint
    }

    /// Bytes of the dense weights in memory, and in `dense.bin`.
    pub fn dense_bytes(&self) -> u64 {
        self.manifest.dense_bytes()
    }

    /// Reads all dense tensors into one buffer, checksums checked where there are any. `progress` gets the bytes read
    /// so far.
    ///
    /// # Errors
    /// The memory cannot be had, a file cannot be read, or a checksum is wrong.
    pub fn load_dense(&self, progress: &mut dyn FnMut(u64)) -> Result<Dense, StoreError> {
        let mut buffer = Buffer::zeroed(self.dense_bytes() as usize).map_err(|source| StoreError::Io {
            path: self.location().into(),
            action: "get the memory to load it",
            source,
        })?;
        match &self.origin {
            Origin::Packed(files) => self.load_packed(&dense_blob(files), &mut buffer, progress)?,
            Origin::InPlace { weights, .. } => self.load_rows(&**weights, &mut buffer, progress)?,
        }
        let buffer = Arc::new(buffer);
        let matrix = |t: &DenseTensor| {
            let matrix = Matrix::new(t.format, t.rows, t.cols, buffer.clone(), t.offset as usize);
            ((t.role, t.layer), matrix.expect("checked when the store was opened"))
        };
        Ok(Dense { matrices: self.manifest.dense.iter().map(matrix).collect() })
    }

    fn load_packed(
        &self,
        blob: &Blob,
        buffer: &mut [u8],
        progress: &mut dyn FnMut(u64),
    ) -> Result<(), StoreError> {
        let reader = blob.open()?;
        let read = |(tensor, bytes): (&DenseTensor, &mut [u8]), add: &dyn Fn(u64)| {
            let mut offset = tensor.offset;
            for piece in bytes.chunks_mut(hash::PIECE_BYTES) {
                reader.read_exact_at(piece, offset)?;
                offset += piece.len() as u64;
                add(piece.len() as u64);
            }
            if hash::hex(bytes) == tensor.xxh3 {
                return Ok(());
            }
            let what = tensor_name(tensor.role, tensor.layer);
            Err(StoreError::Checksum { path: blob.path().into(), what, offset: tensor.offset })
        };
        parallel::map(self.split_dense(buffer), read, progress).into_iter().collect()
    }

    fn load_rows(
        &self,
        weights: &dyn DenseRead,
        buffer: &mut [u8],
        progress: &mut dyn FnMut(u64),
    ) -> Result<(), StoreError> {
        let tensors = self.split_dense(buffer).into_iter().enumerate().collect();
        let read = |(idx, (tensor, bytes)): (usize, (&DenseTensor, &mut [u8])), add: &dyn Fn(u64)| {
            for rows in row_runs(tensor) {
                let planes = planes_of(tensor, &rows, bytes);
                let n_byte = planes.iter().map(|plane| plane.len() as u64).sum();
                weights.read_dense(idx, rows, planes)?;
                add(n_byte);
            }
            Ok(())
        };
        parallel::map(tensors, read, progress).into_iter().collect()
    }

    /// Each dense tensor with its part of `buffer`: they lie one after the other.
    fn split_dense<'a>(&'a self, buffer: &'a mut [u8]) -> Vec<(&'a DenseTensor, &'a mut [u8])> {
        let mut rest = buffer;
        let split = |tensor: &'a DenseTensor| {
            let (bytes, tail) = std::mem::take(&mut rest).split_at_mut(tensor.bytes() as usize);
            rest = tail;
            (tensor, bytes)
        };
        self.manifest.dense.iter().map(split).collect()
    }

    /// The file that holds the records of `layer`.
    ///
    /// # Panics
    /// There is no such layer.
    pub fn expert_blob(&self, layer: usize) -> Blob {
        match &self.origin {
            Origin::Packed(files) => {
                files.blob(&expert_file_name(layer)).expect("there when the store was opened")
            }
            Origin::InPlace { experts, .. } => Blob::Pieces(Arc::clone(&experts[layer])),
        }
    }

    /// A file kept beside the weights (`tokenizer.json`, …), checksum checked where there is one.
    ///
    /// # Errors
    /// It cannot be read or its checksum is wrong.
    pub fn sidecar(&self, name: &str) -> Result<Option<Vec<u8>>, StoreError> {
        let Some(sidecar) = self.manifest.sidecars.iter().find(|s| s.name == name) else { return Ok(None) };
        let files = match &self.origin {
            Origin::Packed(files) => files,
            Origin::InPlace { weights, .. } => return weights.sidecar(name).map(Some),
        };
        let path = files.path(name);
        match files.read(name, sidecar.bytes)? {
            None => Err(StoreError::Invalid { path, why: "is missing".into() }),
            Some(bytes) if hash::hex(&bytes) == sidecar.xxh3 => Ok(Some(bytes)),
            Some(_) => Err(StoreError::Checksum { path, what: "the file".into(), offset: 0 }),
        }
    }
}

/// The file of the dense weights.
pub(crate) fn dense_blob(files: &StoreFiles) -> Blob {
    files.blob(DENSE_NAME).expect("there when the store was opened")
}

/// Runs of rows of a tensor that are about [`ROWS_BYTES`] long.
pub(crate) fn row_runs(tensor: &DenseTensor) -> impl Iterator<Item = Range<usize>> {
    let n_row = tensor.rows;
    let row_bytes = tensor.format.row_bytes(tensor.cols).max(1);
    let n = (ROWS_BYTES / row_bytes).next_multiple_of(tensor.format.scale_rows()).max(1);
    (0..n_row).step_by(n).map(move |start| start..n_row.min(start + n))
}

/// The planes of rows `rows` of `tensor`, all of which is `bytes`.
fn planes_of<'a>(tensor: &DenseTensor, rows: &Range<usize>, bytes: &'a mut [u8]) -> [&'a mut [u8]; 3] {
    let [codes, scales, biases] = tensor.format.planes(tensor.rows, tensor.cols);
    let (head, from_biases) = bytes.split_at_mut(biases.start);
    let (from_codes, from_scales) = head.split_at_mut(scales.start);
    let [code_part, scale_part, bias_part] = tensor.format.row_planes(rows.clone(), tensor.cols);
    [
        &mut from_codes[codes][code_part],
        &mut from_scales[..scales.len()][scale_part],
        &mut from_biases[..biases.len()][bias_part],
    ]
}

impl Dense {
    /// The matrix of `role`; `layer` is `None` for embedding, head and final norm.
    ///
    /// # Panics
    /// The configuration does not call for it ([`Store::open`] checked that all that it calls for are there).
    pub fn matrix(&self, role: Role, layer: Option<usize>) -> Matrix {
        match self.matrices.get(&(role, layer)) {
            Some(matrix) => matrix.clone(),
            None => panic!("the configuration does not call for {}", tensor_name(role, layer)),
        }
    }

    /// A vector or small matrix that is stored as F32, decoded: `[rows * cols]`.
    ///
    /// # Panics
    /// As [`Dense::matrix`], or it is not stored as F32 (those of [`Role::is_f32`] are).
    pub fn vector(&self, role: Role, layer: Option<usize>) -> Vec<f32> {
        let matrix = self.matrix(role, layer);
        assert_eq!(matrix.format(), Format::F32, "{} is not a vector", tensor_name(role, layer));
        let mut out = vec![0.0; matrix.rows() * matrix.cols()];
        for (row_idx, row) in out.chunks_exact_mut(matrix.cols()).enumerate() {
            matrix.view().decode_row(row_idx, row);
        }
        out
    }
}
