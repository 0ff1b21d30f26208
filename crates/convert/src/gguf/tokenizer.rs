//! Metadata of a GGUF file -> the files that a Hugging Face checkpoint has for text: tokenizer.json,
//! tokenizer_config.json, chat_template.jinja and generation_config.json.

use std::collections::HashSet;

use serde_json::{Value as Json, json};

use super::metadata::Metadata;
use super::value::{Texts, Value};
use crate::ConvertError;

/// Kinds of tokens, as files number them.
const NORMAL: u64 = 1;
const CONTROL: u64 = 3;
const USER_DEFINED: u64 = 4;
const UNUSED: u64 = 5;

/// Control tokens that Qwen's own tokenizers do not call special: they are text that may be shown. Converters go by
/// the form of their names.
const NOT_SPECIAL: [&str; 12] = [
    "<tool_call>",
    "</tool_call>",
    "<tool_response>",
    "</tool_response>",
    "<think>",
    "</think>",
    "<|fim_prefix|>",
    "<|fim_middle|>",
    "<|fim_suffix|>",
    "<|fim_pad|>",
    "<|repo_name|>",
    "<|file_sep|>",
];

/// Tokens that end an answer wherever a vocabulary has them.
const TURN_ENDS: [&str; 2] = ["<|im_end|>", "<|endoftext|>"];

/// How text is split before pairs are merged, by the name that files have for it.
const SPLITS: [(&str, &str); 2] = [
    (
        "qwen35",
        "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?[\\p{L}\\p{M}]+|\\p{N}| ?[^\\s\\p{L}\\p{M}\\p{N}]+[\\r\\n]*|\\s*\
         [\\r\\n]+|\\s+(?!\\S)|\\s+",
    ),
    (
        "qwen2",
        "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+\
         (?!\\S)|\\s+",
    ),
];

/// The files, by name, and why there is no tokenizer if there is none.
#[derive(Default)]
pub(super) struct TextFiles {
    pub(super) files: Vec<(String, Vec<u8>)>,
    pub(super) note: Option<String>,
}

/// Makes the files.
///
/// # Errors
/// Metadata that contradicts itself. A tokenizer of a kind that is not supported is no error: such a model takes token
/// ids only, and the note says why.
pub(super) fn read(metadata: &Metadata, n_vocab: usize) -> Result<TextFiles, ConvertError> {
    let mut files = Vec::new();
    if let Some(template) = metadata.text("tokenizer.chat_template")? {
        files.push(("chat_template.jinja".to_owned(), template.as_bytes().to_vec()));
    }
    let split = match split_of(metadata)? {
        Ok(split) => split,
        Err(note) => return Ok(TextFiles { files, note: Some(note) }),
    };
    let tokens = Tokens::read(metadata, n_vocab)?;
    let merges = metadata.texts(MERGES)?.ok_or_else(|| metadata.missing(MERGES))?;
    files.push(("tokenizer.json".to_owned(), tokens.tokenizer_json(metadata, merges, split)?));
    files.push(("tokenizer_config.json".to_owned(), tokens.tokenizer_config(metadata)?.to_string().into()));
    files.push(("generation_config.json".to_owned(), tokens.generation_config(metadata)?.to_string().into()));
    Ok(TextFiles { files, note: None })
}

const TOKENS: &str = "tokenizer.ggml.tokens";
const TOKEN_TYPE: &str = "tokenizer.ggml.token_type";
const MERGES: &str = "tokenizer.ggml.merges";

/// The pattern that splits text, or why the tokenizer cannot be used.
fn split_of(metadata: &Metadata) -> Result<Result<&'static str, String>, ConvertError> {
    let without = |what: String| Ok(Err(format!("{what}: only token ids will be taken")));
    match metadata.text("tokenizer.ggml.model")? {
        Some("gpt2") => {}
        None | Some("none") => return without("the file has no tokenizer".into()),
        Some(other) => return without(format!("tokenizer model {other:?} is not supported (gpt2 is)")),
    }
    if metadata.bool("tokenizer.ggml.add_bos_token")? == Some(true) {
        return without("a tokenizer that puts a token before every text is not supported".into());
    }
    if metadata.get(TOKEN_TYPE).is_none() {
        return without(format!("the tokenizer has no {TOKEN_TYPE}"));
    }
    let names: Vec<&str> = SPLITS.iter().map(|(name, _)| *name).collect();
    match metadata.text("tokenizer.ggml.pre")? {
        Some(pre) => match SPLITS.iter().find(|(name, _)| *name == pre) {
            Some((_, split)) => Ok(Ok(split)),
            None => {
                without(format!("tokenizer.ggml.pre {pre:?} is not supported ({} are)", names.join(", ")))
            }
        },
        None => without("the tokenizer has no tokenizer.ggml.pre".into()),
    }
}

/// The vocabulary: text and kind of each token, by id.
struct Tokens<'a>(Vec<(&'a str, u64)>);

impl<'a> Tokens<'a> {
    fn read(metadata: &'a Metadata, n_vocab: usize) -> Result<Self, ConvertError> {
        let texts = metadata.texts(TOKENS)?.ok_or_else(|| metadata.missing(TOKENS))?;
        if texts.len() != n_vocab {
            let why = format!("{TOKENS} has {} entries, the embedding {n_vocab} rows", texts.len());
            return Err(metadata.invalid(why));
        }
        let Some(Value::Numbers(kinds)) = metadata.get(TOKEN_TYPE) else {
            return Err(metadata.invalid(format!("{TOKEN_TYPE} is not an array of numbers")));
        };
        if kinds.len() != texts.len() {
            let why = format!("{TOKEN_TYPE} has {} entries, {TOKENS} {}", kinds.len(), texts.len());
            return Err(metadata.invalid(why));
        }
        let mut tokens = Vec::with_capacity(texts.len());
        let mut seen = HashSet::new();
        for (id, (text, kind)) in texts.iter().zip(kinds.iter()).enumerate() {
            let text = std::str::from_utf8(text)
                .map_err(|_| metadata.invalid(format!("token {id} of {TOKENS} is not UTF-8")))?;
            let kind = kind.as_u64().filter(|k| (NORMAL..=6).contains(k)).ok_or_else(|| {
                metadata.invalid(format!("token {id} has {TOKEN_TYPE} {kind}, 1 to 6 are known"))
            })?;
            if kind != UNUSED && !seen.insert(text) {
                return Err(metadata.invalid(format!("token {text:?} of {TOKENS} appears twice")));
            }
            tokens.push((text, kind));
        }
        Ok(Self(tokens))
    }

    /// In the form that Hugging Face's library writes.
    fn tokenizer_json(
        &self,
        metadata: &Metadata,
        merges: &Texts,
        split: &str,
    ) -> Result<Vec<u8>, ConvertError> {
        let mut added = Vec::new();
        let mut vocab = serde_json::Map::new();
        for (id, &(content, kind)) in self.0.iter().enumerate() {
            match kind {
                UNUSED => {}
                CONTROL | USER_DEFINED => added.push(json!({
                    "id": id, "content": content, "single_word": false, "lstrip": false, "rstrip": false,
                    "normalized": false, "special": kind == CONTROL && !NOT_SPECIAL.contains(&content),
                })),
                _ => {
                    vocab.insert(content.to_owned(), id.into());
                }
            }
        }
        let mut pairs = Vec::with_capacity(merges.len());
        for (i, merge) in merges.iter().enumerate() {
            let pair = std::str::from_utf8(merge).ok().and_then(|m| m.split_once(' '));
            let (left, right) =
                pair.ok_or_else(|| metadata.invalid(format!("entry {i} of {MERGES} is not two texts")))?;
            pairs.push(json!([left, right]));
        }
        let byte_level = json!({"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": false, "use_regex": false});
        let splitter = json!({
            "type": "Split", "pattern": {"Regex": split}, "behavior": "Isolated", "invert": false,
        });
        let tokenizer = json!({
            "version": "1.0",
            "truncation": null,
            "padding": null,
            "added_tokens": added,
            "normalizer": {"type": "NFC"},
            "pre_tokenizer": {"type": "Sequence", "pretokenizers": [splitter, byte_level]},
            "post_processor": byte_level,
            "decoder": byte_level,
            "model": {
                "type": "BPE", "dropout": null, "unk_token": null, "continuing_subword_prefix": "",
                "end_of_word_suffix": "", "fuse_unk": false, "byte_fallback": false, "ignore_merges": false,
                "vocab": vocab, "merges": pairs,
            },
        });
        Ok(tokenizer.to_string().into())
    }

    /// Tokens that templates may name.
    fn tokenizer_config(&self, metadata: &Metadata) -> Result<Json, ConvertError> {
        let mut config = json!({"add_bos_token": false, "add_prefix_space": false});
        for (name, key) in [("bos_token", "bos"), ("eos_token", "eos"), ("pad_token", "padding")] {
            let id = self.id_of(metadata, key)?;
            config[name] = id.map(|id| self.0[id].0).into();
        }
        Ok(config)
    }

    /// Ends of answers, and the sampling that the file asks for.
    fn generation_config(&self, metadata: &Metadata) -> Result<Json, ConvertError> {
        let mut ends = Vec::new();
        for key in ["eos", "eot", "eom"] {
            ends.extend(self.id_of(metadata, key)?);
        }
        let is_end = |(text, kind): &(&str, u64)| TURN_ENDS.contains(text) && *kind != NORMAL;
        ends.extend(self.0.iter().enumerate().filter(|(_, token)| is_end(token)).map(|(id, _)| id));
        let mut seen = HashSet::new();
        ends.retain(|id| seen.insert(*id));
        let mut config = json!({"eos_token_id": ends});
        for (name, key) in [("temperature", "temp"), ("top_p", "top_p"), ("min_p", "min_p")] {
            if let Some(value) = metadata.float(&format!("general.sampling.{key}"))? {
                config[name] = value.into();
            }
        }
        if let Some(top_k) = metadata.integer("general.sampling.top_k")? {
            config["top_k"] = top_k.into();
        }
        Ok(config)
    }

    /// The id of a token that the file names, if it does.
    fn id_of(&self, metadata: &Metadata, name: &str) -> Result<Option<usize>, ConvertError> {
        let key = format!("tokenizer.ggml.{name}_token_id");
        let Some(id) = metadata.integer(&key)? else { return Ok(None) };
        match usize::try_from(id) {
            Ok(id) if id < self.0.len() => Ok(Some(id)),
            _ => Err(metadata.invalid(format!("{key} is {id}, there are {} tokens", self.0.len()))),
        }
    }
}
