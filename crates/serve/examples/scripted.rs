//! A server that plays scripts instead of running a model, for test suites of client libraries.
//!
//! `scripted SCRIPTS.json [--prefill-ms N] [--token-ms N] [--port N]`: the file is an object from keys to texts; the
//! key that comes last in a prompt decides what is answered. A text that begins with `!error ` fails at its end. Prints
//! its address when it is ready, and ends when its standard input does.

#[allow(dead_code, unreachable_pub)]
#[path = "../tests/server/scripted.rs"]
mod scripted;

use std::collections::BTreeMap;
use std::io::Read;
use std::net::TcpListener;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use prefix::Cache;
use scripted::{Script, Scripted, Stage, text_model};
use serve::ServeOptions;
use serve::engine::SchedulerOptions;

/// Of what is kept of prompts.
const CACHE_BYTES: u64 = 256 << 20;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let number = |name: &str| {
        let at = args.iter().position(|arg| arg == name)?;
        args.get(at + 1)?.parse::<u64>().ok()
    };
    let mut stage = Stage::new(&[]);
    if let Some(path) = args.first().filter(|arg| !arg.starts_with("--")) {
        let scripts: BTreeMap<String, String> = serde_json::from_slice(&std::fs::read(path)?)?;
        let script = |(key, text): (String, String)| match text.strip_prefix("!error ") {
            Some(text) => (key, Script::Fails(text.to_owned())),
            None => (key, Script::Text(text)),
        };
        stage.scripts = scripts.into_iter().map(script).collect();
    }
    stage.prefill_time = Duration::from_millis(number("--prefill-ms").unwrap_or(0));
    stage.decode_time = Duration::from_millis(number("--token-ms").unwrap_or(0));
    let port = number("--port").map_or(Ok(0), u16::try_from)?;
    let listener = TcpListener::bind(("127.0.0.1", port))?;
    println!("http://{}", listener.local_addr()?);
    let is_over = Arc::new(AtomicBool::new(false));
    let over = is_over.clone();
    std::thread::spawn(move || {
        let _ = std::io::stdin().read_to_end(&mut Vec::new());
        over.store(true, Ordering::SeqCst);
    });
    let text = text_model();
    let options = ServeOptions::new("scripted", text.tokenizer().vocab_size(), stage.n_ctx);
    let scheduling = SchedulerOptions { n_parallel: 4, ..SchedulerOptions::default() };
    let (grace, stop) = (Duration::from_secs(1), move || is_over.load(Ordering::SeqCst));
    let (mut model, text) = (Scripted::new(stage), Arc::new(text));
    let cache = Some(Cache::new(Scripted::identity(), CACHE_BYTES));
    serve::serve(&mut model, text, listener, options, scheduling, cache, 64, grace, stop)?;
    Ok(())
}
