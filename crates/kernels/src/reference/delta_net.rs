//! A gated delta-net between its projections, token by token (spec 2.5 steps 2 to 8).

use super::{rms_norm_row, sigmoid, silu};
use crate::{DeltaInputs, DeltaShape, DeltaWeights, Rows};

/// Under the root of the l2 norms (spec 2.5 step 4).
const L2_EPS: f64 = 1e-6;

/// See [`crate::Backend::delta_net`]; every token takes the recurrence.
pub(super) fn delta_net(
    shape: DeltaShape,
    weights: &DeltaWeights<'_, Vec<f32>>,
    inputs: &DeltaInputs<'_, Vec<f32>>,
    (conv_state, state): (&mut [f32], &mut [f32]),
    rows: Rows,
    out: &mut [f32],
) {
    let gates = rows.floats(shape.n_head_v);
    let (b, a) = (&inputs.b[gates.clone()], &inputs.a[gates]);
    let out = &mut out[rows.floats(shape.d_v())];
    let qkv = &inputs.qkv[rows.floats(shape.n_channel())];
    let qkv = conv_silu(shape, weights.conv, qkv, conv_state, rows.n_token);
    recurrent(shape, weights, (b, a), &qkv, state, out);
    let dv = shape.head_dim_v;
    for (i, z) in inputs.z[rows.floats(shape.d_v())].chunks_exact(dv).enumerate() {
        let row = &mut out[shape.out_row(i) * dv..][..dv];
        rms_norm_row(row, weights.norm, weights.eps);
        for (x, &z) in row.iter_mut().zip(z) {
            *x *= silu(z);
        }
    }
}

/// Depthwise causal convolution with SiLU, `[n_token, n_channel]` (step 2).
fn conv_silu(shape: DeltaShape, weight: &[f32], x: &[f32], state: &mut [f32], n_token: usize) -> Vec<f32> {
    let (n_channel, n_conv) = (shape.n_channel(), shape.n_conv);
    // All rows that the taps see: the state, then x. [n_conv - 1 + n_token, n_channel]
    let rows = [&state[..(n_conv - 1) * n_channel], x].concat();
    state[..(n_conv - 1) * n_channel].copy_from_slice(&rows[n_token * n_channel..]);
    let mut out = vec![0.0; n_token * n_channel];
    for t in 0..n_token {
        for c in 0..n_channel {
            let tap = |j: usize| weight[j * n_channel + c] as f64 * rows[(t + j) * n_channel + c] as f64;
            out[t * n_channel + c] = silu((0..n_conv).map(tap).sum::<f64>() as f32);
        }
    }
    out
}

/// The gated delta rule (steps 3 to 7): `qkv` is the convolution's output.
fn recurrent(
    shape: DeltaShape,
    weights: &DeltaWeights<'_, Vec<f32>>,
    (b, a): (&[f32], &[f32]),
    qkv: &[f32],
    state: &mut [f32],
    out: &mut [f32],
) {
    let DeltaShape { n_head_k, n_head_v, head_dim_k: dk, head_dim_v: dv, .. } = shape;
    for (t, qkv) in qkv.chunks_exact(shape.n_channel()).enumerate() {
        let (q, rest) = qkv.split_at(n_head_k * dk);
        let (k, v) = rest.split_at(n_head_k * dk);
        for j in 0..n_head_v {
            let key = j / (n_head_v / n_head_k);
            let q = l2_norm(&q[key * dk..(key + 1) * dk], 1.0 / (dk as f64).sqrt());
            let k = l2_norm(&k[key * dk..(key + 1) * dk], 1.0);
            let beta = sigmoid(b[t * n_head_v + j]);
            let g = -weights.decay[j] * softplus(a[t * n_head_v + j] + weights.dt_bias[j]);
            let s = &mut state[j * dk * dv..(j + 1) * dk * dv];
            let o = &mut out[shape.out_row(t * n_head_v + j) * dv..][..dv];
            step(s, &q, &k, &v[j * dv..(j + 1) * dv], beta, g, o);
        }
    }
}

/// One step of one head; `s` is `[dk, dv]`.
fn step(s: &mut [f32], q: &[f32], k: &[f32], v: &[f32], beta: f32, g: f32, o: &mut [f32]) {
    let (dk, dv) = (k.len(), v.len());
    let decay = g.exp();
    for s in s.iter_mut() {
        *s *= decay;
    }
    for c in 0..dv {
        let column =
            |x: &[f32], s: &[f32]| (0..dk).map(|r| x[r] as f64 * s[r * dv + c] as f64).sum::<f64>() as f32;
        let d = beta * (v[c] - column(k, s));
        for r in 0..dk {
            s[r * dv + c] += k[r] * d;
        }
        o[c] = column(q, s);
    }
}

fn l2_norm(x: &[f32], scale: f64) -> Vec<f32> {
    let sum: f64 = x.iter().map(|&x| x as f64 * x as f64).sum();
    let scale = scale / (sum + L2_EPS).sqrt();
    x.iter().map(|&x| (x as f64 * scale) as f32).collect()
}

/// `ln(1 + eˣ)` without overflow.
fn softplus(x: f32) -> f32 {
    x.max(0.0) + (-x.abs()).exp().ln_1p()
}
