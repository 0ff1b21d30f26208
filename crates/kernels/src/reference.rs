//! Every operation in the most literal form: the oracle of the other backends.
//!
//! One thread, no SIMD, no tricks; sums in f64 so that its own rounding stays below what it judges.

mod attention;
mod delta_net;

use quant::{Matrix, MatrixRef};

pub use attention::ReferenceKv;

use crate::{
    AttentionShape, Backend, DeltaInputs, DeltaShape, DeltaWeights, ExpertJob, KvFormat, Precision, Rope,
    Rows, SharedJob,
};

/// The scalar reference backend.
#[derive(Clone, Copy, Debug, Default)]
pub struct Reference;

impl Backend for Reference {
    type Tensor = Vec<f32>;
    type Weights = Matrix;
    type Kv = ReferenceKv;

    fn describe(&self) -> String {
        "scalar reference".to_owned()
    }

    fn zeros(&self, n: usize) -> Vec<f32> {
        vec![0.0; n]
    }

    fn write(&self, t: &mut Vec<f32>, at: usize, values: &[f32]) {
        t[at..at + values.len()].copy_from_slice(values);
    }

    fn read(&self, t: &Vec<f32>, at: usize, out: &mut [f32]) {
        out.copy_from_slice(&t[at..at + out.len()]);
    }

    fn weights(&self, matrix: Matrix) -> Matrix {
        matrix
    }

    fn embed(&self, w: &Matrix, ids: &[u32], out: &mut Vec<f32>) {
        let d = w.cols();
        for (t, &id) in ids.iter().enumerate() {
            w.view().decode_row(id as usize, &mut out[t * d..(t + 1) * d]);
        }
    }

    fn matmul(
        &self,
        products: &mut [(&Matrix, &mut Vec<f32>)],
        x: &Vec<f32>,
        first: usize,
        n_token: usize,
        _: Precision,
    ) {
        for (w, out) in products {
            let (rows, cols) = (w.rows(), w.cols());
            for t in 0..n_token {
                let y = mat_vec(w.view(), &x[(first + t) * cols..(first + t + 1) * cols]);
                out[t * rows..(t + 1) * rows].copy_from_slice(&y);
            }
        }
    }

    fn rms_norm(&self, x: &Vec<f32>, weight: &Vec<f32>, eps: f32, n_token: usize, out: &mut Vec<f32>) {
        let d = weight.len();
        for t in 0..n_token {
            let row = t * d..(t + 1) * d;
            out[row.clone()].copy_from_slice(&x[row.clone()]);
            rms_norm_row(&mut out[row], weight, eps);
        }
    }

    fn add(&self, x: &mut Vec<f32>, y: &Vec<f32>, n: usize) {
        for i in 0..n {
            x[i] += y[i];
        }
    }

    fn kv(&self, shape: AttentionShape, format: KvFormat, _n_ctx: usize) -> ReferenceKv {
        ReferenceKv::new(shape, format)
    }

    fn read_kv(&self, kv: &ReferenceKv, pos: usize, out: &mut [u8]) {
        kv.read(pos, out);
    }

    fn write_kv(&self, kv: &mut ReferenceKv, pos: usize, bytes: &[u8]) {
        kv.write(pos, bytes);
    }

    fn attention_prepare(
        &self,
        shape: AttentionShape,
        rope: &Rope,
        norms: (&Vec<f32>, &Vec<f32>, f32),
        qkv: (&mut Vec<f32>, &mut Vec<f32>, &Vec<f32>),
        kv: &mut ReferenceKv,
        rows: Rows,
    ) {
        attention::prepare(shape, rope, norms, qkv, kv, rows);
    }

    fn attention(
        &self,
        shape: AttentionShape,
        q: &Vec<f32>,
        kv: &ReferenceKv,
        rows: Rows,
        out: &mut Vec<f32>,
    ) {
        attention::attend(shape, q, kv, rows, out);
    }

    fn delta_net(
        &self,
        shape: DeltaShape,
        weights: &DeltaWeights<'_, Vec<f32>>,
        inputs: &DeltaInputs<'_, Vec<f32>>,
        states: (&mut Vec<f32>, &mut Vec<f32>),
        rows: Rows,
        out: &mut Vec<f32>,
    ) {
        delta_net::delta_net(shape, weights, inputs, (states.0, states.1), rows, out);
    }

    fn experts(
        &self,
        jobs: &[ExpertJob<'_>],
        shared: Option<SharedJob<'_, Matrix>>,
        x: &Vec<f32>,
        out: &mut Vec<f32>,
    ) {
        let shared = shared.map(|SharedJob { gate, up, down, rows }| ExpertJob {
            gate: gate.view(),
            up: up.view(),
            down: down.view(),
            rows,
        });
        for job in jobs.iter().copied().chain(shared) {
            let d_model = job.gate.cols;
            for &(row_in, row_out) in job.rows {
                let (row_in, row_out) = (row_in as usize, row_out as usize);
                let y = ffn(job.gate, job.up, job.down, &x[row_in * d_model..(row_in + 1) * d_model]);
                out[row_out * d_model..(row_out + 1) * d_model].copy_from_slice(&y);
            }
        }
    }

    fn combine(
        &self,
        x: &mut Vec<f32>,
        routed: &Vec<f32>,
        weights: &[f32],
        shared: Option<&Vec<f32>>,
        dims: (usize, usize, usize),
    ) {
        let (n_token, k, d) = dims;
        for t in 0..n_token {
            for i in 0..d {
                let mut sum = 0.0;
                for j in 0..k {
                    sum += weights[t * k + j] * routed[(t * k + j) * d + i];
                }
                if let Some(shared) = shared {
                    sum += sigmoid(shared[t]) * routed[(n_token * k + t) * d + i];
                }
                x[t * d + i] += sum;
            }
        }
    }
}

/// `w · x`, `[rows]`.
fn mat_vec(w: MatrixRef<'_>, x: &[f32]) -> Vec<f32> {
    let mut row = vec![0.0; w.cols];
    (0..w.rows)
        .map(|r| {
            w.decode_row(r, &mut row);
            dot(&row, x)
        })
        .collect()
}

/// `down · (silu(gate · x) ⊙ (up · x))`, `[d_model]`.
fn ffn(gate: MatrixRef<'_>, up: MatrixRef<'_>, down: MatrixRef<'_>, x: &[f32]) -> Vec<f32> {
    let hidden: Vec<f32> = mat_vec(gate, x).iter().zip(mat_vec(up, x)).map(|(&g, u)| silu(g) * u).collect();
    mat_vec(down, &hidden)
}

fn dot(a: &[f32], b: &[f32]) -> f32 {
    a.iter().zip(b).map(|(&a, &b)| a as f64 * b as f64).sum::<f64>() as f32
}

fn rms_norm_row(x: &mut [f32], weight: &[f32], eps: f32) {
    let mean = x.iter().map(|&x| x as f64 * x as f64).sum::<f64>() / x.len() as f64;
    let scale = (mean + eps as f64).sqrt().recip() as f32;
    for (x, w) in x.iter_mut().zip(weight) {
        *x *= scale * w;
    }
}

fn sigmoid(x: f32) -> f32 {
    1.0 / (1.0 + (-x).exp())
}

fn silu(x: f32) -> f32 {
    x * sigmoid(x)
}
