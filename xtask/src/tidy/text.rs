//! Rules for all text files, and for the size of the repository.

use std::path::Path;

use super::File;

/// Lines of a source file.
const FILE_LINES_MAX: usize = 1000;
/// Columns of a line of prose or script.
const LINE_COLUMNS_MAX: usize = 140;
/// Bytes of one tracked file.
const FILE_BYTES_MAX: u64 = 30_000_000;
/// Bytes of all tracked files.
const TOTAL_BYTES_MAX: u64 = 60_000_000;
/// Extensions with a line-width limit (Rust has its own rule).
const NARROW: [&str; 3] = ["md", "py", "sh"];

/// Files that are kept as they came: their checksums are part of a store.
const AS_THEY_CAME: [&str; 1] = ["crates/cli/demo/"];

/// Marks of unfinished work, spelt so that this file passes.
const MARKS: [&str; 4] = [concat!("FIX", "ME"), concat!("TO", "DO"), concat!("X", "XX"), concat!("HA", "CK")];
/// Folders of one machine, spelt likewise.
const MACHINE_PATHS: [&str; 2] = [concat!("/wo", "rk/"), concat!("/ro", "ot/")];

/// All rules for one text file.
pub(crate) fn check(file: &File, text: &str, root: &Path) -> Vec<String> {
    let mut problems = Vec::new();
    if AS_THEY_CAME.iter().any(|folder| file.path.starts_with(folder)) {
        return problems;
    }
    if !text.is_empty() && !text.ends_with('\n') {
        problems.push(file.problem(text.lines().count() - 1, "no newline at the end"));
    }
    let n_line = text.lines().count();
    let is_source = file.is("rs") || file.is("py");
    if is_source && n_line > FILE_LINES_MAX {
        problems.push(file.problem(0, format!("{n_line} lines, more than {FILE_LINES_MAX}")));
    }
    if file.is("toml") || is_source || NARROW.iter().any(|e| file.is(e)) {
        problems.extend(check_lines(file, text));
    }
    if file.is("md") {
        problems.extend(broken_links(file, text, root));
    }
    problems
}

/// Width, left-over marks and trailing blanks.
fn check_lines(file: &File, text: &str) -> Vec<String> {
    let mut problems = Vec::new();
    for (idx, line) in text.lines().enumerate() {
        // Data may contain such words; a mark stands in a comment, or in prose.
        let comment =
            if file.is("md") { 0 } else { line.find("//").or(line.find('#')).unwrap_or(line.len()) };
        let is_marked = |word: &&&str| super::source::find_word(&line[comment..], word).next().is_some();
        for word in MARKS.iter().filter(is_marked) {
            problems.push(file.problem(idx, format!("{word} is left over")));
        }
        for path in MACHINE_PATHS.iter().filter(|path| line.contains(**path)) {
            problems.push(file.problem(idx, format!("names a folder of one machine: {path}")));
        }
        if line.ends_with([' ', '\t']) {
            problems.push(file.problem(idx, "blank at the end of the line"));
        }
        let width = line.chars().count();
        let may_be_wide = line.starts_with('|') || line.contains("://");
        if NARROW.iter().any(|e| file.is(e)) && width > LINE_COLUMNS_MAX && !may_be_wide {
            problems.push(file.problem(idx, format!("{width} columns, more than {LINE_COLUMNS_MAX}")));
        }
    }
    problems
}

/// Relative links of a Markdown file that lead nowhere.
fn broken_links(file: &File, text: &str, root: &Path) -> Vec<String> {
    let folder = root.join(Path::new(&file.path).parent().unwrap_or(Path::new("")));
    let mut problems = Vec::new();
    let mut in_code = false;
    for (idx, line) in text.lines().enumerate() {
        in_code ^= line.trim_start().starts_with("```");
        if in_code {
            continue;
        }
        for (at, _) in line.match_indices("](") {
            let target = line[at + 2..].split([')', '#', ' ']).next().unwrap_or("");
            let is_relative = !target.is_empty() && !target.contains(':');
            if is_relative && !folder.join(target).exists() {
                problems.push(file.problem(idx, format!("link to {target} leads nowhere")));
            }
        }
    }
    problems
}

/// A clone stays small.
pub(crate) fn check_sizes(files: &[File]) -> Vec<String> {
    let large = files.iter().filter(|file| file.bytes > FILE_BYTES_MAX);
    let mut problems: Vec<String> =
        large.map(|f| f.problem(0, format!("{} bytes, more than {FILE_BYTES_MAX}", f.bytes))).collect();
    let total: u64 = files.iter().map(|file| file.bytes).sum();
    if total > TOTAL_BYTES_MAX {
        problems.push(format!("all files: {total} bytes, more than {TOTAL_BYTES_MAX}"));
    }
    problems
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check_file(path: &str, text: &str) -> Vec<String> {
        check(&File { path: path.into(), bytes: 0, text: None }, text, Path::new(env!("CARGO_MANIFEST_DIR")))
    }

    /// A rule no longer finds what it is for.
    #[test]
    fn each_rule_finds_its_mistake() {
        let mark = format!("# {}: later\n", MARKS[0]);
        let mark_found = format!("a.py:1: {} is left over", MARKS[0]);
        let machine = format!("open('{}x')\n", MACHINE_PATHS[0]);
        let machine_found = format!("a.py:1: names a folder of one machine: {}", MACHINE_PATHS[0]);
        let long = "x\n".repeat(1001);
        let wide = format!("{}\n", "x".repeat(141));
        let cases = [
            ("a.txt", "no newline", "a.txt:1: no newline at the end"),
            ("a.py", &mark, &mark_found),
            ("a.py", &machine, &machine_found),
            ("a.py", "x \n", "a.py:1: blank at the end of the line"),
            ("a.py", &long, "a.py:1: 1001 lines, more than 1000"),
            ("a.md", &wide, "a.md:1: 141 columns, more than 140"),
            ("a.md", "see [b](missing.md#part)\n", "a.md:1: link to missing.md leads nowhere"),
        ];
        for (path, text, problem) in cases {
            assert_eq!(check_file(path, text), [problem], "{text}");
        }
        let huge = File { path: "big.bin".into(), bytes: 61_000_000, text: None };
        assert_eq!(check_sizes(&[huge]).len(), 2);
    }

    /// A rule cries wolf.
    #[test]
    fn what_is_fine_passes() {
        let table = format!("| {} |\n", "x".repeat(150));
        let cases = [
            ("a.md", "see [b](src/main.rs), [c](#part) and [d](https://example.org)\n"),
            ("a.md", "```\n[b](missing.md)\n```\n"),
            ("a.md", &table),
            ("a.txt", ""),
            ("crates/cli/demo/a.txt", "no newline"),
        ];
        for (path, text) in cases {
            assert_eq!(check_file(path, text), Vec::<String>::new(), "{text}");
        }
    }
}
