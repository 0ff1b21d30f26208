//! Experts of many tokens: products grouped by expert.

use crate::context::{Bind, Context};
use crate::format::read_by;
use crate::ops::prompt_tile::{EXPERTS_PROMPT, Tile};
use crate::ops::{MatrixAt, Records};

/// Which expert computes what: words in a buffer.
#[derive(Clone, Copy)]
pub(crate) struct Jobs<'a> {
    pub(crate) buf: Bind<'a>,
    /// The word where jobs start, four words each: the word of the slab where the expert's record starts, the word of
    /// `buf` where its pairs start, how many there are, and the number of its first one among all pairs. A pair is two
    /// words: a row of the input, and the row of the output that gets the result.
    pub(crate) at: u32,
    pub(crate) n_job: usize,
    /// Pairs of all jobs.
    pub(crate) n_pair: usize,
    /// Rows of the input that pairs may name: the first ones.
    pub(crate) n_row_in: usize,
    /// Pairs of the job that has most.
    pub(crate) n_pair_max: usize,
}

/// What `experts_prompt.wgsl` computes.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Step {
    /// `hidden = silu(gate · x) ⊙ (up · x)`
    GateUp = 0,
    /// `hidden = gate · x`
    Gate = 1,
    /// `hidden = silu(hidden) ⊙ (up · x)`
    Up = 2,
    /// `out = down · hidden`
    Down = 3,
}

/// Steps for the same pairs, with one tile if it is named.
struct Steps<'a> {
    context: &'a Context,
    jobs: Jobs<'a>,
    tile: Option<Tile>,
}

impl Context {
    /// `out[row_out] = down · (silu(gate · x[row_in]) ⊙ (up · x[row_in]))` for each pair of each job. `x` and `out` are
    /// `[_, d_model]`, `hidden`, for the time between, `[n_pair, d_ff]`. A pair's bits do not depend on the others.
    pub(crate) fn experts_prompt(
        &self,
        records: &Records,
        slab: Bind<'_>,
        jobs: Jobs<'_>,
        tensors: [Bind<'_>; 3],
    ) {
        Steps { context: self, jobs, tile: None }.experts(records, slab, tensors);
    }

    /// The same with a tile of the caller's choice.
    #[cfg(any(test, feature = "bench"))]
    pub(crate) fn experts_tiled(
        &self,
        tile: Tile,
        records: &Records,
        slab: Bind<'_>,
        jobs: Jobs<'_>,
        tensors: [Bind<'_>; 3],
    ) {
        Steps { context: self, jobs, tile: Some(tile) }.experts(records, slab, tensors);
    }

    /// The same with one expert whose matrices lie apart: `[gate, up, down]`. Its record starts at word 0.
    pub(crate) fn shared_prompt(
        &self,
        matrices: [&MatrixAt<'_>; 3],
        jobs: Jobs<'_>,
        [x, hidden, out]: [Bind<'_>; 3],
    ) {
        let steps = Steps { context: self, jobs, tile: None };
        let [gate, up, down] = matrices;
        steps.run(Step::Gate, gate, [0; 3], x, hidden);
        steps.run(Step::Up, up, [0; 3], x, hidden);
        steps.run(Step::Down, down, [0; 3], hidden, out);
    }
}

impl Steps<'_> {
    fn experts(&self, records: &Records, slab: Bind<'_>, [x, hidden, out]: [Bind<'_>; 3]) {
        let &Records { formats, d_model, d_ff, planes } = records;
        let matrix =
            |i: usize, rows, cols| MatrixAt { format: formats[i], rows, cols, buf: slab, planes: planes[i] };
        let (gate, up) = (matrix(0, d_ff, d_model), matrix(1, d_ff, d_model));
        if gate.format == up.format {
            self.run(Step::GateUp, &gate, up.planes, x, hidden);
        } else {
            self.run(Step::Gate, &gate, [0; 3], x, hidden);
            self.run(Step::Up, &up, [0; 3], x, hidden);
        }
        self.run(Step::Down, &matrix(2, d_model, d_ff), [0; 3], hidden, out);
    }

    /// `w` lies as in the record at word 0; `up` are the planes of the second matrix of a step that has two.
    fn run(&self, step: Step, w: &MatrixAt<'_>, up: [u32; 3], x: Bind<'_>, out: Bind<'_>) {
        let Jobs { buf, at, n_job, n_pair, n_row_in, n_pair_max } = self.jobs;
        // Rows of gate and up share a tile.
        let n_tile =
            |tile: Tile| w.rows.div_ceil(if step == Step::GateUp { tile.rows() / 2 } else { tile.rows() });
        // The last tile of a job is half full, more or less.
        let n_group = |tile: Tile| n_tile(tile) * (n_pair.div_ceil(tile.tokens()) + n_job / 2).max(n_job);
        let tile = self.tile.unwrap_or_else(|| self.context.fastest_tile(w.format, n_group));
        let reader = read_by(w.format);
        let [words, twos, fours] = w.binds();
        let [codes, scales, biases] = w.planes;
        let params = [at, w.rows as u32, w.cols as u32, codes, scales, biases, up[0], up[1], up[2]];
        let groups = [n_tile(tile) as u32, n_pair_max.div_ceil(tile.tokens()) as u32, n_job as u32];
        let mut own = tile.constants();
        own.push(("STEP", step as u32));
        let constants = reader.constants(&own);
        let kernel = EXPERTS_PROMPT.of(tile, w.format);
        let n_row_in = if step == Step::Down { n_pair } else { n_row_in };
        let split = matches!(tile, Tile::Coop { .. }).then(|| self.context.split(x, 0, n_row_in, w.cols));
        let [x, units] = split.as_ref().map_or([x, x], |split| split.binds());
        self.context.run(kernel, &constants, &[words, twos, fours, x, units, buf, out], &params, groups);
    }
}

#[cfg(test)]
mod tests {
    use kernels::{Backend, ExpertJob, Reference, SharedJob};
    use quant::{Block, Format, Matrix};

    use super::Jobs;
    use crate::ops::Records;
    use crate::ops::prompt_tile::Tile;
    use crate::ops::prompt_tile::tests::kinds;
    use crate::test_rig::{Rig, assert_close, assert_same, random, rig, stored};

    /// Two products in f32 against those in f64; a hidden number is a product of two sums.
    const EXPERT_BOUND: f64 = 2e-5;
    /// d_model and d_ff.
    const DIMS: [usize; 2] = [192, 160];
    /// Rows of the input.
    const N_TOKEN: usize = 90;

    const fn affine(bits: u8, group: u8) -> Format {
        Format::Affine { bits, group }
    }

    /// Some experts, and which tokens chose each.
    struct Case {
        experts: Vec<[Matrix; 3]>,
        /// Of each job: its expert, and its pairs.
        jobs: Vec<(usize, Vec<(u32, u32)>)>,
        n_out: usize,
        dims: [usize; 2],
    }

    impl Case {
        fn new(formats: [Format; 3], dims: [usize; 2], n_expert: usize, n_pairs: &[(usize, usize)]) -> Self {
            let [d_model, d_ff] = dims;
            let shapes = [(d_ff, d_model), (d_ff, d_model), (d_model, d_ff)];
            let matrix =
                |e: usize, i: usize| stored((3 * e + i) as u64, formats[i], shapes[i].0, shapes[i].1);
            let experts = (0..n_expert).map(|e| [0, 1, 2].map(|i| matrix(e, i))).collect();
            let mut n_out = 0;
            let mut pair = |i: usize| {
                n_out += 1;
                ((i * 37 % N_TOKEN) as u32, n_out as u32 - 1)
            };
            let jobs: Vec<(usize, Vec<_>)> =
                n_pairs.iter().map(|&(e, n)| (e, (0..n).map(|i| pair(i + e)).collect())).collect();
            Self { experts, jobs, n_out, dims }
        }

        /// `[n_out, d_model]`
        fn reference(&self, x: &Vec<f32>) -> Vec<f32> {
            let d_model = self.dims[0];
            let job = |(e, rows): &'_ (usize, Vec<(u32, u32)>)| {
                let [gate, up, down] = &self.experts[*e];
                let mut out = vec![0.0; self.n_out * d_model];
                let job = ExpertJob { gate: gate.view(), up: up.view(), down: down.view(), rows };
                Reference.experts(&[job], None, x, &mut out);
                out
            };
            let outs: Vec<_> = self.jobs.iter().map(job).collect();
            (0..self.n_out * d_model).map(|i| outs.iter().map(|out| out[i]).sum()).collect()
        }

        /// Words of the jobs, behind `at` other words.
        fn words(&self, at: usize, record_words: usize) -> Vec<u32> {
            let mut words = vec![u32::MAX; at + 4 * self.jobs.len()];
            let mut first_pair = 0;
            for (j, (e, pairs)) in self.jobs.iter().enumerate() {
                let job = [(e * record_words) as u32, words.len() as u32, pairs.len() as u32, first_pair];
                words[at + 4 * j..][..4].copy_from_slice(&job);
                words.extend(pairs.iter().flat_map(|&(row_in, row_out)| [row_in, row_out]));
                first_pair += pairs.len() as u32;
            }
            words
        }

        fn run(&self, rig: &Rig, tile: Option<Tile>, x: &[f32]) -> Vec<f32> {
            let [d_model, d_ff] = self.dims;
            let (slab, records, record_words) = slab(&self.experts, self.dims);
            let words = self.words(5, record_words);
            let (slab, words) = (rig.words(&slab), rig.words(&words));
            let n_pair = self.n_out;
            let jobs = Jobs {
                buf: words.bind(),
                at: 5,
                n_job: self.jobs.len(),
                n_pair,
                n_row_in: N_TOKEN,
                n_pair_max: self.jobs.iter().map(|(_, pairs)| pairs.len()).max().unwrap_or(0),
            };
            // A row more, to see that nothing is written behind the last.
            let out = rig.tensor(&vec![-7.0; (n_pair + 1) * d_model]);
            let (x, hidden) = (rig.tensor(x), rig.zeros(n_pair * d_ff));
            let tensors = [x.bind(), hidden.bind(), out.bind()];
            match tile {
                Some(tile) => rig.context.experts_tiled(tile, &records, slab.bind(), jobs, tensors),
                None => rig.context.experts_prompt(&records, slab.bind(), jobs, tensors),
            }
            let mut out = rig.read(&out, (n_pair + 1) * d_model);
            assert!(out.drain(n_pair * d_model..).all(|y| y == -7.0), "written behind the last row");
            out
        }
    }

    /// Records of experts one behind the other, and the words of one.
    fn slab(experts: &[[Matrix; 3]], [d_model, d_ff]: [usize; 2]) -> (Vec<u32>, Records, usize) {
        let (mut bytes, mut planes) = (Vec::new(), [[0; 3]; 3]);
        for expert in experts {
            let start = bytes.len();
            for (matrix, planes) in expert.iter().zip(&mut planes) {
                let view = matrix.view();
                for (at, plane) in planes.iter_mut().zip([view.codes, view.scales, view.biases]) {
                    *at = ((bytes.len() - start) / 4) as u32;
                    bytes.extend_from_slice(plane);
                    bytes.resize(bytes.len().next_multiple_of(64), 0xff);
                }
            }
        }
        let formats = [0, 1, 2].map(|i| experts[0][i].format());
        let words: Vec<u32> =
            bytes.chunks_exact(4).map(|b| u32::from_le_bytes([b[0], b[1], b[2], b[3]])).collect();
        let record_words = words.len() / experts.len();
        (words, Records { formats, d_model, d_ff, planes }, record_words)
    }

    #[test]
    fn experts_of_every_format_agree_with_the_reference() {
        // Breaks if a job gets another's record, pairs or hidden rows, formats are mixed up, or a job has no pairs.
        let Some(rig) = rig() else { return };
        let mixed = [affine(4, 64), affine(4, 32), affine(8, 32)];
        let all =
            [[affine(4, 32); 3], [affine(2, 32); 3], [affine(3, 32), affine(3, 32), affine(6, 32)], mixed];
        let floats = [[Format::Bf16; 3], [Format::F32, Format::F16, Format::F32], [affine(5, 32); 3]];
        let block = Format::Block;
        let k = [
            [block(Block::Q4K), block(Block::Q4K), block(Block::Q6K)],
            [block(Block::Q5K), block(Block::Q5K), block(Block::Iq4Xs)],
        ];
        let short = [[block(Block::Q8_0); 3], [block(Block::Mxfp4), block(Block::Mxfp4), Format::Mxfp4]];
        let all = all.into_iter().chain(floats).chain(short).map(|formats| (formats, DIMS));
        for (formats, dims) in all.chain(k.map(|formats| (formats, [512, 256]))) {
            let x = random(1, N_TOKEN * dims[0]);
            let case = Case::new(formats, dims, 3, &[(2, 1), (0, 21), (1, 0), (2, 5)]);
            let what = format!("{}, {}, {}", formats[0], formats[1], formats[2]);
            assert_close(&what, &case.run(&rig, None, &x), &case.reference(&x), EXPERT_BOUND);
        }
    }

    #[test]
    fn the_bits_of_an_expert_depend_on_the_token_alone() {
        // Breaks if a tile sums in another order, or a pair's place in its job matters.
        let Some(rig) = rig() else { return };
        let d_model = DIMS[0];
        let x = random(2, N_TOKEN * d_model);
        let formats = [affine(4, 64), affine(4, 64), affine(4, 32)];
        let case = Case::new(formats, DIMS, 2, &[(1, 70), (0, 3), (1, 20), (0, 131)]);
        let want = case.reference(&x);
        for tiles in kinds(&rig, formats[0]) {
            let first = case.run(&rig, Some(tiles[0]), &x);
            assert_close(&format!("{:?}", tiles[0]), &first, &want, EXPERT_BOUND);
            for &tile in &tiles {
                assert_same(&format!("{tile:?}"), &case.run(&rig, Some(tile), &x), &first);
            }
            for (job, i) in [(0, 69), (2, 7), (3, 130)] {
                let (expert, (row_in, row_out)) = (case.jobs[job].0, case.jobs[job].1[i]);
                let jobs = vec![(expert, vec![(row_in, 0)])];
                let alone = Case { experts: case.experts.clone(), jobs, n_out: 1, dims: DIMS };
                let want = &first[row_out as usize * d_model..][..d_model];
                let what = format!("pair {i} of job {job} alone, {:?}", tiles[0]);
                assert_same(&what, &alone.run(&rig, Some(tiles[0]), &x), want);
            }
        }
    }

    #[test]
    fn gate_and_up_together_give_what_each_gives_alone() {
        // Breaks if rows of gate and up that take turns in a tile are paired wrongly, or the bits differ.
        let Some(rig) = rig() else { return };
        let [d_model, d_ff] = DIMS;
        let x = random(3, N_TOKEN * d_model);
        let case = Case::new([affine(4, 64), affine(4, 64), affine(8, 32)], DIMS, 1, &[(0, 37)]);
        let together = case.run(&rig, None, &x);
        let uploaded = case.experts[0].each_ref().map(|w| rig.upload(w));
        let matrices = uploaded.each_ref().map(|w| w.at());
        let words = rig.words(&case.words(0, 0));
        let jobs = Jobs { buf: words.bind(), at: 0, n_job: 1, n_pair: 37, n_row_in: N_TOKEN, n_pair_max: 37 };
        let (tensor, hidden, out) = (rig.tensor(&x), rig.zeros(37 * d_ff), rig.zeros(37 * d_model));
        let tensors = [tensor.bind(), hidden.bind(), out.bind()];
        rig.context.shared_prompt(matrices.each_ref(), jobs, tensors);
        let got = rig.read(&out, 37 * d_model);
        assert_same("apart", &got, &together);
        let mut want = vec![0.0; 37 * d_model];
        let [gate, up, down] = &case.experts[0];
        Reference.experts(&[], Some(SharedJob { gate, up, down, rows: &case.jobs[0].1 }), &x, &mut want);
        assert_close("a shared expert", &got, &want, EXPERT_BOUND);
    }
}
