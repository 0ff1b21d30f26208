//! Full attention.

use kernels::{AttentionShape, Backend, Reference, Rope};

use crate::common::{Random, assert_close, assert_same, cpus, is_fused, name};

/// Norms and rotations of f32 numbers.
const PREPARE_BOUND: f64 = 2e-6;
/// A softmax over up to thousands of positions.
const ATTENTION_BOUND: f64 = 1e-5;

/// Prepares queries and a key and a value cache in place.
type Prepare<'a> = dyn Fn(&mut Vec<f32>, &mut Vec<f32>, &mut Vec<f32>) + 'a;

const SHAPES: [AttentionShape; 5] = [
    AttentionShape { n_head: 1, n_head_kv: 1, head_dim: 16, gated: false },
    AttentionShape { n_head: 6, n_head_kv: 3, head_dim: 20, gated: true },
    AttentionShape { n_head: 8, n_head_kv: 2, head_dim: 64, gated: true },
    AttentionShape { n_head: 6, n_head_kv: 2, head_dim: 40, gated: false },
    AttentionShape { n_head: 32, n_head_kv: 2, head_dim: 256, gated: true },
];

fn rope(n_rot: usize) -> Rope {
    Rope {
        inv_freq: (0..n_rot / 2).map(|j| 1e7f64.powf(-2.0 * j as f64 / n_rot as f64)).collect(),
        scale: 1.0,
    }
}

#[test]
fn preparing_agrees_with_the_reference() {
    // Breaks if heads and gates are confused, pairs are rotated wrongly, values are touched, or a token lands on
    // another's cache row.
    for shape in SHAPES {
        for (pos, n_token, n_rot) in [(0, 1, shape.head_dim), (5, 3, 8), (100, 17, shape.head_dim / 4 * 2)] {
            let mut random = Random::new(pos as u64);
            let (head, kv) = (shape.head_dim, shape.n_head_kv * shape.head_dim);
            let norms = (&random.normals(head), &random.normals(head), 1e-6);
            let q = random.normals(n_token * shape.n_head * head * (1 + shape.gated as usize));
            let (k, v) = (random.normals(n_token * kv), random.normals(n_token * kv));
            let cache = random.normals((pos + n_token + 1) * kv);
            let rope = Rope { scale: 1.25, ..rope(n_rot) };
            let run = |backend: &Prepare<'_>| {
                let (mut q, mut k_cache, mut v_cache) = (q.clone(), cache.clone(), cache.clone());
                backend(&mut q, &mut k_cache, &mut v_cache);
                (q, k_cache, v_cache)
            };
            let want = run(&|q, kc, vc| {
                Reference.attention_prepare(shape, &rope, norms, (q, &k, &v), (kc, vc), pos, n_token)
            });
            for cpu in cpus() {
                let what = format!("{shape:?} at {pos}+{n_token}, {n_rot} rotated, {}", name(&cpu));
                let got = run(&|q, kc, vc| {
                    cpu.attention_prepare(shape, &rope, norms, (q, &k, &v), (kc, vc), pos, n_token)
                });
                assert_close(&format!("q, {what}"), &got.0, &want.0, PREPARE_BOUND);
                assert_close(&format!("k, {what}"), &got.1, &want.1, PREPARE_BOUND);
                assert_same(&format!("v, {what}"), &got.2, &want.2);
            }
        }
    }
}

#[test]
fn rotation_is_exact_at_the_last_position() {
    // Breaks if angles are computed in f32: at 262143 they are off by up to 0.008.
    let shape = AttentionShape { n_head: 1, n_head_kv: 1, head_dim: 64, gated: false };
    let (pos, rope) = (262_143, rope(64));
    let ones = vec![1.0; 64];
    let u = Random::new(7).normals(64);
    let rms = (u.iter().map(|&x| (x as f64).powi(2)).sum::<f64>() / 64.0).sqrt();
    let want: Vec<f32> = (0..64)
        .map(|i| {
            let (sin, cos) = (pos as f64 * rope.inv_freq[i % 32]).sin_cos();
            let (a, b) = (u[i] as f64 / rms, u[(i + 32) % 64] as f64 / rms);
            (if i < 32 { a * cos - b * sin } else { a * cos + b * sin }) as f32
        })
        .collect();
    for cpu in cpus() {
        let (mut q, mut k_cache) = (u.clone(), vec![0.0; (pos + 1) * 64]);
        let mut v_cache = k_cache.clone();
        let norms = (&ones, &ones, 0.0);
        cpu.attention_prepare(shape, &rope, norms, (&mut q, &u, &u), (&mut k_cache, &mut v_cache), pos, 1);
        assert_close(&format!("q, {}", name(&cpu)), &q, &want, PREPARE_BOUND);
        assert_close(&format!("k, {}", name(&cpu)), &k_cache[pos * 64..], &want, PREPARE_BOUND);
    }
}

#[test]
fn attention_agrees_with_the_reference_at_any_position() {
    // Breaks if a query sees too much or too little, reads another head's cache, or depends on its batch.
    for shape in SHAPES {
        for (pos, n_token) in [(0, 1), (0, 5), (62, 4), (63, 1), (127, 3), (200, 70)] {
            check(shape, pos, n_token, 1.0);
        }
    }
    check(SHAPES[2], 5000, 2, 1.0);
    check(SHAPES[2], 70, 2, 0.0);
    // Scores of ±hundreds: one position takes all, exponents underflow.
    check(SHAPES[2], 300, 3, 100.0);
}

fn check(shape: AttentionShape, pos: usize, n_token: usize, magnitude: f32) {
    let mut random = Random::new(pos as u64);
    let (head, kv) = (shape.head_dim, shape.n_head_kv * shape.head_dim);
    let q_dim = shape.n_head * head * (1 + shape.gated as usize);
    let q: Vec<f32> = random.normals(n_token * q_dim).iter().map(|x| x * magnitude).collect();
    // Rows behind the last one hold what must not be seen.
    let keys = [random.normals((pos + n_token) * kv), vec![f32::NAN; kv]].concat();
    let values = [random.normals((pos + n_token) * kv), vec![f32::NAN; kv]].concat();
    let mut want = vec![0.0; n_token * shape.n_head * head];
    Reference.attention(shape, &q, (&keys, &values), pos, n_token, &mut want);
    let mut fused: Option<Vec<f32>> = None;
    for cpu in cpus() {
        let what = format!("{shape:?} at {pos}+{n_token}, x{magnitude}, {}", name(&cpu));
        let mut got = vec![f32::NAN; want.len()];
        cpu.attention(shape, &q, (&keys, &values), pos, n_token, &mut got);
        assert_close(&what, &got, &want, ATTENTION_BOUND);
        let width = shape.n_head * head;
        for t in [0, n_token / 2, n_token - 1] {
            let mut alone = vec![f32::NAN; width];
            let q = q[t * q_dim..(t + 1) * q_dim].to_vec();
            cpu.attention(shape, &q, (&keys, &values), pos + t, 1, &mut alone);
            assert_same(&format!("token {t} alone, {what}"), &alone, &got[t * width..(t + 1) * width]);
        }
        if is_fused(&cpu) {
            assert_same(&format!("another set or threads, {what}"), &got, fused.get_or_insert(got.clone()));
        }
    }
}
