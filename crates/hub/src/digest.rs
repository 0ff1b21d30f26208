//! Digests that hubs list: SHA-256 of large files, git's own of small ones.

use std::fmt::Write as _;

use sha1::Sha1;
use sha2::{Digest as _, Sha256};

/// What a file's bytes must add up to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Digest {
    /// Of the bytes, in lower-case hex.
    Sha256(String),
    /// SHA-1 of `blob LENGTH\0` and the bytes, in lower-case hex.
    GitBlob(String),
}

impl Digest {
    /// 64 hex digits.
    pub(crate) fn sha256(hex: &str) -> Option<Self> {
        is_hex(hex, 64).then(|| Digest::Sha256(hex.to_ascii_lowercase()))
    }

    /// 40 hex digits.
    pub(crate) fn git_blob(hex: &str) -> Option<Self> {
        is_hex(hex, 40).then(|| Digest::GitBlob(hex.to_ascii_lowercase()))
    }

    /// The digits: what the cache calls the file.
    pub(crate) fn hex(&self) -> &str {
        match self {
            Digest::Sha256(hex) | Digest::GitBlob(hex) => hex,
        }
    }

    /// For messages.
    pub(crate) fn algorithm(&self) -> &'static str {
        match self {
            Digest::Sha256(_) => "sha256",
            Digest::GitBlob(_) => "git blob",
        }
    }
}

fn is_hex(text: &str, n: usize) -> bool {
    text.len() == n && text.bytes().all(|b| b.is_ascii_hexdigit())
}

/// Adds up the bytes of a file in order.
#[derive(Clone, Debug)]
pub(crate) enum Hasher {
    Sha256(Sha256),
    GitBlob(Sha1),
}

impl Hasher {
    /// For the kind of `expected` (SHA-256 without one), for a file of `bytes`.
    pub(crate) fn new(expected: Option<&Digest>, bytes: u64) -> Self {
        match expected {
            Some(Digest::GitBlob(_)) => {
                let mut sha1 = Sha1::new();
                sha1.update(format!("blob {bytes}\0"));
                Hasher::GitBlob(sha1)
            }
            _ => Hasher::Sha256(Sha256::new()),
        }
    }

    pub(crate) fn update(&mut self, bytes: &[u8]) {
        match self {
            Hasher::Sha256(sha256) => sha256.update(bytes),
            Hasher::GitBlob(sha1) => sha1.update(bytes),
        }
    }

    pub(crate) fn finish(self) -> Digest {
        match self {
            Hasher::Sha256(sha256) => Digest::Sha256(hex(&sha256.finalize())),
            Hasher::GitBlob(sha1) => Digest::GitBlob(hex(&sha1.finalize())),
        }
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        write!(text, "{byte:02x}").expect("writing to a string");
        text
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every download would be called damaged. Expected values: `sha256sum`, `git hash-object`.
    #[test]
    fn digests_of_known_bytes() {
        let of = |expected: Option<&Digest>| {
            let mut hasher = Hasher::new(expected, 6);
            hasher.update(b"hel");
            hasher.update(b"lo\n");
            hasher.finish()
        };
        let sha256 = "5891b5b522d5df086d0ff0b110fbd9d21bb4fc7163af34d08286a2e846f6be03";
        assert_eq!(of(None), Digest::sha256(sha256).unwrap());
        let git = Digest::git_blob("ce013625030ba8dba906f756967f9e9ca394464a").unwrap();
        assert_eq!(of(Some(&git)), git);
        assert_eq!(Digest::sha256("zz"), None);
    }
}
