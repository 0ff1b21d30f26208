//! The 4-bit product in the forms that others use, in the first-level cache, on one core.
//!
//! *naive* decodes each weight and multiplies, *fma* is `fma(code, scale·x, bias·x)`; both in f32, a row at a time,
//! 16 columns a vector. *ours* is [`Backend::matmul`].

use std::sync::Arc;
use std::time::Instant;

use kernels::{Backend, Cpu, Isa, Precision};
use quant::{Buffer, Format, Matrix};

const ROWS: usize = 64;
const COLS: usize = 1024;
const GROUP: usize = 64;
const TIMES: usize = 2000;
const FORMAT: Format = Format::Affine { bits: 4, group: GROUP as u8 };

/// Prints GB/s of each form, and its ratio to the first.
pub(super) fn compare() {
    let bytes = FORMAT.matrix_bytes(ROWS, COLS);
    let mut buffer = Buffer::zeroed(bytes).expect("memory for a small matrix");
    for (i, byte) in buffer.iter_mut().enumerate() {
        *byte = if i % 2 == 1 { 0x3c } else { (i * 7) as u8 };
    }
    let w = Matrix::new(FORMAT, ROWS, COLS, Arc::new(buffer), 0).expect("a matrix of this shape");
    let x: Vec<f32> = (0..COLS).map(|i| (i % 17) as f32 - 8.0).collect();
    println!("\n4-bit product in cache, one thread, {ROWS}x{COLS}");
    let report = |name: &str, base: f64, gb_s: f64| {
        let ratio = if base.is_nan() { String::new() } else { format!(", {:.2} of naive", gb_s / base) };
        println!("{name:24} {gb_s:6.1} GB/s{ratio}");
        gb_s
    };
    #[cfg(not(target_arch = "x86_64"))]
    let base = f64::NAN;
    #[cfg(target_arch = "x86_64")]
    let base = if is_x86_feature_detected!("avx512f") {
        let (mut out, mut naive, mut fma) = (vec![0.0; ROWS], Vec::new(), Vec::new());
        for _ in 0..TIMES {
            // SAFETY: the features were just seen.
            naive.push(seconds(|| unsafe { x86::naive(&w, &x, &mut out) }));
            // SAFETY: the features were just seen.
            fma.push(seconds(|| unsafe { x86::fma(&w, &x, &mut out) }));
        }
        let base = rate(bytes, naive);
        report("naive, AVX-512", base, base);
        report("fma, AVX-512", base, rate(bytes, fma));
        base
    } else {
        f64::NAN
    };
    for isa in Isa::ALL {
        let Some(cpu) = Cpu::with_isa(1, isa) else { continue };
        let mut out = cpu.zeros(ROWS);
        let mut one = || cpu.matmul(&mut [(&w, &mut out)], &x, 0, 1, Precision::Setting);
        let times = (0..TIMES).map(|_| seconds(&mut one)).collect();
        report(&format!("ours, {isa}"), base, rate(bytes, times));
    }
}

fn seconds(run: impl FnOnce()) -> f64 {
    let start = Instant::now();
    run();
    start.elapsed().as_secs_f64()
}

fn rate(bytes: usize, times: Vec<f64>) -> f64 {
    bytes as f64 / super::median(times) / 1e9
}

#[cfg(target_arch = "x86_64")]
mod x86 {
    use std::arch::x86_64::*;

    use quant::{Matrix, MatrixRef};

    use super::{COLS, GROUP, ROWS};

    /// Codes `16·i ..` of a row as f32.
    #[target_feature(enable = "avx512f")]
    #[inline]
    fn codes(row: &[u8], i: usize) -> __m512 {
        let bytes: [u8; 8] = row[8 * i..8 * i + 8].try_into().expect("8 bytes");
        let words = i64::from_le_bytes(bytes);
        let lanes = _mm512_set_epi64(words, words, words, words, words, words, words, words);
        // The even lanes hold the low word, the odd lanes the high one: the order of columns is that of `x` below.
        let shifts = _mm512_set_epi32(28, 28, 24, 24, 20, 20, 16, 16, 12, 12, 8, 8, 4, 4, 0, 0);
        _mm512_cvtepi32_ps(_mm512_and_si512(_mm512_srlv_epi32(lanes, shifts), _mm512_set1_epi32(15)))
    }

    #[target_feature(enable = "avx512f")]
    #[inline]
    fn activations(x: &[f32], i: usize) -> __m512 {
        let x = &x[16 * i..16 * i + 16];
        // Lane 2·j is column j, lane 2·j + 1 column 8 + j.
        let order = _mm512_set_epi32(15, 7, 14, 6, 13, 5, 12, 4, 11, 3, 10, 2, 9, 1, 8, 0);
        // SAFETY: 16 numbers.
        _mm512_permutexvar_ps(order, unsafe { _mm512_loadu_ps(x.as_ptr()) })
    }

    fn bf16(plane: &[u8], i: usize) -> f32 {
        f32::from_bits((u16::from_le_bytes([plane[2 * i], plane[2 * i + 1]]) as u32) << 16)
    }

    macro_rules! product {
        ($name:ident, $step:ident) => {
            #[target_feature(enable = "avx512f")]
            pub(super) fn $name(w: &Matrix, x: &[f32], out: &mut [f32]) {
                let MatrixRef { codes: plane, scales, biases, .. } = w.view();
                let n_group = COLS / GROUP;
                let mut laid_out = [_mm512_setzero_ps(); COLS / 16];
                for (i, to) in laid_out.iter_mut().enumerate() {
                    *to = activations(x, i);
                }
                for r in 0..ROWS {
                    let row = &plane[r * COLS / 2..(r + 1) * COLS / 2];
                    let mut sums = [_mm512_setzero_ps(); 4];
                    for g in 0..n_group {
                        let scale = _mm512_set1_ps(bf16(scales, r * n_group + g));
                        let bias = _mm512_set1_ps(bf16(biases, r * n_group + g));
                        for j in 0..4 {
                            let i = 4 * g + j;
                            sums[j] = $step(codes(row, i), scale, bias, laid_out[i], sums[j]);
                        }
                    }
                    let sum = _mm512_add_ps(_mm512_add_ps(sums[0], sums[1]), _mm512_add_ps(sums[2], sums[3]));
                    out[r] = _mm512_reduce_add_ps(sum);
                }
            }
        };
    }

    #[target_feature(enable = "avx512f")]
    #[inline]
    fn naive_step(q: __m512, scale: __m512, bias: __m512, x: __m512, sum: __m512) -> __m512 {
        _mm512_add_ps(sum, _mm512_mul_ps(_mm512_add_ps(_mm512_mul_ps(q, scale), bias), x))
    }

    #[target_feature(enable = "avx512f")]
    #[inline]
    fn fma_step(q: __m512, scale: __m512, bias: __m512, x: __m512, sum: __m512) -> __m512 {
        _mm512_add_ps(sum, _mm512_fmadd_ps(q, _mm512_mul_ps(scale, x), _mm512_mul_ps(bias, x)))
    }

    product!(naive, naive_step);
    product!(fma, fma_step);
}
