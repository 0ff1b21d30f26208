//! GGUF files: one, or the parts of one.
//!
//! `header.rs` reads the container, `config.rs` and `tokenizer.rs` its metadata, `names.rs` says what tensors are. In
//! files of Qwen3.5 the value heads of linear attention lie in another order than in the original: whole rows are put
//! in place as they are read, columns of the output projection stay (`LinearAttention::out_heads_tiled`).

mod config;
mod header;
mod metadata;
mod names;
mod tokenizer;
mod value;

use std::collections::HashMap;
use std::fs;
use std::path::{Path, PathBuf};

use quant::{Block, Format};
use store::{ModelConfig, Role};

pub use header::{HEADER_BYTES_MAX, Header, TensorInfo, read_header, type_name};
pub use value::{Numbers, Scalar, Texts, Value};

use self::config::FromTensors;
use self::metadata::Metadata;
use self::names::Holds;
use crate::ConvertError;
use crate::assembly::{Adjust, Assembled, Assembly, Tensor};
use crate::checkpoint::{Checkpoint, SourceKind};
use crate::names::Target;
use crate::source::{Place, SourceFile};

/// Longest model name that is taken from metadata.
const NAME_BYTES_MAX: usize = 200;

/// Opens the model in file `path`, or in the parts of which `path` is one.
pub(crate) fn open(path: PathBuf) -> Result<Checkpoint, ConvertError> {
    let first = open_file(&path)?;
    let parts = open_parts(&path, first)?;
    let (mut files, mut headers) = (Vec::new(), Vec::new());
    for (file, header) in parts {
        files.push(file);
        headers.push(header);
    }
    let metadata = Metadata::new(files[0].path.clone(), std::mem::take(&mut headers[0].metadata));
    let tensors: Vec<(usize, TensorInfo)> = headers
        .into_iter()
        .enumerate()
        .flat_map(|(file, header)| header.tensors.into_iter().map(move |t| (file, t)))
        .collect();
    check_names(&files, &tensors)?;
    let (config, n_block) = config::read(&metadata, &from_tensors(&tensors))?;
    let text = tokenizer::read(&metadata, config.n_vocab)?;
    let name = metadata.text("general.name")?.filter(|name| is_shown_well(name));
    let name = name.map_or_else(|| stem(&files[0].path), str::to_owned);
    let found = assemble(&path, &config, n_block, &files, tensors)?;
    Ok(Checkpoint {
        path,
        name,
        kind: SourceKind::Gguf,
        config,
        files,
        found,
        sidecars: text.files,
        notes: text.note.into_iter().collect(),
    })
}

/// Opens one file and reads its header.
fn open_file(path: &Path) -> Result<(SourceFile, Header), ConvertError> {
    let mut file = SourceFile::open(path)?;
    let header = read_header(&mut file.reader(), file.bytes)
        .map_err(ConvertError::io(path, "read its header"))?
        .map_err(|source| ConvertError::Header { path: path.to_owned(), source })?;
    file.header_hash = header.hash;
    refuse_joined(&file, &header)?;
    Ok((file, header))
}

/// Parts that were joined byte by byte look like a model that lacks tensors.
fn refuse_joined(file: &SourceFile, header: &Header) -> Result<(), ConvertError> {
    let ends = [header.end, header.end.next_multiple_of(32)];
    for end in ends.into_iter().filter(|end| end + 4 <= file.bytes) {
        let mut magic = [0; 4];
        file.read("the end of its data", end, &mut magic)?;
        if magic == *b"GGUF" {
            let what = format!(
                "another GGUF file begins at byte {end}: parts of a model must not be joined with cat; keep them apart \
                 (any of them can be named) or merge them with gguf-split"
            );
            return Err(ConvertError::Unsupported { path: file.path.clone(), what });
        }
    }
    Ok(())
}

/// All parts of the model that `path`, opened as `first`, belongs to, in order.
fn open_parts(path: &Path, first: (SourceFile, Header)) -> Result<Vec<(SourceFile, Header)>, ConvertError> {
    let count = |header: &Header, key: &str| header.metadata.get(key).and_then(Value::as_u64);
    let n_part = match count(&first.1, "split.count") {
        None | Some(0 | 1) => return Ok(vec![first]),
        Some(n) => n,
    };
    let config = |path: &Path, why: String| ConvertError::Config { path: path.to_owned(), why };
    let name = path.file_name().and_then(|name| name.to_str()).and_then(PartName::parse);
    let Some(name) = name.filter(|name| name.n_part == n_part) else {
        let why = format!(
            "is one of {n_part} parts, whose names must be NAME-00001-of-{n_part:05}.gguf: the others cannot be found"
        );
        return Err(config(path, why));
    };
    let paths: Vec<PathBuf> = (1..=n_part).map(|part| path.with_file_name(name.of(part))).collect();
    check_present(path, &paths)?;
    let mut first = Some(first);
    let mut parts = Vec::with_capacity(paths.len());
    for (i, part_path) in paths.iter().enumerate() {
        let is_given = i as u64 + 1 == name.part;
        let part = first.take_if(|_| is_given).map_or_else(|| open_file(part_path), Ok)?;
        let said = [count(&part.1, "split.no"), count(&part.1, "split.count")];
        if said != [Some(i as u64), Some(n_part)] {
            let why = format!("is not part {} of {n_part}: split.no and split.count say otherwise", i + 1);
            return Err(config(part_path, why));
        }
        parts.push(part);
    }
    let n_tensor: usize = parts.iter().map(|(_, header)| header.tensors.len()).sum();
    match count(&parts[0].1, "split.tensors.count") {
        Some(expected) if expected != n_tensor as u64 => {
            let why = format!("the parts have {n_tensor} tensors, split.tensors.count is {expected}");
            Err(config(&paths[0], why))
        }
        _ => Ok(parts),
    }
}

/// `STEM-00002-of-00003.gguf`
struct PartName<'a> {
    stem: &'a str,
    part: u64,
    n_part: u64,
}

impl<'a> PartName<'a> {
    fn parse(name: &'a str) -> Option<Self> {
        let (rest, n_part) = name.strip_suffix(".gguf")?.rsplit_once("-of-")?;
        let (stem, part) = rest.rsplit_once('-')?;
        let number = |text: &str| {
            (text.len() == 5 && text.bytes().all(|b| b.is_ascii_digit())).then(|| text.parse().ok())?
        };
        let (part, n_part) = (number(part)?, number(n_part)?);
        (1..=n_part).contains(&part).then_some(Self { stem, part, n_part })
    }

    fn of(&self, part: u64) -> String {
        format!("{}-{part:05}-of-{:05}.gguf", self.stem, self.n_part)
    }
}

/// The models among the files of a folder, whose names are sorted: of parts one name. Vision encoders are none.
pub(crate) fn models(names: &[String]) -> Vec<&str> {
    let names = names.iter().map(String::as_str);
    let mut models: Vec<&str> =
        names.filter(|name| name.ends_with(".gguf") && !name.contains("mmproj")).collect();
    models.dedup_by(|name, before| match (PartName::parse(name), PartName::parse(before)) {
        (Some(a), Some(b)) => (a.stem, a.n_part) == (b.stem, b.n_part),
        _ => false,
    });
    models
}

/// Is this a name to show? It may come from anybody.
fn is_shown_well(name: &str) -> bool {
    !name.trim().is_empty() && name.len() <= NAME_BYTES_MAX && !name.chars().any(char::is_control)
}

/// What a model is called whose metadata does not say it.
fn stem(path: &Path) -> String {
    let name = path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    match PartName::parse(&name) {
        Some(part) => part.stem.to_owned(),
        None => name.strip_suffix(".gguf").unwrap_or(&name).to_owned(),
    }
}

fn check_present(named_by: &Path, paths: &[PathBuf]) -> Result<(), ConvertError> {
    let is_missing = |path: &&PathBuf| fs::metadata(path).is_err();
    let missing: Vec<String> = paths
        .iter()
        .filter(is_missing)
        .map(|path| path.file_name().unwrap_or_default().to_string_lossy().into_owned())
        .collect();
    if missing.is_empty() {
        return Ok(());
    }
    let total = paths.len();
    let path = named_by.to_owned();
    Err(ConvertError::MissingShards { path, present: total - missing.len(), total, missing })
}

/// A name may appear in one part only.
fn check_names(files: &[SourceFile], tensors: &[(usize, TensorInfo)]) -> Result<(), ConvertError> {
    let mut seen = HashMap::new();
    for (file, tensor) in tensors {
        if let Some(other) = seen.insert(&tensor.name, *file) {
            let why = format!("is also in {}", files[other].path.display());
            let path = files[*file].path.clone();
            return Err(ConvertError::Tensor { path, tensor: tensor.name.clone(), why });
        }
    }
    Ok(())
}

fn from_tensors(tensors: &[(usize, TensorInfo)]) -> FromTensors {
    let shape = |name: &str| tensors.iter().find(|(_, t)| t.name == name).map(|(_, t)| &t.shape);
    FromTensors {
        n_vocab: shape("token_embd.weight").map(|shape| shape[0]),
        tie_word_embeddings: shape("output.weight").is_none(),
    }
}

/// Gives every tensor its role.
fn assemble(
    path: &Path,
    config: &ModelConfig,
    n_block: usize,
    files: &[SourceFile],
    tensors: Vec<(usize, TensorInfo)>,
) -> Result<Assembled, ConvertError> {
    let tiled = config.linear.filter(|linear| linear.out_heads_tiled);
    let mut assembly = Assembly::new(path, config, files);
    for (file, tensor) in tensors {
        let Some(holds) = names::classify(config, n_block, &tensor.name) else {
            assembly.unknown(tensor.name);
            continue;
        };
        if let Holds::Skip(skip) = holds {
            assembly.is_skipped(Target::Skip(skip));
            continue;
        }
        let Some(format) = format(tensor.type_id) else {
            let why = format!("has type {}, which is not supported", type_name(tensor.type_id));
            let path = files[file].path.clone();
            return Err(ConvertError::Tensor { path, tensor: tensor.name, why });
        };
        let shape = tensor.shape;
        let tensor = Tensor { name: tensor.name, format, planes: [Place { file, offset: tensor.offset }; 3] };
        match holds {
            Holds::Skip(_) => unreachable!("dealt with above"),
            Holds::AttnQkv(layer) => {
                assembly.put_rows(layer, names::attn_qkv_rows(config), &shape, tensor)?;
            }
            Holds::Grouped(group, layer) => {
                assembly.put(Target::Grouped { group, layer }, &shape, tensor, Adjust::None)?;
            }
            Holds::Experts(parts, layer) => {
                assembly.put(Target::Experts { parts, layer }, &shape, tensor, Adjust::None)?;
            }
            Holds::Dense(role, layer) => {
                let rows = tiled.and_then(|linear| names::tiled_rows(&linear, role));
                match rows.zip(layer) {
                    Some((rows, layer)) => assembly.put_rows(layer, vec![(role, rows)], &shape, tensor)?,
                    None => {
                        let adjust = adjust(role, tiled.map(|linear| linear.n_head_k));
                        assembly.put(Target::Dense { role, layer }, &shape, tensor, adjust)?;
                    }
                }
            }
        }
    }
    assembly.finish()
}

/// What is done to the numbers of `role`, whose heads are tiled over so many key heads, if they are. Norms have the
/// factor itself.
fn adjust(role: Role, n_head_k: Option<usize>) -> Adjust {
    match (role, n_head_k) {
        (Role::LinearALog, None) => Adjust::NegatedExp,
        (Role::LinearALog, Some(n_head_k)) => Adjust::TiledNegatedExp(n_head_k),
        (Role::LinearDtBias, Some(n_head_k)) => Adjust::Tiled(n_head_k),
        _ => Adjust::None,
    }
}

/// The format of a type of tensors, if it is supported.
fn format(type_id: u32) -> Option<Format> {
    match type_id {
        0 => Some(Format::F32),
        1 => Some(Format::F16),
        30 => Some(Format::Bf16),
        _ => Block::from_gguf_type(type_id).map(Format::Block),
    }
}
