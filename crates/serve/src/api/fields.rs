//! Fields of a JSON object, read with errors that name them. `null` is the same as nothing.

use serde_json::{Map, Value};

use crate::error::ApiError;

/// An object of a request. Fields that nobody asks for are ignored.
#[derive(Clone, Debug)]
pub(crate) struct Fields<'a> {
    map: &'a Map<String, Value>,
    /// What the object is in the request, with a final dot; empty for the whole request.
    prefix: String,
}

impl<'a> Fields<'a> {
    pub(crate) fn of(map: &'a Map<String, Value>) -> Self {
        Self { map, prefix: String::new() }
    }

    /// An object that stands somewhere in a request.
    pub(crate) fn at(path: &str, value: &'a Value) -> Result<Self, ApiError> {
        match value {
            Value::Object(map) => Ok(Self { map, prefix: format!("{path}.") }),
            other => Err(wrong(path, "an object", other)),
        }
    }

    /// The name of a field as errors have it.
    pub(crate) fn path(&self, name: &str) -> String {
        format!("{}{name}", self.prefix)
    }

    /// An error about a field.
    pub(crate) fn error(&self, name: &str, what: impl std::fmt::Display) -> ApiError {
        ApiError::field(self.path(name), what)
    }

    pub(crate) fn value(&self, name: &str) -> Option<&'a Value> {
        self.map.get(name).filter(|value| !value.is_null())
    }

    fn read<T>(
        &self,
        name: &str,
        expected: &str,
        read: impl FnOnce(&'a Value) -> Option<T>,
    ) -> Result<Option<T>, ApiError> {
        let Some(value) = self.value(name) else { return Ok(None) };
        read(value).map(Some).ok_or_else(|| wrong(&self.path(name), expected, value))
    }

    pub(crate) fn bool(&self, name: &str) -> Result<Option<bool>, ApiError> {
        self.read(name, "true or false", Value::as_bool)
    }

    pub(crate) fn str(&self, name: &str) -> Result<Option<&'a str>, ApiError> {
        self.read(name, "a string", Value::as_str)
    }

    pub(crate) fn f32(&self, name: &str) -> Result<Option<f32>, ApiError> {
        self.read(name, "a number", |value| value.as_f64().map(|x| x as f32))
    }

    /// A whole number; `3.0` is one, as some clients write them.
    pub(crate) fn i64(&self, name: &str) -> Result<Option<i64>, ApiError> {
        self.read(name, "a whole number", |value| {
            let whole = |x: f64| (x.fract() == 0.0 && x.abs() < 9e15).then_some(x as i64);
            value.as_i64().or_else(|| value.as_f64().and_then(whole))
        })
    }

    /// A whole number from 0 on.
    pub(crate) fn count(&self, name: &str) -> Result<Option<usize>, ApiError> {
        let Some(n) = self.i64(name)? else { return Ok(None) };
        usize::try_from(n).map(Some).map_err(|_| self.error(name, format!("is {n}, it must be 0 or more")))
    }

    /// A number of tokens; `None` for nothing and for -1, which means that there is no limit.
    pub(crate) fn limit(&self, name: &str) -> Result<Option<usize>, ApiError> {
        match self.i64(name)? {
            None | Some(-1) => Ok(None),
            Some(n) => usize::try_from(n)
                .map(Some)
                .map_err(|_| self.error(name, format!("is {n}, it must be 0 or more, or -1 for no limit"))),
        }
    }

    pub(crate) fn array(&self, name: &str) -> Result<Option<&'a [Value]>, ApiError> {
        self.read(name, "an array", |value| value.as_array().map(Vec::as_slice))
    }

    pub(crate) fn object(&self, name: &str) -> Result<Option<&'a Map<String, Value>>, ApiError> {
        self.read(name, "an object", Value::as_object)
    }

    /// The fields of an object in a field.
    pub(crate) fn inner(&self, name: &str) -> Result<Option<Fields<'a>>, ApiError> {
        self.value(name).map(|value| Fields::at(&self.path(name), value)).transpose()
    }
}

/// A value of another type than expected. The value is not repeated: it may be long, or private.
pub(crate) fn wrong(path: &str, expected: &str, got: &Value) -> ApiError {
    let got = match got {
        Value::Null => "null",
        Value::Bool(_) => "a boolean",
        Value::Number(_) => "a number",
        Value::String(_) => "a string",
        Value::Array(_) => "an array",
        Value::Object(_) => "an object",
    };
    ApiError::field(path, format!("must be {expected}, not {got}"))
}
