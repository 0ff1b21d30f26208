//! Gated delta-nets.

use std::ops::Range;

use kernels::{Backend, Cpu, DELTA_CHUNK, DeltaInputs, DeltaShape, DeltaWeights, HeadOrder, Reference, Rows};

use crate::common::{Random, assert_close, assert_same, cpus, cpus_2, is_emulated, is_fused, name, some};

/// States, chunked and recurrent against f64, relative to the root mean square.
const STATE_BOUND: f64 = 1e-5;
/// Outputs: the norm's weight and the gate make some numbers a few times larger than most.
const OUT_BOUND: f64 = 3e-5;

const SHAPES: [DeltaShape; 6] = [
    DeltaShape {
        n_head_k: 1,
        n_head_v: 1,
        head_dim_k: 16,
        head_dim_v: 16,
        n_conv: 4,
        out_order: HeadOrder::Grouped,
    },
    DeltaShape {
        n_head_k: 2,
        n_head_v: 4,
        head_dim_k: 32,
        head_dim_v: 48,
        n_conv: 2,
        out_order: HeadOrder::Grouped,
    },
    DeltaShape {
        n_head_k: 3,
        n_head_v: 3,
        head_dim_k: 21,
        head_dim_v: 84,
        n_conv: 1,
        out_order: HeadOrder::Grouped,
    },
    DeltaShape {
        n_head_k: 1,
        n_head_v: 4,
        head_dim_k: 6,
        head_dim_v: 130,
        n_conv: 6,
        out_order: HeadOrder::Grouped,
    },
    DeltaShape {
        n_head_k: 2,
        n_head_v: 8,
        head_dim_k: 128,
        head_dim_v: 128,
        n_conv: 4,
        out_order: HeadOrder::Grouped,
    },
    DeltaShape {
        n_head_k: 2,
        n_head_v: 6,
        head_dim_k: 16,
        head_dim_v: 20,
        n_conv: 4,
        out_order: HeadOrder::Tiled,
    },
];

/// Inputs of `n_token` tokens, the first at position `pos`.
#[derive(Clone)]
struct Case {
    shape: DeltaShape,
    pos: usize,
    n_token: usize,
    conv: Vec<f32>,
    decay: Vec<f32>,
    dt_bias: Vec<f32>,
    norm: Vec<f32>,
    eps: f32,
    qkv: Vec<f32>,
    b: Vec<f32>,
    a: Vec<f32>,
    z: Vec<f32>,
    states: States,
}

/// Of the convolution and of the rule.
#[derive(Clone)]
struct States(Vec<f32>, Vec<f32>);

impl Case {
    fn new(shape: DeltaShape, n_token: usize, seed: u64) -> Self {
        let mut random = Random::new(seed);
        let mut scaled =
            |n: usize, scale: f32| -> Vec<f32> { random.normals(n).iter().map(|x| x * scale).collect() };
        let (n_channel, n_head_v) = (shape.n_channel(), shape.n_head_v);
        Self {
            shape,
            pos: 0,
            n_token,
            conv: scaled(shape.n_conv * n_channel, 0.7),
            // exp(A_log) of trained models lies in 0..16.
            decay: scaled(n_head_v, 2.0).iter().map(|x| x.exp().min(16.0)).collect(),
            dt_bias: scaled(n_head_v, 1.0).iter().map(|x| x - 3.0).collect(),
            norm: scaled(shape.head_dim_v, 1.0),
            eps: 1e-6,
            qkv: scaled(n_token * n_channel, 1.0),
            b: scaled(n_token * n_head_v, 1.0),
            a: scaled(n_token * n_head_v, 1.0),
            z: scaled(n_token * shape.d_v(), 1.0),
            states: States(scaled((shape.n_conv - 1) * n_channel, 1.0), scaled(shape.state_len(), 0.1)),
        }
    }

    /// With a norm that only scales: where the rule's answer nearly cancels, the norm would enlarge its error.
    fn without_norm(mut self) -> Self {
        self.norm.iter_mut().for_each(|w| *w *= 1e6);
        self.eps = 1e12;
        self
    }

    /// Tokens `range`, from `states` on; the outputs.
    fn run<B: Backend<Tensor = Vec<f32>>>(
        &self,
        b: &B,
        range: Range<usize>,
        states: &mut States,
    ) -> Vec<f32> {
        let mut out = vec![f32::NAN; self.n_token * self.shape.d_v()];
        let Self { conv, decay, dt_bias, norm, eps, qkv, b: beta, a, z, .. } = self;
        let weights = DeltaWeights { conv, decay, dt_bias, norm, eps: *eps };
        let inputs = DeltaInputs { qkv, b: beta, a, z };
        let states = (&mut states.0, &mut states.1);
        let rows = Rows { first: range.start, pos: self.pos + range.start, n_token: range.len() };
        b.delta_net(self.shape, &weights, &inputs, states, rows, &mut out);
        out[rows.floats(self.shape.d_v())].to_vec()
    }

    /// Spec 2.5 in f64; outputs and the last states.
    fn exact(&self) -> (Vec<f32>, States) {
        let DeltaShape { n_head_k, n_head_v, head_dim_k: dk, head_dim_v: dv, n_conv, .. } = self.shape;
        let n_value = n_head_v / n_head_k;
        let n_channel = self.shape.n_channel();
        let rows = [&self.states.0[..], &self.qkv].concat();
        let mut state: Vec<f64> = self.states.1.iter().map(|&x| x as f64).collect();
        let mut out = vec![0.0; self.n_token * n_head_v * dv];
        for t in 0..self.n_token {
            let silu = |x: f64| x / (1.0 + (-x).exp());
            let tap = |j: usize, c: usize| {
                self.conv[j * n_channel + c] as f64 * rows[(t + j) * n_channel + c] as f64
            };
            let conv: Vec<f64> = (0..n_channel).map(|c| silu((0..n_conv).map(|j| tap(j, c)).sum())).collect();
            for head in 0..n_head_v {
                let unit = |x: &[f64]| -> Vec<f64> {
                    let norm = (x.iter().map(|x| x * x).sum::<f64>() + 1e-6).sqrt();
                    x.iter().map(|x| x / norm).collect()
                };
                let key = head / n_value;
                let place = match self.shape.out_order {
                    HeadOrder::Grouped => head,
                    HeadOrder::Tiled => head % n_value * n_head_k + key,
                };
                let (q, k) = (unit(&conv[key * dk..][..dk]), unit(&conv[(n_head_k + key) * dk..][..dk]));
                let v = &conv[2 * n_head_k * dk + head * dv..][..dv];
                let beta = 1.0 / (1.0 + (-self.b[t * n_head_v + head] as f64).exp());
                let x = self.a[t * n_head_v + head] as f64 + self.dt_bias[head] as f64;
                let g = -(self.decay[head] as f64) * (x.max(0.0) + (-x.abs()).exp().ln_1p());
                let s = &mut state[head * dk * dv..(head + 1) * dk * dv];
                s.iter_mut().for_each(|s| *s *= g.exp());
                let mut o = vec![0.0; dv];
                for c in 0..dv {
                    let read = |x: &[f64], s: &[f64]| (0..dk).map(|r| x[r] * s[r * dv + c]).sum::<f64>();
                    let d = beta * (v[c] - read(&k, s));
                    (0..dk).for_each(|r| s[r * dv + c] += k[r] * d);
                    o[c] = read(&q, s) / (dk as f64).sqrt();
                }
                let mean = o.iter().map(|o| o * o).sum::<f64>() / dv as f64;
                let z = &self.z[(t * n_head_v + head) * dv..];
                for c in 0..dv {
                    let normed = o[c] / (mean + self.eps as f64).sqrt() * self.norm[c] as f64;
                    out[(t * n_head_v + place) * dv + c] = (normed * silu(z[c] as f64)) as f32;
                }
            }
        }
        let conv = rows[self.n_token * n_channel..].to_vec();
        (out, States(conv, state.iter().map(|&x| x as f32).collect()))
    }

    /// Whole, token by token and in random pieces: all within the bound of f64.
    fn check(&self, cpus: &[Cpu], what: &str) {
        let exact = self.exact();
        cpus.iter().for_each(|cpu| self.check_one(cpu, &exact, what));
    }

    fn check_one(&self, cpu: &Cpu, (want, want_states): &(Vec<f32>, States), what: &str) {
        let what = format!("{what}, {:?}, {} + {} tokens, {}", self.shape, self.pos, self.n_token, name(cpu));
        let mut random = Random::new(self.n_token as u64);
        for (cut, longest) in [("whole", self.n_token), ("token by token", 1), ("in pieces", 100)] {
            let (mut states, mut got, mut at) = (self.states.clone(), Vec::new(), 0);
            while at < self.n_token {
                let n = if longest == 100 { 1 + random.below(100) } else { longest }.min(self.n_token - at);
                got.extend(self.run(cpu, at..at + n, &mut states));
                at += n;
            }
            assert_close(&format!("{cut}, {what}"), &got, want, OUT_BOUND);
            assert_same(&format!("convolution, {cut}, {what}"), &states.0, &want_states.0);
            assert_close(&format!("state, {cut}, {what}"), &states.1, &want_states.1, STATE_BOUND);
        }
    }
}

#[test]
fn any_piece_from_any_position_agrees_with_f64() {
    // Breaks if a tail of four tokens, of a vector or of a chunk is left out, or a piece begins at a wrong row.
    let lengths = |pos| (1..=2 * DELTA_CHUNK + 3).step_by(if pos == 37 { 1 } else { 9 });
    let cases = [0, 1, 37, 63].into_iter().flat_map(|pos| lengths(pos).map(move |n_token| (pos, n_token)));
    for (pos, n_token) in some(cases) {
        let mut case = Case::new(SHAPES[2], n_token, n_token as u64).without_norm();
        case.pos = pos;
        case.check(&cpus_2(), "random");
    }
}

#[test]
fn chunked_and_recurrent_agree_with_f64() {
    // Breaks if taps are reversed, the chunked form drifts from the recurrence or starts from a wrong state, or a head
    // reads another's key, state, decay or gate, or its output lands in another's place.
    let lengths = [1, 2, 63, 64, 65, 150];
    for (shape, n_token) in some(SHAPES.into_iter().flat_map(|shape| lengths.map(|n| (shape, n)))) {
        Case::new(shape, n_token, n_token as u64).check(&cpus(), "random");
    }
}

#[test]
fn the_reference_agrees_with_f64() {
    // Breaks if the oracle of every other test is itself wrong.
    for shape in SHAPES {
        let case = Case::new(shape, 70, 9);
        let (want, want_states) = case.exact();
        let mut states = case.states.clone();
        assert_close(&"outputs", &case.run(&Reference, 0..70, &mut states), &want, OUT_BOUND);
        assert_same(&"convolution", &states.0, &want_states.0);
        assert_close(&"state", &states.1, &want_states.1, STATE_BOUND);
    }
}

#[test]
fn results_depend_on_chunk_borders_only() {
    // Breaks if pieces are not cut at absolute multiples of the chunk, if bits depend on threads or set, or if value
    // heads of one key head, computed by several threads, shift the convolution's state twice.
    for shape in [SHAPES[1], SHAPES[3]] {
        let case = Case::new(shape, 3 * DELTA_CHUNK + 10, 11);
        let mut fused: Option<Vec<f32>> = None;
        for cpu in cpus() {
            let mut states = case.states.clone();
            let whole = case.run(&cpu, 0..case.n_token, &mut states);
            let mut cut_states = case.states.clone();
            let mut cut = Vec::new();
            for range in [0..DELTA_CHUNK, DELTA_CHUNK..3 * DELTA_CHUNK, 3 * DELTA_CHUNK..case.n_token] {
                cut.extend(case.run(&cpu, range, &mut cut_states));
            }
            assert_same(&format!("cut at borders, {}", name(&cpu)), &cut, &whole);
            assert_same(&format!("convolution, {}", name(&cpu)), &cut_states.0, &states.0);
            assert_same(&format!("state, {}", name(&cpu)), &cut_states.1, &states.1);
            if is_fused(&cpu) {
                let whole = [whole, states.1].concat();
                let fused = fused.get_or_insert_with(|| whole.clone());
                assert_same(&format!("another set or threads, {}", name(&cpu)), &whole, fused);
            }
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
        for shape in some([SHAPES[1], SHAPES[4]]) {
            let mut case = Case::new(shape, 200, 13).without_norm();
            case.decay.fill(decay);
            case.dt_bias.fill(0.0);
            case.a.fill(a);
            case.b.fill(b);
            case.check(&cpus_2(), what);
        }
    }
}

#[test]
fn decay_that_changes_from_token_to_token_overflows_nothing() {
    // Breaks if a token without decay after strong ones, or the reverse, meets an exponent of the wrong sign.
    let mut case = Case::new(SHAPES[1], 150, 14).without_norm();
    case.decay.fill(16.0);
    for (i, a) in case.a.iter_mut().enumerate() {
        *a = if i % 7 == 0 { 25.0 } else { -20.0 };
    }
    case.check(&cpus_2(), "mixed decay");
}

#[test]
fn zeros_denormals_and_large_numbers_stay_finite() {
    // Breaks if the norm of a zero key or output divides by 0, or large values meet an unstable form.
    for magnitude in [0.0, 1e-38, 1e-20, 1e4, 1e12] {
        let mut case = Case::new(SHAPES[1], 100, 15);
        case.qkv.iter_mut().chain(&mut case.states.0).for_each(|x| *x *= magnitude);
        case.check(&cpus_2(), &format!("x{magnitude:e}"));
        case.states.1.fill(0.0);
        let case = case.without_norm();
        case.check(&cpus_2(), &format!("from nothing, x{magnitude:e}"));
    }
}

#[test]
fn extreme_gates_saturate() {
    // Breaks if a SiLU or sigmoid of a large number is NaN instead of the number or 0.
    for (z, b, a) in [(1e4, 0.0, 0.0), (-1e4, 1e4, -1e4), (0.0, -1e4, 0.0), (200.0, 100.0, 1e4)] {
        let mut case = Case::new(SHAPES[1], 70, 17);
        case.z.fill(z);
        case.b.fill(b);
        case.a.fill(a);
        let case = case.without_norm();
        case.check(&cpus_2(), &format!("z {z}, b {b}, a {a}"));
    }
}

#[test]
fn thousands_of_tokens_stay_with_f64() {
    // Breaks if rounding errors grow with the length.
    let shape = DeltaShape {
        n_head_k: 1,
        n_head_v: 2,
        head_dim_k: 64,
        head_dim_v: 64,
        n_conv: 4,
        out_order: HeadOrder::Grouped,
    };
    let mut case = Case::new(shape, if is_emulated() { 512 } else { 4096 }, 16).without_norm();
    case.check(&cpus_2(), "long");
    case.decay.fill(1e-3);
    case.check(&cpus_2(), "long memory");
}
