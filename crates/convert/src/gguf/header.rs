//! The GGUF container: metadata and the list of tensors.
//!
//! A file is `GGUF | u32 version | u64 tensors | u64 keys | keys and values | tensor infos | padding | data`, all
//! little-endian; offsets of tensors count from the data. Headers are hostile: every count, length and offset is
//! checked against the bytes that the file has left before anything is allocated for it.

use std::collections::{BTreeMap, HashSet};
use std::io::{self, Read};

use xxhash_rust::xxh3::Xxh3;

use super::value::{Numbers, Scalar, Texts, Value};
use crate::safetensors::{HeaderError, wrong_kind};

/// Longest header accepted. The largest vocabularies take 20 MB.
pub const HEADER_BYTES_MAX: u64 = 256 << 20;

const MAGIC: [u8; 4] = *b"GGUF";
/// Two years of files have version 2; version 3 has the same layout.
const VERSIONS: std::ops::RangeInclusive<u32> = 2..=3;
const KEY_BYTES_MAX: u64 = 1 << 16;
const NAME_BYTES_MAX: u64 = 1 << 10;
/// Axes of a tensor.
const DIMS_MAX: u32 = 4;
/// Arrays in arrays in arrays.
const ARRAY_DEPTH_MAX: u32 = 4;
const ALIGNMENT_DEFAULT: u64 = 32;
const ALIGNMENT_MAX: u64 = 1 << 16;

/// Keys and tensors of a file; real ones have hundreds and thousands.
const N_KEY_MAX: u64 = 1 << 16;
const N_TENSOR_MAX: u64 = 1 << 17;

/// Fewest bytes that a key with its value, and a tensor's entry, can have.
const ENTRY_BYTES_MIN: u64 = 8 + 4 + 1;
const INFO_BYTES_MIN: u64 = 8 + 4 + 4 + 8;

/// What a file says about itself.
#[derive(Clone, Debug, PartialEq)]
pub struct Header {
    /// Metadata by key.
    pub metadata: BTreeMap<String, Value>,
    /// All tensors, in file order.
    pub tensors: Vec<TensorInfo>,
    /// xxh3 of the header's bytes.
    pub hash: u64,
    /// Where the file should end, about: behind the last tensor.
    pub end: u64,
}

/// One tensor, checked to lie inside the file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TensorInfo {
    /// Name in the file.
    pub name: String,
    /// Number of its type; [`type_name`] names it.
    pub type_id: u32,
    /// Outermost axis first: the reverse of the file's order.
    pub shape: Vec<u64>,
    /// First byte in the file.
    pub offset: u64,
    /// Length in bytes; 0 if the type is not known.
    pub bytes: u64,
}

/// Number, name, numbers of a block, and its bytes, of every type that files may have.
const TYPES: [(u32, &str, u64, u64); 33] = [
    (0, "F32", 1, 4),
    (1, "F16", 1, 2),
    (2, "Q4_0", 32, 18),
    (3, "Q4_1", 32, 20),
    (6, "Q5_0", 32, 22),
    (7, "Q5_1", 32, 24),
    (8, "Q8_0", 32, 34),
    (9, "Q8_1", 32, 36),
    (10, "Q2_K", 256, 84),
    (11, "Q3_K", 256, 110),
    (12, "Q4_K", 256, 144),
    (13, "Q5_K", 256, 176),
    (14, "Q6_K", 256, 210),
    (15, "Q8_K", 256, 292),
    (16, "IQ2_XXS", 256, 66),
    (17, "IQ2_XS", 256, 74),
    (18, "IQ3_XXS", 256, 98),
    (19, "IQ1_S", 256, 50),
    (20, "IQ4_NL", 32, 18),
    (21, "IQ3_S", 256, 110),
    (22, "IQ2_S", 256, 82),
    (23, "IQ4_XS", 256, 136),
    (24, "I8", 1, 1),
    (25, "I16", 1, 2),
    (26, "I32", 1, 4),
    (27, "I64", 1, 8),
    (28, "F64", 1, 8),
    (29, "IQ1_M", 256, 56),
    (30, "BF16", 1, 2),
    (34, "TQ1_0", 256, 54),
    (35, "TQ2_0", 256, 66),
    (39, "MXFP4", 32, 17),
    (40, "NVFP4", 64, 36),
];

/// The name of a tensor's type.
pub fn type_name(type_id: u32) -> String {
    let known = TYPES.iter().find(|(id, ..)| *id == type_id);
    known.map_or_else(|| format!("type {type_id}"), |(_, name, ..)| (*name).to_owned())
}

/// Reads the header of a file of `file_bytes` from its first byte on.
///
/// Tensors come in file order, checked: known types have rows of whole blocks, all lie inside the file, none overlaps
/// another, no name or key appears twice.
///
/// # Errors
/// Any byte that is not as it should be, or the system's own. Never panics, allocates in proportion to what was read.
pub fn read_header(reader: &mut dyn Read, file_bytes: u64) -> io::Result<Result<Header, HeaderError>> {
    let mut cursor = Cursor { reader, at: 0, file_bytes, hash: Xxh3::new() };
    match cursor.header() {
        Ok(header) => Ok(Ok(header)),
        Err(Stop::Header(e)) => Ok(Err(e)),
        Err(Stop::Io(e)) => Err(e),
    }
}

/// Why reading ends early.
enum Stop {
    Header(HeaderError),
    Io(io::Error),
}

impl From<HeaderError> for Stop {
    fn from(e: HeaderError) -> Self {
        Stop::Header(e)
    }
}

/// Where reading is, and how far it may go.
struct Cursor<'a> {
    reader: &'a mut dyn Read,
    at: u64,
    file_bytes: u64,
    hash: Xxh3,
}

impl Cursor<'_> {
    fn header(&mut self) -> Result<Header, Stop> {
        self.start()?;
        let n_tensor = self.u64()?;
        let n_key = self.u64()?;
        self.check_count("tensors", n_tensor, INFO_BYTES_MIN)?;
        self.check_count("keys", n_key, ENTRY_BYTES_MIN)?;
        if n_key > N_KEY_MAX || n_tensor > N_TENSOR_MAX {
            return Err(self.wrong(format!("{n_key} keys and {n_tensor} tensors are not believable")));
        }
        let mut metadata = BTreeMap::new();
        for _ in 0..n_key {
            let key = self.name("a key", KEY_BYTES_MAX)?;
            let value = self.value(&key)?;
            if metadata.insert(key.clone(), value).is_some() {
                return Err(self.wrong(format!("key {key} appears twice")));
            }
        }
        let alignment = match metadata.get("general.alignment") {
            None => ALIGNMENT_DEFAULT,
            Some(value) => match value.as_u64() {
                Some(n) if n.is_power_of_two() && n <= ALIGNMENT_MAX => n,
                _ => return Err(self.wrong(format!("general.alignment is {value}, no power of two"))),
            },
        };
        let mut tensors = Vec::new();
        for _ in 0..n_tensor {
            tensors.push(self.tensor(alignment)?);
        }
        let data_at = self.at.next_multiple_of(alignment);
        let end = place(&mut tensors, data_at, self.file_bytes)?;
        Ok(Header { metadata, tensors, hash: self.hash.digest(), end })
    }

    /// Magic and version.
    fn start(&mut self) -> Result<(), Stop> {
        if self.file_bytes == 0 {
            return Err(HeaderError::Empty.into());
        }
        if self.file_bytes < 8 {
            return Err(self.truncated(8));
        }
        let start: [u8; 8] = self.array()?;
        let [magic, version] = [&start[..4], &start[4..]];
        if let Some(what) = wrong_kind(&start) {
            return Err(HeaderError::NotWeights(what).into());
        }
        if magic == [MAGIC[3], MAGIC[2], MAGIC[1], MAGIC[0]] {
            return Err(HeaderError::Gguf { at: 0, why: BIG_ENDIAN.into() }.into());
        }
        if magic != MAGIC {
            return Err(HeaderError::Gguf { at: 0, why: "the file does not begin with GGUF".into() }.into());
        }
        let version = u32::from_le_bytes(version.try_into().expect("four bytes"));
        if VERSIONS.contains(&version) {
            return Ok(());
        }
        let why = match version {
            1 => "version 1 of 2023 is not supported; convert the model again".to_owned(),
            _ if VERSIONS.contains(&version.swap_bytes()) => BIG_ENDIAN.into(),
            _ => format!("version {version} is not known (2 and 3 are)"),
        };
        Err(HeaderError::Gguf { at: 4, why }.into())
    }

    fn tensor(&mut self, alignment: u64) -> Result<TensorInfo, Stop> {
        let name = self.name("a tensor's name", NAME_BYTES_MAX)?;
        let n_dim = self.u32()?;
        if n_dim == 0 || n_dim > DIMS_MAX {
            return Err(self.wrong(format!("tensor {name} has {n_dim} axes, 1 to {DIMS_MAX} are possible")));
        }
        let mut shape = Vec::with_capacity(n_dim as usize);
        for _ in 0..n_dim {
            shape.push(self.u64()?);
        }
        let type_id = self.u32()?;
        let offset = self.u64()?;
        let wrong = |why: String| HeaderError::Tensor { tensor: name.clone(), why };
        if !offset.is_multiple_of(alignment) {
            return Err(wrong(format!("begins at {offset} of the data, no multiple of {alignment}")).into());
        }
        let bytes = match TYPES.iter().find(|(id, ..)| *id == type_id) {
            None => 0,
            Some(&(_, type_name, block, block_bytes)) => {
                if !shape[0].is_multiple_of(block) {
                    let why = format!("has rows of {}, {type_name} needs a multiple of {block}", shape[0]);
                    return Err(wrong(why).into());
                }
                let n = shape.iter().try_fold(1u64, |n, &d| n.checked_mul(d));
                let bytes = n.and_then(|n| (n / block).checked_mul(block_bytes));
                bytes.ok_or_else(|| wrong(format!("shape {shape:?} is too large to be true")))?
            }
        };
        shape.reverse();
        Ok(TensorInfo { name, type_id, shape, offset, bytes })
    }

    fn value(&mut self, key: &str) -> Result<Value, Stop> {
        match self.u32()? {
            8 => Ok(Value::Text(self.text()?)),
            9 => self.array_value(key, 1),
            id => match Scalar::from_id(id) {
                Some(kind) => self.scalar(key, kind),
                None => Err(self.wrong(format!("key {key} has a value of type {id}, which does not exist"))),
            },
        }
    }

    fn scalar(&mut self, key: &str, kind: Scalar) -> Result<Value, Stop> {
        let bytes = self.bytes(kind.bytes() as u64)?;
        kind.read(&bytes).ok_or_else(|| self.wrong(format!("key {key} is neither true nor false")))
    }

    fn array_value(&mut self, key: &str, depth: u32) -> Result<Value, Stop> {
        let (id, n) = (self.u32()?, self.u64()?);
        let what = || format!("values of key {key}");
        if id == 8 {
            self.check_count(&what(), n, 8)?;
            let mut texts = Texts::default();
            for _ in 0..n {
                let text = self.text()?;
                texts.push(&text);
            }
            return Ok(Value::Texts(texts));
        }
        if id == 9 {
            self.check_count(&what(), n, 12)?;
            if depth == ARRAY_DEPTH_MAX {
                return Err(self.wrong(format!("key {key} has arrays in arrays, {depth} deep")));
            }
            for _ in 0..n {
                self.array_value(key, depth + 1)?;
            }
            return Ok(Value::Nested);
        }
        let Some(kind) = Scalar::from_id(id) else {
            return Err(
                self.wrong(format!("key {key} is an array of values of type {id}, which does not exist"))
            );
        };
        self.check_count(&what(), n, kind.bytes() as u64)?;
        let bytes = self.bytes(n * kind.bytes() as u64)?;
        if kind == Scalar::Bool && bytes.iter().any(|&b| b > 1) {
            return Err(self.wrong(format!("key {key} has a value that is neither true nor false")));
        }
        Ok(Value::Numbers(Numbers::new(kind, bytes)))
    }

    /// Refuses `n` things of at least `bytes_min` each where the file has fewer bytes left.
    fn check_count(&self, what: &str, n: u64, bytes_min: u64) -> Result<(), Stop> {
        let left = self.file_bytes - self.at;
        if n.checked_mul(bytes_min).is_some_and(|needed| needed <= left) {
            return Ok(());
        }
        Err(self.wrong(format!("{n} {what} do not fit the {left} bytes that the file has left")))
    }

    fn name(&mut self, what: &str, bytes_max: u64) -> Result<String, Stop> {
        let n = self.u64()?;
        if n > bytes_max {
            return Err(self.wrong(format!("{what} has {n} bytes, at most {bytes_max} are possible")));
        }
        let bytes = self.bytes(n)?;
        String::from_utf8(bytes).map_err(|_| self.wrong(format!("{what} is not UTF-8")))
    }

    fn text(&mut self) -> Result<Vec<u8>, Stop> {
        let n = self.u64()?;
        self.bytes(n)
    }

    fn u32(&mut self) -> Result<u32, Stop> {
        Ok(u32::from_le_bytes(self.array()?))
    }

    fn u64(&mut self) -> Result<u64, Stop> {
        Ok(u64::from_le_bytes(self.array()?))
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], Stop> {
        let mut bytes = [0; N];
        self.fill(&mut bytes)?;
        Ok(bytes)
    }

    /// The next `n` bytes: that many are in the file, or nothing is allocated.
    fn bytes(&mut self, n: u64) -> Result<Vec<u8>, Stop> {
        self.check_room(n)?;
        let mut bytes = vec![0; n as usize];
        self.fill(&mut bytes)?;
        Ok(bytes)
    }

    fn fill(&mut self, out: &mut [u8]) -> Result<(), Stop> {
        self.check_room(out.len() as u64)?;
        self.reader.read_exact(out).map_err(Stop::Io)?;
        self.hash.update(out);
        self.at += out.len() as u64;
        Ok(())
    }

    fn check_room(&self, n: u64) -> Result<(), Stop> {
        let end = self.at.saturating_add(n);
        if end > self.file_bytes {
            return Err(self.truncated(end));
        }
        if end > HEADER_BYTES_MAX {
            return Err(self.wrong(format!("the header is longer than {HEADER_BYTES_MAX} bytes")));
        }
        Ok(())
    }

    fn truncated(&self, needed: u64) -> Stop {
        let why = format!("truncated: the header goes on to byte {needed}, the file has {}", self.file_bytes);
        self.wrong(why)
    }

    fn wrong(&self, why: String) -> Stop {
        Stop::Header(HeaderError::Gguf { at: self.at, why })
    }
}

const BIG_ENDIAN: &str = "the file is big-endian, which is not supported; get the little-endian one";

/// Makes offsets count from the file's start; refuses tensors outside the file, overlaps and names that appear twice.
/// Sorts by place; the end of the last one.
fn place(tensors: &mut [TensorInfo], data_at: u64, file_bytes: u64) -> Result<u64, HeaderError> {
    let mut names = HashSet::new();
    for tensor in tensors.iter_mut() {
        let start = data_at.saturating_add(tensor.offset);
        let needed_bytes = start.saturating_add(tensor.bytes);
        if needed_bytes > file_bytes {
            let tensor = tensor.name.clone();
            return Err(HeaderError::Truncated { tensor, needed_bytes, file_bytes });
        }
        tensor.offset = start;
        if !names.insert(&tensor.name) {
            return Err(HeaderError::Tensor { tensor: tensor.name.clone(), why: "appears twice".into() });
        }
    }
    tensors.sort_by_key(|t| (t.offset, t.bytes));
    if let Some(pair) = tensors.windows(2).find(|pair| pair[0].offset + pair[0].bytes > pair[1].offset) {
        let why = format!("overlaps tensor {}", pair[1].name);
        return Err(HeaderError::Tensor { tensor: pair[0].name.clone(), why });
    }
    Ok(tensors.last().map_or(data_at, |t| t.offset + t.bytes))
}
