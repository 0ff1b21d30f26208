//! Texts to evaluate: from files to tokens.

use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

use generate::Tokenizer;
use serde::Deserialize;
use xxhash_rust::xxh3::Xxh3;

use crate::error::CliError;

/// Larger files are probably not what was meant, and would fill the memory.
const FILE_BYTES_MAX: u64 = 1 << 30;

/// Bytes of the longest character.
const CHAR_BYTES_MAX: usize = 4;

/// Documents as tokens.
pub(super) struct Corpus {
    /// Each has two tokens or more.
    pub(super) documents: Vec<Vec<u32>>,
    /// Bytes of each token as text.
    token_bytes: Vec<u32>,
    /// Documents that were too short.
    pub(super) n_skipped: usize,
}

/// A line of a file of documents.
#[derive(Deserialize)]
struct Line {
    text: String,
}

impl Corpus {
    /// Reads and encodes the first `bytes_max` bytes of all files together, for a model with `n_vocab` rows of logits.
    /// What looks like a control token in a text is text.
    ///
    /// # Errors
    /// A file cannot be read, is no text, or has none; the tokenizer is of another model.
    pub(super) fn read(
        paths: &[PathBuf],
        bytes_max: Option<usize>,
        tokenizer: &Tokenizer,
        n_vocab: usize,
    ) -> anyhow::Result<Self> {
        let mut corpus = Self { documents: Vec::new(), token_bytes: Vec::new(), n_skipped: 0 };
        let mut n_left = bytes_max.unwrap_or(usize::MAX);
        for path in paths {
            for text in read_texts(path)? {
                let text = cut(&text, n_left);
                if text.is_empty() && n_left < CHAR_BYTES_MAX {
                    break;
                }
                n_left -= text.len();
                let ids = tokenizer.encode_text(text)?;
                if let Some(id) = ids.iter().find(|&&id| n_vocab <= id as usize) {
                    let why = format!(
                        "a token with id {id}, but the model has logits for {n_vocab}: its tokenizer.json is of another model"
                    );
                    return Err(CliError::Input { path: path.clone(), why }.into());
                }
                if ids.len() < 2 {
                    corpus.n_skipped += 1;
                } else {
                    corpus.documents.push(ids);
                }
            }
        }
        if corpus.documents.is_empty() {
            let why = "no text of two tokens or more: there is nothing to predict".into();
            return Err(CliError::Input { path: paths.first().cloned().unwrap_or_default(), why }.into());
        }
        let bytes = |id| tokenizer.token_bytes(id).len() as u32;
        corpus.token_bytes = (0..n_vocab as u32).map(bytes).collect();
        Ok(corpus)
    }

    /// Bytes of a token as text.
    pub(super) fn bytes_of(&self, id: u32) -> u32 {
        self.token_bytes[id as usize]
    }

    /// Names the tokens: the same for the same text and tokenizer.
    pub(super) fn hash(&self) -> String {
        let mut hash = Xxh3::new();
        for document in &self.documents {
            hash.update(&(document.len() as u64).to_le_bytes());
            document.iter().for_each(|id| hash.update(&id.to_le_bytes()));
        }
        format!("{:016x}", hash.digest())
    }
}

/// A whole file of text.
pub(super) fn read_bytes(path: &Path) -> Result<Vec<u8>, CliError> {
    let failed = |source| CliError::Io { path: path.to_owned(), action: "read", source };
    let mut bytes = Vec::new();
    File::open(path).map_err(failed)?.take(FILE_BYTES_MAX + 1).read_to_end(&mut bytes).map_err(failed)?;
    if FILE_BYTES_MAX < bytes.len() as u64 {
        let why = format!("more than the {} MiB that are read; split it", FILE_BYTES_MAX >> 20);
        return Err(CliError::Input { path: path.to_owned(), why });
    }
    Ok(bytes)
}

/// Documents of a file.
fn read_texts(path: &Path) -> Result<Vec<String>, CliError> {
    let bad = |why: String| CliError::Input { path: path.to_owned(), why };
    let text = String::from_utf8(read_bytes(path)?)
        .map_err(|error| bad(format!("not UTF-8 text (byte {})", error.utf8_error().valid_up_to())))?;
    if path.extension().is_none_or(|ending| ending != "jsonl") {
        return if text.is_empty() { Err(bad("the file is empty".into())) } else { Ok(vec![text]) };
    }
    let lines = text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty());
    let parsed = lines.map(|(i, line)| {
        let line: Result<Line, _> = serde_json::from_str(line);
        line.map(|line| line.text).map_err(|error| bad(format!("line {}: {error}", i + 1)))
    });
    let texts: Vec<String> = parsed.collect::<Result<_, _>>()?;
    if texts.is_empty() { Err(bad("no line with a document".into())) } else { Ok(texts) }
}

/// At most `n` bytes, whole characters.
fn cut(text: &str, n: usize) -> &str {
    &text[..text.floor_char_boundary(n.min(text.len()))]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(name: &str, bytes: &[u8]) -> Result<Vec<String>, String> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join(name);
        std::fs::write(&path, bytes).unwrap();
        read_texts(&path).map_err(|error| error.to_string().replace(&*path.to_string_lossy(), "F"))
    }

    /// Lines of JSON would be measured as prose, or a broken file be taken for an empty one.
    #[test]
    fn files_are_read_as_what_they_are() {
        assert_eq!(texts("a.txt", b"a\n\xc3\xa4\n").unwrap(), ["a\nä\n"]);
        assert_eq!(
            texts("a.jsonl", b"{\"text\": \"a\\n\"}\n\n{\"text\":\"b\",\"id\":1}").unwrap(),
            ["a\n", "b"]
        );
        for (name, bytes, error) in [
            ("a.txt", &b""[..], "F: the file is empty"),
            ("a.jsonl", b"\n \n", "F: no line with a document"),
            ("a.txt", b"ab\xff", "F: not UTF-8 text (byte 2)"),
            ("a.jsonl", b"{\"text\":\"a\"}\n{\"txt\":\"a\"}", "F: line 2: missing field `text`"),
        ] {
            let got = texts(name, bytes).unwrap_err();
            assert!(got.starts_with(error), "{got}");
        }
    }

    /// Half a character would be counted as a token of its own.
    #[test]
    fn cuts_are_between_characters() {
        assert_eq!((cut("aäb", 2), cut("aäb", 3), cut("aäb", 99), cut("ä", 0)), ("a", "aä", "aäb", ""));
    }
}
