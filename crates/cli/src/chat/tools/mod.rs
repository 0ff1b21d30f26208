//! Tools of a chat: declared in a file, whose results the user types, and built in ones, which run here.

mod calculator;
mod clock;
mod shell;

use std::ops::ControlFlow;

use generate::{FunctionCall, Tool, ToolCall};
use serde_json::{Map, Value};

use crate::output::harmless;
use crate::toolfile;

/// Which tools there are.
#[derive(Clone, Debug, Default)]
pub(super) struct Toolbox {
    /// From files.
    declared: Vec<Tool>,
    /// Calculator and clock.
    pub(super) has_builtin: bool,
    /// Commands of the shell.
    pub(super) has_shell: bool,
}

/// How a call gets its result.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Way {
    /// It is there.
    Done(String),
    /// This command is to be run, if the user agrees.
    Shell(String),
    /// The user types it.
    Ask,
}

impl Toolbox {
    /// All, as the model is told of them.
    pub(super) fn tools(&self) -> Vec<Tool> {
        let mut tools = self.declared.clone();
        tools.extend(self.built_in().into_iter().filter_map(|declaration| toolfile::tool(&declaration).ok()));
        tools
    }

    /// Those from files.
    pub(super) fn declared(&self) -> &[Tool] {
        &self.declared
    }

    /// Replaces those from files.
    ///
    /// # Errors
    /// A built in tool has the same name.
    pub(super) fn declare(&mut self, tools: Vec<Tool>) -> Result<(), String> {
        let all = Self { has_builtin: true, has_shell: true, declared: Vec::new() };
        match all.tools().iter().find(|own| tools.iter().any(|tool| tool.name == own.name)) {
            Some(own) => Err(format!("the name '{}' is taken by a built in tool; choose another", own.name)),
            None => {
                self.declared = tools;
                Ok(())
            }
        }
    }

    fn built_in(&self) -> Vec<Value> {
        let mut declarations = Vec::new();
        if self.has_builtin {
            declarations.extend([calculator::declaration(), clock::declaration()]);
        }
        if self.has_shell {
            declarations.push(shell::declaration());
        }
        declarations
    }

    /// Runs a call, or says what it takes.
    pub(super) fn call(&self, function: &FunctionCall) -> Way {
        let argument = |name| text_argument(&function.arguments, name);
        let done = |result: Result<String, String>| Way::Done(result.unwrap_or_else(|why| error(&why)));
        match function.name.as_str() {
            "calculator" if self.has_builtin => {
                let value = argument("expression").and_then(|text| calculator::calculate(&text));
                done(value.map(|value| value.to_string()))
            }
            "clock" if self.has_builtin => Way::Done(clock::tell()),
            "shell" if self.has_shell => {
                let command =
                    argument("command").and_then(|command| shell::check(&command).map(|()| command));
                command.map_or_else(|why| Way::Done(error(&why)), Way::Shell)
            }
            name if self.declared.iter().any(|tool| tool.name == name) => Way::Ask,
            name => Way::Done(error(&format!("there is no tool {name:?}"))),
        }
    }

    /// For people.
    pub(super) fn list(&self) -> String {
        let lines = self.tools().into_iter().map(|tool| {
            let function = tool.declaration.get("function").unwrap_or(&tool.declaration);
            let about = function.get("description").and_then(Value::as_str).unwrap_or_default();
            let about = about.split_whitespace().collect::<Vec<_>>().join(" ");
            let about = console::truncate_str(&about, 80, "…").into_owned();
            harmless(&format!("  {}  {about}", tool.name)).trim_end().to_owned()
        });
        let lines: Vec<String> = lines.collect();
        if lines.is_empty() {
            "no tools: /tools FILE.json, /tools builtin, /tools shell".into()
        } else {
            lines.join("\n")
        }
    }
}

/// Runs a command that the user has agreed to.
pub(super) fn run_shell(command: &str, flow: &dyn Fn() -> ControlFlow<()>) -> String {
    shell::run(command, flow)
}

/// What the model reads when a call fails.
pub(super) fn error(why: &str) -> String {
    format!("error: {why}")
}

/// A call for people: `get_weather(city: "Rome", days: 3)`.
pub(super) fn describe(call: &ToolCall) -> String {
    let FunctionCall { name, arguments } = &call.function;
    let arguments = match object(arguments) {
        Some(object) => {
            object.iter().map(|(key, value)| format!("{key}: {value}")).collect::<Vec<_>>().join(", ")
        }
        None => arguments.to_string(),
    };
    format!("{name}({arguments})")
}

fn object(arguments: &Value) -> Option<Map<String, Value>> {
    match arguments {
        Value::Object(object) => Some(object.clone()),
        Value::String(json) => serde_json::from_str(json).ok(),
        _ => None,
    }
}

fn text_argument(arguments: &Value, name: &str) -> Result<String, String> {
    match object(arguments).and_then(|mut object| object.remove(name)) {
        Some(Value::String(text)) => Ok(text),
        Some(Value::Number(number)) => Ok(number.to_string()),
        _ => Err(format!("the argument {name:?} is missing")),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn call(name: &str, arguments: Value) -> FunctionCall {
        FunctionCall { name: name.into(), arguments }
    }

    /// A tool that was not switched on would run, or a call get no result or the wrong one.
    #[test]
    fn calls_find_their_tools() {
        let mut toolbox = Toolbox::default();
        let sum = call("calculator", json!("{\"expression\": \"0.5 + 2*3\"}"));
        let list = call("shell", json!({ "command": "ls" }));
        let done = |text: &str| Way::Done(text.into());
        assert_eq!(toolbox.call(&sum), done("error: there is no tool \"calculator\""));
        assert_eq!(toolbox.call(&list), done("error: there is no tool \"shell\""));
        toolbox.has_builtin = true;
        assert_eq!(toolbox.call(&sum), done("6.5"));
        assert_eq!(toolbox.call(&call("calculator", json!({ "expression": 7 }))), done("7"));
        let missing = "error: the argument \"expression\" is missing";
        assert_eq!(toolbox.call(&call("calculator", json!("not JSON"))), done(missing));
        assert!(matches!(toolbox.call(&call("clock", json!({}))), Way::Done(text) if text.contains("UTC")));
        assert_eq!(toolbox.call(&list), done("error: there is no tool \"shell\""));
        toolbox.has_shell = true;
        assert_eq!(toolbox.call(&list), Way::Shell("ls".into()));
        let hidden = call("shell", json!({ "command": "ls\r" }));
        assert_eq!(toolbox.call(&hidden), done("error: the command contains characters that cannot be seen"));
        toolbox.declare(vec![toolfile::tool(&json!({ "name": "f" })).unwrap()]).unwrap();
        assert_eq!(toolbox.call(&call("f", json!({}))), Way::Ask);
        let names: Vec<_> = toolbox.tools().into_iter().map(|tool| tool.name).collect();
        assert_eq!(names, ["f", "calculator", "clock", "shell"]);
        let taken = toolfile::tool(&json!({ "name": "shell" })).unwrap();
        assert!(toolbox.declare(vec![taken]).is_err_and(|why| why.contains("'shell' is taken")));
    }

    /// The user would not see what is called with what.
    #[test]
    fn calls_are_readable() {
        let shown = |arguments| describe(&ToolCall { id: None, function: call("f", arguments) });
        assert_eq!(shown(json!("{\"b\": \"x\\ny\", \"a\": [1, 2]}")), "f(b: \"x\\ny\", a: [1,2])");
        assert_eq!(shown(json!({})), "f()");
        assert_eq!(shown(json!("oops")), "f(\"oops\")");
    }
}
