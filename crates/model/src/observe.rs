//! Shows what goes into the matrices, to those who want to know it. Costs nothing while nobody does.

use std::sync::Arc;

use kernels::{Backend, ExpertJob, Precision};
use quant::{Buffer, Matrix, MatrixRef};
use store::Input;

use crate::arch::Pass;
use crate::weights::Moe;

/// Is shown `[_, width]` of an input, with its layer.
pub(crate) type Observer = Box<dyn FnMut(Option<usize>, Input, &[f32]) + Send>;

impl<B: Backend> Pass<'_, B> {
    /// Shows `n_row` rows of an input of dense matrices.
    pub(crate) fn observe(&mut self, layer: Option<usize>, input: Input, n_row: usize) {
        let Some(observer) = &mut self.observer else { return };
        let x = match input {
            Input::MixerOut => &self.scratch.mixed,
            _ => &self.scratch.h,
        };
        let mut rows = vec![0.0; n_row * input.width(self.config, layer)];
        self.backend.read(x, 0, &mut rows);
        observer(layer, input, &rows);
    }

    /// Shows what the shared expert's down projection gets.
    pub(crate) fn observe_shared(&mut self, layer: usize, w: &Moe<B>) {
        let (Some(observer), Some(shared)) = (&mut self.observer, &w.shared) else { return };
        let (h, n) = (&self.scratch.h, self.n_token);
        let d_ff = self.config.d_ff_shared;
        let rows = hidden(self.backend, (&shared.gate, &shared.up), h, n, d_ff);
        observer(Some(layer), Input::SharedDown, &rows);
    }
}

/// Shows what routed experts get and make; `h` is `[_, d_model]`.
pub(crate) fn observe_experts<'a, B: Backend>(
    observer: &mut Observer,
    backend: &B,
    layer: usize,
    experts: impl Iterator<Item = (usize, &'a ExpertJob<'a>)>,
    h: &B::Tensor,
) {
    for (expert, job) in experts {
        let (n, d, d_ff) = (job.rows.len(), job.gate.cols, job.gate.rows);
        let mut rows = vec![0.0; n * d];
        for (row, &(from, _)) in rows.chunks_exact_mut(d).zip(job.rows) {
            backend.read(h, from as usize * d, row);
        }
        observer(Some(layer), Input::Expert(expert), &rows);
        let mut x = backend.zeros(n * d);
        backend.write(&mut x, 0, &rows);
        let (gate, up) = (backend.weights(copy(job.gate)), backend.weights(copy(job.up)));
        let rows = hidden(backend, (&gate, &up), &x, n, d_ff);
        observer(Some(layer), Input::ExpertDown(expert), &rows);
    }
}

/// `silu(gate · x[t]) ⊙ (up · x[t])`, `[n_token, d_ff]`.
fn hidden<B: Backend>(
    backend: &B,
    (gate, up): (&B::Weights, &B::Weights),
    x: &B::Tensor,
    n_token: usize,
    d_ff: usize,
) -> Vec<f32> {
    let (mut g, mut u) = (backend.zeros(n_token * d_ff), backend.zeros(n_token * d_ff));
    backend.matmul(&mut [(gate, &mut g), (up, &mut u)], x, 0, n_token, Precision::Setting);
    let (mut rows, mut ups) = (vec![0.0; n_token * d_ff], vec![0.0; n_token * d_ff]);
    backend.read(&g, 0, &mut rows);
    backend.read(&u, 0, &mut ups);
    rows.iter_mut().zip(&ups).for_each(|(g, u)| *g = *g / (1.0 + (-*g).exp()) * u);
    rows
}

/// The matrix in memory of its own.
fn copy(matrix: MatrixRef<'_>) -> Matrix {
    let MatrixRef { format, rows, cols, .. } = matrix;
    let mut buffer = Buffer::zeroed(format.matrix_bytes(rows, cols)).expect("a slot holds as much");
    for (place, bytes) in
        format.planes(rows, cols).into_iter().zip([matrix.codes, matrix.scales, matrix.biases])
    {
        buffer[place].copy_from_slice(bytes);
    }
    Matrix::new(format, rows, cols, Arc::new(buffer), 0).expect("the shape of a matrix that there is")
}
