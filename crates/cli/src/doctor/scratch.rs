//! A file to measure a drive with, when there is no model on it yet.

use std::fs::File;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use crate::interrupt::Temporary;

/// Larger than the caches of most drives.
pub(super) const BYTES_MAX: u64 = 1 << 30;
/// A drive that takes longer is slow enough to be measured with less.
const TIME_MAX: Duration = Duration::from_secs(8);
const PIECE_BYTES: usize = 8 << 20;

/// Noise on a drive, removed when this is dropped or the program is interrupted.
pub(super) struct Scratch {
    pub(super) path: PathBuf,
    _file: Temporary,
}

impl Scratch {
    /// Writes a file of up to `bytes_max` into `folder` and waits until it is on the drive.
    pub(super) fn write(folder: &Path, bytes_max: u64) -> io::Result<Self> {
        let path = folder.join(format!(".flash-moe-doctor-{}.tmp", std::process::id()));
        let mut file = File::create_new(&path)?;
        let scratch = Self { path: path.clone(), _file: Temporary::new(path) };
        let start = Instant::now();
        let (mut piece, mut state, mut written) = (vec![0u8; PIECE_BYTES], 1u64, 0);
        while written < bytes_max && start.elapsed() < TIME_MAX {
            // Drives and file systems compress, and store equal blocks once.
            for word in piece.as_chunks_mut::<8>().0 {
                state ^= state << 13;
                state ^= state >> 7;
                state ^= state << 17;
                *word = state.to_le_bytes();
            }
            match file.write_all(&piece) {
                Ok(()) => written += PIECE_BYTES as u64,
                // What fitted is enough, and the rest of the disk belongs to others.
                Err(error) if error.kind() == io::ErrorKind::StorageFull && 0 < written => {
                    file.set_len(written)?;
                    break;
                }
                Err(error) => return Err(error),
            }
        }
        file.sync_all()?;
        Ok(scratch)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A file of a gigabyte would be left behind, or one that was there be overwritten.
    #[test]
    fn it_is_written_and_goes() {
        let folder = tempfile::tempdir().unwrap();
        let scratch = Scratch::write(folder.path(), 1).unwrap();
        let bytes = std::fs::read(&scratch.path).unwrap();
        assert_eq!(bytes.len(), PIECE_BYTES);
        assert_ne!(bytes[..4096], bytes[4096..8192]);
        assert_eq!(Scratch::write(folder.path(), 1).err().unwrap().kind(), io::ErrorKind::AlreadyExists);
        drop(scratch);
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
    }
}
