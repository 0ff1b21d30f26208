//! Tests of the whole.

mod faults;
mod msl;
