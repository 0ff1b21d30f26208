//! The cache as a scheduler uses it, with a model of hashes in place of the real one.

mod archive;
mod cases;
mod edits;
mod model;
mod told;
