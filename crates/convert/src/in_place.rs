//! A checkpoint as a store, nothing copied: records are pieces of its files, dense weights are read as they are
//! asked for.

use std::io;
use std::ops::Range;
use std::path::PathBuf;
use std::slice::from_ref;
use std::sync::Arc;

use quant::Format;
use store::{
    DensePlan, DenseRead, ExpertLayer, ExpertPart, ExpertPlan, InPlace, Manifest, Piece, PieceFile, Source,
    Store, StoreError, StorePlan,
};

use crate::ConvertError;
use crate::checkpoint::{Checkpoint, is_whole};
use crate::options::Kind;
use crate::rows::{Matrix, Scratch};

impl Checkpoint {
    /// The checkpoint as a store: matrices keep the formats that they have (norms, biases and convolutions become F32
    /// in memory), experts are read where they are.
    ///
    /// # Errors
    /// The experts of a layer have several formats.
    pub fn in_place(self) -> Result<Store, ConvertError> {
        let manifest = self.manifest_in_place()?;
        let files: Arc<[PathBuf]> = self.files.iter().map(|file| file.path.clone()).collect();
        let layers = manifest.experts.iter().enumerate();
        let experts = layers
            .map(|(layer, entry)| self.records(layer, &entry.formats, &files))
            .collect::<Result<_, _>>()?;
        let parts = InPlace {
            location: self.path.clone(),
            fingerprint: self.sampled_fingerprint()?,
            experts,
            weights: Box::new(Weights {
                formats: manifest.dense.iter().map(|tensor| tensor.format).collect(),
                checkpoint: self,
            }),
            manifest,
        };
        Ok(Store::in_place(parts)?)
    }

    fn manifest_in_place(&self) -> Result<Manifest, ConvertError> {
        let dense = self.dense().iter().map(|source| DensePlan {
            role: source.role,
            layer: source.layer,
            format: if source.role.is_f32() { Format::F32 } else { self.dense_format(source) },
            rows: source.rows,
            cols: source.cols,
        });
        let layers = 0..self.config.n_layer();
        let experts = layers.map(|layer| Ok(ExpertPlan { formats: self.formats_in_place(layer)? }));
        let plan = StorePlan {
            name: self.name.clone(),
            source: Source {
                kind: self.kind.to_string(),
                fingerprint: format!("{:016x}", self.fingerprint().digest()),
                skipped: self.skipped(),
            },
            config: self.config.clone(),
            dense: dense.collect(),
            experts: experts.collect::<Result<_, ConvertError>>()?,
            sidecars: self.sidecars.clone(),
        };
        let mut manifest = plan.manifest();
        manifest.dense.iter_mut().for_each(|tensor| tensor.xxh3.clear());
        manifest.experts.iter_mut().for_each(|layer| layer.xxh3.clear());
        Ok(manifest)
    }

    /// Formats of gate, up and down of a layer's experts.
    fn formats_in_place(&self, layer: usize) -> Result<[Format; 3], ConvertError> {
        let mut formats = [Format::F32; 3];
        for (i, part) in ExpertPart::ALL.into_iter().enumerate() {
            let kind = Kind::Expert(part);
            let refuse = |tensor: usize, why: String| ConvertError::Unsupported {
                path: self.path_of(tensor).to_owned(),
                what: format!(
                    "{kind} of layer {layer} {why}, so the model cannot be used where it is: pack it"
                ),
            };
            let (rows, _) = ExpertLayer::shape(&self.config, part);
            let sources = (0..self.config.n_expert).map(|expert| self.expert(layer, expert)[i]);
            formats[i] = self.tensor(self.expert(layer, 0)[i].tensor).format;
            for source in sources {
                let format = self.tensor(source.tensor).format;
                if format != formats[i] {
                    let why = format!("has several formats ({}, {format})", formats[i]);
                    return Err(refuse(source.tensor, why));
                }
                if !is_whole(format, from_ref(&source.rows(rows))) {
                    return Err(refuse(source.tensor, "has scales that experts share".into()));
                }
            }
        }
        Ok(formats)
    }

    /// The records of a layer, in pieces of the files.
    fn records(
        &self,
        layer: usize,
        formats: &[Format; 3],
        files: &Arc<[PathBuf]>,
    ) -> Result<Arc<PieceFile>, ConvertError> {
        let stride = ExpertLayer::stride_bytes(formats, &self.config);
        let parts = ExpertLayer::ranges(formats, &self.config);
        let mut pieces: Vec<Piece> = Vec::new();
        for expert in 0..self.config.n_expert {
            for (i, part) in ExpertPart::ALL.into_iter().enumerate() {
                let (rows, cols) = ExpertLayer::shape(&self.config, part);
                let source = self.expert(layer, expert)[i];
                let from = formats[i].row_planes(source.rows(rows), cols);
                let to = formats[i].planes(rows, cols);
                for ((place, from), to) in self.tensor(source.tensor).planes.iter().zip(from).zip(to) {
                    add_piece(
                        &mut pieces,
                        Piece {
                            start: (expert * stride + parts[i].start + to.start) as u64,
                            file: place.file,
                            offset: place.offset + from.start as u64,
                            bytes: to.len() as u64,
                        },
                    );
                }
            }
        }
        let name = format!("experts of layer {layer} of {}", self.path.display());
        let bytes = (self.config.n_expert * stride) as u64;
        Ok(Arc::new(PieceFile::new(name.into(), Arc::clone(files), pieces, bytes)?))
    }
}

/// Adds a piece, to the last one if the two are neighbours in both files: one read in place of two.
fn add_piece(pieces: &mut Vec<Piece>, piece: Piece) {
    if piece.bytes == 0 {
        return;
    }
    match pieces.last_mut() {
        Some(last)
            if (last.file, last.offset + last.bytes, last.start + last.bytes)
                == (piece.file, piece.offset, piece.start) =>
        {
            last.bytes += piece.bytes;
        }
        _ => pieces.push(piece),
    }
}

/// Reads dense weights on demand.
#[derive(Debug)]
struct Weights {
    checkpoint: Checkpoint,
    /// Of the dense tensors, in the manifest's order.
    formats: Vec<Format>,
}

impl DenseRead for Weights {
    fn read_dense(&self, idx: usize, rows: Range<usize>, planes: [&mut [u8]; 3]) -> Result<(), StoreError> {
        let matrix = Matrix::dense(&self.checkpoint.dense()[idx], self.formats[idx]);
        // Only vectors and convolutions are converted: buffers of their own for each call cost nothing.
        self.checkpoint
            .rows(&matrix, rows, planes, &mut Scratch::default(), &mut |_, _| ())
            .map_err(|error| store_error(error, &self.checkpoint.path))
    }

    fn sidecar(&self, name: &str) -> Result<Vec<u8>, StoreError> {
        let found = self.checkpoint.sidecars.iter().find(|(sidecar, _)| sidecar == name);
        found.map(|(_, bytes)| bytes.clone()).ok_or_else(|| StoreError::Invalid {
            path: self.checkpoint.path.join(name),
            why: "is missing".into(),
        })
    }
}

/// What a store says of it.
fn store_error(error: ConvertError, path: &std::path::Path) -> StoreError {
    match error {
        ConvertError::Store(error) => error,
        ConvertError::Io { path, action, source } => StoreError::Io {
            path,
            action: "read the weights",
            source: io::Error::new(source.kind(), format!("{action}: {source}")),
        },
        ConvertError::BadWeight { path, tensor, matrix, row, source } => {
            StoreError::Invalid { path, why: format!("tensor {tensor}: row {row} of {matrix}: {source}") }
        }
        other => StoreError::Invalid { path: path.to_owned(), why: other.to_string() },
    }
}
