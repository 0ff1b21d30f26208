//! The server as clients see it, with a model that plays scripts.

mod agent;
mod anthropic;
mod chat;
mod engine;
mod openapi;
mod prefixes;
mod requests;
mod responses;
mod scripted;
mod security;
mod socket;
mod support;
