//! Norms and sums.

use kernels::{
    AttentionShape, Backend, DeltaInputs, DeltaShape, DeltaWeights, ExpertJob, HeadOrder, KvFormat,
    Precision, Reference, Rows,
};
use quant::Format;

use crate::common::{Random, assert_close, assert_same, cpus, name};

/// One f32 sum and a few roundings.
const NORM_BOUND: f64 = 2e-6;

#[test]
fn norms_agree_with_the_reference() {
    // Breaks if a tail is left out of a sum, ε is misplaced, or rows are mixed up.
    for (d, n_row) in [(1, 1), (16, 3), (17, 2), (100, 5), (128, 70), (4096, 1), (5000, 2)] {
        let mut random = Random::new(d as u64);
        for magnitude in [0.0, 1e-30, 1.0, 1e15] {
            let scaled = |x: Vec<f32>| -> Vec<f32> { x.iter().map(|x| x * magnitude).collect() };
            let (x, weight) = (scaled(random.normals(n_row * d)), random.normals(d));
            let mut want = vec![0.0; n_row * d];
            Reference.rms_norm(&x, &weight, 1e-6, n_row, &mut want);
            for cpu in cpus() {
                let what = format!("{n_row} rows of {d}, x{magnitude:e}, {}", name(&cpu));
                let mut got = vec![f32::NAN; n_row * d];
                cpu.rms_norm(&x, &weight, 1e-6, n_row, &mut got);
                assert_close(&what, &got, &want, NORM_BOUND);
            }
        }
    }
}

#[test]
fn sums_agree_with_the_reference() {
    // Breaks if the weighted sum takes a wrong weight, row or order, or a tail is left out.
    let mut random = Random::new(1);
    for (n_token, k, d) in [(1, 1, 1), (1, 10, 4096), (3, 4, 100), (17, 2, 33)] {
        let x = random.normals(n_token * d);
        let (routed, weights) = (random.normals(n_token * (k + 1) * d), random.normals(n_token * k));
        let shared = random.normals(n_token);
        for shared in [None, Some(&shared)] {
            let mut want = x.clone();
            Reference.combine(&mut want, &routed, &weights, shared, (n_token, k, d));
            for cpu in cpus() {
                let mut got = x.clone();
                cpu.combine(&mut got, &routed, &weights, shared, (n_token, k, d));
                assert_close(&format!("combine {n_token} {k} {d}, {}", name(&cpu)), &got, &want, 1e-6);
            }
        }
        let (mut want, n) = (x.clone(), n_token * d - 1);
        Reference.add(&mut want, &routed, n);
        for cpu in cpus() {
            let mut got = x.clone();
            cpu.add(&mut got, &routed, n);
            assert_same(&format!("add {n}, {}", name(&cpu)), &got, &want);
        }
    }
}

#[test]
fn no_tokens_change_nothing() {
    // Breaks if an empty batch indexes token 0 or touches a state.
    let mut random = Random::new(3);
    let w = random.matrix(Format::Affine { bits: 4, group: 64 }, 8, 64);
    let down = random.matrix(Format::F32, 64, 8);
    let (x, weight) = (random.normals(64), random.normals(64));
    let attention = AttentionShape { n_head: 2, n_head_kv: 1, head_dim: 32, gated: false };
    let delta = DeltaShape {
        n_head_k: 1,
        n_head_v: 1,
        head_dim_k: 8,
        head_dim_v: 8,
        n_conv: 3,
        out_order: HeadOrder::Grouped,
    };
    for cpu in cpus() {
        let mut out = x.clone();
        cpu.matmul(&mut [(&w, &mut out)], &x, 0, 0, Precision::Setting);
        cpu.embed(&w, &[], &mut out);
        cpu.rms_norm(&x, &weight, 1e-6, 0, &mut out);
        cpu.add(&mut out, &x, 0);
        cpu.combine(&mut out, &x, &[], None, (0, 4, 16));
        cpu.experts(&[], None, &x, &mut out);
        let down = down.view();
        cpu.experts(&[ExpertJob { gate: w.view(), up: w.view(), down, rows: &[] }], None, &x, &mut out);
        let kv = cpu.kv(attention, KvFormat::F16, 16);
        cpu.attention(attention, &x, &kv, Rows::at(1, 0), &mut out);
        let mut state = x.clone();
        let mut conv = x.clone();
        let weights = DeltaWeights { conv: &x, decay: &x, dt_bias: &x, norm: &x, eps: 1e-6 };
        let inputs = DeltaInputs { qkv: &x, b: &x, a: &x, z: &x };
        cpu.delta_net(delta, &weights, &inputs, (&mut conv, &mut state), Rows::at(5, 0), &mut out);
        assert_same(&format!("outputs, {}", name(&cpu)), &out, &x);
        assert_same(&format!("states, {}", name(&cpu)), &state, &x);
        assert_same(&format!("convolution, {}", name(&cpu)), &conv, &x);
    }
}
