//! Going back: the recurrent state at one position, in memory or in a file.
//!
//! Keys and values only ever grow, so a snapshot keeps the recurrent state and the session keeps the rest
//! (spec 2.5, "state copy = checkpoint"). A saved session has everything.

use std::io::{self, Read, Write};

use kernels::{Backend, KvFormat};
use xxhash_rust::xxh3::{Xxh3, xxh3_64};

use crate::error::check_backend;
use crate::session::{LayerState, Session, attention_shape, state_lens};
use crate::{Engine, ModelError};

/// First bytes of a saved session: name and version.
const MAGIC: &[u8; 8] = b"FMSESS02";

/// Recurrent state at one position of a session's history.
#[derive(Clone, Debug, PartialEq)]
pub struct Snapshot {
    /// Conv and S of each delta-net layer.
    states: Vec<(Vec<f32>, Vec<f32>)>,
    logits: Vec<f32>,
    pos: usize,
    /// Of the first `pos` ids.
    history: u64,
}

impl Snapshot {
    /// The position to go back to.
    pub fn pos(&self) -> usize {
        self.pos
    }

    /// Memory that it takes.
    pub fn bytes(&self) -> usize {
        4 * (self.logits.len() + self.states.iter().map(|(conv, s)| conv.len() + s.len()).sum::<usize>())
    }
}

impl<B: Backend> Engine<B> {
    /// Remembers where `session` is now.
    ///
    /// # Errors
    /// The session is poisoned, or the backend has failed.
    pub fn snapshot(&self, session: &Session<B>) -> Result<Snapshot, ModelError> {
        session.check_usable()?;
        let read = |t: &B::Tensor, n: usize| {
            let mut out = vec![0.0; n];
            self.backend().read(t, 0, &mut out);
            out
        };
        let states = session.layers.iter().filter_map(|layer| match layer {
            LayerState::Attention(_) => None,
            LayerState::DeltaNet(d) => {
                let (n_conv, n_state) = state_lens(self.config());
                Some((read(&d.conv, n_conv), read(&d.s, n_state)))
            }
        });
        let states = states.collect();
        check_backend(self.backend())?;
        Ok(Snapshot {
            states,
            logits: session.logits.clone(),
            pos: session.pos(),
            history: history(&session.ids),
        })
    }

    /// Takes `session` back to `snapshot`, a position that it has been through with the same tokens.
    ///
    /// # Errors
    /// The session's tokens up to there are others: its keys and values are not the snapshot's.
    pub fn rewind(&self, session: &mut Session<B>, snapshot: &Snapshot) -> Result<(), ModelError> {
        let same = session.ids.get(..snapshot.pos).is_some_and(|ids| history(ids) == snapshot.history);
        if !same {
            let why = format!("the session's first {} tokens are not those of the snapshot", snapshot.pos);
            return Err(ModelError::Snapshot { why });
        }
        let mut states = snapshot.states.iter();
        for layer in &mut session.layers {
            if let LayerState::DeltaNet(d) = layer {
                let (conv, s) = states.next().expect("a snapshot has one entry a delta-net layer");
                self.backend().write(&mut d.conv, 0, conv);
                self.backend().write(&mut d.s, 0, s);
            }
        }
        session.ids.truncate(snapshot.pos);
        session.logits.copy_from_slice(&snapshot.logits);
        session.poison = None;
        Ok(())
    }

    /// Writes a session: header, ids, states, keys and values up to its position as they are stored, logits, checksum.
    ///
    /// # Errors
    /// The session is poisoned, the backend has failed, or writing fails.
    pub fn save(&self, session: &Session<B>, out: &mut dyn Write) -> Result<(), ModelError> {
        session.check_usable()?;
        let mut out = Hashing { inner: out, hash: Xxh3::new() };
        out.write_all(MAGIC)?;
        for word in header(self.fingerprint(), self.n_expert_used(), session.kv_format, session.pos()) {
            out.write_all(&word.to_le_bytes())?;
        }
        for id in &session.ids {
            out.write_all(&id.to_le_bytes())?;
        }
        for layer in &session.layers {
            match layer {
                LayerState::Attention(kv) => self.write_kv(kv, session, &mut out)?,
                LayerState::DeltaNet(d) => {
                    let (n_conv, n_state) = state_lens(self.config());
                    self.write_tensor(&d.conv, n_conv, &mut out)?;
                    self.write_tensor(&d.s, n_state, &mut out)?;
                }
            }
        }
        write_floats(&session.logits, &mut out)?;
        check_backend(self.backend())?;
        let digest = out.hash.digest();
        out.inner.write_all(&digest.to_le_bytes())?;
        Ok(())
    }

    /// Reads a saved session into a new one of `n_ctx` tokens.
    ///
    /// # Errors
    /// It is damaged, of another model, number of experts or format of keys and values, or longer than `n_ctx`.
    pub fn restore(&self, input: &mut dyn Read, n_ctx: usize) -> Result<Session<B>, ModelError> {
        let refuse = |why: String| Err(ModelError::Snapshot { why });
        let mut input = Hashing { inner: input, hash: Xxh3::new() };
        let mut magic = [0; 8];
        input.read_exact(&mut magic)?;
        if &magic != MAGIC {
            return refuse("the file is not a saved session of this version".into());
        }
        let [fingerprint, n_expert_used, kv_format, pos] = input.read_words()?;
        if fingerprint != self.fingerprint() {
            return refuse("it was saved with other weights".into());
        }
        if n_expert_used != self.n_expert_used() as u64 {
            return refuse(format!("it was saved with {n_expert_used} experts a token"));
        }
        if kv_format != format_word(self.kv_format()) {
            let saved = KvFormat::ALL.into_iter().find(|&format| format_word(format) == kv_format);
            let saved = saved.map_or("an unknown format", KvFormat::name);
            let why =
                format!("its keys and values are stored as {saved}, this engine's as {}", self.kv_format());
            return refuse(why);
        }
        if pos > n_ctx as u64 {
            return refuse(format!("it has {pos} tokens, the context holds {n_ctx}"));
        }
        let mut session = self.session(n_ctx);
        for _ in 0..pos {
            session.ids.push(input.read_u32()?);
        }
        let pos = pos as usize;
        for layer in &mut session.layers {
            match layer {
                LayerState::Attention(kv) => self.read_kv(kv, pos, &mut input)?,
                LayerState::DeltaNet(d) => {
                    let (n_conv, n_state) = state_lens(self.config());
                    self.read_tensor(&mut d.conv, n_conv, &mut input)?;
                    self.read_tensor(&mut d.s, n_state, &mut input)?;
                }
            }
        }
        input.read_floats(&mut session.logits)?;
        let digest = input.hash.digest();
        let mut stored = [0; 8];
        input.inner.read_exact(&mut stored)?;
        if digest != u64::from_le_bytes(stored) {
            return refuse("its checksum does not match: the file is damaged".into());
        }
        check_backend(self.backend())?;
        Ok(session)
    }

    /// Keys and values of all positions.
    fn write_kv(&self, kv: &B::Kv, session: &Session<B>, out: &mut dyn Write) -> io::Result<()> {
        let n_position = session.kv_format.position_bytes(attention_shape(self.config()));
        let mut piece = vec![0; n_position * N_POSITION.min(session.pos())];
        for pos in (0..session.pos()).step_by(N_POSITION) {
            let piece = &mut piece[..n_position * N_POSITION.min(session.pos() - pos)];
            self.backend().read_kv(kv, pos, piece);
            out.write_all(piece)?;
        }
        Ok(())
    }

    /// Appends keys and values of `n_pos` positions to an empty cache.
    fn read_kv(&self, kv: &mut B::Kv, n_pos: usize, input: &mut Hashing<&mut dyn Read>) -> io::Result<()> {
        let n_position = self.kv_format().position_bytes(attention_shape(self.config()));
        let mut piece = vec![0; n_position * N_POSITION.min(n_pos)];
        for pos in (0..n_pos).step_by(N_POSITION) {
            let piece = &mut piece[..n_position * N_POSITION.min(n_pos - pos)];
            input.read_exact(piece)?;
            self.backend().write_kv(kv, pos, piece);
        }
        Ok(())
    }

    fn write_tensor(&self, tensor: &B::Tensor, n: usize, out: &mut dyn Write) -> io::Result<()> {
        let mut piece = vec![0.0; PIECE.min(n)];
        for at in (0..n).step_by(PIECE) {
            let piece = &mut piece[..PIECE.min(n - at)];
            self.backend().read(tensor, at, piece);
            write_floats(piece, out)?;
        }
        Ok(())
    }

    fn read_tensor(
        &self,
        tensor: &mut B::Tensor,
        n: usize,
        input: &mut Hashing<&mut dyn Read>,
    ) -> io::Result<()> {
        let mut piece = vec![0.0; PIECE.min(n)];
        for at in (0..n).step_by(PIECE) {
            let piece = &mut piece[..PIECE.min(n - at)];
            input.read_floats(piece)?;
            self.backend().write(tensor, at, piece);
        }
        Ok(())
    }
}

/// Floats copied at a time.
const PIECE: usize = 64 * 1024;
/// Positions copied at a time.
const N_POSITION: usize = 256;

/// Names a history of tokens.
fn history(ids: &[u32]) -> u64 {
    let bytes: Vec<u8> = ids.iter().flat_map(|id| id.to_le_bytes()).collect();
    xxh3_64(&bytes)
}

/// What must agree for a saved session to be of use, and its length.
fn header(fingerprint: u64, n_expert_used: usize, kv_format: KvFormat, pos: usize) -> [u64; 4] {
    [fingerprint, n_expert_used as u64, format_word(kv_format), pos as u64]
}

/// The name of a format.
fn format_word(format: KvFormat) -> u64 {
    let mut word = [0; 8];
    word[..format.name().len()].copy_from_slice(format.name().as_bytes());
    u64::from_le_bytes(word)
}

fn write_floats(values: &[f32], out: &mut dyn Write) -> io::Result<()> {
    let bytes: Vec<u8> = values.iter().flat_map(|v| v.to_le_bytes()).collect();
    out.write_all(&bytes)
}

/// Hashes what passes through.
struct Hashing<T> {
    inner: T,
    hash: Xxh3,
}

impl Write for Hashing<&mut dyn Write> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let n = self.inner.write(bytes)?;
        self.hash.update(&bytes[..n]);
        Ok(n)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.inner.flush()
    }
}

impl Hashing<&mut dyn Read> {
    fn read_exact(&mut self, bytes: &mut [u8]) -> io::Result<()> {
        self.inner.read_exact(bytes)?;
        self.hash.update(bytes);
        Ok(())
    }

    fn read_words<const N: usize>(&mut self) -> io::Result<[u64; N]> {
        let mut words = [0; N];
        for word in &mut words {
            let mut bytes = [0; 8];
            self.read_exact(&mut bytes)?;
            *word = u64::from_le_bytes(bytes);
        }
        Ok(words)
    }

    fn read_u32(&mut self) -> io::Result<u32> {
        let mut bytes = [0; 4];
        self.read_exact(&mut bytes)?;
        Ok(u32::from_le_bytes(bytes))
    }

    fn read_floats(&mut self, out: &mut [f32]) -> io::Result<()> {
        let mut bytes = vec![0; out.len() * 4];
        self.read_exact(&mut bytes)?;
        for (value, bytes) in out.iter_mut().zip(bytes.chunks_exact(4)) {
            *value = f32::from_le_bytes(bytes.try_into().expect("chunks of four"));
        }
        Ok(())
    }
}
