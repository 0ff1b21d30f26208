//! GGUF files written by hand, and those of `tests/golden/gguf` built from their recipes.
#![allow(dead_code)] // Each test file uses its share.

use std::fs;
use std::path::{Path, PathBuf};

use serde::Deserialize;
use serde_json::Value;

use super::random::Random;

/// What `tools/golden/gguf/make_models.py` wrote of a model.
#[derive(Clone, Deserialize)]
pub(crate) struct Golden {
    pub(crate) files: Vec<GoldenFile>,
    pub(crate) ids: Vec<u32>,
    /// Positions of `logits`.
    pub(crate) positions: Vec<usize>,
    pub(crate) logits: Vec<Vec<f64>>,
}

/// One file of it.
#[derive(Clone, Deserialize)]
pub(crate) struct GoldenFile {
    pub(crate) name: String,
    /// Of the file that the `gguf` package wrote.
    pub(crate) xxh3: String,
    /// Key, type (an array's has that of its values), value.
    pub(crate) metadata: Vec<(String, Value, Value)>,
    pub(crate) tensors: Vec<GoldenTensor>,
}

/// One tensor: random bytes, some fields of which are masked.
#[derive(Clone, Deserialize)]
pub(crate) struct GoldenTensor {
    pub(crate) name: String,
    #[serde(rename = "type")]
    pub(crate) type_id: u32,
    /// As the file has them.
    pub(crate) dims: Vec<u64>,
    pub(crate) seed: u64,
    /// Bytes of a block.
    pub(crate) step: usize,
    /// Offset in a block, bytes, and, or.
    pub(crate) masks: Vec<[u32; 4]>,
}

impl Golden {
    /// `tests/golden/gguf/NAME.json`
    pub(crate) fn read(name: &str) -> Self {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("../../tests/golden/gguf/{name}.json"));
        serde_json::from_slice(&fs::read(path).unwrap()).unwrap()
    }

    /// Builds the files in `dir`; the first one's path. That they are what the package writes is checked.
    pub(crate) fn write(&self, dir: &Path) -> PathBuf {
        fs::create_dir_all(dir).unwrap();
        for file in &self.files {
            let bytes = file.build().bytes();
            let hash = format!("{:016x}", xxhash_rust::xxh3::xxh3_64(&bytes));
            assert_eq!(hash, file.xxh3, "{} is not what the gguf package writes", file.name);
            fs::write(dir.join(&file.name), bytes).unwrap();
        }
        dir.join(&self.files[0].name)
    }
}

impl GoldenFile {
    pub(crate) fn build(&self) -> File {
        let mut file = File::default();
        for (key, kind, value) in &self.metadata {
            match kind {
                Value::Array(kinds) => {
                    let kind = kinds[1].as_u64().unwrap() as u32;
                    let values = value.as_array().unwrap();
                    let bytes: Vec<u8> = values.iter().flat_map(|v| encode(kind, v)).collect();
                    file.array(key, kind, values.len() as u64, &bytes);
                }
                kind => {
                    let kind = kind.as_u64().unwrap() as u32;
                    file.key(key, kind, &encode(kind, value));
                }
            }
        }
        for tensor in &self.tensors {
            file.tensor(&tensor.name, &tensor.dims, tensor.type_id, &tensor.bytes());
        }
        file
    }
}

impl GoldenTensor {
    fn bytes(&self) -> Vec<u8> {
        // Blocks have rows of whole ones; the number of columns of a block follows from its type.
        let block_cols = match self.type_id {
            0 | 1 | 30 => 1,
            2..=8 | 20 | 39 => 32,
            _ => 256,
        };
        let n = self.dims.iter().product::<u64>() as usize / block_cols * self.step;
        let mut bytes = random_bytes(self.seed, n);
        for block in bytes.chunks_exact_mut(self.step) {
            for &[offset, len, and, or] in &self.masks {
                let field = &mut block[offset as usize..][..len as usize];
                for (i, byte) in field.iter_mut().enumerate() {
                    *byte = *byte & (and >> (8 * i)) as u8 | (or >> (8 * i)) as u8;
                }
            }
        }
        bytes
    }
}

/// The first bytes of splitmix64.
pub(crate) fn random_bytes(seed: u64, n: usize) -> Vec<u8> {
    let mut random = Random(seed);
    let mut bytes: Vec<u8> = (0..n.div_ceil(8)).flat_map(|_| random.next().to_le_bytes()).collect();
    bytes.truncate(n);
    bytes
}

/// A value of the type with this number.
fn encode(kind: u32, value: &Value) -> Vec<u8> {
    let int = || value.as_i64().unwrap();
    match kind {
        2 => (int() as u16).to_le_bytes().to_vec(),
        4 | 5 => (int() as u32).to_le_bytes().to_vec(),
        6 => (value.as_f64().unwrap() as f32).to_le_bytes().to_vec(),
        7 => vec![u8::from(value.as_bool().unwrap())],
        8 => string(value.as_str().unwrap()),
        other => panic!("type {other} of a value"),
    }
}

/// Length and bytes.
pub(crate) fn string(text: &str) -> Vec<u8> {
    [&(text.len() as u64).to_le_bytes()[..], text.as_bytes()].concat()
}

/// A file to be written; what is wrong in it is the test's business.
#[derive(Clone)]
pub(crate) struct File {
    pub(crate) version: u32,
    pub(crate) keys: Vec<Vec<u8>>,
    /// Entry without the offset, and offset.
    pub(crate) infos: Vec<(Vec<u8>, u64)>,
    pub(crate) data: Vec<u8>,
}

impl Default for File {
    fn default() -> Self {
        Self { version: 3, keys: Vec::new(), infos: Vec::new(), data: Vec::new() }
    }
}

impl File {
    /// Adds a key with the bytes of its value.
    pub(crate) fn key(&mut self, key: &str, kind: u32, value: &[u8]) {
        self.keys.push([&string(key)[..], &kind.to_le_bytes(), value].concat());
    }

    pub(crate) fn text(&mut self, key: &str, value: &str) {
        self.key(key, 8, &string(value));
    }

    pub(crate) fn u32(&mut self, key: &str, value: u32) {
        self.key(key, 4, &value.to_le_bytes());
    }

    /// Adds an array of `n` values of a type, given as bytes.
    pub(crate) fn array(&mut self, key: &str, kind: u32, n: u64, values: &[u8]) {
        self.key(key, 9, &[&kind.to_le_bytes()[..], &n.to_le_bytes(), values].concat());
    }

    pub(crate) fn texts<'a>(&mut self, key: &str, values: impl IntoIterator<Item = &'a str>) {
        let values: Vec<Vec<u8>> = values.into_iter().map(string).collect();
        self.array(key, 8, values.len() as u64, &values.concat());
    }

    /// Adds a tensor behind the others.
    pub(crate) fn tensor(&mut self, name: &str, dims: &[u64], type_id: u32, bytes: &[u8]) {
        let mut info = string(name);
        info.extend((dims.len() as u32).to_le_bytes());
        info.extend(dims.iter().flat_map(|d| d.to_le_bytes()));
        info.extend(type_id.to_le_bytes());
        self.infos.push((info, self.data.len() as u64));
        self.data.extend_from_slice(bytes);
        self.data.resize(self.data.len().next_multiple_of(32), 0);
    }

    pub(crate) fn header(&self) -> Vec<u8> {
        let mut bytes = b"GGUF".to_vec();
        bytes.extend(self.version.to_le_bytes());
        bytes.extend((self.infos.len() as u64).to_le_bytes());
        bytes.extend((self.keys.len() as u64).to_le_bytes());
        bytes.extend(self.keys.iter().flatten());
        for (info, offset) in &self.infos {
            bytes.extend(info);
            bytes.extend(offset.to_le_bytes());
        }
        bytes
    }

    pub(crate) fn bytes(&self) -> Vec<u8> {
        let mut bytes = self.header();
        bytes.resize(bytes.len().next_multiple_of(32), 0);
        bytes.extend(&self.data);
        bytes
    }
}
