//! The result of a matrix, which is also where an interrupted run goes on.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use xxhash_rust::xxh3::Xxh3;

use super::columns::Column;
use super::failed;
use crate::error::CliError;
use crate::eval::calls::Verdict;
use crate::eval::corpus::read_bytes;
use crate::eval::dialogues::Dialogues;
use crate::eval::estimate::Estimate;
use crate::eval::text::TextReport;
use crate::flags::{EvalFlags, SamplingFlags};
use crate::outfile::OutFile;

const VERSION: u64 = 1;

/// All cells that are done.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct State {
    matrix_version: u64,
    setting: Setting,
    cells: Vec<Cell>,
    #[serde(skip)]
    path: PathBuf,
}

/// What must be the same for cells to be comparable, as it was typed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Setting {
    /// What all cells are compared with.
    reference: String,
    reference_experts: usize,
    /// Hash of the files of text.
    text: Option<String>,
    windows: String,
    /// Hash of the dialogues.
    dialogues: Option<String>,
    answers: String,
    pack_args: Vec<String>,
    engine: String,
}

/// One model with one number of experts.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Cell {
    pub(super) column: String,
    pub(super) n_expert_used: usize,
    /// Hash that names the weights.
    pub(super) fingerprint: String,
    pub(super) store_bytes: u64,
    /// What a token reads of weights that are not in routed experts, and of these.
    pub(super) dense_bytes_per_token: u64,
    pub(super) expert_bytes_per_token: u64,
    pub(super) text: Option<TextReport>,
    pub(super) calls: Option<CallsReport>,
    /// That it took.
    pub(super) seconds: f64,
}

/// What calls are worth.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(super) struct CallsReport {
    n_dialogue: usize,
    n_calling: usize,
    n_call: usize,
    n_parsed: usize,
    n_valid: usize,
    n_cut: usize,
    /// Share of the calls that are as their tool's schema wants them.
    pub(super) valid: Option<Estimate>,
    /// Share of the dialogues that want calls whose answer has exactly these.
    pub(super) exact: Option<Estimate>,
    /// The same minus that of the reference, dialogue by dialogue.
    pub(super) exact_change: Option<Estimate>,
    /// Share of the dialogues that want no call whose answer has none.
    pub(super) exact_without: Option<Estimate>,
    /// A letter a dialogue: calls wanted and exact `E` or not `e`; none wanted and none made `N` or some `n`; `-` if
    /// nobody said what is wanted.
    outcomes: String,
}

impl Setting {
    /// Of what was typed.
    ///
    /// # Errors
    /// A file of text cannot be read.
    pub(super) fn of(
        flags: &EvalFlags,
        reference: &Column,
        dialogues: Option<&Dialogues>,
    ) -> Result<Self, CliError> {
        let (text, engine) = (&flags.text, &flags.engine);
        let mut hash = Xxh3::new();
        for path in &text.text {
            let bytes = read_bytes(path)?;
            hash.update(&(bytes.len() as u64).to_le_bytes());
            hash.update(&bytes);
        }
        let SamplingFlags { seed, .. } = flags.sampling;
        if dialogues.is_some() && flags.sampling.temperature.is_some_and(|t| t > 0.0) && seed.is_none() {
            let why = "--matrix with --temperature needs a --seed, so that cells can be compared";
            return Err(CliError::Usage(why.into()));
        }
        let answers = (flags.max_tokens, flags.calls, &flags.sampling);
        let windows = (text.text_bytes, text.window, text.stride, text.counting, text.reference_top);
        Ok(Self {
            reference: reference.name.clone(),
            reference_experts: reference.experts[0],
            text: (!text.text.is_empty()).then(|| format!("{:016x}", hash.digest())),
            windows: format!("{windows:?}"),
            dialogues: dialogues.map(|dialogues| dialogues.hash.clone()),
            answers: format!("{answers:?}"),
            pack_args: flags.matrix.pack_args.iter().map(|arg| arg.to_string_lossy().into_owned()).collect(),
            engine: format!("{:?}", (engine.kv, engine.activations, engine.ctx)),
        })
    }

    /// What differs, for an error.
    fn difference(&self, other: &Self) -> Option<&'static str> {
        let differs = [
            ("the first model", self.reference != other.reference),
            ("the first number of --experts", self.reference_experts != other.reference_experts),
            ("the text", self.text != other.text),
            (
                "how the text is cut (--text-bytes, --window, --stride, --counting, --reference-top)",
                self.windows != other.windows,
            ),
            ("the dialogues", self.dialogues != other.dialogues),
            ("how dialogues are answered (--max-tokens, --calls, sampling)", self.answers != other.answers),
            ("the flags for pack", self.pack_args != other.pack_args),
            ("--kv, --activations or --ctx", self.engine != other.engine),
        ];
        differs.into_iter().find_map(|(what, differs)| differs.then_some(what))
    }
}

impl State {
    /// What an earlier run left at `path`, or nothing yet.
    ///
    /// # Errors
    /// The file is something else, or of another matrix.
    pub(super) fn open(path: &Path, setting: Setting) -> Result<Self, CliError> {
        let bad = |why| CliError::Input { path: path.to_owned(), why };
        let bytes = match fs::read(path) {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                let path = path.to_owned();
                return Ok(Self { matrix_version: VERSION, setting, cells: Vec::new(), path });
            }
            Err(source) => return Err(failed(path, "read", source)),
        };
        let state: Self = serde_json::from_slice(&bytes)
            .map_err(|error| bad(format!("exists, and is not the result of a matrix: {error}")))?;
        if state.matrix_version != VERSION {
            return Err(bad(format!(
                "version {} of a matrix, this program writes {VERSION}",
                state.matrix_version
            )));
        }
        if let Some(what) = state.setting.difference(&setting) {
            return Err(bad(format!("of another matrix: {what} differs; remove it or name another --out")));
        }
        Ok(Self { path: path.to_owned(), ..state })
    }

    /// Nothing is done yet.
    pub(super) fn is_new(&self) -> bool {
        self.cells.is_empty()
    }

    pub(super) fn find(&self, column: &str, n_expert_used: usize) -> Option<&Cell> {
        self.cells.iter().find(|cell| cell.column == column && cell.n_expert_used == n_expert_used)
    }

    /// Refuses a model that is not the one that earlier cells of its column are of.
    pub(super) fn check_weights(&self, column: &str, fingerprint: &str) -> Result<(), CliError> {
        let is_other = |other: &&Cell| other.column == column && other.fingerprint != fingerprint;
        let Some(other) = self.cells.iter().find(is_other) else { return Ok(()) };
        let why = format!(
            "'{column}' was other weights when its cell with {} experts was made; remove this file or name another --out",
            other.n_expert_used
        );
        Err(CliError::Input { path: self.path.clone(), why })
    }

    /// Keeps a cell, and writes all.
    ///
    /// # Errors
    /// The file cannot be written.
    pub(super) fn put(&mut self, mut cell: Cell) -> anyhow::Result<()> {
        self.cells.retain(|old| old.column != cell.column || old.n_expert_used != cell.n_expert_used);
        let reference = self.find(&self.setting.reference, self.setting.reference_experts);
        if let (Some(calls), Some(reference)) =
            (&mut cell.calls, reference.and_then(|cell| cell.calls.as_ref()))
        {
            calls.compare(reference);
        }
        self.cells.push(cell);
        let mut file = OutFile::create(&self.path).map_err(|source| failed(&self.path, "write", source))?;
        serde_json::to_writer_pretty(&mut file, self)?;
        let written = file.write_all(b"\n").and_then(|()| file.finish());
        Ok(written.map_err(|source| failed(&self.path, "write", source))?)
    }

    /// Cells of these columns, in their order, many experts first.
    pub(super) fn of_columns(&self, names: &[&str]) -> Vec<&Cell> {
        let cells_of = |name: &&str| {
            let mut cells: Vec<&Cell> = self.cells.iter().filter(|cell| cell.column == *name).collect();
            cells.sort_by_key(|cell| std::cmp::Reverse(cell.n_expert_used));
            cells
        };
        names.iter().flat_map(cells_of).collect()
    }
}

impl CallsReport {
    /// One more answer.
    pub(super) fn add(&mut self, wants_call: Option<bool>, verdict: &Verdict) {
        self.n_dialogue += 1;
        self.n_calling += usize::from(0 < verdict.n_call);
        self.n_call += verdict.n_call;
        self.n_parsed += verdict.n_parsed;
        self.n_valid += verdict.n_valid;
        self.n_cut += usize::from(verdict.is_cut);
        self.outcomes.push(match (wants_call, verdict.is_exact == Some(true)) {
            (None, _) => '-',
            (Some(true), true) => 'E',
            (Some(true), false) => 'e',
            (Some(false), true) => 'N',
            (Some(false), false) => 'n',
        });
        let count = |letter: char| self.outcomes.chars().filter(|&c| c == letter).count();
        let share = |hit: char, missed: char| Estimate::share(count(hit), count(hit) + count(missed));
        (self.exact, self.exact_without) = (share('E', 'e'), share('N', 'n'));
        self.valid = Estimate::share(self.n_valid, self.n_call);
    }

    /// With another model's answers to the same dialogues.
    fn compare(&mut self, reference: &Self) {
        let hit = |letter: char| match letter {
            'E' => Some(1.0),
            'e' => Some(0.0),
            _ => None,
        };
        let pairs = self.outcomes.chars().zip(reference.outcomes.chars());
        let changes: Vec<f64> = pairs.filter_map(|(ours, theirs)| Some(hit(ours)? - hit(theirs)?)).collect();
        let n = changes.len() as f64;
        if n < 2.0 {
            return;
        }
        let mean = changes.iter().sum::<f64>() / n;
        let variance = changes.iter().map(|d| (d - mean) * (d - mean)).sum::<f64>() / (n - 1.0);
        self.exact_change = Some(Estimate::around(mean, (variance / n).sqrt()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn setting() -> Setting {
        Setting {
            reference: "source".into(),
            reference_experts: 6,
            text: Some("t".into()),
            windows: "w".into(),
            dialogues: None,
            answers: "a".into(),
            pack_args: Vec::new(),
            engine: "e".into(),
        }
    }

    fn cell(column: &str, n_expert_used: usize, fingerprint: &str, verdicts: &[Option<bool>]) -> Cell {
        let mut calls = CallsReport::default();
        for &is_exact in verdicts {
            let verdict = Verdict { n_call: 2, n_parsed: 2, n_valid: 1, is_exact, is_cut: false };
            calls.add(is_exact.map(|_| true), &verdict);
        }
        Cell {
            column: column.into(),
            n_expert_used,
            fingerprint: fingerprint.into(),
            store_bytes: 1,
            dense_bytes_per_token: 1,
            expert_bytes_per_token: 1,
            text: None,
            calls: Some(calls),
            seconds: 1.0,
        }
    }

    /// Finished cells would be lost, or cells of unlike runs stand in one table.
    #[test]
    fn a_run_goes_on_where_it_stopped() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("out.json");
        let mut state = State::open(&path, setting()).unwrap();
        assert!(state.is_new());
        state.put(cell("source", 6, "f", &[Some(true), Some(true), None])).unwrap();
        state.put(cell("2", 6, "g", &[Some(true), Some(false), None])).unwrap();
        let mut state = State::open(&path, setting()).unwrap();
        assert!(state.find("source", 6).is_some() && state.find("source", 4).is_none());
        let change = |state: &State, column| state.find(column, 6)?.calls.as_ref()?.exact_change;
        assert_eq!(change(&state, "2").unwrap().value, -0.5);
        assert_eq!(change(&state, "source"), None, "the reference has nothing to be compared with");
        state.put(cell("source", 4, "f", &[])).unwrap();
        let shown: Vec<usize> = state.of_columns(&["2", "source"]).iter().map(|c| c.n_expert_used).collect();
        assert_eq!(shown, [6, 6, 4]);
        state.check_weights("source", "f").unwrap();
        let error = state.check_weights("source", "changed").unwrap_err().to_string();
        assert!(error.contains("other weights"), "{error}");
        let other = Setting { windows: "v".into(), ..setting() };
        let error = State::open(&path, other).unwrap_err().to_string();
        assert!(error.contains("how the text is cut"), "{error}");
        fs::write(&path, "{}").unwrap();
        let error = State::open(&path, setting()).unwrap_err().to_string();
        assert!(error.contains("not the result of a matrix"), "{error}");
    }

    /// Shares would be of the wrong dialogues: those that want no call make a broken model look good.
    #[test]
    fn shares_are_of_those_that_are_meant() {
        let mut calls = CallsReport::default();
        let verdict = |n_call, is_exact| Verdict {
            n_call,
            n_parsed: n_call,
            n_valid: n_call,
            is_exact: Some(is_exact),
            is_cut: false,
        };
        calls.add(Some(false), &verdict(0, true));
        calls.add(Some(false), &verdict(0, true));
        calls.add(Some(true), &verdict(0, false));
        calls.add(Some(true), &verdict(3, true));
        assert_eq!(calls.outcomes, "NNeE");
        let share = |estimate: Option<Estimate>| estimate.unwrap().value;
        assert_eq!((share(calls.exact), share(calls.exact_without), share(calls.valid)), (0.5, 1.0, 1.0));
    }
}
