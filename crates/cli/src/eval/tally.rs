//! Counts of calls by group of dialogues, as a table and as JSON.

use std::collections::BTreeMap;
use std::fmt::Write;

use serde::Serialize;

use super::calls::Verdict;

/// Counts by group.
#[derive(Debug, Default, Serialize)]
#[serde(transparent)]
pub(super) struct Tally {
    groups: BTreeMap<String, Row>,
}

#[derive(Debug, Default, Serialize)]
struct Row {
    n_dialogue: usize,
    /// Dialogues whose answer has a call.
    n_calling: usize,
    n_call: usize,
    n_parsed: usize,
    n_valid: usize,
    /// Dialogues of which it is known what calls are expected, and those whose answer has exactly these.
    n_expecting: usize,
    n_exact: usize,
    /// Answers that a limit ended.
    n_cut: usize,
}

impl Tally {
    pub(super) fn add(&mut self, groups: &[String], verdict: &Verdict) {
        for group in groups {
            let row = self.groups.entry(group.clone()).or_default();
            row.n_dialogue += 1;
            row.n_calling += usize::from(verdict.n_call > 0);
            row.n_call += verdict.n_call;
            row.n_parsed += verdict.n_parsed;
            row.n_valid += verdict.n_valid;
            row.n_expecting += usize::from(verdict.is_exact.is_some());
            row.n_exact += usize::from(verdict.is_exact == Some(true));
            row.n_cut += usize::from(verdict.is_cut);
        }
    }

    /// For people.
    pub(super) fn table(&self) -> String {
        let width = self.groups.keys().map(String::len).max().unwrap_or(0);
        let mut out = format!(
            "{:width$} {:>9} {:>7} {:>6} {:>8} {:>8} {:>8} {:>4}",
            "", "dialogues", "calling", "calls", "parsed", "valid", "exact", "cut"
        );
        for (group, row) in &self.groups {
            let Row { n_dialogue, n_calling, n_call, n_cut, .. } = row;
            let (parsed, valid) = (percent(row.n_parsed, *n_call), percent(row.n_valid, *n_call));
            let exact = percent(row.n_exact, row.n_expecting);
            let _ = write!(
                out,
                "\n{group:width$} {n_dialogue:9} {n_calling:7} {n_call:6} {parsed:>8} {valid:>8} {exact:>8} {n_cut:4}"
            );
        }
        out
    }
}

fn percent(n: usize, of: usize) -> String {
    if of == 0 { "-".into() } else { format!("{:.1} %", 100.0 * n as f64 / of as f64) }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Shares would be of the wrong whole, or a line would miss a dialogue.
    #[test]
    fn rows_count_what_they_say() {
        let mut tally = Tally::default();
        let verdict = |n_call, is_exact| Verdict {
            n_call,
            n_parsed: n_call,
            n_valid: n_call.min(2),
            is_exact,
            is_cut: n_call > 2,
        };
        let groups = ["all".to_owned(), "one".to_owned()];
        tally.add(&groups, &verdict(1, Some(true)));
        tally.add(&groups[..1], &verdict(3, Some(false)));
        tally.add(&groups[..1], &verdict(0, None));
        let table = tally.table();
        let rows: Vec<Vec<&str>> = table.lines().map(|line| line.split_whitespace().collect()).collect();
        assert_eq!(rows[1].join(" "), "all 3 2 4 100.0 % 75.0 % 50.0 % 1");
        assert_eq!(rows[2].join(" "), "one 1 1 1 100.0 % 100.0 % 100.0 % 0");
    }
}
