//! Keys and values of one layer in memory of the device.
//!
//! Each of the two lies as `[n_pos, n_head_kv, row]`. A row is the head's codes, filled up to 16 bytes with zeros, then
//! for q8 its scales, filled up likewise: kernels read four words at a time.

use kernels::{AttentionShape, KvFormat};

use crate::context::{Buf, Context};

/// Positions that there is room for at first.
const N_POS_MIN: usize = 256;
/// Rows are multiples of it.
const ROW_ALIGN: usize = 16;

/// Keys and values. Grows by doubling.
pub struct Kv {
    pub(crate) shape: AttentionShape,
    pub(crate) format: KvFormat,
    pub(crate) keys: Buf,
    pub(crate) values: Buf,
    n_ctx: usize,
    /// Positions that there is room for.
    n_room: usize,
}

/// Bytes of a stored head on the device: of its codes, and of all of it.
pub(crate) fn row_bytes(format: KvFormat, head_dim: usize) -> (usize, usize) {
    let codes = code_bytes(format, head_dim);
    let scales = format.row_bytes(head_dim) - codes;
    let codes = codes.next_multiple_of(ROW_ALIGN);
    (codes, codes + scales.next_multiple_of(ROW_ALIGN))
}

/// Bytes of keys, or of values.
fn part_bytes(shape: AttentionShape, format: KvFormat, n_pos: usize) -> u64 {
    (n_pos * shape.n_head_kv * row_bytes(format, shape.head_dim).1) as u64
}

fn code_bytes(format: KvFormat, head_dim: usize) -> usize {
    match format {
        KvFormat::F32 => 4 * head_dim,
        KvFormat::F16 | KvFormat::Bf16 => 2 * head_dim,
        KvFormat::Q8 => head_dim,
    }
}

impl Kv {
    /// Between the trait's layout, where a head's value lies behind its key, and ours: for each row of keys (`part` 0)
    /// or values (1) its place in the former and in the latter, of codes and of scales.
    fn places(&self, part: usize, n_row: usize) -> impl Iterator<Item = [(usize, usize, usize); 2]> + use<> {
        let (codes, row_bytes) = row_bytes(self.format, self.shape.head_dim);
        let packed_bytes = self.format.row_bytes(self.shape.head_dim);
        let n_code = code_bytes(self.format, self.shape.head_dim);
        (0..n_row).map(move |row| {
            let (packed, ours) = ((2 * row + part) * packed_bytes, row * row_bytes);
            [(packed, ours, n_code), (packed + n_code, ours + codes, packed_bytes - n_code)]
        })
    }

    /// Rows of `bytes` of the trait's layout.
    fn n_row(&self, bytes: usize) -> usize {
        let packed_bytes = 2 * self.format.row_bytes(self.shape.head_dim);
        assert!(bytes.is_multiple_of(self.format.position_bytes(self.shape)), "{bytes} bytes of positions");
        bytes / packed_bytes
    }
}

impl Context {
    /// Positions of such a layer that the device can hold at most: a kernel must see all keys, or values, at once.
    pub(crate) fn kv_positions_max(&self, shape: AttentionShape, format: KvFormat) -> usize {
        let bytes_max = self.limits.max_storage_buffer_binding_size.min(self.limits.max_buffer_size);
        (bytes_max / part_bytes(shape, format, 1)) as usize
    }

    /// No keys and values yet.
    pub(crate) fn kv(&self, shape: AttentionShape, format: KvFormat, n_ctx: usize) -> Kv {
        let n_room = n_ctx.min(N_POS_MIN);
        let part = || self.buffer(part_bytes(shape, format, n_room));
        Kv { shape, format, keys: part(), values: part(), n_ctx, n_room }
    }

    /// Makes room for `n_pos` positions. If that is more than [`Self::kv_positions_max`], the device has failed.
    ///
    /// # Panics
    /// That is more than the context.
    pub(crate) fn grow_kv(&self, kv: &mut Kv, n_pos: usize) {
        if n_pos <= kv.n_room {
            return;
        }
        let n_max = self.kv_positions_max(kv.shape, kv.format);
        assert!(n_pos <= kv.n_ctx, "{n_pos} positions of a context of {}", kv.n_ctx);
        if n_max < n_pos {
            self.fail(&format!(
                "{n_pos} positions of keys and values in {} are wanted, its kernels see at most {n_max}",
                kv.format
            ));
            return;
        }
        kv.n_room = n_pos.next_power_of_two().min(kv.n_ctx).min(n_max);
        let bytes = part_bytes(kv.shape, kv.format, kv.n_room);
        for part in [&mut kv.keys, &mut kv.values] {
            let old = std::mem::replace(part, self.buffer(bytes));
            self.copy((&old, 0), (part, 0), old.bytes().min(part.bytes()));
        }
    }

    /// Copies positions `pos ..` as they are stored to `out`: see [`kernels::Backend::read_kv`].
    pub(crate) fn read_kv(&self, kv: &Kv, pos: usize, out: &mut [u8]) {
        let n_row = kv.n_row(out.len());
        let mut rows = vec![0; n_row * row_bytes(kv.format, kv.shape.head_dim).1];
        for (part, buf) in [&kv.keys, &kv.values].into_iter().enumerate() {
            self.read(buf, part_bytes(kv.shape, kv.format, pos), &mut rows);
            for (to, from, n) in kv.places(part, n_row).flatten() {
                out[to..to + n].copy_from_slice(&rows[from..from + n]);
            }
        }
    }

    /// Replaces or appends positions `pos ..`: see [`kernels::Backend::write_kv`].
    pub(crate) fn write_kv(&self, kv: &mut Kv, pos: usize, bytes: &[u8]) {
        let n_row = kv.n_row(bytes.len());
        self.grow_kv(kv, pos + n_row / kv.shape.n_head_kv);
        let mut rows = vec![0; n_row * row_bytes(kv.format, kv.shape.head_dim).1];
        for (part, buf) in [&kv.keys, &kv.values].into_iter().enumerate() {
            for (from, to, n) in kv.places(part, n_row).flatten() {
                rows[to..to + n].copy_from_slice(&bytes[from..from + n]);
            }
            self.write(buf, part_bytes(kv.shape, kv.format, pos), &rows);
        }
    }
}
