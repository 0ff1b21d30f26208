//! The grammar of calls: the model's own envelope, the names of declared tools, values that fit their schemas.
//!
//! A tool's schema counts as far as it can be checked while tokens come; with `strict` what cannot be checked is
//! an error. In the XML form parameters come in any order, each at most once and the required ones always;
//! undeclared ones only if the schema says `"additionalProperties": true` (or a schema), or says nothing of its
//! parameters at all. Text values are free up to `</parameter>`, as far as `enum`, `pattern`, `minLength` and
//! `maxLength` let them; what would read as the end of a value is never part of one. Everything else is JSON, and
//! constants may be spelt as in Python, which is how templates print them. In the JSON form arguments come in the
//! schema's order.

use std::collections::BTreeSet;
use std::fmt::Write;

use llguidance::regex_to_lark;
use serde_json::{Map, Value, json};

use crate::constraint::{Basis, JsonForm, json_rule};
use crate::error::GenerateError;
use crate::grammar::{check_grammar, check_schema, check_text, unusable};
use crate::request::ChatRequest;
use crate::tool::{CallFormat, Tool, ToolChoice};

/// Calls of an answer.
const CALLS_MAX: usize = 32;
/// Undeclared parameters of a call.
const ADDITIONAL_MAX: usize = 16;
/// Parameters that may come in any order: the grammar remembers them in 64 bits. Of more, the order is the
/// schema's.
const UNORDERED_MAX: usize = 60;
/// Longest text whose length is checked; an automaton counts its characters.
const LENGTH_MAX: u64 = 4096;
/// References to references.
const REFS_MAX: usize = 16;
/// Schemas that are looked at for one value; what goes beyond is free. References can make many of a few.
const N_SCHEMA_MAX: usize = 500;

const NULL: [&str; 2] = ["null", "None"];
const TRUE: [&str; 2] = ["true", "True"];
const FALSE: [&str; 2] = ["false", "False"];
/// Types whose values are words.
const CONSTANTS: [(&str, &[&str]); 2] = [("null", &NULL), ("boolean", &["true", "True", "false", "False"])];

/// What rules of calls share: texts, and names of undeclared parameters.
///
/// A text is cut before each line break and `<`. Within such a piece anything but those may follow, which is quick
/// to decide for all tokens without them (see `grammar::SLICES`) as long as what a piece may not be is finite: a
/// closing tag by itself. A value ends at its closing tag also where the line break before it is forgotten. Texts
/// with limits are one terminal each, which is slower.
const SHARED: &str = r#"
text: END | (FIRST | PIECE | LINE | OPENED) (PIECE | LINE | OPENED)* (END | LATE)
FIRST: /[^\n<]+/
PIECE: /<[^\n<]*/ & ~(CLOSING BLANK)
LINE: /\n[^\n<]*/
OPENED: /\n<[^\n<]*/ & ~("\n" (CLOSING | OPENING) BLANK)
CLOSING: "</parameter>" | "</function>" | "</tool_call>"
BLANK: /(| |  |\t|\r)/
END: "\n</parameter>\n"
LATE: "</parameter>\n"
CLEAN: ~/((?s:.*)<\/(parameter|function|tool_call)>|(?s:.*)\n<parameter=|<parameter=)(?s:.*)/
NAME: /[A-Za-z_][A-Za-z0-9_.\-]{0,63}/
"#;

/// How much of the tools' schemas goes into a grammar. Strict tools are held to theirs at all of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Care {
    /// All, as it is.
    Plain,
    /// All of those that compile, which is tried one by one.
    Checked,
    /// Only names of tools and parameters.
    Loose,
}

/// Rules of one request's calls.
pub(crate) struct CallGrammar {
    /// The model may answer without a call.
    pub(crate) is_free: bool,
    /// Rules, of which `calls` is the one to begin with.
    pub(crate) rules: String,
    /// See [`crate::constraint::Constraint`].
    pub(crate) starts: Vec<(String, String)>,
}

/// How values are laid out in calls: as templates print them.
pub(crate) struct Calls;

impl Calls {
    fn json_form(lenient: bool) -> JsonForm {
        JsonForm { space: None, item_separator: ", ?", key_separator: ": ?", lenient }
    }
}

impl CallGrammar {
    /// `None`: nothing is called, or calls are free.
    ///
    /// # Errors
    /// A named tool is not there, or a tool's schema cannot be held to though it must.
    pub(crate) fn new(
        request: &ChatRequest,
        basis: &Basis<'_>,
        care: Care,
    ) -> Result<Option<Self>, GenerateError> {
        let is_free = request.tool_choice == ToolChoice::Auto;
        let tools: Vec<&Tool> = match &request.tool_choice {
            ToolChoice::None => return Ok(None),
            ToolChoice::Auto if request.free_calls && !request.tools.iter().any(|tool| tool.strict) => {
                return Ok(None);
            }
            ToolChoice::Auto | ToolChoice::Required => request.tools.iter().collect(),
            ToolChoice::Named(name) => {
                request.tools.iter().filter(|tool| tool.name == *name).take(1).collect()
            }
        };
        if tools.is_empty() {
            return match &request.tool_choice {
                ToolChoice::Named(name) => {
                    Err(unusable("tool_choice", &format!("there is no tool {name:?}")))
                }
                ToolChoice::Required => {
                    Err(unusable("tool_choice", "a call is required but there are no tools"))
                }
                ToolChoice::Auto | ToolChoice::None => Ok(None),
            };
        }
        let mut rules = String::new();
        let mut names: Vec<&str> = Vec::new();
        for &tool in &tools {
            check_name(&format!("the name of tool {:?}", tool.name), &tool.name)?;
            if !names.contains(&tool.name.as_str()) {
                rules += &tool_rules(tool, names.len(), basis, care)?;
                names.push(&tool.name);
            }
            if check_grammar("the tools", &rules).is_err() {
                // It will not be compiled, whatever the rest is.
                break;
            }
        }
        let heads: Vec<String> = (0..names.len()).map(|i| format!("call{i}")).collect();
        let special = |text: &str| match basis.tokenizer.token_id(text) {
            Some(id) => format!("<[{id}]>"),
            None => lark_string(text),
        };
        let more = if request.single_call {
            String::new()
        } else {
            format!(r#" ("\n" call){{0,{}}}"#, CALLS_MAX - 1)
        };
        let envelope = format!(
            "calls: call{more}\ncall: {} ({}) {}\n",
            special(CallFormat::OPEN),
            heads.join(" | "),
            special(CallFormat::CLOSE),
        );
        let shared = if basis.call_format == CallFormat::Xml { shared(&tools) } else { String::new() };
        let mut starts = vec![(CallFormat::OPEN.to_owned(), String::new())];
        if basis.call_format == CallFormat::Xml {
            // Models of few bits forget the opening tag.
            starts.extend(
                names.iter().map(|name| (format!("<function={name}>"), format!("\n<function={name}>"))),
            );
        }
        Ok(Some(Self { is_free, rules: format!("{envelope}{shared}{rules}"), starts }))
    }
}

/// [`SHARED`], and the tags of all parameters, which no text has on a line of their own.
fn shared(tools: &[&Tool]) -> String {
    let properties = tools.iter().filter_map(|tool| {
        let root = tool.parameters.as_ref()?;
        resolve(root, root)?.get("properties")?.as_object()
    });
    let keys: BTreeSet<&String> = properties.flat_map(Map::keys).collect();
    let tags = keys.into_iter().filter(|key| check_name("", key).is_ok());
    let tags: Vec<String> = tags.map(|key| lark_string(&format!("<parameter={key}>"))).collect();
    let opening = if tags.is_empty() { "\"<parameter=\"".to_owned() } else { tags.join(" | ") };
    format!("{SHARED}OPENING: {opening}\n")
}

/// Rules of one tool, `call{i}` first. What cannot be held to is left out, unless the tool is strict.
fn tool_rules(tool: &Tool, i: usize, basis: &Basis<'_>, care: Care) -> Result<String, GenerateError> {
    let what = format!("the parameters of tool {:?}", tool.name);
    let loose = care == Care::Loose && !tool.strict;
    let rules = ToolRules { tool, i, what: &what, basis, loose };
    let text = match rules.build() {
        Ok(text) if care == Care::Checked => {
            let shared = if basis.call_format == CallFormat::Xml { shared(&[tool]) } else { String::new() };
            let source = format!("start: call{i}\n{shared}{text}");
            basis.grammars.compile_once(&what, &source).map(|_| text)
        }
        text => text,
    };
    match text {
        Err(_) if !tool.strict => ToolRules { loose: true, ..rules }.build(),
        text => text,
    }
}

struct ToolRules<'a> {
    tool: &'a Tool,
    i: usize,
    /// For errors.
    what: &'a str,
    basis: &'a Basis<'a>,
    /// Only the names of parameters count.
    loose: bool,
}

impl ToolRules<'_> {
    fn build(&self) -> Result<String, GenerateError> {
        let empty = json!({});
        let root = self.tool.parameters.as_ref().unwrap_or(&empty);
        if !self.loose {
            check_schema(self.what, root)?;
        }
        match self.basis.call_format {
            CallFormat::Xml => self.xml(root),
            CallFormat::Json => Ok(self.json(root)),
        }
    }

    fn json(&self, root: &Value) -> String {
        let schema = if self.loose { json!({ "type": "object" }) } else { closed_object(root) };
        let head = format!("\n{{\"name\": {}, \"arguments\": ", Value::from(self.tool.name.as_str()));
        let (i, arguments) = (self.i, json_rule(schema, &Calls::json_form(!self.tool.strict)));
        format!(
            "\ncall{i}: {} arguments{i} {}\narguments{i}: {arguments}\n",
            lark_string(&head),
            lark_string("}\n")
        )
    }

    fn xml(&self, root: &Value) -> Result<String, GenerateError> {
        let i = self.i;
        let head = format!("\n<function={}>\n", self.tool.name);
        let object = resolve(root, root);
        if self.tool.strict && object.and_then(Value::as_object).is_none_or(is_combined) {
            let why =
                "with strict, they must be an object of properties without allOf, anyOf or oneOf around it";
            return Err(unusable(self.what, why));
        }
        let no_properties = Map::new();
        let properties = object.and_then(|o| o.get("properties")?.as_object());
        let additional = object.and_then(|o| o.get("additionalProperties"));
        let is_open = match additional {
            Some(schema) => *schema != Value::Bool(false),
            None => properties.is_none(),
        };
        let properties = properties.unwrap_or(&no_properties);
        let required: BTreeSet<&str> = object
            .and_then(|o| o.get("required")?.as_array())
            .into_iter()
            .flatten()
            .filter_map(Value::as_str)
            .collect();
        // The required ones have the low bits.
        let writable = properties.keys().filter(|key| self.tool.strict || check_name("", key).is_ok());
        let (mut keys, optional): (Vec<&String>, Vec<&String>) =
            writable.partition(|key| required.contains(key.as_str()));
        let n_required = keys.len();
        keys.extend(optional);

        let mut rules = String::new();
        for (k, key) in keys.iter().enumerate() {
            check_name(&format!("{}, {key:?}", self.what), key)?;
            let open = lark_string(&format!("<parameter={key}>\n"));
            let value = self.value(&format!("v{i}_{k}"), &properties[key.as_str()], root)?;
            let _ = writeln!(rules, "p{i}_{k}: {open} v{i}_{k}\n{value}");
            check_grammar(self.what, &rules)?;
        }
        let mut end = lark_string("</function>\n");
        if is_open {
            let not_declared: String = keys.iter().map(|key| format!(" & ~{}", lark_string(key))).collect();
            let any = match additional.filter(|schema| schema.is_object() && !self.loose) {
                Some(schema) => self.value(&format!("w{i}"), schema, root)?,
                None => format!("w{i}: text\n"),
            };
            let _ =
                writeln!(rules, "m{i}: \"<parameter=\" M{i} \">\\n\" w{i}\nM{i}: NAME{not_declared}\n{any}");
            end = format!("m{i}{{0,{ADDITIONAL_MAX}}} {end}");
        }
        let parameters = parameters(i, keys.len(), n_required, &end);
        Ok(format!("\ncall{i}: {} {parameters}{rules}", lark_string(&head)))
    }

    /// The rule of a value and what ends it.
    fn value(&self, name: &str, schema: &Value, root: &Value) -> Result<String, GenerateError> {
        let free = format!("{name}: text\n");
        if self.loose {
            return Ok(free);
        }
        let mut kinds = Kinds::default();
        kinds.add(schema, root, 0);
        if kinds.any_text {
            return Ok(free);
        }
        let mut rules = String::new();
        let mut alternatives = Vec::new();
        for (t, text) in kinds.texts.iter().enumerate() {
            let Some(terms) = self.text_terms(text)? else { return Ok(free) };
            let upper = format!("{}_{t}", name.to_uppercase());
            let _ = write!(rules, "{upper}: {terms}\n{name}_{t}[lazy]: {upper} END\n");
            alternatives.push(format!("{name}_{t}"));
        }
        for (t, other) in kinds.others.into_iter().enumerate() {
            let rule = json_rule(with_definitions(other, root), &Calls::json_form(!self.tool.strict));
            let _ = writeln!(rules, "{name}_j{t}: {rule}");
            check_grammar(self.what, &rules)?;
            alternatives.push(format!("{name}_j{t} END"));
        }
        Ok(format!("{name}: {}\n{rules}", alternatives.join(" | ")))
    }

    /// The terminal of a text with limits; `None`: they cannot be held to.
    fn text_terms(&self, limits: &TextLimits<'_>) -> Result<Option<String>, GenerateError> {
        let mut terms = Vec::new();
        if let Some(values) = &limits.values {
            let literals: Vec<String> = values.iter().map(|value| lark_string(value)).collect();
            terms.push(format!("({})", literals.join(" | ")));
        }
        if let Some(pattern) = limits.pattern {
            check_text(self.what, pattern)?;
            terms.push(format!("/{}/", regex_to_lark(&unanchored(pattern), "")));
        }
        let max = limits.max.filter(|&max| max <= LENGTH_MAX);
        let min = limits.min.min(LENGTH_MAX);
        match max {
            Some(max) if min > max => return Err(unusable(self.what, "minLength is above maxLength")),
            Some(max) => terms.push(format!("/(?s:.{{{min},{max}}})/")),
            None if min > 0 => terms.push(format!("/(?s:.{{{min},}})/")),
            None => {}
        }
        if terms.is_empty() {
            return Ok(None);
        }
        terms.push("CLEAN".into());
        Ok(Some(terms.join(" & ")))
    }
}

/// The rest of the rule of a call: its parameters `p{i}_{k}`, of which the first `n_required` must come, and its end.
fn parameters(i: usize, n: usize, n_required: usize, end: &str) -> String {
    if n == 0 {
        return format!("{end}\n");
    }
    if n > UNORDERED_MAX {
        let parts = (0..n).map(|k| format!("p{i}_{k}{} ", if k < n_required { "" } else { "?" }));
        return format!("{}{end}\n", parts.collect::<String>());
    }
    let is_complete = if n_required > 0 { format!(" %if is_ones([0:{n_required}])") } else { String::new() };
    let mut out = format!("a{i}::0x0\na{i}::_: {end}{is_complete}\n");
    for k in 0..n {
        let _ = writeln!(out, "  | p{i}_{k} a{i}::set_bit({k}) %if bit_clear({k})");
    }
    out
}

/// What a value may be: texts, which are written as they are, and others, which are JSON.
#[derive(Default)]
struct Kinds<'s> {
    /// Any text will do; nothing else counts then.
    any_text: bool,
    n_schema: usize,
    texts: Vec<TextLimits<'s>>,
    others: Vec<Value>,
}

#[derive(Default)]
struct TextLimits<'s> {
    values: Option<Vec<&'s str>>,
    pattern: Option<&'s str>,
    min: u64,
    max: Option<u64>,
}

impl<'s> Kinds<'s> {
    fn add(&mut self, schema: &'s Value, root: &'s Value, depth: usize) {
        if self.any_text {
            return;
        }
        self.n_schema += 1;
        let resolved = resolve(schema, root).and_then(Value::as_object);
        let Some(fields) = resolved.filter(|_| depth < REFS_MAX && self.n_schema <= N_SCHEMA_MAX) else {
            self.any_text = true;
            return;
        };
        let values = match (fields.get("enum"), fields.get("const")) {
            (Some(Value::Array(values)), _) => Some(values.iter().collect::<Vec<_>>()),
            (_, Some(value)) => Some(vec![value]),
            _ => None,
        };
        if let Some(values) = values {
            return self.add_values(&values);
        }
        for key in ["anyOf", "oneOf"] {
            if let Some(options) = fields.get(key).and_then(Value::as_array) {
                options.iter().for_each(|option| self.add(option, root, depth + 1));
                return;
            }
        }
        let types: Vec<&str> = match fields.get("type") {
            Some(Value::String(kind)) => vec![kind],
            Some(Value::Array(kinds)) => kinds.iter().filter_map(Value::as_str).collect(),
            _ => Vec::new(),
        };
        // Without a type anything goes, and a text can be anything.
        self.any_text |= types.is_empty();
        if types.contains(&"string") {
            let number = |key: &str| fields.get(key).and_then(Value::as_u64);
            let pattern = fields.get("pattern").and_then(Value::as_str);
            let limits = TextLimits {
                values: None,
                pattern,
                min: number("minLength").unwrap_or(0),
                max: number("maxLength"),
            };
            if limits.pattern.is_none() && limits.min == 0 && limits.max.is_none() {
                self.any_text = true;
            }
            self.texts.push(limits);
        }
        for (kind, words) in CONSTANTS {
            if types.contains(&kind) {
                self.add_words(words);
            }
        }
        let is_other =
            |kind: &&str| *kind != "string" && CONSTANTS.iter().all(|(constant, _)| constant != kind);
        let others: Vec<&str> = types.into_iter().filter(is_other).collect();
        if !others.is_empty() {
            let mut other = fields.clone();
            other.insert("type".into(), others.into());
            self.others.push(Value::Object(other));
        }
    }

    fn add_words(&mut self, words: &[&'s str]) {
        self.texts.push(TextLimits { values: Some(words.to_vec()), ..TextLimits::default() });
    }

    fn add_values(&mut self, values: &[&'s Value]) {
        let mut others = Vec::new();
        let mut words = Vec::new();
        for &value in values {
            match value {
                Value::String(text) => words.push(text.as_str()),
                Value::Null => words.extend(NULL),
                Value::Bool(true) => words.extend(TRUE),
                Value::Bool(false) => words.extend(FALSE),
                other => others.push(other),
            }
        }
        if !words.is_empty() {
            self.add_words(&words);
        }
        if !others.is_empty() {
            self.others.push(json!({ "enum": others }));
        }
    }
}

/// What a schema refers to within its document.
fn resolve<'s>(schema: &'s Value, root: &'s Value) -> Option<&'s Value> {
    let mut schema = schema;
    for _ in 0..REFS_MAX {
        match schema.get("$ref").and_then(Value::as_str) {
            None => return Some(schema),
            Some(path) => schema = root.pointer(path.strip_prefix('#')?)?,
        }
    }
    None
}

fn is_combined(fields: &Map<String, Value>) -> bool {
    ["allOf", "anyOf", "oneOf"].iter().any(|key| fields.contains_key(*key))
}

/// A part of a schema with what its references are about.
fn with_definitions(mut schema: Value, root: &Value) -> Value {
    if let Some(fields) = schema.as_object_mut() {
        for key in ["$defs", "definitions"] {
            if let Some(definitions) = root.get(key) {
                fields.entry(key).or_insert_with(|| definitions.clone());
            }
        }
    }
    schema
}

/// Arguments as an object of the declared properties, unless the schema says otherwise.
fn closed_object(root: &Value) -> Value {
    let mut schema = root.clone();
    if let Some(fields) = schema.as_object_mut() {
        if fields.get("properties").is_some() {
            fields.entry("additionalProperties").or_insert(Value::Bool(false));
        }
        if !is_combined(fields) && !fields.contains_key("$ref") {
            fields.insert("type".into(), "object".into());
        }
    }
    schema
}

/// A schema's pattern is found anywhere in the text; a grammar's matches all of it.
fn unanchored(pattern: &str) -> String {
    let (start, body) = match pattern.strip_prefix('^') {
        Some(body) => ("", body),
        None => ("(?s:.*)", pattern),
    };
    let n_escape = |text: &str| text.len() - text.trim_end_matches('\\').len();
    match body.strip_suffix('$').filter(|body| n_escape(body) % 2 == 0) {
        Some(body) => format!("{start}({body})"),
        None => format!("{start}({body})(?s:.*)"),
    }
}

/// A text as a literal of the grammar.
fn lark_string(text: &str) -> String {
    Value::from(text).to_string().replace('\u{7F}', "\\u007f")
}

fn check_name(what: &str, name: &str) -> Result<(), GenerateError> {
    if name.is_empty() || name.chars().any(|c| c.is_control() || c == '<' || c == '>') {
        return Err(unusable(
            what,
            "it cannot be written in a call: empty, or with <, > or control characters",
        ));
    }
    Ok(())
}
