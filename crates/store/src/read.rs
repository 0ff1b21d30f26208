//! Opening a store and loading its dense weights.

use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::path::Path;
use std::sync::Arc;

use quant::{Buffer, Format, Matrix};

use crate::files::{DENSE_NAME, JOURNAL_NAME, MANIFEST_NAME, expert_file_name};
use crate::role::tensor_name;
use crate::write::{PARTIAL_SUFFIX, partial_path};
use crate::{Blob, DenseTensor, Manifest, ModelConfig, Role, StoreError, StoreFiles, hash, parallel};

/// A hundred times the manifest of a large model.
const MANIFEST_BYTES_MAX: u64 = 1 << 28;

/// What a folder that a killed `pack` left behind is told.
const UNFINISHED: &str = "packing it was interrupted: run the same pack command again to finish it";

/// An opened store: manifest checked against the configuration and the sizes of the files; no weights read yet.
#[derive(Clone, Debug)]
pub struct Store {
    files: StoreFiles,
    manifest: Manifest,
    fingerprint: u64,
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
            return not_a_store(UNFINISHED);
        }
        match path.metadata() {
            Ok(meta) if meta.is_dir() => {}
            Ok(_) => return not_a_store("it is not a folder"),
            Err(e) if e.kind() == ErrorKind::NotFound => {
                let started = partial_path(path).is_some_and(|p| p.join(JOURNAL_NAME).exists());
                return not_a_store(if started { UNFINISHED } else { "it does not exist" });
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
            let unfinished = files.size(JOURNAL_NAME)?.is_some();
            let why = if unfinished { UNFINISHED.into() } else { format!("it has no {MANIFEST_NAME}") };
            return Err(StoreError::NotAStore { path: files.path(""), why });
        };
        let (manifest, fingerprint) = Manifest::parse(&bytes, &files.path(MANIFEST_NAME))?;
        let store = Self { files, manifest, fingerprint };
        store.check_size(DENSE_NAME, store.dense_bytes())?;
        for layer in 0..store.config().n_layer() {
            store.check_size(&expert_file_name(layer), store.manifest.expert_file_bytes(layer))?;
        }
        for sidecar in &store.manifest.sidecars {
            store.check_size(&sidecar.name, sidecar.bytes)?;
        }
        Ok(store)
    }

    fn check_size(&self, name: &str, expected: u64) -> Result<(), StoreError> {
        let why = match self.files.size(name)? {
            Some(size) if size == expected => return Ok(()),
            Some(size) => format!("is {size} bytes, the manifest says {expected}"),
            None => "is missing".into(),
        };
        Err(StoreError::Invalid { path: self.files.path(name), why })
    }

    /// The folder, or the embedded name, for messages.
    pub fn location(&self) -> String {
        self.files.location()
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

    /// Size of `dense.bin`.
    pub fn dense_bytes(&self) -> u64 {
        self.manifest.dense_bytes()
    }

    /// Reads all dense tensors into one buffer, checksums checked. `progress` gets the bytes read so far.
    ///
    /// # Errors
    /// The memory cannot be had, the file cannot be read, or a checksum is wrong.
    pub fn load_dense(&self, progress: &mut dyn FnMut(u64)) -> Result<Dense, StoreError> {
        let blob = self.blob(DENSE_NAME);
        let path = blob.path();
        let mut buffer = Buffer::zeroed(self.dense_bytes() as usize).map_err(|source| StoreError::Io {
            path: path.into(),
            action: "get the memory to load it",
            source,
        })?;
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
            Err(StoreError::Checksum { path: path.into(), what, offset: tensor.offset })
        };
        parallel::map(self.split_dense(&mut buffer), read, progress)
            .into_iter()
            .collect::<Result<(), _>>()?;
        let buffer = Arc::new(buffer);
        let matrix = |t: &DenseTensor| {
            let matrix = Matrix::new(t.format, t.rows, t.cols, buffer.clone(), t.offset as usize);
            ((t.role, t.layer), matrix.expect("checked when the store was opened"))
        };
        Ok(Dense { matrices: self.manifest.dense.iter().map(matrix).collect() })
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
        self.blob(&expert_file_name(layer))
    }

    /// A file that [`Store::open_files`] found.
    pub(crate) fn blob(&self, name: &str) -> Blob {
        self.files.blob(name).expect("there when the store was opened")
    }

    /// A file kept beside the weights (`tokenizer.json`, …), checksum checked.
    ///
    /// # Errors
    /// It cannot be read or its checksum is wrong.
    pub fn sidecar(&self, name: &str) -> Result<Option<Vec<u8>>, StoreError> {
        let Some(sidecar) = self.manifest.sidecars.iter().find(|s| s.name == name) else { return Ok(None) };
        let path = self.files.path(name);
        match self.files.read(name, sidecar.bytes)? {
            None => Err(StoreError::Invalid { path, why: "is missing".into() }),
            Some(bytes) if hash::hex(&bytes) == sidecar.xxh3 => Ok(Some(bytes)),
            Some(_) => Err(StoreError::Checksum { path, what: "the file".into(), offset: 0 }),
        }
    }
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
