//! `cargo xtask mutate`: makes each classic mistake (tests/golden/mutations.json) in a copy of the tree and sees
//! whether the golden tests notice. Takes a build of the kernels a mistake, so it is not part of the tests.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context, bail, ensure};
use serde::Deserialize;

/// One mistake.
#[derive(Deserialize)]
struct Mutation {
    name: String,
    /// `caught`, or `harmless`: mathematically the same thing.
    expected: String,
    patches: Vec<Patch>,
}

/// A text that stands once in a file, and what takes its place.
#[derive(Deserialize)]
struct Patch {
    file: String,
    find: String,
    replace: String,
}

/// Tries every mutation whose name contains `filter`; true if all came out as expected.
pub(crate) fn run(root: &Path, filter: &str) -> anyhow::Result<bool> {
    let list = fs::read_to_string(root.join("tests/golden/mutations.json"))
        .context("tests/golden/mutations.json")?;
    let mutations: Vec<Mutation> = serde_json::from_str(&list).context("tests/golden/mutations.json")?;
    let tree = root.join("target/mutate/tree");
    copy_tracked(root, &tree)?;
    ensure!(
        golden_tests(&tree, &["--no-run"])? && golden_tests(&tree, &[])?,
        "the tests fail without any mistake"
    );
    let mut all_well = true;
    for mutation in mutations.iter().filter(|m| m.name.contains(filter)) {
        for patch in &mutation.patches {
            apply(&tree, patch).with_context(|| mutation.name.clone())?;
        }
        ensure!(golden_tests(&tree, &["--no-run"])?, "{}: the mistake does not compile", mutation.name);
        let found = if golden_tests(&tree, &[])? { "harmless" } else { "caught" };
        let verdict = if found == mutation.expected { "ok" } else { "NOT AS EXPECTED" };
        all_well &= found == mutation.expected;
        println!("{verdict}: {} is {found}", mutation.name);
        for patch in &mutation.patches {
            fs::copy(root.join(&patch.file), tree.join(&patch.file)).with_context(|| patch.file.clone())?;
        }
    }
    Ok(all_well)
}

/// Makes `tree` a copy of all files that git knows.
fn copy_tracked(root: &Path, tree: &Path) -> anyhow::Result<()> {
    let list =
        Command::new("git").args(["ls-files", "-z"]).current_dir(root).output().context("git ls-files")?;
    ensure!(list.status.success(), "git ls-files failed: {}", String::from_utf8_lossy(&list.stderr));
    for file in String::from_utf8(list.stdout)?.split_terminator('\0') {
        let to = tree.join(file);
        let folder = to.parent().context("a file has a folder")?;
        fs::create_dir_all(folder).with_context(|| folder.display().to_string())?;
        fs::copy(root.join(file), &to).with_context(|| file.to_owned())?;
    }
    Ok(())
}

fn apply(tree: &Path, patch: &Patch) -> anyhow::Result<()> {
    let path = tree.join(&patch.file);
    let text = fs::read_to_string(&path).with_context(|| patch.file.clone())?;
    match text.matches(&patch.find).count() {
        1 => fs::write(&path, text.replace(&patch.find, &patch.replace)).with_context(|| patch.file.clone()),
        n => bail!("{} contains the text to replace {n} times instead of once: {}", patch.file, patch.find),
    }
}

/// Do the golden tests of `tree` build (`--no-run`), or pass?
fn golden_tests(tree: &Path, extra: &[&str]) -> anyhow::Result<bool> {
    let quick = "profile.dev.package.flash-moe-kernels.opt-level=1";
    let status = Command::new("cargo")
        .args(["test", "--quiet", "--config", quick, "-p", "flash-moe-model", "--lib"])
        .args(extra)
        .args(["--", "tests::golden"])
        .env("CARGO_TARGET_DIR", tree.with_file_name("build"))
        .current_dir(tree)
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()
        .context("cargo test")?;
    Ok(status.success())
}
