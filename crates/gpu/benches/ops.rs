//! `cargo bench -p flash-moe-gpu --features bench --bench ops [-- ADAPTER]`: kernels of everything but products.

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let adapter = std::env::args().skip(1).find_map(|arg| arg.parse().ok());
    gpu::bench_ops::run(adapter, &mut std::io::stdout())
}
