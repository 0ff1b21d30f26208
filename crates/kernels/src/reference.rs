//! Stub.
/// Stub.
pub struct Reference;
