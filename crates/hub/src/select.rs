//! Which files of a repository are the model: weights of one kind, and what belongs beside them.

use std::collections::{BTreeMap, HashSet};

use crate::Choice;
use crate::listing::RemoteFile;

/// Files of one model in GGUF form.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct GgufSet {
    /// Path of the file without number and ending.
    pub(crate) stem: String,
    /// Names of all parts that are there, in order.
    pub(crate) names: Vec<String>,
    /// Parts that there should be.
    pub(crate) n_part: usize,
    /// Sum of the sizes, if all are known.
    pub(crate) bytes: Option<u64>,
}

impl GgufSet {
    /// The name of the quantisation, as users type it: `Q4_K_M`, `UD-Q4_K_XL`.
    pub(crate) fn label(&self) -> &str {
        let file = self.stem.rsplit('/').next().unwrap_or(&self.stem);
        let at = file.rfind(['-', '.']).map_or(0, |at| at + 1);
        // Unsloth's dynamic mixes are named so.
        let prefix = file[..at].strip_suffix("UD-").or_else(|| file[..at].strip_suffix("ud-"));
        &file[prefix.map_or(at, str::len)..]
    }

    /// Does this set go by that name?
    fn is(&self, variant: &str) -> bool {
        let same = |text: &str| text.eq_ignore_ascii_case(variant);
        same(self.label())
            || same(&self.stem)
            || self.names.iter().any(|name| same(name) || name.rsplit('/').next().is_some_and(same))
    }
}

/// By the names of the quantisations, or by those of the files where one is there twice.
fn choices(sets: &[GgufSet]) -> Vec<Choice> {
    let labels: HashSet<String> = sets.iter().map(|set| set.label().to_ascii_lowercase()).collect();
    let name =
        |set: &GgufSet| if labels.len() == sets.len() { set.label().to_owned() } else { set.stem.clone() };
    sets.iter().map(|set| Choice { name: name(set), bytes: set.bytes }).collect()
}

/// The GGUF models among `files` (name and size), in order of their names.
pub(crate) fn gguf_sets<'a>(files: impl IntoIterator<Item = (&'a str, Option<u64>)>) -> Vec<GgufSet> {
    let mut sets: BTreeMap<(String, usize), GgufSet> = BTreeMap::new();
    for (name, bytes) in files {
        let Some(stem) = name.strip_suffix(".gguf").filter(|stem| is_model(stem)) else { continue };
        let (stem, n_part) = split_number(stem).unwrap_or((stem, 1));
        let set = sets.entry((stem.to_owned(), n_part)).or_insert_with(|| GgufSet {
            stem: stem.to_owned(),
            names: Vec::new(),
            n_part,
            bytes: Some(0),
        });
        set.names.push(name.to_owned());
        set.bytes = set.bytes.zip(bytes).map(|(sum, bytes)| sum.saturating_add(bytes));
    }
    let mut sets: Vec<GgufSet> = sets.into_values().collect();
    sets.iter_mut().for_each(|set| set.names.sort());
    sets
}

/// Not what goes beside a model: projectors for images, importance matrices.
fn is_model(stem: &str) -> bool {
    let file = stem.rsplit('/').next().unwrap_or(stem).to_ascii_lowercase();
    !file.contains("mmproj") && !file.contains("imatrix")
}

/// `stem-00002-of-00005` -> stem, 5.
fn split_number(stem: &str) -> Option<(&str, usize)> {
    let (rest, total) = stem.rsplit_once("-of-")?;
    let (rest, number) = rest.rsplit_once('-')?;
    let is_number = |text: &str| text.len() == 5 && text.bytes().all(|b| b.is_ascii_digit());
    (is_number(number) && is_number(total)).then(|| Some((rest, total.parse().ok()?)))?
}

/// Why there is not exactly one model.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum NotOne {
    /// None of the name, or none at all.
    None(String),
    /// Several.
    Several(Vec<Choice>),
}

/// The one set that is meant.
pub(crate) fn choose(mut sets: Vec<GgufSet>, variant: Option<&str>) -> Result<GgufSet, NotOne> {
    let all = choices(&sets);
    if let Some(variant) = variant {
        sets.retain(|set| set.is(variant));
        if sets.is_empty() && !all.is_empty() {
            return Err(NotOne::Several(all));
        }
    }
    if sets.len() > 1 {
        return Err(NotOne::Several(choices(&sets)));
    }
    let set = sets.pop().ok_or_else(|| NotOne::None("there are no GGUF files".into()))?;
    if set.names.len() != set.n_part {
        let (there, all) = (set.names.len(), set.n_part);
        return Err(NotOne::None(format!("{}: {there} of {all} parts are there", set.stem)));
    }
    Ok(set)
}

/// The files that are needed, by name: weights, configuration, tokenizer, template.
pub(crate) fn needed(files: &[RemoteFile], variant: Option<&str>) -> Result<Vec<RemoteFile>, NotOne> {
    let is_safetensors = |file: &RemoteFile| file.name.ends_with(".safetensors") && !file.name.contains('/');
    if variant.is_none() && files.iter().any(is_safetensors) {
        return Ok(files
            .iter()
            .filter(|file| is_safetensors(file) || is_sidecar(&file.name))
            .cloned()
            .collect());
    }
    let sets = gguf_sets(files.iter().map(|file| (file.name.as_str(), file.bytes)));
    if sets.is_empty() {
        let other = files.iter().find(|file| file.name.ends_with(".bin") || file.name.ends_with(".pth"));
        return Err(NotOne::None(match other {
            Some(file) => {
                format!("the weights are neither safetensors nor GGUF ({} is something else)", file.name)
            }
            None => "there are neither safetensors nor GGUF files".into(),
        }));
    }
    let set = choose(sets, variant)?;
    Ok(files.iter().filter(|file| set.names.contains(&file.name)).cloned().collect())
}

/// Small files beside safetensors. What stands in folders belongs to other programs' forms of the model.
fn is_sidecar(name: &str) -> bool {
    let endings = [".json", ".jinja", ".txt", ".model", ".tiktoken"];
    !name.contains('/') && endings.iter().any(|ending| name.ends_with(ending))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(name: &str) -> RemoteFile {
        RemoteFile { name: name.into(), bytes: Some(10), digest: None }
    }

    fn check(names: &[&str], variant: Option<&str>, expected: &[&str]) {
        let files: Vec<RemoteFile> = names.iter().map(|name| file(name)).collect();
        let got = needed(&files, variant).unwrap_or_else(|e| panic!("{names:?}: {e:?}"));
        assert_eq!(
            got.iter().map(|f| f.name.as_str()).collect::<Vec<_>>(),
            expected,
            "{names:?} {variant:?}"
        );
    }

    fn several(names: &[&str], variant: Option<&str>) -> Vec<String> {
        let files: Vec<RemoteFile> = names.iter().map(|name| file(name)).collect();
        match needed(&files, variant) {
            Err(NotOne::Several(choices)) => choices.into_iter().map(|c| c.name).collect(),
            other => panic!("{other:?}"),
        }
    }

    const GGUF: [&str; 6] = [
        "README.md",
        "m-Q8_0.gguf",
        "m.Q4_K_M.gguf",
        "UD-Q2_K_XL/m-UD-Q2_K_XL-00001-of-00002.gguf",
        "UD-Q2_K_XL/m-UD-Q2_K_XL-00002-of-00002.gguf",
        "mmproj-F16.gguf",
    ];

    /// Weights would be downloaded twice, in forms that nobody reads, or not at all.
    #[test]
    fn a_checkpoint_is_its_weights_and_sidecars() {
        let all = [
            ".gitattributes",
            "README.md",
            "config.json",
            "tokenizer.json",
            "merges.txt",
            "chat_template.jinja",
            "model-00001-of-00002.safetensors",
            "model-00002-of-00002.safetensors",
            "pytorch_model.bin",
            "onnx/model.onnx",
            "onnx/config.json",
            "original/consolidated.00.pth",
            "tokenizer.model",
            "mlx/model.safetensors",
        ];
        let expected = [
            "config.json",
            "tokenizer.json",
            "merges.txt",
            "chat_template.jinja",
            "model-00001-of-00002.safetensors",
            "model-00002-of-00002.safetensors",
            "tokenizer.model",
        ];
        check(&all, None, &expected);
        let with_both = ["config.json", "model.safetensors", "m-Q4_0.gguf"];
        check(&with_both, None, &["config.json", "model.safetensors"]);
        check(&with_both, Some("q4_0"), &["m-Q4_0.gguf"]);
    }

    /// Another quantisation than the one that was named, or half of it.
    #[test]
    fn a_quantisation_is_chosen_by_name() {
        check(&GGUF, Some("q4_k_m"), &["m.Q4_K_M.gguf"]);
        check(&GGUF, Some("UD-Q2_K_XL"), &GGUF[3..5]);
        check(&GGUF, Some("m-Q8_0.gguf"), &["m-Q8_0.gguf"]);
        check(&GGUF[..2], None, &["m-Q8_0.gguf"]);
        assert_eq!(several(&GGUF, None), ["UD-Q2_K_XL", "Q8_0", "Q4_K_M"]);
        assert_eq!(several(&GGUF, Some("Q5_K_M")).len(), 3);
        let twice = ["a/m-Q8_0.gguf", "b/m-Q8_0.gguf"];
        assert_eq!(several(&twice, Some("Q8_0")), ["a/m-Q8_0", "b/m-Q8_0"]);
        check(&twice, Some("b/m-Q8_0"), &["b/m-Q8_0.gguf"]);
    }

    /// Half a model would be downloaded before anybody notices.
    #[test]
    fn what_is_not_there_is_said() {
        let none = |names: &[&str], says: &str| {
            let files: Vec<RemoteFile> = names.iter().map(|name| file(name)).collect();
            match needed(&files, None) {
                Err(NotOne::None(why)) => assert!(why.contains(says), "{why}"),
                other => panic!("{other:?}"),
            }
        };
        none(&["m-00001-of-00003.gguf", "m-00003-of-00003.gguf"], "2 of 3 parts");
        none(&["pytorch_model.bin"], "pytorch_model.bin");
        none(&["README.md"], "neither");
        none(&[], "neither");
    }
}
