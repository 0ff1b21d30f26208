//! Checksums: xxh3-64, written as 16 lower-case hex digits.

use xxhash_rust::xxh3::{Xxh3, xxh3_64};

use crate::StoreError;
use crate::files::BlobReader;

/// Bytes that are read and hashed at a time: large enough for sequential speed, small enough to stay in cache.
/// A multiple of `PLANE_ALIGN`, so that no number straddles two pieces.
pub(crate) const PIECE_BYTES: usize = 1 << 20;

/// Checksum of `bytes`.
pub(crate) fn of(bytes: &[u8]) -> u64 {
    xxh3_64(bytes)
}

/// Checksum of `bytes` as the manifest has it.
pub(crate) fn hex(bytes: &[u8]) -> String {
    to_hex(of(bytes))
}

/// A checksum as the manifest has it.
pub(crate) fn to_hex(hash: u64) -> String {
    format!("{hash:016x}")
}

/// Is this how a checksum is written? (`to_hex` is the only spelling.)
pub(crate) fn is_hex(text: &str) -> bool {
    text.len() == 16 && text.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'))
}

/// Checksum of `len` bytes from `offset` on, read in pieces; `visit` sees each piece and where it starts.
pub(crate) fn of_range(
    reader: &BlobReader<'_>,
    offset: u64,
    len: u64,
    visit: &mut dyn FnMut(&[u8], u64),
) -> Result<u64, StoreError> {
    let mut hasher = Xxh3::new();
    let mut piece = vec![0; PIECE_BYTES.min(len as usize)];
    let mut done = 0;
    while done < len {
        let n = piece.len().min((len - done) as usize);
        reader.read_exact_at(&mut piece[..n], offset + done)?;
        hasher.update(&piece[..n]);
        visit(&piece[..n], done);
        done += n as u64;
    }
    Ok(hasher.digest())
}
