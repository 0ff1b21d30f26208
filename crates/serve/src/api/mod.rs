//! The APIs' words: wire types exist only here, one folder an API.

pub(crate) mod answer;
pub(crate) mod anthropic;
pub(crate) mod fields;
pub(crate) mod openai;
mod parts;
pub(crate) mod responses;
mod skipped;
pub(crate) mod thinking;
pub(crate) mod tokens;
