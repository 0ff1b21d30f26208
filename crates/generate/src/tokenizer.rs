//! The checkpoint's own tokenizer: text to ids and back.
//!
//! Byte-level BPE of the Hugging Face kind. Encoding is done by `fastokens`; decoding is a table of bytes per
//! id, because output arrives one token at a time and a token may end inside a character. tokenizer.json is
//! hostile: everything that the library would trust (ids as sizes, a complete byte alphabet) is checked here
//! first.

use std::collections::HashMap;

use fastokens::{AddedTokens, added_tokens::Segment};
use serde::Deserialize;
use serde_json::Value;

use crate::error::GenerateError;

/// Ids are used as table sizes, so a file may not name an absurd one. The largest public vocabulary is below
/// 2^19.
const TOKEN_ID_MAX: u32 = 1 << 22;
/// Longest base token in bytes of its file form; real ones stay below 600. Building the merge table is
/// quadratic in it.
const TOKEN_BYTES_MAX: usize = 4096;
/// Sanity bound on the file; the largest public tokenizer.json has 33 MB.
const FILE_BYTES_MAX: usize = 256 << 20;

/// A token that is matched as a whole in trusted text, before any splitting.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AddedToken {
    /// Token id.
    pub id: u32,
    /// Its literal text.
    pub content: String,
    /// Control token: never shown to the user. `<think>` and `<tool_call>` are added tokens but not special.
    pub special: bool,
}

/// Text to token ids and back.
pub struct Tokenizer {
    inner: fastokens::Tokenizer,
    /// Added tokens of two or more characters: those that can be kept apart from quoted ones (see `guard`).
    control: Option<AddedTokens>,
    /// Sorted by id.
    added: Vec<AddedToken>,
    /// Bytes of all tokens, one after another.
    bytes: Vec<u8>,
    /// Token id's bytes are `bytes[ends[id - 1]..ends[id]]`; `[vocab_size]`.
    ends: Vec<u32>,
}

/// The fields of an added token that both files have.
#[derive(Deserialize)]
struct AddedEntry {
    #[serde(default)]
    id: u32,
    content: String,
    #[serde(default)]
    special: bool,
}

impl Tokenizer {
    /// Builds the tokenizer from the bytes of tokenizer.json, and of tokenizer_config.json where there is
    /// one: some checkpoints declare a few added tokens only there.
    pub fn from_bytes(tokenizer_json: &[u8], tokenizer_config: Option<&[u8]>) -> Result<Self, GenerateError> {
        if tokenizer_json.len() > FILE_BYTES_MAX {
            return Err(unusable(format!(
                "{} bytes, at most {FILE_BYTES_MAX} are read",
                tokenizer_json.len()
            )));
        }
        let mut json = parse("tokenizer.json", tokenizer_json)?;
        if let Some(config) = tokenizer_config {
            merge_added(&mut json, &parse("tokenizer_config.json", config)?)?;
        }
        require_byte_level(&json)?;
        let added = added_tokens(&json)?;
        let (bytes, ends) = byte_table(&json, &added)?;
        if let Some(model) = json.get_mut("model").and_then(Value::as_object_mut) {
            // Dropout is a training option; the same text must always give the same ids.
            model.remove("dropout");
        }
        let mut inner = build(json)?;
        // A prompt is never cut or padded behind the caller's back.
        inner.set_truncation(None);
        inner.set_padding(None);
        let control: Vec<_> = inner.added_token_configs().to_vec();
        let control: Vec<_> = control.into_iter().filter(|t| t.content.chars().count() > 1).collect();
        let control = AddedTokens::from_configs(&control).map_err(unusable)?;
        Ok(Self { inner, control, added, bytes, ends })
    }

    /// Ids of untrusted text: literals of added tokens in it stay text.
    pub fn encode_text(&self, text: &str) -> Result<Vec<u32>, GenerateError> {
        self.inner.encode_ordinary(text).map_err(|e| GenerateError::Encode { why: e.to_string() })
    }

    /// Ids of trusted text (a raw prompt): literals of added tokens become those tokens.
    pub fn encode(&self, text: &str) -> Result<Vec<u32>, GenerateError> {
        self.inner
            .encode_with_special_tokens(text, false)
            .map_err(|e| GenerateError::Encode { why: e.to_string() })
    }

    /// Ids of text in which every literal that is only quoted was broken by `sentinel`: unbroken literals
    /// become tokens, everything else is text, the sentinels disappear.
    pub(crate) fn encode_guarded(
        &self,
        text: &str,
        sentinel: Option<char>,
    ) -> Result<Vec<u32>, GenerateError> {
        let segments = match &self.control {
            Some(control) => control.split(text),
            None => vec![Segment::Text(text)],
        };
        let mut ids = Vec::new();
        for segment in segments {
            match (segment, sentinel) {
                (Segment::Token(id), _) => ids.push(id),
                (Segment::Text(text), None) => ids.extend(self.encode_text(text)?),
                (Segment::Text(text), Some(c)) => ids.extend(self.encode_text(&text.replace(c, ""))?),
            }
        }
        Ok(ids)
    }

    /// Text of whole sequences; special tokens are left out if `skip_special`. Bytes that are not UTF-8
    /// become U+FFFD.
    pub fn decode(&self, ids: &[u32], skip_special: bool) -> String {
        let shown = ids.iter().filter(|&&id| !(skip_special && self.is_special(id)));
        let bytes: Vec<u8> = shown.flat_map(|&id| self.token_bytes(id)).copied().collect();
        String::from_utf8_lossy(&bytes).into_owned()
    }

    /// The bytes that a token stands for; empty for ids without a token (the padding rows of an embedding).
    pub fn token_bytes(&self, id: u32) -> &[u8] {
        let id = id as usize;
        let Some(&end) = self.ends.get(id) else { return &[] };
        let start = if id == 0 { 0 } else { self.ends[id - 1] };
        &self.bytes[start as usize..end as usize]
    }

    /// The id of a token given as its literal text (`<|im_end|>`), or as the file spells a base token.
    pub fn token_id(&self, token: &str) -> Option<u32> {
        self.inner.token_to_id(token)
    }

    /// All added tokens, by rising id.
    pub fn added_tokens(&self) -> &[AddedToken] {
        &self.added
    }

    /// The added token of this id.
    pub fn added_token(&self, id: u32) -> Option<&AddedToken> {
        self.added.binary_search_by_key(&id, |t| t.id).ok().map(|i| &self.added[i])
    }

    /// Whether this is a control token, which is never shown.
    pub fn is_special(&self, id: u32) -> bool {
        self.added_token(id).is_some_and(|t| t.special)
    }

    /// One more than the largest id that stands for a token. Embeddings may have more rows; those are never
    /// sampled.
    pub fn vocab_size(&self) -> usize {
        self.ends.len()
    }
}

fn unusable(why: impl Into<String>) -> GenerateError {
    GenerateError::Tokenizer { why: why.into() }
}

fn parse(file: &'static str, bytes: &[u8]) -> Result<Value, GenerateError> {
    let value: Value =
        serde_json::from_slice(bytes).map_err(|e| GenerateError::Json { file, why: e.to_string() })?;
    match value {
        Value::Object(_) => Ok(value),
        _ => Err(GenerateError::Json { file, why: "not a JSON object".into() }),
    }
}

/// The library promises errors for bad files; a promise about hostile ones is better kept twice.
fn build(json: Value) -> Result<fastokens::Tokenizer, GenerateError> {
    match std::panic::catch_unwind(|| fastokens::Tokenizer::from_json(json)) {
        Ok(built) => built.map_err(|e| unusable(e.to_string())),
        Err(_) => Err(unusable("the tokenizer library cannot read it")),
    }
}

/// Adds the tokens of `added_tokens_decoder` (tokenizer_config.json) that tokenizer.json does not have.
fn merge_added(json: &mut Value, config: &Value) -> Result<(), GenerateError> {
    let Some(decoder) = config.get("added_tokens_decoder").and_then(Value::as_object) else { return Ok(()) };
    let known: HashMap<u64, String> = json
        .get("added_tokens")
        .and_then(Value::as_array)
        .into_iter()
        .flatten()
        .filter_map(|t| Some((t.get("id")?.as_u64()?, t.get("content")?.as_str()?.to_owned())))
        .collect();
    let mut extra = Vec::new();
    for (key, token) in decoder {
        let bad = |why: String| GenerateError::Json { file: "tokenizer_config.json", why };
        let id: u64 = key.parse().map_err(|_| bad(format!("added token id {key:?} is not a number")))?;
        let mut token = token.clone();
        let fields =
            token.as_object_mut().ok_or_else(|| bad(format!("added token {id} is not an object")))?;
        let content = fields.get("content").and_then(Value::as_str).unwrap_or_default();
        match known.get(&id) {
            Some(same) if same == content => continue,
            Some(other) => {
                return Err(bad(format!(
                    "added token {id} is {content:?}, in tokenizer.json it is {other:?}"
                )));
            }
            None => fields.insert("id".into(), id.into()),
        };
        extra.push(token);
    }
    let object = json.as_object_mut().expect("parse returns objects only");
    match object.entry("added_tokens").or_insert_with(|| Value::Array(Vec::new())) {
        Value::Array(list) => list.extend(extra),
        _ => return Err(unusable("added_tokens is not a list")),
    }
    Ok(())
}

/// Decoding by a table of bytes is right for byte-level vocabularies only.
fn require_byte_level(json: &Value) -> Result<(), GenerateError> {
    let kind = |section: &str| json.pointer(section).and_then(Value::as_str).unwrap_or("missing");
    match kind("/model/type") {
        "BPE" | "missing" => {}
        other => return Err(unusable(format!("model type {other} is not supported, only byte-level BPE"))),
    }
    match kind("/decoder/type") {
        "ByteLevel" => Ok(()),
        other => Err(unusable(format!("decoder {other} is not supported, only ByteLevel"))),
    }
}

fn added_tokens(json: &Value) -> Result<Vec<AddedToken>, GenerateError> {
    let Some(list) = json.get("added_tokens") else { return Ok(Vec::new()) };
    let entries = Vec::<AddedEntry>::deserialize(list).map_err(|e| unusable(format!("added_tokens: {e}")))?;
    let mut added = Vec::with_capacity(entries.len());
    for AddedEntry { id, content, special } in entries {
        if id > TOKEN_ID_MAX {
            return Err(unusable(format!(
                "added token {content:?} has id {id}, the largest allowed is {TOKEN_ID_MAX}"
            )));
        }
        if content.is_empty() || content.len() > TOKEN_BYTES_MAX {
            return Err(unusable(format!("added token {id} has {} bytes of text", content.len())));
        }
        added.push(AddedToken { id, content, special });
    }
    added.sort_by_key(|t| t.id);
    if let Some(pair) = added.windows(2).find(|pair| pair[0].id == pair[1].id) {
        return Err(unusable(format!("added token id {} is declared twice", pair[0].id)));
    }
    Ok(added)
}

/// The bytes of every token, concatenated, and where each one ends.
fn byte_table(json: &Value, added: &[AddedToken]) -> Result<(Vec<u8>, Vec<u32>), GenerateError> {
    let vocab = json.pointer("/model/vocab").and_then(Value::as_object);
    let vocab = vocab.ok_or_else(|| unusable("model.vocab is missing or not an object"))?;
    let byte_of = byte_alphabet();
    if let Some((missing, _)) =
        byte_of.iter().find(|(c, _)| !vocab.contains_key(c.encode_utf8(&mut [0; 4]) as &str))
    {
        return Err(unusable(format!("the vocabulary has no token for the single byte {missing:?}")));
    }
    let mut tokens: Vec<Option<Vec<u8>>> = Vec::new();
    let mut put = |id: usize, bytes: Vec<u8>| {
        tokens.resize(tokens.len().max(id + 1), None);
        tokens[id] = Some(bytes);
    };
    for (text, id) in vocab {
        let id = id.as_u64().filter(|&id| id <= TOKEN_ID_MAX.into());
        let id = id.ok_or_else(|| unusable(format!("token {text:?} has no id from 0 to {TOKEN_ID_MAX}")))?;
        if text.len() > TOKEN_BYTES_MAX {
            return Err(unusable(format!("token {id} has {} bytes, at most {TOKEN_BYTES_MAX}", text.len())));
        }
        // As in Hugging Face's decoder: a token with any other character stands for its own UTF-8 bytes.
        let bytes: Option<Vec<u8>> = text.chars().map(|c| byte_of.get(&c).copied()).collect();
        put(id as usize, bytes.unwrap_or_else(|| text.as_bytes().to_vec()));
    }
    for token in added {
        put(token.id as usize, token.content.as_bytes().to_vec());
    }
    let mut bytes = Vec::new();
    let mut ends = Vec::with_capacity(tokens.len());
    for token in &tokens {
        bytes.extend(token.iter().flatten());
        let end =
            u32::try_from(bytes.len()).map_err(|_| unusable("the tokens have more than 4 GiB of text"))?;
        ends.push(end);
    }
    Ok((bytes, ends))
}

/// The byte-level alphabet of GPT-2: printable bytes of Latin-1 stand for themselves, the other 68 take the
/// characters from U+0100 on, in order.
fn byte_alphabet() -> HashMap<char, u8> {
    let printable = |b: u8| matches!(b, b'!'..=b'~' | 0xA1..=0xAC | 0xAE..=0xFF);
    let others = (0..=255).filter(|&b| !printable(b)).zip('\u{100}'..).map(|(b, c)| (c, b));
    (0..=255).filter(|&b| printable(b)).map(|b| (char::from(b), b)).chain(others).collect()
}
