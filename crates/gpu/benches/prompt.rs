//! `cargo bench -p flash-moe-gpu --features bench --bench prompt [-- ADAPTER]`: products of many tokens.

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let adapter = std::env::args().skip(1).find_map(|arg| arg.parse().ok());
    gpu::bench_prompt::run(adapter, &mut std::io::stdout())
}
