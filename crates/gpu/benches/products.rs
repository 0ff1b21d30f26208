//! Prints how fast products of few tokens are.

fn main() -> std::io::Result<()> {
    gpu::bench::products(&mut std::io::stdout().lock())
}
