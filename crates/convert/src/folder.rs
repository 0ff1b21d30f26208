//! Finding the files of a checkpoint: folder or single file; index, shards, sidecars.
//!
//! Owns paths and the index, not the weights. Links are followed; names from the index cannot leave the folder.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fs;
use std::io::{ErrorKind, Read};
use std::path::{Path, PathBuf};

use serde::Deserialize;

use crate::{ConvertError, gguf};

pub(crate) const CONFIG: &str = "config.json";
const INDEX: &str = "model.safetensors.index.json";
const SINGLE: &str = "model.safetensors";

/// Largest JSON or text file read whole: the biggest tokenizers have 40 MB.
const TEXT_BYTES_MAX: u64 = 256 << 20;

/// Files kept beside the weights, if they are there.
const SIDECARS: [&str; 6] = [
    CONFIG,
    "generation_config.json",
    "tokenizer.json",
    "tokenizer_config.json",
    "chat_template.jinja",
    "chat_template.json",
];
/// The tokenizer's older form, kept only without `tokenizer.json`.
const SIDECARS_OLD_TOKENIZER: [&str; 2] = ["vocab.json", "merges.txt"];

/// Where a checkpoint is.
pub(crate) enum Location {
    /// A folder with a `config.json`.
    Folder(PathBuf),
    /// A GGUF file, or one of its parts.
    Gguf(PathBuf),
}

/// Where the checkpoint at `path` is: that itself, or the folder of a weight file.
pub(crate) fn resolve(path: &Path) -> Result<Location, ConvertError> {
    let not_one = |why: &str| ConvertError::NotACheckpoint { path: path.to_owned(), why: why.to_owned() };
    let meta = match fs::metadata(path) {
        Ok(meta) => meta,
        Err(e) if e.kind() == ErrorKind::NotFound => {
            return Err(not_one("no such file or folder (is the drive connected?)"));
        }
        Err(e) => return Err(ConvertError::io(path, "open")(e)),
    };
    if !meta.is_dir() {
        return match path.extension().and_then(|e| e.to_str()) {
            Some("gguf") => Ok(Location::Gguf(path.to_owned())),
            Some("safetensors") => Ok(Location::Folder(match path.parent() {
                Some(parent) if parent != Path::new("") => parent.to_owned(),
                _ => PathBuf::from("."),
            })),
            _ => Err(not_one("expected a folder, a .safetensors or a .gguf file")),
        };
    }
    if path.join(CONFIG).is_file() {
        return Ok(Location::Folder(path.to_owned()));
    }
    let names = file_names(path)?;
    match &gguf::models(&names)[..] {
        [] => {}
        [name] => return Ok(Location::Gguf(path.join(name))),
        several => {
            return Err(not_one(&format!(
                "there are several models in it, name one: {}",
                several.join(", ")
            )));
        }
    }
    Err(not_one(if names.is_empty() {
        "the folder is empty (is the drive connected?)"
    } else {
        "no config.json in this folder"
    }))
}

/// What the model is called: the folder's name, or the repository's for a hub snapshot.
pub(crate) fn model_name(dir: &Path) -> String {
    let full = fs::canonicalize(dir).unwrap_or_else(|_| dir.to_owned());
    let is_snapshot = full.parent().is_some_and(|p| p.ends_with("snapshots"));
    let named = if is_snapshot { full.ancestors().nth(2).unwrap_or(&full) } else { &full };
    let name = named.file_name().map_or_else(|| "model".into(), |n| n.to_string_lossy());
    if is_snapshot { name.rsplit("--").next().unwrap_or(&name).to_owned() } else { name.into_owned() }
}

/// The weight files, and where the index says that each tensor is (empty without an index).
pub(crate) struct WeightFiles {
    /// File names in order.
    pub(crate) names: Vec<String>,
    /// Tensor name -> file name.
    pub(crate) index: HashMap<String, String>,
}

#[derive(Deserialize)]
struct Index {
    weight_map: BTreeMap<String, String>,
}

/// Lists the weight files of `dir` and checks that all that should be there are.
pub(crate) fn weight_files(dir: &Path) -> Result<WeightFiles, ConvertError> {
    let index_path = dir.join(INDEX);
    if let Some(json) = read_optional(&index_path)? {
        let invalid = |why: String| ConvertError::Config { path: index_path.clone(), why };
        let index: Index =
            serde_json::from_slice(&json).map_err(|e| invalid(format!("not a weight index: {e}")))?;
        let names: BTreeSet<String> = index.weight_map.values().cloned().collect();
        if let Some(name) = names.iter().find(|name| !is_plain(name)) {
            return Err(invalid(format!("weight file name {name:?} is not a plain file name")));
        }
        if names.is_empty() {
            return Err(invalid("it names no weight files".into()));
        }
        let names: Vec<String> = names.into_iter().collect();
        check_present(dir, &index_path, &names)?;
        return Ok(WeightFiles { names, index: index.weight_map.into_iter().collect() });
    }
    let names = if fs::symlink_metadata(dir.join(SINGLE)).is_ok() {
        vec![SINGLE.to_owned()]
    } else {
        with_missing_siblings(file_names(dir)?.into_iter().filter(|n| n.ends_with(".safetensors")).collect())
    };
    if names.is_empty() {
        let why = "no .safetensors files in this folder".to_owned();
        return Err(ConvertError::NotACheckpoint { path: dir.to_owned(), why });
    }
    check_present(dir, dir, &names)?;
    Ok(WeightFiles { names, index: HashMap::new() })
}

/// Adds the shards that `…-00002-of-00005.safetensors` implies, so that absent ones are noticed without an index.
fn with_missing_siblings(found: BTreeSet<String>) -> Vec<String> {
    let mut names = found.clone();
    for name in &found {
        let Some((stem, total)) = name.strip_suffix(".safetensors").and_then(|s| s.rsplit_once("-of-"))
        else {
            continue;
        };
        let Some((stem, number)) = stem.rsplit_once('-') else { continue };
        let is_number = |s: &str| s.len() == 5 && s.bytes().all(|b| b.is_ascii_digit());
        if is_number(number) && is_number(total) {
            let n: usize = total.parse().expect("five digits");
            names.extend((1..=n).map(|i| format!("{stem}-{i:05}-of-{total}.safetensors")));
        }
    }
    names.into_iter().collect()
}

/// A name that stays inside its folder.
fn is_plain(name: &str) -> bool {
    !name.is_empty() && name != "." && name != ".." && !name.contains(['/', '\\', '\0'])
}

fn check_present(dir: &Path, named_by: &Path, names: &[String]) -> Result<(), ConvertError> {
    let mut missing = Vec::new();
    for name in names {
        let path = dir.join(name);
        match fs::metadata(&path) {
            Ok(_) => {}
            Err(e) if e.kind() == ErrorKind::NotFound => match fs::read_link(&path) {
                Ok(target) => {
                    missing.push(format!("{name} (a link to {}, which is not there)", target.display()))
                }
                Err(_) => missing.push(name.clone()),
            },
            Err(e) => return Err(ConvertError::io(&path, "open")(e)),
        }
    }
    if missing.is_empty() {
        return Ok(());
    }
    let (path, total) = (named_by.to_owned(), names.len());
    Err(ConvertError::MissingShards { path, present: total - missing.len(), total, missing })
}

/// Configuration, tokenizer, template and generation settings: name and contents.
pub(crate) fn sidecars(dir: &Path) -> Result<Vec<(String, Vec<u8>)>, ConvertError> {
    let mut found = Vec::new();
    let has_tokenizer = dir.join("tokenizer.json").is_file();
    let old = if has_tokenizer { &[][..] } else { &SIDECARS_OLD_TOKENIZER[..] };
    for name in SIDECARS.iter().chain(old) {
        if let Some(bytes) = read_optional(&dir.join(name))? {
            found.push(((*name).to_owned(), bytes));
        }
    }
    Ok(found)
}

/// Reads a small file whole; `None` if it is not there.
pub(crate) fn read_optional(path: &Path) -> Result<Option<Vec<u8>>, ConvertError> {
    let file = match fs::File::open(path) {
        Ok(file) => file,
        Err(e) if e.kind() == ErrorKind::NotFound => return Ok(None),
        Err(e) => return Err(ConvertError::io(path, "open")(e)),
    };
    let mut bytes = Vec::new();
    file.take(TEXT_BYTES_MAX + 1).read_to_end(&mut bytes).map_err(ConvertError::io(path, "read"))?;
    if bytes.len() as u64 > TEXT_BYTES_MAX {
        let why = format!("larger than {TEXT_BYTES_MAX} bytes, which this kind of file never is");
        return Err(ConvertError::Config { path: path.to_owned(), why });
    }
    Ok(Some(bytes))
}

/// Names in a folder, sorted. Names that are not UTF-8 cannot be ours.
fn file_names(dir: &Path) -> Result<Vec<String>, ConvertError> {
    let mut names = Vec::new();
    for entry in fs::read_dir(dir).map_err(ConvertError::io(dir, "list"))? {
        let entry = entry.map_err(ConvertError::io(dir, "list"))?;
        names.extend(entry.file_name().into_string());
    }
    names.sort();
    Ok(names)
}
