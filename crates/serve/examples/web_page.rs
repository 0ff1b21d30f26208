//! Serves the web page alone, for work on it and for its tests: no model, no API.
//!
//! `cargo run -p flash-moe-serve --example web_page -- 127.0.0.1:8090`; a test's server stands in front of it and plays
//! the model (`tools/web-test`).

use std::time::Duration;

#[path = "../src/web/mod.rs"]
mod web;

#[tokio::main]
async fn main() -> std::io::Result<()> {
    let address = std::env::args().nth(1).unwrap_or_else(|| "127.0.0.1:8090".to_owned());
    let listener = tokio::net::TcpListener::bind(address).await?;
    println!("http://{}", listener.local_addr()?);
    let router = web::files().merge(web::rendering(Duration::from_secs(60)));
    axum::serve(listener, router).await
}
