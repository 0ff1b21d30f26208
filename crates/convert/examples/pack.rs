//! `pack SOURCE STORE [BITS]`: packs and prints what it took, to measure the library alone.

use std::env;
use std::path::Path;

use convert::{Checkpoint, PackOptions, pack};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let args: Vec<String> = env::args().collect();
    let (source, out, bits) = match args.as_slice() {
        [_, source, out] => (source, out, "4"),
        [_, source, out, bits] => (source, out, bits.as_str()),
        _ => return Err("usage: pack SOURCE STORE [BITS]".into()),
    };
    let checkpoint = Checkpoint::open(Path::new(source))?;
    let options = PackOptions { bits: bits.parse()?, ..PackOptions::default() };
    let report = pack(&checkpoint, Path::new(out), &options, &mut |_| ())?;
    let (in_mb, out_mb) = (report.in_bytes as f64 / 1e6, report.out_bytes as f64 / 1e6);
    println!(
        "{in_mb:.0} MB in, {out_mb:.0} MB out, {:.1} s, {:.0} MB/s",
        report.seconds,
        in_mb / report.seconds
    );
    println!("resumed {:.0} MB", report.resumed_bytes as f64 / 1e6);
    for error in report.errors {
        println!("{:<20} {:<12} {:.4}", error.role, error.format.to_string(), error.relative_rms);
    }
    report.notes.iter().for_each(|note| println!("{note}"));
    Ok(())
}
