//! The gated delta rule.

use kernels::{Backend, Cpu, DELTA_CHUNK, DeltaShape, Reference};

use crate::common::{Random, assert_close, assert_same, cpus, cpus_2, is_fused, name};

/// Chunked against recurrent against f64, relative to the root mean square.
const DELTA_BOUND: f64 = 1e-5;

const SHAPES: [DeltaShape; 4] = [
    DeltaShape { n_head_k: 1, n_head_v: 1, head_dim_k: 16, head_dim_v: 16 },
    DeltaShape { n_head_k: 2, n_head_v: 4, head_dim_k: 32, head_dim_v: 48 },
    DeltaShape { n_head_k: 3, n_head_v: 3, head_dim_k: 20, head_dim_v: 84 },
    DeltaShape { n_head_k: 2, n_head_v: 8, head_dim_k: 128, head_dim_v: 128 },
];

/// Inputs of `n_token` tokens.
struct Case {
    shape: DeltaShape,
    n_token: usize,
    qkv: Vec<f32>,
    b: Vec<f32>,
    a: Vec<f32>,
    decay: Vec<f32>,
    dt_bias: Vec<f32>,
    state: Vec<f32>,
}

impl Case {
    fn new(shape: DeltaShape, n_token: usize, seed: u64) -> Self {
        let mut random = Random::new(seed);
        let DeltaShape { n_head_k, n_head_v, head_dim_k: dk, head_dim_v: dv } = shape;
        Self {
            shape,
            n_token,
            qkv: random.normals(n_token * (2 * n_head_k * dk + n_head_v * dv)),
            b: random.normals(n_token * n_head_v),
            a: random.normals(n_token * n_head_v),
            // exp(A_log) of trained models lies in 0..16.
            decay: random.normals(n_head_v).iter().map(|x| (2.0 * x).exp().min(16.0)).collect(),
            dt_bias: random.normals(n_head_v).iter().map(|x| x - 3.0).collect(),
            state: random.normals(n_head_v * dk * dv).iter().map(|x| x * 0.1).collect(),
        }
    }

    /// Tokens `range`, from `state` on; the outputs.
    fn run<B: Backend<Tensor = Vec<f32>>>(
        &self,
        b: &B,
        range: std::ops::Range<usize>,
        state: &mut Vec<f32>,
    ) -> Vec<f32> {
        let cut = |x: &[f32]| {
            let width = x.len() / self.n_token;
            x[range.start * width..range.end * width].to_vec()
        };
        let DeltaShape { n_head_v, head_dim_v, .. } = self.shape;
        let mut out = vec![f32::NAN; range.len() * n_head_v * head_dim_v];
        let ba = (&cut(&self.b), &cut(&self.a));
        let decay_dt = (&self.decay, &self.dt_bias);
        b.delta_net(self.shape, &cut(&self.qkv), ba, decay_dt, state, range.start, range.len(), &mut out);
        out
    }

    /// The recurrence of spec 2.5 in f64; outputs and the last state.
    fn exact(&self) -> (Vec<f32>, Vec<f32>) {
        let DeltaShape { n_head_k, n_head_v, head_dim_k: dk, head_dim_v: dv } = self.shape;
        let width = 2 * n_head_k * dk + n_head_v * dv;
        let mut state: Vec<f64> = self.state.iter().map(|&x| x as f64).collect();
        let mut out = Vec::new();
        for t in 0..self.n_token {
            for j in 0..n_head_v {
                let part = |at: usize, n: usize| -> Vec<f64> {
                    self.qkv[t * width + at..][..n].iter().map(|&x| x as f64).collect()
                };
                let unit = |x: Vec<f64>| -> Vec<f64> {
                    let norm = (x.iter().map(|x| x * x).sum::<f64>() + 1e-6).sqrt();
                    x.iter().map(|x| x / norm).collect()
                };
                let key = j / (n_head_v / n_head_k);
                let (q, k) = (unit(part(key * dk, dk)), unit(part((n_head_k + key) * dk, dk)));
                let v = part(2 * n_head_k * dk + j * dv, dv);
                let beta = 1.0 / (1.0 + (-self.b[t * n_head_v + j] as f64).exp());
                let x = self.a[t * n_head_v + j] as f64 + self.dt_bias[j] as f64;
                let g = -(self.decay[j] as f64) * (x.max(0.0) + (-x.abs()).exp().ln_1p());
                let s = &mut state[j * dk * dv..(j + 1) * dk * dv];
                s.iter_mut().for_each(|s| *s *= g.exp());
                for c in 0..dv {
                    let read = |x: &[f64], s: &[f64]| (0..dk).map(|r| x[r] * s[r * dv + c]).sum::<f64>();
                    let d = beta * (v[c] - read(&k, s));
                    (0..dk).for_each(|r| s[r * dv + c] += k[r] * d);
                    out.push((read(&q, s) / (dk as f64).sqrt()) as f32);
                }
            }
        }
        (out, state.iter().map(|&x| x as f32).collect())
    }

    /// Whole, token by token and in random pieces: all within the bound of the f64 recurrence.
    fn check(&self, cpu: &Cpu, what: &str) {
        let what = format!("{what}, {:?}, {} tokens, {}", self.shape, self.n_token, name(cpu));
        let (want, want_state) = self.exact();
        let mut random = Random::new(self.n_token as u64);
        for (cut, longest) in [("whole", self.n_token), ("token by token", 1), ("in pieces", 100)] {
            let (mut state, mut got, mut at) = (self.state.clone(), Vec::new(), 0);
            while at < self.n_token {
                let n = if longest == 100 { 1 + random.below(100) } else { longest }.min(self.n_token - at);
                got.extend(self.run(cpu, at..at + n, &mut state));
                at += n;
            }
            assert_close(&format!("{cut}, {what}"), &got, &want, DELTA_BOUND);
            assert_close(&format!("state, {cut}, {what}"), &state, &want_state, DELTA_BOUND);
        }
    }
}

#[test]
fn chunked_and_recurrent_agree_with_f64() {
    // Breaks if the chunked form drifts from the recurrence, starts from the wrong state, or a head reads another's
    // key, state or decay.
    for shape in SHAPES {
        for n_token in [1, 2, 63, 64, 65, 150] {
            let case = Case::new(shape, n_token, n_token as u64);
            cpus().iter().for_each(|cpu| case.check(cpu, "random"));
        }
    }
}

#[test]
fn the_reference_agrees_with_f64() {
    // Breaks if the oracle of every other test is itself wrong.
    for shape in SHAPES {
        let case = Case::new(shape, 70, 9);
        let (want, want_state) = case.exact();
        let mut state = case.state.clone();
        assert_close(&"outputs", &case.run(&Reference, 0..70, &mut state), &want, DELTA_BOUND);
        assert_close(&"state", &state, &want_state, DELTA_BOUND);
    }
}

#[test]
fn results_depend_on_chunk_borders_only() {
    // Breaks if pieces are not cut at absolute multiples of the chunk, or if bits depend on threads or set.
    let case = Case::new(SHAPES[1], 3 * DELTA_CHUNK + 10, 11);
    let mut fused: Option<Vec<f32>> = None;
    for cpu in cpus() {
        let mut state = case.state.clone();
        let whole = case.run(&cpu, 0..case.n_token, &mut state);
        let mut cut_state = case.state.clone();
        let mut cut = case.run(&cpu, 0..DELTA_CHUNK, &mut cut_state);
        cut.extend(case.run(&cpu, DELTA_CHUNK..3 * DELTA_CHUNK, &mut cut_state));
        cut.extend(case.run(&cpu, 3 * DELTA_CHUNK..case.n_token, &mut cut_state));
        assert_same(&format!("cut at borders, {}", name(&cpu)), &cut, &whole);
        assert_same(&format!("state, {}", name(&cpu)), &cut_state, &state);
        if is_fused(&cpu) {
            assert_same(
                &format!("another set or threads, {}", name(&cpu)),
                &whole,
                fused.get_or_insert(whole.clone()),
            );
        }
    }
}

#[test]
fn strong_decay_overflows_nothing() {
    // Breaks if e^(G_i − G_j) above the diagonal reaches a sum: infinity times 0 is NaN.
    for (what, decay, a, b) in [
        ("g = -16·5 a token", 16.0, 5.0, 0.0),
        ("g = -316 a token", 16.0, 19.75, 6.0),
        ("g = -1e4 a token", 100.0, 100.0, 0.0),
        ("no decay, β = 1", 0.0, 0.0, 30.0),
        ("hardly any decay, β near 1", 1e-4, 0.0, 8.0),
        ("no learning", 1.0, -3.0, -40.0),
    ] {
        for shape in [SHAPES[1], SHAPES[3]] {
            let mut case = Case::new(shape, 200, 13);
            case.decay.fill(decay);
            case.dt_bias.fill(0.0);
            case.a.fill(a);
            case.b.fill(b);
            cpus_2().iter().for_each(|cpu| case.check(cpu, what));
        }
    }
}

#[test]
fn decay_that_changes_from_token_to_token_overflows_nothing() {
    // Breaks if a token without decay after strong ones, or the reverse, meets an exponent of the wrong sign.
    let mut case = Case::new(SHAPES[1], 150, 14);
    case.decay.fill(16.0);
    for (i, a) in case.a.iter_mut().enumerate() {
        *a = if i % 7 == 0 { 25.0 } else { -20.0 };
    }
    cpus_2().iter().for_each(|cpu| case.check(cpu, "mixed decay"));
}

#[test]
fn zeros_and_large_numbers_stay_finite() {
    // Breaks if the norm of a zero key divides by 0, or large values meet an unstable form.
    for magnitude in [0.0, 1e-20, 1e4] {
        let mut case = Case::new(SHAPES[1], 100, 15);
        case.qkv.iter_mut().for_each(|x| *x *= magnitude);
        cpus_2().iter().for_each(|cpu| case.check(cpu, &format!("x{magnitude:e}")));
    }
}

#[test]
fn thousands_of_tokens_stay_with_f64() {
    // Breaks if rounding errors grow with the length.
    let shape = DeltaShape { n_head_k: 1, n_head_v: 2, head_dim_k: 64, head_dim_v: 64 };
    let mut case = Case::new(shape, 4096, 16);
    cpus_2().iter().for_each(|cpu| case.check(cpu, "long"));
    case.decay.fill(1e-3);
    cpus_2().iter().for_each(|cpu| case.check(cpu, "long memory"));
}
