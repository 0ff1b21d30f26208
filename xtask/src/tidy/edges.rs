//! The map of crates: who may depend on whom, and that every outside dependency says why it is there.

use anyhow::Context;

use super::File;

/// Our crates as code names them, in data-flow order.
pub(crate) const MEMBERS: [&str; 12] = [
    "quant", "store", "convert", "stream", "kernels", "gpu", "model", "generate", "prefix", "serve", "hub",
    "cli",
];

/// Allowed edges: a crate, and what it may use. A new edge is a decision about the design, made here.
const EDGES: [(&str, &[&str]); 13] = [
    ("quant", &[]),
    ("store", &["quant"]),
    ("convert", &["quant", "store"]),
    ("stream", &["quant", "store"]),
    ("kernels", &["quant"]),
    ("gpu", &["kernels", "quant"]),
    ("model", &["kernels", "quant", "store", "stream"]),
    ("generate", &["model"]),
    ("prefix", &["quant", "store", "stream"]),
    ("serve", &["generate", "kernels", "model", "prefix", "stream"]),
    ("hub", &["store"]),
    (
        "cli",
        &[
            "convert", "generate", "gpu", "hub", "kernels", "model", "prefix", "quant", "serve", "store",
            "stream",
        ],
    ),
    ("xtask", &[]),
];

/// Edges that only tests have, besides those above.
const TEST_EDGES: [(&str, &[&str]); 2] = [("model", &["convert", "gpu", "prefix"]), ("stream", &["convert"])];

/// A dependency that a manifest names.
#[derive(Debug, PartialEq, Eq)]
struct Dependency<'a> {
    line: usize,
    /// The table it stands in: `dependencies`, `dev-dependencies`, `workspace.dependencies`, …
    table: &'a str,
    name: &'a str,
    /// What follows the name, comment included.
    value: &'a str,
}

/// Edges of all manifests, reasons in the root manifest.
pub(crate) fn check(files: &[File]) -> anyhow::Result<Vec<String>> {
    let mut problems = Vec::new();
    for (member, _) in EDGES {
        let path =
            if member == "xtask" { "xtask/Cargo.toml".into() } else { format!("crates/{member}/Cargo.toml") };
        let (file, text) = manifest(files, &path)?;
        problems.extend(check_edges(file, member, text));
    }
    let is_known = |path: &str| {
        // Fuzz targets may reach into any crate; nothing depends on them.
        path == "fuzz/Cargo.toml" || EDGES.iter().any(|(member, _)| path == manifest_path(member))
    };
    let unknown = files.iter().filter(|file| file.path.ends_with("/Cargo.toml") && !is_known(&file.path));
    problems.extend(unknown.map(|file| file.problem(0, "a crate that the map does not have")));
    let (file, text) = manifest(files, "Cargo.toml")?;
    problems.extend(check_reasons(file, text));
    Ok(problems)
}

fn manifest_path(member: &str) -> String {
    if member == "xtask" { "xtask/Cargo.toml".to_owned() } else { format!("crates/{member}/Cargo.toml") }
}

fn manifest<'a>(files: &'a [File], path: &str) -> anyhow::Result<(&'a File, &'a str)> {
    let file =
        files.iter().find(|file| file.path == path).with_context(|| format!("{path} is not tracked"))?;
    Ok((file, file.text.as_deref().with_context(|| format!("{path} is not text"))?))
}

/// Dependencies of `member` on other crates of ours that the map does not allow.
fn check_edges(file: &File, member: &str, text: &str) -> Vec<String> {
    let listed = |edges: &[(&str, &[&str])], name: &str| {
        edges.iter().any(|(from, to)| *from == member && to.contains(&name))
    };
    let is_wrong = |d: &Dependency<'_>| {
        let in_tests = d.table.ends_with("dev-dependencies") && listed(&TEST_EDGES, d.name);
        MEMBERS.contains(&d.name) && !listed(&EDGES, d.name) && !in_tests
    };
    let wrong = dependencies(text).into_iter().filter(is_wrong);
    wrong.map(|d| file.problem(d.line, format!("{member} may not depend on {}", d.name))).collect()
}

/// Dependencies on others that do not say why, in the same line.
fn check_reasons(file: &File, text: &str) -> Vec<String> {
    let outside = dependencies(text).into_iter().filter(|d| d.table == "workspace.dependencies");
    let silent = outside.filter(|d| !d.value.contains("path =") && !d.value.contains("# "));
    silent.map(|d| file.problem(d.line, format!("{} is used without a reason", d.name))).collect()
}

/// All dependencies of a manifest. Understands the one style our manifests have: a line each, under `[table]`.
fn dependencies(text: &str) -> Vec<Dependency<'_>> {
    let mut table = "";
    let mut found = Vec::new();
    for (line, content) in text.lines().enumerate() {
        if let Some(name) = content.strip_prefix('[') {
            table = name.trim_end().trim_end_matches(']');
        } else if table.ends_with("dependencies")
            && let Some((name, value)) = content.split_once('=')
        {
            let name = name.trim().trim_end_matches(".workspace");
            found.push(Dependency { line, table, name, value });
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file() -> File {
        File { path: "Cargo.toml".into(), bytes: 0, text: None }
    }

    /// A crate could use another against the data flow.
    #[test]
    fn edges_against_the_flow_are_found() {
        let text = "[dependencies]\nquant.workspace = true\nmodel = { path = \"x\" }\nserde = \"1\"\n";
        assert_eq!(check_edges(&file(), "store", text), ["Cargo.toml:3: store may not depend on model"]);
        assert!(check_edges(&file(), "generate", "[dependencies]\nmodel.workspace = true\n").is_empty());
    }

    /// A test edge would be taken for a product edge, or the other way round.
    #[test]
    fn tests_have_their_own_edges() {
        assert!(check_edges(&file(), "model", "[dev-dependencies]\nconvert.workspace = true\n").is_empty());
        assert_eq!(check_edges(&file(), "model", "[dependencies]\nconvert.workspace = true\n").len(), 1);
    }

    /// A dependency without a reason would slip in.
    #[test]
    fn reasons_are_asked_for() {
        let text = "[workspace.dependencies]\nstore = { path = \"x\" }\nhalf = \"2\" # f16\nserde = \"1\"\n";
        assert_eq!(check_reasons(&file(), text), ["Cargo.toml:4: serde is used without a reason"]);
    }
}
