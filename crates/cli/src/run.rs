//! `run`: one answer.

use std::io::{self, IsTerminal, Read};

use generate::{ChatRequest, Finish, GenerateOptions, Message};
use serde::Serialize;

use crate::answer::{Answer, answer};
use crate::error::CliError;
use crate::flags::{ChatFlags, RunFlags};
use crate::interrupt::Answering;
use crate::load::load_warm;
use crate::meter::Metered;
use crate::plan::Work;
use crate::report::{Phases, Setting};
use crate::{chat, report, target, text};

/// `--json` of `run`.
#[derive(Serialize)]
struct RunReport<'a> {
    #[serde(flatten)]
    setting: Setting,
    seed: u64,
    text: &'a str,
    thinking: &'a str,
    finish_reason: &'static str,
    phases: Phases,
}

/// Returns false if the user interrupted the answer.
pub(crate) fn run(flags: RunFlags) -> anyhow::Result<bool> {
    let (model, prompt) = target::model_and_prompt(flags.first, flags.second)?;
    if prompt.is_none() && io::stdin().is_terminal() {
        if flags.raw || flags.json || flags.record_routing.is_some() {
            return Err(CliError::Usage("--raw, --json and --record-routing need a prompt".into()).into());
        }
        chat::chat(ChatFlags { model, answer: flags.answer, engine: flags.engine })?;
        return Ok(true);
    }
    let prompt = match prompt {
        Some(prompt) if prompt != "-" => prompt,
        _ => from_stdin()?,
    };
    if prompt.trim().is_empty() {
        return Err(CliError::EmptyPrompt.into());
    }
    let store = target::open(model.as_deref())?;
    let text_model = text::load(&store)?;
    let sampling = text::sampling(&text_model, &flags.answer.sampling)?;
    let prepared = if flags.raw {
        text_model.prepare_raw(prompt)?
    } else {
        let messages = vec![Message::user(prompt.trim_end())];
        let thinking = text::thinking(flags.answer.think);
        text_model.prepare(&ChatRequest { messages, thinking, ..ChatRequest::default() })?
    };
    text::tell_warnings(&prepared);
    let prompt = &prepared.prompt;
    let options = GenerateOptions {
        sampling,
        stop_ids: text_model.stop_ids().to_vec(),
        max_tokens: flags.answer.max_tokens,
        output: prepared.output.clone(),
        ..GenerateOptions::default()
    };
    let mut loaded = load_warm(
        &store,
        &flags.engine,
        Work { n_ctx: None, n_feed: Some(prompt.ids.len()), n_snapshot: 0, n_session: 1 },
    )?;
    if flags.answer.timing {
        kernels::Backend::measure(loaded.engine.backend());
    }
    if flags.record_routing.is_some() {
        loaded.engine.record_routing();
    }
    let mut session = loaded.engine.session(loaded.plan.n_ctx);
    let metered = Metered::new(&mut loaded.engine, &mut session, prompt.ids.len());
    let mut metered = metered.shown(flags.engine.verbose);
    let answer = answer(&mut metered, &text_model, prompt, &options, &Answering::begin(), flags.json)?;
    loaded.finish();
    answer.status(flags.engine.verbose, flags.answer.timing);
    if let Some((path, trace)) = flags.record_routing.zip(loaded.engine.take_routing()) {
        trace.write(&path)?;
    }
    if flags.json {
        print(Setting::of(&store, &loaded), options.sampling.seed, &answer)?;
    }
    Ok(answer.finish != Finish::Interrupted)
}

fn print(setting: Setting, seed: u64, answer: &Answer) -> anyhow::Result<()> {
    report::print(&RunReport {
        setting,
        seed,
        text: &answer.text,
        thinking: &answer.thinking,
        finish_reason: answer.finish_reason(),
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
