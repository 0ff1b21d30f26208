//! What the calls of an answer are worth: whether they parse, fit their schemas, and are the expected ones.

use generate::{CallEvent, Event, Tool};
use serde::Deserialize;
use serde_json::{Map, Value};

use crate::answer::Said;

/// What begins a call; in an answer's text it is one that could not be read.
const CALL: &str = "<tool_call>";

/// A call as it should be.
#[derive(Debug, Deserialize)]
pub(super) struct Wanted {
    name: String,
    arguments: Map<String, Value>,
}

/// An answer as it was read.
#[derive(Default)]
pub(super) struct Reply {
    said: Said,
    n_incomplete: usize,
    /// A limit ended it, not the model.
    pub(super) is_cut: bool,
}

/// What of one answer is counted.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Verdict {
    /// Calls, those included that broke off or could not be read.
    pub(super) n_call: usize,
    /// Of these: as JSON arguments of a declared tool.
    pub(super) n_parsed: usize,
    /// Of these: as the tool's schema wants them.
    pub(super) n_valid: usize,
    /// Exactly the expected calls, in any order; `None`: nobody said what is expected.
    pub(super) is_exact: Option<bool>,
    pub(super) is_cut: bool,
}

impl Reply {
    pub(super) fn take(&mut self, event: Event<'_>) {
        self.n_incomplete +=
            usize::from(matches!(event, Event::Call(CallEvent::End { complete: false, .. })));
        self.said.take(event);
    }
}

/// # Errors
/// A tool's schema is none.
pub(super) fn judge(reply: &Reply, tools: &[Tool], expected: Option<&[Wanted]>) -> Result<Verdict, String> {
    let mut made = Vec::new();
    let mut n_valid = 0;
    for call in &reply.said.calls {
        let name = call.function.name.as_str();
        let arguments = arguments(&call.function.arguments);
        n_valid += usize::from(fits(&arguments, name, tools)?);
        made.push((name, arguments));
    }
    let n_parsed = made.len();
    let n_call = n_parsed + reply.n_incomplete + reply.said.text.matches(CALL).count();
    let is_exact = expected.map(|expected| n_call == n_parsed && are_same(made, expected));
    Ok(Verdict { n_call, n_parsed, n_valid, is_exact, is_cut: reply.is_cut })
}

/// The arguments of a call that was read, which are a JSON object.
fn arguments(arguments: &Value) -> Value {
    match arguments {
        Value::String(json) => serde_json::from_str(json).unwrap_or_default(),
        other => other.clone(),
    }
}

fn fits(arguments: &Value, name: &str, tools: &[Tool]) -> Result<bool, String> {
    let schema = tools.iter().find(|tool| tool.name == name).and_then(|tool| tool.parameters.as_ref());
    let Some(schema) = schema else { return Ok(arguments.is_object()) };
    let validator = jsonschema::validator_for(schema);
    let validator =
        validator.map_err(|error| format!("the parameters of {name:?} are no JSON schema: {error}"))?;
    Ok(arguments.is_object() && validator.is_valid(arguments))
}

fn are_same(mut made: Vec<(&str, Value)>, expected: &[Wanted]) -> bool {
    for wanted in expected {
        let is_wanted = |(name, arguments): &(&str, Value)| {
            *name == wanted.name && arguments.as_object().is_some_and(|a| same_fields(a, &wanted.arguments))
        };
        match made.iter().position(is_wanted) {
            Some(i) => drop(made.swap_remove(i)),
            None => return false,
        }
    }
    made.is_empty()
}

/// Whether two JSON values mean the same: 3 and 3.0 are one number.
fn same(a: &Value, b: &Value) -> bool {
    match (a, b) {
        (Value::Number(a), Value::Number(b)) => {
            a == b || a.as_f64() == b.as_f64() && a.is_f64() != b.is_f64()
        }
        (Value::Array(a), Value::Array(b)) => a.len() == b.len() && a.iter().zip(b).all(|(a, b)| same(a, b)),
        (Value::Object(a), Value::Object(b)) => same_fields(a, b),
        (a, b) => a == b,
    }
}

fn same_fields(a: &Map<String, Value>, b: &Map<String, Value>) -> bool {
    a.len() == b.len() && a.iter().all(|(key, a)| b.get(key).is_some_and(|b| same(a, b)))
}

#[cfg(test)]
mod tests {
    use generate::{AnswerReader, OutputSpec};
    use serde_json::json;

    use super::*;

    fn verdict(text: &str, expected: Option<Value>) -> Verdict {
        let parameters = json!({ "type": "object", "properties": { "n": { "type": "integer", "maximum": 9 },
            "x": { "type": "number" }, "to": { "type": "array" } }, "required": ["n"] });
        let tools = vec![Tool::from_json(&json!({ "name": "f", "parameters": parameters })).unwrap()];
        let mut reader =
            AnswerReader::new(&OutputSpec { tools: tools.clone().into(), ..OutputSpec::default() });
        let mut reply = Reply::default();
        reader.push(text, &mut |event| reply.take(event));
        reader.finish(&mut |event| reply.take(event));
        let expected: Option<Vec<Wanted>> = expected.map(|calls| serde_json::from_value(calls).unwrap());
        judge(&reply, &tools, expected.as_deref()).unwrap()
    }

    fn call(arguments: &[(&str, &str)]) -> String {
        let parameter = |(key, value): &(&str, &str)| format!("<parameter={key}>\n{value}\n</parameter>\n");
        let parameters: String = arguments.iter().map(parameter).collect();
        format!("<tool_call>\n<function=f>\n{parameters}</function>\n</tool_call>")
    }

    /// A bad call would count as a good one, or the other way round.
    #[test]
    fn calls_are_counted_for_what_they_are() {
        let (three, ten) = (call(&[("n", "3")]), call(&[("n", "10")]));
        let f = |arguments: Value| json!({ "name": "f", "arguments": arguments });
        let cases = [
            // text, expected; calls, parsed, valid, exact
            ("No.".to_owned(), json!([]), (0, 0, 0), true),
            ("No.".to_owned(), json!([f(json!({ "n": 3 }))]), (0, 0, 0), false),
            (three.clone(), json!([f(json!({ "n": 3 }))]), (1, 1, 1), true),
            (three.clone(), json!([]), (1, 1, 1), false),
            (three.clone(), json!([f(json!({ "n": 4 }))]), (1, 1, 1), false),
            (ten.clone(), json!([f(json!({ "n": 10 }))]), (1, 1, 0), true),
            (
                format!("{ten}\n{three}"),
                json!([f(json!({ "n": 3 })), f(json!({ "n": 10 }))]),
                (2, 2, 1),
                true,
            ),
            (format!("{three}\n{three}"), json!([f(json!({ "n": 3 }))]), (2, 2, 2), false),
            (
                call(&[("n", "1"), ("x", "3"), ("to", "[1, {\"a\": 2.0}]")]),
                json!([f(json!({ "to": [1.0, { "a": 2 }], "x": 3.0, "n": 1 }))]),
                (1, 1, 1),
                true,
            ),
            // A forgotten tag is added, a missing end is not.
            (three.replace("</parameter>", ""), json!([f(json!({ "n": 3 }))]), (1, 1, 1), true),
            (three[..three.len() / 2].to_owned(), json!([f(json!({ "n": 3 }))]), (1, 0, 0), false),
            (three.replace("=f>", "=g>"), json!([]), (1, 0, 0), false),
        ];
        for (text, expected, (n_call, n_parsed, n_valid), is_exact) in cases {
            let wanted = Verdict { n_call, n_parsed, n_valid, is_exact: Some(is_exact), is_cut: false };
            assert_eq!(verdict(&text, Some(expected)), wanted, "{text}");
        }
        assert_eq!(verdict(&three, None).is_exact, None);
    }
}
