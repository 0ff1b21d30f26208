//! What all tests need: the program, and models to give it.

use std::ffi::OsStr;
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;

use tempfile::TempDir;

/// What the program did.
#[derive(Debug)]
pub(crate) struct Done {
    pub(crate) code: Option<i32>,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

/// The program with nothing on standard input.
pub(crate) fn flash_moe<A: AsRef<OsStr>>(args: &[A]) -> Done {
    flash_moe_with(args, "")
}

/// The program with `input` on standard input.
pub(crate) fn flash_moe_with<A: AsRef<OsStr>>(args: &[A], input: &str) -> Done {
    let mut child = command(args).stdin(Stdio::piped()).spawn().unwrap();
    // The program may end before it has read all of it.
    let _ = child.stdin.take().unwrap().write_all(input.as_bytes());
    finish(child)
}

/// Waits for the end of the program.
pub(crate) fn finish(child: Child) -> Done {
    let out = child.wait_with_output().unwrap();
    Done {
        code: out.status.code(),
        stdout: String::from_utf8(out.stdout).unwrap(),
        stderr: String::from_utf8(out.stderr).unwrap(),
    }
}

/// The program, not started yet, in an empty home.
pub(crate) fn command<A: AsRef<OsStr>>(args: &[A]) -> Command {
    static HOME: OnceLock<TempDir> = OnceLock::new();
    let home = HOME.get_or_init(|| tempfile::tempdir().unwrap());
    let mut command = Command::new(env!("CARGO_BIN_EXE_flash-moe"));
    command.args(args).env("HOME", home.path()).env("LOCALAPPDATA", home.path());
    command.env_remove("XDG_DATA_HOME").env_remove("NO_COLOR");
    command.env_remove("XDG_CACHE_HOME").env_remove("FLASH_MOE_CACHE");
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

impl Done {
    /// It went well.
    #[track_caller]
    pub(crate) fn ok(self) -> Self {
        assert_eq!(self.code, Some(0), "{self:?}");
        self
    }

    /// It failed as it should: the exit code, nothing on standard output, one line that says `error` and, unless
    /// `hint` is empty, one that says `hint`.
    #[track_caller]
    pub(crate) fn fails(self, code: i32, error: &str, hint: &str) -> Self {
        assert_eq!((self.code, self.stdout.as_str()), (Some(code), ""), "{self:?}");
        let line_of = |start: &str| {
            let lines: Vec<&str> = self.stderr.lines().filter(|line| line.starts_with(start)).collect();
            assert!(lines.len() < 2, "{self:?}");
            lines.first().map(|line| (*line).to_owned()).unwrap_or_default()
        };
        assert!(line_of("error: ").contains(error), "'{error}' in {self:?}");
        assert!(line_of("hint: ").contains(hint), "'{hint}' in {self:?}");
        assert!(!self.stderr.contains("panicked"), "{self:?}");
        self
    }
}

/// A tiny checkpoint with random weights and no tokenizer.
pub(crate) fn checkpoint(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/golden").join(name)
}

/// A store of `qwen3_5_moe_quantable`, packed once.
pub(crate) fn store() -> &'static Path {
    static STORE: OnceLock<(TempDir, PathBuf)> = OnceLock::new();
    let (_, path) = STORE.get_or_init(|| {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("tiny.store");
        let source = checkpoint("qwen3_5_moe_quantable");
        flash_moe(&[OsStr::new("pack"), source.as_os_str(), path.as_os_str()]).ok();
        (folder, path)
    });
    path
}

/// A copy of a folder, files only one level deeper.
pub(crate) fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let path = entry.unwrap().path();
        let target = to.join(path.file_name().unwrap());
        if path.is_dir() {
            copy(&path, &target);
        } else {
            fs::copy(&path, &target).unwrap();
        }
    }
}
