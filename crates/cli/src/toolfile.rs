//! Tools that a user declares in a JSON file, and JSON schemas.

use std::path::Path;

use generate::Tool;
use serde_json::{Value, json};

use crate::attach::read_bounded;
use crate::error::CliError;

const FILE_BYTES_MAX: u64 = 4 << 20;
/// Declarations are part of every prompt.
const N_TOOL_MAX: usize = 256;

/// Declarations from a file: an array in the form of the OpenAI API, or one of its objects; functions may come without
/// the object around them.
///
/// # Errors
/// The file cannot be read, is not of that form, or declares a name twice.
pub(crate) fn tools(path: &Path) -> Result<Vec<Tool>, CliError> {
    parse(&json(path)?).map_err(|why| CliError::Input { path: path.to_owned(), why })
}

/// A JSON schema from a file.
///
/// # Errors
/// The file cannot be read or is not JSON, or no schema.
pub(crate) fn schema(path: &Path) -> Result<Value, CliError> {
    let schema = json(path)?;
    if schema.is_object() || schema.is_boolean() {
        return Ok(schema);
    }
    Err(CliError::Input { path: path.to_owned(), why: "is not a JSON schema, which is an object".into() })
}

fn json(path: &Path) -> Result<Value, CliError> {
    let bytes = read_bounded(path, FILE_BYTES_MAX)?;
    serde_json::from_slice(&bytes)
        .map_err(|error| CliError::Input { path: path.to_owned(), why: format!("is not JSON: {error}") })
}

fn parse(json: &Value) -> Result<Vec<Tool>, String> {
    let one = std::slice::from_ref(json);
    let declarations = json.as_array().map_or(one, Vec::as_slice);
    if N_TOOL_MAX < declarations.len() {
        return Err(format!("declares {} tools, at most {N_TOOL_MAX} are allowed", declarations.len()));
    }
    let mut tools: Vec<Tool> = Vec::with_capacity(declarations.len());
    for (tool_idx, declaration) in declarations.iter().enumerate() {
        let tool = tool(declaration).map_err(|why| format!("tool {tool_idx}: {why}"))?;
        if tools.iter().any(|other| other.name == tool.name) {
            return Err(format!("tool {tool_idx}: {:?} is declared twice", tool.name));
        }
        tools.push(tool);
    }
    if tools.is_empty() { Err("declares no tools".into()) } else { Ok(tools) }
}

/// One tool, in the form that templates expect.
pub(crate) fn tool(declaration: &Value) -> Result<Tool, String> {
    if !declaration.is_object() {
        return Err("is not an object like {\"type\": \"function\", \"function\": {\"name\": …}}".into());
    }
    let wrapped = match declaration.get("function") {
        Some(_) => declaration.clone(),
        None => json!({ "type": "function", "function": declaration }),
    };
    Tool::from_json(&wrapped).map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A common form of declaring tools would be refused, or tools would be mixed up.
    #[test]
    fn all_usual_forms_are_read() {
        let function = json!({ "name": "f", "parameters": { "type": "object" } });
        let wrapped = json!({ "type": "function", "function": function });
        for form in [json!([wrapped]), json!([function]), wrapped.clone(), function.clone()] {
            let tools = parse(&form).unwrap();
            assert_eq!((tools[0].name.as_str(), &tools[0].declaration), ("f", &wrapped), "{form}");
        }
    }

    /// A mistake in the file would be found out in the middle of a conversation, or never.
    #[test]
    fn other_files_are_refused() {
        let cases = [
            (json!([]), "no tools"),
            (json!("f"), "not an object"),
            (json!([{ "name": "f" }, { "name": "f" }]), "tool 1: \"f\" is declared twice"),
            (json!([{ "type": "function", "function": {} }]), "tool 0:"),
            (json!([{ "description": "x" }]), "tool 0:"),
            (Value::from(vec![json!({ "name": "f" }); N_TOOL_MAX + 1]), "at most"),
        ];
        for (form, why) in cases {
            let error = parse(&form).unwrap_err();
            assert!(error.contains(why), "{error}");
        }
    }
}
