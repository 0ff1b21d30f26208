//! File names that a server lists: each stays inside its folder on every system, and no two are the same file.

use std::collections::HashMap;

/// Longest name of a file with its folders, and of one part of it.
const NAME_BYTES_MAX: usize = 1024;
const PART_BYTES_MAX: usize = 200; // Systems have 255; ours get endings.

/// Endings of files that are ours while a download is unfinished.
pub(crate) const PART_ENDING: &str = ".part";
pub(crate) const JOURNAL_ENDING: &str = ".part.journal";

/// Names that are devices on Windows, with any ending.
const DEVICES: [&str; 4] = ["con", "prn", "aux", "nul"];
const NUMBERED_DEVICES: [&str; 2] = ["com", "lpt"];

/// Why a name is not accepted.
pub(crate) fn check(name: &str) -> Result<(), &'static str> {
    if name.len() > NAME_BYTES_MAX {
        return Err("which is too long");
    }
    for part in name.split('/') {
        check_part(part)?;
    }
    let lower = name.to_ascii_lowercase();
    if lower.ends_with(PART_ENDING) || lower.ends_with(JOURNAL_ENDING) {
        return Err("which is a name for unfinished downloads");
    }
    Ok(())
}

fn check_part(part: &str) -> Result<(), &'static str> {
    if part.is_empty() || part == "." || part == ".." {
        return Err("which leads out of its folder");
    }
    if part.len() > PART_BYTES_MAX {
        return Err("which is too long");
    }
    if part.chars().any(|c| c.is_control() || matches!(c, '\\' | ':' | '<' | '>' | '"' | '|' | '?' | '*')) {
        return Err("which has characters that are not allowed in file names");
    }
    if part.ends_with(['.', ' ']) || part.starts_with(' ') {
        return Err("which Windows takes for another name");
    }
    let stem = part.split('.').next().unwrap_or(part).trim_end().to_ascii_lowercase();
    let is_numbered = NUMBERED_DEVICES
        .iter()
        .any(|device| stem.strip_prefix(device).is_some_and(|n| n.chars().count() == 1));
    if DEVICES.contains(&stem.as_str()) || is_numbered {
        return Err("which is a device on Windows");
    }
    Ok(())
}

/// The first name that is unsafe, or the same file as another on systems that do not tell capitals apart.
pub(crate) fn check_all<'a>(
    names: impl IntoIterator<Item = &'a str> + Clone,
) -> Result<(), (&'a str, &'static str)> {
    let mut seen = HashMap::new();
    for name in names.clone() {
        check(name).map_err(|why| (name, why))?;
        if seen.insert(name.to_lowercase(), name).is_some() {
            return Err((name, "which is the same as another one's"));
        }
    }
    for name in names {
        for (at, _) in name.match_indices('/') {
            if seen.contains_key(&name[..at].to_lowercase()) {
                return Err((name, "whose folder is a file"));
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A server could write outside of the folder, to a device, or over another file.
    #[test]
    fn hostile_names_are_refused() {
        let long = "x".repeat(201);
        let deep = "a/".repeat(600) + "b";
        for name in [
            "",
            ".",
            "..",
            "../x",
            "a/../b",
            "a//b",
            "/etc/passwd",
            "a/",
            "C:\\x",
            "C:x",
            "a\\b",
            "a\0b",
            "a\nb",
            "nul",
            "NUL.json",
            "a/con.txt",
            "COM1",
            "lpt9.gguf",
            "x.",
            "x ",
            " x",
            "a:stream",
            "x.part",
            "x.PART",
            "x.part.journal",
            "a?b",
            &long,
            &deep,
        ] {
            assert!(check(name).is_err(), "{name:?}");
        }
        for name in ["config.json", "Q4_K_M/m-00001-of-00002.gguf", "com10.json", "é.json", ".gitattributes"]
        {
            assert_eq!(check(name), Ok(()), "{name}");
        }
        assert_eq!(check_all(["a", "b/c", "b/d"]), Ok(()));
        assert!(check_all(["A.json", "a.JSON"]).is_err());
        assert!(check_all(["a", "a/b"]).is_err());
    }
}
