//! How fast this machine multiplies: the real kernels, on weights larger than the caches, at a model's shapes.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use kernels::{Backend, Cpu, ExpertJob, Precision};
use quant::{Buffer, Format, Matrix};
use store::{ExpertLayer, Manifest, ModelConfig};

use crate::predict::Product;

/// Weights that are gone through before any is used again, if there is memory for them: more than caches hold.
const WEIGHT_BYTES: u64 = 512 << 20;
/// Of the free memory, the weights may take this fraction.
const ROOM_SHARE: u64 = 4;
/// Rows of the dense matrix: about what projections have.
const DENSE_ROWS: usize = 4096;
/// Tokens of the batches: of a dense product, and of one expert.
const N_DENSE_BATCH: usize = 64;
const N_EXPERT_BATCH: usize = 12;
/// How long each kind of product is measured, at least twice.
const TIME: Duration = Duration::from_millis(400);

/// Seconds a byte of weights.
#[derive(Clone, Copy, Debug)]
pub(super) struct Products {
    pub(super) dense: Product,
    pub(super) experts: Product,
    /// Multiply-adds for each byte of an expert's weights: what one token costs.
    pub(super) macs_per_byte: f64,
}

impl Products {
    /// Of the shapes and formats that `manifest` has most of.
    pub(super) fn measure(cpu: &Cpu, manifest: &Manifest) -> anyhow::Result<Self> {
        let config = &manifest.config;
        let formats = manifest.experts.first().map_or([Format::F32; 3], |layer| layer.formats);
        let record_bytes = ExpertLayer::stride_bytes(&formats, config);
        let buffer = Arc::new(weights(record_bytes)?);
        let k = config.n_expert_used;
        let one = experts(cpu, config, &formats, &buffer, k, 1);
        let many = experts(cpu, config, &formats, &buffer, k, N_EXPERT_BATCH);
        let format = main_format(manifest);
        let dense_one = dense(cpu, format, config.d_model, &buffer, 1)?;
        let dense_many = dense(cpu, format, config.d_model, &buffer, N_DENSE_BATCH)?;
        Ok(Self {
            dense: Product::fit(dense_one, dense_many, N_DENSE_BATCH),
            experts: Product::fit(one, many, N_EXPERT_BATCH),
            macs_per_byte: (3 * config.d_model * config.d_ff_expert) as f64 / record_bytes as f64,
        })
    }
}

/// The format that most dense bytes have, of those that a token is multiplied with.
fn main_format(manifest: &Manifest) -> Format {
    let mut bytes = BTreeMap::new();
    for tensor in manifest.dense.iter().filter(|tensor| tensor.layer.is_some()) {
        let (_, sum) = bytes.entry(tensor.format.to_string()).or_insert((tensor.format, 0));
        *sum += tensor.bytes();
    }
    bytes.into_values().max_by_key(|&(_, bytes)| bytes).map_or(Format::F32, |(format, _)| format)
}

/// Noise in which every format finds ordinary numbers, and room for `unit_bytes` at least twice.
fn weights(unit_bytes: usize) -> anyhow::Result<Buffer> {
    let room = (stream::available_bytes() / ROOM_SHARE).min(WEIGHT_BYTES) as usize;
    let mut buffer = Buffer::zeroed(room.max(2 * unit_bytes))?;
    // As bf16 they are numbers of about 1: denormals would be slow.
    let noise: Vec<u8> = (0..1usize << 20)
        .map(|i| {
            let noise = (i.wrapping_mul(0x9e37_79b9) >> 11) as u8;
            if i % 2 == 1 { 0x3c | noise & 3 } else { noise }
        })
        .collect();
    for chunk in buffer.chunks_mut(noise.len()) {
        chunk.copy_from_slice(&noise[..chunk.len()]);
    }
    Ok(buffer)
}

/// Seconds a byte of `k` experts that have `n_row` tokens each.
fn experts(
    cpu: &Cpu,
    config: &ModelConfig,
    formats: &[Format; 3],
    buffer: &Buffer,
    k: usize,
    n_row: usize,
) -> f64 {
    let record_bytes = ExpertLayer::stride_bytes(formats, config);
    let x: Vec<f32> = activations(n_row * config.d_model);
    let mut out = cpu.zeros(k * n_row * config.d_model);
    let rows: Vec<Vec<(u32, u32)>> = (0..k)
        .map(|expert| (0..n_row).map(|row| (row as u32, (expert * n_row + row) as u32)).collect())
        .collect();
    let mut records = buffer.chunks_exact(record_bytes).cycle();
    median_seconds(|| {
        let jobs: Vec<ExpertJob<'_>> = rows
            .iter()
            .zip(&mut records)
            .map(|(rows, record)| {
                let [gate, up, down] = ExpertLayer::parts(formats, config, record);
                ExpertJob { gate, up, down, rows }
            })
            .collect();
        let start = Instant::now();
        cpu.experts(&jobs, None, &x, &mut out);
        start.elapsed()
    }) / (k * record_bytes) as f64
}

/// Seconds a byte of a product with `n_token` tokens.
fn dense(
    cpu: &Cpu,
    format: Format,
    cols: usize,
    buffer: &Arc<Buffer>,
    n_token: usize,
) -> anyhow::Result<f64> {
    // As many rows as fit twice.
    let rows = DENSE_ROWS.min(DENSE_ROWS * (buffer.len() / 2) / format.matrix_bytes(DENSE_ROWS, cols).max(1));
    let bytes = format.matrix_bytes(rows, cols);
    let matrix = |i: usize| Matrix::new(format, rows, cols, Arc::clone(buffer), i * bytes);
    let matrices = (0..buffer.len() / bytes.max(1)).map(matrix).collect::<Result<Vec<_>, _>>()?;
    let x = activations(n_token * cols);
    let mut out = cpu.zeros(n_token * rows);
    let mut matrices = matrices.iter().cycle();
    let seconds = median_seconds(|| {
        let Some(matrix) = matrices.next() else { return Duration::ZERO };
        let start = Instant::now();
        cpu.matmul(&mut [(matrix, &mut out)], &x, 0, n_token, Precision::Setting);
        start.elapsed()
    });
    Ok(seconds / bytes.max(1) as f64)
}

fn activations(n: usize) -> Vec<f32> {
    (0..n).map(|i| (i % 17) as f32 - 8.0).collect()
}

/// The median of the times that `step` returns, over [`TIME`].
fn median_seconds(mut step: impl FnMut() -> Duration) -> f64 {
    let start = Instant::now();
    // The first one makes scratch buffers.
    step();
    let mut times = vec![step()];
    while start.elapsed() < TIME {
        times.push(step());
    }
    times.sort_unstable();
    times[times.len() / 2].as_secs_f64()
}
