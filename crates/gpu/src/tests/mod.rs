//! Tests of the whole.

mod faults;
mod msl;
#[cfg(target_os = "linux")]
mod processes;
