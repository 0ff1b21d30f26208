//! Reading a whole store again and checking every byte.
//!
//! Regions are streamed: memory is a megabyte a thread, whatever the size of a tensor.

use std::ops::Range;

use quant::Format;

use crate::read::{Origin, dense_blob, row_runs};
use crate::role::tensor_name;
use crate::{Blob, DenseRead, ExpertLayer, ExpertPart, Store, StoreError, StoreFiles, hash, parallel};

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

/// Bytes with one checksum: a dense tensor or an expert record.
struct Region<'a> {
    name: String,
    blob: Blob,
    offset: u64,
    bytes: u64,
    /// A checkpoint has none.
    xxh3: Option<&'a str>,
    floats: Vec<Floats>,
}

/// A part of a region that may have floats in it: a plane of a matrix.
struct Floats {
    name: String,
    /// Bytes of the region.
    range: Range<u64>,
    /// What they are: a plane of a matrix of this format.
    format: Format,
    plane: usize,
}

impl Store {
    /// Checks checksums of dense tensors, expert records and sidecars where there are any, and that scales and plain
    /// floats are finite. Goes on after a problem. `progress` gets the bytes read so far.
    ///
    /// # Errors
    /// A file of weights cannot be opened at all.
    pub fn verify(&self, progress: &mut dyn FnMut(u64)) -> Result<VerifyReport, StoreError> {
        if let Origin::Packed(files) = &self.origin {
            dense_blob(files).open()?;
        }
        for layer in 0..self.config().n_layer() {
            self.expert_blob(layer).open()?;
        }
        let (n_dense, n_expert) = (self.manifest().dense.len(), self.config().n_expert);
        let n_record = self.config().n_layer() * n_expert;
        let mut read_bytes = 0;
        let check = |idx: usize, add: &dyn Fn(u64)| match (idx.checked_sub(n_dense), &self.origin) {
            (None, Origin::Packed(files)) => verify_region(&self.dense_region(files, idx), add),
            (None, Origin::InPlace { weights, .. }) => self.verify_rows(&**weights, idx, add),
            (Some(record), _) => {
                verify_region(&self.expert_region(record / n_expert, record % n_expert), add)
            }
        };
        let problems = parallel::map((0..n_dense + n_record).collect(), check, &mut |bytes| {
            read_bytes = bytes;
            progress(bytes);
        });
        let mut problems: Vec<StoreError> = problems.into_iter().flatten().collect();
        for sidecar in &self.manifest().sidecars {
            problems.extend(self.sidecar(&sidecar.name).err());
            read_bytes += sidecar.bytes;
            progress(read_bytes);
        }
        Ok(VerifyReport { read_bytes, n_dense, n_expert: n_record, problems })
    }

    fn dense_region(&self, files: &StoreFiles, idx: usize) -> Region<'_> {
        let tensor = &self.manifest().dense[idx];
        let name = tensor_name(tensor.role, tensor.layer);
        Region {
            floats: floats_of(tensor.format, tensor.rows, tensor.cols, 0, &name),
            name,
            blob: dense_blob(files),
            offset: tensor.offset,
            bytes: tensor.bytes(),
            xxh3: Some(&tensor.xxh3),
        }
    }

    fn expert_region(&self, layer: usize, expert: usize) -> Region<'_> {
        let entry = &self.manifest().experts[layer];
        let bytes = ExpertLayer::stride_bytes(&entry.formats, self.config()) as u64;
        let name = format!("layer {layer}, expert {expert}");
        let parts = ExpertLayer::ranges(&entry.formats, self.config());
        let floats =
            ExpertPart::ALL.into_iter().zip(entry.formats).zip(parts).flat_map(|((part, format), at)| {
                let (rows, cols) = ExpertLayer::shape(self.config(), part);
                floats_of(format, rows, cols, at.start as u64, &format!("{name}, {part}"))
            });
        Region {
            floats: floats.collect(),
            name,
            blob: self.expert_blob(layer),
            offset: expert as u64 * bytes,
            bytes,
            xxh3: entry.xxh3.get(expert).map(String::as_str),
        }
    }

    /// What is wrong with a dense tensor of a checkpoint: it cannot be read, or has a number that is not finite.
    fn verify_rows(&self, weights: &dyn DenseRead, idx: usize, add: &dyn Fn(u64)) -> Vec<StoreError> {
        let tensor = &self.manifest().dense[idx];
        for rows in row_runs(tensor) {
            let places = tensor.format.row_planes(rows.clone(), tensor.cols);
            let mut planes = places.clone().map(|place| vec![0; place.len()]);
            if let Err(error) =
                weights.read_dense(idx, rows.clone(), planes.each_mut().map(|plane| &mut plane[..]))
            {
                return vec![error];
            }
            add(planes.iter().map(|plane| plane.len() as u64).sum());
            let is_bad = |(i, plane): (usize, &Vec<u8>)| {
                tensor.format.first_not_finite(i, places[i].start, plane).is_some()
            };
            if planes.iter().enumerate().any(is_bad) {
                let name = tensor_name(tensor.role, tensor.layer);
                let why =
                    format!("{name}: a number in rows {} to {} is not finite", rows.start, rows.end - 1);
                return vec![StoreError::Invalid { path: self.location().into(), why }];
            }
        }
        Vec::new()
    }
}

/// What is wrong with a region: its checksum, and the first number of each kind that is not finite.
fn verify_region(region: &Region<'_>, add: &dyn Fn(u64)) -> Vec<StoreError> {
    let path = region.blob.path();
    let mut first_bad = vec![None; region.floats.len()];
    let mut scan = |bytes: &[u8], start: u64| {
        for (floats, bad) in region.floats.iter().zip(&mut first_bad) {
            *bad = bad.or_else(|| floats.first_bad(bytes, start));
        }
        add(bytes.len() as u64);
    };
    let hashed =
        region.blob.open().and_then(|reader| hash::of_range(&reader, region.offset, region.bytes, &mut scan));
    let checksum = match hashed {
        Ok(found) if region.xxh3.is_none_or(|xxh3| hash::to_hex(found) == xxh3) => None,
        Ok(_) => {
            let (what, offset) = (region.name.clone(), region.offset);
            Some(StoreError::Checksum { path: path.into(), what, offset })
        }
        Err(error) => Some(error),
    };
    let bad = region.floats.iter().zip(first_bad).filter_map(|(floats, bad)| {
        let offset = region.offset + bad?;
        let why = format!("{}: the number at offset {offset} is not finite", floats.name);
        Some(StoreError::Invalid { path: path.into(), why })
    });
    checksum.into_iter().chain(bad).collect()
}

/// The floats of a matrix that starts `start` bytes into its region.
fn floats_of(format: Format, rows: usize, cols: usize, start: u64, name: &str) -> Vec<Floats> {
    let planes = format.planes(rows, cols).map(|p| start + p.start as u64..start + p.end as u64);
    let named = planes.into_iter().zip(["weights", "scales", "biases"]).enumerate();
    let floats =
        named.map(|(plane, (range, what))| Floats { name: format!("{name}, {what}"), range, format, plane });
    floats.filter(|floats| !floats.range.is_empty()).collect()
}

impl Floats {
    /// Where in the region the first number is that is not finite, of those in `bytes`, which start at `start`.
    /// Both start at multiples of 8 bytes.
    fn first_bad(&self, bytes: &[u8], start: u64) -> Option<u64> {
        let end = start + bytes.len() as u64;
        let (from, to) = (self.range.start.max(start), self.range.end.min(end));
        let bytes = bytes.get((from.checked_sub(start)?) as usize..to.checked_sub(start)? as usize)?;
        let at = self.format.first_not_finite(self.plane, (from - self.range.start) as usize, bytes)?;
        Some(from + at as u64)
    }
}
