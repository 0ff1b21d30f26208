//! Stub.
/// Length of a delta-net chunk.
pub const DELTA_CHUNK: usize = 64;
/// Stub.
pub struct Cpu;
