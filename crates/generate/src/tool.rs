//! Tools as clients declare them, and which of them an answer may or must call.

use serde_json::Value;

use crate::error::GenerateError;

/// A function that the model may call.
#[derive(Clone, Debug, PartialEq)]
pub struct Tool {
    /// Its name.
    pub name: String,
    /// JSON schema of its arguments; `None`: it has none, or nobody said.
    pub parameters: Option<Value>,
    /// Arguments must match the schema: generation is constrained to it.
    pub strict: bool,
    /// The declaration as the template prints it, key order kept: `{"type": "function", "function": {…}}`.
    pub declaration: Value,
}

/// Which tools an answer calls.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum ToolChoice {
    /// The model decides.
    #[default]
    Auto,
    /// None is called.
    None,
    /// At least one is called.
    Required,
    /// This one is called.
    Named(String),
}

/// How a model writes calls, which its chat template shows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum CallFormat {
    /// `<tool_call>\n<function=NAME>\n<parameter=KEY>\nVALUE\n</parameter>\n</function>\n</tool_call>` (Qwen3.5,
    /// Qwen3-Coder)
    #[default]
    Xml,
    /// `<tool_call>\n{"name": …, "arguments": {…}}\n</tool_call>` (Qwen3, Qwen3-Next)
    Json,
}

impl CallFormat {
    /// What a call begins with.
    pub(crate) const OPEN: &str = "<tool_call>";
    /// What a call ends with.
    pub(crate) const CLOSE: &str = "</tool_call>";
}

impl Tool {
    /// From the OpenAI form, `{"type": "function", "function": {"name", "description", "parameters", "strict"}}`, or
    /// the inner object alone.
    ///
    /// # Errors
    /// There is no name.
    pub fn from_json(declaration: &Value) -> Result<Self, GenerateError> {
        let function = declaration.get("function").unwrap_or(declaration);
        let name = function.get("name").and_then(Value::as_str).filter(|name| !name.is_empty());
        let name = name.ok_or_else(|| GenerateError::Tool { why: "it has no name".into() })?;
        Ok(Self {
            name: name.to_owned(),
            parameters: function.get("parameters").filter(|schema| !schema.is_null()).cloned(),
            strict: function.get("strict").and_then(Value::as_bool).unwrap_or(false),
            declaration: declaration.clone(),
        })
    }
}
