//! JSON as models write it, made strict while it arrives.
//!
//! What is written the way of JSON comes out as it was, without white space. Python's spelling of strings and
//! constants, unescaped line breaks in strings, unknown escapes and commas before a bracket are put right; anything
//! else is not JSON. A value that was cut off can be closed.

/// Values nested deeper are refused: readers of JSON have such a limit too, commonly 128.
const DEPTH_MAX: usize = 100;
/// Longest number or constant.
const LITERAL_BYTES_MAX: usize = 400;

#[derive(Clone, Copy, PartialEq, Eq)]
enum Frame {
    Object,
    Array,
}

enum State {
    Value,
    Key,
    Colon,
    AfterValue,
    /// `escape`: an escape that is not complete.
    Text {
        quote: char,
        is_key: bool,
        escape: String,
    },
    Literal(String),
    Done,
}

/// How far a value is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Progress {
    /// All text was taken, and more is needed. (A number ends only with what stands behind it.)
    More,
    /// The value is complete after this many bytes of the text.
    Done(usize),
    /// What stands after this many bytes of the text is not JSON.
    Bad(usize),
}

/// Reader of one value.
pub(super) struct JsonRepair {
    stack: Vec<Frame>,
    state: State,
    /// A comma was read, and is written when something follows it.
    comma: bool,
}

impl JsonRepair {
    pub(super) fn new() -> Self {
        Self { stack: Vec::new(), state: State::Value, comma: false }
    }

    /// The strict form of a whole text.
    pub(super) fn whole(text: &str) -> Option<String> {
        let (mut out, mut repair) = (String::new(), Self::new());
        match repair.push(text, &mut out) {
            Progress::Bad(_) => None,
            Progress::Done(n) => text[n..].trim().is_empty().then_some(out),
            // Only a number or a constant at the very end.
            Progress::More => (repair.stack.is_empty() && repair.end_literal(&mut out)).then_some(out),
        }
    }

    /// Reads on, and writes what is decided.
    pub(super) fn push(&mut self, text: &str, out: &mut String) -> Progress {
        for (at, c) in text.char_indices() {
            // A number at the top ends before what stands behind it.
            let is_number = self.stack.is_empty() && matches!(self.state, State::Literal(_));
            if !self.step(c, out) {
                return Progress::Bad(at);
            }
            if matches!(self.state, State::Done) {
                return Progress::Done(if is_number { at } else { at + c.len_utf8() });
            }
        }
        Progress::More
    }

    /// What was read as a number or constant and is none: it may be put back.
    pub(super) fn take_literal(&mut self) -> String {
        let State::Literal(text) = &mut self.state else { return String::new() };
        let text = std::mem::take(text);
        self.state = State::Value;
        text
    }

    /// Closes what is open.
    pub(super) fn finish(&mut self, out: &mut String) {
        match &mut self.state {
            State::Text { is_key, .. } => out.push_str(if *is_key { "\":null" } else { "\"" }),
            State::Literal(text) => {
                while !text.is_empty() && constant(text).is_none() {
                    text.pop();
                }
                out.push_str(constant(text).unwrap_or("null"));
            }
            State::Colon => out.push_str(":null"),
            State::Value if self.stack.last() != Some(&Frame::Array) => out.push_str("null"),
            State::Value | State::Key | State::AfterValue | State::Done => {}
        }
        while let Some(frame) = self.stack.pop() {
            out.push(if frame == Frame::Object { '}' } else { ']' });
        }
        self.state = State::Done;
    }

    /// Takes one character; false if it cannot stand here.
    fn step(&mut self, c: char, out: &mut String) -> bool {
        match &mut self.state {
            State::Text { .. } => self.in_text(c, out),
            State::Literal(text) if c.is_ascii_alphanumeric() || "+-._".contains(c) => {
                text.push(c);
                text.len() <= LITERAL_BYTES_MAX
            }
            State::Literal(_) => self.end_literal(out) && (self.stack.is_empty() || self.step(c, out)),
            _ if c.is_whitespace() => true,
            State::Value => self.begin_value(c, out),
            State::Key => match c {
                '"' | '\'' => self.begin_text(c, true, out),
                _ => self.close(c, out),
            },
            State::Colon if c == ':' => {
                out.push(':');
                self.state = State::Value;
                true
            }
            State::AfterValue if c == ',' => {
                self.comma = true;
                let is_object = self.stack.last() == Some(&Frame::Object);
                self.state = if is_object { State::Key } else { State::Value };
                true
            }
            State::AfterValue => self.close(c, out),
            State::Colon | State::Done => false,
        }
    }

    fn begin_value(&mut self, c: char, out: &mut String) -> bool {
        match c {
            '{' | '[' => {
                self.write_comma(out);
                out.push(c);
                self.stack.push(if c == '{' { Frame::Object } else { Frame::Array });
                self.state = if c == '{' { State::Key } else { State::Value };
                self.stack.len() <= DEPTH_MAX
            }
            '"' | '\'' => self.begin_text(c, false, out),
            _ if c.is_ascii_alphanumeric() || c == '-' => {
                self.write_comma(out);
                self.state = State::Literal(c.into());
                true
            }
            // An empty array, or a comma before its end; a value is due behind a colon.
            _ => self.stack.last() == Some(&Frame::Array) && self.close(c, out),
        }
    }

    fn begin_text(&mut self, quote: char, is_key: bool, out: &mut String) -> bool {
        self.write_comma(out);
        out.push('"');
        self.state = State::Text { quote, is_key, escape: String::new() };
        true
    }

    fn write_comma(&mut self, out: &mut String) {
        if std::mem::take(&mut self.comma) {
            out.push(',');
        }
    }

    fn close(&mut self, c: char, out: &mut String) -> bool {
        let is_right = match self.stack.last() {
            Some(Frame::Object) => c == '}',
            Some(Frame::Array) => c == ']',
            None => false,
        };
        if is_right {
            self.stack.pop();
            out.push(c);
            self.comma = false;
            self.end_value();
        }
        is_right
    }

    fn end_value(&mut self) {
        self.state = if self.stack.is_empty() { State::Done } else { State::AfterValue };
    }

    fn end_literal(&mut self, out: &mut String) -> bool {
        let State::Literal(text) = &self.state else { return false };
        let Some(strict) = constant(text) else { return false };
        out.push_str(strict);
        self.end_value();
        true
    }

    fn in_text(&mut self, c: char, out: &mut String) -> bool {
        let State::Text { quote, is_key, escape } = &mut self.state else { return false };
        if escape.is_empty() && c == *quote {
            out.push('"');
            if *is_key {
                self.state = State::Colon;
            } else {
                self.end_value();
            }
        } else if escape.is_empty() && c != '\\' {
            push_escaped(c, out);
        } else {
            escape.push(c);
            settle_escape(escape, *quote, out);
            if escape.starts_with(*quote) {
                escape.clear();
                return self.in_text(c, out);
            }
        }
        true
    }
}

/// Writes the escapes that are complete, and leaves the one that is not, or the quote that stands behind it.
fn settle_escape(escape: &mut String, quote: char, out: &mut String) {
    while let Some(c) = escape.chars().next() {
        if c != '\\' {
            // What stood behind a broken escape is text, and only its last character can be the quote.
            if c == quote {
                return;
            }
            push_escaped(c, out);
            escape.drain(..c.len_utf8());
            continue;
        }
        match escape_len(escape) {
            Escape::More => return,
            Escape::Valid(n) => {
                out.push_str(&escape[..n]);
                escape.drain(..n);
            }
            Escape::Lonely => {
                out.push_str("\\ufffd");
                escape.drain(..6);
            }
            Escape::Quote => {
                out.push('\'');
                escape.drain(..2);
            }
            Escape::Unknown => {
                out.push_str("\\\\");
                escape.drain(..1);
            }
        }
    }
}

enum Escape {
    More,
    Valid(usize),
    /// Half of a surrogate pair, 6 bytes.
    Lonely,
    /// An escaped apostrophe, which JSON does not know.
    Quote,
    Unknown,
}

/// What the escape at the start of the text is.
fn escape_len(text: &str) -> Escape {
    let Some(kind) = text[1..].chars().next() else { return Escape::More };
    match kind {
        '"' | '\\' | '/' | 'b' | 'f' | 'n' | 'r' | 't' => return Escape::Valid(2),
        '\'' => return Escape::Quote,
        'u' => {}
        _ => return Escape::Unknown,
    }
    let Some(first) = hex_unit(text) else { return Escape::Unknown };
    match first {
        None => Escape::More,
        Some(0xD800..=0xDBFF) => match text.get(6..) {
            None | Some("" | "\\") => Escape::More,
            Some(next) if next.starts_with("\\u") => match hex_unit(next) {
                Some(None) => Escape::More,
                Some(Some(0xDC00..=0xDFFF)) => Escape::Valid(12),
                _ => Escape::Lonely,
            },
            Some(_) => Escape::Lonely,
        },
        Some(0xDC00..=0xDFFF) => Escape::Lonely,
        Some(_) => Escape::Valid(6),
    }
}

/// The number in `\uXXXX` at the start of the text: `None` if it is not one, `Some(None)` if it is not complete.
fn hex_unit(text: &str) -> Option<Option<u16>> {
    let digits = text.as_bytes().get(2..).unwrap_or_default();
    let digits = &digits[..digits.len().min(4)];
    if !digits.iter().all(u8::is_ascii_hexdigit) {
        return None;
    }
    let digits = std::str::from_utf8(digits).ok()?;
    Some(if digits.len() == 4 { u16::from_str_radix(digits, 16).ok() } else { None })
}

/// A number or a constant as JSON has it.
fn constant(text: &str) -> Option<&str> {
    match text {
        "true" | "True" => Some("true"),
        "false" | "False" => Some("false"),
        "null" | "None" => Some("null"),
        _ => serde_json::from_str::<serde_json::Number>(text).is_ok().then_some(text),
    }
}

/// Text inside the quotes of a JSON string.
pub(super) fn push_json_text(text: &str, out: &mut String) {
    text.chars().for_each(|c| push_escaped(c, out));
}

fn push_escaped(c: char, out: &mut String) {
    match c {
        '"' => out.push_str("\\\""),
        '\\' => out.push_str("\\\\"),
        '\n' => out.push_str("\\n"),
        '\r' => out.push_str("\\r"),
        '\t' => out.push_str("\\t"),
        c if c < ' ' => out.push_str(&format!("\\u{:04x}", u32::from(c))),
        c => out.push(c),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn json_is_made_strict() {
        // Calls would be lost for a comma, or clients get JSON that they cannot read.
        let cases = [
            (r#" {"a": [1, -2.5e3, true], "b": {} } "#, Some(r#"{"a":[1,-2.5e3,true],"b":{}}"#)),
            (
                r#"{'it\'s': 'a "b"', "n": None, "t": True, "f": False}"#,
                Some(r#"{"it's":"a \"b\"","n":null,"t":true,"f":false}"#),
            ),
            ("{\"a\": \"x\ny\tz\u{1}\"}", Some(r#"{"a":"x\ny\tz\u0001"}"#)),
            (
                r#"["\d", "\u00e9\n", "\ud83d\ude00", "\ud83d", "\ude00x", "\u12", "\ud83d\n"]"#,
                Some(r#"["\\d","\u00e9\n","\ud83d\ude00","\ufffd","\ufffdx","\\u12","\ufffd\n"]"#),
            ),
            (r#"[1, 2,]"#, Some("[1,2]")),
            (r#"{"a": 1,}"#, Some(r#"{"a":1}"#)),
            ("17", Some("17")),
            (" None ", Some("null")),
            ("\"x\"", Some("\"x\"")),
            ("12345678901234567890123", Some("12345678901234567890123")),
            ("[,]", None),
            ("[1,,2]", None),
            ("{\"a\":}", None),
            ("{\"a\" 1}", None),
            ("{a: 1}", None),
            ("01", None),
            ("[1}", None),
            ("1 2", None),
            ("[1", None),
            ("", None),
        ];
        for (text, expected) in cases {
            assert_eq!(JsonRepair::whole(text).as_deref(), expected, "{text}");
        }
        assert_eq!(JsonRepair::whole(&"[".repeat(200)), None);
    }

    #[test]
    fn cut_json_is_closed() {
        // A call that was cut off, or goes on with something else, would be JSON that clients cannot read.
        let text = r#"{"a": [1, -2.5e3, true, {"k": "v\ud83d\ude00\n"}], 'b': None, "c": {"d": 'e'}}"#;
        for (at, _) in text.char_indices() {
            let (mut out, mut repair) = (String::new(), JsonRepair::new());
            assert_eq!(repair.push(&text[..at], &mut out), Progress::More);
            for next in ["", "<", "}", "]", ",", ":"] {
                let (mut out, mut repair) = (String::new(), JsonRepair::new());
                let cut = [&text[..at], next].concat();
                repair.push(&cut, &mut out);
                repair.finish(&mut out);
                assert!(serde_json::from_str::<serde_json::Value>(&out).is_ok(), "{cut} -> {out}");
            }
        }
    }
}
