//! Answers to conversations in a file, exactly as generated, and what their calls of tools are worth.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Write};
use std::ops::ControlFlow;
use std::path::Path;

use generate::{ChatRequest, Finish, GenerateOptions, Message, TextModel, Tool, ToolChoice, generate};
use model::Timeline;
use serde::Deserialize;
use serde_json::{Value, json};

use super::calls::{Reply, Wanted, judge};
use super::tally::Tally;
use crate::error::CliError;
use crate::flags::{CallRule, EvalFlags, SamplingFlags};
use crate::load::{Loaded, load};
use crate::outfile::OutFile;
use crate::output::note;
use crate::plan::Work;
use crate::{report, target, text};

/// Dialogues between two notes about progress.
const NOTE_EVERY: usize = 20;

/// One line of the input.
#[derive(Debug, Deserialize)]
struct Dialogue {
    id: Value,
    messages: Vec<Message>,
    tools: Option<Vec<Value>>,
    think: Option<bool>,
    /// Calls that the answer should have, in any order.
    expected: Option<Vec<Wanted>>,
    /// What it is counted under.
    kind: Option<String>,
    tier: Option<String>,
}

pub(super) fn answer_all(flags: &EvalFlags, dialogues_path: &Path, out_path: &Path) -> anyhow::Result<()> {
    let dialogues = read(dialogues_path)?;
    let store = target::open(Some(&flags.model))?;
    let text_model = text::load(&store)?.check_template()?;
    // Scores should not depend on luck, unless that is asked for.
    let temperature = flags.sampling.temperature.or(Some(0.0));
    let options = GenerateOptions {
        sampling: text::sampling(&text_model, &SamplingFlags { temperature, ..flags.sampling.clone() })?,
        stop_ids: text_model.stop_ids().to_vec(),
        max_tokens: Some(flags.max_tokens),
        ..GenerateOptions::default()
    };
    let mut loaded =
        load(&store, &flags.engine, Work { n_ctx: None, n_feed: None, n_snapshot: 0, n_session: 1 })?;
    let failed = |source: io::Error| CliError::Io { path: out_path.to_owned(), action: "write", source };
    let mut out = OutFile::create(out_path).map_err(failed)?;
    let mut tally = Tally::default();
    for (i, dialogue) in dialogues.iter().enumerate() {
        let why = |error: anyhow::Error| error.context(format!("dialogue {}", dialogue.id));
        let (text, reply, tools) =
            answer(&mut loaded, &text_model, dialogue, &options, flags.calls).map_err(why)?;
        let finish = if reply.is_cut { "length" } else { "stop" };
        writeln!(out, "{}", json!({"id": dialogue.id, "text": text, "finish": finish})).map_err(failed)?;
        let bad_schema = |why| CliError::Input { path: dialogues_path.to_owned(), why };
        let verdict = judge(&reply, &tools, dialogue.expected.as_deref()).map_err(bad_schema)?;
        tally.add(&groups(dialogue), &verdict);
        if (i + 1) % NOTE_EVERY == 0 {
            note(format_args!("{} of {} dialogues", i + 1, dialogues.len()));
        }
    }
    out.finish().map_err(failed)?;
    note(format_args!("{}: {} answers", out_path.display(), dialogues.len()));
    note(tally.table());
    if flags.json {
        report::print(&tally)?;
    }
    Ok(())
}

/// Rows of the table that a dialogue counts in.
fn groups(dialogue: &Dialogue) -> Vec<String> {
    let of_kind: Vec<&str> = dialogue.tier.iter().chain(&dialogue.kind).map(String::as_str).collect();
    let mut groups = vec!["all".to_owned()];
    if !of_kind.is_empty() {
        groups.push(of_kind.join(" "));
    }
    match &dialogue.expected {
        Some(calls) if calls.is_empty() => groups.push("no call expected".into()),
        Some(_) => groups.push("calls expected".into()),
        None => {}
    }
    groups
}

/// The text as generated, thinking and tool calls with their tags; and how we read it.
fn answer(
    loaded: &mut Loaded,
    text: &TextModel,
    dialogue: &Dialogue,
    options: &GenerateOptions,
    rule: CallRule,
) -> anyhow::Result<(String, Reply, Vec<Tool>)> {
    let tools: Vec<Tool> = dialogue.tools.iter().flatten().map(Tool::from_json).collect::<Result<_, _>>()?;
    let is_expected = dialogue.expected.as_ref().is_some_and(|calls| !calls.is_empty());
    let request = ChatRequest {
        messages: dialogue.messages.clone(),
        tools: tools.clone(),
        thinking: dialogue.think,
        free_calls: rule == CallRule::Free,
        tool_choice: match rule {
            CallRule::Required if is_expected => ToolChoice::Required,
            _ => ToolChoice::Auto,
        },
        ..ChatRequest::default()
    };
    let prepared = text.prepare(&request)?;
    let options =
        GenerateOptions { output: prepared.output, constraint: prepared.constraint, ..options.clone() };
    let mut session = loaded.engine.session(loaded.plan.n_ctx);
    let mut model = Timeline { engine: &mut loaded.engine, session: &mut session };
    let mut reply = Reply::default();
    let mut on_event = |event: generate::Event<'_>| {
        reply.take(event);
        ControlFlow::Continue(())
    };
    let outcome = generate(&mut model, text.tokenizer(), &prepared.prompt.ids, &options, &mut on_event)?;
    reply.is_cut = !matches!(outcome.finish, Finish::Stop(_));
    Ok((text.tokenizer().decode(&outcome.generated, true), reply, tools))
}

fn read(path: &Path) -> Result<Vec<Dialogue>, CliError> {
    let failed = |source| CliError::Io { path: path.to_owned(), action: "read", source };
    let mut dialogues = Vec::new();
    for (i, line) in BufReader::new(File::open(path).map_err(failed)?).lines().enumerate() {
        let line = line.map_err(failed)?;
        if line.trim().is_empty() {
            continue;
        }
        let dialogue = serde_json::from_str(&line).map_err(|error| CliError::Input {
            path: path.to_owned(),
            why: format!("line {}: {error}", i + 1),
        })?;
        dialogues.push(dialogue);
    }
    Ok(dialogues)
}
