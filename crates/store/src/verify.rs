//! Reading a whole store again and checking every byte.

use crate::{Store, StoreError};

/// What `verify` found.
#[derive(Debug, Default)]
pub struct VerifyReport {
    /// Bytes read.
    pub read_bytes: u64,
    /// Dense tensors checked.
    pub n_dense: usize,
    /// Expert records checked.
    pub n_expert: usize,
    /// Everything that is wrong: checksum, non-finite scale, …; each names file, offset, role or layer and expert.
    pub problems: Vec<StoreError>,
}

impl Store {
    /// Checks checksums of dense tensors, expert records and sidecars, and that scales and plain floats are finite.
    /// Goes on after a problem. `progress` gets the bytes read so far.
    ///
    /// # Errors
    /// A file cannot be read at all.
    pub fn verify(&self, _progress: &mut dyn FnMut(u64)) -> Result<VerifyReport, StoreError> {
        panic!("stub")
    }
}
