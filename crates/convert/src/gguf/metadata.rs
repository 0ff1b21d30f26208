//! Metadata by key, with errors that name the key.

use std::collections::BTreeMap;
use std::path::PathBuf;

use super::value::{Texts, Value};
use crate::ConvertError;

/// Larger sizes are a damaged or hostile file; closer bounds are `ModelConfig::check`'s.
const SIZE_MAX: u64 = 1 << 24;

/// The metadata of a file.
pub(super) struct Metadata {
    /// For messages.
    pub(super) path: PathBuf,
    values: BTreeMap<String, Value>,
    /// What keys of the architecture begin with.
    prefix: String,
}

impl Metadata {
    pub(super) fn new(path: PathBuf, values: BTreeMap<String, Value>) -> Self {
        let prefix = match values.get("general.architecture").and_then(Value::as_str) {
            Some(name) => format!("{name}."),
            None => String::new(),
        };
        Self { path, values, prefix }
    }

    /// The architecture, as files call it.
    pub(super) fn architecture(&self) -> Result<&str, ConvertError> {
        self.text("general.architecture")?.ok_or_else(|| self.missing("general.architecture"))
    }

    /// The whole name of a key of the architecture.
    pub(super) fn key(&self, name: &str) -> String {
        format!("{}{name}", self.prefix)
    }

    pub(super) fn get(&self, key: &str) -> Option<&Value> {
        self.values.get(key)
    }

    pub(super) fn text(&self, key: &str) -> Result<Option<&str>, ConvertError> {
        self.typed(key, "a text", Value::as_str)
    }

    pub(super) fn bool(&self, key: &str) -> Result<Option<bool>, ConvertError> {
        self.typed(key, "true or false", Value::as_bool)
    }

    /// Any finite number.
    pub(super) fn float(&self, key: &str) -> Result<Option<f64>, ConvertError> {
        self.typed(key, "a finite number", |v| v.as_f64().filter(|x| x.is_finite()))
    }

    pub(super) fn integer(&self, key: &str) -> Result<Option<u64>, ConvertError> {
        self.typed(key, "an integer from 0 on", Value::as_u64)
    }

    pub(super) fn texts(&self, key: &str) -> Result<Option<&Texts>, ConvertError> {
        self.typed(key, "an array of texts", |v| if let Value::Texts(texts) = v { Some(texts) } else { None })
    }

    /// A number above zero of key `name` of the architecture.
    pub(super) fn positive(&self, name: &str) -> Result<f64, ConvertError> {
        let key = self.key(name);
        match self.float(&key)? {
            Some(x) if x > 0.0 => Ok(x),
            Some(x) => Err(self.invalid(format!("{key} is {x}, expected a number above zero"))),
            None => Err(self.missing(&key)),
        }
    }

    /// A size above zero of key `name` of the architecture.
    pub(super) fn size(&self, name: &str) -> Result<usize, ConvertError> {
        self.optional_size(name)?.ok_or_else(|| self.missing(&self.key(name)))
    }

    pub(super) fn optional_size(&self, name: &str) -> Result<Option<usize>, ConvertError> {
        let key = self.key(name);
        let Some(value) = self.get(&key) else { return Ok(None) };
        Ok(Some(self.to_size(&key, value)?))
    }

    /// A size that some files have once a layer: zeros are layers without it, all others must be the same.
    pub(super) fn size_of_layers(&self, name: &str) -> Result<usize, ConvertError> {
        let key = self.key(name);
        let Some(Value::Numbers(numbers)) = self.get(&key) else { return self.size(name) };
        let mut sizes = numbers.iter().filter(|v| v.as_u64() != Some(0));
        let Some(first) = sizes.next() else {
            return Err(self.invalid(format!("{key} has no number above zero")));
        };
        match sizes.find(|other| *other != first) {
            None => self.to_size(&key, &first),
            Some(other) => Err(self
                .unsupported(format!("{key}: layers that differ ({first} and {other}) are not supported"))),
        }
    }

    fn to_size(&self, key: &str, value: &Value) -> Result<usize, ConvertError> {
        match value.as_u64() {
            Some(n @ 1..=SIZE_MAX) => Ok(n as usize),
            _ => Err(self.not(key, value, &format!("an integer from 1 to {SIZE_MAX}"))),
        }
    }

    fn typed<'a, T: 'a>(
        &'a self,
        key: &str,
        expected: &str,
        read: impl Fn(&'a Value) -> Option<T>,
    ) -> Result<Option<T>, ConvertError> {
        match self.get(key) {
            None => Ok(None),
            Some(value) => read(value).map(Some).ok_or_else(|| self.not(key, value, expected)),
        }
    }

    fn not(&self, key: &str, value: &Value, expected: &str) -> ConvertError {
        self.invalid(format!("{key} is {value}, expected {expected}"))
    }

    pub(super) fn missing(&self, key: &str) -> ConvertError {
        self.invalid(format!("metadata key {key} is missing"))
    }

    pub(super) fn invalid(&self, why: String) -> ConvertError {
        ConvertError::Config { path: self.path.clone(), why }
    }

    pub(super) fn unsupported(&self, what: String) -> ConvertError {
        ConvertError::Unsupported { path: self.path.clone(), what }
    }
}
