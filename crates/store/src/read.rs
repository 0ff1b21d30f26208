//! Opening a store and loading its dense weights.

use std::path::Path;

use quant::Matrix;

use crate::{Blob, Manifest, ModelConfig, Role, StoreError, StoreFiles};

/// An opened store: manifest checked against the configuration and the sizes of the files; no weights read yet.
#[derive(Clone, Debug)]
pub struct Store {
    files: StoreFiles,
    manifest: Manifest,
}

/// The dense weights in memory, by role and layer.
#[derive(Debug)]
pub struct Dense {
    _stub: (),
}

impl Store {
    /// Opens the store in folder `path`.
    pub fn open(_path: &Path) -> Result<Self, StoreError> {
        panic!("stub")
    }

    /// Opens a store in a folder or in the program.
    pub fn open_files(_files: StoreFiles) -> Result<Self, StoreError> {
        panic!("stub")
    }

    /// The folder, or the embedded name, for messages.
    pub fn location(&self) -> String {
        panic!("stub")
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
        panic!("stub")
    }

    /// Size of `dense.bin`.
    pub fn dense_bytes(&self) -> u64 {
        panic!("stub")
    }

    /// Reads all dense tensors into one buffer, checksums checked. `progress` gets the bytes read so far.
    pub fn load_dense(&self, _progress: &mut dyn FnMut(u64)) -> Result<Dense, StoreError> {
        panic!("stub")
    }

    /// The file that holds the records of `layer`.
    pub fn expert_blob(&self, _layer: usize) -> Blob {
        let _ = &self.files;
        panic!("stub")
    }

    /// A file kept beside the weights (`tokenizer.json`, …), checksum checked.
    pub fn sidecar(&self, _name: &str) -> Result<Option<Vec<u8>>, StoreError> {
        panic!("stub")
    }
}

impl Dense {
    /// The matrix of `role`; `layer` is `None` for embedding, head and final norm.
    ///
    /// # Panics
    /// The configuration does not call for it ([`Store::open`] checked that all that it calls for are there).
    pub fn matrix(&self, _role: Role, _layer: Option<usize>) -> Matrix {
        panic!("stub")
    }

    /// A vector or small matrix that is stored as F32, decoded.
    pub fn vector(&self, _role: Role, _layer: Option<usize>) -> Vec<f32> {
        panic!("stub")
    }
}
