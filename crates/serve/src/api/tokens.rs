//! Which tokens a piece of text came from, and how likely they were.
//!
//! Text comes later than its tokens (half characters, possible tags and stop texts are held back), and some tokens
//! never become text. So a piece of text is looked for in the bytes of the tokens that are still open.

use std::collections::VecDeque;

use generate::{TokenLogprob, Tokenizer};
use serde_json::{Map, Value, json};

/// A chosen token.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Chosen {
    pub(crate) id: u32,
    pub(crate) logprob: Box<TokenLogprob>,
}

/// Tokens that have not become text yet.
#[derive(Debug, Default)]
pub(crate) struct OpenTokens {
    tokens: VecDeque<Chosen>,
    /// Bytes of the first token that were given with an earlier piece.
    n_taken: usize,
}

impl OpenTokens {
    pub(crate) fn push(&mut self, id: u32, logprob: Option<Box<TokenLogprob>>) {
        if let Some(logprob) = logprob {
            self.tokens.push_back(Chosen { id, logprob });
        }
    }

    /// Text that is not part of the content came: its tokens are of no interest.
    pub(crate) fn clear(&mut self) {
        self.tokens.clear();
        self.n_taken = 0;
    }

    /// The tokens of a piece of content. One that ends behind the piece goes with it, and not with the next.
    pub(crate) fn take(&mut self, text: &str, tokenizer: &Tokenizer) -> Vec<Chosen> {
        let all = self.tokens.iter().flat_map(|t| tokenizer.token_bytes(t.id)).copied();
        let bytes: Vec<u8> = all.skip(self.n_taken).collect();
        let found = bytes.windows(text.len().max(1)).position(|window| window == text.as_bytes());
        // What was replaced is not found: then all tokens are the piece's.
        let (start, end) = found.map_or((0, bytes.len()), |start| (start, start + text.len()));
        let (mut taken, mut pos) = (Vec::new(), 0);
        while let Some(token) = self.tokens.front() {
            let is_new = self.n_taken == 0;
            let token_end = pos + tokenizer.token_bytes(token.id).len() - self.n_taken;
            let overlaps = start < token_end && pos < end;
            if is_new && overlaps {
                taken.push(token.clone());
            }
            if end < token_end {
                self.n_taken += end.saturating_sub(pos);
                break;
            }
            self.tokens.pop_front();
            self.n_taken = 0;
            pos = token_end;
        }
        taken
    }
}

/// A token as text; bytes that are no text show as U+FFFD.
fn token_text(id: u32, tokenizer: &Tokenizer) -> String {
    String::from_utf8_lossy(tokenizer.token_bytes(id)).into_owned()
}

/// In the form of chat: token, logprob, bytes, and the likeliest ones.
pub(crate) fn chat_logprobs(tokens: &[Chosen], tokenizer: &Tokenizer) -> Value {
    let entry = |id: u32, logprob: f32| {
        let mut map = Map::new();
        map.insert("token".into(), token_text(id, tokenizer).into());
        map.insert("logprob".into(), finite(logprob));
        map.insert("bytes".into(), tokenizer.token_bytes(id).into());
        map
    };
    let content = tokens.iter().map(|token| {
        let top = token.logprob.top.iter().map(|&(id, logprob)| Value::Object(entry(id, logprob)));
        let mut map = entry(token.id, token.logprob.logprob);
        map.insert("top_logprobs".into(), top.collect());
        Value::Object(map)
    });
    json!({ "content": content.collect::<Value>(), "refusal": null })
}

/// In the form of completions; `offset`: characters of the text before.
pub(crate) fn text_logprobs(tokens: &[Chosen], tokenizer: &Tokenizer, mut offset: usize) -> Value {
    let (mut texts, mut logprobs, mut top, mut offsets) = (vec![], vec![], vec![], vec![]);
    for token in tokens {
        let text = token_text(token.id, tokenizer);
        offsets.push(offset);
        offset += text.chars().count();
        texts.push(text);
        logprobs.push(finite(token.logprob.logprob));
        let likeliest = token.logprob.top.iter().map(|&(id, p)| (token_text(id, tokenizer), finite(p)));
        top.push(Value::Object(likeliest.collect()));
    }
    json!({ "tokens": texts, "token_logprobs": logprobs, "top_logprobs": top, "text_offset": offsets })
}

/// JSON has no infinity: what cannot be chosen is very unlikely.
fn finite(logprob: f32) -> Value {
    json!(if logprob.is_finite() { logprob } else { -9999.0 })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tokenizer() -> Tokenizer {
        Tokenizer::from_bytes(include_bytes!("../../../cli/demo/tokenizer.json"), None).unwrap()
    }

    /// Log probabilities would be told of tokens that the text does not come from, or of none, or twice.
    #[test]
    fn pieces_of_text_find_their_tokens() {
        let tokenizer = tokenizer();
        let check = |given: &[&str], pieces: &[(&str, &str)]| {
            let mut open = OpenTokens::default();
            for text in given {
                for id in tokenizer.encode(text).unwrap() {
                    open.push(id, Some(Box::new(TokenLogprob { logprob: -0.5, top: Vec::new() })));
                }
            }
            for (text, expected) in pieces {
                let taken = open.take(text, &tokenizer);
                let bytes: Vec<u8> =
                    taken.iter().flat_map(|t| tokenizer.token_bytes(t.id)).copied().collect();
                assert_eq!(String::from_utf8_lossy(&bytes), *expected, "{given:?}: {text:?}");
            }
        };
        check(&["</think>", "\n\n", "Paris", "."], &[("Paris", "Paris"), (".", ".")]);
        // The second half of a token came with its first.
        check(&["1 ", "<"], &[("1 ", "1 "), ("<", "<")]);
        check(&["ab"], &[("a", "ab"), ("b", "")]);
        check(&["日本"], &[("日", "日"), ("本", "本")]);
        check(&["x", "<|im_end|>", "y"], &[("x", "x")]);
    }
}
