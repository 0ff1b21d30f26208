//! What a checkpoint is of, and how it is named.

use serde::{Deserialize, Serialize};
use xxhash_rust::xxh3::xxh3_128;

/// What must be the same for a checkpoint to be of use: what was computed under one identity is never used under
/// another.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Identity {
    /// Names the weights.
    pub fingerprint: u64,
    /// Whatever else changes the numbers, in words: experts a token, format of keys and values, activations, device.
    pub settings: String,
    /// The model's name, for people. May differ.
    pub model: String,
    /// Bytes of what is kept.
    pub shape: Shape,
}

/// How much is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Shape {
    /// Keys and values of one position, all layers.
    pub kv_token_bytes: usize,
    /// The recurrent state, all layers. It comes first in a checkpoint's state.
    pub state_bytes: usize,
    /// Logits at a position: behind the recurrent state where they are known.
    pub logits_bytes: usize,
}

/// Names a node: what was fed from the start up to its end, and under which identity.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Key(u128);

impl Identity {
    /// The key of the empty prefix.
    pub fn root(&self) -> Key {
        let Self { fingerprint, settings, model: _, shape } = self;
        let Shape { kv_token_bytes, state_bytes, logits_bytes } = shape;
        let text = format!("{fingerprint:016x} {kv_token_bytes} {state_bytes} {logits_bytes} {settings}");
        Key(xxh3_128(text.as_bytes()))
    }
}

impl Key {
    /// The key of the node that `ids` lead to from here.
    pub fn child(self, ids: &[u32]) -> Self {
        let words = ids.iter().flat_map(|id| id.to_le_bytes());
        let bytes: Vec<u8> = self.0.to_le_bytes().into_iter().chain(words).collect();
        Self(xxh3_128(&bytes))
    }

    /// 32 lower-case hex digits: its name in a folder.
    pub fn hex(self) -> String {
        format!("{:032x}", self.0)
    }

    /// Reads [`Self::hex`], in no other spelling.
    pub fn from_hex(text: &str) -> Option<Self> {
        let key = Self(u128::from_str_radix(text, 16).ok()?);
        (key.hex() == text).then_some(key)
    }

    /// As bytes, for a file's header.
    pub fn to_bytes(self) -> [u8; 16] {
        self.0.to_le_bytes()
    }

    /// From [`Self::to_bytes`].
    pub fn from_bytes(bytes: [u8; 16]) -> Self {
        Self(u128::from_le_bytes(bytes))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What was computed by one model would be used by another, or under other settings.
    #[test]
    fn keys_tell_everything_apart() {
        let shape = Shape { kv_token_bytes: 8, state_bytes: 16, logits_bytes: 4 };
        let one = Identity { fingerprint: 1, settings: "4 experts".into(), model: "m".into(), shape };
        let others = [
            Identity { fingerprint: 2, ..one.clone() },
            Identity { settings: "5 experts".into(), ..one.clone() },
            Identity { shape: Shape { state_bytes: 17, ..shape }, ..one.clone() },
        ];
        for other in &others {
            assert_ne!(one.root(), other.root(), "{other:?}");
        }
        assert_eq!(one.root(), Identity { model: "n".into(), ..one.clone() }.root());
        let keys = [
            one.root(),
            one.root().child(&[1]),
            one.root().child(&[1, 2]),
            one.root().child(&[1]).child(&[2]),
        ];
        for (i, key) in keys.iter().enumerate() {
            assert!(keys[..i].iter().all(|other| other != key), "key {i}");
            assert_eq!(Key::from_hex(&key.hex()), Some(*key));
            assert_eq!(Key::from_bytes(key.to_bytes()), *key);
        }
        assert_eq!(Key::from_hex(&one.root().hex().to_uppercase()), None);
    }
}
