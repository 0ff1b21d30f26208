//! Keys and values of one layer as attention reads them: one sequential stream for each key/value head.
//!
//! A page has the positions of one head in blocks of [`BLOCK`], each block its keys, then its values. Both are made of
//! *panels*, rows of [`WIDTH`] codes:
//!
//! ```text
//! keys     BLOCK / 32 panels of 32 positions:  row d has number d of each of the positions
//! values   head_dim / 32 panels of 32 numbers: row i has the numbers of position i
//! ```
//!
//! So scores of 32 positions are the sum of the rows of a panel, each times one number of the query; and 32 numbers of
//! the output are the sum of the rows of a panel, each times the weight of its position: the same inner loop, without
//! sums across lanes. Scales of q8 follow the codes of their panel: for keys `[head_dim / 32][32 positions]`, for
//! values `[BLOCK]`.

use std::ops::Range;

use quant::Buffer;

use super::super::pool::Pool;
use super::super::share::Share;
use crate::kv::{GROUP_BYTES_MAX, KV_GROUP, SCALE_BYTES};
use crate::{AttentionShape, KV_PAGE, KvFormat};

/// Positions of one step of the softmax.
pub(super) const BLOCK: usize = 128;
/// Codes of a row of a panel.
pub(super) const WIDTH: usize = KV_GROUP;
/// Panels of a block's keys.
pub(super) const N_KEY_PANEL: usize = BLOCK / WIDTH;
/// From so many tokens on, heads are written in parallel.
const N_TOKEN_PARALLEL: usize = 8;

/// Keys and values of one layer on the CPU. See [`crate::Backend::Kv`].
pub struct CpuKv {
    layout: Layout,
    n_head_kv: usize,
    /// `[n_page][n_head_kv]`
    pages: Vec<Buffer>,
}

/// Writes positions of a head into its page.
type Write<'a> = dyn Fn(usize, &mut [u8], Range<usize>) + Sync + 'a;

/// Where the numbers of one head lie.
#[derive(Clone, Copy)]
pub(super) struct Layout {
    pub(super) format: KvFormat,
    pub(super) head_dim: usize,
}

/// Keys or values.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Part {
    Key,
    Value,
}

impl CpuKv {
    /// Empty. The table of pages has its final size, so that a new page moves nothing.
    pub(in super::super) fn new(shape: AttentionShape, format: KvFormat, n_ctx: usize) -> Self {
        let pages = Vec::with_capacity(n_ctx.div_ceil(KV_PAGE) * shape.n_head_kv);
        Self { layout: Layout { format, head_dim: shape.head_dim }, n_head_kv: shape.n_head_kv, pages }
    }

    pub(super) fn layout(&self) -> Layout {
        self.layout
    }

    /// Bytes of the block of a head that begins at position `pos`.
    pub(super) fn block(&self, head_kv: usize, pos: usize) -> &[u8] {
        let n = self.layout.block_bytes();
        &self.pages[pos / KV_PAGE * self.n_head_kv + head_kv][pos % KV_PAGE / BLOCK * n..][..n]
    }

    /// Stores rows of `k` and `v`, `[pos.len()][n_head_kv][head_dim]`.
    pub(super) fn append(&mut self, pool: &Pool, k: &[f32], v: &[f32], pos: Range<usize>) {
        let (layout, n_head_kv) = (self.layout, self.n_head_kv);
        let head_dim = layout.head_dim;
        self.for_pages(pool, pos.clone(), &|head, page, range| {
            for p in range {
                let row = ((p - pos.start) * n_head_kv + head) * head_dim;
                for (part, x) in [(Part::Key, k), (Part::Value, v)] {
                    for (g, x) in x[row..row + head_dim].chunks(WIDTH).enumerate() {
                        let mut codes = [0; GROUP_BYTES_MAX];
                        let scale = layout.format.encode_group(x, &mut codes);
                        let codes = &codes[..x.len() * layout.format.code_bytes()];
                        layout.put(page, p % KV_PAGE, part, g, codes, scale);
                    }
                }
            }
        });
    }

    /// See [`crate::Backend::write_kv`].
    pub(in super::super) fn write(&mut self, pool: &Pool, pos: usize, bytes: &[u8]) {
        let (layout, n_row) = (self.layout, self.layout.format.row_bytes(self.layout.head_dim));
        let n_position = 2 * self.n_head_kv * n_row;
        let n_code = layout.head_dim * layout.format.code_bytes();
        let n_pos = bytes.len() / n_position;
        self.for_pages(pool, pos..pos + n_pos, &|head, page, range| {
            for p in range {
                let rows = &bytes[(p - pos) * n_position + 2 * head * n_row..][..2 * n_row];
                for (part, row) in [Part::Key, Part::Value].into_iter().zip(rows.chunks_exact(n_row)) {
                    let (codes, scales) = row.split_at(n_code);
                    for (g, codes) in codes.chunks(WIDTH * layout.format.code_bytes()).enumerate() {
                        let scale = scales.as_chunks().0.get(g).copied().unwrap_or_default();
                        layout.put(page, p % KV_PAGE, part, g, codes, scale);
                    }
                }
            }
        });
    }

    /// See [`crate::Backend::read_kv`].
    pub(in super::super) fn read(&self, pos: usize, out: &mut [u8]) {
        let (layout, n_row) = (self.layout, self.layout.format.row_bytes(self.layout.head_dim));
        let n_code = layout.head_dim * layout.format.code_bytes();
        for (i, row) in out.chunks_exact_mut(n_row).enumerate() {
            let (p, head) = (pos + i / (2 * self.n_head_kv), i / 2 % self.n_head_kv);
            let part = if i % 2 == 0 { Part::Key } else { Part::Value };
            let page = &self.pages[p / KV_PAGE * self.n_head_kv + head];
            let (codes, scales) = row.split_at_mut(n_code);
            for (g, codes) in codes.chunks_mut(WIDTH * layout.format.code_bytes()).enumerate() {
                let scale = layout.get(page, p % KV_PAGE, part, g, codes);
                if let Some(to) = scales.as_chunks_mut().0.get_mut(g) {
                    *to = scale;
                }
            }
        }
    }

    /// Takes the pages up to the end of `pos`, and calls `write` with each head's page and its positions in `pos`.
    fn for_pages(&mut self, pool: &Pool, pos: Range<usize>, write: &Write<'_>) {
        let n_head_kv = self.n_head_kv;
        assert!(
            pos.start <= self.pages.len() / n_head_kv * KV_PAGE,
            "there are positions up to {}",
            pos.start
        );
        while self.pages.len() < pos.end.div_ceil(KV_PAGE) * n_head_kv {
            self.pages.push(Buffer::zeroed(self.layout.page_bytes()).expect("memory for keys and values"));
        }
        let pages = pos.start / KV_PAGE..pos.end.div_ceil(KV_PAGE);
        // One token is not worth waking a thread for.
        let n_head = if pos.len() < N_TOKEN_PARALLEL { n_head_kv } else { 1 };
        let shared = Share::new(&mut self.pages);
        pool.run(pages.len() * n_head_kv / n_head, &|job| {
            let first = pages.start * n_head_kv + job * n_head;
            // SAFETY: each job has its own pages.
            for (i, page) in unsafe { shared.part(first, n_head) }.iter_mut().enumerate() {
                let start = (first + i) / n_head_kv * KV_PAGE;
                let range = pos.start.max(start)..pos.end.min(start + KV_PAGE);
                write((first + i) % n_head_kv, page, range);
            }
        });
    }
}

impl Layout {
    /// Groups of 32 numbers of a head, the last one filled up: panels of a block's values.
    pub(super) fn n_group(self) -> usize {
        self.head_dim.div_ceil(WIDTH)
    }

    /// Bytes of a row of a panel.
    pub(super) fn row_bytes(self) -> usize {
        WIDTH * self.format.code_bytes()
    }

    pub(super) fn key_panel_bytes(self) -> usize {
        self.head_dim * self.row_bytes() + self.format.scale_bytes(self.head_dim) * WIDTH
    }

    pub(super) fn value_panel_bytes(self) -> usize {
        BLOCK * self.row_bytes() + self.format.scale_bytes(1) * BLOCK
    }

    fn block_bytes(self) -> usize {
        N_KEY_PANEL * self.key_panel_bytes() + self.n_group() * self.value_panel_bytes()
    }

    fn page_bytes(self) -> usize {
        KV_PAGE / BLOCK * self.block_bytes()
    }

    /// Where group `g` of position `pos` of a page lies: its first code, bytes from one code to the next, its scale.
    fn place(self, pos: usize, part: Part, g: usize) -> (usize, usize, usize) {
        let (n_code, block, row) = (self.format.code_bytes(), pos / BLOCK * self.block_bytes(), pos % BLOCK);
        match part {
            Part::Key => {
                let (panel, column) = (block + row / WIDTH * self.key_panel_bytes(), row % WIDTH);
                let scales = panel + self.head_dim * self.row_bytes();
                let first = panel + g * WIDTH * self.row_bytes() + column * n_code;
                (first, self.row_bytes(), scales + (g * WIDTH + column) * SCALE_BYTES)
            }
            Part::Value => {
                let values = block + N_KEY_PANEL * self.key_panel_bytes();
                let panel = values + g * self.value_panel_bytes();
                let scales = panel + BLOCK * self.row_bytes();
                (panel + row * self.row_bytes(), n_code, scales + row * SCALE_BYTES)
            }
        }
    }

    fn put(self, page: &mut [u8], pos: usize, part: Part, g: usize, codes: &[u8], scale: [u8; SCALE_BYTES]) {
        let (first, step, at) = self.place(pos, part, g);
        let n_code = self.format.code_bytes();
        if step == n_code {
            page[first..first + codes.len()].copy_from_slice(codes);
        } else {
            for (i, code) in codes.chunks_exact(n_code).enumerate() {
                page[first + i * step..][..n_code].copy_from_slice(code);
            }
        }
        if self.format == KvFormat::Q8 {
            page[at..at + SCALE_BYTES].copy_from_slice(&scale);
        }
    }

    fn get(self, page: &[u8], pos: usize, part: Part, g: usize, codes: &mut [u8]) -> [u8; SCALE_BYTES] {
        let (first, step, at) = self.place(pos, part, g);
        let n_code = self.format.code_bytes();
        for (i, code) in codes.chunks_exact_mut(n_code).enumerate() {
            code.copy_from_slice(&page[first + i * step..][..n_code]);
        }
        match self.format {
            KvFormat::Q8 => [page[at], page[at + 1]],
            _ => [0; SCALE_BYTES],
        }
    }
}
