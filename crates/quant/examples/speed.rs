//! How fast one core encodes and decodes rows, in bytes of bf16 a second:
//! `cargo run --release -p flash-moe-quant --example speed`.

use std::hint::black_box;
use std::time::Instant;

use quant::{Format, decode_row, encode_row};

const COLS: usize = 4096;
const N_ROW: usize = 4096;

fn main() {
    let row: Vec<f32> = (0..COLS).map(|i| ((i * 7919 % 1009) as f32 / 504.0 - 1.0) * 0.05).collect();
    let mut out = vec![0.0; COLS];
    for name in
        ["affine2g64", "affine3g64", "affine4g64", "affine5g64", "affine6g64", "affine8g64", "bf16", "f16"]
    {
        let format: Format = name.parse().expect("a known format");
        let mut codes = vec![0; format.row_bytes(COLS)];
        let mut scales = vec![0; format.scale_row_bytes(COLS)];
        let mut biases = scales.clone();
        let encode_gb_s = gb_s(|| {
            encode_row(format, black_box(&row), &mut codes, &mut scales, &mut biases).expect("small numbers");
        });
        let decode_gb_s = gb_s(|| decode_row(format, black_box(&codes), &scales, &biases, &mut out));
        println!("{name:10}  encode {encode_gb_s:5.2} GB/s  decode {decode_gb_s:5.2} GB/s");
    }
}

/// Gigabytes of bf16 a second of `work`, which handles one row.
fn gb_s(mut work: impl FnMut()) -> f64 {
    let start = Instant::now();
    for _ in 0..N_ROW {
        work();
    }
    (N_ROW * COLS * 2) as f64 / start.elapsed().as_secs_f64() / 1e9
}
