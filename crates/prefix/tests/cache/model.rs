//! A model in place of the real one: whatever it keeps is a hash of everything before, so that one wrong byte, or one
//! right byte in the wrong place, changes all that follows.

use std::ops::Range;
use std::path::Path;
use std::time::Duration;

use prefix::{Cache, Checkpoint, Disk, DiskLimits, Identity, Kept, Loaded, Shape, Timeline};
use xxhash_rust::xxh3::xxh3_64_with_seed;

const N_LAYER: usize = 3;
const LAYER_BYTES: usize = 8;
pub(crate) const TOKEN_BYTES: usize = N_LAYER * LAYER_BYTES;
pub(crate) const STATE_BYTES: usize = 64;
pub(crate) const LOGITS_BYTES: usize = 8;

pub(crate) fn identity() -> Identity {
    let shape =
        Shape { kv_token_bytes: N_LAYER * LAYER_BYTES, state_bytes: STATE_BYTES, logits_bytes: LOGITS_BYTES };
    Identity { fingerprint: 7, settings: "4 experts".into(), model: "hashes".into(), shape }
}

/// A cache on the folder `root`.
pub(crate) fn open_limited(root: &Path, memory_bytes: u64, size_bytes: u64) -> Cache {
    let limits = DiskLimits {
        size_bytes,
        daily_write_bytes: u64::MAX,
        expiry: Duration::from_secs(1_000_000),
        free_bytes: 0,
    };
    let (disk, entries) = Disk::open(root, &identity(), limits).unwrap();
    Cache::new(identity(), memory_bytes).with_disk(disk, entries)
}

/// A session of it.
#[derive(Clone, Default)]
pub(crate) struct Session {
    pub(crate) ids: Vec<u32>,
    /// A layer after the other: `[pos][LAYER_BYTES]`.
    kv: [Vec<u8>; N_LAYER],
    state: Vec<u8>,
    /// The device fails at this call from now.
    pub(crate) fails_in: Option<usize>,
    /// Keys and values were replaced, and nothing was resumed since.
    is_between: bool,
}

impl Session {
    pub(crate) fn fed(ids: &[u32]) -> Self {
        let mut session = Self { state: vec![0; STATE_BYTES + LOGITS_BYTES], ..Self::default() };
        session.feed(ids);
        session
    }

    pub(crate) fn feed(&mut self, ids: &[u32]) {
        assert!(!self.is_between, "a session between two prefixes cannot go on");
        for &id in ids {
            for (i, layer) in self.kv.iter_mut().enumerate() {
                layer.truncate(self.ids.len() * LAYER_BYTES);
                let value = xxh3_64_with_seed(&self.state[..STATE_BYTES], u64::from(id) << 8 | i as u64);
                layer.extend_from_slice(&value.to_le_bytes());
            }
            for word in 0..STATE_BYTES / 8 {
                let value =
                    xxh3_64_with_seed(&self.state[..STATE_BYTES], u64::from(id) << 8 | (100 + word) as u64);
                self.state[word * 8..][..8].copy_from_slice(&value.to_le_bytes());
            }
            self.ids.push(id);
        }
        let attended = self.kv.concat();
        let logits = xxh3_64_with_seed(&attended, xxh3_64_with_seed(&self.state[..STATE_BYTES], 0));
        self.state.truncate(STATE_BYTES);
        self.state.extend_from_slice(&logits.to_le_bytes());
    }

    pub(crate) fn state(&self, with_logits: bool) -> Vec<u8> {
        self.state[..STATE_BYTES + if with_logits { LOGITS_BYTES } else { 0 }].to_vec()
    }

    /// Takes `prompt` up where the cache allows it; panics where anything differs from feeding it all.
    pub(crate) fn take_up(&mut self, cache: &mut Cache, prompt: &[u32]) -> Loaded {
        let n_held = self.ids.iter().zip(prompt).take_while(|(a, b)| a == b).count();
        let lookup = cache.find(prompt, n_held);
        let loaded = cache.load(prompt, n_held, self);
        assert!(loaded.n_reused <= lookup.n_reusable && lookup.n_reusable <= lookup.n_matched);
        assert!(lookup.n_matched <= prompt.len());
        if loaded.n_reused == 0 {
            *self = Self::fed(&[]);
        } else {
            assert!(!self.is_between && self.ids == prompt[..loaded.n_reused]);
            let cold = Self::fed(&self.ids);
            for (i, layer) in cold.kv.iter().enumerate() {
                assert!(layer[..] == self.kv[i][..layer.len()], "keys and values of layer {i}");
            }
            assert!(cold.state[..STATE_BYTES] == self.state[..STATE_BYTES], "state at {}", loaded.n_reused);
            if loaded.n_reused == prompt.len() {
                assert!(cold.state == self.state, "logits at {}", loaded.n_reused);
            }
        }
        loaded
    }

    pub(crate) fn keep(&self, cache: &mut Cache, with_logits: bool, likelihood: f32) -> Kept {
        cache.keep(Checkpoint { ids: &self.ids, state: self.state(with_logits), likelihood }, self)
    }

    /// Reads a whole prompt, keeping a checkpoint at each of `points`, which are positions and likelihoods: at the
    /// prompt's end with logits.
    pub(crate) fn read(&mut self, cache: &mut Cache, prompt: &[u32], points: &[(usize, f32)]) -> Loaded {
        let loaded = self.take_up(cache, prompt);
        let mut at = loaded.n_reused;
        for &(point, likelihood) in points.iter().filter(|(point, _)| *point > loaded.n_reused) {
            self.feed(&prompt[at..point]);
            self.keep(cache, point == prompt.len(), likelihood);
            at = point;
        }
        self.feed(&prompt[at..]);
        loaded
    }

    fn fails(&mut self) -> Result<(), String> {
        match &mut self.fails_in {
            Some(0) => Err("the device has failed".into()),
            Some(n) => {
                *n -= 1;
                Ok(())
            }
            None => Ok(()),
        }
    }
}

impl Timeline for Session {
    fn read_kv(&self, positions: Range<usize>, out: &mut [u8]) -> Result<(), String> {
        let n_byte = positions.len() * LAYER_BYTES;
        if self.fails_in == Some(0) {
            return Err("the device has failed".into());
        }
        assert!(out.len() == N_LAYER * n_byte && positions.len() <= 256);
        for (layer, out) in self.kv.iter().zip(out.chunks_exact_mut(n_byte)) {
            out.copy_from_slice(&layer[positions.start * LAYER_BYTES..][..n_byte]);
        }
        Ok(())
    }

    fn write_kv(&mut self, positions: Range<usize>, bytes: &[u8]) -> Result<(), String> {
        self.is_between = true;
        self.fails()?;
        let n_byte = positions.len() * LAYER_BYTES;
        assert_eq!(bytes.len(), N_LAYER * n_byte);
        for (layer, bytes) in self.kv.iter_mut().zip(bytes.chunks_exact(n_byte)) {
            assert!(layer.len() >= positions.start * LAYER_BYTES, "a hole before {positions:?}");
            layer.resize(layer.len().max(positions.end * LAYER_BYTES), 0);
            layer[positions.start * LAYER_BYTES..][..n_byte].copy_from_slice(bytes);
        }
        Ok(())
    }

    fn resume(&mut self, ids: &[u32], state: &[u8]) -> Result<(), String> {
        self.is_between = true;
        self.fails()?;
        assert!(
            self.kv.iter().all(|layer| layer.len() >= ids.len() * LAYER_BYTES),
            "keys and values end early"
        );
        self.ids = ids.to_vec();
        self.state = state.to_vec();
        self.state.resize(STATE_BYTES + LOGITS_BYTES, 0);
        self.is_between = false;
        Ok(())
    }
}
