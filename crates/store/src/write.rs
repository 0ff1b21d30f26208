//! Writing a store: everything's place is known from a plan before the first byte, the work happens in
//! `STORE.partial`, each finished piece is journaled with its checksum, and the last step is a rename.

use std::path::Path;

use quant::Format;

use crate::{ModelConfig, Role, Source, StoreError};

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
    _stub: (),
}

impl StorePlan {
    /// Bytes of all files of the finished store, about.
    pub fn total_bytes(&self) -> u64 {
        panic!("stub")
    }
}

impl StoreWriter {
    /// Starts writing `path`, or goes on with an unfinished `path.partial` that was started from the same plan
    /// (pieces whose bytes still match their journaled checksum are kept; a different plan starts over).
    ///
    /// # Errors
    /// `path` exists, the disk has too little room, or the system fails.
    pub fn create(_path: &Path, _plan: StorePlan) -> Result<Self, StoreError> {
        panic!("stub")
    }

    /// Bytes already there from an earlier run.
    pub fn resumed_bytes(&self) -> u64 {
        panic!("stub")
    }

    /// Is dense tensor `idx` (of the plan) there already?
    pub fn has_dense(&self, _idx: usize) -> bool {
        panic!("stub")
    }

    /// Is this record there already?
    pub fn has_expert(&self, _layer: usize, _expert: usize) -> bool {
        panic!("stub")
    }

    /// Writes a piece of dense tensor `idx`, in any order: a tensor can be larger than memory allows, and a
    /// block of its rows lands in three planes.
    pub fn write_dense(&mut self, _idx: usize, _offset_in_tensor: usize, _bytes: &[u8]) -> Result<(), StoreError> {
        panic!("stub")
    }

    /// All of dense tensor `idx` (`Format::matrix_bytes`, padding included) has been written: hashes and journals it.
    pub fn finish_dense(&mut self, _idx: usize) -> Result<(), StoreError> {
        panic!("stub")
    }

    /// Writes one record, `ExpertLayer::stride_bytes` long, padding zero.
    pub fn put_expert(&mut self, _layer: usize, _expert: usize, _record: &[u8]) -> Result<(), StoreError> {
        panic!("stub")
    }

    /// Writes sidecars and manifest, makes everything durable, and renames the folder into place.
    pub fn finish(self) -> Result<(), StoreError> {
        panic!("stub")
    }
}
