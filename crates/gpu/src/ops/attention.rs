//! Full attention: norms and rotation into the cache, and the softmax over the cache.
//!
//! Bits of a token depend on its own position only: see `wgsl/attention_fold.wgsl`. Few rows of queries share out the
//! blocks of the context over the workgroups and merge what these found; many rows walk over the blocks themselves.

use kernels::{AttentionShape, KvFormat, Rope, Rows};

use super::kv::{Kv, row_bytes};
use crate::AdapterKind;
use crate::context::{Bind, Buf, Context};
use crate::kernel::Access::{Read, Write};
use crate::kernel::Kernel;

static PREPARE: Kernel = Kernel {
    name: "attention_prepare",
    wgsl: &[
        include_str!("../wgsl/reduce.wgsl"),
        include_str!("../wgsl/kv_encode.wgsl"),
        include_str!("../wgsl/attention_prepare.wgsl"),
    ],
    access: &[Read, Write, Write, Read, Read, Read, Write, Write],
};

static BLOCKS: Kernel = Kernel {
    name: "attention_step",
    wgsl: &[
        include_str!("../wgsl/attention_fold.wgsl"),
        include_str!("../wgsl/attention_cache.wgsl"),
        include_str!("../wgsl/attention_step.wgsl"),
    ],
    access: &[Read, Read, Read, Write],
};

static ROWS: Kernel = Kernel {
    name: "attention_rows",
    wgsl: &[
        include_str!("../wgsl/activations.wgsl"),
        include_str!("../wgsl/attention_fold.wgsl"),
        include_str!("../wgsl/attention_cache.wgsl"),
        include_str!("../wgsl/attention_block.wgsl"),
        include_str!("../wgsl/attention_rows.wgsl"),
    ],
    access: &[Read, Read, Read, Write],
};

static MERGE: Kernel = Kernel {
    name: "attention_merge",
    wgsl: &[
        include_str!("../wgsl/activations.wgsl"),
        include_str!("../wgsl/attention_fold.wgsl"),
        include_str!("../wgsl/attention_merge.wgsl"),
    ],
    access: &[Read, Write, Write],
};

/// Most dims of a head.
pub(crate) const HEAD_DIM_MAX: usize = 1024;
/// Most dims of a head of which a thread keeps its sums.
const HEAD_DIM_ROWS_MAX: usize = 256;
/// Threads of a workgroup that prepares a head.
const N_THREAD_PREPARE: usize = 256;
/// Positions of a block, and blocks of a split: as in `attention_fold.wgsl`.
const BLOCK: usize = 64;
const SPLIT_BLOCKS: usize = 16;
/// Query rows of a workgroup that walks.
const N_ROW_WALK: usize = 64;
/// Query rows of a vector, of which a workgroup of a block has one, or two where more than so many workgroups would
/// read the same keys and values again.
const N_ROW_QUAD: usize = 4;
const N_GROUP_QUAD: usize = 256;
/// From so many workgroups on, walking keeps a device busy.
const N_WALK_MIN: usize = 48;
/// Mesa's CPU emulation silently leaves all loops of a kernel after about so many iterations in total.
const N_ITERATION_EMULATED: usize = 65_535;
/// Dims of a merging workgroup.
const N_DIM_MERGE: usize = 32;
/// Bytes of what blocks found that is not merged yet.
const PARTIAL_BYTES: usize = 32 << 20;

/// Queries, keys and values of some tokens.
#[derive(Clone, Copy)]
pub(crate) struct Heads<'a> {
    /// `[n_token, n_head, head_dim (·2 if gated)]`
    pub(crate) q: Bind<'a>,
    /// `[n_token, n_head_kv, head_dim]`
    pub(crate) k: Bind<'a>,
    /// `[n_token, n_head_kv, head_dim]`
    pub(crate) v: Bind<'a>,
}

/// Weights of the norms of queries and keys, `[head_dim]`.
#[derive(Clone, Copy)]
pub(crate) struct HeadNorms<'a> {
    pub(crate) q: Bind<'a>,
    pub(crate) k: Bind<'a>,
    pub(crate) eps: f32,
}

/// How the blocks of a context are gone through.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    /// A workgroup a block, then a merge. At most so many floats of a scratch.
    Blocks(usize),
    /// A workgroup walks over all blocks.
    Rows,
}

/// Bits of the cosines, then of the sines, of the rotations at `n_token` positions, `[n_token, 2, n_rot / 2]`. Angles
/// in f64: at position 262143 an f32 angle is off by 0.008.
pub(crate) fn angles(rope: &Rope, pos: usize, n_token: usize) -> Vec<u32> {
    let n_pair = rope.inv_freq.len();
    let mut bits = Vec::with_capacity(2 * n_token * n_pair);
    for pos in pos..pos + n_token {
        let start = bits.len();
        bits.resize(start + 2 * n_pair, 0);
        for (j, inv_freq) in rope.inv_freq.iter().enumerate() {
            let (sin, cos) = (pos as f64 * inv_freq).sin_cos();
            bits[start + j] = (cos as f32 * rope.scale).to_bits();
            bits[start + n_pair + j] = (sin as f32 * rope.scale).to_bits();
        }
    }
    bits
}

fn format_number(format: KvFormat) -> u32 {
    match format {
        KvFormat::F16 => 0,
        KvFormat::Bf16 => 1,
        KvFormat::F32 => 2,
        KvFormat::Q8 => 3,
    }
}

fn q_stride(shape: AttentionShape) -> usize {
    if shape.gated { 2 * shape.head_dim } else { shape.head_dim }
}

impl Context {
    /// Room for what blocks found: see [`Self::attention`].
    pub(crate) fn attention_scratch(&self) -> Buf {
        self.buffer(PARTIAL_BYTES as u64)
    }

    /// Norms and rotates queries and keys in place and appends keys and values at the tokens' positions, `angles` being
    /// those of [`angles`] for these: see [`kernels::Backend::attention_prepare`].
    pub(crate) fn attention_prepare(
        &self,
        heads: &Heads<'_>,
        norms: &HeadNorms<'_>,
        angles: &[u32],
        kv: &mut Kv,
        Rows { first, pos, n_token }: Rows,
    ) {
        if n_token == 0 {
            return;
        }
        self.grow_kv(kv, pos + n_token);
        let shape = kv.shape;
        let n_pair = angles.len() / 2 / n_token;
        assert!(shape.head_dim <= HEAD_DIM_MAX, "heads of {} dims", shape.head_dim);
        assert!(2 * n_pair <= shape.head_dim, "{} rotated dims of {}", 2 * n_pair, shape.head_dim);
        let (code_bytes, row_bytes) = row_bytes(kv.format, shape.head_dim);
        let angles_at = self.args(angles);
        let params = [
            shape.n_head as u32,
            shape.n_head_kv as u32,
            shape.head_dim as u32,
            q_stride(shape) as u32,
            n_pair as u32,
            angles_at,
            first as u32,
            pos as u32,
            (code_bytes / 4) as u32,
            (row_bytes / 4) as u32,
            norms.eps.to_bits(),
        ];
        let Heads { q, k, v } = *heads;
        let buffers = [self.args_bind(), q, k, v, norms.q, norms.k, kv.keys.bind(), kv.values.bind()];
        let groups = [(shape.n_head + 2 * shape.n_head_kv) as u32, n_token as u32, 1];
        let n_own = shape.head_dim.div_ceil(N_THREAD_PREPARE);
        let constants = [("FORMAT", format_number(kv.format)), ("N_OWN", n_own as u32)];
        self.run(&PREPARE, &constants, &buffers, &params, groups);
    }

    /// Attention of prepared queries `q` over the cache, then the gate: see [`kernels::Backend::attention`].
    /// `scratch` is [`Self::attention_scratch`].
    pub(crate) fn attention(&self, (q, out): (Bind<'_>, Bind<'_>), kv: &Kv, scratch: &Buf, rows: Rows) {
        let AttentionShape { n_head, n_head_kv, .. } = kv.shape;
        let Rows { pos, n_token, .. } = rows;
        let n_walk = (n_token * n_head / n_head_kv).div_ceil(N_ROW_WALK) * n_head_kv;
        let way = if self.can_walk(kv.shape, pos + n_token) && n_walk >= N_WALK_MIN {
            Way::Rows
        } else {
            Way::Blocks(PARTIAL_BYTES / 4)
        };
        self.attend((q, out), kv, (scratch, way), rows);
    }

    /// Whether a workgroup can walk over so many positions.
    fn can_walk(&self, shape: AttentionShape, n_pos: usize) -> bool {
        let n_iteration = n_pos.div_ceil(BLOCK) * (3 * shape.head_dim.next_multiple_of(BLOCK) + 200);
        let is_ended = self.report.kind == AdapterKind::Emulated && n_iteration > N_ITERATION_EMULATED;
        shape.head_dim <= HEAD_DIM_ROWS_MAX && !is_ended
    }

    fn attend(
        &self,
        (q, out): (Bind<'_>, Bind<'_>),
        kv: &Kv,
        (scratch, way): (&Buf, Way),
        Rows { first, pos, n_token }: Rows,
    ) {
        let attend = Attend { context: self, kv, q, out, scratch, first, pos, n_token };
        match way {
            _ if n_token == 0 => {}
            Way::Rows => attend.rows(),
            Way::Blocks(n_float) => {
                let n_max = attend.tokens_max(n_float);
                for t in (0..n_token).step_by(n_max) {
                    let n_token = n_max.min(n_token - t);
                    Attend { first: first + t, pos: pos + t, n_token, ..attend }.blocks(n_float);
                }
            }
        }
    }
}

/// A call, or some tokens of it.
#[derive(Clone, Copy)]
struct Attend<'a> {
    context: &'a Context,
    kv: &'a Kv,
    q: Bind<'a>,
    out: Bind<'a>,
    scratch: &'a Buf,
    /// The first token's row.
    first: usize,
    pos: usize,
    n_token: usize,
}

impl Attend<'_> {
    fn n_rep(&self) -> usize {
        self.kv.shape.n_head / self.kv.shape.n_head_kv
    }

    fn first_head(&self) -> u32 {
        (self.first * self.kv.shape.n_head) as u32
    }

    /// Tokens whose splits, one each, fit a scratch of `n_float`.
    fn tokens_max(&self, n_float: usize) -> usize {
        let row_floats = SPLIT_BLOCKS * (self.kv.shape.head_dim + 2) + 4;
        let n_token = n_float / (row_floats * self.kv.shape.n_head);
        assert!(n_token > 0, "a scratch of {n_float} floats for {:?}", self.kv.shape);
        n_token
    }

    /// Of `wgsl/attention_cache.wgsl`.
    fn params(&self, first_block: usize, stats_at: usize) -> [u32; 15] {
        let shape = self.kv.shape;
        let (code_bytes, row_bytes) = row_bytes(self.kv.format, shape.head_dim);
        [
            (self.n_token * self.n_rep()) as u32,
            self.n_rep() as u32,
            shape.n_head as u32,
            shape.n_head_kv as u32,
            shape.head_dim as u32,
            q_stride(shape) as u32,
            self.pos as u32,
            (self.pos + self.n_token) as u32,
            (code_bytes / 16) as u32,
            (row_bytes / 16) as u32,
            (1.0 / (shape.head_dim as f32).sqrt()).to_bits(),
            u32::from(shape.gated),
            first_block as u32,
            stats_at as u32,
            self.first_head(),
        ]
    }

    fn format(&self) -> (&'static str, u32) {
        ("FORMAT", format_number(self.kv.format))
    }

    fn rows(&self) {
        let n_tile = (self.n_token * self.n_rep()).div_ceil(N_ROW_WALK);
        let buffers = [self.q, self.kv.keys.bind(), self.kv.values.bind(), self.out];
        let groups = [n_tile as u32, self.kv.shape.n_head_kv as u32, 1];
        self.context.run(&ROWS, &[self.format()], &buffers, &self.params(0, 0), groups);
    }

    /// With a scratch of `n_float`.
    fn blocks(&self, n_float: usize) {
        let AttentionShape { n_head, n_head_kv, head_dim, gated } = self.kv.shape;
        let n_row = self.n_token * n_head;
        // What a block takes, and the rows' largest scores and sums: read in one place, written to another.
        let (block_floats, carry_floats) = (n_row * (head_dim + 2), 2 * n_row);
        let n_block_max = (n_float - 2 * carry_floats) / (SPLIT_BLOCKS * block_floats) * SPLIT_BLOCKS;
        let n_block = (self.pos + self.n_token).div_ceil(BLOCK);
        let stats_at = n_block_max * n_row * head_dim;
        let carry_at = stats_at + n_block_max * 2 * n_row;

        let n_quad = (self.n_token * self.n_rep()).div_ceil(N_ROW_QUAD);
        let n_quad_tile = if n_quad == 1 || n_block * n_head_kv * n_quad <= N_GROUP_QUAD { 1 } else { 2 };
        let n_tile = n_quad.div_ceil(n_quad_tile);
        let constants = [self.format(), ("N_QUAD", n_quad_tile as u32)];
        let buffers = [self.q, self.kv.keys.bind(), self.kv.values.bind(), self.scratch.bind()];
        for (piece, first) in (0..n_block).step_by(n_block_max).enumerate() {
            let n = n_block_max.min(n_block - first);
            let groups = [n as u32, (n_head_kv * n_tile) as u32, 1];
            self.context.run(&BLOCKS, &constants, &buffers, &self.params(first, stats_at), groups);
            let carries = [carry_at, carry_at + carry_floats];
            let params = [
                n_row as u32,
                head_dim as u32,
                q_stride(self.kv.shape) as u32,
                u32::from(gated),
                n as u32,
                stats_at as u32,
                carries[piece % 2] as u32,
                carries[(piece + 1) % 2] as u32,
                u32::from(first == 0),
                u32::from(first + n == n_block),
                self.first_head(),
            ];
            let groups = [n_row as u32, head_dim.div_ceil(N_DIM_MERGE) as u32, 1];
            self.context.run(&MERGE, &[], &[self.q, self.scratch.bind(), self.out], &params, groups);
        }
    }
}

/// All kernels of this file.
#[cfg(test)]
pub(crate) fn kernels() -> Vec<&'static Kernel> {
    vec![&PREPARE, &BLOCKS, &ROWS, &MERGE]
}

#[cfg(test)]
mod tests {
    use kernels::{Backend, Reference};

    use super::*;
    use crate::test_rig::{Rig, assert_close, assert_same, random, rig};

    /// Norms and rotations of f32 numbers.
    const PREPARE_BOUND: f64 = 2e-6;
    /// A softmax over up to thousands of positions of the same stored numbers.
    const ATTENTION_BOUND: f64 = 1e-5;
    /// A softmax whose scores are hundreds: an f32 score of 300 is off by 2e-5, and so is e to its power.
    const PEAKED_BOUND: f64 = 1e-4;
    /// A scratch of which a context needs several.
    const SMALL: usize = 1 << 16;

    const fn shape(n_head: usize, n_head_kv: usize, head_dim: usize, gated: bool) -> AttentionShape {
        AttentionShape { n_head, n_head_kv, head_dim, gated }
    }

    const SHAPES: [AttentionShape; 7] = [
        shape(1, 1, 16, false),
        shape(6, 3, 20, true),
        shape(8, 2, 64, true),
        shape(14, 2, 40, false),
        shape(16, 1, 128, false),
        shape(32, 2, 256, true),
        shape(3, 3, 37, true),
    ];

    /// How far a stored key may lie from the reference's: numbers that differ in the last bits are rounded apart.
    fn stored_bound(format: KvFormat) -> f64 {
        match format {
            KvFormat::F32 => PREPARE_BOUND,
            KvFormat::F16 => 1.0 / 1024.0,
            KvFormat::Bf16 => 1.0 / 128.0,
            KvFormat::Q8 => 0.05,
        }
    }

    fn rope(n_rot: usize) -> Rope {
        let inv_freq = |j: usize| 1e7f64.powf(-2.0 * j as f64 / n_rot as f64);
        Rope { inv_freq: (0..n_rot / 2).map(inv_freq).collect(), scale: 1.25 }
    }

    /// Keys and values as the trait stores them.
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

    fn reference_kv(shape: AttentionShape, format: KvFormat, bytes: &[u8]) -> <Reference as Backend>::Kv {
        let mut kv = Reference.kv(shape, format, 8192);
        Reference.write_kv(&mut kv, 0, bytes);
        kv
    }

    fn cache(rig: &Rig, shape: AttentionShape, format: KvFormat, bytes: &[u8]) -> Kv {
        let mut kv = rig.context.kv(shape, format, 262_144);
        rig.context.write_kv(&mut kv, 0, bytes);
        kv
    }

    /// Keys (`part` 0) or values, decoded.
    fn decoded(shape: AttentionShape, format: KvFormat, bytes: &[u8], part: usize) -> Vec<f32> {
        let decode = |bytes: &[u8]| {
            let mut row = vec![0.0; shape.head_dim];
            format.decode_row(bytes, &mut row);
            row
        };
        let rows = bytes.chunks_exact(format.row_bytes(shape.head_dim)).skip(part).step_by(2);
        rows.flat_map(decode).collect()
    }

    #[test]
    fn preparing_agrees_with_the_reference() {
        // Breaks if heads and gates are confused, pairs are rotated wrongly, values are touched, a token lands on
        // another's position, or what was stored is lost when the buffers grow.
        let Some(rig) = rig() else { return };
        for (shape, format) in
            SHAPES.into_iter().flat_map(|shape| KvFormat::ALL.map(|format| (shape, format)))
        {
            let whole = shape.head_dim / 2 * 2;
            for (pos, n_token, n_rot) in [(0, 1, whole), (5, 3, 8), (220, 90, shape.head_dim / 4 * 2)] {
                let what = format!("{format}, {shape:?} at {pos}+{n_token}, {n_rot} rotated");
                let (d, kv_dim) = (shape.head_dim, shape.n_head_kv * shape.head_dim);
                let (q_weight, k_weight) = (random(1, d), random(2, d));
                let q = random(3, n_token * shape.n_head * q_stride(shape));
                let (k, v) = (random(4, n_token * kv_dim), random(5, n_token * kv_dim));
                let before = random(6, pos * kv_dim);
                let before = stored(shape, format, &before, &before);
                let (rope, n_position) = (rope(n_rot), format.position_bytes(shape));

                let (mut want_q, mut want_k) = (q.clone(), k.clone());
                let mut want_kv = reference_kv(shape, format, &before);
                let (norms, qkv) = ((&q_weight, &k_weight, 1e-6), (&mut want_q, &mut want_k, &v));
                Reference.attention_prepare(shape, &rope, norms, qkv, &mut want_kv, Rows::at(pos, n_token));
                let mut want = vec![0; n_token * n_position];
                Reference.read_kv(&want_kv, pos, &mut want);

                let mut kv = cache(&rig, shape, format, &before);
                let [q_buf, k_buf, v_buf] = [&q, &k, &v].map(|x| rig.tensor(x));
                let (q_weight, k_weight) = (rig.tensor(&q_weight), rig.tensor(&k_weight));
                let heads = Heads { q: q_buf.bind(), k: k_buf.bind(), v: v_buf.bind() };
                let norms = HeadNorms { q: q_weight.bind(), k: k_weight.bind(), eps: 1e-6 };
                // The first token, then the others, which start at another row.
                for (first, n_token) in [(0, 1), (1, n_token - 1)] {
                    let rows = Rows { first, pos: pos + first, n_token };
                    let angles = angles(&rope, rows.pos, n_token);
                    rig.context.attention_prepare(&heads, &norms, &angles, &mut kv, rows);
                }
                assert_close(&format!("q, {what}"), &rig.read(&q_buf, q.len()), &want_q, PREPARE_BOUND);
                let got_k = rig.read(&k_buf, k.len());
                assert_close(&format!("k, {what}"), &got_k, &want_k, PREPARE_BOUND);
                let (mut got, mut kept) = (vec![0; n_token * n_position], vec![0; pos * n_position]);
                rig.context.read_kv(&kv, pos, &mut got);
                rig.context.read_kv(&kv, 0, &mut kept);
                let part = |bytes: &[u8]| decoded(shape, format, bytes, 0);
                assert_close(&format!("stored k, {what}"), &part(&got), &part(&want), stored_bound(format));
                assert!(got == stored(shape, format, &got_k, &v), "bits of the same numbers, {what}");
                assert!(kept == before, "positions before, {what}");
            }
        }
    }

    #[test]
    fn every_number_is_stored_as_the_host_stores_it() {
        // Breaks if a conversion rounds or saturates in another way, so that a session goes on with other bits
        // elsewhere.
        let Some(rig) = rig() else { return };
        let shape = shape(1, 1, 64, false);
        // Values are stored as they come.
        let mut v = Vec::new();
        for exponent in -40..40 {
            let near = random(exponent as u64, 64).into_iter().map(|x| x * 2f32.powi(exponent));
            v.extend(near);
        }
        let ties = (0..64).map(|i| f32::from_bits(0x3f80_0000 + i * 0x0800));
        v.extend(ties);
        v.extend((0..64).map(|i| (i as f32 + 0.5) * 2f32.powi(-24)));
        v.extend((0..64).map(|i| if i < 32 { 127.0 - i as f32 * 2.5 } else { 65_500.0 + i as f32 }));
        v.extend((0..64).map(|i| [0.0, -0.0, 1e30, -1e30][i % 4]));
        v.extend((0..64).map(|i| if i == 5 { f32::INFINITY } else { 1.0 }));
        v.extend([0.0; 64]);
        let n_token = v.len() / 64;
        let k = vec![0.0; v.len()];
        for format in KvFormat::ALL {
            let mut kv = rig.context.kv(shape, format, n_token);
            let [q, k_buf, v_buf, ones] = [&k, &k, &v, &vec![1.0; 64]].map(|x| rig.tensor(x));
            let heads = Heads { q: q.bind(), k: k_buf.bind(), v: v_buf.bind() };
            let norms = HeadNorms { q: ones.bind(), k: ones.bind(), eps: 1e-6 };
            rig.context.attention_prepare(&heads, &norms, &[], &mut kv, Rows::at(0, n_token));
            let mut got = vec![0; n_token * format.position_bytes(shape)];
            rig.context.read_kv(&kv, 0, &mut got);
            let want = stored(shape, format, &k, &v);
            let n_row = format.row_bytes(64);
            for (t, (got, want)) in got.chunks(2 * n_row).zip(want.chunks(2 * n_row)).enumerate() {
                assert!(got == want, "{format}, {:?}: {got:x?}, should be {want:x?}", &v[t * 64..][..64]);
            }
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
            let kv_dim = shape.n_head_kv * shape.head_dim;
            let mut q = random(pos as u64, n_token * shape.n_head * q_stride(shape));
            q.iter_mut().for_each(|x| *x *= magnitude);
            let n = (pos + n_token) * kv_dim;
            Self { shape, pos, n_token, q, keys: random(7, n), values: random(8, n) }
        }

        /// Positions behind the last one hold what must not be seen.
        fn stored(&self, format: KvFormat) -> Vec<u8> {
            let unseen = vec![f32::NAN; 3 * self.shape.n_head_kv * self.shape.head_dim];
            let (keys, values) = ([&self.keys[..], &unseen].concat(), [&self.values[..], &unseen].concat());
            stored(self.shape, format, &keys, &values)
        }

        fn run(&self, rig: &Rig, kv: &Kv, scratch: &Buf, way: Way, (first, n): (usize, usize)) -> Vec<f32> {
            let width = self.shape.n_head * self.shape.head_dim;
            let (q, out) = (rig.tensor(&self.q), rig.zeros(self.n_token * width));
            let rows = Rows { first, pos: self.pos + first, n_token: n };
            rig.context.attend((q.bind(), out.bind()), kv, (scratch, way), rows);
            rig.read(&out, self.n_token * width)[rows.floats(width)].to_vec()
        }

        /// Within the bound; the same bits for all ways to go through the context, and all cuts of the batch.
        fn check(&self, rig: &Rig, format: KvFormat, bound: f64) {
            let &Case { shape, pos, n_token, .. } = self;
            let what = format!("{format}, {shape:?} at {pos}+{n_token}");
            let bytes = self.stored(format);
            let width = shape.n_head * shape.head_dim;
            let mut want = vec![f32::NAN; n_token * width];
            let reference = reference_kv(shape, format, &bytes);
            Reference.attention(shape, &self.q, &reference, Rows::at(pos, n_token), &mut want);
            let (kv, scratch) = (cache(rig, shape, format, &bytes), rig.context.attention_scratch());
            let mut ways =
                vec![Way::Blocks(PARTIAL_BYTES / 4), Way::Blocks(SMALL.max(20 * width * SPLIT_BLOCKS))];
            if rig.context.can_walk(shape, pos + n_token) {
                ways.push(Way::Rows);
            }
            let whole = self.run(rig, &kv, &scratch, ways[0], (0, n_token));
            assert_close(&what, &whole, &want, bound);
            for &way in &ways[1..] {
                let blocks = self.run(rig, &kv, &scratch, way, (0, n_token));
                assert_same(&format!("{way:?}, {what}"), &blocks, &whole);
            }
            for (first, way) in [(0, ways[0]), (n_token / 2, ways[ways.len() - 1]), (n_token - 1, ways[0])] {
                let part = self.run(rig, &kv, &scratch, way, (first, 1));
                let whole = &whole[first * width..(first + 1) * width];
                assert_same(&format!("token {first} alone, {way:?}, {what}"), &part, whole);
            }
        }
    }

    #[test]
    fn attention_agrees_with_the_reference_at_any_position() {
        // Breaks if a query sees too much or too little, reads another head's cache, or depends on its batch; at the
        // borders of blocks (64) and splits (1024).
        let Some(rig) = rig() else { return };
        let near = [(0, 1), (0, 5), (62, 4), (63, 1), (150, 37)];
        let far = [(1023, 1), (1024, 1), (1020, 9), (2047, 2), (2040, 20)];
        let formats = SHAPES.into_iter().flat_map(|shape| KvFormat::ALL.map(|f| (shape, (126, 4), f)));
        let places = SHAPES.into_iter().flat_map(|shape| near.map(|place| (shape, place, KvFormat::F16)));
        let cases = formats.chain(places).chain(far.map(|place| (SHAPES[2], place, KvFormat::F16)));
        for (shape, (pos, n_token), format) in rig.some(cases) {
            Case::new(shape, pos, n_token, 1.0).check(&rig, format, ATTENTION_BOUND);
        }
        Case::new(SHAPES[3], 5000, 2, 1.0).check(&rig, KvFormat::Q8, ATTENTION_BOUND);
    }

    #[test]
    fn heads_too_wide_to_walk_are_right() {
        // Breaks if the way that such heads take depends on their width, or pieces of a batch are mixed up.
        let Some(rig) = rig() else { return };
        let case = Case::new(shape(4, 2, 300, true), 70, 60, 1.0);
        let format = KvFormat::F16;
        let bytes = case.stored(format);
        let mut want = vec![f32::NAN; 60 * 1200];
        let reference = reference_kv(case.shape, format, &bytes);
        Reference.attention(case.shape, &case.q, &reference, Rows::at(70, 60), &mut want);
        let (kv, scratch) = (cache(&rig, case.shape, format, &bytes), rig.context.attention_scratch());
        let (q, out) = (rig.tensor(&case.q), rig.zeros(want.len()));
        rig.context.attention((q.bind(), out.bind()), &kv, &scratch, Rows::at(70, 60));
        assert_close("whole", &rig.read(&out, want.len()), &want, ATTENTION_BOUND);
        let small = case.run(&rig, &kv, &scratch, Way::Blocks(1 << 18), (0, 60));
        assert_same("in pieces", &small, &rig.read(&out, want.len()));
    }

    #[test]
    fn extremes_keep_their_sums() {
        // Breaks if a softmax overflows, loses small weights, or divides by zero.
        let Some(rig) = rig() else { return };
        let shape = SHAPES[2];
        for format in KvFormat::ALL {
            // Equal scores: the mean of all values.
            Case::new(shape, 1100, 2, 0.0).check(&rig, format, ATTENTION_BOUND);
            // Scores of ±hundreds: one position takes all, exponents underflow.
            Case::new(shape, 300, 3, 100.0).check(&rig, format, PEAKED_BOUND);
            let mut zeros = Case::new(shape, 100, 3, 1.0);
            (zeros.keys, zeros.values) = (vec![0.0; zeros.keys.len()], vec![0.0; zeros.values.len()]);
            zeros.check(&rig, format, 0.0);
            // Too large for f16, which saturates: scores and outputs stay finite.
            let mut large = Case::new(shape, 100, 3, 1e-6);
            large.values.iter_mut().for_each(|v| *v *= 1e5);
            large.keys.iter_mut().for_each(|k| *k *= 1e5);
            large.check(&rig, format, ATTENTION_BOUND);
        }
    }

    #[test]
    fn the_last_position_of_a_long_context_is_seen() {
        // Breaks if the splits are merged wrongly, or a place is computed in too few bits.
        let Some(rig) = rig() else { return };
        for pos in [10_600, 40_000] {
            let mut case = Case::new(shape(4, 2, 16, false), pos, 1, 0.5);
            // Much of the weight is on the last position.
            let last = case.values.len() - 32;
            case.values[last..].fill(1000.0);
            case.check(&rig, KvFormat::Bf16, ATTENTION_BOUND);
        }
    }

    #[test]
    fn rewritten_positions_forget_what_was_there() {
        // Breaks if a code or a scale of a forgotten branch stays, or is seen behind the end.
        let Some(rig) = rig() else { return };
        let (shape, scratch) = (SHAPES[1], rig.context.attention_scratch());
        for (format, start) in KvFormat::ALL.into_iter().flat_map(|f| [30, 255, 300].map(|start| (f, start)))
        {
            let (old, new) = (Case::new(shape, 700, 1, 1.0), Case::new(shape, start + 40, 2, 1.0));
            let (bytes, n_position) = (new.stored(format), format.position_bytes(shape));
            let fresh = new.run(&rig, &cache(&rig, shape, format, &bytes), &scratch, Way::Rows, (0, 2));
            let mut kv = cache(&rig, shape, format, &old.stored(format));
            rig.context.write_kv(&mut kv, 0, &bytes[..start * n_position]);
            rig.context.write_kv(&mut kv, start, &bytes[start * n_position..(start + 42) * n_position]);
            let again = new.run(&rig, &kv, &scratch, Way::Rows, (0, 2));
            assert_same(&format!("{format} from {start}"), &again, &fresh);
        }
    }

    #[test]
    fn more_positions_than_a_kernel_sees_are_refused() {
        // Breaks if a context that the device cannot hold is written behind a buffer's end.
        let Some(rig) = rig() else { return };
        let shape = shape(2, 2, 256, false);
        let n_max = rig.context.kv_positions_max(shape, KvFormat::F32);
        let mut kv = rig.context.kv(shape, KvFormat::F32, 1000);
        let grow = std::panic::AssertUnwindSafe(|| rig.context.grow_kv(&mut kv, 1001));
        assert!(std::panic::catch_unwind(grow).is_err(), "1001 of 1000");
        assert!(rig.context.failure().is_none());
        rig.context.grow_kv(&mut rig.context.kv(shape, KvFormat::F32, usize::MAX), n_max + 1);
        let why = rig.context.failure().unwrap().to_string();
        assert!(why.contains(&format!("its kernels see at most {n_max}")), "{why}");
    }
}
