//! A gated delta-net between its projections: one token in one dispatch, several in matrix form.

use kernels::{DELTA_CHUNK, DeltaShape, Rows};

use crate::context::{Bind, Buf, Context};
use crate::kernel::Access::{Read, Write};
use crate::kernel::Kernel;

static STEP: Kernel = Kernel {
    name: "delta_step",
    wgsl: &[
        include_str!("../wgsl/activations.wgsl"),
        include_str!("../wgsl/delta_out.wgsl"),
        include_str!("../wgsl/delta_step.wgsl"),
    ],
    access: &[Write, Read, Read, Read, Read, Read, Read, Read, Read, Write, Write, Write],
};

static CONV: Kernel = Kernel {
    name: "delta_conv",
    wgsl: &[include_str!("../wgsl/activations.wgsl"), include_str!("../wgsl/delta_conv.wgsl")],
    access: &[Read, Read, Read, Write],
};

static SHIFT: Kernel =
    Kernel { name: "delta_shift", wgsl: &[include_str!("../wgsl/delta_shift.wgsl")], access: &[Read, Write] };

static MIX: Kernel = Kernel {
    name: "delta_mix",
    wgsl: &[
        include_str!("../wgsl/activations.wgsl"),
        include_str!("../wgsl/delta_piece.wgsl"),
        include_str!("../wgsl/delta_mix.wgsl"),
    ],
    access: &[Read, Read, Read, Read, Read, Write, Write, Write, Write],
};

static SCAN: Kernel = Kernel {
    name: "delta_scan",
    wgsl: &[
        include_str!("../wgsl/delta_piece.wgsl"),
        include_str!("../wgsl/delta_out.wgsl"),
        include_str!("../wgsl/delta_scan.wgsl"),
    ],
    access: &[Read, Read, Read, Read, Read, Write, Write],
};

static NORM: Kernel = Kernel {
    name: "delta_norm",
    wgsl: &[
        include_str!("../wgsl/activations.wgsl"),
        include_str!("../wgsl/delta_out.wgsl"),
        include_str!("../wgsl/delta_norm.wgsl"),
    ],
    access: &[Read, Read, Write],
};

/// Most dims of a key head, and of a value head.
pub(crate) const DK_MAX: usize = 256;
pub(crate) const DV_MAX: usize = 1024;
/// Most key heads: they are counted in the control buffer.
pub(crate) const N_HEAD_K_MAX: usize = 1008;
/// Most pieces of a round.
const N_PIECE: usize = 8;
/// Numbers of a state that a workgroup takes over the pieces: some columns of all rows, two to a thread's lane.
const N_STATE_SCAN: u32 = 4096;
const N_LANE_SCAN: u32 = 16;
/// Rows of a state that a thread keeps.
const N_ROW_STEP: usize = 32;
/// Most taps of a convolution.
pub(crate) const N_CONV_MAX: usize = 16;
/// Heads of tokens that a workgroup convolves or norms.
const N_ROW_GROUP: usize = 8;
/// Threads of a workgroup.
const N_THREAD: usize = 256;
/// Most threads of a workgroup that has a whole state.
const N_THREAD_STEP: usize = 512;

/// As [`kernels::DeltaWeights`].
#[derive(Clone, Copy)]
pub(crate) struct DeltaWeights<'a> {
    pub(crate) conv: Bind<'a>,
    pub(crate) decay: Bind<'a>,
    pub(crate) dt_bias: Bind<'a>,
    pub(crate) norm: Bind<'a>,
    pub(crate) eps: f32,
}

/// As [`kernels::DeltaInputs`], and the output.
#[derive(Clone, Copy)]
pub(crate) struct DeltaTokens<'a> {
    pub(crate) qkv: Bind<'a>,
    pub(crate) b: Bind<'a>,
    pub(crate) a: Bind<'a>,
    pub(crate) z: Bind<'a>,
    /// `[n_token, n_head_v, head_dim_v]`, heads in [`DeltaShape::out_order`]
    pub(crate) out: Bind<'a>,
}

/// Of the convolution and of the rule, as in [`kernels::Backend::delta_net`].
#[derive(Clone, Copy)]
pub(crate) struct DeltaStates<'a> {
    pub(crate) conv: Bind<'a>,
    pub(crate) state: Bind<'a>,
}

/// Room for several tokens of nets of one shape.
pub(crate) struct DeltaScratch {
    shape: DeltaShape,
    /// Convolved and normed, `[N_PIECE · DELTA_CHUNK, n_channel]`.
    mixed: Buf,
    /// See `wgsl/delta_mix.wgsl`.
    w: Buf,
    u: Buf,
    answers: Buf,
    gates: Buf,
}

/// Tokens of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Round {
    /// One token of a piece of its own: its number.
    Step(usize),
    /// Whole pieces of several tokens: the first one's number, how many.
    Pieces(usize, usize),
}

/// Cuts a call at absolute multiples of [`DELTA_CHUNK`].
fn rounds(pos: usize, n_token: usize) -> Vec<Round> {
    let mut rounds = Vec::new();
    let mut first = 0;
    while first < n_token {
        let start = pos + first;
        let border = |n_piece: usize| ((start / DELTA_CHUNK + n_piece) * DELTA_CHUNK - pos).min(n_token);
        if border(1) - first == 1 {
            rounds.push(Round::Step(first));
            first += 1;
            continue;
        }
        let mut end = border(N_PIECE);
        // A last piece of one token takes the recurrence.
        if (pos + end) % DELTA_CHUNK == 1 {
            end -= 1;
        }
        rounds.push(Round::Pieces(first, end - first));
        first = end;
    }
    rounds
}

impl Context {
    /// Room for [`Self::delta_net`] of several tokens.
    pub(crate) fn delta_scratch(&self, shape: DeltaShape) -> DeltaScratch {
        let n_token = N_PIECE * DELTA_CHUNK;
        let floats = |n: usize| self.buffer(n as u64 * 4);
        DeltaScratch {
            shape,
            mixed: floats(n_token * shape.n_channel()),
            w: floats(n_token * shape.n_head_v * shape.head_dim_k),
            u: floats(n_token * shape.d_v()),
            answers: floats(n_token * shape.n_head_v * DELTA_CHUNK),
            gates: floats(n_token * shape.n_head_v * 2),
        }
    }

    /// One token, in row `token`: the recurrence, and the states behind it; nothing where word 0 of the
    /// control buffer is set.
    pub(crate) fn delta_step(
        &self,
        shape: DeltaShape,
        weights: &DeltaWeights<'_>,
        tokens: &DeltaTokens<'_>,
        states: &DeltaStates<'_>,
        token: usize,
    ) {
        let DeltaShape { n_head_k, n_head_v, head_dim_k: dk, head_dim_v: dv, n_conv, .. } = shape;
        let n_tile = shape.out_tile() as u32;
        assert!(
            dk <= DK_MAX && dv <= DV_MAX && n_head_k <= N_HEAD_K_MAX && n_conv <= N_CONV_MAX,
            "{shape:?}"
        );
        let n_thread = self.threads_max(N_THREAD_STEP);
        let n_column = n_thread / dk.div_ceil(N_ROW_STEP).next_power_of_two();
        let constants = [("N_THREAD", n_thread), ("COLUMNS", n_column), ("N_CONV", n_conv)]
            .map(|(name, n)| (name, n as u32));
        let DeltaWeights { conv, decay, dt_bias, norm, eps } = *weights;
        let DeltaTokens { qkv, b, a, z, out } = *tokens;
        let [n_head_k, n_head_v, dk, dv, token] = [n_head_k, n_head_v, dk, dv, token].map(|n| n as u32);
        let params = [n_head_k, n_head_v, dk, dv, token, eps.to_bits(), n_tile];
        let buffers =
            [self.control(), qkv, b, a, z, conv, decay, dt_bias, norm, states.conv, states.state, out];
        self.run(&STEP, &constants, &buffers, &params, [n_head_v, 1, 1]);
    }

    /// A gated delta-net between its projections: see [`kernels::Backend::delta_net`].
    pub(crate) fn delta_net(
        &self,
        scratch: &DeltaScratch,
        weights: &DeltaWeights<'_>,
        tokens: &DeltaTokens<'_>,
        states: &DeltaStates<'_>,
        rows: Rows,
    ) {
        for round in rounds(rows.pos, rows.n_token) {
            match round {
                Round::Step(t) => self.delta_step(scratch.shape, weights, tokens, states, rows.first + t),
                Round::Pieces(t, n) => {
                    let piece = Rows { first: rows.first + t, pos: rows.pos + t, n_token: n };
                    self.delta_pieces(scratch, weights, tokens, states, piece);
                }
            }
        }
    }

    /// Whole pieces of tokens.
    fn delta_pieces(
        &self,
        scratch: &DeltaScratch,
        weights: &DeltaWeights<'_>,
        tokens: &DeltaTokens<'_>,
        states: &DeltaStates<'_>,
        Rows { first, pos, n_token }: Rows,
    ) {
        let shape = scratch.shape;
        let DeltaShape { n_head_k, n_head_v, head_dim_k: dk, head_dim_v: dv, n_conv, .. } = shape;
        let n_tile = shape.out_tile() as u32;
        assert!(dk <= DK_MAX && n_conv <= N_CONV_MAX, "{shape:?}");
        let [n_head_k, n_head_v, dk, dv, n_conv] = [n_head_k, n_head_v, dk, dv, n_conv].map(|n| n as u32);
        let [pos, first, n_token] = [pos, first, n_token].map(|n| n as u32);
        let DeltaTokens { qkv, b, a, z, out } = *tokens;
        let [mixed, w, u, answers, gates] =
            [&scratch.mixed, &scratch.w, &scratch.u, &scratch.answers, &scratch.gates].map(Buf::bind);

        let params = [n_head_k, n_head_v, dk, dv, first, n_token];
        let groups = [2 * n_head_k + n_head_v, n_token.div_ceil(N_ROW_GROUP as u32), 1];
        self.run(&CONV, &[("N_CONV", n_conv)], &[qkv, weights.conv, states.conv, mixed], &params, groups);
        let n_channel = shape.n_channel();
        let groups = [n_channel.div_ceil(N_THREAD) as u32, 1, 1];
        self.run(&SHIFT, &[], &[qkv, states.conv], &[n_channel as u32, n_conv, first, n_token], groups);

        let params = [n_head_k, n_head_v, dk, dv, pos, first, n_token, n_tile];
        let chunk = DELTA_CHUNK as u32;
        let n_piece = (pos + n_token).div_ceil(chunk) - pos / chunk;
        let buffers = [mixed, b, a, weights.decay, weights.dt_bias, w, u, answers, gates];
        self.run(&MIX, &[], &buffers, &params, [n_piece, n_head_v, 1]);
        let buffers = [mixed, w, u, answers, gates, states.state, out];
        let n_lane = N_LANE_SCAN.min(N_STATE_SCAN / 2 / dk.next_power_of_two());
        let groups = [n_head_v, dv.div_ceil(2 * n_lane), 1];
        self.run(&SCAN, &[("LANES", n_lane)], &buffers, &params, groups);
        let n_row = n_token * n_head_v;
        let params = [dv, weights.eps.to_bits(), first * n_head_v, n_row, n_head_v, n_tile];
        self.run(
            &NORM,
            &[],
            &[z, weights.norm, out],
            &params,
            self.grid((n_row as usize).div_ceil(N_ROW_GROUP)),
        );
    }
}

/// All kernels of this file.
#[cfg(test)]
pub(crate) fn kernels() -> Vec<&'static Kernel> {
    vec![&STEP, &CONV, &SHIFT, &MIX, &SCAN, &NORM]
}

#[cfg(test)]
mod tests {
    use std::ops::Range;

    use kernels::HeadOrder;

    use super::*;
    use crate::test_rig::{Rig, assert_close, assert_same, random, rig};

    /// States, chunked and recurrent against f64, relative to the root mean square.
    const STATE_BOUND: f64 = 1e-5;
    /// Outputs: the norm's weight and the gate make some numbers a few times larger than most.
    const OUT_BOUND: f64 = 3e-5;

    const fn shape(
        n_head_k: usize,
        n_head_v: usize,
        head_dim_k: usize,
        head_dim_v: usize,
        n_conv: usize,
    ) -> DeltaShape {
        let out_order = HeadOrder::Grouped;
        DeltaShape { n_head_k, n_head_v, head_dim_k, head_dim_v, n_conv, out_order }
    }

    const SHAPES: [DeltaShape; 8] = [
        shape(1, 1, 16, 16, 4),
        shape(2, 4, 32, 48, 2),
        shape(3, 3, 21, 84, 1),
        shape(1, 4, 6, 130, 6),
        shape(2, 8, 128, 128, 4),
        shape(1, 2, 8, 24, 3),
        shape(1, 1, 200, 300, 4),
        DeltaShape { out_order: HeadOrder::Tiled, ..shape(2, 6, 16, 20, 4) },
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
            let scaled = |number: u64, n: usize, scale: f32| -> Vec<f32> {
                random(seed * 100 + number, n).iter().map(|x| x * scale).collect()
            };
            let (n_channel, n_head_v) = (shape.n_channel(), shape.n_head_v);
            Self {
                shape,
                pos: 0,
                n_token,
                conv: scaled(1, shape.n_conv * n_channel, 0.7),
                // exp(A_log) of trained models lies in 0..16.
                decay: scaled(2, n_head_v, 2.0).iter().map(|x| x.exp().min(16.0)).collect(),
                dt_bias: scaled(3, n_head_v, 1.0).iter().map(|x| x - 3.0).collect(),
                norm: scaled(4, shape.head_dim_v, 1.0),
                eps: 1e-6,
                qkv: scaled(5, n_token * n_channel, 1.0),
                b: scaled(6, n_token * n_head_v, 1.0),
                a: scaled(7, n_token * n_head_v, 1.0),
                z: scaled(8, n_token * shape.d_v(), 1.0),
                states: States(
                    scaled(9, (shape.n_conv - 1) * n_channel, 1.0),
                    scaled(10, shape.state_len(), 0.1),
                ),
            }
        }

        /// With a norm that only scales: where the rule's answer nearly cancels, the norm would enlarge its error.
        fn without_norm(mut self) -> Self {
            self.norm.iter_mut().for_each(|w| *w *= 1e6);
            self.eps = 1e12;
            self
        }

        /// All tokens in one call.
        fn whole(&self, rig: &Rig) -> (Vec<f32>, States) {
            self.run(rig, std::slice::from_ref(&(0..self.n_token)))
        }

        /// Tokens in ranges one after the other; outputs and the last states.
        fn run(&self, rig: &Rig, ranges: &[Range<usize>]) -> (Vec<f32>, States) {
            let (d_v, context) = (self.shape.d_v(), &rig.context);
            let [conv, decay, dt_bias, norm] =
                [&self.conv, &self.decay, &self.dt_bias, &self.norm].map(|x| rig.tensor(x));
            let weights = DeltaWeights {
                conv: conv.bind(),
                decay: decay.bind(),
                dt_bias: dt_bias.bind(),
                norm: norm.bind(),
                eps: self.eps,
            };
            let (conv_state, state) = (rig.tensor(&self.states.0), rig.tensor(&self.states.1));
            let states = DeltaStates { conv: conv_state.bind(), state: state.bind() };
            let (scratch, mut outs) = (context.delta_scratch(self.shape), Vec::new());
            let [qkv, b, a, z] = [&self.qkv, &self.b, &self.a, &self.z].map(|x| rig.tensor(x));
            for range in ranges {
                let out = rig.zeros(self.n_token * d_v);
                let tokens =
                    DeltaTokens { qkv: qkv.bind(), b: b.bind(), a: a.bind(), z: z.bind(), out: out.bind() };
                let rows = Rows { first: range.start, pos: self.pos + range.start, n_token: range.len() };
                context.delta_net(&scratch, &weights, &tokens, &states, rows);
                outs.extend_from_slice(&rig.read(&out, self.n_token * d_v)[rows.floats(d_v)]);
            }
            let states =
                States(rig.read(&conv_state, self.states.0.len()), rig.read(&state, self.states.1.len()));
            (outs, states)
        }

        /// The rule in f64; outputs and the last states.
        fn exact(&self) -> (Vec<f32>, States) {
            let DeltaShape { n_head_k, n_head_v, head_dim_k: dk, head_dim_v: dv, n_conv, .. } = self.shape;
            let n_value = n_head_v / n_head_k;
            let n_channel = self.shape.n_channel();
            let rows = [&self.states.0[..], &self.qkv].concat();
            let mut state: Vec<f64> = self.states.1.iter().map(|&x| f64::from(x)).collect();
            let mut out = vec![0.0; self.n_token * n_head_v * dv];
            for t in 0..self.n_token {
                let silu = |x: f64| x / (1.0 + (-x).exp());
                let tap = |j: usize, c: usize| {
                    f64::from(self.conv[j * n_channel + c]) * f64::from(rows[(t + j) * n_channel + c])
                };
                let conv: Vec<f64> =
                    (0..n_channel).map(|c| silu((0..n_conv).map(|j| tap(j, c)).sum())).collect();
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
                    let beta = 1.0 / (1.0 + (-f64::from(self.b[t * n_head_v + head])).exp());
                    let x = f64::from(self.a[t * n_head_v + head]) + f64::from(self.dt_bias[head]);
                    let g = -f64::from(self.decay[head]) * (x.max(0.0) + (-x.abs()).exp().ln_1p());
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
                        let normed = o[c] / (mean + f64::from(self.eps)).sqrt() * f64::from(self.norm[c]);
                        let at = (t * n_head_v + place) * dv + c;
                        out[at] = (normed * silu(f64::from(z[c]))) as f32;
                    }
                }
            }
            let conv = rows[self.n_token * n_channel..].to_vec();
            (out, States(conv, state.iter().map(|&x| x as f32).collect()))
        }

        /// Whole, and in pieces of so many tokens: all within the bound of f64.
        fn check(&self, rig: &Rig, what: &str, pieces: &[usize]) {
            let what = format!("{what}, {:?}, {} + {} tokens", self.shape, self.pos, self.n_token);
            let (want, want_states) = self.exact();
            for &longest in [&[self.n_token], pieces].concat().iter() {
                let starts = (0..self.n_token).step_by(longest);
                let ranges: Vec<_> = starts.map(|at| at..(at + longest).min(self.n_token)).collect();
                let (got, states) = self.run(rig, &ranges);
                assert_close(&format!("by {longest}, {what}"), &got, &want, OUT_BOUND);
                assert_same(&format!("convolution, by {longest}, {what}"), &states.0, &want_states.0);
                assert_close(&format!("state, by {longest}, {what}"), &states.1, &want_states.1, STATE_BOUND);
            }
        }
    }

    #[test]
    fn calls_are_cut_at_absolute_borders() {
        // Breaks if a prompt's result depends on the size of its batches.
        for (pos, n, want) in [
            (0, 0, vec![]),
            (5, 1, vec![Round::Step(0)]),
            (0, 64, vec![Round::Pieces(0, 64)]),
            (0, 65, vec![Round::Pieces(0, 64), Round::Step(64)]),
            (63, 3, vec![Round::Step(0), Round::Pieces(1, 2)]),
            (127, 2, vec![Round::Step(0), Round::Step(1)]),
            (10, 700, vec![Round::Pieces(0, 502), Round::Pieces(502, 198)]),
            (0, 513, vec![Round::Pieces(0, 512), Round::Step(512)]),
            (62, 451, vec![Round::Pieces(0, 450), Round::Step(450)]),
        ] {
            assert_eq!(rounds(pos, n), want, "{pos}+{n}");
        }
    }

    #[test]
    fn chunked_and_recurrent_agree_with_f64() {
        // Breaks if taps are reversed, the chunked form drifts from the recurrence or starts from a wrong state, or a
        // head reads another's key, state, decay or gate, or its output lands in another's place.
        let Some(rig) = rig() else { return };
        for shape in SHAPES {
            for n_token in [1, 2, 65, 150] {
                let pieces: &[usize] = if n_token == 150 { &[1, 29] } else { &[] };
                Case::new(shape, n_token, n_token as u64).check(&rig, "random", pieces);
            }
        }
        Case::new(SHAPES[1], 600, 3).check(&rig, "long", &[]);
    }

    #[test]
    fn any_piece_from_any_position_agrees_with_f64() {
        // Breaks if a tail of eight tokens or of a chunk is left out, or a piece begins at a wrong row.
        let Some(rig) = rig() else { return };
        for pos in [0, 37, 63] {
            for n_token in (1..=2 * DELTA_CHUNK + 3).step_by(if pos == 37 { 5 } else { 31 }) {
                let mut case = Case::new(SHAPES[2], n_token, n_token as u64).without_norm();
                case.pos = pos;
                case.check(&rig, "random", &[]);
            }
        }
    }

    #[test]
    fn results_depend_on_chunk_borders_only() {
        // Breaks if pieces are not cut at absolute multiples of the chunk, or bits depend on how many go together.
        let Some(rig) = rig() else { return };
        for shape in [SHAPES[1], SHAPES[3], SHAPES[4]] {
            let case = Case::new(shape, 3 * DELTA_CHUNK + 10, 11);
            let (whole, states) = case.whole(&rig);
            let cut = [0..DELTA_CHUNK, DELTA_CHUNK..3 * DELTA_CHUNK, 3 * DELTA_CHUNK..case.n_token];
            let (cut, cut_states) = case.run(&rig, &cut);
            assert_same(&format!("cut at borders, {shape:?}"), &cut, &whole);
            assert_same(&format!("convolution, {shape:?}"), &cut_states.0, &states.0);
            assert_same(&format!("state, {shape:?}"), &cut_states.1, &states.1);
        }
    }

    #[test]
    fn strong_decay_overflows_nothing() {
        // Breaks if e^(G_i − G_j) above the diagonal reaches a sum, or the differences lose their precision.
        let Some(rig) = rig() else { return };
        for (what, decay, a, b) in [
            ("g = -16·5 a token", 16.0, 5.0, 0.0),
            ("g = -316 a token", 16.0, 19.75, 6.0),
            ("g = -1e4 a token", 100.0, 100.0, 0.0),
            ("no decay, β = 1", 0.0, 0.0, 30.0),
            ("hardly any decay, β near 1", 1e-4, 0.0, 8.0),
            ("no learning", 1.0, -3.0, -40.0),
        ] {
            let mut case = Case::new(SHAPES[1], 150, 13).without_norm();
            case.decay.fill(decay);
            case.dt_bias.fill(0.0);
            case.a.fill(a);
            case.b.fill(b);
            case.check(&rig, what, &[1]);
        }
        let mut case = Case::new(SHAPES[1], 150, 14).without_norm();
        case.decay.fill(16.0);
        for (i, a) in case.a.iter_mut().enumerate() {
            *a = if i % 7 == 0 { 25.0 } else { -20.0 };
        }
        case.check(&rig, "mixed decay", &[1]);
    }

    #[test]
    fn extremes_stay_finite() {
        // Breaks if the norm of a zero key or output divides by 0, large values meet an unstable form, or a SiLU or
        // sigmoid of a large number is NaN instead of the number or 0.
        let Some(rig) = rig() else { return };
        for magnitude in [0.0, 1e-20, 1e4, 1e12] {
            let mut case = Case::new(SHAPES[1], 70, 15);
            case.qkv.iter_mut().chain(&mut case.states.0).for_each(|x| *x *= magnitude);
            case.check(&rig, &format!("x{magnitude:e}"), &[1]);
        }
        for (z, b, a) in [(1e4, 0.0, 0.0), (-1e4, 1e4, -1e4), (0.0, -1e4, 0.0), (200.0, 100.0, 1e4)] {
            let mut case = Case::new(SHAPES[1], 70, 17);
            case.z.fill(z);
            case.b.fill(b);
            case.a.fill(a);
            case.without_norm().check(&rig, &format!("z {z}, b {b}, a {a}"), &[1]);
        }
    }

    #[test]
    fn thousands_of_tokens_stay_with_f64() {
        // Breaks if rounding errors grow with the length.
        let Some(rig) = rig() else { return };
        let mut case = Case::new(shape(1, 2, 32, 32, 4), 4096, 16).without_norm();
        case.check(&rig, "long", &[]);
        case.decay.fill(1e-3);
        case.check(&rig, "long memory", &[]);
    }

    #[test]
    fn a_step_behind_a_missing_expert_changes_nothing() {
        // Breaks if a token that is computed again finds states that it has already changed.
        let Some(rig) = rig() else { return };
        for shape in [SHAPES[1], SHAPES[4]] {
            let case = Case::new(shape, 1, 18);
            rig.context.control_set(3);
            let (out, states) = case.whole(&rig);
            assert_same("outputs", &out, &vec![0.0; shape.d_v()]);
            assert_same("convolution", &states.0, &case.states.0);
            assert_same("state", &states.1, &case.states.1);
            rig.context.control_set(0);
            assert!(case.whole(&rig).1.1 != case.states.1, "nothing was learnt");
        }
    }
}
