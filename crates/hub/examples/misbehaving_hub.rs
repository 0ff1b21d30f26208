//! The hub of the tests, for trying `pull` by hand: `misbehaving_hub BYTES PORT`, then
//! `HF_ENDPOINT=http://127.0.0.1:PORT flash-moe pull owner/model FOLDER`, killed as often as you like. A line on
//! standard input makes it print how many bytes it sent, and how many of them twice.

#[path = "../tests/common/server.rs"]
mod server;

use std::io::BufRead;

use server::{ALWAYS, Act, File, Rule, Server};

/// Weight files.
const N_SHARD: u64 = 4;

fn main() {
    let mut args = std::env::args().skip(1).map(|arg| arg.parse::<u64>());
    let (Some(Ok(bytes)), Some(Ok(port))) = (args.next(), args.next()) else {
        eprintln!("usage: misbehaving_hub BYTES PORT");
        std::process::exit(2);
    };
    let shard = |i| File::new(&format!("model-{i:05}-of-{N_SHARD:05}.safetensors"), bytes / N_SHARD + i);
    let mut files = vec![File::new("config.json", 700), File::new("tokenizer.json", 10_000_000)];
    files.extend((1..=N_SHARD).map(shard));
    let refuse = |status, headers| Act::Refuse(status, headers, "");
    let rules = vec![
        Rule::new("/api/", 1..2, refuse(502, &[])),
        Rule::new("resolve", ALWAYS, Act::Redirect),
        Rule::new("/storage/model", 5..9, Act::Drop(3_000_000)),
        Rule::new("/storage/model", 11..12, refuse(403, &[])),
        Rule::new("/storage/model", 13..16, refuse(503, &[("Retry-After", "1")])),
        Rule::new("/storage/model", 20..21, Act::OtherRange),
        Rule::new("/storage/model", 24..26, Act::Length(-1000)),
        Rule::new("/storage/model", 28..30, Act::IgnoreRange),
        Rule::new("/storage/model", 33..36, Act::Hang),
        Rule::new("/storage/model", 40..45, Act::Drop(20_000_000)),
    ];
    for file in &files {
        println!("{} {}", file.sha256(), file.name);
    }
    let server = Server::start_on(port as u16, files, rules);
    println!("listening on {}", server.url());
    for _ in std::io::stdin().lock().lines() {
        println!("{} bytes sent, {} of them twice", server.sent_bytes(), server.twice_bytes());
    }
}
