//! Runs the real program, as a user or a script would.

mod answers;
mod bad_inputs;
mod chat;
mod doctor;
mod results;
mod support;
#[cfg(unix)]
mod terminal;
