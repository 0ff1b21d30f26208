//! Norms, convolution and sums.

use kernels::{AttentionShape, Backend, ConvShape, DeltaShape, ExpertJob, KvFormat, Reference};
use quant::Format;

use crate::common::{Random, assert_close, assert_same, cpus, name};

/// One f32 sum and a few roundings.
const NORM_BOUND: f64 = 2e-6;
const CONV_BOUND: f64 = 2e-6;

#[test]
fn norms_agree_with_the_reference() {
    // Breaks if a tail is left out of a sum, ε is misplaced, or rows are mixed up.
    for (d, n_row) in [(1, 1), (16, 3), (17, 2), (100, 5), (128, 70), (4096, 1), (5000, 2)] {
        let mut random = Random::new(d as u64);
        for magnitude in [0.0, 1e-30, 1.0, 1e15] {
            let scaled = |x: Vec<f32>| -> Vec<f32> { x.iter().map(|x| x * magnitude).collect() };
            let (x, z, weight) =
                (scaled(random.normals(n_row * d)), random.normals(n_row * d), random.normals(d));
            let (mut want, mut want_gated) = (vec![0.0; n_row * d], x.clone());
            Reference.rms_norm(&x, &weight, 1e-6, n_row, &mut want);
            Reference.gated_rms_norm(&mut want_gated, &z, &weight, 1e-6, n_row);
            for cpu in cpus() {
                let what = format!("{n_row} rows of {d}, x{magnitude:e}, {}", name(&cpu));
                let (mut got, mut gated) = (vec![f32::NAN; n_row * d], x.clone());
                cpu.rms_norm(&x, &weight, 1e-6, n_row, &mut got);
                assert_close(&what, &got, &want, NORM_BOUND);
                cpu.gated_rms_norm(&mut gated, &z, &weight, 1e-6, n_row);
                assert_close(&format!("gated, {what}"), &gated, &want_gated, NORM_BOUND);
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
        let (routed, weights) = (random.normals(n_token * k * d), random.normals(n_token * k));
        let shared = random.normals(n_token * d);
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
fn the_convolution_agrees_with_the_reference_however_it_is_cut() {
    // Breaks if taps are reversed, the state holds the wrong rows or values after SiLU, or a short call loses
    // rows that are still needed.
    for (n_channel, n_conv, n_token) in
        [(1, 4, 5), (16, 4, 1), (100, 4, 9), (300, 2, 4), (48, 1, 3), (70, 6, 2), (33, 4, 70)]
    {
        let shape = ConvShape { n_channel, n_conv };
        let mut random = Random::new(n_channel as u64);
        let (weight, x) = (random.normals(n_channel * n_conv), random.normals(n_token * n_channel));
        let state = random.normals((n_conv - 1) * n_channel);
        let (mut want, mut want_state) = (vec![0.0; n_token * n_channel], state.clone());
        Reference.conv_silu(shape, &weight, &x, &mut want_state, n_token, &mut want);
        for cpu in cpus() {
            let what = format!("{shape:?}, {n_token} tokens, {}", name(&cpu));
            let (mut got, mut got_state) = (vec![f32::NAN; n_token * n_channel], state.clone());
            cpu.conv_silu(shape, &weight, &x, &mut got_state, n_token, &mut got);
            assert_close(&what, &got, &want, CONV_BOUND);
            assert_same(&format!("state, {what}"), &got_state, &want_state);

            let mut cut_state = state.clone();
            let mut at = 0;
            while at < n_token {
                let n = (1 + random.below(3)).min(n_token - at);
                let mut out = vec![f32::NAN; n * n_channel];
                let piece = x[at * n_channel..(at + n) * n_channel].to_vec();
                cpu.conv_silu(shape, &weight, &piece, &mut cut_state, n, &mut out);
                assert_same(&format!("cut, {what}"), &out, &got[at * n_channel..(at + n) * n_channel]);
                at += n;
            }
            assert_same(&format!("state of the cut, {what}"), &cut_state, &want_state);
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
    let delta = DeltaShape { n_head_k: 1, n_head_v: 1, head_dim_k: 8, head_dim_v: 8 };
    for cpu in cpus() {
        let mut out = x.clone();
        cpu.matmul(&w, &x, 0, 0, &mut out);
        cpu.embed(&w, &[], &mut out);
        cpu.rms_norm(&x, &weight, 1e-6, 0, &mut out);
        cpu.add(&mut out, &x, 0);
        cpu.combine(&mut out, &x, &[], None, (0, 4, 16));
        cpu.experts(&[], &x, &mut out);
        let down = down.view();
        cpu.experts(&[ExpertJob { gate: w.view(), up: w.view(), down, rows: &[] }], &x, &mut out);
        let kv = cpu.kv(attention, KvFormat::F16, 16);
        cpu.attention(attention, &x, &kv, 1, 0, &mut out);
        let mut state = x.clone();
        cpu.conv_silu(ConvShape { n_channel: 16, n_conv: 4 }, &weight, &x, &mut state, 0, &mut out);
        cpu.delta_net(delta, &x, (&x, &x), (&x, &x), &mut state, 5, 0, &mut out);
        assert_same(&format!("outputs, {}", name(&cpu)), &out, &x);
        assert_same(&format!("states, {}", name(&cpu)), &state, &x);
    }
}
