//! What an answer is held to: a grammar over tokens.

use std::sync::Arc;

use crate::error::GenerateError;

/// A compiled grammar at its start. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Constraint {
    pub(crate) source: Arc<str>,
}

impl Constraint {
    /// From a Lark grammar.
    pub(crate) fn from_lark(source: &str) -> Result<Self, GenerateError> {
        Ok(Self { source: source.into() })
    }
}
