//! `run`: one answer.

use std::io::{self, IsTerminal, Read, Write};

use generate::{ChatRequest, Finish, FunctionCall, Prepared, ResponseFormat, TextModel, ToolCall};
use serde::Serialize;
use serde_json::{Value, json};

use crate::answer::{Answer, answer, options};
use crate::error::CliError;
use crate::flags::{ChatFlags, RunFlags};
use crate::interrupt::Answering;
use crate::load::load_warm;
use crate::meter::Metered;
use crate::opening::Opening;
use crate::output::{View, harmless};
use crate::plan::Work;
use crate::prefixes::Prefixes;
use crate::report::{Phases, Setting};
use crate::{chat, report, target, text, toolfile};

/// `--json` of `run`.
#[derive(Serialize)]
struct RunReport<'a> {
    #[serde(flatten)]
    setting: Setting,
    seed: u64,
    text: &'a str,
    thinking: &'a str,
    tool_calls: Vec<CallReport<'a>>,
    finish_reason: &'static str,
    prompt_tokens: usize,
    /// Those of them that were not read again.
    cached_tokens: usize,
    phases: Phases,
}

/// A call in the form of the OpenAI API: arguments are a string.
#[derive(Serialize)]
struct CallReport<'a> {
    id: String,
    r#type: &'static str,
    function: &'a FunctionCall,
}

/// Returns false if the user interrupted the answer.
pub(crate) fn run(mut flags: RunFlags) -> anyhow::Result<bool> {
    let (model, prompt) = target::model_and_prompt(flags.first.take(), flags.second.take())?;
    if prompt.is_none() && io::stdin().is_terminal() {
        if flags.raw || flags.json || flags.schema.is_some() || flags.record_routing.is_some() {
            let why = "--raw, --json, --schema and --record-routing need a prompt";
            return Err(CliError::Usage(why.into()).into());
        }
        let RunFlags { answer, prefix, engine, .. } = flags;
        chat::chat(ChatFlags { model, shell: false, resume: false, answer, prefix, engine })?;
        return Ok(true);
    }
    let prompt = match prompt {
        Some(prompt) if prompt != "-" => prompt,
        _ => from_stdin()?,
    };
    if prompt.trim().is_empty() {
        return Err(CliError::EmptyPrompt.into());
    }
    // What the user gave is checked before the model is loaded, which may take minutes.
    let request = if flags.raw { None } else { Some(request(&prompt, &flags)?) };
    let store = target::open(model.as_deref())?;
    let text_model = text::load(&store)?;
    let prepared = prepare(&text_model, prompt, request)?;
    let prompt = &prepared.prompt;
    let options = options(&text_model, &prepared, &flags.answer)?;
    let mut loaded = load_warm(
        &store,
        &flags.engine,
        Work {
            n_ctx: None,
            n_feed: Some(prompt.ids.len()),
            keeps_prefixes: !flags.prefix.no_prefix_cache,
            n_session: 1,
        },
    )?;
    if flags.answer.timing {
        kernels::Backend::measure(loaded.engine.backend());
    }
    if flags.record_routing.is_some() {
        loaded.engine.record_routing();
    }
    let is_verbose = flags.engine.verbose;
    let mut prefixes = Prefixes::open(&flags.prefix, &store, &loaded, is_verbose);
    let mut session = prefixes.session_for(&loaded.engine, &loaded.plan, None, &prompt.ids, &text_model);
    let keeper = prefixes.keeper(&mut session, &loaded.plan, &prepared, &text_model);
    let metered = Metered::new(&mut loaded.engine, &mut session, prompt.ids.len()).keeping(keeper);
    let mut metered = metered.shown(is_verbose);
    let view = View { is_json: flags.json, hide_thinking: flags.answer.hide_thinking };
    let answer = answer(&mut metered, &text_model, prompt, &options, &Answering::begin(), view)?;
    drop(metered);
    loaded.finish();
    if !flags.json {
        print_calls(&answer.calls)?;
    }
    answer.status(is_verbose, flags.answer.timing);
    if let Some((path, trace)) = flags.record_routing.zip(loaded.engine.take_routing()) {
        trace.write(&path)?;
    }
    if flags.json {
        print(Setting::of(&store, &loaded), options.sampling.seed, &answer)?;
    }
    prefixes.finish();
    Ok(answer.finish != Finish::Interrupted)
}

/// The conversation that this prompt begins.
fn request(prompt: &str, flags: &RunFlags) -> Result<ChatRequest, CliError> {
    let opening = Opening::read(&flags.answer.opening)?;
    let schema = flags.schema.as_deref().map(toolfile::schema).transpose()?;
    let response = schema.map_or(ResponseFormat::Text, ResponseFormat::JsonSchema);
    Ok(ChatRequest { response, ..opening.request(prompt) })
}

/// `None`: the prompt as it is.
fn prepare(text: &TextModel, prompt: String, request: Option<ChatRequest>) -> anyhow::Result<Prepared> {
    let prepared = match request {
        Some(request) => text.prepare(&request)?,
        None => text.prepare_raw(prompt)?,
    };
    text::tell_warnings(&prepared);
    Ok(prepared)
}

/// Each call as a line of JSON.
fn print_calls(calls: &[ToolCall]) -> io::Result<()> {
    let mut out = io::stdout().lock();
    for call in calls {
        let line = call_line(call).to_string();
        let line = if out.is_terminal() { harmless(&line) } else { line };
        writeln!(out, "{line}")?;
    }
    Ok(())
}

fn call_line(call: &ToolCall) -> Value {
    let FunctionCall { name, arguments } = &call.function;
    let object = arguments.as_str().and_then(|json| serde_json::from_str(json).ok());
    json!({ "name": name, "arguments": object.unwrap_or_else(|| arguments.clone()) })
}

fn print(setting: Setting, seed: u64, answer: &Answer) -> anyhow::Result<()> {
    let calls = answer.calls.iter().enumerate();
    report::print(&RunReport {
        setting,
        seed,
        text: &answer.text,
        thinking: &answer.thinking,
        tool_calls: calls
            .map(|(n, call)| CallReport {
                id: format!("call_{n}"),
                r#type: "function",
                function: &call.function,
            })
            .collect(),
        finish_reason: answer.finish_reason(),
        prompt_tokens: answer.n_prompt,
        cached_tokens: answer.n_reused,
        phases: Phases::of(&answer.prefill, &answer.decode),
    })
}

/// All of standard input.
fn from_stdin() -> anyhow::Result<String> {
    let mut text = String::new();
    io::stdin().read_to_string(&mut text).map_err(|error| match error.kind() {
        io::ErrorKind::InvalidData => CliError::PromptEncoding,
        _ => CliError::Io { path: "standard input".into(), action: "read", source: error },
    })?;
    Ok(text)
}
