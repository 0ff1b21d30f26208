//! Routed and shared experts.

use kernels::{Backend, Cpu, ExpertJob, Reference, SharedJob};
use quant::{Block, Format, Matrix};

use crate::common::{Random, assert_close, assert_same, cpus, is_fused, name};

/// Two products and a SiLU.
const FFN_BOUND: f64 = 2e-5;

const A4: Format = Format::Affine { bits: 4, group: 64 };
const A8: Format = Format::Affine { bits: 8, group: 32 };
const A3: Format = Format::Affine { bits: 3, group: 128 };

struct Expert {
    gate: Matrix,
    up: Matrix,
    down: Matrix,
}

impl Expert {
    fn new(random: &mut Random, formats: [Format; 3], d_model: usize, d_ff: usize) -> Self {
        let [gate, up, down] = formats;
        Self {
            gate: random.matrix(gate, d_ff, d_model),
            up: random.matrix(up, d_ff, d_model),
            down: random.matrix(down, d_model, d_ff),
        }
    }

    fn job<'a>(&'a self, rows: &'a [(u32, u32)]) -> ExpertJob<'a> {
        ExpertJob { gate: self.gate.view(), up: self.up.view(), down: self.down.view(), rows }
    }
}

#[test]
fn experts_agree_with_the_reference_and_with_themselves_in_pieces() {
    // Breaks if a pair reads or writes the wrong row, a format mix picks the wrong layout, or an expert's result
    // depends on what else is in the call.
    let block = Format::Block;
    let floats =
        [[A4; 3], [A4, A8, A3], [A8, A8, A4], [A3, A4, Format::Bf16], [Format::F16, Format::F32, A8]];
    let blocks = [
        [block(Block::Q4K), block(Block::Q4K), block(Block::Q6K)],
        [block(Block::Q4K), block(Block::Q5K), block(Block::Q8_0)],
        [Format::Mxfp4; 3],
        [block(Block::Iq4Xs), block(Block::Iq4Xs), Format::Fp8],
        [block(Block::Iq2Xs), block(Block::Q3K), Format::Nvfp4],
    ];
    let counts = [[1, 1, 1, 1, 1], [1, 0, 3, 0, 2], [17, 1, 0, 9, 40]];
    let cases = counts.map(|counts| [(floats, 384, 128, counts), (blocks, 512, 256, counts)]);
    for (formats, d_model, d_ff, counts) in cases.into_iter().flatten() {
        let mut random = Random::new(counts[0] as u64);
        let experts: Vec<Expert> =
            formats.iter().map(|&f| Expert::new(&mut random, f, d_model, d_ff)).collect();
        let n_pair: usize = counts.iter().sum();
        let x = random.normals(n_pair * d_model);
        // Each pair reads some input row; output rows are dealt from the end.
        let mut row_out = n_pair as u32;
        let rows: Vec<Vec<(u32, u32)>> = counts
            .iter()
            .map(|&n| {
                let mut deal = |_| {
                    row_out -= 1;
                    (random.below(n_pair) as u32, row_out)
                };
                (0..n).map(&mut deal).collect()
            })
            .collect();
        let jobs: Vec<ExpertJob<'_>> = experts.iter().zip(&rows).map(|(e, rows)| e.job(rows)).collect();
        check(&jobs, &x, n_pair * d_model);
    }
}

fn check(jobs: &[ExpertJob<'_>], x: &Vec<f32>, n_out: usize) {
    let mut want = vec![0.0; n_out];
    Reference.experts(jobs, None, x, &mut want);
    let mut fused: Option<Vec<f32>> = None;
    for cpu in cpus() {
        let mut got = vec![f32::NAN; n_out];
        cpu.experts(jobs, None, x, &mut got);
        assert_close(&name(&cpu), &got, &want, FFN_BOUND);
        let mut pieces = vec![f32::NAN; n_out];
        for job in jobs.iter().rev() {
            for row in job.rows {
                cpu.experts(&[ExpertJob { rows: std::slice::from_ref(row), ..*job }], None, x, &mut pieces);
            }
        }
        assert_same(&format!("pair by pair, {}", name(&cpu)), &pieces, &got);
        if is_fused(&cpu) {
            assert_same(
                &format!("another set or threads, {}", name(&cpu)),
                &got,
                fused.get_or_insert(got.clone()),
            );
        }
    }
}

#[test]
fn the_shared_expert_may_come_alone_or_with_others() {
    // Breaks if an expert of another size gets a neighbour's hidden numbers, or the rows of the shared one are lost.
    let mut random = Random::new(5);
    for (d_model, d_ff, d_ff_shared, n_token) in [(128, 64, 320, 1), (256, 192, 64, 3), (64, 64, 64, 13)] {
        let routed = Expert::new(&mut random, [A4; 3], d_model, d_ff);
        let own = Expert::new(&mut random, [A4, A4, A8], d_model, d_ff_shared);
        let x = random.normals(n_token * d_model);
        let row =
            |first: usize| (0..n_token).map(move |t| (t as u32, (first + t) as u32)).collect::<Vec<_>>();
        let (rows, shared_rows) = (row(0), row(n_token));
        let shared = || Some(SharedJob { gate: &own.gate, up: &own.up, down: &own.down, rows: &shared_rows });
        let mut want = vec![0.0; 2 * n_token * d_model];
        Reference.experts(&[routed.job(&rows)], shared(), &x, &mut want);
        for cpu in cpus() {
            let (mut got, mut apart) = (vec![f32::NAN; want.len()], vec![f32::NAN; want.len()]);
            cpu.experts(&[routed.job(&rows)], shared(), &x, &mut got);
            assert_close(&name(&cpu), &got, &want, FFN_BOUND);
            cpu.experts(&[], shared(), &x, &mut apart);
            cpu.experts(&[routed.job(&rows)], None, &x, &mut apart);
            assert_same(&format!("apart, {}", name(&cpu)), &apart, &got);
        }
    }
}

#[test]
fn silu_saturates_without_nan() {
    // Breaks if e^-x overflowing for strongly negative gates gives NaN instead of 0.
    let gates = [-1e4, -200.0, -90.0, -88.0, 0.0, 88.0, 200.0, 1e4];
    let eye = |scale: &[f32]| -> Vec<f32> {
        (0..64 * 64).map(|i| if i / 64 == i % 64 { scale[i % 64 % scale.len()] } else { 0.0 }).collect()
    };
    let expert = Expert {
        gate: crate::common::matrix(Format::F32, 64, 64, &eye(&gates)),
        up: crate::common::matrix(Format::F32, 64, 64, &eye(&[1.0])),
        down: crate::common::matrix(Format::F32, 64, 64, &eye(&[1.0])),
    };
    let (x, rows) = (vec![1.0; 64], [(0, 0)]);
    for cpu in cpus() {
        let mut got = vec![f32::NAN; 64];
        cpu.experts(&[expert.job(&rows)], None, &x, &mut got);
        for (i, (&got, gate)) in got.iter().zip(gates.into_iter().cycle()).enumerate() {
            let want = gate as f64 / (1.0 + (-gate as f64).exp());
            let error = (got as f64 - want).abs() / want.abs().max(1e-30);
            assert!(error < 1e-6, "{}: silu({gate}) at {i} is {got:e}, should be {want:e}", name(&cpu));
        }
    }
}

#[test]
#[should_panic(expected = "two results for one output row")]
fn two_results_for_one_row_are_refused() {
    // Breaks if two threads may write one row at the same time.
    let expert = Expert::new(&mut Random::new(6), [A4; 3], 64, 64);
    let rows = [(0, 0), (1, 0)];
    Cpu::new(2).experts(&[expert.job(&rows)], None, &vec![0.0; 128], &mut vec![0.0; 128]);
}
