//! Tests of the forward pass against the float64 reference and against itself.

mod batches;
mod faults;
mod forms;
mod gguf;
mod golden;
mod gpu;
mod identity;
mod observe;
mod prefixes;
mod rig;
mod sessions;

/// GGUF files for tests: the same as those of `convert`'s own.
#[path = "../../../convert/tests/common/gguf.rs"]
mod gguf_files;
#[path = "../../../convert/tests/common/random.rs"]
mod random;
