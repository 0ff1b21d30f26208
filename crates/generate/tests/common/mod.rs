//! What several test files share: tokenizers and a model that follows a script.
#![allow(dead_code)] // Each test file uses its own part.

pub(crate) mod noise;

use std::io::Write;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};

use generate::{TextFiles, TextModel, Tokenizer};
use model::{ModelError, TokenModel};
use serde_json::{Map, Value, json};

/// Added tokens of the small tokenizer, from id 262 on; the last one is only in tokenizer_config.json.
pub(crate) const ADDED: [(&str, bool); 9] = [
    ("<|endoftext|>", true),
    ("<|im_start|>", true),
    ("<|im_end|>", true),
    ("<tool_call>", false),
    ("</tool_call>", false),
    ("<tool_response>", false),
    ("<think>", false),
    ("</think>", false),
    ("<|audio|>", true),
];
pub(crate) const FIRST_ADDED: u32 = 262;

fn crate_path(relative: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(relative)
}

/// A committed test file.
pub(crate) fn data(name: &str) -> Vec<u8> {
    let path = crate_path("tests/data").join(name);
    std::fs::read(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
}

/// The first of these files that exists; tells loudly if none does.
pub(crate) fn optional(paths: &[&str]) -> Option<Vec<u8>> {
    let found = paths.iter().find_map(|path| std::fs::read(crate_path(path)).ok());
    if found.is_none() {
        // Not eprintln!, which the test runner keeps to itself when a test passes.
        let _ = writeln!(std::io::stderr(), "SKIPPED: none of {paths:?} is here");
    }
    found
}

/// The demo model's tokenizer.json.
pub(crate) fn demo_tokenizer_json() -> Vec<u8> {
    repository_file("crates/cli/demo/tokenizer.json")
}

/// A file of the repository.
pub(crate) fn repository_file(path: &str) -> Vec<u8> {
    std::fs::read(crate_path("../..").join(path)).unwrap_or_else(|e| panic!("{path}: {e}"))
}

/// GPT-2's characters for bytes, written out again as an independent check of the crate's table.
pub(crate) fn glyph(byte: u8) -> char {
    match byte {
        0x21..=0x7E | 0xA1..=0xAC | 0xAE..=0xFF => char::from(byte),
        0..=0x20 => char::from_u32(0x100 + u32::from(byte)).unwrap(),
        0x7F..=0xA0 => char::from_u32(0x121 + u32::from(byte) - 0x7F).unwrap(),
        0xAD => '\u{143}',
    }
}

/// A byte-level tokenizer in the form of the real ones: 256 bytes, 6 merges, 8 added tokens.
pub(crate) fn small_json() -> Value {
    let merges = [("h", "e"), ("l", "l"), ("he", "ll"), ("hell", "o"), ("Ġ", "w"), ("Ċ", "Ċ")];
    let mut vocab: Map<String, Value> = (0..=255u8).map(|b| (glyph(b).to_string(), b.into())).collect();
    for (i, (a, b)) in merges.iter().enumerate() {
        vocab.insert(format!("{a}{b}"), (256 + i).into());
    }
    let added = ADDED[..8].iter().zip(FIRST_ADDED..);
    let added: Vec<Value> =
        added.map(|((content, special), id)| added_json(content, *special, Some(id))).collect();
    let split =
        r"[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";
    json!({
        "version": "1.0",
        "truncation": { "direction": "Right", "max_length": 4, "strategy": "LongestFirst", "stride": 0 },
        "padding": null,
        "added_tokens": added,
        "normalizer": { "type": "NFC" },
        "pre_tokenizer": { "type": "Sequence", "pretokenizers": [
            { "type": "Split", "pattern": { "Regex": split }, "behavior": "Isolated", "invert": false },
            { "type": "ByteLevel", "add_prefix_space": false, "trim_offsets": false, "use_regex": false },
        ]},
        "post_processor": null,
        "decoder": { "type": "ByteLevel", "add_prefix_space": false, "trim_offsets": false, "use_regex": false },
        "model": {
            "type": "BPE", "dropout": null, "unk_token": null, "continuing_subword_prefix": "",
            "end_of_word_suffix": "", "fuse_unk": false, "byte_fallback": false, "ignore_merges": false,
            "vocab": vocab, "merges": merges.map(|(a, b)| json!([a, b])),
        },
    })
}

fn added_json(content: &str, special: bool, id: Option<u32>) -> Value {
    let mut token = json!({
        "content": content, "single_word": false, "lstrip": false, "rstrip": false, "normalized": false,
        "special": special,
    });
    if let Some(id) = id {
        token["id"] = id.into();
    }
    token
}

/// The small tokenizer's tokenizer_config.json, with the added token that the other file lacks.
pub(crate) fn small_config() -> Value {
    let decoder =
        ADDED.iter().zip(FIRST_ADDED..).map(|((c, s), id)| (id.to_string(), added_json(c, *s, None)));
    json!({ "added_tokens_decoder": decoder.collect::<Map<_, _>>(), "eos_token": "<|im_end|>" })
}

pub(crate) fn small() -> Tokenizer {
    let config = small_config().to_string();
    Tokenizer::from_bytes(small_json().to_string().as_bytes(), Some(config.as_bytes())).unwrap()
}

/// The id of an added token of the small tokenizer.
pub(crate) fn id(content: &str) -> u32 {
    FIRST_ADDED + ADDED.iter().position(|(c, _)| *c == content).unwrap() as u32
}

/// A model that wants to say a fixed sequence of tokens, whatever it is fed; behind the end it says token 0
/// for ever.
pub(crate) struct Script {
    pub(crate) answer: Vec<u32>,
    /// Position at which the answer starts.
    pub(crate) n_prompt: usize,
    pub(crate) n_ctx: usize,
    /// Tokens after which `feed` asks whether to go on.
    pub(crate) chunk: usize,
    pub(crate) fed: Vec<u32>,
    /// Logits are NaN from this position on.
    pub(crate) broken_at: Option<usize>,
    logits: Vec<f32>,
}

/// More rows than the small tokenizer has tokens, as in real models.
pub(crate) const N_VOCAB: usize = 300;

impl Script {
    pub(crate) fn new(answer: &[u32], n_prompt: usize) -> Self {
        let answer = answer.to_vec();
        Self { answer, n_prompt, n_ctx: 1000, chunk: 4, fed: Vec::new(), broken_at: None, logits: Vec::new() }
    }
}

impl TokenModel for Script {
    fn n_vocab(&self) -> usize {
        N_VOCAB
    }

    fn n_ctx(&self) -> usize {
        self.n_ctx
    }

    fn pos(&self) -> usize {
        self.fed.len()
    }

    fn feed(
        &mut self,
        ids: &[u32],
        progress: &mut dyn FnMut(usize) -> ControlFlow<()>,
    ) -> Result<&[f32], ModelError> {
        let (n_token, pos, n_ctx) = (ids.len(), self.pos(), self.n_ctx);
        if pos + n_token > n_ctx {
            return Err(ModelError::ContextFull { n_token, pos, n_ctx });
        }
        for (i, chunk) in ids.chunks(self.chunk).enumerate() {
            self.fed.extend_from_slice(chunk);
            if progress(i * self.chunk + chunk.len()).is_break() {
                return Err(ModelError::Interrupted);
            }
        }
        let next = (self.fed.len() - self.n_prompt.min(self.fed.len())).min(self.answer.len());
        // Padding rows are the favourites: only masking keeps them out.
        self.logits = vec![-5.0; N_VOCAB];
        self.logits[N_VOCAB - 1] = 50.0;
        self.logits[self.answer.get(next).copied().unwrap_or(0) as usize] = 20.0;
        if self.broken_at.is_some_and(|at| self.pos() >= at) {
            self.logits[7] = f32::NAN;
        }
        Ok(&self.logits)
    }
}

/// The small tokenizer with a chat template.
pub(crate) fn text_model(template: &[u8]) -> TextModel {
    let (tokenizer, config) = (small_json().to_string(), small_config().to_string());
    let files = TextFiles {
        tokenizer: tokenizer.as_bytes(),
        tokenizer_config: Some(config.as_bytes()),
        chat_template: Some(template),
        generation_config: None,
    };
    TextModel::new(files).unwrap()
}

/// All chat templates that are here, with their names.
pub(crate) fn templates() -> Vec<(&'static str, Vec<u8>)> {
    let ours = [
        ("test", data("chat_template.jinja")),
        ("demo", repository_file("crates/cli/demo/chat_template.jinja")),
    ];
    let others = ["../../../shared/templates/qwen3.5.jinja", "../../../shared/templates/qwen3.6.jinja"];
    let others = others.iter().filter_map(|path| Some((*path, optional(&[path])?)));
    ours.into_iter().chain(others).collect()
}
