//! The server as clients see it, with a model that plays scripts.

mod chat;
mod engine;
mod requests;
mod scripted;
mod security;
mod socket;
mod support;
