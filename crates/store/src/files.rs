//! Where a store's bytes come from: a folder, or the program itself (the embedded demo model).

use std::path::PathBuf;

/// A set of named files.
#[derive(Clone, Debug)]
pub enum StoreFiles {
    /// A folder on disk.
    Dir(PathBuf),
    /// Files compiled into the program: relative name and bytes. `name` is shown in place of a path.
    Embedded {
        /// Shown to the user.
        name: &'static str,
        /// Relative path and contents.
        files: &'static [(&'static str, &'static [u8])],
    },
}

/// One file that expert records or dense tensors are read from.
#[derive(Clone, Debug)]
pub enum Blob {
    /// On disk.
    File(PathBuf),
    /// In the program.
    Memory {
        /// Shown to the user.
        name: String,
        /// Contents.
        bytes: &'static [u8],
    },
}
