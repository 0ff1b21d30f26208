//! Full attention.

use kernels::{AttentionShape, Backend, Cpu, KvFormat, Reference, Rope, Rows};

use crate::common::{Random, assert_close, assert_same, cpus, cpus_2, is_fused, name, some};

/// Norms and rotations of f32 numbers.
const PREPARE_BOUND: f64 = 2e-6;
/// A softmax over up to thousands of positions of the same stored numbers.
const ATTENTION_BOUND: f64 = 1e-5;
/// A softmax whose scores are hundreds: an f32 score of 300 is off by 2e-5, and so is e to its power.
const PEAKED_BOUND: f64 = 1e-4;

const SHAPES: [AttentionShape; 6] = [
    AttentionShape { n_head: 1, n_head_kv: 1, head_dim: 16, gated: false },
    AttentionShape { n_head: 6, n_head_kv: 3, head_dim: 20, gated: true },
    AttentionShape { n_head: 8, n_head_kv: 2, head_dim: 64, gated: true },
    AttentionShape { n_head: 14, n_head_kv: 2, head_dim: 40, gated: false },
    AttentionShape { n_head: 16, n_head_kv: 1, head_dim: 128, gated: false },
    AttentionShape { n_head: 32, n_head_kv: 2, head_dim: 256, gated: true },
];

/// How far a stored key may lie from the reference's: numbers that differ in the last bits are rounded apart.
fn stored_bound(format: KvFormat) -> f64 {
    match format {
        KvFormat::F32 => PREPARE_BOUND,
        KvFormat::F16 => 1.0 / 1024.0,
        KvFormat::Bf16 => 1.0 / 128.0,
        // One step of 127 of the largest of 32, which is about 3 times the root mean square.
        KvFormat::Q8 => 0.05,
    }
}

/// How far attention over stored numbers may lie from attention over the exact ones: values are off by half a step,
/// and so are scores, summed over the head.
fn format_bound(format: KvFormat) -> f64 {
    match format {
        KvFormat::F32 => ATTENTION_BOUND,
        KvFormat::F16 => 2e-3,
        KvFormat::Bf16 => 2e-2,
        KvFormat::Q8 => 6e-2,
    }
}

fn rope(n_rot: usize) -> Rope {
    Rope {
        inv_freq: (0..n_rot / 2).map(|j| 1e7f64.powf(-2.0 * j as f64 / n_rot as f64)).collect(),
        scale: 1.0,
    }
}

/// Keys and values as they are stored, `[n_pos][n_head_kv][key | value]`.
fn stored(shape: AttentionShape, format: KvFormat, keys: &[f32], values: &[f32]) -> Vec<u8> {
    let (d, n_row) = (shape.head_dim, format.row_bytes(shape.head_dim));
    let mut bytes = vec![0; keys.len() / d * 2 * n_row];
    let rows = keys.chunks_exact(d).zip(values.chunks_exact(d));
    for ((key, value), bytes) in rows.zip(bytes.chunks_exact_mut(2 * n_row)) {
        let (k, v) = bytes.split_at_mut(n_row);
        format.encode_row(key, k);
        format.encode_row(value, v);
    }
    bytes
}

/// A cache with these positions.
fn cache<B: Backend>(backend: &B, shape: AttentionShape, format: KvFormat, bytes: &[u8]) -> B::Kv {
    let mut kv = backend.kv(shape, format, 8192);
    backend.write_kv(&mut kv, 0, bytes);
    kv
}

/// Keys and values of positions `pos .. pos + n`, decoded, one after the other.
fn rows<B: Backend>(
    backend: &B,
    shape: AttentionShape,
    format: KvFormat,
    kv: &B::Kv,
    pos: usize,
    n: usize,
) -> [Vec<f32>; 2] {
    let n_row = format.row_bytes(shape.head_dim);
    let mut bytes = vec![0; n * format.position_bytes(shape)];
    backend.read_kv(kv, pos, &mut bytes);
    [0, 1].map(|part| {
        let decode = |bytes: &[u8]| {
            let mut row = vec![0.0; shape.head_dim];
            format.decode_row(bytes, &mut row);
            row
        };
        bytes.chunks_exact(n_row).skip(part).step_by(2).flat_map(decode).collect()
    })
}

#[test]
fn preparing_agrees_with_the_reference() {
    // Breaks if heads and gates are confused, pairs are rotated wrongly, values are touched, or a token lands on
    // another's position: at the border of a panel, a block or a page.
    for (shape, format) in SHAPES.into_iter().flat_map(|shape| KvFormat::ALL.map(|format| (shape, format))) {
        for (pos, n_token, n_rot) in [(0, 1, shape.head_dim), (5, 3, 8), (220, 90, shape.head_dim / 4 * 2)] {
            let mut random = Random::new(pos as u64);
            let (head, kv_dim) = (shape.head_dim, shape.n_head_kv * shape.head_dim);
            let norms = (&random.normals(head), &random.normals(head), 1e-6);
            let q = random.normals(n_token * shape.n_head * head * (1 + shape.gated as usize));
            let (k, v) = (random.normals(n_token * kv_dim), random.normals(n_token * kv_dim));
            let before = random.normals(pos * kv_dim);
            let before = stored(shape, format, &before, &before);
            let rope = Rope { scale: 1.25, ..rope(n_rot) };
            let (mut want_q, mut want_kv) = (q.clone(), cache(&Reference, shape, format, &before));
            let qkv = (&mut want_q, &mut k.clone(), &v);
            Reference.attention_prepare(shape, &rope, norms, qkv, &mut want_kv, Rows::at(pos, n_token));
            let want = rows(&Reference, shape, format, &want_kv, pos, n_token);
            for cpu in cpus() {
                let what = format!("{format}, {shape:?} at {pos}+{n_token}, {n_rot} rotated, {}", name(&cpu));
                let (mut q, mut k) = (q.clone(), k.clone());
                let mut kv = cache(&cpu, shape, format, &before);
                // The first token, then the others, which start at another row.
                for (first, n) in [(0, 1), (1, n_token - 1)] {
                    let rows = Rows { first, pos: pos + first, n_token: n };
                    cpu.attention_prepare(shape, &rope, norms, (&mut q, &mut k, &v), &mut kv, rows);
                }
                let got = rows(&cpu, shape, format, &kv, pos, n_token);
                assert_close(&format!("q, {what}"), &q, &want_q, PREPARE_BOUND);
                assert_close(&format!("k, {what}"), &got[0], &want[0], stored_bound(format));
                assert_same(&format!("v, {what}"), &got[1], &want[1]);
                let mut kept = vec![0; before.len()];
                cpu.read_kv(&kv, 0, &mut kept);
                assert!(kept == before, "positions before, {what}");
            }
        }
    }
}

#[test]
fn rotation_is_exact_at_the_last_position() {
    // Breaks if angles are computed in f32: at 262143 they are off by up to 0.008.
    let shape = AttentionShape { n_head: 1, n_head_kv: 1, head_dim: 64, gated: false };
    let (pos, rope, format) = (262_143, rope(64), KvFormat::F32);
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
    let before = vec![0; pos * format.position_bytes(shape)];
    for cpu in cpus_2() {
        let (mut q, mut kv) = (u.clone(), cache(&cpu, shape, format, &before));
        let norms = (&ones, &ones, 0.0);
        cpu.attention_prepare(shape, &rope, norms, (&mut q, &mut u.clone(), &u), &mut kv, Rows::at(pos, 1));
        assert_close(&format!("q, {}", name(&cpu)), &q, &want, PREPARE_BOUND);
        let [k, _] = rows(&cpu, shape, format, &kv, pos, 1);
        assert_close(&format!("k, {}", name(&cpu)), &k, &want, PREPARE_BOUND);
    }
}

/// Queries, keys and values of one test.
struct Case {
    shape: AttentionShape,
    pos: usize,
    n_token: usize,
    q: Vec<f32>,
    keys: Vec<f32>,
    values: Vec<f32>,
}

impl Case {
    /// Random numbers, queries times `magnitude`.
    fn new(shape: AttentionShape, pos: usize, n_token: usize, magnitude: f32) -> Self {
        let mut random = Random::new(pos as u64);
        let kv_dim = shape.n_head_kv * shape.head_dim;
        let q_dim = shape.n_head * shape.head_dim * (1 + shape.gated as usize);
        let q = random.normals(n_token * q_dim).iter().map(|x| x * magnitude).collect();
        let (keys, values) =
            (random.normals((pos + n_token) * kv_dim), random.normals((pos + n_token) * kv_dim));
        Self { shape, pos, n_token, q, keys, values }
    }

    /// Positions behind the last one hold what must not be seen.
    fn stored(&self, format: KvFormat) -> Vec<u8> {
        let unseen = vec![f32::NAN; 3 * self.shape.n_head_kv * self.shape.head_dim];
        let (keys, values) = ([&self.keys[..], &unseen].concat(), [&self.values[..], &unseen].concat());
        stored(self.shape, format, &keys, &values)
    }

    fn run<B: Backend<Tensor = Vec<f32>>>(&self, backend: &B, kv: &B::Kv) -> Vec<f32> {
        self.run_some(backend, kv, 0, self.n_token)
    }

    /// The outputs of `n` tokens from number `first` on, which stay in their rows; others are not touched.
    fn run_some<B: Backend<Tensor = Vec<f32>>>(
        &self,
        backend: &B,
        kv: &B::Kv,
        first: usize,
        n: usize,
    ) -> Vec<f32> {
        let width = self.shape.n_head * self.shape.head_dim;
        let mut out = vec![f32::NAN; self.n_token * width];
        let rows = Rows { first, pos: self.pos + first, n_token: n };
        backend.attention(self.shape, &self.q, kv, rows, &mut out);
        let is_outside = |(i, _): &(usize, &f32)| !rows.floats(width).contains(i);
        assert!(out.iter().enumerate().filter(is_outside).all(|(_, x)| x.is_nan()), "{rows:?}");
        out[rows.floats(width)].to_vec()
    }

    /// All backends within the bound; all fused sets, numbers of threads and cuts of the batch with the same bits.
    fn check(&self, cpus: &[Cpu], format: KvFormat, bound: f64) {
        let &Case { shape, pos, n_token, .. } = self;
        let bytes = self.stored(format);
        let want = self.run(&Reference, &cache(&Reference, shape, format, &bytes));
        let width = shape.n_head * shape.head_dim;
        let mut fused: Option<Vec<f32>> = None;
        for cpu in cpus {
            let what = format!("{format}, {shape:?} at {pos}+{n_token}, {}", name(cpu));
            let kv = cache(cpu, shape, format, &bytes);
            let got = self.run(cpu, &kv);
            assert_close(&what, &got, &want, bound);
            for (first, n) in [(0, 1), (n_token / 2, 1), (n_token - 1, 1), (n_token / 3, 2), (n_token / 4, 5)]
            {
                let n = n.min(n_token - first);
                let part = self.run_some(cpu, &kv, first, n);
                let whole = &got[first * width..(first + n) * width];
                assert_same(&format!("tokens {first}+{n} alone, {what}"), &part, whole);
            }
            if is_fused(cpu) {
                assert_same(
                    &format!("another set or threads, {what}"),
                    &got,
                    fused.get_or_insert(got.clone()),
                );
            }
        }
    }
}

#[test]
fn attention_agrees_with_the_reference_at_any_position() {
    // Breaks if a query sees too much or too little, reads another head's cache, or depends on its batch, the threads
    // or the set; at the borders of panels (32), blocks (64), pages (256) and splits (1024).
    let near = [(0, 1), (0, 5), (31, 2), (62, 4), (63, 1), (127, 3), (200, 70)];
    let far = [(255, 1), (256, 3), (1023, 1), (1024, 1), (1020, 9), (2047, 2), (2040, 70)];
    let shapes = SHAPES.into_iter().flat_map(|shape| near.map(|place| (shape, place)));
    let shapes = shapes.chain(far.map(|place| (SHAPES[2], place))).chain([(SHAPES[3], (5000, 2))]);
    let cases = shapes.flat_map(|case| KvFormat::ALL.map(|format| (case, format)));
    let cpus = cpus();
    for ((shape, (pos, n_token)), format) in some(cases) {
        Case::new(shape, pos, n_token, 1.0).check(&cpus, format, ATTENTION_BOUND);
    }
}

#[test]
fn extremes_keep_their_sums() {
    // Breaks if a softmax overflows, loses small weights, or divides by zero.
    let (shape, cpus) = (SHAPES[2], cpus());
    for format in KvFormat::ALL {
        // Equal scores: the mean of all values.
        Case::new(shape, 1100, 2, 0.0).check(&cpus, format, ATTENTION_BOUND);
        // Scores of ±hundreds: one position takes all, exponents underflow.
        Case::new(shape, 300, 3, 100.0).check(&cpus, format, PEAKED_BOUND);
        let mut zeros = Case::new(shape, 100, 3, 1.0);
        (zeros.keys, zeros.values) = (vec![0.0; zeros.keys.len()], vec![0.0; zeros.values.len()]);
        zeros.check(&cpus, format, 0.0);
        let mut small = Case::new(shape, 100, 3, 1.0);
        small.values.iter_mut().for_each(|v| *v *= 1e-39);
        small.keys.iter_mut().for_each(|k| *k *= 1e-39);
        small.check(&cpus, format, if format == KvFormat::F16 { 0.0 } else { 2e-5 });
        // Too large for f16, which saturates: scores and outputs stay finite.
        let mut large = Case::new(shape, 100, 3, 1e-6);
        large.values.iter_mut().for_each(|v| *v *= 1e5);
        large.keys.iter_mut().for_each(|k| *k *= 1e5);
        large.check(&cpus, format, ATTENTION_BOUND);
    }
}

#[test]
fn formats_lose_no_more_than_their_precision() {
    // Breaks if a format rounds more than it must.
    for format in KvFormat::ALL {
        for shape in [SHAPES[2], SHAPES[5]] {
            let case = Case::new(shape, 300, 2, 1.0);
            let exact =
                case.run(&Reference, &cache(&Reference, shape, KvFormat::F32, &case.stored(KvFormat::F32)));
            let cpu = &cpus_2()[0];
            let got = case.run(cpu, &cache(cpu, shape, format, &case.stored(format)));
            assert_close(&format!("{format}, {shape:?}"), &got, &exact, format_bound(format));
        }
    }
}

#[test]
fn the_last_position_of_the_longest_context_is_seen() {
    // Breaks if a place is computed in too few bits, a page's table ends early, or the splits are merged wrongly.
    let shape = AttentionShape { n_head: 4, n_head_kv: 2, head_dim: 16, gated: false };
    for format in some(KvFormat::ALL) {
        let mut case = Case::new(shape, 262_143, 1, 0.5);
        // Half of the weight is on the last position.
        let last = case.values.len() - 32;
        case.values[last..].fill(1000.0);
        case.check(&cpus_2(), format, ATTENTION_BOUND);
    }
}

#[test]
fn rewritten_positions_forget_what_was_there() {
    // Breaks if a code or a scale of a forgotten branch stays, or is seen behind the end.
    let (shape, format_and_pos) = (SHAPES[1], KvFormat::ALL.map(|format| (format, [30, 255, 300])));
    for (format, starts) in format_and_pos {
        for start in starts {
            let (old, new) = (Case::new(shape, 700, 1, 1.0), Case::new(shape, start + 40, 2, 1.0));
            let bytes = new.stored(format);
            let n_position = format.position_bytes(shape);
            for cpu in cpus_2() {
                let fresh = new.run(&cpu, &cache(&cpu, shape, format, &bytes));
                let mut kv = cache(&cpu, shape, format, &old.stored(format));
                cpu.write_kv(&mut kv, 0, &bytes[..start * n_position]);
                cpu.write_kv(&mut kv, start, &bytes[start * n_position..(start + 42) * n_position]);
                let what = format!("{format} from {start}, {}", name(&cpu));
                assert_same(&what, &new.run(&cpu, &kv), &fresh);
            }
        }
    }
}

#[test]
fn what_is_read_can_be_written_again() {
    // Breaks if a saved session is restored with other bits.
    for (shape, format) in SHAPES.into_iter().flat_map(|shape| KvFormat::ALL.map(|format| (shape, format))) {
        let case = Case::new(shape, 298, 3, 1.0);
        let bytes = stored(shape, format, &case.keys, &case.values);
        let n_position = format.position_bytes(shape);
        for cpu in cpus_2() {
            let kv = cache(&cpu, shape, format, &bytes);
            for (pos, n) in [(0, 301), (33, 1), (250, 20)] {
                let mut back = vec![0xa5; n * n_position];
                cpu.read_kv(&kv, pos, &mut back);
                let same = back == bytes[pos * n_position..][..back.len()];
                assert!(same, "{format}, {shape:?}, positions {pos}+{n}, {}", name(&cpu));
            }
        }
    }
}
