//! The gated delta rule, token by token (spec 2.5 steps 3 to 7).

use super::sigmoid;
use crate::DeltaShape;

/// Under the root of the l2 norms (spec 2.5 step 4).
const L2_EPS: f64 = 1e-6;

/// See [`crate::Backend::delta_net`]; every token takes the recurrence.
pub(super) fn recurrent(
    shape: DeltaShape,
    qkv: &[f32],
    (b, a): (&Vec<f32>, &Vec<f32>),
    (decay, dt_bias): (&Vec<f32>, &Vec<f32>),
    state: &mut [f32],
    n_token: usize,
    out: &mut [f32],
) {
    let DeltaShape { n_head_k, n_head_v, head_dim_k: dk, head_dim_v: dv } = shape;
    let width = 2 * n_head_k * dk + n_head_v * dv;
    for t in 0..n_token {
        let (q, rest) = qkv[t * width..(t + 1) * width].split_at(n_head_k * dk);
        let (k, v) = rest.split_at(n_head_k * dk);
        for j in 0..n_head_v {
            let key = j / (n_head_v / n_head_k);
            let q = l2_norm(&q[key * dk..(key + 1) * dk], 1.0 / (dk as f64).sqrt());
            let k = l2_norm(&k[key * dk..(key + 1) * dk], 1.0);
            let beta = sigmoid(b[t * n_head_v + j]);
            let g = -decay[j] * softplus(a[t * n_head_v + j] + dt_bias[j]);
            let s = &mut state[j * dk * dv..(j + 1) * dk * dv];
            let o = &mut out[(t * n_head_v + j) * dv..][..dv];
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
