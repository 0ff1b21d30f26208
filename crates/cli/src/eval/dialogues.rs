//! Answers to conversations in a file, exactly as generated, and what their calls of tools are worth.

use std::collections::HashSet;
use std::fs::File;
use std::io::{self, BufRead, BufReader, Write};
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};

use generate::{ChatRequest, Finish, GenerateOptions, Message, TextModel, Tool, ToolChoice, generate};
use model::Timeline;
use serde::Deserialize;
use serde_json::{Value, json};
use store::Store;
use xxhash_rust::xxh3::{Xxh3, xxh3_64};

use super::calls::{Reply, Verdict, Wanted, judge};
use super::tally::Tally;
use crate::error::CliError;
use crate::flags::{CallRule, EngineFlags, EvalFlags, SamplingFlags};
use crate::load::{Loaded, load};
use crate::outfile::OutFile;
use crate::output::note;
use crate::plan::Work;
use crate::{report, target, text};

/// Dialogues between two notes about progress.
const NOTE_EVERY: usize = 20;

/// One line of the input.
#[derive(Debug, Deserialize)]
pub(super) struct Dialogue {
    id: Value,
    messages: Vec<Message>,
    tools: Option<Vec<Value>>,
    think: Option<bool>,
    /// Calls that the answer should have, in any order.
    expected: Option<Vec<Wanted>>,
    /// What it is counted under.
    kind: Option<String>,
    tier: Option<String>,
    /// As it stands in the file.
    #[serde(skip)]
    line: String,
}

/// A file of them.
pub(super) struct Dialogues {
    path: PathBuf,
    all: Vec<Dialogue>,
    /// Names what was read.
    pub(super) hash: String,
}

/// `eval --dialogues`
pub(super) fn eval(flags: &EvalFlags, dialogues_path: &Path, out_path: &Path) -> anyhow::Result<()> {
    let dialogues = Dialogues::read(dialogues_path, flags.sample)?;
    let store = target::open(flags.model.first().map(PathBuf::as_path))?;
    let failed = |source: io::Error| CliError::Io { path: out_path.to_owned(), action: "write", source };
    let mut out = OutFile::create(out_path).map_err(failed)?;
    let mut tally = Tally::default();
    dialogues.answer(&store, flags, &flags.engine, &mut |dialogue, text, verdict| {
        let finish = if verdict.is_cut { "length" } else { "stop" };
        tally.add(&groups(dialogue), verdict);
        writeln!(out, "{}", json!({"id": dialogue.id, "text": text, "finish": finish})).map_err(failed)
    })?;
    out.finish().map_err(failed)?;
    note(format_args!("{}: {} answers", out_path.display(), dialogues.all.len()));
    note(tally.table());
    if flags.json {
        report::print(&tally)?;
    }
    Ok(())
}

/// Keeps `n` of `all`, in their order: those whose lines have the smallest hashes. That is always the same choice, a
/// larger one has the smaller one in it, and files in which kinds take turns lose none of them.
fn keep_sample<T>(all: &mut Vec<T>, n: usize, line: impl Fn(&T) -> &[u8]) {
    let mut hashes: Vec<(u64, usize)> =
        all.iter().enumerate().map(|(i, one)| (xxh3_64(line(one)), i)).collect();
    hashes.sort_unstable();
    let chosen: HashSet<usize> = hashes.into_iter().take(n).map(|(_, i)| i).collect();
    let mut i = 0..;
    all.retain(|_| i.next().is_some_and(|i| chosen.contains(&i)));
}

impl Dialogues {
    /// Reads a file, or `sample` lines of it.
    pub(super) fn read(path: &Path, sample: Option<usize>) -> Result<Self, CliError> {
        let mut all = read(path)?;
        if all.is_empty() {
            return Err(CliError::Input {
                path: path.to_owned(),
                why: "there are no dialogues in it".into(),
            });
        }
        if let Some(n) = sample.filter(|&n| n < all.len()) {
            keep_sample(&mut all, n, |dialogue| dialogue.line.as_bytes());
        }
        let mut hash = Xxh3::new();
        for dialogue in &all {
            hash.update(dialogue.line.as_bytes());
            hash.update(b"\n");
        }
        Ok(Self { path: path.to_owned(), all, hash: format!("{:016x}", hash.digest()) })
    }

    /// Loads the model and answers all; `take` gets each answer as generated, and what its calls are worth.
    pub(super) fn answer(
        &self,
        store: &Store,
        flags: &EvalFlags,
        engine: &EngineFlags,
        take: &mut dyn FnMut(&Dialogue, &str, &Verdict) -> Result<(), CliError>,
    ) -> anyhow::Result<()> {
        let text_model = text::load(store)?.check_template()?;
        // Scores should not depend on luck, unless that is asked for.
        let temperature = flags.sampling.temperature.or(Some(0.0));
        let options = GenerateOptions {
            sampling: text::sampling(&text_model, &SamplingFlags { temperature, ..flags.sampling.clone() })?,
            stop_ids: text_model.stop_ids().to_vec(),
            max_tokens: Some(flags.max_tokens),
            close_at_limit: flags.close_at_limit,
            ..GenerateOptions::default()
        };
        let work = Work { n_ctx: None, n_feed: None, keeps_prefixes: false, n_session: 1 };
        let mut loaded = load(store, engine, work)?;
        for (i, dialogue) in self.all.iter().enumerate() {
            let why = |error: anyhow::Error| error.context(format!("dialogue {}", dialogue.id));
            let (text, reply, tools) =
                answer(&mut loaded, &text_model, dialogue, &options, flags.calls).map_err(why)?;
            let bad_schema = |why| CliError::Input { path: self.path.clone(), why };
            let verdict = judge(&reply, &tools, dialogue.expected.as_deref()).map_err(bad_schema)?;
            take(dialogue, &text, &verdict)?;
            if (i + 1) % NOTE_EVERY == 0 {
                note(format_args!("{} of {} dialogues", i + 1, self.all.len()));
            }
        }
        Ok(())
    }
}

impl Dialogue {
    /// Whether the answer should have a call, if anybody said.
    pub(super) fn wants_call(&self) -> Option<bool> {
        self.expected.as_ref().map(|calls| !calls.is_empty())
    }
}

/// Rows of the table that a dialogue counts in.
fn groups(dialogue: &Dialogue) -> Vec<String> {
    let of_kind: Vec<&str> = dialogue.tier.iter().chain(&dialogue.kind).map(String::as_str).collect();
    let mut groups = vec!["all".to_owned()];
    if !of_kind.is_empty() {
        groups.push(of_kind.join(" "));
    }
    match dialogue.wants_call() {
        Some(true) => groups.push("calls expected".into()),
        Some(false) => groups.push("no call expected".into()),
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
    let is_expected = dialogue.wants_call() == Some(true);
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
        let dialogue: Dialogue = serde_json::from_str(&line).map_err(|error| CliError::Input {
            path: path.to_owned(),
            why: format!("line {}: {error}", i + 1),
        })?;
        dialogues.push(Dialogue { line, ..dialogue });
    }
    Ok(dialogues)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every fourth line of a file in which four kinds take turns is of one kind: a score would be of that kind alone.
    #[test]
    fn samples_have_all_kinds() {
        let lines: Vec<String> = (0..480).map(|i| format!("{} {i}", ["a", "b", "c", "d"][i % 4])).collect();
        let sample = |n| {
            let mut kept = lines.clone();
            keep_sample(&mut kept, n, |line| line.as_bytes());
            kept
        };
        let kept = sample(120);
        assert_eq!(kept.len(), 120);
        for kind in ["a", "b", "c", "d"] {
            let n = kept.iter().filter(|line| line.starts_with(kind)).count();
            assert!((20..=40).contains(&n), "{n} of 120 are of kind {kind}");
        }
        assert!(kept.is_sorted_by_key(|line| lines.iter().position(|other| other == line)));
        assert!(
            sample(60).iter().all(|line| kept.contains(line)),
            "a smaller sample is a part of a larger one"
        );
    }
}
