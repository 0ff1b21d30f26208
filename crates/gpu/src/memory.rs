//! Where matrices, activations and experts' records lie.

use std::io;
use std::sync::{Arc, Mutex};

use kernels::RecordMemory;
use quant::{Format, Matrix, MatrixRef};

use crate::context::{Bind, Buf, Context, lock};
use crate::ops::MatrixAt;
use crate::raw::HostMemory;

/// The first slab of weights, and the largest: they double, so that small models take little.
const SLAB_BYTES_MIN: u64 = 4 << 20;
const SLAB_BYTES_MAX: u64 = 256 << 20;
/// Records start at pages, for direct reads.
const PAGE_BYTES: usize = 4096;

/// A flat f32 buffer on the device.
pub struct GpuTensor {
    pub(crate) buf: Buf,
    pub(crate) len: usize,
}

impl GpuTensor {
    pub(crate) fn bind(&self) -> Bind<'_> {
        self.buf.bind()
    }
}

/// A weight matrix on the device.
pub struct GpuWeights {
    pub(crate) format: Format,
    pub(crate) rows: usize,
    pub(crate) cols: usize,
    /// One, unless a kernel cannot see so much at a time.
    pub(crate) blocks: Vec<Block>,
}

/// Neighbouring rows of a matrix.
pub(crate) struct Block {
    pub(crate) first_row: usize,
    rows: usize,
    buf: Arc<Buf>,
    planes: [u32; 3],
}

impl GpuWeights {
    /// A block as a matrix of its own.
    pub(crate) fn at<'a>(&self, block: &'a Block) -> MatrixAt<'a> {
        MatrixAt {
            format: self.format,
            rows: block.rows,
            cols: self.cols,
            buf: block.buf.bind(),
            planes: block.planes,
        }
    }

    /// Copies the whole matrix to where its planes start in another buffer, in words.
    ///
    /// # Panics
    /// It is in several blocks.
    pub(crate) fn copy(&self, context: &Context, to: &Buf, planes: [u32; 3]) {
        let from = self.whole().planes;
        let bytes = self.format.planes(self.rows, self.cols).map(|plane| plane.len() as u64);
        for i in (0..3).filter(|&i| bytes[i] != 0) {
            let [from, to_at] = [from[i], planes[i]].map(|word| u64::from(word) * 4);
            // What fills up the last word is in both places between two planes.
            context.copy((&self.blocks[0].buf, from), (to, to_at), bytes[i].next_multiple_of(4));
        }
    }

    /// The whole matrix.
    ///
    /// # Panics
    /// It is in several blocks.
    pub(crate) fn whole(&self) -> MatrixAt<'_> {
        assert_eq!(self.blocks.len(), 1, "a matrix of {}x{} in one piece", self.rows, self.cols);
        self.at(&self.blocks[0])
    }
}

/// Where the next matrix goes.
#[derive(Default)]
pub(crate) struct Slabs {
    open: Mutex<Option<(Arc<Buf>, u64)>>,
}

impl Slabs {
    /// Copies a matrix to the device.
    pub(crate) fn upload(&self, context: &Context, matrix: &Matrix) -> GpuWeights {
        let (format, rows, cols, view) = (matrix.format(), matrix.rows(), matrix.cols(), matrix.view());
        // Kernels count a matrix's bytes in words of 32 bits.
        let bytes_max = context.binding_bytes_max().min(u32::MAX.into());
        let fits = |rows: usize| format.matrix_bytes(rows, cols) as u64 <= bytes_max;
        let mut block_rows = rows;
        while !fits(block_rows) && 1 < block_rows {
            block_rows = block_rows.div_ceil(2);
        }
        let block = |first_row: usize| {
            let rows = block_rows.min(rows - first_row);
            let (buf, planes) = self.upload_rows(context, &view, first_row, rows);
            Block { first_row, rows, buf, planes }
        };
        let blocks = (0..rows).step_by(block_rows.max(1)).map(block).collect();
        GpuWeights { format, rows, cols, blocks }
    }

    fn upload_rows(
        &self,
        context: &Context,
        w: &MatrixRef<'_>,
        first_row: usize,
        rows: usize,
    ) -> (Arc<Buf>, [u32; 3]) {
        let (buf, start) = self.room(context, w.format.matrix_bytes(rows, w.cols) as u64);
        let (format, cols) = (w.format, w.cols);
        let row_bytes = [format.row_bytes(cols), format.scale_row_bytes(cols), format.bias_row_bytes(cols)];
        let planes = w.format.planes(rows, w.cols).map(|plane| start + plane.start as u64);
        for ((bytes, n), at) in [w.codes, w.scales, w.biases].into_iter().zip(row_bytes).zip(planes) {
            context.write_large(&buf, at, &bytes[first_row * n..(first_row + rows) * n]);
        }
        (buf, planes.map(|at| (at / 4) as u32))
    }

    /// `bytes` in the open slab, or in a new one.
    fn room(&self, context: &Context, bytes: u64) -> (Arc<Buf>, u64) {
        let mut open = lock(&self.open);
        if let Some((slab, used)) = &mut *open
            && bytes <= slab.bytes() - *used
        {
            let at = *used;
            *used += bytes;
            return (Arc::clone(slab), at);
        }
        let doubled = open.as_ref().map_or(SLAB_BYTES_MIN, |(slab, _)| 2 * slab.bytes());
        let slab_bytes = doubled.min(SLAB_BYTES_MAX).min(context.binding_bytes_max()).max(bytes);
        let slab = Arc::new(context.buffer(slab_bytes));
        *open = Some((Arc::clone(&slab), bytes));
        (slab, 0)
    }
}

/// Memory of the host that the device reads in place.
pub(crate) struct RecordSlab {
    pub(crate) buf: Buf,
    /// Address of its first byte, to find it again by a record's.
    start: usize,
    bytes: usize,
}

impl RecordSlab {
    /// Which of them it is.
    pub(crate) fn address(&self) -> usize {
        self.start
    }
}

/// All such memory.
#[derive(Default)]
pub(crate) struct RecordSlabs {
    slabs: Mutex<Vec<Arc<RecordSlab>>>,
}

impl RecordSlabs {
    /// `n` pieces of `bytes` each.
    pub(crate) fn allocate(
        &self,
        context: &Context,
        n: usize,
        bytes: usize,
    ) -> io::Result<Vec<RecordMemory>> {
        let per_slab = (context.binding_bytes_max() as usize - PAGE_BYTES) / bytes.max(1);
        if per_slab == 0 {
            let limit = context.binding_bytes_max();
            return Err(io::Error::other(format!(
                "the GPU sees {limit} bytes at a time, an expert takes {bytes}"
            )));
        }
        let mut pieces: Vec<RecordMemory> = Vec::with_capacity(n);
        while pieces.len() < n {
            let n_piece = per_slab.min(n - pieces.len());
            let (buf, memory) = context.host_buffer((n_piece * bytes + PAGE_BYTES) as u64)?;
            lock(&self.slabs).push(Arc::new(RecordSlab {
                buf,
                start: memory.address(),
                bytes: memory.len(),
            }));
            let parts = HostMemory::split(memory, PAGE_BYTES, bytes, n_piece);
            pieces.extend(parts.into_iter().map(|part| Box::new(part) as RecordMemory));
        }
        Ok(pieces)
    }

    /// The slab that holds these bytes, and where in it they start.
    pub(crate) fn find(&self, bytes: &[u8]) -> Option<(Arc<RecordSlab>, usize)> {
        let at = bytes.as_ptr() as usize;
        let slabs = lock(&self.slabs);
        let slab = slabs.iter().find(|s| s.start <= at && at + bytes.len() <= s.start + s.bytes)?;
        Some((Arc::clone(slab), at - slab.start))
    }
}
