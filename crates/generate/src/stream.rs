//! Tokens to text while they arrive: never half a character.

use crate::tokenizer::Tokenizer;

/// Incremental decoder. A token may end inside a character; its bytes wait for the next token. What comes
/// out, with [`TextStream::finish`], is what [`Tokenizer::decode`] gives for the whole sequence without
/// special tokens.
pub struct TextStream<'t> {
    tokenizer: &'t Tokenizer,
    /// The start of a character that is not complete: at most 3 bytes.
    pending: Vec<u8>,
}

impl<'t> TextStream<'t> {
    /// Starts at a character boundary.
    pub fn new(tokenizer: &'t Tokenizer) -> Self {
        Self { tokenizer, pending: Vec::new() }
    }

    /// The text that this token completes; empty for special tokens and ids without a token.
    pub fn push(&mut self, id: u32) -> String {
        if !self.tokenizer.is_special(id) {
            self.pending.extend_from_slice(self.tokenizer.token_bytes(id));
        }
        let mut text = String::new();
        let mut rest = self.pending.as_slice();
        while !rest.is_empty() {
            let error = match std::str::from_utf8(rest) {
                Ok(valid) => {
                    text.push_str(valid);
                    rest = &[];
                    break;
                }
                Err(error) => error,
            };
            let (valid, after) = rest.split_at(error.valid_up_to());
            text.push_str(&String::from_utf8_lossy(valid));
            rest = after;
            // Bytes that no continuation can make valid are shown as such at once; an unfinished character
            // waits.
            let Some(n_bad) = error.error_len() else { break };
            text.push(char::REPLACEMENT_CHARACTER);
            rest = &rest[n_bad..];
        }
        let n_done = self.pending.len() - rest.len();
        self.pending.drain(..n_done);
        text
    }

    /// The end of the stream: a character that never became complete is shown as U+FFFD.
    pub fn finish(&mut self) -> String {
        let text = String::from_utf8_lossy(&self.pending).into_owned();
        self.pending.clear();
        text
    }
}
