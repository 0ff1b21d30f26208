//! Reading a whole store again and checking every byte.
//!
//! Regions are streamed: memory is a megabyte a thread, whatever the size of a tensor.

use std::ops::Range;

use quant::Format;

use crate::files::{DENSE_NAME, expert_file_name};
use crate::role::tensor_name;
use crate::{ExpertLayer, ExpertPart, Store, StoreError, hash, parallel};

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
    file: String,
    offset: u64,
    bytes: u64,
    xxh3: &'a str,
    floats: Vec<Floats>,
}

/// A part of a region that consists of floats: scales, biases, or all of an unquantised matrix.
struct Floats {
    name: String,
    /// Bytes of the region.
    range: Range<u64>,
    /// `F32`, `F16` or `Bf16`.
    format: Format,
}

impl Store {
    /// Checks checksums of dense tensors, expert records and sidecars, and that scales and plain floats are finite.
    /// Goes on after a problem. `progress` gets the bytes read so far.
    ///
    /// # Errors
    /// A file of weights cannot be opened at all.
    pub fn verify(&self, progress: &mut dyn FnMut(u64)) -> Result<VerifyReport, StoreError> {
        self.blob(DENSE_NAME).open()?;
        for layer in 0..self.config().n_layer() {
            self.expert_blob(layer).open()?;
        }
        let (n_dense, n_expert) = (self.manifest().dense.len(), self.config().n_expert);
        let n_record = self.config().n_layer() * n_expert;
        let mut read_bytes = 0;
        let check = |idx: usize, add: &dyn Fn(u64)| {
            let region = match idx.checked_sub(n_dense) {
                None => self.dense_region(idx),
                Some(record) => self.expert_region(record / n_expert, record % n_expert),
            };
            self.verify_region(&region, add)
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

    fn dense_region(&self, idx: usize) -> Region<'_> {
        let tensor = &self.manifest().dense[idx];
        let name = tensor_name(tensor.role, tensor.layer);
        Region {
            floats: floats_of(tensor.format, tensor.rows, tensor.cols, 0, &name),
            name,
            file: DENSE_NAME.into(),
            offset: tensor.offset,
            bytes: tensor.bytes(),
            xxh3: &tensor.xxh3,
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
            file: expert_file_name(layer),
            offset: expert as u64 * bytes,
            bytes,
            xxh3: &entry.xxh3[expert],
        }
    }

    /// What is wrong with a region: its checksum, and the first number of each kind that is not finite.
    fn verify_region(&self, region: &Region<'_>, add: &dyn Fn(u64)) -> Vec<StoreError> {
        let blob = self.blob(&region.file);
        let path = blob.path();
        let mut first_bad = vec![None; region.floats.len()];
        let mut scan = |bytes: &[u8], start: u64| {
            for (floats, bad) in region.floats.iter().zip(&mut first_bad) {
                *bad = bad.or_else(|| floats.first_bad(bytes, start));
            }
            add(bytes.len() as u64);
        };
        let hashed =
            blob.open().and_then(|reader| hash::of_range(&reader, region.offset, region.bytes, &mut scan));
        let checksum = match hashed {
            Ok(xxh3) if hash::to_hex(xxh3) == region.xxh3 => None,
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
}

/// The floats of a matrix that starts `start` bytes into its region.
fn floats_of(format: Format, rows: usize, cols: usize, start: u64, name: &str) -> Vec<Floats> {
    let planes = format.planes(rows, cols).map(|p| start + p.start as u64..start + p.end as u64);
    let [codes, scales, biases] = planes;
    let named = |what: &str, range, format| Floats { name: format!("{name}, {what}"), range, format };
    match format {
        Format::Affine { .. } => {
            vec![named("scales", scales, Format::Bf16), named("biases", biases, Format::Bf16)]
        }
        plain => vec![named("weights", codes, plain)],
    }
}

impl Floats {
    /// Where in the region the first number is that is not finite, of those in `bytes`, which start at `start`.
    /// Both start at multiples of a number's size.
    fn first_bad(&self, bytes: &[u8], start: u64) -> Option<u64> {
        let end = start + bytes.len() as u64;
        let (from, to) = (self.range.start.max(start), self.range.end.min(end));
        let bytes = bytes.get((from.checked_sub(start)?) as usize..to.checked_sub(start)? as usize)?;
        let at = match self.format {
            Format::F32 => {
                bytes.chunks_exact(4).position(|b| b[3] & 0x7f == 0x7f && b[2] & 0x80 == 0x80)? * 4
            }
            Format::F16 => bytes.chunks_exact(2).position(|b| b[1] & 0x7c == 0x7c)? * 2,
            _ => bytes.chunks_exact(2).position(|b| b[1] & 0x7f == 0x7f && b[0] & 0x80 == 0x80)? * 2,
        };
        Some(from + at as u64)
    }
}
