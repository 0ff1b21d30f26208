//! Random inputs, backends under test, and how far results may lie apart.

use std::sync::Arc;

use kernels::{Backend, Cpu, Isa};
use quant::{Block, Buffer, Format, Matrix};

/// Whether an emulator runs the tests, which takes about a hundred times as long: `FLASH_MOE_TEST_EMULATED` is set.
pub(crate) fn is_emulated() -> bool {
    std::env::var_os("FLASH_MOE_TEST_EMULATED").is_some()
}

/// All cases; one of five under an emulator. Where cases are all pairs of some things, no number of things should be a
/// multiple of five.
pub(crate) fn some<T>(cases: impl IntoIterator<Item = T>) -> impl Iterator<Item = T> {
    cases.into_iter().step_by(if is_emulated() { 5 } else { 1 })
}

/// Every instruction set that this CPU has, on 1, 2 and 5 threads; on 2 threads under an emulator.
pub(crate) fn cpus() -> Vec<Cpu> {
    if is_emulated() {
        return cpus_2();
    }
    let threads = [1, 2, 5].into_iter();
    threads.flat_map(|n| Isa::ALL.into_iter().filter_map(move |isa| Cpu::with_isa(n, isa))).collect()
}

/// Every instruction set that this CPU has, on 2 threads.
pub(crate) fn cpus_2() -> Vec<Cpu> {
    Isa::ALL.into_iter().filter_map(|isa| Cpu::with_isa(2, isa)).collect()
}

/// Every stored format.
pub(crate) fn formats() -> Vec<Format> {
    let affine = [2, 3, 4, 5, 6, 8].into_iter();
    let affine = affine.flat_map(|bits| [32, 64, 128].map(|group| Format::Affine { bits, group }));
    let affine =
        affine.chain([(3, 32), (4, 64), (8, 128)].map(|(bits, group)| Format::AffineF16 { bits, group }));
    let floats = [Format::F32, Format::F16, Format::Bf16, Format::Fp8, Format::Fp8F32];
    let blocks = Block::ALL.into_iter().map(Format::Block);
    floats.into_iter().chain(affine).chain([Format::Mxfp4, Format::Nvfp4]).chain(blocks).collect()
}

/// SplitMix64: small, seeded, good enough for test data.
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed)
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    pub(crate) fn below(&mut self, n: usize) -> usize {
        (self.next() % n as u64) as usize
    }

    /// In -1..1.
    pub(crate) fn unit(&mut self) -> f32 {
        (self.next() >> 40) as f32 / (1u64 << 23) as f32 - 1.0
    }

    /// About normal, standard deviation 1.
    pub(crate) fn normal(&mut self) -> f32 {
        (0..6).map(|_| self.unit()).sum::<f32>() / 2f32.sqrt()
    }

    pub(crate) fn normals(&mut self, n: usize) -> Vec<f32> {
        (0..n).map(|_| self.normal()).collect()
    }

    /// A quantised random matrix whose products with normal vectors are about normal.
    pub(crate) fn matrix(&mut self, format: Format, rows: usize, cols: usize) -> Matrix {
        if !is_encoded(format) {
            return self.stored(format, rows, cols);
        }
        let scale = 1.0 / (cols as f32).sqrt();
        let numbers: Vec<f32> = self.normals(rows * cols).iter().map(|x| x * scale).collect();
        matrix(format, rows, cols, &numbers)
    }
}

/// Whether numbers can be stored in a format.
fn is_encoded(format: Format) -> bool {
    !matches!(format, Format::AffineF16 { .. } | Format::Mxfp4 | Format::Nvfp4 | Format::Block(_))
}

/// Stores a matrix in `format`.
pub(crate) fn matrix(format: Format, rows: usize, cols: usize, numbers: &[f32]) -> Matrix {
    let mut buffer = Buffer::zeroed(format.matrix_bytes(rows, cols)).unwrap();
    let [codes_at, scales_at, biases_at] = format.planes(rows, cols);
    let n = format.scale_rows();
    for (i, rows) in numbers.chunks(n * cols).enumerate() {
        let row_bytes = format.row_bytes(cols);
        let (mut codes, mut scales) =
            (vec![0; rows.len() / cols * row_bytes], vec![0; format.scale_row_bytes(cols)]);
        let mut biases = vec![0; format.bias_row_bytes(cols)];
        quant::encode_rows(format, cols, rows, &mut codes, &mut scales, &mut biases).unwrap();
        let starts = [
            codes_at.start + i * n * row_bytes,
            scales_at.start + i * scales.len(),
            biases_at.start + i * biases.len(),
        ];
        for (start, bytes) in starts.into_iter().zip([codes, scales, biases]) {
            buffer[start..start + bytes.len()].copy_from_slice(&bytes);
        }
    }
    Matrix::new(format, rows, cols, Arc::new(buffer), 0).unwrap()
}

/// Fails unless `got` lies within `bound` of `want`, relative to the larger of the number itself and the root mean
/// square of them all: the error that matters to what sums them up.
pub(crate) fn assert_close(what: &dyn std::fmt::Display, got: &[f32], want: &[f32], bound: f64) {
    assert_close_to(what, got, want, bound, norm(want) / (want.len().max(1) as f64).sqrt());
}

/// As [`assert_close`], with the size that is expected of the numbers: one sum may be small by chance.
pub(crate) fn assert_close_to(
    what: &dyn std::fmt::Display,
    got: &[f32],
    want: &[f32],
    bound: f64,
    size: f64,
) {
    assert_eq!(got.len(), want.len(), "{what}: lengths");
    for (i, (&got, &want)) in got.iter().zip(want).enumerate() {
        let (got, want) = (got as f64, want as f64);
        let error = (got - want).abs() / size.max(want.abs()).max(1e-38);
        assert!(
            error <= bound,
            "{what}: number {i} is {got:e}, should be {want:e}: error {error:.2e}, size {size:.2e}"
        );
    }
}

/// `sqrt(Σ x²)`
pub(crate) fn norm(x: &[f32]) -> f64 {
    x.iter().map(|&x| (x as f64).powi(2)).sum::<f64>().sqrt()
}

/// Fails unless the bits agree.
pub(crate) fn assert_same(what: &dyn std::fmt::Display, got: &[f32], want: &[f32]) {
    assert_eq!(got.len(), want.len(), "{what}: lengths");
    for (i, (got, want)) in got.iter().zip(want).enumerate() {
        assert!(got.to_bits() == want.to_bits(), "{what}: number {i} is {got:e}, was {want:e}");
    }
}

/// Whether all results of the set must have the same bits as those of every other set of which this holds.
pub(crate) fn is_fused(cpu: &Cpu) -> bool {
    cpu.isa() != Isa::Generic
}

pub(crate) fn name(cpu: &Cpu) -> String {
    cpu.describe()
}
