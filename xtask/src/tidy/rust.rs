//! Rules for Rust sources: lengths, left-overs, where `unsafe` may stand, what a crate root must say.

use super::File;
use super::edges::MEMBERS;
use super::source::{Source, find_word, is_word};

/// Lines of a function, signature included.
const FN_LINES_MAX: usize = 70;
/// Columns of a line, literals not counted.
const LINE_COLUMNS_MAX: usize = 120;
/// Lets straight-line code (a forward pass, a table) be longer, with its reason.
const LONG_BECAUSE: &str = "tidy: long because ";
/// Where `unsafe` may stand: a device's memory, kernels, a bench of instructions, memory that others write to, a test's
/// allocator.
const UNSAFE_PLACES: [&str; 5] = [
    "crates/gpu/src/raw.rs",
    "crates/kernels/src/cpu/",
    "crates/kernels/benches/forms/",
    "crates/stream/src/io/",
    "crates/model/tests/allocations.rs",
];
/// Crates that have such places.
const UNSAFE_CRATES: [&str; 3] = ["crates/gpu/", "crates/kernels/", "crates/stream/"];

/// All rules for one file.
pub(crate) fn check(file: &File, text: &str) -> Vec<String> {
    let source = Source::new(text);
    let code = source.code();
    let mut problems = long_functions(file, text, &code);
    problems.extend(long_lines(file, &source));
    problems.extend(left_overs(file, &code));
    problems.extend(unwraps(file, &code));
    problems.extend(misplaced_unsafe(file, &code));
    problems.extend(foreign_re_exports(file, &code));
    problems.extend(crate_root(file, text));
    problems
}

/// A function is read in one sitting or says why not.
fn long_functions(file: &File, text: &str, code: &str) -> Vec<String> {
    let lines: Vec<&str> = text.lines().collect();
    let mut problems = Vec::new();
    for at in find_word(code, "fn") {
        let Some((body, end)) = body_range(code, at) else { continue };
        let (first, last) = (line_of(code, at), line_of(code, end));
        let n_line = last - first + 1;
        let exempt = lines[first.saturating_sub(3)..=last].iter().any(|line| line.contains(LONG_BECAUSE));
        if n_line > FN_LINES_MAX && !exempt {
            let name: String =
                code[at + 2..body].trim().chars().take_while(|&c| c != '(' && c != '<').collect();
            problems
                .push(file.problem(first, format!("fn {name} has {n_line} lines, more than {FN_LINES_MAX}")));
        }
    }
    problems
}

/// Where the body of the function at `at` opens and where it closes; `None` for a declaration or an `fn` type.
fn body_range(code: &str, at: usize) -> Option<(usize, usize)> {
    if !code[at + 2..].trim_start().starts_with(is_word) {
        return None;
    }
    let (mut nesting, mut open, mut depth) = (0, None, 0);
    for (i, c) in code[at..].char_indices() {
        match c {
            '(' | '[' => nesting += 1,
            ')' | ']' => nesting -= 1,
            ';' if open.is_none() && nesting == 0 => return None,
            '{' => {
                open.get_or_insert(at + i);
                depth += 1;
            }
            '}' => {
                depth -= 1;
                if depth == 0 {
                    return open.map(|open| (open, at + i));
                }
            }
            _ => {}
        }
    }
    None
}

/// Lines fit two windows side by side.
fn long_lines(file: &File, source: &Source) -> Vec<String> {
    let long = source.widths().into_iter().enumerate().filter(|&(_, width)| width > LINE_COLUMNS_MAX);
    long.map(|(line, width)| file.problem(line, format!("{width} columns, more than {LINE_COLUMNS_MAX}")))
        .collect()
}

/// Nothing unfinished is merged. (Clippy sees only the code that this platform compiles.)
fn left_overs(file: &File, code: &str) -> Vec<String> {
    let mut problems = Vec::new();
    for name in ["todo", "unimplemented", "dbg"] {
        for at in find_word(code, name).filter(|&at| code[at + name.len()..].starts_with('!')) {
            problems.push(file.problem(line_of(code, at), format!("{name}! is left over")));
        }
    }
    problems
}

/// Products return the error, or state the invariant with `expect`.
fn unwraps(file: &File, code: &str) -> Vec<String> {
    let is_test = |part: &str| part.starts_with("test") || part.ends_with("_test.rs");
    if !file.path.contains("/src/") || file.path.split('/').any(is_test) {
        return Vec::new();
    }
    let tests = ["mod tests {", "pub(crate) mod tests {"].map(|opens| format!("#[cfg(test)]\n{opens}"));
    let end = tests.iter().filter_map(|opens| code.find(opens)).min().unwrap_or(code.len());
    let product = &code[..end];
    product
        .match_indices(".unwrap()")
        .map(|(at, _)| file.problem(line_of(code, at), "unwrap outside tests"))
        .collect()
}

/// `unsafe` stays where each use has its reason and its test.
fn misplaced_unsafe(file: &File, code: &str) -> Vec<String> {
    if UNSAFE_PLACES.iter().any(|place| file.path.starts_with(place)) {
        return Vec::new();
    }
    let what = format!("unsafe outside {}", UNSAFE_PLACES.join(", "));
    find_word(code, "unsafe").map(|at| file.problem(line_of(code, at), &what)).collect()
}

/// A crate names what it uses: a re-export would hide an edge of the map.
fn foreign_re_exports(file: &File, code: &str) -> Vec<String> {
    let mut problems = Vec::new();
    for at in find_word(code, "pub") {
        let after = code[at + 3..].trim_start();
        let after =
            if after.starts_with('(') { after.split_once(')').map_or("", |(_, rest)| rest) } else { after };
        let Some(path) = after.trim_start().strip_prefix("use ") else { continue };
        let first: String =
            path.trim().trim_start_matches("::").chars().take_while(|&c| is_word(c)).collect();
        let is_local =
            find_word(code, "mod").any(|at| code[at + 3..].trim_start().starts_with(&format!("{first};")));
        if MEMBERS.contains(&first.as_str()) && !is_local {
            problems.push(file.problem(line_of(code, at), format!("re-exports crate {first}")));
        }
    }
    problems
}

/// A crate root opens with what the crate owns, and says how it stands to `unsafe`.
fn crate_root(file: &File, text: &str) -> Vec<String> {
    let is_root = file.path.ends_with("/src/lib.rs") || file.path.ends_with("/src/main.rs");
    if !is_root {
        return Vec::new();
    }
    let mut problems = Vec::new();
    if !text.starts_with("//! ") {
        problems.push(file.problem(0, "a crate root starts with a //! header"));
    }
    let has_unsafe = UNSAFE_CRATES.iter().any(|place| file.path.starts_with(place));
    let wanted = if has_unsafe { "#![deny(unsafe_code)]" } else { "#![forbid(unsafe_code)]" };
    if !text.contains(wanted) {
        problems.push(file.problem(0, format!("a crate root says {wanted}")));
    }
    problems
}

/// Index of the line that holds byte `at`.
fn line_of(text: &str, at: usize) -> usize {
    text[..at].matches('\n').count()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check_file(path: &str, text: &str) -> Vec<String> {
        check(&File { path: path.into(), bytes: 0, text: None }, text)
    }

    /// A rule no longer finds what it is for.
    #[test]
    fn each_rule_finds_its_mistake() {
        let long = format!("fn f<A, B>(x: [u8; 3]) {{\n{}}}\n", "x;\n".repeat(70));
        let cases: [(&str, &str, &str); 9] = [
            ("crates/a/src/x.rs", &long, "crates/a/src/x.rs:1: fn f has 72 lines, more than 70"),
            ("crates/a/src/x.rs", "\nfn f() { todo!() }\n", "crates/a/src/x.rs:2: todo! is left over"),
            (
                "crates/a/src/x.rs",
                "x.unwrap()\n#[cfg(test)]\nmod tests {}\n",
                "crates/a/src/x.rs:1: unwrap outside tests",
            ),
            (
                "crates/a/src/x.rs",
                "unsafe {}\n",
                "crates/a/src/x.rs:1: unsafe outside crates/gpu/src/raw.rs, crates/kernels/src/cpu/, crates/kernels/benches/forms/, crates/stream/src/io/, crates/model/tests/allocations.rs",
            ),
            ("crates/a/src/x.rs", "pub use quant::Format;\n", "crates/a/src/x.rs:1: re-exports crate quant"),
            (
                "crates/a/src/x.rs",
                "pub(crate) use ::store::Store;\n",
                "crates/a/src/x.rs:1: re-exports crate store",
            ),
            (
                "crates/a/src/lib.rs",
                "#![forbid(unsafe_code)]\n",
                "crates/a/src/lib.rs:1: a crate root starts with a //! header",
            ),
            (
                "crates/a/src/lib.rs",
                "//! A.\n",
                "crates/a/src/lib.rs:1: a crate root says #![forbid(unsafe_code)]",
            ),
            (
                "crates/a/src/x.rs",
                &format!("// {}\n", "x".repeat(118)),
                "crates/a/src/x.rs:1: 121 columns, more than 120",
            ),
        ];
        for (path, text, problem) in cases {
            assert_eq!(check_file(path, text), [problem], "{text}");
        }
    }

    /// A rule cries wolf.
    #[test]
    fn what_is_fine_passes() {
        let exempt = format!("// tidy: long because it is a table.\nfn f() {{\n{}}}\n", "x;\n".repeat(70));
        let cases = [
            exempt.as_str(),
            "// todo! unsafe\nlet s = \"dbg!(unsafe)\";\n",
            "mod store;\npub use store::Thing;\n",
            "use quant::Format;\n",
            "x.unwrap_or(1);\n#[cfg(test)]\nmod tests {\nx.unwrap()\n}\n",
            "trait T { fn f(&self, x: [u8; 3]); }\ntype F = fn(u8) -> u8;\n",
        ];
        for text in cases {
            assert_eq!(check_file("crates/a/src/x.rs", text), Vec::<String>::new(), "{text}");
        }
        assert!(check_file("crates/kernels/src/cpu/avx2.rs", "unsafe {}\n").is_empty());
    }
}
