//! The manifest: what the store holds and where.
//!
//! On disk it is an envelope around a body. The envelope names the format and its version, so that a store from the
//! future is recognised before anything else is understood, and has the checksum of the body's bytes.

use std::ops::Range;
use std::path::Path;

use quant::{Format, MatrixRef};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use crate::role::tensor_name;
use crate::{Architecture, ExpertPart, ModelConfig, Role, StoreError, hash};

/// The envelope's `format`.
const FORMAT_NAME: &str = "flash-moe-store";

/// The store version this program writes and the newest it reads.
pub const FORMAT_VERSION: u64 = 1;

/// Expert records start at multiples of this: a page on Apple machines, four pages and O_DIRECT blocks elsewhere.
pub const RECORD_ALIGN: usize = 16 * 1024;

/// Everything about a store but the weights.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Manifest {
    /// What the model is called: the source folder's name, or the synth preset.
    pub name: String,
    /// Where the weights came from.
    pub source: Source,
    /// Shapes.
    pub config: ModelConfig,
    /// Tensors of `dense.bin`, in file order.
    pub dense: Vec<DenseTensor>,
    /// One entry a layer.
    pub experts: Vec<ExpertLayer>,
    /// Tokenizer, template and generation config, as they came.
    pub sidecars: Vec<Sidecar>,
}

/// What every version of the envelope has.
#[derive(Deserialize)]
struct Head {
    format: String,
    version: u64,
}

/// The manifest file of version 1.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Envelope<'a> {
    format: String,
    version: u64,
    xxh3: String,
    #[serde(borrow)]
    body: &'a RawValue,
}

/// Where the weights came from.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Source {
    /// `safetensors`, `synthetic`, …
    pub kind: String,
    /// Hash of the source's headers, sizes and times: a changed source is noticed on resume.
    pub fingerprint: String,
    /// Tensors that were recognised and left out (vision, MTP), by kind.
    pub skipped: Vec<String>,
}

/// One tensor of `dense.bin`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DenseTensor {
    /// What it is for.
    pub role: Role,
    /// Its layer; absent for embedding, head and final norm.
    pub layer: Option<usize>,
    /// How it is stored.
    #[serde(with = "crate::manifest::format_name")]
    pub format: Format,
    /// Outputs.
    pub rows: usize,
    /// Inputs.
    pub cols: usize,
    /// First byte in `dense.bin`, a multiple of 64.
    pub offset: u64,
    /// xxh3-64 of its bytes, 16 hex digits; empty in a checkpoint.
    pub xxh3: String,
}

/// The experts of one layer: one file, one record an expert, records at a fixed stride.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ExpertLayer {
    /// Formats of gate, up and down.
    #[serde(with = "crate::manifest::format_names")]
    pub formats: [Format; 3],
    /// xxh3-64 of each whole record (`stride_bytes`, padding included), 16 hex digits each; empty in a checkpoint.
    pub xxh3: Vec<String>,
}

/// A file kept beside the weights, byte for byte.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Sidecar {
    /// File name.
    pub name: String,
    /// Its size.
    pub bytes: u64,
    /// xxh3-64, 16 hex digits; empty in a checkpoint.
    pub xxh3: String,
}

impl Manifest {
    /// Reads a manifest file and checks it against itself: version, checksum, bounds of the configuration, tensors
    /// and their places. Also returns the checksum of its body, which names these weights. `path` is for messages.
    ///
    /// # Errors
    /// Anything is missing, unknown, contradictory or out of bounds.
    pub fn parse(bytes: &[u8], path: &Path) -> Result<(Self, u64), StoreError> {
        let invalid = |why: String| StoreError::Invalid { path: path.into(), why };
        let not_a_store = |why: String| StoreError::NotAStore { path: path.into(), why };
        let head: Head =
            serde_json::from_slice(bytes).map_err(|e| not_a_store(format!("it is not a manifest: {e}")))?;
        if head.format != FORMAT_NAME {
            return Err(not_a_store(format!("its format is '{}', not '{FORMAT_NAME}'", head.format)));
        }
        if head.version > FORMAT_VERSION {
            let (found, supported) = (head.version, FORMAT_VERSION);
            return Err(StoreError::FutureVersion { path: path.into(), found, supported });
        }
        if head.version != FORMAT_VERSION {
            return Err(invalid(format!("store version {} never existed", head.version)));
        }
        let envelope: Envelope<'_> =
            serde_json::from_slice(bytes).map_err(|e| invalid(format!("damaged manifest: {e}")))?;
        let body = envelope.body.get();
        if envelope.xxh3 != hash::hex(body.as_bytes()) {
            return Err(StoreError::Checksum {
                path: path.into(),
                what: "the manifest's body".into(),
                offset: 0,
            });
        }
        let manifest: Manifest =
            serde_json::from_str(body).map_err(|e| invalid(format!("manifest body: {e}")))?;
        manifest.check(true).map_err(invalid)?;
        Ok((manifest, hash::of(body.as_bytes())))
    }

    /// The manifest file.
    pub(crate) fn to_bytes(&self) -> Vec<u8> {
        let body = serde_json::value::to_raw_value(self).expect("a manifest has string keys only");
        let envelope = Envelope {
            format: FORMAT_NAME.into(),
            version: FORMAT_VERSION,
            xxh3: hash::hex(body.get().as_bytes()),
            body: &body,
        };
        serde_json::to_vec(&envelope).expect("an envelope has string keys only")
    }

    /// Is it a checkpoint's, which is used where it is and has no checksums?
    pub fn is_in_place(&self) -> bool {
        self.dense.iter().all(|tensor| tensor.xxh3.is_empty())
    }

    /// Size of `dense.bin`.
    pub(crate) fn dense_bytes(&self) -> u64 {
        self.dense.last().map_or(0, |t| t.offset + t.bytes())
    }

    /// The formats of all matrices, with what messages call these. Norms and such are no matrices.
    pub fn formats(&self) -> impl Iterator<Item = (Format, String)> {
        let dense = self.dense.iter().filter(|tensor| !tensor.role.is_f32());
        let dense = dense.map(|tensor| (tensor.format, tensor_name(tensor.role, tensor.layer)));
        let parts = |(layer, experts): (usize, &ExpertLayer)| {
            let name = |part| format!("{part} of the experts of layer {layer}");
            let formats = experts.formats.into_iter();
            formats.zip(ExpertPart::ALL.map(name)).collect::<Vec<_>>()
        };
        dense.chain(self.experts.iter().enumerate().flat_map(parts))
    }

    /// Size of the expert file of `layer`.
    pub(crate) fn expert_file_bytes(&self, layer: usize) -> u64 {
        self.config.n_expert as u64
            * ExpertLayer::stride_bytes(&self.experts[layer].formats, &self.config) as u64
    }
}

impl DenseTensor {
    /// Bytes in `dense.bin`, padding included.
    pub fn bytes(&self) -> u64 {
        self.format.matrix_bytes(self.rows, self.cols) as u64
    }
}

impl ExpertLayer {
    /// Shape of a part.
    pub fn shape(config: &ModelConfig, part: ExpertPart) -> (usize, usize) {
        match part {
            ExpertPart::Gate | ExpertPart::Up => (config.d_ff_expert, config.d_model),
            ExpertPart::Down => (config.d_model, config.d_ff_expert),
        }
    }

    /// Bytes of gate, up and down inside a record.
    pub fn ranges(formats: &[Format; 3], config: &ModelConfig) -> [Range<usize>; 3] {
        let mut at = 0;
        [0, 1, 2].map(|i| {
            let (rows, cols) = Self::shape(config, ExpertPart::ALL[i]);
            let start = at;
            at += formats[i].matrix_bytes(rows, cols);
            start..at
        })
    }

    /// Bytes from one record to the next: the record, padded to [`RECORD_ALIGN`].
    pub fn stride_bytes(formats: &[Format; 3], config: &ModelConfig) -> usize {
        Self::ranges(formats, config)[2].end.next_multiple_of(RECORD_ALIGN)
    }

    /// Gate, up and down of a record.
    ///
    /// # Panics
    /// `record` is shorter than the record (program mistake: slots are made with [`Self::stride_bytes`]).
    pub fn parts<'a>(formats: &[Format; 3], config: &ModelConfig, record: &'a [u8]) -> [MatrixRef<'a>; 3] {
        let ranges = Self::ranges(formats, config);
        [0, 1, 2].map(|i| {
            let (rows, cols) = Self::shape(config, ExpertPart::ALL[i]);
            MatrixRef::new(formats[i], rows, cols, &record[ranges[i].clone()]).expect("a slot holds a record")
        })
    }
}

impl Architecture {
    /// The name that checkpoints use.
    pub fn name(self) -> &'static str {
        match self {
            Architecture::Qwen35Moe => "qwen3_5_moe",
            Architecture::Qwen3Next => "qwen3_next",
            Architecture::Qwen3Moe => "qwen3_moe",
        }
    }
}

/// Formats are written by name.
pub(crate) mod format_name {
    use quant::Format;
    use serde::{Deserialize, Deserializer, Serializer, de::Error};

    pub(crate) fn serialize<S: Serializer>(format: &Format, s: S) -> Result<S::Ok, S::Error> {
        s.collect_str(format)
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(d: D) -> Result<Format, D::Error> {
        String::deserialize(d)?.parse().map_err(D::Error::custom)
    }
}

/// Three formats by name.
pub(crate) mod format_names {
    use quant::Format;
    use serde::{Deserialize, Deserializer, Serialize, Serializer, de::Error};

    pub(crate) fn serialize<S: Serializer>(formats: &[Format; 3], s: S) -> Result<S::Ok, S::Error> {
        formats.map(|f| f.to_string()).serialize(s)
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(d: D) -> Result<[Format; 3], D::Error> {
        let names = <[String; 3]>::deserialize(d)?;
        let parse = |i: usize| names[i].parse().map_err(D::Error::custom);
        Ok([parse(0)?, parse(1)?, parse(2)?])
    }
}
