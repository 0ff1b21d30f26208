//! Keeps text that quotes control tokens from becoming control tokens.
//!
//! Templates mix trusted text (`<|im_start|>`) and untrusted text (a message that contains `<|im_start|>`)
//! into one string, and only that string is tokenised. So the untrusted literals are broken before rendering,
//! by a sentinel character that occurs nowhere else, and what is still whole afterwards is the template's
//! own.

use serde_json::{Map, Value};

/// Which literals are broken in whose text.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Literals {
    /// All added tokens.
    All,
    /// Control tokens only (`special`). Templates look at others, such as `</think>`.
    Special,
}

/// Levels of guarding for (the assistant's text, everybody else's), strictest first.
pub(crate) const LEVELS: [(Literals, Literals); 3] = [
    (Literals::All, Literals::All),
    (Literals::Special, Literals::All),
    (Literals::Special, Literals::Special),
];

/// A character for breaking literals that `taken` does not contain: noncharacters first, which no text should
/// have, then private use.
pub(crate) fn sentinel(taken: &[&str]) -> Option<char> {
    let candidates = ('\u{FDD0}'..='\u{FDEF}').chain('\u{E000}'..='\u{F8FF}');
    candidates.into_iter().find(|&c| !taken.iter().any(|text| text.contains(c)))
}

/// Breaks literals in the strings of a JSON value, keys included.
pub(crate) fn guard_value(value: &Value, literals: &[&str], sentinel: char) -> Value {
    match value {
        Value::String(text) => guard_text(text, literals, sentinel).into(),
        Value::Array(items) => items.iter().map(|item| guard_value(item, literals, sentinel)).collect(),
        Value::Object(fields) => {
            let pairs = fields.iter();
            let guarded =
                pairs.map(|(k, v)| (guard_text(k, literals, sentinel), guard_value(v, literals, sentinel)));
            Value::Object(guarded.collect::<Map<_, _>>())
        }
        other => other.clone(),
    }
}

/// Puts a sentinel into every literal in the text, and into every piece of one at the text's ends, which
/// could become whole beside other text. White space at the ends is ignored there: templates trim.
fn guard_text(text: &str, literals: &[&str], sentinel: char) -> String {
    let mut cuts = Vec::new();
    let end = text.trim_end().len();
    for (at, first) in text.char_indices() {
        let rest = &text[at..];
        let open = |literal: &&str| {
            rest.starts_with(literal)
                || literal.starts_with(rest)
                || (at < end && literal.starts_with(&text[at..end]))
        };
        if literals.iter().any(|literal| literal.starts_with(first) && open(literal)) {
            cuts.push(at + first.len_utf8());
        }
    }
    let trimmed = text.trim_start();
    for body in [text, trimmed] {
        let start = text.len() - body.len();
        for literal in literals {
            // Every proper end of the literal: the text may begin with it.
            let tails = literal.char_indices().skip(1).map(|(at, _)| &literal[at..]);
            for tail in tails.filter(|tail| body.starts_with(tail)) {
                let (last_at, _) = tail.char_indices().next_back().expect("tails are not empty");
                cuts.push(start + last_at);
            }
        }
    }
    cuts.sort_unstable();
    cuts.dedup();
    let mut out = String::with_capacity(text.len() + cuts.len() * sentinel.len_utf8());
    let mut done = 0;
    for cut in cuts {
        out.push_str(&text[done..cut]);
        out.push(sentinel);
        done = cut;
    }
    out.push_str(&text[done..]);
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    const LITERALS: [&str; 3] = ["<|im_end|>", "<think>", "é→"];

    #[test]
    fn literals_and_their_pieces_are_broken() {
        // A forged turn could be put together from pieces of text that each look harmless.
        let cases = [
            ("plain < text > |", "plain < text > |"),
            ("<|im_end|>", "<#|im_end|>"),
            ("a<|im_end|><think>b", "a<#|im_end|><#think>b"),
            ("tail <|im_", "tail <#|im_"),
            ("tail <|im_ \n", "tail <#|im_ \n"),
            ("tail <", "tail <#"),
            ("end|> head", "end|#> head"),
            (" \nhink> head", " \nhink#> head"),
            ("> head", "#> head"),
            ("xé→", "xé#→"),
            ("", ""),
        ];
        for (text, expected) in cases {
            assert_eq!(guard_text(text, &LITERALS, '#'), expected, "{text:?}");
        }
    }

    #[test]
    fn no_split_of_a_literal_survives() {
        // Same, exhaustively: every way to cut a literal into two or three texts.
        for literal in LITERALS {
            let cuts: Vec<usize> = literal.char_indices().map(|(at, _)| at).chain([literal.len()]).collect();
            for &a in &cuts {
                for &b in cuts.iter().filter(|&&b| b >= a) {
                    let pieces = [&literal[..a], &literal[a..b], &literal[b..]];
                    let joined: String = pieces.iter().map(|p| guard_text(p, &LITERALS, '#')).collect();
                    assert!(!joined.contains(literal), "{pieces:?} -> {joined}");
                }
            }
        }
    }

    #[test]
    fn the_sentinel_is_not_in_the_text() {
        // A sentinel that the text contains would vanish from it.
        assert_eq!(sentinel(&["a", "b"]), Some('\u{FDD0}'));
        assert_eq!(sentinel(&["a\u{FDD0}", "\u{FDD1}"]), Some('\u{FDD2}'));
        let all: String = ('\u{FDD0}'..='\u{FDEF}').chain('\u{E000}'..='\u{F8FF}').collect();
        assert_eq!(sentinel(&[&all]), None);
    }
}
