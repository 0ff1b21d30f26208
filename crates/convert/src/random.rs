//! Repeatable random numbers for made-up weights.

/// xoshiro256++ (Blackman and Vigna, public domain), seeded with splitmix64: several GB/s.
pub(crate) struct Random([u64; 4]);

impl Random {
    pub(crate) fn new(seed: [u64; 4]) -> Self {
        let mut state = 0;
        Self(seed.map(|word| {
            state = mix(state ^ word);
            state
        }))
    }

    pub(crate) fn next(&mut self) -> u64 {
        let s = &mut self.0;
        let out = s[0].wrapping_add(s[3]).rotate_left(23).wrapping_add(s[0]);
        let t = s[1] << 17;
        s[2] ^= s[0];
        s[3] ^= s[1];
        s[1] ^= s[2];
        s[0] ^= s[3];
        s[2] ^= t;
        s[3] = s[3].rotate_left(45);
        out
    }

    pub(crate) fn fill(&mut self, out: &mut [u8]) {
        let mut chunks = out.chunks_exact_mut(8);
        for chunk in &mut chunks {
            chunk.copy_from_slice(&self.next().to_le_bytes());
        }
        let rest = chunks.into_remainder();
        let n = rest.len();
        rest.copy_from_slice(&self.next().to_le_bytes()[..n]);
    }

    /// Uniform on 0..1.
    pub(crate) fn unit(&mut self) -> f32 {
        (self.next() >> 40) as f32 / (1u64 << 24) as f32
    }

    /// Fills `out` with numbers that are 0 on average with a standard deviation of `std`; uniform, which no product
    /// with a long vector can tell from normal.
    pub(crate) fn fill_noise(&mut self, out: &mut [f32], std: f64) {
        // A uniform number on -1..1 has a variance of 1/3.
        let scale = (std * 3f64.sqrt() / f64::from(1u32 << 31)) as f32;
        for pair in out.chunks_mut(2) {
            let word = self.next();
            for (w, half) in pair.iter_mut().zip([word as i32, (word >> 32) as i32]) {
                *w = half as f32 * scale;
            }
        }
    }

    /// About normal: 0 on average, standard deviation 1.
    pub(crate) fn normal(&mut self) -> f64 {
        (0..12).map(|_| f64::from(self.unit())).sum::<f64>() - 6.0
    }

    /// The numbers below `n` in random order.
    pub(crate) fn shuffled(&mut self, n: usize) -> Vec<usize> {
        let mut order: Vec<usize> = (0..n).collect();
        for i in (1..n).rev() {
            order.swap(i, (self.next() % (i as u64 + 1)) as usize);
        }
        order
    }
}

/// splitmix64's step and output function.
fn mix(x: u64) -> u64 {
    let x = x.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}
