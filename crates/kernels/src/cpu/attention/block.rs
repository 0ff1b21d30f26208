//! The inner loops of attention: some query heads of one token against one block of positions.
//!
//! Each output is a sum in an order that depends on positions and numbers only: scores over chunks of [`CHUNK`] numbers
//! of the head, one after the other; outputs over the positions of the block. So neither the number of heads that go
//! together nor the way to the rows (as stored, or converted before) changes a bit.

use half::bf16;

use super::super::simd::{Kernel, LANES, Simd, exp, exp_falling};
use super::kv::{BLOCK, Layout, N_KEY_PANEL, WIDTH};

/// Numbers of a head that are summed up at a time: a long chain of additions would round more often.
pub(super) const CHUNK: usize = 64;
/// Most heads of one step.
pub(super) const TILE_MAX: usize = 8;
/// How far ahead of the codes in use memory is asked for: the CPU's own prefetching stops at each 4 KiB page.
const PREFETCH_BYTES: usize = 4096;

/// The rows of a panel as f32.
pub(super) trait Rows: Copy {
    /// Half `half` of row `r`.
    fn half<S: Simd>(self, s: S, r: usize, half: usize) -> S::V;
    /// Asks for memory that will be read after row `r`.
    fn prefetch<S: Simd>(self, s: S, r: usize);
}

/// Keys and values of one block of one head.
pub(super) trait Block: Copy {
    type Keys: Rows;
    type Values: Rows;
    /// `[head_dim]` rows of 32 positions.
    fn keys(self, panel: usize) -> Self::Keys;
    /// `[BLOCK]` rows of 32 numbers.
    fn values(self, panel: usize) -> Self::Values;
}

/// A row of f32.
pub(super) type Row = [f32; WIDTH];

#[inline(always)]
fn half_of<const N: usize, const H: usize>(row: &[u8; N], half: usize) -> &[u8; H] {
    row[half * H..].first_chunk().expect("a row has two halves")
}

/// Rows that were converted before.
#[derive(Clone, Copy)]
pub(super) struct F32Rows<'a>(&'a [Row]);

impl Rows for F32Rows<'_> {
    #[inline(always)]
    fn half<S: Simd>(self, s: S, r: usize, half: usize) -> S::V {
        s.load(self.0[r][half * LANES..].first_chunk().expect("a row has two halves"))
    }

    #[inline(always)]
    fn prefetch<S: Simd>(self, s: S, r: usize) {
        let at = self.0[r].as_ptr().cast::<u8>().wrapping_add(PREFETCH_BYTES);
        s.prefetch(at);
        s.prefetch(at.wrapping_add(64));
    }
}

/// Rows of f16, or of bf16.
#[derive(Clone, Copy)]
pub(super) struct HalfRows<'a, const IS_BF16: bool>(&'a [[u8; 2 * WIDTH]]);

impl<const IS_BF16: bool> Rows for HalfRows<'_, IS_BF16> {
    #[inline(always)]
    fn half<S: Simd>(self, s: S, r: usize, half: usize) -> S::V {
        let from = half_of(&self.0[r], half);
        if IS_BF16 { s.load_bf16(from) } else { s.load_f16(from) }
    }

    #[inline(always)]
    fn prefetch<S: Simd>(self, s: S, r: usize) {
        s.prefetch(self.0[r].as_ptr().wrapping_add(PREFETCH_BYTES));
    }
}

/// Rows of 8-bit codes: with a scale for each column and 32 rows (keys), or for each row (values).
#[derive(Clone, Copy)]
pub(super) struct Q8Rows<'a, const IS_KEYS: bool> {
    codes: &'a [[u8; WIDTH]],
    /// bf16
    scales: &'a [u8],
}

impl<const IS_KEYS: bool> Rows for Q8Rows<'_, IS_KEYS> {
    #[inline(always)]
    fn half<S: Simd>(self, s: S, r: usize, half: usize) -> S::V {
        let codes = s.load_i8(half_of(&self.codes[r], half));
        let scale = match IS_KEYS {
            true => s.load_bf16(half_of(&self.scales.as_chunks::<{ 2 * WIDTH }>().0[r / WIDTH], half)),
            false => s.splat(bf16::from_le_bytes(self.scales.as_chunks::<2>().0[r]).to_f32()),
        };
        s.mul(codes, scale)
    }

    #[inline(always)]
    fn prefetch<S: Simd>(self, s: S, r: usize) {
        if r.is_multiple_of(2) {
            s.prefetch(self.codes[r].as_ptr().wrapping_add(PREFETCH_BYTES));
        }
    }
}

/// A block as it is stored.
#[derive(Clone, Copy)]
pub(super) struct Stored<'a> {
    pub(super) layout: Layout,
    pub(super) bytes: &'a [u8],
}

impl<'a> Stored<'a> {
    #[inline(always)]
    fn key_panel(self, panel: usize) -> (&'a [u8], &'a [u8]) {
        let n = self.layout.key_panel_bytes();
        self.bytes[panel * n..(panel + 1) * n].split_at(self.layout.head_dim * self.layout.row_bytes())
    }

    #[inline(always)]
    fn value_panel(self, panel: usize) -> (&'a [u8], &'a [u8]) {
        let (keys, n) = (N_KEY_PANEL * self.layout.key_panel_bytes(), self.layout.value_panel_bytes());
        self.bytes[keys + panel * n..][..n].split_at(BLOCK * self.layout.row_bytes())
    }
}

/// f32 as stored.
#[derive(Clone, Copy)]
pub(super) struct F32Block<'a>(pub(super) Stored<'a>);

/// Stored f32 rows where they lie.
#[inline(always)]
fn f32_rows(bytes: &[u8]) -> F32Rows<'_> {
    // SAFETY: any bits are an array of f32.
    let (before, rows, after) = unsafe { bytes.align_to::<Row>() };
    assert!(before.is_empty() && after.is_empty(), "pages are aligned");
    F32Rows(rows)
}

impl<'a> Block for F32Block<'a> {
    type Keys = F32Rows<'a>;
    type Values = F32Rows<'a>;

    #[inline(always)]
    fn keys(self, panel: usize) -> F32Rows<'a> {
        f32_rows(self.0.key_panel(panel).0)
    }

    #[inline(always)]
    fn values(self, panel: usize) -> F32Rows<'a> {
        f32_rows(self.0.value_panel(panel).0)
    }
}

/// f16 or bf16 as stored.
#[derive(Clone, Copy)]
pub(super) struct HalfBlock<'a, const IS_BF16: bool>(pub(super) Stored<'a>);

impl<'a, const IS_BF16: bool> Block for HalfBlock<'a, IS_BF16> {
    type Keys = HalfRows<'a, IS_BF16>;
    type Values = HalfRows<'a, IS_BF16>;

    #[inline(always)]
    fn keys(self, panel: usize) -> Self::Keys {
        HalfRows(self.0.key_panel(panel).0.as_chunks().0)
    }

    #[inline(always)]
    fn values(self, panel: usize) -> Self::Values {
        HalfRows(self.0.value_panel(panel).0.as_chunks().0)
    }
}

/// q8 as stored.
#[derive(Clone, Copy)]
pub(super) struct Q8Block<'a>(pub(super) Stored<'a>);

impl<'a> Block for Q8Block<'a> {
    type Keys = Q8Rows<'a, true>;
    type Values = Q8Rows<'a, false>;

    #[inline(always)]
    fn keys(self, panel: usize) -> Self::Keys {
        let (codes, scales) = self.0.key_panel(panel);
        Q8Rows { codes: codes.as_chunks().0, scales }
    }

    #[inline(always)]
    fn values(self, panel: usize) -> Self::Values {
        let (codes, scales) = self.0.value_panel(panel);
        Q8Rows { codes: codes.as_chunks().0, scales }
    }
}

/// A block that was converted to f32 before.
#[derive(Clone, Copy)]
pub(super) struct Converted<'a> {
    pub(super) head_dim: usize,
    /// Rows of the panels of keys, then of those of values.
    pub(super) rows: &'a [Row],
}

/// Rows of a converted block.
pub(super) fn n_converted(layout: Layout) -> usize {
    N_KEY_PANEL * layout.head_dim + layout.n_group() * BLOCK
}

impl<'a> Block for Converted<'a> {
    type Keys = F32Rows<'a>;
    type Values = F32Rows<'a>;

    #[inline(always)]
    fn keys(self, panel: usize) -> F32Rows<'a> {
        F32Rows(&self.rows[panel * self.head_dim..][..self.head_dim])
    }

    #[inline(always)]
    fn values(self, panel: usize) -> F32Rows<'a> {
        F32Rows(&self.rows[N_KEY_PANEL * self.head_dim + panel * BLOCK..][..BLOCK])
    }
}

/// Calls with the block's own type.
macro_rules! with_stored {
    ($stored:expr, $block:ident => $e:expr) => {{
        let stored = $stored;
        match stored.layout.format {
            KvFormat::F16 => {
                let $block = HalfBlock::<false>(stored);
                $e
            }
            KvFormat::Bf16 => {
                let $block = HalfBlock::<true>(stored);
                $e
            }
            KvFormat::F32 => {
                let $block = F32Block(stored);
                $e
            }
            KvFormat::Q8 => {
                let $block = Q8Block(stored);
                $e
            }
        }
    }};
}
pub(super) use with_stored;

/// Converts the first `n_pos` positions of a block.
pub(super) struct Convert<'a, B> {
    pub(super) block: B,
    pub(super) head_dim: usize,
    pub(super) n_pos: usize,
    /// As in [`Converted`].
    pub(super) rows: &'a mut [Row],
}

impl<B: Block> Kernel for Convert<'_, B> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let (keys, values) = self.rows.split_at_mut(N_KEY_PANEL * self.head_dim);
        for (panel, rows) in keys.chunks_exact_mut(self.head_dim).enumerate() {
            if panel * WIDTH < self.n_pos {
                convert_rows(s, self.block.keys(panel), rows);
            }
        }
        for (panel, rows) in values.chunks_exact_mut(BLOCK).enumerate() {
            convert_rows(s, self.block.values(panel), &mut rows[..self.n_pos]);
        }
    }
}

#[inline(always)]
fn convert_rows<S: Simd, R: Rows>(s: S, from: R, to: &mut [Row]) {
    for (r, row) in to.iter_mut().enumerate() {
        from.prefetch(s, r);
        for (half, lanes) in row.as_chunks_mut::<LANES>().0.iter_mut().enumerate() {
            s.store(from.half(s, r, half), lanes);
        }
    }
}

/// Largest score and sum of the weights relative to it, of what a head has seen.
#[derive(Clone, Copy, Debug)]
pub(super) struct Softmax {
    pub(super) max: f32,
    pub(super) total: f32,
}

impl Softmax {
    /// Nothing seen.
    pub(super) const NONE: Softmax = Softmax { max: f32::NEG_INFINITY, total: 0.0 };
}

/// Room for the weights of `N` heads of one token, and the factors by which all before a block weighs less.
#[derive(Clone, Copy)]
pub(super) struct Weights {
    p: [[f32; BLOCK]; TILE_MAX],
    fade: [f32; LANES],
}

impl Weights {
    pub(super) const NONE: Weights = Weights { p: [[0.0; BLOCK]; TILE_MAX], fade: [0.0; LANES] };
}

/// `N` heads of each of some tokens see a block. A panel is used by all tokens before the next one, so that it comes
/// from the first-level cache.
pub(super) struct Step<'a, B, const N: usize> {
    pub(super) block: B,
    pub(super) head_dim: usize,
    /// Positions of the block that the first token sees; each further token sees one more, up to all.
    pub(super) n_pos: usize,
    /// Heads of a token in what follows, of which `N` are ours: rows are `[n_token][n_head]`.
    pub(super) n_head: usize,
    /// Queries, scaled, from our first head on: `[head_dim / CHUNK][N][CHUNK]` for each token.
    pub(super) q: &'a [f32],
    /// From our first head on.
    pub(super) softmax: &'a mut [Softmax],
    /// Weighted sums of values relative to the largest score, from our first head on.
    pub(super) out: &'a mut [f32],
    /// Scratch, one for each token.
    pub(super) weights: &'a mut [Weights],
}

impl<B: Block, const N: usize> Kernel for Step<'_, B, N> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        // Known when compiled: no code is made for tiles that the set never gets.
        assert!(N <= S::TILE, "{N} heads");
        let Step { block, head_dim, n_head, .. } = self;
        let (n_packed, n_padded) = (head_dim.next_multiple_of(CHUNK), head_dim.next_multiple_of(WIDTH));
        for panel in 0..N_KEY_PANEL {
            let keys = block.keys(panel);
            for (t, weights) in self.weights.iter_mut().enumerate() {
                if panel * WIDTH < self.n_pos + t {
                    let q = &self.q[t * n_head * n_packed..][..N * n_packed];
                    let p = weights.p.first_chunk_mut().expect("N ≤ TILE_MAX");
                    score::<S, B::Keys, N>(s, keys, head_dim, q, p, panel);
                }
            }
        }
        for (t, weights) in self.weights.iter_mut().enumerate() {
            let p: &mut [[f32; BLOCK]; N] = weights.p.first_chunk_mut().expect("N ≤ TILE_MAX");
            // Positions behind the end weigh e^-∞.
            for p in p.iter_mut() {
                p[BLOCK.min(self.n_pos + t)..].fill(f32::NEG_INFINITY);
            }
            weights.fade = softmax_block(s, p, &mut self.softmax[t * n_head..][..N]);
        }
        for panel in 0..n_padded / WIDTH {
            let values = block.values(panel);
            for (t, weights) in self.weights.iter().enumerate() {
                let p = weights.p.first_chunk().expect("N ≤ TILE_MAX");
                let out = &mut self.out[t * n_head * n_padded..][..N * n_padded];
                let (n_pos, fade, at) = (BLOCK.min(self.n_pos + t), &weights.fade, panel * WIDTH);
                // Known when compiled: registers for two vectors a head, or for one.
                if S::TILE == 8 {
                    add_values::<S, B::Values, N, 2>(s, values, n_pos, p, fade, out, at);
                } else {
                    add_values::<S, B::Values, N, 1>(s, values, n_pos, p, fade, out, at);
                    add_values::<S, B::Values, N, 1>(s, values, n_pos, p, fade, out, at + LANES);
                }
            }
        }
    }
}

/// `p[h][32·panel + ..] = q[h] · keys`, chunk by chunk.
#[inline(always)]
fn score<S: Simd, R: Rows, const N: usize>(
    s: S,
    keys: R,
    head_dim: usize,
    q: &[f32],
    p: &mut [[f32; BLOCK]; N],
    panel: usize,
) {
    for h in 0..N {
        p[h][panel * WIDTH..][..WIDTH].fill(0.0);
    }
    for (c, q) in q.as_chunks::<CHUNK>().0.as_chunks::<N>().0.iter().enumerate() {
        let rows = c * CHUNK..head_dim.min((c + 1) * CHUNK);
        // Known when compiled, as above.
        if S::TILE == 8 {
            add_scores::<S, R, N, 2>(s, keys, rows, q, p, panel, 0);
        } else {
            add_scores::<S, R, N, 1>(s, keys, rows.clone(), q, p, panel, 0);
            add_scores::<S, R, N, 1>(s, keys, rows, q, p, panel, 1);
        }
    }
}

/// `p[h][32·panel + ..] += Σ_r q[h][r] · keys[rows.start + r]` for `P` halves of the row from `half` on.
#[inline(always)]
fn add_scores<S: Simd, R: Rows, const N: usize, const P: usize>(
    s: S,
    keys: R,
    rows: std::ops::Range<usize>,
    q: &[[f32; CHUNK]; N],
    p: &mut [[f32; BLOCK]; N],
    panel: usize,
    half: usize,
) {
    let sums = sum_rows::<S, R, N, P, CHUNK>(s, keys, rows, q, [[s.splat(0.0); P]; N], half);
    for h in 0..N {
        let p = &mut p[h].as_chunks_mut::<LANES>().0[panel * 2 + half..][..P];
        for (p, sum) in p.iter_mut().zip(sums[h]) {
            s.store(s.add(s.load(p), sum), p);
        }
    }
}

/// `out[h][at..] = fade[h] · out[h][at..] + Σ_i p[h][i] · values[i]` for `P` vectors.
#[inline(always)]
fn add_values<S: Simd, R: Rows, const N: usize, const P: usize>(
    s: S,
    values: R,
    n_pos: usize,
    p: &[[f32; BLOCK]; N],
    fade: &[f32; LANES],
    out: &mut [f32],
    at: usize,
) {
    let stride = out.len() / N;
    let mut sums = [[s.splat(0.0); P]; N];
    for h in 0..N {
        let out = out[h * stride + at..].as_chunks::<LANES>().0;
        for i in 0..P {
            sums[h][i] = s.mul(s.load(&out[i]), s.splat(fade[h]));
        }
    }
    let sums = sum_rows::<S, R, N, P, BLOCK>(s, values, 0..n_pos, p, sums, at / LANES % 2);
    for h in 0..N {
        let out = out[h * stride + at..].as_chunks_mut::<LANES>().0;
        for i in 0..P {
            s.store(sums[h][i], &mut out[i]);
        }
    }
}

/// `sums[h] += Σ_r a[h][r] · x[rows.start + r]`: all that attention multiplies.
#[inline(always)]
fn sum_rows<S: Simd, R: Rows, const N: usize, const P: usize, const W: usize>(
    s: S,
    x: R,
    rows: std::ops::Range<usize>,
    a: &[[f32; W]; N],
    mut sums: [[S::V; P]; N],
    half: usize,
) -> [[S::V; P]; N] {
    for r in 0..rows.len().min(W) {
        x.prefetch(s, rows.start + r);
        let mut row = [s.splat(0.0); P];
        for i in 0..P {
            row[i] = x.half(s, rows.start + r, half + i);
        }
        for h in 0..N {
            let a = s.splat(a[h][r]);
            for i in 0..P {
                sums[h][i] = s.fma(a, row[i], sums[h][i]);
            }
        }
    }
    sums
}

/// Turns scores into weights relative to the new maximum and adds them to the totals. The factors by which all before
/// now weighs less.
#[inline(always)]
fn softmax_block<S: Simd, const N: usize>(
    s: S,
    p: &mut [[f32; BLOCK]; N],
    softmax: &mut [Softmax],
) -> [f32; LANES] {
    let softmax: &mut [Softmax; N] = softmax.try_into().expect("a softmax for each head");
    let mut fade = [0.0; LANES];
    for h in 0..N {
        let p = p[h].as_chunks::<LANES>().0;
        let mut max = s.load(&p[0]);
        for p in &p[1..] {
            max = s.max(max, s.load(p));
        }
        let before = softmax[h].max;
        softmax[h].max = s.largest(max).max(before);
        fade[h] = before - softmax[h].max;
    }
    s.store(exp(s, s.load(&fade)), &mut fade);
    for h in 0..N {
        let max = s.splat(softmax[h].max);
        let mut sum = s.splat(0.0);
        for p in p[h].as_chunks_mut::<LANES>().0 {
            let e = exp_falling(s, s.sub(s.load(p), max));
            s.store(e, p);
            sum = s.add(sum, e);
        }
        softmax[h].total = softmax[h].total * fade[h] + s.sum(sum);
    }
    fade
}

/// Adds what a head saw elsewhere.
pub(super) struct Merge<'a> {
    pub(super) softmax: &'a mut Softmax,
    /// A multiple of 32 numbers.
    pub(super) out: &'a mut [f32],
    pub(super) other: (Softmax, &'a [f32]),
}

impl Kernel for Merge<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let (other, from) = self.other;
        let max = self.softmax.max.max(other.max);
        let mut fade = [0.0; LANES];
        (fade[0], fade[1]) = (self.softmax.max - max, other.max - max);
        s.store(exp(s, s.load(&fade)), &mut fade);
        *self.softmax = Softmax { max, total: self.softmax.total * fade[0] + other.total * fade[1] };
        let (mine, theirs) = (s.splat(fade[0]), s.splat(fade[1]));
        for (out, from) in self.out.as_chunks_mut::<LANES>().0.iter_mut().zip(from.as_chunks::<LANES>().0) {
            s.store(s.fma(s.load(from), theirs, s.mul(s.load(out), mine)), out);
        }
    }
}
