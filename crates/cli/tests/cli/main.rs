//! Runs the real program, as a user or a script would.

mod answers;
mod bad_inputs;
mod chat;
mod doctor;
mod eval;
#[path = "../../../hub/tests/common/server.rs"]
mod hub_server;
mod prefixes;
mod pull;
mod results;
mod support;
#[cfg(unix)]
mod terminal;
