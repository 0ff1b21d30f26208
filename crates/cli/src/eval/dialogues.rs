//! Answers to conversations in a file, exactly as generated, for scoring elsewhere.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Write};
use std::ops::ControlFlow;
use std::path::Path;

use generate::{ChatRequest, GenerateOptions, Message, OutputSpec, TextModel, Tool, generate};
use model::Timeline;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::error::CliError;
use crate::flags::{EvalFlags, SamplingFlags};
use crate::load::{Loaded, load};
use crate::outfile::OutFile;
use crate::output::note;
use crate::plan::Work;
use crate::{target, text};

/// Dialogues between two notes about progress.
const NOTE_EVERY: usize = 20;

/// One line of the input; other fields are for the scorer.
#[derive(Debug, Deserialize)]
struct Dialogue {
    id: Value,
    messages: Vec<Message>,
    tools: Option<Vec<Value>>,
    think: Option<bool>,
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
        output: OutputSpec { raw: true, ..OutputSpec::default() },
        ..GenerateOptions::default()
    };
    let mut loaded =
        load(&store, &flags.engine, Work { n_ctx: None, n_feed: None, n_snapshot: 0, n_session: 1 })?;
    let failed = |source: io::Error| CliError::Io { path: out_path.to_owned(), action: "write", source };
    let mut out = OutFile::create(out_path).map_err(failed)?;
    for (i, dialogue) in dialogues.iter().enumerate() {
        let answer = answer(&mut loaded, &text_model, dialogue, &options)?;
        writeln!(out, "{}", json!({"id": dialogue.id, "text": answer})).map_err(failed)?;
        if (i + 1) % NOTE_EVERY == 0 {
            note(format_args!("{} of {} dialogues", i + 1, dialogues.len()));
        }
    }
    out.finish().map_err(failed)?;
    note(format_args!("{}: {} answers", out_path.display(), dialogues.len()));
    Ok(())
}

/// The text as generated: thinking and tool calls with their tags.
fn answer(
    loaded: &mut Loaded,
    text: &TextModel,
    dialogue: &Dialogue,
    options: &GenerateOptions,
) -> anyhow::Result<String> {
    let tools = dialogue.tools.iter().flatten().map(Tool::from_json).collect::<Result<_, _>>()?;
    let request = ChatRequest {
        messages: dialogue.messages.clone(),
        tools,
        thinking: dialogue.think,
        ..ChatRequest::default()
    };
    let prompt = text.prepare(&request)?.prompt;
    let mut session = loaded.engine.session(loaded.plan.n_ctx);
    let mut model = Timeline { engine: &mut loaded.engine, session: &mut session };
    let on_event = &mut |_: generate::Event<'_>| ControlFlow::Continue(());
    let outcome = generate(&mut model, text.tokenizer(), &prompt.ids, options, on_event)?;
    Ok(text.tokenizer().decode(&outcome.generated, true))
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
