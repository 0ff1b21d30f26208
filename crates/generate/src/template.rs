//! The checkpoint's chat template: a conversation to a prompt.
//!
//! Jinja as Hugging Face runs it (trimmed blocks, loop controls, Python's string methods and number formats).
//! The template decides the structure; the text of messages and tools is data and never becomes a control
//! token (`guard`). A hostile template cannot hang, exhaust memory or read anything but the conversation.
//!
//! Known differences from jinja2, none of which published templates of the supported models meet: no `'%s' %
//! x`; integers beyond 64 bits are floats; `strftime_now` tells UTC.

use std::time::{SystemTime, UNIX_EPOCH};

use minijinja::syntax::SyntaxConfig;
use minijinja::value::Serde;
use minijinja::{AutoEscape, Environment, ErrorKind};
use serde_json::{Map, Value, json};

use crate::error::GenerateError;
use crate::guard::{LEVELS, Literals, guard_value, sentinel};
use crate::message::Message;
use crate::python;
use crate::tokenizer::Tokenizer;
use crate::tool::CallFormat;

/// Rendering budget (one unit an instruction or 64 bytes of data): ten times what templates use for nothing.
const FUEL_BASE: u64 = 200_000;
/// And for each byte of conversation; published templates use less than 4.
const FUEL_PER_BYTE: u64 = 20;
/// A template can nest one list into another with every instruction, and the engine walks such values
/// recursively. The base budget fits this stack at 1 KB a level; only the pages that are used take memory.
const STACK_BYTES: usize = 256 << 20;
/// Published templates have 4 to 20 KB.
const SOURCE_BYTES_MAX: usize = 1 << 20;

const DEFAULT: &str = "default";
const TOOL_USE: &str = "tool_use";

/// A compiled chat template.
pub struct ChatTemplate {
    env: Environment<'static>,
    /// `bos_token` and its like, which some templates print.
    special_tokens: Map<String, Value>,
    call_format: CallFormat,
}

/// How a conversation is rendered.
#[derive(Clone, Debug)]
pub struct RenderOptions {
    /// End with the opening of the assistant's turn.
    pub add_generation_prompt: bool,
    /// End with the text of the last message instead, whose turn stays open.
    pub continue_last: bool,
    /// Thinking on or off, for models that have the choice (`enable_thinking`); `None` leaves it to the
    /// template.
    pub thinking: Option<bool>,
    /// More variables for the template, such as `preserve_thinking`.
    pub extra: Map<String, Value>,
}

impl Default for RenderOptions {
    fn default() -> Self {
        Self { add_generation_prompt: true, continue_last: false, thinking: None, extra: Map::new() }
    }
}

/// A rendered conversation.
#[derive(Clone, Debug, PartialEq)]
pub struct Prompt {
    /// The text, as the template alone renders it.
    pub text: String,
    /// Its tokens, in which quoted control tokens are plain text.
    pub ids: Vec<u32>,
    /// The prompt ends inside an opened `<think>`.
    pub thinking_open: bool,
    /// Oddities of the conversation that were smoothed over, one line each.
    pub warnings: Vec<String>,
}

/// The template's own `raise_exception`, told apart from failures of the engine.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
struct Refused(String);

impl ChatTemplate {
    /// From the bytes of chat_template.jinja if there is one, else from `chat_template` in
    /// tokenizer_config.json: a string, or a list of named templates of which `tool_use` is taken when there
    /// are tools.
    pub fn from_sources(
        jinja: Option<&[u8]>,
        tokenizer_config: Option<&[u8]>,
    ) -> Result<Self, GenerateError> {
        let file = "tokenizer_config.json";
        let config: Value = match tokenizer_config {
            Some(bytes) => {
                serde_json::from_slice(bytes).map_err(|e| GenerateError::Json { file, why: e.to_string() })?
            }
            None => Value::Null,
        };
        let sources = match jinja {
            Some(bytes) => {
                let source = std::str::from_utf8(bytes).map_err(|e| syntax(format!("not UTF-8: {e}")))?;
                vec![(DEFAULT.to_owned(), source.to_owned())]
            }
            None => named_sources(config.get("chat_template"))?,
        };
        let is_xml = sources.iter().any(|(_, source)| source.contains("<function="));
        let call_format = if is_xml { CallFormat::Xml } else { CallFormat::Json };
        let mut env = environment();
        for (name, source) in sources {
            if source.len() > SOURCE_BYTES_MAX {
                return Err(syntax(format!("{} bytes, at most {SOURCE_BYTES_MAX}", source.len())));
            }
            env.add_template_owned(name, source).map_err(|e| syntax(e.to_string()))?;
        }
        let mut special_tokens = Map::new();
        for key in ["bos_token", "eos_token", "pad_token", "unk_token"] {
            let token = config.get(key).and_then(|token| token.as_str().or(token.get("content")?.as_str()));
            if let Some(token) = token {
                special_tokens.insert(key.into(), token.into());
            }
        }
        Ok(Self { env, special_tokens, call_format })
    }

    /// How the model writes calls: as the template does.
    pub fn call_format(&self) -> CallFormat {
        self.call_format
    }

    /// Renders a conversation and tokenises it. `tools`: the tool objects of the OpenAI API, key order kept.
    pub fn prompt(
        &self,
        tokenizer: &Tokenizer,
        messages: &[Message],
        tools: &[Value],
        options: &RenderOptions,
    ) -> Result<Prompt, GenerateError> {
        let mut warnings = Vec::new();
        let input = Input::new(messages, tools, options, &mut warnings)?;
        let text = self.render_input(&input, options)?;
        let ids = self.guarded_ids(tokenizer, &input, options, &text)?;
        let text = input.cut(text)?;
        let opens = options.add_generation_prompt && !options.continue_last;
        let thinking_open = opens && text.trim_end().ends_with("<think>");
        Ok(Prompt { text, ids, thinking_open, warnings })
    }

    /// Renders a conversation to text only.
    pub fn render(
        &self,
        messages: &[Message],
        tools: &[Value],
        options: &RenderOptions,
    ) -> Result<String, GenerateError> {
        let input = Input::new(messages, tools, options, &mut Vec::new())?;
        input.cut(self.render_input(&input, options)?)
    }

    /// The ids of `text`, the plain rendering of `input`. The guarded rendering must be the same but for the
    /// sentinels: a template that looks into messages may behave differently, then less is guarded, never the
    /// control tokens.
    fn guarded_ids(
        &self,
        tokenizer: &Tokenizer,
        input: &Input,
        options: &RenderOptions,
        text: &str,
    ) -> Result<Vec<u32>, GenerateError> {
        let json = input.json();
        let added = tokenizer.added_tokens().iter().filter(|t| t.content.chars().count() > 1);
        let all: Vec<&str> = added.clone().map(|t| t.content.as_str()).collect();
        let special: Vec<&str> = added.filter(|t| t.special).map(|t| t.content.as_str()).collect();
        let unguarded = || {
            let quoted = all.iter().find(|literal| json.contains(**literal));
            GenerateError::Unguarded { token: quoted.copied().unwrap_or("a control token").to_owned() }
        };
        let sentinel = sentinel(&[&json, text]).ok_or_else(unguarded)?;
        for (assistant, others) in LEVELS {
            let literals = |which| if which == Literals::All { &all } else { &special };
            let guarded = input.guarded(literals(assistant), literals(others), sentinel);
            if guarded == *input {
                return tokenizer.encode_guarded(&input.cut(text.to_owned())?, None);
            }
            // A template may fail on guarded text that it accepts as it is.
            let Ok(rendered) = self.render_input(&guarded, options) else { continue };
            if rendered.replace(sentinel, "") == text {
                return tokenizer.encode_guarded(&input.cut(rendered)?, Some(sentinel));
            }
        }
        Err(unguarded())
    }

    fn render_input(&self, input: &Input, options: &RenderOptions) -> Result<String, GenerateError> {
        let mut context = input.extra.clone();
        for (key, token) in &self.special_tokens {
            context.entry(key.clone()).or_insert_with(|| token.clone());
        }
        if let Some(thinking) = options.thinking {
            context.insert("enable_thinking".into(), thinking.into());
        }
        let opens = options.add_generation_prompt && !options.continue_last;
        context.insert("add_generation_prompt".into(), opens.into());
        context.insert("messages".into(), input.messages.clone().into());
        let tools = if input.tools.is_empty() { Value::Null } else { input.tools.clone().into() };
        context.insert("tools".into(), tools);

        let fuel = FUEL_BASE + FUEL_PER_BYTE * input.json().len() as u64;
        let mut env = self.env.clone();
        env.set_fuel(Some(fuel));
        let named = if input.tools.is_empty() { None } else { env.get_template(TOOL_USE).ok() };
        let template = match named {
            Some(template) => template,
            None => env.get_template(DEFAULT).map_err(|_| GenerateError::NoTemplate)?,
        };
        let render = || template.render(Serde(&context)).map_err(|e| render_error(&e, fuel));
        std::thread::scope(|scope| {
            let thread = std::thread::Builder::new().stack_size(STACK_BYTES).spawn_scoped(scope, render);
            let thread = thread.map_err(|e| GenerateError::TemplateRender { why: e.to_string() })?;
            thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        })
    }
}

/// The untrusted part of what a template sees.
#[derive(PartialEq)]
struct Input {
    messages: Vec<Value>,
    tools: Vec<Value>,
    extra: Map<String, Value>,
    /// Stands at the end of the last message's text, and nowhere else, if the prompt is to end there.
    end: Option<char>,
}

impl Input {
    fn new(
        messages: &[Message],
        tools: &[Value],
        options: &RenderOptions,
        warnings: &mut Vec<String>,
    ) -> Result<Self, GenerateError> {
        let messages = messages.iter().enumerate().map(|(i, m)| m.to_template(i, warnings));
        let messages = messages.collect::<Result<_, _>>()?;
        let mut input = Self { messages, tools: tools.to_vec(), extra: options.extra.clone(), end: None };
        if options.continue_last {
            input.mark_end()?;
        }
        Ok(input)
    }

    /// Templates trim, and close the turn: a character that is neither white space nor anybody's shows where the text
    /// ends.
    fn mark_end(&mut self) -> Result<(), GenerateError> {
        let end = sentinel(&[&self.json()]).ok_or_else(|| no_end("holds every character for special use"))?;
        let last = self.messages.last_mut().ok_or(GenerateError::NoMessages)?;
        match &mut last["content"] {
            Value::String(text) => text.push(end),
            Value::Array(parts) => parts.push(json!({ "type": "text", "text": end })),
            other => *other = end.to_string().into(),
        }
        self.end = Some(end);
        Ok(())
    }

    /// The rendering up to where the prompt ends.
    fn cut(&self, mut rendered: String) -> Result<String, GenerateError> {
        if let Some(end) = self.end {
            let at = rendered.rfind(end).ok_or_else(|| no_end("is not shown by the template"))?;
            rendered.truncate(at);
        }
        Ok(rendered)
    }

    /// The same with literals broken: `assistant` in the assistant's messages, `others` everywhere else.
    fn guarded(&self, assistant: &[&str], others: &[&str], sentinel: char) -> Self {
        let message = |message: &Value| {
            let role = &message["role"];
            let mut guarded =
                guard_value(message, if role == "assistant" { assistant } else { others }, sentinel);
            // A role is one of the template's own words (`Message::to_template` checks its form).
            guarded["role"] = role.clone();
            guarded
        };
        Self {
            messages: self.messages.iter().map(message).collect(),
            tools: self.tools.iter().map(|tool| guard_value(tool, others, sentinel)).collect(),
            extra: self.extra.iter().map(|(k, v)| (k.clone(), guard_value(v, others, sentinel))).collect(),
            end: self.end,
        }
    }

    fn json(&self) -> String {
        json!([self.messages, self.tools, self.extra]).to_string()
    }
}

fn no_end(why: &str) -> GenerateError {
    GenerateError::TemplateRender { why: format!("the last message cannot be continued: its text {why}") }
}

fn syntax(why: String) -> GenerateError {
    GenerateError::TemplateSyntax { why }
}

/// `chat_template` of tokenizer_config.json: one template or a list of `{"name", "template"}`.
fn named_sources(value: Option<&Value>) -> Result<Vec<(String, String)>, GenerateError> {
    match value {
        None | Some(Value::Null) => Err(GenerateError::NoTemplate),
        Some(Value::String(source)) => Ok(vec![(DEFAULT.into(), source.clone())]),
        Some(Value::Array(list)) => {
            let text = |item: &Value, key| item.get(key).and_then(Value::as_str).map(str::to_owned);
            let pairs = list.iter().map(|item| Some((text(item, "name")?, text(item, "template")?)));
            let pairs: Option<Vec<_>> = pairs.collect();
            pairs.ok_or_else(|| {
                syntax("chat_template is a list whose entries are not all {name, template}".into())
            })
        }
        Some(_) => {
            Err(syntax("chat_template in tokenizer_config.json is neither a string nor a list".into()))
        }
    }
}

/// Jinja with the settings and functions of Hugging Face's `apply_chat_template`.
fn environment() -> Environment<'static> {
    let mut env = Environment::new();
    let syntax = SyntaxConfig::builder().trim_blocks(true).lstrip_blocks(true).build();
    env.set_syntax(syntax.expect("the default delimiters are valid"));
    env.set_auto_escape_callback(|_| AutoEscape::None);
    env.set_unknown_method_callback(minijinja_contrib::pycompat::unknown_method_callback);
    env.set_formatter(|out, state, value| match python::number_text(value) {
        Some(text) => Ok(out.write_str(&text)?),
        None => minijinja::escape_formatter(out, state, value),
    });
    env.add_filter("tojson", python::tojson_filter);
    env.add_filter("string", python::string_filter);
    env.add_filter("trim", python::trim_filter);
    env.add_test("iterable", python::is_iterable);
    env.add_function("raise_exception", |why: String| -> Result<(), minijinja::Error> {
        let error = minijinja::Error::new(ErrorKind::InvalidOperation, why.clone());
        Err(error.with_source(Refused(why)))
    });
    env.add_function("strftime_now", |format: String| {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        python::strftime(now.as_secs(), &format)
            .map_err(|why| minijinja::Error::new(ErrorKind::InvalidOperation, why))
    });
    env
}

fn render_error(error: &minijinja::Error, fuel: u64) -> GenerateError {
    let mut cause: Option<&dyn std::error::Error> = Some(error);
    while let Some(this) = cause {
        if let Some(Refused(why)) = this.downcast_ref() {
            return GenerateError::TemplateRefused { why: why.clone() };
        }
        if this.downcast_ref::<minijinja::Error>().is_some_and(|e| e.kind() == ErrorKind::OutOfFuel) {
            return GenerateError::TemplateFuel { fuel };
        }
        cause = this.source();
    }
    GenerateError::TemplateRender { why: error.to_string() }
}
