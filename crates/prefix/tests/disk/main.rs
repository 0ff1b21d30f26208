//! Checkpoints in files: what comes back, what is never used, and what happens when something is in the way.

mod basic;
mod common;
mod damage;
mod kill;
mod limits;
mod shared;
