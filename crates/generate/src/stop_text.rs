//! Texts that end an answer where they appear in it.
//!
//! The answer comes in pieces, and a stop text may lie across any of their borders. What might still become
//! one is held back, so nothing of it is ever shown; it comes out when it does not. Of several the one that is
//! complete first wins, of those that end together the longest: how the text was cut makes no difference.

use crate::error::GenerateError;

/// Most stop texts of an answer.
const TEXTS_MAX: usize = 64;
/// Longest stop text.
const TEXT_BYTES_MAX: usize = 4096;

/// Looks for stop texts in one answer.
pub(crate) struct StopTexts {
    texts: Vec<String>,
    /// The longest end of the text so far that one of them begins with.
    held: String,
    found: Option<usize>,
}

impl StopTexts {
    pub(crate) fn new(texts: Vec<String>) -> Result<Self, GenerateError> {
        let error = |why: String| Err(GenerateError::StopText { why });
        if texts.len() > TEXTS_MAX {
            return error(format!("there are {}, at most {TEXTS_MAX} are looked for", texts.len()));
        }
        for text in &texts {
            match text.len() {
                0 => return error("one is empty".into()),
                1..=TEXT_BYTES_MAX => {}
                n => return error(format!("one has {n} bytes, at most {TEXT_BYTES_MAX} are looked for")),
            }
        }
        Ok(Self { texts, held: String::new(), found: None })
    }

    /// Takes the next text and gives out what is surely before any stop text. Nothing comes out behind one.
    pub(crate) fn push(&mut self, text: &str, out: &mut dyn FnMut(&str)) {
        if self.found.is_some() {
            return;
        }
        if self.texts.is_empty() {
            return out(text);
        }
        self.held.push_str(text);
        let found = self.texts.iter().enumerate().filter_map(|(i, stop)| {
            let at = self.held.find(stop)?;
            Some((at + stop.len(), at, i))
        });
        let decided = match found.min() {
            Some((_, at, i)) => {
                self.found = Some(i);
                at
            }
            None => self.held.len() - self.n_possible(),
        };
        if decided > 0 {
            out(&self.held[..decided]);
        }
        self.held.drain(..decided);
    }

    /// The text goes on elsewhere, or ends: nothing stays held back.
    pub(crate) fn flush(&mut self, out: &mut dyn FnMut(&str)) {
        let held = std::mem::take(&mut self.held);
        if self.found.is_none() && !held.is_empty() {
            out(&held);
        }
    }

    /// The stop text that came.
    pub(crate) fn found(&self) -> Option<&str> {
        self.found.map(|i| self.texts[i].as_str())
    }

    /// Bytes at the end that may be the beginning of a stop text.
    fn n_possible(&self) -> usize {
        let held = self.held.as_bytes();
        let longest = |stop: &String| {
            let n_max = held.len().min(stop.len() - 1);
            (1..=n_max).rev().find(|&n| held.ends_with(&stop.as_bytes()[..n])).unwrap_or(0)
        };
        self.texts.iter().map(longest).max().unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What is shown, and which stop text ended it.
    fn run(stops: &[&str], pieces: &[&str]) -> (String, Option<String>) {
        let mut shown = String::new();
        let mut stop_texts = StopTexts::new(stops.iter().map(|s| s.to_string()).collect()).unwrap();
        for piece in pieces {
            stop_texts.push(piece, &mut |text| shown.push_str(text));
        }
        stop_texts.flush(&mut |text| shown.push_str(text));
        (shown, stop_texts.found().map(str::to_owned))
    }

    #[test]
    fn stop_texts_never_leak_however_the_text_is_cut() {
        // A17: parts of the stop text would be shown, or text vanish that only looked like one.
        let cases: [(&[&str], &str, &str, Option<&str>); 12] = [
            (&["END", "\n\nUser:"], "a b END c", "a b ", Some("END")),
            (&["END", "\n\nUser:"], "hi\n\nUser: x END", "hi", Some("\n\nUser:")),
            (&["END"], "ends in EN", "ends in EN", None),
            (&["END"], "ENEND", "EN", Some("END")),
            (&["aab"], "aaaab", "aa", Some("aab")),
            (&["abc", "bc"], "xabc", "x", Some("abc")),
            (&["abcd", "bc"], "xabcd", "xa", Some("bc")),
            (&["é→"], "caf é é→ x", "caf é ", Some("é→")),
            (&["é"], "x\u{e8}y", "x\u{e8}y", None),
            (&["\n"], "one\ntwo", "one", Some("\n")),
            (&["stop"], "stop", "", Some("stop")),
            (&[], "anything", "anything", None),
        ];
        for (stops, text, shown, found) in cases {
            let expected = (shown.to_owned(), found.map(str::to_owned));
            let borders: Vec<usize> = text.char_indices().map(|(at, _)| at).chain([text.len()]).collect();
            for &a in &borders {
                for &b in borders.iter().filter(|&&b| b >= a) {
                    let pieces = [&text[..a], &text[a..b], &text[b..]];
                    assert_eq!(run(stops, &pieces), expected, "{stops:?} in {pieces:?}");
                }
            }
            let chars: Vec<String> = text.chars().map(String::from).collect();
            let chars: Vec<&str> = chars.iter().map(String::as_str).collect();
            assert_eq!(run(stops, &chars), expected, "{stops:?} in {chars:?}");
        }
    }

    #[test]
    fn absurd_stop_texts_are_refused() {
        // An empty stop text would end every answer at once; a huge list costs time at every token.
        let cases = [vec![String::new()], vec!["x".repeat(5000)], vec!["x".to_owned(); 65]];
        for texts in cases {
            assert!(StopTexts::new(texts).is_err());
        }
    }
}
