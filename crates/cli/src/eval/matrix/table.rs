//! A matrix as a table, which is also Markdown.

use super::state::Cell;
use crate::eval::estimate::Estimate;

const HEAD: [&str; 12] = [
    "weights",
    "experts",
    "GB",
    "MB/token",
    "bits per byte",
    "change",
    "KL, nats",
    "99 % below",
    "same top, %",
    "valid, %",
    "exact, %",
    "change",
];

/// Columns that say which cell it is.
const N_HEAD_COLUMN: usize = 4;

/// A row a cell.
pub(super) fn table(cells: &[&Cell]) -> String {
    let rows: Vec<Vec<String>> = cells.iter().map(|cell| row(cell)).collect();
    let head: Vec<String> = HEAD.iter().map(|&name| name.to_owned()).collect();
    let is_used = |column: &usize| *column < N_HEAD_COLUMN || rows.iter().any(|row| row[*column] != "-");
    let used: Vec<usize> = (0..HEAD.len()).filter(is_used).collect();
    let width = |column: usize| {
        rows.iter().chain([&head]).map(|row| row[column].chars().count()).max().unwrap_or_default()
    };
    let line = |row: &Vec<String>| {
        let cells = used.iter().map(|&column| format!("{:width$}", row[column], width = width(column)));
        format!("| {} |", cells.collect::<Vec<_>>().join(" | "))
    };
    let rule: Vec<String> = used.iter().map(|&column| "-".repeat(width(column))).collect();
    let mut lines = vec![line(&head), format!("| {} |", rule.join(" | "))];
    lines.extend(rows.iter().map(line));
    lines.join("\n")
}

/// A cell on one line.
pub(super) fn line(cell: &Cell) -> String {
    let figures = HEAD.iter().zip(row(cell)).skip(N_HEAD_COLUMN).filter(|(_, figure)| figure != "-");
    let figures: Vec<String> = figures.map(|(name, figure)| format!("{name} {figure}")).collect();
    format!("{}; {:.0} s", figures.join(", "), cell.seconds)
}

fn row(cell: &Cell) -> Vec<String> {
    let dash = || "-".to_owned();
    let text = cell.text.as_ref();
    let reference = text.and_then(|text| text.reference.as_ref());
    let calls = cell.calls.as_ref();
    let percent = |share: Option<Estimate>| share.map_or_else(dash, |share| share.map(|p| 100.0 * p).show(1));
    let change =
        |change: Option<Estimate>, digits| change.map_or_else(dash, |change| signed(&change, digits));
    let token_bytes = cell.dense_bytes_per_token + cell.expert_bytes_per_token;
    vec![
        cell.column.clone(),
        cell.n_expert_used.to_string(),
        format!("{:.3}", cell.store_bytes as f64 / 1e9),
        format!("{:.2}", token_bytes as f64 / 1e6),
        text.map_or_else(dash, |text| text.bits_per_byte.show(3)),
        change(reference.map(|r| r.bits_per_byte_change), 4),
        reference.map_or_else(dash, |r| small(&r.kl_mean)),
        reference.map_or_else(dash, |r| format!("{:.2e}", r.kl_p99)),
        reference.map_or_else(dash, |r| r.same_top.map(|share| 100.0 * share).show(1)),
        percent(calls.and_then(|calls| calls.valid)),
        percent(calls.and_then(|calls| calls.exact)),
        change(calls.and_then(|calls| calls.exact_change).map(|share| share.map(|p| 100.0 * p)), 1),
    ]
}

fn signed(change: &Estimate, digits: usize) -> String {
    let sign = if change.value < 0.0 { "" } else { "+" };
    format!("{sign}{}", change.show(digits))
}

/// A number of any magnitude, with two digits of its interval.
fn small(estimate: &Estimate) -> String {
    let half = estimate.half_width().map(|half| format!(" ±{half:.0e}"));
    format!("{:.2e}{}", estimate.value, half.unwrap_or_default())
}
