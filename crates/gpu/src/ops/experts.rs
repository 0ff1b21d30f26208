//! Experts, for few tokens: pair by pair, all pairs in one dispatch.

use crate::context::{Bind, Context};
use crate::kernel::Access::{Read, Write};
use crate::kernel::Kernel;
use crate::ops::step::{Cut, N_STEP_TEXT, Tuning, step_kernels};
use crate::ops::{MatrixAt, Records};

static EXPERTS_STEP: [Kernel; N_STEP_TEXT] =
    step_kernels!("experts_step", "../wgsl/experts_step.wgsl", &[Read, Read, Read, Read, Read, Read, Write]);

/// Up to so many columns, and from so many rows of all experts on, see [`Context::experts_tuning`].
const SHORT_COLS: usize = 1024;
const MANY_ROWS: usize = 32768;

/// What a dispatch of the kernel does, see there.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Step {
    GateAndUp,
    Gate,
    Up,
    Down,
}

/// The pairs of a dispatch: their words, where the first one starts, how many there are.
pub(crate) type Pairs<'a> = (Bind<'a>, u32, usize);

impl Context {
    /// `out[row_out] = down · (silu(gate · x[row_in]) ⊙ (up · x[row_in]))` for `n_pair` pairs, whose experts lie in
    /// `slab`. A pair is four words of `pairs.0`, from word `pairs.1` on: the word of `slab` at which its record
    /// starts, `row_in`, `row_out`, unused; where the record is `u32::MAX`, it is skipped. `x` and `out` are
    /// `[_, d_model]`, `hidden` is `[n_pair, d_ff]`, for what lies between.
    pub(crate) fn experts_step(
        &self,
        records: &Records,
        slab: Bind<'_>,
        pairs: (Bind<'_>, u32),
        n_pair: usize,
        x: Bind<'_>,
        hidden: Bind<'_>,
        out: Bind<'_>,
    ) {
        let tuning = |w: &MatrixAt<'_>, n_pair| self.experts_tuning(w, n_pair);
        self.experts_tuned(&records.matrices(slab), (pairs.0, pairs.1, n_pair), [x, hidden, out], tuning);
    }

    /// The same for an expert that has its place: a pair of rows for every token.
    pub(crate) fn shared_step(
        &self,
        matrices: &[MatrixAt<'_>; 3],
        rows: &[(u32, u32)],
        x: Bind<'_>,
        hidden: Bind<'_>,
        out: Bind<'_>,
    ) {
        let pairs: Vec<u32> = rows.iter().flat_map(|&(row_in, row_out)| [0, row_in, row_out, 0]).collect();
        let at = self.args(&pairs);
        let tuning = |w: &MatrixAt<'_>, n_pair| self.experts_tuning(w, n_pair);
        self.experts_tuned(matrices, (self.args_bind(), at, rows.len()), [x, hidden, out], tuning);
    }

    pub(crate) fn experts_tuned(
        &self,
        [gate, up, down]: &[MatrixAt<'_>; 3],
        pairs: Pairs<'_>,
        [x, hidden, out]: [Bind<'_>; 3],
        tuning: impl Fn(&MatrixAt<'_>, usize) -> Tuning,
    ) {
        let cut = |w| tuning(w, pairs.2);
        if gate.goes_with(up) {
            self.experts_dispatch(Step::GateAndUp, (gate, up), pairs, (x, hidden), cut(gate));
        } else {
            self.experts_dispatch(Step::Gate, (gate, gate), pairs, (x, hidden), cut(gate));
            self.experts_dispatch(Step::Up, (up, up), pairs, (x, hidden), cut(up));
        }
        self.experts_dispatch(Step::Down, (down, down), pairs, (hidden, out), cut(down));
    }

    pub(crate) fn experts_dispatch(
        &self,
        step: Step,
        (w, up): (&MatrixAt<'_>, &MatrixAt<'_>),
        (pairs, pairs_at, n_pair): Pairs<'_>,
        (x, out): (Bind<'_>, Bind<'_>),
        tuning: Tuning,
    ) {
        let cut = Cut::new(self, w.format, tuning, w.cols, 1);
        let both = if step == Step::GateAndUp { 2 } else { 1 };
        let n_group = (w.rows * both).div_ceil(cut.group_rows());
        let ([codes, scales, biases], [up_codes, up_scales, up_biases]) = (w.planes, up.planes);
        let (rows, cols) = (w.rows as u32, w.cols as u32);
        let params = [codes, scales, biases, pairs_at, up_codes, up_scales, up_biases, cols, rows];
        let [w1, w2, w4] = w.binds();
        let mut constants = cut.constants();
        constants.push(("STEP", step as u32));
        self.run(
            cut.kernel(&EXPERTS_STEP),
            &constants,
            &[w1, w2, w4, x, x, pairs, out],
            &params,
            [n_group as u32, n_pair as u32, 1],
        );
    }

    /// What is fast for such a matrix of each of `n_pair` experts: the best of `benches/products.rs` on an NVIDIA H200.
    /// Where the tokens are short, a few threads have prepared them soon.
    pub(crate) fn experts_tuning(&self, w: &MatrixAt<'_>, n_pair: usize) -> Tuning {
        let base = Tuning { form: self.form(), ..Tuning::BASE };
        match w.cols {
            0..=SHORT_COLS if MANY_ROWS <= w.rows * n_pair => Tuning { threads: 128, turns: 2, ..base },
            0..=SHORT_COLS => Tuning { threads: 128, rows: 8, ..base },
            _ => base,
        }
    }
}

impl Records {
    /// The matrices of a record that starts where `slab` starts.
    pub(crate) fn matrices<'a>(&self, slab: Bind<'a>) -> [MatrixAt<'a>; 3] {
        let (d_model, d_ff) = (self.d_model, self.d_ff);
        let shapes = [(d_ff, d_model), (d_ff, d_model), (d_model, d_ff)];
        [0, 1, 2].map(|i| {
            let (rows, cols) = shapes[i];
            MatrixAt { format: self.formats[i], rows, cols, buf: slab, planes: self.planes[i] }
        })
    }
}

/// All kernels of this file.
#[cfg(test)]
pub(crate) fn kernels() -> Vec<&'static Kernel> {
    EXPERTS_STEP.iter().collect()
}

#[cfg(test)]
mod tests {
    use kernels::{Backend, ExpertJob, Reference, SharedJob};
    use quant::{Block, Format, Matrix};

    use super::*;
    use crate::context::Buf;
    use crate::ops::step::Form;
    use crate::test_rig::{Rig, assert_close, assert_same, encoded, random, rig, stored};

    /// Two products and a SiLU.
    const FFN_BOUND: f64 = 2e-5;

    const A4: Format = Format::Affine { bits: 4, group: 64 };
    const A8: Format = Format::Affine { bits: 8, group: 32 };
    const A3: Format = Format::Affine { bits: 3, group: 128 };

    /// What an output holds before.
    const UNTOUCHED: f32 = 7.0;

    /// Experts of one layer, on both sides.
    struct Experts {
        experts: Vec<[Matrix; 3]>,
        records: Records,
        /// Word at which the record of each starts.
        at: Vec<u32>,
        slab: Buf,
    }

    /// An expert (`None`: skipped), row of the input, row of the output.
    type Pair = (Option<usize>, u32, u32);

    const FORMS: [Form; 2] = [Form::Float, Form::Dot];

    impl Experts {
        fn new(rig: &Rig, seed: u64, n: usize, formats: [Format; 3], [d_model, d_ff]: [usize; 2]) -> Self {
            let shapes = [(d_ff, d_model), (d_ff, d_model), (d_model, d_ff)];
            let expert = |e: u64| {
                [0, 1, 2].map(|i| stored(seed + 3 * e + i as u64, formats[i], shapes[i].0, shapes[i].1))
            };
            let experts: Vec<[Matrix; 3]> = (0..n as u64).map(expert).collect();
            let (mut planes, mut at, mut bytes) = ([[0; 3]; 3], Vec::new(), vec![0xff; 128]);
            for expert in &experts {
                let start = bytes.len();
                at.push(start as u32 / 4);
                for (matrix, planes) in expert.iter().zip(&mut planes) {
                    let view = matrix.view();
                    for (plane, at) in [view.codes, view.scales, view.biases].into_iter().zip(planes) {
                        *at = (bytes.len() - start) as u32 / 4;
                        bytes.extend_from_slice(plane);
                        bytes.resize(bytes.len().next_multiple_of(64), 0xff);
                    }
                }
            }
            let slab = rig.context.buffer(bytes.len() as u64);
            rig.context.write(&slab, 0, &bytes);
            Self { experts, records: Records { formats, d_model, d_ff, planes }, at, slab }
        }

        fn run(&self, rig: &Rig, form: Form, pairs: &[Pair], x: &[f32], n_out: usize) -> Vec<f32> {
            let record = |e: Option<usize>| e.map_or(u32::MAX, |e| self.at[e]);
            let words = pairs.iter().flat_map(|&(e, row_in, row_out)| [record(e), row_in, row_out, 99]);
            let words: Vec<u32> = [1, 2, 3].into_iter().chain(words).collect();
            let (x, pair_words) = (rig.tensor(x), rig.words(&words));
            let hidden = rig.zeros(pairs.len() * self.records.d_ff);
            let out = rig.tensor(&vec![UNTOUCHED; n_out]);
            let matrices = self.records.matrices(self.slab.bind());
            let pairs = (pair_words.bind(), 3, pairs.len());
            let tensors = [x.bind(), hidden.bind(), out.bind()];
            rig.context.experts_tuned(&matrices, pairs, tensors, |_, _| Tuning { form, ..Tuning::BASE });
            rig.read(&out, n_out)
        }

        fn want(&self, pairs: &[Pair], x: &Vec<f32>, n_out: usize) -> Vec<f32> {
            let mut out = vec![UNTOUCHED; n_out];
            for &(expert, row_in, row_out) in pairs {
                let Some(expert) = expert else { continue };
                let [gate, up, down] = self.experts[expert].each_ref().map(Matrix::view);
                let job = ExpertJob { gate, up, down, rows: &[(row_in, row_out)] };
                Reference.experts(&[job], None, x, &mut out);
            }
            out
        }
    }

    #[test]
    fn experts_agree_with_the_reference_and_with_themselves_in_pieces() {
        // Breaks if a pair reads or writes the wrong row or record, a pair without an expert writes, a mix of formats
        // picks the wrong layout, or an expert's result depends on what else is in the call.
        let Some(rig) = rig() else { return };
        let block = Format::Block;
        let cases = [
            ([A4; 3], [384, 128]),
            ([A4, A8, Format::Bf16], [384, 128]),
            ([Format::F16, Format::F16, A3], [384, 128]),
            ([block(Block::Q4K), block(Block::Q4K), block(Block::Q6K)], [512, 256]),
            ([block(Block::Q5K), block(Block::Iq4Xs), block(Block::Q8_0)], [256, 768]),
            ([block(Block::Mxfp4), block(Block::Mxfp4), Format::Mxfp4], [96, 160]),
        ];
        for (i, (formats, dims)) in cases.into_iter().enumerate() {
            let d_model = dims[0];
            let experts = Experts::new(&rig, 100 * i as u64, 3, formats, dims);
            let x = random(i as u64, 4 * d_model);
            let pairs = [
                (Some(2), 3, 4),
                (Some(0), 0, 0),
                (None, 900_000, 3),
                (Some(2), 1, 2),
                (Some(1), 3, 5),
                (None, 0, 1),
            ];
            let n_out = 7 * d_model;
            let want = experts.want(&pairs, &x, n_out);
            for form in FORMS {
                let got = experts.run(&rig, form, &pairs, &x, n_out);
                assert_close(&format!("{formats:?}, {form:?}"), &got, &want, FFN_BOUND);
                for pair in pairs {
                    let alone = experts.run(&rig, form, &[pair], &x, n_out);
                    let row = pair.2 as usize * d_model..(pair.2 as usize + 1) * d_model;
                    let what = format!("{formats:?}, {form:?}, {pair:?} alone");
                    assert_same(&what, &alone[row.clone()], &got[row]);
                }
            }
        }
    }

    #[test]
    fn odd_shapes_of_experts_agree_with_the_reference() {
        // Breaks if rows of gate and up are mixed where the last group of rows is incomplete, or a tile's edge is lost.
        let Some(rig) = rig() else { return };
        let float = [Format::Bf16; 3];
        for (formats, dims) in
            [(float, [17, 5]), (float, [1, 1]), ([A4; 3], [64, 320]), ([A4; 3], [4608, 64])]
        {
            let experts = Experts::new(&rig, 5, 2, formats, dims);
            let x = random(6, 2 * dims[0]);
            let pairs = [(Some(1), 0, 1), (Some(0), 1, 0), (Some(0), 0, 2)];
            let want = experts.want(&pairs, &x, 3 * dims[0]);
            for form in FORMS {
                let got = experts.run(&rig, form, &pairs, &x, 3 * dims[0]);
                assert_close(&format!("{formats:?} {dims:?}, {form:?}"), &got, &want, FFN_BOUND);
            }
        }
    }

    #[test]
    fn shared_experts_agree_with_the_reference() {
        // Breaks if matrices of different buffers or formats are taken for those of one, or rows are mixed up.
        let Some(rig) = rig() else { return };
        let rows = [(2, 0), (0, 3), (1, 1)];
        for formats in [[A4; 3], [A8, A4, A4]] {
            let (d_model, d_ff) = (256, 192);
            let shapes = [(d_ff, d_model), (d_ff, d_model), (d_model, d_ff)];
            let own = [0, 1, 2].map(|i| stored(i as u64, formats[i], shapes[i].0, shapes[i].1));
            let x = random(9, 3 * d_model);
            let mut want = vec![UNTOUCHED; 4 * d_model];
            let job = SharedJob { gate: &own[0], up: &own[1], down: &own[2], rows: &rows };
            Reference.experts(&[], Some(job), &x, &mut want);
            let (uploaded, x) = (own.each_ref().map(|m| rig.upload(m)), rig.tensor(&x));
            let (hidden, out) = (rig.zeros(3 * d_ff), rig.tensor(&vec![UNTOUCHED; 4 * d_model]));
            let matrices = uploaded.each_ref().map(|m| m.at());
            rig.context.shared_step(&matrices, &rows, x.bind(), hidden.bind(), out.bind());
            assert_close(&format!("{formats:?}"), &rig.read(&out, 4 * d_model), &want, FFN_BOUND);
        }
    }

    #[test]
    fn silu_saturates_without_nan() {
        // Breaks if e^-x overflowing for strongly negative gates gives NaN instead of 0.
        let Some(rig) = rig() else { return };
        let gates = [-1e4, -200.0, -90.0, -88.0, 0.0, 88.0, 200.0, 1e4];
        let eye = |scale: &[f32]| -> Matrix {
            let number = |i: usize| if i / 64 == i % 64 { scale[i % 64 % scale.len()] } else { 0.0 };
            encoded(Format::F32, 64, 64, &(0..64 * 64).map(number).collect::<Vec<f32>>())
        };
        let own = [eye(&gates), eye(&[1.0]), eye(&[1.0])].map(|m| rig.upload(&m));
        let (x, hidden, out) = (rig.tensor(&[1.0; 64]), rig.zeros(64), rig.zeros(64));
        rig.context.shared_step(
            &own.each_ref().map(|m| m.at()),
            &[(0, 0)],
            x.bind(),
            hidden.bind(),
            out.bind(),
        );
        for (i, (got, gate)) in rig.read(&out, 64).into_iter().zip(gates.into_iter().cycle()).enumerate() {
            let (got, want) = (f64::from(got), f64::from(gate) / (1.0 + f64::from(-gate).exp()));
            assert!(
                (got - want).abs() <= 1e-6 * want.abs().max(1.0),
                "silu({gate}) at {i} is {got:e}, not {want:e}"
            );
        }
    }
}
