//! Matrices of plain floats: activations in f32, products by fused multiply-add.
//!
//! A row at a time, 16 columns a vector, in blocks of eight vectors whose sums are added to a total; at the end the
//! sum of the lanes. The order of the sums is the same for every tile, so a token's result does not depend on its
//! neighbours.

use std::marker::PhantomData;

use half::bf16;
use quant::{FP8_BLOCK, MatrixRef};

use super::simd::{Kernel, LANES, Lanes, Simd};

/// Vectors of a block.
const BLOCK_VECTORS: usize = 8;
/// How far ahead of the numbers in use memory is asked for. The CPU's own prefetching stops at each 4 KiB page, where
/// many rows begin.
const PREFETCH_BYTES: usize = 4096;

/// Vectors of the activations of one token, whole blocks.
pub(super) fn n_lanes(cols: usize) -> usize {
    cols.next_multiple_of(BLOCK_VECTORS * LANES) / LANES
}

/// A format's numbers.
pub(super) trait Floats {
    /// Bytes of a number.
    const BYTES: usize;
    /// 16 numbers at the head of `bytes`.
    fn load<S: Simd>(s: S, bytes: &[u8]) -> S::V;
    /// What the numbers of block `block` of row `row` are to be multiplied with; `None` if they are what they are.
    #[inline(always)]
    fn scale(_w: &MatrixRef<'_>, _row: usize, _block: usize) -> Option<f32> {
        None
    }
}

/// IEEE single precision.
pub(super) struct Float32;

impl Floats for Float32 {
    const BYTES: usize = 4;

    #[inline(always)]
    fn load<S: Simd>(s: S, bytes: &[u8]) -> S::V {
        let (numbers, _) = bytes[..64].as_chunks::<4>();
        s.load(&std::array::from_fn(|i| f32::from_le_bytes(numbers[i])))
    }
}

/// IEEE half precision.
pub(super) struct Float16;

impl Floats for Float16 {
    const BYTES: usize = 2;

    #[inline(always)]
    fn load<S: Simd>(s: S, bytes: &[u8]) -> S::V {
        s.load_f16(bytes[..32].try_into().expect("32 bytes"))
    }
}

/// bfloat16.
pub(super) struct BFloat16;

impl Floats for BFloat16 {
    const BYTES: usize = 2;

    #[inline(always)]
    fn load<S: Simd>(s: S, bytes: &[u8]) -> S::V {
        s.load_bf16(bytes[..32].try_into().expect("32 bytes"))
    }
}

/// E4M3 with a scale each 128 rows and 128 columns, bf16 or, if `WIDE`, f32.
pub(super) struct Float8<const WIDE: bool>;

impl<const WIDE: bool> Floats for Float8<WIDE> {
    const BYTES: usize = 1;

    #[inline(always)]
    fn load<S: Simd>(s: S, bytes: &[u8]) -> S::V {
        s.load_e4m3(bytes[..LANES].try_into().expect("16 bytes"))
    }

    #[inline(always)]
    fn scale(w: &MatrixRef<'_>, row: usize, block: usize) -> Option<f32> {
        const { assert!(BLOCK_VECTORS * LANES == FP8_BLOCK, "a scale for each block") };
        let n_block = w.cols.div_ceil(FP8_BLOCK);
        let at = row / FP8_BLOCK * n_block + block;
        let scale = if WIDE {
            f32::from_le_bytes(w.scales[4 * at..][..4].try_into().expect("4 bytes"))
        } else {
            bf16::from_le_bytes([w.scales[2 * at], w.scales[2 * at + 1]]).to_f32()
        };
        // What is loaded is 2⁻⁸ of the number.
        Some(256.0 * scale)
    }
}

/// Lays out token `t` of a tile of `n_token`: `[n_lanes][n_token]`.
pub(super) fn prepare(row: &[f32], t: usize, n_token: usize, to: &mut [Lanes<i32>]) {
    let mut at = 0;
    for to in to.iter_mut().skip(t).step_by(n_token) {
        let from = row.get(at..row.len().min(at + LANES)).unwrap_or(&[]);
        to.0.fill(0);
        to.0.iter_mut().zip(from).for_each(|(to, x)| *to = x.to_bits() as i32);
        at += LANES;
    }
}

/// Two blocks of 16 rows times a tile of `T` tokens.
pub(super) struct Dot<'a, F, const T: usize> {
    pub(super) w: [MatrixRef<'a>; 2],
    /// The first rows. Rows behind the last one repeat it.
    pub(super) first: [usize; 2],
    pub(super) x: &'a [Lanes<i32>],
    /// `[T]`
    pub(super) totals: &'a mut [[Lanes; 2]],
    pub(super) floats: PhantomData<F>,
}

impl<F: Floats, const T: usize> Kernel for Dot<'_, F, T> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        // Known when compiled: no code is made for tiles that the set never gets.
        assert!(T <= S::TILE, "a tile of {T} tokens");
        let Self { w, first, x, totals, .. } = self;
        let (x, _) = x.as_chunks::<T>();
        for r in 0..2 {
            for i in (0..LANES).step_by(2) {
                let rows = [i, i + 1].map(|i| (first[r] + i).min(w[r].rows - 1));
                let y = pair::<S, F, T>(s, &w[r], rows, x);
                for t in 0..T {
                    (totals[t][r].0[i], totals[t][r].0[i + 1]) = (y[0][t], y[1][t]);
                }
            }
        }
    }
}

/// Two rows at once share the loads of the activations.
#[inline(always)]
fn pair<S: Simd, F: Floats, const T: usize>(
    s: S,
    w: &MatrixRef<'_>,
    row: [usize; 2],
    x: &[[Lanes<i32>; T]],
) -> [[f32; T]; 2] {
    let row_bytes = F::BYTES * w.cols;
    let rows = row.map(|row| &w.codes[row * row_bytes..][..row_bytes]);
    let scales = |block: usize| row.map(|row| F::scale(w, row, block));
    let block_bytes = BLOCK_VECTORS * LANES * F::BYTES;
    let mut totals = [[s.splat(0.0); T]; 2];
    let n_block = rows[0].len() / block_bytes;
    for block in 0..n_block {
        let rows = [&rows[0][block * block_bytes..], &rows[1][block * block_bytes..]];
        add_block::<S, F, T>(s, rows, scales(block), &x[block * BLOCK_VECTORS..], &mut totals);
    }
    let rest = [&rows[0][n_block * block_bytes..], &rows[1][n_block * block_bytes..]];
    if !rest[0].is_empty() {
        // Zeros behind the end of the row, so that the last block is a whole one.
        let mut padded = [[0; BLOCK_VECTORS * LANES * size_of::<f32>()]; 2];
        for r in 0..2 {
            padded[r][..rest[r].len()].copy_from_slice(rest[r]);
        }
        let x = &x[n_block * BLOCK_VECTORS..];
        add_block::<S, F, T>(s, [&padded[0], &padded[1]], scales(n_block), x, &mut totals);
    }
    let mut y = [[0.0; T]; 2];
    for r in 0..2 {
        for t in 0..T {
            y[r][t] = s.sum(totals[r][t]);
        }
    }
    y
}

#[inline(always)]
fn add_block<S: Simd, F: Floats, const T: usize>(
    s: S,
    rows: [&[u8]; 2],
    scales: [Option<f32>; 2],
    x: &[[Lanes<i32>; T]],
    totals: &mut [[S::V; T]; 2],
) {
    for row in rows {
        for line in (0..BLOCK_VECTORS * LANES * F::BYTES).step_by(64) {
            s.prefetch(row.as_ptr().wrapping_add(PREFETCH_BYTES + line));
        }
    }
    let mut partial = [[s.splat(0.0); T]; 2];
    for j in 0..BLOCK_VECTORS {
        let at = j * LANES * F::BYTES;
        let w = [F::load(s, &rows[0][at..]), F::load(s, &rows[1][at..])];
        for t in 0..T {
            let x = s.as_float(s.int_load(&x[j][t].0));
            for r in 0..2 {
                partial[r][t] = s.fma(w[r], x, partial[r][t]);
            }
        }
    }
    for r in 0..2 {
        for t in 0..T {
            totals[r][t] = match scales[r] {
                Some(scale) => s.fma(partial[r][t], s.splat(scale), totals[r][t]),
                None => s.add(totals[r][t], partial[r][t]),
            };
        }
    }
}

/// Evaluates `$e` with `$floats` standing for the [`Floats`] of a format of plain floats.
macro_rules! with_floats {
    ($format:expr, $floats:ident => $e:expr) => {{
        use $crate::cpu::floats::{BFloat16, Float8, Float16, Float32};
        match $format {
            Format::F32 => {
                type $floats = Float32;
                $e
            }
            Format::F16 => {
                type $floats = Float16;
                $e
            }
            Format::Bf16 => {
                type $floats = BFloat16;
                $e
            }
            Format::Fp8 => {
                type $floats = Float8<false>;
                $e
            }
            Format::Fp8F32 => {
                type $floats = Float8<true>;
                $e
            }
            other => unreachable!("{other} has codes"),
        }
    }};
}
pub(super) use with_floats;
