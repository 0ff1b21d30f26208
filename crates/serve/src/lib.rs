//! Server.

#[cfg_attr(not(test), expect(dead_code, reason = "the server's router takes it in"))]
mod web;
