//! A matrix as a picture: a panel each for bits per byte, divergence and exact calls; a line a number of experts.

use super::state::Cell;
use crate::axes::{COLOURS, Frame, HEADER, LEFT, PANEL, PLOT, RIGHT, WIDTH};
use crate::eval::estimate::Estimate;
use crate::svg::{Anchor, Svg};

/// Space above and below the data, as a share of their range.
const MARGIN: f64 = 0.06;
/// Smaller divergences are drawn as this.
const KL_MIN: f64 = 1e-9;
/// Half the width of the ends of an interval.
const CAP: f64 = 3.0;

/// A panel.
struct Panel {
    title: &'static str,
    axis: &'static str,
    /// Of a cell, if it has it.
    value: fn(&Cell) -> Option<Estimate>,
    show: fn(f64) -> String,
}

const PANELS: [Panel; 3] = [
    Panel {
        title: "bits per byte of the text",
        axis: "bits per byte",
        value: |cell| Some(cell.text.as_ref()?.bits_per_byte),
        show: |y| y.to_string(),
    },
    Panel {
        title: "divergence from the first model with all its experts, mean of all tokens",
        axis: "KL, nats",
        value: |cell| {
            let kl = cell.text.as_ref()?.reference.as_ref()?.kl_mean;
            Some(kl.map(|kl| kl.max(KL_MIN).log10()))
        },
        show: |y| format!("1e{y}"),
    },
    Panel {
        title: "dialogues with exactly the expected calls",
        axis: "exact, %",
        value: |cell| Some(cell.calls.as_ref()?.exact?.map(|share| 100.0 * share)),
        show: |y| y.to_string(),
    },
];

/// Of cells in these columns, from left to right. Bars are 95 % confidence intervals.
pub(super) fn draw(cells: &[&Cell], columns: &[&str]) -> String {
    let has_data = |panel: &&Panel| cells.iter().any(|cell| (panel.value)(cell).is_some());
    let panels: Vec<&Panel> = PANELS.iter().filter(has_data).collect();
    let mut experts: Vec<usize> = cells.iter().map(|cell| cell.n_expert_used).collect();
    experts.sort_unstable_by(|a, b| b.cmp(a));
    experts.dedup();
    let mut svg = Svg::new(WIDTH, HEADER + PANEL * panels.len() as f64);
    svg.title((LEFT, 22.0), "quality by weights and experts a token (bars: 95 % confidence intervals)");
    legend(&mut svg, &experts);
    for (i, panel) in panels.into_iter().enumerate() {
        draw_panel(&mut svg, HEADER + PANEL * i as f64, panel, cells, columns, &experts);
    }
    svg.finish()
}

/// Colour and dashes of a line.
fn style(i: usize) -> (&'static str, &'static str) {
    (COLOURS[i % COLOURS.len()], if i < COLOURS.len() { "" } else { "6 3" })
}

fn legend(svg: &mut Svg, experts: &[usize]) {
    let step = ((WIDTH - LEFT - RIGHT) / experts.len().max(1) as f64).min(130.0);
    for (i, n) in experts.iter().enumerate() {
        let (x, (colour, dash)) = (LEFT + step * i as f64, style(i));
        svg.line(&[(x, 44.0), (x + 20.0, 44.0)], colour, 2.0, dash);
        svg.text((x + 26.0, 48.0), Anchor::Start, &format!("{n} experts"));
    }
}

fn draw_panel(svg: &mut Svg, top: f64, panel: &Panel, cells: &[&Cell], columns: &[&str], experts: &[usize]) {
    let ends = |e: Estimate| e.ci95.unwrap_or([e.value; 2]);
    let values = || cells.iter().filter_map(|cell| (panel.value)(cell)).flat_map(ends);
    let (low, high) = (values().fold(f64::INFINITY, f64::min), values().fold(f64::NEG_INFINITY, f64::max));
    let margin = ((high - low) * MARGIN).max(low.abs() * 1e-3).max(1e-6);
    let frame =
        Frame { top: top + 30.0, x_max: columns.len() as f64, y_min: low - margin, y_max: high + margin };
    svg.title((LEFT, top + 18.0), panel.title);
    frame.y_axis(svg, panel.axis, panel.show);
    for (i, name) in columns.iter().enumerate() {
        svg.text((frame.x(i as f64 + 0.5), frame.top + PLOT + 16.0), Anchor::Middle, name);
    }
    frame.x_name(svg, "weights");
    // Side by side, so that intervals can be told apart.
    let shift = |j: usize| 0.08 * (j as f64 - (experts.len() - 1) as f64 / 2.0);
    for (j, &n) in experts.iter().enumerate() {
        let (colour, dash) = style(j);
        let points: Vec<(f64, Estimate)> = (columns.iter().enumerate())
            .filter_map(|(i, name)| {
                let cell = cells.iter().find(|cell| cell.column == *name && cell.n_expert_used == n)?;
                Some((frame.x(i as f64 + 0.5 + shift(j)), (panel.value)(cell)?))
            })
            .collect();
        let line: Vec<(f64, f64)> = points.iter().map(|(x, e)| (*x, frame.y(e.value))).collect();
        svg.line(&line, colour, 1.5, dash);
        for (x, estimate) in points {
            let [low, high] = ends(estimate).map(|y| frame.y(y));
            svg.line(&[(x, low), (x, high)], colour, 1.0, "");
            for y in [low, high] {
                svg.line(&[(x - CAP, y), (x + CAP, y)], colour, 1.0, "");
            }
            svg.dot((x, frame.y(estimate.value)), colour);
        }
    }
    frame.border(svg);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cell(column: &str, n_expert_used: usize, calls: bool) -> Cell {
        let estimate = |value: f64| serde_json::json!({ "value": value, "ci95": [value - 0.1, value + 0.1] });
        let text = serde_json::json!({
            "text_hash": "", "n_document": 1, "n_token": 9, "n_counted": 8, "counted_bytes": 30,
            "rule": { "window": 9, "stride": 4, "second_halves": false }, "perplexity": estimate(8.0),
            "bits_per_byte": estimate(n_expert_used as f64), "n_fed": 9, "seconds": 1.0, "tok_s": 9.0,
            "reference": { "model": "", "fingerprint": "", "n_expert_used": 6, "perplexity": 7.0,
                "bits_per_byte": 2.0, "perplexity_change": estimate(1.0), "bits_per_byte_change": estimate(1.0),
                "kl_mean": estimate(0.0), "kl_median": 0.0, "kl_p99": 0.0, "kl_max": 0.0,
                "same_top": estimate(1.0), "n_top": null, "rest_mean": 0.0 } });
        let calls = calls.then(|| {
            serde_json::json!({ "n_dialogue": 1, "n_calling": 1, "n_call": 1, "n_parsed": 1,
            "n_valid": 1, "n_cut": 0, "valid": estimate(1.0), "exact": estimate(0.5), "exact_change": null,
            "exact_without": null, "outcomes": "e" })
        });
        let cell = serde_json::json!({ "column": column, "n_expert_used": n_expert_used, "fingerprint": "",
            "store_bytes": 1000, "dense_bytes_per_token": 1, "expert_bytes_per_token": 1, "text": text,
            "calls": calls, "seconds": 1.0 });
        serde_json::from_value(cell).unwrap()
    }

    /// A picture without its data, or one that no program opens; a divergence of 0 has no logarithm.
    #[test]
    fn a_chart_has_all_cells() {
        let cells = [cell("source", 6, true), cell("source", 2, true), cell("<2>", 6, true)];
        let svg = draw(&cells.iter().collect::<Vec<_>>(), &["source", "<2>"]);
        assert!(svg.starts_with("<svg ") && svg.ends_with("</svg>\n"));
        assert_eq!(svg.matches("<circle").count(), 3 * cells.len());
        for text in [">6 experts<", ">2 experts<", ">&lt;2&gt;<", "bits per byte", "KL, nats", "exact, %"] {
            assert!(svg.contains(text), "{text}");
        }
        assert!(!svg.contains("NaN") && !svg.contains("inf"), "{svg}");
        // A matrix without dialogues has no panel for them, one without cells none at all.
        let svg = draw(&[&cell("a", 6, false)], &["a"]);
        assert!(svg.contains("KL, nats") && !svg.contains("exact"), "{svg}");
        assert!(!draw(&[], &[]).contains("NaN"));
    }

    /// A row would not be its cell's, or the table be no table.
    #[test]
    fn a_table_has_a_row_a_cell() {
        let cells = [cell("source", 6, false), cell("4", 2, false)];
        let table = super::super::table::table(&cells.iter().collect::<Vec<_>>());
        let rows: Vec<Vec<&str>> =
            table.lines().map(|line| line.trim_matches('|').split('|').map(str::trim).collect()).collect();
        assert_eq!(rows[0][..5], ["weights", "experts", "GB", "MB/token", "bits per byte"]);
        assert!(rows.iter().all(|row| row.len() == rows[0].len()) && rows.len() == 4, "{table}");
        assert_eq!((rows[3][0], rows[3][1], rows[3][4]), ("4", "2", "2.000 ±0.100"));
        assert!(!table.contains("exact"), "{table}");
    }
}
