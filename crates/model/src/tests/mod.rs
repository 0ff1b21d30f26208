//! Tests of the forward pass against the float64 reference and against itself.

mod batches;
mod faults;
mod golden;
mod gpu;
mod identity;
mod rig;
mod sessions;
