//! The safetensors container: reader of its header.
//!
//! Knows neither roles nor architectures. A file is
//! `u64le n | n bytes of JSON {name: {dtype, shape, data_offsets}} | data`; offsets count from the data.
//! Headers are hostile: lengths, offsets and shapes are checked against the file before anything is read.

use std::fmt;
use std::path::Path;

use serde::Deserialize;
use serde::de::{Deserializer, Error as _, IgnoredAny, MapAccess, Visitor};

use crate::ConvertError;
use crate::source::SourceFile;

/// Longest header accepted: the limit that the format's own library has.
pub const HEADER_BYTES_MAX: u64 = 100_000_000;

/// Bytes of the length field before the header.
const LENGTH_BYTES: u64 = 8;

/// A header that cannot be trusted.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum HeaderError {
    /// Nothing in it.
    #[error("the file is empty (0 bytes)")]
    Empty,
    /// A download went wrong in a known way.
    #[error("this is {0}, not a file of weights")]
    NotWeights(&'static str),
    /// The length field is impossible.
    #[error(
        "header of {header_bytes} bytes does not fit (file has {file_bytes}, limit is {HEADER_BYTES_MAX})"
    )]
    Length {
        /// What the length field says.
        header_bytes: u64,
        /// Size of the file.
        file_bytes: u64,
    },
    /// The header is not the JSON that it should be.
    #[error("header is not valid: {0}")]
    Json(String),
    /// A GGUF header is not as it should be.
    #[error("at byte {at}: {why}")]
    Gguf {
        /// How far the header was read.
        at: u64,
        /// What is there.
        why: String,
    },
    /// A tensor lies outside the file.
    #[error("truncated: tensor {tensor} ends at byte {needed_bytes}, file has {file_bytes}")]
    Truncated {
        /// The tensor.
        tensor: String,
        /// Size that the file should have at least.
        needed_bytes: u64,
        /// Size that it has.
        file_bytes: u64,
    },
    /// A tensor contradicts itself.
    #[error("tensor {tensor}: {why}")]
    Tensor {
        /// The tensor.
        tensor: String,
        /// What does not fit together.
        why: String,
    },
}

/// One tensor of a header, checked to lie inside the file and to have the size that its shape needs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HeaderTensor {
    /// Name in the checkpoint.
    pub name: String,
    /// Spelt as in the header (`BF16`, `F8_E4M3`, …).
    pub dtype: String,
    /// Outermost axis first.
    pub shape: Vec<u64>,
    /// First byte in the file.
    pub offset: u64,
    /// Length in bytes.
    pub bytes: u64,
}

/// Checks the length field: bytes of JSON that follow it.
fn header_len(start: &[u8], file_bytes: u64) -> Result<u64, HeaderError> {
    if file_bytes == 0 {
        return Err(HeaderError::Empty);
    }
    if let Some(what) = wrong_kind(start) {
        return Err(HeaderError::NotWeights(what));
    }
    let header_bytes = start.first_chunk::<8>().map_or(u64::MAX, |b| u64::from_le_bytes(*b));
    if header_bytes > HEADER_BYTES_MAX || header_bytes > file_bytes.saturating_sub(LENGTH_BYTES) {
        return Err(HeaderError::Length { header_bytes, file_bytes });
    }
    Ok(header_bytes)
}

/// What a file that begins so is in place of weights, if that is known.
pub(crate) fn wrong_kind(start: &[u8]) -> Option<&'static str> {
    let trimmed = start.trim_ascii_start();
    if trimmed.starts_with(b"<!") || trimmed.get(..4).is_some_and(|s| s.eq_ignore_ascii_case(b"<htm")) {
        return Some("a web page");
    }
    start.starts_with(b"version ").then_some("a git-lfs pointer")
}

/// Parses the header of a file of `file_len` bytes; `bytes` are its first ones, length field included.
///
/// Tensors come in file order, checked: known dtypes have exactly the bytes that their shape needs, all lie
/// inside the file, none overlaps another, no name appears twice.
///
/// # Errors
/// Any byte that is not as it should be; never panics, allocates in proportion to the header at most.
pub fn parse_header(bytes: &[u8], file_len: u64) -> Result<Vec<HeaderTensor>, HeaderError> {
    let header_bytes = header_len(bytes, file_len)?;
    let data_at = LENGTH_BYTES + header_bytes;
    let json = usize::try_from(data_at)
        .ok()
        .and_then(|end| bytes.get(LENGTH_BYTES as usize..end))
        .ok_or(HeaderError::Length { header_bytes, file_bytes: bytes.len() as u64 })?;
    let Entries(entries) = serde_json::from_slice(json).map_err(|e| HeaderError::Json(e.to_string()))?;
    let mut tensors = Vec::with_capacity(entries.len());
    for (name, entry) in entries {
        tensors.push(check_entry(name, entry, data_at, file_len)?);
    }
    check_names_and_overlap(&mut tensors)?;
    Ok(tensors)
}

fn check_entry(name: String, entry: Entry, data_at: u64, file_len: u64) -> Result<HeaderTensor, HeaderError> {
    let wrong = |why: String| HeaderError::Tensor { tensor: name.clone(), why };
    let [begin, end] = entry.data_offsets;
    let bytes =
        end.checked_sub(begin).ok_or_else(|| wrong(format!("data_offsets {begin}..{end} run backwards")))?;
    let needed_bytes = data_at.checked_add(end).ok_or_else(|| wrong(format!("data_offsets end at {end}")))?;
    if needed_bytes > file_len {
        return Err(HeaderError::Truncated { tensor: name, needed_bytes, file_bytes: file_len });
    }
    if let Some(bits) = dtype_bits(&entry.dtype) {
        let n = entry.shape.iter().try_fold(1u64, |n, &d| n.checked_mul(d));
        let expected_bits = n.and_then(|n| n.checked_mul(bits));
        if expected_bits != bytes.checked_mul(8) {
            let (dtype, shape) = (&entry.dtype, &entry.shape);
            return Err(wrong(format!("{dtype} of shape {shape:?} does not take the {bytes} bytes it has")));
        }
    }
    Ok(HeaderTensor { name, dtype: entry.dtype, shape: entry.shape, offset: data_at + begin, bytes })
}

/// Sorts by place and refuses overlaps and names that appear twice.
fn check_names_and_overlap(tensors: &mut [HeaderTensor]) -> Result<(), HeaderError> {
    tensors.sort_by(|a, b| a.name.cmp(&b.name));
    if let Some(pair) = tensors.windows(2).find(|pair| pair[0].name == pair[1].name) {
        return Err(HeaderError::Tensor { tensor: pair[0].name.clone(), why: "appears twice".into() });
    }
    tensors.sort_by_key(|t| (t.offset, t.bytes));
    if let Some(pair) = tensors.windows(2).find(|pair| pair[0].offset + pair[0].bytes > pair[1].offset) {
        let why = format!("overlaps tensor {}", pair[1].name);
        return Err(HeaderError::Tensor { tensor: pair[0].name.clone(), why });
    }
    Ok(())
}

/// Bits of one number; `None` for dtypes this program has never heard of.
fn dtype_bits(dtype: &str) -> Option<u64> {
    Some(match dtype {
        "F64" | "I64" | "U64" | "C64" => 64,
        "F32" | "I32" | "U32" => 32,
        "F16" | "BF16" | "I16" | "U16" => 16,
        "I8" | "U8" | "BOOL" | "F8_E4M3" | "F8_E5M2" | "F8_E8M0" => 8,
        "F4" => 4,
        _ => return None,
    })
}

/// One header entry as written.
#[derive(Deserialize)]
struct Entry {
    dtype: String,
    shape: Vec<u64>,
    data_offsets: [u64; 2],
}

/// All entries, duplicates kept so that they can be refused.
struct Entries(Vec<(String, Entry)>);

impl<'de> Deserialize<'de> for Entries {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        struct EntriesVisitor;
        impl<'de> Visitor<'de> for EntriesVisitor {
            type Value = Entries;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object of tensors")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Entries, A::Error> {
                let mut entries = Vec::new();
                while let Some(name) = map.next_key::<String>()? {
                    if name == "__metadata__" {
                        map.next_value::<IgnoredAny>()?;
                        continue;
                    }
                    let entry =
                        map.next_value().map_err(|e| A::Error::custom(format!("tensor {name}: {e}")))?;
                    entries.push((name, entry));
                }
                Ok(Entries(entries))
            }
        }
        d.deserialize_map(EntriesVisitor)
    }
}

/// Opens a weight file and reads its header.
pub(crate) fn open(path: &Path) -> Result<(SourceFile, Vec<HeaderTensor>), ConvertError> {
    let header = |source| ConvertError::Header { path: path.to_owned(), source };
    let mut file = SourceFile::open(path)?;
    // A short file still shows whether it is a web page or empty.
    let mut start = vec![0; file.bytes.min(LENGTH_BYTES) as usize];
    file.read("its header", 0, &mut start)?;
    let header_bytes = header_len(&start, file.bytes).map_err(header)?;
    start.resize((LENGTH_BYTES + header_bytes) as usize, 0);
    file.read("its header", 0, &mut start)?;
    let tensors = parse_header(&start, file.bytes).map_err(header)?;
    file.header_hash = xxhash_rust::xxh3::xxh3_64(&start);
    Ok((file, tensors))
}
