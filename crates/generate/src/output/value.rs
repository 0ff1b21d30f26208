//! Arguments written as bare text, with the type that the tool's schema gives them.
//!
//! * Only text fits: it is text, byte for byte, and comes out piece by piece.
//! * Text and other types fit, or nobody said: a whole number, number, constant, list or object in the way of JSON, or
//!   a constant in Python's spelling, is that, if its type fits. Everything else is text. One of the schema's own
//!   words (`enum`) is text always.
//! * No text fits: the same, and lists and objects may be written Python's way. What cannot be read is text
//!   nevertheless, so that the client sees what the model wrote.

use serde_json::Value;

use super::repair::{JsonRepair, Progress, push_json_text};

/// Schemas that are looked at to find a type; behind that, everything fits.
const N_SCHEMA_MAX: usize = 500;
/// Values of lists of values that count as much as a schema.
const N_VALUE_A_SCHEMA: usize = 100;
/// No number or constant is longer.
const SCALAR_BYTES_MAX: usize = 400;

const TEXT: u8 = 1;
const INTEGER: u8 = 2;
const NUMBER: u8 = 4;
const BOOLEAN: u8 = 8;
const NULL: u8 = 16;
const ARRAY: u8 = 32;
const OBJECT: u8 = 64;
const ANY: u8 = 127;

/// What a parameter may be.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Kind {
    types: u8,
    /// Texts that the schema lists.
    words: Vec<String>,
}

impl Kind {
    /// Of the parameter `key` of a tool.
    pub(super) fn of(parameters: Option<&Value>, key: &str) -> Self {
        let mut kind = Self { types: ANY, words: Vec::new() };
        if let Some(root) = parameters {
            let mut reader = SchemaReader { root, n_left: N_SCHEMA_MAX, words: &mut kind.words };
            if let Some(schema) = reader.property(root, key) {
                let types = reader.types(schema);
                kind.types = if types == 0 { ANY } else { types };
            }
        }
        kind
    }

    fn fits(&self, types: u8) -> bool {
        self.types & types != 0
    }
}

/// Whether the schema names this parameter. `None`: it names none at all.
pub(super) fn is_declared(parameters: Option<&Value>, key: &str) -> Option<bool> {
    let names = parameters?.get("properties")?.as_object().filter(|names| !names.is_empty())?;
    Some(names.contains_key(key))
}

struct SchemaReader<'a> {
    root: &'a Value,
    n_left: usize,
    words: &'a mut Vec<String>,
}

impl<'a> SchemaReader<'a> {
    /// Counts, so that schemas which refer to each other come to an end.
    fn may_look(&mut self) -> bool {
        let may = self.n_left > 0;
        self.n_left = self.n_left.saturating_sub(1);
        may
    }

    fn target(&self, schema: &Value) -> Option<&'a Value> {
        let path = schema.get("$ref")?.as_str()?;
        self.root.pointer(path.strip_prefix('#')?)
    }

    /// The schema of a parameter.
    fn property(&mut self, schema: &'a Value, key: &str) -> Option<&'a Value> {
        if !self.may_look() {
            return None;
        }
        let direct = schema.get("properties").and_then(|properties| properties.get(key));
        if direct.is_some() {
            return direct;
        }
        let parts = ["allOf", "anyOf", "oneOf"].iter().filter_map(|name| schema.get(*name)?.as_array());
        let parts: Vec<&Value> = parts.flatten().chain(self.target(schema)).collect();
        let found = parts.into_iter().find_map(|part| self.property(part, key));
        found.or_else(|| schema.get("additionalProperties").filter(|schema| schema.is_object()))
    }

    /// Types that fit a schema.
    fn types(&mut self, schema: &'a Value) -> u8 {
        if !self.may_look() {
            return ANY;
        }
        let mut types = ANY;
        if let Some(target) = self.target(schema) {
            types &= self.types(target);
        }
        match schema.get("type") {
            Some(Value::String(name)) => types &= named(name),
            Some(Value::Array(names)) => {
                types &= names.iter().filter_map(Value::as_str).fold(0, |all, name| all | named(name));
            }
            _ => {}
        }
        let one = schema.get("const").map(std::slice::from_ref);
        if let Some(values) = schema.get("enum").and_then(Value::as_array).map(Vec::as_slice).or(one) {
            self.n_left = self.n_left.saturating_sub(values.len() / N_VALUE_A_SCHEMA);
            types &= values.iter().fold(0, |all, value| all | type_of(value));
            self.words.extend(values.iter().filter_map(Value::as_str).map(str::to_owned));
        }
        for name in ["anyOf", "oneOf"] {
            if let Some(parts) = schema.get(name).and_then(Value::as_array) {
                types &= parts.iter().fold(0, |all, part| all | self.types(part));
            }
        }
        for part in schema.get("allOf").and_then(Value::as_array).into_iter().flatten() {
            types &= self.types(part);
        }
        if types == ANY && schema.get("properties").is_some() {
            types = OBJECT;
        } else if types == ANY && (schema.get("items").is_some() || schema.get("prefixItems").is_some()) {
            types = ARRAY;
        }
        if schema.get("nullable") == Some(&Value::Bool(true)) { types | NULL } else { types }
    }
}

fn named(name: &str) -> u8 {
    match name {
        "string" => TEXT,
        "integer" => INTEGER,
        "number" => NUMBER | INTEGER,
        "boolean" => BOOLEAN,
        "null" => NULL,
        "array" => ARRAY,
        "object" => OBJECT,
        _ => ANY,
    }
}

fn type_of(value: &Value) -> u8 {
    match value {
        Value::Null => NULL,
        Value::Bool(_) => BOOLEAN,
        Value::Number(number) if number.is_f64() => NUMBER,
        Value::Number(_) => INTEGER,
        Value::String(_) => TEXT,
        Value::Array(_) => ARRAY,
        Value::Object(_) => OBJECT,
    }
}

/// Writes one value as JSON.
pub(super) struct ValueWriter {
    kind: Kind,
    /// `None`: it is text, and what there was of it is written.
    held: Option<String>,
}

impl ValueWriter {
    pub(super) fn new(kind: Kind) -> Self {
        Self { kind, held: Some(String::new()) }
    }

    /// Takes more of the text.
    pub(super) fn push(&mut self, text: &str, out: &mut String) {
        match &mut self.held {
            None => push_json_text(text, out),
            Some(held) => {
                held.push_str(text);
                if self.kind.fits(TEXT) && !may_be_other(held, &self.kind) {
                    out.push('"');
                    push_json_text(held, out);
                    self.held = None;
                }
            }
        }
    }

    /// The end of the text. `is_cut`: there should have been more of it.
    pub(super) fn finish(self, is_cut: bool, out: &mut String) {
        let Some(held) = self.held else { return out.push('"') };
        let is_word = self.kind.words.contains(&held);
        match other(&held, &self.kind, is_cut).filter(|_| !is_word) {
            Some(json) => out.push_str(&json),
            None => {
                out.push('"');
                push_json_text(&held, out);
                out.push('"');
            }
        }
    }
}

/// Whether the text may yet become something else than text.
fn may_be_other(text: &str, kind: &Kind) -> bool {
    let lead = text.trim_start();
    let is_short = text.len() <= SCALAR_BYTES_MAX;
    let begins = |words: &[&str]| words.iter().any(|word| word.starts_with(lead.trim_end()));
    let is_number = || lead.trim_end().chars().all(|c| c.is_ascii_digit() || "+-.eE".contains(c));
    kind.fits(OBJECT) && (lead.is_empty() || lead.starts_with('{'))
        || kind.fits(ARRAY) && (lead.is_empty() || lead.starts_with('['))
        || is_short && kind.fits(NULL) && begins(&["null", "None"])
        || is_short && kind.fits(BOOLEAN) && begins(&["true", "false", "True", "False"])
        || is_short && kind.fits(INTEGER | NUMBER) && is_number()
}

/// The value as JSON, if it is one that is not text and fits.
fn other(text: &str, kind: &Kind, is_cut: bool) -> Option<String> {
    let text = text.trim();
    if !matches!(text.chars().next()?, '{' | '[') {
        let json = JsonRepair::whole(text)?;
        let is_whole = !json.contains(['.', 'e', 'E']);
        return match json.as_bytes()[0] {
            b'"' => None,
            b't' | b'f' => kind.fits(BOOLEAN).then_some(json),
            b'n' => kind.fits(NULL).then_some(json),
            _ if kind.fits(NUMBER) || is_whole && kind.fits(INTEGER) => Some(json),
            _ => whole_number(&json).filter(|_| kind.fits(INTEGER)),
        };
    }
    if !kind.fits(if text.starts_with('{') { OBJECT } else { ARRAY }) {
        return None;
    }
    if kind.fits(TEXT) {
        // What is not quite JSON is rather text.
        serde_json::from_str::<serde::de::IgnoredAny>(text).ok()?;
    }
    let (mut json, mut repair) = (String::new(), JsonRepair::new());
    match repair.push(text, &mut json) {
        Progress::Done(n) if n == text.len() => Some(json),
        Progress::More if is_cut => {
            repair.finish(&mut json);
            Some(json)
        }
        _ => None,
    }
}

/// `3.0` as a whole number.
fn whole_number(json: &str) -> Option<String> {
    let x: f64 = json.parse().ok()?;
    (x.fract() == 0.0 && x.abs() < 9e15).then(|| format!("{x:.0}"))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// A small schema that refers to a long list many times would take all memory.
    #[test]
    fn long_lists_are_not_read_again_and_again() {
        let words: Vec<String> = (0..10_000).map(|i| format!("word {i}")).collect();
        let all = vec![json!({ "$ref": "#/$defs/words" }); 400];
        let schema =
            json!({ "properties": { "x": { "anyOf": all } }, "$defs": { "words": { "enum": words } } });
        let kind = Kind::of(Some(&schema), "x");
        assert!((10_000..100_000).contains(&kind.words.len()), "{}", kind.words.len());
        assert!(kind.fits(TEXT));
    }
}
