//! Lists the demo model's files (`demo/`) for `src/demo.rs`, which compiles them into the program.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

fn main() -> io::Result<()> {
    let from_cargo = |name: &str| std::env::var(name).map(PathBuf::from).map_err(io::Error::other);
    let folder = from_cargo("CARGO_MANIFEST_DIR")?.join("demo");
    println!("cargo:rerun-if-changed={}", folder.display());
    let mut files = Vec::new();
    if folder.is_dir() {
        collect(&folder, &mut files)?;
    }
    files.sort();
    let mut list = String::from("&[\n");
    for path in &files {
        let name = path.strip_prefix(&folder).map_err(io::Error::other)?;
        let name = name.components().map(|c| c.as_os_str().to_string_lossy()).collect::<Vec<_>>().join("/");
        list.push_str(&format!("    ({name:?}, include_bytes!({:?})),\n", path.display().to_string()));
    }
    list.push_str("]\n");
    fs::write(from_cargo("OUT_DIR")?.join("demo_files.rs"), list)
}

/// All files below `folder` but its notes.
fn collect(folder: &Path, files: &mut Vec<PathBuf>) -> io::Result<()> {
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        if path.is_dir() {
            collect(&path, files)?;
        } else if path.extension().is_none_or(|e| e != "md") {
            files.push(path);
        }
    }
    Ok(())
}
