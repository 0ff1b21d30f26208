//! What the kernels' tests share: a device, random inputs, and how far results may lie apart.

use std::ops::Range;
use std::sync::Arc;

use quant::{Block, Buffer, Format, Matrix};

use crate::context::{Buf, Context};
use crate::ops::MatrixAt;
use crate::selftest::{fill, random as random_bits};
use crate::{AdapterKind, Gpu, GpuError};

/// A device for tests.
pub(crate) struct Rig {
    pub(crate) context: Context,
}

/// The device that `FLASH_MOE_TEST_GPU` names (a number), or the best one; `None`, loudly, where there is none.
pub(crate) fn rig() -> Option<Rig> {
    opened(Context::open).map(|context| Rig { context })
}

/// The same with all operations.
pub(crate) fn gpu() -> Option<Gpu> {
    opened(Gpu::open)
}

fn opened<T>(open: impl FnOnce(Option<usize>) -> Result<T, GpuError>) -> Option<T> {
    let skipped = |error: &GpuError| {
        eprintln!("SKIPPED: no GPU to test ({error}); Mesa's lavapipe is one for any machine");
    };
    open(index()).inspect_err(skipped).ok()
}

/// The number that `FLASH_MOE_TEST_GPU` is.
pub(crate) fn index() -> Option<usize> {
    std::env::var("FLASH_MOE_TEST_GPU").ok().map(|n| n.parse().expect("FLASH_MOE_TEST_GPU is a number"))
}

impl Rig {
    /// All cases; every third where the GPU is emulated and a kernel takes seconds to compile.
    pub(crate) fn some<T>(&self, cases: impl IntoIterator<Item = T>) -> impl Iterator<Item = T> {
        let is_emulated = self.context.report.kind == AdapterKind::Emulated;
        cases.into_iter().step_by(if is_emulated { 3 } else { 1 })
    }

    pub(crate) fn zeros(&self, n: usize) -> Buf {
        self.context.buffer(n as u64 * 4)
    }

    pub(crate) fn tensor(&self, values: &[f32]) -> Buf {
        let buf = self.zeros(values.len());
        self.context.write(&buf, 0, bytemuck::cast_slice(values));
        buf
    }

    pub(crate) fn words(&self, words: &[u32]) -> Buf {
        let buf = self.zeros(words.len());
        self.context.write(&buf, 0, bytemuck::cast_slice(words));
        buf
    }

    pub(crate) fn upload(&self, matrix: &Matrix) -> Uploaded {
        self.upload_rows(matrix, 0..matrix.rows())
    }

    /// Some rows, behind something else, with gaps between the planes.
    pub(crate) fn upload_rows(&self, matrix: &Matrix, rows: Range<usize>) -> Uploaded {
        let view = matrix.view();
        let (mut bytes, mut planes) = (vec![0xff; 64], [0; 3]);
        for (at, plane) in planes.iter_mut().zip([view.codes, view.scales, view.biases]) {
            *at = bytes.len() as u32 / 4;
            let row_bytes = plane.len() / view.rows;
            bytes.extend_from_slice(&plane[rows.start * row_bytes..rows.end * row_bytes]);
            bytes.resize((bytes.len() + 64).next_multiple_of(64), 0xff);
        }
        let buf = self.context.buffer(bytes.len() as u64);
        self.context.write(&buf, 0, &bytes);
        Uploaded { buf, format: view.format, rows: rows.len(), cols: view.cols, planes }
    }

    pub(crate) fn read(&self, buf: &Buf, n: usize) -> Vec<f32> {
        let mut out = vec![0.0; n];
        self.context.read(buf, 0, bytemuck::cast_slice_mut(&mut out));
        if let Some(error) = self.context.failure() {
            panic!("{error}");
        }
        out
    }
}

/// `n` about normal numbers, standard deviation 1.
pub(crate) fn random(seed: u64, n: usize) -> Vec<f32> {
    let mut state = seed;
    let mut unit = || (random_bits(&mut state) >> 40) as f32 / (1u64 << 23) as f32 - 1.0;
    (0..n).map(|_| (0..6).map(|_| unit()).sum::<f32>() / 2f32.sqrt()).collect()
}

/// Fails unless `got` lies within `bound` of `want`, relative to the larger of the number itself and the root mean
/// square of them all.
pub(crate) fn assert_close(what: &str, got: &[f32], want: &[f32], bound: f64) {
    let mean = want.iter().map(|&x| f64::from(x).powi(2)).sum::<f64>() / want.len().max(1) as f64;
    assert_close_to(what, got, want, bound, mean.sqrt());
}

/// As [`assert_close`], with the size that is expected of the numbers: one sum may be small by chance.
pub(crate) fn assert_close_to(what: &str, got: &[f32], want: &[f32], bound: f64, size: f64) {
    assert_eq!(got.len(), want.len(), "{what}: lengths");
    for (i, (&got, &want)) in got.iter().zip(want).enumerate() {
        let (got, want) = (f64::from(got), f64::from(want));
        let error = (got - want).abs() / size.max(want.abs()).max(1e-38);
        assert!(error <= bound, "{what}: number {i} is {got:e}, should be {want:e}: error {error:.2e}");
    }
}

/// Every stored format, with numbers of columns that tell its mistakes.
pub(crate) fn formats() -> Vec<(Format, [usize; 3])> {
    let float = [Format::F32, Format::F16, Format::Bf16].map(|format| (format, [17, 64, 3]));
    let groups = Format::AFFINE_GROUPS;
    let affine = Format::AFFINE_BITS.into_iter().flat_map(|bits| groups.map(|group| (bits, group)));
    let affine = affine.map(|(bits, group)| {
        let cols = usize::from(group);
        (Format::Affine { bits, group }, [cols, 3 * cols, 6 * cols])
    });
    let half = Format::AffineF16 { bits: 5, group: 64 };
    let half = (half, [64, 192, 384]);
    let others = others().map(|format| {
        let cols = format.run_cols();
        (format, [cols, 3 * cols, 6 * cols])
    });
    float.into_iter().chain(affine).chain([half]).chain(others).collect()
}

/// Formats that are only read.
pub(crate) fn others() -> impl Iterator<Item = Format> {
    let blocks = [Block::Q8_0, Block::Q4K, Block::Q5K, Block::Q6K, Block::Iq4Xs, Block::Mxfp4];
    blocks.into_iter().map(Format::Block).chain([Format::Mxfp4])
}

/// A random matrix whose products with normal vectors are about normal.
pub(crate) fn stored(seed: u64, format: Format, rows: usize, cols: usize) -> Matrix {
    if !matches!(format, Format::F32 | Format::F16 | Format::Bf16 | Format::Affine { .. }) {
        let mut buffer = Buffer::zeroed(format.matrix_bytes(rows, cols)).unwrap();
        fill(&mut seed.clone(), &mut buffer, format, rows, cols);
        return Matrix::new(format, rows, cols, Arc::new(buffer), 0).unwrap();
    }
    let scale = 1.0 / (cols as f32).sqrt();
    let numbers: Vec<f32> = random(seed, rows * cols).iter().map(|x| x * scale).collect();
    encoded(format, rows, cols, &numbers)
}

/// A matrix of these numbers.
pub(crate) fn encoded(format: Format, rows: usize, cols: usize, numbers: &[f32]) -> Matrix {
    let mut buffer = Buffer::zeroed(format.matrix_bytes(rows, cols)).unwrap();
    let planes = format.planes(rows, cols);
    for (r, row) in numbers.chunks_exact(cols).enumerate() {
        let (mut codes, mut scales) =
            (vec![0; format.row_bytes(cols)], vec![0; format.scale_row_bytes(cols)]);
        let mut biases = vec![0; format.bias_row_bytes(cols)];
        quant::encode_row(format, row, &mut codes, &mut scales, &mut biases).unwrap();
        for (plane, bytes) in planes.iter().zip([codes, scales, biases]) {
            buffer[plane.start + r * bytes.len()..][..bytes.len()].copy_from_slice(&bytes);
        }
    }
    Matrix::new(format, rows, cols, Arc::new(buffer), 0).unwrap()
}

/// A matrix of random bytes whose scales are any finite ones, in one of [`others`].
pub(crate) fn extreme(seed: u64, format: Format, rows: usize, cols: usize) -> Matrix {
    let mut buffer = Buffer::zeroed(format.matrix_bytes(rows, cols)).unwrap();
    let mut state = seed;
    buffer.fill_with(|| random_bits(&mut state) as u8);
    let half = |bytes: &mut [u8]| {
        // Neither infinite nor NaN.
        if bytes[1] & 0x7c == 0x7c {
            bytes[1] &= 0xfb;
        }
    };
    // The smallest and largest whose numbers are normal.
    let power = |byte: &mut u8| *byte = (*byte).clamp(2, 252);
    let [codes, scales, _] = format.planes(rows, cols);
    match format {
        Format::Block(kind) => {
            for block in buffer[codes].chunks_exact_mut(kind.bytes()) {
                match kind {
                    Block::Mxfp4 => power(&mut block[0]),
                    Block::Q6K => half(&mut block[208..]),
                    _ => block[..4].chunks_exact_mut(2).for_each(half),
                }
            }
        }
        _ => buffer[scales].iter_mut().for_each(power),
    }
    Matrix::new(format, rows, cols, Arc::new(buffer), 0).unwrap()
}

/// A row of numbers, whose zeros have no sign.
pub(crate) fn decoded(w: &Matrix, row: usize) -> Vec<f32> {
    let mut numbers = vec![0.0; w.cols()];
    w.view().decode_row(row, &mut numbers);
    plain_zeros(&mut numbers);
    numbers
}

/// Takes the signs of zeros, which devices need not keep.
pub(crate) fn plain_zeros(numbers: &mut [f32]) {
    numbers.iter_mut().for_each(|x| *x += 0.0);
}

/// Fails unless the bits agree.
pub(crate) fn assert_same(what: &str, got: &[f32], want: &[f32]) {
    assert_eq!(got.len(), want.len(), "{what}: lengths");
    for (i, (got, want)) in got.iter().zip(want).enumerate() {
        assert!(got.to_bits() == want.to_bits(), "{what}: number {i} is {got:e}, should be {want:e}");
    }
}

/// A matrix in memory of the device.
pub(crate) struct Uploaded {
    buf: Buf,
    format: Format,
    rows: usize,
    cols: usize,
    planes: [u32; 3],
}

impl Uploaded {
    pub(crate) fn at(&self) -> MatrixAt<'_> {
        let Self { format, rows, cols, planes, .. } = *self;
        MatrixAt { format, rows, cols, buf: self.buf.bind(), planes }
    }
}

/// About the size of a product of independent numbers: of rows of `w` and of `x`.
pub(crate) fn size_of_products(w: &Matrix, x: &[f32]) -> f64 {
    let mut row = vec![0.0; w.cols()];
    w.view().decode_row(0, &mut row);
    let norm = |x: &[f32]| x.iter().map(|&x| f64::from(x).powi(2)).sum::<f64>().sqrt();
    norm(&row) * norm(x) / ((x.len() / w.cols()) as f64).sqrt()
}
