//! A long context without the hours that it takes to compute: for measurements.

use kernels::Backend;

use crate::session::{LayerState, Session, attention_shape};
use crate::{Engine, ModelError};

/// Positions that are made up at a time.
const N_POSITION: usize = 256;

impl<B: Backend> Engine<B> {
    /// Appends `n_token` made-up tokens: their keys and values are random numbers in -1..1 (keys are about as large as
    /// normed ones), their ids 0, and recurrent states stay as they are. The speed of what follows is that of a context
    /// of this length; its output means nothing.
    ///
    /// # Errors
    /// The session is poisoned, or they do not fit. Nothing is appended then.
    pub fn fill_random(&self, session: &mut Session<B>, n_token: usize, seed: u64) -> Result<(), ModelError> {
        session.check_usable()?;
        let (pos, n_ctx) = (session.pos(), session.n_ctx());
        if n_ctx - pos < n_token {
            return Err(ModelError::ContextFull { n_token, pos, n_ctx });
        }
        let shape = attention_shape(self.config());
        let (format, mut random) = (session.kv_format(), Random(seed));
        let mut row = vec![0.0; shape.head_dim];
        let mut bytes = vec![0; N_POSITION * format.position_bytes(shape)];
        // One made-up page serves all: what it says does not matter, but other pages must be other memory.
        for stored in bytes.chunks_exact_mut(format.row_bytes(shape.head_dim)) {
            row.fill_with(|| random.unit());
            format.encode_row(&row, stored);
        }
        for layer in &mut session.layers {
            let LayerState::Attention(kv) = layer else { continue };
            for at in (0..n_token).step_by(N_POSITION) {
                let n = N_POSITION.min(n_token - at);
                self.backend().write_kv(kv, pos + at, &bytes[..n * format.position_bytes(shape)]);
            }
        }
        session.ids.resize(pos + n_token, 0);
        Ok(())
    }
}

/// SplitMix64.
struct Random(u64);

impl Random {
    /// In -1..1.
    fn unit(&mut self) -> f32 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        ((z ^ (z >> 31)) >> 40) as f32 / (1u64 << 23) as f32 - 1.0
    }
}
