//! Experts of many tokens: products grouped by expert.

use crate::context::{Bind, Context};
use crate::format::read_by;
use crate::ops::prompt_tile::{EXPERTS_PROMPT, Tile};
use crate::ops::{MatrixAt, Records};

/// Which expert computes what: the word of the slab where its record starts, and its pairs, a row of the input and the
/// row of the output that gets the result.
pub(crate) type Job<'a> = (u32, &'a [(u32, u32)]);

/// What `experts_prompt.wgsl` computes.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// `hidden = silu(gate · x) ⊙ (up · x)`
    GateUp = 0,
    /// `hidden = gate · x`
    Gate = 1,
    /// `hidden = silu(hidden) ⊙ (up · x)`
    Up = 2,
    /// `out = down · hidden`
    Down = 3,
}

/// Products with one matrix of each expert, or with two.
struct Step<'a> {
    kind: Kind,
    /// As it lies in a record at word 0.
    w: MatrixAt<'a>,
    /// Planes of the second matrix, if there are two.
    up: [u32; 3],
    x: Bind<'a>,
    out: Bind<'a>,
}

impl Context {
    /// `out[row_out] = down · (silu(gate · x[row_in]) ⊙ (up · x[row_in]))` for each pair of each job. `x` and `out` are
    /// `[_, d_model]`, `hidden`, for the time between, `[n_pair, d_ff]`. A pair's bits do not depend on the others.
    pub(crate) fn experts_prompt(
        &self,
        records: &Records,
        slab: Bind<'_>,
        jobs: &[Job<'_>],
        tensors: [Bind<'_>; 3],
    ) {
        self.experts_tiled(None, records, slab, jobs, tensors);
    }

    /// The same, with a tile if it is named.
    pub(crate) fn experts_tiled(
        &self,
        tile: Option<Tile>,
        records: &Records,
        slab: Bind<'_>,
        jobs: &[Job<'_>],
        [x, hidden, out]: [Bind<'_>; 3],
    ) {
        let &Records { formats, d_model, d_ff, planes } = records;
        let matrix =
            |i: usize, rows, cols| MatrixAt { format: formats[i], rows, cols, buf: slab, planes: planes[i] };
        let [gate, up] = [0, 1].map(|i| matrix(i, d_ff, d_model));
        let down = Step { kind: Kind::Down, w: matrix(2, d_model, d_ff), up: [0; 3], x: hidden, out };
        if gate.format == up.format {
            let both = Step { kind: Kind::GateUp, up: up.planes, w: gate, x, out: hidden };
            self.steps(&[both, down], jobs, tile);
        } else {
            let [gate, up] = [(Kind::Gate, gate), (Kind::Up, up)].map(|(kind, w)| Step {
                kind,
                w,
                up: [0; 3],
                x,
                out: hidden,
            });
            self.steps(&[gate, up, down], jobs, tile);
        }
    }

    /// The same with one expert whose matrices lie apart: `[gate, up, down]`.
    pub(crate) fn shared_prompt(
        &self,
        [gate, up, down]: [&MatrixAt<'_>; 3],
        pairs: &[(u32, u32)],
        [x, hidden, out]: [Bind<'_>; 3],
    ) {
        let steps =
            [(Kind::Gate, gate, x, hidden), (Kind::Up, up, x, hidden), (Kind::Down, down, hidden, out)]
                .map(|(kind, &w, x, out)| Step { kind, w, up: [0; 3], x, out });
        self.steps(&steps, &[(0, pairs)], None);
    }

    fn steps(&self, steps: &[Step<'_>], jobs: &[Job<'_>], tile: Option<Tile>) {
        let n_pairs = jobs.iter().map(|(_, pairs)| pairs.len());
        let tiles: Vec<Tile> = steps
            .iter()
            .map(|step| {
                let fastest =
                    || self.fastest_tile(step.w.format, |tile| step.n_row_tile(tile), n_pairs.clone());
                tile.unwrap_or_else(fastest)
            })
            .collect();
        let items: Vec<Vec<[u32; 3]>> = tiles.iter().map(|tile| items(jobs, tile.tokens())).collect();
        let pairs: Vec<(u32, u32)> = jobs.iter().flat_map(|(_, pairs)| pairs.iter().copied()).collect();
        // All words of all steps at once: none must move while others are written.
        let pairs_at = self.args_room(2 * pairs.len() + 4 * items.iter().map(Vec::len).sum::<usize>());
        let mut words: Vec<u32> = pairs.iter().flat_map(|&(row_in, row_out)| [row_in, row_out]).collect();
        let mut items_at = Vec::new();
        for items in &items {
            items_at.push(pairs_at + words.len() as u32);
            words.extend(items.iter().flat_map(|&[at, first, n]| [at, pairs_at + 2 * first, n, first]));
        }
        self.args(&words);
        let n_row_in = pairs.iter().map(|&(row_in, _)| row_in as usize + 1).max().unwrap_or(0);
        for (i, step) in steps.iter().enumerate() {
            let n_row_in = if step.kind == Kind::Down { pairs.len() } else { n_row_in };
            self.step(step, tiles[i], (items_at[i], items[i].len()), n_row_in);
        }
    }

    fn step(&self, step: &Step<'_>, tile: Tile, (items_at, n_item): (u32, usize), n_row_in: usize) {
        let &Step { kind, ref w, up, x, out } = step;
        let [codes, scales, biases] = w.planes;
        let params = [items_at, w.rows as u32, w.cols as u32, codes, scales, biases, up[0], up[1], up[2]];
        let mut own = tile.constants(w.format);
        own.push(("STEP", kind as u32));
        let constants = read_by(w.format).constants(&own);
        let is_coop = matches!(tile, Tile::Coop { .. }) && 0 < n_row_in;
        let split = is_coop.then(|| self.split(x, 0, n_row_in, w.cols, w.format.row_groups(w.cols)));
        let [x, units] = split.as_ref().map_or([x, x], |split| split.binds());
        let [words, twos, fours] = w.binds();
        let buffers = [words, twos, fours, x, units, self.args_bind(), out];
        let groups = [step.n_row_tile(tile) as u32, n_item as u32, 1];
        self.run(EXPERTS_PROMPT.of(tile, w.format), &constants, &buffers, &params, groups);
    }
}

impl Step<'_> {
    /// Rows of gate and up share a tile.
    fn n_row_tile(&self, tile: Tile) -> usize {
        self.w.rows.div_ceil(if self.kind == Kind::GateUp { tile.rows() / 2 } else { tile.rows() })
    }
}

/// What workgroups compute, at most `n_token` pairs each: where the record starts, the first pair among those of all
/// jobs, and how many.
fn items(jobs: &[Job<'_>], n_token: usize) -> Vec<[u32; 3]> {
    let (mut items, mut first) = (Vec::new(), 0);
    for &(record_at, pairs) in jobs {
        for part in pairs.chunks(n_token) {
            items.push([record_at, first, part.len() as u32]);
            first += part.len() as u32;
        }
    }
    items
}

#[cfg(test)]
mod tests {
    use kernels::{Backend, ExpertJob, Reference, SharedJob};
    use quant::{Format, Matrix};

    use super::Job;
    use crate::ops::Records;
    use crate::ops::prompt_tile::Tile;
    use crate::ops::prompt_tile::tests::kinds;
    use crate::test_rig::{Rig, assert_close, assert_same, random, rig, stored};

    /// Two products in f32 against those in f64; a hidden number is a product of two sums.
    const EXPERT_BOUND: f64 = 2e-5;
    const D_MODEL: usize = 192;
    const D_FF: usize = 160;
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
    }

    impl Case {
        fn new(formats: [Format; 3], n_expert: usize, n_pairs: &[(usize, usize)]) -> Self {
            let shapes = [(D_FF, D_MODEL), (D_FF, D_MODEL), (D_MODEL, D_FF)];
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
            Self { experts, jobs, n_out }
        }

        /// `[n_out, D_MODEL]`
        fn reference(&self, x: &Vec<f32>) -> Vec<f32> {
            let job = |(e, rows): &'_ (usize, Vec<(u32, u32)>)| {
                let [gate, up, down] = &self.experts[*e];
                let mut out = vec![0.0; self.n_out * D_MODEL];
                let job = ExpertJob { gate: gate.view(), up: up.view(), down: down.view(), rows };
                Reference.experts(&[job], None, x, &mut out);
                out
            };
            let outs: Vec<_> = self.jobs.iter().map(job).collect();
            (0..self.n_out * D_MODEL).map(|i| outs.iter().map(|out| out[i]).sum()).collect()
        }

        fn run(&self, rig: &Rig, tile: Option<Tile>, x: &[f32]) -> Vec<f32> {
            let (slab, records, record_words) = slab(&self.experts);
            let slab = rig.words(&slab);
            let job = |(e, pairs): &'_ (usize, Vec<(u32, u32)>)| ((e * record_words) as u32, pairs.clone());
            let owned: Vec<_> = self.jobs.iter().map(job).collect();
            let jobs: Vec<Job<'_>> = owned.iter().map(|(at, pairs)| (*at, &pairs[..])).collect();
            let n_pair = self.n_out;
            // A row more, to see that nothing is written behind the last.
            let out = rig.tensor(&vec![-7.0; (n_pair + 1) * D_MODEL]);
            let (x, hidden) = (rig.tensor(x), rig.zeros(n_pair * D_FF));
            let tensors = [x.bind(), hidden.bind(), out.bind()];
            // Behind other arguments.
            rig.context.args(&[u32::MAX; 5]);
            rig.context.experts_tiled(tile, &records, slab.bind(), &jobs, tensors);
            let mut out = rig.read(&out, (n_pair + 1) * D_MODEL);
            assert!(out.drain(n_pair * D_MODEL..).all(|y| y == -7.0), "written behind the last row");
            out
        }
    }

    /// Records of experts one behind the other, and the words of one.
    fn slab(experts: &[[Matrix; 3]]) -> (Vec<u32>, Records, usize) {
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
        (words, Records { formats, d_model: D_MODEL, d_ff: D_FF, planes }, record_words)
    }

    #[test]
    fn experts_of_every_format_agree_with_the_reference() {
        // Breaks if a job gets another's record, pairs or hidden rows, formats are mixed up, or a job has no pairs.
        let Some(rig) = rig() else { return };
        let x = random(1, N_TOKEN * D_MODEL);
        let mixed = [affine(4, 64), affine(4, 32), affine(8, 32)];
        let all =
            [[affine(4, 32); 3], [affine(2, 32); 3], [affine(3, 32), affine(3, 32), affine(6, 32)], mixed];
        let floats = [[Format::Bf16; 3], [Format::F32, Format::F16, Format::F32], [affine(5, 32); 3]];
        for formats in all.into_iter().chain(floats) {
            let case = Case::new(formats, 3, &[(2, 1), (0, 21), (1, 0), (2, 5)]);
            let what = format!("{}, {}, {}", formats[0], formats[1], formats[2]);
            assert_close(&what, &case.run(&rig, None, &x), &case.reference(&x), EXPERT_BOUND);
        }
    }

    #[test]
    fn the_bits_of_an_expert_depend_on_the_token_alone() {
        // Breaks if a tile sums in another order, or a pair's place in its job matters.
        let Some(rig) = rig() else { return };
        let x = random(2, N_TOKEN * D_MODEL);
        let formats = [affine(4, 64), affine(4, 64), affine(4, 32)];
        let case = Case::new(formats, 2, &[(1, 70), (0, 3), (1, 20), (0, 131)]);
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
                let alone = Case { experts: case.experts.clone(), jobs, n_out: 1 };
                let want = &first[row_out as usize * D_MODEL..][..D_MODEL];
                let what = format!("pair {i} of job {job} alone, {:?}", tiles[0]);
                assert_same(&what, &alone.run(&rig, Some(tiles[0]), &x), want);
            }
        }
    }

    #[test]
    fn gate_and_up_together_give_what_each_gives_alone() {
        // Breaks if rows of gate and up that take turns in a tile are paired wrongly, or the bits differ.
        let Some(rig) = rig() else { return };
        let x = random(3, N_TOKEN * D_MODEL);
        let case = Case::new([affine(4, 64), affine(4, 64), affine(8, 32)], 1, &[(0, 37)]);
        let together = case.run(&rig, None, &x);
        let uploaded = case.experts[0].each_ref().map(|w| rig.upload(w));
        let matrices = uploaded.each_ref().map(|w| w.at());
        let (tensor, hidden, out) = (rig.tensor(&x), rig.zeros(37 * D_FF), rig.zeros(37 * D_MODEL));
        let tensors = [tensor.bind(), hidden.bind(), out.bind()];
        rig.context.shared_prompt(matrices.each_ref(), &case.jobs[0].1, tensors);
        let got = rig.read(&out, 37 * D_MODEL);
        assert_same("apart", &got, &together);
        let mut want = vec![0.0; 37 * D_MODEL];
        let [gate, up, down] = &case.experts[0];
        Reference.experts(&[], Some(SharedJob { gate, up, down, rows: &case.jobs[0].1 }), &x, &mut want);
        assert_close("a shared expert", &got, &want, EXPERT_BOUND);
    }
}
