//! Tools as clients declare them, and which of them an answer may or must call.

use serde_json::{Map, Value, json};

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
    /// The declaration as the template prints it: `{"type": "function", "function": {"name", "description",
    /// "parameters"}}`. The schema is the client's own, key order kept.
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

/// Names are short words; templates and grammars print them into the calls' own syntax.
const NAME_BYTES_MAX: usize = 256;

impl CallFormat {
    /// What a call begins with.
    pub(crate) const OPEN: &str = "<tool_call>";
    /// What a call ends with.
    pub(crate) const CLOSE: &str = "</tool_call>";
}

impl Tool {
    /// From any of these forms; other keys are not passed on, so that a tool reads the same whoever declares it:
    ///
    /// * `{"type": "function", "function": {"name", "description", "parameters", "strict"}}` (OpenAI chat)
    /// * `{"type": "function", "name", "description", "parameters", "strict"}` (OpenAI responses)
    /// * `{"name", "description", "input_schema"}` (Anthropic)
    /// * the inner object of the first alone
    ///
    /// # Errors
    /// It is not a function, has no usable name, or its parameters are not a schema.
    pub fn from_json(declaration: &Value) -> Result<Self, GenerateError> {
        let bad = |why: String| GenerateError::Tool { why };
        let function = declaration.get("function").unwrap_or(declaration);
        let kind = declaration.get("type").and_then(Value::as_str).unwrap_or("function");
        let anthropic = ["input_schema", "inputSchema"].iter().find_map(|key| function.get(*key));
        // Anthropic's word for an ordinary tool is `custom`.
        if kind != "function" && !(kind == "custom" && anthropic.is_some()) {
            return Err(bad(format!("its type is {kind:?}, only functions are supported")));
        }
        let name = function.get("name").and_then(Value::as_str).filter(|name| !name.trim().is_empty());
        let name = name.ok_or_else(|| bad("it has no name".into()))?;
        let is_odd = |c: char| c.is_control() || "<>\"'".contains(c);
        if name.len() > NAME_BYTES_MAX || name.contains(is_odd) || name.trim() != name {
            return Err(bad(format!(
                "its name {name:?} cannot be written in a call: use letters, digits, _ and -"
            )));
        }
        let schema = anthropic.or(function.get("parameters")).filter(|schema| !schema.is_null());
        if let Some(schema) = schema.filter(|schema| !schema.is_object()) {
            return Err(bad(format!("the parameters of {name:?} are not a JSON schema but {schema}")));
        }
        Ok(Self {
            name: name.to_owned(),
            parameters: schema.cloned(),
            strict: function.get("strict").and_then(Value::as_bool).unwrap_or(false),
            declaration: canonical(name, function.get("description"), schema),
        })
    }
}

/// How every tool is declared to the model.
fn canonical(name: &str, description: Option<&Value>, schema: Option<&Value>) -> Value {
    let mut function = Map::new();
    function.insert("name".into(), name.into());
    if let Some(text) = description.and_then(Value::as_str) {
        function.insert("description".into(), text.into());
    }
    let schema = schema.filter(|schema| schema.as_object().is_some_and(|schema| !schema.is_empty()));
    let nothing = || json!({ "type": "object", "properties": {} });
    function.insert("parameters".into(), schema.cloned().unwrap_or_else(nothing));
    json!({ "type": "function", "function": function })
}
