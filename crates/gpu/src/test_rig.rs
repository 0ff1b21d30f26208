//! What the kernels' tests share: a device, random inputs, and how far results may lie apart.

use crate::context::{Buf, Context};

/// A device for tests.
pub(crate) struct Rig {
    pub(crate) context: Context,
}

/// The device that `FLASH_MOE_TEST_GPU` names (a number), or the best one; `None`, loudly, where there is none.
pub(crate) fn rig() -> Option<Rig> {
    let index =
        std::env::var("FLASH_MOE_TEST_GPU").ok().map(|n| n.parse().expect("FLASH_MOE_TEST_GPU is a number"));
    match Context::open(index) {
        Ok(context) => Some(Rig { context }),
        Err(error) => {
            eprintln!("SKIPPED: no GPU to test ({error}); Mesa's lavapipe is one for any machine");
            None
        }
    }
}

impl Rig {
    pub(crate) fn zeros(&self, n: usize) -> Buf {
        self.context.buffer(n as u64 * 4)
    }

    pub(crate) fn tensor(&self, values: &[f32]) -> Buf {
        let buf = self.zeros(values.len());
        self.context.write(&buf, 0, bytemuck::cast_slice(values));
        buf
    }

    pub(crate) fn read(&self, buf: &Buf, n: usize) -> Vec<f32> {
        let mut out = vec![0.0; n];
        self.context.read(buf, 0, bytemuck::cast_slice_mut(&mut out));
        if let Some(error) = self.context.failure() {
            panic!("{error}");
        }
        out
    }
}

/// `n` about normal numbers, standard deviation 1.
pub(crate) fn random(seed: u64, n: usize) -> Vec<f32> {
    let mut state = seed;
    let mut unit = || {
        state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = state;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((z ^ (z >> 31)) >> 40) as f32 / (1u64 << 23) as f32 - 1.0
    };
    (0..n).map(|_| (0..6).map(|_| unit()).sum::<f32>() / 2f32.sqrt()).collect()
}

/// Fails unless `got` lies within `bound` of `want`, relative to the larger of the number itself and the root mean
/// square of them all.
pub(crate) fn assert_close(what: &str, got: &[f32], want: &[f32], bound: f64) {
    assert_eq!(got.len(), want.len(), "{what}: lengths");
    let mean = want.iter().map(|&x| f64::from(x).powi(2)).sum::<f64>() / want.len().max(1) as f64;
    for (i, (&got, &want)) in got.iter().zip(want).enumerate() {
        let (got, want) = (f64::from(got), f64::from(want));
        let error = (got - want).abs() / mean.sqrt().max(want.abs()).max(1e-38);
        assert!(error <= bound, "{what}: number {i} is {got:e}, should be {want:e}: error {error:.2e}");
    }
}

/// Fails unless the bits agree.
pub(crate) fn assert_same(what: &str, got: &[f32], want: &[f32]) {
    assert_eq!(got.len(), want.len(), "{what}: lengths");
    for (i, (got, want)) in got.iter().zip(want).enumerate() {
        assert!(got.to_bits() == want.to_bits(), "{what}: number {i} is {got:e}, was {want:e}");
    }
}
