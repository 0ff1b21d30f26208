//! Runs the real program, as a user or a script would.

mod answers;
mod bad_inputs;
mod chat;
mod checkpoints;
#[cfg(target_os = "linux")]
mod disks;
mod doctor;
mod eval;
#[path = "../../../convert/tests/common/gguf.rs"]
mod gguf_files;
#[path = "../../../hub/tests/common/server.rs"]
mod hub_server;
mod prefixes;
mod pull;
#[path = "../../../convert/tests/common/random.rs"]
mod random;
mod results;
mod support;
#[cfg(unix)]
mod terminal;
