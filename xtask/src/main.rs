//! Repository chores. `cargo xtask tidy` checks what the compiler and clippy do not: the map of crates, sizes,
//! left-overs and links. It also runs as a test, so `cargo test` fails when it does. `cargo xtask mutate [NAME]` makes
//! the classic mistakes of such engines on purpose and sees whether the golden tests notice.
#![forbid(unsafe_code)]

mod mutate;
mod tidy;

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Context;

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let done = match args.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["tidy"] => run_tidy(),
        ["mutate"] => root().and_then(|root| mutate::run(&root, "")),
        ["mutate", name] => root().and_then(|root| mutate::run(&root, name)),
        _ => {
            eprintln!("usage: cargo xtask tidy | mutate [NAME]");
            return ExitCode::from(2);
        }
    };
    match done {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// Prints every problem; true if there is none.
fn run_tidy() -> anyhow::Result<bool> {
    let report = tidy::check(&root()?)?;
    for problem in &report.problems {
        eprintln!("{problem}");
    }
    eprintln!("tidy: {} files, {} problems", report.n_file, report.problems.len());
    Ok(report.problems.is_empty())
}

/// The workspace: the parent of this package.
fn root() -> anyhow::Result<PathBuf> {
    let here = PathBuf::from(env!("CARGO_MANIFEST_DIR"));
    here.parent().map(PathBuf::from).context("xtask has no parent folder")
}

#[cfg(test)]
mod tests {
    /// A rule of the repository is broken somewhere: the message names file and line.
    #[test]
    fn the_repository_is_tidy() {
        let report = crate::tidy::check(&crate::root().unwrap()).unwrap();
        assert!(report.n_file > 40, "only {} files were looked at", report.n_file);
        assert!(report.problems.is_empty(), "\n{}", report.problems.join("\n"));
    }
}
