//! Rows of a matrix.

use crate::context::{Bind, Context};
use crate::format::{N_TEXT, kernel_of_every_format, read_by};
use crate::kernel::Access::{Read, Write};
use crate::kernel::Kernel;
use crate::ops::MatrixAt;

static EMBED: [Kernel; N_TEXT] =
    kernel_of_every_format!("embed", [include_str!("../wgsl/embed.wgsl")], &[Read, Read, Read, Read, Write]);

impl Context {
    /// `out[t] = w[ids[t] - row0]`, `out` `[n_token, cols]`, the ids in `ids.0` from word `ids.1` on. `w` holds rows
    /// `row0 ..` of a larger matrix; the tokens whose row it does not hold are left alone.
    pub(crate) fn embed(
        &self,
        w: MatrixAt<'_>,
        row0: usize,
        ids: (Bind<'_>, u32),
        n_token: usize,
        out: Bind<'_>,
    ) {
        let reader = read_by(w.format);
        let [codes, scales, biases] = w.planes;
        let (rows, cols) = (w.rows as u32, w.cols as u32);
        let params = [codes, scales, biases, rows, cols, row0 as u32, ids.1, n_token as u32];
        let [w1, w2, w4] = w.binds();
        let groups = self.grid((n_token * w.cols.div_ceil(8)).div_ceil(64));
        self.run(reader.kernel(&EMBED), &reader.constants(&[]), &[w1, w2, w4, ids.0, out], &params, groups);
    }
}

/// All kernels of this file.
#[cfg(test)]
pub(crate) fn kernels() -> Vec<&'static Kernel> {
    EMBED.iter().collect()
}

#[cfg(test)]
mod tests {
    use kernels::{Backend, Reference};

    use crate::test_rig::{assert_same, extreme, formats, others, plain_zeros, rig, stored};

    #[test]
    fn embeddings_are_decoded_rows() {
        // Breaks if a code lands in the wrong place, a number is rounded twice, a token gets another token's row, or
        // a block of rows answers for rows that it does not hold.
        let Some(rig) = rig() else { return };
        let ids = [10u32, 0, 3, 3, 7, 4];
        let words = rig.words(&ids);
        for (format, cols) in formats().into_iter().flat_map(|f| f.1.map(|cols| (f.0, cols))) {
            let is_other = others().any(|other| other == format);
            let make = if is_other { extreme } else { stored };
            let all = make(cols as u64, format, 11, cols);
            let mut want = vec![0.0; ids.len() * cols];
            Reference.embed(&all, &ids, &mut want);
            plain_zeros(&mut want);
            let out = rig.zeros(ids.len() * cols);
            let w = rig.upload(&all);
            rig.context.embed(w.at(), 0, (words.bind(), 0), ids.len(), out.bind());
            let mut got = rig.read(&out, ids.len() * cols);
            plain_zeros(&mut got);
            assert_same(&format!("{format}, {cols} columns"), &got, &want);

            let (block, out) = (rig.upload_rows(&all, 3..8), rig.zeros(ids.len() * cols));
            rig.context.embed(block.at(), 3, (words.bind(), 1), ids.len() - 1, out.bind());
            let mut want = want[cols..].to_vec();
            want[..cols].fill(0.0);
            let what = format!("{format}, {cols} columns, rows 3 to 7");
            let mut got = rig.read(&out, (ids.len() - 1) * cols);
            plain_zeros(&mut got);
            assert_same(&what, &got, &want);
        }
    }
}
