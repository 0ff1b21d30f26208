//! The table of `--timing`: where the time of a forward pass went, by layer and phase.

use std::fmt::Write;
use std::time::Duration;

use model::{Phase, Timing};

/// Milliseconds a batch, one row a layer, then sums. A batch is one token in decode and a chunk in prefill. What a
/// device has measured comes first; the host runs ahead of it, and waits for it where it reads.
pub(crate) fn table(title: &str, timing: &Timing) -> String {
    let mut text = String::new();
    if timing.is_of_device() {
        text += &table_of(&format!("{title}, of the GPU"), timing, &timing.device);
    }
    text += &table_of(title, timing, &timing.layers);
    let ms = |time: Duration| time.as_secs_f64() * 1e3 / timing.n_batch.max(1) as f64;
    let rest = format_args!(
        "embed {:.3}, head {:.3}, total {:.3}",
        ms(timing.embed),
        ms(timing.head),
        ms(timing.total())
    );
    push(&mut text, rest);
    text
}

fn table_of(title: &str, timing: &Timing, layers: &[[Duration; Phase::ALL.len()]]) -> String {
    let ms = |time: Duration| time.as_secs_f64() * 1e3 / timing.n_batch.max(1) as f64;
    let mut text = format!(
        "{title}: {} tokens in {} batches, ms a batch\n{:>5}",
        timing.n_token, timing.n_batch, "layer"
    );
    for phase in Phase::ALL {
        push(&mut text, format_args!(" {:>11}", phase.name()));
    }
    text.push_str("         sum\n");
    for (layer, times) in layers.iter().enumerate() {
        row(&mut text, &layer.to_string(), times.iter().map(|&time| ms(time)));
    }
    let sum = |phase: Phase| layers.iter().map(|times| ms(times[phase as usize])).sum();
    row(&mut text, "all", Phase::ALL.iter().map(|&phase| sum(phase)));
    text
}

fn row(text: &mut String, name: &str, cells: impl Iterator<Item = f64>) {
    push(text, format_args!("{name:>5}"));
    let mut sum = 0.0;
    for cell in cells {
        push(text, format_args!(" {cell:>11.3}"));
        sum += cell;
    }
    push(text, format_args!(" {sum:>11.3}\n"));
}

fn push(text: &mut String, piece: std::fmt::Arguments<'_>) {
    text.write_fmt(piece).expect("writing to a string cannot fail");
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Columns and titles would not belong together, or sums would be wrong.
    #[test]
    fn rows_and_sums_agree() {
        let mut timing =
            Timing { n_token: 4, n_batch: 2, head: Duration::from_millis(6), ..Timing::default() };
        for layer in 0..2u64 {
            timing
                .layers
                .push(std::array::from_fn(|phase| Duration::from_millis(2 * (10 * layer + phase as u64))));
        }
        let shown = table("decode", &timing);
        let lines: Vec<&str> = shown.lines().collect();
        assert_eq!(lines[0], "decode: 4 tokens in 2 batches, ms a batch");
        assert!(lines.iter().all(|line| !line.ends_with(' ')), "{shown}");
        let widths: Vec<usize> = lines[1..5].iter().map(|line| line.len()).collect();
        assert_eq!(widths, [widths[0]; 4], "{shown}");
        assert!(lines[2].ends_with("      21.000"), "{shown}");
        assert!(lines[4].trim_start().starts_with("all      10.000"), "{shown}");
        assert_eq!(lines[5], "embed 0.000, head 3.000, total 115.000");
    }
}
