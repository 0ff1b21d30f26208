//! An opened checkpoint: every weight that the model needs, found, checked and given a role.
//!
//! Owns the open files and the map from roles to rows of tensors, whatever the files' form. Reads headers only;
//! [`crate::pack()`] reads weights through it.

use std::fmt;
use std::ops::Range;
use std::path::{Path, PathBuf};

use quant::Format;
use store::{ExpertLayer, ExpertPart, ModelConfig};
use xxhash_rust::xxh3::Xxh3;

use crate::assembly::{Assembled, DenseSource, ExpertSource, Tensor};
use crate::folder::{self, Location};
use crate::source::SourceFile;
use crate::work::plane_bytes;
use crate::{ConvertError, gguf, hf, options};

/// Samples of each file in the fingerprint of a checkpoint that is used in place, and their size.
const N_SAMPLE: u64 = 8;
const SAMPLE_BYTES: usize = 4096;

/// The form that a checkpoint has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SourceKind {
    /// Hugging Face's own: safetensors of plain floats.
    Safetensors,
    /// Hugging Face's FP8: E4M3 with a scale for every 128 rows and columns.
    Fp8,
    /// A folder converted for MLX, quantised or not.
    Mlx,
    /// One GGUF file or its parts.
    Gguf,
}

impl fmt::Display for SourceKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            SourceKind::Safetensors => "safetensors",
            SourceKind::Fp8 => "fp8",
            SourceKind::Mlx => "mlx",
            SourceKind::Gguf => "gguf",
        })
    }
}

/// A model as published, ready to be packed.
#[derive(Debug)]
pub struct Checkpoint {
    /// The folder, or the file if it is one.
    pub(crate) path: PathBuf,
    pub(crate) name: String,
    pub(crate) kind: SourceKind,
    pub(crate) config: ModelConfig,
    pub(crate) files: Vec<SourceFile>,
    pub(crate) found: Assembled,
    /// Files to keep beside the weights: name and contents.
    pub(crate) sidecars: Vec<(String, Vec<u8>)>,
    pub(crate) notes: Vec<String>,
}

impl Checkpoint {
    /// Opens the checkpoint in folder `path` (or in the folder of the weight file `path`).
    ///
    /// # Errors
    /// Anything that would keep it from being packed, found before a weight is read: files missing, damaged or
    /// truncated; an architecture, switch or dtype that is not supported; tensors missing, unknown or misshapen.
    pub fn open(path: &Path) -> Result<Self, ConvertError> {
        match folder::resolve(path)? {
            Location::Folder(dir) => hf::open(dir),
            Location::Gguf(path) => gguf::open(path),
        }
    }

    /// The folder, or the file if it is one.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// What the model is called: the folder's name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The form that it has.
    pub fn kind(&self) -> SourceKind {
        self.kind
    }

    /// Shapes.
    pub fn config(&self) -> &ModelConfig {
        &self.config
    }

    /// Bytes of all weights that are used.
    pub fn weight_bytes(&self) -> u64 {
        let dense: u64 = self.dense().iter().map(|d| self.dense_bytes(d)).sum();
        let experts = self.found.experts.iter().flatten();
        dense + experts.map(|e| self.expert_bytes(e)).sum::<u64>()
    }

    /// What was recognised and left out, as "KIND: N tensors".
    pub fn skipped(&self) -> Vec<String> {
        self.found.skipped.iter().map(|(kind, n)| format!("{}: {n} tensors", kind.name())).collect()
    }

    /// Files to keep beside the weights, or made of their metadata: name and contents.
    pub fn sidecars(&self) -> &[(String, Vec<u8>)] {
        &self.sidecars
    }

    /// What the user should know of what was found.
    pub fn notes(&self) -> &[String] {
        &self.notes
    }

    /// Hash of sidecars, headers, sizes and times of change; a different source has a different one.
    pub(crate) fn fingerprint(&self) -> Xxh3 {
        let mut hash = Xxh3::new();
        for (name, bytes) in &self.sidecars {
            hash.update(name.as_bytes());
            hash.update(bytes);
        }
        for file in &self.files {
            hash.update(file.path.file_name().map_or(&[], |n| n.as_encoded_bytes()));
            hash.update(&file.bytes.to_le_bytes());
            hash.update(&file.modified_ns.to_le_bytes());
            hash.update(&file.header_hash.to_le_bytes());
        }
        hash
    }

    /// The same with samples of the weights: other weights of the same shapes may have been copied with their times.
    pub(crate) fn sampled_fingerprint(&self) -> Result<u64, ConvertError> {
        let mut hash = self.fingerprint();
        let mut sample = [0; SAMPLE_BYTES];
        for file in &self.files {
            let bytes = file.bytes.min(SAMPLE_BYTES as u64);
            let last = file.bytes - bytes;
            for i in 1..=N_SAMPLE {
                let sample = &mut sample[..bytes as usize];
                file.read("a sample of its weights", last / N_SAMPLE * i, sample)?;
                hash.update(sample);
            }
        }
        Ok(hash.digest())
    }

    pub(crate) fn dense(&self) -> &[DenseSource] {
        &self.found.dense
    }

    /// Gate, up and down of an expert.
    pub(crate) fn expert(&self, layer: usize, expert: usize) -> &[ExpertSource; 3] {
        &self.found.experts[layer][expert]
    }

    pub(crate) fn tensor(&self, idx: usize) -> &Tensor {
        &self.found.tensors[idx]
    }

    /// The file that tensor `idx` (its codes) is in.
    pub(crate) fn path_of(&self, idx: usize) -> &Path {
        &self.files[self.tensor(idx).planes[0].file].path
    }

    /// Indices of the files that tensor `idx`, seen as a matrix of rows of `cols`, is in.
    pub(crate) fn files_of(&self, idx: usize, cols: usize) -> Vec<usize> {
        let tensor = self.tensor(idx);
        let bytes = plane_bytes(tensor.format, cols, tensor.format.scale_rows());
        // Planes that the format does not have are nowhere.
        tensor.planes.iter().zip(bytes).filter(|(_, bytes)| *bytes > 0).map(|(place, _)| place.file).collect()
    }

    /// Names of the weight files.
    pub(crate) fn file_names(&self) -> Vec<String> {
        let name =
            |file: &SourceFile| file.path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        self.files.iter().map(name).collect()
    }

    /// Are the experts quantised already? FP8 does not count: models are published in it.
    pub fn is_quantised(&self) -> bool {
        let parts = self.found.experts.iter().flatten().flatten();
        parts.map(|part| self.tensor(part.tensor).format).any(options::is_quantised)
    }

    /// The format that has the numbers of a dense matrix exactly.
    pub(crate) fn dense_format(&self, source: &DenseSource) -> Format {
        self.whole_format(source.tensor, &source.pieces)
    }

    /// The format that has the numbers of these rows of a tensor exactly: its own, unless it would be cut between rows
    /// that share scales.
    pub(crate) fn whole_format(&self, tensor: usize, pieces: &[Range<usize>]) -> Format {
        let format = self.tensor(tensor).format;
        if is_whole(format, pieces) { format } else { Format::F32 }
    }

    pub(crate) fn dense_bytes(&self, source: &DenseSource) -> u64 {
        plane_bytes(self.tensor(source.tensor).format, source.cols, source.rows).iter().sum::<usize>() as u64
    }

    pub(crate) fn expert_bytes(&self, parts: &[ExpertSource; 3]) -> u64 {
        let bytes = |i: usize| {
            let (rows, cols) = ExpertLayer::shape(&self.config, ExpertPart::ALL[i]);
            plane_bytes(self.tensor(parts[i].tensor).format, cols, rows).iter().sum::<usize>() as u64
        };
        (0..3).map(bytes).sum()
    }

    /// Reads rows of tensor `idx`, seen as a matrix of rows of `cols`, as they are in the files: codes, scales and
    /// biases, each as long as [`plane_bytes`] says. The first row is one where scales begin.
    pub(crate) fn read_rows(
        &self,
        idx: usize,
        cols: usize,
        rows: Range<usize>,
        out: [&mut [u8]; 3],
    ) -> Result<(), ConvertError> {
        let tensor = self.tensor(idx);
        debug_assert!(
            rows.start.is_multiple_of(tensor.format.scale_rows()),
            "rows cut between shared scales"
        );
        let ranges = tensor.format.row_planes(rows, cols);
        for ((place, range), out) in tensor.planes.iter().zip(ranges).zip(out) {
            if !out.is_empty() {
                let what = format!("tensor {}", tensor.name);
                self.files[place.file].read(&what, place.offset + range.start as u64, out)?;
            }
        }
        Ok(())
    }
}

/// Is a matrix that consists of these rows of a tensor made of whole pieces of it, so that bytes can be taken as they
/// are? Not if rows that share scales are cut apart.
pub(crate) fn is_whole(format: Format, pieces: &[Range<usize>]) -> bool {
    let block = format.scale_rows();
    let (last, others) = pieces.split_last().expect("a matrix has rows");
    let is_start = |piece: &Range<usize>| piece.start.is_multiple_of(block);
    is_start(last) && others.iter().all(|piece| is_start(piece) && piece.len().is_multiple_of(block))
}
