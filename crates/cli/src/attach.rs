//! Text files of the user's that go into a message, each as a fenced block under its name.

use std::fs::File;
use std::io::Read;
use std::path::Path;

use crate::error::CliError;

/// More than any context holds.
const FILE_BYTES_MAX: u64 = 16 << 20;

/// A file's text.
#[derive(Clone, Debug)]
pub(crate) struct Attachment {
    /// Its name, without folders.
    pub(crate) name: String,
    pub(crate) text: String,
}

impl Attachment {
    /// Reads a file.
    ///
    /// # Errors
    /// It cannot be read, is larger than [`FILE_BYTES_MAX`], or is not UTF-8 text.
    pub(crate) fn read(path: &Path) -> Result<Self, CliError> {
        let bytes = read_bounded(path, FILE_BYTES_MAX)?;
        let bad = |why: &str| CliError::Input { path: path.to_owned(), why: why.into() };
        let text =
            String::from_utf8(bytes).map_err(|_| bad("is not UTF-8 text, so it cannot be attached"))?;
        if text.contains('\0') {
            return Err(bad("is a binary file, so it cannot be attached"));
        }
        let name = path.file_name().unwrap_or(path.as_os_str()).to_string_lossy();
        Ok(Self { name: name.chars().filter(|c| !c.is_control()).collect(), text })
    }

    /// The block: its fence is longer than any in the text, so the text cannot end it.
    fn block(&self) -> String {
        let longest = self.text.split(|c| c != '`').map(str::len).max().unwrap_or(0);
        let fence = "`".repeat(3.max(longest + 1));
        let line_end = if self.text.is_empty() || self.text.ends_with('\n') { "" } else { "\n" };
        format!("{}:\n{fence}\n{}{line_end}{fence}\n", self.name, self.text)
    }
}

/// Files first, then what is wanted of them.
pub(crate) fn with_files(files: &[Attachment], message: &str) -> String {
    let mut text: String = files.iter().map(|file| file.block() + "\n").collect();
    text.push_str(message);
    text
}

/// All of a file that is not a device and not too large.
pub(crate) fn read_bounded(path: &Path, bytes_max: u64) -> Result<Vec<u8>, CliError> {
    let cannot = |source| CliError::Io { path: path.to_owned(), action: "read", source };
    let bad = |why: String| CliError::Input { path: path.to_owned(), why };
    // Opening a pipe would wait for its writer.
    if !path.metadata().map_err(cannot)?.is_file() {
        return Err(bad("is not a file".into()));
    }
    let mut bytes = Vec::new();
    File::open(path).and_then(|file| file.take(bytes_max + 1).read_to_end(&mut bytes)).map_err(cannot)?;
    if bytes_max < bytes.len() as u64 {
        return Err(bad(format!("is larger than {} MiB", bytes_max >> 20)));
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    /// A file that has fences of its own would end its block, and the rest would read as the user's words.
    #[test]
    fn a_text_cannot_leave_its_block() {
        let file = |text: &str| Attachment { name: "a.md".into(), text: text.into() };
        assert_eq!(with_files(&[file("x")], "Why?"), "a.md:\n```\nx\n```\n\nWhy?");
        assert_eq!(with_files(&[file("````\nx\n")], "?"), "a.md:\n`````\n````\nx\n`````\n\n?");
        assert_eq!(with_files(&[file("")], ""), "a.md:\n```\n```\n\n");
        assert_eq!(with_files(&[], "Why?"), "Why?");
    }

    /// Bytes that are no text would reach the model, or a device would be read for ever.
    #[test]
    fn only_text_files_are_attached() {
        let folder = tempfile::tempdir().unwrap();
        let cases: [(&str, &[u8], &str); 3] =
            [("zero", b"a\0b", "binary"), ("latin", b"caf\xe9", "UTF-8"), ("good.txt", b"caf\xc3\xa9", "")];
        for (name, bytes, error) in cases {
            let path = folder.path().join(name);
            fs::write(&path, bytes).unwrap();
            match Attachment::read(&path) {
                Ok(file) => assert_eq!((file.name.as_str(), file.text.as_bytes(), error), (name, bytes, "")),
                Err(why) => {
                    assert!(!error.is_empty() && why.to_string().contains(error), "{name}: {why}");
                }
            }
        }
        let why = Attachment::read(folder.path()).unwrap_err().to_string();
        assert!(why.contains("is not a file"), "{why}");
        assert!(read_bounded(&folder.path().join("good.txt"), 3).is_err());
    }
}
