//! The APIs' words: wire types exist only here, one folder an API.

pub(crate) mod answer;
pub(crate) mod fields;
pub(crate) mod openai;
pub(crate) mod thinking;
pub(crate) mod tokens;
