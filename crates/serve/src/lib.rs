//! The server: HTTP, the APIs' words, and the engine that many requests share.
#![forbid(unsafe_code)]

pub mod engine;
