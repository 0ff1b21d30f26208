//! `--compare`: this result beside an earlier one.

use std::fmt::Write;
use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

use serde_json::Value;

use crate::error::CliError;

/// Results are a few kilobytes; with the samples and layers of the largest model still far less than this.
const RESULT_BYTES_MAX: u64 = 16 << 20;

/// The layout of results. Those without a number are of the time before there was one, and have the same figures.
pub(super) const VERSION: u64 = 1;

/// Lines of the table: name, place in the result, unit.
const FIGURES: [(&str, &str, Unit); 15] = [
    ("prefill", "/phases/prefill/tok_s", Unit::Plain("tok/s")),
    ("prefill, cold", "/phases/prefill/samples/0/tok_s", Unit::Plain("tok/s")),
    ("prefill hits", "/phases/prefill/hit_rate", Unit::Percent),
    ("prefill read", "/phases/prefill/bytes_read", Unit::Mega),
    ("prefill of its bound", "/phases/prefill/fraction_of_bound", Unit::Percent),
    ("decode", "/phases/decode/tok_s", Unit::Plain("tok/s")),
    ("decode, cold", "/phases/decode/samples/0/tok_s", Unit::Plain("tok/s")),
    ("decode hits", "/phases/decode/hit_rate", Unit::Percent),
    ("decode read a token", "/phases/decode/bytes_per_token", Unit::Mega),
    ("decode waiting", "/phases/decode/ms_per_token/read_wait", Unit::Plain("ms a token")),
    ("decode computing", "/phases/decode/ms_per_token/compute", Unit::Plain("ms a token")),
    ("decode of its bound", "/limits/fraction_of_bound", Unit::Percent),
    ("drive", "/limits/ssd_gb_s", Unit::Plain("GB/s")),
    ("memory bandwidth", "/limits/ram_gb_s", Unit::Plain("GB/s")),
    ("peak memory", "/peak_rss_bytes", Unit::Mega),
];

/// What must be equal for a comparison to mean something.
const SETTINGS: [(&str, &str); 11] = [
    ("model", "/model"),
    ("device", "/device"),
    ("threads", "/threads"),
    ("memory budget", "/memory_budget_bytes"),
    ("cache", "/cache"),
    ("experts a token", "/n_expert_used"),
    ("drive", "/simulated_drive"),
    ("routing", "/trace"),
    ("prompt tokens", "/phases/prefill/tokens"),
    ("decoded tokens", "/phases/decode/tokens"),
    ("cache state", "/phases/decode/cache_state"),
];

#[derive(Clone, Copy)]
enum Unit {
    Plain(&'static str),
    Percent,
    /// Bytes, shown in MB.
    Mega,
}

impl Unit {
    fn show(self, value: f64) -> String {
        match self {
            Unit::Plain(unit) => format!("{value:.2} {unit}"),
            Unit::Percent => format!("{:.1} %", 100.0 * value),
            Unit::Mega => format!("{:.1} MB", value / 1e6),
        }
    }
}

/// Reads an earlier result.
///
/// # Errors
/// The file cannot be read, or is no result of `bench` that this version understands.
pub(super) fn read(path: &Path) -> Result<Value, CliError> {
    let io = |source: io::Error| CliError::Io { path: path.to_owned(), action: "read", source };
    let mut json = Vec::new();
    File::open(path).and_then(|f| f.take(RESULT_BYTES_MAX + 1).read_to_end(&mut json)).map_err(io)?;
    let refuse = |why: String| CliError::Input { path: path.to_owned(), why };
    if json.len() as u64 > RESULT_BYTES_MAX {
        return Err(refuse("too large to be a result of bench --json".into()));
    }
    let result: Value =
        serde_json::from_slice(&json).map_err(|error| refuse(format!("not JSON: {error}")))?;
    check(&result).map_err(refuse)?;
    Ok(result)
}

/// Is this a result?
fn check(result: &Value) -> Result<(), String> {
    let version = result.get("bench_version").map(|version| version.as_u64().ok_or(version));
    match version {
        None | Some(Ok(VERSION)) => {}
        Some(Ok(version)) => return Err(format!("result of version {version}, this is version {VERSION}")),
        Some(Err(other)) => return Err(format!("bench_version is {other}, not a number")),
    }
    match result.pointer("/phases/decode/tok_s") {
        Some(speed) if speed.is_number() || speed.is_null() => Ok(()),
        _ => Err("not a result of bench --json: it has no phases.decode.tok_s".into()),
    }
}

/// A line for each figure that both have: before, now, and how many times as much.
pub(super) fn table(before: &Value, now: &Value) -> String {
    let mut text = String::new();
    for (name, path) in SETTINGS {
        let setting = |result: &Value| result.pointer(path).cloned().unwrap_or(Value::Null);
        let (before, now) = (setting(before), setting(now));
        // An earlier version may not have known it.
        if !before.is_null() && before != now {
            text += &format!("note: {name} differs: {} before, {} now\n", shown(&before), shown(&now));
        }
    }
    push(&mut text, format_args!("{:<22} {:>18} {:>18} {:>7}\n", "", "before", "now", "ratio"));
    for (name, path, unit) in FIGURES {
        let figure = |result: &Value| result.pointer(path).and_then(Value::as_f64);
        let (Some(before), Some(now)) = (figure(before), figure(now)) else { continue };
        let ratio = if before == 0.0 { "-".to_owned() } else { format!("{:.3}", now / before) };
        let (before, now) = (unit.show(before), unit.show(now));
        push(&mut text, format_args!("{name:<22} {before:>18} {now:>18} {ratio:>7}\n"));
    }
    text.truncate(text.trim_end().len());
    text
}

/// A setting on one line, whatever an earlier file has there.
fn shown(value: &Value) -> String {
    const CHARS_MAX: usize = 100;
    value.to_string().chars().take(CHARS_MAX).collect()
}

fn push(text: &mut String, line: std::fmt::Arguments<'_>) {
    text.write_fmt(line).expect("writing to a string cannot fail");
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn result(tok_s: f64, threads: u32) -> Value {
        json!({
            "bench_version": VERSION,
            "threads": threads,
            "peak_rss_bytes": 2_000_000,
            "phases": { "prefill": { "tok_s": null }, "decode": { "tok_s": tok_s, "hit_rate": 0.5 } },
        })
    }

    /// Ratios would be upside down, or runs of different settings would pass for comparable.
    #[test]
    fn ratios_are_now_over_before() {
        let text = table(&result(2.0, 1), &result(5.0, 2));
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines[0], "note: threads differs: 1 before, 2 now");
        assert_eq!(lines[1].split_whitespace().collect::<Vec<_>>(), ["before", "now", "ratio"]);
        assert_eq!(lines[2], "decode                         2.00 tok/s         5.00 tok/s   2.500");
        assert_eq!(lines[3], "decode hits                        50.0 %             50.0 %   1.000");
        assert_eq!(lines[4], "peak memory                        2.0 MB             2.0 MB   1.000");
        assert_eq!(lines.len(), 5, "{text}");
    }

    /// A file of another kind would give an empty table, a panic, or fill the memory.
    #[test]
    fn other_files_are_refused() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("other.json");
        let deep = "[".repeat(100_000);
        let cases = [
            ("", "not JSON"),
            ("\u{0}\u{1}", "not JSON"),
            (&deep, "not JSON"),
            ("[]", "no phases.decode.tok_s"),
            ("{\"phases\": {\"decode\": {\"tok_s\": \"fast\"}}}", "no phases.decode.tok_s"),
            ("{\"bench_version\": 99}", "result of version 99, this is version 1"),
            ("{\"bench_version\": \"x\"}", "not a number"),
        ];
        for (text, expected) in cases {
            std::fs::write(&path, text).unwrap();
            let error = read(&path).unwrap_err().to_string();
            assert!(error.contains(expected) && error.contains("other.json"), "{error}");
        }
        File::create(&path).unwrap().set_len(RESULT_BYTES_MAX + 1).unwrap();
        assert!(read(&path).unwrap_err().to_string().contains("too large"));
        assert!(read(&folder.path().join("none")).unwrap_err().to_string().contains("cannot read"));
        std::fs::write(&path, result(1.0, 1).to_string()).unwrap();
        assert!(read(&path).is_ok());
    }
}
