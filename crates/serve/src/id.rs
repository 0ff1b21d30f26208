//! Names for answers and calls.

use std::hash::{BuildHasher, Hasher, RandomState};
use std::time::{SystemTime, UNIX_EPOCH};

/// Differs each time. (The standard library seeds its hashers at random.)
pub(crate) fn random() -> u64 {
    RandomState::new().build_hasher().finish()
}

/// A name that nothing else has.
pub(crate) fn fresh(prefix: &str) -> String {
    format!("{prefix}{:016x}{:08x}", random(), random() as u32)
}

/// Seconds since 1970.
pub(crate) fn now_s() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}
