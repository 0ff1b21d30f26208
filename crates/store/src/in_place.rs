//! A checkpoint that is used where it is: its experts are records in pieces, its dense weights are read through who
//! knows its format.

use std::fmt::Debug;
use std::ops::Range;
use std::path::PathBuf;
use std::sync::Arc;

use crate::pieces::PieceFile;
use crate::{Manifest, StoreError};

/// What a checkpoint tells of itself to be used as a store.
#[derive(Debug)]
pub struct InPlace {
    /// The folder or file, for messages.
    pub location: PathBuf,
    /// As a packed store would have it, without checksums.
    pub manifest: Manifest,
    /// Differs if weights or configuration do.
    pub fingerprint: u64,
    /// Records of each layer, at the stride that the manifest's formats give.
    pub experts: Vec<Arc<PieceFile>>, // [n_layer]
    /// Reads what is no expert.
    pub weights: Box<dyn DenseRead>,
}

/// Dense weights and sidecars of a checkpoint.
pub trait DenseRead: Debug + Send + Sync {
    /// Fills rows `rows` of tensor `idx` of the manifest's dense tensors: codes, scales and biases as its format lays
    /// them out. `rows` starts at a multiple of [`quant::Format::scale_rows`].
    ///
    /// # Errors
    /// The file cannot be read, or a weight cannot be stored in the format; names file and tensor.
    fn read_dense(&self, idx: usize, rows: Range<usize>, planes: [&mut [u8]; 3]) -> Result<(), StoreError>;

    /// The file kept beside the weights that the manifest lists as `name`.
    ///
    /// # Errors
    /// It cannot be read.
    fn sidecar(&self, name: &str) -> Result<Vec<u8>, StoreError>;
}
