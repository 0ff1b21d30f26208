//! A file of a part while it is being written.

use std::fs::File;
use std::io::{self, Write};

use super::header::{self, Header};

/// So much goes to the drive at once, so that the page cache does not fill with what nobody will read soon.
const SYNC_BYTES: u64 = 32 << 20;

/// An empty file that gets a header and blocks.
pub(super) struct Filling {
    file: File,
    unsynced_bytes: u64,
}

impl Filling {
    pub(super) fn begin(mut file: File, header: &Header) -> io::Result<Self> {
        file.write_all(&header.encode())?;
        Ok(Self { file, unsynced_bytes: 0 })
    }

    /// Writes the next block. True: what was written so far has been made durable, a moment to stop.
    pub(super) fn block(&mut self, block: &[u8]) -> io::Result<bool> {
        header::write_block(&mut self.file, block)?;
        self.unsynced_bytes += block.len() as u64;
        let is_much = self.unsynced_bytes >= SYNC_BYTES;
        if is_much {
            self.unsynced_bytes = 0;
            sync(&self.file)?;
        }
        Ok(is_much)
    }

    /// All blocks are there: makes them durable.
    pub(super) fn finish(&mut self) -> io::Result<()> {
        sync(&self.file)
    }
}

/// Makes what was written durable, and has the page cache forget it.
fn sync(file: &File) -> io::Result<()> {
    file.sync_data()?;
    #[cfg(any(target_os = "linux", target_os = "android"))]
    // Advice: some file systems ignore it.
    let _ = rustix::fs::fadvise(file, 0, None, rustix::fs::Advice::DontNeed);
    Ok(())
}
