//! `--matrix`: every model at every number of experts, on the same text and dialogues, compared with the first.
//!
//! A model is a *column*: a store as it is, or what `pack` makes of a checkpoint at some bits, made when its turn comes
//! and removed after it. Finished cells are kept in --out, so that an interrupted run goes on there.

mod chart;
mod columns;
mod state;
mod table;

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::Instant;

use store::Store;

use self::columns::Column;
use self::state::{CallsReport, Cell, Setting, State};
use super::dialogues::Dialogues;
use super::reference::n_top;
use super::text::{self, References, TextReport};
use crate::bytes::Census;
use crate::error::CliError;
use crate::flags::{EngineFlags, EvalFlags};
use crate::outfile::OutFile;
use crate::output::note;
use crate::report;

/// What is evaluated, and where things are kept.
struct Matrix<'a> {
    flags: &'a EvalFlags,
    columns: Vec<Column>,
    dialogues: Option<Dialogues>,
    /// Beside it: packed stores and the reference run, until all is done.
    work: PathBuf,
}

pub(in crate::eval) fn eval(flags: &EvalFlags) -> anyhow::Result<()> {
    let out = flags.out.as_deref().expect("--matrix comes with --out");
    let mut work = out.as_os_str().to_owned();
    work.push(".work");
    let dialogues = match &flags.dialogues {
        Some(path) => Some(Dialogues::read(path, flags.sample)?),
        None => None,
    };
    let matrix = Matrix { columns: columns::columns(flags)?, dialogues, flags, work: work.into() };
    let setting = Setting::of(flags, &matrix.columns[0], matrix.dialogues.as_ref())?;
    let mut state = State::open(out, setting)?;
    matrix.evaluate(&mut state)?;
    let names: Vec<&str> = matrix.columns.iter().map(|column| column.name.as_str()).collect();
    let cells = state.of_columns(&names);
    note(table::table(&cells));
    if let Some(path) = &flags.matrix.plot {
        let mut file = OutFile::create(path).map_err(|source| failed(path, "write", source))?;
        let written = file.write_all(chart::draw(&cells, &names).as_bytes()).and_then(|()| file.finish());
        written.map_err(|source| failed(path, "write", source))?;
    }
    if flags.json { report::print(&state) } else { Ok(()) }
}

/// As the result has it.
fn fingerprint(store: &Store) -> String {
    format!("{:016x}", store.fingerprint())
}

impl Matrix<'_> {
    /// All cells that are not there yet.
    fn evaluate(&self, state: &mut State) -> anyhow::Result<()> {
        let mut todo: Vec<Vec<usize>> = self
            .columns
            .iter()
            .map(|column| {
                let is_missing = |&k: &usize| state.find(&column.name, k).is_none();
                column.experts.iter().copied().filter(is_missing).collect()
            })
            .collect();
        if state.is_new() || todo.iter().all(Vec::is_empty) {
            // What is there is of another run, perhaps with other flags, or was left when all was done.
            self.remove_work()?;
        }
        let first = self.columns[0].experts[0];
        let is_any = todo.iter().any(|todo| !todo.is_empty());
        if is_any
            && !self.flags.text.text.is_empty()
            && !self.reference().exists()
            && todo[0].first() != Some(&first)
        {
            // What the others are compared with has to be made again.
            todo[0].insert(0, first);
        }
        let (mut n_done, n_all) = (0, todo.iter().map(Vec::len).sum::<usize>());
        for (i, (column, todo)) in self.columns.iter().zip(&todo).enumerate() {
            if todo.is_empty() {
                continue;
            }
            fs::create_dir_all(&self.work).map_err(|source| failed(&self.work, "create", source))?;
            let store = column.open(&self.work, &self.flags.matrix)?;
            state.check_weights(&column.name, &fingerprint(&store))?;
            for &n_expert_used in todo {
                n_done += 1;
                note(format_args!("cell {n_done} of {n_all}: {}, {n_expert_used} experts", column.name));
                let is_reference = i == 0 && n_expert_used == first;
                let cell = self.cell(&store, column, n_expert_used, is_reference)?;
                note(table::line(&cell));
                state.put(cell)?;
            }
            drop(store);
            column.close(&self.work)?;
        }
        Ok(self.remove_work()?)
    }

    fn cell(
        &self,
        store: &Store,
        column: &Column,
        n_expert_used: usize,
        is_reference: bool,
    ) -> anyhow::Result<Cell> {
        let start = Instant::now();
        let engine = EngineFlags { experts: vec![n_expert_used], ..self.flags.engine.clone() };
        let text = match self.flags.text.text.is_empty() {
            true => None,
            false => Some(self.text(store, &engine, is_reference)?),
        };
        let calls = match &self.dialogues {
            Some(dialogues) => Some(self.calls(store, &engine, dialogues)?),
            None => None,
        };
        let census = Census::of(store, n_expert_used);
        Ok(Cell {
            column: column.name.clone(),
            n_expert_used,
            fingerprint: fingerprint(store),
            store_bytes: store.dense_bytes() + census.expert_bytes,
            dense_bytes_per_token: census.dense_bytes_per_token,
            expert_bytes_per_token: census.expert_bytes_per_token,
            text,
            calls,
            seconds: start.elapsed().as_secs_f64(),
        })
    }

    fn reference(&self) -> PathBuf {
        self.work.join("reference.bin")
    }

    fn text(&self, store: &Store, engine: &EngineFlags, is_reference: bool) -> anyhow::Result<TextReport> {
        let flags = &self.flags.text;
        let (corpus, rule) = text::prepare(store, flags, engine)?;
        let n_top = n_top(flags.reference_top, store.config().n_vocab);
        let file = Some(self.reference());
        let references = match is_reference {
            true => References { save: file, compare: None },
            false => References { save: None, compare: file },
        };
        text::Task { store, corpus: &corpus, rule: &rule, n_top }.run(engine, &references)
    }

    fn calls(
        &self,
        store: &Store,
        engine: &EngineFlags,
        dialogues: &Dialogues,
    ) -> anyhow::Result<CallsReport> {
        let mut calls = CallsReport::default();
        dialogues.answer(store, self.flags, engine, &mut |dialogue, _, verdict| {
            calls.add(dialogue.wants_call(), verdict);
            Ok(())
        })?;
        Ok(calls)
    }

    /// Only what a run puts there: the name is not as rare as to be ours for certain.
    fn remove_work(&self) -> Result<(), CliError> {
        if !self.work.exists() {
            return Ok(());
        }
        self.columns.iter().try_for_each(|column| column.close(&self.work))?;
        let partial = self.reference().with_extension("bin.partial");
        for path in [self.reference(), partial].iter().filter(|path| path.exists()) {
            fs::remove_file(path).map_err(|source| failed(path, "remove", source))?;
        }
        if fs::remove_dir(&self.work).is_err() {
            note(format_args!("note: {} has other files, and stays", self.work.display()));
        }
        Ok(())
    }
}

fn failed(path: &Path, action: &'static str, source: std::io::Error) -> CliError {
    CliError::Io { path: path.to_owned(), action, source }
}
